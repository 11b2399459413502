"""What the compiled steps are measured against: the paper's Algorithm 4, and loops that only touch memory."""

import numpy as np
from numba import njit

from rmopt.kernels.vectors import gather, scatter


@njit(cache=True, nogil=True, fastmath=True)
def pinv_update(Ad, A, c, d, work):
    """Shalit et al. 2012, Algorithm 7, first branch: turn Ad = A† into (A + c dᵀ)†, in place (A is k × n, as Aᵀ)."""
    k, n = Ad.shape
    v, nhat, t = np.zeros(k), np.zeros(k), np.zeros(k)
    n_vector, w = work[0], work[1]
    for r in range(k):
        for i in range(n):
            v[r] += Ad[r, i] * c[i]
    beta = 1.0
    for r in range(k):
        beta += d[r] * v[r]
    for i in range(n):
        n_vector[i] = 0.0
        w[i] = c[i]
    for r in range(k):
        for i in range(n):
            n_vector[i] += Ad[r, i] * d[r]
            w[i] -= A[r, i] * v[r]
    w_square = n_square = 0.0
    for i in range(n):
        w_square += w[i] * w[i]
        n_square += n_vector[i] * n_vector[i]
    for r in range(k):
        for i in range(n):
            nhat[r] += Ad[r, i] * n_vector[i]
    s = beta / (w_square * n_square + beta * beta)
    for r in range(k):
        t[r] = s * (w_square / beta * nhat[r] + v[r])
    for r in range(k):
        for i in range(n):
            Ad[r, i] += nhat[r] / beta * w[i] - t[r] * (n_square / beta * w[i] + n_vector[i])


@njit(cache=True, nogil=True, fastmath=True)
def algorithm_4(A, B, Ad, Bd, p, q, work):
    """One LORETA-1 step along p qᵀ, in place; all factors k × n (the paper's A and B transposed)."""
    k, n = A.shape
    a1, b1, bq = np.zeros(k), np.zeros(k), np.zeros(k)
    for r in range(k):
        for i in range(n):
            a1[r] += Ad[r, i] * p[i]
            b1[r] += Bd[r, i] * q[i]
            bq[r] += B[r, i] * q[i]
    s = 0.0
    for r in range(k):
        s += a1[r] * b1[r]
    low, high = -0.5 + 0.375 * s, 1.0 - 0.5 * s
    a3, b3 = work[2], work[3]
    for i in range(n):
        a3[i] = high * p[i]
        b3[i] = high * q[i]
    for r in range(k):
        for i in range(n):
            a3[i] += low * A[r, i] * a1[r]
            b3[i] += low * Bd[r, i] * bq[r]
    pinv_update(Ad, A, a3, b1, work)
    pinv_update(Bd, B, b3, a1, work)
    for r in range(k):
        for i in range(n):
            A[r, i] += a3[i] * b1[r]
            B[r, i] += b3[i] * a1[r]


@njit(cache=True, nogil=True, fastmath={"contract"})
def gather_row_by_row(A, indices, values, start, stop, out):
    """Set out = Aᵀ p, one row at a time."""
    for c in range(out.shape[0]):
        out[c] = 0.0
    for j in range(start, stop):
        row = np.uint64(indices[j])
        for c in range(out.shape[0]):
            out[c] += values[j] * A[row, c]


def touching(read):
    """Return the loop that reads and then updates the rows that a step must touch, and does nothing else."""

    @njit
    def touch_only(A, B, indptr, indices, values, left, right):
        u, v = np.zeros(A.shape[1]), np.zeros(A.shape[1])
        for step in range(left.shape[0]):
            p, q = left[step], right[step]
            read(A, indices, values, indptr[p], indptr[p + 1], u)
            read(B, indices, values, indptr[q], indptr[q + 1], v)
            for c in range(u.shape[0]):
                u[c] *= 1e-9
                v[c] *= 1e-9
            scatter(A, indices, values, indptr[p], indptr[p + 1], v)
            scatter(B, indices, values, indptr[q], indptr[q + 1], u)

    return touch_only


# A plain loop, and one that reads four rows at a time as the compiled engine does.
touch_plain, touch_unrolled = touching(gather_row_by_row), touching(gather)
