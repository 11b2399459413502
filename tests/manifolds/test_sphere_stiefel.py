"""Spheres, frames and rotations against matrix exponentials, and closed forms at every angle."""

from typing import Any

import numpy as np
import pymanopt
import pytest
import scipy.linalg
import scipy.spatial
from tabled import each_row

from rmopt import MissingCapabilityError, Problem
from rmopt.checks import check_hessian
from rmopt.core import Cost, in_precision
from rmopt.manifolds import (
    Euclidean,
    Grassmann,
    Hyperbolic,
    Oblique,
    PositiveDefinite,
    Simplex,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
    Unitary,
)
from rmopt.namespaces import adjoint
from rmopt.solvers import AdaptiveCubics, TrustRegions

Array = np.ndarray

MANIFOLDS = [
    Sphere(7), Sphere(4, 3), Sphere(2, 3, 2), Oblique(5, 6), Stiefel(8, 3), Stiefel(4, 3), Stiefel(6, 2, k=4),
    SpecialOrthogonal(2), SpecialOrthogonal(3, k=5), SpecialOrthogonal(4), SpecialOrthogonal(5, k=2),
    Stiefel(4, 2, field="complex"), Unitary(3), Unitary(2, k=3),
]  # fmt: skip
# With closed forms, by which vectors are carried in parallel.
GEODESICS = [manifold for manifold in MANIFOLDS if type(manifold) is not Stiefel]
FRAMES = [manifold for manifold in MANIFOLDS if isinstance(manifold, Stiefel)]


def drawn(manifold: Any, length: float = 0.7, seed: int = 0) -> tuple[Array, Array, np.random.Generator]:
    """Return a point, a tangent vector of some length, and a generator."""
    rng = np.random.default_rng(seed)
    x = manifold.random_point(rng)
    return x, length * manifold.random_tangent_vector(x, rng), rng


# Tangent spaces


@each_row("ours", FRAMES)
def test_geodesics_of_frames_are_matrix_exponentials(ours: Stiefel) -> None:
    for length in (1e-9, 1.0, 6.0):
        x, xi, _ = drawn(ours, length, seed=3)
        parts = (part.reshape(-1, ours.n, ours.p) for part in (x, xi, ours.exp(x, xi)))
        for one, along, end in zip(*parts, strict=True):
            # Edelman, Arias and Smith (1998), equation 2.42.
            turn = adjoint(one) @ along
            both = scipy.linalg.expm(np.block([[turn, -adjoint(along) @ along], [np.eye(ours.p), turn]]))
            wanted = np.hstack([one, along]) @ both[:, : ours.p] @ scipy.linalg.expm(-turn)
            np.testing.assert_allclose(end, wanted, atol=1e-12 * max(1.0, length))
            if isinstance(ours, SpecialOrthogonal | Unitary):
                np.testing.assert_allclose(end, one @ scipy.linalg.expm(turn), atol=1e-13)


# Angles: close points, far points, opposite points


@pytest.mark.parametrize("angle", [1e-12, 1e-8, 1e-3, 1.0, 3.0, np.pi - 1e-3, np.pi - 1e-8])
def test_distances_and_logarithms_are_exact_at_every_angle(angle: float) -> None:
    for manifold, scale in (
        (Sphere(9), 1.0), (Oblique(6, 4), 2.0), (SpecialOrthogonal(2), 2**0.5), (SpecialOrthogonal(3), 2**0.5),
        (SpecialOrthogonal(3, 4), 8**0.5), (Unitary(1), 1.0),
    ):  # fmt: skip
        x, xi, _ = drawn(manifold)
        if isinstance(manifold, Oblique):
            xi /= np.linalg.norm(xi, axis=0)
        elif isinstance(manifold, SpecialOrthogonal):
            xi *= 2**0.5 / np.linalg.norm(xi, axis=(-2, -1), keepdims=True)
        else:
            xi /= np.linalg.norm(xi)
        y = manifold.exp(x, angle * xi)
        assert abs(manifold.dist(x, y) - scale * angle) < 2e-14
        assert abs(manifold.dist(y, x) - scale * angle) < 2e-14
        found = manifold.log(x, y)
        assert abs(np.linalg.norm(found) - scale * angle) < 2e-14
        assert np.abs(found - angle * xi).max() < 1e-14 * angle / np.sin(angle) + 1e-15
        assert np.abs(manifold.exp(x, found) - y).max() < 1e-14
        middle = manifold.pair_mean(x, y)
        np.testing.assert_allclose(manifold.dist(x, middle), 0.5 * scale * angle, atol=1e-14)


def half_turns(n: int, count: int, rng: np.random.Generator) -> Array:
    """Return a rotation by π in some planes, and by other angles in one plane where there is room."""
    planes = np.linalg.qr(rng.standard_normal((n, n)))[0]
    middle = np.diag([-1.0] * (2 * count) + [1.0] * (n - 2 * count))
    if n - 2 * count >= 2:
        middle[-2:, -2:] = [[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]]
    return planes @ middle @ planes.T


def test_where_shortest_geodesics_are_many_one_of_them_is_chosen() -> None:
    rng = np.random.default_rng(1)
    pairs: list[tuple[Any, Array, Array, float]] = []
    for sphere in (Sphere(2), Sphere(5), Sphere(3, 4)):
        x, corner = sphere.random_point(rng), np.zeros(sphere.shape)
        corner.flat[0] = 1.0
        pairs += [(sphere, x, -x, np.pi), (sphere, corner, -corner, np.pi)]
    x = Oblique(4, 3).random_point(rng)
    pairs.append((Oblique(4, 3), x, x * [-1.0, 1.0, -1.0], 2**0.5 * np.pi))
    for n, count in ((2, 1), (3, 1), (4, 1), (4, 2), (6, 2), (7, 3)):
        manifold = SpecialOrthogonal(n)
        x = manifold.random_point(rng)
        length = (2 * count * np.pi**2 + 2.0 * (n - 2 * count >= 2)) ** 0.5
        pairs.append((manifold, x, x @ half_turns(n, count, rng), length))
    pairs.append((SpecialOrthogonal(4), np.eye(4), np.diag([-1.0, 1.0, 1.0, -1.0]), 2**0.5 * np.pi))
    x, basis = (Unitary(3).random_point(rng) for _ in range(2))
    y = x @ (basis * [-1.0, -1.0, np.exp(1j)]) @ adjoint(basis)
    pairs.append((Unitary(3), x, y, (2.0 * np.pi**2 + 1.0) ** 0.5))
    for manifold, x, y, length in pairs:
        found = manifold.log(x, y)
        np.testing.assert_allclose(np.linalg.norm(found), length, rtol=1e-12)
        np.testing.assert_allclose(manifold.dist(x, y), length, rtol=1e-7)
        np.testing.assert_allclose(manifold.to_tangent_space(x, found), found, atol=1e-12)
        assert np.abs(manifold.exp(x, found) - y).max() < 1e-12


@each_row("ours", GEODESICS)
def test_transport_is_parallel(ours: Any) -> None:
    x, velocity, rng = drawn(ours, 0.9, seed=2)
    y = ours.exp(x, velocity)
    a, b = (ours.random_tangent_vector(x, rng) for _ in range(2))
    moved, other = (ours.transport(x, y, vector) for vector in (a, b))
    np.testing.assert_allclose(ours.inner_product(y, moved, other), ours.inner_product(x, a, b), atol=1e-14)
    np.testing.assert_allclose(ours.transport(x, y, velocity), -ours.log(y, x), atol=1e-13)
    # Many short steps by projection come near to it: the definition of parallel.
    steps = 400
    carried, here = a, x
    for i in range(1, steps + 1):
        here = ours.exp(x, velocity * (i / steps))
        carried = ours.projection(here, carried)
    np.testing.assert_allclose(carried, moved, atol=2.0 / steps)


# Retractions


@pytest.mark.parametrize(
    "manifold",
    [Sphere(30), Oblique(6, 8), Stiefel(30, 6), SpecialOrthogonal(3, 4), SpecialOrthogonal(5)],
    ids=repr,
)
def test_points_stay_on_the_manifold_over_many_steps(manifold: Any) -> None:
    for retraction in manifold.retractions:
        there, rng = manifold.using(retraction), np.random.default_rng(8)
        x = there.random_point(rng)
        for step in range(1000):
            x = there.retraction(x, 10.0 ** (-(step % 7)) * there.random_tangent_vector(x, rng))
        if isinstance(manifold, Sphere):
            error = np.abs(there.products(x, x) - 1.0).max()
        else:
            error = np.abs(np.swapaxes(x, -1, -2) @ x - np.eye(manifold.p)).max()
        assert error < 1e-14, retraction
        assert there.check_point(x) is None


@each_row("ours", FRAMES)
def test_polar_is_the_nearest_frame(ours: Stiefel) -> None:
    x, xi, _ = drawn(ours, 2.0)
    moved = ours.using("polar").retraction(x, xi)
    parts = (part.reshape(-1, ours.n, ours.p) for part in (x + xi, moved))
    for one, end in zip(*parts, strict=True):
        np.testing.assert_allclose(end, scipy.linalg.polar(one)[0], atol=1e-14)


# Whole runs


class Alignment(Cost):
    """−⟨X, T⟩, whose minimum over frames is a polar factor, over spheres the direction of T."""

    def __init__(self, T: Array) -> None:
        self.T = T

    def value(self, point: Array) -> float:
        return -float(np.vdot(point, self.T).real)

    def gradient(self, point: Array) -> Array:
        return -self.T

    def hessian(self, point: Array, direction: Array) -> Array:
        return np.zeros_like(direction)


@each_row("ours", MANIFOLDS)
def test_the_nearest_point_is_found(ours: Any) -> None:
    T = ours.drawn(np.random.default_rng(5))
    problem = Problem(ours, Alignment(T))
    assert all(check_hessian(problem))
    result = TrustRegions(tol=1e-9).run(problem, random_state=0)
    assert result.converged
    if isinstance(ours, Sphere):
        wanted = T / (np.linalg.norm(T, axis=0) if isinstance(ours, Oblique) else np.linalg.norm(T))
    else:
        U, _, Vt = np.linalg.svd(T, full_matrices=False)
        if isinstance(ours, SpecialOrthogonal):
            U[..., -1] *= np.sign(np.linalg.det(U @ Vt))[..., None]
        wanted = U @ Vt
    np.testing.assert_allclose(result.point, wanted, atol=1e-8)


@each_row("ours", [
    Stiefel(5, 2, field="complex"), Stiefel(3, 3, k=2, field="complex"), Unitary(3), Unitary(2, k=2),
    Stiefel(5, 2, field="complex", metric="canonical"),
])  # fmt: skip
def test_complex_frames_are_as_real_ones_of_twice_the_size(ours: Any) -> None:
    kind = SpecialOrthogonal if isinstance(ours, Unitary) else Stiefel
    sizes = (2 * ours.n, ours.k) if isinstance(ours, Unitary) else (2 * ours.n, 2 * ours.p, ours.k)
    real = kind(*sizes) if ours.metric == "euclidean" else kind(*sizes, metric=ours.metric)
    x, v, rng = drawn(ours, 0.9)
    (_, w, _), (G, H) = drawn(ours, 2.0, seed=1), (ours.drawn(rng) for _ in range(2))
    w, y = ours.projection(x, w), ours.exp(x, v)

    def within(z: Array) -> Array:
        return np.concatenate(
            [np.concatenate([z.real, -z.imag], -1), np.concatenate([z.imag, z.real], -1)], -2
        )

    for name, arguments in {
        "exp": (x, v), "projection": (x, G), "transport": (x, y, w), "euclidean_to_riemannian_gradient": (x, G),
        "euclidean_to_riemannian_hessian": (x, G, H, v), "default_retraction": (x, w), "log": (x, y),
    }.items():  # fmt: skip
        if name != "log" or ours.knows("log"):
            found, wanted = (getattr(manifold, name) for manifold in (ours, real))
            first = [(ours,), (real,)] if name == "default_retraction" else [(), ()]
            np.testing.assert_allclose(
                within(found(*first[0], *arguments)), wanted(*first[1], *map(within, arguments)), atol=1e-12
            )
    assert 2.0 * ours.inner_product(x, v, w) == pytest.approx(real.inner_product(*map(within, (x, v, w))))


@pytest.mark.parametrize("k", [1, 3])
def test_unitary_matrices_have_the_geodesics_of_pymanopt(k: int) -> None:
    ours, theirs = Unitary(3, k), pymanopt.manifolds.UnitaryGroup(3, k=k)
    x, v, rng = drawn(ours, 1.5)
    y, back, (G, H) = ours.random_point(rng), adjoint(x), (ours.drawn(rng) for _ in range(2))
    assert ours.dim == theirs.dim
    np.testing.assert_allclose(ours.exp(x, v), theirs.exp(x, back @ v), atol=1e-13)
    np.testing.assert_allclose(ours.log(x, y), x @ theirs.log(x, y), atol=1e-12)
    np.testing.assert_allclose(ours.dist(x, y), theirs.dist(x, y), rtol=1e-12)
    hessians = (one.euclidean_to_riemannian_hessian for one in (ours, theirs))
    found, wanted = (one(x, G, H, along) for one, along in zip(hessians, (v, back @ v), strict=True))
    np.testing.assert_allclose(found, x @ wanted, atol=1e-13)


def test_logarithms_of_complex_frames_are_refused() -> None:
    for metric in ("euclidean", "canonical"):
        manifold = Stiefel(4, 2, metric=metric, field="complex")
        x, v, _ = drawn(manifold)
        assert [manifold.knows(method) for method in ("exp", "log", "dist")] == [True, False, False]
        for method in (manifold.log, manifold.dist):
            with pytest.raises(MissingCapabilityError, match="choose a solver that does not need it"):
                method(x, manifold.exp(x, v))


def test_many_rotations_of_space_are_projected_and_have_the_logarithms_of_scipy() -> None:
    rng = np.random.default_rng(0)
    manifold = SpecialOrthogonal(3, 2500)
    X, Z = manifold.random_point(rng), rng.standard_normal(manifold.shape)
    Omega = 0.5 * (X.mT @ Z - Z.mT @ X)
    np.testing.assert_allclose(manifold.projection(X, Z), X @ Omega, atol=1e-14)
    for angle in (0.0, 1e-200, 1e-9, 1.0, 1.6, 3.0, np.pi - 1e-9):
        axes = rng.standard_normal((2500, 3))
        turns = axes * (angle / np.linalg.norm(axes, axis=1))[:, None]
        Q = scipy.spatial.transform.Rotation.from_rotvec(turns).as_matrix()
        found = X.mT @ manifold.log(X, X @ Q)
        # The product X Q rounds.
        np.testing.assert_allclose(
            found[:, [2, 0, 1], [1, 2, 0]], turns, atol=1e-13 / max(np.pi - angle, 1e-6)
        )
        one = SpecialOrthogonal(3).log(np.eye(3), Q[0])
        np.testing.assert_allclose(one[[2, 0, 1], [1, 2, 0]], turns[0], rtol=1e-13, atol=1e-14)


def test_random_points_are_spread_evenly() -> None:
    rng = np.random.default_rng(6)
    for manifold in (Sphere(3), Oblique(3, 2), Stiefel(3, 2), SpecialOrthogonal(3), Unitary(2)):
        mean = np.mean([manifold.random_point(rng) for _ in range(4000)], axis=0)
        assert np.abs(mean).max() < 0.05


def test_memory_order_of_the_point_is_kept() -> None:
    rng = np.random.default_rng(7)
    for manifold in (Oblique(6, 5), Sphere(6, 5)):
        x = np.asfortranarray(manifold.random_point(rng))
        xi = manifold.projection(x, rng.standard_normal((6, 5)))
        assert xi.flags.fnc
        assert manifold.retraction(x, xi).flags.fnc
        np.testing.assert_allclose(manifold.inner_product(x, xi, xi), np.sum(xi**2), rtol=1e-14)
        mixed = np.ascontiguousarray(xi), xi
        np.testing.assert_allclose(manifold.inner_product(x, *mixed), np.sum(xi**2), rtol=1e-14)
        np.testing.assert_allclose(manifold.inner_product(x, *mixed[::-1]), np.sum(xi**2), rtol=1e-14)


def test_a_geodesic_of_ones_own_may_take_more_than_two_arrays() -> None:
    class Timed(Sphere):
        def exp(self, point: Any, vector: Any, t: float = 1.0) -> Any:  # type: ignore[override]
            return super().exp(point, t * vector)

    sphere = Timed(3)
    x, v = np.eye(3)[0], np.pi * np.eye(3)[1]
    np.testing.assert_allclose(sphere.exp(x, v, 0.5), np.eye(3)[1], atol=1e-15)
    np.testing.assert_allclose(sphere.exp(x, v, t=0.5), np.eye(3)[1], atol=1e-15)


def test_points_beside_the_manifold_are_told() -> None:
    rng = np.random.default_rng(0)
    assert "length" in str(Sphere(3).check_point(np.ones(3)))
    assert "shape" in str(Sphere(3).check_point(np.ones((3, 1))))
    columns = Oblique(3, 2).random_point(rng)
    assert "length" in str(Oblique(3, 2).check_point(columns * [1.0, 1.1]))
    assert "orthonormal" in str(Stiefel(3, 2).check_point(columns))
    turned = SpecialOrthogonal(3, 2).random_point(rng)
    turned[1, :, 0] *= -1.0
    assert "determinant" in str(SpecialOrthogonal(3, 2).check_point(turned))
    assert "NaN" in str(SpecialOrthogonal(3, 2).check_point(turned * np.nan))


@each_row("manifold", [
    Euclidean(3, 2), Sphere(3), Oblique(3, 2), Grassmann(5, 2), Stiefel(5, 2), Stiefel(5, 2, metric="canonical"),
    Stiefel(3, 3), Stiefel(3, 3, metric="canonical"), SpecialOrthogonal(3), SpecialOrthogonal(4, k=2), Unitary(3),
    Hyperbolic(3),
    Hyperbolic(2, 3), Simplex(4), Simplex(3, 2), PositiveDefinite(3), SymmetricPositiveDefinite(3, k=2),
    *(SymmetricPositiveDefinite(3, metric=metric) for metric in ("log-euclidean", "bures-wasserstein")),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_geodesics_are_as_long_as_their_velocity(manifold: Any, dtype: Any) -> None:
    x, rng = in_precision(manifold.random_point(0), dtype), np.random.default_rng(1)
    v = manifold.random_tangent_vector(x, rng) * 0.1
    y = manifold.exp(x, v)
    assert manifold.dist(point_a=x, point_b=y) == pytest.approx(
        0.1, rel=1e-9 if dtype is np.float64 else 1e-3
    )
    assert manifold.dist(y.copy(order="F"), x) == pytest.approx(manifold.dist(x, y), rel=1e-5)


@each_row("metric", ["euclidean", "canonical"])
def test_both_components_of_square_frames_have_geodesics(metric: str) -> None:
    manifold, rotations = Stiefel(3, 3, metric=metric), SpecialOrthogonal(3)
    mirror, rng = np.diag([1.0, 1.0, -1.0]), np.random.default_rng(0)
    x, y = (rotations.random_point(rng) for _ in range(2))
    apart = manifold.dist(x, y)
    assert manifold.dist(x @ mirror, y @ mirror) == pytest.approx(apart)
    np.testing.assert_allclose(
        manifold.exp(x @ mirror, manifold.log(x @ mirror, y @ mirror)), y @ mirror, atol=1e-12
    )
    # −P of a cyclic permutation P: its trace and skew part are those of a rotation.
    for reflection in (mirror, -np.eye(3), -np.eye(3)[[1, 2, 0]]):
        for one in (manifold, rotations):
            for method in (one.dist, one.log):
                with pytest.raises(MissingCapabilityError, match="determinants of different signs"):
                    method(x, x @ reflection)


def test_batches_of_rotations_stay_rotations_under_differences() -> None:
    C = np.random.default_rng(102).standard_normal((200, 3, 3))

    class Distance(Cost):
        def value(self, point: Array) -> float:
            return float(np.sum((point - C) ** 2))

        def gradient(self, point: Array) -> Array:
            return 2 * (point - C)

    for solver in (AdaptiveCubics(), TrustRegions()):
        result = solver.run(Problem(SpecialOrthogonal(3, 200), Distance()), random_state=2)
        assert result.converged
        np.testing.assert_allclose(
            result.point.mT @ result.point, np.broadcast_to(np.eye(3), C.shape), atol=1e-13
        )
