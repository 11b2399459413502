"""Retractions of arrays of unit length, of probabilities, and of frames: matrices with orthonormal columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.retraction import Retraction
from rmopt.retractions.grassmann import QR, Exponential, Polar


class Normalisation(Retraction):
    """R(ξ) = (X + ξ) / ‖X + ξ‖; the manifold says by `normalised` what has length 1."""

    order = 2
    name = "normalisation"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = t * tangent
        moved += point
        return manifold.normalised(moved)


class FrameQR(QR):
    """`QR` for frames: where the columns themselves count, and not only what they span, it is of first order."""

    order = 1


class MultiplicativeWeights(Retraction):
    """R(ξ) = x ∘ exp(ξ / x), divided by its sum: probabilities stay positive, however long the step."""

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
    retraction.name: retraction for retraction in (Polar(), FrameQR(), Exponential())
}
