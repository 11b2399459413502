"""Baselines of label ranking, from the paper (Shalit et al. 2012, §7.2.4) and from practice."""

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve
from sklearn.base import BaseEstimator
from sklearn.datasets import dump_svmlight_file
from sklearn.multiclass import OneVsRestClassifier

from problems.online import OnlineSolver, factors_of, point_of_factors
from problems.ranking import kernels
from problems.ranking.cost import LabelRanking
from problems.validation import package
from rmopt.core.ambient import Array
from rmopt.engines.bilinear import rows_of


def dual_of(point: Array, exponent: float = 2.0) -> dict[str, Array]:
    """Return the dual matrix of W, features × labels, and the lengths of its rows; see `GroupPerceptron`."""
    theta = np.array(point.T, order="C")
    # The inverse of the mirror map is that of the dual exponent.
    theta = _mirrored(theta, np.linalg.norm(theta, axis=1), exponent / (exponent - 1.0))
    return {"theta": theta, "norms": np.linalg.norm(theta, axis=1)}


def primal_of(arrays: dict[str, Array], exponent: float = 2.0) -> Array:
    """Return W, labels × features."""
    return np.array(_mirrored(arrays["theta"], arrays["norms"], exponent).T, order="C")


def _mirrored(theta: Array, norms: Array, exponent: float) -> Array:
    """Return rows (‖θ_j‖ / ‖θ‖)^(p − 2) θ_j, with ‖θ‖ the p-norm of the row lengths, and 0 for zero rows."""
    if exponent == 2.0:
        return theta
    whole = np.sum(norms**exponent) ** (1.0 / exponent)
    lengths = norms / whole if whole > 0 else norms
    weights = np.where(lengths > 0, np.power(np.where(lengths > 0, lengths, 1.0), exponent - 2.0), 0.0)
    return theta * weights[:, None]


class PassiveAggressive(OnlineSolver):
    """Iterative passive–aggressive steps on the factors of W = A Bᵀ (§7.2.4, 1); `step_size` is the bound C.

    For each row A moves given B, then B given the new A, with the violated labels before both.

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

    cost_type = LabelRanking

    def parts(self, cost: LabelRanking) -> tuple[Any, Any, Any]:
        def loop(arrays: dict[str, Array], moves: Array, terms: Array, etas: Array) -> int:
            data = rows_of(cost.X, cost.Y)
            return kernels.passive_aggressive(arrays["A"], arrays["B"], *data, terms, etas, moves)

        return factors_of, point_of_factors, loop


class MatrixPerceptron(OnlineSolver):
    """The subgradient is subtracted from a full matrix that starts at zero (§7.2.4, 2).

    Runs on `Euclidean(L, n)`. The `step_size` sets the size of W relative to the margin of 1.

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

    cost_type = LabelRanking

    def parts(self, cost: LabelRanking) -> tuple[Any, Any, Any]:
        exponent = self.exponent(cost)

        def loop(arrays: dict[str, Array], moves: Array, terms: Array, etas: Array) -> int:
            data = rows_of(cost.X, cost.Y)
            return kernels.full_rank(exponent, arrays["theta"], arrays["norms"], *data, terms, etas, moves)

        return partial(dual_of, exponent=exponent), partial(primal_of, exponent=exponent), loop

    def exponent(self, cost: LabelRanking) -> float:
        """Return 2: W itself moves. Above it is the dual matrix of a group norm."""
        return 2.0


class GroupPerceptron(MatrixPerceptron):
    """Online mirror descent with a group norm, the weights of a feature for all labels being a group (§7.2.4, 3).

    The (2,1)-norm has no strongly convex mirror map. As in Kakade, Shalev-Shwartz and Tewari (2012) it is replaced by
    ½‖W‖²_{2,q} with 1/p + 1/q = 1 and p = 2 ln n for n features (at least 2). The subgradient is subtracted from a
    dual matrix θ, and feature j has the weights (‖θ_j‖ / ‖θ‖_{2,p})^{p − 2} θ_j, so that few features carry most of
    W. Runs on `Euclidean(L, n)` from zero.

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

    def exponent(self, cost: LabelRanking) -> float:
        return max(2.0, 2.0 * float(np.log(cost.shape[1])))


@dataclass(eq=False, repr=False)
class RidgeScores(BaseEstimator):
    """Least squares for the indicators of all labels at once, with intercepts, from sparse or dense rows."""

    alpha: float = 1.0

    def fit(self, X: Any, Y: Any) -> Self:
        # scikit-learn's Ridge has no direct solver for sparse rows with intercepts.
        X, Y, count = sp.csr_array(X), sp.csr_array(Y), X.shape[0]
        middle, often = X.mean(axis=0), Y.mean(axis=0)
        if X.shape[1] > count:
            # By the smaller of the two Gram matrices of centred rows.
            along = X @ middle
            gram = (X @ X.T).toarray() - along - along[:, None] + middle @ middle + self.alpha * np.eye(count)
            self.coef_ = X.T @ solve(gram, Y.toarray() - often, assume_a="pos")
        else:
            gram = (X.T @ X).toarray() - count * np.outer(middle, middle) + self.alpha * np.eye(X.shape[1])
            both = (X.T @ Y).toarray() - count * np.outer(middle, often)
            self.coef_ = solve(gram, both, assume_a="pos")
        self.intercept_ = often - middle @ self.coef_
        return self

    def decision_function(self, X: Any) -> Array:
        return np.asarray(X @ self.coef_ + self.intercept_)


class OneVsRest(OneVsRestClassifier):
    """A separate classifier for each label, with labels of no training row last.

    scikit-learn gives these the score 0, which is above the scores of all unlikely labels.
    """

    def fit(self, X: Any, Y: Any) -> Self:
        self.never_ = np.asarray(Y.sum(axis=0)).ravel() == 0
        with warnings.catch_warnings():
            # A label that no row has, or each one.
            warnings.filterwarnings("ignore", "Label .* is present in all", UserWarning)
            return super().fit(X, Y)

    def decision_function(self, X: Any) -> Array:
        scores = super().decision_function(X)
        return np.where(self.never_, scores.min() - 1.0, scores)


class OmikujiTrees(BaseEstimator):
    """Omikuji's partitioned label trees (Parabel: Prabhu et al. 2018) with its defaults: three trees, hinge loss.

    Labels not found by the trees have the score 0.
    """

    def fit(self, X: Any, Y: Any) -> Self:
        omikuji = package("omikuji", "'rmopt[bench]'", "leave out omikuji")
        self.n_labels_, X, Y = Y.shape[1], sp.csr_array(X), sp.csr_array(Y)
        # Omikuji cannot read rows without features or labels.
        some = (X.count_nonzero(axis=1) > 0) & (Y.count_nonzero(axis=1) > 0)
        X, Y = X[some], Y[some]
        with TemporaryDirectory() as folder:
            rows, whole = Path(folder, "rows"), Path(folder, "whole")
            dump_svmlight_file(sp.csr_matrix(X), sp.csr_matrix(Y), str(rows), multilabel=True)
            whole.write_text(f"{X.shape[0]} {X.shape[1]} {self.n_labels_}\n" + rows.read_text())
            self.model_ = omikuji.Model.train_on_data(str(whole))
        return self

    def decision_function(self, X: Any) -> Array:
        scores = np.zeros((X.shape[0], self.n_labels_))
        for number, row in enumerate(sp.csr_matrix(X)):
            pairs = list(zip(row.indices.tolist(), row.data.tolist(), strict=True))
            for label, score in self.model_.predict(pairs, top_k=self.n_labels_):
                scores[number, label] = score
        return scores
