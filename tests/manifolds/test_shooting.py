"""Logarithms of frames with the Euclidean metric, beside spheres, rotations, and curves that are no geodesics."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from tabled import each_row

from rmopt.core import MissingCapabilityError, in_precision
from rmopt.manifolds import SpecialOrthogonal, Sphere, Stiefel, frechet_mean

FRAMES = [Stiefel(9, 3), Stiefel(5, 4), Stiefel(4, 4), Stiefel(20, 5), Stiefel(6, 1), Stiefel(5, 2, 3)]


def drawn(manifold: Stiefel, length: float, seed: int, dtype: Any = float) -> tuple[Any, Any]:
    """Return a frame, and a tangent vector that has a length in each frame of a batch."""
    rng = np.random.default_rng(seed)
    x = in_precision(manifold.random_point(rng), dtype)
    xi = manifold.random_tangent_vector(x, rng)
    return x, xi * (length / np.linalg.norm(xi, axis=(-2, -1), keepdims=True)).astype(dtype)


@each_row("manifold", FRAMES)
def test_logarithms_lead_back_nearly_up_to_the_injectivity_radius(manifold: Stiefel) -> None:
    for seed in range(2):
        for length in (0.0, 1e-8, 0.1, 1.0, 0.95 * np.pi):
            x, xi = drawn(manifold, length, seed)
            y = manifold.exp(x, xi)
            np.testing.assert_allclose(manifold.log(x, y), xi, atol=1e-11)
            np.testing.assert_allclose(manifold.dist(x, y), length * manifold.k**0.5, atol=1e-12)
            np.testing.assert_allclose(manifold.pair_mean(x, y), manifold.exp(x, 0.5 * xi), atol=1e-11)
        for length in (0.1, 2.0):
            x, xi = drawn(manifold, length, seed, np.float32)
            found = manifold.log(x, manifold.exp(x, xi))
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, xi, atol=3e-4)


def test_one_column_is_a_sphere_and_n_columns_are_rotations() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, y = (Sphere(7).random_point(rng) for _ in range(2))
        found = Stiefel(7, 1).log(x[:, None], y[:, None])
        np.testing.assert_allclose(found[:, 0], Sphere(7).log(x, y), atol=1e-12)
        Q = SpecialOrthogonal(5).random_point(rng)
        turn = 0.4 * SpecialOrthogonal(5).random_tangent_vector(np.eye(5), rng)
        np.testing.assert_allclose(Stiefel(5, 5).log(Q, Q @ scipy.linalg.expm(turn)), Q @ turn, atol=1e-12)
        # At any distance, of opposite points too.
        for manifold, end in (
            (Stiefel(5, 5), SpecialOrthogonal(5).random_point(rng)),
            (Stiefel(7, 1), -x[:, None]),
        ):
            start = -end if manifold.p == 1 else Q
            velocity = manifold.log(start, end)
            np.testing.assert_allclose(manifold.exp(start, velocity), end, atol=1e-13)
            np.testing.assert_allclose(manifold.projection(start, velocity), velocity, atol=1e-14)
            assert np.linalg.norm(velocity) < 3.142 * manifold.p


def test_no_other_curve_is_shorter() -> None:
    # The geodesics of the canonical metric join the same frames, and their lengths are measured in this one.
    euclidean, canonical = Stiefel(8, 3), Stiefel(8, 3, metric="canonical")
    for seed in range(5):
        x, xi = drawn(euclidean, 2.5, seed)
        y = euclidean.exp(x, xi)
        velocity = canonical.log(x, y)
        curve = [canonical.exp(x, t * velocity) for t in np.linspace(0.0, 1.0, 400)]
        length = sum(np.linalg.norm(b - a) for a, b in pairwise(curve))
        assert 0.8 * length < euclidean.dist(x, y) < 0.9999 * length


def test_the_mean_of_frames() -> None:
    manifold, rng = Stiefel(7, 3), np.random.default_rng(0)
    x = manifold.random_point(rng)
    points = [manifold.exp(x, 0.5 * manifold.random_tangent_vector(x, rng)) for _ in range(6)]
    mean = frechet_mean(manifold, points)
    assert np.linalg.norm(sum(manifold.log(mean, point) for point in points)) < 1e-11


def test_what_is_too_far_apart_is_said() -> None:
    x = np.eye(4)[:, :2]
    with pytest.raises(MissingCapabilityError, match="about π or more apart"):
        Stiefel(4, 2).log(x, -x)
    with pytest.raises(MissingCapabilityError, match="different signs"):
        Stiefel(3, 3).log(np.eye(3), np.diag([1.0, 1.0, -1.0]))
