"""Slopes of losses that are not built in, which compiled loops call by their addresses."""

import math
from typing import Any

from llvmlite import ir
from numba import carray, cfunc, float64, types
from numba.extending import intrinsic, overload

from rmopt.kernels.losses import slope, slope_of


def callable_by_address(compiled: Any) -> Any:
    """Return a function of numbers (z, y) that is compiled as one for `Own`, which has an ``address``."""

    @cfunc(float64(float64, float64, types.CPointer(float64)))
    def guarded(z, y, raised):
        try:
            return compiled(z, y)
        except Exception:
            place = carray(raised, 3)
            place[0], place[1], place[2] = z, y, 1.0
            return math.nan

    return guarded


@intrinsic
def _call(context, own, z, y):
    def call(context, builder, signature, arguments):
        own, z, y = arguments
        number = ir.DoubleType()
        function = ir.FunctionType(number, [number, number, number.as_pointer()]).as_pointer()
        slope, raised = builder.extract_value(own, 0), builder.extract_value(own, 1)
        to_raised = builder.inttoptr(raised, number.as_pointer())
        return builder.call(builder.inttoptr(slope, function), [z, y, to_raised])

    return float64(own, float64, float64), call


@overload(slope_of, jit_options={"nogil": True, "forceinline": True})
def _slope_of(loss, z, y):
    if isinstance(loss, types.Integer):
        return lambda loss, z, y: slope(loss, z, y)
    return lambda loss, z, y: _call(loss, z, y)
