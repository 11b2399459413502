"""Sums of squared residuals and Levenberg–Marquardt: against scipy, closed forms, and derivatives written out."""

from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.optimize
from test_autodiff import LIBRARIES

from rmopt import InvalidInputError, Problem, autograd_residuals, jax_residuals, torch_residuals
from rmopt.checks import check_gradient
from rmopt.core import Factored, LowRankPoint
from rmopt.core.ambient import dense
from rmopt.costs import ResidualSum
from rmopt.costs.backends import AUTOGRAD, JAX, TORCH
from rmopt.costs.residuals import AutomaticResiduals
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Product, SpecialOrthogonal
from rmopt.solvers import LevenbergMarquardt, TrustRegions
from rmopt.testing import parametrize_with_laws

Array = np.ndarray
BACKENDS = {"autograd": AUTOGRAD, "jax": JAX, "torch": TORCH}
DECORATORS = {"autograd": autograd_residuals, "jax": jax_residuals, "torch": torch_residuals}
RNG = np.random.default_rng(0)
SHIFT, TURN = RNG.standard_normal((3, 1)), SpecialOrthogonal(3).random_point(RNG)
CLOUD = RNG.standard_normal((3, 15))
SEEN = TURN @ CLOUD + SHIFT + 0.05 * RNG.standard_normal(CLOUD.shape)


class Entries(ResidualSum):
    """Known entries of a matrix of low rank, by hand."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        truth = rng.standard_normal((8, 2)) @ rng.standard_normal((2, 7))
        self.rows, self.columns = np.nonzero(rng.random((8, 7)) < 0.75)
        self.values = truth[self.rows, self.columns]

    def residuals(self, point: LowRankPoint) -> Array:
        return point.as_ambient().left[self.rows] * point.V[self.columns] @ np.ones(2) - self.values

    def linearised(self, point: LowRankPoint) -> Any:
        def spread(weights: Array) -> Array:
            G = np.zeros((8, 7))
            G[self.rows, self.columns] = weights
            return G

        return lambda D: dense(D)[self.rows, self.columns], spread


def rigid(R: Any, t: Any) -> Any:
    return R @ CLOUD + t - SEEN


RIGID = Product([SpecialOrthogonal(3), Euclidean(3, 1)])
ENTRIES = Problem(FixedRankEmbedded(8, 7, 2), Entries())


def test_a_rigid_motion_is_that_of_the_closed_form() -> None:
    result = LevenbergMarquardt(tol=1e-10).run(Problem(RIGID, AutomaticResiduals(rigid)), random_state=0)
    # Kabsch: the mean, and the polar factor of the centred products.
    here, there = CLOUD.mean(1, keepdims=True), SEEN.mean(1, keepdims=True)
    U, _, Vt = np.linalg.svd((SEEN - there) @ (CLOUD - here).T)
    R = U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
    assert result.converged
    np.testing.assert_allclose(result.point[0], R, atol=1e-8)
    np.testing.assert_allclose(result.point[1], there - R @ here, atol=1e-8)


def test_in_flat_space_it_finds_what_scipy_finds() -> None:
    t = np.linspace(0.0, 3.0, 25)
    y = 2.0 * np.exp(-1.3 * t) + 0.4 + 0.01 * np.random.default_rng(2).standard_normal(25)

    def decay(x: Any) -> Any:
        return x[0, 0] * anp.exp(-x[1, 0] * t) + x[2, 0] - y

    start = np.array([[1.0], [0.5], [0.0]])
    cost = AutomaticResiduals(decay)
    result = LevenbergMarquardt(tol=1e-10).run(Problem(Euclidean(3, 1), cost), start)
    theirs = scipy.optimize.least_squares(
        lambda x: decay(x[:, None]), start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-12
    )
    np.testing.assert_allclose(result.point.ravel(), theirs.x, rtol=1e-7)
    assert result.steps < 20


def test_matrices_of_low_rank_by_hand_and_by_autograd() -> None:
    cost = ENTRIES.cost
    automatic = AutomaticResiduals(lambda A, B: anp.sum(A[cost.rows] * B[cost.columns], axis=1) - cost.values)
    start = FixedRankEmbedded(8, 7, 2).random_point(np.random.default_rng(1))
    ends = [
        LevenbergMarquardt(tol=1e-10).run(Problem(ENTRIES.manifold, one), start) for one in (cost, automatic)
    ]
    # Residuals vanish: the convergence is quadratic.
    assert all(end.converged and end.history[-1]["cost"] < 1e-16 for end in ends)
    assert ends[0].steps == ends[1].steps < 25
    assert ends[0].counts["hessians"] > 0
    costs = [[row["cost"] for row in end.history[:6]] for end in ends]
    np.testing.assert_allclose(costs[0], costs[1], rtol=1e-9)


@pytest.mark.parametrize("library", BACKENDS)
def test_products_are_those_of_the_jacobian(library: str) -> None:
    if library not in LIBRARIES:
        pytest.skip(f"{library} is not installed.")
    arrays = LIBRARIES[library][1]
    cloud, seen, square = (arrays(one) for one in (CLOUD, SEEN, RNG.standard_normal((4, 5))))
    matrix = AutomaticResiduals(lambda A, B: (A @ B.T - square) ** 3, BACKENDS[library])
    both = AutomaticResiduals(lambda R, t: R @ cloud + t - seen, BACKENDS[library])
    for manifold, cost in ((FixedRankEmbedded(4, 5, 2), matrix), (RIGID, both)):
        rng = np.random.default_rng(4)
        x = manifold.random_point(rng)
        direction = manifold.embedding(x, manifold.random_tangent_vector(x, rng))
        assert check_gradient(Problem(manifold, cost))
        forward, backward = cost.linearised(x)
        weights = rng.standard_normal(len(cost.residuals(x)))
        # Central differences along a curve with this velocity.
        h, xi = 1e-6, manifold.projection(x, direction)
        ends = [cost.residuals(manifold.retraction(x, xi * sign)) for sign in (h, -h)]
        np.testing.assert_allclose(forward(direction), (ends[0] - ends[1]) / (2 * h), atol=1e-7)
        # ⟨Jξ, w⟩ = ⟨ξ, Jᵀw⟩.
        other = manifold.inner_product(x, xi, manifold.projection(x, backward(weights)))
        assert forward(direction) @ weights == pytest.approx(other, rel=1e-9, abs=1e-9)


def test_directions_that_are_not_tangent() -> None:
    square = RNG.standard_normal((4, 5))
    cost = AutomaticResiduals(lambda A, B: (A @ B.T - square) ** 3)
    x = FixedRankEmbedded(4, 5, 2).random_point(RNG)
    D = Factored(RNG.standard_normal((4, 3)), RNG.standard_normal((5, 3)))
    W = dense(x.as_ambient())
    forward, _ = cost.linearised(x)
    np.testing.assert_allclose(forward(D), (3 * (W - square) ** 2 * dense(D)).ravel(), rtol=1e-11)


SOLVER = LevenbergMarquardt(max_iter=6)


@parametrize_with_laws([(SOLVER, ENTRIES), (SOLVER, Problem(RIGID, AutomaticResiduals(rigid)))], seeds=[0])
def test_laws(check: Any) -> None:
    check()


def test_it_needs_no_second_derivatives_and_fewer_products() -> None:
    found = LevenbergMarquardt(tol=1e-8).run(ENTRIES, random_state=5)
    newton = TrustRegions(tol=1e-8).run(ENTRIES, random_state=5)
    assert found.converged
    assert newton.counts["gradients"] > found.counts["gradients"]


@pytest.mark.parametrize("library", DECORATORS)
def test_a_function_becomes_residuals_by_a_decorator(library: str) -> None:
    if library not in LIBRARIES:
        pytest.skip(f"{library} is not installed.")
    cost = DECORATORS[library](lambda x: x**3 - 8.0)
    assert isinstance(cost, AutomaticResiduals)
    result = LevenbergMarquardt().run(Problem(Euclidean(2), cost), np.ones(2))
    assert result.converged
    np.testing.assert_allclose(result.point, [2.0, 2.0], rtol=1e-7)


@pytest.mark.parametrize("residuals", [lambda x: list(x), lambda x: x[:, None], lambda x: x + 0j])
def test_residuals_by_hand_of_another_form_are_named(residuals: Any) -> None:
    class Own(ResidualSum):
        def residuals(self, point: Array) -> Any:
            return residuals(point)

        def linearised(self, point: Array) -> Any:
            return None

    with pytest.raises(InvalidInputError, match=r"of Own .*real numbers of shape"):
        LevenbergMarquardt().run(Problem(Euclidean(3), Own()), np.ones(3))
