"""One split of the metric experiment: its parts, its triplets, and how a method is measured on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from problems.datasets import Bundle
from problems.evaluation import evaluate_retrieval
from problems.metric.comet import CometMetric
from problems.metric.methods import Method, Parameters
from problems.selection import select
from problems.text import informative_unit_rows
from problems.triplets import ClassTriplets
from rmopt.core import DivergedError
from rmopt.core.streams import Stream, generator
from rmopt.solvers import Recorder

Array = np.ndarray

TEST_FRACTION = 0.2
DEEPEST = 50
# What methods are selected by, and what convergence is watched by.
DEPTH = 10
# Enough test rows for a curve; tables measure all.
MOST_QUERIES = 2000


class Bench:
    """The training and test parts of one split, with one set of triplets for all methods.

    Parameters
    ----------
    bundle : Bundle
    features : int
        Columns to keep, by information gain on the training part; 0: all.
    split : int
        Seed of the 80/20 split.
    triplets : int
        Number of training triplets.
    seed : int
        Seeds triplets and methods.
    """

    def __init__(self, bundle: Bundle, features: int, split: int, triplets: int, seed: int) -> None:
        whole = informative_unit_rows(bundle.resplit(split, TEST_FRACTION), features)
        self.X, self.y = whole.X[whole.train], whole.y[whole.train]
        self.X_test, self.y_test = whole.X[whole.test], whole.y[whole.test]
        self.triplets, self.seed = triplets, seed

    def train(
        self, method: Method, parameters: Parameters, rank_by: str, passes: float, watched: bool
    ) -> dict[str, Any]:
        """Return what a method measures on the test part; for COMET also after each pass, when watched.

        Test rows are ranked by "similarity", qᵀWp, or by "distance", (q − p)ᵀW(q − p).
        """
        estimator = self._estimator(method, parameters, passes)
        curve: list[list[float]] = []
        begun = time.perf_counter()
        try:
            if watched and isinstance(estimator, CometMetric):
                W, curve, seconds = self._watched(estimator, rank_by)
            else:
                W = self._fitted(estimator, method, self.X, self.y).get_mahalanobis_matrix()
                seconds = time.perf_counter() - begun
        except DivergedError:
            return {"precision": None, "map": None, "seconds": None, "curve": []}
        found = evaluate_retrieval(
            scores_of(W, self.X_test, rank_by), self.y_test, ks=range(1, self._deepest(self.y_test) + 1)
        )
        precision = [found.precision_at[k] for k in sorted(found.precision_at)]
        return {"precision": precision, "map": found.map, "seconds": seconds, "curve": curve}

    def selected(
        self, method: Method, rankings: Sequence[str], passes: float, folds: int, tick: Callable[[], None]
    ) -> dict[str, Any]:
        """Return the parameters and the ranking with the best precision on held-out parts of the training part."""
        from sklearn.model_selection import StratifiedKFold

        parts = StratifiedKFold(folds, shuffle=True, random_state=self.seed)
        grid = method.grid or [method.defaults]

        def score(number: float, train: Array, held_out: Array) -> list[float]:
            estimator = self._estimator(method, grid[int(number)], passes)
            W = self._fitted(estimator, method, self.X[train], self.y[train]).get_mahalanobis_matrix()
            X, y = self.X[held_out], self.y[held_out]
            return [
                evaluate_retrieval(scores_of(W, X, ranking), y, ks=(DEPTH,)).precision_at[DEPTH]
                for ranking in rankings
            ]

        found = select(range(len(grid)), list(parts.split(self.X, self.y)), score, tick=tick)
        return {"parameters": grid[int(found.best)], "rank_by": rankings[found.alternative]}

    def _fitted(self, estimator: Any, method: Method, X: Any, y: Array) -> Any:
        return estimator.fit(X, y) if method.from_classes else estimator.fit_triplets(X, self._drawn(y))

    def _estimator(self, method: Method, parameters: Parameters, passes: float) -> Any:
        estimator = method.make(**parameters, random_state=self.seed)
        return (
            estimator.set_params(n_passes=passes, tol=0.0)
            if isinstance(estimator, CometMetric)
            else estimator
        )

    def _watched(self, estimator: CometMetric, rank_by: str) -> tuple[Array, list[list[float]], float]:
        """Return W, rows (pass, precision at 1, precision at 10, cost), and the training time without measuring."""
        drawn = self._drawn(self.y)
        d, some = self.X.shape[1], np.arange(len(self.y_test))
        some = np.random.default_rng(self.seed).permutation(some)[:MOST_QUERIES]
        X, y = self.X_test[some], self.y_test[some]
        cost: Any = estimator.problem(self.X, drawn).cost

        def measure(W: Array) -> dict[str, float]:
            found = evaluate_retrieval(scores_of(W, X, rank_by), y, ks=(1, DEPTH)).precision_at
            return {"precision_at_1": found[1], "precision_at_10": found[DEPTH], "cost": cost.value(W)}

        passes = int(np.ceil(estimator.n_passes))
        recorder = Recorder({"test": measure}, at=[d * number for number in range(1, passes + 1)])
        W = estimator.learn(self.X, drawn, self.seed, recorder)
        rows = [
            [row["step"] / d, row["precision_at_1"], row["precision_at_10"], row["cost"]]
            for row in recorder.rows
        ]
        return W, rows, float(recorder.rows[-1]["seconds"])

    def _drawn(self, y: Array) -> Array:
        return ClassTriplets(y).draw(generator(self.seed, Stream.TRIPLETS_OF_SPLITS), 0, self.triplets)

    def _deepest(self, y: Array) -> int:
        return min(DEEPEST, len(y) - 1)


def scores_of(W: Array, X: Any, rank_by: str) -> Callable[[Array], Array]:
    """Return the scores by which all rows are ranked for some queries."""
    moved = np.asarray(X @ W)
    lengths = np.zeros(X.shape[0])
    if rank_by == "distance":
        product = X.multiply(moved) if hasattr(X, "multiply") else X * moved
        # −(q − p)ᵀ W (q − p) orders the p as qᵀWp − ½ pᵀWp does.
        lengths = 0.5 * np.asarray(product.sum(axis=1)).ravel()
    return lambda rows: np.asarray((X @ moved[rows].T).T) - lengths
