"""The cells of a large comparison, kept on disk as they are finished."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rmopt.core import InvalidInputError, StorageError
from rmopt.core.arguments import integer, number
from rmopt.core.files import reading, write_atomically

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
        kept = []
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

    def get(self, settings: dict[str, Any], compute: Callable[[], Cell]) -> Cell:
        """Return the result for some settings, computed now unless it is known."""
        key = _key(settings)
        if key not in self._known:
            # Through JSON, so that a resumed run sees the same numbers.
            content = json.loads(json.dumps({"settings": settings, "result": compute()}))
            try:
                with self.path.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({**content, "check": _check(content)}) + "\n")
            except OSError as error:
                raise StorageError(
                    f"cannot write {self.path} ({error.strerror}); free some space, then go on with --resume."
                ) from error
            self._known[key] = content["result"]
        return self._known[key]


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


def mean_and_sem(values: Iterable[float]) -> tuple[float, float | None]:
    """Return the mean and the standard error of the mean; None for the latter of one value."""
    array = np.array(list(values))
    return float(array.mean()), float(array.std(ddof=1) / array.size**0.5) if array.size > 1 else None


def check_options(given: Mapping[str, Any], **least: int) -> None:
    """Hold options of an experiment, by name among its ``locals()``, to be integers of at least so much."""
    for name, lowest in least.items():
        integer(f"--{name.replace('_', '-')}", given[name], lowest)


def whole_numbers(text: str, option: str, least: int = 1) -> list[int]:
    """Return the integers of a comma-separated list, ascending and without repetitions, or refuse the option."""
    wanted = f"integers of at least {least}, with commas between"
    return sorted(set(_listed(text, option, lambda part: integer(option, int(part), least), wanted)))


def positive_numbers(text: str, option: str) -> list[float]:
    """Return the finite positive numbers of a comma-separated list, in its order, or refuse the option."""
    wanted = "positive numbers with commas between"
    return _listed(text, option, lambda part: number(option, float(part), above=0), wanted)


def _listed(text: str, option: str, parse: Callable[[str], T], wanted: str) -> list[T]:
    try:
        found = [parse(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found:
        raise InvalidInputError(f"{option} {text!r} must be {wanted}.")
    return found


def number_or_auto(text: str, option: str) -> float | str:
    """Return "auto", or a finite number of at least 0; refuse the option otherwise."""
    try:
        return text if text == "auto" else number(option, float(text), least=0)
    except ValueError:
        raise InvalidInputError(f"{option} {text!r} must be a number of at least 0, or auto.") from None


def chosen_from(table: Mapping[str, T], names: str, option: str) -> dict[str, T]:
    """Return the entries of a table that a comma-separated list names, in its order, or refuse the option."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in table]
    if unknown or not chosen:
        raise InvalidInputError(
            f"{option} {names!r}: {', '.join(unknown) or 'nothing'} is not known; choose from {', '.join(table)}."
        )
    return {name: table[name] for name in chosen}


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)
