"""The experiment ``rmopt run multitask``: features that tasks share (Mishra et al. 2019, section 6.3).

Beside `experiment`: its methods are regressions, and its case 6 follows the subspaces of agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Annotated, Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.comparison import Difference, Experiment, Row, averaged, mean_and_sem, near
from problems.data import TaskBundle
from problems.methods import Cell, Method, Settings
from problems.subspace.cost import MultitaskFeatures
from problems.subspace.experiment import LEVEL, draw_errors, draw_traces
from problems.subspace.multitask_estimator import CENTRES, SCALES, AltMin, MultitaskSubspace, is_constant
from problems.subspace.training import VARIANTS, GossipPlan, gossip
from rmopt.core import DivergedError, InvalidInputError, Parts
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number, numbers, one_of
from rmopt.core.streams import Stream, generator
from rmopt.costs import as_graph
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

USUAL_RANKS = "3,5,7,9"
METHODS: dict[str, Method] = {
    **{
        name: Method(f"{name.replace('-', ' ').title()} Gossip", MultitaskSubspace(variant=name))
        for name in VARIANTS
    },
    "batch": Method("Trust regions (batch)", MultitaskSubspace(solver="batch")),
    "alt-min": Method("Alt-Min (batch)", AltMin()),
}
# Case 6 of the paper.
N_TASKS, N_FEATURES, EXAMPLES, CASE_RANK, NOISE = 1000, 100, (10, 50), 5, 1e-6
# Table 4: Stochastic Gossip by rank.
PRINTED = {"parkinsons": {3: 0.345, 5: 0.339, 7: 0.342, 9: 0.341}}
# Options that our methods have as parameters.
TOLD = ("lam", "scale", "centre")


@dataclass(kw_only=True)
class Multitask(Experiment):
    """Learn features that regressions share: gossip between agents beside Alt-Min and the batch optimum.

    Without --data it runs on case6, the paper's synthetic case, which takes half a minute on two cores.

    Examples of each task are divided at random, 80 % for training. The error of a task is its mean squared error on
    the test part over the variance of all its labels; the table also has it over that of the test labels alone.
    """

    data: Annotated[options.Data, TaskBundle] = "case6"
    agents: Annotated[int, Option(help="Number of agents.")] = 6
    rank: Annotated[str, options.rank_option(f"{USUAL_RANKS}; of case6 {CASE_RANK}")] = ""
    rho: Annotated[str, Option(help="Weight of the agreement: a number, or auto; case6: 1000.")] = "auto"
    lam: Annotated[float, Option(help="Weight of the squared coefficients; case6: 0.")] = 0.1
    updates: Annotated[float, Option(help="How often each edge is expected to be taken.")] = 200.0
    scale: Annotated[str, Option(help="Features: none (as they are) or standard; not for case6.")] = "none"
    centre: Annotated[str, Option(help="none, or tasks: subtract each task's means; not for case6.")] = "none"
    seeds: options.Seeds = 3
    methods: Annotated[
        str, Option(help=f"Any of {', '.join(METHODS)}; case6: gossip only; empty: the usual ones.")
    ] = ""
    # Nothing is chosen.
    select: options.Selection = field(init=False, default_factory=lambda: "none")
    folds: int = field(init=False, default_factory=lambda: 2)

    name: ClassVar = "multitask"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    headings: ClassVar = {
        "nmse": "NMSE", "sem": "± s.e.m.", "nmse_test": "by test var.", "agents_best": "best agent",
        "agents_worst": "worst", "train_seconds": "train s",
    }  # fmt: skip

    def __call__(self, run: Run) -> Outcome:
        with threadpool_limits(1, user_api="blas"):
            if self.data == "case6":
                return self._case6(run)
            self.methods = self.methods or "stochastic,precon-stochastic,batch,alt-min"
            return super().__call__(run)

    def check(self) -> None:
        options.check_options(vars(self), seeds=1)
        number("--lam", self.lam, least=0)
        as_graph("path", integer("--agents", self.agents, 1))
        one_of("--scale", self.scale, SCALES)
        one_of("--centre", self.centre, CENTRES)
        self.weight = options.number_or_auto(self.rho, "--rho")
        options.whole_numbers(self.rank or USUAL_RANKS, "--rank")

    def settings(self) -> list[Settings]:
        self.ranks = options.ranks_within(self.run.say, self.rank, USUAL_RANKS, self.bundle.X.shape[1] - 1)
        n_tasks = int(self.bundle.task.max()) + 1
        if self.agents > n_tasks:
            self.run.say(f"--agents is {n_tasks}, one for each task.")
            self.agents = n_tasks
        # A method without a rank is a level.
        return [
            {"method": name, "rank": width, "code": kind.code}
            for width in [*self.ranks, 0]
            for name, kind in self.chosen.items()
            if kind.ranked == bool(width)
        ]

    def about(self) -> Settings:
        more = {"n_agents": self.agents, "rho": self.weight, "n_epochs": self.updates}
        return {name: getattr(self, name) for name in TOLD} | more

    def header(self) -> str:
        bundle = self.bundle
        return (
            f"{bundle.name} ({bundle.source}): {len(bundle.y):,} examples of {int(bundle.task.max()) + 1} tasks, "
            f"{bundle.X.shape[1]} features, {self.splits}"
        )

    def measured(self, one: Settings) -> Cell:
        bundle, kind = self.bundle, self.chosen[one["method"]]
        test = bundle.held_out(one["seed"])
        # Of the options, a user's method takes its rank alone.
        ours = self.about() if isinstance(kind.estimator, MultitaskSubspace | AltMin) else {}
        model = kind.made(random_state=one["seed"], rank=one["rank"], **ours)
        try:
            begun = perf_counter()
            model.fit(bundle.X[~test], bundle.y[~test], bundle.task[~test])
            seconds = perf_counter() - begun
        except DivergedError:
            return dict.fromkeys(("nmse", "nmse_test", "agents_best", "agents_worst", "seconds"))
        X, which = bundle.X[test], bundle.task[test]
        predicted = numbers("predict(X, tasks)", model.predict(X, which), which.shape)
        # The errors that each agent's own subspace would make on all tasks.
        parts = zip(getattr(model, "agents_coef_", ()), getattr(model, "agents_intercept_", ()), strict=True)
        by_agents = [np.einsum("ij,ij->i", X, coef[which]) + levels[which] for coef, levels in parts]
        own = [_errors(bundle, test, found)["nmse"] for found in by_agents]
        best, worst = min(own, default=None), max(own, default=None)
        return _errors(bundle, test, predicted) | {
            "agents_best": best,
            "agents_worst": worst,
            "seconds": seconds,
        }

    def row(self, row: Row) -> Cell:
        means = averaged(row.cells, nmse="sem", nmse_test=None, agents_best=None, agents_worst=None)
        return {"rank": row["rank"] or None} | means

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        return multitask_claims(rows, self.bundle.name)

    def draw(self, rows: Sequence[Row]) -> None:
        curves: dict[str, Any] = {}
        for row in rows:
            point = mean_and_sem(cell["nmse"] for cell in row.cells)
            at = [row["rank"]] if row["rank"] else self.ranks
            curves.setdefault(row.label, []).extend((rank, *point) for rank in at)
        if len(self.ranks) > 1:
            name, error = self.bundle.name, "normalised mean squared error (test)"
            self.run.draw("errors.png", draw_errors, curves, name, "rank", error, size=(6.4, 4.4))

    def _case6(self, run: Run) -> Outcome:
        """Train on Case 6, and follow the agents on their way to the true subspace."""
        self.check()
        if self.rank not in ("", str(CASE_RANK)):
            raise InvalidInputError(f"--rank {self.rank}: case6 has rank {CASE_RANK}; leave it out.")
        if self.method:
            raise InvalidInputError(
                "case6 follows the subspaces of agents; compare a --method of your own with --data parkinsons."
            )
        gossips = {name: METHODS[name] for name in VARIANTS}
        chosen = options.chosen_from(gossips, self.methods or "stochastic,parallel", "--methods")
        rho = 1e3 if self.weight == "auto" else self.weight
        plan = GossipPlan(rho, n_epochs=self.updates, init="independent")
        tasks, truth = shared_features_tasks(run.seed)
        cost, manifold, n = MultitaskFeatures(tasks, self.agents), Grassmann(*truth.shape), self.agents
        edges = as_graph(plan.graph, n).edges
        run.say(f"case 6: {N_TASKS} tasks with {N_FEATURES} features, {n} agents, rank {CASE_RANK}")

        def off(points: Parts) -> float:
            return max(manifold.dist(point, truth) for point in points)

        def gap(points: Parts) -> float:
            return float(np.mean([manifold.dist(points[i], points[j]) for i, j in edges]))

        at = [round(step) for step in np.geomspace(5, max(6.0, plan.n_epochs * len(edges)), 16)]
        rows: list[Cell] = []
        traces = {}
        for variant, method in chosen.items():
            recorder = Recorder(
                {"off": off, "gap": gap}, at=at, progress=run.progress, description=method.label
            )
            found = gossip(cost, CASE_RANK, replace(plan, variant=variant), run.seed, recorder=recorder)
            traces[method.label] = [[seen["updates"] / n, seen["off"], seen["gap"]] for seen in recorder.rows]
            # The end is measured too.
            ends = dict(zip(("updates", "distance", "gap"), traces[method.label][-1], strict=True))
            rows.append({"method": method.label, **ends, "train_seconds": found.result.seconds})
        distance = "largest distance to the true subspace"
        run.draw("traces.png", draw_traces, traces, "case 6", distance, size=(9.0, 4.0))
        # Figure 5(a).
        claims = [
            Claim(
                f"{label}: all agents converge to the optimal subspace",
                bool(seen[-1][1] < 1e-3),
                f"largest distance {seen[-1][1]:.1e}, between neighbours {seen[-1][2]:.1e}",
            )
            for label, seen in traces.items()
        ]
        about = {"agents": n, "rho": plan.rho, "updates": plan.n_epochs}
        headings = {"distance": "distance to U*", "gap": "between neighbours", "train_seconds": "train s"}
        return Outcome("case6", about, rows, headings, claims)


def multitask_claims(rows: Sequence[Row], data: str) -> list[Claim]:
    """Return the claims of Table 4: gossip is as good as Alt-Min at every rank, and at the printed level."""
    ours = {row["rank"]: row for row in rows if row["method"] == "stochastic"}
    by_name: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row["method"] not in (*VARIANTS, "batch"):
            by_name.setdefault(row["method"], {})[row["rank"]] = row
    made = []
    for name, theirs in by_name.items() if ours else ():
        pairs = {rank: (theirs.get(rank, theirs.get(0)), row) for rank, row in ours.items()}
        gaps = {
            f"rank {rank}": (Difference.of(other.cells, row.cells, "nmse"), LEVEL * other.mean("nmse"))
            for rank, (other, row) in pairs.items()
            if other is not None
        }
        first, label = next(iter(theirs.values())), next(iter(ours.values())).label
        claim = f"{label} is within {LEVEL:.0%} of {first.label}"
        made.append(near(claim, gaps, f"{first.label} {first.mean('nmse'):.3f}", name))
    if printed := {rank: value for rank, value in PRINTED.get(data, {}).items() if rank in ours}:
        means = {rank: ours[rank].mean("nmse") for rank in printed}
        level = all(abs(means[rank] / value - 1.0) <= LEVEL for rank, value in printed.items())
        listed = ", ".join(
            f"r = {rank}: {means[rank]:.3f}, printed {value:.3f}" for rank, value in printed.items()
        )
        made.append(Claim(f"the errors of Table 4, to {LEVEL:.0%}", level, listed))
    return made


def _errors(bundle: TaskBundle, test: Array, predicted: Array) -> dict[str, float]:
    """Return the mean over tasks of squared error over variance: of all labels of a task, and of its test ones."""
    whole: list[float] = []
    part: list[float] = []
    for task in range(int(bundle.task.max()) + 1):
        rows = bundle.task[test] == task
        labels = bundle.y[test][rows]
        error = float(np.mean((predicted[rows] - labels) ** 2))
        # Where all labels of a task are equal there is nothing to compare with.
        for found, among in ((whole, bundle.y[bundle.task == task]), (part, labels)):
            if not is_constant(among):
                found.append(error / among.var())
    measured = {"nmse": whole, "nmse_test": part}
    return {name: float(np.mean(found)) if found else np.nan for name, found in measured.items()}


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
