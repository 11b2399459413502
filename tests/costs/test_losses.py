"""Losses of one's own: compiled, held against what they were made of, and their errors."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from numba import objmode

from rmopt import InvalidInputError, Problem
from rmopt.core import DivergedError
from rmopt.costs import BilinearSum, Loss, squared
from rmopt.kernels import batch_sgd, bilinear_sgd, directed_sgd
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD, Momentum

scale = 1.0
weights = np.ones(100_000)


@pytest.mark.parametrize(("engine", "held"), [("reference", "name"), ("compiled", "array")])
def test_a_loss_is_compiled_again(monkeypatch: pytest.MonkeyPatch, engine: str, held: str) -> None:
    """Where a name is bound anew, or an array of any size is written to."""
    slopes = {"name": lambda z, y: 2.0 * scale * (z - y), "array": lambda z, y: 2.0 * weights[-1] * (z - y)}
    loss = Loss("scaled", lambda z, y: scale * (z - y) ** 2, slopes[held])
    cost, there = BilinearSum(np.eye(2), np.eye(2), loss, [0.0, 0.0]), 2.0 * np.eye(2)
    problem = Problem(FixedRankEmbedded(2, 2, 2), cost)
    start = problem.manifold.random_point(np.random.default_rng(0))

    def found() -> list[float]:
        end = SGD(1e-2, max_iter=2, engine=engine).run(problem, start, random_state=0).point
        step = problem.manifold.to_dense(end) - problem.manifold.to_dense(start)
        return [cost.value(there), float(loss.slopes([3.0], [1.0])[0]), float(np.abs(step).max())]

    before = found()
    monkeypatch.setitem(globals(), "scale", 5.0)
    monkeypatch.setitem(globals(), "weights", weights.copy())
    weights[-1] = 5.0
    after = found()
    assert after[0] == 5.0 * before[0] == 40.0
    assert after[1] == 5.0 * before[1] == 20.0
    assert after[2] > 3.0 * before[2]


def test_code_that_is_replaced_is_compiled_again() -> None:
    """As %autoreload of IPython does."""

    def slope(z: float, y: float) -> float:
        return z - y

    def steeper(z: float, y: float) -> float:
        return 7.0 * (z - y)

    loss = Loss("own", lambda z, y: 0.0, slope)
    assert loss.slopes([1.0], [0.0]) == 1.0
    slope.__code__ = steeper.__code__
    assert loss.slopes([1.0], [0.0]) == 7.0


def test_a_function_that_is_another_when_compiled_is_refused() -> None:
    draws = np.random.default_rng(0)
    with pytest.raises(InvalidInputError, match="numba"):
        Loss("random", lambda z, y: draws.random(), lambda z, y: 0.0).values([1.0], [0.0])
    # Compiled, an integer is one of 64 bits.
    with pytest.raises(InvalidInputError, match="has other values compiled by numba"):
        Loss("large", lambda z, y: float(10 ** int(20 + y)), lambda z, y: 0.0).values([1.0], [0.0])


# Each compiles a loop, for some ten seconds.
COMPILED = [
    partial(SGD, 1e-2), pytest.param(partial(SGD, 1e-2, batch_size=2), marks=pytest.mark.slow),
    pytest.param(partial(SGD, 1e-2, rule=Momentum(0.9)), marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("make", COMPILED)
def test_losses_of_ones_own_share_a_loop_and_raise_their_own_errors(make: Any) -> None:
    """Also slopes that are whole numbers or truth values, and one that is no number at once."""
    solver = make(max_iter=40, engine="compiled")

    def run(slope: Any) -> Any:
        rng = np.random.default_rng(0)
        cost = BilinearSum(
            rng.standard_normal((50, 6)),
            rng.standard_normal((50, 5)),
            Loss("own", np.hypot, slope),
            np.ones(50),
        )
        return solver.run(Problem(FixedRankEmbedded(6, 5, 2), cost), random_state=0).point.S

    def refusing(z: float, y: float) -> float:
        if z > 1.0:
            raise ValueError("not from here on")
        return z - y

    first = run(lambda z, y: 1.0 if z > y else 0.0)
    loops = (bilinear_sgd.run, batch_sgd.run, directed_sgd.run)
    known = [len(loop.signatures) for loop in loops]
    np.testing.assert_array_equal(run(lambda z, y: 1 if z > y else 0), first)
    np.testing.assert_array_equal(run(lambda z, y: z > y), first)
    assert [len(loop.signatures) for loop in loops] == known
    for slope, error, words in (
        (refusing, ValueError, "not from here on"), (lambda z, y: 1.0 / (y - y), ZeroDivisionError, "division"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            run(slope)
    with pytest.raises(DivergedError, match="no longer finite"):
        run(lambda z, y: np.nan)


def test_errors_of_a_loss_over_arrays_are_its_own() -> None:
    loss = Loss("reciprocal", lambda z, y: 1.0 / z, lambda z, y: -1.0 / z**2)
    z = np.arange(5000.0)
    with pytest.raises(ZeroDivisionError):
        loss.values(z, z)
    np.testing.assert_array_equal(loss.values(z + 1.0, z), 1.0 / (z + 1.0))


@pytest.mark.parametrize("loss", [squared, Loss("own", lambda z, y: 0.5 * (z - y) ** 2, lambda z, y: z - y)])
@pytest.mark.parametrize("n", [5, 1500])
def test_a_loss_over_arrays_takes_what_numpy_takes(loss: Loss, n: int) -> None:
    z = np.arange(n, dtype=float)
    np.testing.assert_array_equal(loss.values(z, 1.0), 0.5 * (z - 1.0) ** 2)
    np.testing.assert_array_equal(loss.slopes(z, np.ones(1)), z - 1.0)
    np.testing.assert_array_equal(loss.slopes(np.ones((3, n)), z), 1.0 - np.tile(z, (3, 1)))
    # Neither whole numbers without a sign nor single precision decide how it is computed.
    small = np.arange(n, dtype=np.uint8)
    np.testing.assert_array_equal(loss.slopes(small, small[::-1]), small - small[::-1].astype(float))
    with pytest.raises(ValueError, match="shape"):
        loss.values(z, z[:-1])


@pytest.mark.filterwarnings("ignore:Code running in object mode")
def test_a_loss_that_goes_back_to_python_is_refused() -> None:
    def back(z: float, y: float) -> float:
        with objmode(found="float64"):
            found = float(z)
        return found

    with pytest.raises(InvalidInputError, match="objmode"):
        Loss("own", lambda z, y: 0.0, back).slopes([1.0], [0.0])
