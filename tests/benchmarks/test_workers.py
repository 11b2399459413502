"""Several workers beside one, in threads: quality after as many examples, and seconds.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_workers.py``, with RMOPT_DATA_HOME; and on a quiet machine
with 16 cores ``python tests/benchmarks/test_workers.py FILE``, some four minutes by estimate: with data like those of
the benchmarks where RMOPT_DATA_HOME is not set. Numbers after FILE are those of threads.
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from problems.data import MultilabelBundle, load
from problems.data.text import informative_unit_rows
from problems.loreta import with_workers
from problems.ranking import LoretaLabelRanker, precision_at
from problems.similarity import LoretaSimilarity
from problems.triplets import ClassTriplets
from rmopt.solvers import SGD
from rmopt.solvers.threads import in_threads

DATA = "RMOPT_DATA_HOME" in os.environ
pytestmark = pytest.mark.skipif(not DATA, reason="RMOPT_DATA_HOME is not set.")


def made(topics: Any, columns: int, words: int) -> Any:
    """Return a row of words for each topic: by Zipf's law, and one of eight in an order of the topic's own."""
    rng, shape = np.random.default_rng(columns), (len(topics), words)
    place = (columns ** rng.random(shape)).astype(int) - 1
    orders = rng.permuted(np.tile(np.arange(columns), (topics.max() + 1, 1)), axis=1)
    found = np.where(rng.random(shape) < 0.12, orders[topics[:, None], place], place).ravel()
    counts = np.ones(found.size), found, np.arange(0, found.size + 1, words)
    table = sp.csr_array(counts, shape=(len(topics), columns))
    table.sum_duplicates()
    return table


def documents() -> tuple[Any, Any, Any]:
    """Return words of 20 Newsgroups, groups and which are for training; made ones where there are no data."""
    if DATA:
        bundle = informative_unit_rows(load("news20"), 16_660, sublinear=True)
        return bundle.X, bundle.y, bundle.train
    y = np.random.default_rng(0).integers(20, size=18_846)
    X = TfidfTransformer(sublinear_tf=True).fit_transform(made(y, 16_660, 110))
    return X, y, np.arange(len(y)) < 11_314


def tagged() -> tuple[Any, Any, Any]:
    """Return features of Delicious, labels and which are for training; made ones where there are no data."""
    if DATA:
        bundle = load("delicious", None, MultilabelBundle).scaled()
        return bundle.X, bundle.Y, bundle.train
    topics = np.random.default_rng(0).integers(50, size=16_105)
    X, Y = normalize(made(topics, 500, 22)), (made(topics, 983, 22) > 0).astype(float)
    return X, Y, np.arange(len(topics)) < 12_920


def newsgroups() -> tuple[Any, Any]:
    X, y, train = documents()

    def fit(share: float, n_jobs: int, seed: int) -> Any:
        model = LoretaSimilarity(
            30, step_size=10.0, max_iter=int(600_000 * share), random_state=seed, n_jobs=n_jobs
        )
        return model.fit(X[train], y[train])

    return fit, lambda model: model.score(X[~train], y[~train])


def delicious() -> tuple[Any, Any]:
    X, Y, train = tagged()

    def fit(share: float, n_jobs: int, seed: int) -> Any:
        model = LoretaLabelRanker(50, n_epochs=int(40 * share), random_state=seed, n_jobs=n_jobs)
        return model.fit(X[train], Y[train])

    return fit, lambda model: precision_at(model.decision_function(X[~train]), Y[~train], (1,))[1]


TASKS: dict[str, Any] = {"newsgroups": newsgroups, "delicious": delicious}


@pytest.mark.parametrize("task", TASKS)
def test_threads(measured: Any, task: str) -> None:
    """One thread, two, and two fits at once, the same examples: quality (mAP; P@1) and seconds, medians of five."""
    measured(threads, task)


def threads(
    task: str, counts: tuple[int, ...] = (1, 2), shares: tuple[int, ...] = (1,), seeds: int = 5
) -> list[Any]:
    """Return rows for so many threads, each after `shares` times the usual number of examples; seeds in turns.

    The last rows are of as many fits by one thread each at once: what the cores of the machine can.
    """
    fit, quality = TASKS[task]()
    found: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    for jobs in counts:
        fit(0.05, jobs, 0)
    for share, seed, jobs in itertools.product(shares, range(seeds), (*counts, 0)):
        begun = now()
        fits = [(jobs, seed)] if jobs else [(1, seed + other) for other in range(counts[-1])]
        model, *_ = in_threads(lambda one, share=share: fit(share, *one), fits)
        clock, cpu = 1e-3 * (now() - begun)
        # Quality is not what takes long examples; of these one seed tells it.
        known = quality(model) if share == 1 or seed == 0 else np.nan
        found.setdefault((share, jobs), []).append((clock, cpu, known))
        print(task, share, jobs, seed, found[share, jobs][-1], flush=True)
    rows = []
    for (share, jobs), kept in found.items():
        clock, cpu, known = np.nanmedian(kept, axis=0)
        alone = np.median(found[share, counts[0]], axis=0)[0] * (1 if jobs else counts[-1])
        rows.append(
            {
                "task": task, "examples": f"{share} x", "threads": jobs or f"1, {counts[-1]} fits at once",
                "clock, s": clock, "CPU, s": cpu, "one thread's clock over it": alone / clock,
                "quality": known,
            }
        )  # fmt: skip
    return rows


def test_a_round(measured: Any) -> None:
    """A round on the cores here, means of a run of 600,000 triplets: bytes of the mean, milliseconds by part."""
    measured(a_round)


def a_round(workers: tuple[int, ...] = (2, 4, 8, 16)) -> list[dict[str, Any]]:
    X, y, train = documents()
    rows, cores = [], os.cpu_count() or 1
    for count in workers:
        model = LoretaSimilarity(30, step_size=10.0, n_jobs=count)
        solver, problem, start = model._parts(X[train], ClassTriplets(y[train]), 600_000, 0, True)
        work, last = solver.prepare(problem, 0), solver.budget(problem)
        state = work.engine.advance(work.engine.load(start()), *work.at(0, 0))
        draws, steps = np.zeros(2), np.zeros(2)
        while state.steps < last:
            begun, drawn, ended = now(), work.at(state.steps, last - state.steps), now()
            state = work.engine.advance(state, *drawn)
            draws, steps = draws + ended - begun, steps + now() - ended
        engine: Any = work.engine
        means, taken = len(engine._means(0, last)), []
        for _ in range(5):
            begun = now()
            stands = engine.handed_over(state)
            taken.append((now() - begun)[1])
            state = engine.advance(engine.taken_over(stands), *work.at(state.steps, 100))
        mean = np.median(taken)
        rows.append(
            {
                "workers": count, "rounds": means, "MB of a mean": (count + 1) * 8e-6 * 2 * 32 * X.shape[1],
                "mean, ms of CPU": mean, "of each worker": mean / count,
                "steps, ms of CPU": steps[1] / means - mean, "draws, ms of CPU": draws[1] / means,
                "idle cores, ms": (cores * steps - steps[1])[0] / means,
            }
        )  # fmt: skip
    return rows


def now() -> Any:
    """Return milliseconds by the clock, and of CPU."""
    return 1e3 * np.array([time.perf_counter(), time.process_time()])


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
    from conftest import show

    counts = tuple(map(int, sys.argv[2:])) or tuple(n for n in (1, 2, 4, 8, 16) if n <= (os.cpu_count() or 1))
    by_threads = threads("newsgroups", counts, (1, 8), 2) + threads("delicious", counts, (1,), 2)
    found = {"made data": not DATA, "cores": os.cpu_count(), "threads": by_threads, "rounds": a_round()}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1), encoding="utf-8")
    for title in ("threads", "rounds"):
        show(title, found[title])
