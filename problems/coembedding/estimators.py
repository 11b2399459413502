"""Co-embeddings of samples and labels as scikit-learn estimators, and thresholds of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import check_scoring, f1_score, get_scorer
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import type_of_target, unique_labels
from sklearn.utils.validation import _num_samples, column_or_1d

from problems.coembedding.cost import SMOOTH, MultilabelCoembedding, OneVsRestCoembedding
from problems.coembedding.training import (
    BETAS,
    CertifiedEmbedder,
    LabelTables,
    checked_betas,
    estimator_with,
    minimise,
    weight,
)
from problems.door import (
    admit,
    finite,
    in_order,
    in_range,
    kept_count,
    learn_labels,
    passed_on,
    table_of_labels,
    thread_count,
)
from rmopt.core import InvalidInputError, RmoptError
from rmopt.core.ambient import Array
from rmopt.core.arguments import Checked, bounded, check_parameters, integer, numbers, one_of, optional, shown
from rmopt.solvers import LBFGS, RankIncremental
from rmopt.solvers.threads import one_blas_thread

SOFTMAX = "softmax"
AIMS = ("f1", "hamming")
# On the paths of a cross-validation.
PATH_TOL, PATH_ROUNDS = 1e-2, 5


def _scored(scorer: Callable[..., Any], model: Any, X: Any, y: Array) -> float:
    """Return the score of a model, or say what is wrong with somebody's scorer."""
    try:
        found = float(scorer(model, X, y))
        if not np.isfinite(found):
            raise ValueError(found)
    except RmoptError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"scoring = {shown(scorer)} gave no score ({error}); a scorer is called with a fitted model, X and y, "
            "and returns a finite number."
        ) from error
    return found


def _scoring(name: str, value: Any) -> Any:
    return value if callable(value) or value is None else get_scorer(value)


def folds_named(name: str, value: Any) -> Any:
    """Return what `splitter` takes; folds that can be taken once are left for `fit`."""
    return value if isinstance(value, Iterator) else splitter(name, value)


def splitter(name: str, value: Any) -> Any:
    """Return a splitter."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(f"{name} = {value!r} must be a number of folds, a splitter or None.")
    if value is None or isinstance(value, Integral):
        return KFold(5 if value is None else integer(name, value, 2), shuffle=True, random_state=0)
    return check_cv(value)


def folds_of(cv: Any, X: Any, Y: Array, groups: Any) -> list[tuple[Array, Array]]:
    """Return the folds that `cv` makes of rows."""
    try:
        return list(splitter("cv", cv).split(X, Y, groups=groups))
    except ValueError as error:
        raise InvalidInputError(
            f"cv cannot deal {len(Y)} rows into folds ({error}); take fewer, and where they go by groups give fit "
            "groups=."
        ) from error


@dataclass(eq=False, repr=False)
class CoembeddingClassifier(LabelTables, CertifiedEmbedder):
    """Samples, labels and a threshold in one Euclidean space: a label applies where it is nearer than the threshold.

    Mirzazadeh et al. (2015), section 6: the convex equation 13, or a loss of ours for each label, minimised by
    `RankIncremental` to a certified global minimum. Features should be standardised and rows scaled to unit length.

    Parameters
    ----------
    beta : float
        Weight of the trace: larger ones give smaller ranks. The loss is a sum over the samples: for a tenth of them
        take a tenth. Where it is too large the model is empty, of rank 0, and `fit` warns.
    growth : Growth, optional
        ``Doubling(64)`` unless given.
    max_rank : int, optional
        Where the rank stops to grow.
    tol : float
        Relative gap to the global minimum at which training ends.
    verbose : bool
        Draw a progress bar on standard error.
    loss : {"softmax", "squared_hinge", "logistic"}
        "softmax" is the paper's, which compares the labels of a sample with each other. The others decide every
        label by itself, as a linear classifier for each label does, with larger weights for rare labels
        (`OneVsRestCoembedding`). They are better where there are many labels and `LabelThresholds` are used, and
        train more slowly. "squared_hinge" is slow, and may not be certified, where β is below 1.

    Attributes
    ----------
    classes_ : array, shape (n_labels,)
        Names of the classes; for indicators their column numbers.
    label_names_in_ : array, shape (n_labels,)
        The names of the labels, when Y was a frame of indicators.
    components_ : array, shape (rank, n_features)
        Uᵀ: a sample x is embedded at U x.
    label_embedding_ : array, shape (n_labels, rank)
    threshold_embedding_ : array, shape (rank,)
    rank_ : int
    n_iter_ : int
        Rounds.
    objective_, gap_ : float
        The objective, and how far above the global minimum it can be at most.
    is_global_ : bool
        Whether the gap is within `tol`.
    history_ : list of dict
        Rank, objective, eigenvalue and gap by round.

    See Also
    --------
    CoembeddingClassifierCV : chooses β.
    problems.ranking.LowRankLogisticRegression : for thousands of labels, with probabilities.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

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
        kind = type_of_target(in_order("Y", Y), input_name="Y")
        if kind not in ("multilabel-indicator", "multiclass", "binary"):
            raise InvalidInputError(
                f"Unknown label type: {kind}. Y must be a table of indicators, as MultiLabelBinarizer makes it, or "
                "one class for each sample."
            )
        self._single = kind != "multilabel-indicator"
        learn_labels(self, None if self._single else Y)
        X, Y = admit(self, X, Y, multi_output=True)
        in_range(X)
        if not self._single:
            table = np.asarray(Y.toarray() if sp.issparse(Y) else Y)
            self.classes_ = np.arange(table.shape[1])
            return X, table
        Y = column_or_1d(Y, warn=True)
        self.classes_ = unique_labels(Y)
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

    def _path(
        self, X: Any, Y: Any, betas: list[float], solver: RankIncremental, tell: bool = False
    ) -> list[Self]:
        """Return a copy for each weight, each trained from the one with the next larger weight."""
        loss, models, start = self._cost(*self._checked(X, Y)), [], None
        for beta in betas[::-1]:
            model, result = copy(self), minimise(loss, beta, solver, start)
            model.beta, start = beta, result.point
            models.append(model._take(model._keep(result, tell)))
        return models[::-1]

    def decision_function(self, X: Any) -> Array:
        """Return t(x) − d(x, y), shape (n_samples, n_labels), which is positive where a label applies.

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


def coembedding_path(
    X: Any, Y: Any, betas: Sequence[float] = BETAS, **options: Any
) -> list[CoembeddingClassifier]:
    """Return a classifier for each different weight, ascending; each is trained from the one with the next larger.

    Parameters
    ----------
    X, Y : array
        See `CoembeddingClassifier.fit`.
    betas : sequence of float
    **options : object
        Parameters of `CoembeddingClassifier`, but for `beta`.

    Returns
    -------
    list of CoembeddingClassifier

    See Also
    --------
    CoembeddingClassifierCV : chooses among them.

    References
    ----------
    Friedman, Hastie and Tibshirani, Regularization paths for generalized linear models via coordinate descent,
    Journal of Statistical Software 33 (2010), https://doi.org/10.18637/jss.v033.i01.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from problems.coembedding import coembedding_path
    >>> X, Y = make_multilabel_classification(n_samples=60, n_classes=3, random_state=0)
    >>> small, large = coembedding_path(X / 10, Y, betas=[5.0, 30.0])
    >>> small.beta, large.beta, small.rank_ >= large.rank_
    (5.0, 30.0, True)
    """
    if "beta" in options:
        raise InvalidInputError("beta is one of betas; leave it out.")
    model = CoembeddingClassifier(**options)
    check_parameters(model, model._parameters)
    return model._path(X, Y, checked_betas(betas), model.solver(), tell=True)


@dataclass(eq=False, repr=False)
class CoembeddingClassifierCV(CoembeddingClassifier):
    """`CoembeddingClassifier` with its weight chosen by cross-validation, along warm-started paths.

    Parameters
    ----------
    betas : sequence of float
    growth, max_rank : optional
        As in `CoembeddingClassifier`.
    tol : float
        Relative gap of the model with the chosen weight.
    verbose, loss : optional
        As in `CoembeddingClassifier`.
    cv : int, splitter, iterable or None
        Folds; shuffled with a fixed seed for a number. None: 5.
    scoring : str, callable or None
        In scikit-learn's words: "f1_micro", "f1_macro", "accuracy", …; or a scorer. None: that of
        `score`.
    n_jobs : int or None
        Threads, one for a fold.
    path_iterations : int
        Iterations of L-BFGS in each of at most five rounds on the paths, where models need only be good enough to
        be compared.

    Attributes
    ----------
    beta_ : float
        The chosen weight: the largest of those with the best mean score.
    scores_ : array, shape (n_betas, n_folds)
        By weight, ascending.

    See Also
    --------
    CoembeddingClassifier : with a β that is known.
    coembedding_path : all models of a path, without a choice.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

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
    cv: Annotated[Any, folds_named] = 5
    scoring: Annotated[str | Callable[..., float] | None, _scoring] = "f1_micro"
    n_jobs: Annotated[int | None, optional(thread_count)] = None
    path_iterations: Annotated[int, kept_count] = 200

    @one_blas_thread()
    def fit(self, X: Any, Y: Any, groups: Any = None) -> Self:
        """Choose the weight, and fit the embeddings.

        Parameters
        ----------
        X, Y : array
            See `CoembeddingClassifier.fit`.
        groups : array, shape (n_samples,), optional
            What a `cv` that goes by groups keeps together.
        """
        check_parameters(self, self._parameters)
        betas, scorer = checked_betas(self.betas), check_scoring(self, self.scoring)
        X, table = self._checked(X, Y)
        given = np.asarray(Y) if self._single else table
        tol = max(self.tol, PATH_TOL)
        rough = RankIncremental(
            self.growth,
            inner=LBFGS(20, max_iter=self.path_iterations),
            tol=tol,
            max_rank=self.max_rank,
            max_iter=PATH_ROUNDS,
        )

        def scores(train: Array, test: Array) -> list[float]:
            one = CoembeddingClassifier(loss=self.loss, growth=self.growth, max_rank=self.max_rank, tol=tol)
            models = one._path(X[train], given[train], betas, rough)
            return [_scored(scorer, model, X[test], given[test]) for model in models]

        folds = folds_of(self.cv, X, given, groups)
        if len(folds) < 2:
            raise InvalidInputError(f"cross-validation needs 2 folds or more, got {len(folds)}.")
        found = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(scores)(*fold) for fold in folds)
        self.scores_ = np.array(found).T
        means = self.scores_.mean(axis=1)
        self.beta_ = betas[int(np.flatnonzero(means == means.max())[-1])]
        return self._take(self._minimised(self._cost(X, table), self.beta_))


@dataclass(eq=False, repr=False)
class LabelThresholds(Checked, LabelTables, BaseEstimator):
    """A classifier of several labels, with probabilities, and a threshold that suits a measure.

    Scores of held-out folds are mapped to probabilities, label by label, by logistic regression; then again, beside
    how many other labels these probabilities expect of the sample. A label applies from a probability of one half
    on, which is the best for the Hamming score, or from half of the largest expected micro-F1 on, which is the best
    for that. No one threshold is good for both.

    Parameters
    ----------
    estimator : estimator
        With `decision_function`, of shape (n_samples, n_labels).
    aim : {"f1", "hamming"}
        What predictions shall be good in.
    cv : int, splitter, iterable or None
        Folds; shuffled with a fixed seed for a number. None: 5.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on all samples.
    slopes_, intercepts_ : array, shape (n_labels,)
        The logarithm of the odds of a label, alone, is its score times the slope plus the intercept.
    among_ : array, shape (3, n_labels)
        What it is among the others: these logarithms, the expected number of other labels and 1, times these weights.
    half_of_f1_ : float
        Half of the largest expected micro-F1.
    classes_ : array, shape (n_labels,)
        Column numbers.
    label_names_in_ : array, shape (n_labels,)
        The names of the labels, when Y was a frame.

    See Also
    --------
    CoembeddingClassifier : what it was made for; its own threshold is learned with the embeddings.
    sklearn.model_selection.TunedThresholdClassifierCV : for one label.

    References
    ----------
    Lipton, Elkan and Naryanaswamy, Optimal thresholding of classifiers to maximize F1 measure, ECML PKDD (2014),
    https://doi.org/10.1007/978-3-662-44851-9_15. That numbers of labels can be learned from scores is in Tang, Rajan
    and Narayanan, Large scale multi-label classification via MetaLabeler, WWW (2009),
    https://doi.org/10.1145/1526709.1526738.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.preprocessing import scale
    >>> from problems.coembedding import CoembeddingClassifier, LabelThresholds
    >>> X, Y = make_multilabel_classification(n_samples=100, n_classes=4, random_state=0)
    >>> model = LabelThresholds(CoembeddingClassifier(tol=0.1), aim="hamming")
    >>> model.fit(scale(X) / 5, Y).predict_proba(scale(X) / 5).shape
    (100, 4)
    >>> bool((model.predict(scale(X) / 5) == Y).mean() > 0.8)
    True
    """

    __metadata_request__fit: ClassVar = {"groups": True}

    estimator: Annotated[Any, bounded(estimator_with, "decision_function", "CoembeddingClassifier()")]
    _: KW_ONLY
    aim: Annotated[str, bounded(one_of, AIMS)] = "f1"
    cv: Annotated[Any, folds_named] = 5

    def fit(self, X: Any, Y: Any, groups: Any = None) -> Self:
        """Fit the estimator on folds for the probabilities, and on all samples.

        Parameters
        ----------
        X : array, or what else the estimator takes: a frame, a sparse array, a list of texts
        Y : array or sparse array, shape (n_samples, n_labels)
        groups : array, shape (n_samples,), optional
            What a `cv` that goes by groups keeps together.
        """
        check_parameters(self, self._parameters)
        X = passed_on(self, X)
        learn_labels(self, Y)
        Y = table_of_labels(Y, _num_samples(X))
        scores, seen_once = np.zeros(Y.shape), np.zeros(len(Y), dtype=bool)
        for train, test in folds_of(self.cv, X, Y, groups):
            fitted = clone(self.estimator).fit(_safe_indexing(X, train), Y[train])
            scores[test] = _scores_of(fitted, _safe_indexing(X, test), Y.shape[1])
            seen_once[test] = True
        scores, known = scores[seen_once], Y[seen_once]
        if not len(known):
            raise InvalidInputError("cv holds out no samples; give a number of folds.")
        self.classes_ = np.arange(Y.shape[1])
        (self.slopes_, self.intercepts_), self.among_ = _learned_odds(scores, known)
        # Where no label was ever seen all are equally unlikely, and to predict them all would seem best.
        self.half_of_f1_ = _half_of_largest_f1(self._probabilities(scores)) if known.any() else 0.5
        self.estimator_ = clone(self.estimator).fit(X, Y)
        return self

    @property
    def threshold_(self) -> float:
        """The probability from which on labels apply."""
        return 0.5 if one_of("aim", self.aim, AIMS) == "hamming" else self.half_of_f1_

    def aimed(self, aim: str) -> Self:
        """Return the fitted model with another aim, which needs no other training."""
        other = copy(self)
        other.aim = one_of("aim", aim, AIMS)
        return other

    def _probabilities(self, scores: Array) -> Array:
        alone = np.stack([self.slopes_, self.intercepts_])
        return expit(_log_odds(_among_others(scores, alone), self.among_))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each label, shape (n_samples, n_labels)."""
        X = passed_on(self, X, reset=False)
        return self._probabilities(_scores_of(self.estimator_, X, len(self.classes_)))

    def decision_function(self, X: Any) -> Array:
        """Return how far the probability of each label is above the threshold, shape (n_samples, n_labels)."""
        return self.predict_proba(X) - self.threshold_


def calibrated_f1(model: Any, X: Any, Y: Array) -> float:
    """Return the micro-F1 of a model's scores, were they mapped to probabilities and cut by these very samples.

    It compares models whose thresholds will be chosen: more is asked of scores than that they are right about 0.
    """
    scores = _scores_of(model, X, Y.shape[1])
    alone, among = _learned_odds(scores, Y)
    probabilities = expit(_log_odds(_among_others(scores, alone), among))
    predicted = probabilities > _half_of_largest_f1(probabilities)
    return float(f1_score(Y, predicted, average="micro", zero_division=0.0))


def _scores_of(fitted: Any, X: Any, n_labels: int) -> Array:
    """Return somebody's scores, shape (n_samples, n_labels), or refuse them; those of one label may be a row."""
    found = fitted.decision_function(X)
    column = np.reshape(found, (-1, 1)) if n_labels == 1 else found
    return numbers(f"decision_function of {type(fitted).__name__}", column, (_num_samples(X), n_labels))


def _learned_odds(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Return weights of `_log_odds`: of scores alone, shape (2, n_labels), and of `_among_others`."""
    alone = _regressions([scores], labels)
    return alone, _regressions(_among_others(scores, alone), labels)


def _among_others(scores: Array, alone: Array) -> list[Array]:
    """Return the logarithms of the odds of labels, each alone, and how many other labels they expect of a sample."""
    odds = _log_odds([scores], alone)
    single = expit(odds)
    return [odds, single.sum(axis=1, keepdims=True) - single]


def _log_odds(features: Sequence[Array], weights: Array) -> Array:
    """Return sums of features, each of shape (n_samples, n_labels), with weights for each label; the last is of 1."""
    return sum((one * weight for one, weight in zip(features, weights[:-1], strict=True)), weights[-1])


def _regressions(features: Sequence[Array], labels: Array) -> Array:
    """Return weights of `_log_odds` by logistic regression; those of a constant label are constant."""
    columns = zip(np.stack(features, axis=-1).swapaxes(0, 1), labels.T, strict=True)
    return np.array([_regression(*column) for column in columns]).T


def _regression(features: Array, labels: Array) -> Array:
    count, mean, size = int(labels.sum()), features.mean(axis=0), features.std(axis=0)
    if count in (0, len(labels)):
        # As if each value had been seen half a time more.
        return np.append(0.0 * mean, np.log((count + 0.5) / (len(labels) - count + 0.5)))
    size[size == 0.0] = 1.0
    found = LogisticRegression().fit((features - mean) / size, labels)
    slopes = found.coef_[0] / size
    return np.append(slopes, found.intercept_[0] - slopes @ mean)


def _half_of_largest_f1(probabilities: Array) -> float:
    """Return half of the largest F1 that is expected of labels that apply from some probability on."""
    ordered = np.sort(probabilities, axis=None)[::-1]
    expected = 2.0 * np.cumsum(ordered) / (np.arange(1, len(ordered) + 1) + ordered.sum())
    return float(expected.max()) / 2.0
