"""Positive semidefinite matrices of rank k: the paper's algorithms, both geometries, the compiled engine."""

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from rmopt import InvalidInputError, Problem
from rmopt.core import Cost, Factored, MissingCapabilityError, PSDPoint
from rmopt.costs import BilinearSum, absolute, hinge, squared
from rmopt.costs.losses import Loss
from rmopt.engines import ReferenceEngine
from rmopt.engines.bilinear import SymmetricBilinearEngine
from rmopt.engines.choose import choose_engine
from rmopt.engines.gauged import SYMMETRIC
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import FixedRankEmbedded, PSDFactors, PSDFixedRank
from rmopt.retractions import MetricProjectionPSD, PolarFactors, SecondOrder, SecondOrderPSD
from rmopt.solvers import SGD

N, K = 40, 5
MANIFOLD = PSDFixedRank(N, K)


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def make_cost(rng: np.random.Generator, loss: Loss = absolute, n: int = N) -> BilinearSum:
    left, right = (
        sp.random_array((50, n), density=0.2, random_state=rng, data_sampler=rng.standard_normal).tocsr()
        for _ in range(2)
    )
    return BilinearSum(left, right, loss, np.where(rng.random(50) < 0.5, -1.0, 1.0))


def point_of_condition(rng: np.random.Generator, condition: float) -> PSDPoint:
    Q, T = (np.linalg.qr(rng.standard_normal((rows, K)))[0] for rows in (N, K))
    S = T @ np.diag(np.logspace(0, -np.log10(condition), K)) @ T.T
    return PSDPoint(Q, (S + S.T) / 2)


def slope_of(loss: Loss, z: float, y: float) -> float:
    return {"absolute": np.sign(z - y), "squared": z - y, "hinge": -y * (y * z < 1)}[loss.name]


def test_algorithm_5_and_the_retraction_are_theorem_6() -> None:
    rng = np.random.default_rng(0)
    Y, p, q = rng.standard_normal((N, K)), 0.3 * rng.standard_normal(N), 0.3 * rng.standard_normal(N)
    W = Y @ Y.T
    expected = oracles.theorem_6(W, np.outer(p, q), K)
    Z, Z_pinv = oracles.algorithm_5(Y, np.linalg.pinv(Y), p, q)
    np.testing.assert_allclose(Z_pinv, np.linalg.pinv(Z), atol=1e-12)
    assert relative(Z @ Z.T, expected) < 1e-13
    point = MANIFOLD.from_factor(Y)
    step = MANIFOLD.projection(point, Factored(p[:, None], q[:, None]))
    moved = SecondOrderPSD()(MANIFOLD, point, step)
    assert relative(MANIFOLD.to_dense(moved), expected) < 1e-13
    assert relative(expected, W) > 1e-2
    assert MANIFOLD.check_point(moved) is None


def test_the_printed_form_of_theorem_6_is_not_symmetric() -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    W = U @ np.diag([2.0, 1.0]) @ U.T
    W_pinv = U @ np.diag([0.5, 1.0]) @ U.T
    Z = rng.standard_normal((6, 6))
    half, P = (Z + Z.T) / 2, U @ U.T
    inside = P @ half @ P
    beside = half @ P + P @ half - 2 * inside
    V = W + inside / 2 + beside - inside @ W_pinv @ inside / 8 - beside @ W_pinv @ inside / 2
    printed = V @ W_pinv @ V
    assert relative(printed.T, printed) > 1e-2
    assert relative(V @ W_pinv @ V.T, oracles.theorem_6(W, Z, 2)) < 1e-14


def test_tangent_spaces_are_those_of_lemma_5() -> None:
    rng = np.random.default_rng(1)
    point, Z = MANIFOLD.random_point(rng), rng.standard_normal((N, N))
    P = point.Q @ point.Q.T
    half = (Z + Z.T) / 2
    expected = P @ half @ P + (np.eye(N) - P) @ half @ P + P @ half @ (np.eye(N) - P)
    found = MANIFOLD.projection(point, Z)
    assert relative(found.as_ambient(point) @ np.eye(N), expected) < 1e-14
    assert MANIFOLD.dim == N * K - K * (K - 1) // 2


@pytest.mark.parametrize(("loss", "eta"), [(hinge, 0.02), (hinge, 1.0), (squared, 1e-4), (squared, 0.02)])
def test_compiled_engine_follows_algorithm_5(loss: Loss, eta: float) -> None:
    rng = np.random.default_rng(2)
    cost, Y = make_cost(rng, loss), rng.standard_normal((N, K))
    engine = choose_engine(Problem(MANIFOLD, cost), engine="compiled")
    assert isinstance(engine, SymmetricBilinearEngine)
    schedule = rng.integers(cost.n_terms, size=(200, 1))
    state = engine.advance(engine.load(MANIFOLD.from_factor(Y)), schedule, np.full(200, eta))
    Y_pinv = np.linalg.pinv(Y)
    left, right = cost.left.toarray(), cost.right.toarray()
    for (term,) in schedule:
        p, q, y = left[term], right[term], cost.targets[term]
        slope = slope_of(loss, p @ Y @ Y.T @ q, y)
        if slope != 0:
            Y, Y_pinv = oracles.algorithm_5(Y, Y_pinv, -eta * slope * p, q)
    assert state.updates > 60
    assert relative(MANIFOLD.to_dense(engine.dump(state)), Y @ Y.T) < 1e-10


def orthonormal_end(cost: BilinearSum, start: PSDPoint, schedule: np.ndarray, eta: float) -> np.ndarray:
    """Return the end of the path of Theorem 6 on W = Q S Qᵀ, re-orthonormalised by Householder QR."""
    left, right = cost.left.toarray(), cost.right.toarray()
    Q, S = start.Q, start.S
    for (term,) in schedule:
        p, q, y = left[term], right[term], cost.targets[term]
        pQ, qQ = p @ Q, q @ Q
        scale = -eta * slope_of(cost.loss, pQ @ S @ qQ, y)
        if scale != 0:
            M = scale * (np.outer(pQ, qQ) + np.outer(qQ, pQ)) / 2
            Qp = scale * (np.outer(p - Q @ pQ, qQ) + np.outer(q - Q @ qQ, pQ)) / 2
            R = np.linalg.solve(S, M)
            Q, T = np.linalg.qr(Q @ (S + M / 2 - M @ R / 8) + Qp @ (np.eye(K) - R / 2))
            S = T @ np.linalg.solve(S, T.T)
            S = (S + S.T) / 2
    return Q @ S @ Q.T


@pytest.mark.parametrize(("seed", "eta"), [(0, 1e-7), (1, 1e-4), (2, 3e-2)])
def test_10000_steps_from_a_matrix_of_condition_1e6(seed: int, eta: float) -> None:
    rng = np.random.default_rng([1, seed])
    start, cost = point_of_condition(rng, 1e6), make_cost(rng)
    schedule = rng.integers(cost.n_terms, size=(10_000, 1))
    engine = SymmetricBilinearEngine(MANIFOLD, cost, SecondOrderPSD())
    state = engine.advance(engine.load(start), schedule, np.full(10_000, eta))
    expected = orthonormal_end(cost, start, schedule, eta)
    assert relative(MANIFOLD.to_dense(engine.dump(state)), expected) < 1e-8
    assert relative(expected, MANIFOLD.to_dense(start)) > 1e-4
    assert SYMMETRIC.drift(state.factors, K) < 1e-9


def test_long_runs_do_not_drift() -> None:
    rng = np.random.default_rng(4)
    cost = make_cost(rng)
    engine = SymmetricBilinearEngine(MANIFOLD, cost, SecondOrderPSD())
    schedule, etas = rng.integers(cost.n_terms, size=(200_000, 1)), np.full(200_000, 0.01)
    state = engine.advance(engine.load(MANIFOLD.random_point(rng)), schedule, etas)
    assert state.updates > 150_000
    assert SYMMETRIC.drift(state.factors, K) < 1e-10


@pytest.mark.parametrize("overlap", ["same rows", "same vector"])
def test_directions_that_overlap(overlap: str) -> None:
    rng = np.random.default_rng(5)
    left = sp.random_array((50, N), density=0.2, random_state=rng, data_sampler=rng.standard_normal).tocsr()
    right = left.copy()
    if overlap == "same rows":
        right.data = rng.standard_normal(right.data.size)
    cost = BilinearSum(left, right, absolute, rng.standard_normal(50))
    start, schedule, etas = MANIFOLD.random_point(rng), rng.integers(50, size=(200, 1)), np.full(200, 0.05)
    ends = []
    for kind in (SymmetricBilinearEngine, ReferenceEngine):
        engine = kind(MANIFOLD, cost, SecondOrderPSD())
        ends.append(MANIFOLD.to_dense(engine.dump(engine.advance(engine.load(start), schedule, etas))))
    assert relative(ends[0], ends[1]) < 1e-11


def test_a_loss_of_the_users_own_is_compiled() -> None:
    rng = np.random.default_rng(6)
    pinball = Loss(
        "pinball",
        value=lambda z, y: max(0.9 * (y - z), 0.1 * (z - y)),
        slope=lambda z, y: -0.9 if z < y else 0.1,
    )
    problem = Problem(MANIFOLD, make_cost(rng, pinball))
    ends = [
        MANIFOLD.to_dense(SGD(0.05, max_iter=300, engine=engine).run(problem, random_state=1).point)
        for engine in ("compiled", "reference")
    ]
    assert relative(ends[0], ends[1]) < 1e-11


class Distance(Cost):
    """½‖W − X‖² for a symmetric X; the minimum keeps the leading positive eigenvalues (Eckart and Young)."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def value(self, point: PSDPoint) -> float:
        return 0.5 * float(np.sum((point.Q @ point.S @ point.Q.T - self.X) ** 2))

    def gradient(self, point: PSDPoint) -> np.ndarray:
        return point.Q @ point.S @ point.Q.T - self.X

    def hessian(self, point: PSDPoint, direction: Factored) -> Factored:
        return direction


@pytest.mark.parametrize("retraction", [SecondOrderPSD(), MetricProjectionPSD()], ids=repr)
@pytest.mark.parametrize("optimizer", ["ConjugateGradient", "TrustRegions"])
def test_pymanopt_finds_the_closest_psd_matrix(
    optimizer: str, retraction: SecondOrderPSD | MetricProjectionPSD
) -> None:
    rng = np.random.default_rng(7)
    manifold = PSDFixedRank(12, 3)
    V = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    X = V @ np.diag([5.0, 4.0, 3.0, 1.0, 0.5, 0.1, 0.0, 0.0, -0.1, -0.2, -0.5, -6.0]) @ V.T
    X = (X + X.T) / 2
    problem = Problem(manifold.using(retraction), Distance(X))
    found = PymanoptSolver(optimizer, min_gradient_norm=1e-9).run(problem, random_state=0).point
    best = V[:, :3] @ np.diag([5.0, 4.0, 3.0]) @ V[:, :3].T
    assert relative(manifold.to_dense(found), best) < 1e-8
    assert relative(manifold.to_dense(manifold.from_matrix(X)), best) < 1e-13


# Points and errors


def test_points_from_matrices() -> None:
    rng = np.random.default_rng(13)
    X = sp.random_array((60, 60), density=0.1, random_state=rng).tocsr()
    manifold = PSDFixedRank(60, 4)
    from_sparse, from_dense = manifold.from_matrix(X), manifold.from_matrix(X.toarray())
    assert relative(manifold.to_dense(from_sparse), manifold.to_dense(from_dense)) < 1e-10
    Y = from_dense.factor()
    assert relative(Y @ Y.T, manifold.to_dense(from_dense)) < 1e-14
    np.testing.assert_allclose(manifold.to_dense(manifold.identity()), np.diag(np.arange(60) < 4.0))


def test_retractions_of_other_points_are_refused() -> None:
    for wrong, manifold in ((SecondOrder(), MANIFOLD), (PolarFactors(), FixedRankEmbedded(5, 4, 2))):
        with pytest.raises(InvalidInputError, match=r"is not a retraction of .*a short step of it"):
            manifold.using(wrong)


def test_factors_of_semidefinite_matrices_have_no_flat_distance() -> None:
    manifold = PSDFactors(5, 2)
    Y = manifold.random_point(np.random.default_rng(0))
    with pytest.raises(MissingCapabilityError, match="geodesic distance"):
        manifold.dist(Y, -Y)
