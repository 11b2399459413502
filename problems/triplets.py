"""Triplets (query, positive, negative) from class labels."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from problems.rows import near_zero
from problems.validation import classes, kept_count, table_of_numbers
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, named
from rmopt.costs import Loss, hinge, logistic, squared_hinge
from rmopt.solvers import Sampler

# Losses of the positive's score minus the negative's.
LOSSES = {loss.name: loss for loss in (hinge, squared_hinge, logistic)}
loss_named = bounded(named, LOSSES, Loss)


def classes_with_pairs(y: ArrayLike) -> tuple[Array, Array, Array]:
    """Return the result of `classes`, and refuse labels without pairs in and between classes."""
    labels, codes, counts = classes(y)
    if len(labels) < 2 or counts.max(initial=0) < 2:
        raise InvalidInputError(
            f"y has {len(labels)} class{'es' * (len(labels) > 1)} of at most {counts.max(initial=0)} rows; "
            "triplets need 2 classes, one of them with 2 rows."
        )
    return labels, codes, counts


class ClassTriplets(Sampler):
    """Uniform triplets of rows: a query, another row of its class, and a row of another class.

    Rows that are alone in their class are never queries or positives.

    Parameters
    ----------
    y : array, shape (N,)
        Class labels.
    batch_size : int
        Triplets per step.

    Raises
    ------
    InvalidInputError
        When there are fewer than two classes, or no class has two rows.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.similarity import ClassTriplets
    >>> y = np.array([0, 0, 1, 1])
    >>> triplets = ClassTriplets(y).draw(np.random.default_rng(0), 0, 5)
    >>> query, positive, negative = y[triplets].T
    >>> bool(np.all(query == positive)), bool(np.any(query == negative))
    (True, False)
    """

    def __init__(self, y: ArrayLike, batch_size: int = 1) -> None:
        self.batch_size = kept_count("batch_size", batch_size)
        _, codes, counts = classes_with_pairs(y)
        self._order = np.argsort(codes, kind="stable")
        self._codes, self._counts = codes, counts
        self._starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._place = np.empty(len(codes), dtype=np.int64)
        self._place[self._order] = np.arange(len(codes)) - self._starts[codes[self._order]]
        self._queries = np.flatnonzero(counts[codes] > 1)

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the triplets of `size` steps, shape (size, 3 · batch_size)."""
        query = self._queries.take(rng.integers(len(self._queries), size=size * self.batch_size))
        code = self._codes.take(query)
        count, first = self._counts.take(code), self._starts.take(code)
        # Fractions of different ranges: they hold no lock, so that workers draw at the same time.
        chance = rng.random((2, len(query)))
        # The rows of the class without the query, then the rows without the class.
        positive = (chance[0] * (count - 1)).astype(np.int64)
        positive += positive >= self._place.take(query)
        negative = (chance[1] * (len(self._codes) - count)).astype(np.int64)
        negative += count * (negative >= first)
        columns = query, self._order.take(first + positive), self._order.take(negative)
        return np.stack(columns, axis=1).reshape(size, 3 * self.batch_size)


class NeighborTriplets(Sampler):
    """Triplets of near rows: a query, one of the nearest of its class, and one of the nearest of other classes.

    A vote of nearest neighbours depends on such near rows, which random triplets hardly ever contain.

    Parameters
    ----------
    X : array or sparse matrix, shape (N, d)
        Rows, compared by Euclidean distances.
    y : array, shape (N,)
        Class labels.
    n_positives, n_negatives : int
        The numbers of nearest rows of the query's class, and of all others, to draw from.

    Raises
    ------
    InvalidInputError
        When there are fewer than two classes, or no class has two rows.
    """

    def __init__(self, X: Any, y: ArrayLike, n_positives: int = 3, n_negatives: int = 10) -> None:
        from sklearn.neighbors import NearestNeighbors

        kept_count("n_positives", n_positives), kept_count("n_negatives", n_negatives)
        _, codes, counts = classes_with_pairs(y)
        X = near_zero(table_of_numbers("X", X))
        if X.shape[0] != len(codes):
            raise InvalidInputError(
                f"X has {X.shape[0]} rows, and y {len(codes)} labels; give one for each row."
            )
        # Squares of very large and very small numbers overflow or vanish.
        X, self._queries = X / (abs(X).max() or 1.0), np.flatnonzero(counts[codes] > 1)
        self._sizes = (
            np.minimum(counts[codes] - 1, n_positives),
            np.minimum(len(codes) - counts[codes], n_negatives),
        )
        self._near = tuple(np.zeros((len(codes), sizes.max()), dtype=np.int64) for sizes in self._sizes)
        for code in np.unique(codes):
            own, others = np.flatnonzero(codes == code), np.flatnonzero(codes != code)
            for near, rows, itself in ((self._near[0], own, None), (self._near[1], others, X[own])):
                size = min(near.shape[1], len(rows) - (itself is None))
                if size:
                    search = NearestNeighbors(n_neighbors=size, algorithm="brute").fit(X[rows])
                    near[own, :size] = rows[search.kneighbors(itself, return_distance=False)]

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the triplets of `size` steps, shape (size, 3)."""
        query = self._queries[rng.integers(len(self._queries), size=size)]
        drawn = zip(self._near, self._sizes, rng.random((2, size)), strict=True)
        return np.column_stack(
            [query, *(near[query, (chance * sizes[query]).astype(int)] for near, sizes, chance in drawn)]
        )

    def every(self) -> Array:
        """Return all triplets that are drawn from, shape (n_triplets, 3)."""
        own, other = (np.arange(sizes.max()) < sizes[:, None] for sizes in self._sizes)
        query, first, second = np.nonzero(own[:, :, None] & other[:, None, :])
        return np.column_stack([query, self._near[0][query, first], self._near[1][query, second]])
