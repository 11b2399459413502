"""What ``rmopt fit completion`` runs: ratings in a file become a model, its error, and a list for every user."""

from __future__ import annotations

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
from problems.options import DataHome, loaded, ranks_within
from problems.subspace.als import BiasedALS, ImplicitALS
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import CompletionModel, ranked_lists
from rmopt.core import InvalidInputError
from rmopt.experiments import Outcome, Run
from rmopt.files import write_atomically

MODELS: dict[str, Any] = {"als": BiasedALS, "bayesian": BayesianCompletion, "implicit": ImplicitALS}
# The share of the ratings that the error is measured on.
HIDDEN = 0.1
# Of implicit feedback.
MEASURES = "precision", "recall", "ndcg"
HEADINGS = {"test_rmse": "RMSE", "ndcg": "nDCG", "train_seconds": "train s"}
File = Annotated[
    str,
    Argument(
        metavar="FILE",
        help="ratings, a line each, or a registered data set; ratings.csv::user=uid,item=film,rating=stars where the "
        "names of the columns do not say it.",
    ),
]
Model = Annotated[
    Literal["als", "bayesian", "implicit"],
    Option(help="bayesian errs less and takes longer; implicit is for views, clicks and purchases."),
]
Rank = Annotated[
    int | None, Option(min=1, help="The rank of the model; by default 10, or what fits the data.")
]
Count = Annotated[int, Option("--n", "-n", min=1, help="How many items are recommended to a user.")]
Names = Annotated[
    Path | None, Option("--names", metavar="FILE", help="Names of items, such as movies.csv: ids and titles.")
]


def completion(
    run: Run, file: File, *, data_home: DataHome = None, model: Model = "als", rank: Rank = None, n: Count = 10,
    names: Names = None,
) -> Outcome:  # fmt: skip
    """Learn from ratings in a file, and write model.npz and recommendations.csv: the best items for every user.

    The error is that of a model that has not seen a tenth of the ratings; the model that is written has seen all.
    Below it stands what users and items alone explain, or for views the most popular items.
    """
    # A play that comes again is another one.
    sums = model == "implicit" and Path(file.partition("::")[0]).exists() and "duplicates=" not in file
    ratings = loaded(run, file, data_home, Ratings, **{"duplicates": "sum"} if sums else {})
    ratings = ratings if names is None else _titled(ratings, names)
    if model != "implicit" and ratings.values.min() == ratings.values.max():
        raise InvalidInputError(
            f"all ratings are {ratings.values[0]:g}: there is nothing to predict; say --model implicit, which "
            "learns who has what."
        )
    (width,) = ranks_within(run.say, str(rank or ""), "10", min(ratings.shape) - 1)
    limits = None if model == "implicit" else ratings.limits
    estimator = MODELS[model](width, limits=limits, random_state=run.seed)
    rows = _measured(estimator, ratings, run.seed, n)
    fitted = estimator.fit(ratings)
    fitted.save(run.path("model.npz"))
    users = fitted.column_names_.tolist()
    lines = [
        (name, place, item, *scores)
        for name, best in zip(users, fitted.recommend(users, n, return_std=model == "bayesian"), strict=True)
        for place, (item, *scores) in enumerate(best, 1)
    ]
    table = pd.DataFrame(lines, columns=["user", "place", "item", "score", *["std"] * (model == "bayesian")])
    for names in table.select_dtypes(["object", "string"]):
        # A text that begins as a formula of a spreadsheet gets an apostrophe.
        table[names] = table[names].str.replace(r"^(?=[=+\-@\t\r])", "'", regex=True)
    text = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(run.path("recommendations.csv"), lambda file: file.write(text.encode()))
    return Outcome(ratings.source, {"model": model, "rank": width, "n": n}, rows, headings=HEADINGS)


def _titled(ratings: Ratings, path: Path) -> Ratings:
    """Return ratings whose items are called as the second column of a file says of the first."""
    frame = read_file(path).frame
    if len(frame.columns) < 2 or ratings.row_names is None:
        raise InvalidInputError(
            f"--names {path} must have two columns: the items of the ratings, and their names."
        )
    ids, names = (frame[column].astype(str).str.strip() for column in list(frame)[:2])
    items = pd.Series(ratings.row_names.tolist()).astype(str)
    titles = items.map(dict(zip(ids, names, strict=True)))
    if titles.isna().all():
        raise InvalidInputError(
            f"--names {path} has none of the items, such as {items[0]!r}; check its first column."
        )
    titles = titles.where(titles.notna() & (titles != ""), items)
    # Films may share a title.
    titles = titles.mask(titles.duplicated(keep=False), titles + " (" + items + ")")
    return replace(ratings, row_names=np.array(titles.tolist()))


def _measured(estimator: CompletionModel, ratings: Ratings, seed: int, n: int) -> list[dict[str, Any]]:
    """Return the error of a model, and of the simplest one, on ratings that they have not seen."""
    held_out = ratings.held_out(seed, HIDDEN)
    train, test = ratings.table(~held_out), ratings.table(held_out)
    if train.nnz == 0 or test.nnz == 0:
        raise InvalidInputError(
            f"{len(ratings.values)} ratings are too few to learn from some and to measure on others."
        )
    begun = time.perf_counter()
    model = clone(estimator).fit(train)
    row = {"model": type(model).__name__, "ratings": len(ratings.values), "rank": model.rank}
    row["train_seconds"] = time.perf_counter() - begun
    if isinstance(model, ImplicitALS):
        popular = np.diff(train.tocsr().indptr).astype(float)
        lists = model.ranked(test, n=n), ranked_lists(lambda column: popular, train, test, n)
        ours, theirs = ({key: getattr(measures, key) for key in MEASURES} for measures in lists)
        return [row | ours, {"model": "the most popular"} | theirs]
    biases = BiasedALS(0, limits=ratings.limits, random_state=seed).fit(train)
    return [
        row | {"test_rmse": model.rmse(test)},
        {"model": "users and items alone", "test_rmse": biases.rmse(test)},
    ]
