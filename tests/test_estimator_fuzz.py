"""No estimator, and no function beside them, ends in a raw error, a silent NaN or never, whatever it is given."""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimator_parts import (
    FUNCTIONS,
    PARTS,
    Case,
    data_cases,
    function_cases,
    not_finite,
    parameter_cases,
    public_estimators,
    use_cases,
)
from sklearn.exceptions import NotFittedError

from rmopt.core.errors import RmoptError

SECONDS = 10.0
CLEAN = ("fine", "rmopt's sentence", "scikit-learn's sentence")


class _TooLong(BaseException):
    pass


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End what takes longer; a loop that hears no signal ends the process, with its stack."""

    def ring(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(6 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


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


def cases_of(name: str) -> list[Case]:
    """Return all cases of an estimator or of a function."""
    if name in FUNCTIONS:
        return list(function_cases(name))
    part = PARTS[name]
    # What is compiled is compiled here: a compiler that is interrupted is of no use afterwards.
    for method, given in part.uses.items():
        getattr(part.make().fit(**part.data), method)(*given)
    return list(chain(parameter_cases(part), data_cases(part), use_cases(part)))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some parameters name files."""
    monkeypatch.chdir(tmp_path)


def test_the_table_holds_every_public_estimator() -> None:
    assert public_estimators() <= set(PARTS)


@pytest.mark.parametrize("name", [*PARTS, *FUNCTIONS])
def test_a_few_strange_inputs_of_each(name: str) -> None:
    _, bad = tried(random.Random(name).sample(cases_of(name), 25))
    assert not bad, "\n".join(bad)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PARTS, *FUNCTIONS])
def test_all_strange_inputs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts, bad = tried(cases_of(name))
    with capsys.disabled():
        print(f"\n{name}: {counts.total()} cases: {dict(counts.most_common())}")
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("name", PARTS)
def test_methods_before_fit_say_so(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    uses = part.uses | ({"save": (tmp_path / "model.npz",)} if hasattr(part.kind, "save") else {})
    for method, given in uses.items():
        if "fit" not in method:
            with pytest.raises(NotFittedError, match="not fitted"):
                getattr(part.make(), method)(*given)


@pytest.mark.parametrize("name", PARTS)
def test_every_parameter_is_declared(name: str) -> None:
    part = PARTS[name]
    assert set(part.kind._parameters) == set(part.make().get_params(deep=False))
