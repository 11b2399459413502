"""The experiment ``rmopt run ranking``: figures 4 and 5 of the LORETA paper."""

from __future__ import annotations

from importlib.util import find_spec
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
from sklearn.model_selection import KFold, ShuffleSplit
from typer import Option

from problems import options
from problems.comparison import Comparison, averaged, crossed, data_hash, searched, trained
from problems.data import MultilabelBundle
from problems.methods import Cell, Settings, chosen_methods
from problems.ranking.baselines import LabelTrees
from problems.ranking.claims import ranking_claims
from problems.ranking.estimators import INITS
from problems.ranking.figure import draw_ranking
from problems.ranking.measures import (
    mean_average_precision,
    ndcg_at,
    precision_at,
    propensities,
    propensity_scored_precision_at,
)
from problems.ranking.methods import MEASURED_BY, METHODS, LabelLearner, scores_of
from problems.thresholds import LabelThresholds
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.identity import fingerprint
from rmopt.experiments import Outcome, Run
from rmopt.solvers import Recorder

USUAL_RANKS, STARTS = "10,20,40", ", ".join(INITS)
MEASURES = ("precision_at_1", "precision_at_3", "precision_at_5", "ndcg_at_5", "psp_at_1")
# Enough test rows for a curve against time; the table measures all.
CURVE_ROWS = 500
# The share of the training rows that calibrates.
CALIBRATING = 0.2


def ranking(
    run: Run,
    *,
    data: Annotated[options.Data, MultilabelBundle] = "scipy-parameters",
    data_home: options.DataHome = None,
    rank: Annotated[str | None, options.rank_option(USUAL_RANKS)] = None,
    epochs: Annotated[int, Option(help="Passes of LORETA, passive-aggressive steps and perceptrons.")] = 10,
    seeds: options.SeedsOrPublished = 5,
    methods: Annotated[str, options.methods_option(METHODS)] = ",".join(METHODS),
    method: options.OwnMethods = None,
    select: options.Select = "first",
    folds: options.Folds = 5,
    inits: Annotated[str, Option(help=f"Starts of LORETA and passive-aggressive steps: any of {STARTS}.")] = (
        "zero,identity"
    ),
    calibrated: Annotated[
        bool,
        Option(help="Measure methods also by probabilities that a fifth of the training rows calibrates."),
    ] = False,
    n_jobs: options.Jobs = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Rank labels: LORETA-1 with different starts, and with WARP sampling, beside its paper's other methods.

    Each example has several true labels, which should be ranked before the others (Shalit et al. 2012,
    section 7.2). Step sizes are chosen at the middle rank.
    """
    options.whole_numbers(USUAL_RANKS if rank is None else rank, "--rank")
    chosen = chosen_methods(METHODS, methods, method, "ranking", MEASURED_BY)
    missing = [
        chosen.pop(name).label
        for name, one in list(chosen.items())
        if isinstance(one.estimator, LabelTrees) and find_spec(one.estimator.package) is None
    ]
    if not chosen:
        raise InvalidInputError(
            f"--methods {methods!r}: not installed: {', '.join(missing)}; pip install 'rmopt[bench]'."
        )
    starts = list(options.chosen_from({name: name for name in INITS}, inits, "--inits"))
    started = {name for name, one in chosen.items() if one.ranked and isinstance(one.estimator, LabelLearner)}
    options.check_options(locals(), epochs=1, seeds=0, folds=2)
    bundle = options.loaded(run, data, data_home, MultilabelBundle)
    published, seeds = options.own_split(run.say, data, bundle, seeds)
    n_labels, n = bundle.Y.shape[1], bundle.X.shape[1]
    # Each subgradient sums to zero over the labels, so from zero one direction of them is not reached.
    widths = options.ranks_within(
        run.say, rank, USUAL_RANKS, min(n_labels - bool(started and "zero" in starts), n)
    )
    if missing:
        run.say(f"Left out, for they are not installed: {', '.join(missing)} (pip install 'rmopt[bench]').")
    run.say(
        f"{bundle.name} ({bundle.source}): {bundle.train.sum():,} training, {bundle.test.sum():,} test rows; "
        f"{n:,} features, {n_labels:,} labels, {bundle.Y.nnz / bundle.Y.shape[0]:.1f} a row"
    )
    comparison = Comparison(
        run, resume, seeds=seeds, n_jobs=n_jobs, data=data_hash(bundle), epochs=epochs, published=published
    )
    parts = {seed: (bundle if published else bundle.resplit(seed)).scaled() for seed in comparison.seeds}

    def model_of(one: Settings, parameters: Settings) -> Any:
        kind, about = chosen[one["method"]], {name: one[name] for name in ("rank", "init") if one[name]}
        if isinstance(kind.estimator, LabelLearner):
            about["n_epochs"] = epochs
        return kind.made(parameters, random_state=one["seed"], **about)

    def label_of(one: Settings) -> str:
        return f"{chosen[one['method']].label}, {one['init']}".removesuffix(", ")

    def choose(one: Settings) -> Cell:
        kind, part = chosen[one["method"]], parts[one["seed"]]
        cv = KFold(folds, shuffle=True, random_state=one["seed"])
        X, Y = part.X[part.train], part.Y[part.train]
        ways = {"map": lambda model, X, Y: mean_average_precision(scores_of(model, X), Y)}
        return {"parameters": searched(run, kind.label, model_of(one, {}), kind.grid, X, Y, cv, ways)[0]}

    def train(one: Settings) -> Cell:
        model, seed = model_of(one, one["parameters"]), one["seed"]
        if one.get("calibrated"):
            held_out = ShuffleSplit(1, test_size=CALIBRATING, random_state=seed)
            model = LabelThresholds(model, cv=held_out, pooled=True)
        return _trained(parts[seed], model, seed)

    models: list[Settings] = []
    for name, kind in chosen.items():
        middle = widths[len(widths) // 2] if kind.ranked else 0
        begun = starts if name in started else [""]
        found = crossed(method=[name], init=begun, rank=[middle], code=[kind.code])
        found = comparison.selected(found, chosen, select, choose, label_of, folds=folds)
        models += [one | {"rank": width} for one in found for width in (widths if kind.ranked else [0])]
    models.sort(key=itemgetter("seed"))
    results = comparison.results(models, train, by=("method", "init", "rank"))
    with_scores = {name for name, one in chosen.items() if hasattr(one.estimator, "decision_function")}
    if calibrated and (without := [one.label for name, one in chosen.items() if name not in with_scores]):
        run.say(f"Not calibrated, for they have no decision_function: {', '.join(without)}.")
    how = {"calibrated": fingerprint((LabelThresholds, CALIBRATING))}
    again = [one | how for one in models if calibrated and one["method"] in with_scores]
    beside = comparison.results(again, train, by=("method", "init", "rank")) if again else {}
    labels = {name: one.label for name, one in chosen.items()}
    run.draw("ranking.png", draw_ranking, results, labels, bundle.name, size=(11.0, 5.2))
    return Outcome(
        data=bundle.name,
        parameters={
            "ranks": widths, "methods": list(chosen), "inits": starts, "epochs": epochs, "seeds": seeds,
            "published": published, "select": select, "folds": folds, "calibrated": calibrated,
            "used": {
                " ".join(map(str, filter(None, key))): [
                    one["parameters"] for one in models if key == (one["method"], one["init"], one["rank"])
                ]
                for key in results
            },
        },
        rows=[
            {"method": f"{labels[name]}{more}", "init": init or None, "rank": width or None}
            | averaged(found, map="map_sem", **dict.fromkeys(MEASURES))
            for more, these in (("", results), (", calibrated", beside))
            for (name, init, width), found in these.items()
        ],
        headings={
            "map_sem": "± s.e.m.", "ndcg_at_5": "nDCG@5", "psp_at_1": "PSP@1", "train_seconds": "train s",
        },
        claims=ranking_claims(results, labels),
    )  # fmt: skip


def _trained(part: MultilabelBundle, model: Any, seed: int) -> Cell:
    """Return what a model measures on the test part, and its curve against training time."""
    X, Y = part.X[part.test], part.Y[part.test]
    ours = {}
    if isinstance(model, LabelLearner):
        count = min(CURVE_ROWS, X.shape[0])
        some = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[:count])
        measures = {
            "map": lambda point: mean_average_precision(model.decision_function(X[some], point), Y[some])
        }
        ours["recorder"] = Recorder(measures, first=max(1, part.train.sum() // 16))
    try:
        training = trained(model, part.X[part.train], part.Y[part.train], **ours)
    except DivergedError:
        return dict.fromkeys(("map", *MEASURES, "seconds")) | {"curve": []}
    scores = scores_of(model, X)
    ks = [k for k in (1, 3, 5) if k <= Y.shape[1]]
    rare = propensity_scored_precision_at(scores, Y, propensities(part.Y[part.train]), ks[:1])
    return dict.fromkeys(MEASURES) | {
        "map": mean_average_precision(scores, Y),
        **{f"precision_at_{k}": value for k, value in precision_at(scores, Y, ks).items()},
        **{f"ndcg_at_{k}": value for k, value in ndcg_at(scores, Y, ks[2:]).items()},
        "psp_at_1": rare[1],
        "seconds": training.seconds,
        "curve": [[row["seconds"], row["map"]] for row in training.history if row["step"] > 0],
    }
