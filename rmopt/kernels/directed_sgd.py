"""The compiled loop of steps that remember earlier gradients: momentum, Adam, AdaGrad.

The point and what is remembered are matrices of rank k or 2k, whose columns lie in the span of h columns. They are
kept as coordinates in orthonormal columns Q, on which a step is that of the reference. A step adds to Q the rows that
it looks at; when there is no more room, Q is turned to the h columns that are needed. Q itself is Z K with a
triangular K, where the columns of Z that were added are the rows as they are: O(nnz·h + h²k) a step, and
O((n + m)h²) every h steps, in place of O((n + m)k²) a step. Where a step looks at many rows, all of U and V move:
O(nnz·k + (n + m)k²).

A symmetric matrix U S Uᵀ has one side, on which both rows of a term lie.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.losses import slope_of
from rmopt.kernels.matrices import (
    beside,
    clear,
    columns,
    combined,
    cross,
    identity,
    inner,
    reflected,
    scale_row,
    solved,
    times,
    times_transposed,
    transposed,
    write,
)
from rmopt.kernels.steps import add_row, gather_row, row_dot, scatter_row
from rmopt.kernels.vectors import add_outer, dot, product, transposed_product

# Where a smaller share of the square of a row is outside the span, that part is computed entry by entry; what is a
# smaller share of its length is rounding.
INSIDE = 1e-8
ROUNDING = 1e-13
# A column is taken for dependent on those before where a smaller share of its length is outside their span.
DEPENDENT = 1e-10


class Side(NamedTuple):
    """One side of the factors: coordinates in orthonormal columns Q = Z K, or the rows themselves.

    Z (n, c), K (c, c): of the columns the first `live[0]` are in use. U, Up (c, k): coordinates of the point
    and of the tangent vector that is remembered. With c = 0 they are all rows, (n, k).
    """

    Z: np.ndarray
    K: np.ndarray
    live: np.ndarray
    U: np.ndarray
    Up: np.ndarray


class Cores(NamedTuple):
    """What stands between both sides: of the point U S Vᵀ, and of the tangent vector (M, Up, Vp)."""

    S: np.ndarray
    M: np.ndarray


class Weights(NamedTuple):
    """How directions are made: remembered ← keep · remembered + take · gradient, and how long a step is.

    `keep_squares`, `take_squares`: the same for squared lengths, which begin at `least`. A step is divided by their
    root and `eps` where they are taken at all; `corrected` says that both means began at zero.
    """

    keep: float = 0.0
    take: float = 1.0
    keep_squares: float = 0.0
    take_squares: float = 0.0
    eps: float = 0.0
    least: float = 0.0
    corrected: bool = False


@njit(cache=True, nogil=True)
def run(loss, weights, sides, cores, squares, counts, left, right, terms, batch):
    """Do all steps; return False before one whose numbers are not finite.

    Parameters
    ----------
    sides : tuple of Side
        Left and right; the one side of a symmetric matrix, whose gradients are the symmetric parts.
    squares : array of one
        The squared lengths that the weights keep.
    counts : int array of two
        Steps and updates.
    batch : int
        A step looks at the terms batch·t, …, batch·t + batch − 1.
    """
    A, B, symmetric = sides[0], sides[-1], len(sides) == 1
    S, M = cores.S, cores.M
    P, Q = np.zeros((batch, A.K.shape[0])), np.zeros((batch, B.K.shape[0]))
    u, v, Sv = np.empty((batch, S.shape[0])), np.empty((batch, S.shape[0])), np.empty(S.shape[0])
    slopes, none = np.empty(batch), np.full(batch, np.int64(-1))
    room = 2 * batch if symmetric else batch
    remembers = weights.keep > 0.0
    for t in range(terms.etas.shape[0]):
        _make_room(A, room, remembers)
        _make_room(B, room, remembers)
        here = slice(t * batch, (t + 1) * batch)
        row, plus, minus, targets = terms.left[here], terms.plus[here], terms.minus[here], terms.targets[here]
        for i in range(batch):
            _products(A, left, row[i], none[i], P[i], u[i])
            _products(B, right, plus[i], minus[i], Q[i], v[i])
            product(S, v[i], Sv)
            z = dot(u[i], Sv)
            if not np.isfinite(z):
                return False
            slopes[i] = slope_of(loss, z, targets[i])
            scale_row(u, i, slopes[i])
            scale_row(v, i, slopes[i])
        for i in range(batch):
            if slopes[i] != 0.0:
                _lodge(A, left, row[i], none[i], P[i])
                _lodge(B, right, plus[i], minus[i], Q[i])
        along_V, along_U = _image(A, left, row, none, P, v), _image(B, right, plus, minus, Q, u)
        if symmetric:
            along_V = combined(0.5, along_V, 0.5, along_U)
        U, V = A.U[: A.live[0]], B.U[: B.live[0]]
        Up, Vp = A.Up[: A.live[0]], B.Up[: B.live[0]]
        core, up, vp = _tangent(symmetric, U, V, along_V, along_U)
        square = inner(core, core) + inner(up, up) + inner(vp, vp)
        new_M, new_Up, new_Vp = _mixed(weights, M, core), _mixed(weights, Up, up), _mixed(weights, Vp, vp)
        kept = weights.keep_squares * squares[0] + weights.take_squares * square
        scale = _step_factor(weights, kept, counts[0] + 1)
        length = scale * np.sqrt(inner(new_M, new_M) + inner(new_Up, new_Up) + inner(new_Vp, new_Vp))
        if not np.isfinite(length):
            return False
        squares[0] = kept
        if length > 0.0:
            counts[1] += 1
            end_U, end_S, end_V = _retracted(
                symmetric, U, S, V, new_M, new_Up, new_Vp, -terms.etas[t] * scale
            )
            if remembers:
                # The remembered vector, projected where the step ends.
                turn_U, turn_V = cross(U, end_U), cross(V, end_V)
                along_V = _carried(U, new_M, new_Up, new_Vp, turn_V, end_V)
                along_U = _carried(V, transposed(new_M), new_Vp, new_Up, turn_U, end_U)
                core, up, vp = _tangent(symmetric, end_U, end_V, along_V, along_U)
                _assign(M, Up, Vp, core, up, vp)
            _assign(U, S, V, end_U, end_S, end_V)
        counts[0] += 1
    return True


@njit(cache=True, nogil=True)
def _assign(A, B, C, a, b, c):
    """Set A, B, C to a, b, c."""
    write(A, a)
    write(B, b)
    write(C, c)


@njit(cache=True, nogil=True)
def _carried(U, M, Up, Vp, turn_V, end_V):
    """Return (U M Vᵀ + Up Vᵀ + U Vpᵀ) V' for turn_V = VᵀV'."""
    inside = combined(1.0, times(M, turn_V), 1.0, cross(Vp, end_V))
    return combined(1.0, times(U, inside), 1.0, times(Up, turn_V))


@njit(cache=True, nogil=True)
def _mixed(weights, remembered, new):
    """Return what is remembered next; where that is the gradient alone, its own array."""
    if weights.keep == 0.0 and weights.take == 1.0:
        return new
    return combined(weights.keep, remembered, weights.take, new)


@njit(cache=True, nogil=True)
def _make_room(side, rows, remembers):
    """Turn the columns to those that are needed, where so many rows may have no room; and coordinates with them."""
    live, c = side.live[0], side.K.shape[0]
    if c == 0 or live + rows <= c:
        return
    held = side.U[:live]
    if remembers:
        held = beside(held, side.Up[:live])
    turn = reflected(held)[0]
    h = turn.shape[1]
    for matrix in (side.U, side.Up):
        turned = cross(turn, matrix[:live])
        clear(matrix)
        write(matrix, turned)
    Z = times(columns(side.Z, 0, live), times(columns(side.K[:live], 0, live), turn))
    clear(side.Z)
    clear(side.K)
    # Without what rounding has left of orthonormality (Newton and Schulz).
    write(side.Z, times(Z, combined(1.5, identity(h), -0.5, cross(Z, Z))))
    write(side.K, identity(h))
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
def _image(side, rows, plus, minus, P, vectors):
    """Return Σ p wᵀ over the terms of a step; coordinates of p are in P where there are columns."""
    live = side.live[0]
    out = np.zeros((live, vectors.shape[1]))
    for i in range(plus.shape[0]):
        if side.K.shape[0] > 0:
            add_outer(out, 1.0, P[i], vectors[i])
        else:
            scatter_row(out, rows, plus[i], vectors[i], 1.0)
            scatter_row(out, rows, minus[i], vectors[i], -1.0)
    return out


@njit(cache=True, nogil=True)
def _coordinates(side, rows, plus, minus, out):
    """Set out = Qᵀp for p a row, or the difference of two rows."""
    raw = np.empty(out.shape[0])
    gather_row(side.Z, rows, plus, minus, raw)
    for j in range(out.shape[0]):
        out[j] = 0.0
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
    add_row(column, rows, plus, 1.0)
    add_row(column, rows, minus, -1.0)
    square = row_dot(rows, plus, plus) + row_dot(rows, minus, minus) - 2.0 * row_dot(rows, plus, minus)
    rest = square - dot(out, out)
    if rest > INSIDE * square:
        for i in range(live):
            side.K[i, live] = -dot(side.K[i, :live], out[:live]) / np.sqrt(rest)
        side.K[live, live] = 1.0 / np.sqrt(rest)
    else:
        Q = times(columns(side.Z, 0, live), columns(side.K[:live], 0, live))
        outside = columns(side.Z, live, live + 1)
        for _ in range(2):
            outside = combined(1.0, outside, -1.0, times(Q, cross(Q, outside)))
        rest = inner(outside, outside)
        known = not rest > ROUNDING * ROUNDING * square
        for j in range(column.shape[0]):
            column[j] = 0.0 if known else outside[j, 0] / np.sqrt(rest)
        if known:
            return
        side.K[live, live] = 1.0
    out[live] = np.sqrt(rest)
    side.live[0] += 1


@njit(cache=True, nogil=True)
def _tangent(symmetric, U, V, along_V, along_U):
    """Return the parts of the projection of an ambient matrix Z from Z V and ZᵀU; where it is symmetric from Z V."""
    core = cross(U, along_V)
    up = combined(1.0, along_V, -1.0, times(U, core))
    if symmetric:
        return combined(0.5, core, 0.5, transposed(core)), up, up
    return core, up, combined(1.0, along_U, -1.0, times(V, cross(V, along_U)))


@njit(cache=True, nogil=True)
def _step_factor(weights, square, step):
    """Return what the direction is multiplied by, from squared lengths."""
    if weights.take_squares == 0.0:
        return 1.0
    if not weights.corrected:
        return 1.0 / (np.sqrt(square) + weights.eps)
    others = np.sqrt(square / (1.0 - weights.keep_squares**step))
    return 1.0 / (1.0 - weights.keep**step) / (others + weights.eps)


@njit(cache=True, nogil=True)
def _retracted(symmetric, U, S, V, M, Up, Vp, t):
    """Return what the second-order retractions of `rmopt.retractions.fixed_rank` do, by the same formulas."""
    one, R = identity(S.shape[0]), solved(S, combined(t, M, 0.0, M))
    tail = combined(1.0, one, -0.5, R)
    bent = combined(0.5 * t, M, -0.125 * t, times(M, R))
    left, triangle_U = _orthonormal(combined(1.0, times(U, combined(1.0, S, 1.0, bent)), t, times(Up, tail)))
    if symmetric:
        end = times(triangle_U, solved(S, transposed(triangle_U)))
        return left, combined(0.5, end, 0.5, transposed(end)), left
    bent = combined(0.5, R, -0.125, times(R, R))
    inside, outside = combined(1.0, one, 1.0, bent), solved(transposed(S), transposed(tail))
    right, triangle_V = _orthonormal(combined(1.0, times_transposed(V, inside), t, times(Vp, outside)))
    return left, times_transposed(triangle_U, triangle_V), right


@njit(cache=True, nogil=True)
def _orthonormal(X):
    """Return Q and R of X = Q R by Gram and Schmidt, twice, some ten times faster than reflections for few columns.

    Reflections take over where a column is in the span of those before it.
    """
    n, k = X.shape
    C, R = transposed(X), np.zeros((k, k))
    inside, change = np.empty(k), np.empty(n)
    for j in range(k):
        x, before = C[j], C[:j]
        length = np.sqrt(dot(x, x))
        for _ in range(2):
            product(before, x, inside)
            transposed_product(before, inside, change)
            for i in range(n):
                x[i] -= change[i]
            for i in range(j):
                R[i, j] += inside[i]
        R[j, j] = np.sqrt(dot(x, x))
        if not R[j, j] > DEPENDENT * length:
            return reflected(X)
        for i in range(n):
            x[i] /= R[j, j]
    return transposed(C), R
