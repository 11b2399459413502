"""A learned label ranking: what remains after the training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmopt.core import InvalidInputError, LowRankPoint
from rmopt.core.files import load_arrays, save_arrays

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
        point = self.point
        arrays = (
            {"U": point.U, "S": point.S, "V": point.V} if isinstance(point, LowRankPoint) else {"W": point}
        )
        save_arrays(path, arrays, {"kind": "label ranking", **self.about})

    @classmethod
    def load(cls, path: Path | str) -> LabelScores:
        """Read a model that `save` wrote."""
        arrays, about = load_arrays(path)
        if about.pop("kind", None) != "label ranking":
            raise InvalidInputError(f"{path} does not hold a label ranking model.")
        return cls(arrays["W"] if "W" in arrays else LowRankPoint(**arrays), about)
