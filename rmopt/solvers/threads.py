"""Resources held by a run: threads of BLAS, on whose number the rounding of sums depends, and signals."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from math import ceil
from operator import itemgetter
from pathlib import Path
from sys import maxsize
from types import FrameType
from typing import Any, Self

from threadpoolctl import OpenBLASController, ThreadpoolController

_lock = threading.Lock()
# The thread numbers of the pools when each open context began, for all threads.
_found: list[list[int]] = []


@cache
def _pools() -> tuple[list[Any], int]:
    """Return the pools of BLAS, numpy's first, and the number of numpy's; scipy's wheels contain another."""
    # The search takes milliseconds, after numpy and scipy.linalg are imported.
    pools = ThreadpoolController().select(user_api="blas").lib_controllers
    names = [_package(pool.filepath) for pool in pools]
    # A library of neither wheel serves both.
    others = [name != "numpy" if "numpy" in names else name == "scipy" for name in names]
    ordered = sorted(zip(others, pools, strict=True), key=itemgetter(0))
    return [pool for _, pool in ordered], others.count(False)


def _package(library: str) -> str:
    """Return the package whose wheel contains a library, for example in numpy.libs or numpy/.dylibs."""
    folder = Path(library).parent
    return folder.parent.name if folder.name.startswith(".") else folder.name.removesuffix(".libs")


@cache
def _cores() -> int:
    """Return the number of cores for this process, by its affinity and the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        # Without a quota the file has a word for it, or is absent.
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split())
        cores = min(cores, ceil(quota / period))
    return cores


def _change(now: list[int], wanted: list[int]) -> None:
    if now == wanted:
        return
    # Since 3.8 threadpoolctl obeys the first thread that changed something, and silently ignores all others.
    clear = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    for pool, old, new in zip(_pools()[0], now, wanted, strict=True):
        if old != new:
            clear(force=True)
            pool.set_num_threads(new)
            clear(force=True)


@contextmanager
def blas_threads(most: int | None) -> Iterator[int | None]:
    """Hold the threads of BLAS in a context: numpy's at their number or at most this many, others' at one.

    The pools of numpy and scipy hinder each other. No number is raised above the present one, which others may have
    limited, nor above the cores of the process. The limit holds for the entire process: if contexts of several
    threads overlap, the last one to close lifts it. Yields the number of numpy's threads, or None if its BLAS has
    none.
    """
    (pools, numpys), limit = _pools(), min(_cores(), most or maxsize)
    with _lock:
        found = [pool.get_num_threads() for pool in pools]
        held = [min(limit, threads) for threads in found[:numpys]] + [1] * (len(pools) - numpys)
        _change(found, held)
        _found.append(found)
    try:
        yield max(held[:numpys], default=None)
    finally:
        with _lock:
            at = [one is found for one in _found].index(True)
            if at + 1 == len(_found):
                _change(held, found)
            else:
                # The context that began next lifts this one's limit.
                _found[at + 1][:] = found
            del _found[at]


# The type of a context, or of a function that it decorates.
one_blas_thread = partial(blas_threads, 1)


def in_threads(function: Callable[..., Any], *many: Iterable[Any]) -> list[Any]:
    """Apply a function to each item, as `map` does, in as many threads. After an error all have ended."""
    calls = list(zip(*many, strict=True))
    if len(calls) < 2:
        return [function(*call) for call in calls]
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: function(*call), calls))


class Interrupts:
    """A context in which the first Ctrl-C or SIGTERM is only noted, and a second one acts at once.

    Handlers are set in the main thread alone, and restored at the end. Ignored signals stay ignored.

    Parameters
    ----------
    wanted : bool
        Whether to handle signals at all.

    Attributes
    ----------
    pending : int or None
        The signal received.
    """

    def __init__(self, wanted: bool) -> None:
        self.pending: int | None = None
        self._wanted, self._before = wanted, dict[int, Any]()

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if self._wanted and main else ():
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                self._before[number] = before
                signal.signal(number, self._note)
        return self

    def __exit__(self, *problem: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if problem[0] is None:
            self.deliver()

    def deliver(self) -> None:
        """Do the signal's usual action: KeyboardInterrupt, or for SIGTERM the exit status 143."""
        number, self.pending = self.pending, None
        if number is not None:
            if not callable(self._before[number]):
                raise SystemExit(128 + number)
            self._before[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.pending = self.pending is not None, number
        if again:
            self.deliver()
