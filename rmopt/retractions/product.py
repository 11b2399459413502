"""Retractions of product manifolds."""

from collections.abc import Iterator, Sequence
from typing import Any

from rmopt.core.arguments import sequence, shown
from rmopt.core.product import Parts
from rmopt.core.retraction import Retraction
from rmopt.errors import InvalidInputError


class Componentwise(Retraction):
    """Moves every part of a point by the retraction of its factor.

    Parameters
    ----------
    retractions : sequence of Retraction
        One per factor.
    """

    name = "componentwise"
    point_type = Parts

    def __init__(self, retractions: Sequence[Retraction]) -> None:
        self.retractions = tuple(sequence("retractions", retractions))
        if not self.retractions or not all(isinstance(one, Retraction) for one in self.retractions):
            raise InvalidInputError(f"Componentwise needs one or more retractions, got {shown(retractions)}.")
        self.order = min(retraction.order for retraction in self.retractions)  # type: ignore[misc]

    def __repr__(self) -> str:
        kinds = list(dict.fromkeys(str(retraction) for retraction in self.retractions))
        return f"Componentwise({', '.join(kinds)})"

    def __call__(self, manifold: Any, point: Parts, tangent: Parts, t: float = 1.0) -> Parts:
        return Parts([move(*of_factor, t) for move, *of_factor in self._each(manifold, point, tangent)])

    def reach(self, manifold: Any, point: Parts, tangent: Parts) -> float:
        """Return the longest step that all parts allow."""
        return min(one.reach(*of_factor) for one, *of_factor in self._each(manifold, point, tangent))

    def _each(self, manifold: Any, point: Parts, tangent: Parts) -> Iterator[tuple[Any, ...]]:
        return zip(self.retractions, manifold.factors, point, tangent, strict=True)


class Each(Retraction):
    """Moves many points in one array, each by the same retraction.

    Parameters
    ----------
    retraction : Retraction
        One that takes arrays with more axes in front.
    """

    name = "each"

    def __init__(self, retraction: Retraction) -> None:
        self.retraction = retraction
        self.order = retraction.order  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Each({self.retraction})"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return self.retraction(manifold.base, point, tangent, t)

    def reach(self, manifold: Any, point: Any, tangent: Any) -> float:
        """Return the longest step that all points allow."""
        pairs = zip(point, tangent, strict=True)
        return min(self.retraction.reach(manifold.base, *pair) for pair in pairs)
