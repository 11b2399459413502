"""Solvers that follow a schedule: a sampler draws terms, a rule draws step sizes, an engine does the steps."""

from abc import abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.identity import fingerprint, fingerprints
from rmopt.core.problem import Problem
from rmopt.core.streams import generator
from rmopt.engines.base import Engine, diverged
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.renamed import renamed
from rmopt.solvers.base import Solver
from rmopt.solvers.samplers import Sampler
from rmopt.solvers.step_sizes import StepSize, watched
from rmopt.solvers.threads import Crew

# Terms, and a step size for each step.
Drawn = tuple[Array, Array]
# Steps whose terms threads are given together.
TOGETHER = 2**16


@dataclass
class Schedule:
    """The engine of a run, and the terms and step sizes that it is given, which are drawn block by block.

    Blocks are counted from the step `origin` on, which is not 0 where the terms of earlier steps were others. A crew
    draws the next ones while the steps of these are done.
    """

    engine: Engine
    sampler: Sampler
    rule: StepSize
    seed: int
    first_step: int
    origin: int = 0
    last: int = 2**62
    crew: Crew | None = None
    # The blocks that were drawn last; the next ones, by the number of the first.
    blocks: range = range(0)
    drawn: Drawn = field(default_factory=lambda: (np.empty((0, 1), dtype=int), np.empty(0)))
    ahead: dict[int, tuple[range, Future[Drawn]]] = field(default_factory=dict)

    def at(self, step: int, most: int) -> Drawn:
        """Return terms and step sizes from a step on: at most so many, and no more than are drawn together."""
        block = (step - self.origin) // self.sampler.block_size
        if block not in self.blocks and most > 0:
            self.blocks, self.drawn = self._taken(block)
        start = step - self._begin(self.blocks.start)
        part = slice(start, start + most)
        return self.drawn[0][part], self.drawn[1][part]

    def _taken(self, block: int) -> tuple[range, Drawn]:
        """Return a block, and more that were drawn with it meanwhile; a crew begins to draw the next ones."""
        blocks, coming = self.ahead.pop(block, (range(block, block + 1), None))
        found = self._drawn(blocks) if coming is None else coming.result()
        if self.crew is not None and self._begin(blocks.stop) < self.last:
            end = -(-(self.last - self.origin) // self.sampler.block_size)
            # Threads meet where these end, which takes as long as a few hundred steps.
            following = range(
                blocks.stop, min(blocks.stop + max(1, TOGETHER // self.sampler.block_size), end)
            )
            self.ahead = {following.start: (following, self.crew.begin(self._drawn, following))}
        return blocks, found

    def _drawn(self, blocks: range) -> Drawn:
        terms, lengths = zip(*map(self.draw, blocks), strict=True)
        return (
            (terms[0], lengths[0]) if len(blocks) == 1 else (np.concatenate(terms), np.concatenate(lengths))
        )

    def _begin(self, block: int) -> int:
        return self.origin + block * self.sampler.block_size

    def draw(self, block: int) -> Drawn:
        """Return the terms and step sizes of a block."""
        size, origin = self.sampler.block_size, self.origin
        rng = generator(self.seed, self.sampler.stream, block, *([origin] if origin else []))
        steps = np.arange(self._begin(block), self._begin(block + 1))
        return self.sampler.draw(rng, block * size, size), self._lengths(steps)

    def _lengths(self, steps: Array) -> Array:
        """Return the step sizes of a block; a rule that ends with the budget is asked for no step beyond it."""
        try:
            return self.rule(steps)
        except (InvalidInputError, IndexError):
            if (within := steps[steps < self.last]).size == len(steps):
                raise
            # Whole blocks otherwise: the bits are the same then whatever the budget.
            return np.concatenate([self.rule(within), np.zeros(len(steps) - len(within))])


@renamed(n_steps="max_iter")
class ScheduledSolver(Solver):
    """A solver that follows a schedule of terms and a rule of step sizes.

    Attributes
    ----------
    step_size : StepSize

    See Also
    --------
    GradientSolver : looks at the whole cost in each step.

    References
    ----------
    Bonnabel, Stochastic gradient descent on Riemannian manifolds, IEEE Transactions on Automatic Control 58
    (2013), https://doi.org/10.1109/TAC.2013.2254619.

    Examples
    --------
    >>> from rmopt.solvers import SGD, CoordinateDescent, ScheduledSolver
    >>> [isinstance(solver, ScheduledSolver) for solver in (SGD(0.1), CoordinateDescent())]
    [True, True]
    """

    step_size: StepSize

    @abstractmethod
    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps."""

    @abstractmethod
    def sampler_for(self, problem: Problem) -> Sampler:
        """Return the sampler of the schedule."""

    def step_size_rule(self) -> StepSize:
        """Return the rule of the step sizes: `step_size`, checked where they are drawn."""
        return watched(self.step_size)

    def check_every(self, problem: Problem) -> int | None:
        """Return None: only the budget and a criterion end the run."""
        return None

    def prepare(self, problem: Problem, seed: int, first_step: int) -> Schedule:
        return self._schedule(self.engine(problem), problem, seed, first_step)

    def _schedule(self, engine: Any, problem: Problem, seed: int, first_step: int) -> Schedule:
        last = first_step + self.budget(problem)
        return Schedule(engine, self.sampler_for(problem), self.step_size_rule(), seed, first_step, last=last)

    def begin(self, work: Schedule, point: Any) -> Any:
        return work.engine.load(point)

    def advance(self, work: Schedule, state: Any, steps: int) -> Any:
        return work.engine.advance(state, *work.at(work.first_step + state.steps, steps))

    def point(self, work: Schedule, state: Any) -> Any:
        return work.engine.dump(state)

    def pack(self, work: Schedule, state: Any) -> dict[str, Array]:
        return work.engine.pack(state)

    def unpack(self, work: Schedule, arrays: dict[str, Array], template: Any) -> Any:
        return work.engine.unpack(arrays, template)

    def diverged(self, step: int) -> DivergedError:
        return diverged(step, self.step_size_rule()(np.array([step]))[0])

    def identity(self, problem: Problem, seed: int, first_step: int) -> dict[str, Any]:
        # The engine draws nothing.
        schedule = self._schedule(None, problem, seed, first_step)
        return {
            **super().identity(problem, seed, first_step),
            **fingerprints(schedule.rule, "step-size rule"),
            **fingerprints(schedule.sampler, "sampler"),
            "draw of terms and step sizes": fingerprint(
                schedule.draw(first_step // schedule.sampler.block_size)
            ),
        }
