"""The experiment ``rmopt run ranking``: figures 4 and 5 of the LORETA paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.multiclass import OneVsRestClassifier
from typer import Option

from problems import options
from problems.comparison import (
    Difference,
    Experiment,
    Kept,
    Learner,
    Row,
    above,
    against,
    averaged,
    crossed,
    mean_and_sem,
    split,
    trained,
)  # fmt: skip
from problems.data import MultilabelBundle
from problems.loreta import loreta_solver
from problems.methods import Cell, Method, Settings, rows_of
from problems.palette import draw_curve, draw_level, draw_trained, finish, style, whole_ticks
from problems.ranking.baselines import (
    GroupPerceptron,
    MatrixPerceptron,
    OmikujiTrees,
    PassiveAggressive,
    RidgeScores,
)  # fmt: skip
from problems.ranking.estimators import (
    INITS,
    LabelScores,
    LowRankLogisticRegression,
    epochs,
    ranking_cost,
    starting_point,
)  # fmt: skip
from problems.ranking.measures import (
    mean_average_precision,
    ndcg_at,
    precision_at,
    propensities,
    propensity_scored_precision_at,
)  # fmt: skip
from problems.thresholds import LabelThresholds
from rmopt.core import DivergedError, InvalidInputError, Problem
from rmopt.core.ambient import Array
from rmopt.experiments import Claim
from rmopt.manifolds import Euclidean, FixedRankEmbedded
from rmopt.solvers import Recorder, Solver

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL_RANKS = "10,20,40"
MEASURES = ("precision_at_1", "precision_at_3", "precision_at_5", "ndcg_at_5", "psp_at_1")
# Enough test rows for a curve against time; the table measures all.
CURVE_ROWS = 500
# The share of the training rows that calibrates.
CALIBRATING = 0.2
LINES = {"zero": "-", "identity": "--", "gaussian": ":", "": "-"}


@dataclass(eq=False, repr=False)
class LabelLearner(Learner):
    """A way to learn W, labels × features.

    Parameters
    ----------
    solver : callable
        Maps (step_size, max_iter=…, sampler=…) to the solver.
    step_size : float
        The step size, or bound C of passive–aggressive steps.
    sampling : {"exact", "warp"}
    full_rank : bool
        Whether W has all its L n numbers, starts at zero, and has no rank.
    rank, init, n_epochs, random_state
        See `LoretaLabelRanker`.
    """

    solver: Callable[..., Solver] = loreta_solver
    step_size: float = 0.1
    sampling: str = "exact"
    full_rank: bool = False
    rank: int = 10
    init: str = "zero"
    n_epochs: int = 5
    random_state: int = 0

    def parts(self, X: Any, Y: Any) -> tuple[Solver, Problem, Any]:
        cost = ranking_cost(X, Y, self.sampling)
        solver = self.solver(self.step_size, max_iter=self.n_epochs * cost.n_terms, sampler=epochs(cost))
        if self.full_rank:
            return solver, Problem(Euclidean(*cost.shape), cost), np.zeros(cost.shape)
        manifold = FixedRankEmbedded(*cost.shape, self.rank)
        start = starting_point(manifold, cost, self.init, self.random_state, self.step_size)
        return solver, Problem(manifold, cost), start

    def decision_function(self, X: Any, point: Any = None) -> Array:
        """Return the scores of all labels, of what was learned or at a point."""
        return LabelScores(self.point_ if point is None else point)(X)


# What a method of label ranking must have one of, beside `fit`; the first that it has is used.
MEASURED_BY = ("decision_function", "predict_proba")


def scores_of(model: Any, X: Any) -> Array:
    """Return the score of each label for each row, shape (n_rows, n_labels).

    Probabilities may be a list with one array of two columns for each label, as scikit-learn's forests give them.
    """
    if hasattr(model, "decision_function"):
        return rows_of("decision_function(X)", model.decision_function(X), X.shape[0])
    found = model.predict_proba(X)
    if isinstance(found, list):
        # Where a label is the same in all rows there is one column.
        ends = [np.ravel(known)[-1] for known in getattr(model, "classes_", [(0, 1)] * len(found))]
        found = np.column_stack(
            [one[:, -1] if end else 1.0 - one[:, -1] for one, end in zip(found, ends, strict=True)]
        )
    return rows_of("predict_proba(X)", found, X.shape[0])


def mean_precision(model: Any, X: Any, Y: Any) -> float:
    """Return the mean average precision of the labels of some rows."""
    return mean_average_precision(scores_of(model, X), Y)


def _powers(label: str, *parameters: Any, **more: Any) -> Method:
    return Method(
        label, LabelLearner(*parameters, **more), crossed(step_size=[10.0**power for power in range(-4, 4)])
    )


METHODS: dict[str, Method] = {
    "frequency": Method("label frequency", DummyClassifier(strategy="prior")),
    "ridge": Method("ridge", RidgeScores(), crossed(alpha=(0.1, 0.3, 1.0, 3.0, 10.0))),
    "one-vs-rest": Method(
        "one-vs-rest logistic", OneVsRestClassifier(LogisticRegression(C=10.0, solver="liblinear")),
        crossed(estimator__C=(1.0, 10.0, 100.0)),
    ),
    "omikuji": Method("omikuji", OmikujiTrees()),
    "low-rank-logistic": Method("low-rank logistic", LowRankLogisticRegression()),
    "loreta": _powers("LORETA-1"),
    "loreta-warp": _powers("LORETA-1, WARP", sampling="warp"),
    "pa": _powers("passive-aggressive", PassiveAggressive),
    "matrix-perceptron": _powers("Matrix Perceptron", MatrixPerceptron, full_rank=True),
    "group-perceptron": _powers("group perceptron", GroupPerceptron, 1.0, full_rank=True),
}  # fmt: skip


# The paper does not compare LORETA with them.
ELSEWHERE = ("loreta", "loreta-warp", "low-rank-logistic", "ridge", "one-vs-rest", "omikuji")


def best_starts(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return for each method the rows with its best start at each rank."""
    best: dict[str, dict[Any, Row]] = {}
    for row in sorted((row for row in rows if not row["calibrated"]), key=lambda row: row.mean("map")):
        best.setdefault(row["method"], {})[row["rank"]] = row
    return {name: sorted(some.values(), key=lambda row: row["rank"] or 0) for name, some in best.items()}


def ranking_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return what section 7.2.5 of the paper says about figures 4 and 5, with the verdict of the numbers."""
    best = best_starts(rows)
    ours = best.get("loreta", [])
    claims = [
        above(
            f"{_short(ours[0])} is above {_short(best[name][0])}, each with its best start",
            against(ours, best[name], "map"), name,
        )
        for name in dict.fromkeys(row["method"] for row in rows)
        if ours and name not in ELSEWHERE
    ]  # fmt: skip
    starts = {(row["init"], row["rank"]): row for row in rows if row["method"] == "loreta"}
    said = (
        (("identity", ours[0]["rank"], "lowest"), ("zero", ours[-1]["rank"], "highest"))
        if len(ours) > 1
        else ()
    )
    for init, rank, which in said:
        others = {
            f"over {other}": Difference.of(starts[init, rank].cells, row.cells, "map")
            for (other, at), row in starts.items()
            if at == rank and other != init and (init, rank) in starts
        }
        if others:
            claim = f"the {init} start of {_short(ours[0])} is the best at the {which} rank, {rank}"
            claims.append(above(claim, others, "two starts"))
    return claims


def _short(row: Row) -> str:
    return row.label.removesuffix(f", {row['init']}")


@dataclass(kw_only=True)
class Ranking(Experiment):
    """Rank labels: LORETA-1 with different starts, and with WARP sampling, beside its paper's other methods.

    Each example has several true labels, which should be ranked before the others (Shalit et al. 2012,
    section 7.2). Step sizes are chosen at the middle rank. The default run takes a minute and a half on two cores.
    """

    data: Annotated[options.Data, MultilabelBundle] = "scipy-parameters"
    seeds: options.SeedsOrPublished = 3
    folds: options.Folds = 3
    methods: Annotated[str, options.methods_option(METHODS)] = ",".join(METHODS)
    rank: Annotated[str | None, options.rank_option(USUAL_RANKS)] = None
    epochs: Annotated[int, Option(help="Passes of LORETA, passive-aggressive steps and perceptrons.")] = 10
    inits: Annotated[
        str, Option(help=f"Starts of LORETA and passive-aggressive steps: any of {', '.join(INITS)}.")
    ] = "zero,identity"
    calibrated: Annotated[
        bool,
        Option(help="Measure methods also by probabilities that a fifth of the training rows calibrates."),
    ] = False

    name: ClassVar = "ranking"
    known: ClassVar = METHODS
    measured_by: ClassVar = MEASURED_BY
    common: ClassVar = ("epochs",)
    splitter: ClassVar = KFold
    claims: ClassVar = staticmethod(ranking_claims)
    headings: ClassVar = {
        "map_sem": "± s.e.m.", "ndcg_at_5": "nDCG@5", "psp_at_1": "PSP@1", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = (
        "Where a claim fails here: with so few rows of few labels how often a label occurs says much; the paper's "
        "figures are of a million pictures."
    )

    def check(self) -> None:
        options.whole_numbers(USUAL_RANKS if self.rank is None else self.rank, "--rank")
        options.check_options(vars(self), epochs=1)
        self.ways = {"map": mean_precision}
        self.starts = list(options.chosen_from({name: name for name in INITS}, self.inits, "--inits"))
        missing = [
            self.chosen.pop(name).label
            for name, one in list(self.chosen.items())
            if isinstance(one.estimator, OmikujiTrees) and find_spec(one.estimator.package) is None
        ]
        self.absent = f"not installed: {', '.join(missing)}" if missing else ""
        if not self.chosen:
            raise InvalidInputError(f"--methods {self.methods!r}: {self.absent}; pip install 'rmopt[bench]'.")

    def settings(self) -> Iterator[Settings]:
        bundle, published = self.bundle, self.published
        self.kept = Kept(lambda seed: split((bundle if published else bundle.resplit(seed)).scaled()), 8)
        started = {
            name
            for name, one in self.chosen.items()
            if one.ranked and isinstance(one.estimator, LabelLearner)
        }
        # Each subgradient sums to zero over the labels, so from zero one direction of them is not reached.
        most = min(bundle.Y.shape[1] - bool(started and "zero" in self.starts), bundle.X.shape[1])
        self.ranks = options.ranks_within(self.run.say, self.rank, USUAL_RANKS, most)
        if self.absent:
            self.run.say(f"Left out, for they are {self.absent} (pip install 'rmopt[bench]').")
        rows = [
            {"method": name, "init": init, "rank": rank, "code": kind.code, "calibrated": False}
            for name, kind in self.chosen.items()
            for init in (self.starts if name in started else [""])
            for rank in (self.ranks if kind.ranked else [None])
        ]
        yield from rows
        if self.calibrated:
            able = {name for name, one in self.chosen.items() if hasattr(one.estimator, "decision_function")}
            if without := [one.label for name, one in self.chosen.items() if name not in able]:
                self.run.say(f"Not calibrated, for they have no decision_function: {', '.join(without)}.")
            yield from (one | {"calibrated": True} for one in rows if one["method"] in able)

    def header(self) -> str:
        bundle = self.bundle
        return (
            f"{bundle.name} ({bundle.source}): "
            f"{bundle.train.sum():,} training, {bundle.test.sum():,} test rows; {bundle.X.shape[1]:,} features, "
            f"{bundle.Y.shape[1]:,} labels, {bundle.Y.nnz / bundle.Y.shape[0]:.1f} a row; {self.splits}"
        )

    def label(self, one: Settings) -> str:
        about = [self.chosen[one["method"]].label, one["init"], "calibrated" * one["calibrated"]]
        return ", ".join(filter(None, about))

    def data_of(self, one: Settings) -> SimpleNamespace:
        return self.kept(one["seed"])

    def model(self, one: Settings) -> Any:
        kind, about = self.chosen[one["method"]], {name: one[name] for name in ("rank", "init") if one[name]}
        about |= {"n_epochs": self.epochs} if isinstance(kind.estimator, LabelLearner) else {}
        return kind.made(one["parameters"], random_state=one["seed"], **about)

    def choosing(self, one: Settings) -> Settings:
        middle = self.ranks[len(self.ranks) // 2] if one["rank"] else None
        return one | {"rank": middle, "calibrated": False}

    def measured(self, one: Settings) -> Cell:
        model, part, seed = self.model(one), self.data_of(one), one["seed"]
        X, Y, how = part.X_test, part.y_test, {}
        if one["calibrated"]:
            held_out = ShuffleSplit(1, test_size=CALIBRATING, random_state=seed)
            model = LabelThresholds(model, cv=held_out, pooled=True)
        elif isinstance(model, LabelLearner):
            some = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[:CURVE_ROWS])
            X_some, Y_some = X[some], Y[some]

            def watch(point: Any) -> float:
                return mean_average_precision(model.decision_function(X_some, point), Y_some)

            how["recorder"] = Recorder({"map": watch}, first=max(1, part.X.shape[0] // 16))
        try:
            training = trained(model, part.X, part.y, **how)
        except DivergedError:
            return dict.fromkeys(("map", *MEASURES, "seconds")) | {"curve": []}
        scores, ks = scores_of(model, X), [k for k in (1, 3, 5) if k <= Y.shape[1]]
        rare = propensity_scored_precision_at(scores, Y, propensities(part.y), ks[:1])
        self.keep(one, model)
        return dict.fromkeys(MEASURES) | {
            "map": mean_average_precision(scores, Y), "psp_at_1": rare[1], "seconds": training.seconds,
            **{f"precision_at_{k}": value for k, value in precision_at(scores, Y, ks).items()},
            **{f"ndcg_at_{k}": value for k, value in ndcg_at(scores, Y, ks[2:]).items()},
            "curve": [[row["seconds"], row["map"]] for row in training.history if row["step"] > 0],
        }  # fmt: skip

    def row(self, row: Row) -> Cell:
        label = self.chosen[row["method"]].label + ", calibrated" * row["calibrated"]
        about = {"method": label, "init": row["init"] or None, "rank": row["rank"]}
        return about | averaged(row.cells, map="map_sem", **dict.fromkeys(MEASURES))

    def draw(self, rows: Sequence[Row]) -> None:
        rows = [row for row in rows if row.whole and not row["calibrated"]]
        self.run.draw("ranking.png", draw_ranking, rows, self.bundle.name, size=(11.0, 5.2))


def draw_ranking(figure: Figure, rows: Sequence[Row], title: str) -> None:
    """Draw mean average precision against rank, and against training time with the best setting of each method."""
    figure.set_layout_engine("constrained")
    by_rank, by_time = figure.subplots(1, 2)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(row["method"] for row in rows))}
    for (name, init), some in groupby(rows, lambda row: (row["method"], row["init"])):
        group, number = list(some), numbers[name]
        if group[0]["rank"] is None:
            draw_level(by_rank, group[0].cells, group[0].label, number)
            continue
        found = [mean_and_sem(cell["map"] for cell in row.cells) for row in group]
        means, errors = [mean for mean, _ in found], [error or 0.0 for _, error in found]
        at = [row["rank"] for row in group]
        by_rank.errorbar(at, means, errors, linestyle=LINES[init], label=group[0].label, **style(number))
    for name, number in numbers.items():
        best = max((row for row in rows if row["method"] == name), key=lambda row: row.mean("map"))
        if best.cells[0]["curve"]:
            draw_curve(by_time, best, 0, 1, _short(best), **style(number))
        else:
            draw_trained(by_time, best.cells, _short(best), number)
    finish(by_rank, "rank", "mean average precision (test)")
    finish(by_time, "training time", title="best setting of each method", unit="s")
    whole_ticks(by_rank.xaxis)
    for axes in (by_rank, by_time):
        # There is no free place for this many lines inside the axes.
        axes.legend(
            fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, handlelength=4
        )
    figure.suptitle(title)
