"""How benchmarks take the time."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np


def median(
    work: Callable[[], Any], rounds: int = 3, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """Return the median time of some calls, and what the last one returned."""
    seconds, found = [], None
    for _ in range(rounds):
        begun = clock()
        found = work()
        seconds.append(clock() - begun)
    return float(np.median(seconds)), found
