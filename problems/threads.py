"""Threads with scikit-learn's `n_jobs`, and the division of rows among them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from joblib import cpu_count

from problems.validation import thread_count
from rmopt import kernels
from rmopt.core.arguments import optional

# Up to this many products one thread finishes, in 2 ms, before others could start on busy cores.
WORTH_THREADS = 20_000_000


def threads_of(n_jobs: int | None) -> int:
    """Return a number of threads: None means one, and negative numbers count down from all cores."""
    given = optional(thread_count)("n_jobs", n_jobs)
    if given is None:
        return 1
    return int(given) if given > 0 else max(1, cpu_count() + 1 + int(given))


def in_pieces(work: Callable[[int, int, int], Any], cuts: Any, products: int) -> list[Any]:
    """Run compiled work without Python's lock on each piece, with its number, first column and end.

    The number of threads is numba's, if there are enough products.
    """
    pieces = range(len(cuts) - 1), cuts[:-1].tolist(), cuts[1:].tolist()
    threads = min(kernels.thread_count(), len(cuts) - 1) if products >= WORTH_THREADS else 1
    if threads == 1:
        return list(map(work, *pieces))
    # Idle threads of Python sleep; numba's spin and occupy cores.
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, *pieces))
