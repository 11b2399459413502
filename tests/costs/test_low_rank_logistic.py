"""Logistic regression of many labels: the loss and its gradient, drawn labels, the start, the estimator, measures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score

from problems.batches import SeededEpochs
from problems.ranking import LogisticLabels, LowRankLogisticRegression, precision_at
from problems.ranking.cost import first_step
from rmopt import Problem
from rmopt.linalg import LARGE
from rmopt.manifolds import Euclidean
from rmopt.solvers import SGD, AdaGrad, Checkpoint, MaxSteps

Array = np.ndarray


@pytest.fixture(scope="module")
def examples() -> tuple[sp.csr_array, sp.csr_array]:
    """Return 40 rows of 30 words, of which one is empty, and 12 labels, of which one is never true, one always."""
    rng = np.random.default_rng(0)
    X = rng.random((40, 30)) * (rng.random((40, 30)) < 0.15)
    Y = rng.random((40, 12)) < 0.2
    X[5], Y[3], Y[:, 4], Y[:, 7] = 0.0, False, False, True
    return sp.csr_array(X), sp.csr_array(Y.astype(float))


def batch(rng: np.random.Generator, size: int = 9) -> Array:
    return np.column_stack([rng.permutation(40)[:size], rng.integers(2**40, size=size)]).ravel()


def loss_by_hand(X: Array, Y: Array, point: Array) -> float:
    n = X.shape[1]
    chances = expit(X @ point[:n, :-1] @ point[n:, :-1].T + point[n:, -1])
    return sum(log_loss(Y[:, j], chances[:, j], labels=[0, 1], normalize=False) for j in range(Y.shape[1]))


def test_the_loss_is_scikit_learns_and_its_gradient_that_of_differences(examples: Any) -> None:
    X, Y = examples
    cost, rng = LogisticLabels(X, Y), np.random.default_rng(1)
    point, E = rng.standard_normal((2, 42, 5))
    assert cost.value(point) == pytest.approx(loss_by_hand(X.toarray(), Y.toarray(), point), rel=1e-10)
    slope = (cost.value(point + 1e-6 * E) - cost.value(point - 1e-6 * E)) / 2e-6
    assert np.vdot(cost.gradient(point), E) == pytest.approx(slope, rel=1e-6)
    every = np.column_stack([np.arange(40), np.zeros(40, int)]).ravel()
    np.testing.assert_allclose(cost.term_gradient(point, every), cost.gradient(point), rtol=1e-10, atol=1e-12)
    # The last column of the features' part has no meaning.
    assert not cost.gradient(point)[:30, -1].any()


def test_words_that_are_left_out_are_made_up_for(examples: Any) -> None:
    X, Y = examples
    cost, rng = LogisticLabels(X, Y, dropout=0.4), np.random.default_rng(2)
    point, terms = rng.standard_normal((42, 4)), batch(rng)
    rows = X[terms[::2]].toarray()
    kept = np.random.default_rng(terms[1]).random(X[terms[::2]].nnz) >= 0.4
    rows[rows != 0] *= kept / 0.6
    expected = LogisticLabels(rows, Y[terms[::2]]).gradient(point)
    np.testing.assert_allclose(cost.term_gradient(point, terms), expected, atol=1e-12)


def test_the_start_goes_a_newton_step_along_leading_directions(examples: Any) -> None:
    X, Y = examples
    point = first_step(X, Y, 3, 0)
    p = (Y.toarray().sum(axis=0) + 0.5) / 41.0
    v = p * (1 - p)
    np.testing.assert_allclose(expit(point[30:, -1]), p)
    G = X.toarray().T @ (Y.toarray() - p)
    U, s, Vt = np.linalg.svd(G / np.sqrt(v))
    W = (U[:, :3] * s[:3]) @ Vt[:3]
    # The quadratic model of the loss at W = 0 is least where the start is.
    model = minimize_scalar(
        lambda c: -c * np.vdot(G, W) + 0.5 * c * c * np.sum(v * (X @ W) ** 2), tol=1e-12
    ).x
    np.testing.assert_allclose(point[:30, :-1] @ point[30:, :-1].T, model * W, rtol=1e-5, atol=1e-8)
    cost, zero = LogisticLabels(X, Y), point * np.append(np.zeros(3), 1.0)
    assert cost.value(point) < cost.value(zero)
    # Rows without words leave the frequencies.
    nothing = first_step(sp.csr_array((40, 30)), Y, 3, 0)
    assert np.isfinite(nothing).all()
    np.testing.assert_allclose(nothing[:, :-1], 0.0)


def test_the_start_of_many_features_is_that_of_the_few_that_occur(examples: Any) -> None:
    """Their directions are orthonormalised by blocks of rows, most of which are zero."""
    X, Y = examples
    n = 100_000
    assert n * Y.shape[1] >= LARGE
    places = np.sort(np.random.default_rng(0).choice(n, 30, replace=False))
    few = first_step(X, Y, 3, 0)
    many = first_step(sp.csr_array((X.data, places[X.indices], X.indptr), shape=(40, n)), Y, 3, 0)
    np.testing.assert_allclose(
        many[places, :-1] @ many[n:, :-1].T, few[:30, :-1] @ few[30:, :-1].T, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(many[n:, -1], few[30:, -1])
    many[places] = 0.0
    assert np.abs(many[:n]).max() < 1e-12


def test_resumed_to_the_same_bits(examples: Any, tmp_path: Path) -> None:
    X, Y = examples
    problem = Problem(Euclidean(42, 4), LogisticLabels(X, Y, 0.3))
    start, solver = first_step(X, Y, 3, 0), SGD(0.1, rule=AdaGrad(), max_iter=24, sampler=SeededEpochs(40, 8))
    whole = solver.run(problem, start, random_state=5).point
    saved = Checkpoint(tmp_path / "run.npz")
    solver.run(problem, start, random_state=5, checkpoint=saved, stop=MaxSteps(11))
    assert np.array_equal(solver.run(problem, start, random_state=5, checkpoint=saved).point, whole)


def digits() -> tuple[Array, Array]:
    X, y = load_digits(return_X_y=True)
    return X, np.column_stack([np.eye(10, dtype=int)[y], y % 2 == 0, y % 2 == 1, y < 5, y >= 5])


def test_with_all_ranks_and_many_passes_it_is_scikit_learns_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    Y = (X @ rng.standard_normal((3, 4)) + 0.5 + 2.0 * rng.standard_normal((400, 4)) > 0).astype(int)
    model = LowRankLogisticRegression(3, batch_size=400, n_epochs=600, step_size=0.3, random_state=0).fit(
        X, Y
    )
    for label in range(4):
        peer = LogisticRegression(C=np.inf).fit(X, Y[:, label])
        np.testing.assert_allclose(model.predict_proba(X)[:, label], peer.predict_proba(X)[:, 1], atol=1e-3)


def test_the_estimator_learns_ranks_and_repeats_its_bits() -> None:
    X, Y = digits()
    model = LowRankLogisticRegression(8, random_state=0)
    model.fit(X[:1200], Y[:1200])
    again = clone(model).fit(sp.csr_array(X[:1200]), sp.csr_array(Y[:1200]))
    assert np.array_equal(model.components_, again.components_)
    chances = model.predict_proba(X[1200:])
    assert model.score(X[1200:], Y[1200:]) > 0.9
    np.testing.assert_array_equal(model.predict(X[1200:]), chances > 0.5)
    # Chances are those that are seen: in each tenth of them, as far as so many rows tell.
    truth, chances = Y[1200:].ravel(), chances.ravel()
    for low in np.arange(0.0, 1.0, 0.2):
        inside = (chances >= low) & (chances < low + 0.2)
        assert abs(truth[inside].mean() - chances[inside].mean()) < 0.15
    # The unit of the features does not matter.
    scaled = clone(model).fit(1e6 * X[:1200], Y[:1200])
    np.testing.assert_allclose(
        scaled.decision_function(1e6 * X), model.decision_function(X), rtol=1e-6, atol=1e-6
    )


def test_scikit_learn_tools_take_the_estimator() -> None:
    X, Y = digits()
    model = LowRankLogisticRegression(4, n_epochs=4, random_state=0)
    assert cross_val_score(model, X, Y, cv=3, scoring="average_precision").min() > 0.6
    assert cross_val_score(model, X, Y, cv=3, scoring="f1_micro").min() > 0.6


# Measures


def test_precision_by_hand() -> None:
    scores = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 0.0, 0.0]])
    Y = sp.csr_array([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    # Best labels: 0 1 2, 3 2 1, 0 1 2 (equal scores by their order).
    assert precision_at(scores, Y, [1, 2, 3]) == pytest.approx({1: 1 / 3, 2: 1 / 6, 3: 1 / 3})
