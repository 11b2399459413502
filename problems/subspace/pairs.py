"""Known entries of a matrix as pairs of a row and a column with values, and how cross-validation splits them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import BaseCrossValidator

from problems.data import Ratings
from problems.subspace.cost import KnownEntries, columns_of, known_entries
from problems.validation import array_of, two_columns
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, numbers, sequence, shown
from rmopt.core.streams import seed_of


def entries(ratings: Any) -> tuple[Array, Array]:
    """Return the known entries of a sparse matrix as pairs of a row and a column, shape (N, 2), and their values.

    Parameters
    ----------
    ratings : sparse array, shape (m, n), or Ratings
        The entries of a matrix come column by column, those of a bundle as they lie there, and as its `times` do.

    Returns
    -------
    pairs : int array, shape (N, 2)
    values : array, shape (N,)

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from problems.subspace import entries
    >>> pairs, values = entries(sp.csc_array([[0.0, 5.0], [3.0, 0.0]]))
    >>> pairs.tolist(), values.tolist()
    ([[1, 0], [0, 1]], [3.0, 5.0])
    """
    if isinstance(ratings, Ratings):
        return np.column_stack([ratings.rows, ratings.columns]), ratings.values.copy()
    table = known_entries(ratings)
    return np.column_stack([table.indices, columns_of(table)]), table.data.copy()


class EntryKFold(BaseCrossValidator):
    """Folds of known entries in which the entries of each row are spread evenly.

    So a row with two entries or more is never without one in a training part.

    Parameters
    ----------
    n_splits : int
    random_state : int, RandomState or None

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from problems.subspace import EntryKFold, entries
    >>> pairs, values = entries(sp.csc_array([[5.0, 3.0, 0.0], [0.0, 4.0, 2.0]]))
    >>> for train, test in EntryKFold(2).split(pairs):
    ...     print(sorted(pairs[test, 0].tolist()))
    [0, 1]
    [0, 1]
    """

    def __init__(self, n_splits: int = 5, *, random_state: Any = 0) -> None:
        self.n_splits = integer("n_splits", n_splits, 2)
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def _iter_test_masks(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Array]:
        rows, _ = checked_pairs(X)
        if len(rows) < self.n_splits:
            raise InvalidInputError(f"{len(rows)} known entries are too few for {self.n_splits} folds.")
        order = np.random.default_rng(seed_of(self.random_state)).permutation(len(rows))
        fold = np.empty(len(rows), dtype=np.int64)
        fold[order[np.argsort(rows[order], kind="stable")]] = np.arange(len(rows)) % self.n_splits
        yield from (fold == number for number in range(self.n_splits))


def table_of(ratings: Any, values: Any, shape: Any) -> KnownEntries:
    """Return known entries, given as a sparse matrix, as a bundle, or as pairs and values."""
    if values is None:
        if shape is not None:
            raise InvalidInputError(f"shape = {shape} belongs to pairs and values; a matrix has its own.")
        return known_entries(ratings.table() if isinstance(ratings, Ratings) else ratings)
    rows, columns = checked_pairs(ratings)
    values = values_of(values, len(rows))
    least = tuple(int(side.max(initial=0)) + 1 for side in (rows, columns))
    sides = least if shape is None else tuple(integer("shape", side, 1) for side in sequence("shape", shape))
    if len(sides) != 2 or sides[0] < least[0] or sides[1] < least[1]:
        raise InvalidInputError(
            f"shape = {shape} must be two numbers, of at least {least}: the pairs go so far."
        )
    return known_entries(sp.coo_array((values, (rows, columns)), shape=sides))


def values_of(values: Any, count: int) -> Array:
    """Return the values of so many pairs."""
    return numbers("y", array_of("y", values), (count,))


def checked_pairs(pairs: Any) -> tuple[Array, Array]:
    """Return the rows and the columns of pairs of numbers."""
    sides = two_columns("pairs", pairs)
    if not all(
        side.dtype.kind in "iu" and 0 <= side.min(initial=0) <= side.max(initial=0) < 2**31 for side in sides
    ):
        raise InvalidInputError(
            f"pairs must be integers from 0, numbers of rows and of columns, got {shown(pairs)}; of names "
            "problems.data.load makes a bundle."
        )
    rows, columns = (side.astype(np.int32) for side in sides)
    return rows, columns
