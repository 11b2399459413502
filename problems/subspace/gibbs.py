"""Gibbs sampling for matrix factorisation with effects of rows and columns (Salakhutdinov and Mnih 2008).

An entry is b_i + c_j + u_i · w_j and noise of precision α. The rows (b_i, u_i) are normal with a mean and a precision
that have a normal-Wishart prior, and so are the columns (c_j, w_j); α has a gamma prior. The priors are in units
where entries have mean 0 and a standard deviation of 1. There are effects as in myfm; here all that belongs to a row
is drawn at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from problems.subspace.cost import KnownEntries
from problems.subspace.half_sweeps import Regressed, Side

Array = np.ndarray

# Of the normal-Wishart prior: how many rows its mean 0 counts for; its degrees of freedom are d and its scale I.
MEAN_WEIGHT = 2.0
# Of the gamma prior of α, shape and rate.
NOISE_SHAPE, NOISE_RATE = 1.0, 1.0
# Precision and standard deviation of the factors at the start.
START_PRECISION, START = 5.0, 0.1


class FactorPrior(NamedTuple):
    """The normal distribution of factors: mean, shape (d,), and precision, shape (d, d)."""

    mean: Array
    precision: Array


class Sample(NamedTuple):
    """One sweep's sample.

    The last row and the last column have no known entry: they are draws for any row and column that nobody has seen.
    `column_means` are the means of the columns given all else, of which `column_prior` and `alpha` are part.
    """

    rows: Array
    columns: Array
    column_means: Array
    column_prior: FactorPrior
    alpha: float


def drawn_prior(factors: Array, rng: np.random.Generator) -> FactorPrior:
    """Draw mean and precision given factors, shape (n, d), from their normal-Wishart posterior."""
    n, d = factors.shape
    average = factors.mean(axis=0)
    apart, weight = factors - average, MEAN_WEIGHT + n
    scale = np.eye(d) + apart.T @ apart + (MEAN_WEIGHT * n / weight) * np.outer(average, average)
    # Bartlett's decomposition: with scale⁻¹ = C Cᵀ the precision is (C T)(C T)ᵀ.
    triangle = np.tril(rng.standard_normal((d, d)), -1)
    np.fill_diagonal(triangle, np.sqrt(rng.chisquare(d + n - np.arange(d))))
    root = solve_triangular(np.linalg.cholesky(scale), triangle, lower=True, trans="T")
    precision = root @ root.T
    away = solve_triangular(
        np.linalg.cholesky(weight * precision), rng.standard_normal(d), lower=True, trans="T"
    )
    return FactorPrior(n * average / weight + away, precision)


class GibbsSampler:
    """A chain of samples; each `sweep` draws rows, columns, their priors and α in turn.

    Parameters
    ----------
    table : KnownEntries
        With values of mean 0 and a standard deviation of 1.
    rank : int
    rng : numpy Generator

    Attributes
    ----------
    by_rows, by_columns : Side
        Whose values may be changed between sweeps.
    rows, columns : array, shape (m + 1, rank + 1) and (n + 1, rank + 1)
        The last ones have no known entry.
    alpha : float
    """

    def __init__(self, table: KnownEntries, rank: int, rng: np.random.Generator) -> None:
        transposed = sp.csr_array(table)
        self.by_rows, self.by_columns = Side(transposed, transposed.data, 1), Side(table, table.data, 1)
        self.rng, self.alpha = rng, 1.0
        start = FactorPrior(np.zeros(rank + 1), START_PRECISION * np.eye(rank + 1))
        self._row_prior = self._column_prior = start
        self.rows = np.zeros((table.shape[0] + 1, rank + 1))
        self.columns = START * rng.standard_normal((table.shape[1] + 1, rank + 1))
        self.columns[:, 0] = 0.0

    def sweep(self) -> Sample:
        """Draw all once, and return the sample."""
        rng = self.rng
        self.rows = drawn(self.by_rows, self.columns, self._row_prior, self.alpha, rng).drawn
        self._row_prior = drawn_prior(self.rows[:-1], rng)
        given = self._column_prior, self.alpha
        found = drawn(self.by_columns, self.rows, *given, rng)
        self.columns = found.drawn
        self._column_prior = drawn_prior(self.columns[:-1], rng)
        shape = NOISE_SHAPE + len(self.by_columns.known[2]) / 2.0
        self.alpha = float(rng.gamma(shape) / (NOISE_RATE + found.squares.sum() / 2.0))
        return Sample(self.rows, self.columns, found.means, *given)


def drawn(
    side: Side, features: Array, prior: FactorPrior, alpha: float, rng: np.random.Generator
) -> Regressed:
    """Draw the factors of each column of a side, given those of its rows."""
    n, pull = len(side.counts), prior.precision @ prior.mean
    noise = rng.standard_normal((n, len(pull)))
    return side.regress(features, prior.precision, pull, alpha, noise, np.ones(n))
