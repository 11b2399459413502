"""Seconds per pass of label ranking, exact and WARP, beside a loop that only touches the same memory.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_ranking_time.py``. Medians of several runs, one thread.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit
from threadpoolctl import threadpool_limits
from timing import median

from problems.data import MultilabelBundle, load
from problems.ranking import LabelRanking, WarpRanking
from problems.ranking.estimators import epochs
from rmopt import Problem
from rmopt.engines.choose import choose_engine
from rmopt.manifolds import FixedRankEmbedded


@njit
def touch_only(A, B, X_indptr, X_indices, X_values, Y_indptr, Y_indices, rows, exact):
    """Read the rows of B for x and those of A for all labels, or two; update B's and the true labels' rows."""
    k = A.shape[1]
    v, scores = np.zeros(k), np.zeros(A.shape[0])
    for row in rows:
        for c in range(k):
            v[c] = 0.0
        for j in range(X_indptr[row], X_indptr[row + 1]):
            for c in range(k):
                v[c] += X_values[j] * B[X_indices[j], c]
        for label in range(A.shape[0] if exact else 2):
            total = 0.0
            for c in range(k):
                total += A[label, c] * v[c]
            scores[label] = total
        for c in range(k):
            v[c] *= 1e-9
        last = Y_indptr[row + 1] if exact else min(Y_indptr[row] + 2, Y_indptr[row + 1])
        for j in range(Y_indptr[row], last):
            for c in range(k):
                A[Y_indices[j], c] += v[c]
        for j in range(X_indptr[row], X_indptr[row + 1]):
            for c in range(k):
                B[X_indices[j], c] += X_values[j] * v[c]
    return scores[0]


def data() -> tuple[sp.csr_array, sp.csr_array]:
    """Return delicious where it is at hand, and random rows of its sizes otherwise."""
    if (Path(os.environ.get("RMOPT_DATA_HOME", "absent")) / "delicious.npz").exists():
        bundle = load("delicious", None, MultilabelBundle).scaled()
        return bundle.X[bundle.train], bundle.Y[bundle.train]
    rng = np.random.default_rng(0)
    X, Y = (
        sp.random_array((12_920, width), density=count / width, random_state=rng).tocsr()
        for width, count in ((500, 18), (983, 19))
    )
    return X, Y


@pytest.mark.parametrize("k", [10, 50, 100])
def test_a_pass(measured: Any, k: int) -> None:
    """A pass over delicious (12,920 rows, 500 features, 983 labels) beside a loop that only touches the same rows."""
    measured(one_pass, k)


def one_pass(k: int) -> list[dict[str, Any]]:
    X, Y = data()
    rng = np.random.default_rng(0)
    rows = []
    with threadpool_limits(1):
        for kind in (LabelRanking, WarpRanking):
            cost = kind(X, Y)
            manifold = FixedRankEmbedded(*cost.shape, k)
            engine = choose_engine(Problem(manifold, cost), None, "compiled")
            schedule, etas = epochs(cost).draw(rng, 0, len(Y.indptr) - 1), np.full(len(Y.indptr) - 1, 0.03)
            state = engine.advance(engine.load(manifold.identity()), schedule, etas)
            ours = median(partial(engine.advance, state, schedule, etas), 7)[0]
            A, B = rng.standard_normal((Y.shape[1], k)), rng.standard_normal((X.shape[1], k))
            parts = X.indptr, X.indices, X.data, Y.indptr, Y.indices, schedule[:, 0], kind is LabelRanking
            touch_only(A, B, *parts)
            floor = median(partial(touch_only, A, B, *parts), 7)[0]
            rows.append({
                "rank": k, "sampling": "exact" if kind is LabelRanking else "WARP", "a pass, s": ours,
                "a step, µs": 1e6 * ours / len(schedule), "touch loop, µs": 1e6 * floor / len(schedule),
                "step / touch": ours / floor, "of exact": 1.0 if not rows else ours / rows[0]["a pass, s"],
            })  # fmt: skip
    return rows
