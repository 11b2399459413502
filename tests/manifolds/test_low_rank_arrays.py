"""Matrices of low rank by arrays of every library, real and complex; what takes real ones of numpy alone says so."""

from typing import Any

import numpy as np
import pytest
from in_library import LIBRARIES, array_of, far_away, through
from low_rank_agents import low_rank_tasks
from tabled import each_row

from problems.coembedding import MetricRegression
from rmopt import Problem, autograd_cost
from rmopt import namespaces as ns
from rmopt.checks import check_gradient, check_hessian, checks_of
from rmopt.checks.catalogue import fixed_rank_instances, positive_definite_instances
from rmopt.core import LowRankPoint, Parts
from rmopt.core.ambient import dense
from rmopt.core.cost import Cost
from rmopt.core.manifold import FIELDS
from rmopt.core.points import arrays_of, as_like, rebuilt
from rmopt.costs import BilinearSum, GossipCost, Graph, OnFactors, Trace, squared
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.linalg import horizontal
from rmopt.manifolds import (
    BoundedRank,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    PolarPSD,
    Product,
    PSDFactors,
    PSDFixedRank,
    projected_mean,
)
from rmopt.solvers import (
    LBFGS,
    SGD,
    ConjugateGradient,
    CoordinateDescent,
    Gossip,
    ManifoldIdentification,
    Momentum,
    Parallel,
    RankIncremental,
    ScaledSGD,
    TrustRegions,
)

MANIFOLDS = [
    kind(*sizes, field=field)
    for kind, *sizes in (
        (FixedRankEmbedded, 7, 5, 2), (PSDFixedRank, 6, 2), (PolarPSD, 6, 2), (PSDFactors, 6, 2),
        (FixedRankFactors, 6, 5, 2), (BoundedRank, 6, 5, 2),
    )
    for field in FIELDS
]  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@far_away()
def test_laws_hold_for_arrays_of_each_library(library: str) -> None:
    failed, dtype = [], np.float32 if library == "torch" else np.float64
    # JAX compiles each operation anew for each type of numbers.
    for M in MANIFOLDS[library == "jax.numpy" :: 1 + (library == "jax.numpy")]:
        failed += [f"{M}: {check}" for check in checks_of(through(M, library), 0, dtype) if not check]
    assert not failed, "\n".join(failed)


class Nearest(Cost):
    """½ ‖W − T‖², of points or of factors."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def residual(self, point: Any) -> Any:
        return dense(point.as_ambient()) - self.target

    def value(self, point: Any) -> float:
        return 0.5 * float(ns.real_dot(R := self.residual(point), R))

    def gradient(self, point: Any) -> Any:
        return self.residual(point)

    def hessian(self, point: Any, direction: Any) -> Any:
        return dense(direction)


@each_row("manifold", MANIFOLDS[:4])
@pytest.mark.parametrize("library", LIBRARIES)
@far_away()
def test_runs_end_at_the_nearest_matrix_in_the_library_of_their_start(manifold: Any, library: str) -> None:
    M, rng, like = manifold, np.random.default_rng(0), array_of(library)
    truth, noise = M.to_dense(M.random_point(rng)), 0.01 * M.drawn(rng)
    T = truth + (noise + ns.adjoint(noise) if isinstance(M, PSDFixedRank) else noise)
    best = M.from_matrix(T)
    from_there = dense(M.from_matrix(ns.asarray(T, like)).as_ambient())
    np.testing.assert_allclose(ns.to_numpy(from_there), M.to_dense(best))
    problem = Problem(M, Nearest(ns.asarray(T, like)))
    for solver in (ConjugateGradient(), LBFGS(), TrustRegions()):
        point = solver.run(problem, M.random_point(3, like=ns.zeros((1,), ns.asarray(T.real, like)))).point
        assert M.check_point(point) is None
        assert all(type(part) is type(ns.asarray(T, like)) for part in arrays_of(point))
        np.testing.assert_allclose(ns.to_numpy(M.to_dense(point)), M.to_dense(best), atol=1e-5)
    first, *others = arrays_of(point)
    mixed = rebuilt(point, [ns.to_numpy(first), *others])
    assert library == "numpy" or "several libraries" in str(M.check_point(mixed))
    mean = projected_mean(M, [as_like(one, ns.asarray(T, like)) for one in (best, best)], [0.3, 0.7])
    np.testing.assert_allclose(ns.to_numpy(M.to_dense(mean)), M.to_dense(best), atol=1e-12)


def test_complex_factors_are_those_of_pymanopt() -> None:
    theirs = pytest.importorskip("pymanopt").manifolds.PSDFixedRankComplex(6, 2)
    ours, rng = PSDFactors(6, 2, field="complex"), np.random.default_rng(0)
    Y, G, H = (ours.drawn(rng) for _ in range(3))
    np.testing.assert_allclose(horizontal(Y, G), theirs.projection(Y, G), atol=1e-12)
    # A function of YYᴴ has gradients and Hessians along horizontal vectors that need no more than a projection.
    A = G @ ns.adjoint(G)
    xi = horizontal(Y, H)
    found = ours.euclidean_to_riemannian_hessian(Y, 2 * A @ Y, 2 * A @ xi, xi)
    wanted = theirs.euclidean_to_riemannian_hessian(Y, 2 * A @ Y, 2 * A @ xi, xi)
    np.testing.assert_allclose(horizontal(Y, found), wanted, atol=1e-11)
    np.testing.assert_allclose(dense(ours.point_of(Y).as_ambient()), Y @ ns.adjoint(Y), atol=1e-12)


@each_row("manifold", MANIFOLDS)
def test_costs_of_matrices_and_of_factors_agree_on_every_manifold_of_low_rank(manifold: Any) -> None:
    M, rng = manifold, np.random.default_rng(0)
    point, by_factors = M.random_point(rng), isinstance(M, PSDFactors | BoundedRank)
    W = M.point_of(point) if by_factors else point
    (A, B), T = W.balanced_factors(), dense(W.as_ambient())
    np.testing.assert_allclose(A @ B.T, T, atol=1e-12)
    again = FixedRankEmbedded(*T.shape, 2, field=FIELDS[ns.is_complex(A)]).from_factors(A, B)
    np.testing.assert_allclose(dense(again.as_ambient()), T, atol=1e-12)
    cost = Nearest(rng.standard_normal(T.shape) * A[0, 0])
    problem = Problem(M, OnFactors(cost) if by_factors else cost)
    checks = [check_gradient(problem)] + ([] if isinstance(M, PolarPSD) else check_hessian(problem))
    assert all(checks), "\n".join(map(str, checks))
    if isinstance(M, FixedRankFactors):
        # Scaled gradient descent (Tong, Ma and Chi 2021), equation 3, at any scale of the factors.
        change, G = np.eye(2) + 0.3 * A[:2], T - cost.target
        for L, R in (point, (A @ change, B @ np.linalg.inv(change).T)):
            gradient = problem.riemannian_gradient(Parts([L, R]))
            np.testing.assert_allclose(gradient[0], G @ np.linalg.pinv(R.T), atol=1e-10)
            np.testing.assert_allclose(gradient[1], G.T @ np.linalg.pinv(L.T), atol=1e-10)
    if not isinstance(M, PSDFactors):
        apart = autograd_cost(lambda A, B: (abs(A @ B.T - T) ** 2).sum())
        result = LBFGS().run(Problem(M, apart), random_state=1)
        assert (result.converged, result.cost < 1e-8, result.steps < 120) == (True,) * 3, result
        if ns.is_complex(A) and not by_factors:
            with pytest.raises(InvalidInputError, match=r"such as A @ B\.T"):
                autograd_cost(lambda A, B: abs(A @ B.T.conj()).sum()).value(point)


@each_row(
    "change, reason",
    [
        (lambda U, S, V: (U + 0j, S, V), "give the manifold field='complex'"),
        (lambda U, S, V: (U, S, 2 * V), "V is not orthonormal"),
        (lambda U, S, V: (U, np.nan * S, V), "NaN"),
        (lambda U, S, V: (U, S, V[None]), "shapes"),
    ],
)
def test_points_that_are_none_are_refused(change: Any, reason: str) -> None:
    M = FixedRankEmbedded(5, 4, 2)
    assert reason in str(M.check_point(LowRankPoint(*change(*vars(M.random_point(0)).values()))))


def problems_of_others() -> list[tuple[Any, Problem]]:
    """Return solvers that follow schedules, or run compiled loops, with a problem for each."""
    bilinear = fixed_rank_instances()[0].problems["logistic"]
    cone = next(iter(positive_definite_instances()[0].problems.values()))
    rows = np.eye(6)[[0, 1, 2, 3, 4, 5, 0]], np.eye(5)[[0, 1, 2, 3, 4, 0, 1]]
    entries = OnFactors(BilinearSum(*rows, squared, np.arange(7.0)))
    metric = MetricRegression(np.random.default_rng(0).standard_normal((8, 20))) + Trace(0.5)
    agents = GossipCost(low_rank_tasks(10, 20, 2, 5), Graph.ring(5), 1.0, Grassmann(10, 2))
    return [
        (SGD(0.1), bilinear), (SGD(0.1, rule=Momentum()), bilinear), (SGD(0.1, engine="reference"), bilinear),
        (ManifoldIdentification(0.1, inner_step_size=0.1), bilinear), (CoordinateDescent(), cone),
        (ScaledSGD(), Problem(FixedRankFactors(6, 5, 2), entries)),
        (RankIncremental(), Problem(PSDFixedRank(8, 2), metric)),
        (Gossip(0.1), Problem(Product([Grassmann(10, 2)] * 5), agents)), (Parallel(SGD(0.1), 2), bilinear),
    ]  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_schedules_and_compiled_loops_take_real_arrays_of_numpy_alone(library: str) -> None:
    like = array_of(library)
    for solver, problem in problems_of_others():
        start = problem.manifold.random_point(0)
        parts = [array + 0j if library == "numpy" else ns.asarray(array, like) for array in arrays_of(start)]
        point = rebuilt(start, parts)
        with pytest.raises(InvalidInputError, match=f"{type(solver).__name__} takes real arrays of numpy"):
            solver.run(problem, point)
        if hasattr(solver, "engine") and not isinstance(solver.engine, str):
            engine = solver.engine(problem)
            with pytest.raises(InvalidInputError, match=f"{type(engine).__name__} takes real arrays"):
                engine.load(point)


def test_complex_manifolds_are_refused_before_a_start_is_drawn() -> None:
    metric = MetricRegression(np.eye(8)) + Trace(0.5)
    with pytest.raises(MissingCapabilityError, match="RankIncremental takes real numbers only"):
        RankIncremental().run(Problem(PSDFixedRank(8, 2, field="complex"), metric))
