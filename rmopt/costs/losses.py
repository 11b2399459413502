"""Scalar losses φ(z, y) of a score z and a target y."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import callable_of, instance, one_of
from rmopt.core.runs import current_run
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import losses as kernels

Scalar = Callable[[float, float], float]
# The scores and targets at which compiled functions are compared with their originals.
_SCORES, _TARGETS = (
    part.ravel()
    for part in np.meshgrid([-3.3, -0.71, -0.083, 0.37, 1.09, 2.3], [-1.0, 0.0, 1.0, 2.7], indexing="ij")
)


@dataclass(frozen=True)
class Loss:
    """A loss made of scalar functions of (z, y).

    A new loss is two functions that numba can compile, and then runs in every engine. Values from outside the
    functions are compiled in. At the beginning of each run the compiled functions are compared with their originals
    at some scores and targets, and compiled again if they differ. Your own compiled functions are used as they are.

    Attributes
    ----------
    name : str
    value, slope : callable
        φ(z, y) and its derivative (or a subgradient) with respect to z.
    curvature : callable, optional
        The second derivative, for second-order solvers.
    code : int or None
        Number of a built-in loss in the compiled kernels.

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
    code: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        instance("name", self.name, str, "a string")
        for name in ("value", "slope") if self.curvature is None else ("value", "slope", "curvature"):
            callable_of(name, getattr(self, name))
        scalars = self.value, self.slope, self.curvature
        known = [code for code, found in enumerate(kernels.SCALARS) if found == scalars]
        object.__setattr__(self, "code", known[0] if known else None)

    def values(self, z: Array, y: Array) -> Array:
        """Return φ(z, y) elementwise, for arrays that broadcast."""
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
            # Copies, because loops would be compiled once more for read-only views.
            z, y = map(np.array, np.broadcast_arrays(z, y))
        flat = [np.ascontiguousarray(part).reshape(-1) for part in (z, y)]
        if self.code is None:
            found = _called(scalar, kernels.each, *flat)
        else:
            found = np.empty_like(flat[0])
            kernels.fill(which, self.code, *flat, found)
        return found.reshape(z.shape)

    def __repr__(self) -> str:
        return self.name


def by_address(function: Scalar) -> Any:
    """Return a function (z, y) → number compiled by numba, with its ``address``, or refuse it.

    Outside data in it may have changed, so once per run it is compared with the current function.
    """
    run, compiled = current_run(), _compiled(function)
    if (run is None or run != compiled.held) and not _agree(function, compiled):
        _compiled.cache_clear()
        compiled = _compiled(function)
        if not _agree(function, compiled):
            raise InvalidInputError(
                f"the loss function {_name(function)} has other values compiled by numba than in Python; let it "
                "return the same number for the same (z, y), by numbers, math and numpy alone."
            )
    compiled.held = run
    return compiled


# Only the last ones, whose data would never be freed otherwise.
@lru_cache(100)
def _compiled(function: Scalar) -> Any:
    # Imported here, so that the built-in losses work without numba.
    from numba import float64, njit, types
    from numba.core.errors import NumbaError

    from rmopt.kernels.intrinsics import callable_by_address

    try:
        compiled: Any = function if hasattr(function, "py_func") else njit(nogil=True)(function)
        compiled.compile((float64, float64))
        overload = compiled.overloads[float64, float64]
        returned = overload.signature.return_type
        reason = f"it returns {returned}"
        if overload.lifted:
            reason = "it returns to Python by numba.objmode, in which errors cannot be caught"
        elif isinstance(returned, types.Integer | types.Float | types.Boolean):
            found = callable_by_address(compiled)
            return SimpleNamespace(address=found.address, function=found, held=None)
    except (NumbaError, TypeError, RuntimeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if not line.startswith("Failed in")), type(error).__name__)
    raise InvalidInputError(
        f"numba cannot make a loss of {_name(function)}: {reason.rstrip('.')}; write it as a function of two numbers "
        "(z, y) that returns one and uses numbers, math and numpy alone."
    )


def _agree(function: Scalar, compiled: Any) -> bool:
    """Return whether a compiled function agrees with its original, at finite values of the latter."""
    plain, raised = np.full(len(_SCORES), np.nan), np.zeros(3)
    with np.errstate(all="ignore"):
        for i, (z, y) in enumerate(zip(_SCORES.tolist(), _TARGETS.tolist(), strict=True)):
            with suppress(Exception):
                plain[i] = function(z, y)
    found = kernels.each(kernels.Own(compiled.address, raised.ctypes.data), _SCORES, _TARGETS)
    known = np.isfinite(plain)
    return bool(np.allclose(found[known], plain[known], rtol=1e-9, atol=0.0))


def _called(function: Scalar, loop: Callable[..., Any], *arguments: Any) -> Any:
    """Call a compiled loop whose first argument is a function of (z, y), and raise errors of the function."""
    compiled, raised = by_address(function), np.zeros(3)
    try:
        return loop(kernels.Own(compiled.address, raised.ctypes.data), *arguments)
    finally:
        if raised[2]:
            function(*raised[:2].tolist())


def with_slope(loss: Loss, loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled loop with this loss as its first argument, and raise errors of its slope."""
    return partial(loop, loss.code) if loss.code is not None else partial(_called, loss.slope, loop)


def _name(function: Scalar) -> str:
    return getattr(function, "__name__", str(function))


_NAMES = ("hinge", "squared_hinge", "logistic", "squared", "absolute")
LOSSES = {name: Loss(name, *scalars) for name, scalars in zip(_NAMES, kernels.SCALARS, strict=True)}
hinge, squared_hinge, logistic, squared, absolute = LOSSES.values()
# The losses with targets −1 and 1.
MARGIN_LOSSES = (hinge, squared_hinge, logistic)


def as_loss(loss: Loss | str) -> Loss:
    """Return a loss, also by its name in `LOSSES`."""
    if isinstance(loss, str):
        return LOSSES[one_of("loss", loss, LOSSES)]
    return instance("loss", loss, Loss, f"a name ({', '.join(LOSSES)}) or a Loss(name, value, slope)")


def check_targets(loss: Loss, targets: Array) -> None:
    """Refuse targets other than −1 and 1 for a margin loss."""
    others = targets[abs(targets) != 1.0]
    if loss in MARGIN_LOSSES and others.size:
        raise InvalidInputError(
            f"targets of the loss {loss} must be −1 or 1, got {others[0]:g}; turn labels 0 and 1 into 2 * labels - 1."
        )
