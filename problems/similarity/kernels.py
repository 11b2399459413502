"""Compiled loops of the rivals: steps on the factors A and B of W = A Bᵀ, without geometry."""

import numpy as np
from numba import njit

from rmopt.kernels.vectors import accumulate, dot, gather, scatter, square, subtract_rows

FACTORED, PASSIVE_AGGRESSIVE = range(2)


@njit(cache=True, nogil=True)
def run(method, A, B, left, right, terms, updates):
    """Do one step per triplet for the hinge loss; return the number of the first bad step, or −1.

    `FACTORED`: simultaneous gradient steps on A and B with step size eta (Shalit et al. 2012, §7.1.4, 1).
    `PASSIVE_AGGRESSIVE`: A moves given B, then B given the new A, each by the smallest step that removes
    the loss, at most eta = C (§7.1.4, 3).
    """
    k = A.shape[1]
    a, b, g = np.empty(k), np.empty(k), np.empty(k)
    width = 0
    for i in range(right.indptr.shape[0] - 1):
        width = max(width, right.indptr[i + 1] - right.indptr[i])
    indices = np.empty(2 * width, right.indices.dtype)
    values = np.empty(2 * width)
    for t in range(terms.left.shape[0]):
        query, plus, minus = terms.left[t], terms.plus[t], terms.minus[t]
        q_start, q_stop = left.indptr[query], left.indptr[query + 1]
        p_start, p_stop = right.indptr[plus], right.indptr[plus + 1]
        m_start, m_stop = right.indptr[minus], right.indptr[minus + 1]
        gather(A, left.indices, left.values, q_start, q_stop, a)
        gather(B, right.indices, right.values, p_start, p_stop, b)
        accumulate(B, right.indices, right.values, m_start, m_stop, -1.0, b)
        loss = 1.0 - dot(a, b)
        if not np.isfinite(loss):
            return t
        if loss <= 0.0:
            continue
        length = subtract_rows(right.indices, right.values, p_start, p_stop, m_start, m_stop, indices, values)
        q_square = square(left.values, q_start, q_stop)
        d_square = square(values, 0, length)
        eta_A = eta_B = terms.etas[t]
        if method == PASSIVE_AGGRESSIVE:
            steepness = q_square * dot(b, b)
            eta_A = min(loss / steepness, eta_A) if steepness > 0.0 else 0.0
            # Given the new A, whose Aᵀq is a + eta_A ‖q‖² b.
            for c in range(k):
                a[c] += eta_A * q_square * b[c]
            loss = max(0.0, 1.0 - dot(a, b))
            steepness = d_square * dot(a, a)
            eta_B = min(loss / steepness, eta_B) if steepness > 0.0 else 0.0
        for c in range(k):
            g[c] = eta_A * b[c]
        scatter(A, left.indices, left.values, q_start, q_stop, g)
        for c in range(k):
            g[c] = eta_B * a[c]
        scatter(B, indices, values, 0, length, g)
        updates[0] += 1
    return -1
