"""Dense examples in blocks: the reference's steps, and the same bits wherever calls are split."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from problems.similarity import LoretaSimilarity
from rmopt import Problem
from rmopt.core import DivergedError
from rmopt.core.ambient import dense
from rmopt.costs import LOSSES, BilinearSum, TripletSum, absolute, squared
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines import BilinearEngine, ReferenceEngine
from rmopt.engines.choose import choose_engine
from rmopt.engines.deferred import DeferredEngine
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import FIXED_RANK_RETRACTIONS, SecondOrder
from rmopt.solvers import SGD


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def make_cost(rng: np.random.Generator, kind: str, loss: Loss, n: int, m: int) -> Bilinear:
    if kind == "pairs":
        left, right = rng.standard_normal((50, n)) / np.sqrt(n), rng.standard_normal((50, m)) / np.sqrt(m)
        left[3] = 0.0
        return BilinearSum(left, right, loss, np.where(rng.random(50) < 0.5, -1, 1))
    triplets = np.column_stack([rng.integers(20, size=60), *rng.integers(30, size=(2, 60))])
    left, right = rng.standard_normal((20, n)) / np.sqrt(n), rng.standard_normal((30, m)) / np.sqrt(m)
    return TripletSum(left, right, loss, triplets)


def draw(rng: np.random.Generator, cost: Bilinear, steps: int) -> np.ndarray:
    terms = cost.all_terms().reshape(-1, cost.term_width)
    return terms[rng.integers(len(terms), size=steps)]


SHAPES = [(40, 31, 5, 7), (30, 50, 8, 64), (12, 9, 3, 1)]
# Every pair of a loss, a retraction, a kind of terms and a shape, if not every combination of all four.
PAIRWISE = [
    pytest.param(
        ("pairs", "triplets")[(i + j) % 2], loss, retraction, *SHAPES[(i + j) % 3], id=f"{loss}-{retraction}"
    )
    for i, loss in enumerate(LOSSES.values())
    for j, retraction in enumerate(FIXED_RANK_RETRACTIONS.values())
]


@pytest.mark.parametrize(("kind", "loss", "retraction", "n", "m", "k", "b"), PAIRWISE)
def test_blocks_follow_the_reference(
    kind: str, loss: Loss, retraction: SecondOrder, n: int, m: int, k: int, b: int
) -> None:
    rng = np.random.default_rng([n, b])
    cost, manifold = make_cost(rng, kind, loss, n, m), FixedRankEmbedded(n, m, k)
    start, schedule, etas = manifold.random_point(rng), draw(rng, cost, 200), np.full(200, 0.1)
    blocks = DeferredEngine(manifold, cost, retraction, block_size=b)
    ends = []
    for engine in (blocks, ReferenceEngine(manifold, cost, retraction)):
        state = engine.advance(engine.load(start), schedule, etas)
        ends.append(manifold.to_dense(engine.dump(state)))
        assert state.updates > 50
    assert relative(ends[0], ends[1]) < 1e-10
    assert relative(ends[1], manifold.to_dense(start)) > 1e-2


@pytest.mark.parametrize(
    ("kind", "cuts"),
    [("pairs", (1,)), ("triplets", (37, 38, 101)), ("pairs", (64, 128)), ("triplets", (80,))],
)
def test_splits_keep_every_bit_even_through_pack(kind: str, cuts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    n, m = 300, 211
    cost, manifold = make_cost(rng, kind, absolute, n, m), FixedRankEmbedded(n, m, 13)
    engine = DeferredEngine(manifold, cost, SecondOrder())
    start, schedule, etas = manifold.random_point(rng), draw(rng, cost, 200), np.full(200, 0.1)
    whole = engine.advance(engine.load(start), schedule, etas)
    state = engine.load(start)
    for first, last in zip((0, *cuts), (*cuts, 200), strict=True):
        state = engine.advance(state, schedule[first:last], etas[first:last])
        packed = {name: part.copy() for name, part in engine.pack(state).items()}
        engine.dump(state)
        state = engine.unpack(packed, engine.load(start))
    for name, part in engine.pack(whole).items():
        np.testing.assert_array_equal(engine.pack(state)[name], part, err_msg=name)
    np.testing.assert_array_equal(
        manifold.to_dense(engine.dump(state)), manifold.to_dense(engine.dump(whole))
    )


def test_a_block_that_is_open_stays_behind_where_a_run_goes_on_from_another_point() -> None:
    rng = np.random.default_rng(5)
    cost, manifold = make_cost(rng, "pairs", squared, 30, 20), FixedRankEmbedded(30, 20, 3)
    start, there, schedule = *(manifold.random_point(rng) for _ in range(2)), draw(rng, cost, 60)
    ends = []
    for kind in (DeferredEngine, ReferenceEngine):
        engine = kind(manifold, cost, SecondOrder())
        state = engine.moved(engine.advance(engine.load(start), schedule[:40], np.full(40, 0.1)), there)
        assert relative(manifold.to_dense(engine.dump(state)), manifold.to_dense(there)) < 1e-14
        state = engine.advance(state, schedule[40:], np.full(20, 0.1))
        ends.append(manifold.to_dense(engine.dump(state)))
    assert relative(*ends) < 1e-10


def test_ill_conditioned_starts_close_blocks_early() -> None:
    rng = np.random.default_rng(4)
    cost, manifold = make_cost(rng, "pairs", absolute, 60, 45), FixedRankEmbedded(60, 45, 5)
    U, V = (np.linalg.qr(rng.standard_normal((width, 5)))[0] for width in (60, 45))
    start = manifold.from_factors(U * np.logspace(0, -6, 5), V)
    schedule, etas = draw(rng, cost, 3000), np.full(3000, 0.3)
    blocks, loop = (
        DeferredEngine(manifold, cost, SecondOrder()),
        BilinearEngine(manifold, cost, SecondOrder()),
    )
    state = blocks.advance(blocks.load(start), schedule, etas)
    assert state.renewals > 0
    expected = loop.dump(loop.advance(loop.load(start), schedule, etas))
    assert relative(manifold.to_dense(blocks.dump(state)), manifold.to_dense(expected)) < 1e-8
    split = blocks.advance(blocks.load(start), schedule[:1234], etas[:1234])
    split = blocks.advance(split, schedule[1234:], etas[1234:])
    np.testing.assert_array_equal(split.factors.A, state.factors.A)


@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_sums_over_arrays_are_those_over_sparse_rows_and_make_none(kind: str) -> None:
    rng = np.random.default_rng(8)
    cost = make_cost(rng, kind, squared, 12, 9)
    manifold = FixedRankEmbedded(12, 9, 2)
    point = manifold.random_point(rng)
    W = manifold.to_dense(point)
    terms = cost.all_terms()
    left, plus, minus, targets = cost.resolve(terms)
    rows = cost.rows[0][left], cost.rows[1][plus] - (minus >= 0)[:, None] * cost.rows[1][minus]
    gaps = np.einsum("ti,ij,tj->t", rows[0], W, rows[1]) - targets
    for at in (point, W):
        assert cost.value(at) == pytest.approx(0.5 * float(gaps @ gaps), rel=1e-12)
        np.testing.assert_allclose(
            dense(cost.gradient(at)), rows[0].T @ (rows[1] * gaps[:, None]), atol=1e-12
        )
        bent = np.einsum("ti,ij,tj->t", rows[0], W, rows[1])
        expected = rows[0].T @ (rows[1] * bent[:, None])
        np.testing.assert_allclose(dense(cost.hessian(at, W)), expected, atol=1e-12)
    assert "left" not in vars(cost)
    again = pickle.loads(pickle.dumps(cost))
    assert again.value(point) == cost.value(point)
    np.testing.assert_array_equal(again.left.toarray(), cost.rows[0])


def test_wide_dense_rows_are_done_in_blocks() -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((30, 150))
    sparse = np.where(rng.random((30, 150)) < 0.3, X, 0.0)
    for rows, expected in ((X, DeferredEngine), (sparse, BilinearEngine), (X[:, :60], BilinearEngine)):
        n = rows.shape[1]
        engine = choose_engine(Problem(FixedRankEmbedded(n, n, 3), BilinearSum(rows, rows)))
        assert type(engine) is expected
    y = np.arange(30) % 3
    model = LoretaSimilarity(rank=3, max_iter=300, random_state=0).fit(X, y)
    again = LoretaSimilarity(rank=3, max_iter=300, random_state=0, engine="reference").fit(X, y)
    assert relative(model.similarity(X, X), again.similarity(X, X)) < 1e-10


def test_losses_of_the_users_own_and_divergence() -> None:
    rng = np.random.default_rng(6)
    pinball = Loss(
        "pinball",
        value=lambda z, y: max(0.9 * (y - z), 0.1 * (z - y)),
        slope=lambda z, y: -0.9 if z < y else 0.1,
    )
    manifold = FixedRankEmbedded(150, 140, 3)
    problem = Problem(manifold, make_cost(rng, "pairs", pinball, 150, 140))
    ends = [
        SGD(0.05, max_iter=300, engine=name).run(problem, random_state=1)
        for name in ("compiled", "reference")
    ]
    assert relative(manifold.to_dense(ends[0].point), manifold.to_dense(ends[1].point)) < 1e-10
    # On other data rounding, which is that of the machine, may make the core singular before it overflows.
    wild = Problem(manifold, make_cost(np.random.default_rng(6), "pairs", squared, 150, 140))
    steps = []
    for name in ("compiled", "reference"):
        with pytest.raises(DivergedError) as caught:
            SGD(1e3, max_iter=2000, engine=name).run(wild, random_state=1)
        steps.append(caught.value.step)
    # Overflow is noticed in the score here, and in the length of the gradient there.
    assert abs(steps[0] - steps[1]) <= 5
