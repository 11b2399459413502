"""The experiment ``rmopt run similarity-ranks``: figure 3 of the LORETA paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from problems.cells import Cells, chosen_from, summary, whole_numbers
from problems.datasets import Bundle, load
from problems.similarity.bench import Bench, prepared
from problems.similarity.claims import rank_claims
from problems.similarity.figure import draw_ranks
from problems.similarity.methods import METHODS, Method
from rmopt.core import DivergedError, InvalidInputError, Problem
from rmopt.core.arguments import integer
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import Recorder

Option = typer.Option

# Those whose learning curves the figure shows.
TRACED = ("loreta", "loreta-psd")


def similarity_ranks(
    run: Run,
    *,
    data: Annotated[str, Option(help="Data set; `rmopt list` names them.")] = "digits",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    budget: Annotated[int, Option(help="Features times rank, the same for all ranks.")] = 640,
    ranks: Annotated[str, Option(help="The ranks, with commas between.")] = "10,16,20",
    full_features: Annotated[
        str, Option(help="Features for the methods of full rank, with commas between.")
    ] = "32,64",
    methods: Annotated[
        str, Option(help=f"Any of {', '.join(METHODS)}.")
    ] = "loreta,loreta-psd,pa,naive-gd,psd-gd,oasis,lego",
    triplets: Annotated[int, Option(help="Training triplets for each model.")] = 20_000,
    full_triplets: Annotated[int, Option(help="The same for the methods of full rank; 0: as many.")] = 0,
    splits: Annotated[int, Option(help="Random 65/35 splits, with the seeds 0, 1, …")] = 3,
    select: Annotated[
        bool,
        Option(
            "--select/--no-select",
            help="Choose step sizes by cross-validation on the first split, at the middle rank.",
        ),
    ] = False,
    resume: Annotated[bool, Option("--resume", help="Go on from the results in the --out folder.")] = False,
) -> Outcome:
    """Compare similarities of many ranks that need the same memory.

    For each rank as many features are kept as the budget allows, by information gain; each model learns from
    triplets of the training part, and each test document ranks the others (Shalit et al. 2012, figure 3).
    """
    chosen = chosen_from(METHODS, methods, "--methods")
    widths = whole_numbers(full_features, "--full-features", 2)
    pairs = [(rank, budget // rank) for rank in whole_numbers(ranks, "--ranks")]
    for option, count, least in (
        ("--budget", budget, 1), ("--splits", splits, 1), ("--triplets", triplets, 1),
        ("--full-triplets", full_triplets, 0),
    ):  # fmt: skip
        integer(option, count, least)
    bundle: Bundle = load(data, data_home)
    for rank, features in pairs:
        if features > bundle.X.shape[1]:
            raise InvalidInputError(
                f"--budget {budget} gives rank {rank} {features} features, and {data} has {bundle.X.shape[1]}; "
                f"lower the budget or raise the rank."
            )
        FixedRankEmbedded(features, features, rank)
    run.say(
        f"{bundle.name} ({bundle.source}): {len(bundle.y):,} documents, {bundle.X.shape[1]:,} features, "
        f"{bundle.n_classes} classes; {splits} random 65/35 splits"
    )

    # A few benches are kept: methods of one split and number of features share their data.
    @lru_cache(maxsize=len(pairs) + len(widths))
    def bench(features: int, split: int) -> Bench:
        return Bench(prepared(bundle, features, split), triplets, run.seed)

    plan = [
        (name, rank, features, split)
        for split in range(splits)
        for name, method in chosen.items()
        for rank, features in ([(width, width) for width in widths] if method.full_rank else pairs)
    ]
    sizes = {name: method.step_size for name, method in chosen.items()}
    cells = Cells(run.path("cells.jsonl"), resume)
    if select:
        for name, method in chosen.items():
            rank, features = (widths[0],) * 2 if method.full_rank else pairs[len(pairs) // 2]
            steps = full_triplets if method.full_rank and full_triplets else triplets
            sizes[name] = _selected(run, cells, bench, name, method, rank, features, data, steps)
    results: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with run.ticks("models", len(plan)) as tick:
        for name, rank, features, split in plan:
            steps = full_triplets if chosen[name].full_rank and full_triplets else triplets
            settings = {
                "data": data, "method": name, "rank": rank, "features": features, "split": split,
                "step_size": sizes[name], "triplets": steps, "seed": run.seed,
            }  # fmt: skip
            train = partial(_train, bench, features, split, name, chosen[name], rank, sizes[name], steps)
            results.setdefault((name, rank), []).append(cells.get(settings, train))
            tick()
    rows = [
        {"method": chosen[name].label, "rank": rank, "features": found[0]["features"], **summary(found)}
        for (name, rank), found in results.items()
    ]
    run.draw(
        "ranks.png", draw_ranks, results, {name: chosen[name].label for name in chosen}, size=(12.0, 4.0)
    )
    return Outcome(
        data=bundle.name,
        parameters={
            "budget": budget, "ranks": [rank for rank, _ in pairs], "full_features": widths, "triplets": triplets,
            "full_triplets": full_triplets or triplets, "splits": splits, "select": select, "step_sizes": sizes,
        },
        rows=rows,
        headings={"map_sem": "± s.e.m.", "precision_at_1": "P@1", "train_seconds": "train s"},
        claims=rank_claims(results),
    )  # fmt: skip


def _train(
    bench_of: Callable[[int, int], Bench],
    features: int,
    split: int,
    name: str,
    method: Method,
    rank: int,
    step_size: float,
    triplets: int,
) -> dict[str, Any]:
    """Return what a model measures on the test part, and its learning curve where the figure shows it."""
    bench = bench_of(features, split)
    manifold = method.manifold(bench.n_features, rank)
    metric = {"map": lambda point: bench.measured(method, point, bench.curve_queries, ks=()).map}
    recorder = Recorder(metric if name in TRACED else {}, first=-(-triplets // 256))
    solver = method.solver(step_size, triplets, bench.sampler)
    try:
        result = solver.run(
            Problem(manifold, bench.cost), method.start(manifold), random_state=bench.seed, recorder=recorder
        )
    except DivergedError:
        return {
            "map": None,
            "precision_at_1": None,
            "seconds": None,
            "features": bench.n_features,
            "curve": [],
        }
    measured = bench.measured(method, result.point, ks=(1,))
    return {
        "map": measured.map,
        "precision_at_1": measured.precision_at[1],
        "seconds": result.seconds,
        "features": bench.n_features,
        "curve": [[row["step"], row["map"]] for row in result.history],
    }


def _selected(
    run: Run,
    cells: Cells,
    bench_of: Callable[[int, int], Bench],
    name: str,
    method: Method,
    rank: int,
    features: int,
    data: str,
    triplets: int,
) -> float:
    settings = {
        "data": data, "select": name, "rank": rank, "features": features, "triplets": triplets,
        "grid": list(method.grid), "seed": run.seed,
    }  # fmt: skip

    def compute() -> dict[str, Any]:
        bench = bench_of(features, 0)
        manifold = method.manifold(features, rank)
        plan = bench.plan(method.label, method, manifold, method.step_size, "identity", method.solver)
        return {"step_size": bench.with_selected_step_size(run, plan, triplets).step_size}

    return float(cells.get(settings, compute)["step_size"])
