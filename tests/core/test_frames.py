"""Frames: the names of features and of labels, which are looked at wherever a model meets a table."""

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
from problems.similarity import ContrastiveSimilarity
from problems.subspace import BiasedALS, EntryKFold
from rmopt import InvalidInputError


@pytest.mark.parametrize(
    "model",
    [CoembeddingClassifier(tol=0.1), LabelThresholds(CoembeddingClassifier(tol=0.1), cv=2),
     CoembeddingClassifierCV([1.0], cv=2), CalibratedLabelRanking(RidgeClassifier())],
)  # fmt: skip
def test_tables_of_labels_may_be_frames(model: Any) -> None:
    X = np.random.default_rng(0).random((60, 4))
    Y = pd.DataFrame(X[:, :3] > 0.5, columns=list("abc")).astype("Int64")
    plain = model.fit(X, Y).score(X, Y.to_numpy(int))
    assert model.score(X, Y) == model.score(X, Y.astype("boolean")) == plain


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


def test_a_score_knows_the_columns_of_a_frame() -> None:
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 4)), columns=list("abcd"))
    model = ContrastiveSimilarity(2, n_epochs=1, random_state=0).fit(X, X["a"] > 0)
    # Warnings are errors here.
    assert 0.0 < model.score(X, X["a"] > 0) <= 1.0
