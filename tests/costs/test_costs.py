"""What costs give: values and gradients of any kind, right and wrong, and what costs are added to."""

import copy
import pickle
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.sparse as sp
from descent_parts import Quadratic
from tabled import each_row

import rmopt
from rmopt import InvalidInputError, Problem, autograd_cost
from rmopt.checks import check_cost, check_hessian
from rmopt.core import BlockDiagonal, Cost, FiniteSum
from rmopt.costs import BilinearSum, LogDetTriplet, OnFactors, TripletSum
from rmopt.manifolds import Euclidean, FixedRankFactors, Grassmann, Product, PSDFactors, Sphere
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaGrad,
    Adam,
    AdaptiveCubics,
    GradientDescent,
    Hybrid,
    Momentum,
    TrustRegions,
)

Array = np.ndarray


def buffered(base: type, method: str) -> Any:
    """Return a cost whose method writes into one array, again and again."""

    class Buffered(base):  # type: ignore[misc]
        def __init__(self, matrix: Array) -> None:
            super().__init__(matrix)
            self.kept = np.empty((len(matrix), 1))

    def own(self: Any, *arguments: Any) -> Any:
        found = getattr(base, method)(self, *arguments)
        value, self.kept[...] = found if isinstance(found, tuple) else (None, found)
        return self.kept if value is None else (value, self.kept)

    setattr(Buffered, method, own)
    return Buffered


@pytest.mark.parametrize("method", ["gradient", "value_and_gradient", "hessian"])
def test_a_cost_may_write_its_gradient_into_the_same_array_again(method: str) -> None:
    matrix = np.diag(np.linspace(1.0, 100.0, 20))
    start = np.ones((20, 1))
    for solver in (LBFGS(), TrustRegions(), AdaptiveCubics(), Hybrid()):
        usual, other = (
            solver.run(Problem(Euclidean(20, 1), cost), start)
            for cost in (Quadratic(matrix), buffered(Quadratic, method)(matrix))
        )
        np.testing.assert_array_equal(usual.point, other.point)
        assert other.converged


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_matrices_of_numpy_and_blocks_that_are_left_out_are_taken() -> None:
    cost = type("Own", (Quadratic,), {"gradient": lambda self, x: np.matrix(x)})(np.eye(4))
    assert LBFGS().run(Problem(Euclidean(4, 2), cost), random_state=0).converged

    class First(Cost):
        def value(self, x: Any) -> float:
            return float(np.sum(x[0] ** 2))

        def gradient(self, x: Any) -> Any:
            return BlockDiagonal([(4, 2), (3, 2)], {0: 2.0 * x[0]})

    solver = GradientDescent(max_iter=3)
    assert solver.run(Problem(FixedRankFactors(4, 3, 2), First()), random_state=0).steps == 3


@each_row("solver", [SGD(0.01), *(SGD(0.01, rule=rule) for rule in (Momentum(0.5), Adam(), AdaGrad()))])
def test_terms_of_a_wrong_shape_are_refused(solver: Any) -> None:
    class Terms(FiniteSum):
        n_terms = 5  # type: ignore[assignment]

        def value(self, x: Array) -> float:
            return float(np.sum(x**2))

        def gradient(self, x: Array) -> Array:
            return 2.0 * x

        def term_gradient(self, x: Array, terms: Array) -> Array:
            return x.sum(axis=0)

    with pytest.raises(InvalidInputError, match=r"the term_gradient of Terms is of shape \(4,\)"):
        solver.run(Problem(Euclidean(4, 4), Terms()), random_state=0)


def test_a_hessian_matrix_in_place_of_a_product_is_refused() -> None:
    cost = type("Own", (Quadratic,), {"hessian": lambda self, x, direction: np.eye(5)})()
    with pytest.raises(InvalidInputError, match=r"the hessian of Own is of shape \(5, 5\)"):
        check_hessian(Problem(Sphere(5), cost))


@pytest.mark.parametrize(("two", "broken"), [(2.0, []), (2.0 + 0.0j, ["terms"])])
def test_terms_on_a_product_are_held_against_their_laws(two: complex, broken: list[str]) -> None:
    points = np.random.default_rng(0).standard_normal((5, 3))

    class Lines(FiniteSum):
        n_terms = 5  # type: ignore[assignment]

        def value(self, point: Any) -> float:
            return float(np.sum((points @ point[0] - point[1]) ** 2))

        def gradient(self, point: Any) -> Any:
            return [part.real for part in self.term_gradient(point, np.arange(5))]

        def term_gradient(self, point: Any, terms: Array) -> Any:
            far = two * (points[terms] @ point[0] - point[1])
            return [points[terms].T @ far, np.array([-far.sum()])]

    laws = check_cost(Problem(Product([Sphere(3), Euclidean(1)]), Lines()))
    assert [law.name for law in laws if not law] == broken


def test_sums_of_costs_are_copied_and_pickled_whole() -> None:
    both, x = Quadratic(np.eye(3)) + Quadratic(np.eye(3)), np.ones(3)
    twin = copy.deepcopy(both)
    twin.parts[0][1].matrix = 5.0 * np.eye(3)
    np.testing.assert_array_equal(twin.hessian(x, x), twin.gradient(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(both)).hessian(x, x), 2.0 * x)


def test_functions_of_factors_and_sums_from_the_left() -> None:
    cost = rmopt.autograd_cost(lambda Y: anp.sum((Y @ Y.T - np.eye(4)) ** 2))
    assert TrustRegions().run(Problem(PSDFactors(4, 4), cost), random_state=0).converged
    with pytest.raises(InvalidInputError, match="write a function of A and B"):
        Problem(PSDFactors(4, 4), OnFactors(cost))
    x = np.ones((4, 4))
    assert sum([cost, cost]).value(x) == 2.0 * cost.value(x)


def test_a_complex_start_is_said_to_be_complex() -> None:
    problem = Problem(Sphere(3), autograd_cost(lambda x: (x**4).sum()))
    with pytest.raises(InvalidInputError, match=r"its numbers are complex, .* take their real parts"):
        LBFGS().run(problem, np.array([1j, 0, 0]))
    assert "array" not in str(check_hessian(problem))


def test_complex_numbers_are_refused_in_gradients_and_starts() -> None:
    class Turned(Quadratic):
        def gradient(self, point: Any) -> Any:
            return super().gradient(point) + 1j

    problem = Problem(Grassmann(5, 2), Turned())
    for run in (check_cost, lambda problem: SGD(0.02, max_iter=20).run(problem, random_state=0)):
        with pytest.raises(InvalidInputError, match=r"Turned is of type complex.* field='complex'"):
            run(problem)
    with pytest.raises(InvalidInputError, match="SGD takes real arrays of numpy"):
        SGD(0.02).run(Problem(Euclidean(5, 2), Quadratic()), np.ones((5, 2)) + 0j)


def test_costs_add_and_scale() -> None:
    f, g = rmopt.autograd_cost(lambda x: anp.sum(x**2)), rmopt.autograd_cost(lambda x: anp.sum(x))
    x = np.arange(3.0)
    assert (f - g).value(x) == 2.0
    np.testing.assert_array_equal((f * 0.5 - g).gradient(x), x - 1)
    with pytest.raises(InvalidInputError, match=r"shapes \[\(2, 2\), \(3, 3\)\] do not add"):
        BilinearSum(np.eye(2), np.eye(2)) + BilinearSum(np.eye(3), np.eye(3))


def test_costs_keep_data_of_their_own() -> None:
    rows, triplets = sp.csr_array(np.eye(3)), np.array([[0, 1, 2], [2, 1, 0]])
    costs = LogDetTriplet(rows, triplets), TripletSum(rows, rows, triplets=triplets)
    W = np.eye(3)
    before = [np.array(cost.value(W)) for cost in costs], costs[0].block_gradient(W, 0).u
    rows.data *= 10.0
    triplets[:] = triplets[:, ::-1]
    np.testing.assert_array_equal([cost.value(W) for cost in costs], before[0])
    np.testing.assert_array_equal(costs[0].block_gradient(W, 0).u, before[1])
    assert [cost.triplets[0].tolist() for cost in costs] == 2 * [[0, 1, 2]]


@pytest.mark.parametrize("density", [0.3, 1.0])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array])
def test_a_cost_owns_its_rows(density: float, kind: Any) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((20, k)) * (rng.random((20, k)) < density) for k in (6, 5))
    given = kind(left), kind(right)
    cost, W = BilinearSum(*given, "squared", np.ones(20)), rng.standard_normal((6, 5))
    value, entries = cost.value(W), cost.left.sum()
    for one in given:
        (one.data if sp.issparse(one) else one)[...] *= 2.0
        if hasattr(one, "indices"):
            one.indices[...] = 0
    assert (cost.value(W), cost.left.sum()) == (value, entries)


def test_a_cost_that_changes_the_point_is_refused() -> None:
    class Doubles(Cost):
        def value(self, point: Any) -> float:
            point *= 2.0
            return float(point[0])

        def gradient(self, point: Any) -> Any:
            return np.eye(4)[0]

    start = np.array([0.6, 0.8, 0.0, 0.0])
    with pytest.raises(InvalidInputError, match=r"Doubles changed the point .* work on a copy"):
        GradientDescent().run(Problem(Sphere(4), Doubles()), start)
    assert start.tolist() == [0.6, 0.8, 0.0, 0.0]


def test_a_negative_inner_product_is_no_convergence() -> None:
    class Slip(Sphere):
        def inner_product(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> float:
            return -float(tangent_vector_a @ tangent_vector_b)

    problem = Problem(Slip(4), autograd_cost(lambda x: x[0]))
    for solver in (GradientDescent(), SGD(0.1, max_iter=3)):
        with pytest.raises(InvalidInputError, match="test inner_product and projection by"):
            solver.run(problem, np.array([0.6, 0.8, 0.0, 0.0]), random_state=0)
