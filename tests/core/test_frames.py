"""Frames: the names of features and of labels, which are looked at wherever a model meets a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeClassifier

from problems.coembedding import (
    CalibratedLabelRanking,
    CoembeddingClassifier,
    CoembeddingClassifierCV,
    LabelThresholds,
    LinkPredictor,
)
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.similarity import ContrastiveSimilarity
from problems.subspace import BiasedALS, EntryKFold
from rmopt import InvalidInputError


@pytest.mark.parametrize("kind", [LoretaLabelRanker, LowRankLogisticRegression])
def test_labels_of_frames_go_by_their_names(kind: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((90, 6))
    Y = pd.DataFrame(X[:, :4] > 0.5, columns=list("abcd")) * 1
    kind(2, n_epochs=1, random_state=0).fit(X, Y).save(tmp_path / "model.npz")
    model = kind.load(tmp_path / "model.npz")
    assert model.score(X, Y) == model.score(X, Y.to_numpy())
    with pytest.raises(InvalidInputError, match=r"labels \['d', 'c', 'b', 'a'\], and fit saw"):
        model.score(X, Y[list("dcba")])


@pytest.mark.parametrize(
    "model",
    [CoembeddingClassifier(tol=0.1), LabelThresholds(CoembeddingClassifier(tol=0.1), cv=2),
     CoembeddingClassifierCV([1.0], cv=2), CalibratedLabelRanking(RidgeClassifier())],
)  # fmt: skip
def test_tables_of_labels_go_by_their_names(model: Any) -> None:
    X = np.random.default_rng(0).random((60, 4))
    Y = pd.DataFrame(X[:, :3] > 0.5, columns=list("abc")).astype("Int64")
    model.fit(X, Y)
    plain = model.score(X, Y.to_numpy(int))
    assert model.score(X, Y) == model.score(X, Y.astype("boolean")) == plain
    with pytest.raises(InvalidInputError, match=r"labels \['c', 'b', 'a'\], and fit saw"):
        model.score(X, Y[list("cba")])
    assert model.fit(X, Y.to_numpy(int)).score(X, Y[list("cba")]) < plain


def test_pairs_and_graphs_of_frames_that_may_lack_values_are_numbers() -> None:
    pairs = np.argwhere(np.ones((6, 5), dtype=bool))
    frame, values = pd.DataFrame(pairs, columns=["row", "column"]).astype("Int64"), np.arange(30.0)
    model = BiasedALS(1, random_state=0)
    expected = model.fit(pairs, values).predict(pairs)
    assert np.array_equal(model.fit(frame, pd.Series(values, dtype="Float64")).predict(frame), expected)
    folds = [[test.tolist() for _, test in EntryKFold(3).split(given)] for given in (frame, pairs)]
    assert folds[0] == folds[1]
    graph = np.triu(np.random.default_rng(0).random((6, 6)) > 0.5, 1)
    graph, points = graph | graph.T, np.random.default_rng(1).standard_normal((6, 3))
    links = LinkPredictor(tol=0.1, random_state=0)
    scores = links.fit(points, graph).decision_function(points, pairs[:20])
    again = links.fit(points, pd.DataFrame(graph).astype("boolean"))
    assert np.array_equal(again.decision_function(points, frame[:20]), scores)
    frame.iloc[3, 0] = pd.NA
    with pytest.raises(InvalidInputError, match="was not seen by fit"):
        model.predict(frame)


def test_labels_of_later_frames_stand_on_the_right(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((90, 6))
    Y = pd.DataFrame(X[:, :4] > 0.5, columns=list("abcd")) * 1
    model = LoretaLabelRanker(2, random_state=0).partial_fit(X, Y[list("abc")]).partial_fit(X, Y)
    assert list(model.label_names_in_) == list("abcd")
    with pytest.raises(InvalidInputError, match="on the right"):
        model.partial_fit(X, Y.rename(columns={"a": "e"}))
    assert model.fit(X, Y.to_numpy()).score(X, Y[list("dcba")]) > 0.0
    for _ in ("learned", "taken from the checkpoint"):
        kept = LoretaLabelRanker(2, random_state=0, checkpoint=tmp_path / "run.npz").fit_stream([(X, Y)])
        assert (kept.label_names_in_.tolist(), kept.label_names_in_.dtype) == (list("abcd"), object)


def test_a_score_knows_the_columns_of_a_frame() -> None:
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 4)), columns=list("abcd"))
    model = ContrastiveSimilarity(2, n_epochs=1, random_state=0).fit(X, X["a"] > 0)
    # Warnings are errors here.
    assert 0.0 < model.score(X, X["a"] > 0) <= 1.0
