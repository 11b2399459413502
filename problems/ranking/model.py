"""A learned label ranking: what remains after the training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from problems.loreta import SavedMatrix
from rmopt.core import LowRankPoint, PSDPoint, StorageError

Array = np.ndarray


@dataclass(frozen=True)
class LabelScores(SavedMatrix):
    """The scores W x of all labels for an example x.

    Attributes
    ----------
    point : LowRankPoint or array
        W, of shape (n_labels, n_features).
    about : dict
        JSON-able parameters that are saved with it.
    """

    kind = "label ranking"

    def __call__(self, X: Any) -> Array:
        """Return the scores of all labels, shape (len(X), n_labels)."""
        if isinstance(self.point, LowRankPoint):
            return np.asarray((X @ self.point.V) @ (self.point.U @ self.point.S).T)
        return np.asarray(X @ self.point.T)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        found = super().load(path)
        if isinstance(found.point, PSDPoint):
            raise StorageError(
                f"{path} holds a symmetric matrix, not the scores of labels; replace or remove it."
            )
        return found
