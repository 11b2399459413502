"""Interior-point solutions of the convex programs of Mirzazadeh et al. (2015), by cvxpy."""

from typing import Any

import cvxpy as cp
import numpy as np

Array = np.ndarray


def metric_regression(X: Array, beta: float, solver: str = "CLARABEL", **options: Any) -> float:
    """Return the minimum of equation 12."""
    n = X.shape[0]
    W = cp.Variable((n, n), PSD=True)
    # ‖XᵀX − XᵀWX‖ is ‖R Rᵀ − R W Rᵀ‖ for the triangle of Xᵀ, whose sizes do not depend on the samples.
    R = np.linalg.qr(X.T, mode="r")
    problem = cp.Problem(cp.Minimize(cp.sum_squares(R @ R.T - R @ W @ R.T) + beta * cp.trace(W)))
    return float(problem.solve(solver=solver, **options))


def multilabel(X: Array, Y: Array, beta: float, solver: str = "CLARABEL", **options: Any) -> float:
    """Return the minimum of equation 13, with the smooth hinge as min u²/4 + v over u + v ≥ z + 2, u, v ≥ 0."""
    n, f = X.shape
    m = Y.shape[1]
    p = f + m + 1
    W = cp.Variable((p, p), PSD=True)
    # d(x, y) − t(x) = W_yy − W_00 − 2 xᵀ(W_xy − W_x0).
    diagonal = cp.diag(W)[f:]
    crossed = X @ W[:f, f:]
    z = np.ones((n, 1)) @ cp.reshape(diagonal[:m] - diagonal[m], (1, m), order="C")
    z = z - 2 * (crossed[:, :m] - cp.reshape(crossed[:, m], (n, 1), order="C") @ np.ones((1, m)))
    signs = np.where(Y, 1.0, -1.0)
    u, v = cp.Variable((n, m), nonneg=True), cp.Variable((n, m), nonneg=True)
    hinges = cp.square(u) / 4 + v
    total = beta * cp.trace(W)
    for i in range(n):
        for side in (Y[i], ~Y[i]):
            if side.any():
                total = total + cp.log_sum_exp(hinges[i, np.flatnonzero(side)])
    problem = cp.Problem(cp.Minimize(total), [u + v >= cp.multiply(signs, z) + 2])
    return float(problem.solve(solver=solver, **options))


def large_margin(X: Array, triplets: Array, beta: float, smoothing: float, **options: Any) -> float:
    """Return the minimum of large margin nearest neighbours plus β tr W; at smoothing 0 that of the hinge."""
    W = cp.Variable((X.shape[1],) * 2, PSD=True)

    def distances(pairs: Array) -> Any:
        apart = X[pairs[:, 0]] - X[pairs[:, 1]]
        return cp.sum(cp.multiply(apart @ W, apart), axis=1)

    z = 1 + distances(triplets[:, :2]) - distances(triplets[:, ::2])
    u, v = cp.Variable(len(triplets), nonneg=True), cp.Variable(len(triplets), nonneg=True)
    hinges = cp.sum_squares(u) / (4 * smoothing) + cp.sum(v) if smoothing else cp.sum(v)
    limits = [u + v >= z + smoothing] if smoothing else [v >= z]
    total = cp.sum(distances(np.unique(triplets[:, :2], axis=0))) + hinges + beta * cp.trace(W)
    return float(cp.Problem(cp.Minimize(total), limits).solve(solver="CLARABEL", **options))
