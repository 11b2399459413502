"""Sums along a tree: the tree, the sums, and the point that all data together would give."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from low_rank_agents import low_rank_tasks, train_mse
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from problems.subspace import RCGMC, agree
from problems.subspace.instances import agent_sums
from rmopt import Problem
from rmopt.costs import Graph
from rmopt.manifolds import Grassmann
from rmopt.solvers import LBFGS, Checkpoint, MaxSteps, TreeSum, World

GRAPHS = [
    Graph.path(1),
    Graph.path(2),
    Graph.path(7),
    Graph.star(6),
    Graph.grid(9),
    Graph.erdos_renyi(40, seed=3),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_the_tree_spans_the_graph_and_is_low(graph: Graph) -> None:
    edges = {tuple(edge) for edge in graph.edges.tolist()}
    depths = {agent: 0 for level in graph.tree[:1] for _, agent in level} or {0: 0}
    assert len(depths) == 1
    for depth, level in enumerate(graph.tree, 1):
        for agent, parent in level:
            assert tuple(sorted((agent, parent))) in edges
            assert agent not in depths
            assert depths[parent] == depth - 1
            depths[agent] = depth
    assert sorted(depths) == list(range(graph.n))
    links = csr_array((np.ones(len(edges)), graph.edges.T.astype(np.int32)), shape=(graph.n, graph.n))
    hops = shortest_path(links, directed=False, unweighted=True)
    assert len(graph.tree) == hops.max(axis=1).min()


@pytest.mark.parametrize("name", agent_sums(5))
def test_sums_are_those_of_all_agents(name: str) -> None:
    tasks: Any = agent_sums(5)[name]
    cost = TreeSum(tasks, Graph.star(5))
    manifold = Grassmann(tasks.n_rows, 3)
    rng = np.random.default_rng(0)
    U = manifold.random_point(rng)
    assert cost.value(U) == pytest.approx(tasks.value(U), rel=1e-13)
    gradient = manifold.projection(U, tasks.gradient(U))
    gap = manifold.projection(U, cost.gradient(U)) - gradient
    assert np.linalg.norm(gap) <= 1e-12 * np.linalg.norm(gradient)
    xi = manifold.random_tangent_vector(U, rng)
    np.testing.assert_allclose(cost.precondition(U, xi), tasks.precondition(U, xi), rtol=1e-11, atol=1e-13)
    # What was returned is the caller's.
    cost.gradient(U)[:] = 0.0
    assert cost.gradient(U).any()


def test_agents_end_where_one_place_would() -> None:
    tasks = low_rank_tasks(60, 600, 3, 6, condition=30.0, seed=2)
    found = agree(tasks, 3, 0, graph="ring")
    # The noise has a variance of 1e-12, and the fit takes a part of it.
    assert train_mse(tasks, found.points) < 1e-12
    assert found.disagreement == 0.0
    one_place = (
        RCGMC(max_iter=300).solver(Grassmann(60, 3)).run(Problem(Grassmann(60, 3), tasks), random_state=1)
    )
    assert Grassmann(60, 3).dist(one_place.point, found.mean) < 1e-4


class Watched(World):
    """Counts what agents send, as if each were alone, and ends the run after some messages."""

    def __init__(self, most: float = np.inf) -> None:
        super().__init__()
        self.most = most

    def deliver(self, messages: Any, ways: Any, like: Any, n_agents: int) -> Any:
        self.sent += (len(ways), like.nbytes * len(ways))
        if self.sent[0] > self.most:
            raise KeyboardInterrupt
        return lambda: messages


def test_columns_that_grow_go_on_where_they_were_killed(tmp_path: Path) -> None:
    tasks: Any = agent_sums(5)["completion-ridge"]
    whole = agree(tasks, 3, 0, world=Watched())
    saved = tmp_path / "state.npz"
    with pytest.raises(KeyboardInterrupt):
        agree(tasks, 3, 0, world=Watched(most=0.8 * whole.messages), checkpoint=saved)
    again = agree(tasks, 3, 0, world=Watched(), checkpoint=saved)
    assert again.mean.tobytes() == whole.mean.tobytes()
    assert again.result.steps == whole.result.steps
    assert again.messages < whole.messages


def test_a_search_along_a_line_sends_values_alone() -> None:
    tasks: Any = agent_sums(5)["completion"]
    world = Watched()
    cost = TreeSum(tasks, Graph.path(5), world)
    U = Grassmann(tasks.n_rows, 3).random_point(np.random.default_rng(0))
    cost.value(U)
    assert world.sent.tolist() == [8, 64]
    cost.value_and_gradient(U)
    cost.precondition(U, U)
    assert world.sent.tolist() == [16, 64 + 64 * (U.size + 9)]


def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    tasks: Any = agent_sums(5)["completion-ridge"]
    problem = Problem(Grassmann(tasks.n_rows, 2), TreeSum(tasks, Graph.path(5)))
    whole = LBFGS().run(problem, random_state=0)
    saved = Checkpoint(tmp_path / "state.npz")
    LBFGS().run(problem, random_state=0, checkpoint=saved, stop=MaxSteps(4))
    again = LBFGS().run(problem, random_state=0, checkpoint=saved)
    assert again.point.tobytes() == whole.point.tobytes()
    cost: Any = problem.cost
    copied = pickle.loads(pickle.dumps(cost))
    assert copied.value(whole.point) == cost.value(whole.point)
