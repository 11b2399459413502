"""Files that are complete or absent, and archives of arrays without pickle."""

import itertools
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rmopt.errors import StorageError

if TYPE_CHECKING:
    import numpy as np

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no such locks)
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".rmopt"
# The layout of archives.
FORMAT = 1
# The largest unpacked size of an archive in bytes: the first number, or the second times its own size, and at most
# the third.
SMALL, RATIO, LARGEST = 2**26, 100, 2**34

# The arrays of an archive: for each its type (float, numpy's float32, int, uint64, bool or str) and its shape. A
# named size is the same in all shapes. None allows any size or any shape. Numbers are converted, and floats must be
# finite.
Layout = Mapping[str, tuple[type, tuple[int | str | None, ...] | None]]
_KINDS = {"float": "fiub", "float32": "f", "int": "iu", "uint64": "u", "bool": "biu", "str": "U"}


def write_atomically(path: Path | str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically by a function that fills a binary stream: a reader gets the old content or the new.

    A missing folder is created. A link stays a link, and a file keeps its permissions. Raises `StorageError` if the
    disk is full or the folder is not writable. The old file is then untouched.
    """
    temporary = None
    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
        with temporary.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; earlier saves are untouched. Free some space "
            "or choose another folder."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def lock_folder(folder: Path) -> int | None:
    """Lock a folder until the returned descriptor is closed or the process ends for any reason.

    Returns None if the file system cannot lock folders, as on some network drives. Raises `BlockingIOError` if
    another process holds the lock.
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


def set_aside(path: Path) -> Path | None:
    """Rename a folder or non-empty file to ``NAME.before`` or ``NAME.before-2``, …, and return that path."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    numbers = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    names = (path.with_name(f"{path.name}.before{number}") for number in numbers)
    return path.replace(next(name for name in names if not name.exists()))


@contextmanager
def reading(path: Path | str, told: type[Exception] = StorageError) -> Iterator[None]:
    """Turn any failure to read and parse a file in a with block into one `StorageError`.

    Errors of the class `told`, which name their own cause, stay as they are.
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


def save_arrays(path: Path | str, arrays: Mapping[str, "np.ndarray"], about: Mapping[str, Any]) -> None:
    """Write named arrays and a JSON-able description into one ``.npz`` file, atomically."""
    import numpy as np

    described = json.dumps({"format": FORMAT, **about}).encode()

    def write(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in {**arrays, "about": np.frombuffer(described, np.uint8)}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)

    write_atomically(path, write)


def load_arrays(path: Path | str) -> tuple[dict[str, "np.ndarray"], dict[str, Any]]:
    """Read the arrays and the description that `save_arrays` wrote, or raise `StorageError`."""
    arrays = read_arrays(path)
    with reading(path):
        about = json.loads(arrays.pop("about").tobytes()) if "about" in arrays else None
        if not isinstance(about, dict):
            raise ValueError("it has no description of itself")
        if (version := about.pop("format", FORMAT)) != FORMAT:
            raise StorageError(
                f"{path} has the format {version}, and this version of rmopt reads {FORMAT}; install a newer rmopt."
            )
    return arrays, about


def read_arrays(path: Path | str, *layouts: Layout) -> dict[str, "np.ndarray"]:
    """Read arrays from an ``.npz`` file of any origin.

    Reads the arrays of the first layout whose names the file has, which may hold others too, or all if no
    layout is given. Raises `StorageError` if the file is missing or damaged, lacks an array, has one of another type
    or shape, or if the arrays would have more than 64 MiB in memory, or a hundred times the size of the file if that
    is more, or 16 GiB.
    """
    import numpy as np

    with reading(path):
        told = Path(path).stat()
        if not stat.S_ISREG(told.st_mode):
            raise ValueError("it is no regular file")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            layout = next((one for one in layouts if one.keys() <= members.keys()), None)
            if layouts and layout is None:
                lacks = min((one.keys() - members.keys() for one in layouts), key=len)
                raise ValueError(f"it has no {', '.join(sorted(lacks))}")
            arrays, wanted = {}, {name: members[name] for name in layout or members}
            needed = sum([member.file_size for member in wanted.values()])
            allowed = min(max(SMALL, RATIO * told.st_size), LARGEST)
            if needed > allowed:
                raise ValueError(
                    f"{told.st_size:,} bytes would unpack to {needed:,}, and {allowed:,} are allowed"
                )
            for name, member in wanted.items():
                # Other compressions than numpy's may need any amount of memory.
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{name} is compressed in a way that numpy does not write")
                with archive.open(member) as stream:
                    array = np.lib.format.read_array(stream, allow_pickle=False)
                # Compiled loops need the byte order of this machine.
                arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        return arrays if layout is None else conforming(arrays, layout)


def conforming(arrays: Mapping[str, "np.ndarray"], layout: Layout, **sizes: int) -> dict[str, "np.ndarray"]:
    """Return arrays in the types of a layout, and refuse wrong types, shapes or values; some sizes may be given."""
    import numpy as np

    found = {}
    for name, (wanted, shape) in layout.items():
        array = arrays[name]
        if wanted is str and array.dtype == np.uint8 and array.ndim == 1:
            array = np.array(array.tobytes().decode().split("\n"))  # lines, each as long as it is
        if array.dtype.kind not in _KINDS[wanted.__name__]:
            raise ValueError(f"{name} holds {array.dtype} numbers or text, and must hold {wanted.__name__}")
        sides = array.shape if shape is None else shape
        known = [sizes.get(side, side) if isinstance(side, str) else side for side in sides]
        fits = len(known) == array.ndim
        if not fits or any(
            isinstance(side, int) and side != n for side, n in zip(known, array.shape, strict=True)
        ):
            raise ValueError(f"{name} has shape {array.shape}, and must have ({', '.join(map(str, known))})")
        sizes |= {side: n for side, n in zip(sides, array.shape, strict=True) if isinstance(side, str)}
        if wanted in (float, np.float32) and not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
        most = {bool: 1, int: 2**63 - 1}.get(wanted)
        if most is not None and array.max(initial=0) > most:
            raise ValueError(f"{name} holds numbers above {most}")
        found[name] = array if wanted is str else array.astype(wanted, copy=False)
    return found
