"""Manifold identification: steps on the manifold alternate with steps inside the present column and row space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number, one_of
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.problem import Problem
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines.base import Engine
from rmopt.engines.bilinear import BILINEAR
from rmopt.engines.identification import INNER_FORMS, IdentificationEngine
from rmopt.manifolds import FixedRankEmbedded
from rmopt.renamed import renamed
from rmopt.solvers.samplers import Sampler, as_sampler
from rmopt.solvers.scheduled import ScheduledSolver
from rmopt.solvers.step_sizes import StepSize, as_step_size


@renamed(n_steps="max_iter")
class ManifoldIdentification(ScheduledSolver):
    """Rounds of one LORETA-1 step and some steps on the k × k matrix between the factors.

    Shalit et al. (2012), Algorithm 6, which they found unstable: in its printed form ("paper") the inner step
    depends on the factors, and directions that are long in both factors grow ever longer. In the form "gauge"
    it is the Euclidean step within the present column and row space, and does not. Neither is needed for
    speed: LORETA-1 itself costs O(nnz·k + k²) a step here. Runs in plain Python, O((n + m) k²) a round.

    Parameters
    ----------
    step_size : float, StepSize or callable
        Step size of the outer steps.
    inner_step_size : float
        Step size of the inner steps, where the outer one is `step_size` at round 0; both follow the same rule.
    inner_steps : int
        Inner steps in a round.
    inner : {"paper", "gauge"}
        The form of the inner steps.
    max_iter : int
        The budget, in rounds of 1 + `inner_steps` terms.
    sampler : Sampler or callable, optional
        Draws 1 + `inner_steps` terms a round; uniform with replacement unless given.
    """

    def __init__(
        self,
        step_size: float | StepSize | Callable[[Array], Array],
        *,
        inner_step_size: float,
        inner_steps: int = 10,
        inner: str = "gauge",
        max_iter: int = 1000,
        sampler: Sampler | Callable[..., Any] | None = None,
    ) -> None:
        self.step_size = as_step_size(step_size)
        self.inner_step_size = number("inner_step_size", inner_step_size, above=0)
        self.inner_steps = integer("inner_steps", inner_steps, 1)
        self.inner = one_of("inner", inner, INNER_FORMS)
        self.max_iter, self.sampler = integer("max_iter", max_iter), sampler

    def engine(self, problem: Problem) -> Engine:
        cost, manifold = problem.cost, problem.manifold
        fit = isinstance(cost, Bilinear) and type(cost) in BILINEAR["cost"] and type(cost.loss) is Loss
        if not fit or type(manifold) is not FixedRankEmbedded:
            raise MissingCapabilityError(
                "ManifoldIdentification needs a bilinear cost (BilinearSum, TripletSum) with a Loss on "
                f"FixedRankEmbedded, and no subclass of them, got {type(cost).__name__} on {manifold}."
            )
        batch = self.sampler_for(problem).batch_size
        if batch != 1 + self.inner_steps:
            raise InvalidInputError(
                f"a round looks at 1 + inner_steps = {1 + self.inner_steps} terms, and the sampler draws "
                f"{batch}; set its batch_size."
            )
        ratio = self.inner_step_size / float(self.step_size_rule()(np.zeros(1, dtype=np.int64))[0])
        return IdentificationEngine(cast(Bilinear, cost), ratio, self.inner)

    def sampler_for(self, problem: Problem) -> Sampler:
        drawn = None if isinstance(self.sampler, Sampler) else 1 + self.inner_steps
        return as_sampler(self.sampler, problem.cost, drawn)
