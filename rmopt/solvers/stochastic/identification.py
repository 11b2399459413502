"""The solver of manifold identification."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import numpy as np

from rmopt.core.arguments import CheckedValue, bounded, integer, number, one_of
from rmopt.core.problem import Problem
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines.base import Engine
from rmopt.engines.bilinear import BILINEAR
from rmopt.engines.identification import IdentificationEngine
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers.stochastic.samplers import Sampler, as_sampler
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import as_step_size


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ManifoldIdentification(CheckedValue, ScheduledSolver):
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

    See Also
    --------
    SGD : LORETA-1, with less time for a step.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import ManifoldIdentification
    >>> left, right = np.random.default_rng(0).random((2, 100, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> solver = ManifoldIdentification(
    ...     0.5, inner_step_size=0.5, inner_steps=2, max_iter=500
    ... )
    >>> W = solver.run(Problem(FixedRankEmbedded(3, 3, 1), cost), random_state=0).point
    >>> cost.value(W) < 1e-3
    True
    """

    step_size: Annotated[Any, lambda name, rule: as_step_size(rule)] = field(kw_only=False)
    inner_step_size: Annotated[float, bounded(number, above=0)]
    inner_steps: Annotated[int, bounded(integer, 1)] = 10
    inner: Annotated[str, bounded(one_of, ("paper", "gauge"))] = "gauge"
    max_iter: Annotated[int, integer] = 1000
    sampler: Sampler | Callable[..., Any] | None = None

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
        first = number(
            "the first step size", self.step_size_rule()(np.zeros(1, dtype=np.int64)).item(), above=0
        )
        return IdentificationEngine(cast(Bilinear, cost), self.inner_step_size / first, self.inner)

    def sampler_for(self, problem: Problem) -> Sampler:
        drawn = None if isinstance(self.sampler, Sampler) else 1 + self.inner_steps
        return as_sampler(self.sampler, problem.cost, drawn)
