"""What a function finds outside of itself, where it is compiled; and data that their owner writes into later."""

from __future__ import annotations

import functools
import importlib.util
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit, objmode

from rmopt import InvalidInputError, Problem, autograd_cost, jax_cost
from rmopt.core import Cost, DivergedError
from rmopt.core.outside import found_outside, remembered, same
from rmopt.costs import BilinearSum, Loss, squared
from rmopt.kernels import batch_sgd, bilinear_sgd, directed_sgd
from rmopt.manifolds import FixedRankEmbedded, Sphere
from rmopt.solvers import SGD, SVRG, GradientDescent, Momentum

scale = 1.0
settings = {"scale": 1.0}
holder = SimpleNamespace(scale=1.0)


class Model:
    scale = 1.0

    def loss(self, x: Any) -> Any:
        return self.scale * (x**2).sum()

    @property
    def weight(self) -> float:
        return self.scale

    def __getitem__(self, name: str) -> float:
        return self.scale

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return cls.of_nothing(x)

    @staticmethod
    def of_nothing(x: Any) -> Any:
        return Model.scale * (x**2).sum()


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0

    def __call__(self, x: Any) -> Any:
        return self.scale * (x**2).sum()


class Called(Model):
    __call__ = Model.loss


model, slotted, called = Model(), Slotted(), Called()
several = {"first": [model]}


def penalty(x: Any) -> Any:
    return scale * (x**2).sum()


def within(x: Any) -> Any:
    return sum(scale * (one**2).sum() for one in [x])


def partly(factor: Any, x: Any) -> Any:
    return scale * factor * (x**2).sum()


WAYS: list[Callable[[Any], Any]] = [
    lambda x: scale * (x**2).sum(),
    lambda x: penalty(x),
    within,
    functools.partial(partly, 1.0),
    lambda x: settings["scale"] * (x**2).sum(),
    lambda x: holder.scale * (x**2).sum(),
    model.loss,
    lambda x: model.loss(x),
    called,
    slotted,
    lambda x: slotted(x),
    lambda x: several["first"][0].loss(x),
    lambda x: Model.of_class(x),
    lambda x: model.weight * (x**2).sum(),
    lambda x: model["scale"] * (x**2).sum(),
]


def put(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    monkeypatch.setitem(globals(), "scale", value)
    monkeypatch.setitem(settings, "scale", value)
    monkeypatch.setattr(holder, "scale", value)
    for one in (Model, model, slotted, called):
        monkeypatch.setattr(one, "scale", value, raising=False)


@pytest.mark.parametrize("function", WAYS)
def test_a_name_that_is_bound_anew_is_seen(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Any], Any]
) -> None:
    before = found_outside(function)
    assert same(found_outside(function), before)
    put(monkeypatch, 5.0)
    assert not same(found_outside(function), before)


def test_a_write_into_an_array_is_seen_wherever_it_is_held() -> None:
    weights = np.ones(3)
    nested = {"first": {"weights": weights}}
    pairs = [(weights, 0.0), (np.zeros(2), 0.0)]
    for held in (weights, {"weights": weights}, nested, pairs, SimpleNamespace(weights=[weights])):

        def loss(x: Any, held: Any = held) -> Any:
            return held.weights

        before = found_outside(loss)
        assert same(found_outside(loss), before)
        weights[0] += 1.0
        assert not same(found_outside(loss), before)


def test_functions_of_packages_are_not_looked_into() -> None:
    assert len(found_outside(lambda x: np.linalg.norm(x) + sp.linalg.norm(x))) < 10


def test_a_compiled_cost_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    costs, x = [jax_cost(function) for function in WAYS], np.ones(3)
    assert [cost.value(x) for cost in costs] == [3.0] * len(WAYS)
    put(monkeypatch, 5.0)
    assert [(cost.value(x), float(cost.gradient(x)[0])) for cost in costs] == [(15.0, 10.0)] * len(WAYS)
    calls: list[Any] = []

    def counted(x: Any) -> Any:
        calls.append(None)
        return scale * (x**2).sum()

    cost = jax_cost(counted)
    for _ in range(5):
        cost.value(x), cost.gradient(x)
    compiled = len(calls)
    cost.value(x), cost.gradient(x)
    assert len(calls) == compiled
    put(monkeypatch, 7.0)
    assert (cost.value(x), float(cost.gradient(x)[0])) == (21.0, 14.0)
    with pytest.raises(InvalidInputError, match=r"jnp\.where"):
        jax_cost(lambda x: x[0] if x[0] > 0 else -x[0]).value(x)


weights = np.array([1.0, 7.0])


@njit
def compiled_slope(z: float, y: float) -> float:
    return 2.0 * scale * (z - y)


@njit("float64(float64, float64)")
def given_slope(z: float, y: float) -> float:
    return 2.0 * scale * (z - y)


SLOPES: list[Callable[[float, float], float]] = [
    lambda z, y: 2.0 * scale * (z - y),
    compiled_slope,
    given_slope,
    lambda z, y: compiled_slope(z, y),
    lambda z, y: 2.0 * weights[0] * (z - y),
]


@pytest.mark.parametrize("slope", SLOPES)
def test_a_loss_is_compiled_again(monkeypatch: pytest.MonkeyPatch, slope: Any) -> None:
    """Whatever it is made of: functions that numba has compiled before, and arrays that are written to."""
    weights[0] = 1.0
    slope(1.0, 2.0)
    written = slope is SLOPES[-1]

    def value(z: float, y: float) -> float:
        return (weights[0] if written else scale) * (z - y) ** 2

    loss = Loss("scaled", njit(value), slope)
    cost, there = BilinearSum(np.eye(2), np.eye(2), loss, [0.0, 0.0]), 2.0 * np.eye(2)
    problem = Problem(FixedRankEmbedded(2, 2, 2), cost)
    start = problem.manifold.random_point(np.random.default_rng(0))

    def found() -> list[float]:
        ends = [
            SGD(1e-2, max_iter=2, engine=engine).run(problem, start, random_state=0).point
            for engine in ("reference", "auto")
        ]
        steps = [problem.manifold.to_dense(end) - problem.manifold.to_dense(start) for end in ends]
        np.testing.assert_allclose(steps[0], steps[1], rtol=1e-9, atol=1e-12)
        long = loss.slopes(np.full(2000, 3.0), 1.0)
        np.testing.assert_array_equal(long, np.full(2000, loss.slopes([3.0], [1.0])[0]))
        return [cost.value(there), float(np.abs(steps[0]).max()), float(long[0])]

    before = found()
    put(monkeypatch, 5.0)
    weights[0] = 5.0
    after = found()
    assert after[0] == 5.0 * before[0] == 40.0
    assert after[1] > 3.0 * before[1]
    assert after[2] == 5.0 * before[2] == 20.0


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


def test_what_functions_hold_is_freed() -> None:
    remember = remembered(lambda function: function(1.0))

    def holding(array: np.ndarray) -> Callable[[float], float]:
        return lambda z: z * float(array[0])

    arrays = [np.full(3, float(number)) for number in range(102)]
    assert [remember(holding(array)) for array in arrays] == list(range(102))
    first, last = weakref.ref(arrays[0]), weakref.ref(arrays[-1])
    arrays.clear()
    assert first() is None
    assert last() is not None


# Each compiles a loop, for some ten seconds.
COMPILED = [
    partial(SGD, 1e-2), pytest.param(partial(SGD, 1e-2, batch_size=2), marks=pytest.mark.slow),
    partial(SGD, 1e-2, rule=Momentum(0.9)), pytest.param(partial(SGD, 1e-2, rule=SVRG()), marks=pytest.mark.slow),
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
    loops = (bilinear_sgd.run, batch_sgd.run, directed_sgd.run, directed_sgd.run_reduced)
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
    with pytest.raises(InvalidInputError, match="do not belong together"):
        loss.values(z, z[:-1])


@pytest.mark.filterwarnings("ignore:Code running in object mode")
@pytest.mark.parametrize(
    ("slope", "words"), [("back to Python", "objmode"), ("int", "other arguments"), ("no hash", "hashed")]
)
def test_a_loss_that_cannot_run_is_refused(slope: str, words: str) -> None:
    def back(z: float, y: float) -> float:
        with objmode(found="float64"):
            found = float(z)
        return found

    class Unhashable:
        __hash__ = None

        def __call__(self, z: float, y: float) -> float:
            return z

    made = {
        "back to Python": back,
        "int": njit("int64(int64, int64)")(lambda z, y: z),
        "no hash": Unhashable(),
    }[slope]
    with pytest.raises(InvalidInputError, match=words):
        Loss("own", lambda z, y: 0.0, made).slopes([1.0], [0.0])


@pytest.mark.parametrize("density", [0.3, 1.0])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array])
def test_a_cost_owns_its_rows(density: float, kind: Any) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((20, k)) * (rng.random((20, k)) < density) for k in (6, 5))
    given = kind(left), kind(right)
    cost, W = BilinearSum(*given, "squared", np.ones(20)), rng.standard_normal((6, 5))
    value, entries = cost.value(W), cost.left.sum()
    for one in given:
        (one.data if sp.issparse(one) else one)[...] *= 2.0
        if hasattr(one, "indices"):
            one.indices[...] = 0
    assert (cost.value(W), cost.left.sum()) == (value, entries)


def test_a_cost_that_changes_the_point_is_refused() -> None:
    class Doubles(Cost):
        def value(self, point: Any) -> float:
            point *= 2.0
            return float(point[0])

        def gradient(self, point: Any) -> Any:
            return np.eye(4)[0]

    start = np.array([0.6, 0.8, 0.0, 0.0])
    with pytest.raises(InvalidInputError, match=r"Doubles changed the point .* work on a copy"):
        GradientDescent().run(Problem(Sphere(4), Doubles()), start)
    assert start.tolist() == [0.6, 0.8, 0.0, 0.0]


def test_a_negative_inner_product_is_no_convergence() -> None:
    class Slip(Sphere):
        def inner_product(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> float:
            return -float(tangent_vector_a @ tangent_vector_b)

    problem = Problem(Slip(4), autograd_cost(lambda x: x[0]))
    for solver in (GradientDescent(), SGD(0.1, max_iter=3)):
        with pytest.raises(InvalidInputError, match="hold inner_product and projection against"):
            solver.run(problem, np.array([0.6, 0.8, 0.0, 0.0]), random_state=0)
