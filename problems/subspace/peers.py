"""What users would take in place of this package, as methods of the completion experiment: ``fit(pairs, values)``.

The packages come with ``pip install "rmopt[bench]"``. implicit is not among them: it ranks by confidence and predicts
no ratings.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from problems.door import package
from problems.subspace.als import BiasedALS
from problems.subspace.pairs import checked_pairs
from rmopt.core.ambient import Array
from rmopt.core.streams import seed_of

# How to have these packages.
BENCH = '"rmopt[bench]"', "leave them out"


class Peer(BaseEstimator):
    """Another package's model; pairs with a number above those in `fit` get the mean."""

    def fit(self, pairs: Any, values: Any) -> Self:
        """Fit the model to values at pairs, shape (N, 2)."""
        rows, columns = checked_pairs(pairs, None, None)
        values = np.asarray(values, dtype=float)
        self.mean_, self.shape_ = float(values.mean()), (int(rows.max()) + 1, int(columns.max()) + 1)
        self._learn(rows, columns, values)
        return self

    def predict(self, pairs: Any) -> Array:
        """Return predictions at pairs, shape (N,)."""
        rows, columns = checked_pairs(pairs, None, None)
        known = (rows < self.shape_[0]) & (columns < self.shape_[1])
        found = np.full(len(rows), self.mean_)
        if known.any():
            found[known] = self._values(rows[known], columns[known])
        return np.where(np.isfinite(found), found, self.mean_)

    @abstractmethod
    def _learn(self, rows: Array, columns: Array, values: Array) -> None:
        """Set the fitted attributes."""

    @abstractmethod
    def _values(self, rows: Array, columns: Array) -> Array:
        """Return predictions; NaN where there is none."""


@dataclass(eq=False, repr=False)
class Biases(Peer):
    """Mean and effects of rows and columns, each with the penalty of so many ratings."""

    lam: float = 5.0

    def _learn(self, rows: Array, columns: Array, values: Array) -> None:
        pairs = np.column_stack([rows, columns])
        self.model_ = BiasedALS(0, lam=self.lam, count_power=0.0, random_state=0).fit(pairs, values)

    def _values(self, rows: Array, columns: Array) -> Array:
        return self.model_.predict(rows, columns)


@dataclass(eq=False, repr=False)
class CMFRec(Peer):
    """cmfrec: alternating least squares with effects (Cortes 2018), on one thread."""

    rank: int = 10
    random_state: int = 0
    lam: float = 10.0
    max_iter: int = 25

    def _learn(self, rows: Array, columns: Array, values: Array) -> None:
        self.model_ = package("cmfrec", *BENCH).CMF(
            k=self.rank, lambda_=self.lam, niter=self.max_iter, use_cg=False, nthreads=1, verbose=False,
            random_state=seed_of(self.random_state),
        )  # fmt: skip
        self.model_.fit(sp.coo_matrix((values, (rows, columns)), shape=self.shape_))

    def _values(self, rows: Array, columns: Array) -> Array:
        return np.asarray(self.model_.predict(rows, columns), dtype=float)


@dataclass(eq=False, repr=False)
class MyFM(Peer):
    """myfm: a Bayesian factorisation machine of row and column by Gibbs sampling, on one thread.

    Parameters
    ----------
    rank : int
    random_state : int
    n_samples, burn_in : int
    implicit : bool
        What a row and a column know are features, as of `BayesianCompletion`.
    """

    rank: int = 10
    random_state: int = 0
    n_samples: int = 100
    burn_in: int = 10
    implicit: bool = False

    def _learn(self, rows: Array, columns: Array, values: Array) -> None:
        self.model_ = package("myfm", *BENCH).MyFMRegressor(
            rank=self.rank, random_seed=seed_of(self.random_state)
        )
        known = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=self.shape_)
        self.tables_ = [self._one_hot(known), self._one_hot(known.T.tocsr())]
        groups = [size for table in (known, known.T) for size in table.shape[: 1 + self.implicit]]
        self.model_.fit(
            None, values, X_rel=self._related(rows, columns), n_iter=self.burn_in + self.n_samples,
            n_kept_samples=self.n_samples, group_shapes=groups,
        )  # fmt: skip

    def _values(self, rows: Array, columns: Array) -> Array:
        return np.asarray(self.model_.predict(None, X_rel=self._related(rows, columns)))

    def _one_hot(self, known: sp.csr_array) -> sp.csr_matrix:
        """Return which row it is, and in squares that add up to 1 what it knows."""
        parts = [sp.eye_array(known.shape[0])]
        if self.implicit:
            counts = np.maximum(np.diff(known.indptr), 1)
            parts.append(sp.diags_array(1.0 / np.sqrt(counts)) @ known)
        return sp.csr_matrix(sp.hstack(parts))

    def _related(self, rows: Array, columns: Array) -> list[Any]:
        block = package("myfm", *BENCH).RelationBlock
        return [block(which, table) for which, table in zip((rows, columns), self.tables_, strict=True)]


@dataclass(eq=False, repr=False)
class LibMF(Peer):
    """LIBMF: stochastic gradient descent with a penalty by counts (Chin et al. 2015); its `predict` is not used."""

    rank: int = 10
    lam: float = 0.05
    max_iter: int = 30

    def _learn(self, rows: Array, columns: Array, values: Array) -> None:
        model = package("libmf.mf", *BENCH).MF(
            k=self.rank, nr_iters=self.max_iter, lambda_p2=self.lam, lambda_q2=self.lam, lambda_p1=0.0,
            lambda_q1=0.0, nr_threads=1, quiet=True,
        )  # fmt: skip
        model.fit(np.column_stack([rows, columns, values - self.mean_]))
        self.factors_ = model.p_factors(), model.q_factors()

    def _values(self, rows: Array, columns: Array) -> Array:
        P, Q = self.factors_
        return self.mean_ + np.einsum("ij,ij->i", P[rows], Q[columns])
