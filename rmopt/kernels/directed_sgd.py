"""The compiled loops of steps that remember earlier gradients: momentum, Adam, AdaGrad, and means of the points.

The point, what is remembered and the mean are matrices of rank k or 2k whose columns lie in the span of h columns.
They are kept as coordinates in orthonormal columns Q, on which a step is that of the reference. A step adds to Q the
rows that it looks at; when there is no more room, Q is turned to the h columns that are needed. Q itself is Z K with
a triangular K, where the columns of Z that were added are the rows as they are: O(nnz·h + h²k) a step, and
O((n + m)h²) every h steps, in place of O((n + m)k²) a step. Where a step looks at many rows, all of U and V are
moved: O(nnz·k + (n + m)k²).

A symmetric matrix U S Uᵀ has one side, on which both rows of a term lie.

Another loop has steps with reduced variance between two whole gradients.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.lifted import METRIC_PROJECTION, SECOND_ORDER
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
    singular,
    solved,
    times,
    times_transposed,
    transposed,
    write,
)
from rmopt.kernels.steps import FINISHED, NOT_FINITE, add_row, gather_row, scatter_row
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


class Weights(NamedTuple):
    """How directions are made: remembered ← keep · remembered + take · gradient, and how long a step is.

    `keep_squares`, `take_squares`: the same for squared lengths, which begin at `least`. A step is divided by their
    root and `eps` where they are taken at all; `largest` says that it is by the largest so far, `corrected` that both
    means began at zero.
    """

    keep: float = 0.0
    take: float = 1.0
    keep_squares: float = 0.0
    take_squares: float = 0.0
    eps: float = 0.0
    least: float = 0.0
    largest: bool = False
    corrected: bool = False


class Known(NamedTuple):
    """Where an estimate of the whole gradient is known, U S Vᵀ, and the estimate (M, Up, Vp)."""

    U: np.ndarray
    S: np.ndarray
    V: np.ndarray
    M: np.ndarray
    Up: np.ndarray
    Vp: np.ndarray


@njit(cache=True, nogil=True)
def run(loss, weights, kinds, sides, cores, squares, counts, left, right, terms, batch, average_from, start):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    Parameters
    ----------
    kinds : (int, int)
        Retractions of steps and of the mean (`rmopt.kernels.lifted`).
    sides : tuple of Side
        Left and right; the one side of a symmetric matrix, whose gradients are the symmetric parts.
    squares : array of two
        The squared lengths that the weights keep, and the largest.
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
    remembers, averages = weights.keep > 0.0, average_from >= 0
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
            weight = slope_of(loss, z, terms.targets[term])
            if weight != 0.0:
                active[r] = term
                scale_row(u, r, weight)
                scale_row(v, r, weight)
                r += 1
        for i in range(r):
            term = active[i]
            _lodge(A, left, terms.left[term], none[term], P[i])
            _lodge(B, right, terms.plus[term], terms.minus[term], Q[i])
        along_V = _image(A, left, terms.left, none, active, r, P, v)
        along_U = _image(B, right, terms.plus, terms.minus, active, r, Q, u)
        if symmetric:
            along_V = combined(0.5, along_V, 0.5, along_U)
        U, V = A.U[: A.live[0]], B.U[: B.live[0]]
        Up, Vp = A.Up[: A.live[0]], B.Up[: B.live[0]]
        core, up, vp = tangent(symmetric, U, V, along_V, along_U)
        square = inner(core, core) + inner(up, up) + inner(vp, vp)
        new_M = _mixed(weights, M, core)
        new_Up, new_Vp = _mixed(weights, Up, up), _mixed(weights, Vp, vp)
        kept = weights.keep_squares * squares[0] + weights.take_squares * square
        most = max(squares[1], kept) if weights.largest else kept
        scale = _step_factor(weights, most, counts[0] + 1)
        length = scale * np.sqrt(inner(new_M, new_M) + inner(new_Up, new_Up) + inner(new_Vp, new_Vp))
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
                turn_U, turn_V = cross(U, end_U), cross(V, end_V)
                along_V = carried(U, new_M, new_Up, new_Vp, turn_V, end_V)
                if not symmetric:
                    along_U = carried(V, transposed(new_M), new_Vp, new_Up, turn_U, end_U)
                core, up, vp = tangent(symmetric, end_U, end_V, along_V, along_U)
                assign(M, Up, Vp, core, up, vp)
            assign(U, S, V, end_U, end_S, end_V)
        if averages and counts[0] > average_from:
            counts[2] += 1
            mean_U, mean_V = A.mean[: A.live[0]], B.mean[: B.live[0]]
            if counts[2] == 1:
                assign(mean_U, mean_S, mean_V, U, S, V)
            else:
                # From the mean towards the point.
                along_V = _towards(U, S, V, mean_U, mean_S, mean_V)
                if not symmetric:
                    along_U = _towards(V, transposed(S), U, mean_V, transposed(mean_S), mean_U)
                core, up, vp = tangent(symmetric, mean_U, mean_V, along_V, along_U)
                end_U, end_S, end_V = retracted(
                    kinds[1], symmetric, mean_U, mean_S, mean_V, core, up, vp, 1.0 / counts[2]
                )
                assign(mean_U, mean_S, mean_V, end_U, end_S, end_V)
    return terms.etas.shape[0], FINISHED


@njit(cache=True, nogil=True)
def assign(A, B, C, a, b, c):
    """Set A, B, C to a, b, c."""
    write(A, a)
    write(B, b)
    write(C, c)


@njit(cache=True, nogil=True)
def carried(U, M, Up, Vp, turn_V, end_V):
    """Return (U M Vᵀ + Up Vᵀ + U Vpᵀ) V' for turn_V = VᵀV'."""
    inside = combined(1.0, times(M, turn_V), 1.0, cross(Vp, end_V))
    return combined(1.0, times(U, inside), 1.0, times(Up, turn_V))


@njit(cache=True, nogil=True)
def _towards(U, S, V, mean_U, mean_S, mean_V):
    """Return (U S Vᵀ − U' S' V'ᵀ) V' for the mean U' S' V'ᵀ."""
    return combined(1.0, times(U, times(S, cross(V, mean_V))), -1.0, times(mean_U, mean_S))


@njit(cache=True, nogil=True)
def _mixed(weights, remembered, new):
    """Return what is remembered next; where that is the gradient alone, its own array."""
    if weights.keep == 0.0 and weights.take == 1.0:
        return new
    return combined(weights.keep, remembered, weights.take, new)


@njit(cache=True, nogil=True)
def _make_room(side, rows, remembers, averages):
    """Turn the columns to those that are needed, where so many rows may have no room; and coordinates with them."""
    live, c = side.live[0], side.K.shape[0]
    if c == 0 or live + rows <= c:
        return
    held = side.U[:live]
    if remembers:
        held = beside(held, side.Up[:live])
    if averages:
        held = beside(held, side.mean[:live])
    turn = reflected(held)[0]
    h = turn.shape[1]
    for matrix in (side.U, side.Up, side.mean):
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
def _image(side, rows, plus, minus, active, count, P, weights):
    """Return Σ p wᵀ over the active terms, whose coordinates are in P where there are columns."""
    live = side.live[0]
    out = np.zeros((live, weights.shape[1]))
    for i in range(count):
        if side.K.shape[0] > 0:
            for j in range(live):
                for c in range(weights.shape[1]):
                    out[j, c] += P[i, j] * weights[i, c]
        else:
            scatter_row(out, rows, plus[active[i]], weights[i], 1.0)
            scatter_row(out, rows, minus[active[i]], weights[i], -1.0)
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
    square = _along(column, rows, plus) - _along(column, rows, minus)
    rest = square - dot(out, out)
    if rest > INSIDE * square:
        length = np.sqrt(rest)
        for i in range(live):
            side.K[i, live] = -dot(side.K[i, :live], out[:live]) / length
        side.K[live, live] = 1.0 / length
    else:
        Q = times(columns(side.Z, 0, live), columns(side.K[:live], 0, live))
        outside = np.empty((column.shape[0], 1))
        for j in range(column.shape[0]):
            outside[j, 0], column[j] = column[j], 0.0
        for _ in range(2):
            outside = combined(1.0, outside, -1.0, times(Q, cross(Q, outside)))
        rest = inner(outside, outside)
        if not rest > ROUNDING * ROUNDING * square:
            return
        for j in range(column.shape[0]):
            column[j] = outside[j, 0] / np.sqrt(rest)
        side.K[live, live] = 1.0
    out[live] = np.sqrt(rest)
    side.live[0] += 1


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
    core = cross(U, along_V)
    up = combined(1.0, along_V, -1.0, times(U, core))
    if symmetric:
        return combined(0.5, core, 0.5, transposed(core)), up, up
    return core, up, combined(1.0, along_U, -1.0, times(V, cross(V, along_U)))


@njit(cache=True, nogil=True)
def _step_factor(weights, most, step):
    """Return what the direction is multiplied by, from squared lengths."""
    if weights.take_squares == 0.0:
        return 1.0
    if not weights.corrected:
        return 1.0 / (np.sqrt(most) + weights.eps)
    others = np.sqrt(most / (1.0 - weights.keep_squares**step))
    return 1.0 / (1.0 - weights.keep**step) / (others + weights.eps)


@njit(cache=True, nogil=True)
def retracted(kind, symmetric, U, S, V, M, Up, Vp, t):
    """Return what the retractions of `rmopt.retractions.fixed_rank` do, by the same formulas."""
    k = S.shape[0]
    one = identity(k)
    if kind == METRIC_PROJECTION:
        core = np.zeros((2 * k, 2 * k))
        write(core, combined(1.0, S, t, M))
        for i in range(k):
            core[i, k + i] = core[k + i, i] = t
        left, triangle_U = _orthonormal(beside(U, Up))
        right, triangle_V = _orthonormal(beside(V, Vp))
        P, sigma, Q = singular(times_transposed(times(triangle_U, core), triangle_V))
        end = np.zeros((k, k))
        for i in range(k):
            end[i, i] = sigma[i]
        return times(left, columns(P, 0, k)), end, times(right, columns(Q, 0, k))
    if kind == SECOND_ORDER:
        R = solved(S, combined(t, M, 0.0, M))
        tail = combined(1.0, one, -0.5, R)
        bent = combined(0.5 * t, M, -0.125 * t, times(M, R))
        left = combined(1.0, times(U, combined(1.0, S, 1.0, bent)), t, times(Up, tail))
        if symmetric:
            left, triangle_U = _orthonormal(left)
            end = times(triangle_U, solved(S, transposed(triangle_U)))
            return left, combined(0.5, end, 0.5, transposed(end)), left
        bent = combined(0.5, R, -0.125, times(R, R))
        inside, outside = combined(1.0, one, 1.0, bent), solved(transposed(S), transposed(tail))
        right = combined(1.0, times_transposed(V, inside), t, times(Vp, outside))
    else:
        K = combined(1.0, S, t, M)
        left = combined(1.0, times(U, K), t, Up)
        right = combined(1.0, V, t, times(Vp, solved(transposed(K), one)))
    left, triangle_U = _orthonormal(left)
    right, triangle_V = _orthonormal(right)
    return left, times_transposed(triangle_U, triangle_V), right


@njit(cache=True, nogil=True)
def _orthonormal(X):
    """Return Q and R of X = Q R by Gram and Schmidt, twice, some ten times faster than reflections for few columns.

    Where there are many, by the Cholesky factors of Gram matrices, twice, unless X is too near to a smaller rank.
    Reflections take over where a column is in the span of those before it.
    """
    n, k = X.shape
    if k >= MANY_COLUMNS and X.size >= MANY_ENTRIES:
        C, R, trusted = transposed(X), identity(k), True
        for again in (False, True):
            if trusted:
                trusted, R = _divided_by_triangle(C, R, again)
        if trusted:
            return transposed(C), R
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


@njit(cache=True, nogil=True)
def _divided_by_triangle(C, R, again):
    """Turn C (columns in rows) into L⁻¹ C where C Cᵀ = L Lᵀ; return whether that is to be trusted, and LᵀR.

    C is orthonormal then up to the rounding of its Gram matrix; `again` to rounding.
    """
    gram = times_transposed(C, C)
    k = gram.shape[0]
    L = np.zeros((k, k))
    for j in range(k):
        for i in range(k):
            if again and not abs(gram[j, i] - (1.0 if i == j else 0.0)) < NEARLY_ORTHONORMAL:
                return False, R
        for i in range(j):
            L[j, i] = (gram[j, i] - dot(L[j, :i], L[i, :i])) / L[i, i]
        rest = gram[j, j] - dot(L[j, :j], L[j, :j])
        if not rest > INDEPENDENT * INDEPENDENT * gram[j, j]:
            return False, R
        L[j, j] = np.sqrt(rest)
    _substitute(L, C)
    return True, cross(L, R)


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


@njit(cache=True, nogil=True)
def run_reduced(loss, recursive, kind, point, known, symmetric, counts, left, right, terms, batch):
    """Do all steps; return (number of the next step, why the loop ended).

    A step costs O(batch · nnz · k + (n + m)k²).

    Parameters
    ----------
    recursive : bool
        Whether the estimate is known from step to step.
    kind : int
        The retraction (`rmopt.kernels.lifted`).
    point : (array, array, array)
        U, S and V; U once more in place of V where the matrix is symmetric, and its gradients are symmetric parts.
    counts : int array of two
        Steps and updates.
    batch : int
        A step looks at the terms batch·t, …, batch·t + batch − 1.
    """
    U, S, V = point
    k = S.shape[0]
    u, v, Sv = np.empty(k), np.empty(k), np.empty(k)
    for t in range(terms.etas.shape[0]):
        # The gradient of the step's terms where the estimate is known, then here.
        at_U, at_S, at_V = known.U, known.S, known.V
        M, Up, Vp = known.M, known.Up, known.Vp
        for here in (False, True):
            if here:
                at_U, at_S, at_V = U, S, V
            along_V, along_U = np.zeros(U.shape), np.zeros(V.shape)
            for term in range(t * batch, (t + 1) * batch):
                row, plus, minus = terms.left[term], terms.plus[term], terms.minus[term]
                gather_row(at_U, left, row, np.int64(-1), u)
                gather_row(at_V, right, plus, minus, v)
                product(at_S, v, Sv)
                weight = slope_of(loss, dot(u, Sv), terms.targets[term])
                if weight != 0.0:
                    for c in range(k):
                        u[c] *= weight
                        v[c] *= weight
                    scatter_row(along_V, left, row, v, 1.0)
                    scatter_row(along_U, right, plus, u, 1.0)
                    scatter_row(along_U, right, minus, u, -1.0)
            if symmetric:
                along_V = combined(0.5, along_V, 0.5, along_U)
            core, up, vp = tangent(symmetric, at_U, at_V, along_V, along_U)
            if not here:
                # What the terms say there beside the estimate, projected here.
                core, up, vp = (
                    combined(1.0, core, -1.0, M), combined(1.0, up, -1.0, Up), combined(1.0, vp, -1.0, Vp)
                )  # fmt: skip
                along_V = carried(at_U, core, up, vp, cross(at_V, V), V)
                along_U = carried(at_V, transposed(core), vp, up, cross(at_U, U), U)
                M, Up, Vp = tangent(symmetric, U, V, along_V, along_U)
        M, Up, Vp = combined(1.0, core, -1.0, M), combined(1.0, up, -1.0, Up), combined(1.0, vp, -1.0, Vp)
        length = np.sqrt(inner(M, M) + inner(Up, Up) + inner(Vp, Vp))
        if not np.isfinite(length):
            return t, NOT_FINITE
        counts[0] += 1
        if recursive:
            assign(known.U, known.S, known.V, U, S, V)
            assign(known.M, known.Up, known.Vp, M, Up, Vp)
        if length > 0.0:
            counts[1] += 1
            end_U, end_S, end_V = retracted(kind, symmetric, U, S, V, M, Up, Vp, -terms.etas[t])
            assign(U, S, V, end_U, end_S, end_V)
    return terms.etas.shape[0], FINISHED
