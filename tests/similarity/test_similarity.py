"""LORETA's estimator, its baselines and its triplets."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

from problems.loreta import LowRankModel
from problems.rows import natural_size
from problems.similarity import ClassTriplets, LoretaSimilarity
from problems.similarity.baselines import FactoredGradientDescent, PassiveAggressive
from problems.similarity.experiment import CURVE_QUERIES, Similarity
from rmopt import InvalidInputError, Problem
from rmopt.core import StorageError
from rmopt.costs import TripletSum
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import InverseTime


def quick(**changes: object) -> LoretaSimilarity:
    return LoretaSimilarity(**{"rank": 8, "max_iter": 4000, "random_state": 0, **changes})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([LoretaSimilarity(max_iter=500)])
def test_scikit_learn_contract(estimator: LoretaSimilarity, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def test_learning_beats_the_start_and_sparse_equals_dense(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    dense = quick(max_iter=30_000).fit(X[:1000], y[:1000])
    sparse = quick(max_iter=30_000).fit(sp.csr_matrix(X[:1000]), y[:1000])
    np.testing.assert_array_equal(dense.model_.point.U, sparse.model_.point.U)
    start = LowRankModel(FixedRankEmbedded(64, 64, 8).identity())
    untrained = quick()
    untrained.model_, untrained.n_features_in_ = start, 64
    assert dense.score(X[1000:], y[1000:]) > untrained.score(X[1000:], y[1000:]) + 0.2


def test_similarity_is_the_product_of_the_embeddings(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    model = quick().fit(X, y)
    point = model.model_.point
    expected = X[:4] @ point.U @ point.S @ point.V.T @ X[:6].T
    np.testing.assert_allclose(model.similarity(X[:4], X[:6]), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        model.transform_queries(X[:4]) @ model.transform(X[:6]).T, expected, rtol=1e-12, atol=1e-12
    )


def test_equal_seeds_give_equal_bits_and_others_do_not(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    first, again, other = (quick(random_state=seed).fit(X, y).transform(X[:9]) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_partial_fit_goes_on_and_gathers_classes(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    model = quick()
    model.partial_fit(X[y < 5], y[y < 5])
    steps = model.n_iter_
    assert steps == 10 * np.sum(y < 5)
    model.partial_fit(X[y >= 5], y[y >= 5], max_iter=500)
    assert model.n_iter_ == steps + 500
    np.testing.assert_array_equal(model.classes_, np.arange(10))


def test_fit_triplets_sees_every_triplet(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    triplets = ClassTriplets(y).draw(np.random.default_rng(0), 0, 3000)
    model = quick(max_iter=30_000).fit_triplets(X, triplets)
    query, positive, negative = triplets.T
    scores = model.transform_queries(X)[query] * (model.transform(X)[positive] - model.transform(X)[negative])
    assert np.mean(scores.sum(axis=1) > 0) > 0.9


def test_save_and_load(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = digits
    model = quick().fit(X, y)
    model.save(tmp_path / "model.npz")
    loaded = LoretaSimilarity.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.similarity(X[:3], X), model.similarity(X[:3], X))
    assert (loaded.n_updates_, loaded.rank) == (model.n_updates_, 8)
    model.classes_ = np.array(["2026-11-24"], "datetime64[D]")
    with pytest.raises(InvalidInputError, match="classes_ must be text or numbers to be written to a file"):
        model.save(tmp_path / "model.npz")
    (tmp_path / "model.npz").write_bytes(b"not a model")
    with pytest.raises(StorageError, match=r"not a file that rmopt can read"):
        LoretaSimilarity.load(tmp_path / "model.npz")


def test_parameters_are_saved_but_objects_are_not(tmp_path: Path) -> None:
    model = LoretaSimilarity(4, psd=True, step_size=0.02, max_iter=50, random_state=3).fit(X, y)
    model.save(tmp_path / "model.npz")
    assert LoretaSimilarity.load(tmp_path / "model.npz").get_params() == model.get_params()
    with pytest.raises(InvalidInputError, match=r"step_size = InverseTime.* cannot be written"):
        model.set_params(step_size=InverseTime(0.1, 0.1)).save(tmp_path / "model.npz")


def test_checkpoint_of_a_finished_fit_is_its_result(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = digits
    model = quick(checkpoint=tmp_path / "fit.npz", step_size=0.005).fit(X, y)
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    # It says what the user changed, and not what became of it within the run.
    with pytest.raises(InvalidInputError, match="belongs to another run: its X is"):
        clone(model).fit(X[:900], y[:900])
    with pytest.raises(InvalidInputError, match="another run"):
        clone(model).fit_stream([(X, y)])
    with pytest.raises(InvalidInputError, match=r"another run: its step_size is 0\.005, not 0\.01"):
        clone(model).set_params(step_size=0.01).fit(X, y)


@pytest.mark.parametrize("retraction", ["metric-projection", "orthographic"])
def test_swapping_the_retraction_changes_the_path(
    digits: tuple[np.ndarray, np.ndarray], retraction: str
) -> None:
    X, y = digits
    here, there = (
        quick(retraction=kind, step_size=0.1).fit(X, y).similarity(X[:3], X[:3])
        for kind in (retraction, "second-order")
    )
    assert np.abs(here - there).max() > 1e-3


def test_empty_rows_change_nothing_but_the_draw(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    X = X.copy()
    X[::7] = 0
    model = quick().fit(X, y)
    assert np.isfinite(model.transform(X)).all()
    np.testing.assert_array_equal(model.transform(X[::7]), 0)


def test_triplets_are_uniform_and_right() -> None:
    y = np.array([2, 0, 1, 0, 2, 2, 3])  # 1 and 3 are alone in their classes
    triplets = ClassTriplets(y).draw(np.random.default_rng(0), 0, 60_000)
    query, positive, negative = triplets.T
    assert (y[query] == y[positive]).all()
    assert (query != positive).all()
    assert (y[query] != y[negative]).all()
    seen, counts = np.unique(triplets, axis=0, return_counts=True)
    # Queries: 5 rows; class 0 has 1 positive and 5 negatives, class 2 has 2 and 4.
    chance = np.where(y[seen[:, 0]] == 0, 1 / (5 * 1 * 5), 1 / (5 * 2 * 4))
    assert len(seen) == 2 * 5 + 3 * 2 * 4
    np.testing.assert_allclose(counts / 60_000, chance, rtol=0.15)


@pytest.mark.parametrize("init", ["identity", "gaussian"])
def test_the_scale_of_the_data_changes_no_score(digits: tuple[np.ndarray, np.ndarray], init: str) -> None:
    """Powers of two change no bit: step size and start are in the units of the data."""
    X, y = digits
    found = [
        LoretaSimilarity(rank=6, max_iter=2000, random_state=0, init=init)
        .fit(unit * X, y)
        .transform(unit * X[:3])
        for unit in (1.0, 2.0**-20, 2.0**10)
    ]
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


def test_natural_size_follows_the_scale(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows = sp.csr_array(digits[0])
    assert natural_size(3 * rows, 1.0, 2) == pytest.approx(natural_size(rows, 1.0, 2) / 81)
    assert natural_size(sp.csr_array(np.eye(4)), 1.0, 2) == 1.0


def factored_step(A: np.ndarray, B: np.ndarray, q: np.ndarray, d: np.ndarray, eta: float) -> None:
    """Shalit et al. 2012, §7.1.4, 1, with d = p₊ − p₋."""
    if 1 - q @ A @ B.T @ d > 0:
        A[:], B[:] = A + eta * np.outer(q, d @ B), B + eta * np.outer(d, q @ A)


def passive_aggressive_step(A: np.ndarray, B: np.ndarray, q: np.ndarray, d: np.ndarray, C: float) -> None:
    """§7.1.4, 3: A given B, then B given the new A."""
    loss = max(0.0, 1 - q @ A @ B.T @ d)
    if loss > 0:
        A += min(loss / ((q @ q) * np.sum((d @ B) ** 2)), C) * np.outer(q, d @ B)
        loss = max(0.0, 1 - q @ A @ B.T @ d)
        B += min(loss / ((d @ d) * np.sum((q @ A) ** 2)), C) * np.outer(d, q @ A)


@pytest.mark.parametrize(
    ("solver", "step", "eta"),
    [(FactoredGradientDescent, factored_step, 0.05), (PassiveAggressive, passive_aggressive_step, 0.2)],
)
def test_baselines_follow_their_formulas(solver: type, step: object, eta: float) -> None:
    rng = np.random.default_rng(0)
    X = sp.random_array((40, 25), density=0.3, random_state=rng).tocsr()
    y = rng.integers(3, size=40)
    manifold = FixedRankEmbedded(25, 25, 4)
    start = manifold.random_point(rng)
    sampler = ClassTriplets(y)
    result = solver(eta, max_iter=500, sampler=sampler).run(
        Problem(manifold, TripletSum(X, X)), start, random_state=5
    )
    schedule = sampler.draw(np.random.default_rng([5, 1, 0]), 0, sampler.block_size)[:500]
    A, B = start.balanced_factors()
    dense = X.toarray()
    for query, positive, negative in schedule:
        step(A, B, dense[query], dense[positive] - dense[negative], eta)  # type: ignore[operator]
    np.testing.assert_allclose(manifold.to_dense(result.point), A @ B.T, rtol=1e-10, atol=1e-12)
    assert result.updates > 100


def test_batches_of_triplets() -> None:
    y = np.arange(60) % 4
    batches = ClassTriplets(y, batch_size=3).draw(np.random.default_rng(0), 0, 50)
    single = ClassTriplets(y).draw(np.random.default_rng(0), 0, 150)
    np.testing.assert_array_equal(batches.reshape(-1, 3), single)
    with pytest.raises(InvalidInputError, match="batch_size = 0 must be an integer"):
        ClassTriplets(y, batch_size=0)


def test_psd_similarities_are_inner_products(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = digits
    model = LoretaSimilarity(rank=6, psd=True, step_size=0.02, max_iter=5000, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.transform(X), model.transform_queries(X))
    scores = model.similarity(X[:20], X[:20])
    np.testing.assert_allclose(scores, scores.T, atol=1e-12)
    assert np.linalg.eigvalsh(scores)[0] > -1e-10
    model.save(tmp_path / "psd.npz")
    loaded = LoretaSimilarity.load(tmp_path / "psd.npz")
    assert loaded.psd
    np.testing.assert_allclose(loaded.similarity(X[:20], X[:20]), scores)
    general = LoretaSimilarity(rank=6, step_size=0.02, max_iter=5000, random_state=0).fit(X, y)
    asymmetry = general.similarity(X[:20], X[:20])
    assert np.abs(asymmetry - asymmetry.T).max() > 1e-3
    projected = LoretaSimilarity(
        rank=6, psd=True, retraction="metric-projection", max_iter=200, random_state=0
    )
    assert projected.fit(X, y).model_.point.rank == 6  # type: ignore[union-attr]
    with pytest.raises(
        InvalidInputError, match="retraction = 'orthographic' is unknown; choose one of second"
    ):
        LoretaSimilarity(rank=6, psd=True, retraction="orthographic").fit(X, y)


def test_parameters_are_chosen_by_queries_of_all_classes() -> None:
    y = np.repeat([0, 1], CURVE_QUERIES)
    # Rows of the first class are alike, and of the second few.
    X = np.where(y[:, None] == 0, np.eye(8)[0], np.eye(8)[1 + np.arange(len(y)) % 7])
    assert Similarity.score(Normalizer(), X, y) < 0.9


X = np.random.default_rng(0).standard_normal((60, 12))
y = np.arange(60) % 3


def test_a_start_that_no_row_touches_is_told() -> None:
    hashed: Any = np.hstack([np.zeros((60, 5)), X])
    model = LoretaSimilarity(6, max_iter=200, random_state=0)
    with pytest.warns(UserWarning, match="^most of the first 6 features.* Give init = 'gaussian'") as told:
        model.fit(hashed, y)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(hashed[:, 3:], y)
        model.set_params(init="gaussian").fit(hashed, y)


def test_labels_keep_all_of_their_digits_between_chunks_of_other_types() -> None:
    """numpy joins signed and unsigned integers to floats, which know 53 bits of them."""
    large = 2**63 + np.arange(3, dtype=np.uint64)
    model = quick(rank=2).partial_fit(X, y).partial_fit(X, large[y])
    assert model.classes_.tolist() == [0, 1, 2, *large.tolist()]
