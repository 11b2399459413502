"""Triplets (query, positive, negative) from class labels."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from problems.door import classes, kept_count, near_zero, table_of_numbers
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.solvers import Sampler


def classes_with_pairs(y: ArrayLike) -> tuple[Array, Array, Array]:
    """Return what `classes` does, where some rows are of one class, and some are not."""
    labels, codes, counts = classes(y)
    if len(labels) < 2:
        raise InvalidInputError(
            f"y has {len(labels)} class ({', '.join(map(str, labels))}); triplets need at least 2 classes."
        )
    if counts.max() < 2:
        raise InvalidInputError(
            f"each of the {len(labels)} classes in y has a single row; triplets need a class with 2 rows."
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

    See Also
    --------
    rmopt.solvers.Uniform : draws terms of a cost that has a list of them.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.

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
        query = self._queries[rng.integers(len(self._queries), size=size * self.batch_size)]
        code = self._codes[query]
        count, first = self._counts[code], self._starts[code]
        # The rows of the class without the query, then the rows without the class.
        positive = rng.integers(count - 1)
        positive += positive >= self._place[query]
        negative = rng.integers(len(self._codes) - count)
        negative += np.where(negative >= first, count, 0)
        triplets = np.column_stack([query, self._order[first + positive], self._order[negative]])
        return triplets.reshape(size, 3 * self.batch_size)


class NeighborTriplets(Sampler):
    """Triplets of near rows: a query, one of the nearest of its class, and one of the nearest of other classes.

    What a vote of nearest neighbours depends on is there, between near rows; random triplets hardly ever hold it.

    Parameters
    ----------
    X : array or sparse matrix, shape (N, d)
        Rows, between which Euclidean distances say what is near.
    y : array, shape (N,)
        Class labels.
    n_positives, n_negatives : int
        The nearest rows of the query's class, and of all others, that are drawn from.

    Raises
    ------
    InvalidInputError
        When there are fewer than two classes, or no class has two rows.

    See Also
    --------
    ClassTriplets : uniform ones.

    References
    ----------
    Weinberger and Saul, Distance metric learning for large margin nearest neighbor classification, JMLR 10 (2009).

    Examples
    --------
    >>> import numpy as np
    >>> from problems.triplets import NeighborTriplets
    >>> X, y = np.array([[0.0], [1.0], [5.0], [2.0], [9.0]]), [0, 0, 0, 1, 1]
    >>> sampler = NeighborTriplets(X, y, n_positives=1, n_negatives=1)
    >>> drawn = sampler.draw(np.random.default_rng(0), 0, 50)
    >>> sorted({tuple(one) for one in drawn.tolist()})
    [(0, 1, 3), (1, 0, 3), (2, 1, 3), (3, 4, 1), (4, 3, 2)]
    """

    def __init__(self, X: Any, y: ArrayLike, n_positives: int = 3, n_negatives: int = 10) -> None:
        kept_count("n_positives", n_positives), kept_count("n_negatives", n_negatives)
        _, codes, counts = classes_with_pairs(y)
        X = near_zero(table_of_numbers("X", X))
        if X.shape[0] != len(codes):
            raise InvalidInputError(
                f"X has {X.shape[0]} rows, and y {len(codes)} labels; give one for each row."
            )
        self._queries = np.flatnonzero(counts[codes] > 1)
        self._positives: dict[int, Array] = {}
        self._negatives: dict[int, Array] = {}
        self._place = np.empty(len(codes), dtype=np.int64)
        self._codes = codes
        for code in np.flatnonzero(counts > 1).tolist():
            own, others = np.flatnonzero(codes == code), np.flatnonzero(codes != code)
            self._place[own] = np.arange(len(own))
            self._positives[code] = own[_nearest(X[own], None, min(n_positives, len(own) - 1))]
            self._negatives[code] = others[_nearest(X[others], X[own], min(n_negatives, len(others)))]

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the triplets of `size` steps, shape (size, 3)."""
        triplets = np.empty((size, 3), dtype=np.int64)
        triplets[:, 0] = query = self._queries[rng.integers(len(self._queries), size=size)]
        chances = rng.random((2, size))
        for code, positives in self._positives.items():
            mine = np.flatnonzero(self._codes[query] == code)
            place = self._place[query[mine]]
            for column, near in ((1, positives), (2, self._negatives[code])):
                triplets[mine, column] = near[place, (chances[column - 1, mine] * near.shape[1]).astype(int)]
        return triplets


def _nearest(rows: Any, queries: Any, count: int) -> Array:
    """Return the numbers of the nearest rows of each query; without queries of each row, itself left out."""
    # It is slow to import.
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(rows)
    return found.kneighbors(queries, return_distance=False)
