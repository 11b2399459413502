"""The built-in scalar losses φ(z, y): value, slope and curvature with respect to z.

Each loss is three scalar functions; `slope` and its siblings select among them by a code, so that
one compiled and disk-cached loop serves them all.
"""

import math
import types
from typing import Any

import numpy as np
from numba import njit

HINGE, SQUARED_HINGE, LOGISTIC, SQUARED, ABSOLUTE = range(5)


@njit(cache=True, nogil=True)
def hinge_value(z, y):
    """Return max(0, 1 − y z)."""
    return max(0.0, 1.0 - y * z)


@njit(cache=True, nogil=True)
def hinge_slope(z, y):
    """Return −y where y z < 1, else 0 (a subgradient at the kink)."""
    return -y if y * z < 1.0 else 0.0


@njit(cache=True, nogil=True)
def squared_hinge_value(z, y):
    """Return max(0, 1 − y z)² / 2."""
    gap = max(0.0, 1.0 - y * z)
    return 0.5 * gap * gap


@njit(cache=True, nogil=True)
def squared_hinge_slope(z, y):
    """Return −y max(0, 1 − y z)."""
    return -y * max(0.0, 1.0 - y * z)


@njit(cache=True, nogil=True)
def squared_hinge_curvature(z, y):
    """Return y² where y z < 1, else 0."""
    return y * y if y * z < 1.0 else 0.0


@njit(cache=True, nogil=True)
def logistic_value(z, y):
    """Return log(1 + exp(−y z)) without overflow."""
    t = -y * z
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


@njit(cache=True, nogil=True)
def _sigmoid(t):
    e = math.exp(-abs(t))
    return 1.0 / (1.0 + e) if t >= 0.0 else e / (1.0 + e)


@njit(cache=True, nogil=True)
def logistic_slope(z, y):
    """Return −y / (1 + exp(y z))."""
    return -y * _sigmoid(-y * z)


@njit(cache=True, nogil=True)
def logistic_curvature(z, y):
    """Return y² σ(y z) σ(−y z)."""
    return y * y * _sigmoid(y * z) * _sigmoid(-y * z)


@njit(cache=True, nogil=True)
def squared_value(z, y):
    """Return (z − y)² / 2."""
    return 0.5 * (z - y) * (z - y)


@njit(cache=True, nogil=True)
def squared_slope(z, y):
    """Return z − y."""
    return z - y


@njit(cache=True, nogil=True)
def squared_curvature(z, y):
    """Return 1."""
    return 1.0


@njit(cache=True, nogil=True)
def absolute_value(z, y):
    """Return |z − y|."""
    return abs(z - y)


@njit(cache=True, nogil=True)
def absolute_slope(z, y):
    """Return the sign of z − y (0 where they are equal)."""
    return 1.0 if z > y else (-1.0 if z < y else 0.0)


@njit(cache=True, nogil=True)
def flat_curvature(z, y):
    """Return 0: the loss is piecewise linear."""
    return 0.0


@njit(cache=True, nogil=True)
def slope(code, z, y):
    """Return the slope of the loss with this code; NaN for a number that is no code."""
    if code == HINGE:
        return hinge_slope(z, y)
    if code == SQUARED_HINGE:
        return squared_hinge_slope(z, y)
    if code == LOGISTIC:
        return logistic_slope(z, y)
    if code == SQUARED:
        return squared_slope(z, y)
    return absolute_slope(z, y) if code == ABSOLUTE else math.nan


@njit(cache=True, nogil=True)
def value(code, z, y):
    """Return the loss with this code; NaN for a number that is no code."""
    if code == HINGE:
        return hinge_value(z, y)
    if code == SQUARED_HINGE:
        return squared_hinge_value(z, y)
    if code == LOGISTIC:
        return logistic_value(z, y)
    if code == SQUARED:
        return squared_value(z, y)
    return absolute_value(z, y) if code == ABSOLUTE else math.nan


@njit(cache=True, nogil=True)
def curvature(code, z, y):
    """Return the curvature of the loss with this code."""
    if code == SQUARED_HINGE:
        return squared_hinge_curvature(z, y)
    if code == LOGISTIC:
        return logistic_curvature(z, y)
    if code == SQUARED:
        return 1.0
    return 0.0 if code in (HINGE, ABSOLUTE) else math.nan


@njit(cache=True, nogil=True)
def slope_and_curvature(code, z, y):
    """Return both derivatives of the loss with this code; the logistic one takes a single exponential."""
    if code == LOGISTIC:
        share = _sigmoid(-y * z)
        return -y * share, y * y * share * (1.0 - share)
    return slope(code, z, y), curvature(code, z, y)


# Value, slope and curvature, by code.
SCALARS = (
    (hinge_value, hinge_slope, flat_curvature),
    (squared_hinge_value, squared_hinge_slope, squared_hinge_curvature),
    (logistic_value, logistic_slope, logistic_curvature),
    (squared_value, squared_slope, squared_curvature),
    (absolute_value, absolute_slope, flat_curvature),
)

VALUE, SLOPE, CURVATURE = range(3)


@njit(cache=True, nogil=True)
def elementwise(which, code, z, y):
    """Return values, slopes or curvatures of the loss with this code for arrays of scores and targets."""
    out = np.empty(z.shape[0])
    for i in range(z.shape[0]):
        if which == VALUE:
            out[i] = value(code, z[i], y[i])
        elif which == SLOPE:
            out[i] = slope(code, z[i], y[i])
        else:
            out[i] = curvature(code, z[i], y[i])
    return out


def loop_with_slope(template: Any, custom_slope: Any) -> Any:
    """Return a plain Python loop that calls the global `slope(code, z, y)`, compiled for another slope φ'(z, y).

    It is not cached on disk. `custom_slope` is compiled by numba.
    """

    @njit(nogil=True)
    def coded(code, z, y):
        return custom_slope(z, y)

    rebound = types.FunctionType(template.__code__, {**template.__globals__, "slope": coded}, "run")
    return njit(nogil=True)(rebound)
