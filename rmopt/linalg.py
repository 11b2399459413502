"""Small dense linear algebra: thin factorisations of sums and products of tall matrices."""

import numpy as np

Array = np.ndarray


def factor_product(A: Array, core: Array, B: Array) -> tuple[Array, Array, Array]:
    """Return U, S, V with A core Bᵀ = U S Vᵀ, U and V orthonormal, S square and not diagonal in general.

    Parameters
    ----------
    A : array, shape (n, k)
    core : array, shape (k, k)
    B : array, shape (m, k)
    """
    U, R_A = np.linalg.qr(A)
    V, R_B = np.linalg.qr(B)
    return U, R_A @ core @ R_B.T, V


def truncated_svd_of_product(A: Array, core: Array, B: Array, k: int) -> tuple[Array, Array, Array]:
    """Return the k leading singular triples of A core Bᵀ, whose inner dimension is small.

    Both sides are orthonormalised by Householder QR first, so the singular vectors are orthonormal
    to machine precision however ill-conditioned A and B are.

    Parameters
    ----------
    A : array, shape (n, j)
    core : array, shape (j, l)
    B : array, shape (m, l)
    k : int
        At most min(n, m, j, l).

    Returns
    -------
    U : array, shape (n, k)
    sigma : array, shape (k,)
    V : array, shape (m, k)
    """
    Q_A, R_A = np.linalg.qr(A)
    Q_B, R_B = np.linalg.qr(B)
    P, sigma, Qt = np.linalg.svd(R_A @ core @ R_B.T, full_matrices=False)
    return Q_A @ P[:, :k], sigma[:k], Q_B @ Qt[:k].T


def leave_span(U: Array, X: Array) -> Array:
    """Return X minus its orthogonal projection on the span of the orthonormal columns of U."""
    return X - U @ (U.T @ X)


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a square matrix."""
    return 0.5 * (matrix + matrix.T)
