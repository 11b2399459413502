"""The output folder of a run: chosen, made and tried before the work, listed after it."""

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from rmopt.errors import StorageError
from rmopt.files import lock_folder, remove_abandoned

DEFAULT_PARENT = Path("rmopt-runs")


class OutputFolder:
    """A folder that exists and takes files; None makes a new one in ``rmopt-runs``, named after the run and the time.

    One that cannot be made, does not take files, or into which another run writes is a `StorageError`.
    """

    def __init__(self, out: Path | None, name: str) -> None:
        self._made: list[Path] = []
        try:
            for self.path in [out] if out is not None else _new_names(name):
                if self._make(may_exist=out is not None):
                    break
            with tempfile.TemporaryFile(dir=self.path) as trial:
                trial.write(b"rmopt")
            handle = lock_folder(self.path)
            self._unlock = weakref.finalize(self, os.close, handle) if handle is not None else lambda: None
            remove_abandoned(self.path)
            self._before = self._entries()
        except BlockingIOError as error:
            raise StorageError(
                f"--out: another run writes into {self.path}; wait until it has ended, or choose another folder."
            ) from error
        except OSError as error:
            self._remove_if_empty()
            raise StorageError(
                f"--out: cannot write into {self.path} ({error.strerror or error}); choose another folder."
            ) from error

    def _make(self, may_exist: bool) -> bool:
        self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=may_exist)
        except FileExistsError:
            if may_exist:
                raise
            return False
        return True

    def __str__(self) -> str:
        return str(self.path)

    def _entries(self) -> dict[str, tuple[int, int, int]]:
        entries = {}
        for entry in self.path.iterdir():
            if not entry.name.startswith("."):
                about = entry.lstat()
                entries[entry.name] = (about.st_ino, about.st_mtime_ns, about.st_size)
        return entries

    def written(self) -> list[str]:
        """Return the names of the files and folders in it that are new or have changed since the start."""
        return sorted(name for name, about in self._entries().items() if self._before.get(name) != about)

    def close(self) -> None:
        """Let other runs write here, and remove the folders that were made and got nothing."""
        self._unlock()
        self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()


def _new_names(name: str) -> Iterator[Path]:
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    yield DEFAULT_PARENT / stem
    yield from (DEFAULT_PARENT / f"{stem}-{number}" for number in count(2))
