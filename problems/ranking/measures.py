"""Measures of label rankings."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from problems.kernels import label_precisions
from problems.threads import in_pieces
from problems.validation import table_of_labels
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, numbers, sequence


def mean_average_precision(scores: Array, Y: Any) -> float:
    """Return the mean, over rows with true labels and with wrong ones, of average precision.

    Average precision is the mean, over the true labels of a row, of the precision among the labels that score at
    least as high. For these rows it is `sklearn.metrics.label_ranking_average_precision_score`, which counts rows
    without true labels as 1. Here they are left out, because nothing can be ranked.

    Parameters
    ----------
    scores : array, shape (N, L)
    Y : array or sparse matrix, shape (N, L)
        1 for true labels, and 0 for others.

    Raises
    ------
    InvalidInputError
        If no row has both true and wrong labels, or a score is not finite.

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
    scores, truth, found = scores[rankable], truth[rankable], np.empty(rankable.sum())
    cuts = np.linspace(0, len(found), 65).astype(int)

    def measure(_: int, first: int, last: int) -> None:
        part = scores[first:last]
        label_precisions(part, np.sort(part, axis=1), truth[first:last], found[first:last])

    # Sorting takes some ten operations a score.
    in_pieces(measure, cuts, 10 * scores.size)
    return float(found.mean())


def best_labels(scores: Array, k: int) -> Array:
    """Return the numbers of the k best-scored labels of each row, best first, equal ones in the order of columns."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def precision_at(scores: Array, Y: Any, ks: Sequence[int] = (1, 3, 5)) -> dict[int, float]:
    """Return for each k the mean share, over all rows, of true labels among the k best-scored ones.

    Rows without true labels count, as in the extreme classification repository. Of equal scores those of the first
    columns are used.

    Parameters
    ----------
    scores : array, shape (N, L)
    Y : array or sparse matrix, shape (N, L)
        1 for true labels, and 0 for others.
    ks : sequence of int
        From 1 to L.

    Raises
    ------
    InvalidInputError
        For shapes that do not match, a k out of range, or a score that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking import precision_at
    >>> precision_at(np.array([[3.0, 2.0, 1.0]]), [[1, 0, 1]], (1, 2))
    {1: 1.0, 2: 0.5}
    """
    truth, scores = _checked(scores, Y)
    ks = [integer("each of ks", k, 1, truth.shape[1]) for k in sequence("ks", ks)]
    hits = np.take_along_axis(truth, best_labels(scores, max(ks, default=1)), axis=1)
    return {k: float(hits[:, :k].mean()) for k in ks}


def _checked(scores: Array, Y: Any) -> tuple[Array, Array]:
    scores = numbers("scores", scores)
    truth = table_of_labels(Y, len(scores) if scores.ndim else 0, 2).toarray() > 0
    return truth, numbers("scores", scores, truth.shape)
