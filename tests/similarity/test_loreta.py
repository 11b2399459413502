"""LORETA-1: the paper's algorithms agree with each other, with the retraction and with the compiled engine."""

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from rmopt.core import Factored, LowRankPoint
from rmopt.costs import BilinearSum, absolute, hinge, squared
from rmopt.costs.losses import Loss
from rmopt.engines import BilinearEngine
from rmopt.engines.gauged import GENERAL
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import SecondOrder

N, M, K = 40, 31, 5


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def sparse_problem(
    rng: np.random.Generator, loss: Loss, n: int = N, m: int = M, rows: int = 50
) -> BilinearSum:
    left, right = (
        sp.random_array(
            (rows, width), density=0.2, random_state=rng, data_sampler=rng.standard_normal
        ).tocsr()
        for width in (n, m)
    )
    return BilinearSum(left, right, loss, np.where(rng.random(rows) < 0.5, -1.0, 1.0))


def test_the_algorithms_agree_with_theorem_3_and_the_retraction() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((N, K)), rng.standard_normal((M, K))
    G1, G2 = 0.1 * rng.standard_normal((N, 3)), rng.standard_normal((M, 3))
    W = A @ B.T
    manifold = FixedRankEmbedded(N, M, K)
    point = manifold.from_factors(A, B)
    for left, right in ((G1, G2), (G1[:, :1], G2[:, :1])):
        expected = oracles.theorem_3(W, left @ right.T, K)
        steps = {"2": oracles.algorithm_2(A, B, left @ right.T), "3": oracles.algorithm_3(A, B, left, right)}
        if left.shape[1] == 1:
            pinvs = np.linalg.pinv(A), np.linalg.pinv(B)
            Z1, Z2, Z1_pinv, Z2_pinv = oracles.algorithm_4(A, B, *pinvs, left[:, 0], right[:, 0])
            steps["4"] = Z1, Z2
            np.testing.assert_allclose(Z1_pinv, np.linalg.pinv(Z1), atol=1e-12)
            np.testing.assert_allclose(Z2_pinv, np.linalg.pinv(Z2), atol=1e-12)
        for name, (Z1, Z2) in steps.items():
            assert relative(Z1 @ Z2.T, expected) < 1e-13, name
        moved = SecondOrder()(manifold, point, manifold.projection(point, Factored(left, right)))
        assert relative(manifold.to_dense(moved), expected) < 1e-13
        assert relative(expected, W) > 1e-2


@pytest.mark.parametrize("loss", [hinge, squared], ids=repr)
def test_compiled_engine_follows_algorithm_4(loss: Loss) -> None:
    rng = np.random.default_rng(1)
    cost = sparse_problem(rng, loss)
    manifold = FixedRankEmbedded(N, M, K)
    A, B = rng.standard_normal((N, K)), rng.standard_normal((M, K))
    engine = BilinearEngine(manifold, cost, SecondOrder())
    state = engine.load(manifold.from_factors(A, B))
    schedule, eta = rng.integers(cost.n_terms, size=(200, 1)), 0.02
    state = engine.advance(state, schedule, np.full(200, eta))
    A_pinv, B_pinv = np.linalg.pinv(A), np.linalg.pinv(B)
    left, right = cost.left.toarray(), cost.right.toarray()
    for (term,) in schedule:
        p, q, y = left[term], right[term], cost.targets[term]
        z = p @ A @ B.T @ q
        slope = (z - y) if loss is squared else (-y if y * z < 1 else 0.0)
        if slope != 0:
            A, B, A_pinv, B_pinv = oracles.algorithm_4(A, B, A_pinv, B_pinv, -eta * slope * p, q)
    assert state.updates > 80
    assert relative(manifold.to_dense(engine.dump(state)), A @ B.T) < 1e-10


def ill_conditioned(rng: np.random.Generator, where: str) -> tuple[LowRankPoint, FixedRankEmbedded]:
    """Return a point whose factor A, or which itself, has condition number 1e6."""
    manifold = FixedRankEmbedded(60, 45, K)
    U, V = (np.linalg.qr(rng.standard_normal((width, K)))[0] for width in (60, 45))
    T = np.linalg.qr(rng.standard_normal((K, K)))[0]
    spread = np.logspace(0, -6, K)
    if where == "W":
        return LowRankPoint(U, np.diag(spread), V), manifold
    A, B = U @ np.diag(spread) @ T, V @ np.diag(1 / spread) @ T
    assert np.linalg.cond(A) == pytest.approx(1e6, rel=1e-6)
    return manifold.from_factors(A, B), manifold


@pytest.mark.parametrize(("where", "eta"), [("A", 1e-7), ("A", 3e-2), ("W", 1e-4)])
def test_ill_conditioned_start_is_followed_for_10000_steps(where: str, eta: float) -> None:
    rng = np.random.default_rng(2)
    start, manifold = ill_conditioned(rng, where)
    cost = sparse_problem(rng, absolute, 60, 45)
    engine = BilinearEngine(manifold, cost, SecondOrder())
    schedule = rng.integers(cost.n_terms, size=(10_000, 1))
    state = engine.advance(engine.load(start), schedule, np.full(10_000, eta))
    left, right = cost.left.toarray(), cost.right.toarray()
    U, S, V = start.U, start.S, start.V
    for (term,) in schedule:
        p, q = left[term], right[term]
        slope = np.sign((p @ U) @ S @ (V.T @ q) - cost.targets[term])
        U, S, V = oracles.orthonormal_step(U, S, V, -eta * slope * p, q)
    W = U @ S @ V.T
    assert relative(manifold.to_dense(engine.dump(state)), W) < 1e-8
    assert relative(W, manifold.to_dense(start)) > 1e-4
    assert GENERAL.drift(state.factors, K) < 1e-9


def test_the_papers_own_recursion_loses_six_digits_more() -> None:
    rng = np.random.default_rng(3)
    start, manifold = ill_conditioned(rng, "A")
    T = np.linalg.qr(rng.standard_normal((K, K)))[0]
    spread = np.logspace(0, -6, K)
    A, B = start.U @ np.diag(spread) @ T, start.V @ np.diag(1 / spread) @ T
    cost = sparse_problem(rng, absolute, 60, 45)
    engine = BilinearEngine(manifold, cost, SecondOrder())
    state = engine.load(manifold.from_factors(A, B))
    schedule = rng.integers(cost.n_terms, size=(1000, 1))
    state = engine.advance(state, schedule, np.full(1000, 0.05))
    A_pinv, B_pinv = np.linalg.pinv(A), np.linalg.pinv(B)
    left, right = cost.left.toarray(), cost.right.toarray()
    for (term,) in schedule:
        p, q = left[term], right[term]
        slope = np.sign(p @ A @ B.T @ q - cost.targets[term])
        A, B, A_pinv, B_pinv = oracles.algorithm_4(A, B, A_pinv, B_pinv, -0.05 * slope * p, q)
    theirs = max(np.abs(A_pinv @ A - np.eye(K)).max(), np.abs(B_pinv @ B - np.eye(K)).max())
    assert theirs > 1e-8
    assert GENERAL.drift(state.factors, K) < 1e-6 * theirs


def test_long_runs_do_not_drift() -> None:
    rng = np.random.default_rng(4)
    cost = sparse_problem(rng, absolute)
    manifold = FixedRankEmbedded(N, M, K)
    engine = BilinearEngine(manifold, cost, SecondOrder())
    schedule, etas = rng.integers(cost.n_terms, size=(200_000, 1)), np.full(200_000, 0.01)
    state = engine.advance(engine.load(manifold.random_point(rng)), schedule, etas)
    assert state.updates > 150_000
    assert GENERAL.drift(state.factors, K) < 1e-10
