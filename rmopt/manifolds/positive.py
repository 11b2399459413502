"""Arrays of positive numbers."""

from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.manifolds.arrays import ArrayManifold, root_of_sums
from rmopt.manifolds.euclidean import Euclidean
from rmopt.retractions.grassmann import Exponential


class Positive(ArrayManifold):
    """All arrays of positive numbers of one shape; no change of scale changes the metric, ⟨ξ/X, η/X⟩.

    Parameters
    ----------
    n, m, *more : int
        The lengths of the dimensions: n alone for vectors.

    See Also
    --------
    Simplex : with the sum 1.
    SymmetricPositiveDefinite : matrices with positive eigenvalues.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Positive
    >>> float(Positive(2).dist(np.array([1.0, 1.0]), np.array([1.0, np.e])))
    1.0
    """

    default_retraction: Retraction = Exponential()

    def __init__(self, n: int, m: int | None = None, *more: int) -> None:
        self.shape = Euclidean(n, m, *more).shape

    @property
    def dim(self) -> int:
        return int(np.prod(self.shape))

    def inner(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> Any:
        return super().inner(point, tangent_vector_a / point, tangent_vector_b / point)

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(self.inner(point, tangent_vector_a, tangent_vector_b))

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        return self._products(tangent_vectors_a / point, tangent_vectors_b / point)

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return dense(ambient, point)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        return point**2 * dense(euclidean_gradient, point)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return X² H + X G ξ, number by number."""
        return point * (
            point * dense(euclidean_hessian, point) + dense(euclidean_gradient, point) * tangent_vector
        )

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        return point * ns.namespace(point).exp(tangent_vector / point)

    def log(self, point_a: Array, point_b: Array) -> Array:
        return point_a * ns.namespace(point_a).log(point_b / point_a)

    def dist(self, point_a: Array, point_b: Array) -> Any:
        rates, axes = ns.namespace(point_a).log(point_b / point_a), len(self.shape)
        return root_of_sums(ns.real_dots(rates, rates, axes), axes)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector in parallel: relative changes stay."""
        return tangent_vector_a * (point_b / point_a)

    def refusal(self, point: Array) -> str | None:
        least = float(ns.namespace(point).min(point))
        return None if least > 0.0 else f"its least number is {least:.1e}; all of them must be positive"

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return numbers whose logarithms are normally distributed."""
        return as_like(np.exp(self.drawn(rng)), like)
