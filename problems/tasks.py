"""Related regressions: examples, labels, and the task that each example belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from problems.arrays import read_npz, read_text_table
from problems.datasets import data_folder
from rmopt.core.errors import InvalidInputError, StorageError

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
        elif self.task.min() < 0 or np.bincount(self.task).min() < 2:
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
        if not 0.0 < fraction < 1.0:
            raise InvalidInputError(f"the held-out share {fraction} must lie between 0 and 1.")
        rng, mask = np.random.default_rng(seed), np.zeros(len(self.y), dtype=bool)
        for number in range(int(self.task.max()) + 1):
            members = rng.permutation(np.flatnonzero(self.task == number))
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
    folder = data_folder(data_home)
    if (folder / PARKINSONS_FILE).is_file():
        source, table = PARKINSONS_FILE, read_npz(folder / PARKINSONS_FILE, ("X",))["X"]
    elif (folder / PARKINSONS_TEXT).is_file():
        source, table = PARKINSONS_TEXT, read_text_table(folder / PARKINSONS_TEXT, ",", skiprows=1)
    else:
        raise StorageError(
            f"neither {PARKINSONS_FILE} nor {PARKINSONS_TEXT} is in {folder}; put the latter there from "
            "https://archive.ics.uci.edu/dataset/189, or pass as --data-home (or set RMOPT_DATA_HOME to) a folder "
            "that holds one of them."
        )
    if table.ndim != 2 or table.shape[1] != 22:
        raise StorageError(f"{folder / source} has shape {table.shape}, not 22 columns; replace it.")
    _, task = np.unique(table[:, 0], return_inverse=True)
    features = np.delete(table, [0, 4, 5], axis=1)
    return TaskBundle("parkinsons", source, features, table[:, 5].copy(), task.astype(np.int64))
