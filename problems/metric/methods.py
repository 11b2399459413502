"""The methods that the metric experiment compares, with the parameters that cross-validation chooses among."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from problems.comparison import crossed
from problems.evaluation import ScoreBlock, matrix_scores
from problems.methods import Method, rows_of
from problems.metric import BoostMetric, CometMetric, EuclideanMetric, HdslMetric, LegoMetric
from problems.metric.baselines import OUTSIDE, OutsideMetric
from problems.metric.estimators import TRIPLETS, MahalanobisMetric, TripletLearner, factor
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator


class Trainee(BaseEstimator):
    """A metric that learns from as many triplets as the experiment says, or where it takes none from the classes."""

    def __init__(self, metric: MahalanobisMetric, n_triplets: int, seed: int) -> None:
        self.metric, self.n_triplets, self.seed = metric, n_triplets, seed

    def triplets(self, X: Any, y: Array) -> Array:
        """Return the triplets of some rows and classes, the same for all methods that take them alike."""
        drawn = generator(self.seed, Stream.TRIPLETS_OF_SPLITS)
        return self.metric.sampler(X, y).draw(drawn, 0, self.n_triplets)

    def fit(self, X: Any, y: Array) -> Self:
        self.rows_, self.classes_of_rows_ = X, y
        if getattr(self.metric, "n_rounds", 1) > 1:
            # Later rounds draw triplets of their own.
            self.metric.set_params(n_triplets=self.n_triplets).fit(X, y)
        elif isinstance(self.metric, TripletLearner):
            self.metric.fit_triplets(X, self.triplets(X, y))
        else:
            self.metric.fit(X, y)
        return self


def as_array(X: Any) -> Array:
    """Return rows as an array, for methods that take no sparse ones."""
    return X.toarray() if issparse(X) else X


ARRAYS = FunctionTransformer(as_array, accept_sparse=True)
# Neighbours whose classes are counted.
VOTERS = 3
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


def embedded(metric: Any, X: Any) -> Array:
    """Return rows where the Euclidean distance is the metric: by its matrix W where it has one."""
    if hasattr(metric, "get_mahalanobis_matrix"):
        W = np.asarray(metric.get_mahalanobis_matrix())
        W = 0.5 * (W + W.T) if (W != W.T).any() else W
        values = np.linalg.eigvalsh(W)
        if values[0] < -1e-8 * max(values[-1], 0.0):
            raise InvalidInputError(
                f"get_mahalanobis_matrix() has the eigenvalue {values[0]:.2g}, and no distance; it must be positive "
                "semidefinite for votes of neighbours."
            )
        return np.asarray(X @ factor(W).T)
    return rows_of("transform(X)", metric.transform(X), X.shape[0])


def neighbour_votes(metric: Any, X: Any, y: Array, X_test: Any, y_test: Array) -> float:
    """Return the share of test rows whose class most of their nearest training rows have."""
    voters = KNeighborsClassifier(VOTERS, algorithm="brute").fit(embedded(metric, X), y)
    return float(voters.score(embedded(metric, X_test), y_test))


COMET_GRID = crossed(alpha=(1e-6, 1e-5, 1e-4, 3e-4), beta=(1e-7, 1e-6, 1e-5))
LEGO_GRID = crossed(triplets=TRIPLETS, step_size=(0.003, 0.01, 0.03, 0.1, 1.0, 10.0, 100.0, 1000.0))
DISTANCE_GRID = crossed(triplets=TRIPLETS, alpha=(1e-6, 1e-5, 1e-4, 1e-3), beta=(1e-7, 1e-5))
ROUNDS_GRID = crossed(n_rounds=(1, 3, 6), alpha=(1e-6, 1e-5, 1e-4, 1e-3), beta=(1e-7,))
SPARSE_GRID = crossed(alpha=(1e-4,), beta=(1e-5,), sparsity=(1e-6, 1e-5, 1e-4))

METHODS: dict[str, Method] = {
    "euclidean": Method("Euclidean", EuclideanMetric()),
    "comet": Method("COMET", CometMetric(tol=0.0), COMET_GRID),
    "comet-hinge": Method("COMET, hinge", CometMetric(loss="hinge", tol=0.0), COMET_GRID),
    "comet-sparse": Method("COMET, sparse", CometMetric(sparsity=1e-5, tol=0.0), SPARSE_GRID),
    "comet-distance": Method(
        "COMET, distance", CometMetric(compare="distance", triplets="neighbors", tol=0.0), DISTANCE_GRID
    ),
    "comet-rounds": Method(
        "COMET, distance, rounds",
        CometMetric(compare="distance", triplets="neighbors", n_rounds=3, tol=0.0),
        ROUNDS_GRID,
    ),
    "lego": Method("LEGO", LegoMetric(), LEGO_GRID),
    "boost": Method("BoostMetric", BoostMetric(), crossed(triplets=TRIPLETS, max_iter=(25, 100, 400))),
    "hdsl": Method("HDSL", HdslMetric(), crossed(scale=(100.0, 1000.0, 10_000.0))),
    "lda": Method(
        "LDA", make_pipeline(ARRAYS, LinearDiscriminantAnalysis(solver="eigen", shrinkage=1e-3)),
        crossed(lineardiscriminantanalysis__shrinkage=(1e-3, 1e-2, 0.1, 0.3, 0.6, 0.9)),
    ),
    "nca": Method("NCA", make_pipeline(ARRAYS, NeighborhoodComponentsAnalysis(max_iter=30))),
}  # fmt: skip
METHODS |= {name: Method(name.upper(), OutsideMetric(name), [{}]) for name in OUTSIDE}

# What is compared unless asked otherwise.
USUAL = ("euclidean", "comet", "comet-hinge", "lego", "boost", "hdsl")
