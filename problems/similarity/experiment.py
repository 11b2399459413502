"""The experiment ``rmopt run similarity``: LORETA-1 beside the rivals of its paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from problems.arrays import save_point
from problems.cells import check_options, chosen_from
from problems.comparison import Comparison, Method
from problems.datasets import Bundle, load
from problems.evaluation import Retrieval, cosine_scores, evaluate_retrieval
from problems.similarity.figure import draw_learning_curves
from problems.similarity.methods import METHODS, Bench, SimilarityLearner
from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number
from rmopt.experiments import Outcome, Run
from rmopt.solvers import Checkpoint

COMPARABLE = ("retraction", "step-size", "engine", "rank", "init")

Option = typer.Option


def similarity(
    run: Run,
    *,
    data: Annotated[str, Option(help="Data set; `rmopt list` names them.")] = "digits",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    features: Annotated[int, Option(help="Features to keep, by information gain; 0: all.")] = 0,
    rank: Annotated[int, Option(help="Rank of the similarity.")] = 10,
    triplets: Annotated[int, Option(help="Training triplets for each method.")] = 100_000,
    split: Annotated[int, Option(help="Random 65/35 split with this seed; -1: the published one.")] = -1,
    step_size: Annotated[float, Option(help="Step size of LORETA-1.")] = 10.0,
    retraction: Annotated[
        str, Option(help="second-order, metric-projection or orthographic.")
    ] = "second-order",
    engine: Annotated[str, Option(help="auto, compiled or reference.")] = "auto",
    init: Annotated[str, Option(help="Start of the learners: identity or gaussian.")] = "identity",
    methods: Annotated[
        str, Option(help=f"What to train beside the plain cosine: any of {', '.join(METHODS)}.")
    ] = "naive-gd,pa,loreta",
    gd_step_size: Annotated[float, Option(help="Step size of naive gradient descent.")] = 0.1,
    pa_c: Annotated[float, Option(help="Largest step C of passive-aggressive.")] = 0.1,
    steps: Annotated[
        str, Option(help="Step sizes of the others, e.g. oasis=1,lego=0.1; the largest step C of oasis.")
    ] = "",
    select: Annotated[
        bool,
        Option("--select", help="Choose all step sizes by 5-fold cross-validation on the training part."),
    ] = False,
    compare: Annotated[
        str, Option(help="Variants of LORETA-1 side by side, e.g. retraction=second-order,orthographic.")
    ] = "",
    resume: Annotated[
        bool, Option("--resume", help="Go on from the checkpoints in the --out folder.")
    ] = False,
) -> Outcome:
    """Learn a similarity of documents: LORETA-1 beside cosine and its rivals.

    Triplets (query, similar document, dissimilar document) are drawn from the classes of the training
    part; each test document then ranks the others (Shalit et al. 2012, section 7.1).
    """
    settings: dict[str, Any] = {
        "rank": rank, "step-size": step_size, "retraction": retraction, "engine": engine, "init": init,
    }  # fmt: skip
    check_options(locals(), features=0, triplets=1, split=-1)
    for option, size in (("--gd-step-size", gd_step_size), ("--pa-c", pa_c)):
        number(option, size, above=0)
    key, variants = _variants(compare, settings)
    chosen = chosen_from(METHODS, methods, "--methods")
    tunable = any(method.estimator.choices for method in chosen.values())
    if key is not None and (not tunable or (select and key == "step-size")):
        raise InvalidInputError(
            f"--compare {compare!r} needs loreta among --methods, and no --select of the step sizes it compares."
        )
    sizes = _step_sizes(chosen, steps, {"loreta": step_size, "naive-gd": gd_step_size, "pa": pa_c})
    bundle: Bundle = load(data, data_home)
    bench = Bench(bundle, features, split, run.seed)
    lines: list[tuple[str, Method, SimilarityLearner]] = []
    for name, method in chosen.items():
        tuned = method.estimator.choices is not None
        for variant in variants if tuned else [settings | {"step-size": sizes[name]}]:
            learner = method.made(
                rank=variant["rank"], step_size=variant["step-size"], max_iter=triplets, init=variant["init"],
                random_state=run.seed,
            )  # fmt: skip
            if tuned:
                learner.set_params(choices={one: variant[one] for one in ("retraction", "engine")})
            # Every setting is tried out before the first method starts to train.
            learner.try_out(bench.X, bench.y)
            label = f"{method.label}, {variant[key]}" if tuned and key is not None else method.label
            lines.append((label, method, learner))
    run.say(
        f"{bundle.name} ({bundle.source}): {bench.X.shape[0]:,} training, {bench.X_test.shape[0]:,} test documents; "
        f"{bench.n_features:,} features, {bundle.n_classes} classes"
    )
    if select:
        comparison = Comparison(run, None)
        for _, method, learner in lines:
            learner.set_params(step_size=bench.selected(comparison, method, learner))
    cosine = evaluate_retrieval(cosine_scores(bench.X_test), bench.y_test)
    rows = [_row("cosine", cosine, 0.0, 0)]
    curves: dict[str, list[dict[str, Any]]] = {}
    for label, _, learner in lines:
        row, curves[label] = _trained(run, bench, label, learner, resume)
        rows.append(row)
    run.draw("learning-curves.png", draw_learning_curves, curves, cosine.map, bundle.name, size=(9.0, 4.0))
    parameters = {
        "features": bench.n_features, "triplets": triplets, "split": split, "methods": list(chosen),
        "step_sizes": {label: learner.step_size for label, _, learner in lines}, "select": select,
        "compare": compare, **{name.replace("-", "_"): value for name, value in settings.items()},
    }  # fmt: skip
    return Outcome(
        data=bundle.name,
        parameters=parameters,
        rows=rows,
        headings={"precision_at_1": "P@1", "precision_at_10": "P@10", "train_seconds": "train s"},
    )


def _trained(
    run: Run, bench: Bench, label: str, learner: SimilarityLearner, resume: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train one method; return its row and its learning curve, and save its model and checkpoint."""
    name = "-".join(label.lower().replace(",", "").split())
    checkpoint = Checkpoint(run.path("checkpoints") / f"{name}.npz")
    if not resume:
        Path(checkpoint.path).unlink(missing_ok=True)
    recorder = bench.curve(
        learner, first=max(1, learner.max_iter // 100), log=run.path(f"{name}.jsonl"), progress=run.progress,
        description=label,
    )  # fmt: skip
    result = learner.fit(bench.X, bench.y, recorder=recorder, checkpoint=checkpoint).result_
    about = {"steps": result.steps, "updates": result.updates}
    kind = "metric" if learner.metric else "similarity"
    save_point(run.path(f"{name}.npz"), kind, result.point, about)
    return _row(label, bench.measured(learner), result.seconds, result.updates), result.history


def _row(label: str, measured: Retrieval, seconds: float, updates: int) -> dict[str, Any]:
    return {
        "method": label, "map": measured.map, "precision_at_1": measured.precision_at[1],
        "precision_at_10": measured.precision_at[10], "train_seconds": seconds, "updates": updates,
    }  # fmt: skip


def _step_sizes(chosen: dict[str, Method], steps: str, given: dict[str, float]) -> dict[str, float]:
    """Return the step size of each method: that of its own option, that of ``NAME=VALUE,…``, or the default."""
    sizes = {name: given.get(name, method.estimator.step_size) for name, method in chosen.items()}
    free = [name for name in chosen if name not in given]
    for part in filter(None, steps.split(",")):
        name, _, value = part.partition("=")
        try:
            sizes[name] = number(name, float(value), above=0)
        except ValueError:
            name = ""
        if name not in free:
            raise InvalidInputError(
                f"--steps {steps!r}: {part!r} must be NAME=VALUE with one of {', '.join(free) or 'no method'} "
                "(chosen, and without an option of its own) and a positive number."
            )
    return sizes


def _variants(compare: str, settings: dict[str, Any]) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the key of ``KEY=VALUE,VALUE`` and the settings of each variant."""
    key, equals, values = compare.partition("=")
    if compare and (key not in COMPARABLE or not equals or not all(values.split(","))):
        raise InvalidInputError(
            f"--compare {compare!r} must be KEY=VALUE,VALUE with KEY one of {', '.join(COMPARABLE)}."
        )
    try:
        changes = [{key: type(settings[key])(value)} for value in values.split(",")] if compare else [{}]
    except ValueError:
        raise InvalidInputError(f"--compare {compare!r}: the values of {key} must be numbers.") from None
    variants = [settings | change for change in changes]
    for variant in variants:
        integer("--rank", variant["rank"], 1)
        number("--step-size", variant["step-size"], above=0)
    return key or None, variants
