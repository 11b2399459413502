"""COMET at the draft's sizes: 5,000 features and 100,000 triplets of text, 135,000 triplets of images.

Run with RMOPT_DATA_HOME and in parts of some minutes, of which the choices are the first:
``pytest -o addopts= -s --keep tests/benchmarks/test_metric_sizes.py -k test_choices``. Each method has a process of
its own. The four classes of 20 Newsgroups are comp, rec, sci and talk.
"""

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_defaults import compared

from problems.comparison import listed
from problems.data import load
from problems.data.bundles import ClassBundle
from problems.data.text import informative_unit_rows
from problems.metric.experiment import METHODS, Metric, form, precision
from rmopt.core.streams import Stream, generator
from rmopt.experiments import Run
from rmopt.solvers import Recorder

pytestmark = pytest.mark.skipif("RMOPT_DATA_HOME" not in os.environ, reason="RMOPT_DATA_HOME is not set.")

KEPT = Path(__file__).parents[2] / "docs" / "measured" / "metric_sizes.json"
RIVALS = "euclidean", "lda", "hdsl", "lego", "boost", "comet"
GROUPS = np.repeat([-1, 0, -1, 1, 2, -1, 3], [1, 5, 1, 4, 4, 1, 4])
# Rows, features and triplets by which parameters are chosen.
FEW, FEATURES, TRIPLETS = 2_000, 500, 15_000
# Learners of BoostMetric after which it is measured; the draft gives it 8 for each feature.
LEARNERS, MOST = (25, 50, 100, 200, 400, 800, 1_600), {500: 4_000, 1_000: 400, 1_500: 400, 5_000: 1_600}
PASSES = {500: 8, 1_000: 12, 1_500: 8, 5_000: 4}
DEPTHS, SHOWN = range(1, 51), (1, 10, 50)


def classes(data: str, features: int, seed: int) -> ClassBundle:
    bundle = load(data, None, ClassBundle)
    if data == "news20":
        y, rows = GROUPS[bundle.y], GROUPS[bundle.y] >= 0
        bundle = ClassBundle("news20, 4 groups", bundle.source, bundle.X[rows], y[rows], bundle.test[rows])
    return informative_unit_rows(bundle.resplit(seed, 0.2), features)


@pytest.mark.parametrize("method", ["lda", "lego", "comet"])
@pytest.mark.parametrize("data", ["news20", "caltech101"])
def test_choices(measured: Any, tmp_path: Path, data: str, method: str) -> None:
    """Parameters, by precision at 10 in two folds of 2,000 training rows: 500 features, 15,000 triplets."""
    measured(choices, tmp_path, data, method)


def choices(folder: Path, data: str, method: str) -> list[dict[str, Any]]:
    bundle = classes(data, FEATURES, 0)
    some = np.random.default_rng(0).permutation(np.flatnonzero(bundle.train))[:FEW]
    np.savez(folder / "few.npz", X=bundle.X[some].toarray(), y=bundle.y[some])
    rows: list[Any] = []
    experiment: Any = Metric(
        data=str(folder / "few.npz"), features=0, triplets=TRIPLETS, seeds=1, select="first", folds=2, methods=method
    )  # fmt: skip
    experiment.draw = rows.extend
    experiment(Run("choices", 0, folder, quiet=True))
    return [
        {"data": bundle.name, "method": row.label, "parameters": row.models[0]["parameters"]} for row in rows
    ]


def parameters(data: str, method: str) -> dict[str, Any]:
    # The generated documents take what 20 Newsgroups chose.
    data = "news20" if data == "generated-rcv1" else data
    parts = json.loads(KEPT.read_text(encoding="utf-8"))["tables"]["test_choices"]["parts"]
    return parts.get(f"{data}-{method}", {"rows": [{"parameters": {}}]})["rows"][0]["parameters"]


@pytest.mark.parametrize("method", RIVALS)
@pytest.mark.parametrize("features", [500, 1_500, 5_000])
@pytest.mark.parametrize("data", ["news20", "generated-rcv1"])
def test_text(measured: Any, data: str, features: int, method: str) -> None:
    """Text in four classes, 100,000 triplets: CPU seconds on one core, the peak of the process, precision."""
    measured(alone, data, features, 100_000, method, 0)


@pytest.mark.parametrize("method", RIVALS)
@pytest.mark.parametrize("seed", range(5))
def test_images(measured: Any, seed: int, method: str) -> None:
    """Caltech-101, 1,000 features, 135,000 triplets."""
    measured(alone, "caltech101", 1_000, 135_000, method, seed)


def alone(*how: Any) -> list[dict[str, Any]]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(learned, *how).result()


def learned(data: str, features: int, triplets: int, name: str, seed: int) -> list[dict[str, Any]]:
    bundle, chosen = classes(data, features, seed), parameters(data, name)
    X, tests, y, labels = (of[rows] for of in (bundle.X, bundle.y) for rows in (bundle.train, bundle.test))
    more = {"boost": {"max_iter": MOST[features]}, "comet": {"n_epochs": PASSES[features]}}.get(name, {})
    metric, aside, passes = METHODS[name].made(chosen | more, random_state=seed), [0.0], []

    def found(W: Any, rows: Any = tests) -> Any:
        return precision(metric, W, rows, labels, DEPTHS)

    def watch(W: Any) -> float:
        aside[0] -= time.process_time()
        passes.append([found(W).precision_at[k] for k in SHOWN])
        aside[0] += time.process_time()
        return 0.0

    begun = time.process_time()
    if hasattr(metric, "learn"):
        every = Recorder({"": watch}, at=range(features, 10**6, features))
        drawn = metric.sampler(X, y).draw(generator(seed, Stream.TRIPLETS), 0, triplets)
        W, rows = metric.learn(X, drawn, seed, **({"recorder": every} if name == "comet" else {})), tests
    else:
        W, rows = form(metric.fit(X, y), tests)
    seconds = time.process_time() - begun - aside[0]
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1e6
    made = getattr(metric, "learners_", None)
    ends: Any = {None: W}
    if made is not None:
        ends = {n: made[:n].T @ made[:n] for n in (*LEARNERS, len(made)) if n <= len(made)}
    shown, table = listed({key.rpartition("__")[2]: value for key, value in chosen.items()}), []
    for number, one in ends.items():
        now, last = found(one, rows), number in (None, len(made) if made is not None else 0)
        table.append({
            "data": bundle.name, "features": features, "split": seed, "method": METHODS[name].label,
            "learners": number, "one core, s": seconds if last else None, "peak, GB": peak if last else None,
            **{f"P@{k}": now.precision_at[k] for k in SHOWN}, "mAP": now.map, "chosen": shown or "–",
            "at": list(now.precision_at.values()), "passes": passes,
        })  # fmt: skip
    return table


def test_two_layers(measured: Any, tmp_path: Path) -> None:
    """Caltech-101, 100 features, 10,000 triplets, five splits: parameters by five folds of each training part."""
    measured(two_layers, Path(os.environ.get("RMOPT_CELLS", tmp_path)))


def two_layers(folder: Path) -> list[dict[str, Any]]:
    experiment = Metric(
        data="caltech101", features=100, triplets=10_000, seeds=5, select="each", folds=5, resume=True,
        methods="euclidean,lda,lego,boost,comet",
    )  # fmt: skip
    return compared(experiment, folder, "comet", **{f"precision_at_{k}": 1.0 for k in SHOWN}, map=1.0)
