"""Small dense linear algebra: thin factorisations of sums and products of tall matrices."""

from collections.abc import Callable

import numpy as np
import scipy.linalg

__all__ = [
    "cosine",
    "factor_product",
    "gram_functions",
    "leading_eigh",
    "leave_span",
    "orthonormalised",
    "positive_qr",
    "rank_one_pinv_update",
    "rotation",
    "sine",
    "symmetric",
    "truncated_svd_of_product",
    "versine",
]

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
    Q_A, middle, Q_B = factor_product(A, core, B)
    P, sigma, Qt = np.linalg.svd(middle, full_matrices=False)
    return Q_A @ P[:, :k], sigma[:k], Q_B @ Qt[:k].T


def leave_span(U: Array, X: Array) -> Array:
    """Return X minus its orthogonal projection on the span of the orthonormal columns of U.

    Parameters
    ----------
    U : array, shape (n, k)
    X : array, shape (n, j)
    """
    return X - U @ (U.T @ X)


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a square matrix.

    Parameters
    ----------
    matrix : array, shape (..., n, n)
    """
    return 0.5 * (matrix + matrix.mT)


def rank_one_pinv_update(A: Array, A_pinv: Array, c: Array, d: Array) -> Array:
    """Return the pseudo-inverse of A + c dᵀ from that of A (Shalit et al. 2012, Algorithm 7; Meyer 1973).

    The four cases are told apart by w = c − A A†c, the part of c outside the column space of A, and by
    β = 1 + dᵀA†c. What is zero in exact arithmetic counts as zero here up to rounding. The paper prints the
    shapes of two intermediate results wrongly; its formulas are right.

    Parameters
    ----------
    A : array, shape (n, k)
        Of full column rank.
    A_pinv : array, shape (k, n)
        Its pseudo-inverse.
    c : array, shape (n,)
    d : array, shape (k,)

    Returns
    -------
    array, shape (k, n)

    Raises
    ------
    ValueError
        For shapes that do not belong together, or values that are not finite.
    """
    n, k = A.shape
    shapes = np.shape(A_pinv), np.shape(c), np.shape(d)
    if shapes != ((k, n), (n,), (k,)):
        raise ValueError(
            f"rank_one_pinv_update with A of shape {(n, k)} needs A_pinv, c, d of shapes {((k, n), (n,), (k,))}, "
            f"got {shapes}."
        )
    if not all(np.isfinite(part).all() for part in (A, A_pinv, c, d)):
        raise ValueError("rank_one_pinv_update got NaN or infinity; clean the arrays first.")
    v = A_pinv @ c
    beta = 1.0 + d @ v
    row = d @ A_pinv
    w = c - A @ v
    ww, rr, vv = w @ w, row @ row, v @ v
    inside = ww <= 1e-28 * (c @ c)
    level = abs(beta) <= 1e-14 * (1.0 + np.abs(d) @ np.abs(v))
    if rr == 0.0 or (inside and vv == 0.0):
        return A_pinv.copy()
    bent = A_pinv @ row
    if not inside and not level:
        shrink = beta / (ww * rr + beta**2)
        growth = np.outer(bent, w) / beta - shrink * np.outer(ww / beta * bent + v, rr / beta * w + row)
    elif not inside:
        growth = -np.outer(bent, row) / rr - np.outer(v, w) / ww
    elif not level:
        growth = -np.outer(v, row) / beta
    else:
        growth = (v @ bent) / (vv * rr) * np.outer(v, row)
        growth -= np.outer(v, v @ A_pinv) / vv + np.outer(bent, row) / rr
    return A_pinv + growth


def gram_functions(X: Array, *functions: Callable[[Array], Array]) -> list[Array]:
    """Return the k × k matrices f(XᵀX) for functions of the squared singular values of a tall X.

    For functions that are smooth at 0 this is as exact as a singular value decomposition of X, and cheaper.

    Parameters
    ----------
    X : array, shape (..., n, k)
    *functions : callable
        Maps the squared singular values, shape (..., k), to numbers.
    """
    squares, V = np.linalg.eigh(X.mT @ X)
    squares = np.maximum(squares, 0.0)
    return [(V * function(squares)[..., None, :]) @ V.mT for function in functions]


def cosine(squares: Array) -> Array:
    """Return cos σ for σ².

    Parameters
    ----------
    squares : array
    """
    return np.cos(np.sqrt(squares))


def sine(squares: Array) -> Array:
    """Return sin(σ)/σ for σ².

    Parameters
    ----------
    squares : array
    """
    return np.sinc(np.sqrt(squares) / np.pi)


def versine(squares: Array) -> Array:
    """Return (1 − cos σ)/σ² for σ².

    Parameters
    ----------
    squares : array
    """
    return 0.5 * np.sinc(0.5 * np.sqrt(squares) / np.pi) ** 2


def rotation(skew: Array) -> Array:
    """Return the exponential of a skew-symmetric matrix.

    Parameters
    ----------
    skew : array, shape (..., n, n)
    """
    even, odd = gram_functions(skew, cosine, sine)
    return even + skew @ odd


def orthonormalised(U: Array) -> Array:
    """Return the nearest matrix with orthonormal columns to one that has them up to rounding.

    Parameters
    ----------
    U : array, shape (..., n, k)
    """
    return U @ (1.5 * np.eye(U.shape[-1]) - 0.5 * (U.mT @ U))


def positive_qr(A: Array) -> Array:
    """Return the orthonormal factor of A = Q R, where R has a positive diagonal.

    Parameters
    ----------
    A : array, shape (..., n, k)
    """
    Q, R = np.linalg.qr(A)
    return Q * np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)[..., None, :]


def leading_eigh(matrix: Array, k: int, metric: Array | None = None) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of a symmetric matrix, descending, and their eigenvectors.

    Parameters
    ----------
    matrix : array, shape (p, p)
    k : int
    metric : array, shape (p, p), optional
        Positive definite, for the generalised problem.

    Returns
    -------
    (array, array)
        Of shapes (k,) and (p, k).
    """
    p = len(matrix)
    try:
        values, vectors = scipy.linalg.eigh(matrix, metric, subset_by_index=(p - k, p - 1))
    except np.linalg.LinAlgError:
        values = vectors = np.empty(0)
    if len(values) < k:
        # LAPACK's bisection fails or loses eigenvalues at times where many are equal; the whole spectrum has them.
        values, vectors = scipy.linalg.eigh(matrix, metric, driver="evd" if metric is None else "gvd")
        values, vectors = values[p - k :], vectors[:, p - k :]
    return values[::-1], vectors[:, ::-1]
