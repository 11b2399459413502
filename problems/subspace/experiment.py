"""The experiments ``rmopt run completion`` and ``rmopt run multitask``: in one place, and between agents.

Of Mishra et al. 2019, sections 6.2 and 6.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from time import perf_counter
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.model_selection import KFold
from typer import Option

from problems import options
from problems.comparison import Difference, Experiment, Kept, Row, above, crossed
from problems.data import Ratings, TaskBundle
from problems.methods import Cell, Method, Settings
from problems.subspace import baselines
from problems.subspace.als import WEIGHTS, BiasedALS, ImplicitALS, ScaledSGDCompletion
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import entries
from problems.subspace.estimators import RCGMC, RTRMC, BatchCompletion, GossipMatrixCompletion
from problems.subspace.multitask_estimator import AltMin, MultitaskSubspace, PooledRidge, is_constant
from problems.subspace.training import VARIANTS
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator
from rmopt.experiments import Claim
from rmopt.manifolds import Grassmann

# First step sizes with their decay: larger ones must fall faster.
STEPS = (
    (0.5, 0.2), (1.0, 0.2), (1.5, 0.2), (1.0, 2.0), (2.0, 2.0), (4.0, 5.0), (10.0, 30.0), (30.0, 100.0),
    (100.0, 300.0),
)  # fmt: skip
GRID = [{"step_size": step_size, "decay": decay} for step_size, decay in STEPS]
# Errors that differ by less than this share are level.
LEVEL = 0.03

METHODS: dict[str, Method] = {
    name: Method(label, estimator.set_params(handle_unknown="mean"), grid)
    for name, label, estimator, grid in (
        *(
            (name, f"{name.replace('-', ' ').title()} Gossip", GossipMatrixCompletion(variant=name), GRID)
            for name in VARIANTS
        ),
        ("euclidean", "Euclidean Gossip", baselines.EuclideanGossip(), GRID),
        ("tree", "L-BFGS along a tree", baselines.TreeCompletion(), ()),
        ("d-lmafit", "D-LMaFit", baselines.DLMaFitCompletion(), ()),
        ("rtrmc", "RTRMC (batch)", RTRMC(), ()),
        ("rcg", "Riemannian CG (batch)", RCGMC(), ()),
        ("biases", "biases alone", baselines.Biases(), [{"lam_effects": lam} for lam in (1.0, 3.0, 10.0)]),
        ("als", "ALS with biases", BiasedALS(), [{"lam": lam} for lam in (0.7, 1.0, 1.4)]),
        ("scaled-sgd", "Scaled SGD", ScaledSGDCompletion(), [{"lam": lam} for lam in (0.03, 0.04, 0.06)]),
        ("bayesian", "Bayesian (Gibbs)", BayesianCompletion(), ()),
        ("popular", "the most popular", baselines.MostPopular(), ()),
        ("neighbors", "BM25 neighbours", baselines.ItemNeighbors(), crossed(n_neighbors=(20, 100, 500))),
        ("implicit", "implicit ALS", ImplicitALS(), crossed(weights=WEIGHTS, alpha=(0.5, 1.0, 2.0))),
    )
} | {"myfm": Method("myfm", baselines.MyFM())}


@dataclass(kw_only=True)
class Completion(Experiment):
    """Complete a matrix: least squares with all entries in one place, and gossip between agents that share none.

    In gossip every agent fits a subspace to its own columns and agrees with its neighbours on a path. Ratings never
    leave an agent (Mishra et al. 2019, section 6.2). The default run, on a photograph, takes half a minute.
    """

    data: Annotated[options.Data, Ratings] = "picture"
    agents: Annotated[str, Option(help="Numbers of agents, separated by commas.")] = "6"
    rank: Annotated[str, options.rank_option("10 (20 for the picture)")] = ""
    lam: Annotated[float, Option(min=0, help="Weight λ that draws unknown entries towards 0.")] = 0.005
    updates: Annotated[float, Option(min=1e-3, help="Expected number of draws of each edge.")] = 100.0
    seeds: options.Seeds = 1
    methods: Annotated[str, options.methods_option(METHODS)] = "biases,als,rtrmc,stochastic,precon-parallel"
    select: options.Select = "none"

    name: ClassVar = "completion"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    common: ClassVar = ("lam", "updates")
    splitter: ClassVar = KFold
    headings: ClassVar = {
        "test_rmse": "RMSE", "ndcg": "nDCG@10", "sem": "± s.e.m.", "disagreement": "distance",
        "train_seconds": "train s",
    }  # fmt: skip

    def check(self) -> None:
        kinds = {getattr(kind.estimator, "_rates", True) for kind in self.chosen.values()}
        if len(kinds) > 1:
            raise InvalidInputError(
                "implicit, neighbors and popular make lists, measured by nDCG, and other --methods predict ratings, "
                "measured by RMSE; compare them in two runs, such as one with --methods popular,neighbors,implicit."
            )
        self.lists = kinds == {False}
        self.columns = {"ndcg" if self.lists else "test_rmse": "sem", "disagreement": None}
        self.counts = options.whole_numbers(self.agents, "--agents", 2)

    def settings(self) -> list[Settings]:
        bundle = self.bundle
        if bundle.values.min() == bundle.values.max() and not self.lists:
            raise InvalidInputError(
                f"all entries of {bundle.source} are {bundle.values[0]:g}: there is nothing to predict; take "
                "--methods popular,neighbors,implicit, for data without ratings."
            )
        self.share, usual_rank = (0.6, "20") if self.data == "picture" else (0.2, "10")
        self.ranks = options.ranks_within(self.run.say, self.rank, usual_rank, min(bundle.shape) - 1)
        self.kept = Kept(partial(entries_of, bundle, self.share), 1)
        # Compiled code is loaded before a clock starts.
        for name in self.chosen.keys() & METHODS.keys():
            METHODS[name].made(rank=1, random_state=0, n_agents=2).fit(
                np.argwhere(np.ones((4, 4))), np.arange(16.0)
            )
        # A method without agents is trained once for all numbers of them, and one without a rank once: both are 0.
        return [
            {"method": name, "code": kind.code, "rank": rank, "agents": n}
            for rank in [*self.ranks, 0]
            for name, kind in self.chosen.items()
            for n in [*self.counts, 0]
            if kind.ranked == bool(rank) and self.has_agents(name) == bool(n)
        ]

    def has_agents(self, method: str) -> bool:
        """Return whether a method uses agents, whose number the experiment sets."""
        return method in METHODS and "n_agents" in METHODS[method].estimator.get_params()

    def header(self) -> str:
        name, (rows, columns) = f"{self.bundle.name} ({self.bundle.source})", self.bundle.shape
        return f"{name}: {rows:,} × {columns:,}, {self.splits} with {self.share:.0%} held out"

    def label(self, one: Settings) -> str:
        signs: Settings = {"agents": ("N", self.counts), "rank": ("r", self.ranks)}
        more = [f"{sign} = {one[key]:g}" for key, (sign, all_) in signs.items() if one[key] and len(all_) > 1]
        return ", ".join([self.chosen[one["method"]].label, *more])

    def model(self, one: Settings) -> Any:
        kind, about = self.chosen[one["method"]], {"rank": one["rank"], "random_state": one["seed"]}
        # These options are for a subspace of all columns; a user's method takes its rank alone.
        if one["method"] in METHODS and hasattr(kind.estimator, "learn"):
            about |= {
                "lam": self.lam,
                "n_agents": one["agents"],
                "n_epochs": self.updates,
                "init": "independent",
            }
        return kind.made(one["parameters"], **about)

    def score(self, model: Any, pairs: Array, values: Array) -> float:
        """Return minus the root mean squared error within the limits of the ratings, or the nDCG of lists."""
        if self.lists:
            return float(model.score(pairs, values))
        found = np.clip(numbers("predict(pairs)", model.predict(pairs), values.shape), *self.bundle.limits)
        return -float(np.sqrt(np.mean((found - values) ** 2)))

    def measure(self, model: Any, part: SimpleNamespace) -> Cell:
        bases = getattr(model, "agents_", [])
        gaps = [Grassmann(*basis.shape).dist(basis, other) for basis, other in pairwise(bases)]
        score = self.score(model, part.X_test, part.y_test)
        found: Cell = {"ndcg": score} if self.lists else {"test_rmse": -score}
        found |= {"disagreement": float(np.mean(gaps)) if gaps else None}
        if self.data == "picture":
            found["pixels"] = np.asarray(model.predict(part.X_test), dtype=np.float32)
        return found

    def row(self, row: Row) -> Cell:
        about: Settings = {key: row[key] or None for key in ("agents", "rank")}
        return {"method": self.chosen[row["method"]].label} | about | super().row(row)

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        return completion_claims(rows, self.chosen)

    def draw(self, rows: Sequence[Row]) -> None:
        completed = {
            row.label: row.cells[0]["pixels"] for row in rows if row.cells[0].get("pixels") is not None
        }
        if completed:
            part, whole = self.kept(self.run.seed), self.bundle.table().toarray()
            self.run.draw("picture.png", draw_completed, whole, part.X_test, completed, size=(9.0, 6.4))


def entries_of(bundle: Ratings, share: float, seed: int) -> SimpleNamespace:
    """Return pairs and values of a bundle, a share of which is held out."""
    (pairs, values), out = entries(bundle), bundle.held_out(seed, share)
    return SimpleNamespace(X=pairs[~out], y=values[~out], X_test=pairs[out], y_test=values[out])


def draw_completed(figure: Any, whole: Array, hidden: Array, completed: Mapping[str, Array]) -> None:
    """Draw a photograph, its known pixels, and its hidden pixels as completed by each method.

    Its red, green and blue channels are side by side.
    """
    frames = {"known pixels": 1.0, **completed, "the photograph": whole[*hidden.T]}
    figure.set_layout_engine("constrained")
    grid = figure.subplots(-(-len(frames) // 3), 3, squeeze=False).ravel()
    for axes, (label, pixels) in zip(grid, frames.items(), strict=False):
        frame = whole.copy()
        frame[*hidden.T] = np.clip(pixels, 0.0, 1.0)
        axes.imshow(np.stack(np.split(frame, 3, axis=1), axis=-1))
        axes.set_title(label, fontsize="small")
    for axes in grid:
        axes.set_axis_off()


def completion_claims(rows: Sequence[Row], methods: Mapping[str, Method]) -> list[Claim]:
    """Return the claims of Tables 2 and 3: gossip is comparable to the batch method, and degrades with agents."""
    made = []
    for row in (row for row in rows if row["method"] in VARIANTS):
        for other in (other for other in rows if other["rank"] in (row["rank"], 0)):
            gap, mean = Difference.of(other.cells, row.cells, "test_rmse"), other.mean("test_rmse")
            if isinstance(methods[other["method"]].estimator, BatchCompletion):
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


# Features are used unscaled, as in the paper.
_PLAIN: Settings = {"scale": "none", "centre": "none"}
_PAPERS: Settings = {"rank": 5, "lam": 0.1, "shared": False, **_PLAIN}
REGRESSIONS: dict[str, Method] = {
    name: Method(f"{name.replace('-', ' ').title()} Gossip", MultitaskSubspace(variant=name, **_PAPERS))
    for name in VARIANTS
} | {
    "batch": Method("Trust regions (batch)", MultitaskSubspace(solver="batch", **_PAPERS)),
    "alt-min": Method("Alt-Min (batch)", AltMin(**_PLAIN)),
    "subspace": Method("shared vector, subspace", MultitaskSubspace(solver="batch")),
    "pooled": Method("pooled ridge", PooledRidge()),
    "slopes": Method("ridge, shrunk slopes", PooledRidge(slopes=True)),
}
# The paper does not compare gossip with them.
ELSEWHERE = ("batch", "subspace", "pooled", "slopes")
# Table 4: Stochastic Gossip by rank.
PRINTED = {"parkinsons": {3: 0.345, 5: 0.339, 7: 0.342, 9: 0.341}}


@dataclass(kw_only=True)
class Multitask(Experiment):
    """Learn features shared by regressions: gossip between agents, Alt-Min and the batch optimum.

    Without --data the regressions are generated, and share three features. That takes ten seconds on two cores. Those
    of --data alike share most of their coefficients, and differ in two dimensions. The methods of the paper take
    features unscaled. The method subspace has a shared vector, and its rank and weight by cross-validation. The
    methods pooled and slopes are pooled ridges with an effect of each task.

    Examples of each task are divided at random, 80 % for training. The error of a task is its mean squared error on
    the test part, divided by the variance of all its labels. The table also has it divided by that of the test labels
    alone.
    """

    data: Annotated[options.Data, TaskBundle] = "shared"
    agents: Annotated[int, Option(min=2, help="Number of agents.")] = 6
    rank: Annotated[str, options.rank_option("3,5,7,9")] = ""
    updates: Annotated[float, Option(min=1e-3, help="Expected number of draws of each edge.")] = 200.0
    seeds: options.Seeds = 1
    methods: Annotated[str, options.methods_option(REGRESSIONS)] = (
        "stochastic,precon-stochastic,batch,alt-min,subspace,pooled,slopes"
    )
    # No parameter is chosen.
    select: options.Selection = field(init=False, default_factory=lambda: "none")
    folds: int = field(init=False, default_factory=lambda: 2)

    name: ClassVar = "multitask"
    known: ClassVar = REGRESSIONS
    measured_by: ClassVar = ("predict",)
    common: ClassVar = ("agents", "updates")
    headings: ClassVar = {
        "nmse": "NMSE", "sem": "± s.e.m.", "nmse_test": "by test var.", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = "If a claim fails here: a rank far above three needs more examples or a larger λ."

    def check(self) -> None:
        self.columns = {"nmse": "sem", "nmse_test": None}

    def read(self, kind: Any) -> Any:
        made = {"shared": shared_features, "alike": alike}.get(self.data)
        return made() if made else super().read(kind)

    def settings(self) -> list[Settings]:
        ranks = options.ranks_within(self.run.say, self.rank, "3,5,7,9", self.bundle.X.shape[1] - 1)
        # A method without a rank, or that chooses it, is trained once.
        given = {name: kind.ranked and name != "subspace" for name, kind in self.chosen.items()}
        return [
            {"method": name, "rank": rank, "code": kind.code}
            for rank in [*ranks, 0]
            for name, kind in self.chosen.items()
            if given[name] == bool(rank)
        ]

    def header(self) -> str:
        bundle = self.bundle
        return f"{bundle.name} ({bundle.source}): {bundle.X.shape[1]} features, {self.splits}"

    def model(self, one: Settings) -> Any:
        # Of the options, a user's method takes its rank alone.
        about = {"n_agents": self.agents, "n_epochs": self.updates} if one["method"] in REGRESSIONS else {}
        return self.chosen[one["method"]].made(rank=one["rank"] or None, random_state=one["seed"], **about)

    def measured(self, one: Settings) -> Cell:
        bundle, model, test = self.bundle, self.model(one), self.bundle.held_out(one["seed"])
        begun = perf_counter()
        try:
            model.fit(bundle.X[~test], bundle.y[~test], bundle.task[~test])
        except DivergedError as error:
            return dict.fromkeys((*self.columns, "seconds")) | {"failed": str(error)}
        seconds = perf_counter() - begun
        X, which = bundle.X[test], bundle.task[test]
        predicted = numbers("predict(X, tasks)", model.predict(X, which), which.shape)
        return errors(bundle, test, predicted) | {"seconds": seconds}

    def row(self, row: Row) -> Cell:
        return {"rank": row["rank"] or None} | super().row(row)

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        return multitask_claims(rows, self.bundle.name)


def multitask_claims(rows: Sequence[Row], data: str) -> list[Claim]:
    """Return the claims of Table 4: gossip is as good as Alt-Min at every rank, and at the printed level."""
    made = []
    for row in (row for row in rows if row["method"] == "stochastic"):
        rank, mean = row["rank"], row.mean("nmse")
        for other in (other for other in rows if other["method"] not in (*VARIANTS, *ELSEWHERE)):
            if other["rank"] in (rank, 0):
                gap, level = Difference.of(other.cells, row.cells, "nmse"), other.mean("nmse")
                claim = f"rank {rank}: {row.label} is within {LEVEL:.0%} of {other.label}"
                made.append(above(claim, {"": gap}, other.label, LEVEL * level, f"{level:.3f}"))
        if printed := PRINTED.get(data, {}).get(rank):
            numbers = f"{mean:.3f}, printed {printed:.3f}"
            claim = f"rank {rank}: the error of Table 4, to {LEVEL:.0%}"
            made.append(Claim(claim, abs(mean / printed - 1.0) <= LEVEL, numbers))
    return made


def errors(bundle: TaskBundle, test: Array, predicted: Array) -> dict[str, float]:
    """Return the mean over tasks of squared error over variance: of all labels of a task, and of its test ones."""
    measured: dict[str, list[float]] = {"nmse": [], "nmse_test": []}
    for task in range(int(bundle.task.max()) + 1):
        rows = bundle.task[test] == task
        labels = bundle.y[test][rows]
        error = float(np.mean((predicted[rows] - labels) ** 2))
        # If all labels of a task are equal, there is no reference.
        for values, among in zip(measured.values(), (bundle.y[bundle.task == task], labels), strict=True):
            if not is_constant(among):
                values.append(error / among.var())
    return {name: float(np.mean(values)) if values else np.nan for name, values in measured.items()}


def shared_features() -> TaskBundle:
    """Return 60 regressions on 20 features, whose coefficients lie in three dimensions, with some noise."""
    rng, task = generator(0, Stream.TASKS), np.repeat(np.arange(60), 50)
    coef = rng.standard_normal((60, 3)) @ np.linalg.qr(rng.standard_normal((20, 3)))[0].T
    X = rng.standard_normal((len(task), 20))
    y = np.einsum("ij,ij->i", X, coef[task]) + 0.5 * rng.standard_normal(len(task))
    return TaskBundle("shared", "60 regressions that share 3 features", X, y, task)


def alike() -> TaskBundle:
    """Return 120 regressions with 20 to 200 examples each: shared coefficients, and differences of rank 2."""
    rng = generator(1, Stream.TASKS)
    task = np.repeat(np.arange(120), rng.integers(20, 201, 120))
    coef = rng.standard_normal(20) + 0.35 * rng.standard_normal((120, 2)) @ rng.standard_normal((2, 20))
    X, effects = rng.standard_normal((len(task), 20)), 1.3 * rng.standard_normal(120)
    y = np.einsum("ij,ij->i", X, coef[task]) + effects[task] + 9.0 * rng.standard_normal(len(task))
    return TaskBundle("alike", "120 regressions that share most of their coefficients", X, y, task)
