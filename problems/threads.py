"""Threads in scikit-learn's words: how many `n_jobs` are, and rows that are dealt to them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from joblib import cpu_count

from problems.validation import thread_count
from rmopt import kernels
from rmopt.core.arguments import optional
from rmopt.solvers.threads import one_blas_thread

# Products below which one thread is done, in 2 ms, before others that wait for a busy core would have begun.
WORTH_THREADS = 20_000_000


def threads_of(n_jobs: int | None) -> int:
    """Return a number of threads: None is one, and negative ones count from all cores down."""
    given = optional(thread_count)("n_jobs", n_jobs)
    if given is None:
        return 1
    return int(given) if given > 0 else max(1, cpu_count() + 1 + int(given))


def in_pieces(work: Callable[[int, int, int], Any], cuts: Any, products: int) -> list[Any]:
    """Return what compiled work without Python's lock makes of each piece, from its number, first column and end.

    There are as many threads as numba has, where so many products are worth them.
    """
    pieces = range(len(cuts) - 1), cuts[:-1].tolist(), cuts[1:].tolist()
    threads = min(kernels.thread_count(), len(cuts) - 1) if products >= WORTH_THREADS else 1
    if threads == 1:
        return list(map(work, *pieces))
    # Of Python's threads those without work sleep; numba's spin, and take the cores from who needs them.
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, *pieces))


def by_rows(work: Callable[[slice], Any], n_rows: int, block: int, n_jobs: int | None) -> list[Any]:
    """Return what a function makes of blocks of rows; in threads, and with the same bits for any number of them."""
    blocks = [slice(first, min(first + block, n_rows)) for first in range(0, n_rows, block)]
    threads = min(threads_of(n_jobs), len(blocks))
    with one_blas_thread():
        if threads <= 1:
            return [work(rows) for rows in blocks]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, blocks))
