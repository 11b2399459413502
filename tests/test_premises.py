"""What `converged` rests on: gradients that fit the cost, and points that are no maximum."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from descent_parts import KINDS, PLACES, A, Rayleigh
from tabled import each_row

from rmopt import Problem, autograd_cost
from rmopt.core import Cost, Parts, in_precision
from rmopt.core.ambient import dense
from rmopt.costs import ConstrainedProblem
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Euclidean, Grassmann, Sphere
from rmopt.solvers import AugmentedLagrangian, Below, GradientDescent, TrustRegions

Array = np.ndarray
SECOND_ORDER = ("trust regions", "cubics", "hybrid")


class Wrong(Cost):
    """Another cost, whose gradient is multiplied by numbers."""

    def __init__(self, cost: Any, by: Any) -> None:
        self.cost, self.by = cost, by

    def value(self, point: Any) -> float:
        return self.cost.value(point)

    def gradient(self, point: Any) -> Any:
        gradient = self.cost.gradient(point)
        if isinstance(gradient, list | Parts):
            return [dense(part) * self._by(dense(part)) for part in gradient]
        return dense(gradient) * self._by(dense(gradient))

    def _by(self, part: Array) -> Any:
        if self.by != "but for a row":
            return self.by
        return (np.arange(len(part)) > 0)[:, None] if part.ndim > 1 else np.arange(len(part)) > 0


# Each place with each wrong gradient, and with some of the solvers.
KIND = itertools.cycle(KINDS)


@each_row(
    "place, by, kind",
    [(*case, next(KIND)) for case in itertools.product(PLACES, (0.0, 0.1, "but for a row"))],
)
def test_a_wrong_gradient_is_no_convergence(place: str, by: Any, kind: str) -> None:
    problem, _ = PLACES[place]
    wrong = Problem(problem.manifold, Wrong(problem.cost, by))
    start = problem.manifold.random_point(np.random.default_rng(0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = KINDS[kind](max_iter=100).run(wrong, start, random_state=0)
    first, last = (
        problem.manifold.norm(point, problem.riemannian_gradient(point)) for point in (start, result.point)
    )
    if result.converged:
        # A tenth of the gradient leads to the same points.
        assert last < 1e-3 * first
    if by == 0.0:
        assert not result.converged
        assert "check_gradient" in str(caught[-1].message)
        assert "check_gradient" in result.stopped_by
    if by == 0.1:
        assert not caught


class Lengthless(Sphere):
    def norm(self, point: Any, tangent_vector: Any) -> float:
        return 0.0


class Shortened(Sphere):
    """One whose norm is not that of its inner product."""

    def norm(self, point: Any, tangent_vector: Any) -> float:
        return 1e-9 * super().norm(point, tangent_vector)

    def random_tangent_vector(self, point: Any, rng: Any = None) -> Any:
        return Sphere(*self.shape).random_tangent_vector(point, rng)


@each_row("manifold, kind", itertools.product((Lengthless(7), Shortened(7)), KINDS))
def test_a_wrong_norm_is_no_convergence(manifold: Sphere, kind: str) -> None:
    solver = KINDS[kind](gradient_norm=1e-6)
    with pytest.warns(RuntimeWarning, match="check_manifold"):
        result = solver.run(Problem(manifold, Rayleigh(A)), random_state=0)
    assert not result.converged


class Rough(Cost):
    """Another cost, rounded as one that is computed in single precision, beside a large constant, or by sampling."""

    def __init__(self, cost: Any, how: str) -> None:
        self.cost, self.how, self.rng = cost, how, np.random.default_rng(0)

    def value(self, point: Any) -> float:
        value = self.cost.value(point)
        noise = 1e-6 * self.rng.standard_normal()
        return {"single": float(np.float32(value)), "beside": 1e9 + value, "noise": value * (1.0 + noise)}[
            self.how
        ]

    def gradient(self, point: Any) -> Any:
        return self.cost.gradient(point)


def _alarms(problem: Problem, kind: str, seed: int, start: Any = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = KINDS[kind](max_iter=100).run(problem, start, random_state=seed)
    # A run that did not converge does not look.
    looked = result.counts["costs"] - result.history[-1]["costs"]
    assert looked in ((1, 3) if type(problem.cost) is not Rough else (1, 3, 11)) if result.converged else (0,)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("kinds", "seeds"), [(("lbfgs", "cubics"), 1), pytest.param(KINDS, 20, marks=pytest.mark.slow)]
)
def test_right_gradients_raise_no_alarm(kinds: Any, seeds: int) -> None:
    for (place, (problem, _)), kind, seed in itertools.product(PLACES.items(), kinds, range(seeds)):
        assert not _alarms(problem, kind, seed), (place, kind, seed)
        if "stiefel" not in place and "stranger" not in place:
            single = in_precision(problem.manifold.random_point(np.random.default_rng(seed)), np.float32)
            assert not _alarms(problem, kind, seed, single), (place, kind, seed)
        for how in ("single", "beside", "noise"):
            rough = Problem(problem.manifold, Rough(problem.cost, how))
            assert not _alarms(rough, kind, seed), (place, kind, seed, how)


class Quantiles(Cost):
    """Σ of 9 x above 0 and −x below, rounded over a width: at the minimum a kink, as far as differences see."""

    def value(self, x: Array) -> float:
        return float(np.sum(5.0 * np.sqrt(x**2 + 1e-24) + 4.0 * x))

    def gradient(self, x: Array) -> Array:
        return 5.0 * x / np.sqrt(x**2 + 1e-24) + 4.0


def test_kinks_and_noise_are_no_misfits() -> None:
    # Where no step is done more values are looked at.
    kink = GradientDescent(gradient_norm=1e-3).run(
        Problem(Euclidean(5), Quantiles()), np.full(5, -4e-12 / 3.0)
    )
    assert (kink.converged, kink.steps) == (True, 0)
    problem = Problem(Sphere(7), Rough(Rayleigh(A), "noise"))
    least = np.linalg.eigh(A)[1][:, -1]
    for seed in range(300):
        assert GradientDescent().run(problem, least, random_state=seed).converged


def test_a_run_that_a_criterion_ends_is_held_to_its_slope() -> None:
    problem, _ = PLACES["sphere"]
    result = GradientDescent().run(problem, random_state=0, stop=Below(-2.0, "cost"))
    assert result.converged
    assert result.history[-1]["gradient_norm"] > 0.1
    assert result.counts["costs"] == result.history[-1]["costs"] + 1


class Saddle(Cost):
    """x² − y² + y⁴."""

    def value(self, x: Array) -> float:
        return float(x[0] ** 2 - x[1] ** 2 + x[1] ** 4)

    def gradient(self, x: Array) -> Array:
        return np.array([2.0 * x[0], -2.0 * x[1] + 4.0 * x[1] ** 3])


# Stationary points that are no minima, and the least costs.
STATIONARY: dict[str, tuple[Problem, Any, float]] = {
    "maximum": (Problem(Sphere(3), Rayleigh(np.diag([1.0, 2.0, 3.0]))), np.eye(3)[0], -1.5),
    "saddle": (Problem(Sphere(3), Rayleigh(np.diag([1.0, 2.0, 3.0]))), np.eye(3)[1], -1.5),
    "subspaces": (
        Problem(Grassmann(5, 2), Rayleigh(np.diag(np.arange(5.0)))), np.eye(5)[:, [4, 2]], -3.5,
    ),
    "no hessian": (Problem(Euclidean(2), Saddle()), np.zeros(2), -0.25),
    "far and flat": (Problem(Euclidean(2), 1e-9 * Saddle()), np.zeros(2), -0.25e-9),
}  # fmt: skip


@each_row("place, kind, single", itertools.product(STATIONARY, SECOND_ORDER, (False, True)))
def test_second_order_solvers_leave_stationary_starts(place: str, kind: str, single: bool) -> None:
    problem, start, least = STATIONARY[place]
    result = KINDS[kind]().run(problem, start.astype(np.float32) if single else start, random_state=0)
    assert result.converged
    assert problem.value(result.point) < least + 1e-3 * abs(least)


@each_row("kind", ("gd", "cg", "lbfgs", "wolfe"))
def test_first_order_solvers_say_that_a_start_is_a_maximum(kind: str) -> None:
    problem, start, _ = STATIONARY["maximum"]
    for point in (start, start.astype(np.float32)):
        with pytest.warns(RuntimeWarning, match="maximum or a saddle"):
            assert not KINDS[kind]().run(problem, point, random_state=0).converged


@each_row("place, kind", [(place, kind) for place in PLACES for kind in ("gd", "lbfgs", "cubics")])
def test_a_start_at_the_minimum_is_converged_soon(place: str, kind: str) -> None:
    problem, _ = PLACES[place]
    best = TrustRegions(gradient_norm=0.0).run(problem, random_state=0)
    result = KINDS[kind]().run(problem, best, random_state=1)
    assert result.converged
    assert result.steps < 100


@each_row("kind", KINDS)
def test_directions_of_nothing_but_rounding_stay_on_the_manifold(kind: str) -> None:
    problem, _ = PLACES["rotations"]
    best = TrustRegions(gradient_norm=0.0).run(problem, random_state=0)
    KINDS[kind](tol=0.0).run(problem, best, random_state=1)


def test_criteria_and_optimizers_of_others_are_held_to_it_too() -> None:
    problem = Problem(Sphere(7), Wrong(Rayleigh(A), 0.0))
    stop = Below(0.0, "cost")
    bounded = ConstrainedProblem(
        problem.manifold, problem.cost, inequalities=[autograd_cost(lambda x: x[0] - 2.0)]
    )
    for solver, given, at in (
        (GradientDescent(tol=0.0), stop, problem), (PymanoptSolver(), None, problem),
        (AugmentedLagrangian(), None, bounded),
    ):  # fmt: skip
        with pytest.warns(RuntimeWarning, match="check_gradient"):
            assert not solver.run(at, random_state=0, stop=given).converged
