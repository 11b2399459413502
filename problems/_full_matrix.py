"""Compiled loops of online learners with a full matrix, for triplets (query, positive, negative)."""

import numpy as np
from numba import njit

from rmopt.kernels import pending
from rmopt.kernels.terms import difference_room, right_vector
from rmopt.kernels.vectors import square, subtract_rows


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

    Positives should be within the squared distance `near`, negatives beyond `far`. Changes stay pending
    (`rmopt.kernels.pending`). Returns the number of the first bad step, or −1.
    """
    indices, values = difference_room(rows)
    Mz = np.empty(M.base.shape[0])
    for t in range(terms.left.shape[0]):
        query, moved = terms.left[t], False
        for side in range(2):
            other = terms.plus[t] if side == 0 else terms.minus[t]
            length = subtract_rows(
                rows.indices, rows.values, rows.indptr[query], rows.indptr[query + 1],
                rows.indptr[other], rows.indptr[other + 1], indices, values,
            )  # fmt: skip
            pending.apply_sparse(M, indices, values, length, Mz)
            distance = 0.0
            for j in range(length):
                distance += values[j] * Mz[indices[j]]
            if not np.isfinite(distance):
                return t
            target = near if side == 0 else far
            if distance <= 0.0 or (distance <= near if side == 0 else distance >= far):
                continue
            pending.push(M, -log_det_weight(distance, target, terms.etas[t]), Mz)
            moved = True
        if moved:
            updates[0] += 1
    return -1


@njit(cache=True, nogil=True)
def log_det_weight(distance, target, eta):
    """Return c such that M − c Mz (Mz)ᵀ minimises D_logdet(·, M) + η/2 (zᵀ·z − target)², given zᵀMz."""
    if eta * distance == 0.0:
        return 0.0
    edge = eta * target * distance - 1.0
    reached = (edge + np.sqrt(edge * edge + 4.0 * eta * distance * distance)) / (2.0 * eta * distance)
    pull = eta * (reached - target)
    return pull / (1.0 + pull * distance)
