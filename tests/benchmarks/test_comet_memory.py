"""Time and peak memory of COMET on 20 Newsgroups with 5,000 features and 100,000 triplets.

Run with ``RMOPT_DATA_HOME=FOLDER pytest -o addopts= -s tests/benchmarks/test_comet_memory.py``; takes minutes.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FEATURES, TRIPLETS = 5000, 100_000


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not os.environ.get("RMOPT_DATA_HOME"), reason="RMOPT_DATA_HOME is not set")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("passes", [pytest.param(6, marks=pytest.mark.slow), 0.04])
def test_memory(measured: Any, passes: float) -> None:
    """20 Newsgroups, 5,000 features, 100,000 triplets."""
    measured(comet, passes)


def comet(passes: float) -> list[dict[str, Any]]:
    from problems.data import load
    from problems.data.text import informative_unit_rows
    from problems.metric import CometMetric
    from problems.triplets import ClassTriplets
    from rmopt.solvers import Recorder

    bundle = informative_unit_rows(load("news20").resplit(0, 0.2), FEATURES)
    X, y = bundle.X[bundle.train], bundle.y[bundle.train]
    triplets = ClassTriplets(y).draw(np.random.default_rng(0), 0, TRIPLETS)
    small = CometMetric(1, loss="hinge", alpha=1e-4, beta=1e-5)
    small.learn(X[:200, :50], np.array([[0, 1, 2], [3, 4, 5]]), 0)
    before, peak, done = resident_mb(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], resident_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    metric = CometMetric(passes, loss="hinge", alpha=1e-4, beta=1e-5, tol=0.0, order="uniform")
    begun = time.perf_counter()
    W = metric.learn(X, triplets, 0, Recorder())
    seconds = time.perf_counter() - begun
    done.set()
    watcher.join()
    square = 8e-6 * FEATURES**2
    assert W.shape == (FEATURES, FEATURES)
    above = peak[0] - before
    return [
        {
            "steps": int(metric.n_iter_),
            "seconds": seconds,
            "a step with its share of the start, ms": 1e3 * seconds / metric.n_iter_,
            "peak above data and libraries, MB": above,
            "in d² doubles": above / square,
        }
    ]
