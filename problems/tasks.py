"""Related regressions: examples, labels, and the task that each example belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from problems.arrays import read_text_table
from problems.datasets import DataSet, loader, stratified
from rmopt.core.arguments import number
from rmopt.core.files import read_arrays

__all__ = ["TaskBundle", "parkinsons"]

PARKINSONS_FILE, PARKINSONS_TEXT = "parkinsons_telemonitoring.npz", "parkinsons_updrs.data"


@dataclass(frozen=True, eq=False)
class TaskBundle(DataSet):
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

    _what = "tasks"
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    task: NDArray[np.int64]

    def _flaw(self) -> str | None:
        if self.X.ndim != 2 or not len(self.X) == len(self.y) == len(self.task) or len(self.y) == 0:
            return "X, y and task must have one row per example"
        if not (np.isfinite(self.X).all() and np.isfinite(self.y).all()):
            return "X or y holds NaN or infinity"
        if not 0 <= self.task.min() <= self.task.max() < len(self.y) or np.bincount(self.task).min() < 2:
            return "each task needs at least two examples"
        return None

    def held_out(self, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
        """Return which examples a random split holds out: this share, rounded, of each task.

        Raises
        ------
        InvalidInputError
            When the fraction is out of range.
        """
        return stratified(self.task, number("the held-out share", fraction, above=0, below=1), seed, 1)


@loader(
    PARKINSONS_FILE,
    PARKINSONS_TEXT,
    advice="put the latter there from https://archive.ics.uci.edu/dataset/189",
)
def parkinsons(path: Path) -> TaskBundle:
    """Load Parkinsons telemonitoring: 42 patients (tasks), 5875 recordings, 19 features, the label total_UPDRS.

    The features are those of Mishra et al. 2019: all columns but the patient and the two UPDRS scores, as they are.
    """
    if path.name == PARKINSONS_FILE:
        table = read_arrays(path, {"X": (float, (None, 22))})["X"]
    else:
        table = read_text_table(path, ",", skiprows=1)
    if table.shape[1] != 22:
        raise ValueError(f"it has {table.shape[1]} columns, not 22")
    _, task = np.unique(table[:, 0], return_inverse=True)
    features = np.delete(table, [0, 4, 5], axis=1)
    return TaskBundle("parkinsons", path.name, features, table[:, 5].copy(), task.astype(np.int64))
