"""An agent's update beside one plain pass over its ratings plus its column solves.

Run with ``pytest -o addopts= -s tests/benchmarks/test_gossip_time.py``.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
from numba import njit
from threadpoolctl import threadpool_limits

from problems.data.sets import ml1m
from problems.subspace import MatrixCompletion
from rmopt import Problem
from rmopt.costs import GossipCost, Graph
from rmopt.manifolds import Grassmann, Product
from rmopt.retractions import GRASSMANN_RETRACTIONS
from rmopt.solvers import Gossip

RANK, AGENTS = 10, 5


@njit(fastmath=True)
def plain_update(indptr: Any, rows: Any, values: Any, U: Any, lam: float, W: Any, G: Any) -> None:
    """Solve each column, then add its part of the gradient; as one would write it down."""
    r = U.shape[1]
    A, b = np.empty((r, r)), np.empty(r)
    for j in range(indptr.shape[0] - 1):
        A[:] = 2.0 * lam * np.eye(r)
        b[:] = 0.0
        for t in range(indptr[j], indptr[j + 1]):
            u = U[rows[t]]
            for a in range(r):
                b[a] += values[t] * u[a]
                for c in range(r):
                    A[a, c] += (1.0 - 2.0 * lam) * u[a] * u[c]
        W[j] = np.linalg.solve(A, b)
        for t in range(indptr[j], indptr[j + 1]):
            i, z = rows[t], -values[t]
            for a in range(r):
                z += (1.0 - 2.0 * lam) * U[i, a] * W[j, a]
            for a in range(r):
                G[i, a] += z * W[j, a]


def test_an_update_on_movielens(measured: Any) -> None:
    """One update of an agent, MovieLens-1M, 5 agents, rank 10."""
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no MovieLens.")
    measured(updates)


def updates() -> list[dict[str, Any]]:
    bundle = ml1m()
    table = bundle.table(~bundle.held_out(0))
    table.data -= table.data.mean()
    tasks = MatrixCompletion(table, AGENTS, 0.005)
    manifold = Grassmann(tasks.n_rows, RANK)
    problem = Problem(Product([manifold] * AGENTS), GossipCost(tasks, Graph.path(AGENTS), 1e4, manifold))
    start = problem.manifold.random_point(np.random.default_rng(0))
    part, U = tasks.parts[1], start[1]
    W, G = np.empty((part.shape[1], RANK)), np.zeros_like(U)
    schedule = np.arange(40)[:, None] % (AGENTS - 1)
    times: dict[str, list[float]] = {}
    with threadpool_limits(1, user_api="blas"):
        plain_update(part.indptr, part.indices, part.data, U, 0.005, W, G)
        for _ in range(7):
            begun = time.perf_counter()
            plain_update(part.indptr, part.indices, part.data, U, 0.005, W, G)
            times.setdefault("plain", []).append(time.perf_counter() - begun)
            begun = time.perf_counter()
            tasks.agent_gradient(U, 1)
            times.setdefault("gradient", []).append(time.perf_counter() - begun)
            for name, retraction in GRASSMANN_RETRACTIONS.items():
                for preconditioned in (False, True):
                    solver = Gossip(1e-6, retraction=retraction, preconditioned=preconditioned)
                    engine = solver.engine(problem)
                    begun = time.perf_counter()
                    engine.advance(engine.load(start), schedule, np.full(40, 1e-6))
                    label = f"update, {name}" + (", preconditioned" if preconditioned else "")
                    times.setdefault(label, []).append((time.perf_counter() - begun) / 80)
    floor = float(np.median(times["plain"]))
    count = int(part.nnz)
    return [
        {
            "work": label,
            "ratings of the agent": count,
            "ms": 1e3 * seconds,
            "of the plain pass": seconds / floor,
        }
        for label, seconds in ((label, float(np.median(taken))) for label, taken in times.items())
    ]
