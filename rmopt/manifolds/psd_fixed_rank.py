"""The embedded geometry of positive semidefinite matrices of rank k."""

from __future__ import annotations

import numpy as np

from rmopt.core.ambient import Ambient
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.linalg import leave_span
from rmopt.manifolds.psd_matrices import PSDMatrices


class PSDFixedRank(PSDMatrices):
    """Positive semidefinite matrices of rank k as a submanifold of ℝⁿˣⁿ with the Frobenius inner product.

    Points are `PSDPoint` (W = Q S Qᵀ), tangent vectors `PSDTangent`.

    Parameters
    ----------
    n : int
        Number of rows and columns.
    k : int
        The rank, from 1 to n.
    retraction : Retraction or str, optional
        The default retraction; `SecondOrderPSD` unless given.

    Raises
    ------
    InvalidInputError
        For a size that is not positive or a rank out of range.
    """

    def inner_product(
        self, point: PSDPoint, tangent_vector_a: PSDTangent, tangent_vector_b: PSDTangent
    ) -> float:
        return tangent_vector_a.inner(tangent_vector_b)

    def euclidean_to_riemannian_hessian(
        self,
        point: PSDPoint,
        euclidean_gradient: Ambient,
        euclidean_hessian: Ambient,
        tangent_vector: PSDTangent,
    ) -> PSDTangent:
        """Return the Riemannian Hessian: the projected ambient one plus the curvature of the manifold.

        The curvature term is N ξ W† + W† ξ N with N the part of the symmetric gradient that is normal to the
        manifold.
        """
        flat = self.projection(point, euclidean_hessian)
        Qp = tangent_vector.Qp
        bend = leave_span(
            point.Q, 0.5 * (np.asarray(euclidean_gradient @ Qp) + np.asarray(euclidean_gradient.T @ Qp))
        )
        # X S⁻¹ as a solve.
        return PSDTangent(flat.M, flat.Qp + np.linalg.solve(point.S, bend.T).T)
