"""Nearest points to weighted sums (`projected_mean`)."""

from typing import Any

import numpy as np
import pytest

from rmopt.core import MissingCapabilityError
from rmopt.manifolds import (
    BoundedRank,
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Oblique,
    PositiveDefinite,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    projected_mean,
)

Array = np.ndarray


def dense_of(point: Any) -> Array:
    """Return a matrix of low rank as an array."""
    return point.as_ambient() @ np.eye(point.shape[1])


def ambient(manifold: Any, point: Any) -> Array:
    """Return a point in the space in which means are taken."""
    if isinstance(manifold, Grassmann):
        return point @ point.T
    return point if isinstance(point, np.ndarray) else dense_of(point)


MEANT = [
    FixedRankEmbedded(9, 7, 3), PSDFixedRank(8, 3), Grassmann(7, 2), Stiefel(6, 3), SpecialOrthogonal(3, 4),
    Sphere(5), Oblique(4, 3), PositiveDefinite(4), Euclidean(3, 2),
]  # fmt: skip


@pytest.mark.parametrize("manifold", MEANT, ids=str)
def test_the_mean_is_the_nearest_point_to_the_sum(manifold: Any) -> None:
    rng = np.random.default_rng(0)
    points, weights = [manifold.random_point(rng) for _ in range(3)], np.array([0.5, 0.3, 0.2])
    mean = projected_mean(manifold, points, weights)
    total = sum(weight * ambient(manifold, point) for weight, point in zip(weights, points, strict=True))
    near = np.linalg.norm(ambient(manifold, mean) - total)
    # No step from there is nearer, and neither are the points.
    for _ in range(20):
        step = manifold.random_tangent_vector(mean, rng)
        for length in (1e-3, 0.1):
            other = ambient(manifold, manifold.retraction(mean, step * length))
            assert np.linalg.norm(other - total) >= near - 1e-12
    assert all(np.linalg.norm(ambient(manifold, point) - total) >= near - 1e-12 for point in points)
    same = projected_mean(manifold, [points[0]] * 3)
    np.testing.assert_allclose(ambient(manifold, same), ambient(manifold, points[0]), atol=1e-12)
    back = projected_mean(manifold, points[:2], [1.0, 0.0])
    np.testing.assert_allclose(ambient(manifold, back), ambient(manifold, points[0]), atol=1e-12)


@pytest.mark.parametrize("manifold", [FixedRankEmbedded(6, 5, 2), PSDFixedRank(6, 2)], ids=str)
def test_means_of_matrices_whose_squares_overflow(manifold: Any) -> None:
    ends = [dense_of(manifold.random_point(seed)) for seed in (0, 1)]
    mean = projected_mean(manifold, [manifold.from_matrix(end) for end in ends])
    huge = projected_mean(manifold, [manifold.from_matrix(end * 1e200) for end in ends])
    np.testing.assert_allclose(dense_of(huge) / 1e200, dense_of(mean), atol=1e-13)


def test_means_of_products_and_what_has_none() -> None:
    manifold = Product([Sphere(3), Power(Stiefel(4, 2), 2)])
    rng = np.random.default_rng(1)
    one, other = (manifold.random_point(rng) for _ in range(2))
    mean = projected_mean(manifold, [one, other], [0.25, 0.75])
    assert np.array_equal(mean[0], projected_mean(Sphere(3), [one[0], other[0]], [0.25, 0.75]))
    assert np.array_equal(mean[1][1], projected_mean(Stiefel(4, 2), [one[1][1], other[1][1]], [0.25, 0.75]))

    for other in (
        PSDFactors(4, 2),
        Elliptope(4, 2),
        BoundedRank(4, 3, 2),
        Product([Sphere(3), PSDFactors(4, 2)]),
    ):
        with pytest.raises(MissingCapabilityError, match="no mean"):
            projected_mean(other, [other.random_point(rng)])
