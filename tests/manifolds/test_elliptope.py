"""Correlation matrices of low rank: against pymanopt, spheres, and closed forms."""

import numpy as np
import pymanopt.manifolds as foreign

from rmopt import Problem, autograd_cost
from rmopt.checks import check_hessian
from rmopt.manifolds import Elliptope, Oblique
from rmopt.solvers import LBFGS, ConjugateGradient, TrustRegions

Array = np.ndarray


def graph(n: int) -> Array:
    edges = np.triu(np.random.default_rng(0).random((n, n)) < 0.3, 1)
    return (edges | edges.T).astype(float)


def test_tangent_spaces_are_those_of_pymanopt() -> None:
    ours, theirs, rng = Elliptope(7, 3), foreign.Elliptope(7, 3), np.random.default_rng(0)
    Y, Z = ours.random_point(rng), rng.standard_normal((7, 3))
    assert ours.dim == theirs.dim
    # That of pymanopt 2.2.1 is no projection (the sign of a Lyapunov equation): least squares over all turns instead.
    rows = Z - Y * (Y * Z).sum(axis=1, keepdims=True)
    turns = np.array([(Y @ (one - one.T)).ravel() for one in np.eye(9).reshape(9, 3, 3)]).T
    share = np.linalg.lstsq(turns, rows.ravel(), rcond=None)[0]
    np.testing.assert_allclose(ours.projection(Y, Z), rows - (turns @ share).reshape(7, 3), atol=1e-13)
    C = rng.standard_normal((7, 7))
    C += C.T
    xi = ours.random_tangent_vector(Y, rng)
    np.testing.assert_allclose(
        ours.euclidean_to_riemannian_gradient(Y, C @ Y),
        theirs.euclidean_to_riemannian_gradient(Y, C @ Y),
        atol=1e-13,
    )
    np.testing.assert_allclose(ours.retraction(Y, xi), theirs.retraction(Y, xi), atol=1e-15)


def test_turning_a_factor_turns_everything_with_it() -> None:
    manifold, rng = Elliptope(7, 3), np.random.default_rng(1)
    Y, end = (manifold.random_point(rng) for _ in range(2))
    turn, other = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    xi = manifold.random_tangent_vector(Y, rng)
    np.testing.assert_allclose(
        manifold.to_dense(manifold.exp(Y @ turn, xi @ turn)), manifold.to_dense(manifold.exp(Y, xi))
    )
    carried = manifold.transport(Y, end, xi)
    np.testing.assert_allclose(
        manifold.transport(Y @ turn, end @ other, xi @ turn), carried @ other, atol=1e-13
    )
    # A geodesic that begins across the turns stays so.
    ahead, behind = (manifold.exp(Y, t * xi) for t in (0.5 + 1e-6, 0.5 - 1e-6))
    velocity = (ahead - behind) / 2e-6
    np.testing.assert_allclose(manifold.projection(manifold.exp(Y, 0.5 * xi), velocity), velocity, atol=1e-8)


def test_max_cut_relaxations_are_those_of_the_spheres_also_where_the_rank_falls() -> None:
    A = graph(20)

    @autograd_cost
    def cut(Y: Array) -> float:
        return 0.25 * (Y * (A @ Y)).sum()

    @autograd_cost
    def turned(Y: Array) -> float:
        return 0.25 * (Y * (Y @ A)).sum()

    assert all(check_hessian(Problem(Elliptope(20, 4), cut)))
    wanted = TrustRegions(tol=1e-9).run(Problem(Oblique(7, 20), turned), random_state=0)
    for solver in (TrustRegions(tol=1e-8), LBFGS(tol=1e-7), ConjugateGradient(tol=1e-7)):
        result = solver.run(Problem(Elliptope(20, 7), cut), random_state=0)
        assert result.converged
        np.testing.assert_allclose(cut.value(result.point), turned.value(wanted.point), rtol=1e-10)
