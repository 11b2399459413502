"""Products and sums of matrices whose rows lie one after another, for compiled loops.

Each is compiled once. An operator in the text of a loop would be compiled wherever it stands, and once more with
every function that calls the loop: the first step would wait for minutes.
"""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.vectors import dot


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
def beside(A, B):
    """Return [A B]."""
    k = A.shape[1]
    out = np.empty((A.shape[0], k + B.shape[1]))
    for i in range(A.shape[0]):
        for j in range(k):
            out[i, j] = A[i, j]
        for j in range(B.shape[1]):
            out[i, k + j] = B[i, j]
    return out


@njit(cache=True, nogil=True)
def write(A, B):
    """Set the first rows and columns of A to B."""
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            A[i, j] = B[i, j]


@njit(cache=True, nogil=True)
def clear(A):
    """Set A to zero."""
    A[:] = 0.0


@njit(cache=True, nogil=True)
def scale_row(A, row, weight):
    """Multiply a row by a number."""
    for j in range(A.shape[1]):
        A[row, j] *= weight


@njit(cache=True, nogil=True)
def largest(A):
    """Return the largest magnitude of an entry; NaN where one is."""
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
    """Return A⁻¹ B by elimination with row pivots. Raises ValueError where A is singular or not a number."""
    k, n = A.shape[0], B.shape[1]
    A, X = A.copy(), B.copy()
    for c in range(k):
        pivot = c
        for i in range(c + 1, k):
            if abs(A[i, c]) > abs(A[pivot, c]):
                pivot = i
        if not abs(A[pivot, c]) > 0.0:
            raise ValueError("a matrix is singular")
        if pivot != c:
            for j in range(k):
                A[c, j], A[pivot, j] = A[pivot, j], A[c, j]
            for j in range(n):
                X[c, j], X[pivot, j] = X[pivot, j], X[c, j]
        for i in range(c + 1, k):
            factor = A[i, c] / A[c, c]
            for j in range(c + 1, k):
                A[i, j] -= factor * A[c, j]
            for j in range(n):
                X[i, j] -= factor * X[c, j]
    for c in range(k - 1, -1, -1):
        for j in range(n):
            X[c, j] /= A[c, c]
        for i in range(c):
            for j in range(n):
                X[i, j] -= A[i, c] * X[c, j]
    return X


@njit(cache=True, nogil=True)
def reflected(A):
    """Return Q and R of A = Q R, by reflections."""
    Q, R = np.linalg.qr(A)
    return transposed(transposed(Q)), transposed(transposed(R))


@njit(cache=True, nogil=True)
def singular(A):
    """Return P, σ and Q of A = P diag(σ) Qᵀ."""
    P, sigma, Qt = np.linalg.svd(A)
    return transposed(transposed(P)), sigma, transposed(Qt)
