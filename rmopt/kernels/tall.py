"""Products with tall matrices, some rows at a time, which stay in a cache; no lock is held meanwhile."""

import numpy as np

from rmopt.kernels import njit

# Rows of a piece: BLAS multiplies small matrices where they lie, and copies large ones first.
ROWS = 64


@njit(cache=True, nogil=True)
def crossed(A, B):
    """Return AᵀB."""
    out, part = np.zeros((A.shape[1], B.shape[1])), np.empty((A.shape[1], B.shape[1]))
    for first in range(0, A.shape[0], ROWS):
        np.dot(A[first : first + ROWS].T, B[first : first + ROWS], part)
        out += part
    return out


@njit(cache=True, nogil=True)
def mix(A, first, B, second):
    """Write A first + B second over both A and B, and return its Gram matrix."""
    k = first.shape[1]
    gram, part = np.zeros((k, k)), np.empty((k, k))
    rows, more = np.empty((ROWS, k)), np.empty((ROWS, k))
    for begin in range(0, A.shape[0], ROWS):
        end = min(begin + ROWS, A.shape[0])
        here, there = rows[: end - begin], more[: end - begin]
        np.dot(A[begin:end], first, here)
        np.dot(B[begin:end], second, there)
        here += there
        A[begin:end] = here
        B[begin:end] = here
        np.dot(here.T, here, part)
        gram += part
    return gram


@njit(cache=True, nogil=True)
def blend(a, A, b, B):
    """Write a A + b B over A."""
    x, y = A.ravel(), B.ravel()
    for i in range(x.shape[0]):
        x[i] = a * x[i] + b * y[i]
