"""Methods as users write them, right and wrong, that the experiments are to compare beside their own."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge, RidgeClassifier

from problems.methods import Method
from rmopt.core import DivergedError

HERE = __name__


class ClassScores(BaseEstimator):
    """In closed form, so that rounding stays rounding."""

    def fit(self, X: Any, y: Any) -> Self:
        self.model_ = RidgeClassifier().fit(X, y)
        return self

    def transform(self, X: Any) -> Any:
        return self.model_.decision_function(X)


class LeastSquares(BaseEstimator):
    """Of several labels."""

    def fit(self, X: Any, Y: Any) -> Self:
        Y = Y.toarray() if hasattr(Y, "toarray") else Y
        self.coef_ = np.linalg.lstsq(X, Y.astype(float), rcond=None)[0]
        return self

    def decision_function(self, X: Any) -> Any:
        return X @ self.coef_

    def predict(self, X: Any) -> Any:
        return (X @ self.coef_ > 0.5).astype(int)


class ShrunkenMean(BaseEstimator):
    """Of ratings."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def fit(self, pairs: Any, values: Any) -> Self:
        assert pairs.shape == (len(values), 2)
        self.mean_ = self.share * values.mean()
        return self

    def predict(self, pairs: Any) -> Any:
        return np.full(len(pairs), self.mean_)


class RandomMean(ShrunkenMean):
    """Not a good one: what it predicts is the rank and the seed that it was given."""

    def __init__(self, rank: int = 1, random_state: int = 99) -> None:
        self.rank, self.random_state = rank, random_state

    def fit(self, pairs: Any, values: Any) -> Self:
        self.mean_ = self.rank + 0.1 * self.random_state
        return self


class OwnTasks(BaseEstimator):
    """A regression for each task."""

    def fit(self, X: Any, y: Any, tasks: Any) -> Self:
        self.models_ = {task: Ridge().fit(X[tasks == task], y[tasks == task]) for task in np.unique(tasks)}
        return self

    def predict(self, X: Any, tasks: Any) -> Any:
        return np.array(
            [self.models_[task].predict(row[None])[0] for row, task in zip(X, tasks, strict=True)]
        )


class PopularTags(BaseEstimator):
    def fit(self, pairs: Any, tags: Any) -> Self:
        names, counts = np.unique(tags, return_counts=True)
        self.best_ = names[np.argsort(-counts, kind="stable")]
        return self

    def predict(self, pairs: Any) -> Any:
        return np.tile(self.best_, (len(pairs), 1))


def changed(kind: type, name: str, change: Any) -> type:
    """Return a class one of whose methods gives what a function makes of it."""
    method = getattr(kind, name)

    def wrong(self: Any, *arguments: Any) -> Any:
        return change(method(self, *arguments))

    return type(kind.__name__, (kind,), {name: wrong})


def too_few(found: Any) -> Any:
    return found[::2]


def not_numbers(found: Any) -> Any:
    return np.full(found.shape, np.nan)


class NeedsArguments(ClassScores):
    def __init__(self, C: float) -> None:
        self.C = C


class NoEstimator:
    def fit(self, X: Any, y: Any) -> Self:
        return self


class Diverges(ClassScores):
    def fit(self, *data: Any) -> Self:
        raise DivergedError("it left the numbers at step 3", 3)


class Fails(ClassScores):
    def fit(self, X: Any, y: Any) -> Self:
        raise ZeroDivisionError("a mistake of mine")


class Asymmetric(ClassScores):
    """What documents are to queries, and not the other way round; the same as ClassScores here."""

    def transform_queries(self, X: Any) -> Any:
        return 2.0 * self.transform(X)


class InPlace(ClassScores):
    """Computes in the arrays that it is given."""

    def fit(self, X: Any, y: Any) -> Self:
        super().fit(X, y)
        X *= 0.0
        y[:] = 0
        return self

    def transform(self, X: Any) -> Any:
        found = super().transform(X)
        X *= 0.0
        return found


class Narrow(ClassScores):
    """Quantised to bytes."""

    def transform(self, X: Any) -> Any:
        return np.clip(100.0 * super().transform(X), -127, 127).astype(np.int8)


class NoSelf(ClassScores):
    """Its `fit` returns nothing."""

    def __init__(self, alpha: float = 0.1) -> None:
        self.alpha = alpha

    def fit(self, X: Any, y: Any) -> None:  # type: ignore[override]
        self.model_ = RidgeClassifier(alpha=self.alpha).fit(X, y)


no_self = Method("no self", NoSelf(), [{"alpha": 0.1}, {"alpha": 1e6}])
shares = Method("shrunken mean", ShrunkenMean(), [{"share": share} for share in (0.0, 1.0, 2.0)])
taken = Method("cosine", ClassScores())
number = 7
