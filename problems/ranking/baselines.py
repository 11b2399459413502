"""What label ranking is compared with, by the paper (Shalit et al. 2012, §7.2.4) and in practice."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve
from sklearn.base import BaseEstimator
from sklearn.datasets import dump_svmlight_file

from problems.online import FactorEngine, OnlineEngine, OnlineSolver
from problems.ranking import kernels
from problems.ranking.cost import LabelRanking
from rmopt.core import InvalidInputError, Problem
from rmopt.core.ambient import Array
from rmopt.engines.base import Engine
from rmopt.engines.bilinear import rows_of


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

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import Uniform
    >>> from problems.ranking import LabelRanking
    >>> from problems.ranking.baselines import PassiveAggressive
    >>> cost = LabelRanking(np.eye(8), np.repeat(np.eye(2), 4, axis=0))
    >>> solver = PassiveAggressive(0.5, max_iter=500, sampler=Uniform(8))
    >>> W = solver.run(Problem(FixedRankEmbedded(2, 8, 1), cost), random_state=0).point
    >>> cost.value(W) < 1e-6
    True
    """

    def engine(self, problem: Problem) -> Engine:
        return PassiveAggressiveEngine(self._cost(problem))


class MatrixPerceptron(_RankingSolver):
    """The subgradient is subtracted from a full matrix that starts at zero (§7.2.4, 2).

    Runs on `Euclidean(L, n)`; the `step_size` sets the size of W against the margin of 1.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.manifolds import Euclidean
    >>> from rmopt.solvers import Uniform
    >>> from problems.ranking import LabelRanking
    >>> from problems.ranking.baselines import MatrixPerceptron
    >>> X, Y = np.eye(8), np.repeat(np.eye(2), 4, axis=0)
    >>> solver = MatrixPerceptron(0.5, max_iter=100, sampler=Uniform(8))
    >>> problem = Problem(Euclidean(2, 8), LabelRanking(X, Y))
    >>> solver.run(problem, np.zeros((2, 8)), random_state=0).point
    array([[ 0.5,  0.5,  0.5,  0.5, -0.5, -0.5, -0.5, -0.5],
           [-0.5, -0.5, -0.5, -0.5,  0.5,  0.5,  0.5,  0.5]])
    """

    def engine(self, problem: Problem) -> Engine:
        return FullRankEngine(self._cost(problem))


class GroupPerceptron(_RankingSolver):
    """Online mirror descent with a group norm, the weights of a feature for all labels being a group (§7.2.4, 3).

    The (2,1)-norm has no strongly convex mirror map; as in Kakade, Shalev-Shwartz and Tewari (2012) its place is
    taken by ½‖W‖²_{2,q} with 1/p + 1/q = 1 and p = 2 ln n for n features (at least 2). The subgradient is
    subtracted from a dual matrix θ, and feature j has the weights (‖θ_j‖ / ‖θ‖_{2,p})^{p − 2} θ_j, so that few
    features carry most of W. Runs on `Euclidean(L, n)` from zero.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.manifolds import Euclidean
    >>> from rmopt.solvers import Uniform
    >>> from problems.ranking import LabelRanking
    >>> from problems.ranking.baselines import GroupPerceptron
    >>> X, Y = np.eye(8), np.repeat(np.eye(2), 4, axis=0)
    >>> solver = GroupPerceptron(1.0, max_iter=1000, sampler=Uniform(8))
    >>> problem = Problem(Euclidean(2, 8), LabelRanking(X, Y))
    >>> W = solver.run(problem, np.zeros((2, 8)), random_state=0).point
    >>> problem.cost.value(W) < 1e-6
    True
    """

    def engine(self, problem: Problem) -> Engine:
        cost = self._cost(problem)
        return FullRankEngine(cost, exponent=max(2.0, 2.0 * float(np.log(cost.shape[1]))))


class RidgeScores(BaseEstimator):
    """Least squares for the indicators of all labels at once, with intercepts, from sparse or dense rows."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def fit(self, X: Any, Y: Any) -> Self:
        # scikit-learn's Ridge has no direct solver for sparse rows with intercepts.
        X, Y, count = sp.csr_array(X), sp.csr_array(Y), X.shape[0]
        middle, often = X.mean(axis=0), Y.mean(axis=0)
        gram = (X.T @ X).toarray() - count * np.outer(middle, middle) + self.alpha * np.eye(X.shape[1])
        both = (X.T @ Y).toarray() - count * np.outer(middle, often)
        self.coef_ = solve(gram, both, assume_a="pos")
        self.intercept_ = often - middle @ self.coef_
        return self

    def decision_function(self, X: Any) -> Array:
        return np.asarray(X @ self.coef_ + self.intercept_)


@contextmanager
def silenced() -> Iterator[None]:
    """Let nothing be printed, by compiled code either, which knows nothing of `sys.stdout`."""
    sys.stdout.flush()
    with ExitStack() as then, Path(os.devnull).open("wb") as nowhere:
        for descriptor in (1, 2):
            kept = os.dup(descriptor)
            then.callback(os.close, kept)
            then.callback(os.dup2, kept, descriptor)
            os.dup2(nowhere.fileno(), descriptor)
        yield


class LabelTrees(BaseEstimator, ABC):
    """A tool that finds the best labels by trees of labels; the others have the score 0.

    Attributes
    ----------
    package : str
        What must be installed.
    """

    package: ClassVar[str]

    def decision_function(self, X: Any) -> Array:
        scores = np.zeros((X.shape[0], self.n_labels_))
        for row, found in enumerate(self.found(sp.csr_matrix(X))):
            for label, score in found:
                scores[row, label] = score
        return scores

    @abstractmethod
    def found(self, X: sp.csr_matrix) -> Iterable[Iterable[tuple[int, float]]]:
        """Return for each row labels and their scores."""


class OmikujiTrees(LabelTrees):
    """Omikuji's partitioned label trees (Parabel: Prabhu et al. 2018) with its defaults: three trees, hinge loss."""

    package = "omikuji"

    def fit(self, X: Any, Y: Any) -> Self:
        import omikuji

        self.n_labels_ = Y.shape[1]
        with TemporaryDirectory() as folder:
            rows, whole = Path(folder, "rows"), Path(folder, "whole")
            dump_svmlight_file(sp.csr_matrix(X), sp.csr_matrix(Y), str(rows), multilabel=True)
            whole.write_text(f"{X.shape[0]} {X.shape[1]} {self.n_labels_}\n" + rows.read_text())
            self.model_ = omikuji.Model.train_on_data(str(whole))
        return self

    def found(self, X: sp.csr_matrix) -> Iterable[Iterable[tuple[int, float]]]:
        pairs = (list(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in X)
        return (self.model_.predict(row, top_k=self.n_labels_) for row in pairs)


class NapkinTrees(LabelTrees):
    """NapkinXC's probabilistic label trees (Jasinska-Kobus et al. 2020) with its defaults."""

    package = "napkinxc"

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, Y: Any) -> Self:
        from napkinxc.models import PLT

        self.n_labels_, truth = Y.shape[1], sp.csr_array(Y)
        labels = [own.tolist() for own in np.split(truth.indices, truth.indptr[1:-1])]
        # The model is kept in files.
        self.folder_ = TemporaryDirectory()
        self.model_ = PLT(self.folder_.name, seed=self.random_state)
        with silenced():
            self.model_.fit(sp.csr_matrix(X), labels)
        return self

    def found(self, X: sp.csr_matrix) -> Iterable[Iterable[tuple[int, float]]]:
        with silenced():
            return self.model_.predict_proba(X, top_k=self.n_labels_)
