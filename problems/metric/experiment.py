"""The experiment ``rmopt run metric``: COMET beside its rivals (Atzmon et al. 2015, section 5)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from problems.cells import Cells, chosen_from, mean_and_sem
from problems.datasets import Bundle, load
from problems.metric.bench import DEPTH, Bench
from problems.metric.claims import metric_claims
from problems.metric.figure import draw_convergence, draw_precision
from problems.metric.methods import METHODS, USUAL, Method
from rmopt.core.arguments import integer, number, one_of
from rmopt.experiments import Outcome, Run

Option = typer.Option

SELECTIONS = ("none", "first", "each")
RANKINGS = ("similarity", "distance")


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
    for option, count, least in (
        ("--features", features, 0), ("--rows", rows, 0), ("--triplets", triplets, 0), ("--splits", splits, 1),
        ("--folds", folds, 2),
    ):  # fmt: skip
        integer(option, count, least)
    number("--passes", passes, above=0)
    one_of("--select", select, SELECTIONS)
    one_of("--rank-by", rank_by, ("auto", *RANKINGS))
    bundle = _thinned(load(data, data_home), rows)
    for method in chosen.values():
        method.make(**method.defaults)
    first = Bench(bundle, features, 0, 1, run.seed)
    count = triplets or 20 * len(first.y)
    benches = [Bench(bundle, features, split, count, run.seed) for split in range(splits)]
    run.say(
        f"{bundle.name} ({bundle.source}): {len(first.y):,} training, {len(first.y_test):,} test rows, {splits} "
        f"splits; {first.X.shape[1]:,} features, {bundle.n_classes} classes, {count:,} triplets"
    )
    cells = Cells(run.path("cells.jsonl"), resume)
    about = {"data": data, "features": features, "rows": rows, "triplets": count, "seed": run.seed}
    rankings = RANKINGS if rank_by == "auto" else (rank_by,)
    used: dict[tuple[str, int], dict[str, Any]] = {}
    for split, bench in enumerate(benches):
        for name, method in chosen.items():
            if select == "none" or name == "euclidean":
                ranking = method.rank_by if rank_by == "auto" else rank_by
                used[name, split] = {"parameters": method.defaults, "rank_by": ranking}
            elif select == "first" and split > 0:
                used[name, split] = used[name, 0]
            else:
                settings = about | {"select": name, "split": split, "rankings": list(rankings)}
                used[name, split] = _selected(run, cells, bench, method, passes, folds, settings)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    with run.ticks("models", len(chosen) * splits) as tick:
        for split, bench in enumerate(benches):
            for name, method in chosen.items():
                settings = about | used[name, split] | {"method": name, "split": split, "passes": passes}
                watched = name.startswith("comet")
                compute = partial(bench.train, method, **used[name, split], passes=passes, watched=watched)
                results[name].append(cells.get(settings, compute))
                tick()
    labels = {name: method.label for name, method in chosen.items()}
    run.draw("precision.png", draw_precision, results, labels, bundle.name, size=(6.4, 4.4))
    if any(cell["curve"] for found in results.values() for cell in found):
        run.draw("convergence.png", draw_convergence, results, labels, bundle.name, size=(9.0, 4.0))
    return Outcome(
        data=bundle.name,
        parameters={
            "features": first.X.shape[1], "rows": rows, "triplets": count, "passes": passes, "splits": splits,
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


def _selected(
    run: Run, cells: Cells, bench: Bench, method: Method, passes: float, folds: int, about: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters and the ranking of a method by cross-validation, and say them."""
    rankings = about["rankings"]

    def compute() -> dict[str, Any]:
        with run.ticks(f"selecting for {method.label}", folds * max(1, len(method.grid))) as tick:
            return bench.selected(method, rankings, passes, folds, tick)

    found = cells.get(about | {"passes": passes, "folds": folds, "grid": method.grid}, compute)
    said = ", ".join(f"{key} = {value:g}" for key, value in found["parameters"].items()) or "no parameters"
    run.say(f"{method.label}, split {about['split']}: {said}, ranked by {found['rank_by']} ({folds}-fold)")
    return found


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


def _thinned(bundle: Bundle, rows: int) -> Bundle:
    """Return the bundle with about this many rows, drawn with a fixed seed from every class."""
    from dataclasses import replace

    if rows == 0 or rows >= len(bundle.y):
        return bundle
    kept = np.flatnonzero(bundle.resplit(0, rows / len(bundle.y)).test)
    return replace(bundle, X=bundle.X[kept], y=bundle.y[kept], test=np.arange(len(kept)) % 5 == 4)
