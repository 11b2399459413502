"""The experiment ``rmopt run completion``: matrix completion between agents (Mishra et al. 2019, section 6.2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from threadpoolctl import threadpool_limits

from problems.cells import chosen_from, number_or_auto, whole_numbers
from problems.datasets import load
from problems.ratings import Ratings
from problems.subspace.cases import CASES
from problems.subspace.methods import METHODS
from problems.subspace.runs import CompletionRuns
from problems.subspace.training import VARIANTS, GossipPlan
from rmopt.core import InvalidInputError, as_graph
from rmopt.core.arguments import integer, number, one_of
from rmopt.engines import MPIWorld, OneProcess, World
from rmopt.experiments import Outcome, Run

Option = typer.Option

DEFAULT_METHODS = ("stochastic", "precon-parallel", "rtrmc")


def completion(
    run: Run,
    *,
    data: Annotated[str, Option(help="Known entries: picture, ml100k or ml1m.")] = "picture",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    case: Annotated[int, Option(help="A synthetic case of the paper, 1 to 4, instead of data; 5: ml1m.")] = 0,
    scale: Annotated[float, Option(help="Size of a synthetic case; 1: as in the paper.")] = 0.1,
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}; empty: the usual ones.")] = "",
    agents: Annotated[str, Option(help="Numbers of agents, or mpi: as many as mpiexec started.")] = "6",
    ranks: Annotated[str, Option(help="Ranks of the subspace; not with --case.")] = "",
    rho: Annotated[str, Option(help="Weight of the agreement: a number, or auto.")] = "auto",
    graph: Annotated[str, Option(help="path, ring, grid, star, complete or erdos-renyi.")] = "path",
    lam: Annotated[float, Option(help="Draws entries that are not known to 0; cases: 0.")] = 0.005,
    updates: Annotated[float, Option(help="How often each edge is expected to be taken.")] = 100.0,
    step_size: Annotated[float, Option(help="In units of one over an agent's curvature.")] = 1.0,
    decay: Annotated[float, Option(help="The last step size is the first over 1 + decay.")] = 1.0,
    clock: Annotated[str, Option(help="shared, or own: each agent counts its own updates.")] = "shared",
    iterations: Annotated[int, Option(help="Of batch solvers.")] = 15,
    hidden: Annotated[
        float, Option(help="Share of the entries that is held out; 0: the usual one; not with --case.")
    ] = 0.0,
    splits: Annotated[int, Option(help="Random splits; not with --case.")] = 1,
    select: Annotated[
        bool, Option("--select", help="Step sizes by cross-validation on the first split.")
    ] = False,
    folds: Annotated[int, Option(help="Folds of the cross-validation.")] = 5,
    resume: Annotated[bool, Option("--resume", help="Go on from the results in the --out folder.")] = False,
) -> Outcome:
    """Complete a matrix whose columns belong to different agents: gossip, and batch solvers beside it.

    Every agent fits a subspace to its own columns and agrees with its neighbours on it; ratings never leave an agent.
    With --agents mpi each process that mpiexec starts is an agent: mpiexec -n 6 rmopt run completion --agents mpi.
    """
    world: World = MPIWorld() if agents == "mpi" else OneProcess()
    folder = world.first(run.out)
    run = run if world.rank == 0 else replace(run, out=folder)
    # Several BLAS threads would stand in the way of other processes, and of the compiled passes.
    with world.guard(), threadpool_limits(1, user_api="blas"):
        integer("--case", case, 0, 5)
        for option, count, least in (
            ("--splits", splits, 1), ("--iterations", iterations, 1), ("--folds", folds, 2),
        ):  # fmt: skip
            integer(option, count, least)
        for option, value in (("--scale", scale), ("--updates", updates), ("--step-size", step_size)):
            number(option, value, above=0)
        number("--decay", decay, least=0)
        number("--lam", lam, least=0)
        number("--hidden", hidden, least=0, below=1)
        if case == 5:
            case, data = 0, "ml1m"
        usual = CASES[case].methods if case else DEFAULT_METHODS
        # Several processes gossip, and do nothing else.
        usual = tuple(name for name in usual if world.size == 1 or name in VARIANTS)
        chosen = chosen_from(METHODS, methods or ",".join(usual), "--methods")
        if agents == "mpi" and world.size < 2:
            raise InvalidInputError(
                "--agents mpi needs two or more processes: mpiexec -n 6 rmopt run completion --agents mpi"
            )
        counts = [world.size] if agents == "mpi" else whole_numbers(agents, "--agents", 2)
        for count in counts:
            as_graph(graph, count)
        one_of("--clock", clock, ("shared", "own"))
        plan = GossipPlan(
            number_or_auto(rho, "--rho"), graph=graph, step_size=step_size, decay=decay, n_updates=updates,
            clock=clock, init="independent",
        )  # fmt: skip
        if case and (ranks or hidden or splits > 1 or len(counts) > 1):
            raise InvalidInputError(
                f"--case {case} has one rank, one split and its own test entries; leave out --ranks, --hidden and "
                "--splits, and give one number of --agents."
            )
        wanted = whole_numbers(ranks or ("20" if data == "picture" else "10"), "--ranks")
        maker = CompletionRuns(run, world, plan, iterations, resume)
        if case:
            outcome = maker.case(case, scale, list(chosen), counts[0], rho != "auto", folds if select else 0)
            maker.finish()
            return outcome
        bundle = load(data, data_home, Ratings)
        share = hidden or (0.6 if data == "picture" else 0.2)
        outcome = maker.table(
            bundle, list(chosen), counts, wanted, lam, share, splits, folds if select else 0
        )
        maker.finish()
        return outcome
