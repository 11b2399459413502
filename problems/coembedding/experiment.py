"""The experiment ``rmopt run coembedding``: multi-label classification (Mirzazadeh et al. 2015, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from joblib import parallel_config
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import f1_score, hamming_loss
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.coembedding.baselines import searched, unit_scaling
from problems.coembedding.cost import MultilabelCoembedding
from problems.coembedding.estimators import (
    BETAS,
    CoembeddingClassifier,
    CoembeddingClassifierCV,
    checked_betas,
    local_optima,
    minimise,
)  # fmt: skip
from problems.comparison import (
    Comparison,
    Difference,
    Experiment,
    Kept,
    Row,
    above,
    at_an_edge,
    averaged,
    near,
    trained,
)
from problems.data import MultilabelBundle
from problems.methods import Cell, Method, Settings, rows_of
from problems.palette import COLOURS, finish, logarithmic, style, whole_ticks
from problems.thresholds import AIMS, LabelThresholds, calibrated_f1
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, one_of
from rmopt.costs import Trace
from rmopt.experiments import Claim, Outcome, Run
from rmopt.solvers import RankIncremental

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of indicators of labels; an F1 without any label is 0. scikit-learn's own scorers fail where labels are constant.
MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "hamming": lambda true, predicted: 1.0 - float(hamming_loss(true, predicted)),
    "micro_f1": partial(f1_score, average="micro", zero_division=0.0),
    "macro_f1": partial(f1_score, average="macro", zero_division=0.0),
}
NAMES = {"hamming": "Hamming score", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
SCORERS: dict[str, Callable[..., float]] = {
    name: partial(lambda measure, model, X, Y: MEASURES[measure](Y, model.predict(X)), measure)
    for name, measure in {"hamming": "hamming", "f1_micro": "micro_f1", "f1_macro": "macro_f1"}.items()
} | {"f1_calibrated": calibrated_f1}
# Beside the thresholds that a classifier learns itself.
OWN, NAMES_OF_AIMS = "own", {"f1": "F1", "hamming": "Hamming"}
# Weight of the trace in the picture of local optima.
OPTIMA_BETA = 1.0
# Training rows of the example, so that it ends within a minute or so.
EXAMPLE = 200
# Local optima within this share of the global minimum are the global one.
SAME = 1e-5
# What of the Hamming score may be given up, in per cent; measures are comparable that differ by the second, a share.
GIVEN_UP, COMPARABLE = 0.5, 0.015


@dataclass(eq=False, repr=False)
class Multilabel(BaseEstimator):
    """A multi-label classifier whose parameters are chosen by cross-validation, and the scaling of what it sees.

    Co-embeddings see standardised rows of length 1, or of counts tf-idf rows of length 1.

    Parameters
    ----------
    scheme : {"ila", "br", "clr", "cc"}
    base : str
        The loss of a co-embedding, or "svm" or "lr".
    betas : sequence of float
        Weights of the trace to choose among.
    cv : int
        Folds.
    scoring : str
        What is maximised, one of `SCORERS`.
    thresholds : bool
        Whether to predict with those of `LabelThresholds` too.
    random_state : int
        Of the order of a chain.
    """

    scheme: str
    base: str
    betas: Sequence[float] = BETAS
    cv: int = 5
    scoring: str = "f1_micro"
    thresholds: bool = False
    random_state: int = 0

    def fit(self, X: Any, Y: Array) -> Self:
        """Choose and fit; what was chosen is `chosen_`."""
        # Parts of a model in threads, each with one thread of BLAS.
        with threadpool_limits(1, user_api="blas"), parallel_config("threading"):
            if self.scheme == "ila":
                self.scaling_ = unit_scaling(X)
                X = self.scaling_.fit_transform(X)
                choice: dict[str, Any] = {
                    "loss": self.base,
                    "cv": self.cv,
                    "scoring": SCORERS[self.scoring],
                    "n_jobs": -1,
                }
                model = CoembeddingClassifierCV(list(self.betas), **choice).fit(X, Y)
                again = CoembeddingClassifier(model.beta_, loss=self.base)
                self.chosen_ = {
                    "beta": model.beta_, "rank": model.rank_, "gap": model.gap_ / model.objective_,
                    "cv_scores": model.scores_.mean(axis=1).tolist(), "fit_seconds": model.history_[-1]["seconds"],
                    "edge": at_an_edge(model.beta_, self.betas),
                }  # fmt: skip
            else:
                scorer = SCORERS[self.scoring]
                search = searched(self.scheme, self.base, self.random_state, X, self.cv, scorer).fit(X, Y)
                model, again = search.best_estimator_, clone(search.best_estimator_)
                found = {name: str(value) for name, value in search.best_params_.items()}
                alike = [
                    one for one in search.cv_results_["params"] if str(one["scaling"]) == found["scaling"]
                ]
                edges = [
                    at_an_edge(search.best_params_[name], [one[name] for one in alike]) for name in found
                ]
                self.chosen_ = found | {"edge": any(edges)}
            self.models_ = {OWN: model}
            if self.thresholds:
                calibrated = LabelThresholds(again, cv=self.cv).fit(X, Y)
                self.models_ |= {aim: calibrated.aimed(aim) for aim in AIMS}
        return self

    def predict(self, X: Any, aim: str = OWN) -> Array:
        """Return indicators of labels."""
        return self.models_[aim].predict(self.scaling_.transform(X) if self.scheme == "ila" else X)


METHODS: dict[str, Method] = {"ila": Method("ILA", Multilabel("ila", "softmax"))} | {
    f"{scheme}-{base}": Method(f"{scheme.upper()}, {base.upper()}", Multilabel(scheme, base))
    for scheme in ("br", "clr", "cc")
    for base in ("svm", "lr")
}
# Mirzazadeh et al. (2015), Tables 2 to 4: by data set and method, in the order of MEASURES.
_TABLES = {
    "emotions": "80.2 80.9 77.1 79.9 76 79 75.2|65.9 66.3 63.2 70.1 64.5 65.9 60.3|64.4 62.3 62 69 63.8 64.3 59.3",
    "scene": "88 88.7 81.9 89.7 85.7 88.9 80.9|65.9 66.8 49.5 72.2 61.8 68.8 50.1|66.8 67.6 50.6 73.3 63.3 69.8 50.9",
    "yeast": "78.9 79.8 77 77.2 75.3 78.9 76|62.4 63.2 62 65 61.9 63.7 60|37.8 32.9 41.9 40.3 42.6 35.1 40.4",
    "mediamill":"90.4 90.3 87.4 87.8 87.7 89.9 86.3|58 55.4 55.1 59.7 58.7 50.7 53.1|16.2 10 29.9 21.4 31.7 8.9 29.5",
    "corel5k": "87.8 89.8 88.5 88.8 88 89.6 83.1|21.9 21.9 17.4 27.6 26.3 21.9 16.7|17.8 17.8 11.6 21.4 22 17.6 14.4",
}  # fmt: skip
PRINTED = {
    data: dict(
        zip(METHODS, zip(*(map(float, row.split()) for row in rows.split("|")), strict=True), strict=True)
    )
    for data, rows in _TABLES.items()
}
METHODS["ila-hinge"] = Method("ILA (squared hinge)", Multilabel("ila", "squared_hinge"))
OURS = ("ila", "ila-hinge")


def measures(true: Array, predicted: Any) -> dict[str, float]:
    """Return all measures of predicted labels, in per cent, or refuse what is no table of 0 and 1."""
    found = rows_of("predict(X)", predicted, *true.shape[:1], columns=true.shape[1])
    found = found.toarray() if issparse(found) else found
    if not np.isin(found, (0, 1)).all():
        raise InvalidInputError("predict(X) must be 0 where a label does not apply and 1 where it does.")
    return {name: 100.0 * measure(true, found.astype(int)) for name, measure in MEASURES.items()}


@dataclass(kw_only=True)
class Coembedding(Experiment):
    """Classify with several labels: co-embedding beside binary relevance, label ranking and chains.

    Samples, labels and a threshold are embedded so that a label applies where it is nearer than the threshold; a
    certificate says that the embedding is the global minimum. ila has the paper's loss, ila-hinge one of ours that
    decides every label by itself. A second part starts local optimisation of factors with d columns from many random
    places, and looks at how the spread of the optima shrinks as d grows.

    The default run is small and takes about a minute on two cores; --rows 1000 --starts 200 --optima-rows 200, with
    all --methods, takes ten.
    """

    data: Annotated[options.Data, MultilabelBundle] = "digits-labels"
    rows: Annotated[
        int, Option(help="Training rows; 0: 1,000, or two thirds of the smaller sets; of digits-labels 200.")
    ] = 0
    betas: Annotated[str, Option(help="Weights of the trace, with commas between.")] = ",".join(
        f"{b:g}" for b in BETAS
    )
    seeds: options.SeedsOrPublished = 3
    methods: Annotated[str, options.methods_option(METHODS)] = "ila,br-svm,br-lr,cc-svm,cc-lr"
    select_by: Annotated[str, Option(help=f"What cross-validation maximises: {', '.join(SCORERS)}.")] = (
        "f1_micro"
    )
    thresholds: Annotated[
        bool,
        Option("--thresholds", help="Measure methods also with thresholds for F1 and for the Hamming score."),
    ] = False
    starts: Annotated[int, Option(help="Random starts for the picture of local optima; 0: none.")] = 20
    optima_rows: Annotated[int, Option(help="Training rows in that picture; 0: all.")] = 100
    # Methods choose in `fit`, along paths.
    select: options.Selection = field(init=False, default="none")

    name: ClassVar = "coembedding"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    headings: ClassVar = {
        "hamming": "Hamming", "hamming_sem": "±", "hamming_paper": "paper", "micro_f1": "micro-F1",
        "micro_f1_sem": "±", "micro_f1_paper": "paper", "macro_f1": "macro-F1", "macro_f1_sem": "±",
        "macro_f1_paper": "paper", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = (
        "Where a claim fails here: this is a small example, 200 digits with labels made of their shapes; the paper's "
        "tables are of --data emotions and scene."
    )

    def check(self) -> None:
        self.weights = checked_betas(options.positive_numbers(self.betas, "--betas"))
        options.check_options(vars(self), rows=0, starts=0, optima_rows=0)
        one_of("--select-by", self.select_by, SCORERS)

    def settings(self) -> list[Settings]:
        n = self.bundle.X.shape[0]
        if self.published and self.rows:
            raise InvalidInputError("--seeds 0 takes the training rows of the data set; leave out --rows.")
        usual = EXAMPLE if self.data == "digits-labels" else 1000 if n > 1500 else 2 * n // 3
        usual = int(self.bundle.train.sum()) if self.published else usual
        self.n_train = self.rows or usual
        if not 2 <= self.n_train < n:
            raise InvalidInputError(
                f"--rows {self.rows} leaves no test rows: {self.bundle.name} has {n}; choose fewer."
            )
        integer("--folds", self.folds, 2, self.n_train)
        self.bundle_of = Kept(self.split, 8)
        return [
            {"method": name, "code": kind.code, "betas": self.weights if name in OURS else None}
            for name, kind in self.chosen.items()
        ]

    def split(self, seed: int) -> MultilabelBundle:
        """Return the data with the split of a seed."""
        return self.bundle if self.published else self.bundle.with_training_rows(self.n_train, seed)

    def header(self) -> str:
        return (
            f"{self.bundle.name} ({self.bundle.source}): {self.n_train:,} of {self.bundle.X.shape[0]:,} rows for "
            f"training, {self.bundle.X.shape[1]:,} features, {self.bundle.Y.shape[1]} labels, {self.splits}"
        )

    def about(self) -> Settings:
        return {name: getattr(self, name) for name in ("n_train", "folds", "select_by", "thresholds")}

    def measured(self, one: Settings) -> Cell:
        kind, part, about = (
            self.chosen[one["method"]],
            self.bundle_of(one["seed"]),
            {"random_state": one["seed"]},
        )
        ours = isinstance(kind.estimator, Multilabel)
        if ours:
            about |= {
                "cv": self.folds,
                "scoring": self.select_by,
                "thresholds": self.thresholds,
                "betas": self.weights,
            }
        X, Y, model = part.X, part.Y.toarray().astype(int), kind.made(**about)
        try:
            seconds = trained(model, X[part.train], Y[part.train]).seconds
        except DivergedError:
            return dict.fromkeys((*MEASURES, "seconds")) | {"chosen": {}}
        truth, aims = Y[part.test], AIMS if ours and self.thresholds else ()
        return measures(truth, model.predict(X[part.test])) | {
            "seconds": seconds, "chosen": getattr(model, "chosen_", {}),
            "aims": {aim: measures(truth, model.predict(X[part.test], aim)) for aim in aims},
        }  # fmt: skip

    def used(self, row: Row) -> list[Settings]:
        return [cell["chosen"] for cell in row.cells]

    def notes(self, rows: Sequence[Row]) -> list[str]:
        edges = [(row, sum(cell["chosen"].get("edge", False) for cell in row.cells)) for row in rows]
        return [
            f"{row.label}: what was chosen is at the edge of its grid on {times} of {len(row.cells)} splits"
            + "; try more --betas" * (row["method"] in OURS)
            for row, times in edges
            if times
        ]

    def row(self, row: Row) -> Cell:
        printed = PRINTED.get(self.bundle.name, {}).get(row["method"], ())
        paper = {f"{measure}_paper": level for measure, level in zip(MEASURES, printed, strict=False)}
        numbers = averaged(row.cells, **{measure: f"{measure}_sem" for measure in MEASURES}) | paper
        return {key: numbers[key] for key in self.headings if key in numbers}

    def __call__(self, run: Run) -> Outcome:
        outcome = super().__call__(run)
        aimed: list[Cell] = [{"method": row.label} | self.row(row) for row in self.aimed]
        return replace(outcome, rows=[*outcome.rows, *aimed])

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        # With thresholds a row has two more below the table.
        self.aimed = [
            Row(f"{row.label}, for {NAMES_OF_AIMS[aim]}", {"of": row["method"], "aim": aim}, [],
                [cell | cell["aims"][aim] for cell in row.cells])
            for aim in AIMS for row in rows if all(cell.get("aims") for cell in row.cells)
        ]  # fmt: skip
        made = table_claims(rows, self.bundle.name) + threshold_claims(rows, self.aimed)
        return made + self._optima() if self.starts else made

    def draw(self, rows: Sequence[Row]) -> None:
        self.run.draw("scores.png", draw_scores, rows, self.bundle.name, size=(9.0, 3.6))

    def _optima(self) -> list[Claim]:
        """Draw the local optima of some training rows, and return what they say."""
        part = self.bundle_of(self.run.seed).scaled()
        kept = np.flatnonzero(part.train)[: self.optima_rows or None]

        def look(_: Settings) -> Cell:
            loss = MultilabelCoembedding(part.X[kept], part.Y[kept])
            with threadpool_limits(1, user_api="blas"):
                best = minimise(loss, OPTIMA_BETA, RankIncremental(tol=1e-7))
                rank, minimum = best.point.rank, best.certificate.objective
                # At most nine numbers of columns: from 1 on, and just below, at and above the optimal rank.
                below = np.linspace(1, max(rank - 1, 1), 7).round().astype(int)
                ranks = sorted({*below.tolist(), max(rank, 1), rank + 1})
                self.run.say(
                    f"global minimum of {len(kept)} rows at beta = {OPTIMA_BETA:g}: {minimum:.6f}, rank {rank}, "
                    f"certified relative gap {best.certificate.relative_gap:.1e}"
                )
                with self.run.ticks("random starts", self.starts * len(ranks)) as tick:
                    cost = loss + Trace(OPTIMA_BETA)
                    optima = local_optima(cost, ranks, self.starts, self.run.seed, tick)
            return {"rank": rank, "minimum": minimum, "optima": [[d, list(one)] for d, one in optima.items()]}

        about: Settings = {"rows": self.n_train, "optima_rows": len(kept), "starts": self.starts}
        # What the table has computed stays.
        comparison = Comparison(self.run, self.resume if self.resume is None else True, **about)
        found = comparison.cell({"seed": self.run.seed, "data": self.bundle.name}, look)
        optima, rank, minimum = dict(found["optima"]), found["rank"], found["minimum"]
        title = f"{part.name}, {len(kept)} rows, {self.starts} random starts for each d"
        self.run.draw("optima.png", draw_optima, optima, minimum, rank, title)
        return optima_claims(optima, minimum, rank)


def table_claims(rows: Sequence[Row], data: str) -> list[Claim]:
    """Return the claims of Tables 2 to 4 with the verdict of the numbers."""
    ila = next((row for row in rows if row["method"] == "ila"), None)
    if ila is None:
        return []
    others, made = [row for row in rows if row["method"] not in OURS], []
    for name in MEASURES if others else ():
        best = max(others, key=lambda row: row.mean(name))
        most = Difference.of(ila.cells, best.cells, name), COMPARABLE * best.mean(name)
        made.append(
            near(
                f"ILA is comparable to the best of the others in {NAMES[name]} (within {COMPARABLE:.1%})",
                {"by split": most}, f"{ila.mean(name):.1f}; best {best.label} {best.mean(name):.1f}", "other methods",
            )
        )  # fmt: skip
    if data in PRINTED:
        levels = dict(zip(MEASURES, PRINTED[data]["ila"], strict=True))
        numbers = ", ".join(f"{NAMES[name]} {ila.mean(name):.1f} ({level})" for name, level in levels.items())
        reached = all(ila.mean(name) >= level for name, level in levels.items())
        made.append(Claim("ILA reaches the paper's row (printed numbers in brackets)", reached, numbers))
    return made


def threshold_claims(rows: Sequence[Row], aimed: Sequence[Row]) -> list[Claim]:
    """Return what co-embedding reaches beside the best of the others, thresholds for the same measure on all."""
    label, made = {row["method"]: row.label for row in rows}, []
    for measure, aim in {"hamming": "hamming", "micro_f1": "f1", "macro_f1": "f1"}.items():
        some = [row for row in aimed if row["aim"] == aim]
        others = [row for row in some if row["of"] not in OURS]
        for row in (row for row in some if row["of"] in OURS and others):
            best = max(others, key=lambda row: row.mean(measure))
            against = f"{label[best['of']]}, thresholds for {NAMES_OF_AIMS[aim]} on both"
            gap = Difference.of(row.cells, best.cells, measure)
            its = f"ours: the {NAMES[measure]} of {label[row['of']]}"
            if measure == "hamming":
                claim = f"{its} is within {GIVEN_UP} of {against}"
                made.append(near(claim, {"": (gap, GIVEN_UP)}, "by split", "others"))
            else:
                made.append(above(f"{its} is above {against}", {"": gap}, "others"))
    return made


def optima_claims(optima: Mapping[int, Any], minimum: float, rank: int) -> list[Claim]:
    """Return the claims about local optima (Figure 3) with the verdict of the numbers."""
    excess = {d: np.asarray(values) / minimum - 1.0 for d, values in optima.items()}
    spread, largest = ({d: float(of(some)) for d, some in excess.items()} for of in (np.ptp, np.max))
    enough = [d for d in optima if d >= rank]
    single = next((d for d in sorted(spread) if all(spread[e] <= SAME for e in spread if e >= d)), None)
    text = ", ".join(f"d = {d}: {largest[d]:.1e}" for d in enough)
    return [
        Claim(
            f"every local optimum is global once there are d* = {rank} columns or more",
            all(largest[d] <= SAME for d in enough) if enough else None,
            f"largest excess over the minimum, {text}" if enough else f"needs ranks up to {rank}",
        ),
        Claim(
            "the spread of local optima shrinks to one value at or before d*",
            single is not None and single <= rank,
            f"spread {max(spread.values()):.1e} at most; below {SAME:g} of the minimum "
            + (f"from d = {single} on" if single is not None else "at no d"),
        ),
    ]


def draw_scores(figure: Figure, rows: Sequence[Row], title: str) -> None:
    """Draw each measure of the rows of a table with its standard error, and what the paper printed."""
    figure.set_layout_engine("constrained")
    places, printed = np.arange(len(rows))[::-1], PRINTED.get(title, {})
    panels = figure.subplots(1, len(NAMES), sharey=True, squeeze=False)[0]
    for number_, (axes, (measure, name)) in enumerate(zip(panels, NAMES.items(), strict=True)):
        found = [averaged(row.cells, **{measure: "sem"}) for row in rows]
        means = np.array([one[measure] for one in found], dtype=float)
        errors = [one.get("sem") or 0.0 for one in found]
        axes.errorbar(means, places, xerr=errors, fmt="o", color=COLOURS[0], capsize=3, label="here")
        theirs = [
            (printed[row["method"]][number_], place)
            for row, place in zip(rows, places, strict=True)
            if row["method"] in printed
        ]
        if theirs:
            axes.plot(*zip(*theirs, strict=True), "D", mfc="none", color=COLOURS[1], label="paper")
        axes.set_yticks(places, [row.label for row in rows])
        axes.set(ylim=(-0.6, len(rows) - 0.4))
        finish(axes, f"{name} (test, %)")
    figure.suptitle(title)


def draw_optima(
    figure: Figure, optima: Mapping[int, Sequence[float]], minimum: float, rank: int, title: str
) -> None:
    """Draw how far the objectives of local optima, by number of columns, are above the global minimum."""
    figure.set_layout_engine("constrained")
    axes, rng = figure.subplots(), np.random.default_rng(0)
    for d, values in optima.items():
        excess = np.maximum(np.asarray(values) / minimum - 1.0, 1e-12)
        axes.plot(
            d + rng.uniform(-0.2, 0.2, len(excess)), excess, "o", markersize=3, alpha=0.5, color=COLOURS[0]
        )
    axes.axvline(rank, color=COLOURS[1], linestyle="--", label=f"d* = {rank}, the rank of the global minimum")
    axes.set(yscale="log", xticks=list(optima))
    finish(axes, "d, number of columns", "local optimum, excess over the global one", title)


def draw_curves(
    figure: Figure,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    xlabel: str,
    ylabel: str,
    title: str,
    decades: bool = False,
) -> None:
    """Draw curves in panels side by side: from titles of panels to labels to points (x, y)."""
    figure.set_layout_engine("constrained")
    found = figure.subplots(1, len(panels), sharey=decades, squeeze=False)[0]
    for place, (axes, (name, curves)) in enumerate(zip(found, panels.items(), strict=True)):
        for number_, (label, points) in enumerate(curves.items()):
            axes.plot(*np.array(points, dtype=float).reshape(-1, 2).T, label=label, **style(number_))
        for axis in (axes.xaxis, axes.yaxis) if decades else ():
            logarithmic(axis)
        if not decades:
            whole_ticks(axes.xaxis)
        finish(axes, xlabel, ylabel * (place == 0), name)
    figure.suptitle(title)
