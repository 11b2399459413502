"""Files that are read in pieces, a few megabytes at a time, each from any place on that an earlier piece ended at."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
import zipfile
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from problems.data.files import decoded
from problems.data.tables import KNOWN, MISSING
from rmopt.core.ambient import Array
from rmopt.core.arguments import shown
from rmopt.core.matrices import sound
from rmopt.errors import InvalidInputError
from rmopt.files import reading

# Bytes of text, rows of arrays and texts in a piece; and features, which are numbered by 32 bits.
PIECE, ROWS, TEXTS, MOST_FEATURES = 2**22, 4096, 256, 2**31 - 1
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@dataclass(frozen=True)
class Format:
    """What must be said of files before they are read.

    Attributes
    ----------
    n_features : int or None
    zero_based : bool
        Whether features of svmlight files are counted from 0.
    multilabel : bool
        Whether labels are numbers of columns of indicators, several for each row.
    vectorizer : object or None
        Of texts.
    encoding : str
        Of texts.
    """

    n_features: int | None = None
    zero_based: bool = True
    multilabel: bool = False
    vectorizer: Any = None
    encoding: str = "utf-8"

    def check_width(self, path: Path, n_features: int) -> None:
        """Refuse a file with another number of features than was said."""
        if self.n_features not in (None, n_features):
            raise InvalidInputError(
                f"{path} has {n_features} features, and n_features = {self.n_features}; all files of a stream must "
                "have as many."
            )


@dataclass
class Piece:
    """Some rows, and where they begin.

    Attributes
    ----------
    X : array or csr_array, shape (rows, n_features)
    y : array, shape (rows,), or csr_array of indicators
    mark : list of int
        From where the reader gives this piece again.
    share : float
        How much of the file was read with it.
    n_labels : int
        Of indicators, as the file says; 0 where it says nothing.
    names, label_names : tuple of str, optional
        Of the features and of the labels, where the file names them.
    """

    X: Any
    y: Any
    mark: list[int] = field(default_factory=list)
    share: float = 1.0
    n_labels: int = 0
    names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None

    def part(self, rows: Any) -> Piece:
        """Return some of the rows."""
        return replace(self, X=self.X[rows], y=self.y[rows])

    def __len__(self) -> int:
        return int(self.X.shape[0])


Pieces = Generator[Piece, None, None]


def svmlight_pieces(path: Path, how: Format, mark: list[int]) -> Pieces:
    """Read lines ``label index:value …``, also compressed; a mark is a place in the text, and its line."""
    if how.n_features is None:
        raise InvalidInputError(
            f"{path} does not say how many features there are; say n_features (--n-features), for example 1048576."
        )
    place, line = mark or [0, 0]
    size = path.stat().st_size
    with reading(path, InvalidInputError), OPENERS.get(path.suffix.lower(), open)(path, "rb") as stream:
        stream.seek(place)
        rest = b""
        while True:
            more = stream.read(PIECE)
            text = rest + (more or b"\n" * bool(rest))
            whole = text.rfind(b"\n") + 1
            if whole:
                X, labels, starts = parsed_lines(path, text[:whole], line, how)
                X.sum_duplicates()
                y = indicators_of(path, labels, starts) if how.multilabel else _whole(labels)
                odd = np.flatnonzero(np.diff(starts) != 1)
                if odd.size and not how.multilabel:
                    lines = enumerate(text[:whole].split(b"\n"), line + 1)
                    full = [number for number, one in lines if one.split(b"#")[0].strip()]
                    raise InvalidInputError(
                        f"line {full[odd[0]]} of {path} has {np.diff(starts)[odd[0]]} labels; where rows have "
                        "several, say multilabel=True (rmopt fit ranking)."
                    )
                if X.shape[0]:
                    # What a compressed file has behind it is not known; its bytes are told by the file below.
                    below = getattr(stream, "fileobj", None) or getattr(stream, "_fp", stream)
                    yield Piece(X, y, [place, line], min(1.0, below.tell() / max(size, 1)))
                place, line = place + whole, line + text.count(b"\n", 0, whole)
            if not more:
                return
            rest = text[whole:]


def parsed_lines(path: Path, text: bytes, line: int, how: Format) -> tuple[csr_array, Array, Array]:
    """Return the rows of whole lines of svmlight, all their labels, and where those of each row begin.

    The features of a row are in the order of its line, and one that came twice is there twice.
    """
    # numba takes longer to import than a list of the data sets.
    from problems.data import kernels

    assert how.n_features is not None
    letters = np.frombuffer(text, np.uint8)
    # Upper bounds for the numbers of lines, of stored values, and of labels beside the first of a line.
    n_lines, n_values, n_more = (np.count_nonzero(letters == ord(sign)) for sign in "\n:,")
    n_labels = n_lines + n_more
    labels, label_starts = np.empty(n_labels), np.empty(n_lines + 1, np.int64)
    indices, values = np.empty(n_values, np.int32), np.empty(n_values)
    starts, hard = np.empty(n_lines + 1, np.int64), np.empty((n_values + n_labels, 3), np.int64)
    rows, n_hard, why, at = kernels.parse(
        letters, 1 - how.zero_based, how.n_features, labels, label_starts, indices, values, starts, hard
    )
    for begin, end, place in hard[:n_hard].tolist():
        try:
            value = _number(text[begin:end], place < 0)
        except ValueError:
            why, at = (kernels.BAD_VALUE if place >= 0 else kernels.BAD_LABEL), min(at, begin)
            break
        if place >= 0:
            values[place] = value
        else:
            labels[-1 - place] = value
    if why != kernels.DONE:
        begin = max(text.rfind(letter, 0, at) for letter in (b" ", b"\t", b"\n")) + 1
        word = (text[begin : begin + 80].split() or [b""])[0].decode(errors="replace")
        number = line + text.count(b"\n", 0, at) + 1
        raise InvalidInputError(f"line {number} of {path} {_flaw(why, word, how)}")
    used = int(starts[rows])
    X = csr_array(
        (values[:used], indices[:used], starts[: rows + 1].astype(np.int32)), shape=(rows, how.n_features)
    )
    bad = np.flatnonzero(~np.isfinite(values[:used]))
    if bad.size:
        raise InvalidInputError(
            f"{path} holds {values[bad[0]]} in a row soon after line {line + 1}; remove or impute such values."
        )
    return X, labels[: int(label_starts[rows])], label_starts[: rows + 1]


def _number(word: bytes, label: bool) -> float:
    """Return a number as Python has it; a ValueError where it is none, or a label that is not one of its own."""
    value = float(word)
    # Python takes 1_0 for 10.
    if b"_" in word or (label and not np.isfinite(value)):
        raise ValueError("no number")
    if label and word.lstrip(b"+-").isdigit() and int(word) != value:
        raise ValueError("two labels would be one number")
    return value


def _whole(labels: Array) -> Array:
    """Return labels as whole numbers, where they are."""
    whole = (labels == np.round(labels)).all() and (abs(labels) < 2**53).all()
    return labels.astype(np.int64) if whole else labels


def _flaw(why: int, word: str, how: Format) -> str:
    """Return what is wrong with a line, and what to do."""
    from problems.data import kernels

    repair = f"{shown(word)}; repair or remove the line."
    other = ", or zero_based=False (--one-based) where they count from 1" if how.zero_based else ""
    larger = (
        f"say a larger n_features{other}" if how.n_features != MOST_FEATURES else "repair or remove the line"
    )
    return {
        kernels.BAD_LABEL: f"has no number for a label, or one beyond 2⁵³: {repair}",
        kernels.BAD_INDEX: f"has no index:value where one should be: {repair}",
        kernels.BAD_VALUE: f"has no number behind an index: {repair}",
        kernels.BELOW: f"has a feature 0: {shown(word)}; where features count from 0 say zero_based=True (no "
        "--one-based).",
        kernels.ABOVE: f"has a feature beyond n_features = {how.n_features}: {shown(word)}; {larger}.",
    }[why]


def indicators_of(path: Path, labels: Array, starts: Array) -> csr_array:
    """Return indicators of labels that are numbers of columns; as many columns as the largest asks for."""
    columns = labels.astype(np.int64)
    if labels.size and ((columns != labels).any() or columns.min() < 0 or columns.max() >= 2**31 - 1):
        odd = labels[(columns != labels) | (columns < 0)][:1]
        raise InvalidInputError(
            f"{path} has the label {', '.join(map('{:g}'.format, odd)) or columns.max()}; with multilabel=True they "
            "are numbers of columns, from 0 to 2147483646, as for rmopt fit ranking."
        )
    width = int(columns.max(initial=-1)) + 1
    found = csr_array(
        (np.ones(len(columns)), columns.astype(np.int32), starts.astype(np.int32)),
        shape=(len(starts) - 1, width),
    )
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


class _Member:
    """An array in an archive, of which rows are read one after another."""

    def __init__(self, archive: zipfile.ZipFile, opened: ExitStack, name: str) -> None:
        # With one file for all, Python before 3.12.9 and 3.13.2 seeks from where another member was read.
        own = opened.enter_context(zipfile.ZipFile(str(archive.filename)))
        self.stream = opened.enter_context(own.open(f"{name}.npy"))
        version = np.lib.format.read_magic(self.stream)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        self.shape, fortran, self.dtype = header(self.stream)
        if self.dtype.kind not in "biufU":
            raise InvalidInputError(
                f"{name} of {archive.filename} holds {self.dtype}; write numbers, or text by {name}.astype(str)."
            )
        if fortran and len(self.shape) > 1:
            raise InvalidInputError(
                f"{name} of {archive.filename} is stored by columns; write np.ascontiguousarray({name})."
            )
        self.start, self.at, self.name = self.stream.tell(), 0, name
        self.width = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    def read(self, first: int, count: int) -> Array:
        """Return rows of the array; going on behind the last ones takes no search."""
        if first != self.at:
            self.stream.seek(self.start + first * self.width)
        data = self.stream.read(count * self.width)
        if len(data) != count * self.width:
            raise ValueError(f"{self.name} ends before its row {first + count}")
        self.at = first + count
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])


class _SparseMember:
    """A CSR array in an archive, of which rows are read one after another."""

    def __init__(self, archive: zipfile.ZipFile, opened: ExitStack, names: set[str], prefix: str) -> None:
        self.indptr, self.indices, shape = (
            _Member(archive, opened, f"{prefix}_{part}") for part in ("indptr", "indices", "shape")
        )
        # Indicators are ones.
        data = f"{prefix}_data"
        self.data = _Member(archive, opened, data) if data in names else None
        self.shape, self.prefix = tuple(shape.read(0, 2).tolist()), prefix
        self.path = archive.filename
        # Where the next row begins, which was read with the one before.
        self.known: tuple[int, Array] | None = None

    def read(self, first: int, count: int) -> csr_array:
        """Return rows as a CSR array."""
        if self.known is None or self.known[0] != first:
            self.known = first, self.indptr.read(first, 1)
        starts = np.concatenate([self.known[1], self.indptr.read(first + 1, count)]).astype(np.int64)
        self.known = first + count, starts[-1:]
        begin, used = int(starts[0]), int(starts[-1] - starts[0])
        if begin < 0 or used < 0:
            raise ValueError(f"{self.prefix}_indptr falls")
        indices = self.indices.read(begin, used)
        if indices.dtype.kind not in "iu":
            raise ValueError(f"{self.prefix}_indices must be whole numbers")
        if not used or (indices.min() >= -(2**31) and indices.max() < 2**31):
            # Larger ones would come back as others.
            indices = indices.astype(np.int32)
        data = np.ones(used) if self.data is None else self.data.read(begin, used).astype(np.float64)
        return sound(
            f"{self.prefix} of {self.path}",
            csr_array((data, indices, (starts - begin).astype(np.int32)), shape=(count, self.shape[1])),
        )


def npz_pieces(path: Path, how: Format, mark: list[int]) -> Pieces:
    """Read rows of X (or its CSR parts) with y, or with indicators Y; a mark is the number of a row."""
    with reading(path, InvalidInputError), zipfile.ZipFile(path) as archive, ExitStack() as opened:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        X, Y = (_part(archive, opened, names, one) for one in "XY")
        candidates = [
            name for name in sorted(names) if name.lower() in KNOWN["label"].split() and name != "Y"
        ]
        if len(candidates) > 1 and not how.multilabel:
            raise InvalidInputError(
                f"{path} holds several arrays that may be the labels: {', '.join(candidates)}; keep one, or rename "
                "the others."
            )
        label = next(iter(candidates), None)
        if how.multilabel and Y is None:
            raise InvalidInputError(
                f"{path} has no indicators Y, nor Y_indices, Y_indptr and Y_shape; write them."
            )
        y = Y if how.multilabel else None if label is None else _Member(archive, opened, label)
        if X is None or y is None:
            missing = "X, nor X_data, X_indices, X_indptr and X_shape" if X is None else "y"
            raise InvalidInputError(f"{path} has no {missing}; write it with np.savez.")
        n = X.shape[0]
        if y.shape[0] != n:
            raise InvalidInputError(
                f"X of {path} has {n} rows, and the labels {y.shape[0]}; write one for each row."
            )
        for what, part, sides in (("X", X, 2), ("Y", y, 2) if how.multilabel else (label, y, 1)):
            if len(part.shape) != sides:
                raise InvalidInputError(
                    f"{what} of {path} has shape {part.shape}, and must have {sides} side{'s' * (sides > 1)}; write "
                    "y with one label for each row, or indicators as Y with multilabel=True."
                )
            if sides == 2 and isinstance(part, _Member) and part.dtype.kind == "U":
                raise InvalidInputError(f"{what} of {path} holds text; write numbers.")
        known = ("feature_names", X.shape[1]), ("label_names" if how.multilabel else "", y.shape[-1])
        called = [_names(archive, opened, *one) if one[0] in names else None for one in known]
        first = mark[0] if mark else 0
        while first < n:
            count = min(ROWS, n - first)
            rows = X.read(first, count)
            how.check_width(path, rows.shape[1])
            values = rows.data if issparse(rows) else rows
            if not np.isfinite(values).all():
                bad = np.flatnonzero(~np.isfinite(np.asarray(rows.sum(axis=1))))
                raise InvalidInputError(
                    f"row {first + int(bad[0]) + 1} of X in {path} holds NaN or infinity; remove or impute such "
                    "values."
                )
            labels = y.read(first, count)
            if how.multilabel:
                labels = csr_array(labels)
                labels.sum_duplicates()
                labels.eliminate_zeros()
                others = labels.data[labels.data != 1]
                if others.size:
                    raise InvalidInputError(
                        f"Y in {path} must hold ones and zeros, and {others[0]} is among them; repair it."
                    )
            width = y.shape[1] if how.multilabel else 0
            yield Piece(rows, labels, [first], (first + count) / n, width, *called)
            first += count


def _names(archive: zipfile.ZipFile, opened: ExitStack, name: str, count: int) -> tuple[str, ...]:
    member = _Member(archive, opened, name)
    if member.shape != (count,):
        raise InvalidInputError(f"{name} of {archive.filename} must be {count}, a name for each column.")
    return tuple(map(str, member.read(0, count).tolist()))


def _part(archive: zipfile.ZipFile, opened: ExitStack, names: set[str], name: str) -> Any:
    if name in names:
        return _Member(archive, opened, name)
    return _SparseMember(archive, opened, names, name) if f"{name}_indptr" in names else None


def csv_pieces(path: Path, how: Format, mark: list[int]) -> Pieces:
    """Read numbers with commas between, below a line of names of which one is that of the label."""
    with reading(path, InvalidInputError), path.open("rb") as stream:
        [head] = _texts(path, [stream.readline()], how)
        names = [name.strip() for name in cells_of(path, 1, head)]
        _check_names(path, names, how)
        known = [name for name in names if name.lower() in KNOWN["label"].split()]
        if len(known) != 1:
            raise InvalidInputError(
                f"the first line of {path} must name one column of labels, such as label; it names "
                f"{', '.join(names[:8])}."
            )
        column = names.index(known[0])
        features = tuple(names[:column] + names[column + 1 :])
        how.check_width(path, len(features))
        place, line = mark or [stream.tell(), 1]
        stream.seek(place)
        while lines := stream.readlines(PIECE):
            rows, labels, numbers = [], [], []
            for number, text in enumerate(_texts(path, lines, how), line + 1):
                cells = cells_of(path, number, text)
                if len(cells) == len(names):
                    label = cells.pop(column).strip()
                    try:
                        values = [float(cell) for cell in cells]
                        if label.lower() in MISSING:
                            why = f"has no label ({label!r})"
                        elif "_" in text and "_" in text.replace(label, "", 1):
                            why = "holds a number such as 1_000"
                        else:
                            labels.append(label)
                            rows.append(values)
                            numbers.append(number)
                            continue
                    except ValueError as error:
                        why = f"does not hold numbers ({error})"
                elif text:
                    why = f"has {len(cells)} fields between commas, and the first line {len(names)}"
                else:
                    continue
                raise InvalidInputError(f"line {number} of {path} {why}; repair or remove it.")
            if rows:
                X = np.array(rows)
                bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
                if bad.size:
                    raise InvalidInputError(
                        f"line {numbers[bad[0]]} of {path} holds NaN or infinity; remove or impute such values."
                    )
                share = min(1.0, stream.tell() / path.stat().st_size)
                yield Piece(X, named(labels), [place, line], share, names=features)
            place, line = place + sum(map(len, lines)), line + len(lines)


def cells_of(path: Path, number: int, text: str) -> list[str]:
    """Return what stands between the commas of a line."""
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise InvalidInputError(
            f"line {number} of {path} is not text in columns ({error}); a field that begins with a quote ends with "
            "one on the same line, and holds others twice."
        ) from None


def _check_names(path: Path, names: list[str], how: Format) -> None:
    """Refuse a line of names under which a table would be another one than that which is meant."""
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    bare = any(not name or re.fullmatch(r"Unnamed: \d+", name) for name in names)
    split = next((name for name in names if name.lower() in KNOWN["test"].split()), None)
    if how.multilabel:
        why = "cannot hold rows with several labels; write them as .svmlight or .npz"
    elif twice is not None and twice:
        why = f"has two columns called {twice!r}; rename one"
    elif bare:
        why = "has a column without a name, as an index of pandas; leave it out (index=False), or name it"
    elif split is not None:
        why = f"has the column {split}, which may say what is held out, and a stream learns all rows; leave it out"
    elif len(names) < 2:
        why = "has no columns of features; fields are separated by commas in streams"
    else:
        return
    raise InvalidInputError(f"{path} {why}.")


def named(words: list[str]) -> Array:
    """Return names of classes: whole numbers where all are, as 7 or 7.0, and text else, such as 007 and 1.5."""
    words = [re.sub(r"^(0|-?[1-9]\d{0,17})\.0*$", r"\1", word) for word in words]
    whole = all(re.fullmatch(r"0|-?[1-9]\d{0,17}", word) for word in words)
    return np.array(words, dtype=np.int64 if whole else None)


def mtx_pieces(path: Path, how: Format, mark: list[int]) -> Pieces:
    """Read the rows of a matrix in coordinate format, entries row by row; NAME.labels has a line for each row.

    A mark is a place in the text, the row and the number of the entry there, and the place of the row's labels.
    scipy's reader takes no part of a file, and can end the process where one is damaged.
    """
    [beside] = beside_it(path)
    opened = OPENERS.get(path.suffix.lower(), open)
    with (
        reading(beside, InvalidInputError),
        beside.open("rb") as labels,
        reading(path, InvalidInputError),
        opened(path, "rb") as stream,
    ):
        yield from _mtx_rows(path, how, mark, stream, beside, labels)


def beside_it(path: Path) -> list[Path]:
    """Return the files that are read with another one: those of the labels of ``.mtx`` files."""
    name = path.stem if path.suffix.lower() in OPENERS else path.name
    return [path.with_name(f"{Path(name).stem}.labels")] if name.lower().endswith(".mtx") else []


def _mtx_rows(path: Path, how: Format, mark: list[int], stream: Any, beside: Path, labels: Any) -> Pieces:
    head, sizes = stream.readline().lower().split(), b"%"
    if head[:3] != [b"%%matrixmarket", b"matrix", b"coordinate"] or head[4:] != [b"general"]:
        raise InvalidInputError(
            f"{path} must begin with %%MatrixMarket matrix coordinate, and end that line with general; write it by "
            "scipy.io.mmwrite(path, csr_array(X), symmetry='general')."
        )
    while sizes.startswith(b"%") or sizes.isspace():
        sizes = stream.readline()
    n_rows, n_features, count = map(int, sizes.split())
    how.check_width(path, n_features)
    width = 2 if b"pattern" in head else 3
    place, first, number, labels_at = mark or [stream.tell(), 0, 0, 0]
    stream.seek(place)
    labels.seek(labels_at)
    rest: list[bytes] = []
    while first < n_rows:
        more = stream.readlines(PIECE)
        lines = rest + more
        # Empty lines are no entries.
        filled = [number for number, line in enumerate(lines) if not line.isspace()]
        known = _numbers(lines, len(filled), width)
        if known.shape != (len(filled), width):
            raise ValueError(f"its entries must be {width} numbers")
        places = known[:, :2]
        bad = ~((places >= 1) & (places <= (n_rows, n_features)) & (places == np.floor(places))).all(axis=1)
        if bad.any():
            raise InvalidInputError(
                f"the entry {lines[filled[int(np.argmax(bad))]].decode(errors='replace').strip()} of {path} is not "
                f"within its {n_rows} rows and {n_features} columns, counted from 1; repair or remove it."
            )
        row, column = places.T.astype(np.int64) - 1
        values = np.ones(len(row)) if width == 2 else known[:, 2]
        if not np.isfinite(values).all():
            raise InvalidInputError(
                f"{path} holds {values[~np.isfinite(values)][0]}; remove or impute such values."
            )
        falls = np.flatnonzero(np.diff(row, prepend=first) < 0)
        if falls.size:
            raise InvalidInputError(
                f"the entries of {path} are not sorted by rows: one of row {row[falls[0]] + 1} comes late. Write "
                "them by rows, as scipy.io.mmwrite(path, csr_array(scipy.io.mmread(path))) does."
            )
        # The last row may go on in the next piece.
        end = int(row[-1]) if more and len(row) else first if more else n_rows
        whole = int(np.searchsorted(row, end))
        if not more and number + len(row) != count:
            raise InvalidInputError(
                f"{path} has {number + len(row)} entries, and says that they are {count}; write it again."
            )
        if end > first:
            starts = np.searchsorted(row[:whole], np.arange(first, end + 1)).astype(np.int32)
            parts = values[:whole], column[:whole].astype(np.int32), starts
            X = csr_array(parts, shape=(end - first, n_features))
            X.sum_duplicates()
            y = _labels_beside(path, beside, labels, first, end, how)
            yield Piece(X, y, [place, first, number, labels_at], end / n_rows)
        at = filled[whole] if whole < len(filled) else len(lines)
        place, first, number = place + sum(map(len, lines[:at])), end, number + whole
        rest, labels_at = lines[at:], labels.tell()
    if any(line.strip() for line in labels):
        raise InvalidInputError(
            f"{beside} has more lines than {path} has rows, {n_rows}; make it a line for each row."
        )


def _numbers(lines: list[bytes], count: int, width: int) -> Array:
    """Return the numbers of so many lines that are not empty; what the parser cannot read numpy reads, or refuses."""
    from problems.data import kernels

    text = b"".join(lines)
    found = np.empty((count, width))
    if not kernels.table(np.frombuffer(text if text.endswith(b"\n") else text + b"\n", np.uint8), found):
        found = np.loadtxt(lines, ndmin=2, comments=None)
    return found


def _labels_beside(path: Path, beside: Path, labels: Any, first: int, end: int, how: Format) -> Any:
    """Return the labels of some rows, a line for each."""
    lines = _texts(beside, islice(labels, end - first), how)
    short = len(lines) < end - first
    if short or ("" in lines and not how.multilabel):
        at = first + (len(lines) if short else lines.index("")) + 1
        raise InvalidInputError(f"{beside} has no label for row {at} of {path}; make it a line for each row.")
    if not how.multilabel:
        return named(lines)
    found = [line.split(",") if line else [] for line in lines]
    starts = np.cumsum([0, *map(len, found)])
    return indicators_of(beside, np.array([float(one) for row in found for one in row]), starts)


def _texts(path: Path, lines: Iterable[bytes], how: Format) -> list[str]:
    with decoded(path, how.encoding):
        # Some programs begin a file of UTF-8 with a mark.
        return [line.decode(how.encoding).removeprefix("\ufeff").strip() for line in lines]


def text_pieces(paths: list[Path], how: Format, mark: list[int]) -> Pieces:
    """Read texts whose folder is their class; a mark is the number of a text."""
    first = mark[0] if mark else 0
    while first < len(paths):
        some = paths[first : first + TEXTS]
        texts = []
        for path in some:
            with decoded(path, how.encoding):
                texts.append(path.read_text(encoding=how.encoding))
        X = csr_array(how.vectorizer.transform(texts), dtype=np.float64)
        yield Piece(
            X, np.array([path.parent.name for path in some]), [first], (first + len(some)) / len(paths)
        )
        first += len(some)


PIECES: dict[str, Callable[[Path, Format, list[int]], Pieces]] = {
    ".svmlight": svmlight_pieces, ".svm": svmlight_pieces, ".libsvm": svmlight_pieces, ".npz": npz_pieces,
    ".csv": csv_pieces, ".mtx": mtx_pieces,
}  # fmt: skip


def pieces_of(path: Path) -> Callable[[Path, Format, list[int]], Pieces] | None:
    """Return the reader of a file, by its suffix and below that of a compression; None where there is none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in OPENERS:
        found = PIECES.get(suffixes[-2]) if len(suffixes) > 1 else None
        return found if found in (svmlight_pieces, mtx_pieces) else None
    return PIECES.get(suffixes[-1]) if suffixes else None
