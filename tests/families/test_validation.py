"""What estimators take and refuse at their door, and what they give to the tools around them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimator_parts import LABELS, PARTS, TABLE, X, damaged
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_iris
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from tabled import each_row

from problems.coembedding import (
    CalibratedLabelRanking,
    CoembeddingClassifier,
    CoembeddingClassifierCV,
    LabelThresholds,
    MetricRegression,
    MultilabelCoembedding,
)
from problems.data import Ratings
from problems.data.text import information_gain
from problems.evaluation import cosine_scores, evaluate_retrieval
from problems.metric import BoostMetric, CometMetric, EuclideanMetric, LegoMetric
from problems.metric.estimators import TripletLearner
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression, mean_average_precision
from problems.rows import natural_size
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.subspace import BiasedALS, MultitaskSubspace
from problems.validation import begin
from rmopt import InvalidInputError
from rmopt.core import LowRankPoint, PSDPoint
from rmopt.core.arguments import bounded, number
from rmopt.costs import BilinearSum, TripletSum, hinge, logistic, squared, squared_hinge

MINE = [name for name in PARTS if name.startswith("Loreta") or name.endswith("Metric")]
TRANSFORMERS = [name for name in MINE if issubclass(PARTS[name].kind, TransformerMixin)]
TRIPLETS = np.array([[0, 3, 1], [1, 4, 2]])


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_name_their_columns(name: str, library: str) -> None:
    part = PARTS[name]
    frame = pytest.importorskip(library).DataFrame(dict(zip("abcde", X.T, strict=True)))
    pipe = make_pipeline(StandardScaler(), part.make()).set_output(transform=library)
    found = pipe.fit(frame, LABELS).transform(frame)
    width = 2 if name.startswith("Loreta") else 5
    assert list(found.columns) == [f"{name.lower()}{k}" for k in range(width)]
    plain = make_pipeline(StandardScaler(), part.make()).fit(frame, LABELS)
    np.testing.assert_array_equal(found.to_numpy(), plain.transform(frame))
    alone = part.make().fit(frame, LABELS)
    assert list(alone.feature_names_in_) == list("abcde")
    with pytest.raises(ValueError, match="feature names"):
        alone.transform(frame[list("bacde")])


def test_scores_do_not_depend_on_the_output_that_is_set() -> None:
    pytest.importorskip("pandas")
    model = PARTS["LoretaSimilarity"].make().fit(X, LABELS)
    before = model.similarity(X[:3], X[:4]), model.score(X, LABELS)
    model.set_output(transform="pandas")
    after = model.similarity(X[:3], X[:4]), model.score(X, LABELS)
    assert isinstance(after[0], np.ndarray)
    np.testing.assert_array_equal(after[0], before[0])
    assert after[1] == before[1]


@pytest.mark.parametrize("name", MINE)
def test_copies_are_equal(name: str) -> None:
    part = PARTS[name]
    method = "transform" if name in TRANSFORMERS else "decision_function"
    model = part.make().fit(**part.data)
    values = getattr(model, method)(X)
    for copy in (pickle.loads(pickle.dumps(model)), clone(model).fit(**part.data)):
        np.testing.assert_array_equal(getattr(copy, method)(X), values)
    tags = get_tags(model)
    assert tags.input_tags.sparse
    assert not tags.no_validation
    assert tags.target_tags.required == (name != "EuclideanMetric")
    sparse = part.make().fit(**(part.data | {"X": sp.csr_array(X)}))
    np.testing.assert_allclose(getattr(sparse, method)(sp.csr_array(X)), values, rtol=1e-6, atol=1e-8)


@each_row("matrix", damaged(X).values())
def test_damaged_matrices_reach_no_loop(matrix: Any) -> None:
    model = PARTS["LoretaSimilarity"].make().fit(X, LABELS)
    for attempt in (
        lambda: model.fit(matrix, LABELS),
        lambda: model.similarity(X, matrix),
        lambda: model.fit_triplets(matrix, TRIPLETS),
        lambda: PARTS["CometMetric"].make().fit(matrix, LABELS),
        lambda: BilinearSum(matrix, matrix, squared, np.ones(24)),
        lambda: TripletSum(X, matrix),
        lambda: BoostMetric().fit_triplets(matrix, TRIPLETS),
        lambda: cosine_scores(matrix),
        lambda: information_gain(matrix, LABELS),
        lambda: LoretaLabelRanker().fit(X, matrix),
        lambda: mean_average_precision(X, matrix),
    ):
        with pytest.raises(InvalidInputError, match=r"is a damaged cs[rc] matrix: "):
            attempt()


def test_complex_numbers_and_dates_are_not_cut_to_real_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"must (be real|hold real numbers), got"):
        PARTS["LoretaSimilarity"].make().fit(sp.csr_array(X * 1j), LABELS)
    with pytest.raises(InvalidInputError, match=r"must (be real|hold real numbers), got"):
        BilinearSum(sp.csr_array(X * 1j), X)
    with pytest.raises(InvalidInputError, match="targets must be an array of finite numbers"):
        BilinearSum(X, X, squared, np.full(24, 1j))
    with pytest.raises(InvalidInputError, match="dates or durations"):
        EuclideanMetric().fit(np.zeros((3, 2), dtype="M8[s]"))
    with pytest.raises(InvalidInputError, match="masked entries"):
        EuclideanMetric().fit(np.ma.masked_array(X, X > 0))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        EuclideanMetric().fit(X, LABELS[:-1])


@pytest.mark.parametrize("loss", [logistic, hinge, squared_hinge])
def test_classes_are_minus_one_and_one(loss: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"must be −1 or 1, got 0; .* into 2 \* labels - 1"):
        BilinearSum(X, X, loss, LABELS > 0)
    assert BilinearSum(X, X, loss, 2 * (LABELS > 0) - 1).n_terms == 24
    assert BilinearSum(X, X, squared, LABELS).n_terms == 24


def test_steps_may_be_no_steps() -> None:
    assert LegoMetric(n_triplets=11, step_size=lambda t: 0.0 * t).fit(X, LABELS).mahalanobis_[0, 0] == 1.0


def test_defaults_in_the_units_of_the_data_stay_numbers() -> None:
    for scale in (1e-100, 1e100, 1e-160, 1e160, 1e-200):
        with pytest.raises(InvalidInputError, match="out of reach of defaults in their units; scale X"):
            LoretaSimilarity(rank=2, max_iter=10).fit(X * scale, LABELS)
    with pytest.raises(InvalidInputError, match="out of reach of defaults in their units; scale X"):
        LoretaLabelRanker(rank=2).fit(X * 1e-155, np.eye(24, 5))
    assert natural_size(sp.csr_array((3, 3)), 0.1, 1) == 0.1
    model = LoretaSimilarity(rank=2, max_iter=10, random_state=0).fit(X, LABELS)
    with pytest.raises(InvalidInputError, match="too large for the model"):
        model.similarity(X * 1e200, X * 1e200)


def test_numbers_of_numpy_are_numbers() -> None:
    def fitted(kind: Any, real: Any) -> list[np.ndarray]:
        loreta = LoretaSimilarity(
            kind(2), max_iter=kind(200), random_state=kind(7), psd=np.bool_(True),
        )  # fmt: skip
        ranker = LoretaLabelRanker(kind(2), n_epochs=kind(20), top_k=kind(2), random_state=kind(7))
        comet = CometMetric(kind(2), alpha=real(0.5), n_triplets=kind(250), random_state=kind(7))
        lego = LegoMetric(n_epochs=kind(2), n_triplets=kind(250), random_state=kind(7))
        metrics = [comet.fit(X, LABELS).mahalanobis_, lego.fit(X, LABELS).mahalanobis_]
        return [loreta.fit(X, LABELS).transform(X), ranker.fit(X, TABLE).predict(X), *metrics]

    for kind, real in ((np.uint8, np.float32), (np.int64, np.float64)):
        for found, expected in zip(fitted(kind, real), fitted(int, float), strict=True):
            np.testing.assert_array_equal(found, expected)


class Scaled(TripletLearner):
    """A stranger's learner, who declares one parameter more."""

    _parameters = TripletLearner._parameters | {"size": bounded(number, above=0)}

    def __init__(self, size: float = 1.0, n_triplets: int | None = None, random_state: Any = None) -> None:
        self.size, self.n_triplets, self.random_state = size, n_triplets, random_state

    def learn(self, X: Any, triplets: np.ndarray, seed: int) -> np.ndarray:
        return np.diag(np.full(X.shape[1], self.size * 1e308))


def test_a_learner_of_a_stranger_is_held_to_the_same() -> None:
    assert Scaled(0.5).fit(X, LABELS).transform(X).shape == (24, 5)
    for size, message in (("x", "size = 'x' must be a positive number"), (10.0, "is not finite")):
        with pytest.raises(InvalidInputError, match=message):
            Scaled(size).fit(X, LABELS)
    with pytest.raises(InvalidInputError, match=r"n_triplets = 2\.0 must be an integer of"):
        Scaled(n_triplets=2.0).fit(X, LABELS)  # type: ignore[arg-type]


def test_a_stranger_s_class_in_place_of_the_estimator_s_works() -> None:
    class Quiet(LoretaSimilarity):
        def score(self, X: Any, y: Any) -> float:
            return 2.0 * super().score(X, y)

    assert Quiet(2, max_iter=50, random_state=0).fit(X, LABELS).score(X, LABELS) > 0.5


def test_nan_is_no_class() -> None:
    scores = cosine_scores(np.eye(4))
    with pytest.raises(InvalidInputError, match=r"y must hold a name .* without NaN"):
        evaluate_retrieval(scores, [np.nan, np.nan, 1.0, 1.0])


@pytest.mark.parametrize("tags", [[["a", "b"], ["a"], ["b"]], [["a", "b"], ["a", "c"], ["b", "c"]]])
@pytest.mark.parametrize(
    "model",
    [LoretaLabelRanker(2), LowRankLogisticRegression(2), LabelThresholds(LowRankLogisticRegression(2))],
)
def test_names_of_labels_lead_to_a_table_of_them(model: Any, tags: list[list[str]]) -> None:
    with pytest.raises(InvalidInputError, match=r"made by sklearn.preprocessing.MultiLabelBinarizer"):
        model.fit(X[:3], tags)


def test_frames_that_may_lack_values_hold_labels_and_those_that_do_are_refused() -> None:
    frame = pd.DataFrame(INDICATORS).astype("Int64")
    for model in (
        LowRankLogisticRegression(2, n_epochs=1, random_state=0),
        CalibratedLabelRanking(RidgeClassifier()),
    ):
        plain = clone(model).fit(ROWS, INDICATORS).predict(ROWS)
        assert np.array_equal(model.fit(ROWS, frame).predict(ROWS), plain)
        with pytest.raises(InvalidInputError, match="Y must be a table of the numbers 0 and 1"):
            model.fit(ROWS, frame.mask(frame == 0))
    with pytest.raises(InvalidInputError, match=r"which can be put in order \(.*\); leave rows with gaps"):
        CometMetric().fit(ROWS, np.array(["a", None], dtype=object)[CLASSES % 2])


def test_masked_entries_are_no_data() -> None:
    X = np.random.default_rng(0).standard_normal((20, 5))
    with pytest.raises(InvalidInputError, match="left has masked entries"):
        BilinearSum(np.ma.array(X, mask=X > 0), X)
    pairs, values = np.argwhere(X > 0), np.ma.masked_greater(X[X > 0], 1.0)
    model = BiasedALS(2).fit(pairs, values.data, shape=X.shape)
    for refused in (
        lambda: MetricRegression(np.ma.masked_greater(X.T, 0)),
        lambda: MultilabelCoembedding(X, np.ma.masked_equal(X > 0, True)),
        lambda: LabelThresholds(CoembeddingClassifier()).fit(X, np.ma.masked_equal((X > 0) * 1, 1)),
        lambda: BiasedALS(2).fit(pairs, values),
        lambda: model.rmse(pairs, values),
    ):
        with pytest.raises(InvalidInputError, match="has masked entries"):
            refused()
    with pytest.raises(InvalidInputError, match="targets"):
        BilinearSum(X, X, "squared", np.full(20, np.longdouble("1e400")))
    with pytest.raises(InvalidInputError, match="an estimator with fit and decision_function"):
        LabelThresholds(CoembeddingClassifier).fit(X, (X > 0) * 1)


ROWS = np.random.default_rng(0).standard_normal((40, 6))
INDICATORS = (ROWS[:, :3] > 0) * 1
CLASSES = np.arange(40) % 3


def ratings(**names: Any) -> Ratings:
    rows, columns = np.array([[0, 1, 2, 0], [0, 0, 1, 1]], dtype=np.int32)
    return Ratings("r", "memory", rows, columns, np.array([1.0, 5, 3, 2]), (3, 2), (1.0, 5.0), **names)


@each_row(
    ("call", "why"),
    [
        (
            lambda: BiasedALS(1).fit(ratings()).set_params(handle_unknown="bogus").predict([99], [0]),
            "handle_unknown",
        ),
        (
            lambda: BoostMetric(20, penalty=1e-7).fit(load_iris().data * 1e-5, load_iris().target),
            "W would be zero",
        ),
        (lambda: BoostMetric(20).fit(np.ones((20, 12)), np.arange(20) % 2), "W would be zero"),
        (lambda: BoostMetric().fit_triplets([[0.0], [1.0], [5.0]], [[0, 2, 1]]), "nearer positives"),
        (
            lambda: (
                ContrastiveSimilarity(2, n_epochs=1).fit(ROWS, CLASSES).set_params(rank=3).save("never.npz")
            ),
            "not those with which it was fitted",
        ),
    ],
)
def test_what_was_changed_behind_a_fit_is_refused(call: Any, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        call()


@pytest.mark.parametrize("psd", [False, True])
def test_what_was_learned_keeps_its_rank_and_its_cone(psd: bool, tmp_path: Path) -> None:
    model, plain = (LoretaSimilarity(2, psd=psd, random_state=0).partial_fit(ROWS, CLASSES) for _ in range(2))
    model.set_params(rank=4, psd=not psd).partial_fit(ROWS, CLASSES)
    assert np.array_equal(model.transform(ROWS), plain.partial_fit(ROWS, CLASSES).transform(ROWS))
    plain.save(tmp_path / "model.npz")
    loaded = LoretaSimilarity.load(tmp_path / "model.npz").set_params(psd=not psd)
    assert type(loaded.partial_fit(ROWS, CLASSES).model_.point) is (PSDPoint if psd else LowRankPoint)


def test_a_point_from_elsewhere_predicts_and_goes_on() -> None:
    ranker = LoretaLabelRanker(2, random_state=0).fit(ROWS, INDICATORS)
    assert LoretaLabelRanker(2).start_at(ranker.model_.point).predict(ROWS[:2]).sum(1).tolist() == [1, 1]
    assert ranker.set_params(top_k=3).predict(ROWS[:2]).sum(1).tolist() == [3, 3]
    point = LoretaSimilarity(2, random_state=0).fit(ROWS, CLASSES).model_.point
    assert LoretaSimilarity(random_state=0).start_at(point).partial_fit(ROWS, CLASSES).transform(
        ROWS
    ).shape == (40, 2)


FRAME = pd.DataFrame(ROWS, columns=list("abcdef"))


def test_scikit_learn_around_them() -> None:
    model = ContrastiveSimilarity(2, n_epochs=1).set_output(transform="pandas").fit(FRAME, CLASSES)
    assert isinstance(model.similarity(FRAME, FRAME), np.ndarray)
    scores = cross_val_predict(
        LoretaLabelRanker(2, random_state=0), ROWS, INDICATORS, method="decision_function"
    )
    assert scores.shape == INDICATORS.shape
    folds = KFold(3).split(ROWS)
    assert CoembeddingClassifierCV(betas=[1.0, 5.0], cv=folds).fit(ROWS, INDICATORS).beta_ in (1.0, 5.0)
    tasks = np.arange(40) % 5
    several = MultitaskSubspace(2, solver="batch").fit(ROWS, ROWS[:, 0], tasks=tasks)
    assert several.score(ROWS[:6], ROWS[:6, 0], tasks=tasks[:6]) > 0.9
    with pytest.raises(InvalidInputError, match="no task has two rows"):
        several.score(ROWS[:5], ROWS[:5, 0], tasks=tasks[:5])


def test_masked_classes_and_gaps_in_lists_are_refused() -> None:
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    with pytest.raises(InvalidInputError, match="y has masked entries"):
        LoretaSimilarity().fit(X, np.ma.masked_array(y, mask=y == 1))
    with pytest.raises(InvalidInputError, match="y must hold numbers or strings"):
        LoretaSimilarity().fit(X, ["a", "a", "b", "b", float("nan"), float("nan")])


class Plain(BaseEstimator):
    """A stranger's estimator without a seed and without declared parameters."""


def test_an_estimator_without_seed_or_declarations_begins() -> None:
    assert isinstance(begin(Plain()), int)


@pytest.mark.parametrize("name", ["CometMetric", "LoretaSimilarity"])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_losses_of_the_framework_are_no_losses_of_triplets(name: str, loss: str) -> None:
    with pytest.raises(InvalidInputError, match="loss"):
        PARTS[name].make(loss=loss).fit(X, LABELS)
