"""The experiment ``rmopt run similarity-ranks``: figure 3 of the LORETA paper."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from problems.cells import Cell, check_options, chosen_from, whole_numbers
from problems.comparison import Comparison, Settings, averaged
from problems.datasets import Bundle, load
from problems.similarity.claims import rank_claims
from problems.similarity.figure import draw_ranks
from problems.similarity.methods import METHODS, Bench, SimilarityLearner
from rmopt.core import DivergedError, InvalidInputError
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import FixedRankEmbedded

Option = typer.Option


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
    pairs = [{"rank": rank, "features": budget // rank} for rank in whole_numbers(ranks, "--ranks")]
    check_options(locals(), budget=1, splits=1, triplets=1, full_triplets=0)
    bundle: Bundle = load(data, data_home)
    for rank, features in map(dict.values, pairs):
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
    comparison = Comparison(run, resume, data=data, seed=run.seed)

    # A few benches are kept: methods of one split and number of features share their data.
    @lru_cache(maxsize=len(pairs) + len(widths))
    def bench_of(features: int, split: int) -> Bench:
        return Bench(bundle, features, split, run.seed)

    def learner_of(name: str, rank: int, step_size: float, triplets: int) -> SimilarityLearner:
        return chosen[name].made(rank=rank, step_size=step_size, max_iter=triplets, random_state=run.seed)

    def train(one: Settings) -> Cell:
        """Return what a model measures on the test part, and its learning curve where the figure shows it."""
        bench = bench_of(one["features"], one["split"])
        learner = learner_of(one["method"], one["rank"], one["step_size"], one["triplets"])
        recorder = bench.curve(learner, -(-learner.max_iter // 256)) if chosen[one["method"]].ours else None
        found = {"features": bench.n_features}
        try:
            result = learner.fit(bench.X, bench.y, recorder=recorder).result_
        except DivergedError:
            return found | {"map": None, "precision_at_1": None, "seconds": None, "curve": []}
        measured = bench.measured(learner, ks=(1,))
        return found | {
            "map": measured.map, "precision_at_1": measured.precision_at[1], "seconds": result.seconds,
            "curve": [[row["step"], row["map"]] for row in result.history],
        }  # fmt: skip

    def select_step_size(one: Settings) -> Cell:
        bench, method = bench_of(one["features"], 0), chosen[one["select"]]
        learner = learner_of(one["select"], one["rank"], method.estimator.step_size, one["triplets"])
        return {"step_size": bench.selected(comparison, method, learner)}

    sizes = {name: method.estimator.step_size for name, method in chosen.items()}
    settings: list[Settings] = []
    for name, method in chosen.items():
        full = method.estimator.full_rank
        steps = (full and full_triplets) or triplets
        places = [{"rank": width, "features": width} for width in widths] if full else pairs
        if select:
            about = {"select": name, "triplets": steps, "grid": [one["step_size"] for one in method.grid]}
            place = places[0 if full else len(places) // 2]
            sizes[name] = comparison.cell(about | place, select_step_size)["step_size"]
        model = {"method": name, "step_size": sizes[name], "triplets": steps}
        settings += [model | place | {"split": split} for split in range(splits) for place in places]
    settings.sort(key=itemgetter("split"))
    results = comparison.results(settings, train, by=("method", "rank"))
    run.draw("ranks.png", draw_ranks, results, chosen, size=(12.0, 4.0))
    return Outcome(
        data=bundle.name,
        parameters={
            "budget": budget, "ranks": [pair["rank"] for pair in pairs], "full_features": widths,
            "triplets": triplets, "full_triplets": full_triplets or triplets, "splits": splits, "select": select,
            "step_sizes": sizes,
        },
        rows=[
            {"method": chosen[name].label, "rank": rank, "features": found[0]["features"]}
            | averaged(found, map="map_sem", precision_at_1=None)
            for (name, rank), found in results.items()
        ],
        headings={"map_sem": "± s.e.m.", "precision_at_1": "P@1", "train_seconds": "train s"},
        claims=rank_claims(results),
    )  # fmt: skip
