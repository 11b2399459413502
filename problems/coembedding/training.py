"""Training of a co-embedding with one weight of the trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.core import InvalidInputError, Problem, PSDPoint
from rmopt.core.arguments import number, shown
from rmopt.costs import ConvexCost, Trace
from rmopt.manifolds import PSDFixedRank
from rmopt.solvers import CertifiedResult, RankIncremental, Recorder

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
