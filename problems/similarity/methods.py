"""The methods that learn a similarity, by name: where each lives, starts and is scored, and on which data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import Normalizer, normalize
from sklearn.svm import LinearSVC

from problems.cells import Cell
from problems.comparison import Comparison, Learner, crossed, trained
from problems.data import ClassBundle
from problems.data.text import informative_unit_rows
from problems.evaluation import ScoreBlock, bilinear_scores, evaluate_retrieval, matrix_scores
from problems.loreta import loreta_solver
from problems.methods import Method, rows_of
from problems.online import Lego, Oasis
from problems.similarity.baselines import FactoredGradientDescent, PassiveAggressive, PSDGradientDescent
from problems.similarity.estimators import ContrastiveSimilarity, initial_point
from problems.triplets import ClassTriplets
from rmopt.core import DivergedError, Manifold, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.costs import TripletSum
from rmopt.manifolds import Euclidean, FixedRankEmbedded, PolarPSD, PSDFixedRank
from rmopt.solvers import SGD, Recorder, ScheduledSolver

MEASURES = ("precision_at_1", "precision_at_10")
# Enough for a learning curve and for cross-validation; tables measure all test documents.
CURVE_QUERIES = 200


@dataclass(eq=False, repr=False)
class SimilarityLearner(Learner):
    """A way to learn W from triplets of the training rows.

    Parameters
    ----------
    manifold : callable
        Maps (features, rank) to the manifold.
    solver : callable
        Maps (step_size, max_iter=…, sampler=…) to the solver.
    step_size : float
        The step size, or bound C of passive–aggressive steps.
    metric : bool
        Whether documents are ranked by minus the distance (q − d)ᵀ W (q − d) instead of qᵀ W d.
    choices : dict or None
        What the solver is also told: retraction and engine, where it has a choice.
    rank, max_iter, init, random_state
        See `LoretaSimilarity`; a method of full rank starts at the identity.
    """

    manifold: Callable[[int, int], Manifold]
    solver: Callable[..., ScheduledSolver]
    step_size: float
    metric: bool = False
    choices: dict[str, Any] | None = None
    rank: int = 10
    max_iter: int = 100_000
    init: str = "identity"
    random_state: int = 0

    @property
    def full_rank(self) -> bool:
        """Whether W has all its n² numbers, and no rank."""
        return self.manifold is _full

    def parts(self, X: Any, y: Array) -> tuple[ScheduledSolver, Problem, Any]:
        manifold: Any = self.manifold(X.shape[1], self.rank)
        sampler = ClassTriplets(y)
        solver = self.solver(self.step_size, max_iter=self.max_iter, sampler=sampler, **self.choices or {})
        problem = Problem(manifold, TripletSum(X, X))
        if self.full_rank:
            return solver, problem, np.eye(*manifold.shape)
        return solver, problem, initial_point(manifold, self.init, self.random_state)

    def try_out(self, X: Any, y: Array) -> None:
        """Refuse what cannot run."""
        solver, problem, _ = self.parts(X, y)
        solver.engine(problem)

    def scores(self, X: Any, point: Any = None) -> ScoreBlock:
        """Return the scores of rows against all rows, in the form of `problems.evaluation`, at any point."""
        point = self.point_ if point is None else point
        if self.full_rank:
            return matrix_scores(point, X, distance=self.metric)
        A, B = point.balanced_factors()
        return bilinear_scores(np.asarray(X @ A), np.asarray(X @ B))


class ClassScores(BaseEstimator):
    """Documents by their scores for each class, as a linear classifier has them: what practice would try first.

    Parameters
    ----------
    classifier : classifier
        With `coef_`.
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Array) -> Self:
        self.fitted_ = clone(self.classifier).fit(X, y)
        return self

    def transform(self, X: Any) -> Array:
        return normalize(X @ self.fitted_.coef_.T)


# What a method of similarity must have one of, beside `fit`; the first that it has is used.
MEASURED_BY = ("scores", "transform_queries", "similarity", "get_mahalanobis_matrix", "transform")


def scores_of(model: Any, X: Any) -> ScoreBlock:
    """Return the scores of rows against all rows, in the form of `problems.evaluation`, by what a model has.

    ``similarity(queries, documents)`` is taken as it is, a Mahalanobis matrix W by minus (q - d)ᵀ W (q - d), and
    embeddings, ``transform(X)``, by inner products; those of queries may be others, ``transform_queries(X)``.
    """
    has = next(name for name in MEASURED_BY if hasattr(model, name))
    n, n_features = X.shape
    if has == "scores":
        scores: ScoreBlock = model.scores(X)
        return scores
    if has == "similarity":
        return lambda rows: numbers(
            "similarity(queries, documents)", model.similarity(X[rows], X), (len(rows), n)
        )
    if has == "get_mahalanobis_matrix":
        W = numbers("get_mahalanobis_matrix()", model.get_mahalanobis_matrix(), (n_features, n_features))
        return matrix_scores(W, X, distance=True)
    documents = queries = rows_of("transform(X)", model.transform(X), n)
    if has == "transform_queries":
        queries = rows_of("transform_queries(X)", model.transform_queries(X), n, columns=documents.shape[1])
    if issparse(documents):
        return lambda rows: (queries[rows] @ documents.T).toarray()
    return bilinear_scores(queries, documents)


def drawn_queries(n: int, seed: int = 0) -> Array:
    """Return some rows as queries; the first would be of one class where rows are sorted by it."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:CURVE_QUERIES])


def mean_precision(model: Any, X: Any, y: Array) -> float:
    """Return the mean average precision of some rows as queries."""
    return evaluate_retrieval(scores_of(model, X), y, queries=drawn_queries(len(y)), ks=()).map


class Bench:
    """The data of one comparison: unit rows, their columns in order of information gain.

    Parameters
    ----------
    bundle : Bundle
    features : int
        Columns to keep; 0: all.
    seed : int
        Seeds a random 65/35 split, and the choice of queries.
    published : bool
        Take the published split instead.
    sublinear : bool
        Weigh counts by 1 + log(count).
    """

    def __init__(
        self, bundle: ClassBundle, features: int, seed: int, published: bool = False, sublinear: bool = False
    ) -> None:
        part = bundle if published else bundle.resplit(seed)
        whole = informative_unit_rows(part, features, sublinear=sublinear)
        self.X, self.y = whole.X[whole.train], whole.y[whole.train]
        self.X_test, self.y_test = whole.X[whole.test], whole.y[whole.test]
        self.seed, self.n_features = seed, int(self.X.shape[1])
        self.curve_queries = drawn_queries(len(self.y_test), seed)

    def trained(self, model: Any, **how: Any) -> Cell:
        """Train a model, and return what it measures on the test part, and its learning curve.

        `how` goes to the recorder of a model that a solver trains, but for its `checkpoint`.
        """
        ours, X, X_test = {}, self.X, self.X_test
        if isinstance(model, SimilarityLearner):

            def measure(point: Any) -> float:
                scores = model.scores(self.X_test, point)
                return evaluate_retrieval(scores, self.y_test, queries=self.curve_queries, ks=()).map

            ours["checkpoint"] = how.pop("checkpoint", None)
            ours["recorder"] = Recorder({"map": measure}, first=max(1, model.max_iter // 256), **how)
        else:
            # Others share them, and a method of one's own may compute in place.
            X, X_test = X.copy(), X_test.copy()
        try:
            training = trained(model, X, self.y.copy(), **ours)
        except DivergedError:
            return dict.fromkeys(("map", *MEASURES, "seconds", "updates")) | {"curve": []}
        found = evaluate_retrieval(scores_of(model, X_test), self.y_test, ks=(1, 10))
        return {
            "map": found.map, **dict(zip(MEASURES, found.precision_at.values(), strict=True)),
            "seconds": training.seconds, "updates": training.updates,
            "curve": [[row["step"], row["seconds"], row["map"]] for row in training.history if row["step"]],
        }  # fmt: skip

    def chosen(self, comparison: Comparison, method: Method, model: Any, folds: int) -> Cell:
        """Return the parameters that cross-validation on the training part chooses."""
        cv = StratifiedKFold(folds, shuffle=True, random_state=self.seed)
        measure = {"map": mean_precision}
        found = comparison.search(method.label, model, method.grid, self.X, self.y, cv, measure)
        return {"parameters": found[0]}


def _general(n: int, k: int) -> Manifold:
    return FixedRankEmbedded(n, n, k)


def _full(n: int, k: int) -> Manifold:
    return Euclidean(n, n)


BASELINE_GRID = crossed(step_size=(0.01, 0.03, 0.1, 0.3, 1.0))
OASIS_GRID = crossed(step_size=(0.01, 0.1, 1.0, 10.0))
LEGO_GRID = crossed(step_size=(0.01, 0.1, 1.0, 10.0, 100.0))
LORETA_GRID = crossed(step_size=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0))
CHOICES = {"retraction": "second-order", "engine": "auto"}

C_GRID = crossed(classifier__C=(0.1, 1.0, 10.0))
TEMPERATURES = crossed(temperature=(0.2, 0.3, 0.5))

METHODS: dict[str, Method] = {
    # Documents as they are: what every method must beat.
    "cosine": Method("cosine", Normalizer()),
    "svm": Method("linear SVMs", ClassScores(LinearSVC()), C_GRID),
    "logistic": Method("logistic regression", ClassScores(LogisticRegression()), C_GRID),
    "naive-gd": Method(
        "naive gradient descent", SimilarityLearner(_general, FactoredGradientDescent, 0.1), BASELINE_GRID
    ),
    "psd-gd": Method(
        "naive PSD descent", SimilarityLearner(PSDFixedRank, PSDGradientDescent, 0.1), BASELINE_GRID
    ),
    "pa": Method("passive-aggressive", SimilarityLearner(_general, PassiveAggressive, 0.1), BASELINE_GRID),
    "oasis": Method("OASIS", SimilarityLearner(_full, Oasis, 0.1), OASIS_GRID),
    "lego": Method("LEGO", SimilarityLearner(_full, Lego, 1.0, metric=True), LEGO_GRID),
    "polar": Method("polar PSD", SimilarityLearner(PolarPSD, SGD, 0.1), BASELINE_GRID),
    "loreta": Method(
        "LORETA-1", SimilarityLearner(_general, loreta_solver, 10.0, choices=CHOICES), LORETA_GRID
    ),
    "loreta-psd": Method("LORETA-1-PSD", SimilarityLearner(PSDFixedRank, SGD, 10.0), LORETA_GRID),
    "contrastive": Method("softmax over cosines", ContrastiveSimilarity(), TEMPERATURES),
}
