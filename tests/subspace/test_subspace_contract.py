"""Completion and multitask estimators as scikit-learn's tools and strangers' data meet them."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from tabled import each_row

import problems.subspace.estimators as module
from problems.subspace import (
    RCGMC,
    RTRMC,
    BayesianCompletion,
    BiasedALS,
    EntryKFold,
    GossipMatrixCompletion,
    MatrixCompletion,
    MultitaskSubspace,
    ScaledSGDCompletion,
    entries,
)
from rmopt.core import DivergedError, InvalidInputError, Problem
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Grassmann

Array = np.ndarray
KINDS = (RTRMC, RCGMC, GossipMatrixCompletion)
FACTORS = (BiasedALS, BayesianCompletion, ScaledSGDCompletion)


def ratings(m: int = 20, n: int = 30, share: float = 0.6) -> sp.csc_array:
    rng = np.random.default_rng(0)
    known = rng.random((m, n)) < share
    values = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    return sp.csc_array((values[known], np.nonzero(known)), shape=(m, n))


def informed(rank: int, **options: Any) -> BayesianCompletion:
    return BayesianCompletion(rank, n_samples=3, implicit=True, **options)


def made(kind: Any, **options: Any) -> Any:
    few = {"n_agents": 2, "n_epochs": 20} if kind is GossipMatrixCompletion else {}
    return kind(2, random_state=0, **few, **options)


@each_row("kind", [*KINDS, *FACTORS, informed])
@each_row("value", [3.0, True, 0.0, 0.1])
def test_constant_ratings_give_the_constant(kind: Any, value: float) -> None:
    table = ratings()
    table = sp.csc_array((np.full(table.nnz, value), table.indices, table.indptr), shape=table.shape)
    np.testing.assert_allclose(made(kind).fit(table).predict(4, range(30)), float(value), atol=1e-12)


@each_row("kind", [RTRMC, RCGMC, *FACTORS, informed])
def test_one_rating_is_enough(kind: Any) -> None:
    one = sp.csc_array(sp.coo_array(([4.0], ([3], [2])), shape=(20, 30)))
    np.testing.assert_allclose(made(kind).fit(one).predict([3, 0], [2, 9]), 4.0)


@pytest.mark.parametrize("kind", [RTRMC, RCGMC])
def test_columns_without_ratings_at_the_end_are_solved(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """W begins as memory that nobody has written; here that memory is NaN."""
    whole = ratings()
    wide = sp.csc_array(sp.hstack([whole, sp.csc_array((20, 5))]))
    tasks = MatrixCompletion(wide)
    empty = np.empty

    def dirty(*given: Any, **options: Any) -> Array:
        made = empty(*given, **options)
        if made.dtype.kind == "f":
            made[...] = np.nan
        return made

    monkeypatch.setattr(np, "empty", dirty)
    U = Grassmann(20, 2).random_point(np.random.default_rng(0))
    np.testing.assert_array_equal(tasks.gradient(U), MatrixCompletion(whole).gradient(U))
    assert np.isfinite(tasks.precondition(U, tasks.gradient(U))).all()
    assert np.isfinite(tasks.hessian(U, U[::-1].copy())).all()


def test_a_run_that_diverges_says_so() -> None:
    with pytest.raises(DivergedError, match="step size"):
        made(GossipMatrixCompletion, step_size=1e200).fit(ratings())
    with pytest.raises(InvalidInputError, match="rho = 1e\\+308 must be"):
        made(GossipMatrixCompletion, rho=1e308).fit(ratings())
    point = np.full((20, 2), np.nan)
    with pytest.raises(InvalidInputError, match="the point holds NaN"):
        MatrixCompletion(ratings(), lam=0.1).value(point)


def test_pairs_are_the_matrix() -> None:
    table = ratings()
    pairs, values = entries(table)
    one, other = made(RTRMC).fit(table), made(RTRMC).fit(pairs, values, shape=table.shape)
    np.testing.assert_array_equal(one.predict(*pairs.T), other.predict(pairs))
    np.testing.assert_array_equal(one.predict(5, range(30)), one.predict([5] * 30, range(30)))
    assert one.score(pairs, values) == -one.rmse(table)


def test_cross_validation_holds_out_entries() -> None:
    table = ratings(40, 60)
    pairs, values = entries(table)
    scores = cross_val_score(
        RTRMC(3, lam=0.0), pairs, values, cv=EntryKFold(3), params={"shape": table.shape}
    )
    assert scores.min() > -0.05 * values.std()
    search = GridSearchCV(RTRMC(lam=0.0), {"rank": [1, 3]}, cv=EntryKFold(2), error_score="raise")
    assert search.fit(pairs, values, shape=table.shape).best_params_ == {"rank": 3}
    assert search.predict(pairs[:4]).shape == (4,)
    for cv in (2, 3):
        with pytest.raises(InvalidInputError, match="EntryKFold"):
            cross_val_score(RTRMC(2), table, cv=cv, error_score="raise")


def test_folds_spread_the_entries_of_a_row() -> None:
    pairs, _ = entries(ratings())
    folds = [test for _, test in EntryKFold(4, random_state=1).split(pairs)]
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(len(pairs)))
    counts = np.array([np.bincount(pairs[test, 0], minlength=20) for test in folds])
    assert (np.ptp(counts, axis=0) <= 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_data_are_freed_without_the_garbage_collector(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    class Watched(MatrixCompletion):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            kept.append(weakref.ref(self))

    monkeypatch.setattr(module, "MatrixCompletion", Watched)
    gc.disable()
    try:
        made(kind).fit(ratings())
        assert kept
        assert kept[0]() is None
    finally:
        gc.enable()


def related(order: Any = "C") -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    X, tasks = rng.standard_normal((120, 6)), np.repeat(np.arange(6), 20)
    coef = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 6))
    return np.asarray(X, order=order), np.einsum("ij,ij->i", X, coef[tasks]), tasks


def test_searches_over_multitask_subspaces() -> None:
    X, y, tasks = related()
    model, cv = MultitaskSubspace(lam=1e-6, solver="batch"), list(StratifiedKFold(2).split(X, tasks))
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(model, {"rank": [1, 2]}, cv=cv, error_score="raise").fit(X, y, tasks=tasks)
        assert search.best_params_ == {"rank": 2}
        assert search.score(X, y, tasks=tasks) > 0.999
    with pytest.raises(InvalidInputError, match="metadata routing"):
        model.fit(X, y)


def test_memory_order_does_not_matter() -> None:
    (X, y, tasks), (F, *_) = related(), related("F")
    for solver in ("batch", "gossip"):
        model = MultitaskSubspace(2, solver=solver, n_agents=2, n_epochs=5, random_state=0)
        one, other = (model.fit(rows, y, tasks).coef_.copy() for rows in (X, F))
        np.testing.assert_array_equal(one, other)


def test_the_solver_keeps_nothing_of_a_problem() -> None:
    problem = Problem(Grassmann(20, 2), MatrixCompletion(ratings(), lam=0.1))
    watched = weakref.ref(problem.cost)
    gc.disable()
    try:
        PymanoptSolver("ConjugateGradient", max_iterations=2).run(problem, random_state=0)
        del problem
        assert watched() is None
    finally:
        gc.enable()
