"""The cost of co-embedding samples and their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.coembedding import kernels
from problems.door import table_of_numbers
from rmopt.core import BlockDiagonal, InvalidInputError
from rmopt.core.matrices import sound
from rmopt.costs import Grid, PairwiseDistance

Array = np.ndarray


class MultilabelCoembedding(PairwiseDistance):
    """Σₓ sftmax over the labels of x of h̃(d(x, y) − t(x)) + sftmax over the others of h̃(t(x) − d(x, ȳ)).

    Mirzazadeh et al. (2015), equation 13 without its trace term. d is the squared distance of the embeddings of a
    sample and a label, t(x) that of a sample and the embedded threshold; sftmax z = ln Σ exp z; a sample without
    labels, or with all, has one term only. The smooth hinge is h̃(z) = (2 + z)²/4 for −2 ≤ z ≤ 0, 0 below and 1 + z
    above. (The paper prints 0 ≤ z ≤ 2, where h̃ would jump at 2 and not be smooth.)

    W = YYᵀ is p × p with p = n_features + n_labels + 1: features, labels, threshold.

    Parameters
    ----------
    X : array or sparse array, shape (n_samples, n_features)
    Y : array or sparse array, shape (n_samples, n_labels)
        1 or True where a label applies.

    Raises
    ------
    InvalidInputError
        For values that are not finite, labels that are not 0 or 1, or numbers of rows that differ.
    """

    # The hinge is parabolic between −2 and 0 and straight elsewhere.
    smooth_slope = False

    def __init__(self, X: Any, Y: Any) -> None:
        X = table_of_numbers("X", X)
        table = np.asarray(sound("Y", Y).toarray() if sp.issparse(Y) else Y)
        if table.ndim != 2 or X.shape[0] != len(table) or 0 in (*X.shape, *table.shape):
            raise InvalidInputError(
                f"X and Y must be tables with one row for each sample, got shapes {X.shape} and {table.shape}."
            )
        if not np.isin(table, (0, 1)).all():
            raise InvalidInputError("Y must hold only 0 and 1: which labels apply to a sample.")
        n, m = table.shape
        self.labels = np.ascontiguousarray(table, dtype=np.int8)
        own = sp.eye_array(m + 1, format="csr")
        features = BlockDiagonal([X.shape, own.shape], {0: X, 1: own})
        super().__init__(features, Grid(range(n), range(n, n + m + 1)))
        counts = self.labels.sum(axis=1)
        both = np.concatenate([counts, m - counts])
        # The soft maximum of k values that are at least 0 is at least ln k.
        self.lower_bound = float(np.log(both[both > 0]).sum())

    def loss(self, distances: Array) -> tuple[float, Array]:
        """Return the sum of both soft maxima over the samples, and its slopes."""
        slopes = np.empty_like(distances)
        return kernels.multilabel_loss(distances, self.labels, slopes), slopes

    def curvature(self, distances: Array, change: Array) -> Array:
        bent = np.empty_like(distances)
        kernels.multilabel_curvature(distances, self.labels, np.ascontiguousarray(change), bent)
        return bent
