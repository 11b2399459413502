"""Several workers beside one, in threads: quality after as many examples, and seconds.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_workers.py``, with RMOPT_DATA_HOME. On a machine that
others use the clock says little; the longest path is what two free cores would take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import KFold

from problems.data import MultilabelBundle, load
from problems.data.text import informative_unit_rows
from problems.loreta import with_workers
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression, precision_at
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity, estimators
from rmopt.solvers import SGD, Parallel
from rmopt.solvers.gossip.gossip import parallel
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


@pytest.mark.parametrize("task", ["newsgroups", "delicious"])
def test_two_processes(measured: Any, tmp_path: Path, task: str) -> None:
    """One process and two by MPI, each with its share of the rows: quality (mAP; P@1 of labels), and seconds."""
    pytest.importorskip("mpi4py")
    measured(two_processes, task, tmp_path / "found.json")


def two_processes(task: str, out: Path) -> list[dict[str, Any]]:
    launcher, script = Path(sys.executable).with_name("mpiexec"), Path(__file__).with_name("tasks_by_mpi.py")
    found: dict[int, list[Any]] = {1: [], 2: []}
    for _ in range(3):
        for processes, kept in found.items():
            subprocess.run([launcher, "-n", str(processes), sys.executable, script, task, out], check=True)
            kept.append(json.loads(out.read_text("utf-8")))
    medians = {processes: np.median(kept, axis=0) for processes, kept in found.items()}
    return [
        {
            "task": task, "processes": processes, "quality": one[0], "clock, s": one[1],
            "busiest processor, s": one[2], "one process by the clock over it": medians[1][1] / one[1],
        }
        for processes, one in medians.items()
    ]  # fmt: skip


def test_workers_of_batches(measured: Any) -> None:
    """One, two and four workers of `ContrastiveSimilarity`: mAP on 20 Newsgroups, means of two seeds."""
    measured(workers_of_batches)


def workers_of_batches() -> list[dict[str, Any]]:
    bundle = informative_unit_rows(load("news20"), 26_214, sublinear=True)
    X, y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.y))
    rows = []
    for jobs in (1, 2, 4):
        models = [ContrastiveSimilarity(30, random_state=seed, n_jobs=jobs).fit(X, y) for seed in range(2)]
        found = [model.score(test, truth) for model in models]
        rows.append({"workers": jobs, "mAP": float(np.mean(found)), "seeds": str(np.round(found, 4))})
        print(rows[-1], flush=True)
    return rows


@pytest.mark.parametrize("name", ["enron", "bibtex", "delicious"])
def test_workers_of_labels(measured: Any, name: str) -> None:
    """One to eight workers of `LowRankLogisticRegression`: percent at 1, 3 and 5 labels, held out and on test rows.

    Held out are folds of the training rows, by which a number of workers is to be chosen; "above one" is the mean
    difference from one worker at one label, with its standard error over the folds.
    """
    measured(workers_of_labels, name)


def workers_of_labels(name: str) -> list[dict[str, Any]]:
    bundle = load(name, None, MultilabelBundle).scaled()
    X, Y, test, truth = (part[rows] for rows in (bundle.train, bundle.test) for part in (bundle.X, bundle.Y))
    folds = list(KFold(5, shuffle=True, random_state=0).split(np.arange(X.shape[0])))
    one, rows = np.empty(0), []
    for jobs in (1, 2, 4, 8):

        def precisions(seed: int, fit: Any, held: Any, jobs: int = jobs) -> list[float]:
            model = LowRankLogisticRegression(random_state=seed, n_jobs=jobs).fit(*fit)
            found = precision_at(model.decision_function(held[0]), held[1], (1, 3, 5))
            return [100.0 * found[k] for k in (1, 3, 5)]

        held = np.array([precisions(0, (X[train], Y[train]), (X[rest], Y[rest])) for train, rest in folds])
        begun = time.perf_counter()
        found = np.array([precisions(seed, (X, Y), (test, truth)) for seed in range(5)])
        seconds = (time.perf_counter() - begun) / len(found)
        one = one if len(one) else held[:, 0]
        rows.append(
            {
                "task": name, "workers": jobs, "held out": str(held.mean(axis=0).round(2)),
                "above one": with_error(held[:, 0] - one), "test": str(found.mean(axis=0).round(2)),
                "at one label": with_error(found[:, 0]), "fit and test, s": seconds,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def with_error(found: Any) -> str:
    """Return a mean, and its standard error."""
    return f"{found.mean():.2f} ± {found.std(ddof=1) / len(found) ** 0.5:.2f}"


# How two workers meet: every so many steps, or ever less often, with longer steps or not.
MEETINGS = {
    "every 5,000 steps": {"first": 5_000, "every": 5_000},
    "every 2,000 steps": {"first": 2_000, "every": 2_000, "step_factor": 2.0},
    "every 20,000 steps": {"first": 20_000, "every": 20_000, "step_factor": 2.0},
    "ever less often": {"step_factor": 1.6},
}


def test_when_two_workers_meet(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers beside one: mean average precision on 20 Newsgroups after 600,000 triplets in all, of two seeds."""
    measured(when_two_workers_meet, monkeypatch)


def when_two_workers_meet(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    fit, quality = newsgroups()
    rows = [
        {"means": "one worker", "longer steps": 1.0}
        | {f"seed {seed}": quality(fit(1.0, 1, seed)) for seed in range(2)}
    ]
    for name, how in MEETINGS.items():
        with monkeypatch.context() as patch:
            patch.setattr(
                estimators, "with_workers", lambda solver, jobs, world, how=how: Parallel(solver, 2, **how)
            )
            found = {f"seed {seed}": quality(fit(1.0, 2, seed)) for seed in range(2)}
        rows.append({"means": name, "longer steps": how.get("step_factor", 1.0), **found})
        print(rows[-1], flush=True)
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
