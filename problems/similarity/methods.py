"""The methods that learn a similarity, by name: where each lives, starts and is scored, and on which data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from problems.comparison import Comparison, Learner, Method, crossed
from problems.datasets import Bundle
from problems.evaluation import Retrieval, ScoreBlock, bilinear_scores, evaluate_retrieval, matrix_scores
from problems.loreta import loreta_solver
from problems.online import Lego, Oasis
from problems.similarity.model import initial_point
from problems.similarity.rivals import FactoredGradientDescent, PassiveAggressive, PSDGradientDescent
from problems.text import informative_unit_rows
from problems.triplets import ClassTriplets
from rmopt.core import Manifold, Problem
from rmopt.costs import TripletSum
from rmopt.manifolds import Euclidean, FixedRankEmbedded, PolarPSD, PSDFixedRank
from rmopt.solvers import SGD, Recorder, ScheduledSolver

Array = np.ndarray

# Enough for a learning curve and for cross-validation; tables measure all test documents.
CURVE_QUERIES = 200
SELECTION_FOLDS = 5


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
        start = (
            np.eye(*manifold.shape)
            if self.full_rank
            else initial_point(manifold, self.init, self.random_state)
        )
        return solver, Problem(manifold, TripletSum(X, X)), start

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

    def score(self, X: Any, y: Array) -> float:
        """Return the mean average precision of the first rows as queries."""
        queries = np.arange(min(CURVE_QUERIES, len(y)))
        return evaluate_retrieval(self.scores(X), y, queries=queries, ks=()).map


class Bench:
    """The data of one comparison: unit rows, their columns in order of information gain.

    Parameters
    ----------
    bundle : Bundle
    features : int
        Columns to keep; 0: all.
    split : int
        Seed of a random 65/35 split; −1: the published one.
    seed : int
        Seeds the choice of queries.
    """

    def __init__(self, bundle: Bundle, features: int, split: int, seed: int) -> None:
        whole = informative_unit_rows(bundle.resplit(split) if split >= 0 else bundle, features)
        self.X, self.y = whole.X[whole.train], whole.y[whole.train]
        self.X_test, self.y_test = whole.X[whole.test], whole.y[whole.test]
        self.seed, self.n_features = seed, int(self.X.shape[1])
        n_curve = min(CURVE_QUERIES, len(self.y_test))
        self.curve_queries = np.sort(np.random.default_rng(seed).permutation(len(self.y_test))[:n_curve])

    def measured(self, learner: SimilarityLearner, ks: tuple[int, ...] = (1, 10)) -> Retrieval:
        """Return how well a learned W ranks the test part."""
        return evaluate_retrieval(learner.scores(self.X_test), self.y_test, ks=ks)

    def curve(self, learner: SimilarityLearner, first: int, **how: Any) -> Recorder:
        """Return a recorder of mean average precision for some test queries."""

        def measure(point: Any) -> float:
            scores = learner.scores(self.X_test, point)
            return evaluate_retrieval(scores, self.y_test, queries=self.curve_queries, ks=()).map

        return Recorder({"map": measure}, first=first, **how)

    def selected(self, comparison: Comparison, method: Method, learner: SimilarityLearner) -> float:
        """Return the step size that cross-validation on the training part chooses, and say it."""
        folds = StratifiedKFold(SELECTION_FOLDS, shuffle=True, random_state=self.seed)
        scoring = {"map": SimilarityLearner.score}
        found, _ = comparison.search(method.label, learner, method.grid, self.X, self.y, folds, scoring)
        edge = ", at the edge of the grid" if found in (method.grid[0], method.grid[-1]) else ""
        comparison.run.say(
            f"{method.label}: step size {found['step_size']:g} by {SELECTION_FOLDS}-fold cross-validation{edge}"
        )
        return float(found["step_size"])


def _general(n: int, k: int) -> Manifold:
    return FixedRankEmbedded(n, n, k)


def _full(n: int, k: int) -> Manifold:
    return Euclidean(n, n)


RIVAL_GRID = crossed(step_size=(0.01, 0.03, 0.1, 0.3, 1.0))
OASIS_GRID = crossed(step_size=(0.01, 0.1, 1.0, 10.0))
LEGO_GRID = crossed(step_size=(0.01, 0.1, 1.0, 10.0, 100.0))
LORETA_GRID = crossed(step_size=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0))
CHOICES = {"retraction": "second-order", "engine": "auto"}

METHODS: dict[str, Method] = {
    "naive-gd": Method(
        "naive gradient descent", SimilarityLearner(_general, FactoredGradientDescent, 0.1), RIVAL_GRID
    ),
    "psd-gd": Method(
        "naive PSD descent", SimilarityLearner(PSDFixedRank, PSDGradientDescent, 0.1), RIVAL_GRID
    ),
    "pa": Method("passive-aggressive", SimilarityLearner(_general, PassiveAggressive, 0.1), RIVAL_GRID),
    "oasis": Method("OASIS", SimilarityLearner(_full, Oasis, 0.1), OASIS_GRID),
    "lego": Method("LEGO", SimilarityLearner(_full, Lego, 1.0, metric=True), LEGO_GRID),
    "polar": Method("polar PSD", SimilarityLearner(PolarPSD, SGD, 0.1), RIVAL_GRID),
    "loreta": Method(
        "LORETA-1", SimilarityLearner(_general, loreta_solver, 10.0, choices=CHOICES), LORETA_GRID, ours=True
    ),
    "loreta-psd": Method("LORETA-1-PSD", SimilarityLearner(PSDFixedRank, SGD, 10.0), LORETA_GRID, ours=True),
}
