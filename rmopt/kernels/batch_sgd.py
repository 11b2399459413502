"""The compiled loop of steps that look at several terms: losses of z = pᵀ W q, gradients of rank r.

Algorithm 3 of Shalit et al. (2012) in the gauge of `rmopt.kernels.lifted`: what are numbers there are r × r
matrices here, all functions of the one matrix S = YᵀZ. A step costs O(nnz·(k + r) + k²r + kr² + r³).
Vectors of length k lie in rows: row i of U is Aᵀpᵢ.
"""

import numpy as np
from numba import njit

from rmopt.kernels.lifted import OK, REFUSED
from rmopt.kernels.losses import slope
from rmopt.kernels.steps import FINISHED, NOT_FINITE, PROBE_DUE, STEP_REFUSED, gather_row, gather_term
from rmopt.kernels.vectors import dot, invert, product, scatter, trace

# A step with larger entries of S, or a larger inverse of I + αS, is left to the generic retraction.
TOO_LONG = 1e4
TOO_STEEP = 1e4


def _run(code, factors, counters, left, right, terms, batch, start, probe_every, growth_limit):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    A step looks at the terms batch·t, …, batch·t + batch − 1. Parameters and ends are otherwise those of
    `rmopt.kernels.bilinear_sgd`; `terms.etas` has one entry per step.
    """
    A, B = factors.A, factors.B
    k = A.shape[1]
    U, V, score = np.empty((batch, k)), np.empty((batch, k)), np.empty(k)
    scales, active = np.empty(batch), np.empty(batch, np.int64)
    ones, none = np.ones(batch), np.full(terms.minus.shape[0], np.int64(-1))
    # Dense columns pᵢ and qᵢ of the terms at hand, for their Gram matrices; zero between steps.
    P, Q = np.zeros((A.shape[0], batch)), np.zeros((B.shape[0], batch))
    counts, size = counters.counts, counters.size
    for t in range(start, terms.etas.shape[0]):
        if counts[1] >= probe_every:
            return t, PROBE_DUE
        r = 0
        for term in range(t * batch, (t + 1) * batch):
            gather_term(A, B, left, right, terms, term, U[r], V[r])
            product(factors.C, V[r], score)
            z = dot(U[r], score)
            if not np.isfinite(z):
                return t, NOT_FINITE
            scales[r] = -terms.etas[t] * slope(code, z, terms.targets[term])
            if scales[r] != 0.0:
                active[r] = term
                r += 1
        counts[1] += 1
        if r == 0:
            continue
        for i in range(r):
            for c in range(k):
                V[i, c] *= scales[i]
        R_P = _gram(P, left, terms.left, none, active[:r], ones)
        R_Q = _gram(Q, right, terms.plus, terms.minus, active[:r], scales)
        if trace(R_P) == 0.0 or trace(R_Q) == 0.0:
            continue
        status, G, H = _step(factors, U[:r], V[:r], R_P, R_Q)
        if status == REFUSED:
            counts[1] -= 1
            return t, STEP_REFUSED
        counts[0] += 1
        size[0] += _gram_growth(U[:r], G, R_P)
        size[1] += _gram_growth(V[:r], H, R_Q)
        for i in range(r):
            term = active[i]
            scatter_row(A, left, terms.left[term], G[i])
            H[i] *= scales[i]
            scatter_row(B, right, terms.plus[term], H[i])
            if terms.minus[term] >= 0:
                scatter_row(B, right, terms.minus[term], -H[i])
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): large means that H_A is losing digits.
        if size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit:
            return t + 1, PROBE_DUE
    return terms.etas.shape[0], FINISHED


@njit(cache=True, nogil=True)
def _step(factors, U, V, R_P, R_Q):
    """Move C, C⁻¹, H_A and H_B along P Qᵀ; return (status, G, H) for A ← A + P G and B ← B + Q H.

    `U`, `V` (r, k) hold rows Aᵀpᵢ and Bᵀqᵢ, `R_P`, `R_Q` are the Gram matrices of P and Q; step sizes and slopes are
    in Q. Where the step is ill-conditioned in this gauge it is `REFUSED`, and nothing was changed.
    """
    r = U.shape[0]
    X, Y = U @ factors.H_A, V @ factors.H_B
    Z, W = X @ factors.C_inverse.T, Y @ factors.C_inverse
    S = Y @ Z.T
    identity = np.eye(r)
    alpha = 0.375 * S - 0.5 * identity
    table = np.empty((r, 2 * r))
    table[:, :r] = identity + alpha @ S
    if not np.abs(S).max() < TOO_LONG or not invert(table, 1e-6):
        return REFUSED, X, Y
    shrink = table[:, r:].copy()
    if np.abs(shrink).max() > TOO_STEEP:
        return REFUSED, X, Y
    kappa = (identity - 0.5 * S) @ shrink
    mu = 2.0 * alpha + alpha @ S @ alpha
    G, H = kappa @ W, kappa.T @ Z
    fine_A, H_A = _gram_inverse(factors.H_A, X, G, R_P - U @ X.T)
    fine_B, H_B = _gram_inverse(factors.H_B, Y, H, R_Q - V @ Y.T)
    if not (fine_A and fine_B):
        return REFUSED, X, Y
    factors.C[:] = factors.C + X.T @ (mu @ Y)
    factors.C_inverse[:] = factors.C_inverse - Z.T @ (mu @ shrink @ shrink @ W)
    factors.H_A[:] = H_A
    factors.H_B[:] = H_B
    return OK, G, H


@njit(cache=True, nogil=True)
def _gram_inverse(H, X, G, outside):
    """Return whether all went well and the inverse of (A + P G)ᵀ(A + P G), given H = (AᵀA)⁻¹ and X = PᵀA H.

    `outside` (r, r) is the Gram matrix of the parts of the pᵢ outside the column space of A.
    """
    r = X.shape[0]
    table = np.empty((r, 2 * r))
    edge = np.eye(r) + G @ X.T
    table[:, :r] = edge
    if not invert(table, 1e-6):
        return False, H
    edge_inverse = table[:, r:].copy()
    if np.abs(edge_inverse).max() > TOO_STEEP:
        return False, H
    T = G @ H
    inside = T @ G.T
    bent = edge_inverse.T @ X
    N = T - inside @ bent
    rest = edge_inverse.T @ outside
    table[:, :r] = edge + inside @ rest
    if not invert(table, 1e-6):
        return False, H
    weight = rest @ table[:, r:].copy()
    mixed = bent.T @ T
    moved = H - mixed - mixed.T + bent.T @ (inside @ bent) - N.T @ (weight @ N)
    return True, 0.5 * (moved + moved.T)


@njit(cache=True, nogil=True)
def scatter_row(A, rows, row, g):
    """Add p gᵀ to A for a row p."""
    scatter(A, rows.indices, rows.values, rows.indptr[row], rows.indptr[row + 1], g)


@njit(cache=True, nogil=True)
def _gram(columns, rows, plus, minus, active, scales):
    """Return the Gram matrix of the active terms, scaled, by way of their dense columns."""
    r = active.shape[0]
    out = np.empty((columns.shape[1], columns.shape[1]))
    for i in range(r):
        _add_to_column(columns, rows, plus[active[i]], i, scales[i])
        _add_to_column(columns, rows, minus[active[i]], i, -scales[i])
    for i in range(r):
        gather_row(columns, rows, plus[active[i]], minus[active[i]], out[i])
        out[i] *= scales[i]
    for i in range(r):
        _clear(columns, rows, plus[active[i]])
        _clear(columns, rows, minus[active[i]])
    return out[:r, :r].copy()


@njit(cache=True, nogil=True)
def _add_to_column(columns, rows, row, column, scale):
    """Add a scaled row; none where its number is −1."""
    if row >= 0:
        for j in range(rows.indptr[row], rows.indptr[row + 1]):
            columns[rows.indices[j], column] += scale * rows.values[j]


@njit(cache=True, nogil=True)
def _clear(columns, rows, row):
    if row >= 0:
        for j in range(rows.indptr[row], rows.indptr[row + 1]):
            columns[rows.indices[j], :] = 0.0


@njit(cache=True, nogil=True)
def _gram_growth(U, G, R):
    """Return the change of trace(AᵀA) under A ← A + P G."""
    return 2.0 * np.sum(U * G) + np.sum(G * (R @ G))


run = njit(cache=True, nogil=True)(_run)
