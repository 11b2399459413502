"""Retractions on the manifolds of rank-k matrices, general or positive semidefinite.

Points are W = U S Vᵀ with tangent vectors U M Vᵀ + U_p Vᵀ + U V_pᵀ, or W = Q S Qᵀ with Q M Qᵀ + Q_p Qᵀ + Q Q_pᵀ. The
three retractions of general matrices are of second order; they differ in cost and in how far a step may go.
"""

from typing import Any

import numpy as np

from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.retraction import Retraction, by_name
from rmopt.errors import InvalidInputError
from rmopt.kernels import lifted
from rmopt.linalg import factor_product, symmetric, truncated_svd_of_product
from rmopt.precision import real_type


class SecondOrder(Retraction):
    """R(ξ) = V₁ W† V₂ of Shalit et al. (2012), Theorem 3, in the factored form of Lemma 4.

    Costs O((n + m) k²) and needs no singular value decomposition. Defined for every ξ.
    """

    order = 2
    name = "second-order"
    kernel = lifted.SECOND_ORDER

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        # Lemma 4 with A = U S and B = V: its M is S⁻¹M (here R), A⊥N₂ is U_p and B⊥N₁ is V_p S⁻ᵀ.
        S, M = point.S, t * tangent.M
        identity = np.eye(point.rank, dtype=S.dtype)
        R = _solve(S, M, self)
        tail = identity - 0.5 * R
        Z1 = point.U @ (S + 0.5 * M - 0.125 * M @ R) + (t * tangent.Up) @ tail
        Z2 = point.V @ (identity + 0.5 * R - 0.125 * R @ R).T + (t * tangent.Vp) @ _solve(S.T, tail.T, self)
        return LowRankPoint(*factor_product(Z1, identity, Z2))


class MetricProjection(Retraction):
    """The closest rank-k matrix to W + ξ: a truncated SVD of a product of inner dimension 2k.

    Costs O((n + m) k²) with a larger constant. The new factors are orthonormal to machine precision
    for every ξ, because [U, U_p] and [V, V_p] are orthonormalised together.
    """

    order = 2
    name = "metric-projection"
    kernel = lifted.METRIC_PROJECTION

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        k = point.rank
        core = np.zeros((2 * k, 2 * k), real_type(point.S, tangent.M))
        core[:k, :k] = point.S + t * tangent.M
        core[:k, k:] = core[k:, :k] = t * np.eye(k)
        left, right = np.hstack([point.U, tangent.Up]), np.hstack([point.V, tangent.Vp])
        U, sigma, V = truncated_svd_of_product(left, core, right, k)
        if not sigma[-1] > 0.0:
            raise _left_the_manifold(self, k, "a singular core")
        return LowRankPoint(U, np.diag(sigma), V)


class Orthographic(Retraction):
    """The matrix of rank k that differs from W + ξ by a normal vector (Absil and Malick, 2012).

    Costs O((n + m) k²) and needs only a k × k solve; undefined where S + M is singular.
    """

    order = 2
    name = "orthographic"
    kernel = lifted.ORTHOGRAPHIC

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        # [U, U_p] [[K, I], [I, K⁻¹]] [V, V_p]ᵀ with K = S + M: rank k, since the Schur complement of K is 0.
        K = point.S + t * tangent.M
        left = point.U @ K + t * tangent.Up
        identity = np.eye(point.rank, dtype=K.dtype)
        right = point.V + (t * tangent.Vp) @ _solve(K.T, identity, self)
        return LowRankPoint(*factor_product(left, identity, right))


class SecondOrderPSD(Retraction):
    """R(ξ) = V W† Vᵀ of Shalit et al. (2012), Theorem 6.

    The paper prints V W† V, but its V is not symmetric; Algorithm 5 computes V W† Vᵀ. Costs O(n k²) and
    needs no eigendecomposition. Defined for every ξ.
    """

    order = 2
    name = "second-order"
    kernel = lifted.SECOND_ORDER

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        S, M = point.S, t * tangent.M
        R = _solve(S, M, self)
        # V Q, so that V W† Vᵀ = (V Q) S⁻¹ (V Q)ᵀ.
        VQ = point.Q @ (S + 0.5 * M - 0.125 * M @ R) + (t * tangent.Qp) @ (
            np.eye(point.rank, dtype=S.dtype) - 0.5 * R
        )
        Q, triangle = np.linalg.qr(VQ)
        return PSDPoint(Q, symmetric(triangle @ np.linalg.solve(S, triangle.T)))


class MetricProjectionPSD(Retraction):
    """The closest positive semidefinite matrix of rank k to W + ξ: its k largest eigenvalues.

    Costs O(n k²) with a larger constant. Undefined where fewer than k eigenvalues of W + ξ are positive.
    """

    order = 2
    name = "metric-projection"

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        k = point.rank
        core = np.zeros((2 * k, 2 * k), real_type(point.S, tangent.M))
        core[:k, :k] = point.S + t * tangent.M
        core[:k, k:] = core[k:, :k] = t * np.eye(k)
        basis, triangle = np.linalg.qr(np.hstack([point.Q, tangent.Qp]))
        values, vectors = np.linalg.eigh(symmetric(triangle @ core @ triangle.T))
        if not values[-k] > 0.0:
            raise _left_the_manifold(self, k, f"a matrix with fewer than {k} positive eigenvalues")
        return PSDPoint(basis @ vectors[:, : -k - 1 : -1], np.diag(values[: -k - 1 : -1]))


class PolarFactors(Retraction):
    """Moves the column space and the core of W = Q S Qᵀ apart (Meyer et al. 2011).

    Q goes to the orthonormal polar factor of Q + Δ with Δ = Q_p S⁻¹, and S to S^½ exp(S^−½ M S^−½) S^½, so
    that S stays positive definite for every ξ. Meyer et al. take the QR factor of Q + Δ, whose result depends
    on the basis of the column space; the polar factor's does not. Costs O(n k²).
    """

    order = 1
    name = "polar"

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        values, vectors = np.linalg.eigh(point.S)
        root = (vectors * np.sqrt(values)) @ vectors.T
        inverse_root = (vectors / np.sqrt(values)) @ vectors.T
        growth, directions = np.linalg.eigh(symmetric(inverse_root @ (t * tangent.M) @ inverse_root))
        middle = root @ directions
        delta = t * (inverse_root @ inverse_root @ tangent.Qp.T).T
        left, _, right = np.linalg.svd(point.Q + delta, full_matrices=False)
        return PSDPoint(left @ right, symmetric((middle * np.exp(growth)) @ middle.T))


def _solve(S: np.ndarray, right_hand_side: np.ndarray, retraction: Retraction) -> np.ndarray:
    try:
        return np.linalg.solve(S, right_hand_side)
    except np.linalg.LinAlgError:
        raise _left_the_manifold(retraction, len(S), "a singular core") from None


def _left_the_manifold(retraction: Retraction, k: int, met: str) -> InvalidInputError:
    return InvalidInputError(
        f"{retraction} met {met}: the step leaves the matrices of rank {k}. Take a smaller step or a smaller rank."
    )


FIXED_RANK_RETRACTIONS = by_name(SecondOrder(), MetricProjection(), Orthographic())
PSD_RETRACTIONS = by_name(SecondOrderPSD(), MetricProjectionPSD())
