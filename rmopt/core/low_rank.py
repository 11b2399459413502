"""Points and tangent vectors of the embedded manifold of rank-k matrices, as factors."""

from dataclasses import dataclass

import numpy as np

from rmopt.core.ambient import Array, Factored, Vector


@dataclass(frozen=True, eq=False)
class LowRankPoint:
    """The matrix W = U S Vᵀ.

    Attributes
    ----------
    U : array, shape (n, k)
        Orthonormal columns.
    S : array, shape (k, k)
        Invertible, not necessarily diagonal.
    V : array, shape (m, k)
        Orthonormal columns.
    """

    U: Array
    S: Array
    V: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of W, (n, m)."""
        return self.U.shape[0], self.V.shape[0]

    @property
    def rank(self) -> int:
        """The rank k."""
        return self.S.shape[0]

    def as_ambient(self) -> Factored:
        """Return W as an operator."""
        return Factored(self.U @ self.S, self.V)

    def singular_values(self) -> Array:
        """Return the k singular values of W, largest first."""
        return np.linalg.svd(self.S, compute_uv=False)

    def balanced_factors(self) -> tuple[Array, Array]:
        """Return A (n, k) and B (m, k) with W = A Bᵀ and AᵀA = BᵀB diagonal, by the SVD of S."""
        P, sigma, Qt = np.linalg.svd(self.S)
        root = np.sqrt(sigma)
        return self.U @ (P * root), self.V @ (Qt.T * root)

    def bilinear(self, left: Array, right: Array) -> Array:
        """Return lᵢᵀ W rᵢ for the paired rows of two (N, n) and (N, m) dense or sparse arrays."""
        return np.einsum("ik,ik->i", (left @ self.U) @ self.S, right @ self.V)


@dataclass(frozen=True, eq=False)
class LowRankTangent(Vector):
    """The tangent vector ξ = U M Vᵀ + U_p Vᵀ + U V_pᵀ at W = U S Vᵀ.

    The three parts are orthogonal, so the inner product is the sum of three small ones.
    With A = U S and B = V these are the parts of Shalit et al. (2012), Lemma 2:
    ξ^AB = U M Vᵀ, ξ^A⊥B = U_p Vᵀ and ξ^AB⊥ = U V_pᵀ.

    Attributes
    ----------
    M : array, shape (k, k)
    Up : array, shape (n, k)
        Uᵀ U_p = 0.
    Vp : array, shape (m, k)
        Vᵀ V_p = 0.
    """

    M: Array
    Up: Array
    Vp: Array

    def as_ambient(self, point: LowRankPoint) -> Factored:
        """Return ξ as an operator of rank at most 2k."""
        left = np.hstack([point.U @ self.M + self.Up, point.U])
        return Factored(left, np.hstack([point.V, self.Vp]))
