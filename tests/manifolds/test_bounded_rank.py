"""Matrices of bounded rank by factors: laws, and the example where solvers on matrices of one rank go astray."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from rmopt import Problem, autograd_cost
from rmopt.core import Cost, Parts
from rmopt.core.ambient import dense
from rmopt.costs import OnFactors
from rmopt.manifolds import BoundedRank, FixedRankEmbedded
from rmopt.solvers import LBFGS, GradientDescent, TrustRegions

Array = np.ndarray


class Apocalypse(Cost):
    """½‖D (W₁₂ − T)‖² + φ(w₃₃) with φ(x) = x⁴/4 − (x + 1)²/2, of section 2.2 of Levin, Kileel and Boumal (2023).

    W₁₂ is the leading 2 × 2 block, D = diag(1, ½) and T = diag(1, 0). Matrices diag(x, y, 0) hide the slope along w₃₃
    from the tangent space, and lead to diag(1, 0, 0).
    """

    weights, target = np.array([[1.0], [0.25]]), np.diag([1.0, 0.0])

    def value(self, point: Any) -> float:
        W = point.U @ point.S @ point.V.T
        x = W[2, 2]
        return float(
            0.5 * np.sum(self.weights * (W[:2, :2] - self.target) ** 2) + x**4 / 4 - (x + 1) ** 2 / 2
        )

    def gradient(self, point: Any) -> Array:
        W, G = point.U @ point.S @ point.V.T, np.zeros((3, 3))
        G[:2, :2] = self.weights * (W[:2, :2] - self.target)
        G[2, 2] = W[2, 2] ** 3 - W[2, 2] - 1.0
        return G

    def hessian(self, point: Any, direction: Any) -> Array:
        D, H = dense(direction), np.zeros((3, 3))
        H[:2, :2] = self.weights * D[:2, :2]
        H[2, 2] = (3.0 * (point.U @ point.S @ point.V.T)[2, 2] ** 2 - 1.0) * D[2, 2]
        return H


COST, MATRICES, FACTORS = Apocalypse(), FixedRankEmbedded(3, 3, 2), BoundedRank(3, 3, 2)
START = MATRICES.from_matrix(np.diag([2.0, 1.0, 0.0]))


def descent(point: Any) -> float:
    """Return the length of the projection of −∇f onto the tangent cone of matrices of rank at most 2."""
    U, sigma, V = np.linalg.svd(point.U @ point.S @ point.V.T)
    rank, G = int(np.sum(sigma > 1e-6)), COST.gradient(point)
    inside = U.T @ G @ V.T
    normal = inside[rank:, rank:]
    more = np.linalg.svd(normal, compute_uv=False)[: 2 - rank]
    return float(np.sqrt(np.sum(inside**2) - np.sum(normal**2) + np.sum(more**2)))


def curvature(problem: Problem, point: Parts) -> float:
    """Return the least eigenvalue of the Hessian of a function of factors, entry by entry."""
    shapes = [part.shape for part in point]
    basis = np.eye(sum(int(np.prod(shape)) for shape in shapes))
    columns = []
    for one in basis:
        first, second = np.split(one, [int(np.prod(shapes[0]))])
        moved = problem.riemannian_hessian(
            point, Parts([first.reshape(shapes[0]), second.reshape(shapes[1])])
        )
        columns.append(np.concatenate([part.ravel() for part in moved]))
    return float(np.linalg.eigvalsh(np.array(columns)).min())


@pytest.mark.filterwarnings("ignore:the run ended by:RuntimeWarning")
def test_solvers_on_one_rank_end_where_the_cost_still_falls() -> None:
    for solver, seed in itertools.product((GradientDescent(), LBFGS()), range(10)):
        result = solver.run(Problem(MATRICES, COST), START, random_state=seed)
        # A random direction may show that it falls, or not.
        assert result.converged or "a maximum or a saddle" in result.stopped_by
        assert descent(result.point) > 0.9


def test_by_factors_that_point_is_a_saddle_and_trust_regions_leave_it() -> None:
    problem = Problem(FACTORS, OnFactors(COST))
    start = Parts(START.balanced_factors())
    there = TrustRegions().run(problem, start, random_state=0).point
    assert curvature(problem, there) < -0.4
    # φ'(x) = x³ − x − 1.
    x = scipy.optimize.brentq(lambda x: x**3 - x - 1.0, 1.0, 2.0)
    for seed in range(3):
        push = FACTORS.random_tangent_vector(start, np.random.default_rng(seed))
        found = (
            TrustRegions(tol=1e-10).run(problem, FACTORS.retraction(start, push * 1e-6), random_state=0).point
        )
        assert curvature(problem, found) > -1e-6
        assert descent(FACTORS.point_of(found)) < 1e-5
        np.testing.assert_allclose(problem.value(found), x**4 / 4 - (x + 1) ** 2 / 2, rtol=1e-10)


def test_a_minimum_of_lower_rank_is_a_point_like_any_other() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 1)), rng.standard_normal((6, 1))

    @autograd_cost
    def apart(A: Any, B: Any) -> Any:
        return 0.5 * ((A @ B.T - a @ b.T) ** 2).sum()

    manifold = BoundedRank(8, 6, 3)
    found = TrustRegions().run(Problem(manifold, apart), random_state=0).point
    assert np.linalg.norm(found[0] @ found[1].T - a @ b.T) < 1e-4
    assert manifold.check_point(Parts([a @ np.eye(1, 3), b @ np.eye(1, 3)])) is None
    assert (manifold.dim, repr(manifold)) == (42, "BoundedRank(8, 6, 3)")
