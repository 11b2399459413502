"""Fréchet means: closed forms, points far apart, and what ends the search."""

import itertools
from typing import Any

import numpy as np
import pytest
from tabled import each_row

from rmopt.core import MissingCapabilityError, Parts, in_precision
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Hyperbolic,
    Oblique,
    PositiveDefinite,
    Power,
    Product,
    Simplex,
    SpecialOrthogonal,
    Sphere,
    SymmetricPositiveDefinite,
    frechet_mean,
)


@each_row("manifold", [
    Sphere(3), Oblique(3, 4), Grassmann(6, 3), Product([Sphere(3), Sphere(3)]), SpecialOrthogonal(3),
    SpecialOrthogonal(5), Hyperbolic(3, 2), Simplex(4), Power(Grassmann(5, 2), 2), PositiveDefinite(4),
    Product([Sphere(3), PositiveDefinite(2)]), SymmetricPositiveDefinite(3, k=2),
    *(SymmetricPositiveDefinite(3, metric=metric) for metric in ("log-euclidean", "bures-wasserstein")),
])  # fmt: skip
def test_a_mean_is_where_the_logarithms_cancel_also_of_points_far_apart(manifold: Any) -> None:
    for seed in (*range(8), 189):
        rng = np.random.default_rng(seed)
        points = [manifold.random_point(rng) for _ in range(4)]
        assert residual(manifold, points, frechet_mean(manifold, points)) < 1e-11


def residual(manifold: Any, points: list[Any], mean: Any) -> float:
    """Return the length of the mean logarithm, relative to the distances from the first point."""
    pull = manifold.zero_vector(mean)
    for point in points:
        pull = pull + manifold.log(mean, point) / len(points)
    spread = np.sqrt(np.mean([manifold.dist(points[0], point) ** 2 for point in points]))
    return float(manifold.norm(mean, pull) / spread)


@each_row("metric", ["affine-invariant", "log-euclidean", "bures-wasserstein"])
@each_row("n, count, seed", [(3, 10, 0), (15, 100, 0), (15, 100, 2), (8, 20, 3), (10, 60, 4)])
def test_means_of_ill_conditioned_points_are_as_exact_as_others(
    n: int, count: int, seed: int, metric: str
) -> None:
    A = np.random.default_rng(seed).standard_normal((count, n, n))
    points = list(A @ A.mT + 1e-6 * np.eye(n))
    cone = SymmetricPositiveDefinite(n, metric=metric)
    mean = frechet_mean(cone, points)
    assert residual(cone, points, mean) < 1e-11


def test_means_of_points_that_are_near_to_each_other() -> None:
    for manifold in (Sphere(3), Grassmann(5, 2), Hyperbolic(2), SpecialOrthogonal(3), PositiveDefinite(3)):
        for scale, dtype in itertools.product((1e-7, 1e-12, 0.0), (np.float64, np.float32)):
            rng = np.random.default_rng(1)
            x = in_precision(manifold.random_point(rng), dtype)
            near = [manifold.exp(x, manifold.random_tangent_vector(x, rng) * scale) for _ in range(5)]
            assert manifold.dist(frechet_mean(manifold, near), x) < max(scale, 10.0 * np.finfo(dtype).eps)


def test_means_of_wide_matrices_of_whole_numbers_of_one_point_and_cut_short() -> None:
    cone, rng = SymmetricPositiveDefinite(3), np.random.default_rng(4)
    frames = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(5)]
    points = [(Q * 10.0 ** rng.uniform(-2, 2, 3)) @ Q.T for Q in frames]
    points = [0.5 * (P + P.T) for P in points]
    mean = frechet_mean(cone, points)
    assert residual(cone, points, mean) < 1e-12
    with pytest.warns(RuntimeWarning, match="stopped after 1 steps"):
        frechet_mean(cone, points, max_iter=1)
    found = frechet_mean(Sphere(3), [np.array([1, 0, 0]), np.array([0, 1, 0])])
    np.testing.assert_allclose(found, [0.5**0.5, 0.5**0.5, 0.0])
    assert frechet_mean(cone, points[:1]) is not points[0]


def test_frechet_means_with_closed_forms() -> None:
    rng = np.random.default_rng(6)
    flat, cone = Euclidean(3, 2), PositiveDefinite(3)
    points = [flat.random_point(rng) for _ in range(5)]
    np.testing.assert_allclose(frechet_mean(flat, points), np.mean(points, axis=0), atol=1e-14)
    a, b = cone.random_point(rng), cone.random_point(rng)
    np.testing.assert_allclose(frechet_mean(cone, [a, b]), cone.pair_mean(a, b), atol=1e-10)
    both = Product([flat, cone])
    mean = frechet_mean(both, [Parts([points[0], a]), Parts([points[1], b])])
    np.testing.assert_allclose(mean[1], cone.pair_mean(a, b), atol=1e-10)
    embedded = FixedRankEmbedded(5, 4, 2)
    pair = [embedded.random_point(rng) for _ in range(2)]
    with pytest.raises(MissingCapabilityError, match="logarithm"):
        frechet_mean(embedded, pair)


def test_means_of_points_of_any_scale_and_of_points_close_to_each_other() -> None:
    flat, transported = Euclidean(4), SymmetricPositiveDefinite(3, metric="bures-wasserstein")
    points = list(np.random.default_rng(0).standard_normal((4, 4)))
    a, b = transported.random_point(0), transported.random_point(1)
    for scale in (1e-100, 1e-14, 1e10, 1e100):
        found = frechet_mean(flat, [scale * point for point in points])
        np.testing.assert_allclose(found, scale * np.mean(points, axis=0), rtol=1e-12)
        found = frechet_mean(transported, [scale * a, scale * b]) / scale
        np.testing.assert_allclose(found, transported.pair_mean(a, b), atol=1e-10)
    sphere = Sphere(3)
    near = [np.array([1.0, angle, 0.0]) for angle in (0.0, 1e-13, 2e-13, 5e-13)]
    assert frechet_mean(sphere, near)[1] == pytest.approx(2e-13, rel=1e-3)


def test_a_step_of_a_mean_may_leave_the_cone() -> None:
    rng, cone = np.random.default_rng(30), SymmetricPositiveDefinite(3, metric="bures-wasserstein")
    points = []
    for _ in range(4):
        Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        points.append((Q * 10.0 ** rng.uniform(-8, 1, 3)) @ Q.T)
    points = [0.5 * (P + P.T) for P in points]
    mean = frechet_mean(cone, points)
    # The rounding of logarithms at a point of its condition number, 3·10⁵, differs by processor.
    assert residual(cone, points, mean) < 10.0 * np.finfo(float).eps * np.linalg.cond(mean)


def test_a_mean_does_not_depend_on_which_point_is_first() -> None:
    cone, rng = SymmetricPositiveDefinite(4), np.random.default_rng(2)
    points = []
    for _ in range(6):
        B = rng.standard_normal((4, 4))
        values, vectors = np.linalg.eigh(16.0 * (B + B.T) / np.linalg.norm(B + B.T))
        points.append((vectors * np.exp(values)) @ vectors.T)
    points = [0.5 * (P + P.T) for P in points]
    means = [frechet_mean(cone, points), frechet_mean(cone, points[1:] + points[:1])]
    assert cone.dist(*means) < 1e-9
