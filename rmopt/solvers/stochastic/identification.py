"""Manifold identification: steps on the manifold alternate with steps inside the present column and row space."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import numpy as np

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import CheckedValue, bounded, by_keyword, integer, number, one_of
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.problem import Problem
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines.base import Engine, checked, diverged
from rmopt.engines.bilinear import BILINEAR
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.linalg import factor_product
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers.stochastic.samplers import Sampler, as_sampler
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import as_step_size


@dataclass(frozen=True)
class IdentificationState:
    """The factors of W = A Bᵀ and two counters: rounds, and steps that moved the point."""

    A: Array
    B: Array
    steps: int = 0
    updates: int = 0


@dataclass(frozen=True)
class IdentificationEngine(Engine):
    """Rounds of Shalit et al. (2012), Algorithm 6: a step on W = A Bᵀ, then steps on M in W = A M Bᵀ.

    Each row of a schedule holds the term of the outer step and those of the inner steps.

    Attributes
    ----------
    cost : Bilinear
    inner_ratio : float
        Step size of the inner steps over that of the outer step.
    inner : {"paper", "gauge"}
        "paper": M moves along (Aᵀp)(Bᵀq)ᵀ, so that the path depends on the factors of W. "gauge": along
        (A†p)(B†q)ᵀ, so that A M Bᵀ moves along the gradient of W projected on its column and row space, for any
        factors.
    """

    cost: Bilinear
    inner_ratio: float
    inner: str

    def load(self, point: LowRankPoint) -> IdentificationState:
        """Return a state with balanced factors of a point."""
        return IdentificationState(*point.balanced_factors())

    @np.errstate(all="ignore")
    def advance(self, state: IdentificationState, schedule: Array, etas: Array) -> IdentificationState:
        schedule = checked(schedule, etas, self.cost.term_ranges)
        A, B, steps, updates = vars(state).values()
        for terms, eta in zip(schedule, etas, strict=True):
            left, right, targets = self.cost.vectors(terms)
            # Algorithm 3 for the first term. Its effect on A and on B matters here, not only on A Bᵀ.
            p, q = dense(left[[0]])[0], dense(right[[0]])[0]
            slope = self._slope((p @ A) @ (q @ B), targets[0], steps, eta)
            if slope != 0.0:
                p = -eta * slope * p
                a, b = np.linalg.solve(A.T @ A, p @ A), np.linalg.solve(B.T @ B, q @ B)
                s = b @ a
                p_move = (A @ a) * (0.375 * s - 0.5) + p * (1.0 - 0.5 * s)
                q_move = (B @ b) * (0.375 * s - 0.5) + q * (1.0 - 0.5 * s)
                A, B, updates = A + np.outer(p_move, b), B + np.outer(q_move, a), updates + 1
            # M moves from the identity, and its singular values are split between the factors.
            M, moves, U, V = np.eye(A.shape[1]), 0, left @ A, right @ B
            along_U, along_V = U, V
            if self.inner == "gauge":
                along_U, along_V = (np.linalg.solve(F.T @ F, rows.T).T for F, rows in ((A, U), (B, V)))
            for i in range(1, len(targets)):
                slope = self._slope(U[i] @ M @ V[i], targets[i], steps, eta)
                if slope != 0.0:
                    M -= eta * self.inner_ratio * slope * np.outer(along_U[i], along_V[i])
                    moves += 1
            if moves:
                P, sigma, Qt = np.linalg.svd(M)
                A, B = A @ (P * np.sqrt(sigma)), B @ (Qt.T * np.sqrt(sigma))
            steps, updates = steps + 1, updates + moves
        return IdentificationState(A, B, steps, updates)

    def _slope(self, score: float, target: float, step: int, eta: float) -> float:
        if not np.isfinite(score):
            raise diverged(step, eta)
        return float(self.cost.loss.slope(float(score), float(target)))

    def dump(self, state: IdentificationState) -> LowRankPoint:
        return LowRankPoint(*factor_product(state.A, np.eye(state.A.shape[1]), state.B))


@by_keyword
class ManifoldIdentification(CheckedValue, ScheduledSolver):
    """Rounds of one LORETA-1 step and some steps on the k × k matrix between the factors.

    Shalit et al. (2012), Algorithm 6, which they found unstable: in its printed form ("paper") the inner step depends
    on the factors, and directions that are long in both factors grow ever longer. The form "gauge", the Euclidean
    step within the present column and row space, does not. Neither is needed for speed: a step of LORETA-1 itself
    costs O(nnz·k + k²) here. Runs in plain Python, O((n + m) k²) a round.

    Parameters
    ----------
    step_size : float, StepSize or callable
        Step size of the outer steps.
    inner_step_size : float
        Step size of the inner steps at round 0, when the outer one is that of `step_size`. Both follow the same rule.
    inner_steps : int
        Inner steps in a round.
    inner : {"paper", "gauge"}
        The form of the inner steps.
    max_iter : int
        The budget, in rounds of 1 + `inner_steps` terms.
    sampler : Sampler or callable, optional
        Draws 1 + `inner_steps` terms per round, by default uniformly with replacement.

    See Also
    --------
    SGD : LORETA-1, with faster steps.

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
                f"a round needs 1 + inner_steps = {1 + self.inner_steps} terms, and the sampler draws {batch}; set "
                "its batch_size."
            )
        first = number(
            "the first step size", self.step_size_rule()(np.zeros(1, dtype=np.int64)).item(), above=0
        )
        return IdentificationEngine(cast(Bilinear, cost), self.inner_step_size / first, self.inner)

    def sampler_for(self, problem: Problem) -> Sampler:
        drawn = None if isinstance(self.sampler, Sampler) else 1 + self.inner_steps
        return as_sampler(self.sampler, problem.cost, drawn)
