"""The methods of the completion experiment, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from problems.subspace.estimators import RCGMC, RTRMC
from problems.subspace.lmafit import DLMaFit
from problems.subspace.shares import Shares
from problems.subspace.training import VARIANTS, GossipPlan, gossip
from rmopt.core import MissingCapabilityError, Parts, Problem, as_graph
from rmopt.core.streams import Stream, generator
from rmopt.costs import GossipCost
from rmopt.manifolds import Grassmann, Power, frechet_mean
from rmopt.solvers import Recorder

Array = np.ndarray


@dataclass(frozen=True)
class Job:
    """One model to train.

    The recorder's metrics take `Parts`, one matrix per agent, orthonormal but for the Euclidean rival. The iterations
    are those of batch solvers.
    """

    shares: Shares
    rank: int
    plan: GossipPlan
    seed: int
    recorder: Recorder
    checkpoint: Path | None = None
    iterations: int = 15


@dataclass(frozen=True)
class Trained:
    """What a method found: the subspace that predicts, each agent's own, and how long it took."""

    mean: Array
    points: Parts
    seconds: float
    updates: int = 0
    rho: float | None = None
    bytes: int = 0


@dataclass(frozen=True)
class Method:
    """A method by name: do agents keep their data to themselves, and do step sizes of a plan move them."""

    label: str
    train: Callable[[Job], Trained]
    decentral: bool = True
    gossips: bool = True


def _gossip(job: Job, variant: str = "stochastic", flat: bool = False) -> Trained:
    plan = replace(job.plan, variant=variant)
    if flat:
        _all_here(job, "euclidean")
        plan = replace(plan, clock="shared")
    found = gossip(
        job.shares.tasks, job.rank, plan, job.seed, recorder=job.recorder, checkpoint=job.checkpoint,
        world=job.shares.world, flat=flat,
    )  # fmt: skip
    result = found.result
    return Trained(found.mean, found.points, result.seconds, result.updates, found.rho, found.bytes)


def _d_lmafit(job: Job) -> Trained:
    tasks, n, graph = _all_here(job, "d-lmafit")
    manifold = Grassmann(tasks.n_rows, job.rank)
    start = Power(manifold, n).random_point(generator(job.seed, Stream.START))
    problem = Problem(Power(manifold, n), GossipCost(tasks, graph, 0.0, manifold))
    # An agent in the middle of a path moves twice as often as edges are taken.
    steps = round(2 * job.plan.n_updates)
    result = DLMaFit(steps).run(problem, start, random_state=job.seed, recorder=job.recorder)
    mean = frechet_mean(manifold, list(result.point), tol=1e-9)
    return Trained(mean, result.point, result.seconds, result.updates)


def _batch(job: Job, estimator: Any) -> Trained:
    tasks, n, _ = _all_here(job, estimator.__name__)
    solver = estimator(job.rank, max_iterations=job.iterations)
    # Compiled passes are loaded before the clock starts.
    tasks.hessian(*2 * (Grassmann(tasks.n_rows, job.rank).random_point(np.random.default_rng(0)),))
    begun = perf_counter()
    U = solver.learn(tasks, None, job.seed)
    return Trained(U, Parts([U] * n), perf_counter() - begun)


def _all_here(job: Job, name: str) -> tuple[Any, int, Any]:
    if job.shares.world.size > 1:
        raise MissingCapabilityError(f"{name} runs in one process; with --agents mpi choose gossip methods.")
    tasks = job.shares.tasks
    return tasks, tasks.n_terms, as_graph(job.plan.graph, tasks.n_terms)


METHODS: dict[str, Method] = {
    **{
        name: Method(f"{name.replace('-', ' ').title()} Gossip", partial(_gossip, variant=name))
        for name in VARIANTS
    },
    "euclidean": Method("Euclidean Gossip", partial(_gossip, flat=True)),
    "d-lmafit": Method("D-LMaFit", _d_lmafit, gossips=False),
    "rtrmc": Method("RTRMC (batch)", partial(_batch, estimator=RTRMC), decentral=False, gossips=False),
    "rcg": Method("Riemannian CG (batch)", partial(_batch, estimator=RCGMC), decentral=False, gossips=False),
}
