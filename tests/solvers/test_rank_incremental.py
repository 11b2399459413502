"""Rank-incremental optimisation: closed forms, interior points, the certificate, and what may go wrong."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from regression_runs import Array, run
from tabled import each_row

from problems.coembedding import MetricRegression, MultilabelCoembedding, OneVsRestCoembedding
from problems.coembedding.cost import closed_form
from problems.coembedding.estimators import minimise
from problems.coembedding.instances import convex_costs
from rmopt import Problem
from rmopt.core import DivergedError, InvalidInputError, PSDPoint
from rmopt.core.low_rank import point_of
from rmopt.costs import ConvexCost, EmbeddedCost, Trace
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, SGD, Checkpoint, Hybrid, RankIncremental, TrustRegions, certify


def regression(n: int, t: int, beta: float = 0.5, seed: int = 0) -> tuple[Array, ConvexCost, float]:
    X = np.random.default_rng([seed, n, t]).standard_normal((n, t))
    return X, MetricRegression(X) + Trace(beta), closed_form(X, beta)[1]


@pytest.mark.parametrize(("n", "t", "beta"), [(1, 4, 0.5), (12, 30, 0.5), (20, 8, 2.0), (15, 15, 300.0)])
@pytest.mark.parametrize(("columns", "factor"), [(1, 2), (2, 3), (1, 1), (4, 1)])
def test_the_closed_form_of_equation_12(n: int, t: int, beta: float, columns: int, factor: int) -> None:
    X, cost, minimum = regression(n, t, beta)
    result = run(cost, RankIncremental(columns=columns, factor=factor, tol=1e-7))
    W, _ = closed_form(X, beta)
    assert result.is_global
    assert result.gap <= 1e-7 * result.certificate.objective
    np.testing.assert_allclose(result.certificate.objective, minimum, rtol=1e-10)
    np.testing.assert_allclose(result.point.Q @ result.point.S @ result.point.Q.T, W, atol=2e-4)
    assert result.point.rank == np.linalg.matrix_rank(W)
    assert "certified" in result.stopped_by


def test_gaps_of_ill_conditioned_problems_end_near_rounding() -> None:
    """Singular values from 300 down to where directions are left out; their eighth powers are the curvatures."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((30, 30)))[0] for _ in range(2))
    X = (U * np.geomspace(300.0, np.sqrt(0.5) * (1.0 + 1e-5), 30)) @ V.T
    found = minimise(MetricRegression(X), 0.5, RankIncremental(tol=1e-9)).certificate
    assert found.relative_gap <= 8e-6
    np.testing.assert_allclose(found.objective, closed_form(X, 0.5)[1], rtol=1e-11)


def test_the_closed_form_is_a_minimum() -> None:
    X, cost, minimum = regression(6, 9, 40.0)
    W, _ = closed_form(X, 40.0)
    values, vectors = np.linalg.eigh(W)
    Y = vectors * np.sqrt(np.maximum(values, 0.0))
    np.testing.assert_allclose(cost.at(Y).value, minimum, rtol=1e-12)
    rng = np.random.default_rng(1)
    for _ in range(50):
        assert cost.at(Y + 1e-2 * rng.standard_normal(Y.shape)).value > minimum


def test_interior_point_solutions() -> None:
    oracles = pytest.importorskip("convex_oracles", reason="needs cvxpy, which the extra [test] brings.")
    X, cost, _ = regression(12, 30)
    found = run(cost, RankIncremental()).certificate
    theirs = oracles.metric_regression(X, 0.5)
    assert abs(found.objective - theirs) <= 1e-6 * theirs
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((15, 4)), rng.random((15, 3)) < 0.4
    for beta in (0.3, 2.0):
        ours = minimise(MultilabelCoembedding(X, Y), beta, RankIncremental(tol=1e-8))
        theirs = oracles.multilabel(X, Y, beta)
        assert abs(ours.certificate.objective - theirs) <= 1e-6 * theirs
        assert ours.certificate.objective <= theirs * (1 + 1e-8)


def test_the_certified_gap_is_never_below_the_true_one() -> None:
    """200 points, near the minimum and far from it, of problems whose minimum is known."""
    rng = np.random.default_rng(5)
    close = 0
    for trial in range(200):
        n, t = rng.integers(2, 12, size=2)
        beta = float(10.0 ** rng.uniform(-2, 2))
        X, cost, minimum = regression(int(n), int(t), beta, trial)
        W, _ = closed_form(X, beta)
        values, vectors = np.linalg.eigh(W)
        Y = vectors * np.sqrt(np.maximum(values, 0.0))
        Y = Y[:, rng.random(int(n)) < 0.9] if trial % 2 else Y
        Y = Y + 10.0 ** rng.uniform(-9, 0) * rng.standard_normal(Y.shape)
        found, _, _ = certify(cost, Y)
        true = found.objective - minimum
        assert found.gap >= true - 1e-12 * minimum
        close += found.gap <= 1e-6 * found.objective
    assert 10 <= close <= 190


class Linear(EmbeddedCost):
    """−⟨M, W⟩, which has no lower bound: its certificates hold −∇f = M and nothing else."""

    lower_bound = -1e9

    def __init__(self, M: Array) -> None:
        self.features, self.M = np.eye(len(M)), M

    def measure(self, A: Array, B: Array) -> Array:
        return A @ B.T

    def spread(self, slopes: Array, Z: Array) -> Array:
        return slopes @ Z

    def loss(self, measurements: Array) -> tuple[float, Array]:
        return -float(np.vdot(self.M, measurements)), -self.M


@pytest.mark.parametrize("seed", range(3))
def test_bounds_of_large_matrices_hold_where_points_are_not_stationary(seed: int) -> None:
    rng, p = np.random.default_rng(seed), 240
    V = np.linalg.qr(rng.standard_normal((p, p)))[0]
    tied = np.diag(np.r_[0.0, 0.0, -rng.uniform(1.0, 5.0, p - 2)] + 3.0)
    tied[0, 2] = tied[2, 0] = 0.5
    rising = np.linspace(0.0, 3.0, p)
    for name, M, Y, tol in (
        # Of the largest eigenvector a part lies in the columns of Y, and the rest outside.
        ("both", V @ tied @ V.T, V[:, :2], 1e-8),
        ("inside", (V * rising) @ V.T, V[:, -2:], 1e-8),
        ("outside", (V * rising) @ V.T, V[:, :2], 1e-8),
        ("outside, roughly", (V * rising) @ V.T, V[:, :2], 0.1),
    ):
        exact = np.linalg.eigvalsh(M)[-1] - 1.0
        found = certify(Linear(M) + Trace(1.0), Y, tol=tol)[0].eigenvalue
        assert exact <= found * (1.0 + 1e-14), name
        assert found <= exact + (0.5 if name == "both" else tol), name


def test_bounds_of_small_matrices_allow_for_rounding() -> None:
    """The largest eigenvalue of ones is their number, and computed it is often a little less."""
    for n in range(2, 101):
        found = certify(Linear(np.ones((n, n))) + Trace(1.0), np.zeros((n, 1)))[0].eigenvalue
        assert n - 1.0 <= found <= (n - 1.0) * (1.0 + 1e-12)


@pytest.mark.parametrize("name", sorted(convex_costs()))
def test_the_certificate_holds_for_every_cost(name: str) -> None:
    """The minimum of a tight run takes the place of the closed form."""
    loss = convex_costs()[name]
    cost = loss + Trace(0.7)
    best = run(cost, RankIncremental(tol=1e-9))
    assert best.is_global
    assert best.certificate.relative_gap <= 1e-9
    rng = np.random.default_rng(2)
    Y = best.point.factor()
    for size in (1e-5, 1e-3, 0.1, 1.0):
        for columns in (Y.shape[1], max(1, Y.shape[1] - 1)):
            moved = Y[:, :columns] + size * rng.standard_normal((len(Y), columns))
            found, _, _ = certify(cost, moved)
            assert found.gap >= found.objective - best.certificate.objective - 1e-9 * found.objective
    lower = cost.lower_bound + cost.trace_weight * np.vdot(Y, Y)
    assert best.certificate.objective >= lower


@pytest.mark.parametrize(
    "inner",
    [
        TrustRegions(),
        LBFGS(),
        Hybrid(),
        PymanoptSolver("ConjugateGradient", max_iterations=200, min_gradient_norm=1e-9),
        PymanoptSolver("TrustRegions", max_iterations=50, min_gradient_norm=1e-9),
        SGD(0.002, max_iter=400),
    ],
    ids=lambda inner: type(inner).__name__ + type(getattr(inner, "optimizer", inner)).__name__,
)
def test_any_local_optimiser(inner: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((9, 9)))[0] * np.linspace(1.0, 2.0, 9)
    cost, minimum = MetricRegression(X) + Trace(1.5), closed_form(X, 1.5)[1]
    result = run(cost, RankIncremental(inner=inner, tol=1e-5, max_iter=40))
    assert result.is_global, result.stopped_by
    assert result.certificate.objective <= minimum * (1 + 1e-5)


def test_strategies_differ_as_their_descriptions_say() -> None:
    _, cost, minimum = regression(16, 40)
    rows = {
        name: run(cost, solver).history
        for name, solver in {
            "exponential": RankIncremental(columns=1),
            "linear": RankIncremental(columns=1, factor=1),
            "journee": RankIncremental(columns=1, factor=1, rescale=False),
            "boosting": RankIncremental(columns=1, factor=1, inner=None, max_iter=400),
        }.items()
    }
    assert [row["rank"] for row in rows["exponential"]][:5] == [0, 1, 3, 7, 15]
    assert [row["rank"] for row in rows["linear"]][:5] == [0, 1, 2, 3, 4]
    assert len(rows["exponential"]) < len(rows["linear"]) / 2
    for found in rows.values():
        objectives = [row["objective"] for row in found]
        assert all(np.diff(objectives) <= 1e-12 * objectives[0])
        np.testing.assert_allclose(objectives[-1], minimum, rtol=1e-5)


def test_a_large_weight_gives_the_zero_matrix() -> None:
    X, cost, _ = regression(6, 10, 1e9)
    result = run(cost, RankIncremental())
    assert result.point.rank == 0
    assert result.point.Q.shape == (6, 0)
    assert result.is_global
    assert result.steps <= 1
    np.testing.assert_allclose(result.certificate.objective, np.sum((X.T @ X) ** 2))


def test_the_rank_may_shrink() -> None:
    _, cost, minimum = regression(10, 20, 3e3)
    best = run(cost, RankIncremental())
    assert 0 < best.point.rank < 10
    wide = PSDFixedRank(10, 10).random_point(np.random.default_rng(0))
    result = run(cost, RankIncremental(), wide)
    assert result.point.rank == best.point.rank
    np.testing.assert_allclose(result.certificate.objective, minimum, rtol=1e-6)


def test_saddle_points_are_left() -> None:
    """The minimum over fewer columns, padded by zeros, is a critical point of any width."""
    _, cost, minimum = regression(8, 20)
    W, _ = closed_form(np.random.default_rng([0, 8, 20]).standard_normal((8, 20)), 0.5)
    values, vectors = np.linalg.eigh(W)
    saddle = vectors[:, :3] * np.sqrt(values[:3])
    padded = np.hstack([saddle, np.zeros((8, 5))])
    assert np.linalg.norm(cost.at(padded).factor_gradient()) < 1e-6
    wide = Problem(PSDFactors(8, 8), cost)
    with pytest.warns(RuntimeWarning, match="a maximum or a saddle"):
        stuck = LBFGS(gradient_norm=1e-6).run(wide, padded).point
    left = TrustRegions().run(wide, padded).point
    assert cost.at(stuck).value > 1.5 * minimum
    assert cost.at(left).value < (1.0 + 1e-6) * minimum
    result = run(cost, RankIncremental(), point_of(saddle))
    assert result.is_global
    np.testing.assert_allclose(result.certificate.objective, minimum, rtol=1e-8)


class Idle(PymanoptSolver):
    """A local optimiser that does nothing, and one that makes matters worse."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def run(self, problem: Problem, initial_point: PSDPoint, **options: Any) -> Any:  # type: ignore[override]
        moved = PSDPoint(initial_point.Q, self.factor * initial_point.S)
        return dataclasses.make_dataclass("Found", ["point"])(moved)


@pytest.mark.parametrize("factor", [1.0, 50.0])
def test_rounds_without_progress_end_the_run(factor: float) -> None:
    rng = np.random.default_rng(3)
    loss = MultilabelCoembedding(rng.standard_normal((30, 4)), rng.random((30, 3)) < 0.5)
    result = minimise(loss, 1.0, RankIncremental(inner=Idle(factor), tol=0.0, max_iter=500))
    assert "without progress" in result.stopped_by
    assert result.steps < 500
    objectives = [row["objective"] for row in result.history]
    assert all(np.diff(objectives) <= 1e-12 * objectives[0])


def test_numbers_that_are_not_finite_end_the_run() -> None:
    _, cost, _ = regression(6, 10)
    with pytest.raises(DivergedError, match="diverged at step 0"):
        run(cost, RankIncremental(columns=1, inner=Idle(np.nan)))
    # Of more columns no eigenvalues are found.
    with pytest.raises(DivergedError, match="broke down at step 0 or soon after"):
        run(cost, RankIncremental(inner=Idle(np.nan)))


def test_the_largest_rank() -> None:
    _, cost, minimum = regression(10, 30)
    result = run(cost, RankIncremental(max_rank=3))
    assert result.point.rank == 3
    assert result.stopped_by == "max_rank = 3"
    assert not result.is_global
    assert result.certificate.objective > minimum
    assert result.gap >= result.certificate.objective - minimum
    boosted = run(cost, RankIncremental(max_rank=3, inner=None))
    assert boosted.point.rank == 3
    assert boosted.stopped_by == "max_rank = 3"


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "softmax"])
def test_a_rank_that_is_limited_ends_at_a_minimum_of_that_rank(loss: str) -> None:
    """Rounds end after a few steps; the run used to end with the first that found no room for columns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 5)) / 2
    Y = np.c_[X @ rng.standard_normal((5, 4)) > 0.3, np.zeros((100, 12))].astype(int)
    cost = MultilabelCoembedding(X, Y) if loss == "softmax" else OneVsRestCoembedding(X, Y, loss)
    objectives = []
    for rank in (3, 12):
        result = run(cost + Trace(2.0), RankIncremental(tol=1e-4, max_rank=rank))
        assert result.point.rank <= rank
        Q = result.point.factor()
        further = LBFGS(20, max_iter=500, tol=0).run(Problem(PSDFactors(*Q.shape), cost + Trace(2.0)), Q)
        objectives.append(result.certificate.objective)
        assert objectives[-1] - (cost + Trace(2.0)).value(further.point) <= 1e-4 * objectives[-1]
    assert objectives[1] < objectives[0]


def test_a_run_that_was_cut_off_ends_with_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    loss = MultilabelCoembedding(rng.standard_normal((50, 6)), rng.random((50, 4)) < 0.4)
    whole = run(loss + Trace(0.5), RankIncremental())
    assert whole.steps >= 3
    path = tmp_path / "run.npz"
    part = run(
        loss + Trace(0.5),
        RankIncremental(),
        checkpoint=Checkpoint(path, 0.0),
        stop=lambda rows: "cut" if len(rows) == 3 else None,
    )
    assert part.stopped_by == "cut"
    resumed = run(loss + Trace(0.5), RankIncremental(), checkpoint=Checkpoint(path))
    np.testing.assert_array_equal(resumed.point.Q, whole.point.Q)
    np.testing.assert_array_equal(resumed.point.S, whole.point.S)
    assert [row["objective"] for row in resumed.history] == [row["objective"] for row in whole.history]
    with pytest.raises(InvalidInputError, match="another run"):
        run(loss + Trace(0.6), RankIncremental(), checkpoint=Checkpoint(path))


@each_row(
    ("call", "words"),
    [
        (lambda: RankIncremental(inner="newtown"), "inner = 'newtown'"),
        (lambda: certify(regression(5, 5)[1], np.ones((4, 2))), r"shape \(5, 2\), got shape \(4, 2\)"),
        (lambda: certify(np.eye(5), np.eye(5)), "must be a ConvexCost"),  # type: ignore[arg-type]
        (lambda: run(regression(5, 5)[1].parts[0], RankIncremental()), "add Trace"),  # type: ignore[attr-defined]
        (lambda: run(regression(5, 5)[1], RankIncremental(), np.eye(5)), "a point of"),
    ],
)
def test_bad_input_is_named(call: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        call()
