"""Search among items of rank 50, queries one at a time: exact beside one pass over the items, and in graphs.

``RMOPT_SERVING_ITEMS`` is their number, 100,000 unless given. A graph is made with all threads and searched on one.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from timing import median

from problems.serving import SimilarityIndex
from rmopt.solvers.threads import one_blas_thread

N_ITEMS, RANK, N_QUERIES = int(os.environ.get("RMOPT_SERVING_ITEMS", 100_000)), 50, 1000
# For each kind of items: size of the graph, and how long searches look.
GRAPHS: dict[str, tuple[dict[str, int], tuple[int, ...]]] = {
    "random": ({"M": 24, "ef_construction": 200}, (250, 300, 350, 400)),
    "groups": ({"M": 16, "ef_construction": 100}, (20, 30, 50)),
}


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


@pytest.mark.parametrize("kind", GRAPHS)
def test_search(measured: Any, kind: str) -> None:
    """The ten best items: share of the exact ones that is found, and milliseconds a query."""
    measured(searches, kind)


@one_blas_thread()
def searches(kind: str) -> list[dict[str, Any]]:
    items, queries = drawn(kind)
    exact = SimilarityIndex(items, np.eye(RANK), np.eye(RANK), False)

    def asked(index: SimilarityIndex, n: int) -> np.ndarray:
        return np.concatenate([index.query(queries[i : i + 1])[1] for i in range(n)])

    def timed(work: Any, n: int) -> float:
        return 1e3 * median(work, 5)[0] / n

    few = 20
    truth = exact.query(queries)[1]
    rows = [
        {
            "items": kind,
            "search": "a pass, items @ q",
            "ms": timed(lambda: [items @ q for q in queries[:few]], few),
        },
        {"items": kind, "search": "exact", "recall": 1.0, "ms": timed(lambda: asked(exact, few), few)},
    ]
    rows[1]["times a pass"] = rows[1]["ms"] / rows[0]["ms"]
    if find_spec("hnswlib") is None:
        return rows
    options, looks = GRAPHS[kind]
    begun = perf_counter()
    graph = exact.to_index("hnswlib", **options)
    made = perf_counter() - begun
    graph.graph.set_num_threads(1)
    for look in looks:
        graph.graph.set_ef(look)
        found = asked(graph, N_QUERIES)
        recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
        about = ", ".join(f"{key} {value}" for key, value in {**options, "ef": look}.items())
        row = {"items": kind, "search": f"hnswlib, {about}", "recall": float(recall)}
        rows.append(row | {"ms": timed(lambda: asked(graph, N_QUERIES), N_QUERIES), "graph, s": made})
    return rows
