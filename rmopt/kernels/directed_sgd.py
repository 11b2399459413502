"""The compiled loop of steps that remember earlier gradients: momentum, Adam, AdaGrad, and means of the points.

The point, what is remembered and the mean are matrices of rank k or 2k whose columns lie in the span of h columns.
They are kept as coordinates in orthonormal columns Q, on which a step is that of the reference. A step adds to Q the
rows that it looks at; when there is no more room, Q is turned to the h columns that are needed. Q itself is Z K with
a triangular K, where the columns of Z that were added are the rows as they are: O(nnz·h + h²k) a step, and
O((n + m)h²) every h steps, in place of O((n + m)k²) a step. Where a step looks at many rows, all of U and V are
moved: O(nnz·k + (n + m)k²).

A symmetric matrix U S Uᵀ has one side, on which both rows of a term lie.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.batch_sgd import scatter_row
from rmopt.kernels.lifted import METRIC_PROJECTION, SECOND_ORDER
from rmopt.kernels.losses import slope
from rmopt.kernels.steps import FINISHED, NOT_FINITE, gather_row
from rmopt.kernels.vectors import dot, product, transposed_product

# Where a smaller share of the square of a row is outside the span, that part is computed entry by entry; what is a
# smaller share of its length is rounding.
INSIDE = 1e-8
ROUNDING = 1e-13
# A column is taken for dependent on those before where a smaller share of its length is outside their span.
DEPENDENT = 1e-10
# From so many columns and entries on, Gram matrices are faster than single columns, and down to so small a share of a
# column outside the span of those before they know it; so far from the identity the second one may be.
MANY_COLUMNS, MANY_ENTRIES, INDEPENDENT, NEARLY_ORTHONORMAL = 32, 100_000, 1e-4, 1e-3
# Columns that a substitution takes together: they stay in the cache.
TOGETHER = 512


class Side(NamedTuple):
    """One side of the factors: coordinates in orthonormal columns Q = Z K, or the rows themselves.

    Z (n, c), K (c, c): of the columns the first `live[0]` are in use. U, Up, mean (c, k): coordinates of the point,
    of the tangent vector that is remembered, and of the mean of points. With c = 0 they are all rows, (n, k).
    """

    Z: np.ndarray
    K: np.ndarray
    live: np.ndarray
    U: np.ndarray
    Up: np.ndarray
    mean: np.ndarray


class Cores(NamedTuple):
    """What stands between both sides: of the point U S Vᵀ, of the tangent vector (M, Up, Vp), and of the mean."""

    S: np.ndarray
    M: np.ndarray
    mean: np.ndarray


class Rule(NamedTuple):
    """How directions are made: remembered ← keep · remembered + take · gradient, and how long a step is.

    `keep_squares`, `take_squares`: the same for squared lengths. A step is divided by their root and `eps` where they
    are taken at all; `largest` says that it is by the largest so far, `corrected` that both means began at zero.
    """

    keep: float
    take: float
    keep_squares: float
    take_squares: float
    eps: float
    largest: bool
    corrected: bool


def _run(rule, kinds, code, sides, cores, squares, counts, left, right, terms, batch, average_from, start):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    Parameters
    ----------
    kinds : (int, int)
        Retractions of steps and of the mean (`rmopt.kernels.lifted`).
    sides : tuple of Side
        Left and right; the one side of a symmetric matrix, whose gradients are the symmetric parts.
    squares : array of two
        The squared lengths that the rule keeps, and the largest.
    counts : int array of three
        Steps, updates, and points in the mean.
    batch : int
        A step looks at the terms batch·t, …, batch·t + batch − 1.
    average_from : int
        The mean begins after so many steps; −1 for none.
    """
    A, B, symmetric = sides[0], sides[-1], len(sides) == 1
    S, M, mean_S = cores.S, cores.M, cores.mean
    P, Q = np.zeros((batch, A.K.shape[0])), np.zeros((batch, B.K.shape[0]))
    u, v, Sv = np.empty((batch, S.shape[0])), np.empty((batch, S.shape[0])), np.empty(S.shape[0])
    active, none = np.empty(batch, np.int64), np.full(terms.minus.shape[0], np.int64(-1))
    rows = 2 * batch if symmetric else batch
    remembers, averages = rule.keep > 0.0, average_from >= 0
    for t in range(start, terms.etas.shape[0]):
        _make_room(A, rows, remembers, averages)
        _make_room(B, rows, remembers, averages)
        r = 0
        for term in range(t * batch, (t + 1) * batch):
            _products(A, left, terms.left[term], none[term], P[r], u[r])
            _products(B, right, terms.plus[term], terms.minus[term], Q[r], v[r])
            product(S, v[r], Sv)
            z = dot(u[r], Sv)
            if not np.isfinite(z):
                return t, NOT_FINITE
            weight = slope(code, z, terms.targets[term])
            if weight != 0.0:
                active[r] = term
                u[r] *= weight
                v[r] *= weight
                r += 1
        for i in range(r):
            term = active[i]
            _lodge(A, left, terms.left[term], none[term], P[i])
            _lodge(B, right, terms.plus[term], terms.minus[term], Q[i])
        along_V = _image(A, left, terms.left, none, active[:r], P[:r], v[:r])
        along_U = _image(B, right, terms.plus, terms.minus, active[:r], Q[:r], u[:r])
        if symmetric:
            along_V = 0.5 * (along_V + along_U)
        U, V = A.U[: A.live[0]], B.U[: B.live[0]]
        Up, Vp = A.Up[: A.live[0]], B.Up[: B.live[0]]
        core, up, vp = tangent(symmetric, U, V, along_V, along_U)
        square = _square(core) + _square(up) + _square(vp)
        new_M = _mixed(rule, M, core)
        new_Up, new_Vp = _mixed(rule, Up, up), _mixed(rule, Vp, vp)
        kept = rule.keep_squares * squares[0] + rule.take_squares * square
        most = max(squares[1], kept) if rule.largest else kept
        scale = _scale(rule, most, counts[0] + 1)
        length = scale * np.sqrt(_square(new_M) + _square(new_Up) + _square(new_Vp))
        if not np.isfinite(length):
            return t, NOT_FINITE
        squares[0], squares[1] = kept, most
        counts[0] += 1
        if length > 0.0:
            counts[1] += 1
            end_U, end_S, end_V = retracted(
                kinds[0], symmetric, U, S, V, new_M, new_Up, new_Vp, -terms.etas[t] * scale
            )
            if remembers:
                # The remembered vector, projected where the step ends.
                turn_U, turn_V = U.T @ end_U, V.T @ end_V
                along_V = U @ (new_M @ turn_V + new_Vp.T @ end_V) + new_Up @ turn_V
                if not symmetric:
                    along_U = V @ (new_M.T @ turn_U + new_Up.T @ end_U) + new_Vp @ turn_U
                M[:], Up[:], Vp[:] = tangent(symmetric, end_U, end_V, along_V, along_U)
            U[:], S[:], V[:] = end_U, end_S, end_V
        if averages and counts[0] > average_from:
            counts[2] += 1
            mean_U, mean_V = A.mean[: A.live[0]], B.mean[: B.live[0]]
            if counts[2] == 1:
                mean_U[:], mean_S[:], mean_V[:] = U, S, V
            else:
                # From the mean towards the point.
                along_V = U @ (S @ (V.T @ mean_V)) - mean_U @ mean_S
                if not symmetric:
                    along_U = V @ (S.T @ (U.T @ mean_U)) - mean_V @ mean_S.T
                core, up, vp = tangent(symmetric, mean_U, mean_V, along_V, along_U)
                mean_U[:], mean_S[:], mean_V[:] = retracted(
                    kinds[1], symmetric, mean_U, mean_S, mean_V, core, up, vp, 1.0 / counts[2]
                )
    return terms.etas.shape[0], FINISHED


@njit(cache=True, nogil=True)
def _square(A):
    """Return ‖A‖², without an array for the squares: where A is large, its pages would cost more than the sum."""
    return dot(A.ravel(), A.ravel())


@njit(cache=True, nogil=True)
def _mixed(rule, remembered, new):
    """Return what is remembered next; where that is the gradient alone, its own array."""
    if rule.keep == 0.0 and rule.take == 1.0:
        return new
    return rule.keep * remembered + rule.take * new


@njit(cache=True, nogil=True)
def _make_room(side, rows, remembers, averages):
    """Turn the columns to those that are needed, where so many rows may have no room; and coordinates with them."""
    live, c = side.live[0], side.K.shape[0]
    if c == 0 or live + rows <= c:
        return
    held = side.U[:live].copy()
    if remembers:
        held = np.hstack((held, side.Up[:live]))
    if averages:
        held = np.hstack((held, side.mean[:live]))
    turn = np.linalg.qr(held)[0].copy()
    h = turn.shape[1]
    for part in (side.U, side.Up, side.mean):
        turned = turn.T @ part[:live]
        part[:] = 0.0
        part[:h] = turned
    Z = side.Z[:, :live].copy() @ (side.K[:live, :live].copy() @ turn)
    side.Z[:], side.K[:] = 0.0, 0.0
    # Without what rounding has left of orthonormality (Newton and Schulz).
    side.Z[:, :h] = Z @ (1.5 * np.eye(h) - 0.5 * (Z.T @ Z))
    side.K[:h, :h] = np.eye(h)
    side.live[0] = h


@njit(cache=True, nogil=True)
def _products(side, rows, plus, minus, space, out):
    """Set out = Uᵀp for p a row, or the difference of two rows."""
    if side.K.shape[0] == 0:
        gather_row(side.U, rows, plus, minus, out)
    else:
        _coordinates(side, rows, plus, minus, space)
        transposed_product(side.U, space, out)


@njit(cache=True, nogil=True)
def _image(side, rows, plus, minus, active, P, weights):
    """Return Σ p wᵀ over the active terms, whose coordinates are in P where there are columns."""
    live = side.live[0]
    if side.K.shape[0] > 0:
        return P[:, :live].copy().T @ weights
    out = np.zeros((live, weights.shape[1]))
    for i in range(active.shape[0]):
        scatter_row(out, rows, plus[active[i]], weights[i])
        if minus[active[i]] >= 0:
            scatter_row(out, rows, minus[active[i]], -weights[i])
    return out


@njit(cache=True, nogil=True)
def _coordinates(side, rows, plus, minus, out):
    """Set out = Qᵀp for p a row, or the difference of two rows."""
    raw = np.empty(out.shape[0])
    gather_row(side.Z, rows, plus, minus, raw)
    out[:] = 0.0
    live = side.live[0]
    for i in range(live):
        for j in range(i, live):
            out[j] += side.K[i, j] * raw[i]


@njit(cache=True, nogil=True)
def _lodge(side, rows, plus, minus, out):
    """Set out to the coordinates of p in columns that span it: where they do not, there is a new one."""
    if side.K.shape[0] == 0:
        return
    _coordinates(side, rows, plus, minus, out)
    live = side.live[0]
    column = side.Z[:, live]
    _add(column, rows, plus, 1.0)
    _add(column, rows, minus, -1.0)
    square = _along(column, rows, plus) - _along(column, rows, minus)
    rest = square - dot(out, out)
    if rest > INSIDE * square:
        length = np.sqrt(rest)
        for i in range(live):
            side.K[i, live] = -dot(side.K[i, :live], out[:live]) / length
        side.K[live, live] = 1.0 / length
    else:
        outside, Q = column.copy(), side.Z[:, :live].copy() @ side.K[:live, :live].copy()
        column[:] = 0.0
        for _ in range(2):
            outside -= Q @ (outside @ Q)
        rest = dot(outside, outside)
        if not rest > ROUNDING * ROUNDING * square:
            return
        column[:] = outside / np.sqrt(rest)
        side.K[live, live] = 1.0
    out[live] = np.sqrt(rest)
    side.live[0] += 1


@njit(cache=True, nogil=True)
def _add(column, rows, row, sign):
    """Add a row with a sign; none where its number is −1."""
    if row >= 0:
        for j in range(rows.indptr[row], rows.indptr[row + 1]):
            column[rows.indices[j]] += sign * rows.values[j]


@njit(cache=True, nogil=True)
def _along(column, rows, row):
    """Return the inner product with a row; 0 where its number is −1."""
    total = 0.0
    if row >= 0:
        for j in range(rows.indptr[row], rows.indptr[row + 1]):
            total += column[rows.indices[j]] * rows.values[j]
    return total


@njit(cache=True, nogil=True)
def tangent(symmetric, U, V, along_V, along_U):
    """Return the parts of the projection of an ambient matrix Z from Z V and ZᵀU; where it is symmetric from Z V."""
    core = U.T @ along_V
    up = along_V - U @ core
    if symmetric:
        return 0.5 * (core + core.T), up, up
    return core, up, along_U - V @ (V.T @ along_U)


@njit(cache=True, nogil=True)
def _scale(rule, most, step):
    """Return what the direction is multiplied by, from squared lengths."""
    if rule.take_squares == 0.0:
        return 1.0
    if not rule.corrected:
        return 1.0 / (np.sqrt(most) + rule.eps)
    others = np.sqrt(most / (1.0 - rule.keep_squares**step))
    return 1.0 / (1.0 - rule.keep**step) / (others + rule.eps)


@njit(cache=True, nogil=True)
def retracted(kind, symmetric, U, S, V, M, Up, Vp, t):
    """Return what the retractions of `rmopt.retractions.fixed_rank` do, by the same formulas."""
    k = S.shape[0]
    identity = np.eye(k)
    if kind == METRIC_PROJECTION:
        core = np.zeros((2 * k, 2 * k))
        core[:k, :k] = S + t * M
        core[:k, k:] = t * identity
        core[k:, :k] = t * identity
        left, triangle_U = _orthonormal(np.hstack((U, Up)))
        right, triangle_V = _orthonormal(np.hstack((V, Vp)))
        P, sigma, Qt = np.linalg.svd(triangle_U @ core @ triangle_V.T)
        return left @ P[:, :k].copy(), np.diag(sigma[:k]), right @ Qt[:k].T.copy()
    if kind == SECOND_ORDER:
        R = np.linalg.solve(S, t * M)
        tail = identity - 0.5 * R
        left = U @ (S + (0.5 * t) * M - (0.125 * t) * (M @ R)) + t * (Up @ tail)
        if symmetric:
            left, triangle_U = _orthonormal(left)
            end = triangle_U @ np.linalg.solve(S, triangle_U.T)
            return left, 0.5 * (end + end.T), left
        right = V @ (identity + 0.5 * R - 0.125 * (R @ R)).T + t * (Vp @ np.linalg.solve(S.T, tail.T))
    else:
        K = S + t * M
        left = U @ K + t * Up
        right = V + t * (Vp @ np.linalg.inv(K.T))
    left, triangle_U = _orthonormal(left)
    right, triangle_V = _orthonormal(right)
    return left, triangle_U @ triangle_V.T, right


@njit(cache=True, nogil=True)
def _orthonormal(X):
    """Return Q and R of X = Q R by Gram and Schmidt, twice, some ten times faster than reflections for few columns.

    Where there are many, by the Cholesky factors of Gram matrices, twice, unless X is too near to a smaller rank.
    Reflections take over where a column is in the span of those before it.
    """
    n, k = X.shape
    if k >= MANY_COLUMNS and X.size >= MANY_ENTRIES:
        columns, R = X.T.copy(), np.eye(k)
        if _divide_by_triangle(columns, R, False) and _divide_by_triangle(columns, R, True):
            return columns.T.copy(), R
    columns, R = X.T.copy(), np.zeros((k, k))
    inside, change = np.empty(k), np.empty(n)
    for j in range(k):
        x, before = columns[j], columns[:j]
        length = np.sqrt(dot(x, x))
        for _ in range(2):
            product(before, x, inside[:j])
            transposed_product(before, inside[:j], change)
            x -= change
            R[:j, j] += inside[:j]
        R[j, j] = np.sqrt(dot(x, x))
        if not R[j, j] > DEPENDENT * length:
            Q, R = np.linalg.qr(X)
            return Q.copy(), R.copy()
        x /= R[j, j]
    return columns.T.copy(), R


@njit(cache=True, nogil=True)
def _divide_by_triangle(columns, R, again):
    """Turn C (columns in rows) and R into L⁻¹ C and Lᵀ R, where C Cᵀ = L Lᵀ; return whether that is to be trusted.

    C is orthonormal then up to the rounding of its Gram matrix; `again` to rounding.
    """
    gram = columns @ columns.T
    k = gram.shape[0]
    if again and not np.abs(gram - np.eye(k)).max() < NEARLY_ORTHONORMAL:
        return False
    L = np.zeros((k, k))
    for j in range(k):
        for i in range(j):
            L[j, i] = (gram[j, i] - dot(L[j, :i], L[i, :i])) / L[i, i]
        rest = gram[j, j] - dot(L[j, :j], L[j, :j])
        if not rest > INDEPENDENT * INDEPENDENT * gram[j, j]:
            return False
        L[j, j] = np.sqrt(rest)
    _substitute(L, columns)
    R[:] = L.T.copy() @ R
    return True


@njit(cache=True, nogil=True, fastmath={"contract"})
def _substitute(L, C):
    """Turn C into L⁻¹ C by a substitution, which is as stable as reflections; the product with an inverse is not."""
    for start in range(0, C.shape[1], TOGETHER):
        part = slice(start, min(start + TOGETHER, C.shape[1]))
        for j in range(L.shape[0]):
            x, fours = C[j, part], j - j % 4
            for i in range(0, fours, 4):
                l0, l1, l2, l3 = L[j, i], L[j, i + 1], L[j, i + 2], L[j, i + 3]
                y0, y1, y2, y3 = C[i, part], C[i + 1, part], C[i + 2, part], C[i + 3, part]
                for c in range(x.shape[0]):
                    x[c] = x[c] - l0 * y0[c] - l1 * y1[c] - l2 * y2[c] - l3 * y3[c]
            for i in range(fours, j):
                y, weight = C[i, part], L[j, i]
                for c in range(x.shape[0]):
                    x[c] -= weight * y[c]
            x /= L[j, j]


run = njit(cache=True, nogil=True)(_run)
