"""Retractions of arrays of unit length, of probabilities, and of frames: matrices with orthonormal columns."""

from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.retraction import Retraction, by_name
from rmopt.errors import InvalidInputError
from rmopt.linalg import cayley, orthonormalised, skew_form, symmetric
from rmopt.retractions.grassmann import QR, Exponential, Polar


class Normalisation(Retraction):
    """R(ξ) = (X + ξ) / ‖X + ξ‖. The manifold's `normalised` defines the length."""

    order = 2
    name = "normalisation"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = t * tangent
        moved += point
        return manifold.normalised(moved)


class FrameQR(QR):
    """`QR` for frames: of first order, since the columns themselves count and not only their span.

    See Also
    --------
    Polar : of second order.
    Cayley : without a factorisation of tall matrices.
    """

    order = 1


class Cayley(Retraction):
    """R(ξ) = (I − W/2)⁻¹ (I + W/2) X with the skew-symmetric W of rank 2p and ξ = W X (Wen and Yin 2013).

    It belongs to the canonical metric, in which it is of second order, as `CanonicalCayley`. Its rotations are by
    less than π, so X never reaches −X.

    See Also
    --------
    Polar : reaches every frame.
    CanonicalCayley : for the canonical metric.

    References
    ----------
    Wen and Yin, A feasible method for optimization with orthogonality constraints, Mathematical Programming 142
    (2013), https://doi.org/10.1007/s10107-012-0584-1.
    """

    order = 1
    name = "cayley"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        n, p = point.shape[-2:]
        if n > 2 * p:
            frame, core = skew_form(point, t * tangent)
            return orthonormalised(frame @ cayley(core)[..., :p])
        # W itself is no larger.
        half, back = 0.5 * t * tangent, ns.adjoint(point)
        turned = (half - 0.5 * point @ (back @ half)) @ back
        skew = ns.eye(n, point) - turned + ns.adjoint(turned)
        return orthonormalised(ns.namespace(point).linalg.solve(skew, point + half))


class CanonicalCayley(Cayley):
    """`Cayley` for the canonical metric of frames, in which it is of second order."""

    order = 2


class MultiplicativeWeights(Retraction):
    """R(ξ) = x ∘ exp(ξ / x), divided by its sum: probabilities stay positive for steps of any length."""

    order = 1
    name = "multiplicative"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        xp, exponents, axis = ns.namespace(point), t * (tangent / point), -len(manifold.shape)
        # The maximum with the least overhead in numpy.
        most = np.maximum.reduce if xp is np else xp.max
        weights = point * xp.exp(exponents - most(exponents, axis=axis, keepdims=True))
        # For steps of any length: replaces zero by a number whose square is a safe divisor.
        least = xp.finfo(point.dtype).smallest_normal ** (1.0 / 3.0)
        return ns.at_least(weights / manifold.sums(weights), least)


class Sinkhorn(Retraction):
    """R(ξ) = X ∘ exp(ξ / X), with rows and columns balanced in turns: numbers stay positive for any step.

    References
    ----------
    Douik and Hassibi, Manifold optimization over the set of doubly stochastic matrices: a second-order geometry,
    IEEE Transactions on Signal Processing 67 (2019), https://doi.org/10.1109/TSP.2019.2946024.
    """

    order = 1
    name = "sinkhorn"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        xp, exponents = ns.namespace(point), t * (tangent / point)
        moved = balanced(point * xp.exp(exponents - xp.max(exponents, axis=-1, keepdims=True)))
        return moved if manifold.dim == (point.shape[-1] - 1) ** 2 else symmetric(moved)


def balanced(matrix: Array, rounds: int = 300) -> Array:
    """Return matrices of positive numbers with rows and columns scaled to the sum 1.

    Raises
    ------
    InvalidInputError
        If this takes too long, as it does near the boundary.
    """
    xp, even = ns.namespace(matrix), 8.0 * float(ns.limits(matrix).eps)
    rows = xp.ones_like(matrix[..., :1])
    for _ in range(rounds):
        columns = 1.0 / (matrix.mT @ rows)
        before, rows = rows, 1.0 / (matrix @ columns)
        if bool(xp.max(abs(rows / before - 1.0)) <= even):
            break
    # For symmetric matrices both are equal up to a factor.
    found = rows * matrix * columns.mT
    if not bool(xp.max(abs(xp.sum(found, axis=-2) - 1.0)) <= 1e3 * even) or not bool(xp.min(found) > 0.0):
        raise InvalidInputError(
            "rows and columns cannot be balanced: numbers are too near to 0; take shorter steps."
        )
    return found


class OrthographicHyperbolic(Retraction):
    """R(ξ) = √(1 + ⟨ξ, ξ⟩) x + ξ: the point of the hyperboloid that differs from x + ξ by a normal vector.

    Defined for every ξ. The point moves by arcsinh ‖ξ‖ only, so that long steps do not overflow as with
    `Exponential`.
    """

    order = 2
    name = "orthographic"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = t * tangent
        # Rounding may leave less than 0.
        squares = ns.at_least(manifold.products(point, moved, moved), 0.0)
        return manifold.lifted(point * (1.0 + squares) ** 0.5 + moved)


SPHERE_RETRACTIONS = by_name(Normalisation(), Exponential())
HYPERBOLIC_RETRACTIONS = by_name(Exponential(), OrthographicHyperbolic())
SINKHORN_RETRACTIONS = by_name(Sinkhorn())
SIMPLEX_RETRACTIONS = by_name(MultiplicativeWeights(), Exponential())
FRAME_RETRACTIONS = by_name(Polar(), FrameQR(), Exponential(), Cayley())
CANONICAL_RETRACTIONS = by_name(CanonicalCayley(), FrameQR(), Exponential())
