"""The experiments ``completion`` and ``multitask`` from the command line."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells_kept import cells_in
from sklearn.base import clone

from problems.comparison import Row
from problems.methods import Method
from problems.subspace import BiasedALS
from problems.subspace.experiment import METHODS, Completion, completion_claims, multitask_claims
from rmopt.cli import main
from rmopt.core import InvalidInputError
from rmopt.experiments import Run


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    return int(ended.value.code or 0)


def result(out: Path) -> dict[str, Any]:
    return json.loads((out / "result.json").read_text())


def some_ratings(home: Path) -> list[str]:
    """Write ratings with effects of users as a file of MovieLens, and return the options that read it."""
    folder = home / "ml-100k"
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((30, 40)) < 0.6)
    values = np.clip(
        np.rint(3.0 + rng.standard_normal(40)[columns] + 0.5 * rng.standard_normal(len(rows))), 1, 5
    )
    lines = [f"{j}\t{i}\t{int(value)}\t0" for i, j, value in zip(rows, columns, values, strict=True)]
    (folder / "u.data").write_text("\n".join(lines) + "\n")
    return ["--data", "ml100k", "--data-home", str(home), "--quiet", "--out", str(home / "out")]


def test_selection_of_a_penalty(tmp_path: Path) -> None:
    options = ["--methods", "biases,als", "--rank", "2", "--select", "first", "--folds", "2"]
    assert run("completion", *options, *some_ratings(tmp_path)) == 0
    found = result(tmp_path / "out")
    cells = cells_in(tmp_path / "out")
    chosen = {
        cell["settings"]["method"]: cell["result"]["parameters"]
        for cell in cells
        if "parameters" in cell["result"]
    }
    assert set(chosen) == {"biases", "als"}
    assert all(parameters.keys() == METHODS[name].grid[0].keys() for name, parameters in chosen.items())
    assert [one for (one,) in found["parameters"]["used"].values()] == list(chosen.values())
    assert all(0.3 < row["test_rmse"] < 0.8 for row in found["rows"])


def test_a_package_that_is_not_there_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "myfm", None)
    with pytest.raises(InvalidInputError, match=r"myfm cannot be imported.*pip install .rmopt\[bench\]"):
        METHODS["myfm"].estimator.fit([[0, 1], [1, 0]], [1.0, 2.0])


# What the package warns of is its own.
@pytest.mark.filterwarnings("ignore")
def test_a_peer_learns_and_gives_others_the_mean() -> None:
    pytest.importorskip("myfm")
    rng = np.random.default_rng(0)
    table = 3.0 + rng.standard_normal((80, 1)) + rng.standard_normal(60)
    table += rng.standard_normal((80, 2)) @ rng.standard_normal((2, 60))
    known = rng.random(table.shape) < 0.5
    model = clone(METHODS["myfm"].estimator).set_params(rank=4).fit(np.argwhere(known), table[known])
    gaps = model.predict(np.argwhere(~known)) - table[~known]
    assert np.sqrt(np.mean(gaps**2)) < 0.4 * table.std()
    assert model.predict([[0, 60], [80, 0]]) == pytest.approx([table[known].mean()] * 2)


def test_the_picture_is_completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ranks", "6", "--updates", "8", "--agents", "3", "--out", str(tmp_path)]
    assert run("completion", *options) == 0
    found = result(tmp_path)
    errors = {row["method"]: row["test_rmse"] for row in found["rows"] if row["rank"] == 6}
    assert len(errors) == 4
    assert errors["RTRMC (batch)"] < 0.13
    # The paper says nothing of what is shown besides.
    assert not any("ALS" in claim["claim"] for claim in found["claims"])
    assert max(errors.values()) < 0.3
    assert "picture (scikit-learn, china.jpg)" in capsys.readouterr().out


LISTS = ("popular", "neighbors", "implicit")


def test_every_method_trains_on_ratings(tmp_path: Path) -> None:
    methods = {
        name: method
        for name, method in METHODS.items()
        if name not in LISTS and (name != "myfm" or find_spec(name))
    }
    options = [
        "--methods", ",".join(methods), "--rank", "2", "--agents", "2,4", "--updates", "5", "--seeds", "2",
        "--lam", "0", *some_ratings(tmp_path),
    ]  # fmt: skip
    assert run("completion", *options) == 0
    found = result(tmp_path / "out")
    models = [1 + ("n_agents" in one.estimator.get_params()) for one in methods.values()]
    assert len(found["rows"]) == sum(models)
    assert all(row["sem"] is not None for row in found["rows"])
    # Every number is the mean over the seeds.
    cells = cells_in(tmp_path / "out")
    errors = [one["result"]["test_rmse"] for one in cells if one["settings"]["method"] == "als"]
    [row] = [row for row in found["rows"] if row["method"] == METHODS["als"].label]
    assert row["test_rmse"] == pytest.approx(np.mean(errors))
    # A method in one place has no agents that could differ.
    assert [row["disagreement"] is None for row in found["rows"]] == [
        row["agents"] is None for row in found["rows"]
    ]
    # Biases have no rank.
    assert {row["rank"] for row in found["rows"]} == {2, None}


def test_multitask_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--methods", "stochastic,batch,alt-min", "--rank", "3", "--updates", "20"]
    assert run("multitask", *options, "--out", str(tmp_path / "shared")) == 0
    assert result(tmp_path / "shared")["claims"][0]["reproduced"]
    capsys.readouterr()
    rng, folder = np.random.default_rng(1), tmp_path / "home"
    folder.mkdir()
    table = np.column_stack([np.repeat(np.arange(6), 20), rng.standard_normal((120, 21))])
    table[:, 5] = table[:, [1, 7, 9]].sum(axis=1)
    np.savetxt(
        folder / "parkinsons_updrs.data",
        table,
        delimiter=",",
        header=",".join("abcdefghijklmnopqrstuv"),
        comments="",
    )
    options = ["--data", "parkinsons", "--data-home", str(folder), "--ranks", "2,3", "--agents", "3"]
    assert run("multitask", *options, "--updates", "30", "--seeds", "2", "--out", str(tmp_path / "out")) == 0
    rows = result(tmp_path / "out")["rows"]
    assert len(rows) == 10
    assert {row["method"] for row in rows} >= {
        "Alt-Min (batch)",
        "Trust regions (batch)",
        "Stochastic Gossip",
    }
    assert all(row["nmse"] < 0.6 for row in rows if row["method"] != "Alt-Min (batch)")


def test_claims_say_no_where_the_numbers_do() -> None:
    def row(name: str, agents: int, rank: int, *errors: float) -> Row:
        cells = [{"test_rmse": error, "nmse": error, "seconds": 1.0} for error in errors]
        label = {"stochastic": "Stochastic Gossip", "alt-min": "Alt-Min (batch)"}.get(name, name)
        return Row(label, {"method": name, "agents": agents, "rank": rank}, [], cells)

    def verdicts(found: list[Any]) -> list[bool | None]:
        return [claim.reproduced for claim in found]

    table = (("stochastic", 5, 3, 0.8), ("stochastic", 10, 3, 0.85), ("rtrmc", 0, 3, 0.81))
    assert verdicts(completion_claims([row(*one) for one in table], METHODS)) == [True, False, True]
    # Seed by seed; errors that differ from seed to seed by more than they differ at all decide nothing.
    spread = [row(*one[:3], one[3] - 0.1, one[3], one[3] + 0.1) for one in table]
    spread[1].cells.reverse()
    assert verdicts(completion_claims(spread, METHODS)) == [True, None, None]
    # A user's method is to have a larger error.
    brought = METHODS | {"mean": Method("Mean", BiasedALS())}
    ours, worse, better = row(*table[0]), row("mean", 0, 3, 0.81), row("mean", 0, 3, 0.79)
    assert (
        completion_claims([ours, worse], brought)[0].claim
        == "Stochastic Gossip has a smaller error than mean"
    )
    assert verdicts(completion_claims([ours, worse], brought)) == [True]
    assert verdicts(completion_claims([ours, better], brought)) == [False]

    tasks = [row("stochastic", 6, 3, 0.345), row("alt-min", 6, 0, 0.3), row("stochastic", 6, 5, 0.34)]
    assert verdicts(multitask_claims(tasks, "parkinsons")) == [False, True, False, True]
    # What is printed for one data set says nothing of another.
    assert verdicts(multitask_claims(tasks, "school")) == [False, False]
    # Level means a share of the error, whatever its unit.
    for unit in (1e-3, 1e3):
        for share, holds in ((1.02, True), (1.04, False)):
            rows = [row("stochastic", 6, 3, share * unit), row("alt-min", 6, 0, unit)]
            assert multitask_claims(rows, "school")[0].reproduced is holds


@pytest.mark.parametrize("name", ["als", "biases"])
def test_compiled_code_is_loaded_before_the_clock_starts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fit = BiasedALS.fit

    def noted(model: BiasedALS, *given: Any, **how: Any) -> BiasedALS:
        events.append("fit")
        return fit(model, *given, **how)

    monkeypatch.setattr(BiasedALS, "fit", noted)
    monkeypatch.setattr("problems.comparison.perf_counter", lambda: events.append("clock") or 0.0)
    lines = [f"{user},{item},{(user * item) % 5}" for user in range(8) for item in range(6)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *lines]))
    Completion(data=str(tmp_path / "r.csv"), methods=name, rank="2", agents="2")(
        Run("completion", 0, tmp_path)
    )
    assert events[:2] == ["fit", "clock"]
    assert events.count("fit") == 2


def test_entries_that_are_all_the_same_are_for_lists(tmp_path: Path, capsys: Any) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "views.csv"
    seen = np.argwhere(
        rng.random((40, 30)) < np.where(np.arange(40)[:, None] % 3 == np.arange(30) % 3, 0.6, 0.1)
    )
    file.write_text("user,item\n" + "\n".join(f"u{user},i{item}" for user, item in seen))
    with pytest.raises(
        InvalidInputError, match=r"all entries of .*views.csv are 1: .* --methods popular,neigh"
    ):
        Completion(data=str(file))(Run("completion", 0, tmp_path))
    options = [
        "--data",
        str(file),
        "--rank",
        "3",
        "--seeds",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--methods",
    ]
    assert run("completion", *options, "als,implicit") == 2
    assert "lists, measured by nDCG, and other --methods predict ratings" in capsys.readouterr().err
    assert run("completion", *options, ",".join(LISTS)) == 0
    assert "30 × 40, 2 random splits with 20% held out" in " ".join(capsys.readouterr().out.split())
    found = {row["method"]: row["ndcg"] for row in result(tmp_path / "out")["rows"]}
    popular = found.pop(METHODS["popular"].label)
    assert len(found) == 2
    assert min(found.values()) > 1.3 * popular
