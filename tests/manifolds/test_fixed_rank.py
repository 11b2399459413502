"""The geometry of rank-k matrices: points, tangent vectors, retractions, memory."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from rmopt import InvalidInputError
from rmopt.core import Factored, LowRankPoint, PSDPoint
from rmopt.core.low_rank import LowRankTangent, PSDTangent
from rmopt.core.transport import Isometric
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.retractions import (
    FIXED_RANK_RETRACTIONS,
    MetricProjection,
    Orthographic,
    PowerIteration,
    SecondOrder,
    SecondOrderPSD,
)

N, M, K = 14, 11, 4
MANIFOLD = FixedRankEmbedded(N, M, K)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def dense_tangent(point: LowRankPoint, xi: LowRankTangent) -> np.ndarray:
    return point.U @ xi.M @ point.V.T + xi.Up @ point.V.T + point.U @ xi.Vp.T


def test_projection_is_that_of_lemma_2(rng: np.random.Generator) -> None:
    A, B, Z = rng.standard_normal((N, K)), rng.standard_normal((M, K)), rng.standard_normal((N, M))
    P_A, P_B = A @ np.linalg.pinv(A), B @ np.linalg.pinv(B)
    expected = P_A @ Z @ P_B + P_A @ Z @ (np.eye(M) - P_B) + (np.eye(N) - P_A) @ Z @ P_B
    point = MANIFOLD.from_factors(A, B)
    factored = Factored(Z, np.eye(M))
    for ambient in (Z, sp.csr_array(Z), factored, factored.T.T, Factored(sp.csr_array(Z), sp.eye_array(M))):
        xi = MANIFOLD.projection(point, ambient)
        np.testing.assert_allclose(dense_tangent(point, xi), expected, atol=1e-13)
    np.testing.assert_allclose(MANIFOLD.embedding(point, xi) @ np.eye(M), expected, atol=1e-13)


def test_metric_projection_is_the_truncated_svd(rng: np.random.Generator) -> None:
    point = MANIFOLD.random_point(rng)
    xi = MANIFOLD.random_tangent_vector(point, rng)
    U, sigma, Vt = np.linalg.svd(MANIFOLD.to_dense(point) + 1.7 * dense_tangent(point, xi))
    expected = (U[:, :K] * sigma[:K]) @ Vt[:K]
    np.testing.assert_allclose(
        MANIFOLD.to_dense(MetricProjection()(MANIFOLD, point, xi, 1.7)), expected, atol=1e-13
    )


def test_orthographic_differs_by_a_normal_vector_and_has_rank_k(rng: np.random.Generator) -> None:
    point = MANIFOLD.random_point(rng)
    xi = MANIFOLD.random_tangent_vector(point, rng)
    moved = MANIFOLD.to_dense(Orthographic()(MANIFOLD, point, xi, 0.4))
    normal = moved - MANIFOLD.to_dense(point) - 0.4 * dense_tangent(point, xi)
    assert np.linalg.matrix_rank(moved) == K
    assert np.linalg.norm(normal) > 1e-3
    assert MANIFOLD.norm(point, MANIFOLD.projection(point, normal)) < 1e-14


def test_a_step_of_subspace_iteration_goes_through_zero(rng: np.random.Generator) -> None:
    point = MANIFOLD.random_point(rng)
    xi = MANIFOLD.random_tangent_vector(point, rng)
    moved = MANIFOLD.to_dense(point) + 1.7 * dense_tangent(point, xi)
    Q, _ = np.linalg.qr(moved @ point.V)
    end = PowerIteration()(MANIFOLD, point, xi, 1.7)
    np.testing.assert_allclose(MANIFOLD.to_dense(end), Q @ (Q.T @ moved), atol=1e-13)
    back = PowerIteration()(MANIFOLD, point, LowRankTangent(-point.S, 0.0 * xi.Up, 0.0 * xi.Vp))
    assert np.abs(MANIFOLD.to_dense(back)).max() < 1e-15
    away = PowerIteration()(MANIFOLD, back, MANIFOLD.projection(back, moved))
    assert MANIFOLD.check_point(away) is None


def test_a_step_off_the_matrices_of_rank_k_is_refused() -> None:
    U, V, zeros = np.eye(N, K), np.eye(M, K), np.zeros((K, K))
    point, singular = LowRankPoint(U, np.eye(K), V), LowRankPoint(U, zeros, V)
    to_zero = LowRankTangent(-np.eye(K), np.zeros((N, K)), np.zeros((M, K)))
    core = r"met a singular core: the step leaves the matrices of rank 4\. Take a smaller step"
    for retraction, start in (
        (MetricProjection(), point), (Orthographic(), point), (SecondOrder(), singular)
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=core):
            retraction(MANIFOLD, start, to_zero)
    flat, tangent = PSDPoint(U, zeros), PSDTangent(np.eye(K), np.zeros((N, K)))
    with pytest.raises(
        InvalidInputError, match=r"met a singular core: the step leaves the matrices of rank 4"
    ):
        SecondOrderPSD()(PSDFixedRank(N, K), flat, tangent)


@pytest.mark.parametrize("retraction", FIXED_RANK_RETRACTIONS.values(), ids=repr)
def test_factors_stay_orthonormal_for_ill_conditioned_tangents(
    retraction: object, rng: np.random.Generator
) -> None:
    point = MANIFOLD.random_point(rng)
    xi = MANIFOLD.random_tangent_vector(point, rng)
    spread = np.diag(np.logspace(0, -13, K))
    xi = MANIFOLD.to_tangent_space(point, LowRankTangent(xi.M, xi.Up @ spread, xi.Vp @ spread))
    for t in (1e-8, 1.0, 1e3):
        moved = retraction(MANIFOLD, point, xi, t)  # type: ignore[operator]
        for factor in (moved.U, moved.V):
            assert np.abs(factor.T @ factor - np.eye(K)).max() < 5e-15


def test_hessian_is_the_derivative_of_the_gradient_field(rng: np.random.Generator) -> None:
    # f(W) = ½⟨W, H∘W⟩ + ⟨C, W⟩ with a core that is not diagonal.
    H, C = rng.uniform(0.5, 2, (N, M)), rng.standard_normal((N, M))
    point = MANIFOLD.from_factors(rng.standard_normal((N, K)), rng.standard_normal((M, K)))
    xi = MANIFOLD.random_tangent_vector(point, rng)

    def gradient(at: LowRankPoint) -> np.ndarray:
        return H * MANIFOLD.to_dense(at) + C

    def field(t: float) -> np.ndarray:
        at = MANIFOLD.retraction(point, xi * t)
        return dense_tangent(at, MANIFOLD.projection(at, gradient(at)))

    found = MANIFOLD.euclidean_to_riemannian_hessian(point, gradient(point), H * dense_tangent(point, xi), xi)
    h = 1e-5
    expected = MANIFOLD.projection(point, (field(h) - field(-h)) / (2 * h))
    assert MANIFOLD.norm(point, found - expected) < 1e-8
    assert MANIFOLD.norm(point, found - MANIFOLD.projection(point, H * dense_tangent(point, xi))) > 1e-2


def test_constructors(rng: np.random.Generator) -> None:
    A, B = rng.standard_normal((N, K)), rng.standard_normal((M, K))
    W = A @ B.T
    for point in (
        MANIFOLD.from_factors(A, B),
        MANIFOLD.from_matrix(W),
        FixedRankEmbedded(N, M, K).from_matrix(sp.csr_array(W)),
        MANIFOLD.from_gradients([Factored(-A[:, :1], B[:, :1]), Factored(-A[:, 1:], B[:, 1:])]),
    ):
        np.testing.assert_allclose(MANIFOLD.to_dense(point), W, atol=1e-12)
        assert MANIFOLD.check_point(point) is None
    np.testing.assert_array_equal(
        MANIFOLD.to_dense(MANIFOLD.identity()), np.diag([1.0] * K + [0.0] * 10)[:, :M]
    )
    assert MANIFOLD.using(transport="isometric").with_rank(2).default_transport == Isometric()
    big = sp.random_array((300, 200), density=0.1, random_state=rng).tocsr()
    few = FixedRankEmbedded(300, 200, 3).from_matrix(big)
    np.testing.assert_allclose(few.singular_values(), np.linalg.svd(big.toarray())[1][:3], rtol=1e-10)


def test_zero_start_is_the_truncated_sum_of_sparse_subgradients(rng: np.random.Generator) -> None:
    gradients = [
        Factored(sp.random_array((N, 1), density=0.5, random_state=rng).tocsc(), rng.standard_normal((M, 1)))
        for _ in range(2 * K)
    ]
    total = -sum(g.left.toarray() @ g.right.T for g in gradients)
    U, sigma, Vt = np.linalg.svd(total)
    found = MANIFOLD.to_dense(MANIFOLD.from_gradients(gradients))
    np.testing.assert_allclose(found, (U[:, :K] * sigma[:K]) @ Vt[:K], atol=1e-12)


def test_check_point_gives_the_reason() -> None:
    point = MANIFOLD.random_point(np.random.default_rng(0))
    U, S, V = point.U, point.S, point.V
    reasons = {
        "is a LowRankPoint, not ndarray": np.eye(3),
        "have shapes": LowRankPoint(V, S, U),
        "NaN": LowRankPoint(U * np.nan, S, V),
        "U is not orthonormal": LowRankPoint(2 * U, S, V),
        "to 0.0e+00; BoundedRank takes lower ranks": LowRankPoint(U, np.diag([1, 1, 1, 0.0]), V),
    }
    for reason, wrong in reasons.items():
        assert reason in str(MANIFOLD.check_point(wrong))


def test_nothing_of_size_n_times_m_is_formed() -> None:
    n, k = 10**5, 5
    manifold = FixedRankEmbedded(n, n, k)
    rng = np.random.default_rng(0)
    factor = n * k * 8
    tracemalloc.start()
    try:
        point = manifold.random_point(rng)
        gradient = sp.random_array((n, n), density=1e-7, random_state=rng).tocsr()
        xi = manifold.projection(point, gradient)
        for retraction in FIXED_RANK_RETRACTIONS.values():
            moved = retraction(manifold, point, xi, 0.1)
        manifold.transport(point, moved, xi)
        manifold.euclidean_to_riemannian_hessian(point, gradient, gradient, xi)
        assert manifold.inner_product(point, xi, xi) >= 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # n × m would be 20,000 factors.
    assert peak < 30 * factor
