"""The base of compiled engines on lifted factors: a gauge made from a point, monitored and renewed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.cost import FiniteSum
from rmopt.core.low_rank import LowRankPoint, PSDPoint
from rmopt.core.manifold import FixedRankManifold
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine, checked, diverged, lost
from rmopt.engines.reference import ReferenceEngine, ReferenceState
from rmopt.errors import InvalidInputError, warn
from rmopt.kernels.lifted import Factors, SymmetricFactors
from rmopt.kernels.meeting import Meeting, go_on
from rmopt.kernels.memory import at_line, on_lines, with_zeros
from rmopt.kernels.steps import FINISHED, NOT_MET, PROBE_DUE, STEP_REFUSED, Counters
from rmopt.linalg import factor_product, symmetric, tall_qr

# Columns are padded with zeros to a multiple of this, so that vector loops have no short remainder.
PADDING = 4
# The inverses are recomputed if a probe finds them off by this much, or if a bound on the condition number of a Gram
# matrix has grown by this factor since the last time.
DRIFT_LIMIT = 1e-11
CONDITION_GROWTH = 1e4
# The least length to which a gauge that is near another turns a column, relative to the greatest.
NEAREST = 0.1
# Up to this many slow steps in one piece of work give no hint.
FEW = 20


class Gauge(ABC):
    """The conversion between points and lifted factors."""

    kind: ClassVar[type]

    @abstractmethod
    def factors_of(self, point: Any, into: Any = None) -> Any:
        """Return factors with orthonormal columns and a diagonal core, padded with zero columns.

        The tall ones overwrite those of `into`, if given.
        """

    @abstractmethod
    def point_of(self, factors: Any, k: int) -> Any:
        """Return the point of rank k of factors."""

    @staticmethod
    def sides(factors: Any) -> list[tuple[Array, Array]]:
        """Return each tall factor with the inverse of its Gram matrix, with C and C_inverse between the two."""
        count = len(factors) // 2 - 1
        return list(zip(factors[:count], factors[-count:], strict=True))

    def fresh_counters(self, factors: Any) -> Counters:
        """Return counters for newly made factors."""
        # On separate cache lines, so that they do not wait for the steps of other workers.
        counters = Counters(on_lines((2,), np.int64), on_lines((len(factors) // 2 - 1,)))
        counters.size[:] = [np.vdot(tall, tall) for tall, _ in self.sides(factors)]
        return counters

    def condition(self, factors: Any, counters: Counters) -> float:
        """Return a bound on the condition numbers of the Gram matrices."""
        inverses = [inverse for _, inverse in self.sides(factors)]
        return max(float(size * np.trace(H)) for size, H in zip(counters.size, inverses, strict=True))

    def turn(self, factors: Any, talls: Sequence[Array], k: int) -> None:
        """Write factors with orthonormal columns in the gauge with tall factors nearest to others."""
        backs = []
        for (own, H), other in zip(self.sides(factors), talls, strict=True):
            P, lengths, Qt = np.linalg.svd(own[:, :k].T @ other[:, :k])
            # Columns nearly orthogonal to all others have no nearest gauge.
            lengths = np.maximum(lengths, NEAREST * lengths[0])
            own[:, :k] = own[:, :k] @ ((P * lengths) @ Qt)
            backs.append((P / lengths) @ Qt)
            H[:k, :k] = backs[-1].T @ backs[-1]
        C, C_inverse = factors.C[:k, :k], factors.C_inverse[:k, :k]
        C[:] = backs[0].T @ C @ backs[-1]
        C_inverse[:] = np.linalg.inv(C)

    def drift(self, factors: Any, k: int) -> float:
        """Return the error of the stored inverses along one fixed random direction."""
        e = np.random.default_rng(0).standard_normal(k)
        worst = np.abs(factors.C_inverse[:k, :k] @ (factors.C[:k, :k] @ e) - e).max()
        for padded, H in self.sides(factors):
            tall = padded[:, :k]
            worst = max(worst, np.abs(H[:k, :k] @ (tall.T @ (tall @ e)) - e).max())
        return float(worst)


class GeneralGauge(Gauge):
    """W = A C Bᵀ."""

    kind = Factors

    def factors_of(self, point: LowRankPoint, into: Factors | None = None) -> Factors:
        P, sigma, Qt = np.linalg.svd(point.S)
        C, C_inverse, H = squares(sigma)
        A, B = (None, None) if into is None else (into.A, into.B)
        return Factors(_turned(point.U, P, A), _turned(point.V, Qt.T, B), C, C_inverse, H, padded(H))

    def point_of(self, factors: Factors, k: int) -> LowRankPoint:
        return LowRankPoint(*factor_product(factors.A[:, :k], factors.C[:k, :k], factors.B[:, :k]))


class SymmetricGauge(Gauge):
    """W = Y C Yᵀ."""

    kind = SymmetricFactors

    def factors_of(self, point: PSDPoint, into: SymmetricFactors | None = None) -> SymmetricFactors:
        values, vectors = np.linalg.eigh(point.S)
        return SymmetricFactors(_turned(point.Q, vectors, None if into is None else into.Y), *squares(values))

    def point_of(self, factors: SymmetricFactors, k: int) -> PSDPoint:
        Q, triangle = tall_qr(factors.Y[:, :k])
        return PSDPoint(Q, symmetric(triangle @ factors.C[:k, :k] @ triangle.T))


GENERAL = GeneralGauge()
SYMMETRIC = SymmetricGauge()
GAUGES: dict[type, Gauge] = {Factors: GENERAL, SymmetricFactors: SYMMETRIC}


def squares(sigma: Array) -> tuple[Array, Array, Array]:
    """Return C, C⁻¹ and (AᵀA)⁻¹ for singular values and orthonormal columns, and refuse a lost rank."""
    if not sigma.min() > 1e-15 * sigma.max():
        raise InvalidInputError(
            f"the matrix lost rank {len(sigma)}: its singular values run from {sigma.max():.1e} to "
            f"{sigma.min():.1e}. Choose a smaller rank or a smaller step size."
        )
    C, C_inverse, H = (padded(np.diag(one), square=True) for one in (sigma, 1.0 / sigma, np.ones_like(sigma)))
    return C, C_inverse, H


def _turned(tall: Array, square: Array, out: Array | None) -> Array:
    """Return the product with zero columns up to a multiple of `PADDING`, in new memory or that of `out`."""
    out = on_lines((len(tall), _width(square.shape[1]))) if out is None else out
    np.matmul(tall, square, out=out[:, : square.shape[1]])
    return out


def _width(k: int) -> int:
    return -(-k // PADDING) * PADDING


def padded(matrix: Array, square: bool = False) -> Array:
    """Return a tall factor padded by zero columns to a multiple of `PADDING`, or a square one also by rows."""
    n, k = matrix.shape
    width = _width(k)
    return with_zeros(matrix, (width if square else n, width))


@dataclass
class GaugedState:
    """Factors with their inverses, and counters.

    Attributes
    ----------
    factors : object
        The factors of the gauge.
    counters : int array
        The counters of the compiled loop.
    steps : int
        Steps done.
    """

    factors: Any
    counters: Counters
    steps: int = 0

    @property
    def updates(self) -> int:
        """Number of steps that moved the point."""
        return int(self.counters.counts[0])


def counting(state: Any, steps: int, updates: int) -> Any:
    """Return a state, of this kind or of the reference engine, with these numbers of steps and updates."""
    if not isinstance(state, GaugedState):
        return replace(state, steps=steps, updates=updates)
    state.counters.counts[0] = updates
    return replace(state, steps=steps)


@dataclass(frozen=True)
class GaugedEngine(Engine):
    """Steps of `ReferenceEngine`, compiled, on factors with stored inverses.

    A subclass prepares the input of its loop and calls it. The loop stops if the gauge needs attention: a probe is
    due, the factors became ill-conditioned, or a step is ill-conditioned in this gauge. Then this class recomputes
    the factors, or does the step by the generic retraction, and the loop continues.

    Attributes
    ----------
    manifold : FixedRankManifold
    cost : FiniteSum
    retraction : Retraction
        One with a compiled version.
    batch_size : int
        Terms per step.
    gauge : Gauge
        The conversion between points and factors.
    """

    gauge: ClassVar[Gauge] = GENERAL

    manifold: FixedRankManifold
    cost: FiniteSum
    retraction: Retraction
    batch_size: int = 1

    @classmethod
    def refuses(cls, reference: Any) -> str | None:
        count = reference.batch_size
        return None if count == 1 else f"a step has {count} terms, and the compiled kernel takes one"

    @abstractmethod
    def terms(self, schedule: Array, etas: Array) -> Any:
        """Return the input of the loop: arrays with one entry per step."""

    @abstractmethod
    def loop(
        self,
        state: GaugedState,
        terms: Any,
        position: int,
        probe_every: int,
        growth_limit: float,
        meeting: Meeting | None,
    ) -> tuple[int, int]:
        """Do steps from `position` on, and return the number of the next step and why the loop ended.

        Parameters
        ----------
        state : GaugedState
            Its factors and counters are changed in place.
        terms : object
            The result of `terms`.
        position : int
            Number of the first step within the terms.
        probe_every : int
            Steps after which the loop ends with `PROBE_DUE`.
        growth_limit : float
            The largest trace(AᵀA) · trace((AᵀA)⁻¹) before it ends with `PROBE_DUE`.
        meeting : Meeting or None
            The meetings of this worker with others, before certain steps, by `rmopt.kernels.meeting.go_on`.

        Returns
        -------
        (int, int)
            The reason is one of `rmopt.kernels.steps`.
        """

    def load(self, point: Any) -> GaugedState:
        factors = self.gauge.factors_of(point)
        return GaugedState(factors, self.gauge.fresh_counters(factors))

    def advance(
        self, state: GaugedState, schedule: Array, etas: Array, meeting: Meeting | None = None
    ) -> GaugedState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        terms = self.terms(schedule, np.ascontiguousarray(etas, dtype=float))
        # Workers that meet know the addresses of others' factors.
        if not (kept := meeting is not None):
            # After resuming, copying or unpickling they may begin anywhere.
            state.factors = type(state.factors)(*map(at_line, state.factors))
        k = self.manifold.rank
        probe_every = max(1000, *self.manifold.shape)
        position, first, refused = 0, state.steps, 0
        while True:
            position, reason = self.loop(
                state, terms, position, probe_every, CONDITION_GROWTH * k * k, meeting
            )
            state.steps = first + position
            if reason == FINISHED:
                hint(refused, position)
                return state
            if reason == PROBE_DUE:
                state = self._look_after(state, kept)
            elif reason == STEP_REFUSED:
                state = self._step_by_reference(state, schedule[position], etas[position], kept)
                position, refused = position + 1, refused + 1
            elif reason == NOT_MET:
                raise lost(state.steps, "workers did not meet")
            else:
                raise diverged(state.steps, etas[position])

    def dump(self, state: GaugedState) -> Any:
        return self.gauge.point_of(state.factors, self.manifold.rank)

    def taken_over(self, state: Any) -> GaugedState | None:
        fits = isinstance(state, GaugedState) and GAUGES[type(state.factors)] is self.gauge
        return state if fits else None

    def _look_after(self, state: GaugedState, kept: bool) -> GaugedState:
        """Probe the stored inverses, and renew the gauge if they drifted or the factors became ill-conditioned."""
        k, factors = self.manifold.rank, state.factors
        state.counters.counts[1] = 0
        condition = self.gauge.condition(factors, state.counters)
        if condition <= CONDITION_GROWTH * k * k and self.gauge.drift(factors, k) <= DRIFT_LIMIT:
            return state
        try:
            return self.moved(state, self.gauge.point_of(factors, k), kept)
        except (InvalidInputError, np.linalg.LinAlgError) as error:
            raise lost(state.steps, error) from error

    def _step_by_reference(
        self, state: GaugedState, terms: Array, eta: float, kept: bool = False
    ) -> GaugedState:
        """Do one step that is ill-conditioned in the present gauge by the generic retraction."""
        reference = ReferenceEngine(self.manifold, self.cost, self.retraction)
        try:
            moved = reference.advance(
                ReferenceState(self.dump(state), steps=state.steps), terms[None], np.array([eta])
            )
            state = self.moved(state, moved.point, kept)
        except (InvalidInputError, np.linalg.LinAlgError) as error:
            raise lost(state.steps, error) from error
        state.counters.counts[0] += moved.updates
        state.steps += 1
        return state

    def moved(self, state: GaugedState, point: Any, kept: bool = False) -> GaugedState:
        """Return a state that continues from another point, with `kept` as near to its gauge as is safe."""
        before = [tall.copy() for tall, _ in self.gauge.sides(state.factors)] if kept else []
        # In the memory of the old ones, since two sets of tall factors and their QR would dominate the memory.
        factors = self.gauge.factors_of(point, state.factors)
        if kept:
            self.gauge.turn(factors, before, self.manifold.rank)
        for own, new in zip(state.factors, factors, strict=True):
            np.copyto(own, new)
        return counting(
            replace(state, counters=self.gauge.fresh_counters(factors)), state.steps, state.updates
        )

    def shared(self, state: GaugedState) -> tuple[Array, ...]:
        return tuple(state.factors[: len(state.factors) // 2])

    def met(self, state: GaugedState, meeting: Meeting) -> bool:
        inverses = tuple(inverse for _, inverse in self.gauge.sides(state.factors))
        return bool(go_on(meeting, state.factors.C, state.factors.C_inverse, inverses, state.counters))


def hint(slow: int, steps: int) -> None:
    """Warn if a compiled loop left most of its steps to a far slower path."""
    if slow > FEW and 2 * slow > steps:
        warn(
            f"{slow} of {steps} steps were too ill-conditioned for the compiled loop and were done some hundred "
            "times slower: the step size is likely too large for this start (try a tenth).",
            RuntimeWarning,
        )
