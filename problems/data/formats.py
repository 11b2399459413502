"""Files, folders and frames that a user brings, each read into columns by name, or into a whole table of features."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from rmopt.arrays import read_arrays
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, shown
from rmopt.core.matrices import sound
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading

__all__ = ["Table", "read_texts"]


MISSING = {"", "na", "n/a", "<na>", "nan", "nat", "null", "none", "?"}
DECIMAL_COMMA, THOUSANDS = re.compile(r"-?\d+,\d+"), re.compile(r"-?[1-9]\d{0,2},\d{3}")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass
class Table:
    """What was read, before it is known what it means.

    Attributes
    ----------
    name, source : str
        The name of the file, and its path.
    columns : dict of array
        One value for each row; numbers, or text.
    X, Y : array or csr_array, optional
        All features, or all labels, where the format has them in one piece.
    names : dict of str
        What the columns of X and Y stand for, and their rows: ``feature_names``, ``label_names``, ``sample_names``.
    notes : list of str
        What was noticed.
    decimals : dict of array
        Columns of numbers with decimal commas, with points instead: for those that are meant as numbers.
    typed : bool
        Columns have types, so that text is no number; in a file of text it may be.
    """

    name: str
    source: str
    columns: dict[str, Array]
    X: Any = None
    Y: Any = None
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    decimals: dict[str, Array] = field(default_factory=dict)
    typed: bool = False


def parsed(column: Array) -> tuple[Array | None, Array]:
    """Return a column as float64, NaN where it is missing, or None where it holds text; and where it is missing."""
    if column.dtype.kind in "biuf":
        numbers = column.astype(np.float64)
        return numbers, np.isnan(numbers)
    values = column.tolist()
    # Python takes 1_000 for a number; in data it is a name.
    named = any(isinstance(value, str) and "_" in value for value in values)
    # It may be text, or a word for what is missing.
    with suppress(TypeError, ValueError):
        if not named:
            numbers = np.array(values, dtype=np.float64)
            return numbers, np.isnan(numbers)
    words = ["" if value is None else str(value).strip() for value in values]
    missing = np.array([word.lower() in MISSING for word in words], dtype=bool)
    with suppress(ValueError):
        if not named:
            return np.array(np.where(missing, "nan", words), dtype=np.float64), missing
    return None, missing


def distinct(column: Array) -> tuple[Array, Array]:
    """Return the different values of a column, and for each row the number of its value."""
    if column.dtype != object:
        return np.unique(column, return_inverse=True)
    words = column.tolist()
    # Equal values of several types, such as 1 and True, may be written in several ways.
    keys = words if set(map(type, words)) == {str} else [*zip(map(type, words), map(str, words), strict=True)]
    values = dict(zip(keys, words, strict=True))
    numbers = dict(zip(values, range(len(values)), strict=True))
    return np.array([*values.values()], dtype=object), np.array([numbers[key] for key in keys])


def read_file(path: Path, **options: str) -> Table:
    """Read a file by its suffix, or a folder of texts.

    Parameters
    ----------
    path : Path
    **options : str
        Of files of text: ``header``, "yes" or "no", found out unless given, and ``encoding``, which folders have too.
    """
    read = _texts if path.is_dir() else READERS.get(path.suffix.lower())
    if read is None:
        raise InvalidInputError(
            f"{path} has the suffix {path.suffix or '(none)'}, which is none of {', '.join(READERS)}, nor is it a "
            "folder of texts; rename or convert it."
        )
    allowed = {_delimited: {"header", "encoding"}, _texts: {"encoding"}}.get(read, set())
    if set(options) - allowed:
        foreign = " and no ".join(sorted(set(options) - allowed))
        raise InvalidInputError(f"{path} has no {foreign} that could be said; leave it out.")
    return read(path, **options)


def _delimited(path: Path, header: str = "", encoding: str = "utf-8") -> Table:
    """Read text with a separator: that of which the first line has most."""
    notes: list[str] = []
    with decoded(path, encoding), path.open(encoding=without_mark(encoding), newline="") as stream:
        first = re.sub(r'"[^"]*"', "", stream.readline())
        counts = Counter(letter for letter in first if letter in SEPARATORS)
        separator = "\t" if path.suffix.lower() == ".tsv" else max(SEPARATORS, key=lambda one: counts[one])
        if separator != "," and path.suffix.lower() != ".tsv":
            notes.append(f"Its columns are separated by {SEPARATORS[separator]}.")
        stream.seek(0)
        # A text may be longer than Python's 128 KiB; a quote that nothing closes would swallow rows.
        limit = csv.field_size_limit(2**31 - 1)
        lines = csv.reader(stream, delimiter=separator, strict=True)
        try:
            rows = list(filter(None, lines))
        except csv.Error as error:
            raise InvalidInputError(
                f"line {lines.line_num} of {path} is not text in columns ({error}); a field that begins with a quote "
                "ends with one, and holds others twice."
            ) from None
        finally:
            csv.field_size_limit(limit)
    if not rows:
        raise InvalidInputError(f"{path} is empty.")
    names = [name.strip() for name in rows[0]]
    found = [parsed(np.array([name], dtype=object))[0] for name in names]
    numbers = np.array([one[0] for one in found if one is not None and not np.isnan(one[0])])
    # Numbers that count from 0 are names, as those that pandas gives to columns.
    counting = len(numbers) > 1 and numbers[0] == 0.0 and bool((np.diff(numbers) == 1.0).all())
    numeric = all(one is not None for one in found) or (len(numbers) > 0 and not counting)
    if header not in ("", "yes", "no"):
        raise InvalidInputError(f"header = {header!r} must be yes or no.")
    if numeric and not header:
        raise InvalidInputError(
            f"the first line of {path} ({', '.join(names[:4])} …) holds numbers, and should hold names of columns; "
            "add such a line, or say header=no, and the columns are called 1, 2, 3 …; with header=yes it names them."
        )
    rows = rows if header == "no" else rows[1:]
    if header == "no":
        names = [str(number + 1) for number in range(len(names))]
    if not rows:
        raise InvalidInputError(f"{path} has a header and no rows.")
    odd = next((number for number, row in enumerate(rows) if len(row) != len(names)), None)
    if odd is not None:
        raise InvalidInputError(
            f"row {odd + 1} of {path} has {len(rows[odd])} fields between {SEPARATORS[separator]}, and the header "
            f"{len(names)}; put fields that contain a separator (a decimal comma?) in quotes, or repair the row."
        )
    table = Table(path.name, str(path), {}, notes=notes)
    for name, words in zip(names, np.array(rows, dtype=object).T, strict=True):
        # Where semicolons separate, commas are for decimals.
        _add(table, name, words, decimals=separator == ";")
    return table


def _add(table: Table, name: str, column: Array, decimals: bool = False) -> None:
    """Add a column; one without a name that numbers the rows, in whatever order, is left out where it is the first.

    Decimal commas are kept with points beside it, but not where points stand beside commas, nor where 1,234 may be
    more than a thousand, unless such commas are `decimals` for sure.
    """
    if not name or re.fullmatch(r"Unnamed: \d+", name):
        numbers, missing = parsed(column)
        whole = numbers is not None and not missing.any() and bool((numbers == np.round(numbers)).all())
        # So pandas writes an index, also one that was shuffled.
        if not table.columns and numbers is not None and whole and len(np.unique(numbers)) == len(column):
            which = f" ({name})" * bool(name)
            table.notes.append(
                f"A column without a name{which} numbers the rows; it is left out, unless it is named."
            )
            return
        name = name or f"column {len(table.columns) + 1}"
    if name in table.columns:
        raise InvalidInputError(f"{table.source} has two columns called {name!r}; rename one.")
    words = {str(word).strip() for word in column.tolist()} if column.dtype == object else set()
    commas = [word for word in words if DECIMAL_COMMA.fullmatch(word)]
    if commas and (decimals or not all(map(THOUSANDS.fullmatch, commas))):
        points = np.array([str(word).replace(",", ".") for word in column.tolist()], dtype=object)
        if parsed(points)[0] is not None and not any("." in word for word in words):
            table.decimals[name] = points
    table.columns[name] = column


def without_mark(encoding: str) -> str:
    """Return the encoding that leaves out the mark with which some programs begin a file of UTF-8."""
    try:
        return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    except LookupError:
        return encoding


@contextmanager
def decoded(path: Path, encoding: str) -> Iterator[None]:
    """Turn bytes that are no text in an encoding, or a file that cannot be opened, into a sentence."""
    try:
        yield
    except UnicodeError as error:
        # Of a missing mark of the order of bytes no place is known.
        where = f" (byte 0x{error.object[error.start]:02x})" if isinstance(error, UnicodeDecodeError) else ""
        cure = "save it as UTF-8, or say its encoding, for example encoding=latin-1"
        if isinstance(error, UnicodeDecodeError) and 0 in error.object and "16" not in encoding:
            cure = (
                "with zero bytes it is no text, such as a picture: take it out; of UTF-16 say encoding=utf-16"
            )
        raise InvalidInputError(f"{path} is not {encoding} text{where}; {cure}.") from None
    except LookupError as error:
        raise InvalidInputError(
            f"{error}; give one that Python knows, for example encoding=latin-1."
        ) from None
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({error.strerror}); check the path and its rights."
        ) from error


def read_texts(folder: Path | str, encoding: str = "utf-8") -> tuple[list[str], list[str], list[str]]:
    """Read a folder whose subfolders are classes, and their files texts.

    Parameters
    ----------
    folder : path
        Such as ``mail/spam/1.txt``, ``mail/ham/2.txt``. Hidden files are left out.
    encoding : str
        Of the files.

    Returns
    -------
    texts : list of str
    classes : list of str
        The name of each text's subfolder.
    names : list of str
        Of the files, as ``spam/1.txt``.

    Raises
    ------
    InvalidInputError
        When there are no subfolders with files, or a file is not text in this encoding.
    StorageError
        When there is no such folder.

    See Also
    --------
    load : the same folder as a `ClassBundle` of counts.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from problems.data import read_texts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for kind, text in [("ham", "See you at noon."), ("spam", "Win a prize!")]:
    ...         Path(folder, kind).mkdir()
    ...         _ = Path(folder, kind, "1.txt").write_text(text, encoding="utf-8")
    ...     print(read_texts(folder))
    (['See you at noon.', 'Win a prize!'], ['ham', 'spam'], ['ham/1.txt', 'spam/1.txt'])
    """
    root, texts, classes, names = Path(folder), [], [], []
    if not root.is_dir():
        raise StorageError(f"{root} is no folder; check the path.")
    for path in sorted(root.glob("*/*")):
        if path.is_file() and not path.name.startswith(".") and not path.parent.name.startswith("."):
            with decoded(path, encoding):
                texts.append(path.read_text(encoding=encoding))
            classes.append(path.parent.name)
            names.append(f"{path.parent.name}/{path.name}")
    if not texts:
        raise InvalidInputError(
            f"the folder {root} has no subfolders with files; put each text into the subfolder of its class."
        )
    return texts, classes, names


def _texts(path: Path, encoding: str = "utf-8") -> Table:
    texts, classes, names = read_texts(path, encoding)
    columns = {"label": np.array(classes, dtype=object)}
    table = Table(f"{path.resolve().name}/", str(path), columns, names={"sample_names": tuple(names)})
    deeper = sum(one.is_dir() for one in path.glob("[!.]*/[!.]*"))
    if deeper:
        table.notes.append(f"Not read: {deeper:,} folder{'s' * (deeper > 1)} inside of those of the classes.")
    others = sorted({one.name for one in path.glob("[!.]*")} - set(classes))
    if others:
        table.notes.append(
            f"Not read, for they are no folders of texts: {', '.join(others[:6])}{', …' * (len(others) > 6)}."
        )
    count_terms(table, texts)
    return table


def count_terms(table: Table, texts: list[str]) -> None:
    """Make the terms of texts the features; they are only counted, since weights belong to a training part."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(dtype=np.float64)
    try:
        table.X = csr_array(counter.fit_transform(texts))
    except ValueError as error:
        raise InvalidInputError(f"the texts of {table.source} hold no words ({error}).") from None
    table.names["feature_names"] = tuple(counter.get_feature_names_out().tolist())
    empty = int((np.diff(table.X.indptr) == 0).sum())
    if empty:
        table.notes.append(f"{empty:,} text{'s hold' if empty > 1 else ' holds'} no words.")


def _npz(path: Path) -> Table:
    """Read the keys X (or its CSR parts), Y, the names of their columns, n_train, and columns under any name."""
    arrays = read_arrays(path)
    there = [one for one in "XY" if {one, f"{one}_indices"} & set(arrays)]
    try:
        whole = {one: read_table(path, one, ones=True) for one in there}
    except StorageError as error:
        raise InvalidInputError(
            f"{path} cannot be used ({error.__cause__ or error}); X and Y must be tables of finite numbers, a row "
            "for each sample; repair them."
        ) from None
    parts = {f"{one}{part}" for one in whole for part in ("", "_data", "_indices", "_indptr", "_shape")}
    longest = max((len(a) for a in arrays.values() if a.ndim == 1), default=0)
    n = whole["X"].shape[0] if "X" in whole else longest
    names: dict[str, tuple[str, ...]] = {}
    for name in {"feature_names", "label_names", "class_names"} & set(arrays):
        names[name] = tuple(map(str, arrays.pop(name).ravel().tolist()))
    columns = {name: array for name, array in arrays.items() if array.shape == (n,) and name not in parts}
    if "n_train" in arrays:
        first = arrays["n_train"]
        if first.shape not in ((), (1,)) or first.dtype.kind not in "iu" or not 0 < first.item() < n:
            raise InvalidInputError(
                f"n_train of {path} must be a whole number from 1 to {n - 1}: how many of its {n} rows, the first "
                f"ones, are for training; got {shown(first.tolist())}."
            )
        columns["test"] = np.arange(n) >= first.item()
    left = sorted(set(arrays) - set(columns) - parts - {"n_train", "about"})
    shapes = ", ".join(f"{name} {arrays[name].shape}" for name in left)
    notes = [f"Not used, of another length or shape than ({n},): {shapes}."] if left else []
    return Table(path.name, str(path), columns, whole.get("X"), whole.get("Y"), names, notes, typed=True)


def _svmlight(path: Path) -> Table:
    # Its parser is compiled, and numba takes longer to import than a list of the data sets.
    from problems.data.pieces import MOST_FEATURES, Format, parsed_lines

    with reading(path):
        text = path.read_bytes() + b"\n"
    X, labels, starts = parsed_lines(path, text, 0, Format(n_features=MOST_FEATURES))
    first = int(X.indices.min(initial=MOST_FEATURES) > 0)
    X = X[:, first : X.indices.max(initial=-1) + 1]
    stored = X.nnz
    X.sum_duplicates()
    notes = ["No row has a feature 0: they are taken to count from 1, which a stream is told."] * first
    if X.nnz < stored:
        notes.append(f"{stored - X.nnz:,} features come twice in a row, and are added up, as in a stream.")
    if (np.diff(starts) == 1).all():
        return Table(path.name, str(path), {"label": labels}, X, notes=notes)
    known, numbers = np.unique(labels, return_inverse=True)
    Y = csr_array((np.ones(len(numbers)), numbers, starts), shape=(X.shape[0], len(known)))
    # A label that a row has twice is one.
    Y.sum_duplicates()
    Y.data[:] = 1.0
    names = (str(int(one) if one == int(one) else one) for one in known.tolist())
    return Table(path.name, str(path), {}, X, Y, {"label_names": tuple(names)}, notes)


def _mtx(path: Path) -> Table:
    """Read the entries of a matrix in coordinate format; scipy's reader kills the process where a file is damaged."""
    with reading(path), path.open(encoding="utf-8") as lines:
        head = lines.readline().lower().split()
        if head[:3] != ["%%matrixmarket", "matrix", "coordinate"] or "complex" in head:
            raise ValueError(
                "its first line does not begin with %%MatrixMarket matrix coordinate, or says complex; "
                "scipy.io.mmwrite writes a sparse array so"
            )
        sizes = next(line for line in lines if line.strip() and not line.startswith("%"))
        m, n, count = map(int, sizes.split())
        width = 2 if "pattern" in head else 3
        if ("symmetric" in head or "skew-symmetric" in head) and m != n:
            raise ValueError(f"a symmetric matrix has as many rows as columns, and not {m} and {n}")
        known = np.loadtxt(lines, ndmin=2, comments="%") if count else np.empty((0, width))
        if known.shape[1] != width:
            raise ValueError(f"its entries must be {width} numbers")
        row, column = (known[:, side].astype(np.int64) for side in (0, 1))
        places = np.column_stack([row, column])
        if len(known) != count or ((places != known[:, :2]) | (places < 1) | (places > (m, n))).any():
            raise ValueError(f"it must hold {count} entries within {m} rows and {n} columns")
        values = np.ones(count) if width == 2 else known[:, 2]
    if "symmetric" in head or "skew-symmetric" in head:
        below = row != column
        values = np.concatenate([values, -values[below] if "skew-symmetric" in head else values[below]])
        row, column = np.concatenate([row, column[below]]), np.concatenate([column, row[below]])
    return Table(path.name, str(path), {"item": row, "user": column, "rating": values})


def _parquet(path: Path) -> Table:
    # With the door comes all of scikit-learn.
    from problems.validation import package

    parquet = package("pyarrow.parquet", instead=f"save {path} as .csv")
    with reading(path):
        columns = parquet.read_table(path).to_pydict()
    # pandas' numbers of the rows; an index with a name is a column.
    index = [name for name in columns if re.fullmatch(r"__index_level_\d+__", name)]
    table = read_frame(
        {name: one for name, one in columns.items() if name not in index}, path.name, str(path)
    )
    if index:
        table.notes.append(f"The index that pandas wrote ({', '.join(index)}) is left out.")
    return table


def read_frame(frame: Any, name: str = "frame", source: str = "memory") -> Table:
    """Return the columns of a frame of pandas or polars, or of a mapping."""
    table = Table(name, source, {}, typed=True)
    index = [one for one in getattr(getattr(frame, "index", None), "names", ()) if one is not None]
    if index:
        table.notes.append(
            f"The index ({', '.join(map(str, index))}) is left out; reset_index() makes it a column."
        )
    if hasattr(frame, "collect"):
        frame = frame.collect()  # a lazy frame of polars
    if hasattr(frame, "to_pydict"):
        frame = frame.to_pydict()  # a table of pyarrow
    for key in frame if isinstance(frame, Mapping) else frame.columns:
        given = frame[key]
        if getattr(given, "ndim", 1) == 2:
            raise InvalidInputError(f"{source} has two columns called {key!r}; rename one.")
        column = array(f"the column {key!r} of the {name}", given)
        if column.dtype.kind in "SO":
            words = [one.decode() if isinstance(one, bytes) else one for one in column.tolist()]
            column = np.array(words, object)
        if column.dtype == object and any(np.ndim(one) for one in column.tolist()):
            raise InvalidInputError(
                f"the column {key!r} of the {name} holds lists; make each entry a column."
            )
        # The nanoseconds of dates are no measurements.
        column = column.astype(str) if column.dtype.kind in "mM" else column
        if column.ndim != 1 or not len(column):
            raise InvalidInputError(
                f"the column {key!r} of the {name} must be one-dimensional and not empty."
            )
        _add(table, str(key), column if column.dtype.kind in "biuf" else column.astype(object))
    return table


READERS: dict[str, Callable[..., Table]] = {
    ".csv": _delimited, ".tsv": _delimited, ".npz": _npz, ".svmlight": _svmlight, ".svm": _svmlight,
    ".libsvm": _svmlight, ".mtx": _mtx, ".parquet": _parquet,
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


def read_text_table(path: Path, separator: str, **options: Any) -> Any:
    """Return a table of finite numbers from a text file."""
    # numpy takes separators of one character.
    with reading(path), path.open(encoding="utf-8") as stream:
        table = np.loadtxt(
            (line.replace(separator, ",") for line in stream), delimiter=",", ndmin=2, **options
        )
        if not table.size or not np.isfinite(table).all():
            raise ValueError("it must hold finite numbers, and at least one row")
        return table


def read_arff(path: Path, n_labels: int) -> tuple[Any, Any]:
    """Return the features and the labels, which are the last columns, of an ARFF file, dense or sparse."""
    with reading(path):
        head, _, body = path.read_text(encoding="utf-8").lower().partition("@data")
        lines = [line for line in body.splitlines() if line.strip()]
        if lines[0].startswith("{"):
            cells = [line.strip("{} ").replace(",", " ").split() for line in lines]
            numbers = np.array([cell for row in cells for cell in row], dtype=np.float64).reshape(-1, 2)
            rows = np.repeat(np.arange(len(cells)), [len(row) // 2 for row in cells])
            shape = len(lines), head.count("@attribute ")
            table = csr_array((numbers[:, 1], (rows, numbers[:, 0].astype(np.int32))), shape=shape)
            table.sum_duplicates()
        else:
            table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-n_labels], csr_array(table[:, -n_labels:])
