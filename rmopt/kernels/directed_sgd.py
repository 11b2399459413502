"""The compiled loop of steps that remember earlier gradients: momentum, Adam, AdaGrad, and means of the points.

The point, what is remembered and the mean are matrices of rank k or 2k whose columns lie in the span of h columns.
They are kept as coordinates in orthonormal columns Q, on which a step is that of the reference. A step adds to Q the
rows that it looks at; when there is no more room, Q is turned to the h columns that are needed. Q itself is Z K with
a triangular K, where the columns of Z that were added are the rows as they are: O(nnz·h + h²k) a step, and
O((n + m)h²) every h steps, in place of O((n + m)k²) a step.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.lifted import METRIC_PROJECTION, SECOND_ORDER
from rmopt.kernels.losses import slope
from rmopt.kernels.steps import FINISHED, NOT_FINITE, gather_row
from rmopt.kernels.vectors import dot

# Where a smaller share of the square of a row is outside the span, that part is computed entry by entry; what is a
# smaller share of its length is rounding.
INSIDE = 1e-8
ROUNDING = 1e-13


class Span(NamedTuple):
    """The columns Q = Z K of one side: Z (n, c), K (c, c), of which the first `live[0]` are in use.

    With as many as there are rows they are all of the space.
    """

    Z: np.ndarray
    K: np.ndarray
    live: np.ndarray


class Matrices(NamedTuple):
    """In coordinates: the point U S Vᵀ, a tangent vector (M, Up, Vp) that is remembered, and the mean of points."""

    U: np.ndarray
    S: np.ndarray
    V: np.ndarray
    M: np.ndarray
    Up: np.ndarray
    Vp: np.ndarray
    mean_U: np.ndarray
    mean_S: np.ndarray
    mean_V: np.ndarray


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


def _run(rule, kinds, code, spans, matrices, squares, counts, left, right, terms, batch, average_from, start):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    Parameters
    ----------
    kinds : (int, int)
        Retractions of steps and of the mean (`rmopt.kernels.lifted`).
    spans : (Span, Span)
    squares : array of two
        The squared lengths that the rule keeps, and the largest.
    counts : int array of three
        Steps, updates, and points in the mean.
    batch : int
        A step looks at the terms batch·t, …, batch·t + batch − 1.
    average_from : int
        The mean begins after so many steps; −1 for none.
    """
    A, B = spans
    P, Q = np.zeros((batch, A.K.shape[0])), np.zeros((batch, B.K.shape[0]))
    slopes = np.empty(batch)
    remembers, averages = rule.keep > 0.0, average_from >= 0
    for t in range(start, terms.etas.shape[0]):
        _make_room(A, batch, matrices.U, matrices.Up, matrices.mean_U, remembers, averages)
        _make_room(B, batch, matrices.V, matrices.Vp, matrices.mean_V, remembers, averages)
        middle = matrices.U @ matrices.S
        for i in range(batch):
            term = t * batch + i
            _coordinates(A, left, terms.left[term], np.int64(-1), P[i])
            _coordinates(B, right, terms.plus[term], terms.minus[term], Q[i])
            z = np.dot(P[i] @ middle, Q[i] @ matrices.V)
            if not np.isfinite(z):
                return t, NOT_FINITE
            slopes[i] = slope(code, z, terms.targets[term])
        r = 0
        for i in range(batch):
            term = t * batch + i
            if slopes[i] != 0.0:
                _lodge(A, left, terms.left[term], np.int64(-1), P[r])
                _lodge(B, right, terms.plus[term], terms.minus[term], Q[r])
                Q[r] *= slopes[i]
                r += 1
        p, q = P[:r, : A.live[0]].copy(), Q[:r, : B.live[0]].copy()
        U, V = matrices.U[: A.live[0]], matrices.V[: B.live[0]]
        Up, Vp, S, M = matrices.Up[: A.live[0]], matrices.Vp[: B.live[0]], matrices.S, matrices.M
        core, up, vp = _tangent(U, V, p.T @ (q @ V), q.T @ (p @ U))
        square = np.sum(core * core) + np.sum(up * up) + np.sum(vp * vp)
        M, Up, Vp = (
            rule.keep * M + rule.take * core,
            rule.keep * Up + rule.take * up,
            rule.keep * Vp + rule.take * vp,
        )
        kept = rule.keep_squares * squares[0] + rule.take_squares * square
        most = max(squares[1], kept) if rule.largest else kept
        scale = _scale(rule, most, counts[0] + 1)
        length = scale * np.sqrt(np.sum(M * M) + np.sum(Up * Up) + np.sum(Vp * Vp))
        if not np.isfinite(length):
            return t, NOT_FINITE
        squares[0], squares[1] = kept, most
        counts[0] += 1
        if length > 0.0:
            counts[1] += 1
            end_U, end_S, end_V = _retracted(kinds[0], U, S, V, M, Up, Vp, -terms.etas[t] * scale)
            if remembers:
                # The remembered vector, projected where the step ends.
                along_V = (U @ M + Up) @ (V.T @ end_V) + U @ (Vp.T @ end_V)
                along_U = (V @ M.T + Vp) @ (U.T @ end_U) + V @ (Up.T @ end_U)
                M, Up, Vp = _tangent(end_U, end_V, along_V, along_U)
                matrices.M[:], matrices.Up[: A.live[0]], matrices.Vp[: B.live[0]] = M, Up, Vp
            U[:], S[:], V[:] = end_U, end_S, end_V
        if averages and counts[0] > average_from:
            counts[2] += 1
            mean_U, mean_S, mean_V = (
                matrices.mean_U[: A.live[0]],
                matrices.mean_S,
                matrices.mean_V[: B.live[0]],
            )
            if counts[2] == 1:
                mean_U[:], mean_S[:], mean_V[:] = U, S, V
            else:
                # From the mean towards the point.
                along_V = (U @ S) @ (V.T @ mean_V) - mean_U @ mean_S
                along_U = (V @ S.T) @ (U.T @ mean_U) - mean_V @ mean_S.T
                core, up, vp = _tangent(mean_U, mean_V, along_V, along_U)
                mean_U[:], mean_S[:], mean_V[:] = _retracted(
                    kinds[1], mean_U, mean_S, mean_V, core, up, vp, 1.0 / counts[2]
                )
    return terms.etas.shape[0], FINISHED


@njit(cache=True, nogil=True)
def _make_room(span, rows, U, Up, mean_U, remembers, averages):
    """Turn the columns to those that are needed, where so many rows may have no room; and coordinates with them."""
    live, (n, c) = span.live[0], span.Z.shape
    if live + rows <= c or c == n:
        return
    held = U[:live].copy()
    if remembers:
        held = np.hstack((held, Up[:live]))
    if averages:
        held = np.hstack((held, mean_U[:live]))
    turn = np.linalg.qr(held)[0].copy()
    h = turn.shape[1]
    for part in (U, Up, mean_U):
        turned = turn.T @ part[:live]
        part[:] = 0.0
        part[:h] = turned
    Z = span.Z[:, :live].copy() @ (span.K[:live, :live].copy() @ turn)
    span.Z[:], span.K[:] = 0.0, 0.0
    # Without what rounding has left of orthonormality (Newton and Schulz).
    span.Z[:, :h] = Z @ (1.5 * np.eye(h) - 0.5 * (Z.T @ Z))
    span.K[:h, :h] = np.eye(h)
    span.live[0] = h


@njit(cache=True, nogil=True)
def _coordinates(span, rows, plus, minus, out):
    """Set out = Qᵀp for p a row, or the difference of two rows."""
    raw = np.empty(out.shape[0])
    gather_row(span.Z, rows, plus, minus, raw)
    out[:] = 0.0
    live = span.live[0]
    for i in range(live):
        for j in range(i, live):
            out[j] += span.K[i, j] * raw[i]


@njit(cache=True, nogil=True)
def _lodge(span, rows, plus, minus, out):
    """Set out to the coordinates of p in columns that span it: where they do not, there is a new one."""
    _coordinates(span, rows, plus, minus, out)
    n, c = span.Z.shape
    live = span.live[0]
    if c == n:
        return
    column = span.Z[:, live]
    _add(column, rows, plus, 1.0)
    _add(column, rows, minus, -1.0)
    square = _along(column, rows, plus) - _along(column, rows, minus)
    rest = square - dot(out, out)
    if rest > INSIDE * square:
        length = np.sqrt(rest)
        for i in range(live):
            span.K[i, live] = -dot(span.K[i, :live], out[:live]) / length
        span.K[live, live] = 1.0 / length
    else:
        outside, Q = column.copy(), span.Z[:, :live].copy() @ span.K[:live, :live].copy()
        column[:] = 0.0
        for _ in range(2):
            outside -= Q @ (outside @ Q)
        rest = dot(outside, outside)
        if not rest > ROUNDING * ROUNDING * square:
            return
        column[:] = outside / np.sqrt(rest)
        span.K[live, live] = 1.0
    out[live] = np.sqrt(rest)
    span.live[0] += 1


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
def _tangent(U, V, along_V, along_U):
    """Return the parts of the projection of an ambient matrix Z from Z V and ZᵀU."""
    core = U.T @ along_V
    return core, along_V - U @ core, along_U - V @ (V.T @ along_U)


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
def _retracted(kind, U, S, V, M, Up, Vp, t):
    """Return what the retractions of `rmopt.retractions.fixed_rank` do, by the same formulas."""
    k = S.shape[0]
    identity = np.eye(k)
    if kind == METRIC_PROJECTION:
        core = np.zeros((2 * k, 2 * k))
        core[:k, :k] = S + t * M
        core[:k, k:] = t * identity
        core[k:, :k] = t * identity
        left, triangle_U = np.linalg.qr(np.hstack((U, Up)))
        right, triangle_V = np.linalg.qr(np.hstack((V, Vp)))
        P, sigma, Qt = np.linalg.svd(triangle_U @ core @ triangle_V.T)
        return left.copy() @ P[:, :k].copy(), np.diag(sigma[:k]), right.copy() @ Qt[:k].T.copy()
    if kind == SECOND_ORDER:
        R = np.linalg.solve(S, t * M)
        tail = identity - 0.5 * R
        left = U @ (S + (0.5 * t) * M - (0.125 * t) * (M @ R)) + t * (Up @ tail)
        right = V @ (identity + 0.5 * R - 0.125 * (R @ R)).T + t * (Vp @ np.linalg.solve(S.T, tail.T))
    else:
        K = S + t * M
        left = U @ K + t * Up
        right = V + t * (Vp @ np.linalg.inv(K.T))
    left, triangle_U = np.linalg.qr(left)
    right, triangle_V = np.linalg.qr(right)
    return left.copy(), triangle_U @ triangle_V.T, right.copy()


run = njit(cache=True, nogil=True)(_run)
