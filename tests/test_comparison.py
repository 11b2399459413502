"""A comparison: its results by settings, the choice of parameters, and the numbers of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold

from problems.comparison import Comparison, Method, averaged, crossed, wins
from rmopt import InvalidInputError
from rmopt.core import DivergedError
from rmopt.experiments import Run


class Wild(BaseEstimator):
    """Diverges above 2, scores NaN at 2, and as well as any below."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def fit(self, X: Any, y: Any) -> Self:
        if self.value > 2:
            raise DivergedError("gone", 1)
        return self


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("test", 0, tmp_path, quiet=True)


def test_the_choice_is_that_of_grid_search(run: Run) -> None:
    X, y = load_digits(return_X_y=True)
    folds, grid = KFold(4, shuffle=True, random_state=0), crossed(alpha=[1e-2, 1.0, 1e2, 1e4, 1e6])
    scoring = {"worst": lambda model, X, y: -1.0, "r2": lambda model, X, y: model.score(X, y)}
    found = Comparison(run, None).search("ridge", Ridge(), grid, X, y, folds, scoring)
    expected = GridSearchCV(Ridge(), {"alpha": [one["alpha"] for one in grid]}, cv=folds).fit(X, y)
    assert found == (expected.best_params_, "r2")


def test_divergence_and_ties(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, folds = np.zeros((6, 1)), np.zeros(6), KFold(3)
    scoring = {
        "first": lambda model, X, y: np.nan if model.value == 2 else 1.0,
        "second": lambda model, X, y: 1.0,
    }
    comparison = Comparison(run, None)
    found = comparison.search("wild", Wild(), crossed(value=[3.0, 2.0, 0.5, 1.0]), X, y, folds, scoring)
    assert found == ({"value": 0.5}, "first")
    with pytest.raises(InvalidInputError, match=r"training diverged for every value of the grid \[.*3.0.*\]"):
        comparison.search("wild", Wild(), crossed(value=[3.0]), X, y, folds, scoring)
    with pytest.raises(TypeError, match="not supported"):
        # What is no divergence is not hidden.
        comparison.search("wild", Wild("a"), [{}], X, y, folds, scoring)  # type: ignore[arg-type]


def test_results_are_kept_by_their_settings(run: Run) -> None:
    calls = []

    def train(one: dict[str, Any]) -> dict[str, Any]:
        calls.append(one)
        return {"value": one["a"] * one["b"] + one["seed"]}

    settings = crossed(split=range(2), a=[1, 2], b=[3])
    found = Comparison(run, False, seed=5).results(settings, train, by=("a", "b"))
    assert found == {(1, 3): 2 * [{"value": 8}], (2, 3): 2 * [{"value": 11}]}
    assert calls == [one | {"seed": 5} for one in settings]
    again = Comparison(run, True, seed=5)
    assert again.results(settings, train, by=("a",)) == {1: found[1, 3], 2: found[2, 3]}
    assert len(calls) == 4
    Comparison(run, None, seed=5).cell(settings[0], train)
    assert len(calls) == 5


def test_rows_and_claims() -> None:
    found = [{"map": 0.5, "hit": 1.0, "seconds": 3.0}, {"map": 0.7, "hit": 0.0, "seconds": 1.0}]
    row = averaged(found, map="sem", hit=None)
    assert row == {"map": pytest.approx(0.6), "sem": pytest.approx(0.1), "hit": 0.5, "train_seconds": 2.0}
    lost = averaged([*found, {"map": None, "hit": None, "seconds": None}], map="sem", hit=None)
    assert lost == {"map": None, "sem": None, "hit": 0.5, "train_seconds": 2.0}
    assert [wins("c", gaps, "a and b").reproduced for gaps in ([1.0], [1.0, -1.0], [np.nan], [])] == [
        True, False, None, None,
    ]  # fmt: skip
    assert Method("ridge", Ridge(), crossed(alpha=[1.0])).made(alpha=2.0).alpha == 2.0
