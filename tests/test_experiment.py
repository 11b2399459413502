"""`rmopt run similarity` end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tabled import each_row

from problems.similarity import BilinearSimilarity
from rmopt.cli import main

Command = Callable[..., SimpleNamespace]

QUICK = ("--triplets", "4000", "--rank", "6")


@pytest.fixture
def rmopt(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, in this process."""

    def call(*arguments: str, code: int = 0) -> SimpleNamespace:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        assert int(ended.value.code or 0) == code, said.err
        return SimpleNamespace(stdout=said.out, stderr=said.err)

    return call


def test_the_default_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rmopt.cli", "run", "similarity", *QUICK, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert list(result) == ["experiment", "data", "parameters", "seed", "versions", "rows"]
    rows = {row["method"]: row for row in result["rows"]}
    assert list(rows) == ["cosine", "naive gradient descent", "passive-aggressive", "LORETA-1"]
    keys = ["method", "map", "precision_at_1", "precision_at_10", "train_seconds", "updates"]
    assert all(list(row) == keys for row in rows.values())
    assert rows["LORETA-1"]["map"] > rows["cosine"]["map"] + 0.02
    assert (tmp_path / "learning-curves.png").read_bytes().startswith(b"\x89PNG")
    log = [json.loads(line) for line in (tmp_path / "loreta-1.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log] == [0, 40, 80, 160, 320, 640, 1280, 2560, 4000]
    model = BilinearSimilarity.load(tmp_path / "loreta-1.npz")
    assert model.point.shape == (64, 64)
    assert model.about == {"steps": 4000, "updates": rows["LORETA-1"]["updates"]}


def test_variants_side_by_side_and_resume(tmp_path: Path, rmopt: Command) -> None:
    short = ("--triplets", "800", "--rank", "6", "--step-size", "3")
    arguments = ("run", "similarity", *short, "--json", "--out", str(tmp_path))
    compare = ("--compare", "retraction=second-order,orthographic,metric-projection")
    rows = json.loads(rmopt(*arguments, *compare).stdout)["rows"]
    measured = {row["method"]: row["map"] for row in rows if row["method"].startswith("LORETA")}
    assert len(set(measured.values())) == len(measured) == 3
    again = json.loads(rmopt(*arguments, *compare, "--resume").stdout)["rows"]
    # Everything was finished: nothing is trained again, and even the times are the saved ones.
    assert again == rows
    reference = json.loads(rmopt(*arguments, "--compare", "engine=reference,compiled").stdout)["rows"]
    assert reference[-1]["map"] == pytest.approx(reference[-2]["map"], rel=1e-9)
    assert reference[-1]["map"] == pytest.approx(measured["LORETA-1, second-order"], rel=1e-9)


@each_row(
    ("arguments", "sentence"),
    [
        (("--rank", "65"), "rank = 65 is out of range"),
        (("--features", "10", "--rank", "11"), "rank = 11 is out of range"),
        (("--compare", "colour=red"), "must be KEY=VALUE,VALUE with KEY one of retraction"),
        (("--compare", "rank=a,b"), "the values of rank must be numbers"),
        (("--retraction", "none"), "retraction = 'none' is unknown"),
        (("--data", "digit"), "digits"),
        (("--data", "news20", "--data-home", "no-such-folder"), "no-such-folder"),
        (("--step-size", "-1"), "must be a positive number"),
        (("--triplets", "0"), "--triplets = 0 must be a positive integer"),
        (("--engine", "gpu"), "engine = 'gpu' is unknown"),
    ],
)
def test_bad_options_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, rmopt: Command
) -> None:
    done = rmopt("run", "similarity", *arguments, "--out", str(tmp_path), code=2)
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path(os.environ.get("RMOPT_DATA_HOME", "absent")) / "news20_bydate_cai.npz").exists(),
    reason="needs the 20 Newsgroups file news20_bydate_cai.npz in the folder RMOPT_DATA_HOME",
)
def test_twenty_newsgroups(tmp_path: Path, rmopt: Command) -> None:
    options = ["--data", "news20", "--features", "16660", "--rank", "30", "--triplets", "600000"]
    result = json.loads(rmopt("run", "similarity", *options, "--json", "--out", str(tmp_path)).stdout)
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["cosine"]["map"] == pytest.approx(0.22, abs=0.005)
    assert rows["LORETA-1"]["map"] >= 0.64
    assert rows["LORETA-1"]["map"] > rows["passive-aggressive"]["map"]
    assert np.isfinite(rows["naive gradient descent"]["map"])
