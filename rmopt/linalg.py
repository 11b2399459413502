"""Small dense linear algebra: thin factorisations of sums and products of tall matrices."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import ctrtrs, dsyevd, dtrtrs, ssyevd, strtrs, ztrtrs

from rmopt import namespaces as ns

Array = np.ndarray

# Entries from which a matrix leaves a cache between the reflections of a QR.
LARGE = 2**18
# LAPACK's triangular solves, by the type of numbers.
TRTRS = {"f": strtrs, "d": dtrtrs, "F": ctrtrs, "D": ztrtrs}


def factor_product(A: Array, core: Array, B: Array) -> tuple[Array, Array, Array]:
    """Return U (n, k), S (k, k), V (m, k) with A core Bᴴ = U S Vᴴ, U and V orthonormal and any S."""
    U, R_A = tall_qr(A)
    V, R_B = tall_qr(B)
    return U, R_A @ core @ ns.adjoint(R_B), V


def tall_qr(A: Array) -> tuple[Array, Array]:
    """Return Q and R of A = Q R, for a large matrix by its Gram matrix if that is as exact as Householder's."""
    large = A.ndim == 2 and A.shape[0] * A.shape[1] >= LARGE and A.shape[1] > 1
    found = _qr_by_gram(A) if large and ns.numbers_of(A).kind in "fc" and not ns.is_traced(A) else None
    return tuple(ns.namespace(A).linalg.qr(A)) if found is None else found


def _qr_by_gram(A: Array) -> tuple[Array, Array] | None:
    """Return Q and R of A = Q R by the Gram matrix of A, or None if Q would lose digits."""
    with np.errstate(all="ignore"):
        # It is copied to the host from A's device.
        gram = ns.to_numpy(ns.adjoint(A) @ A)
        squares, limits = np.diag(gram).real, np.finfo(gram.dtype)
        lengths = np.sqrt(squares)
        cosines = gram / np.outer(lengths, lengths)
    # Smaller squares lose digits.
    if not (squares.min() > limits.tiny / limits.eps and np.all(np.isfinite(cosines))):
        return None
    values = np.linalg.eigvalsh(cosines)
    # QᵀQ is off by as many roundings as the condition number of the cosines.
    if not values[0] > 0.25 * values[-1]:
        return None
    R = ns.adjoint(np.linalg.cholesky(cosines)) * lengths
    return A @ ns.asarray(np.linalg.inv(R), A), ns.asarray(R, A)


def truncated_svd_of_product(A: Array, core: Array, B: Array, k: int) -> tuple[Array, Array, Array]:
    """Return the k leading singular triples U, σ, V of A core Bᴴ, whose inner dimension is small.

    Both sides are orthonormalised by Householder QR first, so the singular vectors are orthonormal
    to machine precision however ill-conditioned A and B are.
    """
    Q_A, middle, Q_B = factor_product(A, core, B)
    P, sigma, Qh = ns.namespace(middle).linalg.svd(middle, full_matrices=False)
    return Q_A @ P[..., :k], sigma[..., :k], Q_B @ ns.adjoint(Qh[..., :k, :])


def leave_span(U: Array, X: Array) -> Array:
    """Return X (n, j) minus its orthogonal projection on the span of the orthonormal columns of U (n, k)."""
    if type(U) is np.ndarray and U.ndim == X.ndim == 2 and U.dtype.kind == "f":
        # On small matrices `dot` takes half the time of `@`.
        return X - U.dot(U.T.dot(X))
    return X - U @ (ns.adjoint(U) @ X)


def symmetric(matrix: Array) -> Array:
    """Return the symmetric, or for complex numbers the Hermitian, part of a square matrix."""
    return 0.5 * (matrix + ns.adjoint(matrix))


def lyapunov(W: Array, right: Array) -> Array:
    """Return the Hermitian L with L W + W L = R, for a positive definite W and a Hermitian R."""
    values, basis = eigh(W)
    back = ns.adjoint(basis)
    inner = (back @ right @ basis) / (values[..., :, None] + values[..., None, :])
    return symmetric(basis @ inner @ back)


def exp_differences(x: Array, order: int = 1) -> Array:
    """Return the divided differences of the exponential between all pairs of numbers, or all triples.

    They are the derivatives of the matrix exponential at a matrix with these eigenvalues (Higham 2008, chapter 3).
    Each is exact to rounding, even for equal or close numbers.
    """
    if order == 1:
        return _exp_difference(x[..., :, None], x[..., None, :])
    xp = ns.namespace(x)
    low, high = _ordered(x[..., :, None, None], x[..., None, :, None])
    middle, high = _ordered(high, x[..., None, None, :])
    low, middle = _ordered(low, middle)
    mean, wide = (low + middle + high) / 3.0, high - low > 1.0
    parts = [xp.where(wide, 0.0, one - mean) for one in (low, middle, high)]
    # Close ones: the series, whose terms are complete homogeneous polynomials of the deviations from the mean.
    powers, total = [xp.ones_like(mean) for _ in parts], xp.full_like(mean, 0.5)
    factorial = 2.0
    for n in range(1, 18):
        below: Any = 0.0
        for i, part in enumerate(parts):
            below = powers[i] = below + part * powers[i]
        factorial *= n + 2
        total = total + powers[-1] / factorial
    apart = (_exp_difference(middle, high) - _exp_difference(low, middle)) / xp.where(wide, high - low, 1.0)
    return xp.where(wide, apart, xp.exp(mean) * total)


def _exp_difference(a: Array, b: Array) -> Array:
    xp, half = ns.namespace(a), 0.5 * (a - b)
    # The hyperbolic sine can be divided by a tiny number, and the quotient is exactly 1.
    half = xp.where(half == 0.0, 1e-30, half)
    return xp.exp(0.5 * (a + b)) * (xp.sinh(half) / half)


def _ordered(a: Array, b: Array) -> tuple[Array, Array]:
    xp = ns.namespace(a)
    return xp.minimum(a, b), xp.maximum(a, b)


def gram_functions(X: Array, *functions: Callable[[Array], Array]) -> list[Array]:
    """Return the k × k matrices f(XᴴX) for functions of the squared singular values of a tall X.

    For functions that are smooth at 0 this is as exact as a singular value decomposition of X, and cheaper.
    """
    squares, V = small_eigh(ns.adjoint(X) @ X)
    squares, back = ns.at_least(squares, 0.0), ns.adjoint(V)
    return [(V * function(squares)[..., None, :]) @ back for function in functions]


def small_eigh(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues and vectors of Hermitian matrices, for a small one in half of numpy's time."""
    if type(matrix) is not np.ndarray or matrix.ndim > 2 or matrix.dtype.kind == "c":
        return tuple(ns.namespace(matrix).linalg.eigh(matrix))
    values, vectors, flaw = (ssyevd if matrix.dtype == np.float32 else dsyevd)(matrix, lower=1)
    if flaw or not values[-1] < np.inf:
        raise np.linalg.LinAlgError("the eigenvalues did not converge")
    return values, vectors


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Return what `numpy.linalg.eigh` or another library's does, bit-identical, for a small matrix in half the time.

    Numpy computes single precision in double, and stores vectors by rows, on which the rounding of products depends.
    """
    if type(matrix) is not np.ndarray or matrix.dtype != np.float64:
        return tuple(ns.namespace(matrix).linalg.eigh(matrix))
    values, vectors = small_eigh(matrix)
    return values, np.ascontiguousarray(vectors)


def horizontal(Y: Array, xi: Array) -> Array:
    """Return the part of ξ that moves YYᴴ: ξ − Y Ω, with Ω YᴴY + YᴴY Ω = Yᴴξ − ξᴴY (Absil et al. 2009)."""
    xp, back = ns.namespace(Y), ns.adjoint(Y)
    skew = back @ xi
    values, vectors = xp.linalg.eigh(back @ Y)
    turn = ns.adjoint(vectors)
    turned = turn @ (skew - ns.adjoint(skew)) @ vectors
    sums = values[..., :, None] + values[..., None, :]
    regular = sums > 4.5 * xp.finfo(sums.dtype).eps * values[..., -1:, None]
    turned = xp.where(regular, turned / xp.where(regular, sums, 1.0), 0.0)
    return xi - Y @ (vectors @ turned @ turn)


def quotient(a: Any, b: Any, otherwise: float) -> Any:
    """Return a/b, and another number for b = 0."""
    xp, regular = ns.namespace(b), b != 0.0
    return xp.where(regular, a / xp.where(regular, b, 1.0), otherwise)


def sinc(angles: Any) -> Any:
    """Return sin(x)/x, and 1 for 0."""
    xp = ns.namespace(angles)
    if xp is np:
        return np.sinc(angles / np.pi)
    return quotient(xp.sin(angles), angles, 1.0)


def cosine(squares: Array) -> Array:
    """Return cos σ for σ²."""
    xp = ns.namespace(squares)
    return xp.cos(xp.sqrt(squares))


def sine(squares: Array) -> Array:
    """Return sin(σ)/σ for σ²."""
    xp = ns.namespace(squares)
    angles = xp.sqrt(ns.at_least(squares, 1e-30))
    return xp.sin(angles) / angles


def versine(squares: Array) -> Array:
    """Return (1 − cos σ)/σ² for σ²."""
    return 0.5 * sinc(0.5 * ns.namespace(squares).sqrt(squares)) ** 2


def rotation(skew: Array) -> Array:
    """Return the exponential of a skew-symmetric or skew-Hermitian matrix."""
    even, odd = gram_functions(skew, cosine, sine)
    return even + skew @ odd


def rotation_log(Q: Array) -> Array:
    """Return the skew-symmetric logarithm of a rotation, from planes that it turns, exact at all angles.

    For a unitary matrix it is skew-Hermitian. Several matrices are treated on the host, one by one.
    """
    if type(Q) is not np.ndarray or Q.ndim > 2:
        each = ns.to_numpy(Q).reshape(-1, *Q.shape[-2:])
        return ns.asarray(np.array(list(map(rotation_log, each))).reshape(Q.shape), Q)
    if Q.dtype.kind == "c":
        turned, lines = scipy.linalg.schur(Q)
        return (lines * (1j * np.angle(np.diagonal(turned))).astype(Q.dtype)) @ ns.adjoint(lines)
    turned, planes = scipy.linalg.schur(Q)
    below, cosines = np.diagonal(turned, -1), np.diagonal(turned)
    angles = np.diag(np.where(below != 0.0, np.arctan2(below, cosines[:-1]), 0.0), -1)
    # Half turns are pairs of −1 that may not be adjacent.
    alone = np.append(below == 0.0, True) & np.append(True, below == 0.0) & (cosines < 0.0)
    (halves,) = np.nonzero(alone)
    angles[halves[1::2], halves[::2]] = np.pi
    return planes @ (angles - angles.T) @ planes.T


def cayley(skew: Array) -> Array:
    """Return the rotation (I − K/2)⁻¹ (I + K/2), the exponential to second order."""
    identity, half = ns.eye(skew.shape[-1], skew), 0.5 * skew
    return ns.namespace(skew).linalg.solve(identity - half, identity + half)


def skew_form(X: Array, xi: Array) -> tuple[Array, Array]:
    """Return F = [X Q] and a skew-symmetric K with ξ = F K[:, :p], for a tangent vector ξ of frames at X.

    The part of ξ orthogonal to X is Q R. If it is rank-deficient, some rows of R are rounding and their columns of Q
    are arbitrary.
    """
    xp, turn = ns.namespace(X), ns.adjoint(X) @ xi
    Q, R = xp.linalg.qr(xi - X @ turn)
    zero = ns.zeros((*R.shape[:-2], R.shape[-2], R.shape[-2]), R)
    if X.ndim < Q.ndim:
        X = xp.broadcast_to(X, Q.shape[:-2] + X.shape[-2:])
    return xp.concat([X, Q], axis=-1), blocks(turn, -ns.adjoint(R), R, zero)


def blocks(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Return the matrices [[a, b], [c, d]]."""
    xp = ns.namespace(a)
    return xp.concat([xp.concat([a, b], axis=-1), xp.concat([c, d], axis=-1)], axis=-2)


def diagonal(values: Array, like: Array) -> Array:
    """Return the matrix with these numbers on its diagonal, in the type of another array."""
    if type(like) is np.ndarray and values.dtype == like.dtype and values.ndim == 1:
        return np.diag(values)
    return ns.eye(values.shape[-1], like) * values[..., None, :]


def flipped(array: Array) -> Array:
    """Return an array with its last axis backwards."""
    return array[..., ::-1] if type(array) is np.ndarray else ns.namespace(array).flip(array, axis=-1)


def orthonormalised(U: Array) -> Array:
    """Return the nearest matrix with orthonormal columns to one that has them up to rounding."""
    return U @ (1.5 * ns.eye(U.shape[-1], U) - 0.5 * (ns.adjoint(U) @ U))


def nearest_frame(A: Array) -> Array:
    """Return A (AᴴA)^−½, the matrix with orthonormal columns that is nearest to a tall A, or those of many.

    PyTorch tensors that are nearly orthonormal, as after short steps, need products alone: Newton-Schulz iterations,
    which take a tenth of the time of eigenvalues. One number determines how many.
    """
    if "torch" in (xp := ns.namespace(A)).__name__:
        nearer, identity = A, ns.eye(A.shape[-1], A)
        defect = ns.adjoint(A) @ A - identity
        off = float(xp.linalg.matrix_norm(defect).max())
        while off < 0.25:
            nearer = nearer - 0.5 * (nearer @ defect)
            # Singular values become s (3 − s²) / 2.
            off = (0.75 + 0.25 * off) * off**2
            if off < xp.finfo(A.dtype).eps:
                return nearer
            defect = ns.adjoint(nearer) @ nearer - identity
    (root,) = gram_functions(A, lambda squares: squares**-0.5)
    return A @ root


def positive_qr(A: Array) -> Array:
    """Return the orthonormal factor of A = Q R, with a positive diagonal of R."""
    xp = ns.namespace(A)
    Q, R = xp.linalg.qr(A)
    if type(A) is np.ndarray and A.dtype.kind == "f":
        return Q * np.copysign(1.0, R.diagonal(0, -2, -1))[..., None, :]
    phases = xp.sign(xp.linalg.diagonal(R))
    return Q * xp.where(phases == 0.0, xp.ones_like(phases), phases)[..., None, :]


def lanczos_eigh(operator: Any, k: int, **how: Any) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of a large symmetric matrix with eigenvectors, bit-identical each time.

    Raises
    ------
    scipy.sparse.linalg.ArpackNoConvergence
        With the converged part, for a limit ``maxiter`` or more than 5,000 rows. For fewer rows all eigenvalues are
        computed then, for example if the largest are far smaller in size than negative ones.
    """
    # It is slow to import.
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    # From scipy 1.17 on it draws a vector if the earlier ones span an invariant space, and without a seed unless
    # given one.
    seed = {"rng": 0} if "rng" in inspect.signature(eigsh).parameters else {}
    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    try:
        values, vectors = eigsh(operator, k, **{"which": "LA", "v0": start, **seed, **how})
    except ArpackNoConvergence:
        if "maxiter" in how or len(start) > 5000:
            raise
        values, vectors = np.linalg.eigh(operator @ np.eye(len(start)))
    return values[-k:], vectors[:, -k:]


def lanczos_svd(matrix: Any, k: int, start: Array | None = None) -> tuple[Array, Array, Array]:
    """Return U (m, k), the k largest singular values and Vᵀ (k, n) of a large sparse matrix, always bit-identical."""
    from scipy.sparse.linalg import LinearOperator

    if matrix.shape[0] < matrix.shape[1]:
        U, values, Vt = lanczos_svd(matrix.T, k, start)
        return Vt.T, values, U.T
    n = matrix.shape[1]
    if k >= n:
        U, values, Wt = np.linalg.svd(matrix @ np.eye(n, dtype=matrix.dtype), full_matrices=False)
        return U[:, :k], values[:k], Wt[:k]
    gram = LinearOperator((n, n), matvec=lambda x: matrix.T @ (matrix @ x), dtype=matrix.dtype)
    _, vectors = lanczos_eigh(gram, k, **({} if start is None else {"v0": start}))
    # They are not quite orthonormal if eigenvalues are close.
    basis = np.linalg.qr(vectors)[0]
    U, values, Wt = np.linalg.svd(matrix @ basis, full_matrices=False)
    return U, values, Wt @ basis.T


def leading_eigh(matrix: Array, k: int, metric: Array | None = None) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of a Hermitian matrix, descending, and vectors (p, k), by a `metric`.

    Without a metric this also takes several matrices, of any library.
    """
    if type(matrix) is not np.ndarray or matrix.ndim > 2:
        xp = ns.namespace(matrix)
        values, vectors = xp.linalg.eigh(matrix)
        return xp.flip(values[..., -k:], axis=-1), xp.flip(vectors[..., -k:], axis=-1)
    p = len(matrix)
    try:
        values, vectors = scipy.linalg.eigh(matrix, metric, subset_by_index=(p - k, p - 1))
    except np.linalg.LinAlgError:
        values = vectors = np.empty(0)
    if len(values) < k:
        # LAPACK's bisection sometimes fails or loses eigenvalues if many are equal; the whole spectrum has them.
        values, vectors = scipy.linalg.eigh(matrix, metric, driver="evd" if metric is None else "gvd")
        values, vectors = values[p - k :], vectors[:, p - k :]
    return values[::-1], vectors[:, ::-1]


def scaled_inverse(curvature: Array, tangent: Array) -> Array:
    """Return ξ C⁻¹ times the mean eigenvalue of C, so that lengths stay comparable for trust regions."""
    scale = np.trace(curvature) / len(curvature)
    if scale == 0.0:
        return tangent
    return tangent @ np.linalg.inv(curvature / scale + 1e-12 * np.eye(len(curvature)))


def whitened(factor: Array, matrix: Array) -> Array:
    """Return F⁻¹ M F⁻ᴴ for a lower triangular F and a Hermitian M."""
    return symmetric(solve_lower(factor, ns.adjoint(solve_lower(factor, matrix))))


def solve_lower(factor: Array, right: Array) -> Array:
    """Return F⁻¹ R for a lower triangular F."""
    if type(right) is np.ndarray and factor.ndim == right.ndim == 2:
        # On small matrices `scipy.linalg.solve_triangular` takes seven times as long.
        numbers = right.dtype if factor.dtype == right.dtype else np.result_type(factor, right)
        found, flaw = TRTRS[numbers.char](factor, right, lower=1)
        if flaw:
            raise np.linalg.LinAlgError(f"the factor is singular: its diagonal is zero at {flaw - 1}")
        return found
    xp = ns.namespace(right)
    if "torch" in xp.__name__:
        return xp.linalg.solve_triangular(factor, right, upper=False)
    if xp.__name__.startswith("jax"):
        return import_module("jax.scipy.linalg").solve_triangular(factor, right, lower=True)
    return xp.linalg.solve(factor, right)
