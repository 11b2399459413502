"""Known entries of tensors by core and factors, Σ over j of core[j] u₁[i₁, j₁] … u_d[i_d, j_d], and of tensor trains.

Entries are in lexicographic order, so that neighbours share their first places: the core is multiplied by a row only
if the place on its axis is new. Thus a term of a dense slice takes O(r) instead of O(r^d). All factors are in one
flat array, that of axis k from `starts[k]` on.
"""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.vectors import copy


@njit(cache=True, nogil=True)
def _levels(ranks):
    """Return the sizes of the core after multiplying 0, 1, …, d axes, and their places in one array."""
    d = len(ranks)
    sizes, places = np.ones(d + 1, np.int64), np.zeros(d + 2, np.int64)
    for k in range(d - 1, -1, -1):
        sizes[k] = sizes[k + 1] * ranks[k]
    for k in range(d + 1):
        places[k + 1] = places[k] + sizes[k]
    return sizes, places


@njit(cache=True, nogil=True)
def _shared(entries, i):
    """Return the number of first axes on which entry i has the same place as the previous one."""
    k = 0
    if 0 < i < len(entries):
        while k < entries.shape[1] and entries[i, k] == entries[i - 1, k]:
            k += 1
    return k


@njit(cache=True, nogil=True)
def _multiply(level, sizes, places, row, k):
    """Multiply axis k of the array at level k by a row."""
    width = sizes[k + 1]
    before, after = level[places[k] : places[k + 1]], level[places[k + 1] : places[k + 2]]
    after[:] = 0.0
    for j in range(len(row)):
        number = row[j]
        for rest in range(width):
            after[rest] += number * before[j * width + rest]


@njit(cache=True, nogil=True)
def scores(core, factors, starts, ranks, entries, out):
    """Write the entries of the tensor."""
    d = len(ranks)
    sizes, places = _levels(ranks)
    level = np.zeros(places[d + 1])
    copy(core, level[: sizes[0]])
    for i in range(len(entries)):
        for k in range(_shared(entries, i), d):
            at = starts[k] + entries[i, k] * ranks[k]
            _multiply(level, sizes, places, factors[at : at + ranks[k]], k)
        out[i] = level[places[d]]


@njit(cache=True, nogil=True)
def slopes(core, factors, starts, ranks, entries, weights, by_core, by_factors):
    """Add the derivatives of Σ weight · entry by the core and the factors."""
    d = len(ranks)
    sizes, places = _levels(ranks)
    level, back = np.zeros(places[d + 1]), np.zeros(places[d + 1])
    copy(core, level[: sizes[0]])
    for i in range(len(entries) + 1):
        shared = _shared(entries, i)
        # Results of the previous entry return to the first level that differs.
        for k in range(d - 1 if i else -1, shared - 1, -1):
            at, width = starts[k] + entries[i - 1, k] * ranks[k], sizes[k + 1]
            above = back[places[k + 1] : places[k + 2]]
            for j in range(ranks[k]):
                place, number, total = places[k] + j * width, factors[at + j], 0.0
                for rest in range(width):
                    total += level[place + rest] * above[rest]
                    back[place + rest] += number * above[rest]
                by_factors[at + j] += total
            above[:] = 0.0
        if i < len(entries):
            for k in range(shared, d):
                at = starts[k] + entries[i, k] * ranks[k]
                _multiply(level, sizes, places, factors[at : at + ranks[k]], k)
            back[places[d]] += weights[i]
    by_core += back[: sizes[0]]


@njit(cache=True, nogil=True)
def train_scores(cores, starts, ranks, entries, out):
    """Write the entries of a tensor train, whose cores have a matrix for each place of their axis."""
    d = entries.shape[1]
    left = np.ones((d + 1, ranks.max()))
    for i in range(len(entries)):
        _train_left(left, cores, starts, ranks, entries, i)
        out[i] = left[d, 0]


@njit(cache=True, nogil=True)
def _train_left(left, cores, starts, ranks, entries, i):
    for k in range(_shared(entries, i), entries.shape[1]):
        width = ranks[k + 1]
        at = starts[k] + entries[i, k] * ranks[k] * width
        left[k + 1, :width] = 0.0
        for a in range(ranks[k]):
            for b in range(width):
                left[k + 1, b] += left[k, a] * cores[at + a * width + b]


@njit(cache=True, nogil=True)
def train_slopes(cores, starts, ranks, entries, weights, found):
    """Add the derivatives of Σ weight · entry by the cores."""
    d = entries.shape[1]
    left = np.ones((d + 1, ranks.max()))
    right = np.zeros((d + 1, ranks.max()))
    for i in range(len(entries)):
        _train_left(left, cores, starts, ranks, entries, i)
        right[d, 0] = weights[i]
        for k in range(d - 1, -1, -1):
            width = ranks[k + 1]
            at = starts[k] + entries[i, k] * ranks[k] * width
            for a in range(ranks[k]):
                total, number = 0.0, left[k, a]
                for b in range(width):
                    found[at + a * width + b] += number * right[k + 1, b]
                    total += cores[at + a * width + b] * right[k + 1, b]
                right[k, a] = total
