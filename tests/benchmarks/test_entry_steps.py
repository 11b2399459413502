"""Steps on single entries beside LIBMF's.

LIBMF takes part when it is installed; that of the package index uses SSE, and LIBMF_OBJ names another build.

Run with ``pytest -o addopts= -s tests/benchmarks/test_entry_steps.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from problems.data import Ratings, load
from problems.subspace.als import _units
from rmopt import Problem
from rmopt.core import Parts
from rmopt.costs import BilinearSum, OnFactors, squared
from rmopt.manifolds import BoundedRank
from rmopt.solvers import ScaledSGD

Array = np.ndarray
WANTED = 1e-6


def problem_of(rows: Array, columns: Array, values: Array, rank: int, kind: Any) -> Problem:
    m, n = rows.max() + 1, columns.max() + 1
    return Problem(
        kind(m, n, rank),
        OnFactors(BilinearSum(_units(rows, m), _units(columns, n), squared, values)),
    )


def ill_conditioned(
    m: int, n: int, rank: int, oversampling: float, condition: float
) -> tuple[Array, Array, Array]:
    """Return entries of a random matrix whose singular values fall exponentially."""
    rng = np.random.default_rng(0)
    A = np.linalg.qr(rng.standard_normal((m, rank)))[0] * m**0.5 * np.geomspace(1.0, 1.0 / condition, rank)
    B = rng.standard_normal((n, rank))
    cells = rng.choice(m * n, int(oversampling * rank * (m + n - rank)), replace=False)
    rows, columns = np.divmod(cells, n)
    return rows, columns, np.einsum("ij,ij->i", A[rows], B[columns])


def theirs(triples: Array, k: int, threads: int, clock: Callable[[], float]) -> float:
    """Return LIBMF's seconds per update: of more passes without those of fewer, so that no preparation counts."""
    from libmf.mf import MF

    taken: dict[int, list[float]] = {2: [], 8: []}
    for count in 3 * list(taken):
        begun = clock()
        MF(
            k=k, nr_iters=count, nr_threads=threads, quiet=True, eta=0.05, lambda_p1=0.0, lambda_q1=0.0,
            lambda_p2=0.05, lambda_q2=0.05,
        ).fit(triples)  # fmt: skip
        taken[count].append(clock() - begun)
    return (min(taken[8]) - min(taken[2])) / 6 / len(triples)


def ours(problem: Any, k: int, dtype: Any, clock: Callable[[], float]) -> float:
    """Return seconds per update, with the balancing of the factors."""
    rng = np.random.default_rng(0)
    sides = [0.1 * rng.standard_normal((size, k)) for size in problem.manifold.sizes]
    start = Parts([side.astype(dtype) for side in sides])
    marks = []
    for _ in ScaledSGD(1.0, n_epochs=8, penalty=0.04).iterate(problem, start, random_state=0):
        marks.append(clock())
    return float(np.min(np.diff(marks))) / len(problem.cost.cost.targets)


@pytest.mark.parametrize("threads", [1, 2])
def test_updates(measured: Any, threads: int) -> None:
    """Nanoseconds per update, preparation left out: CPU time on one thread, elapsed time on two."""
    pytest.importorskip("libmf")
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no MovieLens.")
    measured(updates, threads)


def updates(threads: int) -> list[dict[str, Any]]:
    ml1m = load("ml1m", kind=Ratings)
    sets = {
        "MovieLens-1M": (ml1m.rows, ml1m.columns, ml1m.values - ml1m.values.mean()),
        "condition 1e4": ill_conditioned(16_000, 12_000, 5, 6, 1e4),
    }
    clock = time.process_time if threads == 1 else time.perf_counter
    before, found = numba.get_num_threads(), []
    numba.set_num_threads(threads)
    for name, (rows, columns, values) in sets.items():
        triples = np.column_stack([rows, columns, values])
        for k in (8, 16, 32, 64):
            problem = problem_of(rows, columns, values, k, BoundedRank)
            row = {
                "data": name,
                "k": k,
                "threads": threads,
                "LIBMF": 1e9 * theirs(triples, k, threads, clock),
            }
            for kind, dtype in (("single", np.float32), ("double", np.float64)):
                row[kind] = 1e9 * ours(problem, k, dtype, clock)
                row[f"{kind} / LIBMF"] = row[kind] / row["LIBMF"]
            found.append(row)
    numba.set_num_threads(before)
    return found
