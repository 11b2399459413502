"""Multi-label classifiers compared in the paper: binary relevance, chains, calibrated label ranking."""

from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, Normalizer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from problems.data.bundles import holds_counts, scaling
from problems.thresholds import LabelTables, estimator_with
from problems.validation import Estimator, passed_on, table_of_labels
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, check_parameters
from rmopt.solvers.threads import one_blas_thread

BASES = {
    "svm": lambda: LinearSVC(random_state=0, max_iter=5000),
    "lr": lambda: LogisticRegression(max_iter=2000),
}
# The weights of the loss that cross-validation chooses from: for short and sparse rows, and for long ones.
UNIT_CS = {"svm": (0.1, 1.0, 10.0, 100.0), "lr": (0.1, 1.0, 10.0, 100.0, 1000.0)}
LONG_CS = {"svm": (0.00001, 0.0001, 0.001, 0.01, 0.1), "lr": (0.0001, 0.001, 0.01, 0.1, 1.0)}


@dataclass(eq=False, repr=False)
class Guarded(ClassifierMixin, BaseEstimator):
    """A binary classifier that also accepts constant labels, which it repeats."""

    estimator: Any

    @one_blas_thread()
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the classifier, or a constant."""
        self.classes_ = np.unique(y)
        single = len(self.classes_) == 1
        model = DummyClassifier(strategy="most_frequent") if single else clone(self.estimator)
        self.fitted_ = model.fit(X, y)
        return self

    def predict(self, X: Any) -> Array:
        """Return the predicted labels."""
        return self.fitted_.predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(eq=False, repr=False)
class CalibratedLabelRanking(LabelTables, Estimator):
    """Votes between pairs of labels, and against a virtual one that separates the relevant labels.

    Fürnkranz et al. (2008): the classifier of a pair learns from the samples that have exactly one of the two. That
    of a label and the virtual one is the label's classifier of binary relevance. A label with more votes than the
    virtual one applies.

    Parameters
    ----------
    estimator : classifier
        The binary classifier.

    Attributes
    ----------
    n_labels_ : int
    classes_ : array, shape (n_labels,)
        The numbers of the labels.

    See Also
    --------
    CoembeddingClassifier : one model for all labels.
    sklearn.multioutput.ClassifierChain : labels that depend on earlier ones.

    References
    ----------
    Fürnkranz, Hüllermeier, Loza Mencía and Brinker, Multilabel classification via calibrated label ranking,
    Machine Learning 73 (2008), https://doi.org/10.1007/s10994-008-5064-8.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from problems.coembedding import CalibratedLabelRanking
    >>> X, Y = make_multilabel_classification(n_samples=100, n_classes=4, random_state=0)
    >>> model = CalibratedLabelRanking(RidgeClassifier()).fit(X, Y)
    >>> model.predict(X).shape, bool((model.predict(X) == Y).mean() > 0.8)
    ((100, 4), True)
    """

    estimator: Annotated[Any, bounded(estimator_with, "predict", "LogisticRegression")]

    @one_blas_thread()
    def fit(self, X: Any, Y: Any) -> Self:
        """Fit a classifier for each pair of labels, and one for each label.

        Parameters
        ----------
        X : array, or another input of the classifier: a frame, a sparse array, a list of texts
        Y : array, shape (n_samples, n_labels)
        """
        check_parameters(self, self._parameters)
        X = passed_on(self, X)
        Y = table_of_labels(Y, _num_samples(X)).toarray().astype(int)
        self.n_labels_ = Y.shape[1]
        self.classes_ = np.arange(self.n_labels_)
        self.single_ = [Guarded(self.estimator).fit(X, Y[:, j]) for j in range(self.n_labels_)]
        # No mapping by pairs, which skops files cannot hold.
        self.pairs_ = []
        for i, j in combinations(range(self.n_labels_), 2):
            differ = np.flatnonzero(Y[:, i] != Y[:, j])
            if differ.size:
                model = Guarded(self.estimator).fit(_safe_indexing(X, differ), Y[differ, i])
                self.pairs_.append((i, j, model))
        return self

    def decision_function(self, X: Any) -> Array:
        """Return each label's votes minus those of the virtual one, shape (n_samples, n_labels)."""
        X = passed_on(self, X, reset=False)
        relevant = np.column_stack([model.predict(X) for model in self.single_]).astype(float)
        votes, virtual = relevant.copy(), (1.0 - relevant).sum(axis=1)
        for i, j, model in self.pairs_:
            first = model.predict(X)
            votes[:, i] += first
            votes[:, j] += 1.0 - first
        return votes - virtual[:, None]


def unit_scaling(X: Any) -> Any:
    """Return the scaling of features, or the weights of counts, followed by rows of length 1."""
    # Rows weighted by tf-idf already have this length.
    return scaling(X) if holds_counts(X) else make_pipeline(scaling(X), Normalizer())


def searched(scheme: str, base: str, seed: int, X: Any, folds: int, scoring: Any) -> GridSearchCV:
    """Return a baseline with feature scaling and C chosen by cross-validation."""
    path = "model__estimator__C" if scheme == "clr" else "model__estimator__estimator__C"
    short = unit_scaling(X), UNIT_CS[base]
    long = (MaxAbsScaler(), UNIT_CS[base]) if issparse(X) else (StandardScaler(), LONG_CS[base])
    steps = Pipeline([("scaling", short[0]), ("model", multilabel(scheme, base, seed))])
    grid = [{"scaling": [scaling], path: costs} for scaling, costs in (short, long)]
    return GridSearchCV(steps, grid, scoring=scoring, cv=folds, n_jobs=-1, error_score="raise")


def multilabel(scheme: str, base: str, seed: int) -> Any:
    """Return a multi-label classifier."""
    binary = BASES[base]()
    if scheme == "br":
        return MultiOutputClassifier(Guarded(binary))
    if scheme == "clr":
        return CalibratedLabelRanking(binary)
    return ClassifierChain(Guarded(binary), order="random", random_state=seed)
