"""Recommendations: ``rmopt fit completion``, users who come later, items alike, and a page; texts to a page."""

import csv
import json
import urllib.parse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite
from sklearn.exceptions import NotFittedError
from starlette.datastructures import QueryParams

from problems.data import load
from problems.serve import opened
from problems.serving import SimilarityIndex, TextSearch
from problems.similarity import LoretaSimilarity
from problems.subspace import BayesianCompletion, BiasedALS, ImplicitALS, ItemSearch, ScaledSGDCompletion
from problems.subspace.baselines import ItemNeighbors, MostPopular
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


def fitted(capsys: Any, *words: object, code: int = 0, name: str = "completion") -> Any:
    with pytest.raises(SystemExit) as ended:
        main(["fit", name, *map(str, words)])
    printed = capsys.readouterr()
    assert int(ended.value.code or 0) == code, printed.err
    return printed


def written(folder: Path) -> list[list[str]]:
    with (folder / "recommendations.csv").open(newline="") as text:
        return list(csv.reader(text))


@pytest.mark.parametrize(
    ("model", "kind"), [("als", BiasedALS), ("bayesian", BayesianCompletion), ("implicit", ImplicitALS)]
)
def test_every_user_gets_what_the_written_model_recommends(
    model: str, kind: Any, file: Path, tmp_path: Path, capsys: Any
) -> None:
    out = fitted(capsys, file, "--model", model, "--rank", 2, "-n", 4, "--out", tmp_path, "--json")
    rows = json.loads(out.out)["rows"]
    if model != "implicit":
        assert rows[0]["test_rmse"] < 0.75 * rows[1]["test_rmse"]
    found: dict[str, list[list[str]]] = {}
    head, *lines = written(tmp_path)
    assert b"\r" not in (tmp_path / "recommendations.csv").read_bytes()
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
        assert [[name, *(f"{score:.6g}" for score in scores)] for name, *scores in best] == found[user]
        seen = ratings.row_names[ratings.rows[ratings.column_names[ratings.columns] == user]]
        assert not {name for name, *_ in best} & set(seen)


def test_items_have_titles_that_no_spreadsheet_runs(file: Path, tmp_path: Path, capsys: Any) -> None:
    titles = tmp_path / "movies.csv"
    lines = [f'{1950 + i},Film {i},"=cmd, {i // 2}",Comedy' for i in [*range(29), 40, 42]]
    titles.write_text("\n".join(["year,movieId,title,genres", *lines]))
    out = fitted(capsys, file, "-n", 30, "--names", titles, "--out", tmp_path / "new").out
    assert f"{titles}: items without a title, of 30: 1; titles never rated: 2." in " ".join(out.split())
    head, *lines = written(tmp_path / "new")
    names = {line[2] for line in lines}
    assert head[2:4] == ["item", "id"]
    assert all(line[3] in line[2] for line in lines if line[2].endswith(")"))
    page: Any = opened(tmp_path / "new")
    assert [one["id"] for one in page.find(QueryParams("q=cmd,+14"), 9).results] == ["Film 28"]
    # Two films share a title, and of the last nothing is known.
    assert names <= {f"'=cmd, {i // 2} (Film {i})" for i in range(28)} | {"'=cmd, 14", "Film 29"}
    for text in ("a,b\n1,2", "id,b,c\nFilm 1,2,3", "n,id,title\nFilm 1,Film 2,a\nFilm 3,x,b"):
        titles.write_text(text)
        said = fitted(capsys, file, "--names", titles, "--out", tmp_path / "x", code=2).err
        assert "call these id and title" in said


def test_the_command_says_what_is_in_doubt(file: Path, tmp_path: Path, capsys: Any) -> None:
    def said(lines: list[str], *words: object) -> str:
        path = tmp_path / "x.csv"
        path.write_text("\n".join(["user,item,rating", *lines]))
        return " ".join(fitted(capsys, path, *words, "--out", tmp_path / "new").out.split())

    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((40, 30)) < 0.5)
    effects = rng.standard_normal(40)[pairs[:, 0]] + rng.standard_normal(30)[pairs[:, 1]]
    stars = np.clip(np.round(5 + effects + rng.standard_normal(len(pairs))), 1, 10)
    lines = [f"u{u},i{i},{value:g}" for (u, i), value in zip(pairs, stars, strict=True)]
    rare = [f"u{u},rare{u},10" for u in range(3)]
    out = said([*lines, *rare], "--rank", 20, "-n", 40)
    assert (
        "BayesianCompletion is no better here than users and items alone: take users and items alone" in out
    )
    assert (
        "3 of 33 items have fewer than 3 ratings and are in no list; rmopt fit completion --min-support"
        in out
    )
    assert not any(line[2].startswith("rare") for line in written(tmp_path / "new"))
    said([*lines, *rare], "--model", "als", "--min-support", 0, "-n", 40, "--rank", 2)
    assert any(line[2].startswith("rare") for line in written(tmp_path / "new"))
    with_zeros = [line.rpartition(",")[0] + ",0" if n % 2 else line for n, line in enumerate(lines)]
    assert "50% of the entries are 0, the others 1 to" in said(with_zeros, "--model", "als")
    heavy = [f"{line.rpartition(',')[0]},{5000 if n == 7 else 2 + n % 3}" for n, line in enumerate(lines)]
    out = said(heavy, "--model", "implicit", "--rank", 3, "--weights", "log")
    assert "Counts run up to 5000, with a median of 3: they are weighted by --weights log;" in out
    assert "neighbours by BM25" in out
    why = fitted(capsys, file, "--weights", "bm25", "--out", tmp_path / "x", code=2).err
    assert "--weights is for --model implicit" in " ".join(why.split())
    why = fitted(capsys, file, "--implicit", "--model", "als", "--out", tmp_path / "x", code=2).err
    assert "--implicit is for --model bayesian" in " ".join(why.split())
    fitted(capsys, file, "--implicit", "--rank", 2, "--out", tmp_path / "x")
    assert BayesianCompletion.load(tmp_path / "x" / "model.npz").implicit


def test_views_are_no_ratings_and_may_be_summed(tmp_path: Path, capsys: Any) -> None:
    views = tmp_path / "views.csv"
    views.write_text("user,item\n" + "\n".join(f"u{k % 9},i{k % 7}" for k in range(40)))
    assert "--model implicit" in fitted(capsys, views, "--out", tmp_path / "new", code=2).err
    out = fitted(capsys, views, "--model", "implicit", "--out", tmp_path / "new").out
    assert "--rank is 6: these data have no rank above 6." in out
    plays = tmp_path / "plays.csv"
    plays.write_text("user,item,rating\n" + "\n".join(f"u{k % 9},i{k % 7},{1 + k % 4}" for k in range(80)))
    words = (plays, "--model", "implicit", "--out", tmp_path / "plays")
    # Plays that repeat are summed, and ratings are not.
    fitted(capsys, *words)
    lines = written(tmp_path / "plays")
    fitted(capsys, f"{plays}::duplicates=sum", *words[1:])
    assert written(tmp_path / "plays") == lines
    assert "duplicates" in fitted(capsys, plays, "--out", tmp_path / "no", code=2).err


def test_it_is_said_that_rows_of_a_matrix_are_items(tmp_path: Path, capsys: Any) -> None:
    rng = np.random.default_rng(0)
    stars = np.where(rng.random((60, 25)) < 0.4, rng.integers(1, 6, (60, 25)), 0)
    mmwrite(tmp_path / "r.mtx", sp.coo_array(stars))
    for said, users in (("", 25), ("::user=item,item=user", 60)):
        out = fitted(capsys, f"{tmp_path / 'r.mtx'}{said}", "--out", tmp_path / f"{users}").out
        assert "rows are taken for items" in " ".join(out.split())
        assert len({line[0] for line in written(tmp_path / f"{users}")[1:]}) == users


@pytest.fixture(scope="module", params=["als", "bayesian", "implicit"])
def model(request: Any, file: Path) -> Any:
    made = {
        "als": BiasedALS(2, limits=(1, 5), random_state=0),
        "bayesian": BayesianCompletion(2, limits=(1, 5), n_samples=5, random_state=0),
        "implicit": ImplicitALS(2, random_state=0),
    }
    return made[request.param].fit(load(file))


def test_somebody_new_gets_other_items_than_those_that_are_liked(model: Any) -> None:
    values = {"Film 3": 5.0, "Film 8": 1.0}
    names = [name for name, _ in model.recommend_to_new(values, 4)]
    assert len(set(names) - set(values)) == 4
    few = model.recommend_to_new(values, 30, min_support=25)
    assert few == [one for one in model.recommend_to_new(values, 30) if one in few] != []
    liked = dict.fromkeys(values, 1.0 if isinstance(model, ImplicitALS) else 5.0)
    best, wanted = (dict(model.recommend_to_new(given, 30)) for given in ([*liked], liked))
    if not isinstance(model, ImplicitALS):
        K = model.known_ / np.sqrt(model.known_.sum(axis=1))[:, None]
        rows = {name: row for row, name in enumerate(model.row_names_)}
        near = K @ K[[rows[name] for name in liked]].T.mean(axis=1)
        wanted = {name: (score - 1.0) / 4.0 * near[rows[name]] for name, score in wanted.items()}
    assert best == pytest.approx(wanted)
    assert [*best.values()] == sorted(best.values(), reverse=True)
    for wrong in ({}, {"Film 3": "good"}, {"Film 99": 1.0}, "Film 3"):
        with pytest.raises(InvalidInputError):
            model.recommend_to_new(wrong)


def test_a_page_recommends(model: Any) -> None:
    search = ItemSearch(model)
    how = {"return_std": True} if isinstance(model, BayesianCompletion) else {}

    def find(fields: str, k: int = 4) -> Any:
        return search.find(QueryParams(fields), k)

    of_user = find("q=ann7")
    found = [
        tuple(result[key] for key in ("name", "score", "std") if key in result) for result in of_user.results
    ]
    assert found == model.recommend("ann7", 4, **how)
    known = model.row_names_[model.known_[:, [model.column_names_.tolist().index("ann7")]].indices]
    assert of_user.message.startswith(f"Recommended to ann7, from {len(known)} known items, with ")
    reasons = [reason for result in of_user.results for reason in result.get("why", [])]
    assert reasons == [] or {reason["term"] for reason in reasons} <= set(known)
    likes = find("likes=3&likes=8&likes=3").results
    wanted = model.recommend_to_new(model.row_names_[[3, 8]].tolist(), 4)
    assert [(result["name"], result["score"]) for result in likes] == wanted
    row = likes[0]["row"]
    kept = [("likes", 3), ("likes", 8)]
    assert [*likes[0]["links"].values()] == [[("like", row), *kept], [*kept, ("likes", row)]]
    # What is liked stays so at the next search.
    assert find("q=ann7&likes=3").message == of_user.message
    [again] = find(f"q={model.row_names_[3]}&likes=3").results
    assert again["label"] == "liked"
    assert list(again["links"]) == ["similar"]
    named = find("q=film+2&likes=3&likes=8")
    assert find("likes=3&likes=8").liked[model.row_names_[3]] == [("likes", "8")]
    assert named.liked[model.row_names_[8]] == [("q", "film 2"), ("likes", "3")]
    assert named.results[0]["name"] == "Film 2"
    assert named.results[0]["links"]["I like this too"][:2] == kept
    assert named.kept == kept
    alike = find("like=3", 2).results
    assert [(result["name"], result["score"]) for result in alike] == model.similar(model.row_names_[3], 2)
    of_name = find("q=film+2")
    assert of_name.message == "Items with this name: 11, the most popular first."
    assert all("Film 2" in result["name"] for result in of_name.results)
    counts = [model.known_[[result["row"]]].nnz for result in of_name.results]
    assert counts[1:] == sorted(counts[1:], reverse=True)
    assert "neither" in find("q=zoe").message
    assert "40 users" in find("q=").message
    for fields in ("like=30", "likes=x"):
        with pytest.raises(InvalidInputError, match="like"):
            find(fields)


def test_what_fit_wrote_is_served(file: Path, tmp_path: Path, capsys: Any) -> None:
    out = fitted(capsys, file, "--rank", 2, "--out", tmp_path / "learned").out
    assert (
        "RMSE"
        in out.partition("\nMeasured on 10% of the ratings, held out. The saved model learns from all.\n")[0]
    )
    assert f"rmopt serve {tmp_path / 'learned'} shows" in " ".join(out.split())
    for path in (tmp_path / "learned", tmp_path / "learned" / "model.npz"):
        assert isinstance(opened(path), ItemSearch)
    LoretaSimilarity(1, max_iter=9).fit(np.eye(3), [0, 0, 1]).save(tmp_path / "metric.npz")
    with pytest.raises(InvalidInputError, match="LoretaSimilarity, which has nothing to show"):
        opened(tmp_path / "metric.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "learned" / "model.npz").read_bytes()[:-9])
    for path in (tmp_path / "nothing", tmp_path / "cut.npz", tmp_path):
        with pytest.raises(StorageError, match=str(path)):
            opened(path)
    with pytest.raises(InvalidInputError, match="first rmopt fit completion"):
        opened(file)
    with pytest.raises(InvalidInputError, match="LoretaSimilarity"):
        ItemSearch(LoretaSimilarity())
    with pytest.raises(NotFittedError):
        ItemSearch(BiasedALS())


@pytest.mark.parametrize("form", ["file", "folder"])
def test_texts_become_a_page_and_are_in_no_error(form: str, tmp_path: Path, capsys: Any) -> None:
    rng = np.random.default_rng(0)
    words = {"bill": ["invoice", "refund", "price"], "login": ["password", "reset", "account"]}
    rows = [
        (f'"{rng.choice(kind)}", {" ".join(rng.choice(kind, 6))}\nand so on', name)
        for _ in range(30)
        for name, kind in words.items()
    ]
    path = tmp_path / "tickets"
    if form == "folder":
        for n, (text, name) in enumerate(rows):
            (path / name).mkdir(parents=True, exist_ok=True)
            (path / name / f"{n}.txt").write_text(text)
    else:
        path = tmp_path / "tickets.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    # A path that is longer than a line.
    learned = tmp_path / ("learned-" * 12)
    options = ("--n-features", 256, "--rank", 2, "--out")
    out = fitted(capsys, path, *options, learned, name="similarity").out
    assert "train s" in out.partition(f"rmopt serve {learned}")[0]
    index = opened(learned)
    assert isinstance(index, SimilarityIndex)
    results = TextSearch(index).find(QueryParams(urllib.parse.urlencode({"q": "invoice refund"})), 5).results
    assert all(any(word in result["text"] for word in words["bill"]) for result in results)
    if form == "file":
        path.write_text(path.read_text() + 'a secret text with " a quote,bill,more\n')
        said = fitted(capsys, path, *options, tmp_path / "again", name="similarity", code=2).err
        assert "secret" not in said
        assert "invoice" not in said


def test_limits_of_a_bundle_are_those_of_the_model(file: Path, tmp_path: Path) -> None:
    ratings = load(file)
    model = BiasedALS(2, lam=0.01, lam_effects=0.01, random_state=0).fit(ratings)
    pairs = np.argwhere(np.ones(ratings.shape)).T
    scores = model.predict(ratings.row_names[pairs[0]], ratings.column_names[pairs[1]])
    assert (scores.min(), scores.max()) == ratings.limits == (1.0, 5.0)
    with pytest.raises(InvalidInputError, match="limits are 1 and 5"):
        model.recommend_to_new({"Film 3": 10.0})
    model.save(tmp_path / "model.npz")
    assert BiasedALS.load(tmp_path / "model.npz").limits_ == (1.0, 5.0)
    assert BiasedALS(2, random_state=0).fit(ratings.table()).limits_ is None
    counts = np.bincount(ratings.rows)
    few = model.recommend("ann7", 30, min_support=25)
    assert {name for name, _ in few} <= set(ratings.row_names[counts >= 25])
    assert few == [one for one in model.recommend("ann7", 30) if one in few]


def test_rivals_of_lists_are_the_dense_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    R = np.where(rng.random((12, 9)) < 0.5, rng.integers(1, 6, (12, 9)), 0).astype(float)
    table = sp.csc_array(R)
    popular = MostPopular().fit(table)
    assert [name for name, _ in popular.recommend(4, 3)] == [
        row for row in np.argsort(-(R > 0).sum(axis=1), kind="stable") if R[row, 4] == 0
    ][:3]
    lengths = R.sum(axis=0) / R.sum(axis=0).mean()
    found = np.log1p(9 / (R > 0).sum(axis=1))[:, None] * R / (R + 1.2 * (0.25 + 0.75 * lengths))
    alike = found @ found.T
    np.fill_diagonal(alike, 0.0)
    alike[alike < np.sort(alike, axis=1)[:, [-3]]] = 0.0
    scores = alike @ found
    model = ItemNeighbors(n_neighbors=3).fit(table)
    rows, columns = np.indices(R.shape).reshape(2, -1)
    np.testing.assert_allclose(model.predict(rows, columns), scores.ravel(), rtol=1e-12)
    model.save(tmp_path / "model.npz")
    page: Any = opened(tmp_path)
    back = page.model
    assert back.recommend(4) == model.recommend(4)
    assert dict(back.similar(2, 3)) == pytest.approx({row: alike[2, row] for row in np.flatnonzero(alike[2])})
    named = {field: page.find(QueryParams(f"{field}=2"), 3).results for field in ("q", "like", "likes")}
    assert [item["name"] for item in named["q"]] == [name for name, _ in model.recommend(2, 3)]
    assert [item["name"] for item in named["like"]] == [name for name, _ in model.similar(2, 3)]
    assert len(named["likes"]) == 3
    again = dict(back.recommend_to_new({row: R[row, 4] for row in np.flatnonzero(R[:, 4]).tolist()}))
    assert again == pytest.approx(dict(model.recommend(4)))


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
