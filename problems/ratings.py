"""Matrices of which some entries are known: ratings of films, and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from problems.arrays import found_in, read_text_table
from problems.datasets import data_folder
from rmopt.core.arguments import number
from rmopt.core.errors import InvalidInputError
from rmopt.core.files import read_arrays, reading

__all__ = ["Ratings", "ml1m", "ml100k", "picture"]

PICTURE = "china.jpg"


@dataclass(frozen=True, eq=False)
class Ratings:
    """Known entries of a matrix.

    Attributes
    ----------
    name, source : str
        The registered name, and what was read.
    rows, columns : int32 array, shape (N,)
        Where the entries are; columns are dealt to agents.
    values : float64 array, shape (N,)
    shape : (int, int)
    limits : (float, float)
        The least and the largest value that an entry can have.
    units : int array, shape (N,), optional
        Entries of one unit are held out together, as the colours of a pixel; each on its own unless given.

    Raises
    ------
    InvalidInputError
        When the parts do not belong together, or a value is not finite or outside of the limits.
    """

    name: str
    source: str
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    shape: tuple[int, int]
    limits: tuple[float, float]
    units: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        lengths, (low, high) = {len(self.rows), len(self.columns), len(self.values)}, self.limits
        numbers = (self.rows, self.shape[0]), (self.columns, self.shape[1])
        flaw = None
        if len(lengths) != 1 or 0 in lengths or not np.isfinite(self.values).all():
            flaw = "rows, columns and values must be equally many finite numbers, and at least one"
        elif any(found.min() < 0 or found.max() >= size for found, size in numbers):
            flaw = f"they name rows or columns outside of {self.shape}"
        elif self.values.min() < low or self.values.max() > high:
            flaw = f"values run from {self.values.min():g} to {self.values.max():g}, outside of {low:g} to {high:g}"
        if flaw:
            raise InvalidInputError(f"the ratings {self.name!r} (from {self.source}) cannot be used: {flaw}.")

    def held_out(self, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
        """Return which entries a random split holds out.

        Parameters
        ----------
        seed : int
        fraction : float
            Between 0 and 1; the share of entries, or of units.

        Raises
        ------
        InvalidInputError
            When the fraction is out of range.
        """
        number("the held-out share", fraction, above=0, below=1)
        rng = np.random.default_rng(seed)
        if self.units is None:
            return rng.random(len(self.values)) < fraction
        return (rng.random(int(self.units.max()) + 1) < fraction)[self.units]

    def table(self, chosen: NDArray[np.bool_]) -> sp.csc_array:
        """Return some of the entries as a sparse array by columns."""
        parts = (self.values[chosen], (self.rows[chosen], self.columns[chosen]))
        return sp.csc_array(sp.coo_array(parts, shape=self.shape))


def ml100k(data_home: Path | str | None = None) -> Ratings:
    """Load MovieLens-100K: 1682 films (rows), 943 users (columns), 100000 ratings from 1 to 5.

    Parameters
    ----------
    data_home : path, optional
        A folder with ``ml100k.npz``, or with ``ml-100k/u.data`` as GroupLens publishes it; see
        `problems.datasets.data_folder`.

    Raises
    ------
    StorageError
        When the file is missing or damaged.
    """
    return _movielens("ml100k", data_home, Path("ml-100k", "u.data"), "\t", "ml-100k.zip")


def ml1m(data_home: Path | str | None = None) -> Ratings:
    """Load MovieLens-1M: 3706 rated films (rows), 6040 users (columns), 1000209 ratings from 1 to 5.

    Parameters
    ----------
    data_home : path, optional
        A folder with ``ml1m.npz``, or with ``ml-1m/ratings.dat`` as GroupLens publishes it.

    Raises
    ------
    StorageError
        When the file is missing or damaged.
    """
    return _movielens("ml1m", data_home, Path("ml-1m", "ratings.dat"), "::", "ml-1m.zip")


def _movielens(
    name: str, data_home: Path | str | None, published: Path, separator: str, archive: str
) -> Ratings:
    path = found_in(
        data_folder(data_home),
        (f"{name}.npz", str(published)),
        f"unpack {archive} from https://grouplens.org/datasets/movielens/ there",
    )
    if path.suffix == ".npz":
        layout = {"user": (int, ("n",)), "item": (int, ("n",)), "rating": (float, ("n",))}
        users, films, values = read_arrays(path, layout).values()
    else:
        users, films, values = read_text_table(path, separator, usecols=(0, 1, 2)).T
    with reading(path):
        # Films without ratings are left out: the numbers become 0, 1, 2, …
        (_, rows), (_, columns) = (np.unique(ids, return_inverse=True) for ids in (films, users))
        shape = int(rows.max()) + 1, int(columns.max()) + 1
        source = path.name if path.suffix == ".npz" else str(published)
        return Ratings(
            name, source, rows.astype(np.int32), columns.astype(np.int32), values, shape, (1.0, 5.0)
        )


def picture(data_home: Path | str | None = None) -> Ratings:
    """Load a photograph that comes with scikit-learn: 427 rows, its 640 columns in red, green and blue, from 0 to 1.

    Parameters
    ----------
    data_home : path, optional
        The picture needs no folder; one that is given must exist all the same.
    """
    if data_home is not None:
        data_folder(data_home)
    from sklearn.datasets import load_sample_image

    colours = load_sample_image(PICTURE).astype(float) / 255.0
    height, width, _ = colours.shape
    pixels = np.arange(height * width).reshape(height, width)
    table = np.hstack([colours[:, :, colour] for colour in range(3)])
    rows, columns = np.indices(table.shape, dtype=np.int32)
    return Ratings(
        "picture", f"scikit-learn, {PICTURE}", rows.ravel(), columns.ravel(), table.ravel(), table.shape,
        (0.0, 1.0), np.hstack([pixels] * 3).ravel(),
    )  # fmt: skip
