"""Files that are either whole or absent: write beside the target, flush, then rename."""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from rmopt.core.errors import StorageError


def write_atomically(path: Path | str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that a reader sees either the old content or the new, never a part.

    Parameters
    ----------
    path : Path
        The file to create or replace; its folder is created when absent.
    write : callable
        Receives the binary file to write into.

    Raises
    ------
    StorageError
        When the disk is full or the folder is not writable; the old file is untouched.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; what was saved before is untouched. "
            "Free some space or choose another folder."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_json(path: Path | str, content: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON, atomically."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(text.encode()))


def save_arrays(path: Path | str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write named arrays and a JSON-able description into one ``.npz`` file, atomically, without pickle."""
    described = dict(arrays)
    described["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    write_atomically(path, lambda stream: np.savez(stream, allow_pickle=False, **described))


def load_arrays(path: Path | str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote: the arrays and the description."""
    path = Path(path)
    try:
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise zipfile.BadZipFile("it is not an archive")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        about = json.loads(arrays.pop("about").tobytes())
    except FileNotFoundError as error:
        raise StorageError(f"{path} does not exist; check the path.") from error
    # A damaged header may ask for a compression or an encryption: NotImplementedError is a RuntimeError.
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} is not a file that rmopt wrote, or it is damaged ({error}).") from error
    return arrays, about
