"""The loop shared by all solvers."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

import rmopt
from rmopt.core import points
from rmopt.core.arguments import Explained, callable_of, explained, flag, instance, optional, shown
from rmopt.core.problem import Problem
from rmopt.core.runs import running
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.core.values import Value, written
from rmopt.core.world import ONE_PROCESS, World
from rmopt.errors import (
    DivergedError,
    InvalidInputError,
    MissingCapabilityError,
    RmoptError,
    StorageError,
    broke_down,
)
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.result import Result
from rmopt.solvers.save import Checkpoint, Saver, difference, witness
from rmopt.solvers.stop import Converged, Stop, as_reason, asked
from rmopt.solvers.threads import Interrupts, blas_threads

# The longest uninterrupted piece of work in seconds: the resolution of progress and of Ctrl-C.
PIECE_SECONDS = 0.1

StopRule = Callable[[Sequence[Mapping[str, Any]]], str | None]
Callback = Callable[[dict[str, Any]], Any]


@contextmanager
def finite_numbers(step: int) -> Iterator[None]:
    """Turn errors of linear algebra for matrices that are singular or not finite into `DivergedError`."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if not isinstance(error, RmoptError) and broke_down(error):
            raise DivergedError(
                f"the run broke down at step {step} or soon after ({error}): a matrix is singular or not finite; try "
                "a tenth of the step size, scale the data, or find points at which the cost is not finite.", step,
            ) from error  # fmt: skip
        raise


class Solver(Value, Explained, ABC):
    """The base of all solvers: a value with parameters, whose runs are sequences of states.

    A solver defines how a run begins and continues. `iterate` is the loop, and `run` adds recorder, checkpoint and
    criteria. A state is a dataclass or a named tuple of arrays, points and numbers, so that it can be saved. It has
    ``steps`` and ``updates``, and the ``point`` unless `point` computes it. `advance` returns a new state. Solvers of
    the same class and parameters are equal.

    Attributes
    ----------
    max_iter : int
        The budget, unless `budget` is overridden.
    keeps_constraints : bool
        Whether it handles the parts of a `ConstrainedProblem` or a `NonsmoothProblem` outside the cost.
    needs_gradients : bool
        Whether it needs gradients. Costs without them are then refused.
    keeps_single : bool
        Whether runs from a point of single precision stay in it. Other solvers convert it to double.
    takes_all_arrays : bool
        Whether points may be complex or of other libraries than numpy. Other solvers refuse them.
    threads : int or None
        The largest number of threads of numpy's BLAS in a run, or None for its present number. That of scipy has one.
        If several processes share a run, each has one thread in any case, for bit-identical results.
    not_identity : tuple of str
        The attributes that may differ between a run and its continuation from a checkpoint: those of the budget and
        the machine. All others, as shown by `repr`, must be the same.

    Examples
    --------
    >>> import numpy as np
    >>> from typing import NamedTuple
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import Solver
    >>> class State(NamedTuple):
    ...     point: np.ndarray
    ...     steps: int = 0
    ...     updates: int = 0
    >>> class FixedSteps(Solver):
    ...     def __init__(self, max_iter=100):
    ...         self.max_iter = max_iter
    ...
    ...     def begin(self, work, point):
    ...         return State(point)
    ...
    ...     def advance(self, work, state, steps):
    ...         point = state.point
    ...         for _ in range(steps):
    ...             down = -0.1 * work.riemannian_gradient(point)
    ...             point = work.manifold.retraction(point, down)
    ...         return State(point, state.steps + steps, state.updates + steps)
    >>> problem = Problem(Sphere(3), autograd_cost(lambda x: x[0]))
    >>> FixedSteps().run(problem, random_state=0).point.round(3)
    array([-1.,  0.,  0.])
    """

    max_iter: int = 1000
    keeps_constraints: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = True
    keeps_single: ClassVar[bool] = False
    takes_all_arrays: ClassVar[bool] = False
    threads: int | None = 1
    elsewhere: ClassVar[dict[str, str]] = {
        "verbose": "give verbose= to run",
        "callback": "give callback= to run",
        "x0": "the start is initial_point=",
        **dict.fromkeys(("max_iter", "max_iterations", "maxiter"), "give run stop=MaxSteps(…)"),
        "tol": "give run stop=GradientNorm(…)",
        "seed": "give random_state= to run",
    }
    not_identity: ClassVar[tuple[str, ...]] = ("max_iter", "n_epochs", "world", "threads", "_max_iter")

    def __repr__(self) -> str:
        held = ((name.lstrip("_"), value) for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({', '.join(f'{name}={shown(value)}' for name, value in held)})"

    def signature(self) -> dict[str, str]:
        """Return class and attributes as text, without those that a continuation may change."""
        held = {name: value for name, value in vars(self).items() if name not in self.not_identity}
        return {"solver": type(self).__name__, **{f"solver.{name}": written(held[name]) for name in held}}

    # The parts of a solver

    def prepare(self, problem: Problem, seed: int) -> Any:
        """Return the object for the other methods: the problem, or one prepared from it once for a run."""
        return problem

    def beside(self, stop: StopRule | None) -> Self:
        """Return the solver for a run with a criterion."""
        return self

    @abstractmethod
    def begin(self, work: Any, point: Any) -> Any:
        """Return the initial state of a run from a point."""

    @abstractmethod
    def advance(self, work: Any, state: Any, steps: int) -> Any:
        """Return the state after at least one and at most `steps` more steps, or none if `steps` is 0."""

    def point(self, work: Any, state: Any) -> Any:
        """Return the point of a state."""
        return state.point

    def observe(self, work: Any, state: Any) -> dict[str, float]:
        """Return numbers on the solver's progress. If there are any, each step has a row of them."""
        return {}

    def finished(self, work: Any, state: Any) -> str | None:
        """Return why a run ends at a state, as `Converged` if it has reached its goal, or None."""
        return None

    def check_every(self, problem: Problem) -> int | None:
        """Return the number of steps between calls of `finished`, or None for no calls."""
        return 1

    def budget(self, problem: Problem) -> int:
        """Return the number of steps after which a run ends in any case."""
        return self.max_iter

    def start(self, problem: Problem, rng: np.random.Generator) -> Any:
        """Return the default initial point of a run, a random one."""
        return problem.manifold.random_point(rng)

    def check_problem(self, problem: Problem) -> None:
        """Refuse anything but a problem, and constraints that the solver would ignore."""
        instance("problem", problem, Problem, "an rmopt.Problem(manifold, cost)")
        if self.needs_gradients and not problem.cost.has_gradient:
            raise problem.cost._without_gradient()
        if not self.takes_all_arrays and getattr(problem.manifold, "field", "real") != "real":
            raise MissingCapabilityError(
                f"{type(self).__name__} takes real numbers only, and points of {problem.manifold} are complex; take "
                "a full-gradient solver, such as ConjugateGradient."
            )
        if not self.keeps_constraints:
            problem.hold_to_cost(type(self).__name__)

    def check_start(self, problem: Problem, point: Any) -> str | None:
        """Return why a run cannot begin at a point, or None."""
        return problem.manifold.check_point(point)

    def check_end(self, problem: Problem, point: Any) -> str | None:
        """Return why a run cannot end at a point, or None."""
        return self.check_start(problem, point)

    def _started(self, problem: Problem, initial_point: Any, rng: Any) -> Any:
        """Return the initial point of a run, in the precision of its steps."""
        given = None if initial_point is None else problem.manifold.as_point(initial_point)
        start = self.start(problem, rng) if given is None else given
        start = points.in_precision(points.of_reals(start))
        if not self.takes_all_arrays:
            points.plain_reals(start, type(self).__name__)
        reason = self.check_start(problem, start)
        if reason is not None:
            raise InvalidInputError(f"the initial point is not on {problem.manifold}: {reason}.")
        if self.keeps_single or points.coarseness_of(start) == 1.0:
            return start
        # It is off by rounding, and a step of length 0 leads back.
        exact = points.in_precision(start, np.float64)
        return problem.manifold.retraction(exact, problem.manifold.zero_vector(exact))

    def diverged(self, step: int) -> DivergedError:
        """Return the error of a run whose point is no longer finite."""
        return DivergedError(
            f"the run diverged at step {step}: the point holds NaN or infinity; check that cost and gradient are "
            "finite on the manifold, and the scale of the data.",
            step,
        )

    def witness(self, problem: Problem, work: Any, state: Any, seed: int) -> dict[str, float]:
        """Return numbers by which a run resumed from a checkpoint recognises its problem."""
        return witness(problem, self.point(work, state), seed, np.inf)

    def _alike(self, problem: Problem, initial_point: Any) -> dict[str, Any]:
        """Return values that must be the same in all processes, in addition to the arguments of a run."""
        return {
            **self.signature(),
            "budget": self.budget(problem),
            "initial point": "random" if initial_point is None else written(points.arrays_of(initial_point)),
        }

    def conclude(self, result: Result, work: Any, state: Any) -> Result:
        """Return the result with the solver's additions."""
        return result

    # The loop

    def iterate(
        self,
        problem: Problem,
        initial_point: Any = None,
        *,
        random_state: int | np.random.Generator | None = None,
        stop: StopRule | None = None,
    ) -> Iterator[Any]:
        """Yield the states of a run, the first one before any step.

        Solvers that follow a schedule yield after pieces of about a tenth of a second, others after each step. The
        run owns the state, and the next piece of a schedule may overwrite it: copy data to keep or change.

        Parameters
        ----------
        problem : Problem
        initial_point : point or Result, optional
        random_state : int, Generator or None
        stop : Stop or callable, optional
            As in `run`.

        Examples
        --------
        >>> import numpy as np
        >>> from rmopt import Problem, autograd_cost
        >>> from rmopt.manifolds import Euclidean
        >>> from rmopt.solvers import GradientDescent
        >>> problem = Problem(Euclidean(3, 2), autograd_cost(lambda X: ((X - 1.0) ** 2).sum()))
        >>> for state in GradientDescent().iterate(problem, np.zeros((3, 2))):
        ...     print(state.steps, round(state.cost, 3))
        0 6.0
        1 2.101
        2 0.0
        """
        states = self._states(problem, initial_point, random_state, stop)
        while True:
            # The caller's work on a state has the caller's threads.
            with self._held_threads(problem):
                state = next(states, None)
            if state is None:
                return
            yield state

    def _states(
        self, problem: Problem, initial_point: Any, random_state: Any, stop: StopRule | None = None
    ) -> Iterator[Any]:
        """Yield the states of a run within another one, with the latter's threads."""
        with running():
            run = _Run(self, problem, initial_point, random_state, stop)
            yield run.state
            while run.reason(run.measure()) is None and run.next_piece():
                yield run.state

    def _held_threads(self, problem: Problem) -> AbstractContextManager[int | None]:
        return blas_threads(self.threads if _world(self, problem).size == 1 else 1)

    @explained
    @running()
    def run(
        self,
        problem: Problem,
        initial_point: Any = None,
        *,
        random_state: int | np.random.Generator | None = None,
        recorder: Recorder | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
        stop: StopRule | None = None,
        callback: Callback | None = None,
        verbose: bool = False,
    ) -> Result:
        """Run to the solver's own end, to the end of the budget, or until `stop` returns a reason.

        Parameters
        ----------
        problem : Problem
        initial_point : point or Result, optional
            Also the result of another run. Defaults to a random point of the manifold.
        random_state : int, Generator or None
            Equal integers give bit-identical results, if `Result.threads` is also equal.
        recorder : Recorder, optional
            Measures metrics during the run, and may draw a progress bar.
        checkpoint : path or Checkpoint, optional
            Save during the run, and resume if the file exists already, with its seed if `random_state` is None. The
            budget may then be larger than before.
        stop : Stop or callable, optional
            A criterion such as `MaxSeconds`, in addition to the solver's own end. One with `GradientNorm` replaces a
            `tol` that was not given. It gets the rows after each measurement and returns a reason to stop, or None.
            Without measurements it is called after each piece of work, about every tenth of a second, with rows of
            step, updates and seconds.
        callback : callable, optional
            A function of each new row.
        verbose : bool
            Draw a progress bar with the newest row, and tell why the run ended, as ``Recorder(progress=True)`` does.

        Returns
        -------
        Result

        Raises
        ------
        InvalidInputError
            If the initial point is not on the manifold, or the checkpoint is of another run.
        DivergedError
            If numbers are no longer finite, or the end is not on the manifold. Checkpoints and logs stay unchanged.
        StorageError
            If the checkpoint is damaged.
        """
        recorder = Recorder() if recorder is None else instance("recorder", recorder, Recorder, "a Recorder")
        callback = optional(callable_of)("callback", callback)
        before, recorder.progress = recorder.progress, flag("verbose", verbose) or recorder.progress
        try:
            with self._held_threads(problem) as held:
                result = self._whole(
                    problem, initial_point, random_state, stop, recorder, checkpoint, held, callback
                )
            if recorder.progress:
                print(f"{'not ' * (not result.converged)}converged ({result.stopped_by})", file=sys.stderr)
            return result
        finally:
            recorder.progress = before

    def _whole(self, *arguments: Any) -> Result:
        """Do the run of `run`."""
        return _Run(self, *arguments).whole()


def _world(solver: Solver, problem: Problem) -> World:
    """Return the processes that share a run."""
    return getattr(solver, "world", getattr(getattr(problem, "cost", None), "world", None)) or ONE_PROCESS


class _Run:
    """One run of a solver: its state, its current step, and its time so far."""

    def __init__(
        self, solver: Solver, problem: Problem, initial_point: Any, random_state: Any,
        stop: StopRule | None, recorder: Recorder | None = None, checkpoint: Any = None,
        threads: int | None = None, callback: Callback | None = None,
    ) -> None:  # fmt: skip
        solver.check_problem(problem)
        self.stop = optional(callable_of)("stop", stop)
        self.solver = solver = solver.beside(stop)
        self.problem, self.threads, self.callback = problem, threads, callback
        self.recorder = Recorder() if recorder is None else recorder
        world = _world(solver, problem)
        self.saver = None if checkpoint is None else Saver("checkpoint", checkpoint, world)
        seed = None if random_state is None else seed_of(random_state)
        start = initial_point.point if isinstance(initial_point, Result) else initial_point
        if world.size > 1:
            # If one process went elsewhere than others, they would mix two runs, or wait forever.
            if isinstance(stop, Stop) and stop.waits_for("seconds"):
                raise InvalidInputError(
                    "each process has its own clock, and MaxSeconds would end them at different steps; take "
                    "MaxSteps, or a smaller budget."
                )
            about = {"checkpoint": checkpoint is not None, "random_state": seed}
            world.check_alike(solver._alike(problem, start) | about)
        if seed is None and self.saver is not None:
            seed = self.saver.seed()
        self.seed = seed = world.first(seed_of(seed))
        self.last = solver.budget(problem)
        self.asked_at = stop.due() if isinstance(stop, Stop) else np.inf
        self.check_every = solver.check_every(problem)
        self.work = solver.prepare(problem, seed)
        start = solver._started(problem, start, generator(seed, Stream.POINT) if start is None else None)
        self.step, self.seconds = 0, 0.0
        self.rows: list[dict[str, Any]] = []
        with finite_numbers(0):
            self.state = solver.begin(self.work, start)
        if self.saver is not None:
            self._resume(self.saver, points.coarseness_of(start))
        # No steps: compiled loops are loaded or compiled before the clock starts.
        self.state = solver.advance(self.work, self.state, 0)
        self.observes = bool(solver.observe(self.work, self.state))
        self.measures = self.observes or bool(self.recorder.metrics)
        self.piece = 64

    def whole(self) -> Result:
        """Run to the end."""
        solver, recorder, saver = self.solver, self.recorder, self.saver
        rows, resumed = self.rows, self.step > 0
        if resumed and not (self.observes or self._is_planned(self.step)):
            # The end of a smaller budget was also measured.
            rows = [row for row in rows if row["step"] < self.step]
        recorder.begin(self.step, self.last, rows)
        if saver is not None:
            # States that cannot be saved are refused before work starts.
            points.packed(self.state)
        try:
            with Interrupts(saver is not None and saver.world.size == 1) as interrupts:
                if not recorder.rows:
                    self.measure()
                early = self.reason(bool(recorder.rows)) if resumed or self.step < self.last else None
                while early is None and self.next_piece():
                    recorder.advance(self.step)
                    due = self.observes or (self.measures and self._is_planned(self.step))
                    if due or not self.measures:
                        self.measure()
                    early = self.reason(due)
                    if saver is not None and early is None and self.step < self.last:
                        if interrupts.pending is not None or saver.due(self.step):
                            self._save(saver)
                        interrupts.deliver()
                if early is not None and recorder.rows and recorder.rows[-1]["step"] < self.step:
                    self.measure()
                point = self._point()
                if (off := solver.check_end(self.problem, point)) is not None:
                    raise DivergedError(
                        f"the run ended off {self.problem.manifold}: {off}; test the retraction by "
                        "rmopt.checks.check_retraction, or take a smaller step size.",
                        self.step,
                    )
                if saver is not None:
                    self._save(saver)
                if self.step == 0:
                    # If no step was done, it may be the caller's own.
                    point = deepcopy(point)
        finally:
            recorder.end()
        result = Result(
            point=point,
            steps=self.step,
            updates=int(self.state.updates),
            seconds=self.seconds,
            stopped_by=f"the budget of {self.last} steps" if early is None else str(early),
            seed=self.seed,
            history=recorder.rows,
            converged=isinstance(early, Converged),
            threads=self.threads,
        )
        return solver.conclude(result, self.work, self.state)

    def next_piece(self) -> bool:
        """Do one piece of work, or return False if the budget is used up. The pieces do not affect the result."""
        step, check = self.step, self.check_every
        if step >= self.last:
            return False
        if check == 1 or self.observes:
            steps = 1
        else:
            check_at = np.inf if check is None else (step // check + 1) * check
            asked_at = self.asked_at if self.asked_at > step else np.inf
            saved_at = np.inf if self.saver is None else self.saver.pause_after(step)
            measured_at = self.recorder.next_after(step)
            steps = int(min(self.last, step + self.piece, check_at, asked_at, saved_at, measured_at)) - step
        begun = time.perf_counter()
        try:
            self.state = self.solver.advance(self.work, self.state, steps)
        except (ValueError, RuntimeError):
            # Entered upon an error alone, which saves each step the cost of a generator.
            with finite_numbers(step):
                raise
        elapsed = time.perf_counter() - begun
        self.seconds += elapsed
        self.step = int(self.state.steps)
        if not step < self.step <= step + steps:
            raise InvalidInputError(
                f"{type(self.solver).__name__}.advance went from step {step} to {self.step}, and it may do 1 to "
                f"{steps} steps; count them in `steps` of the state."
            )
        # At most eight times as many steps as before, whose time is a weak guide.
        self.piece = max(1, min(int(self.piece * PIECE_SECONDS / max(elapsed, PIECE_SECONDS / 8)), 2**40))
        return True

    def reason(self, measured: bool) -> str | None:
        """Return the reason to stop here, or None."""
        if self.stop is not None and (measured or not self.measures):
            # A resumed run has the start of its first part.
            begun = {"step": 0, "updates": 0, "seconds": 0.0}
            rows = self.recorder.rows if self.measures else [begun, self._row()]
            if (early := asked(self.stop, rows)) is not None:
                return early
        check, step = self.check_every, self.step
        if check is None or step % check or (check > 1 and step == 0):
            return None
        ended = self.solver.finished(self.work, self.state)
        return ended and as_reason(f"{type(self.solver).__name__}.finished", ended)

    def measure(self) -> bool:
        """Add a row if there is something to record, and return whether there is. The callback gets all rows."""
        if self.measures:
            self.recorder.measure(points.plain(self._point()) if self.recorder.metrics else None, self._row())
        if self.callback is not None:
            self.callback(self.recorder.rows[-1] if self.measures else self._row())
        return self.measures

    def _is_planned(self, step: int) -> bool:
        return step in (self.last, self.asked_at, self.recorder.next_after(step - 1))

    def _row(self) -> dict[str, Any]:
        """Return a new row with the state of the run and the solver's observations."""
        row = {"step": self.step, "updates": int(self.state.updates), "seconds": self.seconds}
        return row | self.solver.observe(self.work, self.state)

    def _point(self) -> Any:
        """Return the current point of the run, or raise an error if it is not finite."""
        with np.errstate(all="ignore"), finite_numbers(self.step):
            point = self.solver.point(self.work, self.state)
        if not points.is_finite(point):
            raise self.solver.diverged(self.step - 1)
        return point

    def _witness(self, state: Any) -> dict[str, float]:
        return self.solver.witness(self.problem, self.work, state, self.seed)

    def _save(self, saver: Saver) -> None:
        """Save the state, and numbers to recognise its problem."""
        saver.save(
            points.packed(self.state), self.identity, self.step, seconds=self.seconds,
            rows=self.recorder.rows, witness=[self.begun, self._witness(self.state)], threads=self.threads,
        )  # fmt: skip

    def _resume(self, saver: Saver, coarseness: float) -> None:
        """Resume from the checkpoint if there is one, after a comparison of its state with a fresh one of the run."""
        tag, where = saver.plan.tag, f"the checkpoint {saver.path}"
        self.identity = {
            **(tag if isinstance(tag, dict) else {"tag": tag}), "seed": self.seed,
            **self.solver.signature(), "manifold": written(self.problem.manifold), "rmopt": rmopt.__version__,
        }  # fmt: skip
        self.begun = self._witness(self.state)
        saved = saver.load(self.identity)
        if saved is None:
            return
        arrays, about = saved
        try:
            state = points.unpacked(arrays, self.state)
            step, seconds, rows = about["step"], float(about["seconds"]), about["rows"]
            if state.steps != step:
                raise InvalidInputError(f"its state has done {state.steps} steps, not {step}")
            apart = difference(about["witness"], [self.begun, self._witness(state)], coarseness)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(
                f"{where} does not hold a state of this run: {error}. Delete it or choose another path."
            ) from error
        if apart is not None:
            raise InvalidInputError(
                f"{where} belongs to another run: {apart}. Restore its data, code or start, delete it, or choose "
                "another path."
            )
        if step > self.last:
            raise InvalidInputError(
                f"{where} has done {state.steps} steps, more than the budget of {self.last}; choose a "
                "larger budget or another path."
            )
        if (before := about.get("threads", self.threads)) != self.threads:
            rmopt.errors.warn(
                f"{where} was saved with {before} threads of BLAS, and the run continues with {self.threads}: its "
                "last bits may differ from those of an uninterrupted run; set `threads` of the solver.",
                RuntimeWarning,
            )
        self.state, self.step, self.seconds, self.rows = state, step, seconds, rows
