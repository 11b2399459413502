"""The algorithms of Shalit, Weinshall and Chechik (2012), written plainly, as oracles."""

from collections.abc import Callable

import numpy as np

Array = np.ndarray


def theorem_3(W: Array, G: Array, k: int) -> Array:
    """Project G onto the tangent space at W and retract, all in n × m arrays (Theorem 3)."""
    U, sigma, Vt = np.linalg.svd(W)
    U, V = U[:, :k], Vt[:k].T
    W_pinv = V @ np.diag(1 / sigma[:k]) @ U.T
    P_A, P_B = U @ U.T, V @ V.T
    inside, below, beside = P_A @ G @ P_B, G @ P_B - P_A @ G @ P_B, P_A @ G - P_A @ G @ P_B
    V1 = W + inside / 2 + below - inside @ W_pinv @ inside / 8 - below @ W_pinv @ inside / 2
    V2 = W + inside / 2 + beside - inside @ W_pinv @ inside / 8 - inside @ W_pinv @ beside / 2
    return V1 @ W_pinv @ V2


def algorithm_2(A: Array, B: Array, G: Array) -> tuple[Array, Array]:
    """Naive Riemannian step along G, with orthogonal complements."""
    k = A.shape[1]
    A_pinv, B_pinv = np.linalg.pinv(A), np.linalg.pinv(B)
    A_perp = np.linalg.svd(A)[0][:, k:]
    B_perp = np.linalg.svd(B)[0][:, k:]
    M = A_pinv @ G @ B_pinv.T
    N1 = B_perp.T @ G.T @ A_pinv.T
    N2 = A_perp.T @ G @ B_pinv.T
    eye = np.eye(k)
    Z1 = A @ (eye + M / 2 - M @ M / 8) + A_perp @ N2 @ (eye - M / 2)
    Z2 = B @ (eye + M.T / 2 - M.T @ M.T / 8) + B_perp @ N1 @ (eye - M.T / 2)
    return Z1, Z2


def algorithm_3(A: Array, B: Array, G1: Array, G2: Array) -> tuple[Array, Array]:
    """LORETA-r: the step along G1 G2ᵀ."""
    A_pinv, B_pinv = np.linalg.pinv(A), np.linalg.pinv(B)
    a1, b1 = A_pinv @ G1, B_pinv @ G2
    a2 = A @ a1
    Q = b1.T @ a1
    a3 = -a2 / 2 + 3 / 8 * a2 @ Q + G1 - G1 @ Q / 2
    b2 = (G2.T @ B) @ B_pinv
    b3 = -b2 / 2 + 3 / 8 * Q @ b2 + G2.T - Q @ G2.T / 2
    return A + a3 @ b1.T, (B.T + a1 @ b3).T


def algorithm_4(
    A: Array, B: Array, A_pinv: Array, B_pinv: Array, p: Array, q: Array
) -> tuple[Array, Array, Array, Array]:
    """LORETA-1: the step along p qᵀ, with kept pseudo-inverses."""
    a1, b1 = A_pinv @ p, B_pinv @ q
    a2 = A @ a1
    s = b1 @ a1
    a3 = a2 * (-1 / 2 + 3 / 8 * s) + p * (1 - s / 2)
    b2 = (q @ B) @ B_pinv
    b3 = b2 * (-1 / 2 + 3 / 8 * s) + q * (1 - s / 2)
    return (
        A + np.outer(a3, b1),
        B + np.outer(b3, a1),
        rank_one_pinv_update(A, A_pinv, a3, b1),
        rank_one_pinv_update(B, B_pinv, b3, a1),
    )


def rank_one_pinv_update(A: Array, A_pinv: Array, c: Array, d: Array) -> Array:
    """Return the pseudo-inverse of A + c dᵀ from that of A: Algorithm 7, where c leaves the span of A and β ≠ 0."""
    v, row = A_pinv @ c, d @ A_pinv
    w, beta, bent = c - A @ v, 1 + d @ v, A_pinv @ row
    ww, rr = w @ w, row @ row
    shrink = beta / (ww * rr + beta**2)
    return A_pinv + np.outer(bent, w) / beta - shrink * np.outer(ww / beta * bent + v, rr / beta * w + row)


def theorem_6(W: Array, G: Array, k: int) -> Array:
    """Project G onto the tangent space at a PSD matrix W and retract, all in n × n arrays (Theorem 6).

    The paper prints V W† V; its V is not symmetric, and what Algorithm 5 computes is V W† Vᵀ.
    """
    values, vectors = np.linalg.eigh(W)
    U = vectors[:, -k:]
    W_pinv = U @ np.diag(1 / values[-k:]) @ U.T
    P = U @ U.T
    half = (G + G.T) / 2
    inside = P @ half @ P
    beside = half @ P + P @ half - 2 * inside
    V = W + inside / 2 + beside - inside @ W_pinv @ inside / 8 - beside @ W_pinv @ inside / 2
    return V @ W_pinv @ V.T


def algorithm_5(Y: Array, Y_pinv: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """LORETA-1-PSD: the step along p qᵀ, with a kept pseudo-inverse."""
    h1, h2 = Y_pinv @ p, Y_pinv @ q
    n1, n2, s = h1 @ h1, h2 @ h2, h1 @ h2
    h1_hat, h2_hat = Y @ h1, Y @ h2
    own, outer = -1 / 4 + 3 / 32 * s, 1 / 2 - s / 8
    l1 = own * h1_hat + outer * p + 3 / 32 * n1 * h2_hat - n1 / 8 * q
    l2 = own * h2_hat + outer * q + 3 / 32 * n2 * h1_hat - n2 / 8 * p
    half = Y + np.outer(l1, h2)
    whole = half + np.outer(l2, h1)
    return whole, np.linalg.pinv(whole)


def orthonormal_step(U: Array, S: Array, V: Array, p: Array, q: Array) -> tuple[Array, Array, Array]:
    """Lemma 4 for W = U S Vᵀ along p qᵀ, re-orthonormalised by Householder QR."""
    # A = U S, B = V: A†p = S⁻¹Uᵀp, B†q = Vᵀq.
    return _lemma_4(U, S, V, p, q, np.linalg.solve, np.linalg.qr)


def extended_step(U: Array, S: Array, V: Array, p: Array, q: Array) -> tuple[Array, Array, Array]:
    """`orthonormal_step` in numpy.longdouble, which LAPACK does not know."""
    return _lemma_4(U, S, V, p, q, _refined_solve, _gram_schmidt)


def _lemma_4(
    U: Array, S: Array, V: Array, p: Array, q: Array, solve: Callable, qr: Callable
) -> tuple[Array, Array, Array]:
    up, vq = U.T @ p, V.T @ q
    a1 = solve(S, up)
    s = vq @ a1
    a3 = (U @ up) * (-1 / 2 + 3 * s / 8) + p * (1 - s / 2)
    b3 = (V @ vq) * (-1 / 2 + 3 * s / 8) + q * (1 - s / 2)
    U, R_A = qr(U @ S + np.outer(a3, vq))
    V, R_B = qr(V + np.outer(b3, a1))
    return U, R_A @ R_B.T, V


def _refined_solve(S: Array, b: Array) -> Array:
    x = np.zeros_like(b)
    for _ in range(7):
        x = x + np.linalg.solve(S.astype(float), (b - S @ x).astype(float))
    return x


def _gram_schmidt(A: Array) -> tuple[Array, Array]:
    Q, R = A.copy(), np.zeros((A.shape[1],) * 2, A.dtype)
    for j in range(A.shape[1]):
        for _ in range(2):
            overlap = Q[:, :j].T @ Q[:, j]
            R[:j, j] += overlap
            Q[:, j] -= Q[:, :j] @ overlap
        R[j, j] = np.sqrt(Q[:, j] @ Q[:, j])
        Q[:, j] /= R[j, j]
    return Q, R
