"""Stochastic steps along what is remembered of earlier gradients: momentum, Adam, variance reduction, averages."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.cost import FiniteSum
from rmopt.core.manifold import FixedRankManifold, Manifold
from rmopt.core.product import Parts
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine, checked, diverged
from rmopt.engines.reference import Look
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds import Euclidean, Power, Product
from rmopt.manifolds.arrays import ArrayManifold


class StepRule(ABC):
    """What direction a step takes. What it remembers is a named tuple of points, tangent vectors and numbers."""

    def begin(self, look: Look, point: Any) -> Any:
        """Return what is remembered before the first step."""
        return ()

    @abstractmethod
    def direction(self, look: Look, point: Any, terms: Array, memory: Any, step: int) -> tuple[Any, Any]:
        """Return a tangent vector, of which the step is a negative multiple, and what is remembered of it here."""

    def carried(self, look: Look, start: Any, end: Any, memory: Any) -> Any:
        """Return what is remembered at the end of a step."""
        return memory


class Plain(StepRule):
    """The gradient of the step's terms."""

    def direction(self, look: Look, point: Any, terms: Array, memory: Any, step: int) -> tuple[Any, Any]:
        return look.gradient(point, terms), memory


class Speed(NamedTuple):
    """The sum of earlier gradients, each of them weighted by its age."""

    speed: Any


@dataclass(frozen=True)
class Momentum(StepRule):
    """The gradient, and a share of the direction before (Polyak 1964)."""

    share: float

    def begin(self, look: Look, point: Any) -> Speed:
        return Speed(look.manifold.zero_vector(point))

    def direction(self, look: Look, point: Any, terms: Array, memory: Speed, step: int) -> tuple[Any, Speed]:
        speed = memory.speed * self.share + look.gradient(point, terms)
        return speed, Speed(speed)

    def carried(self, look: Look, start: Any, end: Any, memory: Speed) -> Speed:
        return Speed(look.carry(start, end, memory.speed))


class Moments(NamedTuple):
    """The mean of earlier gradients, that of their squares, and the largest one of these."""

    mean: Any
    squares: Any
    largest: Any


@dataclass(frozen=True)
class Adaptive(StepRule):
    """Adam and AMSGrad on manifolds (Bécigneul and Ganea 2019).

    Squares are those of the lengths in each factor of a product; in a flat space they are those of each entry.
    """

    betas: tuple[float, float]
    eps: float
    amsgrad: bool

    def begin(self, look: Look, point: Any) -> Moments:
        zero = look.manifold.zero_vector(point)
        none = _squares(look.manifold, point, zero)
        return Moments(zero, none, none)

    def direction(
        self, look: Look, point: Any, terms: Array, memory: Moments, step: int
    ) -> tuple[Any, Moments]:
        gradient, (first, second) = look.gradient(point, terms), self.betas
        mean = memory.mean * first + gradient * (1.0 - first)
        squares = memory.squares * second + _squares(look.manifold, point, gradient) * (1.0 - second)
        largest = _each(np.maximum, memory.largest, squares) if self.amsgrad else squares
        # Both means begin at zero; this takes out what they lack for it.
        early, others = 1.0 - first ** (step + 1), 1.0 - second ** (step + 1)
        corrected = _divided(mean * (1.0 / early), largest * (1.0 / others), self.eps)
        return corrected, Moments(mean, squares, largest)

    def carried(self, look: Look, start: Any, end: Any, memory: Moments) -> Moments:
        return memory._replace(mean=look.carry(start, end, memory.mean))


class Squares(NamedTuple):
    """The sum of the squares of earlier gradients."""

    squares: Any


@dataclass(frozen=True)
class Accumulating(StepRule):
    """AdaGrad (Duchi, Hazan and Singer 2011), with squares as in `Adaptive`, whose sums begin at `eps`."""

    eps: float

    def begin(self, look: Look, point: Any) -> Squares:
        none = _squares(look.manifold, point, look.manifold.zero_vector(point))
        return Squares(_each(lambda part: part + self.eps, none))

    def direction(
        self, look: Look, point: Any, terms: Array, memory: Squares, step: int
    ) -> tuple[Any, Squares]:
        gradient = look.gradient(point, terms)
        squares = memory.squares + _squares(look.manifold, point, gradient)
        return _divided(gradient, squares, 0.0), Squares(squares)


def _squares(manifold: Any, point: Any, vector: Any) -> Any:
    # Subclasses may have another metric, or be quotients, where entries mean nothing.
    if type(manifold) in (Product, Power):
        return Parts(
            [_squares(*of_factor) for of_factor in zip(manifold.factors, point, vector, strict=True)]
        )
    if type(manifold) is Euclidean:
        return vector * vector
    return np.float64(manifold.inner_product(point, vector, vector))


def _each(function: Callable[..., Any], *things: Any) -> Any:
    """Return what a function makes of each factor, where the last thing has some."""
    if isinstance(things[-1], Parts):
        return Parts([_each(function, *parts) for parts in zip(*things, strict=True)])
    return function(*things)


def _divided(mean: Any, squares: Any, eps: float) -> Any:
    return _each(lambda one, square: one * (1.0 / (np.sqrt(square) + eps)), mean, squares)


class Known(NamedTuple):
    """A point and an estimate of the whole gradient there, divided by the number of steps in a pass."""

    point: Any
    gradient: Any


@dataclass(frozen=True)
class VarianceReduced(StepRule):
    """The gradient of some terms, corrected by what these terms say where the whole gradient is known.

    Every `period` steps the whole gradient is taken. Between them it is known at the point where it was taken (SVRG:
    Zhang, Reddi and Sra 2016), or estimated from step to step (SRG: Kasai, Sato and Mishra 2018). `share` is that of
    a step's terms in all, so that a step is as long as one of `Plain`.
    """

    period: int
    share: float
    recursive: bool

    def begin(self, look: Look, point: Any) -> Known:
        return Known(point, look.manifold.zero_vector(point))

    def direction(self, look: Look, point: Any, terms: Array, memory: Known, step: int) -> tuple[Any, Known]:
        if step % self.period == 0:
            gradient = look.whole_gradient(point) * self.share
            return gradient, Known(point, gradient)
        there = look.gradient(memory.point, terms) - memory.gradient
        gradient = look.gradient(point, terms) - look.carry(memory.point, point, there)
        return gradient, Known(point, gradient) if self.recursive else memory


@dataclass(frozen=True)
class DirectedState:
    """A point, what the rule remembers, the mean of the points so far, and counters."""

    point: Any
    memory: Any
    average: Any
    averaged: int = 0
    steps: int = 0
    updates: int = 0


@dataclass(frozen=True)
class DirectedEngine(Engine):
    """Steps along the direction of a rule, on any manifold, for any sum of terms.

    From step `average_from` on points are averaged (Tripuraneni et al. 2018): the point of the run is their mean.
    """

    manifold: Manifold
    cost: FiniteSum
    retraction: Retraction
    batch_size: int
    rule: StepRule
    average_from: int | None = None
    _look: Look = field(init=False, repr=False)
    _towards: Callable[[Any, Any], Any] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_look", Look(self.manifold, self.cost))
        object.__setattr__(self, "_towards", None if self.average_from is None else towards(self.manifold))

    def load(self, point: Any) -> DirectedState:
        return DirectedState(point, self.rule.begin(self._look, point), point)

    # Overflow is reported once, by the length of the direction.
    @np.errstate(all="ignore")
    def advance(self, state: DirectedState, schedule: Array, etas: Array) -> DirectedState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        look, manifold, rule = self._look, self.manifold, self.rule
        point, memory, average, averaged, steps, updates = vars(state).values()
        for terms, eta in zip(schedule, etas, strict=True):
            direction, memory = rule.direction(look, point, terms, memory, steps)
            length = manifold.norm(point, direction)
            if not np.isfinite(length):
                raise diverged(steps, eta)
            steps += 1
            if length > 0.0:
                start, point = point, self.retraction(manifold, point, direction, -eta)
                memory, updates = rule.carried(look, start, point, memory), updates + 1
            if self._towards is not None and steps > (self.average_from or 0):
                averaged += 1
                aside = self._towards(average, point) * (1.0 / averaged)
                # The first point is their mean.
                average = point if averaged == 1 else manifold.retraction(average, aside)
        return DirectedState(point, memory, average, averaged, steps, updates)

    def dump(self, state: DirectedState) -> Any:
        return state.average if state.averaged else state.point

    def moved(self, state: DirectedState, point: Any) -> DirectedState:
        if self._towards is not None:
            return super().moved(state, point)
        memory = self.rule.carried(self._look, state.point, point, state.memory)
        return replace(state, point=point, memory=memory)


def towards(manifold: Manifold) -> Callable[[Any, Any], Any]:
    """Return a map of two points to a tangent vector at the first that leads near the other: `log`, or a projection.

    Raises
    ------
    MissingCapabilityError
        On manifolds that have no logarithm and are no submanifolds of a space of matrices.
    """
    if manifold.knows("log"):
        return manifold.log
    if type(manifold) in (Product, Power):
        each = [towards(factor) for factor in manifold.factors]  # type: ignore[attr-defined]
        return lambda a, b: Parts([one(*pair) for one, *pair in zip(each, a, b, strict=True)])
    if not isinstance(manifold, FixedRankManifold | ArrayManifold):
        raise MissingCapabilityError(
            f"the points of {manifold} cannot be averaged, for it has no logarithm (`log`); leave out `average`."
        )
    return lambda a, b: manifold.projection(a, manifold.embed_point(b) - manifold.embed_point(a))  # type: ignore[operator]


@dataclass(frozen=True)
class RowState:
    """A matrix, the sums of the squares of its gradients, and counters."""

    matrix: Array
    squares: Array
    steps: int = 0
    updates: int = 0


@dataclass(frozen=True)
class RowAdaGrad(Engine):
    """AdaGrad in a flat space, for a cost with `row_gradient`: a step costs what its rows cost."""

    cost: Any
    batch_size: int
    eps: float

    def load(self, point: Array) -> RowState:
        return RowState(point.copy(), np.full(point.shape, self.eps))

    # Overflow is reported once, by the gradient.
    @np.errstate(all="ignore")
    def advance(self, state: RowState, schedule: Array, etas: Array) -> RowState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        matrix, squares, updates = state.matrix, state.squares, state.updates
        for number, (terms, eta) in enumerate(zip(schedule, etas, strict=True)):
            rows, gradient = self.cost.row_gradient(matrix, terms)
            _hold_rows(rows, gradient, matrix)
            if not np.isfinite(gradient).all():
                raise diverged(state.steps + number, eta)
            if gradient.any():
                of_rows = squares[rows] + gradient * gradient
                squares[rows] = of_rows
                matrix[rows] -= eta * (gradient / np.sqrt(of_rows))
                updates += 1
        return replace(state, steps=state.steps + len(schedule), updates=updates)

    def dump(self, state: RowState) -> Array:
        return state.matrix.copy()

    def moved(self, state: RowState, point: Array) -> RowState:
        return replace(state, matrix=point.copy())


def _hold_rows(rows: Array, gradient: Array, matrix: Array) -> None:
    """Refuse rows that come twice, of which one would be lost, and gradients of other rows."""
    # Most are in order, and that is soon seen.
    different = len(rows) if np.less(rows[:-1], rows[1:]).all() else len(np.unique(rows))
    if different < len(rows) or gradient.shape != (len(rows), matrix.shape[1]):
        raise InvalidInputError(
            f"row_gradient must return row numbers, each once, and a gradient of {matrix.shape[1]} columns; got "
            f"{len(rows)} numbers, {different} of them different, and a gradient of shape {gradient.shape}."
        )
