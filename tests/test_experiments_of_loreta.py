"""`rmopt run similarity-ranks`, `rmopt run ranking` and the methods of `rmopt run similarity`, end to end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from problems.similarity.ranks import similarity_ranks
from tabled import each_row

from problems.cells import Cells, mean_and_sem, whole_numbers
from problems.ranking.claims import ranking_claims
from problems.ranking.methods import METHODS as RANKING_METHODS
from problems.similarity.claims import rank_claims
from problems.similarity.methods import METHODS
from rmopt import InvalidInputError
from rmopt.cli import main
from rmopt.core import StorageError
from rmopt.experiments import Run

Command = Callable[..., SimpleNamespace]


@pytest.fixture
def rmopt(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, in this process."""

    def call(*arguments: str, code: int = 0) -> SimpleNamespace:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["run", *arguments])
        said = capsys.readouterr()
        assert int(ended.value.code or 0) == code, said.err
        return SimpleNamespace(stdout=said.out, stderr=said.err)

    return call


RANKS = ("similarity-ranks", "--ranks", "4,8", "--budget", "128", "--full-features", "16", "--splits", "2")
RANKING = ("ranking", "--ranks", "2,4", "--epochs", "1", "--splits", "2", "--no-select")


def test_similarity_ranks_and_its_resumption(tmp_path: Path, rmopt: Command) -> None:
    options = (*RANKS, "--triplets", "2000", "--out", str(tmp_path))
    done = rmopt(*options)
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    assert "LORETA is above passive-aggressive at every rank" in " ".join(done.stdout.split())
    result = json.loads((tmp_path / "result.json").read_text())
    rows = result["rows"]
    # Five methods at two ranks, two of full rank.
    assert len(rows) == 12
    assert all(row["features"] * row["rank"] == 128 for row in rows if row["method"] not in ("OASIS", "LEGO"))
    assert all(0.1 < row["map"] < 1 and row["map_sem"] > 0 for row in rows)
    assert len(result["claims"]) == 8
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
    lines = (tmp_path / "cells.jsonl").read_text().splitlines()
    assert len(lines) == 24
    # An interrupted run: half of the cells are missing.
    (tmp_path / "cells.jsonl").write_text("\n".join(lines[:12]) + "\n")
    rmopt(*options, "--resume")
    again = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert [row["map"] for row in again] == [row["map"] for row in rows]
    assert (tmp_path / "cells.jsonl").read_text().splitlines()[:12] == lines[:12]


def test_ranking_and_its_resumption(tmp_path: Path, rmopt: Command) -> None:
    options = (*RANKING, "--out", str(tmp_path))
    done = rmopt(*options)
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["rows"][0]["method"] == "label frequency"
    # Three methods with three starts at two ranks, two of full rank, and the frequency.
    assert len(result["rows"]) == 21
    assert len(result["claims"]) == 6
    assert (tmp_path / "ranking.png").read_bytes().startswith(b"\x89PNG")
    again = rmopt(*options, "--resume", "--json")
    assert json.loads(again.stdout)["rows"] == result["rows"]


def test_ranking_selects_step_sizes(tmp_path: Path, rmopt: Command) -> None:
    options = (
        "--methods",
        "loreta,pa",
        "--inits",
        "identity",
        "--ranks",
        "4",
        "--epochs",
        "1",
        "--splits",
        "0",
    )
    rows = json.loads(rmopt("ranking", *options, "--json", "--out", str(tmp_path)).stdout)["rows"]
    assert [row["method"] for row in rows] == ["label frequency", "LORETA-1", "passive-aggressive"]
    assert {"step_size": rows[1]["step_size"]} in RANKING_METHODS["loreta"].grid
    assert rows[1]["map"] > rows[0]["map"] + 0.1
    assert rows[1]["map_sem"] is None


def test_every_method_of_similarity_runs_by_name(tmp_path: Path, rmopt: Command) -> None:
    options = (
        "--methods",
        ",".join(METHODS),
        "--triplets",
        "300",
        "--rank",
        "4",
        "--json",
        "--out",
        str(tmp_path),
    )
    rows = json.loads(rmopt("similarity", *options).stdout)["rows"]
    assert [row["method"] for row in rows] == ["cosine", *(method.label for method in METHODS.values())]
    assert len({row["map"] for row in rows}) == len(rows)


def test_similarity_selects_step_sizes_and_keeps_other_settings(tmp_path: Path, rmopt: Command) -> None:
    options = ("--methods", "loreta,oasis", "--triplets", "500", "--retraction", "orthographic", "--select")
    result = json.loads(rmopt("similarity", *options, "--json", "--out", str(tmp_path)).stdout)
    chosen = result["parameters"]["step_sizes"]
    assert {"step_size": chosen["LORETA-1"]} in METHODS["loreta"].grid
    assert {"step_size": chosen["OASIS"]} in METHODS["oasis"].grid
    fixed = ("--step-size", str(chosen["LORETA-1"]), "--steps", f"oasis={chosen['OASIS']}")
    again = rmopt("similarity", *options[:-1], *fixed, "--json", "--out", str(tmp_path))
    rows = json.loads(again.stdout)["rows"]
    assert [row["map"] for row in rows] == [row["map"] for row in result["rows"]]
    plain = rmopt("similarity", *options[:4], *fixed, "--json", "--out", str(tmp_path))
    assert json.loads(plain.stdout)["rows"][1]["map"] != rows[1]["map"]


@each_row(
    ("arguments", "sentence"),
    [
        ((*RANKS, "--methods", "svm"), "--methods 'svm': svm is not known; choose from naive-gd"),
        ((*RANKS, "--budget", "1280"), "--budget 1280 gives rank 4 320 features, and digits has 64"),
        ((*RANKS, "--ranks", "20"), "rank = 20 is out of range"),
        ((*RANKS, "--ranks", "a"), "--ranks 'a' must be integers of at least 1"),
        ((*RANKS, "--splits", "0"), "--splits = 0 must be a positive integer"),
        ((*RANKS, "--data", "digits-labels"), "needs one whose loader returns a ClassBundle"),
        (
            (*RANKING, "--inits", "ones"),
            "--inits 'ones': ones is not known; choose from zero, identity, gaussian",
        ),
        ((*RANKING, "--ranks", "17"), "rank = 17 is out of range for 16 × 64 matrices"),
        ((*RANKING, "--epochs", "0"), "--epochs = 0 must be a positive integer"),
        ((*RANKING, "--methods", ","), "--methods ',': nothing is not known"),
        (
            ("similarity", "--steps", "oasis=1"),
            "must be NAME=VALUE with one of no method (chosen, and without",
        ),
        (("similarity", "--methods", "oasis", "--steps", "oasis=-1"), "and a positive number"),
        (
            ("similarity", "--methods", "loreta,oasis", "--steps", "loreta=1"),
            "with one of oasis (chosen, and",
        ),
        (("similarity", "--methods", "pa", "--compare", "rank=2,3"), "needs loreta among --methods"),
        (
            ("similarity", "--select", "--compare", "step-size=1,3"),
            "and no --select of the step sizes it compares",
        ),
    ],
)
def test_bad_options_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, rmopt: Command
) -> None:
    done = rmopt(*arguments, "--out", str(tmp_path), code=2)
    assert sentence in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_cells_survive_and_refuse_damage(tmp_path: Path) -> None:
    path, calls = tmp_path / "cells.jsonl", []

    def compute() -> dict:
        calls.append(1)
        return {"map": np.float64(0.1) + 0.2}

    cells = Cells(path, resume=False)
    first = cells.get({"b": 1, "a": 2}, compute)
    assert cells.get({"a": 2, "b": 1}, compute) == first == {"map": 0.30000000000000004}
    assert Cells(path, resume=True).get({"a": 2, "b": 1}, compute) == first
    assert len(calls) == 1
    whole = path.read_text()
    path.write_text(whole + whole[:20])
    # Half a line at the end, as a killed run leaves it, costs that cell alone.
    assert Cells(path, resume=True).get({"a": 2, "b": 1}, compute) == first
    assert len(calls) == 1
    assert path.read_text() == whole
    path.write_text("{]\n" + whole)
    with pytest.raises(StorageError, match=r"line 1 of .* is damaged"):
        Cells(path, resume=True)
    assert mean_and_sem([1.0, 3.0]) == (2.0, 1.0)
    assert mean_and_sem([1.0]) == (1.0, None)
    assert whole_numbers("5, 3,5", "--ranks") == [3, 5]
    with pytest.raises(InvalidInputError, match="--ranks '0' must be integers of at least 1"):
        whole_numbers("0", "--ranks")


def test_a_model_that_diverges_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wild = dataclasses.replace(METHODS["naive-gd"], estimator=METHODS["naive-gd"].made(step_size=1e3))
    monkeypatch.setitem(METHODS, "naive-gd", wild)
    outcome = similarity_ranks(
        Run("similarity-ranks", 0, tmp_path, quiet=True), methods="naive-gd,loreta", ranks="4,8", budget=128,
        triplets=1000, splits=2,
    )  # fmt: skip
    found = {(row["method"], row["rank"]): row["map"] for row in outcome.rows}
    assert found["naive gradient descent", 4] is None
    assert found["LORETA-1", 4] is not None
    verdicts = {claim.claim: claim.reproduced for claim in outcome.claims}
    assert verdicts["naive gradient descent is too unstable to present"] is True
    assert (tmp_path / "ranks.png").exists()


def test_claims_follow_the_numbers() -> None:
    def cell(value: float) -> list[dict]:
        return [{"map": value, "curve": [[10, value / 2], [100, value]]}]

    good = {
        ("loreta", 10): cell(0.5), ("loreta", 30): cell(0.7), ("loreta", 100): cell(0.6),
        ("pa", 10): cell(0.4), ("pa", 30): cell(0.5), ("pa", 100): cell(0.5), ("oasis", 1000): cell(0.65),
        ("loreta-psd", 30): cell(0.71),
    }  # fmt: skip
    verdicts = {claim.claim: claim.reproduced for claim in rank_claims(good)}
    assert list(verdicts.values()) == [True, None, None, None, True, True, True, True]
    bad = good | {("pa", 10): cell(0.85), ("loreta", 10): cell(0.8), ("oasis", 1000): cell(0.9)}
    assert [claim.reproduced for claim in rank_claims(bad)] == [
        False,
        None,
        None,
        None,
        True,
        False,
        False,
        True,
    ]
    lost = good | {("naive-gd", 10): [{"map": None, "curve": []}]}
    assert [claim.reproduced for claim in rank_claims(lost)][2:4] == [None, True]
    gone = good | {("loreta", 30): [{"map": None, "curve": []}]}
    assert [claim.numbers for claim in rank_claims(gone)][5:] == ["a model diverged"] * 3
    labels = {
        ("loreta", "identity", 2): cell(0.5), ("loreta", "zero", 2): cell(0.4), ("loreta", "identity", 8): cell(0.5),
        ("loreta", "zero", 8): cell(0.6), ("pa", "zero", 2): cell(0.3), ("pa", "zero", 8): cell(0.65),
        ("matrix-perceptron", "zero", 0): cell(0.45),
    }  # fmt: skip
    assert [claim.reproduced for claim in ranking_claims(labels, 0.55)] == [
        False,
        True,
        None,
        True,
        True,
        False,
    ]
