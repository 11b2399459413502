"""Hyperbolic space and probabilities: against pymanopt's ball, the sphere, and closed forms."""

from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt.manifolds as foreign
import pytest
from tabled import each_row

import rmopt
from rmopt import InvalidInputError, Problem, autograd_cost
from rmopt.checks import check_manifold
from rmopt.core import Cost
from rmopt.manifolds import Hyperbolic, Simplex, Sphere, frechet_mean
from rmopt.retractions import MultiplicativeWeights, OrthographicHyperbolic
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, Hybrid, TrustRegions

Array = np.ndarray


def in_ball(point: Array) -> Array:
    return point[1:] / (1.0 + point[0])


def test_hyperbolic_space_is_that_of_the_ball() -> None:
    ours, theirs = Hyperbolic(3), foreign.PoincareBall(3)
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, y = (ours.random_point(rng) for _ in range(2))
        assert ours.dist(x, y) == pytest.approx(theirs.dist(in_ball(x), in_ball(y)), rel=1e-10)
        v = 0.5 * ours.log(x, y)
        # The velocity in the ball, by central differences.
        w = (in_ball(ours.exp(x, 1e-6 * v)) - in_ball(ours.exp(x, -1e-6 * v))) / 2e-6
        np.testing.assert_allclose(in_ball(ours.exp(x, v)), theirs.exp(in_ball(x), w), atol=1e-8)


def test_hyperbolic_distances_are_exact_near_by_and_far_off() -> None:
    plane = Hyperbolic(2)
    origin = np.array([1.0, 0.0, 0.0])
    for length in (1e-12, 1e-6, 1.0, 15.0):
        end = plane.exp(origin, np.array([0.0, 0.6, 0.8]) * length)
        assert plane.dist(origin, end) == pytest.approx(length, rel=1e-9)
        assert plane.check_point(end) is None
    columns = Hyperbolic(2, 4)
    x, y = (columns.random_point(np.random.default_rng(seed)) for seed in (1, 2))
    each = [plane.dist(a, b) for a, b in zip(x.T, y.T, strict=True)]
    assert columns.dist(x, y) == pytest.approx(np.linalg.norm(each), rel=1e-13)


def test_the_orthographic_point_differs_by_a_normal_vector() -> None:
    columns = Hyperbolic(3, 4)
    rng = np.random.default_rng(1)
    x = columns.random_point(rng)
    v = 5.0 * columns.random_tangent_vector(x, rng)
    end = columns.using(OrthographicHyperbolic()).retraction(x, v)
    np.testing.assert_allclose(columns.to_tangent_space(x, end - x), v, atol=1e-13 * np.abs(end).max())
    lengths = [Hyperbolic(3).dist(a, b) for a, b in zip(x.T, end.T, strict=True)]
    np.testing.assert_allclose(np.sinh(lengths), np.sqrt(columns.products(x, v, v)), rtol=1e-12)
    assert columns.check_point(columns.using(OrthographicHyperbolic()).retraction(x, 1e10 * v)) is None
    with pytest.raises(InvalidInputError, match="tangent vectors have no digits; take shorter"):
        columns.using(OrthographicHyperbolic()).retraction(x, 1e150 * v)


def test_far_points_of_hyperbolic_space_keep_their_distance() -> None:
    space, rng = Hyperbolic(3), np.random.default_rng(0)
    origin, along = np.eye(4)[0], np.array([0.0, 0.6, 0.0, 0.8])
    for length in (10.0, 20.0, 29.0):
        far = space.exp(origin, length * along)
        other = space.exp(origin, length * np.array([0.0, -0.6, 0.0, -0.8]))
        assert space.dist(origin, far) == pytest.approx(length, rel=1e-14)
        assert space.dist(far, other) == pytest.approx(2.0 * length, rel=1e-14)
        # As many digits as the coordinates have.
        assert space.norm(far, space.log(far, origin)) == pytest.approx(length, rel=1e-16 * far[0] + 1e-13)
        turned = space.exp(origin, length * np.array([0.0, 0.8, 0.0, -0.6]))
        closed = np.arccosh(np.cosh(length) ** 2)
        assert space.dist(far, turned) == pytest.approx(closed, rel=1e-13)
        carried = space.transport(far, turned, space.random_tangent_vector(far, rng))
        assert space.norm(turned, carried) == pytest.approx(1.0, rel=1e-12)
    assert "x₀ = 5.7e+25, and above" in (space.check_point(np.cosh(60.0) * (origin + along)) or "")
    points = [space.random_point(rng) for _ in range(6)]
    signs = np.array([-1.0, 1.0, 1.0, 1.0])

    class Mean(Cost):
        def value(self, x: Any) -> float:
            return 0.5 * sum(space.dist(x, p) ** 2 for p in points)

        def gradient(self, x: Any) -> Any:
            lengths = [space.dist(x, p) for p in points]
            return -signs * sum(d / np.sinh(d) * p for d, p in zip(lengths, points, strict=True))

    for solver in (LBFGS(), Hybrid(), GradientDescent()):
        found = solver.run(Problem(space, Mean()), space.exp(origin, 25.0 * along))
        assert found.converged
        assert space.dist(found.point, frechet_mean(space, points)) < 1e-4


def test_probabilities_are_a_part_of_a_sphere() -> None:
    simplex, sphere = Simplex(5), Sphere(5)
    rng = np.random.default_rng(3)
    x, y = (simplex.random_point(rng) for _ in range(2))
    s, t = np.sqrt(x), np.sqrt(y)
    assert simplex.dist(x, y) == pytest.approx(2.0 * sphere.dist(s, t), rel=1e-12)
    v = simplex.log(x, y)
    np.testing.assert_allclose(v / (2.0 * s), sphere.log(s, t), atol=1e-12)
    np.testing.assert_allclose(simplex.pair_mean(x, y), sphere.pair_mean(s, t) ** 2, atol=1e-12)
    carried = sphere.transport(s, t, v / (2.0 * s))
    np.testing.assert_allclose(simplex.transport(x, y, v) / (2.0 * t), carried, atol=1e-12)


@each_row("solver", [GradientDescent(), ConjugateGradient(), LBFGS(), TrustRegions()])
def test_solvers_find_known_minima(solver: Any) -> None:
    target = Simplex(6, 2).random_point(np.random.default_rng(4))
    relative_entropy = autograd_cost(lambda x: anp.sum(x * anp.log(x / target)))
    found = solver.run(Problem(Simplex(6, 2), relative_entropy), random_state=0)
    assert found.converged
    np.testing.assert_allclose(found.point, target, atol=1e-6)
    rng = np.random.default_rng(5)
    points = np.array([Hyperbolic(3).random_point(rng) for _ in range(8)])
    mirror = np.array([-1.0, 1.0, 1.0, 1.0])
    cost = autograd_cost(lambda x: anp.sum(anp.arccosh(-(points * mirror) @ x) ** 2))
    found = solver.run(Problem(Hyperbolic(3), cost), random_state=0)
    assert found.converged
    assert Hyperbolic(3).dist(found.point, frechet_mean(Hyperbolic(3), list(points))) < 1e-5


def test_steps_that_leave_the_simplex() -> None:
    simplex = Simplex(3)
    x, v = np.array([0.2, 0.3, 0.5]), np.array([-1.0, 0.4, 0.6])
    with pytest.raises(
        InvalidInputError, match=r"the geodesic leaves Simplex\(3\) .* retraction 'multiplicative'"
    ):
        simplex.exp(x, v)
    end = MultiplicativeWeights()(simplex, x, 1e4 * v)
    assert end.sum() == pytest.approx(1.0)
    # From a line search it is a step that was too long.
    cost = autograd_cost(lambda x: -anp.log(x[0]) - anp.log(1.0 - x[0]) + 30.0 * x[0])
    bent = simplex.using(retraction="exponential")
    result = GradientDescent().run(Problem(bent, cost), np.array([0.9, 0.05, 0.05]))
    assert result.point[0] == pytest.approx(0.5 * (32.0 - np.sqrt(32.0**2 - 120.0)) / 30.0, abs=1e-6)


def test_laws_of_geodesics_look_no_further_than_these_lead() -> None:
    assert all(check_manifold(Simplex(1000)))


@pytest.mark.parametrize("solver", [TrustRegions(), Hybrid(), LBFGS()])
def test_entropy_leads_away_from_the_boundary(solver: Any) -> None:
    """At a vertex every gradient is short; the minimum is exp(−2c), up to a factor."""
    for c in (np.arange(5.0), np.array([0.0, 1.0, 3.0, 10.0, 20.0])):
        cost = autograd_cost(lambda x, c=c: anp.sum(c * x) + 0.5 * anp.sum(x * anp.log(x)))
        truth = np.exp(-2.0 * c) / np.exp(-2.0 * c).sum()
        for seed in (2, 9, 18):
            found = solver.run(Problem(Simplex(5), cost), random_state=seed)
            np.testing.assert_allclose(found.point, truth, atol=1e-4)


def test_vertices_of_the_simplex_are_reached() -> None:
    prices = np.array([1.0, 2.0, 3.0, 4.0])
    problem = Problem(Simplex(4), rmopt.autograd_cost(lambda p: anp.sum(prices * p)))
    for solver in (LBFGS(), Hybrid()):
        np.testing.assert_allclose(solver.run(problem, random_state=0).point, [1, 0, 0, 0], atol=1e-4)
    far = Simplex(3).retraction(np.full(3, 1 / 3), 1e3 * np.array([1.0, 0.0, -1.0]))
    assert Simplex(3).check_point(far) is None
