"""The compiled loop of steps with several terms: losses of z = pᵀ W q, gradients of rank r.

Algorithm 3 of Shalit et al. (2012) in the gauge of `rmopt.kernels.lifted`: numbers there become r × r matrices here,
all functions of the single matrix S = YᵀZ. A step costs O(nnz·(k + r) + k²r + kr² + r³). Vectors of length k lie in
rows: row i of U is Aᵀpᵢ.
"""

import numpy as np

from rmopt.kernels import njit, steps
from rmopt.kernels.lifted import OK, REFUSED
from rmopt.kernels.losses import slope_of
from rmopt.kernels.matrices import (
    columns,
    combined,
    cross,
    identity,
    inner,
    largest,
    scale_row,
    times,
    times_transposed,
    transposed,
    write,
)
from rmopt.kernels.meeting import due_at, go_on
from rmopt.kernels.vectors import dot, invert, product, trace

# A step with larger entries of S, or a larger inverse of I + αS, is left to the generic retraction.
TOO_LONG = 1e4
TOO_STEEP = 1e4


@njit(cache=True, nogil=True)
def run(loss, factors, counters, left, right, terms, batch, start, probe_every, growth_limit, meeting):
    """Do the steps from `start` on, and return the number of the next step and why the loop ended.

    A step uses the terms batch·t, …, batch·t + batch − 1. Parameters and ends are otherwise those of
    `rmopt.kernels.bilinear_sgd`. `terms.etas` has one entry per step.
    """
    A, B = factors.A, factors.B
    k = A.shape[1]
    U, V, score = np.empty((batch, k)), np.empty((batch, k)), np.empty(k)
    scales, active = np.empty(batch), np.empty(batch, np.int64)
    ones, none = np.ones(batch), np.full(terms.minus.shape[0], np.int64(-1))
    # Dense columns pᵢ and qᵢ of the current terms, for their Gram matrices, and zero between steps.
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
        size[0] += _gram_growth(U[:r], G, R_P)
        size[1] += _gram_growth(V[:r], H, R_Q)
        for i in range(r):
            term = active[i]
            scale_row(H, i, scales[i])
            steps.scatter_row(A, left, terms.left[term], G[i], 1.0)
            steps.scatter_row(B, right, terms.plus[term], H[i], 1.0)
            steps.scatter_row(B, right, terms.minus[term], H[i], -1.0)
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): a large value means that H_A loses digits.
        if size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit:
            return t + 1, steps.PROBE_DUE
    return terms.etas.shape[0], steps.FINISHED


@njit(cache=True, nogil=True)
def _step(factors, U, V, R_P, R_Q):
    """Move C, C⁻¹, H_A and H_B along P Qᵀ; return (status, G, H) for A ← A + P G and B ← B + Q H.

    `U`, `V` (r, k) hold rows Aᵀpᵢ and Bᵀqᵢ, `R_P`, `R_Q` are the Gram matrices of P and Q. Q includes step sizes and
    slopes. A step that is ill-conditioned in this gauge is `REFUSED`, without any change.
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
    """Return success and the inverse of (A + P G)ᵀ(A + P G), given H = (AᵀA)⁻¹ and X = PᵀA H.

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
    """Return the scaled Gram matrix of the active terms, by their dense columns."""
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
def _gram_growth(U, G, R):
    """Return the change of trace(AᵀA) under A ← A + P G."""
    return 2.0 * inner(U, G) + inner(G, times(R, G))
