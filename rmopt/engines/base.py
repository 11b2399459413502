"""The one verb of every engine: advance a state along a schedule."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.points import of_plain_reals, packed, unpacked
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.kernels.meeting import Meeting, meet

Supports = Mapping[str, tuple[type, ...]]


class Engine(ABC):
    """Runs the steps of a solver.

    An engine splits exactly: advancing 200 steps gives the same bits as advancing 80 and then 120. A state is a
    dataclass of arrays, numbers and points; `pack` and `unpack` take it apart and put it together.

    Attributes
    ----------
    supports : mapping
        Of a compiled engine: by role ("cost", "manifold", "loss", "retraction", "rule") the classes whose methods its
        loop stands for. A subclass of them may override what the loop does, and is left to the reference engine.
        Without a "rule" it does plain steps.
    """

    supports: ClassVar[Supports] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "load" in vars(cls):
            cls.load = of_plain_reals(vars(cls)["load"])  # type: ignore[method-assign]

    @classmethod
    def refuses(cls, reference: Any) -> str | None:
        """Return why a compiled engine does not stand for a reference engine of its classes, or None."""
        return None

    @abstractmethod
    def load(self, point: Any) -> Any:
        """Return a state that stands at a point. The state has `steps` and `updates` counters."""

    @abstractmethod
    def advance(self, state: Any, schedule: Array, etas: Array) -> Any:
        """Do one step per row of the schedule; return the new state. The old one is used up.

        Parameters
        ----------
        state : object
        schedule : int array, shape (steps, width)
            The terms that each step looks at.
        etas : float array, shape (steps,)
            Step sizes.

        Raises
        ------
        DivergedError
            At the first step with a value that is not finite.
        """

    def dump(self, state: Any) -> Any:
        """Return the point at which a state stands; the state is not changed."""
        return state.point

    def moved(self, state: Any, point: Any) -> Any:
        """Return a state that goes on from another point, with its counters and what it remembers.

        Raises
        ------
        MissingCapabilityError
            Where what is remembered belongs to the old point alone.
        """
        raise MissingCapabilityError(
            f"{type(self).__name__} cannot go on from another point (it has no `moved`); write that method where "
            "the engine is yours, or use a solver whose steps remember nothing, such as SGD."
        )

    def shared(self, state: Any) -> tuple[Array, ...]:
        """Return the matrices that workers bring to their mean, in C order, of doubles and one width; none: points.

        With some `advance` also takes a `rmopt.kernels.meeting.Meeting`, and goes to it where this says, or None.
        """
        return ()

    def met(self, state: Any, meeting: Meeting) -> bool:
        """Go to a meeting now; return whether all was well."""
        return bool(meet(meeting))

    def handed_over(self, state: Any) -> Any:
        """Return a state without anything that belongs to this engine's data; the old one is used up."""
        return state

    def taken_over(self, state: Any) -> Any:
        """Return a state that goes on from one which an engine with other data handed over; None: from its point."""
        return None

    # A state's arrays to the last bit, and back: pack(state), and unpack(arrays, template) with any state of the run.
    pack, unpack = staticmethod(packed), staticmethod(unpacked)


def diverged(step: int, eta: float) -> DivergedError:
    """Return the error of a run that left the finite numbers."""
    return DivergedError(
        f"the run diverged at step {step} (step size {eta:.3g}): the score or the gradient is no longer "
        "finite. Likely causes: a step size that is too large (try a tenth), rows that are not scaled "
        "(try unit rows), or a start that is far out of scale.",
        step=step,
    )


def unlike(role: str, part: Any, kinds: Iterable[type]) -> str | None:
    """Return why what was written for some classes is not for a part, or None when the part is of one of them."""
    made, kinds = type(part), tuple(kinds)
    name = made.__name__
    if made in kinds:
        for key in getattr(part, "__dict__", {}):
            # A manifold's default retraction is a value that is exchanged; of other parts every word counts.
            if inspect.isfunction(getattr(made, key, None)) or (role == "retraction" and hasattr(made, key)):
                return f"this {name} has a `{key}` of its own; compiled steps are for that of its class"
        return None
    for kind in made.__mro__:
        if kind in kinds:
            return f"{name} is a subclass of {kind.__name__}; compiled steps are for {kind.__name__} itself"
    shown = name if role == "cost" else repr(part)
    known = [kind.__name__ for kind in kinds]
    having = f"{', '.join(known[:-1])} and {known[-1]} have" if known[1:] else f"{known[0]} has"
    return f"the {role} {shown} has no compiled twin ({having})"


def checked(
    schedule: Any,
    etas: Array,
    ranges: Sequence[tuple[int, int | None]],
    batch_size: int | None = None,
    what: str = "terms",
) -> Array:
    """Return a schedule as int64 numbers, or refuse one that names what is not there.

    There is one of the `etas` for each step; `ranges` are those of `FiniteSum.term_ranges`, `batch_size` the terms
    per step (any number unless given), and `what` is what the numbers are called.
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
