"""The compiled loop on positive semidefinite matrices: losses of z = pᵀ W q with W = Y C Yᵀ."""

import numpy as np
from numba import njit

from rmopt.kernels.lifted_psd import REFUSED, make_scratch, score, step
from rmopt.kernels.losses import slope
from rmopt.kernels.outcomes import CHECKPOINT_DUE, FINISHED, NOT_FINITE, STEP_REFUSED
from rmopt.kernels.vectors import accumulate, dot, gather, scatter, sparse_dot, square, subtract_rows, trace


def _run(code, factors, counters, left, right, terms, start, probe_every, growth_limit):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    Parameters and ends are those of `rmopt.kernels.bilinear_sgd`.
    """
    Y = factors.Y
    scratch = make_scratch(Y.shape[1])
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
        gather(Y, left.indices, left.values, p_start, p_stop, scratch.u)
        gather(Y, right.indices, right.values, q_start, q_stop, scratch.v)
        if minus >= 0:
            m_start, m_stop = right.indptr[minus], right.indptr[minus + 1]
            accumulate(Y, right.indices, right.values, m_start, m_stop, -1.0, scratch.v)
        value = score(factors, scratch)
        if not np.isfinite(value):
            return t, NOT_FINITE
        scale = -terms.etas[t] * slope(code, value, terms.targets[t])
        counts[1] += 1
        if scale == 0.0:
            continue
        q_indices, q_values = right.indices, right.values
        if minus >= 0:
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
        pq = sparse_dot(left.indices, left.values, p_start, p_stop, q_indices, q_values, q_start, q_stop)
        if step(factors, scratch, p_square, q_square, pq, scale) == REFUSED:
            counts[1] -= 1
            return t, STEP_REFUSED
        counts[0] += 1
        scatter(Y, left.indices, left.values, p_start, p_stop, scratch.d)
        scatter(Y, q_indices, q_values, q_start, q_stop, scratch.e)
        size[0] += _gram_growth(scratch, scale, p_square, q_square, pq)
        # cond(YᵀY) ≤ trace(YᵀY) trace(H): large means that H is losing digits.
        if size[0] * trace(factors.H) > growth_limit:
            return t + 1, CHECKPOINT_DUE
    return terms.left.shape[0], FINISHED


@njit(cache=True, nogil=True)
def _gram_growth(scratch, scale, p_square, q_square, pq):
    """Return the change of trace(YᵀY) under Y ← Y + p dᵀ + q eᵀ; v holds Yᵀ(scale · q)."""
    d, e = scratch.d, scratch.e
    crossing = 2.0 * (dot(scratch.u, d) + dot(scratch.v, e) / scale)
    return crossing + p_square * dot(d, d) + q_square * dot(e, e) + 2.0 * pq * dot(d, e)


run = njit(cache=True, nogil=True)(_run)
