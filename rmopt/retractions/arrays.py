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
    """R(ξ) = (X + ξ) / ‖X + ξ‖; the manifold says by `normalised` what has length 1."""

    order = 2
    name = "normalisation"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = t * tangent
        moved += point
        return manifold.normalised(moved)


class FrameQR(QR):
    """`QR` for frames: where the columns themselves count, and not only what they span, it is of first order.

    See Also
    --------
    Polar : of second order.
    Cayley : without a factorisation of tall matrices.
    """

    order = 1


class Cayley(Retraction):
    """R(ξ) = (I − W/2)⁻¹ (I + W/2) X with the skew-symmetric W of rank 2p and ξ = W X (Wen and Yin 2013).

    It is that of the canonical metric, as `CanonicalCayley` of second order. No rotation is ever by π: X and −X are
    never joined.

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
        # W itself is not larger.
        half, back = 0.5 * t * tangent, ns.adjoint(point)
        turned = (half - 0.5 * point @ (back @ half)) @ back
        skew = ns.eye(n, point) - turned + ns.adjoint(turned)
        return orthonormalised(ns.namespace(point).linalg.solve(skew, point + half))


class CanonicalCayley(Cayley):
    """`Cayley` where the metric of frames is the canonical one: there it is of second order."""

    order = 2


class MultiplicativeWeights(Retraction):
    """R(ξ) = x ∘ exp(ξ / x), divided by its sum: probabilities stay positive, however long the step."""

    order = 1
    name = "multiplicative"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        xp, exponents, axis = ns.namespace(point), t * (tangent / point), -len(manifold.shape)
        # Of numpy's ways to a maximum the one that begins soonest.
        most = np.maximum.reduce if xp is np else xp.max
        weights = point * xp.exp(exponents - most(exponents, axis=axis, keepdims=True))
        # However long the step: in place of zero a number by whose square can be divided.
        least = xp.finfo(point.dtype).smallest_normal ** (1.0 / 3.0)
        return ns.at_least(weights / manifold.sums(weights), least)


class Sinkhorn(Retraction):
    """R(ξ) = X ∘ exp(ξ / X), with rows and columns balanced in turns: numbers stay positive, however long the step.

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
        Where this takes too long, which it does near the boundary.
    """
    xp, even = ns.namespace(matrix), 8.0 * float(ns.limits(matrix).eps)
    rows = xp.ones_like(matrix[..., :1])
    for _ in range(rounds):
        columns = 1.0 / (matrix.mT @ rows)
        before, rows = rows, 1.0 / (matrix @ columns)
        if bool(xp.max(abs(rows / before - 1.0)) <= even):
            break
    # Of symmetric ones both are one, but for a number.
    found = rows * matrix * columns.mT
    if not bool(xp.max(abs(xp.sum(found, axis=-2) - 1.0)) <= 1e3 * even) or not bool(xp.min(found) > 0.0):
        raise InvalidInputError(
            "rows and columns cannot be balanced: numbers are too near to 0; take shorter steps."
        )
    return found


class OrthographicHyperbolic(Retraction):
    """R(ξ) = √(1 + ⟨ξ, ξ⟩) x + ξ: the point of the hyperboloid that differs from x + ξ by a normal vector.

    Defined for every ξ. The point moves by arcsinh ‖ξ‖, so that long steps are short ones here, where those of
    `Exponential` overflow.
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
