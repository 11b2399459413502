"""Three metrics of positive definite matrices: against pymanopt, scipy's matrix functions, and closed forms."""

from importlib import import_module
from itertools import pairwise
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.linalg
from in_library import LIBRARIES, array_of
from pymanopt.manifolds import HermitianPositiveDefinite
from tabled import each_row

from rmopt import InvalidInputError, Problem, autograd_cost
from rmopt import namespaces as ns
from rmopt.core import Cost
from rmopt.linalg import exp_differences, symmetric
from rmopt.manifolds import (
    Euclidean,
    PositiveDefinite,
    Product,
    SymmetricPositiveDefinite,
    frechet_mean,
    projected_mean,
)
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, TrustRegions

Array = np.ndarray
METRICS = ("affine-invariant", "log-euclidean", "bures-wasserstein")
EVERY = [SymmetricPositiveDefinite(d, k, metric) for metric in METRICS for d, k in ((1, 1), (4, 1), (3, 5))]


def drawn(
    manifold: Any, length: float = 0.3, seed: int = 0
) -> tuple[Array, Array, Array, np.random.Generator]:
    rng = np.random.default_rng(seed)
    x, y = (manifold.random_point(rng) for _ in range(2))
    return x, y, length * manifold.random_tangent_vector(x, rng), rng


def test_rows_and_columns_are_of_the_same_geometry() -> None:
    whole, blocks = SymmetricPositiveDefinite(5), PositiveDefinite(5)
    A, B, a, _ = drawn(whole)
    for method, arguments in {"exp": (A, a), "log": (A, B), "dist": (A, B), "transport": (A, B, a)}.items():
        np.testing.assert_array_equal(getattr(whole, method)(*arguments), getattr(blocks, method)(*arguments))


def test_the_log_euclidean_metric_is_that_of_the_logarithm() -> None:
    manifold = SymmetricPositiveDefinite(4, metric="log-euclidean")
    A, B, xi, rng = drawn(manifold)
    eta = manifold.random_tangent_vector(A, rng)
    S = scipy.linalg.logm(A)

    def slope(vector: Array) -> Array:
        """Return the derivative of the logarithm, by solving for what the exponential takes to the vector."""
        basis = np.eye(16).reshape(16, 4, 4)
        images = np.array([scipy.linalg.expm_frechet(S, one, compute_expm=False).ravel() for one in basis])
        return np.linalg.solve(images.T, vector.ravel()).reshape(4, 4)

    np.testing.assert_allclose(manifold.inner_product(A, xi, eta), np.vdot(slope(xi), slope(eta)), rtol=1e-12)
    np.testing.assert_allclose(manifold.exp(A, xi), scipy.linalg.expm(S + slope(xi)), atol=1e-13)
    apart = scipy.linalg.logm(B) - S
    np.testing.assert_allclose(slope(manifold.log(A, B)), apart, atol=1e-12)
    np.testing.assert_allclose(manifold.dist(A, B), np.linalg.norm(apart), rtol=1e-12)


def test_the_bures_wasserstein_distance_is_that_of_normal_distributions() -> None:
    manifold = SymmetricPositiveDefinite(4, metric="bures-wasserstein")
    A, B, xi, rng = drawn(manifold)
    root = scipy.linalg.sqrtm(A)
    square = np.trace(A + B) - 2.0 * np.trace(scipy.linalg.sqrtm(root @ B @ root))
    np.testing.assert_allclose(manifold.dist(A, B) ** 2, square, rtol=1e-10)
    L = scipy.linalg.solve_continuous_lyapunov(A, xi)
    eta = manifold.random_tangent_vector(A, rng)
    np.testing.assert_allclose(manifold.inner_product(A, xi, eta), 0.5 * np.vdot(L, eta), rtol=1e-12)
    # The length of the curve between them, by many chords.
    v, times = manifold.log(A, B), np.linspace(0.0, 1.0, 200)
    points = [manifold.exp(A, t * v) for t in times]
    length = sum(
        manifold.norm(symmetric(0.5 * (one + other)), other - one) for one, other in pairwise(points)
    )
    np.testing.assert_allclose(length, manifold.dist(A, B), rtol=1e-4)


def test_geodesics_of_optimal_transport_end_at_singular_matrices_and_say_so() -> None:
    manifold = SymmetricPositiveDefinite(2, metric="bures-wasserstein")
    # (1 − t)² I: at t = 1 it is zero, and goes on growing.
    shrink = -2.0 * np.eye(2)
    np.testing.assert_allclose(manifold.exp(np.eye(2), 0.9 * shrink), 0.01 * np.eye(2), rtol=1e-12)
    with pytest.raises(
        InvalidInputError, match=r"singular matrix after 0\.5 of the tangent vector.*congruence"
    ):
        manifold.exp(np.eye(2), 2.0 * shrink)
    np.testing.assert_allclose(manifold.retraction(np.eye(2), 1.5 * shrink), 0.25 * np.eye(2), rtol=1e-12)
    for metric in METRICS[:2]:
        far = SymmetricPositiveDefinite(2, metric=metric).exp(np.eye(2), 2.0 * shrink)
        np.testing.assert_allclose(far, np.exp(-4.0) * np.eye(2), rtol=1e-12)


@each_row("manifold", EVERY)
def test_transport_keeps_lengths_and_angles(manifold: Any) -> None:
    A, B, a, rng = drawn(manifold)
    b = manifold.random_tangent_vector(A, rng)
    moved = [manifold.transport(A, B, vector) for vector in (a, b)]
    np.testing.assert_allclose(manifold.inner_product(B, *moved), manifold.inner_product(A, a, b), atol=1e-13)
    if manifold.metric != "bures-wasserstein":
        # Parallel: the velocity of a geodesic stays one.
        back = -manifold.transport(A, B, manifold.log(A, B))
        np.testing.assert_allclose(back, manifold.log(B, A), atol=1e-12)


@each_row("metric", METRICS)
def test_batches_are_many_single_matrices(metric: str) -> None:
    batch, single = SymmetricPositiveDefinite(3, 5, metric), SymmetricPositiveDefinite(3, metric=metric)
    A, B, a, rng = drawn(batch)
    G, H = rng.standard_normal((2, *batch.shape))
    rows = range(5)
    for method, arguments in {
        "exp": (A, a), "log": (A, B), "transport": (A, B, a), "pair_mean": (A, B), "retraction": (A, a),
        "euclidean_to_riemannian_gradient": (A, G), "euclidean_to_riemannian_hessian": (A, G, H, a),
    }.items():  # fmt: skip
        wanted = [getattr(single, method)(*(argument[i] for argument in arguments)) for i in rows]
        np.testing.assert_allclose(getattr(batch, method)(*arguments), wanted, atol=1e-12, err_msg=method)
    np.testing.assert_allclose(batch.dist(A, B), np.linalg.norm([single.dist(A[i], B[i]) for i in rows]))
    np.testing.assert_allclose(
        batch.inner_product(A, a, B), sum(single.inner_product(A[i], a[i], B[i]) for i in rows)
    )


TARGETS = {"real": np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]])}
TARGETS["complex"] = TARGETS["real"] + 0.3j * np.array([[0, 1, -1], [-1, 0, 0], [1, 0, 0]])


class ToTarget(Cost):
    """tr(T⁻¹W) − log det W, least at T; in the library of W."""

    def __init__(self, field: str = "real") -> None:
        self.inverse = np.linalg.inv(TARGETS[field])

    def value(self, point: Array) -> float:
        inverse = ns.asarray(self.inverse, point)
        return float(ns.real_dot(inverse, point) - ns.namespace(point).linalg.slogdet(point)[1])

    def gradient(self, point: Array) -> Array:
        return ns.asarray(self.inverse, point) - ns.namespace(point).linalg.inv(point)

    def hessian(self, point: Array, direction: Array) -> Array:
        inverse = ns.namespace(point).linalg.inv(point)
        return inverse @ direction @ inverse


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("metric", METRICS)
def test_solvers_find_the_minimum_with_every_metric_and_retraction(
    metric: str, field: str, library: str
) -> None:
    manifold, like = SymmetricPositiveDefinite(3, metric=metric, field=field), array_of(library)
    x = manifold.random_point(0)
    for retraction in manifold.retractions:
        for solver in (TrustRegions(tol=1e-10), LBFGS(tol=1e-8)):
            problem = Problem(manifold.using(retraction), ToTarget(field))
            results = [solver.run(problem, ns.asarray(x, one)) for one in (x, like)]
            assert type(results[1].point) is type(like)
            assert results[0].steps == results[1].steps
            np.testing.assert_allclose(ns.to_numpy(results[1].point), TARGETS[field], atol=1e-6)


class Forgetful(SymmetricPositiveDefinite):
    """It computes all coordinates anew."""

    def _in_a_run(self) -> Any:
        return self


@each_row("metric", METRICS)
@each_row("solver", [LBFGS(tol=1e-8), ConjugateGradient(tol=1e-8), TrustRegions()])
def test_what_a_run_remembers_changes_nothing(solver: Any, metric: str) -> None:
    cones = [kind(3, metric=metric) for kind in (SymmetricPositiveDefinite, Forgetful)]
    points = [solver.run(Problem(cone, ToTarget()), random_state=0).point for cone in cones]
    np.testing.assert_array_equal(*points)
    pairs = [Product([cone, Euclidean(2)]) for cone in cones]
    costs = [
        autograd_cost(lambda W, x: anp.sum((W - TARGETS["real"]) ** 2) + anp.sum((x - W[0, :2]) ** 2))
    ] * 2
    results = [solver.run(Problem(*pair), random_state=0) for pair in zip(pairs, costs, strict=True)]
    assert all(map(np.array_equal, *(result.point for result in results)))
    # Outside of runs nothing is remembered: arrays may be written to.
    x, v = np.eye(3), np.eye(3)
    norm = cones[0].norm(x, v)
    v *= 2.0
    assert cones[0].norm(x, v) == 2.0 * norm


def test_hermitian_matrices_are_those_of_pymanopt() -> None:
    own, foreign = SymmetricPositiveDefinite(3, field="complex"), HermitianPositiveDefinite(3)
    A, B, a, rng = drawn(own)
    # Theirs says 12.
    assert own.dim == 9
    b, G, H = own.random_tangent_vector(A, rng), own.drawn(rng), own.drawn(rng)
    for method, arguments in {
        "inner_product": (A, a, b), "euclidean_to_riemannian_gradient": (A, G), "exp": (A, a), "log": (A, B),
        "euclidean_to_riemannian_hessian": (A, G, H, a), "dist": (A, B), "retraction": (A, a),
    }.items():  # fmt: skip
        wanted = getattr(foreign, method)(*arguments)
        np.testing.assert_allclose(getattr(own, method)(*arguments), wanted, atol=1e-13, err_msg=method)


@pytest.mark.parametrize("library", LIBRARIES)
@each_row("manifold", [SymmetricPositiveDefinite(3, metric=metric, field="complex") for metric in METRICS])
def test_what_leaves_the_cone_is_told_in_each_library(manifold: Any, library: str) -> None:
    like, (A, B, a, rng) = array_of(library), drawn(manifold)
    outside, A_there, a_there = (ns.asarray(array, like) for array in (A - np.eye(3), A, a))
    assert np.isnan(manifold.inner_product(outside, a_there, a_there))
    assert "positive definite" in str(manifold.check_point(outside))
    for pair in ((outside, A_there), (A_there, outside)):
        for method in (manifold.log, manifold.dist):
            with pytest.raises(InvalidInputError, match="positive definite"):
                method(*pair)
    # One of many is so wide that eigenvalues lose digits.
    Q, _ = np.linalg.qr(manifold.drawn(rng))
    many = np.array([symmetric((Q * [1e-6, 1.0, 1.0]) @ Q.conj().T), B])
    for method in (manifold.log, manifold.dist):
        found = ns.to_numpy(method(A_there, ns.asarray(many, like)))
        np.testing.assert_allclose(found, [method(A, one) for one in many], atol=1e-8)
    if library == "jax.numpy":
        # While it traces, nothing can be raised.
        moved = import_module("jax").jit(lambda *pair: manifold.retraction(*pair))
        np.testing.assert_allclose(moved(A_there, a_there), manifold.retraction(A, a), atol=1e-13)
        assert manifold.metric != "log-euclidean" or np.isnan(moved(outside, a_there)).all()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("metric", METRICS)
def test_means_of_hermitian_matrices_in_each_library(metric: str, library: str) -> None:
    manifold, like, rng = (
        SymmetricPositiveDefinite(3, metric=metric, field="complex"), array_of(library), np.random.default_rng(5)
    )  # fmt: skip
    points = [manifold.random_point(rng) for _ in range(4)]
    there = [ns.asarray(point, like) for point in points]
    mean = frechet_mean(manifold, there, [1.0, 2.0, 3.0, 0.0])
    assert manifold.norm(mean, sum(manifold.log(mean, there[i]) * (i + 1.0) for i in range(3))) < 1e-11
    nearest = projected_mean(manifold, there)
    np.testing.assert_allclose(ns.to_numpy(nearest), np.mean(points, axis=0), atol=1e-15)
    assert type(mean) is type(nearest) is type(like)
    if library != "numpy":
        with pytest.raises(InvalidInputError, match="several libraries"):
            frechet_mean(manifold, [*points, *there])
        assert "real arrays of numpy" in str(PositiveDefinite(3).check_point(there[0]))
    assert "real arrays of numpy" in str(PositiveDefinite(3).check_point(points[0]))


def test_means_are_those_of_their_metric() -> None:
    rng = np.random.default_rng(5)
    points = [SymmetricPositiveDefinite(3).random_point(rng) for _ in range(6)]
    logarithms = np.mean([scipy.linalg.logm(point) for point in points], axis=0)
    found = frechet_mean(SymmetricPositiveDefinite(3, metric="log-euclidean"), points)
    np.testing.assert_allclose(found, scipy.linalg.expm(logarithms), atol=1e-8)
    # The barycentre of Agueh and Carlier (2011) is where these roots average to it.
    mean = frechet_mean(SymmetricPositiveDefinite(3, metric="bures-wasserstein"), points)
    root = scipy.linalg.sqrtm(mean)
    roots = np.mean([scipy.linalg.sqrtm(root @ point @ root) for point in points], axis=0)
    np.testing.assert_allclose(mean, roots, atol=1e-7)


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-3, 0.9, 1.1, 30.0])
def test_divided_differences_are_exact_at_every_gap(gap: float) -> None:
    x = np.array([0.3, 0.3 + gap, 0.3 - 0.4 * gap])
    once, twice = exp_differences(x), exp_differences(x, order=2)
    for i in range(3):
        for j in range(3):
            for k in range(3):
                # Opitz: the corners of exponentials of bidiagonal matrices.
                corner = scipy.linalg.expm(np.diag(x[[i, j, k]]) + np.diag(np.ones(2), 1))
                np.testing.assert_allclose(once[i, j], corner[0, 1], rtol=1e-12)
                np.testing.assert_allclose(twice[i, j, k], corner[0, 2], rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_singular_matrices_are_no_points_whatever_the_sign_of_rounding(dtype: Any) -> None:
    def covariance(n: int, samples: int, rng: np.random.Generator) -> Array:
        signals = rng.standard_normal((n, samples)).astype(dtype) + dtype(3.0)
        signals -= signals.mean(0)
        return symmetric(signals @ signals.T)

    for n, samples in ((3, 2), (6, 4), (10, 9), (8, 400)):
        cones = [SymmetricPositiveDefinite(n, metric=metric) for metric in METRICS]
        for seed in range(50):
            rng = np.random.default_rng(seed)
            gram = rng.standard_normal((n, samples)).astype(dtype)
            for S in (
                covariance(n, samples, rng),
                symmetric(gram @ gram.T) if samples < n else np.zeros((n, n), dtype),
            ):
                assert "positive definite" in str(
                    SymmetricPositiveDefinite(n, 2).check_point(np.array([np.eye(n, dtype=dtype), S]))
                )
                for cone in (PositiveDefinite(n), *cones):
                    assert "positive definite" in str(cone.check_point(S))
                    with pytest.raises(InvalidInputError, match="positive definite"):
                        cone.log(np.eye(n, dtype=dtype), S)
                    with pytest.raises(InvalidInputError, match="positive definite"):
                        cone.dist(S, np.eye(n, dtype=dtype))
                    with pytest.raises(InvalidInputError, match="positive definite"):
                        frechet_mean(cone, [S, np.eye(n, dtype=dtype)])


def test_ill_conditioned_matrices_are_points() -> None:
    for dtype, condition in ((np.float64, 1e10), (np.float32, 1e4)):
        for seed in range(20):
            Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((10, 10)))[0]
            W = symmetric((Q * np.geomspace(1.0 / condition, 1.0, 10)) @ Q.T).astype(dtype)
            for metric in METRICS:
                assert SymmetricPositiveDefinite(10, metric=metric).check_point(W) is None


def test_logarithms_between_matrices_of_large_condition() -> None:
    """Singular values keep what eigenvalues of A⁻¹B lose."""
    cone, rng = SymmetricPositiveDefinite(4), np.random.default_rng(2)
    frames = [np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2)]
    roots = [np.array([1e-2, 1.0, 10.0, 1e2]), np.array([1e3, 1.0, 0.1, 1e-1])]
    A, B = (symmetric((Q * root**2) @ Q.T) for Q, root in zip(frames, roots, strict=True))
    halves = [np.diag(root) @ Q.T for Q, root in zip(frames, roots, strict=True)]
    ratios = np.linalg.svd(halves[1] @ np.linalg.inv(halves[0]), compute_uv=False)
    assert cone.dist(A, B) == pytest.approx(2.0 * np.linalg.norm(np.log(ratios)), rel=1e-6)
    assert np.isfinite(cone.log(A, B)).all()
    assert cone.dist(A, B) == pytest.approx(cone.dist(B, A), rel=1e-6)


class Likelihood(Cost):
    """log det W + tr(W⁻¹C)."""

    def __init__(self, C: np.ndarray) -> None:
        self.C = C

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.slogdet(W)[1] + np.trace(np.linalg.solve(W, self.C)))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(W)
        return inverse - inverse @ self.C @ inverse


@pytest.mark.parametrize("solver", [GradientDescent(), LBFGS()])
def test_starts_that_are_far_too_small(solver: Any) -> None:
    """Steps of the first metric end at the boundary and are made shorter; costs far up let the other one rise."""
    B = np.random.default_rng(0).standard_normal((5, 50))
    C = B @ B.T / 50
    flat = SymmetricPositiveDefinite(5, metric="log-euclidean")
    found = solver.run(Problem(flat, Likelihood(C)), 1e-4 * np.eye(5))
    assert found.converged
    C = 1e3 * np.diag([1.0, 2.0, 3.0, 4.0, 5.0])
    found = solver.run(Problem(SymmetricPositiveDefinite(5), Likelihood(C)), np.eye(5))
    assert found.converged
    np.testing.assert_allclose(found.point, C, atol=20.0)
