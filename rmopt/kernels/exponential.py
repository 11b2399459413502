"""Exponentials and logistic functions in plain arithmetic, without branches: the compiler vectorises loops over them.

A call of the C library's `exp` prevents that, and takes one number at a time. Neither reordering nor fusing is
allowed here, so that results are bit-identical in any loop.
"""

import numpy as np

from rmopt.kernels import njit

LOG2_E = 1.4426950408889634
# ln 2 in two parts. The first has 32 bits, so that its product with an exponent of two is exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")
# Adding it rounds to integers in the lowest bits; with the bias of exponents, they are an exponent's bits.
ROUND = 1.5 * 2.0**52
BIASED = ROUND + 1023.0
# Beyond them the exponential overflows, or is less than half the smallest number.
HIGHEST, LOWEST = 710.0, -746.0


@njit(cache=True, nogil=True, forceinline=True)
def _power_of_two(biased):
    """Return 2ⁿ for n + BIASED."""
    return np.int64(np.float64(biased).view(np.int64) << 52).view(np.float64)


@njit(cache=True, nogil=True, forceinline=True)
def exp(x):
    """Return eˣ = 2ⁿ eʳ to within one unit in the last place; infinity, zero and NaN as in numpy.

    |r| ≤ ln(2)/2, so the first 14 terms of the series omit less than 0.04 units.
    """
    x = HIGHEST if x > HIGHEST else x
    x = LOWEST if x < LOWEST else x
    n = (x * LOG2_E + ROUND) - ROUND
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    # Pairs of pairs, because a chain of 12 products would wait for each.
    rr = r * r
    low = (1 / 2 + r * (1 / 6)) + rr * (1 / 24 + r * (1 / 120))
    middle = (1 / 720 + r * (1 / 5040)) + rr * (1 / 40320 + r * (1 / 362880))
    high = (1 / 3628800 + r * (1 / 39916800)) + rr * (1 / 479001600 + r * (1 / 6227020800))
    series = low + rr * rr * (middle + rr * rr * high)
    # Two factors: 2ⁿ alone may be out of range although eˣ is not, and only the last product rounds.
    half = 0.5 * n + BIASED
    return (1.0 + (r + rr * series)) * _power_of_two(half) * _power_of_two((n - (half - BIASED)) + BIASED)


# No division is by zero, and numba's test for it would be a branch.
@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def sigmoid(t):
    """Return 1 / (1 + e⁻ᵗ)."""
    e = exp(-abs(t))
    return (1.0 if t >= 0.0 else e) / (1.0 + e)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def softplus(t):
    """Return log(1 + eᵗ)."""
    e = exp(-abs(t))
    # log(1 + e) = 2 artanh(s) = 2s + s · tail with s ≤ 1/3, where 17 terms of the series leave out less than 0.01
    # units; written such that e, which needs no rounding, comes first.
    s = e / (2.0 + e)
    z = s * s
    zz = z * z
    z4 = zz * zz
    a = (2 / 3 + z * (2 / 5)) + zz * (2 / 7 + z * (2 / 9))
    b = (2 / 11 + z * (2 / 13)) + zz * (2 / 15 + z * (2 / 17))
    c = (2 / 19 + z * (2 / 21)) + zz * (2 / 23 + z * (2 / 25))
    d = (2 / 27 + z * (2 / 29)) + zz * (2 / 31 + z * (2 / 33))
    tail = z * ((a + z4 * b) + z4 * z4 * (c + z4 * d))
    square = 0.5 * e * e
    return (t if t > 0.0 else 0.0) + (e - (square - s * (square + tail)))
