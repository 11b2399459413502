"""Retractions of arrays of unit length, of probabilities, and of frames: matrices with orthonormal columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.retraction import Retraction
from rmopt.linalg import cayley, orthonormalised, skew_form
from rmopt.retractions.grassmann import QR, Exponential, Polar


class Normalisation(Retraction):
    """R(ξ) = (X + ξ) / ‖X + ξ‖; the manifold says by `normalised` what has length 1.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere
    >>> manifold = Sphere(4).using(Normalisation())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 2
    name = "normalisation"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = t * tangent
        moved += point
        return manifold.normalised(moved)


class FrameQR(QR):
    """`QR` for frames: where the columns themselves count, and not only what they span, it is of first order.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Stiefel
    >>> manifold = Stiefel(5, 2).using(FrameQR())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 1


class Cayley(Retraction):
    """R(ξ) = (I − W/2)⁻¹ (I + W/2) X with the skew-symmetric W of rank 2p and ξ = W X (Wen and Yin 2013).

    It is that of the canonical metric, as `CanonicalCayley` of second order. No rotation is ever by π: X and −X are
    never joined.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Stiefel
    >>> manifold = Stiefel(5, 2).using(Cayley())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 1
    name = "cayley"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        frame, core = skew_form(point, t * tangent)
        return orthonormalised(frame @ cayley(core)[..., : point.shape[-1]])


class CanonicalCayley(Cayley):
    """`Cayley` where the metric of frames is the canonical one: there it is of second order.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Stiefel
    >>> manifold = Stiefel(5, 2, metric="canonical").using(CanonicalCayley())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 2


class MultiplicativeWeights(Retraction):
    """R(ξ) = x ∘ exp(ξ / x), divided by its sum: probabilities stay positive, however long the step.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Simplex
    >>> manifold = Simplex(4).using(MultiplicativeWeights())
    >>> x = manifold.random_point(np.random.default_rng(0))
    >>> xi = manifold.random_tangent_vector(x, np.random.default_rng(1))
    >>> manifold.check_point(manifold.retraction(x, 0.1 * xi)) is None
    True
    """

    order = 1
    name = "multiplicative"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        exponents = t * (tangent / point)
        weights = point * np.exp(exponents - exponents.max(0))
        return weights / weights.sum(0)


SPHERE_RETRACTIONS: dict[str, Retraction] = {
    retraction.name: retraction for retraction in (Normalisation(), Exponential())
}
HYPERBOLIC_RETRACTIONS: dict[str, Retraction] = {Exponential.name: Exponential()}
SIMPLEX_RETRACTIONS: dict[str, Retraction] = {
    retraction.name: retraction for retraction in (MultiplicativeWeights(), Exponential())
}
FRAME_RETRACTIONS: dict[str, Retraction] = {
    retraction.name: retraction for retraction in (Polar(), FrameQR(), Exponential(), Cayley())
}
CANONICAL_RETRACTIONS: dict[str, Retraction] = {
    retraction.name: retraction for retraction in (CanonicalCayley(), FrameQR(), Exponential())
}
