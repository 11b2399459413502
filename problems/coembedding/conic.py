"""Equation 12 by conic solvers, through cvxpy where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.coembedding.regression import MetricRegression
from rmopt.core import InvalidInputError

Array = np.ndarray

# Relative accuracies near to what each can reach.
OPTIONS: dict[str, dict[str, Any]] = {
    "CLARABEL": {},
    "SCS": {"eps": 1e-9, "max_iters": 20_000},
}


def conic_metric(loss: MetricRegression, beta: float, solver: str) -> tuple[Array, int]:
    """Return the n × n metric that a conic solver finds, and its number of iterations.

    Parameters
    ----------
    loss : MetricRegression
    beta : float
    solver : {"CLARABEL", "SCS"}
        An interior-point method, or operator splitting.

    Raises
    ------
    InvalidInputError
        When cvxpy is not installed.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise InvalidInputError(f"the solver {solver} needs cvxpy; pip install cvxpy.") from None
    n = loss.shape[0]
    W = cp.Variable((n, n), PSD=True)
    residual = loss.target - loss.features @ W @ loss.features.T
    problem = cp.Problem(cp.Minimize(cp.sum_squares(residual) + beta * cp.trace(W)))
    problem.solve(solver=solver, **OPTIONS[solver])
    return np.asarray(W.value), int(problem.solver_stats.num_iters)
