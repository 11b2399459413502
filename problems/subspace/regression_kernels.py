"""A compiled pass that regresses each column on the factors of its known rows, at the mean or at random numbers.

With effects of rows and columns an entry is b_i + c_j + u_i · w_j and noise. A row of `features` is (b_i, u_i), and
x = (c, w) of a column has, given these, the normal distribution with precision A = α ZᵀZ + s Λ and mean
A⁻¹ (α Zᵀ(y − b) + h), where the rows of Z are (1, u_i) of the known rows i. One pass is a half sweep of Gibbs
sampling, and at the mean of alternating least squares. Rows are regressed in the same way on the factors of columns.
"""

import numpy as np

from problems.subspace.kernels import VECTOR, _dot, _factorise, _solve
from rmopt.kernels.compiled import njit


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _add_products(Z, count, weight, A):
    """Add α Z Zᵀ of the first columns to the lower triangle of A, in blocks of two rows by two."""
    d = Z.shape[0]
    for a in range(0, d - 1, 2):
        x, y = Z[a], Z[a + 1]
        for b in range(0, a + 1, 2):
            z, w = Z[b], Z[b + 1]
            corner, right, below, across = 0.0, 0.0, 0.0, 0.0
            for t in range(count):
                corner += x[t] * z[t]
                right += x[t] * w[t]
                below += y[t] * z[t]
                across += y[t] * w[t]
            A[a, b] += weight * corner
            A[a, b + 1] += weight * right
            A[a + 1, b] += weight * below
            A[a + 1, b + 1] += weight * across
    if d % 2:
        for b in range(d):
            A[d - 1, b] += weight * _dot(Z[d - 1], Z[b], count)


@njit(cache=True, nogil=True, fastmath=VECTOR)
def regress_piece(known, features, prior, noise, first, last, drawn, means, squares):
    """Regress the columns first … last − 1, which no other column takes part in: pieces may run in parallel.

    Parameters
    ----------
    known : (int64 array, int32 array, array)
        indptr, rows and values of a CSC array.
    features : array, shape (m, d)
    prior : (array, array, array, float)
        s of each column, shape (n,), Λ, h of each column, shape (n, d), and α.
    noise : array, shape (n, d)
    first, last : int
    drawn, means, squares : array, shape (n, d), (n, d) and (n,)
        Receive x with the random numbers, its mean, and the sum of squared residuals at x.

    Returns
    -------
    int
        The number of a column whose system is singular to rounding, or −1.
    """
    indptr, rows, values = known
    scales, precision, pull, alpha = prior
    d = features.shape[1]
    longest = 0
    for j in range(first, last):
        longest = max(longest, indptr[j + 1] - indptr[j])
    Z, gaps = np.empty((d, longest)), np.empty(longest)
    A, mean, x = np.empty((d, d)), np.empty(d), np.empty(d)
    Z[0] = 1.0
    for j in range(first, last):
        begin, count = indptr[j], indptr[j + 1] - indptr[j]
        for t in range(count):
            i = rows[begin + t]
            gaps[t] = values[begin + t] - features[i, 0]
            for a in range(1, d):
                Z[a, t] = features[i, a]
        for a in range(d):
            mean[a] = alpha * _dot(Z[a], gaps, count) + pull[j, a]
            for b in range(a + 1):
                A[a, b] = scales[j] * precision[a, b]
        _add_products(Z, count, alpha, A)
        if not _factorise(A):
            return j
        _solve(A, mean)
        # Lᵀ (x − mean) are the random numbers, so that x − mean has the covariance A⁻¹.
        for a in range(d - 1, -1, -1):
            total = noise[j, a]
            for c in range(a + 1, d):
                total -= A[c, a] * x[c]
            x[a] = total * A[a, a]
        for a in range(d):
            x[a] += mean[a]
            for t in range(count):
                gaps[t] -= x[a] * Z[a, t]
        drawn[j], means[j], squares[j] = x, mean, _dot(gaps, gaps, count)
    return -1


@njit(cache=True, nogil=True, fastmath=VECTOR)
def weigh_piece(known, features, gram, scales, alpha, first, last, found, costs):
    """Find the x of each column that minimises Σ_i c_i (p_i − u_i · x)² + s ‖x‖² over all rows i (Hu et al. 2008).

    Rows with a value r > 0 have p = 1 and c = 1 + α r, all others p = 0 and c = 1.

    Parameters
    ----------
    known : (int64 array, int32 array, array)
        indptr, rows and values r of a CSC array.
    features : array, shape (m, d)
        The rows u_i.
    gram : array, shape (d, d)
        Σ u_i u_iᵀ.
    scales : array, shape (n,)
        s.
    alpha : float
    first, last : int
    found, costs : array, shape (n, d) and (n,)
        Receive x, and Σ c (p − u · x)² − (u · x)² over the known rows.

    Returns
    -------
    int
        The number of a column whose system is singular to rounding, or −1.
    """
    indptr, rows, values = known
    d = features.shape[1]
    longest = 0
    for j in range(first, last):
        longest = max(longest, indptr[j + 1] - indptr[j])
    Z, sure = np.empty((d, longest)), np.empty(longest)
    A, x = np.empty((d, d)), np.empty(d)
    for j in range(first, last):
        begin, count = indptr[j], indptr[j + 1] - indptr[j]
        for t in range(count):
            extra = alpha * values[begin + t]
            root = np.sqrt(extra)
            sure[t] = (1.0 + extra) / root if extra > 0.0 else 0.0
            for a in range(d):
                Z[a, t] = root * features[rows[begin + t], a]
        for a in range(d):
            x[a] = _dot(Z[a], sure, count)
            for b in range(a + 1):
                A[a, b] = gram[a, b]
            A[a, a] += scales[j]
        _add_products(Z, count, 1.0, A)
        if not _factorise(A):
            return j
        _solve(A, x)
        cost = 0.0
        for t in range(count):
            score = _dot(features[rows[begin + t]], x, d)
            confidence = 1.0 + alpha * values[begin + t]
            wanted = 1.0 if values[begin + t] > 0.0 else 0.0
            cost += confidence * (wanted - score) ** 2 - score**2
        found[j], costs[j] = x, cost
    return -1


@njit(cache=True, nogil=True, fastmath=VECTOR)
def draw_links(by_features, apart, links, strength, noise):
    """Draw what each feature adds to the factors of the rows that have it, given what all others add.

    With X = F B and noise, of covariance Λ⁻¹ in each row, the row b of B that belongs to a feature with values f is
    normal with mean fᵀ(X − the others' part) / (fᵀf + λ) and covariance Λ⁻¹ / (fᵀf + λ).

    Parameters
    ----------
    by_features : (int array, int array, array)
        indptr, rows and values of F as a CSC array.
    apart : array, shape (n, d)
        X − F B, which is kept up to date.
    links : array, shape (p, d)
        B, which is overwritten.
    strength : float
        λ: a priori b has covariance Λ⁻¹ / λ.
    noise : array, shape (p, d)
        Random numbers of covariance Λ⁻¹.
    """
    indptr, rows, values = by_features
    p, d = links.shape
    change = np.empty(d)
    for f in range(p):
        change[:] = 0.0
        square = 0.0
        for t in range(indptr[f], indptr[f + 1]):
            square += values[t] * values[t]
            for a in range(d):
                change[a] += values[t] * apart[rows[t], a]
        for a in range(d):
            link = (change[a] + square * links[f, a]) / (square + strength)
            link += noise[f, a] / np.sqrt(square + strength)
            change[a] = link - links[f, a]
            links[f, a] = link
        for t in range(indptr[f], indptr[f + 1]):
            for a in range(d):
                apart[rows[t], a] -= values[t] * change[a]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def add_sampled(rows, columns, U, W, sums, squares):
    """Add b_i + c_j + u_i · w_j of every sample, and its square, for pairs of a row and a column."""
    for s in range(U.shape[0]):
        for t in range(sums.shape[0]):
            u, w = U[s, rows[t]], W[s, columns[t]]
            total = float(u[0]) + float(w[0])
            for a in range(1, u.shape[0]):
                total += float(u[a]) * float(w[a])
            sums[t] += total
            squares[t] += total * total
