"""Matrices of which some entries are known: ratings of films, and a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from problems.arrays import read_text_table
from problems.datasets import DataSet, loader
from rmopt.core.arguments import number
from rmopt.core.files import read_arrays

__all__ = ["Ratings", "ml1m", "ml100k", "picture"]

PICTURE = "china.jpg"


@dataclass(frozen=True, eq=False)
class Ratings(DataSet):
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

    _what = "ratings"
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    shape: tuple[int, int]
    limits: tuple[float, float]
    units: NDArray[Any] | None = None

    def _flaw(self) -> str | None:
        lengths, (low, high) = {len(self.rows), len(self.columns), len(self.values)}, self.limits
        numbers = (self.rows, self.shape[0]), (self.columns, self.shape[1])
        if len(lengths) != 1 or 0 in lengths or not np.isfinite(self.values).all():
            return "rows, columns and values must be equally many finite numbers, and at least one"
        if any(found.min() < 0 or found.max() >= size for found, size in numbers):
            return f"they name rows or columns outside of {self.shape}"
        if self.values.min() < low or self.values.max() > high:
            return f"values run from {self.values.min():g} to {self.values.max():g}, outside of {low:g} to {high:g}"
        return None

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


def _movielens(name: str, what: str, published: str, separator: str) -> Callable[..., Ratings]:
    """Return the loader of ratings that are read from ``name.npz``, or from a file as GroupLens publishes it."""

    def read(path: Path) -> Ratings:
        stored = path.suffix == ".npz"
        if stored:
            layout = {"user": (int, ("n",)), "item": (int, ("n",)), "rating": (float, ("n",))}
            users, films, values = read_arrays(path, layout).values()
        else:
            users, films, values = read_text_table(path, separator, usecols=(0, 1, 2)).T
        # Films without ratings are left out: the numbers become 0, 1, 2, …
        (_, rows), (_, columns) = (np.unique(ids, return_inverse=True) for ids in (films, users))
        shape = int(rows.max()) + 1, int(columns.max()) + 1
        source = path.name if stored else published
        return Ratings(
            name, source, rows.astype(np.int32), columns.astype(np.int32), values, shape, (1.0, 5.0)
        )

    read.__name__, read.__doc__ = name, f"Load {what} ratings from 1 to 5."
    archive = f"{Path(published).parent}.zip"
    advice = f"unpack {archive} from https://grouplens.org/datasets/movielens/ there"
    return loader(f"{name}.npz", published, advice=advice)(read)


ml100k = _movielens(
    "ml100k", "MovieLens-100K: 1682 films (rows), 943 users (columns), 100000", "ml-100k/u.data", "\t"
)
ml1m = _movielens(
    "ml1m", "MovieLens-1M: 3706 rated films (rows), 6040 users (columns), 1000209", "ml-1m/ratings.dat", "::"
)


@loader()
def picture() -> Ratings:
    """Load a photograph of scikit-learn's: 427 rows, its 640 columns in red, green and blue, from 0 to 1."""
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
