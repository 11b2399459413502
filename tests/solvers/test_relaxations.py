"""Certificates of semidefinite programmes with a known trace, and the staircase, beside interior points."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from descent_parts import EmbeddedFit
from in_library import LIBRARIES, array_of
from tabled import each_row

from rmopt import InvalidInputError, MissingCapabilityError, Problem, autograd_cost
from rmopt import namespaces as ns
from rmopt.core import Cost
from rmopt.manifolds import Elliptope, Oblique, SpecialOrthogonal, Sphere, Stiefel
from rmopt.solvers import Checkpoint, RankIncremental, TrustRegions, certify

Array = np.ndarray


class Linear(Cost):
    """⟨C, YYᵀ⟩ of points whose rank lies along an axis, with a gradient that may be wrong."""

    def __init__(self, C: Array, axis: int = -1, wrong: Any = 0.0) -> None:
        self.C, self.axis, self.wrong = C, axis, wrong

    def rows(self, point: Array) -> Array:
        Y = np.moveaxis(point, self.axis, -1)
        return Y.reshape(-1, Y.shape[-1])

    def value(self, point: Array) -> float:
        Y = self.rows(point)
        return float(np.vdot(Y, self.C @ Y))

    def gradient(self, point: Array) -> Array:
        return self.hessian(point, point)

    def hessian(self, point: Array, direction: Array) -> Array:
        D = 2.0 * ((self.C + self.wrong) @ self.rows(direction))
        turned = np.moveaxis(direction, self.axis, -1)
        return np.moveaxis(D.reshape(turned.shape), -1, self.axis)


def symmetric(n: int, seed: int = 0) -> Array:
    A = np.random.default_rng(seed).standard_normal((n, n))
    return 0.5 * (A + A.T)


PROGRAMMES = {
    "max-cut": (Elliptope(12, 6), -1),
    "transposed": (Oblique(6, 12), -2),
    "synchronisation": (Stiefel(7, 3, 4), -2),
    "spectrahedron": (Sphere(12, 3), -1),
}


@pytest.mark.parametrize("name", PROGRAMMES)
@pytest.mark.parametrize("proof", ["lanczos", "cholesky"])
def test_certificates_close_the_gap_at_minima_and_bound_it_elsewhere(name: str, proof: str) -> None:
    manifold, axis = PROGRAMMES[name]
    problem = Problem(manifold, Linear(symmetric(12), axis))
    best = TrustRegions(tol=1e-11).run(problem, random_state=0)
    found, _, _ = certify(problem, best.point, proof=proof)
    assert found.relative_gap <= 1e-10
    np.testing.assert_allclose(found.objective, best.cost, rtol=1e-13)
    if name == "spectrahedron":
        np.testing.assert_allclose(found.objective, np.linalg.eigvalsh(symmetric(12))[0], rtol=1e-12)
    rng = np.random.default_rng(1)
    for size in (0.0, 1e-6, 1e-3, 1.0):
        near = manifold.retraction(best.point, size * manifold.random_tangent_vector(best.point, rng))
        there, values, vectors = certify(problem, near, 3, proof=proof)
        assert there.lower_bound <= found.objective <= there.objective + 1e-12
        assert there.gap <= 1e-10 + 40.0 * size
        assert vectors.shape == (12, len(values))


@pytest.mark.parametrize("seed", range(18))
@pytest.mark.parametrize("name", PROGRAMMES)
def test_wrong_gradients_certify_nothing(name: str, seed: int) -> None:
    manifold, axis = PROGRAMMES[name]
    C = symmetric(12)
    wrong = (1e-4, 1e-2)[seed % 2] * C if seed >= 16 else 10.0 ** -(1 + seed % 4) * symmetric(12, 1 + seed)
    problem = Problem(manifold, Linear(C, axis, wrong))
    point = TrustRegions(tol=1e-9).run(Problem(manifold, Linear(C + wrong, axis)), random_state=0).point
    with pytest.raises(InvalidInputError, match=r"no certificate.*check_gradient"):
        certify(problem, point)


@pytest.mark.parametrize("name", PROGRAMMES)
def test_ranks_are_climbed_until_the_minimum_is_certified(name: str, tmp_path: Path) -> None:
    manifold, axis = PROGRAMMES[name]
    low = manifold.with_rank({"synchronisation": 3}.get(name, 2))
    problem, solver = Problem(low, Linear(symmetric(12), axis)), RankIncremental(tol=1e-9)
    result = solver.run(problem, random_state=0)
    best = TrustRegions(tol=1e-11).run(Problem(manifold, problem.cost), random_state=0)
    assert result.is_global
    assert result.converged
    assert 0.0 <= result.certificate.objective - result.lower_bound <= 1e-8
    np.testing.assert_allclose(result.certificate.objective, best.cost, rtol=1e-9)
    path = tmp_path / "run.npz"
    cut = lambda rows: "cut" if len(rows) == 2 else None  # noqa: E731
    solver.run(problem, random_state=0, checkpoint=Checkpoint(path, 0.0), stop=cut)
    resumed = solver.run(problem, checkpoint=Checkpoint(path))
    np.testing.assert_array_equal(resumed.point, result.point)
    assert resumed.certificate == result.certificate


def test_convex_costs_are_certified_and_others_are_not() -> None:
    T = symmetric(8)
    automatic = autograd_cost(lambda Y: 0.5 * ((Y @ Y.T - T) ** 2).sum())
    problem = Problem(Elliptope(8, 2), automatic)
    with pytest.raises(InvalidInputError, match="set is_convex = True"):
        RankIncremental().run(problem)
    automatic.is_convex = True
    solver = RankIncremental(tol=1e-9)
    values = [
        result.certificate.objective
        # It has no lower bound with the trace: here none is needed.
        for cost in (automatic, EmbeddedFit(T))
        if (result := solver.run(Problem(Elliptope(8, 2), cost), random_state=0)).is_global
    ]
    cp = pytest.importorskip("cvxpy")
    W = cp.Variable((8, 8), PSD=True)
    theirs = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W - T)), [cp.diag(W) == 1]).solve(solver="CLARABEL")
    np.testing.assert_allclose(values, [theirs, theirs], rtol=1e-7)
    bent = autograd_cost(lambda Y: -((Y @ Y.T - T) ** 2).sum())
    bent.is_convex = True
    with pytest.raises(InvalidInputError, match="not convex"):
        RankIncremental().run(Problem(Elliptope(8, 2), bent))


@each_row(
    ("problem", "words"),
    [
        (
            Problem(Elliptope(6, 2), autograd_cost(lambda Y: (Y[:, 0] ** 2).sum())),
            "no function of|a rotation of Y to YQ",
        ),
        (
            Problem(Elliptope(6, 2), autograd_cost(lambda Y: (Y @ Y.T @ np.eye(6)[:, :2] * Y).sum())),
            "another rank",
        ),
        (Problem(Elliptope(6, 2), Linear(symmetric(6), -1, np.triu(np.ones((6, 6)), 1))), "not symmetric"),
        (Problem(Sphere(4), autograd_cost(lambda x: x.sum())), "no dual in closed form"),
        (Problem(Sphere(4, 2, field="complex"), Linear(symmetric(4))), "no dual in closed form"),
    ],
)
def test_what_has_no_certificate_is_told(problem: Any, words: str) -> None:
    with pytest.raises((InvalidInputError, MissingCapabilityError), match=words):
        certify(problem, problem.manifold.random_point(np.random.default_rng(0)))


def test_right_gradients_are_never_refused() -> None:
    """Whatever size the matrix has, and wherever the point lies: 200 cases."""
    rng = np.random.default_rng(0)
    for case in range(200):
        n, k = int(rng.integers(3, 40)), int(rng.integers(1, 3))
        C = 10.0 ** rng.uniform(-6, 6) * symmetric(n, case) * (rng.random((n, n)) < rng.uniform(0.1, 1.0))
        C = C + C.T + (case % 3 == 0) * 1e3 * np.eye(n)
        manifold, axis = [(Elliptope(n, k + 1), -1), (Oblique(k + 1, n), -2), (Sphere(n, k), -1)][case % 3]
        certify(Problem(manifold, Linear(C, axis)), manifold.random_point(rng))


def test_rotations_and_frames_of_both_metrics_are_certified() -> None:
    """Products that are measured without noise have rotations at their minimum."""
    cost = Linear(-np.kron(np.ones((4, 4)), np.eye(3)), -2)
    for manifold in (SpecialOrthogonal(3, 4), Stiefel(3, 3, 4), Stiefel(5, 3, 4, metric="canonical")):
        point = np.broadcast_to(np.eye(manifold.shape[1])[:, :3], manifold.shape).copy()
        assert certify(Problem(manifold, cost), point)[0].is_global(1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_certificates_in_every_library(library: str) -> None:
    like, C = array_of(library), symmetric(12)

    class Here(Cost):
        def value(self, Y: Any) -> float:
            return float(ns.real_dot(Y, 0.5 * self.gradient(Y)))

        def gradient(self, Y: Any) -> Any:
            assert ns.namespace(Y) is ns.namespace(like)
            return ns.asarray(2.0 * C, like) @ Y

    best = TrustRegions(tol=1e-11).run(Problem(Elliptope(12, 6), Linear(C)), random_state=0)
    found, _, vectors = certify(Problem(Elliptope(12, 6), Here()), ns.asarray(best.point, like))
    assert found.relative_gap <= 1e-10
    assert type(vectors) is np.ndarray
