"""How far above the minimum COMET ends: at the boundary of the cone, and at the kinks of the hinge.

Run with ``pytest -o addopts= -s tests/benchmarks/test_boundary.py``.
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.costs import LOSSES, LogDetTriplet, OnFactors
from rmopt.manifolds import PositiveDefinite, PSDFactors
from rmopt.solvers import LBFGS, CoordinateDescent, Result

PASSES, SEEDS = (8, 500), range(10)
CONVEX: dict[str, Any] = {
    "hinge": lambda z: cp.sum(cp.pos(1 - z)),
    "squared_hinge": lambda z: 0.5 * cp.sum_squares(cp.pos(1 - z)),
    "logistic": lambda z: cp.sum(cp.logistic(-z)),
}


def instance(loss: str, kappa: float, seed: int) -> LogDetTriplet:
    """Return a cost of 40 triplets among 30 random unit rows of three classes, seven features."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((30, 7)), rng.integers(3, size=30)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    triplets = ClassTriplets(y).draw(rng, 0, 40)
    return LogDetTriplet(X, triplets, LOSSES[loss], alpha=0.3, beta=0.05, kappa=kappa)


def least(cost: LogDetTriplet, loss: str) -> float:
    """Return the least cost, by Clarabel."""
    (q, p, n), d = cost.triplets.T, cost.n_blocks
    W = cp.Variable((d, d), PSD=True)
    z = cp.sum(cp.multiply(cost.X[q] @ W, cost.X[p] - cost.X[n]), axis=1)
    barrier = cp.log_det(W + cost.kappa * np.eye(d))
    total = CONVEX[loss](z) - cost.alpha * barrier + 0.5 * cost.beta * cp.sum_squares(W)
    return float(cp.Problem(cp.Minimize(total)).solve(solver="CLARABEL"))


def rows_and_columns(cost: Any, passes: int) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the boundary
        solver = CoordinateDescent(passes, order="shuffled")
        d = cost.n_blocks
        return solver.run(Problem(PositiveDefinite(d), cost), np.eye(d), random_state=0)


def whole_gradients(cost: Any) -> tuple[np.ndarray, Result]:
    """Return W, of factors where it may be singular, and the run."""
    d, solver = cost.n_blocks, LBFGS(tol=1e-8)
    if cost.kappa == 0.0:
        found = solver.run(Problem(PositiveDefinite(d), cost), np.eye(d), random_state=0)
        return found.point, found
    found = solver.run(Problem(PSDFactors(d, d), OnFactors(cost)), np.eye(d), random_state=0)
    return found.point @ found.point.T, found


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # LBFGS says the same
@pytest.mark.parametrize("kappa", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("loss", CONVEX)
def test_ends_of_ten_small_instances(loss: str, kappa: float) -> None:
    """Per cent above the minimum, from the least to the largest of ten instances."""
    gaps, steps = [], []
    for seed in SEEDS:
        cost = instance(loss, kappa, seed)
        lowest = least(cost, loss)
        ends = [cost.value(rows_and_columns(cost, passes).point) for passes in PASSES]
        if loss != "hinge":
            W, found = whole_gradients(cost)
            ends.append(cost.value(W))
            steps.append(found.steps)
        gaps.append((np.array(ends) - lowest) / abs(lowest))
    low, high = 100.0 * np.min(gaps, axis=0), 100.0 * np.max(gaps, axis=0)
    told = ", ".join(f"{a:.2g} to {b:.3g}" for a, b in zip(low, high, strict=True))
    print(f"\n{loss}, kappa {kappa:g}: {told}" + (f" in {min(steps)} to {max(steps)} steps" if steps else ""))
    assert loss == "hinge" or max(high[-1], -low[-1]) < 1e-5


@pytest.mark.parametrize("alpha", [1e-3, 1e-4])
@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_ends_on_digits(alpha: float, kappa: float) -> None:
    """Digits, 300 rows, d = 64, 6,000 triplets, logistic loss: cost of a triplet, and seconds."""
    X, y = load_digits(return_X_y=True)
    triplets = ClassTriplets(y[:300]).draw(np.random.default_rng(0), 0, 6000)
    weights = {"alpha": 6000 * alpha, "beta": 0.06, "kappa": kappa}
    cost = LogDetTriplet(X[:300] / 16.0, triplets, LOSSES["logistic"], **weights)
    told = []
    runs = [(run.point, run) for run in (rows_and_columns(cost, passes) for passes in PASSES)]
    for W, found in (*runs, whole_gradients(cost)):
        told.append(f"{cost.value(W) / len(triplets):.5f} in {found.steps} steps, {found.seconds:.2g} s")
    print(f"\nalpha {alpha:g}, kappa {kappa:g}: {'; '.join(told)}")
    assert told
