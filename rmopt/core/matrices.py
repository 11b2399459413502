"""Data matrices: checks of the input, and rows in the single format that compiled loops read."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, numbers
from rmopt.errors import InvalidInputError

# Dense products are faster than CSR if at least this share of the numbers is not zero.
DENSE_FROM = 0.5


def sound(name: str, matrix: Any) -> Any:
    """Return a matrix, and refuse a sparse one with a damaged structure.

    Compiled loops, scipy's included, write at the given indices, so this check precedes any conversion. It refuses
    indices outside the matrix, index arrays of inconsistent lengths, and entries that are not real numbers.
    """
    if not sp.issparse(matrix):
        return matrix
    if matrix.ndim != 2:
        raise InvalidInputError(f"{name} must be a matrix (2 dimensions), got shape {matrix.shape}.")
    if matrix.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} must hold real numbers, got a sparse matrix of {matrix.dtype}.")
    try:
        if matrix.format in ("csr", "csc", "bsr"):
            parts = matrix.data, np.asarray(matrix.indices), np.asarray(matrix.indptr)
            type(matrix)(parts, shape=matrix.shape).check_format(full_check=True)
        else:
            known = matrix.tocoo(copy=False)
            sp.coo_array((known.data, known.coords), shape=known.shape)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} is a damaged {matrix.format} matrix: {str(error).rstrip('.')}. Build it again, for example by "
            "scipy.sparse.coo_array((values, (rows, columns)), shape=shape)."
        ) from None
    return matrix


def real_matrix(name: str, matrix: Any, shape: tuple[int, int], field: str = "real") -> Any:
    """Return a matrix of finite numbers and of a shape as floats, or as CSR if it is sparse, which must be real."""
    if not sp.issparse(matrix):
        return numbers(name, matrix, shape, field)
    rows = as_rows(matrix, name)
    if rows.shape != shape:
        raise InvalidInputError(f"{name} must be a matrix of shape {shape}, got shape {rows.shape}.")
    return rows


def as_rows(matrix: Any, name: str, copy: bool = False) -> sp.csr_array:
    """Return a dense or sparse matrix as a CSR array: float64, int32 indices, sorted, no duplicates.

    Anything but a matrix of finite real numbers raises an `InvalidInputError` that contains `name`. A copy shares no
    memory with the input, which the caller may overwrite.
    """
    return _in_csr(checked_matrix(matrix, name, copy), name)


def checked_matrix(matrix: Any, name: str, copy: bool = False) -> Any:
    """Return a matrix of finite real numbers: float64 if it is dense, and else as `as_rows` does."""
    if not sp.issparse(sound(name, matrix)):
        matrix = array(name, matrix)
        if matrix.ndim != 2:
            raise InvalidInputError(f"{name} must be a matrix (2 dimensions), got shape {matrix.shape}.")
        if matrix.dtype.kind not in "biuf":
            raise InvalidInputError(f"{name} must hold real numbers, got an array of {matrix.dtype}.")
    if not sp.issparse(matrix) and np.count_nonzero(matrix) >= max(DENSE_FROM * matrix.size, 1):
        rows = values = np.array(matrix, dtype=np.float64, copy=copy or None)
    else:
        rows = sp.csr_array(matrix, dtype=np.float64, copy=copy)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        values = rows.data
    if not np.isfinite(values).all():
        raise InvalidInputError(f"{name} holds NaN or infinity; remove or impute those values first.")
    if values is rows:
        return rows
    rows = _in_csr(rows, name)
    return rows.toarray() if rows.nnz >= max(DENSE_FROM * rows.shape[0] * rows.shape[1], 1) else rows


def row_dots(rows: Any, others: Any) -> Any:
    """Return the inner products of dense or sparse rows with as many others."""
    if sp.issparse(rows):
        return np.asarray(rows.multiply(others).sum(axis=1)).ravel()
    return ns.namespace(rows).einsum("ij,ij->i", rows, others)


def _in_csr(matrix: Any, name: str) -> sp.csr_array:
    rows = sp.csr_array(matrix)
    if max(rows.nnz, *rows.shape) > np.iinfo(np.int32).max:
        raise InvalidInputError(f"{name} is too large for 32-bit indices ({rows.nnz} non-zeros); split it.")
    if rows.indices.dtype == np.int32 and rows.data.flags.writeable:
        return rows
    parts = (rows.data.copy(), rows.indices.astype(np.int32), rows.indptr.astype(np.int32))
    return sp.csr_array(parts, shape=rows.shape)


def index_rows(name: str, value: Any, counts: tuple[int, ...]) -> Array:
    """Return integers as an int64 array of shape (T, len(counts)), with column values below `counts`.

    Raises
    ------
    InvalidInputError
        For another shape, entries that are not integers, or integers out of range.
    """
    found, width = array(name, value), len(counts)
    if found.ndim != 2 or found.shape[1] != width or found.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be integers in {width} columns, got {found.dtype} of shape {found.shape}."
        )
    if (found < 0).any() or (found >= np.array(counts)).any():
        raise InvalidInputError(
            f"{name} hold numbers from {found.min()} to {found.max()}; they count from 0, and the columns end below "
            f"{', '.join(map(str, counts))}."
        )
    return np.array(found, dtype=np.int64, order="C")
