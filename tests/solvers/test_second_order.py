"""Saddles that are left, least curvatures that are told, and spectra of Hessians beside closed forms."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_library import array_of
from tabled import each_row

from rmopt import Problem, autograd_cost
from rmopt import namespaces as ns
from rmopt.core import Cost
from rmopt.errors import MissingCapabilityError
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
)
from rmopt.solvers import (
    AdaptiveCubics,
    Checkpoint,
    Hybrid,
    TrustRegions,
    hessian_matrix,
    hessian_spectrum,
    tangent_basis,
)

VALUES = np.arange(30.0)


class Captured(Cost):
    """Minus half of what a subspace captures of a diagonal matrix, and a count of looks."""

    def __init__(self, weights: Any = 1.0) -> None:
        self.weights = weights

    def value(self, point: Any) -> float:
        return -0.5 * float(np.sum(point**2 * VALUES[:, None] * self.weights))

    def gradient(self, point: Any) -> Any:
        return -VALUES[:, None] * point * self.weights

    def hessian(self, point: Any, direction: Any) -> Any:
        return -VALUES[:, None] * direction * self.weights


CASES = [
    (manifold, Captured(weights), solver)
    for manifold, weights in ((Grassmann(30, 3), 1.0), (Stiefel(30, 3), np.array([3.0, 2.0, 1.0])))
    for solver in (TrustRegions, AdaptiveCubics, Hybrid)
]


@each_row("manifold, cost, solver", CASES)
def test_exact_saddles_are_left_also_within_a_run(
    manifold: Any, cost: Any, solver: Any, tmp_path: Path
) -> None:
    saddle = np.eye(30)[:, [4, 5, 6]]
    top = np.array([29.0, 28.0, 27.0])
    wanted = -0.5 * float(np.sum(top * cost.weights))
    problem = Problem(manifold, cost)
    # From beside the saddle the gradient is short enough for the end at once.
    near = manifold.retraction(saddle, 1e-9 * manifold.random_tangent_vector(saddle, 0))
    for start in (saddle, near):
        with pytest.warns(RuntimeWarning, match="second_order=True"):
            plain = solver(gradient_norm=1e-6).run(problem, near)
        assert not plain.converged
        assert plain.least_curvature is None
        result = solver(gradient_norm=1e-6, second_order=True).run(problem, start, random_state=1)
        assert result.converged
        assert result.cost == pytest.approx(wanted, abs=1e-9)
        known, _ = hessian_spectrum(problem, result.point, 1)
        assert result.least_curvature == pytest.approx(known[0], rel=1e-5, abs=1e-5)
    assert "least curvature" in result.stopped_by
    # It goes on to the bit from each step, of which one looks at the curvature alone.
    whole = solver(gradient_norm=1e-6, second_order=True).run(problem, near, random_state=1)
    for steps in range(1, min(whole.steps, 6)):
        path = Checkpoint(tmp_path / f"{manifold}-{solver.__name__}-{steps}")
        options = {"gradient_norm": 1e-6, "second_order": True}
        solver(**options, max_iter=steps).run(problem, near, random_state=1, checkpoint=path)
        resumed = solver(**options).run(problem, near, random_state=1, checkpoint=path)
        assert np.array_equal(resumed.point, whole.point)
        assert (resumed.least_curvature, resumed.counts) == (whole.least_curvature, whole.counts)


def test_no_curvature_that_is_negative_is_called_converged() -> None:
    """A kink of curvature: it is negative at the point, and no step lowers the cost."""

    class Wrong(Cost):
        def value(self, point: Any) -> float:
            return float(np.sum(point**2))

        def gradient(self, point: Any) -> Any:
            return 2.0 * point

        def hessian(self, point: Any, direction: Any) -> Any:
            return -direction

    result = TrustRegions(second_order=True).run(Problem(Euclidean(3), Wrong()), np.zeros(3))
    assert not result.converged
    assert "no step along it lowers the cost" in result.stopped_by


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy"])
def test_the_spectrum_is_that_of_the_closed_form(library: str) -> None:
    """At an invariant subspace the eigenvalues are the differences of those inside and outside."""
    like, n, p = array_of(library), 14, 3
    a = np.array([21.0, 16.0, 12.5, *np.linspace(9.0, 1.0, n - p)])
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))[0]

    class Captures(Captured):
        def value(self, point: Any) -> float:
            return -0.5 * float(ns.real_dot(point, ns.asarray((turn * a) @ turn.T, like) @ point))

        def gradient(self, point: Any) -> Any:
            return -(ns.asarray((turn * a) @ turn.T, like) @ point)

        def hessian(self, point: Any, direction: Any) -> Any:
            return self.gradient(direction)

    problem = Problem(Grassmann(n, p), Captures())
    point = ns.asarray(turn[:, :p], like)
    wanted = np.sort((a[:p, None] - a[None, p:]).ravel())
    for which, expected in (("smallest", wanted), ("largest", wanted[::-1])):
        found, vectors = hessian_spectrum(problem, point, 12, which)
        np.testing.assert_allclose(found, expected[:12], atol=1e-9)
        for value, vector in zip(found, vectors, strict=True):
            off = problem.riemannian_hessian(point, vector) - vector * float(value)
            assert problem.manifold.norm(point, off) < 1e-6
    np.testing.assert_allclose(np.linalg.eigvalsh(hessian_matrix(problem, point)), wanted, atol=1e-9)


def test_eigenvalues_that_occur_several_times_are_found_so_many_times() -> None:
    problem = Problem(Grassmann(30, 3), Captured())
    wanted = np.sort((VALUES[27:, None] - VALUES[None, :27]).ravel())
    found, _ = hessian_spectrum(problem, np.eye(30)[:, 27:], 20)
    np.testing.assert_allclose(found, wanted[:20], atol=1e-9)
    assert len(hessian_spectrum(problem, np.eye(30)[:, 27:], 500)[0]) == problem.manifold.dim


def test_differences_of_gradients_stand_for_second_derivatives() -> None:
    class First(Cost):
        value, gradient = Captured.value, Captured.gradient
        weights = 1.0

    found, _ = hessian_spectrum(Problem(Grassmann(30, 3), First()), np.eye(30)[:, 27:], 4)
    np.testing.assert_allclose(found, [1.0, 2.0, 2.0, 3.0], atol=1e-4)


@each_row("manifold", [
    SymmetricPositiveDefinite(4), FixedRankEmbedded(6, 5, 2), Stiefel(5, 2, metric="canonical"),
    Sphere(4, field="complex"),
])  # fmt: skip
def test_a_basis_is_orthonormal_in_any_metric(manifold: Any) -> None:
    x = manifold.random_point(0)
    basis = tangent_basis(manifold, x)
    gram = np.array([[manifold.inner_product(x, a, b) for a in basis] for b in basis])
    np.testing.assert_allclose(gram, np.eye(manifold.dim), atol=1e-14)


def test_what_is_too_large_or_no_point_is_refused() -> None:
    problem = Problem(Sphere(2003), autograd_cost(lambda x: (x**4).sum()))
    with pytest.raises(MissingCapabilityError, match="hessian_spectrum"):
        hessian_matrix(problem, np.eye(2003)[0])
    with pytest.raises(ValueError, match="not on"):
        hessian_spectrum(problem, np.ones(2003))
    with pytest.raises(ValueError, match="which"):
        hessian_spectrum(problem, np.eye(2003)[0], 2, "middle")
