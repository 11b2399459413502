"""The experiment ``rmopt run ranking``: figures 4 and 5 of the LORETA paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.model_selection import KFold

from problems.cells import Cell, check_options, chosen_from, mean_and_sem, whole_numbers
from problems.comparison import Comparison, Settings, averaged, crossed
from problems.datasets import load
from problems.multilabel import MultilabelBundle
from problems.ranking.claims import ranking_claims
from problems.ranking.estimator import LabelScores
from problems.ranking.figure import draw_ranking
from problems.ranking.measures import mean_average_precision, precision_at_1
from problems.ranking.methods import METHODS, LabelLearner
from problems.ranking.training import INITS
from rmopt.core import DivergedError
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import Recorder

Option = typer.Option

FOLDS = 5
# Enough test rows for a curve against time; the table measures all.
CURVE_ROWS = 500


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
    check_options(locals(), epochs=1, splits=0)
    bundle = load(data, data_home, MultilabelBundle)
    parts = [(bundle.resplit(split) if splits else bundle).scaled() for split in range(max(1, splits))]
    n_labels, n = bundle.Y.shape[1], bundle.X.shape[1]
    if not all(method.estimator.full_rank for method in chosen.values()):
        for rank in widths:
            FixedRankEmbedded(n_labels, n, rank)
    run.say(
        f"{bundle.name} ({bundle.source}): {bundle.train.sum():,} training, {bundle.test.sum():,} test rows; "
        f"{n:,} features, {n_labels:,} labels, {bundle.Y.nnz / bundle.Y.shape[0]:.1f} a row"
    )
    comparison = Comparison(run, resume, data=data, epochs=epochs, seed=run.seed)

    def learner_of(name: str, one: Settings) -> LabelLearner:
        given = {key: one[key] for key in ("rank", "init", "step_size") if key in one}
        return chosen[name].made(n_epochs=epochs, random_state=run.seed, **given)

    def select_step_size(one: Settings) -> Cell:
        method, train = chosen[one["select"]], parts[0].train
        folds = KFold(FOLDS, shuffle=True, random_state=run.seed)
        return comparison.search(
            method.label, learner_of(one["select"], one), method.grid, parts[0].X[train], parts[0].Y[train], folds,
            {"map": LabelLearner.score},
        )[0]  # fmt: skip

    def train(one: Settings) -> Cell:
        return _trained(parts[one["split"]], learner_of(one["method"], one))

    models: list[Settings] = []
    for name, method in chosen.items():
        full, size = method.estimator.full_rank, method.estimator.step_size
        for init in ["zero"] if full else starts:
            if select:
                about: Settings = {
                    "select": name,
                    "init": init,
                    "grid": [one["step_size"] for one in method.grid],
                }
                about["rank"] = 0 if full else widths[len(widths) // 2]
                size = comparison.cell(about, select_step_size)["step_size"]
            models += crossed(method=[name], init=[init], rank=[0] if full else widths, step_size=[size])
    settings = [
        model | {"split": split, "published": splits == 0} for split in range(len(parts)) for model in models
    ]
    results = comparison.results(settings, train, by=("method", "init", "rank"))
    frequency = mean_and_sem(map(_frequency_map, parts))
    rows: list[dict[str, Any]] = [{"method": "label frequency", "map": frequency[0], "map_sem": frequency[1]}]
    rows += [
        {"method": chosen[model["method"]].label, "init": model["init"], "rank": model["rank"] or None}
        | averaged(found, map="map_sem", precision_at_1=None)
        | {"step_size": model["step_size"]}
        for model, found in zip(models, results.values(), strict=True)
    ]
    labels = {name: method.label for name, method in chosen.items()}
    run.draw("ranking.png", draw_ranking, results, labels, frequency[0], bundle.name, size=(11.0, 5.2))
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


def _trained(part: MultilabelBundle, learner: LabelLearner) -> Cell:
    """Return what a model measures on the test part, and its curve against training time."""
    X, Y = part.X[part.test], part.Y[part.test]
    count = min(CURVE_ROWS, X.shape[0])
    some = np.sort(np.random.default_rng(learner.random_state).permutation(X.shape[0])[:count])
    recorder = Recorder(
        {"map": lambda point: learner.score(X[some], Y[some], point)}, first=max(1, part.train.sum() // 16)
    )
    try:
        result = learner.fit(part.X[part.train], part.Y[part.train], recorder=recorder).result_
    except DivergedError:
        return {"map": None, "precision_at_1": None, "seconds": None, "curve": []}
    scores = LabelScores(result.point)(X)
    return {
        "map": mean_average_precision(scores, Y),
        "precision_at_1": precision_at_1(scores, Y),
        "seconds": result.seconds,
        "curve": [[row["seconds"], row["map"]] for row in result.history if row["step"] > 0],
    }


def _frequency_map(part: MultilabelBundle) -> float:
    """Return the mean average precision of one order for all rows: labels by their frequency."""
    frequency = np.asarray(part.Y[part.train].sum(axis=0)).ravel()
    return mean_average_precision(np.tile(frequency, (part.test.sum(), 1)), part.Y[part.test])
