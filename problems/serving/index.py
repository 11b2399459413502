"""Search of the largest inner products, exact or in a graph, and the documents that are searched."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
from scipy.sparse import csr_array

from problems.kernels import keep_largest
from problems.rows import product, unit_rows
from problems.validation import check_columns, column_of_names, package, table_of_numbers
from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, numbers, one_of, sequence
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading, write_atomically

# Queries that go through the items together, and items whose scores are there at a time.
QUERIES, ITEMS = 64, 8192
FILE, FORMAT = "index.joblib", 2


def top_k(queries: Any, items: Array, k: int = 10, *, exclude: Any = None) -> tuple[Array, Array]:
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
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(numbers("queries", queries), dtype=items.dtype)
    if items.dtype not in (np.float32, np.float64) or items.ndim != 2 or rows.shape[1:] != items.shape[1:]:
        raise InvalidInputError(
            "items must be a table of float32 or float64, and queries one with as many columns, got "
            f"{items.dtype} of shape {items.shape} and queries of shape {rows.shape}."
        )
    k = integer("k", k, 1, len(items))
    asked, refused = excluded_pairs(exclude, len(rows), len(items))
    best = np.full((len(rows), k), -np.inf, dtype=items.dtype)
    found = np.full((len(rows), k), -1, dtype=np.int64)
    for start in range(0, len(rows), QUERIES):
        part = slice(start, start + QUERIES)
        for first in range(0, len(items), ITEMS):
            with np.errstate(all="ignore"):
                scores = rows[part] @ items[first : first + ITEMS].T
            here = (asked // QUERIES == start // QUERIES) & (refused // ITEMS == first // ITEMS)
            scores[asked[here] - start, refused[here] - first] = -np.inf
            keep_largest(scores, first, best[part], found[part])
    if not np.isfinite(best).all():
        finite = np.isfinite(best).sum(axis=1)
        raise InvalidInputError(
            f"query {finite.argmin()} has only {finite.min()} items with a finite score that exclude leaves, and k = "
            f"{k}; ask for fewer, or look for NaN and infinity in the items."
        )
    return best, found


def excluded_pairs(exclude: Any, n_queries: int, n_items: int) -> tuple[Array, Array]:
    """Return numbers of queries, rising, and of items that these must not get."""
    lists = [()] * n_queries if exclude is None else list(sequence("exclude", exclude))
    if len(lists) != n_queries:
        raise InvalidInputError(
            f"exclude must have a sequence of item numbers for each of {n_queries} queries."
        )
    items = np.array([item for part in lists for item in sequence("each of exclude", part)])
    if items.size and (items.dtype.kind not in "iu" or items.min() < 0 or items.max() >= n_items):
        raise InvalidInputError(f"exclude must hold numbers of items, 0 to {n_items - 1}.")
    return np.repeat(np.arange(n_queries), [len(part) for part in lists]), items.astype(np.int64)


@dataclass(eq=False)
class SimilarityIndex:
    """Documents that a learned similarity searches; ``model.index(X)`` makes it.

    Parameters
    ----------
    embeddings : array or memmap of float32, shape (n_documents, rank)
    query_map : array, shape (n_features, rank)
        The score of a query x and a document is the inner product of ``x @ query_map`` with the document's embedding.
    document_map : array, shape (n_features, rank)
        The embedding of a document x is ``x @ document_map``.
    normalize : bool
        Whether embeddings are divided by their lengths: scores are cosines.
    names : sequence, optional
        Names or numbers of the documents, which may repeat; by default their row numbers.
    texts : sequence of str, optional
        The documents themselves, shown by `rmopt serve`.
    vectorizer : object, optional
        What made features of texts: a fitted vectorizer of scikit-learn or a pipeline, needed by `rmopt serve`.
    feature_names_in_ : sequence of str, optional
        Of the columns of frames, which queries must have in this order.
    graph : hnswlib.Index, optional
        Of near neighbours, made by `to_index`. None: exact.

    References
    ----------
    Malkov and Yashunin, Efficient and robust approximate nearest neighbor search using hierarchical navigable
    small world graphs, IEEE Transactions on Pattern Analysis and Machine Intelligence 42 (2020),
    https://doi.org/10.1109/TPAMI.2018.2889473.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.similarity import ContrastiveSimilarity
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> model = ContrastiveSimilarity(rank=2, n_epochs=20, random_state=0)
    >>> index = model.fit(X, [0, 0, 1, 1]).index(X, names=["ant", "bee", "cat", "dog"])
    >>> scores, rows = index.query([[1.0, 0.2]], k=2)
    >>> sorted(index.names[row] for row in rows[0])
    ['ant', 'bee']
    >>> [[name for name, score in best] for best in index.most_similar(X[2:3], k=1)]
    [['cat']]
    """

    embeddings: Array
    query_map: Array
    document_map: Array
    normalize: bool
    _: KW_ONLY
    names: Any = field(default=None, repr=False)
    texts: Any = field(default=None, repr=False)
    vectorizer: Any = None
    feature_names_in_: Any = None
    graph: Any = None

    def __post_init__(self) -> None:
        kind, (n, *rank), shape = self.embeddings.dtype, self.embeddings.shape, np.shape(self.query_map)
        if kind != np.float32 or np.shape(self.document_map) != shape or [*shape[1:]] != rank:
            raise InvalidInputError(
                f"embeddings must be a table of float32, got {kind} of shape {self.embeddings.shape}, and query_map "
                f"and document_map have shape (n_features, rank), got {shape} and {np.shape(self.document_map)}."
            )
        self.names = range(n) if self.names is None else column_of_names("names", self.names).tolist()
        self.texts = None if self.texts is None else list(self.texts)
        if len(self.names) != n or (self.texts is not None and len(self.texts) != n):
            raise InvalidInputError(f"names and texts must be {n}, one for each document.")

    def __len__(self) -> int:
        return len(self.embeddings)

    def query(self, X: Any, k: int = 10, *, exclude: Any = None) -> tuple[Array, Array]:
        """Return the documents of the largest scores for each query.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_queries, n_features), or str or sequence of str
            Texts where the index has a vectorizer.
        k : int
            At most as many as there are documents.
        exclude : sequence of sequences of int, optional
            For each query the row numbers of documents that it must not get, such as itself.

        Returns
        -------
        scores : array, shape (n_queries, k)
            Falling.
        indices : int array, shape (n_queries, k)
            Row numbers of the documents.

        Warns
        -----
        UserWarning
            When a query has nothing that the model knows, so that all its scores are 0.
        """
        Z = self._embedded(X, self.query_map).astype(np.float32)
        empty = np.flatnonzero(~Z.any(axis=1))
        if len(empty):
            warnings.warn(
                f"{len(empty)} of {len(Z)} queries have no feature that the model knows, the first of them query "
                f"{empty[0]}: their scores are 0, and the order says nothing.",
                stacklevel=2,
            )
        if self.graph is None:
            return top_k(Z, self.embeddings, k, exclude=exclude)
        asked, refused = excluded_pairs(exclude, len(Z), len(self))
        more = min(integer("k", k, 1, len(self)) + int(np.bincount(asked, minlength=1).max()), len(self))
        try:
            met = self.graph.knn_query(Z, more)[0].astype(np.int64)
        except RuntimeError:
            raise InvalidInputError(
                f"the graph met fewer than {more} documents; raise ef or M, or lower k."
            ) from None
        scores = np.einsum("qd,qkd->qk", Z, self.embeddings[met])
        scores[np.isin(met + len(self) * np.arange(len(Z))[:, None], refused + len(self) * asked)] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(met, order, axis=1)

    def most_similar(self, X: Any, k: int = 10, *, exclude: Any = None) -> list[list[tuple[Any, float]]]:
        """Return what `query` does as pairs of a name and a score, a list for each query; arguments as there."""
        scores, indices = (values.tolist() for values in self.query(X, k, exclude=exclude))
        return [
            [(self.names[row], score) for row, score in zip(*pair, strict=True)]
            for pair in zip(indices, scores, strict=True)
        ]

    def contributions(self, x: Any, documents: Any) -> csr_array:
        """Return what each term of some documents adds to their score with one query.

        Parameters
        ----------
        x : array or sparse matrix, shape (1, n_features)
            The query.
        documents : array or sparse matrix, shape (n_documents, n_features)

        Returns
        -------
        sparse array, shape (n_documents, n_features)
            Rows sum to the scores.
        """
        rows, (of_term,) = (
            csr_array(self._rows(documents)),
            self._embedded(x, self.query_map) @ self.document_map.T,
        )
        if self.normalize:
            rows = csr_array(rows / unit_rows(product(rows, self.document_map))[1])
        return csr_array(rows * of_term)

    def to_index(
        self, kind: str = "exact", *, M: int = 28, ef_construction: int = 150, ef: int = 400
    ) -> Self:
        """Return an index of the same documents that is searched in another way.

        Parameters
        ----------
        kind : {"exact", "hnswlib"}
            "exact" looks at every document. "hnswlib" makes a graph of near neighbours with the package of that name,
            which takes minutes for a million documents and is not saved, and finds most of the best in a fraction of
            the time. The inner product itself steers the walk (Morozov and Babenko, NeurIPS 2018).
        M : int
            Neighbours of a document in the graph.
        ef_construction : int
            Candidates that are kept while a document looks for its neighbours.
        ef : int
            Candidates that are kept for a query: more find more of the best, in more time.
        """
        if one_of("kind", kind, ("exact", "hnswlib")) == "exact":
            return replace(self, graph=None)
        graph = package("hnswlib").Index(space="ip", dim=self.embeddings.shape[1])
        M, ef_construction = integer("M", M, 2, 1000), integer("ef_construction", ef_construction, 1)
        graph.init_index(max_elements=len(self), M=M, ef_construction=ef_construction, random_seed=0)
        graph.add_items(np.ascontiguousarray(self.embeddings))
        graph.set_ef(integer("ef", ef, 1))
        return replace(self, graph=graph)

    def save(self, folder: Path | str) -> None:
        """Write the index with joblib into a folder, which is made where it is absent; graphs are not kept."""
        stored = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "graph"}
        write_atomically(Path(folder, FILE), lambda stream: joblib.dump({"format": FORMAT} | stored, stream))

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read what `save` wrote; the embeddings stay in their file, of which a search reads what it needs.

        joblib runs code that the file names: load folders that you trust.
        """
        file = Path(folder, FILE)
        with reading(file):
            stored = joblib.load(file, mmap_mode="r")
            if stored.pop("format") != FORMAT:
                raise StorageError(f"{file} is of another version of rmopt; make the index again.")
            return cls(**stored)

    def _rows(self, X: Any) -> Any:
        # Columns of text come as arrays and as series too.
        texts = [X] if isinstance(X, str) else list(X) if getattr(X, "ndim", 1) == 1 else []
        if texts and all(isinstance(text, str) for text in texts):
            if self.vectorizer is None:
                raise InvalidInputError(
                    "X is text, and the index has no vectorizer; make it with model.index(X, names, vectorizer=…), "
                    "or give rows of numbers."
                )
            X = self.vectorizer.transform(texts)
        check_columns(self, X)
        rows = table_of_numbers("X", X)
        if rows.shape[1] != len(self.query_map):
            raise InvalidInputError(
                f"X has {rows.shape[1]} features, and the model was fitted to {len(self.query_map)}."
            )
        return rows

    def _embedded(self, X: Any, factor: Array) -> Array:
        Z = product(self._rows(X), factor)
        return unit_rows(Z)[0] if self.normalize else Z


class Searchable(ABC):
    """A similarity of a query's embedding and a document's that can make an index of documents."""

    transform: Any

    @abstractmethod
    def _maps(self) -> tuple[Array, Array, bool]:
        """Return the maps of queries and of documents, shape (n_features, rank), and whether lengths become 1."""

    def index(
        self, X: Any, names: Any = None, *, texts: Any = None, vectorizer: Any = None
    ) -> SimilarityIndex:
        """Return an index of documents, to be searched for the most similar ones.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_documents, n_features)
        names : sequence, optional
            A name or a number for each document; by default row numbers.
        texts : sequence of str, optional
            The documents themselves, which a page shows.
        vectorizer : object, optional
            What made X of the texts, a fitted vectorizer or a pipeline; a page needs it.

        Returns
        -------
        SimilarityIndex
        """
        return SimilarityIndex(
            np.asarray(self.transform(X), dtype=np.float32), *self._maps(), names=names, texts=texts,
            vectorizer=vectorizer, feature_names_in_=getattr(self, "feature_names_in_", None),
        )  # fmt: skip
