"""Retractions of subspaces, given by orthonormal bases."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import MissingCapabilityError
from rmopt.core.retraction import Retraction
from rmopt.linalg import gram_functions, positive_qr


class Exponential(Retraction):
    """Follows the geodesic, on any manifold that knows its exponential map; else a `MissingCapabilityError`.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere
    >>> manifold = Sphere(4).using(Exponential())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 2
    name = "exponential"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        if not manifold.knows_geodesics:
            raise MissingCapabilityError(
                f"{manifold} has no closed form of an exponential map; use {manifold.default_retraction}."
            )
        return manifold.exp(point, t * tangent)


class QR(Retraction):
    """R(ξ) = the orthonormal factor of U + ξ = Q R, where R has a positive diagonal.

    The same subspace as that of `Polar`, in another basis.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Grassmann
    >>> manifold = Grassmann(5, 2).using(QR())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 2
    name = "qr"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return positive_qr(point + t * tangent)


class Polar(Retraction):
    """R(ξ) = (U + ξ)(I + ξᵀξ)^−½, the orthonormal factor nearest to U + ξ.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Grassmann
    >>> manifold = Grassmann(5, 2).using(Polar())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 2
    name = "polar"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = point + t * tangent
        (root,) = gram_functions(moved, lambda squares: squares**-0.5)
        return moved @ root


GRASSMANN_RETRACTIONS: dict[str, Retraction] = {
    retraction.name: retraction for retraction in (Exponential(), QR(), Polar())
}
