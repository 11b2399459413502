"""Rows of numbers that name things: edges of agents, pairs of objects, triplets of rows."""

from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import array
from rmopt.errors import InvalidInputError


def index_rows(name: str, value: Any, counts: tuple[int, ...]) -> Array:
    """Return integers as an int64 array of shape (T, len(counts)), whose columns name as many things as `counts` say.

    Raises
    ------
    InvalidInputError
        For another shape, what are no integers, or numbers of things that are not there.
    """
    found, width = array(name, value), len(counts)
    if found.ndim != 2 or found.shape[1] != width or found.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be integers in {width} columns, got {found.dtype} of shape {found.shape}."
        )
    if (found < 0).any() or (found >= np.array(counts)).any():
        raise InvalidInputError(
            f"{name} hold numbers from {found.min()} to {found.max()}; they count from 0, and the columns end below "
            f"{', '.join(map(str, counts))}."
        )
    return np.array(found, dtype=np.int64, order="C")
