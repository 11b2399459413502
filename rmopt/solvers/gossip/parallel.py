"""Several workers that learn one model: local steps in threads or processes, and every so many steps their mean."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number
from rmopt.core.manifold import Manifold
from rmopt.core.points import packed, unpacked
from rmopt.core.problem import Problem
from rmopt.core.world import World
from rmopt.costs.shards import Shards
from rmopt.engines.base import Engine
from rmopt.engines.gauged import Gauge, GaugedEngine, GaugedState, counting
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.manifolds.means import mean_on
from rmopt.solvers.gossip.gossip import world_of
from rmopt.solvers.run import Result
from rmopt.solvers.save import witness
from rmopt.solvers.stochastic.samplers import Sampler
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import FromFunction, StepSize
from rmopt.solvers.threads import in_threads, one_blas_thread


class Parallel(ScheduledSolver):
    """Train one model with several workers: each takes its own steps, and every so many all go on from their mean.

    They meet at the projected mean of two, of two such means, and so on.

    The solver's budget of steps is divided among the workers, which run in threads: compiled steps hold no lock, so
    that they run on as many cores. In a `world` of several processes each has some of the workers, and all call `run`
    alike; then the points of workers travel for each mean, and nothing else. Each worker draws terms for itself. The
    result depends on the number of workers, and not on that of the cores or the processes, to the bit. This is local
    SGD (Stich 2019) on a manifold.

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
    world : World, optional
        `MPIWorld()` for the processes that ``mpiexec`` started; unless given, this process alone. In several
        processes a criterion goes by steps (no `MaxSeconds`), and the
        updates in a row are those of the workers of its process. All give the same start, seed and parameters.

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
        world: World | None = None,
    ) -> None:
        self.solver = instance("solver", solver, ScheduledSolver, "a solver with a schedule, such as SGD")
        self.workers, self.every = integer("workers", workers, 1), integer("every", every, 1)
        self.first = integer("first", first, 1)
        self.step_factor = number("step_factor", step_factor, above=0)
        self.world = world_of("world", world)
        if self.world.size > self.workers:
            raise InvalidInputError(
                f"workers = {self.workers} are fewer than the {self.world.size} processes; take as many, or more."
            )

    def budget(self, problem: Problem) -> int:
        return -(-self.solver.budget(problem) // self.workers)

    def signature(self) -> dict[str, str]:
        # Their own budget may be larger the next time, as that of any solver may.
        own = self.solver.signature()
        return super().signature() | {f"workers' {name}": own[name] for name in own}

    def _alike(self, problem: Problem, initial_point: Any) -> dict[str, Any]:
        found = super()._alike(problem, initial_point)
        if not isinstance(problem.cost, Shards):
            point = problem.manifold.random_point(np.random.default_rng(0))
            numbers = {name: f"{value:.6g}" for name, value in witness(problem, point, 0).items()}
            found["the cost (Shards, where data were dealt)"] = str(numbers)
        return found

    def engine(self, problem: Problem) -> Engine:
        here = self.world.mine(self.workers)
        engines = tuple(self.solver.engine(share) for share in self._shares(problem, here))
        gauges = [engine.gauge if isinstance(engine, GaugedEngine) else None for engine in engines]
        return ParallelEngine(
            engines, problem.manifold, None if None in gauges else gauges[0], min(self.first, self.every), self.every,
            self._sizes(problem), self.world,
        )  # fmt: skip

    def sampler_for(self, problem: Problem) -> Sampler:
        here = self.world.mine(self.workers)
        return EachForItself(
            [self.solver.sampler_for(share) for share in self._shares(problem, here)], self.workers, here
        )

    def _shares(self, problem: Problem, here: list[int]) -> list[Problem]:
        """Return the problem of each worker here: all have the same data, unless these were dealt."""
        cost = problem.cost
        if not isinstance(cost, Shards):
            return [problem] * len(here)
        if list(cost.costs) != here:
            raise InvalidInputError(
                f"the Shards are of the workers {list(cost.costs)}, and those of this process are {here}; give "
                "a cost for each of them."
            )
        return [replace(problem, cost=own) for own in cost.costs.values()]

    def _sizes(self, problem: Problem) -> list[int]:
        """Return for how much each worker counts: for its terms, where data were dealt and all know their number."""
        if not isinstance(problem.cost, Shards):
            return [1] * self.workers
        here = [cost.n_terms for cost in problem.cost.costs.values()]
        sizes = [size for part in self.world.everywhere(here) for size in part]
        return [1] * self.workers if None in sizes else sizes

    def conclude(self, result: Result, work: Any, state: Any) -> Result:
        """Return the result with the updates of all processes."""
        return replace(result, updates=int(self.world.total(state.updates)))

    def step_size_rule(self) -> StepSize:
        rule, workers, factor = self.solver.step_size_rule(), self.workers, self.step_factor
        return FromFunction(lambda t: factor * rule(workers * t))


class EachForItself(Sampler):
    """The draws of some of the workers, each with random numbers of its own: an array (steps, workers, terms)."""

    def __init__(self, samplers: list[Sampler], workers: int, here: list[int]) -> None:
        self.samplers, self.workers, self.here = samplers, workers, here
        self.block_size, self.stream = samplers[0].block_size, samplers[0].stream
        self.batch_size = sum(sampler.batch_size for sampler in samplers)
        if len({(sampler.block_size, sampler.batch_size) for sampler in samplers}) > 1:
            raise InvalidInputError(
                "the samplers of the workers draw blocks or batches of different sizes; deal as many terms to each "
                "worker, or give a sampler whose blocks are alike, such as Uniform."
            )

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        each = rng.spawn(self.workers) if self.workers > 1 else [rng]
        drawn = in_threads(
            lambda sampler, worker: sampler.draw(each[worker], start, size), self.samplers, self.here
        )
        # In memory one worker after the other, as they read it.
        return np.stack(drawn).swapaxes(0, 1)


@dataclass
class ParallelState:
    """Where each worker here stands, and steps."""

    own: list[Any]
    steps: int = 0

    @property
    def updates(self) -> int:
        """Steps of the workers here that moved."""
        return sum(state.updates for state in self.own)


@dataclass(frozen=True)
class ParallelEngine(Engine):
    """Workers that run in threads, and meet at their mean.

    Attributes
    ----------
    engines : tuple of Engine
        One for each worker of this process.
    manifold : Manifold
    gauge : Gauge or None
        That of all engines: workers then meet as factors, and as points otherwise.
    first, every : int
        Steps before the first mean, and the most between means.
    shares : list of int
        For how much each worker of all processes counts in the mean.
    world : World
    """

    engines: tuple[Engine, ...]
    manifold: Manifold
    gauge: Gauge | None
    first: int
    every: int
    shares: list[int]
    world: World

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
        stands = self.engines[0].handed_over(state.own[0])
        return counting(stands, state.steps, int(self.world.total(state.updates)))

    def taken_over(self, state: Any) -> ParallelState | None:
        # The first worker of all counts the updates before.
        known = [0 if worker else state.updates for worker in self.world.mine(len(self.shares))]
        copies = [counting(unpacked(packed(state), state), state.steps, updates) for updates in known]
        own = [engine.taken_over(copy) for engine, copy in zip(self.engines, copies, strict=True)]
        return None if any(one is None for one in own) else ParallelState(own, state.steps)

    def _met(self, steps: int) -> bool:
        """Return whether the workers meet after so many steps."""
        return steps == 0 or self._next_mean(steps - 1) == steps

    def _next_mean(self, steps: int) -> int:
        """Return the number of steps, above a given one, after which the workers meet again."""
        at, gap = self.first, self.first
        while at <= steps and gap < self.every:
            gap = min(self.every, max(self.first, at // max(1, len(self.shares) - 1)))
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
            brought = in_threads(lambda engine, own: engine.dump(own), self.engines, state.own)
        else:
            meet = partial(self.gauge.mean, k=self.manifold.rank)  # type: ignore[attr-defined]
            brought = [own.factors for own in state.own]

        def join(pairs: Sequence[tuple[Any, Any]], counts: Sequence[tuple[int, int]]) -> list[Any]:
            return in_threads(meet, pairs, [np.array(count) / sum(count) for count in counts])

        ends = dict(zip(self.world.mine(len(self.shares)), brought, strict=True))
        return self.world.joined(ends, self.shares, join)

    def _from(self, engine: Engine, state: Any, mean: Any) -> Any:
        """Return the state in which a worker goes on from a mean."""
        if self.gauge is None:
            return engine.moved(state, mean)
        for own, part in zip(state.factors, mean, strict=True):
            np.copyto(own, part)
        fresh = GaugedState(state.factors, self.gauge.fresh_counters(mean))
        return engine.taken_over(counting(fresh, state.steps, state.updates))
