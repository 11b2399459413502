"""Manifold identification on digits: what its two forms reach, and what becomes of the rank.

Run with ``pytest -o addopts= -s tests/benchmarks/test_identification.py``, a minute.
"""

from __future__ import annotations

from typing import Any

from problems.data import load
from problems.evaluation import evaluate_retrieval
from problems.similarity.experiment import METHODS, unit_parts
from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.core import DivergedError
from rmopt.costs import TripletSum
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD, ManifoldIdentification, Solver


def outcome(bench: Any, solver: Solver) -> dict[str, Any]:
    """Return mean average precision and effective rank (Σσ)² / Σσ² at the end of a run."""
    problem = Problem(FixedRankEmbedded(64, 64, 10), TripletSum(bench.X, bench.X))
    try:
        point = solver.run(problem, problem.manifold.identity(), random_state=0).point
    except DivergedError as error:
        return {"diverged in round": error.step}
    learner, sigma = METHODS["loreta"].made(), point.singular_values()
    learner.point_ = point
    found = evaluate_retrieval(learner.scores(bench.X_test), bench.y_test).map
    return {"mAP": found, "effective rank": float(sigma.sum() ** 2 / (sigma**2).sum())}


def test_forms(measured: Any) -> None:
    """Digits, rank 10: LORETA-1, and rounds of one outer and ten inner steps (section 5 of the paper)."""
    measured(forms)


def forms() -> list[dict[str, Any]]:
    bench, rows = unit_parts(load("digits"), False, 0, 0), []
    for steps in (50_000, 4_545):
        solver: Any = SGD(10.0, max_iter=steps, sampler=ClassTriplets(bench.y))
        rows.append(
            {"form": "LORETA-1", "steps": steps, "step size": 10.0, "inner": None} | outcome(bench, solver)
        )
    for step_size, steps in ((10.0, 4_545), (1.0, 60), (1.0, 200)):
        for form in ("paper", "gauge"):
            for inner in (0.01, 0.03, 0.3):
                how: Any = {"inner_step_size": inner, "inner_steps": 10, "inner": form, "max_iter": steps}
                solver = ManifoldIdentification(
                    step_size, **how, sampler=ClassTriplets(bench.y, batch_size=11)
                )
                row = {"form": form, "steps": steps, "step size": step_size, "inner": inner}
                rows.append(row | outcome(bench, solver))
    return rows
