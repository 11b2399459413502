"""The compiled loop: stochastic Riemannian gradient steps for losses of z = pᵀ W q, one rank-one term per step."""

import numpy as np

from rmopt.kernels import njit, steps
from rmopt.kernels.lifted import REFUSED, make_scratch, score, step, symmetric_gram_growth, symmetric_step
from rmopt.kernels.losses import slope_of
from rmopt.kernels.meeting import due_at, go_on
from rmopt.kernels.vectors import scatter, sparse_dot, square, trace


@njit(cache=True, nogil=True)
def run(
    loss, kind, symmetric, factors, counters, left, right, terms, start, probe_every, growth_limit, meeting
):
    """Do the steps from `start` on, and return the number of the next step and why the loop ended.

    It ends when all terms are used (`FINISHED`), when the gauge should be checked (`PROBE_DUE`), before a step that
    is ill-conditioned in this gauge (`STEP_REFUSED`), or before a step whose score is not finite (`NOT_FINITE`), or
    before one at which workers did not meet (`NOT_MET`).

    Of `kind` and `symmetric`, the retractions of `Factors` and of `SymmetricFactors`, one is None. Numba compiles
    nothing below an ``is not None`` that is false.
    """
    if kind is not None:
        A, B = factors.A, factors.B
        inverses = factors.H_A, factors.H_B
    if symmetric is not None:
        A = B = factors.Y
        inverses = (factors.H,)
    due = due_at(meeting)
    scratch = make_scratch(A.shape[1])
    spare_indices, spare_values = steps.difference_workspace(right)
    counts, size = counters.counts, counters.size
    for t in range(start, terms.left.shape[0]):
        if meeting is not None and t == due:
            if not go_on(meeting, factors.C, factors.C_inverse, inverses, counters):
                return t, steps.NOT_MET
            due = due_at(meeting)
        if counts[1] >= probe_every:
            return t, steps.PROBE_DUE
        steps.gather_term(A, B, left, right, terms, t, scratch.u, scratch.v)
        z = score(factors, scratch)
        if not np.isfinite(z):
            return t, steps.NOT_FINITE
        scale = -terms.etas[t] * slope_of(loss, z, terms.targets[t])
        counts[1] += 1
        if scale == 0.0:
            continue
        # Most triplets end above; only an update needs the difference as one sparse vector.
        q_indices, q_values, q_start, q_stop = steps.right_vector(
            right, terms, t, spare_indices, spare_values
        )
        p_start, p_stop = left.indptr[terms.left[t]], left.indptr[terms.left[t] + 1]
        p_square = square(left.values, p_start, p_stop)
        q_square = square(q_values, q_start, q_stop)
        if p_square == 0.0 or q_square == 0.0:
            continue
        if kind is not None:
            status = step(kind, factors, scratch, p_square, q_square, scale)
        if symmetric is not None:
            pq = sparse_dot(left.indices, left.values, p_start, p_stop, q_indices, q_values, q_start, q_stop)
            status = symmetric_step(factors, scratch, p_square, q_square, pq, scale)
        if status == REFUSED:
            counts[1] -= 1
            return t, steps.STEP_REFUSED
        counts[0] += 1
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): a large value means that H_A loses digits.
        scatter(A, left.indices, left.values, p_start, p_stop, scratch.g)
        scatter(B, q_indices, q_values, q_start, q_stop, scratch.h)
        if kind is not None:
            size[0] += _gram_growth(scratch.u, scratch.g, p_square)
            size[1] += _gram_growth(scratch.v, scratch.h, q_square)
            outgrown = (
                size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit
            )
        if symmetric is not None:
            size[0] += symmetric_gram_growth(scratch, scale, p_square, q_square, pq)
            outgrown = size[0] * trace(factors.H) > growth_limit
        if outgrown:
            return t + 1, steps.PROBE_DUE
    return terms.left.shape[0], steps.FINISHED


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _gram_growth(u, g, p_square):
    """Return the change of trace(AᵀA) under A ← A + p gᵀ."""
    total = 0.0
    for c in range(g.shape[0]):
        total += g[c] * (2.0 * u[c] + p_square * g[c])
    return total
