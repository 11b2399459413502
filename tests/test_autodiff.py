"""Costs by autograd: exact actions, also where singular values are tied."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pymanopt
import pytest

import rmopt
from rmopt import InvalidInputError, Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.core import Factored, LowRankPoint, Manifold
from rmopt.interop import from_pymanopt
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann, PositiveDefinite, PSDFixedRank

N, M, K = 12, 9, 3
MANIFOLD = FixedRankEmbedded(N, M, K)
TARGET = np.random.default_rng(0).standard_normal((N, M))


@rmopt.autograd_cost
def log_cosh(A: np.ndarray, B: np.ndarray) -> float:
    """Sum of log cosh of the residuals."""
    return anp.sum(anp.log(anp.cosh(anp.dot(A, B.T) - TARGET)))


def points() -> dict[str, LowRankPoint]:
    rng = np.random.default_rng(1)
    free = MANIFOLD.random_point(rng)
    return {"free": free, "tied": LowRankPoint(free.U, np.eye(K), free.V), "identity": MANIFOLD.identity()}


@pytest.mark.parametrize("name", points())
def test_actions_are_exact(name: str) -> None:
    point = points()[name]
    rng = np.random.default_rng(2)
    R = MANIFOLD.to_dense(point) - TARGET
    G = np.tanh(R)
    X, Y = rng.standard_normal((M, 4)), rng.standard_normal((N, 2))
    gradient = log_cosh.gradient(point)
    assert gradient.shape == (N, M)
    np.testing.assert_allclose(gradient @ X, G @ X, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(gradient.T @ Y, G.T @ Y, rtol=1e-13, atol=1e-13)
    D = Factored(rng.standard_normal((N, 2)), rng.standard_normal((M, 2)))
    H = (1 - G**2) * (D @ np.eye(M))
    hessian = log_cosh.hessian(point, D)
    np.testing.assert_allclose(hessian @ X, H @ X, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(hessian.T @ Y, H.T @ Y, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_cosh.value(point), np.sum(np.log(np.cosh(R))), rtol=1e-14)


def test_slopes_at_a_tie() -> None:
    problem = Problem(MANIFOLD, log_cosh)
    assert check_gradient(problem, point=points()["tied"])
    assert all(check_hessian(problem, point=points()["tied"]))


def test_a_masked_cost_at_a_tie_where_gaps_of_singular_values_give_nan() -> None:
    rng = np.random.default_rng(3)
    rows, cols = np.nonzero(rng.random((N, M)) < 0.4)
    values = TARGET[rows, cols]

    def masked(A: np.ndarray, B: np.ndarray) -> float:
        return 0.5 * anp.sum((anp.einsum("ik,ik->i", A[rows], B[cols]) - values) ** 2)

    point = points()["tied"]
    W = MANIFOLD.to_dense(point)
    G = np.zeros((N, M))
    G[rows, cols] = W[rows, cols] - values
    X, Y = rng.standard_normal((M, 4)), rng.standard_normal((N, 4))
    cost = rmopt.autograd_cost(masked)
    np.testing.assert_allclose(cost.gradient(point) @ X, G @ X, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(cost.gradient(point).T @ Y, G.T @ Y, rtol=1e-13, atol=1e-13)

    foreign = pymanopt.manifolds.FixedRankEmbedded(N, M, K)
    triple = pymanopt.function.autograd(foreign)(lambda u, s, vt: masked(u * s, vt.T))
    theirs = pymanopt.Problem(foreign, triple)
    with np.errstate(all="ignore"):
        found = theirs.riemannian_gradient([point.U, np.ones(K), point.V.T])
    assert not all(np.isfinite(part).all() for part in found)


def test_nothing_of_size_n_by_m_is_formed() -> None:
    n, m = 300_000, 200_000
    rng = np.random.default_rng(4)
    rows, cols, values = rng.integers(n, size=50), rng.integers(m, size=50), rng.standard_normal(50)

    @rmopt.autograd_cost
    def masked(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(anp.tanh(anp.sum(A[rows] * B[cols], axis=1) - values))

    U, V = np.eye(n, 2), np.eye(m, 2)
    point = LowRankPoint(U, np.eye(2), V)
    manifold = FixedRankEmbedded(n, m, 2)
    slopes = 1 - np.tanh(np.einsum("ik,ik->i", U[rows], V[cols]) - values) ** 2
    gradient = manifold.projection(point, masked.gradient(point))
    expected = np.zeros((n, 2))
    np.add.at(expected, rows, slopes[:, None] * V[cols])
    np.testing.assert_allclose(U @ gradient.M + gradient.Up, expected, rtol=1e-13, atol=1e-13)
    tangent = manifold.random_tangent_vector(point, rng)
    assert (masked.hessian(point, manifold.embedding(point, tangent)) @ V).shape == (n, 2)


def test_a_linear_cost_has_the_zero_hessian() -> None:
    @rmopt.autograd_cost
    def linear(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(TARGET * anp.dot(A, B.T))

    point = points()["free"]
    D = Factored(np.ones((N, 2)), np.ones((M, 2)))
    np.testing.assert_allclose(linear.gradient(point) @ np.eye(M), TARGET, rtol=1e-14)
    np.testing.assert_array_equal(linear.hessian(point, D) @ np.eye(M), np.zeros((N, M)))
    np.testing.assert_array_equal(linear.hessian(point, D).T @ np.eye(N), np.zeros((M, N)))


def test_a_small_difference_of_large_numbers_is_a_cost() -> None:
    point = points()["free"]
    total = np.sum(MANIFOLD.to_dense(point) ** 2)

    @rmopt.autograd_cost
    def difference(A: np.ndarray, B: np.ndarray) -> float:
        return 1e9 * (anp.sum(anp.dot(A, B.T) ** 2) - total)

    assert abs(difference.value(point)) < 1e-3


@pytest.mark.parametrize("act", ["value", "gradient"])
def test_costs_of_the_factors_are_refused_whatever_is_asked_first(act: str) -> None:
    costs = {
        r"depends on more than A Bᵀ": [
            lambda A, B: anp.sum(A**2),
            lambda A, B: 1e-9 * anp.sum(A**2),
            lambda A, B: anp.sum(anp.dot(A, B.T) ** 2) / A.shape[1],
            lambda A, B: anp.sum(anp.dot(A, B.T) ** 2) + anp.sum(B),
        ],
        r"returned None; it must return a real number": [lambda A, B: None],
        r"returned 1j; it must return a real number": [lambda A, B: 1j],
        r"returned an array of shape \(3,\); sum it": [lambda A, B: anp.sum(A, axis=0)],
        r"is nan at the first point": [lambda A, B: anp.nan],
    }
    for sentence, functions in costs.items():
        for function in functions:
            with pytest.raises(InvalidInputError, match=sentence):
                getattr(rmopt.autograd_cost(function), act)(points()["free"])
    with pytest.raises(InvalidInputError, match=r"needs a function of the factors A and B.*got 3"):
        rmopt.autograd_cost(3)  # type: ignore[arg-type]


def test_costs_that_are_none_are_named() -> None:
    @rmopt.autograd_cost
    def gauge(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(A**2)

    @rmopt.autograd_cost
    def vector(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(A, axis=0)

    @rmopt.autograd_cost
    def infinite(A: np.ndarray, B: np.ndarray) -> float:
        return anp.inf

    point = points()["free"]
    with pytest.raises(InvalidInputError, match=r"the cost gauge depends on more than A Bᵀ"):
        gauge.value(point)
    with pytest.raises(InvalidInputError, match=r"the cost vector returned an array of shape \(3,\)"):
        vector.value(point)
    with pytest.raises(InvalidInputError, match=r"the cost infinite is inf at the first point"):
        infinite.value(point)


@pytest.mark.parametrize(
    ("manifold", "second_order"),
    [
        (Grassmann(7, 2), True),
        (PositiveDefinite(4), True),
        (Euclidean(4, 3), True),
        (PSDFixedRank(6, 2), True),
    ],
    ids=str,
)
def test_costs_on_other_manifolds(manifold: Manifold, second_order: bool) -> None:
    n, m = manifold.shape  # type: ignore[attr-defined]
    rng = np.random.default_rng(5)
    square, target = rng.standard_normal((n, n)), rng.standard_normal((n, m))
    square = square @ square.T
    costs = {
        # It depends on the subspace alone.
        Grassmann: lambda X: anp.sum(anp.dot(X.T, anp.dot(square, X)) ** 2),
        PositiveDefinite: lambda X: anp.sum((X - target) ** 2) - anp.log(anp.linalg.det(X)),
        Euclidean: lambda X: anp.sum(anp.sin(X) * target),
        PSDFixedRank: lambda A, B: anp.sum((anp.dot(A, B.T) - target) ** 2),
    }
    problem = Problem(manifold, rmopt.autograd_cost(costs[type(manifold)]))
    assert check_gradient(problem)
    if second_order:
        assert all(check_hessian(problem))


def test_a_linear_cost_of_an_array_has_the_zero_hessian() -> None:
    cost = rmopt.autograd_cost(lambda X: anp.sum(2.0 * X))
    X = np.ones((3, 2))
    np.testing.assert_array_equal(cost.gradient(X), 2.0 * X)
    np.testing.assert_array_equal(cost.hessian(X, X), np.zeros((3, 2)))
    np.testing.assert_array_equal(rmopt.autograd_cost(lambda X: 3.0).gradient(X), np.zeros((3, 2)))


def test_points_that_are_vectors() -> None:
    sphere = from_pymanopt(pymanopt.manifolds.Sphere(5))
    cost = rmopt.autograd_cost(lambda x, power=3: anp.sum(x**power))
    assert check_gradient(Problem(sphere, cost))
    x = np.arange(5.0)
    np.testing.assert_allclose(cost.hessian(x, np.ones(5)), 6.0 * x)


def test_a_function_that_does_not_fit_the_points_is_named() -> None:
    @rmopt.autograd_cost
    def of_factors(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(anp.dot(A, B.T))

    @rmopt.autograd_cost
    def of_a_point(X: np.ndarray) -> float:
        return anp.sum(X)

    with pytest.raises(
        InvalidInputError, match=r"of_factors .* of type ndarray; write a function of the point"
    ):
        of_factors.value(np.eye(3))
    with pytest.raises(InvalidInputError, match=r"of_a_point .* of type LowRankPoint; .* of A and B"):
        of_a_point.gradient(points()["free"])
    with pytest.raises(InvalidInputError, match=r"takes 3 arguments"):
        rmopt.autograd_cost(lambda A, B, C: 0.0)
    for unclear in (lambda *factors: 0.0, max):
        with pytest.raises(InvalidInputError, match=r"does not say how many arguments"):
            rmopt.autograd_cost(unclear)
    with pytest.raises(InvalidInputError, match=r"array of shape \(3,\)"):
        rmopt.autograd_cost(lambda X: anp.sum(X, axis=0)).value(np.eye(3))
