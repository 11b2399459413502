"""Bayesian matrix factorisation as an estimator: predictions are means over samples, with standard deviations."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import numpy as np

from problems.subspace.als import standardised
from problems.subspace.completer import CompletionModel
from problems.subspace.cost import KnownEntries
from problems.subspace.gibbs import FactorPrior, GibbsSampler, drawn
from problems.subspace.half_sweeps import Side
from problems.subspace.regression_kernels import add_sampled
from rmopt.core.arguments import bounded, integer
from rmopt.core.streams import Stream, generator

Array = np.ndarray


@dataclass(eq=False, repr=False)
class BayesianCompletion(CompletionModel):
    """Bayesian matrix factorisation with effects of rows and columns, by Gibbs sampling.

    The model is that of Salakhutdinov and Mnih 2008 with effects. There is nothing to tune: how much factors and
    effects vary, and how they hang together, is sampled too. A prediction is the mean over samples of
    b_i + E c_j + u_i · E w_j, where the effect and the factors of the column are replaced by their mean given all
    else in the sample. This has the same mean as the samples themselves and a smaller variance (Rao and Blackwell):
    few samples will do. They are kept in single precision, 4 · n_samples · (rank + 1) · (m + 2 n) bytes.

    Parameters
    ----------
    rank : int
    limits : (float, float), optional
        Predictions are clipped to them.
    handle_unknown : {"error", "mean"}
        What to do with rows and columns that `fit` did not see; "mean": predict the mean, with a warning.
    random_state : int, RandomState or None
        Equal integers give equal bits, with any number of threads.
    n_samples : int
        How many samples are kept.
    burn_in : int
        Sweeps before the first one that is kept.
    thinning : int
        Of so many sweeps one is kept.

    Attributes
    ----------
    row_samples_, column_samples_, column_means_ : array, shape (n_samples, m + 1 or n + 1, rank + 1)
        (b_i, u_i), (c_j, w_j), and means of the latter given all else in their sample, for entries of mean 0 and
        standard deviation 1. The last row and column are draws for those of which nothing is known.
    noise_precisions_ : array, shape (n_samples,)
        α, for entries of standard deviation 1.
    column_priors_ : list of (array, array)
        Mean and precision of the columns in each sample.
    mean_, scale_ : float
        Of the known entries, whose standard deviation is `scale_`.
    known_, row_names_, column_names_
        As of `RTRMC`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rng = np.random.default_rng(0)
    >>> truth = 3.0 + rng.standard_normal((40, 1)) + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> noisy = truth + 0.1 * rng.standard_normal((40, 60))
    >>> model = BayesianCompletion(rank=2, random_state=0).fit(sp.csc_array(noisy * (rng.random((40, 60)) < 0.6)))
    >>> mean, std = model.predict(5, range(60), return_std=True)
    >>> bool(np.mean(np.abs(mean - noisy[5]) < 2 * std) > 0.9), bool(np.all((0.09 < std) & (std < 0.25)))
    (True, True)
    """

    _: KW_ONLY
    n_samples: Annotated[int, bounded(integer, 1)] = 100
    burn_in: Annotated[int, bounded(integer, 0)] = 10
    thinning: Annotated[int, bounded(integer, 1)] = 1

    def _learn(self, table: KnownEntries, seed: int) -> None:
        self._seed = seed
        values, self.mean_, self.scale_ = standardised(table.data)
        entries = KnownEntries((values, table.indices, table.indptr), shape=table.shape)
        sampler = GibbsSampler(entries, self.rank, generator(seed, Stream.INNER))
        kept = [
            np.empty((self.n_samples, size + 1, self.rank + 1), dtype=np.float32)
            for size in (table.shape[0], table.shape[1], table.shape[1])
        ]
        self.row_samples_, self.column_samples_, self.column_means_ = kept
        self.noise_precisions_, self.column_priors_ = np.empty(self.n_samples), []
        for _ in range(self.burn_in):
            sampler.sweep()
        for s in range(self.n_samples):
            for _ in range(self.thinning):
                sample = sampler.sweep()
            self.row_samples_[s], self.column_samples_[s] = sample.rows, sample.columns
            self.column_means_[s], self.noise_precisions_[s] = sample.column_means, sample.alpha
            self.column_priors_.append(sample.column_prior)

    def predict(self, rows: Any, columns: Any = None, *, return_std: bool = False) -> Any:
        """Return the entries at pairs of a row and a column, within `limits` where they are given.

        Parameters
        ----------
        rows, columns : int or int array, shape (N,)
            One of them may be a single number: ``predict(5, range(n))``. Without `columns` the rows are pairs, shape
            (N, 2).
        return_std : bool
            Return standard deviations too: of an entry that will be observed, its noise included.

        Returns
        -------
        values : array, shape (N,)
        std : array, shape (N,)
            Where ``return_std``.

        Raises
        ------
        InvalidInputError
            When the numbers are not integers, or outside of the matrix unless ``handle_unknown="mean"``.
        """
        rows, columns = self._places(rows, columns)
        values = self._within(self._values(rows, columns))
        if not return_std:
            return values
        mean, square = self._moments(rows, columns, self.column_samples_)
        variance = np.maximum(square - mean**2, 0.0) + np.mean(1.0 / self.noise_precisions_)
        return values, self.scale_ * np.sqrt(variance)

    def _values(self, rows: Array, columns: Array) -> Array:
        return self.mean_ + self.scale_ * self._moments(rows, columns, self.column_means_)[0]

    def _moments(self, rows: Array, columns: Array, column_samples: Array) -> tuple[Array, Array]:
        """Return the mean over samples of b_i + c_j + u_i · w_j, and that of its square."""
        sums, squares = np.zeros(len(rows)), np.zeros(len(rows))
        add_sampled(rows, columns, self.row_samples_, column_samples, sums, squares)
        return sums / self.n_samples, squares / self.n_samples

    def _append(self, table: KnownEntries) -> None:
        side = Side(table, (table.data - self.mean_) / (self.scale_ or 1.0))
        before = self.column_samples_.shape[1] - 1
        shape = self.n_samples, table.shape[1], self.rank + 1
        samples, means = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
        for s, prior in enumerate(self.column_priors_):
            # Columns that come later have other numbers.
            rng = generator(self._seed, Stream.INNER, s, before)
            given = self.row_samples_[s].astype(float), FactorPrior(*prior), self.noise_precisions_[s]
            found = drawn(side, *given, rng)
            samples[s], means[s] = found.drawn, found.means
        # The last column stays the one of which nothing is known.
        self.column_samples_, self.column_means_ = (
            np.concatenate([old[:, :-1], new, old[:, -1:]], axis=1)
            for old, new in ((self.column_samples_, samples), (self.column_means_, means))
        )
