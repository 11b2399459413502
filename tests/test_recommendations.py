"""``rmopt fit completion``: from a file of ratings to a model and a list for every user."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from problems.data import load
from problems.subspace import BayesianCompletion, BiasedALS, ImplicitALS
from rmopt.cli import main


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of ratings, 1 to 5, of tastes with two dimensions."""
    rng = np.random.default_rng(0)
    stars = np.clip(np.round(3.2 + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))), 1, 5)
    known = np.argwhere(rng.random((40, 30)) < 0.6)
    path = tmp_path_factory.mktemp("ratings") / "mine.csv"
    lines = [f"ann{u},Film {i},{stars[u, i]:g}" for u, i in known]
    path.write_text("\n".join(["userId,movieId,rating", *lines]))
    return path


def fitted(capsys: Any, *words: str, code: int = 0) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(["fit", "completion", *words])
    assert ended.value.code == code
    return capsys.readouterr()


@pytest.mark.parametrize(
    ("model", "kind"), [("als", BiasedALS), ("bayesian", BayesianCompletion), ("implicit", ImplicitALS)]
)
def test_every_user_gets_what_the_written_model_recommends(
    model: str, kind: Any, file: Path, tmp_path: Path, capsys: Any
) -> None:
    out = fitted(
        capsys, str(file), "--model", model, "--rank", "2", "-n", "4", "--out", str(tmp_path), "--json"
    )
    rows = json.loads(out.out)["rows"]
    if model != "implicit":
        assert rows[0]["test_rmse"] < 0.75 * rows[1]["test_rmse"]
    found: dict[str, list[list[str]]] = {}
    with (tmp_path / "recommendations.csv").open(newline="") as text:
        head, *lines = csv.reader(text)
    assert head == ["user", "place", "item", "score", *["std"] * (model == "bayesian")]
    for user, place, *rest in lines:
        found.setdefault(user, []).append(rest)
        assert int(place) == len(found[user])
    ratings = load(file)
    assert set(found) == set(ratings.column_names)
    again = kind.load(tmp_path / "model.npz")
    how = {"return_std": True} if model == "bayesian" else {}
    users = ["ann7", "ann30"]
    for user, best in zip(users, again.recommend(users, 4, **how), strict=True):
        assert best == again.recommend(user, 4, **how)
        assert [[name, *(f"{one:.6g}" for one in scores)] for name, *scores in best] == found[user]
        seen = ratings.row_names[ratings.rows[ratings.column_names[ratings.columns] == user]]
        assert not {name for name, *_ in best} & set(seen)


def test_one_user_is_shown(file: Path, tmp_path: Path, capsys: Any) -> None:
    out = fitted(capsys, str(file), "--user", "ann7", "-n", "2", "--out", str(tmp_path)).out
    with (tmp_path / "recommendations.csv").open(newline="") as text:
        _, *lines = csv.reader(text)
    assert [line[0] for line in lines] == ["ann7"] * 2
    assert f"For ann7: {lines[0][2]} ({float(lines[0][3]):.2f}), {lines[1][2]}" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--user", "zoe"), "--user 'zoe' is not in"),
        (("--hidden", "0"), "--hidden = 0"),
        (("--hidden", "1e-9"), "leaves none"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: tuple[str, ...], sentence: str, file: Path, tmp_path: Path, capsys: Any
) -> None:
    assert sentence in fitted(capsys, str(file), *words, "--out", str(tmp_path / "new"), code=2).err


def test_views_are_no_ratings(tmp_path: Path, capsys: Any) -> None:
    views = tmp_path / "views.csv"
    views.write_text("user,item\n" + "\n".join(f"u{k % 9},i{k % 7}" for k in range(40)))
    assert "--model implicit" in fitted(capsys, str(views), "--out", str(tmp_path / "new"), code=2).err
    fitted(capsys, str(views), "--model", "implicit", "--rank", "2", "--out", str(tmp_path / "new"))
    assert (tmp_path / "new" / "recommendations.csv").exists()
