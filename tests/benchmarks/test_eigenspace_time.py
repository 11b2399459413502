"""The leading eigenspace of a 2,000 × 2,000 matrix by trust regions, beside the products that it takes.

Run with ``pytest -o addopts= -s tests/benchmarks/test_eigenspace_time.py``.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pymanopt
from pymanopt.optimizers import TrustRegions

from rmopt import Problem
from rmopt.core import Cost
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Grassmann

M, R = 2000, 20


class Rayleigh(Cost):
    """−½ tr(UᵀAU); counts products, and does none twice at a point."""

    def __init__(self, A: np.ndarray) -> None:
        self.A, self.products = A, 0
        self._last: tuple[np.ndarray | None, np.ndarray | None] = (None, None)

    def _product(self, point: np.ndarray) -> np.ndarray:
        if self._last[0] is not point:
            self.products += 1
            self._last = (point, self.A @ point)
        assert self._last[1] is not None
        return self._last[1]

    def value(self, point: np.ndarray) -> float:
        return -0.5 * float(np.vdot(point, self._product(point)))

    def gradient(self, point: np.ndarray) -> np.ndarray:
        return -self._product(point)

    def hessian(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        self.products += 1
        return -(self.A @ direction)


def test_leading_eigenspace(measured: Any) -> None:
    """Grassmann(2000, 20), the leading eigenspace by trust regions."""
    rows = measured(eigenspace)
    assert all(row["error"] is None or row["error"] < 1e-8 for row in rows)


def eigenspace() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, M))
    A = (A + A.T) / np.sqrt(2 * M)
    manifold = Grassmann(M, R)
    start = manifold.random_point(rng)
    top = np.linalg.eigvalsh(A)[-R:].sum()
    rows = []
    for _ in range(3):
        cost = Rayleigh(A)
        begun = time.perf_counter()
        result = PymanoptSolver("TrustRegions", min_gradient_norm=1e-6).run(Problem(manifold, cost), start)
        seconds = time.perf_counter() - begun
        begun = time.perf_counter()
        for _ in range(cost.products):
            A @ start
        floor = time.perf_counter() - begun
        error = abs(2.0 * cost.value(result.point) + top) / top
        rows.append(
            {
                "manifold": "rmopt",
                "seconds": seconds,
                "products": cost.products,
                "the products, s": floor,
                "seconds / products": seconds / floor,
                "error": error,
            }
        )
    theirs = pymanopt.manifolds.Grassmann(M, R)
    wrap = pymanopt.function.numpy(theirs)
    problem = pymanopt.Problem(
        theirs,
        wrap(lambda U: -0.5 * np.vdot(U, A @ U)),
        euclidean_gradient=wrap(lambda U: -(A @ U)),
        euclidean_hessian=wrap(lambda U, xi: -(A @ xi)),
    )
    begun = time.perf_counter()
    found = TrustRegions(min_gradient_norm=1e-6, verbosity=0).run(problem, initial_point=start)
    seconds = time.perf_counter() - begun
    rows.append({"manifold": "pymanopt", "seconds": seconds, "error": abs(2.0 * found.cost + top) / top})
    return rows
