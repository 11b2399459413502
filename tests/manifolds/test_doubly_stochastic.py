"""Doubly stochastic matrices, positive and symmetric arrays, and rigid motions, beside closed forms and cvxpy."""

from typing import Any

import numpy as np
import pytest
from tabled import each_row

from rmopt import Problem
from rmopt.checks import check_hessian, checks_of
from rmopt.core import Cost
from rmopt.core.product import Parts
from rmopt.manifolds import (
    DoublyStochastic,
    Euclidean,
    Hyperbolic,
    Positive,
    SkewSymmetric,
    SpecialEuclidean,
    Symmetric,
    SymmetricDoublyStochastic,
)
from rmopt.retractions.arrays import balanced
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, TrustRegions

SOLVERS = (GradientDescent, ConjugateGradient, LBFGS, TrustRegions)


class Transport(Cost):
    """What it costs to move masses, with an entropy."""

    def __init__(self, prices: Any, weight: float) -> None:
        self.prices, self.weight = prices, weight

    def value(self, point: Any) -> float:
        return float(np.sum(self.prices * point) + self.weight * np.sum(point * np.log(point)))

    def gradient(self, point: Any) -> Any:
        return self.prices + self.weight * (np.log(point) + 1.0)

    def hessian(self, point: Any, direction: Any) -> Any:
        return self.weight * direction / point


class Near(Cost):
    """The squared distance to a matrix."""

    def __init__(self, goal: Any) -> None:
        self.goal = goal

    def value(self, point: Any) -> float:
        return float(np.sum((point - self.goal) ** 2))

    def gradient(self, point: Any) -> Any:
        return 2.0 * (point - self.goal)

    def hessian(self, point: Any, direction: Any) -> Any:
        return 2.0 * direction


@each_row("weight, kind, symmetric", [
    (weight, kind, symmetric) for weight in (0.2,) for kind in SOLVERS for symmetric in (False, True)
])  # fmt: skip
def test_entropic_transport_is_that_of_sinkhorn(weight: float, kind: Any, symmetric: bool) -> None:
    n = 10
    prices = np.random.default_rng(0).random((n, n))
    prices = prices + prices.T if symmetric else prices
    M = (SymmetricDoublyStochastic if symmetric else DoublyStochastic)(n)
    result = kind(tol=1e-9).run(Problem(M, Transport(prices, weight)), random_state=1)
    assert result.converged
    wanted = balanced(np.exp(-(prices - prices.min()) / weight), 100_000)
    np.testing.assert_allclose(result.point, wanted, atol=1e-7)


def test_small_numbers_inside_are_no_boundary() -> None:
    """Numbers of 1e-22 had not come to rest at the end, where their slopes weigh nothing."""
    n = 60
    prices = np.random.default_rng(0).random((n, n))
    M = DoublyStochastic(n)
    result = TrustRegions(tol=1e-9).run(Problem(M, Transport(prices, 0.02)), M.random_point(1))
    assert result.converged
    assert result.point.min() < 1e-20


@each_row("shift, kind", [(shift, kind) for shift in (0.0, 0.4) for kind in (LBFGS,)])
def test_the_nearest_matrix_is_that_of_cvxpy_or_said_to_lie_at_the_boundary(shift: float, kind: Any) -> None:
    cp, rng, n = pytest.importorskip("cvxpy"), np.random.default_rng(0), 12
    goal = balanced(rng.random((n, n)) + 0.3) + 0.001 * rng.standard_normal((n, n))
    goal = goal + shift * rng.standard_normal((n, n))
    W = cp.Variable((n, n))
    bounds = [cp.sum(W, 0) == 1, cp.sum(W, 1) == 1, W >= 0]
    cp.Problem(cp.Minimize(cp.sum_squares(W - goal)), bounds).solve(solver=cp.CLARABEL)
    result = kind(tol=1e-9, max_iter=300).run(Problem(DoublyStochastic(n), Near(goal)), random_state=0)
    assert result.converged == (shift == 0.0)
    assert ("add an entropy" in result.stopped_by) == (shift != 0.0)
    np.testing.assert_allclose(result.point, W.value, atol=1e-6 if shift == 0.0 else 1e-2)


def test_a_minimum_on_the_boundary_is_told_where_the_slope_vanishes_too() -> None:
    problem = Problem(DoublyStochastic(6), Near(np.eye(6)))
    result = ConjugateGradient(max_iter=300).run(problem, random_state=0)
    assert not result.converged
    assert "the minimum lies on the boundary" in result.stopped_by


@each_row("kind", [ConjugateGradient, LBFGS, TrustRegions])
def test_a_linear_cost_ends_at_the_boundary_with_a_sentence(kind: Any) -> None:
    prices = np.random.default_rng(0).random((10, 10))
    result = kind(max_iter=100).run(Problem(DoublyStochastic(10), Transport(prices, 0.0)), random_state=0)
    assert not result.converged
    assert "the minimum lies on the boundary" in result.stopped_by


@each_row("manifold", [
    DoublyStochastic(5), SymmetricDoublyStochastic(5), Positive(4, 2), Symmetric(4), SkewSymmetric(4),
    SpecialEuclidean(3), SpecialEuclidean(2, 3),
])  # fmt: skip
def test_laws_hold_for_seeds_in_both_precisions(manifold: Any) -> None:
    for seed in range(5):
        for dtype in (np.float64, np.float32):
            failed = [str(check) for check in checks_of(manifold, seed, dtype) if not check]
            assert not failed, (seed, dtype, failed)


def test_second_derivatives() -> None:
    rng = np.random.default_rng(0)
    for M in (
        DoublyStochastic(5),
        SymmetricDoublyStochastic(5),
        Positive(5, 5),
        Symmetric(5),
        SkewSymmetric(5),
    ):
        cost = Near(rng.standard_normal(M.shape))
        assert all(check_hessian(Problem(M, cost))), M


@each_row("kind", [DoublyStochastic, SymmetricDoublyStochastic])
def test_hessians_are_the_second_derivatives_along_geodesics(kind: Any) -> None:
    """These begin with the acceleration of ½ ξ²/X within the sums."""
    M, rng = kind(5), np.random.default_rng(0)
    X, cost = M.random_point(rng), Near(rng.standard_normal(M.shape))
    xi, G = M.random_tangent_vector(X, rng), cost.gradient(X)
    wanted = np.sum(xi * cost.hessian(X, xi)) + np.sum(G * M.projection(X, 0.5 * xi * xi / X))
    along = M.euclidean_to_riemannian_hessian(X, G, cost.hessian(X, xi), xi)
    assert M.inner_product(X, along, xi) == pytest.approx(wanted, rel=1e-12)


def test_positive_numbers_have_the_geometry_of_their_logarithms() -> None:
    M, N, rng = Positive(3, 2), Euclidean(3, 2), np.random.default_rng(0)
    x, y = M.random_point(rng), M.random_point(rng)
    assert M.dist(x, y) == pytest.approx(N.dist(np.log(x), np.log(y)), rel=1e-14)
    v = M.random_tangent_vector(x, rng)
    np.testing.assert_allclose(M.exp(x, v), np.exp(np.log(x) + v / x), rtol=1e-14)


def test_rigid_motions_are_homogeneous_matrices() -> None:
    for M in (SpecialEuclidean(3), SpecialEuclidean(2, 4)):
        a, b = M.random_point(0), M.random_point(1)
        A, B = M.to_matrix(a), M.to_matrix(b)
        np.testing.assert_allclose(M.to_matrix(M.compose(a, b)), A @ B, atol=1e-14)
        np.testing.assert_allclose(M.to_matrix(M.inverse(a)), np.linalg.inv(A), atol=1e-14)
        again = M.from_matrix(A)
        assert M.dist(a, again) == 0.0
        c = M.random_point(2)
        assert M.dist(M.compose(c, a), M.compose(c, b)) == pytest.approx(M.dist(a, b), rel=1e-12)
        for wrong, reason in (
            (2.0 * A, "last rows"),
            (A[..., :-1, :], "shape"),
            (A @ np.diag([*[0.5] * M.n, 1.0]), "not a point"),
        ):
            with pytest.raises(ValueError, match=reason):
                M.from_matrix(wrong)
    assert isinstance(a, Parts)


def test_the_ball_of_poincare() -> None:
    for M in (Hyperbolic(3), Hyperbolic(2, 4)):
        x, y = M.random_point(0), M.random_point(1)
        u, v = M.to_poincare(x), M.to_poincare(y)
        np.testing.assert_allclose(M.from_poincare(u), x, atol=1e-14)
        squares = [np.sum(one * one, axis=0) for one in (u, v, u - v)]
        apart = np.arccosh(1.0 + 2.0 * squares[2] / ((1.0 - squares[0]) * (1.0 - squares[1])))
        assert M.dist(x, y) == pytest.approx(np.linalg.norm(apart), rel=1e-12)
        with pytest.raises(ValueError, match="ball of Hyperbolic"):
            M.from_poincare(u / np.linalg.norm(u, axis=0))
