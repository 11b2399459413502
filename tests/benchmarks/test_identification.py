"""Manifold identification on digits: what its two forms reach, and what becomes of the rank.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_identification.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.data import load
from problems.evaluation import evaluate_retrieval
from problems.similarity.experiment import METHODS, unit_parts
from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.core import DivergedError
from rmopt.costs import TripletSum
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD, ManifoldIdentification, Solver

TRIPLETS, INNER = 50_000, 10


def outcome(bench: Any, solver: Solver) -> dict[str, Any]:
    """Return mean average precision and effective rank (Σσ)² / Σσ² at the end of a run."""
    problem = Problem(FixedRankEmbedded(64, 64, 10), TripletSum(bench.X, bench.X))
    try:
        point = solver.run(problem, problem.manifold.identity(), random_state=0).point
    except DivergedError as error:
        return {"diverged in round": error.step}
    sigma = point.singular_values()
    learner = METHODS["loreta"].made()
    learner.point_ = point
    found = evaluate_retrieval(learner.scores(bench.X_test), bench.y_test).map
    return {"mAP": found, "effective rank": float(sigma.sum() ** 2 / np.sum(sigma**2))}


def test_forms(measured: Any) -> None:
    """Digits, rank 10: LORETA-1, and rounds of one outer and ten inner steps (section 5 of the paper)."""
    measured(forms)


def forms() -> list[dict[str, Any]]:
    bench = unit_parts(load("digits"), False, 0, 0)
    rounds = ClassTriplets(bench.y, batch_size=1 + INNER)
    n_rounds = TRIPLETS // (1 + INNER)
    rows = [
        {"form": "LORETA-1", "steps": steps, "step size": 10.0}
        | outcome(bench, SGD(10.0, max_iter=steps, sampler=ClassTriplets(bench.y)))
        for steps in (TRIPLETS, n_rounds)
    ]
    for step_size, n_steps in ((10.0, n_rounds), (1.0, 60), (1.0, 200)):
        for form in ("paper", "gauge"):
            for inner_step_size in (0.01, 0.03, 0.3):
                solver = ManifoldIdentification(
                    step_size, inner_step_size=inner_step_size, inner_steps=INNER, inner=form, max_iter=n_steps,
                    sampler=rounds,
                )  # fmt: skip
                row = {"form": form, "steps": n_steps, "step size": step_size, "inner": inner_step_size}
                rows.append(row | outcome(bench, solver))
    return rows
