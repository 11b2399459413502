"""Graphs of agents: their edges, matchings, averaging weights, and what is refused."""

import numpy as np
import pytest
from tabled import each_row

from rmopt.core import InvalidInputError
from rmopt.costs import Graph, as_graph
from rmopt.costs.graph import GRAPHS


@each_row("name", GRAPHS)
@each_row("n", [2, 3, 6, 11, 30])
def test_matchings_are_matchings_and_together_all_edges(name: str, n: int) -> None:
    graph = as_graph(name, n)
    assert sorted(np.concatenate(graph.matchings)) == list(range(len(graph.edges)))
    for matching in graph.matchings:
        agents = graph.edges[matching].ravel()
        assert len(np.unique(agents)) == len(agents)
    assert len(graph.matchings) <= max(1, 2 * graph.degrees.max() - 1)


def test_on_a_path_the_matchings_are_red_and_black() -> None:
    red, black = Graph.path(7).matchings
    np.testing.assert_array_equal(red, [0, 2, 4])
    np.testing.assert_array_equal(black, [1, 3, 5])
    assert len(Graph.ring(6).matchings) == 2
    assert len(Graph.ring(7).matchings) == 3
    assert len(Graph.star(5).matchings) == 4


@each_row("name", GRAPHS)
def test_averaging_weights_keep_the_mean_and_spread_it(name: str) -> None:
    graph = as_graph(name, 12)
    weights = graph.averaging
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, atol=1e-15)
    np.testing.assert_allclose(weights, weights.T)
    assert (weights >= 0.0).all()
    values = np.linalg.matrix_power(weights, 3000) @ np.arange(12.0)
    np.testing.assert_allclose(values, 5.5, atol=1e-8)


def test_averaging_weights_of_a_path_by_hand() -> None:
    np.testing.assert_allclose(Graph.path(3).averaging * 3.0, [[2, 1, 0], [1, 1, 1], [0, 1, 2]], rtol=1e-15)


def test_sizes() -> None:
    assert len(Graph.path(5).edges) == 4
    assert len(Graph.ring(5).edges) == 5
    assert len(Graph.ring(2).edges) == 1
    assert len(Graph.complete(5).edges) == 10
    assert Graph.star(5).degrees.tolist() == [4, 1, 1, 1, 1]
    # Three rows of three, and one agent below: 6 edges across, 7 down.
    assert len(Graph.grid(10).edges) == 13
    assert Graph.erdos_renyi(40, 0.2, seed=1) == Graph.erdos_renyi(40, 0.2, seed=1)
    assert Graph.erdos_renyi(40, 0.2, seed=1) != Graph.erdos_renyi(40, 0.2, seed=2)
    assert len(Graph.erdos_renyi(10, 1.0).edges) == 45


def test_bad_graphs_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Graph.path(3).edges[0, 0] = 1
    with pytest.raises(
        InvalidInputError, match=r"not connected: no path leads from agent 0 to agent 2 \(2 of 4"
    ):
        Graph(4, [(0, 1), (2, 3)])
    with pytest.raises(InvalidInputError, match="not connected"):
        Graph(3, [])
    for wrong, told in (((1, 3), "from 0 to 3"), ((1, 1), "different agents"), ((1, 0), "given once")):
        with pytest.raises(InvalidInputError, match=told):
            Graph(3, [(0, 1), (1, 2), wrong])
    with pytest.raises(InvalidInputError, match="must be integers"):
        Graph(2, [(0.0, 1.0)])  # type: ignore[list-item]
    with pytest.raises(InvalidInputError, match="n = 0 must be a positive integer"):
        Graph(0, [])
    with pytest.raises(InvalidInputError, match="none of 100 random graphs"):
        Graph.erdos_renyi(50, 0.001)
    with pytest.raises(InvalidInputError, match="above 0 and at most 1"):
        Graph.erdos_renyi(50, 2.0)
    with pytest.raises(InvalidInputError, match="choose one of path, ring"):
        as_graph("line", 3)
    with pytest.raises(InvalidInputError, match="for 4 agents, and there are 3"):
        as_graph(Graph.path(4), 3)
    assert as_graph([(0, 1), (2, 1)], 3) == Graph.path(3)
