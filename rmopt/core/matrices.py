"""Matrices of data: checked as they were given, and their rows in the one form that compiled loops read."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.core.arguments import array, numbers
from rmopt.errors import InvalidInputError

# Arrays are multiplied faster than CSR where at least this share of their numbers is not zero.
DENSE_FROM = 0.5


def sound(name: str, matrix: Any) -> Any:
    """Return a matrix whose sparse structure is whole, or refuse it; what is not sparse passes as it is.

    Compiled loops, scipy's own among them, write where the indices say. So this stands before any conversion.
    Refused are indices outside of the matrix, arrays of the structure with other lengths than they say, and complex
    numbers.
    """
    if not sp.issparse(matrix):
        return matrix
    if matrix.ndim != 2:
        raise InvalidInputError(f"{name} must be a matrix (2 dimensions), got shape {matrix.shape}.")
    if matrix.dtype.kind == "c":
        raise InvalidInputError(f"{name} must be real, got complex data; take its real part or its modulus.")
    if matrix.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} must hold numbers, got a sparse matrix of {matrix.dtype}.")
    flaw = _flaw(matrix if matrix.format in ("csr", "csc", "bsr") else matrix.tocoo(copy=False))
    if flaw is not None:
        raise InvalidInputError(
            f"{name} is a damaged {matrix.format} matrix: {flaw}. Build it again, for example by "
            "scipy.sparse.coo_array((values, (rows, columns)), shape=shape)."
        )
    return matrix


def real_matrix(name: str, matrix: Any, shape: tuple[int, int]) -> Any:
    """Return a dense or sparse matrix of finite real numbers and of a shape, as floats; sparse ones as CSR."""
    if not sp.issparse(sound(name, matrix)):
        return numbers(name, matrix, shape)
    if matrix.shape != shape:
        raise InvalidInputError(f"{name} must be a matrix of shape {shape}, got shape {matrix.shape}.")
    rows = sp.csr_array(matrix, dtype=float)
    numbers(name, rows.data)
    return rows


def as_rows(matrix: Any, name: str) -> sp.csr_array:
    """Return a dense or sparse matrix as a CSR array: float64, int32 indices, sorted, no duplicates.

    Anything that is not a matrix of finite real numbers raises an `InvalidInputError` that calls it by the name.
    """
    return _in_csr(checked_matrix(matrix, name), name)


def checked_matrix(matrix: Any, name: str) -> Any:
    """Return a matrix of finite real numbers: an array of float64 where it is full, and else as `as_rows` does."""
    if not sp.issparse(sound(name, matrix)):
        matrix = array(name, matrix)
        if matrix.dtype == object or (not np.issubdtype(matrix.dtype, np.number) and matrix.dtype != bool):
            raise InvalidInputError(f"{name} must hold numbers, got an array of {matrix.dtype}.")
    if len(matrix.shape) != 2:
        raise InvalidInputError(f"{name} must be a matrix (2 dimensions), got shape {matrix.shape}.")
    if np.issubdtype(matrix.dtype, np.complexfloating):
        raise InvalidInputError(f"{name} must be real, got complex data.")
    if not sp.issparse(matrix) and np.count_nonzero(matrix) >= max(DENSE_FROM * matrix.size, 1):
        rows = values = np.asarray(matrix, dtype=np.float64)
    else:
        rows = sp.csr_array(matrix, dtype=np.float64)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        values = rows.data
    if not np.isfinite(values).all():
        raise InvalidInputError(f"{name} holds NaN or infinity; remove or impute those values first.")
    return rows if values is rows else _in_csr(rows, name)


def in_fast_form(rows: Any) -> Any:
    """Return a CSR array as an array where that is multiplied faster; an array is one already."""
    is_full = sp.issparse(rows) and rows.nnz >= max(DENSE_FROM * rows.shape[0] * rows.shape[1], 1)
    return rows.toarray() if is_full else rows


def row_dots(rows: Any, others: Any) -> Any:
    """Return the inner products of rows, of an array or sparse, with as many others."""
    if sp.issparse(rows):
        return np.asarray(rows.multiply(others).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", rows, others)


def _in_csr(matrix: Any, name: str) -> sp.csr_array:
    rows = sp.csr_array(matrix)
    if max(rows.nnz, *rows.shape) > np.iinfo(np.int32).max:
        raise InvalidInputError(f"{name} is too large for 32-bit indices ({rows.nnz} non-zeros); split it.")
    if rows.indices.dtype == np.int32 and rows.data.flags.writeable:
        return rows
    parts = (rows.data.copy(), rows.indices.astype(np.int32), rows.indptr.astype(np.int32))
    return sp.csr_array(parts, shape=rows.shape)


def _flaw(matrix: Any) -> str | None:
    if matrix.format == "coo":
        if any(len(numbers) != len(matrix.data) for numbers in matrix.coords):
            return "its rows, columns and values are not equally many"
        spans = zip(matrix.coords, matrix.shape, strict=True)
        return next((found for numbers, size in spans if (found := _outside(numbers, size))), None)
    height, width = matrix.blocksize if matrix.format == "bsr" else (1, 1)
    sides = matrix.shape[0] // height, matrix.shape[1] // width
    n_major, n_minor = sides[::-1] if matrix.format == "csc" else sides
    indptr, indices = np.asarray(matrix.indptr), np.asarray(matrix.indices)
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu" or indices.ndim != 1:
        return f"its indptr and indices must be lists of integers, not of {indptr.dtype} and {indices.dtype}"
    if indptr.shape != (n_major + 1,) or indptr[0] != 0 or np.any(indptr[1:] < indptr[:-1]):
        return f"its indptr must be {n_major + 1} numbers that begin at 0 and never fall"
    if len(indices) != len(matrix.data) or indptr[-1] > len(indices):
        found = f"{len(indices)} indices and {len(matrix.data)} values"
        return f"its indptr counts {indptr[-1]} entries, and it has {found}"
    return _outside(indices[: indptr[-1]], n_minor)


def _outside(indices: Any, size: int) -> str | None:
    if len(indices) and not (indices.min() >= 0 and indices.max() < size):
        return f"its indices run from {indices.min()} to {indices.max()}, and must lie in 0 … {size - 1}"
    return None
