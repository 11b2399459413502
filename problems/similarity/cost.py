"""The softmax over the cosines of a batch of documents, a loss for similarities from classes.

Not in the LORETA paper. Every document of a batch is a query. The loss is minus the logarithm of the probability of
the documents of its class under a softmax over the cosines with all others, as in supervised contrastive learning
(Khosla et al. 2020, with the sum outside the logarithm), here with the linear embedding x ↦ Aᵀ x / ‖Aᵀ x‖.
"""

from typing import Any

import numpy as np

from problems.batches import RowBatches, columns_that_occur
from problems.rows import unit_rows
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, number


class ContrastiveSum(RowBatches):
    """The mean loss over the documents of a batch, each compared with the others of the batch.

    A stream: a batch is contrasted within itself, so that there is no sum over all documents. A term is a document
    and a number. The first number of a batch seeds the choice of words left out.
    """

    remedy = "take Euclidean(n_features, rank)"
    n_terms = None

    def __init__(self, rows: Any, y: Any, temperature: float = 0.3, dropout: float = 0.3) -> None:
        super().__init__(rows, dropout)
        self.y = array("y", y)
        if self.y.shape != (self.rows.shape[0],):
            raise InvalidInputError(f"y must have {self.rows.shape[0]} classes, got {self.y.shape}.")
        self.temperature = number("temperature", temperature, above=0)

    def value(self, point: Array) -> float:
        raise InvalidInputError("this cost is a stream of batches, and has no value.")

    def gradient(self, point: Array) -> Any:
        raise InvalidInputError("this cost is a stream of batches; use `term_gradient` of a batch.")

    def row_gradient(self, point: Array, terms: Array) -> tuple[Array, Array]:
        X, rows, documents = self.batch(terms)
        X = columns_that_occur(X, rows)
        Z, lengths = unit_rows(X @ point[rows])
        scores, positive, weights = self._scores(Z, documents)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        slopes = ((weights > 0) * shares - weights * positive) / (len(Z) * self.temperature)
        along = (slopes + slopes.T) @ Z
        # The part along an embedding only changes its length.
        along -= Z * (along * Z).sum(axis=1, keepdims=True)
        return rows, np.asarray(X.T @ (along / lengths))

    def _scores(self, Z: Array, documents: Array) -> tuple[Array, Array, Array]:
        """Return cosines divided by the temperature, the pairs of one class, and one over their number by row."""
        scores = Z @ Z.T / self.temperature
        same = documents[:, None] == documents
        scores[same] = -np.inf
        # A batch of a single document has no comparison.
        np.fill_diagonal(scores, np.where(same.all(axis=1), 0.0, -np.inf))
        positive = (self.y[documents][:, None] == self.y[documents]) & ~same
        counts = positive.sum(axis=1, keepdims=True)
        return scores, positive, np.where(counts > 0, 1.0 / np.maximum(counts, 1), 0.0)
