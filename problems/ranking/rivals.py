"""Rivals of LORETA in label ranking (Shalit et al. 2012, §7.2.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from problems.online import FactorEngine, OnlineEngine, OnlineSolver
from problems.ranking import kernels
from problems.ranking.cost import LabelRanking
from rmopt.core import InvalidInputError, Problem
from rmopt.engines.base import Engine
from rmopt.engines.bilinear import rows_of

Array = np.ndarray


@dataclass(frozen=True)
class PassiveAggressiveEngine(FactorEngine):
    """Passive–aggressive steps on balanced factors, one row a step."""

    cost: LabelRanking

    def run(self, arrays: dict[str, Array], moves: Array, schedule: Array, etas: Array) -> int:
        rows = np.ascontiguousarray(schedule.ravel(), dtype=np.int64)
        return kernels.passive_aggressive(
            arrays["A"], arrays["B"], *rows_of(self.cost.X, self.cost.Y), rows, etas, moves
        )


@dataclass(frozen=True)
class FullRankEngine(OnlineEngine):
    """Steps on all L × n numbers, one row a step.

    Attributes
    ----------
    cost : LabelRanking
    exponent : float
        2: W itself moves. Above: what moves is the dual matrix of the group norm, see `GroupPerceptron`.
    """

    cost: LabelRanking
    exponent: float = 2.0

    def arrays_of(self, point: Array) -> dict[str, Array]:
        """Return the dual matrix of W, features × labels, and the lengths of its rows."""
        theta = np.ascontiguousarray(point.T)
        if self.exponent != 2.0:
            # The inverse of the mirror map is that of the dual exponent.
            theta = _mirrored(theta, np.linalg.norm(theta, axis=1), self.exponent / (self.exponent - 1.0))
        return {"theta": theta, "norms": np.linalg.norm(theta, axis=1)}

    def point_of(self, arrays: dict[str, Array]) -> Array:
        """Return W, labels × features."""
        if self.exponent == 2.0:
            return np.array(arrays["theta"].T, order="C")
        return np.ascontiguousarray(_mirrored(arrays["theta"], arrays["norms"], self.exponent).T)

    def run(self, arrays: dict[str, Array], moves: Array, schedule: Array, etas: Array) -> int:
        rows = np.ascontiguousarray(schedule.ravel(), dtype=np.int64)
        method = kernels.MATRIX if self.exponent == 2.0 else kernels.GROUP
        data = rows_of(self.cost.X, self.cost.Y)
        return kernels.full_rank(
            method, self.exponent, arrays["theta"], arrays["norms"], *data, rows, etas, moves
        )


def _mirrored(theta: Array, norms: Array, exponent: float) -> Array:
    """Return rows (‖θ_j‖ / ‖θ‖)^(p − 2) θ_j, where ‖θ‖ is the p-norm of the row lengths, and 0 for rows of 0."""
    whole = np.sum(norms**exponent) ** (1.0 / exponent)
    lengths = norms / whole if whole > 0 else norms
    weights = np.where(lengths > 0, np.power(np.where(lengths > 0, lengths, 1.0), exponent - 2.0), 0.0)
    return theta * weights[:, None]


class _RankingSolver(OnlineSolver):
    def _cost(self, problem: Problem) -> LabelRanking:
        # The loops stand for what the cost computes, and know nothing of what a subclass makes of it.
        if type(problem.cost) is not LabelRanking:
            raise InvalidInputError(
                f"{type(self).__name__} is defined for LabelRanking, got {type(problem.cost).__name__}."
            )
        return problem.cost


class PassiveAggressive(_RankingSolver):
    """Iterative passive–aggressive steps on the factors of W = A Bᵀ (§7.2.4, 1); `step_size` is the bound C.

    For each row A moves given B, then B given the new A; the violated labels are those before both.
    """

    def engine(self, problem: Problem) -> Engine:
        return PassiveAggressiveEngine(self._cost(problem))


class MatrixPerceptron(_RankingSolver):
    """The subgradient is subtracted from a full matrix that starts at zero (§7.2.4, 2).

    Runs on `Euclidean(L, n)`; the `step_size` sets the size of W against the margin of 1.
    """

    def engine(self, problem: Problem) -> Engine:
        return FullRankEngine(self._cost(problem))


class GroupPerceptron(_RankingSolver):
    """Online mirror descent with a group norm, the weights of a feature for all labels being a group (§7.2.4, 3).

    The (2,1)-norm has no strongly convex mirror map; as in Kakade, Shalev-Shwartz and Tewari (2012) its place is
    taken by ½‖W‖²_{2,q} with 1/p + 1/q = 1 and p = 2 ln n for n features (at least 2). The subgradient is
    subtracted from a dual matrix θ, and feature j has the weights (‖θ_j‖ / ‖θ‖_{2,p})^{p − 2} θ_j, so that few
    features carry most of W. Runs on `Euclidean(L, n)` from zero.
    """

    def engine(self, problem: Problem) -> Engine:
        cost = self._cost(problem)
        return FullRankEngine(cost, exponent=max(2.0, 2.0 * float(np.log(cost.shape[1]))))
