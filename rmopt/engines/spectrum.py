"""The leading eigenpairs of a symmetric operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from rmopt.core.ambient import Array

# Up to this size, and where the basis of a Lanczos run would be as large, the matrix is formed.
SMALL = 200


def leading_eigenpairs(
    apply: Callable[[Array], Array], p: int, k: int, scale: float, tol: float
) -> tuple[Array, Array, float]:
    """Return up to k eigenpairs of a symmetric operator with the largest eigenvalues, and a bound on all of them.

    Parameters
    ----------
    apply : callable
        Maps (p, j) arrays to the operator's products with them.
    p, k : int
    scale : float
        Positive; eigenvalues are found to about `tol` times this or their own size, whichever is larger.
    tol : float

    Returns
    -------
    values : array, shape (≤ k,)
        Descending.
    vectors : array, shape (p, ≤ k)
        Orthonormal.
    bound : float
        The largest eigenvalue is at most this: a Lanczos run adds the length of its residual. (A residual bounds the
        distance to an eigenvalue; that none larger was overlooked rests on the random start of the run.)
    """
    k = min(k, p)
    if p <= SMALL or 4 * k >= p:
        matrix = apply(np.eye(p))
        values, vectors = scipy.linalg.eigh(0.5 * (matrix + matrix.T), subset_by_index=(p - k, p - 1))
        values, vectors = values[::-1], vectors[:, ::-1]
        rounding = 8.0 * np.finfo(float).eps * float(np.abs(matrix).sum(axis=0).max())
        return values, vectors, float(values[0]) + rounding
    # Shifted, so that a largest eigenvalue near 0, which an optimum has, is found to a sensible precision.
    shifted = LinearOperator((p, p), matvec=lambda v: apply(v.reshape(p, 1)).ravel() + scale * v, dtype=float)
    start = np.random.default_rng(0).standard_normal(p)
    while True:
        try:
            values, vectors = eigsh(
                shifted, k=k, which="LA", v0=start, tol=tol, ncv=min(p, max(2 * k + 1, 40))
            )
            break
        except ArpackNoConvergence as partial:
            values, vectors = partial.eigenvalues, partial.eigenvectors
            # The operator's own rounding may be larger than what was asked for.
            if len(values):
                break
            tol *= 100.0
    order = np.argsort(-values)
    values, vectors = values[order] - scale, np.linalg.qr(vectors[:, order])[0]
    lead = vectors[:, :1]
    residual = float(np.linalg.norm(apply(lead) - values[0] * lead))
    return values, vectors, float(values[0]) + residual
