"""Memory that begins at a cache line."""

from typing import Any

import numpy as np

LINE = 64
# The numbers processed at once in vectorised loops: a cache line of doubles.
LANES = 8


def on_lines(shape: tuple[int, ...], dtype: Any = float) -> "np.ndarray[Any, Any]":
    """Return an array of zeros that begins at a cache line, so that loops over its rows load fewer lines."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.zeros(size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + size].view(dtype).reshape(shape)


def with_zeros(array: "np.ndarray[Any, Any]", shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    """Return a copy of an array, padded by zeros to a shape, that begins at a cache line."""
    out = on_lines(shape, array.dtype)
    out[tuple(map(slice, array.shape))] = array
    return out


def at_line(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return a writable array in C order that begins at a cache line: this one, or a copy."""
    there = array.ctypes.data % LINE == 0 and array.flags.c_contiguous and array.flags.writeable
    return array if there else with_zeros(array, array.shape)
