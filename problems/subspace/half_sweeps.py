"""Regressions of all columns, or of all rows, on the factors of the others: a half of a sweep."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from problems.subspace.cost import pieces_of
from problems.subspace.regression_kernels import regress_piece
from problems.threads import in_pieces
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array


class Regressed(NamedTuple):
    """What a half sweep finds of each column: the factors with the random numbers, their mean, the squared residuals.

    Shapes (n, d), (n, d) and (n,); the first factor is the effect.
    """

    drawn: Array
    means: Array
    squares: Array


class Side:
    """Known entries by columns, as `regress_piece` takes them.

    Parameters
    ----------
    table : sparse array
        By columns, a CSC array; or by rows, a CSR array, whose rows are then what is regressed.
    values : array, shape (N,)
        In place of the stored ones.
    spare : int
        So many columns without an entry come after the last one.
    """

    def __init__(self, table: Any, values: Array, spare: int = 0) -> None:
        indptr = np.append(table.indptr, np.repeat(table.indptr[-1], spare)).astype(np.int64)
        self.known = indptr, table.indices.astype(np.int32, copy=False), values
        self.cuts = pieces_of(indptr)
        self.counts = np.diff(indptr)

    def regress(
        self, features: Array, precision: Array, pull: Array, alpha: float, noise: Array, scales: Array
    ) -> Regressed:
        """Regress each column; see `problems.subspace.regression_kernels`.

        Raises
        ------
        InvalidInputError
            When the system of a column is singular to rounding.
        """
        n, d = len(self.counts), features.shape[1]
        found = Regressed(np.empty((n, d)), np.empty((n, d)), np.empty(n))
        given = self.known, features, (scales, precision, pull, alpha), noise

        def regressed(_: int, first: int, last: int) -> int:
            return int(regress_piece(*given, first, last, *found))

        failed = max(in_pieces(regressed, self.cuts, self.counts.sum() * d**2))
        if failed >= 0:
            raise InvalidInputError(
                f"column or row {failed} with {self.counts[failed]} known entries has no unique solution at rank "
                f"{d - 1} in double precision; choose a larger lam, or a smaller rank."
            )
        return found
