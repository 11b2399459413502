"""Several workers beside one, in threads: quality after as many examples, and seconds.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_workers.py``, with RMOPT_DATA_HOME; and on a quiet machine
with 16 cores ``python tests/benchmarks/test_workers.py FILE``, some four minutes by estimate.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from problems.data import MultilabelBundle, load
from problems.data.text import informative_unit_rows
from problems.loreta import with_workers
from problems.ranking import LoretaLabelRanker, precision_at
from problems.similarity import LoretaSimilarity
from rmopt import Problem
from rmopt.costs import BilinearSum
from rmopt.kernels.meeting import meet
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD, Parallel

pytestmark = pytest.mark.skipif("RMOPT_DATA_HOME" not in os.environ, reason="RMOPT_DATA_HOME is not set.")


def newsgroups() -> tuple[Any, Any]:
    bundle = informative_unit_rows(load("news20"), 16_660, sublinear=True)
    X, y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.y))

    def fit(share: float, n_jobs: int, seed: int) -> Any:
        model = LoretaSimilarity(
            30, step_size=10.0, max_iter=int(600_000 * share), random_state=seed, n_jobs=n_jobs
        )
        return model.fit(X, y)

    return fit, lambda model: model.score(test, truth)


def delicious() -> tuple[Any, Any]:
    bundle = load("delicious", None, MultilabelBundle).scaled()
    X, Y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.Y))

    def fit(share: float, n_jobs: int, seed: int) -> Any:
        return LoretaLabelRanker(50, n_epochs=int(40 * share), random_state=seed, n_jobs=n_jobs).fit(X, Y)

    return fit, lambda model: precision_at(model.decision_function(test), truth, (1,))[1]


TASKS: dict[str, Any] = {"newsgroups": newsgroups, "delicious": delicious}


@pytest.mark.parametrize("task", TASKS)
def test_threads(measured: Any, task: str) -> None:
    """One thread and two, the same examples: quality (mAP; P@1 of labels), and seconds; medians of three seeds."""
    measured(threads, task)


def threads(
    task: str, counts: tuple[int, ...] = (1, 2), shares: tuple[int, ...] = (1,), seeds: int = 3
) -> list[Any]:
    """Return rows for so many threads, each after `shares` times the usual number of examples; seeds in turns."""
    fit, quality = TASKS[task]()
    found: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    for jobs in counts:
        fit(0.05, jobs, 0)
    for share, seed, jobs in itertools.product(shares, range(seeds), counts):
        begun = time.perf_counter(), time.process_time()
        model = fit(share, jobs, seed)
        ended = time.perf_counter(), time.process_time()
        times = [now - before for now, before in zip(ended, begun, strict=True)]
        # Quality is not what takes long examples; of these one seed tells it.
        known = quality(model) if share == 1 or seed == 0 else np.nan
        found.setdefault((share, jobs), []).append((*times, known))
        print(task, share, jobs, seed, found[share, jobs][-1], flush=True)
    rows = []
    for (share, jobs), kept in found.items():
        clock, cpu, known = np.nanmedian(kept, axis=0)
        alone = np.median(found[share, counts[0]], axis=0)[0]
        rows.append(
            {
                "task": task, "examples": f"{share} x", "threads": jobs, "clock, s": clock, "CPU, s": cpu,
                "one thread's clock over it": alone / clock, "quality": known,
            }
        )  # fmt: skip
    return rows


def test_a_round(measured: Any) -> None:
    """A mean of workers of 16,660 x 30 by one core, in milliseconds of CPU; what it reads and writes."""
    measured(a_round)


def a_round(workers: tuple[int, ...] = (2, 4, 8, 16)) -> list[dict[str, Any]]:
    problem, rows = (
        Problem(FixedRankEmbedded(16_660, 16_660, 30), BilinearSum(*np.eye(16_660, 2).T.reshape(2, 1, -1))),
        [],
    )
    for count in workers:
        engine: Any = Parallel(SGD(1.0), count).engine(problem)
        state = engine.load(problem.manifold.random_point(np.random.default_rng(0)))
        alone = replace(engine, engines=engine.engines[:1], shares=engine.shares)
        taken = []
        for _ in range(5):
            for own in state.own:
                for matrix in own.factors[:3]:
                    matrix[:, :30] *= 1.0 + 1e-3 * np.random.default_rng(count).random()
            shared = engine._shared(state)
            (meeting,) = alone._meetings(shared, [0])
            begun = time.process_time()
            assert meet(meeting)
            taken.append(1e3 * (time.process_time() - begun))
        size = sum(matrix.nbytes for one in shared for matrix in one) / 1e6
        each = np.median(taken) / count
        rows.append(
            {
                "workers": count,
                "MB read, and written": size,
                "CPU, ms": np.median(taken),
                "of each core": each,
            }
        )
    return rows


def test_many_workers(measured: Any) -> None:
    """Any number of workers: mean average precision on 20 Newsgroups after 600,000 triplets in all, one seed."""
    measured(many_workers)


def many_workers() -> list[dict[str, Any]]:
    fit, quality = newsgroups()
    rows = []
    for workers in (1, 2, 4, 8, 16):
        model = fit(1.0, workers, 0)
        trained = with_workers(SGD(1.0), workers)
        how = {"workers": workers, "longer steps": getattr(trained, "step_factor", 1.0)}
        rows.append({**how, "mAP": quality(model), "updates": model.n_updates_})
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    counts = tuple(count for count in (1, 2, 4, 8, 16) if count <= (os.cpu_count() or 1))
    rows = threads("newsgroups", counts, (1, 8), 2) + threads("delicious", counts, (1,), 2) + a_round()
    Path(sys.argv[1]).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for row in rows:
        print(row)
