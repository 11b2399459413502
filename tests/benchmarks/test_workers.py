"""Several workers beside one, in threads: quality after as many examples, and seconds.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_workers.py``, with RMOPT_DATA_HOME. On a machine that
others use the clock says little; the longest path is what two free cores would take.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from problems.data import MultilabelBundle, load
from problems.data.text import informative_unit_rows
from problems.loreta import with_workers
from problems.ranking import LoretaLabelRanker, precision_at
from problems.similarity import LoretaSimilarity
from rmopt.solvers import SGD
from rmopt.solvers.gossip import parallel
from rmopt.solvers.threads import in_threads

pytestmark = pytest.mark.skipif("RMOPT_DATA_HOME" not in os.environ, reason="RMOPT_DATA_HOME is not set.")


class LongestPath:
    """What a fit would take with as many free cores as workers, by the CPU time of threads.

    Of what is dealt to the workers the longest share counts, of what is drawn meanwhile the part of one core, and
    all of the rest.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
        self.workers = workers
        # CPU time of the longest shares, of all of them, and of the main thread meanwhile.
        self.longest, self.dealt, self.main = 0.0, 0.0, 0.0

        def timed(function: Any, *many: Any) -> Any:
            shares = []

            def share(*arguments: Any) -> Any:
                begun = time.thread_time()
                found = function(*arguments)
                shares.append(time.thread_time() - begun)
                return found

            begun = time.thread_time()
            found = in_threads(share, *many)
            self.main += time.thread_time() - begun
            self.longest, self.dealt = self.longest + max(shares), self.dealt + sum(shares)
            return found

        monkeypatch.setattr(parallel, "in_threads", timed)

    def of(self, work: Any) -> tuple[float, float]:
        """Return the length of the path, and the seconds of the clock."""
        assert threading.current_thread() is threading.main_thread()
        begun = time.process_time(), time.thread_time(), time.perf_counter()
        work()
        ended = time.process_time(), time.thread_time(), time.perf_counter()
        whole, main, clock = (now - before for now, before in zip(ended, begun, strict=True))
        alone = main - self.main
        return alone + self.longest + (whole - alone - self.dealt) / self.workers, clock


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


@pytest.mark.parametrize("task", [newsgroups, delicious])
def test_two_threads(measured: Any, monkeypatch: pytest.MonkeyPatch, task: Any) -> None:
    """One thread and two, the same examples: quality (mAP; P@1 of labels), and seconds; means of two seeds."""
    measured(two_threads, task, monkeypatch)


def two_threads(task: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    fit, quality = task()
    found: dict[int, list[tuple[float, ...]]] = {1: [], 2: []}
    for jobs in found:
        fit(0.05, jobs, 0)
    for seed in range(2):
        for jobs, kept in found.items():
            with monkeypatch.context() as patch:
                path = LongestPath(patch, jobs)
                made: list[Any] = []
                times = path.of(lambda made=made, jobs=jobs, seed=seed: made.append(fit(1.0, jobs, seed)))
            kept.append((quality(made[0]), *times))
            print(task.__name__, jobs, seed, kept[-1], flush=True)
    means = {jobs: np.mean(kept, axis=0) for jobs, kept in found.items()}
    return [
        {
            "task": task.__name__, "threads": jobs, "quality": one[0], "longest path, s": one[1], "clock, s": one[2],
            "one thread's path over it": means[1][1] / one[1],
        }
        for jobs, one in means.items()
    ]  # fmt: skip


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
