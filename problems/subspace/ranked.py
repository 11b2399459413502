"""How good lists of recommendations are: precision, recall and nDCG of entries that were held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array


class Ranked(NamedTuple):
    """Means over the columns that have a held-out entry.

    Attributes
    ----------
    precision : float
        The share of the recommended rows that were held out.
    recall : float
        The share of the held-out rows that are recommended.
    ndcg : float
        Held-out rows count 1 / log2(1 + place), relative to the best list of this length.
    n_columns : int
    """

    precision: float
    recall: float
    ndcg: float
    n_columns: int


def ranked_lists(scores: Callable[[int], Array], known: sp.csc_array, held_out: Any, n: int) -> Ranked:
    """Measure the n rows with the highest scores in each column, without those that are known there.

    Parameters
    ----------
    scores : function
        Of the number of a column; it returns an array of shape (m,).
    known : sparse array, shape (m, n_columns)
    held_out : CSC array, shape (m, n_columns)
        Stored zeros do not count, nor what is known.
    n : int

    Raises
    ------
    InvalidInputError
        When nothing is held out.
    """
    discounts = 1.0 / np.log2(np.arange(2.0, n + 2.0))
    found = []
    for column in range(held_out.shape[1]):
        span = slice(held_out.indptr[column], held_out.indptr[column + 1])
        seen = known.indices[known.indptr[column] : known.indptr[column + 1]]
        wanted = np.setdiff1d(held_out.indices[span][held_out.data[span] != 0.0], seen)
        if len(wanted) == 0:
            continue
        values = np.array(scores(column), dtype=float)
        values[seen] = -np.inf
        best = np.argsort(-values, kind="stable")[: min(n, len(values) - len(seen))]
        hits = np.isin(best, wanted)
        gain = hits @ discounts[: len(best)] / discounts[: len(wanted)].sum()
        found.append((hits.sum() / n, hits.sum() / len(wanted), gain))
    if not found:
        raise InvalidInputError(
            "nothing is held out: all entries are 0, or were seen by fit; give others that should be recommended."
        )
    precision, recall, ndcg = np.mean(found, axis=0).tolist()
    return Ranked(precision, recall, ndcg, len(found))
