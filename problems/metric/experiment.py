"""The experiment ``rmopt run metric``: COMET compared with other metrics (Atzmon et al. 2015, section 5)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from scipy.sparse import issparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from typer import Option

from problems import options
from problems.comparison import Difference, Experiment, Kept, Row, above, crossed, mean_and_sem, split
from problems.data import ClassBundle
from problems.data.text import informative_unit_rows
from problems.evaluation import evaluate_retrieval, matrix_scores
from problems.methods import Cell, Method, Settings, rows_of
from problems.metric import BoostMetric, CometMetric, EuclideanMetric, HdslMetric, LegoMetric
from problems.metric.estimators import TRIPLETS, VOTERS, factor
from problems.palette import Panel, draw_panels
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import number, numbers
from rmopt.experiments import Claim
from rmopt.solvers import Recorder

TEST_FRACTION = 0.2
# The measures for selection and for convergence.
DEPTH = 10
# Enough test rows for a curve; tables use all.
MOST_QUERIES = 2000


@dataclass(eq=False)
class Trainee:
    """A metric with its training rows, whose classes vote. Equal draws give equal triplets."""

    metric: Any
    seed: int

    def fit(self, X: Any, y: Array, recorder: Recorder | None = None) -> None:
        self.rows, self.classes = X, y
        if recorder is None:
            self.metric.fit(X, y)
        else:
            self.metric._fit(X, y, self.seed, recorder=recorder)


# A metric needs `fit` and one of these, of which the first is used.
MEASURED_BY = ("get_mahalanobis_matrix", "transform")


def form(metric: Any, X: Any) -> tuple[Array, Any]:
    """Return W and rows of a metric: its matrix and the rows of X, or the identity and embeddings of them."""
    if hasattr(metric, "get_mahalanobis_matrix"):
        shape = X.shape[1], X.shape[1]
        return numbers("get_mahalanobis_matrix()", metric.get_mahalanobis_matrix(), shape), X
    rows = rows_of("transform(X)", metric.transform(X), X.shape[0])
    return np.eye(rows.shape[1]), rows


def precision(metric: Any, W: Array, rows: Any, y: Array, ks: Sequence[int] = (DEPTH,)) -> Any:
    """Return the precision of rows' rankings: by the distance of W, or by qᵀWp as in the method's cost."""
    distance = getattr(metric, "ranks_by", "distance") == "distance"
    return evaluate_retrieval(matrix_scores(W, rows, distance=distance), y, ks=ks)


def neighbour_votes(model: Trainee, X: Any, y: Array) -> float:
    """Return the share of rows whose class most of their nearest training rows have."""
    (W, rows), (_, tests) = form(model.metric, model.rows), form(model.metric, X)
    L = factor(W)
    voters = KNeighborsClassifier(VOTERS, algorithm="brute").fit(np.asarray(rows @ L.T), model.classes)
    return float(voters.score(np.asarray(tests @ L.T), y))


# For methods without support of sparse rows.
ARRAYS = FunctionTransformer(dense, accept_sparse=True)
COMET_GRID = crossed(alpha=(1e-6, 1e-5, 1e-4, 3e-4), beta=(1e-7, 1e-6, 1e-5))

METHODS: dict[str, Method] = {
    "euclidean": Method("Euclidean", EuclideanMetric()),
    "comet-default": Method("COMET, default", CometMetric()),
    "comet": Method("COMET", CometMetric(compare="similarity", tol=0.0), COMET_GRID),
    "comet-hinge": Method(
        "COMET, hinge", CometMetric(compare="similarity", loss="hinge", tol=0.0), COMET_GRID
    ),
    "comet-distance": Method(
        "COMET, distance", CometMetric(compare="distance", prior=0.2, tol=0.0),
        crossed(prior=(0.02, 0.2, 1.0), alpha=(1e-6, 1e-5, 1e-4, 1e-3)),
    ),
    "lego": Method(
        "LEGO", LegoMetric(),
        crossed(triplets=TRIPLETS, step_size=(0.003, 0.01, 0.03, 0.1, 1.0, 10.0, 100.0, 1000.0)),
    ),
    "boost": Method("BoostMetric", BoostMetric(), crossed(triplets=TRIPLETS, max_iter=(25, 100, 400))),
    "hdsl": Method("HDSL", HdslMetric(), crossed(scale=(100.0, 1000.0, 10_000.0))),
    "lda": Method(
        "LDA", make_pipeline(ARRAYS, LinearDiscriminantAnalysis(solver="eigen", shrinkage=1e-3)),
        crossed(lineardiscriminantanalysis__shrinkage=(1e-3, 1e-2, 0.1, 0.3, 0.6, 0.9)),
    ),
    "nca": Method("NCA", make_pipeline(ARRAYS, NeighborhoodComponentsAnalysis(max_iter=30))),
}  # fmt: skip
OURS = ("comet", "comet-hinge", "comet-distance", "comet-default")


# Figure 2 has every k up to the last of them.
DEPTHS = (1, 10, 50)
EARLIEST, LATEST = 6, 8
# A precision within this share of the last one has settled.
LEVEL = 0.005


def metric_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims of section 5, with the verdict of the numbers, and of COMET against a user's methods."""
    ours = [row for row in rows if row["method"] in OURS and row.whole]
    claims = []
    for row in rows if ours else ():
        if row["method"] not in OURS:
            gaps = {
                f"P@{k}": Difference.of(ours[0].cells, row.cells, name)
                for k in DEPTHS if ours[0].cells[0][name := f"precision_at_{k}"] is not None
            }  # fmt: skip
            claims.append(above(f"{ours[0].label} is above {row.label}", gaps, row.label))
    for row in (row for row in ours if row["method"] in ("comet-distance", "comet-default")):
        for other in (other for other in rows if other is not row):
            gaps = {"": Difference.of(row.cells, other.cells, "votes")}
            claims.append(above(f"{row.label} is above {other.label} in votes of neighbours", gaps, ""))
    # The others are not measured after each pass, or are our extensions.
    return claims + [_settles(row) for row in ours if row["method"] in ("comet", "comet-hinge")]


def _settles(row: Row) -> Claim:
    claim = f"the precision of {row.label} settles within {EARLIEST} to {LATEST} passes"
    mean, spread = mean_and_sem(np.array([cell["curve"] for cell in row.cells])[:, :, 2])
    if len(mean) < 2 * LATEST:
        return Claim(claim, None, f"needs --passes {2 * LATEST}")
    near = np.abs(mean[LATEST - 1 :] - mean[-1]) <= np.maximum(spread[-1], LEVEL * mean[-1])
    shown = ", ".join(f"{mean[passes - 1]:.3f} after {passes}" for passes in (EARLIEST, LATEST, len(mean)))
    return Claim(claim, bool(near.all()), f"P@10 {shown}")


@dataclass(kw_only=True)
class Metric(Experiment):
    """Learn a metric: COMET, LEGO, BoostMetric, HDSL and the plain Euclidean distance.

    Triplets (query, similar, dissimilar) are drawn from the classes of the training part. Each test row then ranks
    the others, and P@k is the share of its class among the first k (Atzmon et al. 2015, section 5). The default run
    takes about a minute on two cores.
    """

    data: Annotated[options.Data, ClassBundle] = "scipy-docs"
    seeds: options.SeedsOrPublished = 3
    methods: Annotated[str, options.methods_option(METHODS)] = (
        "euclidean,comet,comet-hinge,comet-default,lego,boost,hdsl,lda"
    )
    select: options.Select = "none"
    features: Annotated[int, Option(min=0, help="Number of features, by information gain; 0 for all.")] = 100
    triplets: Annotated[int, Option(min=0, help="Training triplets for all methods; 0 for 20 per row.")] = 0
    scaling: Annotated[
        Literal["unit", "raw"], Option(help="Rows of length 1, or divided by their mean length.")
    ] = "unit"
    select_by: Annotated[
        Literal["precision", "votes"], Option(help="The measure that --select maximises.")
    ] = "precision"
    passes: Annotated[float, Option(help="Coordinate steps of COMET, divided by the number of features.")] = (
        8.0
    )

    name: ClassVar = "metric"
    known: ClassVar = METHODS
    measured_by: ClassVar = MEASURED_BY
    common: ClassVar = ("features", "triplets", "passes", "scaling", "select_by")
    claims: ClassVar = staticmethod(metric_claims)
    headings: ClassVar = {
        "votes": "kNN", "votes_sem": "±", "precision_at_1": "P@1", "sem_at_1": "± s.e.m.", "precision_at_10": "P@10",
        "sem_at_10": "±", "precision_at_50": "P@50", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = "If a claim fails here: a hundred words are easy for all; try --select first."

    def check(self) -> None:
        self.columns = {"precision_at_1": "sem_at_1", "precision_at_10": "sem_at_10"}
        self.columns |= {"precision_at_50": None, "votes": "votes_sem", "map": None}
        number("--passes", self.passes, above=0)

    def settings(self) -> Iterator[Settings]:
        self.kept = Kept(partial(_parts, self.bundle, self.published, self.features, self.scaling), 8)
        for name, kind in self.chosen.items():
            yield {"method": name, "code": kind.code}

    def score(self, fitted: Trainee, X: Any, y: Array) -> float:
        if self.select_by == "votes":
            return neighbour_votes(fitted, X, y)
        return float(precision(fitted.metric, *form(fitted.metric, X), y).precision_at[DEPTH])

    def model(self, one: Settings) -> Trainee:
        kind, about = self.chosen[one["method"]], {"random_state": one["seed"]}
        about |= {"n_triplets": self.triplets or None}
        about |= {"n_epochs": self.passes} if isinstance(kind.estimator, CometMetric) else {}
        return Trainee(kind.made(one["parameters"], **about), one["seed"])

    def recorder(self, model: Any, part: SimpleNamespace, seed: int) -> Recorder | None:
        some = np.random.default_rng(seed).permutation(len(part.y_test))[:MOST_QUERIES]
        X, y, metric = part.X_test[some], part.y_test[some], model.metric
        # Others are measured at their start, by distances from the means of the classes.
        if not isinstance(metric, CometMetric) or metric.compare != "similarity":
            return None
        passes = range(1, int(np.ceil(metric.n_epochs)) + 1)
        return Recorder(
            {"value": lambda W: precision(metric, W, X, y).precision_at[DEPTH]},
            at=[X.shape[1] * number for number in passes],
        )

    def measure(self, model: Any, part: SimpleNamespace) -> Cell:
        X, y, metric = part.X_test, part.y_test, model.metric
        found = precision(metric, *form(metric, X), y, range(1, min(DEPTHS[-1], len(y) - 1) + 1))
        return {f"precision_at_{k}": found.precision_at.get(k) for k in DEPTHS} | {
            "precision": list(found.precision_at.values()), "map": found.map,
            "votes": neighbour_votes(model, X, y),
        }  # fmt: skip

    def draw(self, rows: Sequence[Row]) -> None:
        depths, passes = {}, {}
        for row in (row for row in rows if row.whole):
            mean, error = mean_and_sem(cell["precision"] for cell in row.cells)
            depths[row.label] = list(zip(range(1, len(mean) + 1), mean, error, strict=True))
            if row.cells[0]["curve"]:
                passes[row.label] = row.curve(0)
        panels = [Panel("k, number of neighbours", "precision at top k (test)", depths)]
        panels += [Panel("coordinate steps", f"precision at {DEPTH}", passes)] if passes else []
        self.run.draw("precision.png", draw_panels, panels, self.bundle.name, size=(9.0, 4.6))


def _parts(bundle: ClassBundle, published: bool, features: int, scaling: str, seed: int) -> SimpleNamespace:
    """Return a split with rows scaled for methods, by the scale of the training part."""
    bundle = bundle if published else bundle.resplit(seed, TEST_FRACTION)
    # If there are no more features than that, all are kept.
    features = features if features < bundle.X.shape[1] else 0
    if scaling == "unit":
        return split(informative_unit_rows(bundle, features))
    if issparse(bundle.X) or features:
        raise InvalidInputError("--scaling raw is for arrays, with --features 0; take unit for others.")
    return split(replace(bundle, X=bundle.X / np.linalg.norm(bundle.X[bundle.train], axis=1).mean()))
