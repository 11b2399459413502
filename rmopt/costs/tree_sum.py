"""A sum over agents that keep their data, exact: partial sums travel along a tree."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance
from rmopt.core.cost import AgentSum, Cost
from rmopt.core.memo import Memo
from rmopt.core.world import ONE_PROCESS, World
from rmopt.costs.graph import Graph
from rmopt.errors import InvalidInputError
from rmopt.linalg import scaled_inverse


class TreeSum(Cost):
    """Σ_i f_i(U) over agents who hold data of their own, added along a spanning tree of their graph.

    Each agent adds what its children in the tree sent to its own value and gradient, and sends the sum to its parent;
    the root sends the total back. So all have the same bits, and a solver of whole gradients, run by all processes
    alike, is a decentralised one: agents speak with neighbours alone, agree at every step, and end where all data in
    one place would have led. Gossip needs no tree and no common pace, and has a bias; this has none.

    A value is eight bytes, and a gradient travels where a solver asks for it: trials along a line are nearly free.
    What an agent's parent learns is the sum of the gradients below it, for a leaf that of one agent.

    Parameters
    ----------
    tasks : AgentSum
        The agents' own costs, of points that are arrays; in a world of several processes each holds the data of its
        own agents.
    graph : Graph
        Who talks to whom.
    world : World, optional
        Where the agents are. All processes give the same start, or none. A criterion of your own that sees a clock
        may then stop one process and not another, which waits forever; `MaxSeconds` is refused.

    Raises
    ------
    InvalidInputError
        When the graph is of another number of agents.

    See Also
    --------
    rmopt.costs.GossipCost : Agents with points of their own, drawn to those of their neighbours.

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
        """Return the sum of the agents' values, for which eight bytes travel: a search along a line is cheap."""
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
        """Return the sum of what the agents have of their own at a point, arrays of a shape."""
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
        """Return values, gradients and curvatures of the agents here, each of whom is asked once."""
        tasks, mine = self.tasks, self.world.mine(self.graph.n)
        return self._asked.get(
            point, lambda at: {i: (tasks.agent_value(at, i), *tasks.agent_gradient(at, i)) for i in mine}
        )
