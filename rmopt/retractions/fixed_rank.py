"""Retractions on the embedded manifold of rank-k matrices.

Points are W = U S Vᵀ, tangent vectors U M Vᵀ + U_p Vᵀ + U V_pᵀ. All three retractions are of second
order; they differ in cost and in how far a step may go.
"""

from typing import Any

import numpy as np

from rmopt.core.errors import InvalidInputError
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.retraction import Retraction
from rmopt.kernels import lifted
from rmopt.linalg import factor_product, truncated_svd_of_product


class SecondOrder(Retraction):
    """R(ξ) = V₁ W† V₂ of Shalit et al. (2012), Theorem 3, in the factored form of Lemma 4.

    Costs O((n + m) k²) and needs no singular value decomposition. Defined for every ξ.
    """

    order = 2
    name = "second-order"
    kernel = lifted.SECOND_ORDER
    point_type = LowRankPoint

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        # Lemma 4 with A = U S and B = V: its M is S⁻¹M (here R), A⊥N₂ is U_p and B⊥N₁ is V_p S⁻ᵀ.
        S, M = point.S, t * tangent.M
        identity = np.eye(point.rank)
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
    point_type = LowRankPoint

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        k = point.rank
        core = np.zeros((2 * k, 2 * k))
        core[:k, :k] = point.S + t * tangent.M
        core[:k, k:] = core[k:, :k] = t * np.eye(k)
        left, right = np.hstack([point.U, tangent.Up]), np.hstack([point.V, tangent.Vp])
        U, sigma, V = truncated_svd_of_product(left, core, right, k)
        if not sigma[-1] > 0.0:
            raise left_the_manifold(self, k)
        return LowRankPoint(U, np.diag(sigma), V)


class Orthographic(Retraction):
    """The matrix of rank k that differs from W + ξ by a normal vector (Absil and Malick, 2012).

    Costs O((n + m) k²) and needs only a k × k solve; undefined where S + M is singular.
    """

    order = 2
    name = "orthographic"
    kernel = lifted.ORTHOGRAPHIC
    point_type = LowRankPoint

    def __call__(
        self, manifold: Any, point: LowRankPoint, tangent: LowRankTangent, t: float = 1.0
    ) -> LowRankPoint:
        # [U, U_p] [[K, I], [I, K⁻¹]] [V, V_p]ᵀ with K = S + M: rank k, since the Schur complement of K is 0.
        K = point.S + t * tangent.M
        left = point.U @ K + t * tangent.Up
        right = point.V + (t * tangent.Vp) @ _solve(K.T, np.eye(point.rank), self)
        return LowRankPoint(*factor_product(left, np.eye(point.rank), right))


def _solve(S: np.ndarray, right_hand_side: np.ndarray, retraction: Retraction) -> np.ndarray:
    try:
        return np.linalg.solve(S, right_hand_side)
    except np.linalg.LinAlgError:
        raise left_the_manifold(retraction, S.shape[0]) from None


def left_the_manifold(
    retraction: Retraction, k: int, met: str = "a singular core", matrices: str = "matrices"
) -> InvalidInputError:
    """Return the error of a step that ends at another rank."""
    return InvalidInputError(
        f"{retraction} met {met}: the step leaves the {matrices} of rank {k}. "
        "Take a smaller step or a smaller rank."
    )


FIXED_RANK_RETRACTIONS: dict[str, Retraction] = {
    retraction.name: retraction for retraction in (SecondOrder(), MetricProjection(), Orthographic())
}
