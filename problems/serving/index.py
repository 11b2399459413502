"""Exact search of the largest inner products, and the embeddings of documents, in memory or in a folder."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
from scipy.sparse import csr_array

from problems.kernels import keep_largest
from problems.rows import product, unit_rows
from problems.serving.graphs import GRAPHS, Graph, Search
from problems.validation import check_columns, column_of_names, table_of_numbers
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, flag, instance, integer, numbers, one_of, sequence, shown
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading, write_atomically, write_json

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
            _keep_largest(scores, first, best[start : start + QUERIES], found[start : start + QUERIES])
    if not np.isfinite(best).all():
        short = int(np.flatnonzero(~np.isfinite(best).all(axis=1))[0])
        finite = int(np.isfinite(best[short]).sum())
        raise InvalidInputError(
            f"query {short} has only {finite} items with a finite score that mask and exclude leave, and k = {k}; "
            "ask for fewer, or look for NaN and infinity in the items."
        )
    return best, found


def _keep_largest(scores: Array, first: int, best: Array, found: Array) -> None:
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
    given = [[]] * n_queries if exclude is None else sequence("exclude", exclude)
    lists = [sequence("each of exclude", one) for one in given]
    if len(lists) != n_queries:
        raise InvalidInputError(
            f"exclude must have a sequence of item numbers for each of {n_queries} queries, got {len(lists)}."
        )
    lengths = [len(one) for one in lists]
    items = np.array([item for one in lists for item in one])
    if items.size and (items.dtype.kind not in "iu" or items.min() < 0 or items.max() >= n_items):
        raise InvalidInputError(f"exclude = {shown(exclude)} must hold numbers of items, 0 to {n_items - 1}.")
    return np.repeat(np.arange(n_queries), lengths), items.astype(np.int64)


FORMAT = 1
EMBEDDINGS, QUERY_MAP, DOCUMENT_MAP = "embeddings.npy", "query_map.npy", "document_map.npy"
ABOUT, TEXTS, VECTORIZER = "index.json", "texts.json", "vectorizer.joblib"


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
        Names or numbers of the documents, which may repeat; their row numbers unless given.
    texts : sequence of str, optional
        The documents themselves, shown by `rmopt serve`.
    vectorizer : object, optional
        What made features of texts: a fitted vectorizer of scikit-learn or a pipeline, needed by `rmopt serve`.
    feature_names_in_ : sequence of str, optional
        Of the columns of frames, which queries must have in this order.
    search : callable, optional
        Takes embeddings of queries and k and gives numbers of documents; made by `to_index`. None: exact.

    See Also
    --------
    top_k : the search alone, of any vectors.
    make_server : a page in the browser.

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
    >>> [[name for name, score in found] for found in index.most_similar(X[2:3], k=1)]
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
    search: Search | None = None

    def __post_init__(self) -> None:
        instance("embeddings", self.embeddings, np.ndarray, "an array or a memmap")
        n, rank = self.embeddings.shape if self.embeddings.ndim == 2 else (0, 0)
        if self.embeddings.dtype != np.float32 or not n or not rank:
            raise InvalidInputError(
                f"embeddings must be a table of float32, got {self.embeddings.dtype} of shape "
                f"{self.embeddings.shape}."
            )
        self.query_map = table_of_numbers("query_map", self.query_map, sparse=False)
        self.document_map = table_of_numbers("document_map", self.document_map, sparse=False)
        shapes = self.query_map.shape, self.document_map.shape
        if shapes[0] != shapes[1] or shapes[0][1] != rank:
            raise InvalidInputError(
                f"query_map and document_map must have shape (n_features, {rank}), got {shapes[0]} and {shapes[1]}."
            )
        self.normalize = flag("normalize", self.normalize)
        self.names = range(n) if self.names is None else column_of_names("names", self.names).tolist()
        if not all(isinstance(name, str | int | float) for name in self.names):
            raise InvalidInputError(
                f"names must be strings or numbers, and {self.names[0]!r} is neither; turn them into strings."
            )
        if self.texts is not None:
            self.texts = [
                instance("each of texts", one, str, "a string") for one in sequence("texts", self.texts)
            ]
        for what, values in (("names", self.names), ("texts", self.texts)):
            if values is not None and len(values) != n:
                raise InvalidInputError(f"{what} must be {n}, one for each document, got {len(values)}.")
        if self.vectorizer is not None:
            self.terms  # noqa: B018 (refuses a vectorizer of other features now and not at the first query)

    def __len__(self) -> int:
        return len(self.embeddings)

    @property
    def terms(self) -> Array:
        """The names of the vectorizer's features."""
        try:
            terms = np.asarray(self.vectorizer.get_feature_names_out())
        except AttributeError:
            raise InvalidInputError(
                "vectorizer must be fitted and have get_feature_names_out; of one that hashes give its rows to query."
            ) from None
        if len(terms) != len(self.query_map):
            raise InvalidInputError(
                f"vectorizer gives {len(terms)} features, and the model was fitted to {len(self.query_map)}."
            )
        return terms

    def query(self, X: Any, k: int = 10, *, exclude: Any = None, mask: Any = None) -> tuple[Array, Array]:
        """Return the documents of the largest scores for each query.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_queries, n_features), or str or sequence of str
            Texts where the index has a vectorizer.
        k : int
            At most as many as there are documents.
        exclude : sequence of sequences of int, optional
            For each query the row numbers of documents that it must not get, such as itself.
        mask : bool array, shape (n_documents,), optional
            Which documents may be found, by the exact index alone.

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
        if self.search is None:
            return top_k(Z, self.embeddings, k, exclude=exclude, mask=mask)
        if mask is not None:
            raise InvalidInputError("mask is for the exact index; search with to_index('exact').")
        asked, refused = excluded_pairs(exclude, len(Z), len(self))
        more = int(np.bincount(asked, minlength=1).max())
        k = integer("k", k, 1, len(self))
        met = self.search(Z, min(k + more, len(self)))
        scores = np.einsum("qd,qkd->qk", Z, self.embeddings[met])
        hidden = np.isin(met + len(self) * np.arange(len(Z))[:, None], refused + len(self) * asked)
        scores[hidden | (met < 0)] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, met = (np.take_along_axis(one, order, axis=1) for one in (scores, met))
        if not np.isfinite(scores).all():
            raise InvalidInputError(f"the graph met fewer than k = {k} documents; raise ef or M, or lower k.")
        return scores, met

    def most_similar(
        self, X: Any, k: int = 10, *, exclude: Any = None, mask: Any = None
    ) -> list[list[tuple[Any, float]]]:
        """Return what `query` does as pairs of a name and a score, a list for each query.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_queries, n_features), or str or sequence of str
        k : int
        exclude : sequence of sequences of int, optional
        mask : bool array, shape (n_documents,), optional
            All as for `query`.

        Returns
        -------
        list of lists of (name, float)
        """
        scores, indices = self.query(X, k, exclude=exclude, mask=mask)
        return [
            [(self.names[index], score) for score, index in zip(*row, strict=True)]
            for row in zip(scores.tolist(), indices.tolist(), strict=True)
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
        rows = csr_array(self._rows(documents))
        of_term = product(self._embedded(x, self.query_map), self.document_map.T)
        if len(of_term) != 1:
            raise InvalidInputError(f"x must be one query, got {len(of_term)} rows.")
        if self.normalize:
            rows = csr_array(rows / unit_rows(product(rows, self.document_map))[1])
        return csr_array(rows * of_term[0])

    def to_index(self, kind: str = "exact", **graph: Any) -> Self:
        """Return an index of the same documents that is searched in another way.

        Parameters
        ----------
        kind : {"exact", "hnswlib", "faiss", "usearch"}
            "exact" looks at every document. The others make a graph with the package of that name, which takes
            minutes for a million documents and is not saved, and find most of the best in a fraction of the time.
        **graph : int
            ``M`` (28), ``ef_construction`` (150) and ``ef`` (400): the size of the graph, and the candidates that
            are kept while it is made and searched (`problems.serving.graphs.Graph`).

        Returns
        -------
        SimilarityIndex
        """
        if one_of("kind", kind, ("exact", *GRAPHS)) == "exact":
            if graph:
                raise InvalidInputError(f"{', '.join(graph)}: the exact index has no options.")
            return replace(self, search=None)
        unknown = sorted(set(graph) - set(Graph._parameters))
        if unknown:
            one_of("option", unknown[0], Graph._parameters)
        return replace(self, search=GRAPHS[kind](np.ascontiguousarray(self.embeddings), Graph(**graph)))

    def save(self, folder: Path | str) -> None:
        """Write the index into a folder: arrays as .npy, names and texts as JSON, the vectorizer with joblib.

        Parameters
        ----------
        folder : path
            Made where it is absent. The files of an index that is there are replaced.
        """
        folder = Path(folder)
        about = {
            "format": FORMAT,
            "normalize": self.normalize,
            "names": None if isinstance(self.names, range) else self.names,
            "features": None if self.feature_names_in_ is None else list(self.feature_names_in_),
        }
        # What cannot be pickled is told while an index that is there is whole.
        dumped = BytesIO()
        joblib.dump(self.vectorizer, dumped)
        # Last of all the file without which there is no index.
        _keep(folder / ABOUT, None)
        arrays = {
            EMBEDDINGS: self.embeddings,
            QUERY_MAP: self.query_map,
            DOCUMENT_MAP: None if np.array_equal(self.query_map, self.document_map) else self.document_map,
        }
        for name, values in arrays.items():
            _keep(folder / name, values, partial(np.lib.format.write_array, allow_pickle=False))
        _keep(
            folder / TEXTS, self.texts, lambda stream, texts: stream.write(json.dumps(texts).encode("ascii"))
        )
        _keep(folder / VECTORIZER, self.vectorizer, lambda stream, _: stream.write(dumped.getbuffer()))
        write_json(folder / ABOUT, about)

    @classmethod
    def load(cls, folder: Path | str, *, mmap: bool = True) -> Self:
        """Read what `save` wrote.

        The vectorizer is read by joblib, which runs code that the file names: load folders that you trust.

        Parameters
        ----------
        folder : path
        mmap : bool
            Leave the embeddings in their file and let the system read what a search needs.

        Returns
        -------
        SimilarityIndex
        """
        folder, mmap = Path(folder), flag("mmap", mmap)
        if folder.is_dir() and not (folder / ABOUT).exists():
            raise StorageError(
                f"{folder} holds no index of documents ({ABOUT} is missing); write one by "
                "model.index(X).save(folder)."
            )
        with reading(folder / ABOUT):
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            version, of_unit_length, names = (about[key] for key in ("format", "normalize", "names"))
        if version != FORMAT:
            raise StorageError(
                f"{folder} has the format {version}, and this rmopt reads {FORMAT}; make it again."
            )

        def read(name: str, how: Callable[[Path], Any], needed: bool = True) -> Any:
            if not needed and not (folder / name).exists():
                return None
            with reading(folder / name):
                return how(folder / name)

        embeddings = read(EMBEDDINGS, partial(np.load, mmap_mode="r" if mmap else None))
        query_map, document_map = read(QUERY_MAP, np.load), read(DOCUMENT_MAP, np.load, needed=False)
        with reading(folder):
            return cls(
                embeddings,
                query_map,
                query_map if document_map is None else document_map,
                of_unit_length,
                names=names,
                texts=read(TEXTS, lambda path: json.loads(path.read_bytes()), needed=False),
                vectorizer=read(VECTORIZER, joblib.load, needed=False),
                feature_names_in_=about.get("features"),
            )

    def _rows(self, X: Any) -> Any:
        # Columns of text come as arrays and as series too.
        texts = [X] if isinstance(X, str) else list(X) if len(getattr(X, "shape", ())) == 1 else X
        if isinstance(texts, list | tuple) and texts and all(isinstance(one, str) for one in texts):
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


def _keep(path: Path, value: Any, write: Any = None) -> None:
    """Write what is there; of what is not, no earlier file stays."""
    if value is not None:
        write_atomically(path, lambda stream: write(stream, value))
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot replace {path} ({error.strerror}); choose another folder.") from error


class Searchable(ABC):
    """A similarity of a query's embedding and a document's that can make an index of documents.

    See Also
    --------
    SimilarityIndex : what `index` returns.

    Examples
    --------
    >>> from problems.serving import Searchable
    >>> from problems.similarity import ContrastiveSimilarity
    >>> X = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
    >>> model = ContrastiveSimilarity(rank=2, n_epochs=20, random_state=0)
    >>> isinstance(model, Searchable)
    True
    >>> scores, rows = model.fit(X, [0, 0, 1, 1]).index(X).query([[1.0, 0.2]], k=2)
    >>> sorted(rows[0].tolist())
    [0, 1]
    """

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
            A name or a number for each document; row numbers unless given.
        texts : sequence of str, optional
            The documents themselves, which a page shows.
        vectorizer : object, optional
            What made X of the texts, a fitted vectorizer or a pipeline; a page needs it.

        Returns
        -------
        SimilarityIndex
        """
        embeddings = np.asarray(self.transform(X), dtype=np.float32)
        return SimilarityIndex(
            embeddings, *self._maps(), names=names, texts=texts, vectorizer=vectorizer,
            feature_names_in_=getattr(self, "feature_names_in_", None),
        )  # fmt: skip
