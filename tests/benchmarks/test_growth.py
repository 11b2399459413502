"""How time and memory grow: features, non-zeros, rank, triplets, agents, columns and MPI processes.

Run with ``pytest -o addopts= -s tests/benchmarks/test_growth.py``. One thread, medians; the docs show the tables.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from step_times import StepTimes
from threadpoolctl import threadpool_limits
from timing import median

from problems.coembedding import CoembeddingClassifier
from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.core.points import packed
from rmopt.costs import LogDetTriplet, hinge
from rmopt.engines.choose import choose_coordinate_engine
from rmopt.kernels.row_column import EXACT
from rmopt.manifolds import PositiveDefinite
from rmopt.retractions import Additive


def megabytes(arrays: dict[str, Any]) -> float:
    return sum(np.asarray(part).nbytes for part in arrays.values()) / 1e6


def loreta(n: int, k: int, nnz: int) -> list[dict[str, Any]]:
    with threadpool_limits(1):
        times = StepTimes(n, k, nnz, steps=10_000)
        seconds = times.engine(psd=False)
        floor, _ = times.floor(psd=False)
    return [{
        "n = m": n, "k": k, "non-zeros": nnz, "a step, µs": 1e6 * seconds, "touch loop, µs": 1e6 * floor,
        "factors, MB": 16e-6 * n * k,
    }]  # fmt: skip


@pytest.mark.parametrize("n", [10**4, 10**5, 10**6, 10**7])
def test_loreta_features(measured: Any, n: int) -> None:
    """LORETA-1: a step against the number of features, rank 10, 100 non-zeros in p and in q."""
    measured(loreta, n, 10, 100)


@pytest.mark.parametrize("nnz", [10, 30, 100, 300, 1000])
def test_loreta_non_zeros(measured: Any, nnz: int) -> None:
    """LORETA-1: a step against the non-zeros in p and in q, 100,000 features, rank 10."""
    measured(loreta, 10**5, 10, nnz)


@pytest.mark.parametrize("k", [5, 10, 20, 50, 100])
def test_loreta_rank(measured: Any, k: int) -> None:
    """LORETA-1: a step against the rank, 100,000 features, 100 non-zeros in p and in q."""
    measured(loreta, 10**5, k, 100)


def comet(d: int, n_triplets: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, d)) * (rng.random((3000, d)) < 0.04)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    triplets = ClassTriplets(rng.integers(50, size=3000)).draw(rng, 0, n_triplets)
    cost = LogDetTriplet(sp.csr_array(X), triplets, hinge, alpha=1e-4 * n_triplets, beta=1e-5 * n_triplets)
    engine = choose_coordinate_engine(Problem(PositiveDefinite(d), cost), Additive(), "compiled", EXACT)
    schedule, etas = rng.integers(d, size=(40, 1)), np.full(40, 0.99)
    with threadpool_limits(1):
        state = [engine.advance(engine.load(cost.best_multiple_of_identity()), schedule, etas)]

        def steps() -> None:
            state[0] = engine.advance(state[0], schedule, etas)

        seconds, _ = median(steps, 5)
    return [{
        "d": d, "triplets": n_triplets, "a step, ms": 1e3 * seconds / 40,
        "W, its inverse and scratch, MB": megabytes(packed(state[0])),
    }]  # fmt: skip


@pytest.mark.parametrize("d", [250, 500, 1000, 2000, 4000])
def test_comet_features(measured: Any, d: int) -> None:
    """COMET: a coordinate step against the number of features, 10,000 triplets over 3,000 rows with 4 % non-zeros."""
    measured(comet, d, 10_000)


@pytest.mark.parametrize("triplets", [10_000, 30_000, 100_000, 300_000])
def test_comet_triplets(measured: Any, triplets: int) -> None:
    """COMET: a coordinate step against the number of triplets, 1,000 features."""
    measured(comet, 1000, triplets)


@pytest.mark.parametrize("rows", [500, 1000, 2000, 4000])
def test_coembedding_rows(measured: Any, rows: int) -> None:
    """Co-embedding: a fit to a certified gap of 1e-3 against the number of rows, 200 features, 10 labels, β = 5."""
    measured(coembedding, rows, 200)


@pytest.mark.parametrize("features", [100, 200, 400, 800])
def test_coembedding_features(measured: Any, features: int) -> None:
    """Co-embedding: the same against the number of features, 1,000 rows."""
    measured(coembedding, 1000, features)


def coembedding(rows: int, features: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = (X @ rng.standard_normal((features, 10)) + 0.5 * rng.standard_normal((rows, 10)) > 1.0).astype(int)
    Y[Y.sum(axis=1) == 0, 0] = 1
    seconds, model = median(lambda: CoembeddingClassifier(5.0, tol=1e-3).fit(X, Y))
    return [{"rows": rows, "features": features, "a fit, s": seconds, "rank": model.rank_}]


GOSSIP = """
import json, sys
sys.path.append(sys.argv.pop())
from low_rank_agents import low_rank_tasks
from threadpoolctl import threadpool_limits
from problems.subspace import GossipPlan, gossip
from rmopt.solvers import MPIWorld, World
m, columns, agents, steps, mpi = map(int, sys.argv[1:])
with threadpool_limits(1):
    world = MPIWorld() if mpi else World()
    tasks = low_rank_tasks(m, columns, 5, agents, world)
    plan = GossipPlan(1e3, "parallel", n_epochs=steps, init="independent", step_size=1e-5)
    found = gossip(tasks, 5, plan, 0, world=world)
    entries = int(world.total([sum(part.nnz for part in tasks.parts.values())])[0])
    if world.rank == 0:
        print(json.dumps([found.result.seconds, found.result.updates, entries, found.bytes, found.messages]))
"""


def gossiped(m: int, columns: int, agents: int, steps: int, processes: int = 0) -> dict[str, Any]:
    """Run agents in this many processes under MPI, or in one without it."""
    command = [sys.executable, "-c", GOSSIP, *map(str, (m, columns, agents, steps, min(processes, 1)))]
    command.append(str(Path(__file__).parents[1]))
    if processes:
        command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(processes), *command]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    seconds, updates, entries, bytes_sent, messages = json.loads(done.stdout)
    return {
        "agents": agents, "rows": m, "columns": columns, "entries": entries, "updates of agents": updates,
        "seconds": seconds, "an update, ms": 1e3 * seconds / updates,
        "ns an entry": 1e9 * seconds / updates / (entries / agents),
        "bytes a message": bytes_sent / messages if messages else None,
    }  # fmt: skip


@pytest.mark.parametrize("columns", [2_000, 20_000, 200_000])
def test_gossip_columns(measured: Any, columns: int) -> None:
    """Gossip: an agent's update against the columns of the matrix, 500 rows, rank 5, 6 agents."""
    measured(lambda: [gossiped(500, columns, 6, 30)])


@pytest.mark.parametrize("agents", [2, 10, 100, 1000])
def test_gossip_agents(measured: Any, agents: int) -> None:
    """Gossip: an agent's update against the number of agents, each with 100 columns of 500 rows, rank 5."""
    measured(lambda: [gossiped(500, 100 * agents, agents, 20)])


@pytest.mark.parametrize("processes", [1, 2])
def test_gossip_processes(measured: Any, processes: int) -> None:
    """Gossip over MPI: 6 agents, 5,000 × 50,000, rank 5, on a machine with two cores."""
    if not Path(sys.executable).with_name("mpiexec").exists():
        pytest.skip("mpiexec is not installed.")

    def best() -> list[dict[str, Any]]:
        runs = [gossiped(5000, 50_000, 6, 30, processes) for _ in range(3)]
        return [{"processes": processes} | sorted(runs, key=lambda run: run["seconds"])[1]]

    measured(best)
