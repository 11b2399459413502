"""The experiment ``rmopt run completion``: matrix completion between agents (Mishra et al. 2019, section 6.2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from problems.cells import Cells, chosen_from, mean_and_sem, whole_numbers
from problems.datasets import load
from problems.ratings import Ratings
from problems.subspace.cases import CASES, OVERSAMPLING, RANK
from problems.subspace.claims import case_claims, table_claims
from problems.subspace.figure import draw_completed, draw_errors, draw_traces
from problems.subspace.methods import METHODS, Job, Trained
from problems.subspace.selection import selected_plan
from problems.subspace.shares import Shares, low_rank_shares, shares_of
from problems.subspace.training import GossipPlan
from rmopt.core import InvalidInputError, Parts, as_graph
from rmopt.engines import MPIWorld, OneProcess, World
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

Option = typer.Option

DEFAULT_METHODS = "stochastic,precon-parallel,rtrmc"
MEASURED = 16


def completion(
    run: Run,
    *,
    data: Annotated[str, Option(help="Known entries: picture, ml100k or ml1m.")] = "picture",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    case: Annotated[int, Option(help="A synthetic case of the paper, 1 to 4, instead of data; 5: ml1m.")] = 0,
    scale: Annotated[float, Option(help="Size of a synthetic case; 1: as in the paper.")] = 0.1,
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}; empty: the usual ones.")] = "",
    agents: Annotated[str, Option(help="Numbers of agents, or mpi: as many as mpiexec started.")] = "6",
    ranks: Annotated[str, Option(help="Ranks of the subspace.")] = "",
    rho: Annotated[str, Option(help="Weight of the agreement: a number, or auto.")] = "auto",
    graph: Annotated[str, Option(help="path, ring, grid, star, complete or erdos-renyi.")] = "path",
    lam: Annotated[float, Option(help="Draws entries that are not known to 0.")] = 0.005,
    updates: Annotated[float, Option(help="How often each edge is expected to be taken.")] = 100.0,
    step_size: Annotated[float, Option(help="In units of one over an agent's curvature.")] = 1.0,
    decay: Annotated[float, Option(help="The last step size is the first over 1 + decay.")] = 1.0,
    clock: Annotated[str, Option(help="shared, or own: each agent counts its own updates.")] = "shared",
    iterations: Annotated[int, Option(help="Of batch solvers.")] = 15,
    hidden: Annotated[float, Option(help="Share of the entries that is held out; 0: the usual one.")] = 0.0,
    splits: Annotated[int, Option(help="Random splits.")] = 1,
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
        if case == 5:
            case, data = 0, "ml1m"
        if case and case not in CASES:
            raise InvalidInputError(f"--case {case} is unknown; choose one of 1, 2, 3, 4, 5.")
        usual = ",".join(CASES[case].methods) if case else DEFAULT_METHODS
        if world.size > 1 and not case:
            usual = "stochastic,precon-parallel"
        chosen = chosen_from(METHODS, methods or usual, "--methods")
        counts = [max(2, world.size)] if agents == "mpi" else whole_numbers(agents, "--agents", 2)
        plan = GossipPlan(
            _weight(rho), graph=graph, step_size=step_size, decay=decay, n_updates=updates, clock=clock,
            init="independent",
        )  # fmt: skip
        if splits < 1 or folds < 2 or iterations < 1:
            raise InvalidInputError(
                f"--splits {splits} and --iterations {iterations} must be at least 1, --folds {folds} at least 2."
            )
        maker = _Experiment(run, world, plan, iterations, resume)
        if case:
            outcome = maker.case(case, scale, list(chosen), counts[0], rho != "auto", folds if select else 0)
            maker.finish()
            return outcome
        bundle = load(data, data_home, Ratings)
        share = hidden or (0.6 if data == "picture" else 0.2)
        wanted = whole_numbers(ranks or ("20" if data == "picture" else "10"), "--ranks")
        outcome = maker.table(
            bundle, list(chosen), counts, wanted, lam, share, splits, folds if select else 0
        )
        maker.finish()
        return outcome


def _weight(rho: str) -> float | str:
    try:
        return "auto" if rho == "auto" else float(rho)
    except ValueError:
        raise InvalidInputError(f"--rho {rho!r} must be a number or auto.") from None


class _Experiment:
    """One run of the experiment: cells of a table, or the traces of a case."""

    def __init__(self, run: Run, world: World, plan: GossipPlan, iterations: int, resume: bool) -> None:
        self.run, self.world, self.plan, self.iterations = run, world, plan, iterations
        # Several processes go on from their checkpoints alone, of which all have the same.
        self.cells = Cells(run.path("cells.jsonl"), resume) if world.size == 1 else None
        if not resume:
            self._remove_checkpoints()
            # Nobody saves before all have tidied up.
            world.least(0)

    def finish(self) -> None:
        """Remove what only an interrupted run needs, when all processes have come this far."""
        self.world.least(0)
        self._remove_checkpoints()

    def _remove_checkpoints(self) -> None:
        for old in self.run.out.glob("checkpoint-*.npz"):
            old.unlink(missing_ok=True)

    def case(
        self, number: int, scale: float, methods: list[str], n_agents: int, fixed: bool, folds: int
    ) -> Outcome:
        """Train on a synthetic case and keep the traces."""
        case, run = CASES[number], self.run
        m, n = case.size(scale)
        rhos = (float(self.plan.rho),) if fixed else case.rhos
        run.say(
            f"case {number}: {case.about}; {m:,} × {n:,} of rank {RANK}, oversampling {OVERSAMPLING:g}, "
            f"{n_agents} agents"
        )
        shares = low_rank_shares(
            m,
            n,
            RANK,
            n_agents,
            self.world,
            oversampling=OVERSAMPLING,
            condition=case.condition,
            seed=run.seed,
        )
        rows, traces = [], {}
        for name in methods:
            for rho in rhos:
                label = METHODS[name].label + (f", ρ = {rho:g}" if len(rhos) > 1 else "")
                about = {"case": number, "m": m, "n": n, "method": name, "rho": rho, "agents": n_agents}
                plan = replace(self.plan, rho=rho)
                if folds and "gossip" in METHODS[name].label.lower():
                    plan = self.selected(about, name, shares, RANK, folds, plan)
                cell = self.cell(about, name, shares, RANK, plan, traced=True)
                rows.append({"method": label} | _shown(cell))
                traces[label] = cell["trace"]
        if self.world.rank == 0:
            run.draw("traces.png", draw_traces, traces, f"case {number}: {case.about}", size=(9.0, 4.0))
        return Outcome(
            data=f"case {number}, {m:,} × {n:,}",
            parameters=self.settings() | {"case": number, "scale": scale, "rank": RANK, "agents": n_agents},
            rows=rows,
            headings=HEADINGS,
            claims=case_claims(number, traces),
        )

    def table(
        self,
        bundle: Ratings,
        methods: list[str],
        counts: list[int],
        ranks: list[int],
        lam: float,
        share: float,
        splits: int,
        folds: int,
    ) -> Outcome:
        """Train every method for every number of agents and every rank, on every split."""
        run = self.run
        found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
        masks = [bundle.held_out(seed, share) for seed in range(run.seed, run.seed + splits)]
        if self.world.rank == 0:
            run.prepare_to_draw()
        run.say(
            f"{bundle.name} ({bundle.source}): {bundle.shape[0]:,} × {bundle.shape[1]:,}, "
            f"{len(bundle.values):,} entries, {share:.0%} held out, {splits} split{'s' * (splits > 1)}"
        )
        models = [
            (name, n, rank)
            for rank in ranks
            for name in methods
            for n in (counts if METHODS[name].decentral else counts[:1])
        ]
        last: dict[str, Trained] = {}
        with run.ticks("models", len(models) * splits) as tick:
            for name, n, rank in models:
                plan, about = self.plan, {"data": bundle.name, "lam": lam, "hidden": share, "seed": run.seed}
                about |= {"method": name, "agents": n, "rank": rank}
                for split, mask in enumerate(masks):
                    shares = shares_of(bundle, mask, n, lam, self.world, rank)
                    if split == 0 and folds and "gossip" in METHODS[name].label.lower():
                        plan = self.selected(about, name, shares, rank, folds, plan)
                    traced = split == 0
                    cell = self.cell(about | {"split": split}, name, shares, rank, plan, traced, last)
                    found.setdefault((name, n, rank), []).append(cell)
                    tick()
        traces = {
            f"{METHODS[name].label}, N = {n}, r = {rank}": cells[0]["trace"]
            for (name, n, rank), cells in found.items()
            if cells[0]["trace"] and METHODS[name].decentral
        }
        if self.world.rank == 0:
            across = "rank" if len(ranks) > 1 else "number of agents"
            run.draw("errors.png", draw_errors, _points(found), bundle.name, across, size=(6.4, 4.4))
            if traces:
                run.draw("traces.png", draw_traces, traces, bundle.name, size=(9.0, 4.0))
            if bundle.name == "picture" and last and self.world.size == 1:
                shown = {
                    name: _painted(trained, bundle, masks[0], lam, counts[0])
                    for name, trained in last.items()
                }
                run.draw("picture.png", draw_completed, *_frames(bundle, masks[0]), shown, size=(9.0, 6.4))
        rows = [
            {"method": METHODS[name].label, "agents": n if METHODS[name].decentral else None, "rank": rank}
            | _summary(cells)
            for (name, n, rank), cells in found.items()
        ]
        return Outcome(
            data=bundle.name,
            parameters=self.settings()
            | {
                "lam": lam,
                "hidden": share,
                "splits": splits,
                "folds": folds,
                "agents": counts,
                "ranks": ranks,
            },
            rows=rows,
            headings=HEADINGS,
            claims=table_claims(found) if self.world.size == 1 else [],
        )

    def selected(
        self, about: dict[str, Any], name: str, shares: Shares, rank: int, folds: int, plan: GossipPlan
    ) -> GossipPlan:
        """Return the plan with the step size and decay that cross-validation likes best, and say them."""

        def score(part: Shares, plan: GossipPlan) -> float:
            job = Job(part, rank, plan, self.run.seed, Recorder())
            return part.test_rmse(METHODS[name].train(job).mean)

        settings = about | self.settings() | {"folds": folds, "selecting": True}

        def compute() -> dict[str, Any]:
            return selected_plan(shares, plan, folds, self.run.seed, score)

        best = compute() if self.cells is None else self.cells.get(settings, compute)
        self.run.say(
            f"{METHODS[name].label}, rank {rank}: step size {best['step_size']:g}, decay {best['decay']:g}"
        )
        return replace(plan, **best)

    def cell(
        self,
        about: dict[str, Any],
        name: str,
        shares: Shares,
        rank: int,
        plan: GossipPlan,
        traced: bool,
        keep: dict[str, Trained] | None = None,
    ) -> dict[str, Any]:
        """Return what is measured of one model; trained now unless it is known."""
        manifold, n = Grassmann(shares.tasks.n_rows, rank), shares.tasks.n_terms
        graph = as_graph(plan.graph, n)
        settings = (
            about | self.settings() | {"step_size": plan.step_size, "decay": plan.decay, "rho": plan.rho}
        )

        def compute() -> dict[str, Any]:
            def gap(points: Parts) -> float:
                bases = [np.linalg.qr(point)[0] for point in points]
                return float(np.mean([manifold.dist(bases[i], bases[j]) for i, j in graph.edges]))

            metrics = {"train_mse": shares.train_mse, "gap": gap} if traced else {}
            steps = _measured(plan.n_updates * len(graph.edges))
            recorder = Recorder(
                metrics, at=steps, progress=self.run.progress, description=METHODS[name].label
            )
            stem = "-".join(
                str(value) for key, value in about.items() if key not in ("data", "hidden", "seed")
            )
            job = Job(
                shares,
                rank,
                plan,
                self.run.seed,
                recorder,
                self.run.path(f"checkpoint-{stem}.npz"),
                self.iterations,
            )
            trained = METHODS[name].train(job)
            if keep is not None and about.get("split") == 0:
                keep[name] = trained
            counted = trained.about.get("updates")
            per_agent = counted / n if counted else None
            return {
                "test_rmse": shares.test_rmse(trained.mean),
                "train_mse": shares.train_mse(trained.points),
                "disagreement": gap(trained.points) if METHODS[name].decentral else None,
                "updates": per_agent,
                "seconds": trained.seconds,
                "kilobytes_sent": trained.about.get("bytes", 0) / 1e3 or None,
                "trace": [[row["updates"] / n, row["train_mse"], row["gap"]] for row in recorder.rows],
            }

        if self.cells is None:
            return compute()
        found = self.cells.get(settings, compute)
        self._remove_checkpoints()
        return found

    def settings(self) -> dict[str, Any]:
        """Return what all models have in common."""
        plan = self.plan
        return {
            "graph": plan.graph, "updates": plan.n_updates, "rho": plan.rho, "clock": plan.clock,
            "step_size": plan.step_size, "decay": plan.decay, "iterations": self.iterations,
            "processes": self.world.size,
        }  # fmt: skip


HEADINGS = {
    "test_rmse": "RMSE", "sem": "± s.e.m.", "train_mse": "train MSE", "disagreement": "distance",
    "updates": "updates", "train_seconds": "train s", "kilobytes_sent": "kB sent",
}  # fmt: skip


def _measured(steps: float) -> list[int]:
    """Return the steps at which a trace is measured: dense at the start."""
    return sorted({round(step) for step in np.geomspace(max(1.0, steps / 200), max(1.0, steps), MEASURED)})


def _shown(cell: dict[str, Any]) -> dict[str, Any]:
    return {
        "test_rmse": cell["test_rmse"], "train_mse": cell["train_mse"], "disagreement": cell["disagreement"],
        "updates": cell["updates"], "train_seconds": cell["seconds"], "kilobytes_sent": cell["kilobytes_sent"],
    }  # fmt: skip


def _summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    mean, sem = mean_and_sem(cell["test_rmse"] for cell in cells)
    seconds = float(np.median([cell["seconds"] for cell in cells]))
    rest = _shown(cells[0]) | {"test_rmse": mean, "train_seconds": seconds}
    return {"test_rmse": mean, "sem": sem} | rest


def _points(found: dict[Any, list[dict[str, Any]]]) -> dict[str, list[tuple[float, float, float | None]]]:
    """Return for each method its errors by rank, or by number of agents where there is one rank."""
    ranks = {rank for _, _, rank in found}
    curves: dict[str, list[tuple[float, float, float | None]]] = {}
    for (name, n, rank), cells in found.items():
        label = METHODS[name].label
        if len(ranks) > 1 and METHODS[name].decentral:
            label += f", N = {n}"
        mean, sem = mean_and_sem(cell["test_rmse"] for cell in cells)
        curves.setdefault(label, []).append((rank if len(ranks) > 1 else n, mean, sem))
    return curves


def _frames(bundle: Ratings, hidden: Any) -> tuple[Any, Any]:
    """Return the picture, and the picture with its hidden pixels in white."""
    table = np.zeros(bundle.shape)
    table[bundle.rows, bundle.columns] = bundle.values
    known = np.ones(bundle.shape)
    known[bundle.rows[~hidden], bundle.columns[~hidden]] = table[
        bundle.rows[~hidden], bundle.columns[~hidden]
    ]
    return _coloured(table), _coloured(known)


def _painted(trained: Trained, bundle: Ratings, hidden: Any, lam: float, n_agents: int) -> Any:
    """Return the picture with its hidden pixels completed."""
    shares = shares_of(bundle, hidden, n_agents, lam, OneProcess(), trained.mean.shape[1])
    W = np.concatenate([shares.tasks.weights(trained.mean, agent) for agent in shares.tasks.here])
    table = np.clip(trained.mean @ W.T + shares.mean, *bundle.limits)
    known = ~hidden
    table[bundle.rows[known], bundle.columns[known]] = bundle.values[known]
    return _coloured(table)


def _coloured(table: Any) -> Any:
    return np.stack(np.split(table, 3, axis=1), axis=-1)
