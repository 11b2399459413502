"""Step-size rules: functions of the number of the step.

Decreasing ones go back to Robbins and Monro (1951), those with a square root to Nemirovski et al. (2009).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, callable_of, integer, number, shown
from rmopt.errors import InvalidInputError
from rmopt.kernels.row_column import EXACT, FIXED, FRACTION


class StepSize(ABC):
    """A rule that gives the step sizes of the steps numbered `t` (from 0).

    Attributes
    ----------
    search : int
        The meaning of the numbers for a block solver (`rmopt.kernels.row_column`), by default `FIXED` step sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.solvers import StepSize
    >>> class Halving(StepSize):
    ...     def __call__(self, t):
    ...         return 0.5**t
    >>> Halving()(np.arange(3)).tolist()
    [1.0, 0.5, 0.25]
    """

    search: ClassVar[int] = FIXED

    @abstractmethod
    def __call__(self, t: Array) -> Array:
        """Return the step sizes for an int array of step numbers."""


# The types that solvers accept as a rule (see `as_step_size`).
StepSizeLike = float | StepSize | Callable[[Array], Array]


_Positive = Annotated[float, bounded(number, above=0)]
_Share = Annotated[float, bounded(number, above=0, below=1)]


@dataclass(frozen=True)
class Constant(CheckedValue, StepSize):
    """The step size a at every step.

    Attributes
    ----------
    a : float
    """

    a: _Positive

    def __call__(self, t: Array) -> Array:
        return np.full(len(t), self.a)


@dataclass(frozen=True)
class InverseTime(CheckedValue, StepSize):
    """The step size a / (1 + b t).

    Attributes
    ----------
    a, b : float
    """

    a: _Positive
    b: _Positive

    def __call__(self, t: Array) -> Array:
        return self.a / (1.0 + self.b * np.asarray(t, dtype=float))


@dataclass(frozen=True)
class InverseSqrt(CheckedValue, StepSize):
    """The step size a / √(t + 1).

    Attributes
    ----------
    a : float
    """

    a: _Positive

    def __call__(self, t: Array) -> Array:
        return self.a / np.sqrt(np.asarray(t, dtype=float) + 1.0)


@dataclass(frozen=True)
class Cosine(CheckedValue, StepSize):
    """Half a cosine from a to 0 over some steps (Loshchilov and Hutter 2017).

    Attributes
    ----------
    a : float
    n_steps : int
        Steps to the end; afterwards it stays 0.
    """

    a: _Positive
    n_steps: Annotated[int, bounded(integer, 1)]

    def __call__(self, t: Array) -> Array:
        share = np.clip(np.asarray(t, dtype=float) / self.n_steps, 0.0, 1.0)
        return 0.5 * self.a * (1.0 + np.cos(np.pi * share))


@dataclass(frozen=True)
class ExactLineSearch(CheckedValue, StepSize):
    """The minimiser along the block's gradient, at most the share `limit` of the distance to the boundary.

    For block solvers on manifolds with a step bound.

    Attributes
    ----------
    limit : float
    """

    limit: _Share = 0.99
    search: ClassVar[int] = EXACT

    def __call__(self, t: Array) -> Array:
        return np.full(len(t), self.limit)


@dataclass(frozen=True)
class FractionOfBound(CheckedValue, StepSize):
    """A share of the distance to the boundary, or an exact search if the retraction has no boundary.

    For block solvers on manifolds with a step bound.

    Attributes
    ----------
    fraction : float
        Between 0 and 1.
    """

    fraction: _Share = 0.5
    search: ClassVar[int] = FRACTION

    def __call__(self, t: Array) -> Array:
        return np.full(len(t), self.fraction)


@dataclass(frozen=True)
class FromFunction(StepSize):
    """A user-defined rule.

    Attributes
    ----------
    function : callable
        Maps an int array of step numbers to step sizes.
    """

    function: Callable[[Array], Array]

    def __post_init__(self) -> None:
        callable_of("function", self.function)

    def __repr__(self) -> str:
        return f"FromFunction({getattr(self.function, '__name__', type(self.function).__name__)})"

    def __call__(self, t: Array) -> Array:
        """Return the function's values, checked."""
        try:
            etas = np.asarray(self.function(t)).astype(float, casting="same_kind")
        except InvalidInputError:
            # An error of a rule within the function.
            raise
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the step-size function failed for an array of step numbers ({error}); write it with numpy "
                "functions that return real numbers, such as np.where(t < 100, 0.1, 0.01)."
            ) from error
        if etas.shape != (len(t),) or not (np.isfinite(etas) & (etas >= 0.0)).all():
            raise InvalidInputError(
                f"the step-size function returned {shown(etas)} for {len(t)} steps; it must return one finite number "
                "of at least 0 for each."
            )
        return etas


def as_step_size(rule: StepSizeLike, searches: bool = False) -> StepSize:
    """Return a rule: a number becomes `Constant`, a function `FromFunction`; some solvers also take searches."""
    if not isinstance(rule, StepSize):
        return FromFunction(rule) if callable(rule) else Constant(number("step_size", rule, above=0))
    if rule.search != FIXED and not searches:
        raise InvalidInputError(
            f"step_size = {rule} searches along blocks, for CoordinateDescent; give a number or a function."
        )
    return rule


def watched(rule: StepSize) -> StepSize:
    """Return a rule with checks of its step sizes at each draw."""
    return rule if isinstance(rule, FromFunction) else FromFunction(rule)
