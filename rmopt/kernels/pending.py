"""A symmetric matrix that every step changes by terms of rank one.

V = base + Σ s_j v_j v_jᵀ: changes stay pending as a few vectors and are applied together, so that a step reads the
d × d numbers at most once and writes them rarely.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.vectors import copy, dot, gather, symmetric_product

# The largest number of pending vectors, and of rows of the base that change together.
PENDING = 32
ROWS = 64


class Changing(NamedTuple):
    """V = base + Σ weights[j] · vectors[j] vectors[j]ᵀ over the first `waiting[0]` vectors."""

    base: np.ndarray  # (d, d), symmetric
    vectors: np.ndarray  # (PENDING, d)
    weights: np.ndarray  # (PENDING,)
    waiting: np.ndarray  # (1,) int64


def of(base: np.ndarray) -> Changing:
    """Return a changing matrix with the value of an array, which it takes over."""
    vectors = np.zeros((PENDING, base.shape[0]))
    return Changing(base, vectors, np.zeros(PENDING), np.zeros(1, dtype=np.int64))


@njit(cache=True, nogil=True, fastmath={"contract"})
def column(matrix, k, out):
    """Set out = V e_k."""
    # The same half of the base as in `apply`, since rounding makes the halves differ.
    copy(matrix.base[k, :k], out[:k])
    copy(matrix.base[k:, k], out[k:])
    for j in range(matrix.waiting[0]):
        weight = matrix.weights[j] * matrix.vectors[j, k]
        for i in range(out.shape[0]):
            out[i] += weight * matrix.vectors[j, i]


@njit(cache=True, nogil=True, fastmath={"contract"})
def apply(matrix, x, out):
    """Set out = V x."""
    symmetric_product(matrix.base, x, out)
    for j in range(matrix.waiting[0]):
        weight = matrix.weights[j] * dot(matrix.vectors[j], x)
        for i in range(out.shape[0]):
            out[i] += weight * matrix.vectors[j, i]


@njit(cache=True, nogil=True, fastmath={"contract"})
def apply_sparse(matrix, indices, values, length, out):
    """Set out = V x for the sparse vector x in the first `length` places."""
    gather(matrix.base, indices, values, 0, length, out)
    for j in range(matrix.waiting[0]):
        total = 0.0
        for at in range(length):
            total += values[at] * matrix.vectors[j, indices[at]]
        out += matrix.weights[j] * total * matrix.vectors[j]


@njit(cache=True, nogil=True)
def push(matrix, weight, vector):
    """Add weight · vector vectorᵀ to V."""
    if matrix.waiting[0] == matrix.weights.shape[0]:
        settle(matrix)
    place = matrix.waiting[0]
    copy(vector, matrix.vectors[place])
    matrix.weights[place], matrix.waiting[0] = weight, place + 1


@njit(cache=True, nogil=True, fastmath={"contract"})
def settle(matrix):
    """Apply the pending changes to the base."""
    count, d = matrix.waiting[0], matrix.base.shape[0]
    if count == 0:
        return
    right = matrix.vectors[:count]
    for first in range(0, d, ROWS):
        last = min(first + ROWS, d)
        left = np.empty((last - first, count))
        for i in range(first, last):
            for j in range(count):
                left[i - first, j] = matrix.weights[j] * matrix.vectors[j, i]
        rows = matrix.base[first:last]
        rows += np.dot(left, right)
    matrix.waiting[0] = 0
