"""The methods that rank labels, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from problems.ranking.cost import LabelRanking
from problems.ranking.rivals import GroupPerceptron, MatrixPerceptron, PassiveAggressive
from problems.ranking.training import epochs, loreta_ranking_solver, starting_point
from rmopt.core import Manifold
from rmopt.manifolds import Euclidean, FixedRankEmbedded
from rmopt.solvers import Solver

Array = np.ndarray

POWERS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Method:
    """A way to learn W, labels × features.

    Attributes
    ----------
    label : str
        Its name in tables and pictures.
    step_size : float
        The default step size, or bound C of passive–aggressive steps.
    grid : tuple of float
        What cross-validation tries.
    solver : callable
        Maps (cost, step_size, epochs) to the solver.
    sampling : {"exact", "warp"}
    full_rank : bool
        Whether W has all its L n numbers, starts at zero, and has no rank.
    """

    label: str
    step_size: float
    grid: tuple[float, ...]
    solver: Callable[[LabelRanking, float, int], Solver]
    sampling: str = "exact"
    full_rank: bool = False

    def manifold(self, cost: LabelRanking, rank: int) -> Manifold:
        """Return where W lives."""
        n_labels, n = cost.shape
        return Euclidean(n_labels, n) if self.full_rank else FixedRankEmbedded(n_labels, n, rank)

    def start(self, manifold: Any, cost: LabelRanking, init: str, seed: int, step_size: float) -> Any:
        """Return the start."""
        if self.full_rank:
            return np.zeros(manifold.shape)
        return starting_point(manifold, cost, init, seed, step_size)


def _rival(kind: Any) -> Callable[[LabelRanking, float, int], Solver]:
    return lambda cost, step_size, passes: kind(
        step_size, n_steps=passes * cost.n_terms, sampler=epochs(cost)
    )


METHODS: dict[str, Method] = {
    "loreta": Method("LORETA-1", 0.1, POWERS, loreta_ranking_solver),
    "loreta-warp": Method("LORETA-1, WARP", 0.1, POWERS, loreta_ranking_solver, sampling="warp"),
    "pa": Method("passive-aggressive", 0.1, POWERS, _rival(PassiveAggressive)),
    "matrix-perceptron": Method("Matrix Perceptron", 0.1, POWERS, _rival(MatrixPerceptron), full_rank=True),
    "group-perceptron": Method("group perceptron", 1.0, POWERS, _rival(GroupPerceptron), full_rank=True),
}
