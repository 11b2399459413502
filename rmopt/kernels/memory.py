"""Memory that begins where a line of the cache does."""

from typing import Any

import numpy as np

LINE = 64


def on_lines(shape: tuple[int, ...], dtype: Any = float) -> "np.ndarray[Any, Any]":
    """Return an array of zeros that begins at a cache line, so that loops over its rows load fewer lines."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.zeros(size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + size].view(dtype).reshape(shape)


def at_line(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return an array in C order, to be written, that begins at a cache line: this one, or a copy."""
    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % LINE == 0:
        return array
    moved = on_lines(array.shape, array.dtype)
    np.copyto(moved, array)
    return moved
