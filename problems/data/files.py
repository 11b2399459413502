"""Files, folders and frames of a user, read into tables: at once, or some rows at a time."""

import gzip
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype
from scipy.sparse import coo_array, csc_array, csr_array
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from problems.data.tables import MEANT, Table, count_terms, first_of, plain
from problems.validation import package
from rmopt.core.arguments import array
from rmopt.core.matrices import as_rows, sound
from rmopt.errors import InvalidInputError
from rmopt.files import conforming, read_arrays, reading

# Files of MovieLens have no first line of names.
RATED = ("user", "item", "rating", "time")
MOVIELENS = {"u.data": RATED, "ratings.dat": RATED, "tags.dat": ("user", "item", "tag", "time")}
# The largest number of bytes in a text line that describes a file.
HEAD = 2**20
# Labels are columns, which have 32-bit numbers.
MOST_LABELS = 2**31 - 2
DECIMAL_COMMA = re.compile(r"^[-+]?\d+,\d+", re.MULTILINE)


def suffix_of(path: Path) -> str:
    """Return the suffix of a file, or that below .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def path_in(text: str, said: dict[str, Any]) -> Path:
    """Return the path in a text such as FILE::role=COLUMN, and add the columns of each role to `said`."""
    name, _, about = (text, "", "") if Path(text).exists() else text.partition("::")
    # A comma in a column name is not followed by a word and =.
    for part in filter(None, re.split(r",(?=\s*\w+=)", about)):
        role, sign, column = part.partition("=")
        if not sign or role.strip() in said:
            raise InvalidInputError(f"{part!r} in {text!r} must be such as user=COLUMN, each once.")
        said[role.strip()] = column.strip()
    return Path(name).expanduser()


def read_file(path: Path) -> Table:
    """Read a file, or a folder of texts, as a whole (see `read_tables`)."""
    [table] = read_tables(path, sys.maxsize - 1)
    return table


def read_tables(path: Path, rows: int) -> Iterator[Table]:
    """Yield the content of a file, by its suffix, or of a folder of texts, with a number of text lines at a time."""
    read = _texts if path.is_dir() else READERS.get(suffix_of(path))
    if read is None:
        known = f"{', '.join(READERS)}, which may be compressed (.gz), or as a folder of texts"
        raise InvalidInputError(f"{path} ends in {path.suffix or 'nothing'}; save it as one of {known}.")
    with reading(path, InvalidInputError):
        yield from read(path, rows)


def _opened(path: Path) -> Any:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


@contextmanager
def decoded(path: Path) -> Iterator[IO[str]]:
    """Open a file, possibly compressed, as text, with one sentence for bytes that are not text."""
    try:
        # Some programs begin a UTF-8 file with a mark.
        with io.TextIOWrapper(_opened(path), "utf-8-sig", newline="") as text:
            yield text
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x}"
        cure = "save it as UTF-8 (iconv -f latin1 -t utf-8), or take it out if it is none, as a picture"
        raise InvalidInputError(f"{path} is not UTF-8 text ({byte}); {cure}.") from None


# Text in columns


def _delimited(path: Path, rows: int) -> Iterator[Table]:
    with decoded(path) as text:
        first = text.readline(HEAD)
        if xmc_head(first.encode()):
            yield from read_svmlight(path, rows)
            return
        # Excel names the separator in a separate line.
        said = re.fullmatch(r'\s*"?sep=(.)"?\s*', first)
        sign, skip = said[1] if said else separator_of(first, suffix_of(path)), int(said is not None)
        names, about = list[str](), Table(path.name, str(path), pd.DataFrame())
        text.seek(0)
        how: Any = {"dtype": object, "na_filter": False, "engine": "python" if len(sign) > 1 else "c"}
        try:
            lines = pd.read_csv(text, sep=sign, header=None, skiprows=skip, chunksize=rows, **how)
        except pd.errors.EmptyDataError:
            raise InvalidInputError(
                f"{path} is empty; bring a file with a line of names, and rows."
            ) from None
        # The first line holds names.
        for frame in chain([lines.get_chunk(rows + 1)], lines):
            if not names:
                names, begin = _header(about, [str(name).strip() for name in frame.iloc[0]], sign)
                frame = frame.iloc[begin:]
                texts = ("\n".join(map(str, frame[name])) for name in frame)
                about.commas = sign == ";" and any(map(DECIMAL_COMMA.search, texts))
                about.notes += ["Its numbers have decimal commas."] * about.commas
            frame.index -= begin
            # Rows that are too short end in gaps, which pandas' Python reader fills with None.
            frame = frame.fillna("") if len(sign) > 1 else frame
            yield named(replace(about, frame=frame, notes=list(about.notes)), names)


def separator_of(line: str, suffix: str) -> str:
    """Return the separator of columns: the most frequent in the first line outside quotes, or tabs in .tsv.

    Double colons may be part of names. They separate in .dat, and if no other character can.
    """
    bare = re.sub(r'"[^"]*"', "", line)
    if "::" in bare and (suffix == ".dat" or not re.search("[,;\t|]", bare)):
        return "::"
    return "\t" if suffix == ".tsv" else max(",;\t|", key=bare.count)


def _header(about: Table, first: list[str], sign: str) -> tuple[list[str], int]:
    """Return the names of columns, and the number, from 0, of the first row of values."""
    known = MOVIELENS.get(about.name.lower().removesuffix(".gz"), ())
    if sign not in ",\t":
        about.notes.append(f"Its columns are separated by {sign!r}.")
    if len(known) == len(first):
        about.notes.append(f"It was taken for a file of MovieLens, with the columns {', '.join(known)}.")
        return list(known), 0
    numbers = pd.to_numeric(pd.Series(first), errors="coerce").notna()
    if numbers.any() and not any(plain(name) in MEANT for name in first):
        cure = "put the names of the columns above it"
        raise InvalidInputError(f"the first line of {about.source} holds numbers; {cure}.")
    return first, 1


def named(table: Table, names: list[str]) -> Table:
    """Name the columns of a table, without a first one that has no name, such as an index."""
    if twice := [name for place, name in enumerate(names) if name and name in names[:place]]:
        raise InvalidInputError(f"{table.source} has two columns called {twice[0]!r}; rename one.")
    called = [name or f"column {place + 1}" for place, name in enumerate(names)]
    table.frame.columns = pd.Index(called, dtype=object)
    if names and names[0] in ("", "Unnamed: 0"):
        table.frame = table.frame.iloc[:, 1:]
        table.notes.append("The first column has no name; it is taken for numbers of rows, and left out.")
    return table


# Texts in folders


def text_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the sorted files in the subfolders of a folder, and the unread ones except hidden files.

    Links out of the folder are not followed.
    """
    files, left, root = [], [], folder.resolve()
    for path in sorted(chain(folder.glob("[!.]*"), folder.glob("[!.]*/[!.]*"))):
        if path.parent != folder and path.is_file() and path.resolve().is_relative_to(root):
            files.append(path)
        elif path.parent != folder or not path.is_dir():
            left.append(f"{path.relative_to(folder)}{'/' * path.is_dir()}")
    return files, left


def texts_of(files: Iterable[Path]) -> tuple[list[str], list[str], list[str]]:
    """Return the texts of files in the subfolders of a folder, their classes, and the names of the files."""
    texts, classes, names = [], [], []
    for path in files:
        with decoded(path) as text:
            texts.append(text.read())
        classes.append(path.parent.name)
        names.append(f"{path.parent.name}/{path.name}")
    return texts, classes, names


def _texts(path: Path, rows: int) -> Iterator[Table]:
    files, left = text_files(path)
    if not files:
        raise InvalidInputError(f"{path} has no subfolders with files; put each text into that of its class.")
    texts, classes, _ = texts_of(files)
    table = read_frame({"label": classes}, f"{path.resolve().name}/", str(path))
    if left:
        table.notes.append(f"Not read: {first_of(left)}.")
    count_terms(table, texts)
    yield table


# Arrays


def _npz(path: Path, rows: int) -> Iterator[Table]:
    """Read the keys X (or its CSR parts), Y, the names of their columns, n_train, and columns under any name."""
    arrays = read_arrays(path)
    if "format" in arrays:  # as scipy writes them
        form = {b"csr": csr_array, b"csc": csc_array}[arrays["format"].item()]
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        yield coordinates(path, sound("the matrix", form(parts, shape=arrays["shape"])))
        return
    X, Y = matrix_in(arrays, "X"), matrix_in(arrays, "Y")
    known = {"feature_names", "label_names"} & set(arrays)
    names = {name: tuple(map(str, arrays.pop(name).tolist())) for name in known}
    first = arrays.pop("n_train", None)
    n = X.shape[0] if X is not None else max((len(one) for one in arrays.values() if one.ndim), default=0)
    columns = {name: one for name, one in arrays.items() if one.shape == (n,)}
    if first is not None:
        columns["istest"] = np.arange(n) >= int(first)
    table = Table(path.name, str(path), pd.DataFrame(index=range(n)), typed=True)
    table = read_frame(columns, path.name, str(path)) if columns else table
    table.X, table.Y, table.names = X, Y, names
    if left := sorted(set(arrays) - set(columns) - {"about"}):
        shapes = ", ".join(f"{name} {arrays[name].shape}" for name in left)
        table.notes.append(f"Not used, of another length or shape than ({n},): {shapes}.")
    yield table


def matrix_in(arrays: dict[str, Any], name: str) -> Any:
    """Take a table of finite floats out of arrays: an array, canonical CSR, or None if there is neither.

    The parts of CSR are ``name_data``, or ones, ``name_indices``, ``name_indptr`` and ``name_shape``.
    """
    if name in arrays:
        return conforming({name: arrays.pop(name)}, {name: (float, (None, None))})[name]
    if f"{name}_indices" not in arrays:
        return None
    indices, indptr, shape = (arrays.pop(f"{name}_{part}") for part in ("indices", "indptr", "shape"))
    data = arrays.pop(f"{name}_data", np.ones(len(indices)))
    return as_rows(csr_array((data, indices, indptr), shape=tuple(shape.tolist())), name)


def _mtx(path: Path, rows: int) -> Iterator[Table]:
    """Read a matrix in coordinate format, since scipy's reader kills the process for some damaged files."""
    with decoded(path) as lines:
        head = lines.readline().lower().split()
        if head[:3] != ["%%matrixmarket", "matrix", "coordinate"] or "general" not in head:
            raise ValueError("its first line must be %%MatrixMarket matrix coordinate real general")
        sizes = next(line for line in lines if line.strip() and not line.startswith("%"))
        m, n, count = map(int, sizes.split())
        entries = np.loadtxt(lines, ndmin=2, comments="%")
    places = entries[:, :2].astype(np.int64) - 1
    if entries.shape != (count, 3) or not np.isfinite(entries).all() or (places + 1 != entries[:, :2]).any():
        raise ValueError(f"it must hold {count} entries of 3 finite numbers")
    yield coordinates(path, coo_array((entries[:, 2], tuple(places.T)), shape=(m, n)))


def coordinates(path: Path, matrix: Any) -> Table:
    """Return the entries of a matrix as ratings, with rows, counted from 1, as items."""
    known = matrix.tocoo()
    columns = {"item": known.row + 1, "user": known.col + 1, "rating": known.data}
    table = read_frame(columns, path.name, str(path))
    many = f"Of {known.shape[0]:,} rows and {known.shape[1]:,} columns rows are taken for items, columns for users"
    table.notes.append(f"{many}; if rows are users, give user=item,item=user.")
    return table


def _parquet(path: Path, rows: int) -> Iterator[Table]:
    package("pyarrow", "pyarrow", instead=f"save {path} as .csv")
    yield read_frame(pd.read_parquet(path), path.name, str(path))


def read_frame(frame: Any, name: str = "frame", source: str = "memory") -> Table:
    """Return the columns of a frame of pandas or polars, or of a mapping."""
    names = list(frame if isinstance(frame, Mapping) else frame.columns)
    table = Table(name, source, pd.DataFrame(), typed=True)
    if any(label is not None for label in getattr(getattr(frame, "index", None), "names", [])):
        table.notes.append("The index is left out; reset_index() makes it a column.")
    columns = [_column(frame[key], f"the column {key!r} of the {name}") for key in names]
    table.frame = pd.DataFrame(dict(enumerate(columns)))
    return named(table, list(map(str, names)))


def _column(given: Any, what: str) -> Any:
    """Return a column of numbers, or of text, empty for missing values."""
    values = array(what, given)
    if values.ndim != 1 or not len(values):
        raise InvalidInputError(f"{what} must be one-dimensional, named once and not empty.")
    if values.dtype.kind in "biuf":
        return values
    if infer_dtype(given, skipna=True) in ("mixed", "mixed-integer"):
        raise InvalidInputError(f"{what} holds lists, or values of several types; make it text, or numbers.")
    return pd.Series(values, dtype=object).map(str, na_action="ignore").fillna("").astype(object)


# Rows of svmlight


def read_svmlight(
    path: Path,
    rows: int,
    n_features: int | None = None,
    zero_based: Any = "auto",
    several: bool | None = None,
) -> Iterator[Table]:
    """Yield lines ``label,label index:value …``, with several labels of a row as indicators.

    Parameters
    ----------
    path : Path
    rows : int
    n_features : int, optional
        Defaults to the largest number in the lines, or to the first line of extreme classification files: rows,
        features, labels.
    zero_based : bool or "auto"
        Whether features count from 0. "auto" means if there is a feature 0.
    several : bool, optional
        Whether rows have several labels. By default this is detected, and only labels that occur are used.
    """
    with _opened(path) as stream:
        head, first, whole = stream.readline(), 1, several is None
        lines = chain([head], stream)
        if said := xmc_head(head):
            next(lines)
            n_features, first, several = n_features or said, 2, several is not False
            zero_based = True if whole else zero_based
        if n_features is None and not whole:
            raise InvalidInputError(f"{path} has no number of features; give n_features (--n-features).")
        while some := list(islice(lines, rows)):
            X, labels = _parsed(path, some, first, n_features, zero_based)
            first += len(some)
            table = Table(path.name, str(path), pd.DataFrame(index=range(len(labels))), X)
            table.notes += ["Words qid:… are left out."] * any(b"qid:" in line for line in some)
            if several is not True and all(len(own) == 1 for own in labels):
                table.frame["label"] = np.concatenate([*labels, []])
            elif several is False:
                raise InvalidInputError(
                    f"{path} has rows with several labels, for rmopt fit ranking (multilabel=True)."
                )
            else:
                binarizer = MultiLabelBinarizer(sparse_output=True)
                Y = as_rows(binarizer.fit_transform(labels), "Y")
                known = binarizer.classes_.astype(np.int64)
                if (known != binarizer.classes_).any() or ((known < 0) | (known > MOST_LABELS)).any():
                    raise InvalidInputError(f"{path} has a label that is no whole number to {MOST_LABELS}.")
                if whole:
                    table.names["label_names"] = tuple(map(str, known.tolist()))
                else:
                    Y = csr_array((Y.data, known[Y.indices], Y.indptr), shape=(len(labels), MOST_LABELS + 1))
                table.Y = Y
            yield table


def _parsed(
    path: Path, lines: list[bytes], first: int, n_features: int | None, zero_based: Any
) -> tuple[Any, Any]:
    """Return the features and the labels of lines, the first of them with its number."""
    rows = [line for line in lines if line.split(b"#", 1)[0].strip()]
    if not rows:
        return csr_array((0, n_features or 1)), []
    how: Any = {"n_features": n_features, "multilabel": True, "zero_based": zero_based}
    with suppress(ValueError, OverflowError):
        X, labels = load_svmlight_file(io.BytesIO(b"".join(rows)), **how)
        if np.isfinite(np.concatenate([X.data, *labels])).all():
            return csr_array(X), labels
    for number, line in enumerate(lines if len(lines) > 1 else [], first):
        _parsed(path, [line], number, n_features, zero_based)
    row = f"'label index:value …' of finite numbers whose indices rise and stay below {n_features or MOST_LABELS}"
    cure = "repair it, or give n_features (--n-features) or zero_based=False (--one-based)"
    raise InvalidInputError(f"line {first} of {path} is no row {row}; {cure}.")


def xmc_head(line: bytes) -> int | None:
    """Return the number of features in a first line of extreme classification: rows, features, labels."""
    said = re.fullmatch(rb"\d+ (\d+) \d+\s*", line)
    return int(said[1]) if said else None


READERS: dict[str, Callable[..., Iterator[Table]]] = {
    ".csv": _delimited, ".tsv": _delimited, ".txt": _delimited, ".dat": _delimited, ".data": _delimited, ".npz": _npz,
    ".svmlight": read_svmlight, ".svm": read_svmlight, ".libsvm": read_svmlight, ".mtx": _mtx, ".parquet": _parquet,
}  # fmt: skip
