"""Compiled engines of stochastic steps that remember earlier gradients, on matrices of one rank."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.points import arrays_of, in_precision, rebuilt
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.transport import ByManifold, ByProjection
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import with_slope
from rmopt.engines.base import Engine, checked, diverged, unlike
from rmopt.engines.bilinear import BilinearEngine, SymmetricBilinearEngine, rows_of
from rmopt.kernels import directed_sgd
from rmopt.kernels.directed_sgd import Cores, Rule, Side
from rmopt.kernels.steps import FINISHED, NOT_FINITE, Rows, StepRows
from rmopt.manifolds import PSDFixedRank
from rmopt.solvers.sgd_rules import (
    Accumulating,
    Adaptive,
    DirectedEngine,
    DirectedState,
    Known,
    Moments,
    Momentum,
    Plain,
    Speed,
    Squares,
    StepRule,
    VarianceReduced,
)


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

    rules: ClassVar[tuple[type[StepRule], ...]] = (Plain, Momentum, Adaptive, Accumulating)

    def load(self, point: Any) -> SpannedState:
        return self._spanned(self.reference.load(point))

    def advance(self, state: SpannedState, schedule: Array, etas: Array) -> SpannedState:
        reference, terms = self.reference, self._terms(schedule, etas)
        average_from = -1 if reference.average_from is None else reference.average_from
        # That of the mean is not looked at where there is none, and may then be one that has no kernel.
        mean = reference.retraction if average_from < 0 else reference.manifold.default_retraction
        kinds = reference.retraction.kernel, mean.kernel
        self._finished(
            directed_sgd.run, state.counts, etas, constants(reference.rule), kinds, state.sides, state.cores,
            state.squares, state.counts, *self._rows, terms, reference.batch_size, average_from, 0,
        )  # fmt: skip
        return state

    def dump(self, state: SpannedState) -> Any:
        return self.reference.dump(self._in_full(state))

    def moved(self, state: SpannedState, point: Any) -> SpannedState:
        return self._spanned(self.reference.moved(self._in_full(state), point))

    def _in_full(self, state: SpannedState) -> DirectedState:
        """Return the state as the reference has it."""
        cores, rule = state.cores, self.reference.rule
        symmetric = len(state.sides) == 1
        points, vectors = ((LowRankPoint, LowRankTangent), (PSDPoint, PSDTangent))[symmetric]
        left, *right = (in_full(side, side.U) for side in state.sides)
        mean_left, *mean_right = (in_full(side, side.mean) for side in state.sides)
        memory: Any = vectors(cores.M.copy(), *(in_full(side, side.Up) for side in state.sides))
        kept, most = state.squares
        if isinstance(rule, Momentum):
            memory = Speed(memory)
        elif isinstance(rule, Adaptive):
            memory = Moments(memory, kept, most)
        else:
            memory = Squares(kept) if isinstance(rule, Accumulating) else ()
        point, mean = points(left, cores.S.copy(), *right), points(mean_left, cores.mean.copy(), *mean_right)
        steps, updates, averaged = map(int, state.counts)
        return DirectedState(point, memory, mean, averaged, steps, updates)

    def _spanned(self, state: DirectedState) -> SpannedState:
        """Return a state of the reference by new columns, and coordinates in them."""
        memory = state.memory
        vector, squares = self.reference.manifold.zero_vector(state.point), (0.0, 0.0)
        if isinstance(memory, Speed):
            vector = memory.speed
        elif isinstance(memory, Moments):
            vector, squares = memory.mean, (memory.squares, memory.largest)
        elif isinstance(memory, Squares):
            squares = memory.squares, memory.squares
        # Points of single precision are moved in double precision, as by all compiled steps.
        point, vector, mean = (in_precision(one, float) for one in (state.point, vector, state.average))
        left, S, *right = arrays_of(point)
        mean_left, mean_S, *mean_right = arrays_of(mean)
        M, *outside = arrays_of(vector)
        remembers = constants(self.reference.rule).keep > 0.0
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

    rules: ClassVar[tuple[type[StepRule], ...]] = (VarianceReduced,)

    @classmethod
    def refusal(cls, reference: DirectedEngine) -> str | None:
        if reference.average_from is not None:
            return "the mean of points is not compiled where variance is reduced"
        return super().refusal(reference)

    def load(self, point: Any) -> DirectedState:
        return self.reference.load(in_precision(point, float))

    def advance(self, state: DirectedState, schedule: Array, etas: Array) -> DirectedState:
        period, done = cast(VarianceReduced, self.reference.rule).period, 0
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


def constants(rule: StepRule) -> Rule:
    """Return a rule in the form of the kernel."""
    if isinstance(rule, Momentum):
        return Rule(rule.share, 1.0, 0.0, 0.0, 0.0, False, False)
    if isinstance(rule, Adaptive):
        first, second = rule.betas
        return Rule(first, 1.0 - first, second, 1.0 - second, rule.eps, rule.amsgrad, True)
    return Rule(0.0, 1.0, 1.0, float(isinstance(rule, Accumulating)), 0.0, False, False)


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
