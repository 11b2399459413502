"""Files that are either whole or absent: written beside the target, then renamed; and the one way to read them."""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

import numpy as np

from rmopt.core.errors import StorageError

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no such locks)
    fcntl = None  # type: ignore[assignment]

# The layout of files that `save_arrays` writes; those of version 0.1 do not say it.
FORMAT = 1
TEMPORARY = ".rmopt"
# What an archive may unpack to, in bytes: so much, or so many times its own size, but never more than the last.
SMALL, RATIO, LARGEST = 2**26, 100, 2**34

# The arrays of a file: for each its type (float, numpy's float32, int, bool or str) and its shape. A size that is a
# name is the same in all shapes; None is any size, or any shape. Numbers are converted; floats must be finite.
Layout = Mapping[str, tuple[type, tuple[int | str | None, ...] | None]]
_KINDS = {float: "fiub", np.float32: "f", int: "iu", bool: "biu", str: "U"}


def write_atomically(path: Path | str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file, by a function that fills a binary stream, so that a reader sees the old content or the new.

    Its folder is created when absent, and what a killed process left beside it is removed. Raises `StorageError`
    when the disk is full or the folder is not writable; the old file is untouched.
    """
    path = Path(path)
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
            temporary.chmod(0o666 & ~mask)
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


def save_arrays(path: Path | str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write named arrays and a JSON-able description into one ``.npz`` file, atomically, without pickle."""
    described = dict(arrays)
    described["about"] = np.frombuffer(json.dumps({"format": FORMAT, **about}).encode(), dtype=np.uint8)

    def write(stream: IO[bytes]) -> None:
        # np.savez may be forbidden to pickle from numpy 2.1 on.
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in described.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)

    write_atomically(path, write)


def load_arrays(path: Path | str, *layouts: Layout) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote, the arrays and the description, and raise `StorageError` for anything else.

    The file holds the arrays of one of the layouts, and nothing else; any arrays where there is no layout. A
    file that a newer version wrote is refused too.
    """
    with reading(path):
        arrays = read_arrays(path)
        if "about" not in arrays:
            raise ValueError("it has no description of itself")
        about = json.loads(arrays.pop("about").tobytes())
        if not isinstance(about, dict):
            raise ValueError("its description of itself is not a mapping")
        version = about.pop("format", FORMAT)
        if not isinstance(version, int) or version > FORMAT:
            raise StorageError(
                f"{path} has the format {version}, and this version of rmopt reads formats up to {FORMAT}; "
                "install a newer rmopt."
            )
        if layouts:
            layout = next((one for one in layouts if set(one) == set(arrays)), None)
            if layout is None:
                expected = " or ".join(", ".join(one) for one in layouts)
                raise ValueError(f"it holds {', '.join(arrays) or 'nothing'} instead of {expected}")
            arrays = conforming(arrays, layout)
    return arrays, about


def read_arrays(path: Path | str, *layouts: Layout, largest: int | None = None) -> dict[str, np.ndarray]:
    """Read arrays from an ``.npz`` file of any origin.

    What is read is the first of the layouts of which the file has all arrays; it may hold others too. All without a
    layout. Raises `StorageError` when the file is missing or damaged, lacks an array, has one of another type or
    shape, or when the arrays would have more than `largest` bytes in memory: unless given 64 MiB, or a hundred times
    the size of the file where that is more, up to 16 GiB.
    """
    with reading(path), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        found = [one for one in layouts if set(one) <= set(members)]
        if layouts and not found:
            nearest = max(layouts, key=lambda one: len(set(one) & set(members)))
            raise ValueError(f"it has no {', '.join(name for name in nearest if name not in members)}")
        names = list(found[0] if found else members)
        size = Path(path).stat().st_size
        allowed = min(max(SMALL, RATIO * size), LARGEST) if largest is None else largest
        needed = sum(members[name].file_size for name in names)
        if needed > allowed:
            raise ValueError(f"{size:,} bytes would unpack to {needed:,}, and {allowed:,} are allowed")
        arrays = {name: _array(archive, members[name]) for name in names}
        return conforming(arrays, found[0]) if found else arrays


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read an array, when its header asks for as many bytes as the member has."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is compressed in a way that numpy does not write")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in headers:
            raise ValueError(f"{member.filename} has an unknown header")
        shape, _, dtype = headers[version](stream)
        claimed = dtype.itemsize
        for side in shape:
            claimed *= side
        if (
            dtype.kind not in "biufcU"
            or claimed != member.file_size - stream.tell()
            or min(shape, default=0) < 0
        ):
            raise ValueError(
                f"{member.filename} does not hold the {dtype} array of shape {shape} that it claims"
            )
        stream.seek(0)
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
    if dtype.kind == "b":
        # Loops count on bytes that are 0 or 1.
        return np.asarray(array.view(np.uint8) != 0)
    return array.astype(dtype.newbyteorder("="), copy=False)


def conforming(arrays: Mapping[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    """Return arrays in the types that a layout names, or refuse their types, shapes or values."""
    sizes: dict[str, int] = {}
    found = {}
    for name, (wanted, declared) in layout.items():
        array = arrays[name]
        if wanted is str and array.dtype == np.uint8 and array.ndim == 1:
            array = np.array(array.tobytes().decode().split("\n"))  # lines, each as long as it is
        if array.dtype.kind not in _KINDS[wanted]:
            raise ValueError(f"{name} holds {array.dtype} numbers or text, and must hold {wanted.__name__}")
        shape = array.shape if declared is None else declared
        expected = tuple(sizes.get(side, side) if isinstance(side, str) else side for side in shape)
        fits = len(expected) == array.ndim and all(
            side == size for side, size in zip(expected, array.shape, strict=True) if isinstance(side, int)
        )
        if not fits:
            raise ValueError(
                f"{name} has shape {array.shape}, and must have ({', '.join(map(str, expected))})"
            )
        sizes |= {side: size for side, size in zip(shape, array.shape, strict=True) if isinstance(side, str)}
        if wanted in (float, np.float32) and not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
        if wanted is bool and array.size and array.max() > 1:
            raise ValueError(f"{name} holds numbers other than 0 and 1")
        found[name] = array if wanted is str else array.astype(wanted)
    return found


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn whatever goes wrong in a with block, while a file is read and understood, into one `StorageError`."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise StorageError(f"{path} does not exist; check the path.") from error
    # Damaged content makes zipfile, numpy, json and scipy raise some twenty classes, tokenize.TokenError among them.
    except Exception as error:
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise StorageError(
            f"{path} is damaged, or not a file that rmopt can read ({why}); replace or remove it."
        ) from error
