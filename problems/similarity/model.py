"""A learned bilinear similarity, and where learning it starts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from problems.loreta import SavedMatrix
from rmopt.core import LowRankPoint, PSDPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import one_of
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank

INITS = ("identity", "gaussian")


def initial_point(
    manifold: FixedRankEmbedded | PSDFixedRank, init: str, seed: int | None, unit: float = 1.0
) -> LowRankPoint | PSDPoint:
    """Return the start: `unit` times "identity" (zero-padded) or "gaussian" (a random point)."""
    identity = one_of("init", init, INITS) == "identity"
    point = manifold.identity() if identity else manifold.random_point(np.random.default_rng(seed))
    return replace(point, S=unit * point.S)


def warn_of_identity(point: LowRankPoint | PSDPoint, stacklevel: int) -> None:
    """Warn where most of the ones of the "identity" start are left, as where their features are 0 in all rows.

    Row and column of W are still those of the identity: the same number on all diagonals, and the length of both.
    Of a single number that is always so.
    """
    k, (A, B) = point.rank, point.balanced_factors()
    diagonal, rows, columns = (
        np.einsum("ij,jl,il->i", one[:k], gram, other[:k])
        for one, gram, other in ((A, np.eye(k), B), (A, B.T @ B, A), (B, A.T @ A, B))
    )
    unit = np.median(diagonal)
    off = np.abs([diagonal / unit, rows / unit**2, columns / unit**2] - np.ones((3, 1)))
    left = int((off.max(axis=0) < 1e-9).sum())
    if 2 * left > k and point.shape[0] > 1:
        warnings.warn(
            f"{left} of the {k} directions of the model are those of init = 'identity' still: no step moved them. "
            f"Where their features, of the first {k}, are 0 in all rows, as hashed words and pixels can be, give "
            "init = 'gaussian', or put frequent features first.",
            stacklevel=stacklevel,
        )


@dataclass(frozen=True)
class BilinearSimilarity(SavedMatrix):
    """The similarity qᵀ W d of a query and a document.

    Attributes
    ----------
    point : LowRankPoint, PSDPoint or array
        W, of shape (n_features, n_features).
    about : dict
        JSON-able parameters that are saved with it.

    See Also
    --------
    LoretaSimilarity : learns one, and keeps it as ``model_``.
    problems.serving.SimilarityIndex : searches many documents by it.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.similarity import BilinearSimilarity
    >>> similarity = BilinearSimilarity(np.diag([1.0, 2.0, 0.0]))
    >>> similarity.similarity([[1.0, 1.0, 1.0]], np.eye(3)).tolist()
    [[1.0, 2.0, 0.0]]
    """

    kind = "similarity"
    columns = "n"

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
