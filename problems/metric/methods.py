"""The methods that the metric experiment compares, with the parameters that cross-validation chooses among."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from problems.comparison import crossed
from problems.evaluation import ScoreBlock, matrix_scores
from problems.methods import Method, rows_of
from problems.metric import BoostMetric, CometMetric, EuclideanMetric, HdslMetric, LegoMetric
from problems.metric.base import MahalanobisMetric, TripletLearner
from problems.metric.baselines import OUTSIDE, OutsideMetric
from problems.triplets import ClassTriplets
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator

Array = np.ndarray


class Trainee(BaseEstimator):
    """A metric that learns from as many triplets as the experiment says, or where it takes none from the classes.

    Parameters
    ----------
    metric : MahalanobisMetric
    n_triplets, seed : int
    """

    def __init__(self, metric: MahalanobisMetric, n_triplets: int, seed: int) -> None:
        self.metric, self.n_triplets, self.seed = metric, n_triplets, seed

    def triplets(self, y: Array) -> Array:
        """Return the triplets of some classes, the same for all methods."""
        drawn = generator(self.seed, Stream.TRIPLETS_OF_SPLITS)
        return ClassTriplets(y).draw(drawn, 0, self.n_triplets)

    def fit(self, X: Any, y: Array) -> Self:
        if isinstance(self.metric, TripletLearner):
            self.metric.fit_triplets(X, self.triplets(y))
        else:
            self.metric.fit(X, y)
        return self


# What a metric must have one of, beside `fit`; the first that it has is used.
MEASURED_BY = ("get_mahalanobis_matrix", "transform")


def scores_of(metric: Any, X: Any, rank_by: str) -> ScoreBlock:
    """Return the scores of rows by "similarity", qᵀWp, or by "distance", minus (q - p)ᵀW(q - p).

    A metric without a matrix W is one of embeddings, ``transform(X)``.
    """
    if hasattr(metric, "get_mahalanobis_matrix"):
        shape = X.shape[1], X.shape[1]
        W, rows = numbers("get_mahalanobis_matrix()", metric.get_mahalanobis_matrix(), shape), X
    else:
        rows = rows_of("transform(X)", metric.transform(X), X.shape[0])
        W = np.eye(rows.shape[1])
    return matrix_scores(W, rows, distance=rank_by == "distance")


COMET_GRID = crossed(alpha=(3e-5, 1e-4, 3e-4), beta=(1e-6, 1e-5, 1e-4))
SPARSE_GRID = crossed(alpha=(1e-4,), beta=(1e-5,), sparsity=(1e-6, 1e-5, 1e-4))

METHODS: dict[str, Method] = {
    "euclidean": Method("Euclidean", EuclideanMetric()),
    "comet": Method("COMET", CometMetric(tol=0.0), COMET_GRID),
    "comet-hinge": Method("COMET, hinge", CometMetric(loss="hinge", tol=0.0), COMET_GRID),
    "comet-sparse": Method("COMET, sparse", CometMetric(sparsity=1e-5, tol=0.0), SPARSE_GRID),
    "lego": Method("LEGO", LegoMetric(), crossed(step_size=(0.1, 1.0, 10.0, 100.0, 1000.0))),
    "boost": Method("BoostMetric", BoostMetric(), crossed(max_iter=(25, 50, 100, 200))),
    "hdsl": Method("HDSL", HdslMetric(), crossed(scale=(100.0, 1000.0, 10_000.0))),
} | {name: Method(name.upper(), OutsideMetric(name), [{}]) for name in OUTSIDE}

# What is compared unless asked otherwise.
USUAL = ("euclidean", "comet", "comet-hinge", "lego", "boost", "hdsl")
