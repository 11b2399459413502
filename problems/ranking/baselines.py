"""What practice would try first for many labels, and its tools: the baselines of label ranking."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve
from sklearn.base import BaseEstimator
from sklearn.datasets import dump_svmlight_file

Array = np.ndarray


class LabelFrequency(BaseEstimator):
    """One order for all rows: labels by how often they are true."""

    def fit(self, X: Any, Y: Any) -> Self:
        self.frequency_ = np.asarray(Y.sum(axis=0), dtype=float).ravel()
        return self

    def decision_function(self, X: Any) -> Array:
        return np.tile(self.frequency_, (X.shape[0], 1))


class RidgeScores(BaseEstimator):
    """Least squares for the indicators of all labels at once, with intercepts, from sparse or dense rows.

    Parameters
    ----------
    alpha : float
        The penalty on the squares of the coefficients.
    """

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


class LabelTrees(BaseEstimator):
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

    def found(self, X: sp.csr_matrix) -> Iterable[Iterable[tuple[int, float]]]:
        """Return for each row labels and their scores."""
        raise NotImplementedError


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
    """NapkinXC's probabilistic label trees (Jasinska-Kobus et al. 2020) with its defaults.

    Parameters
    ----------
    random_state : int
    """

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
        self.model_.fit(sp.csr_matrix(X), labels)
        return self

    def found(self, X: sp.csr_matrix) -> Iterable[Iterable[tuple[int, float]]]:
        found: Iterable[Iterable[tuple[int, float]]] = self.model_.predict_proba(X, top_k=self.n_labels_)
        return found
