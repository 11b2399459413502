"""Threads in scikit-learn's words: how many `n_jobs` are, and rows that are dealt to them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from joblib import cpu_count

from problems.door import thread_count
from rmopt.core.arguments import optional
from rmopt.solvers.threads import one_blas_thread


def threads_of(n_jobs: int | None) -> int:
    """Return a number of threads: None is one, and negative ones count from all cores down."""
    given = optional(thread_count)("n_jobs", n_jobs)
    if given is None:
        return 1
    return int(given) if given > 0 else max(1, cpu_count() + 1 + int(given))


def by_rows(work: Callable[[slice], Any], n_rows: int, block: int, n_jobs: int | None) -> list[Any]:
    """Return what a function makes of blocks of rows; in threads, and with the same bits for any number of them."""
    blocks = [slice(first, min(first + block, n_rows)) for first in range(0, n_rows, block)]
    threads = min(threads_of(n_jobs), len(blocks))
    with one_blas_thread():
        if threads <= 1:
            return [work(rows) for rows in blocks]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, blocks))
