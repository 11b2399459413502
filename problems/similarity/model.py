"""A learned bilinear similarity: what remains after the training."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from problems.arrays import load_point, save_point
from rmopt.core import LowRankPoint, PSDPoint

Array = np.ndarray


@dataclass(frozen=True)
class BilinearSimilarity:
    """The similarity qᵀ W d of a query and a document.

    Attributes
    ----------
    point : LowRankPoint, PSDPoint or array
        W, of shape (n_features, n_features).
    about : dict
        JSON-able parameters that are saved with it.
    """

    point: LowRankPoint | PSDPoint | Array
    about: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def factors(self) -> tuple[Array, Array]:
        """A and B with W = A Bᵀ; AᵀA = BᵀB where W has a rank, and B = I where it is an array."""
        if isinstance(self.point, np.ndarray):
            return self.point, np.eye(self.point.shape[1])
        return self.point.balanced_factors()

    def embed_queries(self, X: Any) -> Array:
        """Return X A, shape (len(X), rank)."""
        return np.asarray(X @ self.factors[0])

    def embed_documents(self, X: Any) -> Array:
        """Return X B, shape (len(X), rank)."""
        return np.asarray(X @ self.factors[1])

    def similarity(self, queries: Any, documents: Any) -> Array:
        """Return the scores of all pairs, shape (len(queries), len(documents))."""
        return self.embed_queries(queries) @ self.embed_documents(documents).T

    def save(self, path: Path | str) -> None:
        """Write the model as an ``.npz`` file, without pickle."""
        save_point(path, "similarity", self.point, self.about)

    @classmethod
    def load(cls, path: Path | str) -> BilinearSimilarity:
        """Read a model that `save` wrote."""
        return cls(*load_point(path, "similarity", columns="n"))
