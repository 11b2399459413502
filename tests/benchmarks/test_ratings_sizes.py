"""Ratings of the papers' sizes, generated: those of MovieLens-10M, and of Netflix.

Run with ``pytest -o addopts= -s tests/benchmarks/test_ratings_sizes.py``. Blocks take 1.3 GB of disk, in the folder
that RMOPT_BLOCKS names or one that pytest makes. Each method runs in processes of its own, for its peak of memory.
Ten folds divide the entries of a block: a split holds out its own. Parameters are chosen by the last fold of a tenth
of the users, without the folds of splits. cmfrec takes part when it is installed.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from problems.comparison import crossed, listed
from problems.data.generated import SETS
from problems.subspace import RTRMC, BayesianCompletion, BiasedALS, GossipPlan, MatrixCompletion, gossip
from problems.subspace.baselines import Biases
from problems.subspace.cost import KnownEntries, columns_of, predictions, shares_out
from rmopt.solvers import MPIWorld, World

sys.path.append(str(Path(__file__).parents[1]))
from test_completion_time import CMFRec

# Gossip and RTRMC have no effects: these are two more ranks.
AGENTS, RANK, CHOICE = 10, 12, -1
# Step sizes were chosen by hand: on Netflix's shape, with λ = 0.0005 of decay 0.5 and of step size 8, decay 3, and
# with λ = 0.002 of step sizes 2, 8, 16, decay 2, 6, 20; on MovieLens-10M's, with λ = 0.004 of step sizes 2, 8. For
# the preconditioned variant, with λ = 0.001 on Netflix's shape, of step sizes 2 to 32, decay 1 to 32.
PLAIN = "parallel", crossed(lam=(1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3), step_size=[4.0], decay=[2.0])
PRECONDITIONED = "precon-parallel", crossed(lam=(5e-4, 1e-3, 2e-3, 4e-3), step_size=[16.0], decay=[8.0])
MODELS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "effects alone": (Biases(), crossed(lam_effects=(1.0, 3.0, 10.0))),
    "cmfrec": (CMFRec(10), crossed(lam=(2.5, 5.0, 10.0))),
    "BiasedALS": (BiasedALS(10), crossed(lam=(0.25, 0.35, 0.5, 0.7))),
    "BayesianCompletion": (BayesianCompletion(10, n_samples=20), [{}]),
    "RTRMC": (RTRMC(RANK), crossed(lam=(0.001, 0.002, 0.004))),
    "Parallel Gossip, 2 processes": PLAIN,
    "Parallel Gossip, 1 process": PLAIN,
    "Preconditioned Gossip, 2 processes": PRECONDITIONED,
}


@pytest.mark.parametrize("method", MODELS)
@pytest.mark.parametrize(("name", "updates"), [("generated-ml10m", 400), ("generated-netflix", 60)])
def test_ratings(measured: Any, name: str, updates: int, method: str, tmp_path: Path) -> None:
    """Generated ratings of MovieLens-10M's shape and of Netflix's, a tenth held out."""
    if method == "cmfrec" and not find_spec(method):
        pytest.skip("cmfrec is not installed.")
    measured(ratings, name, updates, method, tmp_path)


def ratings(name: str, updates: int, method: str, tmp_path: Path) -> list[dict[str, Any]]:
    made: Any = replace(SETS[name], per_block=716 if name == "generated-ml10m" else 5_000)
    folder = Path(os.environ.get("RMOPT_BLOCKS", tmp_path)) / name
    if not folder.exists():
        made.write(folder)
    splits = 2 if name == "generated-ml10m" and "Gossip" not in method else 1
    command: list[Any] = [sys.executable, __file__, folder, method, str(splits), str(updates)]
    if "processes" in method:
        command = [Path(sys.executable).with_name("mpiexec"), "-n", "2", *command]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | limits).stdout
    found, peak, best = json.loads(said)
    error, used, clock, sent = np.mean(found, axis=0).tolist()
    return [{
        "entries, generated": round(made.per_row * made.rows), "method": method, "RMSE": error,
        "by split": ", ".join(f"{one[0]:.4f}" for one in found), "noise": made.noise,
        "above noise": f"{error / made.noise - 1.0:.1%}", "CPU, s": used, "clock, s": clock, "peak, GB": peak,
        "MB sent": sent or None, "chosen": listed(best) or "–",
    }]  # fmt: skip


def read(files: list[Path], split: int) -> tuple[KnownEntries, KnownEntries]:
    """Return the known and the held-out entries of blocks of users."""
    parts = []
    for path in files:
        with np.load(path) as block:
            fold = np.random.default_rng(int(path.stem[-4:])).integers(10, size=len(block["item"]))
            parts.append((block["item"], block["user"], block["rating"], fold))
    item, user, rating, fold = map(np.concatenate, zip(*parts, strict=True))
    made: Any = SETS[files[0].stem[:-5]]
    first, shape = user[0], (made.items, int(user[-1] - user[0]) + 1)

    def table(which: Any) -> KnownEntries:
        indptr = np.append(0, np.cumsum(np.bincount(user[which] - first, minlength=shape[1])))
        return KnownEntries((rating[which].astype(float), item[which], indptr), shape=shape)

    held = fold == (9 if split == CHOICE else split)
    return table(~held & (fold > 1) if split == CHOICE else ~held), table(held)


def gossiped(world: World, files: list[Path], split: int, lam: float, **plan: Any) -> list[float]:
    """Return the error of agents, CPU seconds of all processes, seconds by the clock, and megabytes sent."""
    shares, mine = shares_out(len(files), AGENTS), world.mine(AGENTS)
    known, held = zip(*(read(files[shares[agent]], split) for agent in mine), strict=True)
    total, count = world.total(np.sum([(one.data.sum(), one.nnz) for one in known], axis=0))
    for one in known:
        one.data -= total / count
    tasks = MatrixCompletion(dict(zip(mine, known, strict=True)), AGENTS, lam)
    before, used, begun = world.traffic[1], time.process_time(), time.perf_counter()
    found = gossip(tasks, RANK, GossipPlan(**plan), max(split, 0), world=world)
    seconds = float(world.total(time.process_time() - used)), time.perf_counter() - begun
    squares = 0.0
    for agent, one in zip(mine, held, strict=True):
        weights = tasks.weights(found.mean, agent)
        gaps = predictions(found.mean, weights, one.indices, columns_of(one)) + total / count - one.data
        squares += gaps @ gaps
    squares, count = world.total([squares, sum(one.nnz for one in held)])
    return [float(np.sqrt(squares / count)), *seconds, (found.bytes - before) / 1e6]


def fitted(model: Any, files: list[Path], split: int, **parameters: Any) -> list[float]:
    """Return the same of a method in one place."""
    known, held = read(files, split)

    def pairs(table: KnownEntries) -> Any:
        return np.column_stack([table.indices, columns_of(table)])

    given = [pairs(known), known.data] if isinstance(model, CMFRec) else [known]
    used, begun = time.process_time(), time.perf_counter()
    model.set_params(random_state=max(split, 0), **parameters).fit(*given)
    seconds = time.process_time() - used, time.perf_counter() - begun
    return [float(np.sqrt(np.mean((model.predict(pairs(held)) - held.data) ** 2))), *seconds, 0.0]


def main(folder: str, name: str, splits: str, updates: str) -> None:
    """Choose and measure, and print what was found: in one process, or in all that ``mpiexec`` started."""
    world, (model, grid) = MPIWorld() if "processes" in name else World(), MODELS[name]

    def error(files: list[Path], split: int, point: dict[str, Any]) -> list[float]:
        if isinstance(model, str):
            # λ is chosen with fewer updates.
            plan = point | {"variant": model, "n_epochs": 40.0 if split == CHOICE else float(updates)}
            return gossiped(world, files, split, **plan)
        return fitted(model, files, split, **point)

    files = sorted(Path(folder).glob("*.npz"))
    few = files[: len(files) // 10 + 1]
    best = grid[np.argmin([error(few, CHOICE, point)[0] for point in grid])] if grid[1:] else grid[0]
    found = [error(files, split, best) for split in range(int(splits))]
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1e6
    told = json.dumps([found, float(world.total(peak)), best])
    if world.rank == 0:
        print(told)


if __name__ == "__main__":
    with threadpool_limits(1):
        main(*sys.argv[1:])
