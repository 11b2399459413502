"""What was computed at the latest points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """Results by point, for the latest few points.

    Points are told apart by identity: they are never changed in place. Optimizers ask for value, gradient and
    Hessian at one point after the other.

    Parameters
    ----------
    depth : int
        How many points are remembered.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._known: list[tuple[Any, Any]] = []

    def get(self, point: Any, compute: Callable[[Any], T]) -> T:
        """Return the result at a point, computed unless it is remembered."""
        for known, result in self._known:
            if known is point:
                return result
        result = compute(point)
        self._known = [(point, result), *self._known[: self._depth - 1]]
        return result
