"""Whole tasks as a user meets them: the import, the first command, a corpus, a metric beside other packages.

Run with ``pytest -o addopts= -s tests/benchmarks/test_whole_tasks.py``.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits
from timing import median

from problems.data import load
from problems.data.sets import digits
from problems.data.text import informative_unit_rows
from problems.evaluation import cosine_scores, evaluate_retrieval, matrix_scores
from problems.metric import BoostMetric, CometMetric, EuclideanMetric, LegoMetric
from problems.similarity import LoretaSimilarity

# Digits, the published split, and no cross-validation.
FIRST = ["--data", "digits", "--rank", "10", "--triplets", "100000", "--seeds", "0", "--select", "none"]


def test_commands(measured: Any, tmp_path: Path) -> None:
    """Seconds of a process, caches warm."""
    measured(commands, tmp_path)


def commands(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name, arguments in (
        ("python -c pass", ["-c", "pass"]),
        ("import numpy, scipy.sparse, numba", ["-c", "import numpy, scipy.sparse, numba"]),
        ("import rmopt", ["-c", "import rmopt"]),
        ("rmopt list", ["-m", "rmopt.cli", "list"]),
        (
            "rmopt run similarity",
            ["-m", "rmopt.cli", "run", "similarity", *FIRST, "--out", str(folder / "run")],
        ),
    ):
        command = [sys.executable, *arguments]

        once = partial(subprocess.run, command, check=True, capture_output=True)
        once()
        seconds, _ = median(once, 5)
        rows.append({"process": name, "seconds": seconds, "of the bare interpreter": seconds})
    return [row | {"of the bare interpreter": row["seconds"] / rows[0]["seconds"]} for row in rows]


def test_twenty_newsgroups(measured: Any) -> None:
    """20 Newsgroups, 16,660 terms, rank 30, 600,000 triplets."""
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no 20 Newsgroups.")
    measured(newsgroups)


def newsgroups() -> list[dict[str, Any]]:
    bundle = informative_unit_rows(load("news20"), 16_660)
    X, test, y, truth = (of[rows] for of in (bundle.X, bundle.y) for rows in (bundle.train, bundle.test))
    rows = [{"method": "cosine", "mAP": evaluate_retrieval(cosine_scores(test), truth).map}]
    for psd in (False, True):
        model = LoretaSimilarity(rank=30, psd=psd, step_size=10.0, max_iter=600_000, random_state=0)
        seconds, _ = median(partial(model.fit, X, y))
        rows.append({
            "method": "LORETA-1-PSD" if psd else "LORETA-1", "seconds": seconds, "mAP": model.score(test, truth),
        })  # fmt: skip
    return rows


def test_metrics_on_digits(measured: Any) -> None:
    """Metrics of handwritten digits, 80/20 split: a fit."""
    measured(metrics)


def metrics() -> list[dict[str, Any]]:
    bundle = informative_unit_rows(digits().resplit(0, 0.2))
    X, test, y, truth = (of[rows] for of in (bundle.X, bundle.y) for rows in (bundle.train, bundle.test))
    # COMET's cost speaks of similarities, the others' of distances; each ranks by its own.
    learners: dict[str, tuple[Any, str]] = {
        "Euclidean": (EuclideanMetric(), "distance"),
        "COMET": (CometMetric(random_state=0), "similarity"),
        "LEGO": (LegoMetric(random_state=0), "distance"),
        "BoostMetric": (BoostMetric(50, random_state=0), "distance"),
    }
    rows = []
    with threadpool_limits(1, user_api="blas"):
        for name, (learner, rank_by) in learners.items():
            seconds, metric = median(partial(learner.fit, X, y), 3)
            scores = matrix_scores(metric.get_mahalanobis_matrix(), test, distance=rank_by == "distance")
            found = evaluate_retrieval(scores, truth, ks=(1, 10)).precision_at
            rows.append({"method": name, "seconds": seconds, "P@1": found[1], "P@10": found[10]})
    return rows
