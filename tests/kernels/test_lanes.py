"""Sums over rows and updates of rows, in registers, against numpy: all widths, all numbers of rows."""

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from rmopt.kernels.intrinsics import BLOCKS, TILE
from rmopt.kernels.memory import LINE, at_line, on_lines
from rmopt.kernels.vectors import add_outer, add_rows, fetch, scatter, transposed_product


@njit
def accumulate(A, indices, values, start, stop, scale, out):  # type: ignore[no-untyped-def]
    add_rows(A, indices, values, start, stop, scale, out)


WIDTHS = (*range(1, 2 * BLOCKS[0] + 2), 100)
COUNTS = (0, 1, 3, TILE - 1, TILE, TILE + 1, 5 * TILE + 3)


def sparse(count: int, dtype: type, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers, some of them repeated, and values; three entries before and after are not to be looked at."""
    indices, values = rng.integers(0, 30, count + 6).astype(dtype), rng.standard_normal(count + 6)
    indices[:3], indices[3 + count :], values[:3] = 0, 29, np.nan
    values[3 + count :] = np.nan
    return indices, values


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_and_updates_of_rows(dtype: type) -> None:
    rng = np.random.default_rng(0)
    for width in WIDTHS:
        for count in COUNTS:
            indices, values = sparse(count, dtype, rng)
            rows, used = indices[3 : 3 + count], values[3 : 3 + count]
            A, vector = rng.standard_normal((30, width)), rng.standard_normal(width)
            out = vector.copy()
            accumulate(A, indices, values, 3, 3 + count, -2.0, out)
            np.testing.assert_allclose(out, vector - 2.0 * used @ A[rows], rtol=0, atol=1e-13)
            updated, expected = A.copy(), A.copy()
            scatter(updated, indices, values, 3, 3 + count, vector)
            np.add.at(expected, rows, np.outer(used, vector))
            np.testing.assert_allclose(updated, expected, rtol=0, atol=1e-13)


def test_products_with_a_matrix() -> None:
    rng = np.random.default_rng(1)
    for width in WIDTHS:
        for count in COUNTS[1:]:
            M, x = rng.standard_normal((count, width)), rng.standard_normal(count)
            y = rng.standard_normal(width)
            out = np.full(width, np.nan)
            transposed_product(M, x, out)
            np.testing.assert_allclose(out, x @ M, rtol=0, atol=1e-13)
            expected = M + 0.5 * np.outer(x, y)
            add_outer(M, 0.5, x, y)
            np.testing.assert_allclose(M, expected, rtol=0, atol=1e-13)


def test_other_arrays_are_refused() -> None:
    A, indices, values, vector = np.ones((9, 4)), np.arange(4, dtype=np.int32), np.ones(4), np.zeros(4)
    for other in (np.ones((9, 4), order="F"), np.ones((9, 8))[:, ::2], np.ones((9, 4), np.float32)):
        with pytest.raises(TypingError):
            accumulate(other, indices, values, 0, 4, 1.0, vector)
    for other in (np.arange(8, dtype=np.int32)[::2], indices[::-1], indices.astype(float)):
        with pytest.raises(TypingError):
            accumulate(A, other, values, 0, 4, 1.0, vector)
    with pytest.raises(TypingError):
        accumulate(A, indices, np.ones(8)[::2], 0, 4, 1.0, vector)
    assert not vector.any()


def test_what_is_only_to_be_read_is_not_written() -> None:
    A, indices, values, vector = np.ones((9, 4)), np.arange(4, dtype=np.int32), np.ones(4), np.ones(4)
    for one in (A, vector):
        one.flags.writeable = False
    with pytest.raises(TypingError):
        scatter(A, indices, values, 0, 4, vector)
    with pytest.raises(TypingError):
        accumulate(A, indices, values, 0, 4, 1.0, vector)
    np.testing.assert_array_equal(A, 1.0)
    np.testing.assert_array_equal(vector, 1.0)
    out = np.zeros(4)
    accumulate(A, indices, values, 0, 4, 1.0, out)
    np.testing.assert_array_equal(out, 4.0)
    assert at_line(A).flags.writeable


@njit
def fetched(array: np.ndarray) -> float:
    fetch(array, 0, array.shape[0])
    # Beyond the end nothing is read: a fetch that finds no page is dropped.
    fetch(array, array.shape[0], array.shape[0] + 10**6)
    return float(array[0])


def test_a_fetch_changes_nothing() -> None:
    for dtype in (np.float64, np.int32):
        assert fetched(np.arange(3, 50, dtype=dtype)) == 3


def test_arrays_begin_where_a_line_does() -> None:
    for shape in ((), (0,), (3,), (5, 7), (2, 0, 3), (2, 3, 4)):
        for dtype in (float, np.float32, np.int8):
            array = on_lines(shape, dtype)
            assert (array.shape, array.dtype) == (shape, dtype)
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert array.ctypes.data % LINE == 0 or not array.size
            assert not array.any()
            assert at_line(array) is array or not array.size


def test_an_array_that_begins_elsewhere_is_moved() -> None:
    elsewhere = on_lines((9, 4))[1:]  # 32 bytes further
    elsewhere += np.arange(4.0)
    for given in (elsewhere, on_lines((4, 9)).T + np.arange(4.0)):
        moved = at_line(given)
        assert moved.flags.c_contiguous
        assert moved.ctypes.data % LINE == 0
        np.testing.assert_array_equal(moved, given)
        moved[0] = 7.0
        assert not (given == 7.0).any()
