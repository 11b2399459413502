"""The methods that learn a similarity, by name: where each lives, starts and how it is scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from problems.evaluation import ScoreBlock, bilinear_scores
from problems.full_matrix import Lego, Oasis
from problems.similarity.rivals import (
    FactoredGradientDescent,
    PassiveAggressive,
    PSDGradientDescent,
)
from rmopt.core import Manifold
from rmopt.manifolds import Euclidean, FixedRankEmbedded, PolarPSD, PSDFixedRank
from rmopt.solvers import SGD, Sampler, ScheduledSolver

Array = np.ndarray


@dataclass(frozen=True)
class Method:
    """A way to learn W from triplets.

    Attributes
    ----------
    label : str
        Its name in tables and pictures.
    step_size : float
        The default step size, or bound C of passive–aggressive steps.
    grid : tuple of float
        What cross-validation tries.
    manifold : callable
        Maps (features, rank) to the manifold.
    solver : callable
        Maps (step_size, n_steps, sampler) to the solver.
    full_rank : bool
        Whether W has all its n² numbers, and no rank.
    metric : bool
        Whether documents are ranked by minus the distance (q − d)ᵀ W (q − d) instead of qᵀ W d.
    """

    label: str
    step_size: float
    grid: tuple[float, ...]
    manifold: Callable[[int, int], Manifold]
    solver: Callable[[float, int, Sampler], ScheduledSolver]
    full_rank: bool = False
    metric: bool = False

    def start(self, manifold: Any) -> Any:
        """Return the start of §7.1.1: the zero-padded identity."""
        return np.eye(*manifold.shape) if self.full_rank else manifold.identity()

    def scores(self, point: Any, X: Any) -> ScoreBlock:
        """Return the scores of rows against all rows, in the form of `problems.evaluation`."""
        if not self.full_rank:
            A, B = point.balanced_factors()
            return bilinear_scores(np.asarray(X @ A), np.asarray(X @ B))
        moved = np.asarray(X @ point)
        lengths = np.zeros(X.shape[0])
        if self.metric:
            # −(q − d)ᵀ W (q − d) orders documents as 2 qᵀ W d − dᵀ W d does.
            product = X.multiply(moved) if hasattr(X, "multiply") else X * moved
            lengths = 0.5 * np.asarray(product.sum(axis=1)).ravel()
        return lambda rows: np.asarray((X @ moved[rows].T).T) - lengths


def _sgd(step_size: float, n_steps: int, sampler: Sampler) -> SGD:
    return SGD(step_size, n_steps=n_steps, sampler=sampler)


def _rival(kind: Any) -> Callable[[float, int, Sampler], ScheduledSolver]:
    return lambda step_size, n_steps, sampler: kind(step_size, n_steps=n_steps, sampler=sampler)


def _general(n: int, k: int) -> Manifold:
    return FixedRankEmbedded(n, n, k)


def _full(n: int, k: int) -> Manifold:
    return Euclidean(n, n)


LORETA_GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

METHODS: dict[str, Method] = {
    "naive-gd": Method(
        "naive gradient descent", 0.1, (0.01, 0.03, 0.1, 0.3, 1.0), _general, _rival(FactoredGradientDescent)
    ),
    "psd-gd": Method(
        "naive PSD descent", 0.1, (0.01, 0.03, 0.1, 0.3, 1.0), PSDFixedRank, _rival(PSDGradientDescent)
    ),
    "pa": Method("passive-aggressive", 0.1, (0.01, 0.03, 0.1, 0.3, 1.0), _general, _rival(PassiveAggressive)),
    "oasis": Method("OASIS", 0.1, (0.01, 0.1, 1.0, 10.0), _full, _rival(Oasis), full_rank=True),
    "lego": Method(
        "LEGO", 1.0, (0.01, 0.1, 1.0, 10.0, 100.0), _full, _rival(Lego), full_rank=True, metric=True
    ),
    "polar": Method("polar PSD", 0.1, (0.01, 0.03, 0.1, 0.3, 1.0), PolarPSD, _sgd),
    "loreta": Method("LORETA-1", 10.0, LORETA_GRID, _general, _sgd),
    "loreta-psd": Method("LORETA-1-PSD", 10.0, LORETA_GRID, PSDFixedRank, _sgd),
}
