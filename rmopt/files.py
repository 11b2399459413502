"""Files that are either whole or absent: written beside the target, then renamed."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from itertools import count
from pathlib import Path
from typing import IO, Any

from rmopt.errors import StorageError

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no such locks)
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".rmopt"
DOTS_PER_INCH = 150


def write_atomically(path: Path | str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file, by a function that fills a binary stream, so that a reader sees the old content or the new.

    Its folder is created when absent, and what a killed process left beside it is removed. A link stays one, and a
    file keeps its permissions. Raises `StorageError` when the disk is full or the folder is not writable; the old
    file is untouched.
    """
    path = Path(os.path.realpath(path))
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent, path.name)
        handle, temporary = _locked_file(path)
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
            # The mask is only told while it is set.
            os.umask(mask := os.umask(0))
            temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
            temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; what was saved before is untouched. "
            "Free some space or choose another folder."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _locked_file(path: Path) -> tuple[int, Path]:
    """Open a file beside `path` that `remove_abandoned` leaves alone while this process lives."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
        if fcntl is not None:
            with suppress(OSError):  # file systems without locks; there nothing is removed either
                fcntl.flock(handle, fcntl.LOCK_EX)
        if Path(name).exists():
            return handle, Path(name)
        os.close(handle)  # removed before the lock was there


def remove_abandoned(folder: Path, name: str = "*") -> None:
    """Remove temporary files of `write_atomically` whose process is gone: nobody holds their lock any more."""
    pattern = f".{name if name == '*' else escape(name)}.????????{TEMPORARY}"
    for file in folder.glob(pattern) if fcntl is not None else ():
        with suppress(OSError), file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()


def lock_folder(folder: Path) -> int | None:
    """Lock a folder until the descriptor that is returned is closed or the process ends, by whatever cause.

    Returns None where the file system does not lock folders, as some network drives do not. Raises `BlockingIOError`
    when another process holds the lock.
    """
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return handle


def write_json(path: Path | str, content: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON, atomically."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(text.encode()))


def draw(path: Path, size: tuple[float, float], fill: Callable[..., None], *arguments: Any) -> None:
    """Save the picture that ``fill(figure, *arguments)`` draws into an empty figure of a size in inches.

    No display is needed, and an older file is replaced as a whole.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    fill(figure, *arguments)
    write_atomically(path, lambda stream: figure.savefig(stream, format="png", dpi=DOTS_PER_INCH))


def set_aside(path: Path) -> Path | None:
    """Rename a folder, or a file that is not empty, to the first of ``NAME.before``, ``NAME.before-2``, … not there.

    Returns the new path, or None where there was nothing to rename.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    names = (f"{path.name}.before{f'-{number}' * (number > 1)}" for number in count(1))
    aside = next(one for one in map(path.with_name, names) if not one.exists())
    return path.replace(aside)


@contextmanager
def reading(path: Path | str, told: type[Exception] = StorageError) -> Iterator[None]:
    """Turn whatever goes wrong in a with block, while a file is read and understood, into one `StorageError`.

    Errors that name their own cause, which are `told`, stay as they are.
    """
    try:
        yield
    except (StorageError, NameError, told):
        raise
    except FileNotFoundError as error:
        raise StorageError(f"{path} does not exist; check the path.") from error
    # Damaged content makes zipfile, numpy, json and scipy raise some twenty classes, tokenize.TokenError among them.
    except Exception as error:
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise StorageError(
            f"{path} is damaged, or not a file that rmopt can read ({why}); repair, replace or remove it."
        ) from error
