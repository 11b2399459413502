"""What an attack on the new parts found: each repro, and beside it what must stay as it is."""

from __future__ import annotations

import pickle
import time
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
import pytest
from tabled import each_row
from test_autodiff import LIBRARIES

import rmopt
from rmopt import InvalidInputError, MissingCapabilityError, Problem
from rmopt.checks import check_manifold, check_solver
from rmopt.core import Cost, FiniteSum
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Product,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
)
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaptiveCubics,
    GradientDescent,
    MaxSteps,
    SmallChange,
    SmallStep,
    Solver,
    Stagnation,
    TrustRegions,
)
from rmopt.testing import parametrize_with_laws

Array = np.ndarray
VALLEY = Problem(
    Euclidean(2, 1), rmopt.autograd_cost(lambda x: 100 * (x[1, 0] - x[0, 0] ** 2) ** 2 + (1 - x[0, 0]) ** 2)
)


@each_row("seed", [0, 5, 12345])
def test_a_random_start_is_not_what_the_user_draws_first(seed: int) -> None:
    manifold = FixedRankEmbedded(6, 5, 2)
    truth = manifold.to_dense(manifold.random_point(np.random.default_rng(seed)))
    cost = rmopt.autograd_cost(lambda A, B: anp.sum((A @ B.T - truth) ** 2))
    state = next(LBFGS().iterate(Problem(manifold, cost), random_state=seed))
    assert state.cost > 0.1


@each_row(
    "cut",
    [
        lambda x: (x @ x).item(), lambda x: (x.detach() ** 3).sum(), lambda x: float((x.detach().numpy() ** 3).sum()),
        lambda x: (x > 0).sum(),
    ],
)  # fmt: skip
def test_functions_that_are_cut_off_are_told(cut: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match=r"cut off from them by detach\(\), item\(\)"):
        LBFGS().run(Problem(Sphere(6), rmopt.torch_cost(cut)), random_state=1)


def test_torch_differentiates_where_that_is_switched_off() -> None:
    torch = pytest.importorskip("torch")
    problem = Problem(
        Sphere(6), rmopt.torch_cost(lambda x: (x * torch.arange(6.0, dtype=torch.float64) * x).sum())
    )
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert TrustRegions().run(problem, random_state=1).history[-1]["cost"] == pytest.approx(
                0.0, abs=1e-9
            )
    linear = rmopt.torch_cost(lambda x: x.sum())
    np.testing.assert_array_equal(linear.hessian(np.ones(3), np.ones(3)), np.zeros(3))


@pytest.mark.parametrize("library", ["autograd", "jax", "torch"])
def test_a_name_that_is_bound_anew_is_seen(library: str) -> None:
    if library not in LIBRARIES:
        pytest.skip(f"{library} is not installed.")
    xp, _, decorate = LIBRARIES[library]
    weight = 10.0
    cost = decorate(lambda x: xp.sum((x - 1.0) ** 2) + weight * xp.sum(x**2))
    problem = Problem(Euclidean(6, 1), cost)
    for weight in (10.0, 0.0):
        result = LBFGS().run(problem, random_state=1)
        assert result.point[0, 0] == pytest.approx(1.0 / (1.0 + weight), abs=1e-6)
        assert cost.value(result.point) == pytest.approx(result.history[-1]["cost"], abs=1e-12)


def test_idioms_of_jax() -> None:
    jnp = pytest.importorskip("jax").numpy
    cost = rmopt.jax_cost(lambda x: jnp.sum(x.at[0].set(0.0) ** 2) - x[0])
    result = LBFGS().run(Problem(Sphere(4), cost), random_state=1)
    np.testing.assert_allclose(result.point, [1.0, 0.0, 0.0, 0.0], atol=1e-6)


def test_functions_do_not_write_into_points() -> None:
    def writing(x: Any) -> Any:
        x -= 0.1
        return anp.sum(x**3)

    x = np.array([0.6, 0.8, 0.0, 0.0])
    with pytest.raises(ValueError, match="read-only"):
        rmopt.autograd_cost(writing).value(x)
    np.testing.assert_array_equal(x, [0.6, 0.8, 0.0, 0.0])


def test_batches_of_rotations_stay_rotations_under_differences() -> None:
    C = np.random.default_rng(102).standard_normal((200, 3, 3))

    class Distance(Cost):
        def value(self, point: Array) -> float:
            return float(np.sum((point - C) ** 2))

        def gradient(self, point: Array) -> Array:
            return 2 * (point - C)

    for solver in (AdaptiveCubics(), TrustRegions()):
        result = solver.run(Problem(SpecialOrthogonal(3, 200), Distance()), random_state=2)
        assert result.converged
        np.testing.assert_allclose(
            result.point.mT @ result.point, np.broadcast_to(np.eye(3), C.shape), atol=1e-13
        )


@each_row("criterion", [SmallChange(1e-8), SmallStep(1e-8), Stagnation(3)])
def test_a_refused_step_is_no_small_one(criterion: Any) -> None:
    start = np.array([[-1.2], [1.0]])
    for solver in (TrustRegions(), AdaptiveCubics()):
        plain = solver.run(VALLEY, start)
        assert len({row["updates"] for row in plain.history}) < len(plain.history), "no step was refused"
        assert solver.run(VALLEY, start, stop=criterion).history[-1]["cost"] < 1e-10


def test_criteria_that_are_combined_must_give_reasons_too() -> None:
    for stop in (MaxSteps(2) & (lambda rows: False), MaxSteps(9) | (lambda rows: True)):
        with pytest.raises(InvalidInputError, match=r"stop returned (False|True); it must return a reason"):
            GradientDescent().run(VALLEY, random_state=1, stop=stop)


class Slow(FiniteSum):
    """Terms that take a while."""

    n_terms, delay = 10, 0.0

    def value(self, point: Array) -> float:
        return float(point[0])

    def gradient(self, point: Array) -> Array:
        return self.term_gradient(point, np.arange(10))

    def term_gradient(self, point: Array, terms: Array) -> Array:
        time.sleep(self.delay)
        return np.array([len(terms) / 10, terms.sum() / 50, 0.0, 0.0])


def test_so_many_steps_are_so_many_whatever_the_clock_says() -> None:
    ends = []
    for delay in (0.0, 0.002):
        cost = Slow()
        cost.delay = delay
        for stop in (MaxSteps(70), MaxSteps(70) | MaxSteps(90)):
            ends.append(SGD(0.05, max_iter=10**5).run(Problem(Sphere(4), cost), random_state=0, stop=stop))
    assert {end.steps for end in ends} == {70}
    for end in ends[1:]:
        np.testing.assert_array_equal(end.point, ends[0].point)
    recorded = SGD(0.05).run(
        Problem(Sphere(4), Slow()),
        random_state=0,
        stop=MaxSteps(70),
        recorder=rmopt.solvers.Recorder({"x": np.max}),
    )
    assert (recorded.steps, recorded.history[-1]["step"]) == (70, 70)


def test_a_solver_that_cannot_run_is_not_said_to_obey() -> None:
    place = Product([FixedRankEmbedded(5, 4, 2), Grassmann(5, 2)])
    problem = Problem(
        place, rmopt.autograd_cost(lambda W, U: anp.sum((W[0] @ W[1].T) ** 2) + anp.sum(U.T @ U))
    )
    with pytest.raises(MissingCapabilityError, match=r"compiled"):
        check_solver(SGD(0.01, momentum=0.5, engine="compiled"), problem)


class Place(NamedTuple):
    point: Any
    steps: int
    updates: int


class Leak(Solver):
    """It keeps the gradients of its first run."""

    def __init__(self) -> None:
        self.max_iter, self._kept = 20, {}

    def begin(self, work: Any, point: Any) -> Place:
        return Place(point, 0, 0)

    def advance(self, work: Any, state: Place, steps: int) -> Place:
        if steps == 0:
            return state
        gradient = self._kept.setdefault(state.steps, work.riemannian_gradient(state.point))
        tangent = work.manifold.projection(state.point, gradient) * -0.05
        return Place(work.manifold.retraction(state.point, tangent), state.steps + 1, state.updates + 1)


def test_a_memory_of_the_first_run_is_found() -> None:
    failed = {check.name for check in check_solver(Leak(), Problem(Stiefel(6, 2), Cubes())) if not check}
    assert {"repetition", "solver purity"} <= failed


class Cubes(Cost):
    def value(self, point: Array) -> float:
        return float(np.sum(point**3))

    def gradient(self, point: Array) -> Array:
        return 3 * point**2


def test_seeds_from_a_generator_are_for_all_parts() -> None:
    mark = parametrize_with_laws([Sphere(3), Sphere(4)], seeds=(i for i in range(3)))
    assert len(mark.args[1]) == 6


@each_row("manifold", [Stiefel(2, 1), Grassmann(2, 1), Stiefel(2, 2), Sphere(2)])
def test_no_false_alarm_where_there_is_one_dimension(manifold: Any) -> None:
    failed = [check for seed in range(4) for check in check_manifold(manifold, seed) if not check]
    assert not failed


def test_starts_of_whole_and_short_numbers() -> None:
    for given, kept in ((int, np.float64), (np.float32, np.float32)):
        start = np.zeros((3, 1), dtype=given)
        cost = rmopt.autograd_cost(lambda x: anp.sum((x - 0.5) ** 2))
        result = LBFGS().run(Problem(Euclidean(3, 1), cost), start)
        assert result.converged
        assert result.point.dtype == kept


def test_costs_subtract_and_divide() -> None:
    f, g = rmopt.autograd_cost(lambda x: anp.sum(x**2)), rmopt.autograd_cost(lambda x: anp.sum(x))
    x = np.arange(3.0)
    assert (f - g).value(x) == 2.0
    assert (-f / 2).value(x) == -2.5
    np.testing.assert_array_equal((f - g).gradient(x), 2 * x - 1)


def test_a_warm_start_is_not_suspected() -> None:
    problem = Problem(Sphere(6), rmopt.autograd_cost(lambda x: x @ np.diag(np.arange(1.0, 7.0)) @ x))
    again = LBFGS().run(problem, TrustRegions(tol=1e-12).run(problem, random_state=5))
    assert "may be wrong" not in again.stopped_by


def test_cubics_on_a_flat_bottom() -> None:
    problem = Problem(Euclidean(3, 1), rmopt.autograd_cost(lambda x: anp.sum(x**4)))
    result = AdaptiveCubics(tol=0.0, max_iter=400).run(problem, random_state=1)
    assert np.abs(result.point).max() < 1e-6


@rmopt.autograd_cost
def decorated(x: Any) -> Any:
    """A cost in a module."""
    return anp.sum(x**2)


def test_decorated_costs_are_pickled_by_their_names() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    moved = rmopt.autograd_cost(np.linalg.norm)
    assert pickle.loads(pickle.dumps(moved)).value(np.ones(4)) == 2.0


def test_averages_on_products_of_what_has_no_logarithm() -> None:
    place = Product([Sphere(5), Stiefel(5, 2)])
    cost = rmopt.autograd_cost(lambda x, U: anp.sum(x**3) + anp.sum(U**3))
    result = SGD(0.01, max_iter=50, average=True).run(Problem(place, cost), random_state=0)
    assert place.check_point(result.point) is None
