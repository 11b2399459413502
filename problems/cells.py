"""The cells of a large comparison, kept on disk as they are finished."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmopt.core import StorageError
from rmopt.files import reading, set_aside, write_atomically

# What a result depends on, and what was found.
Settings = dict[str, Any]
Cell = dict[str, Any]


class Cells:
    """Results by their settings, one line of JSON each, appended when they are known.

    Parameters
    ----------
    path : Path
        The file.
    resume : bool
        Use the results that the file holds already; otherwise it is begun anew, and an old one set aside: `aside`
        is its new path, or None.

    Raises
    ------
    StorageError
        When the file cannot be read or written.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self._known: dict[str, Cell] = {}
        kept = []
        self.aside = None if resume else set_aside(path)
        if resume and path.exists():
            with reading(path):
                lines = path.read_bytes().splitlines(keepends=True)
            for place, line in enumerate(lines, 1):
                try:
                    settings, result = _cell_of(line)
                    self._known[_key(settings)] = result
                except (ValueError, RecursionError) as error:
                    # A killed run may leave half a line at the end; that cell is computed again.
                    if place == len(lines) and not line.endswith(b"\n"):
                        break
                    raise StorageError(
                        f"line {place} of {path} is damaged ({error}); remove it, or run without --resume."
                    ) from error
                kept.append(line.rstrip(b"\n") + b"\n")
        write_atomically(path, lambda stream: stream.writelines(kept))

    def known(self, settings: Cell) -> Cell | None:
        """Return the result for some settings, or None where it is not known."""
        return self._known.get(_key(settings))

    def keep(self, settings: Cell, result: Cell) -> Cell:
        """Write a result, and return it as a resumed run sees it."""
        # Through JSON, so that a resumed run sees the same numbers.
        content = as_written({"settings": settings, "result": result})
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({**content, "check": _check(content)}) + "\n")
        except OSError as error:
            raise StorageError(
                f"cannot write {self.path} ({error.strerror}); free some space, then go on with --resume."
            ) from error
        return self._known.setdefault(_key(settings), content["result"])


def _cell_of(line: bytes) -> tuple[Cell, Cell]:
    """Return the settings and the result of a line, whose numbers and names are those that were written."""
    content = json.loads(line)
    if not isinstance(content, dict) or not all(
        isinstance(content.get(part), dict) and content[part] for part in ("settings", "result")
    ):
        raise ValueError("it must hold settings and a result")
    # Version 0.1 wrote no check.
    if content.pop("check", check := _check(content)) != check:
        raise ValueError("it was changed after it was written")
    return content["settings"], content["result"]


def _check(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps([content["settings"], content["result"]], sort_keys=True).encode())


def mean_and_sem(values: Iterable[float | None]) -> tuple[float, float | None]:
    """Return the mean and the standard error of the mean, None for the latter of one value; NaN where one is None."""
    array = np.array(list(values), dtype=float)
    return float(array.mean()), float(array.std(ddof=1) / array.size**0.5) if array.size > 1 else None


def band(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of curves, one in a row, and its standard error, which is zero for one curve."""
    mean, count = curves.mean(axis=0), len(curves)
    return mean, curves.std(axis=0, ddof=1) / count**0.5 if count > 1 else np.zeros_like(mean)


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(as_written(settings), sort_keys=True)


def digest(settings: dict[str, Any]) -> str:
    """Return a short name of settings."""
    return f"{zlib.crc32(_key(settings).encode()):08x}"


def as_written(value: Any) -> Any:
    """Return a value as a file of JSON gives it back: tuples as lists, keys as text, numpy's numbers as Python's."""
    return json.loads(json.dumps(value, default=_number))


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
