"""What manifolds of arrays share that take over the inner product of the space around them."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.manifold import Manifold
from rmopt.errors import InvalidInputError
from rmopt.precision import real_type


class ArrayManifold(Manifold):
    """A manifold of arrays of one shape, with the inner product of the space around it.

    A subclass has `shape`, `dim`, `projection` and `random_point`, and says in `refusal` which arrays are no points.
    Tangent vectors are arrays of the same shape; they are carried along by projection.

    Attributes
    ----------
    shape : tuple of int

    See Also
    --------
    rmopt.core.Manifold : where points are no arrays.
    rmopt.checks.check_manifold : checks one of your own.

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
        # All geodesics pass here: many points at once would give numbers that mean nothing.
        for name in {"exp", "log", "dist"} & vars(cls).keys():
            # One that takes back a closed form stays that of `Manifold`, by which `knows` tells.
            if vars(cls)[name] is not vars(Manifold)[name]:
                setattr(cls, name, _of_single_arrays(vars(cls)[name]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.shape))})"

    @property
    def has_ambient_metric(self) -> bool:
        """Whether the inner product is that of the space around; with one of its own it is not, unless said so."""
        return type(self).inner_product is ArrayManifold.inner_product

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        if tangent_vector_a.ndim == 1:
            # The same sum as that of `vdot`, which takes twice as long to begin.
            return float(tangent_vector_a.dot(tangent_vector_b))
        if tangent_vector_a.flags.fnc:
            # `vdot` copies arrays that are stored by columns.
            tangent_vector_a, tangent_vector_b = tangent_vector_a.T, tangent_vector_b.T
        return float(np.vdot(tangent_vector_a, tangent_vector_b))

    def zero_vector(self, point: Array) -> Array:
        return np.zeros(self.shape, real_type(point))

    def check_point(self, point: Any) -> str | None:
        if not isinstance(point, np.ndarray) or point.shape != self.shape:
            found = f"one of shape {point.shape}" if isinstance(point, np.ndarray) else type(point).__name__
            return f"a point of {self} is an array of shape {self.shape}, not {found}"
        return self.refusal(point) if np.isfinite(point).all() else "the point holds NaN or infinity"

    def refusal(self, point: Array) -> str | None:
        """Return why a finite array of the right shape is no point, or None: then all of them are."""
        return None


def weighted_sum(points: Sequence[Array], weights: Array) -> Array:
    """Return the sum in the order of the points, so that bits do not depend on how a library sums."""
    total = weights[0] * points[0]
    for weight, point in zip(weights[1:], points[1:], strict=True):
        total = total + weight * point
    return np.ascontiguousarray(total)


def _of_single_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of two arrays that refuses what has not the shape of one point, such as many of them."""

    @wraps(function)
    def guarded(self: ArrayManifold, *pair: Any, **named: Any) -> Any:
        # A subclass may take more.
        for array in (*pair, *named.values())[:2]:
            shape = getattr(array, "shape", type(array).__name__)
            if shape != self.shape:
                raise InvalidInputError(
                    f"{self} takes arrays of shape {self.shape}, and got {shape}; pass many points one by one."
                )
        return function(self, *pair, **named)

    return guarded
