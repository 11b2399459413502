"""Clients that keep their data and a server that averages: on the manifold, and the factors as arrays.

Run with ``pytest -o addopts= -s tests/benchmarks/test_federated.py``.
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from problems.similarity import ClassTriplets, LoretaSimilarity
from rmopt.core import LowRankPoint
from rmopt.manifolds import FixedRankEmbedded, projected_mean

RANK, CLIENTS, STEPS, SPLITS = 10, 8, 160_000, 3
MANIFOLD = FixedRankEmbedded(64, 64, RANK)


def test_eight_clients_with_classes_of_their_own(measured: Any) -> None:
    """Digits, rank 10: eight clients with three to five of ten classes each, 160,000 triplets, three splits."""
    measured(federated)


def federated() -> list[dict[str, Any]]:
    X, y = load_digits(return_X_y=True)
    found: dict[tuple[str, int | None], list[float]] = {}
    for seed in range(SPLITS):
        rng = np.random.default_rng(seed)
        test, train = np.split(rng.permutation(len(y)), [600])
        parts = dealt(train, y, rng)
        clients = [(X[part] / 16, y[part]) for part in parts]
        shares = np.array([len(part) for part in parts]) / len(train)
        ends: dict[tuple[str, int | None], list[Any]] = {}
        for rounds in (5, 20, 50):
            steps = STEPS // CLIENTS // rounds
            for name, mean in MEANS.items():
                ends[name, rounds] = [together(clients, shares, mean, rounds, steps, seed)]
        for name in ("mean on the manifold", "mean on the manifold, outer step 2"):
            point = together(clients, shares, MEANS[name], 50, STEPS // 50, seed)
            ends[f"{name}, each client takes 160,000 steps", 50] = [point]
        start = MANIFOLD.identity()
        ends["each client alone, their mean", None] = [
            learned(start, *data, STEPS // CLIENTS, 0, seed) for data in clients
        ]
        triplets = [ClassTriplets(y[part]).draw(rng, 0, STEPS * len(part) // len(train)) for part in parts]
        known = np.concatenate([part[drawn] for part, drawn in zip(parts, triplets, strict=True)])
        model = LoretaSimilarity(RANK, max_iter=STEPS, random_state=seed).fit_triplets(X / 16, known)
        ends["one model on the triplets that clients have", None] = [model.model_.point]
        ends["one model on all data", None] = [learned(start, X[train] / 16, y[train], STEPS, 0, seed)]
        for key, points in ends.items():
            scores = [LoretaSimilarity(RANK).start_at(one).score(X[test] / 16, y[test]) for one in points]
            found.setdefault(key, []).append(float(np.mean(scores)))
    return [
        {"method": name, "rounds": rounds, "mAP": float(np.mean(each)), "standard error": error_of(each)}
        for (name, rounds), each in found.items()
    ]


def error_of(scores: list[float]) -> float:
    return float(np.std(scores, ddof=1) / np.sqrt(len(scores)))


def dealt(rows: Any, y: Any, rng: np.random.Generator) -> list[Any]:
    """Return the rows of each client: three shards of rows that were sorted by class."""
    shards = np.array_split(rows[np.argsort(y[rows], kind="stable")], 3 * CLIENTS)
    own = rng.permutation(3 * CLIENTS).reshape(CLIENTS, 3)
    return [np.concatenate([shards[number] for number in numbers]) for numbers in own]


def together(clients: list[Any], shares: Any, mean: Any, rounds: int, steps: int, seed: int) -> Any:
    """Return where rounds of so many steps of each client lead."""
    point = MANIFOLD.identity()
    for done in range(rounds):
        point = mean(point, [learned(point, *data, steps, done, seed) for data in clients], shares)
    return point


def learned(point: Any, X: Any, y: Any, steps: int, done: int, seed: int) -> Any:
    """Return where some steps on own rows lead, after rounds that were done before."""
    model = LoretaSimilarity(RANK, random_state=seed).start_at(point, n_iter=done * steps)
    return model.partial_fit(X, y, max_iter=steps).model_.point


def on_manifold(before: Any, points: list[Any], shares: Any) -> Any:
    return projected_mean(MANIFOLD, points, shares)


def beyond(before: Any, points: list[Any], shares: Any) -> Any:
    return projected_mean(MANIFOLD, [before, on_manifold(before, points, shares)], [-1.0, 2.0])


def of_arrays(before: Any, points: list[Any], shares: Any) -> Any:
    """Return the point that the means of the factors stand for, as a server makes them that knows arrays alone."""
    U, S, V = (
        sum(share * getattr(one, part) for share, one in zip(shares, points, strict=True)) for part in "USV"
    )
    (Q, upper), (P, other) = np.linalg.qr(U), np.linalg.qr(V)
    left, sigma, right = np.linalg.svd(upper @ S @ other.T)
    return LowRankPoint(Q @ left, np.diag(sigma), P @ right.T)


MEANS = {
    "mean on the manifold": on_manifold,
    "mean on the manifold, outer step 2": beyond,
    "mean of the arrays U, S and V": of_arrays,
}
