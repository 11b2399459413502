"""The retraction of flat spaces."""

from typing import Any

import numpy as np

from rmopt.core.retraction import Retraction


class Additive(Retraction):
    """R(ξ) = W + ξ."""

    order = 2
    name = "additive"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: np.ndarray, tangent: np.ndarray, t: float = 1.0) -> np.ndarray:
        """Return the point reached from `point` along t · `tangent`."""
        return point + t * tangent
