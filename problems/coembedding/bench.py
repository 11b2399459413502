"""One split of a multi-label data set: methods are trained on one part and measured on the other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from joblib import parallel_config
from scipy.sparse import issparse
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


# An F1 without any predicted label is 0.
SCORERS = {
    "hamming": make_scorer(hamming_score),
    "f1_micro": make_scorer(f1_score, average="micro", zero_division=0.0),
    "f1_macro": make_scorer(f1_score, average="macro", zero_division=0.0),
}


def trained(
    bundle: MultilabelBundle, method: Method, betas: list[float], folds: int, scoring: str, seed: int
) -> dict[str, Any]:
    """Return what a method reaches on the test part, and how long its training took.

    Co-embedding sees standardised rows of length 1, or tf-idf rows of length 1 of counts, and chooses its weight by
    cross-validation; the others choose their scaling and their weight in the same folds (`searched`).
    """
    scorer = SCORERS[scoring]
    counts, train, test = issparse(bundle.X), bundle.train, bundle.test
    X = bundle.scaled().X if method.make is None else bundle.X
    Y = bundle.Y.toarray().astype(int)
    extra: dict[str, Any] = {}
    begun = time.perf_counter()
    with threadpool_limits(1, user_api="blas"), parallel_config("threading"):
        if method.make is None:
            model: Any = CoembeddingClassifierCV(betas, cv=folds, scoring=scorer, n_jobs=-1)
        else:
            model = method.make(seed, counts, folds, scorer)
        model.fit(X[train], Y[train])
        seconds = time.perf_counter() - begun
        if method.make is None:
            last = model.history_[-1]
            extra = {
                "beta": model.beta_, "rank": model.rank_, "gap": model.gap_ / model.objective_,
                "cv_scores": model.scores_.mean(axis=1).tolist(), "fit_seconds": last["seconds"],
            }  # fmt: skip
        else:
            extra = {"chosen": {name: str(value) for name, value in model.best_params_.items()}}
        found = measures(Y[test], np.asarray(model.predict(X[test])).astype(int))
    return found | {"seconds": seconds} | extra
