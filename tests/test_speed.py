"""Step times: the peers do what they say, and the experiment runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import oracles
import pytest
from tabled import each_row

from problems.speed.experiment import _growth
from problems.speed.peers import algorithm_4, touch_plain, touch_unrolled
from rmopt.cli import main


def test_the_peer_makes_the_step_of_theorem_3() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 4, 30))
    A_pinv, B_pinv = (np.linalg.pinv(factor.T) for factor in (A, B))
    p, q = rng.standard_normal(30), -0.1 * rng.standard_normal(30)
    expected = oracles.theorem_3(A.T @ B, np.outer(p, q), 4)
    algorithm_4(A, B, A_pinv, B_pinv, p, q, np.empty((4, 30)))
    np.testing.assert_allclose(A.T @ B, expected, atol=1e-11)
    np.testing.assert_allclose(A_pinv, np.linalg.pinv(A.T), atol=1e-11)


def test_the_floor_touches_what_a_step_touches() -> None:
    indptr, indices, values = np.array([0, 2, 4], np.int32), np.array([0, 3, 1, 4], np.int32), np.ones(4)
    for touch in (touch_plain, touch_unrolled):
        A, B = np.ones((6, 2)), np.ones((6, 2))
        touch(A, B, indptr, indices, values, np.array([0]), np.array([1]))
        assert set(np.flatnonzero((A != 1).any(axis=1))) == {0, 3}
        assert set(np.flatnonzero((B != 1).any(axis=1))) == {1, 4}


def test_growth_is_judged_against_the_floor() -> None:
    def row(n: int, ours: float, floor: float) -> dict:
        return {"method": "M", "features": n, "microseconds_per_step": ours, "floor_microseconds": floor}

    rows = [row(1000, 1.0, 1.0), row(10_000, 2.0, 1.0), row(10**6, 5.0, 2.0)]
    assert _growth(rows, "M").reproduced
    assert not _growth([*rows[:2], row(10**6, 5.5, 2.0)], "M").reproduced
    assert _growth(rows[:2], "M").reproduced is None


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["run", "sparse-speed", *arguments])
    return int(ended.value.code or 0)


def test_the_experiment_runs(tmp_path: Path) -> None:
    options = ("--sizes", "200,400", "--nonzeros", "10", "--rank", "3", "--steps", "500", "--repeats", "2")
    assert run(*options, "--out", str(tmp_path)) == 0
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert [(row["method"], row["features"]) for row in rows] == [
        (method, n) for n in (200, 400) for method in ("LORETA-1", "LORETA-1-PSD", "Algorithm 4")
    ]
    assert all(row["microseconds_per_step"] > 0 for row in rows)
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


@each_row(
    ("options", "sentence"),
    [
        (("--sizes", "10,x"), "--sizes '10,x' must be integers of at least 2"),
        (("--sizes", "50"), "--nonzeros = 100 must be an integer of at least 1 and at most 50"),
        (("--steps", "0"), "--steps = 0 must be a positive integer"),
        (("--sizes", "1000,100000000000"), "GiB are free; take smaller sizes"),
    ],
)
def test_bad_options_get_one_sentence(
    options: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options, "--out", str(tmp_path)) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
