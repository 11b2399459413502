"""What strangers found in the core: parts that write to their arrays again, overrides, means, and what ends a run."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import pytest
import scipy.sparse as sp
from tabled import each_row

import rmopt
from rmopt import InvalidInputError, MissingCapabilityError, Problem
from rmopt.checks import check_cost, check_gradient, check_manifold, check_retraction
from rmopt.core import BlockDiagonal, Cost, FiniteSum
from rmopt.core.transport import OfRetraction
from rmopt.costs import ConstrainedProblem, OnFactors
from rmopt.interop import PymanoptSolver, from_pymanopt
from rmopt.manifolds import (
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    Oblique,
    PolarPSD,
    PositiveDefinite,
    Product,
    PSDFactors,
    PSDFixedRank,
    Simplex,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
    frechet_mean,
)
from rmopt.retractions import Normalisation
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaGrad,
    Adam,
    AdaptiveCubics,
    Backtracking,
    Below,
    Checkpoint,
    CoordinateDescent,
    Direction,
    GradientDescent,
    Hybrid,
    LineSearchSolver,
    MaxSteps,
    Recorder,
    TrustRegions,
)

Array = np.ndarray
A = np.diag(np.arange(1.0, 6.0))


class Quadratic(Cost):
    """½ xᵀAx."""

    def __init__(self, matrix: Array = A) -> None:
        self.matrix = matrix

    def value(self, x: Array) -> float:
        return 0.5 * float(np.sum(x * (self.matrix @ x)))

    def gradient(self, x: Array) -> Any:
        return self.matrix @ x

    def hessian(self, x: Array, direction: Array) -> Array:
        return self.matrix @ direction


# Means


@each_row("manifold", [Sphere(3), Oblique(3, 4), Grassmann(6, 3), Product([Sphere(3), Sphere(3)])])
def test_a_mean_is_where_the_logarithms_cancel_also_of_points_far_apart(manifold: Any) -> None:
    for seed in (*range(8), 189):
        rng = np.random.default_rng(seed)
        points = [manifold.random_point(rng) for _ in range(4)]
        mean = frechet_mean(manifold, points)
        pull = manifold.zero_vector(mean)
        for point in points:
            pull = pull + manifold.log(mean, point)
        assert manifold.norm(mean, pull) < 1e-9


def test_means_of_wide_matrices_of_whole_numbers_of_one_point_and_cut_short() -> None:
    cone, rng = SymmetricPositiveDefinite(3), np.random.default_rng(4)
    frames = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(5)]
    points = [(Q * 10.0 ** rng.uniform(-2, 2, 3)) @ Q.T for Q in frames]
    points = [0.5 * (P + P.T) for P in points]
    mean = frechet_mean(cone, points)
    assert cone.norm(mean, sum(cone.log(mean, point) for point in points)) < 1e-6
    with pytest.warns(RuntimeWarning, match="stopped after 1 steps"):
        frechet_mean(cone, points, max_iter=1)
    found = frechet_mean(Sphere(3), [np.array([1, 0, 0]), np.array([0, 1, 0])])
    np.testing.assert_allclose(found, [0.5**0.5, 0.5**0.5, 0.0])
    assert frechet_mean(cone, points[:1]) is not points[0]


def test_factors_of_semidefinite_matrices_have_no_flat_distance() -> None:
    manifold = PSDFactors(5, 2)
    Y = manifold.random_point(np.random.default_rng(0))
    with pytest.raises(MissingCapabilityError, match="geodesic distance"):
        manifold.dist(Y, -Y)


# What costs give


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


@each_row(
    ("gradient", "told"),
    [
        (lambda x: x > 0, "of type bool"),
        (lambda x: np.ma.array(x, mask=x > 0), "masked"),
        (lambda x: x + 0j, "complex"),
        (lambda x: x.astype(object), "of type object"),
        (lambda x: x.sum(axis=0), r"of shape \(2,\)"),
    ],
)
def test_gradients_of_other_types_are_refused(gradient: Callable[[Array], Any], told: str) -> None:
    cost = type("Own", (Quadratic,), {"gradient": lambda self, x: gradient(x)})(np.eye(4))
    with pytest.raises(InvalidInputError, match=told):
        LBFGS().run(Problem(Stiefel(4, 2), cost), random_state=0)
    both = type(
        "Own", (Cost,), {"value": lambda self, x: 0.0, "gradient": lambda self, x: [gradient(x[0]), x[1]]}
    )()
    with pytest.raises(InvalidInputError):
        LBFGS().run(Problem(Product([Euclidean(4, 2), Sphere(3)]), both), random_state=0)


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


@each_row("solver", [SGD(0.01), SGD(0.01, momentum=0.5), Adam(0.01), AdaGrad(0.01)])
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


def test_coordinate_descent_takes_gradients_that_are_not_symmetric() -> None:
    target = np.diag([1.0, 2.0, 3.0]) + 0.2
    skewed = target + np.array([[0.0, 3.0, 0.0], [-3.0, 0.0, 1.0], [0.0, -1.0, 0.0]])

    class Skewed(Cost):
        def value(self, W: Array) -> float:
            return float(np.sum(skewed * W) - np.linalg.slogdet(W)[1])

        def gradient(self, W: Array) -> Array:
            return skewed - np.linalg.inv(W)

    found = CoordinateDescent(n_epochs=100).run(Problem(PositiveDefinite(3), Skewed()), random_state=0)
    np.testing.assert_allclose(found.point, np.linalg.inv(target), atol=1e-8)


def test_a_cost_that_autograd_cannot_follow_is_told() -> None:
    given = np.ones(3)
    lost = rmopt.autograd_cost(lambda x: anp.sum(given**2))
    with pytest.warns(RuntimeWarning, match="autograd sees no way from the point"):
        LBFGS().run(Problem(Sphere(3), lost), random_state=0)


def test_sums_of_costs_are_copied_and_pickled_whole() -> None:
    both, x = Quadratic(np.eye(3)) + Quadratic(np.eye(3)), np.ones(3)
    twin = copy.deepcopy(both)
    twin.parts[0][1].matrix = 5.0 * np.eye(3)
    np.testing.assert_array_equal(twin.hessian(x, x), twin.gradient(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(both)).hessian(x, x), 2.0 * x)


# What checks look at


def test_constraints_are_checked_and_costs_of_one_factor_found() -> None:
    wrong = type("Wrong", (Quadratic,), {"gradient": lambda self, x: 3.0 * x})()
    assert not check_gradient(ConstrainedProblem(Sphere(5), Quadratic(), equalities=[wrong]))
    slope = np.random.default_rng(0).standard_normal((5, 2))
    failed = [
        one.name
        for one in check_cost(Problem(Elliptope(5, 2), rmopt.autograd_cost(lambda Y: (Y * slope).sum())))
        if not one
    ]
    assert failed == ["invariance"]


def test_a_retraction_that_forgets_the_sign_is_found() -> None:
    class Forward(Normalisation):
        def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
            return super().__call__(manifold, point, tangent, abs(t))

    assert "scaling" in [one.name for one in check_retraction(Forward(), Sphere(5)) if not one]


@each_row(
    "call",
    [
        lambda: check_gradient(Sphere(3)),  # type: ignore[arg-type]
        lambda: check_manifold(Sphere),  # type: ignore[arg-type]
        lambda: check_retraction(Sphere(3), Normalisation()),  # type: ignore[arg-type]
        lambda: check_cost(Problem(Sphere(5), Quadratic()), point=np.ones(3)),
        lambda: FixedRankEmbedded(20, 16, 3).from_matrix(sp.csr_array((20, 16))),
        lambda: PSDFixedRank(20, 3).from_matrix(sp.csr_array((20, 20))),
    ],
)
def test_arguments_of_checks_and_zeros_are_refused_by_name(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be a|is not on|is zero"):
        call()


def test_a_retraction_of_the_manifold_itself_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="which solvers do not call"):
        type("Own", (Sphere,), {"retraction": lambda self, x, v: x})


# What ends a run


def test_a_resumed_run_counts_steps_from_its_first_part(tmp_path: Path) -> None:
    problem, solver = Problem(Sphere(5), _as_terms()), SGD(0.01, max_iter=2000)
    whole = solver.run(problem, random_state=0, stop=MaxSteps(400))
    checkpoint = Checkpoint(tmp_path / "run.npz", every_seconds=0)
    solver.run(problem, random_state=0, stop=MaxSteps(150), checkpoint=checkpoint)
    resumed = solver.run(problem, random_state=0, stop=MaxSteps(400), checkpoint=checkpoint)
    assert (whole.steps, resumed.steps) == (400, 400)
    np.testing.assert_array_equal(whole.point, resumed.point)


def _as_terms() -> Any:
    from rmopt.core.cost import as_sum

    return as_sum(Quadratic())


def test_a_criterion_that_the_last_step_meets_is_asked() -> None:
    reached = (
        LBFGS(tol=0.0, max_iter=4).run(Problem(Sphere(5), Quadratic()), random_state=0).history[-1]["cost"]
    )
    again = LBFGS(tol=0.0, max_iter=4).run(
        Problem(Sphere(5), Quadratic()), random_state=0, stop=Below(reached * (1.0 + 1e-9))
    )
    assert (again.steps, again.converged) == (4, True)


@each_row(
    ("metric", "told"),
    [
        (lambda x: {"step": 0}, "gave 'step', which the row has already"),
        (lambda x: None, "gave None; it must return a number"),
        (lambda x: x, "it must return a number"),
        (lambda x: x.sort() or 1.0, "changed the point"),
    ],
)
def test_metrics_are_checked(metric: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        LBFGS().run(Problem(Sphere(5), Quadratic()), random_state=0, recorder=Recorder({"m": metric}))


@each_row("rule", [lambda t: 0.01 * (1.0 - t / 1000.0), lambda t: np.linspace(0.1, 0.01, 1000)[t]])
def test_rules_are_not_asked_beyond_the_budget(rule: Any) -> None:
    problem = Problem(Sphere(5), _as_terms())
    assert SGD(rule, max_iter=1000).run(problem, random_state=0).steps == 1000
    with pytest.raises((InvalidInputError, IndexError)):
        SGD(rule, max_iter=1100).run(problem, random_state=0)


def test_vertices_of_the_simplex_are_reached() -> None:
    prices = np.array([1.0, 2.0, 3.0, 4.0])
    problem = Problem(Simplex(4), rmopt.autograd_cost(lambda p: anp.sum(prices * p)))
    for solver in (LBFGS(), Hybrid()):
        np.testing.assert_allclose(solver.run(problem, random_state=0).point, [1, 0, 0, 0], atol=1e-4)
    far = Simplex(3).retraction(np.full(3, 1 / 3), 1e3 * np.array([1.0, 0.0, -1.0]))
    assert Simplex(3).check_point(far) is None


# Manifolds of others


def test_second_derivatives_that_a_part_lacks_are_differences() -> None:
    target = np.array([0.1, 0.2, 0.3])
    foreign = from_pymanopt(pymanopt.manifolds.PoincareBall(3))
    near = Problem(foreign, rmopt.autograd_cost(lambda x: anp.sum((x - target) ** 2)))
    for solver in (GradientDescent(), LBFGS(), TrustRegions()):
        np.testing.assert_allclose(solver.run(near, random_state=0).point, target, atol=1e-5)
    assert not Product([PolarPSD(4, 2), Euclidean(2, 2)]).knows_hessians


def test_a_criterion_of_pymanopt_s_run_is_asked_as_others() -> None:
    solver = PymanoptSolver(pymanopt.optimizers.SteepestDescent(max_iterations=5, verbosity=0))
    with pytest.raises(InvalidInputError, match="stop returned False"):
        solver.run(Problem(Sphere(5), Quadratic()), random_state=0, stop=lambda rows: False)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("factor", [-1.0, 0.0])
def test_a_preconditioner_that_is_not_positive_is_refused(factor: float) -> None:
    cost = type("Own", (Quadratic,), {"precondition": lambda self, x, v: factor * v})()
    with pytest.raises(InvalidInputError, match="preconditioner of Own is not positive"):
        TrustRegions().run(Problem(Sphere(5), cost), random_state=0)


def test_directions_that_lead_uphill_are_replaced_at_once_and_scaled_ones_tried_whole() -> None:
    class Uphill(Direction):
        def __call__(self, work: Any, state: Any, downhill: Any) -> Any:
            return -1.0 * downhill

    class Newton(Direction):
        is_scaled = True

        def __call__(self, work: Any, state: Any, downhill: Any) -> Any:
            return downhill / np.arange(1.0, 6.0)

    assert (
        LineSearchSolver(Uphill(), Backtracking())
        .run(Problem(Sphere(5), Quadratic()), random_state=0)
        .converged
    )
    found = LineSearchSolver(Newton(), Backtracking()).run(Problem(Euclidean(5), Quadratic()), np.ones(5))
    assert (found.steps, found.history[1]["step_size"]) == (1, 1.0)


def test_functions_of_factors_and_sums_and_criteria_from_the_left() -> None:
    cost = rmopt.autograd_cost(lambda Y: anp.sum((Y @ Y.T - np.eye(4)) ** 2))
    assert TrustRegions().run(Problem(PSDFactors(4, 4), cost), random_state=0).converged
    with pytest.raises(InvalidInputError, match="takes 1 argument"):
        Problem(PSDFactors(4, 4), OnFactors(cost))
    x = np.ones((4, 4))
    assert sum([cost, cost]).value(x) == 2.0 * cost.value(x)
    criterion: Any = (lambda rows: None) | MaxSteps(3)
    found = LBFGS(tol=0.0).run(Problem(Sphere(5), Quadratic()), random_state=0, stop=criterion)
    assert found.steps == 3


def test_the_derivative_of_a_retraction_is_that_of_the_retraction() -> None:
    manifold, rng = Grassmann(6, 2).using("qr"), np.random.default_rng(0)
    x = manifold.random_point(rng)
    a, b = (manifold.random_tangent_vector(x, rng) for _ in range(2))
    y, h = manifold.retraction(x, 0.7 * a), 1e-6
    ahead, behind = (manifold.retraction(x, 0.7 * a + t * b) for t in (h, -h))
    slope = manifold.projection(y, (ahead - behind) / (2.0 * h))
    np.testing.assert_allclose(OfRetraction()(manifold, x, y, b), slope, atol=1e-6)


def test_an_own_attribute_of_a_solver_belongs_to_the_run(tmp_path: Path) -> None:
    class Inner(LBFGS):
        n_steps = 1

        def __init__(self, n_steps: int, max_iter: int) -> None:
            super().__init__(max_iter=max_iter)
            object.__setattr__(self, "n_steps", n_steps)

    problem, checkpoint = Problem(Sphere(5), Quadratic()), Checkpoint(tmp_path / "run.npz")
    Inner(1, 3).run(problem, random_state=0, checkpoint=checkpoint)
    assert Inner(1, 5).run(problem, random_state=0, checkpoint=checkpoint).steps > 3
    with pytest.raises(InvalidInputError, match="n_steps is 1, not 50"):
        Inner(50, 9).run(problem, random_state=0, checkpoint=checkpoint)
