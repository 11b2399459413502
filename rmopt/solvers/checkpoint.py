"""Checkpoints: a run that is killed at any moment goes on from its last one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import InvalidInputError
from rmopt.core.files import load_arrays, save_arrays


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run saves its state.

    A run that finds a checkpoint of itself goes on from there and ends with the same bits as a run
    that was never interrupted. Files are replaced atomically.

    Attributes
    ----------
    path : Path
        The file; ``.npz`` by custom.
    every_seconds : float
        Least time between two saves.
    """

    path: Path | str
    every_seconds: float = 30.0

    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        """Write a state and its description."""
        save_arrays(self.path, arrays, about)

    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return the saved state and its description, or None when there is none.

        Raises
        ------
        InvalidInputError
            When the file is not a checkpoint, or belongs to a run with another identity; the message
            names what differs.
        """
        if not Path(self.path).exists():
            return None
        arrays, about = load_arrays(self.path)
        if "identity" not in about:
            raise InvalidInputError(f"{self.path} is not a checkpoint; delete it or choose another path.")
        saved = about["identity"]
        different = [key for key in identity if saved.get(key) != identity[key]]
        if different:
            key = different[0]
            raise InvalidInputError(
                f"the checkpoint {self.path} belongs to another run: its {key} is {saved.get(key)}, not "
                f"{identity[key]}. Delete it or choose another path."
            )
        return arrays, about


def arrays_of(point: Any) -> list[Array]:
    """Return the arrays that a point is made of: a dataclass of arrays, a list of them, or one array."""
    if is_dataclass(point):
        return [np.asarray(getattr(point, field.name)) for field in fields(point)]
    return [np.asarray(part) for part in (point if isinstance(point, list | tuple) else [point])]


def digest(*arrays: Array) -> str:
    """Return a short digest of the bits of some arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()[:12]
