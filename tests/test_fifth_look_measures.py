"""What an attack on measures, comparisons, pictures and streams found: each repro, and beside it what must stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.similarity.methods import CURVE_QUERIES, Cosine, mean_precision
from problems.subspace import ScaledSGDCompletion
from rmopt import InvalidInputError


def test_parameters_are_chosen_by_queries_of_all_classes() -> None:
    y = np.repeat([0, 1], CURVE_QUERIES)
    # Rows of the first class are alike, and of the second few.
    X = np.where(y[:, None] == 0, np.eye(8)[0], np.eye(8)[1 + np.arange(len(y)) % 7])
    assert mean_precision(Cosine(), X, y) < 0.9


def test_rows_are_alike_without_effects_of_columns() -> None:
    rng = np.random.default_rng(0)
    T = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 80))
    T -= T.mean(axis=1, keepdims=True) + T.mean(axis=0) - T.mean()
    effects = 3.0 * rng.standard_normal(80) + rng.standard_normal((30, 1))
    known = np.where(rng.random((30, 80)) < 0.6, effects + T, 0.0)
    # Of the last row nothing is known.
    known[-1] = 0.0
    model = ScaledSGDCompletion(3, lam=1e-3, n_epochs=40, random_state=0).fit(sp.csc_array(known))
    found = dict(model.similar(0, 29))
    unit = T / np.linalg.norm(T, axis=1, keepdims=True)
    np.testing.assert_allclose([found[row] for row in range(1, 29)], unit[1:29] @ unit[0], atol=0.15)
    with pytest.raises(InvalidInputError, match="knows nothing of 29"):
        model.similar(29)


@pytest.mark.parametrize("kind", [LoretaLabelRanker, LowRankLogisticRegression])
def test_labels_of_frames_go_by_their_names(kind: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((90, 6))
    Y = pd.DataFrame(X[:, :4] > 0.5, columns=list("abcd")) * 1
    kind(2, n_epochs=1, random_state=0).fit(X, Y).save(tmp_path / "model.npz")
    model = kind.load(tmp_path / "model.npz")
    assert model.score(X, Y) == model.score(X, Y.to_numpy())
    with pytest.raises(InvalidInputError, match=r"labels \['d', 'c', 'b', 'a'\], and fit saw"):
        model.score(X, Y[list("dcba")])


def test_labels_of_later_frames_stand_on_the_right() -> None:
    X = np.random.default_rng(0).random((90, 6))
    Y = pd.DataFrame(X[:, :4] > 0.5, columns=list("abcd")) * 1
    model = LoretaLabelRanker(2, random_state=0).partial_fit(X, Y[list("abc")]).partial_fit(X, Y)
    assert list(model.label_names_in_) == list("abcd")
    with pytest.raises(InvalidInputError, match="on the right"):
        model.partial_fit(X, Y.rename(columns={"a": "e"}))
    assert model.fit(X, Y.to_numpy()).score(X, Y[list("dcba")]) > 0.0
