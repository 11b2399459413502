"""Figures 1 to 5 of Mishra et al. 2019, and Table 4 on regressions of School's shape.

Run with ``pytest -o addopts= -s tests/benchmarks/test_gossip_figures.py``, with RMOPT_DATA_HOME for MovieLens-1M and
Parkinsons; ten minutes.
"""

from itertools import pairwise
from time import process_time
from typing import Any

import numpy as np
import pytest
from low_rank_agents import low_rank_tasks, train_mse

from problems.comparison import crossed, listed
from problems.data import TaskBundle, load
from problems.data.sets import ml1m
from problems.subspace import DLMaFit, GossipPlan, MatrixCompletion, MultitaskFeatures, agree, gossip
from problems.subspace.experiment import REGRESSIONS, errors
from rmopt import Problem
from rmopt.costs import GossipCost, as_graph
from rmopt.manifolds import Grassmann, Product
from rmopt.solvers import Recorder

Rows = list[dict[str, Any]]
# Agents, rows, columns, condition; then what gossips, ρ, the first step size, its decay and updates of each edge.
LONG = (100.0, 300.0, 200.0)
CASES: dict[str, tuple[Any, ...]] = {
    "1, 2": (
        6, 10_000, 100_000, 1.0, ("stochastic", 1e3, 1.0, 1.0, 200.0), ("parallel", 1e3, 1.0, 1.0, 200.0),
        ("stochastic", 1e10, 1.0, 1.0, 200.0), ("stochastic", 1e3, 1.4, 0.1, 200.0),
    ),
    "3": (6, 5_000, 50_000, 500.0, ("stochastic", 1e3, *LONG), ("precon-stochastic", 1e3, *LONG), ("tree",)),
    "4": (
        6, 500, 12_000, 1.0, ("stochastic", 1e3, 1.0, 1.0, 200.0), ("stochastic", 1e3, 2.0, 2.0, 50.0),
        ("euclidean", 10.0, 1.5, 0.002, 50.0), ("D-LMaFit",),
    ),
    "4, more agents": (1_000, 500, 12_000, 1.0, ("tree",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_cases(measured: Any, case: str) -> None:
    """Cases 1 to 4 at the paper's size: mean squared error after 20, 41, 59, 141 and 333 updates of an agent."""
    measured(cases, case)


def cases(case: str) -> Rows:
    agents, m, n, condition, *ways = CASES[case]
    tasks, manifold = low_rank_tasks(m, n, 5, agents, condition=condition), Grassmann(m, 5)
    graph, rows = as_graph("path" if agents == 6 else "erdos-renyi", agents), []
    problem = Problem(Product([manifold] * agents), GossipCost(tasks, graph, 0.0, manifold))

    def metrics(points: Any) -> dict[str, float]:
        bases = [np.linalg.qr(U)[0] for U in points]
        apart = [manifold.dist(bases[i], bases[j]) for i, j in graph.edges]
        return {"MSE": train_mse(tasks, bases), "distance": float(np.mean(apart))}

    for name, *how in ways:
        recorder, flat = Recorder({"": metrics}, first=20, ratio=1.05), name == "euclidean"
        if how:
            plan = GossipPlan(how[0], "stochastic" if flat else name, graph, *how[1:], "independent")
            gossip(tasks, 5, plan, 0, recorder=recorder, flat=flat)
        elif name == "tree":
            begun, found = process_time(), agree(tasks, 5, 0, graph=graph)
            ends = {"updates": 0, "CPU, s": process_time() - begun}
            recorder.rows.append(metrics(found.points) | ends)
        else:
            DLMaFit(400).run(problem, random_state=0, recorder=recorder)
        given, last = zip(("ρ", "step", "decay", "draws"), how, strict=False), recorder.rows[-1]
        taken = [(row["updates"] / agents, row["MSE"]) for row in recorder.rows]
        after = {str(k): next((mse for u, mse in taken if u >= k), None) for k in (20, 41, 59, 141, 333)}
        rows.append({
            "case": case, "method": name, **dict(given), **after, "end": last["MSE"], "distance": last["distance"],
            "to 1e-10": next((u for u, mse in taken if u and mse < 1e-10), None), "CPU, s": last.get("CPU, s"),
        })  # fmt: skip
    return rows


def test_shared_features(measured: Any) -> None:
    """Case 6: 1,000 regressions of 100 features share five; largest distance of an agent to the true subspace."""
    measured(shared_features)


def shared_features() -> Rows:
    rng, manifold = np.random.default_rng(0), Grassmann(100, 5)
    truth, draws = manifold.random_point(rng), rng.integers(10, 51, size=1000)
    parts = [
        (X, X @ (truth @ rng.standard_normal(5)) + 1e-6 * rng.standard_normal(len(X)))
        for X in (rng.standard_normal((count, 100)) for count in draws)
    ]
    found = gossip(MultitaskFeatures(parts, 6), 5, GossipPlan(1e3, init="independent"), 0)
    off = max(manifold.dist(U, truth) for U in found.points)
    return [{"distance": off, "between neighbours": found.disagreement, "s": found.result.seconds}]


def test_consensus(measured: Any) -> None:
    """Distances of neighbours on MovieLens-1M: 5 agents, rank 10, 400 updates of each edge."""
    measured(consensus)


def consensus() -> Rows:
    table = ml1m().table()
    table.data -= table.data.mean()
    tasks = MatrixCompletion(table, 5, lam=0.005)
    manifold = Grassmann(table.shape[0], 10)

    def distances(points: Any) -> dict[str, float]:
        return {f"{i}, {i + 1}": manifold.dist(*pair) for i, pair in enumerate(pairwise(points), 1)}

    recorder = Recorder({"": distances}, first=4, ratio=1.4)
    plan = GossipPlan(step_size=30.0, decay=100.0, n_epochs=400.0, init="independent")
    gossip(tasks, 10, plan, 0, recorder=recorder)
    return recorder.rows


@pytest.mark.parametrize(("name", "rank"), [("parkinsons", 5), ("generated-school", 3)])
def test_regressions(measured: Any, name: str, rank: int) -> None:
    """Regressions, six agents, ten splits: the subspace of each agent for all tasks, and that of their mean."""
    measured(regressions, load(name, kind=TaskBundle), rank)


def regressions(bundle: TaskBundle, rank: int) -> Rows:
    X, y, task, found = bundle.X, bundle.y, bundle.task, dict[str, list[float]]()
    lams = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    ranked = crossed(rank=[rank], lam=lams)
    grids = {"stochastic": ranked, "batch": ranked, "alt-min": crossed(trace_lam=lams)}

    def fitted(name: str, point: Any, seed: int, train: Any) -> Any:
        model = REGRESSIONS[name].made(point, random_state=seed, n_agents=6)
        return model.fit(X[train], y[train], task[train])

    def error(coef: Any, intercept: Any, test: Any) -> float:
        predicted = np.einsum("ij,ij->i", X, coef[task]) + intercept[task]
        return errors(bundle, test, predicted[test])["nmse"]

    def of_choice(name: str, point: Any) -> float:
        train, inner = ~bundle.held_out(0), bundle.held_out(100)
        model = fitted(name, point, 0, train & ~inner)
        return error(model.coef_, model.intercept_, train & inner)

    for name in ("stochastic", "batch", "alt-min", "subspace", "slopes"):
        best = min(grids.get(name, [{}]), key=lambda point: of_choice(name, point))
        label = f"{REGRESSIONS[name].label}, {listed(best)}".rstrip(", ")
        for seed in range(10):
            test = bundle.held_out(seed)
            model = fitted(name, best, seed, ~test)
            found.setdefault(label, []).append(error(model.coef_, model.intercept_, test))
            for number, U in enumerate(getattr(model, "agents_", ()), 1):
                parts = [(X[own], y[own]) for own in (task == np.unique(task)[:, None]) & ~test]
                W = MultitaskFeatures(parts, 1, model.lam).weights(U, 0)
                found.setdefault(f"agent {number}", []).append(error(W @ U.T, 0.0 * task, test))
    others, table = next(each for label, each in found.items() if "Alt-Min" in label), []
    for label, each in found.items():
        both = np.array([each, np.subtract(each, others)])
        mean, spread = both.mean(axis=1).tolist(), (both.std(axis=1, ddof=1) / np.sqrt(10)).tolist()
        table.append({
            "data": bundle.name, "method": label, "NMSE": mean[0], "± s.e.m.": spread[0],
            "less Alt-Min": mean[1], "± s.e.m. of the difference": spread[1],
        })  # fmt: skip
    return table
