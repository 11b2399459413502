"""Data sets by name: their registration, loading, and files."""

import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

import pooch

from problems.data.bundles import Bundle
from problems.data.files import path_in, read_file, read_frame, text_files, texts_of
from problems.data.tables import KINDS, Table, bundle_of, note_unused, parted, roles_of
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading

__all__ = ["data_folder", "load", "read_texts"]

B = TypeVar("B", bound=Bundle)
CHECKSUMS = Path(__file__).with_name("checksums.txt")
DATA_HOME = (
    "\n\nParameters\n----------\ndata_home : path, optional\n    The folder of the data, as in `load`."
)


def load(data: Any, data_home: Path | str | None = None, kind: type[B] = Bundle, **columns: Any) -> B:  # type: ignore[assignment]
    """Load a registered data set, or a file, a folder or a frame of your own.

    Parameters
    ----------
    data : str, path or frame
        A name of the entry-point group ``rmopt.datasets``, such as ``"digits"``; a file with the suffix .csv, .tsv,
        .txt, .dat, .npz, .svmlight, .svm, .libsvm, .mtx or .parquet; a folder whose subfolders hold the texts of a
        class; or a frame of pandas or polars, or a dict of columns. A registered name takes precedence over a file;
        ``./name`` is a file. The meaning of columns may follow a file:
        ``"ratings.csv::user=uid,item=movie,rating=stars"``.
    data_home : path, optional
        For registered data sets, see `data_folder`.
    kind : type
        The required kind, by default any `Bundle`.
    **columns : str or list of str
        The meaning of columns, if their names do not imply it: ``user``, ``item`` and ``rating`` (and ``time``) or
        ``tag``; ``label`` (one column of classes, or several labels), ``task``, ``test``, ``text``, ``name``,
        ``drop``. And the treatment: ``duplicates`` ("sum", "mean" or "last"), ``zeros`` ("missing"), ``split`` (a
        separator of labels in a cell).

    Returns
    -------
    Bundle
        A bundle of the required kind.

    Raises
    ------
    InvalidInputError
        If there is no such data set, it is of another kind, the loader is broken, or data cannot be used.
    StorageError
        If files can neither be read nor fetched.

    See Also
    --------
    stream : files larger than memory.
    read_texts : a folder of texts.

    Examples
    --------
    >>> from problems.data import load
    >>> columns = {"who": ["ann", "bob"], "film": ["Brazil", "Alien"], "stars": [5, 3]}
    >>> ratings = load(columns, user="who")
    >>> ratings.shape, ratings.column_names.tolist()
    ((2, 2), ['ann', 'bob'])
    """
    if not isinstance(data, str | os.PathLike):
        if not isinstance(data, Mapping) and not hasattr(data, "columns"):
            kinds = "a name, a path, a frame or a dict of columns"
            raise InvalidInputError(f"data must be {kinds}, got {type(data).__name__}.")
        return bundle_of(read_frame(data), columns, kind)
    known, name = {entry.name: entry for entry in entry_points(group="rmopt.datasets")}, str(data)
    if name not in known or isinstance(data, os.PathLike):
        return bundle_of(*own_table(name, dict(columns), known), kind)
    if columns:
        raise InvalidInputError(f"the data set {name!r} has no columns to name; leave out {list(columns)}.")
    if not isinstance(bundle := known[name].load()(data_home), kind):
        kinds = f"{type(bundle).__name__}, not a {kind.__name__}"
        raise InvalidInputError(f"the data set {name!r} gave a {kinds}.")
    return bundle


def own_table(text: str, said: dict[str, Any], known: Collection[str] = ()) -> tuple[Table, dict[str, Any]]:
    """Read the file that a text names, and return the given meanings of its columns."""
    path = path_in(text, said)
    if not path.exists():
        hint = "".join(f" Did you mean {close!r}?" for close in get_close_matches(path.name, known, n=1))
        sets = f"known data sets: {', '.join(sorted(known))}.{hint}"
        where = f"nor a file or folder in {Path.cwd()}"
        raise InvalidInputError(f"there is no data set {text!r}, {where}; {sets}")
    return read_file(path), said


def read_texts(
    path: Path | str, say: Callable[[str], object] = str
) -> tuple[list[str], list[str], list[str]]:
    """Read texts and their classes from a folder whose subfolders are classes, or from a table.

    Parameters
    ----------
    path : path
        For example ``mail`` with ``mail/spam/1.txt`` and ``mail/ham/2.txt``, without hidden files and links out of
        the folder. Or a table with a column of texts and one of labels, as ``mails.csv::text=body,label=kind``.
    say : callable, optional
        Called with remarks on a table, such as its unused columns. By default they are dropped.

    Returns
    -------
    texts : list of str
    classes : list of str
    names : list of str
        The names of the files, as ``spam/1.txt``, or a column called name, title or id whose entries all differ, or
        given by ``name=COLUMN``, or the numbers of the rows, from 1, as ``mails.csv, row 1``.

    Raises
    ------
    InvalidInputError
        If there are no subfolders with files, no columns of texts and labels, or a file is not text.

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
    if Path(path).is_dir():
        return texts_of(text_files(Path(path))[0])
    table, given = parted(*own_table(str(path), {}))
    roles = roles_of(table, KINDS[-1], given) or {}
    if "text" not in roles:
        wanted = f"a column of texts and one of labels, as {table.name}::text=COLUMN,label=COLUMN"
        raise InvalidInputError(f"{path} must have {wanted}, and has {table.listed()}; name them.")
    note_unused(table, roles)
    for note in table.notes:
        say(f"{table.name}: {note}")
    found = {role: table.frame[names[0]].astype(str).tolist() for role, names in roles.items()}
    rows = [f"{table.name}, row {number}" for number in range(1, len(table.frame) + 1)]
    return found["text"], found["label"], found.get("name", rows)


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
        If the argument or the variable is not a folder.
    """
    named = data_home or os.environ.get("RMOPT_DATA_HOME")
    if not named:
        return Path(pooch.os_cache("rmopt"))
    if not (folder := Path(named).expanduser()).is_dir():
        raise InvalidInputError(f"the folder of the data {str(named)!r} does not exist; create it first.")
    return folder


@dataclass(frozen=True)
class Source:
    """The source of a data set, and a decorator that turns a reader into a loader with the data folder.

    Attributes
    ----------
    origin : str
        The address of the public source, or the origin of the data.
    files : tuple of str
        Names in the data folder, of which the first existing one is read. Without names the reader takes no path.
    downloads : list of str
        Addresses of the parts of the last file, which pooch compares with ``checksums.txt``.
    fetch : callable, optional
        Makes the data if no file exists. Without it and downloads, users bring the file.
    """

    origin: str
    files: tuple[str, ...] = ()
    downloads: Sequence[str] = ()
    fetch: Callable[[], Any] | None = None

    def there(self, data_home: Path | str | None = None) -> Path | None:
        """Return the file to read, or None."""
        folder = data_folder(data_home)
        return next((folder / file for file in self.files if (folder / file).is_file()), None)

    def fetched(self, folder: Path) -> Path:
        """Download, compare and unpack the data, and return the file to read."""
        if not self.downloads:
            raise OSError(f"they are to be put into {folder}")
        checksums = dict(line.split() for line in CHECKSUMS.read_text().splitlines()[1:])
        for address in self.downloads:
            unpack = pooch.Unzip([self.files[-1]], extract_dir=".") if address.endswith(".zip") else None
            name = address.rpartition("/")[2]
            pooch.retrieve(address, checksums[name], name, folder, unpack)
        return folder / self.files[-1]

    def __call__(self, read: Callable[..., B]) -> Callable[..., B]:
        @wraps(read)
        def load_it(data_home: Path | str | None = None) -> B:
            if not self.files:
                return read()
            path = self.there(data_home)
            try:
                if path is None and self.fetch is not None:
                    return self.fetch()
                path = path or self.fetched(data_folder(data_home))
            # pooch raises a ValueError if a checksum differs.
            except (OSError, ValueError) as error:
                why = f"could not be fetched ({shorten(str(error), 160)}); connect to the network once"
                bring = f"a folder with {' or '.join(self.files)}"
                how = "pass as --data-home (or set RMOPT_DATA_HOME to)"
                raise StorageError(f"the data of {self.origin} {why}, or {how} {bring}.") from error
            with reading(path):
                return read(path)

        del load_it.__wrapped__
        doc = inspect.cleandoc(read.__doc__ or "")
        load_it.__doc__ = re.sub(r"(?=\n\n.+\n---|\Z)", DATA_HOME, doc, count=1) + "\n"
        vars(load_it)["source"] = self
        return load_it
