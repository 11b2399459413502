"""Search for the largest inner products, and an index of documents."""

from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np

from problems.kernels import keep_largest
from problems.validation import column_of_names
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, numbers
from rmopt.errors import InvalidInputError
from rmopt.files import reading, write_atomically

# The number of queries processed together, and of items with scores in memory.
QUERIES, ITEMS = 64, 8192
FILE = "index.joblib"


def top_k(queries: Any, items: Array, k: int = 10) -> tuple[Array, Array]:
    """Return the k items with the largest inner products with each query.

    The items are read in blocks, once for every 64 queries. Beyond the result it needs memory for a block of scores.

    Parameters
    ----------
    queries : array, shape (n_queries, rank)
    items : array or memmap, shape (n_items, rank)
        Of type float32 or float64, in which scores are computed. They are not checked, and items with NaN are not
        found.
    k : int
        At most n_items.

    Returns
    -------
    scores : array, shape (n_queries, k)
        In descending order, with equal ones in the order of items.
    indices : int array, shape (n_queries, k)
        Row numbers of the items.

    Raises
    ------
    InvalidInputError
        If an argument has another shape, or a query has fewer than k items with a finite score.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.serving import top_k
    >>> items = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> scores, indices = top_k([[1.0, 1.0]], items, 2)
    >>> indices.tolist(), scores.tolist()
    ([[2, 1]], [[3.0, 2.0]])
    """
    items = np.asarray(items)
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(numbers("queries", queries), dtype=items.dtype)
    if items.dtype not in (np.float32, np.float64) or items.ndim != 2 or rows.shape[1:] != items.shape[1:]:
        raise InvalidInputError(
            "items must be a table of float32 or float64, and queries one with as many columns, got "
            f"{items.dtype} of shape {items.shape} and queries of shape {rows.shape}."
        )
    k = integer("k", k, 1, len(items))
    best = np.full((len(rows), k), -np.inf, dtype=items.dtype)
    found = np.full((len(rows), k), -1, dtype=np.int64)
    for start in range(0, len(rows), QUERIES):
        part = slice(start, start + QUERIES)
        for first in range(0, len(items), ITEMS):
            with np.errstate(all="ignore"):
                scores = rows[part] @ items[first : first + ITEMS].T
            keep_largest(scores, first, best[part], found[part])
    if not np.isfinite(best).all():
        query = int(np.isfinite(best).all(axis=1).argmin())
        raise InvalidInputError(
            f"query {query} has fewer than {k} items with a finite score; look for NaN and infinity in the items."
        )
    return best, found


@dataclass(eq=False)
class SimilarityIndex:
    """An index of documents for search by a learned similarity, made by ``model.index(X)``.

    Parameters
    ----------
    model : fitted similarity
        The model that embeds queries.
    embeddings : array or memmap of float32, shape (n_documents, rank)
        The score of a query and a document is the inner product of their embeddings.
    names : sequence, optional
        Names or numbers of the documents, which may repeat. Defaults to their row numbers.
    texts : sequence of str, optional
        The documents themselves, shown by `rmopt serve`.
    vectorizer : object, optional
        The fitted vectorizer of scikit-learn, or a pipeline, that made features of texts, for `rmopt serve`.
    labels : sequence of str, optional
        The classes of the documents, shown by `rmopt serve`.

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
    """

    model: Any
    embeddings: Array
    _: KW_ONLY
    names: Any = field(default=None, repr=False)
    texts: Any = field(default=None, repr=False)
    vectorizer: Any = None
    labels: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n = len(self.embeddings)
        self.names = range(n) if self.names is None else column_of_names("names", self.names).tolist()
        self.texts, self.labels = (None if of is None else list(of) for of in (self.texts, self.labels))
        if any(of is not None and len(of) != n for of in (self.names, self.texts, self.labels)):
            raise InvalidInputError(f"names, texts and labels must be {n}, one for each document.")

    def __len__(self) -> int:
        return len(self.embeddings)

    def query(self, X: Any, k: int = 10) -> tuple[Array, Array]:
        """Return the documents of the largest scores for each query.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_queries, n_features), or str or sequence of str
            Texts if the index has a vectorizer.
        k : int
            At most the number of documents.

        Returns
        -------
        scores : array, shape (n_queries, k)
            Falling.
        indices : int array, shape (n_queries, k)
            Row numbers of the documents. If a query has no known features, all scores are 0.
        """
        # Columns of text may also be arrays and series.
        texts = [X] if isinstance(X, str) else list(X) if getattr(X, "ndim", 1) == 1 else []
        if self.vectorizer is not None and texts and all(isinstance(text, str) for text in texts):
            X = self.vectorizer.transform(texts)
        return top_k(self.embedded(X), self.embeddings, k)

    def embedded(self, X: Any) -> Array:
        """Return the embeddings of queries, shape (n_queries, rank), in single precision."""
        embed = getattr(self.model, "transform_queries", self.model.transform)
        return np.asarray(embed(X), dtype=np.float32)

    def save(self, folder: Path | str) -> None:
        """Write the index with joblib into a folder, which is created if missing."""
        write_atomically(Path(folder, FILE), lambda stream: joblib.dump(self, stream))

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read the index of `save`. The embeddings stay in their file, from which a search reads its parts.

        joblib runs code named in the file, so only load folders that you trust.
        """
        file = Path(folder, FILE)
        with reading(file):
            return joblib.load(file, mmap_mode="r")


class Searchable:
    """A similarity that can make an index of documents."""

    transform: Any

    # It embeds queries, and another fit does not change it.
    _for_queries = copy

    def index(
        self, X: Any, names: Any = None, *, texts: Any = None, vectorizer: Any = None, labels: Any = None
    ) -> SimilarityIndex:
        """Return an index of documents, for search of the most similar ones.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_documents, n_features)
        names : sequence, optional
            A name or a number for each document, by default row numbers.
        texts : sequence of str, optional
            The documents themselves, shown by a page.
        vectorizer : object, optional
            The fitted vectorizer or pipeline that made X of the texts, needed by a page.
        labels : sequence of str, optional
            The classes of the documents, shown by a page.

        Returns
        -------
        SimilarityIndex
        """
        model, embeddings = self._for_queries(), np.asarray(self.transform(X), dtype=np.float32)
        about = {"names": names, "texts": texts, "vectorizer": vectorizer, "labels": labels}
        return SimilarityIndex(model, embeddings, **about)
