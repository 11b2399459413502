"""Tensor completion: manifolds of tensors beside a product of the same arrays, with the same compiled cost.

Run with ``pytest -o addopts= -s tests/benchmarks/test_tensors.py``.
"""

import time
from typing import Any

import numpy as np
import pytest
from timing import median

from rmopt import Problem
from rmopt.core import Parts, TrainPoint, TuckerPoint
from rmopt.costs import EntrySum
from rmopt.manifolds import Euclidean, FixedMultilinearRank, Product, Stiefel, TensorTrain
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, MaxSteps, TrustRegions

N, RANK, MOST = 60, 4, 500
SHAPE = (N, N, N)


@pytest.mark.parametrize("share", [0.102, 0.034])
def test_completion(measured: Any, share: float) -> None:
    """Entries of 60 × 60 × 60 tensors of rank 4, from the HOSVD of those seen; CPU seconds of one thread."""
    rows = measured(completion, share)
    own = {(row["manifold"], row["solver"]): row for row in rows}
    for (name, _), row in own.items():
        assert name == "Product" or row["error"] <= 1e-7
    steps = own["FixedMultilinearRank", "ConjugateGradient"]["steps"]
    assert steps <= (40 if share > 0.1 else 100)
    if share > 0.1:
        assert own["Product", "ConjugateGradient"]["times ours"] >= 10.0


def completion(share: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    places = np.stack(np.unravel_index(rng.choice(N**3, int(share * N**3), replace=False), SHAPE), axis=1)
    core, *factors = (rng.standard_normal(size) for size in [(RANK,) * 3, *[(N, RANK)] * 3])
    tucker = TuckerPoint(core / RANK**1.5, tuple(factors))
    cores = [rng.standard_normal(size) for size in ((1, N, RANK), (RANK, N, RANK), (RANK, N, 1))]
    train = TrainPoint((cores[0], cores[1] / RANK**0.5, cores[2] / RANK**0.5))
    product = Product([Euclidean(*[RANK] * 3), *[Stiefel(N, RANK)] * 3])
    rows, ours = [], 0.0
    for manifold, truth in (
        (FixedMultilinearRank(SHAPE, (RANK,) * 3), tucker),
        (product, tucker),
        (TensorTrain(SHAPE, (RANK,) * 2), train),
    ):
        name, whole = type(manifold).__name__, truth.as_ambient().toarray()
        cost = EntrySum(SHAPE, places, truth.entries(places))
        begin: Any = FixedMultilinearRank(SHAPE, (RANK,) * 3) if manifold is product else manifold
        start = begin.from_entries(places, truth.entries(places))
        if manifold is product:
            start = Parts(start.parts)
        for kind in (ConjugateGradient, GradientDescent, LBFGS, TrustRegions):
            if kind is TrustRegions and manifold is product:
                continue
            solver, problem = kind(tol=1e-9), Problem(manifold, cost)
            seconds, found = median(
                lambda: solver.run(problem, start, stop=MaxSteps(MOST)),  # noqa: B023
                1 if manifold is product else 3,
                time.process_time,
            )
            X = found.point
            X = TuckerPoint(X[0], X.parts[1:]) if manifold is product else X
            if (name, kind) == ("FixedMultilinearRank", ConjugateGradient):
                ours = seconds
            rows.append({
                "seen": share, "manifold": name, "solver": kind.__name__, "steps": found.steps, "seconds": seconds,
                "times ours": seconds / ours,
                "error": float(np.linalg.norm(X.as_ambient().toarray() - whole) / np.linalg.norm(whole)),
                "converged": found.converged,
            })  # fmt: skip
    return rows
