"""Compiled loops of the retrieval measures, exact search, and online learners with a full matrix."""

import numpy as np
from numpy.typing import NDArray

from rmopt.kernels import njit, pending
from rmopt.kernels.steps import difference_workspace, right_vector
from rmopt.kernels.vectors import square, subtract_rows


@njit(cache=True, nogil=True)
def average_precision(ranked, relevant):
    """Return the mean over relevant scores of the precision among the ranked ones at least as high; both ascend."""
    hits = relevant.shape[0] - np.searchsorted(relevant, relevant)
    return np.mean(hits / (ranked.shape[0] - np.searchsorted(ranked, relevant)))


@njit(cache=True, nogil=True)
def label_precisions(scores, ranked, truth, out):
    """Set out to the average precision of each row of scores, also ascending, by its marked true labels."""
    for i in range(scores.shape[0]):
        out[i] = average_precision(ranked[i], np.sort(scores[i][truth[i]]))


@njit(cache=True, nogil=True)
def retrieved(
    scores: NDArray[np.floating],  # (n_queries, n), a query's own score the lowest
    ranked: NDArray[np.floating],  # (n_queries, n) ascending in each row
    group: NDArray[np.int64],  # (n_queries,) classes
    members: NDArray[np.int64],  # (n,) numbers of documents by class
    starts: NDArray[np.int64],  # of each class in members, and its end
    ks: NDArray[np.int64],
    out: NDArray[np.float64],  # (n_queries, 1 + len(ks))
) -> None:
    """Set out to the average precision of each query, and the precision at each k.

    Of equal scores the last one counts. If they straddle k, it is the mean over all of their orders.
    """
    for i in range(scores.shape[0]):
        others = ranked[i, 1:]
        relevant = np.sort(scores[i][members[starts[group[i]] : starts[group[i] + 1]]])[1:]
        n, r = others.shape[0], relevant.shape[0]
        out[i, 0] = average_precision(others, relevant)
        for at in range(ks.shape[0]):
            taken = min(ks[at], n)
            cut = others[n - taken]
            above = n - np.searchsorted(others, cut, side="right")
            tied = n - above - np.searchsorted(others, cut)
            relevant_above = r - np.searchsorted(relevant, cut, side="right")
            relevant_tied = r - relevant_above - np.searchsorted(relevant, cut)
            out[i, 1 + at] = (relevant_above + (taken - above) * relevant_tied / tied) / ks[at]


@njit(cache=True, nogil=True)
def keep_largest(
    scores: NDArray[np.floating],  # (n_queries, n) of items first, first + 1, …
    first: int,
    best: NDArray[np.floating],  # (n_queries, k) falling
    numbers: NDArray[np.int64],  # (n_queries, k)
) -> None:
    """Put larger scores and the numbers of their items into `best`. Of equal ones the first stays."""
    k = best.shape[1]
    for query in range(scores.shape[0]):
        least = best[query, k - 1]
        for item in range(scores.shape[1]):
            score = scores[query, item]
            if score > least:
                at = k - 1
                while at > 0 and best[query, at - 1] < score:
                    best[query, at] = best[query, at - 1]
                    numbers[query, at] = numbers[query, at - 1]
                    at -= 1
                best[query, at] = score
                numbers[query, at] = first + item
                least = best[query, k - 1]


@njit(cache=True, nogil=True)
def oasis(W, rows, terms, updates):
    """Add τ q dᵀ to W with τ = min(C, loss / ‖q dᵀ‖²), the step size being C.

    Returns the number of the first bad step, or −1.
    """
    indices, values = difference_workspace(rows)
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
    """Move the metric M for the pair (query, positive), then for (query, negative), if they violate their bounds.

    Positives should be within the squared distance `near`, negatives beyond `far`. Changes stay pending
    (`rmopt.kernels.pending`). Returns the number of the first bad step, or −1.
    """
    indices, values = difference_workspace(rows)
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
    root = np.sqrt(edge * edge + 4.0 * eta * distance * distance)
    # Each number in a form without cancellation of large ones.
    reached = (edge + root) / (2.0 * eta * distance) if edge > 0.0 else 2.0 * distance / (root - edge)
    if abs(reached - target) * distance < abs(distance - reached) * max(reached, target):
        return (1.0 - reached / distance) / distance
    pull = eta * (reached - target)
    return pull / (1.0 + pull * distance)
