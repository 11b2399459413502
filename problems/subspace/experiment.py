"""The experiment ``rmopt run completion``: matrix completion between agents (Mishra et al. 2019, section 6.2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.comparison import Difference, Experiment, Kept, Row, above, searched
from problems.data import Ratings
from problems.methods import Cell, Method, Settings
from problems.palette import Panel, draw_panels
from problems.subspace.als import BiasedALS, ScaledSGDCompletion
from problems.subspace.baselines import Biases, CMFRec, DLMaFit, MyFM
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.cost import MatrixCompletion
from problems.subspace.estimators import RCGMC, RTRMC
from problems.subspace.shares import Shares, low_rank_shares, shares_of
from problems.subspace.training import VARIANTS, GossipPlan, agree, gossip
from rmopt.core import DivergedError, InvalidInputError, Parts, Problem
from rmopt.core.ambient import Array
from rmopt.core.streams import Stream, generator
from rmopt.costs import GossipCost, as_graph
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import Grassmann, Power, frechet_mean
from rmopt.solvers import OneProcess, Recorder, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Points of a trace.
MEASURED = 16
# First step sizes with their decay: the larger, the faster they must fall.
GRID = [
    {"step_size": step_size, "decay": decay}
    for step_size, decay in (
        (0.5, 0.2), (1.0, 0.2), (1.5, 0.2), (1.0, 2.0), (2.0, 2.0), (4.0, 5.0), (10.0, 30.0), (30.0, 100.0),
        (100.0, 300.0),
    )
]  # fmt: skip
# Of the synthetic cases. From the last weight on agents have no time to learn.
RANK, NOISE_LEVEL, NEAR_NOISE, ONLY_AGREEMENT = 5, 1e-12, 100.0, 1e9
# Errors are level that differ by this share.
LEVEL = 0.03


@dataclass(frozen=True)
class Job:
    """A matrix that agents share and are to complete, and how; the state is saved in a file, if any."""

    tasks: MatrixCompletion
    plan: GossipPlan
    rank: int
    seed: int
    recorder: Recorder = field(default_factory=Recorder)
    saved: Path | None = None


class Way(BaseEstimator):
    """A way to find a subspace that agents share, each of which keeps its data to itself if it is `decentral`."""

    decentral = True

    @abstractmethod
    def train(self, job: Job) -> Cell:
        """Return the `seconds`, the `mean` subspace, which predicts, the agents' `points`, and what else is known."""


@dataclass(eq=False, repr=False)
class Gossip(Way):
    """Gossip of neighbours on Grassmann, or `flat`, with matrices of no constraint; parameters as of `GossipPlan`."""

    variant: str = "stochastic"
    flat: bool = False
    step_size: float = 1.0
    decay: float = 1.0

    def train(self, job: Job) -> Cell:
        plan = replace(job.plan, variant=self.variant, step_size=self.step_size, decay=self.decay)
        how: Settings = {"recorder": job.recorder, "checkpoint": job.saved, "flat": self.flat}
        end = gossip(job.tasks, job.rank, plan, job.seed, **how)
        return ended(end.result, end.mean, end.points) | {"rho": end.rho}


class AlongTree(Way):
    """L-BFGS whose sums travel along a tree: what all data together would give. It has no step size."""

    def train(self, job: Job) -> Cell:
        end = agree(job.tasks, job.rank, job.seed, graph=job.plan.graph, checkpoint=job.saved)
        return ended(end.result, end.mean, end.points) | {"steps": end.result.steps * job.tasks.n_terms}


class DecentralLMaFit(Way):
    """D-LMaFit; it has no step size."""

    def train(self, job: Job) -> Cell:
        manifold, n = Grassmann(job.tasks.n_rows, job.rank), job.tasks.n_terms
        cost = GossipCost(job.tasks, as_graph(job.plan.graph, n), 0.0, manifold)
        problem = Problem(power := Power(manifold, n), cost)
        # An agent in the middle of a path moves twice as often as edges are taken.
        solver, start = DLMaFit(round(2 * job.plan.n_epochs)), generator(job.seed, Stream.START)
        result = solver.run(problem, power.random_point(start), random_state=job.seed, recorder=job.recorder)
        return ended(result, frechet_mean(manifold, list(result.point), tol=1e-9), result.point)


@dataclass(eq=False, repr=False)
class Batch(Way):
    """A batch solver, which minimises what gossip does, with all entries in one place."""

    estimator: Any
    decentral = False

    def train(self, job: Job) -> Cell:
        # Compiled passes are loaded before the clock starts.
        U = Grassmann(job.tasks.n_rows, job.rank).random_point(np.random.default_rng(0))
        job.tasks.hessian(U, U)
        begun = perf_counter()
        U = clone(self.estimator).set_params(rank=job.rank).learn(job.tasks, job.seed)
        return {"seconds": perf_counter() - begun, "mean": U, "points": Parts([U] * job.tasks.n_terms)}


def ended(result: Result, mean: Array, points: Parts) -> Cell:
    """Return what a solver of agents' subspaces found."""
    return {"seconds": result.seconds, "steps": result.updates, "mean": mean, "points": points}


METHODS: dict[str, Method] = {
    **{name: Method(f"{name.replace('-', ' ').title()} Gossip", Gossip(name), GRID) for name in VARIANTS},
    "euclidean": Method("Euclidean Gossip", Gossip(flat=True), GRID),
    "tree": Method("L-BFGS along a tree", AlongTree()),
    "d-lmafit": Method("D-LMaFit", DecentralLMaFit()),
    "rtrmc": Method("RTRMC (batch)", Batch(RTRMC())),
    "rcg": Method("Riemannian CG (batch)", Batch(RCGMC())),
    **{
        name: Method(label, estimator, [{"lam": lam} for lam in lams])
        for name, label, estimator, lams in (
            ("biases", "biases alone", Biases(), (1.0, 3.0, 10.0)),
            ("als", "ALS with biases", BiasedALS(handle_unknown="mean"), (0.7, 1.0, 1.4)),
            ("scaled-sgd", "Scaled SGD", ScaledSGDCompletion(handle_unknown="mean"), (0.03, 0.04, 0.06)),
            ("bayesian", "Bayesian (Gibbs)", BayesianCompletion(handle_unknown="mean"), ()),
            ("cmfrec", "cmfrec", CMFRec(), (5.0, 10.0, 20.0)),
            ("myfm", "myfm", MyFM(), ()),
        )
    },
}
DEFAULT_METHODS = ("biases", "als", "rtrmc", "stochastic", "precon-parallel")


@dataclass(frozen=True)
class Case:
    """A random matrix of the paper, m × n at full size, on which the first method is said to be `ahead`, or not."""

    m: int
    n: int
    methods: tuple[str, ...]
    rhos: tuple[float, ...] = (1e3,)
    condition: float = 1.0
    ahead: bool = False


CASES = {
    1: Case(10_000, 100_000, ("stochastic",), rhos=(1e3, 1e10)),
    2: Case(10_000, 100_000, ("stochastic", "parallel")),
    3: Case(5_000, 50_000, ("precon-stochastic", "stochastic"), condition=500.0, ahead=True),
    4: Case(500, 12_000, ("stochastic", "d-lmafit", "euclidean"), ahead=True),
}


@dataclass(kw_only=True)
class Completion(Experiment):
    """Complete a matrix: least squares with all entries in one place, and gossip between agents that share none.

    In gossip every agent fits a subspace to its own columns and agrees with its neighbours on it; ratings never leave
    an agent. The default run, on a photograph, takes half a minute on two cores.
    """

    data: Annotated[options.Data, Ratings] = "picture"
    case: Annotated[
        int, Option(min=0, max=4, help="A synthetic case of the paper, 1 to 4, in place of --data.")
    ] = 0
    scale: Annotated[float, Option(min=1e-3, max=1, help="Size of a synthetic case; 1: as in the paper.")] = (
        0.1
    )
    agents: Annotated[str, Option(help="Numbers of agents, with commas between.")] = "6"
    rank: Annotated[str, options.rank_option("10; 20 of the picture, 5 of a case")] = ""
    rho: Annotated[str, Option(help="Weight of the agreement: a number, or auto.")] = "auto"
    graph: Annotated[str, Option(help="path, ring, grid, star, complete or erdos-renyi.")] = "path"
    lam: Annotated[
        float, Option(min=0, help="Draws entries that are not known to 0; not those of a case.")
    ] = 0.005
    updates: Annotated[float, Option(min=1e-3, help="How often each edge is expected to be taken.")] = 100.0
    seeds: options.Seeds = 1
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}; empty: the usual ones.")] = ""
    select: options.Select = "none"

    name: ClassVar = "completion"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    common: ClassVar = ("graph", "lam", "updates")
    headings: ClassVar = {
        "test_rmse": "RMSE", "sem": "± s.e.m.", "train_mse": "train MSE", "disagreement": "distance",
        "train_seconds": "train s",
    }  # fmt: skip

    def __call__(self, run: Run) -> Outcome:
        usual = CASES[self.case].methods if self.case else DEFAULT_METHODS
        self.methods = self.methods or ",".join(usual)
        # Several BLAS threads would stand in the way of the compiled passes.
        with threadpool_limits(1, user_api="blas"):
            return super().__call__(run)

    def check(self) -> None:
        self.columns = {"test_rmse": "sem", "train_mse": None, "disagreement": None, "updates": None}
        self.counts = options.whole_numbers(self.agents, "--agents", 2)
        as_graph(self.graph, self.counts[0])
        self.weight = options.number_or_auto(self.rho, "--rho")

    def read(self, kind: Any) -> Any:
        if not self.case:
            return super().read(kind)
        case = CASES[self.case]
        shape = [max(20, round(size * self.scale)) for size in (case.m, case.n)]
        about = {"name": f"case {self.case}", "source": f"a random matrix of rank {RANK}", "shape": shape}
        return SimpleNamespace(**about, fingerprint=lambda: str(about))

    def settings(self) -> list[Settings]:
        bundle, self.rhos = self.bundle, [self.weight]
        self.share, usual_rank = (0.6, "20") if self.data == "picture" else (0.2, "10")
        if self.case:
            usual_rank = str(RANK)
            self.rhos = self.rhos if self.rho != "auto" else list(CASES[self.case].rhos)
        elif bundle.values.min() == bundle.values.max():
            raise InvalidInputError(
                f"all entries of {bundle.source} are {bundle.values[0]:g}: there is nothing to predict; rmopt fit "
                "completion FILE --model implicit learns who has what."
            )
        self.ranks = options.ranks_within(self.run.say, self.rank, usual_rank, min(bundle.shape) - 1)
        self.shares = Kept(self.divided, 1)
        # A central method is trained once for all numbers of agents, and one without a rank once: both are 0 then.
        return [
            {"method": name, "code": kind.code, "rank": rank, "agents": n, "rho": rho}
            for rank in [*self.ranks, 0]
            for name, kind in self.chosen.items()
            for n in [*self.counts, 0]
            for rho in self.rhos
            if (isinstance(kind.estimator, Way) or kind.ranked) == bool(rank)
            and getattr(kind.estimator, "decentral", False) == bool(n)
        ]

    def divided(self, seed: int, n_agents: int) -> Shares:
        """Return the shares of so many agents; models of one seed have the same matrix, and hold out the same."""
        if self.case:
            (m, n), condition = self.bundle.shape, CASES[self.case].condition
            return low_rank_shares(m, n, RANK, n_agents, OneProcess(), condition=condition, seed=seed)
        held_out = self.bundle.held_out(seed, self.share)
        return shares_of(self.bundle, held_out, n_agents, self.lam, OneProcess())

    def header(self) -> str:
        bundle = self.bundle
        return f"{bundle.name} ({bundle.source}): {bundle.shape[0]:,} × {bundle.shape[1]:,}, {self.splits}"

    def label(self, one: Settings) -> str:
        signs: Settings = {"agents": ("N", self.counts), "rank": ("r", self.ranks), "rho": ("ρ", self.rhos)}
        more = [f"{sign} = {one[key]:g}" for key, (sign, all_) in signs.items() if one[key] and len(all_) > 1]
        return ", ".join([self.chosen[one["method"]].label, *more])

    def trained(self, one: Settings, shares: Shares, *how: Any) -> Cell:
        """Train the model of some settings on some shares."""
        model = self.chosen[one["method"]].made(one["parameters"], rank=one["rank"], random_state=one["seed"])
        if isinstance(model, Way):
            plan = GossipPlan(one["rho"], graph=self.graph, n_epochs=self.updates, init="independent")
            end = model.train(Job(shares.tasks, plan, one["rank"], one["seed"], *how))
            test, train = shares.test_rmse(end["mean"]), shares.train_mse(end["points"])
            return end | {"test_rmse": test, "train_mse": train}
        if one["method"] in METHODS:
            # Compiled code is loaded before the clock starts.
            few = np.argwhere(np.ones((4, 4))), np.arange(16.0)
            METHODS[one["method"]].made(rank=1, random_state=0).fit(*few)
        begun = perf_counter()
        model.fit(*shares.pairs(held_out=False))
        seconds = perf_counter() - begun
        test, train = (shares.error(model.predict, held_out) for held_out in (True, False))
        return {"seconds": seconds, "test_rmse": test**0.5, "train_mse": train}

    def choose(self, one: Settings) -> Cell:
        """Return the parameters with the least mean error on folds of the training entries."""
        kind, whole = self.chosen[one["method"]], self.shares(one["seed"], one["agents"] or self.counts[0])

        def score(values: Settings, number: int) -> float:
            fold = whole.fold(number, self.folds, one["seed"])
            return -float(self.trained(one | {"parameters": values}, fold)["test_rmse"])

        return {"parameters": searched(self.run, self.label(one), kind.grid, score, range(self.folds))}

    def measured(self, one: Settings) -> Cell:
        """Train a model, and return what is measured of it; with the first seed also its trace."""
        n, first = one["agents"] or self.counts[0], one["seed"] == self.run.seed
        shares, edges = self.shares(one["seed"], n), as_graph(self.graph, n).edges

        def gap(points: Parts) -> float:
            manifold = Grassmann(shares.tasks.n_rows, one["rank"])
            bases = [np.linalg.qr(point)[0] for point in points]
            return float(np.mean([manifold.dist(bases[i], bases[j]) for i, j in edges]))

        steps = max(1.0, self.updates * len(edges))
        # Dense at the start.
        at = sorted({round(step) for step in np.geomspace(max(1.0, steps / 200), steps, MEASURED)})
        recorder = Recorder({"train_mse": shares.train_mse, "gap": gap} if first else {}, at=at)
        stem = "-".join(str(one[key]) for key in ("method", "agents", "rank", "rho", "seed"))
        saved = self.run.path("cells") / f"checkpoint-{''.join(c if c.isalnum() else '-' for c in stem)}.npz"
        try:
            found = self.trained(one, shares, recorder, saved)
        except DivergedError:
            nothing: Settings = dict.fromkeys((*self.columns, "seconds", "basis"))
            return nothing | {"used": one["parameters"], "trace": []}
        # What the cell tells need not be trained again.
        saved.unlink(missing_ok=True)
        pictured = first and self.data == "picture" and not self.case
        return {name: found[name] for name in ("test_rmse", "train_mse", "seconds")} | {
            "disagreement": gap(found["points"]) if one["agents"] else None,
            "updates": found.get("steps", 0) / n or None,
            # What "auto" and cross-validation came to.
            "used": {name: found[name] for name in ("rho",) if name in found} | one["parameters"],
            "trace": [[row["updates"] / n, row["train_mse"], row["gap"]] for row in recorder.rows],
            "basis": found.get("mean") if pictured else None,
        }

    def used(self, row: Row) -> list[Settings]:
        return [cell["used"] for cell in row.cells]

    def row(self, row: Row) -> Cell:
        about: Settings = {"method": self.chosen[row["method"]].label}
        about |= {key: row[key] or None for key in ("agents", "rank")}
        about |= {"rho": row["rho"]} if len(self.rhos) > 1 else {}
        return about | super().row(row)

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        return case_claims(CASES[self.case], rows) if self.case else table_claims(rows, self.chosen)

    def draw(self, rows: Sequence[Row]) -> None:
        # A batch solver has no trace; with several ranks the picture is that of the last.
        traces = {row.label: row.cells[0]["trace"] for row in rows if row.cells[0]["trace"]}
        bases = {self.chosen[row["method"]].label: row.cells[0]["basis"] for row in rows}
        if traces:
            self.run.draw("traces.png", draw_panels, trace_panels(traces), self.bundle.name, size=(9.0, 4.0))
        if any(basis is not None for basis in bases.values()):
            shares = self.shares(self.run.seed, self.counts[0])
            tables = {label: shares.completed(U) for label, U in bases.items() if U is not None}
            hidden = self.bundle.held_out(self.run.seed, self.share)
            self.run.draw("picture.png", draw_completed, self.bundle, hidden, tables, size=(9.0, 6.4))


def case_claims(case: Case, rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about a synthetic case."""
    made = []
    traces = {row: np.array(row.cells[0]["trace"]).T for row in rows if row.cells[0]["trace"]}
    for row, (_, errors, gaps) in traces.items():
        learns = row["rho"] < ONLY_AGREEMENT
        said = (
            "agents agree, and the error falls to the level of the noise" if learns else "agents only agree"
        )
        held = errors[-1] < NEAR_NOISE * NOISE_LEVEL if learns else errors[-1] > 1e-4
        if row["method"] in VARIANTS:
            numbers = f"distance {gaps[-1]:.1e}, MSE {errors[-1]:.1e}, noise {NOISE_LEVEL:.0e}"
            made.append(Claim(f"{row.label}: {said}", bool(held and gaps[-1] < 1e-2), numbers))
    for ours in [row for row in traces if case.ahead and row["method"] == case.methods[0]][:1]:
        for row in (row for row in traces if row is not ours):
            end = min(traces[ours][0, -1], traces[row][0, -1])
            a, b = (np.interp(end, *traces[one][:2]) for one in (ours, row))
            claim = f"{ours.label} is ahead of {row.label} after {end:.0f} updates"
            made.append(Claim(claim, bool(a <= b), f"{a:.1e} against {b:.1e}"))
    return made


def table_claims(rows: Sequence[Row], methods: Mapping[str, Method]) -> list[Claim]:
    """Return the claims of Tables 2 and 3: gossip is comparable to the batch method, and falls off with agents."""
    made = []
    for row in (row for row in rows if row["method"] in VARIANTS):
        for other in (other for other in rows if other["rank"] in (row["rank"], 0)):
            gap, mean = Difference.of(other.cells, row.cells, "test_rmse"), other.mean("test_rmse")
            if isinstance(methods[other["method"]].estimator, Batch):
                claim = f"{row.label} is within {LEVEL:.0%} of {other.label}"
                made.append(above(claim, {"": gap}, other.label, LEVEL * mean, f"{mean:.3f}"))
            elif other["method"] not in METHODS:
                claim = f"{row.label} has a smaller error than {other.label}"
                made.append(above(claim, {"": gap}, other.label))
        alike = [other for other in rows if (other["method"], other["rank"]) == (row["method"], row["rank"])]
        for fewer in [other for other in alike if other["agents"] < row["agents"]][-1:]:
            gap = Difference.of(row.cells, fewer.cells, "test_rmse")
            made.append(above(f"{row.label} has a larger error than {fewer.label}", {"": gap}, "agents"))
    return made


def trace_panels(
    traces: Mapping[str, Sequence[Any]], error: str = "mean squared error (train)"
) -> list[Panel]:
    """Return panels of error and distance between neighbours, the columns of traces, against updates, the first."""
    names = error, "mean distance between neighbours"
    return [
        Panel(
            "updates per agent", name,
            {label: [(row[0], max(row[column], 1e-34)) for row in trace] for label, trace in traces.items()}, "y",
        )
        for column, name in enumerate(names, 1)
    ]  # fmt: skip


def draw_completed(figure: Figure, bundle: Ratings, hidden: Any, completed: Mapping[str, Any]) -> None:
    """Draw a picture, what is known of it, and how methods complete it: tables by name, for the hidden pixels."""
    whole = bundle.table(np.ones(len(bundle.values), dtype=bool)).toarray()
    seen = bundle.rows[~hidden], bundle.columns[~hidden]
    frames = {"known pixels": np.ones(bundle.shape), **completed, "the photograph": whole}
    figure.set_layout_engine("constrained")
    lines = -(-len(frames) // 2)
    figure.set_size_inches(9.0, (4.5 * 3 * bundle.shape[0] / bundle.shape[1] + 0.3) * lines)
    grid = figure.subplots(lines, 2, squeeze=False)
    for axes, (label, frame) in zip(grid.flat, frames.items(), strict=False):
        frame[seen] = whole[seen]
        axes.imshow(np.stack(np.split(frame, 3, axis=1), axis=-1))
        axes.set_title(label, fontsize="small")
    for axes in grid.flat:
        axes.set_axis_off()
