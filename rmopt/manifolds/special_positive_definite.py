"""Positive definite matrices of determinant 1."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array
from rmopt.core.arguments import integer
from rmopt.core.manifold import Manifold
from rmopt.core.points import as_like
from rmopt.core.retraction import by_name
from rmopt.manifolds.symmetric_positive_definite import SymmetricPositiveDefinite
from rmopt.precision import slack
from rmopt.retractions.grassmann import Exponential


class SpecialPositiveDefinite(SymmetricPositiveDefinite):
    """Symmetric or Hermitian positive definite d × d matrices W of determinant 1, or batches of them.

    Tangent vectors are symmetric arrays ξ with tr(W⁻¹ξ) = 0, and the metric is the affine-invariant one. Geodesics
    are those of all positive definite matrices, whose cone is the product of this manifold and a line, that of
    log det W.

    Parameters
    ----------
    d : int
        Number of rows and columns, 2 or more.
    k : int
        With more than 1, a point is a k × d × d array of as many matrices.
    field : {"real", "complex"}

    See Also
    --------
    SymmetricPositiveDefinite : of any determinant.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import SpecialPositiveDefinite
    >>> manifold = SpecialPositiveDefinite(2)
    >>> manifold.dim, round(float(manifold.dist(np.eye(2), np.diag([np.e, 1.0 / np.e]))), 4)
    (2, 1.4142)
    """

    def __init__(self, d: int, k: int = 1, *, field: str = "real") -> None:
        super().__init__(integer("d", d, 2), k, field=field)
        self.retractions = by_name(Exponential())
        self.default_retraction = self.retractions["exponential"]

    def __repr__(self) -> str:
        batch = f", k={self.k}" if self.k > 1 else ""
        return f"SpecialPositiveDefinite({self.d}{batch}{self._in_field})"

    @property
    def dim(self) -> int:
        return super().dim - self.k

    def _traceless(self, point: Array, vector: Array) -> Array:
        xp = ns.namespace(vector)
        rate = ns.real(xp.linalg.trace(xp.linalg.solve(point, vector))) / self.d
        return vector - rate[..., None, None] * point

    def projection(self, point: Array, ambient: Ambient) -> Array:
        """Return the orthogonal projection in the metric."""
        return self._traceless(point, super().projection(point, ambient))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        return self._traceless(point, super().euclidean_to_riemannian_gradient(point, euclidean_gradient))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        whole = super().euclidean_to_riemannian_hessian(
            point, euclidean_gradient, euclidean_hessian, tangent_vector
        )
        return self._traceless(point, whole)

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        vector = self._traceless(point, super().random_tangent_vector(point, rng))
        return vector / self.norm(point, vector)

    def exp(self, point: Array, tangent_vector: Ambient) -> Array:
        """Follow the geodesic."""
        return self._scaled(super().exp(point, tangent_vector))

    def _scaled(self, W: Array) -> Array:
        return W / ns.real(ns.namespace(W).linalg.det(W))[..., None, None] ** (1.0 / self.d)

    def refusal(self, point: Array) -> str | None:
        if (reason := super().refusal(point)) is not None:
            return reason
        off = np.abs(np.linalg.det(ns.to_numpy(point)) - 1.0).max()
        return f"its determinant differs from 1 by {off:.1e}" if off > slack(1e-9, point) else None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a matrix with uniformly distributed eigenvectors, the largest eigenvalue up to 3 times the least."""
        return as_like(self._scaled(super().random_point(rng)), like)

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        return Manifold.projected_mean(self, points, weights)

    def knows(self, method: str) -> bool:
        return method != "projected_mean" and super().knows(method)
