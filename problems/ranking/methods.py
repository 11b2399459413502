"""The methods that rank labels, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from problems.comparison import Learner, Method, crossed
from problems.loreta import loreta_solver
from problems.ranking.estimator import LabelScores
from problems.ranking.measures import mean_average_precision
from problems.ranking.rivals import GroupPerceptron, MatrixPerceptron, PassiveAggressive
from problems.ranking.training import epochs, ranking_cost, starting_point
from rmopt.core import Problem
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

    def score(self, X: Any, Y: Any, point: Any = None) -> float:
        """Return the mean average precision, of what was learned or at a point."""
        return mean_average_precision(LabelScores(self.point_ if point is None else point)(X), Y)


def _method(label: str, *parameters: Any, **more: Any) -> Method:
    return Method(label, LabelLearner(*parameters, **more), POWERS)


POWERS = crossed(step_size=(0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0))

METHODS: dict[str, Method] = {
    "loreta": _method("LORETA-1"),
    "loreta-warp": _method("LORETA-1, WARP", sampling="warp"),
    "pa": _method("passive-aggressive", PassiveAggressive),
    "matrix-perceptron": _method("Matrix Perceptron", MatrixPerceptron, full_rank=True),
    "group-perceptron": _method("group perceptron", GroupPerceptron, 1.0, full_rank=True),
}
