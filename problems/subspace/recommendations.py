"""``rmopt fit completion``: from ratings in a file to a model, its error, and a list for every user."""

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone
from typer import Argument, Option

from problems.data import Ratings
from problems.data.files import read_file
from problems.data.tables import MEANT, first_of, plain
from problems.options import DataHome, loaded, ranks_within
from problems.subspace.als import BiasedALS, ImplicitALS
from problems.subspace.baselines import ItemNeighbors, MostPopular
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import CompletionModel
from rmopt.core import InvalidInputError
from rmopt.experiments import Outcome, Run
from rmopt.files import write_atomically

MODELS: dict[str, Any] = {"als": BiasedALS, "bayesian": BayesianCompletion, "implicit": ImplicitALS}
# The share of the ratings for the measurement of the error.
HIDDEN = 0.1
# The largest size in bytes of the samples of a BayesianCompletion taken by default.
ROOM = 2**30
# Counts this far above their median are reported.
SKEWED = 20.0
HEADINGS = {"test_rmse": "RMSE", "ndcg": "nDCG", "train_seconds": "train s"}
_FILE = (
    "ratings, one per line, or a registered data set. If names of columns are not clear, add their meaning: "
    "ratings.csv::user=uid,item=film,rating=stars."
)
File = Annotated[str, Argument(metavar="FILE", help=_FILE)]
_MODEL = (
    "bayesian, the default, has smaller errors than als, and needs more time and memory; implicit is for views, "
    "clicks and purchases."
)
Model = Annotated[Literal["als", "bayesian", "implicit"] | None, Option(help=_MODEL)]
Weights = Annotated[
    Literal["bm25", "log", "counts", "ones"] | None,
    Option(help="For --model implicit: counts damped by BM25, the default, or log, unchanged, or all equal."),
]
Implicit = Annotated[bool, Option("--implicit", help="For bayesian: also learn from who rated what.")]
MinSupport = Annotated[int, Option(min=0, help="Items with fewer ratings are not recommended.")]
Rank = Annotated[int | None, Option(min=1, help="Rank of the model; by default 10, or less for few data.")]
Count = Annotated[int, Option("--n", "-n", min=1, help="Number of items recommended to a user.")]
Names = Annotated[
    Path | None,
    Option("--names", metavar="FILE", help="Items' ids, and their titles in a column title or name."),
]


def completion(
    run: Run, file: File, *, data_home: DataHome = None, model: Model = None, rank: Rank = None, n: Count = 10,
    names: Names = None, weights: Weights = None, min_support: MinSupport = 3, implicit: Implicit = False,
) -> Outcome:  # fmt: skip
    """Learn from ratings in a file, and write model.npz and recommendations.csv: the best items for every user.

    The error is measured on a tenth of the ratings, which a first model did not get. The saved model learns from all.
    Below the error is that by users and items alone, or for views the scores of item neighbours and of the most
    popular items.
    """
    model = model or ("bayesian" if implicit else None)
    for option, given, kind in (("weights", weights, "implicit"), ("implicit", implicit, "bayesian")):
        if given and model != kind:
            raise InvalidInputError(f"--{option} is for --model {kind}; add that, or leave --{option} out.")
    # Repeated plays are added up.
    sums = model == "implicit" and Path(file.partition("::")[0]).exists() and "duplicates=" not in file
    ratings = loaded(run, file, data_home, Ratings, **{"duplicates": "sum"} if sums else {})
    ratings = ratings if names is None else titled(run, ratings, names)
    for note in ratings.zeros():
        run.say(note)
    if model != "implicit" and ratings.values.min() == ratings.values.max():
        raise InvalidInputError(
            f"all ratings are {ratings.values[0]:g}: there is nothing to predict; take --model implicit, for data "
            "without ratings."
        )
    (width,) = ranks_within(run.say, str(rank or ""), "10", min(ratings.shape) - 1)
    size = sum(ratings.shape) + ratings.shape[1]
    if model is None:
        model = "bayesian" if 4 * BayesianCompletion.n_samples * (width + 1) * size <= ROOM else "als"
    estimator = MODELS[model](width, random_state=run.seed, **{"implicit": True} if implicit else {})
    if model == "implicit":
        weights = estimator.weights = weights or estimator.weights
        if (most := ratings.values.max()) > SKEWED * (median := np.median(ratings.values)):
            run.say(
                f"Counts run up to {most:g}, with a median of {median:g}: they are weighted by --weights {weights}; "
                "unweighted, a few would dominate the model."
            )
    rows = _measured(run, estimator, ratings, n)
    estimator.fit(ratings).save(run.path("model.npz"))
    write_lists(run, estimator, n, min_support)
    about = dict(model=model, rank=width, n=n, weights=weights, min_support=min_support, implicit=implicit)
    notes = [f"\nMeasured on {HIDDEN:.0%} of the ratings, held out. The saved model learns from all."]
    notes.append(f"rmopt serve {shlex.quote(str(run.out))} shows the lists of all users in a browser.")
    return Outcome(ratings.source, about, rows, headings=HEADINGS, notes=notes)


def write_lists(run: Run, model: CompletionModel, n: int = 10, min_support: int = 3) -> None:
    """Write recommendations.csv: the best items for every user of a fitted model."""
    users, std = model.column_names_.tolist(), isinstance(model, BayesianCompletion)
    if rare := int(np.sum(model._supports() < min_support)):
        run.say(
            f"{rare:,} of {len(model.row_names_):,} items have fewer than {min_support} ratings and are in no list; "
            "rmopt fit completion --min-support 0 lists them too."
        )
    lists = model.recommend(users, n, return_std=std, min_support=min_support)
    lines = [
        (name, place, item, *scores)
        for name, best in zip(users, lists, strict=True)
        for place, (item, *scores) in enumerate(best, 1)
    ]
    table = pd.DataFrame(lines, columns=["user", "place", "item", "score", *["std"] * std])
    if hasattr(model, "row_ids_"):
        table.insert(3, "id", table["item"].map(pd.Series(model.row_ids_, model.row_names_)))
    for names in table.select_dtypes(["object", "string"]):
        # A text that looks like a spreadsheet formula gets an apostrophe.
        table[names] = table[names].str.replace(r"^(?=[=+\-@\t\r])", "'", regex=True)
    text = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(run.path("recommendations.csv"), lambda file: file.write(text.encode()))


def titled(run: Run, ratings: Ratings, path: Path) -> Ratings:
    """Return ratings whose items have their names in a file, in the column called title, or the only other one."""
    frame = read_file(path).frame.astype(str).apply(lambda column: column.str.strip())
    known = np.arange(ratings.shape[0]) if ratings.row_names is None else ratings.row_names
    items = pd.Series(known).astype(str)
    held = frame.apply(lambda column: items.isin(column).sum())
    meant = {name: "item" if plain(name) == "id" else MEANT.get(plain(name)) for name in frame}
    most = [name for name in frame if held[name] == held.max() > 0]
    called = [name for name in frame if held[name] and meant[name] == "item"]
    ids = [name for name in most if name in called] or most + called
    others = [name for name in frame if name not in ids]
    named = [name for name in others if meant[name] == "name"] or others
    if len(ids) != 1 or len(named) != 1:
        raise InvalidInputError(
            f"--names {path} must have one column with the items, such as {items[0]!r}, and one with their titles; "
            f"call these id and title, and leave out others, of {first_of(list(frame))}."
        )
    titles = items.map(dict(zip(frame[ids[0]], frame[named[0]], strict=True))).fillna("")
    gaps, idle = (titles == "").sum(), (~frame[ids[0]].isin(items)).sum()
    counts = {f"items without a title, of {len(items):,}": gaps, "titles never rated": idle}
    if found := "; ".join(f"{what}: {count:,}" for what, count in counts.items() if count):
        run.say(f"{path}: {found}.")
    titles = titles.mask(titles == "", items)
    # Films may share a title.
    titles = titles.mask(titles.duplicated(keep=False), titles + " (" + items + ")")
    return replace(ratings, row_names=np.array(titles.tolist()), row_ids=known)


def _measured(run: Run, estimator: CompletionModel, ratings: Ratings, n: int) -> list[dict[str, Any]]:
    """Return errors of a model and of simpler ones on held-out ratings, and print if it is no better."""
    held_out = ratings.held_out(run.seed, HIDDEN)
    train, test = ratings.table(~held_out), ratings.table(held_out)
    if train.nnz == 0 or test.nnz == 0:
        raise InvalidInputError(
            f"{len(ratings.values)} ratings are too few to learn from some and to measure on others."
        )
    lists = isinstance(estimator, ImplicitALS)
    rivals: dict[str, CompletionModel] = {type(estimator).__name__: estimator}
    if lists:
        rivals |= {"neighbours by BM25": ItemNeighbors(), "the most popular": MostPopular()}
    else:
        rivals["users and items alone"] = BiasedALS(0, random_state=run.seed)
    rows = []
    for label, rival in rivals.items():
        begun = time.perf_counter()
        model = clone(rival).set_params(limits=None if lists else ratings.limits).fit(train)
        row = {"model": label, "ratings": len(ratings.values), "rank": model.rank or None}
        row["train_seconds"] = time.perf_counter() - begun
        found = model.ranked(test, n=n)._asdict() if lists else {"test_rmse": model.rmse(test)}
        found.pop("n_columns", None)
        rows.append(row | found)
    key, sign = ("ndcg", -1.0) if lists else ("test_rmse", 1.0)
    if better := [row["model"] for row in rows[1:] if sign * row[key] <= sign * rows[0][key]]:
        run.say(
            f"{rows[0]['model']} is no better here than {' and '.join(better)}: take {better[0]}, or rmopt best."
        )
    return rows
