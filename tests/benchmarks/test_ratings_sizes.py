"""Ratings of the papers' sizes, generated: those of MovieLens-10M, and of Netflix.

Run with ``pytest -o addopts= -s tests/benchmarks/test_ratings_sizes.py``. Blocks take 1.3 GB of disk, in the folder
that RMOPT_BLOCKS names or one that pytest makes. cmfrec takes part when it is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from problems.comparison import crossed, listed
from problems.data.generated import SETS

SCRIPT = Path(__file__).with_name("ratings_in_blocks.py")
GRIDS: dict[str, list[dict[str, Any]]] = {
    "effects alone": crossed(lam_effects=(1.0, 3.0, 10.0)),
    "cmfrec": crossed(lam=(2.5, 5.0, 10.0)),
    "BiasedALS": crossed(lam=(0.25, 0.35, 0.5, 0.7)),
    "BayesianCompletion": [{}],
    "RTRMC": crossed(lam=(0.0005, 0.001, 0.002, 0.004, 0.008)),
}
# How often each edge is taken: 400 times in the paper.
STEPS = [{"step_size": size, "decay": decay} for size, decay in ((2.0, 2.0), (10.0, 30.0), (30.0, 100.0))]
AGENTS = [
    {"lam": lam, "n_epochs": 400, "variant": "stochastic"} | steps
    for lam in (0.001, 0.002, 0.004)
    for steps in STEPS
]
SLOW = [
    {"lam": lam, "n_epochs": 100, "variant": "parallel"} | steps
    for lam in (0.001, 0.002, 0.004)
    for steps in STEPS
]


@pytest.mark.parametrize("method", [*GRIDS, "Stochastic Gossip"])
def test_movielens(measured: Any, method: str, tmp_path: Path) -> None:
    """Generated ratings of MovieLens-10M's shape, 10,677 × 71,567, two splits, a tenth held out."""
    measured(
        ratings,
        replace(SETS["generated-ml10m"], per_block=716),
        method,
        GRIDS.get(method, AGENTS),
        2,
        tmp_path,
    )


@pytest.mark.parametrize("method", [*GRIDS, "Parallel Gossip, 2 processes"])
def test_netflix(measured: Any, method: str, tmp_path: Path) -> None:
    """Generated ratings of Netflix's shape, 17,770 × 480,189, a tenth held out."""
    measured(ratings, SETS["generated-netflix"], method, GRIDS.get(method, SLOW), 1, tmp_path)


def ratings(
    made: Any, method: str, grid: list[dict[str, Any]], seeds: int, tmp_path: Path
) -> list[dict[str, Any]]:
    if method == "cmfrec" and not find_spec(method):
        pytest.skip("cmfrec is not installed.")
    folder = Path(os.environ.get("RMOPT_BLOCKS", tmp_path)) / made.name
    if not folder.exists():
        made.write(folder)
    command = [sys.executable, SCRIPT, folder, method, json.dumps(grid), str(seeds)]
    if "processes" in method:
        command = [Path(sys.executable).with_name("mpiexec"), "-n", "2", *command]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | limits).stdout
    found, peak, best, errors = json.loads(said)
    print(*zip(grid, errors, strict=True), sep="\n")
    error, used, clock, sent = np.mean(found, axis=0).tolist()
    return [{
        "entries, generated": round(made.per_row * made.rows), "method": method, "RMSE": error,
        "by split": ", ".join(f"{one[0]:.4f}" for one in found), "noise": made.noise,
        "above noise": f"{error / made.noise - 1.0:.1%}", "CPU, s": used, "clock, s": clock, "peak, GB": peak,
        "MB sent": sent or None, "chosen": listed(best) or "–",
    }]  # fmt: skip
