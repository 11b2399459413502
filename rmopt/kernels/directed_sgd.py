"""The compiled loop of batches, and of steps with a memory of gradients: momentum, Adam, AdaGrad.

The point and the memory are matrices of rank k or 2k, whose columns lie in the span of 2k columns. They are stored as
coordinates in orthonormal columns Q, in which a step is that of the reference. A step adds its rows to Q, and when Q
is full, it is reduced to the 2k needed columns. Q itself is Z K with a triangular K, and the added columns of Z are
the unchanged rows: O(nnz·k + k³) per step, and O((n + m)k²) every 2k rows.

A symmetric matrix U S Uᵀ has one side, with both rows of a term.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.losses import slope_of
from rmopt.kernels.matrices import (
    columns,
    combined,
    cross,
    identity,
    inner,
    scale_row,
    solved,
    times,
    times_transposed,
    transposed,
    write,
)
from rmopt.kernels.steps import add_row, gather_row
from rmopt.kernels.vectors import copy, dot, product, transposed_product

# If a smaller share of a row's square is outside the span, that part is computed entry by entry; below the second
# share it is rounding.
INSIDE, ROUNDING = 1e-8, 1e-26


class Side(NamedTuple):
    """One side of the factors: orthonormal columns Q = Z K, of which `live[0]` are in use and the others zero.

    Z (n, c), K (c, c); U, Up (c, k): coordinates of the point and of the stored tangent vector.
    """

    Z: np.ndarray
    K: np.ndarray
    live: np.ndarray
    U: np.ndarray
    Up: np.ndarray


@njit(cache=True, nogil=True)
def run(loss, weights, sides, S, M, squares, counts, left, right, terms, batch):
    """Do all steps, or return False before one with numbers that are not finite.

    Parameters
    ----------
    sides : tuple of Side
        Left and right, or the single side of a symmetric matrix, whose gradients are the symmetric parts.
    S, M : arrays of shape (k, k)
        The cores between both sides: of the point U S Vᵀ, and of the tangent vector (M, Up, Vp).
    squares : array of one
        The weighted sum of squared lengths.
    counts : int array of two
        Steps and updates.
    batch : int
        A step uses the terms batch·t, …, batch·t + batch − 1.
    """
    A, B, symmetric = sides[0], sides[-1], len(sides) == 1
    P, Q, slopes = np.empty((batch, A.K.shape[0])), np.empty((batch, B.K.shape[0])), np.empty(batch)
    u, v, Sv = np.empty((batch, S.shape[0])), np.empty((batch, S.shape[0])), np.empty(S.shape[0])
    for t in range(terms.etas.shape[0]):
        _make_room(A, 2 * batch)
        _make_room(B, 2 * batch)
        for i in range(batch):
            term = t * batch + i
            row, plus, minus = terms.left[term], terms.plus[term], terms.minus[term]
            _coordinates(A, left, row, -1, P[i])
            _coordinates(B, right, plus, minus, Q[i])
            transposed_product(A.U, P[i], u[i])
            transposed_product(B.U, Q[i], v[i])
            product(S, v[i], Sv)
            z = dot(u[i], Sv)
            if not np.isfinite(z):
                return False
            slopes[i] = slope_of(loss, z, terms.targets[term])
        for i in range(batch):
            term = t * batch + i
            if slopes[i] != 0.0:
                _lodge(A, left, terms.left[term], -1, P[i])
                _lodge(B, right, terms.plus[term], terms.minus[term], Q[i])
                transposed_product(A.U, P[i], u[i])
                transposed_product(B.U, Q[i], v[i])
            scale_row(u, i, slopes[i])
            scale_row(v, i, slopes[i])
        live, width = A.live[0], B.live[0]
        U, V, Up, Vp = A.U[:live], B.U[:width], A.Up[:live], B.Up[:width]
        along_V, along_U = cross(columns(P, 0, live), v), cross(columns(Q, 0, width), u)
        if symmetric:
            along_V = combined(0.5, along_V, 0.5, along_U)
        core, up, vp = _tangent(symmetric, U, V, along_V, along_U)
        square = inner(core, core) + inner(up, up) + inner(vp, vp)
        core, up, vp = (
            combined(weights.keep, M, weights.take, core),
            combined(weights.keep, Up, weights.take, up),
            combined(weights.keep, Vp, weights.take, vp),
        )
        kept = weights.keep_squares * squares[0] + weights.take_squares * square
        scale = _step_factor(weights, kept, counts[0] + 1)
        length = scale * np.sqrt(inner(core, core) + inner(up, up) + inner(vp, vp))
        if not np.isfinite(length):
            return False
        squares[0] = kept
        counts[0] += 1
        if length > 0.0:
            counts[1] += 1
            end_U, end_S, end_V = _retracted(symmetric, U, S, V, core, up, vp, -terms.etas[t] * scale)
            if weights.keep > 0.0:
                # The stored vector, projected at the end of the step.
                turn_U, turn_V = cross(U, end_U), cross(V, end_V)
                along_V = _carried(U, core, up, vp, turn_V, end_V)
                along_U = _carried(V, transposed(core), vp, up, turn_U, end_U)
                core, up, vp = _tangent(symmetric, end_U, end_V, along_V, along_U)
                write(M, core)
                write(Up, up)
                write(Vp, vp)
            write(U, end_U)
            write(S, end_S)
            write(V, end_V)
    return True


@njit(cache=True, nogil=True)
def _carried(U, M, Up, Vp, turn_V, end_V):
    """Return (U M Vᵀ + Up Vᵀ + U Vpᵀ) V' for turn_V = VᵀV'."""
    inside = combined(1.0, times(M, turn_V), 1.0, cross(Vp, end_V))
    return combined(1.0, times(U, inside), 1.0, times(Up, turn_V))


@njit(cache=True, nogil=True)
def _make_room(side, rows):
    """Reduce the columns and coordinates to the needed ones, if there may be no space for more rows."""
    live = side.live[0]
    if live + rows <= side.K.shape[0]:
        return
    k = side.U.shape[1]
    held = np.empty((live, 2 * k))
    write(held[:, :k], side.U[:live])
    write(held[:, k:], side.Up[:live])
    turn = reflected(held)[0]
    for matrix in (side.U, side.Up):
        turned = cross(turn, matrix[:live])
        matrix[:] = 0.0
        write(matrix, turned)
    h = turn.shape[1]
    Q = times(columns(side.Z, 0, live), times(columns(side.K[:live], 0, live), turn))
    side.Z[:], side.K[:] = 0.0, 0.0
    # Orthonormal up to rounding again (Newton and Schulz).
    write(side.Z, times(Q, combined(1.5, identity(h), -0.5, cross(Q, Q))))
    write(side.K, identity(h))
    side.live[0] = h


@njit(cache=True, nogil=True)
def _coordinates(side, rows, plus, minus, out):
    """Set out = Qᵀp for p a row, or the difference of two rows."""
    raw = np.empty(out.shape[0])
    gather_row(side.Z, rows, plus, minus, raw)
    transposed_product(side.K, raw, out)


@njit(cache=True, nogil=True)
def _lodge(side, rows, plus, minus, out):
    """Set out to the coordinates of p, a row or the difference of two, and add a column if needed."""
    live = side.live[0]
    column = side.Z[:, live]
    add_row(column, rows, plus, 1.0)
    add_row(column, rows, minus, -1.0)
    _coordinates(side, rows, plus, minus, out)
    outside = columns(side.Z, live, live + 1)
    square = inner(outside, outside)
    rest = square - dot(out, out)
    if rest > INSIDE * square:
        for i in range(live):
            side.K[i, live] = -dot(side.K[i], out) / np.sqrt(rest)
        side.K[live, live] = 1.0 / np.sqrt(rest)
    else:
        Q = times(columns(side.Z, 0, live), columns(side.K[:live], 0, live))
        for _ in range(2):
            outside = combined(1.0, outside, -1.0, times(Q, cross(Q, outside)))
        rest = inner(outside, outside)
        column[:] = 0.0
        # For equal rows coordinates are rounding.
        out *= 1.0 if square > 0.0 else 0.0
        if not rest > ROUNDING * square > 0.0:
            return
        copy(outside[:, 0] / np.sqrt(rest), column)
        side.K[live, live] = 1.0
    out[live] = np.sqrt(rest)
    side.live[0] += 1


@njit(cache=True, nogil=True)
def _tangent(symmetric, U, V, along_V, along_U):
    """Return the parts of the projection of an ambient matrix Z from Z V and ZᵀU, or if symmetric from Z V."""
    core = cross(U, along_V)
    up = combined(1.0, along_V, -1.0, times(U, core))
    if symmetric:
        return combined(0.5, core, 0.5, transposed(core)), up, up
    return core, up, combined(1.0, along_U, -1.0, times(V, cross(V, along_U)))


@njit(cache=True, nogil=True)
def _step_factor(weights, square, step):
    """Return the factor of the direction, from squared lengths."""
    if weights.take_squares == 0.0:
        return 1.0
    if not weights.corrected:
        return 1.0 / (np.sqrt(square) + weights.eps)
    others = np.sqrt(square / (1.0 - weights.keep_squares**step))
    return 1.0 / (1.0 - weights.keep**step) / (others + weights.eps)


@njit(cache=True, nogil=True)
def _retracted(symmetric, U, S, V, M, Up, Vp, t):
    """Apply the second-order retractions of `rmopt.retractions.fixed_rank`, by the same formulas."""
    one, R = identity(S.shape[0]), solved(S, combined(t, M, 0.0, M))
    tail = combined(1.0, one, -0.5, R)
    bent = combined(0.5 * t, M, -0.125 * t, times(M, R))
    left, triangle_U = reflected(combined(1.0, times(U, combined(1.0, S, 1.0, bent)), t, times(Up, tail)))
    if symmetric:
        end = times(triangle_U, solved(S, transposed(triangle_U)))
        return left, combined(0.5, end, 0.5, transposed(end)), left
    bent = combined(0.5, R, -0.125, times(R, R))
    inside, outside = combined(1.0, one, 1.0, bent), solved(transposed(S), transposed(tail))
    right, triangle_V = reflected(combined(1.0, times_transposed(V, inside), t, times(Vp, outside)))
    return left, times_transposed(triangle_U, triangle_V), right


@njit(cache=True, nogil=True)
def reflected(A):
    """Return Q and R of A = Q R, by reflections."""
    Q, R = np.linalg.qr(A)
    return transposed(transposed(Q)), transposed(transposed(R))
