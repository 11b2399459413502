"""The compiled twin of steps along the direction of a rule, and AdaGrad on the rows that a step touches."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.points import arrays_of, rebuilt
from rmopt.core.transport import ByManifold, ByProjection
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import with_slope
from rmopt.engines.base import Engine, Supports, checked, diverged, unlike
from rmopt.engines.bilinear import BILINEAR, rows_of
from rmopt.engines.reference import Plain, ReferenceEngine, ReferenceState
from rmopt.engines.rules import AdaGrad, Adam, Memory, Momentum
from rmopt.kernels import directed_sgd
from rmopt.kernels.directed_sgd import Weights
from rmopt.kernels.steps import Rows, StepRows
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.retractions import SecondOrderPSD


@dataclass(frozen=True)
class DirectedEngine(ReferenceEngine):
    """Momentum, Adam, AdaGrad, means of points and large batches on sums of bilinear terms, compiled.

    All of U and V move at every step: O(nnz·k + (n + m)k²).
    """

    supports: ClassVar[Supports] = BILINEAR | {
        "manifold": (FixedRankEmbedded, PSDFixedRank),
        "retraction": (*BILINEAR["retraction"], SecondOrderPSD),
        "rule": (Plain, Momentum, Adam, AdaGrad),
    }

    cost: Bilinear
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    @classmethod
    def refuses(cls, reference: ReferenceEngine) -> str | None:
        manifold = reference.manifold
        transport = unlike("transport", manifold.default_transport, (ByManifold, ByProjection))
        if reference.average_from is None:
            return transport
        return transport or unlike("retraction", manifold.default_retraction, cls.supports["retraction"])

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_rows", rows_of(self.cost.left, self.cost.right))

    def advance(self, state: ReferenceState, schedule: Array, etas: Array) -> ReferenceState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        terms = StepRows(*self.cost.resolve(schedule.ravel()), np.ascontiguousarray(etas, dtype=float))
        weights: Weights = getattr(self.rule, "weights", Weights())
        remembered, kept = state.memory or ((), 0.0)
        averages = self.average_from is not None
        vector = remembered if weights.keep else self.manifold.zero_vector(state.point)
        # Points of single precision are moved in double precision, as by all compiled steps.
        point, vector, mean = (
            [np.array(part, dtype=float) for part in arrays_of(one)]
            for one in (state.point, vector, state.average if averages else state.point)
        )
        # That of the mean is not looked at where there is none, and may then be one that has no kernel.
        kinds = self.retraction, self.manifold.default_retraction if averages else self.retraction
        counts, squares = np.array([state.steps, state.updates]), np.array([kept], dtype=float)

        def loop(*arguments: Any) -> bool:
            try:
                return bool(directed_sgd.run(*arguments))
            except (ValueError, np.linalg.LinAlgError):
                # A core is singular, or numbers are not finite any more.
                return False

        # One side of a symmetric matrix stands for both.
        if not with_slope(self.cost.loss, loop)(
            weights, tuple(kind.kernel for kind in kinds), len(point) == 2,
            (*point, point[0])[:3], (*vector, vector[1])[:3], (*mean, mean[0])[:3], squares, counts,
            *self._rows, terms, self.batch_size, self.average_from if averages else -1,
        ):  # fmt: skip
            raise diverged(int(counts[0]), etas[counts[0] - state.steps])
        memory = state.memory
        if memory != ():
            memory = Memory(rebuilt(remembered, vector) if weights.keep else (), squares[0])
        average = rebuilt(state.average, mean) if averages else ()
        return ReferenceState(rebuilt(state.point, point), int(counts[0]), int(counts[1]), memory, average)


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
