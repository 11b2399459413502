"""Similarities as scikit-learn estimators: by LORETA, and by contrasts within batches of documents."""

from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from problems.batches import BatchLearner
from problems.evaluation import bilinear_scores, evaluate_retrieval
from problems.loreta import Loreta, loreta_solver, with_workers
from problems.rows import natural_size, product, unit_rows
from problems.saving import Saved
from problems.serving.index import Searchable
from problems.similarity.cost import ContrastiveSum
from problems.triplets import ClassTriplets, classes_with_pairs, loss_named
from problems.validation import (
    Embedder,
    admit,
    begin,
    count,
    in_order,
    kept_count,
    labelled,
    seen,
)
from rmopt.core import LowRankPoint, Problem, PSDPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, integer, number, one_of, optional
from rmopt.core.streams import Stream, generator
from rmopt.costs import TripletSum
from rmopt.costs.bilinear import checked_triplets
from rmopt.errors import warn
from rmopt.kernels.lifted import SymmetricFactors
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.solvers import Sampler, ScheduledSolver, ShuffledEpochs
from rmopt.solvers.threads import one_blas_thread

INITS = ("identity", "gaussian")
# Passes over the rows, and the least number of batches, for which small collections need many passes.
LEAST_EPOCHS, LEAST_STEPS = 10, 500
# The length of the first embeddings determines how fast the first steps turn them.
START = 0.03


def initial_point(
    manifold: FixedRankEmbedded | PSDFixedRank, init: str, seed: int | None, unit: float = 1.0
) -> LowRankPoint | PSDPoint:
    """Return the start: `unit` times "identity" (zero-padded) or "gaussian" (a random point)."""
    identity = one_of("init", init, INITS) == "identity"
    point = manifold.identity() if identity else manifold.random_point(np.random.default_rng(seed))
    return replace(point, S=unit * point.S)


@dataclass(eq=False, repr=False)
class LoretaSimilarity(Searchable, Embedder, Loreta):
    """A low-rank bilinear similarity of documents, learned from their classes or from triplets.

    Learns W of a fixed rank such that qᵀ W d is larger for documents d that are similar to the query q,
    by stochastic gradient descent on the manifold of rank-k matrices (LORETA-1: Shalit et al. 2012, Algorithm 4, in a
    form that costs O(nnz·k + k²) per step). Features should be standardised, or rows of counts scaled to unit length.

    Parameters
    ----------
    rank : int or None
        The rank of W. None means 30, or half the number of features if that is smaller.
    step_size : float, StepSize, callable or None
        The step size, or a rule (`rmopt.solvers`). None means one over the squared mean of ‖x‖², which is 1 for unit
        rows and follows the scale of the data.
    retraction : {"second-order", "metric-projection", "orthographic"} or Retraction
        How a step stays on the manifold. "orthographic" is not available with `psd`.
    checkpoint : path or None
        Save the state of `fit` and `fit_stream` there every half minute, and resume from it if the file exists.
    random_state : int, RandomState or None
        Equal integers give identical results.
    n_jobs : int or None
        Threads, -1 for all cores: workers that take their own steps and average (`rmopt.solvers.Parallel`). The
        result depends on their number.
    verbose : bool
        Draw a progress bar on standard error.
    psd : bool
        Learn a positive semidefinite W (LORETA-1-PSD, Algorithm 5): the similarity is symmetric, an inner product
        of embeddings.
    max_iter : int
        Number of steps, of one triplet each.
    loss : {"hinge", "squared_hinge", "logistic"} or Loss
        The loss of the score difference of positive and negative.
    init : {"identity", "gaussian"}
        "identity" has ones at the first `rank` places of the diagonal, which suits features in order of importance.
        It learns nothing if the first ones are 0 in all rows, as for hashed words and the edges of images. "gaussian"
        is a random point. Both are divided by the mean of ‖x‖², so that scores do not depend on the scale of the
        data.

    Attributes
    ----------
    model_ : LowRankModel
        The learned matrix: W is `model_.point`, and A Bᵀ with ``A, B = model_.factors``.
    classes_ : array
        The classes known to `fit`.
    n_features_in_ : int
    n_iter_, n_updates_ : int
        Steps of each worker, and the number of all workers' steps that moved the point.

    See Also
    --------
    ContrastiveSimilarity : usually better with classes, by entire batches.
    problems.metric.CometMetric : a full metric, for up to some hundred dense features.
    problems.ranking.LoretaLabelRanker : the same steps for labels.

    Examples
    --------
    >>> from problems.similarity import LoretaSimilarity
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(300, n_features=20, centers=3, cluster_std=4.0, random_state=0)
    >>> model = LoretaSimilarity(rank=5, max_iter=20_000, random_state=0)
    >>> model.fit(X[:200], y[:200]).similarity(X[200:202], X[:5]).shape
    (2, 5)
    >>> bool(model.score(X[200:], y[200:]) > 0.9)
    True
    >>> model.transform(X[200:]).shape
    (100, 5)
    """

    _optional: ClassVar = {**Saved._optional, "classes_": ("classes",)}

    rank: Annotated[int | None, optional(integer, 1)] = None
    _: KW_ONLY
    psd: Annotated[bool, flag] = False
    max_iter: Annotated[int, count] = 100_000
    loss: Annotated[Any, loss_named] = "hinge"
    init: Annotated[str, bounded(one_of, INITS)] = "identity"

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from class labels: rows of one class are similar.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        """
        seed = begin(self)
        X, y = labelled(self, X, y, ensure_min_samples=3)
        self.classes_ = np.unique(y)
        return self._learn(X, ClassTriplets(y), seed, X=X, y=y)

    def fit_triplets(self, X: Any, triplets: Any) -> Self:
        """Learn from given triplets, in shuffled epochs, for `max_iter` steps.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        triplets : int array, shape (T, 3)
            Row numbers in X: query, positive, negative.
        """
        seed = begin(self)
        X = admit(self, X)
        self.__dict__.pop("classes_", None)
        triplets = checked_triplets(triplets, X.shape[0], X.shape[0])
        return self._learn(X, ShuffledEpochs(triplets), seed, X=X, triplets=triplets)

    def partial_fit(self, X: Any, y: Any, max_iter: int | None = None) -> Self:
        """Continue learning from a batch of labelled rows.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        max_iter : int, optional
            Number of steps on this batch, by default ten per row.
        """
        steps = None if max_iter is None else count("max_iter", max_iter)
        self._learn_part(X, y, self._begin_part(), steps)
        return self

    def fit_stream(self, chunks: Any, *, steps_per_row: float = 10.0) -> Self:
        """Learn from data in chunks, of which one is in memory at a time.

        As `partial_fit` on each, with a progress bar if `verbose`, and with `checkpoint`: a killed run resumes from
        its file and ends bit-identically. Triplets are drawn within a chunk.

        Parameters
        ----------
        chunks : iterable of (X, y)
            For example from `problems.data.stream`. Others must yield the same chunks again for a run to be resumed.
        steps_per_row : float
            Steps on each chunk, for each of its rows.
        """
        share = number("steps_per_row", steps_per_row, above=0)
        return self._follow(chunks, steps_per_row=share)

    def similarity(self, queries: Any, documents: Any) -> Array:
        """Return the scores of all pairs, shape (n_queries, n_documents)."""
        return product(self._embedded(queries, 0), self._embedded(documents, 1).T)

    def transform(self, X: Any) -> Array:
        """Return the embedding of documents, shape (n_samples, rank).

        The similarity of a query is the inner product of its `transform_queries` with it.
        """
        return self._embedded(X, 1)

    def transform_queries(self, X: Any) -> Array:
        """Return the embedding of queries, shape (n_samples, rank)."""
        return self._embedded(X, 0)

    def score(self, X: Any, y: Any) -> float:
        """Return the mean average precision when each row in turn is the query and ranks the others."""
        check_is_fitted(self, "model_")
        X, y = labelled(self, X, y, reset=False)
        scores = bilinear_scores(*(product(X, factor) for factor in self.model_.factors))
        return evaluate_retrieval(scores, y, ks=(), n_jobs=self.n_jobs).map

    def _symmetric(self) -> bool:
        """Return whether the learned matrix is symmetric."""
        run = vars(self).get("_continued")
        held = self.model_.point if run is None else getattr(run.state, "factors", None) or run.state.point
        return isinstance(held, SymmetricFactors | PSDPoint)

    def _embedded(self, X: Any, side: int) -> Array:
        """Return the embedding of queries (side 0) or documents (side 1), always as an array."""
        return product(seen(self, X, "model_"), self.model_.factors[side])

    def _for_queries(self) -> Self:
        # Of all that was learned an index needs one factor.
        model, factor = copy(self), self.model_.factors[0].astype(np.float32)
        model.__dict__ |= {"_continued": None, "model_": SimpleNamespace(factors=(factor, factor[:0]))}
        return model

    @property
    def _n_features_out(self) -> int:
        return self.model_.factors[1].shape[1]

    def _learn_part(
        self,
        X: Any,
        y: Any,
        seed: int,
        steps: int | None = None,
        steps_per_row: float = 10.0,
    ) -> None:
        """Learn from a part of the data: some steps, or a number for each row."""
        first = not self._has_learned()
        X, y = labelled(self, X, y, reset=first, ensure_min_samples=3 if first else 1)
        if steps is None:
            steps = max(1, round(steps_per_row * X.shape[0]))
        known = [] if first or not hasattr(self, "classes_") else self.classes_.tolist()
        labels = np.unique(in_order("y", known + np.unique(y).tolist()))
        parts = self._parts(X, ClassTriplets(y), steps, seed, first)
        self.classes_ = labels
        self._learn_chunk(*parts, seed)

    def _parts(
        self, X: Any, sampler: Sampler, n_steps: int, seed: int, afresh: bool
    ) -> tuple[ScheduledSolver, Problem, partial[Any]]:
        """Return the solver, the problem and the start. A learned state keeps its rank and its cone."""
        n = X.shape[1]
        rank = (self.rank or min(30, max(1, n // 2))) if afresh else self._known_rank()
        psd = self.psd if afresh else self._symmetric()
        manifold = PSDFixedRank(n, rank) if psd else FixedRankEmbedded(n, n, rank)
        cost = TripletSum(X, X, loss_named("loss", self.loss))
        problem = Problem(manifold, cost)
        # If the rows grow by a factor c, a W that gives the same scores shrinks by c² and its gradient grows by c².
        unit, step_size = natural_size(cost.rows[0], 1.0, 1), self.step_size
        step_size = natural_size(cost.rows[0], 1.0, 2) if step_size is None else step_size
        alone = loreta_solver(step_size, n_steps, sampler, retraction=self.retraction, psd=psd)
        solver = with_workers(alone, self.n_jobs)
        return solver, problem, partial(initial_point, manifold, self.init, seed, unit)

    def _learn(self, rows: Any, sampler: Sampler, seed: int, **data: Any) -> Self:
        solver, problem, start = self._parts(rows, sampler, self.max_iter, seed, True)
        rank = problem.manifold.rank  # type: ignore[attr-defined]
        if self.init == "identity" and 2 * int((abs(rows[:, :rank]).sum(axis=0) > 0).sum()) < rank:
            warn(
                f"most of the first {rank} features, with which init = 'identity' begins, are 0 in all rows, as "
                "hashed words are: no step moves these directions. Give init = 'gaussian', or other ones first."
            )
        self._run(solver, problem, start, seed, **data)
        return self


@dataclass(eq=False, repr=False)
class ContrastiveSimilarity(Searchable, Embedder, BatchLearner):
    """A similarity of documents: the cosine of linear embeddings, learned from the classes of whole batches.

    Each document of a batch is a query for the documents of its class among all others, by a softmax over their
    cosines. It uses all triplets of a batch at once, whereas `LoretaSimilarity` uses one triplet per step. It is not
    from a paper on low-rank matrices: the loss is that of Khosla et al. (2020), with AdaGrad steps on the rows of the
    terms that occur in the batch. Dense features should be standardised.

    Parameters
    ----------
    rank : int
        Length of an embedding.
    dropout : float or None
        The share of terms left out of a document, drawn again each time; at least 0 and below 1. None means 0.3 if
        fewer than a tenth of the entries of X are not zero, as for words, and else 0.
    batch_size : int
        Documents in a batch, or fewer if there are not as many.
    n_epochs : int or None
        Passes over the documents. None means 10, or for small collections enough for 500 batches.
    step_size : float
        The step size of AdaGrad, which falls to zero along a cosine.
    checkpoint : path or None
        Save the state there every half minute, and resume from it if the file exists.
    random_state : int, RandomState or None
        Equal integers give identical results.
    n_jobs : int or None
        Threads that learn one model, each with its own batches. They average, so the result depends on their number.
        None means one, -1 all cores.
    verbose : bool
        Draw a progress bar on standard error.
    temperature : float
        The divisor of cosines in the softmax. Smaller ones emphasise the nearest documents.

    Attributes
    ----------
    components_ : array, shape (rank, n_features)
        The embedding of x is ``components_ @ x``, divided by its length.
    classes_ : array
    n_features_in_ : int
    n_iter_ : int
        Number of batches of each worker.

    See Also
    --------
    LoretaSimilarity : for triplets or a stream instead of classes.
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
    batch_size: Annotated[int, bounded(integer, 2)] = 256
    step_size: float = 0.05

    _words = 0.3
    _arrays: ClassVar = {"components_": (float, ("rank", "features"))}
    _names: ClassVar = {"classes_": ("classes",)}

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
        start = START * generator(seed, Stream.START).standard_normal((X.shape[1], int(self.rank)))
        cost = ContrastiveSum(X, which, self.temperature, self._share_left_out(X))
        per_epoch = X.shape[0] // min(int(self.batch_size), X.shape[0])
        epochs = self.n_epochs or max(LEAST_EPOCHS, -(-LEAST_STEPS // per_epoch))
        self.components_ = self._run(cost, start, seed, epochs, X=X, y=which).T.copy()
        return self

    def transform(self, X: Any) -> Array:
        """Return the embeddings of documents, shape (n_samples, rank): of length 1, or 0 without known terms."""
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
        # A frame keeps its column names, by which it is checked.
        _, y = labelled(self, X, y, reset=False)
        return evaluate_retrieval(bilinear_scores(Z, Z), y, ks=(), n_jobs=self.n_jobs).map
