"""Full-gradient solvers: every one on every manifold, cut off and resumed, counted, with strangers' parts."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
import pytest
from descent_parts import (
    KINDS,
    PLACES,
    SOLVERS,
    WEIGHTS,
    A,
    B,
    Conditioned,
    Counted,
    CountedTwice,
    Fit,
    gap,
    same_bits,
)
from tabled import each_row

from rmopt import DivergedError, InvalidInputError, Problem, autograd_cost
from rmopt.core import Cost
from rmopt.manifolds import Euclidean
from rmopt.solvers import (
    LBFGS,
    AdaptiveCubics,
    Checkpoint,
    GradientDescent,
    Hybrid,
    Recorder,
    Solver,
    TrustRegions,
)

Array = np.ndarray


# Every solver on every manifold


@each_row("solver, place", itertools.product(SOLVERS, PLACES))
def test_the_optimum_is_reached(solver: str, place: str) -> None:
    result = SOLVERS[solver](tol=1e-6, max_iter=3000).run(PLACES[place][0], random_state=0)
    assert result.converged, result.stopped_by
    assert abs(gap(result, place)) < 1e-9
    assert result.history[-1]["gradient_norm"] <= 1e-6 * result.history[0]["gradient_norm"]
    assert PLACES[place][0].manifold.check_point(result.point) is None


ONE_OF_EACH = [
    name for name in PLACES if not name.endswith(("exponential", "polar", "projection", "orthographic"))
]


@each_row("solver, place", itertools.product(KINDS.keys() - {"wolfe"}, ONE_OF_EACH))
def test_runs_are_cut_off_and_go_on_to_the_same_bits(solver: str, place: str, tmp_path: Path) -> None:
    problem, path = PLACES[place][0], tmp_path / f"{solver} {place}.npz"
    unbroken = KINDS[solver](max_iter=9, tol=1e-9).run(problem, random_state=1)
    # At each step, and at the end.
    for budget, seconds in ((4, 0.0), (9, 30.0)):
        parted = KINDS[solver](max_iter=budget, tol=1e-9).run(
            problem, random_state=1, checkpoint=Checkpoint(path, every_seconds=seconds)
        )
    same_bits(unbroken, parted)
    other = KINDS[solver](max_iter=0).run(problem, random_state=2)
    assert other.history[0]["cost"] != unbroken.history[0]["cost"]


def test_a_hybrid_run_is_cut_off_in_both_halves(tmp_path: Path) -> None:
    problem = PLACES["grassmann qr"][0]
    unbroken = Hybrid(tol=1e-12).run(problem, random_state=1)
    for budget in range(1, unbroken.steps + 1):
        path = tmp_path / f"{budget}.npz"
        for most in (budget, 1000):
            solver = Hybrid(tol=1e-12, max_iter=most)
            parted = solver.run(problem, random_state=1, checkpoint=path)
        same_bits(unbroken, parted)


def test_the_second_half_of_a_hybrid_run_is_as_exact_as_its_end_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rmopt.solvers.batch.trust_regions.SWITCH", 1e-2)
    cost = autograd_cost(lambda x: anp.sum(anp.arange(1.0, 31.0) * x**2 + x**4 / 4.0 - x))
    run = Hybrid(tol=1e-12).run(Problem(Euclidean(30), cost), np.ones(30))
    near = [row["gradient_norm"] / run.history[0]["gradient_norm"] for row in run.history]
    before, after = next(pair for pair in itertools.pairwise(near) if pair[0] < 1e-5)
    assert after < 1e-3 * before


def test_steps_that_the_region_holds_back_are_as_long_as_its_radius() -> None:
    """Conjugate gradients go further from the start with each of their steps, up to the minimum."""
    weights = np.arange(1.0, 11.0)[:, None]
    start = np.ones((10, 1))
    for cost, metric in (
        (Fit(0.0 * start, weights), 1.0),
        (Conditioned(0.0 * start, weights), 2.0 * weights),
    ):
        whole = float(np.sum(metric * start**2)) ** 0.5
        for share in (0.2, 0.5, 0.8, 0.95):
            solver = TrustRegions(first_radius=share * whole, max_iter=1)
            step = solver.run(Problem(Euclidean(10, 1), cost), start).point - start
            assert np.sum(metric * step**2) ** 0.5 == pytest.approx(share * whole, rel=1e-12)


def test_the_radius_follows_what_steps_bring() -> None:
    def after(*terms: float) -> tuple[float, float]:
        """Return the length of a first step from 0 within a radius of 1, and the radius that it leaves."""
        cost = autograd_cost(lambda x: anp.sum(sum(c * x**power for power, c in enumerate(terms, 1))))
        solver = TrustRegions(first_radius=1.0, max_iter=1)
        *_, last = solver.iterate(Problem(Euclidean(1, 1), cost), np.zeros((1, 1)))
        return last.step_length, last.memory[0]

    # Of −x + c x³ the model is straight, and a step of length 1 brings the share 1 − c of what it promised.
    for c, wanted in ((0.2, (1.0, 2.0)), (0.5, (1.0, 1.0)), (0.85, (1.0, 0.25))):
        assert after(-1.0, 0.0, c) == wanted
    length, radius = after(-1.0, 0.0, 1.02)
    assert length == 0.0
    assert radius <= 0.25
    # A parabola is its own model.
    assert after(-1.5, 0.5) == (1.0, 2.0)


def test_steps_of_cubics_minimise_their_model() -> None:
    """The first weight of the cube makes that of a parabola −g s + h s²/2 + σ s³/3 with σ = h²/(10 g)."""
    problem = Problem(Euclidean(1, 1), Fit(np.zeros((1, 1)), 2.0))
    step = AdaptiveCubics(max_iter=1).run(problem, np.array([[3.0]])).history[1]["step_length"]
    assert step == pytest.approx(15.0 * (1.4**0.5 - 1.0), rel=1e-12)


# Counts, transports, Hessians, preconditioners


@each_row("solver, bends", itertools.product(KINDS, (True, False)))
def test_counts_are_those_of_the_calls(solver: str, bends: bool) -> None:
    for place in ("grassmann qr", "fixed rank second-order", "positive definite", "product"):
        problem = PLACES[place][0]
        if bends and not hasattr(problem.cost, "hessian"):
            continue
        cost = (CountedTwice if bends else Counted)(problem.cost)
        result = KINDS[solver](tol=1e-8).run(Problem(problem.manifold, cost), random_state=3)
        told = {name: result.counts[name] for name in cost.calls}
        if not bends:
            # A product with the Hessian is a gradient here.
            assert (told.pop("hessians") > 0) == (solver in ("trust regions", "cubics", "hybrid"))
            cost.calls.pop("hessians")
        assert told == cost.calls, place
        assert result.converged
        # At the end a value of the cost is held against the gradient.
        looked = {"costs": 1, "gradients": 0, "hessians": 0, "retractions": 1}
        assert result.counts == {name: result.history[-1][name] + looked[name] for name in looked}
        for name in result.counts:
            counts = [row[name] for row in result.history]
            assert counts == sorted(counts)


@each_row("solver", ("trust regions", "cubics", "hybrid"))
def test_differences_stand_for_hessians(solver: str) -> None:
    for place in ("grassmann qr", "fixed rank second-order", "psd", "positive definite", "sphere"):
        problem, _ = PLACES[place]
        bare = Problem(problem.manifold, Counted(problem.cost))
        assert bare.lacks_hessian() is not None
        plain, exact = (KINDS[solver](tol=1e-7).run(one, random_state=0) for one in (bare, problem))
        assert plain.converged
        assert abs(gap(plain, place)) < 1e-9
        assert plain.steps <= 2 * exact.steps + 5


# When runs end

QUADRATIC = PLACES["euclidean"][0]


@each_row("solver, place", itertools.product(KINDS, ("grassmann qr", "sphere")))
def test_no_tolerance_ends_at_rounding(solver: str, place: str) -> None:
    result = KINDS[solver](tol=0.0, max_iter=1000).run(PLACES[place][0], random_state=0)
    assert result.converged or "rounding" in result.stopped_by, result.stopped_by
    assert result.history[-1]["gradient_norm"] < 1e-6
    assert "may be wrong" not in result.stopped_by


@each_row("solver", KINDS)
def test_starts_that_need_no_step(solver: str) -> None:
    still = KINDS[solver]().run(QUADRATIC, B.copy())
    assert (still.steps, still.converged) == (0, True)
    none = KINDS[solver](max_iter=0).run(QUADRATIC, random_state=0)
    assert (none.steps, none.converged, none.stopped_by) == (0, False, "the budget of 0 steps")
    near = KINDS[solver](gradient_norm=1e6).run(QUADRATIC, random_state=0)
    assert (near.steps, near.converged) == (0, True)


@each_row("solver, scale", itertools.product(KINDS, (1e-12, 1e12)))
def test_the_scale_of_the_cost_does_not_matter(solver: str, scale: float) -> None:
    cost = Fit(B, scale * WEIGHTS)
    result = KINDS[solver](tol=1e-5).run(Problem(QUADRATIC.manifold, cost), random_state=0)
    assert result.converged
    np.testing.assert_allclose(result.point, B, atol=1e-3)


# Costs of strangers


class Turning(Cost):
    """A cost whose value or gradient is another thing from the fourth time on."""

    def __init__(self, value: Any = None, gradient: Any = None) -> None:
        self.fit, self.others, self.calls = Fit(B, WEIGHTS), {"value": value, "gradient": gradient}, 0

    def _turned(self, name: str, point: Array) -> Any:
        self.calls += self.others[name] is not None
        found = getattr(self.fit, name)(point)
        return self.others[name](found) if self.calls > 3 and self.others[name] is not None else found

    def value(self, point: Array) -> Any:
        return self._turned("value", point)

    def gradient(self, point: Array) -> Any:
        return self._turned("gradient", point)


@each_row(
    "solver, part, turn, error, says",
    [
        (solver, *row)
        for solver in KINDS
        for row in (
            ("value", lambda f: float("nan"), DivergedError, "not finite|infs or NaNs"),
            ("value", lambda f: float("inf"), DivergedError, "not finite|infs or NaNs"),
            ("value", lambda f: f + 0j, InvalidInputError, "not a real number; return a float"),
            ("gradient", lambda G: G * np.nan, DivergedError, "not finite|infs or NaNs"),
            ("gradient", lambda G: G * np.inf, DivergedError, "not finite|infs or NaNs"),
            ("gradient", lambda G: G[0], InvalidInputError, r"of shape \(3,\), and points of .* \(5, 3\)"),
            ("gradient", lambda G: None, InvalidInputError, "no array or operator"),
        )
    ],
)
def test_what_costs_give_midway_is_looked_at(
    solver: str, part: str, turn: Any, error: Any, says: str
) -> None:
    # Exact steps would end before the fourth call.
    problem = Problem(QUADRATIC.manifold, Turning(**{part: turn}))
    with pytest.raises(error, match=says), np.errstate(all="ignore"):
        KINDS[solver](tol=0.0, max_iter=2000).run(problem, random_state=0)


class Wrong(Fit):
    """A cost with the sign of the gradient forgotten."""

    def gradient(self, point: Array) -> Array:
        return -super().gradient(point)


class Upward(Fit):
    """What has no minimum."""

    def value(self, point: Array) -> float:
        return -super().value(point)

    def gradient(self, point: Array) -> Array:
        return -super().gradient(point)

    def hessian(self, point: Array, direction: Any) -> Array:
        return -super().hessian(point, direction)


@pytest.mark.parametrize("exponent", [-400, 400])
def test_the_unit_of_a_cost_changes_no_bits_of_trust_regions(exponent: int) -> None:
    found, plain = (
        TrustRegions().run(Problem(QUADRATIC.manifold, weight * QUADRATIC.cost), random_state=0)
        for weight in (2.0**exponent, 1.0)
    )
    assert found.converged
    assert found.counts == plain.counts
    np.testing.assert_array_equal(found.point, plain.point)


@each_row("solver", KINDS)
def test_gradients_that_are_wrong_and_costs_without_a_minimum(solver: str) -> None:
    ended = KINDS[solver](max_iter=250).run(Problem(QUADRATIC.manifold, Wrong(B)), random_state=0)
    assert not ended.converged
    assert "rmopt.checks.check_gradient" in ended.stopped_by
    try:
        ended = KINDS[solver](max_iter=400).run(Problem(QUADRATIC.manifold, Upward(B)), random_state=0)
    except DivergedError:
        return
    assert not ended.converged
    assert ended.history[-1]["cost"] < -1e100


# Parts of strangers


@dataclass
class Searched:
    """Where a random search stands."""

    point: Any
    cost: float
    radius: float = 1.0
    steps: int = 0
    updates: int = 0


class SearchedTuple(NamedTuple):
    point: Any
    cost: float
    radius: float = 1.0
    steps: int = 0
    updates: int = 0


class RandomSearch(Solver):
    """Random steps; those that lower the cost are taken, and make the next ones longer."""

    def __init__(self, kind: Any, max_iter: int = 120) -> None:
        self.kind, self.max_iter = kind, max_iter

    def prepare(self, problem: Problem, seed: int) -> Any:
        return problem, seed

    def begin(self, work: Any, point: Any) -> Any:
        return self.kind(point, work[0].value(point))

    def advance(self, work: Any, state: Any, steps: int) -> Any:
        (problem, seed), manifold = work, work[0].manifold
        point, cost, radius, updates = state.point, state.cost, state.radius, state.updates
        for step in range(state.steps, state.steps + steps):
            rng = np.random.default_rng([seed, step])
            moved = manifold.retraction(point, manifold.random_tangent_vector(point, rng) * radius)
            value = problem.value(moved)
            better = value < cost
            radius *= 1.5 if better else 0.9
            if better:
                point, cost, updates = moved, value, updates + 1
        return self.kind(point, cost, radius, state.steps + steps, updates)


class Forgetful(RandomSearch):
    """One that does not count its steps."""

    def advance(self, work: Any, state: Any, steps: int) -> Any:
        return state


@each_row("kind, place", itertools.product((Searched, SearchedTuple), ("grassmann qr", "psd", "product")))
def test_a_solver_of_ones_own(kind: Any, place: str, tmp_path: Path) -> None:
    problem, path = PLACES[place][0], tmp_path / f"{kind.__name__} {place}.npz"
    unbroken = RandomSearch(kind).run(
        problem, random_state=0, recorder=Recorder({"cost": problem.value}, first=7)
    )
    for budget in (50, 120):
        parted = RandomSearch(kind, budget).run(
            problem,
            random_state=0,
            checkpoint=Checkpoint(path, every_seconds=0),
            recorder=Recorder({"cost": problem.value}, first=7),
        )
    same_bits(unbroken, parted)
    assert unbroken.history[-1]["cost"] < unbroken.history[0]["cost"]
    assert RandomSearch(kind).run(problem, random_state=0, stop=lambda rows: "now").stopped_by == "now"
    with pytest.raises(
        InvalidInputError, match=r"Forgetful.advance went from step 0 to 0, and it may do 1 to 1"
    ):
        Forgetful(kind).run(problem, random_state=0)


def test_what_a_checkpoint_cannot_keep_is_told_before_work_starts(tmp_path: Path) -> None:
    @dataclass
    class Odd(Searched):
        extra: Any = field(default_factory=object)

    with pytest.raises(InvalidInputError, match="a checkpoint cannot keep extra of a state, of type object"):
        RandomSearch(Odd).run(QUADRATIC, random_state=0, checkpoint=Checkpoint(tmp_path / "c.npz"))


# Loops, threads and recorders


def test_iterate_is_left_and_gone_on_with() -> None:
    solver = LBFGS(tol=1e-9)
    steps = solver.iterate(QUADRATIC, random_state=0)
    states = list(itertools.islice(steps, 4))
    steps.close()
    assert [state.steps for state in states] == [0, 1, 2, 3]
    # A solver keeps nothing of a run.
    result = solver.run(QUADRATIC, random_state=0)
    assert [row["cost"] for row in result.history][:4] == [state.cost for state in states]
    for kind in KINDS.values():
        last = list(kind().iterate(QUADRATIC, random_state=0))[-1]
        np.testing.assert_array_equal(last.point, kind().run(QUADRATIC, random_state=0).point)


@each_row("solver", KINDS)
def test_recorders_see_each_step(solver: str) -> None:
    problem = PLACES["grassmann qr"][0]
    recorder = Recorder({"trace": lambda point: float(np.vdot(point, A @ point))})
    result = KINDS[solver]().run(problem, random_state=0, recorder=recorder)
    assert [row["step"] for row in result.history] == list(range(result.steps + 1))
    np.testing.assert_allclose(
        [-0.5 * row["trace"] for row in result.history], [row["cost"] for row in result.history]
    )
    same_bits(*(KINDS[solver]().run(problem, random_state=0, recorder=each) for each in (None, Recorder())))


@pytest.mark.parametrize("solver", [AdaptiveCubics, TrustRegions, GradientDescent])
@pytest.mark.parametrize("unit", [1.0, 1e-100])
def test_runs_to_the_end_of_numbers_on_a_flat_bottom(solver: Any, unit: float) -> None:
    problem = Problem(Euclidean(3, 1), autograd_cost(lambda x: unit * anp.sum(x**4)))
    result = solver(tol=0.0, max_iter=400).run(problem, random_state=1)
    assert np.abs(result.point).max() < 1e-6


@pytest.mark.parametrize("solver", [LBFGS(), TrustRegions(), GradientDescent()])
def test_a_kink_at_the_minimum_is_named_and_the_point_kept(solver: Any) -> None:
    goal = np.array([0.3, -1.2, 2.0])
    distance = autograd_cost(lambda x: anp.sqrt(anp.sum((x - goal) ** 2)))
    with np.errstate(all="ignore"), pytest.raises(DivergedError, match="roots and norms of 0") as told:
        solver.run(Problem(Euclidean(3), distance), np.zeros(3))
    np.testing.assert_allclose(told.value.point, goal, atol=1e-8)


@pytest.mark.parametrize("solver", [LBFGS(), TrustRegions(), GradientDescent(), AdaptiveCubics()])
@pytest.mark.parametrize("scale", [1e-9, 1e9, 1e17])
def test_coordinates_of_any_size(solver: Any, scale: float) -> None:
    goal = np.array([1.0, 2.0])
    squares = autograd_cost(lambda x: anp.sum((x / scale - goal) ** 2))
    found = solver.run(Problem(Euclidean(2), squares), scale * np.array([3.0, 6.0]))
    assert found.converged
    np.testing.assert_allclose(found.point / scale, goal, atol=1e-4)


@pytest.mark.parametrize("solver", [TrustRegions(), AdaptiveCubics()])
@pytest.mark.parametrize("seed", range(3))
def test_a_cost_that_a_constant_hides_has_not_converged(solver: Any, seed: int) -> None:
    hidden = autograd_cost(lambda x: 1e16 + anp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))
    found = solver.run(Problem(Euclidean(4), hidden), random_state=seed)
    assert not found.converged
    assert found.stopped_by.startswith("rounding: no step lowers the cost")


@pytest.mark.parametrize("unit", [2.0**-330, 1.0])
def test_cubics_follow_a_cost_without_a_minimum_in_all_units(unit: float) -> None:
    downhill = autograd_cost(lambda x: unit * anp.sum(x**3))
    with pytest.raises(DivergedError, match=r"is not finite after \d+ iterations"):
        AdaptiveCubics().run(Problem(Euclidean(3), downhill), random_state=0)
