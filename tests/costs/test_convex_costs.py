"""Convex costs of positive semidefinite matrices: derivatives, convexity, sums, pairs."""

import numpy as np
import pytest
from regression_runs import Array, run

from problems.coembedding import LinkPrediction, MetricRegression, MultilabelCoembedding, OneVsRestCoembedding
from problems.coembedding.cost import closed_form
from problems.coembedding.instances import convex_costs
from rmopt import InvalidInputError, Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.costs import BilinearSum, Grid, Pairs, PairwiseDistance, Trace
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, RankIncremental, TrustRegions


def test_sums_and_mixtures() -> None:
    rng = np.random.default_rng(0)
    for loss in convex_costs().values():
        cost = Trace(0.3) + loss + Trace(0.2)
        p = loss.shape[0]
        A, B = rng.standard_normal((p, 2)), rng.standard_normal((p, 3))
        assert cost.trace_weight == pytest.approx(0.5)
        np.testing.assert_allclose(cost.at(A).value, loss.at(A).value + 0.5 * np.vdot(A, A), rtol=1e-13)
        mixture = cost.mixture([A, B])
        weights = np.array([0.7, 1.9])
        value, slopes = mixture(weights)
        whole = cost.at(np.hstack([np.sqrt(0.7) * A, np.sqrt(1.9) * B]))
        np.testing.assert_allclose(value, whole.value, rtol=1e-12)
        np.testing.assert_allclose(slopes, [np.vdot(Y, whole.apply(Y)) for Y in (A, B)], rtol=1e-9)


@pytest.mark.parametrize("name", sorted(convex_costs()))
def test_factor_derivatives_by_finite_differences(name: str) -> None:
    cost = convex_costs()[name] + Trace(0.4)
    rng = np.random.default_rng(4)
    Y, D = rng.standard_normal((2, cost.shape[0], 3))
    h = 1e-6
    slope = (cost.at(Y + h * D).value - cost.at(Y - h * D).value) / (2 * h)
    local = cost.at(Y)
    np.testing.assert_allclose(np.vdot(local.factor_gradient(), D), slope, rtol=1e-6)
    bent = (cost.at(Y + h * D).factor_gradient() - cost.at(Y - h * D).factor_gradient()) / (2 * h)
    np.testing.assert_allclose(local.factor_hessian(D), bent, atol=1e-6 * np.abs(bent).max())
    # Both forms of the second derivative.
    plain = 2.0 * (local.along(Y, D) @ Y + local.apply(D))
    np.testing.assert_allclose(local.factor_hessian(D), plain, rtol=1e-9, atol=1e-9 * np.abs(plain).max())


@pytest.mark.parametrize("name", sorted(convex_costs()))
def test_costs_are_convex(name: str) -> None:
    loss, rng = convex_costs()[name], np.random.default_rng(6)
    p = loss.shape[0]
    for _ in range(20):
        mixture = loss.mixture([rng.uniform(0.1, 2) * rng.standard_normal((p, 2)) for _ in range(2)])
        ends = mixture(np.array([1.0, 0.0]))[0], mixture(np.array([0.0, 1.0]))[0]
        for share in (0.2, 0.5, 0.9):
            between = mixture(np.array([1 - share, share]))[0]
            assert between <= (1 - share) * ends[0] + share * ends[1] + 1e-9 * max(ends)
            assert between >= loss.lower_bound


def test_lower_bounds_are_attained() -> None:
    """Where what belongs together lies in one place, and all else is far away."""
    X, Y = np.ones((3, 1)), np.array([[1, 0, 1, 0]] * 3)
    labels = np.array([[0.0], [0.0], [4.0], [0.0], [4.0], [2.0]])
    links = LinkPrediction(np.eye(3), [[0, 1], [0, 2]], [1, 0])
    for cost, Q, least in (
        (MultilabelCoembedding(X, Y), labels, 6.0 * np.log(2.0)),
        (OneVsRestCoembedding(X, Y), labels, 0.0),
        (links, np.array([[0.0], [0.0], [10.0], [5.0]]), np.log(2.0)),
    ):
        assert cost.at(Q).value == pytest.approx(least, rel=1e-14)
        assert cost.lower_bound == pytest.approx(least, rel=1e-14)
    negative, other = MetricRegression(np.eye(2)), MetricRegression(np.eye(2))
    negative.lower_bound = -1.0
    assert (negative + other + Trace(0.5)).lower_bound == -1.0


def test_the_preconditioner_is_symmetric_and_positive() -> None:
    rng = np.random.default_rng(0)
    for n, t in ((8, 20), (20, 6)):
        cost = MetricRegression(rng.standard_normal((n, t))) + Trace(0.5)
        Y = rng.standard_normal((n, 4))
        precondition = cost.preconditioner(Y)
        assert precondition is not None
        A, B = rng.standard_normal((2, n, 4))
        np.testing.assert_allclose(np.vdot(A, precondition(B)), np.vdot(precondition(A), B), rtol=1e-9)
        assert np.vdot(A, precondition(A)) > 0.0


@pytest.mark.parametrize(("n", "t", "beta"), [(8, 20, 0.5), (12, 5, 0.5), (9, 9, 40.0)])
def test_the_preconditioner_is_the_hessian_or_half_of_it_at_the_minimum(n: int, t: int, beta: float) -> None:
    """But for turns of the factor, in which the Hessian vanishes."""
    X = np.random.default_rng([n, t]).standard_normal((n, t))
    cost = MetricRegression(X) + Trace(beta)
    values, vectors = np.linalg.eigh(closed_form(X, beta)[0])
    Y = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, values > 1e-9]
    k = Y.shape[1]
    precondition = cost.preconditioner(Y)
    assert precondition is not None
    columns = np.eye(n * k).reshape(-1, n, k)
    mapped = np.column_stack([precondition(cost.hessian(Y, D)).ravel() for D in columns])
    found = np.sort(np.linalg.eigvals(mapped).real)
    turns = k * (k - 1) // 2
    np.testing.assert_allclose(found[:turns], 0.0, atol=1e-5)
    near = np.minimum(abs(found[turns:] - 1.0), abs(found[turns:] - 2.0))
    assert near.max() < 1e-5


def test_newton_needs_the_preconditioner_less_than_it_gains() -> None:
    """With it, ill-conditioned regressions take a fraction of the products with the Hessian."""

    class Plain(MetricRegression):
        def preconditioner(self, Y: Array, floor: float = 0.0) -> None:
            return None

    X = np.random.default_rng(0).standard_normal((30, 34))
    Y = np.random.default_rng(1).standard_normal((30, 30)) / 5
    iterations = {}
    for kind in (MetricRegression, Plain):
        cost = kind(X) + Trace(0.5)
        solver = TrustRegions(max_inner=50, gradient_norm=1e-6)
        result = solver.run(Problem(PSDFactors(30, 30), cost), Y)
        end, iterations[kind.__name__] = result.point, result.steps
        if kind is MetricRegression:
            np.testing.assert_allclose(cost.at(end).value, closed_form(X, 0.5)[1], rtol=1e-10)
    assert iterations["MetricRegression"] < iterations["Plain"]


def test_a_new_loss_is_ten_lines() -> None:
    class Contrastive(PairwiseDistance):
        lower_bound = 0.0

        def __init__(self, X: Array, left: Array, right: Array, linked: Array) -> None:
            super().__init__(X, Pairs(left, right, len(X)))
            self.linked = linked

        def loss(self, distances: Array) -> tuple[float, Array]:
            short = np.maximum(1.0 - distances, 0.0) * ~self.linked
            return float((distances * self.linked).sum() + short.sum()), self.linked - 1.0 * (short > 0.0)

    rng = np.random.default_rng(0)
    X, (left, right) = rng.standard_normal((30, 5)), np.triu_indices(30, 1)
    linked = np.abs(X[left, 0] - X[right, 0]) < 0.5
    cost = Contrastive(X, left, right, linked) + Trace(1.0)
    result = run(cost, RankIncremental(inner=LBFGS(max_iter=300), tol=1e-3, max_iter=15))
    weights = np.diag(result.point.Q @ result.point.S @ result.point.Q.T)
    assert weights.argmax() == 0
    assert result.certificate.objective < cost.at(np.zeros((5, 0))).value
    # Without curvature differences of gradients stand for it.
    assert run(cost, RankIncremental(max_iter=2)).steps == 2


def test_complex_points_are_refused() -> None:
    X = np.random.default_rng(0).standard_normal((8, 4))
    for cost in (MetricRegression(np.eye(4)) + Trace(0.5), 2.0 * BilinearSum(X, X)):
        with pytest.raises(InvalidInputError, match="takes real points"):
            LBFGS().run(Problem(PSDFixedRank(4, 2, field="complex"), cost), random_state=0)


def test_a_trace_fits_every_size() -> None:
    problem = Problem(PSDFixedRank(3, 1), Trace(0.5))
    assert check_gradient(problem)
    assert all(check_hessian(problem))
    assert (Trace(0.5) + BilinearSum(np.eye(3), np.eye(3))).shape == (3, 3)
    assert check_gradient(Problem(PSDFixedRank(3, 1), MetricRegression(np.eye(3)) + 2.0 * Trace(0.5)))


def test_grids_and_lists_of_pairs_agree() -> None:
    rng = np.random.default_rng(0)
    A, B, V = rng.standard_normal((3, 9, 2))
    grid, table = Grid(range(5), range(5, 9)), np.argwhere(np.ones((5, 4)))
    pairs = Pairs(table[:, 0], table[:, 1] + 5, 9)
    weights = rng.standard_normal((5, 4))
    np.testing.assert_allclose(grid.distances(A, B).ravel(), pairs.distances(A, B), atol=1e-13)
    np.testing.assert_allclose(grid.distances(A, A).ravel(), pairs.distances(A, A), atol=1e-13)
    np.testing.assert_allclose(grid.laplacian(weights, V), pairs.laplacian(weights.ravel(), V), atol=1e-12)
    with pytest.raises(InvalidInputError, match="do not overlap"):
        Grid(range(6), range(5, 9))
    by_hand = [np.sum((A[i] - A[5 + j]) ** 2) for i, j in table]
    np.testing.assert_allclose(pairs.distances(A, A), by_hand, rtol=1e-12)
