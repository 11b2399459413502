"""`rmopt run similarity` with several ranks, `rmopt run ranking`, and the choice of their parameters, end to end."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from cells_kept import cells_in
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, label_ranking_average_precision_score
from sklearn.multiclass import OneVsRestClassifier
from tabled import each_row

from problems.comparison import Row
from problems.data import load
from problems.options import ranks_within
from problems.ranking.experiment import METHODS as RANKING_METHODS
from problems.ranking.experiment import Ranking, ranking_claims
from problems.similarity.experiment import METHODS, Similarity, similarity_claims
from rmopt import InvalidInputError
from rmopt.experiments import Claim, Run

Command = Callable[..., SimpleNamespace]

DIGITS = ("similarity", "--data", "digits", "--select", "none")
RANKS = (*DIGITS, "--rank", "4,8", "--features", "32,16", "--seeds", "2")
WORDS = "ranking --data digits-labels --rank 2,4 --epochs 1 --seeds 2 --select none"
RANKING = tuple(WORDS.split())


def test_ranks_at_equal_memory_and_their_resumption(tmp_path: Path, rmopt_run: Command) -> None:
    names = "naive-gd,pa,loreta,loreta-psd,oasis,lego"
    options = (*RANKS, "--methods", names, "--triplets", "2000", "--out", str(tmp_path))
    done = rmopt_run(*options)
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    assert "LORETA-1 is above passive-aggressive (rank 4: " in " ".join(done.stdout.split())
    result = json.loads((tmp_path / "result.json").read_text())
    rows = result["rows"]
    # Four methods at two ranks; two of full rank, with the least features.
    assert len(rows) == 10
    ranked = [row for row in rows if row["method"] not in ("OASIS", "LEGO")]
    assert all(row["features"] * row["rank"] == 128 for row in ranked)
    assert all((row["features"], row["rank"]) == (16, None) for row in rows if row not in ranked)
    assert all(0.1 < row["map"] < 1 and row["map_sem"] > 0 for row in rows)
    # Above each of four, and two of the positive semidefinite form.
    assert len(result["claims"]) == 6
    assert (tmp_path / "learning-curves.png").read_bytes().startswith(b"\x89PNG")
    files = sorted(tmp_path.glob("cells/**/output.pkl"))
    assert len(cells_in(tmp_path)) == len(files) - 1 == 20
    # An interrupted run: half of the cells are missing, and one is damaged.
    for file in files[:12]:
        shutil.rmtree(file.parent)
    files[12].write_bytes(b"no pickle")
    times = [file.stat().st_mtime_ns for file in files[13:]]
    rmopt_run(*options, "--resume")
    again = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert [row["map"] for row in again] == [row["map"] for row in rows]
    assert [file.stat().st_mtime_ns for file in files[13:]] == times


def test_ranking_and_its_resumption(tmp_path: Path, rmopt_run: Command) -> None:
    names = "frequency,low-rank-logistic,loreta,loreta-warp,pa,matrix-perceptron,group-perceptron"
    words = "--seeds 1 --inits zero,gaussian --methods"
    options = (*RANKING, *words.split(), names, "--out", str(tmp_path))
    done = rmopt_run(*options)
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["rows"][0]["method"] == "label frequency"
    # Three methods with two starts at two ranks, one without starts, two of full rank, and the frequency.
    assert len(result["rows"]) == 17
    found = {row["method"]: row for row in result["rows"]}["low-rank logistic"]
    assert 0.5 < found["precision_at_5"] < found["precision_at_3"] < found["precision_at_1"] < 1.0
    assert 0.5 < found["ndcg_at_5"] < 1.0
    # Above each of four.
    assert len(result["claims"]) == 4
    assert (tmp_path / "ranking.png").read_bytes().startswith(b"\x89PNG")
    again = rmopt_run(*options, "--resume", "--json")
    assert json.loads(again.stdout)["rows"] == result["rows"]


def test_baselines_of_ranking_are_scikit_learns(tmp_path: Path, rmopt_run: Command) -> None:
    rmopt_run(*RANKING, "--methods", "ridge,one-vs-rest", "--seeds", "0", "--out", str(tmp_path))
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    part = load("digits-labels").scaled()
    X, Y = part.X, part.Y.toarray()
    logistic = OneVsRestClassifier(LogisticRegression(C=10.0, solver="liblinear"))
    peers = (
        Ridge(1.0).fit(X[part.train], Y[part.train]).predict(X),
        logistic.fit(X[part.train], Y[part.train]).decision_function(X),
    )
    for row, scores in zip(rows, peers, strict=True):
        expected = label_ranking_average_precision_score(Y[part.test], scores[part.test])
        assert row["map"] == pytest.approx(expected, rel=1e-6)


@each_row("n_features", [3, 30])
def test_ridge_is_scikit_learns_by_features_or_by_rows(n_features: int) -> None:
    X, Y = np.split(np.random.default_rng(0).standard_normal((10, n_features + 2)), [n_features], axis=1)
    found = RANKING_METHODS["ridge"].made().fit(sp.csr_array(X), sp.csr_array(Y)).decision_function(X)
    np.testing.assert_allclose(found, Ridge(1.0).fit(X, Y).predict(X), rtol=1e-9)


def test_labels_that_no_training_row_has_come_last() -> None:
    X = np.array([[-1.0], [1.0], [0.5]])
    Y = np.column_stack([X > 0, np.zeros(3), X < 0]).astype(int)
    model = RANKING_METHODS["svm"].made().fit(X, sp.csr_array(Y))
    assert np.argmin(model.decision_function(X), axis=1).tolist() == [1, 1, 1]


def test_tools_that_are_missing_are_named(rmopt_run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omikuji", None)
    said = rmopt_run(*RANKING, "--methods", "omikuji", code=2).stderr
    assert "pip install 'rmopt[bench]', or leave out omikuji" in " ".join(said.split())


def test_a_tool_for_many_labels_ranks_them() -> None:
    pytest.importorskip("omikuji", reason="needs the extra [bench].")
    part = load("digits-labels").scaled()
    X, Y = sp.csr_array(part.X), part.Y
    model = RANKING_METHODS["omikuji"].made().fit(X[part.train], Y[part.train])
    scores = model.decision_function(X[part.test])
    assert label_ranking_average_precision_score(Y[part.test].toarray(), scores) > 0.9


def test_ranking_selects_step_sizes(tmp_path: Path, rmopt_run: Command) -> None:
    words = "--methods frequency,loreta,pa --inits identity --rank 4 --seeds 1"
    options = (*RANKING, *words.split())
    options += ("--select", "first", "--folds", "2", "--json", "--out", str(tmp_path))
    result = json.loads(rmopt_run(*options).stdout)
    rows, used = result["rows"], result["parameters"]["used"]
    methods = ["label frequency", "LORETA-1, identity", "passive-aggressive, identity"]
    assert [row["method"] for row in rows] == methods
    assert used["label frequency"] == [{}]
    for name in ("loreta", "pa"):
        (chosen,) = used[f"{RANKING_METHODS[name].label}, identity"]
        assert chosen.keys() == RANKING_METHODS[name].grid[0].keys()
    # Another step size than that of a run without cross-validation.
    assert used["LORETA-1, identity"] != [RANKING_METHODS["loreta"].defaults]
    assert rows[1]["map"] > rows[0]["map"] + 0.1
    assert "map_sem" not in rows[1]


def test_every_method_of_similarity_runs_by_name(tmp_path: Path, rmopt_run: Command) -> None:
    options = ("--methods", ",".join(METHODS), "--triplets", "300", "--rank", "4", "--seeds", "1", "--json")
    rows = json.loads(rmopt_run(*DIGITS, *options, "--out", str(tmp_path)).stdout)["rows"]
    labels = [one.label + " (Python)" * (name == "polar") for name, one in METHODS.items()]
    assert [row["method"] for row in rows] == labels
    assert len({row["map"] for row in rows}) == len(rows)


def test_no_seeds_are_the_published_split(tmp_path: Path, rmopt_run: Command) -> None:
    """The table is that of rows which were split by hand, and says that there was one split."""
    quick = ("--data", "digits", "--methods", "cosine", "--seeds", "0", "--out", str(tmp_path))
    said = rmopt_run("similarity", *quick)
    assert "its own split" in said.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    bundle = load("digits")
    rows = bundle.X[bundle.test] / np.linalg.norm(bundle.X[bundle.test], axis=1, keepdims=True)
    labels, found = bundle.y[bundle.test], []
    for number, row in enumerate(rows):
        others = np.arange(len(rows)) != number
        found.append(average_precision_score(labels[others] == labels[number], (rows @ row)[others]))
    assert result["rows"][0]["map"] == pytest.approx(np.mean(found), rel=1e-9)
    assert "map_sem" not in result["rows"][0]
    assert result["parameters"]["published"] is True
    random = json.loads(rmopt_run("similarity", *quick, "--seeds", "1", "--json").stdout)
    assert random["rows"][0]["map"] != result["rows"][0]["map"]

    quick = ("--methods", "frequency", "--seeds", "0", "--json", "--out", str(tmp_path))
    result = json.loads(rmopt_run("ranking", "--data", "digits-labels", *quick).stdout)
    part = load("digits-labels")
    Y, counts = part.Y.toarray(), part.Y[part.train].sum(axis=0)
    expected = label_ranking_average_precision_score(Y[part.test], np.tile(counts, (part.test.sum(), 1)))
    assert result["rows"][0]["map"] == pytest.approx(expected, rel=1e-9)
    assert result["parameters"]["published"] is True


def test_usual_ranks_are_lowered_to_what_fits_and_others_refused() -> None:
    said: list[str] = []
    assert ranks_within(said.append, "", "3,5", 5) == ranks_within(said.append, "5,3", "9", 5) == [3, 5]
    assert not said
    assert ranks_within(said.append, "", "3,5,7,9", 4) == [3, 4]
    assert said[0] == "--rank is 3,4: these data have no rank above 4."
    with pytest.raises(InvalidInputError, match="--rank 9 is too large for these data; choose 1 to 4"):
        ranks_within(said.append, "3,9", "5", 4)


def test_ranking_takes_a_rank_that_a_start_at_zero_reaches(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "few.npz", X=rng.random((40, 6)), Y=(rng.random((40, 4)) < 0.5).astype(int))
    few = Ranking(data=str(tmp_path / "few.npz"), methods="loreta", select="none", seeds=1, epochs=1)
    assert {row["rank"] for row in few(run).rows} == {3}


def test_similarity_of_a_single_feature(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", X=np.arange(20.0)[:, None], y=np.arange(20) // 10)
    found = Similarity(data=str(tmp_path / "one.npz"), methods="cosine", seeds=1)(run)
    assert [row["method"] for row in found.rows] == ["cosine"]


def test_a_model_that_diverges_does_not_stop_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wild = dataclasses.replace(METHODS["naive-gd"], estimator=METHODS["naive-gd"].made(step_size=1e3))
    monkeypatch.setitem(METHODS, "naive-gd", wild)
    small = {"rank": "4,8", "triplets": 1000, "seeds": 2, "select": "none"}
    outcome = Similarity(data="digits", methods="naive-gd,loreta", **small)(run)
    found = {(row["method"], row["rank"]): row["map"] for row in outcome.rows}
    assert found["naive gradient descent", 4] is None
    assert found["LORETA-1", 4] is not None
    verdicts = {claim.claim: claim.reproduced for claim in outcome.claims}
    assert verdicts["LORETA-1 is above naive gradient descent"] is None
    assert run.path("learning-curves.png").exists()


def test_claims_of_similarity_follow_the_numbers() -> None:
    def verdicts(**changes: float | None) -> dict[str, bool | None]:
        rows = []
        for place, value in (GOOD | changes).items():
            name, rank = place.rsplit("_", 1)
            curve = [] if value is None else [[10, 0.1, value / 2], [100, 0.2, value]]
            cells = [{"map": value, "seconds": value, "curve": curve}]
            rows.append(Row(METHODS[name].label, {"method": name, "rank": int(rank) or None}, [], cells))
        return {claim.claim: claim.reproduced for claim in similarity_claims(rows)}

    GOOD: dict[str, float | None] = {
        "loreta_10": 0.5, "loreta_30": 0.7, "pa_10": 0.4, "pa_30": 0.5, "oasis_0": 0.45, "loreta-psd_30": 0.71,
    }  # fmt: skip
    pa, oasis = "LORETA-1 is above passive-aggressive", "LORETA-1 is above OASIS"
    slightly, faster = (
        "LORETA-1-PSD is slightly above LORETA-1",
        "LORETA-1-PSD learns faster than LORETA-1 in the first 50,000 triplets",
    )
    assert verdicts() == {pa: True, oasis: True, slightly: True, faster: True}
    assert verdicts(pa_10=0.55, oasis_0=0.6) == {pa: False, oasis: False, slightly: True, faster: True}
    assert verdicts(loreta_30=None) == {pa: None, oasis: None, slightly: None, faster: None}
    assert verdicts(**{"loreta-psd_30": 0.69})[slightly] is False


def test_claims_of_ranking_follow_the_numbers() -> None:
    def claims(**changes: float | None) -> list[Claim]:
        rows = []
        for place, value in (LEVELS | changes).items():
            name, init, rank = place.split("_")
            label = ", ".join(filter(None, [RANKING_METHODS[name].label, init]))
            settings = {"method": name, "variant": init, "rank": int(rank) or None}
            rows.append(Row(label, settings, [], [{"map": value, "seconds": value}]))
        return ranking_claims(rows)

    LEVELS: dict[str, float | None] = {
        "frequency__0": 0.55, "loreta_identity_2": 0.5, "loreta_zero_2": 0.4, "loreta_identity_8": 0.5,
        "loreta_zero_8": 0.6, "pa_zero_2": 0.3, "pa_zero_8": 0.65, "matrix-perceptron__0": 0.45,
    }  # fmt: skip
    assert {claim.claim: claim.reproduced for claim in claims()} == {
        "LORETA-1 is above label frequency, each with its best start": False,
        "LORETA-1 is above passive-aggressive, each with its best start": False,
        "LORETA-1 is above Matrix Perceptron, each with its best start": True,
    }
    assert claims(pa_zero_8=0.59)[1].reproduced is True
    # The best start of a rank is not one that diverged.
    found = claims(pa_zero_8=0.59, loreta_zero_8=None)
    assert [claim.reproduced for claim in found] == [False, False, True]
