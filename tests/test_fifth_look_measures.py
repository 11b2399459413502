"""What an attack on measures, comparisons, pictures and streams found: each repro, and beside it what must stay."""

from __future__ import annotations

import errno
import http.client
import os
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_predict, cross_val_score
from tabled import each_row

from problems.coembedding import CalibratedLabelRanking, CoembeddingClassifier, TagRecommender
from problems.data import stream
from problems.evaluation import cosine_scores, evaluate_retrieval, matrix_scores
from problems.palette import line, style, ticks_of_few_decades, whole_ticks
from problems.ranking import (
    LoretaLabelRanker,
    LowRankLogisticRegression,
    ndcg_at,
    precision_at,
    propensities,
    propensity_scored_precision_at,
)
from problems.serving import Found, Searcher, make_server
from problems.similarity import ContrastiveSimilarity
from problems.similarity.methods import CURVE_QUERIES, Cosine, mean_precision
from problems.subspace import GossipPlan, ImplicitALS, ScaledSGDCompletion, TimeSplit, agree, gossip
from rmopt import InvalidInputError
from rmopt.cli import main
from rmopt.core import AgentSum
from rmopt.solvers import Below, NotFinite


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


class Variances(AgentSum):
    """A stranger's agents, who may give something else for their gradients."""

    n_terms = 3

    def __init__(self, given: Any = lambda gradient: (gradient, np.eye(gradient.shape[1]))) -> None:
        self.given, self.tables = given, np.random.default_rng(0).standard_normal((3, 8, 20))

    def agent_value(self, point: Any, agent: int) -> float:
        return -0.5 * float(np.sum((point.T @ self.tables[agent]) ** 2))

    def agent_gradient(self, point: Any, agent: int) -> Any:
        return self.given(-self.tables[agent] @ (self.tables[agent].T @ point))


class Rows(Variances):
    n_rows = 8


def test_what_agents_give_is_looked_at_before_they_begin() -> None:
    plan = GossipPlan(n_epochs=2)
    assert agree(Rows(), 2, 0).result.converged
    for tasks, flaw in (
        (Variances(), "Variances needs an attribute n_rows"),
        ([np.eye(8)], "an object of a subclass of AgentSum"),
        (Rows(lambda gradient: gradient), r"must return the gradient and a curvature of shape \(2, 2\)"),
        (Rows(lambda gradient: (gradient.T, np.eye(2))), r"the gradient, must be .* shape \(8, 2\)"),
        (Rows(lambda gradient: (gradient, None)), "the curvature, must be"),
        (Rows(lambda gradient: (np.nan * gradient, np.eye(2))), "got NaN"),
    ):
        with pytest.raises(InvalidInputError, match=flaw):
            gossip(tasks, 2, plan, 0)
        with pytest.raises(InvalidInputError, match=flaw):
            agree(tasks, 2, 0)
    for run in (
        lambda: gossip(Rows(), 2, plan, None),
        lambda: gossip(Rows(), 2, None, 0),
        lambda: gossip(Rows(), 2, plan, 0, start=np.eye(8)[:, :3]),
        lambda: agree(Rows(), 2, 0, tol=np.nan),
    ):
        with pytest.raises(InvalidInputError, match=r"seed|plan|start|tol"):
            run()


def test_nan_is_no_class() -> None:
    scores = cosine_scores(np.eye(4))
    with pytest.raises(InvalidInputError, match="y holds NaN, which is no class"):
        evaluate_retrieval(scores, [np.nan, np.nan, 1.0, 1.0])


def test_scores_of_a_matrix_keep_their_digits_and_refuse_what_does_not_fit() -> None:
    rng, rows = np.random.default_rng(0), np.arange(6)
    small = rng.integers(0, 100, (6, 3), dtype=np.uint8)
    W = np.array([[3, 1, 0], [0, 2, 1], [0, 0, 1]], dtype=np.int8)
    true = small.astype(float) @ W @ small.T.astype(float)
    for one in (small, small.tolist(), sp.csr_array(small)):
        for matrix in (W, W.tolist(), sp.csr_array(W)):
            np.testing.assert_array_equal(matrix_scores(matrix, one)(rows), true)
            near = matrix_scores(matrix, one, distance=True)(rows)
            far = matrix_scores(matrix, small + 1e8, distance=True)(rows)
            np.testing.assert_array_equal(np.argsort(-near, axis=1), np.argsort(-far, axis=1))
    for matrix, features in ((np.eye(4), small), (np.eye(3), small[0]), (np.nan * W, small)):
        with pytest.raises(InvalidInputError, match=r"must be a"):
            matrix_scores(matrix, features)
    half = rng.random((6, 3)).astype(np.float16)
    np.testing.assert_array_equal(cosine_scores(half)(rows), cosine_scores(half.astype(float))(rows))


def test_measures_take_any_places_and_refuse_impossible_properties() -> None:
    scores, Y = np.array([[3.0, 2.0, 1.0]]), np.array([[1, 0, 1]])
    assert precision_at(scores, Y, (k for k in (1, 2))) == {1: 1.0, 2: 0.5}
    assert list(ndcg_at(scores, Y, iter((1, 2)))) == [1, 2]
    assert list(propensity_scored_precision_at(scores, Y, np.ones(3), iter((1, 2)))) == [1, 2]
    for wrong in ({"b": -2.0}, {"a": np.nan}):
        with pytest.raises(InvalidInputError, match=r"must be a (positive )?number"):
            propensities(np.eye(4), **wrong)


@pytest.mark.parametrize("label", ["nan", "-inf", "1e400", "1_0", "9007199254740993"])
def test_labels_of_svmlight_are_numbers_that_can_be_told_apart(label: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.svmlight"
    file.write_text(f"# two rows\n9007199254740994 0:1\n{label} 0:1\n")
    with pytest.raises(InvalidInputError, match=f"line 3 of .* has no number for a label, or .*: '{label}'"):
        list(stream(file, n_features=2))
    file.write_text("9007199254740994 0:1\n-3 0:9007199254740993\n")
    [(_, labels)] = stream(file, n_features=2)
    assert labels.tolist() == [9007199254740994, -3]


@each_row(
    "arrays, flaw",
    [
        ({"y": np.zeros((4, 1))}, r"y of .*npz has shape \(4, 1\), and must have 1 side"),
        ({"y": np.array([*"abab"], dtype=object)}, r"y of .*npz holds object; write .*astype\(str\)"),
        ({"y": np.zeros(3)}, "X of .*npz has 4 rows, and the labels 3"),
        ({}, ".*npz has no y; write it"),
    ],
)
def test_a_sound_file_of_another_form_is_not_called_damaged(arrays: Any, flaw: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.eye(4), **arrays)
    with pytest.raises(InvalidInputError, match=f"^{flaw}"):
        list(stream(tmp_path / "rows.npz"))


def test_streams_that_the_shell_closed_are_written_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        closed.setattr(sys, "stderr", None)
        with pytest.raises(SystemExit) as ended:
            main(["--version"])
        sys.stdout.close()
        sys.stderr.close()
    assert not ended.value.code


def test_a_picture_without_space_does_not_cost_the_table(
    rmopt_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    said = rmopt_run(
        "metric", "--data", "digits", "--rows", "100", "--methods", "euclidean", "--seeds", "1",
        "--out", str(tmp_path / "out"), code=2,
    )  # fmt: skip
    assert "euclidean" in said.stdout.lower()
    assert "cannot write" in said.stderr
    assert "precision.png" in said.stderr
    assert (tmp_path / "out" / "result.json").exists()


class Nothing(Searcher):
    prompt = "Anything"

    def find(self, fields: Any, k: int) -> Found:
        return Found("", [])


def test_a_page_answers_head() -> None:
    server = make_server(Nothing(), port=0)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        connection = http.client.HTTPConnection(*server.server_address[:2])
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 0
        connection.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_methods_of_a_picture_can_be_told_apart() -> None:
    assert len({(look["color"], look["marker"]) for look in map(style, range(56))}) == 56
    lines = [line(number, dashes) for number in range(14) for dashes in (0, 1)]
    assert len({(look["color"], look["linestyle"]) for look in lines}) == 21
    assert line(0, 1) != line(7, 1)


def test_short_axes_have_ticks() -> None:
    axes = Figure().subplots()
    axes.plot([4.0], [0.03], "o")
    axes.plot([4.0], [0.08], "o")
    whole_ticks(axes.xaxis)
    assert [one for one in axes.get_xticks() if 3.8 < one < 4.2] == [4.0]
    for lowest in (0.03, 0.003):
        axes.plot([4.0], [lowest], "o")
        axes.set_yscale("log")
        ticks_of_few_decades(axes.yaxis)
        low, high = axes.get_ylim()
        inside = [one for one in axes.get_yticks() if low < one < high]
        assert len(inside) >= 3
        assert float(axes.yaxis.get_major_formatter()(inside[0])) == pytest.approx(inside[0])


def test_a_stream_of_csv_has_the_features_that_were_said(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n")
    assert next(iter(stream(tmp_path, n_features=1)))[0].shape == (2, 1)
    with pytest.raises(InvalidInputError, match="has 1 features, and n_features = 7"):
        list(stream(tmp_path, n_features=7))


def test_criteria_name_what_they_saw_in_english() -> None:
    assert Below(0.5, "error")([{"error": 0.25}]) == "an error of 0.25"
    assert NotFinite("error")([{"error": np.nan}]) == "an error of nan"


def test_implicit_feedback_is_validated_on_later_dates() -> None:
    pairs = np.array([(row, row + step) for row in range(20) for step in range(8)])
    model = ImplicitALS(2, handle_unknown="mean", random_state=0)
    with pytest.warns(UserWarning, match="fit did not see"):
        found = cross_val_score(
            model,
            pairs,
            np.ones(len(pairs)),
            cv=TimeSplit(2),
            groups=np.arange(len(pairs)),
            error_score="raise",
        )
    assert np.all((found >= 0.0) & (found <= 1.0))
    # Rows and columns that a shape announces are others that are not known.
    few, later = pairs[:40], pairs[40:60]
    whole = model.fit(few, np.ones(40), shape=(20, 30)).ranked(later, np.ones(20))
    with pytest.warns(UserWarning, match="fit did not see"):
        assert model.fit(few, np.ones(40)).ranked(later, np.ones(20)).n_columns == whole.n_columns
    with pytest.raises(InvalidInputError, match="rows"):
        ImplicitALS(2, random_state=0).fit(few, np.ones(40)).score(later, np.ones(20))


def test_a_weight_that_leaves_nothing_is_told() -> None:
    X = np.random.default_rng(0).standard_normal((20, 4))
    with pytest.warns(UserWarning, match=r"beta = 1000 is so large that the model is empty \(rank 0\)"):
        assert CoembeddingClassifier(beta=1000).fit(X, X[:, :2] > 0).rank_ == 0
    posts, tags = [["ann", "a"], ["bob", "b"]], ["red", "blue"]
    with pytest.warns(UserWarning, match="beta = 50"):
        TagRecommender(beta=50).fit(posts, tags)
    assert TagRecommender(beta=0.1).fit(posts, tags).rank_ > 0


def test_votes_are_cross_validated() -> None:
    X = np.random.default_rng(0).standard_normal((60, 4))
    Y = (X[:, :3] > 0).astype(int)
    model = CalibratedLabelRanking(RidgeClassifier())
    found = cross_val_predict(model, X, Y, cv=3, method="decision_function")
    assert found.shape == Y.shape
    assert np.mean((found > 0) == Y) > 0.8


def test_a_score_knows_the_columns_of_a_frame() -> None:
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 4)), columns=list("abcd"))
    model = ContrastiveSimilarity(2, n_epochs=1, random_state=0).fit(X, X["a"] > 0)
    # Warnings are errors here.
    assert 0.0 < model.score(X, X["a"] > 0) <= 1.0
