"""Runs that are killed at random moments, again and again, end with the bits of runs that were not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from resumable_runs import CASES, bits, run

from problems.metric import CometMetric
from problems.ranking import LoretaLabelRanker
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.subspace import GossipMatrixCompletion
from rmopt.cli import main
from rmopt.core.points import arrays_of
from rmopt.solvers.save import Saver

QUICK = ["loreta", "rank-incremental", "own-cost", "stream"]
RNG = np.random.default_rng(0)
X, CLASSES = RNG.standard_normal((600, 12)), RNG.integers(4, size=600)
LABELS = RNG.random((600, 5)) < 0.3
KNOWN = sp.csc_array((RNG.random((30, 40)) < 0.5) * (RNG.random((30, 2)) @ RNG.random((2, 40))))

needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="processes are forked to save the time of imports."
)


def fitted(model: Any, *data: Any) -> dict[str, Any]:
    model.fit(*data)
    return learned(model)


def learned(model: Any) -> dict[str, Any]:
    """Return the arrays that an estimator has learned."""
    held = getattr(model, "model_", None)
    named = {name: getattr(model, name) for name in vars(model) if name.endswith("_") and name != "model_"}
    named |= {} if held is None else {"point": held.point}
    parts = {name: arrays_of(one) for name, one in named.items()}
    flat = {f"{name} {i}": part for name, some in parts.items() for i, part in enumerate(some)}
    return {name: part for name, part in flat.items() if part.dtype.kind in "biuf"}


def followed(model: Any, y: Any) -> dict[str, Any]:
    model.fit_stream([(X[at : at + 20], y[at : at + 20]) for at in range(0, 600, 20)] * 4)
    return learned(model)


def by_command(path: Path) -> dict[str, Any]:
    """Learn a folder of files by ``rmopt fit``, from the checkpoint of its output folder on."""
    folder, out = path.with_suffix(".files"), path.with_suffix(".out")
    folder.mkdir(exist_ok=True)
    for number in range(3):
        rows = slice(200 * number, 200 * number + 200)
        np.savez(folder / f"{number}.npz", X=X[rows], y=CLASSES[rows])
    # Where the test looks whether it has begun.
    path.touch()
    options = f"--rank 3 --batch-size 20 --epochs 8 --seed 3 --resume --quiet --out {out}".split()
    with pytest.raises(SystemExit) as ended:
        main(["fit", "similarity", str(folder), *options])
    assert ended.value.code in (0, None)
    return learned(LoretaSimilarity.load(out / "model.npz"))


# What is killed: it takes the path of a checkpoint, or None, and returns what must be the same to the last bit.
WORK: dict[str, Callable[[Any], dict[str, Any]]] = {
    **{name: lambda path, name=name: bits(run(name, CASES[name].many, path)) for name in CASES},
    "LoretaSimilarity": lambda path: fitted(
        LoretaSimilarity(3, max_iter=200_000, random_state=0, checkpoint=path), X, CLASSES
    ),
    "LoretaLabelRanker": lambda path: fitted(
        LoretaLabelRanker(3, n_epochs=200, random_state=0, checkpoint=path), X, LABELS
    ),
    "ContrastiveSimilarity": lambda path: fitted(
        ContrastiveSimilarity(3, n_epochs=200, batch_size=50, random_state=0, checkpoint=path), X, CLASSES
    ),
    "CometMetric": lambda path: fitted(
        CometMetric(n_epochs=2000.0, tol=0.0, n_triplets=400, random_state=0, checkpoint=path),
        X[:200],
        CLASSES[:200],
    ),
    "GossipMatrixCompletion": lambda path: fitted(
        GossipMatrixCompletion(3, n_agents=4, random_state=0, checkpoint=path), KNOWN
    ),
    "stream": lambda path: followed(LoretaSimilarity(3, random_state=0, checkpoint=path), CLASSES),
    "stream of labels": lambda path: followed(LoretaLabelRanker(3, random_state=0, checkpoint=path), LABELS),
    "rmopt fit": lambda path: by_command(path),
}


# Experiments with `--resume`, their options, and a pattern of the files that show that one has begun.
# Options, a file that tells of a run's beginning, and the longest life in seconds.
EXPERIMENTS = {
    "completion": (
        "--rank 4 --seeds 3 --updates 40 --methods stochastic,parallel",
        "cells/**/output.pkl",
        2.0,
    ),
    "similarity": (
        "--data digits --seeds 8 --select none --triplets 100000 --methods loreta,oasis",
        "*",
        8.0,
    ),
    "metric": ("--data digits --seeds 2 --methods comet,euclidean", "cells/**/output.pkl", 2.0),
    "coembedding": ("--rows 150 --seeds 3 --methods ila,br-lr --folds 2", "cells/**/output.pkl", 6.0),
}


def killed(command: list[str], begun: Any, kills: int, longest: float, seed: int) -> int:
    """Start a command until it ends by itself, and kill it at random moments before; return how often."""
    done, moments = 0, random.Random(seed)
    while True:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            if done < kills:
                # Never before the run could have begun, so that each life gets somewhere.
                while child.poll() is None and not begun():
                    time.sleep(0.002)
                time.sleep(moments.uniform(0.0, longest))
                child.send_signal(signal.SIGKILL)
            _, told = child.communicate(timeout=600)
        finally:
            child.kill()
        if child.returncode == 0:
            return done
        assert child.returncode == -signal.SIGKILL, told.decode()[-2000:]
        done += 1


def lives(name: str, kills: int, path: Path, out: Path) -> int:
    """Kill some work in forked processes, and let it end in the last one; return how often it was killed."""
    done, moments = 0, random.Random(out.name)
    for life in range(kills + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking beside idle threads
            child = os.fork()
        if child == 0:
            try:
                # Estimators save twice a minute otherwise.
                Saver.due = lambda self, step: time.monotonic() - self.saved > 0.002  # type: ignore[method-assign]
                # A kill may come while it is written.
                np.savez(part := out.with_name(f"part-{out.name}"), **WORK[name](path))
                part.replace(out)
            finally:
                os._exit(0)
        if life < kills:
            deadline = time.monotonic() + 60
            while not path.exists() and not out.exists() and time.monotonic() < deadline:
                time.sleep(0.001)
            # Some runs end within milliseconds.
            time.sleep(0.05 * 10 ** moments.uniform(-2.0, 0.0))
            os.kill(child, signal.SIGKILL)
        done += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if out.exists():
            break
    return done


def compare(name: str, kills: int, tmp_path: Path) -> int:
    """Kill some work so often, in several runs where one ends before; hold each end against that of a whole run."""
    done = 0
    whole = WORK[name](tmp_path / "whole.npz" if name == "rmopt fit" else None)
    for attempt in range(5 * kills):
        path, out = tmp_path / f"c{attempt}.npz", tmp_path / f"out{attempt}.npz"
        done += lives(name, kills - done, path, out)
        with np.load(out) as resumed:
            assert set(resumed.files) == set(whole)
            for key, expected in whole.items():
                np.testing.assert_array_equal(resumed[key], expected, err_msg=f"{name}: {key}")
        if done >= kills:
            break
    return done


@needs_fork
@pytest.mark.parametrize("name", QUICK)
def test_a_killed_run_ends_with_the_bits_of_a_whole_one(name: str, tmp_path: Path) -> None:
    assert compare(name, 2, tmp_path) > 0


@needs_fork
@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path) -> None:
    counts = {}
    for name in WORK:
        (folder := tmp_path / name.replace(" ", "-")).mkdir()
        counts[name] = compare(name, -(-100 // len(WORK)), folder)
        print(f"{name}: {counts[name]} kills, 0 differing bits; so far {sum(counts.values())}", flush=True)
    assert sum(counts.values()) >= 100


def told(out: Path) -> Any:
    """Return the rows of an experiment without its times."""
    rows = json.loads((out / "result.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_killed_experiment_ends_with_the_rows_of_a_whole_one(name: str, tmp_path: Path) -> None:
    options, pattern, longest = EXPERIMENTS[name]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    command = [sys.executable, "-m", "rmopt.cli", "run", name, *options.split(), "--out"]
    subprocess.run([*command, str(whole)], check=True, capture_output=True, timeout=900, env=os.environ)
    kills = killed([*command, str(cut), "--resume"], lambda: any(cut.glob(pattern)), 8, longest, 0)
    assert told(cut) == told(whole)
    print(f"\nrmopt run {name}: {kills} kills, 0 differing numbers")
