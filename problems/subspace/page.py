"""A page that recommends: to a user, to somebody who likes some items, or items like one."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from problems.serving.web import Fields, Found, Result, Searcher, whole_number
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import CompletionModel
from rmopt.core.arguments import instance

# Known items that say why one is recommended.
REASONS = 3


class ItemSearch(Searcher):
    """What a fitted model of matrix completion recommends, for `make_server`; its columns are users, its rows items.

    The field takes the name of a user, or part of the name of an item. Items have links to items alike, and to
    recommendations for somebody who likes them, whom the model need not know. Below an item stand those that the user
    knows whose ratings are most like its own.

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

    See Also
    --------
    problems.serving.make_server : the page.
    BiasedALS.recommend : the same from Python.

    References
    ----------
    Hu, Koren and Volinsky, Collaborative filtering for implicit feedback datasets, ICDM (2008),
    https://doi.org/10.1109/ICDM.2008.22.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.serving import make_server
    >>> from problems.subspace import BiasedALS, ItemSearch
    >>> rng = np.random.default_rng(0)
    >>> stars = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> known = sp.csc_array(stars * (rng.random(stars.shape) < 0.5))
    >>> model = BiasedALS(rank=2, limits=(-8, 8), random_state=0).fit(known)
    >>> found = ItemSearch(model).find({"q": ["7"]}, k=3)
    >>> [one.told["name"] for one in found.results] == [
    ...     name for name, _ in model.recommend(7, 3)
    ... ]
    True
    >>> make_server(ItemSearch(model), port=0).server_close()
    """

    prompt, because = "A user, or part of an item's name", "similar to"

    def __init__(self, model: Any) -> None:
        self.model = instance(
            "model", model, CompletionModel, "a model of matrix completion, such as BiasedALS"
        )
        check_is_fitted(model, "known_")
        self._items, self._users = model.row_names_.tolist(), model.column_names_.tolist()
        self._by_text = {str(name): column for column, name in enumerate(self._users)}
        self._places = {name: row for row, name in enumerate(self._items)}
        self._alike = model._unit_profiles()

    def find(self, fields: Fields, k: int) -> Found:
        if "like" in fields:
            return self._similar(self._row("like", fields["like"][0]), k)
        if "likes" in fields:
            return self._liked([self._row("likes", one) for one in fields["likes"]], k)
        text = fields.get("q", [""])[0]
        if text in self._by_text:
            return self._of_user(text, k)
        return self._named(text, k)

    def _row(self, field: str, text: str) -> int:
        return whole_number(field, text, 0, len(self._items) - 1)

    def _of_user(self, text: str, k: int) -> Found:
        column, known = self._by_text[text], self.model.known_
        how = {"return_std": True} if isinstance(self.model, BayesianCompletion) else {}
        seen = known.indices[known.indptr[column] : known.indptr[column + 1]]
        best = self.model.recommend(self._users[column], k, **how)
        return Found(text, self._recommended(best, seen), f"For {text}, of whom {len(seen)} items are known:")

    def _liked(self, rows: list[int], k: int) -> Found:
        best = self.model.recommend_to_new([self._items[row] for row in rows], k)
        names = ", ".join(str(self._items[row]) for row in rows)
        return Found("", self._recommended(best, np.array(rows), rows), f"For somebody who likes {names}:")

    def _similar(self, row: int, k: int) -> Found:
        best = self.model.similar(self._items[row], k)
        return Found("", self._recommended(best, np.array([], int)), f"Similar to {self._items[row]}:")

    def _named(self, text: str, k: int) -> Found:
        if not text.strip():
            example = next(iter(self._by_text), "")
            return Found(
                text, [], f"{len(self._users)} users, such as {example}, and {len(self._items)} items."
            )
        wanted = text.strip().casefold()
        rows = [row for row, name in enumerate(self._items) if wanted in str(name).casefold()]
        if not rows:
            return Found(text, [], "There is neither such a user nor such an item.", failed=True)
        # Short names first: what was typed is more of them.
        rows.sort(key=lambda row: len(str(self._items[row])))
        more = f" The first {k} of {len(rows)}." if len(rows) > k else ""
        return Found(text, [self._result(row) for row in rows[:k]], f"Items with this name.{more}")

    def _recommended(self, best: list[Any], seen: Any, likes: list[int] | None = None) -> list[Result]:
        """Return results with their scores, and as reasons what is alike of the items that are known."""
        results = []
        for name, *scores in best:
            row = self._places[name]
            likeness = self._alike[seen] @ self._alike[row]
            near = [at for at in np.argsort(-likeness, kind="stable")[:REASONS] if likeness[at] > 0.0]
            why = [
                {"term": str(self._items[seen[at]]), "contribution": float(likeness[at]), "shared": True}
                for at in near
            ]
            told = dict(zip(("score", "std"), scores, strict=False)) | ({"why": why} if why else {})
            results.append(self._result(row, told, likes))
        return results

    def _result(self, row: int, told: dict[str, Any] | None = None, likes: list[int] | None = None) -> Result:
        liked = [*(likes or ()), row]
        label = "I like this too" if likes else "I like this"
        return Result(
            {"row": row, "name": self._items[row], **(told or {})},
            {"similar": {"like": row}, label: {"likes": liked}},
        )
