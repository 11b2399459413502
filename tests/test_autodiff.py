"""Costs by autograd: exact actions, also where singular values are tied."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest

import rmopt
from rmopt import InvalidInputError, Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.core import Factored, LowRankPoint
from rmopt.manifolds import FixedRankEmbedded

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
