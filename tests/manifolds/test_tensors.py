"""Tensors of low rank, held against arrays of all their entries."""

from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from in_library import LIBRARIES, through
from tabled import each_row

from rmopt import InvalidInputError, MissingCapabilityError, Problem, autograd_cost
from rmopt.checks import checks_of
from rmopt.core import Cost, Parts, TrainPoint, TuckerPoint
from rmopt.costs import EntrySum, logistic
from rmopt.manifolds import Euclidean, FixedMultilinearRank, Product, Stiefel, TensorTrain
from rmopt.solvers import LBFGS, SGD, ConjugateGradient, GradientDescent, MaxSteps, TrustRegions

SHAPE, RANKS = (7, 6, 5), (3, 2, 2)
M = FixedMultilinearRank(SHAPE, RANKS)
PLACES = np.random.default_rng(1).integers(SHAPE, size=(90, 3))
TARGETS = np.random.default_rng(2).standard_normal(90)


class Dense(Cost):
    """The same sum over entries, of arrays of all entries."""

    def value(self, X: TuckerPoint) -> float:
        misfits = X.as_ambient().toarray()[tuple(PLACES.T)] - TARGETS
        return 0.5 * float(misfits @ misfits)

    def gradient(self, X: TuckerPoint) -> np.ndarray:
        G = np.zeros(SHAPE)
        np.add.at(G, tuple(PLACES.T), X.as_ambient().toarray()[tuple(PLACES.T)] - TARGETS)
        return G

    def hessian(self, X: TuckerPoint, direction: Any) -> np.ndarray:
        H = np.zeros(SHAPE)
        np.add.at(H, tuple(PLACES.T), direction.toarray()[tuple(PLACES.T)])
        return H


def tensor(C: Any, U: Any, V: Any, W: Any) -> Any:
    return anp.einsum("abc,ia,jb,kc->ijk", C, U, V, W)


@autograd_cost
def of_factors(C: Any, U: Any, V: Any, W: Any) -> Any:
    return 0.5 * anp.sum((tensor(C, U, V, W)[PLACES[:, 0], PLACES[:, 1], PLACES[:, 2]] - TARGETS) ** 2)


@each_row("cost, weight", [
    (EntrySum(SHAPE, PLACES, TARGETS), 1.0), (of_factors, 1.0), (3.0 * of_factors + Dense(), 4.0),
])  # fmt: skip
def test_partial_derivatives_are_those_of_dense_tensors(cost: Any, weight: float) -> None:
    rng = np.random.default_rng(0)
    x = M.random_point(rng)
    xi = M.random_tangent_vector(x, rng)
    problem, other = Problem(M, cost), Problem(M, weight * Dense())
    assert problem.value(x) == pytest.approx(other.value(x), rel=1e-13)
    if isinstance(cost, EntrySum):
        train = TensorTrain(SHAPE, (3, 4))
        y = train.random_point(rng)
        gradients = [Problem(train, one).riemannian_gradient(y) for one in (cost, Dense())]
        assert train.norm(y, gradients[0] - gradients[1]) < 1e-12 * train.norm(y, gradients[1])
    for found, wanted in (
        (problem.riemannian_gradient(x), other.riemannian_gradient(x)),
        (problem.riemannian_hessian(x, xi), other.riemannian_hessian(x, xi)),
    ):
        assert M.norm(x, found - wanted) < 1e-12 * M.norm(x, wanted)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 15), marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_laws_hold_for_fifteen_seeds(dtype: Any, seeds: range) -> None:
    failed = []
    manifolds = [M, FixedMultilinearRank((4, 4), (2, 2)), FixedMultilinearRank((3, 2, 4, 3), (2, 2, 2, 3))]
    manifolds += [TensorTrain(SHAPE, (3, 2)), TensorTrain((4, 5), (3,)), TensorTrain((3, 2, 3, 2), (2, 4, 2))]
    for manifold in manifolds:
        failed += [f"{seed}: {one}" for seed in seeds for one in checks_of(manifold, seed, dtype) if not one]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("library", LIBRARIES[1:])
def test_laws_hold_for_arrays_of_each_library(library: str) -> None:
    failed = []
    for manifold in (FixedMultilinearRank((5, 4, 3), (2, 2, 2)), TensorTrain((5, 4, 3), (2, 2))):
        failed += [str(one) for one in checks_of(through(manifold, library), 0) if not one]
    assert not failed, "\n".join(failed)


def seen(manifold: Any, share: float) -> tuple[EntrySum, Any, Any]:
    """Return the misfits of some entries of a tensor with entries near 1, where to begin, and the tensor."""
    rng = np.random.default_rng(0)
    shape = manifold.shape
    size = int(np.prod(shape))
    core, *factors = (rng.standard_normal(part.shape) for part in manifold.random_point(rng).parts)
    truth: Any = TuckerPoint(core / core.size**0.5, tuple(factors))
    if isinstance(manifold, TensorTrain):
        truth = TrainPoint((core, *(factor / factor.shape[0] ** 0.5 for factor in factors)))
    places = np.stack(np.unravel_index(rng.choice(size, int(share * size), replace=False), shape), axis=1)
    cost = EntrySum(shape, places, truth.entries(places))
    return cost, manifold.from_entries(places, truth.entries(places)), truth


def error(point: Any, truth: Any) -> float:
    whole = truth.as_ambient().toarray()
    found = tensor(*point) if isinstance(point, Parts) else point.as_ambient().toarray()
    return float(np.linalg.norm(found - whole) / np.linalg.norm(whole))


def test_completion_takes_few_steps_where_a_product_takes_many() -> None:
    manifold = FixedMultilinearRank((30, 30, 30), (3, 3, 3))
    cost, start, truth = seen(manifold, 0.2)
    for solver in (ConjugateGradient, GradientDescent, LBFGS, TrustRegions):
        found = solver(tol=1e-9).run(Problem(manifold, cost), start, stop=MaxSteps(40))
        assert found.converged
        assert error(found.point, truth) < 1e-7, solver
    product = Product([Euclidean(3, 3, 3), *[Stiefel(30, 3)] * 3])
    theirs = ConjugateGradient(tol=1e-9).run(Problem(product, cost), Parts(start.parts), stop=MaxSteps(200))
    assert not theirs.converged
    assert error(theirs.point, truth) > 1e-7


def test_tensor_trains_are_completed() -> None:
    manifold = TensorTrain((14, 14, 14, 14), (2, 2, 2))
    cost, start, truth = seen(manifold, 0.1)
    for solver in (ConjugateGradient, LBFGS, TrustRegions):
        found = solver(tol=1e-9).run(Problem(manifold, cost), start, stop=MaxSteps(60))
        assert found.converged
        assert error(found.point, truth) < 1e-7, solver


def test_what_trains_and_costs_lack_is_said() -> None:
    manifold = TensorTrain(SHAPE, (3, 2))
    problem, x = Problem(manifold, EntrySum(SHAPE, PLACES, TARGETS)), manifold.random_point(0)
    # Trust regions take differences of gradients, and count them.
    with pytest.raises(MissingCapabilityError, match="first-order"):
        problem.riemannian_hessian(x, manifold.random_tangent_vector(x, 1))
    counts = TrustRegions(max_iter=2).run(problem, x).counts
    assert counts["gradients"] >= counts["hessians"] > 0

    class Core(Cost):
        def value(self, X: TuckerPoint) -> float:
            return 0.5 * float(np.sum(X.core**2))

        def gradient(self, X: TuckerPoint) -> Any:
            return [X.core, *(0.0 * U for U in X.factors)]

    with pytest.raises(InvalidInputError, match="do not add"):
        Problem(M, problem.cost + Core()).gradient(M.random_point(0))


def test_stochastic_steps_complete_too() -> None:
    manifold = FixedMultilinearRank((8, 8, 8), (2, 2, 2))
    cost, start, truth = seen(manifold, 0.6)
    found = SGD(1.6, batch_size=8).run(Problem(manifold, cost), start, random_state=0, stop=MaxSteps(1000))
    assert error(found.point, truth) < 1e-3


def test_entries_are_those_of_the_whole_tensor() -> None:
    rng = np.random.default_rng(0)
    several = [(SHAPE, RANKS), ((4, 5), (3, 3)), ((3, 4, 2, 5), (2, 3, 2, 2)), ((2,) * 6, (2,) * 6)]
    several += [(SHAPE, (3, 4)), ((4, 5), (3,)), ((3, 4, 2, 5), (2, 5, 3)), ((2,) * 6, (2, 4, 5, 4, 2))]
    for shape, ranks in several:
        manifold = (FixedMultilinearRank if len(shape) == len(ranks) else TensorTrain)(shape, ranks)
        X = manifold.random_point(rng)
        whole = X.as_ambient().toarray()
        places = rng.integers(shape, size=(70, len(shape)))
        np.testing.assert_allclose(X.entries(places), whole[tuple(places.T)], atol=1e-13)
        again = manifold.from_tensor(whole)
        np.testing.assert_allclose(again.as_ambient().toarray(), whole, atol=1e-13)
        every = np.argwhere(np.ones(shape))
        filled = manifold.from_entries(every[::-1], whole[tuple(every[::-1].T)])
        np.testing.assert_allclose(filled.as_ambient().toarray(), whole, atol=1e-10)


@each_row("make, says", [
    (lambda: FixedMultilinearRank((4, 4), (2,)), "two or more axes"),
    (lambda: FixedMultilinearRank((4, 4, 4), (5, 2, 2)), "out of range"),
    (lambda: FixedMultilinearRank((9, 9, 9), (5, 2, 2)), "may be at most 4"),
    (lambda: M.from_tensor(np.zeros((3, 3))), "shape"),
    (lambda: M.from_tensor(np.ones(SHAPE)), "below"),
    (lambda: M.from_entries([[0, 0, 0]], [1.0]), "lower ranks"),
    (lambda: M.from_entries([[9, 0, 0]], [1.0]), "count from 0"),
    (lambda: EntrySum(SHAPE, [[0, 0]], [1.0]), "indices"),
    (lambda: EntrySum(SHAPE, [[0, 0, 0]], [1.0, 2.0]), "targets"),
    (lambda: EntrySum((7, 6), PLACES[:, :2], TARGETS, logistic), "must be −1 or 1"),
    (lambda: Problem(M, EntrySum((7, 6, 6), PLACES, TARGETS)), "7 × 6 × 6"),
    (lambda: Problem(M, autograd_cost(lambda C: C.sum())).gradient(M.random_point()), "one argument"),
    (lambda: Problem(Stiefel(7, 3), EntrySum(SHAPE, PLACES, TARGETS)), "TensorPoint"),
])  # fmt: skip
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        make()
    with pytest.raises(MissingCapabilityError, match="as parts"):
        Product([M, Stiefel(7, 3)])
