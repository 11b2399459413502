"""Recommendations: ``rmopt fit completion``, users who come later, items alike, and a page."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from problems.data import load
from problems.serve import opened
from problems.serving.web import answer
from problems.similarity import LoretaSimilarity
from problems.subspace import BayesianCompletion, BiasedALS, ImplicitALS, ItemSearch, ScaledSGDCompletion
from rmopt import InvalidInputError
from rmopt.cli import main
from rmopt.errors import StorageError


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
    assert f"For ann7:\n  {lines[0][2]:6}  {float(lines[0][3]):.2f}\n  {lines[1][2]}" in out


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
    out = fitted(capsys, str(views), "--model", "implicit", "--out", str(tmp_path / "new")).out
    assert "--rank is 6: these data have no rank above 6." in out
    assert (tmp_path / "new" / "recommendations.csv").exists()


@pytest.fixture(scope="module", params=["als", "bayesian", "implicit"])
def model(request: Any, file: Path) -> Any:
    ratings = load(file)
    made = {
        "als": BiasedALS(2, limits=(1, 5), random_state=0),
        "bayesian": BayesianCompletion(2, limits=(1, 5), n_samples=5, random_state=0),
        "implicit": ImplicitALS(2, random_state=0),
    }
    return made[request.param].fit(ratings)


def test_somebody_new_gets_what_a_model_that_has_taken_them_in_recommends(model: Any) -> None:
    values = {"Film 3": 5.0, "Film 8": 1.0}
    rows = np.array([[model.row_names_.tolist().index(name), len(model.column_names_)] for name in values])
    folded = model.fold_in(rows, list(values.values()), ["new"])
    assert model.recommend_to_new(values, 4) == folded.recommend("new", 4)
    assert "new" not in model.column_names_
    liked = 1.0 if isinstance(model, ImplicitALS) else 5.0
    assert model.recommend_to_new(["Film 3"]) == model.recommend_to_new({"Film 3": liked})
    for wrong, sentence in (
        ({}, "a row at least"), ({"Film 3": "good"}, "Film 3"), ({"Film 99": 1.0}, "'Film 99' was not seen"),
        ("Film 3", "values"), (pd.Series({"Film 3": 5.0}), "series.to_dict()"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=sentence):
            model.recommend_to_new(wrong)


def test_similar_rows_have_alike_predictions(model: Any) -> None:
    if isinstance(model, BayesianCompletion):
        whole = np.einsum("smk,snk->mn", model.row_samples_[:, :-1, 1:], model.column_means_[:, :-1, 1:])
    else:
        whole = model.components_ @ model.weights_.T
    whole /= np.linalg.norm(whole, axis=1, keepdims=True)
    cosines = whole[4] @ whole.T
    best = [row for row in np.argsort(-cosines) if row != 4][:3]
    found = model.similar(model.row_names_[4], 3)
    assert [name for name, _ in found] == model.row_names_[best].tolist()
    np.testing.assert_allclose([cosine for _, cosine in found], cosines[best], atol=1e-5)


def test_a_page_recommends(model: Any) -> None:
    search = ItemSearch(model)
    how = {"return_std": True} if isinstance(model, BayesianCompletion) else {}

    def told(target: str) -> Any:
        status, _, text = answer(search, "", f"/search?{target}")
        return status, json.loads(text)

    _, of_user = told("q=ann7&k=4")
    found = [tuple(one[key] for key in ("name", "score", "std") if key in one) for one in of_user["results"]]
    assert found == model.recommend("ann7", 4, **how)
    column = model.column_names_.tolist().index("ann7")
    known = model.row_names_[model.known_[:, [column]].indices]
    for one in of_user["results"]:
        assert {reason["term"] for reason in one["why"]} <= set(known)
    _, likes = told("likes=3&likes=8&k=4")
    wanted = model.recommend_to_new(model.row_names_[[3, 8]].tolist(), 4)
    assert [(one["name"], one["score"]) for one in likes["results"]] == wanted
    _, alike = told("like=3&k=2")
    assert [(one["name"], one["score"]) for one in alike["results"]] == model.similar(model.row_names_[3], 2)
    _, named = told("q=film+2")
    assert named["results"][0]["name"] == "Film 2"
    assert all("Film 2" in one["name"] for one in named["results"])
    assert "neither" in told("q=zoe")[1]["message"]
    assert "40 users" in told("q=")[1]["message"]
    assert told("like=30")[0] == told("likes=x")[0] == 400
    page = answer(search, "A & B", "/?likes=3&likes=8")[2]
    assert page.count("<li>") == 10
    assert "likes=3&amp;likes=8&amp;likes=" in page


def test_what_fit_wrote_is_served(file: Path, tmp_path: Path, capsys: Any) -> None:
    fitted(capsys, str(file), "--rank", "2", "--out", str(tmp_path / "learned"))
    for path in (tmp_path / "learned", tmp_path / "learned" / "model.npz"):
        assert isinstance(opened(path), ItemSearch)
    LoretaSimilarity(1, max_iter=9).fit(np.eye(3), [0, 0, 1]).save(tmp_path / "metric.npz")
    with pytest.raises(InvalidInputError, match="holds a similarity, which has nothing to show"):
        opened(tmp_path / "metric.npz")
    with pytest.raises(StorageError, match="nothing does not exist"):
        opened(tmp_path / "nothing")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "learned" / "model.npz").read_bytes()[:-9])
    with pytest.raises(StorageError, match=r"cut\.npz is damaged"):
        opened(tmp_path / "cut.npz")
    for path in (tmp_path, file):
        with pytest.raises(InvalidInputError, match="is no model"):
            opened(path)
    with pytest.raises(InvalidInputError, match="model = LoretaSimilarity"):
        ItemSearch(LoretaSimilarity())
    with pytest.raises(NotFittedError):
        ItemSearch(BiasedALS())


def test_rows_are_alike_without_effects_of_columns() -> None:
    rng = np.random.default_rng(0)
    T = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 80))
    T -= T.mean(axis=1, keepdims=True) + T.mean(axis=0) - T.mean()
    effects = 3.0 * rng.standard_normal(80) + rng.standard_normal((30, 1))
    known = np.where(rng.random((30, 80)) < 0.6, effects + T, 0.0)
    # Of the last row nothing is known.
    known[-1] = 0.0
    model = ScaledSGDCompletion(3, lam=1e-3, n_epochs=40, random_state=0).fit(sp.csc_array(known))
    found = dict(model.similar(0, 29))
    unit = T / np.linalg.norm(T, axis=1, keepdims=True)
    np.testing.assert_allclose([found[row] for row in range(1, 29)], unit[1:29] @ unit[0], atol=0.15)
    with pytest.raises(InvalidInputError, match="knows nothing of 29"):
        model.similar(29)
