"""Retractions of subspaces, given by orthonormal bases."""

from typing import Any

from rmopt.core.ambient import Array
from rmopt.core.retraction import Retraction, by_name
from rmopt.linalg import eigh, nearest_frame, positive_qr, symmetric
from rmopt.namespaces import adjoint


class Exponential(Retraction):
    """Follows the geodesic, on any manifold that knows its exponential map; else a `MissingCapabilityError`."""

    order = 2
    name = "exponential"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return manifold.exp(point, t * tangent)


class QR(Retraction):
    """R(ξ) = the orthonormal factor of U + ξ = Q R, where R has a positive diagonal.

    The same subspace as that of `Polar`, in another basis.
    """

    order = 2
    name = "qr"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return positive_qr(point + t * tangent)


class Polar(Retraction):
    """R(ξ) = (U + ξ)(I + ξᵀξ)^−½, the orthonormal factor nearest to U + ξ."""

    order = 2
    name = "polar"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return nearest_frame(point + t * tangent)


class GeneralizedPolar(Polar):
    """R(ξ) = (X + ξ)(I + ξᴴBξ)^−½: what is nearest to X + ξ, by the metric, where XᴴBX = I."""

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = point + t * tangent
        # Once more for the roundings of the first time.
        for _ in range(2):
            squares, basis = eigh(symmetric(adjoint(moved) @ manifold.times(moved)))
            moved = moved @ ((basis * squares[..., None, :] ** -0.5) @ adjoint(basis))
        return moved


GRASSMANN_RETRACTIONS = by_name(Exponential(), QR(), Polar())
GENERALIZED_RETRACTIONS = by_name(GeneralizedPolar())
