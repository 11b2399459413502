"""The base of manifolds of arrays that inherit the inner product of the ambient space."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import wraps
from typing import Any, ClassVar, Self

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import array
from rmopt.core.manifold import Manifold, OverField
from rmopt.core.memo import latest
from rmopt.core.points import is_finite
from rmopt.errors import InvalidInputError


class ArrayManifold(OverField, Manifold):
    """A manifold of arrays of one shape, with the inner product of the ambient space.

    A subclass has `shape`, `dim`, `projection` and `random_point`, and a `refusal` of arrays that are not points.
    Tangent vectors are arrays of the same shape, transported by projection.

    Arrays may be of numpy, PyTorch, JAX or CuPy: the type of a point selects the library. Methods take many points at
    once, as an array with more axes in front, or one point and many. A number for one point becomes an array for
    many, except that `inner_product` sums. `refusal` describes all points.

    Attributes
    ----------
    shape : tuple of int
        The shape of one point.
    field : {"real", "complex"}
        The numbers of points. Formulas follow the arrays: the field determines random numbers, the dimension, and the
        accepted points.

    See Also
    --------
    rmopt.core.Manifold : for points that are not arrays.
    rmopt.checks.check_manifold : checks your own manifold.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.checks import check_manifold
    >>> from rmopt.manifolds import ArrayManifold
    >>> from rmopt.retractions import Additive
    >>> class Symmetric(ArrayManifold):
    ...     default_retraction = Additive()
    ...
    ...     def __init__(self, n):
    ...         self.shape, self.n = (n, n), n
    ...
    ...     @property
    ...     def dim(self):
    ...         return self.n * (self.n + 1) // 2
    ...
    ...     def projection(self, point, vector):
    ...         return 0.5 * (vector + vector.T)
    ...
    ...     def random_point(self, rng=None):
    ...         X = np.random.default_rng(rng).standard_normal(self.shape)
    ...         return X + X.T
    ...
    ...     def refusal(self, point):
    ...         return None if np.allclose(point, point.T) else "it is not symmetric"
    >>> all(check_manifold(Symmetric(3)))
    True
    """

    point_type: ClassVar[type] = np.ndarray
    shape: tuple[int, ...]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # All geodesics pass here: arrays of other shapes would give meaningless numbers.
        for name in {"exp", "log", "dist"} & vars(cls).keys():
            # A method that withdraws a closed form stays that of `Manifold`, which `knows` recognises.
            if vars(cls)[name] is not vars(Manifold)[name]:
                setattr(cls, name, _of_points(vars(cls)[name]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.shape))}{self._in_field})"

    @property
    def has_ambient_metric(self) -> bool:
        """Whether the inner product is that of the ambient space: false for a custom one, unless overridden."""
        return type(self).inner_product is ArrayManifold.inner_product

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(ns.real_dot(tangent_vector_a, tangent_vector_b))

    def inner(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> Any:
        found = ns.real_dot(tangent_vector_a, tangent_vector_b)
        return float(found) if type(tangent_vector_a) is np.ndarray else found

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        """Return the inner product at each of many points: an array of the axes before those of a point."""
        if self.has_ambient_metric:
            return self._products(tangent_vectors_a, tangent_vectors_b)
        axes = len(self.shape)
        trio = np.broadcast_arrays(*map(ns.to_numpy, (point, tangent_vectors_a, tangent_vectors_b)))
        leading = trio[0].shape[: trio[0].ndim - axes]
        single = zip(*(one.reshape(-1, *self.shape) for one in trio), strict=True)
        return ns.asarray(np.reshape([self.inner_product(*vectors) for vectors in single], leading), point)

    def _products(self, a: Array, b: Array) -> Array:
        """Return the inner product in the ambient space of each of many points."""
        found = ns.real_dots(a, b, len(self.shape))
        return ns.namespace(found).reshape(found, found.shape[: -len(self.shape)])

    def zero_vector(self, point: Array) -> Array:
        return ns.zeros(point.shape, point)

    def as_point(self, given: Any) -> Any:
        """Return a point as an array, also from a list or tuple of numbers."""
        return array("the point", given) if isinstance(given, list | tuple) else given

    def check_point(self, point: Any) -> str | None:
        if not ns.is_array(point) or tuple(point.shape) != self.shape:
            found = f"one of shape {tuple(point.shape)}" if ns.is_array(point) else type(point).__name__
            several = ns.is_array(point) and tuple(point.shape[1:]) == self.shape
            cure = "; many points are one of Power(manifold, k), or of solve_many" if several else ""
            return f"a point of {self} is an array of shape {self.shape}, not {found}{cure}"
        reason = self._other_field(point)
        if reason is not None:
            return reason
        return self.refusal(point) if is_finite(point) else "the point holds NaN or infinity"

    def refusal(self, point: Array) -> str | None:
        """Return why a finite array of the right shape is not a point, or None if all are points."""
        return None


class Keeping(ArrayManifold):
    """The base of manifolds of arrays that cache for a run what they computed at its last two points."""

    _kept: dict[int, Any] | None = None

    def _in_a_run(self) -> Self:
        twin = copy(self)
        twin._kept = {}
        return twin

    def _kept_at(self, point: Array, compute: Callable[[Array], Any]) -> Any:
        return latest({} if self._kept is None or ns.is_traced(point) else self._kept, point, compute)


def weighted_sum(points: Sequence[Array], weights: Array) -> Array:
    """Return the sum in the order of the points, so that it does not depend on how a library sums."""
    # Libraries treat numpy scalars differently.
    shares = weights if type(points[0]) is np.ndarray else weights.tolist()
    total = shares[0] * points[0]
    for weight, point in zip(shares[1:], points[1:], strict=True):
        total = total + weight * point
    return np.ascontiguousarray(total) if type(total) is np.ndarray else total


def root_of_sums(squares: Any, axes: int) -> Any:
    """Return the roots of the sums over the last axes: a number for one point, an array for many."""
    if np.ndim(squares) <= axes and ns.namespace(squares) is np:
        return float(np.add.reduce(squares, None)) ** 0.5
    found = ns.namespace(squares).sum(squares, axis=tuple(range(-axes, 0))) ** 0.5
    return found if found.ndim or ns.is_traced(found) else float(found)


def _of_points(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of two arrays refuse arrays without the shape of one point or of many."""

    @wraps(function)
    def guarded(self: ArrayManifold, *pair: Any, **named: Any) -> Any:
        # A subclass may accept more.
        for given in (*pair, *named.values())[:2]:
            shape = getattr(given, "shape", type(given).__name__)
            if shape != self.shape and (
                isinstance(shape, str) or tuple(shape[-len(self.shape) :]) != self.shape
            ):
                raise InvalidInputError(
                    f"{self} takes arrays of shape {self.shape}, with more axes in front for many points, "
                    f"and got {shape if isinstance(shape, str) else tuple(shape)}; change its last axes."
                )
        return function(self, *pair, **named)

    return guarded
