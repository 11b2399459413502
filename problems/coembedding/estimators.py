"""Co-embeddings of samples and labels as estimators, and the training of the family's estimators."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from problems.coembedding.cost import SMOOTH, MultilabelCoembedding, OneVsRestCoembedding
from problems.folds import folds_of
from problems.rows import finite, in_range, product
from problems.thresholds import LabelTables
from problems.validation import (
    Embedder,
    Estimator,
    admit,
    checked_later,
    in_order,
    kept_count,
    seen,
    thread_count,
)
from rmopt.core import InvalidInputError, Problem, PSDPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, check_parameters, flag, number, one_of, optional, sequence, shown
from rmopt.costs import ConvexCost, Trace
from rmopt.errors import warn
from rmopt.manifolds import PSDFixedRank
from rmopt.solvers import LBFGS, CertifiedResult, RankIncremental, Recorder
from rmopt.solvers.threads import one_blas_thread

# The paper's weights, and larger ones, which standardised rows of length 1 need.
BETAS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def minimise(
    loss: ConvexCost,
    beta: float,
    solver: RankIncremental,
    start: PSDPoint | None = None,
    recorder: Recorder | None = None,
) -> CertifiedResult:
    """Return the minimum of loss + β trace over positive semidefinite matrices."""
    problem = Problem(PSDFixedRank(loss.shape[0], 1), loss + Trace(beta))
    result = solver.run(problem, start, random_state=0, recorder=recorder)
    assert isinstance(result, CertifiedResult)
    return result


def checked_betas(betas: Any) -> list[float]:
    """Return the weights of a grid, ascending."""
    values = sequence("betas", betas)
    if not values:
        raise InvalidInputError(f"betas = {shown(betas)} must be positive numbers, at least one.")
    return sorted({number("betas", value, above=0) for value in values})


gap = bounded(number, least=0)
# Below the least weight the certificate of a minimum is not finite.
weight = bounded(number, least=1e-100)


@dataclass(eq=False, repr=False)
class Certified(Estimator):
    """An estimator with parameters for the minimisation of its convex cost, and attributes for its accuracy.

    They are described in `problems.coembedding.CoembeddingClassifier`.
    """

    _: KW_ONLY
    max_rank: Annotated[int | None, optional(kept_count)] = None
    tol: Annotated[float, gap] = 1e-4
    verbose: Annotated[bool, flag] = False

    def _minimised(self, loss: ConvexCost, beta: float) -> Any:
        """Return the factor that minimises loss + β trace, shape (p, rank).

        The certificate is stored, and a warning is given without one, and for an empty model.
        """
        solver = RankIncremental(tol=self.tol, max_rank=self.max_rank)
        recorder = Recorder(progress=self.verbose, description="rounds")
        result = minimise(loss, float(beta), solver, recorder=recorder)
        self.rank_, self.n_iter_ = result.point.rank, max(result.steps, 1)
        self.objective_, self.gap_ = result.certificate.objective, result.gap
        self.is_global_, self.history_ = result.is_global, result.history
        # With a limited rank the minimum over all ranks is not expected.
        limited = self.max_rank is not None and self.rank_ >= self.max_rank
        if not self.is_global_ and not limited:
            warn(
                f"tol = {self.tol:g} was not reached ({result.stopped_by}): the objective {self.objective_:.3g} may "
                f"be {self.gap_:.1e} above the minimum; choose a larger beta or tol, or scale the data.",
                ConvergenceWarning,
            )
        if not self.rank_:
            # If the empty model is not the minimum, it is within tol of it.
            name, value = ("tol", self.tol) if self.gap_ > 0.0 else ("beta", beta)
            warn(
                f"{name} = {value:g} is so large that the model is empty (rank 0), and treats all alike; try a tenth."
            )
        return result.point.factor()


class CertifiedEmbedder(Embedder, Certified):
    """A certified estimator that embeds rows x at U x, where `components_` is Uᵀ."""

    n_features_in_: int
    threshold_embedding_: np.ndarray

    def transform(self, X: Any) -> np.ndarray:
        """Return the embeddings of rows, shape (n_samples, rank)."""
        return self._embedded(X)

    def _embedded(self, X: Any) -> np.ndarray:
        # Not the transform, which may be configured to return a frame.
        return product(seen(self, X), self.components_.T)


SOFTMAX = "softmax"
# For the paths of a cross-validation, whose models need only be good enough to be compared.
PATH_TOL, PATH_ROUNDS, PATH_ITERATIONS = 1e-2, 5, 200


@dataclass(eq=False, repr=False)
class CoembeddingClassifier(LabelTables, CertifiedEmbedder):
    """Samples, labels and a threshold in one Euclidean space: a label applies if it is nearer than the threshold.

    Mirzazadeh et al. (2015), section 6: the convex equation 13, or our own loss for each label, minimised by
    `RankIncremental` to a certified global minimum. Features should be standardised and rows scaled to unit length.

    Parameters
    ----------
    beta : float
        Weight of the trace: larger ones give smaller ranks. The loss is a sum over the samples: for a tenth of them
        take a tenth. If it is too large, the model is empty, of rank 0, and `fit` warns.
    max_rank : int, optional
        The largest rank.
    tol : float
        Relative gap to the global minimum at which training ends.
    verbose : bool
        Draw a progress bar on standard error.
    loss : {"softmax", "squared_hinge", "logistic"}
        "softmax" is the paper's, which compares the labels of a sample with each other. The others decide each label
        separately, like a linear classifier for each label, with larger weights for rare labels
        (`OneVsRestCoembedding`). They are better for many labels with `LabelThresholds`, and train more slowly.
        "squared_hinge" is slow, and may not be certified, if β is below 1.

    Attributes
    ----------
    classes_ : array, shape (n_labels,)
        Names of the classes, or for indicators their column numbers.
    components_ : array, shape (rank, n_features)
        Uᵀ: a sample x is embedded at U x.
    label_embedding_ : array, shape (n_labels, rank)
    threshold_embedding_ : array, shape (rank,)
    rank_ : int
    n_iter_ : int
        Rounds.
    objective_, gap_ : float
        The objective, and a bound on its distance from the global minimum.
    is_global_ : bool
        Whether the gap is within `tol`.
    history_ : list of dict
        Rank, objective, eigenvalue and gap by round.

    See Also
    --------
    CoembeddingClassifierCV : chooses β.
    problems.ranking.LowRankLogisticRegression : for thousands of labels, with probabilities.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.preprocessing import scale
    >>> from problems.coembedding import CoembeddingClassifier
    >>> X, Y = make_multilabel_classification(n_samples=100, n_classes=4, random_state=0)
    >>> model = CoembeddingClassifier(beta=5.0).fit(scale(X) / 5, Y)
    >>> model.is_global_, model.predict(scale(X) / 5).shape
    (True, (100, 4))
    >>> bool((model.predict(scale(X) / 5) == Y).mean() > 0.75)
    True
    """

    takes_classes = True
    beta: Annotated[float, weight] = 5.0
    _: KW_ONLY
    loss: Annotated[str, bounded(one_of, (SOFTMAX, *SMOOTH))] = SOFTMAX

    @one_blas_thread()
    def fit(self, X: Any, Y: Any) -> Self:
        """Fit the embeddings.

        Parameters
        ----------
        X : array or sparse array, shape (n_samples, n_features)
        Y : array or sparse array, shape (n_samples, n_labels), or array, shape (n_samples,)
            Indicators of labels, or one class for each sample.
        """
        check_parameters(self, self._parameters)
        return self._take(self._minimised(self._cost(*self._checked(X, Y)), self.beta))

    def _checked(self, X: Any, Y: Any) -> tuple[Any, Array]:
        """Return X, and the indicators of the labels."""
        given = in_order("Y", Y)
        check_classification_targets(given)
        self._single = type_of_target(given, input_name="Y") != "multilabel-indicator"
        X, Y = admit(self, X, given, multi_output=True)
        in_range(X)
        if not self._single:
            self.classes_ = np.arange(Y.shape[1])
            return X, Y.toarray() if sp.issparse(Y) else Y
        Y = column_or_1d(Y, warn=True)
        self.classes_ = np.unique(Y)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"CoembeddingClassifier needs 2 classes or more, got 1 class: {self.classes_}."
            )
        return X, Y[:, None] == self.classes_

    def _cost(self, X: Any, Y: Array) -> MultilabelCoembedding:
        """Return the loss of samples and the indicators of their labels."""
        paper = self.loss == SOFTMAX
        return MultilabelCoembedding(X, Y) if paper else OneVsRestCoembedding(X, Y, self.loss)

    def _take(self, Y: Array) -> Self:
        """Take the embeddings of features, labels and threshold from a factor."""
        n = self.n_features_in_
        self.components_ = np.ascontiguousarray(Y[:n].T)
        self.label_embedding_, self.threshold_embedding_ = Y[n:-1], Y[-1]
        return self

    def decision_function(self, X: Any) -> Array:
        """Return t(x) − d(x, y), shape (n_samples, n_labels), which is positive for labels that apply.

        For two classes it is the difference of their scores, shape (n_samples,).
        """
        embedded, labels, threshold = self._embedded(X), self.label_embedding_, self.threshold_embedding_
        # The squared lengths of the samples cancel.
        with np.errstate(all="ignore"):
            scores = finite(
                2.0 * embedded @ (labels - threshold).T + threshold @ threshold - (labels**2).sum(axis=1)
            )
        return scores[:, 1] - scores[:, 0] if self._single and len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """Return indicators of labels, shape (n_samples, n_labels), or the nearest class of each sample."""
        scores = self.decision_function(X)
        several = self._single and scores.ndim == 2
        which = scores.argmax(axis=1) if several else (scores > 0.0).astype(int)
        return self.classes_[which] if self._single else which


@dataclass(eq=False, repr=False)
class CoembeddingClassifierCV(CoembeddingClassifier):
    """`CoembeddingClassifier` with its weight chosen by cross-validation, along warm-started paths.

    Parameters
    ----------
    betas : sequence of float
    max_rank : int or None
        As in `CoembeddingClassifier`.
    tol : float
        Relative gap of the model with the chosen weight.
    verbose, loss : optional
        As in `CoembeddingClassifier`.
    cv : int, splitter, iterable or None
        Folds, shuffled with a fixed seed for a number. None means 5.
    scoring : str, callable or None
        A scorer, or its name in scikit-learn: "f1_micro", "f1_macro", "accuracy", …. None means that of `score`.
    n_jobs : int or None
        Threads, one per fold.

    Attributes
    ----------
    beta_ : float
        The chosen weight: the largest of those with the best mean score.
    scores_ : array, shape (n_betas, n_folds)
        By weight, ascending.

    See Also
    --------
    CoembeddingClassifier : with a given β.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from problems.coembedding import CoembeddingClassifierCV
    >>> X, Y = make_multilabel_classification(n_samples=60, n_classes=3, random_state=0)
    >>> model = CoembeddingClassifierCV(betas=[5.0, 20.0], cv=2).fit(X / 10, Y)
    >>> model.beta_ in (5.0, 20.0), model.scores_.shape
    (True, (2, 2))
    """

    __metadata_request__fit: ClassVar = {"groups": True}
    # Not a parameter here.
    _parameters = CertifiedEmbedder._parameters | {"loss": CoembeddingClassifier._parameters["loss"]}
    beta: float = field(init=False)
    betas: Annotated[Sequence[float], lambda _, betas: checked_betas(betas)] = BETAS
    _: KW_ONLY
    cv: Annotated[Any, checked_later] = 5
    scoring: Annotated[str | Callable[..., float] | None, checked_later] = "f1_micro"
    n_jobs: Annotated[int | None, optional(thread_count)] = None

    @one_blas_thread()
    def fit(self, X: Any, Y: Any, groups: Any = None) -> Self:
        """Choose the weight, and fit the embeddings.

        Parameters
        ----------
        X, Y : array
            See `CoembeddingClassifier.fit`.
        groups : array, shape (n_samples,), optional
            The groups that `cv` keeps together.
        """
        check_parameters(self, self._parameters)
        betas, scorer = checked_betas(self.betas), check_scoring(self, self.scoring)
        X, table = self._checked(X, Y)
        given = np.asarray(in_order("Y", Y)) if self._single else table
        tol, inner = max(self.tol, PATH_TOL), LBFGS(20, max_iter=PATH_ITERATIONS)
        rough = RankIncremental(inner=inner, tol=tol, max_rank=self.max_rank, max_iter=PATH_ROUNDS)

        def scores(train: Array, test: Array) -> list[float]:
            """Return the scores of a path: each model begins at the end of that with the next larger weight."""
            model, start, found = CoembeddingClassifier(loss=self.loss), None, []
            loss = model._cost(*model._checked(X[train], given[train]))
            for beta in betas[::-1]:
                start = minimise(loss, beta, rough, start).point
                score = scorer(model._take(start.factor()), X[test], given[test])
                found.append(number("the score", score))
            return found[::-1]

        folds = folds_of(self.cv, X, given, groups)
        if len(folds) < 2:
            raise InvalidInputError(f"cross-validation needs 2 folds or more, got {len(folds)}.")
        found = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(scores)(*fold) for fold in folds)
        self.scores_ = np.array(found).T
        means = self.scores_.mean(axis=1)
        self.beta_ = betas[int(np.flatnonzero(means == means.max())[-1])]
        return self._take(self._minimised(self._cost(X, table), self.beta_))
