"""Methods on generated ratings that are read from blocks, alone in a process or in those that ``mpiexec`` started.

`test_ratings_sizes` runs it for one method, so that time and peak of memory are of that one:
``python ratings_in_blocks.py FOLDER METHOD GRID SEEDS``, GRID a list of parameters in JSON. They are chosen on the
blocks of a tenth of the users. Ten folds divide the entries: a seed holds out its own, the choice the last one, and
the choice sees none of those of seeds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from problems.data.generated import SETS
from problems.subspace import RTRMC, BayesianCompletion, BiasedALS, GossipPlan, MatrixCompletion, gossip
from problems.subspace.baselines import Biases
from problems.subspace.cost import KnownEntries, columns_of, predictions, shares_out
from rmopt.solvers import MPIWorld, World

# Peers of the benchmarks, and what these import.
sys.path += map(str, Path(__file__).parents[:2])
from test_completion_time import CMFRec

# Gossip and RTRMC have no effects: these are two more ranks.
AGENTS, RANK, CHOICE = 10, 12, -1
MODELS: dict[str, Any] = {
    "effects alone": Biases(), "cmfrec": CMFRec(10), "BiasedALS": BiasedALS(10), "RTRMC": RTRMC(RANK),
    "BayesianCompletion": BayesianCompletion(10, n_samples=30),
}  # fmt: skip


def read(files: list[Path], seed: int) -> tuple[KnownEntries, KnownEntries]:
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

    held = fold == (9 if seed == CHOICE else seed)
    return table(~held & (fold > 1) if seed == CHOICE else ~held), table(held)


def gossiped(world: World, files: list[Path], seed: int, lam: float, **plan: Any) -> list[float]:
    """Return the error of agents, CPU seconds of all processes, seconds by the clock, and megabytes sent."""
    shares, mine = shares_out("blocks", len(files), AGENTS), world.mine(AGENTS)
    known, held = zip(*(read(files[shares[agent]], seed) for agent in mine), strict=True)
    total, count = world.total(np.sum([(one.data.sum(), one.nnz) for one in known], axis=0))
    mean = total / count
    for one in known:
        one.data -= mean
    tasks = MatrixCompletion(dict(zip(mine, known, strict=True)), AGENTS, lam)
    used, begun = time.process_time(), time.perf_counter()
    found = gossip(tasks, RANK, GossipPlan(**plan), max(seed, 0), world=world)
    seconds = float(world.total(time.process_time() - used)), time.perf_counter() - begun
    errors = []
    for agent, one in zip(mine, held, strict=True):
        weights = tasks.weights(found.mean, agent)
        gaps = predictions(found.mean, weights, one.indices, columns_of(one)) + mean - one.data
        errors.append((gaps @ gaps, len(gaps)))
    squares, count = world.total(np.sum(errors, axis=0))
    return [float(np.sqrt(squares / count)), *seconds, found.bytes / 1e6]


def fitted(name: str, files: list[Path], seed: int, **parameters: Any) -> list[float]:
    """Return the same of a method in one place."""
    known, held = read(files, seed)
    model = MODELS[name].set_params(**parameters, random_state=max(seed, 0))
    pairs = [np.column_stack([one.indices, columns_of(one)]) for one in (known, held) if name == "cmfrec"]
    used, begun = time.process_time(), time.perf_counter()
    model.fit(pairs[0], known.data) if pairs else model.fit(known)
    seconds = time.process_time() - used, time.perf_counter() - begun
    error = np.sqrt(np.mean((model.predict(pairs[1]) - held.data) ** 2)) if pairs else model.rmse(held)
    return [float(error), *seconds, 0.0]


def main(folder: str, name: str, grid: str, seeds: str) -> None:
    """Choose, measure, and print what was found."""
    world = MPIWorld() if "processes" in name else World()

    def measured(files: list[Path], seed: int, parameters: dict[str, Any]) -> list[float]:
        if name in MODELS:
            return fitted(name, files, seed, **parameters)
        return gossiped(world, files, seed, **parameters)

    files, points = sorted(Path(folder).glob("*.npz")), json.loads(grid)
    few = files[: len(files) // AGENTS + 1] if points[1:] else files[:1]
    errors = [measured(few, CHOICE, point)[0] for point in points]
    best = points[int(np.argmin(errors))]
    found = [measured(files, seed, best) for seed in range(int(seeds))]
    peak = float(
        world.total(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1e6)
    )
    if world.rank == 0:
        print(json.dumps([found, peak, best, errors]))


if __name__ == "__main__":
    with threadpool_limits(1):
        main(*sys.argv[1:])
