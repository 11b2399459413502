"""What a step cannot go below: its rows, its work on k × k matrices, each in a loop of its own.

Run with ``pytest -o addopts= -s tests/benchmarks/test_floors.py``. CPU time, medians, one thread.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit
from step_peers import touch_unrolled
from step_times import ROWS, StepTimes
from threadpoolctl import threadpool_limits

from rmopt import Problem
from rmopt.engines.choose import choose_engine
from rmopt.kernels.lifted import SECOND_ORDER, Factors, make_scratch, score, step
from rmopt.manifolds import FixedRankEmbedded


@njit
def square_part(factors: Any, scratch: Any, steps: int) -> None:
    """Do the part of steps that looks at no rows: 7 products with k × k matrices, and 4 updates."""
    for _ in range(steps):
        score(factors, scratch)
        step(SECOND_ORDER, factors, scratch, 1.0, 1.0, -1e-9)


@njit
def in_turns(A: Any, B: Any, rows: Any, terms: Any, factors: Any, scratch: Any) -> None:
    """Touch the rows of a step and do its part that looks at none, one step after the other: a step's caches."""
    for t in range(terms.shape[0]):
        touch_unrolled(A, B, *rows, terms[t : t + 1], terms[t : t + 1] + ROWS)
        square_part(factors, scratch, 1)


def medians(works: dict[str, Callable[[], Any]], per: int, rounds: int = 7) -> dict[str, float]:
    """Return microseconds of CPU time, of works in turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            begun = time.process_time()
            work()
            if turn:
                times[name].append(time.process_time() - begun)
    return {name: 1e6 * float(np.median(seconds)) / per for name, seconds in times.items()}


def squares(k: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return what the work on k × k matrices takes."""
    eye = [np.eye(k) for _ in range(4)]
    empty = np.empty((0, k))
    parts = dict(zip(("C", "C_inverse", "H_A", "H_B"), eye, strict=True))
    factors = Factors(**{name: parts.get(name, empty) for name in Factors._fields})
    scratch = make_scratch(k)
    for vector in (scratch.u, scratch.v):
        vector[:] = rng.standard_normal(k) / np.sqrt(2 * k)
    return factors, scratch


def said(what: str, found: dict[str, float]) -> dict[str, Any]:
    """Return a row of the table: the step, its parts, and its time over theirs."""
    row = {"what": what} | {f"{name}, µs": found.get(name) for name in ("step", "rows", "k × k", "in turns")}
    parts = sum(found.get(name, 0.0) for name in ("rows", "k × k"))
    floors = {"rows": found["rows"], "sum": parts, "in turns": found.get("in turns")}
    return row | {f"step / {name}": floor and found["step"] / floor for name, floor in floors.items()}


def loreta(n: int, k: int) -> list[dict[str, Any]]:
    times = StepTimes(n, k, 100, steps=10_000)
    engine = choose_engine(Problem(FixedRankEmbedded(n, n, k), times.cost), None, "compiled")
    state = engine.load(FixedRankEmbedded(n, n, k).random_point(times.rng))
    etas, (A, B) = np.full(times.steps, 1e-2), times.rng.standard_normal((2, n, k))
    both, terms = sp.vstack([times.cost.left, times.cost.right]).tocsr(), times.schedule[:, 0]
    rows, square = (both.indptr, both.indices, both.data), squares(k, times.rng)
    works = {
        "step": lambda: engine.advance(state, times.schedule, etas),
        "rows": lambda: touch_unrolled(A, B, *rows, terms, terms + ROWS),
        "k × k": partial(square_part, *square, times.steps),
        "in turns": partial(in_turns, A, B, rows, terms, *square),
    }
    with threadpool_limits(1):
        return [said(f"LORETA-1, n = {n:,}, k = {k}", medians(works, times.steps))]


@pytest.mark.parametrize(("n", "k"), [(10_000, 50), (5_000, 100)])
def test_loreta(measured: Any, n: int, k: int) -> None:
    """A step of LORETA-1, 100 non-zeros in p and in q, beside loops that do its parts alone."""
    measured(loreta, n, k)
