"""The compiled loop: stochastic Riemannian gradient steps for losses of z = pᵀ W q."""

import numpy as np
from numba import njit

from rmopt.kernels.lifted import REFUSED, make_scratch, score, step
from rmopt.kernels.losses import slope
from rmopt.kernels.outcomes import CHECKPOINT_DUE, FINISHED, NOT_FINITE, STEP_REFUSED
from rmopt.kernels.terms import difference_room, gather_term, right_vector
from rmopt.kernels.vectors import scatter, square, trace


def _run(kind, code, factors, counters, left, right, terms, start, probe_every, growth_limit):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    It ends when all terms are used (`FINISHED`), when the gauge should be looked at
    (`CHECKPOINT_DUE`), before a step that is ill-conditioned in this gauge (`STEP_REFUSED`), or
    before a step whose score is not finite (`NOT_FINITE`).
    """
    A, B = factors.A, factors.B
    k = A.shape[1]
    scratch = make_scratch(k)
    room_indices, room_values = difference_room(right)
    counts, size = counters.counts, counters.size
    for t in range(start, terms.left.shape[0]):
        if counts[1] >= probe_every:
            return t, CHECKPOINT_DUE
        gather_term(A, B, left, right, terms, t, scratch.u, scratch.v)
        z = score(factors, scratch)
        if not np.isfinite(z):
            return t, NOT_FINITE
        scale = -terms.etas[t] * slope(code, z, terms.targets[t])
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
