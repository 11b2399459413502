"""Short vectors, small square matrices and sparse rows, in loops that the compiler vectorises.

Sums over matrices run along rows ("axpy form"), which vectorises without reordering. Sums of one vector may be
reordered. Row numbers are read as unsigned, which avoids the test for negative indices.
"""

from rmopt.kernels import before_compiling, njit


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def dot(x, y):
    """Return Σ x[c] y[c]."""
    total = 0.0
    for c in range(x.shape[0]):
        total += x[c] * y[c]
    return total


def add_rows(A, indices, values, start, stop, scale, vector):
    """Add scale · Σ values[j] A[indices[j]] over start ≤ j < stop to the vector, with A[j] if `indices` is None.

    Only for compiled loops (`rmopt.kernels.intrinsics`) and arrays of doubles in C order.
    """


def add_to_rows(A, indices, values, start, stop, scale, vector):
    """Add scale · values[j] times the vector to A[indices[j]] for start ≤ j < stop, or to A[j] without `indices`."""


def fetch(array, start, stop):
    """Begin to load array[start:stop] into the cache, without waiting."""


@before_compiling
def _define() -> None:
    from rmopt.kernels.intrinsics import define_rows

    define_rows(add_rows, add_to_rows, fetch)


@njit(cache=True, nogil=True)
def copy(x, out):
    """Set out = x. With an assignment of slices numba compiles its error messages too, for a second or two."""
    for c in range(out.shape[0]):
        out[c] = x[c]


@njit(cache=True, nogil=True)
def transposed_product(M, x, out):
    """Set out = Mᵀ x (for symmetric M: M x)."""
    out[:] = 0.0
    add_rows(M, None, x, 0, M.shape[0], 1.0, out)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def product(M, x, out):
    """Set out = M x, four rows at a time."""
    rows = M.shape[0]
    fours = rows - rows % 4
    for r in range(0, fours, 4):
        t0 = t1 = t2 = t3 = 0.0
        for c in range(M.shape[1]):
            t0 += M[r, c] * x[c]
            t1 += M[r + 1, c] * x[c]
            t2 += M[r + 2, c] * x[c]
            t3 += M[r + 3, c] * x[c]
        out[r], out[r + 1], out[r + 2], out[r + 3] = t0, t1, t2, t3
    for r in range(fours, rows):
        out[r] = dot(M[r], x)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def symmetric_product(M, x, out):
    """Set out = M x for a symmetric M, of which only the lower triangle is read, four rows at a time."""
    rows = M.shape[0]
    fours = rows - rows % 4
    out[:] = 0.0
    for r in range(0, fours, 4):
        t0 = t1 = t2 = t3 = 0.0
        for c in range(r):
            a, b, e, f = M[r, c], M[r + 1, c], M[r + 2, c], M[r + 3, c]
            t0 += a * x[c]
            t1 += b * x[c]
            t2 += e * x[c]
            t3 += f * x[c]
            out[c] += (a * x[r] + b * x[r + 1]) + (e * x[r + 2] + f * x[r + 3])
        out[r], out[r + 1], out[r + 2], out[r + 3] = t0, t1, t2, t3
        for i in range(r, r + 4):
            _add_half_row(M, i, r, x, out)
    for i in range(fours, rows):
        _add_half_row(M, i, 0, x, out)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_half_row(M, i, first, x, out):
    """Add to out the products of row i of a symmetric M from column `first` to the diagonal, and of column i."""
    for c in range(first, i):
        out[i] += M[i, c] * x[c]
        out[c] += M[i, c] * x[i]
    out[i] += M[i, i] * x[i]


@njit(cache=True, nogil=True)
def add_outer(M, scale, x, y):
    """Add scale · x yᵀ to M."""
    add_to_rows(M, None, x, 0, M.shape[0], scale, y)


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_symmetric(M, x, y, xx, xy, yy):
    """Add xx · x xᵀ + xy · (x yᵀ + y xᵀ) + yy · y yᵀ to M."""
    for i in range(M.shape[0]):
        a = xx * x[i] + xy * y[i]
        b = xy * x[i] + yy * y[i]
        for j in range(M.shape[0]):
            M[i, j] += a * x[j] + b * y[j]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def trace(M):
    """Return the sum of the diagonal."""
    total = 0.0
    for r in range(M.shape[0]):
        total += M[r, r]
    return total


@njit(cache=True, nogil=True)
def gather(A, indices, values, start, stop, out):
    """Set out = Aᵀ p for the sparse vector p stored in [start, stop)."""
    out[:] = 0.0
    add_rows(A, indices, values, start, stop, 1.0, out)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def square(values, start, stop):
    """Return the sum of the squares of the values in [start, stop)."""
    total = 0.0
    for j in range(start, stop):
        total += values[j] * values[j]
    return total


@njit(cache=True, nogil=True)
def scatter(A, indices, values, start, stop, g):
    """Add p gᵀ to A for the sparse vector p stored in [start, stop)."""
    add_to_rows(A, indices, values, start, stop, 1.0, g)


@njit(cache=True, nogil=True)
def sparse_dot(indices, values, start, stop, other_indices, other_values, other_start, other_stop):
    """Return the inner product of two sorted sparse rows."""
    i, j, total = start, other_start, 0.0
    while i < stop and j < other_stop:
        a = indices[i]
        b = other_indices[j]
        total += values[i] * other_values[j] if a == b else 0.0
        i += 1 if a <= b else 0
        j += 1 if b <= a else 0
    return total


@njit(cache=True, nogil=True)
def subtract_rows(indices, values, start, stop, minus_start, minus_stop, out_indices, out_values):
    """Write the difference of two sorted sparse rows to `out_*`, and return its number of entries."""
    i, j, count = start, minus_start, 0
    while i < stop and j < minus_stop:
        a = indices[i]
        b = indices[j]
        # Selections instead of branches, because the next row is unpredictable.
        plus = values[i] if a <= b else 0.0
        minus = values[j] if b <= a else 0.0
        out_indices[count] = a if a <= b else b
        out_values[count] = plus - minus
        i += 1 if a <= b else 0
        j += 1 if b <= a else 0
        count += 1
    while i < stop:
        out_indices[count] = indices[i]
        out_values[count] = values[i]
        i += 1
        count += 1
    while j < minus_stop:
        out_indices[count] = indices[j]
        out_values[count] = -values[j]
        j += 1
        count += 1
    return count


@njit(cache=True, nogil=True)
def invert(table, smallest_pivot):
    """Turn the (r, 2r) table [M ·] into [I M⁻¹] by Gauss–Jordan elimination with row pivots.

    Pivots up to `smallest_pivot` count as zero. Returns False if M is singular, and the table is then invalid.
    """
    r = table.shape[0]
    for i in range(r):
        for j in range(r):
            table[i, r + j] = 1.0 if i == j else 0.0
    for column in range(r):
        pivot = column
        for i in range(column + 1, r):
            if abs(table[i, column]) > abs(table[pivot, column]):
                pivot = i
        if not abs(table[pivot, column]) > smallest_pivot:
            return False
        if pivot != column:
            for j in range(2 * r):
                table[column, j], table[pivot, j] = table[pivot, j], table[column, j]
        scale = 1.0 / table[column, column]
        for j in range(2 * r):
            table[column, j] *= scale
        for i in range(r):
            if i != column:
                factor = table[i, column]
                for j in range(2 * r):
                    table[i, j] -= factor * table[column, j]
    return True
