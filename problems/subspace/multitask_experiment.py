"""The experiment ``rmopt run multitask``: features that tasks share (Mishra et al. 2019, section 6.3).

Beside `experiment`: its methods are regressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
from rmopt.core import DivergedError
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator
from rmopt.experiments import Claim

# Features are taken as they are, as in the paper.
_PLAIN: Settings = {"scale": "none", "centre": "none"}
METHODS: dict[str, Method] = {
    name: Method(f"{name.replace('-', ' ').title()} Gossip", MultitaskSubspace(variant=name, **_PLAIN))
    for name in VARIANTS
} | {
    "batch": Method("Trust regions (batch)", MultitaskSubspace(solver="batch", **_PLAIN)),
    "alt-min": Method("Alt-Min (batch)", AltMin(**_PLAIN)),
}
# Table 4: Stochastic Gossip by rank.
PRINTED = {"parkinsons": {3: 0.345, 5: 0.339, 7: 0.342, 9: 0.341}}


@dataclass(kw_only=True)
class Multitask(Experiment):
    """Learn features that regressions share: gossip between agents beside Alt-Min and the batch optimum.

    Without --data the regressions are made up, and share three features; that takes half a minute on two cores.

    Examples of each task are divided at random, 80 % for training. The error of a task is its mean squared error on
    the test part over the variance of all its labels; the table also has it over that of the test labels alone.
    """

    data: Annotated[options.Data, TaskBundle] = "shared"
    agents: Annotated[int, Option(min=2, help="Number of agents.")] = 6
    rank: Annotated[str, options.rank_option("3,5,7,9")] = ""
    updates: Annotated[float, Option(min=1e-3, help="How often each edge is expected to be taken.")] = 200.0
    seeds: options.Seeds = 1
    methods: Annotated[str, options.methods_option(METHODS)] = "stochastic,precon-stochastic,batch,alt-min"
    # Nothing is chosen.
    select: options.Selection = field(init=False, default_factory=lambda: "none")
    folds: int = field(init=False, default_factory=lambda: 2)

    name: ClassVar = "multitask"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    common: ClassVar = ("agents", "updates")
    headings: ClassVar = {
        "nmse": "NMSE", "sem": "± s.e.m.", "nmse_test": "by test var.", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = "Where a claim fails here: a rank far above three wants more examples or a larger λ."

    def check(self) -> None:
        self.columns = {"nmse": "sem", "nmse_test": None}

    def read(self, kind: Any) -> Any:
        return shared_features() if self.data == "shared" else super().read(kind)

    def settings(self) -> list[Settings]:
        ranks = options.ranks_within(self.run.say, self.rank, "3,5,7,9", self.bundle.X.shape[1] - 1)
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

    def model(self, one: Settings) -> Any:
        # Of the options, a user's method takes its rank alone.
        about = {"n_agents": self.agents, "n_epochs": self.updates} if one["method"] in METHODS else {}
        return self.chosen[one["method"]].made(rank=one["rank"], random_state=one["seed"], **about)

    def measured(self, one: Settings) -> Cell:
        bundle, model, test = self.bundle, self.model(one), self.bundle.held_out(one["seed"])
        begun = perf_counter()
        try:
            model.fit(bundle.X[~test], bundle.y[~test], bundle.task[~test])
        except DivergedError:
            return dict.fromkeys((*self.columns, "seconds"))
        seconds = perf_counter() - begun
        X, which = bundle.X[test], bundle.task[test]
        predicted = numbers("predict(X, tasks)", model.predict(X, which), which.shape)
        return errors(bundle, test, predicted) | {"seconds": seconds}

    def row(self, row: Row) -> Cell:
        return {"rank": row["rank"] or None} | super().row(row)

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        return multitask_claims(rows, self.bundle.name)


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


def shared_features() -> TaskBundle:
    """Return 60 regressions on 20 features, whose coefficients lie in three dimensions, with some noise."""
    rng, task = generator(0, Stream.TASKS), np.repeat(np.arange(60), 50)
    coef = rng.standard_normal((60, 3)) @ np.linalg.qr(rng.standard_normal((20, 3)))[0].T
    X = rng.standard_normal((len(task), 20))
    y = np.einsum("ij,ij->i", X, coef[task]) + 0.5 * rng.standard_normal(len(task))
    return TaskBundle("shared", "60 regressions that share 3 features", X, y, task)
