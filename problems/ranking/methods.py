"""The methods that rank labels, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from problems.comparison import Learner, crossed
from problems.loreta import loreta_solver
from problems.methods import Method, rows_of
from problems.ranking.baselines import (
    GroupPerceptron,
    MatrixPerceptron,
    NapkinTrees,
    OmikujiTrees,
    PassiveAggressive,
    RidgeScores,
)
from problems.ranking.estimators import (
    LabelScores,
    LowRankLogisticRegression,
    epochs,
    ranking_cost,
    starting_point,
)
from rmopt.core import Problem
from rmopt.core.ambient import Array
from rmopt.manifolds import Euclidean, FixedRankEmbedded
from rmopt.solvers import Solver


@dataclass(eq=False, repr=False)
class LabelLearner(Learner):
    """A way to learn W, labels × features.

    Parameters
    ----------
    solver : callable
        Maps (step_size, max_iter=…, sampler=…) to the solver.
    step_size : float
        The step size, or bound C of passive–aggressive steps.
    sampling : {"exact", "warp"}
    full_rank : bool
        Whether W has all its L n numbers, starts at zero, and has no rank.
    rank, init, n_epochs, random_state
        See `LoretaLabelRanker`.
    """

    solver: Callable[..., Solver] = loreta_solver
    step_size: float = 0.1
    sampling: str = "exact"
    full_rank: bool = False
    rank: int = 10
    init: str = "zero"
    n_epochs: int = 5
    random_state: int = 0

    def parts(self, X: Any, Y: Any) -> tuple[Solver, Problem, Any]:
        cost = ranking_cost(X, Y, self.sampling)
        solver = self.solver(self.step_size, max_iter=self.n_epochs * cost.n_terms, sampler=epochs(cost))
        if self.full_rank:
            return solver, Problem(Euclidean(*cost.shape), cost), np.zeros(cost.shape)
        manifold = FixedRankEmbedded(*cost.shape, self.rank)
        start = starting_point(manifold, cost, self.init, self.random_state, self.step_size)
        return solver, Problem(manifold, cost), start

    def decision_function(self, X: Any, point: Any = None) -> Array:
        """Return the scores of all labels, of what was learned or at a point."""
        return LabelScores(self.point_ if point is None else point)(X)


# What a method of label ranking must have one of, beside `fit`; the first that it has is used.
MEASURED_BY = ("decision_function", "predict_proba")


def scores_of(model: Any, X: Any) -> Array:
    """Return the score of each label for each row, shape (n_rows, n_labels).

    Probabilities may be a list with one array of two columns for each label, as scikit-learn's forests give them.
    """
    if hasattr(model, "decision_function"):
        return rows_of("decision_function(X)", model.decision_function(X), X.shape[0])
    found = model.predict_proba(X)
    if isinstance(found, list):
        # Where a label is the same in all rows there is one column.
        ends = [np.ravel(known)[-1] for known in getattr(model, "classes_", [(0, 1)] * len(found))]
        found = np.column_stack(
            [one[:, -1] if end else 1.0 - one[:, -1] for one, end in zip(found, ends, strict=True)]
        )
    return rows_of("predict_proba(X)", found, X.shape[0])


def _method(label: str, *parameters: Any, **more: Any) -> Method:
    return Method(label, LabelLearner(*parameters, **more), POWERS)


POWERS = crossed(step_size=(0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))

METHODS: dict[str, Method] = {
    "frequency": Method("label frequency", DummyClassifier(strategy="prior")),
    "ridge": Method("ridge", RidgeScores(), crossed(alpha=(0.1, 0.3, 1.0, 3.0, 10.0))),
    "one-vs-rest": Method(
        "one-vs-rest logistic",
        OneVsRestClassifier(LogisticRegression(C=10.0, solver="liblinear")),
        crossed(estimator__C=(1.0, 10.0, 100.0)),
    ),
    "omikuji": Method("omikuji", OmikujiTrees()),
    "napkinxc": Method("napkinXC", NapkinTrees()),
    "low-rank-logistic": Method("low-rank logistic", LowRankLogisticRegression()),
    "loreta": _method("LORETA-1"),
    "loreta-warp": _method("LORETA-1, WARP", sampling="warp"),
    "pa": _method("passive-aggressive", PassiveAggressive),
    "matrix-perceptron": _method("Matrix Perceptron", MatrixPerceptron, full_rank=True),
    "group-perceptron": _method("group perceptron", GroupPerceptron, 1.0, full_rank=True),
}
