"""Manifold identification on digits: what its two forms reach, and what becomes of the rank.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_identification.py``.
"""

from __future__ import annotations

import numpy as np

from problems.datasets import load
from problems.similarity.bench import Bench, prepared
from problems.similarity.methods import METHODS
from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.core import DivergedError
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD, ManifoldIdentification, Solver

TRIPLETS, INNER = 50_000, 10


def outcome(bench: Bench, solver: Solver) -> str:
    """Return mean average precision and effective rank (Σσ)² / Σσ² at the end of a run."""
    problem = Problem(FixedRankEmbedded(64, 64, 10), bench.cost)
    try:
        point = solver.run(problem, problem.manifold.identity(), random_state=0).point
    except DivergedError as error:
        return f"diverged at step {error.step}"
    sigma = point.singular_values()
    found = bench.measured(METHODS["loreta"], point).map
    return f"mAP {found:.3f}, effective rank {sigma.sum() ** 2 / np.sum(sigma**2):.1f}"


def test_forms() -> None:
    bench = Bench(prepared(load("digits"), 0, -1), TRIPLETS, 0)
    rounds = ClassTriplets(bench.y, batch_size=1 + INNER)
    n_rounds = TRIPLETS // (1 + INNER)
    print(
        f"\nLORETA-1, {TRIPLETS} triplets: {outcome(bench, SGD(10.0, n_steps=TRIPLETS, sampler=bench.sampler))}"
    )
    print(
        f"its {n_rounds} outer steps alone: {outcome(bench, SGD(10.0, n_steps=n_rounds, sampler=bench.sampler))}"
    )
    for step_size, n_steps in ((10.0, n_rounds), (1.0, 60), (1.0, 200)):
        for form in ("paper", "gauge"):
            for inner_step_size in (0.01, 0.03, 0.3):
                solver = ManifoldIdentification(
                    step_size, inner_step_size=inner_step_size, inner_steps=INNER, inner=form, n_steps=n_steps,
                    sampler=rounds,
                )  # fmt: skip
                print(
                    f"{form}, {n_steps} rounds, {step_size:g} and {inner_step_size}: {outcome(bench, solver)}"
                )
