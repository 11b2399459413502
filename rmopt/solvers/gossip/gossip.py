"""Gossip between agents."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, by_keyword, flag, instance, integer, number, optional
from rmopt.core.manifold import Manifold
from rmopt.core.points import is_finite
from rmopt.core.problem import Problem
from rmopt.core.product import Parts
from rmopt.core.retraction import Retraction
from rmopt.core.world import ONE_PROCESS, World
from rmopt.costs.gossip import GossipCost, partners_of
from rmopt.costs.graph import Graph
from rmopt.engines.base import Engine, checked, diverged
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds import Product
from rmopt.solvers.stochastic.samplers import Sampler, Uniform, as_order
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import as_step_size


@dataclass(frozen=True)
class GossipState:
    """The points of the agents in this process, and the number of moves of each agent.

    Attributes
    ----------
    points : mapping from int to object
        Of the agents in this process.
    counts : int array, shape (n_agents,)
        Moves of every agent.
    sent : int array, shape (2,)
        Messages and bytes that this process sent so far (see `World`).
    steps : int
        Steps done.
    """

    points: dict[int, Array]
    counts: Array
    sent: Array
    steps: int = 0

    @property
    def updates(self) -> int:
        """The number of moves of agents, summed over the steps."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class GossipEngine(Engine):
    """Algorithm 1 of Mishra et al. 2019: a step draws some edges and moves the agents at their ends.

    An agent needs only its own data and the points of its partners. Of several processes each engine moves the agents
    of its own process. All draw the same edges, without a coordinator.

    Attributes
    ----------
    manifold : Manifold
        That of one agent.
    cost : GossipCost
    retraction : Retraction
    preconditioned : bool
        Scale each agent's gradient by (WᵀW + ρI)⁻¹ (equation 20).
    scales : array, shape (n_agents,)
        A factor for each agent's step sizes.
    world : World
        The processes of the agents.
    """

    manifold: Manifold
    cost: GossipCost
    retraction: Retraction
    preconditioned: bool = False
    scales: Array | None = None
    world: World = ONE_PROCESS

    def load(self, point: Parts) -> GossipState:
        n = self.cost.graph.n
        points = {agent: point[agent] for agent in self.world.mine(n)}
        return GossipState(points, np.zeros(n, dtype=np.int64), self.world.sent.copy())

    def advance(self, state: GossipState, schedule: Array, etas: Array) -> GossipState:
        """Do one step per row of the schedule (see `Engine.advance`): numbers of edges, and −1 as padding."""
        schedule = checked(schedule, etas, self.cost.term_ranges, what="edges")
        points, counts, steps = dict(state.points), state.counts.copy(), state.steps
        self.world.sent[:] = state.sent
        with np.errstate(all="ignore"):
            for edges, eta in zip(schedule, etas, strict=True):
                partners = partners_of(self.cost.graph, edges)
                here = [agent for agent in partners if agent in points]
                ways = [(agent, other) for agent, others in partners.items() for other in others]
                like = next(iter(points.values()))
                heard = self.world.deliver(points, ways, like, self.cost.graph.n)
                # Each agent evaluates its own gradient while messages are in transit.
                own = {agent: self.cost.tasks.agent_gradient(points[agent], agent) for agent in here}
                others = heard()
                points |= {
                    agent: self._moved(
                        agent, points[agent], own[agent], [others[other] for other in partners[agent]],
                        float(eta if self.scales is None else eta * self.scales[agent]), steps,
                    )
                    for agent in here
                }  # fmt: skip
                counts[list(partners)] += 1
                steps += 1
        return GossipState(points, counts, self.world.sent.copy(), steps)

    def _moved(self, agent: int, point: Array, own: Any, others: list[Array], eta: float, step: int) -> Array:
        """Return the next point of an agent, from its point, its own gradient and its partners' points."""
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
        if not is_finite(moved):
            raise diverged(step, eta)
        return moved

    def dump(self, state: GossipState) -> Parts:
        """Return the points of all agents, after a transfer of those of other processes."""
        return Parts(self.world.gather(state.points, self.cost.graph.n))


class Matchings(Sampler):
    """A uniformly random matching of a graph at each step: edges that share no agent.

    Parameters
    ----------
    graph : Graph
    """

    def __init__(self, graph: Graph) -> None:
        groups = instance("graph", graph, Graph, "a Graph (rmopt.costs.as_graph makes one by name)").matchings
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


def world_of(name: str, value: Any) -> World:
    """Return a world, for None this process alone."""
    return instance(name, ONE_PROCESS if value is None else value, World, "a World")


def _positive(name: str, value: Any) -> Array:
    return np.array([number(name, each, above=0) for each in np.atleast_1d(value)])


@by_keyword
class Gossip(CheckedValue, ScheduledSolver):
    """Riemannian gossip (Mishra et al. 2019, Algorithm 1 and its variants) for a `GossipCost` on a `Product`.

    A step draws an edge, or edges that share no agent. The agents at their ends move along the gradients of the sum
    over these edges. Swap the manifold for `Euclidean` for the Euclidean formulation (equation 22).

    Parameters
    ----------
    step_size : float, StepSize or callable
    n_epochs : float
        The budget: the expected number of draws of each edge. An agent moves that often for each neighbour.
    order : {"stochastic", "parallel"}, Sampler or callable
        "stochastic": one random edge a step. "parallel": a random matching, on a path the odd or the even edges.
    preconditioned : bool
        Scale gradients by (WᵀW + ρI)⁻¹ (equation 20).
    scales : array, optional
        A factor for the step sizes of each agent.
    retraction : Retraction, optional
        Defaults to the manifold's.
    max_iter : int, optional
        The budget in steps, instead of `n_epochs`.
    world : World, optional
        The processes of the agents: `rmopt.solvers.MPIWorld` distributes them. Each process then runs the same
        solver, with the same `random_state`.

    See Also
    --------
    problems.subspace.gossip : finds step sizes and ρ automatically.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import MatrixCompletion
    >>> from rmopt import Problem
    >>> from rmopt.costs import GossipCost, Graph
    >>> from rmopt.manifolds import Grassmann, Product
    >>> from rmopt.solvers import Gossip
    >>> rng, manifold = np.random.default_rng(0), Grassmann(8, 1)
    >>> table = sp.csc_array(rng.random((8, 1)) @ rng.random((1, 30)))
    >>> tasks = MatrixCompletion(table, n_agents=3)
    >>> problem = Problem(
    ...     Product([manifold] * 3), GossipCost(tasks, Graph.path(3), 0.1, manifold)
    ... )
    >>> agents = Gossip(0.05, n_epochs=100).run(problem, random_state=0).point
    >>> bool(problem.cost.gaps(agents).max() < 1e-2)
    True
    """

    step_size: Annotated[Any, lambda name, value: as_step_size(value)] = field(kw_only=False)
    n_epochs: Annotated[float, bounded(number, least=0, most=1e12)] = 200.0
    order: Annotated[Any, lambda name, value: as_order(value, ORDERS)] = "stochastic"
    preconditioned: Annotated[bool, flag] = False
    scales: Annotated[Any, optional(_positive)] = None
    retraction: Retraction | None = None
    max_iter: Annotated[int | None, optional(integer)] = None  # type: ignore[assignment]
    world: Annotated[Any, world_of] = None

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        manifold = problem.manifold
        alike = type(manifold) is Product and all(
            factor is manifold.factors[0] for factor in manifold.factors
        )
        if type(problem.cost) is not GossipCost or not alike:
            raise MissingCapabilityError(
                f"Gossip cannot run {type(problem.cost).__name__} on {problem.manifold}: it needs a GossipCost on "
                "Product([manifold] * n) and no subclass of either, for which take SGD."
            )

    def engine(self, problem: Problem) -> Engine:
        cost, manifold = cast(GossipCost, problem.cost), cast(Product, problem.manifold)
        n = len(cost.checked(manifold.factors))
        if self.scales is not None and self.scales.shape != (n,):
            raise InvalidInputError(f"scales must be {n} positive numbers, one per agent, got {self.scales}.")
        base, known = manifold.factors[0], (self.preconditioned, self.scales, self.world)
        return GossipEngine(base, cost, base.fitting(self.retraction), *known)

    def _alike(self, problem: Problem, initial_point: Any) -> dict[str, Any]:
        # Processes have the scales and points of their own agents only.
        return self.signature() | {"budget": self.budget(problem), "solver.scales": None}

    def budget(self, problem: Problem) -> int:
        if self.max_iter is not None:
            return self.max_iter
        graph: Graph = problem.cost.graph  # type: ignore[attr-defined]
        rounds = len(graph.matchings) if self.order == "parallel" else len(graph.edges)
        return round(self.n_epochs * rounds)

    def sampler_for(self, problem: Problem) -> Sampler:
        graph: Graph = problem.cost.graph  # type: ignore[attr-defined]
        return ORDERS[self.order](graph) if isinstance(self.order, str) else self.order
