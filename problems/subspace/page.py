"""A page of recommendations for a user, for a person who likes some items, or of items similar to one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from problems.serving.searcher import Found, Searcher, whole_number
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import CompletionModel
from rmopt.core.arguments import instance

# The number of known items that explain a recommendation.
REASONS = 3


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
    >>> [item["name"] for item in found.results] == [
    ...     name for name, _ in model.recommend(7, 3)
    ... ]
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
        self._alike = model._unit_profiles()

    def find(self, fields: Any, k: int) -> Found:
        text = fields.get("q", "")
        near, likes = (
            [whole_number(field, row, 0, len(self._items) - 1) for row in fields.getlist(field)]
            for field in ("like", "likes")
        )
        # Another search does not forget what somebody likes.
        kept, given = [("likes", row) for row in likes], fields.multi_items() if likes else []
        liked = {self._items[row]: [one for one in given if one != ("likes", str(row))] for row in likes}
        answer = partial(Found, kept=kept, liked=liked)
        if near:
            name = self._items[near[0]]
            return answer("", self._listed(self.model.similar(name, k), (), kept), f"Similar to {name}:")
        if likes and not text.strip():
            best = self._listed(self.model.recommend_to_new([*liked], k), likes, kept)
            return answer("", best, "Recommended to somebody with these likes:")
        if text in self._columns and not likes:
            return self._of_user(text, k)
        names = [name for name in self._items if text.strip().casefold() in str(name).casefold()]
        if not text.strip():
            return Found(
                text, message=f"{len(self._users)} users, such as {self._users[0]}, and {len(names)} items."
            )
        message = "Items with this name." if names else "There is neither such a user nor such an item."
        # Short names first, since they match more completely.
        names.sort(key=lambda name: len(str(name)))
        return answer(text, self._listed([(name,) for name in names[:k]], (), kept), message)

    def _of_user(self, text: str, k: int) -> Found:
        column, known = self._columns[text], self.model.known_
        seen = known.indices[known.indptr[column] : known.indptr[column + 1]].tolist()
        best = self.model.recommend(
            self._users[column], k, return_std=isinstance(self.model, BayesianCompletion)
        )
        return Found(text, self._listed(best, seen), f"Recommended to {text}, from {len(seen)} known items:")

    def _listed(self, best: list[Any], seen: Sequence[int] = (), kept: Sequence[Any] = ()) -> list[Any]:
        """Return items with their scores, links, and similar known items as reasons."""
        results, label = [], "I like this too" if kept else "I like this"
        for name, *scores in best:
            row = self._rows[name]
            links = {"similar": [("like", row), *kept], label: [*kept, ("likes", row)]}
            result = {"row": row, "name": name, "links": links}
            result |= {"id": self.model.row_ids_[row]} if hasattr(self.model, "row_ids_") else {}
            result |= dict(zip(("score", "std"), scores, strict=False))
            likeness = self._alike[list(seen)] @ self._alike[row]
            near = [at for at in np.argsort(-likeness, kind="stable")[:REASONS] if likeness[at] > 0.0]
            if near:
                result["why"] = [
                    {"term": str(self._items[seen[at]]), "contribution": float(likeness[at])} for at in near
                ]
            results.append(result)
        return results
