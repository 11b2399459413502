"""A page of recommendations for a user, for a person who likes some items, or of items similar to one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from problems.serving.searcher import Found, Searcher, whole_number
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import CompletionModel
from rmopt.core.arguments import instance

# The number of known items that explain a recommendation.
REASONS = 3
# A reason is more similar than this share of the pairs of items, of about so many.
USUAL, SAMPLE = 0.95, 500
# The least number of ratings of an item in a list.
LEAST = 3
MATCH = "a match of 0 to 1, high if the same people rate both and a high rating is expected"


class ItemSearch(Searcher):
    """Recommendations of a fitted matrix completion model for `make_app`, with users as columns and items as rows.

    The field takes the name of a user, or part of the name of an item. Items have links to similar items, and to
    recommendations for an unknown user who likes them. Below an item are the user's known items most like it.

    Parameters
    ----------
    model : fitted estimator
        For example `BiasedALS`, `BayesianCompletion` or `ImplicitALS`.

    Raises
    ------
    InvalidInputError
        If it is another model.
    NotFittedError
        Before `fit`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import BiasedALS, ItemSearch
    >>> from starlette.datastructures import QueryParams
    >>> rng = np.random.default_rng(0)
    >>> stars = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> known = sp.csc_array(stars * (rng.random(stars.shape) < 0.5))
    >>> model = BiasedALS(rank=2, limits=(-8, 8), random_state=0).fit(known)
    >>> found = ItemSearch(model).find(QueryParams(q="7"), k=3)
    >>> found.results[0]["name"] == model.recommend(7, 1)[0][0]
    True
    """

    prompt, because = "A user, or part of an item's name", "similar to"

    def __init__(self, model: Any) -> None:
        self.model = instance(
            "model", model, CompletionModel, "a model of matrix completion, such as BiasedALS"
        )
        check_is_fitted(model, "known_")
        self._items, self._users = model.row_names_.tolist(), model.column_names_.tolist()
        self._columns = {str(name): column for column, name in enumerate(self._users)}
        self._rows = {name: row for row, name in enumerate(self._items)}
        self._alike, self._supports = model._unit_profiles(), model._supports()
        # A few entries say little, unless most items have no more.
        self._least = int(min(LEAST, np.median(self._supports)))
        some = self._alike[:: 1 + len(self._items) // SAMPLE]
        pairs = (some @ some.T)[np.triu_indices(len(some), 1)]
        self._usual = float(np.quantile(pairs, USUAL)) if len(pairs) else 1.0
        bounds = model._bounds() if model._rates else None
        self._scale = (
            f"expected ratings, at most {bounds[1]:g}" if bounds else "scores, the larger the better"
        )

    def find(self, fields: Any, k: int) -> Found:
        text, model, seen, best = fields.get("q", ""), self.model, [], []
        near, likes = (
            [*{whole_number(field, row, 0, len(self._items) - 1): None for row in fields.getlist(field)}]
            for field in ("like", "likes")
        )
        # Another search does not forget what somebody likes.
        kept, given = [("likes", row) for row in likes], fields.multi_items() if likes else []
        liked = {self._items[row]: [one for one in given if one != ("likes", str(row))] for row in likes}
        wanted = text.strip().casefold()
        rows = [row for row, name in enumerate(self._items) if wanted in str(name).casefold()]
        if near:
            text, name = "", self._items[near[0]]
            best = model.similar(name, k, min_support=self._least)
            kind = "cosines" if self._alike.any() else "scores"
            said = f"Similar to {name}, with {kind}:"
        elif likes and not wanted:
            best = model.recommend_to_new([*liked], k, min_support=self._least)
            seen, kind = likes, MATCH if model._rates else self._scale
            said = f"Recommended to somebody with these likes, with {kind}:"
        elif text in self._columns and not (likes and rows):
            column, known = self._columns[text], model.known_
            seen = known.indices[known.indptr[column] : known.indptr[column + 1]].tolist()
            best = model.recommend(self._users[column], k, return_std=isinstance(model, BayesianCompletion))
            said = f"Recommended to {text}, from {len(seen)} known items, with {self._scale}:"
        elif not wanted:
            said = f"{len(self._users)} users, such as {self._users[0]}, and {len(rows)} items."
        else:
            rows.sort(key=lambda row: (str(self._items[row]).casefold() != wanted, -self._supports[row]))
            best = [(self._items[row],) for row in rows[:k]]
            said = f"Items with this name: {len(rows):,}, the most popular first."
            said = said if rows else "There is neither such a user nor such an item."
        return Found(text, self._listed(best, seen, likes), said, kept, liked)

    def _listed(self, best: list[Any], seen: Sequence[int], likes: Sequence[int]) -> list[Any]:
        """Return items with their scores, links, and similar known items as reasons."""
        results, kept = [], [("likes", row) for row in likes]
        label = "I like this too" if likes else "I like this"
        for name, *scores in best:
            row = self._rows[name]
            links = {"similar": [("like", row), *kept], label: [*kept, ("likes", row)]}
            result = {"row": row, "name": name, "links": links}
            if row in likes:
                result["label"] = "liked"
                del links[label]
            result |= {"id": self.model.row_ids_[row]} if hasattr(self.model, "row_ids_") else {}
            result |= dict(zip(("score", "std"), scores, strict=False))
            likeness = self._alike[list(seen)] @ self._alike[row]
            near = [at for at in np.argsort(-likeness, kind="stable")[:REASONS] if likeness[at] > self._usual]
            if near:
                result["why"] = [
                    {"term": str(self._items[seen[at]]), "contribution": float(likeness[at])} for at in near
                ]
            results.append(result)
        return results
