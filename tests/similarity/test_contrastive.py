"""The softmax over cosines of batches, and AdaGrad, which touches the rows of a batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

from problems.batches import SeededEpochs
from problems.similarity import ContrastiveSimilarity
from problems.similarity.cost import ContrastiveSum
from rmopt import InvalidInputError, Problem
from rmopt.core import DivergedError
from rmopt.manifolds import Euclidean, Sphere
from rmopt.solvers import SGD, AdaGrad, Checkpoint, MaxSteps

Array = np.ndarray


class Dense(ContrastiveSum):
    """The same cost, which says nothing of rows."""

    row_gradient = None  # type: ignore[assignment]

    def term_gradient(self, point: Array, terms: Array) -> Array:
        rows, values = ContrastiveSum.row_gradient(self, point, terms)
        gradient = np.zeros(point.shape)
        gradient[rows] = values
        return gradient


@pytest.fixture(scope="module")
def documents() -> tuple[sp.csr_array, Array]:
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.random((40, 60)) * (rng.random((40, 60)) < 0.1))
    return X, rng.integers(4, size=40)


def batch(rng: np.random.Generator, size: int = 9) -> Array:
    return np.column_stack([rng.permutation(40)[:size], rng.integers(2**40, size=size)]).ravel()


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_gradient_is_that_of_the_loss_by_hand(documents: Any, dropout: float) -> None:
    X, y = documents
    cost, rng = ContrastiveSum(X, y, 0.25, dropout), np.random.default_rng(1)
    A, E, terms = rng.standard_normal((60, 5)), rng.standard_normal((60, 5)), batch(rng)
    numbers = terms[::2]
    rows = X[numbers].toarray()
    if dropout:
        kept = np.random.default_rng(terms[1]).random(X[numbers].nnz) >= dropout
        rows[rows != 0] *= kept

    def loss(A: Array) -> float:
        Z = rows @ A
        Z /= np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-300)
        losses = []
        for i in range(len(Z)):
            others = [j for j in range(len(Z)) if j != i]
            own = [place for place, j in enumerate(others) if y[numbers[j]] == y[numbers[i]]]
            losses.append(-log_softmax(Z[others] @ Z[i] / 0.25)[own].mean() if own else 0.0)
        return float(np.mean(losses))

    slope = (loss(A + 1e-6 * E) - loss(A - 1e-6 * E)) / 2e-6
    assert np.vdot(cost.term_gradient(A, terms), E) == pytest.approx(slope, rel=1e-6)


def test_documents_twice_alone_and_empty(documents: Any) -> None:
    X, y = documents
    cost, A = ContrastiveSum(X, y, dropout=0.0), np.random.default_rng(2).standard_normal((60, 3))
    twice = np.array([3, 0, 3, 0])
    assert not cost.term_gradient(A, twice).any()
    empty = ContrastiveSum(sp.csr_array((4, 6)), [0, 0, 1, 1], dropout=0.0)
    assert not empty.term_gradient(np.ones((6, 2)), np.array([0, 0, 1, 0, 2, 0])).any()
    for call in (cost.value, cost.gradient):
        with pytest.raises(InvalidInputError, match="stream of batches"):
            call(A)


def test_steps_by_rows_are_those_in_the_whole_space(documents: Any) -> None:
    X, y = documents
    start = np.random.default_rng(3).standard_normal((60, 4))
    solver = SGD(0.1, rule=AdaGrad(), max_iter=30, sampler=SeededEpochs(40, 8))
    by_rows, whole = (
        solver.run(Problem(Euclidean(60, 4), kind(X, y)), start, random_state=0)
        for kind in (ContrastiveSum, Dense)
    )
    np.testing.assert_allclose(by_rows.point, whole.point, rtol=1e-10)
    assert by_rows.updates == whole.updates == 30


class Silent(ContrastiveSum):
    """Whose terms have no gradient."""

    def term_gradient(self, point: Array, terms: Array) -> Array:
        return 0.0 * super().term_gradient(point, terms)


def test_gradients_that_a_subclass_changes_are_asked(documents: Any) -> None:
    X, y = documents
    start = np.random.default_rng(3).standard_normal((60, 4))
    solver = SGD(0.1, rule=AdaGrad(), max_iter=3, sampler=SeededEpochs(40, 8))
    result = solver.run(Problem(Euclidean(60, 4), Silent(X, y)), start, random_state=0)
    np.testing.assert_array_equal(result.point, start)


def test_adagrad_by_hand_and_on_a_sphere() -> None:
    b = np.array([3.0, -1.0, 0.5])
    from rmopt import autograd_cost

    @autograd_cost
    def linear(x: Array) -> float:
        return b @ x.reshape(-1)

    found = (
        SGD(0.1, rule=AdaGrad(), max_iter=3)
        .run(Problem(Euclidean(3, 1), linear), np.zeros((3, 1)))
        .point[:, 0]
    )
    np.testing.assert_allclose(found, -0.1 * np.sign(b) * sum(1 / np.sqrt(np.arange(1, 4))), rtol=1e-6)
    end = (
        SGD(0.5, rule=AdaGrad(), max_iter=400)
        .run(Problem(Sphere(3), linear), np.array([1.0, 0.0, 0.0]))
        .point
    )
    np.testing.assert_allclose(end, -b / np.linalg.norm(b), atol=1e-6)


def test_resumed_to_the_same_bits_and_divergence_is_said(documents: Any, tmp_path: Path) -> None:
    X, y = documents
    problem = Problem(Euclidean(60, 4), ContrastiveSum(X, y))
    start = np.random.default_rng(3).standard_normal((60, 4))
    solver = SGD(0.1, rule=AdaGrad(), max_iter=24, sampler=SeededEpochs(40, 8))
    whole = solver.run(problem, start, random_state=5).point
    saved = Checkpoint(tmp_path / "run.npz")
    solver.run(problem, start, random_state=5, checkpoint=saved, stop=MaxSteps(11))
    assert np.array_equal(solver.run(problem, start, random_state=5, checkpoint=saved).point, whole)
    # Cosines know no scale; steps that leave the finite numbers are told.
    assert np.isfinite(solver.run(problem, 1e200 * start, random_state=5).point).all()
    engine = solver.engine(problem)
    with pytest.raises(DivergedError):
        engine.advance(
            engine.load(np.full((60, 4), np.inf)), batch(np.random.default_rng(1), 8)[None], np.ones(1)
        )


def test_it_finds_more_than_the_cosine_and_repeats_its_bits() -> None:
    X, y = load_digits(return_X_y=True)
    model = ContrastiveSimilarity(10, random_state=0, n_epochs=8)
    first, again = (clone(model).fit(X[:900], y[:900]) for _ in range(2))
    assert np.array_equal(first.components_, again.components_)
    assert first.n_iter_ == 8 * (900 // 256)
    score = first.score(X[900:], y[900:])
    assert score > 0.75
    # Scores follow from embeddings of unit length, whatever the names of the classes and the scale of the rows.
    Z = first.transform(3.0 * X[900:905])
    np.testing.assert_allclose(Z @ Z.T, first.similarity(X[900:905], X[900:905]), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1.0)
    named = clone(model).fit(X[:900], np.array(list("abcdefghij"))[y[:900]])
    assert np.array_equal(named.components_, first.components_)


@parametrize_with_checks([ContrastiveSimilarity(2, n_epochs=2, random_state=0)])
def test_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    ("labels", "sentence"), [([0] * 6, "y has 1 class"), (range(6), "y has 6 classes of at most 1 rows")]
)
def test_classes_without_pairs_are_refused(labels: Any, sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        ContrastiveSimilarity(random_state=0).fit(np.eye(6), labels)
