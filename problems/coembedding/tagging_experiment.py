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
from problems.coembedding.links import PairwiseInteractionTags, TagModel, TagRecommender, posts_f1
from problems.comparison import Difference, Experiment, Row, averaged, best_over_folds, crossed, near
from problems.data import TagBundle
from problems.methods import Cell, Method, Settings, rows_of
from problems.palette import Panel, draw_panels
from rmopt.core import DivergedError
from rmopt.core.ambient import Array
from rmopt.experiments import Claim
from rmopt.solvers import RankIncremental, Recorder

METHODS: dict[str, Method] = {
    "ila": Method("ILA", TagRecommender(tol=1e-2)),
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
    rank: Annotated[int, Option(min=1, help="Rank of pairwise interactions.")] = 64
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
        "f1": "F1, top 5", "sem": "±",
        "near_rank": "within 1 % at rank", "gap": "rel. gap", "train_seconds": "train s",
    }  # fmt: skip
    toy: ClassVar = (
        "Where a claim fails here: the posts are made up, of forty users; the paper's are thousands, as --data "
        "ml10m-tags has them."
    )

    def check(self) -> None:
        betas = checked_betas(options.positive_numbers(self.betas, "--betas"))
        for name, kind in self.chosen.items():
            if isinstance(kind.estimator, TagRecommender):
                self.chosen[name] = replace(kind, grid=crossed(beta=betas))

    def settings(self) -> list[Settings]:
        made: list[Settings] = []
        for name, kind in self.chosen.items():
            one = {"method": name, "code": kind.code, "rank": self.rank * kind.ranked}
            each = isinstance(kind.estimator, TagRecommender) and self.select == "none"
            made += [one | point | {"parameters": point} for point in kind.grid] if each else [one]
        return made

    def header(self) -> str:
        bundle, (users, items, tags) = self.bundle, self.bundle.counts
        about = f"{users} users, {items} items, {tags} tags, {bundle.posts().max() + 1:,} posts"
        return f"{bundle.name} ({bundle.source}): {about}; {self.splits}"

    def label(self, one: Settings) -> str:
        signs = {"β": one.get("beta"), "k": one["rank"]}
        more = [f"{sign} = {value:g}" for sign, value in signs.items() if value]
        return ", ".join([self.chosen[one["method"]].label, *more])

    def choose(self, one: Settings) -> Cell:
        test = self.bundle.held_out(one["seed"])
        held, kind = self.bundle.held_out(one["seed"], test), self.chosen[one["method"]]

        def score(point: Settings, held: Array) -> float:
            return float(self.trained(one | {"parameters": point}, test, held)["f1"])

        return {"parameters": best_over_folds(self.run, self.label(one), kind.grid, score, [held])}

    def measured(self, one: Settings) -> Cell:
        test = self.bundle.held_out(one["seed"])
        try:
            return self.trained(one, test, test)
        except DivergedError:
            return dict.fromkeys(("f1", "rank", "gap", "seconds")) | {"curve": []}

    def trained(self, one: Settings, test: Array, held: Array) -> Cell:
        """Return the F1 of a model, and of a co-embedding what was seen while its rank grew."""
        bundle = self.bundle
        model = self.chosen[one["method"]].made(one["parameters"], rank=one["rank"], random_state=one["seed"])
        train, held_out = bundle.triples[~test & ~held], bundle.triples[held]
        if isinstance(model, TagModel):
            # Names are numbers already; users and items of the held-out posts may have no other post.
            model.users_, model.items_, model.tags_ = (np.arange(count) for count in bundle.counts)
        begun = perf_counter()
        with threadpool_limits(1, user_api="blas"):
            if isinstance(model, TagRecommender):
                return self.watched(model, train, held_out)
            if isinstance(model, TagModel):
                model.learn(train, bundle.counts)
            else:
                model.fit(train[:, :2], train[:, 2])
        seconds = perf_counter() - begun

        def best(pairs: Array) -> Any:
            return rows_of("predict(pairs)", model.predict(pairs), len(pairs))[:, :TOP]

        f1 = posts_f1(held_out[:, :2], held_out[:, 2], best)
        return {"f1": f1, "rank": one["rank"] or None, "gap": None, "seconds": seconds, "curve": []}

    def watched(self, model: TagRecommender, train: Array, held: Array) -> Cell:
        """Return the F1 of a co-embedding, and what was seen after each round: rank, objective and F1."""
        counts = self.bundle.counts

        def f1_at(point: Any) -> float:
            model.embed(point.factor(), counts)
            return model.score(held[:, :2], held[:, 2])

        cost, begun = TagRanking(train, counts), perf_counter()
        solver = RankIncremental(columns=4, factor=1, tol=model.tol)
        result = minimise(cost, model.beta, solver, recorder=Recorder({"f1": f1_at}, at=()))
        seconds = perf_counter() - begun
        curve = [(row["rank"], row["objective"], row["f1"]) for row in result.history]
        _, last, f1 = curve[-1]
        return {
            "f1": f1, "rank": result.point.rank, "gap": result.certificate.relative_gap, "seconds": seconds,
            "curve": curve,
            "near_rank": next(rank for rank, objective, _ in curve if objective <= (1.0 + NEAR) * last),
        }  # fmt: skip

    def row(self, row: Row) -> Cell:
        if not row.cells[0]["curve"]:
            return averaged(row.cells, f1="sem", rank=None)
        gap = max(cell["gap"] for cell in row.cells)
        return averaged(row.cells, f1="sem", rank=None, near_rank=None) | {"gap": gap}

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        ours = [row for row in rows if row.cells[0]["curve"]]
        if not ours:
            return []
        ranks = {row.label: (row.mean("near_rank"), row.mean("rank")) for row in ours}
        # An empty model approaches nothing.
        near_half = all(close <= 0.5 * last > 0.0 for close, last in ranks.values())
        numbers = ", ".join(f"{close:.0f} of {last:.0f} ({label})" for label, (close, last) in ranks.items())
        claim = "local minima approach the global one at half of the optimal rank or less"
        made = [Claim(claim, near_half, f"within 1 % at rank {numbers}")]
        if len(ours) > 1:
            falls = bool((np.diff([last for _, last in ranks.values()]) <= 0).all())
            made.append(Claim("the optimal rank falls as β grows", falls, numbers))
        for row in (row for row in rows if row not in ours):
            # The best of several on the test posts would be chosen by them.
            gaps = {"": (Difference.of(ours[0].cells, row.cells, "f1"), NEAR_F1)} if len(ours) == 1 else {}
            claim = f"F1 is near to that of {row.label} (within {NEAR_F1:g})"
            made.append(near(claim, gaps, ours[0].label, "one β, or --select first"))
        return made

    def draw(self, rows: Sequence[Row]) -> None:
        curves = {row.label: row.cells[0]["curve"][1:] for row in rows if row.cells[0]["curve"][1:]}
        f1 = {label: [(rank, value) for rank, _, value in curve] for label, curve in curves.items()}
        cost = {label: [(rank, value) for rank, value, _ in curve] for label, curve in curves.items()}
        panels = [Panel("rank", "F1 of the five best tags (test)", f1), Panel("rank", "objective", cost, "y")]
        if curves:
            self.run.draw("ranks.png", draw_panels, panels, self.bundle.name, size=(9.0, 4.0))
