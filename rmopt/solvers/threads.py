"""Threads of BLAS: one, because how many share a sum decides how it is rounded; and threads that wait for work."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController

_lock = threading.Lock()
# The limits in force, and how many contexts of all threads are open.
_limits: Any = None
_open = 0


@cache
def _pools() -> ThreadpoolController:
    # Importing both here makes sure that their pools are found; looking for them takes milliseconds.
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


def _change(how: Callable[[], Any]) -> Any:
    # Since 3.8 threadpoolctl heeds the first thread that changed something, and silently ignores all others.
    clear = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    clear(force=True)
    try:
        return how()
    finally:
        clear(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread in a context, or in a function that this decorates.

    The limit holds for the whole process: where contexts of several threads overlap, the last one to close lifts it.
    """
    global _limits, _open
    with _lock:
        if _open == 0:
            _limits = _change(lambda: _pools().limit(limits=1, user_api="blas"))
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                _change(_limits.restore_original_limits)


class Crew:
    """Threads that wait for work from call to call, for to start them takes as long as some of it.

    Parameters
    ----------
    count : int
        That of the caller among them.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._start()

    def _start(self) -> None:
        self._process, self._pool = os.getpid(), ThreadPoolExecutor(max(1, self.count - 1))

    def __reduce__(self) -> tuple[Any, ...]:
        return Crew, (self.count,)

    def each(self, function: Callable[..., Any], *many: Iterable[Any]) -> list[Any]:
        """Return what a function gives for each, as of `map`; where one fails all others have ended, too.

        The thread that asks does the first one itself.
        """
        calls = list(zip(*many, strict=True))
        tasks: list[Future[Any]] = []
        try:
            for others in calls[1:]:
                tasks.append(self._begin(function, *others))
            own = [function(*one) for one in calls[:1]]
        finally:
            wait(tasks)
        return own + [task.result() for task in tasks]

    def _begin(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._process != os.getpid():
            # A fork has none of the threads.
            self._start()
        return self._pool.submit(function, *arguments)
