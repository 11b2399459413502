"""The compiled engines of LORETA for bilinear costs, with one or more terms per step, with or without memory."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from rmopt.core.ambient import Array
from rmopt.core.low_rank import LowRankPoint, LowRankTangent, PSDPoint, PSDTangent
from rmopt.core.matrices import sound
from rmopt.core.points import arrays_of
from rmopt.core.transport import ByManifold, ByProjection
from rmopt.costs.bilinear import Bilinear, BilinearSum, TripletSum
from rmopt.costs.losses import Loss, with_slope
from rmopt.engines.base import Supports, checked, diverged, unlike
from rmopt.engines.gauged import SYMMETRIC, Gauge, GaugedEngine, GaugedState
from rmopt.engines.reference import Plain, ReferenceEngine, ReferenceState
from rmopt.engines.rules import AdaGrad, Adam, Memory, Momentum, Weights
from rmopt.errors import InvalidInputError
from rmopt.kernels import batch_sgd, bilinear_sgd, directed_sgd
from rmopt.kernels.memory import with_zeros
from rmopt.kernels.steps import Rows, StepRows
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.retractions import MetricProjection, Orthographic, SecondOrder, SecondOrderPSD

BILINEAR = {
    "cost": (BilinearSum, TripletSum),
    "manifold": (FixedRankEmbedded,),
    "loss": (Loss,),
    "retraction": (SecondOrder, MetricProjection, Orthographic),
}


@dataclass(frozen=True)
class BilinearEngine(GaugedEngine):
    """The same steps as `ReferenceEngine`, in O(nnz·k + k²) each.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.
    """

    supports: ClassVar[Supports] = BILINEAR

    manifold: FixedRankEmbedded
    cost: Bilinear
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", rows_of(self.cost.left, self.cost.right))

    def terms(self, schedule: Array, etas: Array) -> StepRows:
        return StepRows(*self.cost.resolve(schedule.ravel()), etas)

    def loop(self, state: GaugedState, terms: StepRows, *about: Any) -> tuple[int, int]:
        kernel = self.retraction.kernel
        kinds = (None, kernel) if self.gauge is SYMMETRIC else (kernel, None)
        return with_slope(self.cost.loss, bilinear_sgd.run)(
            *kinds, state.factors, state.counters, *self._rows, terms, *about,
        )  # fmt: skip


@dataclass(frozen=True)
class SymmetricBilinearEngine(BilinearEngine):
    """`BilinearEngine` on positive semidefinite matrices, for `SecondOrderPSD`."""

    supports = BILINEAR | {"manifold": (PSDFixedRank,), "retraction": (SecondOrderPSD,)}
    gauge: ClassVar[Gauge] = SYMMETRIC


@dataclass(frozen=True)
class BatchEngine(BilinearEngine):
    """The steps of LORETA-r: those of `ReferenceEngine` on batches of up to k terms, for `SecondOrder`.

    Costs O(nnz·(k + r) + k²r) per step for r ≤ k terms with nnz non-zeros in all (Shalit et al. 2012, Algorithm 3,
    needs O((n + m)(k + r)²)).
    """

    supports = BILINEAR | {"retraction": (SecondOrder,)}

    @classmethod
    def refuses(cls, reference: Any) -> str | None:
        count, k = reference.batch_size, reference.manifold.rank
        fits = 1 < count <= k
        return None if fits else f"a step has {count} terms, and the compiled kernel takes 2 to k = {k}"

    def loop(self, state: GaugedState, terms: StepRows, *about: Any) -> tuple[int, int]:
        return with_slope(self.cost.loss, batch_sgd.run)(
            state.factors, state.counters, *self._rows, terms, self.batch_size, *about,
        )  # fmt: skip


def rows_of(left: Any, right: Any) -> tuple[Rows, Rows]:
    """Return the rows of two sparse arrays (CSR) in the form of the kernels, which write at the given indices."""
    for name, rows in (("left", left), ("right", right)):
        is_csr = sp.issparse(rows) and rows.format == "csr"
        if not is_csr or rows.dtype != float or rows.indices.dtype != np.int32:
            raise InvalidInputError(
                f"{name} is no CSR array of float64 now; make the cost again from the data."
            )
        sound(name, rows)
    return Rows(left.indptr, left.indices, left.data), Rows(right.indptr, right.indices, right.data)


@dataclass
class SpannedState:
    """Both sides, or the single one of a symmetric matrix, the cores between them, squared lengths, and counts."""

    sides: tuple[directed_sgd.Side, ...]
    cores: tuple[Array, Array]
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
    """Momentum, Adam, AdaGrad and batches of up to k terms on sums of bilinear terms, compiled.

    The state stays in the span of some columns and of the rows used since, and steps are done in coordinates
    (`rmopt.kernels.directed_sgd`).
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
        count, k = reference.batch_size, reference.manifold.rank  # type: ignore[attr-defined]
        if count > k:
            return f"a step has {count} terms, and the compiled kernel takes up to k = {k}"
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
        return self._in_full(state).point

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
                # A core is singular, or numbers are no longer finite.
                return False

        if not with_slope(self.cost.loss, loop)(
            self._weights, state.sides, *state.cores, state.squares, state.counts, *self._rows, terms, self.batch_size
        ):  # fmt: skip
            raise diverged(state.steps, etas[state.steps - first])
        return state

    def _in_full(self, state: SpannedState) -> ReferenceState:
        """Return the state in the form of the reference."""
        point, vector = (LowRankPoint, LowRankTangent) if len(state.sides) == 2 else (PSDPoint, PSDTangent)
        left, *right = (side.Z @ (side.K @ side.U) for side in state.sides)
        tails = (side.Z @ (side.K @ side.Up) for side in state.sides)
        remembered = vector(state.cores[1].copy(), *tails) if self._weights.keep else ()
        memory = () if type(self.rule) is Plain else Memory(remembered, float(state.squares[0]))
        return ReferenceState(point(left, state.cores[0].copy(), *right), state.steps, state.updates, memory)

    def _spanned(self, state: ReferenceState) -> SpannedState:
        """Return a state of the reference in new columns, and coordinates in them."""
        remembered, squares = state.memory or ((), 0.0)
        vector = remembered if self._weights.keep else self.manifold.zero_vector(state.point)
        # Points of single precision are moved in double precision, as by all compiled steps.
        point, tails = (
            [np.array(part, dtype=float) for part in arrays_of(one)] for one in (state.point, vector)
        )
        S, M = point.pop(1), tails.pop(0)
        sides = tuple(spanning(*parts, 2 * self.batch_size) for parts in zip(point, tails, strict=True))  # type: ignore[operator]
        counts = state.steps, state.updates
        return SpannedState(sides, (S, M), np.array([squares], dtype=float), np.array(counts))


def spanning(U: Array, Up: Array, rows: int) -> directed_sgd.Side:
    """Return a side in columns that span it and have space for more rows."""
    columns = np.linalg.qr(np.hstack([U, Up]))[0]
    (n, h), k = columns.shape, U.shape[1]
    c = h + max(h, 2 * rows)
    coordinates = (with_zeros(columns.T @ part, (c, k)) for part in (U, Up))
    return directed_sgd.Side(
        with_zeros(columns, (n, c)), with_zeros(np.eye(h), (c, c)), np.array([h]), *coordinates
    )
