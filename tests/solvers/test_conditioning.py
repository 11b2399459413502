"""Ill-conditioned starts, measured against Theorem 3 in extended precision, and long runs."""

from collections.abc import Callable

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from rmopt.core import LowRankPoint
from rmopt.costs import BilinearSum, absolute, hinge
from rmopt.costs.losses import Loss
from rmopt.engines import BilinearEngine
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import SecondOrder

N, M, K = 60, 45, 5
MANIFOLD = FixedRankEmbedded(N, M, K)
HAS_EXTENDED = np.finfo(np.longdouble).eps < 1e-18


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def make_cost(rng: np.random.Generator, loss: Loss = absolute) -> BilinearSum:
    left, right = (
        sp.random_array((50, width), density=0.2, random_state=rng, data_sampler=rng.standard_normal).tocsr()
        for width in (N, M)
    )
    return BilinearSum(left, right, loss, np.where(rng.random(50) < 0.5, -1.0, 1.0))


def factors_of_condition(
    rng: np.random.Generator, condition: float, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return factors of which A has this condition number, and with where = "W" their product too."""
    U, V, T = (np.linalg.qr(rng.standard_normal((rows, K)))[0] for rows in (N, M, K))
    spread = np.logspace(0, -np.log10(condition), K)
    A = U @ np.diag(spread) @ T.T
    B = V @ T.T if where == "W" else V @ np.diag(1 / spread) @ T.T
    assert np.linalg.cond(A) == pytest.approx(condition, rel=1e-6)
    return A, B


def compiled_end(cost: BilinearSum, start: LowRankPoint, schedule: np.ndarray, eta: float) -> np.ndarray:
    engine = BilinearEngine(MANIFOLD, cost, SecondOrder())
    state = engine.advance(engine.load(start), schedule, np.full(len(schedule), eta))
    return MANIFOLD.to_dense(engine.dump(state))


def oracle_end(
    step: Callable, kind: type, cost: BilinearSum, start: LowRankPoint, schedule: np.ndarray, eta: float
) -> tuple[np.ndarray, float]:
    """Return the end of a path of Theorem 3 in a float type, and the largest |s| on it."""
    left, right = cost.left.toarray().astype(kind), cost.right.toarray().astype(kind)
    U, S, V = (part.astype(kind) for part in (start.U, start.S, start.V))
    largest = 0.0
    for (term,) in schedule:
        p, q, y = left[term], right[term], cost.targets[term]
        z = (p @ U) @ S @ (V.T @ q)
        slope = np.sign(z - y) if cost.loss is absolute else -y * (y * z < 1)
        if slope != 0:
            up = np.linalg.solve(S.astype(float), (U.T @ p).astype(float))
            largest = max(largest, float(abs(eta * (V.T @ q) @ up)))
            U, S, V = step(U, S, V, -kind(eta) * slope * p, q)
    return (U @ S @ V.T).astype(float), largest


@pytest.mark.skipif(not HAS_EXTENDED, reason="numpy.longdouble is float64 on this machine")
@pytest.mark.parametrize(
    ("loss", "where", "eta", "expected_s"),
    [
        (hinge, "A", 1e-4, 1e-3), (absolute, "A", 3e-2, 1.0), (hinge, "W", 1e-7, 1.0), (absolute, "W", 1e-5, 1e3),
        (absolute, "W", 3e-2, 1e6),
    ],
)  # fmt: skip
def test_both_paths_follow_extended_precision(loss: Loss, where: str, eta: float, expected_s: float) -> None:
    rng = np.random.default_rng(0)
    start = MANIFOLD.from_factors(*factors_of_condition(rng, 1e6, where))
    cost, schedule = make_cost(rng, loss), rng.integers(50, size=(1000, 1))
    truth, largest = oracle_end(oracles.extended_step, np.longdouble, cost, start, schedule, eta)
    double, _ = oracle_end(oracles.orthonormal_step, np.float64, cost, start, schedule, eta)
    assert largest < expected_s
    assert relative(double, truth) < 1e-9
    assert relative(compiled_end(cost, start, schedule, eta), truth) < 1e-9
    assert relative(truth, MANIFOLD.to_dense(start)) > 1e-5


@pytest.mark.parametrize("loss", [absolute, hinge], ids=repr)
def test_200000_steps_stay_with_a_twin_of_fresh_factors(loss: Loss) -> None:
    rng = np.random.default_rng(3)
    cost, start = make_cost(rng, loss), MANIFOLD.random_point(rng)
    schedule, eta = rng.integers(50, size=(200_000, 1)), 0.01
    engine = BilinearEngine(MANIFOLD, cost, SecondOrder())
    twin = start
    for piece in np.split(schedule, 400):
        twin = engine.dump(engine.advance(engine.load(twin), piece, np.full(len(piece), eta)))
    assert relative(compiled_end(cost, start, schedule, eta), MANIFOLD.to_dense(twin)) < 1e-9
