"""Manifolds of arrays: the same numbers for arrays of each library, and for many points at once."""

from inspect import signature
from typing import Any

import numpy as np
import pytest
from in_library import LIBRARIES, array_of, far_away, through
from tabled import each_row

from rmopt import namespaces as ns
from rmopt.checks import checks_of
from rmopt.manifolds import (
    DoublyStochastic,
    Elliptope,
    Euclidean,
    GeneralizedGrassmann,
    GeneralizedStiefel,
    Grassmann,
    Hyperbolic,
    Oblique,
    Positive,
    Power,
    Simplex,
    SkewSymmetric,
    SpecialOrthogonal,
    SpecialPositiveDefinite,
    Sphere,
    Stiefel,
    Symmetric,
    SymmetricDoublyStochastic,
    SymmetricPositiveDefinite,
    Unitary,
)

MASS = np.diag([1.0, 2.0, 3.0, 4.0, 5.0]) + 0.5
MANIFOLDS = [
    kind(*sizes, field=field)
    for kind, *sizes in ((Euclidean, 3, 2), (Sphere, 5), (Sphere, 3, 2), (Oblique, 4, 3), (Grassmann, 6, 2),
        (SymmetricPositiveDefinite, 4), (SymmetricPositiveDefinite, 4, 1, "log-euclidean"),
        (SymmetricPositiveDefinite, 2, 3, "bures-wasserstein"))
    for field in ("real", "complex")
] + [
    Elliptope(5, 3), Hyperbolic(3), Hyperbolic(2, 4), Simplex(4), Simplex(3, 2),
    Power(Power(Sphere(3, field="complex"), 2), 3),
    Stiefel(5, 3), Stiefel(5, 3, field="complex"), Stiefel(5, 2, k=2, metric="canonical"),
    Stiefel(4, 2, metric="canonical", field="complex"), SpecialOrthogonal(3), SpecialOrthogonal(4, k=2),
    Unitary(3), Unitary(2, k=2),
    GeneralizedStiefel(MASS, 2), GeneralizedGrassmann(MASS, 2), GeneralizedGrassmann(MASS, 2, field="complex"),
    Positive(4), Positive(3, 2), Symmetric(3), SkewSymmetric(3), Symmetric(3, field="complex"),
    SkewSymmetric(2, field="complex"), DoublyStochastic(4), SymmetricDoublyStochastic(4),
    SpecialPositiveDefinite(3), SpecialPositiveDefinite(2, k=3, field="complex"),
]  # fmt: skip


@pytest.fixture(params=LIBRARIES)
def like(request: pytest.FixtureRequest) -> Any:
    """An array of a library."""
    return array_of(request.param)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("library", LIBRARIES[1:])
@far_away()
def test_laws_hold_for_arrays_of_each_library(library: str, dtype: Any) -> None:
    failed = []
    # Types are mixed in single precision, if anywhere.
    for M in MANIFOLDS[:: 1 if dtype is np.float32 else 3]:
        failed += [f"{M}: {check}" for check in checks_of(through(M, library), 0, dtype) if not check]
    assert not failed, "\n".join(failed)


def what_it_does(M: Any, x: Any, y: Any, G: Any, H: Any) -> dict[str, Any]:
    """Return what the methods of a manifold make of points and ambient arrays."""
    v = M.projection(x, G)
    found = {
        "projection": v, "gradient": M.euclidean_to_riemannian_gradient(x, G), "zero": M.zero_vector(x),
        "transport": M.transport(x, y, v), "inner products": M.inner_products(x, v, H),
    }  # fmt: skip
    for name, retraction in M.retractions.items():
        found[name] = retraction(M, x, v, 0.1)
    if M.knows_hessians:
        found["hessian"] = M.euclidean_to_riemannian_hessian(x, G, H, v)
    for name, arguments in {"exp": (x, 0.1 * v), "log": (x, y), "dist": (x, y)}.items():
        if M.knows(name):
            found[name] = getattr(M, name)(*arguments)
    return found


@each_row("manifold", MANIFOLDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@far_away()
def test_many_points_of_any_library_are_as_single_ones_of_numpy(manifold: Any, dtype: Any, like: Any) -> None:
    M, rng, width = manifold, np.random.default_rng(0), dtype().itemsize
    kind = np.result_type(dtype, np.complex64) if M.field == "complex" else dtype
    x = np.array([M.random_point(rng) for _ in range(4)]).astype(kind)
    move = M.exp if M.knows("exp") else M.retraction
    y = np.array([move(one, 0.5 * M.random_tangent_vector(one, rng)) for one in x]).astype(kind)
    G, H = (M.drawn(rng, x.shape).astype(kind) for _ in range(2))
    singles = [what_it_does(M, *arrays) for arrays in zip(x, y, G, H, strict=True)]
    many = what_it_does(M, *(ns.asarray(array, like) for array in (x, y, G, H)))
    one = what_it_does(M, *(ns.asarray(array[0], like) for array in (x, y, G, H)))
    limit = 1e-12 if width == 8 else 1e-4
    for name, found in many.items():
        wanted = np.array([single[name] for single in singles])
        assert type(found) is type(ns.asarray(x, like)), name
        assert isinstance(one[name], type(found) | float | np.floating), name
        assert name in ("dist", "inner products") or ns.numbers_of(found) == kind, name
        np.testing.assert_allclose(ns.to_numpy(found), wanted, rtol=limit, atol=limit, err_msg=name)
        np.testing.assert_allclose(ns.to_numpy(one[name]), wanted[0], rtol=limit, atol=limit, err_msg=name)
    first = ns.asarray(x[0], like)
    assert M.check_point(first) is None
    assert "NaN" in str(M.check_point(first * np.nan))
    assert type(M.random_point(rng, like=first)) is type(first)
    vector = M.random_tangent_vector(first, rng)
    assert M.norm(first, vector) == pytest.approx(1.0, rel=1e-5)
    assert ns.numbers_of(vector) == kind


@each_row("manifold", MANIFOLDS)
def test_one_point_goes_with_many(manifold: Any) -> None:
    """Spheres and probabilities once gave wrong numbers for it, without a word."""
    rng = np.random.default_rng(0)
    x, *y = (manifold.random_point(rng) for _ in range(8))
    G, H = (manifold.drawn(rng, (7, *manifold.shape)) for _ in range(2))
    many = what_it_does(manifold, x, np.array(y), G, H)
    singles = [what_it_does(manifold, x, *arrays) for arrays in zip(y, G, H, strict=True)]
    for name, found in many.items():
        wanted = np.array([single[name] for single in singles])
        np.testing.assert_allclose(np.broadcast_to(found, wanted.shape), wanted, atol=1e-12, err_msg=name)


@each_row("manifold", MANIFOLDS)
def test_points_of_the_other_field_and_other_shapes_are_refused(manifold: Any) -> None:
    x = manifold.random_point(0)
    other = x + 0j if manifold.field == "real" else x.real
    cure = "take their real parts" if manifold.field == "real" else "add 0j"
    cure = "field=" if "field" in signature(type(manifold)).parameters else cure
    assert cure in str(manifold.check_point(other))
    if manifold.knows("exp"):
        with pytest.raises(ValueError, match="axes in front"):
            manifold.exp(x, x[..., :1])
