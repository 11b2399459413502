"""Metric learners of the package metric-learn behind our interface, where it is installed."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, Self

from sklearn.utils import Tags

from problems.door import begin, finite, labelled, seedable
from problems.metric.base import MahalanobisMetric
from rmopt.core import MissingCapabilityError
from rmopt.core.arguments import Check, bounded, one_of

OUTSIDE = {"lmnn": "LMNN", "itml": "ITML_Supervised", "scml": "SCML_Supervised"}


class OutsideMetric(MahalanobisMetric):
    """LMNN, ITML or SCML of metric-learn, learned from the classes.

    Parameters
    ----------
    name : {"lmnn", "itml", "scml"}
    random_state : int, RandomState or None
    """

    _parameters: ClassVar[dict[str, Check]] = {"name": bounded(one_of, OUTSIDE), "random_state": seedable}

    def __init__(self, name: str = "lmnn", *, random_state: Any = None) -> None:
        self.name = name
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from class labels.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)

        Returns
        -------
        self
        """
        seed = begin(self)
        X, y = labelled(self, X, y)
        learner = getattr(_package(), OUTSIDE[self.name])(random_state=seed)
        try:
            learner.fit(X.toarray() if hasattr(X, "toarray") else X, y)
        except TypeError as error:
            raise MissingCapabilityError(
                f"metric-learn does not run with this scikit-learn ({error}); install one that it supports."
            ) from error
        self.mahalanobis_, self.components_ = finite(learner.get_mahalanobis_matrix()), learner.components_
        return self


def outside_metric(name: str, **given: Any) -> OutsideMetric:
    """Return a learner of metric-learn, or raise when that package is not there."""
    one_of("name", name, OUTSIDE)
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
