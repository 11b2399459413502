"""The polar geometry of positive semidefinite matrices of rank k."""

from __future__ import annotations

from typing import Self

import numpy as np

from rmopt.core.ambient import Ambient
from rmopt.core.arguments import number
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.retraction import Retraction
from rmopt.linalg import leave_span, symmetric
from rmopt.manifolds.psd_matrices import PSDMatrices
from rmopt.retractions.fixed_rank import PolarFactors


class PolarPSD(PSDMatrices):
    """The same matrices as `PSDFixedRank`, seen as (Stiefel × positive definite) / O(k) (Meyer et al. 2011).

    W = Q S Qᵀ is a column space with a positive definite matrix on it. A tangent vector moves Q by Δ = Q_p S⁻¹
    and S by M; its squared norm is tr(ΔᵀΔ)/λ + tr((S⁻¹M)²)/(1 − λ), so that the metric does not change under
    rotations and scalings of W. Points and tangent vectors are stored as on `PSDFixedRank`. The numbers of a
    tangent vector are the same in both; its length is not.

    Parameters
    ----------
    n : int
        Number of rows and columns.
    k : int
        The rank, from 1 to n.
    weight : float
        λ, between 0 and 1: large values move mainly the column space.
    retraction : Retraction or str, optional
        The default retraction; `PolarFactors` unless given.

    Raises
    ------
    InvalidInputError
        For a size, rank or weight out of range.
    """

    default_retraction = PolarFactors()

    def __init__(
        self, n: int, k: int, weight: float = 0.5, retraction: Retraction | str | None = None
    ) -> None:
        self.weight = number("weight", weight, above=0, below=1)
        super().__init__(n, k, retraction)

    def with_rank(self, k: int) -> Self:
        return type(self)(self.shape[0], k, self.weight, self.default_retraction)

    def __repr__(self) -> str:
        return f"PolarPSD({self.shape[0]}, {self.rank}, weight={self.weight})"

    def inner_product(
        self, point: PSDPoint, tangent_vector_a: PSDTangent, tangent_vector_b: PSDTangent
    ) -> float:
        """Return tr(ΔₐᵀΔ_b)/λ + tr(S⁻¹Mₐ S⁻¹M_b)/(1 − λ)."""
        scaled_a, scaled_b = (
            np.linalg.solve(point.S, part.M) for part in (tangent_vector_a, tangent_vector_b)
        )
        move_a, move_b = (
            np.linalg.solve(point.S, part.Qp.T) for part in (tangent_vector_a, tangent_vector_b)
        )
        return float(
            np.vdot(move_a, move_b) / self.weight + np.vdot(scaled_a.T, scaled_b) / (1.0 - self.weight)
        )

    def euclidean_to_riemannian_gradient(self, point: PSDPoint, euclidean_gradient: Ambient) -> PSDTangent:
        """Return the gradient in the polar metric: M = (1 − λ) S QᵀG Q S and Q_p = 2λ (I − QQᵀ) G Q S²."""
        Q, S = point.Q, point.S
        GQ = 0.5 * (np.asarray(euclidean_gradient @ Q) + np.asarray(euclidean_gradient.T @ Q))
        return PSDTangent(
            (1.0 - self.weight) * symmetric(S @ (Q.T @ GQ) @ S),
            2.0 * self.weight * leave_span(Q, GQ) @ (S @ S),
        )
