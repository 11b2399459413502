"""Decentralised LMaFit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from problems.subspace.completion import MatrixCompletion, columns_of, predictions
from rmopt.core import MissingCapabilityError, Parts, Problem
from rmopt.core.arguments import integer
from rmopt.costs import GossipCost
from rmopt.engines import Engine
from rmopt.linalg import gram_functions
from rmopt.solvers import Constant, Cyclic, Sampler, ScheduledSolver, StepSize

Array = np.ndarray


@dataclass(frozen=True)
class LMaFitState:
    """What each agent tracks of the mean of all Z Yᵀ, its own Z Yᵀ at the last step, and its Y."""

    tracked: Array
    shares: Array
    factors: list[Array]
    steps: int = 0

    @property
    def updates(self) -> int:
        """How many agents were moved, counted over the steps."""
        return self.steps * len(self.tracked)


class LMaFitEngine(Engine):
    """LMaFit with dynamic average consensus (Ling, Xu, Yin and Wen 2012; in one place: Wen, Yin and Zhang 2012).

    Agent i holds its completed columns Z_i = X_i Y_i + P_Ω(M_i − X_i Y_i), never formed. At every step all agents
    at once set Y_i ← X_iᵀ Z_i and complete Z_i anew; X_i ← an orthonormal basis of S_i, in which agent i tracks the
    mean of all Z_j Y_jᵀ: S_i ← Σ_j w_ij S_j + (Z_i Y_iᵀ − its value a step before), with Metropolis weights w. Bases
    are polar factors, so those of agents who agree agree too.

    Attributes
    ----------
    cost : GossipCost
        Its tasks are a `MatrixCompletion` with λ = 0; ρ is not looked at.
    """

    def __init__(self, cost: GossipCost) -> None:
        self.tasks, self.weights = cost.tasks, cost.graph.averaging

    def load(self, point: Parts) -> LMaFitState:
        """Return a state that stands at a point."""
        bases = list(point)
        empty = [
            np.zeros((X.shape[1], self.tasks.parts[agent].shape[1]))  # type: ignore[attr-defined]
            for agent, X in enumerate(bases)
        ]
        found = [self._renewed(agent, X, Y) for agent, (X, Y) in enumerate(zip(bases, empty, strict=True))]
        shares = np.array([share for share, _ in found])
        return LMaFitState(shares, shares, [Y for _, Y in found])

    def _renewed(self, agent: int, X: Array, Y: Array) -> tuple[Array, Array]:
        """Return Z Yᵀ and Y after one step of an agent from its basis and its last factor."""
        part = self.tasks.parts[agent]  # type: ignore[attr-defined]
        columns = columns_of(part)

        def gaps(factor: Array) -> Any:
            values = part.data - predictions(X, factor.T, part.indices, columns)
            return type(part)((values, part.indices, part.indptr), shape=part.shape)

        Y = Y + (gaps(Y).T @ X).T
        return X @ (Y @ Y.T) + gaps(Y) @ Y.T, Y

    def advance(self, state: LMaFitState, schedule: Array, etas: Array) -> LMaFitState:
        """Do one step per row of the schedule; neither its entries nor the etas are looked at."""
        tracked, shares, factors, steps = state.tracked, state.shares, state.factors, state.steps
        for _ in schedule:
            found = [self._renewed(i, _basis(S), factors[i]) for i, S in enumerate(tracked)]
            renewed = np.array([share for share, _ in found])
            tracked = np.einsum("ij,jab->iab", self.weights, tracked) + renewed - shares
            shares, factors, steps = renewed, [Y for _, Y in found], steps + 1
        return LMaFitState(tracked, shares, factors, steps)

    def dump(self, state: LMaFitState) -> Parts:
        """Return the agents' bases."""
        return Parts([_basis(S) for S in state.tracked])


class DLMaFit(ScheduledSolver):
    """The rival of Mishra et al. 2019, Case 4; see `LMaFitEngine`.

    Parameters
    ----------
    n_steps : int
        The budget; at every step all agents move, and each sends its factor to all its neighbours.
    """

    def __init__(self, n_steps: int = 400) -> None:
        self.n_steps = integer("n_steps", n_steps)

    def engine(self, problem: Problem) -> LMaFitEngine:
        """Return the engine that does the steps.

        Raises
        ------
        MissingCapabilityError
            When the problem is not matrix completion between agents with λ = 0.
        """
        cost = problem.cost
        if type(cost) is not GossipCost or type(cost.tasks) is not MatrixCompletion or cost.tasks.lam:
            raise MissingCapabilityError("DLMaFit needs a GossipCost of a MatrixCompletion with lam = 0.")
        return LMaFitEngine(cost)

    def sampler_for(self, problem: Problem) -> Sampler:
        """Return a sampler of one term: every step is for all agents."""
        return Cyclic(1)

    def step_size_rule(self) -> StepSize:
        """Return a rule that nobody looks at."""
        return Constant(1.0)


def _basis(S: Array) -> Array:
    (root,) = gram_functions(S, lambda squares: squares**-0.5)
    return S @ root
