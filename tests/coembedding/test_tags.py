"""Tags: losses against plain sums, recommenders, post cores and data."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from coembedding_samples import Array
from real_data import REAL, real

from problems.coembedding import PairwiseInteractionTags, TagRanking, TagRecommender
from problems.data import TagBundle
from problems.data.sets import ml10m_tags, numbered, post_core, toy_tags
from rmopt.core import InvalidInputError, StorageError


def no_network(*_: object) -> None:
    raise OSError("no route")


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


@pytest.mark.parametrize("size", [0.1, 1.0, 4.0])
def test_equation_14_as_it_stands(size: float) -> None:
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
    # Beyond what exponentials can be factored for.
    assert cost.value(30.0 / size * Q) == np.inf


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
    with pytest.raises(InvalidInputError, match="tag_names must be 2"):
        TagBundle("a", "b", good, ("x",))
    bundle = toy_tags()
    held = bundle.held_out(3)
    posts = bundle.posts()
    for user in range(bundle.counts[0]):
        assert len(np.unique(posts[held & (bundle.triples[:, 0] == user)])) == 1
    assert (held == bundle.held_out(3)).all()
    assert (held != bundle.held_out(4)).any()


def test_tags_of_movies_from_the_published_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr("pooch.retrieve", no_network)
    with pytest.raises(StorageError, match=r"no route.*ml10m_tags\.npz or tags\.dat"):
        ml10m_tags(tmp_path)


@real("ml10m_tags.npz")
def test_the_published_tags_have_the_counted_core() -> None:
    bundle = ml10m_tags(REAL)
    assert bundle.counts == (107, 162, 168)
    assert len(bundle.triples) == 5990
    triples, _ = numbered(bundle.triples)
    np.testing.assert_array_equal(post_core(triples, 15), np.unique(triples, axis=0))


def test_columns_of_a_frame_keep_their_types() -> None:
    """Side by side numpy would make floats of them, and one user of two."""
    one, other = 2**60 + 1, 2**60 + 2
    users = pd.Series([one, one, other, other, 7], dtype="uint64")
    pairs, tags = (
        pd.DataFrame({"user": users, "item": [1, 2, 1, 2, 3]}),
        ["red", "red", "blue", "blue", "green"],
    )
    model = TagRecommender(0.1, n_tags=1).fit(pairs, tags)
    assert model.users_.tolist() == [7, one, other]
    assert model.predict(pairs).ravel().tolist() == tags


def test_gaps_in_a_list_of_tags_are_no_name() -> None:
    with pytest.raises(InvalidInputError, match="tags must hold a name or a number for each row"):
        TagRecommender(0.1).fit([["u", "i"], ["u", "j"]], ["red", float("nan")])
