"""What `converged` rests on: gradients that fit the cost, and points that are no maximum."""

import itertools
import warnings
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from descent_parts import KINDS, PLACES, A, Rayleigh
from tabled import each_row

from rmopt import Problem, autograd_cost
from rmopt.core import Cost, Parts, in_precision
from rmopt.core.ambient import dense
from rmopt.costs import ConstrainedProblem
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Euclidean, Grassmann, Hyperbolic, SpecialOrthogonal, Sphere
from rmopt.solvers import LBFGS, AugmentedLagrangian, Below, GradientDescent, TrustRegions

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
        rows = np.arange(part.shape[-min(part.ndim, 2)]) > 0
        return rows[:, None] if part.ndim > 1 else rows


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
    assert looked in (range(1, 15) if result.converged else (0,))
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
    """Σ of 9 x above 1 and −x below, rounded over a width: at the minimum a kink, as far as differences see."""

    def value(self, x: Array) -> float:
        return float(np.sum(5.0 * np.sqrt((x - 1.0) ** 2 + 1e-28) + 4.0 * x))

    def gradient(self, x: Array) -> Array:
        return 5.0 * (x - 1.0) / np.sqrt((x - 1.0) ** 2 + 1e-28) + 4.0


def test_kinks_and_noise_are_no_misfits() -> None:
    # Where no step is done more values are looked at.
    kink = GradientDescent(gradient_norm=0.5).run(
        Problem(Euclidean(5), Quantiles()), np.full(5, 1.0 - 4e-14 / 3.0)
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


def test_costs_of_all_scales_are_minimised_and_not_taken_for_rounding() -> None:
    for unit in (1e-12, 1e-9, 1e-5, 1.0):
        well = autograd_cost(lambda x, unit=unit: anp.sum((x / unit - 1.0) ** 4))
        result = LBFGS().run(Problem(Euclidean(2), well), np.full(2, 3.0 * unit), random_state=0)
        assert result.converged
        np.testing.assert_allclose(result.point, unit, rtol=0.05)


class Apart(Cost):
    """½ Σ w (x − c)² + k, with a gradient that forgets some entries."""

    def __init__(self, c: Array, forgotten: int, weights: Any = 1.0, constant: float = 0.0) -> None:
        self.c, self.weights, self.constant = c, weights, constant
        self.kept = np.arange(len(c)) >= forgotten

    def value(self, x: Array) -> float:
        return 0.5 * float(np.sum(self.weights * (x - self.c) ** 2)) + self.constant

    def gradient(self, x: Array) -> Array:
        return self.weights * self.kept * (x - self.c)


@each_row(
    "n, forgotten, constant, single, least",
    [
        (5, 1, 0.0, False, 20), (300, 1, 0.0, False, 20), (3000, 1, 0.0, False, 19), (10, 1, 1e6, False, 20),
        (5, 2, 0.0, True, 20), (300, 150, 0.0, True, 19), (30, 1, 0.0, True, 10), (30, 0, 1e6, False, 0),
        (30, 0, 0.0, True, 0),
    ],
)  # fmt: skip
def test_forgotten_entries_are_seen(
    n: int, forgotten: int, constant: float, single: bool, least: int
) -> None:
    seen = 0
    for seed in range(20):
        c = np.random.default_rng(seed).standard_normal(n).astype(np.float32 if single else float)
        problem = Problem(Euclidean(n), Apart(c, forgotten, constant=constant))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert LBFGS().run(problem, 0.0 * c, random_state=seed).converged == (not caught)
        seen += len(caught)
    assert seen >= least
    assert forgotten or not seen


def test_what_a_cost_raises_beside_a_boundary_ends_no_run() -> None:
    def inside(x: Array) -> float:
        if x[0] < 1.0:
            raise RuntimeError("outside")
        return float((x[0] - 1.0) ** 1.5 + x[1] ** 2)

    class Edge(Cost):
        def value(self, x: Array) -> float:
            return inside(x)

        def gradient(self, x: Array) -> Array:
            return np.array([1.5 * (x[0] - 1.0) ** 0.5, 2.0 * x[1]])

    assert LBFGS().run(Problem(Euclidean(2), Edge()), np.array([1.0, 0.0])).converged
    far = Hyperbolic(2).exp(np.array([1.0, 0.0, 0.0]), np.array([0.0, 18.0, 0.0]))
    assert (
        LBFGS().run(Problem(Hyperbolic(2), autograd_cost(lambda x: anp.sum((x - far) ** 2))), far).converged
    )


def test_scales_that_differ_by_a_hundred_million_raise_no_alarm() -> None:
    for seed in range(5):
        mixed = autograd_cost(lambda x: 0.1 * x[1] + anp.sin(x[1]) + (x[0] / 1e8 - 1.0) ** 2)
        start = np.array([1e8, 1.0])
        assert LBFGS().run(Problem(Euclidean(2), mixed), start, random_state=seed).converged


def test_goals_that_a_start_has_reached_need_no_minimum() -> None:
    problem, start = Problem(Euclidean(2), autograd_cost(lambda x: anp.sum(anp.cos(x)))), np.full(2, 0.5)
    for solver, stop in ((LBFGS(), Below(3.0, "cost")), (TrustRegions(gradient_norm=10.0), None)):
        result = solver.run(problem, start, stop=stop)
        assert (result.converged, result.steps) == (True, 0)
        np.testing.assert_array_equal(result.point, start)


# Stationary points that are no minima, and the least costs.


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
    "among many": (Problem(Sphere(400), Rayleigh(-np.diag(np.arange(1.0, 401.0)))), np.eye(400)[1], 0.5),
    "beside a stiff one": (
        Problem(Euclidean(2), autograd_cost(lambda x: 5e6 * x[1] ** 2 - 0.5 * x[0] ** 2 + x[0] ** 4)),
        np.zeros(2), -0.0625,
    ),
    "in many dimensions": (
        Problem(Euclidean(1000), autograd_cost(lambda x: 0.5 * anp.sum(x**2) - x[0] ** 2 + x[0] ** 4)),
        np.zeros(1000), -0.0625,
    ),
    "no hessian": (Problem(Euclidean(2), Saddle()), np.zeros(2), -0.25),
    "far and flat": (Problem(Euclidean(2), 1e-9 * Saddle()), np.zeros(2), -0.25e-9),
}  # fmt: skip


@each_row("place, kind, single", itertools.product(STATIONARY, SECOND_ORDER, (False, True)))
def test_second_order_solvers_leave_stationary_starts(place: str, kind: str, single: bool) -> None:
    problem, start, least = STATIONARY[place]
    if single and "stiff" in place:
        # Single precision does not know such a curvature.
        return
    result = KINDS[kind]().run(problem, start.astype(np.float32) if single else start, random_state=0)
    assert result.converged
    assert problem.value(result.point) < least + 1e-3 * abs(least)


@each_row("kind", SECOND_ORDER)
def test_a_constant_cost_has_no_way_down(kind: str) -> None:
    problem = Problem(SpecialOrthogonal(7), autograd_cost(lambda X: anp.sum(X * (A @ X))))
    result = KINDS[kind]().run(problem, random_state=0)
    assert result.converged
    assert result.steps == 0


@each_row("kind", ("gd", "cg", "lbfgs", "wolfe"))
def test_solvers_say_that_a_start_is_a_maximum(kind: str) -> None:
    problem, start = Problem(Sphere(3), Rayleigh(np.diag([1.0, 2.0, 3.0]))), np.eye(3)[0]
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
