"""The compiled loops: stochastic Riemannian gradient steps for losses of z = pᵀ W q.

`run` looks at a term of rank one a step, `run_batches` at several, and `run_directed` at some, with directions that
remember. The products and sums of small matrices at the end are functions, for each is compiled once: an operator in
the text of a loop would be compiled wherever it stands, and once more with every function that calls the loop, and
the first step would wait for minutes.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit, steps
from rmopt.kernels.lifted import OK, REFUSED, make_scratch, score, step, symmetric_gram_growth, symmetric_step
from rmopt.kernels.losses import slope_of
from rmopt.kernels.meeting import due_at, go_on
from rmopt.kernels.vectors import dot, invert, product, scatter, sparse_dot, square, trace, transposed_product


@njit(cache=True, nogil=True)
def run(
    loss, kind, symmetric, factors, counters, left, right, terms, start, probe_every, growth_limit, meeting
):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    It ends when all terms are used (`FINISHED`), when the gauge should be looked at
    (`PROBE_DUE`), before a step that is ill-conditioned in this gauge (`STEP_REFUSED`), or
    before a step whose score is not finite (`NOT_FINITE`), or before one where workers did not meet (`NOT_MET`).

    Of `kind` and `symmetric`, the retractions of `Factors` and of `SymmetricFactors`, one is None. Numba compiles
    nothing below an ``is not None`` that is false.
    """
    if kind is not None:
        A, B = factors.A, factors.B
        inverses = factors.H_A, factors.H_B
    if symmetric is not None:
        A = B = factors.Y
        inverses = (factors.H,)
    due = due_at(meeting)
    scratch = make_scratch(A.shape[1])
    spare_indices, spare_values = steps.difference_workspace(right)
    counts, size = counters.counts, counters.size
    for t in range(start, terms.left.shape[0]):
        if meeting is not None and t == due:
            if not go_on(meeting, factors.C, factors.C_inverse, inverses, counters):
                return t, steps.NOT_MET
            due = due_at(meeting)
        if counts[1] >= probe_every:
            return t, steps.PROBE_DUE
        steps.gather_term(A, B, left, right, terms, t, scratch.u, scratch.v)
        z = score(factors, scratch)
        if not np.isfinite(z):
            return t, steps.NOT_FINITE
        scale = -terms.etas[t] * slope_of(loss, z, terms.targets[t])
        counts[1] += 1
        if scale == 0.0:
            continue
        # Most triplets end above; only an update needs the difference as one sparse vector.
        q_indices, q_values, q_start, q_stop = steps.right_vector(
            right, terms, t, spare_indices, spare_values
        )
        p_start, p_stop = left.indptr[terms.left[t]], left.indptr[terms.left[t] + 1]
        p_square = square(left.values, p_start, p_stop)
        q_square = square(q_values, q_start, q_stop)
        if p_square == 0.0 or q_square == 0.0:
            continue
        if kind is not None:
            status = step(kind, factors, scratch, p_square, q_square, scale)
        if symmetric is not None:
            pq = sparse_dot(left.indices, left.values, p_start, p_stop, q_indices, q_values, q_start, q_stop)
            status = symmetric_step(factors, scratch, p_square, q_square, pq, scale)
        if status == REFUSED:
            counts[1] -= 1
            return t, steps.STEP_REFUSED
        counts[0] += 1
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): large means that H_A is losing digits.
        scatter(A, left.indices, left.values, p_start, p_stop, scratch.g)
        scatter(B, q_indices, q_values, q_start, q_stop, scratch.h)
        if kind is not None:
            size[0] += _gram_growth(scratch.u, scratch.g, p_square)
            size[1] += _gram_growth(scratch.v, scratch.h, q_square)
            outgrown = (
                size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit
            )
        if symmetric is not None:
            size[0] += symmetric_gram_growth(scratch, scale, p_square, q_square, pq)
            outgrown = size[0] * trace(factors.H) > growth_limit
        if outgrown:
            return t + 1, steps.PROBE_DUE
    return terms.left.shape[0], steps.FINISHED


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _gram_growth(u, g, p_square):
    """Return the change of trace(AᵀA) under A ← A + p gᵀ."""
    total = 0.0
    for c in range(g.shape[0]):
        total += g[c] * (2.0 * u[c] + p_square * g[c])
    return total


# A step with larger entries of S, or a larger inverse of I + αS, is left to the generic retraction.
TOO_LONG = 1e4
TOO_STEEP = 1e4


@njit(cache=True, nogil=True)
def run_batches(
    loss, factors, counters, left, right, terms, batch, start, probe_every, growth_limit, meeting
):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    A step looks at the terms batch·t, …, batch·t + batch − 1. Parameters and ends are otherwise those of `run`;
    `terms.etas` has one entry per step.
    """
    A, B = factors.A, factors.B
    k = A.shape[1]
    U, V, score = np.empty((batch, k)), np.empty((batch, k)), np.empty(k)
    scales, active = np.empty(batch), np.empty(batch, np.int64)
    ones, none = np.ones(batch), np.full(terms.minus.shape[0], np.int64(-1))
    # Dense columns pᵢ and qᵢ of the terms at hand, for their Gram matrices; zero between steps.
    P, Q = np.zeros((A.shape[0], batch)), np.zeros((B.shape[0], batch))
    counts, size = counters.counts, counters.size
    due = due_at(meeting)
    for t in range(start, terms.etas.shape[0]):
        if meeting is not None and t == due:
            if not go_on(meeting, factors.C, factors.C_inverse, (factors.H_A, factors.H_B), counters):
                return t, steps.NOT_MET
            due = due_at(meeting)
        if counts[1] >= probe_every:
            return t, steps.PROBE_DUE
        r = 0
        for term in range(t * batch, (t + 1) * batch):
            steps.gather_term(A, B, left, right, terms, term, U[r], V[r])
            product(factors.C, V[r], score)
            z = dot(U[r], score)
            if not np.isfinite(z):
                return t, steps.NOT_FINITE
            scales[r] = -terms.etas[t] * slope_of(loss, z, terms.targets[term])
            if scales[r] != 0.0:
                active[r] = term
                r += 1
        counts[1] += 1
        if r == 0:
            continue
        for i in range(r):
            scale_row(V, i, scales[i])
        R_P = _gram(P, left, terms.left, none, active[:r], ones)
        R_Q = _gram(Q, right, terms.plus, terms.minus, active[:r], scales)
        if trace(R_P) == 0.0 or trace(R_Q) == 0.0:
            continue
        status, G, H = _step(factors, U[:r], V[:r], R_P, R_Q)
        if status == REFUSED:
            counts[1] -= 1
            return t, steps.STEP_REFUSED
        counts[0] += 1
        size[0] += _block_growth(U[:r], G, R_P)
        size[1] += _block_growth(V[:r], H, R_Q)
        for i in range(r):
            term = active[i]
            scale_row(H, i, scales[i])
            steps.scatter_row(A, left, terms.left[term], G[i], 1.0)
            steps.scatter_row(B, right, terms.plus[term], H[i], 1.0)
            steps.scatter_row(B, right, terms.minus[term], H[i], -1.0)
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): large means that H_A is losing digits.
        if size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit:
            return t + 1, steps.PROBE_DUE
    return terms.etas.shape[0], steps.FINISHED


@njit(cache=True, nogil=True)
def _step(factors, U, V, R_P, R_Q):
    """Move C, C⁻¹, H_A and H_B along P Qᵀ; return (status, G, H) for A ← A + P G and B ← B + Q H.

    `U`, `V` (r, k) hold rows Aᵀpᵢ and Bᵀqᵢ, `R_P`, `R_Q` are the Gram matrices of P and Q; step sizes and slopes are
    in Q. Where the step is ill-conditioned in this gauge it is `REFUSED`, and nothing was changed.
    """
    r = U.shape[0]
    one = identity(r)
    X, Y = times(U, factors.H_A), times(V, factors.H_B)
    Z, W = times_transposed(X, factors.C_inverse), times(Y, factors.C_inverse)
    S = times_transposed(Y, Z)
    alpha = combined(0.375, S, -0.5, one)
    table = np.empty((r, 2 * r))
    write(table, combined(1.0, one, 1.0, times(alpha, S)))
    if not largest(S) < TOO_LONG or not invert(table, 1e-6):
        return REFUSED, X, Y
    shrink = columns(table, r, 2 * r)
    if not largest(shrink) <= TOO_STEEP:
        return REFUSED, X, Y
    kappa = times(combined(1.0, one, -0.5, S), shrink)
    mu = combined(2.0, alpha, 1.0, times(times(alpha, S), alpha))
    G, H = times(kappa, W), cross(kappa, Z)
    fine_A, H_A = _gram_inverse(factors.H_A, X, G, combined(1.0, R_P, -1.0, times_transposed(U, X)))
    fine_B, H_B = _gram_inverse(factors.H_B, Y, H, combined(1.0, R_Q, -1.0, times_transposed(V, Y)))
    if not (fine_A and fine_B):
        return REFUSED, X, Y
    write(factors.C, combined(1.0, factors.C, 1.0, cross(X, times(mu, Y))))
    change = cross(Z, times(times(times(mu, shrink), shrink), W))
    write(factors.C_inverse, combined(1.0, factors.C_inverse, -1.0, change))
    write(factors.H_A, H_A)
    write(factors.H_B, H_B)
    return OK, G, H


@njit(cache=True, nogil=True)
def _gram_inverse(H, X, G, outside):
    """Return whether all went well and the inverse of (A + P G)ᵀ(A + P G), given H = (AᵀA)⁻¹ and X = PᵀA H.

    `outside` (r, r) is the Gram matrix of the parts of the pᵢ outside the column space of A.
    """
    r = X.shape[0]
    table = np.empty((r, 2 * r))
    edge = combined(1.0, identity(r), 1.0, times_transposed(G, X))
    write(table, edge)
    if not invert(table, 1e-6):
        return False, H
    edge_inverse = columns(table, r, 2 * r)
    if not largest(edge_inverse) <= TOO_STEEP:
        return False, H
    T = times(G, H)
    inside = times_transposed(T, G)
    bent = cross(edge_inverse, X)
    N = combined(1.0, T, -1.0, times(inside, bent))
    rest = cross(edge_inverse, outside)
    write(table, combined(1.0, edge, 1.0, times(inside, rest)))
    if not invert(table, 1e-6):
        return False, H
    weight = times(rest, columns(table, r, 2 * r))
    mixed = cross(bent, T)
    moved = combined(1.0, H, -1.0, combined(1.0, mixed, 1.0, transposed(mixed)))
    moved = combined(1.0, moved, 1.0, cross(bent, times(inside, bent)))
    moved = combined(1.0, moved, -1.0, cross(N, times(weight, N)))
    return True, combined(0.5, moved, 0.5, transposed(moved))


@njit(cache=True, nogil=True)
def _gram(dense, rows, plus, minus, active, scales):
    """Return the Gram matrix of the active terms, scaled, by way of their dense columns."""
    r = active.shape[0]
    out = np.empty((dense.shape[1], dense.shape[1]))
    for i in range(r):
        steps.add_row(dense[:, i], rows, plus[active[i]], scales[i])
        steps.add_row(dense[:, i], rows, minus[active[i]], -scales[i])
    for i in range(r):
        steps.gather_row(dense, rows, plus[active[i]], minus[active[i]], out[i])
        scale_row(out, i, scales[i])
    for i in range(r):
        _clear(dense, rows, plus[active[i]])
        _clear(dense, rows, minus[active[i]])
    return columns(out[:r], 0, r)


@njit(cache=True, nogil=True)
def _clear(dense, rows, row):
    if row >= 0:
        for j in range(rows.indptr[row], rows.indptr[row + 1]):
            for c in range(dense.shape[1]):
                dense[rows.indices[j], c] = 0.0


@njit(cache=True, nogil=True)
def _block_growth(U, G, R):
    """Return the change of trace(AᵀA) under A ← A + P G."""
    return 2.0 * inner(U, G) + inner(G, times(R, G))


# Where a smaller share of the square of a row is outside the span, that part is computed entry by entry; what is a
# smaller share yet is rounding.
INSIDE, ROUNDING = 1e-8, 1e-26


class Side(NamedTuple):
    """One side of the factors: orthonormal columns Q = Z K, of which `live[0]` are in use and the others zero.

    Z (n, c), K (c, c); U, Up (c, k): coordinates of the point and of the tangent vector that is remembered.
    """

    Z: np.ndarray
    K: np.ndarray
    live: np.ndarray
    U: np.ndarray
    Up: np.ndarray


@njit(cache=True, nogil=True)
def run_directed(loss, weights, sides, S, M, squares, counts, left, right, terms, batch):
    """Do all steps; return False before one whose numbers are not finite.

    Parameters
    ----------
    sides : tuple of Side
        Left and right; the one side of a symmetric matrix, whose gradients are the symmetric parts.
    S, M : arrays of shape (k, k)
        What stands between both sides: of the point U S Vᵀ, and of the tangent vector (M, Up, Vp).
    squares : array of one
        The squared lengths that the weights keep.
    counts : int array of two
        Steps and updates.
    batch : int
        A step looks at the terms batch·t, …, batch·t + batch − 1.
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
                # The remembered vector, projected where the step ends.
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
    """Turn the columns to those that are needed, where so many rows may have no room; and coordinates with them."""
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
    side.Z[:] = 0.0
    side.K[:] = 0.0
    # Without what rounding has left of orthonormality (Newton and Schulz).
    write(side.Z, times(Q, combined(1.5, identity(h), -0.5, cross(Q, Q))))
    write(side.K, identity(h))
    side.live[0] = h


@njit(cache=True, nogil=True)
def _coordinates(side, rows, plus, minus, out):
    """Set out = Qᵀp for p a row, or the difference of two rows."""
    raw = np.empty(out.shape[0])
    steps.gather_row(side.Z, rows, plus, minus, raw)
    transposed_product(side.K, raw, out)


@njit(cache=True, nogil=True)
def _lodge(side, rows, plus, minus, out):
    """Set out to the coordinates of p, a row or the difference of two, in columns that span it: a new one may be."""
    live = side.live[0]
    column = side.Z[:, live]
    steps.add_row(column, rows, plus, 1.0)
    steps.add_row(column, rows, minus, -1.0)
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
        # Of equal rows coordinates are rounding.
        out *= 1.0 if square > 0.0 else 0.0
        if not rest > ROUNDING * square > 0.0:
            return
        column[:] = outside[:, 0] / np.sqrt(rest)
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


# Matrices whose rows lie one after another


@njit(cache=True, nogil=True)
def times(A, B):
    """Return A B."""
    return np.dot(A, B)


@njit(cache=True, nogil=True)
def cross(A, B):
    """Return AᵀB."""
    return np.dot(A.T, B)


@njit(cache=True, nogil=True)
def times_transposed(A, B):
    """Return A Bᵀ."""
    return np.dot(A, B.T)


@njit(cache=True, nogil=True)
def combined(a, A, b, B):
    """Return a A + b B."""
    out = np.empty(A.shape)
    x, y, z = A.ravel(), B.ravel(), out.ravel()
    for i in range(z.shape[0]):
        z[i] = a * x[i] + b * y[i]
    return out


@njit(cache=True, nogil=True)
def transposed(A):
    """Return Aᵀ in rows."""
    return A.T.copy()


@njit(cache=True, nogil=True)
def identity(k):
    """Return the identity of k rows."""
    return np.eye(k)


@njit(cache=True, nogil=True)
def columns(A, first, stop):
    """Return some columns."""
    return A[:, first:stop].copy()


@njit(cache=True, nogil=True)
def write(A, B):
    """Set the first rows and columns of A to B."""
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            A[i, j] = B[i, j]


@njit(cache=True, nogil=True)
def scale_row(A, row, weight):
    """Multiply a row by a number."""
    for j in range(A.shape[1]):
        A[row, j] *= weight


@njit(cache=True, nogil=True)
def largest(A):
    """Return the largest magnitude of an entry; NaN where one is."""
    most = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            if np.isnan(A[i, j]):
                return A[i, j]
            most = max(most, abs(A[i, j]))
    return most


@njit(cache=True, nogil=True)
def inner(A, B):
    """Return Σ A_ij B_ij."""
    return dot(A.ravel(), B.ravel())


@njit(cache=True, nogil=True)
def solved(A, B):
    """Return A⁻¹ B. Raises ValueError where A is singular or not a number."""
    table = np.empty((A.shape[0], 2 * A.shape[0]))
    write(table, A)
    if not invert(table, 0.0):
        raise ValueError("a matrix is singular")
    return times(columns(table, A.shape[0], 2 * A.shape[0]), B)
