"""Rankings of labels as scikit-learn estimators: LORETA, and logistic regression with low-rank coefficients."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy.special import expit
from sklearn.base import clone

from problems.batches import BatchLearner, SeededEpochs
from problems.loreta import Loreta, loreta_solver, with_workers
from problems.ranking.cost import (
    LabelRanking,
    LogisticLabels,
    WarpRanking,
    first_step,
    label_scores,
)
from problems.ranking.measures import best_labels, mean_average_precision
from problems.rows import check_learned, finite, natural_size
from problems.saving import Saved
from problems.thresholds import LabelTables
from problems.validation import (
    admit,
    begin,
    count,
    kept_count,
    seen,
    table_of_labels,
)
from rmopt.core import DivergedError, Factored, InvalidInputError, LowRankPoint, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, integer, one_of, optional
from rmopt.core.matrices import as_rows
from rmopt.core.streams import Stream, generator
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import Sampler, ShuffledEpochs
from rmopt.solvers.threads import one_blas_thread

SAMPLINGS: dict[str, type[LabelRanking]] = {"exact": LabelRanking, "warp": WarpRanking}
INITS = ("zero", "identity", "gaussian")
# For logistic regression: least passes and batches, the number of doublings, and the largest held-out part.
FIRST_EPOCHS, FIRST_BATCHES, DOUBLINGS, MOST_HELD_OUT = 5, 50, 5, 2000


def epochs(cost: LabelRanking) -> Sampler:
    """Return the sampler that draws every row once per epoch."""
    return (SeededEpochs if isinstance(cost, WarpRanking) else ShuffledEpochs)(cost.n_terms)


def starting_point(
    manifold: FixedRankEmbedded,
    cost: LabelRanking,
    init: str,
    seed: int | None,
    step_size: float = 1.0,
    unit: float = 1.0,
) -> LowRankPoint:
    """Return the start of a run (Shalit et al. 2012, §7.2.1).

    "zero" sums the first 2k subgradients from the zero matrix in steps of `step_size` and truncates to rank k, with
    an error if the rank is lower. "identity" has `unit` at the first k places of the diagonal. "gaussian" is `unit`
    times a product of two matrices of standard normal numbers.
    """
    rng = np.random.default_rng(seed)
    if one_of("init", init, INITS) == "zero":
        return _from_zero(manifold, cost, rng, step_size)
    point = manifold.identity()
    if init == "gaussian":
        (n_labels, n), k = manifold.shape, manifold.rank
        point = manifold.from_factors(rng.standard_normal((n_labels, k)), rng.standard_normal((n, k)))
    return replace(point, S=unit * point.S)


def _from_zero(
    manifold: FixedRankEmbedded, cost: LabelRanking, rng: np.random.Generator, step_size: float
) -> LowRankPoint:
    """Take subgradient steps from zero in the space of all matrices until the sum has rank k, and truncate it."""
    taken: list[int] = []
    left: list[Array] = []
    wanted = 2 * manifold.rank
    for row in rng.permutation(cost.n_terms).tolist():
        # Rows stay sparse, since arrays would be copied at every step.
        x = cost.X[[row]]
        along = (cost.X[np.array(taken, dtype=int)] @ x.T).toarray()
        g = cost.label_gradient(row, sum(map(np.multiply, along, left), np.zeros(manifold.shape[0])))
        if not (g.any() and x.count_nonzero()):
            continue
        taken.append(row)
        left.append(-step_size * g)
        if len(left) == wanted:
            wanted *= 2
            try:
                return _truncated(manifold, left, cost.X[taken])
            except InvalidInputError:
                continue
    if len(left) >= manifold.rank:
        return _truncated(manifold, left, cost.X[taken])
    raise InvalidInputError(
        f"init = 'zero' found {len(left)} subgradients for rank {manifold.rank}; a row has one if a true and a wrong "
        "label are within a margin of 1 and a feature is not 0. Give more rows, a lower rank or init = 'identity'."
    )


def _truncated(manifold: FixedRankEmbedded, left: list[Array], rows: Any) -> LowRankPoint:
    try:
        return manifold.from_gradients([Factored(-np.array(left).T, rows.T)])
    except np.linalg.LinAlgError as error:
        raise DivergedError(
            "the first subgradients are not finite; choose a smaller step_size, or scale X."
        ) from error


@dataclass(eq=False, repr=False)
class LoretaLabelRanker(Loreta):
    """A low-rank ranking of labels, for examples with several labels out of many.

    Learns W of a fixed rank (labels × features) such that true labels score higher than wrong ones, by LORETA-1
    (Shalit et al. 2012, §7.2). Features should be standardised, or rows of counts scaled to unit length.

    Parameters
    ----------
    rank : int or None
        The rank of W. None means 100, or two thirds of the number of labels, features or, for `fit`, rows if that is
        smaller, at least 1. The first part of a stream determines it.
    step_size : float, StepSize, callable or None
        The step size, or a rule (`rmopt.solvers`). None means 0.03 over the mean of ‖x‖².
    retraction, checkpoint, random_state, n_jobs, verbose : optional
        As in `problems.similarity.LoretaSimilarity`.
    init : {"zero", "identity", "gaussian"}
        The start: the first 2·rank subgradients from the zero matrix, a zero-padded identity, or a product of two
        random matrices (§7.2.1). These two are divided by the root of the mean of ‖x‖².
    n_epochs : int
        Passes over the rows.
    sampling : {"warp", "exact"}
        "exact" is the paper's loss, which compares with the best-scored wrong label, often a true label missing from
        the data. "warp" draws wrong labels until one violates the margin (Weston et al. 2011). It is more robust, and
        faster for many labels.
    top_k : int or None
        Number of labels that `predict` gives to each row. None means the rounded mean number in the training rows.

    Attributes
    ----------
    model_ : LowRankModel
        The learned matrix W, labels × features, is `model_.point`.
    n_labels_, n_features_in_ : int
    top_k_ : int
        Labels that `predict` gives to each row.
    n_iter_, n_updates_ : int
        Steps of each worker, and the number of all workers' steps that moved W.

    See Also
    --------
    LowRankLogisticRegression : gives probabilities.
    problems.coembedding.CoembeddingClassifier : a global optimum, for up to some hundred labels.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html, section 7.2. Weston, Bengio and Usunier, WSABIE: scaling up to
    large vocabulary image annotation, IJCAI (2011), https://doi.org/10.5591/978-1-57735-516-8/IJCAI11-460.

    Examples
    --------
    >>> from problems.ranking import LoretaLabelRanker
    >>> from sklearn.datasets import make_multilabel_classification
    >>> X, Y = make_multilabel_classification(n_samples=300, n_classes=6, random_state=0)
    >>> model = LoretaLabelRanker(rank=4, random_state=0).fit(X[:200], Y[:200])
    >>> model.decision_function(X[200:]).shape
    (100, 6)
    >>> bool(model.score(X[200:], Y[200:]) > 0.7)
    True
    >>> model.predict(X[200:]).sum(axis=1)[:5].tolist()
    [2, 2, 2, 2, 2]
    """

    _rows = "labels"
    _optional: ClassVar = {**Saved._optional, "_rows_and_labels": (2,)}
    _numbers: ClassVar = {**Loreta._numbers, "n_labels_": integer, "top_k_": integer}

    rank: Annotated[int | None, optional(integer, 1)] = None
    _: KW_ONLY
    init: Annotated[str, bounded(one_of, INITS)] = "zero"
    n_epochs: Annotated[int, count] = 30
    sampling: Annotated[str, bounded(one_of, SAMPLINGS)] = "warp"
    top_k: Annotated[int | None, optional(integer, 1)] = None

    def fit(self, X: Any, Y: Any) -> Self:
        """Learn from examples and their labels.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        Y : array or sparse matrix, shape (n_samples, n_labels)
            Indicators: 1 for true labels, and 0 for others.
        """
        seed = begin(self)
        truth, parts = self._parts(X, Y, self.n_epochs, seed, afresh=True, grows=False)
        self._run(*parts, seed, X=parts[1].cost.X, Y=truth)
        self._note_labels(truth, afresh=True)
        return self

    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Continue learning by one pass over a batch of examples.

        Labels may be added on the right. A later label has scores of 0 until then, and the model is the same as if
        the label had been known from the start and never drawn as a wrong one.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        Y : array or sparse matrix, shape (n_samples, n_labels)
        """
        self._learn_part(X, Y, self._begin_part())
        return self

    def fit_stream(self, chunks: Any) -> Self:
        """Learn from data in chunks, of which one is in memory at a time.

        As `partial_fit` on each, with a progress bar if `verbose`, and with `checkpoint`: a killed run resumes from
        its file and ends bit-identically.

        Parameters
        ----------
        chunks : iterable of (X, Y)
            For example from `problems.data.stream` with ``multilabel=True``. Others must yield the same chunks again
            for a run to be resumed.
        """
        return self._follow(chunks)

    def _learn_part(self, X: Any, Y: Any, seed: int) -> None:
        """Learn from a part of the data by one pass over it."""
        first = not self._has_learned()
        truth, parts = self._parts(X, Y, 1, seed, first, True)
        more = 0 if first else truth.shape[1] - self.n_labels_
        # Before the steps, so that after Ctrl-C the model has the new labels.
        self._note_labels(truth, first)
        self._learn_chunk(*parts, seed, more)

    def decision_function(self, X: Any) -> Array:
        """Return the scores of all labels, shape (n_samples, n_labels)."""
        X = seen(self, X, "model_")
        with np.errstate(all="ignore"):
            return finite(np.asarray(label_scores(self.model_.point, X)))

    def predict(self, X: Any) -> Array:
        """Return indicators of the `top_k_` best-scored labels of each row, shape (n_samples, n_labels).

        A `top_k` set since `fit` replaces it.
        """
        scores = self.decision_function(X)
        order = best_labels(scores, optional(integer, 1, scores.shape[1])("top_k", self.top_k) or self.top_k_)
        chosen = np.zeros(scores.shape, dtype=int)
        np.put_along_axis(chosen, order, 1, axis=1)
        return chosen

    def score(self, X: Any, Y: Any) -> float:
        """Return the mean average precision (see `problems.ranking.mean_average_precision`)."""
        return mean_average_precision(self.decision_function(X), Y)

    @property
    def classes_(self) -> Array:
        """The numbers of the labels."""
        return np.arange(self.n_labels_)

    def start_at(self, point: Any, n_iter: int = 0) -> Self:
        super().start_at(point, n_iter)
        # Nothing is known yet of the number of a row's labels.
        self.n_labels_, self.top_k_ = int(point.shape[0]), int(self.top_k or 1)
        return self

    def _parts(
        self, X: Any, Y: Any, n_epochs: int, seed: int, afresh: bool, grows: bool
    ) -> tuple[Any, tuple[Any, Any, Any]]:
        """Return the indicators of labels, the solver, the problem, and the function for the start."""
        X = admit(self, X, reset=afresh)
        truth = table_of_labels(Y, X.shape[0], 2)
        known = 0 if afresh else self.n_labels_
        n_labels, n = truth.shape[1], X.shape[1]
        if n_labels < known:
            raise InvalidInputError(
                f"Y has {n_labels} labels, and the model was fitted with {known}; give one column for each of them, "
                "and new ones on the right."
            )
        optional(integer, 1, n_labels)("top_k", self.top_k)
        # A part of a stream may have few rows. In complete data the rows limit the rank of the start.
        usual = max(1, min(100, 2 * min(n_labels, n, n_labels if grows else X.shape[0]) // 3))
        # Later labels do not change it.
        rank = int(self.rank or usual) if afresh else self._known_rank()
        manifold = FixedRankEmbedded(n_labels, n, rank)
        cost = SAMPLINGS[self.sampling](X, truth)
        unit, step_size = natural_size(cost.X, 1.0, 0.5), self.step_size
        step_size = natural_size(cost.X, 0.03, 1) if step_size is None else step_size
        steps = int(n_epochs) * cost.n_terms
        solver = loreta_solver(step_size, steps, epochs(cost), retraction=self.retraction)
        first_size = float(solver.step_size(np.zeros(1, dtype=np.int64))[0])

        def start() -> Any:
            return starting_point(manifold, cost, self.init, seed, first_size, unit)

        return truth, (with_workers(solver, self.n_jobs), Problem(manifold, cost), start)

    def _note_labels(self, truth: Any, afresh: bool) -> None:
        """Store the number of labels, and the mean number per row, including earlier rows."""
        before = 0 if afresh else getattr(self, "_rows_and_labels", 0)
        self._rows_and_labels = before + np.array([truth.shape[0], truth.nnz])
        rows, labels = self._rows_and_labels.tolist()
        self.n_labels_ = truth.shape[1]
        self.top_k_ = int(self.top_k or 0) or min(self.n_labels_, max(1, round(labels / rows)))


@dataclass(eq=False, repr=False)
class LowRankLogisticRegression(LabelTables, BatchLearner):
    """Logistic regression for examples with several labels out of many, with coefficients of low rank.

    The coefficients of all labels are a product of two thin matrices: rare labels learn from others, and a label
    takes `rank` numbers. AdaGrad takes steps on batches of rows, from the first Newton step from the labels'
    frequencies, along its leading directions. Features should be standardised, or rows of counts scaled to unit
    length.

    Parameters
    ----------
    rank : int or None
        The rank of the coefficients, at most the number of features or labels. None means 100, or half the number of
        labels if that is more, up to 200.
    dropout : float or None
        The share of words left out of a row, drawn again each time; at least 0 and below 1. None means 0.15 if fewer
        than a tenth of the entries of X are not zero, as for words, and else 0.
    batch_size : int
        Rows in a batch, or fewer if there are not as many.
    n_epochs : int or None
        Passes over the rows. None means 5, or for few rows enough for 50 batches, doubled until the loss on a
        held-out tenth falls no more. The search takes two to three times as long as these passes.
    step_size : float
        The step size of AdaGrad for rows of mean squared length 1, to which X is scaled. It falls to zero along a
        cosine.
    checkpoint : path or None
        Save the state there every half minute, and resume from it if the file exists.
    random_state : int, RandomState or None
        Equal integers give identical results.
    n_jobs : int or None
        Threads that learn one model, each with its own batches. They average, so the result depends on their number.
        None means one, -1 all cores.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_ : array, shape (n_features, rank)
    label_components_ : array, shape (n_labels, rank)
        The log-odds of the labels of x are ``label_components_ @ (components_.T @ x) + intercept_``.
    intercept_ : array, shape (n_labels,)
    classes_ : array, shape (n_labels,)
        The numbers of the labels.
    n_labels_, n_features_in_ : int
    n_iter_ : int
        Number of batches of each worker.
    n_epochs_ : int
        Passes over the rows.

    See Also
    --------
    LoretaLabelRanker : an order of the labels without probabilities, also from a stream.
    sklearn.multiclass.OneVsRestClassifier : a separate classifier for each label, if all are frequent.

    References
    ----------
    Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR
    12 (2011), https://jmlr.org/papers/v12/duchi11a.html. Yu, Jain, Kar and Dhillon, Large-scale multi-label
    learning with missing labels, ICML (2014), arXiv:1307.5101, has the same model with a penalty on the factors
    instead of early stopping.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.ranking import LowRankLogisticRegression
    >>> X = np.random.default_rng(0).standard_normal((400, 10))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0, X[:, 0] + X[:, 1] > 0])
    >>> model = LowRankLogisticRegression(rank=2, n_epochs=20, random_state=0)
    >>> model.fit(X[:300], Y[:300]).predict_proba(X[300:302]).shape
    (2, 3)
    >>> bool(model.score(X[300:], Y[300:]) > 0.9)
    True
    """

    rank: Annotated[int | None, optional(kept_count)] = None
    _: KW_ONLY
    step_size: float = 0.03

    _words = 0.15
    _arrays: ClassVar = {
        "components_": (float, ("features", "k")),
        "label_components_": (float, ("labels", "k")),
        "intercept_": (float, ("labels",)),
        "classes_": (int, ("labels",)),
    }
    _numbers: ClassVar = {**BatchLearner._numbers, "n_labels_": integer, "n_epochs_": integer}

    @one_blas_thread()
    def fit(self, X: Any, Y: Any) -> Self:
        """Learn from examples and their labels.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        Y : array or sparse matrix, shape (n_samples, n_labels)
            Indicators: 1 for true labels, and 0 for others.
        """
        seed = begin(self)
        X = as_rows(admit(self, X), "X")
        truth = table_of_labels(Y, X.shape[0], 2)
        self.n_epochs_ = int(self.n_epochs or self._passes(X, truth, seed))
        self._learn(X, truth, seed)
        self.n_labels_, self.classes_ = truth.shape[1], np.arange(truth.shape[1])
        return self

    def _passes(self, X: Any, truth: Any, seed: int) -> int:
        """Return the number of passes after which twice as many no longer lower the loss of held-out rows."""
        order = generator(seed, Stream.ORDER).permutation(X.shape[0])
        rest, rows = np.split(order, [min(X.shape[0] // 10, MOST_HELD_OUT)])
        least, best, trial = np.inf, 0, clone(self).set_params(checkpoint=None, verbose=False)
        passes = max(FIRST_EPOCHS, -(-FIRST_BATCHES // max(1, len(rows) // int(self.batch_size))))
        for trial.n_epochs_ in [passes * 2**more for more in range(DOUBLINGS)]:
            trial._learn(X[rows], truth[rows], seed)
            scores = trial._log_odds(X[rest])
            loss = np.logaddexp(0.0, scores).sum() - truth[rest].multiply(scores).sum()
            if not loss < least:
                break
            least, best = loss, trial.n_epochs_
        return best or passes

    def _learn(self, X: Any, truth: Any, seed: int) -> None:
        n, n_labels = X.shape[1], truth.shape[1]
        scale = np.sqrt(natural_size(X, 1.0, 1))
        X = X * scale
        rank = min(int(self.rank or max(100, min(n_labels // 2, 200))), n, n_labels)
        cost = LogisticLabels(X, truth, self._share_left_out(X))
        start = first_step(X, truth, rank, seed)
        A, B = np.split(self._run(cost, start, seed, self.n_epochs_, X=X, Y=truth), [n])
        longest, ones = float(abs(X).sum(axis=1).max()), np.ones((1, 1))
        check_learned(self, ("step_size",), (longest * A[:, :-1], B[:, :-1]), (ones, B[:, -1:]))
        self.components_, self.label_components_ = scale * A[:, :-1], B[:, :-1].copy()
        self.intercept_ = B[:, -1].copy()

    def _log_odds(self, X: Any) -> Array:
        with np.errstate(all="ignore"):
            return finite(np.asarray(X @ self.components_) @ self.label_components_.T + self.intercept_)

    def decision_function(self, X: Any) -> Array:
        """Return the log-odds of all labels, shape (n_samples, n_labels)."""
        return self._log_odds(seen(self, X, "components_"))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each label, shape (n_samples, n_labels)."""
        return np.asarray(expit(self.decision_function(X)))

    def score(self, X: Any, Y: Any) -> float:  # type: ignore[override]
        """Return the mean average precision (see `problems.ranking.mean_average_precision`)."""
        return mean_average_precision(self.decision_function(X), Y)
