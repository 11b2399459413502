"""The compiled twin of steps along the direction of a rule, and AdaGrad on the rows that a step touches."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.points import arrays_of
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.transport import ByManifold, ByProjection
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import with_slope
from rmopt.engines.base import Engine, Supports, checked, diverged, unlike
from rmopt.engines.bilinear import BILINEAR, rows_of
from rmopt.engines.reference import Plain, ReferenceEngine, ReferenceState
from rmopt.engines.rules import AdaGrad, Adam, Memory, Momentum
from rmopt.kernels import directed_sgd
from rmopt.kernels.directed_sgd import Cores, Side, Weights
from rmopt.kernels.steps import Rows, StepRows
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.retractions import SecondOrder, SecondOrderPSD


@dataclass
class SpannedState:
    """Both sides, or the one of a symmetric matrix, what stands between them, squared lengths, and counts."""

    sides: tuple[Side, ...]
    cores: Cores
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
class DirectedEngine(ReferenceEngine):
    """Momentum, Adam, AdaGrad and large batches on sums of bilinear terms, compiled.

    Where steps look at few rows, all stay in the span of some columns and of the rows that were looked at since, and
    steps are done in coordinates (`rmopt.kernels.directed_sgd`).
    """

    supports: ClassVar[Supports] = BILINEAR | {
        "manifold": (FixedRankEmbedded, PSDFixedRank),
        "retraction": (SecondOrder, SecondOrderPSD),
        "rule": (Plain, Momentum, Adam, AdaGrad),
    }

    cost: Bilinear
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    @classmethod
    def refuses(cls, reference: ReferenceEngine) -> str | None:
        return unlike("transport", reference.manifold.default_transport, (ByManifold, ByProjection))

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_rows", rows_of(self.cost.left, self.cost.right))

    @property
    def _weights(self) -> Weights:
        return getattr(self.rule, "weights", Weights())

    def load(self, point: Any) -> SpannedState:  # type: ignore[override]
        return self._spanned(super().load(point))

    def dump(self, state: SpannedState) -> Any:
        return super().dump(self._in_full(state))

    def moved(self, state: SpannedState, point: Any) -> SpannedState:  # type: ignore[override]
        return self._spanned(super().moved(self._in_full(state), point))

    def advance(self, state: SpannedState, schedule: Array, etas: Array) -> SpannedState:  # type: ignore[override]
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        terms = StepRows(*self.cost.resolve(schedule.ravel()), np.ascontiguousarray(etas, dtype=float))
        first = state.steps

        def loop(*arguments: Any) -> bool:
            try:
                return bool(directed_sgd.run(*arguments))
            except (ValueError, np.linalg.LinAlgError):
                # A core is singular, or numbers are not finite any more.
                return False

        if not with_slope(self.cost.loss, loop)(
            self._weights, state.sides, state.cores, state.squares, state.counts, *self._rows, terms, self.batch_size
        ):  # fmt: skip
            raise diverged(state.steps, etas[state.steps - first])
        return state

    def _in_full(self, state: SpannedState) -> ReferenceState:
        """Return the state as the reference has it."""
        sides, cores = state.sides, state.cores
        point, vector = (LowRankPoint, LowRankTangent) if len(sides) == 2 else (PSDPoint, PSDTangent)
        left, *right = (in_full(side, side.U) for side in sides)
        tails = (in_full(side, side.Up) for side in sides)
        remembered = vector(cores.M.copy(), *tails) if self._weights.keep else ()
        memory = () if type(self.rule) is Plain else Memory(remembered, float(state.squares[0]))
        return ReferenceState(point(left, cores.S.copy(), *right), state.steps, state.updates, memory)

    def _spanned(self, state: ReferenceState) -> SpannedState:
        """Return a state of the reference by new columns, and coordinates in them."""
        remembered, squares = state.memory or ((), 0.0)
        vector = remembered if self._weights.keep else self.manifold.zero_vector(state.point)
        # Points of single precision are moved in double precision, as by all compiled steps.
        point, tails = (
            [np.array(part, dtype=float) for part in arrays_of(one)] for one in (state.point, vector)
        )
        S, M = point.pop(1), tails.pop(0)
        # Both rows of a term are looked at on the one side of a symmetric matrix.
        rows = self.batch_size * (3 - len(point))  # type: ignore[operator]
        sides = tuple(
            spanning(U, Up, self._weights.keep > 0.0, rows) for U, Up in zip(point, tails, strict=True)
        )
        counts = np.array([state.steps, state.updates])
        return SpannedState(sides, Cores(S, M), np.array([squares], dtype=float), counts)


def spanning(U: Array, Up: Array, remembers: bool, rows: int) -> Side:
    """Return a side by columns that hold all of it and have room for more rows, or whole where that costs less."""
    held = np.hstack([U, Up]) if remembers else U
    (n, h), k = held.shape, U.shape[1]
    c = h + max(h, 2 * rows)
    # Where a step looks at more rows than the rank, finding coordinates of them costs more than moving all of a side.
    if rows > k or n <= 2 * c:
        return Side(np.zeros((n, 0)), np.zeros((0, 0)), np.array([n]), U, Up)
    Q = np.linalg.qr(held)[0]
    Z, K, coordinates = np.zeros((n, c)), np.zeros((c, c)), np.zeros((2, c, k))
    Z[:, :h], K[:h, :h] = Q, np.eye(h)
    coordinates[:, :h] = [Q.T @ part for part in (U, Up)]
    return Side(Z, K, np.array([h]), *(part.copy() for part in coordinates))


def in_full(side: Side, coordinates: Array) -> Array:
    """Return the rows that coordinates stand for."""
    return side.Z @ (side.K @ coordinates) if len(side.K) else coordinates.copy()


@dataclass(frozen=True)
class RowAdaGrad(Engine):
    """AdaGrad in a flat space, for a cost with `row_gradient`: a step costs what its rows cost."""

    cost: Any
    batch_size: int
    eps: float

    def load(self, point: Array) -> ReferenceState:
        # What is remembered are the sums of the squares.
        return ReferenceState(point.copy(), memory=np.full(point.shape, self.eps))

    # Overflow is reported once, by the gradient.
    @np.errstate(all="ignore")
    def advance(self, state: ReferenceState, schedule: Array, etas: Array) -> ReferenceState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        matrix, squares, updates = state.point, state.memory, state.updates
        for step, (terms, eta) in enumerate(zip(schedule, etas, strict=True), state.steps):
            rows, gradient = self.cost.row_gradient(matrix, terms)
            if not np.isfinite(gradient).all():
                raise diverged(step, eta)
            if gradient.any():
                of_rows = squares[rows] + gradient * gradient
                squares[rows] = of_rows
                matrix[rows] -= eta * (gradient / np.sqrt(of_rows))
                updates += 1
        return replace(state, steps=state.steps + len(schedule), updates=updates)

    def dump(self, state: ReferenceState) -> Array:
        return state.point.copy()

    def moved(self, state: ReferenceState, point: Array) -> ReferenceState:
        return replace(state, point=point.copy())
