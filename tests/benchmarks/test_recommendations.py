"""Lists of recommendations from implicit feedback, MovieLens with ratings from 4 on as what was liked.

A tenth of what was liked is held out. Parameters are chosen for each method by nDCG on a tenth of the first training
part. Counts with heavy tails are drawn for the pairs of MovieLens-1M.
"""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from problems.data import Ratings, load
from problems.subspace import EntryKFold, ImplicitALS
from problems.subspace.baselines import ItemNeighbors, MostPopular
from problems.subspace.completer import Ranked, ranked_lists

RANK, SWEEPS = 64, 15
Factors = tuple[np.ndarray, np.ndarray]


def popular(table: sp.csc_array, seed: int) -> Factors:
    return np.diff(sp.csr_array(table).indptr)[:, None].astype(float), np.ones((table.shape[1], 1))


def ours(table: sp.csc_array, seed: int, sweeps: int = SWEEPS, **options: float) -> Factors:
    model = ImplicitALS(RANK, max_iter=sweeps, random_state=seed, **options).fit(table)
    return model.components_, model.weights_


def implicit(
    table: sp.csc_array, seed: int, alpha: float, lam: float, sweeps: int = SWEEPS, rank: int = RANK
) -> Factors:
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        rank, regularization=lam, alpha=1.0, iterations=sweeps, num_threads=1, random_state=seed
    )
    # There a stored value is the whole confidence.
    model.fit(sp.csr_matrix((1.0 + alpha) * table.T), show_progress=False)
    return model.item_factors, model.user_factors


def cmfrec(table: sp.csc_array, seed: int, alpha: float, lam: float, sweeps: int = SWEEPS) -> Factors:
    from cmfrec import CMF_implicit

    model = CMF_implicit(
        RANK, lambda_=lam, alpha=alpha, niter=sweeps, nthreads=1, verbose=False, random_state=seed
    )
    model.fit(sp.coo_matrix(table))
    return model.A_, model.B_


def measured_lists(factors: Factors, known: sp.csc_array, held_out: sp.csc_array) -> Ranked:
    U, W = factors
    return ranked_lists(lambda user: U @ W[user], known, held_out, 10)


def tabled(pairs: np.ndarray, shape: tuple[int, int]) -> sp.csc_array:
    return sp.csc_array((np.ones(len(pairs)), tuple(pairs.T)), shape=shape)


@pytest.mark.parametrize("name", ["ml100k", "ml1m"])
def test_lists(measured: Any, name: str) -> None:
    """Ten recommendations, rank 64, random splits 90/10 of what was liked: means, and CPU seconds of fit."""
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no MovieLens.")
    measured(lists, name, 5 if name == "ml100k" else 3)


def lists(name: str, n_splits: int) -> list[dict[str, Any]]:
    bundle = load(name, kind=Ratings)
    liked = np.column_stack([bundle.rows, bundle.columns])[bundle.values >= 4]
    hidden = [np.random.default_rng(seed).random(len(liked)) < 0.1 for seed in range(n_splits)]
    train = liked[~hidden[0]]
    inner = np.random.default_rng(100).random(len(train)) < 0.1
    weights = {"alpha": (0.5, 2.0, 8.0)}
    methods: dict[str, tuple[Callable[..., Factors], dict[str, tuple[float, ...]]]] = {
        "the most popular": (popular, {}),
        "ImplicitALS": (ours, weights | {"lam": (1.0, 3.0, 10.0)}),
        "implicit": (implicit, weights | {"lam": (3.0, 10.0, 30.0, 100.0)}),
        "cmfrec": (cmfrec, weights | {"lam": (3.0, 10.0, 30.0, 100.0)}),
    }
    rows = []
    for label, (fitted, grid) in methods.items():
        if label in ("implicit", "cmfrec") and find_spec(label) is None:
            continue
        chosen, best = {}, -1.0
        for values in product(*grid.values()):
            options = dict(zip(grid, values, strict=True))
            parts = [tabled(part, bundle.shape) for part in (train[~inner], train[inner])]
            ndcg = measured_lists(fitted(parts[0], 0, **options), *parts).ndcg
            if ndcg > best:
                chosen, best = options, ndcg
        found, seconds = [], []
        for seed, held_out in enumerate(hidden):
            known = tabled(liked[~held_out], bundle.shape)
            begun = time.process_time()
            factors = partial(fitted, **chosen)(known, seed)
            seconds.append(time.process_time() - begun)
            found.append(measured_lists(factors, known, tabled(liked[held_out], bundle.shape))[:3])
        means, errors = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / n_splits**0.5
        cells = (f"{mean:.4f} ± {error:.4f}" for mean, error in zip(means, errors, strict=True))
        about = ", ".join(f"{key} {value:g}" for key, value in chosen.items())
        row = {"data": name, "method": label, "chosen": about}
        row |= dict(zip(("P@10", "recall@10", "nDCG@10"), cells, strict=True))
        rows.append(row | {"CPU seconds": float(np.median(seconds))})
    return rows


@pytest.mark.parametrize("rank", [10, 64])
def test_counts(measured: Any, rank: int) -> None:
    """Ten recommendations to 6,040 users from counts up to 10⁶: by defaults, and the best implicit of 27."""
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no MovieLens.")
    measured(counts, rank)


def counts(rank: int) -> list[dict[str, Any]]:
    bundle, rng = load("ml1m", kind=Ratings), np.random.default_rng(0)
    pairs = np.column_stack([bundle.rows, bundle.columns])
    of_items = 1.5 * rng.standard_normal(bundle.shape[0])
    plays = np.ceil(np.exp(rng.normal(3.0, 2.0, len(pairs)) + of_items[bundle.rows]))
    models: dict[str, Any] = {"the most popular": MostPopular(), "neighbours by BM25": ItemNeighbors()} | {
        f"ImplicitALS, weights={weights}": ImplicitALS(rank, weights=weights, random_state=0)
        for weights in ("bm25", "log", "ones", "counts")
    }
    folds, rows = list(EntryKFold(10).split(pairs))[:3], []
    if find_spec("implicit"):
        first, third = folds[0][0], pairs[folds[0][0]][:, 1] % 3 == 0
        [(train, test)] = list(EntryKFold(10, random_state=1).split(pairs[first[third]]))[:1]
        grid = product(PEERS, (0.5, 2.0, 8.0), (3.0, 30.0, 100.0))
        tried = [Peer(rank, *point) for point in grid]
        known, hidden = first[third][train], first[third][test]
        scores = [one.fit(pairs[known], plays[known]).score(pairs[hidden], plays[hidden]) for one in tried]
        best = tried[int(np.argmax(scores))]
        models[f"implicit, {best.weights}, alpha {best.alpha:g}, lam {best.lam:g}"] = best
    for label, model in models.items():
        found, seconds = [], []
        for train, test in folds:
            begun = time.process_time()
            with warnings.catch_warnings(action="ignore"):
                model.fit(pairs[train], plays[train], shape=bundle.shape)
            seconds.append(time.process_time() - begun)
            found.append(model.score(pairs[test], plays[test]))
        cell = f"{np.mean(found):.4f} ± {np.std(found, ddof=1) / 3**0.5:.4f}"
        rows.append(
            {"rank": rank, "method": label, "nDCG@10": cell, "CPU seconds": float(np.median(seconds))}
        )
    return rows


PEERS = ("ones", "log", "bm25")


@dataclass
class Peer:
    """implicit, by weights of its own; chosen by a tenth of what a third of the users have in a training part."""

    rank: int
    weights: str
    alpha: float
    lam: float

    def fit(self, pairs: np.ndarray, plays: np.ndarray, shape: Any = None) -> Any:
        from implicit.nearest_neighbours import bm25_weight

        self.known = sp.csc_array((plays, tuple(pairs.T)), shape=shape or tuple(pairs.max(axis=0) + 1))
        table = self.known.copy()
        if self.weights == "bm25":
            # Its rows are what is recommended.
            table = sp.csc_array(bm25_weight(table, K1=100, B=0.8))
        table.data = {"ones": np.ones_like, "log": np.log1p}.get(self.weights, np.array)(table.data)
        table.data *= self.alpha / table.data.mean()
        table.data += 1.0
        self.factors = implicit(table, 0, 0.0, self.lam, rank=self.rank)
        return self

    def score(self, pairs: np.ndarray, plays: np.ndarray) -> float:
        pairs = pairs[(pairs < self.known.shape).all(axis=1)]
        return measured_lists(self.factors, self.known, tabled(pairs, self.known.shape)).ndcg


def test_two_sweeps(measured: Any) -> None:
    """10⁷ entries by Zipf of 10,000 items and 70,000 users, rank 64, two sweeps on one thread: CPU seconds of fit."""
    measured(two_sweeps)


def two_sweeps() -> list[dict[str, Any]]:
    rng, shape, rows = np.random.default_rng(0), (10_000, 70_000), []
    # The first time entries are few, to compile.
    for n_entries in (20_000, 10_000_000):
        shares = (np.arange(shape[0]) + 20.0) ** -0.9, (np.arange(shape[1]) + 100.0) ** -0.6
        items, users = (rng.choice(len(p), int(1.3 * n_entries), p=p / p.sum()) for p in shares)
        places = rng.permutation(np.unique(items * shape[1] + users))[:n_entries]
        table, rows = tabled(np.column_stack(np.divmod(places, shape[1])), shape), []
        for label, fitted in {"ImplicitALS": ours, "implicit": implicit, "cmfrec": cmfrec}.items():
            if label == "ImplicitALS" or find_spec(label):
                begun = time.process_time()
                fitted(table, 0, alpha=1.0, lam=3.0, sweeps=2)
                rows.append({"method": label, "CPU seconds": time.process_time() - begun})
    return rows
