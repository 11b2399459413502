"""The models that the completion experiment trains, and what it keeps of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from problems.cells import Cells
from problems.ratings import Ratings
from problems.subspace.cases import CASES, OVERSAMPLING, RANK
from problems.subspace.claims import case_claims, table_claims
from problems.subspace.figure import draw_completed, draw_errors, draw_traces
from problems.subspace.methods import METHODS, Job, Trained
from problems.subspace.painting import frames, painted
from problems.subspace.selection import selected_plan
from problems.subspace.shares import Shares, low_rank_shares, shares_of
from problems.subspace.table import HEADINGS, error_curves, shown, summary
from problems.subspace.training import GossipPlan
from rmopt.core import Parts, as_graph
from rmopt.engines import World
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

# Points of a trace.
MEASURED = 16


class CompletionRuns:
    """The models of one run of the experiment: cells of a table, or the traces of a case.

    Parameters
    ----------
    run : Run
    world : World
    plan : GossipPlan
    iterations : int
        Of batch solvers.
    resume : bool
        Go on from what an interrupted run left in the output folder.
    """

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
        rows, traces, used = [], {}, {}
        for name in methods:
            for rho in rhos:
                label = METHODS[name].label + (f", ρ = {rho:g}" if len(rhos) > 1 else "")
                about = {"case": number, "m": m, "n": n, "method": name, "rho": rho, "agents": n_agents}
                about["seed"] = run.seed
                plan = replace(self.plan, rho=rho)
                if folds and "gossip" in METHODS[name].label.lower():
                    plan = self.selected(about, name, shares, RANK, folds, plan)
                cell = self.cell(about, name, shares, RANK, plan, traced=True)
                rows.append({"method": label} | shown(cell))
                used[label] = cell["used"]
                # A batch solver has no trace.
                if cell["trace"]:
                    traces[label] = cell["trace"]
        if self.world.rank == 0 and traces:
            run.draw("traces.png", draw_traces, traces, f"case {number}: {case.about}", size=(9.0, 4.0))
        return Outcome(
            data=f"case {number}, {m:,} × {n:,}",
            parameters=self.settings()
            | {"case": number, "scale": scale, "rank": RANK, "agents": n_agents}
            | {"used": used},
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
            run.draw("errors.png", draw_errors, error_curves(found), bundle.name, across, size=(6.4, 4.4))
            if traces:
                run.draw("traces.png", draw_traces, traces, bundle.name, size=(9.0, 4.0))
            if bundle.name == "picture" and last and self.world.size == 1:
                pictures = {
                    name: painted(trained, bundle, masks[0], lam, counts[0]) for name, trained in last.items()
                }
                run.draw("picture.png", draw_completed, *frames(bundle, masks[0]), pictures, size=(9.0, 6.4))
        rows = [
            {"method": METHODS[name].label, "agents": n if METHODS[name].decentral else None, "rank": rank}
            | summary(cells)
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
                "used": {
                    f"{METHODS[name].label}, N = {n}, r = {rank}": [cell["used"] for cell in cells]
                    for (name, n, rank), cells in found.items()
                },
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

        settings = about | self.settings() | {"rho": plan.rho, "folds": folds, "selecting": True}

        def compute() -> dict[str, Any]:
            return selected_plan(shares, plan, folds, self.run.seed, score)

        best = compute() if self.cells is None else self.cells.get(settings, compute)
        self.run.say(
            f"{METHODS[name].label}, {shares.tasks.n_terms} agents, rank {rank}: step size {best['step_size']:g}, "
            f"decay {best['decay']:g}"
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
                "used": _used(plan, trained),
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


def _used(plan: GossipPlan, trained: Trained) -> dict[str, float] | None:
    """Return what "auto" and cross-validation came to; None for methods without a ρ."""
    if "rho" not in trained.about:
        return None
    return {"rho": trained.about["rho"], "step_size": plan.step_size, "decay": plan.decay}


def _measured(steps: float) -> list[int]:
    """Return the steps at which a trace is measured: dense at the start."""
    return sorted({round(step) for step in np.geomspace(max(1.0, steps / 200), max(1.0, steps), MEASURED)})
