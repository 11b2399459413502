"""Several workers that learn one model: local steps in threads, and every so many steps their mean."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number
from rmopt.core.manifold import Manifold
from rmopt.core.points import packed, unpacked
from rmopt.core.problem import Problem
from rmopt.engines.base import Engine
from rmopt.engines.gauged import Gauge, GaugedEngine, GaugedState, counting
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.manifolds.means import mean_on
from rmopt.solvers.stochastic.samplers import Sampler
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import FromFunction, StepSize
from rmopt.solvers.threads import in_threads, one_blas_thread


class Parallel(ScheduledSolver):
    """Train one model with several workers: each takes its own steps, and every so many all go on from their mean.

    They meet at the projected mean of two, of two such means, and so on.

    The solver's budget of steps is divided among the workers, which run in threads: compiled steps hold no lock, so
    that they run on as many cores. Each worker draws terms for itself. The result depends on the number of workers,
    and not on that of the cores, to the bit. This is local SGD (Stich 2019) on a manifold.

    Parameters
    ----------
    solver : ScheduledSolver
        What each worker does: `SGD` and its relatives.
    workers : int
    every : int
        The most steps of each worker between means. A mean costs about as much as a thousand steps of two workers.
    first : int
        Steps before the first mean. The next one is as far; later ones follow after 1 / (`workers` - 1) of the steps
        before, up to `every`: points part most where the run begins. From `every` on: all are as far.
    step_factor : float
        The workers' step sizes are those of the solver times this. With many workers the steps of one are lost in the
        mean; a number a little below that of the workers wins them back.

    Raises
    ------
    MissingCapabilityError
        In `run`, on manifolds without `projected_mean`.

    See Also
    --------
    SGD : one worker.

    References
    ----------
    Stich, Local SGD converges fast and communicates little, ICLR 2019, arXiv:1805.09767.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SGD, Parallel
    >>> rng = np.random.default_rng(0)
    >>> left, right = rng.standard_normal((2, 400, 20))
    >>> truth = np.outer(*rng.standard_normal((2, 20)))
    >>> y = np.sign(np.einsum("ij,jk,ik->i", left, truth, right))
    >>> problem = Problem(FixedRankEmbedded(20, 20, 1), BilinearSum(left, right, targets=y))
    >>> solver = Parallel(SGD(0.01, max_iter=10_000), workers=2, every=1000)
    >>> solver.run(problem, random_state=0).steps
    5000
    """

    not_identity = (*ScheduledSolver.not_identity, "solver")

    def __init__(
        self,
        solver: ScheduledSolver,
        workers: int = 2,
        *,
        every: int = 100_000,
        first: int = 250,
        step_factor: float = 1.0,
    ) -> None:
        self.solver = instance("solver", solver, ScheduledSolver, "a solver with a schedule, such as SGD")
        self.workers, self.every = integer("workers", workers, 1), integer("every", every, 1)
        self.first = integer("first", first, 1)
        self.step_factor = number("step_factor", step_factor, above=0)

    def budget(self, problem: Problem) -> int:
        return -(-self.solver.budget(problem) // self.workers)

    def signature(self) -> dict[str, str]:
        # Their own budget may be larger the next time, as that of any solver may.
        workers = {f"workers' {name}": value for name, value in self.solver.signature().items()}
        return super().signature() | workers

    def engine(self, problem: Problem) -> Engine:
        engines = tuple(self.solver.engine(problem) for _ in range(self.workers))
        gauge = engines[0].gauge if isinstance(engines[0], GaugedEngine) else None
        return ParallelEngine(engines, problem.manifold, gauge, min(self.first, self.every), self.every)

    def sampler_for(self, problem: Problem) -> Sampler:
        return EachForItself(self.solver.sampler_for(problem), self.workers)

    def step_size_rule(self) -> StepSize:
        rule, workers, factor = self.solver.step_size_rule(), self.workers, self.step_factor
        return FromFunction(lambda t: factor * rule(workers * t))


class EachForItself(Sampler):
    """The draws of some workers, each with random numbers of its own: an array (steps, workers, terms)."""

    def __init__(self, sampler: Sampler, workers: int) -> None:
        self.sampler, self.workers = sampler, workers
        self.block_size, self.stream = sampler.block_size, sampler.stream
        self.batch_size = workers * sampler.batch_size

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        each = rng.spawn(self.workers) if self.workers > 1 else [rng]
        drawn = in_threads(lambda own: self.sampler.draw(own, start, size), each)
        # In memory one worker after the other, as they read it.
        return np.stack(drawn).swapaxes(0, 1)


@dataclass
class ParallelState:
    """Where each worker stands, and steps."""

    own: list[Any]
    steps: int = 0

    @property
    def updates(self) -> int:
        """Steps of the workers that moved."""
        return sum(state.updates for state in self.own)


@dataclass(frozen=True)
class ParallelEngine(Engine):
    """Workers that run in threads, and meet at their mean.

    Attributes
    ----------
    engines : tuple of Engine
        One for each worker.
    manifold : Manifold
    gauge : Gauge or None
        That of all engines: workers then meet as factors, and as points otherwise.
    first, every : int
        Steps before the first mean, and the most between means.
    """

    engines: tuple[Engine, ...]
    manifold: Manifold
    gauge: Gauge | None
    first: int
    every: int

    def __post_init__(self) -> None:
        # Says what has no mean.
        mean_on(self.manifold)

    def load(self, point: Any) -> ParallelState:
        return ParallelState(in_threads(lambda engine: engine.load(point), self.engines))

    @one_blas_thread()
    def advance(self, state: ParallelState, schedule: Array, etas: Array) -> ParallelState:
        if not len(etas):
            # Compiles what the workers need, once.
            pairs = zip(self.engines, state.own, strict=True)
            return replace(state, own=[engine.advance(own, schedule, etas) for engine, own in pairs])
        parts, done = np.reshape(schedule, (len(schedule), len(self.engines), -1)), 0
        while done < len(etas):
            end = min(len(etas), done + self._next_mean(state.steps) - state.steps)
            # Terms of other workers may lie between those of one.
            terms = map(np.ascontiguousarray, parts[done:end].swapaxes(0, 1))
            calls = zip(self.engines, state.own, terms, strict=True)
            own = in_threads(lambda call, etas=etas[done:end]: call[0].advance(*call[1:], etas), calls)
            state = replace(state, own=own, steps=state.steps + end - done)
            state, done = self._at_mean(state) if self._met(state.steps) else state, end
        return state

    @one_blas_thread()
    def dump(self, state: ParallelState) -> Any:
        if self._met(state.steps):
            return self.engines[0].dump(state.own[0])
        mean = self._mean(state)
        return mean if self.gauge is None else self.gauge.point_of(mean, self.manifold.rank)  # type: ignore[attr-defined]

    @one_blas_thread()
    def handed_over(self, state: ParallelState) -> Any:
        if not self._met(state.steps):
            state = self._at_mean(state)
        return counting(self.engines[0].handed_over(state.own[0]), state.steps, state.updates)

    def taken_over(self, state: Any) -> ParallelState | None:
        own = []
        for engine in self.engines:
            # The first worker counts the updates before.
            copy = counting(unpacked(packed(state), state), state.steps, 0 if own else state.updates)
            own.append(engine.taken_over(copy))
        return None if None in own else ParallelState(own, state.steps)

    def _met(self, steps: int) -> bool:
        """Return whether the workers meet after so many steps."""
        return steps == 0 or self._next_mean(steps - 1) == steps

    def _next_mean(self, steps: int) -> int:
        """Return the number of steps, above a given one, after which the workers meet again."""
        at, gap = self.first, self.first
        while at <= steps and gap < self.every:
            gap = min(self.every, max(self.first, at // max(1, len(self.engines) - 1)))
            at += gap
        return at + max(0, (steps - at) // self.every + 1) * self.every

    def _at_mean(self, state: ParallelState) -> ParallelState:
        """Return the state in which all workers go on from their mean."""
        try:
            mean = self._mean(state)
        except (InvalidInputError, np.linalg.LinAlgError) as error:
            raise DivergedError(
                f"the run diverged at step {state.steps}, where workers met ({str(error).rstrip('.')}); take a "
                "smaller step size.",
                state.steps,
            ) from error
        return replace(state, own=in_threads(partial(self._from, mean=mean), self.engines, state.own))

    def _mean(self, state: ParallelState) -> Any:
        """Return where all workers meet, as factors or as a point."""
        if self.gauge is None:
            meet = mean_on(self.manifold)
            ends = in_threads(lambda engine, own: engine.dump(own), self.engines, state.own)
        else:
            meet = partial(self.gauge.mean, k=self.manifold.rank)  # type: ignore[attr-defined]
            ends = [own.factors for own in state.own]
        # The first two and the next two, and so on, until one is left.
        counts = [1] * len(ends)
        while len(ends) > 1:
            pairs, sizes = (list(zip(these[::2], these[1::2], strict=False)) for these in (ends, counts))
            ends[: 2 * len(pairs)] = in_threads(meet, pairs, [np.array(size) / sum(size) for size in sizes])
            counts[: 2 * len(pairs)] = map(sum, sizes)
        return ends[0]

    def _from(self, engine: Engine, state: Any, mean: Any) -> Any:
        """Return the state in which a worker goes on from a mean."""
        if self.gauge is None:
            return engine.moved(state, mean)
        for own, part in zip(state.factors, mean, strict=True):
            np.copyto(own, part)
        fresh = GaugedState(state.factors, self.gauge.fresh_counters(mean))
        return engine.taken_over(counting(fresh, state.steps, state.updates))
