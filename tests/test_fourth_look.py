"""What attacks on doors for data, estimators and comparisons found: each repro, and beside it what must stay."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from tabled import each_row

from problems.coembedding import CoembeddingClassifierCV, LinkPredictor, PairwiseInteractionTags
from problems.comparison import Comparison, Difference
from problems.data import ClassBundle, Ratings, load, stream
from problems.evaluation import matrix_scores
from problems.kernels import log_det_weight
from problems.methods import Method
from problems.metric import BoostMetric, CometMetric, LegoMetric
from problems.metric.experiment import metric
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.serving import SimilarityIndex
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.subspace import BayesianCompletion, BiasedALS, MultitaskSubspace
from rmopt import InvalidInputError, StorageError
from rmopt.errors import DivergedError

HUGE = 2**63
X = np.random.default_rng(0).standard_normal((40, 6))
y = np.arange(40) % 3
Y = (X[:, :3] > 0) * 1
FRAME = pd.DataFrame(X, columns=list("abcdef"))
SWAPPED = FRAME[list("bacdef")]


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def ratings(**names: Any) -> Ratings:
    rows, columns = np.array([[0, 1, 2, 0], [0, 0, 1, 1]], dtype=np.int32)
    return Ratings("r", "memory", rows, columns, np.array([1.0, 5, 3, 2]), (3, 2), (1.0, 5.0), **names)


# Files of a stream.


def labels_of(folder: Path, **how: Any) -> list[Any]:
    return [one for _, labels in stream(folder, **how) for one in labels.tolist()]


@each_row(
    ("files", "why"),
    [
        (
            {"a__csv": "label,age,pay\na,30,5\n", "b__csv": "label,pay,age\na,5,30\n"},
            "names its features otherwise",
        ),
        ({"a__csv": "label,x\n1,1\n", "b__csv": "label,x\nc,1\n"}, "labels that are text"),
        ({"a__csv": ",x,label\n0,5,a\n1,6,b\n"}, "a column without a name"),
        ({"a__csv": "x,x,label\n0,5,a\n"}, "two columns called 'x'"),
        ({"a__csv": "x,test,label\n0,1,a\n"}, "may say what is held out"),
        ({"a__csv": "label\na\n"}, "no columns of features"),
        ({"a__csv": "label,x\na,1\nnan,2\n"}, "line 3 .* has no label"),
        ({"a__csv": "label,x\na,1\n\nb,inf\n"}, "line 4 .* holds NaN or infinity"),
        ({"a__csv": "label,x\na,1_000\n"}, "a number such as 1_000"),
        ({"a__csv": 'label,x\n"a,1\n'}, "line 2 .* not text in columns"),
    ],
)
def test_a_stream_refuses_tables_that_would_be_others(
    tmp_path_factory: Any, files: dict[str, str], why: str
) -> None:
    folder = written(tmp_path_factory.mktemp("s"), **files)
    with pytest.raises(InvalidInputError, match=why):
        list(stream(folder))


def test_labels_of_a_stream_stay_as_they_are_written(tmp_path: Path) -> None:
    words = ["007", "7", "9007199254740993", "9007199254740992", 'say "a"', "a,b"]
    lines = [f'"{word.replace(chr(34), 2 * chr(34))}",{number}' for number, word in enumerate(2 * words)]
    folder = written(tmp_path, a__csv="\ufefflabel,x\n" + "\n".join(lines))
    assert labels_of(folder) == 2 * words
    table = load(folder / "a.csv", kind=ClassBundle)
    assert set(table.class_names or ()) == set(words)
    written(folder, a__csv="label,x\n" + "\n".join(f"{n % 2 + 1},{n}" for n in range(5)))
    assert labels_of(folder) == [1, 2, 1, 2, 1]


def test_what_a_stream_does_not_read_is_told(tmp_path: Path) -> None:
    folder = written(tmp_path, a__csv="label,x\na,1\nb,2\n", b__tsv="label\tx\na\t1\n")
    (folder / "sub").mkdir()
    with pytest.warns(UserWarning, match=r"not read from .*: b.tsv, sub/"):
        assert labels_of(folder) == ["a", "b"]


@each_row(
    ("change", "why"),
    [
        ({"X_indices": np.array([2**32, 1, 0])}, "X"),
        ({"X_indices": np.array([0.5, 1, 0])}, "X_indices must be whole numbers"),
        ({"X_data": np.array([np.nan, 1, 1])}, "row 1 of X"),
        ({"classes": np.array([5, 5, 5])}, "several arrays that may be the labels: classes, y"),
        ({"y": np.ones((3, 1))}, "must have 1 side"),
    ],
)
def test_arrays_of_a_stream_are_checked_before_they_are_cast(
    tmp_path_factory: Any, change: dict[str, Any], why: str
) -> None:
    sound = {
        "X_data": np.ones(3), "X_indices": np.arange(3), "X_indptr": np.arange(4), "X_shape": np.array([3, 3]),
        "y": np.array([0, 1, 1]),
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("n")
    np.savez(folder / "a.npz", **sound)
    assert labels_of(folder) == [0, 1, 1]
    np.savez(folder / "a.npz", **{**sound, **change})
    with pytest.raises((InvalidInputError, StorageError), match=why):
        list(stream(folder))


# Tables.


def test_a_split_that_is_said_is_taken_or_told_of(tmp_path: Path, run: Any, capsys: Any) -> None:
    data, target = load_iris(return_X_y=True)
    held = np.arange(150) % 5 == 0
    frame = pd.DataFrame(data, columns=list("abcd")).assign(kind=target, held=held.astype(int))
    frame.to_csv(tmp_path / "iris.csv", index=False)
    bundle = load(tmp_path / "iris.csv", kind=ClassBundle, label="kind", test="held")
    assert bundle.split_said
    assert np.array_equal(bundle.test, held)
    said: list[str] = []
    loud = type("Run", (type(run),), {"say": lambda self, text: said.append(text)})(**vars(run))
    path = f"{tmp_path / 'iris.csv'}::label=kind,test=held"
    metric(loud, data=path, seeds=0, methods="euclidean")
    assert "120 training, 30 test rows, its own split" in " ".join(said)
    said.clear()
    metric(loud, data=path, seeds=1, methods="euclidean")
    assert "--seeds 0 takes its own" in " ".join(said)


@each_row("head", ["movieId,viewer,note", "rating,u,i", "u,timestamp,i"])
def test_three_columns_are_not_taken_by_place_against_their_names(tmp_path_factory: Any, head: str) -> None:
    folder = written(tmp_path_factory.mktemp("t"), a__csv=f"{head}\n1,2,3\n1,3,4\n")
    with pytest.raises(InvalidInputError, match="not clear what the columns"):
        load(folder / "a.csv", kind=Ratings)


def test_ids_keep_all_of_their_digits(tmp_path: Path) -> None:
    large = np.array([HUGE + 1, HUGE + 2, HUGE + 1], dtype=np.uint64)
    bundle = load({"user": large, "item": ["a", "b", "b"], "rating": [1, 2, 3]}, kind=Ratings)
    model = BiasedALS(1, random_state=0).fit(bundle)
    model.save(tmp_path / "m.npz")
    again = BiasedALS.load(tmp_path / "m.npz")
    assert again.column_names_.tolist() == [HUGE + 1, HUGE + 2]
    assert again.recommend(HUGE + 2, 1) == model.recommend(HUGE + 2, 1)
    more = model.fold_in([[0, 2]], [3.0], names=[7])
    assert more.column_names_.tolist() == [HUGE + 1, HUGE + 2, 7]
    with pytest.raises(InvalidInputError, match="names must be numbers"):
        model.fold_in([[0, 2]], [3.0], names=["7"])
    words = ["100000000000000000000", "200000000000000000000", "-0", "0"]
    written(tmp_path, a__csv="user,item,rating\n" + "\n".join(f"{word},a,1" for word in words))
    assert sorted(load(tmp_path / "a.csv", kind=Ratings).column_names.tolist()) == sorted(words)  # type: ignore[union-attr]


def test_commas_are_decimals_where_they_are_numbers_and_no_thousands(tmp_path: Path) -> None:
    written(
        tmp_path, a__csv="user;item;rating\n1,2;a;3,5\n1,3;a;2\n", b__tsv="user\titem\trating\n1\t2\t1,234\n"
    )
    bundle = load(tmp_path / "a.csv", kind=Ratings)
    assert bundle.column_names is not None
    assert bundle.column_names.tolist() == ["1,2", "1,3"]
    assert bundle.values.tolist() == [3.5, 2.0]
    assert "The numbers of rating have decimal commas." in bundle.odd()
    with pytest.raises(InvalidInputError, match="'1,234'"):
        load(tmp_path / "b.tsv", kind=Ratings)


@each_row(
    "time",
    [
        np.array([2**60 + 2, 2**60 + 1]),
        np.array([2, 1], dtype="datetime64[ns]"),
        ["2024-01-01T00:00:00.000000002", "2024-01-01T00:00:00.000000001"],
        [12.5, 12.25],
    ],
)
def test_the_newest_rating_is_the_newest_to_the_last_digit(time: Any) -> None:
    bundle = load({"user": [1, 1], "item": [1, 1], "rating": [1, 2], "time": time}, kind=Ratings)
    assert bundle.values.tolist() == [1.0]


def test_numbers_of_rows_and_measurements_are_no_features_and_no_classes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"label": ["a", "b"] * 6, "x": np.arange(12.0) ** 2}).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "a.csv")
    assert load(tmp_path / "a.csv", kind=ClassBundle).feature_names == ("x",)
    written(tmp_path, b__csv="label,x\n0.5,1\n1.5,2\n0.5,3\n1.5,4\n")
    with pytest.raises(InvalidInputError, match="no classes"):
        load(tmp_path / "b.csv", kind=ClassBundle)
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet files.")
    frame.to_parquet(tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet", kind=ClassBundle).feature_names == ("x",)


def test_labels_of_svmlight_are_told_apart_and_counted_once(tmp_path: Path) -> None:
    rows = "12345678,12345679 1:2\n12345678,12345678 1:1\n12345679 2:1\n12345678 1:3\n"
    bundle: Any = load(written(tmp_path, a__svmlight=rows) / "a.svmlight")
    assert bundle.label_names == ("12345678", "12345679")
    assert bundle.Y.toarray().tolist() == [[1, 1], [1, 0], [0, 1], [1, 0]]


@each_row(
    "text",
    [
        "pattern general\n9 9 3\n1 1 4\n2 1 3\n",
        "real general\n9 9 2\n1 1\n4 2\n3 6\n",
        "real symmetric\n3 2 1\n1 1 1\n",
    ],
)
def test_entries_of_another_width_are_refused(tmp_path_factory: Any, text: str) -> None:
    folder = written(tmp_path_factory.mktemp("m"), a__mtx=f"%%MatrixMarket matrix coordinate {text}")
    with pytest.raises(StorageError, match=r"must be . numbers|as many rows as columns"):
        load(folder / "a.mtx")


# Estimators.


def test_logdet_updates_keep_their_digits_and_the_metric_positive_definite() -> None:
    """The references have 60 digits (mpmath)."""
    assert log_det_weight(4e8, 1e8, 1.0) == pytest.approx(1.875e-9, rel=1e-12)
    assert log_det_weight(4e7, 1e7, 1.0) == pytest.approx(1.875e-8, rel=1e-6)
    data, target = load_wine(return_X_y=True)
    for scale in (1e-3, 100.0, 1e5):
        assert np.linalg.eigvalsh(LegoMetric(random_state=0).fit(scale * data, target).mahalanobis_)[0] > 0.0


@each_row(
    ("change", "why"),
    [
        (
            {
                "rows": np.array([0, 0, 2, 0], dtype=np.int32),
                "columns": np.array([0, 0, 1, 1], dtype=np.int32),
            },
            "twice",
        ),
        ({"column_names": np.array(["u", "u"])}, "different names"),
        ({"row_names": np.array(["a", "b"])}, "different names"),
        ({"row_names": np.array(["a", 1, "c"], dtype=object)}, "all be text"),
    ],
)
def test_ratings_are_refused_where_they_say_two_things(change: dict[str, Any], why: str) -> None:
    known = vars(ratings())
    with pytest.raises(InvalidInputError, match=why):
        Ratings(**{**known, **change})


def test_names_of_a_bundle_are_its_own_and_of_any_kind_of_text() -> None:
    given = np.array(["x", "y", "z"], dtype=object)
    bundle = ratings(row_names=given)
    given[0] = "changed"
    assert {name for name, _ in BiasedALS(1, random_state=0).fit(bundle).recommend(1)} == {"y"}


def test_stored_zeros_are_no_links() -> None:
    graph = sp.csr_array(([1.0, 1, 0, 0], ([0, 1, 2, 3], [1, 0, 3, 2])), shape=(4, 4))
    pairs, linked = LinkPredictor(random_state=0)._drawn(graph, 4)
    assert pairs[linked].tolist() == [[0, 1]]


def test_samples_are_counted_as_they_are_and_not_as_a_parameter_says() -> None:
    rng = np.random.default_rng(0)
    table = sp.csc_array(np.where(rng.random((12, 9)) < 0.7, 3 + rng.standard_normal((12, 9)), 0))
    model = BayesianCompletion(2, n_samples=20, random_state=0).fit(table)
    before = model.predict(0, range(3))
    assert np.array_equal(model.set_params(n_samples=5).predict(0, range(3)), before)


def test_a_loaded_model_goes_on_as_the_one_that_was_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    many = np.array([rng.permutation([1, 1, 1, 0, 0, 0]) for _ in range(40)])
    ranker = LoretaLabelRanker(2, random_state=0).partial_fit(X, many)
    ranker.save(tmp_path / "r.npz")
    again = LoretaLabelRanker.load(tmp_path / "r.npz")
    few = np.eye(6, dtype=int)[:4]
    assert ranker.partial_fit(X[:4], few).top_k_ == again.partial_fit(X[:4], few).top_k_ == 3
    model = LoretaSimilarity(2, random_state=0).fit(FRAME, y)
    model.save(tmp_path / "s.npz")
    loaded = LoretaSimilarity.load(tmp_path / "s.npz")
    assert loaded.classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(SWAPPED)


def test_the_order_of_named_columns_is_looked_at_everywhere(tmp_path: Path) -> None:
    index = LoretaSimilarity(2, random_state=0).fit(FRAME, y).index(FRAME)
    index.save(tmp_path / "index")
    for one in (index, SimilarityIndex.load(tmp_path / "index")):
        assert one.query(FRAME[:1], 1)[0] == pytest.approx(one.query(X[:1], 1)[0])
        with pytest.raises(InvalidInputError, match="bring them into that order"):
            one.query(SWAPPED[:1], 1)
    posts = pd.DataFrame({"user": [0, 1, 2, 0, 1], "item": [2, 1, 0, 1, 0]})
    tags = PairwiseInteractionTags(2, random_state=0).fit(posts, list("abcab"))
    with pytest.raises(InvalidInputError, match="bring them into that order"):
        tags.predict(posts[["item", "user"]])
    assert np.array_equal(tags.predict(posts), tags.predict(posts.to_numpy()))


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


def other_rank() -> Any:
    return LoretaSimilarity(2, random_state=0).partial_fit(X, y).set_params(rank=4).partial_fit(X, y)


def other_rank_of_a_stream() -> Any:
    model = LoretaLabelRanker(2, warm_start=True, random_state=0).partial_fit(X, Y)
    return model.set_params(rank=3).fit_stream([(X, Y)])


def other_cone() -> Any:
    return LoretaSimilarity(2, random_state=0).partial_fit(X, y).set_params(psd=True).partial_fit(X, y)


def probable() -> Any:
    return (
        LowRankLogisticRegression(2, n_epochs=1, random_state=0)
        .fit(X, Y)
        .set_params(threshold=7.0)
        .predict(X)
    )


@each_row(
    ("call", "why"),
    [
        (other_rank, "what was learned has rank = 2"),
        (other_rank_of_a_stream, "what was learned has rank = 2"),
        (other_cone, "what was learned has psd = False"),
        (probable, "threshold = 7"),
        (
            lambda: LoretaSimilarity(2, early_stopping=True).partial_fit(X, y),
            "early_stopping = True is for fit",
        ),
        (
            lambda: BiasedALS(1).fit(ratings()).set_params(handle_unknown="bogus").predict([99], [0]),
            "handle_unknown",
        ),
        (lambda: BoostMetric(20).fit(load_iris().data * 1e-5, load_iris().target), "W would be zero"),
        (
            lambda: ContrastiveSimilarity(2, n_epochs=1).fit(X, y).set_params(rank=3).save("never.npz"),
            "not those with which it was fitted",
        ),
        (lambda: LoretaSimilarity().start_at(LoretaLabelRanker(2).fit(X, Y).model_.point), "a square matrix"),
    ],
)
def test_what_was_changed_behind_a_fit_is_refused(call: Any, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        call()


def test_a_point_from_elsewhere_predicts_and_goes_on() -> None:
    ranker = LoretaLabelRanker(2, random_state=0).fit(X, Y)
    assert LoretaLabelRanker(2).start_at(ranker.model_.point).predict(X[:2]).sum(1).tolist() == [1, 1]
    point = LoretaSimilarity(2, random_state=0).fit(X, y).model_.point
    assert LoretaSimilarity(random_state=0).start_at(point).partial_fit(X, y).transform(X).shape == (40, 2)


def test_scikit_learn_around_them() -> None:
    model = ContrastiveSimilarity(2, n_epochs=1).set_output(transform="pandas").fit(FRAME, y)
    assert isinstance(model.similarity(FRAME, FRAME), np.ndarray)
    scores = cross_val_predict(LoretaLabelRanker(2, random_state=0), X, Y, method="decision_function")
    assert scores.shape == Y.shape
    folds = KFold(3).split(X)
    assert CoembeddingClassifierCV(betas=[1.0, 5.0], cv=folds).fit(X, Y).beta_ in (1.0, 5.0)
    tasks = np.arange(40) % 5
    several = MultitaskSubspace(2, solver="batch").fit(X, X[:, 0], tasks=tasks)
    assert several.score(X[:6], X[:6, 0], tasks=tasks[:6]) > 0.9
    with pytest.raises(InvalidInputError, match="no task has two rows"):
        several.score(X[:5], X[:5, 0], tasks=tasks[:5])


def test_a_line_search_finds_steps_of_any_size() -> None:
    data, target = load_iris(return_X_y=True)
    for seed in range(4):
        model = CometMetric(
            retraction="affine-exponential", loss="squared_hinge", init="identity", random_state=seed
        )
        # Bisection ended with an error of its own.
        with suppress(DivergedError):
            assert np.isfinite(model.fit(1e6 * data, target).mahalanobis_).all()


def test_a_run_without_a_seed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    one, other = (
        LoretaSimilarity(2, max_iter=500, checkpoint=tmp_path / "k.npz").fit(X, y).model_.point
        for _ in range(2)
    )
    assert np.array_equal(one.U, other.U)


# Comparisons.


class Keyed(TransformerMixin, BaseEstimator):
    """Features weighed by a dict with numbers for keys, and cut to a range, a tuple."""

    def __init__(self, weights: Any = None, span: Any = (0.0, 1.0), random_state: Any = None) -> None:
        self.weights, self.span, self.random_state = weights, span, random_state

    def fit(self, X: Any, y: Any = None) -> Keyed:
        return self

    def transform(self, X: Any) -> Any:
        assert isinstance(self.span, tuple)
        return X * (self.weights or {0: 0.0}).get(0, 1.0)


def test_parameters_come_out_of_a_file_of_results_as_the_grid_has_them(run: Any) -> None:
    grid = [{"weights": {0: 0.0}}, {"weights": {11: 1.0, 9: 2.0}, "span": (np.int64(0), 2)}]
    method = Method("keyed", Keyed(), grid)
    for resume in (False, True):
        comparison = Comparison(run, resume, seeds=1)
        [model] = comparison.selected(
            [{"method": "keyed"}],
            {"keyed": method},
            "first",
            lambda one: {"parameters": grid[1]},
            lambda one: "keyed",
        )
        assert method.made(model["parameters"]).get_params()["weights"] == {11: 1.0, 9: 2.0}
        assert method.made(model["parameters"]).get_params()["span"] == (0, 2)
        cells = comparison.results([model], lambda one: {"map": 1.0, "seconds": 0.0}, by=("method",))
        assert cells == {"keyed": [{"map": 1.0, "seconds": 0.0}]}
    assert len(Path(run.path("cells.jsonl")).read_text(encoding="utf-8").splitlines()) == 2


def test_steps_of_a_pipeline_get_the_seed() -> None:
    method = Method("steps", make_pipeline(Keyed(), Keyed(random_state=7)))
    made = method.made({}, random_state=3)
    assert (made[0].random_state, made[1].random_state) == (3, 7)


def test_rounding_is_no_lead() -> None:
    ours, theirs = [{"m": 0.1 + 0.2}] * 3, [{"m": 0.3}] * 3
    assert Difference.of(ours, theirs, "m").verdict == "level"
    assert Difference.of([{"m": 0.31}] * 3, theirs, "m").verdict == "above"


@each_row("distance", [True, False])
def test_a_distance_sees_the_symmetric_part_alone(distance: bool) -> None:
    W, rows = np.eye(3) + np.triu(np.ones((3, 3)), 1), X[:6, :3]
    gaps = rows[:, None] - rows[None]
    true = -np.einsum("qdi,ij,qdj->qd", gaps, W, gaps) if distance else rows @ W @ rows.T
    found = matrix_scores(W, rows, distance=distance)(np.arange(6))
    assert np.array_equal(np.argsort(-found, axis=1), np.argsort(-true, axis=1))


def test_folds_that_are_too_many_are_refused_in_a_sentence(rmopt_run: Any) -> None:
    said = rmopt_run(
        "metric", "--data", "digits", "--rows", "200", "--folds", "500", "--select", "first", "--seeds", "1",
        "--methods", "lego", "--passes", "0.1", code=2,
    ).stderr  # fmt: skip
    assert "cannot be dealt into folds" in " ".join(said.split())


def test_to_resume_needs_a_folder(rmopt_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--out FOLDER" in rmopt_run("similarity", "--resume", code=2).stderr
    told, options = (
        [],
        ("similarity", "--data", "digits", "--methods", "loreta", "--select", "none", "--seeds", "1"),
    )
    for triplets in ("100", "200", "100"):
        said = rmopt_run(*options, "--triplets", triplets, "--out", "here", "--resume").stdout
        stale = "loreta-1.npz is of other options" in " ".join(said.split())
        told.append(stale)
    assert told == [False, False, True]
