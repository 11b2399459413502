"""Compiled loops of the rivals, for the hinge loss of triplets (query, positive, negative)."""

import numpy as np
from numba import njit

from rmopt.kernels.terms import difference_room, gather_term, right_vector
from rmopt.kernels.vectors import dot, gather, scatter, square, subtract_rows

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
    indices, values = difference_room(right)
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


@njit(cache=True, nogil=True)
def psd_gradient(A, rows, terms, updates):
    """Move A along (q dᵀ + d qᵀ) A with d = positive − negative (Shalit et al. 2012, §7.1.4, 2).

    Returns the number of the first bad step, or −1.
    """
    k = A.shape[1]
    a, b = np.empty(k), np.empty(k)
    indices, values = difference_room(rows)
    for t in range(terms.left.shape[0]):
        gather_term(A, A, rows, rows, terms, t, a, b)
        loss = 1.0 - dot(a, b)
        if not np.isfinite(loss):
            return t
        if loss <= 0.0:
            continue
        d_indices, d_values, start, stop = right_vector(rows, terms, t, indices, values)
        q_start, q_stop = rows.indptr[terms.left[t]], rows.indptr[terms.left[t] + 1]
        for c in range(k):
            a[c] *= terms.etas[t]
            b[c] *= terms.etas[t]
        scatter(A, rows.indices, rows.values, q_start, q_stop, b)
        scatter(A, d_indices, d_values, start, stop, a)
        updates[0] += 1
    return -1


@njit(cache=True, nogil=True)
def oasis(W, rows, terms, updates):
    """Add τ q dᵀ to W with τ = min(C, loss / ‖q dᵀ‖²), the step size being C.

    Returns the number of the first bad step, or −1.
    """
    indices, values = difference_room(rows)
    for t in range(terms.left.shape[0]):
        d_indices, d_values, start, stop = right_vector(rows, terms, t, indices, values)
        q_start, q_stop = rows.indptr[terms.left[t]], rows.indptr[terms.left[t] + 1]
        score = 0.0
        for i in range(q_start, q_stop):
            row, partial = rows.indices[i], 0.0
            for j in range(start, stop):
                partial += d_values[j] * W[row, d_indices[j]]
            score += rows.values[i] * partial
        loss = 1.0 - score
        if not np.isfinite(loss):
            return t
        steepness = square(rows.values, q_start, q_stop) * square(d_values, start, stop)
        if loss <= 0.0 or steepness == 0.0:
            continue
        tau = min(terms.etas[t], loss / steepness)
        for i in range(q_start, q_stop):
            row, weight = rows.indices[i], tau * rows.values[i]
            for j in range(start, stop):
                W[row, d_indices[j]] += weight * d_values[j]
        updates[0] += 1
    return -1


@njit(cache=True, nogil=True)
def lego(M, near, far, rows, terms, updates):
    """Move the metric M for the pair (query, positive), then for (query, negative), where they violate.

    Positives should be within the squared distance `near`, negatives beyond `far`. Returns the number of the
    first bad step, or −1.
    """
    indices, values = difference_room(rows)
    Mz = np.empty(M.shape[0])
    for t in range(terms.left.shape[0]):
        query, moved = terms.left[t], False
        for side in range(2):
            other = terms.plus[t] if side == 0 else terms.minus[t]
            length = subtract_rows(
                rows.indices, rows.values, rows.indptr[query], rows.indptr[query + 1],
                rows.indptr[other], rows.indptr[other + 1], indices, values,
            )  # fmt: skip
            gather(M, indices, values, 0, length, Mz)
            distance = 0.0
            for j in range(length):
                distance += values[j] * Mz[indices[j]]
            if not np.isfinite(distance):
                return t
            target = near if side == 0 else far
            if distance <= 0.0 or (distance <= near if side == 0 else distance >= far):
                continue
            _log_det_step(M, Mz, distance, target, terms.etas[t])
            moved = True
        if moved:
            updates[0] += 1
    return -1


@njit(cache=True, nogil=True, fastmath={"contract"})
def _log_det_step(M, Mz, distance, target, eta):
    """Make M the minimiser of D_logdet(·, M) + η/2 (zᵀ·z − target)², given Mz and zᵀMz."""
    edge = eta * target * distance - 1.0
    reached = (edge + np.sqrt(edge * edge + 4.0 * eta * distance * distance)) / (2.0 * eta * distance)
    pull = eta * (reached - target)
    weight = pull / (1.0 + pull * distance)
    for i in range(M.shape[0]):
        scale = weight * Mz[i]
        for j in range(M.shape[0]):
            M[i, j] -= scale * Mz[j]
