"""One split of a multi-label data set: methods are trained on one part and measured on the other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, hamming_loss, make_scorer
from threadpoolctl import threadpool_limits

from problems.coembedding.classifier import CoembeddingClassifierCV
from problems.coembedding.methods import Method
from problems.multilabel import MultilabelBundle

Array = np.ndarray


def hamming_score(true: Array, predicted: Array) -> float:
    """Return the share of labels that are predicted rightly."""
    return 1.0 - float(hamming_loss(true, predicted))


def measures(true: Array, predicted: Array) -> dict[str, float]:
    """Return the Hamming score, micro-F1 and macro-F1, in per cent; F1 without any label is 0."""
    return {
        "hamming": 100.0 * hamming_score(true, predicted),
        "micro_f1": 100.0 * f1_score(true, predicted, average="micro", zero_division=0.0),
        "macro_f1": 100.0 * f1_score(true, predicted, average="macro", zero_division=0.0),
    }


def trained(
    bundle: MultilabelBundle, method: Method, betas: list[float], folds: int, scoring: str, seed: int
) -> dict[str, Any]:
    """Return what a method reaches on the test part, and how long its training took.

    Co-embedding sees standardised rows of length 1, the others standardised features: what suits each. Counts become
    tf-idf rows of length 1 for all.
    """
    scaled = bundle.scaled(unit_rows=method.make is None)
    Y = scaled.Y.toarray().astype(int)
    train, test = scaled.train, scaled.test
    extra: dict[str, Any] = {}
    begun = time.perf_counter()
    with threadpool_limits(1, user_api="blas"):
        if method.make is None:
            scorer: Any = make_scorer(hamming_score) if scoring == "hamming" else scoring
            model: Any = CoembeddingClassifierCV(betas, cv=folds, scoring=scorer, n_jobs=-1)
        else:
            model = method.make(seed)
        model.fit(scaled.X[train], Y[train])
        seconds = time.perf_counter() - begun
        if method.make is None:
            last = model.history_[-1]
            extra = {
                "beta": model.beta_, "rank": model.rank_, "gap": model.gap_ / model.objective_,
                "cv_scores": model.scores_.mean(axis=1).tolist(), "fit_seconds": last["seconds"],
            }  # fmt: skip
        found = measures(Y[test], np.asarray(model.predict(scaled.X[test])).astype(int))
    return found | {"seconds": seconds} | extra
