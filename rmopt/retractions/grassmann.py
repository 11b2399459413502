"""Retractions of subspaces, given by orthonormal bases."""

from typing import Any

from rmopt.core.ambient import Array
from rmopt.core.retraction import Retraction, by_name
from rmopt.linalg import eigh, nearest_frame, positive_qr, symmetric
from rmopt.namespaces import adjoint


class Exponential(Retraction):
    """Follows the geodesic, on any manifold with an exponential map. Others raise a `MissingCapabilityError`."""

    order = 2
    name = "exponential"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return manifold.exp(point, t * tangent)


class QR(Retraction):
    """R(ξ) = the orthonormal factor of U + ξ = Q R, with a positive diagonal of R.

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
    """R(ξ) = (X + ξ)(I + ξᴴBξ)^−½: the nearest point to X + ξ in the metric, with XᴴBX = I."""

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = point + t * tangent
        # Repeated to remove the rounding errors of the first time.
        for _ in range(2):
            squares, basis = eigh(symmetric(adjoint(moved) @ manifold.times(moved)))
            moved = moved @ ((basis * squares[..., None, :] ** -0.5) @ adjoint(basis))
        return moved


GRASSMANN_RETRACTIONS = by_name(Exponential(), QR(), Polar())
GENERALIZED_RETRACTIONS = by_name(GeneralizedPolar())
