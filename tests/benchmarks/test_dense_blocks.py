"""Steps on dense examples: blocks, the loop over stored numbers, and one gemv and one ger per side.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_dense_blocks.py``. Medians of several runs, one thread:
the pools of numpy's and of scipy's BLAS, which the peer uses, do not get on.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.linalg.blas import dgemv, dger
from step_times import median_seconds
from threadpoolctl import threadpool_limits

from rmopt.costs import BilinearSum, absolute
from rmopt.engines import BilinearEngine
from rmopt.engines.deferred import DeferredEngine
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import SecondOrder

ROWS = 1000


def memory_bound(A: np.ndarray, B: np.ndarray, p: np.ndarray, q: np.ndarray) -> None:
    """Read A and B once and change them once: what a step on its own has to do."""
    for factor, example in ((A, p), (B, q)):
        u = dgemv(1.0, factor, example, trans=1)
        dger(1e-9, example, u, a=factor, overwrite_a=1)


@pytest.mark.parametrize(("n", "k", "steps"), [(5000, 50, 1000), (1000, 30, 4000), (256, 20, 8000)])
def test_dense_steps(measured: Any, n: int, k: int, steps: int) -> None:
    """A step on dense examples in blocks of 32; the floor of a single step is one gemv and one ger a side."""
    measured(dense_steps, n, k, steps)


def dense_steps(n: int, k: int, steps: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((ROWS, n)) / np.sqrt(n) for _ in range(2))
    cost, manifold = BilinearSum(left, right, absolute, rng.standard_normal(ROWS)), FixedRankEmbedded(n, n, k)
    schedule, etas, start = (
        rng.integers(ROWS, size=(steps, 1)),
        np.full(steps, 1e-2),
        manifold.random_point(rng),
    )
    A, B = (np.asfortranarray(rng.standard_normal((n, k))) for _ in range(2))
    square = rng.standard_normal((1000, 1000))
    with threadpool_limits(1):
        peak = 2e9 / median_seconds(lambda: square @ square, 7)
        memory = median_seconds(lambda: memory_bound(A, B, left[0], right[0]), 100)
        times = {}
        for kind in (DeferredEngine, BilinearEngine):
            engine = kind(manifold, cost, SecondOrder())
            state = engine.advance(engine.load(start), schedule[:200], etas[:200])
            times[kind] = median_seconds(partial(engine.advance, state, schedule, etas), 5) / steps
    blocks, loop = times.values()
    share = 8 * n * k / blocks / peak
    return [
        {
            "n = m": n,
            "k": k,
            "a step, µs": 1e6 * blocks,
            "gemv and ger, µs": 1e6 * memory,
            "gemv and ger / step": memory / blocks,
            "loop over stored numbers / step": loop / blocks,
            "8nk operations, % of dgemm": 100.0 * share,
        }
    ]
