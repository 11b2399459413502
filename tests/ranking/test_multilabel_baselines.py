"""The baselines of co-embedding, and what they are compared by."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from coembedding_samples import samples
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, ShuffleSplit, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from problems.coembedding import CalibratedLabelRanking, CoembeddingClassifierCV, LabelThresholds
from problems.coembedding.baselines import Guarded, multilabel
from problems.coembedding.experiment import MEASURES, METHODS, measures, scored
from problems.ranking import precision_at
from problems.ranking.baselines import OneVsRest
from problems.thresholds import _half_of_largest_f1
from rmopt.core import InvalidInputError


def test_calibrated_label_ranking_by_hand() -> None:
    """Label 0 beats label 1 and the virtual one where x > 0; label 2 is never there."""
    X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    Y = np.array([[0, 1, 0]] * 3 + [[1, 0, 0]] * 3)
    model = CalibratedLabelRanking(LogisticRegression(C=100.0)).fit(X, Y)
    assert (0, 1) in [pair[:2] for pair in model.pairs_]
    np.testing.assert_array_equal(model.predict(np.array([[-1.2], [1.2]])), [[0, 1, 0], [1, 0, 0]])
    # Votes for the winner 3, for the loser 1, for the absent one 0, and 2 for the virtual one.
    votes = model.decision_function(np.array([[-1.2], [1.2]]))
    np.testing.assert_array_equal(votes, [[-1.0, 1.0, -2.0], [1.0, -1.0, -2.0]])
    assert model.n_labels_ == 3


@pytest.mark.parametrize("scheme", ["br", "clr", "cc"])
@pytest.mark.parametrize("base", ["svm", "lr"])
def test_baselines_learn_and_endure_constant_labels(scheme: str, base: str) -> None:
    X, Y = samples(n=200)
    Y[:, 3] = 1
    predicted = np.asarray(multilabel(scheme, base, 0).fit(X[:150], Y[:150]).predict(X[150:]))
    assert (predicted[:, :3] == Y[150:, :3]).mean() > 0.8
    if scheme != "clr":
        np.testing.assert_array_equal(predicted[:, 3], 1)


def test_baselines_of_counts_are_scaled_and_searched() -> None:
    """Rare words with unit rows and C = 1 make the empty predictor; the search finds a weight that predicts."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.1), size=5)
    truth = rng.random((150, 5)) < 0.15
    counts = sp.csr_array(rng.poisson(6 * (truth @ topics) + 0.03 * rng.random((150, 60))).astype(float))
    Y = truth.astype(int)
    naive = multilabel("br", "lr", 0).fit(TfidfTransformer().fit_transform(counts[:100]), Y[:100])
    found = METHODS["br-lr"].made(cv=3).fit(counts[:100], Y[:100])
    scaled = TfidfTransformer().fit(counts[:100]).transform(counts[100:])
    assert scored(found, counts[100:], Y[100:]) > scored(naive, scaled, Y[100:]) + 0.1


def test_guarded_classifiers_repeat_what_is_constant() -> None:
    X, Y = samples()
    np.testing.assert_array_equal(Guarded(LogisticRegression()).fit(X, np.ones(80)).predict(X), 1)
    plain = LogisticRegression().fit(X, Y[:, 0])
    np.testing.assert_array_equal(Guarded(LogisticRegression()).fit(X, Y[:, 0]).predict(X), plain.predict(X))


class Moved(BaseEstimator):
    """Logistic regressions whose scores are moved and stretched, label by label."""

    def __init__(self, slope: float = 1.0, shift: float = 0.0) -> None:
        self.slope, self.shift = slope, shift

    def fit(self, X: np.ndarray, Y: np.ndarray) -> "Moved":
        self.model_ = OneVsRest(LogisticRegression()).fit(X, Y)
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self.slope * self.model_.decision_function(X) + self.shift * np.arange(1, 5)


def test_thresholds_undo_what_is_wrong_with_scores() -> None:
    X, Y = samples(n=200)
    Y[:, 3] = 0
    plain, moved = (
        LabelThresholds(one, aim="hamming").fit(X[:150], Y[:150]) for one in (Moved(), Moved(3.0, -50.0))
    )
    np.testing.assert_allclose(plain.predict_proba(X), moved.predict_proba(X), atol=1e-3)
    assert moved.predict(X)[:, 3].max() == 0
    wrong = moved.estimator_.decision_function(X[150:]) > 0
    assert (moved.predict(X[150:]) == Y[150:]).mean() > 0.85 > (wrong == Y[150:]).mean()
    # The other aim lets more labels apply, and is what was trained for it.
    hamming = moved.predict(X).sum()
    other = moved.set_params(aim="f1")
    assert other.threshold_ < 0.5
    assert other.predict(X).sum() > hamming
    again = LabelThresholds(Moved(3.0, -50.0)).fit(X[:150], Y[:150])
    np.testing.assert_array_equal(again.predict(X), other.predict(X))


class Handed(BaseEstimator):
    """The rows themselves are the scores."""

    def fit(self, X: np.ndarray, Y: np.ndarray) -> "Handed":
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X


def test_thresholds_know_of_the_other_labels() -> None:
    """Each sample has one label: what a score says depends on the others."""
    rng = np.random.default_rng(0)
    Y = np.eye(3, dtype=int)[rng.integers(3, size=600)]
    X = 2.0 * Y + rng.standard_normal((600, 1)) + 0.5 * rng.standard_normal((600, 3))
    model = LabelThresholds(Handed(), cv=2).fit(X[:300], Y[:300])
    alone = expit(X[300:] * model.slopes_ + model.intercepts_)
    among = model.predict_proba(X[300:])
    assert log_loss(Y[300:].ravel(), among.ravel()) < 0.6 * log_loss(Y[300:].ravel(), alone.ravel())
    # A sample's probabilities do not depend on the samples beside it.
    np.testing.assert_array_equal(model.predict_proba(X[300:301]), among[:1])


def rare_labels(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores that overstate how frequent labels are, the true log-odds, and labels; the last ones are rare."""
    often = np.linspace(-2.0, -5.0, 40)
    odds = 2.0 * rng.standard_normal((n, 40)) + often
    return 0.5 * odds + 0.6 * often, odds, (rng.random(odds.shape) < expit(odds)).astype(int)


def test_pooled_odds_are_one_logistic_regression_of_all_labels() -> None:
    """Scores that are wrong in the same way for all labels are put right, as scikit-learn's regression does it."""
    scores, _, Y = rare_labels(150, np.random.default_rng(0))
    model = LabelThresholds(Handed(), pooled=True).fit(scores, Y)
    often = np.log(Y.mean(axis=0) / (1.0 - Y.mean(axis=0)))
    pairs = np.column_stack([scores.ravel(), np.tile(often, 150)])
    alone = make_pipeline(StandardScaler(), LogisticRegression()).fit(pairs, Y.ravel())
    found = scores * model.slopes_ + model.intercepts_
    np.testing.assert_allclose(found.ravel(), alone.decision_function(pairs), rtol=1e-6, atol=1e-9)
    assert len(set(model.slopes_)) == 1
    new, odds, truth = rare_labels(2000, np.random.default_rng(1))
    each = LabelThresholds(Handed()).fit(scores, Y)
    best, pooled, alone = (
        log_loss(truth.ravel(), chances.ravel())
        for chances in (expit(odds), model.predict_proba(new), each.predict_proba(new))
    )
    # Few samples of a label are too few for a regression of its own.
    assert pooled - best < 0.7 * (alone - best) < 0.1 * best
    # Nor do scores that overstate how frequent labels are order those of a sample.
    assert (
        precision_at(model.decision_function(new), truth, (1,))[1] > precision_at(new, truth, (1,))[1] + 0.015
    )


def test_odds_endure_constant_labels_and_scores_of_any_size() -> None:
    scores, _, Y = rare_labels(60, np.random.default_rng(0))
    fifth = ShuffleSplit(1, test_size=0.2, random_state=0)
    Y[:, 0], Y[:, 1] = 1, 0
    for pooled in (True, False):
        model = LabelThresholds(Handed(), cv=fifth, pooled=pooled)
        found = model.fit(scores, Y).predict_proba(scores)
        np.testing.assert_allclose(found[:, 0], 12.5 / 13.0)
        np.testing.assert_allclose(found[:, 1], 0.5 / 13.0)
        for size in (1e-300, 1e-20, 1e300):
            np.testing.assert_allclose(
                model.fit(size * scores, Y).predict_proba(size * scores), found, rtol=1e-6
            )
        # What is left of scores that are all alike is rounding.
        flat = 0.1 + 1e-16 * np.sign(scores - np.median(scores))
        assert len(np.unique(flat)) > 1
        assert abs(model.fit(flat, Y).predict_proba(np.full_like(scores, 0.11)).sum() / Y.sum() - 1.0) < 0.5
        for value in (0, 1):
            nothing = model.fit(scores, np.full_like(Y, value)).predict_proba(scores)
            np.testing.assert_allclose(nothing, value, atol=0.04)


def test_numbers_of_labels_that_were_never_seen_are_not_followed() -> None:
    """A model that says little of a sample expects as many labels of all: a slope for that is learned on noise."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((600, 40)), rng.standard_normal((40, 60))
    Y = (X @ W - np.linspace(6.0, 16.0, 60) + rng.logistic(size=(600, 60)) > 0.0).astype(int)
    fifth = ShuffleSplit(1, test_size=0.2, random_state=0)
    weak = OneVsRestClassifier(LogisticRegression(C=0.01, l1_ratio=1.0, solver="liblinear"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Label not|l1_ratio")
        model = LabelThresholds(weak, cv=fifth, pooled=True).fit(X, Y)
    # All of these would be left without the limit, and a hundredth of them.
    assert 0.5 < model.predict_proba(X).sum() / Y.sum() < 2.0


@pytest.mark.parametrize(
    ("spoil", "flaw"),
    [
        (lambda X: X[:, 0], r"shape \(40, 3\), got shape \(40,\)"),
        (lambda X: X[:, :2], r"shape \(40, 3\), got shape \(40, 2\)"),
        (lambda X: np.where(X > 1.0, np.inf, X), "got NaN or infinity"),
    ],
)
def test_scores_that_do_not_fit_the_labels_are_refused(spoil: Any, flaw: str) -> None:
    """One column for all labels would pass for the scores of each of them."""

    class Wrong(Handed):
        def decision_function(self, X: np.ndarray) -> np.ndarray:
            return spoil(X)

    X = np.random.default_rng(0).standard_normal((80, 3))
    Y = (X > 0).astype(int)
    with pytest.raises(InvalidInputError, match=f"decision_function of Wrong must be .*{flaw}"):
        LabelThresholds(Wrong(), cv=2).fit(X, Y)
    # Of a single label a row is as good as a column.
    alone = LabelThresholds(Handed(), aim="hamming", cv=2).fit(X[:, 0], Y[:, :1])
    assert (alone.predict(X[:, 0]) == Y[:, :1]).mean() > 0.95


def test_labels_that_were_never_seen_are_not_predicted() -> None:
    X, Y = samples()
    assert not LabelThresholds(Moved()).fit(X, np.zeros_like(Y)).predict(X).any()


def test_the_threshold_for_f1_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.beta(0.4, 1.5, size=(500, 3))
    truth = rng.random((2000, 500, 3)) < probabilities

    def f1(cut: float) -> float:
        predicted = probabilities > cut
        return float(
            (2.0 * (truth & predicted).sum(axis=(1, 2)) / (truth.sum(axis=(1, 2)) + predicted.sum())).mean()
        )

    cut = _half_of_largest_f1(probabilities)
    assert f1(cut) > max(f1(other) for other in np.linspace(0.02, 0.98, 97)) - 1e-3
    assert abs(2.0 * cut - f1(cut)) < 1e-2


def test_measures_by_hand() -> None:
    true, predicted = np.array([[1, 0], [1, 1], [0, 0]]), np.array([[1, 0], [0, 1], [0, 1]])
    found = measures(true, predicted)
    np.testing.assert_allclose(found["hamming"], 100 * 4 / 6)
    np.testing.assert_allclose(found["micro_f1"], 100 * 2 * 2 / (3 + 3))
    np.testing.assert_allclose(found["macro_f1"], 100 * (2 / 3 + 2 / 3) / 2)
    assert tuple(found) == tuple(MEASURES)


def test_votes_are_cross_validated() -> None:
    X = np.random.default_rng(0).standard_normal((60, 4))
    Y = (X[:, :3] > 0).astype(int)
    model = CalibratedLabelRanking(RidgeClassifier())
    found = cross_val_predict(model, X, Y, cv=3, method="decision_function")
    assert found.shape == Y.shape
    assert np.mean((found > 0) == Y) > 0.8


@pytest.mark.parametrize("kind", [CalibratedLabelRanking, LabelThresholds])
def test_models_inside_get_frames_and_texts_as_they_are(kind: type) -> None:
    Y = np.random.default_rng(0).integers(2, size=(60, 3))
    words = [" ".join(np.array(["red", "blue", "old"])[row > 0]) for row in Y]
    inner = RidgeClassifier() if kind is CalibratedLabelRanking else OneVsRestClassifier(RidgeClassifier())
    for rows, step in (
        (words, CountVectorizer()),
        (pd.DataFrame({"text": words, "more": 1.0}), make_column_transformer((CountVectorizer(), "text"))),
    ):
        model = kind(make_pipeline(step, inner))
        with pytest.raises(NotFittedError):
            model.predict(rows)
        # The number of features of an earlier fit is forgotten.
        model.set_params(estimator=inner).fit(Y, Y)
        model.set_params(estimator=make_pipeline(step, inner)).fit(rows, Y)
        assert np.array_equal(model.predict(rows), Y)
    assert model.feature_names_in_.tolist() == ["text", "more"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(rows[["more", "text"]])


def test_folds_go_by_groups() -> None:
    """Also in the folds of a search, to which metadata routing hands the groups."""
    X, Y, groups = np.eye(12)[:, :3] + 1.0, np.eye(2)[np.arange(12) % 2].astype(int), np.arange(12) % 3
    folds = list(GroupKFold(3).split(X, Y, groups))
    for model, found in (
        (LabelThresholds(OneVsRestClassifier(RidgeClassifier())), "slopes_"),
        (CoembeddingClassifierCV([0.1]), "scores_"),
    ):
        expected = getattr(model.set_params(cv=folds).fit(X, Y), found)
        model.set_params(cv=GroupKFold(3)).fit(X, Y, groups=groups)
        assert np.array_equal(getattr(model, found), expected)
        with pytest.raises(InvalidInputError, match="needs groups, give fit groups="):
            model.fit(X, Y)
        with sklearn.config_context(enable_metadata_routing=True):
            how = {"cv": GroupKFold(3), "params": {"groups": groups}, "error_score": "raise"}
            assert len(cross_val_score(model.set_params(cv=GroupKFold(2)), X, Y, **how)) == 3
