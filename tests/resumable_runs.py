"""Runs of every kind of engine, which the tests of checkpoints and of kills cut off and take up again."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.coembedding import MultilabelCoembedding
from problems.ranking import LabelRanking, WarpRanking
from problems.subspace import DLMaFit
from problems.subspace.instances import agent_sums
from rmopt import Problem
from rmopt.core import Cost
from rmopt.core.cost import WholeCost
from rmopt.core.points import arrays_of
from rmopt.costs import BilinearSum, GossipCost, Graph, LogDetTriplet, OnFactors, Trace, squared
from rmopt.engines import Engine
from rmopt.engines.base import diverged
from rmopt.manifolds import (
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    PositiveDefinite,
    Product,
    PSDFixedRank,
)
from rmopt.solvers import (
    SGD,
    Checkpoint,
    CoordinateDescent,
    Gossip,
    ManifoldIdentification,
    Parallel,
    RankIncremental,
    Recorder,
    ScaledSGD,
    Solver,
)


class Rayleigh(Cost):
    """A cost as a user writes it: ½ c tr UᵀAU."""

    def __init__(self, factor: float = -1.0) -> None:
        self.A, self.factor = np.diag(np.linspace(1.0, 0.3, 12)), factor

    def value(self, point: Any) -> float:
        return float(0.5 * self.factor * np.vdot(point, self.A @ point))

    def gradient(self, point: Any) -> Any:
        return self.factor * (self.A @ point)


class NoisyEngine(Engine):
    """An engine as a user writes it: its state is a dict, with a number that begins as an integer."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def load(self, point: Any) -> Any:
        return State(point, {"mean": np.zeros_like(point)}, 0)

    def advance(self, state: Any, schedule: Any, etas: Any) -> Any:
        point, mean, weight, steps = state.point, state.memory["mean"], state.weight, state.steps
        manifold = self.problem.manifold
        for eta in etas:
            mean, weight = 0.9 * mean + self.problem.cost.gradient(point), 0.9 * weight + 1.0
            tangent = manifold.euclidean_to_riemannian_gradient(point, mean / weight)
            if not np.isfinite(tangent).all():
                raise diverged(steps, eta)
            point = manifold.default_retraction(manifold, point, tangent, -eta)
            steps += 1
        return State(point, {"mean": mean}, weight, steps)

    def dump(self, state: Any) -> Any:
        return state.point


@dataclass
class State:
    """A point, a mapping, a number and a counter."""

    point: Any
    memory: dict[str, Any]
    weight: float
    steps: int = 0

    @property
    def updates(self) -> int:
        return self.steps


class Averaged(SGD):
    """A solver as a user writes it."""

    def engine(self, problem: Problem) -> Engine:
        return NoisyEngine(problem)


def bilinear(manifold: Any, loss: Any = squared) -> Problem:
    rng = np.random.default_rng(7)
    left, right = (
        sp.random_array((60, width), density=0.3, random_state=rng, data_sampler=rng.standard_normal).tocsr()
        for width in manifold.shape
    )
    right = left if isinstance(manifold, PSDFixedRank) else right
    return Problem(manifold, BilinearSum(left, right, loss, rng.standard_normal(60)))


def dense() -> Problem:
    rng = np.random.default_rng(7)
    left, right = rng.standard_normal((60, 140)) / 12, rng.standard_normal((60, 130)) / 12
    return Problem(FixedRankEmbedded(140, 130, 4), BilinearSum(left, right, squared, rng.standard_normal(60)))


def ranking(make: Any) -> Problem:
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((60, 12)) * (rng.random((60, 12)) < 0.5), rng.random((60, 9)) < 0.2
    return Problem(FixedRankEmbedded(9, 12, 3), make(X, Y))


def metric() -> Problem:
    rng = np.random.default_rng(2)
    X, triplets = rng.standard_normal((40, 10)), rng.integers(40, size=(200, 3))
    return Problem(PositiveDefinite(10), LogDetTriplet(X, triplets, alpha=1.0, beta=0.3))


def own() -> Problem:
    return Problem(Grassmann(12, 3), WholeCost(Rayleigh()))


def agents(name: str) -> Problem:
    tasks: Any = agent_sums(5)[name]
    manifold = Grassmann(tasks.n_rows, 3)
    return Problem(Product([manifold] * 5), GossipCost(tasks, Graph.path(5), 2.0, manifold))


def known_entries() -> Problem:
    rng = np.random.default_rng(4)
    left, right = (sp.eye_array(size).tocsr()[rng.integers(size, size=2000)] for size in (80, 70))
    cost = BilinearSum(left, right, squared, rng.standard_normal(2000))
    return Problem(FixedRankFactors(80, 70, 3), OnFactors(cost))


def cone() -> Problem:
    rng = np.random.default_rng(3)
    loss = MultilabelCoembedding(rng.standard_normal((50, 6)), rng.random((50, 4)) < 0.4)
    return Problem(PSDFixedRank(loss.shape[0], 1), loss + Trace(0.5))


def warp_terms(rng: np.random.Generator, start: int, size: int) -> np.ndarray:
    return np.column_stack([rng.integers(60, size=size), rng.integers(2**62, size=size)])


@dataclass(frozen=True)
class Case:
    """A problem, a solver by its budget, and budgets that take a moment and about a second."""

    problem: Callable[[], Problem]
    solver: Callable[[int], Solver]
    few: int
    many: int


def start(problem: Problem) -> Any:
    return problem.manifold.random_point(np.random.default_rng(5))


FIXED = FixedRankEmbedded(30, 25, 4)
CASES = {
    "loreta": Case(lambda: bilinear(FIXED), lambda n: SGD(0.02, max_iter=n), 3000, 50_000),
    "loreta-reference": Case(lambda: bilinear(FIXED), lambda n: SGD(0.02, max_iter=n, engine="reference"), 120, 1000),
    "loreta-dense": Case(dense, lambda n: SGD(0.02, max_iter=n), 1001, 60_000),
    "loreta-batch": Case(lambda: bilinear(FIXED), lambda n: SGD(0.02, max_iter=n, batch_size=2), 1500, 15_000),
    "loreta-parallel": Case(
        lambda: bilinear(FIXED), lambda n: Parallel(SGD(0.02, max_iter=n), 2, every=170), 1500, 30_000
    ),
    "loreta-psd": Case(lambda: bilinear(PSDFixedRank(30, 4)), lambda n: SGD(0.005, max_iter=n), 2000, 100_000),
    "scaled-sgd": Case(known_entries, lambda n: ScaledSGD(n_epochs=n, penalty=1e-3), 60, 4000),
    "ranking": Case(lambda: ranking(LabelRanking), lambda n: SGD(0.01, max_iter=n), 2000, 100_000),
    "warp": Case(lambda: ranking(WarpRanking), lambda n: SGD(0.01, max_iter=n, sampler=warp_terms), 2000, 100_000),
    "comet": Case(metric, lambda n: CoordinateDescent(max_iter=n), 200, 20_000),
    "comet-reference": Case(
        metric, lambda n: CoordinateDescent(max_iter=n, engine="reference", step_size=0.01), 60, 1000
    ),
    "gossip": Case(lambda: agents("completion-ridge"), lambda n: Gossip(0.05, max_iter=n), 60, 2000),
    "gossip-parallel": Case(
        lambda: agents("multitask"), lambda n: Gossip(0.05, max_iter=n, order="parallel"), 40, 800
    ),
    "lmafit": Case(lambda: agents("completion"), DLMaFit, 10, 400),
    "identification": Case(
        lambda: bilinear(FIXED), lambda n: ManifoldIdentification(0.01, inner_step_size=0.01, max_iter=n), 30, 500
    ),
    "rank-incremental": Case(cone, lambda n: RankIncremental(columns=1, factor=1, tol=1e-9, max_iter=n), 4, 30),
    "rank-incremental-sgd": Case(
        cone, lambda n: RankIncremental(columns=1, factor=1, inner=SGD(1e-3, max_iter=60), tol=1e-9, max_iter=n),
        3, 12,
    ),
    "own-cost": Case(own, lambda n: SGD(0.1, max_iter=n), 100, 10_000),
    "own-solver": Case(own, lambda n: Averaged(0.1, max_iter=n), 100, 5000),
}  # fmt: skip


def run(name: str, budget: int, path: Any = None, every: float = 0.0, measure: bool = True) -> Any:
    """Run a case; with a path, from its checkpoint and with one."""
    case = CASES[name]
    problem = case.problem()
    metrics = {"norm": lambda point: float(sum(np.abs(part).sum() for part in arrays_of(point)))}
    own_start = isinstance(case.solver(1), RankIncremental)
    return case.solver(budget).run(
        problem,
        None if own_start else start(problem),
        random_state=3,
        recorder=Recorder(metrics if measure else {}, first=50),
        checkpoint=None if path is None else Checkpoint(path, every_seconds=every),
    )


def bits(result: Any) -> dict[str, np.ndarray]:
    """Return what must be the same, to the last bit, however often a run was cut off."""
    arrays = {f"part {i}": part for i, part in enumerate(arrays_of(result.point))}
    rows = [[value for key, value in row.items() if key != "seconds"] for row in result.history]
    return arrays | {"rows": np.array(rows, dtype=float), "updates": np.array(result.updates)}


if __name__ == "__main__":
    name, size, path, out = sys.argv[1:]
    np.savez(out, **bits(run(name, getattr(CASES[name], size), path, every=0.005)))
