"""Co-embeddings as scikit-learn estimators: labels and their thresholds, links of a graph, tags."""

from __future__ import annotations

import warnings
from abc import abstractmethod
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
from sklearn.metrics import check_scoring, f1_score, get_scorer, roc_auc_score
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import type_of_target, unique_labels
from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d

from problems.coembedding import kernels
from problems.coembedding.cost import LinkPrediction, MultilabelCoembedding, TagRanking
from problems.coembedding.training import (
    BETAS,
    Certified,
    CertifiedEmbedder,
    LabelTables,
    checked_betas,
    estimator_with,
    gap,
    minimise,
    weight,
)
from problems.door import (
    admit,
    array_of,
    check_columns,
    column_of_names,
    count,
    finite,
    in_order,
    in_range,
    kept_count,
    learn_labels,
    one_each,
    passed_on,
    positions,
    seedable,
    table_of_labels,
    thread_count,
)
from rmopt.core import DivergedError, InvalidInputError, RmoptError
from rmopt.core.ambient import Array
from rmopt.core.arguments import Checked, bounded, check_parameters, integer, number, one_of, optional, shown
from rmopt.core.matrices import sound
from rmopt.core.streams import seed_of
from rmopt.solvers import LBFGS, RankIncremental
from rmopt.solvers.threads import one_blas_thread

AIMS = ("f1", "hamming")
# The weight of the losses of the regression on standardised scores: only scores that separate need a limit.
CALIBRATION_C = 100.0
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

    Mirzazadeh et al. (2015), section 6: the convex equation 13, minimised by `RankIncremental` to a certified global
    minimum. Features should be standardised and rows scaled to unit length.

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
        return self._take(self._minimised(MultilabelCoembedding(*self._checked(X, Y)), self.beta))

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
        if np.ndim(Y) == 2:
            Y = column_or_1d(Y, warn=True)
        self.classes_ = unique_labels(Y)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"CoembeddingClassifier needs 2 classes or more, got 1 class: {self.classes_}."
            )
        return X, Y[:, None] == self.classes_

    def _take(self, Y: Array) -> Self:
        """Take the embeddings of features, labels and threshold from a factor."""
        n = self.n_features_in_
        self.components_ = np.ascontiguousarray(Y[:n].T)
        self.label_embedding_, self.threshold_embedding_ = Y[n:-1], Y[-1]
        return self

    def _path(
        self, X: Any, Y: Any, betas: list[float], solver: RankIncremental, warn: bool = False
    ) -> list[Self]:
        """Return a copy for each weight, each trained from the one with the next larger weight."""
        loss, models, start = MultilabelCoembedding(*self._checked(X, Y)), [], None
        for beta in betas[::-1]:
            model, result = copy(self), minimise(loss, beta, solver, start)
            model.beta, start = beta, result.point
            models.append(model._take(model._keep(result, warn)))
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
    return model._path(X, Y, checked_betas(betas), model.solver(), warn=True)


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
    verbose : bool
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
    _parameters = CertifiedEmbedder._parameters
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
            one = CoembeddingClassifier(growth=self.growth, max_rank=self.max_rank, tol=tol)
            models = one._path(X[train], given[train], betas, rough)
            return [_scored(scorer, model, X[test], given[test]) for model in models]

        folds = folds_of(self.cv, X, given, groups)
        if len(folds) < 2:
            raise InvalidInputError(f"cross-validation needs 2 folds or more, got {len(folds)}.")
        found = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(scores)(*fold) for fold in folds)
        self.scores_ = np.array(found).T
        means = self.scores_.mean(axis=1)
        self.beta_ = betas[int(np.flatnonzero(means == means.max())[-1])]
        return self._take(self._minimised(MultilabelCoembedding(X, table), self.beta_))


@dataclass(eq=False, repr=False)
class LabelThresholds(Checked, LabelTables, BaseEstimator):
    """A classifier of several labels, with probabilities, and a threshold that suits a measure.

    Scores of held-out folds are mapped to probabilities, label by label, by logistic regression. A label applies from
    a probability of one half on, which is the best for the Hamming score, or from half of the largest expected
    micro-F1 on, which is the best for that. No one threshold is good for both.

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
        The logarithm of the odds of a label is its score times the slope plus the intercept.
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
    https://doi.org/10.1007/978-3-662-44851-9_15.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.preprocessing import scale
    >>> from problems.coembedding import CoembeddingClassifier, LabelThresholds
    >>> X, Y = make_multilabel_classification(n_samples=100, n_classes=4, random_state=0)
    >>> model = LabelThresholds(CoembeddingClassifier(tol=0.1), aim="hamming", cv=2)
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
            scores[test] = self._scores(fitted, _safe_indexing(X, test))
            seen_once[test] = True
        scores, known = scores[seen_once], Y[seen_once]
        if not len(known):
            raise InvalidInputError("cv holds out no samples; give a number of folds.")
        self.classes_ = np.arange(Y.shape[1])
        self.slopes_, self.intercepts_ = _odds(scores, known)
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

    def _scores(self, fitted: Any, X: Any) -> Array:
        found = np.asarray(fitted.decision_function(X), dtype=float)
        return found.reshape(len(found), -1)

    def _probabilities(self, scores: Array) -> Array:
        return expit(scores * self.slopes_ + self.intercepts_)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each label, shape (n_samples, n_labels)."""
        X = passed_on(self, X, reset=False)
        return self._probabilities(self._scores(self.estimator_, X))

    def decision_function(self, X: Any) -> Array:
        """Return how far the probability of each label is above the threshold, shape (n_samples, n_labels)."""
        return self.predict_proba(X) - self.threshold_


def calibrated_f1(model: Any, X: Any, Y: Array) -> float:
    """Return the micro-F1 of a model's scores, were they mapped to probabilities and cut by these very samples.

    It compares models whose thresholds will be chosen: more is asked of scores than that they are right about 0.
    """
    scores = np.asarray(model.decision_function(X), dtype=float)
    slopes, intercepts = _odds(scores, Y)
    probabilities = expit(scores * slopes + intercepts)
    predicted = probabilities > _half_of_largest_f1(probabilities)
    return float(f1_score(Y, predicted, average="micro", zero_division=0.0))


def _odds(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Return slopes and intercepts of the logarithms of the odds of labels."""
    slopes, intercepts = zip(*map(_odds_of_one, scores.T, labels.T), strict=True)
    return np.array(slopes), np.array(intercepts)


def _odds_of_one(scores: Array, labels: Array) -> tuple[float, float]:
    """Return slope and intercept of the logarithm of a label's odds; those of a constant label are constant."""
    count, mean, size = int(labels.sum()), float(scores.mean()), float(scores.std())
    if count in (0, len(labels)) or size == 0.0:
        # As if each value had been seen half a time more.
        return 0.0, float(np.log((count + 0.5) / (len(labels) - count + 0.5)))
    found = LogisticRegression(C=CALIBRATION_C).fit((scores[:, None] - mean) / size, labels)
    slope = float(found.coef_[0, 0]) / size
    return slope, float(found.intercept_[0]) - slope * mean


def _half_of_largest_f1(probabilities: Array) -> float:
    """Return half of the largest F1 that is expected of labels that apply from some probability on."""
    ordered = np.sort(probabilities, axis=None)[::-1]
    expected = 2.0 * np.cumsum(ordered) / (np.arange(1, len(ordered) + 1) + ordered.sum())
    return float(expected.max()) / 2.0


@dataclass(eq=False, repr=False)
class LinkPredictor(CertifiedEmbedder):
    """Objects in a Euclidean space: two are linked when they are nearer to each other than to the threshold.

    Mirzazadeh et al. (2015), section 3, with the convex loss of `LinkPrediction`, minimised by `RankIncremental`.

    Parameters
    ----------
    beta : float
        Weight of the trace; the loss is a sum over pairs, so that more of them bear a larger one.
    growth, max_rank, tol, verbose : optional
        As in `CoembeddingClassifier`.
    negatives : float
        Pairs without a link that are drawn for each link where `fit` gets a graph.
    random_state : int, RandomState or None
        Of the drawn pairs.

    Attributes
    ----------
    components_ : array, shape (rank, n_features)
    threshold_embedding_ : array, shape (rank,)
    rank_, n_iter_, objective_, gap_, is_global_, history_
        See `CoembeddingClassifier`.

    See Also
    --------
    CoembeddingClassifier : links between samples and labels.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import LinkPredictor
    >>> X = np.random.default_rng(0).standard_normal((40, 4))
    >>> near = ((X[:, None, :2] - X[None, :, :2]) ** 2).sum(axis=2) < 0.5
    >>> graph = near & ~np.eye(40, dtype=bool)
    >>> model = LinkPredictor(beta=0.5, random_state=0).fit(X, graph)
    >>> pairs = np.argwhere(np.triu(np.ones((40, 40)), 1))
    >>> model.score(X, near[tuple(pairs.T)], pairs=pairs) > 0.9
    True
    """

    beta: Annotated[float, weight] = 1.0
    _: KW_ONLY
    negatives: Annotated[float, bounded(number, above=0)] = 2.0
    random_state: Annotated[Any, seedable] = None

    @one_blas_thread()
    def fit(self, X: Any, links: Any) -> Self:
        """Fit the embedding.

        Parameters
        ----------
        X : array or sparse array, shape (n_objects, n_features)
        links : array or sparse array, shape (n_objects, n_objects), or a pair of arrays
            The symmetric table of links, numbers above 0, of which pairs without a link are drawn; or ``(pairs,
            linked)``, integers of shape (n_pairs, 2) and 0 or 1 for each.
        """
        check_parameters(self, self._parameters)
        X = admit(self, X)
        known = isinstance(links, tuple) and len(links) == 2
        pairs, linked = links if known else self._drawn(links, X.shape[0])
        Y = self._minimised(LinkPrediction(in_range(X), pairs, linked), self.beta)
        self.components_, self.threshold_embedding_ = np.ascontiguousarray(Y[:-1].T), Y[-1]
        return self

    def _drawn(self, graph: Any, n: int) -> tuple[Array, Array]:
        """Return all links of a graph, and as many random pairs without a link as wanted."""
        graph = sound("links", graph) if sp.issparse(graph) else array_of("links", graph)
        given = sp.csr_array(graph) if graph.dtype.kind in "biuf" and graph.shape == (n, n) else None
        # Of NaN this is not so either.
        table = given.astype(bool) if given is not None and given.data.min(initial=0) >= 0 else None
        if table is None or (table != table.T).nnz:
            raise InvalidInputError(
                f"links must be a symmetric {n} × {n} table of numbers from 0, or a tuple (pairs, linked); got "
                f"{graph.dtype} of shape {graph.shape}."
            )
        table.eliminate_zeros()
        upper = sp.triu(table, 1).tocoo()
        there = set((upper.row.astype(np.int64) * n + upper.col).tolist())
        if not there or len(there) == n * (n - 1) // 2:
            raise InvalidInputError(
                "links must have some pairs with a link and some without; a graph has both."
            )
        rng = np.random.default_rng(seed_of(self.random_state))
        wanted = min(round(self.negatives * len(there)), n * (n - 1) // 2 - len(there))
        drawn: set[int] = set()
        while len(drawn) < wanted:
            i, j = np.sort(rng.integers(n, size=(2, 2 * wanted)), axis=0)
            for key in (i * n + j)[i < j].tolist():
                if key not in there and len(drawn) < wanted:
                    drawn.add(key)
        keys = np.array(sorted(there) + sorted(drawn))
        return np.column_stack(np.divmod(keys, n)), np.arange(len(keys)) < len(there)

    def decision_function(self, X: Any, pairs: Any) -> Array:
        """Return min(t(x), t(y)) − d(x, y) for pairs of rows of X, shape (n_pairs,); positive for a link."""
        Z, pairs = self._embedded(X), array_of("pairs", pairs)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
            raise InvalidInputError(f"pairs must be integers with two columns, got shape {pairs.shape}.")
        if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(Z)):
            raise InvalidInputError(f"pairs must name rows of X, from 0 to {len(Z) - 1}.")
        x, y = pairs.T
        with np.errstate(all="ignore"):
            thresholds = ((Z - self.threshold_embedding_) ** 2).sum(axis=1)
            return finite(np.minimum(thresholds[x], thresholds[y]) - ((Z[x] - Z[y]) ** 2).sum(axis=1))

    def predict(self, X: Any, pairs: Any) -> Array:
        """Return 1 for pairs that are linked, else 0."""
        return (self.decision_function(X, pairs) > 0.0).astype(int)

    def score(self, X: Any, linked: Any, pairs: Any) -> float:
        """Return the area under the receiver operating characteristic of the scores of pairs."""
        scores, linked = self.decision_function(X, pairs), one_each("linked", linked)
        both = np.isin(linked, (0, 1)).all() and np.isin((0, 1), linked).all()
        if linked.shape != scores.shape or not both:
            raise InvalidInputError(
                f"linked must hold 0 and 1, both, one for each of {len(scores)} pairs, got shape {linked.shape}."
            )
        return float(roc_auc_score(linked, scores))


def posts_f1(pairs: Array, tags: Array, predict: Callable[[Array], Array]) -> float:
    """Return the F1 measure of predicted tags: precision and recall are averaged over the posts.

    Parameters
    ----------
    pairs : array, shape (N, 2)
        User and item of each tag; a post is a pair with all its tags.
    tags : array, shape (N,)
    predict : callable
        Maps different pairs to the tags of each, shape (n_posts, n_tags).
    """
    posts, which = np.unique(pairs, axis=0, return_inverse=True)
    precision, recall = [], []
    for post, names in enumerate(predict(posts)):
        true = set(tags[which.ravel() == post].tolist())
        hits = len(true & set(names.tolist()))
        precision.append(hits / len(names))
        recall.append(hits / len(true))
    p, r = float(np.mean(precision)), float(np.mean(recall))
    return 2.0 * p * r / (p + r) if p + r > 0.0 else 0.0


def _pairs(X: Any) -> tuple[Array, Array]:
    """Return the columns of users and items; those of a frame have types of their own."""
    if hasattr(X, "columns") and len(X.columns) == len(set(X.columns)) == 2:
        users, items = (array_of("X", X[name]) for name in X.columns)
        return users, items
    X = array_of("X", X)
    if X.ndim != 2 or X.shape[1] != 2:
        raise InvalidInputError(f"X must have two columns (user, item), got shape {X.shape}.")
    return X[:, 0], X[:, 1]


@dataclass(eq=False, repr=False)
class TagModel(Checked, BaseEstimator):
    """A recommender of tags for pairs of a user and an item; a subclass learns scores."""

    _: KW_ONLY
    n_tags: Annotated[int, kept_count] = 5

    @abstractmethod
    def learn(self, triples: Array, counts: tuple[int, int, int]) -> None:
        """Learn from numbered triples (user, item, tag)."""

    @abstractmethod
    def scores(self, users: Array, items: Array) -> Array:
        """Return how well every tag suits pairs of numbered users and items, shape (n_pairs, n_tags)."""

    @one_blas_thread()
    def fit(self, X: Any, y: Any) -> Self:
        """Learn from tags that users gave to items.

        Parameters
        ----------
        X : array, shape (n_samples, 2)
            Names or numbers of users and items.
        y : array, shape (n_samples,)
            Names or numbers of tags, one for each row; a post with three tags has three rows.
        """
        check_parameters(self, self._parameters)
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        users, items = _pairs(X)
        # As it was given: of a list numpy would make text.
        if array_of("y", y).shape != users.shape or not len(users):
            raise InvalidInputError(f"y must have one tag for each of the {len(users)} rows of X.")
        columns = []
        for what, column in (("users", users), ("items", items), ("tags", y)):
            known, numbers = np.unique(column_of_names(what, column), return_inverse=True)
            setattr(self, f"{what}_", known)
            columns.append(numbers.ravel())
        self.n_features_in_ = 2
        self.learn(np.column_stack(columns), (len(self.users_), len(self.items_), len(self.tags_)))
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the scores of all `tags_` for pairs of a user and an item, shape (n_samples, n_tags)."""
        return self.scores(*self._numbered(X))

    def _numbered(self, X: Any) -> tuple[Array, Array]:
        """Return the numbers of users and items."""
        check_is_fitted(self, "tags_")
        check_columns(self, X)
        users, items = _pairs(X)
        return positions("user", self.users_, users), positions("item", self.items_, items)

    def _best(self, scores: Array) -> Array:
        n_tags = kept_count("n_tags", self.n_tags)
        return self.tags_[np.argsort(-scores, axis=1, kind="stable")[:, :n_tags]]

    def predict(self, X: Any) -> Array:
        """Return the `n_tags` best tags for pairs of a user and an item, the best first."""
        return self._best(self.decision_function(X))

    def score(self, X: Any, y: Any) -> float:
        """Return the F1 measure of the predicted tags, as the ECML/PKDD challenge 2009 has it.

        Precision and recall are averaged over the posts, and F1 is their harmonic mean.
        """
        numbers, y = np.column_stack(self._numbered(X)), column_of_names("tags", y)
        if y.shape != (len(numbers),) or not len(y):
            raise InvalidInputError(
                f"y must have one tag for each row, at least one, got shapes {numbers.shape}, {y.shape}."
            )
        if set(y.tolist()).isdisjoint(self.tags_.tolist()):
            warnings.warn(
                f"fit saw none of the tags in y, so that the score is 0: {shown(y)} beside {shown(self.tags_)}.",
                UserWarning,
                stacklevel=2,
            )
        return posts_f1(numbers, y, lambda pairs: self._best(self.scores(*pairs.T)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


@dataclass(eq=False, repr=False)
class TagRecommender(Certified, TagModel):
    """Users, items and tags in one space: the best tags are those next to both the user and the item.

    Mirzazadeh et al. (2015), section 7: the convex equation 14, minimised by `RankIncremental`.

    Parameters
    ----------
    beta : float
        Weight of the trace. The loss is a sum over the tags that were given and those that were not: 1 is for some
        hundred given ones, and 10 to 100 for thousands. Near to their number the model is empty, of rank 0, and `fit`
        warns.
    n_tags : int
        How many tags `predict` names.
    growth, max_rank, tol, verbose : optional
        As in `CoembeddingClassifier`.

    Attributes
    ----------
    users_, items_, tags_ : array
        The names that `fit` saw, sorted.
    user_embedding_, item_embedding_, tag_embedding_ : array, shape (n, rank)
    rank_, n_iter_, objective_, gap_, is_global_, history_
        See `CoembeddingClassifier`.

    See Also
    --------
    PairwiseInteractionTags : factors by stochastic gradients, for very many users and items.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> from problems.coembedding import TagRecommender
    >>> posts = [["ann", "a"], ["ann", "b"], ["bob", "a"], ["bob", "b"]]
    >>> tags = ["red", "blue", "red", "blue"]
    >>> model = TagRecommender(beta=0.1, n_tags=1).fit(posts, tags)
    >>> model.predict([["ann", "a"]]).tolist()
    [['red']]
    """

    _parameters = TagModel._parameters | Certified._parameters
    beta: Annotated[float, weight] = 1.0
    _: KW_ONLY
    tol: Annotated[float, gap] = 1e-3

    def learn(self, triples: Array, counts: tuple[int, int, int]) -> None:
        """Minimise equation 14."""
        self.embed(self._minimised(TagRanking(triples, counts), self.beta), counts)

    def embed(self, Y: Array, counts: tuple[int, int, int]) -> None:
        """Take the embeddings from a factor."""
        ends = np.cumsum(counts)
        self.user_embedding_, self.item_embedding_, self.tag_embedding_ = (
            Y[start:stop] for start, stop in zip([0, *ends], ends, strict=False)
        )

    def scores(self, users: Array, items: Array) -> Array:
        """Return minus the sum of both squared distances, up to a number for each pair."""
        both, tags = self.user_embedding_[users] + self.item_embedding_[items], self.tag_embedding_
        return 2.0 * (both @ tags.T - (tags**2).sum(axis=1))


@dataclass(eq=False, repr=False)
class PairwiseInteractionTags(TagModel):
    """Factors of users and items, each with their own factors of tags: ŷ = ⟨T^U_t, U_u⟩ + ⟨T^I_t, I_i⟩.

    The winner of the ECML/PKDD challenge 2009 (Rendle and Schmidt-Thieme 2009): stochastic gradient ascent on pairs
    of a tag of a post and another one.

    Parameters
    ----------
    rank : int
    n_tags : int
        How many tags `predict` names.
    n_epochs : int
        Passes over the triples.
    step_size, penalty, scale : float
        Of the ascent, of the squared factors, and of the random start.
    random_state : int, RandomState or None

    Attributes
    ----------
    users_, items_, tags_ : array
        The names that `fit` saw, sorted.
    user_factors_, item_factors_ : array, shape (n, rank)
    tag_user_factors_, tag_item_factors_ : array, shape (n_tags, rank)

    See Also
    --------
    TagRecommender : a global optimum, and nothing to tune but β.

    References
    ----------
    Rendle and Schmidt-Thieme, Factor models for tag recommendation in BibSonomy, ECML PKDD Discovery Challenge
    (2009). Rendle and Schmidt-Thieme, Pairwise interaction tensor factorization for personalized tag
    recommendation, WSDM (2010), https://doi.org/10.1145/1718487.1718498.

    Examples
    --------
    >>> from problems.coembedding import PairwiseInteractionTags
    >>> posts = [["ann", "a"], ["ann", "b"], ["bob", "a"], ["bob", "b"]]
    >>> model = PairwiseInteractionTags(rank=4, n_tags=1, random_state=0)
    >>> model.fit(posts, ["red", "blue", "red", "blue"]).predict([["ann", "a"]]).tolist()
    [['red']]
    """

    rank: Annotated[int, kept_count] = 64
    _: KW_ONLY
    n_epochs: Annotated[int, count] = 200
    step_size: Annotated[float, bounded(number, above=0)] = 0.05
    penalty: Annotated[float, bounded(number, least=0)] = 5e-3
    scale: Annotated[float, bounded(number, above=0)] = 0.1
    random_state: Annotated[Any, seedable] = None

    def learn(self, triples: Array, counts: tuple[int, int, int]) -> None:
        """Do the ascent."""
        step_size, penalty, scale = float(self.step_size), float(self.penalty), float(self.scale)
        rng = np.random.default_rng(seed_of(self.random_state))
        n_users, n_items, n_tags = counts
        U, V, TU, TI = (
            scale * rng.standard_normal((n, self.rank)) for n in (n_users, n_items, n_tags, n_tags)
        )
        posts = triples[:, 0] * n_items + triples[:, 1]
        taken = posts * n_tags + triples[:, 2]
        for epoch in range(self.n_epochs):
            order = rng.permutation(len(triples))
            others = rng.integers(n_tags, size=len(triples))
            # A tag of the post itself is no contrast.
            valid = ~np.isin(posts[order] * n_tags + others, taken)
            kernels.pairwise_interaction(
                U, V, TU, TI, triples[order][valid], others[valid], step_size, penalty
            )
            if not all(np.isfinite(part).all() for part in (U, V, TU, TI)):
                raise DivergedError(
                    f"the factors are not finite after epoch {epoch}; choose a smaller step_size than {step_size:g}, "
                    f"penalty than {penalty:g} or scale than {scale:g}.",
                    epoch * len(triples),
                )
        self.user_factors_, self.item_factors_, self.tag_user_factors_, self.tag_item_factors_ = U, V, TU, TI

    def scores(self, users: Array, items: Array) -> Array:
        """Return the interactions."""
        return (
            self.user_factors_[users] @ self.tag_user_factors_.T
            + self.item_factors_[items] @ self.tag_item_factors_.T
        )
