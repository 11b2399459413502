"""Runs in single precision beside the same ones in double: CPU time of an evaluation, and peak memory.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_single_precision.py``. Costs compute in the precision of
the point; starts are the same, and so are the numbers of evaluations.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rmopt import Problem
from rmopt.core import Cost
from rmopt.manifolds import FixedRankEmbedded, Sphere
from rmopt.solvers import LBFGS, ConjugateGradient, MaxEvaluations, TrustRegions

KINDS = {"double": np.float64, "single": np.float32}


class Entries(Cost):
    """Squared errors at the entries of a matrix in CSR, in its precision."""

    def __init__(self, known: sp.csr_array) -> None:
        self.known, self.rows = known, np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))

    def _errors(self, point: Any) -> np.ndarray:
        US, errors = point.U @ point.S, -self.known.data
        for a in range(US.shape[1]):
            errors = errors + US[self.rows, a] * point.V[self.known.indices, a]
        return errors

    def value(self, point: Any) -> float:
        errors = self._errors(point)
        return 0.5 * float(errors @ errors)

    def gradient(self, point: Any) -> Any:
        return sp.csr_array(
            (self._errors(point), self.known.indices, self.known.indptr), shape=self.known.shape
        )


class Weighted(Cost):
    """½ Σ w x², with its second derivative."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    def value(self, x: np.ndarray) -> float:
        return 0.5 * float(x @ (self.weights * x))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.weights * x

    def hessian(self, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
        return self.weights * direction


def completion(dtype: type) -> tuple[Problem, Any]:
    rng, manifold = np.random.default_rng(0), FixedRankEmbedded(5000, 4000, 5)
    truth = manifold.random_point(rng)
    rows, columns = np.divmod(rng.choice(5000 * 4000, 1_000_000, replace=False), 4000)
    values = np.einsum("ij,ij->i", (truth.U @ truth.S)[rows], truth.V[columns]).astype(dtype)
    known = sp.csr_array((values, (rows, columns)), shape=(5000, 4000))
    return Problem(manifold, Entries(known)), manifold.random_point(1, dtype)


def sphere(dtype: type) -> tuple[Problem, Any]:
    manifold = Sphere(1_000_000)
    weights = np.linspace(1.0, 2.0, 1_000_000, dtype=dtype)
    return Problem(manifold, Weighted(weights)), manifold.random_point(0, dtype)


COMPLETION, SPHERE = "completion, 5,000 × 4,000, rank 5, 10⁶ entries", "sphere, n = 10⁶"


@pytest.mark.parametrize(
    "solver", [ConjugateGradient(), LBFGS(), TrustRegions()], ids=lambda one: type(one).__name__
)
def test_ten_evaluations(measured: Any, solver: Any) -> None:
    """Ten evaluations from one start: CPU time of one, the median of three runs, and the peak of the run's memory."""
    task, make = (COMPLETION, completion) if isinstance(solver, ConjugateGradient) else (SPHERE, sphere)
    measured(both, task, make, solver)


def both(task: str, make: Callable[[type], tuple[Problem, Any]], solver: Any) -> list[dict[str, Any]]:
    rows = {}
    for kind, dtype in KINDS.items():
        problem, start = make(dtype)

        def run(problem: Problem = problem, start: Any = start) -> Any:
            return solver.run(problem, start, random_state=0, stop=MaxEvaluations(10))

        with threadpool_limits(1):
            rows[kind] = {"problem": task, "solver": type(solver).__name__, "precision": kind, **spent(run)}
    return list(rows.values())


def spent(run: Callable[[], Any]) -> dict[str, Any]:
    result = run()
    seconds = []
    for _ in range(3):
        begun = time.process_time()
        result = run()
        seconds.append(time.process_time() - begun)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    run()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    counts = result.counts
    return {
        "evaluations": counts["costs"],
        "Hessian products": counts["hessians"],
        "an evaluation, ms": 1e3 * median(seconds) / counts["costs"],
        "peak, MiB": peak / 2**20,
        "cost at the end": float(f"{result.history[-1]['cost']:.4g}"),
    }
