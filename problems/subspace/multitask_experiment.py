"""The experiment ``rmopt run multitask``: features that tasks share (Mishra et al. 2019, section 6.3).

Beside `experiment`: its methods are regressions, and its case 6 follows the subspaces of agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.comparison import Difference, Experiment, Row, averaged, near
from problems.data import TaskBundle
from problems.methods import Cell, Method, Settings
from problems.subspace.cost import MultitaskFeatures
from problems.subspace.experiment import LEVEL, draw_traces
from problems.subspace.multitask_estimator import AltMin, MultitaskSubspace, is_constant
from problems.subspace.training import VARIANTS, GossipPlan, gossip
from rmopt.core import DivergedError, InvalidInputError, Parts
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator
from rmopt.costs import as_graph
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

# Features are taken as they are, as in the paper.
_PLAIN: dict[str, str] = {"scale": "none", "centre": "none"}
METHODS: dict[str, Method] = {
    name: Method(f"{name.replace('-', ' ').title()} Gossip", MultitaskSubspace(variant=name, **_PLAIN))
    for name in VARIANTS
} | {
    "batch": Method("Trust regions (batch)", MultitaskSubspace(solver="batch", **_PLAIN)),
    "alt-min": Method("Alt-Min (batch)", AltMin(**_PLAIN)),
}
# Case 6 of the paper.
N_TASKS, N_FEATURES, EXAMPLES, CASE_RANK, CASE_RHO, NOISE = 1000, 100, (10, 50), 5, 1e3, 1e-6
# Table 4: Stochastic Gossip by rank.
PRINTED = {"parkinsons": {3: 0.345, 5: 0.339, 7: 0.342, 9: 0.341}}


@dataclass(kw_only=True)
class Multitask(Experiment):
    """Learn features that regressions share: gossip between agents beside Alt-Min and the batch optimum.

    Without --data it runs on case6, the paper's synthetic case, with gossip alone, which takes half a minute on two
    cores.

    Examples of each task are divided at random, 80 % for training. The error of a task is its mean squared error on
    the test part over the variance of all its labels; the table also has it over that of the test labels alone.
    """

    data: Annotated[options.Data, TaskBundle] = "case6"
    agents: Annotated[int, Option(min=2, help="Number of agents.")] = 6
    rank: Annotated[str, options.rank_option(f"3,5,7,9; of case6 {CASE_RANK}")] = ""
    rho: Annotated[str, Option(help=f"Weight of the agreement: a number, or auto; case6: {CASE_RHO:g}.")] = (
        "auto"
    )
    updates: Annotated[float, Option(min=1e-3, help="How often each edge is expected to be taken.")] = 200.0
    seeds: options.Seeds = 1
    methods: Annotated[
        str, Option(help=f"Any of {', '.join(METHODS)}; case6: gossip only; empty: the usual ones.")
    ] = ""
    # Nothing is chosen.
    select: options.Selection = field(init=False, default_factory=lambda: "none")
    folds: int = field(init=False, default_factory=lambda: 2)

    name: ClassVar = "multitask"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    common: ClassVar = ("agents", "rho", "updates")
    headings: ClassVar = {
        "nmse": "NMSE", "sem": "± s.e.m.", "nmse_test": "by test var.",
        "distance": "distance to U*", "gap": "between neighbours",
        "train_seconds": "train s",
    }  # fmt: skip

    def __call__(self, run: Run) -> Outcome:
        usual = "stochastic,precon-stochastic,batch,alt-min"
        self.methods = self.methods or ("stochastic,parallel" if self.data == "case6" else usual)
        with threadpool_limits(1, user_api="blas"):
            return super().__call__(run)

    def check(self) -> None:
        weight = options.number_or_auto(self.rho, "--rho")
        given = {"n_agents": self.agents, "rho": weight, "n_epochs": self.updates}
        for name, kind in self.chosen.items():
            if self.data == "case6" and name not in VARIANTS:
                raise InvalidInputError(
                    f"case6 is for gossip alone; compare {kind.label} with --data parkinsons."
                )
            # Of the options, a user's method takes its rank alone.
            self.chosen[name] = replace(kind, estimator=kind.made(**given)) if name in METHODS else kind

    def read(self, kind: Any) -> Any:
        if self.data != "case6":
            return super().read(kind)
        source = f"{N_TASKS} tasks that share {CASE_RANK} features"
        X = np.empty((N_TASKS, N_FEATURES))
        return SimpleNamespace(name="case6", source=source, X=X, y=X, fingerprint=lambda: source)

    def settings(self) -> list[Settings]:
        usual, most = "3,5,7,9", self.bundle.X.shape[1] - 1
        if self.data == "case6":
            usual, most = str(CASE_RANK), CASE_RANK
        ranks = options.ranks_within(self.run.say, self.rank, usual, most)
        # A method without a rank is trained once.
        return [
            {"method": name, "rank": rank, "code": kind.code}
            for rank in [*ranks, 0]
            for name, kind in self.chosen.items()
            if kind.ranked == bool(rank)
        ]

    def header(self) -> str:
        bundle = self.bundle
        return f"{bundle.name} ({bundle.source}): {bundle.X.shape[1]} features, {self.splits}"

    def measured(self, one: Settings) -> Cell:
        model = self.chosen[one["method"]].made(random_state=one["seed"], rank=one["rank"])
        return self.followed(model) if self.data == "case6" else self.tested(model, one["seed"])

    def tested(self, model: Any, seed: int) -> Cell:
        """Train a model, and return its errors."""
        bundle = self.bundle
        test, begun = bundle.held_out(seed), perf_counter()
        try:
            model.fit(bundle.X[~test], bundle.y[~test], bundle.task[~test])
        except DivergedError:
            return dict.fromkeys(("nmse", "nmse_test", "seconds"))
        seconds = perf_counter() - begun
        X, which = bundle.X[test], bundle.task[test]
        predicted = numbers("predict(X, tasks)", model.predict(X, which), which.shape)
        return errors(bundle, test, predicted) | {"seconds": seconds}

    def followed(self, model: MultitaskSubspace) -> Cell:
        """Train on Case 6, and follow the agents on their way to the true subspace."""
        tasks, truth = shared_features_tasks(model.random_state)
        n, manifold = self.agents, Grassmann(N_FEATURES, model.rank)
        rho = CASE_RHO if model.rho == "auto" else model.rho
        plan = GossipPlan(rho, model.variant, n_epochs=self.updates, init="independent")
        edges = as_graph(plan.graph, n).edges

        def off(points: Parts) -> float:
            return max(manifold.dist(point, truth) for point in points)

        def gap(points: Parts) -> float:
            return float(np.mean([manifold.dist(points[i], points[j]) for i, j in edges]))

        at = [round(step) for step in np.geomspace(5, max(6.0, self.updates * len(edges)), 16)]
        recorder = Recorder({"off": off, "gap": gap}, at=at)
        cost = MultitaskFeatures(tasks, n)
        seconds = gossip(cost, model.rank, plan, model.random_state, recorder=recorder).result.seconds
        trace = [[row["updates"] / n, row["off"], row["gap"]] for row in recorder.rows]
        ends = dict(zip(("updates", "distance", "gap"), trace[-1], strict=True))
        return ends | {"trace": trace, "seconds": seconds}

    def row(self, row: Row) -> Cell:
        if self.data == "case6":
            return averaged(row.cells, updates=None, distance=None, gap=None)
        means = averaged(row.cells, nmse="sem", nmse_test=None)
        return {"rank": row["rank"] or None} | means

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        if self.data != "case6":
            return multitask_claims(rows, self.bundle.name)
        made = []
        for row in rows:
            # Figure 5(a).
            distance, gap = (max(cell[name] for cell in row.cells) for name in ("distance", "gap"))
            claim = f"{row.label}: all agents converge to the optimal subspace"
            numbers_ = f"largest distance {distance:.1e}, between neighbours {gap:.1e}"
            made.append(Claim(claim, distance < 1e-3, numbers_))
        return made

    def draw(self, rows: Sequence[Row]) -> None:
        if self.data == "case6":
            traces = {row.label: row.cells[0]["trace"] for row in rows}
            distance = "largest distance to the true subspace"
            self.run.draw("traces.png", draw_traces, traces, "case 6", distance, size=(9.0, 4.0))


def multitask_claims(rows: Sequence[Row], data: str) -> list[Claim]:
    """Return the claims of Table 4: gossip is as good as Alt-Min at every rank, and at the printed level."""
    made = []
    ours = {row["rank"]: row for row in rows if row["method"] == "stochastic"}
    printed = {rank: value for rank, value in PRINTED.get(data, {}).items() if rank in ours}
    others = {row["method"]: row.label for row in rows if row["method"] not in (*VARIANTS, "batch")}
    for name, label in others.items() if ours else ():
        theirs = {row["rank"]: row for row in rows if row["method"] == name}
        pairs = {rank: (theirs.get(rank, theirs.get(0)), row) for rank, row in ours.items()}
        gaps = {
            f"rank {rank}": (Difference.of(other.cells, row.cells, "nmse"), LEVEL * other.mean("nmse"))
            for rank, (other, row) in pairs.items()
            if other is not None
        }
        level = f"{label} {next(iter(theirs.values())).mean('nmse'):.3f}"
        made.append(near(f"Stochastic Gossip is within {LEVEL:.0%} of {label}", gaps, level, name))
    if printed:
        means = {rank: ours[rank].mean("nmse") for rank in printed}
        level = all(abs(means[rank] / value - 1.0) <= LEVEL for rank, value in printed.items())
        shown = [f"r = {rank}: {means[rank]:.3f}, printed {value:.3f}" for rank, value in printed.items()]
        made.append(Claim(f"the errors of Table 4, to {LEVEL:.0%}", level, ", ".join(shown)))
    return made


def errors(bundle: TaskBundle, test: Array, predicted: Array) -> dict[str, float]:
    """Return the mean over tasks of squared error over variance: of all labels of a task, and of its test ones."""
    measured: dict[str, list[float]] = {"nmse": [], "nmse_test": []}
    for task in range(int(bundle.task.max()) + 1):
        rows = bundle.task[test] == task
        labels = bundle.y[test][rows]
        error = float(np.mean((predicted[rows] - labels) ** 2))
        # Where all labels of a task are equal there is nothing to compare with.
        for values, among in zip(measured.values(), (bundle.y[bundle.task == task], labels), strict=True):
            if not is_constant(among):
                values.append(error / among.var())
    return {name: float(np.mean(values)) if values else np.nan for name, values in measured.items()}


def shared_features_tasks(seed: int) -> tuple[list[tuple[Array, Array]], Array]:
    """Return the tasks of Case 6, and the subspace that they share.

    y_t = X_t U* w_t plus noise; the paper prints X_t U* U*ᵀ w_tᵀ, whose shapes do not fit a w_t of five entries.
    """
    rng = generator(seed, Stream.TASKS)
    U = np.linalg.qr(rng.standard_normal((N_FEATURES, CASE_RANK)))[0]
    tasks = []
    for count in rng.integers(EXAMPLES[0], EXAMPLES[1] + 1, size=N_TASKS):
        X = rng.standard_normal((count, N_FEATURES))
        y = X @ (U @ rng.standard_normal(CASE_RANK)) + NOISE * rng.standard_normal(count)
        tasks.append((X, y))
    return tasks, U
