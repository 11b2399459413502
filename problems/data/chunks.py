"""Data that no memory holds: an iterator over chunks of files, which reads ahead."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.data import files as reader
from problems.data.tables import KINDS, MEANT, Table, features_of, indicators_of, names_in, plain, roles_of
from rmopt.core.ambient import Array
from rmopt.core.arguments import flag, instance, integer, optional, shown
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading, save_arrays

Chunk = tuple[Any, Any]

# Rows of text, and whole texts, that are read at a time; and features, which are numbered by 32 bits.
ROWS, TEXTS, MOST_FEATURES = 4096, 256, 2**31 - 1
# Floats tell whole numbers up to this one apart.
EXACT = 2**53
# Features to which texts are hashed, unless it is said: 4 MB of a model for each of its rank.
HASHED = 2**18
SVMLIGHT = (".svmlight", ".svm", ".libsvm")
SUFFIXES = (*SVMLIGHT, ".csv", ".tsv", ".npz", ".parquet")


@dataclass
class Rows:
    """Some rows of a file.

    Attributes
    ----------
    X : array or csr_array, shape (rows, n_features)
    y : array, shape (rows,), or csr_array of indicators
    names, label_names : tuple of str, optional
        Of the features and of the labels, where the file names them.
    n_labels : int
        Of indicators, as the file says; 0 where it says nothing.
    """

    X: Any
    y: Any
    names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    n_labels: int = 0

    def part(self, rows: Any) -> Rows:
        """Return some of the rows."""
        return replace(self, X=self.X[rows], y=self.y[rows])

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def form(self) -> tuple[Any, ...]:
        """Return what must be the same in all files of a stream."""
        kind, text = "sparse" if sp.issparse(self.X) else "dense", self.y.dtype.kind == "U"
        labels = f"labels that are {'text' if text else 'numbers'}"
        return f"{kind} rows of {self.X.shape[1]} features", labels, self.names, self.label_names


@dataclass(eq=False, repr=False)
class stream:  # noqa: N801
    """Return an iterator over chunks (X, y) of a file or a folder, of which few are in memory at a time.

    The next chunks are read by a thread while one is learned. The place of a run in a stream is the number of its
    chunks: `fit_stream` of the estimators goes on from it where a run was killed. Labels are numbers where all are
    whole, and a column called text is one where any of it is no number, as for `load`: files of text are looked
    through for that first.

    Parameters
    ----------
    path : path
        A file, or a folder with files in alphabetical order: ``.svmlight``, ``.svm`` or ``.libsvm``; ``.csv`` or
        ``.tsv`` with a first line of names, of which one is ``label``, ``class``, ``target`` or ``y`` and one may be
        ``text``; ``.npz`` with X, or its CSR parts X_data, X_indices, X_indptr and X_shape, and y, or indicators Y or
        their parts; ``.parquet``. Text may be compressed (``.gz``, ``.bz2``, ``.xz``); the last two are read whole,
        so have many files of them. Or a folder whose subfolders hold the texts of a class.
    n_features : int, optional
        Needed for svmlight files, which do not say it. Texts are hashed to so many, 262,144 unless given.
    batch_size : int
        Rows of a chunk. The last one of a pass has half to one and a half times as many.
    n_epochs : int
        Passes over the files.
    shuffle_buffer : int
        So many rows are in memory at a time and put in random order, and so are the files; 0: rows come as they lie.
        Texts in folders come in random order always, since their folders are sorted by class.
    random_state : int, RandomState or None
        Of the order. With None it is another each time, and a run over it cannot be taken up.
    multilabel : bool
        Whether a row has several labels, as in ``0,17,4 index:value …``: numbers of columns of indicators, from 0, of
        which there are as many as the largest seen so far asks for.
    zero_based : bool
        Whether features of svmlight files count from 0, or from 1.
    vectorizer : object, optional
        A vectorizer of scikit-learn for texts, fitted where it needs to be; a ``HashingVectorizer`` unless given.
    encoding : str
        Of text.
    read_ahead : int
        Chunks that may wait in memory, beside the one that is read and the one that is used.

    Raises
    ------
    InvalidInputError
        For arguments out of range, and files that are of no use; of those that are found while reading, the message
        names the file and the line.
    StorageError
        When a file cannot be read.

    See Also
    --------
    load : data that memory holds.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from problems.data import stream
    >>> from sklearn.datasets import dump_svmlight_file, load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in range(3):
    ...         rows = slice(50 * part, 50 * part + 50)
    ...         dump_svmlight_file(X[rows], y[rows], str(Path(folder) / f"{part}.svmlight"))
    ...     chunks = stream(folder, n_features=4, batch_size=60)
    ...     print([X.shape[0] for X, y in chunks])
    [60, 60, 30]
    """

    path: Any
    _: KW_ONLY
    n_features: int | None = None
    batch_size: int = 10_000
    n_epochs: int = 1
    shuffle_buffer: int = 0
    random_state: Any = 0
    multilabel: bool = False
    zero_based: bool = True
    vectorizer: Any = None
    encoding: str = "utf-8"
    read_ahead: int = 1
    n_rows: int = field(default=0, init=False)
    share: float = field(default=0.0, init=False)
    feature_names: tuple[str, ...] | None = field(default=None, init=False)
    holds_texts: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.path = Path(instance("path", self.path, (str, os.PathLike), "the path of a file or a folder"))
        optional(integer, 1, MOST_FEATURES)("n_features", self.n_features)
        for name, least in {"batch_size": 1, "n_epochs": 1, "shuffle_buffer": 0, "read_ahead": 1}.items():
            integer(name, getattr(self, name), least)
        flag("multilabel", self.multilabel)
        reader.without_mark(
            instance("encoding", self.encoding, str, "the name of an encoding, such as latin-1")
        )
        self._seed = seed_of(self.random_state)
        # A buffer is some whole chunks.
        self._buffer = self.batch_size * max(1, round(self.shuffle_buffer / self.batch_size))
        self._files, self._texts = files_of(self.path)
        self.files, self._named, self._worded = self._files, False, set[str]()
        self._signs: dict[tuple[str, str], set[str]] = {}
        lines = [file for file in self._files if reader.suffix_of(file) in SVMLIGHT]
        if not flag("zero_based", self.zero_based) and not lines:
            raise InvalidInputError(f"zero_based=False (--one-based) is for svmlight files, not {self.path}.")
        if self.vectorizer is None:
            from sklearn.feature_extraction.text import HashingVectorizer

            self.vectorizer = HashingVectorizer(n_features=self.n_features or HASHED)
        elif not hasattr(self.vectorizer, "transform"):
            raise InvalidInputError(f"vectorizer = {shown(self.vectorizer)} must have a method transform.")

    def __repr__(self) -> str:
        return f"stream({str(self.path)!r}, batch_size={self.batch_size})"

    def __iter__(self) -> Iterator[Chunk]:
        self.n_rows, self.share = 0, 0.0
        for rows, share in _ahead(self._chunks(), self.read_ahead):
            self.n_rows += len(rows)
            self.share, self.feature_names = share, rows.names
            if rows.label_names is not None:
                rows.y.columns = rows.label_names  # as a frame has them
            yield rows.X, rows.y

    def dealt(self, number: int, count: int) -> stream:
        """Return the stream of one process of several: every so manieth file, beginning with that of its number.

        Raises
        ------
        InvalidInputError
            When there are fewer files than processes.
        """
        number = integer("number", number, 0, integer("count", count, 1) - 1)
        if len(self._files) < count:
            raise InvalidInputError(
                f"{self.path} has fewer files than the {count} processes; start as many at most."
            )
        share = copy(self)
        share._files = self._files[number::count]
        return share

    def save(self, folder: Path | str) -> None:
        """Write the chunks of one pass as ``.npz`` files into a folder, which are read many times as fast as text.

        Parameters
        ----------
        folder : path
            A new or an empty one.
        """
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise InvalidInputError(f"the folder {folder} is not empty; choose another one.")
        once = copy(self)
        once.n_epochs = 1
        for number, (X, y) in enumerate(once):
            names = {"feature_names": once.feature_names, "label_names": getattr(y, "columns", None)}
            parts = {**_parts("X", X), **_parts("Y" if sp.issparse(y) else "y", y)}
            parts |= {name: np.array(known) for name, known in names.items() if known}
            save_arrays(folder / f"{number:06}.npz", parts, {})

    @property
    def depth(self) -> int:
        """How many folders deep files are: 2 where subfolders are the classes of texts."""
        return 1 + self._texts

    def _chunks(self) -> Iterator[tuple[Rows, float]]:
        """Yield all chunks, and the share of all passes that is read with each."""
        n_labels = 0
        self._look_through()
        for epoch in range(self.n_epochs):
            for number, (rows, share) in enumerate(self._buffers(epoch)):
                if self.shuffle_buffer:
                    rng = generator(self._seed, Stream.ORDER, epoch, 1 + number)
                    rows = rows.part(rng.permutation(len(rows)))
                if sp.issparse(rows.y):
                    n_labels = max(n_labels, rows.n_labels, int(rows.y.indices.max(initial=-1)) + 1)
                    rows.y = _widened(rows.y, n_labels)
                count = max(1, round(len(rows) / self.batch_size))
                ends = [*range(self.batch_size, count * self.batch_size, self.batch_size), len(rows)]
                for begin, end in zip([0, *ends], ends, strict=False):
                    chunk = rows.part(slice(begin, end)) if count > 1 else rows
                    yield chunk, (epoch + share) / self.n_epochs

    def _look_through(self) -> None:
        """Find out whether labels, and which columns that are called text, hold text anywhere in the files of text.

        So a piece means what it would mean among all rows. Processes that share the files agree on it.
        """
        self._named, self._worded, self._signs = False, set(), {}
        for path in () if self._texts else self.files:
            if reader.suffix_of(path) not in (".csv", ".tsv"):
                continue
            with reading(path, InvalidInputError):
                for table in self._tables([path]):
                    roles = roles_of(table, KINDS[-1], {}) or {} if len(table.frame) else {}
                    self._worded.update(roles.get("text", []))
                    if not self._named and len(names := roles.get("label", [])) == 1:
                        self._named = names_in(table, names[0])[0].dtype.kind != "i"
                    if (self._named or self.multilabel) and set(_called_text(table)) <= self._worded:
                        break

    def _buffers(self, epoch: int) -> Iterator[tuple[Rows, float]]:
        """Yield the buffers of a pass, the last of which is up to half a chunk larger; and the share of the pass."""
        waiting: list[Rows] = []
        count, known, kinds = 0, None, set[str]()
        for file, rows, share in self._read(epoch):
            kinds.add(rows.y.dtype.kind)
            kinds |= {"large"} if rows.y.dtype.kind in "iu" and (np.abs(rows.y) > EXACT).any() else set()
            if {"f", "large"} <= kinds:
                raise InvalidInputError(
                    f"{file} and files before it hold labels with decimals and whole numbers beyond {EXACT:,}, which "
                    "would become one with others; write them as text."
                )
            known = known or rows.form()
            if differ := [pair for pair in zip(rows.form(), known, strict=True) if pair[0] != pair[1]]:
                found, before = map(str, differ[0])
                raise InvalidInputError(
                    f"{file} holds {found}, and rows before it {before}; make them alike."
                )
            for begin in range(0, len(rows), self._buffer):
                waiting.append(rows.part(slice(begin, begin + self._buffer)))
                count += len(waiting[-1])
                while count >= self._buffer + -(-self.batch_size // 2):
                    whole = _joined(waiting)
                    yield whole.part(slice(self._buffer)), share
                    waiting, count = [whole.part(slice(self._buffer, None))], count - self._buffer
        if count:
            yield _joined(waiting), 1.0

    def _read(self, epoch: int) -> Iterator[tuple[Path, Rows, float]]:
        """Yield the rows of the files in the order of a pass, with their file and the share that is read then."""
        files = self._files
        if self.shuffle_buffer or self._texts:
            order = generator(self._seed, Stream.ORDER, epoch).permutation(len(files))
            files = [files[number] for number in order]
        parts = [files[first : first + TEXTS] for first in range(0, len(files), TEXTS if self._texts else 1)]
        ends = np.cumsum([sum(file.stat().st_size for file in part) for part in parts], dtype=float)
        for part, end in zip(parts, ends / max(ends[-1], 1.0), strict=True):
            empty = True
            with reading(part[0], InvalidInputError):
                for table in self._tables(part):
                    if not len(table.frame):
                        continue
                    rows, empty = self._rows(part[0], table), False
                    if not self._texts and self.n_features not in (None, rows.X.shape[1]):
                        raise InvalidInputError(
                            f"{part[0]} has {rows.X.shape[1]} features, and n_features = {self.n_features}; all "
                            "files of a stream must have as many."
                        )
                    yield part[0], rows, float(end)
            if empty:
                raise InvalidInputError(f"{part[0]} holds no rows; remove it.")

    def _tables(self, part: list[Path]) -> Iterator[Table]:
        """Yield what is in a file, of lines and columns of text in parts; or the texts of some files."""
        path, suffix = part[0], reader.suffix_of(part[0])
        if self._texts:
            columns = {
                "text": reader.read_all(part, self.encoding),
                "label": [file.parent.name for file in part],
            }
            yield reader.read_frame(columns)
        elif suffix in SVMLIGHT:
            with reader.opened(path) as lines:
                yield from reader.svmlight_tables(
                    path, lines, ROWS, self.n_features, self.zero_based, self.multilabel
                )
        elif suffix in (".csv", ".tsv"):
            names: list[str] = []
            for frame, separator in reader.text_frames(path, self.encoding, ROWS):
                if not names:
                    names, frame = [str(name).strip() for name in frame.iloc[0]], frame.iloc[1:]
                    if names[0] in ("", "Unnamed: 0"):
                        raise InvalidInputError(
                            f"the first column of {path} has no name, and a stream does not see all rows at once to "
                            "tell whether it only numbers them; name it, or leave it out."
                        )
                frame.index = frame.index - 1
                yield reader.named(Table(path.name, str(path), frame, semicolons=separator == ";"), names)
        else:
            yield reader.read_file(path)

    def _rows(self, path: Path, table: Table) -> Rows:
        """Return the features and labels of a table, of texts those of their words."""
        texts = [name for name in _called_text(table) if name in self._worded]
        if len(texts) > 1:
            raise InvalidInputError(f"{path} has several columns of texts: {', '.join(texts)}; leave one.")
        given = {"text": texts} if texts else {}
        roles = roles_of(replace(table, Y=table.Y if self.multilabel else None), KINDS[-1], given)
        if roles is None or (len(roles.get("label", [])) != 1) != self.multilabel:
            one = (
                "several columns of 0 and 1, or Y,"
                if self.multilabel
                else "one column of labels, such as label or y,"
            )
            raise InvalidInputError(
                f"{path} must have {one} and has {table.listed()}; multilabel=True is for several."
            )
        if "test" in roles:
            raise table.wrong(
                roles["test"][0], "may say what is held out, and a stream learns all; leave it out"
            )
        self.holds_texts = self._texts or "text" in roles
        if "text" in roles:
            table.X = sp.csr_array(
                self.vectorizer.transform(table.words(roles.pop("text")[0])), dtype=np.float64
            )
        X, names = features_of(table, roles)
        if table.semicolons and "text" not in roles:
            self._check_signs(table, names or ())
        if self.multilabel:
            Y, labels = indicators_of(table, roles)
            if (Y.data != 1).any():
                raise InvalidInputError(f"Y in {path} must hold ones and zeros; repair it.")
            return Rows(X, Y, names, labels, Y.shape[1] * (reader.suffix_of(path) not in SVMLIGHT))
        known, numbers = names_in(replace(table, typed=table.typed or self._named), roles["label"][0])
        if known.dtype.kind == "u":  # which numpy joins with other whole numbers to floats
            known = known.astype(np.int64 if known.max() < 2**63 else str)
        return Rows(X, known[numbers], names)

    def _check_signs(self, table: Table, names: tuple[str, ...]) -> None:
        """Refuse a column that has decimal commas in some rows and points, which may be of thousands, in others."""
        for name in names:
            signs = self._signs.setdefault((table.source, name), set())
            signs.update({",", "."}.intersection("".join(table.words(name))))
            if len(signs) > 1:
                raise table.wrong(name, "has commas in some rows and points in others; write all alike")


def files_of(path: Path) -> tuple[list[Path], bool]:
    """Return the files of a stream in their order, and whether they are texts in folders by class."""
    known = f"{', '.join(SUFFIXES)} (text also with {', '.join(reader.OPENERS)} behind it)"
    if not path.exists():
        raise StorageError(f"{path} does not exist; check the path.")
    files = [path]
    if path.is_dir():
        seen = sorted(path.glob("[!.]*"))
        files = [file for file in seen if file.is_file() and reader.suffix_of(file) in SUFFIXES]
        texts, left = ([], []) if files else reader.text_files(path)
        if not files and not texts:
            raise InvalidInputError(
                f"{path} has neither files that end in {known}, nor subfolders with the texts of a class."
            )
        left = left if texts else [f"{one.name}{'/' * one.is_dir()}" for one in seen if one not in files]
        if left:
            warnings.warn(
                f"not read from {path}: {', '.join(left[:5])}{f' and {len(left) - 5} more' * (len(left) > 5)}. A "
                f"stream reads the files of its folder that end in {', '.join(SUFFIXES)}, or, where there is none, "
                "texts in subfolders.",
                UserWarning,
                stacklevel=3,
            )
        if texts:
            return texts, True
    elif reader.suffix_of(path) not in SUFFIXES:
        raise InvalidInputError(f"{path} is none of {known}; rename or convert it.")
    return files, False


def _parts(name: str, rows: Any) -> dict[str, Array]:
    """Return the arrays of a table by the names under which they are read again."""
    if not sp.issparse(rows):
        return {name: rows}
    return {
        f"{name}_data": rows.data, f"{name}_indices": rows.indices, f"{name}_indptr": rows.indptr,
        f"{name}_shape": np.array(rows.shape),
    }  # fmt: skip


def _called_text(table: Table) -> list[str]:
    """Return the columns that would be texts if they held any."""
    return [name for name in table.frame if MEANT.get(plain(name)) == "text"]


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    stacked: list[Any] = []
    for blocks in ([part.X for part in parts], [part.y for part in parts]):
        if sp.issparse(blocks[0]):
            width = max(block.shape[1] for block in blocks)
            stacked.append(sp.vstack([_widened(block, width) for block in blocks], format="csr"))
        else:
            stacked.append(np.concatenate(blocks))
    return replace(parts[0], X=stacked[0], y=stacked[1], n_labels=max(part.n_labels for part in parts))


def _widened(rows: sp.csr_array, width: int) -> sp.csr_array:
    """Return rows with another number of columns; those that are left out hold nothing."""
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))


def _ahead(found: Generator[Any, None, None] | Iterator[Any], count: int) -> Iterator[Any]:
    """Yield what a generator gives, which runs in a thread, ahead by so many at the most."""
    with closing(found), ThreadPoolExecutor(1, "read ahead") as pool:  # type: ignore[type-var]
        waiting = deque(pool.submit(next, found, None) for _ in range(count + 1))
        try:
            while (one := waiting.popleft().result()) is not None:
                waiting.append(pool.submit(next, found, None))
                yield one
                del one
        finally:
            for other in waiting:
                other.cancel()
