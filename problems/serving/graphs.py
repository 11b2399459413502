"""Approximate search in graphs of near neighbours (HNSW), by packages that are installed apart.

The inner product itself steers the walk (Morozov and Babenko, NeurIPS 2018). The transform that makes all items
equally long, by one more coordinate, is not taken: it puts the queries where no item is, and found far fewer of the
best.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, integer
from rmopt.errors import InvalidInputError

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


class Walk(ABC):
    """A search in a graph that a package made, which can be pickled and copied.

    Parameters
    ----------
    index : object
        The package's.
    ef : int
        Candidates that are kept for a query.
    """

    def __init__(self, index: Any, ef: int) -> None:
        self.index, self.ef = index, ef

    @abstractmethod
    def __call__(self, queries: Array, k: int) -> Array:
        """Return numbers of items, shape (n_queries, k), negative where it found none."""


class ByHnswlib(Walk):
    """A search in a graph of hnswlib."""

    def __call__(self, queries: Array, k: int) -> Array:
        self.index.set_ef(max(self.ef, k))
        try:
            return np.asarray(self.index.knn_query(queries, k)[0].astype(np.int64))
        except RuntimeError:  # fewer than k items were met
            return np.full((len(queries), k), -1)


class ByFaiss(Walk):
    """A search in a graph of faiss."""

    def __call__(self, queries: Array, k: int) -> Array:
        self.index.hnsw.efSearch = max(self.ef, k)
        return np.asarray(self.index.search(queries, k)[1])


class ByUsearch(Walk):
    """A search in a graph of usearch."""

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
        self.__init__(package("usearch.index", "usearch").Index.restore(state["index"]), state["ef"])  # type: ignore[misc]


def by_hnswlib(items: Array, graph: Graph) -> Search:
    """Return a search in a graph of hnswlib."""
    index = package("hnswlib").Index(space="ip", dim=items.shape[1])
    index.init_index(max_elements=len(items), M=graph.M, ef_construction=graph.ef_construction, random_seed=0)
    index.add_items(items)
    return ByHnswlib(index, graph.ef)


def by_faiss(items: Array, graph: Graph) -> Search:
    """Return a search in a graph of faiss."""
    faiss = package("faiss", "faiss-cpu")
    index = faiss.IndexHNSWFlat(items.shape[1], graph.M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = graph.ef_construction
    index.add(items)
    return ByFaiss(index, graph.ef)


def by_usearch(items: Array, graph: Graph) -> Search:
    """Return a search in a graph of usearch."""
    index = package("usearch.index", "usearch").Index(
        ndim=items.shape[1],
        metric="ip",
        dtype="f32",
        connectivity=graph.M,
        expansion_add=graph.ef_construction,
        expansion_search=graph.ef,
    )
    index.add(np.arange(len(items)), items)
    return ByUsearch(index, graph.ef)


GRAPHS = {"hnswlib": by_hnswlib, "faiss": by_faiss, "usearch": by_usearch}


def package(module: str, distribution: str | None = None, instead: str = "take the index 'exact'") -> Any:
    """Return a module of a package that is installed apart; an `InvalidInputError` tells how."""
    try:
        return import_module(module)
    except ImportError as error:
        name = distribution or module
        raise InvalidInputError(
            f"{module} cannot be imported ({error}); pip install {name}, or {instead}."
        ) from error
