"""Closed forms of single geometries that GeoJAX's own tests assert, held by ours."""

import numpy as np

from rmopt.manifolds import (
    Grassmann,
    Hyperbolic,
    Oblique,
    Simplex,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
)

RNG = np.random.default_rng(0)


def test_frames_have_two_metrics_and_the_geodesics_of_them() -> None:
    canonical, flat = Stiefel(4, 2, metric="canonical"), Stiefel(4, 2)
    X = canonical.random_point(RNG)
    turned = X @ np.array([[0.0, -0.7], [0.7, 0.0]])
    np.testing.assert_allclose(canonical.inner_product(X, turned, turned), 0.5 * np.sum(turned**2))
    np.testing.assert_allclose(flat.inner_product(X, turned, turned), np.sum(turned**2))
    U, h = 0.2 * flat.random_tangent_vector(X, RNG), 1e-3
    ahead, behind = (flat.exp(X, sign * U) for sign in (h, -h))
    np.testing.assert_allclose((ahead - 2.0 * X + behind) / h**2, -X @ (U.T @ U), atol=1e-7)


def test_subspaces_at_a_right_angle_have_a_distance() -> None:
    manifold, e = Grassmann(4, 2), np.eye(4)
    np.testing.assert_allclose(manifold.dist(e[:, :2], e[:, [2, 1]]), 0.5 * np.pi)
    near = manifold.exp(e[:, :2], 1e-7 * manifold.random_tangent_vector(e[:, :2], RNG))
    np.testing.assert_allclose(manifold.dist(e[:, :2], near), 1e-7, rtol=1e-7)


def test_bures_wasserstein_has_its_closed_forms_on_diagonal_matrices() -> None:
    manifold, U = (
        SymmetricPositiveDefinite(2, metric="bures-wasserstein"),
        np.array([[0.4, 0.2], [0.2, -0.3]]),
    )
    np.testing.assert_allclose(manifold.dist(np.diag([1.0, 4.0]), np.diag([4.0, 9.0])) ** 2, 1.0 + 1.0)
    np.testing.assert_allclose(manifold.inner_product(np.eye(2), U, U), 0.25 * np.sum(U * U))


def test_angles_of_plane_rotations_are_distances() -> None:
    def turned(angle: float) -> np.ndarray:
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    np.testing.assert_allclose(SpecialOrthogonal(2).dist(turned(0.4), turned(0.8)), 2.0**0.5 * 0.4)


def test_far_points_of_spheres_keep_their_digits() -> None:
    x, w, angle = np.eye(3)[0], np.eye(3)[2], np.pi - 0.001
    y = np.array([np.cos(angle), np.sin(angle), 0.0])
    np.testing.assert_allclose(Sphere(3).dist(x, -x), np.pi)
    for kind, column in ((Sphere(3), ...), (Oblique(3, 1), (..., None))):
        manifold = kind.using(transport="manifold")
        tangent = manifold.log(x[column], y[column])
        np.testing.assert_allclose(manifold.norm(x[column], tangent), angle, rtol=1e-10)
        np.testing.assert_allclose(manifold.exp(x[column], tangent), y[column], atol=1e-10)
        carried = manifold.transport(x[column], y[column], w[column])
        np.testing.assert_allclose(manifold.norm(y[column], carried), 1.0)


def test_hyperbolic_space_has_the_closed_forms_of_the_ball() -> None:
    manifold = Hyperbolic(2)
    end = manifold.exp(*(lambda x: (x, manifold.random_tangent_vector(x, RNG)))(manifold.random_point(RNG)))
    np.testing.assert_allclose(end[0] ** 2 - np.sum(end[1:] ** 2), 1.0)
    inside = np.array([0.3, -0.2])
    square = inside @ inside
    point = np.append(1.0 + square, 2.0 * inside) / (1.0 - square)
    np.testing.assert_allclose(manifold.dist(np.eye(3)[0], point), 2.0 * np.arctanh(square**0.5))


def test_the_simplex_has_the_distance_of_fisher_and_rao() -> None:
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.1, 0.6, 0.3])
    np.testing.assert_allclose(Simplex(3).dist(p, q), 2.0 * np.arccos(np.sum(np.sqrt(p * q))))
