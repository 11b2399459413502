"""The experiment ``rmopt run metric``: COMET beside its rivals (Atzmon et al. 2015, section 5)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.model_selection import StratifiedKFold

from problems.cells import Cell, check_options, chosen_from, mean_and_sem
from problems.comparison import Comparison, Settings
from problems.data import ClassBundle, load
from problems.data.text import informative_unit_rows
from problems.evaluation import Retrieval, evaluate_retrieval, matrix_scores
from problems.metric.claims import metric_claims
from problems.metric.comet import CometMetric
from problems.metric.figure import draw_convergence, draw_precision
from problems.metric.methods import METHODS, USUAL, Trainee, defaults
from problems.metric.rivals import OutsideMetric, metric_learn
from rmopt.core import DivergedError
from rmopt.core.arguments import number, one_of
from rmopt.experiments import Outcome, Run
from rmopt.solvers import Recorder

Array = np.ndarray
Option = typer.Option

SELECTIONS = ("none", "first", "each")
RANKINGS = ("similarity", "distance")
TEST_FRACTION = 0.2
DEEPEST = 50
# What methods are selected by, and what convergence is watched by.
DEPTH = 10
# Enough test rows for a curve; tables measure all.
MOST_QUERIES = 2000


def metric(
    run: Run,
    *,
    data: Annotated[str, Option(help="Data set; `rmopt list` names them.")] = "digits",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    features: Annotated[int, Option(help="Features to keep, by information gain; 0: all.")] = 0,
    rows: Annotated[int, Option(help="Rows to keep, with the shares of the classes; 0: all.")] = 0,
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}.")] = ",".join(USUAL),
    triplets: Annotated[int, Option(help="Training triplets, the same for all methods; 0: 20 a row.")] = 0,
    passes: Annotated[float, Option(help="Coordinate steps of COMET, over the number of features.")] = 8.0,
    splits: Annotated[int, Option(help="Random 80/20 splits.")] = 5,
    select: Annotated[
        str,
        Option(help="Parameters by cross-validation: none, first (on the first split) or each (two layers)."),
    ] = "none",
    folds: Annotated[int, Option(help="Folds of the cross-validation inside the training part.")] = 5,
    rank_by: Annotated[
        str,
        Option(
            help="Rank test rows by similarity or distance; auto: what cross-validation chooses, or "
            "without it what a method's cost speaks of."
        ),
    ] = "auto",
    resume: Annotated[bool, Option("--resume", help="Go on from the results in the --out folder.")] = False,
) -> Outcome:
    """Learn a metric: COMET beside LEGO, BoostMetric, HDSL and the plain Euclidean distance.

    Triplets (query, similar, dissimilar) are drawn from the classes of the training part; each test row then ranks
    the others, and the share of its class among the first k is measured (Atzmon et al. 2015, section 5).
    """
    chosen = chosen_from(METHODS, methods, "--methods")
    check_options(locals(), features=0, rows=0, triplets=0, splits=1, folds=2)
    number("--passes", passes, above=0)
    one_of("--select", select, SELECTIONS)
    one_of("--rank-by", rank_by, ("auto", *RANKINGS))
    bundle = _thinned(load(data, data_home, ClassBundle), rows)
    if any(isinstance(method.estimator, OutsideMetric) for method in chosen.values()):
        metric_learn()
    parts = [informative_unit_rows(bundle.resplit(split, TEST_FRACTION), features) for split in range(splits)]
    n_train, n_features = int(parts[0].train.sum()), parts[0].X.shape[1]
    count = triplets or 20 * n_train
    run.say(
        f"{bundle.name} ({bundle.source}): {n_train:,} training, {int(parts[0].test.sum()):,} test rows, {splits} "
        f"splits; {n_features:,} features, {bundle.n_classes} classes, {count:,} triplets"
    )
    comparison = Comparison(
        run, resume, data=data, features=features, rows=rows, triplets=count, seed=run.seed
    )
    rankings = RANKINGS if rank_by == "auto" else (rank_by,)

    def trainee(name: str, parameters: Settings) -> Trainee:
        known, given = chosen[name].estimator.get_params(), {"n_epochs": passes, "random_state": run.seed}
        of_run = {key: value for key, value in given.items() if key in known}
        return Trainee(chosen[name].made(**parameters, **of_run), count, run.seed)

    def selected(one: Settings) -> Cell:
        """Return the parameters and the ranking with the best precision on held-out parts of the training part."""
        part, method = parts[one["split"]], chosen[one["select"]]
        grid = method.grid or [{}]
        values = [{f"metric__{name}": value for name, value in point.items()} for point in grid]
        cv = StratifiedKFold(folds, shuffle=True, random_state=run.seed)
        best, ranking = comparison.search(
            method.label, trainee(one["select"], {}), values, part.X[part.train], part.y[part.train], cv,
            {ranking: partial(_held_out, ranking) for ranking in one["rankings"]},
        )  # fmt: skip
        return {"parameters": grid[values.index(best)], "rank_by": ranking}

    def train(one: Settings) -> Cell:
        return _trained(parts[one["split"]], trainee(one["method"], one["parameters"]), one["rank_by"])

    used: dict[tuple[str, int], Settings] = {}
    for split in range(splits):
        for name, method in chosen.items():
            if select == "none" or not method.estimator.learns:
                ranking = method.estimator.ranks_by if rank_by == "auto" else rank_by
                used[name, split] = {"parameters": defaults(method), "rank_by": ranking}
            elif select == "first" and split > 0:
                used[name, split] = used[name, 0]
            else:
                about = {"select": name, "split": split, "rankings": list(rankings), "passes": passes}
                about |= {"folds": folds, "grid": method.grid}
                found = used[name, split] = comparison.cell(about, selected)
                values = [f"{key} = {value:g}" for key, value in found["parameters"].items()]
                run.say(
                    f"{method.label}, split {split}: {', '.join(values) or 'no parameters'}, "
                    f"ranked by {found['rank_by']} ({folds}-fold)"
                )
    settings = [
        used[name, split] | {"method": name, "split": split, "passes": passes}
        for split in range(splits)
        for name in chosen
    ]
    results = comparison.results(settings, train, by=("method",))
    labels = {name: method.label for name, method in chosen.items()}
    run.draw("precision.png", draw_precision, results, labels, bundle.name, size=(6.4, 4.4))
    if any(cell["curve"] for found in results.values() for cell in found):
        run.draw("convergence.png", draw_convergence, results, labels, bundle.name, size=(9.0, 4.0))
    return Outcome(
        data=bundle.name,
        parameters={
            "features": n_features, "rows": rows, "triplets": count, "passes": passes, "splits": splits,
            "select": select, "folds": folds, "rank_by": rank_by,
            "used": {name: [used[name, split] for split in range(splits)] for name in chosen},
        },
        rows=[_row(labels[name], found) for name, found in results.items()],
        headings={
            "precision_at_1": "P@1", "sem_at_1": "± s.e.m.", "precision_at_10": "P@10", "sem_at_10": "±",
            "precision_at_50": "P@50", "train_seconds": "train s",
        },
        claims=metric_claims(results, labels),
    )  # fmt: skip


def _trained(part: ClassBundle, trainee: Trainee, rank_by: str) -> Cell:
    """Return what a method measures on the test part; for COMET also after each pass.

    Test rows are ranked by "similarity", qᵀWp, or by "distance", (q − p)ᵀW(q − p).
    """
    X, y, X_test, y_test = part.X[part.train], part.y[part.train], part.X[part.test], part.y[part.test]
    curve: list[list[float]] = []
    begun = time.perf_counter()
    try:
        if isinstance(trainee.metric, CometMetric):
            W, rows = _watched(trainee, X, y, X_test, y_test, rank_by)
            seconds = float(rows[-1]["seconds"])
            names = ("precision_at_1", "precision_at_10", "cost")
            curve = [[row["step"] / X.shape[1], *(row[name] for name in names)] for row in rows]
        else:
            W = trainee.fit(X, y).metric.get_mahalanobis_matrix()
            seconds = time.perf_counter() - begun
    except DivergedError:
        return {"precision": None, "map": None, "seconds": None, "curve": []}
    found = _measured(W, X_test, y_test, rank_by, range(1, min(DEEPEST, len(y_test) - 1) + 1))
    return {
        "precision": list(found.precision_at.values()),
        "map": found.map,
        "seconds": seconds,
        "curve": curve,
    }


def _watched(
    trainee: Trainee, X: Any, y: Array, X_test: Any, y_test: Array, rank_by: str
) -> tuple[Array, list[dict[str, Any]]]:
    """Return the W of COMET, and what was recorded after each pass, with the training time without measuring."""
    metric: Any = trainee.metric
    drawn, d = trainee.triplets(y), X.shape[1]
    some = np.random.default_rng(trainee.seed).permutation(np.arange(len(y_test)))[:MOST_QUERIES]
    X_some, y_some = X_test[some], y_test[some]
    cost = metric.problem(X, drawn).cost

    def measure(W: Array) -> dict[str, float]:
        found = _measured(W, X_some, y_some, rank_by, (1, DEPTH)).precision_at
        return {"precision_at_1": found[1], "precision_at_10": found[DEPTH], "cost": cost.value(W)}

    passes = int(np.ceil(metric.n_epochs))
    recorder = Recorder({"test": measure}, at=[d * number for number in range(1, passes + 1)])
    return metric.learn(X, drawn, trainee.seed, recorder), recorder.rows


def _held_out(rank_by: str, fitted: Trainee, X: Any, y: Array) -> float:
    return _measured(fitted.metric.get_mahalanobis_matrix(), X, y, rank_by, (DEPTH,)).precision_at[DEPTH]


def _measured(W: Array, X: Any, y: Array, rank_by: str, ks: Sequence[int]) -> Retrieval:
    return evaluate_retrieval(matrix_scores(W, X, distance=rank_by == "distance"), y, ks=ks)


def _row(label: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"method": label}
    whole = all(cell["precision"] is not None for cell in found)
    for k in (1, DEPTH, 50):
        there = whole and all(len(cell["precision"]) >= k for cell in found)
        mean, sem = mean_and_sem(cell["precision"][k - 1] for cell in found) if there else (None, None)
        row[f"precision_at_{k}"] = mean
        if k < 50:
            row[f"sem_at_{k}"] = sem
    row["map"] = mean_and_sem(cell["map"] for cell in found)[0] if whole else None
    row["train_seconds"] = float(np.median([cell["seconds"] for cell in found])) if whole else None
    return row


def _thinned(bundle: ClassBundle, rows: int) -> ClassBundle:
    """Return the bundle with about this many rows, drawn with a fixed seed from every class."""
    if rows == 0 or rows >= len(bundle.y):
        return bundle
    kept = np.flatnonzero(bundle.resplit(0, rows / len(bundle.y)).test)
    return replace(bundle, X=bundle.X[kept], y=bundle.y[kept], test=np.arange(len(kept)) % 5 == 4)
