"""Conjugate gradients with one thread of numpy's BLAS and with two, each in a process of its own.

A pool whose number of threads was changed leaves threads behind that wait. On a machine that others use the second
thread may cost more than it brings: a load above 2 tells of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from batch_problems import Counted
from timing import median

from rmopt import Problem
from rmopt.manifolds import Grassmann, PositiveDefinite, Sphere, Stiefel
from rmopt.solvers import ConjugateGradient

pytestmark = pytest.mark.slow

# About how long a run takes, in seconds, and how often each setting is measured, in turns.
SECONDS, ROUNDS = 4.0, 3


def quadratic(manifold: Any, weights: Any = 1.0) -> Problem:
    """Return ½ tr XᵀAXN, with a dense A."""
    rng, n = np.random.default_rng(0), manifold.shape[0]
    A = rng.standard_normal((n, n))
    A = (A + A.T) / np.sqrt(n)

    def both(X: Any) -> tuple[float, Any]:
        G = (A @ X) * weights
        return 0.5 * float(np.vdot(X, G)), G

    return Problem(manifold, Counted(both, None))


def likelihood(manifold: Any) -> Problem:
    """Return tr W⁻¹C + log det W, whose minimum is C."""
    C = manifold.random_point(np.random.default_rng(0))

    def both(W: Any) -> tuple[float, Any]:
        inverse = np.linalg.inv(W)
        return float(np.vdot(inverse, C) + np.linalg.slogdet(W)[1]), inverse - inverse @ C @ inverse

    return Problem(manifold, Counted(both, None))


PROBLEMS = {
    "Grassmann(3000, 20)": lambda: quadratic(Grassmann(3000, 20)),
    "Grassmann(6000, 50)": lambda: quadratic(Grassmann(6000, 50)),
    "Stiefel(2000, 50)": lambda: quadratic(Stiefel(2000, 50), np.arange(50, 0, -1.0)),
    "PositiveDefinite(60)": lambda: likelihood(PositiveDefinite(60)),
    "Sphere(1000)": lambda: quadratic(Sphere(1000)),
}


def run(name: str) -> dict[str, Any]:
    """Return milliseconds of an iteration in this process, its threads, and the cost after some iterations."""
    problem = PROBLEMS[name]()
    start = problem.manifold.random_point(np.random.default_rng(1))

    def after(steps: int) -> Any:
        return ConjugateGradient(max_iter=steps, tol=0.0).run(problem, start, random_state=0)

    first = after(5)
    # From the minimum on iterations are others.
    steps = int(np.clip(5 * SECONDS / ROUNDS / first.seconds, 5, 40))
    seconds, last = median(lambda: after(steps))
    return {"ms": 1e3 * seconds / last.steps, "threads": first.threads, "cost": first.cost}


def compared(name: str) -> list[dict[str, Any]]:
    """Return the medians of processes with one and with two threads, in turns."""
    found: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for threads, each in found.items():
            numbers = dict.fromkeys(
                ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)
            )
            words = [sys.executable, __file__, name]
            out = subprocess.run(words, env=os.environ | numbers, capture_output=True, text=True, check=True)
            each.append(json.loads(out.stdout))
    one, two = (float(np.median([run["ms"] for run in each])) for each in found.values())
    return [{
        "problem": name, "1 thread, ms": one, "2 threads, ms": two, "1 thread / 2": one / two,
        "threads": [each[0]["threads"] for each in found.values()],
        "costs apart": abs(found[1][0]["cost"] / found[2][0]["cost"] - 1.0), "load": os.getloadavg()[0],
    }]  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_threads(measured: Any, name: str) -> None:
    """Milliseconds of clock time an iteration of conjugate gradients."""
    for row in measured(compared, name):
        assert row["costs apart"] < 1e-9


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
