"""A similarity of the 20 Newsgroups by the processes that ``mpiexec`` started, each with its share of the documents.

``python similarity_by_mpi.py OUT``; the first process writes mAP, and the seconds of the clock and of the busiest
processor, means of two seeds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from problems.data import load
from problems.data.text import informative_unit_rows
from problems.similarity import LoretaSimilarity
from rmopt.solvers import MPIWorld

TRIPLETS = 600_000

if __name__ == "__main__":
    world = MPIWorld()
    bundle = informative_unit_rows(load("news20"), 16_660, sublinear=True)
    X, y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.y))
    mine = slice(world.rank, None, world.size)

    def fit(share: float, seed: int) -> LoretaSimilarity:
        model = LoretaSimilarity(30, step_size=10.0, random_state=seed)
        per_row = share * TRIPLETS / X.shape[0]
        return model.fit_stream([(X[mine], y[mine])], steps_per_row=per_row, world=world)

    fit(0.05, 0)
    found = []
    for seed in range(2):
        world.least(0)  # All begin together.
        begun = time.perf_counter(), time.process_time()
        model = fit(1.0, seed)
        clock, own = time.perf_counter() - begun[0], time.process_time() - begun[1]
        busiest = -world.least(-own)
        found.append((model.score(test, truth) if world.rank == 0 else 0.0, clock, busiest))
    if world.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(np.mean(found, axis=0).tolist()), "utf-8")
