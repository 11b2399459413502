"""BoostMetric: a metric as a sum of rank-one matrices, found by boosting (Shen et al. 2012)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, eigsh

from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number
from rmopt.costs.bilinear import checked_triplets
from rmopt.costs.rows import as_rows

Array = np.ndarray

# Its square times a number of features is finite.
LARGEST = 1e150


def boost_metric(
    X: Any,
    triplets: Any,
    *,
    penalty: float = 1e-7,
    n_learners: int = 500,
) -> Array:
    """Minimise log Σ exp(−⟨A_t, W⟩) + v tr W with A_t = (q − n)(q − n)ᵀ − (q − p)(q − p)ᵀ.

    Each weak learner is u uᵀ for the leading eigenvector u of Σ_t p_t A_t, where p_t ∝ exp(−⟨A_t, W⟩); its weight
    solves a one-dimensional equation (Shen, Kim, Liu, Wang and van den Hengel 2012, Algorithm 1).

    Parameters
    ----------
    X : array or sparse matrix, shape (N, d)
    triplets : int array, shape (T, 3)
        Row numbers: query, positive, negative.
    penalty : float
        v > 0: the price of the trace, and the least eigenvalue that is worth a learner.
    n_learners : int
        The most learners.

    Returns
    -------
    array, shape (d, d)
        W, positive semidefinite.

    Raises
    ------
    InvalidInputError
        For bad data or parameters out of range.
    """
    rows = as_rows(X, "X")
    triplets = checked_triplets(triplets, rows.shape[0], rows.shape[0])
    penalty, n_learners = number("penalty", penalty, above=0), integer("n_learners", n_learners, 1)
    if rows.nnz and abs(rows.data).max() > LARGEST:
        raise InvalidInputError(f"X holds numbers above {LARGEST:g}, whose squares are infinite; scale X.")
    count, d = rows.shape
    if d == 0:
        raise InvalidInputError("X has no features, and a metric needs 1 or more.")
    q, p, n = triplets.T
    scores, W, start = np.zeros(len(q)), np.zeros((d, d)), np.ones(d)
    for _ in range(n_learners):
        weights = np.exp(scores.min() - scores)
        weights /= weights.sum()
        spread = _spread(weights, q, p, n, count)
        value, vector = _leading(rows, spread, start)
        if value <= penalty:
            break
        start = vector
        place = np.asarray(rows @ vector)
        gain = (place[q] - place[n]) ** 2 - (place[q] - place[p]) ** 2
        size = _weight(weights, gain, penalty)
        if size == 0.0:
            break
        scores += size * gain
        W += size * np.outer(vector, vector)
    return W


def _spread(weights: Array, q: Array, p: Array, n: Array, count: int) -> Any:
    """Return S, of shape (N, N), with Xᵀ S X = Σ_t p_t A_t: what is left of n nᵀ − p pᵀ − q(n − p)ᵀ − (n − p)qᵀ."""
    diagonal = np.bincount(n, weights, count) - np.bincount(p, weights, count)
    entries = (np.concatenate([weights, -weights]), (np.concatenate([q, q]), np.concatenate([p, n])))
    cross = sp.csr_array(entries, shape=(count, count))
    return sp.diags_array(diagonal).tocsr() + cross + cross.T


def _leading(rows: Any, spread: Any, start: Array) -> tuple[float, Array]:
    """Return the largest eigenvalue of Xᵀ S X with its eigenvector."""
    d = rows.shape[1]
    if d < 10:
        values, vectors = np.linalg.eigh((rows.T @ (spread @ rows)).toarray())
        return float(values[-1]), vectors[:, -1]
    operator = LinearOperator((d, d), matvec=lambda x: rows.T @ (spread @ (rows @ x)), dtype=float)
    values, vectors = eigsh(operator, k=1, which="LA", v0=start, tol=1e-6)
    return float(values[0]), vectors[:, 0]


def _weight(weights: Array, gain: Array, penalty: float) -> float:
    """Return w with Σ p_t h_t exp(−w h_t) = v Σ p_t exp(−w h_t): where the cost stops falling along the learner."""

    def slope(size: float) -> float:
        moved = weights * np.exp(-size * (gain - gain.min()))
        return float(moved @ (gain - penalty))

    if slope(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while slope(high) > 0.0 and high < 1e6:
        high *= 2.0
    # All triplets gain: more weight always helps, and the largest that was tried is taken.
    return high if slope(high) > 0.0 else float(brentq(slope, 0.0, high))
