"""Logistic regression of many labels with coefficients of low rank, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from problems.batches import run_batches, share_left_out
from problems.door import (
    admit,
    begin,
    check_labels,
    file_path,
    finite,
    kept_count,
    learn_labels,
    natural_size,
    seedable,
    seen,
    thread_count,
)
from problems.ranking.cost import indicators
from problems.ranking.logistic import LogisticLabels, first_step
from problems.ranking.measures import best_labels, mean_average_precision
from problems.saving import Saved
from rmopt.core.ambient import Array
from rmopt.core.arguments import Checked, bounded, check_parameters, flag, integer, number, optional
from rmopt.core.matrices import as_rows
from rmopt.solvers.threads import one_blas_thread

# Batches that small collections need, and the share of the words that is left out of a row.
LEAST_STEPS, WORDS = 200, 0.15


@dataclass(eq=False, repr=False)
class LowRankLogisticRegression(Checked, Saved, ClassifierMixin, BaseEstimator):
    """Logistic regression for examples with several labels out of many, with coefficients of low rank.

    The coefficients of all labels are a product of two thin matrices: labels that are rare learn from others, and a
    label costs `rank` numbers. Steps are AdaGrad's, on batches of rows; the start is the first Newton step from the
    labels' frequencies, along its leading directions.

    Parameters
    ----------
    rank : int
        Of the matrix of coefficients; no more are used than there are features, or labels.
    dropout : float or None
        The share of words that is left out of a row, anew each time; from 0 to below 1. None: 0.15 where fewer than a
        tenth of the entries of X are not zero, as with words, and otherwise 0.
    n_negatives : int or None
        Labels that a batch draws among those that none of its rows has; None: all of them, which costs more where
        there are more than some thousands.
    threshold : float
        The probability above which `predict` gives a label, between 0 and 1.
    batch_size : int
        Rows in a batch; fewer where there are not as many.
    n_epochs : int or None
        Passes over the rows. None: 10, or for few rows as many as make 200 batches.
    step_size : float
        Of AdaGrad, for rows of mean squared length 1, to which X is scaled; it falls to zero along a cosine.
    checkpoint : path or None
        Save the state there every half minute, and resume from it when the file exists.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    n_jobs : int or None
        Threads that learn one model, each with batches of its own; they meet at their mean, so the result depends on
        their number. None: one, -1: all cores.
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
    label_names_in_ : array, shape (n_labels,)
        The columns of Y, where it is a frame; `score` refuses frames with other columns, or in another order.
    n_iter_ : int
        Batches that each worker saw.

    See Also
    --------
    LoretaLabelRanker : an order of the labels without probabilities, from a stream as well.
    sklearn.multiclass.OneVsRestClassifier : a classifier of its own for each label, where all are frequent.

    References
    ----------
    Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR
    12 (2011), https://jmlr.org/papers/v12/duchi11a.html. Yu, Jain, Kar and Dhillon, Large-scale multi-label
    learning with missing labels, ICML (2014), arXiv:1307.5101, has the same model with a penalty on the factors
    in place of an early end.

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
    >>> model.top(X[300:302], 2).shape
    (2, 2)
    """

    rank: Annotated[int, kept_count] = 100
    _: KW_ONLY
    dropout: Annotated[float | None, optional(number, least=0, below=1)] = None
    n_negatives: Annotated[int | None, optional(integer, 1)] = None
    threshold: Annotated[float, bounded(number, above=0, below=1)] = 0.5
    batch_size: Annotated[int, kept_count] = 256
    n_epochs: Annotated[int | None, optional(kept_count)] = None
    step_size: Annotated[float, bounded(number, above=0)] = 0.03
    checkpoint: Annotated[Path | str | None, file_path] = None
    random_state: Annotated[Any, seedable] = None
    n_jobs: Annotated[int | None, optional(thread_count)] = None
    verbose: Annotated[bool, flag] = False

    _arrays: ClassVar = {
        "components_": (float, ("features", "k")),
        "label_components_": (float, ("labels", "k")),
        "intercept_": (float, ("labels",)),
    }
    _numbers: ClassVar = {**Saved._numbers, "n_iter_": integer}

    @one_blas_thread()
    def fit(self, X: Any, Y: Any) -> Self:
        """Learn from examples and their labels.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        Y : array or sparse matrix, shape (n_samples, n_labels)
            Indicators: 1 where a label is true, and 0 elsewhere.
        """
        seed = begin(self)
        X = as_rows(admit(self, X), "X")
        truth = indicators(Y, X.shape[0])
        learn_labels(self, Y)
        n, n_labels = X.shape[1], truth.shape[1]
        scale = np.sqrt(natural_size(X, 1.0, 1))
        X = X * scale
        rank = min(int(self.rank), n, n_labels)
        cost = LogisticLabels(X, truth, share_left_out(X, self.dropout, WORDS), self.n_negatives)
        result = run_batches(self, cost, first_step(X, truth, rank, seed), seed, LEAST_STEPS)
        A, B = np.split(result.point, [n])
        self.components_, self.label_components_ = scale * A[:, :-1], B[:, :-1].copy()
        self.intercept_, self.n_iter_ = B[:, -1].copy(), result.steps
        self._number_labels()
        return self

    def _number_labels(self) -> None:
        self.n_labels_ = len(self.intercept_)
        self.classes_ = np.arange(self.n_labels_)

    def _restore(self, arrays: dict[str, Array]) -> None:
        super()._restore(arrays)
        self._number_labels()

    def decision_function(self, X: Any) -> Array:
        """Return the log-odds of all labels, shape (n_samples, n_labels)."""
        X = seen(self, X, "components_")
        with np.errstate(all="ignore"):
            return finite(np.asarray(X @ self.components_) @ self.label_components_.T + self.intercept_)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each label, shape (n_samples, n_labels)."""
        return np.asarray(expit(self.decision_function(X)))

    def predict(self, X: Any) -> Array:
        """Return indicators of the labels that are more probable than the threshold, shape (n_samples, n_labels)."""
        check_parameters(self, self._parameters)
        return (self.predict_proba(X) > self.threshold).astype(int)

    def top(self, X: Any, k: int) -> Array:
        """Return the numbers of the k most probable labels of each row, the first one first, shape (n_samples, k)."""
        scores = self.decision_function(X)
        return best_labels(scores, integer("k", k, 1, scores.shape[1]))

    def score(self, X: Any, Y: Any) -> float:
        """Return the mean average precision (see `problems.ranking.mean_average_precision`)."""
        check_labels(self, Y)
        return mean_average_precision(self.decision_function(X), Y)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.target_tags.required = True
        tags.target_tags.multi_output = tags.classifier_tags.multi_label = True
        tags.target_tags.single_output = tags.classifier_tags.multi_class = False
        return tags
