"""Batch matrix completion beside its peers and its floor.

The floor is one fused pass over the entries: residuals and gradient for given factors. cmfrec takes part when it is
installed.

Run with ``pytest -o addopts= -s tests/benchmarks/test_completion_time.py``.
"""

import os
import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pymanopt
import pytest
import scipy.sparse as sp
from low_rank_agents import low_rank_tasks
from numba import njit
from pymanopt.manifolds import FixedRankEmbedded as PymanoptFixedRank
from pymanopt.optimizers import ConjugateGradient
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits
from timing import median

from problems.data import Ratings, load
from problems.subspace import RCGMC, RTRMC, BayesianCompletion, BiasedALS, ScaledSGDCompletion
from problems.subspace.baselines import Biases, MyFM
from problems.subspace.cost import MatrixCompletion, columns_of

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


def relative_residual(tasks: MatrixCompletion, U: np.ndarray) -> float:
    return float(np.sqrt(tasks.residual_sum(U, 0)[0]) / np.linalg.norm(tasks.parts[0].data))


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
def test_random_matrices(measured: Any, size: int, slow_peer: bool) -> None:
    """Random matrices of rank 5, oversampling 6, to a relative residual of 1e-6, start included."""
    rows = measured(complete, size, slow_peer)
    assert all(row["residual"] < WANTED for row in rows if row["method"] in ("RTRMC", "RCGMC"))


def complete(size: int, slow_peer: bool) -> list[dict[str, Any]]:
    tasks = low_rank_tasks(size, size, RANK, 1, noise=0.0)
    whole = tasks.parts[0]
    rows, columns = whole.indices, columns_of(whole)
    rng = np.random.default_rng(0)
    U, W = rng.standard_normal((size, RANK)), rng.standard_normal((size, RANK))
    G = np.zeros_like(U)
    fused_pass(rows, columns, whole.data, U, W, G)
    floor, _ = median(lambda: fused_pass(rows, columns, whole.data, U, W, G), 9)
    found = [{"method": "one fused pass", "seconds": floor}]
    with threadpool_limits(1, user_api="blas"):
        for make in (RTRMC, RCGMC):
            model = make(RANK, max_iter=100, tol=2e-6)

            def run(model: Any = model) -> np.ndarray:
                return model.learn(MatrixCompletion({0: whole}, 1), 0)

            run()
            seconds, basis = median(run, 5)
            residual = relative_residual(tasks, basis)
            row = {
                "method": make.__name__,
                "seconds": seconds,
                "iterations": model.n_iter_,
                "residual": residual,
            }
            found.append(row)
    for threads in (1, 2):
        seconds, residual = cmfrec_als(whole, threads)
        if seconds is not None:
            found.append({"method": f"cmfrec, {threads} threads", "seconds": seconds, "residual": residual})
    if slow_peer:
        seconds, residual = pymanopt_cg(whole)
        found.append({"method": "pymanopt CG, fixed rank", "seconds": seconds, "residual": residual})
    size_of = {"n = m": size, "entries": int(whole.nnz)}
    return [size_of | row | {"passes": row["seconds"] / floor} for row in found]


def cmfrec_als(whole: Any, threads: int) -> tuple[float | None, float | None]:
    """Return seconds and residual of alternating least squares, or Nones without the package."""
    try:
        import cmfrec
        import pandas as pd
    except ImportError:
        return None, None
    rows, columns = whole.indices, columns_of(whole)
    frame = pd.DataFrame({"UserId": rows, "ItemId": columns, "Rating": whole.data})
    begun = time.perf_counter()
    model = cmfrec.CMF(
        k=RANK, lambda_=1e-9, niter=25, use_cg=False, user_bias=False, item_bias=False, center=False,
        nthreads=threads, verbose=False,
    ).fit(frame)  # fmt: skip
    seconds = time.perf_counter() - begun
    gaps = model.predict(rows, columns) - whole.data
    return seconds, float(np.linalg.norm(gaps) / np.linalg.norm(whole.data))


# myfm imports pkg_resources, which says that it is to go.
@pytest.mark.filterwarnings("ignore:pkg_resources is deprecated:UserWarning")
@pytest.mark.parametrize("name", ["ml1m", "ml100k"])
def test_five_splits(measured: Any, name: str) -> None:
    """Ratings on five random splits 90/10: errors and CPU seconds of fit, all in one process."""
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no MovieLens.")
    measured(five_splits, name, models_of_ratings)


@pytest.mark.parametrize("name", ["ml1m", "ml100k"])
def test_which_are_known(measured: Any, name: str) -> None:
    """Which films a user rated, and who rated a film, as features: five random splits 90/10, all in one process."""
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no MovieLens.")
    measured(five_splits, name, models_of_known)


def test_subspaces(measured: Any) -> None:
    """MovieLens-1M, one subspace of rank 10, λ on entries that are not known or on all: five random splits 90/10."""
    measured(five_splits, "ml1m", lambda large: {"RCGMC, λ = 0.005": RCGMC(10, lam=0.005, handle_unknown="mean")} | {
        f"RTRMC, λ = {lam:g}{on}": RTRMC(10, lam=lam, penalty=penalty, handle_unknown="mean")
        for penalty, on in (("unknown", ""), ("all", " on all")) for lam in (0.0025, 0.005, 0.01)
    })  # fmt: skip


def models_of_known(large: bool) -> dict[str, Any]:
    options: Any = {"implicit": True, "handle_unknown": "mean"}
    return {
        f"BayesianCompletion, rank {rank}, implicit, {burn_in} + {samples}": BayesianCompletion(
            rank, n_samples=samples, burn_in=burn_in, **options
        )
        for rank, burn_in, samples in ((10, 20, 100), (20, 20, 100), (32, 20, 200), (40, 40, 400))
    }


@dataclass(eq=False, repr=False)
class CMFRec(BaseEstimator):
    """cmfrec: alternating least squares with effects (Cortes 2018), on one thread."""

    rank: int = 10
    lam: float = 10.0
    random_state: int = 0

    def fit(self, pairs: Any, values: Any) -> Any:
        import cmfrec

        rows, columns = np.transpose(pairs)
        self.sizes_, self.mean_ = np.max(pairs, axis=0) + 1, values.mean()
        self.seen_ = [np.bincount(side) > 0 for side in (rows, columns)]
        how = {"niter": 25, "use_cg": False, "nthreads": 1, "random_state": self.random_state}
        self.model_ = cmfrec.CMF(k=self.rank, lambda_=self.lam, verbose=False, **how)
        self.model_.fit(sp.coo_matrix((values, (rows, columns)), shape=self.sizes_))
        return self

    def predict(self, pairs: Any) -> Any:
        known, found = (pairs < self.sizes_).all(axis=1), np.full(len(pairs), self.mean_)
        # What it has for rows and columns without entries may be any number.
        for side, seen in zip(pairs.T, self.seen_, strict=True):
            known[known] = seen[side[known]]
        found[known] = self.model_.predict(*pairs[known].T)
        return np.nan_to_num(found, nan=self.mean_)


def models_of_ratings(large: bool) -> dict[str, Any]:
    """Penalties are those that cross-validation on a training part likes best."""
    unseen = {"handle_unknown": "mean"}
    models: dict[str, Any] = {
        "biases alone": Biases(lam_effects=2.0 if large else 4.0, **unseen),
        "BiasedALS": BiasedALS(10, lam=0.7 if large else 1.0, **unseen),
        "BiasedALS, 8 sweeps": BiasedALS(10, lam=0.7 if large else 1.0, max_iter=8, **unseen),
        "ScaledSGDCompletion, rank 32": ScaledSGDCompletion(32, lam=0.05 if large else 0.08, **unseen),
        "BayesianCompletion, 3 + 9 sweeps": BayesianCompletion(10, n_samples=9, burn_in=3, **unseen),
        "BayesianCompletion, 10 + 30": BayesianCompletion(10, n_samples=30, **unseen),
        "BayesianCompletion, 10 + 100": BayesianCompletion(10, **unseen),
        "BayesianCompletion, 10 + 500": BayesianCompletion(10, n_samples=500, **unseen),
        "BayesianCompletion, rank 20, 10 + 30": BayesianCompletion(20, n_samples=30, **unseen),
        "BayesianCompletion, rank 20, 10 + 100": BayesianCompletion(20, **unseen),
    }
    peers = {"cmfrec": CMFRec(10, lam=10.0 if large else 15.0), "myfm": MyFM(10)}
    return models | {name: model for name, model in peers.items() if find_spec(name)}


def books(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs and ratings, 1 to 10: four a row on average by Zipf, effects, hardly any factors, much noise."""
    rng, size = np.random.default_rng(seed), 15_000
    shares = 1.0 / (np.arange(size) + 5.0) ** 0.8
    sides = [rng.permutation(size)[rng.choice(size, 66_000, p=shares / shares.sum())] for _ in range(2)]
    pairs = rng.permutation(np.unique(np.column_stack(sides), axis=0))[: 4 * size]
    rows, columns = pairs.T
    U, W = 0.2 * rng.standard_normal((2, size, 10))
    b, c = 0.8 * rng.standard_normal((2, size))
    expected = 7.0 + b[rows] + c[columns] + np.einsum("ij,ij->i", U[rows], W[columns])
    return pairs, np.clip(np.round(expected + 1.4 * rng.standard_normal(len(pairs))), 1.0, 10.0)


def test_sparse_and_noisy(measured: Any) -> None:
    """Four ratings a row on average, made up, five times: by defaults, with paired differences to effects alone."""
    measured(sparse_and_noisy)


def sparse_and_noisy() -> list[dict[str, Any]]:
    unseen, errors = {"handle_unknown": "mean", "limits": (1.0, 10.0)}, {}
    models: dict[str, Any] = {"users and items alone": Biases(**unseen)} | {
        f"{kind.__name__}, rank {rank}": kind(rank, **unseen)
        for rank in (1, 10)
        for kind in (BiasedALS, BayesianCompletion)
    }
    for label, model in models.items():
        errors[label] = []
        for seed in range(5):
            pairs, values = books(seed)
            hidden = np.random.default_rng(seed).random(len(values)) < 0.1
            model.set_params(random_state=seed).fit(pairs[~hidden], values[~hidden], shape=(15_000, 15_000))
            with warnings.catch_warnings(action="ignore"):
                errors[label].append(model.rmse(pairs[hidden], values[hidden]))
    first = np.array(errors["users and items alone"])
    return [{
        "method": label, "RMSE": f"{np.mean(found):.4f}",
        "above effects alone": f"{np.mean(found - first):.4f} ± {np.std(found - first, ddof=1) / 5**0.5:.4f}",
    } for label, found in errors.items()]  # fmt: skip


def five_splits(name: str, models_of: Any) -> list[dict[str, Any]]:
    bundle = load(name, kind=Ratings)
    models, rows = models_of(name == "ml1m"), []
    pairs = np.column_stack([bundle.rows, bundle.columns])
    few = np.random.default_rng(0).permutation(len(pairs))[:3000]
    for label, model in models.items():
        # Compiled and imported before the clock starts.
        model.fit(pairs[few], bundle.values[few])
        errors, seconds = [], []
        for seed in range(5):
            hidden = bundle.held_out(seed, 0.1)
            if "random_state" in model.get_params():
                model.set_params(random_state=seed)
            begun = time.process_time()
            model.fit(pairs[~hidden], bundle.values[~hidden])
            seconds.append(time.process_time() - begun)
            with warnings.catch_warnings(action="ignore"):
                found = np.clip(model.predict(pairs[hidden]), *bundle.limits)
            errors.append(float(np.sqrt(np.mean((found - bundle.values[hidden]) ** 2))))
        error = f"{np.mean(errors):.4f} ± {np.std(errors, ddof=1) / 5**0.5:.4f}"
        rows.append({"data": name, "method": label, "RMSE": error, "CPU seconds": float(np.median(seconds))})
    return rows
