"""The reference engine: the definition of Riemannian stochastic gradient descent, in plain Python."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.cost import FiniteSum
from rmopt.core.manifold import Manifold
from rmopt.core.problem import ambient_at, unchanged
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine, checked, diverged, lost
from rmopt.errors import InvalidInputError


class Look:
    """The operations of steps at a point: gradients of some terms, or of all, and transport of vectors to it."""

    def __init__(self, manifold: Manifold, cost: FiniteSum) -> None:
        self.manifold, self.cost = manifold, cost
        self.carry = partial(manifold.default_transport, manifold)
        # The shape that was checked, and the methods known not to change points.
        self._shape: Any = None
        self._trusted: set[str] = set()

    def gradient(self, point: Any, terms: Array) -> Any:
        """Return the Riemannian gradient of the sum over some terms."""
        terms = terms.view()
        # Read-only, to protect the schedule.
        terms.flags.writeable = False
        return self._riemannian(point, partial(self.cost.term_gradient, point, terms), "term_gradient")

    def whole_gradient(self, point: Any) -> Any:
        """Return the Riemannian gradient of the sum over all terms."""
        return self._riemannian(point, partial(self.cost.gradient, point), "gradient")

    def _riemannian(self, point: Any, call: Callable[[], Any], what: str) -> Any:
        ambient = call() if what in self._trusted else unchanged(self.cost, point, call, what)
        self._trusted.add(what)
        ambient = ambient_at(self.manifold, point, ambient, self.cost, what, self._shape)
        self._shape = ambient.shape
        return self.manifold.euclidean_to_riemannian_gradient(point, ambient)


class StepRule(ABC):
    """The rule for the direction of a step. Its memory is a named tuple of points, tangent vectors and numbers."""

    def begin(self, look: Look, point: Any) -> Any:
        """Return the memory before the first step."""
        return ()

    @abstractmethod
    def direction(self, look: Look, point: Any, terms: Array, memory: Any, step: int) -> tuple[Any, Any]:
        """Return a tangent vector, of which the step is a negative multiple, and the new memory here."""

    def carried(self, look: Look, start: Any, end: Any, memory: Any) -> Any:
        """Return the memory at the end of a step."""
        return memory


@dataclass(frozen=True)
class Plain(StepRule):
    """The gradient of the step's terms."""

    def direction(self, look: Look, point: Any, terms: Array, memory: Any, step: int) -> tuple[Any, Any]:
        return look.gradient(point, terms), memory


@dataclass(frozen=True)
class ReferenceState:
    """A point, two counters, and the memory of the rule."""

    point: Any
    steps: int = 0
    updates: int = 0
    memory: Any = ()


@dataclass(frozen=True)
class ReferenceEngine(Engine):
    """Steps by a rule and a retraction, for any manifold, any cost, any retraction.

    Attributes
    ----------
    manifold : Manifold
    cost : FiniteSum
    retraction : Retraction
    batch_size : int, optional
        Terms per step, by which schedules are checked.
    rule : StepRule

    References
    ----------
    Bonnabel, Stochastic gradient descent on Riemannian manifolds, IEEE Transactions on Automatic Control 58
    (2013), https://doi.org/10.1109/TAC.2013.2254619.
    """

    manifold: Manifold
    cost: FiniteSum
    retraction: Retraction
    batch_size: int | None = None
    rule: StepRule = Plain()
    _look: Look = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_look", Look(self.manifold, self.cost))

    def load(self, point: Any) -> ReferenceState:
        return ReferenceState(point, memory=self.rule.begin(self._look, point))

    # Overflow is reported once, by the length of the direction.
    @np.errstate(all="ignore")
    def advance(self, state: ReferenceState, schedule: Array, etas: Array) -> ReferenceState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        look, manifold, rule = self._look, self.manifold, self.rule
        point, steps, updates, memory = vars(state).values()
        for terms, eta in zip(schedule, etas, strict=True):
            direction, memory = rule.direction(look, point, terms, memory, steps)
            if not np.isfinite(length := manifold.norm(point, direction)):
                raise diverged(steps, eta)
            steps += 1
            if length > 0.0:
                try:
                    start, point = point, self.retraction(manifold, point, direction, -eta)
                except InvalidInputError as error:  # a step that is too long for the retraction
                    raise lost(steps - 1, error) from error
                memory, updates = rule.carried(look, start, point, memory), updates + 1
        return ReferenceState(point, steps, updates, memory)

    def taken_over(self, state: Any) -> ReferenceState | None:
        # The memory of other rules belongs to the earlier data.
        return state if isinstance(state, ReferenceState) and type(self.rule) is Plain else None

    def moved(self, state: ReferenceState, point: Any) -> ReferenceState:
        memory = self.rule.carried(self._look, state.point, point, state.memory)
        return replace(state, point=point, memory=memory)
