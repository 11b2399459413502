"""Search among items of rank 50, queries one at a time, beside one pass over the items.

``RMOPT_SERVING_ITEMS`` is their number, 100,000 unless given.
"""

import os
from typing import Any

import numpy as np
import pytest
from timing import median

from problems.serving import top_k
from rmopt.solvers.threads import one_blas_thread

N_ITEMS, RANK, N_QUERIES = int(os.environ.get("RMOPT_SERVING_ITEMS", 100_000)), 50, 20


def drawn(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return items and queries of unit length: alone, or in groups as learned embeddings have them.

    Standard deviations of coordinates fall as one over the square root of their number.
    """
    rng, n = np.random.default_rng(0), N_ITEMS + N_QUERIES
    spread = 1.0 / np.sqrt(1.0 + np.arange(RANK, dtype=np.float32))
    points = rng.standard_normal((n, RANK), dtype=np.float32) * spread
    if kind == "groups":
        centres = rng.standard_normal((N_ITEMS // 200, RANK), dtype=np.float32) * spread
        points = centres[rng.integers(len(centres), size=n)] + 0.5 * points
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points[:N_ITEMS], points[N_ITEMS:]


@pytest.mark.parametrize("kind", ["random", "groups"])
def test_search(measured: Any, kind: str) -> None:
    """The ten best items, in milliseconds a query."""
    measured(searches, kind)


@one_blas_thread()
def searches(kind: str) -> list[dict[str, Any]]:
    items, queries = drawn(kind)

    def timed(work: Any) -> float:
        return 1e3 * median(work, 5)[0] / N_QUERIES

    passed = timed(lambda: [items @ q for q in queries])
    exact = timed(lambda: [top_k(q[None], items) for q in queries])
    return [
        {"items": kind, "search": "a pass, items @ q", "ms": passed},
        {"items": kind, "search": "exact", "ms": exact, "times a pass": exact / passed},
    ]
