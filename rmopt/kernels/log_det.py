"""Coordinate descent for Σ φ(qᵀW(p − n), 1) − α log det(W + κI) + β/2 ‖W‖² over positive definite W."""

from math import isfinite, sqrt
from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit, pending, vectors
from rmopt.kernels.losses import SLOPE, fill
from rmopt.kernels.row_column import Line, extra, schur_along, schur_at, step_length
from rmopt.kernels.steps import FINISHED, NOT_FINITE, PROBE_DUE, STEP_REFUSED, Rows
from rmopt.kernels.vectors import dot

# If W V is off the identity by more than this, and by more than this many times rounding, the inverse has drifted.
DRIFT, ROUNDINGS = 1e-10, 20.0 * 2.2e-16


class Samples(NamedTuple):
    """The rows of X, as CSR and CSC or as one array, and the triplets of row numbers.

    Of `dense` and the two sparse forms one is empty. `first_of` and `triplets_of` list the triplets of each row.
    """

    dense: np.ndarray  # (N, d) or (0, 0)
    rows: Rows
    columns: Rows
    first_of: np.ndarray
    triplets_of: np.ndarray
    query: np.ndarray  # (T,) int32
    positive: np.ndarray
    negative: np.ndarray


class Weights(NamedTuple):
    """The weights of the cost."""

    loss: int
    alpha: float
    beta: float
    kappa: float
    sparsity: float
    own: float  # 1 where scores are of distances, and so hold lengths of rows; otherwise 0


class Metric(NamedTuple):
    """W and the arrays derived from it."""

    W: np.ndarray  # (d, d)
    cone: pending.Changing  # of W
    barrier: pending.Changing  # of W + κI; with κ = 0 empty and not looked at
    scores: np.ndarray  # (T,) qᵀW(p − n), or half of what n is farther from q than p, squared
    residuals: np.ndarray  # (d,) length of column k of the gradient when it was last seen
    sizes: np.ndarray  # (d,) summed lengths of its three parts
    counts: np.ndarray  # (2,) int64: steps that moved W; steps since the inverses were probed or made


@njit(cache=True, nogil=True)
def column_of(samples, k, out):
    """Add column k of X to the zeros of out."""
    if samples.dense.shape[0]:
        for i in range(samples.dense.shape[0]):
            out[i] = samples.dense[i, k]
    else:
        for at in range(samples.columns.indptr[k], samples.columns.indptr[k + 1]):
            out[samples.columns.indices[at]] = samples.columns.values[at]


@njit(cache=True, nogil=True)
def touched(samples, own, x, k, stamp, out):
    """Return the triplets of rows with a non-zero feature k, in `out`. `stamp` is 0 before and after."""
    count = 0
    if samples.dense.shape[0]:
        for t in range(samples.query.shape[0]):
            # Selections instead of branches.
            out[count] = t
            q, d = x[samples.query[t]], x[samples.positive[t]] - x[samples.negative[t]]
            lengths = own * (abs(x[samples.positive[t]]) + abs(x[samples.negative[t]]))
            count += 1 if q != 0.0 or d != 0.0 or lengths != 0.0 else 0
        return out[:count]
    for at in range(samples.columns.indptr[k], samples.columns.indptr[k + 1]):
        row = samples.columns.indices[at]
        for place in range(samples.first_of[row], samples.first_of[row + 1]):
            t = samples.triplets_of[place]
            out[count] = t
            count += 1 - stamp[t]
            stamp[t] = 1
    for at in range(count):
        stamp[out[at]] = 0
    return out[:count]


@njit(cache=True, nogil=True, fastmath={"contract"})
def transposed_product(samples, c, out):
    """Set out = Xᵀ c."""
    if samples.dense.shape[0]:
        vectors.transposed_product(samples.dense, c, out)
        return
    out[:] = 0.0
    for i in range(c.shape[0]):
        if c[i] != 0.0:
            for at in range(samples.rows.indptr[i], samples.rows.indptr[i + 1]):
                out[samples.rows.indices[at]] += c[i] * samples.rows.values[at]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def product(samples, u, out):
    """Set out = X u."""
    if samples.dense.shape[0]:
        vectors.product(samples.dense, u, out)
        return
    for i in range(out.shape[0]):
        total = 0.0
        for at in range(samples.rows.indptr[i], samples.rows.indptr[i + 1]):
            total += samples.rows.values[at] * u[samples.rows.indices[at]]
        out[i] = total


@njit(cache=True, nogil=True, fastmath={"contract"})
def _pull(samples, slopes, own, x, touched, c):
    """Set c such that ½ Xᵀc is column k of the gradient of the losses, which have these slopes."""
    c[:] = 0.0
    for at in range(touched.shape[0]):
        descent = slopes[at]
        if descent != 0.0:
            t = touched[at]
            q, p, n = samples.query[t], samples.positive[t], samples.negative[t]
            c[q] += descent * (x[p] - x[n])
            c[p] += descent * (x[q] - own * x[p])
            c[n] -= descent * (x[q] - own * x[n])


@njit(cache=True, nogil=True)
def _along(x, r, q, p, n, own):
    """Return the velocity of a triplet's score along u e_kᵀ + e_k uᵀ, with x = X e_k and r = X u."""
    return r[q] * (x[p] - x[n]) + x[q] * (r[p] - r[n]) - own * (r[p] * x[p] - r[n] * x[n])


@njit(cache=True, nogil=True)
def _at_corner(x, q, p, n, own):
    """Return the velocity of a triplet's score along e_k e_kᵀ."""
    return (x[q] - 0.5 * own * (x[p] + x[n])) * (x[p] - x[n])


@njit(cache=True, nogil=True)
def has_drifted(row, moved, expected, size):
    """Return whether row · moved, a row of W times a vector from V, is off its true value."""
    allowed = max(DRIFT * size, ROUNDINGS * sqrt(dot(row, row) * dot(moved, moved)))
    return not abs(dot(row, moved) - expected) <= allowed


@njit(cache=True, nogil=True)
def _move_inverse(inverse, schur, w, Vu, u, k, eta, shrink, corner, next_schur):
    """Push the two changes of V for a step η along u, whose column was then multiplied by `shrink`."""
    # x = D w; A⁻¹ū = V ū − w (wᵀū)/w_k, with (wᵀū)/w_k = b − u_k.
    push_back = schur.b - u[k]
    pending.push(inverse, -schur.D, w)
    x = shrink * (schur.D * w - eta * (Vu - w * push_back))
    x[k] = 1.0
    if shrink != 1.0:
        next_schur = corner - shrink * shrink * (corner - next_schur)
    pending.push(inverse, 1.0 / next_schur, x)


@njit(cache=True, nogil=True)
def run(metric, samples, weights, retraction, search, blocks, wanted, position, probe_every):
    """Do one step for each block from `position` on, and return the number of the next step and why the loop ended.

    `metric` is changed in place. `retraction` and `search` are codes of `rmopt.kernels.row_column`, `blocks` (int64)
    the row and column of each step, `wanted` the argument of `step_length`. The loop ends with `PROBE_DUE` after
    `probe_every` steps, and with `STEP_REFUSED` before one that finds the inverse drifted.
    """
    d, N, T = metric.W.shape[0], samples.first_of.shape[0] - 1, samples.query.shape[0]
    W = metric.W
    x, c, r = np.zeros(N), np.empty(N), np.empty(N)
    g, u, w, Vu = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    w_barrier, Vu_barrier = (np.empty(d), np.empty(d)) if weights.kappa > 0.0 else (w, Vu)
    stamp, places = np.zeros(T, dtype=np.int8), np.empty(T + 1, dtype=np.int64)
    z, slopes, b, e_weight, ones = np.empty(T), np.empty(T), np.empty(T), np.empty(T), np.ones(T)
    for step in range(position, blocks.shape[0]):
        if metric.counts[1] >= probe_every:
            return step, PROBE_DUE
        k = blocks[step]
        # The inverse.
        pending.column(metric.cone, k, w)
        if has_drifted(W[k], w, 1.0, 1.0) and metric.counts[1] > 0:
            return step, STEP_REFUSED
        if weights.kappa > 0.0:
            pending.column(metric.barrier, k, w_barrier)
        # The gradient.
        x[:] = 0.0
        column_of(samples, k, x)
        moved = touched(samples, weights.own, x, k, stamp, places)
        m = moved.shape[0]
        for at in range(m):
            z[at] = metric.scores[moved[at]]
        fill(SLOPE, weights.loss, z[:m], ones[:m], slopes)
        _pull(samples, slopes, weights.own, x, moved, c)
        transposed_product(samples, c, g)
        loss_square = 0.25 * dot(g, g)
        for j in range(d):
            g[j] = 0.5 * g[j] - weights.alpha * w_barrier[j] + weights.beta * W[k, j]
            u[j] = -g[j]
        length = sqrt(dot(g, g))
        if not isfinite(length):
            return step, NOT_FINITE
        u[k] = 0.0
        pending.apply(metric.cone, u, Vu)
        # Row k of W times V ū is entry k of ū, which is 0.
        if has_drifted(W[k], Vu, 0.0, length) and metric.counts[1] > 0:
            return step, STEP_REFUSED
        metric.residuals[k] = length
        metric.sizes[k] = (
            sqrt(loss_square)
            + weights.alpha * sqrt(dot(w_barrier, w_barrier))
            + weights.beta * sqrt(dot(W[k], W[k]))
        )
        metric.counts[1] += 1
        if length == 0.0:
            continue
        if weights.kappa > 0.0:
            pending.apply(metric.barrier, u, Vu_barrier)
        cross, square = dot(W[k], u), dot(u, u)
        u[k] = -0.5 * g[k]
        # The scores along the direction.
        product(samples, u, r)
        for at in range(m):
            t = moved[at]
            q, p, n = samples.query[t], samples.positive[t], samples.negative[t]
            b[at] = _along(x, r, q, p, n, weights.own)
            e_weight[at] = _at_corner(x, q, p, n, weights.own)
        cone = schur_along(w, Vu, u, k)
        barrier = schur_along(w_barrier, Vu_barrier, u, k) if weights.kappa > 0.0 else cone
        line = Line(
            retraction, weights.loss, z[:m], b[:m], e_weight[:m], weights.alpha, weights.beta, barrier, cone,
            cross, square, W[k, k], u[k],
        )  # fmt: skip
        eta = step_length(search, line, wanted[step])
        e = extra(retraction, cone, eta)[0]
        if not (isfinite(eta) and isfinite(e)):
            return step, NOT_FINITE
        if eta <= 0.0:
            continue
        # The move.
        corner, shrink = W[k, k] + 2.0 * eta * u[k] + e, 1.0
        if weights.sparsity > 0.0:
            off = 0.0
            for j in range(d):
                off += (W[k, j] + eta * u[j]) ** 2 if j != k else 0.0
            shrink = max(0.0, 1.0 - eta * weights.sparsity / sqrt(off)) if off > 0.0 else 1.0
        _move_inverse(metric.cone, cone, w, Vu, u, k, eta, shrink, corner, schur_at(cone, eta, e))
        if weights.kappa > 0.0:
            _move_inverse(
                metric.barrier, barrier, w_barrier, Vu_barrier, u, k, eta, shrink, corner + weights.kappa,
                schur_at(barrier, eta, e),
            )  # fmt: skip
        if shrink == 1.0:
            for at in range(m):
                metric.scores[moved[at]] = z[at] + eta * b[at] + e * e_weight[at]
            vectors.copy(W[k] + eta * u, W[k])
        else:
            for j in range(d):
                shrunk = shrink * (W[k, j] + eta * u[j])
                g[j], W[k, j] = shrunk - W[k, j], shrunk
            g[k] = 0.0
            product(samples, g, r)
            for t in moved:
                q, p, n = samples.query[t], samples.positive[t], samples.negative[t]
                corner_change = (2.0 * eta * u[k] + e) * _at_corner(x, q, p, n, weights.own)
                metric.scores[t] += _along(x, r, q, p, n, weights.own) + corner_change
        W[k, k] = corner
        vectors.copy(W[k], W[:, k])
        metric.counts[0] += 1
    return blocks.shape[0], FINISHED
