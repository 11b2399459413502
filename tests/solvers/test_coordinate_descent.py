"""Coordinate descent on the log-det triplet cost: optimum, convergence, engines, inverse, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from rmopt import DivergedError, InvalidInputError, Problem
from rmopt.checks import check_cost
from rmopt.core import Cost, MissingCapabilityError
from rmopt.costs import LogDetTriplet, Loss, OnFactors, hinge, logistic, squared_hinge
from rmopt.engines.choose import choose_coordinate_engine
from rmopt.engines.coordinate import CoordinateReference
from rmopt.engines.log_det import LogDetEngine
from rmopt.kernels import log_det
from rmopt.kernels.row_column import EXACT, FRACTION
from rmopt.manifolds import Euclidean, PositiveDefinite, PSDFactors
from rmopt.retractions import POSITIVE_DEFINITE_RETRACTIONS, Additive, AffineExponential, SchurExponential
from rmopt.solvers import (
    LBFGS,
    SGD,
    Checkpoint,
    CoordinateDescent,
    ExactLineSearch,
    FractionOfBound,
    Recorder,
    Uniform,
)


def triplet_cost(
    d: int = 10, share: float = 0.4, seed: int = 0, count: int = 200, **weights: Any
) -> LogDetTriplet:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, d)) * (rng.random((40, d)) < share)
    X[:, 3] = 0.0
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    return LogDetTriplet(X, rng.integers(40, size=(count, 3)), **({"alpha": 1.0, "beta": 0.3} | weights))


def problem_of(cost: Any) -> Problem:
    return Problem(PositiveDefinite(cost.shape[0]), cost)


def least_value(cost: LogDetTriplet) -> float:
    """Return the least cost by scipy's L-BFGS over a Cholesky factor."""
    d = cost.n_blocks

    def by_factor(flat: np.ndarray) -> tuple[float, np.ndarray]:
        L = np.zeros((d, d))
        L[np.tril_indices(d)] = flat
        W = L @ L.T
        return cost.value(W), (2.0 * cost.gradient(W) @ L)[np.tril_indices(d)]

    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.linalg.cholesky(cost.best_multiple_of_identity())[np.tril_indices(d)]
    return float(minimize(by_factor, start, jac=True, method="L-BFGS-B", options=options).fun)


@pytest.mark.parametrize(
    ("loss", "weights"),
    [
        (logistic, {}),
        (squared_hinge, {"alpha": 0.1, "beta": 0.05}),
        (logistic, {"kappa": 0.5, "alpha": 5.0}),
        (logistic, {"score": "distance"}),
    ],
)
def test_the_optimum_is_that_of_an_independent_solver(loss: Loss, weights: dict[str, Any]) -> None:
    cost = triplet_cost(loss=loss, **weights)
    found = CoordinateDescent(400, tol=1e-8, order="shuffled").run(
        problem_of(cost), cost.best_multiple_of_identity(), random_state=0
    )
    least = least_value(cost)
    assert cost.value(found.point) - least < 1e-6 * abs(least)
    assert "residual" in found.stopped_by


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_scores_of_distances_are_those(share: float) -> None:
    cost = triplet_cost(share=share, loss=logistic, score="distance")
    W = PositiveDefinite(10).random_point(np.random.default_rng(1))
    moved = cost.rows.toarray() @ np.linalg.cholesky(W)
    q, p, n = (moved[column] for column in cost.triplets.T)
    expected = 0.5 * (((q - n) ** 2).sum(axis=1) - ((q - p) ** 2).sum(axis=1))
    assert np.allclose(cost.scores(W), expected)
    assert np.allclose(cost.scores(W, np.array([5, 2])), expected[[5, 2]])


def test_a_hinge_comes_near_the_optimum() -> None:
    """Not smooth and not separable: coordinate descent may stall at a kink. A smoothed hinge bounds the optimum."""
    width = 1e-3
    below = Loss(
        "smoothed hinge",
        value=lambda z, y: (
            max(0.0, 1.0 - z - width / 2) if z < 1.0 - width else 0.5 * max(0.0, 1.0 - z) ** 2 / width
        ),
        slope=lambda z, y: -min(1.0, max(0.0, 1.0 - z) / width),
    )
    cost = triplet_cost(loss=hinge)
    found = CoordinateDescent(100, order="shuffled").run(problem_of(cost), random_state=0)
    least = least_value(triplet_cost(loss=below))
    assert least < cost.value(found.point) < 1.01 * least


def test_smooth_costs_fall_at_a_linear_rate() -> None:
    """The set-up of the convergence theorem: κ > 0 and a smooth loss."""
    cost = triplet_cost(loss=logistic, kappa=0.5, alpha=5.0)
    least = cost.value(CoordinateDescent(300).run(problem_of(cost), random_state=1).point)
    recorder = Recorder({"cost": cost.value}, at=range(0, 400, 10))
    start = PositiveDefinite(10).random_point(np.random.default_rng(0))
    CoordinateDescent(40).run(problem_of(cost), start, random_state=0, recorder=recorder)
    costs = np.array([row["cost"] for row in recorder.rows])
    assert (np.diff(costs) <= 1e-12 * abs(least)).all()
    gaps = costs - least
    clear = gaps > 1e-11 * abs(least)
    fit = np.polyfit(np.arange(len(costs))[clear], np.log(gaps[clear]), 1)
    assert clear.sum() > 10
    assert fit[0] < -0.1
    line = np.polyval(fit, np.arange(len(costs))[clear])
    assert np.corrcoef(line, np.log(gaps[clear]))[0, 1] > 0.98


@pytest.mark.parametrize(
    ("engine", "weights"),
    [("compiled", {"kappa": 0.5, "beta": 1.0}), ("reference", {"alpha": 0.0, "beta": 1.0})],
)
def test_blocks_that_stall_at_the_boundary_are_told_and_whole_gradients_go_on(
    engine: str, weights: dict[str, float]
) -> None:
    """The theorem leaves the cone out: without a barrier there, rows and columns may stop at its boundary."""
    cost = triplet_cost(loss=logistic, **weights)
    start, least = cost.best_multiple_of_identity(), least_value(cost)
    solver = CoordinateDescent(400 if engine == "compiled" else 20, order="shuffled", engine=engine)
    with pytest.warns(RuntimeWarning, match="boundary.*kappa = 0.*PSDFactors") as told:
        found = solver.run(problem_of(cost), start, random_state=0).point
    assert len(told) == 1
    assert told[0].filename == __file__
    assert cost.value(found) > 1.01 * least
    factors = Problem(PSDFactors(10, 10), OnFactors(cost))
    end = LBFGS().run(factors, np.eye(10), random_state=0)
    assert end.converged
    assert cost.value(end.point @ end.point.T) < least + 1e-9 * abs(least)
    assert all(check_cost(factors))


@pytest.mark.parametrize("name", POSITIVE_DEFINITE_RETRACTIONS)
def test_retractions_swap_and_the_path_changes(name: str) -> None:
    cost = triplet_cost(d=4, loss=logistic, count=40)
    retraction = POSITIVE_DEFINITE_RETRACTIONS[name]
    solver = CoordinateDescent(20, retraction=retraction)
    found = solver.run(problem_of(cost), random_state=0)
    straight = CoordinateDescent(20).run(problem_of(cost), random_state=0)
    assert cost.value(found.point) == pytest.approx(cost.value(straight.point), rel=1e-3)
    few = [
        CoordinateDescent(max_iter=3, retraction=one).run(problem_of(cost), random_state=0).point
        for one in (retraction, Additive())
    ]
    assert (name == "additive") == np.array_equal(*few)
    compiled = isinstance(solver.engine(problem_of(cost)), LogDetEngine)
    assert compiled == (retraction.kernel is not None)


def test_compiled_steps_follow_the_reference_for_100_steps() -> None:
    for retraction in (Additive(), SchurExponential()):
        cost = triplet_cost(d=7, loss=logistic, count=60, alpha=3.0, beta=1.0)
        manifold, start = PositiveDefinite(7), np.eye(7)
        schedule, etas = np.random.default_rng(0).integers(7, size=(100, 1)), np.full(100, 0.99)
        reference = CoordinateReference(manifold, cost, retraction, EXACT)
        compiled = LogDetEngine(manifold, cost, retraction, EXACT)
        followed = reference.advance(reference.load(start), schedule, etas)
        state = compiled.advance(compiled.load(start), schedule, etas)
        expected, found = followed.point, compiled.dump(state)
        assert np.abs(found - expected).max() < 1e-10 * np.abs(expected).max()
        # What the relative residual is made of; and the inverse was carried along, not made anew.
        np.testing.assert_allclose(compiled.gradients_of(state), reference.gradients_of(followed), atol=1e-8)
        assert state.renewals == 0


@pytest.mark.parametrize(
    "weights", [{"alpha": 0.01, "beta": 0.01}, {"alpha": 1.0, "beta": 0.1, "kappa": 0.1}]
)
@pytest.mark.parametrize("steps", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_inverse_survives_100000_steps_at_the_boundary(weights: dict[str, float], steps: int) -> None:
    cost = triplet_cost(d=15, loss=hinge, count=200, **weights)
    engine = LogDetEngine(PositiveDefinite(15), cost, Additive(), FRACTION)
    schedule = np.random.default_rng(0).integers(15, size=(steps, 1))
    state, off = engine.load(np.eye(15)), []
    for leg in np.array_split(schedule, 9):
        state = engine.advance(state, leg, np.full(len(leg), 0.99))
        W, cone = engine.dump(state), state.metric.cone
        vectors, shares = (part[: cone.waiting[0]] for part in (cone.vectors, cone.weights))
        # Of the base, steps read the half below the diagonal.
        V = np.tril(cone.base) + np.tril(cone.base, -1).T + (vectors.T * shares) @ vectors
        # What a probe allows a row; where a leg ends, and so the condition, depends on the machine: 25 to 5e6.
        allowed = max(log_det.DRIFT, log_det.ROUNDINGS * np.linalg.cond(W))
        off.append(np.abs(V @ W - np.eye(15)).sum(axis=1).max() / allowed)
    # One leg in twenty ends beyond 15, as a row may be off that no step has looked at since.
    assert np.median(off) < 10
    assert np.allclose(state.metric.scores, cost.scores(W), atol=1e-9)
    assert state.renewals > 0


def test_a_run_that_is_interrupted_ends_with_the_same_bits(tmp_path: Path) -> None:
    cost = triplet_cost(loss=hinge, kappa=0.1)
    problem, start = problem_of(cost), cost.best_multiple_of_identity()

    class InterruptionError(Exception):
        pass

    def stop(point: np.ndarray) -> float:
        stop.calls += 1  # type: ignore[attr-defined]
        if stop.calls == 2:  # type: ignore[attr-defined]
            raise InterruptionError
        return 0.0

    for engine in ("compiled", "reference"):
        solver = CoordinateDescent(6, engine=engine)
        whole = solver.run(problem, start, random_state=0)
        stop.calls = 0  # type: ignore[attr-defined]
        checkpoint = Checkpoint(tmp_path / f"{engine}.npz", every_seconds=0.0)
        with pytest.raises(InterruptionError):
            solver.run(
                problem, start, random_state=0, checkpoint=checkpoint, recorder=Recorder({"x": stop}, at=[37])
            )
        resumed = solver.run(problem, start, random_state=0, checkpoint=checkpoint)
        assert np.array_equal(whole.point, resumed.point)
        assert whole.updates == resumed.updates


def test_a_fraction_of_the_bound_is_that_fraction() -> None:
    cost = triplet_cost(loss=hinge)
    manifold, start = PositiveDefinite(10), np.eye(10)
    gradient = cost.block_gradient(start, 0)
    bound = manifold.safe_step(start, -gradient)
    found = CoordinateDescent(max_iter=1, order="cyclic", step_size=FractionOfBound(0.25)).run(
        problem_of(cost), start
    )
    assert np.allclose(found.point, start - 0.25 * bound * gradient.toarray(), rtol=1e-12)
    fixed = CoordinateDescent(max_iter=1, order="cyclic", step_size=1e-3).run(problem_of(cost), start)
    assert np.allclose(fixed.point, start - 1e-3 * gradient.toarray(), rtol=1e-12)
    clipped = CoordinateDescent(max_iter=1, order="cyclic", step_size=1e9).run(problem_of(cost), start)
    assert np.allclose(clipped.point, start - 0.99 * bound * gradient.toarray(), rtol=1e-12)


def test_sparsity_unties_features() -> None:
    ties = []
    for sparsity in (0.0, 0.3, 3.0, 10.0):
        cost = triplet_cost(loss=logistic, sparsity=sparsity)
        W = CoordinateDescent(40, order="shuffled").run(problem_of(cost), random_state=0).point
        ties.append(np.abs(W - np.diag(np.diag(W))).max())
        assert PositiveDefinite(10).check_point(W) is None
    assert ties == sorted(ties, reverse=True)
    assert ties[0] > 2 * ties[2] > 0.0
    assert ties[3] == 0.0


def test_sums_and_multiples_take_the_proximal_steps_of_their_parts() -> None:
    parts = [triplet_cost(loss=logistic, sparsity=sparsity) for sparsity in (1.0, 2.0)]
    mean = 0.5 * parts[0] + 0.5 * parts[1]
    assert all(check_cost(problem_of(mean)))
    found, expected = (
        CoordinateDescent(10, step_size=1e-4).run(problem_of(cost), np.eye(10), random_state=0).point
        for cost in (mean, triplet_cost(loss=logistic, sparsity=1.5))
    )
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_any_cost_runs_on_blocks() -> None:
    from rmopt.core import Cost

    class ToIdentity(Cost):
        def value(self, point: np.ndarray) -> float:
            return float(np.trace(point) - np.linalg.slogdet(point)[1])

        def gradient(self, point: np.ndarray) -> np.ndarray:
            return np.eye(len(point)) - np.linalg.inv(point)

    for retraction in (Additive(), AffineExponential()):
        solver = CoordinateDescent(100, tol=1e-7, retraction=retraction)
        found = solver.run(Problem(PositiveDefinite(4), ToIdentity()), random_state=0)
        assert np.allclose(found.point, np.eye(4), atol=1e-5)


def test_the_printed_signs_are_wrong() -> None:
    """The draft prints +α log det W and p⁻ − p⁺: finite differences decide."""
    cost = triplet_cost(loss=logistic)
    W, k = 0.03 * PositiveDefinite(10).random_point(np.random.default_rng(0)), 2
    direction = cost.block_gradient(W, k)
    H, t = direction.toarray(), 1e-8
    slope = (cost.value(W + t * H) - cost.value(W - t * H)) / (2 * t)
    assert slope == pytest.approx(np.vdot(cost.gradient(W), H), rel=1e-5)
    assert slope > 0
    printed = cost.gradient(W) + 2.0 * cost.alpha * np.linalg.inv(W)
    assert abs(np.vdot(printed, H) - slope) > 0.1 * abs(slope)


def test_refusals_name_cause_and_cure() -> None:
    X, triplets = np.eye(4), np.array([[0, 1, 2]])
    with pytest.raises(InvalidInputError, match="beta"):
        LogDetTriplet(X, triplets, beta=0.0)
    with pytest.raises(InvalidInputError, match="numbers from 0 to 9"):
        LogDetTriplet(X, [[0, 1, 9]])
    with pytest.raises(InvalidInputError, match="triplets are empty"):
        LogDetTriplet(X, np.empty((0, 3), dtype=int))
    cost = LogDetTriplet(X, triplets)
    with pytest.raises(MissingCapabilityError, match="needs blocks"):
        CoordinateDescent().run(Problem(Euclidean(4, 4), cost))
    with pytest.raises(MissingCapabilityError, match="no compiled version"):
        choose_coordinate_engine(problem_of(cost), AffineExponential(), "compiled")
    mine = Loss("mine", value=lambda z, y: 0.5 * (z - y) ** 2, slope=lambda z, y: z - y)
    with pytest.raises(MissingCapabilityError, match="not one of the built-in"):
        choose_coordinate_engine(problem_of(LogDetTriplet(X, triplets, mine)), Additive(), "compiled")
    CoordinateDescent(1).run(problem_of(LogDetTriplet(X, triplets, mine)))
    for engine in ("compiled", "reference"):
        with pytest.raises(InvalidInputError, match="there are 4; they count from 0"):
            CoordinateDescent(order=Uniform(9), engine=engine).run(problem_of(cost), random_state=0)
    with pytest.raises(InvalidInputError, match="for CoordinateDescent"):
        SGD(ExactLineSearch())
    with pytest.raises(InvalidInputError, match="not positive definite"):
        CoordinateDescent().run(problem_of(cost), -np.eye(4))


def test_a_matrix_that_became_singular_ends_the_run_with_a_sentence() -> None:
    cost = triplet_cost(loss=hinge)
    engine = LogDetEngine(PositiveDefinite(10), cost, Additive(), EXACT)
    state = engine.load(np.eye(10))
    state.metric.W[:] = 1.0
    with pytest.raises(DivergedError, match=r"singular to machine precision.*alpha = 0"):
        engine.advance(state, np.arange(10)[:, None].repeat(200, axis=0), np.full(2000, 0.99))


Array = np.ndarray


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
