"""Seconds per step of LORETA-1 on random sparse rows, beside its peers, in one process."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from step_peers import algorithm_4, touch_plain, touch_unrolled
from timing import median

from rmopt.core import Problem
from rmopt.costs import BilinearSum, absolute
from rmopt.engines.choose import choose_engine
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank

ROWS = 2000


def sparse_rows(n: int, nnz: int, rng: np.random.Generator) -> sp.csr_array:
    """Return rows of length about 1 with nnz random entries each."""
    indices = np.concatenate([np.sort(rng.choice(n, nnz, replace=False, shuffle=False)) for _ in range(ROWS)])
    values = rng.standard_normal(ROWS * nnz) / np.sqrt(nnz)
    indptr = np.arange(0, ROWS * nnz + 1, nnz)
    return sp.csr_array((values, indices.astype(np.int32), indptr.astype(np.int32)), shape=(ROWS, n))


class StepTimes:
    """Steps along rows of one size.

    Parameters
    ----------
    n : int
        Number of features.
    k : int
        The rank.
    nnz : int
        Non-zeros in p and in q.
    steps, repeats : int
        Steps in a timed run, and the number of runs whose median counts.
    """

    def __init__(self, n: int, k: int, nnz: int, steps: int = 20_000, repeats: int = 5) -> None:
        self.n, self.k, self.steps, self.repeats = n, k, steps, repeats
        self.rng = np.random.default_rng(0)
        left, right = (sparse_rows(n, nnz, self.rng) for _ in range(2))
        # The absolute loss has a slope everywhere, so that every step is an update.
        self.cost = BilinearSum(left, right, absolute, self.rng.standard_normal(ROWS))
        self.schedule = self.rng.integers(ROWS, size=(steps, 1))

    def engine(self, psd: bool, retraction: Any = None) -> float:
        """Return seconds per step of the compiled engine, on general or PSD matrices."""
        manifold = PSDFixedRank(self.n, self.k) if psd else FixedRankEmbedded(self.n, self.n, self.k)
        engine = choose_engine(Problem(manifold, self.cost), retraction, "compiled")
        state = engine.load(manifold.random_point(self.rng))
        etas = np.full(self.steps, 1e-2)
        engine.advance(state, self.schedule[:1000], etas[:1000])
        return median(lambda: engine.advance(state, self.schedule, etas), self.repeats)[0] / self.steps

    def floor(self, psd: bool) -> tuple[float, float]:
        """Return seconds per step of loops that only read and update the same rows: plain, four rows at a time."""
        A = self.rng.standard_normal((self.n, self.k))
        B = A if psd else self.rng.standard_normal((self.n, self.k))
        both = sp.vstack([self.cost.left, self.cost.right]).tocsr()
        terms = self.schedule[:, 0]
        times = []
        for touch in (touch_plain, touch_unrolled):

            def work(touch: Callable[..., None] = touch) -> None:
                touch(A, B, both.indptr, both.indices, both.data, terms, terms + ROWS)

            work()
            times.append(median(work, self.repeats)[0] / self.steps)
        return times[0], times[1]

    def algorithm_4(self) -> float:
        """Return seconds per step of the paper's Algorithm 4, compiled, on dense vectors."""
        n, k = self.n, self.k
        A, B = (self.rng.standard_normal((k, n)) / np.sqrt(n) for _ in range(2))
        A_pinv, B_pinv = (np.ascontiguousarray(np.linalg.pinv(factor).T) for factor in (A, B))
        p, q = (self.rng.standard_normal(n) / np.sqrt(n) for _ in range(2))
        work = np.empty((4, n))
        q *= -0.01
        algorithm_4(A, B, A_pinv, B_pinv, p, q, work)
        return median(lambda: algorithm_4(A, B, A_pinv, B_pinv, p, q, work), 3 * self.repeats)[0]
