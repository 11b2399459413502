"""Stopping criteria on the rows of a run's history, combined by ``|`` and ``&``."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, ClassVar, Self

from rmopt.core.arguments import CheckedValue, bounded, callable_of, flag, integer, number, shown
from rmopt.errors import InvalidInputError

Row = Mapping[str, Any]


class Converged(str):
    """A reason to stop which means that the run has reached its goal.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import Converged, GradientDescent
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> def near(rows):
    ...     return Converged("near enough") if rows[-1]["cost"] < 0.21 else None
    >>> result = GradientDescent().run(problem, random_state=0, stop=near)
    >>> result.stopped_by, result.converged
    ('near enough', True)
    """

    def __new__(cls, reason: str) -> Self:
        return super().__new__(cls, reason)


class Stop(ABC):
    """A stopping criterion: a function of the rows so far, the current one last.

    A row holds ``step``, ``updates`` and ``seconds``, the solver's observations (for full-gradient solvers ``cost``,
    ``gradient_norm``, ``step_size`` and the counts of a `Result`), and the metrics of a recorder. Any function of the
    rows that returns a reason or None can be used as a criterion.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import GradientDescent, GradientNorm, MaxSeconds
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> stop = GradientNorm(1e-3) | MaxSeconds(60)
    >>> result = GradientDescent(tol=0.0).run(problem, random_state=0, stop=stop)
    >>> result.converged, result.stopped_by[:20]
    (True, 'a gradient of length')
    """

    # The name of the number for which it sets a bound.
    bounds: ClassVar[str] = ""

    @abstractmethod
    def __call__(self, rows: Sequence[Row]) -> str | None:
        """Return why to stop, or None."""

    def due(self) -> float:
        """Return the step at which it must be evaluated, or infinity for any."""
        return math.inf

    def waits_for(self, name: str) -> bool:
        """Return whether it, or a part of it, sets a bound for a number of the rows."""
        return name == self.bounds

    def __or__(self, other: Any) -> "Stop":
        return Either(self, other)

    def __and__(self, other: Any) -> "Stop":
        return Both(self, other)

    def __bool__(self) -> bool:
        raise InvalidInputError(
            f"{self} is neither true nor false; combine criteria by | and &, not by `or` and `and`."
        )


@dataclass(frozen=True)
class _Pair(CheckedValue, Stop):
    first: Annotated[Any, callable_of]
    second: Annotated[Any, callable_of]

    def due(self) -> float:
        parts = (self.first, self.second)
        return min((part.due() for part in parts if isinstance(part, Stop)), default=math.inf)

    def waits_for(self, name: str) -> bool:
        return any(isinstance(part, Stop) and part.waits_for(name) for part in (self.first, self.second))


class Either(_Pair):
    """Stop when one of two criteria returns a reason; made by ``|``."""

    def __call__(self, rows: Sequence[Row]) -> str | None:
        return asked(self.first, rows) or asked(self.second, rows)


class Both(_Pair):
    """Stop when two criteria return reasons at the same time; made by ``&``."""

    def __call__(self, rows: Sequence[Row]) -> str | None:
        first, second = asked(self.first, rows), asked(self.second, rows)
        if first is None or second is None:
            return None
        kind = Converged if isinstance(first, Converged) and isinstance(second, Converged) else str
        return kind(f"{first} and {second}")


@dataclass(frozen=True)
class MaxSteps(CheckedValue, Stop):
    """Stop after this many steps.

    Parameters
    ----------
    steps : int
    """

    steps: Annotated[int, integer]

    def due(self) -> float:
        return self.steps

    def __call__(self, rows: Sequence[Row]) -> str | None:
        return f"{self.steps} steps" if rows[-1]["step"] >= self.steps else None


@dataclass(frozen=True)
class MaxSeconds(CheckedValue, Stop):
    """Stop after this many seconds of training, without measurements and saves.

    Parameters
    ----------
    seconds : float
    """

    bounds = "seconds"
    seconds: Annotated[float, bounded(number, least=0)]

    def __call__(self, rows: Sequence[Row]) -> str | None:
        return f"{self.seconds:g} seconds" if rows[-1]["seconds"] >= self.seconds else None


@dataclass(frozen=True)
class GradientNorm(CheckedValue, Stop):
    """Stop when the gradient is at most this long: in absolute terms, or relative to the first one.

    Parameters
    ----------
    length : float
    relative : bool
    """

    bounds = "gradient_norm"
    length: Annotated[float, bounded(number, least=0)]
    relative: Annotated[bool, flag] = False

    def __call__(self, rows: Sequence[Row]) -> str | None:
        now = seen(rows[-1], "gradient_norm", self)
        limit = self.length * (seen(rows[0], "gradient_norm", self) if self.relative else 1.0)
        return Converged(f"a gradient of length {now:.1e}") if now <= limit else None


@dataclass(frozen=True)
class Below(CheckedValue, Stop):
    """Stop when a number of the rows is at most this: the cost, a gap, or a metric of the recorder.

    Parameters
    ----------
    value : float
    name : str
    """

    value: Annotated[float, number]
    name: str = "cost"

    def __call__(self, rows: Sequence[Row]) -> str | None:
        now = seen(rows[-1], self.name, self)
        return Converged(f"{self.name} {now:.6g}") if now <= self.value else None


@dataclass(frozen=True)
class SmallChange(CheckedValue, Stop):
    """Stop when a number changed by at most this share of itself since the previous row.

    Parameters
    ----------
    share : float
    name : str
    """

    share: Annotated[float, bounded(number, least=0)]
    name: str = "cost"

    def __call__(self, rows: Sequence[Row]) -> str | None:
        if len(rows) < 2 or _stayed(rows, -1):
            return None
        now, before = (seen(row, self.name, self) for row in (rows[-1], rows[-2]))
        change = abs(now - before)
        small = change <= self.share * max(abs(now), abs(before))
        return f"a change of the {self.name} by {change:.1e}" if small else None


@dataclass(frozen=True)
class SmallStep(CheckedValue, Stop):
    """Stop when the last step was at most this long.

    Parameters
    ----------
    length : float
    """

    length: Annotated[float, bounded(number, least=0)]

    def __call__(self, rows: Sequence[Row]) -> str | None:
        if len(rows) < 2 or _stayed(rows, -1):
            return None
        moved = seen(rows[-1], "step_length", self)
        return f"a step of length {moved:.1e}" if moved <= self.length else None


@dataclass(frozen=True)
class Stagnation(CheckedValue, Stop):
    """Stop when a number has had no better value in this many rows.

    Parameters
    ----------
    rows : int
    name : str
    """

    rows: Annotated[int, bounded(integer, 1)]
    name: str = "cost"

    def __call__(self, rows: Sequence[Row]) -> str | None:
        # Rows of refused steps do not count.
        moved = (place for place in range(len(rows) - 1, -1, -1) if not place or not _stayed(rows, place))
        places = list(islice(moved, self.rows + 1))
        *recent, earlier = (seen(rows[place], self.name, self) for place in places)
        if len(recent) < self.rows or any(value < earlier for value in recent):
            return None
        return f"no better {self.name} in {self.rows} rows"


@dataclass(frozen=True)
class NotFinite(Stop):
    """Stop when a number of the rows is NaN or infinite, for which a run otherwise raises `DivergedError` at its end.

    Parameters
    ----------
    name : str
    """

    name: str = "cost"

    def __call__(self, rows: Sequence[Row]) -> str | None:
        now = seen(rows[-1], self.name, self)
        return None if math.isfinite(now) else f"{self.name} {now}"


@dataclass(frozen=True)
class MaxEvaluations(CheckedValue, Stop):
    """Stop after this many evaluations of the cost, or of another count of full-gradient solvers.

    Steps are always completed, so the last one may exceed the number.

    Parameters
    ----------
    evaluations : int
    name : str
        "costs", "gradients", "hessians" or "retractions".
    """

    evaluations: Annotated[int, integer]
    name: str = "costs"

    def __call__(self, rows: Sequence[Row]) -> str | None:
        count = seen(rows[-1], self.name, self)
        return f"{self.evaluations} {self.name}" if count >= self.evaluations else None


def asked(criterion: Any, rows: Sequence[Row]) -> str | None:
    """Return the reason of a criterion or a function of the rows, and refuse other values."""
    return as_reason("stop", criterion(rows))


def as_reason(name: str, found: Any) -> str | None:
    """Return a reason to stop or None, and refuse other values; `name` is that of the function."""
    if not (found is None or isinstance(found, str)):
        raise InvalidInputError(
            f"{name} returned {shown(found)}; it must return a reason as a string, or None to continue."
        )
    return found


def _stayed(rows: Sequence[Row], place: int) -> bool:
    """Return whether the step before a row was refused: the point is that of the row before."""
    row, before = rows[place], rows[place - 1]
    return row["step"] > before["step"] and row["updates"] == before["updates"]


def seen(row: Row, name: str, criterion: Stop) -> float:
    """Return a number of a row, or raise an error that explains how to record it."""
    if not isinstance(name, str) or name not in row:
        raise InvalidInputError(
            f"{shown(criterion)} looks at {shown(name)}, and the rows of this run hold {', '.join(row)}; measure it, "
            f"from the start of the run on: Recorder({{{shown(name)}: function of the point}})."
        )
    return float(row[name])
