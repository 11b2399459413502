"""Compiled loops for losses of the user's own."""

import types
from collections.abc import Callable
from typing import Any

from numba import njit


def loop_with_slope(
    template: Callable[..., Any], custom_slope: Callable[[float, float], float]
) -> Callable[..., Any]:
    """Return a loop of this package compiled for another slope (not cached on disk).

    Parameters
    ----------
    template : function
        A plain Python loop that calls the global `slope(code, z, y)`.
    custom_slope : function
        The slope φ'(z, y), compiled by numba.
    """

    @njit(nogil=True)
    def coded(code, z, y):
        return custom_slope(z, y)

    rebound = types.FunctionType(template.__code__, {**template.__globals__, "slope": coded}, "run")
    return njit(nogil=True)(rebound)
