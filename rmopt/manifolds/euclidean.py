"""All arrays of one shape: flat, symmetric, or of positive numbers."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.errors import InvalidInputError
from rmopt.manifolds.arrays import ArrayManifold, root_of_sums, weighted_sum
from rmopt.retractions.grassmann import Exponential
from rmopt.retractions.positive_definite import EUCLIDEAN_RETRACTIONS, Additive


class Euclidean(ArrayManifold):
    """All arrays of one shape with the Frobenius inner product: vectors, n × m matrices, or more dimensions.

    Parameters
    ----------
    n, m, *more : int
        The lengths of the dimensions: n alone for vectors.
    field : {"real", "complex"}

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Euclidean
    >>> manifold = Euclidean(2, 2)
    >>> manifold.dim, float(manifold.dist(np.zeros((2, 2)), np.ones((2, 2))))
    (4, 2.0)
    """

    default_retraction: Retraction = Additive()
    retractions = EUCLIDEAN_RETRACTIONS

    def __init__(self, n: int, m: int | None = None, *more: int, field: str = "real") -> None:
        self._take(field)
        given = {"n": n} | ({} if m is None and not more else {"m": m})
        given |= {f"length {place}": length for place, length in enumerate(more, 3)}
        self.shape = tuple(integer(name, length, 1) for name, length in given.items())

    @property
    def dim(self) -> int:
        return prod(self.shape) * self._per_number

    def projection(self, point: Array, ambient: Any) -> Array:
        return dense(ambient, point)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Any, euclidean_hessian: Any, tangent_vector: Array
    ) -> Array:
        """Return the tangent part of the ambient Hessian."""
        return self.projection(point, euclidean_hessian)

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a matrix of independent standard normal numbers."""
        return as_like(self.drawn(rng), like)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        return point + tangent_vector

    def log(self, point_a: Array, point_b: Array) -> Array:
        return point_b - point_a

    def dist(self, point_a: Array, point_b: Array) -> Any:
        apart, axes = point_b - point_a, len(self.shape)
        return root_of_sums(ns.real_dots(apart, apart, axes), axes)

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        return weighted_sum(points, weights)


class Symmetric(Euclidean):
    """The symmetric n × n matrices, or the Hermitian ones, with the Frobenius inner product.

    Parameters
    ----------
    n : int
    field : {"real", "complex"}

    See Also
    --------
    SkewSymmetric : matrices with Xᴴ = −X.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Symmetric
    >>> Symmetric(2).projection(
    ...     np.zeros((2, 2)), np.array([[1.0, 4.0], [0.0, 2.0]])
    ... ).tolist()
    [[1.0, 2.0], [2.0, 2.0]]
    """

    _sign = 1.0

    def __init__(self, n: int, *, field: str = "real") -> None:
        super().__init__(n, n, field=field)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]}{self._in_field})"

    @property
    def dim(self) -> int:
        n = self.shape[0]
        return n * n if self.field == "complex" else n * (n + int(self._sign)) // 2

    def projection(self, point: Array, ambient: Any) -> Array:
        Z = dense(ambient, point)
        return 0.5 * (Z + self._sign * ns.adjoint(Z))

    def refusal(self, point: Array) -> str | None:
        error = np.abs(ns.to_numpy(point - self._sign * ns.adjoint(point))).max()
        if error <= ns.slack(1e-12, point) * np.abs(ns.to_numpy(point)).max():
            return None
        return (
            f"it is not {'skew-' * (self._sign < 0.0)}symmetric: its parts differ by {error:.1e}; project it"
        )

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return the projection of a matrix of independent standard normal numbers."""
        drawn = self.drawn(rng)
        return as_like(self.projection(drawn, drawn), like)


class SkewSymmetric(Symmetric):
    """The n × n matrices with Xᵀ = −X, or Xᴴ = −X, with the Frobenius inner product.

    Parameters
    ----------
    n : int
        2 or more, if they are real.
    field : {"real", "complex"}

    See Also
    --------
    Symmetric : matrices with Xᴴ = X.

    Examples
    --------
    >>> from rmopt.manifolds import SkewSymmetric
    >>> SkewSymmetric(3).dim
    3
    """

    _sign = -1.0

    def __init__(self, n: int, *, field: str = "real") -> None:
        super().__init__(n, field=field)
        if self.dim < 1:
            raise InvalidInputError("SkewSymmetric(1) has no tangent directions; let n be 2 or more.")


class Positive(ArrayManifold):
    """All arrays of positive numbers of one shape, with the scale-invariant metric ⟨ξ/X, η/X⟩.

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
        """Transport a tangent vector in parallel, which preserves relative changes."""
        return tangent_vector_a * (point_b / point_a)

    def refusal(self, point: Array) -> str | None:
        least = float(ns.namespace(point).min(point))
        return None if least > 0.0 else f"its least number is {least:.1e}; all of them must be positive"

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return numbers whose logarithms are normally distributed."""
        return as_like(np.exp(self.drawn(rng)), like)
