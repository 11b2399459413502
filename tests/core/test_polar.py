"""The polar geometry of positive semidefinite matrices (Meyer et al. 2011): invariance, weights, long steps."""

import numpy as np
import pytest

from rmopt import Problem, autograd_cost
from rmopt.core import PSDPoint
from rmopt.costs import BilinearSum, squared
from rmopt.manifolds import PolarPSD, PSDFixedRank
from rmopt.solvers import SGD, TrustRegions

N, K = 40, 5
MANIFOLD = PSDFixedRank(N, K)


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def point_of_condition(rng: np.random.Generator, condition: float) -> PSDPoint:
    Q, T = (np.linalg.qr(rng.standard_normal((rows, K)))[0] for rows in (N, K))
    S = T @ np.diag(np.logspace(0, -np.log10(condition), K)) @ T.T
    return PSDPoint(Q, (S + S.T) / 2)


def test_polar_steps_do_not_depend_on_the_basis_or_the_scale() -> None:
    rng = np.random.default_rng(9)
    polar = PolarPSD(N, K, weight=0.3)
    point, turn = point_of_condition(rng, 100.0), np.linalg.qr(rng.standard_normal((K, K)))[0]
    Z = rng.standard_normal((N, N))
    S = turn.T @ point.S @ turn
    turned = PSDPoint(point.Q @ turn, (S + S.T) / 2)

    def end(start: PSDPoint, gradient: np.ndarray) -> np.ndarray:
        direction = polar.euclidean_to_riemannian_gradient(start, gradient)
        return polar.to_dense(polar.retraction(start, -0.01 * direction))

    assert relative(end(turned, Z), end(point, Z)) < 1e-12
    # A cost of W / 7 has a gradient of a seventh, and takes the same step seven times as large.
    scaled = PSDPoint(point.Q, 7.0 * point.S)
    assert relative(end(scaled, Z / 7.0), 7.0 * end(point, Z)) < 1e-12
    assert relative(end(point, Z), polar.to_dense(point)) > 1e-3


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
def test_the_weight_shares_a_step_between_space_and_core(weight: float) -> None:
    rng = np.random.default_rng(10)
    polar, point = PolarPSD(N, K, weight), point_of_condition(rng, 10.0)
    Z = rng.standard_normal((N, N))
    even = PolarPSD(N, K).euclidean_to_riemannian_gradient(point, Z)
    step = polar.euclidean_to_riemannian_gradient(point, Z)
    np.testing.assert_allclose(step.Qp, even.Qp * weight / 0.5)
    np.testing.assert_allclose(step.M, even.M * (1 - weight) / 0.5)


def test_large_polar_steps_stay_positive() -> None:
    rng = np.random.default_rng(11)
    polar = PolarPSD(N, K)
    point = polar.random_point(rng)
    moved = polar.retraction(point, 30.0 * polar.random_tangent_vector(point, rng))
    assert polar.check_point(moved) is None


def test_polar_descent_learns() -> None:
    rng = np.random.default_rng(12)
    truth = MANIFOLD.to_dense(MANIFOLD.random_point(rng))
    left, right = rng.standard_normal((2, 500, N)) / np.sqrt(N)
    cost = BilinearSum(left, right, squared, np.einsum("ij,jk,ik->i", left, truth, right))
    polar = PolarPSD(N, K)
    start = polar.random_point(rng)
    found = SGD(2.0, max_iter=10_000).run(Problem(polar, cost), start, random_state=0)
    assert cost.value(found.point) < 0.05 * cost.value(start)


def test_trust_regions_refuse_a_step_that_their_model_itself_promises_nothing_of() -> None:
    # The differences of polar gradients are not symmetric far from a minimum: 14 of 20 such runs broke down.
    for seed in range(6):
        factor = np.random.default_rng(seed).standard_normal((5, 2))
        truth = factor @ factor.T
        cost = autograd_cost(lambda A, B, truth=truth: 0.5 * ((A @ B.T - truth) ** 2).sum())
        found = TrustRegions().run(Problem(PolarPSD(5, 2), cost), random_state=seed)
        assert (found.converged, found.history[-1]["cost"] < 1e-9) == (True, True), seed
