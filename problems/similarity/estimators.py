"""LORETA as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from problems.door import (
    Embedder,
    admit,
    begin,
    count,
    labelled,
    loss_named,
    natural_size,
    product,
    seen,
)
from problems.evaluation import bilinear_scores, evaluate_retrieval
from problems.loreta import Loreta, check_size, loreta_solver, with_workers
from problems.serving.index import Searchable
from problems.similarity.model import INITS, BilinearSimilarity, initial_point, warn_of_identity
from problems.triplets import ClassTriplets
from rmopt.core import InvalidInputError, Problem, PSDPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, instance, integer, number, one_of, optional
from rmopt.costs import TripletSum
from rmopt.costs.bilinear import checked_triplets
from rmopt.kernels.lifted import SymmetricFactors
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.renamed import renamed
from rmopt.retractions import SecondOrder, SecondOrderPSD
from rmopt.solvers import Recorder, Sampler, ScheduledSolver, ShuffledEpochs, World
from rmopt.solvers.world import ONE_PROCESS


@renamed(n_triplets="max_iter")
@dataclass(eq=False, repr=False)
class LoretaSimilarity(Searchable, Embedder, Loreta):
    """A low-rank bilinear similarity of documents, learned from their classes or from triplets.

    Learns W of a fixed rank such that qᵀ W d is larger for documents d that are similar to the query q,
    by stochastic gradient descent on the manifold of rank-k matrices (LORETA-1: Shalit et al. 2012,
    Algorithm 4, in a form that costs O(nnz·k + k²) a step).

    Parameters
    ----------
    rank : int or None
        The rank of W; None: 30, or half the number of features where that is smaller.
    step_size : float, StepSize, callable or None
        The step size, or a rule of them (`rmopt.solvers`). None: one over the squared mean of ‖x‖², which
        is 1 for unit rows and follows the scale of the data.
    retraction : {"second-order", "metric-projection", "orthographic"} or Retraction
        How a step stays on the manifold; "orthographic" is not for `psd`.
    engine : {"auto", "compiled", "reference"}
        "reference" is the plain definition, slow.
    warm_start : bool
        Let `fit` go on from the present solution, step numbers included.
    checkpoint : path or None
        Save the state there every half minute, and resume from it when the file exists.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    n_jobs : int or None
        Threads, -1 for all cores: workers that take their own steps and meet at their mean
        (`rmopt.solvers.Parallel`). The result depends on how many there are.
    verbose : bool
        Draw a progress bar on standard error.
    psd : bool
        Learn a positive semidefinite W (LORETA-1-PSD, Algorithm 5): the similarity is symmetric, an inner product
        of embeddings.
    max_iter : int
        Number of steps; each looks at one triplet.
    loss : {"hinge", "squared_hinge", "logistic"} or Loss
        The loss of the score difference of positive and negative.
    init : {"identity", "gaussian"}
        "identity": ones at the first `rank` places of the diagonal, which suits features in order of
        importance and learns nothing where the first ones are 0 in all rows, as hashed words and the edges of
        pictures are; "gaussian": a random point. Both are divided by the mean of ‖x‖², so that the scale of the
        data changes no score.
    early_stopping : bool
        Keep a part of the data for validation and stop when its mean average precision no longer rises.
    validation_fraction : float
        The share of rows kept for validation.
    n_iter_no_change : int
        Number of measurements (20 in a full run) without improvement after which to stop.
    tol : float
        The least rise of mean average precision that counts as an improvement.

    Attributes
    ----------
    model_ : BilinearSimilarity
        The learned similarity.
    classes_ : array
        The classes seen by `fit`.
    n_features_in_ : int
    n_iter_, n_updates_ : int
        Steps done by each worker, and how many steps of all moved the point.
    history_ : list of dict
        Measurements of early stopping.

    See Also
    --------
    ContrastiveSimilarity : usually better where there are classes; it looks at whole batches.
    problems.metric.CometMetric : a full metric, for up to some hundred dense features.
    problems.ranking.LoretaLabelRanker : the same steps for labels.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.

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

    _model = BilinearSimilarity
    _kept = (*Loreta._kept, "classes_")
    _seen = (*Loreta._seen, "classes_")

    rank: Annotated[int | None, optional(integer, 1)] = None
    _: KW_ONLY
    psd: Annotated[bool, flag] = False
    max_iter: Annotated[int, count] = 100_000
    loss: Annotated[Any, loss_named] = "hinge"
    init: Annotated[str, bounded(one_of, INITS)] = "identity"
    early_stopping: Annotated[bool, flag] = False
    validation_fraction: Annotated[float, bounded(number, above=0, below=1)] = 0.1
    n_iter_no_change: Annotated[int, bounded(integer, 1)] = 5
    tol: Annotated[float, bounded(number, least=0)] = 1e-3

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from class labels: rows of one class are similar.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        """
        seed = begin(self)
        X, y = labelled(self, X, y, reset=not self._continues(), ensure_min_samples=3)
        self.classes_, held_out = np.unique(y), None
        if self.early_stopping:
            X, y, *held_out = self._hold_out(X, y, seed)
        return self._learn(X, ClassTriplets(y), seed, held_out=held_out)

    def fit_triplets(self, X: Any, triplets: Any) -> Self:
        """Learn from given triplets, in shuffled epochs, for `max_iter` steps.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        triplets : int array, shape (T, 3)
            Row numbers in X: query, positive, negative.
        """
        self._keep_all_rows()
        seed = begin(self)
        X = admit(self, X, reset=not self._continues())
        self.__dict__.pop("classes_", None)
        sampler = ShuffledEpochs(checked_triplets(triplets, X.shape[0], X.shape[0]))
        return self._learn(X, sampler, seed)

    @renamed(n_triplets="max_iter")
    def partial_fit(self, X: Any, y: Any, max_iter: int | None = None) -> Self:
        """Go on learning from a batch of labelled rows.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        max_iter : int, optional
            Number of steps on this batch; ten per row unless given.
        """
        self._keep_all_rows()
        steps = None if max_iter is None else count("max_iter", max_iter)
        self._learn_part(X, y, self._check_part(), Recorder(progress=self.verbose), steps)
        return self

    def fit_stream(self, chunks: Any, *, steps_per_row: float = 10.0, world: World | None = None) -> Self:
        """Learn from data that come in chunks, of which one is in memory at a time.

        As `partial_fit` on each, with a progress bar where `verbose`, and with `checkpoint`: a run that is killed
        goes on from its file and ends with the same bits. Triplets are drawn within a chunk.

        Parameters
        ----------
        chunks : iterable of (X, y)
            Such as `problems.data.stream` reads from files. Others must give the same chunks again for a run to be
            resumed.
        steps_per_row : float
            Steps on each chunk, for each of its rows.
        world : World, optional
            `rmopt.solvers.MPIWorld` for the processes that ``mpiexec`` started: each gives chunks of its own, learns
            them with `n_jobs` workers, and holds the one model of all at the end. Where the chunks of a process end
            before those of others it begins them again, so they must be such as can be iterated again. With
            `checkpoint` each process writes files of its own.
        """
        self._keep_all_rows()
        share = number("steps_per_row", steps_per_row, above=0)
        world = ONE_PROCESS if world is None else instance("world", world, World, "a World")

        def learn(X: Any, y: Any, seed: int) -> None:
            self._learn_part(X, y, seed, Recorder(), share=share, world=world)

        self._follow(chunks, learn, world, steps_per_row=share)
        if self.init == "identity":
            warn_of_identity(self.model_.point, stacklevel=3)
        return self

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
        return _map_of(self.model_, *labelled(self, X, y, reset=False), n_jobs=self.n_jobs)

    @classmethod
    def _shape_of(cls, point: Any) -> dict[str, Any]:
        if point.shape[0] != point.shape[1]:
            raise InvalidInputError(
                f"a similarity is a square matrix, and the point is one of {point.shape[0]} × {point.shape[1]}."
            )
        return {"rank": point.rank, "psd": isinstance(point, PSDPoint)}

    def _known_shape(self) -> dict[str, Any]:
        run = vars(self).get("_continued")
        if run is None:
            return self._shape_of(self.model_.point)
        held = getattr(run.state, "factors", None) or run.state.point
        return {"rank": run.rank, "psd": isinstance(held, SymmetricFactors | PSDPoint)}

    def _maps(self) -> tuple[Array, Array, bool]:
        return *self.model_.factors, False

    def _embedded(self, X: Any, side: int) -> Array:
        """Return the embedding of queries (side 0) or documents (side 1), always as an array."""
        X = seen(self, X, "model_")
        return product(X, self.model_.factors[side])

    @property
    def _n_features_out(self) -> int:
        return self.model_.factors[1].shape[1]

    def _learn_part(
        self,
        X: Any,
        y: Any,
        seed: int,
        recorder: Recorder,
        steps: int | None = None,
        share: float = 10.0,
        world: World = ONE_PROCESS,
    ) -> None:
        """Learn from a part of the data: some steps, or so many for each row, in all processes together."""
        first = not self._has_learned()
        X, y = labelled(self, X, y, reset=first, ensure_min_samples=3 if first else 1)
        steps = max(1, round(share * int(world.total(X.shape[0])))) if steps is None else steps
        labels = np.unique(np.concatenate(world.everywhere(np.unique(y))))
        before = labels if first else getattr(self, "classes_", labels)
        if (before.dtype.kind in "biuf") != (labels.dtype.kind in "biuf"):
            raise InvalidInputError(
                f"y holds labels of type {labels.dtype}, and earlier ones were {before.dtype}; give one type."
            )
        try:
            triplets = ClassTriplets(y)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{str(error).rstrip('.')}; where rows come sorted by class, take larger parts, or a shuffle_buffer."
            ) from None
        if not first:
            self._check_shape()
        rank = None if first else self._known_rank()
        solver, problem, start = self._parts(X, triplets, steps, seed, world, rank)
        self.classes_ = np.union1d(before, labels)
        self._learn_chunk(solver, problem, start, seed, recorder)
        self.history_ = list[dict[str, Any]]()

    def _keep_all_rows(self) -> None:
        if self.early_stopping:
            raise InvalidInputError(
                "early_stopping = True is for fit, which holds out rows of the classes; set it to False."
            )

    def _hold_out(self, X: Any, y: Array, seed: int) -> tuple[Any, Array, Any, Array]:
        rng = np.random.default_rng(np.random.RandomState(seed % 2**32).randint(2**31))
        held = rng.random(len(y)) < self.validation_fraction
        if max(np.unique(y[held], return_counts=True)[1], default=0) < 2 or len(np.unique(y[~held])) < 2:
            raise InvalidInputError(
                f"early stopping holds out {held.sum()} of {len(y)} rows; it needs two rows of one class there, and "
                f"two classes in the rest: change validation_fraction = {self.validation_fraction} or set "
                "early_stopping = False."
            )
        return X[~held], y[~held], X[held], y[held]

    def _parts(
        self,
        X: Any,
        sampler: Sampler,
        n_steps: int,
        seed: int,
        world: World = ONE_PROCESS,
        rank: int | None = None,
    ) -> tuple[ScheduledSolver, Problem, partial[Any]]:
        """Return what learns, from what, and what makes the start."""
        n = X.shape[1]
        rank = rank or self.rank or min(30, max(1, n // 2))
        check_size((n,) if self.psd else (n, n), rank)
        manifold = PSDFixedRank(n, rank) if self.psd else FixedRankEmbedded(n, n, rank)
        cost = TripletSum(X, X, loss_named("loss", self.loss))
        problem = Problem(manifold, cost)
        # If the rows grow by a factor c, a W that gives the same scores shrinks by c² and its gradient grows by c².
        unit, step_size = natural_size(cost.rows[0], 1.0, 1, world), self.step_size
        step_size = natural_size(cost.rows[0], 1.0, 2, world) if step_size is None else step_size
        alone = loreta_solver(
            step_size, n_steps, sampler, retraction=self.retraction, engine=self.engine, psd=self.psd
        )
        if rank == n > 1 and isinstance(alone.retraction, SecondOrder | SecondOrderPSD):
            warnings.warn(
                f"rank = {n} is the number of features, and second-order steps of matrices of full rank fail where a "
                f"singular value would pass 0; take a smaller rank{'' if self.psd else ', or another retraction'}.",
                stacklevel=4,
            )
        solver = with_workers(alone, self.n_jobs, world)
        return solver, problem, partial(initial_point, manifold, self.init, seed, unit)

    def _learn(
        self,
        X: Any,
        sampler: Sampler,
        seed: int,
        held_out: list[Any] | None = None,
    ) -> Self:
        afresh = not self._continues()
        solver, problem, start = self._parts(X, sampler, self.max_iter, seed)
        recorder, stop = Recorder(progress=self.verbose), None
        if held_out is not None:
            done = 0 if afresh else self.n_iter_
            recorder = Recorder(
                {"map": lambda point: _map_of(BilinearSimilarity(point), *held_out)},
                at=done + np.linspace(0, solver.max_iter, 21)[1:].astype(int),
                progress=self.verbose,
            )
            stop = self._no_longer_rises
        self.history_ = self._run(solver, problem, start, seed, afresh, recorder, stop).history
        if self.init == "identity":
            warn_of_identity(self.model_.point, stacklevel=4)
        return self

    def _no_longer_rises(self, rows: list[dict[str, Any]]) -> str | None:
        values = [row["map"] for row in rows]
        recent = int(self.n_iter_no_change)
        if len(values) > recent and max(values[-recent:]) < max(values[:-recent]) + self.tol:
            return f"no rise of the validation mAP by {self.tol} in {recent} measurements"
        return None


def _map_of(model: BilinearSimilarity, X: Any, y: Array, n_jobs: int | None = None) -> float:
    queries, documents = (product(X, factor) for factor in model.factors)
    return evaluate_retrieval(bilinear_scores(queries, documents), y, ks=(), n_jobs=n_jobs).map
