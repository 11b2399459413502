"""Gossip between agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import flag, instance, integer, number, one_of, optional
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.graph import Graph
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.costs.gossip import GossipCost
from rmopt.engines.base import Engine
from rmopt.engines.gossip import GossipEngine
from rmopt.engines.world import OneProcess, World
from rmopt.manifolds import Power
from rmopt.renamed import renamed
from rmopt.solvers.samplers import Sampler, Uniform, as_order
from rmopt.solvers.scheduled import ScheduledSolver
from rmopt.solvers.step_sizes import StepSize, as_step_size

CLOCKS = ("shared", "own")


class Matchings(Sampler):
    """One of a graph's matchings at every step, each equally likely: its edges share no agent.

    Parameters
    ----------
    graph : Graph
    """

    def __init__(self, graph: Graph) -> None:
        groups = instance("graph", graph, Graph, "a Graph (rmopt.core.as_graph makes one by name)").matchings
        self._table = np.full((len(groups), max(map(len, groups))), -1)
        for row, group in zip(self._table, groups, strict=True):
            row[: len(group)] = group
        self.batch_size = self._table.shape[1]

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        return self._table[rng.integers(len(self._table), size=size)]


ORDERS: dict[str, Callable[[Graph], Sampler]] = {
    "stochastic": lambda graph: Uniform(len(graph.edges)),
    "parallel": Matchings,
}


@renamed(n_updates="n_epochs", n_steps="max_iter", _n_steps="_max_iter")
class Gossip(ScheduledSolver):
    """Riemannian gossip (Mishra et al. 2019, Algorithm 1 and its variants) for a `GossipCost` on a `Power` manifold.

    A step takes an edge, or edges that share no agent; the agents at their ends move along the gradients of the sum
    over these edges. Swap the manifold for a power of `Euclidean` to get the paper's Euclidean rival (equation 22).

    Parameters
    ----------
    step_size : float, StepSize or callable
        Of the number of the step, or of an agent's own updates with ``clock="own"``.
    n_epochs : float
        The budget: how often each edge is expected to be taken. An agent moves that often for each neighbour.
    order : {"stochastic", "parallel"}, Sampler or callable
        "stochastic": one random edge a step. "parallel": a random matching, on a path the odd or the even edges.
    preconditioned : bool
        Scale gradients by (WᵀW + ρI)⁻¹ (equation 20).
    clock : {"shared", "own"}
        "own": each agent counts its own updates, so no clock is shared.
    scales : array, optional
        A factor of the step sizes of each agent.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    max_iter : int, optional
        The budget in steps, instead of `n_epochs`.
    world : World, optional
        Where the agents are; `rmopt.engines.MPIWorld` spreads them over processes. Each process then runs the same
        solver, with the same `random_state`.
    """

    def __init__(
        self,
        step_size: float | StepSize | Callable[[Array], Array],
        *,
        n_epochs: float = 200.0,
        order: str | Sampler | Callable[..., Any] = "stochastic",
        preconditioned: bool = False,
        clock: str = "shared",
        scales: Array | None = None,
        retraction: Retraction | None = None,
        max_iter: int | None = None,
        world: World | None = None,
    ) -> None:
        self.step_size, self.n_epochs = (
            as_step_size(step_size),
            number("n_epochs", n_epochs, least=0, most=1e12),
        )
        self.order, self.clock = as_order(order, ORDERS), one_of("clock", clock, CLOCKS)
        self.preconditioned, self.retraction = flag("preconditioned", preconditioned), retraction
        self.scales = (
            None
            if scales is None
            else np.array([number("scales", one, above=0) for one in np.atleast_1d(scales)])
        )
        self.world = OneProcess() if world is None else instance("world", world, World, "a World")
        self._max_iter = optional(integer)("max_iter", max_iter)

    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps.

        Raises
        ------
        MissingCapabilityError
            When the cost is no `GossipCost`, or the manifold no `Power` of the agents' one.
        InvalidInputError
            When `scales` are not one positive number per agent.
        """
        cost, manifold = problem.cost, problem.manifold
        if type(cost) is not GossipCost or type(manifold) is not Power:
            raise MissingCapabilityError(
                f"Gossip cannot run {type(cost).__name__} on {manifold}: it needs a GossipCost on Power(manifold, "
                "n), and takes no subclass of either, whose methods it would not call; SGD calls them."
            )
        n = cost.graph.n
        if self.scales is not None and self.scales.shape != (n,):
            raise InvalidInputError(f"scales must be {n} positive numbers, one per agent, got {self.scales}.")
        base = manifold.base
        return GossipEngine(
            base,
            cost,
            base.default_retraction if self.retraction is None else base.fitting(self.retraction),
            self.preconditioned,
            self.scales,
            self.step_size_rule() if self.clock == "own" else None,
            self.world,
        )

    def budget(self, problem: Problem) -> int:
        if self._max_iter is not None:
            return self._max_iter
        graph: Graph = problem.cost.graph  # type: ignore[attr-defined]
        rounds = len(graph.matchings) if self.order == "parallel" else len(graph.edges)
        return round(self.n_epochs * rounds)

    def sampler_for(self, problem: Problem) -> Sampler:
        graph: Graph = problem.cost.graph  # type: ignore[attr-defined]
        return ORDERS[self.order](graph) if isinstance(self.order, str) else self.order
