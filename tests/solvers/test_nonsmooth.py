"""Kinks: laws of proximal maps and their mutants, ProximalGradient and its traps, h(c(x)) against closed forms."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from in_library import through
from nonsmooth_problems import (
    Quadratic,
    Rows,
    completion,
    components,
    hyperplane,
    nonnegative,
    smoothed,
    two_pieces,
)
from tabled import each_row

from rmopt import InvalidInputError, MissingCapabilityError, Problem, autograd_cost
from rmopt.checks import check_proximable, checks_of
from rmopt.costs import L1, Box, ConstrainedProblem, GroupL2, NonNegative, NonsmoothProblem, Nuclear
from rmopt.costs.proximable import inner_at
from rmopt.manifolds import (
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Oblique,
    Power,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
)
from rmopt.solvers import (
    LBFGS,
    AugmentedLagrangian,
    Checkpoint,
    MaxSteps,
    ProximalGradient,
    certify,
    hessian_spectrum,
)
from rmopt.testing import parametrize_with_laws

Array = np.ndarray
TERMS = [
    (L1(0.3), (6, 4)), (GroupL2(0.7), (6, 4)), (GroupL2(0.7, 2), (6, 4)), (Nuclear(0.8), (6, 4)),
    (Nuclear(0.8), (2, 3, 4)), (Nuclear(0.5, (3, 4)), (12,)), (Box(-0.2, 0.5), (6, 4)), (NonNegative(), (7,)),
]  # fmt: skip
FINITE = [row for row in TERMS if row[0].is_finite]
TIGHT = AugmentedLagrangian(tol=1e-9, max_violation=1e-9)
SMALL = components(20, 2, 0.3)


@each_row(("h", "shape"), TERMS)
def test_laws_of_terms(h: Any, shape: tuple[int, ...]) -> None:
    for seed in range(15):
        assert all(check_proximable(h, shape, seed))


class HalfWeight(L1):
    def prox(self, z: Array, t: float) -> Array:
        return super().prox(z, 0.5 * t)


class NoStep(L1):
    def prox(self, z: Array, t: float) -> Array:
        return super().prox(z, 1.0)

    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        return super().prox_slope(z, 1.0)


class Rest(GroupL2):
    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        slope = super().prox_slope(z, t)
        return lambda d: d - slope(d)


class NoTurn(GroupL2):
    """The slope lacks its part along the group."""

    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        share = np.maximum(1.0 - t * self.weight / np.linalg.norm(z, axis=-1, keepdims=True), 0.0)
        return lambda d: share * d


class Hard(L1):
    """The proximal map of the number of entries that are not zero, which is not convex."""

    def prox(self, z: Array, t: float) -> Array:
        return np.where(np.abs(z) > t * self.weight, z, 0.0)


class InPlace(NonNegative):
    def prox(self, z: Array, t: float) -> Array:
        return np.maximum(z, 0.0, out=z)


class Endless(NonNegative):
    is_finite = True


class Flat(L1):
    def prox(self, z: Array, t: float) -> Array:
        return super().prox(z, t).ravel()


class Each(L1):
    def value(self, z: Array) -> Any:
        return np.abs(z)


class NoSlope(L1):
    def prox_slope(self, z: Array, t: float) -> Any:
        return None


class Skew(L1):
    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        return lambda d: np.cumsum(d, axis=0)


@each_row(
    ("h", "broken"),
    [(HalfWeight(0.3), "least"), (NoStep(0.3), "least"), (Rest(0.7), "slope"), (NoTurn(0.7), "slope"),
     (Hard(0.3), "firmness"), (InPlace(), "purity"), (Endless(), "finiteness"), (Skew(0.3), "slope symmetry")],
)  # fmt: skip
def test_mutants_break_a_law(h: Any, broken: str) -> None:
    for seed in range(5):
        assert broken in [check.name for check in check_proximable(h, rng=seed) if not check]


@each_row(("h", "shape"), FINITE)
def test_complex_terms_and_other_libraries(h: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    z, d = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for _ in range(2))
    # A complex number is a pair of reals.
    there, back = (h.prox(z + s * d, 0.4) for s in (1e-6, -1e-6))
    np.testing.assert_allclose((there - back) / 2e-6, h.prox_slope(z, 0.4)(d), atol=1e-7)
    value = h.value(z)
    for library in ("torch", "jax.numpy", "array_api_strict"):
        xp = pytest.importorskip(library)
        theirs, along = xp.asarray(z), xp.asarray(d)
        assert h.value(theirs) == pytest.approx(value)
        np.testing.assert_allclose(np.asarray(h.prox(theirs, 0.4)), h.prox(z, 0.4), atol=1e-12)
        slope = np.asarray(h.prox_slope(theirs, 0.4)(along))
        np.testing.assert_allclose(slope, h.prox_slope(z, 0.4)(d), atol=1e-12)


def test_the_envelope_is_a_cost_below() -> None:
    x = np.random.default_rng(0).standard_normal((5, 3))
    for h in (L1(0.3), GroupL2(0.7), GroupL2(0.7, 5)):
        problem = Problem(Euclidean(5, 3), h.smoothed(0.1))
        assert all(checks_of(problem))
        assert 0.0 <= h.value(x) - problem.value(x) <= 0.05 * h.weight**2 * 15 + 1e-12
    box = Box(-0.5, 0.5).smoothed(0.1)
    assert box.value(x) == pytest.approx(5.0 * np.sum((x - np.clip(x, -0.5, 0.5)) ** 2))


def test_sparse_components() -> None:
    problem = components(100, 4, 0.3)
    values = []
    for seed in range(3):
        start = problem.manifold.random_point(np.random.default_rng(seed))
        result = ProximalGradient(tol=1e-10).run(problem, start)
        assert result.converged
        assert problem.manifold.check_point(result.point) is None
        assert np.mean(result.point == 0.0) > 0.3
        values.append(problem.value(result.point))
    assert min(values) == pytest.approx(-11.738081, abs=1e-8)
    # From a smoothed start each ends at the best.
    after = ProximalGradient().run(problem, smoothed(problem, start, 4))
    assert problem.value(after.point) == pytest.approx(-11.738081, abs=1e-8)
    assert after.steps < 100


C = np.random.default_rng(5).standard_normal((8, 3))
D = np.random.default_rng(6).standard_normal((8, 8))


@each_row(
    ("manifold", "h", "target"),
    [(Euclidean(8, 3), L1(0.6), C), (Oblique(8, 3), L1(0.6), C), (Sphere(8, 3), GroupL2(0.6), C),
     (Stiefel(8, 3), Nuclear(0.6), C), (Stiefel(4, 2, 3), L1(0.2), C.reshape(3, 4, 2)),
     (SpecialOrthogonal(3), L1(0.3), C[:3])],
)  # fmt: skip
def test_it_ends_where_the_augmented_lagrangian_does(manifold: Any, h: Any, target: Array) -> None:
    problem = NonsmoothProblem(manifold, autograd_cost(lambda X: anp.sum((X - target) ** 2)), h)
    start = manifold.random_point(np.random.default_rng(1))
    exact = TIGHT.run(problem, start)
    result = ProximalGradient().run(problem, exact.point)
    assert exact.converged
    assert result.converged
    assert problem.value(result.point) == pytest.approx(problem.value(exact.point), abs=1e-6)
    # Spheres one by one have the same closed form.
    if isinstance(manifold, Oblique):
        columns = np.sign(C) * np.maximum(np.abs(C) - 0.3, 0.0)
        found = ProximalGradient(tol=1e-9).run(problem, start).point
        np.testing.assert_allclose(found, columns / np.linalg.norm(columns, axis=0), atol=1e-7)


def test_rows_of_subspaces_are_those_of_frames() -> None:
    A = D @ D.T
    values = []
    for manifold in (Stiefel(8, 3), Grassmann(8, 3)):
        problem = NonsmoothProblem(manifold, Quadratic(A=-A), GroupL2(2.5))
        result = ProximalGradient(tol=1e-9).run(problem, np.eye(8)[:, [7, 0, 4]] + 0.0)
        start = manifold.retraction(result.point, 0.1 * manifold.random_tangent_vector(result.point, 0))
        result = ProximalGradient(tol=1e-9).run(problem, start)
        assert result.converged
        values.append(problem.value(result.point))
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    with pytest.raises(InvalidInputError, match="L1 depends on the basis"):
        ProximalGradient().run(NonsmoothProblem(Grassmann(8, 3), Quadratic(A=-A), L1(1.0)), random_state=0)


def test_complex_frames_and_other_libraries() -> None:
    H = D + 1j * D[::-1]
    problem = NonsmoothProblem(Stiefel(8, 2, field="complex"), Quadratic(A=-H @ H.conj().T), L1(3.0))
    problem.cost.value_and_gradient = lambda X: (  # type: ignore[method-assign]
        -float(np.vdot(X, H @ (H.conj().T @ X)).real), -2.0 * H @ (H.conj().T @ X),
    )  # fmt: skip
    result = ProximalGradient(tol=1e-9).run(problem, random_state=0)
    assert result.converged
    again = TIGHT.run(problem, result.point)
    assert problem.value(again.point) == pytest.approx(problem.value(result.point), abs=1e-6)
    for library in ("torch", "jax.numpy"):
        pytest.importorskip(library)
        theirs = NonsmoothProblem(through(SMALL.manifold, library), SMALL.cost, SMALL.h)
        found = ProximalGradient(tol=1e-9).run(theirs, random_state=0)
        assert theirs.value(found.point) == pytest.approx(
            SMALL.value(ProximalGradient(tol=1e-9).run(SMALL, random_state=0).point), abs=1e-9
        )


def test_three_traps() -> None:
    # One: the map is 0 everywhere near, Newton stalls, and what is left of the equation is not small.
    problem, start = components(100, 4, 3.0), Stiefel(100, 4).random_point(np.random.default_rng(1))
    flat = ProximalGradient(step_size=100.0).run(problem, start)
    assert not flat.converged or problem.value(flat.point) == pytest.approx(8.0, abs=1e-6)
    assert ProximalGradient(step_size=100.0, max_iter=0).run(problem, start).history[0]["stationarity"] > 1.0
    # Two: a long t makes ‖V‖/t small, not the measure.
    problem = components(100, 4, 0.3)
    short, long = (
        ProximalGradient(step_size=t, max_iter=0).run(problem, start).history[0]["stationarity"]
        for t in (0.05, 1e4)
    )
    assert long >= short
    assert not ProximalGradient(step_size=1e4, max_iter=50).run(problem, start).converged
    # Three: a linear cost has no curvature around the sphere; and no cost at all.
    c = np.array([3.0, -0.2, 1.0, 0.4])
    found = ProximalGradient(tol=1e-9).run(
        NonsmoothProblem(Sphere(4), autograd_cost(lambda x: c @ x), L1(0.5)), -np.ones(4) / 2
    )
    np.testing.assert_allclose(found.point, np.array([-2.5, 0.0, -0.5, 0.0]) / 6.5**0.5, atol=1e-8)
    alone = ProximalGradient().run(NonsmoothProblem(Sphere(4), None, L1(0.5)), c / np.linalg.norm(c))
    np.testing.assert_allclose(alone.point, [1.0, 0.0, 0.0, 0.0], atol=1e-12)


def test_a_start_at_the_end_is_the_end() -> None:
    result = ProximalGradient(tol=1e-12).run(SMALL, random_state=0)
    again = ProximalGradient().run(SMALL, result.point)
    assert again.converged
    assert again.steps <= 30


def test_wrong_parts_do_not_converge() -> None:
    with pytest.warns(RuntimeWarning, match="check_proximable"):
        wrong = ProximalGradient().run(
            NonsmoothProblem(Sphere(8), autograd_cost(lambda x: anp.sum(x * C[:, 0])), HalfWeight(0.6)),
            random_state=0,
        )
    assert not wrong.converged

    class Scaled(Quadratic):
        def value_and_gradient(self, X: Array) -> tuple[float, Array]:
            value, gradient = super().value_and_gradient(X)
            return value, 0.5 * gradient

    problem = NonsmoothProblem(Stiefel(20, 2), Scaled(A=SMALL.cost.A), L1(0.3))
    with pytest.warns(RuntimeWarning, match="check_gradient"):
        assert not ProximalGradient(tol=1e-3).run(problem, random_state=0).converged


@each_row(
    ("run", "told"),
    [(lambda: ProximalGradient().run(NonsmoothProblem(Sphere(3), None, NonNegative())), "take AugmentedLagrangian"),
     (lambda: ProximalGradient().run(hyperplane()[0]), "without `of`.*take AugmentedLagrangian"),
     (lambda: ProximalGradient().run(NonsmoothProblem(Stiefel(5, 2, metric="canonical"), None, L1(1.0))),
      "metric of .* take AugmentedLagrangian"),
     (lambda: ProximalGradient().run(Problem(Sphere(3), Quadratic(A=np.eye(3)))), "without kinks take LBFGS"),
     (lambda: LBFGS().run(SMALL), "LBFGS ignores kinks; take ProximalGradient"),
     (lambda: NonsmoothProblem(Sphere(3), None, abs), "h = .* must be"),
     (lambda: NonsmoothProblem(FixedRankEmbedded(5, 4, 2), None, L1(1.0)), "choose an array of the point by `of`"),
     (lambda: NonsmoothProblem(Sphere(3), None, L1(1.0), of=abs), "of = .* must be residuals"),
     (lambda: GroupL2(1.0, 3).value(np.ones(4)), "4 numbers are no groups of 3"),
     (lambda: Box(2.0, 1.0), "lower = 2.0 to upper = 1.0"), (lambda: Box(np.inf, np.inf), "no number"),
     (lambda: L1(0.0), "weight"),
     (lambda: L1(1.0).smoothed(0.0), "eps"),
     (lambda: ProximalGradient().run(NonsmoothProblem(Sphere(4, 2), None, Flat(1.0))), "`prox` of Flat"),
     (lambda: TIGHT.run(NonsmoothProblem(Sphere(4, 2), None, Each(1.0))), "`value` of Each"),
     (lambda: ProximalGradient().run(NonsmoothProblem(Sphere(4), None, NoSlope(1.0))), "`prox_slope` of NoSlope"),
     (lambda: ProximalGradient(step_size=1e-300).run(SMALL), "lost in rounding"),
     (lambda: ProximalGradient().run(NonsmoothProblem(Power(Grassmann(8, 3), 2), None, L1(1.0))), "depends on the"),
     (lambda: Nuclear(1.0).value(np.ones(4)), "numbers of shape .* are not one"),
     (lambda: Nuclear(1.0, (3, 0)), "a size in shape"), (lambda: Box(np.zeros(3)), "lower"),
     (lambda: GroupL2(1.0).value(np.zeros((3, 0))), "no groups of 0"),
     (lambda: hessian_spectrum(SMALL, SMALL.manifold.random_point(0)), "a Hessian ignores kinks"),
     (lambda: certify(NonsmoothProblem(Elliptope(4, 2), Quadratic(A=np.eye(4)), GroupL2(1.0)),
                      Elliptope(4, 2).random_point(0)), "a certificate ignores kinks"),
     (lambda: NonNegative().prox(1j * np.ones(2), 1.0), "bounds real numbers")],
)  # fmt: skip
def test_what_is_refused(run: Any, told: str) -> None:
    with pytest.raises((InvalidInputError, MissingCapabilityError), match=told):
        run()


@parametrize_with_laws(
    [(ProximalGradient(max_iter=60), SMALL), (AugmentedLagrangian(max_iter=6), SMALL), SMALL], seeds=[0]
)
def test_laws(check: Any) -> None:
    check()


def test_the_normal_of_most_rows_is_found() -> None:
    problem, normal, start = hyperplane()
    result = TIGHT.run(problem, start)
    assert result.converged
    assert min(np.linalg.norm(result.point - normal), np.linalg.norm(result.point + normal)) < 1e-9
    # Slopes of |·|: within ±1, and ±1 where a row is not in the plane.
    rest = inner_at(problem.of, result.point)
    far = np.abs(rest) > 1e-6
    np.testing.assert_allclose(result.multipliers[far], np.sign(rest[far]))
    assert np.abs(result.multipliers).max() <= 1.0 + 1e-9
    # The start is stationary for the smoothed cost, and no measure of lengths; it is left all the same.
    assert result.steps < 20


def test_total_variation_has_the_value_of_one_scalar() -> None:
    problem, least = two_pieces()
    result = TIGHT.run(problem, random_state=1)
    assert result.converged
    assert problem.value(result.point) == pytest.approx(least, abs=1e-7)
    assert np.abs(np.diff(result.point[:, :10], axis=1)).max() < 1e-7
    assert all(checks_of(problem))


def test_wrong_entries_are_told_from_right_ones() -> None:
    problem, exact = completion(60, 40, 2, 0.4, 0.1)
    result = TIGHT.run(problem, random_state=1)
    assert result.converged
    np.testing.assert_allclose(problem.manifold.to_dense(result.point), exact, atol=1e-8)


def test_bounds_are_constraints_in_other_words() -> None:
    problem, point = nonnegative(40)
    start = problem.manifold.random_point(np.random.default_rng(0))
    inequality = ConstrainedProblem(
        problem.manifold, problem.cost, inequalities=[Rows(np.negative, np.negative)]
    )
    several = [TIGHT.run(one, start, random_state=0) for one in (problem, inequality)]
    for result in several:
        assert result.converged
        assert result.point.min() > -1e-8
        assert problem.value(result.point) == pytest.approx(problem.value(point), abs=1e-7)
    assert several[0].multipliers.max() < 1e-8
    # With a bound and a constraint at once.
    both = NonsmoothProblem(
        problem.manifold, problem.cost, NonNegative(), inequalities=[autograd_cost(lambda x: x[0] - 0.05)]
    )
    result = TIGHT.run(both, start)
    assert result.converged
    assert -1e-8 < result.point[0] < 0.05 + 1e-8


def test_resumption_to_the_bit(tmp_path: Any) -> None:
    straight = ProximalGradient().run(SMALL, random_state=0)
    kept = Checkpoint(tmp_path / "run.npz", every_seconds=0)
    ProximalGradient().run(SMALL, random_state=0, checkpoint=kept, stop=MaxSteps(5))
    again = ProximalGradient().run(SMALL, random_state=0, checkpoint=kept)
    assert (again.point == straight.point).all()
    assert again.steps == straight.steps
