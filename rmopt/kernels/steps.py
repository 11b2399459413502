"""The input of a compiled loop's steps, the reasons for its end, and its counters.

A term of a bilinear loss is a row p of one sparse matrix and a row q of another, or the difference of two rows
(a triplet: query, positive, negative).
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.vectors import add_rows, add_to_rows, fetch, gather, subtract_rows

# All terms are used; the gauge should be checked; the next step is ill-conditioned in this gauge; the score of the
# next step is not finite; workers did not meet before it.
FINISHED, PROBE_DUE, STEP_REFUSED, NOT_FINITE, NOT_MET = range(5)


class Counters(NamedTuple):
    """Running totals of a state.

    `counts` (int64): updates, steps since the last probe. `size` (float64): traces of the Gram matrices
    of the factors.
    """

    counts: np.ndarray
    size: np.ndarray


class Rows(NamedTuple):
    """The parts of a CSR matrix with sorted int32 indices and float64 values."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


class StepRows(NamedTuple):
    """The input of a run's steps: arrays with one entry per term.

    `minus` holds −1 if the right vector is a single row; `targets` the y of φ(z, y); `etas` the step sizes, one per
    step.
    """

    left: np.ndarray
    plus: np.ndarray
    minus: np.ndarray
    targets: np.ndarray
    etas: np.ndarray


@njit(cache=True, nogil=True, inline="always")
def fetch_row(rows, row):
    """Begin to load a row into the cache."""
    fetch(rows.indices, rows.indptr[row], rows.indptr[row + 1])
    fetch(rows.values, rows.indptr[row], rows.indptr[row + 1])


@njit(cache=True, nogil=True, inline="always")
def gather_row(A, rows, plus, minus, out):
    """Set out = Aᵀp for p a row, or the difference of two rows."""
    gather(A, rows.indices, rows.values, rows.indptr[plus], rows.indptr[plus + 1], out)
    if minus >= 0:
        start, stop = rows.indptr[minus], rows.indptr[minus + 1]
        add_rows(A, rows.indices, rows.values, start, stop, -1.0, out)


@njit(cache=True, nogil=True)
def scatter_row(A, rows, row, g, sign):
    """Add ± p gᵀ to A for a row p, or nothing for the number −1."""
    if row >= 0:
        add_to_rows(A, rows.indices, rows.values, rows.indptr[row], rows.indptr[row + 1], sign, g)


@njit(cache=True, nogil=True)
def add_row(column, rows, row, scale):
    """Add a scaled row, or nothing for the number −1."""
    if row >= 0:
        for j in range(rows.indptr[row], rows.indptr[row + 1]):
            column[rows.indices[j]] += scale * rows.values[j]


@njit(cache=True, nogil=True, inline="always")
def gather_term(A, B, left, right, terms, t, u, v):
    """Set u = Aᵀp and v = Bᵀq for term t."""
    ahead = t + 2
    if ahead < terms.left.shape[0]:
        fetch_row(left, terms.left[ahead])
        fetch_row(right, terms.plus[ahead])
        if terms.minus[ahead] >= 0:
            fetch_row(right, terms.minus[ahead])
    p = terms.left[t]
    gather(A, left.indices, left.values, left.indptr[p], left.indptr[p + 1], u)
    gather_row(B, right, terms.plus[t], terms.minus[t], v)


@njit(cache=True, nogil=True)
def difference_workspace(rows):
    """Return workspace for the difference of any two rows: indices and values."""
    width = 0
    for i in range(rows.indptr.shape[0] - 1):
        width = max(width, rows.indptr[i + 1] - rows.indptr[i])
    return np.empty(2 * width, rows.indices.dtype), np.empty(2 * width)


@njit(cache=True, nogil=True, inline="always")
def right_vector(right, terms, t, indices, values):
    """Return q of term t as one sparse vector: (indices, values, start, stop).

    `indices` and `values` are space for a difference, from `difference_workspace`.
    """
    plus, minus = terms.plus[t], terms.minus[t]
    start, stop = right.indptr[plus], right.indptr[plus + 1]
    found_indices, found_values = right.indices, right.values
    if minus >= 0:
        m_start, m_stop = right.indptr[minus], right.indptr[minus + 1]
        length = subtract_rows(right.indices, right.values, start, stop, m_start, m_stop, indices, values)
        found_indices, found_values, start, stop = indices, values, np.int32(0), np.int32(length)
    return found_indices, found_values, start, stop
