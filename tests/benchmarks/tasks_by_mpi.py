"""Models learned by the processes that ``mpiexec`` started, each with its share of the rows.

``python tasks_by_mpi.py TASK OUT`` for newsgroups (a similarity) or delicious (labels); the first process writes the
quality (mAP; P@1), and the seconds of the clock and of the busiest processor, means of two seeds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from problems.data import MultilabelBundle, load
from problems.data.text import informative_unit_rows
from problems.ranking import LoretaLabelRanker, precision_at
from problems.similarity import LoretaSimilarity
from rmopt.solvers import MPIWorld

# What learns a share of all examples with a seed, and the quality of what was learned.
Task = tuple[Callable[[float, int], Any], Callable[[Any], float]]


def newsgroups(world: MPIWorld) -> Task:
    bundle = informative_unit_rows(load("news20"), 16_660, sublinear=True)
    X, y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.y))
    mine = slice(world.rank, None, world.size)

    def fit(share: float, seed: int) -> LoretaSimilarity:
        model = LoretaSimilarity(30, step_size=10.0, random_state=seed)
        return model.fit_stream([(X[mine], y[mine])], steps_per_row=share * 600_000 / len(y), world=world)

    return fit, lambda model: model.score(test, truth)


def delicious(world: MPIWorld) -> Task:
    bundle = load("delicious", None, MultilabelBundle).scaled()
    X, Y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.Y))
    mine = slice(world.rank, None, world.size)

    def fit(share: float, seed: int) -> LoretaLabelRanker:
        # A stream is learned once, so it holds its rows as often as they are to be learned: ten times in a chunk.
        chunk = tuple(sparse.vstack([part[mine]] * 10, "csr") for part in (X, Y))
        return LoretaLabelRanker(50, random_state=seed).fit_stream([chunk] * int(4 * share), world=world)

    return fit, lambda model: precision_at(model.decision_function(test), truth, (1,))[1]


if __name__ == "__main__":
    world = MPIWorld()
    fit, quality = {"newsgroups": newsgroups, "delicious": delicious}[sys.argv[1]](world)
    fit(0.25, 0)
    found = []
    for seed in range(2):
        world.least(0)  # All begin together.
        begun = time.perf_counter(), time.process_time()
        model = fit(1.0, seed)
        clock, own = time.perf_counter() - begun[0], time.process_time() - begun[1]
        busiest = -world.least(-own)
        found.append((quality(model) if world.rank == 0 else 0.0, clock, busiest))
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(np.mean(found, axis=0).tolist()), "utf-8")
