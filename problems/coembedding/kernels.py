"""Compiled losses of co-embeddings: smooth hinges under soft maxima, and pairwise rankings."""

import numpy as np
from numba import njit


@njit(inline="always")
def smooth_hinge(z):
    """Return (2 + z)²/4 between −2 and 0, 1 + z above, and 0 below."""
    if z <= -2.0:
        return 0.0
    return 0.25 * (2.0 + z) ** 2 if z <= 0.0 else 1.0 + z


@njit(inline="always")
def smooth_hinge_slope(z):
    """Return its slope, from 0 to 1."""
    return min(max(0.5 * (2.0 + z), 0.0), 1.0)


@njit(cache=True, nogil=True)
def multilabel_loss(distances, labels, slopes):
    """Write the slopes of both soft maxima of every row, and return their sum.

    The last column of the distances is that of the threshold.
    """
    n, m = labels.shape
    hinges = np.empty(m)
    total = 0.0
    for i in range(n):
        threshold = distances[i, m]
        slopes[i, m] = 0.0
        for side in range(2):
            sign = 1.0 if side == 1 else -1.0
            top, there = -1.0, False
            for j in range(m):
                if labels[i, j] == side:
                    hinges[j] = smooth_hinge(sign * (distances[i, j] - threshold))
                    top, there = max(top, hinges[j]), True
            if not there:
                continue
            mass = 0.0
            for j in range(m):
                if labels[i, j] == side:
                    mass += np.exp(hinges[j] - top)
            total += top + np.log(mass)
            for j in range(m):
                if labels[i, j] == side:
                    slope = sign * smooth_hinge_slope(sign * (distances[i, j] - threshold))
                    slopes[i, j] = np.exp(hinges[j] - top) / mass * slope
                    slopes[i, m] -= slopes[i, j]
    return total


@njit(cache=True, nogil=True)
def multilabel_curvature(distances, labels, change, bent):
    """Write the change of the slopes of `multilabel_loss` along a change of the distances."""
    n, m = labels.shape
    weights, moved = np.empty(m), np.empty(m)
    for i in range(n):
        threshold = distances[i, m]
        bent[i, m] = 0.0
        for side in range(2):
            sign = 1.0 if side == 1 else -1.0
            top, there = -1.0, False
            for j in range(m):
                if labels[i, j] == side:
                    z = sign * (distances[i, j] - threshold)
                    weights[j] = smooth_hinge(z)
                    moved[j] = sign * (change[i, j] - change[i, m])
                    top, there = max(top, weights[j]), True
            if not there:
                continue
            mass, mean = 0.0, 0.0
            for j in range(m):
                if labels[i, j] == side:
                    weights[j] = np.exp(weights[j] - top)
                    mass += weights[j]
                    z = sign * (distances[i, j] - threshold)
                    mean += weights[j] * smooth_hinge_slope(z) * moved[j]
            mean /= mass
            for j in range(m):
                if labels[i, j] == side:
                    z = sign * (distances[i, j] - threshold)
                    slope = smooth_hinge_slope(z)
                    second = 0.5 if -2.0 < z < 0.0 else 0.0
                    share = weights[j] / mass
                    bent[i, j] = sign * share * (second * moved[j] + slope * (slope * moved[j] - mean))
                    bent[i, m] -= bent[i, j]


@njit(inline="always")
def softplus(z):
    """Return ln(1 + exp z) without overflow."""
    return max(z, 0.0) + np.log1p(np.exp(-abs(z)))


@njit(inline="always")
def sigmoid(z):
    """Return 1 / (1 + exp −z) without overflow."""
    small = np.exp(-abs(z))
    return 1.0 / (1.0 + small) if z >= 0.0 else small / (1.0 + small)


# Sums of distances of one post within this range let exponentials be factored: exp(a − b) = exp(a) exp(−b).
FACTORED = 250.0
# A product of terms 1 + exp(·) is turned into a logarithm before it can overflow.
FULL = 1e150


@njit(inline="always")
def gathered(distances, user, item, out):
    """Write the sum of two rows; return its least and its largest entry."""
    low, high = np.inf, -np.inf
    for j in range(out.shape[0]):
        out[j] = distances[user, j] + distances[item, j]
        low, high = min(low, out[j]), max(high, out[j])
    return low, high


@njit(cache=True, nogil=True)
def ranking_loss(distances, posts, n_users, starts, tags, slopes):
    """Add up ln(1 + exp(d(y) − d(ȳ))) over the tags y of each post and the others ȳ; write the slopes.

    Post p is of user posts[p, 0] and item posts[p, 1] and has tags[starts[p] : starts[p + 1]]; d is the sum of the
    user's and the item's row of the distances.
    """
    n_tags = distances.shape[1]
    total = 0.0
    slopes[:] = 0.0
    sums, odds, moved = np.empty(n_tags), np.empty(n_tags), np.empty(n_tags)
    for p in range(posts.shape[0]):
        user, item = posts[p, 0], n_users + posts[p, 1]
        mine = tags[starts[p] : starts[p + 1]]
        low, high = gathered(distances, user, item, sums)
        moved[:] = 0.0
        if high - low < FACTORED:
            for j in range(n_tags):
                odds[j] = np.exp(low - sums[j])
            # No odds: tags of the post are not ranked against each other.
            odds[mine] = 0.0
            for y in mine:
                scale, gathered_slope = np.exp(sums[y] - low), 0.0
                for j in range(n_tags):
                    x = scale * odds[j]
                    slope = x / (1.0 + x)
                    moved[j] -= slope
                    gathered_slope += slope
                product = 1.0
                for j in range(n_tags):
                    product *= 1.0 + scale * odds[j]
                    if product > FULL:
                        total += np.log(product)
                        product = 1.0
                total += np.log(product)
                moved[y] += gathered_slope
        else:
            odds[:] = 1.0
            odds[mine] = 0.0
            for y in mine:
                for j in range(n_tags):
                    if odds[j] > 0.0:
                        z = sums[y] - sums[j]
                        total += softplus(z)
                        moved[y] += sigmoid(z)
                        moved[j] -= sigmoid(z)
        for j in range(n_tags):
            slopes[user, j] += moved[j]
            slopes[item, j] += moved[j]
    return total


@njit(cache=True, nogil=True)
def ranking_curvature(distances, posts, n_users, starts, tags, change, bent):
    """Write the change of the slopes of `ranking_loss` along a change of the distances."""
    n_tags = distances.shape[1]
    bent[:] = 0.0
    sums, steps = np.empty(n_tags), np.empty(n_tags)
    odds, moved = np.empty(n_tags), np.empty(n_tags)
    for p in range(posts.shape[0]):
        user, item = posts[p, 0], n_users + posts[p, 1]
        mine = tags[starts[p] : starts[p + 1]]
        low, high = gathered(distances, user, item, sums)
        gathered(change, user, item, steps)
        moved[:] = 0.0
        factored = high - low < FACTORED
        for j in range(n_tags):
            odds[j] = np.exp(low - sums[j]) if factored else 1.0
        odds[mine] = 0.0
        for y in mine:
            pushed = 0.0
            if factored:
                scale = np.exp(sums[y] - low)
                for j in range(n_tags):
                    x = scale * odds[j]
                    push = x / ((1.0 + x) * (1.0 + x)) * (steps[y] - steps[j])
                    moved[j] -= push
                    pushed += push
            else:
                for j in range(n_tags):
                    if odds[j] > 0.0:
                        share = sigmoid(sums[y] - sums[j])
                        push = share * (1.0 - share) * (steps[y] - steps[j])
                        moved[j] -= push
                        pushed += push
            moved[y] += pushed
        for j in range(n_tags):
            bent[user, j] += moved[j]
            bent[item, j] += moved[j]


@njit(cache=True, nogil=True)
def pairwise_interaction(U, V, TU, TI, triples, others, step_size, penalty):
    """Do a step of stochastic gradient ascent of ln σ(ŷ(t) − ŷ(t̄)) for each triple and another tag of its row.

    ŷ(u, i, t) = ⟨TU[t], U[u]⟩ + ⟨TI[t], V[i]⟩ (Rendle and Schmidt-Thieme 2009).
    """
    k = U.shape[1]
    for n in range(triples.shape[0]):
        u, i, t, other = triples[n, 0], triples[n, 1], triples[n, 2], others[n]
        margin = 0.0
        for a in range(k):
            margin += (TU[t, a] - TU[other, a]) * U[u, a] + (TI[t, a] - TI[other, a]) * V[i, a]
        push = sigmoid(-margin)
        for a in range(k):
            x, y = U[u, a], V[i, a]
            p, q, r, s = TU[t, a], TU[other, a], TI[t, a], TI[other, a]
            U[u, a] += step_size * (push * (p - q) - penalty * x)
            V[i, a] += step_size * (push * (r - s) - penalty * y)
            TU[t, a] += step_size * (push * x - penalty * p)
            TU[other, a] += step_size * (-push * x - penalty * q)
            TI[t, a] += step_size * (push * y - penalty * r)
            TI[other, a] += step_size * (-push * y - penalty * s)
