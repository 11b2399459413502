"""Training and test parts, and how a method becomes a row of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from problems.arrays import save_point
from problems.datasets import Bundle
from problems.evaluation import Retrieval, cosine_scores, evaluate_retrieval
from problems.selection import select
from problems.similarity.methods import Method
from problems.similarity.training import initial_point
from problems.text import informative_unit_rows
from problems.triplets import ClassTriplets
from rmopt.core import Problem
from rmopt.costs import TripletSum
from rmopt.experiments import Run
from rmopt.solvers import Checkpoint, Recorder, Sampler, ScheduledSolver

Array = np.ndarray

# Enough for a learning curve and for cross-validation; tables measure all test documents.
CURVE_QUERIES = 200
SELECTION_FOLDS = 5


def prepared(bundle: Bundle, features: int, split: int) -> Bundle:
    """Return the bundle split and with unit rows, its columns in order of information gain.

    Parameters
    ----------
    bundle : Bundle
    features : int
        Columns to keep; 0: all.
    split : int
        Seed of a random 65/35 split; −1: the published one.
    """
    return informative_unit_rows(bundle.resplit(split) if split >= 0 else bundle, features)


MakeSolver = Callable[[float, int, Sampler], ScheduledSolver]


@dataclass(frozen=True)
class Plan:
    """A method with its settings: a line of a table to come.

    Attributes
    ----------
    label : str
    method : Method
    manifold : Manifold
    start : point
    step_size : float
    solver : callable
        Maps (step_size, n_steps, sampler) to the solver.
    """

    label: str
    method: Method
    manifold: Any
    start: Any
    step_size: float
    solver: MakeSolver


class Bench:
    """The data of one comparison.

    Parameters
    ----------
    bundle : Bundle
        Prepared.
    triplets : int
        Training triplets for each method.
    seed : int
        Seeds the triplets and the choice of queries.
    """

    def __init__(self, bundle: Bundle, triplets: int, seed: int) -> None:
        train, test = bundle.train, bundle.test
        self.X, self.y, self.X_test, self.y_test = (
            bundle.X[train],
            bundle.y[train],
            bundle.X[test],
            bundle.y[test],
        )
        self.triplets, self.seed = triplets, seed
        self.cost, self.sampler = TripletSum(self.X, self.X), ClassTriplets(self.y)
        n_curve = min(CURVE_QUERIES, len(self.y_test))
        self.curve_queries = np.sort(np.random.default_rng(seed).permutation(len(self.y_test))[:n_curve])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def cosine_row(self) -> dict[str, Any]:
        """Return the row of the plain cosine."""
        return _row("cosine", evaluate_retrieval(cosine_scores(self.X_test), self.y_test), 0.0, 0)

    def measured(
        self, method: Method, point: Any, queries: Array | None = None, ks: tuple[int, ...] = (1, 10)
    ) -> Retrieval:
        """Return how well a learned W ranks the test part."""
        return evaluate_retrieval(method.scores(point, self.X_test), self.y_test, queries=queries, ks=ks)

    def plan(
        self, label: str, method: Method, manifold: Any, step_size: float, init: str, solver: MakeSolver
    ) -> Plan:
        """Return a method with its settings, tried out: what cannot run is refused here."""
        start = method.start(manifold) if method.full_rank else initial_point(manifold, init, self.seed)
        plan = Plan(label, method, manifold, start, step_size, solver)
        self.solver_of(plan).engine(Problem(manifold, self.cost))
        return plan

    def solver_of(self, plan: Plan) -> ScheduledSolver:
        """Return the solver of a plan on the whole training part."""
        return plan.solver(plan.step_size, self.triplets, self.sampler)

    def row(self, run: Run, plan: Plan, resume: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Train one method; return its row and its learning curve, and save its model and checkpoint."""
        name = "-".join(plan.label.lower().replace(",", "").split())
        checkpoint = Checkpoint(run.path("checkpoints") / f"{name}.npz")
        if not resume:
            Path(checkpoint.path).unlink(missing_ok=True)
        recorder = Recorder(
            {"map": lambda point: self.measured(plan.method, point, self.curve_queries, ks=()).map},
            first=max(1, self.triplets // 100),
            log=run.path(f"{name}.jsonl"),
            progress=run.progress,
            description=plan.label,
        )
        result = self.solver_of(plan).run(
            Problem(plan.manifold, self.cost),
            plan.start,
            random_state=self.seed,
            recorder=recorder,
            checkpoint=checkpoint,
        )
        about = {"steps": result.steps, "updates": result.updates}
        kind = "metric" if plan.method.metric else "similarity"
        save_point(run.path(f"{name}.npz"), kind, result.point, about)
        measured = self.measured(plan.method, result.point)
        return _row(plan.label, measured, result.seconds, result.updates), result.history

    def with_selected_step_size(self, run: Run, plan: Plan, triplets: int | None = None) -> Plan:
        """Return a plan with the step size that cross-validation on the training part chooses, and say it.

        Each fit looks at `triplets` triplets; at as many as the bench unless given.
        """
        from sklearn.model_selection import StratifiedKFold

        folds = StratifiedKFold(SELECTION_FOLDS, shuffle=True, random_state=self.seed)
        grid = plan.method.grid

        def score(step_size: float, train: Array, held_out: Array) -> float:
            X = self.X[train]
            solver = plan.solver(step_size, triplets or self.triplets, ClassTriplets(self.y[train]))
            problem = Problem(plan.manifold, TripletSum(X, X))
            point = solver.run(problem, plan.start, random_state=self.seed).point
            queries = np.arange(min(CURVE_QUERIES, len(held_out)))
            scores = plan.method.scores(point, self.X[held_out])
            return evaluate_retrieval(scores, self.y[held_out], queries=queries, ks=()).map

        with run.ticks(f"selecting for {plan.label}", SELECTION_FOLDS * len(grid)) as tick:
            found = select(grid, list(folds.split(self.X, self.y)), score, tick=tick)
        edge = ", at the edge of the grid" if found.best in (min(grid), max(grid)) else ""
        run.say(f"{plan.label}: step size {found.best:g} by {SELECTION_FOLDS}-fold cross-validation{edge}")
        return replace(plan, step_size=found.best)


def _row(label: str, measured: Retrieval, seconds: float, updates: int) -> dict[str, Any]:
    return {
        "method": label,
        "map": measured.map,
        "precision_at_1": measured.precision_at[1],
        "precision_at_10": measured.precision_at[10],
        "train_seconds": seconds,
        "updates": updates,
    }
