"""Batches of rows with words left out, shared by the costs that learn embeddings by AdaGrad."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from problems.following import checkpoint_of
from problems.loreta import with_workers
from problems.saving import Saved
from problems.validation import Estimator, file_path, kept_count, seedable, thread_count
from rmopt.core import FiniteSum, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, integer, number, optional
from rmopt.core.matrices import as_rows
from rmopt.manifolds import Euclidean
from rmopt.solvers import SGD, AdaGrad, Cosine, Recorder, ShuffledEpochs

# Features with a smaller share of nonzero entries are words.
SPARSE = 0.1
# Batches of a worker between two means of several workers.
BETWEEN_MEANS = 10


class RowBatches(FiniteSum):
    """A cost of a matrix whose first rows are features' embeddings, by batches of data rows.

    A term is a row and a number. The first number of a batch seeds the choice of words left out.

    Parameters
    ----------
    rows : array or sparse matrix, shape (N, n)
    dropout : float
        The share of the words of a row that are left out, drawn again for each batch; at least 0 and below 1.
    """

    point_type = np.ndarray
    term_width = 2

    def __init__(self, rows: Any, dropout: float) -> None:
        self.rows = as_rows(rows, "rows")
        self.dropout = number("dropout", dropout, least=0, below=1)

    @property
    def term_ranges(self) -> list[tuple[int, int | None]]:
        """Rows, and seeds."""
        return [(0, self.rows.shape[0]), (0, None)]

    @abstractmethod
    def row_gradient(self, point: Array, terms: Array) -> tuple[Array, Array]:
        """Return the distinct numbers of rows, and the gradient of a batch there."""

    def term_gradient(self, point: Array, terms: Array) -> Array:
        rows, values = self.row_gradient(point, terms)
        gradient = np.zeros(point.shape)
        gradient[rows] = values
        return gradient

    def batch(self, terms: Array) -> tuple[sp.csr_array, Array, Array]:
        """Return rows with the remaining words, the features that occur, and the rows' numbers."""
        numbers, seeds = terms.reshape(-1, 2).T
        X = self.rows[numbers]
        if self.dropout > 0.0:
            kept = np.random.default_rng(seeds[0]).random(X.nnz) >= self.dropout
            X = sp.csr_array((X.data * kept, X.indices, X.indptr), shape=X.shape)
        occurs = np.zeros(X.shape[1], dtype=bool)
        occurs[X.indices] = True
        return X, np.flatnonzero(occurs), numbers


def columns_that_occur(X: sp.csr_array, features: Array) -> sp.csr_array:
    """Return rows restricted to the columns `features`, which include all that occur."""
    among = np.empty(X.shape[1], dtype=np.int32)
    among[features] = np.arange(len(features), dtype=np.int32)
    return sp.csr_array((X.data, among[X.indices], X.indptr), shape=(X.shape[0], len(features)))


class SeededEpochs(ShuffledEpochs):
    """Every row once per epoch, in a new random order, each with a seed."""

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        rows = super().draw(rng, start, size)
        seeds = rng.integers(2**62, size=rows.shape)
        return np.stack([rows, seeds], axis=-1).reshape(size, -1)


@dataclass(kw_only=True, eq=False, repr=False)
class BatchLearner(Saved, Estimator):
    """An estimator that learns embeddings by steps of AdaGrad on batches of rows."""

    dropout: Annotated[float | None, optional(number, least=0, below=1)] = None
    batch_size: Annotated[int, kept_count] = 256
    n_epochs: Annotated[int | None, optional(kept_count)] = None
    step_size: Annotated[float, bounded(number, above=0)]
    checkpoint: Annotated[Path | str | None, file_path] = None
    random_state: Annotated[Any, seedable] = None
    n_jobs: Annotated[int | None, optional(thread_count)] = None
    verbose: Annotated[bool, flag] = False

    # The share of the words left out of a row.
    _words: ClassVar[float]
    _numbers: ClassVar = {**Saved._numbers, "n_iter_": integer}

    def _share_left_out(self, X: Any) -> float:
        """Return the share that is left out of rows. None means that of words for sparse features, and else 0."""
        if self.dropout is not None:
            return float(self.dropout)
        stored = np.count_nonzero(X.data if sp.issparse(X) else X)
        return self._words * float(stored < SPARSE * X.shape[0] * X.shape[1])

    def _run(self, cost: RowBatches, start: Array, seed: int, n_epochs: int, **data: Any) -> Array:
        """Pass over the rows of a cost with cosine step sizes, and return the end.

        Several workers divide the batches among themselves. A checkpoint belongs to the `data`.
        """
        n_rows = cost.rows.shape[0]
        size = min(int(self.batch_size), n_rows)
        steps = int(n_epochs) * (n_rows // size)
        solver = SGD(
            Cosine(float(self.step_size), steps),
            rule=AdaGrad(),
            max_iter=steps,
            sampler=SeededEpochs(n_rows, size),
        )
        result = with_workers(solver, self.n_jobs, first=BETWEEN_MEANS, every=BETWEEN_MEANS).run(
            Problem(Euclidean(*start.shape), cost),
            start,
            random_state=seed,
            recorder=Recorder(progress=self.verbose),
            checkpoint=checkpoint_of(self, **data),
        )
        self.n_iter_ = result.steps
        return result.point
