"""One exact Riemannian step on W = A C Bᵀ along a direction P Qᵀ of rank r, with sparse columns.

Algorithm 3 of Shalit et al. (2012) in the gauge of `rmopt.kernels.lifted`: what are numbers there are r × r
matrices here, all functions of the one matrix S = YᵀZ. A step costs O(nnz·(k + r) + k²r + kr² + r³).
Vectors of length k lie in rows: row i of U is Aᵀpᵢ.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.small import invert

OK, REFUSED = 0, 1

# A step with larger entries of S, or a larger inverse of I + αS, is left to the generic retraction.
TOO_LONG = 1e4
TOO_STEEP = 1e4


class Side(NamedTuple):
    """What one factor contributes: U (r, k) with rows Aᵀpᵢ, and the Gram matrix R (r, r) of the pᵢ."""

    U: np.ndarray
    R: np.ndarray


@njit(cache=True, nogil=True)
def step(factors, left, right):
    """Move C, C⁻¹, H_A and H_B along P Qᵀ; return (status, G, H) for A ← A + P G and B ← B + Q H.

    Parameters
    ----------
    factors : Factors
    left, right : Side
        Of A and P, and of B and Q; step sizes and slopes are in Q.

    Returns
    -------
    int
        `OK`, or `REFUSED` when the step is ill-conditioned in this gauge; then nothing was changed.
    G, H : arrays, shape (r, k)
        Rows to scatter along the columns of P and Q.
    """
    r = left.U.shape[0]
    X, Y = left.U @ factors.H_A, right.U @ factors.H_B
    Z, W = X @ factors.C_inverse.T, Y @ factors.C_inverse
    S = Y @ Z.T
    identity = np.eye(r)
    alpha = 0.375 * S - 0.5 * identity
    table = np.empty((r, 2 * r))
    table[:, :r] = identity + alpha @ S
    if not np.abs(S).max() < TOO_LONG or not invert(table, 1e-6):
        return REFUSED, X, Y
    shrink = table[:, r:].copy()
    if np.abs(shrink).max() > TOO_STEEP:
        return REFUSED, X, Y
    kappa = (identity - 0.5 * S) @ shrink
    mu = 2.0 * alpha + alpha @ S @ alpha
    G, H = kappa @ W, kappa.T @ Z
    fine_A, H_A = _gram_inverse(factors.H_A, X, G, left.R - left.U @ X.T)
    fine_B, H_B = _gram_inverse(factors.H_B, Y, H, right.R - right.U @ Y.T)
    if not (fine_A and fine_B):
        return REFUSED, X, Y
    factors.C[:] = factors.C + X.T @ (mu @ Y)
    factors.C_inverse[:] = factors.C_inverse - Z.T @ (mu @ shrink @ shrink @ W)
    factors.H_A[:] = H_A
    factors.H_B[:] = H_B
    return OK, G, H


@njit(cache=True, nogil=True)
def _gram_inverse(H, X, G, outside):
    """Return whether all went well and the inverse of (A + P G)ᵀ(A + P G), given H = (AᵀA)⁻¹.

    Parameters
    ----------
    H : array, shape (k, k)
    X : array, shape (r, k)
        Rows H Aᵀpᵢ.
    G : array, shape (r, k)
    outside : array, shape (r, r)
        Gram matrix of the parts of the pᵢ outside the column space of A.
    """
    r = X.shape[0]
    table = np.empty((r, 2 * r))
    edge = np.eye(r) + G @ X.T
    table[:, :r] = edge
    if not invert(table, 1e-6):
        return False, H
    edge_inverse = table[:, r:].copy()
    if np.abs(edge_inverse).max() > TOO_STEEP:
        return False, H
    T = G @ H
    inside = T @ G.T
    bent = edge_inverse.T @ X
    N = T - inside @ bent
    rest = edge_inverse.T @ outside
    table[:, :r] = edge + inside @ rest
    if not invert(table, 1e-6):
        return False, H
    weight = rest @ table[:, r:].copy()
    mixed = bent.T @ T
    moved = H - mixed - mixed.T + bent.T @ (inside @ bent) - N.T @ (weight @ N)
    return True, 0.5 * (moved + moved.T)
