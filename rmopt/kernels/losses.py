"""The built-in scalar losses φ(z, y): value, slope and curvature with respect to z.

They are selected by a code, so that one compiled and disk-cached loop serves all losses.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from rmopt.kernels import before_compiling, njit
from rmopt.kernels.exponential import sigmoid, softplus

HINGE, SQUARED_HINGE, LOGISTIC, SQUARED, ABSOLUTE = range(5)


@njit(cache=True, nogil=True, forceinline=True)
def value(code, z, y):
    """Return the loss with this code, or NaN for an unknown code. The logistic one does not overflow."""
    if code == HINGE:
        # The first of the two if they do not compare, so that a NaN score makes the loss NaN.
        return max(1.0 - y * z, 0.0)
    if code == SQUARED_HINGE:
        gap = max(1.0 - y * z, 0.0)
        return 0.5 * gap * gap
    if code == LOGISTIC:
        return softplus(-y * z)
    if code == SQUARED:
        return 0.5 * (z - y) * (z - y)
    return abs(z - y) if code == ABSOLUTE else math.nan


@njit(cache=True, nogil=True, forceinline=True)
def slope(code, z, y):
    """Return the slope of the loss with this code, at a kink a subgradient, or NaN for an unknown code."""
    if code == HINGE:
        return -y if y * z < 1.0 else max(1.0 - y * z, 0.0)
    if code == SQUARED_HINGE:
        return -y * max(1.0 - y * z, 0.0)
    if code == LOGISTIC:
        return -y * sigmoid(-y * z)
    if code == SQUARED:
        return z - y
    if code == ABSOLUTE:
        return 1.0 if z > y else (-1.0 if z < y else z - y)
    return math.nan


@njit(cache=True, nogil=True, forceinline=True)
def curvature(code, z, y):
    """Return the curvature of the loss with this code: 0 on linear pieces."""
    if code == SQUARED_HINGE:
        return y * y if y * z < 1.0 else 0.0
    if code == LOGISTIC:
        return y * y * sigmoid(y * z) * sigmoid(-y * z)
    if code == SQUARED:
        return 1.0
    return 0.0 if code in (HINGE, ABSOLUTE) else math.nan


@njit(cache=True, nogil=True, forceinline=True)
def slope_and_curvature(code, z, y):
    """Return both derivatives of the loss with this code, with a single exponential for the logistic one."""
    if code == LOGISTIC:
        share = sigmoid(-y * z)
        return -y * share, y * y * share * (1.0 - share)
    return slope(code, z, y), curvature(code, z, y)


def _scalars(code):
    """Return value, slope and curvature of the loss with this code as functions of (z, y)."""

    @njit(cache=True, nogil=True)
    def value_of(z, y):
        return value(code, z, y)

    @njit(cache=True, nogil=True)
    def slope_of(z, y):
        return slope(code, z, y)

    @njit(cache=True, nogil=True)
    def curvature_of(z, y):
        return curvature(code, z, y)

    return value_of, slope_of, curvature_of


# By code.
SCALARS: tuple[tuple[Any, Any, Any], ...] = tuple(map(_scalars, range(ABSOLUTE + 1)))

VALUE, SLOPE, CURVATURE = range(3)


@njit(cache=True, nogil=True, forceinline=True)
def _fill(which, code, z, y, out):
    for i in range(z.shape[0]):
        if which == VALUE:
            out[i] = value(code, z[i], y[i])
        elif which == SLOPE:
            out[i] = slope(code, z[i], y[i])
        else:
            out[i] = curvature(code, z[i], y[i])


@njit(cache=True, nogil=True)
def fill(which, code, z, y, out):
    """Set out to values, slopes or curvatures of the loss with this code for arrays of scores and targets."""
    # Loops over expensive losses are compiled without branches, and so vectorised.
    if code == LOGISTIC and which == VALUE:
        _fill(VALUE, LOGISTIC, z, y, out)
    elif code == LOGISTIC and which == SLOPE:
        _fill(SLOPE, LOGISTIC, z, y, out)
    elif code == LOGISTIC:
        _fill(CURVATURE, LOGISTIC, z, y, out)
    else:
        _fill(which, code, z, y, out)


class Own(NamedTuple):
    """The slope of a loss that is not built in, for loops that call it by its address.

    They are compiled once for all losses, and stored on disk. An error in the slope does not end a loop: the slope is
    NaN, and z, y and 1 are written at the address `raised`.
    """

    slope: int
    raised: int


def slope_of(loss: int | Own, z: float, y: float) -> float:
    """Return the slope of a built-in loss, by its code, or of another one, in compiled loops."""
    raise NotImplementedError


@before_compiling
def _define() -> None:
    from rmopt.kernels.intrinsics import define_slope

    define_slope(slope_of, slope)


@njit(cache=True, nogil=True)
def each(own, z, y):
    """Evaluate a function of (z, y) for arrays of scores and targets."""
    out = np.empty(z.shape[0])
    for i in range(z.shape[0]):
        out[i] = slope_of(own, z[i], y[i])
    return out
