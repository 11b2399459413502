"""Approximate search in graphs of near neighbours (HNSW), by packages that are installed apart.

The inner product itself steers the walk (Morozov and Babenko, NeurIPS 2018). The transform that makes all items
equally long, by one more coordinate, is not taken: it puts the queries where no item is, and found far fewer of the
best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from problems.validation import package
from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, integer

# Takes queries of float32 and k; gives numbers of items, shape (n_queries, k), negative where it found none.
Search = Callable[[Array, int], Array]


@dataclass(frozen=True)
class Graph(CheckedValue):
    """How large a graph is, in the words of hnswlib.

    Parameters
    ----------
    M : int
        Neighbours of an item.
    ef_construction : int
        Candidates that are kept while an item looks for its neighbours.
    ef : int
        Candidates that are kept for a query: more find more of the best, in more time.

    References
    ----------
    Malkov and Yashunin, Efficient and robust approximate nearest neighbor search using hierarchical navigable
    small world graphs, IEEE TPAMI 2020.
    """

    M: Annotated[int, bounded(integer, 2, 1000)] = 28
    ef_construction: Annotated[int, bounded(integer, 1, 10**6)] = 150
    ef: Annotated[int, bounded(integer, 1, 10**6)] = 400


class ByHnswlib:
    """A search in a graph of hnswlib."""

    def __init__(self, items: Array, graph: Graph) -> None:
        self.index, self.ef = package("hnswlib").Index(space="ip", dim=items.shape[1]), graph.ef
        self.index.init_index(
            max_elements=len(items), M=graph.M, ef_construction=graph.ef_construction, random_seed=0
        )
        self.index.add_items(items)

    def __call__(self, queries: Array, k: int) -> Array:
        self.index.set_ef(max(self.ef, k))
        try:
            return np.asarray(self.index.knn_query(queries, k)[0].astype(np.int64))
        except RuntimeError:  # fewer than k items were met
            return np.full((len(queries), k), -1)


class ByFaiss:
    """A search in a graph of faiss."""

    def __init__(self, items: Array, graph: Graph) -> None:
        faiss = package("faiss", "faiss-cpu")
        self.index, self.ef = (
            faiss.IndexHNSWFlat(items.shape[1], graph.M, faiss.METRIC_INNER_PRODUCT),
            graph.ef,
        )
        self.index.hnsw.efConstruction = graph.ef_construction
        self.index.add(items)

    def __call__(self, queries: Array, k: int) -> Array:
        self.index.hnsw.efSearch = max(self.ef, k)
        return np.asarray(self.index.search(queries, k)[1])


class ByUsearch:
    """A search in a graph of usearch."""

    def __init__(self, items: Array, graph: Graph) -> None:
        self.index, self.ef = package("usearch.index").Index(
            ndim=items.shape[1], metric="ip", dtype="f32", connectivity=graph.M,
            expansion_add=graph.ef_construction, expansion_search=graph.ef,
        ), graph.ef  # fmt: skip
        # Several threads leave items that no search finds, others in each build.
        self.index.add(np.arange(len(items)), items, threads=1)

    def __call__(self, queries: Array, k: int) -> Array:
        self.index.expansion_search = max(self.ef, k)
        matches = self.index.search(queries, k)
        # Of a single query keys are a list, as long as they are.
        keys = np.atleast_2d(np.asarray(matches.keys).astype(np.int64))
        counts = np.atleast_1d(getattr(matches, "counts", len(matches)))
        keys = np.pad(keys, ((0, 0), (0, k - keys.shape[1])))
        return np.where(np.arange(k) < counts[:, None], keys, -1)

    # The other two packages do this by themselves.
    def __getstate__(self) -> dict[str, Any]:
        return {"ef": self.ef, "index": bytes(self.index.save())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.index = package("usearch.index").Index.restore(state["index"])
        self.ef = state["ef"]


# By name; each makes a search, which can be pickled and copied.
GRAPHS: dict[str, Callable[[Array, Graph], Search]] = {
    "hnswlib": ByHnswlib, "faiss": ByFaiss, "usearch": ByUsearch,
}  # fmt: skip
