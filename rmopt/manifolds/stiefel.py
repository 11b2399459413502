"""Frames, matrices with orthonormal columns, and rotations; both also in batches."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.errors import InvalidInputError
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByProjection, Transport
from rmopt.linalg import (
    cosine,
    gram_functions,
    orthonormalised,
    positive_qr,
    rotation,
    sine,
    symmetric,
    versine,
)
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.retractions.arrays import FRAME_RETRACTIONS
from rmopt.retractions.grassmann import Exponential, Polar


class Stiefel(ArrayManifold):
    """The n × p matrices X with orthonormal columns, or batches of them, with the inner product of the space around.

    A tangent vector at X is an array ξ of the same shape with Xᵀξ + ξᵀX = 0.

    Parameters
    ----------
    n, p : int
        Numbers of rows and columns, p ≤ n.
    k : int
        With more than 1, a point is a k × n × p array of as many matrices.
    retraction : Retraction or str, optional
        The default retraction; `Polar` unless given.

    Raises
    ------
    InvalidInputError
        For more columns than rows, or no directions to go.
    """

    default_retraction: Retraction = Polar()
    retractions = FRAME_RETRACTIONS

    def __init__(self, n: int, p: int, k: int = 1, retraction: Retraction | str | None = None) -> None:
        self.n, self.p, self.k = integer("n", n, 1), integer("p", p, 1), integer("k", k, 1)
        self.shape = (n, p) if k == 1 else (k, n, p)
        if p > n or self.dim < 1:
            raise InvalidInputError(
                f"{self} is empty, or has no directions to go: it needs p ≤ n and n ≥ 2; choose a larger n."
            )
        self.default_retraction = self.fitting(retraction)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}, {self.p}{f', k={self.k}' if self.k > 1 else ''})"

    @property
    def dim(self) -> int:
        return self.k * (self.n * self.p - self.p * (self.p + 1) // 2)

    @property
    def typical_dist(self) -> float:
        """Scale of the manifold."""
        return float((self.p * self.k) ** 0.5)

    def projection(self, point: Array, ambient: Ambient) -> Array:
        Z = dense(ambient)
        normal = point @ symmetric(point.mT @ Z)
        return np.subtract(Z, normal, out=normal)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return P(H − ξ sym(XᵀG)) for the Euclidean gradient G and its derivative H along ξ."""
        bend = symmetric(point.mT @ dense(euclidean_gradient))
        return self.projection(point, dense(euclidean_hessian) - tangent_vector @ bend)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic, by exponentials of skew-symmetric matrices (Zimmermann and Hüper 2022)."""
        turn = point.mT @ tangent_vector
        Q, R = np.linalg.qr(tangent_vector - point @ turn)
        zero = np.zeros((*R.shape[:-2], R.shape[-2], R.shape[-2]))
        both = rotation(np.block([[2.0 * turn, -R.mT], [R, zero]]))[..., : self.p]
        return orthonormalised(np.concatenate([point, Q], axis=-1) @ (both @ rotation(-turn)))

    def refusal(self, point: Array) -> str | None:
        error = float(np.abs(point.mT @ point - np.eye(self.p)).max())
        if error > 1e-10:
            return f"its columns are not orthonormal: XᵀX − I reaches {error:.1e}; take np.linalg.qr(X)[0]"
        return None

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a uniformly distributed point."""
        return positive_qr(np.random.default_rng(rng).standard_normal(self.shape))


class SpecialOrthogonal(Stiefel):
    """The rotations of ℝⁿ, orthogonal n × n matrices of determinant 1, or batches of them.

    A tangent vector at X is an array ξ = XΩ of the same shape, with a skew-symmetric Ω. That of pymanopt's
    SpecialOrthogonalGroup is Ω itself; both have the same length.

    Parameters
    ----------
    n : int
        The dimension, 2 or more.
    k : int
        With more than 1, a point is a k × n × n array of as many rotations.
    retraction : Retraction or str, optional
        The default retraction; `Exponential` unless given.

    Raises
    ------
    InvalidInputError
        For n below 2.
    """

    default_retraction: Retraction = Exponential()
    # Parallel transport takes longer, and saves no iterations.
    default_transport: Transport = ByProjection()

    def __init__(self, n: int, k: int = 1, retraction: Retraction | str | None = None) -> None:
        super().__init__(n, n, k, retraction)

    def __repr__(self) -> str:
        return f"SpecialOrthogonal({self.n}{f', k={self.k}' if self.k > 1 else ''})"

    # Geodesics

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic X exp(Ω), with even and odd powers of Ω as functions of ξᵀξ."""
        if self.n > 3:
            even, odd = gram_functions(tangent_vector, cosine, sine)
            return orthonormalised(point @ even + tangent_vector @ odd)
        # Rodrigues: two of the three squared singular values are equal, the third is 0.
        squares = 0.5 * (tangent_vector * tangent_vector).sum(axis=(-2, -1), keepdims=True)
        twice = tangent_vector @ (point.mT @ tangent_vector)
        return orthonormalised(point + tangent_vector * sine(squares) + twice * versine(squares))

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of the shortest geodesic; where an angle is π, of one of many."""
        quotients = (point_a.mT @ point_b).reshape(-1, self.n, self.n)
        return point_a @ np.array([_log(one) for one in quotients]).reshape(self.shape)

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the geodesic distance: the length of the vector of all angles, where each counts twice."""
        return float(np.linalg.norm(np.angle(np.linalg.eigvals(point_a.mT @ point_b))))

    def pair_mean(self, point_a: Array, point_b: Array) -> Array:
        return self.exp(point_a, 0.5 * self.log(point_a, point_b))

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the shortest geodesic, in parallel: half of the turn on both sides of Ω."""
        middle = self.pair_mean(point_a, point_b)
        return middle @ (point_a.mT @ tangent_vector_a) @ (point_a.mT @ middle)

    # Points

    def refusal(self, point: Array) -> str | None:
        if (reason := super().refusal(point)) is not None:
            return reason
        return None if (np.linalg.det(point) > 0.0).all() else "its determinant is −1; turn a column around"

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a uniformly distributed point."""
        point = super().random_point(rng)
        point[..., 0] *= np.linalg.det(point)[..., None]
        return orthonormalised(point)


def _log(Q: Array) -> Array:
    """Return the skew-symmetric logarithm of a rotation, from planes that it turns; exact at all angles."""
    turned, planes = scipy.linalg.schur(Q)
    below, cosines = np.diagonal(turned, -1), np.diagonal(turned)
    angles = np.diag(np.where(below != 0.0, np.arctan2(below, cosines[:-1]), 0.0), -1)
    # Half turns are pairs of −1 that may stand apart.
    alone = np.append(below == 0.0, True) & np.append(True, below == 0.0) & (cosines < 0.0)
    (halves,) = np.nonzero(alone)
    angles[halves[1::2], halves[::2]] = np.pi
    return planes @ (angles - angles.T) @ planes.T
