"""The experiment ``rmopt run ranking``: figures 4 and 5 of the LORETA paper."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ndcg_score
from sklearn.model_selection import KFold
from sklearn.svm import LinearSVC
from typer import Option

from problems import options
from problems.comparison import Experiment, Kept, Learner, Row, above, against, crossed, split
from problems.data import MultilabelBundle
from problems.loreta import loreta_solver
from problems.methods import Cell, Method, Settings, rows_of
from problems.ranking import baselines, measures
from problems.ranking.cost import label_scores
from problems.ranking.estimators import (
    INITS,
    SAMPLINGS,
    LowRankLogisticRegression,
    epochs,
    starting_point,
)
from rmopt.core import Problem
from rmopt.core.ambient import Array
from rmopt.experiments import Claim
from rmopt.manifolds import Euclidean, FixedRankEmbedded
from rmopt.solvers import Recorder, Solver

USUAL_RANKS = "10,20,40"
# Enough test rows for a curve against time; the table uses all.
CURVE_ROWS = 500


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
        cost = SAMPLINGS[self.sampling](X, Y)
        solver = self.solver(self.step_size, max_iter=self.n_epochs * cost.n_terms, sampler=epochs(cost))
        if self.full_rank:
            return solver, Problem(Euclidean(*cost.shape), cost), np.zeros(cost.shape)
        manifold = FixedRankEmbedded(*cost.shape, self.rank)
        start = starting_point(manifold, cost, self.init, self.random_state, self.step_size)
        return solver, Problem(manifold, cost), start

    def decision_function(self, X: Any, point: Any = None) -> Array:
        """Return the scores of all labels, for the learned matrix or at a point."""
        return np.asarray(label_scores(self.point_ if point is None else point, X))


# A method needs `fit` and one of these, of which the first is used.
MEASURED_BY = ("decision_function", "predict_proba")


def scores_of(model: Any, X: Any) -> Array:
    """Return the score of each label for each row, shape (n_rows, n_labels).

    Probabilities may be a list with one array of two columns for each label, as scikit-learn's forests give them.
    """
    if hasattr(model, "decision_function"):
        return rows_of("decision_function(X)", model.decision_function(X), X.shape[0])
    found = model.predict_proba(X)
    if isinstance(found, list):
        # A label that is the same in all rows has a single column.
        ends = [np.ravel(known)[-1] for known in getattr(model, "classes_", [(0, 1)] * len(found))]
        found = np.column_stack(
            [one[:, -1] if end else 1.0 - one[:, -1] for one, end in zip(found, ends, strict=True)]
        )
    return rows_of("predict_proba(X)", found, X.shape[0])


def _powers(label: str, *parameters: Any, **more: Any) -> Method:
    return Method(
        label, LabelLearner(*parameters, **more), crossed(step_size=[10.0**power for power in range(-4, 4)])
    )


METHODS: dict[str, Method] = {
    "frequency": Method("label frequency", DummyClassifier(strategy="prior")),
    "ridge": Method("ridge", baselines.RidgeScores(), crossed(alpha=(0.1, 0.3, 1.0, 3.0, 10.0))),
    "one-vs-rest": Method(
        "one-vs-rest logistic", baselines.OneVsRest(LogisticRegression(C=10.0, solver="liblinear")),
        crossed(estimator__C=(1.0, 10.0, 100.0)),
    ),
    "svm": Method(
        "one-vs-rest SVMs", baselines.OneVsRest(LinearSVC()), crossed(estimator__C=(0.1, 0.3, 1.0, 3.0))
    ),
    "omikuji": Method("omikuji", baselines.OmikujiTrees()),
    "low-rank-logistic": Method("low-rank logistic", LowRankLogisticRegression()),
    "loreta": _powers("LORETA-1"),
    "loreta-warp": _powers("LORETA-1, WARP", sampling="warp"),
    "pa": _powers("passive-aggressive", baselines.PassiveAggressive),
    "matrix-perceptron": _powers("Matrix Perceptron", baselines.MatrixPerceptron, full_rank=True),
    "group-perceptron": _powers("group perceptron", baselines.GroupPerceptron, 1.0, full_rank=True),
}  # fmt: skip


# The paper does not compare LORETA with them.
ELSEWHERE = ("loreta", "loreta-warp", "low-rank-logistic", "ridge", "one-vs-rest", "svm", "omikuji")


def ranking_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims of section 7.2.5 on figures 4 and 5, with the verdict of the numbers."""
    # For each method the rows with its best start at each rank, in order of rank.
    best: dict[str, dict[Any, Row]] = {}
    for row in sorted(rows, key=lambda row: (row["rank"] or 0, row.mean("map"))):
        best.setdefault(row["method"], {})[row["rank"]] = row
    ours = list(best.pop("loreta", {}).values())
    names = {row["method"]: row.label.removesuffix(f", {row['variant']}") for row in rows}
    return [
        above(
            f"{names['loreta']} is above {names[name]}, each with its best start",
            against(ours, best[name].values()), name,
        )
        for name in names if ours and name not in ELSEWHERE
    ]  # fmt: skip


def _precision(model: Any, X: Any, Y: Any, *point: Any) -> float:
    """Return the mean average precision of a model, or of a learner at a point of its training."""
    scores = model.decision_function(X, *point) if point else scores_of(model, X)
    return measures.mean_average_precision(scores, Y)


@dataclass(kw_only=True)
class Ranking(Experiment):
    """Rank labels: LORETA-1 with different starts and WARP sampling, and its paper's other methods.

    Each example has several true labels, which should be ranked before the others (Shalit et al. 2012,
    section 7.2). Step sizes are chosen at the middle rank. The default run takes about a minute on two cores.
    """

    data: Annotated[options.Data, MultilabelBundle] = "scipy-parameters"
    seeds: options.SeedsOrPublished = 3
    folds: options.Folds = 3
    methods: Annotated[str, options.methods_option(METHODS)] = (
        "frequency,ridge,svm,low-rank-logistic,loreta,loreta-warp,pa,matrix-perceptron,group-perceptron"
    )
    rank: Annotated[str | None, options.rank_option(USUAL_RANKS)] = None
    epochs: Annotated[int, Option(min=1, help="Passes of the learners over the rows.")] = 10
    inits: Annotated[str, Option(help=f"Starts of the learners: any of {', '.join(INITS)}.")] = (
        "zero,identity"
    )

    name: ClassVar = "ranking"
    known: ClassVar = METHODS
    measured_by: ClassVar = MEASURED_BY
    common: ClassVar = ("epochs",)
    score: ClassVar = staticmethod(_precision)
    splitter: ClassVar = KFold
    claims: ClassVar = staticmethod(ranking_claims)
    picture: ClassVar = "ranking.png"
    ylabel: ClassVar = "mean average precision (test)"
    axes: ClassVar = {1: "training time, s"}
    headings: ClassVar = {
        "map_sem": "± s.e.m.", "ndcg_at_5": "nDCG@5", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = (
        "If a claim fails here: the rows are few, and the frequency of labels is a strong predictor."
    )

    def check(self) -> None:
        others = ("precision_at_1", "precision_at_3", "precision_at_5", "ndcg_at_5")
        self.columns = {"map": "map_sem"} | dict.fromkeys(others)
        options.whole_numbers(self.rank or USUAL_RANKS, "--rank")
        self.starts = list(options.chosen_from({name: name for name in INITS}, self.inits, "--inits"))

    def settings(self) -> Iterator[Settings]:
        bundle, published = self.bundle, self.published
        self.kept = Kept(lambda seed: split((bundle if published else bundle.resplit(seed)).scaled()), 8)
        # Each subgradient sums to zero over the labels, so one direction of them cannot be reached from zero.
        most = min(bundle.Y.shape[1] - 1, bundle.X.shape[1])
        self.ranks = options.ranks_within(self.run.say, self.rank, USUAL_RANKS, most)
        for name, kind in self.chosen.items():
            for init in self.starts if kind.ranked and isinstance(kind.estimator, LabelLearner) else [""]:
                for rank in self.ranks if kind.ranked else [None]:
                    yield {"method": name, "variant": init, "rank": rank, "code": kind.code}

    def model(self, one: Settings) -> Any:
        kind, about = self.chosen[one["method"]], {"rank": one["rank"], "random_state": one["seed"]}
        if isinstance(kind.estimator, LabelLearner):
            about |= {"n_epochs": self.epochs, "init": one["variant"] or "zero"}
        return kind.made(one["parameters"], **about)

    def choosing(self, one: Settings) -> Settings:
        return one | {"rank": self.ranks[len(self.ranks) // 2] if one["rank"] else None}

    def recorder(self, model: Any, part: SimpleNamespace, seed: int) -> Recorder | None:
        if not isinstance(model, LabelLearner):
            return None
        some = np.sort(np.random.default_rng(seed).permutation(part.X_test.shape[0])[:CURVE_ROWS])
        X, Y = part.X_test[some], part.y_test[some]
        value = partial(_precision, model, X, Y)
        return Recorder({"value": value}, first=max(1, part.X.shape[0] // 16))

    def measure(self, model: Any, part: SimpleNamespace) -> Cell:
        Y, scores = part.y_test, scores_of(model, part.X_test)
        ks = [k for k in (1, 3, 5) if k <= Y.shape[1]]
        return dict.fromkeys(self.columns) | {
            "map": measures.mean_average_precision(scores, Y),
            **{f"precision_at_{k}": value for k, value in measures.precision_at(scores, Y, ks).items()},
            **{f"ndcg_at_{k}": float(ndcg_score(Y.toarray(), scores, k=k)) for k in ks[2:]},
        }  # fmt: skip

    def row(self, row: Row) -> Cell:
        return {"rank": row["rank"]} | super().row(row)
