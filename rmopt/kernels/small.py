"""Small systems of equations."""

from numba import njit


@njit(cache=True, nogil=True)
def invert(table, smallest_pivot):
    """Turn [M I] into [I M⁻¹] by Gauss–Jordan elimination with row pivots.

    Parameters
    ----------
    table : array, shape (r, 2r)
        M in the left half; the right half is overwritten.
    smallest_pivot : float
        Pivots up to this length count as zero.

    Returns
    -------
    bool
        False when M is singular; the table is then spoiled.
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
