"""The experiment ``rmopt run multitask``: features that tasks share (Mishra et al. 2019, section 6.3).

Beside `experiment`: its methods are regressions, and its case 6 follows the subspaces of agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Annotated, Any, ClassVar

import numpy as np
from typer import Option

from problems import options
from problems.comparison import Difference, Experiment, Row, above
from problems.data import TaskBundle
from problems.methods import Cell, Method, Settings
from problems.subspace.experiment import LEVEL
from problems.subspace.multitask_estimator import AltMin, MultitaskSubspace, is_constant
from problems.subspace.training import VARIANTS
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator
from rmopt.experiments import Claim
from rmopt.manifolds import Grassmann

# Features are taken as they are, as in the paper.
_PLAIN: Settings = {"scale": "none", "centre": "none"}
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

    Without --data it runs on case6, the paper's synthetic case, and looks at how far the subspaces of agents are from
    the true one; that takes half a minute on two cores.

    Examples of each task are divided at random, 80 % for training. The error of a task is its mean squared error on
    the test part over the variance of all its labels; the table also has it over that of the test labels alone.
    """

    data: Annotated[options.Data, TaskBundle] = "case6"
    agents: Annotated[int, Option(min=2, help="Number of agents.")] = 6
    rank: Annotated[str, options.rank_option(f"3,5,7,9; of case6 {CASE_RANK}")] = ""
    rho: Annotated[str, Option(help="Weight of the agreement: a number, or auto; case6: 1000.")] = "auto"
    updates: Annotated[float, Option(min=1e-3, help="How often each edge is expected to be taken.")] = 200.0
    seeds: options.Seeds = 1
    methods: Annotated[
        str, Option(help=f"Any of {', '.join(METHODS)}; case6: not alt-min; empty: the usual ones.")
    ] = ""
    # Nothing is chosen.
    select: options.Selection = field(init=False, default_factory=lambda: "none")
    folds: int = field(init=False, default_factory=lambda: 2)

    name: ClassVar = "multitask"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    common: ClassVar = ("agents", "rho", "updates")
    headings: ClassVar = {
        "nmse": "NMSE", "sem": "± s.e.m.", "nmse_test": "by test var.", "distance": "distance to U*",
        "train_seconds": "train s",
    }  # fmt: skip

    def __post_init__(self) -> None:
        usual = "stochastic,precon-stochastic,batch,alt-min"
        self.methods = self.methods or ("stochastic,parallel" if self.data == "case6" else usual)

    def check(self) -> None:
        case = self.data == "case6"
        self.columns = {"distance": None} if case else {"nmse": "sem", "nmse_test": None}
        given: Settings = {"n_agents": self.agents, "rho": options.number_or_auto(self.rho, "--rho")}
        given |= {"n_epochs": self.updates}
        if case:
            if self.rank not in ("", str(CASE_RANK)):
                raise InvalidInputError(f"--rank {self.rank}: case6 has rank {CASE_RANK}; leave it out.")
            given |= {
                "rho": CASE_RHO if self.rho == "auto" else given["rho"],
                "lam": 0.0,
                "init": "independent",
            }
        for name, kind in self.chosen.items():
            if case and not isinstance(kind.estimator, MultitaskSubspace):
                raise InvalidInputError(
                    f"{kind.label} finds no subspace, which case6 is about; compare it with --data parkinsons."
                )
            # Of the options, a user's method takes its rank alone.
            self.chosen[name] = replace(kind, estimator=kind.made(**given)) if name in METHODS else kind

    def read(self, kind: Any) -> Any:
        if self.data != "case6":
            return super().read(kind)
        bundle, self.truth = case6(self.run.seed)
        return bundle

    def settings(self) -> list[Settings]:
        usual = str(CASE_RANK) if self.data == "case6" else "3,5,7,9"
        ranks = options.ranks_within(self.run.say, self.rank, usual, self.bundle.X.shape[1] - 1)
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
        bundle = self.bundle
        model = self.chosen[one["method"]].made(random_state=one["seed"], rank=one["rank"])
        test = bundle.held_out(one["seed"]) & (self.data != "case6")
        begun = perf_counter()
        try:
            model.fit(bundle.X[~test], bundle.y[~test], bundle.task[~test])
        except DivergedError:
            return dict.fromkeys((*self.columns, "seconds"))
        seconds = perf_counter() - begun
        if self.data == "case6":
            # All examples are for training: what counts is where the agents, or the batch solver, end.
            ends, manifold = getattr(model, "agents_", [model.components_]), Grassmann(*self.truth.shape)
            return {"distance": max(manifold.dist(end, self.truth) for end in ends), "seconds": seconds}
        X, which = bundle.X[test], bundle.task[test]
        predicted = numbers("predict(X, tasks)", model.predict(X, which), which.shape)
        return errors(bundle, test, predicted) | {"seconds": seconds}

    def row(self, row: Row) -> Cell:
        return {"rank": row["rank"] or None} | super().row(row)

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        if self.data != "case6":
            return multitask_claims(rows, self.bundle.name)
        # Figure 5(a).
        ends = {row.label: max(cell["distance"] or np.inf for cell in row.cells) for row in rows}
        said = "all agents converge to the optimal subspace"
        return [
            Claim(f"{label}: {said}", far < 1e-3, f"largest distance {far:.1e}")
            for label, far in ends.items()
        ]


def multitask_claims(rows: Sequence[Row], data: str) -> list[Claim]:
    """Return the claims of Table 4: gossip is as good as Alt-Min at every rank, and at the printed level."""
    made = []
    for row in (row for row in rows if row["method"] == "stochastic"):
        rank, mean = row["rank"], row.mean("nmse")
        for other in (other for other in rows if other["method"] not in (*VARIANTS, "batch")):
            if other["rank"] in (rank, 0):
                gap, level = Difference.of(other.cells, row.cells, "nmse"), other.mean("nmse")
                claim = f"rank {rank}: {row.label} is within {LEVEL:.0%} of {other.label}"
                made.append(above(claim, {"": gap}, other.label, LEVEL * level, f"{level:.3f}"))
        if printed := PRINTED.get(data, {}).get(rank):
            numbers = f"{mean:.3f}, printed {printed:.3f}"
            claim = f"rank {rank}: the error of Table 4, to {LEVEL:.0%}"
            made.append(Claim(claim, abs(mean / printed - 1.0) <= LEVEL, numbers))
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


def case6(seed: int) -> tuple[TaskBundle, Array]:
    """Return the tasks of Case 6, and the subspace that they share.

    y_t = X_t U* w_t plus noise; the paper prints X_t U* U*ᵀ w_tᵀ, whose shapes do not fit a w_t of five entries.
    """
    rng = generator(seed, Stream.TASKS)
    U = np.linalg.qr(rng.standard_normal((N_FEATURES, CASE_RANK)))[0]
    X, y = [], []
    counts = rng.integers(EXAMPLES[0], EXAMPLES[1] + 1, size=N_TASKS)
    for count in counts:
        X.append(rng.standard_normal((count, N_FEATURES)))
        y.append(X[-1] @ (U @ rng.standard_normal(CASE_RANK)) + NOISE * rng.standard_normal(count))
    about, task = f"{N_TASKS} tasks that share {CASE_RANK} features", np.repeat(np.arange(N_TASKS), counts)
    return TaskBundle("case6", about, np.concatenate(X), np.concatenate(y), task), U
