"""The papers' sizes, on generated data: one pass of label ranking over ImageNet's shape, and 10⁷ ratings.

Run with ``pytest -o addopts= -s tests/benchmarks/test_papers_sizes.py``; each part takes some minutes, and the larger
ranking 4 GB of disk, in the folder that RMOPT_BLOCKS names or one that pytest makes. Parameters are chosen by other
rows than those that measure. cmfrec takes part when it is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import vstack
from sklearn.base import clone
from test_completion_time import CMFRec

from problems.comparison import listed
from problems.data.generated import SETS
from problems.ranking import LoretaLabelRanker, mean_average_precision
from problems.subspace import RTRMC, BayesianCompletion, BiasedALS, GossipMatrixCompletion
from problems.subspace.baselines import Biases

# Of the square of the length of a row; rows on which it is chosen, at most; test rows.
STEPS, FEW, TEST = (0.3, 1.0, 3.0), 100_000, 20_000

# What a process of its own runs, so that its peak of memory is that of one way alone.
ALONE = """
import json, sys, time
from itertools import islice
from pathlib import Path
from problems.data import stream
from problems.ranking import LoretaLabelRanker

folder, rank, sampling, step, rows, out = sys.argv[1:]
model = LoretaLabelRanker(int(rank), sampling=sampling, step_size=float(step), random_state=0)
chunks = list(islice(stream(folder, multilabel=True), 1))
LoretaLabelRanker(2, sampling=sampling, random_state=0).fit(chunks[0][0][:50], chunks[0][1][:50])
del chunks
used, begun = time.process_time(), time.perf_counter()
model.fit_stream(islice(stream(folder, multilabel=True), int(rows) // 5_000))
seconds = time.process_time() - used, time.perf_counter() - begun
peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1e6
model.save(out)
print(json.dumps([*seconds, peak]))
"""


@pytest.mark.parametrize("rows", [50_000, 908_210])
def test_label_ranking(measured: Any, rows: int, tmp_path: Path) -> None:
    """LORETA-1, rank 100, one pass over generated rows of ImageNet's shape: 1,000 features, 1,660 labels."""
    measured(label_ranking, rows, tmp_path)


def label_ranking(rows: int, tmp_path: Path) -> list[dict[str, Any]]:
    made: Any = SETS["generated-imagenet"]
    made = replace(made, rows=rows, test=0)
    folder = Path(os.environ.get("RMOPT_BLOCKS", tmp_path)) / str(rows)
    if not folder.exists():
        made.write(folder)
    begin = rows // made.per_block + 2
    size = float(np.mean(np.sum(made.block(1)["X"] ** 2, axis=1)))
    parts = [
        [made.block(number) for number in range(first, first + TEST // made.per_block)]
        for first in (begin, begin + 100)
    ]

    def learned(sampling: str, step: float, rows: int, part: list[Any]) -> tuple[list[float], float]:
        words = [str(folder), "100", sampling, str(step / size), str(rows), str(tmp_path / "model.npz")]
        said = subprocess.run([sys.executable, "-c", ALONE, *words], check=True, capture_output=True).stdout
        model = LoretaLabelRanker.load(tmp_path / "model.npz")
        found = [mean_average_precision(model.decision_function(one["X"]), one["Y"]) for one in part]
        return json.loads(said), float(np.mean(found))

    scores, labels = (
        np.concatenate([one["truth"] for one in parts[1]]),
        vstack([one["Y"] for one in parts[1]]),
    )
    about = {"rows, generated": rows, "blocks, GB": sum(one.stat().st_size for one in folder.iterdir()) / 1e9}
    own = {"mAP": None, "own mAP": mean_average_precision(scores.astype(float), labels)}
    table = []
    for sampling in ("warp", "exact"):
        step = max(STEPS, key=lambda step: learned(sampling, step, min(rows, FEW), parts[0])[1])
        (used, clock, peak), found = learned(sampling, step, rows + made.per_block, parts[1])
        how = {"loss": sampling, "step": step, "one core, s": used, "clock, s": clock, "peak, GB": peak}
        table.append(about | how | own | {"mAP": found})
    return table


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
