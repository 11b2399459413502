"""The experiment ``rmopt run similarity``: LORETA-1 beside the rivals of its paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from problems.datasets import Bundle, load
from problems.evaluation import Retrieval, bilinear_scores, cosine_scores, evaluate_retrieval
from problems.similarity.figure import draw_learning_curves
from problems.similarity.model import BilinearSimilarity
from problems.similarity.rivals import FactoredGradientDescent, PassiveAggressive
from problems.similarity.sampling import ClassTriplets
from problems.similarity.training import initial_point, loreta_solver
from problems.text import prepare_text, select_terms
from rmopt.core import InvalidInputError, LowRankPoint, Problem
from rmopt.costs import TripletSum
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import Checkpoint, Recorder, Solver

# Enough for a learning curve; the table measures all test documents.
CURVE_QUERIES = 200
COMPARABLE = ("retraction", "step-size", "engine", "rank", "init")

Option = typer.Option


def similarity(
    run: Run,
    *,
    data: Annotated[str, Option(help="Data set; `rmopt list` names them.")] = "digits",
    data_home: Annotated[Path | None, Option(help="Folder that holds the data sets.")] = None,
    features: Annotated[int, Option(help="Features to keep, by information gain; 0: all.")] = 0,
    rank: Annotated[int, Option(help="Rank of the similarity.")] = 10,
    triplets: Annotated[int, Option(help="Training triplets for each method.")] = 100_000,
    split: Annotated[int, Option(help="Random 65/35 split with this seed; -1: the published one.")] = -1,
    step_size: Annotated[float, Option(help="Step size of LORETA-1.")] = 10.0,
    retraction: Annotated[
        str, Option(help="second-order, metric-projection or orthographic.")
    ] = "second-order",
    engine: Annotated[str, Option(help="auto, compiled or reference.")] = "auto",
    init: Annotated[str, Option(help="Start of the learners: identity or gaussian.")] = "identity",
    gd_step_size: Annotated[float, Option(help="Step size of naive gradient descent.")] = 0.1,
    pa_c: Annotated[float, Option(help="Largest step C of passive-aggressive.")] = 0.1,
    compare: Annotated[
        str, Option(help="Variants of LORETA-1 side by side, e.g. retraction=second-order,orthographic.")
    ] = "",
    resume: Annotated[
        bool, Option("--resume", help="Go on from the checkpoints in the --out folder.")
    ] = False,
) -> Outcome:
    """Learn a similarity of documents: LORETA-1 beside cosine and factored rivals.

    Triplets (query, similar document, dissimilar document) are drawn from the classes of the training
    part; each test document then ranks the others (Shalit et al. 2012, section 7.1).
    """
    settings: dict[str, Any] = {
        "rank": rank, "step-size": step_size, "retraction": retraction, "engine": engine, "init": init,
    }  # fmt: skip
    key, variants = _variants(compare, settings)
    run.prepare_to_draw()
    bundle = _prepared(load(data, data_home), features, split)
    train, test = bundle.train, bundle.test
    X, y = bundle.X[train], bundle.y[train]
    bench = Bench(run, X, y, bundle.X[test], bundle.y[test], triplets, resume)
    # Every setting is tried out before the first method starts to train.
    planned: list[tuple[str, dict[str, Any], Solver, FixedRankEmbedded]] = []
    sampler, n = bench.sampler, X.shape[1]
    manifold = FixedRankEmbedded(n, n, rank)
    gradient_descent = FactoredGradientDescent(gd_step_size, n_steps=triplets, sampler=sampler)
    passive_aggressive = PassiveAggressive(pa_c, n_steps=triplets, sampler=sampler)
    planned.append(("naive gradient descent", {}, gradient_descent, manifold))
    planned.append(("passive-aggressive", {}, passive_aggressive, manifold))
    for variant in variants:
        label = "LORETA-1" if key is None else f"LORETA-1, {variant[key]}"
        loreta = loreta_solver(
            variant["step-size"],
            triplets,
            sampler,
            retraction=variant["retraction"],
            engine=variant["engine"],
        )
        on = FixedRankEmbedded(n, n, variant["rank"])
        initial_point(on, variant["init"], run.seed)
        loreta.engine(Problem(on, bench.cost))
        planned.append((label, variant, loreta, on))

    run.say(
        f"{bundle.name} ({bundle.source}): {train.sum():,} training, {test.sum():,} test documents; "
        f"{X.shape[1]:,} features, {bundle.n_classes} classes"
    )
    rows = [bench.cosine_row()]
    curves: dict[str, list[dict[str, Any]]] = {}
    for label, variant, method, on in planned:
        start = initial_point(on, variant.get("init", init), run.seed)
        row, curves[label] = bench.row(label, method, on, start)
        rows.append(row)
    run.draw(
        "learning-curves.png", draw_learning_curves, curves, rows[0]["map"], bundle.name, size=(9.0, 4.0)
    )
    parameters = {
        "features": X.shape[1], "triplets": triplets, "split": split, "gd_step_size": gd_step_size,
        "pa_c": pa_c, "compare": compare, **{name.replace("-", "_"): value for name, value in settings.items()},
    }  # fmt: skip
    return Outcome(
        data=bundle.name,
        parameters=parameters,
        rows=rows,
        headings={"precision_at_1": "P@1", "precision_at_10": "P@10", "train_seconds": "train s"},
    )


class Bench:
    """The training and test parts, and how a method becomes a row of the table."""

    def __init__(
        self, run: Run, X: Any, y: Any, X_test: Any, y_test: Any, triplets: int, resume: bool
    ) -> None:
        self.run, self.X_test, self.y_test, self.resume = run, X_test, y_test, resume
        self.cost, self.sampler = TripletSum(X, X), ClassTriplets(y)
        n_curve = min(CURVE_QUERIES, len(y_test))
        self.curve_queries = np.sort(np.random.default_rng(run.seed).permutation(len(y_test))[:n_curve])
        self.first = max(1, triplets // 100)

    def cosine_row(self) -> dict[str, Any]:
        """Return the row of the plain cosine."""
        measured = evaluate_retrieval(cosine_scores(self.X_test), self.y_test)
        return _row("cosine", measured, 0.0, 0)

    def row(
        self, label: str, solver: Solver, manifold: FixedRankEmbedded, start: LowRankPoint
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Train one method; return its row and its learning curve, and save its model."""
        name = "-".join(label.lower().replace(",", "").split())
        checkpoint = Checkpoint(self.run.path("checkpoints") / f"{name}.npz")
        if not self.resume:
            Path(checkpoint.path).unlink(missing_ok=True)
        recorder = Recorder(
            {"map": lambda point: self._measured(point, self.curve_queries, ks=()).map},
            first=self.first,
            log=self.run.path(f"{name}.jsonl"),
            progress=self.run.progress,
            description=label,
        )
        result = solver.run(
            Problem(manifold, self.cost),
            start,
            random_state=self.run.seed,
            recorder=recorder,
            checkpoint=checkpoint,
        )
        row = _row(label, self._measured(result.point, None), result.seconds, result.updates)
        BilinearSimilarity(result.point, {"steps": result.steps, "updates": result.updates}).save(
            self.run.path(f"{name}.npz")
        )
        return row, result.history

    def _measured(self, point: LowRankPoint, queries: Any, ks: tuple[int, ...] = (1, 10)) -> Retrieval:
        model = BilinearSimilarity(point)
        scores = bilinear_scores(model.embed_queries(self.X_test), model.embed_documents(self.X_test))
        return evaluate_retrieval(scores, self.y_test, queries=queries, ks=ks)


def _row(label: str, measured: Retrieval, seconds: float, updates: int) -> dict[str, Any]:
    return {
        "method": label,
        "map": measured.map,
        "precision_at_1": measured.precision_at[1],
        "precision_at_10": measured.precision_at[10],
        "train_seconds": seconds,
        "updates": updates,
    }


def _prepared(bundle: Bundle, features: int, split: int) -> Bundle:
    """Return the bundle split and with unit rows, its columns in order of information gain."""
    if split >= 0:
        bundle = bundle.resplit(split)
    n_features = bundle.X.shape[1] if features == 0 else features
    if not isinstance(bundle.X, np.ndarray):
        return prepare_text(bundle, n_features)
    chosen = bundle.X[:, select_terms(bundle.X, bundle.y, bundle.train, n_features)]
    lengths = np.linalg.norm(chosen, axis=1, keepdims=True)
    return replace(bundle, X=chosen / np.where(lengths > 0, lengths, 1.0))


def _variants(compare: str, settings: dict[str, Any]) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the key of ``KEY=VALUE,VALUE`` and the settings of each variant."""
    if not compare:
        return None, [settings]
    key, equals, values = compare.partition("=")
    if key not in COMPARABLE or not equals or not all(values.split(",")):
        raise InvalidInputError(
            f"--compare {compare!r} must be KEY=VALUE,VALUE with KEY one of {', '.join(COMPARABLE)}."
        )
    kind = type(settings[key])
    try:
        return key, [settings | {key: kind(value)} for value in values.split(",")]
    except ValueError:
        raise InvalidInputError(f"--compare {compare!r}: the values of {key} must be numbers.") from None
