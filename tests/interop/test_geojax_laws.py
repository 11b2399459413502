"""What GeoJAX's own tests of its geometries assert, held by ours under GeoJAX's names.

The statements are those of docs/development/geometry_protocol.md and of tests/test_geometry_interface.py,
test_numerical_stability.py and the tests of single geometries in GeoJAX at 46210cd (version 0.1.1), where both have
the manifold. `geojax_adapters` runs the originals, which need JAX.
"""

from __future__ import annotations

import numpy as np
import pytest
from geojax_adapters import OURS, InBall, InGeoJAXWords
from tabled import each_row

Array = np.ndarray

SHAPES = {
    "Sphere": (4,), "Oblique": ((4, 2),), "ProbabilitySimplex": (4,), "Stiefel": ((4, 2),),
    "StiefelEuclidean": ((4, 2),), "Grassmann": ((5, 2),), "SpecialOrthogonal": (3,), "SPDAffineInvariant": ((3, 3),),
    "SPDLogEuclidean": ((3, 3),), "SPDBuresWasserstein": ((3, 3),), "FixedRank": ((4, 3), 2), "RankKPSD": ((4, 4), 2),
    "Hyperboloid": (3,), "PoincareBall": (3,),
}  # fmt: skip
GEOMETRIES = [OURS[name](*size) for name, size in SHAPES.items()]


class At:
    """Points and a short tangent vector of a geometry."""

    def __init__(self, M: InGeoJAXWords, scale: float = 0.05) -> None:
        self.x, self.y = M.random_point(0), M.random_point(1)
        # Without an exact logarithm the inverse is right near the point alone.
        scale = scale if M.kinds["exp"] == M.kinds["log"] == "exact" else 1e-3
        self.u = M.random_tangent(2, self.x, scale=scale)
        self.end = M.exp(self.x, self.u)


def test_every_geometry_of_both_is_there() -> None:
    assert SHAPES.keys() == OURS.keys()


@each_row("M", GEOMETRIES)
def test_points_and_tangent_vectors_belong_and_zero_moves_nothing(M: InGeoJAXWords) -> None:
    at = At(M)
    assert M.belongs(M.project(at.x))
    assert M.belongs(at.end)
    assert M.is_tangent(at.x, M.tangent_project(at.x, at.u))
    for move in (M.exp, M.retr):
        np.testing.assert_allclose(move(at.x, 0.0 * at.u), at.x, atol=1e-12)
    with pytest.raises(ValueError, match="trailing event shape"):
        M.project(np.zeros((*M.shape[:-1], M.shape[-1] + 1)))


@each_row("M", GEOMETRIES)
def test_logarithms_undo_exponentials_and_distances_are_their_lengths(M: InGeoJAXWords) -> None:
    at = At(M)
    back = M.log(at.x, at.end)
    assert M.is_tangent(at.x, back)
    limit = 1e-7 if M.known["log"] else 0.1 * M.norm(at.x, at.u)
    assert M.norm(at.x, back - at.u) <= limit
    there = M.dist(at.x, at.y) if M.kinds["dist"] != "proxy" else M.dist(at.x, at.end)
    assert 0.0 < there < np.inf
    if M.kinds["dist"] == "exact":
        np.testing.assert_allclose(there, M.dist(at.y, at.x), rtol=1e-10)
        np.testing.assert_allclose(M.dist(at.x, at.end), M.norm(at.x, at.u), rtol=1e-6)


@each_row("M", GEOMETRIES)
def test_transported_vectors_are_tangent_and_keep_their_length_where_it_says_so(M: InGeoJAXWords) -> None:
    at = At(M)
    v = M.random_tangent(3, at.x, scale=0.05)
    moved = M.transport(at.x, at.end, v)
    assert M.is_tangent(at.end, moved)
    if M.transport_is_isometric:
        np.testing.assert_allclose(M.norm(at.end, moved), M.norm(at.x, v), rtol=1e-9)


@each_row("M", GEOMETRIES)
def test_nothing_happens_at_one_point(M: InGeoJAXWords) -> None:
    at = At(M)
    np.testing.assert_allclose(M.log(at.x, at.x), 0.0 * at.u, atol=1e-7)
    np.testing.assert_allclose(M.squared_dist(at.x, at.x), 0.0, atol=1e-13)
    np.testing.assert_allclose(M.transport(at.x, at.x, at.u), at.u, atol=1e-9)


# In the ball, gradients would be those of functions on the hyperboloid.
@each_row("M", [M for M in GEOMETRIES if not isinstance(M, InBall)])
def test_gradients_are_dual_to_the_metric(M: InGeoJAXWords) -> None:
    at, G = At(M), np.random.default_rng(4).standard_normal(M.shape)
    gradient = M.egrad_to_rgrad(at.x, G)
    assert M.is_tangent(at.x, gradient)
    np.testing.assert_allclose(M.inner(at.x, gradient, at.u), np.sum(G * at.u), rtol=1e-8, atol=1e-12)


@each_row("M", GEOMETRIES)
def test_random_tangent_vectors_have_the_length_that_is_asked_for_in_nested_batches(M: InGeoJAXWords) -> None:
    points = M.random_point(5, sample_shape=(2, 2))
    np.testing.assert_allclose(M.norm(points, M.random_tangent(6, points, scale=0.3)), np.full((2, 2), 0.3))
    # The base is broadcast.
    at = At(M)
    tangents = np.stack([at.u, 0.5 * at.u])
    ends = M.exp(at.x, tangents)
    np.testing.assert_allclose(ends[0], at.end)
    assert M.belongs(ends).all()
    assert M.dist(at.x, ends).shape == (2,)


NEAREST = ("Oblique", "Sphere", "StiefelEuclidean", "Stiefel", "SpecialOrthogonal", "FixedRank", "RankKPSD")


@each_row("name", NEAREST)
def test_arrays_of_noise_have_a_nearest_point(name: str) -> None:
    M = OURS[name](*SHAPES[name])
    noise = 10.0 * np.random.default_rng(7).standard_normal(M.shape)
    found = M.project(noise)
    assert M.belongs(found)
    for seed in range(20):
        other = M.random_point(seed)
        scaled = np.linalg.norm(found) / np.linalg.norm(other) * other if "Rank" in name else other
        assert np.linalg.norm(noise - found) <= np.linalg.norm(noise - scaled)


# Single geometries


def test_frames_have_two_metrics_and_the_geodesics_of_them() -> None:
    canonical, flat = (OURS[name]((4, 2)) for name in ("Stiefel", "StiefelEuclidean"))
    X = canonical.random_point(0)
    turned = X @ np.array([[0.0, -0.7], [0.7, 0.0]])
    np.testing.assert_allclose(canonical.inner(X, turned, turned), 0.5 * np.sum(turned**2))
    np.testing.assert_allclose(flat.inner(X, turned, turned), np.sum(turned**2))
    U = flat.random_tangent(1, X, scale=0.2)
    h = 1e-3
    ahead, behind = (flat.exp(X, sign * U) for sign in (h, -h))
    np.testing.assert_allclose((ahead - 2.0 * X + behind) / h**2, -X @ (U.T @ U), atol=1e-7)


def test_subspaces_at_a_right_angle_have_a_distance() -> None:
    M, e = OURS["Grassmann"]((4, 2)), np.eye(4)
    np.testing.assert_allclose(M.dist(e[:, :2], e[:, [2, 1]]), 0.5 * np.pi)
    near = M.exp(e[:, :2], M.random_tangent(0, e[:, :2], scale=1e-7))
    np.testing.assert_allclose(M.dist(e[:, :2], near), 1e-7, rtol=1e-7)


def test_bures_wasserstein_has_its_closed_forms_on_diagonal_matrices() -> None:
    M, U = OURS["SPDBuresWasserstein"]((2, 2)), np.array([[0.4, 0.2], [0.2, -0.3]])
    np.testing.assert_allclose(M.squared_dist(np.diag([1.0, 4.0]), np.diag([4.0, 9.0])), 1.0 + 1.0)
    np.testing.assert_allclose(M.inner(np.eye(2), U, U), 0.25 * np.sum(U * U))


def test_matrices_of_one_rank_have_as_many_singular_values() -> None:
    for name, size in (("FixedRank", (5, 4)), ("RankKPSD", (4, 4))):
        values = np.linalg.svd(OURS[name](size, 2).random_point(0), compute_uv=False)
        assert values[1] > 0.1
        assert values[2] < 1e-14


def test_angles_of_plane_rotations_are_distances() -> None:
    def turned(angle: float) -> Array:
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    M, h = OURS["SpecialOrthogonal"](2), 1e-5
    square = [M.dist(turned(angle), turned(0.8)) ** 2 for angle in (0.4 - h, 0.4 + h)]
    # Both angles count, the turn and its negative.
    np.testing.assert_allclose((square[1] - square[0]) / (2.0 * h), 2.0 * 2.0 * (0.4 - 0.8), rtol=1e-6)


def test_far_points_of_spheres_keep_their_digits() -> None:
    x, w, angle = np.eye(3)[0], np.eye(3)[2], np.pi - 0.001
    y = np.array([np.cos(angle), np.sin(angle), 0.0])
    np.testing.assert_allclose(OURS["Sphere"](3).dist(x, -x), np.pi)
    for M, column in ((OURS["Sphere"](3), ...), (OURS["Oblique"]((3, 1)), (..., None))):
        tangent = M.log(x[column], y[column])
        np.testing.assert_allclose(M.norm(x[column], tangent), angle, rtol=1e-10)
        np.testing.assert_allclose(M.exp(x[column], tangent), y[column], atol=1e-10)
        np.testing.assert_allclose(M.norm(y[column], M.transport(x[column], y[column], w[column])), 1.0)


def test_hyperbolic_space_has_the_closed_forms_of_both_models() -> None:
    sheet, ball = OURS["Hyperboloid"](3), OURS["PoincareBall"](2)
    at = At(sheet)
    np.testing.assert_allclose(sheet.lorentz_inner(at.end, at.end), -1.0)
    origin, point, tangent = np.zeros(2), np.array([0.3, -0.2]), np.array([0.1, 0.25])
    np.testing.assert_allclose(ball.dist(origin, point), 2.0 * np.arctanh(np.linalg.norm(point)))
    np.testing.assert_allclose(ball.exp(origin, ball.log(origin, point)), point)
    moved = ball.transport(origin, point, tangent)
    np.testing.assert_allclose(ball.norm(point, moved), 2.0 * np.linalg.norm(tangent))


def test_the_simplex_has_the_distance_of_fisher_and_rao() -> None:
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.1, 0.6, 0.3])
    np.testing.assert_allclose(
        OURS["ProbabilitySimplex"](3).dist(p, q), 2.0 * np.arccos(np.sum(np.sqrt(p * q)))
    )
