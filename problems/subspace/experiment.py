"""The experiment ``rmopt run completion``: matrix completion between agents (Mishra et al. 2019, section 6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.comparison import Kept, averaged, mean_and_sem
from problems.data import Ratings
from problems.methods import Cell, Method, Settings, chosen_methods
from problems.subspace.claims import case_claims, table_claims
from problems.subspace.figure import draw_completed, draw_errors, draw_traces
from problems.subspace.methods import (
    METHODS,
    OVERSAMPLING,
    Completion,
    CompletionRuns,
    Gossip,
    Shares,
    low_rank_shares,
    shares_of,
)
from problems.subspace.training import VARIANTS, GossipPlan
from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number, one_of
from rmopt.costs import as_graph
from rmopt.experiments import Outcome, Run
from rmopt.files import reading
from rmopt.solvers import MPIWorld, OneProcess, World

DEFAULT_METHODS = ("biases", "als", "rtrmc", "stochastic", "precon-parallel")
HEADINGS = {
    "test_rmse": "RMSE", "sem": "± s.e.m.", "train_mse": "train MSE", "disagreement": "distance",
    "updates": "updates", "train_seconds": "train s", "kilobytes_sent": "kB sent",
}  # fmt: skip
RANK = 5


@dataclass(frozen=True)
class Case:
    """A random matrix of the paper, m × n at full size, and what is compared on it (section 6.2)."""

    m: int
    n: int
    rhos: tuple[float, ...]
    methods: tuple[str, ...]
    about: str
    condition: float = 1.0


CASES = {
    1: Case(10_000, 100_000, (1e3, 1e10), ("stochastic",), "the weight ρ"),
    2: Case(10_000, 100_000, (1e3,), ("stochastic", "parallel"), "stochastic or parallel"),
    3: Case(5_000, 50_000, (1e3,), ("stochastic", "precon-stochastic"), "a matrix of condition 500", 500.0),
    4: Case(
        500, 12_000, (1e3,), ("stochastic", "d-lmafit", "euclidean"), "D-LMaFit and the Euclidean formulation"
    ),
}

# Unless given.
SCALE, LAM = 0.1, 0.005


def completion(
    run: Run,
    *,
    data: Annotated[options.Data, Ratings] = "picture",
    data_home: options.DataHome = None,
    case: Annotated[int, Option(help="A synthetic case of the paper, 1 to 4, instead of data; 5: ml1m.")] = 0,
    scale: Annotated[float, Option(help="Size of a synthetic case; 1: as in the paper.")] = SCALE,
    agents: Annotated[str, Option(help="Numbers of agents, or mpi: as many as mpiexec started.")] = "6",
    rank: Annotated[str, options.rank_option("10 (20 of the picture)")] = "",
    rho: Annotated[
        str, Option(help="Weight of the agreement: a number, auto, or numbers that --select chooses among.")
    ] = "auto",
    graph: Annotated[str, Option(help="path, ring, grid, star, complete or erdos-renyi.")] = "path",
    lam: Annotated[float, Option(help="Draws entries that are not known to 0; not with --case.")] = LAM,
    updates: Annotated[float, Option(help="How often each edge is expected to be taken.")] = 100.0,
    step_size: Annotated[float, Option(help="In units of one over an agent's curvature.")] = 1.0,
    decay: Annotated[float, Option(help="The last step size is the first over 1 + decay.")] = 1.0,
    clock: Annotated[str, Option(help="shared, or own: each agent counts its own updates.")] = "shared",
    iterations: Annotated[int, Option(help="Of batch solvers.")] = 15,
    hidden: Annotated[
        float, Option(help="Share of the entries that is held out; 0: the usual one; not with --case.")
    ] = 0.0,
    seeds: options.Seeds = 1,
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}; empty: the usual ones.")] = "",
    method: options.OwnMethods = None,
    select: options.Select = "none",
    folds: Annotated[
        int,
        Option(min=1, help="Folds of the cross-validation; 1: by what a synthetic case holds out itself."),
    ] = 5,
    n_jobs: options.Jobs = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Complete a matrix: least squares with all entries in one place, and gossip between agents that share none.

    In gossip every agent fits a subspace to its own columns and agrees with its neighbours on it; ratings never leave
    an agent.
    With --agents mpi each process that mpiexec starts is an agent: mpiexec -n 6 rmopt run completion --agents mpi.
    """
    world: World = MPIWorld() if agents == "mpi" else OneProcess()
    run = replace(run, out=world.first(run.out))
    # Several BLAS threads would stand in the way of other processes, and of the compiled passes.
    with world.guard(), threadpool_limits(1, user_api="blas"):
        integer("--case", case, 0, 5)
        options.check_options(locals(), seeds=1, iterations=1, folds=1 if case else 2)
        for option, value in (("--scale", scale), ("--updates", updates), ("--step-size", step_size)):
            number(option, value, above=0)
        number("--decay", decay, least=0)
        number("--lam", lam, least=0)
        number("--hidden", hidden, least=0, below=1)
        if case == 5:
            case, data = 0, "ml1m"
        usual = CASES[case].methods if case else DEFAULT_METHODS
        # Several processes gossip, and do nothing else.
        usual = tuple(name for name in usual if world.size == 1 or name in (*VARIANTS, "tree"))
        chosen = chosen_methods(
            METHODS, methods or ",".join(usual), method, "completion", ("predict", "train")
        )
        given = {"step_size": step_size, "decay": decay, "max_iter": iterations}
        chosen = {
            name: replace(one, estimator=one.made(**given)) if isinstance(one.estimator, Completion) else one
            for name, one in chosen.items()
        }
        if agents == "mpi" and world.size < 2:
            raise InvalidInputError(
                "--agents mpi needs two or more processes: mpiexec -n 6 rmopt run completion --agents mpi"
            )
        counts = [world.size] if agents == "mpi" else options.whole_numbers(agents, "--agents", 2)
        for count in counts:
            as_graph(graph, count)
        one_of("--clock", clock, ("shared", "own"))
        weight, *more = weights = [options.number_or_auto(part, "--rho") for part in rho.split(",")]
        if more and select == "none":
            raise InvalidInputError(f"--rho {rho} is several numbers; let --select first choose among them.")
        if more:
            chosen |= {
                name: replace(one, grid=[point | {"rho": rho} for rho in weights for point in one.grid])
                for name, one in chosen.items()
                if isinstance(one.estimator, Gossip)
            }
        plan = GossipPlan(
            weight, graph=graph, step_size=step_size, decay=decay, n_epochs=updates, clock=clock,
            init="independent",
        )  # fmt: skip
        if n_jobs != 1 and (case or world.size > 1):
            raise InvalidInputError("--case and --agents mpi train one model at a time; leave out --n-jobs.")
        if case and (rank or hidden or seeds > 1 or len(counts) > 1):
            raise InvalidInputError(
                f"--case {case} has one rank, one split and its own test entries; leave out --rank, --hidden and "
                "--seeds, and give one number of --agents."
            )
        if case and lam != LAM:
            raise InvalidInputError(
                f"--case {case} has no penalty of entries, as in the paper; leave out --lam."
            )
        if not case and scale != SCALE:
            raise InvalidInputError(
                "--scale is the size of a synthetic case; give --case 1 to 4, or leave it out."
            )
        usual_rank = "20" if data == "picture" else "10"
        options.whole_numbers(rank or usual_rank, "--rank")
        how: dict[str, Any] = {"select": select, "folds": folds, "resume": resume}
        if case:
            return _case(run, world, plan, chosen, case, scale, counts, rho != "auto", **how)
        bundle = options.loaded(run, data, data_home, Ratings)
        if bundle.values.min() == bundle.values.max():
            raise InvalidInputError(
                f"all entries of {bundle.source} are {bundle.values[0]:g}: there is nothing to predict; rmopt fit "
                "completion FILE --model implicit learns who has what."
            )
        ranks = options.ranks_within(run.say, rank, usual_rank, min(bundle.shape) - 1)
        if agents != "mpi" and counts[-1] > bundle.shape[1]:
            counts = sorted({min(count, bundle.shape[1]) for count in counts})
            run.say(f"--agents is {','.join(map(str, counts))}: there are no more columns to deal to them.")
        share = hidden or (0.6 if data == "picture" else 0.2)
        runs = CompletionRuns(
            run, world, plan, chosen, seeds=seeds, n_jobs=n_jobs, data=bundle.fingerprint(), lam=lam,
            keep_subspaces=data == "picture", hidden=share, **how,
        )  # fmt: skip
        return _table(runs, bundle, counts, ranks)


def _row(found: list[Cell]) -> dict[str, Any]:
    others = "train_mse", "disagreement", "updates", "kilobytes_sent"
    row = averaged(found, test_rmse="sem", **dict.fromkeys(others))
    return {key: row[key] for key in HEADINGS if key in row}


def _case(
    run: Run,
    world: World,
    plan: GossipPlan,
    chosen: dict[str, Method],
    number: int,
    scale: float,
    counts: list[int],
    fixed: bool,
    **how: Any,
) -> Outcome:
    """Train on a synthetic case, at its own weights or at a fixed one, and keep the traces."""
    case, (agents,) = CASES[number], counts
    if scale > 1.0:
        raise InvalidInputError(f"--scale {scale:g} must be above 0 and at most 1.")
    m, n = (max(20, round(size * scale)) for size in (case.m, case.n))
    rhos = (float(plan.rho),) if fixed else case.rhos
    run.say(
        f"case {number}: {case.about}; {m:,} × {n:,} of rank {RANK}, oversampling {OVERSAMPLING:g}, {agents} agents"
    )
    runs = CompletionRuns(run, world, plan, chosen, case=number, m=m, n=n, **how)
    shares = low_rank_shares(m, n, RANK, agents, world, condition=case.condition, seed=run.seed)
    found = runs.results([RANK], counts, rhos, lambda one: shares)
    labels = {
        key: runs.methods[key[0]].label + (f", ρ = {key[-1]:g}" if len(rhos) > 1 else "") for key in found
    }
    # A batch solver has no trace.
    traces = {key: cell["trace"] for key, (cell,) in found.items() if cell["trace"]}
    if world.rank == 0 and traces:
        shown = {labels[key]: trace for key, trace in traces.items()}
        run.draw("traces.png", draw_traces, shown, f"case {number}: {case.about}", size=(9.0, 4.0))
    runs.finish()
    return Outcome(
        data=f"case {number}, {m:,} × {n:,}",
        parameters=runs.settings
        | {"scale": scale, "rank": RANK, "agents": agents}
        | {"used": {labels[key]: cell["used"] for key, (cell,) in found.items()}},
        rows=[{"method": labels[key]} | _row(cells) for key, cells in found.items()],
        headings=HEADINGS,
        claims=case_claims(number, traces, labels),
    )


def _table(runs: CompletionRuns, bundle: Ratings, counts: list[int], ranks: list[int]) -> Outcome:
    """Train every method for every number of agents and every rank, with every seed."""
    run, world, hidden, lam = runs.run, runs.world, runs.settings["hidden"], runs.settings["lam"]
    seeds = len(runs.comparison.seeds)
    run.say(
        f"{bundle.name} ({bundle.source}): {bundle.shape[0]:,} × {bundle.shape[1]:,}, "
        f"{len(bundle.values):,} entries, {hidden:.0%} held out, {seeds} random split{'s' * (seeds > 1)}"
    )

    # Models of one seed share it.
    held_out = Kept(lambda seed: bundle.held_out(seed, hidden), 1)

    def shares_at(one: Settings) -> Shares:
        return shares_of(bundle, held_out(one["seed"]), one["agents"], lam, world, one["rank"])

    found = runs.results(ranks, counts, [runs.plan.rho], shares_at)
    labels = {key: runs.label(dict(zip(("method", "agents", "rank"), key, strict=False))) for key in found}
    # A batch solver has no trace.
    traces = {labels[key]: cells[0]["trace"] for key, cells in found.items() if cells[0]["trace"]}
    if world.rank == 0:
        if max(len(ranks), len(counts)) > 1:
            across = "rank" if len(ranks) > 1 else "number of agents"
            curves = _curves(runs.methods, found, ranks)
            run.draw("errors.png", draw_errors, curves, bundle.name, across, size=(6.4, 4.4))
        if traces:
            run.draw("traces.png", draw_traces, traces, bundle.name, size=(9.0, 4.0))
        # Of each method the last; those that were known have left theirs.
        written = {name: cells[0].get("subspace") for (name, *_), cells in found.items()}
        paths = {name: run.path(file) for name, file in written.items() if file}
        with reading(run.path("subspaces")):
            means = {name: np.load(path) for name, path in paths.items() if path.exists()}
        if means and world.size == 1:
            first: Settings = {"seed": run.seed, "agents": counts[0]}
            tables = {
                runs.methods[name].label: shares_at(first | {"rank": mean.shape[1]}).completed(mean)
                for name, mean in means.items()
            }
            run.draw("picture.png", draw_completed, bundle, held_out(run.seed), tables, size=(9.0, 6.4))
    runs.finish()
    return Outcome(
        data=bundle.name,
        parameters=runs.settings
        | {"seeds": seeds, "select": runs.select, "folds": runs.folds, "agents": counts, "ranks": ranks}
        | {"used": {labels[key]: [cell["used"] for cell in cells] for key, cells in found.items()}},
        rows=[
            {
                "method": runs.methods[name].label,
                "agents": n if runs.methods[name].estimator.decentral else None,
                "rank": rank or None,
            }
            | _row(cells)
            for (name, n, rank, _), cells in found.items()
        ],
        headings=HEADINGS,
        claims=table_claims(found, runs.methods) if world.size == 1 else [],
    )


def _curves(
    methods: Mapping[str, Method], found: dict[Any, list[Cell]], ranks: list[int]
) -> dict[str, list[tuple[float, float, float | None]]]:
    """Return for each method its errors by rank, or by number of agents where there is one rank."""
    counts = sorted({n for _, n, _, _ in found})
    curves: dict[str, list[tuple[float, float, float | None]]] = {}
    for (name, n, rank, _), cells in found.items():
        method = methods[name]
        decentral = method.estimator.decentral
        label = method.label + (f", N = {n}" if len(ranks) > 1 and decentral else "")
        point = mean_and_sem(cell["test_rmse"] for cell in cells)
        # What has no agents, or no rank, is a level.
        across_ranks = [rank] if rank else ranks
        places = across_ranks if len(ranks) > 1 else [n] if decentral else counts
        curves.setdefault(label, []).extend((place, *point) for place in places)
    return curves
