"""The reference engine: the definition of Riemannian stochastic gradient descent, in plain Python."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.cost import FiniteSum
from rmopt.core.manifold import Manifold
from rmopt.core.problem import ambient_at, unchanged
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine, checked, diverged, read_only


class Look:
    """What steps may ask at a point: gradients of some terms, or of all, and vectors carried from elsewhere."""

    def __init__(self, manifold: Manifold, cost: FiniteSum) -> None:
        self.manifold, self.cost = manifold, cost
        self.carry = partial(manifold.default_transport, manifold)
        # Of what was held against the points, and what was seen to leave them as they are.
        self._shape: Any = None
        self._trusted: set[str] = set()

    def gradient(self, point: Any, terms: Array) -> Any:
        """Return the Riemannian gradient of the sum over some terms."""
        return self._riemannian(
            point, partial(self.cost.term_gradient, point, read_only(terms)), "term_gradient"
        )

    def whole_gradient(self, point: Any) -> Any:
        """Return the Riemannian gradient of the sum over all terms."""
        return self._riemannian(point, partial(self.cost.gradient, point), "gradient")

    def _riemannian(self, point: Any, call: Callable[[], Any], what: str) -> Any:
        ambient = call() if what in self._trusted else unchanged(self.cost, point, call, what)
        self._trusted.add(what)
        ambient = ambient_at(self.manifold, point, ambient, self.cost, what, self._shape)
        self._shape = ambient.shape
        return self.manifold.euclidean_to_riemannian_gradient(point, ambient)


@dataclasses.dataclass(frozen=True)
class ReferenceState:
    """A point and two counters."""

    point: Any
    steps: int = 0
    updates: int = 0


@dataclasses.dataclass(frozen=True)
class ReferenceEngine(Engine):
    """Gradient of some terms, projection, retraction: any manifold, any cost, any retraction.

    Attributes
    ----------
    manifold : Manifold
    cost : FiniteSum
    retraction : Retraction
    batch_size : int, optional
        Terms per step, by which schedules are checked.

    References
    ----------
    Bonnabel, Stochastic gradient descent on Riemannian manifolds, IEEE Transactions on Automatic Control 58
    (2013), https://doi.org/10.1109/TAC.2013.2254619.
    """

    manifold: Manifold
    cost: FiniteSum
    retraction: Retraction
    batch_size: int | None = None

    def load(self, point: Any) -> ReferenceState:
        return ReferenceState(point)

    # Overflow is reported once, by the length of the gradient.
    @np.errstate(all="ignore")
    def advance(self, state: ReferenceState, schedule: Array, etas: Array) -> ReferenceState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        look, point, steps, updates = Look(self.manifold, self.cost), state.point, state.steps, state.updates
        for terms, eta in zip(schedule, etas, strict=True):
            gradient = look.gradient(point, terms)
            length = self.manifold.norm(point, gradient)
            if not np.isfinite(length):
                raise diverged(steps, eta)
            if length > 0.0:
                point = self.retraction(self.manifold, point, gradient, -eta)
                updates += 1
            steps += 1
        return ReferenceState(point, steps, updates)

    def taken_over(self, state: Any) -> ReferenceState | None:
        return state if isinstance(state, ReferenceState) else None

    def moved(self, state: ReferenceState, point: Any) -> ReferenceState:
        return dataclasses.replace(state, point=point)
