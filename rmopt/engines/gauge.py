"""The gauge of W = A C Bᵀ: how the factors of the compiled engine are made, watched and renewed."""

from __future__ import annotations

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import InvalidInputError
from rmopt.core.low_rank import LowRankPoint
from rmopt.kernels.bilinear_sgd import Counters
from rmopt.kernels.lifted import Factors
from rmopt.linalg import factor_product

# Columns are padded with zeros to a multiple of this, so that vector loops have no remainder.
LANES = 4


def factors_of(point: LowRankPoint) -> Factors:
    """Return factors with orthonormal A and B and diagonal C, padded with zero columns."""
    k = point.rank
    width = -(-k // LANES) * LANES
    P, sigma, Qt = np.linalg.svd(point.S)
    if not sigma[-1] > 1e-15 * sigma[0]:
        raise InvalidInputError(
            f"the matrix lost rank {k}: its singular values run from {sigma[0]:.1e} to {sigma[-1]:.1e}. "
            "Choose a smaller rank or a smaller step size."
        )
    return Factors(
        A=_padded(point.U @ P, width),
        B=_padded(point.V @ Qt.T, width),
        C=_padded_square(np.diag(sigma), width),
        C_inverse=_padded_square(np.diag(1.0 / sigma), width),
        H_A=_padded_square(np.eye(k), width),
        H_B=_padded_square(np.eye(k), width),
    )


def point_of(factors: Factors, k: int) -> LowRankPoint:
    """Return the point W = A C Bᵀ."""
    return LowRankPoint(*factor_product(factors.A[:, :k], factors.C[:k, :k], factors.B[:, :k]))


def fresh_counters(factors: Factors) -> Counters:
    """Return counters for newly made factors."""
    return Counters(
        counts=np.zeros(2, dtype=np.int64),
        size=np.array([np.vdot(factors.A, factors.A), np.vdot(factors.B, factors.B)]),
    )


def drift(factors: Factors, k: int) -> float:
    """Return how far the kept inverses are from the true ones, along one fixed random direction."""
    e = np.random.default_rng(0).standard_normal(k)
    worst = 0.0
    for A, H in ((factors.A, factors.H_A), (factors.B, factors.H_B)):
        tall = A[:, :k]
        worst = max(worst, np.abs(H[:k, :k] @ (tall.T @ (tall @ e)) - e).max())
    worst = max(worst, np.abs(factors.C_inverse[:k, :k] @ (factors.C[:k, :k] @ e) - e).max())
    return float(worst)


def _padded(matrix: Array, width: int) -> Array:
    out = np.zeros((matrix.shape[0], width))
    out[:, : matrix.shape[1]] = matrix
    return out


def _padded_square(matrix: Array, width: int) -> Array:
    out = np.zeros((width, width))
    out[: matrix.shape[0], : matrix.shape[1]] = matrix
    return out
