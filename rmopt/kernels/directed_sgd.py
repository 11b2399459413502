"""The compiled loop of steps that remember earlier gradients: momentum, Adam, AdaGrad, and means of the points.

The point, what is remembered and the mean move in whole: O(nnz·k + (n + m)k²) a step. A symmetric matrix U S Uᵀ has
one side, on which both rows of a term lie.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.lifted import METRIC_PROJECTION, SECOND_ORDER
from rmopt.kernels.losses import slope_of
from rmopt.kernels.matrices import (
    beside,
    columns,
    combined,
    cross,
    identity,
    inner,
    reflected,
    singular,
    solved,
    times,
    times_transposed,
    transposed,
    write,
)
from rmopt.kernels.steps import gather_row, scatter_row
from rmopt.kernels.vectors import dot, product, transposed_product

# A column is taken for dependent on those before where a smaller share of its length is outside their span.
DEPENDENT = 1e-10


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
def run(
    loss,
    weights,
    kinds,
    symmetric,
    point,
    vector,
    mean,
    squares,
    counts,
    left,
    right,
    terms,
    batch,
    average_from,
):
    """Do all steps; return False before one whose numbers are not finite.

    Parameters
    ----------
    kinds : (int, int)
        Retractions of steps and of the mean (`rmopt.kernels.lifted`).
    symmetric : bool
        Whether gradients are symmetric parts; U is then in place of V in all points.
    point, vector, mean : (array, array, array)
        U, S, V of the point and of the mean, and M, Up, Vp of what is remembered.
    squares : array of one
        The squared lengths that the weights keep.
    counts : int array of two
        Steps and updates.
    batch : int
        A step looks at the terms batch·t, …, batch·t + batch − 1.
    average_from : int
        The mean begins after so many steps; −1 for none.
    """
    U, S, V = point
    M, Up, Vp = vector
    mean_U, mean_S, mean_V = mean
    u, v, Sv = np.empty(S.shape[0]), np.empty(S.shape[0]), np.empty(S.shape[0])
    for t in range(terms.etas.shape[0]):
        along_V, along_U = np.zeros(U.shape), np.zeros(V.shape)
        for term in range(t * batch, (t + 1) * batch):
            row, plus, minus = terms.left[term], terms.plus[term], terms.minus[term]
            gather_row(U, left, row, np.int64(-1), u)
            gather_row(V, right, plus, minus, v)
            product(S, v, Sv)
            z = dot(u, Sv)
            if not np.isfinite(z):
                return False
            slope = slope_of(loss, z, terms.targets[term])
            if slope != 0.0:
                scatter_row(along_V, left, row, v, slope)
                scatter_row(along_U, right, plus, u, slope)
                scatter_row(along_U, right, minus, u, -slope)
        if symmetric:
            along_V = combined(0.5, along_V, 0.5, along_U)
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
                kinds[0], symmetric, U, S, V, new_M, new_Up, new_Vp, -terms.etas[t] * scale
            )
            if weights.keep > 0.0:
                # The remembered vector, projected where the step ends.
                turn_U, turn_V = cross(U, end_U), cross(V, end_V)
                along_V = _carried(U, new_M, new_Up, new_Vp, turn_V, end_V)
                along_U = _carried(V, transposed(new_M), new_Vp, new_Up, turn_U, end_U)
                core, up, vp = _tangent(symmetric, end_U, end_V, along_V, along_U)
                _assign(M, Up, Vp, core, up, vp)
            _assign(U, S, V, end_U, end_S, end_V)
        counts[0] += 1
        averaged = counts[0] - average_from
        if average_from >= 0 and averaged == 1:
            _assign(mean_U, mean_S, mean_V, U, S, V)
        elif average_from >= 0 and averaged > 1:
            # From the mean towards the point.
            along_V = _towards(U, S, V, mean_U, mean_S, mean_V)
            along_U = _towards(V, transposed(S), U, mean_V, transposed(mean_S), mean_U)
            core, up, vp = _tangent(symmetric, mean_U, mean_V, along_V, along_U)
            end_U, end_S, end_V = _retracted(
                kinds[1], symmetric, mean_U, mean_S, mean_V, core, up, vp, 1.0 / averaged
            )
            _assign(mean_U, mean_S, mean_V, end_U, end_S, end_V)
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
def _retracted(kind, symmetric, U, S, V, M, Up, Vp, t):
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
