"""Laws, the outcome of holding something against them, and slopes in log-log plots."""

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmopt.core.ambient import Array
from rmopt.errors import MissingCapabilityError

# A slope is fitted to this many steps, whose logarithms are off the line by less than this.
WINDOW = 5
STRAIGHT = 0.05

Measure = Callable[[Any], float | str | None]

# Changes of a cost below this share of it may be hidden by its rounding.
HIDDEN = 1e-3

# Of identities between numbers near 1: some thousand roundings.
ROUNDING = 1e-12
# Limits are as many roundings in single precision as in double, but no more than this: a wrong factor is seen.
LARGEST = 0.01


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
    measured, expected : float
        An error, NaN where there is none, and its limit; or a slope and the least slope wanted.
    detail : str
        What was measured; for a law that is broken, the likely cause as well.
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
        """What was measured and what was wanted, such as ``2.001, expected 2``; empty where nothing was measured."""
        if np.isnan(self.measured):
            return ""
        limit = "expected" if self.steps is not None else "at most"
        found = "exact" if self.passed and self.measured == np.inf else f"{self.measured:.4g}"
        return f"{found}, {limit} {self.expected:.4g}"

    def __str__(self) -> str:
        found = f"{self.numbers} ({self.detail})".lstrip()
        text = f"{self.verdict}  {self.name} of {self.subject}: {found}"
        return textwrap.fill(text, 80, subsequent_indent=8 * " ", break_on_hyphens=False)


class Law(NamedTuple):
    """What holds, by an error that is no larger than a limit where it does, and the likely cause where it does not.

    `limit` is the largest error that rounding and finite differences explain. `measure` takes what the law is about
    and returns the error, or a sentence on what is wrong, or None where the law does not apply; nor does it where a
    capability is missing. Of a slope, `measure` is the error at a step, and `limit` the least power of it.
    """

    name: str
    says: str
    cause: str
    limit: float
    measure: Measure


def law(laws: list[Law], cause: str, limit: float = ROUNDING, name: str = "") -> Callable[[Measure], Measure]:
    """Return a decorator that adds a function to some laws: its name is theirs, and its docstring what they say."""

    def add(measure: Measure) -> Measure:
        says = (measure.__doc__ or "").removesuffix(".")
        laws.append(Law(name or measure.__name__.strip("_").replace("_", " "), says, cause, limit, measure))
        return measure

    return add


def hold(laws: Iterable[Law], subject: str, about: Any, coarseness: float = 1.0) -> list[Check]:
    """Hold something against all laws that apply to it; `coarseness` is that of the points."""
    checks = []
    for name, says, cause, least, measure in laws:
        error, limit = np.nan, min(least * coarseness, max(least, LARGEST))
        found: float | str | None
        try:
            with np.errstate(all="ignore"):
                found = measure(about)
        except (MissingCapabilityError, NotImplementedError):
            continue
        except Exception as failure:
            # Whatever a wrong part does is the finding.
            found = f"it raised {type(failure).__name__}: {failure}"
        if found is None:
            continue
        if isinstance(found, str):
            says = f"{says}, but {found}"
        else:
            error = float(found)
        passed = bool(error <= limit)
        detail = says if passed else f"{says}; likely cause: {cause}"
        checks.append(Check(name, subject, passed, error, limit, detail))
    return checks


def slope_check(
    law: Law, subject: str, scale: float, coarseness: float, power: int = 0, claim: float = 0.0
) -> Check:
    """Return the check that an error falls with at least the expected power of the step, less 0.15.

    The slope is fitted to five consecutive steps: the smallest that stand well above rounding, which is that of
    numbers of the size `scale`, and lie on a line. An error that never stands above rounding is exact, and its slope
    counts as infinite. Large steps may leave the domain; an error that is not finite at a small step fails.
    In single precision, which sees less far, steps are closer to each other, and rounding is what is seen of it at
    the smallest steps: a bound by the size alone would hide half of the range. It grows with a `power` of the step.
    Where the last term that the error lacks, a `claim` times the power before the expected one, could be wrong by a
    tenth and nobody would see it, for a constant has rounded it away, the check fails; where it fails beside such a
    constant, that is named before other causes.
    """
    name, detail, cause, expected, error_at = law
    steps = np.logspace(0.0, -6.0, 37 if coarseness == 1.0 else 49)
    signed, raised, slope = np.full(len(steps), np.nan), "", np.nan
    for place, t in enumerate(steps):
        try:
            with np.errstate(all="ignore"):
                signed[place] = error_at(float(t))
        except Exception as failure:
            # The step left the domain of the retraction, or a wrong part ends anywhere.
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
            rounding = max(10.0 * seen, (1e-17 if power else 5e-16) * coarseness * scale)

        def fitted(errors: Array) -> float:
            clear = first + np.flatnonzero((errors / grown)[first:] > rounding)
            return _fitted_slope(np.log(steps[clear]), np.log(errors[clear]))

        slope = fitted(errors)
        claimed = claim * steps ** (expected - 1.0)
        # The size is that of the cost, of which what changes is a small share.
        if claim != 0.0 and np.abs(signed + claimed)[first:].max() < HIDDEN * scale:
            hides = "a constant that hides it in its rounding; subtract it from the cost"
            if not slope >= expected - 0.15:
                cause = f"{hides}, and look again; or {cause}"
            elif max(fitted(np.abs(signed + off * claimed)) for off in (-0.1, 0.1)) >= expected - 0.15:
                slope, cause, detail = np.nan, hides, f"{detail}, which is not seen"
    passed = bool(slope >= expected - 0.15)
    detail = f"slope of {detail}" if passed else f"slope of {detail}; likely cause: {cause}"
    return Check(name, subject, passed, slope, expected, detail, steps, errors)


def along_several(
    measure: Callable[[Any], list[Check]], vectors: Callable[[], Any], first: Any = None
) -> list[Check]:
    """Return slopes along a tangent vector; of those that are broken the best of two others.

    Noise may bend a slope, in single precision above all, and so may a coefficient that nearly vanishes along one
    direction: of 400 random quadratic costs one. A part that is wrong is wrong in all directions.
    """
    slopes = measure(vectors() if first is None else first)
    for _ in range(2):
        if not all(slopes):
            slopes = [old or new for old, new in zip(slopes, measure(vectors()), strict=True)]
    return slopes


def _fitted_slope(x: Array, y: Array) -> float:
    """Return the slope at the far end of a curve, from the last window that rounding does not bend."""
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
