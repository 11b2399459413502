"""Triplets (query, positive, negative) from class labels."""

import numpy as np
from numpy.typing import ArrayLike

from problems.door import classes, kept_count
from rmopt.core import InvalidInputError
from rmopt.solvers import Sampler

Array = np.ndarray


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
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012).

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
