"""Folders of digits in all formats that streams read."""

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from problems.data import stream

FORMATS = ("svmlight", "gz", "npz", "csv", "texts", "labels")


def write_folder(
    folder: Path, data: tuple[np.ndarray, np.ndarray], rows: tuple[int, ...] = (300, 410, 120)
) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    ends = np.cumsum((0, *rows)).tolist()
    for number, (a, b) in enumerate(pairwise(ends)):
        dump_svmlight_file(data[0][a:b], data[1][a:b], str(folder / f"{number}.svmlight"))
    return folder


def same(first: tuple[Any, Any], second: tuple[Any, Any]) -> bool:
    return all(
        (one != other).nnz == 0 if sp.issparse(one) else bool((one == other).all())
        for one, other in zip(first, second, strict=True)
    )


def formatted(kind: str, tmp_path: Path, data: tuple[np.ndarray, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    """Write digits in a format; return the folder, and how to read it."""
    folder = tmp_path / kind
    X, y = data
    if kind == "texts":
        for number in range(300):
            path = folder / f"class{y[number]}" / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(" ".join(f"word{place}" for place in np.flatnonzero(X[number] > 0.9)))
        return folder, {"n_features": 256}
    write_folder(folder, data)
    if kind == "gz":
        for path in folder.iterdir():
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    if kind in ("npz", "csv"):
        tables = tmp_path / "tables"
        tables.mkdir()
        for number, (rows, labels) in enumerate(stream(folder, n_features=64, batch_size=211)):
            if kind == "npz":
                names = ("data", "indices", "indptr", "shape")
                np.savez(
                    tables / f"{number}.npz", y=labels, **{f"X_{name}": getattr(rows, name) for name in names}
                )
            else:
                table = np.column_stack([labels, rows.toarray()])
                head = ",".join(["label", *map(str, range(64))])
                np.savetxt(tables / f"{number}.csv", table, "%.17g", ",", header=head, comments="")
        return tables, {}
    if kind == "labels":
        for number, path in enumerate(sorted(folder.iterdir())):
            lines = path.read_text().splitlines()
            path.write_text(
                "".join(f"{number},{line.partition(' ')[0]} {line.partition(' ')[2]}\n" for line in lines)
            )
        return folder, {"n_features": 64, "multilabel": True}
    return folder, {"n_features": 64}
