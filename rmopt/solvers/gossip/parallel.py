"""Several workers that train one model by local steps in threads or processes, and occasional means."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number, optional
from rmopt.core.manifold import Manifold
from rmopt.core.points import packed, unpacked
from rmopt.core.problem import Problem
from rmopt.core.world import World
from rmopt.costs.shards import Shards
from rmopt.engines.base import Engine, lost
from rmopt.engines.gauged import counting
from rmopt.errors import InvalidInputError
from rmopt.kernels.meeting import FAILED, NEVER, Meeting
from rmopt.manifolds.means import mean_on
from rmopt.solvers.gossip.gossip import world_of
from rmopt.solvers.result import Result
from rmopt.solvers.save import witness
from rmopt.solvers.stochastic.samplers import Sampler
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import FromFunction, StepSize
from rmopt.solvers.threads import in_threads, one_blas_thread

# The share of the steps so far after which the next mean of many workers follows.
GROWTH = 0.25


class Parallel(ScheduledSolver):
    """Train one model with several workers: each takes its own steps, and occasionally all continue from their mean.

    Compiled steps on low-rank matrices average factors, with larger weights for rows that few workers moved. Others
    take the projected mean of the points. Means become rarer by a constant factor, so that their number grows with
    the logarithm of the steps.

    The solver's budget of steps is divided among the workers, which run in threads: compiled steps and means hold no
    lock, so that they use several cores. In a `world` of several processes each has some of the workers, and all call
    `run` alike. Then only the workers' models are sent, for each mean. Each worker draws its own terms. The result is
    bit-identical for equal numbers of workers, whatever the number of cores or processes. This is local SGD (Stich
    2019) on a manifold.

    Parameters
    ----------
    solver : ScheduledSolver
        The solver of each worker: `SGD` and its relatives.
    workers : int
    every : int, optional
        The largest number of steps of each worker between means; unlimited by default.
    first : int
        Steps before the first mean, and between the next ones. Later ones follow after a share of the steps so far,
        up to `every`, because points diverge most at the beginning. The share is 1 / (`workers` - 1), and at least
        1/4. If `first` is `every` or more, all distances are equal.
    step_factor : float
        A factor for the solver's step sizes. With many workers the steps of one are diluted in the mean. A number
        slightly below that of the workers compensates for it.
    world : World, optional
        `MPIWorld()` for the processes that ``mpiexec`` started. Defaults to this process alone. In several processes
        a criterion must count steps (no `MaxSeconds`), and the updates in a row are those of the workers of its
        process. All give the same start, seed and parameters.

    Raises
    ------
    InvalidInputError
        If there are more processes than workers.
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
        every: int | None = None,
        first: int = 50,
        step_factor: float = 1.0,
        world: World | None = None,
    ) -> None:
        self.solver = instance("solver", solver, ScheduledSolver, "a solver with a schedule, such as SGD")
        self.workers, self.every = integer("workers", workers, 1), optional(integer, 1)("every", every)
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
        # Their own budget may be larger the next time, as for any solver.
        own = self.solver.signature()
        return super().signature() | {f"workers' {name}": own[name] for name in own}

    def _alike(self, problem: Problem, initial_point: Any) -> dict[str, Any]:
        found = super()._alike(problem, initial_point)
        if not isinstance(problem.cost, Shards):
            point = problem.manifold.random_point(np.random.default_rng(0))
            numbers = {name: f"{value:.6g}" for name, value in witness(problem, point, 0).items()}
            found["the cost (Shards for distributed data)"] = str(numbers)
        return found

    def engine(self, problem: Problem) -> Engine:
        engines = tuple(map(self.solver.engine, self._shares(problem).values()))
        every, sizes = self.every or NEVER, self._sizes(problem)
        shares = np.array(sizes) / sum(sizes)
        return ParallelEngine(engines, problem.manifold, min(self.first, every), every, shares, self.world)

    def sampler_for(self, problem: Problem) -> Sampler:
        shares = self._shares(problem).items()
        return EachForItself(
            {worker: self.solver.sampler_for(share) for worker, share in shares}, self.workers
        )

    def _shares(self, problem: Problem) -> dict[int, Problem]:
        """Return the problem of each local worker: all have the same data, unless these were distributed."""
        cost, here = problem.cost, self.world.mine(self.workers)
        if not isinstance(cost, Shards):
            return dict.fromkeys(here, problem)
        if list(cost.costs) != here:
            raise InvalidInputError(
                f"the Shards are of the workers {list(cost.costs)}, and those of this process are {here}; give "
                "a cost for each of them."
            )
        return {worker: replace(problem, cost=own) for worker, own in cost.costs.items()}

    def _sizes(self, problem: Problem) -> list[int]:
        """Return the weight of each worker: its number of terms, if data were distributed and all are known."""
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
    """The draws of some of the workers, each with its own random numbers: an array (steps, workers, terms)."""

    def __init__(self, samplers: dict[int, Sampler], workers: int) -> None:
        self.samplers, self.workers, (first, *others) = samplers, workers, samplers.values()
        self.block_size, self.stream = first.block_size, first.stream
        self.batch_size = len(samplers) * first.batch_size
        if any((one.block_size, one.batch_size) != (first.block_size, first.batch_size) for one in others):
            raise InvalidInputError(
                "the samplers of the workers draw blocks or batches of different sizes; give equally many terms to "
                "each worker, or a sampler with equal blocks, such as Uniform."
            )

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        each = rng.spawn(self.workers) if self.workers > 1 else [rng]
        own = [each[worker] for worker in self.samplers]
        drawn = in_threads(lambda sampler, rng: sampler.draw(rng, start, size), self.samplers.values(), own)
        # In memory worker by worker, the order in which they read it.
        return np.stack(drawn).swapaxes(0, 1)


@dataclass
class ParallelState:
    """The state of each local worker, the matrices of their last mean if they share some, and steps."""

    own: list[Any]
    last: tuple[Array, ...]
    steps: int = 0

    @property
    def updates(self) -> int:
        """Steps of the local workers that moved the point."""
        return sum(state.updates for state in self.own)


@dataclass(frozen=True)
class ParallelEngine(Engine):
    """Workers that run in threads, and average before the next step.

    Attributes
    ----------
    engines : tuple of Engine
        One for each worker of this process.
    manifold : Manifold
    first, every : int
        Steps before the first mean, and the largest number between means.
    shares : float array
        The weight of each worker of all processes in the mean.
    world : World
    """

    engines: tuple[Engine, ...]
    manifold: Manifold
    first: int
    every: int
    shares: Array
    world: World

    def __post_init__(self) -> None:
        # Raises an error for points without a mean.
        mean_on(self.manifold)

    def load(self, point: Any) -> ParallelState:
        return self._begun(in_threads(lambda engine: engine.load(point), self.engines), 0)

    def _begun(self, own: list[Any], steps: int) -> ParallelState:
        return ParallelState(own, tuple(map(np.array, self.engines[0].shared(own[0]))), steps)

    @one_blas_thread()
    def advance(self, state: ParallelState, schedule: Array, etas: Array) -> ParallelState:
        begin, end = state.steps, state.steps + len(etas)
        width = np.size(schedule) // max(1, len(etas)) // len(self.engines)
        terms = np.reshape(schedule, (len(schedule), len(self.engines), width)).swapaxes(0, 1)
        means = self._means(begin, end)
        # In one process threads average during their work.
        starts = [begin] if state.last and self.world.size == 1 else sorted({begin, *means})
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            if not state.last and start in means:
                state = self._together(state)
            part = slice(start - begin, stop - begin)
            # Terms of other workers may be interleaved.
            drawn = [np.ascontiguousarray(each[part]) for each in terms], [etas[part]] * len(terms)
            at = [mean - start for mean in means if start <= mean < stop]
            own = self._work(lambda engine, *about: engine.advance(*about), state, at, *drawn)
            state = replace(state, own=own, steps=stop)
        return state

    @one_blas_thread()
    def dump(self, state: ParallelState) -> Any:
        if not state.steps:
            return self.engines[0].dump(state.own[0])
        if not state.last:
            return self._mean(state)
        own = in_threads(deepcopy, state.own)
        return self.engines[0].dump(self._together(replace(state, own=own, last=deepcopy(state.last))).own[0])

    @one_blas_thread()
    def handed_over(self, state: ParallelState) -> Any:
        stands = self.engines[0].handed_over(self._together(state).own[0])
        return counting(stands, state.steps, int(self.world.total(state.updates)))

    def taken_over(self, state: Any) -> ParallelState | None:
        # The very first worker counts the earlier updates.
        known = [0 if worker else state.updates for worker in self.world.mine(len(self.shares))]
        copies = [counting(unpacked(packed(state), state), state.steps, updates) for updates in known]
        own = [engine.taken_over(copy) for engine, copy in zip(self.engines, copies, strict=True)]
        return None if any(one is None for one in own) else self._begun(own, state.steps)

    def _everywhere(self, own: list[Any]) -> list[Any]:
        """Return the values of local workers, and those of other processes."""
        here = dict(zip(self.world.mine(len(self.shares)), own, strict=True))
        known = self.world.gather(here, len(self.shares))
        return [here.get(worker, other) for worker, other in enumerate(known)]

    def _meetings(self, shared: list[Sequence[Array]], at: list[int]) -> list[Meeting]:
        """Return the meetings before some steps of local workers with matrices, starting from their last mean."""
        here, workers, width = len(self.engines), len(self.shares), shared[0][0].shape[1]
        alike = (
            here, np.zeros(1, dtype=np.int64), self.shares,
            np.array([[one.ctypes.data for one in each] for each in shared]).T.copy(),
            np.array([len(one) for one in shared[0]]), np.zeros((len(shared[0]), workers, width, width)),
            getattr(self.manifold, "rank", 0),
        )  # fmt: skip
        steps = np.array([*at, NEVER])
        return [Meeting(steps, np.zeros(1, dtype=np.int64), place, *alike) for place in range(here)]

    def _work(self, act: Callable[..., Any], state: ParallelState, at: list[int], *many: Any) -> list[Any]:
        """Run an act for each local worker, with meetings before the steps `at`, if any, and return the results."""
        meetings: Sequence[tuple[Meeting, ...]] = [()] * len(self.engines)
        if state.last:
            own = [engine.shared(each) for engine, each in zip(self.engines, state.own, strict=True)]
            # Errors of other processes are held until the work is done.
            shared = [state.last, *(self._everywhere(own) if at else own)]
            meetings = [(meeting,) for meeting in self._meetings(shared, at)]
        errors: list[Exception] = []

        def work(engine: Engine, own: Any, meeting: tuple[Meeting, ...], *about: Any) -> Any:
            try:
                return act(engine, own, *about, *meeting)
            except Exception as error:
                errors.append(error)
                for one in meeting:
                    # No other worker waits for this one.
                    one.come[0] += FAILED
                raise

        try:
            return in_threads(work, self.engines, state.own, meetings, *many)
        except Exception:
            # Others failed because of the first one.
            raise errors[0] from None

    def _means(self, begin: int, end: int) -> list[int]:
        """Return the numbers of steps, from `begin` to below `end`, after which workers average."""
        at, found, growth = self.first, list[int](), max(GROWTH, 1 / max(1, len(self.shares) - 1))
        while at < end:
            found += [at] * (at >= begin)
            gap = min(self.every, max(self.first, int(growth * at)))
            at += gap * (max(1, (begin - at) // gap) if gap == self.every else 1)
        return found

    def _mean(self, state: ParallelState) -> Any:
        """Return the mean of the points of workers."""
        points = self._everywhere(in_threads(lambda engine, own: engine.dump(own), self.engines, state.own))
        return mean_on(self.manifold)(points, self.shares)

    def _together(self, state: ParallelState) -> ParallelState:
        """Return the state in which workers continue from their mean."""
        try:
            if not state.last:
                mean = self._mean(state)
                moved = in_threads(lambda engine, own: engine.moved(own, mean), self.engines, state.own)
                return replace(state, own=moved)
            if not all(self._work(lambda engine, *about: engine.met(*about), state, [0])):
                raise InvalidInputError("the mean lost its rank.")
        except (InvalidInputError, np.linalg.LinAlgError) as error:
            raise lost(state.steps, error) from error
        return state
