"""The outcome of a check, and slopes in log-log plots."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from rmopt.core.ambient import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Check:
    """One law, measured.

    Attributes
    ----------
    name : str
        The law.
    subject : str
        What was checked.
    passed : bool
    measured, expected : float or None
        An error and its limit, or a slope and the least slope wanted.
    detail : str
        What the numbers are.
    steps, errors : array or None
        The points of a slope.
    """

    name: str
    subject: str
    passed: bool
    measured: float | None
    expected: float | None
    detail: str
    steps: Array | None = None
    errors: Array | None = None

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        return f"{verdict}  {self.name} of {self.subject}: {self.measured:.4g} ({self.detail})"

    def plot(self, path: Path | str) -> None:
        """Save a picture of error against step, with the expected slope beside it.

        Only checks with `steps` have a picture.
        """
        from rmopt.drawing import draw

        draw(Path(path), (5.0, 4.0), _fill, self)


def report(checks: Iterable[Check], file: IO[str] | None = None) -> None:
    """Print one line per check and a count."""
    checks = list(checks)
    stream = sys.stdout if file is None else file
    for check in checks:
        print(check, file=stream)
    print(f"{sum(map(bool, checks))} of {len(checks)} checks passed.", file=stream)


def bounded(name: str, subject: object, error: float, limit: float, detail: str) -> Check:
    """Return the check that an error does not exceed a limit."""
    return Check(name, str(subject), bool(error <= limit), float(error), limit, detail)


def slope_check(
    name: str,
    subject: object,
    error_at: Callable[[float], float],
    expected: float,
    scale: float,
    detail: str,
) -> Check:
    """Return the check that an error falls with the expected power of the step.

    The slope is fitted to the six smallest steps whose error stands well above rounding. An error that
    never does so is exact, and its slope counts as infinite.

    Parameters
    ----------
    error_at : callable
        The error for a step t.
    expected : float
        The least power; 0.15 below still passes.
    scale : float
        Size of the numbers whose difference the error is.
    """
    steps = np.logspace(0.0, -6.0, 37)
    errors = np.array([error_at(t) for t in steps])
    clear = np.flatnonzero(errors > 2e-13 * scale)[-6:]
    fitted = len(clear) >= 3
    slope = float(np.polyfit(np.log(steps[clear]), np.log(errors[clear]), 1)[0]) if fitted else np.inf
    passed = bool(slope >= expected - 0.15)
    return Check(name, str(subject), passed, slope, expected, f"{detail}: slope", steps, errors)


def _fill(figure: Figure, check: Check) -> None:
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    assert check.steps is not None
    assert check.errors is not None
    assert check.expected is not None
    shown = check.errors > 0
    steps, errors = check.steps[shown], check.errors[shown]
    axes.loglog(steps, errors, "o", color="#0072B2", markersize=4, label=f"measured: {check.measured:.2f}")
    if len(errors):
        line = errors[0] * (steps / steps[0]) ** check.expected
        axes.loglog(steps, line, "--", color="#D55E00", label=f"slope {check.expected:g}")
        axes.set_ylim(bottom=max(errors.min() / 10, 1e-18))
    axes.set_xlabel("step")
    axes.set_ylabel("error")
    axes.set_title(f"{check.name}\n{check.subject}", fontsize="small")
    axes.legend()
    axes.grid(alpha=0.3)
