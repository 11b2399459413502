"""The experiment ``rmopt run coembedding``: multi-label classification (Mirzazadeh et al. 2015, section 6)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.coembedding.claims import optima_claims, table_claims, threshold_claims
from problems.coembedding.cost import MultilabelCoembedding
from problems.coembedding.estimators import BETAS, checked_betas, local_optima, minimise
from problems.coembedding.figure import draw_optima, draw_scores
from problems.coembedding.methods import (
    MEASURES,
    METHODS,
    OURS,
    PRINTED,
    SCORERS,
    Coembedding,
    Searched,
    indicators,
    measures,
)
from problems.comparison import Comparison, averaged, trained
from problems.data import MultilabelBundle
from problems.methods import Cell, Settings, chosen_methods
from problems.thresholds import AIMS
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.arguments import integer, number, one_of
from rmopt.costs import Trace
from rmopt.experiments import Claim, Outcome, Run
from rmopt.solvers import RankIncremental

HEADINGS = {
    "hamming": "Hamming", "hamming_sem": "±", "hamming_paper": "paper", "micro_f1": "micro-F1", "micro_f1_sem": "±",
    "micro_f1_paper": "paper", "macro_f1": "macro-F1", "macro_f1_sem": "±", "macro_f1_paper": "paper",
    "train_seconds": "train s",
}  # fmt: skip
NAMES_OF_AIMS = {"f1": "F1", "hamming": "Hamming"}
GRID = ",".join(f"{beta:g}" for beta in BETAS)


def coembedding(
    run: Run,
    *,
    data: Annotated[options.Data, MultilabelBundle] = "digits-labels",
    data_home: options.DataHome = None,
    rows: Annotated[int, Option(help="Training rows; 0: 1,000, or two thirds of the smaller sets.")] = 0,
    betas: Annotated[str, Option(help="Weights of the trace, with commas between.")] = GRID,
    seeds: options.SeedsOrPublished = 3,
    methods: Annotated[str, options.methods_option(METHODS)] = ",".join(METHODS),
    method: options.OwnMethods = None,
    folds: options.Folds = 5,
    select_by: Annotated[str, Option(help=f"What it maximises: {', '.join(SCORERS)}.")] = "f1_micro",
    thresholds: Annotated[
        bool, Option(help="Measure methods also with thresholds for F1 and for the Hamming score.")
    ] = False,
    starts: Annotated[int, Option(help="Random starts for the picture of local optima; 0: none.")] = 200,
    optima_rows: Annotated[int, Option(help="Training rows in that picture; 0: all.")] = 200,
    optima_beta: Annotated[float, Option(help="Weight of the trace in that picture.")] = 1.0,
    n_jobs: options.Jobs = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Classify with several labels: co-embedding beside binary relevance, label ranking and chains.

    Samples, labels and a threshold are embedded so that a label applies where it is nearer than the threshold; a
    certificate says that the embedding is the global minimum. ila has the paper's loss, ila-hinge one of ours that
    decides every label by itself. A second part starts local optimisation of factors with
    d columns from many random places, and looks at how the spread of the optima shrinks as d grows.
    """
    chosen = chosen_methods(METHODS, methods, method, "coembedding", ("predict",))
    weights = checked_betas(options.positive_numbers(betas, "--betas"))
    options.check_options(locals(), seeds=0, rows=0, folds=2, starts=0, optima_rows=0)
    one_of("--select-by", select_by, SCORERS)
    number("--optima-beta", optima_beta, above=0)
    bundle = options.loaded(run, data, data_home, MultilabelBundle)
    published, seeds = options.own_split(run.say, data, bundle, seeds)
    if published and rows:
        raise InvalidInputError("--seeds 0 takes the training rows of the data set; leave out --rows.")
    n = bundle.X.shape[0]
    n_train = int(bundle.train.sum()) if published else _training_rows(bundle, rows)
    integer("--folds", folds, 2, n_train)
    run.say(
        f"{bundle.name} ({bundle.source}): {n_train:,} of {n:,} rows for training, {bundle.X.shape[1]:,} features, "
        f"{bundle.Y.shape[1]} labels, "
        f"{'its own split' if published else f'{seeds} random split' + 's' * (seeds > 1)}"
    )
    about: Settings = {
        "published": published, "rows": n_train, "folds": folds, "select_by": select_by, "thresholds": thresholds,
    }  # fmt: skip
    comparison = Comparison(run, resume, seeds=seeds, n_jobs=n_jobs, data=bundle.fingerprint(), **about)
    parts = {
        seed: bundle if published else bundle.with_training_rows(n_train, seed) for seed in comparison.seeds
    }

    def train(one: Settings) -> Cell:
        kind, part, about = chosen[one["method"]], parts[one["seed"]], {"random_state": one["seed"]}
        if isinstance(kind.estimator, Coembedding | Searched):
            about |= {"cv": folds, "scoring": select_by, "thresholds": thresholds, "betas": weights}
        X, Y, model = part.X, part.Y.toarray().astype(int), kind.made(**about)
        try:
            seconds = trained(model, X[part.train], Y[part.train]).seconds
        except DivergedError:
            return dict.fromkeys((*MEASURES, "seconds")) | {"chosen": {}}
        truth = Y[part.test]
        found = measures(truth, indicators(model.predict(X[part.test]), truth.shape))
        aims = AIMS if thresholds and isinstance(model, Coembedding | Searched) else ()
        by_aim = {aim: measures(truth, model.predict(X[part.test], aim)) for aim in aims}
        return found | {"seconds": seconds, "chosen": getattr(model, "chosen_", {}), "aims": by_aim}

    models = [
        {"method": name, "code": kind.code}
        | ({"betas": weights} if "betas" in kind.estimator.get_params() else {})
        for name, kind in chosen.items()
    ]
    results = comparison.results(models, train, by=("method",))
    labels = {name: kind.label for name, kind in chosen.items()}
    for name, found in results.items():
        if times := sum(cell["chosen"].get("edge", False) for cell in found):
            more = "; try more --betas" if name in OURS else ""
            run.say(
                f"{labels[name]}: what was chosen is at the edge of its grid on {times} of {len(found)} splits{more}"
            )
    table = [_row(name, labels[name], found, bundle.name) for name, found in results.items()]
    table += [
        _row(
            "", f"{labels[name]}, for {NAMES_OF_AIMS[aim]}", [cell | cell["aims"][aim] for cell in found], ""
        )
        for aim in AIMS
        for name, found in results.items()
        if all(cell.get("aims") for cell in found)
    ]
    run.draw("scores.png", draw_scores, table, bundle.name, size=(9.0, 3.6))
    claims = table_claims(results, labels, bundle.name) + threshold_claims(results, labels)
    if starts:
        claims += _optima(comparison, parts[run.seed].scaled(), starts, optima_rows, optima_beta)
    return Outcome(
        data=bundle.name,
        parameters=about
        | {
            "seeds": seeds, "betas": weights, "starts": starts, "optima_rows": optima_rows,
            "optima_beta": optima_beta,
            "used": {labels[name]: [cell["chosen"] for cell in found] for name, found in results.items()},
        },
        rows=table,
        headings=HEADINGS,
        claims=claims,
    )  # fmt: skip


def _training_rows(bundle: MultilabelBundle, rows: int) -> int:
    n = bundle.X.shape[0]
    wanted = rows or (1000 if n > 1500 else 2 * n // 3)
    if not 2 <= wanted < n:
        raise InvalidInputError(f"--rows {rows} leaves no test rows: {bundle.name} has {n}; choose fewer.")
    return wanted


def _row(name: str, label: str, found: list[Cell], data: str) -> Cell:
    numbers = averaged(found, **{measure: f"{measure}_sem" for measure in MEASURES})
    printed = PRINTED.get(data, {}).get(name, ())
    numbers |= {f"{measure}_paper": level for measure, level in zip(MEASURES, printed, strict=False)}
    return {"method": label} | {key: numbers[key] for key in HEADINGS if key in numbers}


def _optima(
    comparison: Comparison, part: MultilabelBundle, starts: int, rows: int, beta: float
) -> list[Claim]:
    """Draw the local optima of some training rows, and return what they say."""
    run, kept = comparison.run, np.flatnonzero(part.train)[: rows or None]

    def look(_: Settings) -> Cell:
        loss = MultilabelCoembedding(part.X[kept], part.Y[kept])
        with threadpool_limits(1, user_api="blas"):
            best = minimise(loss, beta, RankIncremental(tol=1e-7))
            rank, minimum = best.point.rank, best.certificate.objective
            # At most nine numbers of columns: from 1 on, and just below, at and above the optimal rank.
            below = np.linspace(1, max(rank - 1, 1), 7).round().astype(int)
            ranks = sorted({*below.tolist(), max(rank, 1), rank + 1})
            run.say(
                f"global minimum of {len(kept)} rows at beta = {beta:g}: {minimum:.6f}, rank {rank}, certified "
                f"relative gap {best.certificate.relative_gap:.1e}"
            )
            with run.ticks("random starts", starts * len(ranks)) as tick:
                optima = local_optima(loss + Trace(beta), ranks, starts, run.seed, tick)
        return {"rank": rank, "minimum": minimum, "optima": [[d, list(one)] for d, one in optima.items()]}

    asked = {"optima_rows": len(kept), "optima_beta": beta, "starts": starts, "seed": run.seed}
    found = comparison.cell(asked, look)
    optima, rank, minimum = dict(found["optima"]), found["rank"], found["minimum"]
    title = f"{part.name}, {len(kept)} rows, {starts} random starts for each d"
    run.draw("optima.png", draw_optima, optima, minimum, rank, title)
    return optima_claims(optima, minimum, rank)
