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
