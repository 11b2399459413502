"""Methods of one's own in every experiment: right ones measured by hand, wrong ones refused, alike on all cores."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import EntryPoint, EntryPoints, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import own_methods
import pytest
from cells_kept import cells_in
from joblib import parallel_config
from own_methods import HERE, ClassScores, LeastSquares, OwnTasks, PopularTags, ShrunkenMean
from scipy import stats
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    hamming_loss,
    label_ranking_average_precision_score,
)
from tabled import each_row

import problems.methods
from problems.coembedding.experiment import Coembedding, Tagging
from problems.comparison import Difference
from problems.data import ClassBundle, MultilabelBundle, Ratings, TagBundle, TaskBundle, load
from problems.methods import chosen_methods
from problems.metric import experiment as metric_methods
from problems.metric.experiment import Metric
from problems.ranking import experiment as ranking_methods
from problems.ranking.experiment import Ranking
from problems.similarity import experiment as similarity_methods
from problems.similarity.experiment import METHODS, Similarity
from problems.subspace.experiment import METHODS as COMPLETION_METHODS
from problems.subspace.experiment import Completion, Multitask
from rmopt import InvalidInputError
from rmopt.experiments import Run

Command = Callable[..., SimpleNamespace]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small data of every kind, as users have them."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    digits, labels = load("digits"), load("digits-labels")
    np.savez(folder / "classes.npz", X=digits.X[:150], y=digits.y[:150])
    np.savez(folder / "labels.npz", X=labels.X[:150], Y=labels.Y[:150].toarray())
    taste, film = rng.standard_normal((20, 2)), rng.standard_normal((2, 15))
    stars = 5.0 + taste @ film
    known = [f"{u},{i},{stars[u, i]:.3f}" for u in range(20) for i in range(15) if rng.random() < 0.8]
    (folder / "ratings.csv").write_text("\n".join(["user,item,rating", *known]) + "\n")
    X, task = rng.standard_normal((60, 4)), np.repeat(np.arange(4), 15)
    np.savez(folder / "tasks.npz", X=X, task=task, y=X[:, 0] + task + 0.1 * rng.standard_normal(60))
    triples = {(u, i, (u * i + k) % 9 % (5 + u % 4)) for u in range(8) for i in range(9) for k in range(3)}
    (folder / "tags.csv").write_text(
        "\n".join(["user,item,tag", *(f"{u},{i},{t}" for u, i, t in sorted(triples))])
    )
    return folder


# An experiment, its smallest useful options, and which of `own_methods` it takes.
EXPERIMENTS: dict[str, tuple[Callable[..., Any], dict[str, Any], type]] = {
    "similarity": (
        lambda run, **options: Similarity(**options)(run),
        {"data": "classes.npz", "methods": "cosine,loreta", "triplets": 300, "rank": "4", "select": "none"},
        ClassScores,
    ),
    "ranking": (
        lambda run, **options: Ranking(**options)(run),
        {
            "data": "labels.npz", "methods": "frequency,loreta", "rank": "2", "epochs": 1, "inits": "identity",
            "select": "none",
        },
        LeastSquares,
    ),
    "metric": (
        lambda run, **options: Metric(**options)(run),
        {"data": "classes.npz", "methods": "euclidean,comet", "passes": 1.0, "triplets": 100},
        ClassScores,
    ),
    "completion": (
        lambda run, **options: Completion(**options)(run),
        {"data": "ratings.csv", "methods": "stochastic,rtrmc", "rank": "2", "agents": "2", "updates": 3.0},
        ShrunkenMean,
    ),
    "multitask": (
        lambda run, **options: Multitask(**options)(run),
        {"data": "tasks.npz", "methods": "stochastic,alt-min", "rank": "2", "agents": 2, "updates": 3.0},
        OwnTasks,
    ),
    "coembedding": (
        lambda run, **options: Coembedding(**options)(run),
        {"data": "labels.npz", "rows": 90, "methods": "ila", "folds": 2, "betas": "1"},
        LeastSquares,
    ),
    "tagging": (
        lambda run, **options: Tagging(**options)(run),
        {"data": "tags.csv", "methods": "ila,pitf", "betas": "30", "rank": 2},
        PopularTags,
    ),
}  # fmt: skip
# How the table calls what is best about a method.
MEASURED = {
    "similarity": "map", "ranking": "map", "metric": "precision_at_1", "completion": "test_rmse", "multitask": "nmse",
    "coembedding": "micro_f1", "tagging": "f1",
}  # fmt: skip


class Undrawn(Run):
    """A run without pictures, which take most of the time of small ones."""

    def draw(self, name: str, *_: Any, **__: Any) -> Path:
        return self.path(name)


@pytest.fixture
def call(tmp_path: Path, data: Path) -> Callable[..., Any]:
    """Run an experiment with a method of one's own beside others."""

    def call(name: str, own: str | None = None, drawn: bool = False, **more: Any) -> Any:
        function, options, kind = EXPERIMENTS[name]
        run = (Run if drawn else Undrawn)(name, 0, tmp_path, quiet=True)
        given = {"seeds": 2, "method": [own or f"{HERE}:{kind.__name__}"], **options, **more}
        return function(run, **given | {"data": str(data / given["data"])})

    return call


def mean_precision(scores: Any, labels: Any) -> float:
    found = []
    for number, row in enumerate(scores):
        others = np.arange(len(labels)) != number
        if (labels[others] == labels[number]).any():
            found.append(average_precision_score(labels[others] == labels[number], row[others]))
    return float(np.mean(found))


def unit_rows(part: Any) -> Any:
    return part.X / np.linalg.norm(part.X, axis=1, keepdims=True)


def similarity_by_hand(model: Any, seed: int, file: Path) -> float:
    part = load(file, None, ClassBundle).resplit(seed)
    X, y = unit_rows(part), part.y
    rows = model.fit(X[part.train], y[part.train]).transform(X[part.test])
    return mean_precision(rows @ rows.T, y[part.test])


def ranking_by_hand(model: Any, seed: int, file: Path) -> float:
    part = load(file, None, MultilabelBundle).resplit(seed).scaled()
    scores = model.fit(part.X[part.train], part.Y[part.train]).decision_function(part.X[part.test])
    return float(label_ranking_average_precision_score(part.Y[part.test].toarray(), scores))


def distances(rows: Any) -> Any:
    return ((rows[:, None] - rows[None]) ** 2).sum(axis=2)


def metric_by_hand(model: Any, seed: int, file: Path) -> float:
    part = load(file, None, ClassBundle).resplit(seed, 0.2)
    X, labels = unit_rows(part), part.y[part.test]
    rows = model.fit(X[part.train], part.y[part.train]).transform(X[part.test])
    nearest = (distances(rows) + np.diag(np.full(len(rows), np.inf))).argmin(axis=1)
    there = [number for number, label in enumerate(labels) if (labels == label).sum() > 1]
    return float((labels[nearest] == labels)[there].mean())


def completion_by_hand(model: Any, seed: int, file: Path) -> float:
    bundle = load(file, None, Ratings)
    out = bundle.held_out(seed, 0.2)
    pairs = np.column_stack([bundle.rows, bundle.columns])
    found = model.fit(pairs[~out], bundle.values[~out]).predict(pairs[out])
    return float(np.sqrt(np.mean((found - bundle.values[out]) ** 2)))


def multitask_by_hand(model: Any, seed: int, file: Path) -> float:
    bundle = load(file, None, TaskBundle)
    X, y, task, out = bundle.X, bundle.y, bundle.task, bundle.held_out(seed)
    missed = (model.fit(X[~out], y[~out], task[~out]).predict(X[out], task[out]) - y[out]) ** 2
    return float(np.mean([missed[task[out] == one].mean() / y[task == one].var() for one in range(4)]))


def coembedding_by_hand(model: Any, seed: int, file: Path) -> float:
    part = load(file, None, MultilabelBundle).with_training_rows(90, seed)
    Y = part.Y.toarray().astype(int)
    found = model.fit(part.X[part.train], Y[part.train]).predict(part.X[part.test])
    assert 0 < hamming_loss(Y[part.test], found) < 0.5
    return float(100 * f1_score(Y[part.test], found, average="micro"))


def tagging_by_hand(model: Any, seed: int, file: Path) -> float:
    bundle = load(file, None, TagBundle)
    out = bundle.held_out(seed)
    seen, held = bundle.triples[~out], bundle.triples[out]
    best = set(model.fit(seen[:, :2], seen[:, 2]).predict(held[:1, :2])[0, :5].tolist())
    posts: dict[Any, set[int]] = {}
    for user, item, tag in held.tolist():
        posts.setdefault((user, item), set()).add(tag)
    hits = {post: len(best & tags) for post, tags in posts.items()}
    precision, recall = (
        np.mean([*hits.values()]) / 5,
        np.mean([hits[post] / len(posts[post]) for post in posts]),
    )
    return float(2 * precision * recall / (precision + recall))


def by_hand(name: str, model: Any, data: Path) -> float:
    """Return the mean over the seeds 0 and 1 of what a method measures, on the splits of the data set alone."""
    measure, file = globals()[f"{name}_by_hand"], data / EXPERIMENTS[name][1]["data"]
    return float(np.mean([measure(model, seed, file) for seed in (0, 1)]))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_right_one_is_measured_as_by_hand(name: str, call: Callable[..., Any], data: Path) -> None:
    outcome, kind = call(name, drawn=True), EXPERIMENTS[name][2]
    row = next(row for row in outcome.rows if row["method"] == kind.__name__)
    assert row[MEASURED[name]] == pytest.approx(by_hand(name, kind(), data), rel=1e-9)
    # The experiment's own method is held against it.
    assert any(kind.__name__ in claim.claim + claim.numbers for claim in outcome.claims)
    # It has no rank, and is trained once for all.
    assert row.get("rank") is None


def test_queries_may_have_embeddings_of_their_own(call: Callable[..., Any]) -> None:
    own = [f"{HERE}:ClassScores", f"{HERE}:Asymmetric"]
    found = {row["method"]: row["map"] for row in call("similarity", seeds=1, method=own).rows}
    assert found["Asymmetric"] == pytest.approx(found["ClassScores"], rel=1e-9)


def test_methods_that_compute_in_place_in_bytes_or_return_nothing(
    call: Callable[..., Any], data: Path
) -> None:
    own = [f"{HERE}:{name}" for name in ("InPlace", "ClassScores", "Narrow")]
    found = {row["method"]: row["map"] for row in call("similarity", seeds=1, method=own).rows}
    assert found["InPlace"] == found["ClassScores"]
    part = load(data / "classes.npz", None, ClassBundle).resplit(0)
    X = unit_rows(part)
    Z = own_methods.Narrow().fit(X[part.train], part.y[part.train]).transform(X[part.test]).astype(float)
    assert found["Narrow"] == pytest.approx(mean_precision(Z @ Z.T, part.y[part.test]), rel=1e-9)
    chosen = call("similarity", f"{HERE}:no_self", methods="cosine", select="first", folds=2)
    assert chosen.parameters["used"]["no self"] == [{"alpha": 0.1}] * 2


def test_constant_labels_of_forests_are_certain() -> None:
    X, Y = np.arange(8.0)[:, None], np.column_stack([np.ones(8), np.zeros(8), np.arange(8) > 3])
    model = RandomForestClassifier(5, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(ranking_methods.scores_of(model, X)[:, :2], [[1.0, 0.0]] * 8)


def test_a_variant_twice_is_one(call: Callable[..., Any]) -> None:
    found = call("similarity", methods="cosine,loreta", compare="engine=reference,reference")
    assert [row["method"] for row in found.rows][:2] == ["cosine", "LORETA-1, reference (Python)"]


def test_few_labels_are_ranked(call: Callable[..., Any], tmp_path: Path) -> None:
    labels = load("digits-labels")
    np.savez(tmp_path / "few.npz", X=labels.X[:150], Y=labels.Y[:150, :3].toarray())
    row = call("ranking", data=tmp_path / "few.npz", methods="frequency", rank="2").rows[0]
    assert row["ndcg_at_5"] is None
    assert row["precision_at_3"] <= 1.0


def test_ranks_and_seeds_are_given_to_those_that_have_them(call: Callable[..., Any], data: Path) -> None:
    outcome = call("completion", f"{HERE}:RandomMean", methods="rtrmc", rank="2,3")
    bundle = load(data / "ratings.csv", None, Ratings)
    found = {row["rank"]: row["test_rmse"] for row in outcome.rows if row["method"] == "RandomMean"}
    low, high = bundle.limits
    for rank in (2, 3):
        errors = []
        for seed in (0, 1):
            given = np.clip(rank + 0.1 * seed, low, high)
            errors.append(np.sqrt(np.mean((bundle.values[bundle.held_out(seed, 0.2)] - given) ** 2)))
        assert found[rank] == pytest.approx(np.mean(errors), rel=1e-9)


def test_a_grid_is_chosen_from(call: Callable[..., Any]) -> None:
    chosen = call("completion", f"{HERE}:shares", methods="rtrmc", select="each", folds=2)
    plain = call("completion", f"{HERE}:ShrunkenMean", methods="rtrmc")
    # The mean itself is best for ratings around five, and better than none or twice of it.
    assert chosen.parameters["used"]["shrunken mean"] == [{"share": 1.0}] * 2
    rows = [next(row for row in one.rows if "ean" in row["method"]) for one in (chosen, plain)]
    assert rows[0]["test_rmse"] == rows[1]["test_rmse"]
    # No claim of the paper names it.
    assert plain.notes[-1].startswith("ShrunkenMean less RTRMC (batch), test_rmse: ")


WRONG: list[tuple[str, str, str]] = [
    ("similarity", "no_such_module:X", "ModuleNotFoundError"),
    ("similarity", "no/such/file.py:X", "FileNotFoundError"),
    ("similarity", "ClassScores", "must be MODULE:NAME"),
    ("similarity", f"{HERE}:NoEstimator", "sklearn.base.BaseEstimator"),
    ("similarity", f"{HERE}:number", "is 7"),
    ("similarity", f"{HERE}:NeedsArguments", "missing 1 required"),
    ("similarity", f"{HERE}:LeastSquares", "without scores and transform"),
    ("tagging", f"{HERE}:ClassScores", "without predict"),
    ("similarity", f"{HERE}:taken", "'cosine' already"),
]


@each_row(("name", "own", "sentence"), WRONG)
def test_what_cannot_take_part_is_refused_before_the_work(
    name: str, own: str, sentence: str, call: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        call(name, own)
    assert sentence in str(refused.value)
    assert own in str(refused.value)
    assert not (tmp_path / "cells").exists()


RETURNED = {
    "similarity": "transform", "ranking": "decision_function", "metric": "transform", "completion": "predict",
    "multitask": "predict", "coembedding": "predict", "tagging": "predict",
}  # fmt: skip


@each_row(
    ("name", "change"),
    [(name, change) for name in EXPERIMENTS for change in (own_methods.too_few, own_methods.not_numbers)],
)
def test_wrong_returns_are_refused_with_the_name(
    name: str, change: Any, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = own_methods.changed(EXPERIMENTS[name][2], RETURNED[name], change)
    monkeypatch.setattr(own_methods, "Wrong", wrong, raising=False)
    with pytest.raises(InvalidInputError) as refused:
        call(name, f"{HERE}:Wrong")
    assert str(refused.value).startswith(f"{HERE}:Wrong, seed 0: ")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_diverges_loses(name: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    diverges = type("Diverges", (EXPERIMENTS[name][2],), {"fit": own_methods.Diverges.fit})
    monkeypatch.setattr(own_methods, "Diverges", diverges)
    outcome = call(name, f"{HERE}:Diverges", drawn=name in ("ranking", "coembedding"))
    assert next(row for row in outcome.rows if row["method"] == "Diverges")[MEASURED[name]] is None
    found = [claim for claim in outcome.claims if "Diverges" in claim.claim]
    assert all((claim.reproduced, claim.numbers) == (None, "a model diverged") for claim in found)
    assert found or name == "coembedding"


def test_what_fails_fails(call: Callable[..., Any]) -> None:
    # A mistake in somebody's code is shown with its traceback.
    with pytest.raises(ZeroDivisionError, match="a mistake of mine"):
        call("similarity", f"{HERE}:Fails")


def test_registered_ones_are_called_by_name(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def registered(*names: str) -> None:
        found = EntryPoints(EntryPoint(name, f"{HERE}:ClassScores", "rmopt.methods") for name in names)
        monkeypatch.setattr(problems.methods, "entry_points", lambda group: found.select(group=group))

    registered("similarity.class-scores", "ranking.other")
    rows = call("similarity", seeds=1, method=[], methods="class-scores,cosine").rows
    assert [row["method"] for row in rows] == ["class-scores", "cosine"]
    with pytest.raises(InvalidInputError, match="other is not known; choose from class-scores, cosine"):
        chosen_methods(METHODS, "other", None, "similarity", ("transform",))


def test_from_the_command_line_with_a_file_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rmopt_run: Command, data: Path
) -> None:
    import json as before

    monkeypatch.chdir(tmp_path)
    # A file may be called as a module that everybody needs.
    Path("json.py").write_text(Path(own_methods.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    options = ("--methods", "cosine", "--select", "none", "--seeds", "2", "--method", "json.py:ClassScores")
    said = rmopt_run("similarity", "--data", str(data / "classes.npz"), *options, "--out", "here").stdout
    assert "ClassScores" in said
    import json as after

    assert before is after
    assert after.loads("[1]") == [1]


def times(folder: Path) -> list[tuple[str, int, float]]:
    """Return method, seed and training time of each result; a second training would have another time."""
    cells = cells_in(folder)
    return [(one["settings"]["method"], one["settings"]["seed"], one["result"]["seconds"]) for one in cells]


def test_what_takes_time_to_predict_trains_no_longer(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    predict = OwnTasks.predict
    monkeypatch.setattr(OwnTasks, "predict", lambda *given: time.sleep(0.4) or predict(*given))
    assert call("multitask", seeds=1, methods="alt-min").rows[-1]["train_seconds"] < 0.4


def test_more_seeds_on_resume_are_the_new_ones_alone(call: Callable[..., Any], tmp_path: Path) -> None:
    few = call("multitask", seeds=3, methods="alt-min")
    first = times(tmp_path)
    many = call("multitask", seeds=5, methods="alt-min", resume=True)
    again = times(tmp_path)
    assert again[: len(first)] == first
    new = [(name, seed) for seed in (3, 4) for name in ("alt-min", f"{HERE}:OwnTasks")]
    assert sorted(one[:2] for one in again[len(first) :]) == sorted(new)
    # All at once they are the same numbers.
    whole = call("multitask", seeds=5, methods="alt-min")
    for key in ("nmse", "sem", "nmse_test"):
        assert [row[key] for row in whole.rows] == [row[key] for row in many.rows]
        assert [row[key] for row in few.rows] != [row[key] for row in many.rows]


def test_an_edited_method_is_trained_again_and_others_are_not(
    call: Callable[..., Any], tmp_path: Path, data: Path
) -> None:
    file, source = tmp_path / "mine.py", Path(own_methods.__file__).read_text(encoding="utf-8")
    file.write_text(source, encoding="utf-8")
    own = f"{file}:OwnTasks"
    call("multitask", own, methods="alt-min")
    first = times(tmp_path)
    file.write_text(source.replace("Ridge().fit", "Ridge(alpha=7.0).fit"), encoding="utf-8")
    outcome = call("multitask", own, methods="alt-min", resume=True)
    again = times(tmp_path)
    assert again[: len(first)] == first
    assert [one[:2] for one in again[len(first) :]] == [(own, 0), (own, 1)]
    # A row has the results of the method as it is now.
    module = problems.methods._module(str(file))
    row = next(row for row in outcome.rows if row["method"] == "OwnTasks")
    assert row["nmse"] == pytest.approx(by_hand("multitask", module.OwnTasks(), data), rel=1e-9)
    assert row["nmse"] != pytest.approx(by_hand("multitask", OwnTasks(), data), rel=1e-3)


def test_edited_data_are_trained_on_again(call: Callable[..., Any], data: Path, tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    whole = (data / "ratings.csv").read_text()
    file.write_text(whole)
    call("completion", data=file, methods="rtrmc")
    first = times(tmp_path)
    call("completion", data=file, methods="rtrmc", resume=True)
    assert times(tmp_path) == first
    # Elsewhere they are the same.
    (tmp_path / "copy.csv").write_text(whole)
    call("completion", data=tmp_path / "copy.csv", methods="rtrmc", resume=True)
    assert times(tmp_path) == first
    lines = whole.splitlines()
    file.write_text("\n".join([lines[0], lines[1].rpartition(",")[0] + ",2.5", *lines[2:]]) + "\n")
    call("completion", data=file, methods="rtrmc", resume=True)
    again = times(tmp_path)
    assert again[: len(first)] == first
    assert [one[:2] for one in again[len(first) :]] == [one[:2] for one in first]


def without_times(found: Any) -> Any:
    """Return results without what a clock has told."""
    if isinstance(found, dict):
        kept = {key: value for key, value in found.items() if "seconds" not in key}
        return {
            key: [row[::2] for row in value] if key == "curve" and value and isinstance(value[0], list) else
            without_times(value)
            for key, value in kept.items()
        }  # fmt: skip
    return [without_times(one) for one in found] if isinstance(found, list) else found


BACKENDS = [
    ("similarity", "threading"),
    ("completion", "threading"),
    ("similarity", "loky"),
    ("tagging", "loky"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(("name", "backend"), BACKENDS)
def test_several_at_a_time_are_the_same_to_the_bit(
    name: str, backend: str, call: Callable[..., Any], tmp_path: Path
) -> None:
    def cells() -> Any:
        # They are written in the order in which they are done.
        return sorted((without_times(one) for one in cells_in(tmp_path)), key=str)

    # A file, which processes cannot import.
    own = f"{own_methods.__file__}:{EXPERIMENTS[name][2].__name__}"
    with parallel_config(backend):
        call(name, own, n_jobs=2)
    several = cells()
    call(name, own, n_jobs=1)
    assert several == cells()
    assert len(several) >= 4


def test_a_difference_is_that_of_students_paired_test() -> None:
    rng = np.random.default_rng(0)
    for count in (2, 3, 5, 10):
        for shift in (0.0, 0.3, 3.0):
            ours, theirs = shift + rng.standard_normal(count), rng.standard_normal(count)
            found = Difference.of([{"map": a} for a in ours], [{"map": b} for b in theirs], "map")
            expected = stats.ttest_rel(ours, theirs)
            low, high = expected.confidence_interval(0.95)
            np.testing.assert_allclose(
                (found.mean - found.margin, found.mean + found.margin), (low, high), rtol=1e-9
            )
            sure = "above" if expected.statistic > 0 else "below"
            assert found.verdict == (sure if expected.pvalue < 0.05 else "level")


def test_one_seed_has_no_margin_and_rounding_is_no_lead() -> None:
    one = Difference.of([{"map": 0.1}], [{"map": 0.0}], "map")
    assert (one.margin, one.sem, str(one)) == (0.0, 0.0, "above, +0.100")
    assert Difference.of([{"m": 0.1 + 0.2}] * 3, [{"m": 0.3}] * 3, "m").verdict == "level"
    assert Difference.of([{"m": 0.31}] * 3, [{"m": 0.3}] * 3, "m").verdict == "above"


PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "your_method.md").read_text(encoding="utf-8")


def test_the_page_says_what_each_experiment_asks() -> None:
    asked = {name: ("predict",) for name in EXPERIMENTS} | {
        "similarity": similarity_methods.MEASURED_BY, "ranking": ranking_methods.MEASURED_BY,
        "metric": metric_methods.MEASURED_BY,
    }  # fmt: skip
    said = dict(re.findall(r"^\| `(\w+)` \| `fit\([^|]*\| ([^|]*) \|$", PAGE, flags=re.MULTILINE))
    assert said.keys() == asked.keys() == EXPERIMENTS.keys()
    for name, words in asked.items():
        # `scores` is how the experiment's own methods give them, block by block.
        assert set(re.findall(r"`(\w+)\(", said[name])) - {"transform", "transform_queries"} == set(words) - {
            "scores",
            "transform",
        }, name


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rmopt_run: Command, data: Path
) -> None:
    """The file and the command of the page, on small data, give the rows and the kinds of claims of its table."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(re.findall(r"```python\n(from .*?)```", PAGE, flags=re.DOTALL)[0])
    name, *words = re.findall(r"```sh\nrmopt run (.*?)\n```", PAGE)[0].split()
    quick = ("--data", str(data / "classes.npz"), "--select", "none", "--seeds", "2", "--triplets", "300")
    said = rmopt_run(name, *words, *quick, "--rank", "4", "--out", "here").stdout
    table = re.findall(r"```text\n(.*?)\n\n", PAGE, flags=re.DOTALL)[0]
    methods = [re.split(r"\s{2,}", line)[0] for line in table.splitlines()[1:]]
    assert methods == [row["method"] for row in json.loads(Path("here/result.json").read_text())["rows"]]
    assert "(not in the paper) LORETA-1 is above SVMScores" in " ".join(said.split())


@pytest.mark.slow
def test_the_pages_example_with_dask_runs(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason='needs pip install "dask[distributed]"')
    blocks = re.findall(r"```python\n(from .*?)```", PAGE, flags=re.DOTALL)
    for name, block in zip(("mine.py", "run.py"), blocks, strict=True):
        (tmp_path / name).write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    printed = {line.split()[0]: f"{float(line.split()[1]):.4f}" for line in done.stdout.splitlines()[-3:]}
    # The numbers of the page's table, which threads have made, where scipy's texts are those.
    table = dict(re.findall(r"^(cosine|LORETA-1|SVMScores) +([\d.]+) ", PAGE, flags=re.MULTILINE))
    assert printed == table if f"scipy {version('scipy')}" in PAGE else printed.keys() == table.keys()


def test_a_method_of_a_file_finds_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_the_method.py").write_text("LEVEL = 3.5\n")
    own = tmp_path / "own.py"
    own.write_text(
        "from sklearn.dummy import DummyRegressor\nfrom beside_the_method import LEVEL\n"
        "class Level(DummyRegressor):\n    level = LEVEL\n"
    )
    chosen = chosen_methods(COMPLETION_METHODS, "biases", [f"{own}:Level"], "completion", ("predict",))
    assert chosen[f"{own}:Level"].estimator.level == 3.5


PARTS = """
import numpy as np
from rmopt import InvalidInputError
from rmopt.core import Retraction
from rmopt.retractions import FIXED_RANK_RETRACTIONS
from rmopt.solvers import SGD


class Mine(type(FIXED_RANK_RETRACTIONS["orthographic"])):
    pass


class Half(Mine):
    def __call__(self, manifold, point, tangent, t=1.0):
        return super().__call__(manifold, point, tangent, 0.5 * t)


class Bare(Retraction):
    __call__ = Half.__call__


class Drawn(Mine):
    def __init__(self):
        self.factor = np.random.default_rng().random()

    def __call__(self, manifold, point, tangent, t=1.0):
        return super().__call__(manifold, point, tangent, t + self.factor * t**3 * abs(tangent.M).sum())


class Other:
    order, name, __call__ = 1, "other", Half.__call__


class Refuses(Mine):
    def __call__(self, manifold, point, tangent, t=1.0):
        if manifold.norm(point, tangent) * abs(t) > 1.0:
            raise InvalidInputError("the step is too long")
        return super().__call__(manifold, point, tangent, t)


class Steps(SGD):
    pass

"""


def test_own_retractions_and_solvers_are_compared(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    text = f"{tmp_path / 'parts.py'}:Mine"
    outcome = call("similarity", method=[], seeds=1, compare=f"retraction=second-order,orthographic,{text}")
    found = {row["method"]: row["map"] for row in outcome.rows}
    # It runs in Python, and compiled ones are many times faster.
    assert found["LORETA-1, Mine (Python)"] == pytest.approx(found["LORETA-1, orthographic"], rel=1e-9)
    assert found["LORETA-1, Mine (Python)"] != found["LORETA-1, second-order"]
    # A claim names the row that it speaks of.
    claims = [claim.claim for claim in outcome.claims]
    assert {
        f"(not in the paper) LORETA-1, {one} is above cosine"
        for one in ("second-order", "orthographic", "Mine (Python)")
    } <= {*claims}
    steps = call("similarity", method=[], seeds=1, compare=f"solver=loreta,{tmp_path / 'parts.py'}:Steps")
    assert steps.rows[1]["map"] == steps.rows[2]["map"] == found["LORETA-1, second-order"]
    for name, sentence in (
        ("Half", r"Half breaks a law.* FAILED rigidity of"),
        ("Bare", r"Bare\(\) has no order; write"),
        ("Other", r"Other = .* must be derived from rmopt.core.Retraction"),
        ("Drawn", r"Drawn breaks a law.* FAILED repetition of .* cause: random numbers"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            call("similarity", method=[], compare=f"retraction={tmp_path / 'parts.py'}:{name}")
    with pytest.raises(InvalidInputError, match="the class of a solver"):
        call("similarity", method=[], compare="solver=loreta,adam")


def test_a_retraction_that_refuses_long_steps_loses_with_a_reason(
    call: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    text = f"retraction=second-order,{tmp_path / 'parts.py'}:Refuses"
    outcome = call("similarity", f"{HERE}:Diverges", seeds=1, compare=text)
    assert [row["map"] is None for row in outcome.rows] == [False, False, True, True]
    first, second = outcome.notes[:2]
    assert first.startswith("LORETA-1, Refuses (Python) failed: the run diverged at step ")
    assert "(the step is too long); take a smaller step size." in first
    assert second == "Diverges failed: it left the numbers at step 3"
    assert not any("nan" in str(one) for one in [*outcome.notes, *outcome.claims])
    # Shorter steps of its grid remain.
    chosen = call("similarity", method=[], seeds=1, compare=text, select="first", folds=2)
    assert chosen.rows[2]["map"] > 0.0
    assert chosen.parameters["used"]["LORETA-1, Refuses (Python)"][0]["step_size"] < 10.0


def test_failing_claims_on_toy_data_have_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = Similarity(data="digits", methods="svm,loreta", select="none", seeds=1, triplets=30, rank="2")
    told = []
    # Digits are read more quickly than the default data.
    for default in ("scipy-docs", "digits"):
        monkeypatch.setattr(fields(Similarity)[0], "default", default)
        outcome = few(Undrawn("toy", 0, tmp_path, quiet=True))
        assert [claim.reproduced for claim in outcome.claims] == [False]
        told.append(outcome.notes[-1:] == [Similarity.toy])
    assert told == [False, True]
