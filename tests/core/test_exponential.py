"""The exponential of compiled loops: right in nearly all bits, at the extremes too, and computed for vectors."""

import platform
import re
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import njit
from scipy.special import expit

from rmopt.costs import LOSSES
from rmopt.kernels.exponential import exp, sigmoid, softplus
from rmopt.kernels.losses import SCALARS

EXTREMES = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e308, -1e308, 709.7827, 709.7828, -708.4, -745.1, -745.2]
)


def true_softplus(x: Decimal) -> Decimal:
    e = x.exp()
    return (1 + e).ln() if x > -40 else e - e * e / 2


TRUTH = {
    "exp": (exp, np.exp, Decimal.exp, 1.0),
    # scipy's is 0 where 1 + exp(-x) overflows.
    "sigmoid": (
        sigmoid,
        lambda x: np.where(x < -700.0, np.exp(x), expit(x)),
        lambda x: 1 / (1 + (-x).exp()),
        2.0,
    ),
    "softplus": (softplus, lambda x: np.logaddexp(0.0, x), true_softplus, 2.0),
}


@cache
def loop_over(name: str) -> Any:
    of_one = TRUTH[name][0]

    @njit
    def many(x: Any) -> Any:
        out = np.empty(x.shape[0])
        for i in range(x.shape[0]):
            out[i] = of_one(x[i])
        return out

    return many


@pytest.mark.parametrize("name", TRUTH)
def test_last_places(name: str) -> None:
    _, _, truth, units = TRUTH[name]
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.uniform(-745.0, 709.7, 2000), rng.standard_normal(1000), rng.uniform(-40, 40, 1000)]
    )
    found = loop_over(name)(x)
    with localcontext() as context:
        context.prec = 50
        off = [
            abs(Decimal(y) - truth(Decimal(z))) / Decimal(np.spacing(y))
            for z, y in zip(x.tolist(), found.tolist(), strict=True)
        ]
    assert max(off) <= units


@pytest.mark.parametrize("name", TRUTH)
def test_everywhere(name: str) -> None:
    _, peer, _, units = TRUTH[name]
    x = np.concatenate([np.linspace(-750.0, 712.0, 1_000_003), np.linspace(-2.0, 2.0, 100_001), EXTREMES])
    with np.errstate(all="ignore"):
        expected = peer(x)
    # The peers' own errors, which a unit and a half bounds, add to ours.
    np.testing.assert_allclose(loop_over(name)(x), expected, rtol=(units + 1.5) * 2.0**-52, atol=1e-323)


def test_each_is_that_of_a_vector() -> None:
    """A number has the same bits alone, in a vector and in what a vector leaves over."""
    x = np.random.default_rng(0).uniform(-50.0, 50.0, 67)
    for name, (alone, *_) in TRUTH.items():
        np.testing.assert_array_equal(loop_over(name)(x), [alone(z) for z in x], err_msg=name)


def test_losses_of_arrays_are_those_of_numbers() -> None:
    rng = np.random.default_rng(0)
    z, y = 4.0 * rng.standard_normal(67), rng.choice([-1.0, 1.0], 67)
    for loss in LOSSES.values():
        for name, of_one in zip(("values", "slopes", "curvatures"), SCALARS[loss.code], strict=True):
            one_by_one = [of_one(*pair) for pair in zip(z, y, strict=True)]
            np.testing.assert_array_equal(getattr(loss, name)(z, y), one_by_one, err_msg=f"{loss}: {name}")


def test_losses_of_no_number_are_none() -> None:
    at = np.array([np.nan, 0.5]), np.ones(2)
    for loss in LOSSES.values():
        for found in (loss.values(*at), loss.slopes(*at)):
            assert np.isnan(found).tolist() == [True, False], loss


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="Reads the assembler of this machine."
)
@pytest.mark.parametrize("name", TRUTH)
def test_loops_are_for_vectors(name: str) -> None:
    loop = loop_over(name)
    loop(EXTREMES)
    (assembler,) = loop.inspect_asm().values()
    assert len(re.findall("mulpd|fmadd...pd", assembler)) > 10
