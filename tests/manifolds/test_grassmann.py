"""Grassmann against closed forms, at every angle, and against pymanopt."""

import numpy as np
import pymanopt.manifolds as foreign
import pytest
from in_library import LIBRARIES, array_of

from rmopt import namespaces as ns
from rmopt.manifolds import Grassmann, projected_mean
from rmopt.namespaces import adjoint
from rmopt.retractions import GRASSMANN_RETRACTIONS, QR, Exponential, Polar

M, R = 40, 5


def pair(
    angles: np.ndarray, rng: np.random.Generator, field: str = "real"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return bases of two subspaces with these angles, and the logarithm from the first to the second."""
    r, drawn = len(angles), Grassmann(M, R, field=field).drawn
    Q, turn, other = (np.linalg.qr(drawn(rng, shape))[0] for shape in ((M, 2 * r), (r, r), (r, r)))
    A = Q[:, :r] @ turn
    B = (Q[:, :r] * np.cos(angles) + Q[:, r:] * np.sin(angles)) @ other
    return A, B, (Q[:, r:] * angles) @ turn


def all_angles(rng: np.random.Generator) -> np.ndarray:
    """Return angles from 1e-12 to π/2 − 1e-8, evenly spread over the orders of magnitude at both ends."""
    ends = np.concatenate([10.0 ** rng.uniform(-12, 0, R), np.pi / 2 - 10.0 ** rng.uniform(-8, 0, R)])
    return np.sort(rng.choice(ends, R, replace=False))


@pytest.mark.parametrize("field", ["real", "complex"])
def test_angles_and_distances_are_exact_at_every_angle(field: str) -> None:
    manifold, rng = Grassmann(M, R, field=field), np.random.default_rng(0)
    angles = np.array([all_angles(rng) for _ in range(300)])
    lengths = np.linalg.norm(angles, axis=1)
    many = tuple(map(np.array, zip(*(pair(one, rng, field)[:2] for one in angles), strict=True)))
    # Points of their own, and all of them at once, which other functions compute.
    for A, B, wanted, length in (*zip(*many, angles, lengths, strict=True), (*many, angles, lengths)):
        assert np.abs(manifold.principal_angles(A, B) - wanted).max() < 1e-14
        assert np.abs(manifold.dist(A, B) - length).max() < 1e-14
        velocity = manifold.log(A, B)
        assert np.abs(np.linalg.norm(velocity, axis=(-2, -1)) - length).max() < 1e-14
        assert np.abs(adjoint(A) @ velocity).max() < 1e-14
        # The logarithm of the second subspace, not of one nearby.
        assert np.max(manifold.dist(manifold.exp(A, velocity), B)) < 2e-14


@pytest.mark.parametrize("field", ["real", "complex"])
def test_geodesics_and_derivatives_are_those_of_pymanopt(field: str) -> None:
    ours, rng = Grassmann(9, 3, field=field), np.random.default_rng(9)
    theirs = {"real": foreign.Grassmann, "complex": foreign.ComplexGrassmann}[field](9, 3)
    A, B = (ours.random_point(rng) for _ in range(2))
    G, H, xi = ours.drawn(rng), ours.drawn(rng), ours.random_tangent_vector(A, rng)
    assert ours.dim == theirs.dim
    assert ours.dist(A, B) == pytest.approx(theirs.dist(A, B), rel=1e-14)
    for name, given in {
        "projection": (A, G), "euclidean_to_riemannian_hessian": (A, G, H, xi), "exp": (A, xi), "log": (A, B),
    }.items():  # fmt: skip
        found, wanted = (getattr(one, name)(*given) for one in (ours, theirs))
        np.testing.assert_allclose(found, wanted, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("library", LIBRARIES)
def test_means_of_projectors_are_the_leading_eigenspaces(library: str) -> None:
    manifold, weights, rng = (
        Grassmann(7, 2, field="complex"),
        np.array([0.5, 0.7, -0.2]),
        np.random.default_rng(10),
    )
    points = np.array([[manifold.random_point(rng) for _ in range(2)] for _ in weights])
    found = ns.to_numpy(
        manifold.projected_mean([ns.asarray(one, array_of(library)) for one in points], weights)
    )
    wanted = np.linalg.eigh(np.tensordot(weights, points @ adjoint(points), 1))[1][..., -2:]
    assert np.max(manifold.dist(found, wanted)) < 1e-14
    single = projected_mean(manifold, list(points[:, 0]), weights)
    assert manifold.dist(single, wanted[0]) < 1e-14


@pytest.mark.parametrize("angle", [1e-12, 1e-8, 1e-4, 0.3, np.pi / 4, 1.2, np.pi / 2 - 1e-3])
def test_logarithms_away_from_the_cut_locus_are_exact(angle: float) -> None:
    # Near π/2 the logarithm itself is ill-conditioned, by 1 / cos.
    manifold, rng = Grassmann(M, R), np.random.default_rng(1)
    for spread in (np.full(R, angle), angle * np.linspace(0.2, 1.0, R)):
        A, B, wanted = pair(spread, rng)
        assert np.abs(manifold.log(A, B) - wanted).max() < 3e-15 / np.cos(angle)


def test_the_distance_to_oneself_is_zero() -> None:
    manifold, rng = Grassmann(500, 7), np.random.default_rng(2)
    for _ in range(20):
        Q = manifold.random_point(rng)
        turned = Q @ np.linalg.qr(rng.standard_normal((7, 7)))[0]
        assert manifold.dist(Q, Q) < 1e-15 * np.sqrt(7)
        assert manifold.dist(Q, turned) < 2e-15 * np.sqrt(7)
        assert np.linalg.norm(manifold.log(Q, Q)) < 1e-15 * np.sqrt(7)


def test_the_diameter_is_the_distance_of_complements_as_far_as_there_is_room() -> None:
    E = np.eye(5)
    assert Grassmann(5, 2).diameter == pytest.approx(Grassmann(5, 2).dist(E[:, :2], E[:, 3:]))
    assert Grassmann(5, 3).diameter == pytest.approx(Grassmann(5, 3).dist(E[:, :3], E[:, 2:]))


def test_at_the_cut_locus_one_of_the_shortest_geodesics_is_chosen() -> None:
    manifold, rng = Grassmann(M, R), np.random.default_rng(3)
    for angles in ([np.pi / 2] * R, [0.0, 0.1, 1.0, np.pi / 2, np.pi / 2]):
        A, B, _ = pair(np.array(angles), rng)
        velocity = manifold.log(A, B)
        assert np.isfinite(velocity).all()
        np.testing.assert_allclose(np.linalg.norm(velocity), np.linalg.norm(angles), rtol=1e-14)
        assert manifold.dist(manifold.exp(A, velocity), B) < 1e-14
        middle = manifold.pair_mean(A, B)
        np.testing.assert_allclose(manifold.dist(A, middle), manifold.dist(middle, B), atol=1e-14)


def test_the_exponential_is_the_printed_formula() -> None:
    manifold, rng = Grassmann(11, 4), np.random.default_rng(5)
    x = manifold.random_point(rng)
    for length in (1e-9, 0.5, 3.0, 100.0):
        xi = length * manifold.random_tangent_vector(x, rng)
        W, sigma, Vt = np.linalg.svd(xi, full_matrices=False)
        printed = (x @ Vt.T * np.cos(sigma) + W * np.sin(sigma)) @ Vt
        np.testing.assert_allclose(manifold.exp(x, xi), printed, atol=1e-14 * max(1.0, length))


def test_transport_is_parallel() -> None:
    manifold, rng = Grassmann(15, 3), np.random.default_rng(6)
    x, y = (manifold.random_point(rng) for _ in range(2))
    a, b = (manifold.random_tangent_vector(x, rng) for _ in range(2))
    moved, other = (manifold.transport(x, y, vector) for vector in (a, b))
    np.testing.assert_allclose(
        manifold.inner_product(y, moved, other), manifold.inner_product(x, a, b), atol=1e-14
    )
    assert np.abs(y.T @ moved).max() < 1e-14
    # The velocity of a geodesic is carried to its velocity at the end, which points away from the start.
    velocity = manifold.log(x, y)
    np.testing.assert_allclose(manifold.transport(x, y, velocity), -manifold.log(y, x), atol=1e-13)
    # What is carried does not depend on the basis at the end but for that basis.
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    np.testing.assert_allclose(manifold.transport(x, y @ turn, a), moved @ turn, atol=1e-14)


def test_qr_and_polar_are_one_retraction_in_two_bases() -> None:
    manifold, rng = Grassmann(20, 4), np.random.default_rng(7)
    x = manifold.random_point(rng)
    xi = 2.0 * manifold.random_tangent_vector(x, rng)
    by_qr, by_polar = QR()(manifold, x, xi), Polar()(manifold, x, xi)
    assert manifold.dist(by_qr, by_polar) < 1e-14
    assert np.linalg.norm(by_qr - by_polar) > 1e-3
    assert manifold.dist(by_qr, Exponential()(manifold, x, xi)) > 1e-3


@pytest.mark.parametrize("retraction", GRASSMANN_RETRACTIONS.values(), ids=repr)
def test_bases_stay_orthonormal_over_many_steps(retraction: object) -> None:
    manifold, rng = Grassmann(30, 6).using(retraction), np.random.default_rng(8)  # type: ignore[arg-type]
    x = manifold.random_point(rng)
    for step in range(3000):
        x = manifold.retraction(x, 10.0 ** (-(step % 7)) * manifold.random_tangent_vector(x, rng))
    assert np.abs(x.T @ x - np.eye(6)).max() < 1e-13
