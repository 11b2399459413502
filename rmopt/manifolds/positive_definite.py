"""Positive definite matrices with steps along single rows and columns, for coordinate descent."""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, RowColumn, dense
from rmopt.kernels import row_column
from rmopt.linalg import leading_eigh
from rmopt.manifolds.symmetric_positive_definite import SymmetricPositiveDefinite
from rmopt.retractions.positive_definite import POSITIVE_DEFINITE_RETRACTIONS


class PositiveDefinite(SymmetricPositiveDefinite):
    """Positive definite d × d matrices with the affine-invariant metric, for coordinate descent as well.

    The points are those of `SymmetricPositiveDefinite`. Tangent vectors may also be `RowColumn` directions, which
    move one row and column alone.

    Parameters
    ----------
    d : int
        Number of rows and columns.

    See Also
    --------
    SymmetricPositiveDefinite : with other metrics, and batches.
    PSDFixedRank : a low rank.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import PositiveDefinite
    >>> manifold = PositiveDefinite(2)
    >>> bool(np.isclose(manifold.dist(np.eye(2), np.e * np.eye(2)), np.sqrt(2.0)))
    True
    >>> manifold.n_blocks, manifold.pair_mean(np.eye(2), 4.0 * np.eye(2)).round(6).tolist()
    (2, [[2.0, 0.0], [0.0, 2.0]])
    """

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.retractions = POSITIVE_DEFINITE_RETRACTIONS

    def __repr__(self) -> str:
        return f"PositiveDefinite({self.d})"

    def check_point(self, point: Any) -> str | None:
        if ns.is_array(point) and (type(point) is not np.ndarray or ns.is_complex(point)):
            return f"points of {self} are real arrays of numpy; take SymmetricPositiveDefinite for others"
        return super().check_point(point)

    # Rows and columns

    @property
    def n_blocks(self) -> int:
        """Number of blocks, d: block k is row and column k."""
        return self.shape[0]

    def block_of(self, ambient: Ambient, block: int) -> RowColumn:
        """Return row and column k of the symmetric part of an operator."""
        unit = np.zeros(self.shape[0])
        unit[block] = 1.0
        column = np.asarray(ambient @ unit)
        if ambient.T is not ambient:
            column = 0.5 * (column + np.asarray(ambient.T @ unit))
        return RowColumn.from_column(block, column)

    def schur_along(self, point: Array, direction: RowColumn) -> row_column.Schur:
        """Return D, b, a of the Schur complement D + 2bη − aη² of W_kk along W + η · direction."""
        k, rest = direction.k, direction.u.copy()
        rest[k] = 0.0
        unit = np.zeros(self.shape[0])
        unit[k] = 1.0
        w, moved = np.ascontiguousarray(cho_solve(cho_factor(point), np.column_stack([unit, rest])).T)
        # Compiled for double precision only.
        w, moved, u = (part.astype(float, copy=False) for part in (w, moved, direction.u))
        return row_column.schur_along(w, moved, u, k)

    def max_step(self, point: Array, direction: Any) -> float:
        """Return the least t ≥ 0 at which W + t · direction leaves the cone, or infinity.

        Parameters
        ----------
        point : array, shape (d, d)
        direction : RowColumn or symmetric array
            For a row and column the bound is the root of a quadratic, the Schur complement along the line
            (Atzmon, Shalit and Chechik 2015); in general it comes from the least eigenvalue of W⁻¹ · direction.
        """
        if isinstance(direction, RowColumn):
            return float(row_column.max_step(self.schur_along(point, direction)))
        fall = leading_eigh(-dense(direction, point), 1, point)[0][0]
        return float(1.0 / fall) if fall > 0.0 else float("inf")

    def safe_step(self, point: Array, direction: Any) -> float:
        """Return the longest safe step, at which the Schur complement is just large enough to invert."""
        # In single precision it must be larger.
        coarse = ns.coarseness(point) ** 0.5
        if isinstance(direction, RowColumn):
            corner = float(point[direction.k, direction.k]) * coarse
            return float(row_column.reach(row_column.STRAIGHT, self.schur_along(point, direction), corner))
        return (1.0 - row_column.MARGIN * coarse) * self.max_step(point, direction)
