"""Solvers of whole gradients: every one on every manifold, cut off and resumed, counted, with strangers' parts."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymanopt
import pytest
import strangers
from tabled import each_row

from rmopt import DivergedError, InvalidInputError, Problem, autograd_cost
from rmopt.checks import check_hessian
from rmopt.core import Cost, LowRankPoint, MissingCapabilityError, Parts, PSDPoint
from rmopt.core.ambient import dense
from rmopt.core.points import arrays_of
from rmopt.core.transport import TRANSPORTS, ByManifold, ByProjection, Isometric, OfRetraction
from rmopt.costs import OnFactors
from rmopt.interop import from_pymanopt
from rmopt.manifolds import (
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    Hyperbolic,
    Oblique,
    PolarPSD,
    PositiveDefinite,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
    Simplex,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
)
from rmopt.retractions import SecondOrder
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaptiveCubics,
    Backtracking,
    BarzilaiBorwein,
    Below,
    Checkpoint,
    Conjugate,
    ConjugateGradient,
    Direction,
    Exact,
    GradientDescent,
    GradientNorm,
    Hybrid,
    LineSearchSolver,
    MaxEvaluations,
    MaxSeconds,
    MaxSteps,
    NotFinite,
    QuasiNewton,
    Recorder,
    SmallChange,
    SmallStep,
    Solver,
    Stagnation,
    SteepestDescent,
    StepLength,
    StrongWolfe,
    TrustRegions,
)
from rmopt.solvers.descent import is_extrinsic
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


def unit_lengths(matrix: Array, axis: int) -> float:
    """Return the same for matrices whose columns (0) or rows (1) have length 1."""
    return 0.5 * float(np.sum((np.linalg.norm(matrix, axis=axis) - 1.0) ** 2))


LOG_DET = 4.0 + float(np.linalg.slogdet(C)[1])

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
    "sphere": (Problem(Sphere(7), Rayleigh(A)), top(1)),
    "oblique": (Problem(Oblique(5, 3), Fit(B)), unit_lengths(B, 0)),
    "stiefel": (Problem(Stiefel(5, 3), Fit(B)), nearest_orthonormal(B, det=False)),
    "rotations": (Problem(SpecialOrthogonal(3), Fit(Q3)), nearest_orthonormal(Q3, det=True)),
    "pymanopt's stiefel": (
        Problem(from_pymanopt(pymanopt.manifolds.Stiefel(5, 3)), Fit(B)), nearest_orthonormal(B, det=False)
    ),
    "a stranger's": (Problem(strangers.Spheres(4, 3), Fit(B[:4])), unit_lengths(B[:4], 1)),
}  # fmt: skip

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
    for budget in (4, 9):
        parted = KINDS[solver](max_iter=budget, tol=1e-9).run(
            problem, random_state=1, checkpoint=Checkpoint(path, every_seconds=0)
        )
    same_bits(unbroken, parted)
    other = KINDS[solver](max_iter=9, tol=1e-9).run(problem, random_state=2)
    assert other.history[0]["cost"] != unbroken.history[0]["cost"]


def test_a_hybrid_run_is_cut_off_in_both_halves(tmp_path: Path) -> None:
    problem = PLACES["grassmann qr"][0]
    unbroken = Hybrid(tol=1e-12).run(problem, random_state=1)
    for budget in range(1, unbroken.steps + 1):
        path = tmp_path / f"{budget}.npz"
        for most in (budget, 1000):
            solver = Hybrid(tol=1e-12, max_iter=most)
            parted = solver.run(problem, random_state=1, checkpoint=Checkpoint(path, every_seconds=0))
        same_bits(unbroken, parted)


def test_a_refused_step_is_tried_again_without_new_products(tmp_path: Path) -> None:
    problem = PLACES["grassmann qr"][0]
    cost = CountedTwice(problem.cost)
    near, far = (TrustRegions(first_radius=radius, tol=1e-9) for radius in (0.3, 1e3))
    states = list(far.iterate(Problem(problem.manifold, cost), random_state=1))
    refused = [place for place, state in enumerate(states) if state.memory[1]]
    assert refused
    for place in refused:
        assert states[place + 1].counts[2] == states[place].counts[2]
    assert cost.calls["hessians"] == states[-1].counts[2]
    assert near.run(problem, random_state=1).history[1]["step_length"] == pytest.approx(0.3)

    class Wide(Hybrid):
        near = far

    for make in (partial(TrustRegions, first_radius=1e3, tol=1e-9), partial(Wide, switch=10.0, tol=1e-9)):
        unbroken = make(max_iter=200).run(problem, random_state=1)
        for budget in range(1, unbroken.steps):
            kept = Checkpoint(tmp_path / f"{make.func.__name__} {budget}.npz", every_seconds=0)
            for most in (budget, 200):
                parted = make(max_iter=most).run(problem, random_state=1, checkpoint=kept)
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
        assert result.counts.items() <= result.history[-1].items()
        for name in result.counts:
            counts = [row[name] for row in result.history]
            assert counts == sorted(counts)


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


class Projecting(ByProjection):
    """A projection of one's own, of which the library knows nothing."""


class Watched(Backtracking):
    """Armijo's rule, which notes how far directions lie outside of the tangent space."""

    def __call__(self, curve: Any, guess: float, memory: Any) -> Any:
        manifold, point, direction = curve.work.manifold, curve.start.point, curve.direction
        inside = manifold.to_tangent_space(point, direction)
        outside = manifold.norm(point, inside - direction) / manifold.norm(point, direction)
        # Gradients become a millionth as long as they were, and keep their rounding errors.
        assert outside < 1e-7
        return super().__call__(curve, guess, memory)


FLAT = (
    Sphere(6),
    Oblique(4, 5),
    Stiefel(6, 2),
    SpecialOrthogonal(3, 4),
    Grassmann(6, 2),
    Elliptope(5, 2),
    Product([Sphere(4), Stiefel(5, 2)]),
)


@each_row("manifold", FLAT)
def test_vectors_may_stay_in_a_space_of_arrays(manifold: Any) -> None:
    rng = np.random.default_rng(1)
    start, end = manifold.random_point(rng), manifold.random_point(rng)
    moved, beside = manifold.random_tangent_vector(start, rng), manifold.random_tangent_vector(end, rng)
    carry = manifold.default_transport.on(manifold)
    assert is_extrinsic(manifold, manifold.default_transport)
    carried = carry(start, end, moved)
    assert manifold.inner_product(end, moved, beside) == pytest.approx(
        manifold.inner_product(end, carried, beside), abs=1e-14
    )
    assert not is_extrinsic(manifold, Projecting())
    assert not is_extrinsic(manifold, Isometric())


@each_row(
    "manifold",
    (
        Hyperbolic(4),
        Simplex(4),
        Stiefel(4, 2, metric="canonical"),
        PositiveDefinite(3),
        FixedRankEmbedded(5, 4, 2),
        FixedRankFactors(5, 4, 2),
    ),
)
def test_vectors_stay_nowhere_else(manifold: Any) -> None:
    assert not any(is_extrinsic(one, ByProjection()) for one in (manifold, Product([Sphere(3), manifold])))


@each_row(
    "place, direction",
    itertools.product(
        ("sphere", "stiefel", "grassmann qr", "oblique", "rotations"),
        (Conjugate(), QuasiNewton(), SteepestDescent()),
    ),
)
def test_vectors_that_stay_lead_as_far(place: str, direction: Any) -> None:
    problem = PLACES[place][0]
    stayed = LineSearchSolver(direction, Watched()).run(problem, random_state=0)
    moved = LineSearchSolver(direction, Watched(), transport=Projecting()).run(problem, random_state=0)
    assert stayed.converged
    assert abs(gap(stayed, place)) < 1e-9
    assert stayed.steps <= 1.3 * moved.steps + 5


@each_row(
    "value",
    [
        *(ByManifold(), ByProjection(), OfRetraction(1e-4), Isometric(ByManifold()), SecondOrder()),
        *(SteepestDescent(), Conjugate("dai-yuan"), QuasiNewton(3)),
        *(Backtracking(), BarzilaiBorwein(0.5), StrongWolfe(flatness=0.1), Exact()),
    ],
)
def test_values_show_how_they_are_made(value: Any) -> None:
    again = eval(repr(value), globals())
    assert again == value
    assert hash(again) == hash(value)


def test_transports_are_values() -> None:
    assert Isometric() == Isometric(ByProjection()) != Isometric(ByManifold())
    assert len({ByManifold(), ByManifold(), OfRetraction(), OfRetraction(1e-4)}) == 3
    with pytest.raises(InvalidInputError, match="transport = 'paralel' is unknown"):
        Grassmann(5, 2).using(transport="paralel")
    assert LBFGS(transport="projection").transport == ByProjection()
    with pytest.raises(InvalidInputError, match="must be a Transport, or one of 'manifold'"):
        LBFGS(transport=3)  # type: ignore[arg-type]
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


# When runs end

QUADRATIC = PLACES["euclidean"][0]


def stopped(criterion: Any, solver: Any = None, recorder: Recorder | None = None) -> Any:
    chosen = GradientDescent(Backtracking(), tol=1e-9) if solver is None else solver
    return chosen.run(QUADRATIC, random_state=0, stop=criterion, recorder=recorder)


@each_row(
    "criterion, says, converged",
    [
        (MaxSteps(3), "3 steps", False),
        (MaxSeconds(0.0), "0 seconds", False),
        (MaxEvaluations(7), "7 costs", False),
        (MaxEvaluations(4, "gradients"), "4 gradients", False),
        (GradientNorm(1e-2), "a gradient of length", True),
        (GradientNorm(1e-2, relative=True), "a gradient of length", True),
        (Below(1e-3), "a cost of", True),
        (Below(1.0, "gradient_norm"), "a gradient_norm of", True),
        (SmallChange(0.5), "a change of the cost by", False),
        (SmallStep(1e-2), "a step of length", False),
        (Stagnation(1, "step_size"), "no better step_size in 1 rows", False),
        (MaxSteps(2) | GradientNorm(1e-3), "2 steps", False),
        (GradientNorm(1e-2) | MaxSteps(900), "a gradient of length", True),
        (MaxSteps(2) & GradientNorm(1e-2), "steps and a gradient of length", False),
        (Below(1e-2) & GradientNorm(1e-1), "a cost of .* and a gradient of length", True),
        (MaxSteps(2) | (lambda rows: "mine"), "mine", False),
        ((MaxSteps(2) & (lambda rows: "mine")), "2 steps and mine", False),
        (lambda rows: "mine" if len(rows) == 4 else None, "mine", False),
    ],
)
def test_stop_criteria(criterion: Any, says: str, converged: bool) -> None:
    result = stopped(criterion)
    assert re.search(says, result.stopped_by), result.stopped_by
    assert result.converged is converged
    rows = result.history
    assert criterion(rows) is not None
    assert len(rows) == result.steps + 1
    # Not before it was time, and what it says lets the run be told from another end.
    assert result.steps == 0 or criterion(rows[:-1]) is None
    states = list(
        GradientDescent(Backtracking(), tol=1e-9).iterate(QUADRATIC, random_state=0, stop=criterion)
    )
    assert states[-1].steps == result.steps


@pytest.mark.parametrize(
    "solver", [GradientDescent(), LBFGS(), TrustRegions(), AdaptiveCubics(), Hybrid()], ids=str
)
def test_solvers_are_frozen(solver: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        solver.tol = 1e-3
    assert solver.with_gradient_norm(0.5).gradient_norm == 0.5
    assert solver.gradient_norm is None


def test_stop_criteria_look_at_metrics_and_are_values() -> None:
    distance = Recorder({"distance": lambda point: float(np.abs(point - B).max())}, first=1, ratio=1.1)
    assert stopped(Below(1e-2, "distance"), recorder=distance).converged
    assert MaxSteps(2) | Below(1.0) == MaxSteps(2) | Below(1.0) != MaxSteps(3) | Below(1.0)
    assert NotFinite()([{"cost": float("nan")}]) == "a cost of nan"
    assert NotFinite()([{"cost": 1.0}]) is None


@each_row(
    "make, says",
    [
        (
            lambda: stopped(Below(1.0, "distanc")),
            r"looks at 'distanc', and the rows of this run hold step, updates",
        ),
        (
            lambda: stopped(lambda rows: True),
            r"stop returned True; it must return a reason as a string, or None",
        ),
        (lambda: stopped(5), r"stop = 5 must be a function"),
        (lambda: MaxSteps(-1), r"steps = -1"),
        (lambda: MaxEvaluations(-1), r"evaluations = -1"),
        (
            lambda: stopped(MaxEvaluations(9, "prices")),
            r"looks at 'prices', and the rows of this run hold step",
        ),
        (lambda: MaxSeconds(float("nan")), r"seconds = nan"),
        (lambda: GradientNorm(-1.0), r"length = -1.0"),
        (lambda: Stagnation(0), r"rows = 0"),
        (lambda: GradientDescent(Backtracking), r"step_length = .* must be such as Backtracking\(\)"),
        (lambda: LineSearchSolver(QuasiNewton, Backtracking()), r"direction = .* must be such as"),
        (lambda: ConjugateGradient("polak"), r"rule = 'polak' is unknown; choose one of"),
        (lambda: LBFGS(0), r"memory = 0"),
        (lambda: StrongWolfe(0.3, 0.2), r"flatness = 0.2"),
        (lambda: TrustRegions(max_inner=0), r"max_inner = 0"),
        (lambda: TrustRegions(first_radius=0.0), r"first_radius = 0"),
    ],
)
def test_bad_input_is_named(make: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        make()


def test_an_error_in_a_criterion_is_the_users() -> None:
    def broken(rows: Any) -> str:
        raise KeyError("mine")

    for criterion in (broken, MaxSteps(100) | broken):
        with pytest.raises(KeyError, match="mine"):
            stopped(criterion)


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
            ("value", lambda f: float("-inf"), DivergedError, "not finite|infs or NaNs"),
            ("value", lambda f: np.array([f]), InvalidInputError, "not a real number; return a float"),
            ("value", lambda f: None, InvalidInputError, "not a real number; return a float"),
            ("value", lambda f: str(f), InvalidInputError, "not a real number; return a float"),
            ("value", lambda f: f + 0j, InvalidInputError, "not a real number; return a float"),
            ("gradient", lambda G: G * np.nan, DivergedError, "not finite|infs or NaNs"),
            ("gradient", lambda G: G * np.inf, DivergedError, "not finite|infs or NaNs"),
            ("gradient", lambda G: G[0], InvalidInputError, r"of shape \(3,\), and points of .* \(5, 3\)"),
            ("gradient", lambda G: G[:1, :1], InvalidInputError, r"of shape \(1, 1\), and points"),
            ("gradient", lambda G: G.tolist(), InvalidInputError, "no array or operator"),
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


@each_row("solver", KINDS)
def test_numbers_of_other_types_are_taken(solver: str) -> None:
    class Typed(Fit):
        kind: Any = np.float32

        def value(self, point: Any) -> Any:
            return self.kind(super().value(point))

    for kind in (np.float32, np.float64, np.array, lambda f: f):
        cost = Typed(B, WEIGHTS)
        cost.kind = kind
        assert KINDS[solver]().run(Problem(QUADRATIC.manifold, cost), random_state=0).converged


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


def test_steps_that_are_too_long_are_made_shorter() -> None:
    class Walled(LogDet):
        """Raises outside of its domain, as a factorisation does."""

        def value_and_gradient(self, point: Array) -> tuple[float, Array]:
            np.linalg.cholesky(point)
            return super().value_and_gradient(point)

    start = np.eye(4) * 1e-3
    for solver in KINDS.values():
        problem = Problem(PositiveDefinite(4, "additive"), Walled(C))
        result = solver(max_iter=2000).run(problem, start)
        assert result.converged
        np.testing.assert_allclose(result.point, np.linalg.inv(C), atol=1e-3)


# Parts of strangers


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


class Backward(Direction):
    """Uphill."""

    def __call__(self, work: Any, state: Any, downhill: Any) -> Any:
        return -downhill


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

    def prepare(self, problem: Problem, seed: int, first_step: int) -> Any:
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
        InvalidInputError, match=r"Forgetful.advance went from step 0 to 0, where it may do 1 to 1"
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
def test_threads_share_a_solver(solver: str) -> None:
    shared, found = KINDS[solver](tol=1e-7), {}
    problem = PLACES["grassmann qr"][0]

    def run(seed: int) -> None:
        found[seed] = shared.run(problem, random_state=seed)

    workers = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for seed in range(4):
        same_bits(found[seed], shared.run(problem, random_state=seed))


@each_row("solver", KINDS)
def test_recorders_see_each_step(solver: str, tmp_path: Path) -> None:
    problem = PLACES["grassmann qr"][0]
    recorder = Recorder({"trace": lambda point: float(np.vdot(point, A @ point))}, log=tmp_path / "log.jsonl")
    result = KINDS[solver]().run(problem, random_state=0, recorder=recorder)
    assert [row["step"] for row in result.history] == list(range(result.steps + 1))
    np.testing.assert_allclose(
        [-0.5 * row["trace"] for row in result.history], [row["cost"] for row in result.history]
    )
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == result.steps + 1
    same_bits(
        KINDS[solver]().run(problem, random_state=0),
        KINDS[solver]().run(problem, random_state=0, recorder=Recorder()),
    )


def test_solvers_of_equal_parameters_are_equal() -> None:
    makers: list[Callable[[], Any]] = [
        TrustRegions, AdaptiveCubics, LBFGS, GradientDescent, lambda: TrustRegions(tol=1e-3), lambda: LBFGS(3),
        lambda: LineSearchSolver(Conjugate("hybrid"), StrongWolfe(flatness=0.2)),
        lambda: LineSearchSolver(Conjugate("hybrid"), StrongWolfe()),
    ]  # fmt: skip
    made = [make() for make in makers]
    for i, make in enumerate(makers):
        assert [one == make() for one in made] == [i == j for j in range(len(made))]
        assert hash(made[i]) == hash(make())


@pytest.mark.parametrize(
    "solver", [TrustRegions(), LBFGS(), GradientDescent()], ids=lambda one: type(one).__name__
)
def test_gradients_that_vanish_when_squared_are_refused_and_not_taken_for_zero(solver: Any) -> None:
    manifold, rng = Sphere(5), np.random.default_rng(0)
    x = manifold.random_point(rng)
    u = manifold.random_tangent_vector(x, rng)
    assert manifold.norm(x, 1e-200 * u) == pytest.approx(1e-200, rel=1e-12, abs=0.0)
    assert manifold.norm(x, 0.0 * u) == 0.0
    problem = Problem(manifold, 1e-170 * autograd_cost(lambda x: (x * np.arange(5.0)).sum()))
    with pytest.raises(InvalidInputError, match=r"whose square is zero.*large constant"):
        solver.run(problem, x)


class Elsewhere:
    """An array of another library, which may refuse to become one of numpy."""

    def __init__(self, numbers: np.ndarray, reason: str | None = None) -> None:
        self.numbers, self.reason, self.shape = numbers, reason, numbers.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self.reason is not None:
            raise RuntimeError(self.reason)
        return self.numbers


@pytest.mark.parametrize(
    "solver", [TrustRegions(), LBFGS(), SGD(0.3, max_iter=200)], ids=lambda one: type(one).__name__
)
def test_gradients_of_another_library_are_read(solver: Any) -> None:
    target = np.arange(1.0, 5.0)

    class Alignment(Cost):
        reason: str | None = None

        def value(self, point: np.ndarray) -> float:
            return -float(target @ point)

        def gradient(self, point: np.ndarray) -> Any:
            return Elsewhere(-target, self.reason)

    found = solver.run(Problem(Sphere(4), Alignment()), random_state=0)
    np.testing.assert_allclose(found.point, target / np.linalg.norm(target), atol=1e-5)
    Alignment.reason = "call detach() first"
    with pytest.raises(InvalidInputError, match=r"is not an array of numbers: call detach"):
        solver.run(Problem(Sphere(4), Alignment()), random_state=0)


def test_a_criterion_of_the_gradient_takes_the_place_of_the_default_tolerance() -> None:
    A = np.diag(np.arange(1.0, 31.0))
    problem = Problem(Sphere(30), autograd_cost(lambda x: 0.5 * x @ A @ x))
    wanted = GradientNorm(1e-11) | MaxSeconds(60)
    for solver in (LBFGS(), ConjugateGradient(), TrustRegions()):
        alone, beside = (solver.run(problem, random_state=0, stop=stop) for stop in (MaxSeconds(60), wanted))
        assert alone.history[-1]["gradient_norm"] > 1e-11
        assert beside.converged
        assert beside.history[-1]["gradient_norm"] <= 1e-11
    # A tolerance that was given is meant.
    early = LBFGS(tol=1e-2).run(problem, random_state=0, stop=wanted)
    assert early.history[-1]["gradient_norm"] > 1e-8
