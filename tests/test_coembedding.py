"""Co-embeddings: losses against plain sums, estimators, rivals, tags, links and data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from problems.coembedding import (
    CalibratedLabelRanking,
    CoembeddingClassifier,
    CoembeddingClassifierCV,
    LinkPrediction,
    LinkPredictor,
    MultilabelCoembedding,
    PairwiseInteractionTags,
    TagRanking,
    TagRecommender,
    coembedding_path,
)
from problems.coembedding.bench import measures
from problems.coembedding.links import smooth_hinge, smooth_hinge_slope
from problems.coembedding.methods import MEASURES, METHODS, PRINTED
from problems.coembedding.optima import local_optima
from problems.coembedding.rivals import Guarded, rival
from problems.coembedding.training import checked_betas, minimise
from problems.multilabel import digits_labels, emotions, scene
from problems.tags import TagBundle, ml10m_tags, numbered, post_core, toy_tags
from rmopt.core import InvalidInputError, StorageError
from rmopt.costs import Trace
from rmopt.solvers import RankIncremental

Array = np.ndarray
REAL = Path(os.environ.get("RMOPT_DATA_HOME") or "/nonexistent")


def real(file: str) -> Any:
    return pytest.mark.skipif(
        not (REAL / file).is_file(), reason=f"RMOPT_DATA_HOME does not name a folder with {file}."
    )


def samples(seed: int = 0, n: int = 80, f: int = 6, m: int = 4) -> tuple[Array, Array]:
    """Return samples whose labels depend on their features."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, f))
    return X, (X @ rng.standard_normal((f, m)) + 0.3 * rng.standard_normal((n, m)) > 0.4).astype(int)


# Losses


def printed_hinge(z: float) -> float:
    """The smooth hinge with the range that the paper prints."""
    return (2 + z) ** 2 / 4 if 0 <= z <= 2 else max(1 + z, 0.0)


def test_the_smooth_hinge_is_smooth_and_the_printed_one_jumps() -> None:
    z = np.linspace(-4, 4, 8001)
    values, slopes = smooth_hinge(z), smooth_hinge_slope(z)
    np.testing.assert_allclose(np.diff(values) / np.diff(z), 0.5 * (slopes[1:] + slopes[:-1]), atol=1e-3)
    assert np.abs(np.diff(slopes)).max() <= 0.5 * (z[1] - z[0]) * (1 + 1e-9)
    assert values[0] == 0.0
    np.testing.assert_allclose(values[-1], 5.0)
    assert printed_hinge(2.0) - printed_hinge(2.0 + 1e-9) > 0.9
    assert abs(smooth_hinge(np.array(2.0)) - smooth_hinge(np.array(2.0 + 1e-9))) < 1e-8


def plain_multilabel(X: Array, Y: Array, Q: Array) -> float:
    """Equation 13 as it stands, sample by sample."""
    f, m = X.shape[1], Y.shape[1]
    U, V, u0 = Q[:f], Q[f : f + m], Q[f + m]
    total = 0.0
    for x, labels in zip(X, Y, strict=True):
        u = x @ U
        t = np.sum((u - u0) ** 2)
        d = ((u - V) ** 2).sum(axis=1)
        for sign, side in ((1.0, labels == 1), (-1.0, labels == 0)):
            if side.any():
                total += np.log(np.exp(smooth_hinge(sign * (d[side] - t))).sum())
    return total


@pytest.mark.parametrize("size", [0.2, 1.0, 3.0])
def test_equation_13_as_it_stands(size: float) -> None:
    X, Y = samples()
    Y[0], Y[1] = 0, 1
    Q = size * np.random.default_rng(1).standard_normal((6 + 4 + 1, 3))
    for rows in (X, sp.csr_array(X)):
        cost = MultilabelCoembedding(rows, sp.csr_array(Y))
        np.testing.assert_allclose(cost.at(Q).value, plain_multilabel(X, Y, Q), rtol=1e-12)
        assert cost.at(Q).value >= cost.lower_bound


def test_soft_maxima_do_not_overflow() -> None:
    X, Y = samples()
    cost = MultilabelCoembedding(X, Y)
    local = cost.at(1e3 * np.random.default_rng(1).standard_normal((11, 2)))
    assert np.isfinite(local.value)
    assert np.isfinite(local.factor_gradient()).all()


def plain_tags(triples: Array, counts: tuple[int, int, int], Q: Array) -> float:
    """Equation 14 as it stands, with the logistic loss."""
    n_users, n_items, n_tags = counts
    users, items, tags = Q[:n_users], Q[n_users : n_users + n_items], Q[n_users + n_items :]
    total = 0.0
    for user, item in {(u, i) for u, i, _ in triples.tolist()}:
        own = {t for u, i, t in triples.tolist() if (u, i) == (user, item)}
        d = ((users[user] - tags) ** 2).sum(axis=1) + ((items[item] - tags) ** 2).sum(axis=1)
        total += sum(np.logaddexp(0.0, d[y] - d[z]) for y in own for z in set(range(n_tags)) - own)
    return total


@pytest.mark.parametrize("size", [0.1, 1.0, 4.0, 30.0])
def test_equation_14_as_it_stands(size: float) -> None:
    """The last size is beyond what exponentials can be factored for."""
    rng = np.random.default_rng(0)
    triples = np.argwhere(rng.random((5, 4, 7)) < 0.3)
    counts = (5, 4, 7)
    cost, Q = TagRanking(triples, counts), size * rng.standard_normal((16, 3))
    np.testing.assert_allclose(cost.at(Q).value, plain_tags(triples, counts, Q), rtol=1e-10)
    D, h = rng.standard_normal(Q.shape), 1e-6
    slope = (cost.at(Q + h * D).value - cost.at(Q - h * D).value) / (2 * h)
    np.testing.assert_allclose(np.vdot(cost.at(Q).factor_gradient(), D), slope, rtol=1e-5)
    bent = (cost.at(Q + h * D).factor_gradient() - cost.at(Q - h * D).factor_gradient()) / (2 * h)
    np.testing.assert_allclose(cost.at(Q).factor_hessian(D), bent, atol=1e-5 * np.abs(bent).max())


def test_link_losses_by_hand() -> None:
    X = np.eye(3)
    cost = LinkPrediction(X, [[0, 1], [0, 2]], [1, 0])
    Q = np.array([[0.0], [0.5], [1.5], [2.0]])
    # Thresholds 4, 2.25, 0.25; distances 0.25 and 2.25.
    link = np.logaddexp(smooth_hinge(np.array(0.25 - 4.0)), smooth_hinge(np.array(0.25 - 2.25)))
    other = smooth_hinge(np.array(0.5 * (4.0 + 0.25) - 2.25))
    np.testing.assert_allclose(cost.at(Q).value, link + other, rtol=1e-13)
    # The convex loss of a pair without a link is no smaller than that of the smaller threshold.
    assert other >= smooth_hinge(np.array(0.25 - 2.25))


# Estimators


# scikit-learn itself casts infinite labels to integers.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_the_classifier_keeps_scikit_learns_contract() -> None:
    checks = check_estimator(CoembeddingClassifier(beta=1.0), on_fail=None, on_skip=None)
    failed = {one["check_name"]: str(one["exception"]) for one in checks if one["status"] == "failed"}
    assert not failed


def test_scores_are_thresholds_minus_distances() -> None:
    X, Y = samples()
    model = CoembeddingClassifier(beta=0.5).fit(X, Y)
    U, V, u0 = model.transform(X), model.label_embedding_, model.threshold_embedding_
    t, d = ((U - u0) ** 2).sum(axis=1), ((U[:, None] - V) ** 2).sum(axis=2)
    np.testing.assert_allclose(model.decision_function(X), t[:, None] - d, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), (t[:, None] > d).astype(int))
    assert U.shape == (80, model.rank_)
    assert V.shape == (4, model.rank_)
    assert model.is_global_
    assert model.gap_ <= 1e-4 * model.objective_
    assert (model.predict(X) == Y).mean() > 0.9
    sparse = CoembeddingClassifier(beta=0.5).fit(sp.csr_array(X), sp.csr_array(Y))
    np.testing.assert_allclose(sparse.decision_function(X), model.decision_function(X), atol=1e-2)


def test_classes_may_have_names() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipe = make_pipeline(StandardScaler(), CoembeddingClassifier(beta=0.5)).fit(X, names)
    assert (pipe.predict(X) == names).mean() > 0.9
    two = CoembeddingClassifier(beta=0.5).fit(X[:100], names[:100])
    assert two.decision_function(X[:100]).shape == (100,)
    assert (two.predict(X[:100]) == names[:100]).mean() > 0.98


def test_a_larger_weight_gives_a_smaller_rank_and_objective_shares() -> None:
    X, Y = samples(n=150)
    models = coembedding_path(X, Y, (0.1, 1.0, 10.0, 1e4), tol=1e-6)
    assert [model.beta for model in models] == [0.1, 1.0, 10.0, 1e4]
    ranks = [model.rank_ for model in models]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[-1] == 0
    assert ranks[0] > 1
    np.testing.assert_array_equal(models[-1].predict(X), np.zeros_like(Y))


def test_a_path_ends_where_cold_starts_do() -> None:
    X, Y = samples(n=150)
    for model in coembedding_path(X, Y, (0.2, 2.0), tol=1e-7):
        cold = CoembeddingClassifier(model.beta, tol=1e-7).fit(X, Y)
        np.testing.assert_allclose(model.objective_, cold.objective_, rtol=2e-7)
        np.testing.assert_allclose(model.decision_function(X), cold.decision_function(X), atol=1e-2)


def test_cross_validation_of_the_weight() -> None:
    X, Y = samples(n=150)
    model = CoembeddingClassifierCV((0.1, 3.0, 1e4), cv=3).fit(X, Y)
    assert model.scores_.shape == (3, 3)
    assert model.beta_ == (0.1, 3.0, 1e4)[int(model.scores_.mean(axis=1).argmax())]
    assert model.beta_ < 1e4
    again = CoembeddingClassifier(model.beta_).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert clone(model).get_params()["cv"] == 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X, Y: CoembeddingClassifier(beta=-1.0).fit(X, Y), "betas must be positive"),
        (lambda X, Y: CoembeddingClassifier(max_rank=0).fit(X, Y), "max_rank = 0"),
        (lambda X, Y: CoembeddingClassifier(growth="fast").fit(X, Y), "growth = 'fast'"),  # type: ignore[arg-type]
        (lambda X, Y: CoembeddingClassifier().fit(X, Y[:5]), "inconsistent"),
        (lambda X, Y: CoembeddingClassifier().fit(X * np.nan, Y), "NaN"),
        (lambda X, Y: CoembeddingClassifier().fit(X, np.zeros(len(X))), "1 class"),
        (lambda X, Y: CoembeddingClassifier().fit(X, X[:, 0]), "Unknown label type"),
        (lambda X, Y: MultilabelCoembedding(X, 2 * Y), "only 0 and 1"),
        (lambda X, Y: MultilabelCoembedding(X, Y[:5]), "one row for each sample"),
        (lambda X, Y: MultilabelCoembedding(X * np.inf, Y), "NaN or infinity"),
        (lambda X, Y: coembedding_path(X, Y, ()), "at least one"),
        (lambda X, Y: checked_betas([1.0, 0.0]), "positive"),
        (lambda X, Y: TagRanking([[0, 0]]), "user, item and tag"),
        (lambda X, Y: TagRanking([[0, 0, -1]]), "integers from 0"),
        (lambda X, Y: TagRanking([[0, 0, 3]], (1, 1, 2)), "must be at least"),
        (lambda X, Y: TagRanking([[0, 0, 0], [0, 0, 1]]), "nothing to rank"),
        (lambda X, Y: TagRecommender().fit(X[:, :3], Y[:, 0]), "two columns"),
        (lambda X, Y: TagRecommender(beta=0.0).fit([[0, 0], [1, 0]], [0, 1]), "positive"),
        (lambda X, Y: TagRecommender(n_tags=0).fit([[0, 0], [1, 0]], [0, 1]), "n_tags = 0"),
        (lambda X, Y: PairwiseInteractionTags(rank=0).fit([[0, 0], [1, 0]], [0, 1]), "rank = 0"),
        (lambda X, Y: LinkPrediction(X, [[0, 0]], [1]), "two different objects"),
        (lambda X, Y: LinkPrediction(X, [[0, 1]], [1, 0]), "two columns"),
        (lambda X, Y: LinkPrediction(X, [[0, 99]], [1]), "from 0 to 79"),
        (lambda X, Y: LinkPredictor().fit(X, np.eye(3)), "symmetric 80 × 80 table"),
        (lambda X, Y: LinkPredictor().fit(X, np.zeros((80, 80))), "with a link and some without"),
        (lambda X, Y: LinkPredictor(negatives=0.0).fit(X, np.eye(80)), "negatives = 0.0"),
        (lambda X, Y: CalibratedLabelRanking(LogisticRegression()).fit(X, X), "0 and 1"),
    ],
)
def test_bad_input_is_named(call: Any, words: str) -> None:
    X, Y = samples()
    with pytest.raises(ValueError, match=words):
        call(X, Y)


# Tags


def test_recommended_tags_have_names() -> None:
    X = np.array(
        [["ann", "film"], ["ann", "book"], ["bob", "film"], ["bob", "song"], ["cy", "song"], ["cy", "book"]]
    )
    tags = np.array(["long", "dull", "long", "loud", "loud", "dull"])
    model = TagRecommender(beta=0.05, n_tags=1, tol=1e-6).fit(X, tags)
    np.testing.assert_array_equal(model.predict(X)[:, 0], tags)
    assert model.score(X, tags) == 1.0
    assert model.is_global_
    # Scores are minus the sum of both squared distances, up to a number for each pair.
    scores = model.decision_function(X[:1])[0]
    U, V, T = (
        model.user_embedding_[0],
        model.item_embedding_[list(model.items_).index("film")],
        model.tag_embedding_,
    )
    d = ((U - T) ** 2).sum(axis=1) + ((V - T) ** 2).sum(axis=1)
    np.testing.assert_allclose(scores - scores[0], d[0] - d, atol=1e-10)
    with pytest.raises(InvalidInputError, match="user 'dan' was not seen"):
        model.predict([["dan", "film"]])


def test_f1_of_the_challenge_by_hand() -> None:
    """Two posts: one of two tags found among two, and one of one."""
    X = np.array([[0, 0], [0, 0], [1, 1], [1, 0], [0, 1]])
    y = np.array([0, 1, 2, 3, 3])
    model = TagRecommender(n_tags=2)
    model.users_, model.items_, model.tags_ = np.arange(2), np.arange(2), np.arange(4)
    model.user_embedding_ = model.item_embedding_ = np.array([[1.0], [-1.0]])
    model.tag_embedding_ = np.array([[0.9], [-5.0], [-1.0], [1.3]])
    test = X[:3], y[:3]
    np.testing.assert_array_equal(model.predict(X[[0, 2]]), [[0, 3], [2, 0]])
    precision, recall = (0.5 + 0.5) / 2, (0.5 + 1.0) / 2
    np.testing.assert_allclose(model.score(*test), 2 * precision * recall / (precision + recall))


def test_both_models_of_tags_beat_the_most_frequent_ones() -> None:
    bundle = toy_tags()
    test = bundle.held_out(0)
    train, held = bundle.triples[~test], bundle.triples[test]
    frequent = set(np.argsort(-np.bincount(train[:, 2], minlength=bundle.counts[2]))[:5].tolist())
    posts: dict[tuple[int, int], set[int]] = {}
    for user, item, tag in held.tolist():
        posts.setdefault((user, item), set()).add(tag)
    hits = [len(frequent & own) for own in posts.values()]
    precision = np.mean(hits) / 5
    recall = np.mean([hit / len(own) for hit, own in zip(hits, posts.values(), strict=True)])
    plain = 2 * precision * recall / (precision + recall)
    for model in (TagRecommender(10.0, tol=0.1), PairwiseInteractionTags(random_state=0)):
        f1 = model.fit(train[:, :2], train[:, 2]).score(held[:, :2], held[:, 2])
        assert f1 > plain + 0.1


def test_post_cores_by_hand() -> None:
    """User 2 has one post; without it tag 8 has one left; without that post item 6 falls too."""
    triples = np.array([[0, 5, 7], [0, 6, 8], [1, 5, 7], [1, 6, 7], [2, 6, 8], [0, 4, 7], [1, 4, 7]])
    np.testing.assert_array_equal(post_core(triples, 2), [[0, 4, 7], [0, 5, 7], [1, 4, 7], [1, 5, 7]])
    np.testing.assert_array_equal(post_core(triples, 1), np.unique(triples, axis=0))
    assert len(post_core(triples, 9)) == 0


def test_bundles_of_tags_are_checked() -> None:
    good = np.array([[0, 0, 0], [0, 1, 1]])
    assert TagBundle("a", "b", good, ("x", "y")).counts == (1, 2, 2)
    for bad, words in (
        (good[:, :2], "3 columns"), (good + 1, "without holes"), (good[[0, 0, 1]], "twice"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=words):
            TagBundle("a", "b", bad, ("x", "y"))
    with pytest.raises(InvalidInputError, match="2 tags and 1 names"):
        TagBundle("a", "b", good, ("x",))
    bundle = toy_tags()
    held = bundle.held_out(3)
    posts = bundle.posts()
    for user in range(bundle.counts[0]):
        assert len(np.unique(posts[held & (bundle.triples[:, 0] == user)])) == 1
    assert (held == bundle.held_out(3)).all()
    assert (held != bundle.held_out(4)).any()


def test_tags_of_movies_from_the_published_text(tmp_path: Path) -> None:
    lines = [
        f"{user}::{item}::{tag} ::12"
        for user in range(16)
        for item in range(15)
        for tag in ("Fun", "fun", "sad")
    ]
    (tmp_path / "tags.dat").write_text("\n".join(lines))
    bundle = ml10m_tags(tmp_path)
    assert bundle.counts == (16, 15, 2)
    assert bundle.tag_names == ("fun", "sad")
    (tmp_path / "tags.dat").write_text("1::2\n")
    with pytest.raises(StorageError, match="damaged"):
        ml10m_tags(tmp_path)
    (tmp_path / "tags.dat").write_text("1::2::x::3\n")
    with pytest.raises(StorageError, match="no post core"):
        ml10m_tags(tmp_path)
    (tmp_path / "tags.dat").unlink()
    with pytest.raises(StorageError, match=r"neither ml10m_tags\.npz nor tags\.dat"):
        ml10m_tags(tmp_path)


@real("ml10m_tags.npz")
def test_the_published_tags_have_the_counted_core() -> None:
    bundle = ml10m_tags(REAL)
    assert bundle.counts == (107, 162, 168)
    assert len(bundle.triples) == 5990
    triples, _ = numbered(bundle.triples)
    np.testing.assert_array_equal(post_core(triples, 15), np.unique(triples, axis=0))


# Links


def test_links_are_predicted_where_features_tell() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    near = ((X[:, None, :2] - X[None, :, :2]) ** 2).sum(axis=2) < 0.6
    links = near & ~np.eye(60, dtype=bool)
    model = LinkPredictor(0.3, random_state=0).fit(X, sp.csr_array(links))
    pairs = np.column_stack(np.triu_indices(60, 1))
    scores, linked = model.decision_function(X, pairs), near[tuple(pairs.T)]
    assert model.score(X, linked, pairs) > 0.9
    np.testing.assert_array_equal(model.predict(X, pairs), scores > 0)
    np.testing.assert_allclose(scores, model.decision_function(X, pairs[:, ::-1]), atol=1e-12)
    weights = np.sum(model.components_**2, axis=0)
    assert set(np.argsort(-weights)[:2]) == {0, 1}
    same = LinkPredictor(0.3, tol=1e-6).fit(X, (pairs, linked))
    assert same.is_global_
    with pytest.raises(InvalidInputError, match="rows of X"):
        model.predict(X[:5], pairs)


# Rivals and comparisons


def test_calibrated_label_ranking_by_hand() -> None:
    """Label 0 beats label 1 and the virtual one where x > 0; label 2 is never there."""
    X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    Y = np.array([[0, 1, 0]] * 3 + [[1, 0, 0]] * 3)
    model = CalibratedLabelRanking(LogisticRegression(C=100.0)).fit(X, Y)
    assert (0, 1) in model.pairs_
    np.testing.assert_array_equal(model.predict(np.array([[-1.2], [1.2]])), [[0, 1, 0], [1, 0, 0]])
    assert model.n_labels_ == 3


@pytest.mark.parametrize("scheme", ["br", "clr", "cc"])
@pytest.mark.parametrize("base", ["svm", "lr"])
def test_rivals_learn_and_endure_constant_labels(scheme: str, base: str) -> None:
    X, Y = samples(n=200)
    Y[:, 3] = 1
    predicted = np.asarray(rival(scheme, base, 0).fit(X[:150], Y[:150]).predict(X[150:]))
    assert (predicted[:, :3] == Y[150:, :3]).mean() > 0.8
    if scheme != "clr":
        np.testing.assert_array_equal(predicted[:, 3], 1)


def test_guarded_classifiers_repeat_what_is_constant() -> None:
    X, Y = samples()
    np.testing.assert_array_equal(Guarded(LogisticRegression()).fit(X, np.ones(80)).predict(X), 1)
    plain = LogisticRegression().fit(X, Y[:, 0])
    np.testing.assert_array_equal(Guarded(LogisticRegression()).fit(X, Y[:, 0]).predict(X), plain.predict(X))


def test_measures_by_hand() -> None:
    true, predicted = np.array([[1, 0], [1, 1], [0, 0]]), np.array([[1, 0], [0, 1], [0, 1]])
    found = measures(true, predicted)
    np.testing.assert_allclose(found["hamming"], 100 * 4 / 6)
    np.testing.assert_allclose(found["micro_f1"], 100 * 2 * 2 / (3 + 3))
    np.testing.assert_allclose(found["macro_f1"], 100 * (2 / 3 + 2 / 3) / 2)
    assert tuple(found) == MEASURES
    assert {method.column for method in METHODS.values()} == set(PRINTED["emotions"])


def test_local_optima_contract_to_the_global_minimum() -> None:
    """Figure 3 on digits: the spread vanishes at d*, and the excess falls with d."""
    bundle = digits_labels().scaled()
    rows = np.flatnonzero(bundle.train)[:60]
    loss = MultilabelCoembedding(bundle.X[rows], bundle.Y[rows])
    best = minimise(loss, 0.3, RankIncremental(tol=1e-7))
    rank, minimum = best.point.rank, best.certificate.objective
    found = local_optima(loss + Trace(0.3), [1, 2, rank], 8, 0)
    assert np.ptp(found[1]) > 1e-3 * minimum
    assert found[1].min() > found[2].min() > minimum * (1 + 1e-3)
    np.testing.assert_allclose(found[rank], minimum, rtol=1e-5)


@real("emotions.npz")
def test_emotions_reach_the_papers_f1() -> None:
    scores = []
    for split in range(5):
        bundle = emotions(REAL).with_training_rows(395, split).scaled()
        Y = bundle.Y.toarray().astype(int)
        model = CoembeddingClassifier(beta=5.0).fit(bundle.X[bundle.train], Y[bundle.train])
        assert model.is_global_
        scores.append(list(measures(Y[bundle.test], model.predict(bundle.X[bundle.test])).values()))
    hamming, micro, macro = np.mean(scores, axis=0)
    assert hamming > 78.2
    assert micro > 65.9
    assert macro > 64.4


@real("scene.npz")
def test_scene_reaches_the_papers_row() -> None:
    bundle = scene(REAL).with_training_rows(1000, 0).scaled()
    Y = bundle.Y.toarray().astype(int)
    model = CoembeddingClassifier(beta=5.0).fit(bundle.X[bundle.train], Y[bundle.train])
    hamming, micro, macro = measures(Y[bundle.test], model.predict(bundle.X[bundle.test])).values()
    assert hamming > 88.0
    assert micro > 65.9
    assert macro > 66.8


def test_digits_by_pipeline() -> None:
    X, y = load_digits(return_X_y=True)
    pipe = make_pipeline(StandardScaler(), Normalizer(), CoembeddingClassifier(beta=2.0))
    assert pipe.fit(X[:600], y[:600]).score(X[1200:], y[1200:]) > 0.85


@pytest.mark.slow
@real("emotions.npz")
def test_interior_point_on_emotions() -> None:
    oracles = pytest.importorskip("convex_oracles", reason="needs cvxpy, which the extra [test] brings.")
    bundle = emotions(REAL).scaled()
    rows = np.flatnonzero(bundle.train)[:60]
    X, Y = bundle.X[rows], bundle.Y[rows].toarray() > 0
    for beta in (1.0, 5.0):
        ours = minimise(MultilabelCoembedding(X, Y), beta, RankIncremental(tol=1e-7)).certificate
        theirs = oracles.multilabel(X, Y, beta, tol_gap_rel=1e-9, tol_gap_abs=1e-7, tol_feas=1e-9)
        assert abs(ours.objective - theirs) <= 1e-6 * theirs
