"""Files of arrays, ``.npz``: the one way to write and to read them."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from rmopt.errors import StorageError
from rmopt.files import reading, write_atomically

# The layout of files that `save_arrays` writes; those of version 0.1 do not say it.
FORMAT = 1
# What an archive may unpack to, in bytes: so much, or so many times its own size, but never more than the last.
SMALL, RATIO, LARGEST = 2**26, 100, 2**34

# The arrays of a file: for each its type (float, numpy's float32, int, bool or str) and its shape. A size that is a
# name is the same in all shapes; None is any size, or any shape. Numbers are converted; floats must be finite.
Layout = Mapping[str, tuple[type, tuple[int | str | None, ...] | None]]
_KINDS = {float: "fiub", np.float32: "f", int: "iu", np.uint64: "u", bool: "biu", str: "U"}


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


def load_arrays(path: Path | str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote, the arrays and the description, and raise `StorageError` for anything else.

    A file that a newer version wrote is refused too.
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
        if dtype.kind in "OSV":
            raise StorageError(
                f"{member.filename} in {archive.filename} holds {dtype}, and numbers and text alone are read; write "
                "text by astype(str), and a sparse X as X_data, X_indices, X_indptr and X_shape."
            )
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


def conforming(arrays: Mapping[str, np.ndarray], layout: Layout, **sizes: int) -> dict[str, np.ndarray]:
    """Return arrays in the types that a layout names, or refuse their types, shapes or values; sides may be known."""
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
        if wanted is int and array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise ValueError(f"{name} holds numbers above 2⁶³")
        if wanted is bool and array.size and array.max() > 1:
            raise ValueError(f"{name} holds numbers other than 0 and 1")
        found[name] = array if wanted is str else array.astype(wanted, copy=False)
    return found
