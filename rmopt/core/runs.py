"""The state of runs: compiled functions are compared with their originals once per run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_begun = _going = 0


@contextmanager
def running() -> Iterator[None]:
    """Mark a run: functions that JAX or numba compiles must not change until it ends."""
    global _begun, _going
    with _lock:
        _begun, _going = _begun + 1, _going + 1
    try:
        yield
    finally:
        with _lock:
            _going -= 1


def current_run() -> int | None:
    """Return the number of the latest run, or None if no run is in progress."""
    return _begun if _going else None
