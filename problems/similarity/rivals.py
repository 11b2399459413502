"""Rivals of LORETA that move the factors of W = A Bᵀ without geometry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from problems.similarity import kernels
from rmopt.core import InvalidInputError, LowRankPoint, Problem
from rmopt.costs import TripletSum, hinge
from rmopt.engines.base import Engine, diverged
from rmopt.kernels.bilinear_sgd import Rows, Terms
from rmopt.linalg import factor_product
from rmopt.solvers import Sampler, Solver
from rmopt.solvers.step_sizes import StepSize, as_step_size

Array = np.ndarray


@dataclass
class FactorState:
    """The factors of W = A Bᵀ and two counters."""

    A: Array
    B: Array
    steps: int
    moves: Array

    @property
    def updates(self) -> int:
        """Number of steps that moved the point."""
        return int(self.moves[0])


@dataclass(frozen=True)
class FactorEngine(Engine):
    """Steps on balanced factors, one triplet a step.

    Attributes
    ----------
    method : int
        One of the methods of `problems.similarity.kernels`.
    cost : TripletSum
        With the hinge loss.
    """

    method: int
    cost: TripletSum

    def load(self, point: LowRankPoint) -> FactorState:
        """Return a state whose factors are balanced: AᵀA = BᵀB."""
        A, B = (np.ascontiguousarray(factor) for factor in point.balanced_factors())
        return FactorState(A, B, 0, np.zeros(1, dtype=np.int64))

    def advance(self, state: FactorState, schedule: Array, etas: Array) -> FactorState:
        """Do one step per triplet (see `Engine.advance`)."""
        left, right = (
            Rows(rows.indptr, rows.indices, rows.data) for rows in (self.cost.left, self.cost.right)
        )
        terms = Terms(*self.cost.resolve(schedule.ravel()), np.ascontiguousarray(etas))
        bad = kernels.run(self.method, state.A, state.B, left, right, terms, state.moves)
        if bad >= 0:
            raise diverged(state.steps + bad, etas[bad])
        state.steps += len(schedule)
        return state

    def dump(self, state: FactorState) -> LowRankPoint:
        """Return the point A Bᵀ."""
        return LowRankPoint(*factor_product(state.A, np.eye(state.A.shape[1]), state.B))

    def pack(self, state: FactorState) -> dict[str, Array]:
        """Return the factors and counters."""
        return {"A": state.A, "B": state.B, "counters": np.array([state.steps, state.updates])}

    def unpack(self, arrays: dict[str, Array], template: FactorState) -> FactorState:
        """Return the state that `pack` took apart."""
        steps, updates = arrays["counters"].tolist()
        return FactorState(arrays["A"], arrays["B"], steps, np.array([updates]))


class FactorSolver(Solver):
    """Common ground of the rivals.

    Parameters
    ----------
    step_size : float or StepSize
        The step size, or the bound C of the passive–aggressive steps.
    n_steps : int
        The budget.
    sampler : Sampler
        Draws triplets.
    """

    method: int

    def __init__(self, step_size: float | StepSize, *, n_steps: int, sampler: Sampler) -> None:
        self.step_size, self.n_steps, self.sampler = as_step_size(step_size), n_steps, sampler

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.step_size}, n_steps={self.n_steps})"

    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps."""
        if not isinstance(problem.cost, TripletSum) or problem.cost.loss is not hinge:
            raise InvalidInputError(f"{type(self).__name__} is defined for a TripletSum with the hinge loss.")
        return FactorEngine(self.method, problem.cost)

    def sampler_for(self, problem: Problem) -> Sampler:
        """Return the sampler of the triplets."""
        return self.sampler

    def step_size_rule(self) -> StepSize:
        """Return the rule of the step sizes."""
        return self.step_size


class FactoredGradientDescent(FactorSolver):
    """Simultaneous gradient steps on A and B (Shalit et al. 2012, §7.1.4, 1; Bai et al. 2009)."""

    method = kernels.FACTORED


class PassiveAggressive(FactorSolver):
    """Iterative passive–aggressive steps on A and B (Shalit et al. 2012, §7.1.4, 3).

    For each triplet A moves given B, then B given the new A; `step_size` is the bound C.
    """

    method = kernels.PASSIVE_AGGRESSIVE
