"""Directions and step lengths of line searches, the library's and those of strangers."""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from descent_parts import KINDS, PLACES, B, C, Conditioned, Fit, LogDet, Quadratic, gap, same_bits
from tabled import each_row

from rmopt import InvalidInputError, Problem, autograd_cost
from rmopt.core import Cost, MissingCapabilityError
from rmopt.manifolds import Euclidean, PositiveDefinite, Sphere
from rmopt.solvers import (
    LBFGS,
    Backtracking,
    Checkpoint,
    Conjugate,
    ConjugateGradient,
    Direction,
    Exact,
    GradientDescent,
    LineSearchSolver,
    QuasiNewton,
    SteepestDescent,
    StepLength,
    StrongWolfe,
    TrustRegions,
)
from rmopt.solvers.batch.directions import RULES

Array = np.ndarray


@pytest.mark.parametrize("solver", [GradientDescent(), TrustRegions()])
@pytest.mark.parametrize(
    ("precondition", "told"),
    [
        (lambda self, x, v: -1.0 * v, "is not positive"),
        (lambda self, x, v: 0.0 * v, "is not positive"),
        (lambda self, x, v: np.nan * v, "is not positive"),
    ],
)
def test_what_is_no_preconditioner_is_refused(solver: Any, precondition: Any, told: str) -> None:
    cost = type("Own", (Quadratic,), {"precondition": precondition})()
    with pytest.raises(InvalidInputError, match=f"preconditioner of Own {told}"):
        solver.run(Problem(Sphere(5), cost), random_state=0)


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


@each_row("solver", KINDS.keys() - {"cubics"})
def test_preconditioners_are_used(solver: str) -> None:
    weights = np.logspace(0.0, 5.0, 15).reshape(5, 3)
    plain, helped = (
        KINDS[solver](tol=1e-10, max_iter=2000).run(Problem(Euclidean(5, 3), cost), random_state=0)
        for cost in (Fit(B, weights), Conditioned(B, weights))
    )
    assert helped.converged
    assert helped.counts["gradients"] + helped.counts["hessians"] < 40
    assert 3 * helped.counts["costs"] < plain.counts["costs"] + plain.counts["hessians"]


class Rounded(Cost):
    """A strong direction whose slope is rounding alone, and longer where the weak one has none."""

    point_type = np.ndarray
    weights = np.array([[1e12], [1.0]])

    def value(self, x: Array) -> float:
        return float(1.0 + 0.5 * x[1, 0] ** 2)

    def gradient(self, x: Array) -> Array:
        return np.array([[3e-5 if abs(x[1, 0]) < 1e-9 else 2e-5], [x[1, 0]]])

    def hessian(self, x: Array, direction: Array) -> Array:
        return self.weights * direction

    def precondition(self, x: Array, tangent: Array) -> Array:
        return tangent / self.weights


def test_last_steps_are_judged_in_the_norm_of_the_preconditioner() -> None:
    result = TrustRegions(tol=0.0).run(Problem(Euclidean(2, 1), Rounded()), np.array([[0.0], [1e-7]]))
    assert abs(result.point[1, 0]) < 1e-12
    assert result.stopped_by.startswith("rounding")


def test_exact_steps() -> None:
    problem = PLACES["euclidean"][0]
    result = ConjugateGradient(step_length=Exact(), tol=1e-10).run(problem, random_state=0)
    # Three distinct curvatures: three steps, each of one evaluation.
    assert result.converged
    assert (result.steps, result.history[-1]["costs"]) == (3, 4)
    with pytest.raises(MissingCapabilityError, match=r"Rayleigh has no `exact_step"):
        GradientDescent(Exact()).run(PLACES["sphere"][0])


def test_quadratics_end_after_as_many_exact_steps_as_they_have_curvatures() -> None:
    for direction in (QuasiNewton(), *map(Conjugate, RULES)):
        solver = LineSearchSolver(direction, Exact(), tol=1e-10)
        result = solver.run(PLACES["euclidean"][0], random_state=0)
        assert (result.converged, result.steps) == (True, 3), direction


def test_quasi_newton_takes_the_unit_of_a_cost_from_its_steps() -> None:
    for unit in (2.0**-20, 1.0, 2.0**20):
        problem = Problem(Euclidean(5, 3), Fit(B, unit * np.array([1.0, 3.0, 10.0])))
        result = LBFGS(tol=1e-10).run(problem, random_state=0)
        assert result.converged
        # All but the first step are tried whole, and taken.
        assert {row["step_size"] for row in result.history[2:]} == {1.0}
        assert result.history[-1]["costs"] == result.steps + 1 < 20


def test_steps_of_strong_wolfe_meet_both_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("rmopt.solvers.batch.step_lengths.SHARE", 0.4)

    class Watched(SteepestDescent):
        def after(self, move: Any, memory: Any) -> Any:
            seen.append((move.cost - move.start.cost) / (move.t * move.slope))
            seen.append(abs(move.slope_after / move.slope))
            return memory

    for place, seed in itertools.product(("euclidean", "sphere", "stiefel"), range(5)):
        # No further than rounding leaves the fall of the cost to be told.
        solver = LineSearchSolver(Watched(), StrongWolfe(0.5), tol=1e-3)
        assert solver.run(PLACES[place][0], random_state=seed).converged
    falls, slopes = np.reshape(seen, (-1, 2)).T
    assert len(falls) > 100
    assert falls.min() >= 0.4
    assert slopes.max() <= 0.5


def test_steps_that_are_too_long_are_made_shorter() -> None:
    class Walled(LogDet):
        """Raises outside of its domain, as a factorisation does."""

        def value_and_gradient(self, point: Array) -> tuple[float, Array]:
            np.linalg.cholesky(point)
            return super().value_and_gradient(point)

    start = np.eye(4) * 1e-3
    for solver in KINDS.values():
        problem = Problem(PositiveDefinite(4).using("additive"), Walled(C))
        result = solver(max_iter=2000).run(problem, start)
        assert result.converged
        np.testing.assert_allclose(result.point, np.linalg.inv(C), atol=1e-3)


class Halving(StepLength):
    """Half of the step, until the cost falls; remembers the step before."""

    class Last(NamedTuple):
        t: float

    def begin(self, work: Any, state: Any) -> Any:
        return self.Last(1.0 / state.norm)

    def __call__(self, curve: Any, guess: float, memory: Any) -> Any:
        for power in range(60):
            trial = curve.at(2.0 * guess * 0.5**power)
            if trial.cost < curve.start.cost:
                return trial
        return None

    def after(self, move: Any, memory: Any) -> Any:
        return self.Last(move.t)


class Momentum(Direction):
    """Heavy ball: 0.5 of the direction before."""

    def begin(self, work: Any, state: Any) -> Any:
        return work.manifold.zero_vector(state.point)

    def __call__(self, work: Any, state: Any, downhill: Any) -> Any:
        return downhill + state.memory * 0.5

    def after(self, move: Any, memory: Any) -> Any:
        return move.old_direction

    def fresh(self, memory: Any) -> bool:
        return False


QUADRATIC = PLACES["euclidean"][0]


def test_directions_and_step_lengths_of_ones_own(tmp_path: Path) -> None:
    for place in ("euclidean", "grassmann polar", "fixed rank second-order", "a stranger's"):
        problem = PLACES[place][0]
        for parts in ((Momentum(), Backtracking()), (SteepestDescent(), Halving()), (Momentum(), Halving())):
            solver = LineSearchSolver(*parts, tol=1e-5, max_iter=3000)
            unbroken = solver.run(problem, random_state=0)
            assert unbroken.converged, unbroken.stopped_by
            assert abs(gap(unbroken, place)) < 1e-6
    path = tmp_path / "own.npz"
    for budget in (3, 3000):
        cut = LineSearchSolver(Momentum(), Halving(), tol=1e-5, max_iter=budget)
        parted = cut.run(QUADRATIC, random_state=0, checkpoint=Checkpoint(path, every_seconds=0))
    solver = LineSearchSolver(Momentum(), Halving(), tol=1e-5, max_iter=3000)
    same_bits(parted, solver.run(QUADRATIC, random_state=0))


def test_rules_are_those_of_their_names_where_steps_are_not_exact() -> None:
    """Along lines that end anywhere the slope before is not the squared gradient."""
    by_hand = {
        "hestenes-stiefel": lambda g, y, d, before: max(0.0, g @ y / (d @ y)),
        "polak-ribiere": lambda g, y, d, before: max(0.0, g @ y / (before @ before)),
        "fletcher-reeves": lambda g, y, d, before: g @ g / (before @ before),
        "dai-yuan": lambda g, y, d, before: g @ g / (d @ y),
    }
    problem = Problem(
        Euclidean(5), autograd_cost(lambda x: (x**4).sum() + (np.arange(1.0, 6.0) * x**2).sum())
    )
    for rule, beta in by_hand.items():
        before, seen = None, 0
        for state in LineSearchSolver(Conjugate(rule), Backtracking()).iterate(
            problem, np.linspace(0.5, 1.0, 5)
        ):
            if before is not None and state.memory[1]:
                direction = (state.point - before.point) / state.step_size
                turned = beta(state.gradient, state.gradient - before.gradient, direction, before.gradient)
                np.testing.assert_allclose(state.memory[0], turned * direction, rtol=1e-6, err_msg=rule)
                seen += 1
            before = state
        assert seen > 1, rule
