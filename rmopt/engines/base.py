"""The interface of all engines: advance a state along a schedule."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.points import of_plain_reals
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.kernels.meeting import Meeting, meet

Supports = Mapping[str, tuple[type, ...]]


class Engine(ABC):
    """Runs the steps of a solver.

    An engine splits exactly: advancing 200 steps is bit-identical to advancing 80 and then 120. A state is a
    dataclass of arrays, numbers and points, which a checkpoint takes apart and rebuilds.

    Attributes
    ----------
    supports : mapping
        For a compiled engine: by role ("cost", "manifold", "loss", "retraction", "rule") the classes whose methods
        its loop replaces. Subclasses, which may override these methods, are left to the reference engine. Without a
        "rule" it does plain steps.
    """

    supports: ClassVar[Supports] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "load" in vars(cls):
            cls.load = of_plain_reals(vars(cls)["load"])  # type: ignore[method-assign]

    @classmethod
    def refuses(cls, reference: Any) -> str | None:
        """Return why a compiled engine cannot replace a reference engine of its classes, or None."""
        return None

    @abstractmethod
    def load(self, point: Any) -> Any:
        """Return a state at a point. The state has `steps` and `updates` counters."""

    @abstractmethod
    def advance(self, state: Any, schedule: Array, etas: Array) -> Any:
        """Do one step per row of the schedule, and return the new state. The old one becomes invalid.

        Parameters
        ----------
        state : object
        schedule : int array, shape (steps, width)
            The terms of each step.
        etas : float array, shape (steps,)
            Step sizes.

        Raises
        ------
        DivergedError
            At the first step with a value that is not finite.
        """

    def dump(self, state: Any) -> Any:
        """Return the point of a state, without changing it."""
        return state.point

    def moved(self, state: Any, point: Any) -> Any:
        """Return a state that continues from another point, with its counters and memory.

        Raises
        ------
        MissingCapabilityError
            If the memory belongs to the old point alone.
        """
        raise MissingCapabilityError(
            f"{type(self).__name__} cannot continue from another point (it has no `moved`); write that method if the "
            "engine is yours, or use a solver without memory, such as SGD."
        )

    def shared(self, state: Any) -> tuple[Array, ...]:
        """Return the matrices that workers average, of doubles in C order and one width, or none to average points.

        With matrices `advance` also takes a `rmopt.kernels.meeting.Meeting` or None, and attends it when due.
        """
        return ()

    def met(self, state: Any, meeting: Meeting) -> bool:
        """Attend a meeting now, and return whether it succeeded."""
        return bool(meet(meeting))

    def handed_over(self, state: Any) -> Any:
        """Return a state without anything from this engine's data. The old one becomes invalid."""
        return state

    def taken_over(self, state: Any) -> Any:
        """Return a state that continues one of an engine with other data, or None to begin at its point."""
        return None


def diverged(step: int, eta: float) -> DivergedError:
    """Return the error of a run that is no longer finite."""
    return DivergedError(
        f"the run diverged at step {step} (step size {eta:.3g}): the score or the gradient is no longer "
        "finite. Likely causes: a step size that is too large (try a tenth), rows that are not scaled "
        "(try unit rows), or a start that is far out of scale.",
        step=step,
    )


def lost(step: int, why: object) -> DivergedError:
    """Return the error of a run that cannot continue, because of an error or a finding."""
    return DivergedError(
        f"the run diverged at step {step} ({str(why).rstrip('.')}); take a smaller step size.", step
    )


def unlike(role: str, part: Any, kinds: Iterable[type]) -> str | None:
    """Return why code for some classes does not apply to a part, or None if the part is of one of them."""
    made, kinds = type(part), tuple(kinds)
    name = made.__name__
    if made in kinds:
        for key in getattr(part, "__dict__", {}):
            # A manifold's default retraction may be exchanged, but other parts must match exactly.
            if inspect.isfunction(getattr(made, key, None)) or (role == "retraction" and hasattr(made, key)):
                return f"this {name} has its own `{key}`; compiled steps are for that of its class"
        return None
    for kind in made.__mro__:
        if kind in kinds:
            return f"{name} is a subclass of {kind.__name__}; compiled steps are for {kind.__name__} itself"
    shown = name if role == "cost" else repr(part)
    known = [kind.__name__ for kind in kinds]
    having = f"{', '.join(known[:-1])} and {known[-1]} have" if known[1:] else f"{known[0]} has"
    return f"the {role} {shown} has no compiled version ({having})"


def checked(
    schedule: Any,
    etas: Array,
    ranges: Sequence[tuple[int, int | None]],
    batch_size: int | None = None,
    what: str = "terms",
) -> Array:
    """Return a schedule as int64 numbers, and refuse numbers out of range.

    There is one of the `etas` for each step; `ranges` are those of `FiniteSum.term_ranges`, `batch_size` the terms
    per step (any number by default), and `what` is the name of the numbers.
    """
    schedule, steps, width = np.asarray(schedule), len(etas), len(ranges)
    if not len(schedule) and not steps:
        return np.empty((0, width), dtype=np.int64)
    per_step = schedule.shape[-1] // width * width if batch_size is None else batch_size * width
    if schedule.dtype.kind not in "iu" or per_step == 0 or schedule.shape != (steps, per_step):
        wanted = per_step if per_step else f"a multiple of {width}"
        raise InvalidInputError(
            f"the schedule holds {schedule.dtype} of shape {schedule.shape}; {steps} steps need integers of shape "
            f"({steps}, {wanted})."
        )
    columns = schedule.reshape(-1, width)
    for (least, count), column in zip(ranges, columns.T, strict=True):
        low, high = column.min(), column.max()
        if low < least or (count is not None and high >= count):
            there = "" if count is None else f", and there are {count}"
            raise InvalidInputError(
                f"the schedule names {what} from {low} to {high}{there}; they count from 0."
            )
    return schedule.astype(np.int64, copy=False)
