"""The cost of embedding users, items and tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.coembedding import kernels
from rmopt.core import InvalidInputError
from rmopt.core.arguments import array, integer, sequence
from rmopt.costs import Grid, PairwiseDistance

Array = np.ndarray


class TagRanking(PairwiseDistance):
    """Σ over posts, their tags y and all other tags ȳ of ln(1 + exp(d(x, z, y) − d(x, z, ȳ))).

    Mirzazadeh et al. (2015), equation 14 without its trace term, with the logistic loss of Rendle and Schmidt-Thieme
    (2009); d(x, z, y) is the squared distance of the embeddings of user x and tag y plus that of item z and tag y.
    W = YYᵀ is p × p with p = n_users + n_items + n_tags.

    Parameters
    ----------
    triples : int array, shape (N, 3)
        Numbers of user, item and tag.
    counts : (int, int, int), optional
        Numbers of users, items and tags; one more than the largest in `triples` unless given.

    Raises
    ------
    InvalidInputError
        When the triples are not such a table, or every tag belongs to every post.
    """

    lower_bound = 0.0

    def __init__(self, triples: Any, counts: tuple[int, int, int] | None = None) -> None:
        triples = array("triples", triples)
        if triples.ndim != 2 or triples.shape[1:] != (3,) or not len(triples):
            raise InvalidInputError(
                f"triples must be a table of user, item and tag, got shape {triples.shape}."
            )
        if not np.issubdtype(triples.dtype, np.integer) or triples.min() < 0:
            raise InvalidInputError("triples must hold integers from 0: numbers of users, items and tags.")
        least = triples.max(axis=0) + 1
        wanted = least if counts is None else sequence("counts", counts)
        self.counts = tuple(integer("counts", n, 1) for n in wanted)
        if len(self.counts) != 3 or (np.array(self.counts) < least).any():
            raise InvalidInputError(
                f"counts = {counts} must be at least {tuple(least.tolist())}, as the triples say."
            )
        triples = np.unique(triples.astype(np.int64), axis=0)
        self.posts, sizes = np.unique(triples[:, :2], axis=0, return_counts=True)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        # Sorted by user, item, tag: those of a post stand together.
        self.tags = np.ascontiguousarray(triples[:, 2])
        if sizes.min() == self.counts[2]:
            raise InvalidInputError(
                "every post has every tag, so there is nothing to rank; give some more tags."
            )
        n_users, n_items, n_tags = self.counts
        n = n_users + n_items
        super().__init__(sp.eye_array(n + n_tags, format="csr"), Grid(range(n), range(n, n + n_tags)))

    def loss(self, distances: Array) -> tuple[float, Array]:
        """Return the sum over posts and pairs of tags, and its slopes."""
        slopes = np.empty_like(distances)
        value = kernels.ranking_loss(distances, self.posts, self.counts[0], self.starts, self.tags, slopes)
        return value, slopes

    def curvature(self, distances: Array, change: Array) -> Array:
        bent = np.empty_like(distances)
        kernels.ranking_curvature(
            distances, self.posts, self.counts[0], self.starts, self.tags, np.ascontiguousarray(change), bent
        )
        return bent
