"""Compiled loops of the baselines, for the hinge loss of triplets (query, positive, negative)."""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.steps import difference_workspace, gather_term, right_vector
from rmopt.kernels.vectors import dot, scatter, square

FACTORED, PASSIVE_AGGRESSIVE = range(2)


@njit(cache=True, nogil=True)
def run(method, A, B, left, right, terms, updates):
    """Do one step per triplet for the hinge loss, and return the number of the first bad step, or −1.

    `FACTORED`: simultaneous gradient steps on A and B with step size eta (Shalit et al. 2012, §7.1.4, 1); if B is A
    it moves along (q dᵀ + d qᵀ) A with d = positive − negative (§7.1.4, 2). `PASSIVE_AGGRESSIVE`: A moves given B,
    then B given the new A, each by the smallest step that removes the loss, at most eta = C (§7.1.4, 3).
    """
    k = A.shape[1]
    a, b, g = np.empty(k), np.empty(k), np.empty(k)
    indices, values = difference_workspace(right)
    for t in range(terms.left.shape[0]):
        gather_term(A, B, left, right, terms, t, a, b)
        loss = 1.0 - dot(a, b)
        if not np.isfinite(loss):
            return t
        if loss <= 0.0:
            continue
        d_indices, d_values, start, stop = right_vector(right, terms, t, indices, values)
        q_start, q_stop = left.indptr[terms.left[t]], left.indptr[terms.left[t] + 1]
        q_square = square(left.values, q_start, q_stop)
        d_square = square(d_values, start, stop)
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
        scatter(B, d_indices, d_values, start, stop, g)
        updates[0] += 1
    return -1
