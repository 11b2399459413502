"""Compiled loops of label ranking: LORETA with W = A C Bᵀ, A over labels and B over features, and its baselines."""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.exponential import sigmoid
from rmopt.kernels.lifted import REFUSED, make_scratch, step
from rmopt.kernels.meeting import due_at, go_on
from rmopt.kernels.steps import FINISHED, NOT_FINITE, NOT_MET, PROBE_DUE, STEP_REFUSED
from rmopt.kernels.vectors import dot, gather, product, scatter, square, trace

EXACT, WARP = range(2)


@njit(cache=True, nogil=True)
def run(kind, sampling, factors, counters, X, Y, terms, start, probe_every, growth_limit, meeting):
    """Do the steps from `start` on, and return the number of the next step and why the loop ended."""
    A, B = factors.A, factors.B
    n_labels, k = A.shape
    scratch = make_scratch(k)
    projected, scores = np.empty(k), np.empty(n_labels)
    labels, weights = np.empty(n_labels, np.int32), np.empty(n_labels)
    harmonic = np.zeros(n_labels + 1)
    for r in range(1, n_labels + 1):
        harmonic[r] = harmonic[r - 1] + 1.0 / r
    counts, size = counters.counts, counters.size
    due = due_at(meeting)
    for t in range(start, terms.rows.shape[0]):
        if meeting is not None and t == due:
            if not go_on(meeting, factors.C, factors.C_inverse, (factors.H_A, factors.H_B), counters):
                return t, NOT_MET
            due = due_at(meeting)
        if counts[1] >= probe_every:
            return t, PROBE_DUE
        row = terms.rows[t]
        x_start, x_stop = X.indptr[row], X.indptr[row + 1]
        own = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        counts[1] += 1
        if own.shape[0] == 0 or own.shape[0] == n_labels:
            continue
        gather(B, X.indices, X.values, x_start, x_stop, scratch.v)
        product(factors.C, scratch.v, projected)
        if sampling == EXACT:
            product(A, projected, scores)
            found = violations(scores, own, labels, weights)
        else:
            found = warp_violation(A, projected, own, terms.draws[t], harmonic, labels, weights)
        if found < 0:
            return t, NOT_FINITE
        x_square = square(X.values, x_start, x_stop)
        if found == 0 or x_square == 0.0:
            continue
        gather(A, labels, weights, 0, found, scratch.u)
        g_square = square(weights, 0, found)
        if step(kind, factors, scratch, g_square, x_square, -terms.etas[t]) == REFUSED:
            counts[1] -= 1
            return t, STEP_REFUSED
        counts[0] += 1
        scatter(A, labels, weights, 0, found, scratch.g)
        scatter(B, X.indices, X.values, x_start, x_stop, scratch.h)
        size[0] += 2.0 * dot(scratch.u, scratch.g) + g_square * dot(scratch.g, scratch.g)
        size[1] += 2.0 * dot(scratch.v, scratch.h) + x_square * dot(scratch.h, scratch.h)
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): a large value means that H_A loses digits.
        if size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit:
            return t + 1, PROBE_DUE
    return terms.rows.shape[0], FINISHED


@njit(cache=True, nogil=True)
def violations(scores, own, labels, weights):
    """Write the sparse subgradient over labels, and return its number of entries, or −1 if a score is not finite.

    `own` holds the true labels in ascending order.
    """
    best, best_score, next_own, total = -1, -np.inf, 0, 0.0
    for label in range(scores.shape[0]):
        total += scores[label]
        if next_own < own.shape[0] and own[next_own] == label:
            next_own += 1
        elif scores[label] > best_score:
            best, best_score = label, scores[label]
    if not np.isfinite(total) or best < 0:
        return -1
    found = 0
    for label in own:
        if best_score - scores[label] + 1.0 > 0.0:
            labels[found], weights[found] = label, -1.0
            found += 1
    if found == 0:
        return 0
    labels[found], weights[found] = best, float(found)
    return found + 1


@njit(cache=True, nogil=True)
def warp_violation(A, projected, own, draw, harmonic, labels, weights):
    """Draw wrong labels until one violates the margin of a drawn true label; otherwise as `violations`."""
    state = np.uint64(draw)
    state, pick = below(state, own.shape[0])
    right = own[pick]
    right_score = dot(A[right], projected)
    n_wrong = A.shape[0] - own.shape[0]
    for tries in range(1, n_wrong + 1):
        state, wrong = below(state, n_wrong)
        for label in own:
            if wrong >= label:
                wrong += 1
        margin = dot(A[wrong], projected) - right_score + 1.0
        if not np.isfinite(margin):
            return -1
        if margin > 0.0:
            weight = harmonic[n_wrong // tries]
            labels[0], weights[0] = right, -weight
            labels[1], weights[1] = wrong, weight
            return 2
    return 0


@njit(cache=True, nogil=True, inline="always")
def below(state, limit):
    """Return the next state of splitmix64 and an integer from 0 to limit − 1."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return state, int(np.float64(z >> np.uint64(11)) * 2.0**-53 * limit)


@njit(cache=True, nogil=True)
def passive_aggressive(A, B, X, Y, rows, etas, moves):
    """Move A given B, then B given the new A, each by the smallest step that removes the loss, at most eta.

    Returns the number of the first bad step, or −1.
    """
    n_labels, k = A.shape
    v, u, g = np.empty(k), np.empty(k), np.empty(k)
    scores, labels, weights = np.empty(n_labels), np.empty(n_labels, np.int32), np.empty(n_labels)
    for t in range(rows.shape[0]):
        start, stop = X.indptr[rows[t]], X.indptr[rows[t] + 1]
        own = Y.indices[Y.indptr[rows[t]] : Y.indptr[rows[t] + 1]]
        if own.shape[0] == 0 or own.shape[0] == n_labels:
            continue
        gather(B, X.indices, X.values, start, stop, v)
        product(A, v, scores)
        found = violations(scores, own, labels, weights)
        if found < 0:
            return t
        if found == 0:
            continue
        # The loss is d + gᵀW x for d violated labels, the last weight.
        gather(A, labels, weights, 0, found, u)
        loss = weights[found - 1] + dot(u, v)
        g_square, x_square = square(weights, 0, found), square(X.values, start, stop)
        steepness = g_square * dot(v, v)
        eta_A = min(loss / steepness, etas[t]) if steepness > 0.0 else 0.0
        # Given the new A, whose Aᵀg is u − eta_A ‖g‖² v.
        for c in range(k):
            u[c] -= eta_A * g_square * v[c]
        loss = max(0.0, weights[found - 1] + dot(u, v))
        steepness = x_square * dot(u, u)
        eta_B = min(loss / steepness, etas[t]) if steepness > 0.0 else 0.0
        for c in range(k):
            g[c] = -eta_A * v[c]
        scatter(A, labels, weights, 0, found, g)
        for c in range(k):
            g[c] = -eta_B * u[c]
        scatter(B, X.indices, X.values, start, stop, g)
        moves[0] += 1
    return -1


@njit(cache=True, nogil=True)
def full_rank(exponent, theta, norms, X, Y, rows, etas, moves):
    """Subtract the subgradient from theta (features × labels); W is theta, or its mirror image.

    Row j of W is (‖theta_j‖ / ‖theta‖)^(exponent − 2) theta_j, with ‖theta‖ the exponent-norm of the row lengths
    `norms`; for an exponent of 2 it is theta. Returns the number of the first bad step, or −1.
    """
    n_labels, grouped = theta.shape[1], exponent != 2.0
    scores, labels, weights = np.empty(n_labels), np.empty(n_labels, np.int32), np.empty(n_labels)
    powers = norms**exponent
    for t in range(rows.shape[0]):
        start, stop = X.indptr[rows[t]], X.indptr[rows[t] + 1]
        own = Y.indices[Y.indptr[rows[t]] : Y.indptr[rows[t] + 1]]
        if own.shape[0] == 0 or own.shape[0] == n_labels:
            continue
        whole = np.sum(powers) ** (1.0 / exponent) if grouped else 1.0
        scores[:] = 0.0
        for j in range(start, stop):
            feature, value = X.indices[j], X.values[j]
            if grouped:
                value *= (norms[feature] / whole) ** (exponent - 2.0) if whole > 0.0 else 0.0
            for label in range(n_labels):
                scores[label] += value * theta[feature, label]
        found = violations(scores, own, labels, weights)
        if found < 0:
            return t
        if found == 0:
            continue
        for j in range(start, stop):
            feature, value = X.indices[j], etas[t] * X.values[j]
            gained = 0.0
            for i in range(found):
                old = theta[feature, labels[i]]
                new = old - value * weights[i]
                theta[feature, labels[i]] = new
                gained += new * new - old * old
            if grouped:
                norms[feature] = np.sqrt(max(0.0, norms[feature] ** 2 + gained))
                powers[feature] = norms[feature] ** exponent
        moves[0] += 1
    return -1


@njit(cache=True, nogil=True)
def turn_to_residuals(scores, indptr, indices):
    """Turn scores into σ(score) − y for true labels given as CSR."""
    for i in range(scores.shape[0]):
        row = scores[i]
        for j in range(row.shape[0]):
            row[j] = sigmoid(row[j])
        for at in range(indptr[i], indptr[i + 1]):
            row[indices[at]] -= 1.0
