"""Workers that learn one model, in the processes that ``mpiexec`` started: what tests of `Parallel` run.

``python workers_by_mpi.py OUT STEPS[,STEPS…] [CHECKPOINT]``: the last of so long runs is kept. Each process makes the
data of its own workers alone.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from rmopt import Problem
from rmopt.costs import BilinearSum
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD, Checkpoint, MPIWorld, Parallel, Shards, World

WORKERS, STEPS = 8, 24_000


def learned(steps: int, world: Any = None, path: Path | None = None) -> Any:
    """Return the result of a run with eight workers, each with data of its own."""
    truth = np.outer(*np.random.default_rng(0).standard_normal((2, 20)))
    costs = {}
    for worker in (world or World()).mine(WORKERS):
        left, right = np.random.default_rng(worker + 1).standard_normal((2, 50, 20))
        targets = np.sign(np.einsum("ij,jk,ik->i", left, truth, right))
        costs[worker] = BilinearSum(left, right, targets=targets)
    problem = Problem(FixedRankEmbedded(20, 20, 2), Shards(costs))
    solver = Parallel(SGD(0.01, max_iter=steps), WORKERS, every=500, world=world)
    saving = None if path is None else Checkpoint(path, every_steps=100)
    return solver.run(problem, random_state=0, checkpoint=saving)


if __name__ == "__main__":
    world = MPIWorld()
    for steps in map(int, sys.argv[2].split(",")):
        found = learned(steps, world, Path(sys.argv[3]) if sys.argv[3:] else None)
    if world.rank == 0:
        np.savez(sys.argv[1], updates=found.updates, **vars(found.point))
