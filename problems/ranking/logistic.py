"""Logistic regression of many labels with coefficients of low rank: the loss, and a start that needs no step size.

Not in the LORETA paper. The score of label l for a row x is ``x A b_l + c_l``, and the loss the cross-entropy of all
labels; A is shared, so that labels learn from each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logit

from problems.batches import RowBatches, columns_that_occur
from problems.ranking.cost import BLOCK, indicators
from problems.ranking.kernels import turn_to_residuals
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, optional
from rmopt.core.streams import Stream, generator
from rmopt.linalg import tall_qr

# Columns beyond the wanted ones, and multiplications by the matrix and its transpose, by which the leading singular
# vectors are as good as exact for a start (Halko, Martinsson and Tropp 2011).
OVERSAMPLING, POWERS = 10, 4


class LogisticLabels(RowBatches):
    """Σ over rows and labels of log(1 + exp(±score)), with + where the label is wrong.

    The point stacks A and, below, one row (b_l, c_l) for each label; the last column of A is of no use and stays.

    Parameters
    ----------
    X : array or sparse matrix, shape (N, n)
    Y : array or sparse matrix, shape (N, L)
        Indicators: 1 where a label is true, and 0 elsewhere.
    dropout : float
        The share of the words of a row that are left out, anew in each batch, the others being larger for it; from 0
        to below 1.
    n_negatives : int or None
        Labels that a batch draws among those that are true for none of its rows, each standing for as many as are
        not drawn for it; None: all of them.

    Raises
    ------
    InvalidInputError
        For shapes that do not belong together, or fewer than two labels.

    See Also
    --------
    LowRankLogisticRegression : the estimator that minimises it.
    LabelRanking : asks for an order of the labels alone.

    References
    ----------
    Yu, Jain, Kar and Dhillon, Large-scale multi-label learning with missing labels, ICML (2014),
    arXiv:1307.5101, has the same model with a penalty on the factors in place of an early end.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking import LogisticLabels
    >>> X, Y = np.eye(4), np.repeat(np.eye(2), 2, axis=0)
    >>> cost = LogisticLabels(X, Y)
    >>> factors = np.zeros((4 + 2, 3))
    >>> bool(np.isclose(cost.value(factors), 4 * 2 * np.log(2)))
    True
    """

    remedy = "take Euclidean(n_features + n_labels, rank + 1)"

    def __init__(self, X: Any, Y: Any, dropout: float = 0.0, n_negatives: int | None = None) -> None:
        super().__init__(X, dropout)
        self.Y = indicators(Y, self.rows.shape[0])
        self.n_negatives = optional(integer, 1)("n_negatives", n_negatives)

    @property
    def n_terms(self) -> int:
        """Number of rows."""
        return self.rows.shape[0]

    def value(self, point: Array) -> float:
        total = 0.0
        for A, B, X, Y in self._blocks(point):
            scores = embedded(X, A) @ B.T
            total += float(np.logaddexp(0.0, scores).sum() - Y.multiply(scores).sum())
        return total

    def gradient(self, point: Array) -> Array:
        """Return the gradient of the whole sum: with all words, and all labels."""
        return sum((slopes(*block) for block in self._blocks(point)), np.zeros(point.shape))

    def row_gradient(self, point: Array, terms: Array) -> tuple[Array, Array]:
        X, features, numbers, rng = self.batch(terms)
        X = columns_that_occur(X, features)
        X.data /= 1.0 - self.dropout
        Y = self.Y[numbers]
        labels, weights = self._labels(Y, rng)
        n = self.rows.shape[1]
        gradient = slopes(point[features], point[n + labels], X, Y[:, labels], weights)
        return np.concatenate([features, n + labels]), gradient

    def _blocks(self, point: Array) -> Iterator[tuple[Array, Array, sp.csr_array, sp.csr_array]]:
        """Give the embeddings of features and of labels, with some rows after others."""
        A, B = np.split(point, [self.rows.shape[1]])
        for start in range(0, self.n_terms, BLOCK):
            yield A, B, self.rows[start : start + BLOCK], self.Y[start : start + BLOCK]

    def _labels(self, Y: sp.csr_array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the labels that a batch looks at, and for how many each stands."""
        true = np.zeros(Y.shape[1], dtype=bool)
        true[Y.indices] = True
        others = np.flatnonzero(~true)
        if self.n_negatives is None or self.n_negatives >= len(others):
            return np.arange(Y.shape[1]), np.ones(Y.shape[1])
        drawn = rng.choice(others, self.n_negatives, replace=False, shuffle=False)
        labels = np.concatenate([np.flatnonzero(true), drawn])
        return labels, np.where(true[labels], 1.0, len(others) / self.n_negatives)


def embedded(X: Any, A: Array) -> Array:
    """Return the embeddings of rows, whose last number is 1: the intercept's."""
    Z = np.asarray(X @ A)
    Z[:, -1] = 1.0
    return Z


def slopes(A: Array, B: Array, X: Any, Y: sp.csr_array, weights: Array | float = 1.0) -> Array:
    """Return the gradient of the loss with respect to A and, below, to B, each label having a weight."""
    Z = embedded(X, A)
    residual = Z @ B.T
    turn_to_residuals(residual, Y.indptr, Y.indices)
    residual *= weights
    back = residual @ B
    back[:, -1] = 0.0
    return np.vstack([X.T @ back, residual.T @ Z])


def first_step(X: sp.csr_array, Y: sp.csr_array, rank: int, seed: int) -> Array:
    """Return the point that the first Newton step from constant probabilities reaches, along few directions.

    With probabilities p_l and variances v_l = p_l (1 - p_l) of the labels alone, the gradient is X^T (Y - p). Divided
    by the root of v it is one in units of standard deviations; of this one the leading singular vectors are the
    directions, the singular values their proportions, and the second derivative of the loss says how far to go.
    Random starts are fitted as well as the data where there are few, and so are found again in what is learned.

    Parameters
    ----------
    X : sparse array, shape (N, n)
    Y : sparse array, shape (N, L)
    rank : int
        At most n and L.
    seed : int

    Returns
    -------
    array, shape (n + L, rank + 1)
    """
    count, (n, n_labels) = X.shape[0], (X.shape[1], Y.shape[1])
    # Half a row more of either kind: no label is certain.
    p = (np.asarray(Y.sum(axis=0)).ravel() + 0.5) / (count + 1.0)
    deviations, sums = np.sqrt(p * (1.0 - p)), np.asarray(X.sum(axis=0)).ravel()

    def forth(B: Array) -> Array:
        B = B / deviations[:, None]
        return np.asarray(X.T @ (Y @ B)) - np.outer(sums, p @ B)

    def back(A: Array) -> Array:
        return (np.asarray(Y.T @ (X @ A)) - np.outer(p, sums @ A)) / deviations[:, None]

    width = min(rank + OVERSAMPLING, n, n_labels)
    B = generator(seed, Stream.START).standard_normal((n_labels, width))
    for _ in range(POWERS):
        B = tall_qr(back(tall_qr(forth(B))[0]))[0]
    Q = tall_qr(forth(B))[0]
    V, sigma, Ut = np.linalg.svd(back(Q), full_matrices=False)
    U, V, sigma = (Q @ Ut.T)[:, :rank], V[:, :rank], sigma[:rank]
    along = np.asarray(X @ (U * sigma))
    slope = float(np.sum(sigma**2 * np.sum(V * V * deviations[:, None], axis=0)))
    curvature = float(np.vdot(along.T @ along, (V * deviations[:, None] ** 2).T @ V))
    lengths = np.sqrt(sigma * (slope / curvature if curvature > 0.0 else 0.0))
    point = np.zeros((n + n_labels, rank + 1))
    point[:n, :-1], point[n:, :-1], point[n:, -1] = U * lengths, V * lengths, logit(p)
    return point
