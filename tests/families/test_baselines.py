"""The baselines of both families against plain numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from problems.online import Lego, Oasis, distance_targets
from problems.ranking import LabelRanking
from problems.ranking.baselines import GroupPerceptron, MatrixPerceptron, dual_of, primal_of
from problems.ranking.baselines import PassiveAggressive as LabelPassiveAggressive
from problems.similarity.baselines import FactoredGradientDescent, PassiveAggressive, PSDGradientDescent
from rmopt import Problem
from rmopt.core import DivergedError
from rmopt.core.points import packed, unpacked
from rmopt.costs import TripletSum
from rmopt.manifolds import Euclidean, FixedRankEmbedded, PSDFixedRank
from rmopt.solvers import Uniform

N, K = 12, 3


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def rows(rng: np.random.Generator, count: int, width: int) -> sp.csr_array:
    dense = rng.standard_normal((count, width)) * (rng.random((count, width)) < 0.4)
    dense[2] = 0.0
    return sp.csr_array(dense)


def end_of(solver: Any, problem: Problem, start: Any, schedule: np.ndarray, eta: float) -> Any:
    """Run a schedule whole, in two parts, and through a save; return the end."""
    engine, etas = solver.engine(problem), np.full(len(schedule), eta)
    whole = engine.advance(engine.load(start), schedule, etas)
    half = engine.advance(engine.load(start), schedule[:37], etas[:37])
    half = unpacked(packed(half), engine.load(start))
    parts = engine.advance(half, schedule[37:], etas[37:])
    assert (parts.steps, parts.updates) == (whole.steps, whole.updates)
    assert whole.updates > 20
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(parts.arrays[name], array)
    return engine.dump(whole)


# Similarity: oracles on dense vectors q and d = p₊ − p₋


def factored_gradient(state: list, q: np.ndarray, d: np.ndarray, eta: float) -> None:
    A, B = state
    if 1 - q @ A @ B.T @ d > 0:
        state[:] = A + eta * np.outer(q, d @ B), B + eta * np.outer(d, q @ A)


def passive_aggressive(state: list, q: np.ndarray, d: np.ndarray, C: float) -> None:
    A, B = state
    for side in (0, 1):
        loss = max(0.0, 1 - q @ A @ B.T @ d)
        if loss == 0 and side == 0:
            return
        other = B.T @ d if side == 0 else A.T @ q
        steepness = (q @ q if side == 0 else d @ d) * (other @ other)
        eta = min(loss / steepness, C) if steepness > 0 else 0.0
        if side == 0:
            A = A + eta * np.outer(q, other)
        else:
            B = B + eta * np.outer(d, other)
    state[:] = A, B


def psd_gradient(state: list, q: np.ndarray, d: np.ndarray, eta: float) -> None:
    (A,) = state
    if 1 - q @ A @ A.T @ d > 0:
        state[:] = [A + eta * (np.outer(q, d) + np.outer(d, q)) @ A]


def oasis(state: list, q: np.ndarray, d: np.ndarray, C: float) -> None:
    (W,) = state
    V = np.outer(q, d)
    loss = 1 - np.sum(W * V)
    if loss > 0 and np.any(V):
        state[:] = [W + min(C, loss / np.sum(V**2)) * V]


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    ("solver", "oracle", "manifold", "eta"),
    [
        (FactoredGradientDescent, factored_gradient, FixedRankEmbedded(N, N, K), 0.02),
        (PassiveAggressive, passive_aggressive, FixedRankEmbedded(N, N, K), 0.1),
        (PSDGradientDescent, psd_gradient, PSDFixedRank(N, K), 0.02),
        (Oasis, oasis, Euclidean(N, N), 0.1),
    ],
)
def test_similarity_baselines_follow_plain_numpy(
    solver: Any, oracle: Callable, manifold: Any, eta: float, dense: bool
) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, N)) if dense else rows(rng, 30, N)
    cost = TripletSum(X, X)
    schedule = rng.integers(30, size=(100, 3))
    rule = solver(eta, max_iter=100, sampler=Uniform(30))
    start = manifold.random_point(rng)
    end = end_of(rule, Problem(manifold, cost), start, schedule, eta)
    table = cost.left.toarray()
    if solver is Oasis:
        state, product = [start], lambda W: W
    elif solver is PSDGradientDescent:
        state, product = [start.factor()], lambda A: A @ A.T
    else:
        state, product = list(start.balanced_factors()), lambda A, B: A @ B.T
    for query, plus, minus in schedule:
        oracle(state, table[query], table[plus] - table[minus], eta)
    found = end if isinstance(end, np.ndarray) else manifold.to_dense(end)
    assert relative(found, product(*state)) < 1e-11
    assert manifold.check_point(end) is None


def test_lego_solves_its_problem_at_every_pair() -> None:
    """The step minimises D_logdet(M', M) + η/2 (zᵀM'z − target)²: checked by its stationarity condition."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 5))
    cost = TripletSum(X, X)
    near, far = distance_targets(cost.left)
    assert near < far
    eta, M = 0.3, np.eye(5)
    engine = Lego(eta, max_iter=1, sampler=Uniform(30)).engine(Problem(Euclidean(5, 5), cost))
    moves = 0
    for triplet in rng.integers(30, size=(60, 3)):
        end = engine.dump(engine.advance(engine.load(M), triplet[None], np.array([eta])))
        for other, target, sign in ((triplet[1], near, 1), (triplet[2], far, -1)):
            z = X[triplet[0]] - X[other]
            if sign * (z @ M @ z - target) > 0 and z.any():
                # M'⁻¹ = M⁻¹ + η (zᵀM'z − target) z zᵀ, found as a fixed point in zᵀM'z.
                low, high = 0.0, max(target, z @ M @ z)
                for _ in range(200):
                    reached = (low + high) / 2
                    moved = np.linalg.inv(np.linalg.inv(M) + eta * (reached - target) * np.outer(z, z))
                    ahead = z @ moved @ z
                    positive = np.linalg.eigvalsh(moved)[0] > 0
                    low, high = (reached, high) if not positive or ahead > reached else (low, reached)
                M, moves = moved, moves + 1
        assert relative(end, M) < 1e-9
        assert np.linalg.eigvalsh(end)[0] > 0
    assert moves > 30


def test_lego_by_hand() -> None:
    # One feature, z = 2, M = 1: distance 4, target 1, η = 1: (4 − 1 + √(9 + 64)) / 8 is reached.
    from problems.kernels import log_det_weight

    moved = 1.0 - log_det_weight(4.0, 1.0, 1.0) * 2.0 * 2.0
    assert 4 * moved == pytest.approx((3 + np.sqrt(73)) / 8)


# Label ranking


def violated(scores: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return g of the subgradient g xᵀ."""
    g = np.zeros(scores.size)
    if own.any() and not own.all():
        best = np.where(own, -np.inf, scores).argmax()
        late = own & (scores[best] - scores + 1 > 0)
        g[late] = -1.0
        g[best] += late.sum()
    return g


@pytest.fixture
def labelled() -> tuple[np.ndarray, np.ndarray, LabelRanking, np.ndarray]:
    rng = np.random.default_rng(2)
    X, Y = rows(rng, 40, 10).toarray(), rng.random((40, 7)) < 0.3
    Y[3], Y[4] = False, True
    return X, Y, LabelRanking(X, Y), rng.integers(40, size=(100, 1))


def test_label_passive_aggressive_follows_plain_numpy(labelled: tuple) -> None:
    X, Y, cost, schedule = labelled
    manifold, C = FixedRankEmbedded(7, 10, K), 0.1
    start = manifold.random_point(np.random.default_rng(3))
    solver = LabelPassiveAggressive(C, max_iter=1, sampler=Uniform(40))
    end = end_of(solver, Problem(manifold, cost), start, schedule, C)
    A, B = start.balanced_factors()
    for (row,) in schedule:
        x = X[row]
        g = violated(A @ B.T @ x, Y[row])
        for side in (0, 1):
            loss = max(0.0, max(g.max(), 0.0) + g @ A @ B.T @ x)
            other = B.T @ x if side == 0 else A.T @ g
            steepness = (g @ g if side == 0 else x @ x) * (other @ other)
            eta = min(loss / steepness, C) if steepness > 0 else 0.0
            if side == 0:
                A = A - eta * np.outer(g, other)
            else:
                B = B - eta * np.outer(x, other)
    assert relative(manifold.to_dense(end), A @ B.T) < 1e-11


@pytest.mark.parametrize("solver", [MatrixPerceptron, GroupPerceptron])
def test_full_rank_perceptrons_follow_plain_numpy(labelled: tuple, solver: Any) -> None:
    X, Y, cost, schedule = labelled
    eta, p = 0.1, (2.0 if solver is MatrixPerceptron else 2 * np.log(10))
    end = end_of(
        solver(eta, max_iter=1, sampler=Uniform(40)),
        Problem(Euclidean(7, 10), cost), np.zeros((7, 10)), schedule, eta,
    )  # fmt: skip
    theta = np.zeros((7, 10))

    def mirror(theta: np.ndarray) -> np.ndarray:
        lengths = np.linalg.norm(theta, axis=0)
        whole = np.sum(lengths**p) ** (1 / p)
        return theta * (lengths / whole) ** (p - 2) if whole > 0 else theta

    for (row,) in schedule:
        theta = theta - eta * np.outer(violated(mirror(theta) @ X[row], Y[row]), X[row])
    assert relative(end, mirror(theta)) < 1e-11


def test_the_mirror_map_is_a_gradient_and_has_an_inverse() -> None:
    theta = np.random.default_rng(4).standard_normal((7, 10))
    arrays = {"theta": np.ascontiguousarray(theta.T), "norms": np.linalg.norm(theta, axis=0)}
    W = primal_of(arrays, 5.0)
    np.testing.assert_allclose(dual_of(W, 5.0)["theta"], theta.T, rtol=1e-10)

    def conjugate(theta: np.ndarray) -> float:
        return 0.5 * float(np.sum(np.linalg.norm(theta, axis=0) ** 5.0) ** (2 / 5.0))

    D = np.random.default_rng(5).standard_normal((7, 10))
    slope = (conjugate(theta + 1e-6 * D) - conjugate(theta - 1e-6 * D)) / 2e-6
    assert np.vdot(W, D) == pytest.approx(slope, rel=1e-6)


# Errors


def test_divergence_names_the_step() -> None:
    rng = np.random.default_rng(7)
    X = 10 * rng.standard_normal((20, N))
    manifold, table = PSDFixedRank(N, K), rng.integers(20, size=(500, 3))
    solver = PSDGradientDescent(1e3, max_iter=500, sampler=Uniform(table))
    with pytest.raises(DivergedError, match=r"the run diverged at step \d+ \(step size 1e\+03\)"):
        solver.run(Problem(manifold, TripletSum(X, X)), random_state=0)
