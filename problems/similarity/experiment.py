"""The experiment ``rmopt run similarity``: LORETA-1 beside the rivals of its paper."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from problems.cells import chosen_from
from problems.datasets import load
from problems.similarity.bench import Bench, Plan, prepared
from problems.similarity.figure import draw_learning_curves
from problems.similarity.methods import METHODS, Method
from problems.similarity.training import loreta_solver
from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number
from rmopt.experiments import Outcome, Run
from rmopt.solvers import Sampler, ScheduledSolver

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
    for option, count, least in (
        ("--features", features, 0),
        ("--triplets", triplets, 1),
        ("--split", split, -1),
    ):
        integer(option, count, least)
    for option, size in (("--gd-step-size", gd_step_size), ("--pa-c", pa_c)):
        number(option, size, above=0)
    key, variants = _variants(compare, settings)
    chosen = chosen_from(METHODS, methods, "--methods")
    if key is not None and ("loreta" not in chosen or (select and key == "step-size")):
        raise InvalidInputError(
            f"--compare {compare!r} needs loreta among --methods, and no --select of the step sizes it compares."
        )
    sizes = _step_sizes(chosen, steps, {"loreta": step_size, "naive-gd": gd_step_size, "pa": pa_c})
    bundle = prepared(load(data, data_home), features, split)
    bench = Bench(bundle, triplets, run.seed)
    # Every setting is tried out before the first method starts to train.
    plans = list(_plans(bench, chosen, sizes, settings, variants, key))
    run.say(
        f"{bundle.name} ({bundle.source}): {bundle.train.sum():,} training, {bundle.test.sum():,} test documents; "
        f"{bench.n_features:,} features, {bundle.n_classes} classes"
    )
    if select:
        plans = [bench.with_selected_step_size(run, plan) for plan in plans]
    rows = [bench.cosine_row()]
    curves: dict[str, list[dict[str, Any]]] = {}
    for plan in plans:
        row, curves[plan.label] = bench.row(run, plan, resume)
        rows.append(row)
    run.draw(
        "learning-curves.png", draw_learning_curves, curves, rows[0]["map"], bundle.name, size=(9.0, 4.0)
    )
    parameters = {
        "features": bench.n_features, "triplets": triplets, "split": split, "methods": list(chosen),
        "step_sizes": {plan.label: plan.step_size for plan in plans}, "select": select, "compare": compare,
        **{name.replace("-", "_"): value for name, value in settings.items()},
    }  # fmt: skip
    return Outcome(
        data=bundle.name,
        parameters=parameters,
        rows=rows,
        headings={"precision_at_1": "P@1", "precision_at_10": "P@10", "train_seconds": "train s"},
    )


def _plans(
    bench: Bench,
    chosen: dict[str, Method],
    sizes: dict[str, float],
    settings: dict[str, Any],
    variants: list[dict[str, Any]],
    key: str | None,
) -> Iterator[Plan]:
    """Yield a line of the table to come for each method, and for each variant of LORETA-1."""
    for name, method in chosen.items():
        if name != "loreta":
            manifold = method.manifold(bench.n_features, settings["rank"])
            yield bench.plan(method.label, method, manifold, sizes[name], settings["init"], method.solver)
            continue
        for variant in variants:
            solver = partial(_loreta, retraction=variant["retraction"], engine=variant["engine"])
            manifold = method.manifold(bench.n_features, variant["rank"])
            label = method.label if key is None else f"{method.label}, {variant[key]}"
            yield bench.plan(label, method, manifold, variant["step-size"], variant["init"], solver)


def _loreta(
    step_size: float, n_steps: int, sampler: Sampler, *, retraction: str, engine: str
) -> ScheduledSolver:
    return loreta_solver(step_size, n_steps, sampler, retraction=retraction, engine=engine)


def _step_sizes(chosen: dict[str, Method], steps: str, given: dict[str, float]) -> dict[str, float]:
    """Return the step size of each method: that of its own option, that of ``NAME=VALUE,…``, or the default."""
    sizes = {name: given.get(name, method.step_size) for name, method in chosen.items()}
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
    if not compare:
        return None, [_checked(settings)]
    key, equals, values = compare.partition("=")
    if key not in COMPARABLE or not equals or not all(values.split(",")):
        raise InvalidInputError(
            f"--compare {compare!r} must be KEY=VALUE,VALUE with KEY one of {', '.join(COMPARABLE)}."
        )
    kind = type(settings[key])
    try:
        variants = [settings | {key: kind(value)} for value in values.split(",")]
    except ValueError:
        raise InvalidInputError(f"--compare {compare!r}: the values of {key} must be numbers.") from None
    return key, [_checked(variant) for variant in variants]


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    integer("--rank", settings["rank"], 1)
    number("--step-size", settings["step-size"], above=0)
    return settings
