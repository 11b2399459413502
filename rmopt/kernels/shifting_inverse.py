"""The inverse of a positive definite matrix whose row and column k change at every step.

V = base + Σ s_j v_j v_jᵀ: changes stay pending as a few vectors and are applied together, so that a step reads the
d × d numbers once and writes them rarely.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.vectors import dot, transposed_product

# Vectors that may be pending, and rows of the base that change together.
PENDING = 32
ROWS = 64


class Inverse(NamedTuple):
    """V = base + Σ weights[j] · vectors[j] vectors[j]ᵀ over the first `count[0]` vectors."""

    base: np.ndarray  # (d, d), symmetric
    vectors: np.ndarray  # (PENDING, d)
    weights: np.ndarray  # (PENDING,)
    count: np.ndarray  # (1,) int64


@njit(cache=True, nogil=True, fastmath={"contract"})
def column(inverse, k, out):
    """Set out = V e_k."""
    d = out.shape[0]
    for i in range(d):
        out[i] = inverse.base[k, i]
    for j in range(inverse.count[0]):
        weight = inverse.weights[j] * inverse.vectors[j, k]
        for i in range(d):
            out[i] += weight * inverse.vectors[j, i]


@njit(cache=True, nogil=True, fastmath={"contract"})
def apply(inverse, x, out):
    """Set out = V x."""
    transposed_product(inverse.base, x, out)
    for j in range(inverse.count[0]):
        weight = inverse.weights[j] * dot(inverse.vectors[j], x)
        for i in range(out.shape[0]):
            out[i] += weight * inverse.vectors[j, i]


@njit(cache=True, nogil=True)
def push(inverse, weight, vector):
    """Add weight · vector vectorᵀ to V."""
    if inverse.count[0] == inverse.weights.shape[0]:
        settle(inverse)
    place = inverse.count[0]
    inverse.weights[place] = weight
    inverse.vectors[place, :] = vector
    inverse.count[0] = place + 1


@njit(cache=True, nogil=True, fastmath={"contract"})
def settle(inverse):
    """Apply what is pending to the base."""
    count, d = inverse.count[0], inverse.base.shape[0]
    if count == 0:
        return
    right = inverse.vectors[:count]
    for first in range(0, d, ROWS):
        last = min(first + ROWS, d)
        left = np.empty((last - first, count))
        for i in range(first, last):
            for j in range(count):
                left[i - first, j] = inverse.weights[j] * inverse.vectors[j, i]
        change = np.dot(left, right)
        for i in range(first, last):
            for c in range(d):
                inverse.base[i, c] += change[i - first, c]
    inverse.count[0] = 0


@njit(cache=True, nogil=True)
def mirror(matrix):
    """Copy the lower triangle to the upper one, in tiles."""
    d = matrix.shape[0]
    for top in range(0, d, ROWS):
        for left in range(0, top + 1, ROWS):
            for i in range(top, min(top + ROWS, d)):
                for j in range(left, min(left + ROWS, i)):
                    matrix[j, i] = matrix[i, j]
