"""Common ground of the rivals: online learners whose steps change a few arrays in place."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmopt.core import FiniteSum, LowRankPoint, Problem
from rmopt.core.arguments import integer
from rmopt.engines.base import Engine, checked, diverged
from rmopt.linalg import factor_product
from rmopt.solvers import Sampler, Solver
from rmopt.solvers.step_sizes import StepSize, as_step_size

Array = np.ndarray


@dataclass
class OnlineState:
    """Named arrays, the number of steps, and (in an array of one) the number of those that moved something."""

    arrays: dict[str, Array]
    steps: int
    moves: Array

    @property
    def updates(self) -> int:
        """Number of steps that moved the point."""
        return int(self.moves[0])


class OnlineEngine(Engine):
    """An engine whose compiled loop changes arrays in place, one term a step."""

    cost: FiniteSum

    @abstractmethod
    def arrays_of(self, point: Any) -> dict[str, Array]:
        """Return new C-contiguous arrays that stand at a point."""

    @abstractmethod
    def point_of(self, arrays: dict[str, Array]) -> Any:
        """Return the point at which arrays stand; they are not changed and not shared."""

    @abstractmethod
    def run(self, arrays: dict[str, Array], moves: Array, schedule: Array, etas: Array) -> int:
        """Do one step per row of the schedule; return the number of the first bad step, or −1."""

    def load(self, point: Any) -> OnlineState:
        return OnlineState(self.arrays_of(point), 0, np.zeros(1, dtype=np.int64))

    def advance(self, state: OnlineState, schedule: Array, etas: Array) -> OnlineState:
        schedule = checked(schedule, etas, self.cost.term_ranges, 1)
        etas = np.ascontiguousarray(etas, dtype=float)
        bad = self.run(state.arrays, state.moves, schedule, etas)
        if bad >= 0:
            raise diverged(state.steps + bad, etas[bad])
        state.steps += len(schedule)
        return state

    def dump(self, state: OnlineState) -> Any:
        return self.point_of(state.arrays)


class FactorEngine(OnlineEngine):
    """Steps on balanced factors A and B of W = A Bᵀ."""

    def arrays_of(self, point: LowRankPoint) -> dict[str, Array]:
        A, B = point.balanced_factors()
        return {"A": np.ascontiguousarray(A), "B": np.ascontiguousarray(B)}

    def point_of(self, arrays: dict[str, Array]) -> LowRankPoint:
        return LowRankPoint(*factor_product(arrays["A"], np.eye(arrays["A"].shape[1]), arrays["B"]))


class OnlineSolver(Solver):
    """Common ground of the rivals' solvers.

    Parameters
    ----------
    step_size : float or StepSize
        The step size, or the bound C of passive–aggressive steps.
    n_steps : int
        The budget.
    sampler : Sampler
        Draws the terms.
    """

    def __init__(self, step_size: float | StepSize, *, n_steps: int, sampler: Sampler) -> None:
        self.step_size, self.sampler = as_step_size(step_size), sampler
        self.n_steps = integer("n_steps", n_steps)

    def sampler_for(self, problem: Problem) -> Sampler:
        return self.sampler

    def step_size_rule(self) -> StepSize:
        return self.step_size
