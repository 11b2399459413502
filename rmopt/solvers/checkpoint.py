"""Checkpoints: a run that is killed at any moment goes on from its last one."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import InvalidInputError
from rmopt.core.files import load_arrays, save_arrays
from rmopt.engines.world import ONE_PROCESS, World


class Saving(ABC):
    """Where and when a run saves its state."""

    @abstractmethod
    def pause_after(self, step: int) -> float:
        """Return the next step at which the run must pause to save (infinity: saves go by the clock)."""

    @abstractmethod
    def due(self, step: int, seconds: float) -> bool:
        """Return whether to save after a step, this long after the last time."""

    @abstractmethod
    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        """Write a state and its description."""

    @abstractmethod
    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return the saved state and its description, or None when there is none.

        Raises
        ------
        InvalidInputError
            When the file is not a checkpoint, or belongs to a run with another identity; the message
            names what differs.
        """


@dataclass(frozen=True)
class Checkpoint(Saving):
    """A checkpoint of a run in one process, saved by the clock.

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

    def pause_after(self, step: int) -> float:
        """Return infinity: saves go by the clock."""
        return float("inf")

    def due(self, step: int, seconds: float) -> bool:
        """Return whether enough time has gone by."""
        return seconds >= self.every_seconds

    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        """Write a state and its description."""
        save_arrays(self.path, arrays, about)

    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return the saved state and its description, or None when there is none (see `Saving.load`)."""
        return _loaded(Path(self.path), identity) if Path(self.path).exists() else None


@dataclass(frozen=True)
class SharedCheckpoint(Saving):
    """A checkpoint of a run on several processes: each saves its own part, all at the same steps.

    The two latest generations are kept, so that a process that dies while it saves leaves one that is whole
    everywhere. Files are called after `path`, the process and the step.

    Attributes
    ----------
    path : Path
    every_steps : int
        Steps between two saves.
    world : World
        The processes.
    """

    path: Path | str
    every_steps: int = 1000
    world: World = ONE_PROCESS

    def __post_init__(self) -> None:
        if self.every_steps < 1:
            raise InvalidInputError(f"every_steps = {self.every_steps} must be at least 1.")

    def pause_after(self, step: int) -> float:
        """Return the next step at which all processes save."""
        return (step // self.every_steps + 1) * self.every_steps

    def due(self, step: int, seconds: float) -> bool:
        """Return whether this is such a step."""
        return step % self.every_steps == 0

    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        """Write this process's part; return when all have written theirs."""
        step = about["step"]
        save_arrays(self._file(step), arrays, about)
        self.world.least(step)
        for older in sorted(self._steps())[:-2]:
            self._file(older).unlink(missing_ok=True)

    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return this process's part of the latest state that all processes have saved, or None."""
        common = self.world.least(max(self._steps(), default=-1))
        return None if common < 0 else _loaded(self._file(common), identity)

    def _file(self, step: int) -> Path:
        path = Path(self.path)
        return path.with_name(f"{path.stem}.rank{self.world.rank}.step{step}{path.suffix}")

    def _steps(self) -> list[int]:
        path = Path(self.path)
        begin, end = f"{path.stem}.rank{self.world.rank}.step", path.suffix
        found = path.parent.glob(f"{begin}*{end}")
        numbers = (file.name[len(begin) : len(file.name) - len(end)] for file in found)
        return [int(number) for number in numbers if number.isdigit()]


def _loaded(path: Path, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return what a checkpoint file holds, or refuse one of another run."""
    arrays, about = load_arrays(path)
    if "identity" not in about:
        raise InvalidInputError(f"{path} is not a checkpoint; delete it or choose another path.")
    saved = about["identity"]
    different = [key for key in identity if saved.get(key) != identity[key]]
    if different:
        key = different[0]
        raise InvalidInputError(
            f"the checkpoint {path} belongs to another run: its {key} is {saved.get(key)}, not "
            f"{identity[key]}. Delete it or choose another path."
        )
    return arrays, about


def digest(*arrays: Array) -> str:
    """Return a short digest of the bits of some arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()[:12]
