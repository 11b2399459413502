"""The methods of the completion experiment by name, and what it keeps of the models that they train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from problems.cells import Cell
from problems.comparison import Comparison, Settings
from problems.subspace.baselines import DLMaFit
from problems.subspace.cost import MatrixCompletion
from problems.subspace.estimators import RCGMC, RTRMC
from problems.subspace.shares import Shares
from problems.subspace.training import VARIANTS, GossipPlan, gossip
from rmopt.core import MissingCapabilityError, Parts, Problem, RmoptError, as_graph
from rmopt.core.streams import Stream, generator
from rmopt.costs import GossipCost
from rmopt.engines import World
from rmopt.experiments import Run
from rmopt.manifolds import Grassmann, Power, frechet_mean
from rmopt.solvers import Recorder

Array = np.ndarray

# Points of a trace.
MEASURED = 16
# First step sizes with their decay: the larger, the faster they must fall.
STEPS = (
    (0.5, 0.2), (1.0, 0.2), (1.5, 0.2), (1.0, 2.0), (2.0, 2.0), (4.0, 5.0), (10.0, 30.0), (30.0, 100.0),
    (100.0, 300.0),
)  # fmt: skip


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
    """A method by name: how it trains; do agents keep their data to themselves; do step sizes of a plan move them.

    It is given the agents' shares, the plan, settings, and a recorder, whose metrics take matrices that are not
    orthonormal where the Euclidean rival trains; and where to save.
    """

    label: str
    train: Callable[..., Trained]
    decentral: bool = True
    gossips: bool = True


def _gossip(
    shares: Shares,
    plan: GossipPlan,
    one: Settings,
    recorder: Recorder,
    checkpoint: Path | None = None,
    variant: str = "stochastic",
    flat: bool = False,
) -> Trained:
    plan = replace(plan, variant=variant)
    if flat:
        _all_here(shares, "euclidean")
        plan = replace(plan, clock="shared")
    found = gossip(
        shares.tasks, one["rank"], plan, one["seed"], recorder=recorder, checkpoint=checkpoint,
        world=shares.world, flat=flat,
    )  # fmt: skip
    result = found.result
    return Trained(found.mean, found.points, result.seconds, result.updates, found.rho, found.bytes)


def _d_lmafit(shares: Shares, plan: GossipPlan, one: Settings, recorder: Recorder, _: Path) -> Trained:
    tasks = _all_here(shares, "d-lmafit")
    manifold, graph = Grassmann(tasks.n_rows, one["rank"]), as_graph(plan.graph, tasks.n_terms)
    power = Power(manifold, tasks.n_terms)
    start = power.random_point(generator(one["seed"], Stream.START))
    problem = Problem(power, GossipCost(tasks, graph, 0.0, manifold))
    # An agent in the middle of a path moves twice as often as edges are taken.
    solver = DLMaFit(round(2 * plan.n_epochs))
    result = solver.run(problem, start, random_state=one["seed"], recorder=recorder)
    mean = frechet_mean(manifold, list(result.point), tol=1e-9)
    return Trained(mean, result.point, result.seconds, result.updates)


def _batch(shares: Shares, _: GossipPlan, one: Settings, *__: Any, estimator: Any) -> Trained:
    tasks = _all_here(shares, estimator.__name__)
    solver = estimator(one["rank"], max_iter=one["iterations"])
    # Compiled passes are loaded before the clock starts.
    tasks.hessian(*2 * (Grassmann(tasks.n_rows, one["rank"]).random_point(np.random.default_rng(0)),))
    begun = perf_counter()
    U = solver.learn(tasks, None, one["seed"])
    return Trained(U, Parts([U] * tasks.n_terms), perf_counter() - begun)


def _all_here(shares: Shares, name: str) -> MatrixCompletion:
    if shares.world.size > 1:
        raise MissingCapabilityError(f"{name} runs in one process; with --agents mpi choose gossip methods.")
    return shares.tasks


METHODS = {
    name: Method(f"{name.replace('-', ' ').title()} Gossip", partial(_gossip, variant=name))
    for name in VARIANTS
} | {
    "euclidean": Method("Euclidean Gossip", partial(_gossip, flat=True)),
    "d-lmafit": Method("D-LMaFit", _d_lmafit, gossips=False),
    "rtrmc": Method("RTRMC (batch)", partial(_batch, estimator=RTRMC), decentral=False, gossips=False),
    "rcg": Method("Riemannian CG (batch)", partial(_batch, estimator=RCGMC), decentral=False, gossips=False),
}


class CompletionRuns:
    """The models of one run of the experiment; `last` has what was trained on the first split, by method."""

    def __init__(self, run: Run, world: World, plan: GossipPlan, iterations: int, resume: bool) -> None:
        self.run, self.world, self.plan = run, world, plan
        self.last: dict[str, Trained] = {}
        self.settings = {
            "graph": plan.graph, "updates": plan.n_epochs, "rho": plan.rho, "clock": plan.clock,
            "step_size": plan.step_size, "decay": plan.decay, "iterations": iterations, "processes": world.size,
        }  # fmt: skip
        # Several processes go on from their checkpoints alone, of which all have the same.
        kept = resume if world.size == 1 else None
        self._comparison = Comparison(run, kept, **self.settings, seed=run.seed)
        if not resume:
            self._remove_checkpoints()
            # Nobody saves before all have tidied up.
            world.least(0)

    def finish(self) -> None:
        """Remove what only an interrupted run needs, when all processes have come this far."""
        self.world.least(0)
        self._remove_checkpoints()

    def _remove_checkpoints(self, but: Path | None = None) -> None:
        for old in set(self.run.out.glob("checkpoint-*.npz")) - {but}:
            old.unlink(missing_ok=True)

    def results(
        self,
        models: Sequence[Settings],
        splits: int,
        folds: int,
        shares_at: Callable[[Settings], Shares],
        by: Sequence[str],
    ) -> dict[Any, list[Cell]]:
        """Return what is measured of models on some splits, listed by some of their settings.

        A model's settings are its method, rank, number of agents and weight, and what its entries depend on. Where
        there are folds, step sizes come from cross-validation on the first split.
        """
        settings = []
        for model in models:
            method, steps = METHODS[model["method"]], {}
            if folds and method.gossips:
                # A function to itself: what is trained stays in the settings.
                steps = self._comparison.cell(
                    model | {"folds": folds}, lambda one: self._selected(one, shares_at(one | {"split": 0}))
                )
                self.run.say(
                    f"{method.label}, {model['agents']} agents, rank {model['rank']}: step size "
                    f"{steps['step_size']:g}, decay {steps['decay']:g}"
                )
            settings += [model | steps | {"split": split} for split in range(splits)]
        return self._comparison.results(settings, lambda one: self._trained(one, shares_at(one)), by)

    def _plan(self, one: Settings) -> GossipPlan:
        return replace(self.plan, rho=one["rho"], step_size=one["step_size"], decay=one["decay"])

    def _selected(self, one: Settings, shares: Shares) -> Cell:
        """Return the step size and decay with the least error on held-out training entries, to 1 %."""
        parts = [shares.fold(fold, one["folds"], one["seed"]) for fold in range(one["folds"])]

        train, errors = METHODS[one["method"]].train, {}
        for step_size, decay in STEPS:
            plan = self._plan(one | {"step_size": step_size, "decay": decay})
            try:
                found = [part.test_rmse(train(part, plan, one, Recorder()).mean) for part in parts]
                errors[step_size, decay] = float(np.mean(found))
            except RmoptError:
                # A step size that diverges on some fold is out.
                errors[step_size, decay] = float("inf")
        best = min(errors.values())
        # Of plans that end alike, the one that begins fastest.
        step_size, decay = max(steps for steps, error in errors.items() if error <= 1.01 * best)
        return {"step_size": step_size, "decay": decay}

    def _trained(self, one: Settings, shares: Shares) -> Cell:
        """Train a model, and return what is measured of it; on the first split also its trace."""
        method, n, plan = METHODS[one["method"]], one["agents"], self._plan(one)
        manifold, edges = Grassmann(shares.tasks.n_rows, one["rank"]), as_graph(plan.graph, n).edges

        def gap(points: Parts) -> float:
            bases = [np.linalg.qr(point)[0] for point in points]
            return float(np.mean([manifold.dist(bases[i], bases[j]) for i, j in edges]))

        metrics = {"train_mse": shares.train_mse, "gap": gap} if one["split"] == 0 else {}
        steps = max(1.0, plan.n_epochs * len(edges))
        # Dense at the start.
        at = sorted({round(step) for step in np.geomspace(max(1.0, steps / 200), steps, MEASURED)})
        recorder = Recorder(metrics, at=at, progress=self.run.progress, description=method.label)
        own = dict(one.items() - self._comparison.about.items())
        stem = "-".join(str(own[key]) for key in sorted(own.keys() - {"data", "hidden"}))
        saved = self.run.path(f"checkpoint-{stem}.npz")
        if self.world.size == 1:
            # The results of other models are kept already.
            self._remove_checkpoints(but=saved)
        trained = method.train(shares, plan, one, recorder, saved)
        if one["split"] == 0:
            self.last[one["method"]] = trained
        used = {"rho": trained.rho, "step_size": plan.step_size, "decay": plan.decay}
        return {
            "test_rmse": shares.test_rmse(trained.mean),
            "train_mse": shares.train_mse(trained.points),
            "disagreement": gap(trained.points) if method.decentral else None,
            "updates": trained.updates / n if trained.updates else None,
            "seconds": trained.seconds,
            # What "auto" and cross-validation came to.
            "used": None if trained.rho is None else used,
            "kilobytes_sent": trained.bytes / 1e3 or None,
            "trace": [[row["updates"] / n, row["train_mse"], row["gap"]] for row in recorder.rows],
        }
