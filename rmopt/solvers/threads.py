"""How many threads share a sum decides how it is rounded: BLAS has one; and functions that run in threads."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    # Looking for them takes milliseconds; numpy and scipy.linalg are imported by then.
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


def in_threads(function: Callable[..., Any], *many: Iterable[Any]) -> list[Any]:
    """Return what a function gives for each, as `map` does, in as many threads; where one fails all have ended."""
    calls = list(zip(*many, strict=True))
    if len(calls) < 2:
        return [function(*call) for call in calls]
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: function(*call), calls))
