"""The sequential part of a block of steps on dense examples: W = A C Bᵀ, losses of z = pᵀ W q.

Within a block A changes by Σ pₜ gₜᵀ only, so uₜ = Aᵀpₜ is the product with the old A plus Σ (pₛᵀpₜ) gₛ over the
steps s before t. All products with A and with the examples are matrix products outside this loop.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.lifted import REFUSED, make_scratch, score, step
from rmopt.kernels.losses import slope
from rmopt.kernels.outcomes import CHECKPOINT_DUE, FINISHED, NOT_FINITE, STEP_REFUSED
from rmopt.kernels.vectors import dot, trace, transposed_product


class Products(NamedTuple):
    """What a block needs of its examples.

    `U`, `V` (b, k): rows Aᵀpₜ and Bᵀqₜ with the old factors. `PP`, `QQ` (b, b): Gram matrices of the examples.
    `G`, `H` (b, k): the rows gₜ and hₜ; written for each step.
    """

    U: np.ndarray
    V: np.ndarray
    PP: np.ndarray
    QQ: np.ndarray
    G: np.ndarray
    H: np.ndarray


def _run(kind, code, factors, counters, products, targets, etas, start, stop, probe_every, growth_limit):
    """Do the steps `start` to `stop` of a block; return (number of the next step, why the loop ended).

    `targets` and `etas` have one entry per step of the block; otherwise as `rmopt.kernels.bilinear_sgd`.
    """
    k = factors.C.shape[0]
    scratch, change = make_scratch(k), np.empty(k)
    counts, size = counters.counts, counters.size
    for t in range(start, stop):
        if counts[1] >= probe_every:
            return t, CHECKPOINT_DUE
        transposed_product(products.G[:t], products.PP[t], change)
        for c in range(k):
            scratch.u[c] = products.U[t, c] + change[c]
        transposed_product(products.H[:t], products.QQ[t], change)
        for c in range(k):
            scratch.v[c] = products.V[t, c] + change[c]
        z = score(factors, scratch)
        if not np.isfinite(z):
            return t, NOT_FINITE
        scale = -etas[t] * slope(code, z, targets[t])
        counts[1] += 1
        p_square, q_square = products.PP[t, t], products.QQ[t, t]
        if scale == 0.0 or p_square == 0.0 or q_square == 0.0:
            continue
        if step(kind, factors, scratch, p_square, q_square, scale) == REFUSED:
            counts[1] -= 1
            return t, STEP_REFUSED
        counts[0] += 1
        for c in range(k):
            products.G[t, c] = scratch.g[c]
            products.H[t, c] = scratch.h[c]
        size[0] += 2.0 * dot(scratch.u, scratch.g) + p_square * dot(scratch.g, scratch.g)
        size[1] += 2.0 * dot(scratch.v, scratch.h) + q_square * dot(scratch.h, scratch.h)
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): large means that H_A is losing digits.
        if size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit:
            return t + 1, CHECKPOINT_DUE
    return stop, FINISHED


run = njit(cache=True, nogil=True)(_run)
