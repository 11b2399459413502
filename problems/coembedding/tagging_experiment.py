"""The experiment ``rmopt run tagging``: which tags a user gives to an item (Mirzazadeh et al. 2015, section 7).

Beside `experiment`: its data are posts, and it looks at models while their rank grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Annotated, Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.coembedding.cost import TagRanking
from problems.coembedding.estimators import checked_betas, minimise
from problems.coembedding.experiment import draw_curves
from problems.coembedding.links import PairwiseInteractionTags, TagModel, TagRecommender, posts_f1
from problems.comparison import Difference, Experiment, Row, averaged, crossed, grown, near
from problems.data import TagBundle
from problems.methods import Cell, Method, Settings, rows_of
from rmopt.core import DivergedError, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import number
from rmopt.experiments import Claim
from rmopt.solvers import OneByOne, RankIncremental, Recorder

METHODS: dict[str, Method] = {
    "ila": Method("ILA", TagRecommender()),
    "pitf": Method(
        "Pairwise interactions", PairwiseInteractionTags(),
        crossed(penalty=(5e-4, 5e-3, 5e-2), n_epochs=(50, 200, 800)),
    ),
}  # fmt: skip
# An objective this close to the minimum counts as there (Figure 5); F1 is near by so much.
NEAR, NEAR_F1 = 0.01, 0.02
# Tags that are recommended.
TOP = 5


@dataclass(kw_only=True)
class Tagging(Experiment):
    """Recommend tags: users, items and tags in one space, beside the pairwise-interaction factor model.

    One post of each user is held out. F1 of the five best tags and the training objective are watched while the rank
    grows towards that of the global minimum. The default run takes about a minute on two cores.
    """

    data: Annotated[options.Data, TagBundle] = "toy-tags"
    betas: Annotated[str, Option(help="Weights of the trace, with commas between.")] = "0.1,1,10,100"
    columns: Annotated[int, Option(help="Columns of the first round.")] = 4
    tol: Annotated[float, Option(help="Relative gap to the global minimum.")] = 1e-2
    rank: Annotated[int, Option(help="Rank of pairwise interactions.")] = 64
    seeds: options.Seeds = 3
    methods: Annotated[str, options.methods_option(METHODS)] = ",".join(METHODS)
    select: Annotated[
        options.Selection,
        Option(
            help="Choose β and the like by a training post of each user: none, of the first split, or of each."
        ),
    ] = "none"
    # A choice is made by one more post of each user, in the place of folds.
    folds: int = field(init=False, default_factory=lambda: 2)

    name: ClassVar = "tagging"
    known: ClassVar = METHODS
    measured_by: ClassVar = ("predict",)
    headings: ClassVar = {
        "f1": "F1, top 5", "sem": "±", "best_f1": "best F1", "best_rank": "at rank",
        "near_rank": "within 1 % at rank", "gap": "rel. gap", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = (
        "Where a claim fails here: the posts are made up, of forty users; the paper's are thousands, as --data "
        "ml10m-tags has them."
    )

    def check(self) -> None:
        self.weights = checked_betas(options.positive_numbers(self.betas, "--betas"))
        options.check_options(vars(self), columns=1, seeds=1, rank=1)
        number("--tol", self.tol, above=0)

    def settings(self) -> list[Settings]:
        made: list[Settings] = []
        for name, kind in self.chosen.items():
            one = {"method": name, "code": kind.code, "rank": self.rank * kind.ranked, "beta": 0.0}
            if not isinstance(kind.estimator, TagRecommender):
                made.append(one)
                continue
            self.chosen[name] = replace(kind, grid=crossed(beta=self.weights))
            one |= {"columns": self.columns, "tol": self.tol}
            told = [{"beta": beta, "parameters": {"beta": beta}} for beta in self.weights]
            made += [one | choice for choice in (told if self.select == "none" else [{}])]
        return made

    def header(self) -> str:
        bundle, (users, items, tags) = self.bundle, self.bundle.counts
        return (
            f"{bundle.name} ({bundle.source}): {users} users, {items} items, {tags} tags, {len(bundle.triples):,} "
            f"triples in {bundle.posts().max() + 1:,} posts; {self.splits}"
        )

    def label(self, one: Settings) -> str:
        beta, width = one["beta"], one["rank"]
        return (
            self.chosen[one["method"]].label + f", β = {beta:g}" * bool(beta) + f", k = {width}" * bool(width)
        )

    def choose(self, one: Settings) -> Cell:
        test = self.bundle.held_out(one["seed"])
        held = self.bundle.held_out(one["seed"], test)

        def scores(points: Sequence[Settings]) -> Array:
            found = [self.trained(one | {"parameters": point}, test, held)["f1"] for point in points]
            return np.array([-np.inf if f1 is None else f1 for f1 in found])

        kind = self.chosen[one["method"]]
        points, f1 = grown(
            kind.grid, scores, lambda f1: np.flatnonzero(f1 == f1.max()),
            lambda what: self.run.say(f"{kind.label}: {what}"),
        )  # fmt: skip
        return {"parameters": points[int(f1.argmax())]}

    def measured(self, one: Settings) -> Cell:
        test = self.bundle.held_out(one["seed"])
        return self.trained(one, test, test)

    def trained(self, one: Settings, test: Array, held: Array) -> Cell:
        """Return the F1 of a model, and of a co-embedding what was seen while its rank grew."""
        bundle, model = (
            self.bundle,
            self.chosen[one["method"]].made(one["parameters"], rank=one["rank"], random_state=one["seed"]),
        )
        train, held_out = bundle.triples[~test & ~held], bundle.triples[held]
        if isinstance(model, TagModel):
            # Names are numbers already; users and items of the held-out posts may have no other post.
            model.users_, model.items_, model.tags_ = (np.arange(count) for count in bundle.counts)
        begun = perf_counter()
        with threadpool_limits(1, user_api="blas"):
            if isinstance(model, TagRecommender):
                return self._embedded(model, one, train, held_out)
            try:
                if isinstance(model, TagModel):
                    model.learn(train, bundle.counts)
                else:
                    model.fit(train[:, :2], train[:, 2])
            except DivergedError:
                return dict.fromkeys(("f1", "rank", "gap", "seconds")) | {"curve": []}
            seconds = perf_counter() - begun

        def best(pairs: Any) -> Any:
            found = rows_of("predict(pairs)", model.predict(pairs), len(pairs))[:, :TOP]
            if (found != np.round(found)).any() or found.min() < 0 or found.max() >= bundle.counts[2]:
                raise InvalidInputError(
                    f"predict(pairs) must hold numbers of tags, from 0 to {bundle.counts[2] - 1}, the best first."
                )
            return found

        f1 = posts_f1(held_out[:, :2], held_out[:, 2], best)
        return {"f1": f1, "rank": one["rank"] or None, "gap": None, "seconds": seconds, "curve": []}

    def _embedded(self, model: TagRecommender, one: Settings, train: Array, held: Array) -> Cell:
        def f1_at(point: Any) -> float:
            model.embed(point.factor(), self.bundle.counts)
            return model.score(held[:, :2], held[:, 2])

        solver = RankIncremental(OneByOne(one["columns"]), tol=one["tol"])
        cost, begun = TagRanking(train, self.bundle.counts), perf_counter()
        result = minimise(cost, model.beta, solver, recorder=Recorder({"f1": f1_at}, at=()))
        seconds, names = perf_counter() - begun, ("rank", "objective", "gap", "f1", "seconds")
        curve = [{name: row[name] for name in names} for row in result.history]
        best = max(curve, key=lambda row: row["f1"])
        enough = (1.0 + NEAR) * curve[-1]["objective"]
        return {
            "f1": curve[-1]["f1"], "rank": result.point.rank, "gap": result.certificate.relative_gap,
            "seconds": seconds, "curve": curve, "best_f1": best["f1"], "best_rank": best["rank"],
            "near_rank": next(row["rank"] for row in curve if row["objective"] <= enough),
        }  # fmt: skip

    def row(self, row: Row) -> Cell:
        if not row.cells[0]["curve"]:
            return averaged(row.cells, f1="sem", rank=None)
        watched = dict.fromkeys(("rank", "best_f1", "best_rank", "near_rank"))
        return averaged(row.cells, f1="sem", **watched) | {"gap": max(cell["gap"] for cell in row.cells)}

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        ours, others = (
            [row for row in rows if bool(row.cells[0]["curve"]) is embeds] for embeds in (True, False)
        )
        if not ours:
            return []
        ranks = {row.label: (row.mean("near_rank"), row.mean("rank")) for row in ours}
        made = [
            Claim(
                "local minima approach the global one at half of the optimal rank or less",
                # An empty model approaches nothing.
                all(close <= 0.5 * last > 0.0 for close, last in ranks.values()),
                "within 1 % at rank "
                + ", ".join(f"{close:.0f} of {last:.0f} ({label})" for label, (close, last) in ranks.items()),
            )
        ]
        order = [last for _, last in ranks.values()]
        if len(order) > 1:
            falls = bool((np.diff(order) <= 0).all())
            made.append(
                Claim("the optimal rank falls as β grows", falls, ", ".join(f"{last:.0f}" for last in order))
            )
        # The best of several on the test posts would be chosen by them.
        best, single = ours[0], len(ours) == 1
        for row in others:
            gap = Difference.of(best.cells, row.cells, "f1")
            claim, needs = (
                f"F1 is near to that of {row.label} (within {NEAR_F1:g})",
                "one β, or --select first",
            )
            made.append(near(claim, {"by split": (gap, NEAR_F1)} if single else {}, best.label, needs))
        return made

    def draw(self, rows: Sequence[Row]) -> None:
        curves = {row.label: row.cells[0]["curve"] for row in rows if row.cells[0]["curve"]}
        if curves:
            panels = {
                "F1 of the five best tags (test)": {
                    label: [(seen["rank"], seen["f1"]) for seen in curve[1:]]
                    for label, curve in curves.items()
                },
                "objective / last objective": {
                    label: [(seen["rank"], seen["objective"] / curve[-1]["objective"]) for seen in curve[1:]]
                    for label, curve in curves.items()
                },
            }
            title = f"{self.bundle.name}, first split"
            self.run.draw("ranks.png", draw_curves, panels, "rank", "", title, size=(9.0, 4.0))
