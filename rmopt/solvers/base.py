"""The solver's loop, which exists once, and what it returns."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import callable_of, instance, integer, shown
from rmopt.core.errors import DivergedError, InvalidInputError, RmoptError, StorageError
from rmopt.core.identity import fingerprint, fingerprints
from rmopt.core.points import arrays_of
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.engines.base import Engine, diverged
from rmopt.engines.threads import one_blas_thread
from rmopt.solvers.checkpoint import Saving
from rmopt.solvers.interrupts import Interrupts
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


@contextmanager
def finite_numbers(step: int) -> Iterator[None]:
    """Turn what linear algebra says of matrices that are singular or not finite into `DivergedError`."""
    try:
        yield
    except RmoptError:
        raise
    except ValueError as error:
        if not isinstance(error, np.linalg.LinAlgError) and "infs or NaNs" not in str(error):
            raise
        raise DivergedError(
            f"the run broke down at step {step} or soon after ({error}): a matrix is singular or holds numbers that "
            "are not finite. Likely causes: a cost that is not finite there, a step size that is too large (try a "
            "tenth), or data that are not scaled.",
            step,
        ) from error


class Solver(ABC):
    """A solver that follows a schedule of terms and a rule of step sizes.

    Attributes
    ----------
    n_steps : int
        The budget, unless `budget` says otherwise.
    not_identity : tuple of str
        The attributes that may differ between a run and its continuation from a checkpoint: those of the budget, and
        of where it runs. All others are part of what the checkpoint belongs to.
    """

    n_steps: int
    not_identity: ClassVar[tuple[str, ...]] = ("n_steps", "n_passes", "n_updates", "_n_steps", "world")

    def __repr__(self) -> str:
        plain = {
            name.lstrip("_"): shown(value) if repr(value)[:1] != "<" else type(value).__name__
            for name, value in vars(self).items()
            if value is not None
        }
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in plain.items())})"

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
            Save on the way, and resume when the file is there already. The budget may then be larger than before.
        stop : callable, optional
            Sees the recorder's rows after each measurement; returns a reason to stop, or None. Without metrics it is
            asked after each piece of work, about every tenth of a second, and the one row that it sees holds step,
            updates and seconds.
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
            When the numbers leave the finite ones, or the end is not on the manifold. Checkpoints and logs stay as
            they are.
        StorageError
            When the checkpoint is damaged.
        """
        for name, given, wanted, example in (
            ("recorder", recorder, Recorder, "a Recorder, or None"),
            ("checkpoint", checkpoint, Saving, "a Checkpoint, or None"),
        ):
            if given is not None:
                instance(name, given, wanted, example)
        if stop is not None:
            callable_of("stop", stop)
        first_step = integer("first_step", first_step)
        recorder = Recorder() if recorder is None else recorder
        seed = seed_of(random_state)
        engine = self.engine(problem)
        start = self.start(problem, generator(seed, Stream.START)) if initial_point is None else initial_point
        reason = self.check_start(problem, start)
        if reason is not None:
            raise InvalidInputError(f"the initial point is not on {problem.manifold}: {reason}.")
        if any(np.iscomplexobj(part) for part in arrays_of(start)):
            raise InvalidInputError("the initial point is complex; points are real here.")
        n_steps = self.budget(problem)
        last, check_every = first_step + n_steps, self.check_every(problem)
        identity = {} if checkpoint is None else self._identity(problem, seed, first_step, initial_point)
        with finite_numbers(first_step):
            state = State(engine.load(start), step=first_step)
        # They may be large; the state holds all that is needed.
        del initial_point, start
        rows: list[dict[str, Any]] = []
        if checkpoint is not None:
            resumed = _resumed(checkpoint, identity, engine, state, first_step, last)
            state, rows = (state, rows) if resumed is None else resumed
        # No steps: compiled loops are loaded or compiled before the clock starts.
        state.engine_state = engine.advance(state.engine_state, np.empty((0, 1), dtype=np.int64), np.empty(0))
        observes = bool(self.observe(engine, state.engine_state))
        measures = observes or bool(recorder.metrics)

        def is_planned(step: int) -> bool:
            return observes or recorder.next_after(step - 1) == step

        if rows and first_step < state.step < last and not is_planned(state.step):
            # The end of a smaller budget was measured too.
            rows = [row for row in rows if row["step"] < state.step]
        recorder.begin(state.step, last, rows)
        stopped_by = f"the budget of {n_steps} steps"

        def next_pause(step: int) -> float:
            check = np.inf if check_every is None else (step // check_every + 1) * check_every
            check = step + 1 if observes else check
            save_at = np.inf if checkpoint is None else checkpoint.pause_after(step)
            return min(recorder.next_after(step), check, save_at)

        def here() -> Any:
            with np.errstate(all="ignore"), finite_numbers(state.step):
                point = engine.dump(state.engine_state)
            if not all(np.isfinite(part).all() for part in arrays_of(point) if part.dtype.kind in "fc"):
                before = np.array([state.step - 1])
                raise diverged(state.step - 1, self.step_size_rule()(before)[0])
            return point

        def place() -> dict[str, Any]:
            updates = int(state.engine_state.updates)
            return {"step": state.step, "updates": updates, "seconds": state.seconds}

        def measure() -> None:
            recorder.measure(here(), **place(), observed=self.observe(engine, state.engine_state))

        def save() -> None:
            if checkpoint is not None:
                about = {"identity": identity, "step": state.step, "seconds": state.seconds}
                checkpoint.save(engine.pack(state.engine_state), about | {"rows": recorder.rows})

        def reason_to_stop(measured: bool) -> str | None:
            early = None
            if stop is not None and (measured or not measures):
                early = stop(recorder.rows if measures else [place()])
                if not (early is None or isinstance(early, str)):
                    raise InvalidInputError(
                        f"stop returned {shown(early)}; it must return a reason as a string, or None to go on."
                    )
            if (
                early is None
                and check_every is not None
                and state.step % check_every == 0
                and state.step > first_step
            ):
                early = self.converged(engine, state.engine_state)
            return early

        if checkpoint is not None:
            # What cannot be saved is told before work starts.
            engine.pack(state.engine_state)
        savable = checkpoint is not None and checkpoint.pause_after(state.step) == np.inf
        last_save = time.monotonic()
        try:
            with Interrupts(savable) as interrupts:
                if measures and not recorder.rows:
                    measure()
                early = reason_to_stop(bool(recorder.rows)) if state.step < last else None
                work = self._iterate(engine, problem, state, seed, next_pause, last)
                while early is None and next(work, None) is not None:
                    recorder.advance(state.step)
                    due = measures and (state.step == last or is_planned(state.step))
                    if due:
                        measure()
                    early = reason_to_stop(due) if state.step < last else None
                    if checkpoint is not None and early is None and state.step < last:
                        if interrupts.pending is not None:
                            save()
                            interrupts.deliver()
                        elif checkpoint.due(state.step, time.monotonic() - last_save):
                            save()
                            last_save = time.monotonic()
                if early is not None:
                    stopped_by = early
                    if measures and recorder.rows[-1]["step"] < state.step:
                        measure()
                point = here()
                off = self.check_start(problem, point)
                if off is not None:
                    retraction = getattr(self, "retraction", None) or problem.manifold.default_retraction
                    raise DivergedError(
                        f"the run ended off {problem.manifold}: {off}. Likely causes: the retraction {retraction} "
                        "(hold it against rmopt.checks.check_retraction), or a step size that is too large.",
                        state.step,
                    )
                save()
        finally:
            recorder.end()
        result = Result(
            point=point,
            steps=state.step - first_step,
            updates=int(state.engine_state.updates),
            seconds=state.seconds,
            stopped_by=stopped_by,
            seed=seed,
            history=recorder.rows,
        )
        return self.conclude(result, engine, state.engine_state)

    def _identity(self, problem: Problem, seed: int, first_step: int, initial_point: Any) -> dict[str, Any]:
        """Return what a checkpoint belongs to: names and values or fingerprints."""
        sampler, rule = self.sampler_for(problem), self.step_size_rule()
        return {
            "seed": seed,
            "first_step": first_step,
            "initial point": "random" if initial_point is None else fingerprint(arrays_of(initial_point)),
            **fingerprints(problem.manifold, "manifold"),
            **fingerprints(problem.cost, "cost"),
            **fingerprints(self, "solver", self.not_identity),
            **fingerprints(rule, "step-size rule"),
            **fingerprints(sampler, "sampler"),
            "draw of terms and step sizes": fingerprint(
                self._draw(sampler, rule, seed, first_step // sampler.block_size)
            ),
        }

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
            with finite_numbers(state.step):
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
        rng = generator(seed, sampler.stream, block)
        return sampler.draw(rng, start, size), rule(np.arange(start, start + size))


def _resumed(
    checkpoint: Saving, identity: dict[str, Any], engine: Engine, fresh: State, first_step: int, last: int
) -> tuple[State, list[dict[str, Any]]] | None:
    """Return state and rows of a checkpoint, held against a fresh state of the run; None where there is none."""
    saved = checkpoint.load(identity)
    if saved is None:
        return None
    arrays, about = saved
    where = f"the checkpoint {getattr(checkpoint, 'path', checkpoint)}"
    step = about["step"]
    try:
        engine_state = engine.unpack(arrays, fresh.engine_state)
        if engine_state.steps != step - first_step:
            raise InvalidInputError(f"its state has done {engine_state.steps} steps, not {step - first_step}")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(
            f"{where} does not hold a state of this run: {error}. Delete it or choose another path."
        ) from error
    if step > last:
        raise InvalidInputError(
            f"{where} has done {step - first_step} steps, more than the budget of {last - first_step}; choose a "
            "larger budget or another path."
        )
    return State(engine_state, step, about["seconds"]), about["rows"]
