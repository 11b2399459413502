"""Laws, the results of checking them, and slopes in log-log plots."""

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmopt.core.ambient import Array
from rmopt.errors import MissingCapabilityError

# A slope is fitted to this many steps, with logarithms off the line by less than this.
WINDOW = 5
STRAIGHT = 0.05

Measure = Callable[[Any], float | str | None]

# Changes below this share of a cost may be hidden by rounding.
HIDDEN = 1e-3

# The limit for identities between numbers near 1: some thousand roundings.
ROUNDING = 1e-12
# Limits are as many roundings in single precision as in double, but at most this, so that a wrong factor shows.
LARGEST = 0.01


@dataclass(frozen=True)
class Check:
    """The result of checking one law.

    Attributes
    ----------
    name : str
        The law.
    subject : str
        The object checked.
    passed : bool
    measured, expected : float
        An error, or NaN if there is none, and its limit, or a slope and the least expected slope.
    detail : str
        The measured quantity, and for a broken law also the likely cause.
    steps, errors : array or None
        The points of a slope.
    """

    name: str
    subject: str
    passed: bool
    measured: float
    expected: float
    detail: str
    steps: Array | None = field(default=None, repr=False)
    errors: Array | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return self.passed

    @property
    def verdict(self) -> str:
        """``passed`` or ``FAILED``."""
        return "passed" if self.passed else "FAILED"

    @property
    def numbers(self) -> str:
        """Measured values and limits, such as ``slope 2, needs about 2 or more``, empty if nothing was measured.

        A slope above the limit is right too: the error falls faster, since its term of that power vanishes.
        """
        if np.isnan(self.measured):
            return ""
        slope = f"slope {self.measured:.3g}, needs about {self.expected:.4g} or more"
        slope = "exact" if self.measured == np.inf else slope
        return f"{self.measured:.4g}, at most {self.expected:.4g}" if self.steps is None else slope

    def __str__(self) -> str:
        found = f"{self.numbers} ({self.detail})".lstrip()
        text = f"{self.verdict}  {self.name} of {self.subject}: {found}"
        return textwrap.fill(text, 80, subsequent_indent=8 * " ", break_on_hyphens=False)


class Law(NamedTuple):
    """A law: an error that must not exceed a limit, and the likely cause if it does.

    `limit` is the largest error due to rounding and finite differences. `measure` takes the subject of the law and
    returns the error, or a sentence on the fault, or None if the law does not apply. It does not apply either if a
    capability is missing. For a slope, `measure` is the error at a step, and `limit` the least power.
    """

    name: str
    says: str
    cause: str
    limit: float
    measure: Measure


def law(laws: list[Law], cause: str, limit: float = ROUNDING) -> Callable[[Measure], Measure]:
    """Return a decorator that adds a function to some laws: its name is theirs, and its docstring their text."""

    def add(measure: Measure) -> Measure:
        says = (measure.__doc__ or "").removesuffix(".")
        laws.append(Law(measure.__name__.strip("_").replace("_", " "), says, cause, limit, measure))
        return measure

    return add


def hold(laws: Iterable[Law], subject: str, about: Any, coarseness: float = 1.0) -> list[Check]:
    """Check all laws that apply to a subject. `coarseness` is that of the points."""
    checks = []
    for name, says, cause, least, measure in laws:
        limit = min(least * coarseness, max(least, LARGEST))
        found: float | str | None
        try:
            with np.errstate(all="ignore"):
                found = measure(about)
        except (MissingCapabilityError, NotImplementedError):
            continue
        except Exception as failure:
            # Any error of a wrong part is the finding.
            found = f"it raised {type(failure).__name__}: {failure}"
        if found is None:
            continue
        says, error = (f"{says}, but {found}", np.nan) if isinstance(found, str) else (says, float(found))
        passed = bool(error <= limit)
        detail = says if passed else f"{says}; likely cause: {cause}"
        checks.append(Check(name, subject, passed, error, limit, detail))
    return checks


def slope_check(
    law: Law, subject: str, scale: float, coarseness: float, power: int = 0, claim: float = 0.0
) -> Check:
    """Return the check that an error falls with at least the expected power of the step, less 0.15.

    The slope is fitted to five consecutive steps: the smallest with errors well above the rounding of numbers of the
    size `scale`, and on a line. An error that never exceeds rounding is exact, and its slope counts as infinite.
    Large steps may leave the domain. An error that is not finite at a small step fails. In single precision, with its
    smaller range, steps are closer together, and rounding is estimated at the smallest steps: a bound by the size
    alone would hide half of the range. It grows with a `power` of the step. The check also fails if the last term
    that the error lacks, a `claim` times the power before the expected one, could be wrong by a tenth unnoticed,
    because a constant has rounded it away. Such a constant is named before other causes.
    """
    name, detail, cause, expected, error_at = law
    steps = np.logspace(0.0, -6.0, 37 if coarseness == 1.0 else 49)
    signed, raised, slope = np.full(len(steps), np.nan), "", np.nan
    for place, t in enumerate(steps):
        try:
            with np.errstate(all="ignore"):
                signed[place] = error_at(float(t))
        except Exception as failure:
            # The step left the domain of the retraction, or a wrong part ends elsewhere.
            raised = f": at the last it raised {type(failure).__name__}: {failure}"
    errors, grown = np.abs(signed), steps**power
    bad = np.flatnonzero(~np.isfinite(errors))
    first = bad[-1] + 1 if bad.size else 0
    if not np.isfinite(scale) or first > len(steps) // 2:
        detail = f"{detail}, of values that are not finite{raised}"
    else:
        rounding = 5e-14 * scale
        if coarseness > 1.0:
            seen = float((errors / grown)[steps < 1e-4].max())
            # A wrong part that grows like rounding is larger.
            seen = min(10.0 * seen, 2e-13 * coarseness * scale)
            rounding = max(seen, (1e-17 if power else 5e-16) * coarseness * scale)

        def fitted(errors: Array) -> float:
            clear = first + np.flatnonzero((errors / grown)[first:] > rounding)
            return _fitted_slope(np.log(steps[clear]), np.log(errors[clear]))

        slope = fitted(errors)
        claimed = claim * steps ** (expected - 1.0)
        # The size is that of the cost, whose change is a small share.
        if claim != 0.0 and np.abs(signed + claimed)[first:].max() < HIDDEN * scale:
            hides = "a constant that hides it in its rounding; subtract it from the cost"
            if not slope >= expected - 0.15:
                cause = f"{hides}, and check again; or {cause}"
            elif max(fitted(np.abs(signed + off * claimed)) for off in (-0.1, 0.1)) >= expected - 0.15:
                slope, cause, detail = np.nan, hides, f"{detail}, which is not visible"
    passed = bool(slope >= expected - 0.15)
    detail = detail if passed else f"{detail}; likely cause: {cause}"
    return Check(name, subject, passed, slope, expected, detail, steps, errors)


def along_several(
    measure: Callable[[Any], list[Check]], vectors: Callable[[], Any], first: Any = None
) -> list[Check]:
    """Return slopes along a tangent vector, or for broken ones the best of two others.

    Noise may spoil a slope, above all in single precision, and so may a coefficient that nearly vanishes along one
    direction: for one of 400 random quadratic costs. A wrong part is wrong in all directions.
    """
    slopes = measure(vectors() if first is None else first)
    for _ in range(2):
        if not all(slopes):
            slopes = [old or new for old, new in zip(slopes, measure(vectors()), strict=True)]
    return slopes


def _fitted_slope(x: Array, y: Array) -> float:
    """Return the slope at the far end of a curve, from the last window that rounding does not spoil."""
    if len(x) < 3:
        return float(np.inf)
    fits = []
    for end in range(len(x), min(len(x), WINDOW) - 1, -1):
        part = slice(max(0, end - WINDOW), end)
        slope, offset = np.polyfit(x[part], y[part], 1)
        if np.abs(y[part] - slope * x[part] - offset).max() < STRAIGHT:
            return float(slope)
        fits.append(float(slope))
    return fits[0]
