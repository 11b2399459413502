"""Riemannian stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, one_of
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine
from rmopt.engines.choose import ENGINES, choose_engine
from rmopt.solvers.samplers import Sampler, as_sampler, batch_size_of
from rmopt.solvers.scheduled import ScheduledSolver
from rmopt.solvers.step_sizes import StepSize, as_step_size, watched


class SGD(ScheduledSolver):
    """Gradient of a few terms, projection onto the tangent space, retraction; again and again.

    A step is along the sum of the gradients of its terms, not their mean: with larger batches take smaller step
    sizes. A cost that is no sum of terms is taken whole at every step.

    On `FixedRankEmbedded` with `SecondOrder` and a bilinear cost this is LORETA
    (Shalit et al. 2012, Algorithms 1–4).

    Parameters
    ----------
    step_size : float, StepSize or callable
        A number is a constant step size; a function maps an int array of step numbers to step sizes.
    n_steps : int
        The budget.
    batch_size : int, optional
        Terms per step: those of the sampler, otherwise 1, unless given.
    sampler : Sampler or callable, optional
        Which terms each step looks at; uniform with replacement unless given.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine where there is one.
    """

    def __init__(
        self,
        step_size: float | StepSize | Callable[[Array], Array],
        *,
        n_steps: int = 10_000,
        batch_size: int | None = None,
        sampler: Sampler | Callable[..., Any] | None = None,
        retraction: Retraction | None = None,
        engine: str = "auto",
    ) -> None:
        self.step_size, self.n_steps = as_step_size(step_size), integer("n_steps", n_steps)
        self.sampler, self.batch_size = sampler, batch_size_of(sampler, batch_size)
        self.retraction, self.engine_name = retraction, one_of("engine", engine, ENGINES)

    def engine(self, problem: Problem) -> Engine:
        return choose_engine(problem, self.retraction, self.engine_name, self.batch_size)

    def sampler_for(self, problem: Problem) -> Sampler:
        return as_sampler(self.sampler, problem.cost, self.batch_size)

    def step_size_rule(self) -> StepSize:
        return watched(self.step_size)
