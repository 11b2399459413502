"""Directions that move one row and one column of a symmetric matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmopt.core.ambient import Array, Operator
from rmopt.precision import real_type


@dataclass(frozen=True, eq=False)
class RowColumn(Operator):
    """The symmetric matrix H = u e_kᵀ + e_k uᵀ.

    Attributes
    ----------
    k : int
        The row and column.
    u : array, shape (d,)
        H_jk for j ≠ k, and half of H_kk.

    See Also
    --------
    rmopt.manifolds.PositiveDefinite : coordinate descent moves along these.

    References
    ----------
    Atzmon, Shalit and Chechik, Metric learning using block coordinate descent, draft (2015).

    Examples
    --------
    >>> from rmopt.core import RowColumn
    >>> RowColumn.from_column(1, [2.0, 5.0, 0.0]).toarray()
    array([[0., 2., 0.],
           [2., 5., 0.],
           [0., 0., 0.]])
    """

    k: int
    u: Array

    @classmethod
    def from_column(cls, k: int, column: Array) -> RowColumn:
        """Return the direction with this column k (and this row k)."""
        u = np.array(column, dtype=real_type(column))
        u[k] *= 0.5
        return cls(k, u)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.u), len(self.u)

    @property
    def T(self) -> RowColumn:
        return self

    @property
    def column(self) -> Array:
        """Column k of H."""
        column = self.u.copy()
        column[self.k] *= 2.0
        return column

    def __matmul__(self, other: Array) -> Array:
        other = np.asarray(other)
        result = np.multiply.outer(self.u, other[self.k])
        result[self.k] += self.u @ other
        return result

    def _times(self, scalar: float) -> RowColumn:
        return RowColumn(self.k, scalar * self.u)

    def toarray(self) -> Array:
        """Return H as an array."""
        H = np.zeros(self.shape, self.u.dtype)
        H[:, self.k] += self.u
        H[self.k] += self.u
        return H
