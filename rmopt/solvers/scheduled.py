"""Solvers that follow a schedule: a sampler draws terms, a rule draws step sizes, an engine does the steps."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.identity import fingerprint, fingerprints
from rmopt.core.problem import Problem
from rmopt.core.streams import generator
from rmopt.engines.base import Engine, diverged
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.solvers.ahead import Ahead
from rmopt.solvers.base import Solver
from rmopt.solvers.samplers import Sampler
from rmopt.solvers.step_sizes import StepSize, watched


@dataclass
class Schedule:
    """The engine of a run, and the terms and step sizes that it is given, which are drawn block by block.

    Blocks are counted from the step `origin` on, which is not 0 where the terms of earlier steps were others. With
    `ahead` the next ones are drawn while the steps of these are done, where the sampler allows it.
    """

    engine: Engine
    sampler: Sampler
    rule: StepSize
    seed: int
    first_step: int
    origin: int = 0
    last: int = 2**62
    ahead: Ahead | None = None
    # The blocks that were drawn last: their terms, and the step sizes of those that were asked for.
    blocks: range = range(0)
    drawn: Array = field(default_factory=lambda: np.empty((0, 1), dtype=int))
    lengths: dict[int, Array] = field(default_factory=dict)

    def at(self, step: int, most: int) -> tuple[Array, Array]:
        """Return terms and step sizes from a step on: at most so many, and no more than are drawn by now."""
        size = self.sampler.block_size
        block = (step - self.origin) // size
        if most > 0 and block not in self.blocks:
            end = -(-(self.last - self.origin) // size)
            found = [self.terms(block)] if self.ahead is None else self.ahead.taken(self.terms, block, end)
            self.drawn = found[0] if len(found) == 1 else np.concatenate(found)
            self.blocks, self.lengths = range(block, block + len(found)), {}
        start, first = step - self._begin(self.blocks.start), step - self._begin(block)
        count = max(0, min(most, self._begin(self.blocks.stop) - step))
        asked = range(block, block - (-(first + count) // size)) if count else range(0)
        for one in asked:
            if one not in self.lengths:
                self.lengths[one] = self._lengths(np.arange(self._begin(one), self._begin(one + 1)))
        lengths = np.concatenate([np.empty(0), *(self.lengths[one] for one in asked)])
        return self.drawn[start : start + count], lengths[first : first + count]

    def _begin(self, block: int) -> int:
        return self.origin + block * self.sampler.block_size

    def terms(self, block: int) -> Array:
        """Return the terms of a block."""
        size, origin = self.sampler.block_size, self.origin
        rng = generator(self.seed, self.sampler.stream, block, *([origin] if origin else []))
        return self.sampler.draw(rng, block * size, size)

    def draw(self, block: int) -> tuple[Array, Array]:
        """Return the terms and step sizes of a block."""
        return self.terms(block), self._lengths(np.arange(self._begin(block), self._begin(block + 1)))

    def _lengths(self, steps: Array) -> Array:
        """Return the step sizes of a block; a rule that ends with the budget is asked for no step beyond it."""
        try:
            return self.rule(steps)
        except (InvalidInputError, IndexError):
            if (within := steps[steps < self.last]).size == len(steps):
                raise
            # Whole blocks otherwise: the bits are the same then whatever the budget.
            return np.concatenate([self.rule(within), np.zeros(len(steps) - len(within))])


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
