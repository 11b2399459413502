"""The experiment ``rmopt run metric``: COMET beside other metrics (Atzmon et al. 2015, section 5)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from typer import Option

from problems import options
from problems.comparison import Comparison, averaged, data_hash, searched
from problems.data import ClassBundle
from problems.data.text import informative_unit_rows
from problems.evaluation import evaluate_retrieval, matrix_scores
from problems.methods import Cell, Settings, chosen_methods
from problems.metric.baselines import METRIC_LEARN, OutsideMetric
from problems.metric.claims import metric_claims
from problems.metric.estimators import CometMetric
from problems.metric.figure import draw_convergence, draw_precision
from problems.metric.methods import MEASURED_BY, METHODS, USUAL, Trainee, neighbour_votes, scores_of
from problems.validation import package
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import number, one_of
from rmopt.experiments import Outcome, Run
from rmopt.solvers import Recorder

RANKINGS = ("similarity", "distance")
SCALINGS = ("unit", "raw", "standard")
MEASURES = ("precision", "votes")
TEST_FRACTION = 0.2
DEEPEST = 50
# What methods are selected by, and what convergence is watched by.
DEPTH = 10
# Enough test rows for a curve; tables measure all.
MOST_QUERIES = 2000
HEADINGS = {
    "votes": "kNN", "votes_sem": "±",
    "precision_at_1": "P@1", "sem_at_1": "± s.e.m.", "precision_at_10": "P@10", "sem_at_10": "±",
    "precision_at_50": "P@50", "train_seconds": "train s",
}  # fmt: skip


def metric(
    run: Run,
    *,
    data: Annotated[options.Data, ClassBundle] = "scipy-docs",
    data_home: options.DataHome = None,
    features: Annotated[int, Option(help="Features to keep, by information gain; 0: all.")] = 100,
    rows: Annotated[int, Option(help="Rows to keep, with the shares of the classes; 0: all.")] = 0,
    scaling: Annotated[
        str,
        Option(
            help="Rows of length 1 (counts by tf-idf), or without counts also raw or standard, divided by their mean "
            "length."
        ),
    ] = "unit",
    components: Annotated[
        int, Option(help="Principal components to keep, of the training part; 0: all.")
    ] = 0,
    triplets: Annotated[int, Option(help="Training triplets, the same for all methods; 0: 20 a row.")] = 0,
    passes: Annotated[float, Option(help="Coordinate steps of COMET, over the number of features.")] = 8.0,
    seeds: options.SeedsOrPublished = 3,
    methods: Annotated[str, options.methods_option(METHODS)] = ",".join(USUAL),
    method: options.OwnMethods = None,
    select: options.Select = "none",
    folds: options.Folds = 5,
    select_by: Annotated[
        str, Option(help="What it maximises: precision at 10, or votes of the nearest training rows.")
    ] = "precision",
    rank_by: Annotated[
        str,
        Option(
            help="Rank test rows by similarity or distance; auto: what cross-validation chooses, or "
            "without it what a method's cost speaks of."
        ),
    ] = "auto",
    n_jobs: options.Jobs = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Learn a metric: COMET beside LEGO, BoostMetric, HDSL and the plain Euclidean distance.

    Triplets (query, similar, dissimilar) are drawn from the classes of the training part; each test row then ranks
    the others, and the share of its class among the first k is measured (Atzmon et al. 2015, section 5).
    """
    chosen = chosen_methods(METHODS, methods, method, "metric", MEASURED_BY)
    options.check_options(locals(), features=0, rows=0, components=0, triplets=0, seeds=0, folds=2)
    one_of("--scaling", scaling, SCALINGS), one_of("--select-by", select_by, MEASURES)
    number("--passes", passes, above=0)
    one_of("--rank-by", rank_by, ("auto", *RANKINGS))
    bundle = options.loaded(run, data, data_home, ClassBundle)
    for what, asked, most in zip(("rows", "features"), (rows, features), bundle.X.shape, strict=True):
        if asked > most:
            run.say(f"--{what} is {most}: {bundle.name} has no more.")
    bundle = _thinned(bundle, rows)
    published, seeds = options.own_split(run.say, data, bundle, seeds)
    if any(isinstance(one.estimator, OutsideMetric) for one in chosen.values()):
        package(*METRIC_LEARN)
    # Without more features than there are, all are kept.
    features = features if features < bundle.X.shape[1] else 0
    comparison = Comparison(
        run, resume, seeds=seeds, n_jobs=n_jobs, data=data_hash(bundle), features=features, triplets=triplets,
        passes=passes, scaling=scaling, components=components, published=published,
    )  # fmt: skip
    splits = {seed: bundle if published else bundle.resplit(seed, TEST_FRACTION) for seed in comparison.seeds}
    parts = {seed: _prepared(one, features, scaling, components) for seed, one in splits.items()}
    first = parts[run.seed]
    n_train, n_features = int(first.train.sum()), first.X.shape[1]
    count = triplets or 20 * n_train
    run.say(
        f"{bundle.name} ({bundle.source}): {n_train:,} training, {int(first.test.sum()):,} test rows, "
        f"{'its own split' if published else f'{seeds} random split' + 's' * (seeds > 1)}; "
        f"{n_features:,} features, {bundle.n_classes} classes, {count:,} triplets"
    )
    # Those that vote are the nearest: among models that are chosen so, ranks are by distance too.
    rankings = RANKINGS if select_by == "precision" else ("distance",)
    rankings = rankings if rank_by == "auto" else (rank_by,)
    labels = {name: one.label for name, one in chosen.items()}

    def trainee(one: Settings, parameters: Settings) -> Trainee:
        kind, about = chosen[one["method"]], {"random_state": one["seed"]}
        if isinstance(kind.estimator, CometMetric):
            about["n_epochs"] = passes
        return Trainee(kind.made(parameters, **about), count, one["seed"])

    def choose(one: Settings) -> Cell:
        """Return the parameters and the ranking with the best precision on held-out parts of the training part."""
        part, kind = parts[one["seed"]], chosen[one["method"]]
        values = [{f"metric__{name}": value for name, value in point.items()} for point in kind.grid]
        best, ranking = searched(run,
            kind.label, trainee(one, {}), values, part.X[part.train], part.y[part.train],
            StratifiedKFold(folds, shuffle=True, random_state=one["seed"]),
            {ranking: _votes if select_by == "votes" else partial(_held_out, ranking) for ranking in rankings},
        )  # fmt: skip
        return {
            "parameters": {name.removeprefix("metric__"): value for name, value in best.items()}, "rank_by": ranking
        }  # fmt: skip

    def train(one: Settings) -> Cell:
        return _trained(parts[one["seed"]], trainee(one, one["parameters"]), one["rank_by"])

    models = []
    for name, one in chosen.items():
        ranks_by = getattr(one.estimator, "ranks_by", "distance") if rank_by == "auto" else rank_by
        models.append({"method": name, "code": one.code, "rank_by": ranks_by})
    models = comparison.selected(
        models, chosen, select, choose, lambda one: labels[one["method"]], folds=folds, rankings=list(rankings),
        select_by=select_by,
    )  # fmt: skip
    results = comparison.results(models, train, by=("method",))
    run.draw("precision.png", draw_precision, results, labels, bundle.name, size=(6.4, 4.4))
    if any(cell["curve"] for found in results.values() for cell in found):
        run.draw("convergence.png", draw_convergence, results, labels, bundle.name, size=(9.0, 4.0))
    return Outcome(
        data=bundle.name,
        parameters={
            "features": n_features, "rows": rows, "triplets": count, "passes": passes, "seeds": seeds,
            "published": published, "scaling": scaling, "components": components, "select": select,
            "select_by": select_by, "folds": folds, "rank_by": rank_by,
            "used": {
                name: [
                    {key: one[key] for key in ("parameters", "rank_by")} for one in models if one["method"] == name
                ]
                for name in chosen
            },
        },
        rows=[_row(labels[name], found) for name, found in results.items()],
        headings=HEADINGS,
        claims=metric_claims(results, labels),
    )  # fmt: skip


def _trained(part: ClassBundle, trainee: Trainee, rank_by: str) -> Cell:
    """Return what a method measures on the test part; for COMET also after each pass."""
    X, y, X_test, y_test = part.X[part.train], part.y[part.train], part.X[part.test], part.y[part.test]
    curve: list[list[float]] = []
    begun = perf_counter()
    try:
        if isinstance(trainee.metric, CometMetric) and trainee.metric.n_rounds == 1:
            W, rows = _watched(trainee, X, y, X_test, y_test, rank_by)
            seconds = float(rows[-1]["seconds"])
            names = ("precision_at_1", "precision_at_10", "cost")
            curve = [[row["step"] / X.shape[1], *(row[name] for name in names)] for row in rows]
            scores = matrix_scores(W, X_test, distance=rank_by == "distance")
        else:
            trainee.fit(X, y)
            seconds = perf_counter() - begun
            scores = scores_of(trainee.metric, X_test, rank_by)
    except DivergedError:
        return {"precision": None, "map": None, "votes": None, "seconds": None, "curve": []}
    found = evaluate_retrieval(scores, y_test, ks=range(1, min(DEEPEST, len(y_test) - 1) + 1))
    return {
        "precision": list(found.precision_at.values()),
        "map": found.map,
        "votes": neighbour_votes(trainee.metric, X, y, X_test, y_test),
        "seconds": seconds,
        "curve": curve,
    }


def _watched(
    trainee: Trainee, X: Any, y: Array, X_test: Any, y_test: Array, rank_by: str
) -> tuple[Array, list[dict[str, Any]]]:
    """Return the W of COMET, and what was recorded after each pass, with the training time without measuring."""
    metric: Any = trainee.metric
    drawn, d = trainee.triplets(X, y), X.shape[1]
    some = np.random.default_rng(trainee.seed).permutation(np.arange(len(y_test)))[:MOST_QUERIES]
    X_some, y_some = X_test[some], y_test[some]
    cost = metric.problem(X, drawn).cost

    def measure(W: Array) -> dict[str, float]:
        scores = matrix_scores(W, X_some, distance=rank_by == "distance")
        found = evaluate_retrieval(scores, y_some, ks=(1, DEPTH)).precision_at
        return {"precision_at_1": found[1], "precision_at_10": found[DEPTH], "cost": cost.value(W)}

    passes = int(np.ceil(metric.n_epochs))
    recorder = Recorder({"test": measure}, at=[d * number for number in range(1, passes + 1)])
    metric._finish(X, drawn, trainee.seed, recorder=recorder)
    return metric.mahalanobis_, recorder.rows


def _held_out(rank_by: str, fitted: Trainee, X: Any, y: Array) -> float:
    return evaluate_retrieval(scores_of(fitted.metric, X, rank_by), y, ks=(DEPTH,)).precision_at[DEPTH]


def _votes(fitted: Trainee, X: Any, y: Array) -> float:
    return neighbour_votes(fitted.metric, fitted.rows_, fitted.classes_of_rows_, X, y)


def _row(label: str, found: list[Cell]) -> Cell:
    def at(cell: Cell, k: int) -> float | None:
        return cell["precision"][k - 1] if cell["precision"] and k <= len(cell["precision"]) else None

    errors = {1: "sem_at_1", DEPTH: f"sem_at_{DEPTH}", DEEPEST: None}
    cells = [cell | {f"precision_at_{k}": at(cell, k) for k in errors} for cell in found]
    measures = {f"precision_at_{k}": error for k, error in errors.items()}
    return {"method": label} | averaged(cells, **measures, votes="votes_sem", map=None)


def _prepared(bundle: ClassBundle, features: int, scaling: str, components: int) -> ClassBundle:
    """Return the rows as methods see them; what scales them is that of the training part."""
    if scaling == "unit":
        bundle = informative_unit_rows(bundle, features)
    elif issparse(bundle.X) or features:
        raise InvalidInputError(
            f"--scaling {scaling} is for arrays, with --features 0; take unit for sparse tables."
        )
    else:
        X = bundle.X
        if scaling == "standard":
            X = StandardScaler().fit(X[bundle.train]).transform(X)
        bundle = replace(bundle, X=X / np.linalg.norm(X[bundle.train], axis=1).mean())
    if scaling == "unit" and bundle.X.shape[1] == 1:
        raise InvalidInputError(
            "rows of length 1 keep the sign of a single feature alone; take more features, or of an array --scaling "
            "raw with --features 0."
        )
    if components:
        # Of a sparse table all components are not to be had.
        most = min(int(bundle.train.sum()), bundle.X.shape[1]) - issparse(bundle.X)
        if components > most:
            raise InvalidInputError(
                f"--components {components} is more than features and training rows allow; take at most {most}."
            )
        found = PCA(components, random_state=0).fit(bundle.X[bundle.train])
        bundle = replace(bundle, X=np.ascontiguousarray(found.transform(bundle.X)), feature_names=None)
    return bundle


def _thinned(bundle: ClassBundle, rows: int) -> ClassBundle:
    """Return the bundle with about this many rows, drawn with a fixed seed from every class."""
    if rows == 0 or rows >= len(bundle.y):
        return bundle
    kept = np.flatnonzero(bundle.resplit(0, rows / len(bundle.y)).test)
    test = bundle.test[kept]
    test = test if test.any() and not test.all() else np.arange(len(kept)) % 5 == 4
    return replace(bundle, X=bundle.X[kept], y=bundle.y[kept], test=test)
