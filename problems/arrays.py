"""Models in files, with one sentence for everything that can be wrong with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmopt.core import LowRankPoint, PSDPoint
from rmopt.core.errors import InvalidInputError
from rmopt.core.files import Layout, load_arrays, reading, save_arrays

Point = LowRankPoint | PSDPoint | np.ndarray

# How far the factors of a stored model may be from orthonormal.
ORTHONORMAL = 1e-8


def save_point(path: Path | str, kind: str, point: Point, about: Mapping[str, Any]) -> None:
    """Write a matrix W, of a kind that `load_point` asks for, and what JSON can say of it, as an ``.npz`` file."""
    arrays = {"W": point} if isinstance(point, np.ndarray) else vars(point)
    save_arrays(path, arrays, {"kind": kind, **about})


def load_point(path: Path | str, kind: str, columns: str = "m") -> tuple[Point, dict[str, Any]]:
    """Read what `save_point` wrote: W, square where `columns` is "n", and what is said of it.

    Raises
    ------
    InvalidInputError
        When the file holds a matrix of another kind.
    StorageError
        When the file is missing or damaged, or its factors are not those of a point.
    """
    square = (float, ("k", "k"))
    general: Layout = {"U": (float, ("n", "k")), "S": square, "V": (float, (columns, "k"))}
    layouts = general, {"Q": (float, ("n", "k")), "S": square}, {"W": (float, ("n", columns))}
    arrays, about = load_arrays(path, *layouts)
    if about.pop("kind", None) != kind:
        raise InvalidInputError(f"{path} does not hold a {kind} model.")
    with reading(path):
        for name in {"U", "V", "Q"} & set(arrays):
            factor = arrays[name]
            if not np.abs(factor.T @ factor - np.eye(factor.shape[1])).max(initial=0) < ORTHONORMAL:
                raise ValueError(f"{name} is not orthonormal")
        if 0 in next(iter(arrays.values())).shape:
            raise ValueError("its matrix is empty")
        if "W" in arrays:
            return arrays["W"], about
        if "Q" in arrays and not np.allclose(arrays["S"], arrays["S"].T):
            raise ValueError("S is not symmetric")
        return (PSDPoint if "Q" in arrays else LowRankPoint)(**arrays), about
