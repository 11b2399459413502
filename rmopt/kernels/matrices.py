"""Products and sums of matrices whose rows lie one after another, for compiled loops.

Each is compiled once. An operator in a loop would be compiled at each place, and again with every function that calls
the loop, so that the first step would wait for minutes.
"""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.vectors import copy, dot, invert


@njit(cache=True, nogil=True)
def times(A, B):
    """Return A B."""
    return np.dot(A, B)


@njit(cache=True, nogil=True)
def cross(A, B):
    """Return AᵀB."""
    return np.dot(A.T, B)


@njit(cache=True, nogil=True)
def times_transposed(A, B):
    """Return A Bᵀ."""
    return np.dot(A, B.T)


@njit(cache=True, nogil=True)
def combined(a, A, b, B):
    """Return a A + b B."""
    out = np.empty(A.shape)
    x, y, z = A.ravel(), B.ravel(), out.ravel()
    for i in range(z.shape[0]):
        z[i] = a * x[i] + b * y[i]
    return out


@njit(cache=True, nogil=True)
def transposed(A):
    """Return Aᵀ in rows."""
    return A.T.copy()


@njit(cache=True, nogil=True)
def identity(k):
    """Return the identity of k rows."""
    return np.eye(k)


@njit(cache=True, nogil=True)
def columns(A, first, stop):
    """Return some columns."""
    return A[:, first:stop].copy()


@njit(cache=True, nogil=True)
def write(A, B):
    """Set the first rows and columns of A to B."""
    for i in range(B.shape[0]):
        copy(B[i], A[i, : B.shape[1]])


@njit(cache=True, nogil=True)
def scale_row(A, row, weight):
    """Multiply a row by a number."""
    for j in range(A.shape[1]):
        A[row, j] *= weight


@njit(cache=True, nogil=True)
def largest(A):
    """Return the largest magnitude of an entry, or NaN if one is NaN."""
    most = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            if np.isnan(A[i, j]):
                return A[i, j]
            most = max(most, abs(A[i, j]))
    return most


@njit(cache=True, nogil=True)
def inner(A, B):
    """Return Σ A_ij B_ij."""
    return dot(A.ravel(), B.ravel())


@njit(cache=True, nogil=True)
def solved(A, B):
    """Return A⁻¹ B, or raise a ValueError if A is singular or holds NaN."""
    table = np.empty((A.shape[0], 2 * A.shape[0]))
    write(table, A)
    if not invert(table, 0.0):
        raise ValueError("a matrix is singular")
    return times(columns(table, A.shape[0], 2 * A.shape[0]), B)
