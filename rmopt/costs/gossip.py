"""Costs of agents on a graph: with attraction between neighbours, and as sums along a tree of the graph."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, number
from rmopt.core.cost import AgentSum, Cost, FiniteSum
from rmopt.core.manifold import Manifold
from rmopt.core.memo import Memo
from rmopt.core.product import BlockDiagonal, Parts, matrix_shape
from rmopt.core.world import ONE_PROCESS, World
from rmopt.costs.graph import Graph
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.linalg import scaled_inverse


class GossipCost(FiniteSum):
    """Σ_i f_i(U_i) + ρ/2 Σ d²(U_i, U_j), the second sum over the edges of a graph (Mishra et al. 2019, equation 17).

    A term is an edge: g = α_i f_i(U_i) + α_j f_j(U_j) + ρ/2 d²(U_i, U_j), with α_i one over the number of neighbours
    of i, so that the terms add up to the cost. (The paper prints the paths' 1 and ½, with f_k instead of f_i, and d²
    = ½ ‖Log‖²; the gradient −ρ Log that it uses is that of d² = ‖Log‖².) Points are `Parts`, one per agent, on
    ``Product([manifold] * n)``.

    Parameters
    ----------
    tasks : AgentSum
        The agents' own costs f_i.
    graph : Graph
        The links between agents.
    rho : float
        Weight of the agreement. With 0 every agent works alone.
    manifold : Manifold
        That of one agent, with `log` and `dist` unless ρ is 0. `Euclidean` gives the baseline of equation 22.

    Raises
    ------
    InvalidInputError
        If the graph has another number of agents, ρ is negative, or the manifold is that of all agents.
    MissingCapabilityError
        If the manifold has no logarithm.

    See Also
    --------
    problems.subspace.gossip : minimises it, with special step sizes.

    References
    ----------
    Mishra, Kasai, Jawanpuria and Saroop, A Riemannian gossip approach to subspace learning on Grassmann manifold,
    Machine Learning 108 (2019), https://doi.org/10.1007/s10994-018-05775-x.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from rmopt.core import Parts
    >>> from rmopt.costs import GossipCost, Graph
    >>> from rmopt.manifolds import Grassmann
    >>> from problems.subspace import MatrixCompletion
    >>> tasks = MatrixCompletion(sp.csc_array(np.ones((2, 4))), n_agents=2)
    >>> cost = GossipCost(tasks, Graph.path(2), 1.0, Grassmann(2, 1))
    >>> agents = Parts([np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])])
    >>> cost.gaps(agents).round(4), round(cost.value(agents) - tasks.value(agents[0]), 4)
    (array([1.5708]), 1.2337)
    """

    point_type = Parts
    remedy = "take Product([manifold] * n), with a point for each agent"

    def __init__(self, tasks: AgentSum, graph: Graph, rho: float, manifold: Manifold) -> None:
        instance("tasks", tasks, AgentSum, "an object of a subclass of AgentSum")
        instance("graph", graph, Graph, "a Graph, for example Graph.path(5)")
        instance("manifold", manifold, Manifold, "the manifold of one agent")
        if manifold.point_type is Parts:
            raise InvalidInputError(
                f"manifold = {manifold} must be that of one agent, for example its base: GossipCost couples the "
                "agents, and its points lie on Product([manifold] * n)."
            )
        if graph.n != tasks.n_terms or graph.n < 2:
            raise InvalidInputError(
                f"{graph} does not fit the {tasks.n_terms} agents of {type(tasks).__name__}; gossip needs a graph of "
                "all agents, of at least two."
            )
        self.tasks, self.graph, self.manifold = tasks, graph, manifold
        self.rho = number("rho", rho, least=0, most=1e150)
        if self.rho > 0.0 and not (manifold.knows("log") and manifold.knows("dist")):
            raise MissingCapabilityError(
                f"{manifold} has no closed form of a logarithm and of distances (`log`, `dist`), which attract "
                "neighbours; choose another manifold, or rho = 0."
            )
        self.shares = 1.0 / graph.degrees

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of the block-diagonal matrix of all agents' points."""
        return tuple(self.graph.n * size for size in self.manifold.shape)  # type: ignore[attr-defined]

    @property
    def n_terms(self) -> int:
        """Number of edges."""
        return len(self.graph.edges)

    @property
    def term_ranges(self) -> list[tuple[int, int | None]]:
        """Numbers of edges, and −1 as padding of a step."""
        return [(-1, self.n_terms)]

    def value(self, point: Parts) -> float:
        fits = sum(self.tasks.agent_value(part, agent) for agent, part in enumerate(self.checked(point)))
        return float(fits + 0.5 * self.rho * np.sum(self.gaps(point) ** 2)) if self.rho else float(fits)

    def checked(self, parts: Any) -> Any:
        """Return a point or the factors of a manifold, checked to be one for each agent."""
        if len(parts) != self.graph.n:
            raise InvalidInputError(
                f"{len(parts)} parts do not fit {self.graph}; take Product([manifold] * {self.graph.n})."
            )
        return parts

    def gaps(self, point: Parts) -> Array:
        """Return the distance along each edge."""
        return np.array([self.manifold.dist(point[i], point[j]) for i, j in self.graph.edges])

    def term_gradient(self, point: Parts, terms: Array) -> BlockDiagonal:
        """Return the gradient of the sum over some edges, with negative numbers as padding.

        The blocks are Euclidean gradients of f_i, plus the Riemannian gradient −ρ Log of the agreement.
        """
        if self.rho and not self._is_extrinsic:
            raise MissingCapabilityError(
                f"the metric of {self.manifold} is not that of the ambient space, in which GossipCost gives its "
                "gradient; take the solver Gossip, another manifold, or rho = 0."
            )
        blocks, point = {}, self.checked(point)
        for agent, others in partners_of(self.graph, terms).items():
            own, _ = self.tasks.agent_gradient(point[agent], agent)
            blocks[agent] = len(others) * self.shares[agent] * dense(own)
            if self.rho:
                pull = sum(self.manifold.log(point[agent], point[other]) for other in others)
                blocks[agent] = blocks[agent] - self.rho * pull
        return BlockDiagonal([matrix_shape(part.shape) for part in point], blocks)

    @cached_property
    def _is_extrinsic(self) -> bool:
        """Whether a tangent vector is also the gradient in the ambient space."""
        x = self.manifold.random_point(np.random.default_rng(0))
        xi = self.manifold.random_tangent_vector(x, np.random.default_rng(1))
        gradient = self.manifold.euclidean_to_riemannian_gradient(x, self.manifold.embedding(x, xi))
        return self.manifold.norm(x, gradient - xi) < 1e-8


def partners_of(graph: Graph, terms: Array) -> dict[int, list[int]]:
    """Return for each agent at these edges the agents at the other ends."""
    found: dict[int, list[int]] = {}
    for term in terms:
        if term >= 0:
            i, j = graph.edges[term].tolist()
            found.setdefault(i, []).append(j)
            found.setdefault(j, []).append(i)
    return found


class TreeSum(Cost):
    """Σ_i f_i(U) over agents with their own data, added along a spanning tree of their graph.

    Each agent adds what its children in the tree sent to its own value and gradient, and sends the sum to its parent.
    The root sends the total back. So all have bit-identical sums, and a full-gradient solver, run by all processes
    alike, becomes decentralised: agents exchange messages with neighbours alone, agree at every step, and end at the
    same point as with all data in one place. Gossip needs no tree and no common pace, but has a bias. This has none.

    A value takes eight bytes, and gradients are sent only on request, so trials along a line are nearly free. An
    agent's parent receives the sum of the gradients below it, for a leaf that of one agent.

    Parameters
    ----------
    tasks : AgentSum
        The agents' own costs, of points that are arrays. Of several processes each holds the data of its own agents.
    graph : Graph
        The links between agents.
    world : World, optional
        The processes of the agents, which all give the same start or none. Your own criterion on a clock may stop one
        process and leave another waiting forever. `MaxSeconds` is refused.

    Raises
    ------
    InvalidInputError
        If the graph has another number of agents.

    See Also
    --------
    rmopt.costs.GossipCost : agents with their own points, attracted to those of neighbours.

    References
    ----------
    Lynch, Distributed Algorithms, Morgan Kaufmann (1996).

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from problems.subspace import MatrixCompletion
    >>> from rmopt import Problem
    >>> from rmopt.costs import Graph
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.solvers import ConjugateGradient, TreeSum
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((20, 1)) @ rng.standard_normal((1, 40))
    >>> known = sp.csc_array(truth * (rng.random(truth.shape) < 0.5))
    >>> tasks = MatrixCompletion(known, n_agents=4)
    >>> problem = Problem(Grassmann(20, 1), TreeSum(tasks, Graph.ring(4)))
    >>> result = ConjugateGradient().run(problem, random_state=0)
    >>> bool(problem.cost.value(result.point) < 1e-12)
    True
    """

    point_type = np.ndarray

    def __init__(self, tasks: AgentSum, graph: Graph, world: World | None = None) -> None:
        self.tasks = instance("tasks", tasks, AgentSum, "an object of a subclass of AgentSum")
        self.graph = instance("graph", graph, Graph, "a Graph, for example Graph.path(5)")
        self.world = ONE_PROCESS if world is None else instance("world", world, World, "a World")
        if graph.n != tasks.n_terms:
            raise InvalidInputError(
                f"{graph} does not fit the {tasks.n_terms} agents of {type(tasks).__name__}."
            )
        if self.world.size > graph.n:
            raise InvalidInputError(
                f"{graph} has fewer agents than there are processes, {self.world.size}; start as many, or fewer."
            )
        self._values, self._sums, self._asked = Memo(), Memo(), Memo()

    def value(self, point: Array) -> float:
        """Return the sum of the agents' values in messages of eight bytes, so that line searches are cheap."""
        summed = self._values.get(point, lambda at: self._along_tree(at, self._value_of, (1,)))
        return float(summed[0])

    def gradient(self, point: Array) -> Array:
        return self._slopes(point)[: len(point)].copy()

    def precondition(self, point: Array, tangent_vector: Array) -> Array:
        """Return ξ C⁻¹ times the mean eigenvalue of C, for the sum C of the agents' r × r curvatures."""
        return scaled_inverse(self._slopes(point)[len(point) :], tangent_vector)

    def _slopes(self, point: Array) -> Array:
        """Return the sum of gradients, and below it that of curvatures."""
        shape = sum(point.shape), point.shape[1]
        return self._sums.get(point, lambda at: self._along_tree(at, self._slopes_of, shape))

    def _along_tree(self, point: Array, own: Callable[[Array, int], Array], shape: tuple[int, ...]) -> Array:
        """Return the sum of the agents' own arrays at a point."""
        n, levels, like = self.graph.n, self.graph.tree, np.empty(shape)
        root = levels[0][0][1] if levels else 0
        sums = {agent: own(point, agent).astype(float) for agent in self.world.mine(n)}
        for level in reversed(levels):
            sent = {agent: sums[agent] for agent, _ in level if agent in sums}
            arrived = self.world.deliver(sent, level, like, n)()
            for agent, parent in level:
                if parent in sums:
                    sums[parent] = sums[parent] + arrived[agent]
        known = {root: sums[root]} if root in sums else {}
        for level in levels:
            down = [(parent, agent) for agent, parent in level]
            arrived = self.world.deliver(known, down, like, n)()
            known |= {agent: arrived[parent] for agent, parent in level if agent in sums}
        return known[min(sums)]

    def _value_of(self, point: Array, agent: int) -> Array:
        return np.array([self._own(point)[agent][0]])

    def _slopes_of(self, point: Array, agent: int) -> Array:
        _, gradient, curvature = self._own(point)[agent]
        return np.vstack([dense(gradient), curvature])

    def _own(self, point: Array) -> dict[int, Any]:
        """Return values, gradients and curvatures of the local agents, each evaluated once."""
        tasks, mine = self.tasks, self.world.mine(self.graph.n)
        return self._asked.get(
            point, lambda at: {i: (tasks.agent_value(at, i), *tasks.agent_gradient(at, i)) for i in mine}
        )
