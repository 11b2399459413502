"""What a data set is: samples of classes, of several labels or of tasks; ratings; tags."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import issparse

from rmopt.core.ambient import Array
from rmopt.core.arguments import array, integer, number, shown
from rmopt.errors import InvalidInputError

__all__ = ["Bundle", "ClassBundle", "MultilabelBundle", "Ratings", "TagBundle", "TaskBundle", "stratified"]


# What is known of data beside them.
NOT_DATA = ("name", "source", "notes", "split_said", "times")


def _canonical(part: Any) -> Any:
    if issparse(part):
        part = part.tocsr(copy=True)
        part.sort_indices()
        return part.shape, part.data, part.indices, part.indptr
    if isinstance(part, list | tuple) and not isinstance(next(iter(part), ""), str):
        return [_canonical(one) for one in part]
    return np.ascontiguousarray(part) if isinstance(part, np.ndarray) else part


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a loader returns: its name, what was read, and data; a subclass says what is wrong or odd.

    Attributes
    ----------
    name, source : str
        The registered name or that of the file, and what was read.
    notes : tuple of str
        What was noticed when it was read.

    Raises
    ------
    InvalidInputError
        When a part is not as the subclass describes it.
    """

    name: str
    source: str
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    # What the data are, in a line of `rmopt data`.
    holds: ClassVar[str]

    def __post_init__(self) -> None:
        if flaw := self._flaw():
            raise InvalidInputError(f"the data {self.name!r} (from {self.source}) cannot be used: {flaw}.")

    def fingerprint(self) -> str:
        """Return what the data are, from wherever they were read."""
        # scipy notes in a sparse matrix whether it is sorted, and sorts it in place.
        parts = {name: _canonical(part) for name, part in vars(self).items() if name not in NOT_DATA}
        from joblib import hash as digest

        return str(digest((type(self).__name__, parts)))

    @abstractmethod
    def _flaw(self) -> str | None:
        """Return what is wrong, or None."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return shapes, densities and ranges by name."""

    def odd(self) -> list[str]:
        """Return what can be used and may not be meant, a sentence each."""
        return list(self.notes)


@dataclass(frozen=True, eq=False)
class Samples(Bundle):
    """Rows of features, whose names may be known."""

    X: Any
    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        n, m = self.X.shape
        stored = self.X.nnz if issparse(self.X) else int(np.count_nonzero(self.X))
        return {
            "samples": n, "features": m, "density": round(stored / (n * m), 6), "sparse": issparse(self.X),
        }  # fmt: skip

    def odd(self) -> list[str]:
        high, low = self.X.max(axis=0), self.X.min(axis=0)
        high, low = (one.toarray().ravel() if issparse(one) else one for one in (high, low))
        return super().odd() + some("feature", "constant", high == low, self.feature_names)

    def _flaw_of_names(self, **counts: int) -> str | None:
        """Return which names are not as many as what they name: features, and what `counts` has."""
        for what, count in {"features": self.X.shape[1], **counts}.items():
            names = getattr(self, "class_names" if what == "classes" else f"{what[:-1]}_names")
            if names is not None and len(names) != count:
                return f"it has {count} {what} and {len(names)} names of them"
        return None


class Split(Samples):
    """Samples of which some are held out, at least one, and not all."""

    test: NDArray[np.bool_]

    @property
    def train(self) -> NDArray[np.bool_]:
        """True for the training samples, shape (n_samples,)."""
        return ~self.test

    def _flaw_of_split(self, **counts: int) -> str | None:
        n, test = self.X.shape[0], self.test
        if not isinstance(test, np.ndarray) or test.shape != (n,) or test.dtype != np.bool_:
            return f"test must be a bool array of shape ({n},)"
        if test.all() or not test.any():
            return f"{int(test.sum()):,} of its {n:,} samples are held out; both parts need some: say test=COLUMN"
        return self._flaw_of_names(**counts)

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"held out": int(self.test.sum())}


@dataclass(frozen=True, eq=False)
class ClassBundle(Split):
    """Samples, their classes, and which of them are held out.

    Attributes
    ----------
    X : ndarray or csr_array, shape (n_samples, n_features)
        Finite float64; a sparse X is canonical CSR (sorted, no duplicates) with int32 indices.
    y : ndarray of int64, shape (n_samples,)
        Labels 0 .. n_classes - 1, at least two of them, every one with a sample.
    test : ndarray of bool, shape (n_samples,)
        True for the held-out samples; neither part is empty.
    split_said : bool
        Whether somebody said which they are; experiments draw others unless told ``--seeds 0``.
    feature_names, class_names, sample_names : tuple of str, optional
        What columns, labels and rows stand for.

    Raises
    ------
    InvalidInputError
        When a part is not as described above.

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
    sample_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        sizes = np.bincount(self.y)
        return super().summary() | {"classes": self.n_classes, "class sizes": spread(sizes)}

    def odd(self) -> list[str]:
        lonely = np.bincount(self.y) == 1
        how = "of one sample, which no split can hold out"
        return super().odd() + some("class", how, lonely, self.class_names)

    @property
    def n_classes(self) -> int:
        """The number of different labels."""
        return int(self.y.max()) + 1

    def resplit(self, seed: int, test_fraction: float = 0.35) -> Self:
        """Return the same samples with a new random split that keeps the class proportions.

        Text is prepared (`problems.data.text.prepare_text`) after this, never before: its terms and weights
        come from the training part. The LORETA paper's five 65/35 splits are seeds 0 .. 4.

        Parameters
        ----------
        seed : int
            At least 0; equal seeds give equal splits.
        test_fraction : float
            The held-out share of every class, strictly between 0 and 1.

        Raises
        ------
        InvalidInputError
            When an argument is out of range, or the share leaves one part empty.
        """
        share = number("test_fraction", test_fraction, above=0, below=1)
        return replace(self, test=stratified(self.y, share, integer("seed", seed)))

    def _flaw(self) -> str | None:
        X, y, sparse = self.X, self.y, issparse(self.X)
        if not (X.format == "csr" if sparse else isinstance(X, np.ndarray)) or X.ndim != 2:
            return f"X must be a two-dimensional ndarray or csr_array, got {type(X).__name__}"
        if X.dtype != np.float64 or 0 in X.shape or not np.isfinite(X.data if sparse else X).all():
            return f"X must be finite float64 and not empty, got {X.dtype} of shape {X.shape}"
        if sparse and not (X.has_canonical_format and X.indices.dtype == np.int32):
            return "a sparse X must be canonical CSR with int32 indices; call X.sum_duplicates()"
        n_samples = X.shape[0]
        if not isinstance(y, np.ndarray) or y.shape != (n_samples,) or y.dtype != np.int64:
            return f"y must be an int64 array of shape ({n_samples},)"
        if y.min() < 0 or y.max() >= n_samples or not np.bincount(y).all():
            return "the labels y must be 0 .. n_classes - 1, each with at least one sample"
        if not y.any():
            return "all samples have one label; at least two classes are needed"
        return self._flaw_of_split(classes=self.n_classes, samples=n_samples)


@dataclass(frozen=True, eq=False)
class MultilabelBundle(Split):
    """Samples, their labels, and which of them are held out.

    Attributes
    ----------
    X : ndarray or csr_array, shape (n_samples, n_features)
    Y : csr_array, shape (n_samples, n_labels)
        Ones where a label is true.
    test : ndarray of bool, shape (n_samples,)
        True for the held-out samples; neither part is empty.
    split_said : bool
        Whether somebody said which they are; experiments draw others unless told ``--seeds 0``.
    feature_names, label_names : tuple of str, optional
        What columns stand for.

    Raises
    ------
    InvalidInputError
        When a part is not as described above.
    """

    holds = "samples with several labels"
    Y: Any
    test: NDArray[np.bool_]
    split_said: bool = field(default=False, kw_only=True)
    label_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        n_labels, count = self.Y.shape[1], self.Y.nnz / self.Y.shape[0]
        return super().summary() | {"labels": n_labels, "labels a sample": round(count, 3)}

    def odd(self) -> list[str]:
        counts, bare = self.Y.sum(axis=0), int((self.Y.sum(axis=1) == 0).sum())
        said = super().odd() + some("label", "without a sample", counts == 0, self.label_names)
        return said + ([f"{bare:,} sample{'s have' if bare > 1 else ' has'} no label."] if bare else [])

    def _flaw(self) -> str | None:
        n_samples = self.X.shape[0]
        values = self.X.data if issparse(self.X) else self.X
        if self.X.ndim != 2 or 0 in self.X.shape or not np.isfinite(values).all():
            return "X must be a table of finite numbers"
        if not issparse(self.Y) or self.Y.format != "csr":
            return f"Y must be a csr_array, got {type(self.Y).__name__}"
        if self.Y.shape[0] != n_samples or self.Y.shape[1] < 2:
            return f"Y must have {n_samples} rows and at least 2 labels, got shape {self.Y.shape}"
        others = self.Y.data[(self.Y.data != 0) & (self.Y.data != 1)]
        if others.size:
            return f"Y must hold ones and zeros, and {others[0]:g} is among them"
        return self._flaw_of_split(labels=self.Y.shape[1])

    def resplit(self, seed: int) -> Self:
        """Return the same samples with a new random split, the parts as large as they are."""
        return replace(self, test=np.random.default_rng(integer("seed", seed)).permutation(self.test))

    def with_training_rows(self, n_train: int, seed: int) -> Self:
        """Return the same samples with a new random split that has so many training rows."""
        test = np.ones(len(self.test), dtype=bool)
        n_train = integer("n_train", n_train, 1, len(test) - 1)
        test[np.random.default_rng(integer("seed", seed)).permutation(len(test))[:n_train]] = False
        return replace(self, test=test)

    def scaled(self, unit_rows: bool = True) -> Self:
        """Return the samples scaled: by tf-idf, standardised, or divided by the largest; then rows to unit length.

        By tf-idf where a sparse X holds counts, divided where it holds other numbers, of which zeros stay zeros.

        Weights, means and deviations are those of the training part.

        Parameters
        ----------
        unit_rows : bool
            Scale rows to unit length; those of counts are in any case.
        """
        from sklearn.preprocessing import Normalizer

        X = scaling(self.X).fit(self.X[self.train]).transform(self.X)
        unit = unit_rows or holds_counts(self.X)
        return replace(self, X=Normalizer().fit_transform(X) if unit else X)


def holds_counts(X: Any) -> bool:
    """Return whether a table is sparse, with whole numbers that are not negative, as counts of words are."""
    return issparse(X) and bool(np.all((X.data >= 0.0) & (X.data == np.round(X.data))))


def scaling(X: Any) -> Any:
    """Return what weights counts, or makes other features alike in size; it is to be fitted."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    if not issparse(X):
        return StandardScaler()
    return TfidfTransformer() if holds_counts(X) else MaxAbsScaler()


def names_of(what: str, names: Any) -> Array:
    """Return names of rows in an array of their own: text, or numbers that keep their type."""
    found = array(what, names)
    if found.dtype.kind not in "biufU":
        # Objects, and pandas' and numpy's other text.
        kinds = {str if isinstance(name, str) else type(name) for name in found.tolist()}
        found = np.array([str(name) for name in found.tolist()] if kinds == {str} else found.tolist())
        if len(kinds) != 1 or found.dtype.kind not in "biuU":
            raise InvalidInputError(f"{what} must all be text, or all whole numbers, got {shown(names)}.")
    return found.copy()


@dataclass(frozen=True, eq=False)
class Ratings(Bundle):
    """Known entries of a matrix.

    Attributes
    ----------
    rows, columns : int32 array, shape (N,)
        Where the entries are; columns are dealt to agents.
    values : float64 array, shape (N,)
    shape : (int, int)
    limits : (float, float)
        The least and the largest value that an entry can have.
    units : int array, shape (N,), optional
        Entries of one unit are held out together, as the colours of a pixel; each on its own unless given.
    row_names, column_names : array, optional
        The items and the users that rows and columns stand for; their numbers unless given.
    times : int array, shape (N,), optional
        Which entries are later: larger numbers, and equal ones at the same time. From files with dates.

    Raises
    ------
    InvalidInputError
        When the parts do not belong together, or a value is not finite or outside of the limits.

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

    holds = "ratings: known entries of a matrix"
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    shape: tuple[int, int]
    limits: tuple[float, float]
    units: NDArray[Any] | None = None
    row_names: NDArray[Any] | None = field(default=None, kw_only=True)
    column_names: NDArray[Any] | None = field(default=None, kw_only=True)
    times: NDArray[Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for what in ("row_names", "column_names"):
            if getattr(self, what) is not None:
                object.__setattr__(self, what, names_of(what, getattr(self, what)))
        super().__post_init__()

    def summary(self) -> dict[str, Any]:
        (m, n), known = self.shape, len(self.values)
        low, high = float(self.values.min()), float(self.values.max())
        return {
            "rows (items)": m, "columns (users)": n, "entries": known, "density": round(known / (m * n), 6),
            "lowest": low, "highest": high, "mean": round(float(self.values.mean()), 6),
        }  # fmt: skip

    def odd(self) -> list[str]:
        said = super().odd()
        if self.values.min() == self.values.max():
            said.append(
                f"All entries are {self.values[0]:g}: who has what is for --model implicit, ImplicitALS."
            )
        for what, numbers, size in zip(("row", "column"), (self.rows, self.columns), self.shape, strict=True):
            few = int((np.bincount(numbers, minlength=size) < 2).sum())
            if few:
                said.append(f"{few:,} of {size:,} {what}s have fewer than two entries.")
        return said

    def _flaw(self) -> str | None:
        lengths, (low, high) = {len(self.rows), len(self.columns), len(self.values)}, self.limits
        if self.times is not None and np.shape(self.times) != np.shape(self.values):
            return f"times must have one for each of {len(self.values):,} values, got {shown(self.times)}"
        numbers = (self.rows, self.shape[0]), (self.columns, self.shape[1])
        if len(lengths) != 1 or 0 in lengths or not np.isfinite(self.values).all():
            return "rows, columns and values must be equally many finite numbers, and at least one"
        if any(found.min() < 0 or found.max() >= size for found, size in numbers):
            return f"they name rows or columns outside of {self.shape}"
        if self.values.min() < low or self.values.max() > high:
            return f"values run from {self.values.min():g} to {self.values.max():g}, outside of {low:g} to {high:g}"
        cells = np.sort(self.rows.astype(np.int64) * self.shape[1] + self.columns)
        again = int((cells[1:] == cells[:-1]).sum())
        if again:
            return f"{again:,} entries come twice; keep one of each row and column"
        for what, size in zip(("row_names", "column_names"), self.shape, strict=True):
            names = getattr(self, what)
            if names is not None and (names.shape != (size,) or len(np.unique(names)) != size):
                return f"{what} must be {size:,} different names, one for each"
        return None

    def held_out(self, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
        """Return which entries a random split holds out.

        Parameters
        ----------
        seed : int
        fraction : float
            Between 0 and 1; the share of entries, or of units.

        Raises
        ------
        InvalidInputError
            When the fraction is out of range.
        """
        number("the held-out share", fraction, above=0, below=1)
        rng = np.random.default_rng(seed)
        if self.units is None:
            return rng.random(len(self.values)) < fraction
        return (rng.random(int(self.units.max()) + 1) < fraction)[self.units]

    def table(self, chosen: NDArray[np.bool_] | None = None) -> sp.csc_array:
        """Return the entries as a sparse array by columns, or those that a mask chooses."""
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
    feature_names, task_names : tuple of str, optional
        What columns and tasks stand for.

    Raises
    ------
    InvalidInputError
        When the parts do not belong together, a number is not finite, or a task has fewer than two examples.
    """

    holds = "related regressions"
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    task: NDArray[np.int64]
    task_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        about = {"tasks": int(self.task.max()) + 1, "samples a task": spread(np.bincount(self.task))}
        return super().summary() | about | {"target": f"{self.y.min():g} to {self.y.max():g}"}

    def _flaw(self) -> str | None:
        if self.X.ndim != 2 or not len(self.X) == len(self.y) == len(self.task) or len(self.y) == 0:
            return "X, y and task must have one row per example"
        if not (np.isfinite(self.X).all() and np.isfinite(self.y).all()):
            return "X or y holds NaN or infinity"
        if not 0 <= self.task.min() <= self.task.max() < len(self.y) or np.bincount(self.task).min() < 2:
            return "each task needs at least two examples"
        return self._flaw_of_names(tasks=int(self.task.max()) + 1)

    def held_out(self, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
        """Return which examples a random split holds out: this share, rounded, of each task.

        Raises
        ------
        InvalidInputError
            When the fraction is out of range.
        """
        return stratified(self.task, number("the held-out share", fraction, above=0, below=1), seed, 1)


@dataclass(frozen=True, eq=False)
class TagBundle(Bundle):
    """Triples (user, item, tag). A post is a user and an item with all its tags.

    Attributes
    ----------
    triples : int array, shape (N, 3)
        Numbers of user, item and tag, each from 0 without holes; no triple twice.
    tag_names : tuple of str
    user_names, item_names : array, optional
        What the numbers stand for.

    Raises
    ------
    InvalidInputError
        When the parts are not as described.

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
    user_names: NDArray[Any] | None = field(default=None, kw_only=True)
    item_names: NDArray[Any] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        users, items, tags = self.counts
        posts = int(self.posts().max()) + 1
        return {"users": users, "items": items, "tags": tags, "posts": posts, "triples": len(self.triples)}

    def _flaw(self) -> str | None:
        triples = self.triples
        if triples.ndim != 2 or triples.shape[1:] != (3,) or not len(triples):
            return f"triples must be a table with 3 columns and at least one row, got shape {triples.shape}"
        if any(len(np.unique(column)) != column.max() + 1 or column.min() < 0 for column in triples.T):
            return "users, items and tags must be numbered from 0 without holes"
        if len(np.unique(triples, axis=0)) != len(triples):
            return "a triple occurs twice"
        if len(self.tag_names) != triples[:, 2].max() + 1:
            return f"there are {triples[:, 2].max() + 1} tags and {len(self.tag_names)} names"
        return None

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of users, items and tags."""
        users, items, tags = (self.triples.max(axis=0) + 1).tolist()
        return users, items, tags

    def posts(self) -> Array:
        """Return the number of the post of each triple."""
        return np.unique(self.triples[:, :2], axis=0, return_inverse=True)[1].ravel()

    def held_out(self, seed: int, before: NDArray[np.bool_] | bool = False) -> NDArray[np.bool_]:
        """Return which triples are held out: one random post of each user who has two posts or more.

        Those that were held out before are nobody's.
        """
        rng, posts = np.random.default_rng(seed), self.posts()
        chosen = []
        for user in range(self.counts[0]):
            own = np.unique(posts[(self.triples[:, 0] == user) & ~np.asarray(before)])
            if len(own) > 1:
                chosen.append(rng.choice(own))
        return np.isin(posts, chosen)


def stratified(groups: NDArray[np.int64], share: float, seed: int, spared: int = 0) -> NDArray[np.bool_]:
    """Draw a mask that holds the same share, rounded, of every group: of each so many in and out at least."""
    rng, mask = np.random.default_rng(seed), np.zeros(len(groups), dtype=np.bool_)
    for group in range(int(groups.max()) + 1):
        members = rng.permutation(np.flatnonzero(groups == group))
        mask[members[: min(max(round(share * len(members)), spared), len(members) - spared)]] = True
    return mask


def spread(sizes: Array) -> str:
    """Return the least and the largest of some sizes."""
    return f"{sizes.min():,} to {sizes.max():,}"


def first_of(names: Sequence[Any]) -> str:
    """Return the first few names with commas between."""
    return f"{', '.join(map(str, names[:6]))}{', …' * (len(names) > 6)}"


def some(what: str, how: str, odd: Array, known: Sequence[str] | None) -> list[str]:
    """Return a sentence that counts what is odd and names the first few, or none."""
    names = [str(number) if known is None else known[number] for number in np.flatnonzero(odd).tolist()]
    if not names:
        return []
    more = f"{len(names):,} {what}{'es' if what.endswith('s') else 's'} are"
    many = more if len(names) > 1 else f"1 {what} is"
    return [f"{many} {how}: {', '.join(names[:5])}{', …' * (len(names) > 5)}."]
