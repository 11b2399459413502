"""What every estimator of matrix completion offers, in scikit-learn's words."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from problems.door import seedable
from problems.subspace.completion import (
    KnownEntries,
    MatrixCompletion,
    columns_of,
    predictions,
)
from problems.subspace.entries import checked_pairs, table_of
from rmopt.core import InvalidInputError
from rmopt.core.arguments import Check, bounded, check_parameters, flag, integer, number, shown
from rmopt.core.streams import seed_of
from rmopt.engines.threads import one_blas_thread

Array = np.ndarray

# Ratings that are added, all of the mean, before the effect of a row or of a column is averaged.
DAMPING = (5.0, 10.0)
BIAS_SWEEPS = 8
BIAS_ROUNDS = 3


def _limits(name: str, value: Any) -> tuple[float, float] | None:
    """Return a lower and an upper limit, or None."""
    if value is None:
        return None
    if isinstance(value, str) or np.shape(value) != (2,):
        raise InvalidInputError(f"{name} = {shown(value)} must be a pair (lowest, highest), or None.")
    low = number(f"{name}[0]", value[0])
    return low, number(f"{name}[1]", value[1], above=low)


class CompletionEstimator(BaseEstimator):
    """A matrix as mean + effects of row and column + u_i · w_j; a subclass finds the span of U in `learn`.

    Known entries are given as a sparse matrix, ``fit(ratings)``, or as pairs of a row and a column with a value for
    each, ``fit(pairs, values)``. scikit-learn's cross-validation and searches split the pairs (see `EntryKFold`).

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
    # What scikit-learn's metadata routing hands on, unless asked otherwise.
    __metadata_request__fit: ClassVar = {"shape": True}
    weights_: Array

    _parameters: ClassVar[dict[str, Check]] = {
        "rank": bounded(integer, 1),
        "lam": bounded(number, least=0, below=0.5),
        "bias": flag,
        "limits": _limits,
        "random_state": seedable,
    }

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

    def fit(self, ratings: Any, y: Any = None, *, shape: tuple[int, int] | None = None) -> Self:
        """Complete a matrix.

        Parameters
        ----------
        ratings : sparse array, shape (m, n), or int array, shape (N, 2)
            The known entries; stored zeros are known. Or pairs of a row and a column.
        y : array, shape (N,), optional
            The values at the pairs.
        shape : (int, int), optional
            The shape of the matrix that pairs belong to; just large enough for them unless given, which may be too
            small for other pairs in cross-validation.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            For parameters or ratings that cannot be used; when scikit-learn's cross-validation splits the rows of a
            sparse matrix, since a row that `fit` did not see has no prediction.
        """
        check_parameters(self, self._parameters)
        if y is None and sys._getframe(1).f_globals.get("__name__") == "sklearn.model_selection._validation":
            # Nothing else tells a part of the rows from a matrix, and scores of other rows mean nothing.
            raise InvalidInputError(
                "rows of a matrix cannot be held out; split its known entries instead: pairs, values = "
                "entries(ratings), and cross_val_score(model, pairs, values, cv=EntryKFold(5), params={'shape': "
                "ratings.shape}), both from problems.subspace."
            )
        table, seed = table_of(ratings, y, shape), seed_of(self.random_state)
        if self.rank >= min(table.shape):
            raise InvalidInputError(
                f"rank = {self.rank} must be an integer from 1 to below the sides of the matrix, {table.shape}."
            )
        self._unit = unit = _unit(table.data)
        values = table.data / unit
        self.mean_ = float(values.mean())
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)
        rows, columns = table.indices, columns_of(table)
        low, basis = np.zeros(table.nnz), None
        with one_blas_thread():
            for _ in range(BIAS_ROUNDS if self.bias else 1):
                if self.bias:
                    self._fit_effects(values - self.mean_ - low, rows, columns)
                effects = self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
                left = KnownEntries((values - effects, rows, table.indptr), shape=table.shape)
                tasks = MatrixCompletion(left, self._n_agents, self.lam)
                basis = self.learn(tasks, basis, seed)
                W = np.concatenate([tasks.weights(basis, agent) for agent in tasks.here])
                low = predictions(basis, W, rows, columns)
        assert basis is not None
        self.components_, self.weights_, self.mean_ = basis, W * unit, self.mean_ * unit
        self.row_effects_, self.column_effects_ = self.row_effects_ * unit, self.column_effects_ * unit
        self.n_features_in_ = table.shape[1] if y is None else 2
        return self

    def _fit_effects(self, values: Array, rows: Array, columns: Array) -> None:
        """Fit damped effects of rows and columns to what is left of the values, in turns."""
        b, c = self.row_effects_, self.column_effects_
        counts = [np.bincount(n, minlength=len(e)) for n, e in ((rows, b), (columns, c))]
        for _ in range(BIAS_SWEEPS):
            b = np.bincount(rows, values - c[columns], len(b)) / (counts[0] + DAMPING[0])
            c = np.bincount(columns, values - b[rows], len(c)) / (counts[1] + DAMPING[1])
        self.row_effects_, self.column_effects_ = b, c

    def predict(self, rows: Any, columns: Any = None) -> Array:
        """Return the entries at pairs of a row and a column, within `limits` where they are given.

        Parameters
        ----------
        rows, columns : int or int array, shape (N,)
            One of them may be a single number: ``predict(5, range(n))``. Without `columns` the rows are pairs, shape
            (N, 2).

        Raises
        ------
        InvalidInputError
            When the numbers are not integers, or outside of the matrix.
        """
        check_is_fitted(self, "components_")
        rows, columns = checked_pairs(rows, columns, (len(self.components_), len(self.weights_)))
        found = predictions(self.components_, self.weights_, rows, columns)
        found += self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
        return found if self.limits is None else np.clip(found, *self.limits)

    def rmse(self, ratings: Any, y: Any = None) -> float:
        """Return the root mean square error of the predictions of known entries, given as in `fit`."""
        check_is_fitted(self, "components_")
        shape = len(self.components_), len(self.weights_)
        table = table_of(ratings, y, None if y is None else shape)
        if table.shape != shape:
            raise InvalidInputError(
                f"the ratings have shape {table.shape}, and fit saw a matrix of {shape}; the model has no other rows "
                "and columns."
            )
        gaps = self.predict(table.indices, columns_of(table)) - table.data
        unit = _unit(gaps)
        return float(np.sqrt(np.mean((gaps / unit) ** 2))) * unit

    def score(self, ratings: Any, y: Any = None) -> float:
        """Return minus the root mean square error: higher is better, as scikit-learn wants it."""
        return -self.rmse(ratings, y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Rows are no samples, and pairs are numbers of rows and columns.
        tags.no_validation = True
        return tags


def _unit(values: Array) -> float:
    """Return 1, or for very large or small values the power of 2 in whose units squares of squares are safe."""
    largest = float(np.abs(values).max(initial=0.0))
    return 1.0 if 1e-30 < largest < 1e30 or largest == 0.0 else 2.0 ** int(np.log2(largest))
