"""Compiled loops of the rivals in label ranking, for the loss of `LabelRanking`."""

import numpy as np
from numba import njit

from problems.ranking.kernels import violations
from rmopt.kernels.vectors import dot, gather, row_products, scatter, square

MATRIX, GROUP = range(2)


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
        row_products(A, v, scores)
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
def full_rank(method, exponent, theta, norms, X, Y, rows, etas, moves):
    """Subtract the subgradient from theta (features × labels); W is theta, or its mirror image.

    `MATRIX`: W = theta. `GROUP`: row j of W is (‖theta_j‖ / ‖theta‖)^(exponent − 2) theta_j, where ‖theta‖ is
    the exponent-norm of the row lengths `norms`. Returns the number of the first bad step, or −1.
    """
    n_labels = theta.shape[1]
    scores, labels, weights = np.empty(n_labels), np.empty(n_labels, np.int32), np.empty(n_labels)
    powers = norms**exponent
    for t in range(rows.shape[0]):
        start, stop = X.indptr[rows[t]], X.indptr[rows[t] + 1]
        own = Y.indices[Y.indptr[rows[t]] : Y.indptr[rows[t] + 1]]
        if own.shape[0] == 0 or own.shape[0] == n_labels:
            continue
        whole = np.sum(powers) ** (1.0 / exponent) if method == GROUP else 1.0
        scores[:] = 0.0
        for j in range(start, stop):
            feature, value = X.indices[j], X.values[j]
            if method == GROUP:
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
            if method == GROUP:
                norms[feature] = np.sqrt(max(0.0, norms[feature] ** 2 + gained))
                powers[feature] = norms[feature] ** exponent
        moves[0] += 1
    return -1
