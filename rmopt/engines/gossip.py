"""Gossip: agents that move by their own gradient and towards the neighbours they hear from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of
from rmopt.core.product import Parts
from rmopt.core.retraction import Retraction
from rmopt.costs.gossip import GossipCost, partners_of
from rmopt.engines.base import Engine, checked, diverged
from rmopt.engines.world import ONE_PROCESS, World

Rule = Callable[[Array], Array]


@dataclass(frozen=True)
class GossipState:
    """The points of the agents in this process, and how often each agent moved.

    Attributes
    ----------
    points : mapping from int to object
        Of the agents in this process.
    counts : int array, shape (n_agents,)
        Moves of every agent.
    sent : int array, shape (2,)
        What this process sent so far (see `World`).
    steps : int
        Steps done.
    """

    points: dict[int, Array]
    counts: Array
    sent: Array
    steps: int = 0

    @property
    def updates(self) -> int:
        """How many agents were moved, counted over the steps."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class GossipEngine(Engine):
    """Algorithm 1 of Mishra et al. 2019: a step takes some edges and moves the agents at their ends.

    An agent needs its own data and the points of its partners, nothing else. In a world of several processes each
    engine moves the agents of its own process, all draw the same edges, and there is no coordinator.

    Attributes
    ----------
    manifold : Manifold
        That of one agent.
    cost : GossipCost
    retraction : Retraction
    preconditioned : bool
        Scale each agent's gradient by (WᵀW + ρI)⁻¹ (equation 20).
    scales : array, shape (n_agents,)
        A factor of each agent's step sizes.
    own_clock : callable, optional
        A rule of step sizes; each agent then counts its own updates, and the etas of `advance` are not looked at.
    world : World
        Where the agents are.
    """

    manifold: Manifold
    cost: GossipCost
    retraction: Retraction
    preconditioned: bool = False
    scales: Array | None = None
    own_clock: Rule | None = None
    world: World = ONE_PROCESS

    def load(self, point: Parts) -> GossipState:
        n = self.cost.graph.n
        points = {agent: point[agent] for agent in self.world.mine(n)}
        return GossipState(points, np.zeros(n, dtype=np.int64), self.world.sent.copy())

    def advance(self, state: GossipState, schedule: Array, etas: Array) -> GossipState:
        """Do one step per row of the schedule (see `Engine.advance`): numbers of edges, and −1 to fill up."""
        schedule = checked(schedule, etas, self.cost.term_ranges, what="edges")
        points, counts, steps = dict(state.points), state.counts.copy(), state.steps
        self.world.sent[:] = state.sent
        with np.errstate(all="ignore"), self.world.guard():
            for edges, eta in zip(schedule, etas, strict=True):
                partners = partners_of(self.cost.graph, edges)
                here = [agent for agent in partners if agent in points]
                heard = self.world.exchange(points, partners, self.cost.graph.n)
                # Each agent looks at its own data while the messages travel.
                own = {agent: self.cost.tasks.agent_gradient(points[agent], agent) for agent in here}
                others = heard()
                moved = {
                    agent: self._moved(
                        agent,
                        points[agent],
                        own[agent],
                        [others[other] for other in partners[agent]],
                        self._eta(agent, eta, counts),
                        steps,
                    )
                    for agent in here
                }
                points.update(moved)
                counts[list(partners)] += 1
                steps += 1
        return GossipState(points, counts, self.world.sent.copy(), steps)

    def _moved(self, agent: int, point: Array, own: Any, others: list[Array], eta: float, step: int) -> Array:
        """Return where an agent goes from its point, its own gradient and its partners' points."""
        gradient, curvature = own
        share = len(others) * self.cost.shares[agent]
        tangent = self.manifold.euclidean_to_riemannian_gradient(point, gradient) * share
        if not np.isfinite(self.manifold.norm(point, tangent)):
            raise diverged(step, eta)
        if self.cost.rho > 0.0:
            for other in others:
                tangent = tangent - self.cost.manifold.log(point, other) * self.cost.rho
        if self.preconditioned:
            # Without agreement, and with fewer columns than the rank, WᵀW alone is singular.
            weight = max(self.cost.rho, 1e-12 * float(np.trace(curvature)), np.finfo(float).tiny)
            tangent = np.linalg.solve(curvature + weight * np.eye(len(curvature)), tangent.T).T
        moved = self.retraction(self.manifold, point, tangent, -eta)
        if not all(np.isfinite(part).all() for part in arrays_of(moved)):
            raise diverged(step, eta)
        return moved

    def _eta(self, agent: int, eta: float, counts: Array) -> float:
        """Return an agent's step size."""
        if self.own_clock is not None:
            eta = float(self.own_clock(counts[agent : agent + 1])[0])
        return float(eta if self.scales is None else eta * self.scales[agent])

    def dump(self, state: GossipState) -> Parts:
        """Return the points of all agents; those of other processes are sent here."""
        return Parts(self.world.gather(state.points, self.cost.graph.n))
