"""Simplices and swarms: closed forms, one call for many points, equal iterates of all libraries, honest ends."""

from typing import Any

import numpy as np
import pytest

from rmopt import DivergedError, InvalidInputError, MissingCapabilityError, Problem, autograd_cost
from rmopt import namespaces as ns
from rmopt.checks import check_solver
from rmopt.core import Cost, in_precision
from rmopt.core.ambient import dense
from rmopt.costs import ConstrainedProblem, ValueCost
from rmopt.manifolds import (
    Elliptope,
    FixedRankEmbedded,
    GeneralizedGrassmann,
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
    MaxEvaluations,
    NelderMead,
    ParticleSwarm,
    solve_many,
)

A = np.diag([5.0, 3.0, 2.0, 1.0]) + 0.2
VALUES, WEIGHTS = np.linalg.eigvalsh(A), np.array([2.0, 1.0])
S = np.diag([2.0, 0.5])
W = np.outer([1.0, 2.0, 0.0], [3.0, 0.0, 1.0, 1.0])


def quotient(X: Any) -> Any:
    """Return tr N XᴴAX of one or of many points, in any library; of vectors xᵀAx."""
    xp, like = ns.namespace(X), ns.real(X)
    of_a, weights = (ns.asarray(one, like, ns.real_type(like)) for one in (A, WEIGHTS))
    if X.shape[-1] == 4:
        return xp.sum(X * (X @ of_a), axis=-1)
    products = xp.matmul(of_a + 0.0 * X[..., :1, :1], X)
    return xp.sum(ns.real(ns.conj(X) * products) * weights, axis=(-2, -1))


CLOSED: list[Any] = [
    (Sphere(4), quotient, VALUES[0]),
    (Grassmann(4, 2), lambda U: np.sum(U * (A @ U)), VALUES[:2].sum()),
    (Stiefel(4, 2), quotient, VALUES[:2] @ WEIGHTS),
    (Stiefel(3, 2, field="complex"), lambda X: np.sum(WEIGHTS * (X.conj() * (A[:3, :3] @ X)).real),
     np.linalg.eigvalsh(A[:3, :3])[:2] @ WEIGHTS),
    (SymmetricPositiveDefinite(2), lambda X: np.trace(X @ S) - np.log(np.linalg.det(X)), 2.0),
    (FixedRankEmbedded(3, 4, 1), lambda X: np.sum((dense(X.as_ambient()) - W) ** 2), 0.0),
    (Product([Sphere(3), Sphere(2)]), lambda x: x[0][0] * x[1][0], -1.0),
    (GeneralizedGrassmann(np.diag([1.0, 2.0, 4.0]), 1), lambda U: np.sum(U * (A[:3, :3] @ U)),
     np.linalg.eigvalsh(A[:3, :3] / np.sqrt(np.outer([1, 2, 4], [1, 2, 4])))[0]),
    (Sphere(4), lambda x: np.abs(x - 0.5).max(), 0.0),
]  # fmt: skip


@pytest.mark.parametrize("solver", [NelderMead(), ParticleSwarm()], ids=["simplex", "swarm"])
@pytest.mark.parametrize(("manifold", "function", "least"), CLOSED, ids=[str(row[0]) for row in CLOSED])
def test_closed_forms(manifold: Any, function: Any, least: float, solver: Any) -> None:
    result = solver.run(Problem(manifold, ValueCost(function)), random_state=3)
    assert result.converged
    assert result.cost == pytest.approx(
        least, abs=1e-5 if "abs" in repr(function.__code__.co_names) else 1e-7
    )
    assert result.counts["costs"] == result.history[-1]["costs"]


@pytest.mark.parametrize(
    "solver", [NelderMead(max_iter=25), ParticleSwarm(max_iter=12)], ids=["simplex", "swarm"]
)
@pytest.mark.parametrize("manifold", [Stiefel(4, 2), FixedRankEmbedded(3, 4, 1)], ids=str)
def test_laws_of_solvers_without_gradients(solver: Any, manifold: Any) -> None:
    def distance(X: Any) -> float:
        return float(np.abs(dense(manifold.embed_point(X))).sum())

    failed = [
        str(check) for check in check_solver(solver, Problem(manifold, ValueCost(distance))) if not check
    ]
    assert not failed


class Counted(Cost):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def value(self, point: Any) -> float:
        return float(quotient(point))

    def values(self, points: Any) -> Any:
        self.sizes.append(len(points))
        return quotient(points)


def test_many_points_take_one_call() -> None:
    cost = Counted()
    swarm = ParticleSwarm(population_size=15, max_iter=30).run(Problem(Stiefel(4, 2), cost), random_state=0)
    assert cost.sizes == [15] * 30
    one_by_one = ParticleSwarm(population_size=15, max_iter=30).run(
        Problem(Stiefel(4, 2), ValueCost(quotient)), random_state=0
    )
    assert swarm.counts == one_by_one.counts == {"costs": 451, "retractions": 435}
    np.testing.assert_allclose(swarm.point, one_by_one.point, atol=1e-9)
    cost.sizes.clear()
    NelderMead(max_iter=30).run(Problem(Stiefel(4, 2), cost), random_state=0)
    assert cost.sizes[0] == Stiefel(4, 2).dim
    assert set(cost.sizes[1:]) <= {1, Stiefel(4, 2).dim}


def test_a_swarm_of_parts_does_as_one_of_arrays() -> None:
    whole, parts = (
        ParticleSwarm(max_iter=20).run(Problem(manifold, ValueCost(function)), random_state=0)
        for manifold, function in ((Sphere(4), quotient), (Product([Sphere(4)]), lambda x: quotient(x[0])))
    )
    np.testing.assert_allclose(parts.point[0], whole.point, atol=1e-10)


@pytest.mark.parametrize(
    "solver", [NelderMead(max_iter=60), ParticleSwarm(max_iter=20)], ids=["simplex", "swarm"]
)
@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
@pytest.mark.parametrize("manifold", [Sphere(4), Stiefel(4, 2, field="complex")], ids=str)
def test_iterates_are_those_of_numpy(manifold: Any, library: str, solver: Any) -> None:
    xp = pytest.importorskip(library)
    problem, start = (
        Problem(manifold, ValueCost(quotient, many=True)),
        manifold.random_point(np.random.default_rng(1)),
    )
    here, there = (solver.run(problem, point, random_state=2) for point in (start, xp.asarray(start)))
    assert type(there.point) is type(xp.asarray(start))
    np.testing.assert_allclose(ns.to_numpy(there.point), here.point, atol=1e-9)
    single = solver.run(problem, in_precision(start, np.float32), random_state=2)
    assert single.point.dtype.itemsize * 2 == start.dtype.itemsize
    assert abs(single.cost - here.cost) < 1e-2


def test_noise_and_jumps_are_no_convergence() -> None:
    rng = np.random.default_rng(0)
    noisy = ValueCost(lambda x: float(quotient(x)) + 0.01 * rng.standard_normal())
    result = NelderMead().run(Problem(Sphere(4), noisy), random_state=0)
    assert not result.converged
    assert "the cost jumps, or is noise" in result.stopped_by
    assert float(quotient(result.point)) < VALUES[0] + 0.3
    stopped = ParticleSwarm().run(Problem(Sphere(4), noisy), random_state=0, stop=MaxEvaluations(2000))
    assert not stopped.converged
    assert float(quotient(stopped.point)) < VALUES[0] + 0.05


def test_failures_far_away_are_survived() -> None:
    def barrier(X: Any) -> float:
        return -np.log(0.5 - X[0]) + 3.0 * X[1] if X[0] < 0.5 else np.nan

    angles = np.linspace(0.0, 2.0 * np.pi, 100_001)
    with np.errstate(all="ignore"):
        least = np.nanmin(-np.log(0.5 - np.cos(angles)) + 3.0 * np.sin(angles))
    for solver in (NelderMead(edge=1.0), ParticleSwarm()):
        result = solver.run(Problem(Sphere(3), ValueCost(barrier)), np.eye(3)[2], random_state=0)
        assert result.converged
        assert result.cost == pytest.approx(least, abs=1e-6)


def test_costs_without_gradients_are_refused_before_work_starts() -> None:
    height = autograd_cost(lambda x: x[0])
    alone, both = (Problem(Sphere(4), cost) for cost in (ValueCost(quotient), height + ValueCost(quotient)))
    held = ConstrainedProblem(Sphere(4), ValueCost(quotient), equalities=[height])
    for solver, problem in (
        (LBFGS(), alone),
        (LBFGS(), both),
        (SGD(0.1), alone),
        (AugmentedLagrangian(), held),
    ):
        with pytest.raises(
            MissingCapabilityError, match=r"^the cost quotient has no `gradient\(point\)`; add it,"
        ):
            solver.run(problem)
    with pytest.raises(MissingCapabilityError, match="has no `gradient"):
        solve_many(Sphere(4), ValueCost(quotient), np.eye(4))


REFUSED: list[Any] = [
    (lambda x: np.nan, {}, DivergedError, "is nan at the initial point; start elsewhere"),
    (lambda x: x, {}, InvalidInputError, "not a real number; return a float"),
    (lambda x: quotient(x) if x.ndim == 1 else x, {"many": True}, InvalidInputError, r"an array of shape \(\d+,\)"),
]  # fmt: skip


@pytest.mark.parametrize(
    "solver", [NelderMead(), ParticleSwarm(population_size=12)], ids=["simplex", "swarm"]
)
@pytest.mark.parametrize(("function", "options", "kind", "words"), REFUSED, ids=["nan", "array", "shape"])
def test_what_is_no_cost_is_refused(function: Any, options: Any, kind: Any, words: str, solver: Any) -> None:
    with pytest.raises(kind, match=words):
        solver.run(Problem(Sphere(4), ValueCost(function, **options)), random_state=0)


def test_parameters_and_constraints_are_refused() -> None:
    for wrong in ({"contraction": 1.0}, {"expansion": 1.0}, {"shrink": 0.0}, {"edge": 0}, {"tol": -1}):
        with pytest.raises(InvalidInputError, match="must be a"):
            NelderMead(**wrong)
    for wrong in ({"population_size": 1}, {"inertia": 1.0}, {"social": -1}):
        with pytest.raises(InvalidInputError, match="must be a"):
            ParticleSwarm(**wrong)
    constrained = ConstrainedProblem(
        Sphere(4), ValueCost(quotient), equalities=[autograd_cost(lambda x: x[0])]
    )
    with pytest.raises(MissingCapabilityError, match="AugmentedLagrangian"):
        NelderMead().run(constrained)


def test_a_quotient_without_logarithm_takes_a_swarm() -> None:
    target = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]])
    cost = ValueCost(lambda Y: np.sum((Y @ Y.T - target) ** 2))
    result = ParticleSwarm().run(Problem(Elliptope(3, 3), cost), random_state=0)
    assert result.cost < 1e-6
