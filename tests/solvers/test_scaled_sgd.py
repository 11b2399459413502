"""Steps on rows of factors against plain numpy, whatever the grid, the threads and the precision."""

from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp

import rmopt.solvers.stochastic.scaled_sgd as module
from problems.subspace import ScaledSGDCompletion
from rmopt import Problem
from rmopt.core import Parts, in_precision
from rmopt.core.streams import Stream, generator
from rmopt.costs import BilinearSum, OnFactors, squared
from rmopt.manifolds import BoundedRank, FixedRankFactors
from rmopt.solvers import InverseTime, ScaledSGD

Array = np.ndarray
M, N = 60, 45


def units(numbers: Any, size: int) -> sp.csr_array:
    return sp.eye_array(size).tocsr()[numbers]


def problem_of(rank: int, share: float = 0.5, condition: float = 1.0, kind: Any = FixedRankFactors) -> Any:
    """Return a problem and the matrix of which it knows entries."""
    rng = np.random.default_rng(0)
    A, B = (
        rng.standard_normal((M, rank)) * np.geomspace(1.0, 1.0 / condition, rank),
        rng.standard_normal((N, rank)),
    )
    rows, columns = np.nonzero(rng.random((M, N)) < share)
    truth = A @ B.T
    cost = OnFactors(BilinearSum(units(rows, M), units(columns, N), squared, truth[rows, columns]))
    return Problem(kind(M, N, rank), cost), truth


def plain(work: Any, W: Array, rank: int, epochs: int, solver: ScaledSGD) -> Array:
    """Return W after some passes, entry by entry, with the inverses of whole k × k matrices."""
    residuals = W[work.rows, work.columns] - work.values
    for epoch in range(epochs):
        U, S, Vt = np.linalg.svd(W, full_matrices=False)
        A, B = U[:, :rank] * np.sqrt(S[:rank]), Vt[:rank].T * np.sqrt(S[:rank])
        known = len(work.values) / (M * N)
        noise = np.sqrt(np.mean(np.square(residuals)) / known) * (np.sqrt(M) + np.sqrt(N))
        more = (solver.damping * noise + solver.penalty * np.sqrt(M * N)) * np.eye(rank)
        P, Q = np.linalg.inv(B.T @ B + more), np.linalg.inv(A.T @ A + more)
        eta = solver.step_size(np.array([epoch]))[0] / known
        shrink_A, shrink_B = (np.linalg.inv(np.eye(rank) + eta * solver.penalty * X) for X in (P, Q))
        residuals = []
        for diagonal in generator(work.seed, Stream.SCHEDULE, epoch).permutation(work.p):
            for t in range(work.cuts[diagonal * work.p], work.cuts[(diagonal + 1) * work.p]):
                i, j = work.rows[t], work.columns[t]
                a, b = A[i].copy(), B[j].copy()
                e = a @ b - work.values[t]
                tau = eta * e / (1.0 + eta * (b @ P @ b + a @ Q @ a))
                A[i], B[j] = shrink_A @ (a - tau * P @ b), shrink_B @ (b - tau * Q @ a)
                residuals.append(e)
        W = A @ B.T
    return W


@pytest.mark.parametrize("rank", [1, 7, 9, 33])
@pytest.mark.parametrize(("penalty", "damping"), [(0.0, 0.0), (0.0, 3.0), (0.02, 1.0)])
def test_passes_are_the_plain_ones(monkeypatch: Any, rank: int, penalty: float, damping: float) -> None:
    monkeypatch.setattr(module, "WORTH_THREADS", 100)
    problem, _ = problem_of(rank)
    solver = ScaledSGD(InverseTime(0.7, 0.5), n_epochs=3, penalty=penalty, damping=damping)
    start = problem.manifold.random_point(np.random.default_rng(1))
    work = solver.prepare(problem, 3)
    assert work.p == 8
    W = (start[0] @ start[1].T)[np.ix_(work.row_order, work.column_order)]
    expected = np.empty((M, N))
    expected[np.ix_(work.row_order, work.column_order)] = plain(work, W, rank, 3, solver)
    scale, points = np.abs(expected).max(), []
    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        points.append(solver.run(problem, start, random_state=3).point)
        numba.set_num_threads(before)
    np.testing.assert_allclose(points[0][0] @ points[0][1].T, expected, atol=1e-9 * scale)
    for one, other in zip(*points, strict=True):
        np.testing.assert_array_equal(one, other)
    single = solver.run(problem, in_precision(start, np.float32), random_state=3).point
    assert single[0].dtype == np.float32
    np.testing.assert_allclose(single[0] @ single[1].T, expected, atol=2e-4 * scale)


def test_the_grid_has_each_entry_once_and_its_diagonals_no_conflict(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "WORTH_THREADS", 100)
    problem, truth = problem_of(3)
    work = ScaledSGD().prepare(problem, 0)
    values = truth[work.row_order[work.rows], work.column_order[work.columns]]
    np.testing.assert_array_equal(values, work.values)
    assert len(set(zip(work.rows.tolist(), work.columns.tolist(), strict=True))) == len(
        problem.cost.cost.targets
    )
    for diagonal in range(work.p):
        cuts = work.cuts[diagonal * work.p : (diagonal + 1) * work.p + 1]
        for numbers in (work.rows, work.columns):
            blocks = [set(numbers[first:last]) for first, last in pairwise(cuts)]
            assert len(set().union(*blocks)) == sum(map(len, blocks))
        assert cuts[-1] - cuts[0] < 1.5 * len(work.values) / work.p


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e7])
def test_the_condition_does_not_matter(condition: float) -> None:
    problem, truth = problem_of(3, 0.7, condition)
    A, B = ScaledSGD(n_epochs=40).run(problem, random_state=0).point
    np.testing.assert_allclose(A @ B.T, truth, atol=1e-10)


def test_ranks_may_be_too_large_on_bounded_ranks() -> None:
    problem, truth = problem_of(2, 0.7, kind=BoundedRank)
    larger = Problem(BoundedRank(M, N, 4), problem.cost)
    A, B = ScaledSGD(n_epochs=60, penalty=1e-6).run(larger, random_state=0).point
    np.testing.assert_allclose(A @ B.T, truth, atol=1e-3)
    # A penalty beyond all measure leaves nothing.
    start = in_precision(larger.manifold.random_point(np.random.default_rng(0)), np.float32)
    A, B = ScaledSGD(n_epochs=200, penalty=100.0).run(larger, start, random_state=0).point
    assert np.abs(A @ B.T).max() < 1e-20


def test_repeated_entries_and_no_passes() -> None:
    cost = OnFactors(BilinearSum(units([0, 0, 2], 4), units([1, 1, 0], 3), squared, [1.0, 1.0, 2.0]))
    A, B = ScaledSGD(n_epochs=50).run(Problem(BoundedRank(4, 3, 2), cost), random_state=0).point
    np.testing.assert_allclose((A @ B.T)[[0, 2], [1, 0]], [1.0, 2.0], atol=1e-6)
    start = Parts([np.eye(4)[:, :2], np.eye(3)[:, :2]])
    found = ScaledSGD(n_epochs=0).run(Problem(BoundedRank(4, 3, 2), cost), start)
    np.testing.assert_array_equal(found.point[0], start[0])


def test_the_estimator_predicts_and_takes_in_a_column() -> None:
    rng = np.random.default_rng(0)
    truth = 3.0 + rng.standard_normal((80, 1)) + rng.standard_normal((80, 2)) @ rng.standard_normal((2, 70))
    known = rng.random(truth.shape) < 0.5
    noisy = truth + 0.1 * rng.standard_normal(truth.shape)
    table = sp.csc_array((noisy[:, :-1][known[:, :-1]], np.nonzero(known[:, :-1])), shape=(80, 69))
    model = ScaledSGDCompletion(2, lam=1e-3, random_state=0).fit(table)
    errors = [np.sqrt(np.mean((model.predict(range(80), j) - truth[:, j]) ** 2)) for j in range(69)]
    assert np.mean(errors) < 0.1
    rows = np.flatnonzero(known[:, -1])
    found = dict(model.recommend_to_new(dict(zip(rows.tolist(), noisy[rows, -1], strict=True)), 80))
    assert np.sqrt(np.mean((np.array([*found.values()]) - truth[[*found], -1]) ** 2)) < 0.15
