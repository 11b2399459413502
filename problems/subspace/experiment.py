"""The experiment ``rmopt run completion``: matrix completion between agents (Mishra et al. 2019, section 6.2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.comparison import (
    Difference,
    Experiment,
    Kept,
    Row,
    above,
    averaged,
    crossed,
    grown,
    mean_and_sem,
    near,
)
from problems.data import Ratings
from problems.methods import Cell, Method, Settings
from problems.palette import finish, logarithmic, style, whole_ticks
from problems.subspace.als import BiasedALS, ScaledSGDCompletion
from problems.subspace.baselines import Biases, CMFRec, DLMaFit, LibMF, MyFM
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.estimators import RCGMC, RTRMC
from problems.subspace.shares import OVERSAMPLING, Shares, low_rank_shares, shares_of
from problems.subspace.training import VARIANTS, GossipPlan, agree, gossip
from rmopt.core import DivergedError, InvalidInputError, MissingCapabilityError, Parts, Problem, RmoptError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number
from rmopt.core.streams import Stream, generator
from rmopt.costs import GossipCost, as_graph
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import Grassmann, Power, frechet_mean
from rmopt.solvers import MPIWorld, OneProcess, Recorder, World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Trace = Sequence[Sequence[float]]

# Points of a trace.
MEASURED = 16
# First step sizes with their decay: the larger, the faster they must fall.
STEPS = (
    (0.5, 0.2), (1.0, 0.2), (1.5, 0.2), (1.0, 2.0), (2.0, 2.0), (4.0, 5.0), (10.0, 30.0), (30.0, 100.0),
    (100.0, 300.0),
)  # fmt: skip
RANK, SCALE, LAM = 5, 0.1, 0.005
# From this weight on agents have no time to learn.
ONLY_AGREEMENT = 1e9
# Synthetic entries have noise of standard deviation 1e-6; errors near to its square are level with it.
NOISE_LEVEL, NEAR_NOISE = 1e-12, 100.0
FIRST_COMPARED = 25.0
# Errors are level that differ by this share.
LEVEL = 0.03


@dataclass(frozen=True)
class Job:
    """A matrix that agents share and are to complete, and how; the state is saved in a file, if any."""

    shares: Shares
    plan: GossipPlan
    rank: int
    seed: int
    recorder: Recorder = field(default_factory=Recorder)
    saved: Path | None = None

    def found(self, seconds: float, mean: Array, points: Parts, **more: Any) -> Cell:
        """Return what subspaces do, of which `mean` predicts; `points` are the agents' own."""
        test, train = self.shares.test_rmse(mean), self.shares.train_mse(points)
        return {
            "seconds": seconds,
            "test_rmse": test,
            "train_mse": train,
            "mean": mean,
            "points": points,
            **more,
        }

    def all_here(self, name: str) -> None:
        """Refuse several processes."""
        if self.shares.world.size > 1:
            raise MissingCapabilityError(
                f"{name} runs in one process; with --agents mpi choose gossip methods."
            )


class Way(BaseEstimator):
    """A way to complete a matrix that agents share."""

    # Whether each agent keeps its data to itself, and whether it is trained for each rank.
    decentral = ranked = True
    # Whether it minimises what gossip does, with all data in one place; whether gossip is to be measured by it.
    batch, claimed = False, True

    @abstractmethod
    def train(self, job: Job) -> Cell:
        """Complete the matrix of the agents' shares and return what `subspaces` or `errors` do; save in a file."""


def errors(shares: Shares, test: float, train: float, seconds: float, **more: Any) -> Cell:
    """Return what a method found: its errors, how long it took, and what else is known."""
    return {
        "test_rmse": test,
        "train_mse": train,
        "seconds": seconds,
        "bytes": 0,
        "steps": 0,
        "rho": None,
        **more,
    }


def subspaces(shares: Shares, mean: Array, points: Parts, seconds: float, **more: Any) -> Cell:
    """Return what subspaces do: `mean` is the one that predicts, `points` are the agents' own."""
    return errors(
        shares, shares.test_rmse(mean), shares.train_mse(points), seconds, mean=mean, points=points, **more
    )


def _all_here(shares: Shares, name: str) -> None:
    if shares.world.size > 1:
        raise MissingCapabilityError(f"{name} runs in one process; with --agents mpi choose gossip methods.")


@dataclass(eq=False, repr=False)
class Gossip(Way):
    """Gossip of neighbours on Grassmann, or `flat`, with matrices of no constraint; parameters as of `GossipPlan`."""

    variant: str = "stochastic"
    flat: bool = False
    step_size: float = 1.0
    decay: float = 1.0
    rho: float | None = None

    def train(self, job: Job) -> Cell:
        rho = job.plan.rho if self.rho is None else self.rho
        plan = replace(job.plan, variant=self.variant, step_size=self.step_size, decay=self.decay, rho=rho)
        if self.flat:
            job.all_here("the Euclidean formulation")
        found = gossip(
            job.shares.tasks, job.rank, plan, job.seed, recorder=job.recorder, checkpoint=job.saved,
            world=job.shares.world, flat=self.flat,
        )  # fmt: skip
        result, more = found.result, {"rho": found.rho, "bytes": found.bytes}
        return job.found(result.seconds, found.mean, found.points, steps=result.updates, **more)


class AlongTree(Way):
    """L-BFGS whose sums travel along a tree: what all data together would give. It has no step size."""

    def train(self, job: Job) -> Cell:
        tasks, world = job.shares.tasks, job.shares.world
        found = agree(tasks, job.rank, job.seed, graph=job.plan.graph, checkpoint=job.saved, world=world)
        more = {"steps": found.result.steps * tasks.n_terms, "bytes": found.bytes}
        return job.found(found.result.seconds, found.mean, found.points, **more)


class DecentralLMaFit(Way):
    """D-LMaFit; it has no step size."""

    def train(self, job: Job) -> Cell:
        job.all_here("D-LMaFit")
        tasks = job.shares.tasks
        manifold, graph = Grassmann(tasks.n_rows, job.rank), as_graph(job.plan.graph, tasks.n_terms)
        power = Power(manifold, tasks.n_terms)
        problem = Problem(power, GossipCost(tasks, graph, 0.0, manifold))
        # An agent in the middle of a path moves twice as often as edges are taken.
        solver, start = DLMaFit(round(2 * job.plan.n_epochs)), generator(job.seed, Stream.START)
        result = solver.run(problem, power.random_point(start), random_state=job.seed, recorder=job.recorder)
        mean = frechet_mean(manifold, list(result.point), tol=1e-9)
        return job.found(result.seconds, mean, result.point, steps=result.updates)


@dataclass(eq=False, repr=False)
class Batch(Way):
    """A batch solver, which sees all entries; rank and random numbers of its estimator are the experiment's."""

    estimator: Any
    max_iter: int = 15
    decentral, batch = False, True

    def train(self, job: Job) -> Cell:
        job.all_here(type(self.estimator).__name__)
        tasks = job.shares.tasks
        # Compiled passes are loaded before the clock starts.
        tasks.hessian(*2 * (Grassmann(tasks.n_rows, job.rank).random_point(np.random.default_rng(0)),))
        solver = type(self.estimator)(job.rank, max_iter=self.max_iter)
        begun = perf_counter()
        U = solver.learn(tasks, job.seed)
        return job.found(perf_counter() - begun, U, Parts([U] * tasks.n_terms))


@dataclass(eq=False, repr=False)
class Brought(Way):
    """An estimator, ``fit(pairs, values)`` and ``predict(pairs)``, which sees all entries."""

    estimator: Any
    claimed: bool = True
    decentral = False

    @property
    def ranked(self) -> bool:  # type: ignore[override]
        """Whether it is trained for each rank."""
        return Method("", self.estimator).ranked

    def train(self, job: Job) -> Cell:
        job.all_here(type(self.estimator).__name__)
        method = Method("", self.estimator)
        if isinstance(self.estimator, Biases | BiasedALS | ScaledSGDCompletion | BayesianCompletion):
            # Compiled code is loaded before the clock starts.
            method.made(rank=1, random_state=0).fit(np.argwhere(np.ones((4, 4))), np.arange(16.0))
        model = method.made(rank=job.rank, random_state=job.seed)
        begun = perf_counter()
        model.fit(*job.shares.pairs(held_out=False))
        seconds = perf_counter() - begun
        test, train = (job.shares.error(model.predict, held_out) for held_out in (True, False))
        return {"seconds": seconds, "test_rmse": test**0.5, "train_mse": train}


def wrapped(method: Method, claimed: bool = True) -> Method:
    """Return an estimator's method as one of this experiment."""
    if isinstance(method.estimator, Way):
        return method
    grid = [{f"estimator__{name}": value for name, value in values.items()} for values in method.grid]
    return replace(method, estimator=Brought(method.estimator, claimed), grid=grid)


_GRID = [{"step_size": step_size, "decay": decay} for step_size, decay in STEPS]
METHODS: dict[str, Method] = {
    **{name: Method(f"{name.replace('-', ' ').title()} Gossip", Gossip(name), _GRID) for name in VARIANTS},
    "euclidean": Method("Euclidean Gossip", Gossip(flat=True), _GRID),
    "tree": Method("L-BFGS along a tree", AlongTree()),
    "d-lmafit": Method("D-LMaFit", DecentralLMaFit()),
    "rtrmc": Method("RTRMC (batch)", Batch(RTRMC())),
    "rcg": Method("Riemannian CG (batch)", Batch(RCGMC())),
    **{
        name: wrapped(Method(label, estimator, [{"lam": lam} for lam in lams]), claimed=False)
        for name, label, estimator, lams in (
            ("biases", "biases alone", Biases(), (1.0, 3.0, 10.0)),
            ("als", "ALS with biases", BiasedALS(handle_unknown="mean"), (0.7, 1.0, 1.4)),
            ("scaled-sgd", "Scaled SGD", ScaledSGDCompletion(handle_unknown="mean"), (0.03, 0.04, 0.06)),
            ("bayesian", "Bayesian (Gibbs)", BayesianCompletion(handle_unknown="mean"), ()),
            ("cmfrec", "cmfrec", CMFRec(), (5.0, 10.0, 20.0)),
            ("myfm", "myfm", MyFM(), ()),
            ("libmf", "LIBMF", LibMF(), (0.03, 0.05, 0.08)),
        )
    },
}
DEFAULT_METHODS = ("biases", "als", "rtrmc", "stochastic", "precon-parallel")


@dataclass(frozen=True)
class Case:
    """A random matrix of the paper, m × n at full size, and what is compared on it (section 6.2)."""

    m: int
    n: int
    rhos: tuple[float, ...]
    methods: tuple[str, ...]
    about: str
    condition: float = 1.0
    # Which method is said to be ahead of the others.
    ahead: str = ""


CASES = {
    1: Case(10_000, 100_000, (1e3, 1e10), ("stochastic",), "the weight ρ"),
    2: Case(10_000, 100_000, (1e3,), ("stochastic", "parallel"), "stochastic or parallel"),
    3: Case(
        5_000, 50_000, (1e3,), ("stochastic", "precon-stochastic"), "a matrix of condition 500", 500.0,
        "precon-stochastic",
    ),
    4: Case(
        500, 12_000, (1e3,), ("stochastic", "d-lmafit", "euclidean"), "D-LMaFit and the Euclidean formulation",
        ahead="stochastic",
    ),
}  # fmt: skip


@dataclass(kw_only=True)
class Completion(Experiment):
    """Complete a matrix: least squares with all entries in one place, and gossip between agents that share none.

    In gossip every agent fits a subspace to its own columns and agrees with its neighbours on it; ratings never leave
    an agent. With --agents mpi each process that mpiexec starts is an agent: mpiexec -n 6 rmopt run completion
    --agents mpi. The default run, on a photograph, takes half a minute on two cores.
    """

    data: Annotated[options.Data, Ratings] = "picture"
    case: Annotated[int, Option(help="A synthetic case of the paper, 1 to 4, instead of data; 5: ml1m.")] = 0
    scale: Annotated[float, Option(help="Size of a synthetic case; 1: as in the paper.")] = SCALE
    agents: Annotated[str, Option(help="Numbers of agents, or mpi: as many as mpiexec started.")] = "6"
    rank: Annotated[str, options.rank_option("10 (20 of the picture)")] = ""
    rho: Annotated[
        str, Option(help="Weight of the agreement: a number, auto, or numbers that --select chooses among.")
    ] = "auto"
    graph: Annotated[str, Option(help="path, ring, grid, star, complete or erdos-renyi.")] = "path"
    lam: Annotated[float, Option(help="Draws entries that are not known to 0; not with --case.")] = LAM
    updates: Annotated[float, Option(help="How often each edge is expected to be taken.")] = 100.0
    step_size: Annotated[float, Option(help="In units of one over an agent's curvature.")] = 1.0
    decay: Annotated[float, Option(help="The last step size is the first over 1 + decay.")] = 1.0
    iterations: Annotated[int, Option(help="Of batch solvers.")] = 15
    hidden: Annotated[
        float, Option(help="Share of the entries that is held out; 0: the usual one; not with --case.")
    ] = 0.0
    seeds: options.Seeds = 1
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}; empty: the usual ones.")] = ""
    select: options.Select = "none"
    folds: Annotated[
        int,
        Option(min=1, help="Folds of the cross-validation; 1: by what a synthetic case holds out itself."),
    ] = 5

    # One: by what a synthetic case holds out.
    least_folds: ClassVar = 1
    name: ClassVar = "completion"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict", "train")
    by: ClassVar = ("method", "agents", "rank", "rho")
    headings: ClassVar = {
        "test_rmse": "RMSE", "sem": "± s.e.m.", "train_mse": "train MSE", "disagreement": "distance",
        "updates": "updates", "train_seconds": "train s", "kilobytes_sent": "kB sent",
    }  # fmt: skip

    def __call__(self, run: Run) -> Outcome:
        self.world: World = MPIWorld() if self.agents == "mpi" else OneProcess()
        integer("--case", self.case, 0, 5)
        if self.case == 5:
            self.case, self.data = 0, "ml1m"
        usual = CASES[self.case].methods if self.case else DEFAULT_METHODS
        # Several processes gossip, and do nothing else.
        gossips = [name for name in usual if self.world.size == 1 or name in (*VARIANTS, "tree")]
        self.methods = self.methods or ",".join(gossips)
        # Several BLAS threads would stand in the way of other processes, and of the compiled passes.
        with self.world.guard(), threadpool_limits(1, user_api="blas"):
            outcome = super().__call__(run)
            # What only an interrupted run needs goes when all processes have come this far.
            self.world.least(0)
            self._remove_checkpoints()
        return outcome

    def launched(self) -> World:
        # Processes that gossip train each model together.
        return super().launched() if self.agents != "mpi" else OneProcess()

    def _remove_checkpoints(self) -> None:
        for old in self.run.out.glob("checkpoint-*.npz"):
            old.unlink(missing_ok=True)

    def check(self) -> None:
        options.check_options(vars(self), seeds=1, iterations=1, folds=1 if self.case else 2)
        number("--scale", self.scale, above=0, most=1)
        number("--hidden", self.hidden, least=0, below=1)
        number("--lam", self.lam, least=0)
        number("--updates", self.updates, above=0)
        mpi, case = self.agents == "mpi", self.case
        if mpi and self.world.size < 2:
            raise InvalidInputError(
                "--agents mpi needs two or more processes: mpiexec -n 6 rmopt run completion --agents mpi"
            )
        self.counts = [self.world.size] if mpi else options.whole_numbers(self.agents, "--agents", 2)
        for count in self.counts:
            as_graph(self.graph, count)
        weight, *more = weights = [options.number_or_auto(part, "--rho") for part in self.rho.split(",")]
        if more and self.select == "none":
            raise InvalidInputError(
                f"--rho {self.rho} is several numbers; let --select first choose among them."
            )
        given = {"step_size": self.step_size, "decay": self.decay, "max_iter": self.iterations}
        for name, kind in self.chosen.items():
            method = wrapped(kind)
            if not isinstance(method.estimator, Brought):
                method = replace(method, estimator=method.made(**given))
            if more and isinstance(method.estimator, Gossip):
                method = replace(
                    method, grid=[point | {"rho": rho} for rho in weights for point in method.grid]
                )
            self.chosen[name] = method
        self.plan = GossipPlan(
            weight, graph=self.graph, step_size=self.step_size, decay=self.decay, n_epochs=self.updates,
            init="independent",
        )  # fmt: skip
        if self.n_jobs != 1 and (case or mpi):
            raise InvalidInputError("--case and --agents mpi train one model at a time; leave out --n-jobs.")
        if case and (self.rank or self.hidden or self.seeds > 1 or len(self.counts) > 1 or self.lam != LAM):
            raise InvalidInputError(
                f"--case {case} has one rank, one split, its own test entries and, as in the paper, no penalty; "
                "leave out --rank, --hidden, --seeds and --lam, and give one number of --agents."
            )
        if not case and self.scale != SCALE:
            raise InvalidInputError(
                "--scale is the size of a synthetic case; give --case 1 to 4, or leave it out."
            )
        self.usual_rank = "20" if self.data == "picture" else "10"
        options.whole_numbers(self.rank or self.usual_rank, "--rank")

    def read(self, kind: Any) -> Any:
        if not self.resume:
            self._remove_checkpoints()
            # Nobody saves before all have tidied up.
            self.world.least(0)
        if self.world.size > 1:
            # Several processes go on from their checkpoints alone, of which all have the same.
            self.resume = None  # type: ignore[assignment]
        if not self.case:
            return super().read(kind)
        case = CASES[self.case]
        m, n = (max(20, round(size * self.scale)) for size in (case.m, case.n))
        name = f"case {self.case}, {m:,} × {n:,}"
        return SimpleNamespace(name=name, source=case.about, shape=(m, n), fingerprint=lambda: name)

    def settings(self) -> list[Settings]:
        bundle, rhos = self.bundle, [self.plan.rho]
        if self.case:
            case, self.ranks = CASES[self.case], [RANK]
            rhos = list(case.rhos) if self.rho == "auto" else rhos
            (m, n), of = bundle.shape, case.condition
            shares = low_rank_shares(m, n, RANK, self.counts[0], self.world, condition=of, seed=self.run.seed)
            self.shares = Kept(lambda *_: shares, 1)
        else:
            if bundle.values.min() == bundle.values.max():
                raise InvalidInputError(
                    f"all entries of {bundle.source} are {bundle.values[0]:g}: there is nothing to predict; rmopt "
                    "fit completion FILE --model implicit learns who has what."
                )
            most = min(bundle.shape) - 1
            self.ranks = options.ranks_within(self.run.say, self.rank, self.usual_rank, most)
            if self.agents != "mpi" and self.counts[-1] > bundle.shape[1]:
                self.counts = sorted({min(count, bundle.shape[1]) for count in self.counts})
                shown = ",".join(map(str, self.counts))
                self.run.say(f"--agents is {shown}: there are no more columns to deal to them.")
            self.share = self.hidden or (0.6 if self.data == "picture" else 0.2)
            # Models of one seed share it.
            self.held_out = Kept(lambda seed: bundle.held_out(seed, self.share), 1)
            self.shares = Kept(
                lambda seed, n: shares_of(bundle, self.held_out(seed), n, self.lam, self.world), 1
            )
        # A central method is trained once for all numbers of agents, and one without a rank once, as of rank 0.
        return [
            one | {"code": kind.code}
            for one in crossed(rank=[*self.ranks, 0], method=self.chosen, agents=self.counts, rho=rhos)
            for kind in [self.chosen[one["method"]]]
            if kind.estimator.ranked == bool(one["rank"])
            and (kind.estimator.decentral or one["agents"] == self.counts[0])
        ]

    def header(self) -> str:
        bundle = self.bundle
        if self.case:
            shape = f"oversampling {OVERSAMPLING:g}, {self.counts[0]} agents"
            return f"{bundle.name} of rank {RANK}: {bundle.source}; {shape}"
        return (
            f"{bundle.name} ({bundle.source}): {bundle.shape[0]:,} × {bundle.shape[1]:,}, {len(bundle.values):,} "
            f"entries, {self.share:.0%} held out, {self.splits}"
        )

    def about(self) -> Settings:
        names = "graph", "updates", "case", *(("lam", "share") if not self.case else ())
        return {name: getattr(self, name) for name in names} | {"processes": self.world.size}

    def label(self, one: Settings) -> str:
        label = self.chosen[one["method"]].label
        if self.case:
            return label + f", ρ = {one['rho']:g}" * (self.rho == "auto" and len(CASES[self.case].rhos) > 1)
        return f"{label}, N = {one['agents']}" + f", r = {one['rank']}" * bool(one["rank"])

    def choose(self, one: Settings) -> Cell:
        """Return the parameters with the least error on held-out training entries; of gossip to 1 %."""
        # A fold would make completion harder, and with few entries slower: another matrix in what steps it takes.
        shares, plan = (
            self.shares(one["seed"], one["agents"]),
            replace(self.plan, rho=one["rho"]),
        )
        folds = range(self.folds) if self.folds > 1 else ()
        parts = [shares.fold(fold, self.folds, one["seed"]) for fold in folds] or [shares]
        jobs = [Job(part, plan, one["rank"], one["seed"]) for part in parts]
        method, refused = self.chosen[one["method"]], list[RmoptError]()

        def error(values: Settings) -> float:
            try:
                model = method.made(values)
                return float(np.mean([model.train(job)["test_rmse"] for job in jobs]))
            except RmoptError as why:
                # A step size that diverges on some fold is out.
                refused.append(why)
                return float("inf")

        # Of gossip those that end alike.
        near_ = 1.01 if isinstance(method.estimator, Gossip) else 1.0
        points, found = grown(
            method.grid, lambda points: np.array([error(values) for values in points]),
            lambda found: np.flatnonzero(found <= near_ * found.min()),
            lambda what: self.run.say(f"{self.label(one)}: {what}"),
        )  # fmt: skip
        if found.min() == float("inf"):
            raise InvalidInputError(
                f"none of the {len(method.grid)} choices of the grid could be trained on every fold "
                f"({str(refused[-1]).rstrip('.')}); give more --folds, so that more is left to train on, or no "
                "--select."
            ) from refused[-1]
        alike = [points[place] for place in np.flatnonzero(found <= near_ * found.min())]
        # Of plans that end alike, the one that begins fastest.
        fastest = itemgetter("step_size", "decay")
        return {"parameters": max(alike, key=fastest) if isinstance(method.estimator, Gossip) else alike[0]}

    def measured(self, one: Settings) -> Cell:
        """Train a model, and return what is measured of it; with the first seed also its trace."""
        method, n, plan = self.chosen[one["method"]], one["agents"], replace(self.plan, rho=one["rho"])
        shares, edges = self.shares(one["seed"], n), as_graph(plan.graph, n).edges

        def gap(points: Parts) -> float:
            manifold = Grassmann(shares.tasks.n_rows, one["rank"])
            bases = [np.linalg.qr(point)[0] for point in points]
            return float(np.mean([manifold.dist(bases[i], bases[j]) for i, j in edges]))

        first = one["seed"] == self.run.seed
        steps = max(1.0, plan.n_epochs * len(edges))
        recorder = Recorder(
            {"train_mse": shares.train_mse, "gap": gap} if first else {},
            # Dense at the start.
            at=sorted({round(step) for step in np.geomspace(max(1.0, steps / 200), steps, MEASURED)}),
            # Several bars at a time would be drawn over one another.
            progress=self.run.progress and self.n_jobs == 1,
            description=method.label,
        )
        stem = "-".join(str(one[key]) for key in (*self.by, "seed"))
        saved = self.run.path(f"checkpoint-{''.join(c if c.isalnum() else '-' for c in stem)}.npz")
        try:
            job = Job(shares, plan, one["rank"], one["seed"], recorder, saved)
            found = method.made(one["parameters"]).train(job)
        except DivergedError:
            # Several processes would wait for each other.
            if self.world.size > 1:
                raise
            names = "test_rmse", "train_mse", "disagreement", "updates", "seconds", "kilobytes_sent"
            return dict.fromkeys(names) | {"used": one["parameters"], "trace": [], "basis": None}
        if self.world.size == 1:
            # What the cell tells need not be trained again.
            saved.unlink(missing_ok=True)
        points, rho = found.get("points"), found.get("rho")
        return {name: found[name] for name in ("test_rmse", "train_mse", "seconds")} | {
            "disagreement": gap(points) if points is not None and method.estimator.decentral else None,
            "updates": found.get("steps", 0) / n or None,
            # What "auto" and cross-validation came to.
            "used": ({} if rho is None else {"rho": rho}) | one["parameters"],
            "kilobytes_sent": found.get("bytes", 0) / 1e3 or None,
            "trace": [[row["updates"] / n, row["train_mse"], row["gap"]] for row in recorder.rows],
            "basis": found.get("mean") if first and self.data == "picture" and not self.case else None,
        }

    def used(self, row: Row) -> list[Settings]:
        return [cell["used"] for cell in row.cells]

    def notes(self, rows: Sequence[Row]) -> list[str]:
        return []

    def row(self, row: Row) -> Cell:
        others = "train_mse", "disagreement", "updates", "kilobytes_sent"
        found = averaged(row.cells, test_rmse="sem", **dict.fromkeys(others))
        numbers = {key: found[key] for key in self.headings if key in found}
        if self.case:
            return numbers
        method = self.chosen[row["method"]]
        agents = row["agents"] if method.estimator.decentral else None
        return {"method": method.label, "agents": agents, "rank": row["rank"] or None} | numbers

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        if self.case:
            return case_claims(CASES[self.case].ahead, rows)
        return table_claims(rows, self.chosen) if self.world.size == 1 else []

    def draw(self, rows: Sequence[Row]) -> None:
        if self.world.rank:
            return
        bundle, several = self.bundle, max(len(self.ranks), len(self.counts)) > 1
        # A batch solver has no trace.
        traces = {row.label: row.cells[0]["trace"] for row in rows if row.cells[0]["trace"]}
        if several:
            across = "rank" if len(self.ranks) > 1 else "number of agents"
            self.run.draw("errors.png", draw_errors, self._curves(rows), bundle.name, across, size=(6.4, 4.4))
        if traces:
            self.run.draw("traces.png", draw_traces, traces, bundle.name, size=(9.0, 4.0))
        # Of each method the last.
        bases = {row["method"]: row.cells[0]["basis"] for row in rows if row.cells[0]["basis"] is not None}
        if bases and self.world.size == 1:
            tables = {
                self.chosen[name].label: self.shares(self.run.seed, self.counts[0]).completed(U)
                for name, U in bases.items()
            }
            self.run.draw(
                "picture.png", draw_completed, bundle, self.held_out(self.run.seed), tables, size=(9.0, 6.4)
            )

    def _curves(self, rows: Sequence[Row]) -> dict[str, list[tuple[float, float, float | None]]]:
        """Return for each method its errors by rank, or by number of agents where there is one rank."""
        curves: dict[str, list[tuple[float, float, float | None]]] = {}
        for row in rows:
            method, n, rank = self.chosen[row["method"]], row["agents"], row["rank"]
            decentral, ranks = method.estimator.decentral, self.ranks
            point = mean_and_sem(cell["test_rmse"] for cell in row.cells)
            # What has no agents, or no rank, is a level.
            at = ([rank] if rank else ranks) if len(ranks) > 1 else [n] if decentral else self.counts
            label = method.label + (f", N = {n}" if len(ranks) > 1 and decentral else "")
            curves.setdefault(label, []).extend((place, *point) for place in at)
        return curves


def case_claims(ahead: str, rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about a synthetic case, one of whose methods is said to be ahead."""
    traced, made = [row for row in rows if row.cells[0]["trace"]], []
    for row in traced:
        _, error, gap = row.cells[0]["trace"][-1]
        said, numbers = "agents only agree", f"distance {gap:.1e}, MSE {error:.1e}"
        held = gap < 1e-2 and error > 1e-4
        if row["rho"] < ONLY_AGREEMENT:
            said = "agents agree, and the error falls to the level of the noise"
            held = gap < 1e-2 and error < NEAR_NOISE * NOISE_LEVEL
            numbers += f", noise {NOISE_LEVEL:.0e}"
        if row["method"] in VARIANTS:
            made.append(Claim(f"{row.label}: {said}", held, numbers))
    for ours, theirs in product([row for row in traced if row["method"] == ahead][:1], traced):
        if theirs is ours:
            continue
        # Errors at the updates that both traces reached.
        (x, mine, _), (z, other, _) = (np.array(row.cells[0]["trace"]).T for row in (ours, theirs))
        at = np.geomspace(FIRST_COMPARED, min(x[-1], z[-1]), 4)
        a, b = (
            np.exp(np.interp(at, updates, np.log(np.maximum(values, 1e-34))))
            for updates, values in ((x, mine), (z, other))
        )
        numbers = "; ".join(
            f"{u:.0f} updates: {p:.1e} against {q:.1e}" for u, p, q in zip(at, a, b, strict=True)
        )
        claim = f"{ours.label} is ahead of {theirs.label} per update, from {FIRST_COMPARED:.0f} updates on"
        made.append(Claim(claim, bool((a <= b).all()), numbers))
    return made


def table_claims(rows: Sequence[Row], methods: Mapping[str, Method]) -> list[Claim]:
    """Return the claims of Tables 2 and 3: gossip is comparable to the batch method, and falls off with agents."""
    made = []
    ours = [row for row in rows if row["method"] in VARIANTS]
    for name, rank in dict.fromkeys((row["method"], row["rank"]) for row in ours):
        label = f"rank {rank}: {methods[name].label}"
        by_agents = {row["agents"]: row for row in rows if (row["method"], row["rank"]) == (name, rank)}
        for other in (row for row in rows if row["rank"] in (rank, 0)):
            method, mean = methods[other["method"]], other.mean("test_rmse")
            if method.estimator.decentral or not method.estimator.claimed:
                continue
            gaps = {
                f"N = {n}": Difference.of(other.cells, row.cells, "test_rmse") for n, row in by_agents.items()
            }
            if method.estimator.batch:
                most = {n: (gap, LEVEL * mean) for n, gap in gaps.items()}
                claim = f"{label} is within {LEVEL:.0%} of {method.label}"
                made.append(near(claim, most, f"{method.label} {mean:.3f}", method.label))
            else:
                made.append(above(f"{label} has a smaller error than {method.label}", gaps, method.label))
        if len(by_agents) > 1:
            harder = {
                f"{more} over {n}": Difference.of(by_agents[more].cells, by_agents[n].cells, "test_rmse")
                for n, more in pairwise(sorted(by_agents))
            }
            claim = f"{label}: the more agents, the larger the error"
            made.append(above(claim, harder, "two numbers of agents"))
    return made


def draw_traces(
    figure: Figure, traces: Mapping[str, Trace], title: str, error: str = "mean squared error (train)"
) -> None:
    """Draw error and distance between neighbours, the columns of traces, against updates of an agent, the first."""
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(1, 2)
    for place, (label, rows) in enumerate(traces.items()):
        updates, values, gaps = np.array(rows).T
        left.plot(updates, np.maximum(values, 1e-34), label=label, **style(place))
        right.plot(updates, np.maximum(gaps, 1e-17), **style(place))
    for axes, name in ((left, error), (right, "mean distance between neighbours")):
        logarithmic(axes.yaxis)
        finish(axes, "updates per agent", name)
    figure.suptitle(title)


def draw_errors(
    figure: Figure,
    curves: Mapping[str, Sequence[tuple[float, float, float | None]]],
    title: str,
    across: str = "number of agents",
    error: str = "root mean squared error (test)",
) -> None:
    """Draw test errors with standard errors of the mean: points (x, mean, standard error) by label."""
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for place, (label, points) in enumerate(curves.items()):
        x, mean, sem = zip(*sorted(points), strict=True)
        axes.errorbar(x, mean, [one or 0.0 for one in sem], capsize=3, label=label, **style(place))
    whole_ticks(axes.xaxis)
    finish(axes, across, error, title)


def draw_completed(figure: Figure, bundle: Ratings, hidden: Any, completed: Mapping[str, Any]) -> None:
    """Draw a picture, what is known of it, and how methods complete it: tables by name, for the hidden pixels."""
    whole, known = np.zeros(bundle.shape), ~hidden
    whole[bundle.rows, bundle.columns] = bundle.values
    seen = bundle.rows[known], bundle.columns[known]
    frames = {"known pixels": np.ones(bundle.shape), **completed, "the photograph": whole}
    figure.set_layout_engine("constrained")
    columns = 2 if len(frames) <= 4 else 3
    height, width = bundle.shape[0], bundle.shape[1] // 3
    lines = -(-len(frames) // columns)
    figure.set_size_inches(9.0, (9.0 / columns * height / width + 0.3) * lines)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, (label, frame) in zip(grid.flat, frames.items(), strict=False):
        frame[seen] = whole[seen]
        axes.imshow(np.stack(np.split(frame, 3, axis=1), axis=-1))
        axes.set_title(label, fontsize="small")
    for axes in grid.flat:
        axes.set_axis_off()
