"""Files, folders and frames that a user brings, each read into a table."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, load_npz

from problems.data.tables import Table, count_terms
from rmopt.core.arguments import array
from rmopt.core.matrices import sound
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import LARGEST, RATIO, SMALL, read_arrays, reading

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", "::": "double colons"}
# Files of MovieLens have no first line of names.
MOVIELENS = {
    "ratings.dat": ("user", "item", "rating", "time"), "u.data": ("user", "item", "rating", "time"),
    "tags.dat": ("user", "item", "tag", "time"),
}  # fmt: skip
# Bytes of a line of text that says what is in a file, and of a line of svmlight.
HEAD, LONGEST = 2**20, 2**26
# Labels are told apart by the 53 bits of a float, and as columns numbered by 32.
MOST_LABEL, MOST_LABELS = 2**53, 2**31 - 2


def suffix_of(path: Path) -> str:
    """Return the suffix of a file, or that below a compression."""
    return Path(path.stem if path.suffix.lower() in OPENERS else path.name).suffix.lower()


def opened(path: Path) -> IO[bytes]:
    """Open a file, which may be compressed, for reading bytes."""
    found: IO[bytes] = OPENERS.get(path.suffix.lower(), open)(path, "rb")
    return found


def read_file(path: Path, **options: str) -> Table:
    """Read a file by its suffix, or a folder of texts.

    Parameters
    ----------
    path : Path
    **options : str
        Of files of text: ``header``, "yes" or "no", found out unless given, and ``encoding``, which folders have too.
    """
    read = _texts if path.is_dir() else READERS.get(suffix_of(path))
    if read is None:
        raise InvalidInputError(
            f"{path} has the suffix {path.suffix or '(none)'}; save it as one of {', '.join(READERS)}, which may be "
            "compressed (.gz, .bz2, .xz), or as a folder of texts."
        )
    if foreign := set(options) - {_delimited: {"header", "encoding"}, _texts: {"encoding"}}.get(read, set()):
        raise InvalidInputError(f"{path} has no {min(foreign)} that could be said; leave it out.")
    with reading(path, InvalidInputError):
        return read(path, **options)


def text_lines(path: Path, encoding: str = "utf-8") -> IO[str]:
    """Open a file, which may be compressed, for reading lines of text."""
    encoding = without_mark(encoding)
    return io.TextIOWrapper(opened(path), encoding)


def text_frames(path: Path, encoding: str, rows: int | None = None) -> Iterator[tuple[pd.DataFrame, str]]:
    """Yield the rows of a text in columns, the first of which may be names, and what separates the columns.

    Parameters
    ----------
    path : Path
    encoding : str
    rows : int, optional
        So many at a time; all unless given.
    """
    with decoded(path, encoding):
        with text_lines(path, encoding) as text:
            first = [text.readline(HEAD) for _ in range(20)]
        # Excel says the separator in a line of its own.
        said = re.fullmatch(r'\s*"?sep=(.)"?\s*', first[0])
        separator = said[1] if said else separator_of(first, suffix_of(path))
        try:
            with pd.read_csv(
                path, sep=separator, header=None, dtype=object, na_filter=False, encoding=without_mark(encoding),
                skiprows=int(said is not None), engine="python" if len(separator) > 1 else "c",
                chunksize=sys.maxsize if rows is None else rows,
            ) as frames:  # fmt: skip
                checked = False
                for frame in frames:
                    # pandas fills rows that are too short, as where a file was cut off.
                    if not checked and frame.iloc[:, -1].isin(["", None]).any():
                        _refuse_short_rows(path, encoding, separator, said is not None)
                        checked = True
                    yield frame, separator
        except pd.errors.EmptyDataError:
            raise InvalidInputError(f"{path} is empty.") from None
        except (pd.errors.ParserError, csv.Error) as error:
            why = str(error).rpartition("error: ")[2].strip()
            raise InvalidInputError(
                f"{path} is not text in columns between {SEPARATORS.get(separator, separator)} ({why}); put fields "
                "with a separator (a decimal comma?) in quotes, end quotes that begin, or repair the line."
            ) from None


def separator_of(lines: list[str], suffix: str) -> str:
    """Return what separates columns: what the first line has most of outside of quotes, or tabs in .tsv.

    Double colons may be part of names: beside other signs they separate where all lines have as many, and more.
    """
    bare = [re.sub(r'"[^"]*"', "", line) for line in lines if line.strip()] or [""]
    counts = {sign: bare[0].count(sign) for sign in SEPARATORS}
    steady = {sign for sign, count in counts.items() if all(line.count(sign) == count for line in bare)}
    double = counts.pop("::")
    rivals = [count for sign, count in counts.items() if sign in steady]
    if ("::" in steady or not any(counts.values())) and double > max(rivals, default=0):
        return "::"
    return "\t" if suffix == ".tsv" else max(counts, key=lambda sign: counts[sign])


def _refuse_short_rows(path: Path, encoding: str, separator: str, skip: bool) -> None:
    """Raise what pandas raises for long rows, where a row has fewer fields than the first."""
    csv.field_size_limit(LONGEST)
    with text_lines(path, encoding) as lines:
        split: Any = (line.split(separator) if line.strip() else [] for line in lines)
        rows = split if len(separator) > 1 else csv.reader(lines, delimiter=separator)
        width = 0
        for number, row in enumerate(islice(rows, int(skip), None), 1 + skip):
            blank = not row or (len(row) == 1 and row[0].isspace())
            width = width or len(row) * (not blank)
            if not blank and len(row) < width:
                raise pd.errors.ParserError(f"Expected {width} fields in line {number}, saw {len(row)}")


def _delimited(path: Path, header: str = "", encoding: str = "utf-8") -> Table:
    if header not in ("", "yes", "no"):
        raise InvalidInputError(f"header = {header!r} must be yes or no.")
    with decoded(path, encoding), opened(path) as lines:
        if xmc_head(lines.readline(HEAD)) is not None:
            return _svmlight(path)
    [(frame, separator)] = text_frames(path, encoding)
    table = Table(path.name, str(path), frame, semicolons=separator == ";")
    if separator != "," and suffix_of(path) != ".tsv":
        table.notes.append(f"Its columns are separated by {SEPARATORS.get(separator, separator)}.")
    names = [str(name).strip() for name in frame.iloc[0]]
    known = MOVIELENS.get(path.name.lower().removesuffix(path.suffix * (path.suffix in OPENERS)), ())
    if len(known) == len(names) and not header:
        names, header = list(known), "no"
        table.notes.append(f"It was taken for a file of MovieLens, with the columns {', '.join(names)}.")
    elif header == "no":
        names = [str(number + 1) for number in range(len(names))]
    elif not header and _are_numbers(names):
        raise InvalidInputError(
            f"the first line of {path} holds numbers; say header=no, and columns are called 1, 2, 3 …, or header=yes."
        )
    table.frame = frame if header == "no" else frame.iloc[1:].reset_index(drop=True)
    if not len(table.frame):
        raise InvalidInputError(f"{path} has a header and no rows.")
    return named(table, names)


def _are_numbers(names: list[str]) -> bool:
    """Return whether a line of names holds numbers, and not 0, 1, 2 …, as pandas calls columns, among words."""
    values = pd.to_numeric(pd.Series(names, dtype=object), errors="coerce").dropna().to_numpy()
    counting = len(values) > 1 and bool((values == np.arange(len(values))).all())
    return len(values) > 0 and (not counting or len(values) == len(names))


def named(table: Table, names: list[str]) -> Table:
    """Give the columns of a table their names; a first one that only numbers the rows is left out."""
    bare = [not name or re.fullmatch(r"Unnamed: \d+", name) is not None for name in names]
    names = [name or f"column {place + 1}" for place, name in enumerate(names)]
    _refuse_twice(table.source, names)
    table.frame.columns = pd.Index(names, dtype=object)
    if names and bare[0]:
        values, missing = table.numbers(names[0])
        # So pandas writes an index, also one that was shuffled.
        if values is not None and not missing.any() and not (values % 1).any() and pd.Index(values).is_unique:
            table.frame = table.frame.drop(columns=names[0])
            table.notes.append("A first column without a name numbers the rows; it is left out.")
    return table


def _refuse_twice(source: str, names: list[str]) -> None:
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise InvalidInputError(f"{source} has two columns called {twice[0]!r}; rename one.")


def without_mark(encoding: str) -> str:
    """Return the encoding that leaves out the mark with which some programs begin a file of UTF-8."""
    try:
        return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    except LookupError:
        raise InvalidInputError(f"unknown encoding: {encoding}; say one such as encoding=latin-1.") from None


@contextmanager
def decoded(path: Path, encoding: str) -> Iterator[None]:
    """Turn bytes that are no text in an encoding, or a file that cannot be opened, into a sentence."""
    try:
        yield
    except UnicodeError as error:
        cure, where = "save it as UTF-8, or say its encoding, for example encoding=latin-1", ""
        if isinstance(error, UnicodeDecodeError):
            where = f" (byte 0x{error.object[error.start]:02x})"
            if 0 in error.object and "16" not in encoding:
                cure = "with zero bytes it is no text, such as a picture: take it out; of UTF-16 say encoding=utf-16"
        name = encoding.removesuffix("-sig")
        raise InvalidInputError(f"{path} is not {name} text{where}; {cure}.") from None
    except OSError as error:
        why = error.strerror or error
        raise StorageError(f"{path} cannot be read ({why}); check the path and its rights.") from error


def text_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the files in the subfolders of a folder, sorted, and what is not read: hidden files are not named.

    Links that lead out of the folder are not followed.
    """
    root, found, left = folder.resolve(), [], []
    for path in sorted(folder.glob("[!.]*")):
        inside = [path] if not path.is_dir() else sorted(path.glob("[!.]*"))
        for one in inside:
            if one.is_file() and one.parent != folder and one.resolve().is_relative_to(root):
                found.append(one)
            else:
                left.append(f"{one.relative_to(folder)}{'/' * one.is_dir()}")
    return found, left


def texts_of(folder: Path, encoding: str) -> tuple[list[str], list[str], list[str]]:
    """Return the texts of a folder whose subfolders are classes, their classes, and the names of the files."""
    files, _ = text_files(folder)
    if not files:
        raise InvalidInputError(
            f"{folder} has no subfolders with files; put each text into that of its class."
        )
    names = [f"{path.parent.name}/{path.name}" for path in files]
    return read_all(files, encoding), [path.parent.name for path in files], names


def read_all(files: Iterable[Path], encoding: str) -> list[str]:
    """Return the texts of files."""
    texts, encoding = [], without_mark(encoding)
    for path in files:
        with decoded(path, encoding):
            texts.append(path.read_text(encoding=encoding))
    return texts


def _texts(path: Path, encoding: str = "utf-8") -> Table:
    texts, classes, names = texts_of(path, encoding)
    frame = pd.DataFrame({"label": pd.Series(classes, dtype=object)})
    table = Table(
        f"{path.resolve().name}/", str(path), frame, names={"sample_names": tuple(names)}, typed=True
    )
    if left := text_files(path)[1]:
        table.notes.append(f"Not read: {', '.join(left[:6])}{', …' * (len(left) > 6)}.")
    count_terms(table, texts)
    return table


def _npz(path: Path) -> Table:
    """Read the keys X (or its CSR parts), Y, the names of their columns, n_train, and columns under any name."""
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
        if "format.npy" in archive.namelist():
            if size > min(max(SMALL, RATIO * path.stat().st_size), LARGEST):
                raise ValueError(f"it would unpack to {size:,} bytes")
            known = sound("the matrix", load_npz(path)).tocoo()
            return coordinates(path, known.shape, known.row, known.col, known.data)
    arrays = read_arrays(path)
    try:
        there = [one for one in "XY" if {one, f"{one}_indices"} & set(arrays)]
        whole = {one: read_table(path, one, ones=True) for one in there}
    except StorageError as error:
        why = error.__cause__ or error
        raise InvalidInputError(f"X and Y of {path} must be tables of finite numbers ({why}).") from None
    parts = {f"{one}{part}" for one in whole for part in ("", "_data", "_indices", "_indptr", "_shape")}
    n = (
        whole["X"].shape[0]
        if "X" in whole
        else max((len(a) for a in arrays.values() if a.ndim == 1), default=0)
    )
    if "Y" in whole and whole["Y"].shape[0] != n:
        raise InvalidInputError(f"X of {path} has {n} rows, and Y {whole['Y'].shape[0]}; repair it.")
    names: dict[str, tuple[str, ...]] = {
        name: tuple(map(str, arrays.pop(name).ravel().tolist()))
        for name in ("feature_names", "label_names", "class_names") if name in arrays
    }  # fmt: skip
    columns = {name: one for name, one in arrays.items() if one.shape == (n,) and name not in parts}
    if "n_train" in arrays:
        first = arrays["n_train"]
        if first.shape not in ((), (1,)) or first.dtype.kind not in "iu" or not 0 < first.item() < n:
            raise InvalidInputError(f"n_train of {path} must be 1 to {n - 1}: so many rows are for training.")
        columns["test"] = np.arange(n) >= first.item()
    table = read_frame(columns, path.name, str(path), n)
    table.X, table.Y, table.names = whole.get("X"), whole.get("Y"), names
    if left := sorted(set(arrays) - set(columns) - parts - {"n_train", "about"}):
        shapes = ", ".join(f"{name} {arrays[name].shape}" for name in left)
        table.notes.append(f"Not used, of another length or shape than ({n},): {shapes}.")
    return table


def _svmlight(path: Path) -> Table:
    with opened(path) as stream:
        [table] = svmlight_tables(path, stream, sys.maxsize)
    if table.Y is not None:
        there = np.unique(table.Y.indices)
        table.Y, table.names["label_names"] = table.Y[:, there], tuple(map(str, there.tolist()))
    elif table.X.shape[1] and not table.X[:, [0]].nnz:
        table.X = table.X[:, 1:]
        table.notes.append("No row has a feature 0: they are taken to count from 1, which a stream is told.")
    return table


def svmlight_tables(
    path: Path,
    stream: IO[bytes],
    rows: int,
    n_features: int | None = None,
    zero_based: bool = True,
    several: bool | None = None,
) -> Iterator[Table]:
    """Yield so many lines ``label,label index:value …`` at a time, labels as indicators where rows have several.

    Parameters
    ----------
    path : Path
    stream : file
    rows : int
    n_features : int, optional
        As many as the lines ask for unless given; so says the first line of extreme classification: rows, features,
        labels.
    zero_based : bool
        Whether features count from 0.
    several : bool, optional
        Whether rows have several labels; found out unless given.
    """
    lines, first, count = lines_of(path, stream), 1, 0
    head = next(lines, b"")
    if said := xmc_head(head):
        n_features, several, first = n_features or said[1], True if several is None else several, 2
    else:
        lines = chain([head], lines)
    if n_features is None and several is not None:
        raise InvalidInputError(f"{path} does not say its features; say n_features (--n-features).")
    while some := list(islice(lines, rows)):
        X, labels = svmlight_rows(path, some, first, n_features, zero_based)
        counts, flat = np.array([*map(len, labels)], dtype=int), np.concatenate([*labels, []])
        notes = ["Words qid:… are left out."] * any(b"qid:" in line for line in some)
        table = Table(path.name, str(path), pd.DataFrame(index=range(len(labels))), X, notes=notes)
        if several or (several is None and (counts != 1).any()):
            columns = flat.astype(np.int64)
            if ((columns != flat) | (columns < 0) | (columns > MOST_LABELS)).any():
                raise InvalidInputError(
                    f"{path} has a label that is not a whole number from 0 to {MOST_LABELS}."
                )
            starts, shape = np.cumsum([0, *counts]), (len(labels), int(columns.max(initial=-1)) + 1)
            table.Y = csr_array((np.ones(len(columns)), columns.astype(np.int32), starts), shape=shape)
            table.Y.sum_duplicates()
            table.Y.data[:] = 1.0  # a label that a row has twice is one
        elif (counts != 1).any():
            raise InvalidInputError(
                f"{path} has rows with no or several labels: say multilabel=True (rmopt fit ranking)."
            )
        else:
            table.frame["label"] = flat
        yield table
        first, count = first + len(some), count + len(labels)
    if said and count != said[0]:
        raise InvalidInputError(
            f"{path} has {count:,} rows, and its first line says {said[0]:,}; it may be cut off: fetch it again."
        )


def lines_of(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines of a file, and refuse one that no memory may hold."""
    while line := stream.readline(LONGEST):
        if len(line) == LONGEST:
            raise InvalidInputError(f"{path} has a line of more than {LONGEST:,} bytes; split it into rows.")
        yield line


def svmlight_rows(
    path: Path, lines: list[bytes], first: int, n_features: int | None = None, zero_based: bool = True
) -> tuple[csr_array, list[tuple[float, ...]]]:
    """Return the features and the labels of lines ``label,label index:value …``.

    Parameters
    ----------
    path : Path
    lines : list of bytes
    first : int
        The number of the first line.
    n_features : int, optional
        As many as the lines ask for unless given.
    zero_based : bool
        Whether features count from 0.
    """
    from sklearn.datasets import load_svmlight_file

    def parse(some: list[bytes]) -> tuple[csr_array, list[tuple[float, ...]]]:
        rows = [line for line in some if line.split(b"#", 1)[0].strip()]
        if not rows:
            return csr_array((0, n_features or 1)), []
        X, labels = load_svmlight_file(
            io.BytesIO(b"".join(rows)), n_features=n_features, multilabel=True, zero_based=zero_based
        )
        if not (np.isfinite(X.data).all() and (np.abs(np.concatenate(labels)) < MOST_LABEL).all()):
            raise ValueError("numbers are infinite, or too large to tell them apart")
        return csr_array(X), labels

    try:
        return parse(lines)
    except (ValueError, OverflowError) as error:
        for number, line in enumerate(lines, first):
            try:
                parse([line])
            except (ValueError, OverflowError):
                within = f"rise from {1 - zero_based}" + f" and stay below {n_features}" * (
                    n_features is not None
                )
                raise InvalidInputError(
                    f"line {number} of {path} is not a row 'label index:value …' of finite numbers whose indices "
                    f"{within}; repair it, say n_features (--n-features), or zero_based=False (--one-based)."
                ) from None
        raise InvalidInputError(f"{path} holds no rows of svmlight ({type(error).__name__}).") from None


def xmc_head(line: bytes) -> tuple[int, int] | None:
    """Return the numbers of rows and features that a first line of extreme classification says, before the labels."""
    said = re.fullmatch(rb"(\d+) (\d+) \d+\s*", line)
    return (int(said[1]), int(said[2])) if said else None


def _mtx(path: Path) -> Table:
    with text_lines(path) as lines:
        return coordinates(path, *matrix_market(lines))


def matrix_market(lines: IO[str]) -> tuple[tuple[int, int], Any, Any, Any]:
    """Return the shape, rows, columns and values of a matrix in coordinate format.

    scipy's reader kills the process where some files are damaged.
    """
    head = lines.readline().lower().split()
    if head[:3] != ["%%matrixmarket", "matrix", "coordinate"] or "complex" in head:
        raise ValueError("its first line must be %%MatrixMarket matrix coordinate …, and not complex")
    sizes = next(line for line in lines if line.strip() and not line.startswith("%"))
    m, n, count = map(int, sizes.split())
    width = 2 if "pattern" in head else 3
    mirrored = "symmetric" in head or "skew-symmetric" in head
    if mirrored and m != n:
        raise ValueError(f"a symmetric matrix has as many rows as columns, and not {m} and {n}")
    entries = np.loadtxt(lines, ndmin=2, comments="%") if count else np.empty((0, width))
    if entries.shape[1] != width or not np.isfinite(entries).all():
        raise ValueError(f"its entries must be {width} finite numbers")
    places = entries[:, :2].astype(np.int64)
    if len(entries) != count or ((places != entries[:, :2]) | (places < 1) | (places > (m, n))).any():
        raise ValueError(f"it must hold {count} entries within {m} rows and {n} columns")
    row, column = places.T - 1
    values = np.ones(count) if width == 2 else entries[:, 2]
    if mirrored:
        below = row != column
        values = np.concatenate([values, -values[below] if "skew-symmetric" in head else values[below]])
        row, column = np.concatenate([row, column[below]]), np.concatenate([column, row[below]])
    return (m, n), row, column, values


def coordinates(path: Path, shape: tuple[int, int], row: Any, column: Any, values: Any) -> Table:
    """Return the entries of a matrix as ratings, whose rows, counted from 1, are items."""
    frame = pd.DataFrame({"item": row + 1, "user": column + 1, "rating": values.astype(float)})
    note = (
        f"Of its {shape[0]:,} rows and {shape[1]:,} columns the rows are taken for items and the columns for users; "
        "where rows are users say user=item,item=user."
    )
    return Table(path.name, str(path), frame, notes=[note], typed=True)


def _parquet(path: Path) -> Table:
    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise InvalidInputError(f"{path} needs pyarrow: pip install pyarrow, or save it as .csv.") from None
    return read_frame(frame, path.name, str(path))


def read_frame(frame: Any, name: str = "frame", source: str = "memory", rows: int = 0) -> Table:
    """Return the columns of a frame of pandas or polars, or of a mapping; of none so many rows."""
    notes = []
    if index := [str(one) for one in getattr(getattr(frame, "index", None), "names", ()) if one is not None]:
        notes.append(f"The index ({', '.join(index)}) is left out; reset_index() makes it a column.")
    if hasattr(frame, "collect"):
        frame = frame.collect()  # a lazy frame of polars
    if hasattr(frame, "to_pydict"):
        frame = frame.to_pydict()  # a table of pyarrow
    names = list(frame if isinstance(frame, Mapping) else frame.columns)
    _refuse_twice(f"the {name}", list(map(str, names)))
    columns = [_column(frame[key], f"the column {key!r} of the {name}", notes) for key in names]
    if len({*map(len, columns)}) > 1:
        lengths = ", ".join(f"{key} ({len(one):,})" for key, one in zip(names[:12], columns, strict=False))
        raise InvalidInputError(f"{source} has columns of different lengths: {lengths}; make them equal.")
    whole = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(rows))
    return named(Table(name, source, whole, notes=notes, typed=True), list(map(str, names)))


def _column(given: Any, what: str, notes: list[str]) -> pd.Series[Any]:
    """Return a column of numbers, or of text with None where there is nothing; note what types alone told apart."""
    values = array(what, given)
    if values.dtype.kind in "US" and isinstance(given, list | tuple):
        values = np.array(given, dtype=object)  # 1 and "1" are told apart below
    if values.ndim != 1 or not len(values):
        raise InvalidInputError(f"{what} must be one-dimensional, named once and not empty.")
    if values.dtype.kind in "biuf":
        return pd.Series(values)
    if values.dtype.kind == "O" and any(np.ndim(one) for one in values):
        raise InvalidInputError(f"{what} holds lists; make each entry a column.")
    # The nanoseconds of dates are no measurements.
    words = [
        one.decode() if isinstance(one, bytes) else one
        for one in values.astype(str if values.dtype.kind in "mM" else object)
    ]
    others = {str(word) for word in words if not (isinstance(word, str) or pd.isna(word))}
    if others and (both := others.intersection(word for word in words if isinstance(word, str))):
        many = f"{len(both):,} value{'s' * (len(both) > 1)} in {what}"
        notes.append(f"{many} became one with another: only types, as of 1 and '1', tell them apart.")
    return pd.Series([None if pd.isna(word) else str(word) for word in words], dtype=object)


READERS: dict[str, Callable[..., Table]] = {
    ".csv": _delimited, ".tsv": _delimited, ".txt": _delimited, ".dat": _delimited, ".data": _delimited, ".npz": _npz,
    ".svmlight": _svmlight, ".svm": _svmlight, ".libsvm": _svmlight, ".mtx": _mtx, ".parquet": _parquet,
}  # fmt: skip


def read_table(path: Path, name: str, ones: bool = False) -> Any:
    """Return a table of finite floats from an ``.npz`` file: an array, or canonical CSR from its parts.

    These are ``name_data``, which with `ones` may be left out, ``name_indices``, ``name_indptr`` and ``name_shape``.
    """
    parts: dict[str, Any] = {
        f"{name}_indices": (int, ("entries",)), f"{name}_indptr": (int, (None,)), f"{name}_shape": (int, (2,)),
    }  # fmt: skip
    whole = {f"{name}_data": (float, ("entries",)), **parts}
    arrays = read_arrays(path, {name: (float, (None, None))}, whole, *([parts] if ones else []))
    if name in arrays:
        return arrays[name]
    with reading(path):
        indices, indptr, shape = (arrays[part] for part in parts)
        data = arrays.get(f"{name}_data", np.ones(len(indices)))
        size = tuple(shape.tolist())
        table = sound(name, csr_array((data, indices, indptr), shape=size))
        narrow = np.int32 if max(len(indices), *size) < 2**31 else np.int64
        table = csr_array((data, indices.astype(narrow), indptr.astype(narrow)), shape=size)
        table.sum_duplicates()
        return table
