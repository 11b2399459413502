"""Gossip: the cost as a sum over edges, Algorithm 1 in plain numpy, variants, clocks, checkpoints."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from problems.subspace import GossipPlan, agree, gossip
from problems.subspace.instances import agent_sums
from rmopt import Problem
from rmopt.checks import check_gradient
from rmopt.core import AgentSum, InvalidInputError, MissingCapabilityError, Parts
from rmopt.core.points import packed, unpacked
from rmopt.costs import GossipCost, Graph
from rmopt.manifolds import Euclidean, Grassmann, Product, Simplex, Sphere, Stiefel, SymmetricPositiveDefinite
from rmopt.retractions import GRASSMANN_RETRACTIONS
from rmopt.solvers import SGD, Checkpoint, Gossip, InverseTime, Matchings, Recorder

N = 5
GRAPH = Graph(N, [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)])


def problem_of(name: str, rho: float = 2.0, graph: Graph = GRAPH) -> Problem:
    tasks: Any = agent_sums(graph.n)[name]
    manifold = Grassmann(tasks.n_rows, 3)
    return Problem(Product([manifold] * graph.n), GossipCost(tasks, graph, rho, manifold))


def distance(a: Parts, b: Parts) -> float:
    return float(max(np.abs(x - y).max() for x, y in zip(a, b, strict=True)))


@pytest.mark.parametrize("name", agent_sums(N))
def test_the_terms_add_up_to_the_cost(name: str) -> None:
    problem = problem_of(name)
    cost: Any = problem.cost
    point = problem.manifold.random_point(np.random.default_rng(0))
    whole = cost.gradient(point)
    parts = [cost.term_gradient(point, np.array([edge])) for edge in range(cost.n_terms)]
    for agent in range(N):
        total = sum(part.blocks[agent] for part in parts if agent in part.blocks)
        np.testing.assert_allclose(total, whole.blocks[agent], atol=1e-12)
    assert set(parts[0].blocks) == {0, 1}


def algorithm_one(
    cost: Any, point: Parts, schedule: Any, etas: Any, preconditioned: bool
) -> list[np.ndarray]:
    """Do the steps of Algorithm 1 of the paper, in plain numpy, with the corrected Table 1."""
    U = [part.copy() for part in point]
    r = U[0].shape[1]

    def log(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        inner = A.T @ B
        P, S, Qt = np.linalg.svd((B - A @ inner) @ np.linalg.inv(inner), full_matrices=False)
        return P @ np.diag(np.arctan(S)) @ Qt

    for edges, eta in zip(schedule, etas, strict=True):
        moved = {}
        for edge in edges[edges >= 0]:
            for i, j in (cost.graph.edges[edge], cost.graph.edges[edge][::-1]):
                G, curvature = cost.tasks.agent_gradient(U[i], i)
                xi = (G - U[i] @ (U[i].T @ G)) / cost.graph.degrees[i] - cost.rho * log(U[i], U[j])
                if preconditioned:
                    xi = xi @ np.linalg.inv(curvature + cost.rho * np.eye(r))
                W, sigma, Vt = np.linalg.svd(-eta * xi, full_matrices=False)
                moved[i] = (U[i] @ Vt.T * np.cos(sigma) + W * np.sin(sigma)) @ Vt
        for i, new in moved.items():
            U[i] = new
    return U


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("order", ["stochastic", "parallel"])
@pytest.mark.parametrize("name", agent_sums(N))
def test_the_engine_is_algorithm_one(name: str, order: str, preconditioned: bool) -> None:
    problem = problem_of(name)
    cost: Any = problem.cost
    solver = Gossip(0.02, order=order, preconditioned=preconditioned)
    engine, rng = solver.engine(problem), np.random.default_rng(1)
    schedule = solver.sampler_for(problem).draw(rng, 0, 60)[:60]
    # Near each other: the printed logarithm is not exact far away.
    middle = problem.manifold.random_point(rng)[0]
    base: Any = problem.manifold.factors[0]  # type: ignore[attr-defined]
    start = Parts([base.exp(middle, 0.1 * base.random_tangent_vector(middle, rng)) for _ in range(N)])
    etas = np.full(60, 0.02)
    found = engine.dump(engine.advance(engine.load(start), schedule, etas))
    wanted = algorithm_one(cost, start, schedule, etas, preconditioned)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-11)
    assert distance(found, start) > 1e-2


@pytest.mark.parametrize("retraction", GRASSMANN_RETRACTIONS.values(), ids=repr)
def test_sgd_on_the_power_manifold_does_the_same_steps(retraction: Any) -> None:
    problem = problem_of("completion-ridge")
    schedule = Matchings(GRAPH)
    gossip = Gossip(0.05, max_iter=80, order=schedule, retraction=retraction)
    sgd = SGD(0.05, max_iter=80, sampler=schedule, retraction=retraction)
    a, b = (solver.run(problem, random_state=3).point for solver in (gossip, sgd))
    assert distance(a, b) < 1e-12


@pytest.mark.parametrize("order", ["stochastic", "parallel"])
def test_the_engine_splits_exactly_also_through_pack(order: str) -> None:
    problem = problem_of("multitask-ridge")
    solver = Gossip(InverseTime(0.05, 0.1), order=order)
    engine, rng = solver.engine(problem), np.random.default_rng(4)
    schedule = solver.sampler_for(problem).draw(rng, 0, 50)[:50]
    etas, start = solver.step_size(np.arange(50)), problem.manifold.random_point(rng)
    whole = engine.advance(engine.load(start), schedule, etas)
    half = engine.advance(engine.load(start), schedule[:20], etas[:20])
    half = unpacked(packed(half), half)
    pieces = engine.advance(half, schedule[20:], etas[20:])
    assert distance(engine.dump(whole), engine.dump(pieces)) == 0.0
    assert whole.steps == pieces.steps == 50
    assert whole.updates == pieces.updates == 2 * int((schedule >= 0).sum())


def test_scales_are_factors_of_the_agents_step_sizes() -> None:
    problem = problem_of("completion-ridge")
    start = problem.manifold.random_point(np.random.default_rng(6))
    path = Gossip(0.03, max_iter=1, order=lambda rng, start, size: np.zeros((size, 1), dtype=int))
    scaled = Gossip(0.03, max_iter=1, order=path.order, scales=[1.0, 2.0, 1.0, 1.0, 1.0])
    doubled = Gossip(0.06, max_iter=1, order=path.order)
    one, two, both = (s.run(problem, start, random_state=0).point for s in (path, scaled, doubled))
    assert np.array_equal(two[0], one[0])
    assert np.array_equal(two[1], both[1])
    assert not np.array_equal(two[1], one[1])


def test_without_agreement_everyone_is_alone_and_with_much_of_it_all_agree() -> None:
    alone, close = problem_of("completion-ridge", 0.0), problem_of("completion-ridge", 50.0)
    start = alone.manifold.random_point(np.random.default_rng(7))
    for rho, problem in ((0.0, alone), (50.0, close)):
        end = Gossip(0.01, n_epochs=300).run(problem, start, random_state=1).point
        gaps = problem.cost.gaps(end)  # type: ignore[attr-defined]
        assert (gaps.max() < 0.2) == (rho > 0.0)


def test_budgets_and_matchings() -> None:
    problem = problem_of("multitask")
    assert Gossip(0.1, n_epochs=30).budget(problem) == 30 * 5
    assert Gossip(0.1, n_epochs=30, order="parallel").budget(problem) == 30 * len(GRAPH.matchings)
    assert Gossip(0.1, max_iter=7).budget(problem) == 7
    assert Gossip(0.1) == Gossip(0.1) != Gossip(0.2)
    drawn = Matchings(Graph.path(6)).draw(np.random.default_rng(0), 0, 1000)
    assert drawn.shape == (1000, 3)
    red = (drawn == [0, 2, 4]).all(axis=1)
    assert ((drawn == [1, 3, -1]).all(axis=1) | red).all()
    assert 400 < red.sum() < 600


def test_the_euclidean_formulation_agrees_by_plain_differences() -> None:
    tasks: Any = agent_sums(N)["completion"]
    flat = Euclidean(tasks.n_rows, 3)
    cost = GossipCost(tasks, GRAPH, 3.0, flat)
    point = Product([flat] * N).random_point(np.random.default_rng(8))
    squares = sum(np.sum((point[i] - point[j]) ** 2) for i, j in GRAPH.edges)
    fits = sum(tasks.agent_value(part, i) for i, part in enumerate(point))
    np.testing.assert_allclose(cost.value(point), fits + 1.5 * squares, rtol=1e-13)
    result = Gossip(1e-3, n_epochs=20).run(Problem(Product([flat] * N), cost), point, random_state=0)
    assert cost.value(result.point) < cost.value(point)


def test_a_run_that_is_interrupted_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    problem = problem_of("completion-ridge")
    solver, recorder = Gossip(0.05, n_epochs=40), Recorder({"cost": problem.cost.value}, at=[50, 100])
    whole = solver.run(problem, random_state=9, recorder=recorder)

    class InterruptedError(Exception):
        pass

    def interrupt(rows: list[dict[str, Any]]) -> None:
        if rows[-1]["step"] == 100:
            raise InterruptedError

    saving = Checkpoint(tmp_path / "run.npz", every_seconds=0.0)
    measured = partial(Recorder, {"cost": problem.cost.value}, at=[50, 100])
    with pytest.raises(InterruptedError):
        solver.run(problem, random_state=9, recorder=measured(), checkpoint=saving, stop=interrupt)
    again = solver.run(problem, random_state=9, recorder=measured(), checkpoint=saving)
    assert distance(again.point, whole.point) == 0.0
    assert [row["cost"] for row in again.history] == [row["cost"] for row in whole.history]


class Targets(AgentSum):
    """Distances of three agents' points to three arrays of equal numbers."""

    n_terms = 3

    def agent_value(self, point: Any, agent: int) -> float:
        return float(np.sum((point - agent) ** 2))

    def agent_gradient(self, point: Any, agent: int) -> Any:
        return 2.0 * (point - agent), np.eye(point.shape[-1])


@pytest.mark.parametrize("base", [Sphere(4), Stiefel(4, 2, 2), Stiefel(4, 1, metric="canonical")])
def test_points_may_be_arrays_of_any_shape(base: Any) -> None:
    assert check_gradient(Problem(Product([base] * 3), GossipCost(Targets(), Graph.path(3), 1.0, base)))


@pytest.mark.parametrize(
    "base", [Stiefel(4, 2, metric="canonical"), SymmetricPositiveDefinite(3), Simplex(3)]
)
def test_logarithms_of_another_metric_are_no_part_of_a_gradient(base: Any) -> None:
    problem = Problem(Product([base] * 3), GossipCost(Targets(), Graph.path(3), 1.0, base))
    with pytest.raises(MissingCapabilityError, match="take the solver Gossip, another manifold, or rho = 0"):
        SGD(0.01, max_iter=1).run(problem, random_state=0)
    start = problem.manifold.random_point(0)
    met = Gossip(0.01, max_iter=50).run(problem, start, random_state=0).point
    assert problem.cost.value(met) < problem.cost.value(start)


class Variances(AgentSum):
    """A stranger's agents, who may give something else for their gradients."""

    n_terms = 3

    def __init__(self, given: Any = lambda gradient: (gradient, np.eye(gradient.shape[1]))) -> None:
        self.given, self.tables = given, np.random.default_rng(0).standard_normal((3, 8, 20))

    def agent_value(self, point: Any, agent: int) -> float:
        return -0.5 * float(np.sum((point.T @ self.tables[agent]) ** 2))

    def agent_gradient(self, point: Any, agent: int) -> Any:
        return self.given(-self.tables[agent] @ (self.tables[agent].T @ point))


class Rows(Variances):
    n_rows = 8


def test_what_agents_give_is_looked_at_before_they_begin() -> None:
    plan = GossipPlan(n_epochs=2)
    assert agree(Rows(), 2, 0).result.converged
    for tasks, flaw in (
        ([np.eye(8)], "an object of a subclass of AgentSum"),
        (Rows(lambda gradient: gradient), r"must return the gradient and a curvature of shape \(2, 2\)"),
        (Rows(lambda gradient: (gradient.T, np.eye(2))), r"the gradient, must be .* shape \(8, 2\)"),
        (Rows(lambda gradient: (gradient, None)), "the curvature, must be"),
        (Rows(lambda gradient: (np.nan * gradient, np.eye(2))), "got NaN"),
    ):
        with pytest.raises(InvalidInputError, match=flaw):
            gossip(tasks, 2, plan, 0)
        with pytest.raises(InvalidInputError, match=flaw):
            agree(tasks, 2, 0)
    for run in (
        lambda: gossip(Rows(), 2, plan, None),
        lambda: gossip(Rows(), 2, None, 0),
        lambda: agree(Rows(), 2, 0, tol=np.nan),
    ):
        with pytest.raises(InvalidInputError, match=r"seed|plan|start|tol"):
            run()
