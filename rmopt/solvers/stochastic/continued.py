"""A run whose data come in chunks, between which it stays in the form of its engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.low_rank import LowRankPoint, PSDPoint
from rmopt.core.points import arrays_of, is_finite, packed, rebuilt
from rmopt.core.problem import Problem
from rmopt.engines.base import Engine, lost
from rmopt.engines.gauged import GAUGES, GaugedState, counting
from rmopt.engines.reference import ReferenceState
from rmopt.kernels.lifted import Factors, SymmetricFactors
from rmopt.kernels.memory import with_zeros
from rmopt.kernels.steps import Counters
from rmopt.solvers.run import finite_numbers
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.threads import Interrupts, one_blas_thread

# The types of a run's state.
KINDS: tuple[Any, ...] = (Factors, SymmetricFactors, LowRankPoint, PSDPoint)


@dataclass
class Continued:
    """The state of a run between two chunks of its data.

    A chunk is some steps of a solver on its own problem. It costs only the rows that these steps use: the point,
    which takes a factorisation of the full matrix, is computed on request. Requests do not affect the run.

    Attributes
    ----------
    state : object
        The state of the last chunk's engine, which counts the steps of all chunks.
    rank : int
        Of the point.
    """

    state: Any
    rank: int

    @classmethod
    def begun(
        cls,
        solver: ScheduledSolver,
        problem: Problem,
        start: Callable[[], Any],
        seed: int,
        steps: int = 0,
        updates: int = 0,
    ) -> Self:
        """Return a run at a start, after `steps` earlier steps.

        Raises
        ------
        InvalidInputError
            If the start is not on the manifold of the problem.
        """
        solver.check_problem(problem)
        point = solver._started(problem, start(), None)
        state = _standing(solver.prepare(problem, seed).engine, point, steps, updates)
        return cls(state, problem.manifold.rank)  # type: ignore[attr-defined]

    @property
    def n_iter(self) -> int:
        """Steps done in all."""
        return int(self.state.steps)

    @property
    def n_updates(self) -> int:
        """The number of steps that moved the point."""
        return int(self.state.updates)

    def point(self) -> Any:
        """Return the point without changing the run.

        Raises
        ------
        DivergedError
            If the point is not finite.
        """
        state = self.state
        with np.errstate(all="ignore"), one_blas_thread(), finite_numbers(self.n_iter):
            gauged = isinstance(state, GaugedState)
            point = GAUGES[type(state.factors)].point_of(state.factors, self.rank) if gauged else state.point
        if not is_finite(point):
            raise lost(self.n_iter, "the point is not finite")
        return point

    def grown(self, rows: int) -> Self:
        """Return the run with additional zero rows of its matrix, and columns if it is symmetric."""
        part = "factors" if isinstance(self.state, GaugedState) else "point"
        grown = with_zero_rows(getattr(self.state, part), rows)
        return replace(self, state=replace(self.state, **{part: grown}))

    def pack(self) -> dict[str, Array]:
        """Return the arrays that hold the run completely, to the last bit."""
        state = self.state
        gauged = isinstance(state, GaugedState)
        whole, counters = (state.factors, state.counters) if gauged else (state.point, ())
        about = {"kind": KINDS.index(type(whole)), "steps": self.n_iter, "updates": self.n_updates}
        return packed(about | {"rank": self.rank, "whole": whole, "counters": counters})

    @classmethod
    def unpack(cls, arrays: Mapping[str, Array]) -> Self:
        """Rebuild the run that `pack` took apart, which then owns the arrays.

        Raises
        ------
        LookupError
            If they are not such arrays.
        """
        number, rank, steps, updates = (int(arrays[name]) for name in ("kind", "rank", "steps", "updates"))
        whole = KINDS[number](**{name: arrays[f"whole.{name}"] for name in KINDS[number].__annotations__})
        if type(whole) not in GAUGES:
            return cls(ReferenceState(whole, steps, updates), rank)
        counters = Counters(*(arrays[f"counters.{name}"] for name in Counters._fields))
        return cls(GaugedState(whole, counters, steps), rank)

    @one_blas_thread()
    def learn(self, solver: ScheduledSolver, problem: Problem, seed: int) -> None:
        """Do the steps of a solver's budget on a problem, with their own random draws.

        Parameters
        ----------
        solver : ScheduledSolver
            Its step sizes depend on the number of the step over all chunks.
        problem : Problem
            A problem on the manifold of the earlier chunks.
        seed : int

        Raises
        ------
        DivergedError
            If the run is no longer finite.
        """
        solver.check_problem(problem)
        work = solver.prepare(problem, seed)
        state = work.engine.taken_over(self.state)
        if state is None:
            # The engine is of another kind, and continues from the point.
            self.state = _standing(work.engine, self.point(), self.n_iter, self.n_updates)
            state = work.engine.taken_over(self.state)
        work.origin, work.last = state.steps, state.steps + solver.budget(problem)
        try:
            # A signal waits for the end of the chunk, where the state is complete.
            with Interrupts(True):
                while state.steps < work.last:
                    state = solver.advance(work, state, work.last - state.steps)
        finally:
            self.state = work.engine.handed_over(state)


def _standing(engine: Engine, point: Any, steps: int, updates: int) -> Any:
    """Return the state of an engine at a point after this many steps."""
    return counting(engine.handed_over(engine.load(point)), steps, updates)


def with_zero_rows(whole: Any, rows: int) -> Any:
    """Return a point or its factors with additional zero rows, and columns if it is symmetric."""
    first, *others = arrays_of(whole)
    return rebuilt(whole, [with_zeros(first, (len(first) + rows, first.shape[1])), *others])
