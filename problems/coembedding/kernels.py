"""Compiled losses of co-embeddings: smooth hinges under soft maxima, and pairwise rankings."""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.losses import LOGISTIC, slope


@njit(inline="always")
def smooth_hinge_slope(z):
    """Return the slope of `smooth_hinge`, from 0 to 1."""
    return min(max(0.5 * (2.0 + z), 0.0), 1.0)


@njit(inline="always")
def smooth_hinge(z):
    """Return (2 + z)²/4 between −2 and 0, 1 + z above, and 0 below."""
    return smooth_hinge_slope(z) ** 2 if z <= 0.0 else 1.0 + z


@njit(inline="always")
def soft_weights(distances, labels, i, side, weights):
    """Write exp(h − max h) for the hinges h of one side, and return their sum, 0 if there is none, and max h."""
    m = labels.shape[1]
    sign, threshold = 2.0 * side - 1.0, distances[i, m]
    top, mass = -1.0, 0.0
    for j in range(m):
        if labels[i, j] == side:
            weights[j] = smooth_hinge(sign * (distances[i, j] - threshold))
            top = max(top, weights[j])
    for j in range(m):
        if labels[i, j] == side:
            weights[j] = np.exp(weights[j] - top)
            mass += weights[j]
    return mass, top


@njit(cache=True, nogil=True)
def multilabel_loss(distances, labels):
    """Return the sum of both soft maxima of every row, and its slopes.

    The last column of the distances is that of the threshold.
    """
    n, m = labels.shape
    slopes, weights, total = np.empty(distances.shape), np.empty(m), 0.0
    for i in range(n):
        slopes[i, m] = 0.0
        for side in range(2):
            sign = 2.0 * side - 1.0
            mass, top = soft_weights(distances, labels, i, side, weights)
            if mass == 0.0:
                continue
            total += top + np.log(mass)
            for j in range(m):
                if labels[i, j] == side:
                    slope = sign * smooth_hinge_slope(sign * (distances[i, j] - distances[i, m]))
                    slopes[i, j] = weights[j] / mass * slope
                    slopes[i, m] -= slopes[i, j]
    return total, slopes


@njit(cache=True, nogil=True)
def multilabel_curvature(distances, labels, change):
    """Return the change of the slopes of `multilabel_loss` along a change of the distances."""
    n, m = labels.shape
    bent, weights, moved, z = np.empty(distances.shape), np.empty(m), np.empty(m), np.empty(m)
    for i in range(n):
        bent[i, m] = 0.0
        for side in range(2):
            sign, mean = 2.0 * side - 1.0, 0.0
            mass, _ = soft_weights(distances, labels, i, side, weights)
            if mass == 0.0:
                continue
            for j in range(m):
                if labels[i, j] == side:
                    z[j] = sign * (distances[i, j] - distances[i, m])
                    moved[j] = sign * (change[i, j] - change[i, m])
                    mean += weights[j] * smooth_hinge_slope(z[j]) * moved[j]
            mean /= mass
            for j in range(m):
                if labels[i, j] == side:
                    slope = smooth_hinge_slope(z[j])
                    second = 0.5 if -2.0 < z[j] < 0.0 else 0.0
                    share = weights[j] / mass
                    bent[i, j] = sign * share * (second * moved[j] + slope * (slope * moved[j] - mean))
                    bent[i, m] -= bent[i, j]
    return bent


# Up to this difference of a post's distances exponentials can be factored, exp(a − b) = exp(a) exp(−b), and the
# logarithm of a product is far from overflow.
FULL = 600.0


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def odds_slopes(scale, odds, moved):
    """Subtract x / (1 + x) for x = scale · odds from `moved`, and return the sum."""
    total = 0.0
    for j in range(odds.shape[0]):
        x = scale * odds[j]
        slope = x / (1.0 + x)
        moved[j] -= slope
        total += slope
    return total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def odds_product(scale, odds):
    """Return the product of 1 + scale · odds."""
    product = 1.0
    for j in range(odds.shape[0]):
        product *= 1.0 + scale * odds[j]
    return product


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def odds_bends(scale, odds, step, steps, moved):
    """Subtract x / (1 + x)² (step − steps) for x = scale · odds from `moved`, and return the sum."""
    total = 0.0
    for j in range(odds.shape[0]):
        x = scale * odds[j]
        push = x / ((1.0 + x) * (1.0 + x)) * (step - steps[j])
        moved[j] -= push
        total += push
    return total


@njit(cache=True, nogil=True)
def ranking_loss(distances, of_rows, posts, n_users, starts, tags):
    """Add up ln(1 + exp(d(y) − d(ȳ))) over the tags y of a post and others ȳ, and return the sum and its slopes.

    Post p is of user posts[p, 0] and item posts[p, 1] and has tags[starts[p] : starts[p + 1]]; d is the sum of the
    user's and the item's row of the distances. `of_rows` is the result of `row_odds` in `cost`. If the distances of a
    post differ by more than `FULL`, the sum is infinite.
    """
    n_tags = distances.shape[1]
    slopes, total = np.zeros(distances.shape), 0.0
    single, least, spread = of_rows
    odds, moved = np.empty(n_tags), np.empty(n_tags)
    for p in range(posts.shape[0]):
        user, item = posts[p, 0], n_users + posts[p, 1]
        mine = tags[starts[p] : starts[p + 1]]
        if spread[user] + spread[item] > FULL:
            return np.inf, slopes
        for j in range(n_tags):
            odds[j] = single[user, j] * single[item, j]
            moved[j] = 0.0
        # No odds, because tags of the post are not ranked against each other.
        odds[mine] = 0.0
        # The number of terms 1 + exp(·) that can be multiplied before taking their logarithm.
        chunk = int(FULL / (spread[user] + spread[item] + 1.0)) or 1
        for y in mine:
            scale = np.exp(distances[user, y] + distances[item, y] - least[user] - least[item])
            moved[y] += odds_slopes(scale, odds, moved)
            for j in range(0, n_tags, chunk):
                total += np.log(odds_product(scale, odds[j : j + chunk]))
        for j in range(n_tags):
            slopes[user, j] += moved[j]
            slopes[item, j] += moved[j]
    return total, slopes


@njit(cache=True, nogil=True)
def ranking_curvature(distances, of_rows, posts, n_users, starts, tags, change):
    """Return the change of the slopes of a finite `ranking_loss` along a change of the distances."""
    n_tags = distances.shape[1]
    bent = np.zeros(distances.shape)
    single, least, _ = of_rows
    steps, odds, moved = np.empty(n_tags), np.empty(n_tags), np.empty(n_tags)
    for p in range(posts.shape[0]):
        user, item = posts[p, 0], n_users + posts[p, 1]
        mine = tags[starts[p] : starts[p + 1]]
        for j in range(n_tags):
            odds[j] = single[user, j] * single[item, j]
            steps[j] = change[user, j] + change[item, j]
            moved[j] = 0.0
        odds[mine] = 0.0
        for y in mine:
            scale = np.exp(distances[user, y] + distances[item, y] - least[user] - least[item])
            moved[y] += odds_bends(scale, odds, steps[y], steps, moved)
        for j in range(n_tags):
            bent[user, j] += moved[j]
            bent[item, j] += moved[j]
    return bent


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
        push = slope(LOGISTIC, -margin, -1.0)
        for a in range(k):
            x, y = U[u, a], V[i, a]
            p, q, r, s = TU[t, a], TU[other, a], TI[t, a], TI[other, a]
            U[u, a] += step_size * (push * (p - q) - penalty * x)
            V[i, a] += step_size * (push * (r - s) - penalty * y)
            TU[t, a] += step_size * (push * x - penalty * p)
            TU[other, a] += step_size * (-push * x - penalty * q)
            TI[t, a] += step_size * (push * y - penalty * r)
            TI[other, a] += step_size * (-push * y - penalty * s)
