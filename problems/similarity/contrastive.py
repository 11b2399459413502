"""A similarity of documents that is learned from batches with all their classes, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from sklearn.base import BaseEstimator

from problems.batches import run_batches, share_left_out
from problems.door import (
    Embedder,
    begin,
    file_path,
    kept_count,
    labelled,
    product,
    seedable,
    seen,
    thread_count,
    unit_rows,
)
from problems.evaluation import bilinear_scores, evaluate_retrieval
from problems.saving import Saved
from problems.serving.index import Searchable
from problems.similarity.cost import ContrastiveSum
from problems.triplets import classes_with_pairs
from rmopt.core.ambient import Array
from rmopt.core.arguments import Checked, bounded, flag, integer, number, optional
from rmopt.core.streams import Stream, generator
from rmopt.solvers.threads import one_blas_thread

# The length of the first embeddings decides how fast the first steps turn them.
START = 0.03
# Batches that small collections need, and the share of the terms that is left out of a document.
LEAST_STEPS, WORDS = 500, 0.3


@dataclass(eq=False, repr=False)
class ContrastiveSimilarity(Checked, Saved, Searchable, Embedder, BaseEstimator):
    """A similarity of documents: the cosine of linear embeddings, learned from the classes of whole batches.

    Each document of a batch is a query, and the documents of its class are to be found among all others by a softmax
    over their cosines. It sees all triplets of a batch at once, where `LoretaSimilarity` sees one triplet a step.
    Not from a paper on low-rank matrices: the loss is that of Khosla et al. (2020), the step AdaGrad's, which touches
    the rows of the terms that occur in the batch.

    Parameters
    ----------
    rank : int
        Numbers in an embedding.
    temperature : float
        What cosines are divided by in the softmax; smaller ones look at the nearest documents.
    dropout : float or None
        The share of terms that is left out of a document, anew each time; from 0 to below 1. None: 0.3 where fewer
        than a tenth of the entries of X are not zero, as with words, and otherwise 0.
    batch_size : int
        Documents in a batch; fewer where there are not as many.
    n_epochs : int or None
        Passes over the documents. None: 10, or for small collections as many as make 500 batches.
    step_size : float
        Of AdaGrad; it falls to zero along a cosine.
    checkpoint : path or None
        Save the state there every half minute, and resume from it when the file exists.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    n_jobs : int or None
        Threads that learn one model, each with batches of its own; they meet at their mean, so the result depends on
        their number. None: one, -1: all cores.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_ : array, shape (rank, n_features)
        The embedding of x is ``components_ @ x``, divided by its length.
    classes_ : array
    n_features_in_ : int
    n_iter_ : int
        Batches that each worker saw.

    See Also
    --------
    LoretaSimilarity : where there are triplets or a stream in place of classes.
    problems.metric.CometMetric : a full metric, for up to some hundred dense features.

    References
    ----------
    Khosla et al., Supervised contrastive learning, NeurIPS (2020), arXiv:2004.11362.

    Examples
    --------
    >>> from problems.similarity import ContrastiveSimilarity
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(300, n_features=20, centers=10, cluster_std=4.0, random_state=0)
    >>> model = ContrastiveSimilarity(rank=5, n_epochs=20, random_state=0)
    >>> model.fit(X[:200], y[:200]).similarity(X[200:202], X[:5]).shape
    (2, 5)
    >>> bool(model.score(X[200:], y[200:]) > 0.9)
    True
    >>> model.transform(X[200:]).shape
    (100, 5)
    """

    rank: Annotated[int, kept_count] = 30
    _: KW_ONLY
    temperature: Annotated[float, bounded(number, above=0)] = 0.3
    dropout: Annotated[float | None, optional(number, least=0, below=1)] = None
    batch_size: Annotated[int, bounded(integer, 2)] = 256
    n_epochs: Annotated[int | None, optional(kept_count)] = None
    step_size: Annotated[float, bounded(number, above=0)] = 0.05
    checkpoint: Annotated[Path | str | None, file_path] = None
    random_state: Annotated[Any, seedable] = None
    n_jobs: Annotated[int | None, optional(thread_count)] = None
    verbose: Annotated[bool, flag] = False

    _arrays: ClassVar = {"components_": (float, ("rank", "features"))}
    _names: ClassVar = {"classes_": ("classes",)}
    _numbers: ClassVar = {**Saved._numbers, "n_iter_": integer}

    @one_blas_thread()
    def fit(self, X: Any, y: Any) -> Self:
        """Learn from class labels: rows of one class are similar.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        """
        seed = begin(self)
        X, y = labelled(self, X, y, ensure_min_samples=3)
        self.classes_, which, _ = classes_with_pairs(y)
        dropout = share_left_out(X, self.dropout, WORDS)
        start = START * generator(seed, Stream.START).standard_normal((X.shape[1], int(self.rank)))
        cost = ContrastiveSum(X, which, self.temperature, dropout)
        result = run_batches(self, cost, start, seed, LEAST_STEPS)
        self.components_, self.n_iter_ = result.point.T.copy(), result.steps
        return self

    def transform(self, X: Any) -> Array:
        """Return the embeddings of documents, shape (n_samples, rank): of length 1, or 0 where no term is known."""
        return self._unit(X)

    def _unit(self, X: Any) -> Array:
        """Return the embeddings, always as an array."""
        return unit_rows(product(seen(self, X, "components_"), self.components_.T))[0]

    def similarity(self, queries: Any, documents: Any) -> Array:
        """Return the cosines of all pairs, shape (n_queries, n_documents)."""
        return self._unit(queries) @ self._unit(documents).T

    def score(self, X: Any, y: Any) -> float:
        """Return the mean average precision when each row in turn is the query and ranks the others."""
        Z = self._unit(X)
        # A frame keeps its names, by which it is known.
        _, y = labelled(self, X, y, reset=False)
        return evaluate_retrieval(bilinear_scores(Z, Z), y, ks=(), n_jobs=self.n_jobs).map

    def _maps(self) -> tuple[Array, Array, bool]:
        return self.components_.T, self.components_.T, True
