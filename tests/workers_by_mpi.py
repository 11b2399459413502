"""Workers that learn one model, in the processes that ``mpiexec`` started: what tests of `Parallel` run.

``python workers_by_mpi.py OUT STEPS [CHECKPOINT]``
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from rmopt import Problem
from rmopt.costs import BilinearSum
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD, MPIWorld, Parallel, SharedCheckpoint

WORKERS, STEPS = 4, 24_000


def learned(steps: int, world: Any = None, path: Path | None = None) -> Any:
    """Return the result of a run with four workers, 24,000 steps in all unless others are said."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 400, 20))
    truth = np.outer(*rng.standard_normal((2, 20)))
    targets = np.sign(np.einsum("ij,jk,ik->i", left, truth, right))
    problem = Problem(FixedRankEmbedded(20, 20, 2), BilinearSum(left, right, targets=targets))
    solver = Parallel(SGD(0.01, max_iter=steps), WORKERS, every=500, outer_step=1.5, world=world)
    saving = None if path is None else SharedCheckpoint(path, 100, world)
    return solver.run(problem, random_state=0, checkpoint=saving)


if __name__ == "__main__":
    world = MPIWorld()
    found = learned(int(sys.argv[2]), world, Path(sys.argv[3]) if sys.argv[3:] else None)
    if world.rank == 0:
        np.savez(sys.argv[1], updates=found.updates, **vars(found.point))
