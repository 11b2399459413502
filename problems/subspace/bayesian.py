"""Bayesian matrix factorisation by Gibbs sampling: predictions are means over samples, with standard deviations."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from problems.subspace.als import Regressed, Side, standardised
from problems.subspace.completer import CompletionModel
from problems.subspace.cost import KnownEntries
from problems.subspace.kernels import add_sampled, draw_links
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, integer, number
from rmopt.core.streams import Stream, generator

# The weight in rows of the mean 0 of the normal-Wishart prior, with d degrees of freedom and scale I.
MEAN_WEIGHT = 2.0
# Shape and rate of the gamma priors of α and λ.
GAMMA_SHAPE, GAMMA_RATE = 1.0, 1.0
# Initial precision and standard deviation of the factors.
START_PRECISION, START = 5.0, 0.1


class FactorPrior(NamedTuple):
    """The normal distribution of factors: mean, shape (d,), and precision, shape (d, d).

    `shift` is the features' contribution to the mean, shape (n, d), or 0.
    """

    mean: Array
    precision: Array
    shift: Any = 0.0


def known_flags(table: sp.csc_array) -> sp.csr_array:
    """Return the known rows of each column as features, scaled so that their squares add up to 1."""
    counts = np.diff(table.indptr)
    values = np.repeat(1.0 / np.sqrt(np.maximum(counts, 1)), counts)
    return sp.csr_array((values, table.indices, table.indptr), shape=table.shape[::-1])


class Links:
    """The dependence of rows' factors on a table of features: shift = F B.

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
        """Draw B and λ, given the precision of the factors and `apart`, factors − shift − mean, which is updated."""
        if not len(self.weights):
            return
        numbers: Any = rng.standard_normal(self.weights.shape)
        noise = solve_triangular(np.linalg.cholesky(precision), numbers.T, lower=True, trans="T").T
        draw_links(self.known, apart, self.weights, self.strength, np.ascontiguousarray(noise))
        square = float(np.sum((self.weights @ precision) * self.weights))
        self.strength = float(rng.gamma(GAMMA_SHAPE + self.weights.size / 2.0) / (GAMMA_RATE + square / 2.0))


class Sample(NamedTuple):
    """One sweep's sample, by the names of the attributes that store it.

    The last row and the last column have no known entry: they are draws for unknown rows and columns. `column_means_`
    are the means of the columns given all else, including the following attributes.
    """

    row_samples_: Array
    column_samples_: Array
    column_means_: Array
    noise_precisions_: float
    column_prior_means_: Array
    column_prior_precisions_: Array
    column_links_: Array


def drawn_prior(factors: Array, links: Links, rng: np.random.Generator) -> FactorPrior:
    """Draw mean and precision given factors without their shift, shape (n, d), from the normal-Wishart posterior."""
    n, d = factors.shape
    average = factors.mean(axis=0)
    apart, weight = factors - average, MEAN_WEIGHT + n
    scale = np.eye(d) + apart.T @ apart + (MEAN_WEIGHT * n / weight) * np.outer(average, average)
    # Each row of B informs the precision as a row of factors does.
    scale += links.strength * links.weights.T @ links.weights
    freedom = d + n + len(links.weights)
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
    """A chain of samples. Each `sweep` draws rows, columns, their priors and α in turn.

    An entry is b_i + c_j + u_i · w_j and noise of precision α (Salakhutdinov and Mnih 2008). The rows (b_i, u_i) are
    normal with a mean and a precision that have a normal-Wishart prior, and so are the columns (c_j, w_j); α has a
    gamma prior. The priors are for entries with mean 0 and standard deviation 1. There are effects as in myfm, but
    here all numbers of a row are drawn together.

    If rows have features f_i, the mean of a row is μ + Bᵀ f_i as in Macau (Simm et al. 2017), and the rows of B are
    normal with mean 0 and precision λ Λ, with Λ the precision of the factors and λ with a gamma prior. The rows of B
    are drawn in turn, each from its distribution given all else, whereas Macau solves a system for all of them. With
    `implicit` the features of a row are its known columns, and those of a column its rows.

    Attributes
    ----------
    by_rows, by_columns : Side
        Known entries, whose values may be changed between sweeps.
    rows, columns : array, shape (m + 1, rank + 1) and (n + 1, rank + 1)
        The last ones have no known entry.
    row_prior, column_prior : FactorPrior
    row_links, column_links : Links
    alpha : float
    """

    def __init__(
        self, table: KnownEntries, rank: int, rng: np.random.Generator, implicit: bool = False
    ) -> None:
        transposed = sp.csr_array(table)
        self.by_rows, self.by_columns = Side(transposed, transposed.data, 1), Side(table, table.data, 1)
        self.rng, self.alpha = rng, 1.0
        self.row_links, self.column_links = (
            Links(known_flags(side) if implicit else sp.csr_array((side.shape[1], 0)), rank + 1)
            for side in (sp.csc_array(table.T), table)
        )
        start = FactorPrior(np.zeros(rank + 1), START_PRECISION * np.eye(rank + 1))
        self.row_prior = self.column_prior = start
        self.rows = np.zeros((table.shape[0] + 1, rank + 1))
        self.columns = START * rng.standard_normal((table.shape[1] + 1, rank + 1))
        self.columns[:, 0] = 0.0

    def sweep(self) -> Sample:
        """Draw all once, and return the sample."""
        rng = self.rng
        rows, _, squares = regressed(self.by_rows, self.columns, self.row_prior, self.alpha, rng)
        self.rows, prior, _ = rescaled(rows, self.row_prior, self.row_links, squares, self.alpha, rng)
        self.row_prior = _linked_prior(self.rows, prior, self.row_links, rng)
        columns, means, squares = regressed(self.by_columns, self.rows, self.column_prior, self.alpha, rng)
        prior, links = self.column_prior, self.column_links.weights.copy()
        sample = Sample(self.rows, columns, means, self.alpha, prior.mean, prior.precision, links)
        self.columns, prior, square = rescaled(columns, prior, self.column_links, squares, self.alpha, rng)
        self.column_prior = _linked_prior(self.columns, prior, self.column_links, rng)
        shape = GAMMA_SHAPE + len(self.by_columns.known[2]) / 2.0
        self.alpha = float(rng.gamma(shape) / (GAMMA_RATE + square / 2.0))
        return sample


def rescaled(
    factors: Array, prior: FactorPrior, links: Links, squares: Array, alpha: float, rng: np.random.Generator
) -> tuple[Array, FactorPrior, float]:
    """Draw the scale of all factors of a side, with their prior and links, and return the squared residuals too.

    Given factors their prior hardly moves, and given the prior neither do they: otherwise the scale would take
    hundreds of sweeps to converge. The ratio of scales is drawn from a normal distribution by the entries, and
    accepted or not by the prior and the measure that makes such moves leave the distribution invariant (Liu and
    Sabatti 2000).
    """
    d = factors.shape[1]
    square, along, length = squares.sum(axis=0).tolist()
    if length == 0.0:
        return factors, prior, square
    ratio = 1.0 + along / length + rng.standard_normal() / np.sqrt(alpha * length)
    trace = np.trace(prior.precision[1:, 1:])
    odds = -(d * (d - 1) + 1) * np.log(abs(ratio)) - 0.5 * trace * (ratio**-2 - 1.0)
    if np.log(rng.random()) >= odds:
        return factors, prior, square
    sizes = np.append(1.0, np.full(d - 1, ratio))
    links.weights = links.weights * sizes
    prior = FactorPrior(prior.mean * sizes, prior.precision / np.outer(sizes, sizes), prior.shift * sizes)
    return factors * sizes, prior, square - 2.0 * (ratio - 1.0) * along + (ratio - 1.0) ** 2 * length


def _linked_prior(factors: Array, prior: FactorPrior, links: Links, rng: np.random.Generator) -> FactorPrior:
    """Draw links, mean and precision given factors, the last of which has no features."""
    apart = (factors - prior.mean - prior.shift)[:-1]
    links.draw(apart, prior.precision, rng)
    apart += prior.mean
    shift = np.zeros_like(factors)
    shift[:-1] = factors[:-1] - apart
    return drawn_prior(apart, links, rng)._replace(shift=shift)


def regressed(
    side: Side, features: Array, prior: FactorPrior, alpha: float, rng: np.random.Generator | None = None
) -> Regressed:
    """Draw the factors of each column of a side, given those of its rows, or without `rng` return their means."""
    n, d = len(side.counts), len(prior.mean)
    pull = np.broadcast_to((prior.mean + prior.shift) @ prior.precision, (n, d))
    noise = np.zeros((n, d)) if rng is None else rng.standard_normal((n, d))
    return side.regress(features, prior.precision, np.ascontiguousarray(pull), alpha, noise, np.ones(n))


@dataclass(eq=False, repr=False)
class BayesianCompletion(CompletionModel):
    """Bayesian matrix factorisation with effects of rows and columns, by Gibbs sampling.

    The model is that of Salakhutdinov and Mnih 2008 with effects. There is nothing to tune: variances and
    correlations of factors and effects are sampled too. A prediction is the mean over samples of b_i + E c_j + u_i ·
    E w_j, in which the effect and the factors of the column are replaced by their mean given all else in the sample.
    This has the same mean as the samples themselves and a smaller variance (Rao and Blackwell), so that few samples
    suffice. They are stored in single precision, 4 · n_samples · (rank + 1) · (m + 2 n) bytes.

    With ``implicit=True`` the known columns of a row are its features, as in SVD++ (Koren 2008), and the known rows
    those of a column: who rates a film is informative, whatever the rating. Features move the mean of factors and
    effects by a linear map that is sampled too, as in Macau (Simm et al. 2017).

    Parameters
    ----------
    rank : int
    limits, handle_unknown : optional
        As in `RTRMC`.
    random_state : int, RandomState or None
        Equal integers give identical results, with any number of threads.
    n_samples : int
        Number of stored samples.
    burn_in : int
        Number of sweeps before the first stored one.
    implicit : bool
        Whether to use which entries are known as features. A sweep then takes twice the time.

    Attributes
    ----------
    row_samples_, column_samples_, column_means_ : array, shape (n_samples, m + 1 or n + 1, rank + 1)
        (b_i, u_i), (c_j, w_j), and means of the latter given all else in their sample, for entries of mean 0 and
        standard deviation 1. The last row and column are draws for unknown ones.
    noise_precisions_ : array, shape (n_samples,)
        α, for entries of standard deviation 1.
    column_prior_means_, column_prior_precisions_ : array, shape (n_samples, rank + 1) and with another rank + 1
        The prior of the columns in each sample.
    column_links_ : array, shape (n_samples, m or 0, rank + 1)
        The contribution of each known row to effects and factors of a column, with ``implicit=True``.
    mean_, scale_ : float
        Mean and standard deviation of the known entries.
    known_, row_names_, column_names_
        As of `RTRMC`.

    See Also
    --------
    BiasedALS : one model instead of many samples, smaller and faster.
    RTRMC : data without noise, to rounding.

    References
    ----------
    Salakhutdinov and Mnih, Bayesian probabilistic matrix factorization using Markov chain Monte Carlo, ICML
    (2008), https://doi.org/10.1145/1390156.1390267.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import BayesianCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = 3.0 + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> noisy = truth + 0.1 * rng.standard_normal((40, 60))
    >>> known = sp.csc_array(noisy * (rng.random((40, 60)) < 0.6))
    >>> model = BayesianCompletion(rank=2, n_samples=50, random_state=0).fit(known)
    >>> mean, std = model.predict(5, range(60), return_std=True)
    >>> bool(np.mean(np.abs(mean - noisy[5]) < 2 * std) > 0.9), bool(std.max() < 0.25)
    (True, True)
    """

    _: KW_ONLY
    n_samples: Annotated[int, bounded(integer, 1)] = 100
    burn_in: Annotated[int, bounded(integer, 0)] = 10
    implicit: Annotated[bool, flag] = False

    _arrays: ClassVar = {
        **CompletionModel._arrays,
        "row_samples_": (np.float32, ("samples", "m and one", "d")),
        "column_samples_": (np.float32, ("samples", "n and one", "d")),
        "column_means_": (np.float32, ("samples", "n and one", "d")),
        "noise_precisions_": (float, ("samples",)),
        "column_prior_means_": (float, ("samples", "d")),
        "column_prior_precisions_": (float, ("samples", "d", "d")),
        "column_links_": (np.float32, ("samples", "q", "d")),
    }
    _numbers: ClassVar = {**CompletionModel._numbers, "mean_": number, "scale_": number}

    def _learn(self, table: KnownEntries, seed: int) -> None:
        entries, self.mean_, self.scale_ = standardised(table)
        sampler = GibbsSampler(entries, self.rank, generator(seed, Stream.INNER), self.implicit)
        for _ in range(self.burn_in):
            sampler.sweep()
        for s in range(self.n_samples):
            for name, value in sampler.sweep()._asdict().items():
                if s == 0:
                    setattr(self, name, np.empty((self.n_samples, *np.shape(value)), self._arrays[name][0]))
                getattr(self, name)[s] = value
        _weigh_unseen(sampler.by_rows.counts, self.row_samples_)
        _weigh_unseen(sampler.by_columns.counts, self.column_samples_, self.column_means_)

    def _std(self, rows: Array, columns: Array) -> Array:
        mean, square = self._moments(rows, columns, self.column_samples_)
        variance = np.maximum(square - mean**2, 0.0) + np.mean(1.0 / self.noise_precisions_)
        return self.scale_ * np.sqrt(variance)

    def _values(self, rows: Array, columns: Array) -> Array:
        return self.mean_ + self.scale_ * self._moments(rows, columns, self.column_means_)[0]

    def _moments(self, rows: Array, columns: Array, column_samples: Array) -> tuple[Array, Array]:
        """Return the mean over samples of b_i + c_j + u_i · w_j, and that of its square."""
        sums, squares = np.zeros(len(rows)), np.zeros(len(rows))
        add_sampled(rows, columns, self.row_samples_, column_samples, sums, squares)
        return sums / len(self.row_samples_), squares / len(self.row_samples_)

    def _factors(self) -> tuple[Array, Array]:
        # Side by side, for the sum of the samples' products.
        m, n = self.known_.shape
        rows, columns = self.row_samples_[:, :m, 1:], self.column_means_[:, :n, 1:]
        # Draws of the prior resemble no other row.
        known = np.bincount(self.known_.indices, minlength=m) > 0
        return known[:, None] * rows.swapaxes(0, 1).reshape(m, -1), columns.swapaxes(0, 1).reshape(n, -1)

    def _in_new_column(self, table: KnownEntries) -> Array:
        side = Side(table, (table.data - self.mean_) / (self.scale_ or 1.0))
        flags = known_flags(table)[:, : self.column_links_.shape[1]]
        scores = np.zeros(table.shape[0])
        for s, rows in enumerate(self.row_samples_.astype(float)):
            shift = flags @ self.column_links_[s].astype(float)
            prior = FactorPrior(self.column_prior_means_[s], self.column_prior_precisions_[s], shift)
            (x,) = regressed(side, rows, prior, self.noise_precisions_[s]).means
            scores += rows[:-1, 0] + x[0] + rows[:-1, 1:] @ x[1:]
        return self.mean_ + self.scale_ * scores / len(self.row_samples_)

    def _restore(self, arrays: dict[str, Array]) -> None:
        super()._restore(arrays)
        m, n = self.known_.shape
        sizes = [array.shape[1] for array in (self.row_samples_, self.column_samples_, self.column_links_)]
        if sizes != [m + 1, n + 1, m * self.implicit]:
            raise ValueError("its samples are of another matrix")
        if len(self.noise_precisions_) != self.n_samples or not np.all(self.noise_precisions_ > 0.0):
            raise ValueError("it has no precision of the noise for each sample")


def _weigh_unseen(counts: Array, *samples: Array) -> None:
    """Move the draws of the last row from the mean of the rows to that of the entries, since a few rows have most."""
    weights = np.float32(counts / counts.sum() - (counts > 0) / np.count_nonzero(counts))
    for some in samples:
        some[:, -1] += weights @ some
