"""Figures 4 and 5b of Mishra et al. 2019, Table 4 on regressions of School's shape, and both penalties of ratings.

Run with ``pytest -o addopts= -s tests/benchmarks/test_gossip_figures.py``, with RMOPT_DATA_HOME for MovieLens-1M and
Parkinsons; three minutes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from problems.comparison import crossed, listed
from problems.data import TaskBundle, load
from problems.data.sets import ml1m
from problems.subspace import RTRMC, GossipPlan, MatrixCompletion, MultitaskFeatures, entries, gossip
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
    others = next(each for label, each in found.items() if "Alt-Min" in label)
    return [
        {"data": bundle.name} | compared(label, each, others, "NMSE", "less Alt-Min")
        for label, each in found.items()
    ]


def compared(label: str, each: Any, others: Any, what: str, than: str) -> dict[str, Any]:
    """Return the mean of errors and of their differences to others, with standard errors."""
    row: dict[str, Any] = {"method": label}
    for name, about, one in (
        (what, "± s.e.m.", np.array(each)),
        (than, "± s.e.m. of the difference", np.subtract(each, others)),
    ):
        row |= {name: float(one.mean()), about: float(one.std(ddof=1) / np.sqrt(len(one)))}
    return row


def test_penalties(measured: Any) -> None:
    """MovieLens-1M by RTRMC, rank 10, five splits: λ on entries that are not known, or on all."""
    measured(penalties)


def penalties() -> Rows:
    bundle, table, first = ml1m(), [], list[float]()
    pairs, values = entries(bundle)

    def error(seed: int, point: dict[str, Any], choice: bool = False) -> float:
        test = bundle.held_out(seed, 0.2)
        inner = bundle.held_out(100, 0.25) & ~test
        train, test = (~test & ~inner, inner) if choice else (~test, test)
        model = RTRMC(10, limits=bundle.limits, handle_unknown="mean", random_state=0, **point)
        return model.fit(pairs[train], values[train], shape=bundle.shape).rmse(pairs[test], values[test])

    for penalty in ("unknown", "all"):
        grid = crossed(penalty=[penalty], lam=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02))
        best = min(grid, key=lambda point: error(0, point, choice=True))
        found = [error(seed, best) for seed in range(5)]
        first = first or found
        table.append(
            compared(penalty, found, first, "RMSE", "less the first") | {"chosen": f"lam = {best['lam']:g}"}
        )
    return table
