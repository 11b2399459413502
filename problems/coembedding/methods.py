"""The methods that the co-embedding experiment compares, what they are measured by, and what the paper printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from joblib import parallel_config
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import f1_score, hamming_loss
from threadpoolctl import threadpool_limits

from problems.coembedding.baselines import searched, unit_scaling
from problems.coembedding.estimators import (
    BETAS,
    CoembeddingClassifier,
    CoembeddingClassifierCV,
)
from problems.comparison import at_an_edge
from problems.methods import Method, rows_of
from problems.thresholds import AIMS, LabelThresholds, calibrated_f1
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array


def hamming_score(true: Array, predicted: Array) -> float:
    """Return the share of labels that are predicted rightly."""
    return 1.0 - float(hamming_loss(true, predicted))


# Of indicators of labels; an F1 without any label is 0.
MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "hamming": hamming_score,
    "micro_f1": partial(f1_score, average="micro", zero_division=0.0),
    "macro_f1": partial(f1_score, average="macro", zero_division=0.0),
}
# The thresholds that a classifier learns itself.
OWN = "own"
NAMES = {"hamming": "Hamming score", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}


def scored(measure: str, model: Any, X: Any, Y: Array) -> float:
    """Return a measure of predictions; scikit-learn's own scorers fail where labels of training rows are constant."""
    return MEASURES[measure](Y, model.predict(X))


SCORERS: dict[str, Callable[..., float]] = {
    "hamming": partial(scored, "hamming"), "f1_micro": partial(scored, "micro_f1"),
    "f1_macro": partial(scored, "macro_f1"), "f1_calibrated": calibrated_f1,
}  # fmt: skip


def measures(true: Array, predicted: Array) -> dict[str, float]:
    """Return all measures, in per cent."""
    return {name: 100.0 * measure(true, predicted) for name, measure in MEASURES.items()}


def indicators(predicted: Any, shape: tuple[int, int]) -> Array:
    """Return predicted labels as a table of 0 and 1, or refuse them."""
    found = rows_of("predict(X)", predicted, shape[0], columns=shape[1])
    found = found.toarray() if issparse(found) else found
    if not np.isin(found, (0, 1)).all():
        raise InvalidInputError("predict(X) must be 0 where a label does not apply and 1 where it does.")
    return found.astype(int)


def in_threads() -> AbstractContextManager[Any]:
    """Train parts of a model in threads, each with one thread of BLAS."""
    together = ExitStack()
    together.enter_context(threadpool_limits(1, user_api="blas"))
    together.enter_context(parallel_config("threading"))
    return together


def by_aims(fitted: Any, unfitted: Any, method: Any, X: Any, Y: Array) -> dict[str, Any]:
    """Return a model with its own thresholds, and where a method asks for it with those of `LabelThresholds`."""
    if not method.thresholds:
        return {OWN: fitted}
    calibrated = LabelThresholds(unfitted, cv=method.cv).fit(X, Y)
    return {OWN: fitted} | {aim: calibrated.aimed(aim) for aim in AIMS}


@dataclass(eq=False, repr=False)
class Coembedding(BaseEstimator):
    """Co-embedding of samples in standardised rows of length 1, or in tf-idf rows of length 1 of counts.

    Parameters
    ----------
    betas : sequence of float
        Weights of the trace that cross-validation chooses among.
    cv : int
        Folds.
    scoring : str
        What is maximised, one of `SCORERS`.
    thresholds : bool
        Whether to predict with those of `LabelThresholds` too.

    Attributes
    ----------
    chosen_ : dict
        What cross-validation chose, and the certificate.
    """

    betas: Sequence[float] = BETAS
    cv: int = 5
    scoring: str = "f1_micro"
    thresholds: bool = False
    loss: str = "softmax"

    def fit(self, X: Any, Y: Array) -> Self:
        self.scaling_ = unit_scaling(X)
        rows = self.scaling_.fit_transform(X)
        with in_threads():
            model = CoembeddingClassifierCV(
                list(self.betas), loss=self.loss, cv=self.cv, scoring=SCORERS[self.scoring], n_jobs=-1
            ).fit(rows, Y)
            self.models_ = by_aims(model, CoembeddingClassifier(model.beta_, loss=self.loss), self, rows, Y)
        self.chosen_ = {
            "beta": model.beta_, "rank": model.rank_, "gap": model.gap_ / model.objective_,
            "cv_scores": model.scores_.mean(axis=1).tolist(), "fit_seconds": model.history_[-1]["seconds"],
            "edge": at_an_edge(model.beta_, self.betas),
        }  # fmt: skip
        return self

    def predict(self, X: Any, aim: str = OWN) -> Array:
        return self.models_[aim].predict(self.scaling_.transform(X))


@dataclass(eq=False, repr=False)
class Searched(BaseEstimator):
    """A multi-label classifier whose scaling of the features and whose C are chosen by cross-validation.

    Parameters
    ----------
    scheme : {"br", "clr", "cc"}
    base : {"svm", "lr"}
    cv, scoring, thresholds
        See `Coembedding`.
    random_state : int
        Of the order of a chain.
    """

    scheme: str
    base: str
    cv: int = 5
    scoring: str = "f1_micro"
    thresholds: bool = False
    random_state: int = 0

    def fit(self, X: Any, Y: Array) -> Self:
        search = searched(self.scheme, self.base, self.random_state, X, self.cv, SCORERS[self.scoring])
        with in_threads():
            best = search.fit(X, Y).best_estimator_
            self.models_ = by_aims(best, clone(best), self, X, Y)
        found = {name: str(value) for name, value in search.best_params_.items()}
        alike = [one for one in search.cv_results_["params"] if str(one["scaling"]) == found["scaling"]]
        edge = [at_an_edge(search.best_params_[name], [one[name] for one in alike]) for name in found]
        self.chosen_ = found | {"edge": any(edge)}
        return self

    def predict(self, X: Any, aim: str = OWN) -> Array:
        return self.models_[aim].predict(X)


_PAPER: dict[str, Method] = {"ila": Method("ILA", Coembedding())} | {
    f"{scheme}-{base}": Method(f"{scheme.upper()}, {base.upper()}", Searched(scheme, base))
    for scheme in ("br", "clr", "cc")
    for base in ("svm", "lr")
}
METHODS = _PAPER | {"ila-hinge": Method("ILA (squared hinge)", Coembedding(loss="squared_hinge"))}
OURS = [name for name, method in METHODS.items() if isinstance(method.estimator, Coembedding)]

# Mirzazadeh et al. (2015), Tables 2 to 4: for each measure its methods in their order.
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
# By data set and method, in the order of MEASURES.
PRINTED = {data: dict(zip(_PAPER, zip(*rows, strict=True), strict=True)) for data, rows in _TABLES.items()}
