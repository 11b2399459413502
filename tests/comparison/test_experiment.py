"""`rmopt run similarity` end to end."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cells_kept import cells_in
from real_data import real
from tabled import each_row

Command = Callable[..., SimpleNamespace]

METHODS = ("--methods", "cosine,naive-gd,pa,loreta")
DIGITS = ("similarity", "--data", "digits", "--seeds", "1", "--select", "none", "--rank", "6", *METHODS)


def test_the_default_data(tmp_path: Path, rmopt_run: Command) -> None:
    words = "--triplets 4000 --rank 6 --seeds 2 --select none --out"
    done = rmopt_run("similarity", *METHODS, *words.split(), str(tmp_path))
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    assert "\x1b" not in done.stdout
    assert "holds: (not in the paper) LORETA-1 is above cosine" in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert list(result) == ["experiment", "data", "parameters", "seed", "versions", "rows", "claims", "notes"]
    assert result["data"] == "scipy-docs"
    rows = {row["method"]: row for row in result["rows"]}
    assert list(rows) == ["cosine", "naive gradient descent", "passive-aggressive", "LORETA-1"]
    keys = ["method", "map", "map_sem", "precision_at_1", "precision_at_10", "train_seconds"]
    assert all(list(row) == keys for row in rows.values())
    assert rows["LORETA-1"]["map"] > rows["cosine"]["map"] + 0.02
    by_seed = pd.read_csv(tmp_path / "by_seed.csv")
    assert by_seed.seed.tolist() == [0] * 4 + [1] * 4
    assert by_seed["map"][3::4].mean() == pytest.approx(rows["LORETA-1"]["map"])
    assert (tmp_path / "learning-curves.png").read_bytes().startswith(b"\x89PNG")
    cells = cells_in(tmp_path)
    ours = next(one["result"] for one in cells if one["settings"]["method"] == "loreta")
    assert [step for step, _, _ in ours["curve"]] == [15, 30, 60, 120, 240, 480, 960, 1920, 3840, 4000]


def test_variants_side_by_side_and_resume(tmp_path: Path, rmopt_run: Command) -> None:
    arguments = (*DIGITS, "--triplets", "800", "--json", "--out", str(tmp_path))
    compare = ("--compare", "retraction=second-order,orthographic,metric-projection")
    rows = json.loads(rmopt_run(*arguments, *compare).stdout)["rows"]
    measured = {row["method"]: row["map"] for row in rows if row["method"].startswith("LORETA")}
    assert len(set(measured.values())) == len(measured) == 3
    again = json.loads(rmopt_run(*arguments, *compare, "--resume").stdout)["rows"]
    # Everything was finished: nothing is trained again, and even the times are the saved ones.
    assert again == rows
    reference = json.loads(rmopt_run(*arguments, "--compare", "engine=reference,compiled").stdout)["rows"]
    assert reference[-1]["map"] == pytest.approx(reference[-2]["map"], rel=1e-9)
    assert reference[-1]["map"] == pytest.approx(measured["LORETA-1, second-order"], rel=1e-9)


@each_row(
    ("arguments", "sentence"),
    [
        (("--rank", "65"), "--rank 65 is too large"),
        (("--compare", "colour=red"), "must be KEY=VALUE,VALUE, KEY one of retraction"),
        (("--compare", "retraction=none"), "retraction = 'none' is unknown"),
        (("--data", "news20", "--data-home", "no-such-folder"), "no-such-folder"),
    ],
)
def test_bad_options_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, rmopt_run: Command
) -> None:
    done = rmopt_run(*DIGITS, *arguments, "--out", str(tmp_path), code=2)
    assert sentence in done.stderr
    # What typer refuses itself has two lines of usage before.
    assert len(done.stderr.splitlines()) <= 2 or done.stderr.startswith("Usage: ")
    assert done.stdout == ""


@pytest.mark.slow
@real("news20_bydate_cai.npz")
def test_twenty_newsgroups(tmp_path: Path, rmopt_run: Command) -> None:
    options = ["--data", "news20", "--features", "16660", "--rank", "30", "--triplets", "600000"]
    options += ["--seeds", "0", "--select", "none"]
    result = json.loads(rmopt_run("similarity", *options, "--json", "--out", str(tmp_path)).stdout)
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["cosine"]["map"] == pytest.approx(0.22, abs=0.005)
    assert rows["LORETA-1"]["map"] >= 0.64
    assert rows["LORETA-1"]["map"] > rows["passive-aggressive"]["map"]
    assert np.isfinite(rows["naive gradient descent"]["map"])


def test_to_resume_needs_a_folder(rmopt_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--out FOLDER" in rmopt_run("similarity", "--resume", code=2).stderr


def test_few_calls_lead_from_texts_to_a_table(tmp_path: Path, rmopt_run: Command) -> None:
    """Python calls in both packages, of 400 texts and one method, that are not made once for all at import."""
    rng, words = random.Random(0), [f"word{number}" for number in range(600)]
    for kind in range(4):
        (tmp_path / "texts" / str(kind)).mkdir(parents=True)
        own = words[60 * kind : 60 * kind + 60]
        for number in range(100):
            text = " ".join(rng.choices(own, k=20) + rng.choices(words, k=40))
            (tmp_path / "texts" / str(kind) / f"{number}.txt").write_text(text)
    options = ("--methods", "loreta", "--seeds", "1", "--select", "none", "--triplets", "5000", "--quiet")
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        calls += event == "call" and package in ("rmopt", "problems")

    sys.setprofile(count)
    try:
        rmopt_run("similarity", "--data", str(tmp_path / "texts"), *options, "--out", str(tmp_path / "out"))
    finally:
        sys.setprofile(None)
    assert 500 < calls <= 5000
