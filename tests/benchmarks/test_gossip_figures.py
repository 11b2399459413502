"""Figures 4 and 5b of Mishra et al. 2019, and Table 4 on regressions of School's shape.

Run with ``pytest -o addopts= -s tests/benchmarks/test_gossip_figures.py``, with RMOPT_DATA_HOME for MovieLens-1M and
Parkinsons; three minutes.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from problems.comparison import crossed, listed
from problems.data import TaskBundle, load
from problems.data.sets import ml1m
from problems.subspace import GossipPlan, MatrixCompletion, MultitaskFeatures, gossip
from problems.subspace.experiment import REGRESSIONS, errors
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

Rows = list[dict[str, Any]]


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
