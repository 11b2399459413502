"""Data larger than memory: an iterator over chunks of files."""

import os
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer

from problems.data.files import (
    MOST_LABELS,
    path_in,
    read_frame,
    read_svmlight,
    read_tables,
    suffix_of,
    text_files,
    texts_of,
)
from problems.data.tables import KINDS, Table, features_of, indicators_of, names_in, parted, roles_of
from rmopt.core.arguments import CheckedValue, bounded, flag, instance, integer, optional
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading

Chunk = tuple[Any, Any]

# Features have 32-bit numbers.
MOST_FEATURES = 2**31 - 1
# The default number of features for hashed texts: 4 MB of a model per unit of rank.
HASHED = 2**18
SVMLIGHT = (".svmlight", ".svm", ".libsvm")
SUFFIXES = (*SVMLIGHT, ".csv", ".tsv", ".npz")


@dataclass(eq=False, repr=False)
class stream(CheckedValue):  # noqa: N801
    """Return an iterator over chunks (X, y) of a file or a folder, with few in memory at a time.

    The place of a run in a stream is the number of its chunks, from which `fit_stream` of the estimators resumes a
    killed run. Labels in text files are text, as the ``class_names`` of `load`.

    Parameters
    ----------
    path : path
        A file, or a folder with files in alphabetical order: ``.svmlight``, ``.svm`` or ``.libsvm``; ``.csv`` or
        ``.tsv`` with a first line of names, one of them ``label``, ``class``, ``target`` or ``y`` and possibly one
        ``text``; ``.npz`` with X, or its CSR parts X_data, X_indices, X_indptr and X_shape, and y, or indicators Y or
        their parts, which is read at once, so use many of them. Text may be compressed (``.gz``). Or a folder whose
        subfolders hold the texts of a class, which must fit into memory. The meaning of columns may follow:
        ``"tickets.csv::text=body,label=kind"``.
    n_features : int, optional
        Needed for svmlight files, which do not contain it. Texts are hashed to this number, by default 262,144.
    batch_size : int
        Rows of a chunk. The last one of a file has half to one and a half times as many.
    n_epochs : int
        Passes over the files.
    random_state : int, RandomState or None
        The source of the order of texts in folders, which differs in each pass, because folders are sorted by class.
        With None it differs each time, and a run over it cannot be resumed. Rows of files keep their order.
    multilabel : bool
        Whether a row has several labels, as in ``0,17,4 index:value …``: numbers of indicator columns, from 0, up to
        the largest so far.
    zero_based : bool
        Whether features of svmlight files count from 0, or from 1.

    Raises
    ------
    InvalidInputError
        For arguments out of range, and unusable files. An error in a line names the file and the line.
    StorageError
        If a file cannot be read.

    See Also
    --------
    load : data that fit into memory.

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
    [50, 50, 50]
    """

    path: Any
    _: KW_ONLY
    n_features: Annotated[int | None, optional(integer, 1, MOST_FEATURES)] = None
    batch_size: Annotated[int, bounded(integer, 1)] = 10_000
    n_epochs: Annotated[int, bounded(integer, 1)] = 1
    random_state: Any = 0
    multilabel: Annotated[bool, flag] = False
    zero_based: Annotated[bool, flag] = True
    n_rows: int = field(default=0, init=False)
    feature_names: tuple[str, ...] | None = field(default=None, init=False)
    holds_texts: bool = field(default=False, init=False)
    said: dict[str, str] = field(default_factory=dict, init=False)
    _found: dict[Path, Any] = field(default_factory=dict, init=False)
    _label_names: tuple[str, ...] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        path = instance("path", self.path, (str, os.PathLike), "the path of a file or a folder")
        self.path = path_in(os.fspath(path), self.said)
        self._seed = seed_of(self.random_state)
        self.files = files_of(self.path)
        if not (self.zero_based or any(suffix_of(path) in SVMLIGHT for path in self.files)):
            raise InvalidInputError(f"{self.path} holds no .svmlight file to count from 1; leave that out.")

    def __repr__(self) -> str:
        return f"stream({str(self.path)!r}, batch_size={self.batch_size})"

    def __iter__(self) -> Iterator[Chunk]:
        self.n_rows, n_labels, known = 0, 0, None
        for epoch in range(self.n_epochs):
            for path in self.files:
                for X, y in _merged(self._read(path, epoch), self.batch_size / 2):
                    form = sp.issparse(X), X.shape[1], y.dtype.kind, self.feature_names, self._label_names
                    if known not in (None, form) or self.n_features not in (None, X.shape[1]):
                        what = "other features than n_features or than before, or labels of another type"
                        raise InvalidInputError(f"{path} has {what}; make them equal.")
                    if self.multilabel:
                        wide = int(y.indices.max(initial=-1)) + 1 if y.shape[1] > MOST_LABELS else y.shape[1]
                        n_labels = max(n_labels, wide)
                        y = sp.csr_array((y.data, y.indices, y.indptr), shape=(y.shape[0], n_labels))
                    known, self.n_rows, self.last = form, self.n_rows + X.shape[0], (X, y)
                    yield X, y

    def _read(self, path: Path, epoch: int) -> Iterator[Chunk]:
        """Yield the rows of a file in parts, or the texts of a folder."""
        with reading(path, InvalidInputError):
            for table in self._tables(path, epoch):
                X, y = self._rows(path, table) if len(table.frame) else (table.X, ())
                for begin in range(0, len(table.frame), self.batch_size):
                    part = slice(begin, begin + self.batch_size)
                    yield X[part], y[part]

    def _tables(self, path: Path, epoch: int) -> Iterator[Table]:
        if suffix_of(path) in SVMLIGHT:
            return read_svmlight(path, self.batch_size, self.n_features, self.zero_based, self.multilabel)
        if not path.is_dir():
            return read_tables(path, self.batch_size)
        files = text_files(path)[0]
        order = generator(self._seed, Stream.ORDER, epoch).permutation(len(files))
        texts, classes, _ = texts_of([files[number] for number in order])
        return iter([read_frame({"text": texts, "label": classes})])

    def _rows(self, path: Path, table: Table) -> Chunk:
        """Return the features of a table, or of the words of its texts, and its labels."""
        if not self.multilabel:
            table.Y = None
        # Later rows of a file have the roles of the first ones.
        table, given = parted(table, self.said | self._found.get(path, {}))
        roles = roles_of(table, KINDS[-1], given)
        if roles is None or (len(roles.get("label", [])) != 1) != self.multilabel:
            wanted = "one column of labels (label=COLUMN)", "for several: rmopt fit ranking (multilabel=True)"
            if self.multilabel:
                wanted = "columns label_… of 0 and 1", "one column of labels is for rmopt fit similarity"
            raise InvalidInputError(f"{path} must have {wanted[0]}, and has {table.listed()}; {wanted[1]}.")
        if held := roles.get("test"):
            raise InvalidInputError(f"{path}: a stream learns all rows; leave out the column {held[0]}.")
        self._found[path], self.holds_texts = dict(roles), "text" in roles
        if self.holds_texts:
            words = HashingVectorizer(n_features=self.n_features or HASHED)
            table.X = words.transform(table.frame[roles.pop("text")[0]])
        X, self.feature_names = features_of(table, roles)
        if self.multilabel:
            Y, self._label_names = indicators_of(table, roles)
            return X, Y
        # Some labels may be written as whole numbers, so text stays text.
        [label] = roles["label"]
        known, numbers = names_in(replace(table, typed=True), label)
        values = table.frame[label]
        return X, known[numbers] if values.dtype == object else values.to_numpy()


def files_of(path: Path) -> list[Path]:
    """Return the files of a stream in order, or the folder whose subfolders hold texts."""
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


def _merged(chunks: Iterator[Chunk], least: float) -> Iterator[Chunk]:
    """Yield chunks, with a short one joined to the previous one."""
    waiting: Chunk | None = None
    for chunk in chunks:
        if waiting is not None and chunk[0].shape[0] < least:
            waiting = _joined(waiting, chunk)
        else:
            if waiting is not None:
                yield waiting
            waiting = chunk
    if waiting is not None:
        yield waiting


def _joined(*chunks: Chunk) -> Chunk:
    X, y = (
        sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)
        for parts in zip(*chunks, strict=True)
    )
    return X, y
