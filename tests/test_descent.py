"""Solvers of whole gradients: every one on every manifold, cut off and resumed, counted, with strangers' parts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pymanopt
import pytest
import strangers
from tabled import each_row

from rmopt import InvalidInputError, Problem
from rmopt.checks import check_hessian
from rmopt.core import Cost, LowRankPoint, MissingCapabilityError, Parts, PSDPoint
from rmopt.core.ambient import dense
from rmopt.core.points import arrays_of
from rmopt.core.transport import TRANSPORTS, ByManifold, ByProjection, Isometric, OfRetraction
from rmopt.costs import OnFactors
from rmopt.interop import from_pymanopt
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    PolarPSD,
    PositiveDefinite,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
)
from rmopt.retractions import SecondOrder
from rmopt.solvers import (
    LBFGS,
    AdaptiveCubics,
    Backtracking,
    BarzilaiBorwein,
    Checkpoint,
    Conjugate,
    ConjugateGradient,
    Exact,
    GradientDescent,
    Hybrid,
    LineSearchSolver,
    QuasiNewton,
    SteepestDescent,
    StrongWolfe,
    TrustRegions,
)
from rmopt.solvers.directions import RULES

Array = np.ndarray
RNG = np.random.default_rng(0)


# Costs with a minimum in closed form


def whole(point: Any) -> Array:
    """Return a point as an array."""
    if isinstance(point, LowRankPoint):
        return point.U @ point.S @ point.V.T
    return point.Q @ point.S @ point.Q.T if isinstance(point, PSDPoint) else point


class Fit(Cost):
    """½ ‖√C ∘ (W − T)‖²."""

    def __init__(self, target: Array, weights: Any = 1.0) -> None:
        self.target, self.weights = target, weights

    def value(self, point: Any) -> float:
        return 0.5 * float(np.sum(self.weights * (whole(point) - self.target) ** 2))

    def gradient(self, point: Any) -> Array:
        return self.weights * (whole(point) - self.target)

    def hessian(self, point: Any, direction: Any) -> Any:
        return self.weights * dense(direction)

    def exact_step(self, manifold: Any, point: Array, tangent: Array) -> float:
        return -float(np.vdot(self.gradient(point), tangent) / np.vdot(tangent, self.weights * tangent))


class Rayleigh(Cost):
    """−½ tr UᵀAU."""

    def __init__(self, A: Array) -> None:
        self.A = A

    def value(self, point: Array) -> float:
        return -0.5 * float(np.vdot(point, self.A @ point))

    def gradient(self, point: Array) -> Array:
        return -self.A @ point

    def hessian(self, point: Array, direction: Any) -> Array:
        return -self.A @ dense(direction)


class LogDet(Cost):
    """tr CX − log det X, by one function for both."""

    def __init__(self, C: Array) -> None:
        self.C = C

    def value(self, point: Array) -> float:
        return self.value_and_gradient(point)[0]

    def gradient(self, point: Array) -> Array:
        return self.value_and_gradient(point)[1]

    def value_and_gradient(self, point: Array) -> tuple[float, Array]:
        return float(np.vdot(self.C, point) - np.linalg.slogdet(point)[1]), self.C - np.linalg.inv(point)

    def hessian(self, point: Array, direction: Any) -> Array:
        inverse = np.linalg.inv(point)
        return inverse @ dense(direction) @ inverse


class PartByPart(Cost):
    """A sum over the parts of a point, with gradients as a list."""

    def __init__(self, *costs: Cost) -> None:
        self.costs = costs

    def value(self, point: Parts) -> float:
        return sum(cost.value(part) for cost, part in zip(self.costs, point, strict=True))

    def gradient(self, point: Parts) -> list[Any]:
        return [cost.gradient(part) for cost, part in zip(self.costs, point, strict=True)]


class Conditioned(Fit):
    """One with a preconditioner, exact but for a factor."""

    def precondition(self, point: Array, tangent: Array) -> Array:
        return 0.5 * tangent / self.weights


class Counted(Cost):
    """Another cost, whose calls are counted; without second derivatives."""

    def __init__(self, cost: Any) -> None:
        self.cost, self.calls = cost, {"costs": 0, "gradients": 0, "hessians": 0}

    def value(self, point: Any) -> float:
        self.calls["costs"] += 1
        return self.cost.value(point)

    def gradient(self, point: Any) -> Any:
        self.calls["gradients"] += 1
        return self.cost.gradient(point)


class CountedTwice(Counted):
    """One with second derivatives too."""

    def hessian(self, point: Any, direction: Any) -> Any:
        self.calls["hessians"] += 1
        return self.cost.hessian(point, direction)


def with_spectrum(n: int) -> Array:
    Q = np.linalg.qr(RNG.standard_normal((n, n)))[0]
    return (Q * np.linspace(1.0, 3.0, n) ** 1.5) @ Q.T


A, S, C = with_spectrum(7), with_spectrum(6), with_spectrum(4)
T, B, Q3 = (RNG.standard_normal(shape) for shape in ((6, 5), (5, 3), (3, 3)))
WEIGHTS = np.array([1.0, 3.0, 10.0])


def top(count: int) -> float:
    """Return the minimum of `Rayleigh(A)`."""
    return -0.5 * float(np.linalg.eigvalsh(A)[-count:].sum())


def tail(matrix: Array) -> float:
    """Return the least distance to matrices of rank 2, squared and halved."""
    return 0.5 * float(np.sum(np.linalg.svd(matrix, compute_uv=False)[2:] ** 2))


def nearest_orthonormal(matrix: Array, det: bool) -> float:
    """Return the same for matrices with orthonormal columns; with `det`, of determinant 1."""
    U, _, Vt = np.linalg.svd(matrix, full_matrices=False)
    U[:, -1] *= np.sign(np.linalg.det(U @ Vt)) if det else 1.0
    return 0.5 * float(np.sum((U @ Vt - matrix) ** 2))


LOG_DET = 4.0 + float(np.linalg.slogdet(C)[1])
foreign = pymanopt.manifolds

# Problems, and their least costs.
PLACES: dict[str, tuple[Problem, float]] = {
    "euclidean": (Problem(Euclidean(5, 3), Fit(B, WEIGHTS)), 0.0),
    **{
        f"grassmann {name}": (Problem(Grassmann(7, 2, name), Rayleigh(A)), top(2))
        for name in ("exponential", "qr", "polar")
    },
    **{
        f"fixed rank {name}": (Problem(FixedRankEmbedded(6, 5, 2, name), Fit(T)), tail(T))
        for name in ("second-order", "metric-projection", "orthographic")
    },
    "psd": (Problem(PSDFixedRank(6, 2), Fit(S)), tail(S)),
    "polar": (Problem(PolarPSD(6, 2), Fit(S)), tail(S)),
    "positive definite": (Problem(PositiveDefinite(4), LogDet(C)), LOG_DET),
    "product": (
        Problem(Product([Grassmann(7, 2), Euclidean(5, 3)]), PartByPart(Rayleigh(A), Fit(B, WEIGHTS))),
        top(2),
    ),
    "power": (Problem(Power(Grassmann(7, 2), 2), PartByPart(Rayleigh(A), Rayleigh(A))), 2.0 * top(2)),
    "psd factors": (Problem(PSDFactors(6, 2), OnFactors(Fit(S))), tail(S)),
    "fixed-rank factors": (Problem(FixedRankFactors(6, 5, 2), OnFactors(Fit(T))), tail(T)),
    "sphere": (Problem(from_pymanopt(foreign.Sphere(7)), Rayleigh(A)), top(1)),
    "stiefel": (Problem(from_pymanopt(foreign.Stiefel(5, 3)), Fit(B)), nearest_orthonormal(B, det=False)),
    "rotations": (
        Problem(from_pymanopt(foreign.SpecialOrthogonalGroup(3)), Fit(Q3)),
        nearest_orthonormal(Q3, det=True),
    ),
    "a stranger's": (Problem(strangers.Spheres(4, 3), Fit(B[:4])), 0.0),
}  # fmt: skip
PLACES["a stranger's"] = (
    PLACES["a stranger's"][0],
    0.5 * float(np.sum((np.linalg.norm(B[:4], axis=1) - 1.0) ** 2)),
)

DIRECTIONS = {"steepest": SteepestDescent, "quasi-newton": QuasiNewton} | {
    rule: lambda rule=rule: Conjugate(rule) for rule in RULES
}
LENGTHS = {"backtracking": Backtracking, "wolfe": lambda: StrongWolfe(flatness=0.1), "bb": BarzilaiBorwein}
# Conjugate directions want searches: with step lengths of Barzilai and Borwein they wander.
LINE_SEARCHES = {
    f"{direction}, {length}": lambda direction=direction, length=length, **options: LineSearchSolver(
        DIRECTIONS[direction](), LENGTHS[length](), **options
    )
    for direction, length in itertools.product(DIRECTIONS, LENGTHS)
    if length != "bb" or direction not in RULES
}
SOLVERS: dict[str, Any] = LINE_SEARCHES | {
    "trust regions": TrustRegions, "cubics": AdaptiveCubics, "hybrid": Hybrid, "lbfgs": LBFGS,
}  # fmt: skip
# One of each kind, for laws that do not depend on the rule.
KINDS = {
    "gd": GradientDescent, "cg": ConjugateGradient, "lbfgs": LBFGS, "wolfe": SOLVERS["quasi-newton, wolfe"],
    "trust regions": TrustRegions, "cubics": AdaptiveCubics, "hybrid": Hybrid,
}  # fmt: skip


def gap(result: Any, name: str) -> float:
    """Return how far above the least cost a run ended, relative to it."""
    problem, least = PLACES[name]
    return (problem.cost.value(result.point) - least) / max(1.0, abs(least))


def same_bits(one: Any, other: Any) -> None:
    """Hold two results to each other: points, rows but the seconds, counts."""
    for left, right in zip(arrays_of(one.point), arrays_of(other.point), strict=True):
        np.testing.assert_array_equal(left, right)
    assert [row | {"seconds": 0} for row in one.history] == [row | {"seconds": 0} for row in other.history]
    assert (one.counts, one.stopped_by, one.updates) == (other.counts, other.stopped_by, other.updates)


# Every solver on every manifold


@each_row("solver, place", itertools.product(SOLVERS, PLACES))
def test_the_optimum_is_reached(solver: str, place: str) -> None:
    result = SOLVERS[solver](tol=1e-6, max_iterations=3000).run(PLACES[place][0], random_state=0)
    assert result.converged, result.stopped_by
    assert abs(gap(result, place)) < 1e-9
    assert result.history[-1]["gradient_norm"] <= 1e-6 * result.history[0]["gradient_norm"]
    assert PLACES[place][0].manifold.check_point(result.point) is None


@each_row("solver, place", itertools.product(KINDS, PLACES))
def test_runs_are_cut_off_and_go_on_to_the_same_bits(solver: str, place: str, tmp_path: Path) -> None:
    problem, path = PLACES[place][0], tmp_path / f"{solver} {place}.npz"
    unbroken = KINDS[solver](max_iterations=9, tol=1e-9).run(problem, random_state=1)
    for budget in (2, 5, 9):
        parted = KINDS[solver](max_iterations=budget, tol=1e-9).run(
            problem, random_state=1, checkpoint=Checkpoint(path, every_seconds=0)
        )
    same_bits(unbroken, parted)
    other = KINDS[solver](max_iterations=9, tol=1e-9).run(problem, random_state=2)
    assert other.history[0]["cost"] != unbroken.history[0]["cost"]


def test_a_hybrid_run_is_cut_off_in_both_halves(tmp_path: Path) -> None:
    problem = PLACES["grassmann qr"][0]
    unbroken = Hybrid(tol=1e-12).run(problem, random_state=1)
    for budget in range(1, unbroken.steps + 1):
        path = tmp_path / f"{budget}.npz"
        for most in (budget, 1000):
            solver = Hybrid(tol=1e-12, max_iterations=most)
            parted = solver.run(problem, random_state=1, checkpoint=Checkpoint(path, every_seconds=0))
        same_bits(unbroken, parted)


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
        assert result.history[-1]["evaluations"] == result.counts["costs"]


@each_row(
    "transport, solver", itertools.product((*TRANSPORTS, Isometric(ByManifold())), ("cg", "lbfgs", "cubics"))
)
def test_every_transport(transport: Any, solver: str) -> None:
    for place in ("euclidean", "grassmann exponential", "positive definite"):
        problem = PLACES[place][0]
        chosen = TRANSPORTS[transport] if isinstance(transport, str) else transport
        by_solver = KINDS[solver](transport=chosen).run(problem, random_state=0)
        there = Problem(problem.manifold.using(transport=transport), problem.cost)
        assert by_solver.converged
        assert abs(gap(by_solver, place)) < 1e-9
        same_bits(by_solver, KINDS[solver]().run(there, random_state=0))


def test_transports_are_values() -> None:
    assert Isometric() == Isometric(ByProjection()) != Isometric(ByManifold())
    assert len({ByManifold(), ByManifold(), OfRetraction(), OfRetraction(1e-4)}) == 3
    with pytest.raises(InvalidInputError, match="transport = 'paralel' is unknown"):
        Grassmann(5, 2).using(transport="paralel")
    with pytest.raises(InvalidInputError, match="must be a Transport"):
        LBFGS(transport="projection")  # type: ignore[arg-type]
    manifold = Grassmann(6, 2)
    x, y = manifold.random_point(np.random.default_rng(0)), manifold.random_point(np.random.default_rng(1))
    v = manifold.random_tangent_vector(x, np.random.default_rng(2)) * 3.0
    for name, transport in TRANSPORTS.items():
        moved = transport(manifold, x, y, v)
        np.testing.assert_allclose(y.T @ moved, 0.0, atol=1e-9)
        if name in ("manifold", "isometric"):
            assert manifold.norm(y, moved) == pytest.approx(3.0)


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


@each_row("solver", KINDS.keys() - {"cubics"})
def test_preconditioners_are_used(solver: str) -> None:
    weights = np.logspace(0.0, 5.0, 15).reshape(5, 3)
    plain, helped = (
        KINDS[solver](tol=1e-10, max_iterations=9000).run(Problem(Euclidean(5, 3), cost), random_state=0)
        for cost in (Fit(B, weights), Conditioned(B, weights))
    )
    assert helped.converged
    assert helped.counts["gradients"] + helped.counts["hessians"] < 40
    assert 3 * helped.counts["costs"] < plain.counts["costs"] + plain.counts["hessians"]


def test_exact_steps() -> None:
    problem = PLACES["euclidean"][0]
    result = ConjugateGradient(step_length=Exact(), tol=1e-10).run(problem, random_state=0)
    # Three distinct curvatures: three steps, each of one evaluation.
    assert result.converged
    assert (result.steps, result.counts["costs"]) == (3, 4)
    with pytest.raises(MissingCapabilityError, match=r"Rayleigh has no `exact_step"):
        GradientDescent(Exact()).run(PLACES["sphere"][0])


# Geometries of factors


def test_the_geometry_of_two_factors() -> None:
    manifold, (problem, _) = FixedRankFactors(6, 5, 2), PLACES["fixed-rank factors"]
    for seed in range(3):
        checks = check_hessian(problem, seed)
        assert all(checks), "\n".join(map(str, checks))
    point = manifold.random_point(np.random.default_rng(0))
    (L, R), residual = point, whole(manifold.point_of(point)) - T
    gradient = problem.riemannian_gradient(point)
    # Scaled gradient descent (Tong, Ma and Chi 2021), equation 3.
    np.testing.assert_allclose(gradient[0], residual @ R @ np.linalg.inv(R.T @ R), atol=1e-10)
    np.testing.assert_allclose(gradient[1], residual.T @ L @ np.linalg.inv(L.T @ L), atol=1e-10)
    # No change of scale between the factors alters the step.
    M = np.array([[2.0, 1.0], [0.0, 0.3]])
    twin = Parts([L @ M, R @ np.linalg.inv(M).T])
    ends = [manifold.retraction(one, problem.riemannian_gradient(one) * -0.1) for one in (point, twin)]
    np.testing.assert_allclose(*(end[0] @ end[1].T for end in ends), atol=1e-10)


def test_loreta_steps_along_the_same_direction_to_first_order() -> None:
    factors, embedded = FixedRankFactors(6, 5, 2), FixedRankEmbedded(6, 5, 2)
    point = factors.random_point(np.random.default_rng(0))
    place, pair = factors.point_of(point), Problem(factors, OnFactors(Fit(T)))
    step = pair.riemannian_gradient(point)
    # Both lower W along G P_R + P_L G, LORETA without what the two projections have in common twice.
    W, G = whole(place), whole(place) - T
    velocity = step[0] @ point[1].T + point[0] @ step[1].T
    common = place.U @ place.U.T @ G @ place.V @ place.V.T
    tangent = embedded.projection(place, velocity - common)
    np.testing.assert_allclose(whole_tangent(embedded, place, tangent), velocity - common, atol=1e-10)
    np.testing.assert_allclose(
        velocity - common, whole_tangent(embedded, place, embedded.projection(place, G)), atol=1e-10
    )
    halved = Parts([0.5 * (np.eye(6) + (np.eye(6) - place.U @ place.U.T)) @ step[0], step[1]])
    gaps = []
    for eta in (1e-2, 1e-3):
        shalit = whole(SecondOrder()(embedded, place, embedded.projection(place, G), -eta))
        # The part in common is halved between the factors.
        a, b = halved[0], 0.5 * (np.eye(5) + (np.eye(5) - place.V @ place.V.T)) @ step[1]
        moved = (point[0] - eta * a) @ (point[1] - eta * b).T
        gaps.append(np.linalg.norm(shalit - moved))
        assert np.linalg.norm(shalit - W) > 0.1 * eta
    assert gaps[0] / gaps[1] == pytest.approx(100.0, rel=0.2)


def whole_tangent(manifold: Any, point: Any, tangent: Any) -> Array:
    return dense(manifold.embedding(point, tangent))


def test_horizontal_vectors_of_factors() -> None:
    manifold, rng = PSDFactors(6, 3), np.random.default_rng(0)
    Y, vector = manifold.random_point(rng), rng.standard_normal((6, 3))
    flat = manifold.horizontal(Y, vector)
    np.testing.assert_allclose(Y.T @ flat, flat.T @ Y, atol=1e-12)
    np.testing.assert_allclose(Y @ flat.T + flat @ Y.T, Y @ vector.T + vector @ Y.T, atol=1e-12)
    np.testing.assert_allclose(manifold.horizontal(Y, flat), flat, atol=1e-12)
    gradient = Problem(manifold, OnFactors(Fit(S))).riemannian_gradient(Y)
    np.testing.assert_allclose(manifold.horizontal(Y, gradient), gradient, atol=1e-12)
    # Where a column is zero, what turns it leaves YYᵀ as it is.
    Y[:, 2] = 0.0
    flat = manifold.horizontal(Y, vector)
    np.testing.assert_allclose(Y.T @ flat, flat.T @ Y, atol=1e-12)
    assert manifold.point_of(Y).rank == 3
