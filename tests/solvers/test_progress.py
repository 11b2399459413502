"""Bars on standard error: of runs, of streams whose end nobody knows, and of experiments."""

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmopt import Problem, autograd_cost
from rmopt.core import InvalidInputError, MissingCapabilityError
from rmopt.costs import BilinearSum, squared
from rmopt.experiments import Run
from rmopt.manifolds import FixedRankEmbedded, Grassmann, Sphere, Stiefel
from rmopt.solvers import LBFGS, SGD, GradientDescent, MaxSteps, Recorder, TrustRegions
from rmopt.solvers.recorder import ProgressBar


def test_a_run_shows_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(Sphere(3), autograd_cost(lambda x: (x**4).sum()))
    recorder = Recorder(progress=True, description="descent")
    result = GradientDescent(max_iter=4, tol=0.0).run(problem, random_state=0, recorder=recorder)
    bar, end, _ = capsys.readouterr().err.split("\n")
    assert re.match(r"descent: cost [^,]*, gradient norm [^, ]* [^,…]* " + f"{result.steps}/4", bar)
    assert end == "not converged (the budget of 4 steps)"


def test_verbose_and_callback_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[dict[str, Any]] = []
    problem = Problem(Sphere(3), autograd_cost(lambda x: (x**4).sum()))
    result = GradientDescent(max_iter=4, tol=0.0).run(
        problem, random_state=0, callback=seen.append, verbose=True
    )
    assert seen == result.history
    assert f"{result.steps}/4" in capsys.readouterr().err
    # Solvers that do not see the cost tell where they are.
    pairs = BilinearSum(np.eye(3), np.eye(3), squared, np.ones(3))
    SGD(0.1, max_iter=50).run(
        Problem(FixedRankEmbedded(3, 3, 1), pairs), random_state=0, callback=seen.append
    )
    assert seen[-1]["step"] == 50


def test_a_callback_sees_each_row_once(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    problem = Problem(Sphere(3), autograd_cost(lambda x: (x**4).sum()))
    for last in (4, 8):
        recorder = Recorder({"least": lambda x: x.min()})
        result = GradientDescent(max_iter=last, tol=0.0).run(
            problem, random_state=0, checkpoint=tmp_path / "run.npz", recorder=recorder, callback=seen.append
        )
    assert seen == result.history
    pairs = Problem(FixedRankEmbedded(3, 3, 1), BilinearSum(np.eye(3), np.eye(3), squared, np.ones(3)))
    recorder, seen[:] = Recorder({"cost": pairs.value}, first=10), []
    ended = SGD(0.01, max_iter=10**7).run(
        pairs, random_state=0, recorder=recorder, stop=MaxSteps(70), callback=seen.append, verbose=True
    )
    assert seen == ended.history
    assert not recorder.progress


def test_results_are_shown() -> None:
    problem = Problem(Sphere(3), autograd_cost(lambda x: (x**4).sum()))
    figure, results = None, [GradientDescent(max_iter=steps).run(problem, random_state=0) for steps in (4, 5)]
    for result in results:
        figure = result.plot(figure, label=f"{result.steps} steps")
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2, 2]
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}
    for drawn, result in zip(figure.axes[0].lines, results, strict=True):
        assert drawn.get_ydata().tolist() == [row["cost"] - results[1].cost for row in result.history]
    assert figure.axes[3].lines[1].get_ydata().tolist() == [
        row["gradient_norm"] for row in results[1].history
    ]
    assert f"cost {results[0].cost:.6g}, 4 steps" in str(results[0])
    with pytest.raises(MissingCapabilityError, match="cost"):
        replace(results[0], history=[]).plot()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: LBFGS(verbose=True), "^LBFGS got an unexpected .*'verbose'; give verbose= to run.$"),
        (lambda: TrustRegions(callback=print), "^TrustRegions .*; give callback= to run.$"),
        (lambda: LBFGS(memori=3), "^LBFGS .*'memori'; it takes max_iter, tol, gradient_norm, .*threads.$"),
        (lambda: LBFGS().run(None, x0=[1.0]), "^LBFGS.run .*'x0'; the start is initial_point=.$"),
        (
            lambda: LBFGS().run(None, max_iter=10),
            "^LBFGS.run .*'max_iter'; max_iter is a parameter of LBFGS.$",
        ),
        (
            lambda: LBFGS().run(None, foo=10),
            "^LBFGS.run .*'foo'; it takes problem, initial_point, .*verbose.$",
        ),
        (lambda: Stiefel((6, 2)), r"^Stiefel missing .*'p'; give the entries of \(6, 2\) one by one.$"),
        (lambda: Grassmann(6, k=2), "^Grassmann missing .*'r'; it takes m, r, field.$"),
    ],
)
def test_calls_that_do_not_fit_are_explained(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        call()


def test_errors_from_within_a_constructor_stay() -> None:
    class Broken(Sphere):
        def __init__(self, n: int) -> None:
            super().__init__(n)
            len(n)

    with pytest.raises(TypeError, match="has no len"):
        Broken(3)
    assert [*inspect.signature(Stiefel).parameters][:2] == ["n", "p"]


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
