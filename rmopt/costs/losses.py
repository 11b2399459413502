"""Scalar losses φ(z, y) of a score z and a target y."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float64, njit, types
from numba.core.errors import NumbaError

from rmopt.core.ambient import Array
from rmopt.core.arguments import callable_of, instance, one_of
from rmopt.core.outside import remembered
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import losses as kernels

Scalar = Callable[[float, float], float]


@dataclass(frozen=True)
class Loss:
    """A loss made of scalar functions of (z, y).

    A new loss is two functions that numba can compile; it then runs in every engine. What they name besides their
    arguments is compiled in; where such a name is bound anew, they are compiled again::

        pinball = Loss(
            "pinball",
            value=lambda z, y: max(0.9 * (y - z), 0.1 * (z - y)),
            slope=lambda z, y: -0.9 if z < y else 0.1,
        )

    Attributes
    ----------
    name : str
    value, slope : callable
        φ(z, y) and its derivative (or a subgradient) with respect to z.
    curvature : callable, optional
        The second derivative; second-order solvers need it.
    code : int, optional
        Number of the built-in loss in the compiled kernels.

    See Also
    --------
    BilinearSum : takes one, or its name in `LOSSES`.

    References
    ----------
    Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, 2nd edition, Springer (2009),
    https://doi.org/10.1007/978-0-387-84858-7, chapter 10.

    Examples
    --------
    >>> from rmopt.costs import Loss
    >>> huber = Loss(
    ...     "pseudo-huber",
    ...     value=lambda z, y: (1.0 + (z - y) ** 2) ** 0.5,
    ...     slope=lambda z, y: (z - y) / (1.0 + (z - y) ** 2) ** 0.5,
    ... )
    >>> huber.slope(1.0, 1.0)
    0.0
    """

    name: str
    value: Scalar
    slope: Scalar
    curvature: Scalar | None = None
    code: int | None = None

    def __post_init__(self) -> None:
        instance("name", self.name, str, "a string")
        for name in ("value", "slope") if self.curvature is None else ("value", "slope", "curvature"):
            callable_of(name, getattr(self, name))
        scalars = (self.value, self.slope, self.curvature)
        if self.code is not None and scalars not in kernels.SCALARS[self.code : self.code + 1]:
            raise InvalidInputError(
                f"the loss {self.name!r} has the code {self.code} and is not the built-in loss of that number; leave "
                "the code out: functions of your own are compiled as well."
            )

    def values(self, z: Array, y: Array) -> Array:
        """Return φ(z, y) elementwise."""
        return self._over_arrays(kernels.VALUE, self.value, z, y)

    def slopes(self, z: Array, y: Array) -> Array:
        """Return the slopes elementwise."""
        return self._over_arrays(kernels.SLOPE, self.slope, z, y)

    def curvatures(self, z: Array, y: Array) -> Array:
        """Return the curvatures elementwise."""
        if self.curvature is None:
            raise MissingCapabilityError(
                f"the loss {self.name!r} has no curvature; pass `curvature` or use a first-order solver."
            )
        return self._over_arrays(kernels.CURVATURE, self.curvature, z, y)

    def _over_arrays(self, which: int, scalar: Scalar, z: Array, y: Array) -> Array:
        z, y = (np.ascontiguousarray(part, float) for part in (z, y))
        if self.code is None:
            return called(scalar, lambda own: kernels.own_elementwise(own, z, y))
        return kernels.elementwise(which, self.code, z, y)

    def __repr__(self) -> str:
        return self.name


@remembered
def as_compiled(scalar: Scalar) -> Any:
    """Return a function (z, y) → number compiled by numba, or refuse one that is not to be compiled."""
    try:
        made: Any = scalar if hasattr(scalar, "py_func") else njit(nogil=True)(scalar)
        if (float64, float64) not in made.overloads:
            made.compile((float64, float64))
        found = made.overloads[float64, float64].signature.return_type
        is_number = isinstance(found, types.Integer | types.Float | types.Boolean)
        reason = "" if is_number else f"it returns {found}"
    except (NumbaError, TypeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if not line.startswith("Failed in")), type(error).__name__)
    if reason:
        raise InvalidInputError(
            f"numba cannot make a loss of {getattr(scalar, '__name__', scalar)}: {reason.rstrip('.')}; write it as a "
            "function of two numbers (z, y) that returns one and uses numbers, math and numpy alone."
        )
    return made


def called(scalar: Scalar, loop: Callable[[kernels.Own], Any]) -> Any:
    """Return what a compiled loop makes of a function (z, y) → number; its errors are those of the function."""
    own = kernels.Own(_by_address(scalar), np.full(2, np.nan))
    try:
        return loop(own)
    finally:
        if not np.isnan(own.raised[0]):
            as_compiled(scalar)(*own.raised)


@remembered
def _by_address(scalar: Scalar) -> Any:
    return kernels.callable_by_address(as_compiled(scalar))


hinge, squared_hinge, logistic, squared, absolute = (
    Loss(name, *kernels.SCALARS[code], code)
    for code, name in enumerate(("hinge", "squared_hinge", "logistic", "squared", "absolute"))
)

# Their targets are −1 and 1.
MARGIN_LOSSES = (hinge, squared_hinge, logistic)
LOSSES: dict[str, Loss] = {loss.name: loss for loss in (hinge, squared_hinge, logistic, squared, absolute)}


def as_loss(loss: Loss | str) -> Loss:
    """Return a loss, which may be given by its name in `LOSSES`."""
    if isinstance(loss, str):
        return LOSSES[one_of("loss", loss, LOSSES)]
    return instance("loss", loss, Loss, f"a name ({', '.join(LOSSES)}) or a Loss(name, value, slope)")
