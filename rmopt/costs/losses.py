"""Scalar losses φ(z, y) of a score z and a target y."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import callable_of, instance, one_of
from rmopt.core.outside import found_outside, is_dispatcher, is_installed, remembered
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import losses as kernels

FEW = 1000
# What numba makes constants of.
DATA = (bool, int, float, complex, np.generic, np.ndarray, tuple, list, dict)
Scalar = Callable[[float, float], float]


@dataclass(frozen=True)
class Loss:
    """A loss made of scalar functions of (z, y).

    A new loss is two functions that numba can compile; it then runs in every engine. What they name besides their
    arguments is compiled in; where such a name is bound anew, or an array of at most 64 kB is written to, they are
    compiled again, and so are functions of yours that numba has compiled already.

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
            function = callable_of(name, getattr(self, name))
            if type(function).__hash__ is None:
                raise InvalidInputError(
                    f"{name} of the loss {self.name!r} is a {type(function).__name__}, which cannot be hashed; write "
                    "it as a function."
                )
        scalars = (self.value, self.slope, self.curvature)
        if self.code is not None and (
            type(self.code) is not int or scalars not in kernels.SCALARS[self.code : self.code + 1]
        ):
            raise InvalidInputError(
                f"the loss {self.name!r} has the code {self.code} and is not the built-in loss of that number; leave "
                "the code out: functions of your own are compiled as well."
            )

    def values(self, z: Array, y: Array) -> Array:
        """Return φ(z, y) elementwise, for arrays of one shape, or of shapes that numpy makes alike."""
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
        z, y = np.asarray(z, float), np.asarray(y, float)
        if z.shape != y.shape:
            try:
                shape = np.broadcast_shapes(z.shape, y.shape)
            except ValueError:
                raise InvalidInputError(
                    f"scores of shape {z.shape} and targets of shape {y.shape} do not belong together."
                ) from None
            # Copies: loops would be compiled once more for views that cannot be written to.
            z, y = (np.array(np.broadcast_to(part, shape)) for part in (z, y))
        flat = (np.ascontiguousarray(part).reshape(-1) for part in (z, y))
        if self.code is None:
            return _elementwise(scalar)(*flat).reshape(z.shape)
        return kernels.elementwise(which, self.code, *flat).reshape(z.shape)

    def __repr__(self) -> str:
        return self.name


@remembered
def as_compiled(scalar: Scalar) -> Any:
    """Return a function (z, y) → number compiled by numba, or refuse one that is not to be compiled."""
    # Here, so that the built-in losses can be imported without it.
    from numba import float64, njit, types
    from numba.core.errors import NumbaError

    try:
        named = [one for one in (scalar, *found_outside(scalar)) if is_dispatcher(one)]
        for one in named:
            # What was compiled before holds numbers that may be others by now.
            if one.overloads and _holds_numbers(one):
                one.recompile()
        made: Any = scalar if is_dispatcher(scalar) else njit(nogil=True)(scalar)
        if (float64, float64) not in made.overloads:
            made.compile((float64, float64))
        found = made.overloads[float64, float64].signature.return_type
        is_number = isinstance(found, types.Integer | types.Float | types.Boolean)
        reason = "" if is_number else f"it returns {found}"
        if any(compiled.lifted for one in (made, *named) for compiled in one.overloads.values()):
            reason = "it goes back to Python by numba.objmode, where errors cannot be caught"
    except (NumbaError, TypeError, RuntimeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if not line.startswith("Failed in")), type(error).__name__)
        if isinstance(error, RuntimeError):
            reason = f"it is compiled for other arguments than two of float64 alone ({reason})"
    if reason:
        raise InvalidInputError(
            f"numba cannot make a loss of {getattr(scalar, '__name__', scalar)}: {reason.rstrip('.')}; write it as a "
            "function of two numbers (z, y) that returns one and uses numbers, math and numpy alone."
        )
    return made


def _holds_numbers(dispatcher: Any) -> bool:
    """Return whether what the user has compiled names data, which are constants in it."""
    if is_installed(dispatcher.py_func.__module__):
        return False
    return any(isinstance(one, DATA) for one in found_outside(dispatcher))


@remembered
def _elementwise(scalar: Scalar) -> Callable[[Array, Array], Array]:
    from numba import njit

    compiled = as_compiled(scalar)

    @njit
    def loop(z, y):  # type: ignore[no-untyped-def]
        out = np.empty(z.shape[0])
        for i in range(z.shape[0]):
            out[i] = compiled(z[i], y[i])
        return out

    def few(z: Array, y: Array) -> Array:
        return np.array([compiled(a, b) for a, b in zip(z.tolist(), y.tolist(), strict=True)], dtype=float)

    # Compiling the loop is worth its time only for long arrays; a step of the reference engine is short.
    return lambda z, y: (few if len(z) < FEW else loop)(z, y)


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
    from rmopt.kernels.addresses import callable_by_address

    return callable_by_address(as_compiled(scalar))


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
