"""Compiled passes over the known entries of a matrix, one column after the other.

For column j with known rows i and values y, the inner solution w solves A w = B y with A = α B Bᵀ + 2λ M, where the
columns of B are the rows u_i of U, and M = UᵀU; α = 1 − 2λ, or 1 with a penalty on all entries. The columns are
independent: they are cut into pieces that may run in parallel, each with sums of its own, so that the number of
pieces, not of threads, determines the rounding.

The entries come as `known`, indptr, rows and values of a CSC array, and the results as `inner`, W with the Cholesky
factors of the systems and the residuals, which are not stored if there is no space.

Others regress each column on the factors of its known rows, at the mean or at random numbers. With effects of rows
and columns an entry is b_i + c_j + u_i · w_j and noise. A row of `features` is (b_i, u_i), and x = (c, w) of a column
has, given these, the normal distribution with precision A = α ZᵀZ + s Λ, with more in the corner of the effect, and
mean A⁻¹ (α Zᵀ(y − b) + h), where the rows of Z are (1, u_i) of the known rows i. One pass is a half sweep of Gibbs
sampling, and at the mean of alternating least squares. Rows are regressed in the same way on the factors of columns.
"""

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.vectors import copy

# Sums may be reordered into vector instructions, without assumptions on NaN and infinity.
VECTOR = {"reassoc", "contract", "nsz"}
# The share of the squared right-hand side at which conjugate gradients end.
SETTLED = 1e-14


@njit(cache=True, nogil=True)
def _longest(indptr, first, last):
    """Return the number of entries of the longest of some columns."""
    longest = 0
    for j in range(first, last):
        longest = max(longest, indptr[j + 1] - indptr[j])
    return longest


@njit(cache=True, nogil=True, fastmath=VECTOR, inline="always")
def _gathered(U, rows, begin, end, out):
    """Write the known rows of U of a column into the columns of `out`."""
    for t in range(begin, end):
        i = rows[t]
        for a in range(U.shape[1]):
            out[a, t - begin] = U[i, a]


@njit(cache=True, nogil=True, fastmath=VECTOR, inline="always")
def _dot(x, y, count):
    total = 0.0
    for t in range(count):
        total += x[t] * y[t]
    return total


@njit(cache=True, nogil=True, fastmath=VECTOR, inline="always")
def _combined(B, w, count, out):
    """Write the sum of rows of B with weights w."""
    out[:count] = 0.0
    for a in range(len(w)):
        for t in range(count):
            out[t] += w[a] * B[a, t]


@njit(cache=True, nogil=True)
def _factorise(A):
    """Overwrite A by its Cholesky factor L, with 1 / L_ii instead of L_ii, or return False if it is not definite."""
    r = A.shape[0]
    for a in range(r):
        for b in range(a):
            total = A[a, b]
            for c in range(b):
                total -= A[a, c] * A[b, c]
            A[a, b] = total * A[b, b]
        corner = A[a, a]
        total = corner
        for c in range(a):
            total -= A[a, c] * A[a, c]
        if not total > 1e-14 * corner:
            return False
        A[a, a] = 1.0 / np.sqrt(total)
    return True


@njit(cache=True, nogil=True)
def _solve(L, x):
    """Overwrite x by the solution for a factor from `_factorise`."""
    r = L.shape[0]
    for a in range(r):
        total = x[a]
        for c in range(a):
            total -= L[a, c] * x[c]
        x[a] = total * L[a, a]
    _solve_back(L, x)


@njit(cache=True, nogil=True)
def _solve_back(L, x):
    """Overwrite x by L⁻ᵀ x."""
    r = L.shape[0]
    for a in range(r - 1, -1, -1):
        total = x[a]
        for c in range(a + 1, r):
            total -= L[c, a] * x[c]
        x[a] = total * L[a, a]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def solve_piece(known, U, gram, lam, weight, first, last, inner, G):
    """Solve the columns first … last − 1, and add their part of the gradient to G.

    Returns the cost of these columns and the number of a column that has no unique solution, or −1.
    """
    indptr, rows, values = known
    W, factors, residuals = inner
    r = U.shape[1]
    longest = _longest(indptr, first, last)
    B, z = np.empty((r, longest)), np.empty(longest)
    A, w = np.empty((r, r)), np.empty(r)
    keep, total = factors.shape[0] > 0, 0.0
    for j in range(first, last):
        begin, end = indptr[j], indptr[j + 1]
        count = end - begin
        if count == 0:
            W[j] = 0.0
            if keep:
                factors[j] = 0.0
            continue
        y = values[begin:end]
        _gathered(U, rows, begin, end, B)
        for a in range(r):
            for b in range(a + 1):
                A[a, b] = weight * _dot(B[a], B[b], count) + 2.0 * lam * gram[a, b]
            w[a] = _dot(B[a], y, count)
        if not _factorise(A):
            return total, j
        _solve(A, w)
        copy(w, W[j])
        _combined(B, w, count, z)
        square, shrink = 0.0, 0.0
        for t in range(count):
            square += (z[t] - y[t]) * (z[t] - y[t])
            shrink += z[t] * z[t]
            z[t] = weight * z[t] - y[t]
        total += 0.5 * square
        if lam != 0.0:
            length = 0.0
            for a in range(r):
                for b in range(r):
                    length += w[a] * gram[a, b] * w[b]
            total += lam * (length - shrink * (weight != 1.0))
        if keep:
            copy(A.ravel(), factors[j].ravel())
            copy(z[:count], residuals[begin:end])
        for t in range(count):
            i = rows[begin + t]
            for a in range(r):
                G[i, a] += z[t] * w[a]
    return total, -1


@njit(cache=True, nogil=True, fastmath=VECTOR)
def turn_piece(known, U, gram_rate, lam, weight, first, last, inner, E, rates, H):
    """Add to H the derivative of the columns' gradient along E, and write that of W into `rates`."""
    indptr, rows, _ = known
    W, factors, residuals = inner
    r = U.shape[1]
    longest = _longest(indptr, first, last)
    B, C, q = np.empty((r, longest)), np.empty((r, longest)), np.empty(longest)
    x = np.empty(r)
    for j in range(first, last):
        begin, end = indptr[j], indptr[j + 1]
        count = end - begin
        if count == 0:
            rates[j] = 0.0
            continue
        w, s = W[j], residuals[begin:end]
        _gathered(U, rows, begin, end, B)
        _gathered(E, rows, begin, end, C)
        _combined(C, w, count, q)
        for a in range(r):
            x[a] = -_dot(C[a], s, count) - weight * _dot(B[a], q, count)
            if lam != 0.0:
                for b in range(r):
                    x[a] -= 2.0 * lam * gram_rate[a, b] * w[b]
        _solve(factors[j], x)
        for a in range(r):
            rates[j, a] = x[a]
            for t in range(count):
                q[t] += x[a] * B[a, t]
        for t in range(count):
            i = rows[begin + t]
            turn = weight * q[t]
            for a in range(r):
                H[i, a] += turn * w[a] + s[t] * x[a]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def predicted(rows, columns, U, W, out):
    """Write u_i · w_j for pairs of a row and a column."""
    for t in range(out.shape[0]):
        total = 0.0
        for a in range(U.shape[1]):
            total += U[rows[t], a] * W[columns[t], a]
        out[t] = total


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
    """Regress the columns first … last − 1, independent of others, so that pieces may run in parallel.

    For the residuals e and f = u_i · w with the random numbers, `squares` gets e · e, e · f and f · f.
    """
    indptr, rows, values = known
    scales, precision, pull, alpha, corner = prior
    d = features.shape[1]
    longest = _longest(indptr, first, last)
    Z, gaps, fits = np.empty((d, longest)), np.empty(longest), np.empty(longest)
    A = np.empty((d, d))
    Z[0] = 1.0
    for j in range(first, last):
        begin, count, x, mean = indptr[j], indptr[j + 1] - indptr[j], drawn[j], means[j]
        for t in range(count):
            i = rows[begin + t]
            gaps[t] = values[begin + t] - features[i, 0]
            for a in range(1, d):
                Z[a, t] = features[i, a]
        for a in range(d):
            mean[a] = alpha * _dot(Z[a], gaps, count) + pull[j, a]
            for b in range(a + 1):
                A[a, b] = scales[j] * precision[a, b]
        A[0, 0] += corner
        _add_products(Z, count, alpha, A)
        if not _factorise(A):
            return j
        _solve(A, mean)
        # Lᵀ (x − mean) are the random numbers, so that x − mean has the covariance A⁻¹.
        copy(noise[j], x)
        _solve_back(A, x)
        for a in range(d):
            x[a] += mean[a]
            for t in range(count):
                gaps[t] -= x[a] * Z[a, t]
            if a == 0:
                copy(gaps[:count], fits[:count])
        for t in range(count):
            fits[t] -= gaps[t]
        squares[j, 0] = _dot(gaps, gaps, count)
        squares[j, 1], squares[j, 2] = _dot(gaps, fits, count), _dot(fits, fits, count)
    return -1


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _inner(x, y):
    """Return x · y in the precision of x."""
    total = x.dtype.type(0)
    for a in range(len(x)):
        total += x[a] * y[a]
    return total


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _weighed(gram, scale, Z, weights, x, products, out):
    """Write (G + s I) x + Zᵀ D Z x for the diagonal matrix D of weights, and Z x into `products`."""
    d = len(x)
    for a in range(d):
        out[a] = scale * x[a]
    for b in range(d):
        share, line = x[b], gram[b]
        for a in range(d):
            out[a] += share * line[a]
    for t in range(len(weights)):
        line = Z[t]
        products[t] = _inner(line, x)
        share = weights[t] * products[t]
        for a in range(d):
            out[a] += share * line[a]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def weigh_piece(known, features, gram, scales, steps, first, last, found, costs):
    """Lower Σ_i c_i (p_i − u_i · x)² + s ‖x‖² over all rows i (Hu et al. 2008) from the x of each column in `found`.

    Rows with a weight w > 0 have p = 1 and c = 1 + w, all others p = 0 and c = 1. Makes a limited number of conjugate
    gradient steps, in the precision of the features.
    """
    indptr, rows, weights = known
    d, kind = features.shape[1], features.dtype
    longest = _longest(indptr, first, last)
    Z, scores, products = np.empty((longest, d), kind), np.empty(longest, kind), np.empty(longest, kind)
    gap, along, turned = np.empty(d, kind), np.empty(d, kind), np.empty(d, kind)
    for j in range(first, last):
        begin, count = indptr[j], indptr[j + 1] - indptr[j]
        x, w = found[j], weights[begin : begin + count]
        if count == 0:
            x[:] = 0.0
            continue
        gap[:] = 0.0
        for t in range(count):
            products[t] = 1.0 + w[t] if w[t] > 0.0 else 0.0
            sure = products[t]
            line = features[rows[begin + t]]
            for a in range(d):
                Z[t, a] = line[a]
                gap[a] += sure * line[a]
        enough = SETTLED * _inner(gap, gap)
        _weighed(gram, scales[j], Z, w, x, scores, turned)
        for a in range(d):
            along[a] = gap[a] = gap[a] - turned[a]
        square = _inner(gap, gap)
        for _ in range(steps):
            if not square > enough:
                break
            _weighed(gram, scales[j], Z, w, along, products, turned)
            step, before = square / _inner(along, turned), square
            for a in range(d):
                x[a] += step * along[a]
                gap[a] -= step * turned[a]
            for t in range(count):
                scores[t] += step * products[t]
            square = _inner(gap, gap)
            turn = square / before
            for a in range(d):
                along[a] = gap[a] + turn * along[a]
        cost = 0.0
        for t in range(count):
            score, wanted = float(scores[t]), 1.0 if w[t] > 0.0 else 0.0
            cost += (1.0 + w[t]) * (wanted - score) ** 2 - score**2
        costs[j] = cost
    return -1


@njit(cache=True, nogil=True, fastmath=VECTOR)
def draw_links(by_features, apart, links, strength, noise):
    """Draw the contribution of each feature to the factors of its rows, given those of all others.

    With X = F B and noise, of covariance Λ⁻¹ in each row, the row b of B that belongs to a feature with values f is
    normal with mean fᵀ(X − the others' part) / (fᵀf + λ) and covariance Λ⁻¹ / (fᵀf + λ).
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
