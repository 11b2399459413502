"""Medians and principal components of points on manifolds, against closed forms and other minimisers."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.decomposition import PCA
from tabled import each_row

from rmopt.manifolds import (
    Euclidean,
    Grassmann,
    Hyperbolic,
    Power,
    Sphere,
    SymmetricPositiveDefinite,
    frechet_mean,
    geometric_median,
    tangent_pca,
)


def cloud(manifold: Any, count: int = 7, size: float = 0.4) -> list[Any]:
    rng = np.random.default_rng(0)
    x = manifold.random_point(rng)
    return [
        manifold.exp(x, size * rng.random() * manifold.random_tangent_vector(x, rng)) for _ in range(count)
    ]


@each_row("manifold", [
    Euclidean(3), Sphere(4), Sphere(3, field="complex"), Grassmann(5, 2), SymmetricPositiveDefinite(3), Hyperbolic(2),
    Power(Sphere(3), 2),
])  # fmt: skip
def test_no_direction_leads_down_from_a_median(manifold: Any) -> None:
    points, rng = cloud(manifold), np.random.default_rng(1)
    weights = rng.uniform(0.5, 1.5, len(points))
    median = geometric_median(manifold, points, weights)
    assert manifold.check_point(median) is None

    def total(place: Any) -> float:
        return sum(w * manifold.dist(place, point) for w, point in zip(weights, points, strict=True))

    least = total(median)
    for _ in range(10):
        along = manifold.random_tangent_vector(median, rng)
        assert min(total(manifold.exp(median, h * along)) for h in (1e-3, 1e-2)) > least - 1e-12


def test_medians_of_the_plane() -> None:
    points = list(np.random.default_rng(0).standard_normal((9, 2)))
    found = geometric_median(Euclidean(2), points)
    total = minimize(
        lambda x: np.linalg.norm(x - points, axis=1).sum(), np.zeros(2), method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14},
    )  # fmt: skip
    np.testing.assert_allclose(found, total.x, atol=1e-7)
    # One with half of the weight is the median, also where the start is elsewhere.
    heavy = geometric_median(Euclidean(2), points, [8.0] + 8 * [1.0])
    assert np.array_equal(heavy, points[0])
    assert heavy is not points[0]
    # Of points in line the middle one; far ones do not move it.
    np.testing.assert_array_equal(
        geometric_median(Euclidean(1), [np.array([x]) for x in (0.0, 1.0, 1e6)]), [1.0]
    )
    with pytest.warns(RuntimeWarning, match="max_iter"):
        geometric_median(Euclidean(2), points, max_iter=1)


def test_principal_components_of_flat_points_are_those_of_scikit_learn() -> None:
    X = np.random.default_rng(0).standard_normal((12, 4)) * [3.0, 2.0, 1.0, 0.1]
    found, wanted = tangent_pca(Euclidean(4), list(X)), PCA().fit(X)
    np.testing.assert_allclose(found.variances, wanted.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(found.components @ wanted.components_.T), np.eye(4), atol=1e-10)
    np.testing.assert_allclose(np.abs(found.scores), np.abs(wanted.transform(X)), atol=1e-10)
    assert len(tangent_pca(Euclidean(4), list(X), 2).components) == 2
    elsewhere = tangent_pca(Euclidean(4), list(X), mean=np.ones(4))
    np.testing.assert_allclose(elsewhere.variances, wanted.explained_variance_, rtol=1e-10)
    with pytest.raises(ValueError, match="principal components"):
        tangent_pca(Euclidean(4), list(X), 5)
    with pytest.raises(ValueError, match="principal components"):
        tangent_pca(Euclidean(4), [X[0]])


@each_row(
    "manifold",
    [Sphere(4), Grassmann(5, 2, field="complex"), SymmetricPositiveDefinite(3), Power(Sphere(3), 2)],
)
def test_components_are_orthonormal_and_give_the_points_back(manifold: Any) -> None:
    points = cloud(manifold, 5)
    mean, components, variances, scores = tangent_pca(manifold, points)
    gram = [[manifold.inner_product(mean, a, b) for b in components] for a in components]
    np.testing.assert_allclose(gram, np.eye(len(components)), atol=1e-9)
    np.testing.assert_allclose(scores.var(axis=0, ddof=1), variances, rtol=1e-8)
    assert manifold.dist(mean, frechet_mean(manifold, points)) < 1e-7
    for point, row in zip(points, scores, strict=True):
        along = sum(
            (c * float(s) for c, s in zip(components[1:], row[1:], strict=True)),
            components[0] * float(row[0]),
        )
        assert manifold.dist(manifold.exp(mean, along), point) < 1e-6
