"""What was computed at the latest points."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Memo:
    """Results by point, for the latest few points.

    Optimizers ask for value, gradient and Hessian at one point after the other. A copy of each point is kept, so that
    results are right after a change in place too.

    Parameters
    ----------
    depth : int
        How many points are remembered.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._known: list[tuple[np.ndarray, object]] = []

    def get(self, point: np.ndarray, compute: Callable[[np.ndarray], T]) -> T:
        """Return the result at a point, computed unless it is remembered."""
        for known, result in self._known:
            if np.array_equal(known, point):
                return result  # type: ignore[return-value]
        kept = np.array(point)
        result = compute(kept)
        self._known = [(kept, result), *self._known[: self._depth - 1]]
        return result

    def __getstate__(self) -> dict[str, object]:
        return {"_depth": self._depth, "_known": []}
