"""Points and tangent vectors of the manifold of positive semidefinite matrices of rank k, as factors."""

from dataclasses import dataclass

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.low_rank import FactoredMatrix, FactoredTangent
from rmopt.linalg import flipped, symmetric


@dataclass(frozen=True, eq=False)
class PSDPoint(FactoredMatrix):
    """The matrix W = Q S Qᴴ, of real numbers or complex ones; for real ones Qᴴ is Qᵀ.

    Attributes
    ----------
    Q : array, shape (n, k)
        Orthonormal columns.
    S : array, shape (k, k)
        Symmetric or Hermitian, and positive definite; not necessarily diagonal.
    """

    Q: Array
    S: Array

    U = V = property(lambda self: self.Q)

    def eigenvalues(self) -> Array:
        """Return the k positive eigenvalues of W, largest first."""
        return flipped(ns.namespace(self.S).linalg.eigvalsh(self.S))

    def factor(self) -> Array:
        """Return Y (n, k) with W = Y Yᴴ and YᴴY diagonal, largest column first."""
        values, vectors = ns.namespace(self.S).linalg.eigh(self.S)
        return self.Q @ flipped(vectors * ns.at_least(values, 0.0) ** 0.5)

    def balanced_factors(self) -> tuple[Array, Array]:
        """Return Y twice: A = B = Y with W = A Bᴴ."""
        return (self.factor(),) * 2


def point_of(Y: Array) -> PSDPoint:
    """Return YYᴴ as a point, for any factor; its rank may be smaller than the number of columns."""
    Q, triangle = ns.namespace(Y).linalg.qr(Y)
    return PSDPoint(Q, symmetric(triangle @ ns.adjoint(triangle)))


class PSDFactor:
    """An n × k array Y that stands for W = YYᴴ: a name for what costs are functions of. Any array is taken.

    It is no class of arrays, since a cost of matrices W is no function of Y.
    """


class FactorArray(PSDFactor, np.ndarray):
    """The same where costs of arrays are taken too: those that are written for Y."""


@dataclass(frozen=True, eq=False)
class PSDTangent(FactoredTangent):
    """The tangent vector ξ = Q M Qᴴ + Q_p Qᴴ + Q Q_pᴴ at W = Q S Qᴴ.

    With Y = Q S^½ these are ξˢ and ξᴾ of Shalit et al. (2012), Lemma 5: ξˢ = Q M Qᴴ.

    Attributes
    ----------
    M : array, shape (k, k)
        Symmetric or Hermitian.
    Qp : array, shape (n, k)
        Qᴴ Q_p = 0.
    """

    M: Array
    Qp: Array

    Up = Vp = property(lambda self: self.Qp)
