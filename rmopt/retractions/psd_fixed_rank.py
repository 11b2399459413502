"""Retractions on the manifold of positive semidefinite matrices of rank k.

Points are W = Q S Qᵀ, tangent vectors Q M Qᵀ + Q_p Qᵀ + Q Q_pᵀ.
"""

from typing import Any

import numpy as np

from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.retraction import Retraction
from rmopt.kernels import lifted_psd
from rmopt.linalg import symmetric
from rmopt.retractions.fixed_rank import left_the_manifold

MATRICES = "positive semidefinite matrices"


class SecondOrderPSD(Retraction):
    """R(ξ) = V W† Vᵀ of Shalit et al. (2012), Theorem 6.

    The paper prints V W† V, but its V is not symmetric; Algorithm 5 computes V W† Vᵀ. Costs O(n k²) and
    needs no eigendecomposition. Defined for every ξ.
    """

    order = 2
    name = "second-order"
    kernel = lifted_psd.SECOND_ORDER
    point_type = PSDPoint

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        S, M = point.S, t * tangent.M
        try:
            R = np.linalg.solve(S, M)
        except np.linalg.LinAlgError:
            raise left_the_manifold(self, point.rank, "a singular matrix", MATRICES) from None
        # V Q, so that V W† Vᵀ = (V Q) S⁻¹ (V Q)ᵀ.
        VQ = point.Q @ (S + 0.5 * M - 0.125 * M @ R) + (t * tangent.Qp) @ (np.eye(point.rank) - 0.5 * R)
        Q, triangle = np.linalg.qr(VQ)
        return PSDPoint(Q, symmetric(triangle @ np.linalg.solve(S, triangle.T)))


class MetricProjectionPSD(Retraction):
    """The closest positive semidefinite matrix of rank k to W + ξ: its k largest eigenvalues.

    Costs O(n k²) with a larger constant. Undefined where fewer than k eigenvalues of W + ξ are positive.
    """

    order = 2
    name = "metric-projection"
    point_type = PSDPoint

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        k = point.rank
        core = np.zeros((2 * k, 2 * k))
        core[:k, :k] = point.S + t * tangent.M
        core[:k, k:] = core[k:, :k] = t * np.eye(k)
        basis, triangle = np.linalg.qr(np.hstack([point.Q, tangent.Qp]))
        values, vectors = np.linalg.eigh(symmetric(triangle @ core @ triangle.T))
        if not values[-k] > 0.0:
            raise left_the_manifold(self, k, f"a matrix with fewer than {k} positive eigenvalues", MATRICES)
        return PSDPoint(basis @ vectors[:, : -k - 1 : -1], np.diag(values[: -k - 1 : -1]))


class PolarFactors(Retraction):
    """Moves the column space and the core of W = Q S Qᵀ apart (Meyer et al. 2011).

    Q goes to the orthonormal polar factor of Q + Δ with Δ = Q_p S⁻¹, and S to S^½ exp(S^−½ M S^−½) S^½, so
    that S stays positive definite for every ξ. Meyer et al. take the QR factor of Q + Δ, whose result depends
    on the basis of the column space; the polar factor's does not. Costs O(n k²).
    """

    order = 1
    name = "polar"
    point_type = PSDPoint

    def __call__(self, manifold: Any, point: PSDPoint, tangent: PSDTangent, t: float = 1.0) -> PSDPoint:
        values, vectors = np.linalg.eigh(point.S)
        root = (vectors * np.sqrt(values)) @ vectors.T
        inverse_root = (vectors / np.sqrt(values)) @ vectors.T
        growth, directions = np.linalg.eigh(symmetric(inverse_root @ (t * tangent.M) @ inverse_root))
        middle = root @ directions
        delta = t * (inverse_root @ inverse_root @ tangent.Qp.T).T
        left, _, right = np.linalg.svd(point.Q + delta, full_matrices=False)
        return PSDPoint(left @ right, symmetric((middle * np.exp(growth)) @ middle.T))


PSD_RETRACTIONS: dict[str, Retraction] = {
    retraction.name: retraction for retraction in (SecondOrderPSD(), MetricProjectionPSD())
}
