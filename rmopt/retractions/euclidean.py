"""The straight line."""

from typing import Any

import numpy as np

from rmopt.core.ambient import dense
from rmopt.core.errors import InvalidInputError
from rmopt.core.manifold import HasStepBound
from rmopt.core.retraction import Retraction
from rmopt.kernels.row_column import STRAIGHT


class Additive(Retraction):
    """R(ξ) = W + ξ: of first order in general, and the exponential map where the manifold is flat.

    On an open set such as the positive definite cone the line is bounded: see `HasStepBound.max_step`.
    """

    order = 1
    kernel = STRAIGHT
    bounded = True
    name = "additive"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: np.ndarray, tangent: Any, t: float = 1.0) -> np.ndarray:
        """Return the point reached from `point` along t · `tangent`.

        Raises
        ------
        InvalidInputError
            When the line leaves the manifold before t.
        """
        if isinstance(manifold, HasStepBound):
            bound = manifold.max_step(point, tangent)
            if not abs(t) < bound if t >= 0 else not -t < manifold.max_step(point, -tangent):
                raise InvalidInputError(
                    f"the straight line leaves {manifold} within a step of {t:.3g}; take a smaller step "
                    "(`max_step` tells how small) or a retraction that never leaves, such as SchurExponential."
                )
        return point + t * dense(tangent)

    def reach(self, manifold: Any, point: np.ndarray, tangent: Any) -> float:
        """Return how far a solver may follow the line."""
        return manifold.safe_step(point, tangent) if isinstance(manifold, HasStepBound) else float("inf")

    def velocity(self, manifold: Any, point: np.ndarray, tangent: Any, t: float) -> np.ndarray:
        """Return the derivative of the curve at t."""
        return dense(tangent)


EUCLIDEAN_RETRACTIONS: dict[str, Retraction] = {"additive": Additive()}
