"""Probabilities and thresholds of several labels, for any classifier with scores."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy.special import expit, logit
from sklearn.base import ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted

from problems.folds import folds_of
from problems.validation import (
    Estimator,
    checked_later,
    in_order,
    passed_on,
    table_of_labels,
)
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, check_parameters, flag, numbers, one_of, shown

AIMS = ("f1", "hamming")


class LabelTables(ClassifierMixin):
    """A classifier of several labels from dense or sparse rows."""

    # Whether there may also be one class for each sample.
    takes_classes: ClassVar[bool] = False
    decision_function: Any

    def predict(self, X: Any) -> Array:
        """Return indicators of the labels whose scores are above 0, shape (n_samples, n_labels)."""
        return (self.decision_function(X) > 0.0).astype(int)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of samples with all labels right."""
        table = getattr(y, "ndim", 1) == 2
        y = table_of_labels(y, _num_samples(X)).toarray() if table else in_order("y", y)
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = self.takes_classes
        return tags


def estimator_with(name: str, value: Any, method: str, such: str) -> Any:
    """Return an estimator that has a method, and refuse a class."""
    if isinstance(value, type) or not (hasattr(value, "fit") and hasattr(value, method)):
        wanted = f"an estimator with fit and {method}, such as {such}()"
        raise InvalidInputError(f"{name} = {shown(value)} must be {wanted}.")
    return value


@dataclass(eq=False, repr=False)
class LabelThresholds(LabelTables, Estimator):
    """A classifier of several labels, with probabilities, and a threshold that suits a measure.

    Scores of held-out folds are mapped to probabilities, label by label, by logistic regression, and then again, with
    the expected number of the sample's other labels as a further feature. A label applies from a probability of one
    half on, which is best for the Hamming score, or from half of the largest expected micro-F1 on, which is best for
    that. No single threshold is good for both.

    If a label has few samples, its scores predict new samples worse than training samples, the more so the rarer it
    is. Then probabilities often rank the labels of a sample better than scores.

    Parameters
    ----------
    estimator : estimator
        With `decision_function`, of shape (n_samples, n_labels).
    aim : {"f1", "hamming"}
        The measure for which predictions are best.
    cv : int, splitter, iterable or None
        Folds, shuffled with a fixed seed for a number. None means 5. For a sample in several folds the last one
        counts. One fold, as from ``ShuffleSplit(1)``, is the cheapest, and suffices if labels are `pooled`.
    pooled : bool
        Whether all labels share the slopes, with intercepts by the log-odds of their frequency: seven numbers in all,
        instead of five for each label. For labels with few samples in held-out folds, or for weak models.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on all samples.
    slopes_, intercepts_ : array, shape (n_labels,)
        The logarithm of the odds of a label, alone, is its score times the slope plus the intercept.
    among_ : array, shape (3, n_labels)
        The log-odds among the others: the log-odds alone, the expected number of other labels and 1, times these
        weights.
    between_ : array, shape (2,)
        The least and the largest expected number of labels of a held-out sample.
    half_of_f1_ : float
        Half of the largest expected micro-F1.
    classes_ : array, shape (n_labels,)
        Column numbers.

    See Also
    --------
    problems.coembedding.CoembeddingClassifier : learns its own threshold with the embeddings.
    problems.ranking.LowRankLogisticRegression : for hundreds of labels and more, with ``pooled=True``.
    sklearn.model_selection.TunedThresholdClassifierCV : for one label.

    References
    ----------
    Lipton, Elkan and Naryanaswamy, Optimal thresholding of classifiers to maximize F1 measure, ECML PKDD (2014),
    https://doi.org/10.1007/978-3-662-44851-9_15. That numbers of labels can be learned from scores is in Tang, Rajan
    and Narayanan, Large scale multi-label classification via MetaLabeler, WWW (2009),
    https://doi.org/10.1145/1526709.1526738. Scores less a share of the logarithms of frequencies are in Menon et al.,
    Long-tail learning via logit adjustment, ICLR (2021), arXiv:2007.07314.

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

    estimator: Annotated[Any, bounded(estimator_with, "decision_function", "CoembeddingClassifier")]
    _: KW_ONLY
    aim: Annotated[str, bounded(one_of, AIMS)] = "f1"
    cv: Annotated[Any, checked_later] = 5
    pooled: Annotated[bool, flag] = False

    def fit(self, X: Any, Y: Any, groups: Any = None) -> Self:
        """Fit the estimator on folds for the probabilities, and on all samples.

        Parameters
        ----------
        X : array, or another input of the estimator: a frame, a sparse array, a list of texts
        Y : array or sparse array, shape (n_samples, n_labels)
        groups : array, shape (n_samples,), optional
            The groups that `cv` keeps together.
        """
        check_parameters(self, self._parameters)
        X = passed_on(self, X)
        Y = table_of_labels(Y, _num_samples(X)).toarray().astype(int)
        scores, seen_once = np.zeros(Y.shape), np.zeros(len(Y), dtype=bool)
        for train, test in folds_of(self.cv, X, Y, groups):
            fitted = clone(self.estimator).fit(_safe_indexing(X, train), Y[train])
            scores[test] = _scores_of(fitted, _safe_indexing(X, test), Y.shape[1])
            seen_once[test] = True
        scores, known = scores[seen_once], Y[seen_once]
        if not len(known):
            raise InvalidInputError(
                "cv holds out no samples; give a number of folds, or a list of them: an iterator can be used once."
            )
        self.classes_ = np.arange(Y.shape[1])
        learn = partial(_regressions, labels=known, often=logit(Y.mean(axis=0)), pooled=self.pooled)
        alone = learn([scores])
        expected = expit(_log_odds([scores], alone)).sum(axis=1)
        (self.slopes_, self.intercepts_), self.between_ = alone, np.array([expected.min(), expected.max()])
        self.among_ = learn(_among_others(scores, alone, self.between_))
        # If no label was ever seen, all are equally unlikely, and predicting them all would seem best.
        self.half_of_f1_ = _half_of_largest_f1(self._probabilities(scores)) if known.any() else 0.5
        self.estimator_ = clone(self.estimator).fit(X, Y)
        return self

    @property
    def threshold_(self) -> float:
        """The least probability at which labels apply."""
        check_is_fitted(self, "half_of_f1_")
        return 0.5 if one_of("aim", self.aim, AIMS) == "hamming" else self.half_of_f1_

    def _probabilities(self, scores: Array) -> Array:
        alone = np.stack([self.slopes_, self.intercepts_])
        return expit(_log_odds(_among_others(scores, alone, self.between_), self.among_))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each label, shape (n_samples, n_labels)."""
        X = passed_on(self, X, reset=False)
        return self._probabilities(_scores_of(self.estimator_, X, len(self.classes_)))

    def decision_function(self, X: Any) -> Array:
        """Return the probability of each label minus the threshold, shape (n_samples, n_labels)."""
        return self.predict_proba(X) - self.threshold_


def _scores_of(fitted: Any, X: Any, n_labels: int) -> Array:
    """Return an estimator's scores, checked, shape (n_samples, n_labels). Those of one label may be a row."""
    found = fitted.decision_function(X)
    column = np.reshape(found, (-1, 1)) if n_labels == 1 else found
    return numbers(f"decision_function of {type(fitted).__name__}", column, (_num_samples(X), n_labels))


def _among_others(scores: Array, alone: Array, between: Array) -> list[Array]:
    """Return the log-odds of each label alone, and the expected number of a sample's other labels.

    The number is clipped to the range in held-out samples: a common shift of many labels moves the sum far, and a
    slope learned on nearly equal sums would extrapolate arbitrarily.
    """
    odds = _log_odds([scores], alone)
    single = expit(odds)
    return [odds, np.clip(single.sum(axis=1, keepdims=True), *between) - single]


def _log_odds(features: Sequence[Array], weights: Array) -> Array:
    """Return sums of features, each of shape (n_samples, n_labels), with weights for each label. The last is of 1."""
    return sum((one * weight for one, weight in zip(features, weights[:-1], strict=True)), weights[-1])


def _regressions(features: Sequence[Array], labels: Array, often: Array, pooled: bool) -> Array:
    """Return weights of `_log_odds` by logistic regression, of each label or of all that vary together.

    The log-odds of a label's frequency is also a feature, which differs between labels alone.
    """
    varies = np.isfinite(often)
    often, alone = np.where(varies, often, 0.0), ~varies if pooled else np.ones_like(varies)
    weights: Array = np.empty((len(features) + 1, len(often)))
    for group in [[label] for label in np.flatnonzero(alone)] + [np.flatnonzero(~alone)] * (not alone.all()):
        columns = [np.broadcast_to(one, labels.shape)[:, group].ravel() for one in (*features, often)]
        *slopes, by_often, intercept = _regression(np.stack(columns, axis=-1), labels[:, group].ravel())
        weights[:-1, group] = np.reshape(slopes, (-1, 1))
        weights[-1, group] = by_often * often[group] + intercept
    return weights


def _regression(features: Array, labels: Array) -> Array:
    """Return the slopes of a logistic regression, 0 for constant features, and its intercept."""
    count, unit = int(labels.sum()), np.abs(features).max(axis=0)
    if count in (0, len(labels)):
        # As if each value had been observed half a time more.
        return np.append(0.0 * unit, np.log((count + 0.5) / (len(labels) - count + 0.5)))
    unit[unit == 0.0] = 1.0
    features = features / unit
    mean, size = features.mean(axis=0), features.std(axis=0)
    # The deviation of equal numbers is rounding.
    size[size < 1e-10] = np.inf
    features, slopes = (features - mean) / size, np.zeros(len(size))
    varied: Any = features.any(axis=0)
    varied[varied.argmax()] = True
    found = LogisticRegression().fit(features[:, varied], labels)
    slopes[varied] = found.coef_[0] / size[varied]
    return np.append(slopes / unit, found.intercept_[0] - slopes @ mean)


def _half_of_largest_f1(probabilities: Array) -> float:
    """Return half of the largest expected F1 of labels that apply above a threshold."""
    ordered = np.sort(probabilities, axis=None)[::-1]
    expected = 2.0 * np.cumsum(ordered) / (np.arange(1, len(ordered) + 1) + ordered.sum())
    return float(expected.max()) / 2.0
