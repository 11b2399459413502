"""Several workers that learn one model: local steps in threads or processes, and every so many steps their mean."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number
from rmopt.core.errors import InvalidInputError
from rmopt.core.problem import Problem
from rmopt.engines.base import Engine
from rmopt.manifolds.means import mean_on
from rmopt.solvers.base import Result
from rmopt.solvers.samplers import Sampler
from rmopt.solvers.scheduled import ScheduledSolver
from rmopt.solvers.step_sizes import StepSize
from rmopt.solvers.threads import one_blas_thread
from rmopt.solvers.world import ONE_PROCESS, World


class Parallel(ScheduledSolver):
    """Train one model with several workers: each takes its own steps, and every so many all go on from their mean.

    The solver's budget of steps is divided among the workers, which run in threads: compiled steps hold no lock, so
    that they run on as many cores. In a `world` of several processes each has some of the workers, and all call `run`
    alike; then the points of workers travel for each mean, and nothing else. Each worker draws terms for itself. The
    result depends on the number of workers, and not on that of the cores or the processes, to the bit. This is local
    SGD (Stich 2019) on a manifold, with the mean of `projected_mean`.

    Parameters
    ----------
    solver : ScheduledSolver
        What each worker does: `SGD` and its relatives.
    workers : int
    every : int
        Steps of each worker between means. A mean costs about as much as several hundred steps.
    outer_step : float
        How far to go from the last mean towards the next one; above 1 it goes beyond. With many workers the steps of
        one are lost in the mean, and 2 or more wins them back.
    world : World, optional
        `MPIWorld()` for the processes that ``mpiexec`` started; unless given, this process alone. In several
        processes a checkpoint is a `SharedCheckpoint`, a criterion goes by steps, and the updates in a row are those
        of the workers of its process.

    Raises
    ------
    InvalidInputError
        When there are more processes than workers.
    MissingCapabilityError
        In `run`, on manifolds without `projected_mean`.

    See Also
    --------
    SGD : one worker.

    References
    ----------
    Stich, Local SGD converges fast and communicates little, ICLR 2019.

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
        every: int = 20_000,
        outer_step: float = 1.0,
        world: World | None = None,
    ) -> None:
        self.solver = instance("solver", solver, ScheduledSolver, "a solver with a schedule, such as SGD")
        self.workers, self.every = integer("workers", workers, 1), integer("every", every, 1)
        self.outer_step = number("outer_step", outer_step, above=0)
        self.max_iter = -(-solver.max_iter // self.workers)
        self.step_size = solver.step_size
        self.world = ONE_PROCESS if world is None else instance("world", world, World, "a World")
        if self.world.size > self.workers:
            raise InvalidInputError(
                f"workers = {self.workers} are fewer than the {self.world.size} processes; take as many, or more."
            )

    def identity(self, problem: Problem, seed: int, first_step: int) -> dict[str, Any]:
        # Their own budget may be larger the next time, as that of any solver may.
        workers = self.solver.identity(problem, seed, first_step)
        return super().identity(problem, seed, first_step) | {
            f"workers' {name}": one for name, one in workers.items()
        }

    def engine(self, problem: Problem) -> Engine:
        own = tuple(self.solver.engine(problem) for _ in self.world.mine(self.workers))
        mean = mean_on(problem.manifold)
        return ParallelEngine(own, mean, self.every, self.outer_step, self.workers, self.world)

    def sampler_for(self, problem: Problem) -> Sampler:
        return EachForItself(self.solver.sampler_for(problem), self.workers, self.world.mine(self.workers))

    def conclude(self, result: Result, work: Any, state: Any) -> Result:
        """Return the result with the updates of all processes."""
        return replace(result, updates=int(self.world.total(state.updates)))

    def step_size_rule(self) -> StepSize:
        return Stretched(self.solver.step_size_rule(), self.workers)


class EachForItself(Sampler):
    """The draws of one sampler for several workers, side by side, each with random numbers of its own.

    Parameters
    ----------
    sampler : Sampler
    workers : int
    mine : list of int
        The workers for which terms are drawn here.
    """

    def __init__(self, sampler: Sampler, workers: int, mine: list[int]) -> None:
        self.sampler, self.workers, self.mine = sampler, workers, mine
        self.block_size, self.batch_size = sampler.block_size, len(mine) * sampler.batch_size
        self.stream = sampler.stream

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        each = rng.spawn(self.workers) if self.workers > 1 else [rng]
        return np.hstack([self.sampler.draw(each[worker], start, size) for worker in self.mine])


@dataclass(frozen=True)
class Stretched(StepSize):
    """A rule of step sizes that counts the steps of all workers.

    Attributes
    ----------
    rule : StepSize
    workers : int
    """

    rule: StepSize
    workers: int

    def __call__(self, t: Array) -> Array:
        return self.rule(self.workers * np.asarray(t))


@dataclass
class ParallelState:
    """Where each worker stands, the last mean, and counters."""

    own: list[Any]
    mean: Any
    steps: int = 0

    @property
    def updates(self) -> int:
        """Steps of all workers that moved."""
        return sum(state.updates for state in self.own)


@dataclass(frozen=True)
class ParallelEngine(Engine):
    """Workers that run in threads, and meet at their mean.

    Attributes
    ----------
    engines : tuple of Engine
        One for each worker of this process.
    mean : callable
        Of points and weights.
    every : int
        Steps between means.
    outer_step : float
    workers : int
        Of all processes.
    world : World
    """

    engines: tuple[Engine, ...]
    mean: Callable[[list[Any], Array], Any]
    every: int
    outer_step: float
    workers: int
    world: World

    def load(self, point: Any) -> ParallelState:
        return ParallelState([engine.load(point) for engine in self.engines], point)

    def advance(self, state: ParallelState, schedule: Array, etas: Array) -> ParallelState:
        count, done = len(self.engines), 0
        if not len(etas):
            # Compiles what the workers need.
            pairs = zip(self.engines, state.own, strict=True)
            return replace(state, own=[engine.advance(own, schedule, etas) for engine, own in pairs])
        parts = np.reshape(schedule, (len(schedule), count, -1))
        with self.world.guard(), ThreadPoolExecutor(count) as threads:
            while done < len(etas):
                end = min(len(etas), done + self.every - state.steps % self.every)
                terms = [np.ascontiguousarray(parts[done:end, worker]) for worker in range(count)]
                given = zip(state.own, terms, [etas[done:end]] * count, strict=True)
                own = threads.map(lambda engine, part: engine.advance(*part), self.engines, given)
                state = replace(state, own=list(own), steps=state.steps + end - done)
                done = end
                if state.steps % self.every == 0:
                    state = self._met(state)
        return state

    def dump(self, state: ParallelState) -> Any:
        return state.mean if state.steps % self.every == 0 else self._mean(state)

    def _met(self, state: ParallelState) -> ParallelState:
        """Return the state in which all workers go on from their mean."""
        mean = self._mean(state)
        fresh = [engine.moved(own, mean) for engine, own in zip(self.engines, state.own, strict=True)]
        return replace(state, own=fresh, mean=mean)

    @one_blas_thread()
    def _mean(self, state: ParallelState) -> Any:
        here = self.world.mine(self.workers)
        own = {
            worker: engine.dump(stood)
            for worker, engine, stood in zip(here, self.engines, state.own, strict=True)
        }
        points = self.world.gather(own, self.workers)
        if len(points) == 1 and self.outer_step == 1.0:
            return points[0]
        weights = np.full(len(points), self.outer_step / len(points))
        if self.outer_step == 1.0:
            return self.mean(points, weights)
        return self.mean([state.mean, *points], np.append(1.0 - self.outer_step, weights))
