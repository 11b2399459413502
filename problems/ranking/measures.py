"""How well labels are ranked."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.kernels import average_precision
from problems.ranking.cost import indicators
from rmopt.core import InvalidInputError
from rmopt.core.arguments import array

Array = np.ndarray


def mean_average_precision(scores: Array, Y: Any) -> float:
    """Return the mean, over rows with true labels and with wrong ones, of average precision.

    Average precision is the mean, over the true labels of a row, of the precision among the labels that score
    at least as high. For these rows it is `sklearn.metrics.label_ranking_average_precision_score`, which counts
    rows without true labels as 1; here they are left out, as nothing can be ranked there.

    Parameters
    ----------
    scores : array, shape (N, L)
    Y : array or sparse matrix, shape (N, L)
        What is not zero is a true label.

    Raises
    ------
    InvalidInputError
        When no row has both true and wrong labels, or a score is not finite.
    """
    truth, scores = _rankable(scores, Y)
    ranked = np.sort(scores, axis=1)
    relevant = (np.sort(row[true]) for row, true in zip(scores, truth, strict=True))
    return float(np.mean([average_precision(*pair) for pair in zip(ranked, relevant, strict=True)]))


def precision_at_1(scores: Array, Y: Any) -> float:
    """Return the share of rows (those with true labels and with wrong ones) whose best-scored label is true."""
    truth, scores = _rankable(scores, Y)
    return float(truth[np.arange(len(truth)), scores.argmax(axis=1)].mean())


def _rankable(scores: Array, Y: Any) -> tuple[Array, Array]:
    scores = array("scores", scores)
    if scores.ndim != 2 or scores.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"scores must be a table of numbers, got {scores.dtype} of shape {scores.shape}."
        )
    truth = indicators(Y, len(scores)).toarray() > 0
    if truth.shape != scores.shape:
        raise InvalidInputError(f"scores and Y must have one shape, got {scores.shape} and {truth.shape}.")
    if not np.isfinite(scores).all():
        raise InvalidInputError("scores hold NaN or infinite values; the model overflowed.")
    count = truth.sum(axis=1)
    rows = (count > 0) & (count < truth.shape[1])
    if not rows.any():
        raise InvalidInputError("no row of Y has both true and wrong labels; nothing can be ranked.")
    return truth[rows], scores[rows]
