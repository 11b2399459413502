"""What all estimators of matrix completion share: known entries in, predictions and recommendations out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from problems.data import Ratings
from problems.saving import Saved
from problems.subspace.cost import KnownEntries, columns_of, predictions
from problems.subspace.pairs import checked_pairs, table_of
from problems.validation import Estimator, begin, column_of_names, joined_names, positions, seedable
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, bounded, flag, integer, number, one_of, optional, sequence, shown
from rmopt.core.matrices import sound
from rmopt.errors import warn
from rmopt.files import Layout
from rmopt.solvers.threads import one_blas_thread

# What happens with rows and columns that fit did not see.
UNKNOWN = ("error", "mean")


class Ranked(NamedTuple):
    """Means over the columns that have a held-out entry.

    Attributes
    ----------
    precision : float
        Recommended rows that were held out, over the length that was asked for.
    recall : float
        The share of the held-out rows that are recommended.
    ndcg : float
        Held-out rows count 1 / log2(1 + place), relative to the best list of this length.
    n_columns : int
    """

    precision: float
    recall: float
    ndcg: float
    n_columns: int


def ranked_lists(scores: Callable[[int], Array], known: sp.csc_array, held_out: Any, n: int) -> Ranked:
    """Measure the n rows with the highest scores in each column, without those that are known there."""
    if held_out.data.min(initial=0.0) < 0.0:
        raise InvalidInputError(
            f"held-out entries run from {held_out.data.min():g}, and each counts as one that a list should hold; "
            "leave out those below 0, and what else was disliked."
        )
    discounts = 1.0 / np.log2(np.arange(2.0, n + 2.0))
    found = []
    for column in range(held_out.shape[1]):
        span = slice(held_out.indptr[column], held_out.indptr[column + 1])
        seen = known.indices[known.indptr[column] : known.indptr[column + 1]]
        wanted = np.setdiff1d(held_out.indices[span][held_out.data[span] != 0.0], seen)
        if len(wanted) == 0:
            continue
        values = np.array(scores(column), dtype=float)
        values[seen] = -np.inf
        best = np.argsort(-values, kind="stable")[: min(n, len(values) - len(seen))]
        hits = np.isin(best, wanted)
        gain = hits @ discounts[: len(best)] / discounts[: len(wanted)].sum()
        found.append((hits.sum() / n, hits.sum() / len(wanted), gain))
    if not found:
        raise InvalidInputError(
            "nothing is held out: all entries are 0, or were seen by fit; give others that should be recommended."
        )
    precision, recall, ndcg = np.mean(found, axis=0).tolist()
    return Ranked(precision, recall, ndcg, len(found))


def _limits(name: str, value: Any) -> tuple[float, float]:
    """Return a lower and an upper limit."""
    if isinstance(value, str) or array(name, value).shape != (2,):
        raise InvalidInputError(f"{name} = {shown(value)} must be a pair (lowest, highest), or None.")
    low = number(f"{name}[0]", value[0])
    return low, number(f"{name}[1]", value[1], above=low)


@dataclass(eq=False, repr=False)
class CompletionModel(Saved, Estimator):
    """A matrix that is completed from known entries; a subclass says how, in `_learn`, `_values` and `_solved`.

    Known entries are given as a sparse matrix or a bundle, ``fit(ratings)``, or as pairs of a row and a column with a
    value for each, ``fit(pairs, values)``. scikit-learn's cross-validation and searches split the pairs (see
    `EntryKFold` and `TimeSplit`).
    """

    # What scikit-learn's metadata routing hands on, unless asked otherwise.
    __metadata_request__fit: ClassVar = {"shape": True}

    _arrays: ClassVar[Layout] = {"known_indptr": (int, (None,)), "known_indices": (int, (None,))}
    _names: ClassVar = {"row_names_": ("m",), "column_names_": ("n",)}
    _numbers: ClassVar = {**Saved._numbers, "_named": flag, "_scale": optional(_limits)}
    # Whether entries are what is predicted, and so have one scale with predictions.
    _rates: ClassVar[bool] = True
    # Whether somebody was told that whole numbers count.
    _told = False

    rank: Annotated[int, bounded(integer, 1)] = 10
    _: KW_ONLY
    limits: Annotated[tuple[float, float] | None, optional(_limits)] = None
    handle_unknown: Annotated[str, bounded(one_of, UNKNOWN)] = "error"
    random_state: Annotated[Any, seedable] = None

    @abstractmethod
    def _learn(self, table: KnownEntries, seed: int, *features: Any) -> None:
        """Learn from known entries, and set the fitted attributes; features are what a subclass's `fit` takes."""

    @abstractmethod
    def _values(self, rows: Array, columns: Array) -> Array:
        """Return predictions for pairs; m and n stand for a row and a column of which nothing is known."""

    @abstractmethod
    def _factors(self) -> tuple[Array, Array]:
        """Return U and W: rows and columns that fit saw, whose products are predictions less all effects."""

    @abstractmethod
    def _append(self, table: KnownEntries, *features: Any) -> None:
        """Add columns with known entries to the fitted attributes, without a change of others."""

    def fit(self, ratings: Any, y: Any = None, *, shape: tuple[int, int] | None = None) -> Self:
        """Complete a matrix.

        Parameters
        ----------
        ratings : sparse array, shape (m, n), or int array, shape (N, 2), or Ratings
            The known entries; stored zeros are known. Or pairs of a row and a column. Or a bundle of `problems.data`,
            whose names `recommend` knows.
        y : array, shape (N,), optional
            The values at the pairs.
        shape : (int, int), optional
            The shape of the matrix that pairs belong to; just large enough for them unless given, which may be too
            small for other pairs in cross-validation.

        Raises
        ------
        InvalidInputError
            For parameters or ratings that cannot be used.
        """
        return self._fitted(ratings, y, shape)

    def _fitted(self, ratings: Any, y: Any, shape: Any, *features: Any) -> Self:
        """Do what a public `fit` that calls this is asked to."""
        seed = begin(self)
        table = table_of(ratings, y, shape)
        low, high = ratings.limits if isinstance(ratings, Ratings) and self._rates else (0.0, 0.0)
        self._scale = (low, high) if low < high else None
        self._check_scale(table)
        if self.rank >= min(table.shape):
            raise InvalidInputError(
                f"rank = {self.rank} must be an integer from 1 to below the sides of the matrix, {table.shape}."
            )
        with one_blas_thread():
            self._learn(table, seed, *features)
        self.n_features_in_ = table.shape[1] if y is None else 2
        self.known_ = sp.csc_array(
            (np.ones(table.nnz, bool), table.indices, table.indptr), table.shape, copy=True
        )
        bundle = (ratings.row_names, ratings.column_names) if isinstance(ratings, Ratings) else (None, None)
        self.row_names_, self.column_names_ = (
            np.arange(size) if names is None else names
            for size, names in zip(table.shape, bundle, strict=True)
        )
        self._named = bundle[0] is not None
        self.__dict__.pop("_told", None)
        self._learned_with = self.get_params(deep=False)
        return self

    @property
    def limits_(self) -> tuple[float, float] | None:
        """`limits`, or unless given those of the bundle that `fit` got; to these predictions are clipped."""
        return getattr(self, "_scale", None) if self.limits is None else self.limits

    def _check_scale(self, table: KnownEntries) -> None:
        """Refuse entries outside of the limits."""
        limits, least, most = self.limits_, float(table.data.min()), float(table.data.max())
        if self._rates and limits is not None and not limits[0] <= least <= most <= limits[1]:
            raise InvalidInputError(
                f"values run from {least:g} to {most:g}, and limits are {limits[0]:g} and {limits[1]:g}; correct the "
                "values, or fit with limits=(lowest, highest)."
            )

    def predict(self, rows: Any, columns: Any = None, *, names: bool | None = None) -> Array:
        """Return the entries at pairs of a row and a column, within `limits_`.

        Parameters
        ----------
        rows, columns : int or str, or array of them, shape (N,)
            Numbers of rows and columns, or their names where `fit` got a bundle with names that are text. One of
            them may be a single one: ``predict(5, range(n))``. Without `columns` the rows are pairs, shape (N, 2).
        names : bool, optional
            Whether whole numbers are names, as they are for `recommend`, or else count rows and columns from 0. They
            count unless told; where all of them, with `columns`, could be names as well, a warning says so once.

        Raises
        ------
        InvalidInputError
            When they are neither names nor integers, or outside of the matrix unless ``handle_unknown="mean"``.
        """
        return self._within(self._values(*self._places(rows, columns, names)))

    def _places(self, rows: Any, columns: Any, names: bool | None = False) -> tuple[Array, Array]:
        """Return pairs of a row and a column; m and n stand for those that `fit` did not see."""
        check_is_fitted(self, "known_")
        m, n = self.known_.shape
        unsaid = names is None and columns is not None
        rows, columns = self._numbered(rows, columns, optional(flag)("names", names) or False)
        if unsaid:
            self._warn_of_numbers_as_names(rows, columns)
        if one_of("handle_unknown", self.handle_unknown, UNKNOWN) == "error":
            return checked_pairs(rows, columns, (m, n))
        rows, columns = checked_pairs(rows, columns, None)
        unknown = int(np.sum((rows >= m) | (columns >= n)))
        if unknown:
            warn(
                f"{unknown} of {len(rows)} pairs have a row or a column that fit did not see; they get the mean, "
                "with what is known of the other one. New columns with entries can be added by fold_in."
            )
        return np.minimum(rows, m), np.minimum(columns, n)

    def _warn_of_numbers_as_names(self, *numbers: Array) -> None:
        """Warn, once for a fit, where numbers that count are all names as well, and of other rows or columns."""
        known = zip(("rows", "columns"), numbers, (self.row_names_, self.column_names_), strict=True)
        sides = [
            (what, names, given.dtype.kind in "iu" and bool(np.isin(given, names).all()))
            for what, given, names in known
            if names.dtype.kind in "iu" and not np.array_equal(names, np.arange(len(names)))
        ]
        if sides and not self._told and all(could_be for *_, could_be in sides):
            self._told = True
            what, names, _ = sides[0]
            warn(
                f"the names of {what} are whole numbers, such as {names[-1]}, and predict counts {what} from 0; say "
                "names=True to give names, as recommend takes them, or names=False."
            )

    def _numbered(self, rows: Any, columns: Any, named: bool) -> tuple[Any, Any]:
        """Return pairs with numbers in place of names: of text, or where `named` of whole numbers too."""
        if columns is None:
            pairs = array("pairs", rows)
            if not (named or pairs.dtype.kind in "UO") or pairs.shape[1:] != (2,):
                return pairs, None
            # Each side by itself: one may be numbers.
            rows, columns = np.asarray(rows, dtype=object).T.tolist()
        sides = ("rows", rows, self.row_names_), ("columns", columns, self.column_names_)
        found = []
        for what, given, known in sides:
            names = array(what, given)
            names = array(what, names.tolist()) if names.dtype.kind == "O" else names
            # Text is never a number, also where names are.
            if named or names.dtype.kind == "U":
                other = None if self.handle_unknown == "error" else len(known)
                places = positions(what, known, names.ravel(), other)
                names = places.reshape(names.shape)
            found.append(names)
        return found[0], found[1]

    def _within(self, found: Array) -> Array:
        return found if self.limits_ is None else np.clip(found, *self.limits_)

    def fold_in(self, pairs: Any, values: Any, names: Any = None) -> Self:
        """Return a new model that has further columns, solved given the rows; the model itself does not change.

        Where columns are users, these are users who came later.

        Parameters
        ----------
        pairs : int array, shape (N, 2)
            Rows that `fit` saw, and new columns, numbered from n on.
        values : array, shape (N,)
        names : array, optional
            Of the new columns, as many as there are numbers from n to the last new one; needed where `fit` got names.

        Returns
        -------
        estimator
            A copy that knows the old and the new columns.

        Raises
        ------
        InvalidInputError
            When a row is new, a column is not, or there is not one name for each column.
        """
        return self._folded(pairs, values, names)

    def _folded(self, pairs: Any, values: Any, names: Any, *features: Any) -> Self:
        check_is_fitted(self, "known_")
        m, n = self.known_.shape
        rows, columns = checked_pairs(pairs, None, (m, 2**31))
        if not columns.min(initial=n) >= n:
            raise InvalidInputError(
                f"column {columns.min()} was there in fit; number new columns from {n} on, or fit again with all "
                "entries."
            )
        table = table_of(
            np.column_stack([rows, columns - n]), values, (m, int(columns.max(initial=n)) - n + 1)
        )
        added = table.shape[1]
        if names is None and not np.array_equal(self.column_names_, np.arange(n)):
            raise InvalidInputError(f"fit got names of columns; give names to {added} new ones.")
        names = np.arange(n, n + added) if names is None else column_of_names("names", names)
        together = [*self.column_names_.tolist(), *names.tolist()]
        if len(names) != added or len(set(together)) != n + added:
            raise InvalidInputError(
                f"names must be {added} different ones that fit did not see, got {shown(names)}."
            )
        return self._extended(table, names, *features)

    def _extended(self, table: KnownEntries, names: Array, *features: Any) -> Self:
        """Return a copy with further columns."""
        self._check_scale(table)
        model = copy(self)
        model.column_names_ = joined_names("names", self.column_names_, names)
        known = sp.csc_array((np.ones(table.nnz, bool), table.indices, table.indptr), table.shape)
        model.known_ = sp.csc_array(sp.hstack([self.known_, known]))
        given = self.get_params(deep=False)
        # With what the rows were learned with: parameters may have been changed since.
        model.set_params(**self._learned_with)
        with one_blas_thread():
            model._append(table, *features)
        return model.set_params(**given)

    def recommend(self, column: Any, n: int = 10) -> list[Any]:
        """Return the rows with the highest predictions in a column, without those that are known there.

        Where rows are items and columns users, these are the items that a user may like best.

        Parameters
        ----------
        column : int or str, or list or array of them
            Its name where `fit` got a bundle with names, else its number.
        n : int
            How many; fewer where fewer are not known.

        Returns
        -------
        list of (name, float)
            Rows, by their names or numbers, and predictions, the highest first. For several columns a list of such
            lists.

        Raises
        ------
        InvalidInputError
            When `fit` did not see the column.
        """
        return self._listed(column, n, self._best)

    def recommend_to_new(self, values: Any, n: int = 10) -> list[Any]:
        """Return the rows with the highest predictions for a column that `fit` did not see.

        Where rows are items and columns users, these are the items for somebody who just said what they like.

        Parameters
        ----------
        values : dict, or list
            The value of each row that is known, by its name, or its number where `fit` got no names; or a list of
            rows that are liked: their value is the highest of `limits_`, of `ImplicitALS` it is 1.
        n : int
            How many; fewer where fewer are not known.

        Returns
        -------
        list of (name, float)
            Rows and predictions, the highest first, without those in `values`.

        Raises
        ------
        InvalidInputError
            When `fit` did not see a row, there is none, a value is no number or outside of `limits_`, a list is given
            to a model without them, or `fit` got features of columns.
        """
        check_is_fitted(self, "known_")
        n = integer("n", n, 1)
        if hasattr(values, "to_dict"):
            raise InvalidInputError(
                "values are a frame or a series, of which it is not clear where the rows stand; give "
                "series.to_dict(), with a value for each row, or a list of rows that are liked."
            )
        if not isinstance(values, Mapping):
            values = dict.fromkeys(sequence("values", values), self._liked())
        if not values:
            raise InvalidInputError(
                "values must have a row at least; without one recommend to a known column."
            )
        rows = positions("values", self.row_names_, np.array(list(values)))
        found = [number(f"values[{shown(name)}]", value) for name, value in values.items()]
        table = table_of(np.column_stack([rows, np.zeros_like(rows)]), found, (len(self.row_names_), 1))
        # Its name is not used: it is known by its place.
        model = self._extended(table, self.column_names_[:1], None)
        return model._best(len(self.column_names_), n)

    def _liked(self) -> float:
        """Return the value of a row that is liked."""
        if self.limits_ is None:
            raise InvalidInputError(
                "a list of rows that are liked needs a model with limits=(lowest, highest), of which they get the "
                "highest; give values as a dict, or fit with limits."
            )
        return float(self.limits_[1])

    def similar(self, row: Any, n: int = 10) -> list[tuple[Any, float]]:
        """Return the rows whose predictions in all columns are most like those of a row.

        Where rows are items, these are the items that the same users like.

        Parameters
        ----------
        row : int or str
            Its name where `fit` got a bundle with names, else its number.
        n : int
            How many; fewer where there are fewer.

        Returns
        -------
        list of (name, float)
            Rows, and cosines of the angles between predictions, all effects left out; the highest first.

        Raises
        ------
        InvalidInputError
            When `fit` did not see the row, or learned nothing of it but effects.
        """
        check_is_fitted(self, "known_")
        n, place = integer("n", n, 1), int(positions("row", self.row_names_, np.array([row]))[0])
        profiles = self._unit_profiles()
        if not profiles[place].any():
            raise InvalidInputError(
                f"the model knows nothing of {shown(row)} but its mean: all its predictions are effects; fit with a "
                "rank above 0, and with entries of this row."
            )
        cosines = profiles @ profiles[place]
        order = np.argsort(-cosines, kind="stable")
        best = order[order != place][:n]
        return [(self.row_names_[one].item(), float(cosines[one])) for one in best]

    def _unit_profiles(self) -> Array:
        """Return vectors of unit length whose inner products are the cosines between rows of U Wᵀ."""
        # Squares of very large and very small numbers are no numbers.
        U, W = (factor / (np.abs(factor).max(initial=0.0) or 1.0) for factor in self._factors())
        with one_blas_thread():
            values, vectors = np.linalg.eigh((W.T @ W).astype(float))
            profiles = U @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        lengths = np.linalg.norm(profiles, axis=1, keepdims=True)
        # Of a row of which nothing is known all are 0.
        return np.divide(profiles, lengths, out=np.zeros_like(profiles), where=lengths > 0.0)

    def _listed(self, column: Any, n: Any, best: Callable[[int, int], list[Any]]) -> list[Any]:
        """Return the best rows of a column, or of each of several."""
        check_is_fitted(self, "known_")
        n, several = integer("n", n, 1), np.ndim(column) > 0
        columns = positions("column", self.column_names_, column if several else np.array([column]))
        lists = [best(number, n) for number in columns.tolist()]
        return lists if several else lists[0]

    def _best(self, column: int, n: int) -> list[tuple[Any, float]]:
        rows, values = self._best_rows(column, n)
        return list(zip(self.row_names_[rows].tolist(), values.tolist(), strict=True))

    def _best_rows(self, column: int, n: int) -> tuple[Array, Array]:
        """Return the best rows that are not known in a column, and their predictions."""
        rows = np.arange(self.known_.shape[0], dtype=np.int32)
        found = self._values(rows, np.full_like(rows, column))
        found[self.known_.indices[self.known_.indptr[column] : self.known_.indptr[column + 1]]] = -np.inf
        # In the order before they are clipped: many may lie beyond the limits.
        best = np.argsort(-found, kind="stable")[:n]
        best = best[found[best] > -np.inf]
        return best, self._within(found[best])

    def ranked(self, ratings: Any, y: Any = None, n: int = 10) -> Ranked:
        """Measure the recommendations for all columns by entries that were held out.

        Parameters
        ----------
        ratings, y : as in `fit`
            Held-out entries of which a list should hold many, given as in `fit`; those that `fit` saw do not count.
            Leave out what was disliked, ratings below 4 of 5, say; numbers below 0 are refused.
        n : int
            The length of a list.

        Returns
        -------
        Ranked
            Precision, recall and nDCG, means over the columns with a held-out entry.

        Raises
        ------
        InvalidInputError
            When nothing is held out, an entry is below 0, or of other rows and columns than `fit` saw; pairs may be
            of others where ``handle_unknown="mean"``.
        """
        table, n = self._table_like_fit(ratings, y, self.handle_unknown == "mean"), integer("n", n, 1)
        self._places(table.indices, columns_of(table))
        # Pairs may be of rows and columns that fit did not see.
        known, shape = sp.csc_array(self.known_), tuple(map(max, self.known_.shape, table.shape))
        known.resize(shape)
        table.resize(shape)
        rows = np.minimum(np.arange(shape[0]), self.known_.shape[0])

        def scores(column: int) -> Array:
            return self._values(rows, np.full_like(rows, min(column, self.known_.shape[1])))

        return ranked_lists(scores, known, table, n)

    def rmse(self, ratings: Any, y: Any = None) -> float:
        """Return the root mean square error of the predictions of known entries, given as in `fit`.

        Where `fit` got a bundle with names, the entries of another bundle are found by theirs.
        """
        table = self._table_like_fit(ratings, y, self.handle_unknown == "mean")
        gaps = self.predict(table.indices, columns_of(table), names=False) - table.data
        unit = unit_of(gaps)
        return float(np.sqrt(np.mean((gaps / unit) ** 2))) * unit

    def _table_like_fit(self, ratings: Any, y: Any, others: bool) -> KnownEntries:
        """Return entries of the matrix that `fit` saw, or where it may be pairs of `others` too."""
        check_is_fitted(self, "known_")
        shape = self.known_.shape
        if isinstance(ratings, Ratings) and ratings.row_names is not None and self._named:
            ratings, y = self._as_named(ratings), ratings.values
        table = table_of(ratings, y, None if y is None or others else shape)
        if y is None and table.shape != shape:
            raise InvalidInputError(
                f"the ratings have shape {table.shape}, and fit saw a matrix of {shape}; the model has no other rows "
                "and columns."
            )
        return table

    def _as_named(self, ratings: Ratings) -> Array:
        """Return pairs of the rows and the columns that have the names of those in a bundle."""
        sides = (
            ("row", self.row_names_, ratings.row_names, ratings.rows),
            ("column", self.column_names_, ratings.column_names, ratings.columns),
        )
        found = []
        for what, known, names, numbers in sides:
            used, which = np.unique(numbers, return_inverse=True)
            other = None if self.handle_unknown == "error" else len(known)
            places = used if names is None else positions(what, known, names[used], other)
            unseen = places == len(known)
            places[unseen] += np.arange(unseen.sum())
            found.append(places[which])
        return np.column_stack(found)

    def score(self, ratings: Any, y: Any = None) -> float:
        """Return minus the root mean square error of pairs and values, or of a bundle: higher is better.

        A matrix is refused: scikit-learn's cross-validation would hold out its rows, which have no prediction.
        """
        if y is None and not isinstance(ratings, Ratings):
            raise InvalidInputError(
                "score takes pairs and values, for rows of a matrix cannot be held out; split its known entries: "
                "pairs, values = entries(ratings), and cross_val_score(model, pairs, values, cv=EntryKFold(5), "
                "params={'shape': ratings.shape}), both from problems.subspace. A matrix like that of fit is for "
                "rmse or ranked."
            )
        return self._quality(ratings, y)

    def _quality(self, ratings: Any, y: Any) -> float:
        return -self.rmse(ratings, y)

    def _stored(self) -> dict[str, Array]:
        places = {"known_indptr": self.known_.indptr, "known_indices": self.known_.indices}
        return places | {name: getattr(self, name) for name in self._arrays if name not in places}

    def _restore(self, arrays: dict[str, Array]) -> None:
        indptr, indices = arrays.pop("known_indptr"), arrays.pop("known_indices")
        super()._restore(arrays)
        self._learned_with = self.get_params(deep=False)
        shape = len(self.row_names_), len(self.column_names_)
        # Not by its constructor, which reads beyond the arrays where they do not belong together.
        known = sp.csc_array(shape, dtype=bool)
        known.indptr, known.indices, known.data = indptr, indices, np.ones(len(indices), bool)
        self.known_ = sound("known", known)
        if indptr[-1] != len(indices):
            raise ValueError("it names more known entries than there are")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Rows are no samples, and pairs are numbers of rows and columns.
        tags.no_validation = True
        return tags


class PointCompletion(CompletionModel):
    """A matrix as mean + effects of row and column + u_i · w_j, all of them single numbers.

    A subclass sets the attributes in `_learn`; U and W are `components_` and `weights_`.
    """

    _arrays: ClassVar = {
        **CompletionModel._arrays,
        "components_": (float, ("m", "k")),
        "weights_": (float, ("n", "k")),
        "row_effects_": (float, ("m",)),
        "column_effects_": (float, ("n",)),
    }
    _numbers: ClassVar = {**CompletionModel._numbers, "mean_": number}

    components_: Array
    weights_: Array
    mean_: float
    row_effects_: Array
    column_effects_: Array

    @abstractmethod
    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        """Return w_j and effects of columns with known entries, given the rows."""

    def _values(self, rows: Array, columns: Array) -> Array:
        U, W, b, c = self.components_, self.weights_, self.row_effects_, self.column_effects_
        if rows.max(initial=0) == len(U) or columns.max(initial=0) == len(W):
            U, W = (np.vstack(pair) for pair in zip((U, W), self._unknown_factors(), strict=True))
            b, c = np.append(b, 0.0), np.append(c, 0.0)
        return predictions(U, W, rows, columns) + (self.mean_ + b[rows] + c[columns])

    def _unknown_factors(self) -> tuple[Array, Array]:
        """Return the factors of a row and of a column of which nothing is known."""
        return np.zeros(self.components_.shape[1]), np.zeros(self.weights_.shape[1])

    def _factors(self) -> tuple[Array, Array]:
        return self.components_, self.weights_

    def _append(self, table: KnownEntries, *features: Any) -> None:
        weights, effects = self._solved(table)
        self.weights_ = np.concatenate([self.weights_, weights])
        self.column_effects_ = np.concatenate([self.column_effects_, effects])


def unit_of(values: Array) -> float:
    """Return 1, or for very large or small values the power of 2 in whose units squares of squares are safe."""
    largest = float(np.abs(values).max(initial=0.0))
    return 1.0 if 1e-30 < largest < 1e30 or largest == 0.0 else 2.0 ** int(np.log2(largest))
