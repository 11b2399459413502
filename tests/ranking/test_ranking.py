"""Label ranking: the loss and its subgradient by hand, WARP, the compiled engine, the estimator."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import label_ranking_average_precision_score
from sklearn.model_selection import GridSearchCV

from problems.ranking import (
    LabelRanking,
    LoretaLabelRanker,
    WarpRanking,
    mean_average_precision,
    precision_at,
)
from problems.ranking.estimators import epochs, starting_point
from problems.ranking.kernels import below
from rmopt import InvalidInputError, Problem
from rmopt.core import Retraction
from rmopt.engines.choose import choose_engine
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import FIXED_RANK_RETRACTIONS
from rmopt.solvers import SGD


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def make_data(rng: np.random.Generator, n_labels: int, n: int, count: int = 60) -> tuple[Any, Any]:
    """Return sparse rows and labels; a row is empty, one has no label, one has all."""
    X = rng.standard_normal((count, n)) * (rng.random((count, n)) < 0.3)
    Y = rng.random((count, n_labels)) < 0.2
    X[5], Y[3], Y[4] = 0.0, False, True
    return X, Y


def draw(rng: np.random.Generator, cost: LabelRanking, steps: int) -> np.ndarray:
    rows = rng.integers(cost.n_terms, size=steps)
    return rows[:, None] if cost.term_width == 1 else np.column_stack([rows, rng.integers(2**62, size=steps)])


# The loss, by hand: three labels, one feature x = 2, W = (1, 0.2, 0.9), so scores are 2, 0.4, 1.8.

HAND_W = np.array([[1.0], [0.2], [0.9]])


def test_loss_and_subgradient_by_hand() -> None:
    cost = LabelRanking([[2.0]], [[0, 1, 1]])
    # The best wrong label is 0; both true ones violate: (2 − 0.4 + 1) + (2 − 1.8 + 1).
    assert cost.value(HAND_W) == pytest.approx(3.8)
    G = cost.term_gradient(HAND_W, np.array([0]))
    np.testing.assert_allclose(G @ np.eye(1), [[4.0], [-2.0], [-2.0]])
    one_violated = LabelRanking([[2.0]], [[1, 0, 0]])
    assert one_violated.value(HAND_W) == pytest.approx(1.8 - 2.0 + 1.0)
    satisfied = LabelRanking([[2.0]], [[1, 0, 0]]).term_gradient(5 * HAND_W, np.array([0]))
    np.testing.assert_allclose(satisfied @ np.eye(1), [[0.0], [0.0], [0.0]])


def test_the_printed_subgradient_is_not_one() -> None:
    """§7.2.1 prints + p in the rows of the violated labels and − p in the row of the best wrong one."""
    rng = np.random.default_rng(0)
    X, Y = make_data(rng, 9, 7)
    cost = LabelRanking(X, Y)
    W, D = rng.standard_normal((2, 9, 7))
    ours = np.vdot(cost.gradient(W) @ np.eye(7), D)
    steps = np.array([1e-5, 1e-6])
    slopes = [(cost.value(W + t * D) - cost.value(W - t * D)) / (2 * t) for t in steps]
    np.testing.assert_allclose(slopes, ours, rtol=1e-6)
    printed = np.zeros((9, 7))
    for row, scores in enumerate(X @ W.T):
        own = np.flatnonzero(Y[row])
        if own.size in (0, 9):
            continue
        wrong = np.where(Y[row], -np.inf, scores).argmax()
        violated = own[scores[wrong] - scores[own] + 1 > 0]
        printed[violated] += X[row]
        printed[wrong] -= X[row] * (violated.size > 0)
    assert abs(np.vdot(printed, D) - slopes[0]) > 0.1 * abs(slopes[0])


def test_value_and_gradient_on_factors_are_those_of_the_matrix() -> None:
    rng = np.random.default_rng(1)
    cost, manifold = LabelRanking(*make_data(rng, 9, 7)), FixedRankEmbedded(9, 7, 3)
    point = manifold.random_point(rng)
    W = manifold.to_dense(point)
    assert cost.value(point) == pytest.approx(cost.value(W))
    np.testing.assert_allclose(cost.gradient(point) @ np.eye(7), cost.gradient(W) @ np.eye(7))


def test_splitmix_gives_the_published_numbers() -> None:
    # The first outputs of splitmix64 for seed 1234567 (Vigna's reference implementation).
    state = np.uint64(1234567)
    for expected in (6457827717110365317, 3203168211198807973, 9817491932198370423):
        share = (expected >> 11) * 2.0**-53
        state, found = below(np.uint64(state), 10**9)
        assert found == int(share * 10**9)


def test_warp_draws_are_uniform_and_weighted_by_the_estimated_rank() -> None:
    rng = np.random.default_rng(2)
    n_labels, own = 20, [3, 7]
    Y = np.isin(np.arange(n_labels), own)[None]
    cost = WarpRanking(np.ones((1, 1)), Y)
    scores = np.linspace(0, 3, n_labels)
    found = [cost.violation(scores, 0, int(seed)) for seed in rng.integers(2**62, size=20_000)]
    assert None not in found
    right, wrong, weight = (np.array(part) for part in zip(*found, strict=True))  # type: ignore[arg-type]
    np.testing.assert_allclose(np.mean(right == 3), 0.5, atol=0.02)
    # Given label 7 every violator is equally likely: those within 1 of its score.
    violators = [s for s in range(n_labels) if s not in own and scores[s] - scores[7] + 1 > 0]
    counts = np.bincount(wrong[right == 7], minlength=n_labels)
    assert set(np.flatnonzero(counts)) == set(violators)
    expected = np.sum(right == 7) / len(violators)
    assert np.abs(counts[violators] - expected).max() < 5 * np.sqrt(expected)
    # One try: all 18 wrong labels are estimated to rank higher.
    harmonic = np.cumsum(1 / np.arange(1, 19))
    assert weight.max() == pytest.approx(harmonic[17])
    assert set(np.round(weight, 12)) <= set(np.round(harmonic, 12))


def test_warp_stops_when_nothing_violates() -> None:
    cost = WarpRanking(np.ones((1, 1)), [[1, 0, 0]])
    assert cost.violation(np.array([5.0, 0.0, 1.0]), 0, 1) is None
    assert WarpRanking(np.ones((1, 1)), [[1, 1, 1]]).violation(np.zeros(3), 0, 1) is None


# The compiled engine


COMPILED = [one for one in FIXED_RANK_RETRACTIONS.values() if one.kernel is not None]


@pytest.mark.parametrize("retraction", COMPILED, ids=repr)
@pytest.mark.parametrize("kind", [LabelRanking, WarpRanking])
@pytest.mark.parametrize(("n_labels", "n", "k"), [(12, 20, 4), (30, 15, 5), (7, 9, 1)])
def test_compiled_follows_the_reference(
    kind: type[LabelRanking], retraction: Retraction, n_labels: int, n: int, k: int
) -> None:
    rng = np.random.default_rng([n_labels, n])
    cost, manifold = kind(*make_data(rng, n_labels, n)), FixedRankEmbedded(n_labels, n, k)
    start, schedule, etas = manifold.random_point(rng), draw(rng, cost, 200), np.full(200, 0.02)
    ends = []
    for name in ("compiled", "reference"):
        engine = choose_engine(Problem(manifold, cost), retraction, name)
        state = engine.advance(engine.load(start), schedule, etas)
        assert state.updates > 100
        ends.append(manifold.to_dense(engine.dump(state)))
    assert relative(ends[0], ends[1]) < 1e-10
    assert relative(ends[1], manifold.to_dense(start)) > 0.1
    engine = choose_engine(Problem(manifold, cost), retraction, "compiled")
    for cut in (1, 80, 199):
        state = engine.advance(engine.load(start), schedule[:cut], etas[:cut])
        split = engine.dump(engine.advance(state, schedule[cut:], etas[cut:]))
        np.testing.assert_array_equal(manifold.to_dense(split), ends[0])


@pytest.mark.parametrize("kind", [LabelRanking, WarpRanking])
def test_ill_conditioned_starts_are_followed(kind: type[LabelRanking]) -> None:
    rng = np.random.default_rng(4)
    cost, manifold = kind(*make_data(rng, 30, 25)), FixedRankEmbedded(30, 25, 5)
    U, V = (np.linalg.qr(rng.standard_normal((width, 5)))[0] for width in (30, 25))
    start = manifold.from_factors(U * np.logspace(0, -6, 5), V)
    schedule, etas = draw(rng, cost, 2000), np.full(2000, 1e-3)
    ends = []
    for name in ("compiled", "reference"):
        engine = choose_engine(Problem(manifold, cost), None, name)
        ends.append(manifold.to_dense(engine.dump(engine.advance(engine.load(start), schedule, etas))))
    assert relative(ends[0], ends[1]) < 1e-8


# Starts and the estimator


def test_the_zero_start_makes_no_row_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, sizes = np.random.default_rng(0), []
    X = sp.random_array((50, 10_000), density=0.01, format="csr", random_state=rng)
    cost, made = WarpRanking(X, rng.random((50, 6)) < 0.3), sp.csr_array.toarray
    monkeypatch.setattr(sp.csr_array, "toarray", lambda rows: sizes.append(np.prod(rows.shape)) or made(rows))
    starting_point(FixedRankEmbedded(6, 10_000, 3), cost, "zero", 0)
    assert 0 < max(sizes) < 10_000


def test_the_zero_start_is_the_truncated_sum_of_the_first_subgradients() -> None:
    rng = np.random.default_rng(5)
    X, Y = make_data(rng, 12, 10)
    cost, manifold = LabelRanking(X, Y), FixedRankEmbedded(12, 10, 3)
    W, count = np.zeros((12, 10)), 0
    for row in np.random.default_rng(7).permutation(60):
        G = cost.term_gradient(W, np.array([row])) @ np.eye(10)
        if G.any() and count < 6:
            W, count = W - 0.5 * G, count + 1
    U, sigma, Vt = np.linalg.svd(W)
    point = starting_point(manifold, cost, "zero", 7, 0.5)
    np.testing.assert_allclose(manifold.to_dense(point), (U[:, :3] * sigma[:3]) @ Vt[:3], atol=1e-12)
    with pytest.raises(InvalidInputError, match="init = 'ones' is unknown; choose one of zero, identity"):
        starting_point(manifold, cost, "ones", 0)
    empty = LabelRanking(X, np.zeros_like(Y))
    for few, found in ((empty, 0), (LabelRanking(X[:2], np.eye(12)[:2]), 2)):
        with pytest.raises(
            InvalidInputError, match=f"found {found} subgradients for rank 3; a row has one if"
        ):
            starting_point(manifold, few, "zero", 0)


def test_the_default_rank_is_one_that_the_rows_have() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((12, 30)), rng.random((12, 40)) < 0.2
    model = LoretaLabelRanker(random_state=0).fit(X, Y)
    assert model.model_.point.rank == 8
    assert model.score(X, Y) > 0.7
    with pytest.raises(InvalidInputError, match="found 12 subgradients for rank 20"):
        LoretaLabelRanker(20, random_state=0).fit(X, Y)
    # More rows may follow.
    with pytest.raises(InvalidInputError, match="found 12 subgradients for rank 20"):
        LoretaLabelRanker(random_state=0).partial_fit(X, Y)


def multilabel_digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.column_stack([np.eye(10, dtype=int)[y], y % 2 == 0, y % 2 == 1, y < 5, y >= 5])


@pytest.mark.parametrize("init", ["zero", "identity", "gaussian"])
def test_the_scale_of_the_data_changes_no_score(init: str) -> None:
    """Powers of two change no bit: step size and start are in the units of the data."""
    X, Y = make_multilabel_classification(60, 12, n_classes=5, random_state=0)
    found = [
        LoretaLabelRanker(rank=3, n_epochs=3, random_state=0, init=init)
        .fit(unit * X, Y)
        .decision_function(unit * X)
        for unit in (1.0, 2.0**-20, 2.0**10)
    ]
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


@pytest.mark.parametrize("sampling", ["warp", "exact"])
@pytest.mark.parametrize("init", ["zero", "identity", "gaussian"])
def test_the_estimator_learns(sampling: str, init: str) -> None:
    X, Y = multilabel_digits()
    model = LoretaLabelRanker(rank=6, init=init, sampling=sampling, random_state=0)
    model.fit(X[:1200], Y[:1200])
    chance = mean_average_precision(np.tile(Y[:1200].mean(axis=0), (597, 1)), Y[1200:])
    assert chance < 0.65
    assert model.score(X[1200:], Y[1200:]) > 0.8
    predicted = model.predict(X[1200:])
    assert model.top_k_ == 3
    np.testing.assert_array_equal(predicted.sum(axis=1), 3)
    best = model.decision_function(X[1200:]).argmax(axis=1)
    assert predicted[np.arange(597), best].all()
    again = LoretaLabelRanker(rank=6, init=init, sampling=sampling, random_state=0)
    again.fit(sp.csr_array(X[:1200]), sp.csr_array(Y[:1200]))
    sparse = sp.csr_array(X[:5])
    np.testing.assert_array_equal(again.decision_function(sparse), model.decision_function(sparse))


def test_save_load_and_partial_fit(tmp_path: Path) -> None:
    X, Y = multilabel_digits()
    model = LoretaLabelRanker(rank=6, n_epochs=2, random_state=0).fit(X, Y)
    model.save(tmp_path / "model.npz")
    loaded = LoretaLabelRanker.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.rank == 6
    assert loaded.partial_fit(X[:100], Y[:100]).n_iter_ == 2 * len(X) + 100
    with pytest.raises(InvalidInputError, match="Y has 3 labels, and the model was fitted with 14"):
        loaded.partial_fit(X, Y[:, :3])


def test_scores_are_scikit_learns_where_both_rank() -> None:
    rng = np.random.default_rng(6)
    scores, Y = rng.integers(5, size=(50, 8)).astype(float), rng.random((50, 8)) < 0.3
    Y[:, 0], Y[:, 1] = True, False
    assert mean_average_precision(scores, Y) == pytest.approx(
        label_ranking_average_precision_score(Y, scores)
    )
    with_empty = np.vstack([Y, np.zeros((10, 8), bool), np.ones((5, 8), bool)])
    more = np.vstack([scores, np.zeros((15, 8))])
    assert mean_average_precision(more, with_empty) == pytest.approx(mean_average_precision(scores, Y))
    for bad, message in (
        ((np.zeros((2, 3)), np.zeros((2, 3))), "no row of Y has both true and wrong labels"),
        ((np.zeros((2, 3)), np.zeros((2, 4))), r"shape \(2, 4\)"),
        ((np.full((1, 2), np.nan), [[1, 0]]), "NaN or infinity"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            mean_average_precision(*bad)


def test_precision_counts_the_first_places() -> None:
    rng = np.random.default_rng(7)
    scores, Y = rng.permuted(np.tile(np.arange(7.0), (40, 1)), axis=1), rng.random((40, 7)) < 0.3
    found = precision_at(scores, Y, (k for k in (1, 3, 7)))
    for k in (1, 3, 7):
        hits = np.take_along_axis(Y, np.argsort(-scores, axis=1)[:, :k], axis=1)
        assert found[k] == pytest.approx(np.mean(hits), rel=1e-13)


def test_scikit_learn_tools_take_the_estimator() -> None:
    X, Y = multilabel_digits()
    model = LoretaLabelRanker(rank=3, n_epochs=1, random_state=0)
    with pytest.raises(NotFittedError):
        model.predict(X)
    search = GridSearchCV(clone(model), {"rank": [1, 6]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"rank": 6}
    with pytest.raises(ValueError, match="X has 63 features, but LoretaLabelRanker is expecting 64"):
        search.best_estimator_.predict(X[:, :63])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.fit(np.full_like(X, np.nan), Y)


def test_epochs_show_every_row_once() -> None:
    X, Y = make_data(np.random.default_rng(0), 6, 5)
    for kind in (LabelRanking, WarpRanking):
        cost = kind(X, Y)
        drawn = epochs(cost).draw(np.random.default_rng(0), 0, 60)
        assert drawn.shape == (60, cost.term_width)
        np.testing.assert_array_equal(np.sort(drawn[:, 0]), np.arange(60))


def test_runs_resume_to_the_bit(tmp_path: Path) -> None:
    from rmopt.solvers import Checkpoint

    X, Y = make_data(np.random.default_rng(0), 6, 5)
    cost, manifold = WarpRanking(X, Y), FixedRankEmbedded(6, 5, 2)
    problem, checkpoint = Problem(manifold, cost), Checkpoint(tmp_path / "state.npz")
    solver = SGD(0.02, max_iter=600, sampler=epochs(cost))
    whole = solver.run(problem, manifold.identity(), random_state=1, checkpoint=checkpoint)
    again = solver.run(problem, manifold.identity(), random_state=1, checkpoint=checkpoint)
    np.testing.assert_array_equal(manifold.to_dense(again.point), manifold.to_dense(whole.point))


def test_labels_are_zeros_and_ones() -> None:
    X, Y = np.eye(4), np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
    for labels in (2 * Y - 1, Y + 1, 0.5 * Y, sp.csr_array(2.0 * Y)):
        with pytest.raises(InvalidInputError, match="Y must be a table of the numbers 0 and 1"):
            LabelRanking(X, labels)
