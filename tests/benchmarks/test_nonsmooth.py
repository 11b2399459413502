"""Costs with kinks: ProximalGradient, smoothing with L-BFGS, both in turn, and AugmentedLagrangian.

Seconds are those of one processor, the median of three runs.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from timing import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from nonsmooth_problems import completion, components, hyperplane, modes, nonnegative, smoothed, two_pieces

from rmopt import Problem
from rmopt.costs import L1, GroupL2, NonsmoothProblem
from rmopt.solvers import AugmentedLagrangian, GradientDescent, ProximalGradient

pytestmark = pytest.mark.slow

TIGHT = AugmentedLagrangian(tol=1e-9, max_violation=1e-9)


def timed(way: str, problem: Any, work: Any, error: Any = None) -> dict[str, Any]:
    """Return a row: seconds, value and how the run ended."""
    seconds, found = median(work, clock=time.process_time)
    value = problem.value(found.point)
    zeros = float(np.mean(found.point == 0.0)) if isinstance(found.point, np.ndarray) else None
    return {
        "way": way, "seconds": seconds, "value": value, "shown": f"{value:.9f}", "zeros": zeros,
        "error": None if error is None else float(error(found.point)), "steps": found.updates,
        "converged": found.converged, "ended by": found.stopped_by[:60],
    }  # fmt: skip


def on_frames(name: str, problem: Any, rounds: int, start: Any) -> list[dict[str, Any]]:
    """Return rows of sparse frames from a start."""

    def both() -> Any:
        return ProximalGradient().run(problem, smoothed(problem, start, 4))

    rows = [
        timed("ProximalGradient", problem, lambda: ProximalGradient().run(problem, start)),
        timed("ProximalGradient, to 1e-10", problem, lambda: ProximalGradient(tol=1e-10).run(problem, start)),
        timed(f"smoothing, {rounds} rounds", problem, lambda: smoothed(problem, start, rounds)),
        timed("smoothing, 4 rounds, then ProximalGradient", problem, both),
    ]
    return [{"problem": name, **row} for row in rows]


FRAMES = {
    "sparse PCA 100 x 4": (lambda: components(100, 4, 0.3), -11.738081000),
    "sparse PCA 1000 x 10": (lambda: components(1000, 10, 0.6, whole=False), -134.431568),
    "compressed modes 200 x 5": (lambda: modes(200, 5), 3.897296),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames(measured: Any, name: str) -> None:
    """Sparse frames by proximal gradients, by smoothing, and by both."""
    make, least = FRAMES[name]
    problem = make()
    start = problem.manifold.random_point(np.random.default_rng(1))
    direct, tight, smooth, both = measured(on_frames, name, problem, 6, start)
    assert both["value"] == pytest.approx(least, abs=1e-6 * abs(least))
    assert both["converged"]
    assert tight["converged"]
    assert min(direct["zeros"], both["zeros"]) > 0.3
    if name == "sparse PCA 100 x 4":
        assert direct["value"] == pytest.approx(least, abs=1e-9)
        assert direct["seconds"] <= 0.25 * smooth["seconds"]


def starts(problem: Any) -> list[dict[str, Any]]:
    rows = []
    for seed in range(10):
        start = problem.manifold.random_point(np.random.default_rng(seed))
        alone = ProximalGradient().run(problem, start)
        after = ProximalGradient().run(problem, smoothed(problem, start, 4))
        rows.append({
            "seed": seed, "alone": problem.value(alone.point), "steps": alone.steps,
            "after smoothing": problem.value(after.point), "steps after": after.steps,
        })  # fmt: skip
    return rows


def test_ten_starts(measured: Any) -> None:
    """Sparse PCA 100 × 4 from ten random points."""
    rows = measured(starts, components(100, 4, 0.3))
    assert all(row["after smoothing"] <= row["alone"] + 1e-8 for row in rows)
    assert max(row["after smoothing"] for row in rows) == pytest.approx(-11.738081, abs=1e-7)


def steps(h: Any) -> list[dict[str, Any]]:
    """Return seconds of runs from eight points in turns, and of their steps."""
    smooth = components(100, 4, 0.3)
    problem = NonsmoothProblem(smooth.manifold, smooth.cost, h)
    fixed = 0.5 / np.linalg.norm(smooth.cost.A, 2)
    ways = {
        "ProximalGradient": (ProximalGradient(), problem),
        "fixed t": (ProximalGradient(step_size=fixed), problem),
        "GradientDescent, f alone": (
            GradientDescent(max_iter=150, tol=0.0),
            Problem(problem.manifold, problem.cost),
        ),
    }
    rows = {way: {"way": way, "seconds": 0.0, "steps": 0} for way in ways}
    for seed in range(1, 9):
        start = problem.manifold.random_point(np.random.default_rng(seed))
        for way, (solver, of) in ways.items():
            seconds, found = median(
                lambda solver=solver, of=of, start=start: solver.run(of, start), 3, time.process_time
            )
            rows[way]["seconds"] += seconds
            rows[way]["steps"] += found.steps
    for row in rows.values():
        row["µs a step"] = 1e6 * row["seconds"] / row["steps"]
        row["times ours"] = row["seconds"] / rows["ProximalGradient"]["seconds"]
    return [{"h": type(h).__name__, **row} for row in rows.values()]


@pytest.mark.parametrize("h", [L1(0.3), GroupL2(0.6)], ids=["L1", "GroupL2"])
def test_steps(measured: Any, h: Any) -> None:
    """Sparse PCA 100 × 4 from eight points: sizes of steps that are found, a fixed one, and steps without kinks."""
    ours, fixed, plain = measured(steps, h)
    assert fixed["seconds"] >= 1.5 * ours["seconds"]
    assert ours["µs a step"] <= 4.0 * plain["µs a step"]


def compositions(name: str) -> list[dict[str, Any]]:
    start: Any
    if name == "robust subspace":
        problem, normal, start = hyperplane()

        def error(x: Any) -> Any:
            return min(np.linalg.norm(x - normal), np.linalg.norm(x + normal))
    elif name == "l1 completion 300 x 200":
        problem, exact = completion(300, 200, 4, 0.25, 0.1)
        start = problem.manifold.random_point(np.random.default_rng(1))

        def error(x: Any) -> Any:
            return np.linalg.norm(problem.manifold.to_dense(x) - exact) / np.linalg.norm(exact)
    elif name == "total variation":
        problem, least = two_pieces()
        start = problem.manifold.random_point(np.random.default_rng(1))

        def error(x: Any) -> Any:
            return abs(problem.value(x) - least)
    else:
        problem, point = nonnegative(200)
        start = problem.manifold.random_point(np.random.default_rng(0))

        def error(x: Any) -> Any:
            return abs(problem.value(x) - problem.value(point))

    rows = [
        timed("AugmentedLagrangian", problem, lambda: TIGHT.run(problem, start), error),
        timed("smoothing, 8 rounds", problem, lambda: smoothed(problem, start, 8), error),
    ]
    return [{"problem": name, **row} for row in rows]


LIMITS = {
    "robust subspace": 1e-9, "l1 completion 300 x 200": 1e-8, "total variation": 1e-6, "nonnegative PCA": 1e-8
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_compositions(measured: Any, name: str) -> None:
    """Kinks and bounds of functions of the point, against what is known."""
    exact, _ = measured(compositions, name)
    assert exact["error"] <= LIMITS[name]
    assert exact["converged"]
