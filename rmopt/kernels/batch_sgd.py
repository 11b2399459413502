"""The compiled loop of steps that look at several terms: losses of z = pᵀ W q, gradients of rank r."""

import numpy as np
from numba import njit

from rmopt.kernels.lifted_batch import REFUSED, Side, step
from rmopt.kernels.losses import slope
from rmopt.kernels.outcomes import CHECKPOINT_DUE, FINISHED, NOT_FINITE, STEP_REFUSED
from rmopt.kernels.terms import gather_term
from rmopt.kernels.vectors import accumulate, dot, gather, product, scatter, trace


def _run(code, factors, counters, left, right, terms, batch, start, probe_every, growth_limit):
    """Do the steps from `start` on; return (number of the next step, why the loop ended).

    A step looks at the terms batch·t, …, batch·t + batch − 1. Parameters and ends are otherwise those of
    `rmopt.kernels.bilinear_sgd`; `terms.etas` has one entry per step.
    """
    A, B = factors.A, factors.B
    k = A.shape[1]
    U, V, score = np.empty((batch, k)), np.empty((batch, k)), np.empty(k)
    scales, active = np.empty(batch), np.empty(batch, np.int64)
    # Dense columns pᵢ and qᵢ of the terms at hand, for their Gram matrices; zero between steps.
    P, Q = np.zeros((A.shape[0], batch)), np.zeros((B.shape[0], batch))
    counts, size = counters.counts, counters.size
    for t in range(start, terms.etas.shape[0]):
        if counts[1] >= probe_every:
            return t, CHECKPOINT_DUE
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
        R_P = _gram(P, left, terms.left, terms.minus, active[:r], scales, False)
        R_Q = _gram(Q, right, terms.plus, terms.minus, active[:r], scales, True)
        if trace(R_P) == 0.0 or trace(R_Q) == 0.0:
            continue
        status, G, H = step(factors, Side(U[:r], R_P), Side(V[:r], R_Q))
        if status == REFUSED:
            counts[1] -= 1
            return t, STEP_REFUSED
        counts[0] += 1
        size[0] += _gram_growth(U[:r], G, R_P)
        size[1] += _gram_growth(V[:r], H, R_Q)
        for i in range(r):
            term = active[i]
            _scatter_term(A, left, terms.left[term], np.int64(-1), G[i])
            H[i] *= scales[i]
            _scatter_term(B, right, terms.plus[term], terms.minus[term], H[i])
        # cond(AᵀA) ≤ trace(AᵀA) trace(H_A): large means that H_A is losing digits.
        if size[0] * trace(factors.H_A) > growth_limit or size[1] * trace(factors.H_B) > growth_limit:
            return t + 1, CHECKPOINT_DUE
    return terms.etas.shape[0], FINISHED


@njit(cache=True, nogil=True)
def _gather_row(A, rows, plus, minus, out):
    """Set out = Aᵀp for p a row, or the difference of two rows."""
    gather(A, rows.indices, rows.values, rows.indptr[plus], rows.indptr[plus + 1], out)
    if minus >= 0:
        start, stop = rows.indptr[minus], rows.indptr[minus + 1]
        accumulate(A, rows.indices, rows.values, start, stop, -1.0, out)


@njit(cache=True, nogil=True)
def _scatter_term(A, rows, plus, minus, g):
    """Add p gᵀ to A for p a row, or the difference of two rows."""
    scatter(A, rows.indices, rows.values, rows.indptr[plus], rows.indptr[plus + 1], g)
    if minus >= 0:
        scatter(A, rows.indices, rows.values, rows.indptr[minus], rows.indptr[minus + 1], -g)


@njit(cache=True, nogil=True)
def _gram(columns, rows, plus, minus, active, scales, scaled):
    """Return the Gram matrix of the active terms, by way of their dense columns."""
    r = active.shape[0]
    out = np.empty((columns.shape[1], columns.shape[1]))
    for i in range(r):
        _add_to_column(columns, rows, plus[active[i]], i, scales[i] if scaled else 1.0)
        if scaled and minus[active[i]] >= 0:
            _add_to_column(columns, rows, minus[active[i]], i, -scales[i])
    for i in range(r):
        _gather_row(columns, rows, plus[active[i]], minus[active[i]] if scaled else np.int64(-1), out[i])
        if scaled:
            out[i] *= scales[i]
    for i in range(r):
        _clear(columns, rows, plus[active[i]])
        if scaled and minus[active[i]] >= 0:
            _clear(columns, rows, minus[active[i]])
    return out[:r, :r].copy()


@njit(cache=True, nogil=True)
def _add_to_column(columns, rows, row, column, scale):
    for j in range(rows.indptr[row], rows.indptr[row + 1]):
        columns[rows.indices[j], column] += scale * rows.values[j]


@njit(cache=True, nogil=True)
def _clear(columns, rows, row):
    for j in range(rows.indptr[row], rows.indptr[row + 1]):
        columns[rows.indices[j], :] = 0.0


@njit(cache=True, nogil=True)
def _gram_growth(U, G, R):
    """Return the change of trace(AᵀA) under A ← A + P G."""
    return 2.0 * np.sum(U * G) + np.sum(G * (R @ G))


run = njit(cache=True, nogil=True)(_run)
