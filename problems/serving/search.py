"""The items of the largest inner products with queries: exact, in one pass over the items."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.kernels import keep_largest
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, instance, integer, numbers, sequence, shown
from rmopt.errors import InvalidInputError

# Queries that go through the items together: their scores of a block of items stay in the processor's cache.
QUERIES = 64
# Up to so many are put in their places one by one, beyond that sorted.
FEW = 1000


def top_k(
    queries: Any,
    items: Array,
    k: int = 10,
    *,
    exclude: Any = None,
    mask: Any = None,
    block_size: int = 8192,
) -> tuple[Array, Array]:
    """Return the k items that have the largest inner products with each query.

    The items are read in blocks, once for every 64 queries. Beyond the result it needs memory for a block of scores.

    Parameters
    ----------
    queries : array, shape (n_queries, rank)
    items : array or memmap, shape (n_items, rank)
        Of type float32 or float64, in which scores are computed. Not looked at before; what gives NaN is not found.
    k : int
        At most n_items.
    exclude : sequence of sequences of int, optional
        For each query the numbers of items that it must not get.
    mask : bool array, shape (n_items,), optional
        Which items may be found; all by default.
    block_size : int
        Items that are read at a time.

    Returns
    -------
    scores : array, shape (n_queries, k)
        Falling; of equal ones the item that comes first is first.
    indices : int array, shape (n_queries, k)
        Row numbers of the items.

    Raises
    ------
    InvalidInputError
        When an argument has another shape, or a query has fewer than k items left with a finite score.

    See Also
    --------
    SimilarityIndex : with names, embeddings and files.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.serving import top_k
    >>> items = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> scores, indices = top_k([[1.0, 1.0]], items, 2)
    >>> indices.tolist(), scores.tolist()
    ([[2, 1]], [[3.0, 2.0]])
    >>> top_k([[1.0, 1.0]], items, 2, exclude=[[2]])[1].tolist()
    [[1, 0]]
    """
    instance("items", items, np.ndarray, "an array or a memmap")
    if items.ndim != 2 or items.dtype not in (np.float32, np.float64):
        raise InvalidInputError(
            f"items must be a table of float32 or float64, got {items.dtype} of shape {items.shape}."
        )
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(numbers("queries", queries), dtype=items.dtype)
    if rows.ndim != 2 or rows.shape[1] != items.shape[1]:
        raise InvalidInputError(
            f"queries must have shape (n_queries, {items.shape[1]}) as the items have, got {rows.shape}."
        )
    k = integer("k", k, 1, len(items))
    block_size = integer("block_size", block_size, 1)
    chosen = None if mask is None else array("mask", mask)
    if chosen is not None and (chosen.shape != (len(items),) or chosen.dtype != bool):
        raise InvalidInputError(
            f"mask must be {len(items)} booleans, one for each item, got {chosen.dtype} of shape {chosen.shape}."
        )
    left_out = None if chosen is None else ~chosen
    asked, refused = excluded_pairs(exclude, len(rows), len(items))
    order = np.argsort(refused, kind="stable")
    asked, refused = asked[order], refused[order]
    best = np.full((len(rows), k), -np.inf, dtype=items.dtype)
    found = np.full((len(rows), k), -1, dtype=np.int64)
    room = np.empty(min(len(rows), QUERIES) * min(block_size, len(items)), dtype=items.dtype)
    for start in range(0, len(rows), QUERIES):
        part = rows[start : start + QUERIES]
        mine = (asked >= start) & (asked < start + QUERIES)
        own, hidden = asked[mine], refused[mine]
        for first in range(0, len(items), block_size):
            block = np.asarray(items[first : first + block_size])
            scores = room[: len(part) * len(block)].reshape(len(part), len(block))
            with np.errstate(all="ignore"):
                np.matmul(part, block.T, out=scores)
            if left_out is not None:
                scores[:, left_out[first : first + block_size]] = -np.inf
            low, high = np.searchsorted(hidden, (first, first + len(block)))
            scores[own[low:high] - start, hidden[low:high] - first] = -np.inf
            _keep(scores, first, best[start : start + QUERIES], found[start : start + QUERIES])
    if not np.isfinite(best).all():
        short = int(np.flatnonzero(~np.isfinite(best).all(axis=1))[0])
        finite = int(np.isfinite(best[short]).sum())
        raise InvalidInputError(
            f"query {short} has only {finite} items with a finite score that mask and exclude leave, and k = {k}; "
            "ask for fewer, or look for NaN and infinity in the items."
        )
    return best, found


def _keep(scores: Array, first: int, best: Array, found: Array) -> None:
    """Put into `best` the scores of a block that are larger, and the numbers of their items into `found`."""
    k = best.shape[1]
    if k <= FEW:
        keep_largest(scores, first, best, found)
        return
    for query, of_block in enumerate(scores):
        both = np.concatenate([best[query], of_block])
        order = np.argsort(-both, kind="stable")[:k]
        found[query] = np.concatenate([found[query], first + np.arange(len(of_block))])[order]
        best[query] = both[order]


def excluded_pairs(exclude: Any, n_queries: int, n_items: int) -> tuple[Array, Array]:
    """Return numbers of queries, rising, and of items that these must not get."""
    lists = (
        [[]] * n_queries
        if exclude is None
        else [sequence("each of exclude", one) for one in sequence("exclude", exclude)]
    )
    if len(lists) != n_queries:
        raise InvalidInputError(
            f"exclude must have a sequence of item numbers for each of {n_queries} queries, got {len(lists)}."
        )
    lengths = [len(one) for one in lists]
    items = np.array([item for one in lists for item in one])
    if items.size and (items.dtype.kind not in "iu" or items.min() < 0 or items.max() >= n_items):
        raise InvalidInputError(f"exclude = {shown(exclude)} must hold numbers of items, 0 to {n_items - 1}.")
    return np.repeat(np.arange(n_queries), lengths), items.astype(np.int64)
