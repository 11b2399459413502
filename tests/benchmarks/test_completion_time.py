"""Batch matrix completion beside its peers and its floor.

The floor is one fused pass over the entries: residuals and gradient for given factors. cmfrec takes part when it is
installed.

Run with ``pytest -o addopts= -s tests/benchmarks/test_completion_time.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pymanopt
import pytest
from numba import njit
from pymanopt.manifolds import FixedRankEmbedded as PymanoptFixedRank
from pymanopt.optimizers import ConjugateGradient
from threadpoolctl import threadpool_limits

from problems.ratings import ml1m
from problems.subspace import RCGMC, RTRMC
from problems.subspace.completion import MatrixCompletion, columns_of
from problems.subspace.shares import low_rank_shares
from rmopt.engines import OneProcess

RANK, WANTED = 5, 1e-6


@njit(fastmath=True)
def fused_pass(rows: Any, columns: Any, values: Any, U: Any, W: Any, G: Any) -> float:
    total = 0.0
    for t in range(values.shape[0]):
        i, j, z = rows[t], columns[t], -values[t]
        for a in range(U.shape[1]):
            z += U[i, a] * W[j, a]
        total += z * z
        for a in range(U.shape[1]):
            G[i, a] += z * W[j, a]
    return total


def median(run: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    seconds, found = [], None
    for _ in range(rounds):
        begun = time.perf_counter()
        found = run()
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds)), found


def relative_residual(tasks: MatrixCompletion, U: np.ndarray) -> float:
    whole = tasks.whole
    return tasks.root_mean_square(U) * np.sqrt(whole.nnz) / float(np.linalg.norm(whole.data))


def pymanopt_cg(whole: Any) -> tuple[float, float]:
    """Return seconds and residual of pymanopt's own fixed-rank manifold, with the gradient by hand."""
    m, n = whole.shape
    manifold = PymanoptFixedRank(m, n, RANK)
    rows, columns = whole.indices, columns_of(whole)

    def gaps(u: Any, s: Any, vt: Any) -> np.ndarray:
        return np.einsum("ij,ij->i", (u * s)[rows], vt.T[columns]) - whole.data

    @pymanopt.function.numpy(manifold)
    def cost(u: Any, s: Any, vt: Any) -> float:
        return 0.5 * float(np.sum(gaps(u, s, vt) ** 2))

    @pymanopt.function.numpy(manifold)
    def gradient(u: Any, s: Any, vt: Any) -> tuple[np.ndarray, ...]:
        S = type(whole)((gaps(u, s, vt), whole.indices, whole.indptr), shape=whole.shape)
        SV, STU = S @ vt.T, S.T @ u
        return SV * s, np.einsum("ij,ij->j", u, SV), (STU * s).T

    problem = pymanopt.Problem(manifold, cost, euclidean_gradient=gradient)
    optimizer = ConjugateGradient(max_iterations=60, min_gradient_norm=1e-4, verbosity=0)
    begun = time.perf_counter()
    found = optimizer.run(problem, initial_point=manifold.random_point())
    seconds = time.perf_counter() - begun
    return seconds, float(np.linalg.norm(gaps(*found.point)) / np.linalg.norm(whole.data))


@pytest.mark.parametrize(("size", "slow_peer"), [(5_000, True), (10_000, False)])
def test_random_matrices(size: int, slow_peer: bool) -> None:
    tasks = low_rank_shares(size, size, RANK, 1, OneProcess(), noise=0.0).tasks
    whole = tasks.whole
    rows, columns = whole.indices, columns_of(whole)
    rng = np.random.default_rng(0)
    U, W = rng.standard_normal((size, RANK)), rng.standard_normal((size, RANK))
    G = np.zeros_like(U)
    fused_pass(rows, columns, whole.data, U, W, G)
    floor, _ = median(lambda: fused_pass(rows, columns, whole.data, U, W, G), 9)
    print(f"\n{size} × {size}, rank {RANK}, {whole.nnz:,} entries; one fused pass {1e3 * floor:.2f} ms")
    with threadpool_limits(1, user_api="blas"):
        for make in (RTRMC, RCGMC):
            model = make(RANK, max_iterations=100, tol=2e-6)

            def run(model: Any = model) -> np.ndarray:
                return model.learn(MatrixCompletion({0: whole}, 1), None, 0)

            run()
            seconds, basis = median(run, 5)
            residual = relative_residual(tasks, basis)
            print(
                f"  {make.__name__:7} {seconds:.3f} s = {seconds / floor:.0f} passes, {model.n_iter_} iterations, "
                f"relative residual {residual:.1e}"
            )
            assert residual < WANTED
    try:
        import cmfrec
        import pandas as pd
    except ImportError:
        print("  cmfrec is not installed")
    else:
        frame = pd.DataFrame({"UserId": rows, "ItemId": columns, "Rating": whole.data})
        for threads in (1, 2):
            begun = time.perf_counter()
            model = cmfrec.CMF(
                k=RANK, lambda_=1e-9, niter=25, use_cg=False, user_bias=False, item_bias=False, center=False,
                nthreads=threads, verbose=False,
            ).fit(frame)  # fmt: skip
            seconds = time.perf_counter() - begun
            gaps = model.predict(rows, columns) - whole.data
            residual = np.linalg.norm(gaps) / np.linalg.norm(whole.data)
            print(f"  cmfrec ALS, {threads} threads {seconds:.3f} s, relative residual {residual:.1e}")
    if slow_peer:
        seconds, residual = pymanopt_cg(whole)
        print(f"  pymanopt CG, fixed rank {seconds:.1f} s, relative residual {residual:.1e}")


def test_movielens() -> None:
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no MovieLens.")
    bundle = ml1m()
    for share, wanted in ((0.2, "≤ 0.870 and ≤ 0.855 with effects"), (0.1, "≤ 0.850 with effects")):
        hidden = bundle.held_out(0, share)
        train, test = bundle.table(~hidden), bundle.table(hidden)
        print(f"\nMovieLens-1M, {share:.0%} held out; wanted {wanted}, in ≤ 2 s")
        for make, lam, options in (
            (RTRMC, 0.005, {"max_iterations": 12}),
            (RCGMC, 0.005, {"max_iterations": 20}),
            (RCGMC, 0.03, {"max_iterations": 6, "bias": True}),
        ):
            model = make(10, lam=lam, limits=bundle.limits, random_state=0, **options)
            seconds, _ = median(partial(model.fit, train), 3)
            print(
                f"  {make.__name__:7} lam = {lam:g}, {options}: {seconds:.2f} s, RMSE {model.rmse(test):.4f}"
            )
