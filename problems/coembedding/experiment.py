"""The experiment ``rmopt run coembedding``: multi-label classification (Mirzazadeh et al. 2015, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from joblib import parallel_config
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.metrics import f1_score, hamming_loss
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.coembedding.baselines import searched, unit_scaling
from problems.coembedding.cost import MultilabelCoembedding
from problems.coembedding.estimators import CoembeddingClassifierCV, checked_betas, local_optima, minimise
from problems.comparison import Difference, Experiment, Kept, Row, near, split
from problems.data import MultilabelBundle
from problems.methods import Cell, Method, Settings, rows_of
from problems.palette import Panel, draw_panels
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.costs import Trace
from rmopt.experiments import Claim
from rmopt.solvers import RankIncremental

# Of indicators of labels; an F1 without any label is 0. scikit-learn's own scorers fail where labels are constant.
MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "hamming": lambda true, predicted: 1.0 - float(hamming_loss(true, predicted)),
    "micro_f1": partial(f1_score, average="micro", zero_division=0.0),
    "macro_f1": partial(f1_score, average="macro", zero_division=0.0),
}
NAMES = {"hamming": "Hamming score", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
# Weight of the trace in the picture of local optima.
OPTIMA_BETA = 1.0
# Training rows of the example, so that it ends within a minute or so.
EXAMPLE = 200
# Local optima within this share of the global minimum are the global one; measures are comparable within the second.
SAME, COMPARABLE = 1e-5, 0.015


def scored(model: Any, X: Any, Y: Array) -> float:
    """Return the micro-F1 of a model, which cross-validation maximises."""
    return MEASURES["micro_f1"](Y, model.predict(X))


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
    random_state : int
        Of the order of a chain.
    """

    scheme: str
    base: str
    betas: Sequence[float] = (1.0,)
    cv: int = 5
    random_state: int = 0

    def fit(self, X: Any, Y: Array) -> Self:
        """Choose and fit; what was chosen is `chosen_`."""
        # Parts of a model in threads, each with one thread of BLAS.
        with threadpool_limits(1, user_api="blas"), parallel_config("threading"):
            if self.scheme == "ila":
                self.scaling_ = unit_scaling(X).fit(X)
                how: dict[str, Any] = {"loss": self.base, "cv": self.cv, "scoring": scored, "n_jobs": -1}
                model = CoembeddingClassifierCV(list(self.betas), **how).fit(self.scaling_.transform(X), Y)
                self.chosen_ = {
                    "beta": model.beta_,
                    "rank": model.rank_,
                    "gap": model.gap_ / model.objective_,
                }
            else:
                model = searched(self.scheme, self.base, self.random_state, X, self.cv, scored).fit(X, Y)
                self.chosen_ = {name: str(value) for name, value in model.best_params_.items()}
        self.model_ = model
        return self

    def predict(self, X: Any) -> Array:
        """Return indicators of labels."""
        return self.model_.predict(self.scaling_.transform(X) if self.scheme == "ila" else X)


METHODS: dict[str, Method] = {"ila": Method("ILA", Multilabel("ila", "softmax"))} | {
    f"{scheme}-{base}": Method(f"{scheme.upper()}, {base.upper()}", Multilabel(scheme, base))
    for scheme in ("br", "clr", "cc")
    for base in ("svm", "lr")
}
# Mirzazadeh et al. (2015), Tables 2 to 4: by data set and method, in the order of MEASURES.
_TABLES = {
    "emotions": "80.2 80.9 77.1 79.9 76 79 75.2|65.9 66.3 63.2 70.1 64.5 65.9 60.3|64.4 62.3 62 69 63.8 64.3 59.3",
    "scene": "88 88.7 81.9 89.7 85.7 88.9 80.9|65.9 66.8 49.5 72.2 61.8 68.8 50.1|66.8 67.6 50.6 73.3 63.3 69.8 50.9",
}  # fmt: skip
PRINTED = {
    data: dict(
        zip(METHODS, zip(*(map(float, row.split()) for row in rows.split("|")), strict=True), strict=True)
    )
    for data, rows in _TABLES.items()
}
METHODS["ila-hinge"] = Method("ILA (squared hinge)", Multilabel("ila", "squared_hinge"))


def measures(true: Array, predicted: Any) -> dict[str, float]:
    """Return all measures of predicted labels, in per cent, or refuse what is no table of 0 and 1."""
    table = rows_of("predict(X)", predicted, *true.shape)
    table = table.toarray() if issparse(table) else table
    if not np.isin(table, (0, 1)).all():
        raise InvalidInputError("predict(X) must be 0 where a label does not apply and 1 where it does.")
    return {name: 100.0 * measure(true, table.astype(int)) for name, measure in MEASURES.items()}


@dataclass(kw_only=True)
class Coembedding(Experiment):
    """Classify with several labels: co-embedding beside binary relevance, label ranking and chains.

    Samples, labels and a threshold are embedded so that a label applies where it is nearer than the threshold; a
    certificate says that the embedding is the global minimum. ila has the paper's loss, ila-hinge one of ours that
    decides every label by itself. Beside ila, local optimisation of factors with d columns is started from many
    random places: the spread of the optima shrinks as d grows.

    The default run is small and takes about a minute on two cores; --rows 1000 --starts 200 --optima-rows 200, with
    all --methods, takes ten.
    """

    data: Annotated[options.Data, MultilabelBundle] = "digits-labels"
    rows: Annotated[
        int,
        Option(
            min=0, help="Training rows; 0: 1,000, or two thirds of the smaller sets; of digits-labels 200."
        ),
    ] = 0
    betas: Annotated[str, Option(help="Weights of the trace, with commas between.")] = "0.05,0.5,1,2,5,10,20"
    seeds: options.SeedsOrPublished = 3
    methods: Annotated[str, options.methods_option(METHODS)] = "ila,br-svm,br-lr,cc-svm,cc-lr"
    starts: Annotated[int, Option(min=0, help="Random starts for the picture of local optima; 0: none.")] = 20
    optima_rows: Annotated[int, Option(min=0, help="Training rows in that picture; 0: all.")] = 100
    # Methods choose in `fit`, along paths.
    select: options.Selection = field(init=False, default="none")

    name: ClassVar = "coembedding"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    score: ClassVar = staticmethod(scored)
    common: ClassVar = ("rows", "folds", "betas", "starts", "optima_rows")
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
        self.columns = {measure: f"{measure}_sem" for measure in MEASURES}
        betas = checked_betas(options.positive_numbers(self.betas, "--betas"))
        for name in self.chosen.keys() & METHODS.keys():
            made = self.chosen[name].made(cv=self.folds, betas=betas)
            self.chosen[name] = replace(self.chosen[name], estimator=made)

    def settings(self) -> list[Settings]:
        n = len(self.bundle.test)
        self.rows = self.rows or (
            EXAMPLE if self.data == "digits-labels" else 1000 if n > 1500 else 2 * n // 3
        )
        self.kept = Kept(self.part, 8)
        return [{"method": name, "code": kind.code} for name, kind in self.chosen.items()]

    def part(self, seed: int) -> SimpleNamespace:
        """Return training and test rows of a seed, with tables of labels."""
        part = split(self.bundle if self.published else self.bundle.with_training_rows(self.rows, seed))
        part.y, part.y_test = (labels.toarray().astype(int) for labels in (part.y, part.y_test))
        return part

    def header(self) -> str:
        (n, features), labels = self.kept(self.run.seed).X.shape, self.bundle.Y.shape[1]
        about = f"{n:,} rows for training, {features:,} features, {labels} labels"
        return f"{self.bundle.name} ({self.bundle.source}): {about}, {self.splits}"

    def model(self, one: Settings) -> Any:
        return self.chosen[one["method"]].made(random_state=one["seed"])

    def measure(self, model: Any, part: SimpleNamespace) -> Cell:
        return measures(part.y_test, model.predict(part.X_test)) | {"chosen": getattr(model, "chosen_", {})}

    def measured(self, one: Settings) -> Cell:
        looks = self.starts and one["method"] == "ila" and one["seed"] == self.run.seed
        return super().measured(one) | {"optima": self.optima(self.kept(one["seed"])) if looks else None}

    def optima(self, part: SimpleNamespace) -> Cell:
        """Return how far local optima of some training rows are above the global minimum, by numbers of columns."""
        X = unit_scaling(part.X).fit_transform(part.X)
        loss = MultilabelCoembedding(X[: self.optima_rows or None], part.y[: self.optima_rows or None])
        with threadpool_limits(1, user_api="blas"):
            best = minimise(loss, OPTIMA_BETA, RankIncremental(tol=1e-7))
            rank, minimum = best.point.rank, best.certificate.objective
            # At most nine numbers of columns: from 1 on, and just below, at and above the optimal rank.
            below = np.linspace(1, max(rank - 1, 1), 7).round().astype(int)
            ranks = sorted({*below.tolist(), max(rank, 1), rank + 1})
            with self.run.ticks("random starts", self.starts * len(ranks)) as tick:
                optima = local_optima(loss + Trace(OPTIMA_BETA), ranks, self.starts, self.run.seed, tick)
        return {
            "rank": rank,
            "excess": {d: (values / minimum - 1.0).tolist() for d, values in optima.items()},
        }

    def used(self, row: Row) -> list[Settings]:
        return [cell.get("chosen", {}) for cell in row.cells]

    def row(self, row: Row) -> Cell:
        printed = PRINTED.get(self.bundle.name, {}).get(row["method"], ())
        paper = {f"{measure}_paper": level for measure, level in zip(MEASURES, printed, strict=False)}
        numbers = super().row(row) | paper
        return {key: numbers[key] for key in self.headings if key in numbers}

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        optima = self.looked_at(rows)
        return table_claims(rows, self.bundle.name) + (optima_claims(**optima) if optima else [])

    @staticmethod
    def looked_at(rows: Sequence[Row]) -> Cell | None:
        """Return the local optima, which the first cell of ILA has."""
        return next((row.cells[0]["optima"] for row in rows if row.cells[0]["optima"]), None)

    def draw(self, rows: Sequence[Row]) -> None:
        if optima := self.looked_at(rows):
            lines = {
                name: [(d, max(float(of(values)), 1e-12)) for d, values in optima["excess"].items()]
                for name, of in (("largest", np.max), ("median", np.median), ("least", np.min))
            }
            panel = Panel("d, number of columns", "local optima, excess over the global one", lines, "y")
            title = f"{self.bundle.name}: the global minimum has rank {optima['rank']}"
            self.run.draw("optima.png", draw_panels, [panel], title)


def table_claims(rows: Sequence[Row], data: str) -> list[Claim]:
    """Return the claims of Tables 2 to 4 with the verdict of the numbers."""
    ila = next((row for row in rows if row["method"] == "ila"), None)
    if ila is None:
        return []
    others, made = [row for row in rows if not row["method"].startswith("ila")], []
    for name, measure in NAMES.items() if others else ():
        best = max(others, key=lambda row: row.mean(name))
        most = Difference.of(ila.cells, best.cells, name), COMPARABLE * best.mean(name)
        claim = f"ILA is comparable to the best of the others in {measure} (within {COMPARABLE:.1%})"
        numbers = f"{ila.mean(name):.1f}; best {best.label} {best.mean(name):.1f}"
        made.append(near(claim, {"by split": most}, numbers, "other methods"))
    if data in PRINTED:
        levels = dict(zip(MEASURES, PRINTED[data]["ila"], strict=True))
        numbers = ", ".join(f"{NAMES[name]} {ila.mean(name):.1f} ({level})" for name, level in levels.items())
        reached = all(ila.mean(name) >= level for name, level in levels.items())
        made.append(Claim("ILA reaches the paper's row (printed numbers in brackets)", reached, numbers))
    return made


def optima_claims(excess: Mapping[int, Sequence[float]], rank: int) -> list[Claim]:
    """Return the claims about local optima (Figure 3), given their excess over the global minimum of some rank."""
    spread, largest = ({d: float(of(values)) for d, values in excess.items()} for of in (np.ptp, np.max))
    enough = [d for d in excess if d >= rank]
    single = next((d for d in spread if all(spread[e] <= SAME for e in spread if e >= d)), None)
    text = ", ".join(f"d = {d}: {largest[d]:.1e}" for d in enough)
    return [
        Claim(
            f"every local optimum is global once there are d* = {rank} columns or more",
            all(largest[d] <= SAME for d in enough) if enough else None,
            f"largest excess over the minimum, {text}",
        ),
        Claim(
            "the spread of local optima shrinks to one value at or before d*",
            single is not None and single <= rank,
            f"spread {max(spread.values()):.1e} at most; below {SAME:g} of the minimum from d = {single} on",
        ),
    ]
