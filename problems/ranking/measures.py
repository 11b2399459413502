"""How well labels are ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import label_ranking_average_precision_score

from problems.validation import table_of_labels
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, integer, number, numbers, sequence


def mean_average_precision(scores: Array, Y: Any) -> float:
    """Return the mean, over rows with true labels and with wrong ones, of average precision.

    Average precision is the mean, over the true labels of a row, of the precision among the labels that score
    at least as high. For these rows it is `sklearn.metrics.label_ranking_average_precision_score`, which counts
    rows without true labels as 1; here they are left out, as nothing can be ranked there.

    Parameters
    ----------
    scores : array, shape (N, L)
    Y : array or sparse matrix, shape (N, L)
        1 where a label is true, and 0 elsewhere.

    Raises
    ------
    InvalidInputError
        When no row has both true and wrong labels, or a score is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking import mean_average_precision
    >>> scores = np.array([[0.9, 0.1, 0.5]])
    >>> mean_average_precision(scores, [[1, 0, 0]])
    1.0
    >>> mean_average_precision(scores, [[0, 0, 1]])
    0.5
    """
    truth, scores = _checked(scores, Y)
    count = truth.sum(axis=1)
    rankable = (count > 0) & (count < truth.shape[1])
    if not rankable.any():
        raise InvalidInputError("no row of Y has both true and wrong labels; nothing can be ranked.")
    return float(label_ranking_average_precision_score(truth[rankable], scores[rankable]))


def best_labels(scores: Array, k: int) -> Array:
    """Return the numbers of the k best-scored labels of each row, best first; equal ones in the order of columns."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def precision_at(scores: Array, Y: Any, ks: Sequence[int] = (1, 3, 5)) -> dict[int, float]:
    """Return for each k the mean share, over all rows, of true labels among the k best-scored ones.

    Rows without true labels count, as in the extreme classification repository; of equal scores those of the first
    columns are taken.

    Parameters
    ----------
    scores : array, shape (N, L)
    Y : array or sparse matrix, shape (N, L)
        1 where a label is true, and 0 elsewhere.
    ks : sequence of int
        From 1 to L.

    Raises
    ------
    InvalidInputError
        For shapes that do not belong together, a k out of range, or a score that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking import precision_at
    >>> precision_at(np.array([[3.0, 2.0, 1.0]]), [[1, 0, 1]], (1, 2))
    {1: 1.0, 2: 0.5}
    """
    hits, _, _, ks = _hits(scores, Y, ks)
    return {k: float(hits[:, :k].mean()) for k in ks}


def propensities(Y: Any, a: float = 0.55, b: float = 1.5) -> Array:
    """Return how probable it is that a true label was written down, by how often it was, shape (L,).

    With N rows and a label that N_l of them have, 1 / (1 + C exp(-a log(N_l + b))) with C = (log N - 1)(b + 1)^a.

    Parameters
    ----------
    Y : array or sparse matrix, shape (N, L)
        True labels of the training rows.
    a, b : float
        Properties of the data, not negative and b above 0; 0.55 and 1.5 are those of most sets of the extreme
        classification repository.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking.measures import propensities
    >>> Y = np.zeros((1000, 3))
    >>> Y[:500, 0] = Y[:10, 1] = 1.0
    >>> propensities(Y).round(2).tolist()
    [0.76, 0.28, 0.11]
    """
    table = table_of_labels(Y, Y.shape[0] if hasattr(Y, "shape") else len(Y), 2)
    if table.shape[0] < 3:
        raise InvalidInputError(
            f"Y must have at least 3 rows to say how rare labels are, got {table.shape[0]}."
        )
    a, b = number("a", a, least=0), number("b", b, above=0)
    counts = np.asarray(table.sum(axis=0)).ravel()
    factor = (np.log(table.shape[0]) - 1.0) * (b + 1.0) ** a
    return np.asarray(1.0 / (1.0 + factor * (counts + b) ** -a))


def propensity_scored_precision_at(
    scores: Array, Y: Any, propensities: Array, ks: Sequence[int] = (1, 3, 5)
) -> dict[int, float]:
    """Return for each k the precision where rare labels weigh more, as a share of the best that is possible.

    A true label among the k best-scored ones counts as one over its propensity (Jain, Prabhu and Varma 2016).

    Parameters
    ----------
    scores : array, shape (N, L)
    Y : array or sparse matrix, shape (N, L)
        1 where a label is true, and 0 elsewhere.
    propensities : array, shape (L,)
        See `propensities`.
    ks : sequence of int
        From 1 to L.

    Raises
    ------
    InvalidInputError
        As `precision_at`, and when no row has a true label.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking.measures import propensity_scored_precision_at
    >>> scores, Y = np.array([[3.0, 2.0, 1.0]]), [[1, 0, 1]]
    >>> found = propensity_scored_precision_at(scores, Y, np.array([0.8, 0.8, 0.2]), (1, 2))
    >>> {k: round(value, 3) for k, value in found.items()}
    {1: 0.25, 2: 0.2}
    """
    hits, truth, best_ones, ks = _hits(scores, Y, ks)
    if not truth.any():
        raise InvalidInputError("no row of Y has a true label; nothing can be found.")
    chances = numbers("propensities", propensities, (truth.shape[1],))
    if not (chances > 0.0).all():
        raise InvalidInputError(f"propensities must be positive, and {chances.min():g} is among them.")
    weights = 1.0 / chances
    found = hits * weights[best_ones]
    best = -np.sort(truth * -weights, axis=1)
    return {k: float(found[:, :k].sum() / best[:, :k].sum()) for k in ks}


def _hits(scores: Array, Y: Any, ks: Sequence[int]) -> tuple[Array, Array, Array, list[int]]:
    """Return whether the labels that are scored best in each row are true, all truth, these labels, and ks."""
    truth, scores = _checked(scores, Y)
    ks = [integer("each of ks", k, 1, truth.shape[1]) for k in sequence("ks", ks)]
    best = best_labels(scores, max(ks, default=1))
    return np.take_along_axis(truth, best, axis=1), truth, best, ks


def _checked(scores: Array, Y: Any) -> tuple[Array, Array]:
    scores = array("scores", scores)
    if scores.ndim != 2 or scores.dtype.kind not in "biuf" or not len(scores):
        raise InvalidInputError(
            f"scores must be a table of numbers, got {scores.dtype} of shape {scores.shape}."
        )
    truth = table_of_labels(Y, len(scores), 2).toarray() > 0
    if truth.shape != scores.shape:
        raise InvalidInputError(f"scores and Y must have one shape, got {scores.shape} and {truth.shape}.")
    if not np.isfinite(scores).all():
        raise InvalidInputError("scores hold NaN or infinite values; the model overflowed.")
    # Booleans and unsigned numbers have no negative, by which labels are sorted.
    return truth, scores if scores.dtype in (np.float32, np.float64) else scores.astype(float)
