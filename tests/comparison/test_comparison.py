"""A comparison: its results by settings and seeds, the choice of parameters, and the numbers of its rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pytest
from cells_kept import cells_in
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from problems import options
from problems.comparison import Comparison, Difference, Experiment, Row, above, averaged, crossed, searched
from problems.data import ClassBundle
from problems.methods import Cell, Method, Settings
from rmopt import InvalidInputError
from rmopt.cli.run import OutputFolder, keep_and_show
from rmopt.core import DivergedError
from rmopt.experiments import Claim, Outcome, Run


class Wild(BaseEstimator):
    """Diverges above 2, scores NaN at 2, and as well as any below."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def fit(self, X: Any, y: Any) -> Self:
        if self.value > 2:
            raise DivergedError("gone", 1)
        return self


def choice(
    run: Run, model: Any, grid: Sequence[Settings], folds: Any, X: Any, y: Any, score: Any
) -> Settings:
    def scored(point: Settings, fold: Any) -> float:
        train, test = fold
        return score(clone(model).set_params(**point).fit(X[train], y[train]), X[test], y[test])

    return searched(run, "m", grid, scored, list(folds.split(X, y)))


def test_the_choice_is_that_of_grid_search(run: Run) -> None:
    X, y = load_digits(return_X_y=True)
    folds, grid = KFold(4, shuffle=True, random_state=0), crossed(alpha=[1e-2, 1.0, 1e2, 1e4, 1e6])
    found = choice(run, Ridge(), grid, folds, X, y, lambda model, X, y: model.score(X, y))
    expected = GridSearchCV(Ridge(), {"alpha": [one["alpha"] for one in grid]}, cv=folds).fit(X, y)
    assert found == expected.best_params_


def test_divergence_and_ties(run: Run) -> None:
    def found(values: Any) -> Settings:
        X, y = np.zeros((6, 1)), np.zeros(6)
        scoring = lambda model, X, y: np.nan if model.value == 2 else 1.0  # noqa: E731
        return choice(run, Wild(), crossed(value=values), KFold(3), X, y, scoring)

    assert found([3.0, 2.0, 0.5, 1.0]) == {"value": 0.5}
    with pytest.raises(InvalidInputError, match=r"training diverged for every value of the grid \[.*3.0.*\]"):
        found([3.0])
    with pytest.raises(TypeError, match="not supported"):
        # What is no divergence is not hidden.
        found(["a"])


def test_results_are_kept_by_their_settings(tmp_path: Path) -> None:
    run, calls = Run("test", 5, tmp_path, quiet=True), []

    def train(one: dict[str, Any]) -> dict[str, Any]:
        calls.append(one)
        return {"value": one["a"] * one["b"] + one["seed"]}

    def values(seeds: int, *, resume: bool | None = True, **about: Any) -> list[int]:
        comparison = Comparison(run, resume, seeds=seeds, **about)
        settings = [{"a": a, "b": 3, "seed": seed} for seed in comparison.seeds for a in (1, 2)]
        return [cell["value"] for cell in comparison.results(settings, train)]

    assert values(2, resume=False, data="d") == [8, 11, 9, 12]
    about = {"data": "d", "rmopt": version("rmopt"), "b": 3}
    assert calls == [about | {"a": a, "seed": seed} for seed in (5, 6) for a in (1, 2)]
    assert values(2, data="d") == [8, 11, 9, 12]
    assert len(calls) == 4
    # More seeds than before: the new ones alone.
    assert values(3, data="d") == [8, 11, 9, 12, 10, 13]
    assert [one["seed"] for one in calls[4:]] == [7, 7]
    # Other data are another result, and without a folder nothing is known.
    values(1, data="e"), values(1, resume=None, data="d")
    assert len(calls) == 10


def test_what_is_done_is_kept_though_an_earlier_one_fails(tmp_path: Path) -> None:
    run = Run("test", 0, tmp_path, quiet=True)

    def train(one: dict[str, Any]) -> dict[str, Any]:
        if one["a"]:
            return {"value": one["a"]}
        until = monotonic() + 10.0
        while len(cells_in(tmp_path)) < 2 and monotonic() < until:
            sleep(0.01)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Comparison(run, False, n_jobs=2).results(crossed(a=range(3), seed=[0]), train)
    assert [cell["settings"]["a"] for cell in cells_in(tmp_path)] == [1, 2]


@dataclass(kw_only=True)
class Chosen(Experiment):
    """Chooses ten times the seed, and measures what it is given."""

    data: Annotated[options.Data, ClassBundle] = "digits"
    methods: str = "ridge,plain"
    name: ClassVar = "test"
    known: ClassVar = {
        "ridge": Method("Ridge", Ridge(), crossed(alpha=[1.0, 40.0])),
        "plain": Method("P", Lasso()),
    }
    measured_by: ClassVar = ("predict",)

    def check(self) -> None:
        self.asked: list[int] = []

    def settings(self) -> Iterable[Settings]:
        return [{"method": name, "code": kind.code} for name, kind in self.chosen.items()]

    def choose(self, one: Settings) -> Cell:
        self.asked.append(one["seed"])
        return {"parameters": {"alpha": 10.0 * one["seed"]}}

    def measured(self, one: Settings) -> Cell:
        return {"value": one["parameters"].get("alpha", 0.0), "seconds": 1.0}

    def row(self, row: Row) -> Cell:
        return {"values": [cell["value"] for cell in row.cells]}  # type: ignore[dict-item]

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        return []

    def draw(self, rows: Sequence[Row]) -> None:
        pass


@pytest.mark.parametrize(
    ("select", "seeds", "values"),
    [
        ("none", [], [1.0, 1.0, 1.0]),
        ("first", [4], [40.0, 40.0, 40.0]),
        ("each", [4, 5, 6], [40.0, 50.0, 60.0]),
    ],
)
def test_parameters_are_chosen_never_once_or_for_each_seed(
    select: Any, seeds: list[int], values: list[float], tmp_path: Path
) -> None:
    experiment = Chosen(select=select, seeds=3)
    outcome = experiment(Run("test", 4, tmp_path, quiet=True))
    assert experiment.asked == seeds
    assert [row["values"] for row in outcome.rows] == [values, [0.0] * 3]
    assert outcome.parameters["used"]["Ridge"] == [{"alpha": value} for value in values]
    each = " or ".join(dict.fromkeys(f"{value:g}" for value in values))
    assert outcome.notes == [f"Parameters: Ridge: alpha = {each}."]


@pytest.mark.parametrize(
    ("grid", "most", "chosen"),
    [
        ([0.1, 1.0, 10.0], np.inf, 100.0),
        ([10_000, 2000, 5000], np.inf, 320),
        # Two are no grid that an edge says anything about.
        ([0.1, 1.0], np.inf, 1.0),
        # There is nothing past 50, and a grid does not grow for ever.
        ([0.1, 1.0, 10.0], 50.0, 10.0),
        ([1e-5, 1e-4, 1e-3], np.inf, 10.0),
    ],
)
def test_a_grid_grows_where_its_edge_is_best(
    grid: Any, most: float, chosen: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def peaked(point: Settings, fold: int) -> float:
        if point["value"] > most:
            raise ValueError
        return -abs(np.log(point["value"] / 300))

    found = searched(Run("test", 0, tmp_path), "m", crossed(value=grid), peaked, [0])
    assert found == {"value": chosen}
    assert type(found["value"]) is type(grid[0])
    said = "m: value = 10 is the best, at the edge of its grid, which" * (chosen == 10.0)
    assert capsys.readouterr().out.startswith(said)


def test_numbers_at_two_edges_grow_alone_and_together(run: Run) -> None:
    grid = [{"a": 1.0, "b": 1.0, "c": 3}, {"a": 2.0, "b": 3.0, "c": 2}, {"a": 4.0, "b": 9.0, "c": 1}]
    asked = []

    def score(point: Settings, fold: int) -> float:
        asked.append(point)
        return point["a"] if point in grid else 0.0

    # No count is below 1.
    past = [{"a": 8.0, "b": 9.0, "c": 1}, {"a": 4.0, "b": 27.0, "c": 1}, {"a": 8.0, "b": 27.0, "c": 1}]
    assert searched(run, "m", grid, score, [0]) == grid[2]
    assert asked == grid + past
    # Where another one is as good, there is nothing past the edge.
    assert searched(run, "m", grid, lambda point, fold: float(point["a"] > 1.0), [0]) == grid[1]


def test_rows() -> None:
    found = [{"map": 0.5, "hit": 1.0, "seconds": 3.0}, {"map": 0.7, "hit": 0.0, "seconds": 1.0}]
    row = averaged(found, map="sem", hit=None)
    assert row == {"map": pytest.approx(0.6), "sem": pytest.approx(0.1), "hit": 0.5, "train_seconds": 2.0}
    lost = averaged([*found, {"map": None, "hit": None, "seconds": None}], map="sem", hit=None)
    assert lost == {"map": None, "sem": None, "hit": None, "train_seconds": 2.0}
    assert "sem" not in averaged(found[:1], map="sem")
    assert Method("ridge", Ridge(), crossed(alpha=[1.0])).made(alpha=2.0).alpha == 2.0


def gap(*values: float | None) -> Difference:
    """Return the difference of two models whose measures differ by these values."""
    ours = [{"map": None if value is None else 0.5 + value} for value in values]
    return Difference.of(ours, [{"map": 0.5}] * len(values), "map")


def test_claims_say_what_is_sure() -> None:
    def verdict(**gaps: Difference) -> bool | None:
        return above("c", gaps, "a and b").reproduced

    sure, open_, lost = gap(0.10, 0.11, 0.12), gap(-0.1, 0.1, 0.2), gap(0.1, None, 0.1)
    assert verdict(a=sure) is True
    assert verdict(a=sure, b=open_) is None
    assert verdict(a=sure, b=open_, c=gap(-0.10, -0.11, -0.12)) is False
    assert verdict(a=sure, b=lost) is None
    assert above("c", {"a": lost}, "").numbers == "a model diverged"
    assert above("c", {}, "a and b").numbers == "needs a and b"
    # One seed has no standard error; the sign alone counts, and the claim says so.
    assert above("c", {"": gap(0.1)}, "").numbers == "above, +0.100; one seed: try --seeds 5"
    assert verdict(a=gap(-0.1)) is False

    def close(one: Difference, most: float) -> bool | None:
        return above("c", {"": one}, "others", most).reproduced

    assert close(gap(-0.02, -0.021, -0.022), 0.03) is True
    assert close(gap(-0.05, -0.051, -0.052), 0.03) is False
    assert close(gap(-0.04, -0.02, -0.03), 0.03) is None
    assert close(sure, 0.0) is True
    assert close(lost, 1.0) is None
    assert above("c", {"": gap(0.1, 0.1)}, "", 0.5, "n").numbers == "n; above, +0.100 ± 0.000"


def test_a_run_without_resume_sets_earlier_results_aside(tmp_path: Path, capsys: Any) -> None:
    run = Run("mine", 0, tmp_path)
    comparison = Comparison(run, False)
    comparison.cell({"method": "a"}, lambda settings: {"map": 1.0})
    for name in ("cells.before", "cells.before-2"):
        Comparison(run, False).cell({"method": "a"}, lambda settings: {"map": 1.0})
        assert len(list((tmp_path / name).glob("**/output.pkl"))) == 2
        assert f"set aside as {name}; to continue with them" in " ".join(capsys.readouterr().out.split())
    assert Comparison(run, True).cell({"method": "a"}, lambda settings: {}) == {"map": 1.0}
    (tmp_path / "result.json").write_text('{"theirs": 1}')
    keep_and_show(run, Outcome("digits", {}, [{"map": 1.0}]), OutputFolder(tmp_path, "mine"))
    assert (tmp_path / "result.json.before").read_text() == '{"theirs": 1}'
    assert "result.json of another experiment is set aside" in capsys.readouterr().out


def test_steps_of_a_pipeline_get_the_seed() -> None:
    method = Method("steps", make_pipeline(PCA(), PCA(random_state=7)))
    made = method.made({}, random_state=3)
    assert (made[0].random_state, made[1].random_state) == (3, 7)


def test_folds_that_are_too_many_are_refused_in_a_sentence(rmopt_run: Any) -> None:
    said = rmopt_run(
        "metric", "--data", "digits", "--folds", "5000", "--select", "first", "--seeds", "1",
        "--methods", "lego", "--passes", "0.1", code=2,
    ).stderr  # fmt: skip
    assert "cannot be dealt into folds" in " ".join(said.split())
