"""Retrieval measures: every document is a query and ranks the others (LORETA paper, section 7.1.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.preprocessing import normalize

from problems.kernels import retrieved
from problems.rows import near_zero
from problems.threads import threads_of
from problems.validation import classes, table_of_numbers
from rmopt.core.ambient import dense
from rmopt.core.arguments import array, integer, sequence
from rmopt.core.matrices import real_matrix, row_dots
from rmopt.errors import InvalidInputError
from rmopt.solvers.threads import one_blas_thread

__all__ = ["Retrieval", "bilinear_scores", "cosine_scores", "evaluate_retrieval", "matrix_scores"]

# Queries that are scored at a time.
BLOCK = 256
ScoreBlock = Callable[[NDArray[np.int64]], NDArray[np.floating]]


@dataclass(frozen=True)
class Retrieval:
    """How well the documents of a query's class are ranked before the others.

    Attributes
    ----------
    map : float
        Mean average precision, in [0, 1].
    precision_at : dict of int to float
        For each k the mean share of the query's class among the first k documents.
    n_queries : int
        The number of queries in the means.

    See Also
    --------
    evaluate_retrieval : returns it.

    References
    ----------
    Manning, Raghavan and Schütze, Introduction to Information Retrieval, Cambridge University Press (2008),
    https://nlp.stanford.edu/IR-book, chapter 8.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.evaluation import cosine_scores, evaluate_retrieval
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> found = evaluate_retrieval(cosine_scores(X), [0, 0, 1, 1], ks=(1,))
    >>> found.map, found.precision_at, found.n_queries
    (1.0, {1: 1.0}, 4)
    """

    map: float
    precision_at: dict[int, float]
    n_queries: int


def evaluate_retrieval(
    score_block: ScoreBlock,
    y: ArrayLike,
    *,
    ks: Sequence[int] = (1, 10),
    queries: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Retrieval:
    """Rank all other documents for every query and measure how early its class comes.

    Average precision is the mean, over the other documents of the query's class, of the precision among the documents
    down to that one. The query itself is not ranked. A query without another document of its class has no average
    precision and is left out.

    Equal scores share one position, the last of them, as in
    `sklearn.metrics.average_precision_score`: the order of the documents never matters. If equal scores straddle
    position k, precision at k is the mean over all orders of the equal ones. It is divided by k even if fewer than k
    documents are ranked, as is usual (trec_eval).

    Parameters
    ----------
    score_block : callable
        Maps row numbers, shape (b,), to float scores, shape (b, n_documents), higher meaning more similar.
        `bilinear_scores` and `cosine_scores` make such callables. Only 256 rows are held at a time.
    y : array, shape (n_documents,)
        Class labels.
    ks : sequence of int
        The positions for precision at k, at least 1.
    queries : array of int, optional
        Row numbers of the queries, by default all documents.
    n_jobs : int, optional
        Threads, -1 for all cores: `score_block` is called in several at once, and each holds a block. The result is
        the same for any number.

    Returns
    -------
    Retrieval

    Raises
    ------
    InvalidInputError
        If an argument is out of range, a score is NaN, or no query has another document of its class.

    See Also
    --------
    problems.ranking.mean_average_precision : queries with their own true labels.
    sklearn.metrics.average_precision_score : for one query.

    References
    ----------
    Manning, Raghavan and Schütze, Introduction to Information Retrieval, Cambridge University Press (2008),
    https://nlp.stanford.edu/IR-book, chapter 8.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.evaluation import bilinear_scores, evaluate_retrieval
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.8, 0.9]])
    >>> found = evaluate_retrieval(bilinear_scores(X, X), [0, 0, 1, 1], ks=(1,))
    >>> round(found.map, 3), found.precision_at
    (1.0, {1: 1.0})
    """
    _, group, size = classes(y)
    positions = np.array([integer("each of ks", k, 1) for k in sequence("ks", ks)], dtype=np.int64)
    rows = np.arange(len(group)) if queries is None else array("queries", queries)
    if rows.dtype.kind not in "iu" or not np.isin(rows, np.arange(len(group))).all():
        raise InvalidInputError(
            f"queries must be row numbers from 0 to {len(group) - 1}; np.flatnonzero makes them from a mask."
        )
    rows = rows.ravel().astype(np.int64)
    rows = rows[size[group[rows]] > 1]
    if not len(rows):
        raise InvalidInputError("y gives no query another document of its class; nothing can be ranked.")
    members, starts = np.argsort(group, kind="stable"), np.append(0, np.cumsum(size))
    precisions = np.empty((len(rows), 1 + len(positions)))

    def measure(part: slice) -> None:
        block = rows[part]
        scores = np.array(score_block(block), order="C")
        if scores.shape != (shape := (len(block), len(group))):
            raise InvalidInputError(f"score_block must give scores of shape {shape}, got {scores.shape}.")
        scores = scores if scores.dtype == np.float32 else scores.astype(float)
        # A query's own score comes first when sorted.
        scores[np.arange(len(block)), block] = -np.inf
        ranked = np.sort(scores, axis=1)
        if np.isnan(ranked[:, -1]).any():
            raise InvalidInputError("score_block gave NaN scores; check the model for values that overflow.")
        retrieved(scores, ranked, group[block], members, starts, positions, precisions[part])

    blocks = [slice(first, first + BLOCK) for first in range(0, len(rows), BLOCK)]
    # With one thread of BLAS the scores of a block do not depend on the number of threads.
    with one_blas_thread():
        Parallel(threads_of(n_jobs), require="sharedmem")(delayed(measure)(block) for block in blocks)
    mean_average, *at_ks = precisions.mean(axis=0).tolist()
    return Retrieval(mean_average, dict(zip(positions.tolist(), at_ks, strict=True)), len(rows))


def bilinear_scores(query_embedding: ArrayLike, document_embedding: ArrayLike) -> ScoreBlock:
    """Score documents by the inner products of their embeddings with the query's.

    For a model W = A Bᵀ the embeddings are X A and X B.

    Parameters
    ----------
    query_embedding, document_embedding : array, shape (n_documents, k)
        Finite embeddings of the same documents in both roles.

    Raises
    ------
    InvalidInputError
        If the shapes differ or a value is NaN or infinite.

    See Also
    --------
    cosine_scores : without a model.
    matrix_scores : a full matrix instead of factors.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.evaluation import bilinear_scores
    >>> scores = bilinear_scores(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]))
    >>> scores(np.array([1])).tolist()
    [[6.0, 8.0]]
    """
    left = table_of_numbers("query_embedding", query_embedding, sparse=False)
    right = table_of_numbers("document_embedding", document_embedding, sparse=False)
    if left.shape != right.shape:
        raise InvalidInputError(
            f"query_embedding and document_embedding must be of one shape, got {left.shape} and {right.shape}."
        )
    return lambda rows: left[rows] @ right.T


def matrix_scores(W: Any, X: Any, *, distance: bool = False) -> ScoreBlock:
    """Score documents d for a query q by qᵀ W d, or in the order of minus the distance (q − d)ᵀ W (q − d).

    Parameters
    ----------
    W : sparse or dense array, shape (n_features, n_features)
    X : sparse or dense array, shape (n_documents, n_features)
    distance : bool

    Raises
    ------
    InvalidInputError
        If W or X is not finite, or their shapes do not match.

    See Also
    --------
    bilinear_scores : factors of W, which are cheaper.

    References
    ----------
    Chechik, Sharma, Shalit and Bengio, Large scale online learning of image similarity through ranking, JMLR 11
    (2010), https://jmlr.org/papers/v11/chechik10a.html. Davis, Kulis, Jain, Sra and Dhillon,
    Information-theoretic metric learning, ICML (2007), https://doi.org/10.1145/1273496.1273523.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.evaluation import matrix_scores
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> W = np.diag([2.0, 3.0])
    >>> matrix_scores(W, X)(np.array([0, 1])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    X = table_of_numbers("X", X)
    W = real_matrix("W", W, (X.shape[1], X.shape[1]))
    if distance:
        # A distance depends on the symmetric part of W alone.
        X, W = near_zero(X), 0.5 * (W + W.T)
    moved = dense(X @ W)
    # −(q − d)ᵀ W (q − d) orders documents as qᵀ W d − ½ dᵀ W d does.
    lengths = 0.5 * row_dots(X, moved) if distance else np.zeros(X.shape[0])
    return lambda rows: np.asarray((X @ moved[rows].T).T) - lengths


def cosine_scores(X: Any) -> ScoreBlock:
    """Score documents by the cosine between their rows and the query's, 0 for empty rows.

    Parameters
    ----------
    X : sparse or dense array, shape (n_documents, n_features)
        Finite features.

    Raises
    ------
    InvalidInputError
        If X is not two-dimensional or a value is NaN or infinite.

    See Also
    --------
    bilinear_scores : a learned similarity instead of the cosine.

    References
    ----------
    Manning, Raghavan and Schütze, Introduction to Information Retrieval, Cambridge University Press (2008),
    https://nlp.stanford.edu/IR-book, chapter 6.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.evaluation import cosine_scores
    >>> scores = cosine_scores(np.array([[3.0, 4.0], [5.0, 0.0], [0.0, 0.0]]))
    >>> scores(np.array([0])).round(2).tolist()
    [[1.0, 0.6, 0.0]]
    """
    unit = table_of_numbers("X", X).copy()
    if issparse(unit):
        unit.sum_duplicates()
    # Squares of very large and very small numbers overflow or vanish.
    unit = normalize(unit / (abs(unit).max() or 1.0))
    columns = unit.T.tocsr() if issparse(unit) else unit.T
    return lambda rows: dense(unit[rows] @ columns)
