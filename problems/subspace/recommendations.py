"""What ``rmopt fit completion`` runs: ratings in a file become a model, its error, and a list for every user."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone
from typer import Argument, Option

from problems.data import Ratings
from problems.options import DataHome, loaded, ranks_within
from problems.subspace.als import BiasedALS, ImplicitALS
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import CompletionModel, ranked_lists
from rmopt.core import InvalidInputError
from rmopt.core.arguments import number
from rmopt.experiments import Outcome, Run
from rmopt.files import write_atomically

MODELS: dict[str, Any] = {"als": BiasedALS, "bayesian": BayesianCompletion, "implicit": ImplicitALS}
# Of implicit feedback.
MEASURES = "precision", "recall", "ndcg"
# Between two moves of the progress bar.
USERS = 100
HEADINGS = {"test_rmse": "RMSE", "ndcg": "nDCG", "train_seconds": "train s"}


def completion(
    run: Run,
    file: Annotated[
        str,
        Argument(
            metavar="FILE",
            help="Ratings, a line each, or a registered data set; ratings.csv::user=uid,item=film,rating=stars where "
            "the names of the columns do not say it.",
        ),
    ],
    *,
    data_home: DataHome = None,
    model: Annotated[
        Literal["als", "bayesian", "implicit"],
        Option(help="bayesian errs less and takes longer; implicit is for views, clicks and purchases."),
    ] = "als",
    rank: Annotated[
        int | None, Option(min=1, help="The rank of the model; unless given 10, or what fits the data.")
    ] = None,
    n: Annotated[int, Option("--n", "-n", min=1, help="How many items are recommended to a user.")] = 10,
    user: Annotated[
        list[str] | None, Option("--user", help="Recommend to this user alone; may be repeated.")
    ] = None,
    hidden: Annotated[float, Option(help="Share of the ratings that the error is measured on.")] = 0.1,
    duplicates: Annotated[
        Literal["sum", "mean", "last"] | None,
        Option(help="What to take of several ratings or plays of a user and an item."),
    ] = None,
) -> Outcome:
    """Learn from ratings in a file, and write model.npz and recommendations.csv: the best items for every user.

    The error is that of a model that has not seen the hidden ratings; the model that is written has seen all. Below
    it stands what users and items alone explain, or for views the most popular items.
    """
    number("--hidden", hidden, above=0, below=1)
    said = {} if duplicates is None else {"duplicates": duplicates}
    ratings = loaded(run, file, data_home, Ratings, **said)
    names = np.arange(ratings.shape[1]) if ratings.column_names is None else ratings.column_names
    by_text = {str(name): name for name in names.tolist()}
    if unknown := [name for name in user or () if name not in by_text]:
        raise InvalidInputError(
            f"--user {unknown[0]!r} is not in {ratings.source}, which names users such as {next(iter(by_text))!r}."
        )
    if model != "implicit" and ratings.values.min() == ratings.values.max():
        raise InvalidInputError(
            f"all ratings are {ratings.values[0]:g}: there is nothing to predict; say --model implicit, which "
            "learns who has what."
        )
    (width,) = ranks_within(run.say, str(rank or ""), "10", min(ratings.shape) - 1)
    limits = None if model == "implicit" else ratings.limits
    estimator = MODELS[model](width, limits=limits, random_state=run.seed)
    rows = _measured(estimator, ratings, run.seed, hidden, n)
    fitted = estimator.fit(ratings)
    fitted.save(run.path("model.npz"))
    chosen = [by_text[name] for name in user] if user else names.tolist()
    lists = _lists(run, fitted, chosen, n)
    heads = ["user", "place", "item", "score", *["std"] * isinstance(fitted, BayesianCompletion)]
    places = [
        (name, place, *row)
        for name, best in zip(chosen, lists, strict=True)
        for place, row in enumerate(best, 1)
    ]
    text = pd.DataFrame(places, columns=heads).to_csv(index=False, float_format="%.6g", lineterminator="\r\n")
    write_atomically(run.path("recommendations.csv"), lambda file: file.write(text.encode()))
    for name, best in zip(user or (), lists, strict=False):
        wide = max((len(str(item)) for item, *_ in best), default=0)
        run.say(
            "\n".join([f"For {name}:", *(f"  {item!s:{wide}}  {score:.2f}" for item, score, *_ in best), ""])
        )
    return Outcome(
        ratings.source, {"model": model, "rank": width, "hidden": hidden, "n": n}, rows, headings=HEADINGS
    )


def _measured(
    estimator: CompletionModel, ratings: Ratings, seed: int, hidden: float, n: int
) -> list[dict[str, Any]]:
    """Return the error of a model, and of the simplest one, on ratings that they have not seen."""
    held_out = ratings.held_out(seed, hidden)
    train, test = ratings.table(~held_out), ratings.table(held_out)
    if train.nnz == 0 or test.nnz == 0:
        raise InvalidInputError(
            f"--hidden {hidden:g} of {len(ratings.values)} ratings leaves none to learn from, or none to measure on."
        )
    begun = time.perf_counter()
    model = clone(estimator).fit(train)
    row = {"model": type(model).__name__, "ratings": len(ratings.values), "rank": model.rank}
    seconds = {"train_seconds": time.perf_counter() - begun}
    if isinstance(model, ImplicitALS):
        popular = np.diff(train.tocsr().indptr).astype(float)
        by_count = ranked_lists(lambda column: popular, train, test, n)
        found = [(row | seconds, model.ranked(test, n=n)), ({"model": "the most popular"}, by_count)]
        return [about | {key: getattr(lists, key) for key in MEASURES} for about, lists in found]
    biases = BiasedALS(0, lam=5.0, count_power=0.0, limits=ratings.limits, random_state=seed).fit(train)
    return [
        row | seconds | {"test_rmse": model.rmse(test)},
        {"model": "users and items alone", "test_rmse": biases.rmse(test)},
    ]


def _lists(run: Run, model: CompletionModel, users: list[Any], n: int) -> list[Any]:
    """Return what is recommended to each user, with a progress bar."""
    how = {"return_std": True} if isinstance(model, BayesianCompletion) else {}
    lists: list[Any] = []
    with run.ticks("recommend", -(-len(users) // USERS)) as tick:
        for first in range(0, len(users), USERS):
            lists += model.recommend(users[first : first + USERS], n, **how)
            tick()
    return lists
