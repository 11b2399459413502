"""Multi-label classification by co-embedding, as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import KFold, check_cv
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils.multiclass import type_of_target, unique_labels
from sklearn.utils.validation import column_or_1d

from problems.coembedding.certified import CertifiedEmbedder
from problems.coembedding.multilabel import MultilabelCoembedding
from problems.coembedding.training import BETAS, checked_betas, path
from problems.door import admit, finite, in_range, kept_count
from rmopt.core import InvalidInputError
from rmopt.core.arguments import Check, check_parameters, integer, optional
from rmopt.core.matrices import sound
from rmopt.engines.threads import one_blas_thread
from rmopt.solvers import LBFGS, Growth, RankIncremental

Array = np.ndarray

# On the paths of a cross-validation.
PATH_TOL, PATH_ROUNDS = 1e-2, 5


def _jobs(name: str, value: Any) -> int:
    if value == 0:
        raise InvalidInputError(
            f"{name} = 0 must be None, a positive number of threads, or −1 for all cores."
        )
    return integer(name, value, -1000, 1000)


class CoembeddingClassifier(CertifiedEmbedder, ClassifierMixin, BaseEstimator):
    """Samples, labels and a threshold in one Euclidean space: a label applies where it is nearer than the threshold.

    Mirzazadeh et al. (2015), section 6: the convex equation 13, minimised by `RankIncremental` to a certified global
    minimum. Features should be standardised and rows scaled to unit length.

    Parameters
    ----------
    beta : float
        Weight of the trace: larger ones give smaller ranks.
    growth : Growth, optional
        `Exponential()` unless given.
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

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.preprocessing import Normalizer, StandardScaler
    >>> from sklearn.pipeline import make_pipeline
    >>> X, Y = make_multilabel_classification(n_samples=300, n_classes=4, random_state=0)
    >>> model = make_pipeline(StandardScaler(), Normalizer(), CoembeddingClassifier(beta=2.0)).fit(X[:200], Y[:200])
    >>> bool((model.predict(X[200:]) == Y[200:]).mean() > 0.75)
    True
    """

    def __init__(
        self,
        beta: float = 5.0,
        *,
        growth: Growth | None = None,
        max_rank: int | None = None,
        tol: float = 1e-4,
        verbose: bool = False,
    ) -> None:
        self.beta = beta
        self.growth = growth
        self.max_rank = max_rank
        self.tol = tol
        self.verbose = verbose

    @one_blas_thread()
    def fit(self, X: Any, Y: Any) -> Self:
        """Fit the embeddings.

        Parameters
        ----------
        X : array or sparse array, shape (n_samples, n_features)
        Y : array or sparse array, shape (n_samples, n_labels), or array, shape (n_samples,)
            Indicators of labels, or one class for each sample.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        X, table = self._checked(X, Y)
        return self._take(self.minimised(MultilabelCoembedding(X, table), self.beta))

    def _checked(self, X: Any, Y: Any) -> tuple[Any, Array]:
        """Return X, and the indicators of the labels."""
        kind = type_of_target(sound("Y", Y), input_name="Y")
        if kind not in ("multilabel-indicator", "multiclass", "binary"):
            raise InvalidInputError(
                f"Unknown label type: {kind}. Y must be a table of indicators, or one class for each sample."
            )
        X, Y = admit(self, X, Y, multi_output=True)
        in_range(X)
        self._single = kind != "multilabel-indicator"
        if self._single and np.ndim(Y) == 2:
            Y = column_or_1d(Y, warn=True)
        if not self._single:
            table = np.asarray(Y.toarray() if sp.issparse(Y) else Y)
            self.classes_ = np.arange(table.shape[1])
            return X, table
        self.classes_ = unique_labels(Y)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"CoembeddingClassifier needs 2 classes or more, got 1 class: {self.classes_}."
            )
        table = LabelBinarizer().fit(self.classes_).transform(Y)
        return X, np.hstack([1 - table, table]) if table.shape[1] == 1 else table

    def _take(self, Y: Array) -> Self:
        """Take the embeddings of features, labels and threshold from a factor."""
        n = self.n_features_in_
        self.components_ = np.ascontiguousarray(Y[:n].T)
        self.label_embedding_, self.threshold_embedding_ = Y[n:-1], Y[-1]
        return self

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
        if not self._single:
            return (scores > 0.0).astype(int)
        which = (scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[which]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of samples whose labels are all right."""
        return super().score(X, sound("y", y), sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def coembedding_path(
    X: Any, Y: Any, betas: Sequence[float] = BETAS, **options: Any
) -> list[CoembeddingClassifier]:
    """Return a classifier for each weight, ascending; each is trained from the one with the next larger weight.

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
    """
    model = CoembeddingClassifier(**options)
    check_parameters(model, model._parameters)
    return _path(X, Y, betas, model.solver(), options, warn=True)


def _path(
    X: Any, Y: Any, betas: Sequence[float], solver: RankIncremental, options: dict[str, Any], *, warn: bool
) -> list[CoembeddingClassifier]:
    loss = MultilabelCoembedding(*CoembeddingClassifier(**options)._checked(X, Y))
    models = []
    for beta, result in path(loss, betas, solver):
        model = CoembeddingClassifier(beta, **options)
        model._checked(X, Y)
        models.append(model._take(model.keep(result, warn)))
    return models[::-1]


class CoembeddingClassifierCV(CoembeddingClassifier):
    """`CoembeddingClassifier` with its weight chosen by cross-validation, along warm-started paths.

    Parameters
    ----------
    betas : sequence of float
    cv : int, splitter, iterable or None
        Folds; shuffled with a fixed seed for a number. None: 5.
    scoring : str, callable or None
        In scikit-learn's words: "f1_micro", "f1_macro", "accuracy", …; or a scorer. None: that of
        `score`.
    n_jobs : int or None
        Threads, one for a fold.
    growth : Growth, optional
        As in `CoembeddingClassifier`.
    max_rank : int, optional
        As in `CoembeddingClassifier`.
    tol : float
        Relative gap of the model with the chosen weight.
    path_iterations : int
        Iterations of L-BFGS in each of at most five rounds on the paths, where models need only be good enough to
        be compared.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    beta_ : float
        The chosen weight: the largest of those with the best mean score.
    scores_ : array, shape (n_betas, n_folds)
        By weight, ascending.
    """

    _parameters: ClassVar[dict[str, Check]] = {
        **{name: check for name, check in CoembeddingClassifier._parameters.items() if name != "beta"},
        "betas": lambda name, value: checked_betas(value),
        "cv": lambda name, value: _folds(value),
        "scoring": lambda name, value: value if callable(value) or value is None else get_scorer(value),
        "n_jobs": optional(_jobs),
        "path_iterations": kept_count,
    }

    def __init__(
        self,
        betas: Sequence[float] = BETAS,
        *,
        cv: Any = 5,
        scoring: str | Callable[..., float] = "f1_micro",
        n_jobs: int | None = None,
        growth: Growth | None = None,
        max_rank: int | None = None,
        tol: float = 1e-4,
        path_iterations: int = 200,
        verbose: bool = False,
    ) -> None:
        self.betas = betas
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.growth = growth
        self.max_rank = max_rank
        self.tol = tol
        self.path_iterations = path_iterations
        self.verbose = verbose

    @one_blas_thread()
    def fit(self, X: Any, Y: Any) -> Self:
        check_parameters(self, self._parameters)
        betas, scorer, cv = checked_betas(self.betas), check_scoring(self, self.scoring), _folds(self.cv)
        X, table = self._checked(X, Y)
        given = Y if self._single else table
        tol = max(self.tol, PATH_TOL)
        options = {"growth": self.growth, "max_rank": self.max_rank, "tol": tol}
        rough = RankIncremental(
            self.growth,
            inner=LBFGS(20, max_iterations=self.path_iterations),
            tol=tol,
            max_rank=self.max_rank,
            max_rounds=PATH_ROUNDS,
        )

        def scores(train: Array, test: Array) -> list[float]:
            models = _path(X[train], np.asarray(given)[train], betas, rough, options, warn=False)
            return [scorer(model, X[test], np.asarray(given)[test]) for model in models]

        folds = list(cv.split(X, given))
        if len(folds) < 2:
            raise InvalidInputError(f"cross-validation needs 2 folds or more, got {len(folds)}.")
        found = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(scores)(*fold) for fold in folds)
        self.scores_ = np.array(found).T
        means = self.scores_.mean(axis=1)
        self.beta_ = betas[int(np.flatnonzero(means == means.max())[-1])]
        return self._take(self.minimised(MultilabelCoembedding(X, table), self.beta_))


def _folds(cv: Any) -> Any:
    """Return a splitter."""
    if isinstance(cv, str | bytes):
        raise InvalidInputError(f"cv = {cv!r} must be a number of folds, a splitter or None.")
    if cv is None or isinstance(cv, Integral):
        return KFold(5 if cv is None else integer("cv", cv, 2), shuffle=True, random_state=0)
    return check_cv(cv)
