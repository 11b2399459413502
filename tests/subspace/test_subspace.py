"""Matrix completion and multitask features: inner solutions, corrected gradients, estimators, baselines, data."""

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from low_rank_agents import low_rank_tasks, train_mse
from real_data import REAL, real
from scipy.optimize import minimize
from sklearn.base import clone

from problems.data.sets import ml1m, ml100k, picture
from problems.subspace import (
    RCGMC,
    RTRMC,
    BiasedALS,
    DLMaFit,
    EntryKFold,
    GossipMatrixCompletion,
    MatrixCompletion,
    MultitaskFeatures,
    entries,
)
from problems.subspace.baselines import _renewed
from problems.subspace.instances import agent_sums
from problems.subspace.training import GossipPlan, gossip, largest_curvature
from rmopt import Problem
from rmopt.core import InvalidInputError, MissingCapabilityError
from rmopt.costs import GossipCost, Graph
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Grassmann, Product
from rmopt.solvers import Checkpoint, MaxSteps, Recorder

M, N, R = 14, 23, 3


def instance(seed: int = 0, stretched: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a mask of known entries, values, and a matrix U that is orthonormal or not."""
    rng = np.random.default_rng(seed)
    known = rng.random((M, N)) < 0.6
    U = rng.standard_normal((M, R))
    return known, rng.standard_normal((M, N)) * known, U if stretched else np.linalg.qr(U)[0]


def table(known: np.ndarray, values: np.ndarray) -> sp.csc_array:
    rows, columns = np.nonzero(known)
    return sp.csc_array(sp.coo_array((values[known], (rows, columns)), shape=known.shape))


def inner(
    known: np.ndarray, Y: np.ndarray, W: np.ndarray, U: np.ndarray, lam: float, penalty: str = "unknown"
) -> float:
    """Return the inner objective of equation 10, entry by entry, or with the penalty on all of them."""
    Z = U @ W.T
    drawn = Z if penalty == "all" else Z[~known]
    return 0.5 * float(np.sum((Z - Y)[known] ** 2)) + lam * float(np.sum(drawn**2))


@pytest.mark.parametrize("lam", [0.0, 0.07, 0.3])
@pytest.mark.parametrize("stretched", [False, True])
@pytest.mark.parametrize("penalty", ["unknown", "all"])
def test_the_inner_solution_minimises_its_objective(lam: float, stretched: bool, penalty: str) -> None:
    known, Y, U = instance(stretched=stretched)
    cost = MatrixCompletion(table(known, Y), 4, lam, penalty)
    W = np.concatenate([cost.weights(U, agent) for agent in range(4)])
    best = minimize(
        lambda w: inner(known, Y, w.reshape(N, R), U, lam, penalty),
        W.ravel(),
        method="L-BFGS-B",
        options={"gtol": 1e-12},
    )
    np.testing.assert_allclose(best.fun, inner(known, Y, W, U, lam, penalty), rtol=1e-13)
    np.testing.assert_allclose(cost.value(U), inner(known, Y, W, U, lam, penalty), rtol=1e-13)
    np.testing.assert_allclose(sum(cost.agent_value(U, i) for i in range(4)), cost.value(U), rtol=1e-13)
    moved = inner(known, Y, W + 1e-3 * np.random.default_rng(1).standard_normal(W.shape), U, lam, penalty)
    assert moved > cost.value(U)


@pytest.mark.parametrize(("lam", "penalty"), [(0.0, "unknown"), (0.07, "unknown"), (0.07, "all")])
def test_the_gradient_has_the_term_that_table_1_omits(lam: float, penalty: str) -> None:
    known, Y, U = instance()
    cost, omitted = MatrixCompletion(table(known, Y), 3, lam, penalty), lam * (penalty == "unknown")
    W = np.concatenate([cost.weights(U, agent) for agent in range(3)])
    Z = (U @ W.T) * known
    printed, corrected = (Z - Y) @ W, (Z - Y - 2.0 * omitted * Z) @ W

    def project(G: np.ndarray) -> np.ndarray:
        return G - U @ (U.T @ G)

    # Finite differences of the value, with W solved anew, along tangent directions.
    manifold, rng = Grassmann(M, R), np.random.default_rng(2)
    for _ in range(3):
        xi = manifold.random_tangent_vector(U, rng)
        ahead, behind = (cost.value(manifold.exp(U, sign * 1e-5 * xi)) for sign in (1.0, -1.0))
        slope = (ahead - behind) / 2e-5
        np.testing.assert_allclose(np.vdot(corrected, xi), slope, atol=1e-8)
        assert (abs(np.vdot(printed, xi) - slope) > 1e-4) == (omitted > 0.0)
    np.testing.assert_allclose(project(cost.gradient(U)), project(corrected), atol=1e-13)
    assert (np.abs(project(printed - corrected)).max() > 1e-3) == (omitted > 0.0)
    by_agents = sum(cost.agent_gradient(U, agent)[0] for agent in range(3))
    np.testing.assert_allclose(by_agents, cost.gradient(U), atol=1e-13)


@pytest.mark.parametrize("name", agent_sums(3))
def test_gradient_and_hessian_also_where_the_basis_is_not_orthonormal(name: str) -> None:
    cost: Any = agent_sums(3)[name]
    rng = np.random.default_rng(3)
    U, E = (rng.standard_normal((cost.n_rows, R)) for _ in range(2))
    h = 1e-6
    slope = (cost.value(U + h * E) - cost.value(U - h * E)) / (2 * h)
    gradient = np.asarray(cost.gradient(U) @ np.eye(R))
    np.testing.assert_allclose(np.vdot(gradient, E), slope, rtol=1e-7)
    ahead, behind = (np.asarray(cost.gradient(U + sign * h * E) @ np.eye(R)) for sign in (1.0, -1.0))
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(cost.hessian(U, E), (ahead - behind) / (2 * h), atol=1e-6 * scale)
    curvature = cost.agent_gradient(U, 1)[1]
    W = cost.weights(U, 1)
    np.testing.assert_allclose(curvature, W.T @ W, rtol=1e-13)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_the_largest_curvature_is_an_eigenvalue(preconditioned: bool) -> None:
    tasks: Any = agent_sums(2)["multitask-ridge"]
    manifold = Grassmann(tasks.n_rows, R)
    group = tasks.parts[0]
    alone = MultitaskFeatures(
        [(group.X[group.task == t], group.y[group.task == t]) for t in range(3)], 1, 0.3
    )
    cost = GossipCost(tasks, Graph.path(2), 1.5, manifold)
    U = manifold.random_point(np.random.default_rng(5))
    found = largest_curvature(cost, 0, U, preconditioned, 0)
    basis, problem = [], Problem(manifold, alone)
    for column in np.eye(U.size):
        basis.append(manifold.projection(U, column.reshape(U.shape)))
    P = np.eye(R)
    if preconditioned:
        P = np.linalg.inv(tasks.agent_gradient(U, 0)[1] + 1.5 * np.eye(R))
    images = [(problem.riemannian_hessian(U, xi) + 3.0 * xi) @ P for xi in basis]
    largest = np.abs(np.linalg.eigvals(np.array([image.ravel() for image in images]))).max()
    assert 0.7 * largest < found < 1.01 * largest


def low_rank(
    seed: int = 0, m: int = 40, n: int = 60, r: int = 2, share: float = 0.5
) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = (1.0 + rng.standard_normal((m, r))) @ (1.0 + rng.standard_normal((r, n)))
    known = rng.random((m, n)) < share
    return table(known, truth), truth


@pytest.mark.parametrize("make", [RTRMC, RCGMC, GossipMatrixCompletion])
def test_estimators_complete_a_matrix(make: Any) -> None:
    ratings, truth = low_rank()
    options = {} if make is not GossipMatrixCompletion else {"n_agents": 3, "variant": "parallel"}
    if make is not GossipMatrixCompletion:
        options = {"max_iter": 60, "tol": 1e-9}
    # The mean is subtracted, so a matrix of rank 2 becomes one of rank 3.
    model = make(rank=3, lam=0.0, random_state=0, **options).fit(ratings)
    rows, columns = np.divmod(np.arange(truth.size), truth.shape[1])
    np.testing.assert_allclose(model.predict(rows, columns), truth.ravel(), atol=2e-3)
    assert model.rmse(ratings) < 1e-3
    assert model.components_.shape == (40, 3)
    assert model.weights_.shape == (60, 3)
    again = clone(model).fit(ratings)
    assert np.array_equal(again.components_, model.components_)


def test_predictions_stay_within_limits_and_empty_columns_get_the_mean() -> None:
    ratings, truth = low_rank()
    wide = sp.csc_array(sp.hstack([ratings, sp.csc_array((40, 1))]))
    model = RTRMC(2, lam=0.01).fit(wide).set_params(limits=(2.0, 4.0))
    rows, columns = np.divmod(np.arange(truth.size), truth.shape[1])
    found = model.predict(rows, columns)
    assert found.min() == 2.0
    assert found.max() == 4.0
    np.testing.assert_allclose(model.predict([7], [60]), model.mean_)


def test_gossip_on_other_graphs_and_a_checkpoint(tmp_path: Path) -> None:
    ratings, _ = low_rank()
    for graph in ("ring", "star", "erdos-renyi", [(0, 1), (1, 2), (2, 3), (1, 3)]):
        model = GossipMatrixCompletion(
            3, 4, lam=0.0, graph=graph, n_epochs=100, init="independent", random_state=0
        ).fit(ratings)
        assert model.disagreement_ < 0.05
        assert model.rmse(ratings) < 0.05
    path = tmp_path / "gossip.npz"
    assert len(GossipMatrixCompletion(2, n_epochs=1).fit(ratings[:, :3]).agents_) == 3
    saved = GossipMatrixCompletion(3, 4, n_epochs=10, checkpoint=path, random_state=0).fit(ratings)
    assert path.is_file()
    again = clone(saved).fit(ratings)
    assert np.array_equal(again.components_, saved.components_)
    # Both change how far it is to agreement, rho in the cost, which nobody gave.
    for name, value in {"lam": 0.02, "n_agents": 3}.items():
        with pytest.raises(InvalidInputError, match="belongs to another run"):
            clone(saved).set_params(**{name: value}).fit(ratings)
    # Without a decay the number of epochs is a budget alone.
    steady = GossipMatrixCompletion(3, 4, n_epochs=3, decay=0.0, random_state=0)
    whole = clone(steady).set_params(n_epochs=9).fit(ratings)
    steady.set_params(checkpoint=tmp_path / "steady.npz").fit(ratings)
    assert np.array_equal(steady.set_params(n_epochs=9).fit(ratings).components_, whole.components_)


def test_d_lmafit_converges_and_gossip_is_ahead_of_it() -> None:
    tasks = low_rank_tasks(60, 600, 2, 4)
    manifold = Grassmann(60, 2)
    problem = Problem(Product([manifold] * 4), GossipCost(tasks, Graph.path(4), 0.0, manifold))
    errors = []
    for steps in (20, 100, 400):
        result = DLMaFit(steps).run(problem, random_state=0)
        errors.append(train_mse(tasks, result.point))
    assert errors[0] > 10.0 * errors[1] > 100.0 * errors[2]
    assert problem.cost.gaps(result.point).max() < 1e-3  # type: ignore[attr-defined]
    ours = gossip(tasks, 2, GossipPlan(1.0, "parallel", n_epochs=50, init="independent"), 0)
    # 77 updates of each agent against 100.
    assert train_mse(tasks, ours.points) < 0.5 * errors[1]
    cost = GossipCost(MatrixCompletion(low_rank()[0], 4, 0.1), Graph.path(4), 0.0, Grassmann(40, 2))
    with pytest.raises(MissingCapabilityError, match="lam = 0"):
        DLMaFit(1).run(Problem(Product([Grassmann(40, 2)] * 4), cost))


def test_lmafit_of_one_agent_is_lmafit() -> None:
    ratings, _ = low_rank(r=1)
    part = MatrixCompletion(ratings, 2).parts[0]
    X = Grassmann(40, 1).random_point(np.random.default_rng(0))
    share, Y = _renewed(part, X, np.zeros((1, 30)))
    known = np.asarray((ratings[:, :30] != 0).todense())
    values = ratings[:, :30].toarray()
    Z = np.where(known, values, X @ np.zeros((1, 30)))
    wanted = X.T @ Z
    np.testing.assert_allclose(Y, wanted, atol=1e-12)
    np.testing.assert_allclose(share, np.where(known, values, X @ wanted) @ wanted.T, atol=1e-12)


def test_rtrmc_meets_an_independent_optimum() -> None:
    known, Y, _ = instance(7)
    cost = MatrixCompletion(table(known, Y), 1, 0.1)
    problem = Problem(Grassmann(M, R), cost)
    ours = RTRMC(R, max_iter=100, tol=0.0).learn(cost, 0)
    rng = np.random.default_rng(0)

    def factors(x: np.ndarray) -> float:
        A, B = x[: M * R].reshape(M, R), x[M * R :].reshape(N, R)
        return inner(known, Y, B, A, 0.1)

    found = [
        minimize(factors, rng.standard_normal((M + N) * R), method="L-BFGS-B", options={"maxfun": 10**6}).fun
        for _ in range(2)
    ]
    assert cost.value(ours) < min(found) * 1.05
    assert problem.manifold.norm(ours, problem.riemannian_gradient(ours)) < 1e-8


@pytest.mark.parametrize("make", [RTRMC, RCGMC])
def test_batch_methods_are_measured_stopped_and_gone_on_with(make: Any, tmp_path: Path) -> None:
    known, Y, _ = instance(7)
    manifold = Grassmann(M, R)
    start = manifold.random_point(np.random.default_rng(1))

    def run(budget: int, **options: Any) -> Any:
        problem = Problem(manifold, MatrixCompletion(table(known, Y), 1, 0.1))
        solver = make(R, max_iter=budget, tol=1e-9).solver(manifold)
        return solver.run(problem, start, random_state=0, **options)

    cost = MatrixCompletion(table(known, Y), 1, 0.1)
    unbroken = run(12, recorder=Recorder({"again": cost.value}))
    assert all(row["cost"] == row["again"] for row in unbroken.history)
    for budget in (5, 12):
        kept = Checkpoint(tmp_path / "run.npz")
        parted = run(budget, checkpoint=kept, recorder=Recorder({"again": cost.value}))
    np.testing.assert_array_equal(parted.point, unbroken.point)
    assert parted.counts == unbroken.counts
    assert run(12, stop=MaxSteps(3)).steps == 3
    # pymanopt's solver ends at the same cost.
    name = {"RTRMC": "TrustRegions", "RCGMC": "ConjugateGradient"}[make.__name__]
    there = PymanoptSolver(name, min_gradient_norm=1e-7).run(Problem(manifold, cost), start, random_state=0)
    assert cost.value(run(500).point) < cost.value(there.point) * (1.0 + 1e-9)


# Data


def test_the_picture_hides_whole_pixels() -> None:
    bundle = picture()
    assert bundle.shape == (427, 1920)
    hidden = bundle.held_out(0, 0.3)
    assert 0.29 < hidden.mean() < 0.31
    planes = hidden.reshape(427, 3, 640)
    assert np.array_equal(planes[:, 0], planes[:, 1])
    assert np.array_equal(planes[:, 0], planes[:, 2])
    again = bundle.table(~hidden)
    assert again.nnz == (~hidden).sum()


@real("ml100k.npz")
def test_ml100k() -> None:
    bundle = ml100k(REAL)
    assert bundle.shape == (1682, 943)
    assert len(np.unique(bundle.times)) == 49282
    hidden = bundle.held_out(0)
    model = BiasedALS(5, limits=bundle.limits, random_state=0).fit(bundle.table(~hidden))
    assert model.rmse(bundle.table(hidden)) < 0.95
    agents = GossipMatrixCompletion(5, 4, n_epochs=60, limits=bundle.limits, random_state=0)
    assert agents.fit(bundle.table(~hidden)).rmse(bundle.table(hidden)) < 1.0


@real("ml1m.npz")
def test_rtrmc_on_ml1m_reaches_the_published_level() -> None:
    bundle = ml1m(REAL)
    hidden = bundle.held_out(0)
    model = RTRMC(10, lam=0.005, limits=bundle.limits, max_iter=12).fit(bundle.table(~hidden))
    assert model.rmse(bundle.table(hidden)) < 0.872


# Bad input


def test_a_line_search_goes_on_where_its_polynomial_has_no_minimum() -> None:
    """On these entries conjugate gradients met a cubic polynomial without one, and took a step of NaN."""
    from sklearn.datasets import load_sample_image

    corner = load_sample_image("china.jpg")[:80:2, :120:2].mean(axis=2) / 255
    known = np.random.default_rng(0).random((214, 320))[:40, :60] < 0.5
    table = sp.csc_array((corner[known], np.nonzero(known)), shape=corner.shape)
    pairs, values = entries(table)
    train, test = list(EntryKFold(2).split(pairs))[1]
    conjugate, trust = (
        kind(2, lam=0.01, random_state=0).fit(pairs[train], values[train], shape=table.shape)
        for kind in (RCGMC, RTRMC)
    )
    errors = [model.rmse(pairs[test], values[test]) for model in (conjugate, trust)]
    assert errors[0] == pytest.approx(errors[1], rel=0.1)


def test_bits_of_a_pass_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, default = np.random.default_rng(0), numba.get_num_threads()
    table = sp.random_array((60, 90), density=0.4, random_state=rng, format="csc")
    U, E = rng.standard_normal((2, 60, 3))
    found = []
    try:
        for worth, threads in ((2**62, 1), (0, 1), (0, min(2, numba.config.NUMBA_NUM_THREADS))):
            monkeypatch.setattr("problems.threads.WORTH_THREADS", worth)
            numba.set_num_threads(threads)
            cost = MatrixCompletion(table, lam=0.01)
            found.append([cost.value(U), *cost.gradient(U).ravel(), *cost.hessian(U, E).ravel()])
    finally:
        numba.set_num_threads(default)
    np.testing.assert_array_equal(found[1:], found[:1] * 2)
