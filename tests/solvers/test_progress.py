"""Bars on standard error: of runs, of streams whose end nobody knows, and of experiments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmopt import Problem, autograd_cost
from rmopt.experiments import Run
from rmopt.manifolds import Sphere
from rmopt.solvers import GradientDescent, Recorder
from rmopt.solvers.recorder import ProgressBar


def test_a_run_shows_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(Sphere(3), autograd_cost(lambda x: (x**4).sum()))
    recorder = Recorder(progress=True, description="descent")
    result = GradientDescent(max_iter=4, tol=0.0).run(problem, random_state=0, recorder=recorder)
    said = capsys.readouterr().err
    assert "descent" in said
    assert f"{result.steps}/4" in said


def test_a_bar_without_an_end_counts(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar("rows of the stream", 0, None)
    bar.advance(1200)
    bar.end()
    said = capsys.readouterr().err
    assert "rows of the stream" in said
    assert "1200/?" in said


def test_an_experiment_names_what_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Run("mine", 0, tmp_path).ticks("models", 2, "LORETA-1, seed 0") as tick:
        tick("OASIS, seed 0")
    said = capsys.readouterr().err
    assert "models" in said
    assert "OASIS, seed 0" in said
