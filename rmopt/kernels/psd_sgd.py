"""The compiled loop on positive semidefinite matrices: losses of z = pᵀ W q with W = Y C Yᵀ."""

import numpy as np
from numba import njit

from rmopt.kernels.lifted_psd import REFUSED, make_scratch, score, step
from rmopt.kernels.losses import slope
from rmopt.kernels.outcomes import CHECKPOINT_DUE, FINISHED, NOT_FINITE, STEP_REFUSED
from rmopt.kernels.terms import difference_room, gather_term, right_vector
from rmopt.kernels.vectors import dot, scatter, sparse_dot, square, trace


def _run(code, factors, counters, left, right, terms, start, probe_every, growth_limit):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    Parameters and ends are those of `rmopt.kernels.bilinear_sgd`.
    """
    Y = factors.Y
    scratch = make_scratch(Y.shape[1])
    room_indices, room_values = difference_room(right)
    counts, size = counters.counts, counters.size
    for t in range(start, terms.left.shape[0]):
        if counts[1] >= probe_every:
            return t, CHECKPOINT_DUE
        gather_term(Y, Y, left, right, terms, t, scratch.u, scratch.v)
        value = score(factors, scratch)
        if not np.isfinite(value):
            return t, NOT_FINITE
        scale = -terms.etas[t] * slope(code, value, terms.targets[t])
        counts[1] += 1
        if scale == 0.0:
            continue
        # Most triplets end above; only an update needs the difference as one sparse vector.
        q_indices, q_values, q_start, q_stop = right_vector(right, terms, t, room_indices, room_values)
        p_start, p_stop = left.indptr[terms.left[t]], left.indptr[terms.left[t] + 1]
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
