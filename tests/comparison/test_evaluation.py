"""Retrieval measures against scikit-learn and by hand."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from real_data import REAL, real
from scipy.sparse import coo_array, csr_array
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity
from tabled import each_row

from problems.data.sets import NEWS20_FILE, news20
from problems.data.text import informative_unit_rows
from problems.evaluation import bilinear_scores, cosine_scores, evaluate_retrieval, matrix_scores
from rmopt.errors import InvalidInputError


def table(scores: Any) -> Any:
    """Score by a table, shape (n, n)."""
    return lambda rows: np.asarray(scores)[rows]


def average_precisions(scores: np.ndarray, y: np.ndarray) -> list[float]:
    """Ask scikit-learn about each query that has another document of its class."""
    others = ~np.eye(len(y), dtype=bool)
    return [
        average_precision_score(y[keep] == y[q], scores[q, keep])
        for q, keep in enumerate(others)
        if (y[keep] == y[q]).any()
    ]


@pytest.fixture
def y() -> np.ndarray:
    """83 labels, of which 7 occurs once."""
    labels = np.random.default_rng(0).integers(0, 5, 83)
    labels[40] = 7
    return labels


def scores_with(ties: str, n: int = 83) -> np.ndarray:
    rng = np.random.default_rng(4)
    drawn = rng.normal(size=(n, n))
    return {
        "none": drawn,
        "many": np.round(drawn),
        "all": np.zeros((n, n)),
        "infinite": np.where(drawn < -0.5, -np.inf, np.round(drawn, 1)),
    }[ties]


class TestAveragePrecision:
    @each_row("ties", ["none", "many", "all"])
    @each_row("kind", [np.float64, np.float32])
    def test_equals_scikit_learns(self, y: np.ndarray, ties: str, kind: type) -> None:
        scores: np.ndarray = scores_with(ties).astype(kind)
        expected = average_precisions(scores, y)
        found = evaluate_retrieval(table(scores), y)
        assert found.n_queries == len(expected) == 82
        assert found.map == pytest.approx(np.mean(expected), rel=1e-13)

    def test_integer_and_infinite_scores(self, y: np.ndarray) -> None:
        whole = scores_with("many")
        assert evaluate_retrieval(table(whole.astype(int)), y) == evaluate_retrieval(table(whole), y)
        lowest = scores_with("infinite")
        expected = average_precisions(np.where(np.isinf(lowest), -99.0, lowest), y)
        assert evaluate_retrieval(table(lowest), y).map == pytest.approx(np.mean(expected), rel=1e-13)

    def test_five_documents_by_hand(self) -> None:
        """Classes a a a b b; each query's own score is the highest and must not be ranked.

        Query 0 ranks 3 1 4 2: a at positions 2 and 4, AP (1/2 + 2/4) / 2 = 1/2.
        Query 1 ranks 0 2 3 4: AP 1. Query 2 ranks 3 4 0 1: AP (1/3 + 2/4) / 2 = 5/12.
        Query 3 ranks 0 4 1 2: AP 1/2. Query 4 ranks 0 1 2 3: AP 1/4.
        """
        order = [[3, 1, 4, 2], [0, 2, 3, 4], [3, 4, 0, 1], [0, 4, 1, 2], [0, 1, 2, 3]]
        scores = np.full((5, 5), 100.0)
        for query, ranked in enumerate(order):
            scores[query, ranked] = [4, 3, 2, 1]
        found = evaluate_retrieval(table(scores), list("aaabb"), ks=(1, 2, 3, 4, 8))
        assert found.map == pytest.approx((1 / 2 + 1 + 5 / 12 + 1 / 2 + 1 / 4) / 5, rel=1e-15)
        hits = {1: 0 + 1 + 0 + 0 + 0, 2: 1 + 2 + 0 + 1 + 0, 3: 1 + 2 + 1 + 1 + 0, 4: 8, 8: 8}
        assert found.precision_at == pytest.approx({k: hit / k / 5 for k, hit in hits.items()}, rel=1e-15)
        assert found.n_queries == 5

    def test_a_perfect_and_a_worst_ranking(self) -> None:
        y = np.repeat([0, 1], 3)
        same = (y[:, None] == y).astype(float)
        assert evaluate_retrieval(table(same), y, ks=(2,)).map == 1
        worst = evaluate_retrieval(table(-same), y, ks=(2, 3))
        assert worst.map == pytest.approx(2 / 5)
        assert worst.precision_at == {2: 0, 3: 0}


class TestPrecisionAtK:
    def test_ties_at_the_cut_take_the_mean_over_their_orders(self) -> None:
        """Query 0 (class a): a above, then three equal scores with one a among them, then b."""
        scores = np.array([[0.0, 9, 5, 5, 5, 1]])
        found = evaluate_retrieval(lambda rows: scores, list("aaabbb"), queries=[0], ks=(1, 2, 3, 4, 5, 8))
        # Also where fewer than k documents are ranked it is a share of k.
        expected = {1: 1, 2: (1 + 1 / 3) / 2, 3: (1 + 2 / 3) / 3, 4: 2 / 4, 5: 2 / 5, 8: 2 / 8}
        assert found.precision_at == pytest.approx(expected, rel=1e-15)

    def test_without_ties_is_the_count_among_the_first(self, y: np.ndarray) -> None:
        scores = scores_with("none")
        shares = []
        for query in np.flatnonzero(y != 7):
            ranked = [row for row in np.argsort(-scores[query]) if row != query]
            shares.append(np.mean(y[ranked[:10]] == y[query]))
        assert evaluate_retrieval(table(scores), y).precision_at[10] == pytest.approx(np.mean(shares))

    def test_no_k_is_fine(self, y: np.ndarray) -> None:
        assert evaluate_retrieval(table(scores_with("none")), y, ks=()).precision_at == {}


class TestInvariance:
    @each_row("ties", ["none", "many", "infinite"])
    def test_the_order_of_the_documents_does_not_matter(self, y: np.ndarray, ties: str) -> None:
        scores, order = scores_with(ties), np.random.default_rng(5).permutation(83)
        there = evaluate_retrieval(table(scores), y, ks=(1, 7))
        back = evaluate_retrieval(table(scores[np.ix_(order, order)]), y[order], ks=(1, 7))
        assert back.map == pytest.approx(there.map, rel=1e-13)
        assert back.precision_at == pytest.approx(there.precision_at, rel=1e-13)

    @each_row("size", [1, 7, 82, 83, 1000])
    def test_blockwise_equals_one_block(self, y: np.ndarray, size: int) -> None:
        scores = scores_with("many")
        whole = evaluate_retrieval(table(scores), y)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("problems.evaluation.BLOCK", size)
            assert evaluate_retrieval(table(scores), y) == whole

    def test_queries_are_a_subset(self, y: np.ndarray) -> None:
        scores, chosen = scores_with("none"), np.array([60, 3, 40, 17])
        expected = [average_precisions(scores, y)[row - (row > 40)] for row in (60, 3, 17)]
        found = evaluate_retrieval(table(scores), y, queries=chosen)
        assert found.n_queries == 3
        assert found.map == pytest.approx(np.mean(expected), rel=1e-13)

    def test_memory_is_that_of_a_block(self) -> None:
        rng = np.random.default_rng(0)
        embedding = rng.normal(size=(3000, 4))
        y = rng.integers(0, 10, 3000)
        evaluate_retrieval(bilinear_scores(embedding, embedding), y, queries=[0])
        tracemalloc.start()
        evaluate_retrieval(bilinear_scores(embedding, embedding), y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3000 * 3000 * 8 / 2


class TestScores:
    def test_bilinear_is_the_form_of_a_model(self) -> None:
        rng = np.random.default_rng(0)
        X, A, B = rng.normal(size=(6, 9)), rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
        rows = np.array([4, 1])
        np.testing.assert_allclose(bilinear_scores(X @ A, X @ B)(rows), X[rows] @ A @ B.T @ X.T, rtol=1e-12)

    @each_row("form", [np.asarray, csr_array, coo_array, lambda X: csr_array(X).tocsc()])
    def test_cosine_equals_scikit_learns(self, form: Any) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(20, 7)) * (rng.random((20, 7)) < 0.5)
        X[3] = 0
        rows = np.array([3, 19, 0, 5])
        np.testing.assert_allclose(cosine_scores(form(X))(rows), cosine_similarity(X)[rows], atol=1e-15)

    @each_row("form", [np.asarray, csr_array])
    @each_row("scale", [1e-200, 1e200])
    def test_cosine_of_extreme_lengths(self, form: Any, scale: float) -> None:
        X = np.array([[3.0, 4.0], [4.0, 3.0]]) * scale
        np.testing.assert_allclose(cosine_scores(form(X))(np.array([0])), [[1, 0.96]], rtol=1e-14)

    def test_cosine_adds_up_duplicates_and_leaves_its_argument_alone(self) -> None:
        twice = csr_array((np.array([1.0, 2.0, 4.0]), [0, 0, 1], [0, 3]), shape=(1, 2))
        np.testing.assert_allclose(cosine_scores(twice)(np.array([0])), [[1.0]])
        assert twice.data.tolist() == [1, 2, 4]


class TestRefusals:
    def test_one_nan_score(self) -> None:
        scores = np.ones((4, 4))
        scores[2, 1] = np.nan
        with pytest.raises(InvalidInputError, match="NaN scores"):
            evaluate_retrieval(table(scores), [0, 0, 1, 1])

    @each_row("X", [np.ones(3), np.full((3, 2), np.nan), csr_array([[1.0, np.inf]]), [["a"]]])
    def test_features(self, X: Any) -> None:
        with pytest.raises(InvalidInputError, match="X must be a table of finite numbers"):
            cosine_scores(X)


@pytest.mark.slow
@real(NEWS20_FILE)
def test_cosine_on_news20() -> None:
    """With the published split, 16,660 terms and tf-idf: mAP 0.2215."""
    prepared = informative_unit_rows(news20(REAL), 16660)
    found = evaluate_retrieval(cosine_scores(prepared.X[prepared.test]), prepared.y[prepared.test])
    assert found.n_queries == 7532
    assert found.map == pytest.approx(0.22154, abs=1e-5)
    assert found.precision_at[1] == pytest.approx(0.82103, abs=1e-5)


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((700, 4)), rng.integers(5, size=700)
    alone = evaluate_retrieval(bilinear_scores(Z, Z), y)
    assert evaluate_retrieval(bilinear_scores(Z, Z), y, n_jobs=3) == alone


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


X = np.random.default_rng(0).standard_normal((40, 6))


@each_row("distance", [True, False])
def test_a_distance_sees_the_symmetric_part_alone(distance: bool) -> None:
    W, rows = np.eye(3) + np.triu(np.ones((3, 3)), 1), X[:6, :3]
    gaps = rows[:, None] - rows[None]
    true = -np.einsum("qdi,ij,qdj->qd", gaps, W, gaps) if distance else rows @ W @ rows.T
    found = matrix_scores(W, rows, distance=distance)(np.arange(6))
    assert np.array_equal(np.argsort(-found, axis=1), np.argsort(-true, axis=1))
