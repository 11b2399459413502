"""Training and test parts, and what a learner reaches on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.comparison import Comparison, Method
from problems.datasets import Bundle
from problems.evaluation import Retrieval, evaluate_retrieval
from problems.similarity.methods import CURVE_QUERIES, SimilarityLearner
from problems.text import informative_unit_rows
from rmopt.solvers import Recorder

SELECTION_FOLDS = 5


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
        from sklearn.model_selection import StratifiedKFold

        folds = StratifiedKFold(SELECTION_FOLDS, shuffle=True, random_state=self.seed)
        scoring = {"map": SimilarityLearner.score}
        found, _ = comparison.search(method.label, learner, method.grid, self.X, self.y, folds, scoring)
        edge = ", at the edge of the grid" if found in (method.grid[0], method.grid[-1]) else ""
        comparison.run.say(
            f"{method.label}: step size {found['step_size']:g} by {SELECTION_FOLDS}-fold cross-validation{edge}"
        )
        return float(found["step_size"])
