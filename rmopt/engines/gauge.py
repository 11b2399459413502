"""The gauge of lifted factors: how they are made from a point, watched and renewed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import InvalidInputError
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.psd import PSDPoint
from rmopt.kernels.lifted import Factors
from rmopt.kernels.lifted_psd import SymmetricFactors
from rmopt.kernels.outcomes import Counters
from rmopt.linalg import factor_product, symmetric

# Columns are padded with zeros to a multiple of this, so that vector loops have no remainder.
LANES = 4


class Gauge(ABC):
    """How points and lifted factors belong together."""

    @abstractmethod
    def factors_of(self, point: Any) -> Any:
        """Return factors with orthonormal columns and a diagonal core, padded with zero columns."""

    @abstractmethod
    def point_of(self, factors: Any, k: int) -> Any:
        """Return the point of rank k at which factors stand."""

    @abstractmethod
    def sides(self, factors: Any) -> list[tuple[Array, Array]]:
        """Return each tall factor with the inverse of its Gram matrix."""

    def fresh_counters(self, factors: Any) -> Counters:
        """Return counters for newly made factors."""
        size = np.array([np.vdot(tall, tall) for tall, _ in self.sides(factors)])
        return Counters(counts=np.zeros(2, dtype=np.int64), size=size)

    def condition(self, factors: Any, counters: Counters) -> float:
        """Return a bound on the condition numbers of the Gram matrices."""
        inverses = [inverse for _, inverse in self.sides(factors)]
        return max(float(size * np.trace(H)) for size, H in zip(counters.size, inverses, strict=True))

    def drift(self, factors: Any, k: int) -> float:
        """Return how far the kept inverses are from the true ones, along one fixed random direction."""
        e = np.random.default_rng(0).standard_normal(k)
        worst = np.abs(factors.C_inverse[:k, :k] @ (factors.C[:k, :k] @ e) - e).max()
        for padded, H in self.sides(factors):
            tall = padded[:, :k]
            worst = max(worst, np.abs(H[:k, :k] @ (tall.T @ (tall @ e)) - e).max())
        return float(worst)


class GeneralGauge(Gauge):
    """W = A C Bᵀ."""

    def factors_of(self, point: LowRankPoint) -> Factors:
        P, sigma, Qt = np.linalg.svd(point.S)
        check_rank(sigma)
        k = point.rank
        return Factors(
            A=padded(point.U @ P),
            B=padded(point.V @ Qt.T),
            C=padded_square(np.diag(sigma)),
            C_inverse=padded_square(np.diag(1.0 / sigma)),
            H_A=padded_square(np.eye(k)),
            H_B=padded_square(np.eye(k)),
        )

    def point_of(self, factors: Factors, k: int) -> LowRankPoint:
        """Return the point W = A C Bᵀ."""
        return LowRankPoint(*factor_product(factors.A[:, :k], factors.C[:k, :k], factors.B[:, :k]))

    def sides(self, factors: Factors) -> list[tuple[Array, Array]]:
        """Return A with H_A and B with H_B."""
        return [(factors.A, factors.H_A), (factors.B, factors.H_B)]


class SymmetricGauge(Gauge):
    """W = Y C Yᵀ."""

    def factors_of(self, point: PSDPoint) -> SymmetricFactors:
        values, vectors = np.linalg.eigh(point.S)
        check_rank(values[::-1])
        return SymmetricFactors(
            Y=padded(point.Q @ vectors),
            C=padded_square(np.diag(values)),
            C_inverse=padded_square(np.diag(1.0 / values)),
            H=padded_square(np.eye(point.rank)),
        )

    def point_of(self, factors: SymmetricFactors, k: int) -> PSDPoint:
        """Return the point W = Y C Yᵀ."""
        Q, triangle = np.linalg.qr(factors.Y[:, :k])
        return PSDPoint(Q, symmetric(triangle @ factors.C[:k, :k] @ triangle.T))

    def sides(self, factors: SymmetricFactors) -> list[tuple[Array, Array]]:
        """Return Y with H."""
        return [(factors.Y, factors.H)]


GENERAL = GeneralGauge()
SYMMETRIC = SymmetricGauge()


def check_rank(sigma: Array) -> None:
    """Refuse singular values, largest first, of a matrix that lost its rank."""
    if not sigma[-1] > 1e-15 * sigma[0]:
        raise InvalidInputError(
            f"the matrix lost rank {len(sigma)}: its singular values run from {sigma[0]:.1e} to "
            f"{sigma[-1]:.1e}. Choose a smaller rank or a smaller step size."
        )


def padded(matrix: Array) -> Array:
    """Return a tall factor with zero columns up to a multiple of `LANES`."""
    out = np.zeros((matrix.shape[0], _width(matrix.shape[1])))
    out[:, : matrix.shape[1]] = matrix
    return out


def padded_square(matrix: Array) -> Array:
    """Return a square matrix with zero rows and columns up to a multiple of `LANES`."""
    out = np.zeros((_width(matrix.shape[0]),) * 2)
    out[: matrix.shape[0], : matrix.shape[1]] = matrix
    return out


def _width(k: int) -> int:
    return -(-k // LANES) * LANES
