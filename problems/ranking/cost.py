"""The losses of label ranking: a margin of 1 between true labels and the best wrong one, and the cross-entropy."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logit

from problems.batches import RowBatches, columns_that_occur
from problems.ranking.kernels import below, turn_to_residuals
from problems.validation import table_of_labels
from rmopt.core import Factored, FiniteSum, LowRankPoint
from rmopt.core.ambient import Array
from rmopt.core.matrices import as_rows
from rmopt.core.streams import Stream, generator
from rmopt.linalg import tall_qr

# Rows that are scored at a time.
BLOCK = 512
# Extra columns, and products with the matrix and its transpose, for leading singular vectors accurate enough for a
# start (Halko, Martinsson and Tropp 2011).
OVERSAMPLING, POWERS = 10, 4


class LabelRanking(FiniteSum):
    """Σᵢ Σ_{y true for i} [(W xᵢ)_ȳ − (W xᵢ)_y + 1]₊ with ȳ the best-scored wrong label of row i.

    The multilabel hinge of Shalit et al. (2012), §7.2.1. Its subgradient for one row x is g xᵀ with
    g = d·e_ȳ − Σ e_y over the d true labels that violate the margin. The paper prints rows that are neither rank-one
    nor a subgradient. Rows without labels, or with all of them, have no loss.

    Parameters
    ----------
    X : array or sparse matrix, shape (N, n)
    Y : array or sparse matrix, shape (N, L)
        Indicators: 1 for true labels, and 0 for others.

    Raises
    ------
    InvalidInputError
        For shapes that do not match, or fewer than two labels.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking import LabelRanking
    >>> X, Y = np.eye(2), np.array([[1, 0, 0], [0, 1, 1]])
    >>> cost = LabelRanking(X, Y)
    >>> scores = np.array([[2.0, 0.5, 0.0], [0.0, 3.0, 0.4]])
    >>> round(cost.value(scores.T), 3)
    0.6
    """

    point_type = (LowRankPoint, np.ndarray)

    def __init__(self, X: Any, Y: Any) -> None:
        self.X = as_rows(X, "X")
        self.Y = table_of_labels(Y, self.X.shape[0], 2)

    @property
    def n_terms(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of W, (L, n)."""
        return self.Y.shape[1], self.X.shape[1]

    def value(self, point: LowRankPoint | Array) -> float:
        total = 0.0
        for row, scores in self._scored(point, np.arange(self.n_terms)):
            best, violated = self._violated(row, scores)
            if violated.size:
                total += float(np.sum(scores[best] - scores[violated] + 1.0))
        return total

    def term_gradient(self, point: LowRankPoint | Array, terms: Array) -> Factored:
        """Return the subgradient of the losses of some rows, as an operator of at most that rank."""
        rows = np.asarray(terms)
        columns = sp.lil_array((self.shape[0], rows.size))
        for i, (row, scores) in enumerate(self._scored(point, rows)):
            columns[:, [i]] = self.label_gradient(row, scores)[:, None]
        return Factored(columns.tocsr(), self.X[rows].T)

    def _scored(self, point: LowRankPoint | Array, rows: Array) -> Iterator[tuple[int, Array]]:
        """Yield rows with their scores, one block in memory at a time."""
        for block in np.split(rows, range(BLOCK, rows.size, BLOCK)):
            yield from zip(block.tolist(), label_scores(point, self.X[block]), strict=True)

    def label_gradient(self, row: int, scores: Array) -> Array:
        """Return the subgradient of the loss of a row with respect to its scores, shape (L,)."""
        gradient = np.zeros(scores.size)
        best, violated = self._violated(row, scores)
        gradient[violated] = -1.0
        gradient[best] += violated.size
        return gradient

    def labels(self, row: int) -> Array:
        """Return the true labels of a row, in ascending order."""
        return self.Y.indices[self.Y.indptr[row] : self.Y.indptr[row + 1]]

    def _violated(self, row: int, scores: Array) -> tuple[int, Array]:
        """Return the best-scored wrong label and the true labels within a margin of 1 of it."""
        own = self.labels(row)
        if own.size in (0, scores.size):
            return 0, own[:0]
        wrong = scores.copy()
        wrong[own] = -np.inf
        best = int(np.argmax(wrong))
        return best, own[scores[best] - scores[own] + 1.0 > 0.0]


class WarpRanking(LabelRanking):
    """`LabelRanking` by sampled violations instead of the best wrong label (Weston et al. 2011, WSABIE).

    A term is a pair (row, draw). The draw seeds small random numbers: they pick a true label, then wrong labels one
    by one until one violates the margin, at most their number. If it took N tries, the true label's rank is estimated
    as r = ⌊(L − number of true labels) / N⌋ and the subgradient of its loss is weighted by 1 + 1/2 + … + 1/r. No step
    scores all labels.

    The value of this cost is that of `LabelRanking`.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SGD
    >>> from problems.ranking import WarpRanking
    >>> cost = WarpRanking(np.eye(8), np.repeat(np.eye(4), 2, axis=0))
    >>> terms = lambda rng, start, size: rng.integers((8, 1000), size=(size, 2))
    >>> sgd = SGD(0.1, max_iter=5000, sampler=terms)
    >>> point = sgd.run(Problem(FixedRankEmbedded(4, 8, 3), cost), random_state=0).point
    >>> cost.value(point) < 1e-6
    True
    """

    term_width = 2

    @property
    def term_ranges(self) -> list[tuple[int, int | None]]:
        """Rows, and arbitrary draws."""
        return [(0, self.n_terms), (0, None)]

    def term_gradient(self, point: LowRankPoint | Array, terms: Array) -> Factored:
        """Return Σ weight · (e_wrong − e_true) xᵀ over pairs (row, draw), as an operator."""
        pairs = np.asarray(terms).reshape(-1, 2)
        columns = sp.lil_array((self.shape[0], len(pairs)))
        for i, (row, draw) in enumerate(pairs.tolist()):
            found = self.violation(label_scores(point, self.X[[row]])[0], row, draw)
            if found is not None:
                right, wrong, weight = found
                columns[right, i], columns[wrong, i] = -weight, weight
        return Factored(columns.tocsr(), self.X[pairs[:, 0]].T)

    def gradient(self, point: LowRankPoint | Array) -> Factored:
        """Return the subgradient of `LabelRanking`, which is not exactly the sum of the terms."""
        return LabelRanking.term_gradient(self, point, np.arange(self.n_terms))

    def violation(self, scores: Array, row: int, draw: int) -> tuple[int, int, float] | None:
        """Return a true label, a wrong one that violates its margin, and the weight, or None if none is found."""
        own, n_labels = self.labels(row), scores.size
        if own.size in (0, n_labels):
            return None
        state, pick = below(np.uint64(draw), own.size)
        right, n_wrong = own[pick], n_labels - own.size
        for tries in range(1, n_wrong + 1):
            state, wrong = below(np.uint64(state), n_wrong)
            for label in own:
                wrong += wrong >= label
            if scores[wrong] - scores[right] + 1.0 > 0.0:
                return int(right), int(wrong), float(np.sum(1.0 / np.arange(1, n_wrong // tries + 1)))
        return None


def label_scores(point: LowRankPoint | Array, X: Any) -> Array:
    """Return the scores W x of all labels, shape (len(X), L)."""
    if isinstance(point, LowRankPoint):
        return (X @ point.V) @ (point.U @ point.S).T
    return X @ point.T


class LogisticLabels(RowBatches):
    """Σ over rows and labels of log(1 + exp(±score)), with + for wrong labels.

    Not in the LORETA paper. The score of label l for a row x is ``x A b_l + c_l``, and the loss the cross-entropy of
    all labels. A is shared, so that labels learn from each other. The point stacks A and, below, one row (b_l, c_l)
    for each label. The last column of A is unused and constant.

    Parameters
    ----------
    X : array or sparse matrix, shape (N, n)
    Y : array or sparse matrix, shape (N, L)
        Indicators: 1 for true labels, and 0 for others.
    dropout : float
        The share of the words of a row left out in each batch, with the others scaled up; at least 0 and below 1.

    Raises
    ------
    InvalidInputError
        For shapes that do not match, or fewer than two labels.

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

    def __init__(self, X: Any, Y: Any, dropout: float = 0.0) -> None:
        super().__init__(X, dropout)
        self.Y = table_of_labels(Y, self.rows.shape[0], 2)

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
        """Return the gradient of the full sum, with all words and all labels."""
        return sum((slopes(*block) for block in self._blocks(point)), np.zeros(point.shape))

    def row_gradient(self, point: Array, terms: Array) -> tuple[Array, Array]:
        X, features, numbers = self.batch(terms)
        X = columns_that_occur(X, features)
        X.data /= 1.0 - self.dropout
        labels = np.arange(self.rows.shape[1], len(point))
        return np.concatenate([features, labels]), slopes(point[features], point[labels], X, self.Y[numbers])

    def _blocks(self, point: Array) -> Iterator[tuple[Array, Array, sp.csr_array, sp.csr_array]]:
        """Yield the embeddings of features and labels, with blocks of rows."""
        A, B = np.split(point, [self.rows.shape[1]])
        for start in range(0, self.n_terms, BLOCK):
            yield A, B, self.rows[start : start + BLOCK], self.Y[start : start + BLOCK]


def embedded(X: Any, A: Array) -> Array:
    """Return the embeddings of rows, with 1 for the intercept as the last number."""
    Z = np.asarray(X @ A)
    Z[:, -1] = 1.0
    return Z


def slopes(A: Array, B: Array, X: Any, Y: sp.csr_array) -> Array:
    """Return the gradient of the loss with respect to A and, below, to B."""
    Z = embedded(X, A)
    residual = Z @ B.T
    turn_to_residuals(residual, Y.indptr, Y.indices)
    back = residual @ B
    back[:, -1] = 0.0
    return np.vstack([X.T @ back, residual.T @ Z])


def first_step(X: sp.csr_array, Y: sp.csr_array, rank: int, seed: int) -> Array:
    """Return the point that the first Newton step from constant probabilities reaches, along few directions.

    With probabilities p_l and variances v_l = p_l (1 - p_l) of the labels alone, the gradient is X^T (Y - p). Divided
    by the root of v it is in units of standard deviations. Its leading singular vectors are the directions, the
    singular values their proportions, and the second derivative of the loss gives the step length. With few data a
    random start would survive in the learned model.
    """
    count, (n, n_labels) = X.shape[0], (X.shape[1], Y.shape[1])
    # Half a row more of either kind, so that no label is certain.
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
