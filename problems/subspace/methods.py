"""The methods of the completion experiment, what each agent holds there, and what is kept of their models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from problems.comparison import Comparison, crossed, grown
from problems.data import Ratings
from problems.methods import Cell, Method, Settings
from problems.options import Selection
from problems.subspace.als import BiasedALS, ScaledSGDCompletion
from problems.subspace.baselines import Biases, CMFRec, DLMaFit, LibMF, MyFM
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.cost import (
    KnownEntries,
    MatrixCompletion,
    columns_of,
    dealt,
    known_entries,
    predictions,
    shares_out,
)
from problems.subspace.estimators import RCGMC, RTRMC
from problems.subspace.training import VARIANTS, GossipPlan, agree, gossip
from rmopt.core import DivergedError, InvalidInputError, MissingCapabilityError, Parts, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator
from rmopt.costs import GossipCost, as_graph
from rmopt.errors import RmoptError
from rmopt.experiments import Run
from rmopt.manifolds import Grassmann, Power, frechet_mean
from rmopt.solvers import Recorder, World

# Of the paper's cases: known entries over degrees of freedom.
OVERSAMPLING = 6.0


@dataclass(frozen=True)
class Shares:
    """Matrix completion between agents, with what it takes to measure it.

    The tasks are the training entries, minus `mean`, of the agents in this process, and `test` the entries that the
    same agents hold out. Predictions are clipped to the limits.
    """

    tasks: MatrixCompletion
    test: dict[int, sp.csc_array]
    mean: float
    limits: tuple[float, float] | None
    world: World

    def train_mse(self, points: Any) -> float:
        """Return the mean squared error of each agent's subspace on its own training entries."""
        sums = [self.tasks.residual_sum(points[agent], agent) for agent in self.tasks.here]
        total, count = self.world.total(np.sum(sums, axis=0))
        return float(total / count)

    def test_rmse(self, points: Any) -> float:
        """Return the root mean squared error on all held-out entries; one basis, or one for each agent."""
        total, count = 0.0, 0
        for agent, part in self.test.items():
            U = points if isinstance(points, np.ndarray) else points[agent]
            found = predictions(U, self.tasks.weights(U, agent), part.indices, columns_of(part)) + self.mean
            gaps = self._clipped(found) - part.data
            total, count = total + float(gaps @ gaps), count + part.nnz
        total, count = self.world.total([total, count])
        return float(np.sqrt(total / count))

    def pairs(self, held_out: bool) -> tuple[Array, Array]:
        """Return numbers of row and column, shape (N, 2), of held-out or training entries here, and their values."""
        pairs, values, start = [], [], 0
        for agent in self.tasks.here:
            part, offset = (self.test[agent], 0.0) if held_out else (self.tasks.parts[agent], self.mean)
            pairs.append(np.column_stack([part.indices, columns_of(part) + start]))
            values.append(part.data + offset)
            start += part.shape[1]
        return np.concatenate(pairs).astype(np.int64), np.concatenate(values)

    def error(self, predict: Any, held_out: bool) -> float:
        """Return the mean squared error of a function of pairs on held-out or training entries."""
        pairs, values = self.pairs(held_out)
        found = numbers("predict(pairs)", predict(pairs), values.shape)
        return float(np.mean((self._clipped(found) - values) ** 2))

    def completed(self, basis: Array) -> Array:
        """Return the whole table that a basis predicts, where all agents are here."""
        W = np.concatenate([self.tasks.weights(basis, agent) for agent in self.tasks.here])
        return self._clipped(basis @ W.T + self.mean)

    def _clipped(self, found: Array) -> Array:
        return found if self.limits is None else np.clip(found, *self.limits)

    def fold(self, number: int, folds: int, seed: int) -> Shares:
        """Return the shares of which every agent holds out one of some folds of its training entries."""
        train, test = {}, {}
        for agent in self.tasks.here:
            part = self.tasks.parts[agent]
            out = generator(seed, Stream.FOLDS, agent).integers(folds, size=part.nnz) == number
            train[agent], test[agent] = _some(part, ~out, 0.0), _some(part, out, self.mean)
        if not self.world.total(sum(part.nnz for part in test.values())):
            raise InvalidInputError("a fold holds no entry; give fewer --folds, or no --select.")
        return replace(self, tasks=MatrixCompletion(train, self.tasks.n_terms, self.tasks.lam), test=test)


def shares_of(ratings: Ratings, test: Array, n_agents: int, lam: float, world: World, rank: int) -> Shares:
    """Divide ratings among agents by columns; this process keeps those of its own agents.

    The rank is for an early word about columns with too few entries.
    """
    whole, held = dealt(ratings.table(~test), n_agents), known_entries(ratings.table(test))
    columns = shares_out("columns", held.shape[1], n_agents)
    train = {agent: whole[agent] for agent in world.mine(n_agents)}
    total, count = world.total(np.sum([(part.data.sum(), part.nnz) for part in train.values()], axis=0))
    mean = float(total / count)
    for agent, part in train.items():
        train[agent] = KnownEntries((part.data - mean, part.indices, part.indptr), shape=part.shape)
    tasks = MatrixCompletion(train, n_agents, lam)
    tasks.check_rank(rank)
    return Shares(tasks, {agent: held[:, columns[agent]] for agent in train}, mean, ratings.limits, world)


def low_rank_shares(
    m: int,
    n: int,
    rank: int,
    n_agents: int,
    world: World,
    *,
    oversampling: float = OVERSAMPLING,
    condition: float = 1.0,
    noise: float = 1e-6,
    seed: int = 0,
) -> Shares:
    """Make a random matrix of low rank with few known entries (Mishra et al. 2019, section 6.2).

    The matrix is A diag(σ) Bᵀ with standard normal A (m × r) and B (n × r), with σ falling exponentially from 1 to
    1 / condition. Every agent draws its own columns, as many known entries each, in its own process.

    Parameters
    ----------
    m, n, rank, n_agents : int
    world : World
    oversampling : float
        Known entries over degrees of freedom, r (m + n − r).
    condition : float
        Where it is not 1, A is orthogonalised, so that this is the condition number.
    noise : float
        Standard deviation of what is added to known entries.
    seed : int
    """
    A = generator(seed, Stream.FACTORS).standard_normal((m, rank))
    if condition != 1.0:
        A = np.linalg.qr(A)[0] * np.sqrt(m)
    A = A * np.geomspace(1.0, 1.0 / condition, rank)
    count = int(oversampling * rank * (m + n - rank) / n_agents)
    columns = shares_out("columns", n, n_agents)
    train, test = {}, {}
    for agent in world.mine(n_agents):
        rng, width = generator(seed, Stream.ENTRIES, agent), int(columns[agent].stop - columns[agent].start)
        if count > 0.8 * m * width:
            raise InvalidInputError(
                f"an oversampling of {oversampling:g} asks for {count:,} of the {m * width:,} entries of agent "
                f"{agent}; choose a larger matrix or a lower rank."
            )
        B = rng.standard_normal((width, rank))
        cells = np.unique(rng.integers(m * width, size=int(1.2 * count) + 100))
        while len(cells) < 1.1 * count:
            cells = np.unique(np.append(cells, rng.integers(m * width, size=count)))
        cells = rng.permutation(cells)
        train[agent] = _entries(A, B, cells[:count], noise, rng)
        test[agent] = _entries(A, B, cells[count:][: max(1, count // 10)], 0.0, rng)
    tasks = MatrixCompletion(train, n_agents, 0.0)
    tasks.check_rank(rank)
    return Shares(tasks, test, 0.0, None, world)


def _entries(A: Array, B: Array, cells: Array, noise: float, rng: np.random.Generator) -> sp.csc_array:
    columns, rows = np.divmod(cells, len(A))
    values = np.einsum("ij,ij->i", A[rows], B[columns]) + noise * rng.standard_normal(len(cells))
    return known_entries(sp.coo_array((values, (rows, columns)), shape=(len(A), len(B))))


def _some(table: sp.csc_array, chosen: Array, offset: float) -> sp.csc_array:
    where = (table.indices[chosen], columns_of(table)[chosen])
    return sp.csc_array(sp.coo_array((table.data[chosen] + offset, where), shape=table.shape))


# Points of a trace.
MEASURED = 16
# First step sizes with their decay: the larger, the faster they must fall.
STEPS = (
    (0.5, 0.2), (1.0, 0.2), (1.5, 0.2), (1.0, 2.0), (2.0, 2.0), (4.0, 5.0), (10.0, 30.0), (30.0, 100.0),
    (100.0, 300.0),
)  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """What a method found, how it does on held-out entries and on training ones, and how long it took.

    Where it found subspaces, `mean` is the one that predicts, and `points` are the agents' own.
    """

    test_rmse: float
    train_mse: float
    seconds: float
    mean: Array | None = None
    points: Parts | None = None
    updates: int = 0
    rho: float | None = None
    bytes: int = 0

    @classmethod
    def of(cls, shares: Shares, mean: Array, points: Parts, seconds: float, *more: Any) -> Self:
        """Return what subspaces do; `more` are the attributes from `updates` on."""
        return cls(shares.test_rmse(mean), shares.train_mse(points), seconds, mean, points, *more)


class Completion(BaseEstimator):
    """A way to complete a matrix that agents share."""

    # Whether each agent keeps its data to itself.
    decentral = True
    # Whether it minimises what gossip does, with all data in one place.
    batch = False
    # Whether gossip is to be measured by it, as the paper or a user has it.
    claimed = True

    # Whether it is trained for each rank.
    ranked = True

    @abstractmethod
    def train(
        self, shares: Shares, plan: GossipPlan, one: Settings, recorder: Recorder, saved: Path | None = None
    ) -> Trained:
        """Complete the matrix of the agents' shares.

        A recorder's metrics take matrices that are not orthonormal where the Euclidean formulation trains. The state
        is saved in a file, if any.
        """


@dataclass(eq=False, repr=False)
class Gossip(Completion):
    """Gossip of neighbours on Grassmann, or with matrices of no constraint.

    Parameters
    ----------
    variant : str
        See `GossipPlan`.
    flat : bool
        The Euclidean formulation.
    step_size, decay : float
        See `GossipPlan`.
    rho : float or None
        The weight of the agreement; None: that of the plan.
    """

    variant: str = "stochastic"
    flat: bool = False
    step_size: float = 1.0
    decay: float = 1.0
    rho: float | None = None

    def train(
        self, shares: Shares, plan: GossipPlan, one: Settings, recorder: Recorder, saved: Path | None = None
    ) -> Trained:
        rho = plan.rho if self.rho is None else self.rho
        plan = replace(plan, variant=self.variant, step_size=self.step_size, decay=self.decay, rho=rho)
        if self.flat:
            _all_here(shares, "the Euclidean formulation")
            plan = replace(plan, clock="shared")
        found = gossip(
            shares.tasks, one["rank"], plan, one["seed"], recorder=recorder, checkpoint=saved,
            world=shares.world, flat=self.flat,
        )  # fmt: skip
        result = found.result
        more = result.updates, found.rho, found.bytes
        return Trained.of(shares, found.mean, found.points, result.seconds, *more)


class AlongTree(Completion):
    """L-BFGS whose sums travel along a tree: what all data together would give. It has no step size."""

    def train(
        self, shares: Shares, plan: GossipPlan, one: Settings, recorder: Recorder, saved: Path | None = None
    ) -> Trained:
        found = agree(
            shares.tasks, one["rank"], one["seed"], graph=plan.graph, checkpoint=saved, world=shares.world
        )
        result = found.result
        more = result.steps * shares.tasks.n_terms, None, found.bytes
        return Trained.of(shares, found.mean, found.points, result.seconds, *more)


class DecentralLMaFit(Completion):
    """D-LMaFit; it has no step size."""

    def train(
        self, shares: Shares, plan: GossipPlan, one: Settings, recorder: Recorder, saved: Path | None = None
    ) -> Trained:
        _all_here(shares, "D-LMaFit")
        tasks = shares.tasks
        manifold, graph = Grassmann(tasks.n_rows, one["rank"]), as_graph(plan.graph, tasks.n_terms)
        power = Power(manifold, tasks.n_terms)
        start = power.random_point(generator(one["seed"], Stream.START))
        problem = Problem(power, GossipCost(tasks, graph, 0.0, manifold))
        # An agent in the middle of a path moves twice as often as edges are taken.
        solver = DLMaFit(round(2 * plan.n_epochs))
        result = solver.run(problem, start, random_state=one["seed"], recorder=recorder)
        mean = frechet_mean(manifold, list(result.point), tol=1e-9)
        return Trained.of(shares, mean, result.point, result.seconds, result.updates)


@dataclass(eq=False, repr=False)
class Batch(Completion):
    """A batch solver, which sees all entries.

    Parameters
    ----------
    estimator : BatchCompletion
        Its rank and its random numbers are the experiment's.
    max_iter : int
    """

    estimator: Any
    max_iter: int = 15
    decentral = False
    batch = True

    def train(
        self, shares: Shares, plan: GossipPlan, one: Settings, recorder: Recorder, saved: Path | None = None
    ) -> Trained:
        _all_here(shares, type(self.estimator).__name__)
        tasks = shares.tasks
        # Compiled passes are loaded before the clock starts.
        tasks.hessian(*2 * (Grassmann(tasks.n_rows, one["rank"]).random_point(np.random.default_rng(0)),))
        solver = type(self.estimator)(one["rank"], max_iter=self.max_iter)
        begun = perf_counter()
        U = solver.learn(tasks, None, one["seed"])
        seconds, points = perf_counter() - begun, Parts([U] * tasks.n_terms)
        return Trained.of(shares, U, points, seconds)


@dataclass(eq=False, repr=False)
class Brought(Completion):
    """A user's estimator, ``fit(pairs, values)`` and ``predict(pairs)``, which sees all entries.

    Parameters
    ----------
    estimator : estimator
        Pairs are numbers of a row and a column, shape (N, 2).
    claimed : bool
        Whether gossip is to be measured by it.
    """

    estimator: Any
    claimed: bool = True
    decentral = False

    @property
    def ranked(self) -> bool:  # type: ignore[override]
        """Whether it is trained for each rank."""
        return Method("", self.estimator).ranked

    def train(
        self, shares: Shares, plan: GossipPlan, one: Settings, recorder: Recorder, saved: Path | None = None
    ) -> Trained:
        _all_here(shares, type(self.estimator).__name__)
        about = {"rank": one["rank"], "random_state": one["seed"]}
        model = Method("", self.estimator).made(**about)
        if isinstance(model, Biases | BiasedALS | ScaledSGDCompletion | BayesianCompletion):
            # Compiled code is loaded before the clock starts.
            small = Method("", self.estimator).made(rank=1, random_state=0)
            small.fit(np.argwhere(np.ones((4, 4))), np.arange(16.0))
        begun = perf_counter()
        model.fit(*shares.pairs(held_out=False))
        seconds = perf_counter() - begun
        test, train = (shares.error(model.predict, held_out) for held_out in (True, False))
        return Trained(test**0.5, train, seconds)


def _wrapped(method: Method, claimed: bool = True) -> Method:
    """Return an estimator's method as one of this experiment."""
    grid = [{f"estimator__{name}": value for name, value in values.items()} for values in method.grid]
    return replace(method, estimator=Brought(method.estimator, claimed), grid=grid)


def _all_here(shares: Shares, name: str) -> None:
    if shares.world.size > 1:
        raise MissingCapabilityError(f"{name} runs in one process; with --agents mpi choose gossip methods.")


_GRID = [{"step_size": step_size, "decay": decay} for step_size, decay in STEPS]

METHODS: dict[str, Method] = (
    {name: Method(f"{name.replace('-', ' ').title()} Gossip", Gossip(name), _GRID) for name in VARIANTS}
    | {
        "euclidean": Method("Euclidean Gossip", Gossip(flat=True), _GRID),
        "tree": Method("L-BFGS along a tree", AlongTree()),
        "d-lmafit": Method("D-LMaFit", DecentralLMaFit()),
        "rtrmc": Method("RTRMC (batch)", Batch(RTRMC())),
        "rcg": Method("Riemannian CG (batch)", Batch(RCGMC())),
    }
    | {
        name: _wrapped(Method(label, estimator, [{"lam": lam} for lam in lams]), claimed=False)
        for name, label, estimator, lams in (
            ("biases", "biases alone", Biases(), (1.0, 3.0, 10.0)),
            ("als", "ALS with biases", BiasedALS(handle_unknown="mean"), (0.7, 1.0, 1.4)),
            ("scaled-sgd", "Scaled SGD", ScaledSGDCompletion(handle_unknown="mean"), (0.03, 0.04, 0.06)),
            ("bayesian", "Bayesian (Gibbs)", BayesianCompletion(handle_unknown="mean"), ()),
            ("cmfrec", "cmfrec", CMFRec(), (5.0, 10.0, 20.0)),
            ("myfm", "myfm", MyFM(), ()),
            ("libmf", "LIBMF", LibMF(), (0.03, 0.05, 0.08)),
        )
    }
)


# What is not there where a model diverged.
UNMEASURED = ("test_rmse", "train_mse", "disagreement", "updates", "seconds", "kilobytes_sent")


class CompletionRuns:
    """The models of one run of the experiment.

    Parameters
    ----------
    run : Run
    world : World
    plan : GossipPlan
    methods : mapping
        By name; a user's estimators among them.
    select, folds
        See `Comparison.selected`.
    seeds, n_jobs, resume
        See `Comparison`.
    keep_subspaces : bool
        Write the subspaces of the first seed, each to the file that its cell names.
    **about
        What all results depend on, beside the plan.
    """

    def __init__(
        self,
        run: Run,
        world: World,
        plan: GossipPlan,
        methods: Mapping[str, Method],
        *,
        select: Selection,
        folds: int,
        resume: bool,
        seeds: int = 1,
        n_jobs: int = 1,
        keep_subspaces: bool = False,
        **about: Any,
    ) -> None:
        self.run, self.world, self.plan, self.keep_subspaces = run, world, plan, keep_subspaces
        self.select, self.folds = select, folds
        self.methods = {
            name: method if isinstance(method.estimator, Completion)
            else _wrapped(method)
            for name, method in methods.items()
        }  # fmt: skip
        self.settings = {
            "graph": plan.graph, "updates": plan.n_epochs, "clock": plan.clock, "processes": world.size
        } | about  # fmt: skip
        # Several processes go on from their checkpoints alone, of which all have the same.
        kept = resume if world.size == 1 else None
        self.comparison = Comparison(run, kept, seeds=seeds, n_jobs=n_jobs, **self.settings)
        if not resume:
            self._remove("checkpoint-*.npz")
            self._remove("subspaces/*.npy")
            # Nobody saves before all have tidied up.
            world.least(0)

    def finish(self) -> None:
        """Remove what only an interrupted run needs, when all processes have come this far."""
        self.world.least(0)
        self._remove("checkpoint-*.npz")

    def _remove(self, files: str) -> None:
        for old in self.run.out.glob(files):
            old.unlink(missing_ok=True)

    def results(
        self,
        ranks: Sequence[int],
        counts: Sequence[int],
        rhos: Sequence[float | str],
        shares_at: Callable[[Settings], Shares],
    ) -> dict[Any, list[Cell]]:
        """Return what is measured of models, listed by method, number of agents, rank and weight.

        A central method is trained once for all numbers of agents, and one without a rank once for all ranks, as of
        rank 0. Step sizes come from cross-validation, or are those of the plan.
        """
        models = [
            one | {"code": self.methods[one["method"]].code}
            for one in crossed(rank=[*ranks, 0], method=self.methods, agents=counts, rho=rhos)
            for kind in [self.methods[one["method"]].estimator]
            if kind.ranked == bool(one["rank"]) and (kind.decentral or one["agents"] == counts[0])
        ]
        models = self.comparison.selected(
            models, self.methods, self.select, lambda one: self._selected(one, shares_at(one)), self.label,
            folds=self.folds,
        )  # fmt: skip
        by = ("method", "agents", "rank", "rho")
        return self.comparison.results(models, lambda one: self._trained(one, shares_at(one)), by)

    def label(self, one: Settings) -> str:
        """Return what a model is called, with its number of agents and its rank."""
        rank = f", r = {one['rank']}" * bool(one["rank"])
        return f"{self.methods[one['method']].label}, N = {one['agents']}{rank}"

    def _selected(self, one: Settings, shares: Shares) -> Cell:
        """Return the parameters with the least error on held-out training entries; of gossip to 1 %."""
        # A fold would make completion harder, and with few entries slower: another matrix in what steps it takes.
        folds = range(one["folds"]) if one["folds"] > 1 else ()
        parts = [shares.fold(fold, one["folds"], one["seed"]) for fold in folds] or [shares]
        method, plan = self.methods[one["method"]], replace(self.plan, rho=one["rho"])
        why: Exception | None = None

        def error(values: Settings) -> float:
            nonlocal why
            try:
                model = method.made(values)
                return float(np.mean([model.train(part, plan, one, Recorder()).test_rmse for part in parts]))
            except RmoptError as refused:
                # A step size that diverges on some fold is out.
                why = refused
                return float("inf")

        # Of gossip those that end alike.
        near = 1.01 if isinstance(method.estimator, Gossip) else 1.0
        points, errors = grown(
            method.grid, lambda points: np.array([error(values) for values in points]),
            lambda errors: np.flatnonzero(errors <= near * errors.min()),
            lambda what: self.run.say(f"{self.label(one)}: {what}"),
        )  # fmt: skip
        if errors.min() == float("inf"):
            raise InvalidInputError(
                f"none of the {len(method.grid)} choices of the grid could be trained on every fold "
                f"({str(why).rstrip('.')}); give more --folds, so that more is left to train on, or no --select."
            ) from why
        alike = [point for point, error in zip(points, errors, strict=True) if error <= near * errors.min()]
        if not isinstance(method.estimator, Gossip):
            return {"parameters": alike[0]}
        # Of plans that end alike, the one that begins fastest.
        return {"parameters": max(alike, key=itemgetter("step_size", "decay"))}

    def _trained(self, one: Settings, shares: Shares) -> Cell:
        """Train a model, and return what is measured of it; with the first seed also its trace."""
        method, n, plan = self.methods[one["method"]], one["agents"], replace(self.plan, rho=one["rho"])
        edges = as_graph(plan.graph, n).edges

        def gap(points: Parts) -> float:
            manifold = Grassmann(shares.tasks.n_rows, one["rank"])
            bases = [np.linalg.qr(point)[0] for point in points]
            return float(np.mean([manifold.dist(bases[i], bases[j]) for i, j in edges]))

        first = one["seed"] == self.run.seed
        metrics = {"train_mse": shares.train_mse, "gap": gap} if first else {}
        steps = max(1.0, plan.n_epochs * len(edges))
        # Dense at the start.
        at = sorted({round(step) for step in np.geomspace(max(1.0, steps / 200), steps, MEASURED)})
        # Several bars at a time would be drawn over one another.
        alone = self.run.progress and self.comparison.n_jobs == 1
        recorder = Recorder(metrics, at=at, progress=alone, description=method.label)
        stem = "-".join(str(one[key]) for key in ("method", "agents", "rank", "rho", "seed"))
        saved = self.run.path(f"checkpoint-{''.join(c if c.isalnum() else '-' for c in stem)}.npz")
        try:
            trained = method.made(one["parameters"]).train(shares, plan, one, recorder, saved)
        except DivergedError:
            # Several processes would wait for each other.
            if self.world.size > 1:
                raise
            return dict.fromkeys(UNMEASURED) | {"used": one["parameters"] or None, "trace": []}
        if self.world.size == 1:
            # What the cell tells need not be trained again.
            saved.unlink(missing_ok=True)
        subspace = None
        if first and self.keep_subspaces and trained.mean is not None:
            subspace = f"subspaces/{joblib.hash(one)[:8]}.npy"
            self.run.path(subspace).parent.mkdir(exist_ok=True)
            np.save(self.run.path(subspace), trained.mean)
        between = method.estimator.decentral and trained.points is not None
        return {
            "test_rmse": trained.test_rmse,
            "train_mse": trained.train_mse,
            "disagreement": gap(trained.points) if between else None,
            "updates": trained.updates / n if trained.updates else None,
            "seconds": trained.seconds,
            # What "auto" and cross-validation came to.
            "used": ({} if trained.rho is None else {"rho": trained.rho}) | one["parameters"] or None,
            "kilobytes_sent": trained.bytes / 1e3 or None,
            "trace": [[row["updates"] / n, row["train_mse"], row["gap"]] for row in recorder.rows],
            "subspace": subspace,
        }
