"""What comes of strange input: a case, how it ends, and how many ended how."""

import faulthandler
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.errors import RmoptError

SECONDS = 10.0
CLEAN = ("fine", "rmopt's sentence", "scikit-learn's sentence", "their own error")
# Methods of strangers' costs, whose errors are theirs.
OWN = ("their_value", "their_gradient")


@dataclass(frozen=True)
class Case:
    """Something to try.

    Attributes
    ----------
    name : str
        What is strange about it.
    run : callable
        Returns what must be finite.
    """

    name: str
    run: Callable[[], Any]


class _TooLong(BaseException):
    pass


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End what takes more CPU time; a loop that hears no signal ends the process, with its stack."""

    def ring(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    faulthandler.dump_traceback_later(20 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)


def outcome(case: Case) -> tuple[str, str]:
    """Return how a case ended, and what it said."""
    try:
        with at_most(SECONDS), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = case.run()
    except _TooLong:
        return "too long", ""
    except RmoptError as error:
        said = str(error)
        return ("rmopt's sentence" if said.endswith((".", "?")) and "\n" not in said else "no sentence"), said
    except Exception as error:
        if traceback.extract_tb(error.__traceback__)[-1].name in OWN:
            return "their own error", ""
        frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        last = next((name for name in reversed(frames) if "pandas" not in name and "polars" not in name), "")
        known = isinstance(error, ValueError | TypeError) and "/sklearn/" in last
        said = f"{type(error).__name__}: {error} [{'/'.join(Path(frames[-1]).parts[-3:])}]"
        return ("scikit-learn's sentence" if known else "raw error"), said
    return ("silent NaN" if not_finite(found) else "fine"), ""


def tried(cases: list[Case]) -> tuple[Counter[str], list[str]]:
    """Return the number of cases by outcome, and those that are not clean."""
    counts: Counter[str] = Counter()
    bad = []
    for case in cases:
        end, said = outcome(case)
        counts[end] += 1
        if end not in CLEAN:
            bad.append(f"{end}: {case.name}: {said[:200]}")
    return counts, bad


def not_finite(value: Any, depth: int = 0) -> bool:
    """Return whether NaN or infinity is among the numbers of a result."""
    if sp.issparse(value):
        value = value.data
    if isinstance(value, float | complex | np.ndarray | np.generic):
        array = np.asarray(value)
        return array.dtype.kind in "fc" and not np.isfinite(array).all()
    if depth < 4 and isinstance(value, list | tuple):
        return any(not_finite(one, depth + 1) for one in value)
    if depth < 4 and hasattr(value, "__dict__") and type(value).__module__.startswith(("rmopt", "problems")):
        return any(not_finite(one, depth + 1) for one in vars(value).values())
    return False
