"""The experiments of Mirzazadeh et al. (2015): growing factors, classification with several labels, and tags."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from joblib import parallel_config
from sklearn.base import BaseEstimator
from sklearn.metrics import f1_score, hamming_loss
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.coembedding.baselines import searched as baseline
from problems.coembedding.baselines import unit_scaling
from problems.coembedding.cost import MetricRegression, closed_form
from problems.coembedding.estimators import CoembeddingClassifierCV, checked_betas
from problems.coembedding.links import PairwiseInteractionTags, TagModel, TagRecommender, posts_f1
from problems.comparison import Comparison, Difference, Experiment, Kept, Row, above, crossed, searched, split
from problems.data import MultilabelBundle, TagBundle
from problems.methods import Cell, Method, Settings, rows_of
from problems.palette import Panel, draw_panels
from rmopt.core import DivergedError, InvalidInputError, Problem
from rmopt.core.ambient import Array, dense
from rmopt.costs import ConvexCost, Trace
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, Certificate, RankIncremental, certify

# Measures of label indicators, with F1 = 0 without labels. scikit-learn's own scorers fail for constant labels.
MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "hamming": lambda true, predicted: 1.0 - float(hamming_loss(true, predicted)),
    "micro_f1": partial(f1_score, average="micro", zero_division=0.0),
    "macro_f1": partial(f1_score, average="macro", zero_division=0.0),
}
NAMES = {"hamming": "Hamming score", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
# Training rows of the example, so that it ends within about a minute.
EXAMPLE = 200
# Measures within this share are comparable.
COMPARABLE = 0.015


def scored(model: Any, X: Any, Y: Array) -> float:
    """Return the micro-F1 of a model, which cross-validation maximises."""
    return MEASURES["micro_f1"](Y, model.predict(X))


@dataclass(eq=False, repr=False)
class Multilabel(BaseEstimator):
    """A multi-label classifier with cross-validated parameters, and the scaling of its input.

    Co-embeddings take standardised rows of length 1, or for counts tf-idf rows of length 1.

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
        The seed of the order of a chain.
    """

    scheme: str
    base: str
    betas: Sequence[float] = (1.0,)
    cv: int = 5
    random_state: int = 0

    def fit(self, X: Any, Y: Array) -> Self:
        """Choose parameters, stored as `chosen_`, and fit."""
        # Parts of a model in threads, each with one thread of BLAS.
        with threadpool_limits(1, user_api="blas"), parallel_config("threading"):
            if self.scheme == "ila":
                self.scaling_ = unit_scaling(X).fit(X)
                how: dict[str, Any] = {"loss": self.base, "cv": self.cv, "scoring": scored, "n_jobs": -1}
                model = CoembeddingClassifierCV(list(self.betas), **how).fit(self.scaling_.transform(X), Y)
                gap = model.gap_ / model.objective_
                self.chosen_ = {"beta": model.beta_, "rank": model.rank_, "gap": gap}
            else:
                model = baseline(self.scheme, self.base, self.random_state, X, self.cv, scored).fit(X, Y)
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
METHODS["ila-hinge"] = Method("ILA (squared hinge)", Multilabel("ila", "squared_hinge"))


def measures(true: Array, predicted: Any) -> dict[str, float]:
    """Return all measures of predicted labels in per cent, and refuse anything but a table of 0 and 1."""
    table = dense(rows_of("predict(X)", predicted, *true.shape))
    if not np.isin(table, (0, 1)).all():
        raise InvalidInputError("predict(X) must be 1 for labels that apply and 0 for others.")
    return {name: 100.0 * measure(true, table.astype(int)) for name, measure in MEASURES.items()}


def table_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims of Tables 2 to 4 with the verdict of the numbers."""
    others, claims = [row for row in rows if not row["method"].startswith("ila")], []
    for ila in (row for row in rows if others and row["method"] == "ila"):
        for name, measure in NAMES.items():
            best = max(others, key=lambda row: row.mean(name))
            claim = f"ILA is comparable to the best of the others in {measure} (within {COMPARABLE:.1%})"
            gap = {"by split": Difference.of(ila.cells, best.cells, name)}
            numbers = f"{ila.mean(name):.1f}; best {best.label} {best.mean(name):.1f}"
            claims.append(above(claim, gap, "other methods", COMPARABLE * best.mean(name), numbers))
    return claims


@dataclass(kw_only=True)
class Coembedding(Experiment):
    """Classify with several labels: co-embedding, binary relevance, label ranking and chains.

    Samples, labels and a threshold are embedded so that a label applies if it is nearer than the threshold. A
    certificate shows that the embedding is the global minimum. The method ila has the paper's loss, and ila-hinge our
    own, which decides each label separately. The default run is small and takes about a minute on two cores.
    """

    data: Annotated[options.Data, MultilabelBundle] = "digits-labels"
    rows: Annotated[
        int, Option(min=0, help="Training rows; 0 means 200 digits, or up to 1,000 rows of other data.")
    ] = 0
    betas: Annotated[str, Option(help="Weights of the trace, separated by commas.")] = "0.05,0.5,1,2,5,10,20"
    seeds: options.SeedsOrPublished = 3
    methods: Annotated[str, options.methods_option(METHODS)] = "ila,br-svm,br-lr,cc-svm,cc-lr"
    # Methods choose in `fit`, along paths.
    select: options.Selection = field(init=False, default="none")

    name: ClassVar = "coembedding"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    score: ClassVar = staticmethod(scored)
    common: ClassVar = ("rows", "folds", "betas")
    claims: ClassVar = staticmethod(table_claims)
    headings: ClassVar = {
        "hamming": "Hamming", "hamming_sem": "±", "micro_f1": "micro-F1", "micro_f1_sem": "±",
        "macro_f1": "macro-F1", "macro_f1_sem": "±", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = (
        "If a claim fails here: these are 200 digits; the paper's tables are of --data emotions and scene."
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

    def model(self, one: Settings) -> Any:
        return self.chosen[one["method"]].made(random_state=one["seed"])

    def measure(self, model: Any, part: SimpleNamespace) -> Cell:
        return measures(part.y_test, model.predict(part.X_test)) | {"chosen": getattr(model, "chosen_", {})}

    def used(self, row: Row) -> list[Settings]:
        return [cell.get("chosen", {}) for cell in row.cells]


# Section 7: tags.
RECOMMENDERS: dict[str, Method] = {
    "ila": Method("ILA", TagRecommender(tol=1e-2)),
    "pitf": Method(
        "Pairwise interactions", PairwiseInteractionTags(),
        crossed(penalty=(5e-4, 5e-3, 5e-2), n_epochs=(50, 200, 800)),
    ),
}  # fmt: skip
# F1 is near by so much, and tags that are recommended.
NEAR_F1, TOP = 0.02, 5


@dataclass(kw_only=True)
class Tagging(Experiment):
    """Recommend tags: users, items and tags in one space, and the pairwise-interaction factor model.

    One post of each user is held out to measure F1 of the five best tags. --select chooses β and the like by another
    post of each user. The default run takes about a minute on two cores.
    """

    data: Annotated[options.Data, TagBundle] = "toy-tags"
    betas: Annotated[str, Option(help="Weights of the trace, separated by commas.")] = "0.1,1,10,100"
    rank: Annotated[int, Option(min=1, help="Rank of pairwise interactions.")] = 64
    seeds: options.Seeds = 3
    methods: Annotated[str, options.methods_option(RECOMMENDERS)] = ",".join(RECOMMENDERS)
    select: options.Select = "none"
    # A choice is made by one more post of each user, instead of folds.
    folds: int = field(init=False, default_factory=lambda: 2)

    name: ClassVar = "tagging"
    known: ClassVar = RECOMMENDERS
    measured_by: ClassVar = ("predict",)
    headings: ClassVar = {"f1": "F1, top 5", "sem": "±", "gap": "rel. gap", "train_seconds": "train s"}
    toy: ClassVar = "If a claim fails here: the posts are generated, of forty users; see --data ml10m-tags."

    def check(self) -> None:
        self.columns = {"f1": "sem", "rank": None, "gap": None}
        betas = checked_betas(options.positive_numbers(self.betas, "--betas"))
        for name, kind in self.chosen.items():
            if isinstance(kind.estimator, TagRecommender):
                self.chosen[name] = replace(kind, grid=crossed(beta=betas))

    def settings(self) -> list[Settings]:
        rows: list[Settings] = []
        for name, kind in self.chosen.items():
            one = {"method": name, "code": kind.code, "rank": self.rank * kind.ranked}
            if isinstance(kind.estimator, TagRecommender) and self.select == "none":
                rows += [one | {"parameters": at, "variant": f"β = {at['beta']:g}"} for at in kind.grid]
            else:
                rows.append(one)
        return rows

    def header(self) -> str:
        bundle, (users, items, tags) = self.bundle, self.bundle.counts
        about = f"{users} users, {items} items, {tags} tags, {bundle.posts().max() + 1:,} posts"
        return f"{bundle.name} ({bundle.source}): {about}; {self.splits}"

    def choose(self, one: Settings) -> Cell:
        test = self.bundle.held_out(one["seed"])
        held, grid = self.bundle.held_out(one["seed"], test), self.chosen[one["method"]].grid

        def score(point: Settings, held: Array) -> float:
            return float(self.trained(one | {"parameters": point}, test, held)["f1"])

        return {"parameters": searched(self.run, self.label(one), grid, score, [held])}

    def measured(self, one: Settings) -> Cell:
        test = self.bundle.held_out(one["seed"])
        try:
            return self.trained(one, test, test)
        except DivergedError as error:
            return dict.fromkeys((*self.columns, "seconds")) | {"failed": str(error)}

    def trained(self, one: Settings, test: Array, held: Array) -> Cell:
        """Return the F1 of a model on held-out posts, and of a co-embedding its rank and certified gap."""
        bundle = self.bundle
        model = self.chosen[one["method"]].made(one["parameters"], rank=one["rank"], random_state=one["seed"])
        train, held_out = bundle.triples[~test & ~held], bundle.triples[held]
        begun = perf_counter()
        with threadpool_limits(1, user_api="blas"):
            if isinstance(model, TagModel):
                # Names are already numbers; users and items of the held-out posts may have no other post.
                model.users_, model.items_, model.tags_ = (np.arange(count) for count in bundle.counts)
                model.learn(train, bundle.counts)
            else:
                model.fit(train[:, :2], train[:, 2])
        seconds = perf_counter() - begun

        def best(pairs: Array) -> Any:
            return rows_of("predict(pairs)", model.predict(pairs), len(pairs))[:, :TOP]

        f1 = posts_f1(held_out[:, :2], held_out[:, 2], best)
        ours = isinstance(model, TagRecommender)
        rank, gap = (model.rank_, model.gap_ / model.objective_) if ours else (one["rank"] or None, None)
        return {"f1": f1, "rank": rank, "gap": gap, "seconds": seconds}

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        ours, claims = [row for row in rows if row["method"] == "ila"], []
        if len(ours) > 1:
            ranks = [row.mean("rank") for row in ours]
            numbers = ", ".join(f"{rank:.0f} ({row.label})" for rank, row in zip(ranks, ours, strict=True))
            falls = bool((np.diff(ranks) <= 0).all())
            claims.append(Claim("the optimal rank falls as β grows", falls, numbers))
        for row in (row for row in rows if ours and row not in ours):
            # The best of several on the test posts would be selected on them.
            gaps = {"": Difference.of(ours[0].cells, row.cells, "f1")} if len(ours) == 1 else {}
            claim = f"F1 is near to that of {row.label} (within {NEAR_F1:g})"
            claims.append(above(claim, gaps, "one β, or --select first", NEAR_F1, ours[0].label))
        return claims


# Section 5: growing factors. Rounds, rank and certificate.
Solution = tuple[int, int, Certificate]
# For each number of samples and each method: seconds by number of features.
Curves = dict[int, dict[str, dict[int, float]]]

# Weight of the trace, and the relative certified gap at which a method is done.
BETA, TOL = 0.5, 1e-5


def _rounds(cost: ConvexCost, seed: int, **how: Any) -> Solution:
    problem = Problem(PSDFixedRank(cost.shape[0], 1), cost)
    result: Any = RankIncremental(columns=1, tol=TOL, **how).run(problem, random_state=0)
    return result.steps, result.point.rank, result.certificate


def _one_shot(cost: ConvexCost, seed: int) -> Solution:
    """Minimise over all n columns at once, from a random start."""
    n = cost.shape[0]
    Y = np.random.default_rng([seed, n]).standard_normal((n, n)) / np.sqrt(n)
    result = LBFGS(20, max_iter=20_000, tol=1e-12).run(Problem(PSDFactors(*Y.shape), cost), Y)
    lengths = np.linalg.svd(result.point, compute_uv=False)
    return result.steps, int((lengths > 1e-6 * lengths[0]).sum()), certify(cost, result.point)[0]


STRATEGIES: dict[str, tuple[str, Callable[[ConvexCost, int], Solution]]] = {
    "exponential": ("exponential", _rounds),
    "linear": ("linear (Zhang et al.)", partial(_rounds, factor=1)),
    "journee": ("linear (Journée et al.)", partial(_rounds, factor=1, rescale=False)),
    "boosting": ("boosting, not local", partial(_rounds, factor=1, inner=None)),
    "one-shot": ("all columns at once", _one_shot),
}


def metric_regression(
    run: Run,
    *,
    sizes: Annotated[str, Option(help="Numbers of features n, separated by commas.")] = "10,20,40",
    samples: Annotated[str, Option(help="Numbers of samples t, separated by commas.")] = "250,1000",
    methods: Annotated[str, options.methods_option(STRATEGIES)] = "exponential,linear",
    seeds: options.Seeds = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Compare growing a factor exponentially, linearly and not at all, on a problem with a known minimum.

    The metric W ⪰ 0 should preserve the inner products of t standard normal samples of n features, at a price for its
    trace. The relative error is measured from the closed form of the minimum. Times are medians over the seeds. The
    default run takes half a minute.
    """
    chosen = options.chosen_from(STRATEGIES, methods, "--methods")
    numbers, counts = options.whole_numbers(sizes, "--sizes"), options.whole_numbers(samples, "--samples")
    # Libraries are loaded before the clock starts.
    for _, solve in chosen.values():
        solve(MetricRegression(np.eye(3)) + Trace(BETA), run.seed)

    def train(one: Settings) -> Cell:
        X = np.random.default_rng([one["seed"], one["n"], one["t"]]).standard_normal((one["n"], one["t"]))
        cost, begun = MetricRegression(X) + Trace(BETA), perf_counter()
        rounds, rank, certificate = chosen[one["method"]][1](cost, one["seed"])
        seconds = perf_counter() - begun
        error = certificate.objective / closed_form(X, BETA)[1] - 1.0
        found = {"rank": rank, "rounds": rounds, "relative_error": error, "gap": certificate.relative_gap}
        return found | {"seconds": seconds}

    # Times are comparable only if one model is trained at a time.
    comparison = Comparison(run, resume, seeds=seeds, beta=BETA, tol=TOL)
    settings = crossed(t=counts, n=numbers, method=chosen)
    each = [one | {"seed": seed} for seed in comparison.seeds for one in settings]
    with threadpool_limits(1, user_api="blas"):
        results = comparison.results(each, train, "solutions", lambda one: f"{one['method']}, n = {one['n']}")
    rows: list[Cell] = []
    curves: Curves = {t: {} for t in counts}
    for at, one in enumerate(settings):
        cells, label = results[at :: len(settings)], chosen[one["method"]][0]
        worst = {key: max(cell[key] for cell in cells) for key in ("rank", "rounds", "relative_error", "gap")}
        seconds = float(np.median([cell["seconds"] for cell in cells]))
        rows.append({"method": label, "t": one["t"], "n": one["n"], **worst, "train_seconds": seconds})
        curves[one["t"]].setdefault(label, {})[one["n"]] = seconds
    panels = [
        Panel(f"n, number of features, of t = {t:,} samples", "seconds",
              {label: list(times.items()) for label, times in lines.items()}, "xy")
        for t, lines in curves.items()
    ]  # fmt: skip
    run.draw("times.png", draw_panels, panels, f"β = {BETA:g}", size=(9.0, 3.8))
    about = {"sizes": numbers, "samples": counts, "beta": BETA, "tol": TOL, "seeds": seeds}
    headings = {"relative_error": "rel. error", "gap": "rel. gap", "train_seconds": "seconds"}
    return Outcome("standard normal", about, rows, headings, growth_claims(curves))


def growth_claims(curves: Curves) -> list[Claim]:
    """Return the claims of Figure 2 with the verdict of the times."""
    fast, slow = STRATEGIES["exponential"][0], STRATEGIES["linear"][0]
    claims = []
    for t, lines in curves.items():
        if {fast, slow} <= set(lines):
            ratios = {n: lines[slow][n] / seconds for n, seconds in lines[fast].items()}
            numbers = ", ".join(f"n = {n} {ratio:.1f}" for n, ratio in ratios.items())
            first, last = ratios[min(ratios)], ratios[max(ratios)]
            grows = last > first if len(ratios) > 1 else None
            faster = f"t = {t:,}: exponential growth is faster than linear growth"
            claims.append(Claim(faster, last > 1.0, numbers))
            claims.append(Claim(f"t = {t:,}: the advantage grows with n", grows, numbers))
    return claims
