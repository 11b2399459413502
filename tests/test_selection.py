"""Cross-validation of one parameter."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold

from problems.selection import select
from rmopt import InvalidInputError
from rmopt.core import DivergedError

FOLDS = [(np.arange(4), np.arange(4, 6)), (np.arange(2, 6), np.arange(2))]


def test_the_choice_is_that_of_grid_search() -> None:
    X, y = load_digits(return_X_y=True)
    folds = list(KFold(4, shuffle=True, random_state=0).split(X))
    grid = [1e-2, 1.0, 1e2, 1e4, 1e6]

    def score(value: float, train: np.ndarray, test: np.ndarray) -> float:
        return Ridge(value).fit(X[train], y[train]).score(X[test], y[test])

    found = select(grid, folds, score)
    expected = GridSearchCV(Ridge(), {"alpha": grid}, cv=folds).fit(X, y)
    assert found.best == expected.best_params_["alpha"]
    means = [row["mean"] for row in found.rows()]
    np.testing.assert_allclose(means, expected.cv_results_["mean_test_score"])
    sem = expected.cv_results_["std_test_score"] * np.sqrt(4 / 3) / 2
    np.testing.assert_allclose([row["sem"] for row in found.rows()], sem)


def test_divergence_and_ties() -> None:
    ticks = []

    def score(value: float, train: np.ndarray, test: np.ndarray) -> float:
        if value > 2:
            raise DivergedError("gone", 1)
        return np.nan if value == 2 else 1.0

    found = select([1.0, 0.5, 2.0, 3.0], FOLDS, score, n_jobs=2, tick=lambda: ticks.append(1))
    assert found.best == 0.5
    assert [row["mean"] for row in found.rows()] == [1.0, 1.0, None, None]
    assert len(ticks) == 8
    with pytest.raises(InvalidInputError, match=r"training diverged for every value of the grid \[3.0\]"):
        select([3.0], FOLDS, score)
    with pytest.raises(InvalidInputError, match=r"must be finite numbers, at least one; got \[\]"):
        select([], FOLDS, score)
    with pytest.raises(InvalidInputError, match="needs at least 2 folds, got 1"):
        select([1.0], FOLDS[:1], score)
