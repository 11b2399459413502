"""Seconds per LORETA-1 step: ours, the paper's Algorithm 4, and the memory-touch floor, in one process.

Run by hand: ``pytest tests/benchmarks/test_step_time.py -s``. Medians of several runs, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from peers import algorithm_4, touch_plain, touch_unrolled
from threadpoolctl import threadpool_limits

from rmopt.costs import BilinearSum, absolute
from rmopt.engines import BilinearEngine
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import FIXED_RANK_RETRACTIONS

STEPS, REPEATS, ROWS = 20_000, 7, 2000


def sparse_rows(n: int, nnz: int, rng: np.random.Generator) -> sp.csr_array:
    """Return unit rows with nnz random entries each."""
    indices = np.concatenate([np.sort(rng.choice(n, nnz, replace=False)) for _ in range(ROWS)])
    values = rng.standard_normal(ROWS * nnz) / np.sqrt(nnz)
    indptr = np.arange(0, ROWS * nnz + 1, nnz)
    return sp.csr_array((values, indices.astype(np.int32), indptr.astype(np.int32)), shape=(ROWS, n))


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def step_times(n: int, k: int, nnz: int, retraction: str = "second-order") -> tuple[float, float, float]:
    """Return microseconds per step of the compiled engine and of the touch-only loops, side by side."""
    rng = np.random.default_rng(0)
    rows, other = sparse_rows(n, nnz, rng), sparse_rows(n, nnz, rng)
    # The absolute loss has a slope everywhere, so that every step is an update.
    cost = BilinearSum(rows, other, absolute, rng.standard_normal(ROWS))
    manifold = FixedRankEmbedded(n, n, k)
    engine = BilinearEngine(manifold, cost, FIXED_RANK_RETRACTIONS[retraction])
    state = engine.load(manifold.random_point(rng))
    schedule, etas = rng.integers(ROWS, size=(STEPS, 1)), np.full(STEPS, 1e-2)
    A, B = rng.standard_normal((n, k)), rng.standard_normal((n, k))
    terms = schedule[:, 0]
    both = sp.vstack([rows, other]).tocsr()
    parts = both.indptr, both.indices, both.data, terms, terms + ROWS
    state = engine.advance(state, schedule[:2000], etas[:2000])
    for touch in (touch_plain, touch_unrolled):
        touch(A, B, *parts)
    times = []
    for _ in range(REPEATS):
        times.append(
            (
                seconds(lambda: engine.advance(state, schedule, etas)),
                seconds(lambda: touch_plain(A, B, *parts)),
                seconds(lambda: touch_unrolled(A, B, *parts)),
            )
        )
    assert state.updates == 2000 + REPEATS * STEPS
    ours, plain, unrolled = np.median(times, axis=0) / STEPS * 1e6
    return float(ours), float(plain), float(unrolled)


def against_floor(ours: float, plain: float, unrolled: float) -> str:
    return (
        f"{ours:6.2f} µs a step, touch-only {plain:6.2f} µs (ratio {ours / plain:.2f}), "
        f"four rows at a time {unrolled:6.2f} µs (ratio {ours / unrolled:.2f})"
    )


def algorithm_4_time(n: int, k: int) -> float:
    """Return microseconds per step of the paper's Algorithm 4, compiled, on dense vectors."""
    rng = np.random.default_rng(0)
    A, B = (np.linalg.qr(rng.standard_normal((n, k)))[0].T.copy() for _ in range(2))
    Ad, Bd, work = A.copy(), B.copy(), np.empty((4, n))
    p, q = rng.standard_normal(n) / np.sqrt(n), -0.01 * rng.standard_normal(n) / np.sqrt(n)
    W = A.T @ B
    algorithm_4(A, B, Ad, Bd, p, q, work)
    # The peer is right: it made the step of Theorem 3.
    manifold = FixedRankEmbedded(n, n, k)
    start = manifold.from_matrix(W) if n <= 500 else None
    if start is not None:
        direction = manifold.projection(start, np.outer(p, q))
        np.testing.assert_allclose(
            A.T @ B, manifold.to_dense(manifold.retraction(start, direction)), atol=1e-12
        )
    times = [seconds(lambda: algorithm_4(A, B, Ad, Bd, p, q, work)) for _ in range(15)]
    return float(np.median(times)) * 1e6


def test_the_peer_is_right() -> None:
    assert algorithm_4_time(300, 7) > 0


@pytest.mark.parametrize(
    ("n", "k", "nnz", "speedup"),
    [(50_000, 10, 100, 500), (16_660, 30, 100, None), (10_000, 50, 100, 150), (5_000, 100, 100, 60)],
)
def test_sparse_steps(n: int, k: int, nnz: int, speedup: int | None) -> None:
    with threadpool_limits(1):
        times = step_times(n, k, nnz)
        paper = algorithm_4_time(n, k)
    print(
        f"\nn = {n:6}, k = {k:3}, nnz = {nnz}: {against_floor(*times)}, "
        f"Algorithm 4 {paper:7.0f} µs (ratio {paper / times[0]:.0f}"
        + (f", wanted {speedup})" if speedup else ")")
    )


@pytest.mark.parametrize("retraction", list(FIXED_RANK_RETRACTIONS))
def test_retractions(retraction: str) -> None:
    with threadpool_limits(1):
        print(f"\n{retraction:18}: {against_floor(*step_times(16_660, 30, 100, retraction))}")


def test_growth() -> None:
    print()
    with threadpool_limits(1):
        for n in (10**4, 10**5, 10**6, 10**7):
            print(f"n = {n:8}: {against_floor(*step_times(n, 5, 100))}")
