"""One exact Riemannian step on W = A C Bᵀ, or on W = Y C Yᵀ, along a sparse rank-one direction p qᵀ.

With H_A = (AᵀA)⁻¹, H_B = (BᵀB)⁻¹ and C⁻¹ stored with the factors, every retraction of the embedded fixed-rank
manifold takes the form

    A ← A + p gᵀ,   B ← B + q hᵀ,   C ← C'            (p and q sparse, C' of size k × k)

because p and q lie in the span of the new column and row spaces only. A step therefore costs O(nnz·k + k²), while
Shalit et al. (2012), Algorithm 4, costs O((n+m)k). The factors are a gauge: the iterates W do not depend on them.

Names follow the derivation: u = Aᵀp, v = Bᵀq, x = H_A u, y = H_B v, z = C⁻¹x, w = C⁻ᵀy, s = yᵀz.

Symmetric matrices move along the symmetric part of p qᵀ. With H = (YᵀY)⁻¹ Algorithm 5 takes the form

    Y ← Y + p gᵀ + q hᵀ,   C ← C'

with A = B = Y in the names above, w = C⁻¹y, and the paper's n₁ = xᵀz, n₂ = yᵀw, s = xᵀw.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.vectors import add_outer, add_symmetric, dot, invert, product, transposed_product

SECOND_ORDER, ORTHOGRAPHIC, METRIC_PROJECTION = range(3)

OK, REFUSED = 0, 1


class Factors(NamedTuple):
    """The arrays of W = A C Bᵀ: A (n, k), B (m, k), C, C_inverse, H_A, H_B (k, k), all C-contiguous."""

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    C_inverse: np.ndarray
    H_A: np.ndarray
    H_B: np.ndarray


# Work vectors of length k: those of the step, 8 of what it calls, and the table of a 4 × 4 system.
Scratch = namedtuple("Scratch", "u v x y z w g h work table")


@njit(cache=True, nogil=True)
def make_scratch(k):
    """Return work vectors for rank k."""
    e = np.empty
    return Scratch(e(k), e(k), e(k), e(k), e(k), e(k), e(k), e(k), np.empty((8, k)), np.empty((4, 8)))


@njit(cache=True, nogil=True, inline="always")
def score(factors, scratch):
    """Return pᵀWq = uᵀ C v for the u and v in the scratch."""
    product(factors.C, scratch.v, scratch.z)
    return dot(scratch.u, scratch.z)


@njit(cache=True, nogil=True, fastmath={"contract"})
def update_gram_inverse(H, x, g, gram_shift, work):
    """Turn H = (AᵀA)⁻¹ into the inverse for A + p gᵀ, given x = H Aᵀp and ‖p‖² − pᵀAx ≥ 0."""
    transposed_product(H, g, work)
    gHg = dot(g, work)
    edge = 1.0 + dot(g, x)
    scale = 1.0 / (gram_shift * gHg + edge * edge)
    add_symmetric(H, x, work, gHg * scale, -edge * scale, -gram_shift * scale)


@njit(cache=True, nogil=True, inline="always")
def step(kind, factors, scratch, p_square, q_square, scale):
    """Move C, C⁻¹, H_A and H_B along scale · p qᵀ and leave g and h in the scratch, which holds u = Aᵀp and v = Bᵀq.

    On return A + p gᵀ and B + q hᵀ, C are the new factors (the caller updates the rows). `kind` is one of the
    retractions above, `p_square` and `q_square` are ‖p‖² and ‖q‖², `scale` is minus step size times slope. Returns
    `OK`, or `REFUSED`, without any change, if the step is ill-conditioned in this gauge.
    """
    u, v, x, y, z, w, g, h, work, _ = scratch
    transposed_product(factors.H_A, u, x)
    transposed_product(factors.H_B, v, y)
    p_outside = max(0.0, p_square - dot(u, x))
    q_outside = max(0.0, q_square - dot(v, y))
    for c in range(y.shape[0]):
        y[c] *= scale
    product(factors.C_inverse, x, z)
    transposed_product(factors.C_inverse, y, w)
    s = dot(y, z)
    if kind == METRIC_PROJECTION:
        status = _metric_projection(factors, scratch, s, np.sqrt(p_outside), abs(scale) * np.sqrt(q_outside))
    else:
        status = _polynomial(kind, factors, scratch, s)
    if status == REFUSED:
        return REFUSED
    # The direction was p (scale q)ᵀ: y and h belong to scale·q.
    for c in range(h.shape[0]):
        h[c] *= scale
        y[c] /= scale
    update_gram_inverse(factors.H_A, x, g, p_outside, work[0])
    update_gram_inverse(factors.H_B, y, h, q_outside, work[0])
    return OK


@njit(cache=True, nogil=True, inline="always")
def _polynomial(kind, factors, scratch, s):
    """Set g = κ w, h = κ z and C += μ x yᵀ, with κ and μ functions of s alone."""
    if kind == SECOND_ORDER:
        alpha = -0.5 + 0.375 * s
        growth = 1.0 + alpha * s  # = 1 − s/2 + 3s²/8 ≥ 5/6
        kappa = (1.0 - 0.5 * s) / growth
        mu = 2.0 * alpha + alpha * alpha * s
        nu = mu / (growth * growth)
    else:
        if abs(1.0 + s) < 1e-3:
            return REFUSED
        kappa = 1.0
        mu = -1.0 / (1.0 + s)
        nu = -1.0
    for c in range(scratch.g.shape[0]):
        scratch.g[c] = kappa * scratch.w[c]
        scratch.h[c] = kappa * scratch.z[c]
    add_outer(factors.C, mu, scratch.x, scratch.y)
    add_outer(factors.C_inverse, -nu, scratch.z, scratch.w)
    return OK


@njit(cache=True, nogil=True)
def _metric_projection(factors, scratch, s, p_norm, q_norm):
    """Remove the smallest singular triple of W + ξ, which has rank k + 1.

    In the bases [A, p̂] and [B, q̂] (p̂, q̂: unit vectors of the parts of p and q outside the column
    and row space), W + ξ has the core K = [[C + x yᵀ, q_norm x], [p_norm yᵀ, 0]]. Its inverse is
    known in closed form up to the factor δ = s p_norm q_norm, so inverse iteration finds the triple
    in O(k²) a round. If t is the left dual vector of the triple (tᵀ K' = 0 after its removal), the
    new column space is that of A − p̂ (t₁/t₀)ᵀ; likewise on the right.
    """
    x, y, z, w = scratch.x, scratch.y, scratch.z, scratch.w
    g, h, work = scratch.g, scratch.h, scratch.work
    k = x.shape[0]
    a, b, t, old, c = work[0], work[1], work[2], work[3], work[4]
    delta = s * p_norm * q_norm
    a0 = 1.0
    for i in range(k):
        a[i] = 0.1 / k
        old[i] = 0.0
    old0 = 0.0
    converged = False
    for _ in range(40):
        # b = δ K⁻¹ a
        product(factors.C_inverse, a, b)
        inner = p_norm * dot(w, a) - a0
        b0 = inner - s * a0
        for i in range(k):
            b[i] = delta * b[i] - q_norm * inner * z[i]
        # t = δ K⁻ᵀ diag(H_B, 1) b
        transposed_product(factors.H_B, b, c)
        transposed_product(factors.C_inverse, c, t)
        inner = q_norm * dot(z, c) - b0
        t0 = inner - s * b0
        for i in range(k):
            t[i] = delta * t[i] - p_norm * inner * w[i]
        # a = diag(H_A, 1) t, normalised in the metric of [A, p̂]
        transposed_product(factors.H_A, t, a)
        norm = np.sqrt(dot(a, t) + t0 * t0)
        if not (norm > 0.0 and np.isfinite(norm)):
            return REFUSED
        sign = -1.0 if t0 < 0.0 else 1.0
        change = 0.0
        for i in range(k):
            a[i] *= sign / norm
            t[i] *= sign / norm
            change = max(change, abs(t[i] - old[i]))
            old[i] = t[i]
        a0 = t0 = abs(t0) / norm
        change = max(change, abs(t0 - old0))
        old0 = t0
        if change < 4e-16:
            converged = True
            break
    if not converged or t0 < 1e-2:
        return REFUSED
    # The right dual vector is K⁻¹a up to scale, and c = Kᵀt.
    product(factors.C_inverse, a, b)
    inner = p_norm * dot(w, a) - a0
    b0 = inner - s * a0
    if abs(b0) < 1e-12:
        return REFUSED
    xt = dot(x, t)
    transposed_product(factors.C, t, c)
    for i in range(k):
        b[i] = (delta * b[i] - q_norm * inner * z[i]) / b0
        c[i] += y[i] * (xt + p_norm * t0)
        g[i] = -t[i] / (t0 * p_norm) if p_norm > 0.0 else 0.0
        h[i] = -b[i] / q_norm if q_norm > 0.0 else 0.0
    gx = 1.0 - dot(g, x)
    hy = 1.0 - dot(h, y)
    # K₁₁ = C + x yᵀ − a cᵀ, its inverse by a 2 × 2 capacitance matrix.
    za, wc = work[5], work[6]
    product(factors.C_inverse, a, za)
    transposed_product(factors.C_inverse, c, wc)
    m11, m12 = 1.0 + s, -dot(y, za)
    m21, m22 = dot(c, z), 1.0 - dot(c, za)
    determinant = m11 * m22 - m12 * m21
    if abs(gx) < 1e-3 or abs(hy) < 1e-3 or abs(determinant) < 1e-4:
        return REFUSED
    for i in range(k):
        left = (m22 * z[i] + m21 * za[i]) / determinant
        right = (-m12 * z[i] - m11 * za[i]) / determinant
        for j in range(k):
            factors.C[i, j] += x[i] * y[j] - a[i] * c[j]
            factors.C_inverse[i, j] -= left * w[j] + right * wc[j]
    # From the basis A + p⊥ gᵀ to A + p g'ᵀ (and B likewise): C ← (I − x gᵀ) C (I − h yᵀ).
    transposed_product(factors.C, g, za)
    add_outer(factors.C, -1.0, x, za)
    product(factors.C, h, za)
    add_outer(factors.C, -1.0, za, y)
    product(factors.C_inverse, x, za)
    add_outer(factors.C_inverse, 1.0 / gx, za, g)
    transposed_product(factors.C_inverse, y, za)
    add_outer(factors.C_inverse, 1.0 / hy, h, za)
    for i in range(k):
        g[i] /= gx
        h[i] /= hy
    return OK


# A step with n₁ n₂ above this moves W so far that the stored inverses lose their digits.
TOO_LONG = 1e4


class SymmetricFactors(NamedTuple):
    """The arrays of W = Y C Yᵀ: Y (n, k), C, C_inverse, H (k, k), all C-contiguous."""

    Y: np.ndarray
    C: np.ndarray
    C_inverse: np.ndarray
    H: np.ndarray


@njit(cache=True, nogil=True, inline="always")
def symmetric_step(factors, scratch, p_square, q_square, pq, scale):
    """Move C, C⁻¹ and H along scale · p qᵀ, as `step` does. `pq` is pᵀq."""
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
    _update_symmetric_gram_inverse(factors.H, scratch)
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
    # The parts outside the column space of Y have a positive semidefinite Gram matrix.
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
    # p gᵀ = (p/α)(α g)ᵀ: with outside parts of length at most one, small pivots mean a singular matrix, not a long
    # row.
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
def _update_symmetric_gram_inverse(H, scratch):
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
def symmetric_gram_growth(scratch, scale, p_square, q_square, pq):
    """Return the change of trace(YᵀY) under Y ← Y + p gᵀ + q hᵀ, with Yᵀ(scale · q) in v."""
    g, h = scratch.g, scratch.h
    crossing = 2.0 * (dot(scratch.u, g) + dot(scratch.v, h) / scale)
    return crossing + p_square * dot(g, g) + q_square * dot(h, h) + 2.0 * pq * dot(g, h)
