"""Tables in files, with one sentence for everything that can be wrong with them."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from rmopt.core.files import read_arrays, reading
from rmopt.core.matrices import sound


def read_table(path: Path, name: str, ones: bool = False) -> Any:
    """Return a table of finite floats from an ``.npz`` file: an array, or canonical CSR from its parts.

    These are ``name_data``, which with `ones` may be left out, ``name_indices``, ``name_indptr`` and ``name_shape``.
    """
    parts: dict[str, Any] = {
        f"{name}_indices": (int, ("entries",)), f"{name}_indptr": (int, (None,)), f"{name}_shape": (int, (2,)),
    }  # fmt: skip
    whole = {f"{name}_data": (float, ("entries",)), **parts}
    arrays = read_arrays(path, {name: (float, (None, None))}, whole, *([parts] if ones else []))
    if name in arrays:
        return arrays[name]
    with reading(path):
        indices, indptr, shape = (arrays[part] for part in parts)
        data = arrays.get(f"{name}_data", np.ones(len(indices)))
        size = tuple(shape.tolist())
        table = sound(name, csr_array((data, indices, indptr), shape=size))
        narrow = np.int32 if max(len(indices), *size) < 2**31 else np.int64
        table = csr_array((data, indices.astype(narrow), indptr.astype(narrow)), shape=size)
        table.sum_duplicates()
        return table


def read_text_table(path: Path, separator: str, **options: Any) -> Any:
    """Return a table of finite numbers from a text file."""
    # numpy takes separators of one character.
    with reading(path), path.open(encoding="utf-8") as stream:
        table = np.loadtxt(
            (line.replace(separator, ",") for line in stream), delimiter=",", ndmin=2, **options
        )
        if not table.size or not np.isfinite(table).all():
            raise ValueError("it must hold finite numbers, and at least one row")
        return table


def read_arff(path: Path, n_labels: int) -> tuple[Any, Any]:
    """Return the features and the labels, which are the last columns, of an ARFF file, dense or sparse."""
    with reading(path):
        head, _, body = path.read_text(encoding="utf-8").lower().partition("@data")
        lines = [line for line in body.splitlines() if line.strip()]
        if lines[0].startswith("{"):
            cells = [line.strip("{} ").replace(",", " ").split() for line in lines]
            numbers = np.array([cell for row in cells for cell in row], dtype=np.float64).reshape(-1, 2)
            rows = np.repeat(np.arange(len(cells)), [len(row) // 2 for row in cells])
            shape = len(lines), head.count("@attribute ")
            table = csr_array((numbers[:, 1], (rows, numbers[:, 0].astype(np.int32))), shape=shape)
            table.sum_duplicates()
        else:
            table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-n_labels], csr_array(table[:, -n_labels:])
