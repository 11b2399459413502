"""One exact Riemannian step on W = Y C Yᵀ along the symmetric part of a sparse rank-one direction p qᵀ.

With H = (YᵀY)⁻¹ and C⁻¹ kept beside the factors, Algorithm 5 of Shalit et al. (2012) takes the form

    Y ← Y + p gᵀ + q hᵀ,   C ← C'            (p and q sparse, C' of size k × k)

and costs O(nnz·k + k²) instead of O(nk). The factors are a gauge: the iterates W do not depend on them.

Scratch and names are those of `rmopt.kernels.lifted`: u = Yᵀp, v = Yᵀq, x = H u, y = H v, z = C⁻¹x, w = C⁻¹y, and
the paper's n₁ = xᵀz, n₂ = yᵀw, s = xᵀw.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.lifted import OK, REFUSED
from rmopt.kernels.vectors import add_symmetric, dot, invert, transposed_product

SECOND_ORDER = 0

# A step with n₁ n₂ above this throws W so far that the kept inverses lose their digits.
TOO_LONG = 1e4


class SymmetricFactors(NamedTuple):
    """The arrays of W = Y C Yᵀ: Y (n, k), C, C_inverse, H (k, k), all C-contiguous."""

    Y: np.ndarray
    C: np.ndarray
    C_inverse: np.ndarray
    H: np.ndarray


@njit(cache=True, nogil=True, inline="always")
def step(factors, scratch, p_square, q_square, pq, scale):
    """Move C, C⁻¹ and H along scale · p qᵀ, as `rmopt.kernels.lifted.step` does; `pq` is pᵀq."""
    u, v, x, y, z, w, g, h, work, _ = scratch
    Hg, Hh, k = work[0], work[1], x.shape[0]
    # From here on q is scale · q.
    for c in range(k):
        v[c] *= scale
    transposed_product(factors.H, u, x)
    transposed_product(factors.H, v, y)
    transposed_product(factors.C_inverse, x, z)
    transposed_product(factors.C_inverse, y, w)
    n1, n2, s = dot(x, z), dot(y, w), dot(x, w)
    # Algorithm 5 is W ← L L'ᵀ with L = Y(I + X N Zᵀ) + [p q] E Zᵀ, here for X = [x y], Z = [z w], G = XᵀZ.
    N11, N12, N22 = 0.09375 * n2, 0.09375 * s - 0.25, 0.09375 * n1
    f = 0.5 - 0.125 * s
    a = N11 * n1 + N12 * s
    b = 0.09375 * s + N12
    determinant = (1.0 + a) * (1.0 + a) - n1 * n2 * b * b
    if not (abs(determinant) > 1e-3 and n1 * n2 < TOO_LONG):
        return REFUSED
    # [g h] = Z (I + N G)⁻¹ E
    own = -(0.125 * (1.0 + a) + b * f) / determinant
    cross = ((1.0 + a) * f + 0.125 * n1 * n2 * b) / determinant
    for c in range(k):
        g[c] = n2 * own * z[c] + cross * w[c]
        h[c] = cross * z[c] + n1 * own * w[c]
    transposed_product(factors.H, g, Hg)
    transposed_product(factors.H, h, Hh)
    if not _invert_capacitance(scratch, p_square, q_square * scale * scale, pq * scale):
        return REFUSED
    # C ← C + X (2N + N G N) Xᵀ
    P11 = 2.0 * N11 + a * N11 + n2 * b * N12
    P12 = 2.0 * N12 + a * N12 + n2 * b * N22
    P22 = 2.0 * N22 + a * N22 + n1 * b * N12
    add_symmetric(factors.C, x, y, P11, P12, P22)
    # C⁻¹ ← C⁻¹ + Z (F G F − 2F) Zᵀ with F = (I + N G)⁻¹ N
    F11 = ((1.0 + a) * N11 - n2 * b * N12) / determinant
    F12 = ((1.0 + a) * N12 - n2 * b * N22) / determinant
    F22 = ((1.0 + a) * N22 - n1 * b * N12) / determinant
    GF11, GF12 = n1 * F11 + s * F12, n1 * F12 + s * F22
    GF21, GF22 = s * F11 + n2 * F12, s * F12 + n2 * F22
    add_symmetric(
        factors.C_inverse, z, w,
        F11 * GF11 + F12 * GF21 - 2.0 * F11,
        F11 * GF12 + F12 * GF22 - 2.0 * F12,
        F12 * GF12 + F22 * GF22 - 2.0 * F22,
    )  # fmt: skip
    _update_gram_inverse(factors.H, scratch)
    # The direction was p (scale q)ᵀ: h belongs to scale · q.
    for c in range(k):
        h[c] *= scale
    return OK


@njit(cache=True, nogil=True)
def _invert_capacitance(scratch, p_square, q_square, pq):
    """Leave the inverse of the 4 × 4 capacitance matrix of the Gram update in table[:, 4:]; False if singular.

    YᵀY changes by U Dᵀ + D Uᵀ + D R Dᵀ with U = [u v], D = [g h] and R the Gram matrix of p and q; the
    capacitance matrix of H is [[XᵀU − R, I + XᵀD], [I + DᵀX, DᵀHD]].
    """
    u, v, x, y, _, _, g, h, work, T = scratch
    Hg, Hh = work[0], work[1]
    # What is outside the column space of Y has a positive semidefinite Gram matrix.
    p_outside, q_outside = max(0.0, p_square - dot(u, x)), max(0.0, q_square - dot(v, y))
    bound = np.sqrt(p_outside * q_outside)
    T[0, 0], T[1, 1] = -p_outside, -q_outside
    T[0, 1] = T[1, 0] = -min(bound, max(-bound, pq - dot(u, y)))
    T[0, 2] = T[2, 0] = 1.0 + dot(x, g)
    T[0, 3] = T[3, 0] = dot(x, h)
    T[1, 2] = T[2, 1] = dot(y, g)
    T[1, 3] = T[3, 1] = 1.0 + dot(y, h)
    T[2, 2], T[3, 3] = dot(g, Hg), dot(h, Hh)
    T[2, 3] = T[3, 2] = dot(g, Hh)
    # p gᵀ = (p/α)(α g)ᵀ: with what is outside at most one long, small pivots tell a singular matrix, not a long row.
    alpha, beta = max(1.0, np.sqrt(p_outside)), max(1.0, np.sqrt(q_outside))
    units = (1.0 / alpha, 1.0 / beta, alpha, beta)
    for i in range(4):
        for j in range(4):
            T[i, j] *= units[i] * units[j]
    fine = invert(T, 1e-6)
    for i in range(4):
        for j in range(4):
            T[i, 4 + j] *= units[i] * units[j]
    return fine


@njit(cache=True, nogil=True, fastmath={"contract"})
def _update_gram_inverse(H, scratch):
    """Turn H = (YᵀY)⁻¹ into the inverse for Y + p gᵀ + q hᵀ, given the inverse capacitance matrix."""
    x, y, Hg, Hh, T = scratch.x, scratch.y, scratch.work[0], scratch.work[1], scratch.table
    for i in range(H.shape[0]):
        a = -(T[0, 4] * x[i] + T[0, 5] * y[i] + T[0, 6] * Hg[i] + T[0, 7] * Hh[i])
        b = -(T[1, 4] * x[i] + T[1, 5] * y[i] + T[1, 6] * Hg[i] + T[1, 7] * Hh[i])
        c = -(T[2, 4] * x[i] + T[2, 5] * y[i] + T[2, 6] * Hg[i] + T[2, 7] * Hh[i])
        f = -(T[3, 4] * x[i] + T[3, 5] * y[i] + T[3, 6] * Hg[i] + T[3, 7] * Hh[i])
        for j in range(H.shape[0]):
            H[i, j] += a * x[j] + b * y[j] + c * Hg[j] + f * Hh[j]


@njit(cache=True, nogil=True)
def gram_growth(scratch, scale, p_square, q_square, pq):
    """Return the change of trace(YᵀY) under Y ← Y + p gᵀ + q hᵀ; v holds Yᵀ(scale · q)."""
    g, h = scratch.g, scratch.h
    crossing = 2.0 * (dot(scratch.u, g) + dot(scratch.v, h) / scale)
    return crossing + p_square * dot(g, g) + q_square * dot(h, h) + 2.0 * pq * dot(g, h)
