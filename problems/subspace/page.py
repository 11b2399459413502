"""A page that recommends: to a user, to somebody who likes some items, or items like one."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from problems.serving.web import Found, Searcher, whole_number
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import CompletionModel
from rmopt.core.arguments import instance

# Known items that say why one is recommended.
REASONS = 3


class ItemSearch(Searcher):
    """What a fitted model of matrix completion recommends, for `make_app`; its columns are users, its rows items.

    The field takes the name of a user, or part of the name of an item. Items have links to items alike, and to
    recommendations for somebody who likes them, whom the model need not know. Below an item stand those that the user
    knows whose predictions are most like its own.

    Parameters
    ----------
    model : fitted estimator
        Such as `BiasedALS`, `BayesianCompletion` or `ImplicitALS`.

    Raises
    ------
    InvalidInputError
        When it is another model.
    NotFittedError
        Before `fit`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import BiasedALS, ItemSearch
    >>> rng = np.random.default_rng(0)
    >>> stars = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> known = sp.csc_array(stars * (rng.random(stars.shape) < 0.5))
    >>> model = BiasedALS(rank=2, limits=(-8, 8), random_state=0).fit(known)
    >>> found = ItemSearch(model).find({"q": "7"}, k=3)
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
        last = len(self._items) - 1
        if "like" in fields:
            row = whole_number("like", fields["like"], 0, last)
            return Found(
                "", self._listed(self.model.similar(self._items[row], k)), f"Similar to {self._items[row]}:"
            )
        if "likes" in fields:
            rows = [whole_number("likes", text, 0, last) for text in fields.getlist("likes")]
            names = [self._items[row] for row in rows]
            best = self.model.recommend_to_new(names, k)
            return Found(
                "", self._listed(best, rows, rows), f"For somebody who likes {', '.join(map(str, names))}:"
            )
        text = fields.get("q", "")
        return self._of_user(text, k) if text in self._columns else self._named(text, k)

    def _of_user(self, text: str, k: int) -> Found:
        column, known = self._columns[text], self.model.known_
        how = {"return_std": True} if isinstance(self.model, BayesianCompletion) else {}
        seen = known.indices[known.indptr[column] : known.indptr[column + 1]].tolist()
        best = self.model.recommend(self._users[column], k, **how)
        items = f"{len(seen)} known item{'s' * (len(seen) != 1)}"
        return Found(text, self._listed(best, seen), f"Recommended to {text}, from {items}:")

    def _named(self, text: str, k: int) -> Found:
        if not text.strip():
            example = next(iter(self._columns), "")
            return Found(
                text, message=f"{len(self._users)} users, such as {example}, and {len(self._items)} items."
            )
        names = [name for name in self._items if text.strip().casefold() in str(name).casefold()]
        if not names:
            return Found(text, message="There is neither such a user nor such an item.")
        # Short names first: what was typed is more of them.
        names.sort(key=lambda name: len(str(name)))
        more = f" The first {k} of {len(names)}." if len(names) > k else ""
        return Found(text, self._listed([(name,) for name in names[:k]]), f"Items with this name.{more}")

    def _listed(
        self, best: list[Any], seen: list[int] | None = None, likes: list[int] | None = None
    ) -> list[Any]:
        """Return items with their scores, their links, and as reasons those alike among the items that were seen."""
        results, label = [], "I like this too" if likes else "I like this"
        for name, *scores in best:
            row = self._rows[name]
            likeness = self._alike[seen or []] @ self._alike[row]
            near = [at for at in np.argsort(-likeness, kind="stable")[:REASONS] if likeness[at] > 0.0]
            links = {"similar": [("like", row)], label: [("likes", liked) for liked in [*(likes or []), row]]}
            result = {"row": row, "name": name, "links": links} | dict(
                zip(("score", "std"), scores, strict=False)
            )
            if seen and near:
                result["why"] = [
                    {"term": str(self._items[seen[at]]), "contribution": float(likeness[at]), "shared": True}
                    for at in near
                ]
            results.append(result)
        return results
