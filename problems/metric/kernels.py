"""The compiled loop of HDSL."""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.log_det import column_of, touched, transposed_product


@njit(cache=True, nogil=True)
def smoothed_hinge_slope(z):
    """Return the slope of HDSL's loss at a score z: 0 from z = 1 on, −1 up to z = 0, linear between."""
    return min(0.0, max(-1.0, z - 1.0))


@njit(cache=True, nogil=True)
def gradient_column(samples, slopes, k, x, c, g):
    """Set x to column k of X and g to column k of ½ Σ slope (q dᵀ + d qᵀ), with d = p − n."""
    x[:], c[:] = 0.0, 0.0
    column_of(samples, k, x)
    for t in range(slopes.shape[0]):
        if slopes[t] != 0.0:
            q, p, n = samples.query[t], samples.positive[t], samples.negative[t]
            c[q] += slopes[t] * (x[p] - x[n])
            c[p] += slopes[t] * x[q]
            c[n] -= slopes[t] * x[q]
    transposed_product(samples, c, g)
    for j in range(g.shape[0]):
        g[j] *= 0.5


@njit(cache=True, nogil=True)
def gradient_diagonal(samples, slopes, x, stamp, places, out):
    """Set out to the diagonal of Σ slope q dᵀ."""
    for k in range(out.shape[0]):
        x[:], out[k] = 0.0, 0.0
        column_of(samples, k, x)
        for t in touched(samples, 0.0, x, k, stamp, places):
            out[k] += slopes[t] * x[samples.query[t]] * (x[samples.positive[t]] - x[samples.negative[t]])


@njit(cache=True, nogil=True)
def frank_wolfe(samples, d, candidates, scale, renew_every):
    """Return the M of one Frank–Wolfe iteration for each row of candidate features.

    An iteration takes the best pair (i, j, sign) with i among its candidates. The diagonal of the gradient, which
    ranks the j, is renewed after every `renew_every` iterations.
    """
    N, T = samples.first_of.shape[0] - 1, samples.query.shape[0]
    M, scores, diagonal = np.zeros((d, d)), np.zeros(T), np.zeros(d)
    x, c, g, slopes = np.empty(N), np.empty(N), np.empty(d), np.empty(T)
    stamp, places = np.zeros(T, dtype=np.int8), np.empty(T + 1, dtype=np.int64)
    # M is kept divided by `shrink`, so that an iteration touches four of its entries.
    shrink = 1.0
    for number in range(candidates.shape[0]):
        for t in range(T):
            slopes[t] = smoothed_hinge_slope(scores[t])
        if number % renew_every == 0:
            gradient_diagonal(samples, slopes, x, stamp, places, diagonal)
        best, at_i, at_j, sign = np.inf, 0, 1, 1.0
        for i in candidates[number]:
            gradient_column(samples, slopes, i, x, c, g)
            for j in range(d):
                level = g[i] + diagonal[j] - 2.0 * abs(g[j])
                if j != i and level < best:
                    best, at_i, at_j, sign = level, i, j, (-1.0 if g[j] > 0.0 else 1.0)
        share = 2.0 / (number + 2.0)
        if share == 1.0:
            M[:], scores[:] = 0.0, 0.0
        else:
            shrink *= 1.0 - share
        weight = share * scale / shrink
        M[at_i, at_i] += weight
        M[at_j, at_j] += weight
        M[at_i, at_j] += sign * weight
        M[at_j, at_i] += sign * weight
        # The basis is (e_i ± e_j)(e_i ± e_j)ᵀ: x becomes X (e_i ± e_j).
        x[:], c[:] = 0.0, 0.0
        column_of(samples, at_i, x)
        column_of(samples, at_j, c)
        for row in range(N):
            x[row] += sign * c[row]
        for t in range(T):
            product = x[samples.query[t]] * (x[samples.positive[t]] - x[samples.negative[t]])
            scores[t] = (1.0 - share) * scores[t] + share * scale * product
    return M * shrink
