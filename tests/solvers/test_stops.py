"""Criteria that end runs: when they do, what they look at, and that resumed runs count on."""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from descent_parts import PLACES, B, Quadratic
from tabled import each_row

import rmopt
from rmopt import InvalidInputError, Problem, autograd_cost
from rmopt.core import FiniteSum
from rmopt.core.cost import as_sum
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Euclidean, Sphere
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaptiveCubics,
    Backtracking,
    Below,
    Checkpoint,
    ConjugateGradient,
    GradientDescent,
    GradientNorm,
    MaxEvaluations,
    MaxSeconds,
    MaxSteps,
    NotFinite,
    Recorder,
    SmallChange,
    SmallStep,
    Stagnation,
    TrustRegions,
)

Array = np.ndarray


def test_a_resumed_run_counts_steps_from_its_first_part(tmp_path: Path) -> None:
    problem, solver = Problem(Sphere(5), as_sum(Quadratic())), SGD(0.01, max_iter=2000)
    whole = solver.run(problem, random_state=0, stop=MaxSteps(400))
    checkpoint = Checkpoint(tmp_path / "run.npz", every_seconds=0)
    solver.run(problem, random_state=0, stop=MaxSteps(150), checkpoint=checkpoint)
    resumed = solver.run(problem, random_state=0, stop=MaxSteps(400), checkpoint=checkpoint)
    assert (whole.steps, resumed.steps) == (400, 400)
    np.testing.assert_array_equal(whole.point, resumed.point)


def test_a_criterion_of_pymanopt_s_run_is_asked_as_others() -> None:
    solver = PymanoptSolver(max_iterations=5)
    with pytest.raises(InvalidInputError, match="stop returned False"):
        solver.run(Problem(Sphere(5), Quadratic()), random_state=0, stop=lambda rows: False)  # type: ignore[arg-type,return-value]


VALLEY = Problem(
    Euclidean(2, 1), rmopt.autograd_cost(lambda x: 100 * (x[1, 0] - x[0, 0] ** 2) ** 2 + (1 - x[0, 0]) ** 2)
)


@each_row("criterion", [SmallChange(1e-8), SmallStep(1e-8), Stagnation(3)])
def test_a_refused_step_is_no_small_one(criterion: Any) -> None:
    start = np.array([[-1.2], [1.0]])
    for solver in (TrustRegions(), AdaptiveCubics()):
        plain = solver.run(VALLEY, start)
        assert len({row["updates"] for row in plain.history}) < len(plain.history), "no step was refused"
        assert solver.run(VALLEY, start, stop=criterion).history[-1]["cost"] < 1e-10


def test_criteria_that_are_combined_must_give_reasons_too() -> None:
    for stop in (MaxSteps(2) & (lambda rows: False), MaxSteps(9) | (lambda rows: True)):
        with pytest.raises(InvalidInputError, match=r"stop returned (False|True); it must return a reason"):
            GradientDescent().run(VALLEY, random_state=1, stop=stop)


class Slow(FiniteSum):
    """Terms that take a while."""

    n_terms, delay = 10, 0.0

    def value(self, point: Array) -> float:
        return float(point[0])

    def term_gradient(self, point: Array, terms: Array) -> Array:
        time.sleep(self.delay)
        return np.array([len(terms) / 10, terms.sum() / 50, 0.0, 0.0])


def test_criteria_are_not_combined_by_words() -> None:
    for combined in (lambda: MaxSteps(3) or MaxSeconds(60), lambda: MaxSteps(3) and MaxSeconds(60)):
        with pytest.raises(InvalidInputError, match="not by `or` and `and`"):
            combined()


def test_so_many_steps_are_so_many_whatever_the_clock_says() -> None:
    ends = []
    for delay in (0.0, 0.002):
        cost = Slow()
        cost.delay = delay
        for stop in (MaxSteps(70), MaxSteps(70) | MaxSteps(90)):
            ends.append(SGD(0.05, max_iter=10**5).run(Problem(Sphere(4), cost), random_state=0, stop=stop))
    assert {end.steps for end in ends} == {70}
    for end in ends[1:]:
        np.testing.assert_array_equal(end.point, ends[0].point)
    recorded = SGD(0.05).run(
        Problem(Sphere(4), Slow()),
        random_state=0,
        stop=MaxSteps(70),
        recorder=rmopt.solvers.Recorder({"x": np.max}),
    )
    assert (recorded.steps, recorded.history[-1]["step"]) == (70, 70)


QUADRATIC = PLACES["euclidean"][0]


def stopped(criterion: Any, solver: Any = None, recorder: Recorder | None = None) -> Any:
    chosen = GradientDescent(Backtracking(), tol=1e-9) if solver is None else solver
    return chosen.run(QUADRATIC, random_state=0, stop=criterion, recorder=recorder)


@each_row(
    "criterion, says, converged",
    [
        (MaxSteps(3), "3 steps", False),
        (MaxSeconds(0.0), "0 seconds", False),
        (MaxEvaluations(7), "7 costs", False),
        (MaxEvaluations(4, "gradients"), "4 gradients", False),
        (GradientNorm(1e-2), "a gradient of length", True),
        (GradientNorm(1e-2, relative=True), "a gradient of length", True),
        (Below(1e-3), "cost ", True),
        (Below(1.0, "gradient_norm"), "gradient_norm ", True),
        (SmallChange(0.5), "a change of the cost by", False),
        (SmallStep(1e-2), "a step of length", False),
        (Stagnation(1, "step_size"), "no better step_size in 1 rows", False),
        (MaxSteps(2) | GradientNorm(1e-3), "2 steps", False),
        (GradientNorm(1e-2) | MaxSteps(900), "a gradient of length", True),
        (MaxSteps(2) & GradientNorm(1e-2), "steps and a gradient of length", False),
        (Below(1e-2) & GradientNorm(1e-1), "cost .* and a gradient of length", True),
        (MaxSteps(2) | (lambda rows: "mine"), "mine", False),
        ((MaxSteps(2) & (lambda rows: "mine")), "2 steps and mine", False),
        (lambda rows: "mine" if len(rows) == 4 else None, "mine", False),
    ],
)
def test_stop_criteria(criterion: Any, says: str, converged: bool) -> None:
    result = stopped(criterion)
    assert re.search(says, result.stopped_by), result.stopped_by
    assert result.converged is converged
    rows = result.history
    assert criterion(rows) is not None
    assert len(rows) == result.steps + 1
    # Not before it was time, and what it says lets the run be told from another end.
    assert result.steps == 0 or criterion(rows[:-1]) is None
    states = list(
        GradientDescent(Backtracking(), tol=1e-9).iterate(QUADRATIC, random_state=0, stop=criterion)
    )
    assert states[-1].steps == result.steps


def test_stop_criteria_look_at_metrics_and_are_values() -> None:
    distance = Recorder({"distance": lambda point: float(np.abs(point - B).max())}, first=1, ratio=1.1)
    assert stopped(Below(1e-2, "distance"), recorder=distance).converged
    assert MaxSteps(2) | Below(1.0) == MaxSteps(2) | Below(1.0) != MaxSteps(3) | Below(1.0)
    assert NotFinite()([{"cost": float("nan")}]) == "cost nan"
    assert NotFinite()([{"cost": 1.0}]) is None


def test_a_criterion_of_the_gradient_takes_the_place_of_the_default_tolerance() -> None:
    A = np.diag(np.arange(1.0, 31.0))
    problem = Problem(Sphere(30), autograd_cost(lambda x: 0.5 * x @ A @ x))
    wanted = GradientNorm(1e-11) | MaxSeconds(60)
    for solver in (LBFGS(), ConjugateGradient(), TrustRegions()):
        alone, beside = (solver.run(problem, random_state=0, stop=stop) for stop in (MaxSeconds(60), wanted))
        assert alone.history[-1]["gradient_norm"] > 1e-11
        assert beside.converged
        assert beside.history[-1]["gradient_norm"] <= 1e-11
    # A tolerance that was given is meant.
    early = LBFGS(tol=1e-2).run(problem, random_state=0, stop=wanted)
    assert early.history[-1]["gradient_norm"] > 1e-8
