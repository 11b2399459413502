"""Solvers that follow a schedule: a sampler draws terms, a rule draws step sizes, an engine does the steps."""

import zlib
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.problem import Problem
from rmopt.core.streams import generator
from rmopt.engines.base import Engine, diverged
from rmopt.errors import DivergedError
from rmopt.solvers.run import Solver
from rmopt.solvers.save import FEW, MANY, START_TERMS, TERMS, witness
from rmopt.solvers.stochastic.samplers import Sampler
from rmopt.solvers.stochastic.step_sizes import StepSize, watched

# The distances from the first and from the last step at which a checkpoint stores step sizes.
APART = np.unique(np.geomspace(1, 10**9, 400).astype(int)) - 1
# The largest number of blocks drawn for one piece of work.
AHEAD = 8


@dataclass
class Schedule:
    """The engine of a run, and its terms and step sizes, drawn block by block.

    Blocks are counted from the step `origin`, which is not 0 if earlier steps had other terms.
    """

    engine: Engine
    sampler: Sampler
    rule: StepSize
    seed: int
    origin: int = 0
    last: int = 2**62
    # The number of the latest block, its terms and its step sizes.
    block: int = -1
    drawn: tuple[Array, Array] = field(default_factory=lambda: (np.empty((0, 1), dtype=int), np.empty(0)))

    def at(self, step: int, most: int) -> tuple[Array, Array]:
        """Return terms and step sizes from a step on: at most this many, and at most those of some blocks."""
        parts, end = list[Any](), step + most
        while step < end and len(parts) < AHEAD:
            block, start = divmod(step - self.origin, self.sampler.block_size)
            if block != self.block:
                self.block, self.drawn = block, self.draw(block)
            parts.append([one[start : start + end - step] for one in self.drawn])
            step += len(parts[-1][1])
        parts = parts or [[one[:0] for one in self.drawn]]
        terms, lengths = (np.concatenate(one) if len(one) > 1 else one[0] for one in zip(*parts, strict=True))
        return terms, lengths

    def draw(self, block: int) -> tuple[Array, Array]:
        """Return the terms and step sizes of a block, without step sizes beyond the budget."""
        size, origin = self.sampler.block_size, self.origin
        rng = generator(self.seed, self.sampler.stream, block, *([origin] if origin else []))
        terms = self.sampler.draw(rng, block * size, size)
        steps = np.arange(origin + block * size, origin + (block + 1) * size)
        return terms, self.rule(np.clip(steps, None, max(self.last - 1, 0)))


class ScheduledSolver(Solver):
    """A solver that follows a schedule of terms and a rule of step sizes.

    Attributes
    ----------
    step_size : StepSize
    """

    step_size: StepSize

    @abstractmethod
    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps."""

    @abstractmethod
    def sampler_for(self, problem: Problem) -> Sampler:
        """Return the sampler of the schedule."""

    def step_size_rule(self) -> StepSize:
        """Return the rule of the step sizes: `step_size`, checked at each draw."""
        return watched(self.step_size)

    def check_every(self, problem: Problem) -> int | None:
        """Return None: only the budget and a criterion end the run."""
        return None

    def prepare(self, problem: Problem, seed: int) -> Schedule:
        about = self.engine(problem), self.sampler_for(problem), self.step_size_rule()
        return Schedule(*about, seed, last=self.budget(problem))

    def begin(self, work: Schedule, point: Any) -> Any:
        return work.engine.load(point)

    def advance(self, work: Schedule, state: Any, steps: int) -> Any:
        return work.engine.advance(state, *work.at(state.steps, steps))

    def point(self, work: Schedule, state: Any) -> Any:
        return work.engine.dump(state)

    def diverged(self, step: int) -> DivergedError:
        return diverged(step, self.step_size_rule()(np.array([step]))[0])

    def witness(self, problem: Problem, work: Schedule, state: Any, seed: int) -> dict[str, float]:
        looked_at = (FEW, TERMS) if state.steps else (MANY, START_TERMS)
        found = witness(problem, self.point(work, state), seed, *looked_at)
        with np.errstate(over="ignore"):
            terms, _ = work.draw(0)
        found["checksum of drawn terms"] = float(zlib.crc32(np.ascontiguousarray(terms).data))
        if state.steps:
            near = APART[state.steps > APART]
            lengths = work.rule(np.append(near, state.steps - 1 - near))
            found["sum of step sizes"] = float(lengths.sum())
        return found
