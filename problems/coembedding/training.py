"""Training of a co-embedding with one weight of the trace, and from random starts at a fixed rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt.core import InvalidInputError, Problem, PSDPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import number, shown
from rmopt.costs import ConvexCost, Trace
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, CertifiedResult, RankIncremental, Recorder

# The paper's weights, and larger ones, which standardised rows of length 1 need.
BETAS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def minimise(
    loss: ConvexCost,
    beta: float,
    solver: RankIncremental,
    start: PSDPoint | None = None,
    recorder: Recorder | None = None,
) -> CertifiedResult:
    """Return the minimum of loss + β trace over positive semidefinite matrices.

    Parameters
    ----------
    loss : ConvexCost
    beta : float
    solver : RankIncremental
    start : PSDPoint, optional
        A warm start, of any rank.
    recorder : Recorder, optional
    """
    problem = Problem(PSDFixedRank(loss.shape[0], 1), loss + Trace(beta))
    result = solver.run(problem, start, random_state=0, recorder=recorder)
    assert isinstance(result, CertifiedResult)
    return result


def checked_betas(betas: Any) -> list[float]:
    """Return the weights of a grid, ascending.

    Raises
    ------
    InvalidInputError
        For an empty grid, or weights that are not positive.
    """
    values = list(betas) if np.iterable(betas) and not isinstance(betas, str) else []
    if not values:
        raise InvalidInputError(f"betas = {shown(betas)} must be positive numbers, at least one.")
    return sorted({number("betas", value, above=0) for value in values})


def local_optima(
    cost: ConvexCost,
    ranks: list[int],
    n_starts: int,
    seed: int,
    tick: Callable[[], None] = lambda: None,
    tol: float = 1e-5,
) -> dict[int, Array]:
    """Return the objectives of local optima from random starts, by the number of columns (Burer and Monteiro 2003).

    Parameters
    ----------
    cost : ConvexCost
    ranks : list of int
        Numbers of columns.
    n_starts : int
        Starts with standard normal entries, for each rank.
    seed : int
    tick : callable
        Called after each start.
    tol : float
        Relative length of the gradient at which a local optimisation ends.
    """

    def optimum(rank: int, start: int) -> float:
        Y = np.random.default_rng([seed, rank, start]).standard_normal((cost.shape[0], rank))
        solver = LBFGS(20, max_iter=5000, tol=tol)
        value = cost.value(solver.run(Problem(PSDFactors(*Y.shape), cost), Y).point)
        tick()
        return value

    return {rank: np.array([optimum(rank, start) for start in range(n_starts)]) for rank in ranks}
