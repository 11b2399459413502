"""WARP and logistic loss, the latter calibrated, and the sum of both scores: many labels, precision at the top.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_two_losses.py``, with RMOPT_DATA_HOME.
"""

import os
import time
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import ndcg_score
from sklearn.model_selection import KFold, ShuffleSplit

from problems.coembedding import LabelThresholds
from problems.data import MultilabelBundle, load
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression, precision_at

pytestmark = pytest.mark.skipif("RMOPT_DATA_HOME" not in os.environ, reason="RMOPT_DATA_HOME is not set.")

NAMES = "WARP", "logistic", "logistic, calibrated", "the sum"


def with_error(found: Any) -> str:
    """Return a mean, and its standard error."""
    return f"{found.mean():.2f} ± {found.std(ddof=1) / len(found) ** 0.5:.2f}"


@pytest.mark.parametrize("name", ["bibtex", "delicious"])
def test_sum_of_two(measured: Any, name: str) -> None:
    """Models of rank 100, and the sum of two scores, each divided by its standard deviation, in percent.

    Held out are five folds of the training rows, by which one is to be chosen; test rows with five seeds.
    """
    measured(sum_of_two, name)


def sum_of_two(name: str) -> list[dict[str, Any]]:
    bundle = load(name, None, MultilabelBundle).scaled()
    X, Y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.Y))
    folds = KFold(5, shuffle=True, random_state=0).split(np.arange(X.shape[0]))
    held = np.array([found_by(0, X[fit], Y[fit], X[rest], Y[rest]) for fit, rest in folds])
    found = np.array([found_by(seed, X, Y, test, truth) for seed in range(5)])
    above = held[:, :, 0] - held[:, :1, 0]
    return [
        {
            "data": name, "model": model, "held out, P@1": held[:, at, 0].mean(),
            "above WARP": with_error(above[:, at]) if at else None, "test, P@1": with_error(found[:, at, 0]),
            "P@3": with_error(found[:, at, 1]), "P@5": with_error(found[:, at, 2]),
            "nDCG@5": with_error(found[:, at, 3]), "fit, CPU s": float(np.median(found[:, at, 4])),
        }
        for at, model in enumerate(NAMES)
    ]  # fmt: skip


def found_by(seed: int, X: Any, Y: Any, rows: Any, truth: Any) -> list[list[float]]:
    """Return for each P@1, 3 and 5 and nDCG@5 in percent, and seconds of `fit`."""
    # Ten passes, or as many as make 200 batches.
    passes = max(10, -(-200 // (X.shape[0] // 256)))
    warp = LoretaLabelRanker(100, random_state=seed)
    logistic = LowRankLogisticRegression(100, n_epochs=passes, random_state=seed)
    fifth = ShuffleSplit(1, test_size=0.2, random_state=seed)
    scores, seconds = [], []
    for model in (warp, logistic, LabelThresholds(logistic, pooled=True, cv=fifth)):
        begun = time.process_time()
        model.fit(X, Y)
        seconds.append(time.process_time() - begun)
        scores.append(model.decision_function(rows) / model.decision_function(X).std())
    scores, seconds = [*scores, scores[0] + scores[1]], [*seconds, seconds[0] + seconds[1]]
    measured = [(*precision_at(one, truth).values(), ndcg_score(truth.toarray(), one, k=5)) for one in scores]
    return [[*(100.0 * np.array(one)), spent] for one, spent in zip(measured, seconds, strict=True)]
