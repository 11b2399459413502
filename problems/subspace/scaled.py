"""Completion by stochastic steps on the rows of factors: for many entries and high ranks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from problems.subspace.als import START, Penalty, alternated, standardised
from problems.subspace.completer import PointCompletion
from problems.subspace.cost import KnownEntries, columns_of
from rmopt import Problem
from rmopt.core import Parts
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, integer, number
from rmopt.core.streams import Stream, generator
from rmopt.costs import BilinearSum, OnFactors, squared
from rmopt.manifolds import BoundedRank
from rmopt.solvers import Cosine, ScaledSGD

# Of rows and columns in turns, at most.
SWEEPS = 15


@dataclass(eq=False, repr=False)
class ScaledSGDCompletion(PointCompletion):
    """Matrix completion by stochastic gradients of single entries, scaled so that the condition does not matter.

    Minimises Σ (y_ij − u_i · w_j)² + λ (‖u_i‖² + ‖w_j‖²) over the known entries, which are centred and scaled to a
    standard deviation of 1, among balanced factors alone (UᵀU = WᵀW): where rows have many more entries than columns,
    or fewer, others have a smaller penalty. u_i and w_j have two numbers more than the rank; at the start these are
    the effects of rows and columns. A pass takes O(k) an entry, in threads and in single precision
    (`rmopt.solvers.ScaledSGD`); step sizes fall to 0 along a cosine.

    Parameters
    ----------
    rank : int
    limits, handle_unknown : optional
        As in `RTRMC`.
    random_state : int, RandomState or None
        Of start and order; equal integers give equal bits, for any number of threads.
    lam : float
        λ.
    step_size : float
        Of the first pass, as of `rmopt.solvers.ScaledSGD`.
    n_epochs : int
        Passes over the entries.

    Attributes
    ----------
    components_, weights_, mean_
        U, W and the mean; `row_effects_` and `column_effects_` are 0, for they are part of U and W.
    known_, row_names_, column_names_
        As of `RTRMC`.

    See Also
    --------
    BiasedALS : smaller errors for ratings, at O(k²) an entry.

    References
    ----------
    Zhang, Chiu and Zhang, Accelerating SGD for highly ill-conditioned huge-scale online matrix completion, NeurIPS
    (2022).

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import ScaledSGDCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = 3.0 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 80))
    >>> known = sp.csc_array(truth * (rng.random((60, 80)) < 0.6))
    >>> model = ScaledSGDCompletion(rank=2, lam=1e-4, n_epochs=40, random_state=0)
    >>> bool(np.abs(model.fit(known).predict(5, range(80)) - truth[5]).max() < 0.01)
    True
    """

    rank: Annotated[int, bounded(integer, 1)] = 10
    _: KW_ONLY
    lam: Annotated[float, bounded(number, above=0)] = 0.04
    step_size: Annotated[float, bounded(number, above=0)] = 3.0
    n_epochs: Annotated[int, bounded(integer, 1)] = 20

    def _learn(self, table: KnownEntries, seed: int, *features: Any) -> None:
        values, self.mean_, unit = standardised(table.data)
        # The effects of rows and columns alone, of which a few sweeps find enough.
        row_effects, column_effects, *_ = alternated(
            table, values, Penalty(self.lam, 1.0), np.zeros((table.shape[1], 1)), SWEEPS, 1e-4
        )
        width, rng = min(self.rank + 2, *table.shape), generator(seed, Stream.START)
        U, W = (START * rng.standard_normal((size, width)) for size in table.shape)
        U[:, :2], W[:, :2] = np.insert(row_effects, 1, 1.0, axis=1), np.insert(column_effects, 0, 1.0, axis=1)
        m, n = table.shape
        cost = BilinearSum(_units(table.indices, m), _units(columns_of(table), n), squared, values)
        problem = Problem(BoundedRank(m, n, width), OnFactors(cost))
        solver = ScaledSGD(Cosine(self.step_size, self.n_epochs), n_epochs=self.n_epochs, penalty=self.lam)
        start = Parts([U.astype(np.float32), W.astype(np.float32)])
        U, W = solver.run(problem, start, random_state=seed).point
        self.components_, self.weights_ = U.astype(float), unit * W.astype(float)
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)
        for factors, counts in self._counted(table):
            # What has no entry stays where it began, at random.
            factors[counts == 0] = np.average(factors, axis=0, weights=counts)

    def _counted(self, known: Any) -> list[tuple[Array, Array]]:
        """Return the factors of rows and of columns, each with the numbers of their known entries."""
        rows, columns = np.bincount(known.indices, minlength=known.shape[0]), np.diff(known.indptr)
        return [(self.components_, rows), (self.weights_, columns[: len(self.weights_)])]

    def _unknown_factors(self) -> tuple[Array, Array]:
        # Effects are part of U and W: the effect of a column is the mean there over the rows of all entries.
        U, W = (np.average(factors, axis=0, weights=counts) for factors, counts in self._counted(self.known_))
        return U, W

    def _factors(self) -> tuple[Array, Array]:
        # What is left without effects has means of 0 over rows and over columns.
        U, W = (
            np.where(counts[:, None] > 0, factors - factors[counts > 0].mean(axis=0), 0.0)
            for factors, counts in self._counted(self.known_)
        )
        return U, W

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        weights = np.tile(self._unknown_factors()[1], (table.shape[1], 1))
        for j in np.flatnonzero(np.diff(table.indptr)):
            here = slice(*table.indptr[j : j + 2])
            U, values = self.components_[table.indices[here]], table.data[here] - self.mean_
            weights[j] = np.linalg.solve(U.T @ U + len(U) * self.lam * np.eye(U.shape[1]), U.T @ values)
        return weights, np.zeros(len(weights))


def _units(numbers: Array, size: int) -> sp.csr_array:
    """Return unit vectors as rows: where their ones are, and how long they are."""
    ones, ends = np.ones(len(numbers)), np.arange(len(numbers) + 1, dtype=np.int32)
    return sp.csr_array((ones, numbers.astype(np.int32), ends), shape=(len(numbers), size))
