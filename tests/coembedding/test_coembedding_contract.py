"""Co-embeddings as scikit-learn's tools and strangers' data meet them."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from tabled import each_row

from problems.coembedding import (
    CoembeddingClassifier,
    CoembeddingClassifierCV,
    LinkPredictor,
    PairwiseInteractionTags,
    TagRecommender,
)
from rmopt.core import DivergedError, InvalidInputError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 4))
Y = (X[:, :3] + 0.3 * RNG.standard_normal((30, 3)) > 0).astype(int)
LINKS = ((X[:, None, :2] - X[None, :, :2]) ** 2).sum(axis=2) < 0.8
POSTS, TAGS = np.column_stack([np.arange(24) % 3, np.arange(24) // 4]), np.arange(24) % 5


def test_a_step_that_is_too_long_diverges() -> None:
    with pytest.raises(DivergedError, match="smaller step_size than 1e"), np.errstate(all="ignore"):
        PairwiseInteractionTags(step_size=1e6, random_state=0).fit(POSTS, TAGS)


@each_row(("model", "words"), [(CoembeddingClassifierCV(scoring=lambda model, X, y: np.nan), "the score")])
def test_parameters_of_classifiers(model: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        model.fit(X, Y)


def test_no_folds_are_five() -> None:
    one, other = (CoembeddingClassifierCV((2.0, 5.0), cv=cv, tol=1e-2).fit(X, Y) for cv in (None, 5))
    assert one.scores_.shape == (2, 5)
    np.testing.assert_array_equal(one.scores_, other.scores_)


def test_names_of_columns() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipe = make_pipeline(StandardScaler(), CoembeddingClassifier(2.0)).set_output(transform="pandas")
    found = pipe.fit(frame, Y).transform(frame)
    assert list(found.columns) == [f"coembeddingclassifier{i}" for i in range(pipe[-1].rank_)]
    plain = CoembeddingClassifier(2.0).fit(pipe[0].transform(frame), Y)
    np.testing.assert_array_equal(
        pipe.decision_function(frame), plain.decision_function(pipe[0].transform(frame))
    )
    links = LinkPredictor(random_state=0).set_output(transform="pandas").fit(frame, LINKS)
    assert list(links.transform(frame).columns) == list(links.get_feature_names_out())
    assert links.decision_function(frame, [[0, 1]]).shape == (1,)
    for model in (CoembeddingClassifier(), LinkPredictor()):
        assert get_tags(model).input_tags.sparse
        assert get_tags(model).target_tags.required


def test_what_is_not_certified_is_warned_of() -> None:
    with pytest.warns(ConvergenceWarning, match="tol = 1e-30 was not reached"):
        TagRecommender(0.1, tol=1e-30).fit(POSTS[:8], TAGS[:8])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not CoembeddingClassifier(0.1, max_rank=1).fit(X, Y).is_global_


def test_frames_of_names() -> None:
    frame = pd.DataFrame({"user": list("abc") * 8, "film": np.arange(24) // 4})
    model = PairwiseInteractionTags(2, n_tags=2, n_epochs=2, random_state=0).fit(frame, TAGS)
    plain = PairwiseInteractionTags(2, n_tags=2, n_epochs=2, random_state=0).fit(POSTS, TAGS)
    np.testing.assert_array_equal(model.predict(frame), plain.predict(POSTS))
    assert model.score(frame, TAGS) == plain.score(POSTS, TAGS)
