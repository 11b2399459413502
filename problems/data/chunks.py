"""Data that no memory holds: an iterator over chunks of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer

from problems.data.files import read_frame, read_svmlight, read_tables, suffix_of, text_files, texts_of
from problems.data.tables import KINDS, Table, features_of, indicators_of, names_in, roles_of
from rmopt.core.arguments import flag, instance, integer, optional
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading

Chunk = tuple[Any, Any]

# Rows of text that are read at a time; and features, which are numbered by 32 bits.
ROWS, MOST_FEATURES = 4096, 2**31 - 1
# Features to which texts are hashed, unless it is said: 4 MB of a model for each of its rank.
HASHED = 2**18
SVMLIGHT = (".svmlight", ".svm", ".libsvm")
SUFFIXES = (*SVMLIGHT, ".csv", ".tsv", ".npz")


@dataclass(eq=False, repr=False)
class stream:  # noqa: N801
    """Return an iterator over chunks (X, y) of a file or a folder, of which few are in memory at a time.

    The place of a run in a stream is the number of its chunks: `fit_stream` of the estimators goes on from it where a
    run was killed. Labels of files of text are text, as the ``class_names`` of `load`.

    Parameters
    ----------
    path : path
        A file, or a folder with files in alphabetical order: ``.svmlight``, ``.svm`` or ``.libsvm``; ``.csv`` or
        ``.tsv`` with a first line of names, of which one is ``label``, ``class``, ``target`` or ``y`` and one may be
        ``text``; ``.npz`` with X, or its CSR parts X_data, X_indices, X_indptr and X_shape, and y, or indicators Y or
        their parts, which is read whole, so have many of them. Text may be compressed (``.gz``). Or a folder whose
        subfolders hold the texts of a class, which are in memory as a whole.
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
    n_rows: int = field(default=0, init=False)
    feature_names: tuple[str, ...] | None = field(default=None, init=False)
    holds_texts: bool = field(default=False, init=False)
    _n_labels: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.path = Path(instance("path", self.path, (str, os.PathLike), "the path of a file or a folder"))
        optional(integer, 1, MOST_FEATURES)("n_features", self.n_features)
        for name, least in {"batch_size": 1, "n_epochs": 1, "shuffle_buffer": 0}.items():
            integer(name, getattr(self, name), least)
        flag("multilabel", self.multilabel)
        self._seed = seed_of(self.random_state)
        flag("zero_based", self.zero_based)
        self.files = files_of(self.path)
        self._own = self.files

    def __repr__(self) -> str:
        return f"stream({str(self.path)!r}, batch_size={self.batch_size})"

    def __iter__(self) -> Iterator[Chunk]:
        self.n_rows, n_labels = 0, 0
        for epoch in range(self.n_epochs):
            for number, (X, y) in enumerate(self._buffers(epoch)):
                if self.shuffle_buffer:
                    order = generator(self._seed, Stream.ORDER, epoch, 1 + number).permutation(X.shape[0])
                    X, y = X[order], y[order]
                if sp.issparse(y):
                    n_labels = max(n_labels, self._n_labels, int(y.indices.max(initial=-1)) + 1)
                    y = _widened(y, n_labels)
                count = max(1, round(X.shape[0] / self.batch_size))
                for begin, end in pairwise([*range(0, count * self.batch_size, self.batch_size), X.shape[0]]):
                    self.n_rows += end - begin
                    yield X[begin:end], y[begin:end]

    def dealt(self, number: int, count: int) -> stream:
        """Return the stream of one process of several: every so manieth file, beginning with that of its number.

        Raises
        ------
        InvalidInputError
            When there are fewer files than processes.
        """
        number = integer("number", number, 0, integer("count", count, 1) - 1)
        if len(self._own) < count:
            raise InvalidInputError(f"{self.path} has fewer files than {count} processes; start fewer.")
        share = copy(self)
        share._own = self._own[number::count]
        return share

    def _buffers(self, epoch: int) -> Iterator[Chunk]:
        """Yield the buffers of a pass, which are whole chunks, and the last of which is up to half a chunk larger."""
        size = self.batch_size * max(1, round(self.shuffle_buffer / self.batch_size))
        waiting, count = list[Chunk](), 0
        for X, y in self._read(epoch):
            for begin in range(0, X.shape[0], size):
                waiting.append((X[begin : begin + size], y[begin : begin + size]))
                count += waiting[-1][0].shape[0]
                if count >= size + -(-self.batch_size // 2):
                    X_all, y_all = _joined(waiting)
                    yield X_all[:size], y_all[:size]
                    waiting, count = [(X_all[size:], y_all[size:])], count - size
        if count:
            yield _joined(waiting)

    def _read(self, epoch: int) -> Iterator[Chunk]:
        """Yield the rows of the files in the order of a pass."""
        files, known = self._own, None
        if self.shuffle_buffer:
            files = self._shuffled(files, epoch)
        for path in files:
            for table in self._tables(path, epoch):
                if not len(table.frame):
                    continue
                X, y, labels = self._rows(path, table)
                form = sp.issparse(X), X.shape[1], y.dtype.kind, self.feature_names, labels
                if known not in (None, form):
                    what = "other features, or labels of another type or name, than those before it"
                    raise InvalidInputError(f"{path} has {what}; make them alike.")
                known = form
                yield X, y

    def _shuffled(self, files: list[Path], epoch: int) -> list[Path]:
        return [files[n] for n in generator(self._seed, Stream.ORDER, epoch).permutation(len(files))]

    def _tables(self, path: Path, epoch: int) -> Iterator[Table]:
        """Yield what is in a file, of lines some at a time; or the texts of a folder."""
        if path.is_dir():
            with reading(path, InvalidInputError):
                texts, classes, _ = texts_of(self._shuffled(text_files(path)[0], epoch))
            yield read_frame({"text": texts, "label": classes})
        elif suffix_of(path) in SVMLIGHT:
            with reading(path, InvalidInputError):
                yield from read_svmlight(path, ROWS, self.n_features, self.zero_based, self.multilabel)
        else:
            yield from read_tables(path, ROWS)

    def _rows(self, path: Path, table: Table) -> tuple[Any, Any, tuple[str, ...] | None]:
        """Return the features of a table, of texts those of their words, its labels, and their names."""
        if not self.multilabel:
            table.Y = None
        roles = roles_of(table, KINDS[-1], {})
        if roles is None or (len(roles.get("label", [])) != 1) != self.multilabel:
            wanted = "one column of labels, such as y", "several are for rmopt fit ranking (multilabel=True)"
            if self.multilabel:
                wanted = "columns label_… of 0 and 1", "one column of labels is for rmopt fit similarity"
            raise InvalidInputError(f"{path} must have {wanted[0]}, and has {table.listed()}; {wanted[1]}.")
        if held := roles.get("test"):
            raise InvalidInputError(f"{path}: a stream learns all rows; leave out the column {held[0]}.")
        self.holds_texts = "text" in roles
        if self.holds_texts:
            words = HashingVectorizer(n_features=self.n_features or HASHED)
            table.X = words.transform(table.frame[roles.pop("text")[0]])
        X, self.feature_names = features_of(table, roles)
        if self.multilabel:
            Y, labels = indicators_of(table, roles)
            self._n_labels = 0 if suffix_of(path) in SVMLIGHT else Y.shape[1]
            return X, Y, labels
        # Part of the labels may be written as whole numbers, so text stays text.
        [label] = roles["label"]
        known, numbers = names_in(replace(table, typed=True), label)
        values = table.frame[label]
        return X, known[numbers] if values.dtype == object else values.to_numpy(), None


def files_of(path: Path) -> list[Path]:
    """Return the files of a stream in their order, or the folder whose subfolders hold texts."""
    if not path.exists():
        raise StorageError(f"{path} does not exist; check the path.")
    entries = sorted(path.glob("[!.]*")) if path.is_dir() else [path]
    files = [file for file in entries if file.is_file() and suffix_of(file) in SUFFIXES]
    if not files and path.is_dir() and text_files(path)[0]:
        files = [path]
    if not files:
        known = f"{', '.join(SUFFIXES)} (text also with .gz behind it)"
        raise InvalidInputError(f"{path} holds no file that ends in {known}, nor subfolders with texts.")
    return files


def _joined(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    X, y = map(list, zip(*parts, strict=True))
    if sp.issparse(y[0]):
        width = max(block.shape[1] for block in y)
        y = [_widened(block, width) for block in y]
    return _stacked(X), _stacked(y)


def _stacked(blocks: list[Any]) -> Any:
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)


def _widened(rows: sp.csr_array, width: int) -> sp.csr_array:
    """Return rows with another number of columns; those that are left out hold nothing."""
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))
