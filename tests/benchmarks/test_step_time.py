"""Seconds per step of LORETA-1 beside the paper's Algorithm 4 and the floor, a loop that only touches the same rows.

Run with ``pytest -o addopts= -s tests/benchmarks/test_step_time.py``. Medians of several runs, one thread.
"""

from typing import Any

import pytest
from step_times import StepTimes
from threadpoolctl import threadpool_limits

from rmopt.retractions import FIXED_RANK_RETRACTIONS

NNZ = 100


def step(n: int, k: int, retraction: str = "", psd: bool = False) -> dict[str, Any]:
    """Time the compiled engine and the touch-only loops, side by side."""
    times = StepTimes(n, k, NNZ, repeats=7)
    ours = times.engine(psd, FIXED_RANK_RETRACTIONS.get(retraction))
    plain, unrolled = times.floor(psd)
    return {
        "n = m": n,
        "k": k,
        "a step, µs": 1e6 * ours,
        "touch loop, µs": 1e6 * plain,
        "step / touch": ours / plain,
        "step / touch by fours": ours / unrolled,
    }


def with_algorithm_4(n: int, k: int) -> list[dict[str, Any]]:
    with threadpool_limits(1):
        row = step(n, k)
        paper = 1e6 * StepTimes(n, k, NNZ).algorithm_4()
    ratio = paper / row["a step, µs"]
    return [row | {"Algorithm 4, µs": paper, "Algorithm 4 / step": ratio}]


@pytest.mark.parametrize(("n", "k"), [(50_000, 10), (16_660, 30), (10_000, 50), (5_000, 100)])
def test_sparse_steps(measured: Any, n: int, k: int) -> None:
    """LORETA-1, 100 non-zeros in p and in q, an update at every step."""
    measured(with_algorithm_4, n, k)


@pytest.mark.parametrize("retraction", ["second-order", "metric-projection", "orthographic"])
def test_retractions(measured: Any, retraction: str) -> None:
    """The same step with other retractions."""
    with threadpool_limits(1):
        measured(lambda: [{"retraction": retraction} | step(16_660, 30, retraction)])


@pytest.mark.parametrize(("n", "k"), [(50_000, 10), (16_660, 30), (10_000, 50)])
def test_psd_steps(measured: Any, n: int, k: int) -> None:
    """LORETA-1-PSD, 100 non-zeros a row."""
    with threadpool_limits(1):
        measured(lambda: [step(n, k, psd=True)])
