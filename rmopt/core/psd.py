"""Points and tangent vectors of the manifold of positive semidefinite matrices of rank k, as factors."""

from dataclasses import dataclass

import numpy as np

from rmopt.core.ambient import Array, Factored, Vector


@dataclass(frozen=True, eq=False)
class PSDPoint:
    """The matrix W = Q S Qᵀ.

    Attributes
    ----------
    Q : array, shape (n, k)
        Orthonormal columns.
    S : array, shape (k, k)
        Symmetric and positive definite, not necessarily diagonal.
    """

    Q: Array
    S: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of W, (n, n)."""
        return self.Q.shape[0], self.Q.shape[0]

    @property
    def rank(self) -> int:
        """The rank k."""
        return self.S.shape[0]

    def as_ambient(self) -> Factored:
        """Return W as an operator."""
        return Factored(self.Q @ self.S, self.Q)

    def eigenvalues(self) -> Array:
        """Return the k positive eigenvalues of W, largest first."""
        return np.linalg.eigvalsh(self.S)[::-1]

    def factor(self) -> Array:
        """Return Y (n, k) with W = Y Yᵀ and YᵀY diagonal, largest column first."""
        values, vectors = np.linalg.eigh(self.S)
        return self.Q @ (vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0)))

    def balanced_factors(self) -> tuple[Array, Array]:
        """Return Y twice: A = B = Y with W = A Bᵀ."""
        return (self.factor(),) * 2

    def bilinear(self, left: Array, right: Array) -> Array:
        """Return lᵢᵀ W rᵢ for the paired rows of two (N, n) dense or sparse arrays."""
        return np.einsum("ik,ik->i", (left @ self.Q) @ self.S, right @ self.Q)


def point_of(Y: Array) -> PSDPoint:
    """Return YYᵀ as a point, for any factor; its rank may be smaller than the number of columns."""
    Q, triangle = np.linalg.qr(Y)
    S = triangle @ triangle.T
    return PSDPoint(Q, 0.5 * (S + S.T))


class PSDFactor:
    """An n × k array Y that stands for W = YYᵀ: a name for what costs are functions of. Any array is taken.

    It is no class of arrays, since a cost of matrices W is no function of Y.
    """


@dataclass(frozen=True, eq=False)
class PSDTangent(Vector):
    """The tangent vector ξ = Q M Qᵀ + Q_p Qᵀ + Q Q_pᵀ at W = Q S Qᵀ.

    With Y = Q S^½ these are ξˢ and ξᴾ of Shalit et al. (2012), Lemma 5: ξˢ = Q M Qᵀ.

    Attributes
    ----------
    M : array, shape (k, k)
        Symmetric.
    Qp : array, shape (n, k)
        Qᵀ Q_p = 0.
    """

    M: Array
    Qp: Array

    def as_ambient(self, point: PSDPoint) -> Factored:
        """Return ξ as an operator of rank at most 2k."""
        left = np.hstack([point.Q @ self.M + self.Qp, point.Q])
        return Factored(left, np.hstack([point.Q, self.Qp]))
