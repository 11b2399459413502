"""The papers' sizes, on generated data: 10⁷ ratings. Label ranking of ImageNet's size is in `test_ranking_curves`.

Run with ``pytest -o addopts= -s tests/benchmarks/test_papers_sizes.py``; each part takes some minutes. Parameters are
chosen by other rows than those that measure. cmfrec takes part when it is installed.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from test_completion_time import CMFRec

from problems.comparison import listed
from problems.data.generated import SETS
from problems.subspace import RTRMC, BayesianCompletion, BiasedALS, GossipMatrixCompletion
from problems.subspace.baselines import Biases


@pytest.mark.parametrize("users", [7_157, 71_567])
def test_ratings(measured: Any, users: int) -> None:
    """Generated ratings of MovieLens-10M's shape, a tenth held out; rank 10, and 12 where effects are part of it."""
    measured(ratings, users)


def ratings(users: int) -> list[dict[str, Any]]:
    made: Any = replace(SETS["generated-ml10m"], rows=users)
    bundle = made.bundle()
    pairs, hidden = np.column_stack([bundle.rows, bundle.columns]), bundle.held_out(0, 0.1)
    # Parameters are chosen on the training part of a tenth of the users.
    few, inner = ~hidden & (bundle.columns < made.per_block), bundle.held_out(1, 0.1)
    agents: Any = {"n_agents": 5, "lam": 0.005}
    gossip = GossipMatrixCompletion(12, n_epochs=100.0, **agents)
    sent = 2 * 8 * gossip.rank * made.items * gossip.n_epochs * (agents["n_agents"] - 1) / 1e6
    models: dict[str, tuple[Any, list[dict[str, Any]]]] = {}
    if find_spec("cmfrec"):
        models["cmfrec"] = CMFRec(10), [{"lam": lam} for lam in (2.5, 5.0, 10.0, 20.0)]
    models |= {
        "effects alone": (Biases(), [{"lam_effects": lam} for lam in (1.0, 3.0, 10.0)]),
        "BiasedALS": (BiasedALS(10), [{"lam": lam} for lam in (0.35, 0.5, 0.7, 1.0)]),
        "BayesianCompletion": (BayesianCompletion(10), []),
        "RTRMC": (RTRMC(12), [{"lam": lam} for lam in (0.0005, 0.002, 0.008)]),
        "Stochastic Gossip, 5 agents": (
            gossip,
            [{"step_size": step, "decay": decay} for step, decay in ((1.0, 0.2), (2.0, 2.0), (10.0, 30.0))],
        ),
    }
    first, table = np.arange(3_000), []

    def error(model: Any, train: Any, test: Any) -> float:
        if "random_state" in model.get_params():
            model.set_params(random_state=0)
        if "handle_unknown" in model.get_params():
            model.set_params(handle_unknown="mean")
        model.fit(pairs[train], bundle.values[train])
        with warnings.catch_warnings(action="ignore"):
            return float(np.sqrt(np.mean((model.predict(pairs[test]) - bundle.values[test]) ** 2)))

    for label, (model, grid) in models.items():
        error(model, first, first[:10])
        best = min(
            grid,
            key=lambda point: error(clone(model).set_params(**point), few & ~inner, few & inner),
            default={},
        )
        begun = time.process_time()
        found = error(model.set_params(**best), ~hidden, hidden)
        table.append({
            "entries, generated": len(pairs), "method": label, "RMSE": found, "noise": made.noise,
            "above noise": f"{found / made.noise - 1.0:.1%}", "one core, s": time.process_time() - begun,
            "MB sent": sent if model is gossip else None, "chosen": listed(best) or "–",
        })  # fmt: skip
        print(table[-1], flush=True)
    return table
