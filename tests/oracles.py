"""The algorithms of Shalit, Weinshall and Chechik (2012), written plainly, as oracles."""

from __future__ import annotations

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


def rank_one_pinv_update(A: Array, A_pinv: Array, c: Array, d: Array) -> Array:
    """Algorithm 7, the branch of a generic update: the pseudo-inverse of A + c dᵀ."""
    v = A_pinv @ c
    beta = 1 + d @ v
    n = A_pinv.T @ d
    n_hat = A_pinv @ n
    w = c - A @ v
    G = np.outer(n_hat, w) / beta
    s = beta / ((w @ w) * (n @ n) + beta**2)
    t = (w @ w) / beta * n_hat + v
    return A_pinv + G - s * np.outer(t, (n @ n) / beta * w + n)


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


def orthonormal_step(U: Array, S: Array, V: Array, p: Array, q: Array) -> tuple[Array, Array, Array]:
    """Lemma 4 for W = U S Vᵀ along p qᵀ, re-orthonormalised by Householder QR; keeps the float type."""
    # A = U S, B = V: A†p = S⁻¹Uᵀp, B†q = Vᵀq.
    up, vq = U.T @ p, V.T @ q
    a1 = np.linalg.solve(S.astype(float), up.astype(float)).astype(S.dtype)
    s = vq @ a1
    a3 = (U @ up) * (-1 / 2 + 3 / 8 * s) + p * (1 - s / 2)
    b3 = (V @ vq) * (-1 / 2 + 3 / 8 * s) + q * (1 - s / 2)
    U, R_A = np.linalg.qr(U @ S + np.outer(a3, vq))
    V, R_B = np.linalg.qr(V + np.outer(b3, a1))
    return U, R_A @ R_B.T, V
