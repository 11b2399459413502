"""The leading eigenpairs of a symmetric operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from rmopt.core.ambient import Array
from rmopt.linalg import leading_eigh

Apply = Callable[[Array], Array]

# Up to this size, and where the basis of a Lanczos run would be as large, the matrix is formed.
SMALL = 200
# Eigenvectors after the first need not be exact: they are directions to search along.
ROUGH, ROUGH_RESTARTS = 1e-2, 30


def leading_eigenpairs(
    apply: Apply, basis: Array, k: int, scale: float, tol: float
) -> tuple[Array, Array, float]:
    """Return leading eigenpairs of a symmetric operator, and a bound on all its eigenvalues.

    Parameters
    ----------
    apply : callable
        Maps (p, j) arrays to the operator's products with them.
    basis : array, shape (p, d)
        Orthonormal; directions that are known already. A Lanczos run looks at their complement alone, where an
        optimum has no cluster of eigenvalues at 0.
    k : int
        How many pairs at most.
    scale : float
        Positive; the largest eigenvalue is found to about `tol` times this or its own size, whichever is larger.
    tol : float

    Returns
    -------
    values : array, shape (≤ k,)
        Descending; after the first, only positive ones, and from a Lanczos run only roughly.
    vectors : array, shape (p, ≤ k)
        Orthonormal.
    bound : float
        No eigenvalue is larger. A Lanczos run adds the length of its residual and of what ties `basis` to its
        complement. (A residual bounds the distance to an eigenvalue; that none larger was overlooked rests on the
        random start of the run.)
    """
    p = len(basis)
    k = min(k, p)
    if p <= SMALL or 4 * k >= p:
        return _dense(apply, p, k)
    products = apply(basis)
    inside = basis.T @ products
    across = products - basis @ inside
    known = float(np.linalg.eigvalsh(inside)[-1]) if inside.size else -np.inf

    def outside(V: Array) -> Array:
        within = basis @ (basis.T @ V)
        V = apply(V - within)
        # Below what the complement of an optimum has to offer: at least −scale, where the trace is alone.
        return V - basis @ (basis.T @ V) - 2.0 * scale * within

    values, vectors = _lanczos(outside, p, 1, scale, tol, None)
    residual = float(np.linalg.norm(outside(vectors) - values * vectors))
    tie = float(np.linalg.norm(across, 2)) if across.size else 0.0
    bound = max(float(values[0]) + residual, known) + tie
    if k > 1 and values[0] > 0.0:
        values, vectors = _lanczos(outside, p, k, float(values[0]), ROUGH, ROUGH_RESTARTS)
        positive = values > 0.0
        values, vectors = values[positive], vectors[:, positive]
    return values, vectors, bound


def _dense(apply: Apply, p: int, k: int) -> tuple[Array, Array, float]:
    matrix = apply(np.eye(p))
    values, vectors = leading_eigh(0.5 * (matrix + matrix.T), k)
    rounding = 8.0 * np.finfo(float).eps * float(np.abs(matrix).sum(axis=0).max())
    kept = np.arange(k) < max(1, int(np.sum(values > 0.0)))
    return values[kept], vectors[:, kept], float(values[0]) + rounding


def _lanczos(
    apply: Apply, p: int, k: int, scale: float, tol: float, restarts: int | None
) -> tuple[Array, Array]:
    """Return what converged of the k leading eigenpairs within some restarts; with None, at least one.

    The operator is shifted by `scale`, so that an eigenvalue near 0 is found to a sensible precision.
    """
    shifted = LinearOperator((p, p), matvec=lambda v: apply(v.reshape(p, 1)).ravel() + scale * v, dtype=float)
    start = np.random.default_rng(0).standard_normal(p)
    while True:
        try:
            values, vectors = eigsh(
                shifted, k=k, which="LA", v0=start, tol=tol, ncv=min(p, max(2 * k + 1, 40)),
                maxiter=100 if restarts is None else restarts,
            )  # fmt: skip
            break
        except ArpackNoConvergence as partial:
            values, vectors = partial.eigenvalues, partial.eigenvectors
            if len(values) or restarts is not None:
                break
            # The operator's own rounding may be larger than what was asked for.
            tol *= 100.0
    order = np.argsort(-values)
    return values[order] - scale, np.linalg.qr(vectors[:, order])[0]
