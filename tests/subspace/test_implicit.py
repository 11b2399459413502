"""Confidence-weighted alternating least squares and lists of recommendations, against dense closed forms."""

from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime
from sklearn.metrics import ndcg_score
from sklearn.model_selection import cross_val_score
from tabled import each_row

from problems.data import Ratings
from problems.subspace import BiasedALS, EntryKFold, ImplicitALS, entries
from rmopt.core import InvalidInputError

Array = np.ndarray


def views(m: int = 25, n: int = 35, share: float = 0.3) -> sp.csc_array:
    """Return how often films were seen, mostly those of the user's own group; of one row and one column nothing."""
    rng = np.random.default_rng(0)
    alike = (np.arange(m)[:, None] % 3) == (np.arange(n) % 3)
    known = rng.random((m, n)) < share * np.where(alike, 1.6, 0.3)
    known[4], known[:, 7] = False, False
    return sp.csc_array((rng.integers(1, 5, known.sum()).astype(float), np.nonzero(known)), shape=(m, n))


def confidences(model: ImplicitALS, R: Array) -> Array:
    """Return 1 + α f of a whole table, entry by entry."""
    m, lengths, known = len(R), R.sum(axis=1), np.count_nonzero(R, axis=0)
    found = np.zeros_like(R)
    for i, j in np.argwhere(R > 0.0):
        half = 1.2 * (0.25 + 0.75 * lengths[i] / lengths[lengths > 0.0].mean())
        found[i, j] = {
            "bm25": np.log(1.0 + m / known[j]) * R[i, j] / (R[i, j] + half), "log": np.log(1.0 + R[i, j]),
            "counts": R[i, j], "ones": 1.0,
        }[model.weights]  # fmt: skip
    return 1.0 + model.alpha * found / found[R > 0.0].mean()


def dense(model: ImplicitALS, C: Array, features: Array) -> Array:
    """Solve each column of a dense table of confidences over all rows, as Hu, Koren and Volinsky print it."""
    found = []
    for c in C.T:
        p, scale = c > 1.0, model.lam * max(np.count_nonzero(c > 1.0), 1) ** model.count_power
        A = (features.T * c) @ features + scale * np.eye(features.shape[1])
        found.append(np.linalg.solve(A, features.T @ (c * p)))
    return np.array(found)


@each_row(
    "options",
    [
        {}, {"count_power": 0.0, "alpha": 0.3, "weights": "log"}, {"weights": "counts"},
        {"count_power": 1.0, "lam": 0.1, "rank": 5, "weights": "ones"},
    ],
)  # fmt: skip
def test_it_ends_where_each_side_is_the_dense_solution_of_the_other(options: dict[str, Any]) -> None:
    table = views()
    R = table.toarray()
    model = ImplicitALS(**{"rank": 3, "random_state": 0} | options, max_iter=600, tol=0.0).fit(table)
    C, U = confidences(model, R), model.components_
    # In single precision the cost settles before the factors do; the columns were solved for last.
    np.testing.assert_allclose(U, dense(model, C.T, model.weights_), atol=5e-4)
    np.testing.assert_allclose(model.weights_, dense(model, C, U), atol=5e-6)
    # A column that comes later, alike to one that was there.
    later = dict(model.recommend_to_new({row: R[row, 5] for row in np.flatnonzero(R[:, 5]).tolist()}, 25))
    here = dict(model.recommend(5, 25))
    assert later.keys() == here.keys()
    np.testing.assert_allclose([later[row] for row in here], list(here.values()), atol=1e-4)


def test_a_few_counts_that_are_huge_are_not_the_whole_objective() -> None:
    table, wanted = views(60, 80), views(60, 80)
    rng = np.random.default_rng(1)
    hidden = rng.random(table.nnz) < 0.2
    table.data, wanted.data = np.where(hidden, 0.0, np.ceil(rng.lognormal(3.0, 3.0, table.nnz))), 1.0 * hidden
    table.eliminate_zeros()
    found = {
        weights: ImplicitALS(3, weights=weights, random_state=0) for weights in ("bm25", "log", "counts")
    }
    with pytest.warns(UserWarning, match="weights='bm25'"):
        scores = {name: model.fit(table).ranked(wanted).ndcg for name, model in found.items()}
    assert min(scores["bm25"], scores["log"]) > scores["counts"] + 0.05


@each_row("power", [0.0, 0.5])
def test_it_ends_where_the_cost_over_all_entries_is_flat(power: float) -> None:
    table = views(9, 11)
    how = {"alpha": 3.0, "lam": 0.5, "count_power": power, "max_iter": 3000, "tol": 0.0}
    model = ImplicitALS(2, weights="counts", random_state=0, **how).fit(table)
    R = table.toarray()
    C = confidences(model, R)
    weights = [np.maximum((R > 0).sum(axis=axis), 1.0) ** power for axis in (1, 0)]

    def cost(x: Array) -> float:
        U, W = x[:18].reshape(9, 2), x[18:].reshape(11, 2)
        gaps = C * ((R > 0) - U @ W.T) ** 2
        return float(
            gaps.sum() + 0.5 * (weights[0] @ np.sum(U**2, axis=1) + weights[1] @ np.sum(W**2, axis=1))
        )

    end = np.concatenate([model.components_.ravel(), model.weights_.ravel()])
    assert model.cost_ == pytest.approx(cost(end), rel=1e-6)
    assert np.abs(approx_fprime(end, cost, 1e-7)).max() < 5e-3
    assert np.abs(approx_fprime(1.01 * end, cost, 1e-7)).max() > 5e-2


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    model, default = ImplicitALS(3, random_state=0), numba.get_num_threads()
    found = [model.fit(views()).weights_]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("problems.threads.WORTH_THREADS", 0)
            numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
            found.append(model.fit(views()).weights_)
    finally:
        numba.set_num_threads(default)
    np.testing.assert_array_equal(*found)


def test_recommendations_are_of_the_users_group_and_by_name() -> None:
    rows, columns = views().tocoo().coords
    names = np.array([f"film {i}" for i in range(25)]), np.array([f"user {j}" for j in range(35)])
    bundle = Ratings(
        "views", "made up", rows, columns, np.ones(len(rows)), (25, 35), (1.0, 1.0),
        row_names=names[0], column_names=names[1],
    )  # fmt: skip
    model = ImplicitALS(3, random_state=0).fit(bundle)
    lists = {user: [name for name, _ in model.recommend(f"user {user}", 3)] for user in np.unique(columns)}
    # By chance a third would be.
    assert np.mean([int(name.split()[1]) % 3 == user % 3 for user in lists for name in lists[user]]) > 0.7
    assert not any(set(lists[user]) & {f"film {row}" for row in rows[columns == user]} for user in lists)
    assert [score for _, score in model.recommend("user 7", 3)] == [0.0] * 3
    with pytest.raises(InvalidInputError, match="user 99"):
        model.recommend("user 99")
    unseen = ImplicitALS(3, handle_unknown="mean", random_state=0).fit(bundle)
    with pytest.warns(UserWarning, match="fit did not see"):
        np.testing.assert_array_equal(unseen.predict([3, 40], [50, 2]), [0.0, 0.0])


def test_measures_of_lists_are_those_of_scikit_learn() -> None:
    table = views(40, 30, 0.4)
    pairs, values = entries(table)
    hidden = np.random.default_rng(1).random(len(values)) < 0.3
    model = ImplicitALS(3, random_state=0).fit(pairs[~hidden], values[~hidden], shape=table.shape)
    found = model.ranked(pairs[hidden], values[hidden], n=5)
    known, truth = np.zeros(table.shape, bool), np.zeros(table.shape)
    known[tuple(pairs[~hidden].T)], truth[tuple(pairs[hidden].T)] = True, 1.0
    users = np.flatnonzero(truth.any(axis=0))
    scores = np.where(known, -1e9, model.components_ @ model.weights_.T)
    hits = [truth[np.argsort(-scores[:, user], kind="stable")[:5], user].sum() for user in users]
    assert found.n_columns == len(users)
    assert found.ndcg == pytest.approx(ndcg_score(truth[:, users].T, scores[:, users].T, k=5), rel=1e-12)
    assert found.precision == pytest.approx(np.mean(hits) / 5)
    assert found.recall == pytest.approx(np.mean(hits / truth[:, users].sum(axis=0)))
    # What fit saw does not count, in whatever way it is given; a list is not longer than there are candidates.
    assert model.ranked(table, n=5) == found
    assert model.ranked(table, n=40).recall == 1.0
    assert model.score(*entries(table)) == model.ranked(table).ndcg
    with pytest.raises(InvalidInputError, match="nothing is held out"):
        model.ranked(pairs[~hidden], values[~hidden])
    with pytest.raises(InvalidInputError, match="shape"):
        model.ranked(table[:, :5])
    # Dislikes are no hits.
    for measure in (model.ranked, model.score):
        with pytest.raises(InvalidInputError, match="below 0"):
            measure(pairs[hidden], np.where(np.arange(hidden.sum()) == 0, -1.0, values[hidden]))
    assert BiasedALS(3, random_state=0).fit(table * 1.0, None).ranked([[4, 7]], [1.0]).n_columns == 1


def test_cross_validation_prefers_a_rank_that_tells_groups_apart() -> None:
    pairs, values = entries(views(60, 90))
    scores = [
        cross_val_score(
            ImplicitALS(rank, random_state=0), pairs, values, cv=EntryKFold(3), params={"shape": (60, 90)}
        ).mean()
        for rank in (1, 3)
    ]
    assert scores[1] > 1.5 * scores[0]


@each_row(
    ("wrong", "said"),
    [
        (lambda t: -t, "counts or confidences"),
        (lambda t: 0.0 * t, "counts or confidences"),
        (lambda t: 1e4 * t, "smaller alpha"),
        (lambda t: np.nan * t, "NaN"),
    ],
)
def test_values_that_are_no_confidences_are_refused(wrong: Any, said: str) -> None:
    table = views()
    bad = sp.csc_array((wrong(table.data), table.indices, table.indptr), shape=table.shape)
    with pytest.raises(InvalidInputError, match=said):
        ImplicitALS(3, weights="counts", alpha=1e6, random_state=0).fit(bad)


def test_one_entry_is_enough_and_one_that_comes_twice_is_refused() -> None:
    one = ImplicitALS(2, random_state=0).fit([[3, 2]], [1.0], shape=(20, 30))
    assert one.predict(3, 2) > 0.0
    assert np.count_nonzero(one.predict(range(20), 2)) == 1
    with pytest.raises(InvalidInputError, match="twice"):
        ImplicitALS(2).fit([[3, 2], [3, 2]], [1.0, 1.0], shape=(20, 30))
    with pytest.raises(InvalidInputError, match="integers"):
        ImplicitALS(2).fit([["film", "user"]], [1.0])


def test_entries_of_rows_and_columns_that_fit_did_not_see_are_no_hits() -> None:
    pairs = np.array([(row, row + step) for row in range(20) for step in range(8)])
    model = ImplicitALS(2, handle_unknown="mean", random_state=0)
    few, more = pairs[:40], [[0, 30], [30, 0], [0, 9]]
    model.fit(few, np.ones(40), shape=(20, 30))
    with pytest.warns(UserWarning, match="2 of 3 pairs"):
        assert model.ranked(more, np.ones(3)) == model.ranked(more[2:], np.ones(1))
    with pytest.raises(InvalidInputError, match="row"):
        ImplicitALS(2, random_state=0).fit(few, np.ones(40)).score(pairs[40:60], np.ones(20))
