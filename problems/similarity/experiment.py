"""The experiment ``rmopt run similarity``: LORETA beside its paper's other methods (Shalit et al. 2012, §7.1)."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from problems import options
from problems.cells import Cell, Settings, digest
from problems.comparison import Comparison, Kept, averaged
from problems.data import ClassBundle
from problems.data.bundles import holds_counts
from problems.methods import Method, chosen_methods, code_of
from problems.saving import save_point
from problems.similarity.claims import similarity_claims
from problems.similarity.figure import draw_learning_curves, draw_ranks
from problems.similarity.methods import MEASURED_BY, METHODS, Bench, SimilarityLearner
from rmopt.arrays import load_arrays
from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number
from rmopt.experiments import Outcome, Run
from rmopt.solvers import Checkpoint

USUAL_RANK = "20"
# What variants of LORETA may differ in, and how that is read.
COMPARABLE = {"retraction": str, "engine": str, "init": str, "step-size": float}
HEADINGS = {
    "map_sem": "± s.e.m.", "precision_at_1": "P@1", "precision_at_10": "P@10", "train_seconds": "train s"
}  # fmt: skip


def similarity(
    run: Run,
    *,
    data: Annotated[options.Data, ClassBundle] = "scipy-docs",
    data_home: options.DataHome = None,
    features: Annotated[int, Option(help="Features to keep, by information gain; 0: all.")] = 0,
    sublinear: Annotated[
        bool, Option("--sublinear", help="Take 1 + log(count) for the counts of words.")
    ] = False,
    rank: Annotated[str | None, options.rank_option(USUAL_RANK)] = None,
    budget: Annotated[
        int, Option(help="Features times rank, the same for all ranks, in the place of --features; 0: none.")
    ] = 0,
    triplets: Annotated[int, Option(help="Training triplets for each model.")] = 50_000,
    seeds: options.SeedsOrPublished = 5,
    methods: Annotated[str, options.methods_option(METHODS)] = "cosine,svm,naive-gd,pa,loreta,contrastive",
    method: options.OwnMethods = None,
    select: options.Select = "first",
    folds: options.Folds = 5,
    steps: Annotated[
        str,
        Option(
            help="Step sizes without cross-validation, e.g. loreta=10,pa=0.1; the largest step C of pa and oasis."
        ),
    ] = "",
    retraction: Annotated[
        str, Option(help="Of LORETA-1: second-order, metric-projection or orthographic.")
    ] = "second-order",
    engine: Annotated[str, Option(help="Of LORETA-1: auto, compiled or reference.")] = "auto",
    init: Annotated[str, Option(help="Start of the learners: identity or gaussian.")] = "identity",
    compare: Annotated[
        str, Option(help="Variants of LORETA-1 side by side, e.g. retraction=second-order,orthographic.")
    ] = "",
    full_features: Annotated[
        str,
        Option(help="Features for the methods of full rank, with commas between, where there is a --budget."),
    ] = "",
    full_triplets: Annotated[int, Option(help="Triplets for those; 0: as many as for the others.")] = 0,
    n_jobs: options.Jobs = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Learn a similarity of documents: LORETA beside the cosine and what its paper compares it with.

    Triplets (query, similar document, dissimilar document) are drawn from the classes of the training part; each test
    document then ranks the others. With several ranks, and a --budget, this is figure 3 of the paper. Under mpirun
    the models are dealt to the processes.
    """
    world = options.launched()
    run = replace(run, out=world.first(run.out))
    options.check_options(locals(), features=0, budget=0, triplets=1, full_triplets=0, seeds=0, folds=2)
    ranks = options.whole_numbers(USUAL_RANK if rank is None else rank, "--rank")
    widths = options.whole_numbers(full_features, "--full-features", 2) if full_features else []
    chosen = chosen_methods(METHODS, methods, method, "similarity", MEASURED_BY)
    variants = _variants(compare, {"retraction": retraction, "engine": engine, "init": init})
    free = {
        name: one for name, one in chosen.items() if "step-size" not in variants[0] or not _has_choices(one)
    }
    sizes = _step_sizes(free, steps)
    for option, value, usual, takes in (
        ("--retraction", retraction, "second-order", _has_choices),
        ("--engine", engine, "auto", _has_choices),
        ("--init", init, "identity", _starts),
        ("--compare", compare, "", _has_choices),
    ):
        if value != usual and not any(map(takes, chosen.values())):
            able = ", ".join(name for name, one in METHODS.items() if takes(one))
            raise InvalidInputError(f"{option} {value} needs {able} among --methods.")
    if budget and features:
        raise InvalidInputError("--budget says how many features there are; leave out --features.")
    if (widths or full_triplets) and not any(map(_is_full, chosen.values())):
        raise InvalidInputError(
            "--full-features and --full-triplets need a method of full rank among --methods: "
            f"{', '.join(name for name, one in METHODS.items() if _is_full(one))}."
        )
    bundle = options.loaded(run, data, data_home, ClassBundle)
    if sublinear and not holds_counts(bundle.X):
        raise InvalidInputError(
            f"--sublinear weighs counts of words, and {bundle.name} has none; leave it out."
        )
    integer("--features", features, 0, bundle.X.shape[1])
    integer("--full-features", max(widths, default=0), 0, bundle.X.shape[1])
    if not budget:
        ranks = options.ranks_within(run.say, rank, USUAL_RANK, features or bundle.X.shape[1])
    published, seeds = options.own_split(run.say, data, bundle, seeds)

    # A few are kept: methods of one split and number of features share their data.
    bench_of = Kept(lambda features, seed: Bench(bundle, features, seed, published, sublinear), 8)

    def model_of(one: Settings) -> Any:
        kind = chosen[one["method"]]
        about = {"rank": one["rank"], "random_state": one["seed"]}
        if _starts(kind):
            about |= {"max_iter": one["triplets"], "init": one["init"]}
        made = kind.made(one["parameters"], **about)
        if _has_choices(kind):
            made.set_params(choices={name: one[name] for name in ("retraction", "engine")})
        return made

    def stem_of(one: Settings) -> str:
        """Return the name of the files of a model."""
        width = one["rank"] if len(ranks) > 1 and one["rank"] else one["features"] if len(widths) > 1 else ""
        words = label_of(one).lower().replace(",", "").split()
        return "-".join(map(str, filter(None, (*words, width))))

    def train(one: Settings) -> Cell:
        model, bench, stem = model_of(one), bench_of(one["features"], one["seed"]), stem_of(one)
        # By all of its settings: what another run left is not of this one.
        saved = Path(run.path("checkpoints") / f"{stem}-{one['seed']}-{digest(one)}.npz")
        found = bench.trained(
            model, checkpoint=Checkpoint(saved), progress=run.progress and n_jobs == 1, description=label_of(one),
        )  # fmt: skip
        if isinstance(model, SimilarityLearner) and found["map"] is not None and one["seed"] == run.seed:
            form = "metric" if model.metric else "similarity"
            about = {"updates": found["updates"], "settings": digest(one)}
            save_point(run.path(f"{stem}.npz"), form, model.point_, about)
        # What the cell tells need not be trained again.
        saved.unlink(missing_ok=True)
        return found | {"features": bench.n_features}

    def choose(one: Settings) -> Cell:
        # Cross-validation begins at the method's own parameters.
        model = model_of(one | {"parameters": {}})
        return bench_of(one["features"], one["seed"]).chosen(comparison, chosen[one["method"]], model, folds)

    def label_of(one: Settings) -> str:
        return chosen[one["method"]].label + f", {one['variant']}" * bool(one["variant"])

    places = [_place(bundle, budget, features, width) for width in ranks]
    lines: list[tuple[Settings, list[Settings]]] = []
    for name, kind in chosen.items():
        full = _is_full(kind)
        own = [{"rank": None, "features": width} for width in widths] if full and widths else places
        own = own if kind.ranked or (full and widths) else [places[0] | {"rank": None}]
        for variant in variants if _has_choices(kind) else [variants[0] | {"variant": ""}]:
            size = variant.get("step-size", sizes.get(name))
            one = {
                "method": name, "code": code_of(kind.estimator), **variant, "fixed": size,
                "triplets": (full and full_triplets) or triplets,
            }  # fmt: skip
            lines.append((one, own))
            # Every setting is tried out before the first method starts to train.
            for place in own:
                model = model_of(one | place | {"parameters": _parameters(kind, size), "seed": run.seed})
                if isinstance(model, SimilarityLearner):
                    bench = bench_of(place["features"], run.seed)
                    model.try_out(bench.X, bench.y)
    if not resume and world.rank == 0:
        for old in run.path("checkpoints").glob("*.npz"):
            old.unlink()
    # Nobody trains before that.
    world.least(0)
    first = bench_of(places[0]["features"], run.seed)
    times = "its own split" if published else f"{seeds} random 65/35 split{'s' * (seeds > 1)}"
    run.say(
        f"{bundle.name} ({bundle.source}): {first.X.shape[0]:,} training, {first.X_test.shape[0]:,} test documents; "
        f"{times}; {bundle.X.shape[1]:,} features, {bundle.n_classes} classes"
    )
    comparison = Comparison(
        run, resume, seeds=seeds, n_jobs=n_jobs, world=world, data=bundle.fingerprint(), published=published,
        sublinear=sublinear,
    )  # fmt: skip
    # Parameters are chosen at the middle rank.
    models: list[Settings] = []
    for one, own in lines:
        kind, size = chosen[one["method"]], one["fixed"]
        found = comparison.selected(
            [one | own[len(own) // 2]], chosen, "none" if size is not None else select, choose, label_of,
            folds=folds,
        )  # fmt: skip
        fixed = {} if size is None else {"parameters": _parameters(kind, size)}
        models += [each | place | fixed for each in found for place in own]
    models.sort(key=itemgetter("seed"))
    results = comparison.results(models, train, by=("method", "variant", "rank", "features"))
    labels = {key: label_of({"method": key[0], "variant": key[1]}) for key in results}
    if world.rank == 0:
        if (left := run.path("checkpoints")).is_dir() and not any(left.iterdir()):
            left.rmdir()
        # What was known was not trained again, and its model may be of other options.
        for one in (one for one in models if resume and one["seed"] == run.seed):
            path = Path(run.path(f"{stem_of(one)}.npz"))
            if path.exists() and load_arrays(path)[1].get("settings") != digest(comparison.about | one):
                run.say(
                    f"{path.name} is of other options than these results; a run without --resume writes it anew."
                )
        run.draw("learning-curves.png", draw_learning_curves, results, labels, bundle.name, size=(9.0, 4.0))
        if len(ranks) > 1:
            run.draw("ranks.png", draw_ranks, results, labels, size=(12.0, 4.0))
    several = len(ranks) > 1 or budget > 0
    return Outcome(
        data=bundle.name,
        parameters={
            "features": features, "sublinear": sublinear, "ranks": ranks,
            "budget": budget, "triplets": triplets, "published": published,
            "seeds": seeds, "select": select, "folds": folds, "retraction": retraction, "engine": engine,
            "init": init, "compare": compare, "full_features": widths, "full_triplets": full_triplets or triplets,
            "used": {
                labels[key]: next(one["parameters"] for one in models if key[:2] == (one["method"], one["variant"]))
                for key in results
            },
        },
        rows=[
            {"method": labels[key]}
            | ({"rank": key[2], "features": found[0]["features"]} if several else {})
            | averaged(found, map="map_sem", precision_at_1=None, precision_at_10=None)
            for key, found in results.items()
        ],
        headings=HEADINGS,
        claims=similarity_claims(results, labels),
    )  # fmt: skip


def _place(bundle: ClassBundle, budget: int, features: int, rank: int) -> Settings:
    """Return a rank with its number of features, which a budget divides."""
    if not budget:
        return {"rank": rank, "features": features}
    if budget // rank > bundle.X.shape[1]:
        raise InvalidInputError(
            f"--budget {budget} gives rank {rank} {budget // rank} features, and {bundle.name} has "
            f"{bundle.X.shape[1]}; lower the budget or raise the rank."
        )
    if budget // rank < rank:
        raise InvalidInputError(
            f"--budget {budget} gives rank {rank} {budget // rank} features, fewer than that; raise the budget "
            "or lower the rank."
        )
    return {"rank": rank, "features": budget // rank}


def _is_full(method: Method) -> bool:
    return getattr(method.estimator, "full_rank", False)


def _has_choices(method: Method) -> bool:
    return getattr(method.estimator, "choices", None) is not None


def _starts(method: Method) -> bool:
    return isinstance(method.estimator, SimilarityLearner)


def _parameters(method: Method, step_size: float | None) -> Settings:
    return method.defaults if step_size is None else {"step_size": step_size}


def _step_sizes(chosen: dict[str, Method], steps: str) -> dict[str, float]:
    """Return the step sizes of ``NAME=VALUE,…``."""
    sizes, free = {}, [name for name, one in chosen.items() if "step_size" in one.estimator.get_params()]
    for part in filter(None, steps.split(",")):
        name, _, value = part.partition("=")
        try:
            sizes[name] = number(name, float(value), above=0)
        except ValueError:
            name = ""
        if name not in free:
            raise InvalidInputError(
                f"--steps {steps!r}: {part!r} must be NAME=VALUE with one of {', '.join(free) or 'no method'} "
                "(chosen, and with a step size that --compare leaves alone) and a positive number."
            )
    return sizes


def _variants(compare: str, settings: Settings) -> list[Settings]:
    """Return the settings of each variant of ``KEY=VALUE,VALUE``, or those alone."""
    key, equals, values = compare.partition("=")
    if not compare:
        return [settings | {"variant": ""}]
    if key not in COMPARABLE or not equals or not all(values.split(",")):
        raise InvalidInputError(
            f"--compare {compare!r} must be KEY=VALUE,VALUE with KEY one of {', '.join(COMPARABLE)}."
        )
    try:
        variants = [
            settings | {key: COMPARABLE[key](one), "variant": one} for one in dict.fromkeys(values.split(","))
        ]
    except ValueError:
        raise InvalidInputError(f"--compare {compare!r}: the values of {key} must be numbers.") from None
    for variant in variants:
        number("--step-size", variant.get("step-size", 1.0), above=0)
    return variants
