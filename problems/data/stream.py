"""Data that no memory holds: an iterator over chunks of files, which reads ahead and knows its place."""

from __future__ import annotations

import os
import warnings
import zlib
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp

from problems.data.pieces import MOST_FEATURES, PIECES, Format, Piece, beside_it, pieces_of, text_pieces
from rmopt.core.ambient import Array
from rmopt.core.arguments import flag, instance, integer, optional, shown
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.core.values import written
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import save_arrays

Chunk = tuple[Any, Any]

# How much of both ends of a file is looked at to know it again.
ENDS = 4096
# Features to which texts are hashed, unless it is said: 4 MB of a model for each of its rank.
HASHED = 2**18


@dataclass(frozen=True)
class Place:
    """Where a buffer begins, and how many of its chunks were given.

    Attributes
    ----------
    epoch, file, mark, skip : int, int, list of int, int
        The pass, the place of the file in its order, where the reader of a file begins, and rows to leave out.
    buffer : int
        Buffers before this one in the pass.
    given : int
        Chunks of the buffer.
    n_labels : int
        Labels seen before, where rows have several.
    chunks, rows : int
        Given in all.
    reached : int
        The place of the file from which the last row of the buffer is.
    """

    epoch: int = 0
    file: int = 0
    mark: tuple[int, ...] = ()
    skip: int = 0
    buffer: int = 0
    given: int = 0
    n_labels: int = 0
    chunks: int = 0
    rows: int = 0
    reached: int = 0


# Rows, where they begin, and the share that is read with them.
Reads = Generator[tuple[Piece, Place, float], None, None]


class ChunkStream:
    """Chunks (X, y) of files, again and again in the same order; see `stream`, which makes it.

    To iterate goes on where the iteration before was left, and begins anew behind the end; `fit_stream` begins anew
    always, unless it has a checkpoint.

    Parameters
    ----------
    path : path
        As of `stream`, and so are all numbers below.
    batch_size, n_epochs, shuffle_buffer, read_ahead : int
    how : Format
        The rest of what it is told.
    seed : int or None
        Of the order; None: any, and that of the state which `seek` is given.

    Attributes
    ----------
    n_rows : int
        Rows given so far.
    share : float
        How much of all passes was given so far, from 0 to 1, as far as the files say.
    feature_names : tuple of str or None
        Of the chunk that was given last, where its file names them.

    See Also
    --------
    stream : makes it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from problems.data import stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "one.npz", X=np.eye(5), y=np.array([0, 0, 0, 1, 1]))
    ...     chunks = stream(folder, batch_size=2)
    ...     print([len(y) for X, y in chunks], chunks.n_rows, chunks.share)
    [2, 2, 1] 5 1.0
    """

    def __init__(
        self,
        path: Path | str,
        batch_size: int,
        n_epochs: int,
        shuffle_buffer: int,
        read_ahead: int,
        how: Format,
        seed: int | None,
    ) -> None:
        self.path, self._how, self._given, self._seed = Path(path), how, seed, seed_of(seed)
        self._batch_size, self._n_epochs, self._read_ahead = batch_size, n_epochs, read_ahead
        self._shuffled = shuffle_buffer > 0
        # A buffer is some whole chunks.
        self._buffer = batch_size * max(1, round(shuffle_buffer / batch_size))
        self._files, self._texts = files_of(self.path)
        if not how.zero_based and PIECES[".svmlight"] not in map(pieces_of, self._files):
            raise InvalidInputError(
                f"zero_based=False (--one-based) is for svmlight files, and {path} has none; leave it out."
            )
        if self._texts and how.vectorizer is None:
            from sklearn.feature_extraction.text import HashingVectorizer

            width = HASHED if how.n_features is None else how.n_features
            self._how = replace(how, vectorizer=HashingVectorizer(n_features=width), n_features=width)
        # What somebody's vectorizer is before it is used, which may set attributes of it.
        self._vectorizer = copy(self._how.vectorizer)
        self.feature_names: tuple[str, ...] | None = None
        self.rewind()

    def __repr__(self) -> str:
        return f"stream({str(self.path)!r}, batch_size={self._batch_size})"

    @property
    def n_rows(self) -> int:
        """Rows given so far."""
        return self._place.rows

    @property
    def state(self) -> dict[str, Any]:
        """The place behind the last chunk that was given, as JSON takes it; `seek` goes there."""
        place = dict(vars(self._place))
        return {"place": place, "seed": self._seed, "settings": self._settings(), "files": self._known_files}

    def seek(self, state: Mapping[str, Any]) -> None:
        """Go to a place that `state` told, also in another process.

        Raises
        ------
        InvalidInputError
            When the files or the settings are others than they were; the message says what differs.
        """
        for name, now in self._settings().items():
            before = state["settings"].get(name)
            if before != now:
                raise InvalidInputError(
                    f"the stream was read with {name} = {shown(before)}, and now it is {shown(now)}; say {name} as "
                    "before, or begin afresh without the checkpoint."
                )
        if self._given not in (None, state["seed"]) and (self._shuffled or self._texts):
            raise InvalidInputError(
                f"the stream was read with random_state = {state['seed']}, and now it is {self._given}; say it as "
                "before, or begin afresh without the checkpoint."
            )
        before, now = dict(state["files"]), dict(self._known_files)
        place, self._seed = state["place"], state["seed"]
        unread = self._order(0)[place["reached"] + 1 :] if place["epoch"] == 0 and not self._texts else ()
        later = {name for number in unread for name in self._names(self._files[number])}
        for name in sorted(before.keys() | now.keys()):
            # A line that cannot be read may be repaired, if no row of its file was given.
            repaired = name in later and name in before
            if before.get(name) != now.get(name) and not repaired:
                what = "is gone" if name not in now else "is new" if name not in before else "has changed"
                raise InvalidInputError(
                    f"{self._root / name} {what} since the checkpoint; bring the files back as they were (one of "
                    "which no row was learned may be repaired), or begin afresh without the checkpoint."
                )
        if place["epoch"] >= self._n_epochs:
            raise InvalidInputError(
                f"the stream had come to pass {place['epoch'] + 1}, and n_epochs = {self._n_epochs} are fewer; say "
                "as many as before, or begin afresh without the checkpoint."
            )
        self._place = Place(**{**place, "mark": tuple(place["mark"])})
        self._ended = False

    def __iter__(self) -> Iterator[Chunk]:
        if self._ended:
            self.rewind()
        for piece, place, share in _ahead(self._buffers(self._place), self._read_ahead):
            sizes = self._sizes(len(piece))
            ends = np.cumsum(sizes)
            for number in range(place.given, len(sizes)):
                rows = slice(ends[number] - sizes[number], ends[number])
                chunks, n_rows = self._place.chunks + 1, self._place.rows + int(sizes[number])
                self._place = replace(place, given=number + 1, chunks=chunks, rows=n_rows)
                self.share, self.feature_names = share, piece.names
                X, y = (piece.X, piece.y) if len(sizes) == 1 else (piece.X[rows], piece.y[rows])
                if piece.label_names is not None:
                    y.columns = piece.label_names  # as a frame has them
                yield X, y
        self._ended = True

    def rewind(self) -> None:
        """Go to the beginning."""
        self._place, self._ended, self.share = Place(), False, 0.0

    def dealt(self, number: int, count: int) -> ChunkStream:
        """Return the stream of one process of several: every so manieth file, beginning with that of its number.

        Raises
        ------
        InvalidInputError
            When there are fewer files than processes.
        """
        number = integer("number", number, 0, integer("count", count, 1) - 1)
        if len(self._files) < count:
            raise InvalidInputError(
                f"{self.path} has {len(self._files)} file{'s' * (len(self._files) > 1)} for {count} processes; split "
                "the data into as many files, or start fewer processes."
            )
        own = copy(self)
        own._files = self._files[number::count]
        own.__dict__.pop("_known_files", None)
        return own

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
        once._n_epochs = 1
        once.rewind()
        for number, (X, y) in enumerate(once):
            names = {"feature_names": once.feature_names, "label_names": getattr(y, "columns", None)}
            parts = {**_parts("X", X), **_parts("Y" if sp.issparse(y) else "y", y)}
            parts |= {name: np.array(known) for name, known in names.items() if known}
            save_arrays(folder / f"{number:06}.npz", parts, {})

    @property
    def depth(self) -> int:
        """How many folders deep files are: 2 where subfolders are the classes of texts."""
        return 1 + self._texts

    @property
    def _root(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def _settings(self) -> dict[str, Any]:
        how = self._how
        return {
            "batch_size": self._batch_size, "shuffle_buffer": self._buffer * self._shuffled,
            "n_features": how.n_features, "zero_based": how.zero_based, "multilabel": how.multilabel,
            "encoding": how.encoding,
            "vectorizer": self._known_vectorizer,
        }  # fmt: skip

    @cached_property
    def _known_vectorizer(self) -> str | None:
        if self._vectorizer is None:
            return None
        # Where its stop words lie in the memory of a process is no part of it.
        held = {name: one for name, one in vars(self._vectorizer).items() if name != "_stop_words_id"}
        kept = {name: written(one) if callable(one) else one for name, one in held.items()}
        return str(joblib.hash((type(self._vectorizer).__name__, kept)))

    def _names(self, file: Path) -> list[str]:
        """Return the names of a file and of those that are read with it."""
        return [str(one.relative_to(self._root)) for one in (file, *beside_it(file))]

    @cached_property
    def _known_files(self) -> list[list[Any]]:
        """Return for each file what it is known by; of many small ones one digest of all."""
        if not self._texts:
            root = self._root
            names = [name for file in self._files for name in self._names(file)]
            return [[name, _known_by(root / name)] for name in names]
        names = [f"{file.parent.name}/{file.name} {file.stat().st_size}\n" for file in self._files]
        return [[".", [len(names), zlib.crc32("".join(names).encode())]]]

    def _sizes(self, rows: int) -> list[int]:
        """Return the rows of the chunks of a buffer: all as many, but for those of the end of a pass."""
        count = max(1, round(rows / self._batch_size))
        return [self._batch_size] * (count - 1) + [rows - self._batch_size * (count - 1)]

    def _order(self, epoch: int) -> Array:
        """Return the numbers of the files in the order of a pass."""
        if not (self._shuffled or self._texts):
            return np.arange(len(self._files))
        return generator(self._seed, Stream.ORDER, epoch).permutation(len(self._files))

    def _pieces(self, place: Place) -> Reads:
        """Read the files of a pass from a place on; tell with each piece where it begins, and the share read."""
        order = self._order(place.epoch)
        if self._texts:
            paths = [self._files[number] for number in order]
            for piece in text_pieces(paths, self._how, list(place.mark)):
                yield piece, replace(place, mark=tuple(piece.mark), skip=0), piece.share
            return
        sizes = np.array([self._files[number].stat().st_size for number in order], dtype=float)
        before = np.cumsum(sizes) - sizes
        for number in range(place.file, len(order)):
            path = self._files[order[number]]
            read = pieces_of(path)
            assert read is not None
            mark, empty = list(place.mark) if number == place.file else [], True
            with closing(read(path, self._how, mark)) as pieces:
                for piece in pieces:
                    empty = False
                    share = (before[number] + piece.share * sizes[number]) / sizes.sum()
                    yield piece, replace(place, file=number, mark=tuple(piece.mark), skip=0), float(share)
            if empty:
                raise InvalidInputError(f"{path} holds no rows; remove it from the folder.")

    def _buffers(self, place: Place) -> Reads:
        """Read buffers from a place on; each with its place, and the share of all passes that is read with it."""
        while place.epoch < self._n_epochs:
            with closing(self._buffers_of_pass(place)) as buffers:
                for piece, begun, share in buffers:
                    if self._shuffled:
                        rng = generator(self._seed, Stream.ORDER, place.epoch, 1 + begun.buffer)
                        piece = piece.part(rng.permutation(len(piece)))
                    yield piece, begun, (place.epoch + share) / self._n_epochs
            place = Place(epoch=place.epoch + 1, n_labels=begun.n_labels)

    def _buffers_of_pass(self, place: Place) -> Reads:
        waiting: list[tuple[Piece, Place]] = []
        count, n_labels, number = 0, place.n_labels, place.buffer
        skip, given, known = place.skip, place.given, None
        # Rows behind a buffer, without which the last chunk of the pass would be small.
        spare = -(-self._batch_size // 2)
        with closing(self._pieces(place)) as pieces:
            for piece, begun, share in pieces:
                kind = "sparse" if sp.issparse(piece.X) else "dense"
                names = *(piece.names or ()), *(piece.label_names or ())
                form = kind, piece.X.shape[1], names, piece.y.dtype.kind == "U"
                known = known or form
                if form != known:
                    file = self._files[self._order(place.epoch)[begun.file]]
                    raise InvalidInputError(f"{file} {_other(form, known)}")
                # Where reading was taken up again, pieces may end elsewhere than they did.
                left, skip = min(skip, len(piece)), max(0, skip - len(piece))
                if left == len(piece):
                    continue
                if left:
                    piece, begun = piece.part(slice(left, None)), replace(begun, skip=left)
                waiting.append((piece, begun))
                count += len(piece)
                while count >= self._buffer + spare:
                    found, where = _taken(waiting, self._buffer)
                    n_labels = _widest(found, n_labels)
                    yield found, replace(where, buffer=number, given=given, n_labels=n_labels), share
                    count, number, given = count - self._buffer, number + 1, 0
        if count:
            found, where = _taken(waiting, count)
            n_labels = _widest(found, n_labels)
            yield found, replace(where, buffer=number, given=given, n_labels=n_labels), 1.0


def stream(
    path: Path | str,
    *,
    n_features: int | None = None,
    batch_size: int = 10_000,
    n_epochs: int = 1,
    shuffle_buffer: int = 0,
    random_state: Any = None,
    multilabel: bool = False,
    zero_based: bool = True,
    vectorizer: Any = None,
    encoding: str = "utf-8",
    read_ahead: int = 1,
) -> ChunkStream:
    """Return an iterator over chunks (X, y) of a file or a folder, of which few are in memory at a time.

    The next chunks are read by a thread while one is learned. The iterator knows its place (`state`, `seek`), so that
    a run that was killed goes on from it; `fit_stream` of the estimators does that by itself.

    Parameters
    ----------
    path : path
        A file, or a folder with files in alphabetical order: ``.svmlight``, ``.svm`` or ``.libsvm``, also compressed
        (``.gz``, ``.bz2``, ``.xz``), as ``.mtx`` may be: a sparse matrix in coordinate format, its entries row by
        row, with labels beside it in NAME``.labels``, a line for each row; ``.npz`` with X, or its CSR parts X_data,
        X_indices, X_indptr and X_shape, and y, or indicators Y or their parts; ``.csv`` of numbers, with a first line
        of names. Or a folder whose subfolders hold the texts of a class.
    n_features : int, optional
        Needed for svmlight files, which do not say it. Texts are hashed to so many, 262,144 unless given.
    batch_size : int
        Rows of a chunk. The last one of a pass has half to one and a half times as many.
    n_epochs : int
        Passes over the files.
    shuffle_buffer : int
        So many rows are in memory at a time and put in random order, and so are the files; 0: rows come as they lie.
        Texts come in random order always, since their folders are sorted by class.
    random_state : int, RandomState or None
        Of the order. A run that is resumed with None takes that of its checkpoint.
    multilabel : bool
        Whether a row has several labels, as in ``0,17,4 index:value …``: numbers of columns of indicators, from 0, of
        which there are as many as the largest seen so far asks for.
    zero_based : bool
        Whether features of svmlight files count from 0, or from 1.
    vectorizer : object, optional
        A vectorizer of scikit-learn for texts, fitted where it needs to be; a ``HashingVectorizer`` unless given.
    encoding : str
        Of texts, ``.csv`` and ``.labels``.
    read_ahead : int
        Buffers that may wait in memory, beside the one that is read and the one that is used.

    Returns
    -------
    ChunkStream

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
    if vectorizer is not None and not hasattr(vectorizer, "transform"):
        raise InvalidInputError(
            f"vectorizer = {shown(vectorizer)} must have transform, as a HashingVectorizer."
        )
    how = Format(
        optional(integer, 1, MOST_FEATURES)("n_features", n_features),
        flag("zero_based", zero_based),
        flag("multilabel", multilabel),
        vectorizer,
        instance("encoding", encoding, str, "the name of an encoding, such as latin-1"),
    )
    return ChunkStream(
        instance("path", path, (str, os.PathLike), "the path of a file or a folder"),
        integer("batch_size", batch_size, 1),
        integer("n_epochs", n_epochs, 1),
        integer("shuffle_buffer", shuffle_buffer, 0),
        integer("read_ahead", read_ahead, 1),
        how,
        None if random_state is None else seed_of(random_state),
    )


def files_of(path: Path) -> tuple[list[Path], bool]:
    """Return the files of a stream in their order, and whether they are texts in folders by class."""
    known = f"{', '.join(PIECES)} (.svmlight and .mtx also with .gz, .bz2 or .xz behind it)"
    if not path.exists():
        raise StorageError(f"{path} does not exist; check the path.")
    if not path.is_dir():
        files = [path]
        if pieces_of(path) is None:
            raise InvalidInputError(f"{path} has none of the suffixes {known}; rename or convert it.")
    else:
        seen = [one for one in sorted(path.iterdir()) if not one.name.startswith(".")]
        files = [one for one in seen if one.is_file() and pieces_of(one) is not None]
        inside = (one for folder in seen if folder.is_dir() for one in sorted(folder.iterdir()))
        texts = [] if files else [one for one in inside if one.is_file() and one.name[0] != "."]
        if texts:
            _tell_unread(path, [one for one in seen if not one.is_dir()], [])
            return texts, True
        if not files:
            raise InvalidInputError(
                f"the folder {path} has neither files that end in {known}, nor subfolders with the texts of a class."
            )
        _tell_unread(path, seen, files)
    for file in files:
        if not file.stat().st_size:
            raise InvalidInputError(f"{file} is empty; remove it.")
        for labels in beside_it(file):
            if not labels.exists():
                raise InvalidInputError(
                    f"the rows of {file} have no labels; write them into {labels}, a line for each row."
                )
    return files, False


def _tell_unread(path: Path, seen: list[Path], files: list[Path]) -> None:
    """Warn of what lies in a folder and is not read."""
    read = {*files, *(beside for file in files for beside in beside_it(file))}
    other = [f"{one.name}{'/' * one.is_dir()}" for one in seen if one not in read]
    if other:
        warnings.warn(
            f"not read from {path}: {', '.join(other[:5])}{f' and {len(other) - 5} more' * (len(other) > 5)}. A "
            f"stream reads the files of its folder that end in {', '.join(PIECES)}, or, where there is none, texts "
            "in subfolders.",
            UserWarning,
            stacklevel=4,
        )


def _known_by(file: Path) -> list[int]:
    """Return the size of a file, and a checksum of both of its ends."""
    size = file.stat().st_size
    with file.open("rb") as content:
        check = zlib.crc32(content.read(ENDS))
        content.seek(max(0, size - ENDS))
        return [size, zlib.crc32(content.read(ENDS), check)]


def _parts(name: str, rows: Any) -> dict[str, Array]:
    """Return the arrays of a table by the names under which they are read again."""
    if not sp.issparse(rows):
        return {name: rows}
    return {
        f"{name}_data": rows.data, f"{name}_indices": rows.indices, f"{name}_indptr": rows.indptr,
        f"{name}_shape": np.array(rows.shape),
    }  # fmt: skip


def _taken(waiting: list[tuple[Piece, Place]], count: int) -> tuple[Piece, Place]:
    """Take so many rows away from what waits; return them, and where they begin."""
    begun, some, wanted = waiting[0][1], [], count
    while wanted:
        piece, place = waiting.pop(0)
        some.append(piece.part(slice(wanted)) if len(piece) > wanted else piece)
        if len(piece) > wanted:
            waiting.insert(0, (piece.part(slice(wanted, None)), replace(place, skip=place.skip + wanted)))
        wanted -= len(some[-1])
    X, y = (_stacked([getattr(one, name) for one in some]) for name in ("X", "y"))
    whole = replace(some[0], X=X, y=y, n_labels=max(one.n_labels for one in some))
    return whole, replace(begun, reached=place.file)


def _other(form: tuple[Any, ...], known: tuple[Any, ...]) -> str:
    """Return what differs between a file and those before it."""
    if form[:2] != known[:2]:
        return (
            f"holds {form[0]} rows of {form[1]} features, and files before it {known[0]} ones of {known[1]}; all "
            "must have as many, in one form."
        )
    if form[2] != known[2]:
        pairs = zip_longest(form[2], known[2], fillvalue="no name")
        found, before = next(pair for pair in pairs if pair[0] != pair[1])
        return (
            f"names its columns otherwise than files before it: {found} where they have {before}; bring them into "
            "one order, under the same names."
        )
    kinds = ["text" if one[3] else "numbers" for one in (form, known)]
    return (
        f"holds labels that are {kinds[0]}, and rows before them {kinds[1]}, so that 1 and '1' would be two classes; "
        "name all classes by text, or all by whole numbers."
    )


def _stacked(parts: list[Any]) -> Any:
    if not sp.issparse(parts[0]):
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    wide = [sp.csr_array((one.data, one.indices, one.indptr), shape=(one.shape[0], width)) for one in parts]
    return sp.vstack(wide, format="csr")


def _widest(piece: Piece, n_labels: int) -> int:
    """Give indicators as many columns as were needed so far; return how many these are."""
    if not sp.issparse(piece.y):
        return n_labels
    # What the rows hold, and not the pieces that they came in, which end elsewhere when reading is taken up again.
    n_labels = max(n_labels, piece.n_labels, int(piece.y.indices.max(initial=-1)) + 1)
    piece.y = sp.csr_array((piece.y.data, piece.y.indices, piece.y.indptr), shape=(len(piece), n_labels))
    return n_labels


def _ahead(found: Generator[Any, None, None], count: int) -> Iterator[Any]:
    """Yield what an iterator gives, which runs in a thread, ahead by so many at the most."""
    with closing(found), ThreadPoolExecutor(1, "read ahead") as pool:
        waiting = deque(pool.submit(next, found, None) for _ in range(count + 1))
        try:
            while (one := waiting.popleft().result()) is not None:
                waiting.append(pool.submit(next, found, None))
                yield one
                del one
        finally:
            for other in waiting:
                other.cancel()
