"""Related regressions: examples, labels, and the task that each example belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from problems.arrays import found_in, read_text_table
from problems.datasets import data_folder
from rmopt.core.arguments import number
from rmopt.core.errors import InvalidInputError
from rmopt.core.files import read_arrays, reading

__all__ = ["TaskBundle", "parkinsons"]

PARKINSONS_FILE, PARKINSONS_TEXT = "parkinsons_telemonitoring.npz", "parkinsons_updrs.data"


@dataclass(frozen=True, eq=False)
class TaskBundle:
    """Examples of several regression tasks.

    Attributes
    ----------
    name, source : str
        The registered name, and what was read.
    X : array, shape (N, m)
    y : array, shape (N,)
    task : int array, shape (N,)
        0 .. n_tasks − 1, each with at least two examples.

    Raises
    ------
    InvalidInputError
        When the parts do not belong together, a number is not finite, or a task has fewer than two examples.
    """

    name: str
    source: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    task: NDArray[np.int64]

    def __post_init__(self) -> None:
        flaw = None
        if self.X.ndim != 2 or not len(self.X) == len(self.y) == len(self.task) or len(self.y) == 0:
            flaw = "X, y and task must have one row per example"
        elif not (np.isfinite(self.X).all() and np.isfinite(self.y).all()):
            flaw = "X or y holds NaN or infinity"
        elif not 0 <= self.task.min() <= self.task.max() < len(self.y) or np.bincount(self.task).min() < 2:
            flaw = "each task needs at least two examples"
        if flaw:
            raise InvalidInputError(f"the tasks {self.name!r} (from {self.source}) cannot be used: {flaw}.")

    def held_out(self, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
        """Return which examples a random split holds out: this share, rounded, of each task.

        Raises
        ------
        InvalidInputError
            When the fraction is out of range.
        """
        number("the held-out share", fraction, above=0, below=1)
        rng, mask = np.random.default_rng(seed), np.zeros(len(self.y), dtype=bool)
        for task in range(int(self.task.max()) + 1):
            members = rng.permutation(np.flatnonzero(self.task == task))
            mask[members[: min(max(round(fraction * len(members)), 1), len(members) - 1)]] = True
        return mask


def parkinsons(data_home: Path | str | None = None) -> TaskBundle:
    """Load Parkinsons telemonitoring: 42 patients (tasks), 5875 recordings, 19 features, the label total_UPDRS.

    The features are those of Mishra et al. 2019: all columns but the patient and the two UPDRS scores, as they are.

    Parameters
    ----------
    data_home : path, optional
        A folder with ``parkinsons_telemonitoring.npz``, or with UCI's ``parkinsons_updrs.data``; see
        `problems.datasets.data_folder`.

    Raises
    ------
    StorageError
        When the file is missing or damaged.
    """
    path = found_in(
        data_folder(data_home),
        (PARKINSONS_FILE, PARKINSONS_TEXT),
        "put the latter there from https://archive.ics.uci.edu/dataset/189",
    )
    if path.name == PARKINSONS_FILE:
        table = read_arrays(path, {"X": (float, (None, 22))})["X"]
    else:
        table = read_text_table(path, ",", skiprows=1)
    with reading(path):
        if table.shape[1] != 22:
            raise ValueError(f"it has {table.shape[1]} columns, not 22")
        _, task = np.unique(table[:, 0], return_inverse=True)
        features = np.delete(table, [0, 4, 5], axis=1)
        return TaskBundle("parkinsons", path.name, features, table[:, 5].copy(), task.astype(np.int64))
