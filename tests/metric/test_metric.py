"""COMET and its baselines: estimators, oracles, data, experiment."""

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from cells_kept import cells_in
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from tabled import each_row

from problems.comparison import Row
from problems.data import load
from problems.data.text import informative_unit_rows
from problems.evaluation import evaluate_retrieval, matrix_scores
from problems.kernels import log_det_weight
from problems.metric import BoostMetric, CometMetric, EuclideanMetric, HdslMetric, LegoMetric
from problems.metric.baselines import _leading
from problems.metric.estimators import between_classes
from problems.metric.experiment import METHODS, metric_claims
from problems.triplets import ClassTriplets, NeighborTriplets
from rmopt import InvalidInputError
from rmopt.core import StorageError
from rmopt.errors import DivergedError

SMALL = [
    CometMetric(n_epochs=2, random_state=0),
    EuclideanMetric(),
    LegoMetric(random_state=0),
    BoostMetric(10, random_state=0),
    HdslMetric(max_iter=50, random_state=0),
]


# What the baselines do not take over from the class that they share with COMET.
OF_EACH = (
    "check_transformer_general",
    "check_dict_unchanged",
    "check_dont_overwrite_attributes",
    "check_fit_score_takes_y",
)


@parametrize_with_checks(SMALL[:1])
def test_scikit_learn_accepts_it(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("estimator", SMALL[1:], ids=lambda one: type(one).__name__)
def test_scikit_learn_accepts_the_baselines(estimator: Any) -> None:
    checks = [
        (one, check) for one, check in estimator_checks_generator(estimator) if check.func.__name__ in OF_EACH
    ]
    assert len(checks) >= len(OF_EACH)
    for one, check in checks:
        check(one)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    X = X[:600] / np.linalg.norm(X[:600], axis=1, keepdims=True)
    return X, y[:600]


@pytest.mark.parametrize("estimator", SMALL, ids=lambda one: type(one).__name__)
def test_distances_are_those_of_the_matrix(estimator: Any, digits: Any) -> None:
    X, y = digits
    metric = estimator.fit(X, y)
    W, Z = metric.get_mahalanobis_matrix(), metric.transform(X[:5])
    difference = X[0] - X[1]
    distance = np.sqrt(difference @ W @ difference)
    assert np.linalg.norm(Z[0] - Z[1]) == pytest.approx(distance, rel=1e-9)
    assert np.allclose(metric.components_.T @ metric.components_, W, atol=1e-9 * np.abs(W).max())
    assert np.linalg.eigvalsh(W)[0] > -1e-9 * np.abs(W).max()
    again = estimator.fit(sp.csr_array(X), y)
    assert np.allclose(again.get_mahalanobis_matrix(), W, rtol=1e-6, atol=1e-8 * np.abs(W).max())


def precision_at_10(W: np.ndarray, X: np.ndarray, y: np.ndarray, rank_by: str) -> float:
    return evaluate_retrieval(matrix_scores(W, X, distance=rank_by == "distance"), y, ks=(10,)).precision_at[
        10
    ]


@pytest.mark.parametrize(
    ("estimator", "rank_by"),
    [
        (CometMetric(random_state=0), "distance"),
        (CometMetric(compare="similarity", random_state=0), "similarity"),
        (CometMetric(compare="similarity", loss="hinge", random_state=0), "similarity"),
        (LegoMetric(random_state=0), "distance"),
        (BoostMetric(max_iter=30, random_state=0), "distance"),
        (HdslMetric(max_iter=1000, random_state=0), "similarity"),
    ],
    ids=str,
)
def test_each_method_improves_on_the_plain_distance(estimator: Any, rank_by: str) -> None:
    bundle = informative_unit_rows(load("digits").resplit(0, 0.2))
    X, y = bundle.X[bundle.test], bundle.y[bundle.test]
    W = estimator.fit(bundle.X[bundle.train], bundle.y[bundle.train]).get_mahalanobis_matrix()
    assert precision_at_10(W, X, y, rank_by) > precision_at_10(np.eye(64), X, y, "distance") + 0.02


def test_scores_rank_as_distances_do() -> None:
    rng = np.random.default_rng(0)
    X, root = rng.standard_normal((7, 4)), rng.standard_normal((4, 4))
    W = root @ root.T
    rows = np.arange(7)
    squares = np.array([[(a - b) @ W @ (a - b) for b in X] for a in X])
    for data in (X, sp.csr_array(X)):
        assert np.array_equal(np.argsort(-matrix_scores(W, data, distance=True)(rows)), np.argsort(squares))
        assert np.allclose(matrix_scores(W, data)(rows), X @ W @ X.T)


@each_row(
    "metric",
    [
        CometMetric(compare="similarity", random_state=0),
        CometMetric(compare="distance", prior=1.0, random_state=0),
        CometMetric(compare="distance", prior=0.2, random_state=0),
        HdslMetric(max_iter=50, random_state=0),
        BoostMetric(10, random_state=0),
        LegoMetric(random_state=0),
    ],
)
def test_the_scale_of_the_data_changes_no_metric(metric: Any) -> None:
    """Nor does what all rows have in common change one of distances."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.integers(2, size=40)
    X[::3, 1] = 0.0
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    W = metric.fit(X, y).mahalanobis_
    for form in (sp.csr_array(X), np.repeat(X, 2, axis=1)[:, ::2]):
        assert np.array_equal(metric.fit(form, y).mahalanobis_, W)
    for scale in (1e-3, 1e-25, 1e25):
        # What LEGO aims at are distances, in the units of the data themselves.
        unit = 1.0 if isinstance(metric, LegoMetric) else scale**2
        np.testing.assert_allclose(metric.fit(scale * X, y).mahalanobis_ * unit, W, rtol=1e-6)
    if metric.ranks_by == "distance":
        moved = metric.fit(sp.csr_array(X + 3.0), y).mahalanobis_
        np.testing.assert_allclose(moved, W, rtol=1e-6)
    else:
        given = {"beta": 1e-5} if isinstance(metric, CometMetric) else {"scale": 1000.0}
        assert np.array_equal(W, metric.set_params(**given).fit(X, y).mahalanobis_)


def test_rows_that_are_alike_have_no_scale() -> None:
    """What rounding leaves of their spread was taken for one, and W was 10¹⁷."""
    X, y = sp.csr_array(np.full((10, 3), 0.1)), np.arange(10) % 2
    assert np.abs(CometMetric(compare="distance", random_state=0).fit(X, y).mahalanobis_).max() < 10.0


def test_neighbour_triplets_are_the_nearest_ones() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((40, 3)), rng.integers(4, size=40)
    y[0] = 9
    drawn = NeighborTriplets(X, y, n_positives=2, n_negatives=3).draw(rng, 0, 3000)
    between = ((X[:, None] - X) ** 2).sum(axis=2)
    np.fill_diagonal(between, np.inf)
    same = y[:, None] == y
    expected = {
        (q, p, n)
        for q in range(40)
        for p in np.argsort(np.where(same[q], between[q], np.inf))[: min(2, (y == y[q]).sum() - 1)]
        for n in np.argsort(np.where(same[q], np.inf, between[q]))[:3]
    }
    assert {tuple(one) for one in drawn.tolist()} == expected
    assert 0 not in drawn[:, 0]
    again = NeighborTriplets(sp.csr_array(X), y, 2, 3).draw(np.random.default_rng(0), 0, 50)
    assert np.array_equal(again, NeighborTriplets(X, y, 2, 3).draw(np.random.default_rng(0), 0, 50))
    # Such as that of dates in seconds; rounded, so that it takes no digits away.
    offset = NeighborTriplets(np.round(X * 2**16) / 2**16 + 2.0**31, y, 2, 3)
    assert np.array_equal(again, offset.draw(np.random.default_rng(0), 0, 50))
    for flawed, why in ((X[:-1], "rows, and y"), (X * np.nan, "finite numbers"), ("x", "no rows")):
        with pytest.raises(InvalidInputError, match=why):
            NeighborTriplets(flawed, y)


def test_distances_are_for_votes_of_neighbours() -> None:
    """Stripes of two classes across one of five features: no class is in one place, as similarities would have it."""
    rng = np.random.default_rng(1)
    X = rng.normal(0.0, 0.5, (600, 5))
    X[:, 0] = rng.uniform(0.0, 4.0, 600)
    y = X[:, 0].astype(int) % 2
    plain, similarity, near = (
        make_pipeline(metric, KNeighborsClassifier(3)).fit(X[:300], y[:300]).score(X[300:], y[300:])
        for metric in (
            EuclideanMetric(),
            CometMetric(compare="similarity", random_state=0),
            CometMetric(compare="distance", prior=1.0, random_state=0),
        )
    )
    assert similarity + 0.1 < near
    assert near > plain + 0.01
    # What folds choose is the last one.
    chosen = CometMetric(random_state=0).fit(X[:300], y[:300])
    assert chosen.compare_ == "distance"
    near = CometMetric(compare="distance", prior=chosen.prior_, random_state=0).fit(X[:300], y[:300])
    assert np.array_equal(chosen.mahalanobis_, near.mahalanobis_)


@each_row("prior", [0.02, 0.5, 1.0])
def test_the_prior_is_a_linear_discriminant_analysis_of_all_directions(prior: float) -> None:
    X, y = load_wine(return_X_y=True)
    X = X / X.std(axis=0)
    means = np.array([X[y == label].mean(axis=0) for label in range(3)])[y]
    within, between = np.cov((X - means).T, bias=True), np.cov(means.T, bias=True)
    shrinkage = 0.5 + 0.5 * prior
    within = (1 - shrinkage) * within + shrinkage * np.trace(within) / 13 * np.eye(13)
    L = between_classes(X, y, prior)
    ratios, counts = np.linalg.inv(within) @ between, L.T @ L @ within
    spread = np.linalg.eigvals(ratios).real
    expected = np.sort(np.maximum(spread / (1 + spread), prior))
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(counts).real), expected)
    np.testing.assert_allclose(counts @ ratios, ratios @ counts, atol=1e-9)
    if prior == 1.0:
        np.testing.assert_allclose(L.T @ L, (L.T @ L)[0, 0] * np.eye(13), atol=1e-9)


def learned(estimator: Any, X: Any, triplets: np.ndarray) -> np.ndarray:
    return estimator.fit_triplets(X, triplets).get_mahalanobis_matrix()


@pytest.mark.parametrize("best", [1e-3, 1e-12])
def test_the_best_direction_is_found_however_little_it_gains(best: float) -> None:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    values = np.append(-np.geomspace(1e-10, 1.0, 39), best)
    value, vector = _leading(np.eye(40), vectors * values @ vectors.T, np.ones(40))
    np.testing.assert_allclose(value, 2.0 * best, rtol=1e-3)
    np.testing.assert_allclose(abs(vector @ vectors[:, -1]), 1.0, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_boosting_comes_near_the_least_cost(seed: int) -> None:
    """The cost log Σ exp(−⟨A_t, W⟩) + v tr W over positive semidefinite W, against L-BFGS on a factor.

    Learners keep the weights that they have, so that the least one is not reached.
    """
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((30, 3)), rng.integers(3, size=30)
    triplets = ClassTriplets(y).draw(rng, 0, 60)
    q, p, n = (X[column] for column in triplets.T)

    def cost(W: np.ndarray) -> float:
        far, near = (np.einsum("ti,ij,tj->t", q - other, W, q - other) for other in (n, p))
        return float(np.log(np.exp(near - far).sum()) + 0.3 * np.trace(W))

    begun, ended = cost(np.zeros((3, 3))), cost(learned(BoostMetric(2000, penalty=0.3), X, triplets))
    least = min(
        minimize(lambda flat: cost(flat.reshape(3, 3) @ flat.reshape(3, 3).T), rng.standard_normal(9)).fun
        for _ in range(3)
    )
    assert 0.85 < (begun - ended) / (begun - least) < 1.0 + 1e-9


def test_hdsl_takes_the_best_basis_and_convex_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((30, 4)), rng.integers(3, size=30)
    triplets = ClassTriplets(y).draw(rng, 0, 60)
    q, p, n = (X[column] for column in triplets.T)

    def slope(W: np.ndarray) -> np.ndarray:
        return np.clip(np.einsum("ti,ij,tj->t", q, W, p - n) - 1.0, -1.0, 0.0)

    expected = np.zeros((4, 4))
    bases = [
        2.0 * np.outer(v, v)
        for i in range(4)
        for j in range(i + 1, 4)
        for v in (np.eye(4)[i] + np.eye(4)[j], np.eye(4)[i] - np.eye(4)[j])
    ]
    # The diagonal of the gradient is new at every iteration here, and each feature is among so many candidates.
    monkeypatch.setattr("problems.metric.baselines.RENEW_EVERY", 1)
    for number in range(5):
        G = np.einsum("t,ti,tj->ij", slope(expected), q, p - n)
        share = 2.0 / (number + 2.0)
        best = min(bases, key=lambda basis: np.vdot(G, basis))
        expected = (1.0 - share) * expected + share * best
        draws = np.tile(np.arange(4), (number + 1, 1))
        monkeypatch.setattr("problems.metric.baselines.candidates", lambda *_, draws=draws: draws)
        assert np.allclose(learned(HdslMetric(2.0, max_iter=number + 1), X, triplets), expected)
    monkeypatch.undo()
    metric = HdslMetric(2.0, max_iter=200, random_state=0)
    W = learned(metric, sp.csr_array(X), triplets)
    assert np.trace(W) == pytest.approx(4.0)
    assert np.linalg.eigvalsh(W)[0] > -1e-12
    assert np.allclose(W, learned(metric, X, triplets))


def test_metrics_learn_from_given_triplets(digits: Any) -> None:
    X, y = digits
    triplets = ClassTriplets(y).draw(np.random.default_rng(0), 0, 500)
    for estimator in SMALL:
        if isinstance(estimator, EuclideanMetric):
            continue
        metric = estimator.fit(X[:60], y[:60]).fit_triplets(X, triplets)
        assert not hasattr(metric, "classes_")
        assert metric.transform(X[:3]).shape == (3, 64)
        with pytest.raises(InvalidInputError, match="numbers from"):
            estimator.fit_triplets(X, [[0, 1, 600]])


def test_comet_parameters_change_what_is_learned(digits: Any) -> None:
    X, y = digits
    base: dict[str, Any] = {"n_epochs": 1, "random_state": 0, "n_triplets": 300, "compare": "similarity"}
    plain = CometMetric(**base).fit(X, y).get_mahalanobis_matrix()
    for change in (
        {"alpha": 1e-2}, {"beta": 1e-2}, {"sparsity": 1e-4}, {"loss": "hinge"}, {"order": "cyclic"},
        {"retraction": "schur-exponential"}, {"step_size": 1e-3}, {"n_triplets": 200},
        {"random_state": 1}, {"n_epochs": 2}, {"compare": "distance"}, {"triplets": "neighbors"}, {"prior": 0.2},
    ):  # fmt: skip
        changed = CometMetric(**(base | change)).fit(X, y)
        assert not np.allclose(changed.get_mahalanobis_matrix(), plain), change
    early = CometMetric(**(base | {"tol": 1e9, "n_epochs": 3})).fit(X, y)
    assert (early.n_iter_, changed.n_iter_) == (64, 64)
    assert "residual" in early.stopped_by_


def test_comet_resumes(digits: Any, tmp_path: Path) -> None:
    X, y = (part[:150] for part in digits)
    checkpoint = tmp_path / "comet.npz"
    settings: dict[str, Any] = {"n_epochs": 2, "random_state": 0}
    whole = CometMetric(**settings).fit(X, y)
    first = CometMetric(checkpoint=checkpoint, **settings).fit(X, y)
    again = CometMetric(checkpoint=checkpoint, **settings).fit(X, y)
    assert checkpoint.exists()
    for metric in (first, again):
        assert np.array_equal(metric.mahalanobis_, whole.mahalanobis_)
    # What depends on the number of triplets, as alpha in the cost, is not what was changed.
    with pytest.raises(InvalidInputError, match="another run: its n_triplets is None, not 50"):
        CometMetric(checkpoint=checkpoint, n_triplets=50, **settings).fit(X, y)


def test_claims_follow_the_numbers() -> None:
    def row(name: str, level: float, curve: Any = ()) -> Row:
        cells = [
            dict.fromkeys(("precision_at_1", "precision_at_10"), level + 0.01 * split)
            | {"precision_at_50": None, "curve": curve, "seconds": 1.0}
            for split in range(3)
        ]
        return Row(METHODS[name].label if name in METHODS else "Own", {"method": name}, [], cells)

    settled = [[float(number), 0.5, min(number, 5) / 10] for number in range(1, 17)]
    late = [[float(number), 0.5, number / 20] for number in range(1, 17)]
    comet, hinge = row("comet", 0.5, settled), row("comet-hinge", 0.4, late)
    above, settles, not_settled = metric_claims([comet, hinge, row("lego", 0.45)])
    assert above.reproduced
    # At the depths of 1 and 10 that were measured.
    assert above.numbers.count("above, +0.050 ± 0.000") == 2
    assert settles.reproduced
    assert settles.numbers == "P@10 0.500 after 6, 0.500 after 8, 0.500 after 16"
    assert not_settled.reproduced is False
    assert metric_claims([comet, hinge, row("lego", 0.6)])[0].reproduced is False
    # Below at a single depth is enough.
    lego, own = row("lego", 0.45), row("own", 0.0)
    for cell in lego.cells:
        cell["precision_at_10"] += 0.2
    assert metric_claims([comet, hinge, lego])[0].reproduced is False
    own.cells = [dict.fromkeys(("precision_at_1", "precision_at_10", "seconds"))] * 3
    claims = metric_claims([comet, own])
    assert [claim.numbers for claim in claims if "Own" in claim.claim] == ["a model diverged"]
    assert metric_claims([row("comet", 0.5, settled[:9]), lego])[1].reproduced is None


def test_lda_takes_features_that_do_not_vary(digits: Any) -> None:
    X, y = digits
    assert (X.max(axis=0) == X.min(axis=0)).any()
    assert METHODS["lda"].made().fit(X, y).transform(X).shape == (len(X), 9)


def test_experiment_runs_and_resumes(tmp_path: Path, rmopt_run: Any) -> None:
    words = "--data digits --seeds 2 --passes 2 --triplets 500 --methods euclidean,comet,lda --scaling raw"
    command = [
        *words.split(),
        *["--features", "0", "--select-by", "votes", "--select", "first", "--folds", "2", "--out"],
        str(tmp_path),
    ]
    rmopt_run("metric", *command, "--quiet")
    result = json.loads((tmp_path / "result.json").read_text())
    assert [row["method"] for row in result["rows"]] == ["Euclidean", "COMET", "LDA"]
    assert all(0.1 < row["precision_at_10"] <= 1.0 for row in result["rows"])
    assert all(0.7 < row["votes"] <= 1.0 for row in result["rows"])
    assert (tmp_path / "precision.png").read_bytes().startswith(b"\x89PNG")
    cells = cells_in(tmp_path)
    again = json.loads(rmopt_run("metric", *command, "--resume", "--json").stdout)
    assert len(cells_in(tmp_path)) == len(cells)
    assert again["rows"] == result["rows"]


def test_image_sets(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="to be put into"):
        load("caltech101", tmp_path)
    (tmp_path / "caltech101_bow1000_derived.npz").write_bytes(b"broken")
    with pytest.raises(StorageError, match="damaged"):
        load("caltech101", tmp_path)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mnist.npz", X=rng.integers(256, size=(30, 28, 28)), y=np.arange(30) % 10, n_train=20)
    bundle = load("mnist", tmp_path)
    assert bundle.X.shape == (30, 784)
    assert bundle.test.sum() == 10
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no Caltech-101.")
    caltech = load("caltech101")
    assert caltech.X.shape == (3219, 1000)
    assert caltech.n_classes == 50
    assert np.bincount(caltech.y).max() == 65


def test_logdet_updates_keep_their_digits_and_the_metric_positive_definite() -> None:
    """The references have 60 digits (mpmath)."""
    assert log_det_weight(4e8, 1e8, 1.0) == pytest.approx(1.875e-9, rel=1e-12)
    assert log_det_weight(4e7, 1e7, 1.0) == pytest.approx(1.875e-8, rel=1e-6)
    data, target = load_wine(return_X_y=True)
    for scale in (1e-3, 100.0, 1e5):
        assert np.linalg.eigvalsh(LegoMetric(random_state=0).fit(scale * data, target).mahalanobis_)[0] > 0.0


@each_row("kind", [partial(CometMetric, compare="distance", n_epochs=2), BoostMetric, LegoMetric])
def test_distances_do_not_depend_on_an_offset(kind: Any) -> None:
    data, target = load_iris(return_X_y=True)
    # So that offsets round nothing away.
    data = np.round(data * 64) / 64
    here, far = (
        kind(random_state=0).fit(data + offset, target).mahalanobis_
        for offset in (0.0, np.array([2.0**30, 0, 0, 0]))
    )
    np.testing.assert_allclose(far, here, rtol=1e-6, atol=1e-9 * np.abs(here).max())


def test_a_line_search_finds_steps_of_any_size() -> None:
    data, target = load_iris(return_X_y=True)
    model = CometMetric(retraction="affine-exponential", loss="squared_hinge")
    triplets = ClassTriplets(target).draw(np.random.default_rng(0), 0, 3000)
    # Bisection ended with an error of its own.
    with suppress(DivergedError):
        assert np.isfinite(model.fit_triplets(1e6 * data, triplets).mahalanobis_).all()
