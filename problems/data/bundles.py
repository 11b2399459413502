"""The kinds of data sets: samples with classes, several labels or tasks, ratings, and tags."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from joblib import hash as digest
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MaxAbsScaler, Normalizer, StandardScaler
from sklearn.utils import check_array, check_consistent_length

from rmopt.core.ambient import Array
from rmopt.core.arguments import array, integer, number
from rmopt.core.matrices import as_rows
from rmopt.errors import InvalidInputError

__all__ = ["Bundle", "ClassBundle", "MultilabelBundle", "Ratings", "TagBundle", "TaskBundle", "stratified"]


# More zeros than this among ratings from 1 on may be missing values.
ZEROS = 0.05
# The fields of a bundle that are not data.
NOT_DATA = ("name", "source", "notes", "split_said", "times")


@dataclass(frozen=True, eq=False)
class Bundle:
    """The result of a loader: name, source and data. A subclass reports errors and oddities.

    Attributes
    ----------
    name, source : str
        The registered name or that of the file, and the source.
    notes : tuple of str
        Remarks from reading.
    """

    name: str
    source: str
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    # The description of the data in `rmopt data`.
    holds: ClassVar[str]

    def __post_init__(self) -> None:
        try:
            self._check()
        except ValueError as error:
            told = f"the data {self.name!r} (from {self.source}) cannot be used"
            raise InvalidInputError(f"{told}: {str(error).rstrip('.')}.") from None

    def fingerprint(self) -> str:
        """Return a fingerprint of the data, independent of their source."""
        parts = {name: part for name, part in vars(self).items() if name not in NOT_DATA}
        for name in {name for name, part in parts.items() if issparse(part)}:
            parts[name] = [getattr(parts[name], piece) for piece in ("shape", "data", "indices", "indptr")]
        return str(digest((type(self).__name__, parts)))

    @abstractmethod
    def _check(self) -> None:
        """Convert the parts, or raise a `ValueError` that explains the error."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return shapes, densities and ranges by name."""

    def odd(self) -> list[str]:
        """Return usable but possibly unintended properties, one sentence each."""
        return [*self.notes, *(f"{what}: {count:,}." for what, count in self._oddities().items() if count)]

    def _oddities(self) -> dict[str, int]:
        """Return the numbers of possibly unintended items."""
        return {}

    def _check_names(self, what: str, count: int) -> None:
        """Refuse a wrong number of names."""
        if (names := getattr(self, what)) is not None and len(names) != count:
            raise ValueError(f"{what} must be {count}, got {len(names)}")


@dataclass(frozen=True, eq=False)
class Samples(Bundle):
    """Rows of features, possibly with names."""

    X: Any
    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        n, m = self.X.shape
        stored = self.X.nnz if issparse(self.X) else int(np.count_nonzero(self.X))
        return {
            "samples": n, "features": m, "nonzero share": round(stored / (n * m), 6), "sparse": issparse(self.X),
        }  # fmt: skip

    def _oddities(self) -> dict[str, int]:
        ends = self.X.max(axis=0), self.X.min(axis=0)
        high, low = (part.toarray() if issparse(part) else part for part in ends)
        return {"Features that are constant": int((high == low).sum())}

    def _check(self) -> None:
        X: Any = as_rows(self.X, "X") if issparse(self.X) else self.X
        X = check_array(X, accept_sparse="csr", dtype=np.float64, order="C", input_name="X")
        object.__setattr__(self, "X", X)
        self._check_names("feature_names", X.shape[1])


class Split(Samples):
    """Samples with a held-out part, neither empty nor complete."""

    test: NDArray[np.bool_]

    @property
    def train(self) -> NDArray[np.bool_]:
        """True for the training samples, shape (n_samples,)."""
        return ~self.test

    def _check(self) -> None:
        super()._check()
        n, held_out = self.X.shape[0], int(np.sum(self.test))
        if np.shape(self.test) != (n,) or np.asarray(self.test).dtype != np.bool_:
            raise ValueError(f"test must be a bool array of shape ({n},)")
        if held_out in (0, n):
            raise ValueError(f"{held_out:,} of {n:,} samples are held out; both parts need some: test=COLUMN")

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"held out for tests": int(self.test.sum())}


@dataclass(frozen=True, eq=False)
class ClassBundle(Split):
    """Samples, their classes, and which of them are held out.

    Attributes
    ----------
    X : ndarray or csr_array, shape (n_samples, n_features)
        Finite float64. A sparse X becomes canonical CSR (sorted, no duplicates) with int32 indices.
    y : ndarray of int64, shape (n_samples,)
        Labels 0 .. n_classes - 1, at least two of them, every one with a sample.
    test : ndarray of bool, shape (n_samples,)
        True for the held-out samples, with both parts nonempty.
    split_said : bool
        Whether the held-out samples were given. Experiments draw others unless ``--seeds 0``.
    feature_names, class_names : tuple of str, optional
        The names of columns and labels.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.data import ClassBundle
    >>> X, y = np.arange(12.0).reshape(6, 2), np.array([0, 0, 0, 1, 1, 1])
    >>> bundle = ClassBundle("mine", "by hand", X, y, test=np.arange(6) % 3 == 2)
    >>> bundle.n_classes, bundle.X[bundle.train].shape
    (2, (4, 2))
    >>> int(bundle.resplit(seed=0, test_fraction=0.5).test.sum())
    4
    """

    holds = "samples of classes"
    y: NDArray[np.int64]
    test: NDArray[np.bool_]
    split_said: bool = field(default=False, kw_only=True)
    class_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        sizes = np.bincount(self.y)
        return super().summary() | {"classes": self.n_classes, "class sizes": spread(sizes)}

    def _oddities(self) -> dict[str, int]:
        lonely = int((np.bincount(self.y) == 1).sum())
        return super()._oddities() | {"Classes of one sample, which no split can hold out": lonely}

    @property
    def n_classes(self) -> int:
        """The number of different labels."""
        return int(self.y.max()) + 1

    def resplit(self, seed: int, test_fraction: float = 0.35) -> Self:
        """Return the same samples with a new random split that keeps the class proportions.

        Text is prepared (`problems.data.text.informative_unit_rows`) after this, never before: its terms and weights
        come from the training part. The LORETA paper's five 65/35 splits are seeds 0 .. 4.

        Parameters
        ----------
        seed : int
            At least 0. Equal seeds give equal splits.
        test_fraction : float
            The held-out share of every class, strictly between 0 and 1.

        Raises
        ------
        InvalidInputError
            If an argument is out of range, or the share leaves one part empty.
        """
        share = number("test_fraction", test_fraction, above=0, below=1)
        return replace(self, test=stratified(self.y, share, integer("seed", seed)))

    def _check(self) -> None:
        super()._check()
        y, n = self.y, self.X.shape[0]
        if np.shape(y) != (n,) or y.dtype != np.int64:
            raise ValueError(f"y must be an int64 array of shape ({n},)")
        if y.min() < 0 or y.max() >= n or not np.bincount(y).all():
            raise ValueError("the labels y must be 0 .. n_classes - 1, each with at least one sample")
        if not y.any():
            raise ValueError("all samples have one label; at least two classes are needed")
        self._check_names("class_names", self.n_classes)


@dataclass(frozen=True, eq=False)
class MultilabelBundle(Split):
    """Samples, their labels, and which of them are held out.

    Attributes
    ----------
    X : ndarray or csr_array, shape (n_samples, n_features)
    Y : csr_array, shape (n_samples, n_labels)
        Ones for true labels.
    test : ndarray of bool, shape (n_samples,)
        True for the held-out samples, with both parts nonempty.
    split_said : bool
        Whether the held-out samples were given. Experiments draw others unless ``--seeds 0``.
    feature_names, label_names : tuple of str, optional
        The names of columns.
    """

    holds = "samples with several labels"
    Y: Any
    test: NDArray[np.bool_]
    split_said: bool = field(default=False, kw_only=True)
    label_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        n_labels, count = self.Y.shape[1], self.Y.nnz / self.Y.shape[0]
        return super().summary() | {"labels": n_labels, "labels per sample": round(count, 3)}

    def _oddities(self) -> dict[str, int]:
        unused, bare = (int((self.Y.sum(axis=axis) == 0).sum()) for axis in (0, 1))
        return super()._oddities() | {"Labels without a sample": unused, "Samples without a label": bare}

    def _check(self) -> None:
        super()._check()
        object.__setattr__(self, "Y", as_rows(self.Y, "Y"))
        if (
            self.Y.shape != (self.X.shape[0], max(2, self.Y.shape[1]))
            or not np.isin(self.Y.data, (0, 1)).all()
        ):
            raise ValueError("Y must hold ones and zeros, in the rows of X and at least 2 columns")
        self._check_names("label_names", self.Y.shape[1])

    def resplit(self, seed: int) -> Self:
        """Return the same samples with a new random split into parts of the same sizes."""
        return replace(self, test=np.random.default_rng(integer("seed", seed)).permutation(self.test))

    def with_training_rows(self, n_train: int, seed: int) -> Self:
        """Return the same samples with a new random split with this number of training rows."""
        order = np.random.default_rng(integer("seed", seed)).permutation(len(self.test))
        held_out = order[integer("n_train", n_train, 1, len(order) - 1) :]
        return replace(self, test=np.isin(np.arange(len(order)), held_out))

    def scaled(self, unit_rows: bool = True) -> Self:
        """Return the samples scaled: by tf-idf, standardised, or divided by the largest; then rows to unit length.

        By tf-idf if a sparse X holds counts, and divided if it holds other numbers, so that zeros stay zeros.
        Weights, means and deviations are those of the training part.

        Parameters
        ----------
        unit_rows : bool
            Scale rows to unit length, which those of counts always are.
        """
        X = scaling(self.X).fit(self.X[self.train]).transform(self.X)
        unit = unit_rows or holds_counts(self.X)
        return replace(self, X=Normalizer().fit_transform(X) if unit else X)


def holds_counts(X: Any) -> bool:
    """Return whether a table is sparse with non-negative integers, such as word counts."""
    return issparse(X) and bool(np.all((X.data >= 0.0) & (X.data == np.round(X.data))))


def scaling(X: Any) -> Any:
    """Return an unfitted transformer that weights counts, or scales other features."""
    if not issparse(X):
        return StandardScaler()
    return TfidfTransformer() if holds_counts(X) else MaxAbsScaler()


@dataclass(frozen=True, eq=False)
class Ratings(Bundle):
    """Known entries of a matrix.

    Attributes
    ----------
    rows, columns : int32 array, shape (N,)
        The places of the entries. Agents hold columns.
    values : float64 array, shape (N,)
    shape : (int, int)
    limits : (float, float)
        The least and the largest possible value of an entry.
    units : int array, shape (N,), optional
        Entries of one unit are held out together, as the colours of a pixel. Defaults to separate entries.
    row_names, column_names : array, optional
        The items and users of rows and columns. Defaults to their numbers.
    row_ids : array, optional
        The ids of items whose names are titles.
    times : int array, shape (N,), optional
        Ranks in time, from files with dates: larger numbers are later, and equal ones simultaneous.

    Raises
    ------
    InvalidInputError
        If the parts do not match, or a value is not finite or outside the limits.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.data import Ratings
    >>> rows, columns = np.array([[0, 1, 1], [0, 0, 1]], dtype=np.int32)
    >>> values = np.array([5.0, 3.0, 4.0])
    >>> ratings = Ratings("mine", "by hand", rows, columns, values, (2, 2), (1.0, 5.0))
    >>> ratings.table(np.ones(3, dtype=bool)).toarray()
    array([[5., 0.],
           [3., 4.]])
    """

    holds = "ratings of items by users"
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    shape: tuple[int, int]
    limits: tuple[float, float]
    units: NDArray[Any] | None = None
    row_names: NDArray[Any] | None = field(default=None, kw_only=True)
    column_names: NDArray[Any] | None = field(default=None, kw_only=True)
    times: NDArray[Any] | None = field(default=None, kw_only=True)
    row_ids: NDArray[Any] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        (m, n), known = self.shape, len(self.values)
        low, high = float(self.values.min()), float(self.values.max())
        return {
            "items (rows)": m, "users (columns)": n, "ratings": known, "rated share": round(known / (m * n), 6),
            "lowest rating": low, "highest rating": high, "mean rating": round(float(self.values.mean()), 6),
        }  # fmt: skip

    def odd(self) -> list[str]:
        same = "All entries are the same: take --model implicit, ImplicitALS, for data without ratings."
        return super().odd() + [same] * bool(self.values.min() == self.values.max()) + self.zeros()

    def zeros(self) -> list[str]:
        """Return a note if many ratings are 0 among others from 1 on."""
        share, others = float(np.mean(self.values == 0.0)), self.values[self.values != 0.0]
        if share <= ZEROS or len(others) == 0 or others.min() < 1.0:
            return []
        return [
            f"{share:.0%} of the entries are 0, the others {others.min():g} to {others.max():g}: if 0 means no "
            "rating, leave them out, since they count as the worst."
        ]

    def _oddities(self) -> dict[str, int]:
        rows, columns = (int((np.unique_counts(part).counts < 2).sum()) for part in (self.rows, self.columns))
        return {"Items with a single rating": rows, "Users with a single rating": columns}

    def _check(self) -> None:
        (m, n), values, (low, high) = self.shape, self.values, self.limits
        check_consistent_length(self.rows, self.columns, values, self.times)
        if not (len(values) and np.isfinite(values).all() and low <= values.min() and values.max() <= high):
            raise ValueError(f"values must be finite numbers from {low:g} to {high:g}, and at least one")
        inside = all(at.min() >= 0 and at.max() < size for at, size in ((self.rows, m), (self.columns, n)))
        if not inside or not pd.Index(self.rows.astype(np.int64) * n + self.columns).is_unique:
            raise ValueError(f"rows and columns must lie within {self.shape}, and no entry come twice")
        for what, size in zip(("row_names", "column_names"), self.shape, strict=True):
            if getattr(self, what) is not None:
                # A separate array, not of objects.
                names = np.array(array(what, getattr(self, what)).tolist())
                if len(np.unique(names)) != size or len(names) != size:
                    raise ValueError(f"{what} must be {size:,} different names, one for each")
                object.__setattr__(self, what, names)

    def held_out(self, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
        """Return the entries that a random split holds out.

        Parameters
        ----------
        seed : int
        fraction : float
            The share of entries, or of units, between 0 and 1.

        Raises
        ------
        InvalidInputError
            If the fraction is out of range.
        """
        number("the held-out share", fraction, above=0, below=1)
        rng = np.random.default_rng(seed)
        if self.units is None:
            return rng.random(len(self.values)) < fraction
        return (rng.random(int(self.units.max()) + 1) < fraction)[self.units]

    def table(self, chosen: NDArray[np.bool_] | None = None) -> sp.csc_array:
        """Return the entries, or those of a mask, as a sparse array by columns."""
        which = slice(None) if chosen is None else chosen
        parts = (self.values[which], (self.rows[which], self.columns[which]))
        return sp.csc_array(sp.coo_array(parts, shape=self.shape))


@dataclass(frozen=True, eq=False)
class TaskBundle(Samples):
    """Examples of several regression tasks.

    Attributes
    ----------
    X : array, shape (N, m)
    y : array, shape (N,)
    task : int array, shape (N,)
        0 .. n_tasks − 1, each with at least two examples.
    feature_names : tuple of str, optional
        The names of columns.
    """

    holds = "related regressions"
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    task: NDArray[np.int64]

    def summary(self) -> dict[str, Any]:
        about = {"tasks": int(self.task.max()) + 1, "samples per task": spread(np.bincount(self.task))}
        return super().summary() | about | {"target": f"{self.y.min():g} to {self.y.max():g}"}

    def _check(self) -> None:
        super()._check()
        check_consistent_length(self.X, self.y, self.task)
        if not np.isfinite(self.y).all() or self.task.min() < 0 or np.bincount(self.task).min() < 2:
            raise ValueError("y must be finite, and each task have at least two examples")

    def held_out(self, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
        """Return the examples that a random split holds out: this share, rounded, of each task.

        Raises
        ------
        InvalidInputError
            If the fraction is out of range.
        """
        return stratified(self.task, number("the held-out share", fraction, above=0, below=1), seed, 1)


@dataclass(frozen=True, eq=False)
class TagBundle(Bundle):
    """Triples (user, item, tag). A post is a user and an item with all its tags.

    Attributes
    ----------
    triples : int array, shape (N, 3)
        Numbers of user, item and tag, each from 0 without gaps, and no triple twice.
    tag_names : tuple of str

    Examples
    --------
    >>> import numpy as np
    >>> from problems.data import TagBundle
    >>> triples = np.array([[0, 0, 0], [0, 0, 1], [1, 0, 1]])
    >>> bundle = TagBundle("mine", "by hand", triples, ("funny", "long"))
    >>> bundle.counts, bundle.posts().tolist()
    ((2, 1, 2), [0, 0, 1])
    """

    holds = "tags that users gave to items"
    triples: NDArray[np.int64]
    tag_names: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        users, items, tags = self.counts
        posts = int(self.posts().max()) + 1
        return {"users": users, "items": items, "tags": tags, "posts": posts, "triples": len(self.triples)}

    def _check(self) -> None:
        if self.triples.ndim != 2 or self.triples.shape[1] != 3 or not len(self.triples):
            raise ValueError(f"triples must be a table with 3 columns, not empty, got {self.triples.shape}")
        holes = any(len(np.unique(one)) != one.max() + 1 or one.min() < 0 for one in self.triples.T)
        if holes or len(np.unique(self.triples, axis=0)) != len(self.triples):
            raise ValueError(
                "users, items and tags must be numbered from 0 without holes, and no triple come twice"
            )
        self._check_names("tag_names", self.counts[2])

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of users, items and tags."""
        users, items, tags = (self.triples.max(axis=0) + 1).tolist()
        return users, items, tags

    def posts(self) -> Array:
        """Return the number of the post of each triple."""
        return np.unique(self.triples[:, :2], axis=0, return_inverse=True)[1].ravel()

    def held_out(self, seed: int, before: NDArray[np.bool_] | bool = False) -> NDArray[np.bool_]:
        """Return the held-out triples: one random post of each user with at least two posts.

        Posts held out before do not count.
        """
        rng, posts = np.random.default_rng(seed), self.posts()
        chosen = []
        for user in range(self.counts[0]):
            own = np.unique(posts[(self.triples[:, 0] == user) & ~np.asarray(before)])
            if len(own) > 1:
                chosen.append(rng.choice(own))
        return np.isin(posts, chosen)


def stratified(groups: NDArray[np.int64], share: float, seed: int, spared: int = 0) -> NDArray[np.bool_]:
    """Draw a mask with the same share, rounded, of every group, and a least number of each inside and outside."""
    rng, mask = np.random.default_rng(seed), np.zeros(len(groups), dtype=np.bool_)
    for group in range(int(groups.max()) + 1):
        members = rng.permutation(np.flatnonzero(groups == group))
        mask[members[: min(max(round(share * len(members)), spared), len(members) - spared)]] = True
    return mask


def spread(sizes: Array) -> str:
    """Return the least and the largest of some sizes."""
    return f"{sizes.min():,} to {sizes.max():,}"
