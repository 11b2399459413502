"""The base of all estimators of matrix completion: from known entries to predictions and recommendations.

Separate from `estimators`, since there are three kinds: subspaces, alternating factors, and samples.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import check_is_fitted

from problems.data import Ratings
from problems.saving import Saved
from problems.subspace.cost import KnownEntries, columns_of, known_entries, predictions
from problems.validation import Estimator, array_of, begin, positions, seedable, two_columns
from rmopt.core import InvalidInputError, MissingCapabilityError
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, integer, number, numbers, one_of, optional, sequence, shown
from rmopt.core.matrices import sound
from rmopt.core.streams import seed_of
from rmopt.errors import warn
from rmopt.files import Layout
from rmopt.solvers.threads import one_blas_thread

# The treatment of rows and columns unknown to fit.
UNKNOWN = ("error", "mean")


class Ranked(NamedTuple):
    """Means over the columns that have a held-out entry.

    Attributes
    ----------
    precision : float
        The number of held-out rows among the recommended, divided by the requested length.
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
    """Measure the n rows with the highest scores in each column, without the known ones."""
    if held_out.data.min(initial=0.0) < 0.0:
        raise InvalidInputError(
            f"held-out entries run from {held_out.data.min():g}, and lists should contain each of them; leave out "
            "those below 0 and other disliked ones."
        )
    discounts = 1.0 / np.log2(np.arange(2.0, n + 2.0))
    measures = []
    for column in range(held_out.shape[1]):
        span = slice(held_out.indptr[column], held_out.indptr[column + 1])
        seen = _known_rows(known, column)
        wanted = np.setdiff1d(held_out.indices[span][held_out.data[span] != 0.0], seen)
        if len(wanted):
            hits = np.isin(best_rows(scores(column), seen, n), wanted)
            gain = hits @ discounts[: len(hits)] / discounts[: len(wanted)].sum()
            measures.append((hits.sum() / n, hits.sum() / len(wanted), gain))
    if not measures:
        raise InvalidInputError(
            "nothing is held out: all entries are 0, or known to fit; give others that should be recommended."
        )
    precision, recall, ndcg = np.mean(measures, axis=0).tolist()
    return Ranked(precision, recall, ndcg, len(measures))


def best_rows(scores: Array, seen: Array, n: int) -> Array:
    """Return the n rows with the highest scores, in descending order, without known ones."""
    scores = np.array(scores, dtype=float)
    scores[seen] = -np.inf
    return np.argsort(-scores, kind="stable")[: min(n, len(scores) - len(seen))].astype(np.int32)


def _known_rows(known: sp.csc_array, column: int) -> Array:
    return known.indices[known.indptr[column] : known.indptr[column + 1]]


def _limits(name: str, value: Any) -> tuple[float, float]:
    """Return a lower and an upper limit."""
    low, high = map(float, numbers(name, value, (2,)))
    return low, number(f"{name}[1]", high, above=low)


@dataclass(eq=False, repr=False)
class CompletionModel(Saved, Estimator):
    """A matrix completed from known entries, by the method of a subclass.

    Known entries are given as a sparse matrix or a bundle, ``fit(ratings)``, or as pairs of a row and a column with a
    value for each, ``fit(pairs, values)``. scikit-learn's cross-validation and searches split the pairs (see
    `EntryKFold`). After a fit to a bundle with names, rows and columns are called by their names, and otherwise by
    their numbers. If `limits` are None, they are those of the bundle.
    """

    # The arguments that scikit-learn's metadata routing passes by default.
    __metadata_request__fit: ClassVar = {"shape": True}

    _arrays: ClassVar[Layout] = {"known_indptr": (int, (None,)), "known_indices": (int, (None,))}
    _names: ClassVar = {"row_names_": ("m",), "column_names_": ("n",)}
    _optional: ClassVar = {**Saved._optional, "row_ids_": ("m",)}
    _numbers: ClassVar = {**Saved._numbers, "_named": flag, "limits_": optional(_limits)}
    # Whether entries are predicted on their own scale; otherwise they mark liked rows, for lists.
    _rates: ClassVar[bool] = True

    rank: Annotated[int, bounded(integer, 1)] = 10
    _: KW_ONLY
    limits: Annotated[tuple[float, float] | None, optional(_limits)] = None
    handle_unknown: Annotated[str, bounded(one_of, UNKNOWN)] = "error"
    random_state: Annotated[Any, seedable] = None

    @abstractmethod
    def _learn(self, table: KnownEntries, seed: int) -> None:
        """Learn from known entries, and set the fitted attributes."""

    @abstractmethod
    def _values(self, rows: Array, columns: Array) -> Array:
        """Return predictions for pairs, with m and n for an unknown row and column."""

    @abstractmethod
    def _factors(self) -> tuple[Array, Array]:
        """Return U and W of the rows and columns of fit, whose products are predictions minus all effects."""

    @abstractmethod
    def _in_new_column(self, table: KnownEntries) -> Array:
        """Return predictions of all rows in a new column with these entries."""

    def fit(self, ratings: Any, y: Any = None, *, shape: tuple[int, int] | None = None) -> Self:
        """Complete a matrix.

        Parameters
        ----------
        ratings : sparse array, shape (m, n), or int array, shape (N, 2), or Ratings
            The known entries, including stored zeros, or pairs of a row and a column, or a bundle of `problems.data`,
            whose names the model uses from then on.
        y : array, shape (N,), optional
            The values at the pairs.
        shape : (int, int), optional
            The shape of the matrix of the pairs. By default it just contains them, which may be too small for other
            pairs in cross-validation.

        Raises
        ------
        InvalidInputError
            If parameters or ratings cannot be used.
        """
        seed = begin(self)
        table = table_of(ratings, y, shape)
        bundle = ratings if isinstance(ratings, Ratings) and y is None else None
        self.limits_ = bundle.limits if bundle and self._rates else None
        self._check_scale(table)
        if self.rank >= min(table.shape):
            raise InvalidInputError(
                f"rank = {self.rank} must be an integer from 1 to below the sides of the matrix, {table.shape}."
            )
        with one_blas_thread():
            self._learn(table, seed)
        self.n_features_in_ = table.shape[1] if y is None else 2
        self.known_ = sp.csc_array(
            (np.ones(table.nnz, bool), table.indices, table.indptr), table.shape, copy=True
        )
        given = (bundle.row_names, bundle.column_names) if bundle else (None, None)
        self.row_names_, self.column_names_ = (
            np.arange(size) if names is None else names
            for size, names in zip(table.shape, given, strict=True)
        )
        self._named = any(names is not None for names in given)
        self.__dict__.pop("row_ids_", None)
        if bundle and bundle.row_ids is not None:
            self.row_ids_ = bundle.row_ids
        return self

    def _check_scale(self, table: KnownEntries) -> None:
        """Refuse entries outside the limits, and those with overflowing fourth powers."""
        sizable("ratings", table.data)
        least, most = float(table.data.min()), float(table.data.max())
        low, high = (self._bounds() if self._rates else None) or (least, most)
        if not low <= least <= most <= high:
            raise InvalidInputError(
                f"values run from {least:g} to {most:g}, and limits are {low:g} and {high:g}; correct the values, or "
                "fit with limits=(lowest, highest)."
            )

    def predict(self, rows: Any, columns: Any = None, *, return_std: bool = False) -> Any:
        """Return the entries at pairs of a row and a column, within `limits`.

        Parameters
        ----------
        rows, columns : int or str, or array of them, shape (N,)
            Names if `fit` got a bundle with names, else numbers. One of them may be single: ``predict(5, range(n))``.
            Without `columns` the rows are pairs, shape (N, 2).
        return_std : bool
            Also return standard deviations of future entries, including noise, which a `BayesianCompletion` has.

        Returns
        -------
        values : array, shape (N,)
        std : array, shape (N,)
            If ``return_std``.

        Raises
        ------
        InvalidInputError
            If one of them is unknown to `fit`, unless ``handle_unknown="mean"``.
        """
        pairs = self._pairs(rows, columns)
        values = self._within(self._values(*pairs))
        return (values, self._std(*pairs)) if return_std else values

    def _std(self, rows: Array, columns: Array) -> Array:
        """Return standard deviations of future entries."""
        raise MissingCapabilityError(
            f"{type(self).__name__} has no standard deviations; take a BayesianCompletion."
        )

    def _pairs(self, rows: Any, columns: Any = None) -> tuple[Array, Array]:
        """Return the numbers of pairs of names, with m and n for those unknown to `fit`."""
        check_is_fitted(self, "known_")
        rows, columns = two_columns("pairs", rows) if columns is None else (rows, columns)
        mean = one_of("handle_unknown", self.handle_unknown, UNKNOWN) == "mean"
        rows = positions("row", self.row_names_, rows, others=mean)
        columns = positions("column", self.column_names_, columns, others=mean)
        if len(rows) != len(columns) and 1 not in (len(rows), len(columns)):
            raise InvalidInputError(
                f"rows and columns must be equally many, or one of them single; got {len(rows)} and {len(columns)}."
            )
        rows, columns = (np.ascontiguousarray(side) for side in np.broadcast_arrays(rows, columns))
        m, n = self.known_.shape
        if mean and (unseen := int(np.sum((rows == m) | (columns == n)))):
            warn(
                f"{unseen} of {len(rows)} pairs have a row or a column that fit did not see; they get the mean, with "
                "the known part of the other one."
            )
        return rows, columns

    def _within(self, values: Array) -> Array:
        bounds = self._bounds()
        return values if bounds is None else np.clip(values, *bounds)

    def _bounds(self) -> tuple[float, float] | None:
        """Return the limits, or those of the bundle of `fit`."""
        return self.limits_ if self.limits is None else _limits("limits", self.limits)

    def recommend(
        self, column: Any, n: int = 10, *, return_std: bool = False, min_support: int = 0
    ) -> list[Any]:
        """Return the rows with the highest predictions in a column, without the known ones.

        If rows are items and columns users, these are the items that a user may like best.

        Parameters
        ----------
        column : int or str, or list or array of them
            Its name if `fit` got a bundle with names, else its number.
        n : int
            The length of the list, or fewer if fewer are unknown.
        return_std : bool
            Also return standard deviations, as `predict` does.
        min_support : int
            Leave out rows with fewer known entries, whose high predictions may be luck.

        Returns
        -------
        list of (name, float) or (name, float, float)
            Rows, by their names or numbers, and predictions, in descending order. For several columns a list of such
            lists.

        Raises
        ------
        InvalidInputError
            If the column is unknown to `fit`.
        """
        check_is_fitted(self, "known_")
        n, places = integer("n", n, 1), positions("column", self.column_names_, column)
        rare = self._rare(min_support)
        lists = [self._best(place, n, return_std, rare) for place in places.tolist()]
        return lists if np.ndim(column) else lists[0]

    def _supports(self) -> Array:
        """Return the number of known entries of each row."""
        return np.bincount(self.known_.indices, minlength=self.known_.shape[0])

    def _rare(self, min_support: int) -> Array:
        return np.flatnonzero(self._supports() < integer("min_support", min_support))

    def _best(self, column: int, n: int, return_std: bool, rare: Array) -> list[Any]:
        """Return the best rows except some and those known in the column with a number."""
        scores = self._scores(column)
        rows = best_rows(scores, np.union1d(_known_rows(self.known_, column), rare), n)
        std = [self._std(rows, np.full_like(rows, column))] if return_std else []
        return self._listed(rows, self._within(scores[rows]), *std)

    def _listed(self, rows: Array, *values: Array) -> list[Any]:
        """Return names of rows with their values."""
        parts = self.row_names_[rows], *values
        return list(zip(*(part.tolist() for part in parts), strict=True))

    def _scores(self, column: int) -> Array:
        """Return the predictions of all rows in the column with a number."""
        rows = np.arange(self.known_.shape[0], dtype=np.int32)
        return self._values(rows, np.full_like(rows, column))

    def recommend_to_new(self, values: Any, n: int = 10, *, min_support: int = 0) -> list[Any]:
        """Return the best rows for a new column, by its values, or by its liked rows.

        If rows are items and columns users, these are the items for a new user who rated or named some.

        Parameters
        ----------
        values : dict, or list
            The value of each known row, by its name, or its number if `fit` got no names, or a list of liked rows.
        n : int
            The length of the list, or fewer if fewer are unknown.
        min_support : int
            Leave out rows with fewer known entries.

        Returns
        -------
        list of (name, float)
            Other rows, in descending order of their predictions. For liked rows and a model of ratings their match:
            the mean cosine between which columns are known of a row and of the liked ones, times the prediction for
            one who rates these highest, from 0 to 1 between the limits. Predictions alone hardly depend on likes.

        Raises
        ------
        InvalidInputError
            If a row is unknown to `fit`, there is none, a value is not a number or outside `limits`, or a list is
            given to a model without limits.
        """
        check_is_fitted(self, "known_")
        n, rare = integer("n", n, 1), self._rare(min_support)
        if likes := not isinstance(values, Mapping):
            values = dict.fromkeys(sequence("values", values), self._liked())
        if not values:
            raise InvalidInputError("values must have a row at least; otherwise recommend to a known column.")
        rows = positions("row", self.row_names_, list(values))
        pairs = np.column_stack([rows, np.zeros_like(rows)])
        table = table_of(pairs, list(values.values()), (len(self.row_names_), 1))
        self._check_scale(table)
        with one_blas_thread():
            scores = self._in_new_column(table)
        shown = self._within(scores)
        if likes and self._rates:
            scores = shown = self._matches(rows, shown)
        best = best_rows(scores, np.union1d(rows, rare), n)
        return self._listed(best, shown[best])

    def _matches(self, rows: Array, predicted: Array) -> Array:
        supports = np.maximum(self._supports(), 1)
        weights = np.zeros(len(supports))
        weights[rows] = 1.0 / (np.sqrt(supports[rows]) * len(rows))
        together = self.known_ @ (self.known_.T @ weights) / np.sqrt(supports)
        together[rows] = 0.0
        bounds: Any = self._bounds()
        shares = (predicted - bounds[0]) / (bounds[1] - bounds[0])
        # Without a common column predictions are all that is left.
        return shares * together if together.any() else shares

    def _liked(self) -> float:
        """Return the value of a liked row."""
        if not self._rates:
            return 1.0
        if (bounds := self._bounds()) is None:
            raise InvalidInputError(
                "a list of rows that are liked needs a model with limits=(lowest, highest), of which they get the "
                "highest; give values as a dict, or fit with limits."
            )
        return float(bounds[1])

    def similar(self, row: Any, n: int = 10, *, min_support: int = 0) -> list[tuple[Any, float]]:
        """Return the rows with the most similar predictions in all columns to those of a row.

        If rows are items, these are the items that the same users like.

        Parameters
        ----------
        row : int or str
            Its name if `fit` got a bundle with names, else its number.
        n : int
            The length of the list, or fewer if there are fewer.
        min_support : int
            The least number of known entries of a listed row.

        Returns
        -------
        list of (name, float)
            Rows, and cosines of the angles between predictions without effects, in descending order.

        Raises
        ------
        InvalidInputError
            If the row is unknown to `fit`, or has effects only.
        """
        check_is_fitted(self, "known_")
        n, (place,) = integer("n", n, 1), positions("row", self.row_names_, row)
        likeness = self._likeness(place)
        if not likeness.any():
            raise InvalidInputError(
                f"the model knows nothing of {shown(row)} but its mean: all its predictions are effects; fit with a "
                "rank above 0, and with entries of this row."
            )
        best = best_rows(likeness, np.union1d([place], self._rare(min_support)), n)
        return list(zip(self.row_names_[best].tolist(), likeness[best].tolist(), strict=True))

    def _likeness(self, row: int) -> Array:
        """Return the similarities of all rows to one, all 0 if nothing is known of it."""
        profiles = self._unit_profiles()
        return profiles @ profiles[row]

    def _unit_profiles(self) -> Array:
        """Return vectors of unit length whose inner products are the cosines between rows of U Wᵀ."""
        # Squares of very large and very small numbers overflow or vanish.
        U, W = (factor / (np.abs(factor).max(initial=0.0) or 1.0) for factor in self._factors())
        with one_blas_thread():
            values, vectors = np.linalg.eigh((W.T @ W).astype(float))
            profiles = U @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        lengths = np.linalg.norm(profiles, axis=1, keepdims=True)
        # For an unknown row all are 0.
        return np.divide(profiles, lengths, out=np.zeros_like(profiles), where=lengths > 0.0)

    def ranked(self, ratings: Any, y: Any = None, n: int = 10) -> Ranked:
        """Measure the recommendations for all columns by held-out entries.

        Parameters
        ----------
        ratings, y : as in `rmse`
            Held-out entries that lists should contain. Those known to `fit` do not count, nor do those of unknown
            rows and columns with ``handle_unknown="mean"``. Leave out disliked entries, for example ratings below 4
            of 5. Negative numbers are refused.
        n : int
            The length of a list.

        Returns
        -------
        Ranked
            Precision, recall and nDCG, means over the columns with a held-out entry.

        Raises
        ------
        InvalidInputError
            If nothing is held out, an entry is negative, or of a row or column unknown to `fit`.
        """
        rows, columns, values = self._entries(ratings, y)
        (m, n_columns), n = self.known_.shape, integer("n", n, 1)
        seen = (rows < m) & (columns < n_columns)
        held_out = sp.csc_array((values[seen], (rows[seen], columns[seen])), shape=(m, n_columns))
        return ranked_lists(self._scores, self.known_, held_out, n)

    def rmse(self, ratings: Any, y: Any = None) -> float:
        """Return the root mean square error of the predictions of known entries.

        Parameters
        ----------
        ratings : sparse array, shape (m, n), or Ratings, or array or list, shape (N, 2)
            A matrix like that of `fit`, a bundle, whose entries are matched by name if `fit` got names, or pairs as
            for `predict`.
        y : array, shape (N,), optional
            The values at the pairs.
        """
        rows, columns, values = self._entries(ratings, y)
        gaps = self._within(self._values(rows, columns)) - values
        # Squares of large ratings would overflow.
        _, power = np.frexp(np.abs(gaps).max(initial=0.0))
        return float(np.ldexp(np.sqrt(np.mean(np.ldexp(gaps, -power) ** 2)), power))

    def _entries(self, ratings: Any, y: Any) -> tuple[Array, Array, Array]:
        """Return numbers of rows and columns, and values (see `_pairs`)."""
        check_is_fitted(self, "known_")
        if y is not None:
            rows, columns = self._pairs(ratings)
            return rows, columns, values_of(y, len(rows))
        if isinstance(ratings, Ratings) and self._named:
            sides = (ratings.row_names, ratings.rows), (ratings.column_names, ratings.columns)
            rows, columns = (numbers if names is None else names[numbers] for names, numbers in sides)
            return *self._pairs(rows, columns), ratings.values
        table = table_of(ratings, None, None)
        if table.shape != self.known_.shape:
            raise InvalidInputError(
                f"the ratings have shape {table.shape}, and fit saw a matrix of {self.known_.shape}; the model has "
                "no other rows and columns."
            )
        return table.indices, columns_of(table), table.data

    def score(self, ratings: Any, y: Any = None) -> float:
        """Return minus the root mean square error of pairs and values, or of a bundle: higher is better.

        For an `ImplicitALS` it is the nDCG of ten recommendations, by `ranked`.

        A matrix is refused: scikit-learn's cross-validation would hold out entire rows, which have no prediction.
        """
        if y is None and not isinstance(ratings, Ratings):
            raise InvalidInputError(
                "score takes pairs and values, since rows of a matrix cannot be held out; split its known entries: "
                "pairs, values = entries(ratings), and cross_val_score(model, pairs, values, cv=EntryKFold(5), "
                "params={'shape': ratings.shape}), both from problems.subspace. For a matrix take rmse or ranked."
            )
        return -self.rmse(ratings, y) if self._rates else self.ranked(ratings, y).ndcg

    def _stored(self) -> dict[str, Array]:
        places = {"known_indptr": self.known_.indptr, "known_indices": self.known_.indices}
        return places | {name: getattr(self, name) for name in self._arrays if name not in places}

    def _restore(self, arrays: dict[str, Array]) -> None:
        indptr, indices = arrays.pop("known_indptr"), arrays.pop("known_indices")
        super()._restore(arrays)
        shape = len(self.row_names_), len(self.column_names_)
        # Not by its constructor, which reads beyond the arrays if they do not match.
        known = sp.csc_array(shape, dtype=bool)
        known.indptr, known.indices, known.data = indptr, indices, np.ones(len(indices), bool)
        self.known_ = sound("known", known)
        if indptr[-1] != len(indices):
            raise ValueError("it names more known entries than there are")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Rows are not samples, and pairs are numbers of rows and columns.
        tags.no_validation = True
        return tags


class PointCompletion(CompletionModel):
    """A matrix as mean + effects of row and column + u_i · w_j, as point estimates.

    A subclass sets the attributes in `_learn`. U and W are `components_` and `weights_`.
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
            U, W, b, c = (np.concatenate([part, np.zeros_like(part[:1])]) for part in (U, W, b, c))
        return predictions(U, W, rows, columns) + (self.mean_ + b[rows] + c[columns])

    def _factors(self) -> tuple[Array, Array]:
        return self.components_, self.weights_

    def _in_new_column(self, table: KnownEntries) -> Array:
        (w,), (effect,) = self._solved(table)
        return self.components_ @ w + (self.mean_ + self.row_effects_ + effect)


def sizable(name: str, values: Array) -> None:
    """Refuse very large and very small values, whose fourth powers overflow or vanish."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest and not 1e-30 < largest < 1e30:
        raise InvalidInputError(f"{name} run up to {largest:.1e}; divide them by such a number first.")


def entries(ratings: Any) -> tuple[Array, Array]:
    """Return the known entries of a sparse matrix as pairs of a row and a column, shape (N, 2), and their values.

    Parameters
    ----------
    ratings : sparse array, shape (m, n), or Ratings
        The entries of a matrix come column by column, those of a bundle in its own order, also that of `times`.

    Returns
    -------
    pairs : int array, shape (N, 2)
    values : array, shape (N,)

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from problems.subspace import entries
    >>> pairs, values = entries(sp.csc_array([[0.0, 5.0], [3.0, 0.0]]))
    >>> pairs.tolist(), values.tolist()
    ([[1, 0], [0, 1]], [3.0, 5.0])
    """
    if isinstance(ratings, Ratings):
        return np.column_stack([ratings.rows, ratings.columns]), ratings.values.copy()
    table = known_entries(ratings)
    return np.column_stack([table.indices, columns_of(table)]), table.data.copy()


class EntryKFold(BaseCrossValidator):
    """Folds of known entries in which the entries of each row are spread evenly.

    So a row with at least two entries has one in each training part.

    Parameters
    ----------
    n_splits : int
    random_state : int, RandomState or None

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from problems.subspace import EntryKFold, entries
    >>> pairs, values = entries(sp.csc_array([[5.0, 3.0, 0.0], [0.0, 4.0, 2.0]]))
    >>> for train, test in EntryKFold(2).split(pairs):
    ...     print(sorted(pairs[test, 0].tolist()))
    [0, 1]
    [0, 1]
    """

    def __init__(self, n_splits: int = 5, *, random_state: Any = 0) -> None:
        self.n_splits = integer("n_splits", n_splits, 2)
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def _iter_test_masks(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Array]:
        rows, _ = checked_pairs(X)
        if len(rows) < self.n_splits:
            raise InvalidInputError(f"{len(rows)} known entries are too few for {self.n_splits} folds.")
        order = np.random.default_rng(seed_of(self.random_state)).permutation(len(rows))
        fold = np.empty(len(rows), dtype=np.int64)
        fold[order[np.argsort(rows[order], kind="stable")]] = np.arange(len(rows)) % self.n_splits
        yield from (fold == number for number in range(self.n_splits))


def table_of(ratings: Any, values: Any, shape: Any) -> KnownEntries:
    """Return known entries from a sparse matrix, a bundle, or pairs and values."""
    if values is None:
        if shape is not None:
            raise InvalidInputError(f"shape = {shape} belongs to pairs and values; a matrix has its own.")
        return known_entries(ratings.table() if isinstance(ratings, Ratings) else ratings)
    rows, columns = checked_pairs(ratings)
    values = values_of(values, len(rows))
    least = tuple(int(side.max(initial=0)) + 1 for side in (rows, columns))
    sides = least if shape is None else tuple(integer("shape", side, 1) for side in sequence("shape", shape))
    if len(sides) != 2 or sides[0] < least[0] or sides[1] < least[1]:
        raise InvalidInputError(
            f"shape = {shape} must be two numbers, of at least {least}: the pairs go so far."
        )
    return known_entries(sp.coo_array((values, (rows, columns)), shape=sides))


def values_of(values: Any, count: int) -> Array:
    """Return the values of pairs, one for each."""
    return numbers("y", array_of("y", values), (count,))


def checked_pairs(pairs: Any) -> tuple[Array, Array]:
    """Return the rows and the columns of pairs of numbers."""
    sides = two_columns("pairs", pairs)
    if not all(
        side.dtype.kind in "iu" and 0 <= side.min(initial=0) <= side.max(initial=0) < 2**31 for side in sides
    ):
        raise InvalidInputError(
            f"pairs must be integers from 0, numbers of rows and of columns, got {shown(pairs)}; of names "
            "problems.data.load makes a bundle."
        )
    rows, columns = (side.astype(np.int32) for side in sides)
    return rows, columns
