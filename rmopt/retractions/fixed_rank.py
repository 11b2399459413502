"""Retractions on the manifolds of rank-k matrices, general or positive semidefinite.

Points are W = U S Vᴴ with tangent vectors U M Vᴴ + U_p Vᴴ + U V_pᴴ, or W = Q S Qᴴ with Q M Qᴴ + Q_p Qᴴ + Q Q_pᴴ. The
four retractions of general matrices are of second order. They differ in cost and in the length of allowed steps.
"""

from typing import Any

from rmopt import namespaces as ns
from rmopt.core.low_rank import LowRankPoint, LowRankTangent, PSDPoint, PSDTangent
from rmopt.core.retraction import Retraction, by_name
from rmopt.errors import InvalidInputError
from rmopt.kernels import lifted
from rmopt.linalg import (
    blocks,
    diagonal,
    factor_product,
    flipped,
    symmetric,
    tall_qr,
    truncated_svd_of_product,
)


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
        # Lemma 4 with A = U S and B = V: its M is S⁻¹M (here R), A⊥N₂ is U_p and B⊥N₁ is V_p S⁻ᴴ.
        S, M = point.S, t * tangent.M
        identity, H = ns.eye(point.rank, S), ns.adjoint
        R = _solve(S, M, self)
        tail = identity - 0.5 * R
        Z1 = point.U @ (S + 0.5 * M - 0.125 * M @ R) + (t * tangent.Up) @ tail
        Z2 = point.V @ H(identity + 0.5 * R - 0.125 * R @ R) + (t * tangent.Vp) @ _solve(H(S), H(tail), self)
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
        k, core, concat = point.rank, _core(point, tangent, t), ns.namespace(point.U).concat
        left, right = concat([point.U, tangent.Up], axis=1), concat([point.V, tangent.Vp], axis=1)
        U, sigma, V = truncated_svd_of_product(left, core, right, k)
        if not (ns.is_traced(sigma) or sigma[-1] > 0.0):
            raise _left_the_manifold(self, k, "a singular core")
        return LowRankPoint(U, diagonal(sigma, U), V)


class Orthographic(Retraction):
    """The matrix of rank k that differs from W + ξ by a normal vector (Absil and Malick, 2012).

    Costs O((n + m) k²) and needs only a k × k solve. Undefined if S + M is singular.
    """

    order = 2
    name = "orthographic"
    kernel = lifted.ORTHOGRAPHIC

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        # [U, U_p] [[K, I], [I, K⁻¹]] [V, V_p]ᴴ with K = S + M: rank k, since the Schur complement of K is 0.
        K = point.S + t * tangent.M
        left = point.U @ K + t * tangent.Up
        identity = ns.eye(point.rank, K)
        right = point.V + (t * tangent.Vp) @ _solve(ns.adjoint(K), identity, self)
        return LowRankPoint(*factor_product(left, identity, right))


class PowerIteration(Retraction):
    """The closest matrix to W + ξ among those with the columns of (W + ξ)V: a step of subspace iteration from V.

    Costs O((n + m) k²): two QR factorisations, and no singular values. Defined for every ξ, even if S is singular or
    zero. Rows and columns are treated differently.
    """

    order = 2
    name = "power"

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        H = ns.adjoint
        moved = point.U @ (point.S + t * tangent.M) + t * tangent.Up
        U, _ = tall_qr(moved)
        V, triangle = tall_qr(point.V @ (H(moved) @ U) + (t * tangent.Vp) @ (H(point.U) @ U))
        return LowRankPoint(U, H(triangle), V)


class SecondOrderPSD(Retraction):
    """R(ξ) = V W† Vᵀ of Shalit et al. (2012), Theorem 6.

    The paper prints V W† V, but its V is not symmetric. Algorithm 5 computes V W† Vᵀ. Costs O(n k²) and needs no
    eigendecomposition. Defined for every ξ.
    """

    order = 2
    name = "second-order"
    kernel = lifted.SECOND_ORDER

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        S, M = point.S, t * tangent.M
        R = _solve(S, M, self)
        # V Q, so that V W† Vᵀ = (V Q) S⁻¹ (V Q)ᵀ.
        VQ = point.Q @ (S + 0.5 * M - 0.125 * M @ R) + (t * tangent.Qp) @ (ns.eye(point.rank, S) - 0.5 * R)
        Q, triangle = ns.namespace(VQ).linalg.qr(VQ)
        return PSDPoint(Q, symmetric(triangle @ _solve(S, ns.adjoint(triangle), self)))


class MetricProjectionPSD(Retraction):
    """The closest positive semidefinite matrix of rank k to W + ξ: its k largest eigenvalues.

    Costs O(n k²) with a larger constant. Undefined if fewer than k eigenvalues of W + ξ are positive.
    """

    order = 2
    name = "metric-projection"

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        k, core, xp = point.rank, _core(point, tangent, t), ns.namespace(point.Q)
        basis, triangle = xp.linalg.qr(xp.concat([point.Q, tangent.Qp], axis=1))
        values, vectors = xp.linalg.eigh(symmetric(triangle @ core @ ns.adjoint(triangle)))
        if not (ns.is_traced(values) or values[-k] > 0.0):
            raise _left_the_manifold(self, k, f"a matrix with fewer than {k} positive eigenvalues")
        return PSDPoint(basis @ flipped(vectors[:, -k:]), diagonal(flipped(values[-k:]), basis))


class PolarFactors(Retraction):
    """Moves the column space and the core of W = Q S Qᵀ separately (Meyer et al. 2011).

    Q goes to the orthonormal polar factor of Q + Δ with Δ = Q_p S⁻¹, and S to S^½ exp(S^−½ M S^−½) S^½, so
    that S stays positive definite for every ξ. Meyer et al. take the QR factor of Q + Δ, whose result depends on the
    basis of the column space, unlike the polar factor. Costs O(n k²).
    """

    order = 1
    name = "polar"

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        xp, H = ns.namespace(point.S), ns.adjoint
        values, vectors = xp.linalg.eigh(point.S)
        root = (vectors * values**0.5) @ H(vectors)
        inverse_root = (vectors / values**0.5) @ H(vectors)
        growth, directions = xp.linalg.eigh(symmetric(inverse_root @ (t * tangent.M) @ inverse_root))
        middle = root @ directions
        delta = t * H(inverse_root @ inverse_root @ H(tangent.Qp))
        left, _, right = xp.linalg.svd(point.Q + delta, full_matrices=False)
        return PSDPoint(left @ right, symmetric((middle * xp.exp(growth)) @ H(middle)))


def _core(point: Any, tangent: Any, t: float) -> Any:
    """Return [[S + tM, tI], [tI, 0]], the core between the bases of a point and a tangent vector."""
    aside = t * ns.eye(point.rank, point.S)
    return blocks(point.S + t * tangent.M, aside, aside, 0.0 * aside)


def _solve(S: Any, right_hand_side: Any, retraction: Retraction) -> Any:
    try:
        return ns.namespace(S).linalg.solve(S, right_hand_side)
    except (ValueError, RuntimeError) as error:
        # PyTorch raises its own error.
        if "LinAlgError" not in type(error).__name__:
            raise
        raise _left_the_manifold(retraction, len(S), "a singular core") from None


def _left_the_manifold(retraction: Retraction, k: int, met: str) -> InvalidInputError:
    return InvalidInputError(
        f"{retraction} met {met}: the step leaves the matrices of rank {k}. Take a smaller step or a smaller rank."
    )


FIXED_RANK_RETRACTIONS = by_name(SecondOrder(), MetricProjection(), Orthographic(), PowerIteration())
PSD_RETRACTIONS = by_name(SecondOrderPSD(), MetricProjectionPSD())
