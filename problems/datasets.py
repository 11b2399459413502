"""Labelled data sets with their published split, and where their files lie."""

import importlib.util
import inspect
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from problems.arrays import read_table
from rmopt.core.arguments import integer, number
from rmopt.core.errors import InvalidInputError, StorageError
from rmopt.core.files import Layout, read_arrays, reading, save_arrays

__all__ = ["Bundle", "data_folder", "digits", "load", "news20", "news20_full"]

B = TypeVar("B")

DIGITS_TEST_FRACTION = 0.3
DIGITS_SPLIT_SEED = 0
NEWS20_FILE = "news20_bydate_cai.npz"
NEWS20_FULL_FILE = "news20_bydate_fullvocab_derived.npz"


@dataclass(frozen=True, eq=False)
class DataSet:
    """What a loader returns: its registered name, what was read, and data; a subclass says what is wrong."""

    name: str
    source: str
    _what: ClassVar[str] = "data set"

    def __post_init__(self) -> None:
        if flaw := self._flaw():
            raise InvalidInputError(
                f"the {self._what} {self.name!r} (from {self.source}) cannot be used: {flaw}."
            )

    @abstractmethod
    def _flaw(self) -> str | None:
        """Return what is wrong, or None."""


class Split(DataSet):
    """Samples of which some are held out, at least one, and not all."""

    X: Any
    test: NDArray[np.bool_]

    @property
    def train(self) -> NDArray[np.bool_]:
        """True for the training samples, shape (n_samples,)."""
        return ~self.test

    def _flaw_of_split(self) -> str | None:
        empty = self.test.shape != (self.X.shape[0],) or self.test.all() or not self.test.any()
        return "the split leaves no training or no test samples" if empty else None


@dataclass(frozen=True, eq=False)
class Bundle(Split):
    """Samples, their classes, and which of them are held out.

    Attributes
    ----------
    name, source : str
        The registered name, and what was read.
    X : ndarray or csr_array, shape (n_samples, n_features)
        Finite float64; a sparse X is canonical CSR (sorted, no duplicates) with int32 indices.
    y : ndarray of int64, shape (n_samples,)
        Labels 0 .. n_classes - 1, at least two of them, every one with a sample.
    test : ndarray of bool, shape (n_samples,)
        True for the held-out samples; neither part is empty.

    Raises
    ------
    InvalidInputError
        When a part is not as described above.
    """

    X: Any
    y: NDArray[np.int64]
    test: NDArray[np.bool_]

    @property
    def n_classes(self) -> int:
        """The number of different labels."""
        return int(self.y.max()) + 1

    def resplit(self, seed: int, test_fraction: float = 0.35) -> Self:
        """Return the same samples with a new random split that keeps the class proportions.

        Text is prepared (`problems.text.prepare_text`) after this, never before: its terms and weights
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
        X, y = self.X, self.y
        if not (isinstance(X, np.ndarray) or (issparse(X) and X.format == "csr")) or X.ndim != 2:
            return f"X must be a two-dimensional ndarray or csr_array, got {type(X).__name__}"
        if X.dtype != np.float64 or 0 in X.shape:
            return f"X must be float64 and not empty, got {X.dtype} of shape {X.shape}"
        if issparse(X) and not (X.has_canonical_format and X.indices.dtype == np.int32):
            return "a sparse X must be canonical CSR with int32 indices; call X.sum_duplicates()"
        if not np.isfinite(X.data if issparse(X) else X).all():
            return "X holds NaN or infinite values"
        n_samples = X.shape[0]
        for array, kind, name in ((y, np.int64, "y"), (self.test, np.bool_, "test")):
            if not isinstance(array, np.ndarray) or array.shape != (n_samples,) or array.dtype != kind:
                return f"{name} must be an {np.dtype(kind)} array of shape ({n_samples},)"
        if y.min() < 0 or y.max() >= n_samples or not np.bincount(y).all():
            return "the labels y must be 0 .. n_classes - 1, each with at least one sample"
        if y.max() == 0:
            return "all samples have one label; at least two classes are needed"
        return self._flaw_of_split()


def stratified(groups: NDArray[np.int64], share: float, seed: int, spared: int = 0) -> NDArray[np.bool_]:
    """Draw a mask that holds the same share, rounded, of every group: of each so many in and out at least."""
    rng, mask = np.random.default_rng(seed), np.zeros(len(groups), dtype=np.bool_)
    for group in range(int(groups.max()) + 1):
        members = rng.permutation(np.flatnonzero(groups == group))
        mask[members[: min(max(round(share * len(members)), spared), len(members) - spared)]] = True
    return mask


def load(name: str, data_home: Path | str | None = None, kind: type[B] = Bundle) -> B:  # type: ignore[assignment]
    """Load a data set by the name it has in the entry-point group ``rmopt.datasets``.

    A package adds a data set by registering a function ``(data_home) -> Bundle`` in that group.

    Parameters
    ----------
    name : str
        For example ``"digits"``, ``"news20"`` or ``"news20-full"``.
    data_home : path, optional
        Handed to the loader; see `data_folder`.
    kind : type
        What the loader must return: `Bundle`, or `problems.multilabel.MultilabelBundle`.

    Raises
    ------
    InvalidInputError
        When no data set has this name, it is of another kind, or the registered loader is broken.
    StorageError
        When the files can neither be read nor fetched.
    """
    registered = {entry.name: entry for entry in entry_points(group="rmopt.datasets")}
    if name not in registered:
        close = get_close_matches(str(name), registered, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join(sorted(registered)) or "none; install rmopt with pip to register its own"
        raise InvalidInputError(f"there is no data set {name!r}; known data sets: {known}.{hint}")
    try:
        read = registered[name].load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"the data set {name!r} is registered as {registered[name].value}, which cannot be imported "
            f"({error}); repair or uninstall the package that registers it."
        ) from error
    bundle = read(data_home)
    if not isinstance(bundle, kind):
        raise InvalidInputError(
            f"the data set {name!r} gave a {type(bundle).__name__}; this needs one whose loader returns a "
            f"{kind.__name__}."
        )
    return bundle


def data_folder(data_home: Path | str | None = None) -> Path:
    """Return the folder of the data files.

    Parameters
    ----------
    data_home : path, optional
        An existing folder. Without it the environment variable RMOPT_DATA_HOME is used, and without that
        the user's cache folder, which need not exist yet.

    Raises
    ------
    InvalidInputError
        When the argument or the variable names something that is not a folder.
    """
    environment = os.environ.get("RMOPT_DATA_HOME")
    for name, given in (("data_home", data_home), ("RMOPT_DATA_HOME", environment or None)):
        if given is not None:
            folder = Path(given).expanduser()
            if not folder.is_dir():
                raise InvalidInputError(f"{name} {str(given)!r} is not an existing folder; create it first.")
            return folder
    import pooch

    return Path(pooch.os_cache("rmopt"))


def loader(
    *files: str, advice: str = "", title: str = "", fetch: Callable[[Path], Any] | None = None
) -> Callable[[Callable[..., B]], Callable[..., B]]:
    """Make a loader, which takes the data folder, of a function that reads a file, or of one that needs none.

    The first of the files that is there is read. Where there is none, `fetch` makes the data from the folder and may
    fail with an OSError, in which `title` names them; without it `advice` says what to do.
    """
    where, missing = "Nothing is read; a folder that is given must exist all the same.", ""
    if files:
        where = f"A folder with ``{'`` or ``'.join(files)}``; see `problems.datasets.data_folder`."
        none = (
            "damaged, or there is neither a file nor a network connection" if fetch else "missing or damaged"
        )
        missing = f"\nStorageError\n    When the file is {none}."
    elsewhere = "or pass as --data-home (or set RMOPT_DATA_HOME to) a folder that holds"

    def made(read: Callable[..., B]) -> Callable[..., B]:
        def load_it(data_home: Path | str | None = None) -> B:
            if not files:
                if data_home is not None:
                    data_folder(data_home)
                return read()
            folder = data_folder(data_home)
            path = next((folder / file for file in files if (folder / file).is_file()), None)
            if path is not None:
                with reading(path):
                    return read(path)
            if fetch is None:
                them = f"{files[0]} is not" if len(files) == 1 else f"neither {' nor '.join(files)} is"
                raise StorageError(f"{them} in {folder}; {advice}, {elsewhere} it.")
            try:
                return fetch(folder)
            except OSError as error:
                raise StorageError(
                    f"{title} could not be fetched ({error}); connect to the network once, {elsewhere} {files[0]}."
                ) from error

        load_it.__module__, load_it.__name__ = read.__module__, read.__name__
        load_it.__qualname__ = read.__name__
        load_it.__doc__ = f"""{inspect.cleandoc(read.__doc__ or "")}

Parameters
----------
data_home : path, optional
    {where}

Raises
------
InvalidInputError
    When `data_home` is not a folder.{missing}
"""
        return load_it

    return made


@loader()
def digits() -> Bundle:
    """Load the 1797 handwritten digits of scikit-learn: 64 pixel values in [0, 1], 10 classes.

    The held-out 30 % of every class are drawn once with a fixed seed.
    """
    table = _digits_table()
    y = table[:, -1].astype(np.int64)
    test = stratified(y, DIGITS_TEST_FRACTION, DIGITS_SPLIT_SEED)
    return Bundle("digits", "scikit-learn", table[:, :-1] / 16, y, test)


def _digits_table() -> NDArray[np.float64]:
    """Read pixels and label, shape (1797, 65); without the second that importing scikit-learn takes."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    return np.column_stack(load_digits(return_X_y=True))


def _newsgroups(
    name: str, about: str, published: str, first_label: int = 0, **options: str
) -> Callable[..., Bundle]:
    """Return the loader of counts of 20 Newsgroups: the published ones, or scikit-learn's, which are stored."""
    own = f"{name}_scikit-learn.npz"

    def read(path: Path) -> Bundle:
        X = read_table(path, "X")
        labels: Layout = {"y": (int, ("n",)), "is_test": (bool, ("n",))}
        stored = read_arrays(path, {**labels, "vocabulary_utf8": (str, (X.shape[1],))}, labels)
        if "vocabulary_utf8" in stored:
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            kept = [term not in ENGLISH_STOP_WORDS for term in stored["vocabulary_utf8"].tolist()]
            X = X[:, np.flatnonzero(kept)]
        source, first = ("scikit-learn", 0) if path.name == own else (published, first_label)
        return Bundle(name, source, X, stored["y"] - first, stored["is_test"])

    def fetch(folder: Path) -> Bundle:
        from sklearn.datasets import fetch_20newsgroups
        from sklearn.feature_extraction.text import CountVectorizer

        train, test = (fetch_20newsgroups(subset=part, shuffle=False) for part in ("train", "test"))
        counts = CountVectorizer(stop_words="english", min_df=2, **options)
        X = csr_array(counts.fit_transform(train.data + test.data), dtype=np.float64)
        X.sum_duplicates()
        y = np.concatenate([train.target, test.target]).astype(np.int64)
        is_test = np.repeat([False, True], [len(train.target), len(test.target)])
        parts = {"X_data": X.data.astype(np.float32), "X_indices": X.indices, "X_indptr": X.indptr}
        arrays = {**parts, "X_shape": np.array(X.shape), "y": y, "is_test": is_test}
        try:
            save_arrays(folder / own, arrays, {"source": "scikit-learn fetch_20newsgroups"})
        except StorageError as error:
            warnings.warn(f"20 Newsgroups will be counted again next time: {error}", stacklevel=3)
        return Bundle(name, "scikit-learn", X, y, is_test)

    read.__name__, read.__doc__ = name.replace("-", "_"), about
    return loader(published, own, title="20 Newsgroups", fetch=fetch)(read)


news20 = _newsgroups(
    "news20",
    """Load the term counts of 20 Newsgroups with the published by-date split: 18846 posts, 7532 held out.

    Read from ``news20_bydate_cai.npz`` (26214 terms) in the data folder, which may be read-only then; else from
    what a former call stored there; else fetched and counted by scikit-learn (no English stop words, terms in
    at least two posts) and stored there.
    """,
    NEWS20_FILE,
    first_label=1,
)
news20_full = _newsgroups(
    "news20-full",
    """Load 20 Newsgroups with every word of the letters a-z that two posts use and that is no stop word.

    Read from ``news20_bydate_fullvocab_derived.npz``, or fetched, as in `news20`.
    """,
    NEWS20_FULL_FILE,
    token_pattern="[a-z]+",
)
