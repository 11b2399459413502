"""Metric learners of the package metric-learn behind our interface, where it is installed."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from problems.metric.base import MahalanobisLearner
from rmopt.core import InvalidInputError, MissingCapabilityError

Array = np.ndarray

OUTSIDE = {"lmnn": "LMNN", "itml": "ITML_Supervised", "scml": "SCML_Supervised"}


class OutsideMetric(MahalanobisLearner):
    """LMNN, ITML or SCML of metric-learn, learned from the classes.

    Parameters
    ----------
    name : {"lmnn", "itml", "scml"}
    n_triplets : int or None
        Not looked at: these learn from classes.
    random_state : int, RandomState or None
    """

    def __init__(
        self, name: str = "lmnn", *, n_triplets: int | None = None, random_state: Any = None
    ) -> None:
        self.name = name
        self.n_triplets = n_triplets
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> OutsideMetric:
        """Learn from class labels."""
        learner = getattr(_package(), OUTSIDE[self.name])(random_state=self._seed())
        dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=float)
        try:
            learner.fit(dense, np.asarray(y))
        except TypeError as error:
            raise MissingCapabilityError(
                f"metric-learn does not run with this scikit-learn ({error}); install one that it supports."
            ) from error
        self.n_features_in_ = dense.shape[1]
        self.mahalanobis_, self.components_ = learner.get_mahalanobis_matrix(), learner.components_
        return self

    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        """Refuse: these methods learn from classes."""
        raise MissingCapabilityError(f"{self.name} learns from classes; call fit(X, y).")


def outside_metric(name: str, **given: Any) -> OutsideMetric:
    """Return a learner of metric-learn, or raise when that package is not there."""
    if name not in OUTSIDE:
        raise InvalidInputError(f"name = {name!r} is unknown; choose one of {', '.join(OUTSIDE)}.")
    _package()
    return OutsideMetric(name, **given)


def _package() -> Any:
    try:
        return importlib.import_module("metric_learn")
    except ImportError as error:
        raise MissingCapabilityError(
            f"LMNN, ITML and SCML come from the package metric-learn, which cannot be imported ({error}); install "
            "it, with a scikit-learn that it supports, or leave these methods out."
        ) from error
