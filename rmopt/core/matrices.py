"""What a sparse matrix must hold before compiled loops may read it: numbers of rows and columns that exist."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.core.arguments import numbers
from rmopt.errors import InvalidInputError


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
