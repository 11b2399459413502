"""The experiment ``rmopt run tagging``: which tags a user gives to an item (Mirzazadeh et al. 2015, section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.coembedding.cost import TagRanking
from problems.coembedding.estimators import checked_betas, minimise
from problems.coembedding.figure import draw_curves
from problems.coembedding.links import PairwiseInteractionTags, TagModel, TagRecommender, posts_f1
from problems.comparison import Comparison, Difference, averaged, crossed, grown, near
from problems.data import TagBundle
from problems.methods import Cell, Method, Settings, chosen_methods, rows_of
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import number, one_of
from rmopt.experiments import Claim, Outcome, Run
from rmopt.solvers import Doubling, OneByOne, RankIncremental, Recorder

GROWTHS = {"linear": OneByOne, "exponential": Doubling}
HEADINGS = {
    "f1": "F1, top 5", "sem": "±", "best_f1": "best F1", "best_rank": "at rank", "near_rank": "within 1 % at rank",
    "gap": "rel. gap", "train_seconds": "train s",
}  # fmt: skip
METHODS: dict[str, Method] = {
    "ila": Method("ILA", TagRecommender()),
    "pitf": Method(
        "Pairwise interactions", PairwiseInteractionTags(),
        crossed(penalty=(5e-4, 5e-3, 5e-2), n_epochs=(50, 200, 800)),
    ),
}  # fmt: skip
# An objective this close to the minimum counts as there (Figure 5).
NEAR = 0.01
# Tags that are recommended.
TOP = 5


def tagging(
    run: Run,
    *,
    data: Annotated[options.Data, TagBundle] = "toy-tags",
    data_home: options.DataHome = None,
    betas: Annotated[str, Option(help="Weights of the trace, with commas between.")] = "0.1,1,10,100",
    growth: Annotated[str, Option(help="Columns of each round: linear or exponential.")] = "linear",
    columns: Annotated[int, Option(help="Columns of the first round.")] = 4,
    tol: Annotated[float, Option(help="Relative gap to the global minimum.")] = 1e-2,
    rank: Annotated[int, Option("--rank", "--factors", help="Rank of pairwise interactions.")] = 64,
    seeds: options.Seeds = 3,
    methods: Annotated[str, options.methods_option(METHODS)] = ",".join(METHODS),
    method: options.OwnMethods = None,
    select: Annotated[
        options.Selection,
        Option(
            help="Choose β and the like by a training post of each user: none, of the first split, or of each."
        ),
    ] = "none",
    n_jobs: options.Jobs = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Recommend tags: users, items and tags in one space, beside the pairwise-interaction factor model.

    One post of each user is held out. F1 of the five best tags and the training objective are watched while the rank
    grows towards that of the global minimum.
    """
    weights = checked_betas(options.positive_numbers(betas, "--betas"))
    chosen = chosen_methods(METHODS, methods, method, "tagging", ("predict",))
    one_of("--growth", growth, GROWTHS)
    options.check_options(locals(), columns=1, seeds=1, rank=1)
    number("--tol", tol, above=0)
    bundle = options.loaded(run, data, data_home, TagBundle)
    users, items, tags = bundle.counts
    run.say(
        f"{bundle.name} ({bundle.source}): {users} users, {items} items, {tags} tags, {len(bundle.triples):,} "
        f"triples in {bundle.posts().max() + 1:,} posts; {seeds} random split{'s' * (seeds > 1)}"
    )
    chosen |= {
        name: replace(kind, grid=crossed(beta=weights))
        for name, kind in chosen.items()
        if isinstance(kind.estimator, TagRecommender)
    }
    models: list[Settings] = []
    for name, kind in chosen.items():
        one = {"method": name, "code": kind.code, "rank": rank * kind.ranked, "beta": 0.0}
        embeds = isinstance(kind.estimator, TagRecommender)
        one |= {"growth": growth, "columns": columns, "tol": tol} if embeds else {}
        models += [one | {"beta": beta} for beta in weights] if embeds and select == "none" else [one]

    def measured(one: Settings, parameters: Settings, test: Array, held: Array) -> Cell:
        model = chosen[one["method"]].made(parameters, rank=one["rank"], random_state=one["seed"])
        return _trained(bundle, model, one, bundle.triples[~test & ~held], bundle.triples[held])

    def choose(one: Settings) -> Cell:
        test = bundle.held_out(one["seed"])
        held = bundle.held_out(one["seed"], test)

        def scores(points: Sequence[Settings]) -> Array:
            found = [measured(one, point, test, held)["f1"] for point in points]
            return np.array([-np.inf if f1 is None else f1 for f1 in found])

        label, grid = chosen[one["method"]].label, chosen[one["method"]].grid
        points, f1 = grown(
            grid, scores, lambda f1: np.flatnonzero(f1 == f1.max()), lambda what: run.say(f"{label}: {what}")
        )
        return {"parameters": points[int(f1.argmax())]}

    def train(one: Settings) -> Cell:
        test = bundle.held_out(one["seed"])
        return measured(one, one["parameters"], test, test)

    comparison = Comparison(run, resume, seeds=seeds, n_jobs=n_jobs, data=bundle.fingerprint())
    with threadpool_limits(1, user_api="blas"):
        models = comparison.selected(models, chosen, select, choose, lambda one: chosen[one["method"]].label)
        models = [one | ({"parameters": {"beta": one["beta"]}} if one["beta"] else {}) for one in models]
        results = comparison.results(models, train, by=("method", "beta", "rank"))
    found = {
        chosen[name].label + f", β = {beta:g}" * bool(beta) + f", k = {width}" * bool(width): cells
        for (name, beta, width), cells in results.items()
    }
    rows = [_row(label, cells) for label, cells in found.items()]
    curves = {label: cells[0]["curve"] for label, cells in found.items() if cells[0]["curve"]}
    if curves:
        panels = {
            "F1 of the five best tags (test)": {
                label: [(row["rank"], row["f1"]) for row in curve[1:]] for label, curve in curves.items()
            },
            "objective / last objective": {
                label: [(row["rank"], row["objective"] / curve[-1]["objective"]) for row in curve[1:]]
                for label, curve in curves.items()
            },
        }
        run.draw("ranks.png", draw_curves, panels, "rank", "", f"{bundle.name}, first split", size=(9.0, 4.0))
    return Outcome(
        data=bundle.name,
        parameters={
            "betas": weights, "growth": growth, "columns": columns, "tol": tol, "seeds": seeds, "rank": rank,
            "select": select, "used": {chosen[one["method"]].label: one["parameters"] for one in models[::-1]},
        },
        rows=rows,
        headings=HEADINGS,
        claims=_claims(rows, found),
    )  # fmt: skip


def _trained(bundle: TagBundle, model: Any, one: Settings, train: Array, held: Array) -> Cell:
    """Return the F1 of a model, and of a co-embedding what was seen while its rank grew."""
    if isinstance(model, TagModel):
        # Names are numbers already; users and items of the held-out posts may have no other post.
        model.users_, model.items_, model.tags_ = (np.arange(count) for count in bundle.counts)
    begun = perf_counter()
    if not isinstance(model, TagRecommender):
        try:
            if isinstance(model, TagModel):
                model.learn(train, bundle.counts)
            else:
                model.fit(train[:, :2], train[:, 2])
        except DivergedError:
            return dict.fromkeys(("f1", "rank", "gap", "seconds")) | {"curve": []}
        seconds = perf_counter() - begun

        def best(pairs: Any) -> Any:
            found = rows_of("predict(pairs)", model.predict(pairs), len(pairs))[:, :TOP]
            if (found != np.round(found)).any() or found.min() < 0 or found.max() >= bundle.counts[2]:
                raise InvalidInputError(
                    f"predict(pairs) must hold numbers of tags, from 0 to {bundle.counts[2] - 1}, the best first."
                )
            return found

        f1 = posts_f1(held[:, :2], held[:, 2], best)
        return {"f1": f1, "rank": one["rank"] or None, "gap": None, "seconds": seconds, "curve": []}

    def f1_at(point: Any) -> float:
        model.embed(point.factor(), bundle.counts)
        return model.score(held[:, :2], held[:, 2])

    solver = RankIncremental(GROWTHS[one["growth"]](one["columns"]), tol=one["tol"])
    recorder = Recorder({"f1": f1_at}, at=())
    result = minimise(TagRanking(train, bundle.counts), model.beta, solver, recorder=recorder)
    curve = [
        {key: row[key] for key in ("rank", "objective", "gap", "f1", "seconds")} for row in result.history
    ]
    return {
        "f1": curve[-1]["f1"], "rank": result.point.rank, "gap": result.certificate.relative_gap,
        "seconds": perf_counter() - begun, "curve": curve,
    }  # fmt: skip


def _row(name: str, found: Sequence[Cell]) -> Cell:
    if not found[0]["curve"]:
        return {"method": name} | averaged(found, f1="sem", rank=None)
    row = averaged(
        [_seen(cell) for cell in found], f1="sem", rank=None, best_f1=None, best_rank=None, near_rank=None
    )
    seconds = row.pop("train_seconds")
    return {"method": name, **row, "gap": max(cell["gap"] for cell in found), "train_seconds": seconds}


def _seen(cell: Cell) -> Cell:
    """Return a result with the best F1, and the rank from which on the objective is within 1 % of its last value."""
    curve = cell["curve"]
    best = max(curve, key=lambda row: row["f1"])
    near = next(row for row in curve if row["objective"] <= (1.0 + NEAR) * curve[-1]["objective"])
    return cell | {"best_f1": best["f1"], "best_rank": best["rank"], "near_rank": near["rank"]}


def _claims(rows: Sequence[Cell], found: Mapping[str, Sequence[Cell]]) -> list[Claim]:
    ours, others = ([row for row in rows if ("gap" in row) is embeds] for embeds in (True, False))
    if not ours:
        return []
    ranks = ", ".join(f"{row['near_rank']:.0f} of {row['rank']:.0f} ({row['method']})" for row in ours)
    order = [row["rank"] for row in ours]
    made = [
        Claim(
            "local minima approach the global one at ranks much smaller than the optimal one (half of it or less)",
            # An empty model approaches nothing.
            all(row["near_rank"] <= 0.5 * row["rank"] > 0.0 for row in ours),
            f"within 1 % at rank {ranks}",
        )
    ]
    if len(order) > 1:
        falls, numbers = bool((np.diff(order) <= 0).all()), ", ".join(f"{last:.0f}" for last in order)
        made.append(Claim("the optimal rank falls as β grows", falls, numbers))
    # The best of several on the test posts would be chosen by them.
    best = ours[0]["method"]
    for other in (row["method"] for row in others):
        gap = {"by split": (Difference.of(found[best], found[other], "f1"), 0.02)} if len(ours) == 1 else {}
        made.append(
            near(f"F1 is near to that of {other} (within 0.02)", gap, best, "one β, or --select first")
        )
    return made
