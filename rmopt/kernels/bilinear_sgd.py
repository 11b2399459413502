"""The compiled loop: stochastic Riemannian gradient steps for losses of z = pᵀ W q.

A term is a row p of one sparse matrix and a row q of another, or the difference of two rows
(a triplet: query, positive, negative).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.lifted import REFUSED, make_scratch, score, step
from rmopt.kernels.losses import slope
from rmopt.kernels.outcomes import CHECKPOINT_DUE, FINISHED, NOT_FINITE, STEP_REFUSED
from rmopt.kernels.vectors import accumulate, gather, scatter, square, subtract_rows, trace


class Rows(NamedTuple):
    """The parts of a CSR matrix with sorted int32 indices and float64 values."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


class Terms(NamedTuple):
    """What the steps of a run look at: arrays with one entry per step.

    `minus` holds −1 where the right vector is a single row; `targets` the y of φ(z, y);
    `etas` the step sizes, one per step.
    """

    left: np.ndarray
    plus: np.ndarray
    minus: np.ndarray
    targets: np.ndarray
    etas: np.ndarray


def _run(kind, code, factors, counters, left, right, terms, start, probe_every, growth_limit):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    It ends when all terms are used (`FINISHED`), when the gauge should be looked at
    (`CHECKPOINT_DUE`), before a step that is ill-conditioned in this gauge (`STEP_REFUSED`), or
    before a step whose score is not finite (`NOT_FINITE`).
    """
    A, B = factors.A, factors.B
    k = A.shape[1]
    scratch = make_scratch(k)
    width = 0
    for i in range(right.indptr.shape[0] - 1):
        width = max(width, right.indptr[i + 1] - right.indptr[i])
    merged_indices = np.empty(2 * width, right.indices.dtype)
    merged_values = np.empty(2 * width)
    counts, size = counters.counts, counters.size
    for t in range(start, terms.left.shape[0]):
        if counts[1] >= probe_every:
            return t, CHECKPOINT_DUE
        p, plus, minus = terms.left[t], terms.plus[t], terms.minus[t]
        p_start, p_stop = left.indptr[p], left.indptr[p + 1]
        q_start, q_stop = right.indptr[plus], right.indptr[plus + 1]
        gather(A, left.indices, left.values, p_start, p_stop, scratch.u)
        gather(B, right.indices, right.values, q_start, q_stop, scratch.v)
        if minus >= 0:
            m_start, m_stop = right.indptr[minus], right.indptr[minus + 1]
            accumulate(B, right.indices, right.values, m_start, m_stop, -1.0, scratch.v)
        z = score(factors, scratch)
        if not np.isfinite(z):
            return t, NOT_FINITE
        scale = -terms.etas[t] * slope(code, z, terms.targets[t])
        counts[1] += 1
        if scale == 0.0:
            continue
        q_indices, q_values = right.indices, right.values
        if minus >= 0:
            # Most triplets end above; only an update needs the difference as one sparse vector.
            m_start, m_stop = right.indptr[minus], right.indptr[minus + 1]
            length = subtract_rows(
                right.indices, right.values, q_start, q_stop, m_start, m_stop, merged_indices, merged_values
            )
            q_indices, q_values, q_start, q_stop = (
                merged_indices,
                merged_values,
                np.int32(0),
                np.int32(length),
            )
        p_square = square(left.values, p_start, p_stop)
        q_square = square(q_values, q_start, q_stop)
        if p_square == 0.0 or q_square == 0.0:
            continue
        if step(kind, factors, scratch, p_square, q_square, scale) == REFUSED:
            counts[1] -= 1
            return t, STEP_REFUSED
        counts[0] += 1
        scatter(A, left.indices, left.values, p_start, p_stop, scratch.g)
        scatter(B, q_indices, q_values, q_start, q_stop, scratch.h)
        size[0] += _gram_growth(scratch.u, scratch.g, p_square)
        size[1] += _gram_growth(scratch.v, scratch.h, q_square)
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): large means that H_A is losing digits.
        if size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit:
            return t + 1, CHECKPOINT_DUE
    return terms.left.shape[0], FINISHED


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _gram_growth(u, g, p_square):
    """Return the change of trace(AᵀA) under A ← A + p gᵀ."""
    total = 0.0
    for c in range(g.shape[0]):
        total += g[c] * (2.0 * u[c] + p_square * g[c])
    return total


run = njit(cache=True, nogil=True)(_run)
