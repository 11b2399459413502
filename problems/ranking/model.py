"""A learned label ranking: what remains after the training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from problems.arrays import load_point, save_point
from rmopt.core import LowRankPoint, PSDPoint, StorageError

Array = np.ndarray


@dataclass(frozen=True)
class LabelScores:
    """The scores W x of all labels for an example x.

    Attributes
    ----------
    point : LowRankPoint or array
        W, of shape (n_labels, n_features).
    about : dict
        JSON-able parameters that are saved with it.
    """

    point: LowRankPoint | Array
    about: dict[str, Any] = field(default_factory=dict)

    def __call__(self, X: Any) -> Array:
        """Return the scores of all labels, shape (len(X), n_labels)."""
        if isinstance(self.point, LowRankPoint):
            return np.asarray((X @ self.point.V) @ (self.point.U @ self.point.S).T)
        return np.asarray(X @ self.point.T)

    def save(self, path: Path | str) -> None:
        """Write the model as an ``.npz`` file, without pickle."""
        save_point(path, "label ranking", self.point, self.about)

    @classmethod
    def load(cls, path: Path | str) -> LabelScores:
        """Read a model that `save` wrote."""
        point, about = load_point(path, "label ranking")
        if isinstance(point, PSDPoint):
            raise StorageError(
                f"{path} holds a symmetric matrix, not the scores of labels; replace or remove it."
            )
        return cls(point, about)
