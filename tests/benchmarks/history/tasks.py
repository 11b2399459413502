"""What asv times at commits of the past, by public names that are as old as version 0.1.0."""

import time
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits


def budget(kind: Any, limit: int) -> dict[str, int]:
    """Return a budget under the name that it had at the time."""
    names = ("max_iter", "n_steps", "max_iterations")
    return {next(name for name in names if name in signature(kind).parameters): limit}


class Tasks:
    """Seconds of processor time; what numba compiles is compiled before."""

    timer, timeout, repeat, number, warmup_time, rounds = time.process_time, 900, 5, 1, 0, 1
    params = ("20,000 LORETA-1 steps", "RTRMC", "RCGMC", "co-embedding")

    def setup(self, task: str) -> None:
        self.work = getattr(self, "coembedding" if task == "co-embedding" else task[-5:].strip())()
        self.work()

    def time_task(self, task: str) -> None:
        self.work()

    def steps(self) -> Any:
        """Steps of rank 50 along rows of 100 numbers among 10,000."""
        from rmopt import Problem
        from rmopt.costs import BilinearSum, absolute
        from rmopt.manifolds import FixedRankEmbedded
        from rmopt.solvers import SGD

        rng = np.random.default_rng(0)
        left, right = (sp.random_array((2000, 10_000), density=0.01, rng=rng).tocsr() for _ in "lr")
        cost = BilinearSum(left, right, absolute, rng.standard_normal(2000))
        problem, solver = Problem(FixedRankEmbedded(10_000, 10_000, 50), cost), SGD(1e-3, **budget(SGD, 20_000))
        return lambda: solver.run(problem, random_state=0)

    def completion(self, kind: Any) -> Any:
        """A matrix of 2,000 × 2,000 and rank 5, without its mean too, to a relative residual of 1e-6."""
        rng = np.random.default_rng(0)
        A, B = np.hstack([np.ones((2000, 1)), rng.standard_normal((2000, 4))]), rng.standard_normal((2000, 5))
        rows, columns = np.nonzero(rng.random((2000, 2000)) < 6 * 5 * 4000 / 2000**2)
        truth = np.sum(A[rows] * B[columns], axis=1)
        known = sp.csc_array((truth, (rows, columns)), shape=(2000, 2000))
        model = kind(5, lam=0.0, tol=1e-7, random_state=0, **budget(kind, 200))

        def work() -> None:
            values = model.fit(known).predict(rows, columns)
            assert np.linalg.norm(values - truth) < 1e-6 * np.linalg.norm(truth)

        return work

    def RTRMC(self) -> Any:
        from problems.subspace import RTRMC

        return self.completion(RTRMC)

    def RCGMC(self) -> Any:
        from problems.subspace import RCGMC

        return self.completion(RCGMC)

    def coembedding(self) -> Any:
        """A classifier of digits, with its certificate."""
        from problems.coembedding import CoembeddingClassifier

        X, y = load_digits(return_X_y=True)
        return lambda: CoembeddingClassifier(beta=5.0).fit(X[:500] / 16, y[:500])


def timeraw_import() -> str:
    """Return what a fresh interpreter does: import rmopt and the first estimator."""
    return "import rmopt; from problems.similarity import LoretaSimilarity"
