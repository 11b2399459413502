"""Certificates of semidefinite programmes with a known trace: max-cut, synchronisation, spectrahedra, correlations.

Interior points (Clarabel by cvxpy, its compilation included) and GTSAM's Shonan averaging are the peers; those that
are not installed are left out. Seconds are those of the processor.

Run with ``pytest -o addopts= -s tests/benchmarks/test_certificates.py``.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits
from timing import median

from rmopt import Problem
from rmopt.core import Cost
from rmopt.manifolds import Elliptope, Sphere, Stiefel
from rmopt.solvers import RankIncremental, certify

TOL = 1e-9


class Linear(Cost):
    """⟨C, W⟩ of W = YYᵀ, whose rows may lie in blocks of d."""

    def __init__(self, C: Any, d: int = 0) -> None:
        self.C, self.d = C, d

    def product(self, point: Any) -> Any:
        if not self.d:
            return self.C @ point
        n, k, d = point.shape
        return (self.C @ point.mT.reshape(n * d, k)).reshape(n, d, k).mT

    def value(self, point: Any) -> float:
        return float(np.sum(point * self.product(point)))

    def gradient(self, point: Any) -> Any:
        return 2.0 * self.product(point)

    def hessian(self, point: Any, direction: Any) -> Any:
        return 2.0 * self.product(direction)


class Nearest(Cost):
    """½ ‖H ∘ (W − T)‖²."""

    is_convex = True

    def __init__(self, T: Any, H: Any) -> None:
        self.T, self.weights = T, H**2

    def value(self, Y: Any) -> float:
        return 0.5 * float(np.sum(self.weights * (Y @ Y.T - self.T) ** 2))

    def gradient(self, Y: Any) -> Any:
        return 2.0 * ((self.weights * (Y @ Y.T - self.T)) @ Y)

    def hessian(self, Y: Any, D: Any) -> Any:
        half = self.weights * (Y @ D.T)
        return 2.0 * ((half + half.T) @ Y + (self.weights * (Y @ Y.T - self.T)) @ D)


def graph(n: int, degree: float, seed: int) -> Any:
    """Return a quarter of the adjacency matrix of a random graph: the cut is that of its values."""
    rng = np.random.default_rng(seed)
    A = sp.triu(
        sp.random_array((n, n), density=degree / n, rng=rng, data_sampler=lambda size: np.ones(size)), 1
    )
    return ((A + A.T) / 4).tocsr()


def turned(n: int, degree: int, noise: float, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return pairs of rotations i, j, what was measured of RᵢᵀRⱼ, and the matrix of the programme."""
    from scipy.spatial.transform import Rotation

    rng = np.random.default_rng(seed)
    R = Rotation.random(n, random_state=rng).as_matrix()
    i = np.concatenate([np.arange(n), rng.integers(n, size=n * (degree - 2) // 2)])
    j = np.concatenate([np.roll(np.arange(n), -1), rng.integers(n, size=len(i) - n)])
    i, j = np.unique(np.sort(np.stack([i, j])[:, i != j], axis=0), axis=1)
    seen = R[i].mT @ R[j] @ Rotation.from_rotvec(noise * rng.standard_normal((len(i), 3))).as_matrix()
    rows = (3 * i[:, None, None] + np.arange(3)[:, None], 3 * j[:, None, None] + np.arange(3))
    upper = sp.coo_array(
        (-seen.ravel(), [np.broadcast_to(at, seen.shape).ravel() for at in rows]), (3 * n, 3 * n)
    )
    return i, j, seen, (upper + upper.T).tocsr()


def programmes() -> dict[str, list[tuple[Problem, int]]]:
    """Return the problems by kind, each with the size of the blocks that are identities; 0: the trace is 1."""
    rng = np.random.default_rng(0)
    pairs = [rng.standard_normal((2, 30, 30)) for _ in range(10)]
    return {
        "max-cut, n = 40": [(Problem(Elliptope(40, 2), Linear(graph(40, 8, seed))), 1) for seed in range(8)],
        "12 rotations": [
            (Problem(Stiefel(3, 3, 12), Linear(turned(12, 6, noise, seed)[3], 3)), 3)
            for seed, noise in enumerate((0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5))
        ],
        "spectrahedron, n = 30": [(Problem(Sphere(30, 2), Linear(A + A.T)), 0) for A, _ in pairs[:5]],
        "nearest correlation, n = 30": [
            (Problem(Elliptope(30, 2), Nearest(np.clip(A + A.T, -1.0, 1.0), np.abs(H + H.T))), 1)
            for A, H in pairs[5:]
        ],
    }


def interior(cost: Any, block: int) -> float:
    """Return the minimum that Clarabel finds."""
    cp = pytest.importorskip("cvxpy")
    n = len(cost.T) if isinstance(cost, Nearest) else cost.C.shape[0]
    W = cp.Variable((n, n), PSD=True)
    if isinstance(cost, Nearest):
        value = 0.5 * cp.sum_squares(cp.multiply(cost.weights**0.5, W - cost.T))
    else:
        value = cp.trace(cost.C @ W)
    if block > 1:
        held = [W[at : at + block, at : at + block] == np.eye(block) for at in range(0, n, block)]
    else:
        held = [cp.diag(W) == 1 if block else cp.trace(W) == 1]
    return float(cp.Problem(cp.Minimize(value), held).solve(solver="CLARABEL"))


def climb(problem: Problem, seed: int = 0) -> Any:
    return RankIncremental(tol=TOL).run(problem, random_state=seed)


def cpu(work: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    with threadpool_limits(1):
        return median(work, rounds, time.process_time)


def test_programmes(measured: Any) -> None:
    """Small semidefinite programmes to a certified relative gap of 1e-9, beside interior points."""
    rows = measured(small)
    for row in rows:
        assert row["largest relative gap"] <= 1e-8
        assert row["values differ by"] <= 1e-7
    assert sum(row["Clarabel, s"] for row in rows) >= 5.0 * sum(row["rmopt, s"] for row in rows)


def small() -> list[dict[str, Any]]:
    rows = []
    for name, kind in programmes().items():
        climb(kind[0][0])
        interior(kind[0][0].cost, kind[0][1])
        ours, results = cpu(lambda kind=kind: [climb(problem) for problem, _ in kind])
        theirs, values = cpu(lambda kind=kind: [interior(problem.cost, block) for problem, block in kind])
        found = [result.certificate for result in results]
        off = [abs(one.objective / value - 1.0) for one, value in zip(found, values, strict=True)]
        rows.append({
            "programmes": f"{len(kind)} × {name}", "certified": sum(result.is_global for result in results),
            "largest relative gap": max(one.relative_gap for one in found), "values differ by": max(off),
            "rmopt, s": ours, "Clarabel, s": theirs, "times ours": theirs / ours,
        })  # fmt: skip
    return rows


@pytest.mark.parametrize("n", [2000, 5000])
def test_large_cuts(measured: Any, n: int) -> None:
    """Max-cut of a random graph of mean degree 8, from rank 2 to a certified relative gap of 1e-9."""
    (row,) = measured(large, n)
    assert row["relative gap"] <= 1e-8
    assert row["relative gap, by Cholesky factors"] <= 1e-8
    assert row["rmopt, s"] <= 20.0


def large(n: int) -> list[dict[str, Any]]:
    problem = Problem(Elliptope(n, 2), Linear(graph(n, 8, 0)))
    climb(Problem(Elliptope(40, 2), Linear(graph(40, 8, 0))))
    seconds, result = cpu(lambda: climb(problem))
    own = replace(problem, manifold=problem.manifold.with_rank(result.point.shape[1]))  # type: ignore[attr-defined]
    proving, (proved, _, _) = cpu(lambda: certify(own, result.point, proof="cholesky"))
    return [{
        "n": n, "ranks": " ".join(map(str, dict.fromkeys(row["rank"] for row in result.history))),
        "value": result.certificate.objective, "relative gap": result.certificate.relative_gap, "rmopt, s": seconds,
        "relative gap, by Cholesky factors": proved.relative_gap, "proof, s": proving,
    }]  # fmt: skip


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_rotations(measured: Any, noise: float) -> None:
    """300 rotations from 900 noisy pairs, beside GTSAM's ShonanAveraging3, from three random starts each."""
    rows = measured(averaged, noise)
    for row in rows:
        assert row["rmopt, certified"] == 3
        if row["first rank"] == 4 and noise < 1.0 and "times ours" in row:
            assert row["times ours"] >= 2.0


def averaged(noise: float) -> list[dict[str, Any]]:
    n, rows = 300, []
    i, j, seen, C = turned(n, 6, noise, 0)
    for rank in (3, 4):
        problem = Problem(Stiefel(rank, 3, n), Linear(C, 3))
        climb(problem)
        ours, results = cpu(lambda problem=problem: [climb(problem, seed) for seed in range(3)])
        # Both as sums of squares of Rⱼ − Rᵢ Rᵢⱼ.
        bound = max(6.0 * len(i) + result.lower_bound for result in results)
        row = {
            "first rank": rank,
            "rmopt, s": ours / 3,
            "rmopt, certified": sum(result.is_global for result in results),
            "rmopt, bound": bound,
            "rmopt, last rank": max(result.history[-1]["rank"] for result in results),
        }
        with suppress(ImportError):
            theirs, (values, failed) = cpu(lambda rank=rank: shonan(i, j, seen, rank))
            row |= {
                "Shonan, s": theirs / 3,
                "Shonan, value": min(values, default=None),
                "Shonan, failed": failed,
            }
            row["times ours"] = theirs / ours
        rows.append(row)
    return rows


def shonan(i: Any, j: Any, seen: Any, rank: int) -> tuple[list[float], int]:
    """Return the values of GTSAM's three runs, and how many failed."""
    import gtsam

    model = gtsam.noiseModel.Isotropic.Sigma(3, 1.0)
    pairs = gtsam.BinaryMeasurementsRot3()
    for a, b, R in zip(i, j, seen, strict=True):
        pairs.append(gtsam.BinaryMeasurementRot3(int(a), int(b), gtsam.Rot3(R), model))
    how = gtsam.ShonanAveragingParameters3(gtsam.LevenbergMarquardtParams.CeresDefaults())
    values, failed = [], 0
    for _ in range(3):
        averaging = gtsam.ShonanAveraging3(pairs, how)
        try:
            found, _ = averaging.run(averaging.initializeRandomly(), rank, 10)
            values.append(2.0 * averaging.cost(found))
        except RuntimeError:
            failed += 1
    return values, failed
