"""Manifold identification (Algorithm 6): its two forms, the collapse of the printed one, and its errors."""

import numpy as np
import oracles
import pytest
from sklearn.datasets import load_digits

from rmopt import InvalidInputError, Problem
from rmopt.core import DivergedError, MissingCapabilityError
from rmopt.core.points import packed, unpacked
from rmopt.costs import BilinearSum, TripletSum, hinge
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.solvers import SGD, Checkpoint, FromDraw, ManifoldIdentification, Uniform
from rmopt.solvers.stochastic.identification import IdentificationEngine, IdentificationState

N, M, K = 14, 11, 3
MANIFOLD = FixedRankEmbedded(N, M, K)


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def make_cost(rng: np.random.Generator) -> BilinearSum:
    left, right = rng.standard_normal((40, N)) / 3, rng.standard_normal((40, M)) / 3
    return BilinearSum(left, right, hinge, np.where(rng.random(40) < 0.5, -1.0, 1.0))


def algorithm_6(
    A: np.ndarray, B: np.ndarray, cost: BilinearSum, rounds: np.ndarray, eta1: float, eta2: float
) -> tuple[np.ndarray, np.ndarray]:
    """Run the paper's box, with "full-rank metric learning" a gradient step on M."""
    left, right = cost.left.toarray(), cost.right.toarray()

    def slope(z: float, term: int) -> float:
        return -cost.targets[term] * (cost.targets[term] * z < 1)

    for outer, *inner in rounds:
        p, q = left[outer], right[outer]
        A, B = oracles.algorithm_3(A, B, -eta1 * slope(p @ A @ B.T @ q, outer) * p[:, None], q[:, None])
        core = np.eye(A.shape[1])
        for term in inner:
            u, v = A.T @ left[term], B.T @ right[term]
            core = core - eta2 * slope(u @ core @ v, term) * np.outer(u, v)
        U, sigma, Vt = np.linalg.svd(core)
        A, B = A @ U @ np.diag(np.sqrt(sigma)), B @ Vt.T @ np.diag(np.sqrt(sigma))
    return A, B


def test_the_paper_form_is_algorithm_6() -> None:
    rng = np.random.default_rng(0)
    cost, point = make_cost(rng), MANIFOLD.random_point(rng)
    engine, rounds = IdentificationEngine(cost, 0.1, "paper"), rng.integers(40, size=(30, 6))
    state = engine.advance(engine.load(point), rounds, np.full(30, 0.2))
    A, B = algorithm_6(*point.balanced_factors(), cost, rounds, 0.2, 0.02)
    assert relative(state.A, A) < 1e-12
    assert relative(state.B, B) < 1e-12
    assert state.steps == 30
    assert state.updates > 60


def test_a_gauge_step_is_the_gradient_within_the_present_spaces() -> None:
    rng = np.random.default_rng(1)
    cost, point = make_cost(rng), MANIFOLD.random_point(rng)
    engine, rounds = IdentificationEngine(cost, 1.0, "gauge"), rng.integers(40, size=(1, 8))
    eta = 0.3
    W = MANIFOLD.to_dense(engine.dump(engine.advance(engine.load(point), rounds[:, :1], np.array([eta]))))
    U, _, Vt = np.linalg.svd(W)
    P, Q = U[:, :K] @ U[:, :K].T, Vt[:K].T @ Vt[:K]
    for term in rounds[0, 1:]:
        p, q, y = cost.left.toarray()[term], cost.right.toarray()[term], cost.targets[term]
        W = W + eta * y * (y * (p @ W @ q) < 1) * np.outer(P @ p, Q @ q)
    found = engine.dump(engine.advance(engine.load(point), rounds, np.array([eta])))
    assert relative(MANIFOLD.to_dense(found), W) < 1e-12


def test_only_the_gauge_form_is_blind_to_the_factors() -> None:
    rng = np.random.default_rng(2)
    cost, point = make_cost(rng), MANIFOLD.random_point(rng)
    A, B = point.balanced_factors()
    T = rng.standard_normal((K, K)) + 2 * np.eye(K)
    rounds = rng.integers(40, size=(20, 6))
    gaps = {}
    for form in ("gauge", "paper"):
        engine = IdentificationEngine(cost, 0.1, form)
        ends = [
            engine.advance(IdentificationState(*factors), rounds, np.full(20, 0.2))
            for factors in ((A, B), (A @ T, np.linalg.solve(T, B.T).T))
        ]
        gaps[form] = relative(ends[1].A @ ends[1].B.T, ends[0].A @ ends[0].B.T)
    assert gaps["gauge"] < 1e-10
    assert gaps["paper"] > 1e-2


def test_rounds_split_exactly_and_resume(tmp_path: object) -> None:
    rng = np.random.default_rng(3)
    cost, point = make_cost(rng), MANIFOLD.random_point(rng)
    engine, rounds, etas = (
        IdentificationEngine(cost, 0.5, "gauge"),
        rng.integers(40, size=(20, 6)),
        np.ones(20) / 9,
    )
    whole = engine.advance(engine.load(point), rounds, etas)
    half = engine.advance(engine.load(point), rounds[:7], etas[:7])
    half = unpacked(packed(half), engine.load(point))
    parts = engine.advance(half, rounds[7:], etas[7:])
    np.testing.assert_array_equal(parts.A, whole.A)
    np.testing.assert_array_equal(parts.B, whole.B)
    assert (parts.steps, parts.updates) == (whole.steps, whole.updates)
    solver = ManifoldIdentification(0.1, inner_step_size=0.1, inner_steps=5, max_iter=40)
    checkpoint = Checkpoint(f"{tmp_path}/state.npz")
    first = solver.run(Problem(MANIFOLD, cost), random_state=1, checkpoint=checkpoint)
    again = solver.run(Problem(MANIFOLD, cost), random_state=1, checkpoint=checkpoint)
    np.testing.assert_array_equal(MANIFOLD.to_dense(first.point), MANIFOLD.to_dense(again.point))


def test_the_printed_form_collapses_and_the_gauge_form_does_not() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    rng = np.random.default_rng(4)
    query, other = rng.integers(len(y), size=(2, 60_000))
    same = y[query] == y[other]
    pairs = np.column_stack([query[same][:5000], other[same][:5000], other[~same][:5000]])
    manifold, cost = FixedRankEmbedded(64, 64, 10), TripletSum(X, X, triplets=pairs)
    problem, start, spread = Problem(manifold, cost), manifold.identity(), {}
    for form in ("paper", "gauge"):
        solver = ManifoldIdentification(1.0, inner_step_size=0.3, inner_steps=10, inner=form, max_iter=60)
        sigma = solver.run(problem, start, random_state=0).point.singular_values()
        spread[form] = sigma.sum() ** 2 / (sigma**2).sum()
    # The effective rank, (Σσ)² / Σσ².
    assert spread["gauge"] > 5
    assert spread["paper"] < 1.5
    for form in ("paper", "gauge"):
        solver = ManifoldIdentification(1.0, inner_step_size=0.3, inner_steps=10, inner=form, max_iter=300)
        if form == "gauge":
            solver.run(problem, start, random_state=0)
        else:
            with pytest.raises(DivergedError, match="the run diverged at step"):
                solver.run(problem, start, random_state=0)


def test_bad_input_is_named() -> None:
    cost = make_cost(np.random.default_rng(0))
    for option in ({"inner": "svd"}, {"inner_steps": 0}, {"inner_step_size": 0.0}):
        with pytest.raises(InvalidInputError, match=next(iter(option))):
            ManifoldIdentification(0.1, **{"inner_step_size": 0.1, **option})  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="first step size"):
        ManifoldIdentification(lambda steps: 0.1 * steps, inner_step_size=0.1).run(Problem(MANIFOLD, cost))
    solver = ManifoldIdentification(
        0.1, inner_step_size=0.1, inner_steps=4, sampler=Uniform(40, batch_size=3)
    )
    with pytest.raises(InvalidInputError, match="the sampler draws 3"):
        solver.run(Problem(MANIFOLD, cost))
    square = BilinearSum(cost.left, cost.left)
    with pytest.raises(MissingCapabilityError, match="PSDFixedRank"):
        ManifoldIdentification(0.1, inner_step_size=0.1).run(Problem(PSDFixedRank(N, K), square))


def test_a_sampler_function_draws_rounds() -> None:
    cost = make_cost(np.random.default_rng(0))
    sampler = FromDraw(lambda rng, start, size: rng.integers(40, size=(size, 4)), batch_size=4)
    solver = ManifoldIdentification(0.2, inner_step_size=0.1, inner_steps=3, max_iter=300, sampler=sampler)
    found = solver.run(Problem(MANIFOLD, cost), random_state=0)
    plain = SGD(0.2, max_iter=300).run(Problem(MANIFOLD, cost), random_state=0)
    assert found.steps == plain.steps == 300
    assert found.updates > plain.updates
    assert cost.value(found.point) < cost.value(MANIFOLD.random_point(np.random.default_rng(0)))
