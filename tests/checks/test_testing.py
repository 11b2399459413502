"""The laws as somebody else's test suite takes them: solvers right and wrong, pytest, hypothesis."""

import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
import pytest
from descent_parts import Quadratic

import rmopt
from rmopt import DivergedError, InvalidInputError, MissingCapabilityError, Problem, autograd_cost
from rmopt.checks import (
    check_cost,
    check_gradient,
    check_hessian,
    check_manifold,
    check_retraction,
    check_solver,
    checks_of,
)
from rmopt.checks.catalogue import Instance, instances
from rmopt.checks.runs import SOLVER
from rmopt.core import Cost
from rmopt.core.cost import as_sum
from rmopt.costs import ConstrainedProblem, LogDetTriplet
from rmopt.engines import ReferenceEngine
from rmopt.manifolds import (
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    PositiveDefinite,
    Product,
    Sphere,
    Stiefel,
)
from rmopt.retractions import QR
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaptiveCubics,
    ConjugateGradient,
    Constant,
    Converged,
    GradientDescent,
    Hybrid,
    Momentum,
    NelderMead,
    ParticleSwarm,
    Solver,
    TrustRegions,
)
from rmopt.solvers.stochastic.samplers import Uniform
from rmopt.testing import parametrize_with_laws

FLAT = Problem(Euclidean(4, 3), autograd_cost(lambda X: ((X - 1.0) ** 2).sum() + (X**4).sum()))
PLANE = Problem(Grassmann(7, 2), autograd_cost(lambda U: -(U.T @ (np.diag(np.arange(7.0)) @ U)).trace()))


class Ball(NamedTuple):
    """Where a heavy ball is, and how fast."""

    point: Any
    speed: Any
    steps: int = 0
    updates: int = 0


class HeavyBall(Solver):
    """A solver as a stranger writes it: gradient descent with momentum, and a little noise."""

    max_iter = 12

    def __init__(self, length: float = 0.02) -> None:
        self.length = length

    def prepare(self, problem: Problem, seed: int) -> Any:
        return problem, seed

    def begin(self, work: Any, point: Any) -> Ball:
        return Ball(point, work[0].manifold.zero_vector(point))

    def noise(self, work: Any, state: Ball) -> Any:
        rng = np.random.default_rng([work[1], 7, state.steps])
        return 1e-4 * work[0].manifold.random_tangent_vector(state.point, rng)

    def advance(self, work: Any, state: Ball, steps: int) -> Ball:
        if steps == 0:
            return state
        problem, point = work[0], state.point
        downhill = problem.riemannian_gradient(point) * -self.length + self.noise(work, state)
        speed = state.speed * 0.5 + downhill
        end = problem.manifold.retraction(point, speed)
        carried = problem.manifold.transport(point, end, speed)
        return Ball(end, carried, state.steps + 1, state.updates + 1)


class Uphill(HeavyBall):
    def advance(self, work: Any, state: Ball, steps: int) -> Ball:
        done = super().advance(work, state, steps)
        return done._replace(point=state.point + (state.point - done.point))


class OffTheManifold(HeavyBall):
    def advance(self, work: Any, state: Ball, steps: int) -> Ball:
        done = super().advance(work, state, steps)
        return done._replace(point=done.point[:, :2])


class Unrepeatable(HeavyBall):
    def noise(self, work: Any, state: Ball) -> Any:
        return 1e-4 * work[0].manifold.random_tangent_vector(state.point)


class Forgetful(HeavyBall):
    """It keeps its speed outside of the state."""

    def prepare(self, problem: Problem, seed: int) -> Any:
        return problem, seed, {}

    def advance(self, work: Any, state: Ball, steps: int) -> Ball:
        if steps == 0:
            return state
        done = super().advance(work[:2], state._replace(speed=work[2].get("speed", state.speed)), steps)
        work[2]["speed"] = done.speed
        return done._replace(speed=0.0 * done.speed)


class Changing(HeavyBall):
    def advance(self, work: Any, state: Ball, steps: int) -> Ball:
        self.length *= 0.9
        return super().advance(work, state, steps)


class Hasty(HeavyBall):
    """It never moves, and says that it has converged."""

    def advance(self, work: Any, state: Ball, steps: int) -> Ball:
        return state._replace(steps=state.steps + steps)

    def finished(self, work: Any, state: Ball) -> str | None:
        return Converged("it is there") if state.steps > 2 else None


class Unstoppable(HeavyBall):
    def run(self, *arguments: Any, stop: Any = None, **options: Any) -> Any:
        return super().run(*arguments, **options)


class Restless(HeavyBall):
    """It does not begin where it is told to."""

    max_iter = 3

    def begin(self, work: Any, point: Any) -> Ball:
        return super().begin(work, point + 1.5)


class Boastful(HeavyBall):
    """Its cost is that of the first point."""

    def prepare(self, problem: Problem, seed: int) -> Any:
        return problem, seed, {}

    def observe(self, work: Any, state: Ball) -> dict[str, float]:
        return {"cost": work[2].setdefault("cost", work[0].value(state.point))}


class Wearing(HeavyBall):
    """Its states are one, which changes."""

    def advance(self, work: Any, state: Ball, steps: int) -> Ball:
        done = super().advance(work, state, steps)
        state.point[...] = done.point
        return done._replace(point=state.point)


WRONG = {
    Uphill: "descent", OffTheManifold: "ends", Unrepeatable: "repetition", Forgetful: "resumption",
    Changing: "solver purity", Hasty: "descent", Unstoppable: "resumption", Restless: "ends", Boastful: "observed",
    Wearing: "solver purity",
}  # fmt: skip


@pytest.mark.parametrize("broken", WRONG)
def test_a_wrong_solver_is_found_by_its_law(broken: Any) -> None:
    failed = {check.name: check.detail for check in check_solver(broken(), FLAT) if not check}
    assert WRONG[broken] in failed, sorted(failed)
    assert "likely cause: " in failed[WRONG[broken]]


def test_every_law_of_solvers_has_one_that_breaks_it() -> None:
    names = {law.name for law in SOLVER}
    assert names == set(WRONG.values())
    page = (Path(__file__).parents[2] / "docs" / "extend" / "index.md").read_text(encoding="utf-8")
    assert not [name for name in names if not re.search(rf"[|,] {name}[,;]? ", page)]


SOLVERS = [
    HeavyBall(), GradientDescent(max_iter=20), ConjugateGradient(max_iter=20), LBFGS(max_iter=20),
    TrustRegions(max_iter=6), AdaptiveCubics(max_iter=6), Hybrid(max_iter=10),
    SGD(Constant(0.01), max_iter=40), NelderMead(max_iter=30), ParticleSwarm(max_iter=10),
]  # fmt: skip


@parametrize_with_laws([(solver, problem) for solver in SOLVERS for problem in (FLAT, PLANE)], seeds=[0])
def test_right_solvers(check: Any) -> None:
    check()


ENGINE = ReferenceEngine(FLAT.manifold, as_sum(FLAT.cost), FLAT.manifold.default_retraction)
PARTS = [
    FixedRankEmbedded(6, 5, 2), FLAT, PLANE, (QR, Grassmann(6, 2)), Uniform(20), Constant(0.1), (ENGINE, FLAT),
]  # fmt: skip


def test_parts_of_every_kind() -> None:
    small = next(one for one in instances() if one.name == "euclidean-4-3")
    for part in (*PARTS, small):
        checks = checks_of(part, seed=1)
        assert checks
        assert not [str(check) for check in checks if not check]


def test_what_has_no_laws_is_named() -> None:
    for part in (FLAT.cost, (FLAT.manifold, QR()), "grassmann", None, (1, 2, 3)):
        with pytest.raises(InvalidInputError, match=r"there are no laws for .*; give a manifold, a problem"):
            checks_of(part)


THEIRS = """
import numpy as np
from rmopt import Problem
from rmopt.core import Cost
from rmopt.manifolds import Grassmann
from rmopt.testing import parametrize_with_laws

class Rayleigh(Cost):
    def __init__(self, factor): self.factor = factor
    def value(self, point): return -0.5 * float(np.vdot(point, np.arange(7.0)[:, None] * point))
    def gradient(self, point): return self.factor * np.arange(7.0)[:, None] * point

@parametrize_with_laws([Problem(Grassmann(7, 2), Rayleigh(factor)) for factor in (-1.0, -0.9)])
def test_laws(check):
    check()
"""


def test_ten_lines_in_somebody_elses_tests(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "3 failed, 3 passed" in found.stdout, found.stdout + found.stderr
    assert "laws are broken" in found.stdout
    assert "likely cause: a factor, a sign" in " ".join(found.stdout.split())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_that_diverges_is_a_broken_law() -> None:
    with pytest.raises(DivergedError):
        HeavyBall(length=50.0).run(FLAT, random_state=0)
    assert not all(check_solver(HeavyBall(length=50.0), FLAT))


Array = np.ndarray


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


def test_retractions_are_checked_by_their_names_and_kinked_costs_by_all_other_laws() -> None:
    assert all(check_retraction("exponential", Sphere(3)))
    cost = LogDetTriplet(np.eye(3), [[0, 1, 2]], sparsity=0.1)
    instance = Instance("sparse", PositiveDefinite(3), [], {"hinge": Problem(PositiveDefinite(3), cost)})
    names = [check.name for check in checks_of(instance)]
    assert "repetition" in names
    assert "gradient" not in names


def test_a_value_that_depends_on_the_basis_now_and_then() -> None:
    class Jumping(Quadratic):
        def value(self, point: Any) -> float:
            return super().value(point) + (point[0, 0] > 0.3)

    problem = Problem(Grassmann(5, 2), Jumping())
    assert sum(not all(check_cost(problem, rng)) for rng in range(10)) >= 4


def test_a_solver_that_cannot_run_is_not_said_to_obey() -> None:
    place = Product([FixedRankEmbedded(5, 4, 2), Grassmann(5, 2)])
    problem = Problem(
        place, rmopt.autograd_cost(lambda W, U: anp.sum((W[0] @ W[1].T) ** 2) + anp.sum(U.T @ U))
    )
    with pytest.raises(MissingCapabilityError, match=r"compiled"):
        check_solver(SGD(0.01, rule=Momentum(0.5), engine="compiled"), problem)


@pytest.mark.parametrize("constant", [1e4, 1e8, 1e12, 1e14])
def test_a_constant_hides_no_wrong_gradient(constant: float) -> None:
    for factor in (1.1, -1.0):
        A = np.random.default_rng(0).standard_normal((8, 8))
        square, wrong = A + A.T, factor * (A + A.T)

        class Shifted(Cost):
            def value(self, X: Any, square: Any = square) -> float:
                return 0.5 * float(np.sum(X * (square @ X))) + constant

            def gradient(self, X: Any, wrong: Any = wrong) -> Any:
                return wrong @ X

        problem = Problem(Stiefel(8, 3), Shifted())
        assert not any(check_gradient(problem, rng=seed) for seed in range(3))


def test_no_law_makes_a_square_of_a_long_column() -> None:
    tracemalloc.start()
    try:
        assert all(check_manifold(Sphere(4000)))
        assert tracemalloc.get_traced_memory()[1] < 4000**2
    finally:
        tracemalloc.stop()


def test_a_constant_beside_which_a_right_hessian_fails_is_named() -> None:
    problem = Problem(Sphere(5), autograd_cost(lambda x: 1e10 + (x**4).sum()))
    for seed in range(10):
        slope, *others = check_hessian(problem, seed)
        assert all(others)
        assert slope or "cause: a constant that hides it in its rounding; subtract it" in slope.detail
