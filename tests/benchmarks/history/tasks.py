"""What asv times at commits of the past, by public names that are as old as version 0.1.0."""

import time
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.subspace import RCGMC, RTRMC
from rmopt import Problem
from rmopt.costs import BilinearSum, absolute
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD

rng = np.random.default_rng(0)
left, right = (sp.random_array((2000, 10_000), density=0.01, random_state=rng).tocsr() for _ in "lr")
problem = Problem(FixedRankEmbedded(10_000, 10_000, 50), BilinearSum(left, right, absolute, rng.random(2000)))
A, B = np.hstack([np.ones((2000, 1)), rng.standard_normal((2000, 4))]), rng.standard_normal((2000, 5))
rows, columns = np.nonzero(rng.random((2000, 2000)) < 6 * 5 * 4000 / 2000**2)
truth = np.sum(A[rows] * B[columns], axis=1)
known = sp.csc_array((truth, (rows, columns)), shape=(2000, 2000))


def made(kind: Any, budget: int, *given: Any, **options: Any) -> Any:
    names = ("max_iter", "n_steps", "max_iterations")  # what a budget was called
    return kind(*given, **options, **{next(n for n in names if n in signature(kind).parameters): budget})


class Tasks:
    """Seconds of processor time; what numba compiles is compiled before."""

    timer, timeout, repeat, number, warmup_time, rounds = time.process_time, 900, 5, 1, 0, 1
    params = ("20,000 LORETA-1 steps", "RTRMC to 1e-6", "RCGMC to 1e-6")

    def time_task(self, task: str) -> None:
        if task not in self.params[1:]:
            made(SGD, 20_000, 1e-3).run(problem, random_state=0)
            return
        kind = RTRMC if task.startswith("RTRMC") else RCGMC
        found = made(kind, 200, 5, lam=0.0, tol=1e-7, random_state=0).fit(known).predict(rows, columns)
        assert np.linalg.norm(found - truth) < 1e-6 * np.linalg.norm(truth)

    setup = time_task
