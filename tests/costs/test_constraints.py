"""The augmented Lagrangian: against closed forms and scipy, with scalar and vector constraints, and its laws."""

from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.optimize
from tabled import each_row

from rmopt import (
    DivergedError,
    InvalidInputError,
    MissingCapabilityError,
    Problem,
    autograd_cost,
    autograd_residuals,
)
from rmopt.checks import check_gradient
from rmopt.core import Cost, LowRankPoint, Parts
from rmopt.costs import ConstrainedProblem, ResidualSum
from rmopt.costs.constraints import AugmentedCost
from rmopt.costs.proximable import inner_at
from rmopt.costs.residuals import AutomaticResiduals
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Product,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
)
from rmopt.solvers import (
    LBFGS,
    SGD,
    AugmentedLagrangian,
    Below,
    Checkpoint,
    ConjugateGradient,
    GradientDescent,
    GradientNorm,
    MaxSteps,
    TrustRegions,
)
from rmopt.testing import parametrize_with_laws

Array = np.ndarray
RNG = np.random.default_rng(0)
HALF = RNG.standard_normal((8, 8))
COVARIANCE = HALF @ HALF.T
TARGET = RNG.standard_normal((6, 5))


@autograd_cost
def minus_variance(x: Any) -> Any:
    return -x @ COVARIANCE @ x


NOT_NEGATIVE = autograd_residuals(lambda x: -x)
NONNEGATIVE_PCA = ConstrainedProblem(Sphere(8), minus_variance, inequalities=[NOT_NEGATIVE])


def supports() -> float:
    """Return the best value of non-negative PCA, by all supports: on one the minimum is an eigenvector."""
    best = np.inf
    for bits in range(1, 256):
        chosen = np.flatnonzero([bits >> i & 1 for i in range(8)])
        values, vectors = np.linalg.eigh(COVARIANCE[np.ix_(chosen, chosen)])
        for value, vector in zip(values, vectors.T, strict=True):
            if (vector >= 0).all() or (vector <= 0).all():
                best = min(best, -value)
    return best


@each_row("inner", [LBFGS(), TrustRegions(), ConjugateGradient(), GradientDescent()])
def test_nonnegative_principal_components(inner: Any) -> None:
    solver = AugmentedLagrangian(inner=inner)
    results = [solver.run(NONNEGATIVE_PCA, random_state=seed) for seed in range(3)]
    assert all(result.converged for result in results)
    best = min(results, key=lambda result: minus_variance.value(result.point))
    assert minus_variance.value(best.point) == pytest.approx(supports(), rel=1e-5)
    for result in results:
        # Karush, Kuhn and Tucker: feasible, stationary, complementary.
        x, mu = result.point, result.inequality_multipliers
        assert result.violation <= 1e-6
        assert x.min() >= -1e-6
        assert (mu >= 0).all()
        assert np.abs(mu * x).max() < 1e-4
        gradient = -2.0 * COVARIANCE @ x - mu
        assert np.linalg.norm(gradient - x * (x @ gradient)) < 1e-4


def test_a_linear_equality_on_the_sphere_has_a_closed_form() -> None:
    a, c = np.array([1.0, 2.0, 2.0]) / 3.0, np.array([1.0, -1.0, 0.5])
    problem = ConstrainedProblem(
        Sphere(3), autograd_cost(lambda x: c @ x), equalities=[autograd_cost(lambda x: a @ x - 0.6)]
    )
    result = AugmentedLagrangian(tol=1e-8, max_violation=1e-9).run(problem, random_state=1)
    across = c - a * (a @ c)
    np.testing.assert_allclose(result.point, 0.6 * a - 0.8 * across / np.linalg.norm(across), atol=1e-7)
    assert result.converged
    # Multipliers are those of the sphere and of the plane: c + λa + νx = 0.
    rest = c + result.equality_multipliers[0] * a
    np.testing.assert_allclose(rest, result.point * (rest @ result.point), atol=1e-6)


def test_in_flat_space_it_finds_what_scipy_finds() -> None:
    def cost(x: Any) -> Any:
        return (x[0, 0] - 2.0) ** 2 + (x[1, 0] - 1.0) ** 2

    def curve(x: Any) -> Any:
        return x[0, 0] ** 2 - x[1, 0]

    def line(x: Any) -> Any:
        return x[0, 0] + x[1, 0] - 2.0

    problem = ConstrainedProblem(
        Euclidean(2, 1), autograd_cost(cost), inequalities=[autograd_cost(curve), autograd_cost(line)]
    )
    result = AugmentedLagrangian(tol=1e-9, max_violation=1e-9).run(problem, np.zeros((2, 1)))
    theirs = scipy.optimize.minimize(
        lambda x: cost(x[:, None]), [0.0, 0.0], method="SLSQP", tol=1e-12,
        constraints=[{"type": "ineq", "fun": lambda x, g=g: -g(x[:, None])} for g in (curve, line)],
    )  # fmt: skip
    np.testing.assert_allclose(result.point.ravel(), theirs.x, atol=1e-7)
    np.testing.assert_allclose(result.inequality_multipliers, 2.0 / 3.0, atol=1e-6)


def test_a_matrix_of_low_rank_with_sums_of_its_rows() -> None:
    sums = TARGET.sum(1) + 0.1
    problem = ConstrainedProblem(
        FixedRankEmbedded(6, 5, 2),
        autograd_cost(lambda A, B: 0.5 * anp.sum((A @ B.T - TARGET) ** 2)),
        equalities=[AutomaticResiduals(lambda A, B: A @ anp.sum(B, axis=0) - 0.5 * sums)],
    )
    result = AugmentedLagrangian().run(problem, random_state=0)
    assert result.converged
    W = problem.manifold.to_dense(result.point)
    np.testing.assert_allclose(W.sum(1), 0.5 * sums, atol=2e-6)
    # Stationary: the gradient of the Lagrangian has no part in the tangent space.
    whole = W - TARGET + np.outer(result.equality_multipliers, np.ones(5))
    assert problem.manifold.norm(result.point, problem.manifold.projection(result.point, whole)) < 1e-4


def test_constraints_of_products() -> None:
    problem = ConstrainedProblem(
        Product([Grassmann(5, 2), Euclidean(5, 1)]),
        autograd_cost(lambda U, b: anp.sum((b - 1.0) ** 2) - anp.sum((TARGET[:, :5] @ U) ** 2)),
        equalities=[autograd_cost(lambda U, b: anp.sum((U.T @ b) ** 2))],
        inequalities=[autograd_cost(lambda U, b: anp.sum(b**2) - 4.0)],
    )
    h = AugmentedCost(problem, (np.array([0.3]), np.array([0.7])), 2.0)
    assert check_gradient(Problem(problem.manifold, h))
    result = AugmentedLagrangian(max_violation=1e-4, tol=1e-4).run(problem, random_state=0)
    assert result.violation <= 1e-4
    assert np.linalg.norm(result.point[0].T @ result.point[1]) <= 1.1e-2


def test_what_cannot_hold_is_not_called_converged() -> None:
    problem = ConstrainedProblem(
        Sphere(3), autograd_cost(lambda x: x[0]), equalities=[autograd_cost(lambda x: x[0] - 2.0)]
    )
    result = AugmentedLagrangian(max_iter=15).run(problem, random_state=0)
    assert not result.converged
    assert result.violation == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("off", [0.0, 1e-9])
def test_a_start_where_the_cost_is_least(off: float) -> None:
    # A gradient of length zero there is no measure of those elsewhere.
    A, least = RNG.standard_normal((2, 5)), np.ones(5)
    cost = autograd_cost(lambda x: anp.sum(np.arange(1.0, 6.0) * (x - least) ** 2))
    wanted = [
        autograd_cost(lambda x: anp.sum(A[0] * x) - 1.0),
        autograd_cost(lambda x: (A[1] @ x) ** 2 - 1.0),
    ]
    result = AugmentedLagrangian().run(ConstrainedProblem(Euclidean(5), cost, equalities=wanted), least + off)
    assert result.converged
    assert result.updates < 300


SHARES = np.arange(1.0, 4.0)
LEAST = np.linalg.eigh(COVARIANCE)[1]
FIT = np.linalg.lstsq(HALF[:, :5], TARGET[:, 0].repeat(2)[:8], rcond=None)[0]
LEFT, SIZES, RIGHT = np.linalg.svd(TARGET)
RANK_TWO = LowRankPoint(LEFT[:, :2], np.diag(SIZES[:2]), RIGHT[:2].T)
# Minima of costs, known up to rounding.
MINIMA = {
    "sphere": (Sphere(8), minus_variance, LEAST[:, -1]),
    "sphere, beside a constant": (
        Sphere(8), autograd_cost(lambda x: 1e4 * (x @ x) - x @ COVARIANCE @ x), LEAST[:, -1]
    ),
    "sphere, a constant alone": (Sphere(8), autograd_cost(lambda x: x @ x), LEAST[:, 3]),
    "Stiefel": (
        Stiefel(8, 3), autograd_cost(lambda X: -anp.sum((COVARIANCE @ X) * X * SHARES)), LEAST[:, -3:]
    ),
    "product": (
        Product([Sphere(8), Euclidean(5)]),
        autograd_cost(lambda x, y: 1e4 * (x @ x) - x @ COVARIANCE @ x + anp.sum((y - TARGET[0]) ** 2)),
        Parts([LEAST[:, -1], TARGET[0]]),
    ),
    "flat": (
        Euclidean(5), autograd_cost(lambda x: anp.sum((HALF[:, :5] @ x - TARGET[:, 0].repeat(2)[:8]) ** 2)), FIT
    ),
    "flat, an exact fit": (
        Euclidean(5), autograd_cost(lambda x: anp.sum((HALF[:, :5] @ x - HALF[:, :5] @ FIT) ** 2)), FIT + 1e-16
    ),
    "positive definite": (
        SymmetricPositiveDefinite(8),
        autograd_cost(lambda X: anp.trace(COVARIANCE @ X) - anp.log(anp.linalg.det(X))),
        np.linalg.inv(COVARIANCE),
    ),
    "of one rank": (
        FixedRankEmbedded(6, 5, 2), autograd_cost(lambda A, B: anp.sum((A @ B.T - TARGET) ** 2)), RANK_TWO
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MINIMA)
@each_row("inner", [LBFGS(), TrustRegions(), ConjugateGradient()])
def test_a_start_at_a_minimum_within_the_constraints_is_the_end(name: str, inner: Any) -> None:
    manifold, cost, start = MINIMA[name]
    below = autograd_cost((lambda A, B: -2.0) if name in ("of one rank", "product") else (lambda x: -2.0))
    problem = ConstrainedProblem(manifold, cost, inequalities=[below])
    result = AugmentedLagrangian(inner=inner).run(problem, start)
    assert result.converged
    assert result.steps == 0
    # Beside it there is something to do, and it is done.
    away = manifold.random_tangent_vector(start, np.random.default_rng(1))
    near = AugmentedLagrangian(inner=inner).run(problem, manifold.retraction(start, away * 1e-8))
    assert near.converged
    assert near.steps <= 10


def test_a_constant_beside_the_cost_costs_no_accuracy() -> None:
    """The gradient around the sphere is 10⁴ times as long as along it, and says nothing of how far the minimum is."""
    constant = autograd_cost(lambda x: 1e4 * (x @ x))
    signs = [NOT_NEGATIVE]
    problem = ConstrainedProblem(Sphere(8), minus_variance + constant, inequalities=signs)
    plain, beside = (
        AugmentedLagrangian(max_violation=1e-9).run(one, np.full(8, 8**-0.5))
        for one in (NONNEGATIVE_PCA, problem)
    )
    assert plain.converged
    assert beside.converged
    np.testing.assert_allclose(beside.point, plain.point, atol=1e-6)


def test_what_is_feasible_is_found_without_a_cost() -> None:
    halves = [HALF[:6, :6] + HALF[:6, :6].T, np.diag(np.arange(6.0) - 2.0)]
    wanted = [autograd_cost(lambda x, A=A: x @ A @ x - 0.1) for A in halves]
    problem = ConstrainedProblem(Sphere(6), autograd_cost(lambda x: 0), equalities=wanted)
    result = AugmentedLagrangian().run(problem, random_state=0)
    assert result.converged
    assert all(abs(inner_at(one, result.point)) < 1e-6 for one in wanted)


def test_no_other_solver_forgets_the_constraints(tmp_path: Path) -> None:
    for solver in (LBFGS(), TrustRegions(), SGD(0.1), PymanoptSolver("ConjugateGradient")):
        with pytest.raises(MissingCapabilityError, match=r"takes no constraints; use AugmentedLagrangian"):
            solver.run(NONNEGATIVE_PCA, random_state=0)
    with pytest.raises(
        InvalidInputError, match=r"AugmentedLagrangian is for an .*; without constraints take LBFGS"
    ):
        AugmentedLagrangian().run(Problem(Sphere(8), minus_variance), random_state=0)
    # A checkpoint belongs to the constraints too.
    kept = Checkpoint(tmp_path / "run.npz", every_seconds=0)
    AugmentedLagrangian().run(NONNEGATIVE_PCA, random_state=0, checkpoint=kept, stop=MaxSteps(2))
    other = ConstrainedProblem(
        Sphere(8), minus_variance, inequalities=[AutomaticResiduals(lambda x: 2.0 * -x)]
    )
    with pytest.raises(InvalidInputError, match="another run: at the start the length of the constraints"):
        AugmentedLagrangian().run(other, random_state=0, checkpoint=kept)


class NotANumber(Cost):
    """A constraint that is NaN, at once or away from the start."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once

    def value(self, point: Any) -> float:
        return float("nan") if self.at_once or point[0] < 0.9 else float(point[0] - 0.5)

    def gradient(self, point: Any) -> Any:
        return np.eye(8)[0]


def test_what_stops_before_the_constraints_hold_has_not_converged() -> None:
    one = autograd_cost(lambda x: x[0] - 0.3)
    problem = ConstrainedProblem(
        Sphere(4), autograd_cost(lambda x: (x**2 * np.arange(1.0, 5.0)).sum()), [one]
    )
    short = GradientNorm(1e-2)
    early = AugmentedLagrangian().run(problem, random_state=0, stop=short)
    assert early.violation > 1e-2
    assert not early.converged
    both = AugmentedLagrangian().run(problem, random_state=0, stop=short & Below(1e-6, "violation"))
    assert both.converged
    assert both.violation <= 1e-6


def test_constraints_that_come_and_go_are_refused() -> None:
    class Active(ResidualSum):
        def residuals(self, x: Array) -> Array:
            return np.asarray(x[x > 1.0] - 1.0)

        def linearised(self, x: Array) -> Any:
            return (lambda d: d[x > 1.0]), (lambda w: np.eye(2)[:, x > 1.0] @ w)

    problem = ConstrainedProblem(
        Euclidean(2), autograd_cost(lambda x: ((x - 2.0) ** 2).sum()), (), [Active()]
    )
    with pytest.raises(InvalidInputError, match="return as many residuals everywhere"):
        AugmentedLagrangian().run(problem, np.zeros(2))


def test_constraints_that_are_no_numbers_are_never_met() -> None:
    start = np.eye(8)[0]
    at_once, elsewhere = (
        ConstrainedProblem(Sphere(8), minus_variance, equalities=[NotANumber(one)]) for one in (True, False)
    )
    with pytest.raises(DivergedError):
        AugmentedLagrangian().run(at_once, start)
    result = AugmentedLagrangian(max_iter=10).run(elsewhere, start)
    assert not result.converged
    assert result.violation >= 0.4


class ByHand(Cost):
    """A constraint whose value, or gradient, is of another shape."""

    def __init__(self, value: Any, gradient: Any) -> None:
        self.found, self.slope = value, gradient

    def value(self, point: Any) -> Any:
        return self.found

    def gradient(self, point: Any) -> Any:
        return self.slope


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        (autograd_cost(lambda x: -x), "autograd_residuals"),
        (autograd_cost(lambda x: [-x[0], -x[1]]), "autograd_residuals"),
        (ByHand(-np.ones(3), np.ones(3)), "ByHand .*real"),
        (ByHand(1j, np.ones(3)), "ByHand .*real"),
        # Either would be stretched to the shape of a point.
        (ByHand(0.5, np.ones(1)), "gradient of ByHand .*shape"),
        (ByHand(0.5, 1.0), "gradient of ByHand"),
        (lambda x: -x, r"inequalities\[0\] = .*autograd_residuals"),
    ],
)  # fmt: skip
def test_several_numbers_are_never_one_constraint(constraint: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        AugmentedLagrangian().run(
            ConstrainedProblem(Sphere(3), autograd_cost(lambda x: x[0]), inequalities=[constraint]),
            np.eye(3)[0],
        )


def test_a_vector_of_constraints_is_as_many_as_it_has_numbers() -> None:
    A = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0], [-1.0, 0.0, 3.0]])
    problem = ConstrainedProblem(
        Sphere(3), autograd_cost(lambda x: -x @ A @ x), inequalities=[autograd_residuals(lambda x: -x)]
    )
    result = AugmentedLagrangian().run(problem, random_state=0)
    assert result.converged
    assert len(result.inequality_multipliers) == 3
    np.testing.assert_allclose(result.point, [0.0, 0.0, 1.0], atol=1e-6)


@parametrize_with_laws([(AugmentedLagrangian(max_iter=8), NONNEGATIVE_PCA)], seeds=[0])
def test_laws(check: Any) -> None:
    check()


def test_a_penalty_that_is_too_small_for_the_cost_grows() -> None:
    """−x²y has no minimum, and within the box it is at (1, 2)."""
    falls = autograd_cost(lambda x: -(x[0] ** 2) * x[1])
    box = AutomaticResiduals(lambda x: anp.array([x[0] - 1.0, x[1] - 2.0, -x[0], -x[1]]))
    problem = ConstrainedProblem(Euclidean(2), falls, inequalities=[box])
    found = AugmentedLagrangian().run(problem, np.array([0.5, 0.5]))
    assert found.converged
    np.testing.assert_allclose(found.point, [1.0, 2.0], atol=1e-5)
    with pytest.raises(DivergedError, match="is not finite after"):
        AugmentedLagrangian().run(
            ConstrainedProblem(Euclidean(2), falls, inequalities=[autograd_cost(lambda x: -x[1])]), np.ones(2)
        )
