"""Several workers that learn one model: local steps in threads or processes, and every so many steps their mean."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number, one_of
from rmopt.core.manifold import Manifold
from rmopt.core.points import packed, unpacked
from rmopt.core.problem import Problem
from rmopt.engines.base import Engine
from rmopt.engines.factor_means import (
    Each,
    Pairs,
    Swap,
    averaged,
    blended,
    blended_by_two,
    merged,
    merged_by_two,
)
from rmopt.engines.gauged import Gauge, GaugedEngine, GaugedState, GeneralGauge
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.kernels.steps import Counters
from rmopt.manifolds.means import mean_on
from rmopt.solvers.ahead import Ahead
from rmopt.solvers.base import Result
from rmopt.solvers.checkpoint import witness
from rmopt.solvers.samplers import Sampler, is_pure
from rmopt.solvers.scheduled import Schedule, ScheduledSolver
from rmopt.solvers.shards import Shards
from rmopt.solvers.step_sizes import StepSize
from rmopt.solvers.threads import Crew, one_blas_thread
from rmopt.solvers.world import ONE_PROCESS, Deal, World, tree_of

MEANS = ("factors", "projected")


class Parallel(ScheduledSolver):
    """Train one model with several workers: each takes its own steps, and every so many all go on from their mean.

    The solver's budget of steps is divided among the workers, which run in threads: compiled steps hold no lock, so
    that they run on as many cores. In a `world` of several processes each has some of the workers, and all call `run`
    alike; then the points of workers travel for each mean, and nothing else. Each worker draws terms for itself. The
    result depends on the number of workers, and not on that of the cores or the processes, to the bit. This is local
    SGD (Stich 2019) on a manifold.

    Parameters
    ----------
    solver : ScheduledSolver
        What each worker does: `SGD` and its relatives, all without `average`.
    workers : int
    every : int
        The most steps of each worker between means. A mean costs about as much as a thousand steps of two workers.
    first : int
        Steps before the first mean. The next one is as far; later ones follow after 1 / (`workers` - 1) of the steps
        before, up to `every`: points part most where the run begins. From `every` on: all are as far.
    step_factor : float
        The workers' step sizes are those of the solver times this. With many workers the steps of one are lost in the
        mean; a number a little below that of the workers wins them back.
    outer_step : float
        How far to go from the last mean towards the next one; above 1 it goes beyond.
    mean : {"factors", "projected"}
        Of compiled steps on matrices of low rank the mean of the factors, which differs from the projected one by
        products of two moves since the last mean, and takes a third of its time; or always the projected one, which
        others have anyway, as have all at first and after one made its factors anew. Where a run ends between means,
        its result is a projected one.
    world : World, optional
        `MPIWorld()` for the processes that ``mpiexec`` started; unless given, this process alone. In several
        processes a checkpoint is a path or a `SharedCheckpoint`, a criterion goes by steps (no `MaxSeconds`), and the
        updates in a row are those of the workers of its process. All give the same start, seed and parameters.

    Raises
    ------
    InvalidInputError
        When there are more processes than workers, or the solver averages points or has workers of its own.
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
        outer_step: float = 1.0,
        mean: str = "factors",
        world: World | None = None,
    ) -> None:
        self.solver = instance("solver", solver, ScheduledSolver, "a solver with a schedule, such as SGD")
        if isinstance(solver, Parallel):
            raise InvalidInputError(
                "solver has workers of its own; give that of one worker, and more `workers`."
            )
        if (average := getattr(solver, "average", False)) is not False:
            raise InvalidInputError(
                f"the solver has average = {average}, a mean of points that workers leave when they meet; leave it "
                "out: they end at their mean."
            )
        self.workers, self.every = integer("workers", workers, 1), integer("every", every, 1)
        self.first = integer("first", first, 1)
        self.step_factor = number("step_factor", step_factor, above=0)
        self.outer_step = number("outer_step", outer_step, above=0)
        self.mean = one_of("mean", mean, MEANS)
        self.max_iter = -(-solver.max_iter // self.workers)
        self.step_size = solver.step_size
        self.world = ONE_PROCESS if world is None else instance("world", world, World, "a World")
        if self.world.size > self.workers:
            raise InvalidInputError(
                f"workers = {self.workers} are fewer than the {self.world.size} processes; take as many, or more."
            )

    def budget(self, problem: Problem) -> int:
        return -(-self.solver.budget(problem) // self.workers)

    def signature(self, apart: tuple[str, ...] = ()) -> dict[str, str]:
        # Their own budget may be larger the next time, as that of any solver may.
        workers = {f"workers' {name}": value for name, value in self.solver.signature().items()}
        return super().signature(apart) | workers

    def _alike(self, problem: Problem, initial_point: Any) -> dict[str, Any]:
        found = super()._alike(problem, initial_point)
        if not isinstance(problem.cost, Shards):
            point = problem.manifold.random_point(np.random.default_rng(0))
            numbers = {name: f"{value:.6g}" for name, value in witness(problem, point, 0).items()}
            found["the cost (Shards, where data were dealt)"] = str(numbers)
        return found

    def engine(self, problem: Problem) -> Engine:
        here = self.world.mine(self.workers)
        own = tuple(self.solver.engine(one) for one in self._shares(problem, here))
        manifold, first = problem.manifold, min(self.first, self.every)
        gauged = all(isinstance(one, GaugedEngine) for one in own)
        meeting = AtFactors(own[0].gauge, manifold.rank) if gauged else AtPoints(manifold)  # type: ignore[attr-defined]
        sizes = self._sizes(problem)
        return ParallelEngine(
            own, meeting, first, self.every, self.outer_step, self.workers, self.world, sizes,
            by_factors=self.mean == "factors",
        )  # fmt: skip

    def prepare(self, problem: Problem, seed: int, first_step: int) -> Schedule:
        work = super().prepare(problem, seed, first_step)
        work.engine = replace(work.engine, origin=first_step)  # type: ignore[type-var]
        samplers = work.sampler.samplers  # type: ignore[attr-defined]
        if len(samplers) > 1 and all(map(is_pure, samplers)):
            # Workers would wait for what is drawn for all of them.
            work.ahead = Ahead()
        return work

    def sampler_for(self, problem: Problem) -> Sampler:
        here, given = self.world.mine(self.workers), getattr(problem.cost, "samplers", None)
        own = [self.solver.sampler_for(one) for one in self._shares(problem, here)]
        own = [given[worker] for worker in here] if given else own
        # Draws lie side by side, as wide for one worker as for another.
        taken = getattr(self.solver, "batch_size", own[0].batch_size)
        if other := sorted({sampler.batch_size for sampler in own} - {taken}):
            raise InvalidInputError(
                f"samplers draw {' and '.join(map(str, other))} terms a step, and batch_size = {taken}; make it one."
            )
        sizes = {sampler.block_size for sampler in own}
        if len(sizes) > 1:
            raise InvalidInputError(
                f"the samplers of the workers draw blocks of {' and '.join(map(str, sorted(sizes)))} steps; deal as "
                "many terms to each worker, or give samplers whose blocks are alike, such as Uniform."
            )
        return EachForItself(own, self.workers, here)

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

    def _sizes(self, problem: Problem) -> list[int] | None:
        """Return how many terms each worker has; None where they have the same, or do not know."""
        if not isinstance(problem.cost, Shards):
            return None
        own = {worker: cost.n_terms for worker, cost in problem.cost.costs.items()}
        found = {worker: n for part in self.world.everywhere(own) for worker, n in part.items()}
        return None if None in found.values() else [found[worker] for worker in range(self.workers)]

    def conclude(self, result: Result, work: Any, state: Any) -> Result:
        """Return the result with the updates of all processes."""
        return replace(result, updates=int(self.world.total(state.updates)))

    def step_size_rule(self) -> StepSize:
        return Stretched(self.solver.step_size_rule(), self.workers, self.step_factor)


class EachForItself(Sampler):
    """The draws of several workers, each with random numbers of its own; a step and a worker are a row of the result.

    Parameters
    ----------
    samplers : list of Sampler
        Of the workers for which terms are drawn here.
    workers : int
    mine : list of int
        The numbers of these workers.
    """

    def __init__(self, samplers: list[Sampler], workers: int, mine: list[int]) -> None:
        self.samplers, self.workers, self.mine = samplers, workers, mine
        first = samplers[0]
        self.block_size, self.stream = first.block_size, first.stream
        self.batch_size = sum(sampler.batch_size for sampler in samplers)

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        each = rng.spawn(self.workers) if self.workers > 1 else [rng]
        own = zip(self.samplers, self.mine, strict=True)
        drawn = [np.asarray(sampler.draw(each[worker], start, size)) for sampler, worker in own]
        shapes = {part.shape for part in drawn}
        if len(shapes) > 1 or any(len(shape) != 2 or shape[0] != size for shape in shapes):
            raise InvalidInputError(
                f"samplers of workers drew {' and '.join(map(str, sorted(shapes)))} numbers for {size} steps; each "
                "is to draw a row of batch_size · term_width numbers for a step."
            )
        # In memory one worker after the other, as they read it.
        return np.stack(drawn).swapaxes(0, 1)


@dataclass(frozen=True)
class Stretched(StepSize):
    """A rule of step sizes that counts the steps of all workers, times a factor."""

    rule: StepSize
    workers: int
    factor: float

    def __call__(self, t: Array) -> Array:
        return self.factor * self.rule(self.workers * np.asarray(t))


class AtPoints:
    """Workers bring the points of their engines, and the mean is that of the manifold (see `projected_mean`)."""

    # How two processes make the mean of a pair together (see `World.joined`); None: each makes it.
    deal: Deal | None = None

    def __init__(self, manifold: Manifold) -> None:
        self.mean: Callable[[list[Any], Array], Any] = mean_on(manifold)

    def seen(self, engine: Engine, state: Any) -> Any:
        """Return what a worker would bring, to be used up; its state is not changed."""
        return engine.dump(state)

    def brought(self, engine: Engine, state: Any) -> Any:
        """Return what a worker brings; its state may be used up."""
        return self.seen(engine, state)

    def joined(self, pairs: Pairs, weights: Sequence[Array], each: Each) -> Iterable[Any]:
        """Return the means of pairs, which may be used up; `each` maps functions, in threads say."""
        return each(lambda task: self.mean(*task), list(zip(pairs, weights, strict=True)))

    def taken(self, engine: Engine, state: Any, mean: Any, place: int) -> Any:
        """Return the state in which a worker goes on from a projected mean, and which says which one it was."""
        return engine.moved(state, mean)

    def point(self, mean: Any) -> Any:
        """Return the point that a mean is."""
        return mean

    def came_from(self, own: Sequence[Any]) -> int:
        """Return the number of the projected mean from which all workers here came by steps and means of factors.

        Any other number where they came from elsewhere.
        """
        return -1


class AtFactors(AtPoints):
    """Workers bring factors with the inverses of their Gram matrices, and leave with such: nothing is factorised."""

    def __init__(self, gauge: Gauge, rank: int) -> None:
        self.gauge, self.rank = gauge, rank
        # Of one side there is nothing to deal.
        self.deal = self._dealt if isinstance(gauge, GeneralGauge) else None

    def seen(self, engine: Any, state: Any) -> Any:
        return self.brought(engine, _copied(state))

    def brought(self, engine: Engine, state: Any) -> Any:
        return engine.handed_over(state).factors

    def joined(self, pairs: Pairs, weights: Sequence[Array], each: Each) -> Iterable[Any]:
        return merged(self.gauge, pairs, weights, self.rank, each) if pairs else []

    def _dealt(self, own: Any, place: int, counts: tuple[int, int], swap: Swap) -> Any:
        return merged_by_two(self.gauge, own, place, _weights(counts), self.rank, swap)

    def taken(self, engine: Engine, state: Any, mean: Any, place: int) -> Any:
        return self._from(engine, state, mean, place, self.gauge.fresh_counters(mean))

    def _from(self, engine: Engine, state: Any, mean: Any, place: int, counters: Counters) -> Any:
        for own, part in zip(state.factors, mean, strict=True):
            if own is not part:
                np.copyto(own, part)
        counters.counts[0] = state.updates
        return engine.taken_over(GaugedState(state.factors, counters, state.steps, place))

    def point(self, mean: Any) -> Any:
        return self.gauge.point_of(mean, self.rank)

    def came_from(self, own: Sequence[Any]) -> int:
        # A worker that made its factors anew counts it.
        numbers = {state.renewals for state in own}
        return numbers.pop() if len(numbers) == 1 else -1

    def averaged(
        self, engine: "ParallelEngine", state: "ParallelState", ends: Sequence[Any]
    ) -> "ParallelState":
        """Return the state in which all go on from the mean of their factors, which all came from the same."""
        world, shares, crew = engine.world, engine.shares, engine.crew
        many, tree = list(ends), []
        if world.size > 1:

            def join(pairs: Pairs, counts: Sequence[tuple[int, int]]) -> list[Any]:
                return blended(pairs, [*map(_weights, counts)], crew.each)

            def deal(own: Any, place: int, counts: tuple[int, int], swap: Swap) -> Any:
                return blended_by_two(own, place, _weights(counts), swap)

            numbered = dict(zip(world.mine(len(shares)), ends, strict=True))
            many = [world.joined(numbered, len(shares), join, shares, deal if self.deal else None)]
        else:
            tree = [(low, high, _weights(counts)) for low, high, counts in tree_of(shares)]
        found, sizes = averaged(self.gauge, many, tree, self.rank, crew, engine.outer_step, state.before)
        # Hardly anything is copied then, unless one mean is for many.
        means = found[: len(many)] if world.size == 1 else found[:1] * len(ends)
        own = [
            self._from(one, worker, mean, state.place, Counters(np.zeros(2, dtype=np.int64), sizes.copy()))
            for one, worker, mean in zip(engine.engines, state.own, means, strict=True)
        ]
        return replace(state, own=own, before=found[len(many) :])


def _weights(counts: tuple[int, int]) -> Array:
    return np.array(counts) / sum(counts)


@dataclass
class ParallelState:
    """Where each worker stands, and counters.

    `before` holds the last mean, in the form in which workers meet, where an outer step will lead away from it, and
    `place` is the number of the last projected one: 0 at the start.
    """

    own: list[Any]
    before: list[Any]
    steps: int = 0
    place: int = 0

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
    meeting : AtPoints
        How they meet.
    first, every : int
        Steps before the first mean, and the most between means.
    outer_step : float
    workers : int
        Of all processes.
    world : World
    sizes : list of int or None
        For how much each worker counts in the mean; all for as much where it is None.
    origin : int
        Steps before those that a state counts: where workers meet follows from all.
    by_factors : bool
        Whether workers whose factors came from the same meet at the mean of these.
    """

    engines: tuple[Engine, ...]
    meeting: AtPoints
    first: int
    every: int
    outer_step: float
    workers: int
    world: World
    sizes: list[int] | None = None
    origin: int = 0
    by_factors: bool = True

    @cached_property
    def crew(self) -> Crew:
        """The threads of the workers."""
        return Crew(len(self.engines))

    def load(self, point: Any) -> ParallelState:
        own = self.crew.each(lambda engine: engine.load(point), self.engines)
        before = self._before(lambda: self.engines[0].load(point))
        return ParallelState(own, before)

    @one_blas_thread()
    def advance(self, state: ParallelState, schedule: Array, etas: Array) -> ParallelState:
        count, done = len(self.engines), 0
        if not len(etas):
            # Compiles what the workers need.
            pairs = zip(self.engines, state.own, strict=True)
            return replace(state, own=[engine.advance(own, schedule, etas) for engine, own in pairs])
        parts = np.reshape(schedule, (len(schedule), count, -1))
        with self.world.guard():
            while done < len(etas):
                end = min(len(etas), done + self._next_mean(state.steps) - state.steps)
                steps = state.steps + end - done
                bring = self.meeting.brought if self._met(steps) else None
                work = partial(_advanced, etas=etas[done:end], bring=bring)
                ends = self.crew.each(work, self.engines, state.own, parts[done:end].swapaxes(0, 1))
                state, done = replace(state, own=[own for own, _ in ends], steps=steps), end
                if bring is not None:
                    state = self._at_mean(state, [brought for _, brought in ends])
        return state

    @one_blas_thread()
    def dump(self, state: ParallelState) -> Any:
        if self._alone or self._met(state.steps):
            return self.engines[0].dump(state.own[0])
        seen = self.crew.each(self.meeting.seen, self.engines, state.own)
        return self.meeting.point(self._mean(seen, deepcopy(state.before)))

    @one_blas_thread()
    def handed_over(self, state: ParallelState) -> Any:
        if not self._alone and not self._met(state.steps):
            with self.world.guard():
                state = self._at_mean(state, self.crew.each(self.meeting.brought, self.engines, state.own))
        stands = self.engines[0].handed_over(state.own[0])
        return _with_updates(stands, int(self.world.total(state.updates)))

    def taken_over(self, state: Any) -> ParallelState | None:
        own = []
        for worker, engine in zip(self.world.mine(self.workers), self.engines, strict=True):
            # The first worker of all counts the updates before.
            known = 0 if worker else state.updates
            own.append(engine.taken_over(_with_updates(_copied(state), known)))
        if any(one is None for one in own):
            return None
        before = self._before(lambda: self.engines[0].taken_over(_copied(state)))
        return ParallelState(own, before, state.steps)

    def _before(self, fresh: Callable[[], Any]) -> list[Any]:
        """Return from where the first outer step leads away: what a fresh state brings."""
        return [] if self.outer_step == 1.0 else [self.meeting.brought(self.engines[0], fresh())]

    def _met(self, steps: int) -> bool:
        """Return whether the workers meet after so many steps; one that goes as far as its mean meets nobody."""
        return not self._alone and (steps == 0 or self._next_mean(steps - 1) == steps)

    @property
    def _alone(self) -> bool:
        """Whether there is nobody to meet: one worker, which goes as far as its own mean."""
        return self.workers == 1 and self.outer_step == 1.0

    def _next_mean(self, steps: int) -> int:
        """Return the number of steps, above a given one, after which the workers meet again."""
        steps += self.origin
        at, gap = self.first, self.first
        while at <= steps and gap < self.every:
            gap = min(self.every, max(self.first, at // max(1, self.workers - 1)))
            at += gap
        return at + max(0, (steps - at) // self.every + 1) * self.every - self.origin

    def _at_mean(self, state: ParallelState, brought: list[Any]) -> ParallelState:
        """Return the state in which all workers go on from their mean."""
        meeting, place = self.meeting, state.place + 1
        # Factors of a start part most along its small singular values, and those of a point that was read are others.
        nearly = self.by_factors and state.place == meeting.came_from(state.own) > 0
        try:
            if isinstance(meeting, AtFactors) and self.world.least(int(nearly)):
                return meeting.averaged(self, state, brought)
            mean = self._mean(brought, state.before)
        except (InvalidInputError, np.linalg.LinAlgError) as error:
            raise DivergedError(
                f"the run diverged at step {state.steps}, where workers met ({str(error).rstrip('.')}); take a "
                "smaller step size.",
                state.steps,
            ) from error
        take = partial(meeting.taken, mean=mean, place=place)
        own = self.crew.each(take, self.engines, state.own)
        return replace(state, own=own, before=[mean][: len(state.before)], place=place)

    @property
    def shares(self) -> list[int]:
        """For how much each worker of all processes counts."""
        return [1] * self.workers if self.sizes is None else self.sizes

    def _mean(self, brought: list[Any], before: list[Any]) -> Any:
        """Return the mean of what all workers bring, or where the outer step leads to from the last one."""
        meeting, each = self.meeting, self.crew.each
        ends = dict(zip(self.world.mine(self.workers), brought, strict=True))

        def join(pairs: Pairs, counts: Sequence[tuple[int, int]]) -> Iterable[Any]:
            return meeting.joined(pairs, [*map(_weights, counts)], each)

        mean = self.world.joined(ends, self.workers, join, self.shares, meeting.deal)
        for last in before:
            weights = np.array([1.0 - self.outer_step, self.outer_step])
            [mean] = meeting.joined([(last, mean)], [weights], each)
        return mean


def _advanced(
    engine: Engine, state: Any, terms: Array, etas: Array, bring: Callable[[Engine, Any], Any] | None
) -> tuple[Any, Any]:
    """Return where steps lead, and what is brought from there; terms of other workers may lie between these."""
    state = engine.advance(state, np.ascontiguousarray(terms), etas)
    return state, None if bring is None else bring(engine, state)


def _copied(state: Any) -> Any:
    """Return a state in memory of its own."""
    return unpacked(packed(state), state)


def _with_updates(state: Any, updates: int) -> Any:
    """Return a state that counts so many updates."""
    if not isinstance(state, GaugedState):
        return replace(state, updates=updates)
    state.counters.counts[0] = updates
    return state
