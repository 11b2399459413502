"""Gibbs sampling for matrix factorisation with effects of rows and columns (Salakhutdinov and Mnih 2008).

An entry is b_i + c_j + u_i · w_j and noise of precision α. The rows (b_i, u_i) are normal with a mean and a precision
that have a normal-Wishart prior, and so are the columns (c_j, w_j); α has a gamma prior. The priors are in units
where entries have mean 0 and a standard deviation of 1. There are effects as in myfm; here all that belongs to a row
is drawn at once.

Where rows have features f_i, the mean of a row is μ + Bᵀ f_i as in Macau (Simm et al. 2017), and the rows of B are
normal with mean 0 and precision λ Λ, with Λ the precision of the factors and λ with a gamma prior. The rows of B are
drawn in turn, each from its distribution given all else, where Macau solves a system for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from problems.subspace.cost import KnownEntries
from problems.subspace.half_sweeps import Regressed, Side
from problems.subspace.regression_kernels import draw_links
from rmopt.core.ambient import Array

# Of the normal-Wishart prior: how many rows its mean 0 counts for; its degrees of freedom are d and its scale I.
MEAN_WEIGHT = 2.0
# Of the gamma priors of α and λ, shape and rate.
GAMMA_SHAPE, GAMMA_RATE = 1.0, 1.0
# Precision and standard deviation of the factors at the start.
START_PRECISION, START = 5.0, 0.1


class FactorPrior(NamedTuple):
    """The normal distribution of factors: mean, shape (d,), and precision, shape (d, d).

    `shift` is what features add to the mean, shape (n, d), or 0.
    """

    mean: Array
    precision: Array
    shift: Any = 0.0


class Links:
    """How the factors of rows depend on a table of features: shift = F B.

    Parameters
    ----------
    features : sparse array, shape (n, p)
        F.
    d : int

    Attributes
    ----------
    weights : array, shape (p, d)
        B.
    strength : float
        λ.
    """

    def __init__(self, features: Any, d: int) -> None:
        table = sp.csc_array(features)
        self.known = table.indptr, table.indices, table.data
        self.weights, self.strength = np.zeros((table.shape[1], d)), 1.0

    def draw(self, apart: Array, precision: Array, rng: np.random.Generator) -> None:
        """Draw B and λ, given the precision of the factors and `apart`: factors − shift − mean, kept up to date."""
        numbers: Any = rng.standard_normal(self.weights.shape)
        noise = solve_triangular(np.linalg.cholesky(precision), numbers.T, lower=True, trans="T").T
        draw_links(self.known, apart, self.weights, self.strength, np.ascontiguousarray(noise))
        square = float(np.sum((self.weights @ precision) * self.weights))
        self.strength = float(rng.gamma(GAMMA_SHAPE + self.weights.size / 2.0) / (GAMMA_RATE + square / 2.0))


class Sample(NamedTuple):
    """One sweep's sample.

    The last row and the last column have no known entry: they are draws for any row and column that nobody has seen.
    `column_means` are the means of the columns given all else, of which `column_prior`, `column_links` and `alpha`
    are part.
    """

    rows: Array
    columns: Array
    column_means: Array
    column_prior: FactorPrior
    column_links: list[Array]
    alpha: float


def drawn_prior(factors: Array, rng: np.random.Generator, links: Sequence[Links] = ()) -> FactorPrior:
    """Draw mean and precision given factors without their shift, shape (n, d), from the normal-Wishart posterior."""
    n, d = factors.shape
    average = factors.mean(axis=0)
    apart, weight = factors - average, MEAN_WEIGHT + n
    scale = np.eye(d) + apart.T @ apart + (MEAN_WEIGHT * n / weight) * np.outer(average, average)
    freedom = d + n
    for link in links:
        # Each row of B tells of the precision as a row of factors does.
        scale += link.strength * link.weights.T @ link.weights
        freedom += len(link.weights)
    # Bartlett's decomposition: with scale⁻¹ = C Cᵀ the precision is (C T)(C T)ᵀ.
    triangle = np.tril(rng.standard_normal((d, d)), -1)
    np.fill_diagonal(triangle, np.sqrt(rng.chisquare(freedom - np.arange(d))))
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
    row_features, column_features : sequence of sparse arrays, shape (m, p) and (n, q)
        Each has a λ of its own.

    Attributes
    ----------
    by_rows, by_columns : Side
        Whose values may be changed between sweeps.
    rows, columns : array, shape (m + 1, rank + 1) and (n + 1, rank + 1)
        The last ones have no known entry.
    row_prior, column_prior : FactorPrior
    row_links, column_links : list of Links
    alpha : float
    """

    def __init__(
        self,
        table: KnownEntries,
        rank: int,
        rng: np.random.Generator,
        row_features: Sequence[Any] = (),
        column_features: Sequence[Any] = (),
    ) -> None:
        transposed = sp.csr_array(table)
        self.by_rows, self.by_columns = Side(transposed, transposed.data, 1), Side(table, table.data, 1)
        self.rng, self.alpha = rng, 1.0
        start = FactorPrior(np.zeros(rank + 1), START_PRECISION * np.eye(rank + 1))
        self.row_prior = self.column_prior = start
        self.row_links = [Links(features, rank + 1) for features in row_features]
        self.column_links = [Links(features, rank + 1) for features in column_features]
        self.rows = np.zeros((table.shape[0] + 1, rank + 1))
        self.columns = START * rng.standard_normal((table.shape[1] + 1, rank + 1))
        self.columns[:, 0] = 0.0

    def sweep(self) -> Sample:
        """Draw all once, and return the sample."""
        rng = self.rng
        self.rows = drawn(self.by_rows, self.columns, self.row_prior, self.alpha, rng).drawn
        self.row_prior = _linked_prior(self.rows, self.row_prior, self.row_links, rng)
        prior, alpha = self.column_prior, self.alpha
        links = [link.weights.copy() for link in self.column_links]
        found = drawn(self.by_columns, self.rows, prior, alpha, rng)
        self.columns = found.drawn
        self.column_prior = _linked_prior(self.columns, prior, self.column_links, rng)
        shape = GAMMA_SHAPE + len(self.by_columns.known[2]) / 2.0
        self.alpha = float(rng.gamma(shape) / (GAMMA_RATE + found.squares.sum() / 2.0))
        return Sample(self.rows, self.columns, found.means, prior, links, alpha)


def _linked_prior(
    factors: Array, prior: FactorPrior, links: Sequence[Links], rng: np.random.Generator
) -> FactorPrior:
    """Draw links, mean and precision given factors, the last of which has no features."""
    if not links:
        return drawn_prior(factors[:-1], rng)
    apart = (factors - prior.mean - prior.shift)[:-1]
    for link in links:
        link.draw(apart, prior.precision, rng)
    apart += prior.mean
    shift = np.zeros_like(factors)
    shift[:-1] = factors[:-1] - apart
    return drawn_prior(apart, rng, links)._replace(shift=shift)


def drawn(
    side: Side, features: Array, prior: FactorPrior, alpha: float, rng: np.random.Generator
) -> Regressed:
    """Draw the factors of each column of a side, given those of its rows."""
    n, d = len(side.counts), len(prior.mean)
    pull = np.empty((n, d))
    pull[:] = (prior.mean + prior.shift) @ prior.precision
    noise = rng.standard_normal((n, d))
    return side.regress(features, prior.precision, pull, alpha, noise, np.ones(n))
