"""How far apart two runs of COMET end whose starts differ by rounding: W, and the cost, pass by pass.

Run with ``pytest -o addopts= -s tests/benchmarks/test_rounding.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.costs import LOSSES, LogDetTriplet
from rmopt.manifolds import PositiveDefinite
from rmopt.solvers import CoordinateDescent, ExactLineSearch

ROWS, PASSES = 300, (1, 3, 6)


@pytest.mark.parametrize("limit", [0.99, 0.5, 0.1])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
def test_starts_that_differ_by_rounding(loss: str, limit: float) -> None:
    """Digits, d = 64, a start off by 1e-15 of its length: a search that ends early keeps runs together."""
    X, y = load_digits(return_X_y=True)
    triplets = ClassTriplets(y[:ROWS]).draw(np.random.default_rng(0), 0, 20 * ROWS)
    cost = LogDetTriplet(X[:ROWS] / 16.0, triplets, LOSSES[loss], alpha=0.6, beta=0.06)
    problem, start = Problem(PositiveDefinite(64), cost), cost.best_multiple_of_identity()
    change = np.random.default_rng(5).standard_normal(start.shape)
    change = (change + change.T) * (1e-15 * np.linalg.norm(start) / np.linalg.norm(change + change.T))
    found = []
    with threadpool_limits(1):
        for passes in PASSES:
            solver = CoordinateDescent(passes, step_size=ExactLineSearch(limit), order="shuffled")
            one, other = (solver.run(problem, W, random_state=0).point for W in (start, start + change))
            costs = [cost.value(W) / len(triplets) for W in (one, other)]
            apart = np.linalg.norm(one - other) / np.linalg.norm(one), abs(costs[0] - costs[1]) / costs[0]
            found.append(f"{apart[0]:.0e}, {apart[1]:.0e} ({costs[0]:.3f})")
    print(f"\n{loss}, limit {limit}: {' | '.join(found)}")
    assert limit > 0.1 or apart[0] < 1e-12
