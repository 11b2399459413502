"""Points and tangent vectors of matrices of rank k as factors, for general and positive semidefinite matrices."""

from dataclasses import dataclass
from itertools import repeat
from operator import add, mul, sub, truediv
from typing import Self

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array, Factored, Linear
from rmopt.core.matrices import row_dots
from rmopt.linalg import flipped, symmetric


class _Factors:
    """A matrix W = U S Vᴴ, known by its factors."""

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
        return Factored(self.U @ self.S, ns.conj(self.V))

    def bilinear(self, left: Array, right: Array) -> Array:
        """Return lᵢᵀ W rᵢ for the paired rows of two (N, n) and (N, m) dense or sparse arrays."""
        return row_dots((left @ self.U) @ self.S, right @ ns.conj(self.V))


@dataclass(frozen=True, eq=False)
class LowRankPoint(_Factors):
    """The real or complex matrix W = U S Vᴴ. In the real case Vᴴ is Vᵀ.

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

    def singular_values(self) -> Array:
        """Return the k singular values of W, largest first."""
        return ns.namespace(self.S).linalg.svdvals(self.S)

    def balanced_factors(self) -> tuple[Array, Array]:
        """Return A (n, k) and B (m, k) with W = A Bᵀ and AᴴA = BᴴB diagonal, by the SVD of S."""
        P, sigma, Qh = ns.namespace(self.S).linalg.svd(self.S)
        root = sigma**0.5
        return self.U @ (P * root), ns.conj(self.V @ (ns.adjoint(Qh) * root))


class _FactorTangent(Linear):
    """A tangent vector ξ = U M Vᴴ + U_p Vᴴ + U V_pᴴ at W = U S Vᴴ, with the arithmetic of its arrays."""

    M: Array
    Up: Array
    Vp: Array

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return type(self)(*map(add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return type(self)(*map(sub, vars(self).values(), vars(other).values()))

    def __mul__(self, scalar: float) -> Self:
        return type(self)(*map(mul, vars(self).values(), repeat(scalar)))

    def __truediv__(self, scalar: float) -> Self:
        return type(self)(*map(truediv, vars(self).values(), repeat(scalar)))

    def as_ambient(self, point: _Factors) -> Factored:
        """Return ξ as an operator of rank at most 2k."""
        U, V, xp = point.U, point.V, ns.namespace(point.S)
        left = xp.concat([U @ self.M + self.Up, U], axis=1)
        return Factored(left, ns.conj(xp.concat([V, self.Vp], axis=1)))


@dataclass(frozen=True, eq=False)
class LowRankTangent(_FactorTangent):
    """The tangent vector ξ = U M Vᴴ + U_p Vᴴ + U V_pᴴ at W = U S Vᴴ.

    The three parts are orthogonal, so the inner product is the sum of three small ones.
    With A = U S and B = V these are the parts of Shalit et al. (2012), Lemma 2:
    ξ^AB = U M Vᴴ, ξ^A⊥B = U_p Vᴴ and ξ^AB⊥ = U V_pᴴ.

    Attributes
    ----------
    M : array, shape (k, k)
    Up : array, shape (n, k)
        Uᴴ U_p = 0.
    Vp : array, shape (m, k)
        Vᴴ V_p = 0.
    """

    M: Array
    Up: Array
    Vp: Array


@dataclass(frozen=True, eq=False)
class PSDPoint(_Factors):
    """The real or complex matrix W = Q S Qᴴ. In the real case Qᴴ is Qᵀ.

    Attributes
    ----------
    Q : array, shape (n, k)
        Orthonormal columns.
    S : array, shape (k, k)
        Symmetric or Hermitian, positive definite, not necessarily diagonal.
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
        """Return A = Y and B = Ȳ with W = A Bᵀ."""
        return (Y := self.factor()), ns.conj(Y)


def point_of(Y: Array) -> PSDPoint:
    """Return YYᴴ as a point, for any factor Y, whose rank may be smaller than its number of columns."""
    Q, triangle = ns.namespace(Y).linalg.qr(Y)
    return PSDPoint(Q, symmetric(triangle @ ns.adjoint(triangle)))


class PSDFactor:
    """An n × k array Y that represents W = YYᴴ, as the point type of costs. Any array is accepted.

    It is not a class of arrays, since a cost of matrices W is not a function of Y.
    """


class FactorArray(PSDFactor, np.ndarray):
    """The same for manifolds that also accept costs of arrays, those that are written for Y."""


@dataclass(frozen=True, eq=False)
class PSDTangent(_FactorTangent):
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
