"""The compiled engine of stochastic steps that remember earlier gradients, on matrices of one rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.transport import ByManifold, ByProjection
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines.base import Engine, checked, diverged, unlike
from rmopt.engines.bilinear import BILINEAR, loop_of, rows_of
from rmopt.kernels import directed_sgd
from rmopt.kernels.directed_sgd import Matrices, Rule, Span
from rmopt.kernels.steps import FINISHED, Rows, StepRows
from rmopt.solvers.sgd_rules import (
    Accumulating,
    Adaptive,
    DirectedEngine,
    DirectedState,
    Moments,
    Momentum,
    Plain,
    Speed,
    Squares,
    StepRule,
)

# Steps of more terms are dominated by the products of their rows with each other.
MOST_TERMS = 50


@dataclass
class SpannedState:
    """The columns of both sides, matrices in their coordinates, squared lengths, and counts."""

    spans: Any
    matrices: Any
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
class SpannedEngine(Engine):
    """The steps of a `DirectedEngine` on sums of bilinear terms, compiled.

    Momentum, Adam, AdaGrad and means of points move all of U and V at every step. All stay in the span of some
    columns and of the rows that were looked at since: steps are done in coordinates (`rmopt.kernels.directed_sgd`).

    Attributes
    ----------
    reference : DirectedEngine
        What the steps are.
    """

    reference: DirectedEngine
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    @staticmethod
    def refusal(reference: DirectedEngine) -> str | None:
        """Return why the steps of an engine are not compiled, or None."""
        manifold, cost, average = reference.manifold, reference.cost, reference.average_from is not None
        parts = [
            ("cost", cost, BILINEAR["cost"]), ("manifold", manifold, BILINEAR["manifold"]),
            ("loss", getattr(cost, "loss", None), (Loss,)),
            ("retraction", reference.retraction, BILINEAR["retraction"]),
            ("transport", manifold.default_transport, (ByManifold, ByProjection)),
            ("rule", reference.rule, (Plain, Momentum, Adaptive, Accumulating)),
        ] + average * [("retraction", manifold.default_retraction, BILINEAR["retraction"])]  # fmt: skip
        reasons = (unlike(*part) for part in parts)
        if (reason := next(filter(None, reasons), None)) is not None:
            return reason
        many = reference.batch_size > MOST_TERMS
        return f"a step looks at {reference.batch_size} terms, more than {MOST_TERMS}" if many else None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", rows_of(self._cost.left, self._cost.right))

    @property
    def _cost(self) -> Bilinear:
        return cast(Bilinear, self.reference.cost)

    @property
    def _retractions(self) -> tuple[Any, Any]:
        """Those of steps and of the mean; the latter is not looked at where there is no mean."""
        steps, mean = self.reference.retraction, self.reference.manifold.default_retraction
        return steps, steps if self.reference.average_from is None else mean

    def load(self, point: LowRankPoint) -> SpannedState:
        return self._spanned(self.reference.load(point))

    def advance(self, state: SpannedState, schedule: Array, etas: Array) -> SpannedState:
        reference, cost = self.reference, self._cost
        schedule = checked(schedule, etas, cost.term_ranges, reference.batch_size)
        etas = np.ascontiguousarray(etas, dtype=float)
        left, plus, minus, targets = cost.resolve(schedule.ravel())
        terms = StepRows(left, plus, minus, targets, etas)
        loop, code = loop_of(directed_sgd, cost.loss)
        kinds = tuple(retraction.kernel for retraction in self._retractions)
        average_from = -1 if reference.average_from is None else reference.average_from
        first = state.steps
        try:
            position, reason = loop(
                constants(reference.rule), kinds, code, state.spans, state.matrices, state.squares, state.counts,
                *self._rows, terms, reference.batch_size, average_from, 0,
            )  # fmt: skip
        except (ValueError, np.linalg.LinAlgError) as error:
            # A core is singular, or numbers are not finite any more.
            raise diverged(state.steps, etas[max(state.steps - first - 1, 0)]) from error
        if reason != FINISHED:
            raise diverged(state.steps, etas[position])
        return state

    def dump(self, state: SpannedState) -> LowRankPoint:
        return cast(LowRankPoint, self.reference.dump(self._in_full(state)))

    def moved(self, state: SpannedState, point: LowRankPoint) -> SpannedState:
        return self._spanned(self.reference.moved(self._in_full(state), point))

    def _in_full(self, state: SpannedState) -> DirectedState:
        """Return the state as the reference has it."""
        left, right = (span.Z @ span.K for span in state.spans)
        one, rule = state.matrices, self.reference.rule
        memory: Any = LowRankTangent(one.M.copy(), left @ one.Up, right @ one.Vp)
        kept, most = state.squares
        if isinstance(rule, Momentum):
            memory = Speed(memory)
        elif isinstance(rule, Adaptive):
            memory = Moments(memory, kept, most)
        else:
            memory = Squares(kept) if isinstance(rule, Accumulating) else ()
        point = LowRankPoint(left @ one.U, one.S.copy(), right @ one.V)
        mean = LowRankPoint(left @ one.mean_U, one.mean_S.copy(), right @ one.mean_V)
        steps, updates, averaged = map(int, state.counts)
        return DirectedState(point, memory, mean, averaged, steps, updates)

    def _spanned(self, state: DirectedState) -> SpannedState:
        """Return a state of the reference by new columns, and coordinates in them."""
        point, memory, mean = state.point, state.memory, state.average
        none = self.reference.manifold.zero_vector(point)
        vector, squares = none, (0.0, 0.0)
        if isinstance(memory, Speed):
            vector = memory.speed
        elif isinstance(memory, Moments):
            vector, squares = memory.mean, (memory.squares, memory.largest)
        elif isinstance(memory, Squares):
            squares = memory.squares, memory.squares
        remembers = constants(self.reference.rule).keep > 0.0
        averages = self.reference.average_from is not None
        sides = [
            spanning(U, Up, mean_U, remembers, averages, self.reference.batch_size)
            for U, Up, mean_U in ((point.U, vector.Up, mean.U), (point.V, vector.Vp, mean.V))
        ]
        (U, Up, mean_U), (V, Vp, mean_V) = (parts for _, parts in sides)
        squares_kept = np.array(squares, dtype=float)
        # Points of single precision are moved in double precision, as by all compiled steps.
        S, M, mean_S = (np.array(part, dtype=float) for part in (point.S, vector.M, mean.S))
        matrices = Matrices(U, S, V, M, Up, Vp, mean_U, mean_S, mean_V)
        counts = np.array([state.steps, state.updates, state.averaged], dtype=np.int64)
        return SpannedState(tuple(span for span, _ in sides), matrices, squares_kept, counts)


def constants(rule: StepRule) -> Rule:
    """Return a rule in the form of the kernel."""
    if isinstance(rule, Momentum):
        return Rule(rule.share, 1.0, 0.0, 0.0, 0.0, False, False)
    if isinstance(rule, Adaptive):
        first, second = rule.betas
        return Rule(first, 1.0 - first, second, 1.0 - second, rule.eps, rule.amsgrad, True)
    return Rule(0.0, 1.0, 1.0, float(isinstance(rule, Accumulating)), 0.0, False, False)


def spanning(
    U: Array, Up: Array, mean_U: Array, remembers: bool, averages: bool, batch_size: int
) -> tuple[Span, tuple[Array, Array, Array]]:
    """Return columns that hold those of a side, with room for more, and coordinates in them."""
    held = np.hstack([U, *([Up] * remembers), *([mean_U] * averages)])
    n, h = held.shape
    c = min(n, h + max(h, 2 * batch_size))
    # Of a short side all of the space.
    Q = np.eye(n) if c == n else np.linalg.qr(held)[0]
    live = Q.shape[1]
    Z, K, coordinates = np.zeros((n, c)), np.zeros((c, c)), np.zeros((3, c, U.shape[1]))
    Z[:, :live], K[:live, :live] = Q, np.eye(live)
    coordinates[:, :live] = [Q.T @ one for one in (U, Up, mean_U)]
    first, second, third = (one.copy() for one in coordinates)
    return Span(Z, K, np.array([live])), (first, second, third)
