"""The solver's loop, which exists once, and what it returns."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import InvalidInputError
from rmopt.core.points import arrays_of
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.engines.base import Engine, diverged
from rmopt.engines.threads import one_blas_thread
from rmopt.solvers.checkpoint import Saving, digest
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.samplers import Sampler
from rmopt.solvers.step_sizes import StepSize

# How long one uninterrupted piece of work may take, in seconds: the grain of progress and of Ctrl-C.
PIECE_SECONDS = 0.1

Stop = Callable[[list[dict[str, Any]]], str | None]


@dataclass(frozen=True)
class Result:
    """The end of a run.

    Attributes
    ----------
    point : object
        The last point.
    steps, updates : int
        Steps done, and how many of them moved the point.
    seconds : float
        Training time, without measurements and saves.
    stopped_by : str
        Why the run ended.
    seed : int
        The seed that repeats it.
    history : list of dict
        The recorder's rows.
    """

    point: Any
    steps: int
    updates: int
    seconds: float
    stopped_by: str
    seed: int
    history: list[dict[str, Any]] = field(repr=False)


@dataclass
class State:
    """A run in progress: the engine's state and the time it took so far."""

    engine_state: Any
    step: int = 0
    seconds: float = 0.0


class Solver(ABC):
    """A solver that follows a schedule of terms and a rule of step sizes.

    Attributes
    ----------
    n_steps : int
        The budget, unless `budget` says otherwise.
    """

    n_steps: int

    @abstractmethod
    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps."""

    @abstractmethod
    def sampler_for(self, problem: Problem) -> Sampler:
        """Return the sampler of the schedule."""

    @abstractmethod
    def step_size_rule(self) -> StepSize:
        """Return the rule of the step sizes."""

    def budget(self, problem: Problem) -> int:
        """Return the number of steps."""
        return self.n_steps

    def check_every(self, problem: Problem) -> int | None:
        """Return after how many steps to ask `converged`; None: never."""
        return None

    def converged(self, engine: Engine, state: Any) -> str | None:
        """Return why the run may stop at an engine's state, or None."""
        return None

    def start(self, problem: Problem, rng: np.random.Generator) -> Any:
        """Return the initial point of a run that is given none: a random one."""
        return problem.manifold.random_point(rng)

    def check_start(self, problem: Problem, point: Any) -> str | None:
        """Return why a run cannot begin at a point, or None."""
        return problem.manifold.check_point(point)

    def observe(self, engine: Engine, state: Any) -> dict[str, float]:
        """Return what the solver itself knows of its progress; where it knows something, each step has a row."""
        return {}

    def conclude(self, result: Result, engine: Engine, state: Any) -> Result:
        """Return the result with what the solver adds to it."""
        return result

    @one_blas_thread()
    def run(
        self,
        problem: Problem,
        initial_point: Any = None,
        *,
        random_state: int | np.random.Generator | None = None,
        recorder: Recorder | None = None,
        checkpoint: Saving | None = None,
        stop: Stop | None = None,
        first_step: int = 0,
    ) -> Result:
        """Run to the end of the budget, or until `stop` says so.

        Parameters
        ----------
        problem : Problem
        initial_point : point, optional
            A random point of the manifold unless given.
        random_state : int, Generator or None
            Equal integers give equal bits.
        recorder : Recorder, optional
            What to measure on the way, and whether to draw a progress bar.
        checkpoint : Checkpoint or SharedCheckpoint, optional
            Save on the way, and resume when the file is there already.
        stop : callable, optional
            Sees the recorder's rows after each measurement; returns a reason to stop, or None.
        first_step : int
            Number of the first step, for a run that continues another one's schedule and step sizes.

        Returns
        -------
        Result

        Raises
        ------
        InvalidInputError
            When the initial point is not on the manifold, or the checkpoint is of another run.
        DivergedError
            When the numbers leave the finite ones. Checkpoints and logs stay as they are.
        """
        recorder = Recorder() if recorder is None else recorder
        seed = seed_of(random_state)
        engine = self.engine(problem)
        random_start = initial_point is None
        if random_start:
            initial_point = self.start(problem, generator(seed, Stream.START))
        reason = self.check_start(problem, initial_point)
        if reason is not None:
            raise InvalidInputError(f"the initial point is not on {problem.manifold}: {reason}.")
        identity = {"solver": repr(self), "manifold": repr(problem.manifold), "seed": seed}
        identity["first_step"] = first_step
        if hasattr(problem.cost, "fingerprint"):
            identity["cost"] = problem.cost.fingerprint()
        if checkpoint is not None:
            sampler = self.sampler_for(problem)
            first_draw = self._draw(sampler, self.step_size_rule(), seed, first_step // sampler.block_size)
            identity["initial point"] = "random" if random_start else digest(*arrays_of(initial_point))
            identity["draw of terms and step sizes"] = digest(*first_draw)
        state = State(engine.load(initial_point), step=first_step)
        # It may be large; the state holds all that is needed.
        del initial_point
        saved = None if checkpoint is None else checkpoint.load(identity)
        rows: list[dict[str, Any]] = []
        if saved is not None:
            arrays, about = saved
            state = State(engine.unpack(arrays, state.engine_state), about["step"], about["seconds"])
            rows = about["rows"]
        n_steps = self.budget(problem)
        last, check_every = first_step + n_steps, self.check_every(problem)
        # No steps: compiled loops are loaded or compiled before the clock starts.
        state.engine_state = engine.advance(state.engine_state, np.empty((0, 1), dtype=np.int64), np.empty(0))
        observes = bool(self.observe(engine, state.engine_state))
        measures = observes or bool(recorder.metrics)
        recorder.begin(state.step, last, rows)
        stopped_by = f"the budget of {n_steps} steps"

        def next_pause(step: int) -> float:
            check = np.inf if check_every is None else (step // check_every + 1) * check_every
            check = step + 1 if observes else check
            save_at = np.inf if checkpoint is None else checkpoint.pause_after(step)
            return min(recorder.next_after(step), check, save_at)

        def here() -> Any:
            with np.errstate(all="ignore"):
                point = engine.dump(state.engine_state)
            if not all(np.isfinite(part).all() for part in arrays_of(point) if part.dtype.kind in "fc"):
                before = np.array([state.step - 1])
                raise diverged(state.step - 1, self.step_size_rule()(before)[0])
            return point

        def measure() -> str | None:
            recorder.measure(
                here(),
                step=state.step,
                updates=state.engine_state.updates,
                seconds=state.seconds,
                observed=self.observe(engine, state.engine_state),
            )
            return stop(recorder.rows) if stop is not None else None

        def save() -> None:
            assert checkpoint is not None
            about = {"identity": identity, "step": state.step, "seconds": state.seconds}
            checkpoint.save(engine.pack(state.engine_state), about | {"rows": recorder.rows})

        last_save = time.monotonic()
        try:
            if not recorder.rows and measures:
                measure()
            for _ in self._iterate(engine, problem, state, seed, next_pause, last):
                recorder.advance(state.step)
                due = observes or state.step == last or recorder.next_after(state.step - 1) == state.step
                if measures and due:
                    early = measure()
                    if early is not None and state.step < last:
                        stopped_by = early
                        break
                if check_every is not None and state.step % check_every == 0 and state.step < last:
                    early = self.converged(engine, state.engine_state)
                    if early is not None:
                        stopped_by = early
                        if measures and not due:
                            measure()
                        break
                if checkpoint is not None and checkpoint.due(state.step, time.monotonic() - last_save):
                    save()
                    last_save = time.monotonic()
            point = here()
            if checkpoint is not None:
                save()
        finally:
            recorder.end()
        result = Result(
            point=point,
            steps=state.step - first_step,
            updates=state.engine_state.updates,
            seconds=state.seconds,
            stopped_by=stopped_by,
            seed=seed,
            history=recorder.rows,
        )
        return self.conclude(result, engine, state.engine_state)

    def _iterate(
        self,
        engine: Engine,
        problem: Problem,
        state: State,
        seed: int,
        next_pause: Callable[[int], float],
        last: int,
    ) -> Iterator[State]:
        """Yield the state after each piece of work. Where pieces end does not change the bits."""
        sampler, rule = self.sampler_for(problem), self.step_size_rule()
        block, schedule, etas = -1, np.empty((0, 0), dtype=int), np.empty(0)
        piece = 64
        while state.step < last:
            begun = time.perf_counter()
            if state.step // sampler.block_size != block:
                block = state.step // sampler.block_size
                schedule, etas = self._draw(sampler, rule, seed, block)
            start = block * sampler.block_size
            end = int(min(start + sampler.block_size, last, next_pause(state.step), state.step + piece))
            part = slice(state.step - start, end - start)
            state.engine_state = engine.advance(state.engine_state, schedule[part], etas[part])
            elapsed = time.perf_counter() - begun
            state.seconds += elapsed
            state.step = end
            if elapsed < PIECE_SECONDS:
                piece *= 2
            elif elapsed > 2 * PIECE_SECONDS:
                piece = max(1, piece // 2)
            yield state

    @staticmethod
    def _draw(sampler: Sampler, rule: StepSize, seed: int, block: int) -> tuple[Array, Array]:
        start, size = block * sampler.block_size, sampler.block_size
        rng = generator(seed, Stream.SCHEDULE, block)
        return sampler.draw(rng, start, size), rule(np.arange(start, start + size))
