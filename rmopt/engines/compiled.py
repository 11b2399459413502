"""The compiled engine: bilinear costs on the fixed-rank manifold, one sparse rank-one term a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.cost import FiniteSum
from rmopt.core.errors import DivergedError, InvalidInputError
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.manifold import Manifold
from rmopt.core.retraction import Retraction
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines.base import Engine, diverged
from rmopt.engines.gauge import drift, factors_of, fresh_counters, point_of
from rmopt.engines.reference import ReferenceEngine, ReferenceState
from rmopt.kernels import bilinear_sgd as kernel
from rmopt.manifolds.fixed_rank_embedded import FixedRankEmbedded

# The inverses are renewed when a probe finds them off by this much, or when a bound on the condition
# number of AᵀA has grown by this factor since the last renewal.
DRIFT_LIMIT = 1e-11
CONDITION_GROWTH = 1e4


def why_not_compiled(
    manifold: Manifold, cost: FiniteSum, retraction: Retraction, batch_size: int
) -> str | None:
    """Return what keeps a problem from the compiled engine, or None when nothing does."""
    if not isinstance(manifold, FixedRankEmbedded):
        return f"the manifold {manifold} has no compiled kernel (FixedRankEmbedded has)"
    if not isinstance(cost, Bilinear):
        return f"the cost {type(cost).__name__} has no compiled kernel (BilinearSum and TripletSum have)"
    if retraction.kernel is None:
        return f"the retraction {retraction} has no compiled twin (`kernel` is None)"
    if batch_size != 1:
        return f"a step looks at {batch_size} terms, and the compiled kernels at one"
    return None


@dataclass
class CompiledState:
    """Factors of W = A C Bᵀ with their inverses, and counters."""

    factors: kernel.Factors
    counters: kernel.Counters
    steps: int = 0
    renewals: int = 0

    @property
    def updates(self) -> int:
        """Number of steps that moved the point."""
        return int(self.counters.counts[0])


@dataclass(frozen=True)
class CompiledEngine(Engine):
    """The same steps as `ReferenceEngine`, in O(nnz·k + k²) each.

    Attributes
    ----------
    manifold : FixedRankEmbedded
    cost : Bilinear
    retraction : Retraction
        One with a compiled twin.
    """

    manifold: FixedRankEmbedded
    cost: Bilinear
    retraction: Retraction
    _rows: tuple[kernel.Rows, kernel.Rows] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        left, right = self.cost.left, self.cost.right
        rows = (
            kernel.Rows(left.indptr, left.indices, left.data),
            kernel.Rows(right.indptr, right.indices, right.data),
        )
        object.__setattr__(self, "_rows", rows)

    def load(self, point: LowRankPoint) -> CompiledState:
        """Return a state that stands at a point."""
        factors = factors_of(point)
        return CompiledState(factors, fresh_counters(factors))

    def advance(self, state: CompiledState, schedule: Array, etas: Array) -> CompiledState:
        """Do one step per row of the schedule (see `Engine.advance`)."""
        terms = kernel.Terms(*self.cost.resolve(schedule.ravel()), np.ascontiguousarray(etas, dtype=float))
        n, m = self.manifold.shape
        k = self.manifold.rank
        loop, code = _loop(self.cost.loss)
        position, first = 0, state.steps
        while True:
            position, reason = loop(
                self.retraction.kernel,
                code,
                state.factors,
                state.counters,
                *self._rows,
                terms,
                position,
                max(1000, max(n, m) // 4),
                CONDITION_GROWTH * k * k,
            )
            state.steps = first + position
            if reason == kernel.FINISHED:
                return state
            if reason == kernel.CHECKPOINT_DUE:
                state = self._look_after(state)
            elif reason == kernel.STEP_REFUSED:
                state = self._step_by_reference(state, schedule[position], etas[position])
                position += 1
            else:
                raise diverged(state.steps, etas[position])

    def dump(self, state: CompiledState) -> LowRankPoint:
        """Return the point at which a state stands."""
        return point_of(state.factors, self.manifold.rank)

    def pack(self, state: CompiledState) -> dict[str, Array]:
        """Return the factors and counters."""
        return {
            **state.factors._asdict(),
            **state.counters._asdict(),
            "counters": np.array([state.steps, state.renewals]),
        }

    def unpack(self, arrays: dict[str, Array], template: CompiledState) -> CompiledState:
        """Return the state that `pack` took apart."""
        factors = kernel.Factors(*(np.ascontiguousarray(arrays[name]) for name in kernel.Factors._fields))
        counters = kernel.Counters(*(arrays[name] for name in kernel.Counters._fields))
        return CompiledState(factors, counters, *arrays["counters"].tolist())

    def _look_after(self, state: CompiledState) -> CompiledState:
        """Probe the kept inverses; renew the gauge when they drifted or the factors became ill-conditioned."""
        k, factors = self.manifold.rank, state.factors
        condition = max(
            size * np.trace(H)
            for size, H in zip(state.counters.size, (factors.H_A, factors.H_B), strict=True)
        )
        state.counters.counts[1] = 0
        if condition <= CONDITION_GROWTH * k * k and drift(factors, k) <= DRIFT_LIMIT:
            return state
        try:
            return self._stand_at(point_of(factors, k), state)
        except (InvalidInputError, np.linalg.LinAlgError) as error:
            raise DivergedError(
                f"the run diverged before step {state.steps}: {error}", state.steps
            ) from error

    def _step_by_reference(self, state: CompiledState, terms: Array, eta: float) -> CompiledState:
        """Do one step that is ill-conditioned in the present gauge by the generic retraction."""
        reference = ReferenceEngine(self.manifold, self.cost, self.retraction)
        try:
            moved = reference.advance(
                ReferenceState(self.dump(state), steps=state.steps), terms[None], np.array([eta])
            )
            state = self._stand_at(moved.point, state)
        except (InvalidInputError, np.linalg.LinAlgError) as error:
            raise diverged(state.steps, eta) from error
        state.counters.counts[0] += moved.updates
        state.steps += 1
        return state

    def _stand_at(self, point: LowRankPoint, state: CompiledState) -> CompiledState:
        factors = factors_of(point)
        counters = fresh_counters(factors)
        counters.counts[0] = state.updates
        return replace(state, factors=factors, counters=counters, renewals=state.renewals + 1)


def _loop(loss: Loss) -> tuple[Callable, int]:
    if loss.code is not None:
        return kernel.run, loss.code
    return _custom_loop(loss), -1


@cache
def _custom_loop(loss: Loss) -> Callable:
    return kernel.loop_for(loss.slope)
