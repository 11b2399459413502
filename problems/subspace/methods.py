"""The methods of the completion experiment, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from problems.subspace.estimators import RCGMC, RTRMC
from problems.subspace.lmafit import DLMaFit
from problems.subspace.shares import Shares
from problems.subspace.training import (
    VARIANTS,
    GossipPlan,
    agreement,
    gossip,
    largest_curvature,
    step_sizes,
)
from rmopt.core import MissingCapabilityError, Parts, Problem, as_graph
from rmopt.core.streams import Stream, generator
from rmopt.costs import GossipCost
from rmopt.manifolds import Euclidean, Grassmann, Power, frechet_mean
from rmopt.solvers import Gossip, Recorder

Array = np.ndarray
Cell = dict[str, Any]

BATCH_ITERATIONS = 15


@dataclass(frozen=True)
class Job:
    """One model to train.

    Attributes
    ----------
    shares : Shares
    rank : int
    plan : GossipPlan
    seed : int
    recorder : Recorder
        Its metrics take `Parts`, one matrix per agent, orthonormal but for the Euclidean rival.
    checkpoint : Path or None
    iterations : int
        Of batch solvers.
    """

    shares: Shares
    rank: int
    plan: GossipPlan
    seed: int
    recorder: Recorder
    checkpoint: Path | None = None
    iterations: int = BATCH_ITERATIONS


@dataclass(frozen=True)
class Trained:
    """What a method found: the subspace that predicts, each agent's own, and how long it took."""

    mean: Array
    points: Parts
    seconds: float
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """A method by name.

    Attributes
    ----------
    label : str
    train : callable
        Maps a `Job` to `Trained`.
    decentral : bool
        Do agents keep their data to themselves.
    """

    label: str
    train: Callable[[Job], Trained]
    decentral: bool = True


def _gossip(variant: str) -> Callable[[Job], Trained]:
    def train(job: Job) -> Trained:
        found = gossip(
            job.shares.tasks, job.rank, replace(job.plan, variant=variant), job.seed, recorder=job.recorder,
            checkpoint=job.checkpoint, world=job.shares.world,
        )  # fmt: skip
        about = {
            "rho": found.rho, "updates": found.result.updates, "bytes": found.bytes,
        }  # fmt: skip
        return Trained(found.mean, found.points, found.result.seconds, about)

    return train


def _euclidean(job: Job) -> Trained:
    """Train the paper's Euclidean rival (equation 22): the same agents, with differences of the matrices U."""
    tasks, n, graph = _all_here(job, "euclidean")
    flat, curved = Euclidean(tasks.n_rows, job.rank), Grassmann(tasks.n_rows, job.rank)
    start = Power(curved, n).random_point(generator(job.seed, Stream.START))
    rho = agreement(job.plan.rho, tasks, graph, start, job.seed, job.shares.world)
    curved_cost = GossipCost(tasks, graph, rho, curved)
    scales = [1.0 / largest_curvature(curved_cost, i, start[i], False, job.seed) for i in range(n)]
    planned = partial(Gossip, n_updates=job.plan.n_updates, scales=np.array(scales))
    problem = Problem(Power(flat, n), GossipCost(tasks, graph, rho, flat))
    solver = planned(step_sizes(job.plan, max(1, planned(1.0).budget(problem))))
    result = solver.run(problem, start, random_state=job.seed, recorder=job.recorder)
    return _averaged(job, _bases(result.point), result, {"rho": rho, "updates": result.updates})


def _d_lmafit(job: Job) -> Trained:
    tasks, n, graph = _all_here(job, "d-lmafit")
    manifold = Grassmann(tasks.n_rows, job.rank)
    start = Power(manifold, n).random_point(generator(job.seed, Stream.START))
    problem = Problem(Power(manifold, n), GossipCost(tasks, graph, 0.0, manifold))
    # An agent in the middle of a path moves twice as often as edges are taken.
    steps = round(2 * job.plan.n_updates)
    result = DLMaFit(steps).run(problem, start, random_state=job.seed, recorder=job.recorder)
    return _averaged(job, result.point, result, {"updates": result.updates})


def _batch(estimator: Any) -> Callable[[Job], Trained]:
    def train(job: Job) -> Trained:
        from threadpoolctl import threadpool_limits

        tasks, n, _ = _all_here(job, estimator.__name__)
        solver = estimator(job.rank, max_iterations=job.iterations)
        with threadpool_limits(1, user_api="blas"):
            # Compiled passes are loaded before the clock starts.
            tasks.hessian(*2 * (Grassmann(tasks.n_rows, job.rank).random_point(np.random.default_rng(0)),))
            begun = perf_counter()
            U = solver.learn(tasks, None, job.seed)
            seconds = perf_counter() - begun
        return Trained(U, Parts([U] * n), seconds, {})

    return train


def _all_here(job: Job, name: str) -> tuple[Any, int, Any]:
    if job.shares.world.size > 1:
        raise MissingCapabilityError(f"{name} runs in one process; with --agents mpi choose gossip methods.")
    tasks = job.shares.tasks
    return tasks, tasks.n_terms, as_graph(job.plan.graph, tasks.n_terms)


def _averaged(job: Job, points: Parts, result: Any, about: dict[str, Any]) -> Trained:
    manifold = Grassmann(job.shares.tasks.n_rows, job.rank)
    return Trained(frechet_mean(manifold, list(points), tol=1e-9), points, result.seconds, about)


def _bases(point: Parts) -> Parts:
    """Return orthonormal bases of the spans of matrices."""
    return Parts([np.linalg.qr(part)[0] for part in point])


METHODS: dict[str, Method] = {
    **{
        name: Method(
            ("Precon " if "precon" in name else "") + name.split("-")[-1].capitalize() + " Gossip",
            _gossip(name),
        )
        for name in VARIANTS
    },
    "euclidean": Method("Euclidean Gossip", _euclidean),
    "d-lmafit": Method("D-LMaFit", _d_lmafit),
    "rtrmc": Method("RTRMC (batch)", _batch(RTRMC), decentral=False),
    "rcg": Method("Riemannian CG (batch)", _batch(RCGMC), decentral=False),
}
