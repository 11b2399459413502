"""From which score on a label applies: chosen by cross-validation, for what shall be good."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from problems.coembedding.classifier import folds_named, folds_of
from problems.coembedding.training import LabelTables, estimator_with
from problems.door import learn_labels, passed_on, table_of_labels
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import Checked, bounded, check_parameters, one_of

AIMS = ("f1", "hamming")
# The weight of the losses of the regression on standardised scores: only scores that separate need a limit.
CALIBRATION_C = 100.0


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

    estimator: Annotated[Any, bounded(estimator_with, "decision_function", "CoembeddingClassifier()")]
    _: KW_ONLY
    aim: Annotated[str, bounded(one_of, AIMS)] = "f1"
    cv: Annotated[Any, folds_named] = 5

    def fit(self, X: Any, Y: Any) -> Self:
        """Fit the estimator on folds for the probabilities, and on all samples.

        Parameters
        ----------
        X : array, or what else the estimator takes: a frame, a sparse array, a list of texts
        Y : array or sparse array, shape (n_samples, n_labels)
        """
        check_parameters(self, self._parameters)
        X = passed_on(self, X)
        learn_labels(self, Y)
        Y = table_of_labels(Y, _num_samples(X))
        scores, seen_once = np.zeros(Y.shape), np.zeros(len(Y), dtype=bool)
        for train, test in folds_of(self.cv, X, Y):
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
