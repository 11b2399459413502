"""pymanopt both ways, against known optima."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import pytest
import scipy.sparse as sp
from descent_parts import Variance
from in_library import array_of
from pymanopt import manifolds
from pymanopt.manifolds import Sphere
from pymanopt.optimizers import ConjugateGradient
from tabled import each_row

import rmopt
import rmopt.manifolds as ours
from rmopt import InvalidInputError, Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.core import Factored, LowRankPoint, MissingCapabilityError
from rmopt.interop import PymanoptSolver, from_pymanopt, to_pymanopt
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import FIXED_RANK_RETRACTIONS
from rmopt.solvers import LBFGS, SGD, InverseTime

SHAPE, RANK = (60, 50), 3


class Completion(rmopt.core.Cost):
    """½ Σ over known entries (W − X)², with sparse gradient and Hessian."""

    def __init__(self, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> None:
        self.rows, self.cols, self.values = rows, cols, values

    def entries(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.einsum("ik,ik->i", left[self.rows], right[self.cols])

    def residual(self, point: LowRankPoint) -> np.ndarray:
        return self.entries(point.U @ point.S, point.V) - self.values

    def value(self, point: LowRankPoint) -> float:
        return 0.5 * float(np.sum(self.residual(point) ** 2))

    def gradient(self, point: LowRankPoint) -> sp.csr_array:
        return sp.csr_array((self.residual(point), (self.rows, self.cols)), shape=SHAPE)

    def hessian(self, point: LowRankPoint, direction: Factored) -> sp.csr_array:
        change = self.entries(direction.left, direction.right)
        return sp.csr_array((change, (self.rows, self.cols)), shape=SHAPE)


@pytest.fixture(scope="module")
def completion() -> tuple[FixedRankEmbedded, Completion, np.ndarray]:
    rng = np.random.default_rng(0)
    manifold = FixedRankEmbedded(*SHAPE, RANK)
    truth = manifold.to_dense(manifold.random_point(rng))
    rows, cols = np.divmod(rng.permutation(SHAPE[0] * SHAPE[1])[:1500], SHAPE[1])
    return manifold, Completion(rows, cols, truth[rows, cols]), truth


@pytest.mark.parametrize("retraction", FIXED_RANK_RETRACTIONS.values(), ids=repr)
@pytest.mark.parametrize("optimizer", ["ConjugateGradient", "TrustRegions"])
def test_pymanopt_optimizers_complete_a_matrix(
    completion: tuple[FixedRankEmbedded, Completion, np.ndarray],
    optimizer: str,
    retraction: rmopt.core.Retraction,
) -> None:
    manifold, cost, truth = completion
    options = {} if optimizer == "TrustRegions" else {"max_iterations": 2000}
    problem = Problem(manifold.using(retraction), cost)
    result = PymanoptSolver(optimizer, min_gradient_norm=1e-8, **options).run(problem, random_state=1)
    assert np.linalg.norm(manifold.to_dense(result.point) - truth) / np.linalg.norm(truth) < 1e-6
    assert manifold.check_point(result.point) is None
    if optimizer == "TrustRegions":
        assert result.steps < 60


def test_trust_regions_without_second_derivatives_say_so() -> None:
    class Flat(rmopt.core.Cost):
        def value(self, point: LowRankPoint) -> float:
            return 0.0

        def gradient(self, point: LowRankPoint) -> np.ndarray:
            return np.zeros(SHAPE)

    with pytest.raises(MissingCapabilityError, match=r"TrustRegions needs second derivatives: .*Flat"):
        PymanoptSolver("TrustRegions").run(Problem(FixedRankEmbedded(*SHAPE, RANK), Flat()))


def test_a_pymanopt_manifold_runs_under_sgd_and_back() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 6)) * [3, 1, 1, 1, 1, 1]
    leading = np.linalg.svd(A)[2][0]
    problem = Problem(from_pymanopt(Sphere(6)), Variance(A))
    found = SGD(InverseTime(0.05, 0.05), max_iter=20_000).run(problem, random_state=0)
    assert abs(found.point @ leading) > 1 - 1e-3
    again = SGD(InverseTime(0.05, 0.05), max_iter=20_000).run(problem, random_state=0)
    np.testing.assert_array_equal(found.point, again.point)
    exact = PymanoptSolver("TrustRegions").run(problem, random_state=0)
    assert abs(exact.point @ leading) > 1 - 1e-12


def test_each_iteration_has_a_row_of_where_it_stands() -> None:
    waves = rmopt.autograd_cost(lambda x: anp.sum(anp.cos(9.0 * x) + 0.1 * x * x))
    problem = Problem(rmopt.manifolds.Euclidean(4), waves)
    # A search from here tries a lower point than the one that it takes.
    start = 2.0 * np.random.default_rng(2).standard_normal(4)
    theirs = ConjugateGradient(verbosity=0, log_verbosity=1).run(to_pymanopt(problem), initial_point=start)
    for name in ("ConjugateGradient", "TrustRegions"):
        found = PymanoptSolver(name, max_iterations=30).run(problem, start, random_state=0)
        assert [row["step"] for row in found.history] == list(range(1, found.steps + 1))
        costs = [row["cost"] for row in found.history]
        assert costs[-1] == problem.value(found.point)
        assert name != "ConjugateGradient" or costs == theirs.log["iterations"]["cost"]


def test_a_reason_of_ones_own_is_no_convergence() -> None:
    problem = Problem(rmopt.manifolds.Sphere(3), rmopt.autograd_cost(lambda x: x[0]))
    assert PymanoptSolver().run(problem, random_state=0).converged
    found = PymanoptSolver().run(problem, random_state=0, stop=lambda rows: "the grad norm is long")
    assert (found.stopped_by, found.converged) == ("the grad norm is long", False)


def test_optimizers_start_from_another_result_and_from_whole_numbers() -> None:
    problem = Problem(
        rmopt.manifolds.Sphere(3), rmopt.autograd_cost(lambda x: anp.sum(np.arange(3.0) * x * x))
    )
    first = rmopt.solvers.GradientDescent(max_iter=2).run(problem, random_state=0)
    solver = PymanoptSolver("ConjugateGradient")
    np.testing.assert_array_equal(solver.run(problem, first).point, solver.run(problem, first.point).point)
    assert solver.run(problem, np.array([1, 0, 0])).point.dtype == float


def test_starts_off_a_pymanopt_manifold_are_refused() -> None:
    cost = rmopt.autograd_cost(lambda X: anp.sum((X - 1.0) ** 2))
    off: list[tuple[Any, np.ndarray, str]] = [
        (manifolds.Symmetric(3), np.arange(9.0).reshape(3, 3), "moves the point"),
        (manifolds.SkewSymmetric(3), np.ones((3, 3)), "moves the point"),
        (manifolds.Positive(2, 2), -np.ones((2, 2)), "moves the point"),
        (manifolds.SphereSubspaceIntersection(np.eye(5)[:, :3]), np.eye(5)[4], "moves the point"),
        (manifolds.SphereSubspaceComplementIntersection(np.eye(5)[:, :3]), np.eye(5)[0], "moves the point"),
    ]
    for foreign, start, told in off:
        manifold = from_pymanopt(foreign)
        assert manifold.check_point(manifold.random_point(np.random.default_rng(0))) is None
        with pytest.raises(InvalidInputError, match=told):
            LBFGS().run(Problem(manifold, cost), start)


def hermitian(n: int, seed: int) -> Any:
    X = np.random.default_rng(seed).standard_normal((n, n, 2)) @ [1.0, 1.0j]
    return X @ X.conj().T / n + np.eye(n)


def re_dot(A: Any, B: Any) -> Any:
    return anp.sum(anp.real(anp.conj(A) * B))


H, C = hermitian(4, 0), hermitian(4, 1) @ hermitian(4, 2)
VALUES = np.linalg.eigvalsh(H)
# A manifold of pymanopt, ours, a function of their points, and the least value.
COMPLEX = [
    (manifolds.ComplexCircle(4), None, lambda z: re_dot(C[0], z), -np.sum(abs(C[0]))),
    (manifolds.ComplexEuclidean(4, 4), ours.Euclidean(4, 4, field="complex"),
     lambda Z: re_dot(Z, H @ Z) - 2.0 * re_dot(C, Z), -np.sum((C.conj() * np.linalg.solve(H, C)).real)),
    (manifolds.ComplexGrassmann(4, 2), ours.Grassmann(4, 2, field="complex"), lambda X: re_dot(X, H @ X),
     np.sum(VALUES[:2])),
    (manifolds.PSDFixedRankComplex(4, 2), ours.PSDFactors(4, 2, field="complex"),
     lambda Y: anp.sum(anp.abs(Y @ anp.conj(Y).T - H) ** 2), np.sum(VALUES[:2] ** 2)),
    (manifolds.HermitianPositiveDefinite(4), None,
     lambda X: re_dot(H, X) + re_dot(np.eye(4), anp.linalg.inv(X)), 2.0 * np.sum(VALUES**0.5)),
    (manifolds.SpecialHermitianPositiveDefinite(4), None, lambda X: re_dot(H, X), 4.0 * np.prod(VALUES) ** 0.25),
    (manifolds.UnitaryGroup(4), ours.Unitary(4), lambda X: re_dot(C, X),
     -np.sum(np.linalg.svd(C, compute_uv=False))),
]  # fmt: skip


@each_row("theirs, own, function, least", COMPLEX)
def test_complex_problems_have_one_optimum_here_and_there(
    theirs: Any, own: Any, function: Any, least: float
) -> None:
    cost = rmopt.autograd_cost(function)
    problem = Problem(from_pymanopt(theirs), cost)
    start = problem.manifold.random_point(np.random.default_rng(0))
    sides, there = [problem], []
    # The gradients of pymanopt's own unitary group are not tangent.
    if not isinstance(theirs, manifolds.UnitaryGroup):
        there = [pymanopt.Problem(theirs, pymanopt.function.autograd(theirs)(function))]
        found = there[0].riemannian_gradient(start)
        np.testing.assert_allclose(problem.riemannian_gradient(start), found, atol=1e-12)
    if own is not None:
        sides.append(Problem(own, cost))
        gradient = problem.manifold.embedding(start, problem.riemannian_gradient(start))
        np.testing.assert_allclose(sides[1].riemannian_gradient(start), gradient, atol=1e-12)
    for side in sides:
        assert check_gradient(side)
        assert not side.manifold.knows_hessians or all(check_hessian(side))
        by_theirs = PymanoptSolver(min_gradient_norm=1e-7)
        for solver in (LBFGS(tol=1e-9), rmopt.solvers.ConjugateGradient(tol=1e-9), by_theirs):
            point = solver.run(side, start).point
            assert side.manifold.check_point(point) is None
            assert side.value(point) == pytest.approx(least, rel=1e-10)
    for one in (*map(to_pymanopt, sides), *there):
        found = ConjugateGradient(verbosity=0, min_gradient_norm=1e-7).run(one, initial_point=start)
        assert found.point.dtype == complex
        assert found.cost == pytest.approx(least, rel=1e-10)


def test_points_of_other_libraries_and_fields_are_told_how_to_come_to_pymanopt() -> None:
    circle, x = from_pymanopt(manifolds.ComplexCircle(3)), array_of("array_api_strict") + 1.0
    assert "add 0j to them" in str(circle.check_point(np.ones(3)))
    assert "convert it" in str(from_pymanopt(Sphere(1)).check_point(x))
    assert not from_pymanopt(manifolds.SpecialHermitianPositiveDefinite(3)).knows_hessians


def test_threads_draw_the_same_points_at_once() -> None:
    sphere = from_pymanopt(Sphere(400))

    def drawn(seed: int) -> Any:
        return [sphere.random_point(np.random.default_rng(seed)) for _ in range(50)]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(drawn, range(8)))
    np.testing.assert_array_equal(found, [drawn(seed) for seed in range(8)])
