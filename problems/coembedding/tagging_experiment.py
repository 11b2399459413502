"""The experiment ``rmopt run tagging``: which tags a user gives to an item (Mirzazadeh et al. 2015, section 7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from problems.cells import Cells, mean_and_sem, positive_numbers
from problems.coembedding.figure import draw_curves, levels
from problems.coembedding.recommender import PairwiseInteractionTags, TagRecommender
from problems.coembedding.tagging import TagRanking
from problems.coembedding.training import checked_betas, minimise
from problems.datasets import load
from problems.tags import TagBundle
from rmopt.core.arguments import integer, number, one_of
from rmopt.experiments import Claim, Outcome, Run
from rmopt.solvers import Exponential, Linear, RankIncremental, Recorder

Array = np.ndarray
Option = typer.Option

GROWTHS = ("linear", "exponential")
HEADINGS = {
    "f1": "F1, top 5", "sem": "±", "best_f1": "best F1", "best_rank": "at rank", "near_rank": "within 1 % at rank",
    "gap": "rel. gap", "train_seconds": "train s",
}  # fmt: skip
# An objective this close to the minimum counts as there (Figure 5).
NEAR = 0.01


def tagging(
    run: Run,
    *,
    data: Annotated[str, Option(help="toy-tags or ml10m-tags.")] = "toy-tags",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    betas: Annotated[str, Option(help="Weights of the trace, with commas between.")] = "0.1,1,10,100",
    growth: Annotated[str, Option(help="Columns of each round: linear or exponential.")] = "linear",
    columns: Annotated[int, Option(help="Columns of the first round.")] = 4,
    tol: Annotated[float, Option(help="Relative gap to the global minimum.")] = 1e-2,
    splits: Annotated[int, Option(help="How often one post of each user is held out.")] = 3,
    factors: Annotated[int, Option(help="Rank of the pairwise-interaction model; 0: leave it out.")] = 64,
    resume: Annotated[bool, Option("--resume", help="Go on from the results in the --out folder.")] = False,
) -> Outcome:
    """Recommend tags: users, items and tags in one space, beside the pairwise-interaction factor model.

    One post of each user is held out. F1 of the five best tags and the training objective are watched while the rank
    grows towards that of the global minimum.
    """
    weights = checked_betas(positive_numbers(betas, "--betas"))
    one_of("--growth", growth, GROWTHS)
    for option, count, least in (
        ("--columns", columns, 1),
        ("--splits", splits, 1),
        ("--factors", factors, 0),
    ):
        integer(option, count, least)
    number("--tol", tol, above=0)
    bundle = load(data, data_home, TagBundle)
    users, items, tags = bundle.counts
    run.say(
        f"{bundle.name} ({bundle.source}): {users} users, {items} items, {tags} tags, {len(bundle.triples):,} "
        f"triples in {bundle.posts().max() + 1:,} posts; {splits} split{'s' * (splits > 1)}"
    )
    cells = Cells(run.path("cells.jsonl"), resume)
    about = {"data": bundle.name, "growth": growth, "columns": columns, "tol": tol, "seed": run.seed}
    found: dict[str, list[dict[str, Any]]] = {}
    with (
        run.ticks("models", splits * (len(weights) + bool(factors))) as tick,
        threadpool_limits(1, user_api="blas"),
    ):
        for split in range(splits):
            test = bundle.held_out(run.seed + split)
            for beta in weights:

                def compute(beta: float = beta, test: Array = test) -> dict[str, Any]:
                    return _embedded(bundle, test, beta, growth, columns, tol)

                cell = cells.get(about | {"beta": beta, "split": split}, compute)
                found.setdefault(f"ILA, β = {beta:g}", []).append(cell)
                tick()
            if factors:

                def rival(test: Array = test, split: int = split) -> dict[str, Any]:
                    return _interactions(bundle, test, factors, run.seed + split)

                settings = {"data": bundle.name, "factors": factors, "split": split, "seed": run.seed}
                found.setdefault(f"Pairwise interactions, k = {factors}", []).append(
                    cells.get(settings, rival)
                )
                tick()
    embedded = {name: cells[0]["curve"] for name, cells in found.items() if cells[0]["curve"]}
    run.draw(
        "ranks.png", draw_curves,
        {
            "F1 of the five best tags (test)": {
                name: levels(rows[1:], "rank", "f1") for name, rows in embedded.items()
            },
            "objective / last objective": {
                name: [(row["rank"], row["objective"] / rows[-1]["objective"]) for row in rows[1:]]
                for name, rows in embedded.items()
            },
        },
        "rank", "", f"{bundle.name}, first split", size=(9.0, 4.0),
    )  # fmt: skip
    return Outcome(
        data=bundle.name,
        parameters={
            "betas": weights, "growth": growth, "columns": columns, "tol": tol, "splits": splits, "factors": factors,
        },
        rows=[_row(name, results) for name, results in found.items()],
        headings=HEADINGS,
        claims=_claims(found),
    )  # fmt: skip


def _embedded(
    bundle: TagBundle, test: Array, beta: float, growth: str, columns: int, tol: float
) -> dict[str, Any]:
    """Return the F1 of a co-embedding, and what was seen while its rank grew."""
    train, held = bundle.triples[~test], bundle.triples[test]
    model = TagRecommender(beta)
    # Names are numbers already; users and items of the held-out posts may have no other post.
    model.users_, model.items_, model.tags_ = (np.arange(count) for count in bundle.counts)

    def f1(point: Any) -> float:
        model.embed(point.factor(), bundle.counts)
        return model.score(held[:, :2], held[:, 2])

    strategy = Linear(columns) if growth == "linear" else Exponential(columns)
    loss = TagRanking(train, bundle.counts)
    begun = perf_counter()
    result = minimise(loss, beta, RankIncremental(strategy, tol=tol), recorder=Recorder({"f1": f1}, at=()))
    rows = [
        {key: row[key] for key in ("rank", "objective", "gap", "f1", "seconds")} for row in result.history
    ]
    return {
        "f1": rows[-1]["f1"], "rank": result.point.rank, "gap": result.certificate.relative_gap,
        "seconds": perf_counter() - begun, "curve": rows,
    }  # fmt: skip


def _interactions(bundle: TagBundle, test: Array, factors: int, seed: int) -> dict[str, Any]:
    train, held = bundle.triples[~test], bundle.triples[test]
    model = PairwiseInteractionTags(factors, random_state=seed)
    model.users_, model.items_, model.tags_ = (np.arange(count) for count in bundle.counts)
    begun = perf_counter()
    model.learn(train, bundle.counts)
    seconds = perf_counter() - begun
    return {
        "f1": model.score(held[:, :2], held[:, 2]), "rank": factors, "gap": None, "seconds": seconds, "curve": [],
    }  # fmt: skip


def _row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    mean, sem = mean_and_sem(cell["f1"] for cell in found)
    first = found[0]
    row: dict[str, Any] = {
        "method": name,
        "f1": mean,
        "sem": sem,
        "rank": _mean(found, lambda cell: cell["rank"]),
    }
    if first["curve"]:
        row["best_f1"] = _mean(found, lambda cell: max(one["f1"] for one in cell["curve"]))
        row["best_rank"] = _mean(found, lambda cell: max(cell["curve"], key=lambda one: one["f1"])["rank"])
        row["near_rank"] = _mean(found, _near)
        row["gap"] = max(cell["gap"] for cell in found)
    row["train_seconds"] = float(np.median([cell["seconds"] for cell in found]))
    return row


def _mean(found: list[dict[str, Any]], number: Callable[[dict[str, Any]], float]) -> float:
    return float(np.mean([number(cell) for cell in found]))


def _near(cell: dict[str, Any]) -> float:
    """Return the rank from which on the objective is within 1 % of its last value."""
    last = cell["curve"][-1]["objective"]
    return float(next(row["rank"] for row in cell["curve"] if row["objective"] <= (1.0 + NEAR) * last))


def _claims(found: dict[str, list[dict[str, Any]]]) -> list[Claim]:
    ours = {name: cells for name, cells in found.items() if cells[0]["curve"]}
    ranks = {
        name: (_mean(cells, _near), _mean(cells, lambda cell: cell["rank"])) for name, cells in ours.items()
    }
    made = [
        Claim(
            "local minima approach the global one at ranks much smaller than the optimal one (half of it or less)",
            all(near <= 0.5 * last for near, last in ranks.values()),
            "within 1 % at rank "
            + ", ".join(f"{near:.0f} of {last:.0f} ({name})" for name, (near, last) in ranks.items()),
        )
    ]
    order = [last for _, last in ranks.values()]
    if len(order) > 1:
        made.append(
            Claim(
                "the optimal rank falls as β grows",
                bool((np.diff(order) <= 0).all()),
                ", ".join(f"{last:.0f}" for last in order),
            )
        )
    rivals = [cells for cells in found.values() if not cells[0]["curve"]]
    if rivals:
        best = max(ours, key=lambda name: mean_and_sem(cell["f1"] for cell in ours[name])[0])
        gap, spread = mean_and_sem(a["f1"] - b["f1"] for a, b in zip(ours[best], rivals[0], strict=True))
        made.append(
            Claim(
                "F1 is near to the state of the art, here pairwise interactions (within 0.02)",
                gap >= -0.02,
                f"{best}: {gap:+.3f} ± {spread or 0.0:.3f} by split",
            )
        )
    return made
