"""A sum over agents that keep their data, exact: partial sums travel along a tree."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, one_of
from rmopt.core.cost import AgentSum, Cost
from rmopt.core.memo import Memo
from rmopt.core.world import ONE_PROCESS, World
from rmopt.costs.graph import Graph
from rmopt.errors import InvalidInputError
from rmopt.linalg import scaled_inverse

PRECISIONS = ("float64", "float32", "int8")


class Numbers:
    """How arrays are written as bytes: each number in one precision."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def length(self, shape: tuple[int, ...]) -> int:
        """Return the number of bytes of an array."""
        return int(np.prod(shape)) * np.dtype(self.kind).itemsize

    def written(self, way: int, array: Array) -> Array:
        """Return the bytes of an array that goes a way."""
        return array.astype(self.kind).ravel().view(np.uint8)

    def read(self, way: int, message: Array, shape: tuple[int, ...]) -> Array:
        """Return the array that a message stands for; both of its ends read it, once."""
        return message.view(self.kind).astype(float).reshape(shape)


class Differences(Numbers):
    """Eight bits for an entry of a gradient: its difference to what the last message of the same way stood for.

    So what rounding left out of one message is in the next one. Each column has a scale of its own, and the square
    of curvatures below the gradient is written whole.
    """

    def __init__(self) -> None:
        super().__init__("float64")
        self._known: dict[int, Array] = {}

    def length(self, shape: tuple[int, ...]) -> int:
        rows, rank = shape
        return 8 * rank * (rank + 1) + (rows - rank) * rank

    def written(self, way: int, array: Array) -> Array:
        rank = array.shape[1]
        change = array[:-rank] - self._before(way, array.shape)
        scale = np.abs(change).max(axis=0) / 127.0
        whole = np.vstack([scale, array[-rank:]])
        # What is not finite makes its column's scale so, and the reader's numbers.
        steps = np.divide(change, scale, out=np.zeros_like(change), where=np.isfinite(scale) & (scale > 0.0))
        return np.concatenate(
            [super().written(way, whole), np.rint(steps).astype(np.int8).ravel().view(np.uint8)]
        )

    def read(self, way: int, message: Array, shape: tuple[int, ...]) -> Array:
        rows, rank = shape
        begin = 8 * rank * (rank + 1)
        whole = super().read(way, message[:begin], (rank + 1, rank))
        steps = message[begin:].view(np.int8).reshape(rows - rank, rank)
        gradient = self._before(way, shape) + steps * whole[0]
        if np.isfinite(gradient).all():
            self._known[way] = gradient
        return np.vstack([gradient, whole[1:]])

    def _before(self, way: int, shape: tuple[int, ...]) -> Array:
        fresh = np.zeros((shape[0] - shape[1], shape[1]))
        known = self._known.get(way, fresh)
        return known if known.shape == fresh.shape else fresh


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
    messages : {"float64", "float32", "int8"}
        Of gradients; "float32" halves what is sent, for a relative error of 1e-7 in each sum. "int8" sends an eighth:
        differences to what was sent before, which get exact as a run settles; sums then depend on what was asked
        before, and a run that goes on from a checkpoint ends with other roundings. It is not for solvers that take
        differences of gradients, such as `TrustRegions` and `AdaptiveCubics`. Values are always sent whole.

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

    def __init__(
        self, tasks: AgentSum, graph: Graph, world: World | None = None, messages: str = "float64"
    ) -> None:
        self.tasks = instance("tasks", tasks, AgentSum, "an object of a subclass of AgentSum")
        self.graph = instance("graph", graph, Graph, "a Graph, for example Graph.path(5)")
        self.world = ONE_PROCESS if world is None else instance("world", world, World, "a World")
        self.messages = one_of("messages", messages, PRECISIONS)
        if graph.n != tasks.n_terms:
            raise InvalidInputError(
                f"{graph} does not fit the {tasks.n_terms} agents of {type(tasks).__name__}."
            )
        if self.world.size > graph.n:
            raise InvalidInputError(
                f"{graph} has fewer agents than there are processes, {self.world.size}; start as many, or fewer."
            )
        self._values, self._sums, self._asked = Memo(), Memo(), Memo()
        self._whole = Numbers("float64")
        self._code = Differences() if messages == "int8" else Numbers(messages)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out where it runs, and what was computed."""
        return {name: value for name, value in vars(self).items() if name in ("tasks", "graph", "messages")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["tasks"], state["graph"], messages=state["messages"])  # type: ignore[misc]

    def value(self, point: Array) -> float:
        """Return the sum of the agents' values, for which eight bytes travel: a search along a line is cheap."""
        summed = self._values.get(point, lambda at: self._along_tree(at, self._value_of, self._whole, (1,)))
        return float(summed[0])

    def gradient(self, point: Array) -> Array:
        return self._slopes(point)[: len(point)].copy()

    def precondition(self, point: Array, tangent_vector: Array) -> Array:
        """Return ξ C⁻¹ times the mean eigenvalue of C, for the sum C of the agents' r × r curvatures."""
        return scaled_inverse(self._slopes(point)[len(point) :], tangent_vector)

    def _slopes(self, point: Array) -> Array:
        """Return the sum of gradients, and below it that of curvatures."""
        shape = sum(point.shape), point.shape[1]
        return self._sums.get(point, lambda at: self._along_tree(at, self._slopes_of, self._code, shape))

    def _along_tree(
        self, point: Array, own: Callable[[Array, int], Array], code: Numbers, shape: tuple[int, ...]
    ) -> Array:
        """Return the sum of what the agents have of their own at a point, arrays of a shape."""
        n, levels, like = self.graph.n, self.graph.tree, np.empty(code.length(shape), np.uint8)
        root = levels[0][0][1] if levels else 0
        with self.world.guard():
            sums = {agent: own(point, agent) for agent in self.world.mine(n)}
            for level in reversed(levels):
                sent = {agent: code.written(agent, sums[agent]) for agent, _ in level if agent in sums}
                arrived = self.world.deliver(sent, level, like, n)()
                for agent, parent in level:
                    if agent in sums or parent in sums:
                        part = code.read(agent, arrived[agent], shape)
                        sums |= {parent: sums[parent] + part} if parent in sums else {}
            known = {root: code.written(root, sums[root])} if root in sums else {}
            for level in levels:
                down = [(parent, agent) for agent, parent in level]
                arrived = self.world.deliver(known, down, like, n)()
                known |= {agent: arrived[parent] for agent, parent in level if agent in sums}
            # The root as well goes on with what it sent.
            return code.read(root, known[min(sums)], shape)

    def _value_of(self, point: Array, agent: int) -> Array:
        return np.array([self._own(point)[agent][0]])

    def _slopes_of(self, point: Array, agent: int) -> Array:
        _, gradient, curvature = self._own(point)[agent]
        return np.vstack([dense(gradient), curvature])

    def _own(self, point: Array) -> dict[int, Any]:
        """Return values, gradients and curvatures of the agents here, each of whom is asked once."""
        mine, asked = self.world.mine(self.graph.n), self.tasks.agent_value_and_gradient
        return self._asked.get(point, lambda at: {agent: asked(at, agent) for agent in mine})
