"""Runs that are killed at random moments, again and again, end with the bits of runs that were not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resumable_runs import CASES, bits, run

QUICK = ["loreta", "rank-incremental", "own-cost"]
SCRIPT = str(Path(__file__).parents[1].joinpath("resumable_runs.py"))
COUNTS: dict[str, int] = {}

needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="processes are forked to save the time of imports."
)

# Experiments with `--resume`, their options, and a pattern of the files that show that one has begun.
# Options, a file that tells of a run's beginning, and the longest life in seconds.
EXPERIMENTS = {
    "completion": ("--case 4 --scale 0.2 --updates 600 --methods stochastic", "checkpoint-*.npz", 2.0),
    "similarity": (
        "--data digits --seeds 8 --select none --triplets 100000 --methods loreta,oasis",
        "*",
        8.0,
    ),
    "metric": (
        "--data digits --rows 400 --seeds 2 --methods comet,euclidean",
        "cells/**/output.pkl",
        2.0,
    ),
    "coembedding": (
        "--rows 150 --seeds 3 --methods ila,br-lr --folds 2 --starts 0",
        "cells/**/output.pkl",
        6.0,
    ),
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


def lives(name: str, kills: int, path: Path, out: Path, fresh: bool) -> int:
    """Kill a case in forked processes, and let it end in one of these or in a fresh one; return how often."""
    done, moments = 0, random.Random(kills)
    for life in range(kills + (not fresh)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking beside idle threads
            child = os.fork()
        if child == 0:
            try:
                np.savez(out, **bits(run(name, CASES[name].many, path, every=0.002)))
            finally:
                os._exit(0)
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        if life < kills:
            time.sleep(moments.uniform(0.0, 0.2 if fresh else 0.02))
            os.kill(child, signal.SIGKILL)
        done += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if out.exists():
            break
    if fresh and not out.exists():
        subprocess.run([sys.executable, SCRIPT, name, "many", str(path), str(out)], check=True, timeout=600)
    return done


def compare(name: str, kills: int, tmp_path: Path, fresh: bool) -> int:
    """Kill a case so often, in several runs where one ends before; compare each end with that of a whole run."""
    whole, done = bits(run(name, CASES[name].many)), 0
    for attempt in range(5 * kills):
        path, out = tmp_path / f"c{attempt}.npz", tmp_path / f"out{attempt}.npz"
        done += lives(name, kills - done, path, out, fresh and attempt == 0)
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
    assert compare(name, 2, tmp_path, fresh=False) > 0


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_kills(name: str, tmp_path: Path) -> None:
    COUNTS[name] = compare(name, 7, tmp_path, fresh=True)
    print(f"\n{name}: {COUNTS[name]} kills, 0 differing bits; so far {sum(COUNTS.values())}")


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
    COUNTS[name] = killed([*command, str(cut), "--resume"], lambda: any(cut.glob(pattern)), 8, longest, 0)
    assert told(cut) == told(whole)
    print(f"\nrmopt run {name}: {COUNTS[name]} kills, 0 differing numbers; so far {sum(COUNTS.values())}")
