"""The values of local optima from many random starts, against the number of columns (Burer and Monteiro 2003)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmopt.core import Problem
from rmopt.core.ambient import Array
from rmopt.costs import ConvexCost
from rmopt.manifolds import PSDFactors
from rmopt.solvers import LBFGS


def local_optima(
    cost: ConvexCost,
    ranks: list[int],
    n_starts: int,
    seed: int,
    tick: Callable[[], None] = lambda: None,
    tol: float = 1e-5,
) -> dict[int, Array]:
    """Return the objectives at which local optimisation ends, for factors with so many columns.

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
