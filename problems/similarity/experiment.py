"""The experiment ``rmopt run similarity``: LORETA beside its paper's other methods (Shalit et al. 2012, §7.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import Normalizer, normalize
from sklearn.svm import LinearSVC
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
    by_label,
    crossed,
    mean_and_sem,
    split,
    trained,
)  # fmt: skip
from problems.data import ClassBundle
from problems.data.bundles import holds_counts
from problems.data.text import informative_unit_rows
from problems.evaluation import ScoreBlock, bilinear_scores, evaluate_retrieval, matrix_scores
from problems.loreta import loreta_solver
from problems.methods import Cell, Method, Settings, brought, rows_of
from problems.online import Lego, Oasis
from problems.palette import draw_curve, draw_level, draw_trained, finish, line, style, whole_ticks
from problems.similarity.baselines import FactoredGradientDescent, PassiveAggressive, PSDGradientDescent
from problems.similarity.estimators import ContrastiveSimilarity, initial_point
from problems.triplets import ClassTriplets
from rmopt.core import DivergedError, InvalidInputError, Manifold, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number, numbers
from rmopt.costs import TripletSum
from rmopt.experiments import Claim
from rmopt.files import save_arrays
from rmopt.manifolds import Euclidean, FixedRankEmbedded, PolarPSD, PSDFixedRank
from rmopt.solvers import SGD, Recorder, ScheduledSolver

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("map", "precision_at_1", "precision_at_10")
# Enough for a learning curve and for cross-validation; tables measure all test documents.
CURVE_QUERIES = 200
MEASURED = f"mean average precision (curves: ≤ {CURVE_QUERIES} queries)"
# Parts of max_iter at which a user's method is trained for its curve.
PARTS = (64, 16, 4)
# The first part of a curve, in triplets.
EARLY = 50_000
USUAL_RANK = "20"
# What variants of LORETA may differ in.
COMPARABLE = ("retraction", "solver", "engine", "init", "step-size")


@dataclass(eq=False, repr=False)
class SimilarityLearner(Learner):
    """A way to learn W from triplets of the training rows.

    Parameters
    ----------
    manifold : callable
        Maps (features, rank) to the manifold.
    solver : callable
        Maps (step_size, max_iter=…, sampler=…) to the solver.
    step_size : float
        The step size, or bound C of passive–aggressive steps.
    metric : bool
        Whether documents are ranked by minus the distance (q − d)ᵀ W (q − d) instead of qᵀ W d.
    retraction, engine
        What the solver is also told, where it has a choice; None: it has none.
    rank, max_iter, init, random_state
        See `LoretaSimilarity`; a method of full rank starts at the identity.
    """

    manifold: Callable[[int, int], Manifold]
    solver: Callable[..., ScheduledSolver]
    step_size: float
    metric: bool = False
    retraction: Any = None
    engine: str = "auto"
    rank: int = 10
    max_iter: int = 100_000
    init: str = "identity"
    random_state: int = 0

    @property
    def full_rank(self) -> bool:
        """Whether W has all its n² numbers, and no rank."""
        return self.manifold is _full

    def parts(self, X: Any, y: Array) -> tuple[ScheduledSolver, Problem, Any]:
        manifold: Any = self.manifold(X.shape[1], self.rank)
        how = {} if self.retraction is None else {"retraction": self.retraction, "engine": self.engine}
        solver = self.solver(self.step_size, max_iter=self.max_iter, sampler=ClassTriplets(y), **how)
        problem = Problem(manifold, TripletSum(X, X))
        if self.full_rank:
            return solver, problem, np.eye(*manifold.shape)
        return solver, problem, initial_point(manifold, self.init, self.random_state)

    def scores(self, X: Any, point: Any = None) -> ScoreBlock:
        """Return the scores of rows against all rows, in the form of `problems.evaluation`, at any point."""
        point = self.point_ if point is None else point
        if self.full_rank:
            return matrix_scores(point, X, distance=self.metric)
        A, B = point.balanced_factors()
        return bilinear_scores(np.asarray(X @ A), np.asarray(X @ B))


@dataclass(eq=False)
class SavedPoint:
    """What a learner has found."""

    form: str
    point: Any
    updates: int | None

    def save(self, path: Any) -> None:
        """Write it into a file."""
        arrays = {"W": self.point} if isinstance(self.point, np.ndarray) else vars(self.point)
        save_arrays(path, arrays, {"kind": self.form, "updates": self.updates})


class ClassScores(BaseEstimator):
    """Documents by their scores for each class, as a linear classifier has them: what practice would try first.

    Parameters
    ----------
    classifier : classifier
        With `coef_`.
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Array) -> Self:
        self.fitted_ = clone(self.classifier).fit(X, y)
        return self

    def transform(self, X: Any) -> Array:
        return normalize(X @ self.fitted_.coef_.T)


def _general(n: int, k: int) -> Manifold:
    return FixedRankEmbedded(n, n, k)


def _full(n: int, k: int) -> Manifold:
    return Euclidean(n, n)


def _steps(label: str, *learner: Any, grid: Sequence[float], **more: Any) -> Method:
    return Method(label, SimilarityLearner(*learner, **more), crossed(step_size=grid))


SMALL, LARGE = (0.01, 0.03, 0.1, 0.3, 1.0), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
C_GRID = crossed(classifier__C=(0.1, 1.0, 10.0))
TEMPERATURES = crossed(temperature=(0.2, 0.3, 0.5))
SECOND = "second-order"

METHODS: dict[str, Method] = {
    # Documents as they are: what every method must beat.
    "cosine": Method("cosine", Normalizer()),
    "svm": Method("linear SVMs", ClassScores(LinearSVC()), C_GRID),
    "logistic": Method("logistic regression", ClassScores(LogisticRegression()), C_GRID),
    "naive-gd": _steps("naive gradient descent", _general, FactoredGradientDescent, 0.1, grid=SMALL),
    "psd-gd": _steps("naive PSD descent", PSDFixedRank, PSDGradientDescent, 0.1, grid=SMALL),
    "pa": _steps("passive-aggressive", _general, PassiveAggressive, 0.1, grid=SMALL),
    "oasis": _steps("OASIS", _full, Oasis, 0.1, grid=(0.01, 0.1, 1.0, 10.0)),
    "lego": _steps("LEGO", _full, Lego, 1.0, metric=True, grid=(0.01, 0.1, 1.0, 10.0, 100.0)),
    "polar": _steps("polar PSD", PolarPSD, SGD, 0.1, grid=SMALL),
    "loreta": _steps("LORETA-1", _general, loreta_solver, 10.0, retraction=SECOND, grid=LARGE),
    "loreta-psd": _steps("LORETA-1-PSD", PSDFixedRank, SGD, 10.0, grid=LARGE),
    "contrastive": Method("softmax over cosines", ContrastiveSimilarity(), TEMPERATURES),
}

# What a method of similarity must have one of, beside `fit`; the first that it has is used.
MEASURED_BY = ("scores", "transform_queries", "similarity", "get_mahalanobis_matrix", "transform")


def scores_of(model: Any, X: Any) -> ScoreBlock:
    """Return the scores of rows against all rows, in the form of `problems.evaluation`, by what a model has.

    ``similarity(queries, documents)`` is taken as it is, a Mahalanobis matrix W by minus (q - d)ᵀ W (q - d), and
    embeddings, ``transform(X)``, by inner products; those of queries may be others, ``transform_queries(X)``.
    """
    has = next(name for name in MEASURED_BY if hasattr(model, name))
    n, n_features = X.shape
    if has == "scores":
        scores: ScoreBlock = model.scores(X)
        return scores
    if has == "similarity":
        what = "similarity(queries, documents)"
        return lambda rows: numbers(what, model.similarity(X[rows], X), (len(rows), n))
    if has == "get_mahalanobis_matrix":
        W = numbers("get_mahalanobis_matrix()", model.get_mahalanobis_matrix(), (n_features, n_features))
        return matrix_scores(W, X, distance=True)
    documents = queries = rows_of("transform(X)", model.transform(X), n)
    if has == "transform_queries":
        queries = rows_of("transform_queries(X)", model.transform_queries(X), n, columns=documents.shape[1])
    if issparse(documents):
        return lambda rows: (queries[rows] @ documents.T).toarray()
    return bilinear_scores(queries, documents)


def mean_precision(model: Any, X: Any, y: Array, seed: int = 0) -> float:
    """Return the mean average precision of some rows as queries."""
    # Drawn, for the first ones would be of one class where rows are sorted by it.
    queries = np.sort(np.random.default_rng(seed).permutation(len(y))[:CURVE_QUERIES])
    return evaluate_retrieval(scores_of(model, X), y, queries=queries, ks=()).map


# Methods that LORETA is not held against at the same rank.
APART = ("loreta", "loreta-psd", "oasis", "lego", "contrastive")


def similarity_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return what section 7.1.5 of the paper says about figure 3, of each variant of LORETA."""
    groups, claims = by_label(rows), []
    first = {some[0]["method"]: some for some in reversed(groups.values())}
    for label, ours in groups.items():
        if ours[0]["method"] == "loreta":
            others = {other: some for other, some in groups.items() if some[0]["method"] not in APART}
            for other, some in others.items():
                claims.append(above(f"{label} is above {other}", against(ours, some), other))
            claims += _of_loreta(label, ours, first)
    if "loreta" in first and "contrastive" in first:
        ranked = [row for row in rows if row["method"] not in ("contrastive", "oasis", "lego")]
        best = max(ranked, key=lambda row: row.mean("map")).label
        claim = f"(not in the paper) {first['contrastive'][0].label} is above the best of the others, {best}"
        claims.append(above(claim, against(first["contrastive"], groups[best]), best))
    if "loreta" in first and (naive := first.get("naive-gd")):
        lost = sum(not row.whole for row in naive)
        text = f"it diverged at {lost} of {len(naive)} rank{'s' * (len(naive) > 1)}"
        claims.append(Claim(f"{naive[0].label} is too unstable to present", lost > 0, text))
    return claims


def _of_loreta(label: str, ours: Sequence[Row], first: dict[str, list[Row]]) -> list[Claim]:
    """Return the claims of LORETA against its semidefinite form, its other ranks, and methods of full rank."""
    claims, ranks = [], {row["rank"]: row for row in ours}
    if psd := first.get("loreta-psd"):
        name = psd[0].label
        claims.append(above(f"{name} is slightly above {label}", against(psd, ours), name))
        claim = f"{name} learns faster than {label} in the first {EARLY:,} triplets"
        claims.append(above(claim, against(psd, ours, _early), name))
    if len(ranks) > 2:
        lowest, *inner, highest = ranks
        middle = 30 if 30 in inner else list(ranks)[len(ranks) // 2]
        gaps = {
            f"over rank {other}": Difference.of(ranks[middle].cells, ranks[other].cells, "map")
            for other in (lowest, highest)
        }
        claim = f"{label}: a middle rank, here {middle}, beats the highest with few features and the lowest with all"
        claims.append(above(claim, gaps, "three ranks"))
    best = max(ours, key=lambda row: row.mean("map"))
    full = {}
    for row in (*first.get("oasis", ()), *first.get("lego", ())):
        name = row.label + f", {row['features']} features" * bool(row["features"])
        full[name] = Difference.of(best.cells, row.cells, "map")
    return claims + (
        [above(f"{label} at its best rank is above OASIS and LEGO", full, "them")] if full else []
    )


def _early(cell: Cell) -> float | None:
    """Return the mean of the first part of a curve."""
    values = [value for step, _, value in cell["curve"] if step <= EARLY]
    return float(np.mean(values)) if values else None


@dataclass(kw_only=True)
class Similarity(Experiment):
    """Learn a similarity of documents: LORETA beside the cosine and what its paper compares it with.

    Triplets (query, similar document, dissimilar document) are drawn from the classes of the training part; each test
    document then ranks the others. With several ranks, and a --budget, this is figure 3 of the paper. Under mpirun
    the models are dealt to the processes. The default run takes about a minute on two cores.
    """

    data: Annotated[options.Data, ClassBundle] = "scipy-docs"
    methods: Annotated[str, options.methods_option(METHODS)] = "cosine,svm,naive-gd,pa,loreta,contrastive"
    features: Annotated[int, Option(help="Features to keep, by information gain; 0: all.")] = 0
    sublinear: Annotated[bool, Option(help="Take 1 + log(count) for the counts of words.")] = False
    rank: Annotated[str | None, options.rank_option(USUAL_RANK)] = None
    budget: Annotated[int, Option(help="Features times rank, in the place of --features; 0: none.")] = 0
    triplets: Annotated[int, Option(help="Training triplets for each model.")] = 50_000
    steps: Annotated[str, Option(help="Step sizes that are not chosen, e.g. loreta=10,pa=0.1,Mine=3.")] = ""
    retraction: Annotated[str, Option(help="Of LORETA-1: a name, or FILE.py:CLASS.")] = SECOND
    engine: Annotated[str, Option(help="Of LORETA-1: auto, compiled or reference.")] = "auto"
    init: Annotated[str, Option(help="Start of the learners: identity or gaussian.")] = "identity"
    compare: Annotated[
        str,
        Option(
            help=f"Variants of LORETA-1, e.g. retraction={SECOND},FILE.py:CLASS; of {', '.join(COMPARABLE)}."
        ),
    ] = ""
    full_features: Annotated[str, Option(help="Features for methods of full rank, with a --budget.")] = ""
    full_triplets: Annotated[int, Option(help="Triplets for those; 0: as for the others.")] = 0

    name: ClassVar = "similarity"
    known: ClassVar = METHODS
    measured_by: ClassVar = MEASURED_BY
    common: ClassVar = ("sublinear",)
    claims: ClassVar = staticmethod(similarity_claims)
    headings: ClassVar = {"map_sem": "± s.e.m."}
    toy: ClassVar = (
        "Where a claim fails here: scipy's documentation has a thousand texts whose classes a few words tell apart, "
        "which a linear classifier finds at once; the paper's figures are of larger corpora, as --data news20 is."
    )

    def check(self) -> None:
        options.check_options(vars(self), features=0, budget=0, triplets=1, full_triplets=0)
        self.ranks = options.whole_numbers(USUAL_RANK if self.rank is None else self.rank, "--rank")
        wide = self.full_features
        self.widths = options.whole_numbers(wide, "--full-features", 2) if wide else []
        self.parts: dict[str, Any] = {"loreta": loreta_solver}
        self.variants = self._variants()
        self.sizes, self.ways = self._step_sizes(), {"map": mean_precision}
        if self.budget and self.features:
            raise InvalidInputError("--budget says how many features there are; leave out --features.")
        for option, given, takes in (
            ("full-features and --full-triplets", wide or self.full_triplets, _full_rank),
            ("init", self.init != "identity", _learner),
            ("retraction", self.retraction != SECOND, _varies),
            ("engine", self.engine != "auto", _varies),
            ("compare", self.compare, _varies),
        ):
            if given and not any(map(takes, self.chosen.values())):
                able = ", ".join(name for name, one in METHODS.items() if takes(one))
                raise InvalidInputError(f"--{option} needs one of {able} among --methods.")

    def _variants(self) -> list[Settings]:
        """Return what each variant of LORETA is trained with: of ``KEY=VALUE,VALUE``, or the only one."""
        plain: Settings = {"retraction": self.retraction, "engine": self.engine, "init": self.init}
        key, _, values = self.compare.partition("=")
        if self.compare and (key not in COMPARABLE or not all(values.split(","))):
            keys = ", ".join(COMPARABLE)
            raise InvalidInputError(
                f"--compare {self.compare!r} must be KEY=VALUE,VALUE with KEY one of {keys}."
            )
        variants = []
        for value in dict.fromkeys(values.split(",")) if self.compare else [""]:
            how, one = plain | ({key: value} if value else {}), Settings(variant=value.rpartition(":")[2])
            if (size := how.pop("step-size", None)) is not None:
                one["parameters"] = {"step_size": options.positive_numbers(size, "--compare step-size")[0]}
            for part, text in how.items():
                if ":" in text or (part == "solver" and text not in self.parts):
                    wanted = "the class of a solver" if part == "solver" else f"a {part}, or its class"
                    self.parts[text], one["file"] = brought(
                        f"{part} {text!r}", text, wanted, part != "solver"
                    )
            if how.get("solver", "loreta") != "loreta":
                how = {"solver": how["solver"], "init": self.init, "retraction": None}
            variants.append(one | {"how": how})
        return variants

    def _step_sizes(self) -> dict[str, float]:
        """Return the step sizes of ``NAME=VALUE,…`` by method; a user's is also known by its label."""
        taken = "parameters" in self.variants[0]
        free = {
            name: name
            for name, one in self.chosen.items()
            if "step_size" in one.estimator.get_params() and not (taken and _varies(one))
        }
        free |= {self.chosen[name].label: name for name in free if name not in METHODS}
        sizes = {}
        for part in filter(None, self.steps.split(",")):
            name, _, value = part.rpartition("=")
            try:
                sizes[free[name]] = number(name, float(value), above=0)
            except (KeyError, ValueError):
                raise InvalidInputError(
                    f"--steps {self.steps!r}: {part!r} must be NAME=VALUE with one of "
                    f"{', '.join(free) or 'no method'} (chosen, and with a step size that --compare leaves alone) "
                    "and a positive number."
                ) from None
        return sizes

    def settings(self) -> Iterator[Settings]:
        n_features = self.bundle.X.shape[1]
        if self.sublinear and not holds_counts(self.bundle.X):
            raise InvalidInputError(
                f"--sublinear weighs counts, and {self.bundle.name} has none; leave it out."
            )
        integer("--features", self.features, 0, n_features)
        integer("--full-features", max(self.widths, default=0), 0, n_features)
        if not self.budget:
            self.ranks = options.ranks_within(
                self.run.say, self.rank, USUAL_RANK, self.features or n_features
            )
        # A few are kept: methods of one split and number of features share their data.
        self.kept = Kept(partial(unit_parts, self.bundle, self.published, self.sublinear), 8)
        places = [self._place(rank) for rank in self.ranks]
        rows = []
        for name, kind in self.chosen.items():
            own = places if kind.ranked else [places[0] | {"rank": None}]
            if kind.full_rank and self.widths:
                own = [{"rank": None, "features": width} for width in self.widths]
            one = {"method": name, "code": kind.code, "triplets": self.triplets, "variant": "", "how": {}}
            one |= {"parameters": {"step_size": self.sizes[name]}} if name in self.sizes else {}
            one |= {"how": {"init": self.init}} if _learner(kind) else {}
            one |= {"triplets": self.full_triplets} if kind.full_rank and self.full_triplets else {}
            for variant in self.variants if _varies(kind) else [{}]:
                # Parameters are chosen at the middle one.
                rows += [one | variant | place | {"middle": own[len(own) // 2]} for place in own]
        # Every setting is tried out before the first method starts to train.
        for one in rows:
            model = self.model({"parameters": {}, "seed": self.run.seed, **one})
            if isinstance(model, SimilarityLearner):
                part = self.data_of(one | {"seed": self.run.seed})
                solver, problem, _ = model.parts(part.X, part.y)
                solver.engine(problem)
        yield from rows

    def _place(self, rank: int) -> Settings:
        """Return a rank with its number of features, which a budget divides."""
        if not self.budget:
            return {"rank": rank, "features": self.features}
        width, whole = self.budget // rank, self.bundle.X.shape[1]
        what = f"--budget {self.budget} gives rank {rank} {width} features"
        if width > whole:
            raise InvalidInputError(
                f"{what}, and {self.bundle.name} has {whole}; lower it or raise the rank."
            )
        if width < rank:
            raise InvalidInputError(f"{what}, fewer than that; raise the budget or lower the rank.")
        return {"rank": rank, "features": width}

    def header(self) -> str:
        bundle, test = (
            self.bundle,
            self.bundle.test if self.published else self.bundle.resplit(self.run.seed).test,
        )
        return (
            f"{bundle.name} ({bundle.source}): "
            f"{(~test).sum():,} training, {test.sum():,} test documents; {bundle.X.shape[1]:,} features, "
            f"{bundle.n_classes} classes; {self.splits}"
        )

    def data_of(self, one: Settings) -> SimpleNamespace:
        return self.kept(one["features"], one["seed"])

    def model(self, one: Settings) -> Any:
        kind = self.chosen[one["method"]]
        about = {"max_iter": one["triplets"]} if _learner(kind) else {}
        about |= {name: self.parts.get(value, value) for name, value in one["how"].items()}
        return kind.made(one["parameters"], rank=one["rank"], random_state=one["seed"], **about)

    def choosing(self, one: Settings) -> Settings:
        return one | one["middle"]

    def measured(self, one: Settings) -> Cell:
        model, part, seed = self.model(one), self.data_of(one), one["seed"]
        # Others share them, and a user's method may compute in place.
        X, y, X_test, y_test = part.X.copy(), part.y.copy(), part.X_test.copy(), part.y_test
        learner, how = _learner(self.chosen[one["method"]]), {}
        if learner:

            def watch(point: Any) -> float:
                at = SimpleNamespace(scores=lambda X: model.scores(X, point))
                return mean_precision(at, X_test, y_test, seed)

            how["recorder"] = Recorder({"map": watch}, first=max(1, model.max_iter // 256))
        try:
            training = trained(model, X, y, **how)
            curve = [[row["step"], row["seconds"], row["map"]] for row in training.history if row["step"]]
            curve = curve or self._curve(one, training.seconds, model)
        except DivergedError:
            return dict.fromkeys((*MEASURES, "seconds", "updates")) | {"curve": [], "features": X.shape[1]}
        found, kept = evaluate_retrieval(scores_of(model, X_test), y_test, ks=(1, 10)), None
        if learner and seed == self.run.seed:
            kept = SavedPoint("metric" if model.metric else "similarity", model.point_, training.updates)
        self.keep(one, model)
        return {
            **dict(zip(MEASURES, (found.map, *found.precision_at.values()), strict=True)),
            "seconds": training.seconds, "updates": training.updates, "curve": curve, "features": X.shape[1],
            "model": kept,
        }  # fmt: skip

    def _curve(self, one: Settings, seconds: float, model: Any) -> list[list[float]]:
        """Return the learning curve of a user's method with `max_iter`, trained anew with parts of it."""
        steps, part = getattr(model, "max_iter", None), self.data_of(one)
        if one["method"] in METHODS or not isinstance(steps, int):
            return []
        ends = [(clone(model).set_params(max_iter=max(1, steps // share)), None) for share in PARTS]
        curve = []
        for less, took in [*ends, (model, seconds)]:
            took = trained(less, part.X.copy(), part.y.copy()).seconds if took is None else took
            curve.append(
                [less.max_iter, took, mean_precision(less, part.X_test.copy(), part.y_test, one["seed"])]
            )
        return curve

    def row(self, row: Row) -> Cell:
        several = {"rank": row["rank"], "features": row.cells[0]["features"]}
        shown = several if len(self.ranks) > 1 or self.budget else {}
        return shown | averaged(row.cells, map="map_sem", precision_at_1=None, precision_at_10=None)

    def draw(self, rows: Sequence[Row]) -> None:
        # What diverged with a seed is not drawn.
        rows, middle = [row for row in rows if row.whole], self.ranks[len(self.ranks) // 2]
        curves = [row for row in rows if row["rank"] in (None, middle)]
        self.run.draw("learning-curves.png", draw_learning_curves, curves, self.bundle.name, size=(9.0, 4.0))
        if len(self.ranks) > 1:
            self.run.draw("ranks.png", draw_ranks, rows, size=(12.0, 4.0))


def unit_parts(
    bundle: ClassBundle, published: bool, sublinear: bool, features: int, seed: int
) -> SimpleNamespace:
    """Return unit rows of a split, their columns in order of information gain."""
    part = bundle if published else bundle.resplit(seed)
    return split(informative_unit_rows(part, features, sublinear=sublinear))


def _full_rank(method: Method) -> bool:
    return method.full_rank


def _learner(method: Method) -> bool:
    return isinstance(method.estimator, SimilarityLearner)


def _varies(method: Method) -> bool:
    return _learner(method) and method.estimator.retraction is not None


def draw_learning_curves(figure: Figure, rows: Sequence[Row], title: str) -> None:
    """Draw mean average precision against triplets and training time, with its standard error over the seeds.

    A method without a curve is a level, or a point at its training time.
    """
    # Fixed margins: an automatic layout would draw everything twice.
    margins = {"left": 0.07, "right": 0.98, "bottom": 0.13, "top": 0.91, "wspace": 0.04}
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw=margins)
    for axes, column, label, unit in ((left, 0, "triplets seen", ""), (right, 1, "training time", "s")):
        for place, row in enumerate(rows):
            if row.cells[0]["curve"]:
                draw_curve(axes, row, column, 2, **style(place))
            else:
                (draw_trained if column else draw_level)(axes, row.cells, row.label, place)
        finish(axes, label, unit=unit)
    left.set_ylabel(MEASURED)
    figure.suptitle(title)


def draw_ranks(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw learning curves of LORETA by rank, general against PSD, and mean average precision against rank."""
    figure.set_layout_engine("constrained")
    by_rank, both, final = figure.subplots(1, 3)
    labels = list(dict.fromkeys(row.label for row in rows))
    first = {(row["method"], row["rank"]): row for row in reversed(rows)}
    ranks = sorted(rank for name, rank in first if name == "loreta")
    for place, rank in enumerate(ranks):
        draw_curve(by_rank, first["loreta", rank], 0, 2, f"rank {rank}", **line(place))
    for place, rank in enumerate(sorted({ranks[0], ranks[len(ranks) // 2], ranks[-1]}) if ranks else []):
        for name, form, dashes in (("loreta", "general", 0), ("loreta-psd", "PSD", 1)):
            if (name, rank) in first:
                draw_curve(both, first[name, rank], 0, 2, f"{form}, rank {rank}", **line(place, dashes))
    by_rank.set_ylabel(MEASURED)
    for place, label in enumerate(labels):
        some = [row for row in rows if row.label == label]
        if points := [
            (row["rank"], *mean_and_sem(cell["map"] for cell in row.cells)) for row in some if row["rank"]
        ]:
            at, means, errors = zip(*points, strict=True)
            final.errorbar(at, means, [error or 0.0 for error in errors], label=label, **style(place))
        for dashes, row in enumerate((row for row in some if row["rank"] is None), 1):
            several = f", {row['features']} features" * (len(some) > 1)
            draw_level(final, row.cells, label + several, place, dashes)
    finish(by_rank, "triplets seen", unit="", title="LORETA by rank", size="x-small")
    finish(both, "triplets seen", unit="", title="general and PSD", size="x-small")
    finish(final, "rank", title="all methods", size="x-small")
    whole_ticks(final.xaxis)
