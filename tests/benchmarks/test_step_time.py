"""Seconds per LORETA-1 step: ours, the paper's Algorithm 4, and the memory-touch floor, in one process.

Run by hand: ``pytest tests/benchmarks/test_step_time.py -s``. Medians of several runs, one thread.
"""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_limits

from problems.speed.timing import StepTimes
from rmopt.retractions import FIXED_RANK_RETRACTIONS


def step_times(
    n: int, k: int, nnz: int, retraction: str = "", psd: bool = False
) -> tuple[float, float, float]:
    """Return microseconds per step of the compiled engine and of the touch-only loops, side by side."""
    times = StepTimes(n, k, nnz, repeats=7)
    ours = times.engine(psd, FIXED_RANK_RETRACTIONS.get(retraction))
    plain, unrolled = times.floor(psd)
    return 1e6 * ours, 1e6 * plain, 1e6 * unrolled


def against_floor(ours: float, plain: float, unrolled: float) -> str:
    return (
        f"{ours:6.2f} µs a step, touch-only {plain:6.2f} µs (ratio {ours / plain:.2f}), "
        f"four rows at a time {unrolled:6.2f} µs (ratio {ours / unrolled:.2f})"
    )


@pytest.mark.parametrize(
    ("n", "k", "nnz", "speedup"),
    [(50_000, 10, 100, 500), (16_660, 30, 100, None), (10_000, 50, 100, 150), (5_000, 100, 100, 60)],
)
def test_sparse_steps(n: int, k: int, nnz: int, speedup: int | None) -> None:
    with threadpool_limits(1):
        times = step_times(n, k, nnz)
        paper = 1e6 * StepTimes(n, k, nnz).algorithm_4()
    print(
        f"\nn = {n:6}, k = {k:3}, nnz = {nnz}: {against_floor(*times)}, "
        f"Algorithm 4 {paper:7.0f} µs (ratio {paper / times[0]:.0f}"
        + (f", wanted {speedup})" if speedup else ")")
    )


@pytest.mark.parametrize("retraction", list(FIXED_RANK_RETRACTIONS))
def test_retractions(retraction: str) -> None:
    with threadpool_limits(1):
        print(f"\n{retraction:18}: {against_floor(*step_times(16_660, 30, 100, retraction))}")


@pytest.mark.parametrize(("n", "k"), [(50_000, 10), (16_660, 30), (10_000, 50)])
def test_psd_steps(n: int, k: int) -> None:
    with threadpool_limits(1):
        print(f"\nPSD, n = {n:6}, k = {k:3}: {against_floor(*step_times(n, k, 100, psd=True))}")


def test_growth() -> None:
    print()
    with threadpool_limits(1):
        for n in (10**4, 10**5, 10**6, 10**7):
            print(f"n = {n:8}: {against_floor(*step_times(n, 5, 100))}")
