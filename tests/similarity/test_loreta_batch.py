"""LORETA-r: steps on several terms at once follow Algorithm 3 and the reference engine."""

from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from rmopt import Problem
from rmopt.costs import LOSSES, BilinearSum, TripletSum, absolute, hinge, squared
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines import ReferenceEngine
from rmopt.engines.bilinear import BatchEngine
from rmopt.engines.choose import choose_engine
from rmopt.engines.gauged import GENERAL
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import SecondOrder
from rmopt.solvers import SGD, ShuffledEpochs


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def rows(rng: np.random.Generator, count: int, width: int) -> sp.csr_array:
    """Return sparse rows of length about 1, of which two are empty."""
    dense = rng.standard_normal((count, width)) * (rng.random((count, width)) < 0.2)
    dense[[3, count // 2]] = 0.0
    return sp.csr_array(dense / np.sqrt(0.2 * width))


def make_cost(rng: np.random.Generator, kind: str, loss: Loss, n: int, m: int) -> Bilinear:
    if kind == "pairs":
        return BilinearSum(rows(rng, 50, n), rows(rng, 50, m), loss, np.where(rng.random(50) < 0.5, -1, 1))
    triplets = np.column_stack([rng.integers(20, size=60), *rng.integers(30, size=(2, 60))])
    return TripletSum(rows(rng, 20, n), rows(rng, 30, m), loss, triplets)


def draw(rng: np.random.Generator, cost: Bilinear, steps: int, batch: int) -> np.ndarray:
    terms = cost.all_terms().reshape(-1, cost.term_width)
    return terms[rng.integers(len(terms), size=(steps, batch))].reshape(steps, -1)


def run(
    manifold: FixedRankEmbedded, cost: Bilinear, r: int, *about: Any
) -> tuple[list[Any], list[np.ndarray]]:
    """Return the last states of the compiled engine and of the reference, and their points."""
    engines = BatchEngine(manifold, cost, SecondOrder(), r), ReferenceEngine(manifold, cost, SecondOrder())
    states = [engine.advance(engine.load(about[0]), *about[1:]) for engine in engines]
    ends = [engine.dump(state) for engine, state in zip(engines, states, strict=True)]
    return states, [*map(manifold.to_dense, ends)]


SHAPES = [(40, 31, 5, 3), (30, 50, 8, 8), (12, 9, 6, 2), (20, 20, 4, 1)]
# Every pair of a loss, a kind of terms and a shape, if not every combination of all three.
PAIRWISE = [
    pytest.param(("pairs", "triplets")[(i + j // 2) % 2], loss, *shape, id=f"{loss}-{shape}")
    for i, loss in enumerate(LOSSES.values())
    for j, shape in enumerate(SHAPES)
]


@pytest.mark.parametrize(("kind", "loss", "n", "m", "k", "r"), PAIRWISE)
def test_compiled_follows_the_reference(kind: str, loss: Loss, n: int, m: int, k: int, r: int) -> None:
    rng = np.random.default_rng([n, r])
    cost, manifold = make_cost(rng, kind, loss, n, m), FixedRankEmbedded(n, m, k)
    start, schedule, etas = manifold.random_point(rng), draw(rng, cost, 200, r), np.full(200, 0.1)
    states, ends = run(manifold, cost, r, start, schedule, etas)
    assert all(state.updates > 50 for state in states)
    assert relative(ends[0], ends[1]) < 1e-10
    assert relative(ends[1], manifold.to_dense(start)) > 1e-2


def test_the_engine_follows_algorithm_3() -> None:
    rng = np.random.default_rng(1)
    n, m, k, r, eta = 40, 31, 5, 4, 0.2
    cost, manifold = make_cost(rng, "pairs", hinge, n, m), FixedRankEmbedded(n, m, k)
    A, B = rng.standard_normal((n, k)), rng.standard_normal((m, k))
    engine = choose_engine(Problem(manifold, cost), engine="compiled", batch_size=r)
    assert isinstance(engine, BatchEngine)
    schedule = draw(rng, cost, 200, r)
    state = engine.advance(engine.load(manifold.from_factors(A, B)), schedule, np.full(200, eta))
    left, right = cost.left.toarray(), cost.right.toarray()
    for terms in schedule:
        P, Q, y = left[terms].T, right[terms].T, cost.targets[terms]  # type: ignore[attr-defined]
        z = np.einsum("ni,nk,mk,mi->i", P, A, B, Q)
        A, B = oracles.algorithm_3(A, B, P, Q * np.where(y * z < 1, eta * y, 0.0))
    assert relative(manifold.to_dense(engine.dump(state)), A @ B.T) < 1e-10


@pytest.mark.parametrize("eta", [1e-7, 1e-3, 0.3])
def test_ill_conditioned_starts_are_followed(eta: float) -> None:
    rng = np.random.default_rng(4)
    n, m, k, r = 60, 45, 5, 3
    manifold = FixedRankEmbedded(n, m, k)
    U, V = (np.linalg.qr(rng.standard_normal((width, k)))[0] for width in (n, m))
    start = manifold.from_factors(U * np.logspace(0, -6, k), V)
    cost = make_cost(rng, "pairs", absolute, n, m)
    schedule, etas = draw(rng, cost, 600, r), np.full(600, eta)
    states, ends = run(manifold, cost, r, start, schedule, etas)
    assert GENERAL.drift(states[0].factors, k) < 1e-9
    assert relative(ends[0], ends[1]) < 1e-8


def test_the_solver_learns_with_batches() -> None:
    rng = np.random.default_rng(5)
    manifold = FixedRankEmbedded(30, 20, 3)
    truth = manifold.to_dense(manifold.random_point(rng))
    left, right = rng.standard_normal((400, 30)) / 5, rng.standard_normal((400, 20)) / 5
    cost = BilinearSum(left, right, squared, np.einsum("in,nm,im->i", left, truth, right))
    solver = SGD(0.6, max_iter=60_000, sampler=ShuffledEpochs(400, batch_size=3))
    assert isinstance(solver.engine(Problem(manifold, cost)), BatchEngine)
    found = solver.run(Problem(manifold, cost), random_state=0)
    assert relative(manifold.to_dense(found.point), truth) < 1e-6
