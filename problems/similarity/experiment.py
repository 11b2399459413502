"""The experiment ``rmopt run similarity``: LORETA and its paper's other methods (Shalit et al. 2012, §7.1)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import Normalizer, normalize
from sklearn.svm import LinearSVC
from typer import Option

from problems import options
from problems.comparison import Experiment, Kept, Learner, Row, above, against, crossed, split
from problems.data import ClassBundle
from problems.data.text import informative_unit_rows
from problems.evaluation import ScoreBlock, bilinear_scores, evaluate_retrieval, matrix_scores
from problems.loreta import loreta_solver
from problems.methods import Cell, Method, Settings, brought, rows_of
from problems.online import Lego, Oasis
from problems.similarity.baselines import FactoredGradientDescent, PassiveAggressive, PSDGradientDescent
from problems.similarity.estimators import ContrastiveSimilarity, initial_point
from problems.triplets import ClassTriplets
from rmopt.checks import check_retraction
from rmopt.core import InvalidInputError, Manifold, Problem, Retraction
from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer
from rmopt.costs import TripletSum
from rmopt.engines import ReferenceEngine
from rmopt.experiments import Claim
from rmopt.manifolds import Euclidean, FixedRankEmbedded, PolarPSD, PSDFixedRank
from rmopt.solvers import SGD, Recorder, ScheduledSolver

# Enough queries for learning curves and cross-validation; tables use all test documents.
CURVE_QUERIES = 200
# The first part of a curve, in triplets.
EARLY = 50_000
USUAL_RANK = "20"
# The parameters of variants of LORETA-1.
COMPARABLE = ("retraction", "solver", "engine", "init")
COMPARED = f"of {', '.join(COMPARABLE)}"


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
        Further arguments of the solver, or None if it has no choice.
    rank, max_iter, init, random_state
        See `LoretaSimilarity`. A method of full rank starts at the identity.
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


class ClassScores(LinearSVC):
    """Documents by the class scores of a linear classifier, the usual first choice."""

    def transform(self, X: Any) -> Array:
        return normalize(X @ self.coef_.T)


class Posteriors(LogisticRegression):
    """Documents by class probabilities: an inner product is the probability of equal classes."""

    def transform(self, X: Any) -> Array:
        return self.predict_proba(X)


def _general(n: int, k: int) -> Manifold:
    return FixedRankEmbedded(n, n, k)


def _full(n: int, k: int) -> Manifold:
    return Euclidean(n, n)


def _steps(label: str, *learner: Any, grid: Sequence[float], **more: Any) -> Method:
    return Method(label, SimilarityLearner(*learner, **more), crossed(step_size=grid))


SMALL, LARGE = (0.01, 0.03, 0.1, 0.3, 1.0), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

METHODS: dict[str, Method] = {
    # The documents themselves, the baseline of all methods.
    "cosine": Method("cosine", Normalizer()),
    "svm": Method("linear SVMs", ClassScores(), crossed(C=(0.1, 1.0, 10.0))),
    "logistic": Method(
        "logistic posteriors", Posteriors(C=10.0, solver="saga", tol=1e-2), crossed(C=(1.0, 10.0, 100.0))
    ),
    "naive-gd": _steps("naive gradient descent", _general, FactoredGradientDescent, 0.1, grid=SMALL),
    "psd-gd": _steps("naive PSD descent", PSDFixedRank, PSDGradientDescent, 0.1, grid=SMALL),
    "pa": _steps("passive-aggressive", _general, PassiveAggressive, 0.1, grid=SMALL),
    "oasis": _steps("OASIS", _full, Oasis, 0.1, grid=(0.01, 0.1, 1.0, 10.0)),
    "lego": _steps("LEGO", _full, Lego, 1.0, metric=True, grid=(0.01, 0.1, 1.0, 10.0, 100.0)),
    "polar": _steps("polar PSD", PolarPSD, SGD, 0.1, grid=SMALL),
    "loreta": _steps("LORETA-1", _general, loreta_solver, 10.0, retraction="second-order", grid=LARGE),
    "loreta-psd": _steps("LORETA-1-PSD", PSDFixedRank, SGD, 10.0, grid=LARGE),
    "contrastive": Method(
        "softmax over cosines", ContrastiveSimilarity(), crossed(temperature=(0.2, 0.3, 0.5))
    ),
}

# A method needs `fit` and one of these.
MEASURED_BY = ("scores", "transform")


def scores_of(model: Any, X: Any) -> ScoreBlock:
    """Return the scores of rows against all rows, in the form of `problems.evaluation`.

    They are a model's own `scores`, or inner products of its embeddings, ``transform(X)``, with possibly different
    ones for queries, ``transform_queries(X)``.
    """
    if hasattr(model, "scores"):
        return model.scores(X)
    documents = queries = rows_of("transform(X)", model.transform(X), X.shape[0])
    if hasattr(model, "transform_queries"):
        queries = rows_of("transform_queries(X)", model.transform_queries(X), *documents.shape)
    if issparse(documents):
        return lambda rows: (queries[rows] @ documents.T).toarray()
    return bilinear_scores(queries, documents)


def mean_precision(scores: ScoreBlock, y: Array, seed: int = 0) -> float:
    """Return the mean average precision of some rows as queries."""
    # Random ones, because the first ones of sorted rows would be of one class.
    queries = np.sort(np.random.default_rng(seed).permutation(len(y))[:CURVE_QUERIES])
    return evaluate_retrieval(scores, y, queries=queries, ks=()).map


# The paper's competitors of LORETA.
OF_PAPER = ("naive-gd", "psd-gd", "pa", "oasis", "lego", "polar")


def similarity_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims of section 7.1.5 on figure 3 for each variant of LORETA-1, the first next to the others."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.label, []).append(row)
    method = {label: some[0]["method"] for label, some in groups.items()}
    # The sentence, the better row, the other one, and the measure.
    table: list[tuple[str, str, str, Any]] = []
    for ours in (own := [label for label in groups if method[label] == "loreta"]):
        for other in groups:
            if method[other] == "loreta-psd":
                faster = f"{other} learns faster than {ours} in the first {EARLY:,} triplets"
                table.append((f"{other} is slightly above {ours}", other, ours, "map"))
                table.append((faster, other, ours, _early))
            elif method[other] != "loreta" or ours == own[0] != other:
                known = "" if method[other] in OF_PAPER else "(not in the paper) "
                table.append((f"{known}{ours} is above {other}", ours, other, "map"))
    return [
        above(claim, against(groups[one], groups[other], measure), other)
        for claim, one, other, measure in table
    ]


def _early(cell: Cell) -> float | None:
    """Return the mean of the first part of a curve."""
    values = [value for step, _, value in cell["curve"] if step <= EARLY]
    return float(np.mean(values)) if values else None


@dataclass(kw_only=True)
class Similarity(Experiment):
    """Learn a similarity of documents: LORETA, the cosine, and its paper's other methods.

    Triplets (query, similar document, dissimilar document) are drawn from the classes of the training part. Each test
    document then ranks the others. With several ranks, and --features for each, this is figure 3 of the paper. The
    default run takes about a minute on two cores.
    """

    data: Annotated[options.Data, ClassBundle] = "scipy-docs"
    methods: Annotated[str, options.methods_option(METHODS)] = "cosine,svm,naive-gd,pa,loreta,contrastive"
    features: Annotated[
        str, Option(help="Number of features, by information gain, 0 for all; or a number for each rank.")
    ] = "0"
    rank: Annotated[str | None, options.rank_option(USUAL_RANK)] = None
    triplets: Annotated[int, Option(min=1, help="Training triplets for each model.")] = 50_000
    compare: Annotated[
        str, Option(help=f"Variants of LORETA-1, e.g. retraction=orthographic,FILE.py:CLASS; {COMPARED}.")
    ] = ""

    name: ClassVar = "similarity"
    known: ClassVar = METHODS
    measured_by: ClassVar = MEASURED_BY
    score: ClassVar = staticmethod(lambda model, X, y: mean_precision(scores_of(model, X), y))
    common: ClassVar = ("triplets",)
    claims: ClassVar = staticmethod(similarity_claims)
    headings: ClassVar = {"map_sem": "± s.e.m."}
    picture: ClassVar = "learning-curves.png"
    ylabel: ClassVar = f"mean average precision (curves: ≤ {CURVE_QUERIES} queries)"
    axes: ClassVar = {0: "triplets seen", 1: "training time, s"}
    toy: ClassVar = "If a claim fails here: few words distinguish the classes of scipy's documentation."

    def check(self) -> None:
        self.columns = {"map": "map_sem", "precision_at_1": None, "precision_at_10": None}
        self.ranks = options.whole_numbers(self.rank or USUAL_RANK, "--rank")
        self.widths = [options.whole_numbers(one, "--features", 0)[0] for one in self.features.split(",")]
        self.parts: dict[str, Any] = {"loreta": loreta_solver}
        self.variants = list(self._variants()) if self.compare else [{}]

    def _variants(self) -> Iterator[Settings]:
        """Yield the parameters of each variant of LORETA-1 in ``KEY=VALUE,VALUE``."""
        key, _, values = self.compare.partition("=")
        if key not in COMPARABLE or not values or "loreta" not in self.chosen:
            raise InvalidInputError(
                f"--compare {self.compare!r} must be KEY=VALUE,VALUE, KEY one {COMPARED}; and --methods have loreta."
            )
        for value in dict.fromkeys(values.split(",")):
            make = key != "solver" or value == "loreta"
            how = {key: value} | ({} if make else {"retraction": None})
            variant: Settings = {"variant": value.rpartition(":")[2], "how": how}
            made = partial(brought, value, value, f"the class of a {key}{', or one' * make}", make)
            if not make or ":" in value:
                self.parts[value], variant["file"] = made()
            if key == "retraction" and value in self.parts:
                instance(value, self.parts[value], Retraction, "derived from rmopt.core.Retraction")
                # Read twice: with random numbers of its file or class another run would differ.
                both = iter([self.parts[value], made()[0]])
                checks = check_retraction(both.__next__, FixedRankEmbedded(12, 9, 3))
                for broken in (one for one in checks if not one):
                    why = " ".join(str(broken).split())
                    raise InvalidInputError(f"{value} breaks a law of retractions; mend it first: {why}.")
            # Unknown values are refused now.
            self.label({"method": "loreta"} | variant)
            yield variant

    def settings(self) -> Iterator[Settings]:
        n = self.bundle.X.shape[1]
        integer("--features", max(self.widths), 0, n)
        most = min(width or n for width in self.widths)
        self.ranks = options.ranks_within(self.run.say, self.rank, USUAL_RANK, most)
        if len(self.widths) not in (1, len(self.ranks)):
            raise InvalidInputError(
                f"--features {self.features} must be one number, or one for each of the {len(self.ranks)} ranks."
            )
        widths = self.widths * len(self.ranks) if len(self.widths) == 1 else self.widths
        self.width: dict[Any, int] = dict(zip(self.ranks, widths, strict=True))
        # Methods without a rank take the least.
        self.width[None] = min(widths, key=lambda width: width or n)
        # A few are cached: methods of one split and number of features share their data.
        self.kept = Kept(partial(unit_parts, self.bundle, self.published), 8)
        for name, kind in self.chosen.items():
            for variant in self.variants if name == "loreta" else [{}]:
                for rank in self.ranks if kind.ranked else [None]:
                    yield {"method": name, "code": kind.code, **variant, **self._place(rank)}

    def _place(self, rank: int | None) -> Settings:
        return {"rank": rank, "features": self.width[rank]}

    def choosing(self, one: Settings) -> Settings:
        return one | self._place(self.ranks[len(self.ranks) // 2] if one["rank"] else None)

    def data_of(self, one: Settings) -> Any:
        return self.kept(one["features"], one["seed"])

    def label(self, one: Settings) -> str:
        """Return the label of a row, with a word on steps in Python, whose seconds are many."""
        label, model = super().label(one), self.model(one | {"parameters": {}, "rank": 1, "seed": 0})
        if not isinstance(model, SimilarityLearner):
            return label
        solver, problem, _ = model.parts(np.eye(4), np.array([0, 0, 1, 1]))
        compiled = hasattr(solver, "engine") and not isinstance(solver.engine(problem), ReferenceEngine)
        return label if compiled else f"{label} (Python)"

    def model(self, one: Settings) -> Any:
        kind = self.chosen[one["method"]]
        about = {name: self.parts.get(value, value) for name, value in one.get("how", {}).items()}
        about |= {"max_iter": self.triplets} if isinstance(kind.estimator, SimilarityLearner) else {}
        return kind.made(one["parameters"], rank=one["rank"], random_state=one["seed"], **about)

    def recorder(self, model: Any, part: SimpleNamespace, seed: int) -> Recorder | None:
        if not isinstance(model, SimilarityLearner):
            return None

        def value(point: Any) -> float:
            return mean_precision(model.scores(part.X_test, point), part.y_test, seed)

        return Recorder({"value": value}, first=max(1, model.max_iter // 256))

    def measure(self, model: Any, part: SimpleNamespace) -> Cell:
        found = evaluate_retrieval(scores_of(model, part.X_test), part.y_test, ks=(1, 10))
        return dict(zip(self.columns, (found.map, *found.precision_at.values()), strict=True))

    def row(self, row: Row) -> Cell:
        return (self._place(row["rank"]) if len(self.ranks) > 1 else {}) | super().row(row)


def unit_parts(bundle: ClassBundle, published: bool, features: int, seed: int) -> SimpleNamespace:
    """Return unit rows of a split, their columns in order of information gain."""
    return split(informative_unit_rows(bundle if published else bundle.resplit(seed), features))
