"""The one verb of every engine: advance a state along a schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from rmopt.core.ambient import Array
from rmopt.core.errors import DivergedError
from rmopt.core.points import packed, unpacked


class Engine(ABC):
    """Runs the steps of a solver.

    An engine splits exactly: advancing 200 steps gives the same bits as advancing 80 and then 120. A state is a
    dataclass of arrays, numbers and points; `pack` and `unpack` take it apart and put it together.
    """

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

    @abstractmethod
    def dump(self, state: Any) -> Any:
        """Return the point at which a state stands; the state is not changed."""

    def pack(self, state: Any) -> dict[str, Array]:
        """Return the arrays that hold a state completely, to the last bit (see `rmopt.core.points.packed`)."""
        return packed(state)

    def unpack(self, arrays: dict[str, Array], template: Any) -> Any:
        """Return the state that `pack` took apart (see `rmopt.core.points.unpacked`)."""
        return unpacked(arrays, template)


def diverged(step: int, eta: float) -> DivergedError:
    """Return the error of a run that left the finite numbers."""
    return DivergedError(
        f"the run diverged at step {step} (step size {eta:.3g}): the score or the gradient is no longer "
        "finite. Likely causes: a step size that is too large (try a tenth), rows that are not scaled "
        "(try unit rows), or a start that is far out of scale.",
        step=step,
    )
