"""The engines of steps along the direction of a rule: the definition, and compiled twins on matrices of one rank."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.cost import FiniteSum
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.manifold import FixedRankManifold, Manifold
from rmopt.core.points import arrays_of, in_precision, rebuilt
from rmopt.core.product import Parts
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByManifold, ByProjection
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import with_slope
from rmopt.engines.base import Engine, checked, diverged, unlike
from rmopt.engines.bilinear import BilinearEngine, SymmetricBilinearEngine, rows_of
from rmopt.engines.reference import Look
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import directed_sgd
from rmopt.kernels.directed_sgd import Cores, Side
from rmopt.kernels.steps import FINISHED, NOT_FINITE, Rows, StepRows
from rmopt.manifolds import Power, Product, PSDFixedRank
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.solvers.stochastic.rules import (
    SRG,
    SVRG,
    AdaGrad,
    Adam,
    Known,
    Memory,
    Momentum,
    Plain,
    StepRule,
    VarianceReduced,
    WeightedRule,
)


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


@dataclass
class SpannedState:
    """Both sides, or the one of a symmetric matrix, what stands between them, squared lengths, and counts."""

    sides: Any
    cores: Any
    squares: Array
    counts: Array

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.counts[0])

    @property
    def updates(self) -> int:
        """Number of steps that moved the point."""
        return int(self.counts[1])


@dataclass(frozen=True)
class CompiledEngine(Engine):
    """The steps of a `DirectedEngine`, its reference, on sums of bilinear terms, compiled."""

    reference: DirectedEngine
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    rules: ClassVar[tuple[type[StepRule], ...]]

    @classmethod
    def refusal(cls, reference: DirectedEngine) -> str | None:
        """Return why the steps of an engine are not compiled, or None."""
        manifold, cost, average = reference.manifold, reference.cost, reference.average_from is not None
        twins = BilinearEngine.supports, SymmetricBilinearEngine.supports
        of_kind = twins[isinstance(manifold, PSDFixedRank)]
        parts = [
            ("cost", cost, of_kind["cost"]), ("manifold", manifold, twins[0]["manifold"] + twins[1]["manifold"]),
            ("loss", getattr(cost, "loss", None), of_kind["loss"]),
            ("retraction", reference.retraction, of_kind["retraction"]),
            ("transport", manifold.default_transport, (ByManifold, ByProjection)),
            ("rule", reference.rule, cls.rules),
        ] + average * [("retraction", manifold.default_retraction, of_kind["retraction"])]  # fmt: skip
        return next(filter(None, (unlike(*part) for part in parts)), None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", rows_of(self._cost.left, self._cost.right))

    @property
    def _cost(self) -> Bilinear:
        return cast(Bilinear, self.reference.cost)

    def _terms(self, schedule: Array, etas: Array) -> StepRows:
        """Return what the steps look at, checked."""
        schedule = checked(schedule, etas, self._cost.term_ranges, self.reference.batch_size)
        resolved = self._cost.resolve(schedule.ravel())
        return StepRows(*resolved, np.ascontiguousarray(etas, dtype=float))

    def _finished(self, run: Callable[..., Any], counts: Array, etas: Array, *arguments: Any) -> None:
        """Do steps by a compiled loop, which counts them."""
        first = counts[0]

        def loop(*given: Any) -> tuple[int, int]:
            try:
                return cast(tuple[int, int], run(*given))
            except (ValueError, np.linalg.LinAlgError):
                # A core is singular, or numbers are not finite any more.
                return max(counts[0] - first - 1, 0), NOT_FINITE

        position, reason = with_slope(self._cost.loss, loop)(*arguments)
        if reason != FINISHED:
            raise diverged(int(counts[0]), etas[position])


@dataclass(frozen=True)
class SpannedEngine(CompiledEngine):
    """Momentum, Adam, AdaGrad and means of points, which move all of U and V at every step; and plain large batches.

    Where steps look at few rows, all stay in the span of some columns and of the rows that were looked at since, and
    steps are done in coordinates (`rmopt.kernels.directed_sgd`).
    """

    rules: ClassVar[tuple[type[StepRule], ...]] = (Plain, Momentum, Adam, AdaGrad)

    @property
    def _weights(self) -> directed_sgd.Weights:
        return cast(WeightedRule, self.reference.rule).weights

    def load(self, point: Any) -> SpannedState:
        return self._spanned(self.reference.load(point))

    def advance(self, state: SpannedState, schedule: Array, etas: Array) -> SpannedState:
        reference, terms = self.reference, self._terms(schedule, etas)
        average_from = -1 if reference.average_from is None else reference.average_from
        # That of the mean is not looked at where there is none, and may then be one that has no kernel.
        mean = reference.retraction if average_from < 0 else reference.manifold.default_retraction
        kinds = reference.retraction.kernel, mean.kernel
        self._finished(
            directed_sgd.run, state.counts, etas, self._weights, kinds, state.sides, state.cores,
            state.squares, state.counts, *self._rows, terms, reference.batch_size, average_from, 0,
        )  # fmt: skip
        return state

    def dump(self, state: SpannedState) -> Any:
        return self.reference.dump(self._in_full(state))

    def moved(self, state: SpannedState, point: Any) -> SpannedState:
        return self._spanned(self.reference.moved(self._in_full(state), point))

    def _in_full(self, state: SpannedState) -> DirectedState:
        """Return the state as the reference has it."""
        cores, symmetric = state.cores, len(state.sides) == 1
        points, vectors = ((LowRankPoint, LowRankTangent), (PSDPoint, PSDTangent))[symmetric]
        left, *right = (in_full(side, side.U) for side in state.sides)
        mean_left, *mean_right = (in_full(side, side.mean) for side in state.sides)
        vector = vectors(cores.M.copy(), *(in_full(side, side.Up) for side in state.sides))
        memory = Memory(vector if self._weights.keep else (), *state.squares)
        point, mean = points(left, cores.S.copy(), *right), points(mean_left, cores.mean.copy(), *mean_right)
        steps, updates, averaged = map(int, state.counts)
        return DirectedState(point, memory, mean, averaged, steps, updates)

    def _spanned(self, state: DirectedState) -> SpannedState:
        """Return a state of the reference by new columns, and coordinates in them."""
        vector, *squares = state.memory
        remembers = self._weights.keep > 0.0
        vector = vector if remembers else self.reference.manifold.zero_vector(state.point)
        # Points of single precision are moved in double precision, as by all compiled steps.
        point, vector, mean = (in_precision(one, float) for one in (state.point, vector, state.average))
        left, S, *right = arrays_of(point)
        mean_left, mean_S, *mean_right = arrays_of(mean)
        M, *outside = arrays_of(vector)
        averages = self.reference.average_from is not None
        # Both rows of a term are looked at on the one side of a symmetric matrix.
        rows = self.reference.batch_size * (1 if right else 2)
        sides = tuple(
            spanning(U, Up, mean_U, remembers, averages, rows)
            for U, Up, mean_U in zip([left, *right], outside, [mean_left, *mean_right], strict=True)
        )
        counts = np.array([state.steps, state.updates, state.averaged], dtype=np.int64)
        cores = Cores(S.copy(), M.copy(), mean_S.copy())
        return SpannedState(sides, cores, np.array(squares, dtype=float), counts)


@dataclass(frozen=True)
class ReducedEngine(CompiledEngine):
    """Steps with reduced variance; whole gradients are those of the cost (`rmopt.kernels.directed_sgd`)."""

    rules: ClassVar[tuple[type[StepRule], ...]] = (SVRG, SRG)

    @classmethod
    def refusal(cls, reference: DirectedEngine) -> str | None:
        if reference.average_from is not None:
            return "the mean of points is not compiled where variance is reduced"
        return super().refusal(reference)

    def load(self, point: Any) -> DirectedState:
        return self.reference.load(in_precision(point, float))

    def advance(self, state: DirectedState, schedule: Array, etas: Array) -> DirectedState:
        rule = cast(VarianceReduced, self.reference.rule)
        period, done = rule.steps_between(self._cost, self.reference.batch_size), 0
        while done < len(etas):
            since = state.steps % period
            some = slice(done, done + (period - since if since else 1))
            by = self._between if since else self.reference.advance
            state, done = by(state, schedule[some], etas[some]), some.stop
        return state

    def _between(self, state: DirectedState, schedule: Array, etas: Array) -> DirectedState:
        """Return the state after steps without a whole gradient."""
        reference, rule = self.reference, cast(VarianceReduced, self.reference.rule)
        terms = self._terms(schedule, etas)
        symmetric = isinstance(reference.manifold, PSDFixedRank)
        given = state.point, state.memory.point, state.memory.gradient
        point, base, (M, *outside) = ([part.copy() for part in arrays_of(one)] for one in given)
        # One side stands for both.
        sides = [(one[0], one[1], one[0 if symmetric else 2]) for one in (point, base)]
        known = directed_sgd.Known(*sides[1], M, outside[0], outside[-1])
        counts = np.array([state.steps, state.updates])
        self._finished(
            directed_sgd.run_reduced, counts, etas, rule.recursive, reference.retraction.kernel, sides[0], known,
            symmetric, counts, *self._rows, terms, reference.batch_size,
        )  # fmt: skip
        reached, there, gradient = map(rebuilt, given, (point, base, [M, *outside]))
        steps, updates = map(int, counts)
        memory = Known(there, gradient)
        return DirectedState(reached, memory, state.average, 0, steps, updates)

    def dump(self, state: DirectedState) -> Any:
        return self.reference.dump(state)

    def moved(self, state: DirectedState, point: Any) -> DirectedState:
        return self.reference.moved(state, in_precision(point, float))


def spanning(U: Array, Up: Array, mean: Array, remembers: bool, averages: bool, rows: int) -> Side:
    """Return a side by columns that hold all of it and have room for more rows, or whole where that costs less."""
    held = np.hstack([U, *([Up] * remembers), *([mean] * averages)])
    (n, h), k = held.shape, U.shape[1]
    c = h + max(h, 2 * rows)
    # Where a step looks at more rows than the rank, finding coordinates of them costs more than moving all of a side.
    if rows > k or n <= 2 * c:
        return Side(np.zeros((n, 0)), np.zeros((0, 0)), np.array([n]), U.copy(), Up.copy(), mean.copy())
    Q = np.linalg.qr(held)[0]
    Z, K, coordinates = np.zeros((n, c)), np.zeros((c, c)), np.zeros((3, c, k))
    Z[:, :h], K[:h, :h] = Q, np.eye(h)
    coordinates[:, :h] = [Q.T @ one for one in (U, Up, mean)]
    return Side(Z, K, np.array([h]), *(one.copy() for one in coordinates))


def in_full(side: Side, coordinates: Array) -> Array:
    """Return the rows that coordinates stand for."""
    return side.Z @ (side.K @ coordinates) if len(side.K) else coordinates.copy()


@dataclass(frozen=True)
class RowAdaGrad(Engine):
    """AdaGrad in a flat space, for a cost with `row_gradient`: a step costs what its rows cost."""

    cost: Any
    batch_size: int
    eps: float

    def load(self, point: Array) -> DirectedState:
        # What is remembered are the sums of the squares.
        return DirectedState(point.copy(), np.full(point.shape, self.eps), ())

    # Overflow is reported once, by the gradient.
    @np.errstate(all="ignore")
    def advance(self, state: DirectedState, schedule: Array, etas: Array) -> DirectedState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        matrix, squares, updates = state.point, state.memory, state.updates
        for number, (terms, eta) in enumerate(zip(schedule, etas, strict=True)):
            rows, gradient = self.cost.row_gradient(matrix, terms)
            # Rows that come twice would be lost once. Most are in order, and that is soon seen.
            different = len(rows) if np.less(rows[:-1], rows[1:]).all() else len(np.unique(rows))
            if different < len(rows) or gradient.shape != (len(rows), matrix.shape[1]):
                raise InvalidInputError(
                    "row_gradient must return row numbers, each once, and a gradient of "
                    f"{matrix.shape[1]} columns; got {len(rows)} numbers, {different} of them different, and a "
                    f"gradient of shape {gradient.shape}."
                )
            if not np.isfinite(gradient).all():
                raise diverged(state.steps + number, eta)
            if gradient.any():
                of_rows = squares[rows] + gradient * gradient
                squares[rows] = of_rows
                matrix[rows] -= eta * (gradient / np.sqrt(of_rows))
                updates += 1
        return replace(state, steps=state.steps + len(schedule), updates=updates)

    def dump(self, state: DirectedState) -> Array:
        return state.point.copy()

    def moved(self, state: DirectedState, point: Array) -> DirectedState:
        return replace(state, point=point.copy())
