"""The methods that the co-embedding experiment compares, what they are measured by, and what the paper printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import parallel_config
from scipy.sparse import issparse
from sklearn.metrics import f1_score, hamming_loss, make_scorer
from threadpoolctl import threadpool_limits

from problems.coembedding.classifier import CoembeddingClassifierCV
from problems.coembedding.rivals import searched
from problems.data import MultilabelBundle

Array = np.ndarray


def hamming_score(true: Array, predicted: Array) -> float:
    """Return the share of labels that are predicted rightly."""
    return 1.0 - float(hamming_loss(true, predicted))


# Of indicators of labels; an F1 without any label is 0.
MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "hamming": hamming_score,
    "micro_f1": partial(f1_score, average="micro", zero_division=0.0),
    "macro_f1": partial(f1_score, average="macro", zero_division=0.0),
}
NAMES = {"hamming": "Hamming score", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
SCORERS = {
    "hamming": make_scorer(hamming_score),
    "f1_micro": make_scorer(f1_score, average="micro", zero_division=0.0),
    "f1_macro": make_scorer(f1_score, average="macro", zero_division=0.0),
}


def measures(true: Array, predicted: Array) -> dict[str, float]:
    """Return all measures, in per cent."""
    return {name: 100.0 * measure(true, predicted) for name, measure in MEASURES.items()}


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    label : str
    column : str
        What the paper calls it.
    make : callable, optional
        ``make(seed, counts, folds, scoring)`` returns a classifier that chooses its scaling and its weight by
        cross-validation, as `searched` says; None: co-embedding, which chooses its weight.
    """

    label: str
    column: str
    make: Callable[..., Any] | None = None

    def trained(
        self, bundle: MultilabelBundle, betas: list[float], folds: int, scoring: str, seed: int
    ) -> dict[str, Any]:
        """Return what the method reaches on the test part, and how long its training took.

        Co-embedding sees standardised rows of length 1, or tf-idf rows of length 1 of counts.
        """
        train, test, Y = bundle.train, bundle.test, bundle.Y.toarray().astype(int)
        X = bundle.scaled().X if self.make is None else bundle.X
        begun = time.perf_counter()
        with threadpool_limits(1, user_api="blas"), parallel_config("threading"):
            if self.make is None:
                model: Any = CoembeddingClassifierCV(betas, cv=folds, scoring=SCORERS[scoring], n_jobs=-1)
            else:
                model = self.make(seed, issparse(X), folds, SCORERS[scoring])
            model.fit(X[train], Y[train])
            seconds = time.perf_counter() - begun
            found = measures(Y[test], np.asarray(model.predict(X[test])).astype(int)) | {"seconds": seconds}
        if self.make is not None:
            return found | {"chosen": {name: str(value) for name, value in model.best_params_.items()}}
        return found | {
            "beta": model.beta_, "rank": model.rank_, "gap": model.gap_ / model.objective_,
            "cv_scores": model.scores_.mean(axis=1).tolist(), "fit_seconds": model.history_[-1]["seconds"],
        }  # fmt: skip


METHODS = {"ila": Method("ILA", "ILA")} | {
    f"{scheme}-{base}": Method(
        f"{scheme.upper()}, {base.upper()}", f"{scheme.upper()}({theirs})", partial(searched, scheme, base)
    )
    for scheme in ("br", "clr", "cc")
    for base, theirs in (("svm", "SMO"), ("lr", "LOG"))
}

# Mirzazadeh et al. (2015), Tables 2 to 4: for each measure the columns of METHODS in their order.
_TABLES = {
    "emotions": (
        (80.2, 80.9, 77.1, 79.9, 76.0, 79.0, 75.2),
        (65.9, 66.3, 63.2, 70.1, 64.5, 65.9, 60.3),
        (64.4, 62.3, 62.0, 69.0, 63.8, 64.3, 59.3),
    ),
    "scene": (
        (88.0, 88.7, 81.9, 89.7, 85.7, 88.9, 80.9),
        (65.9, 66.8, 49.5, 72.2, 61.8, 68.8, 50.1),
        (66.8, 67.6, 50.6, 73.3, 63.3, 69.8, 50.9),
    ),
    "yeast": (
        (78.9, 79.8, 77.0, 77.2, 75.3, 78.9, 76.0),
        (62.4, 63.2, 62.0, 65.0, 61.9, 63.7, 60.0),
        (37.8, 32.9, 41.9, 40.3, 42.6, 35.1, 40.4),
    ),
    "mediamill": (
        (90.4, 90.3, 87.4, 87.8, 87.7, 89.9, 86.3),
        (58.0, 55.4, 55.1, 59.7, 58.7, 50.7, 53.1),
        (16.2, 10.0, 29.9, 21.4, 31.7, 8.9, 29.5),
    ),
    "corel5k": (
        (87.8, 89.8, 88.5, 88.8, 88.0, 89.6, 83.1),
        (21.9, 21.9, 17.4, 27.6, 26.3, 21.9, 16.7),
        (17.8, 17.8, 11.6, 21.4, 22.0, 17.6, 14.4),
    ),
}
# By data set and column, in the order of MEASURES.
PRINTED = {
    data: dict(zip([method.column for method in METHODS.values()], zip(*rows, strict=True), strict=True))
    for data, rows in _TABLES.items()
}
