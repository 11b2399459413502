"""What every estimator of matrix completion offers, in scikit-learn's words."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from problems.subspace.completion import MatrixCompletion, columns_of, known_entries, predictions
from rmopt.core import InvalidInputError
from rmopt.core.streams import seed_of
from rmopt.engines.threads import one_blas_thread

Array = np.ndarray

# Ratings that are added, all of the mean, before the effect of a row or of a column is averaged.
DAMPING = (5.0, 10.0)
BIAS_SWEEPS = 8
BIAS_ROUNDS = 3


class CompletionEstimator(BaseEstimator):
    """A matrix as mean + effects of row and column + u_i · w_j; a subclass finds the span of U in `learn`.

    Attributes
    ----------
    components_ : array, shape (m, rank)
        U, orthonormal.
    weights_ : array, shape (n, rank)
        W.
    mean_ : float
    row_effects_, column_effects_ : array
        Zero without `bias`.
    """

    rank: int
    lam: float
    bias: bool
    limits: tuple[float, float] | None
    random_state: Any
    components_: Array
    weights_: Array

    @abstractmethod
    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        """Return an orthonormal basis, shape (m, rank).

        Parameters
        ----------
        tasks : MatrixCompletion
        start : array, optional
            A basis that is near already.
        seed : int
        """

    @property
    def _n_agents(self) -> int:
        return 1

    def fit(self, ratings: Any, y: None = None) -> Self:
        """Complete a matrix.

        Parameters
        ----------
        ratings : sparse array, shape (m, n)
            The known entries; stored zeros are known.
        y : None
            Not used; for scikit-learn.

        Returns
        -------
        self
        """
        table, seed = known_entries(ratings), seed_of(self.random_state)
        if not isinstance(self.rank, (int, np.integer)) or not 1 <= self.rank < min(table.shape):
            raise InvalidInputError(
                f"rank = {self.rank!r} must be an integer from 1 to below the sides of the matrix, {table.shape}."
            )
        self.mean_ = float(table.data.mean())
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)
        rows, columns = table.indices, columns_of(table)
        low, basis = np.zeros(table.nnz), None
        with one_blas_thread():
            for _ in range(BIAS_ROUNDS if self.bias else 1):
                if self.bias:
                    self._fit_effects(table.data - self.mean_ - low, rows, columns)
                effects = self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
                left = sp.csc_array((table.data - effects, rows, table.indptr), shape=table.shape)
                tasks = MatrixCompletion(left, self._n_agents, self.lam)
                basis = self.learn(tasks, basis, seed)
                W = np.concatenate([tasks.weights(basis, agent) for agent in tasks.here])
                low = predictions(basis, W, rows, columns)
        assert basis is not None
        self.components_, self.weights_ = basis, W
        self.n_features_in_ = table.shape[1]
        return self

    def _fit_effects(self, values: Array, rows: Array, columns: Array) -> None:
        """Fit damped effects of rows and columns to what is left of the values, in turns."""
        b, c = self.row_effects_, self.column_effects_
        counts = [np.bincount(n, minlength=len(e)) for n, e in ((rows, b), (columns, c))]
        for _ in range(BIAS_SWEEPS):
            b = np.bincount(rows, values - c[columns], len(b)) / (counts[0] + DAMPING[0])
            c = np.bincount(columns, values - b[rows], len(c)) / (counts[1] + DAMPING[1])
        self.row_effects_, self.column_effects_ = b, c

    def predict(self, rows: Any, columns: Any) -> Array:
        """Return the entries at pairs of a row and a column, within `limits` where they are given.

        Parameters
        ----------
        rows, columns : int array, shape (N,)

        Raises
        ------
        InvalidInputError
            When the numbers are not integers, or outside of the matrix.
        """
        check_is_fitted(self, "components_")
        rows, columns = np.atleast_1d(rows), np.atleast_1d(columns)
        sizes = len(self.components_), len(self.weights_)
        for name, numbers, size in (("rows", rows, sizes[0]), ("columns", columns, sizes[1])):
            if (
                numbers.shape != rows.shape
                or numbers.ndim != 1
                or not np.issubdtype(numbers.dtype, np.integer)
            ):
                raise InvalidInputError(
                    f"rows and columns must be equally many integers, got {name} = {numbers!r}."
                )
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
                raise InvalidInputError(
                    f"{name} must lie between 0 and {size - 1}; fit saw a matrix of {sizes}."
                )
        found = predictions(self.components_, self.weights_, rows, columns)
        found += self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
        return found if self.limits is None else np.clip(found, *self.limits)

    def rmse(self, ratings: Any) -> float:
        """Return the root mean square error of the predictions of known entries."""
        check_is_fitted(self, "components_")
        table = known_entries(ratings)
        gaps = self.predict(table.indices, columns_of(table)) - table.data
        return float(np.sqrt(np.mean(gaps**2)))

    def score(self, ratings: Any, y: None = None) -> float:
        """Return minus the root mean square error: higher is better, as scikit-learn wants it."""
        return -self.rmse(ratings)
