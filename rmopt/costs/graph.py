"""Connected graphs of agents, and rounds of messages in which each agent has at most one partner."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Self

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import array, integer, number, one_of
from rmopt.core.matrices import index_rows
from rmopt.core.streams import seed_of
from rmopt.errors import InvalidInputError


class Graph:
    """A connected graph without loops or repeated edges.

    Parameters
    ----------
    n : int
        Number of agents.
    edges : sequence of (int, int)
        Pairs of different agents, numbered from 0.
    name : str
        Its name in messages.

    Raises
    ------
    InvalidInputError
        If a number is not that of an agent, an edge is a loop or repeated, or the graph is not connected.

    References
    ----------
    Boyd, Ghosh, Prabhakar and Shah, Randomized gossip algorithms, IEEE Transactions on Information Theory 52
    (2006), https://doi.org/10.1109/TIT.2006.874516.

    Examples
    --------
    >>> from rmopt.costs import Graph
    >>> ring = Graph.ring(4)
    >>> ring.edges.tolist(), ring.degrees.tolist()
    ([[0, 1], [1, 2], [2, 3], [0, 3]], [2, 2, 2, 2])
    """

    def __init__(self, n: int, edges: Sequence[Sequence[int]] | Array, name: str = "graph") -> None:
        from scipy.sparse.csgraph import connected_components

        self.n, self.name = integer("n", n, 1), name
        pairs = array("edges", edges)
        pairs = pairs if pairs.size else np.empty((0, 2), dtype=int)
        self.edges = np.sort(index_rows(f"edges of a {name}", pairs, (self.n, self.n)), axis=1)
        # Derived numbers are cached.
        self.edges.flags.writeable = False
        distinct = len(np.unique(self.edges, axis=0)) == len(self.edges)
        if not distinct or (self.edges[:, 0] == self.edges[:, 1]).any():
            raise InvalidInputError(f"edges of a {name} must be pairs of different agents, each given once.")
        _, places = connected_components(self._links(), directed=False)
        island = np.flatnonzero(places != places[0])
        if island.size:
            raise InvalidInputError(
                f"the {name} is not connected: no path leads from agent 0 to agent {island[0]} ({island.size} of "
                f"{self.n} cannot be reached); add edges."
            )

    def _links(self) -> Any:
        """Return the edges as a sparse matrix."""
        from scipy.sparse import coo_array

        # Before scipy 1.15 searches take 32-bit indices only.
        places = self.edges.T.astype(np.int32)
        return coo_array((np.ones(len(self.edges)), places), shape=(self.n, self.n)).tocsr()

    def __repr__(self) -> str:
        return f"Graph({self.name}, {self.n} agents, {len(self.edges)} edges)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.n == other.n and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash((self.n, self.edges.tobytes()))

    @cached_property
    def degrees(self) -> Array:
        """Number of neighbours of each agent, shape (n,)."""
        return np.bincount(self.edges.ravel(), minlength=self.n)

    @cached_property
    def matchings(self) -> list[Array]:
        """A partition of the edges, as ascending numbers, into groups whose edges share no agent.

        The edges are coloured greedily in their order. On a path these are the odd and the even edges, the red–black
        order of Mishra et al. 2019, section 5.3. In general there are at most 2 Δ − 1 groups for the largest degree
        Δ.
        """
        taken: list[set[int]] = [set() for _ in range(self.n)]
        groups: list[list[int]] = []
        for edge, (i, j) in enumerate(self.edges.tolist()):
            busy = taken[i] | taken[j]
            colour = next(c for c in range(len(groups) + 1) if c not in busy)
            if colour == len(groups):
                groups.append([])
            groups[colour].append(edge)
            taken[i].add(colour)
            taken[j].add(colour)
        return [np.array(group) for group in groups]

    @cached_property
    def tree(self) -> list[list[tuple[int, int]]]:
        """A spanning tree of least depth: pairs (agent, parent) by depth, the root's children first."""
        from scipy.sparse.csgraph import shortest_path

        hops, before = shortest_path(self._links(), directed=False, unweighted=True, return_predecessors=True)
        root = int(hops.max(axis=1).argmin())
        levels: list[list[tuple[int, int]]] = [[] for _ in range(int(hops[root].max()))]
        for agent in np.flatnonzero(hops[root]).tolist():
            levels[int(hops[root, agent]) - 1].append((agent, int(before[root, agent])))
        return levels

    @cached_property
    def averaging(self) -> Array:
        """Metropolis weights, shape (n, n): symmetric, doubly stochastic, zero without an edge."""
        weights = np.zeros((self.n, self.n))
        i, j = self.edges.T
        weights[i, j] = weights[j, i] = 1.0 / (1.0 + np.maximum(self.degrees[i], self.degrees[j]))
        np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
        return weights

    @classmethod
    def path(cls, n: int) -> Self:
        """Return agents in a line, as in the paper."""
        return cls(n, [(i, i + 1) for i in range(n - 1)], "path")

    @classmethod
    def ring(cls, n: int) -> Self:
        """Return agents in a circle."""
        closing = [(0, n - 1)] if n > 2 else []
        return cls(n, [(i, i + 1) for i in range(n - 1)] + closing, "ring")

    @classmethod
    def star(cls, n: int) -> Self:
        """Return agent 0 joined to all others."""
        return cls(n, [(0, i) for i in range(1, n)], "star")

    @classmethod
    def complete(cls, n: int) -> Self:
        """Return every agent joined to every other."""
        return cls(n, [(i, j) for i in range(n) for j in range(i + 1, n)], "complete graph")

    @classmethod
    def grid(cls, n: int) -> Self:
        """Return n agents in a nearly square grid, whose last row may be shorter."""
        width = max(1, round(n**0.5))
        across = [(i, i + 1) for i in range(n - 1) if (i + 1) % width]
        return cls(n, across + [(i, i + width) for i in range(n - width)], "grid")

    @classmethod
    def erdos_renyi(cls, n: int, p: float | None = None, seed: int = 0) -> Self:
        """Return a random graph: each pair is joined with probability p, and redrawn until connected.

        Parameters
        ----------
        n : int
        p : float, optional
            Defaults to 2 ln(n) / n.
        seed : int
        """
        n = integer("n", n, 1)
        likely = min(1.0, 2.0 * np.log(max(n, 2)) / n)
        share = likely if p is None else number("p", p, above=0, most=1)
        rng = np.random.default_rng(seed_of(seed))
        pairs = np.transpose(np.triu_indices(n, 1))
        for _ in range(100):
            with suppress(InvalidInputError):
                return cls(n, pairs[rng.random(len(pairs)) < share], "Erdős–Rényi graph")
        raise InvalidInputError(
            f"none of 100 random graphs with n = {n}, p = {share:.3g} is connected; choose a larger p."
        )


_NAMES = ("path", "ring", "grid", "star", "complete", "erdos-renyi")
GRAPHS: dict[str, Any] = {name: getattr(Graph, name.replace("-", "_")) for name in _NAMES}


def as_graph(graph: Any, n: int) -> Graph:
    """Return a graph of n agents.

    Parameters
    ----------
    graph : str, list of edges or Graph
        A name of `GRAPHS`, pairs of agents, or a graph of that size.
    n : int
        Number of agents.

    Raises
    ------
    InvalidInputError
        For an unknown name, edges of other agents, a graph of another size or one that is not connected.

    Examples
    --------
    >>> from rmopt.costs import as_graph
    >>> as_graph("star", 4).edges.tolist(), as_graph([(0, 1), (1, 2)], 3).degrees.tolist()
    ([[0, 1], [0, 2], [0, 3]], [1, 2, 1])
    """
    if isinstance(graph, str):
        return GRAPHS[one_of("graph", graph, GRAPHS)](integer("n", n, 1))
    graph = graph if isinstance(graph, Graph) else Graph(n, graph)
    if graph.n != n:
        raise InvalidInputError(f"{graph} is for {graph.n} agents, and there are {n}.")
    return graph
