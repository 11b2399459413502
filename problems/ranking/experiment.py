"""The experiment ``rmopt run ranking``: figures 4 and 5 of the LORETA paper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from problems.cells import Cells, chosen_from, mean_and_sem, summary, whole_numbers
from problems.datasets import load
from problems.multilabel import MultilabelBundle
from problems.ranking.claims import ranking_claims
from problems.ranking.cost import LabelRanking
from problems.ranking.figure import draw_ranking
from problems.ranking.measures import mean_average_precision, precision_at_1
from problems.ranking.methods import METHODS, Method
from problems.ranking.model import LabelScores
from problems.ranking.training import INITS, ranking_cost
from problems.selection import select as select_value
from rmopt.core import DivergedError, Problem
from rmopt.core.arguments import integer
from rmopt.experiments import Outcome, Run
from rmopt.solvers import Recorder

Array = np.ndarray
Option = typer.Option

FOLDS = 5
# Enough test rows for a curve against time; the table measures all.
CURVE_ROWS = 500


@dataclass(frozen=True)
class Setting:
    """A line of the table to come."""

    name: str
    method: Method
    init: str
    rank: int


def ranking(
    run: Run,
    *,
    data: Annotated[str, Option(help="Multi-label data set; `rmopt list` names them.")] = "digits-labels",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    ranks: Annotated[str, Option(help="The ranks, with commas between.")] = "2,4,8",
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}.")] = ",".join(METHODS),
    inits: Annotated[str, Option(help=f"Starts of the methods with a rank: any of {', '.join(INITS)}.")] = (
        ",".join(INITS)
    ),
    epochs: Annotated[int, Option(help="Passes over the training rows.")] = 5,
    splits: Annotated[int, Option(help="Random splits as large as the published one; 0: that one.")] = 3,
    select: Annotated[
        bool,
        Option(
            "--select/--no-select",
            help="Choose step sizes by 5-fold cross-validation on the first training part, at the middle rank.",
        ),
    ] = True,
    resume: Annotated[bool, Option("--resume", help="Go on from the results in the --out folder.")] = False,
) -> Outcome:
    """Rank labels: LORETA-1 with three starts, and with WARP sampling, beside its rivals.

    Each example has several true labels, which should be ranked before the others (Shalit et al. 2012,
    section 7.2).
    """
    chosen, widths = chosen_from(METHODS, methods, "--methods"), whole_numbers(ranks, "--ranks")
    starts = list(chosen_from({name: name for name in INITS}, inits, "--inits"))
    integer("--epochs", epochs, 1)
    integer("--splits", splits, 0)
    bundle = load(data, data_home, MultilabelBundle)
    settings = [
        Setting(name, method, init, rank)
        for name, method in chosen.items()
        for init in (["zero"] if method.full_rank else starts)
        for rank in ([0] if method.full_rank else widths)
    ]
    benches = [
        Bench((bundle.resplit(split) if splits else bundle).scaled(), epochs, run.seed)
        for split in range(max(1, splits))
    ]
    for one in settings:
        one.method.manifold(benches[0].cost(one.method), one.rank)
    labels = bundle.Y.nnz / bundle.Y.shape[0]
    run.say(
        f"{bundle.name} ({bundle.source}): {bundle.train.sum():,} training, {bundle.test.sum():,} test rows; "
        f"{bundle.X.shape[1]:,} features, {bundle.Y.shape[1]:,} labels, {labels:.1f} a row"
    )
    cells = Cells(run.path("cells.jsonl"), resume)
    sizes = _step_sizes(run, cells, benches[0], settings, widths[len(widths) // 2], data) if select else {}
    results: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    with run.ticks("models", len(settings) * len(benches)) as tick:
        for split, bench in enumerate(benches):
            for one in settings:
                size = sizes.get((one.name, one.init), one.method.step_size)
                about = {
                    "data": data, "method": one.name, "init": one.init, "rank": one.rank, "epochs": epochs,
                    "split": split, "published": splits == 0, "step_size": size, "seed": run.seed,
                }  # fmt: skip
                found = cells.get(about, partial(bench.train, one, size))
                results.setdefault((one.name, one.init, one.rank), []).append(found)
                tick()
    frequency = mean_and_sem(bench.frequency_map() for bench in benches)
    rows: list[dict[str, Any]] = [{"method": "label frequency", "map": frequency[0], "map_sem": frequency[1]}]
    rows += [
        {"method": METHODS[name].label, "init": init, "rank": rank or None}
        | summary(found)
        | {"step_size": sizes.get((name, init), METHODS[name].step_size)}
        for (name, init, rank), found in results.items()
    ]
    run.draw(
        "ranking.png", draw_ranking, results, {name: chosen[name].label for name in chosen}, frequency[0],
        bundle.name, size=(11.0, 5.2),
    )  # fmt: skip
    return Outcome(
        data=bundle.name,
        parameters={
            "ranks": widths, "methods": list(chosen), "inits": starts, "epochs": epochs, "splits": splits,
            "select": select,
        },
        rows=rows,
        headings={"map_sem": "± s.e.m.", "precision_at_1": "P@1", "train_seconds": "train s", "step_size": "step"},
        claims=ranking_claims(results, frequency[0]),
    )  # fmt: skip


class Bench:
    """The training and test parts of one split."""

    def __init__(self, bundle: MultilabelBundle, epochs: int, seed: int) -> None:
        self.epochs, self.seed = epochs, seed
        self.X, self.Y = bundle.X[bundle.train], bundle.Y[bundle.train]
        self.X_test, self.Y_test = bundle.X[bundle.test], bundle.Y[bundle.test]
        count = min(CURVE_ROWS, self.X_test.shape[0])
        self.curve_rows = np.sort(np.random.default_rng(seed).permutation(self.X_test.shape[0])[:count])

    def cost(self, method: Method, rows: Array | None = None) -> LabelRanking:
        """Return the cost of a method over some training rows."""
        part = slice(None) if rows is None else rows
        return ranking_cost(self.X[part], self.Y[part], method.sampling)

    def train(self, one: Setting, step_size: float) -> dict[str, Any]:
        """Return what a model measures on the test part, and its curve against training time."""
        cost = self.cost(one.method)

        def measure(point: Any) -> float:
            scores = LabelScores(point)(self.X_test[self.curve_rows])
            return mean_average_precision(scores, self.Y_test[self.curve_rows])

        recorder = Recorder({"map": measure}, first=max(1, cost.n_terms // 16))
        try:
            point, result = self._fit(one, cost, step_size, recorder)
        except DivergedError:
            return {"map": None, "precision_at_1": None, "seconds": None, "curve": []}
        scores = LabelScores(point)(self.X_test)
        return {
            "map": mean_average_precision(scores, self.Y_test),
            "precision_at_1": precision_at_1(scores, self.Y_test),
            "seconds": result.seconds,
            "curve": [[row["seconds"], row["map"]] for row in result.history if row["step"] > 0],
        }

    def score(self, one: Setting, step_size: float, train: Array, held_out: Array) -> float:
        """Return the mean average precision on held-out training rows."""
        point, _ = self._fit(one, self.cost(one.method, train), step_size, Recorder())
        return mean_average_precision(LabelScores(point)(self.X[held_out]), self.Y[held_out])

    def frequency_map(self) -> float:
        """Return the mean average precision of one order for all rows: labels by their frequency."""
        frequency = np.asarray(self.Y.sum(axis=0)).ravel()
        return mean_average_precision(np.tile(frequency, (self.X_test.shape[0], 1)), self.Y_test)

    def _fit(self, one: Setting, cost: LabelRanking, step_size: float, recorder: Recorder) -> tuple[Any, Any]:
        manifold = one.method.manifold(cost, one.rank)
        start = one.method.start(manifold, cost, one.init, self.seed, step_size)
        solver = one.method.solver(cost, step_size, self.epochs)
        result = solver.run(Problem(manifold, cost), start, random_state=self.seed, recorder=recorder)
        return result.point, result


def _step_sizes(
    run: Run, cells: Cells, bench: Bench, settings: list[Setting], rank: int, data: str
) -> dict[tuple[str, str], float]:
    """Return the step size of each method and start, by cross-validation."""
    from sklearn.model_selection import KFold

    folds = list(KFold(FOLDS, shuffle=True, random_state=bench.seed).split(np.arange(bench.X.shape[0])))
    at_rank = {(one.name, one.init): one for one in settings if one.rank in (0, rank)}
    sizes = {}
    for (name, init), one in at_rank.items():

        def compute(one: Setting = one) -> dict[str, Any]:
            with run.ticks(f"selecting for {one.method.label}", FOLDS * len(one.method.grid)) as tick:
                found = select_value(one.method.grid, folds, partial(bench.score, one), tick=tick)
            return {"step_size": found.best}

        about = {
            "data": data, "select": name, "init": init, "rank": one.rank, "epochs": bench.epochs,
            "grid": list(one.method.grid), "seed": bench.seed,
        }  # fmt: skip
        sizes[name, init] = float(cells.get(about, compute)["step_size"])
    return sizes
