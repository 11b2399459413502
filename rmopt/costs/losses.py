"""Scalar losses φ(z, y) of a score z and a target y."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import float64, njit, types
from numba.core.errors import NumbaError

from rmopt.core.ambient import Array
from rmopt.core.arguments import callable_of, instance, one_of
from rmopt.core.outside import remembered
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import losses as kernels

FEW = 1000
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
        if self.code is None:
            return _elementwise(scalar)(z, y)
        return kernels.elementwise(which, self.code, *(np.ascontiguousarray(part, float) for part in (z, y)))

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


@remembered
def _elementwise(scalar: Scalar) -> Callable[[Array, Array], Array]:
    compiled = as_compiled(scalar)

    def few(z: Array, y: Array) -> Array:
        return np.array([compiled(a, b) for a, b in zip(z, y, strict=True)], dtype=float)

    @njit
    def loop(z, y):  # type: ignore[no-untyped-def]
        out = np.empty(z.shape[0])
        for i in range(z.shape[0]):
            out[i] = compiled(z[i], y[i])
        return out

    def many(z: Array, y: Array) -> Array:
        return loop(np.ascontiguousarray(z, float), np.ascontiguousarray(y, float))

    # Compiling the loop is worth its time only for long arrays; a step of the reference engine is short.
    return lambda z, y: few(z, y) if len(z) < FEW else many(z, y)


def with_slope(loss: Loss, loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled loop, whose first argument is a loss, for this one; errors of its slope are raised."""
    if loss.code is not None:
        return partial(loop, loss.code)
    raised, function = np.zeros(3), _by_address(loss.slope)
    own = kernels.Own(function.address, raised.ctypes.data)

    def run(*arguments: Any) -> Any:
        try:
            return loop(own, *arguments)
        finally:
            if raised[2]:
                as_compiled(loss.slope)(*raised[:2])

    # What the addresses are of stays as long as the loop.
    run.function = function  # type: ignore[attr-defined]
    return run


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
