"""The cells of a large comparison, kept on disk as they are finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rmopt.core import InvalidInputError, StorageError

Cell = dict[str, Any]
T = TypeVar("T")


class Cells:
    """Results by their settings, one line of JSON each, appended when they are known.

    Parameters
    ----------
    path : Path
        The file.
    resume : bool
        Use the results that the file holds already; otherwise it is begun anew.

    Raises
    ------
    StorageError
        When the file cannot be read or written.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self._known: dict[str, Cell] = {}
        try:
            lines = path.read_text().splitlines() if resume and path.exists() else []
            for number, line in enumerate(lines, 1):
                try:
                    cell = json.loads(line)
                    self._known[_key(cell["settings"])] = cell["result"]
                except (ValueError, KeyError, TypeError) as error:
                    # A killed run may leave half a line at the end; that cell is computed again.
                    if number < len(lines):
                        raise StorageError(
                            f"line {number} of {path} is damaged ({error}); remove it, or run without --resume."
                        ) from error
                    lines = lines[:-1]
            path.write_text("".join(line + "\n" for line in lines))
        except OSError as error:
            raise StorageError(f"{path} cannot be used ({error}); choose another folder.") from error

    def get(self, settings: dict[str, Any], compute: Callable[[], Cell]) -> Cell:
        """Return the result for some settings, computed now unless it is known."""
        key = _key(settings)
        if key not in self._known:
            # Through JSON, so that a resumed run sees the same numbers.
            result = json.loads(json.dumps(compute()))
            try:
                with self.path.open("a") as stream:
                    stream.write(json.dumps({"settings": settings, "result": result}) + "\n")
            except OSError as error:
                raise StorageError(
                    f"cannot write {self.path} ({error.strerror}); free some space, then go on with --resume."
                ) from error
            self._known[key] = result
        return self._known[key]


def mean_and_sem(values: Iterable[float]) -> tuple[float, float | None]:
    """Return the mean and the standard error of the mean; None for the latter of one value."""
    array = np.array(list(values))
    return float(array.mean()), float(array.std(ddof=1) / array.size**0.5) if array.size > 1 else None


def summary(found: Sequence[Cell]) -> Cell:
    """Return what a table says of a model on several splits: means, spread and the median time.

    Parameters
    ----------
    found : sequence of dict
        One result per split with map, precision_at_1 and seconds, which are None where the model diverged.

    Returns
    -------
    dict
        map, map_sem (None when the model diverged on any split), precision_at_1, train_seconds.
    """
    finished = [cell for cell in found if cell["map"] is not None]
    whole = len(finished) == len(found)
    mean, sem = mean_and_sem(cell["map"] for cell in finished) if whole else (None, None)
    return {
        "map": mean,
        "map_sem": sem,
        "precision_at_1": float(np.mean([cell["precision_at_1"] for cell in finished])) if finished else None,
        "train_seconds": float(np.median([cell["seconds"] for cell in finished])) if finished else None,
    }


def whole_numbers(text: str, option: str, least: int = 1) -> list[int]:
    """Return the integers of a comma-separated list, ascending and without repetitions.

    Raises
    ------
    InvalidInputError
        When the text, the value of `option`, is not such a list.
    """
    try:
        numbers = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < least:
        raise InvalidInputError(
            f"{option} {text!r} must be integers of at least {least}, with commas between."
        )
    return numbers


def chosen_from(table: Mapping[str, T], names: str, option: str) -> dict[str, T]:
    """Return the entries of a table that a comma-separated list names, in its order.

    Raises
    ------
    InvalidInputError
        When the list, the value of `option`, is empty or names something else.
    """
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in table]
    if unknown or not chosen:
        raise InvalidInputError(
            f"{option} {names!r}: {', '.join(unknown) or 'nothing'} is not known; choose from {', '.join(table)}."
        )
    return {name: table[name] for name in chosen}


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)
