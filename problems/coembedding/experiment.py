"""The experiment ``rmopt run coembedding``: multi-label classification (Mirzazadeh et al. 2015, section 6)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from problems.cells import Cells, chosen_from, mean_and_sem, positive_numbers
from problems.coembedding.bench import SCORERS, trained
from problems.coembedding.claims import NAMES, optima_claims, table_claims
from problems.coembedding.figure import draw_optima, draw_scores
from problems.coembedding.methods import MEASURES, METHODS, PRINTED
from problems.coembedding.multilabel import MultilabelCoembedding
from problems.coembedding.optima import local_optima
from problems.coembedding.training import BETAS, checked_betas, minimise
from problems.datasets import load
from problems.multilabel import MultilabelBundle
from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number, one_of
from rmopt.costs import Trace
from rmopt.experiments import Claim, Outcome, Run
from rmopt.solvers import RankIncremental

Option = typer.Option

HEADINGS = {
    "hamming": "Hamming", "hamming_sem": "±", "hamming_paper": "paper", "micro_f1": "micro-F1", "micro_f1_sem": "±",
    "micro_f1_paper": "paper", "macro_f1": "macro-F1", "macro_f1_sem": "±", "macro_f1_paper": "paper",
    "train_seconds": "train s",
}  # fmt: skip
GRID = ",".join(f"{beta:g}" for beta in BETAS)


def coembedding(
    run: Run,
    *,
    data: Annotated[
        str, Option(help="digits-labels, emotions, scene, bibtex, enron or delicious.")
    ] = "digits-labels",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}.")] = ",".join(METHODS),
    splits: Annotated[int, Option(help="Random splits.")] = 3,
    rows: Annotated[int, Option(help="Training rows; 0: 1,000, or two thirds of the smaller sets.")] = 0,
    betas: Annotated[str, Option(help="Weights of the trace, with commas between.")] = GRID,
    folds: Annotated[int, Option(help="Folds of the cross-validation of the weight.")] = 5,
    select_by: Annotated[str, Option(help=f"What it maximises: {', '.join(SCORERS)}.")] = "f1_micro",
    starts: Annotated[int, Option(help="Random starts for the picture of local optima; 0: none.")] = 200,
    optima_rows: Annotated[int, Option(help="Training rows in that picture; 0: all.")] = 200,
    optima_beta: Annotated[float, Option(help="Weight of the trace in that picture.")] = 1.0,
    resume: Annotated[bool, Option("--resume", help="Go on from the results in the --out folder.")] = False,
) -> Outcome:
    """Classify with several labels: co-embedding beside binary relevance, label ranking and chains.

    Samples, labels and a threshold are embedded so that a label applies where it is nearer than the threshold; a
    certificate says that the embedding is the global minimum. A second part starts local optimisation of factors with
    d columns from many random places, and looks at how the spread of the optima shrinks as d grows.
    """
    chosen = chosen_from(METHODS, methods, "--methods")
    weights = checked_betas(positive_numbers(betas, "--betas"))
    for option, value, least in (
        ("--splits", splits, 1), ("--rows", rows, 0), ("--folds", folds, 2), ("--starts", starts, 0),
        ("--optima-rows", optima_rows, 0),
    ):  # fmt: skip
        integer(option, value, least)
    one_of("--select-by", select_by, SCORERS)
    number("--optima-beta", optima_beta, above=0)
    bundle = load(data, data_home, MultilabelBundle)
    n, n_train = bundle.X.shape[0], _training_rows(bundle, rows)
    run.say(
        f"{bundle.name} ({bundle.source}): {n_train:,} of {n:,} rows for training, {bundle.X.shape[1]:,} features, "
        f"{bundle.Y.shape[1]} labels, {splits} split{'s' * (splits > 1)}"
    )
    cells = Cells(run.path("cells.jsonl"), resume)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    with run.ticks("models", len(chosen) * splits) as tick:
        for split in range(splits):
            part = bundle.with_training_rows(n_train, run.seed + split)
            for name, method in chosen.items():
                about = {
                    "data": bundle.name,
                    "method": name,
                    "split": split,
                    "seed": run.seed,
                    "rows": n_train,
                }
                if method.make is None:
                    about |= {"betas": weights, "folds": folds, "select_by": select_by}
                compute = partial(trained, part, method, weights, folds, select_by, run.seed + split)
                results[name].append(cells.get(about, compute))
                tick()
    claims = table_claims(results, bundle.name)
    _draw_scores(run, results, bundle.name)
    used: dict[str, Any] = {}
    if "ila" in results:
        used = {key: [cell[key] for cell in results["ila"]] for key in ("beta", "rank", "gap", "fit_seconds")}
    if starts:
        claims += _optima(run, bundle, n_train, starts, optima_rows, optima_beta)
    return Outcome(
        data=bundle.name,
        parameters={
            "rows": n_train, "splits": splits, "betas": weights, "folds": folds, "select_by": select_by,
            "starts": starts, "optima_rows": optima_rows, "optima_beta": optima_beta, "used": used,
        },
        rows=[_row(name, found, bundle.name) for name, found in results.items()],
        headings=HEADINGS,
        claims=claims,
    )  # fmt: skip


def _watched(rank: int) -> list[int]:
    """Return at most nine numbers of columns: from 1 on, and just below, at and above the optimal rank."""
    below = np.linspace(1, max(rank - 1, 1), 7).round().astype(int)
    return sorted({*below.tolist(), max(rank, 1), rank + 1})


def _training_rows(bundle: MultilabelBundle, rows: int) -> int:
    n = bundle.X.shape[0]
    wanted = rows or (1000 if n > 1500 else 2 * n // 3)
    if not 2 <= wanted < n:
        raise InvalidInputError(f"--rows {rows} leaves no test rows: {bundle.name} has {n}; choose fewer.")
    return wanted


def _row(name: str, found: list[dict[str, Any]], data: str) -> dict[str, Any]:
    row: dict[str, Any] = {"method": METHODS[name].label}
    printed = PRINTED.get(data, {}).get(METHODS[name].column)
    for place, measure in enumerate(MEASURES):
        mean, sem = mean_and_sem(cell[measure] for cell in found)
        row[measure], row[f"{measure}_sem"] = mean, sem
        if printed:
            row[f"{measure}_paper"] = printed[place]
    row["train_seconds"] = float(np.median([cell["seconds"] for cell in found]))
    return row


def _draw_scores(run: Run, results: dict[str, list[dict[str, Any]]], data: str) -> None:
    scores, printed = {}, {}
    for place, measure in enumerate(MEASURES):
        found = {}
        for name, cells in results.items():
            mean, sem = mean_and_sem(cell[measure] for cell in cells)
            found[METHODS[name].label] = (mean, sem or 0.0)
        scores[NAMES[measure]] = found
        printed[NAMES[measure]] = {
            METHODS[name].label: PRINTED[data][METHODS[name].column][place]
            for name in results if data in PRINTED
        }  # fmt: skip
    run.draw("scores.png", draw_scores, scores, printed, data, size=(9.0, 3.6))


def _optima(
    run: Run, bundle: MultilabelBundle, n_train: int, starts: int, rows: int, beta: float
) -> list[Claim]:
    """Draw the local optima of the first split, and return what they say."""
    part = bundle.with_training_rows(n_train, run.seed).scaled()
    kept = np.flatnonzero(part.train)[: rows or None]
    loss = MultilabelCoembedding(part.X[kept], part.Y[kept])
    with threadpool_limits(1, user_api="blas"):
        best = minimise(loss, beta, RankIncremental(tol=1e-7))
        rank, minimum = best.point.rank, best.certificate.objective
        ranks = _watched(rank)
        run.say(
            f"global minimum of {len(kept)} rows at beta = {beta:g}: {minimum:.6f}, rank {rank}, certified relative "
            f"gap {best.certificate.relative_gap:.1e}"
        )
        with run.ticks("random starts", starts * len(ranks)) as tick:
            found = local_optima(loss + Trace(beta), ranks, starts, run.seed, tick)
    optima = {d: values.tolist() for d, values in found.items()}
    title = f"{bundle.name}, {len(kept)} rows, {starts} random starts for each d"
    run.draw("optima.png", draw_optima, optima, minimum, rank, title)
    return optima_claims(optima, minimum, rank)
