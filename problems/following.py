"""An estimator that follows a stream: a run like any other, whose steps are chunks."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from problems.threads import threads_of
from problems.validation import check_columns
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import shown
from rmopt.core.points import arrays_of
from rmopt.core.values import written
from rmopt.core.world import ONE_PROCESS, World
from rmopt.solvers import Checkpoint, Converged, Recorder, Solver
from rmopt.solvers.stochastic.continued import Continued

Learn = Callable[[Any, Any, int], object]

# Chunks between two saves of several processes.
CHUNKS = 10

# Parameters on which no bit of a checkpoint depends, or which the seed stands for; and those of `fit` alone.
NO_IDENTITY = (
    "checkpoint",
    "verbose",
    "random_state",
    "warm_start",
    "max_iter",
    "n_epochs",
    "threshold",
    "top_k",
)
OF_FIT = ("tol", "n_iter_no_change", "validation_fraction")
AGAIN = "bring files, batch_size, shuffle_buffer and random_state back as they were, or remove the checkpoint"


def follow(
    model: Any, chunks: Iterable[Any], learn: Learn, seed: int, world: World = ONE_PROCESS, **about: Any
) -> None:
    """Let a model learn all chunks of a stream, from the checkpoint on where there is one.

    Parameters
    ----------
    model : Loreta
        What it has learned is in its attributes ``_continued`` and those that it names in ``_kept``.
    chunks : iterable of (X, y)
        A run is taken up behind as many chunks as were learned, which must be the same again.
    learn : callable
        Learns (X, y, seed) of one chunk.
    seed : int
        Of the run, unless its checkpoint has another one.
    world : World
        The processes that learn one model together, each from chunks of its own.
    **about : object
        What the checkpoint belongs to, besides the parameters of the model.
    """
    if not (hasattr(chunks, "__iter__") or hasattr(chunks, "__getitem__")):
        raise InvalidInputError(
            f"chunks = {shown(chunks)} must be an iterable of pairs (X, y), such as problems.data.stream(path)."
        )
    saving = None
    if model.checkpoint is not None:
        saving = Checkpoint(model.checkpoint, every_steps=CHUNKS)
        folder, depth = getattr(chunks, "path", None), getattr(chunks, "depth", 1)
        if folder is not None and Path(folder).resolve() in Path(model.checkpoint).resolve().parents[:depth]:
            raise InvalidInputError(
                f"the checkpoint {model.checkpoint} lies among the files of the stream; choose another folder for it."
            )
    stream = _Stream(model, chunks, learn, seed, world, about)
    drawn = model.random_state is None and saving is not None
    result = stream.run(
        model,
        random_state=None if drawn else seed,
        recorder=_Progress(stream),
        checkpoint=saving,
    )
    model._seconds = result.seconds


class _Place(NamedTuple):
    """How many chunks were learned. What was learned is in the model."""

    steps: int = 0
    updates: int = 0
    point: tuple[()] = ()


class _Stream(Solver):
    """Learns the chunks of a stream, of which each is a step.

    Attributes
    ----------
    rows : int
        Learned so far.
    given, check : int
        Chunks of this pass over the stream that were learned, and a checksum of them.
    place, ended : (int, int) or None
        `given` and `check` where to go on, and where the chunks first ended in a process that goes on beside others.
    """

    max_iter = 2**62

    def __init__(
        self, model: Any, chunks: Any, learn: Learn, seed: int, world: World, about: dict[str, Any]
    ) -> None:
        self.model, self.chunks, self.learn, self.seed, self.world = model, chunks, learn, seed, world
        begun = model._has_learned()
        self.told = {
            **{name: value for name, value in given(model).items() if name not in OF_FIT},
            **{name: written(value) for name, value in about.items()},
            "initial point": written(arrays_of(model.model_.point)) if begun else "afresh",
            "first step": str(model.n_iter_ if begun else 0),
        }
        self.rows = self.given = self.check = 0
        self.place: tuple[int, int] | None = None
        self.ended: tuple[int, int] | None = None
        self.coming: Iterator[Any] | None = None
        self.chunk: Any = None
        self.failure: Exception | None = None
        self.alike = world.size == 1

    # What a run asks for

    def check_problem(self, problem: Any) -> None:
        """Take the model as it is."""

    def _world(self, problem: Any) -> World:
        return self.world

    def belongs_to(self, problem: Any) -> dict[str, str]:
        return self.told

    def _alike(self, problem: Any, initial_point: Any) -> dict[str, Any]:
        return self.told

    def _started(self, problem: Any, initial_point: Any, rng: Any) -> Any:
        return ()

    def check_end(self, problem: Any, point: Any) -> None:
        """Take the end as it is; `Continued.point` says whether it is finite."""

    def witness(self, problem: Any, work: Any, state: Any, seed: int) -> dict[str, float]:
        return {}

    def prepare(self, problem: Any, seed: int, first_step: int) -> int:
        return seed

    def begin(self, work: int, point: Any) -> _Place:
        return _Place()

    def finished(self, work: int, state: _Place) -> str | None:
        """Fetch the next chunk; a stream that breaks off does so when that is to be learned, after the save."""
        self.coming = self._rest() if self.coming is None else self.coming
        try:
            self.chunk = next(self.coming, None)
        except Exception as error:
            self.failure = error
            return None
        if self.chunk is None and state.steps == 0:
            raise InvalidInputError(
                "there are no chunks to learn from; an iterator may have been used up before."
            )
        return Converged("the end of the stream") if self.chunk is None else None

    def advance(self, work: int, state: _Place, steps: int) -> _Place:
        if steps == 0:
            return state
        if self.failure is not None:
            raise self.failure
        X, y = self.chunk
        try:
            self._check_alike(X, y)
            self._learn(X, y, work)
        except ValueError as error:
            raise InvalidInputError(
                f"chunk {state.steps + 1} of the stream, which begins with row {self.rows + 1}: {error}"
            ) from error
        self.given += 1
        self.rows += int(X.shape[0]) if hasattr(X, "shape") else len(X)
        if self.model.checkpoint is not None:
            self.check = _digest(X, y, self.check)
        return _Place(state.steps + 1, self.model.n_updates_)

    def pack(self, work: int, state: _Place) -> dict[str, Array]:
        model, ended = self.model, self.ended or (-1, -1)
        arrays = {"place": np.array([*state[:2], self.rows, self.given, self.check, *ended])}
        if state.steps:
            arrays |= {f"run.{name}": array for name, array in model._continued.pack().items()}
            kept = [name for name in (*model._kept, *model._seen) if hasattr(model, name)]
            arrays |= {f"kept.{name}": np.asarray(_plain(getattr(model, name))) for name in kept}
        return arrays

    def unpack(self, work: int, arrays: dict[str, Array], template: Any) -> _Place:
        model, held = self.model, dict(arrays)
        steps, updates, self.rows, *place = held.pop("place").tolist()
        self.place, self.ended = tuple(place[:2]), tuple(place[2:]) if place[2] >= 0 else None
        model._stand_at(Continued.unpack({key[4:]: one for key, one in held.items() if key[:4] == "run."}))
        kept = {name: held[f"kept.{name}"] for name in model._kept}
        kept |= {name: held[f"kept.{name}"] for name in model._seen if f"kept.{name}" in held}
        for name, array in kept.items():
            # scikit-learn keeps names as objects.
            array = array.astype(object) if name.endswith("names_in_") else array
            setattr(model, name, array if array.ndim else array.item())
        return _Place(steps, updates)

    # The chunks

    def _rest(self) -> Iterator[tuple[Any, Any]]:
        """Yield the chunks that are still to be learned, here or in another process."""
        own = self._once(self.place)
        if self.world.size == 1:
            yield from own
            return
        if self.ended is not None:
            # Where there are more chunks than before, as with more passes, those behind the former end come next.
            further = self._once(self.ended)
            if (chunk := next(further, None)) is not None:
                self.ended, own = None, chain([chunk], further)
            elif self.place == self.ended:
                own = further
        while True:
            chunk = next(own, None)
            if chunk is None and self.ended is None:
                self.ended = self.given, self.check
            if self.world.least(self.ended is not None):
                return
            if chunk is None:
                own = self._once(None)
                chunk = next(own, None)
            if chunk is None:
                raise InvalidInputError(
                    "the chunks cannot be given again, as a process needs whose chunks end before those of others; "
                    "give a list, or problems.data.stream."
                )
            yield chunk

    def _once(self, place: tuple[int, int] | None) -> Iterator[tuple[Any, Any]]:
        """Yield the chunks that are left of one pass over them, from a place on."""
        number = 0
        skip, known = place or (0, 0)
        self.given, self.check = skip, 0
        for number, chunk in enumerate(self.chunks, 1):
            if not isinstance(chunk, tuple | list) or len(chunk) != 2:
                raise InvalidInputError(
                    f"chunk {number} of the stream must be a pair (X, y), got {shown(chunk)[:80]}."
                )
            if number > skip:
                yield chunk[0], chunk[1]
                continue
            self.check = _digest(chunk[0], chunk[1], self.check)
            if number == skip and self.check != known:
                raise InvalidInputError(
                    f"the first {number} chunks are not those that were learned before the checkpoint "
                    f"{self.model.checkpoint}; {AGAIN}."
                )
        if number < skip:
            raise InvalidInputError(
                f"the stream has {number} chunks, and {skip} were learned before the checkpoint "
                f"{self.model.checkpoint}; {AGAIN}."
            )

    def _check_alike(self, X: Any, y: Any) -> None:
        """Refuse chunks that are of another kind than those of other processes."""
        if self.alike:
            return
        self.alike = True
        shape = X.shape if hasattr(X, "shape") else np.shape(X)
        columns = getattr(self.chunks, "feature_names", None) or tuple(getattr(X, "columns", ()))
        kind = "b" if sp.issparse(y) else np.asarray(_plain(np.asarray(y))).dtype.kind
        self.world.check_alike(
            {
                "the number of features": (shape or (0,))[-1],
                "the order of features": columns,
                "the kind of labels": "numbers" if kind in "biuf" else "text",
            }
        )

    def _learn(self, X: Any, y: Any, seed: int) -> None:
        """Learn a chunk, whose rows go by the names of the columns where their file has some."""
        names = getattr(self.chunks, "feature_names", None)
        if names is not None:
            check_columns(self.model, SimpleNamespace(columns=names))
            # The rows themselves are arrays without names.
            vars(self.model).pop("feature_names_in_", None)
        try:
            self.learn(X, y, seed)
        finally:
            if names is not None:
                self.model.feature_names_in_ = np.array(names, dtype=object)


class _Progress(Recorder):
    """Draws a bar over a stream: of thousandths where it knows how far it is, otherwise of rows."""

    def __init__(self, stream: _Stream) -> None:
        super().__init__(progress=stream.model.verbose, description="stream")
        self.stream = stream

    def begin(self, step: int, n_steps: int, rows: list[dict[str, Any]]) -> None:
        total: Any = 1000 if hasattr(self.stream.chunks, "share") else None
        super().begin(0, total, rows)

    def advance(self, step: int) -> None:
        if self._bar is not None:
            rows, share = self.stream.rows, getattr(self.stream.chunks, "share", None)
            self._bar.note(f"{rows:,} rows")
            self._bar.advance(rows if share is None else round(1000 * share))


def given(model: Any) -> dict[str, str]:
    """Return the parameters of an estimator on which its run depends, as they are written."""
    parts = {name: one for name, one in model.get_params(deep=False).items() if name not in NO_IDENTITY}
    if "n_jobs" in parts:
        # All cores are as many as a machine has.
        parts["n_jobs"] = threads_of(parts["n_jobs"])
    return {"model": type(model).__name__, **{name: written(one) for name, one in parts.items()}}


def checkpoint_of(model: Any, **data: Any) -> Checkpoint | None:
    """Return where an estimator saves its run, which it names by its parameters and its data, to the last bit."""
    if model.checkpoint is None:
        return None
    held = {name: written(_parts_of(one) if sp.issparse(one) else one) for name, one in data.items()}
    return Checkpoint(model.checkpoint, tag=given(model) | held)


def _parts_of(matrix: Any) -> list[Array]:
    """Return the arrays that hold a sparse matrix, the same whatever the order of its entries."""
    rows = matrix.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return [rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)]


def _plain(value: Any) -> Any:
    """Return names as an array of text, which files keep without pickle."""
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype.hasobject else value


def _digest(X: Any, y: Any, check: int) -> int:
    """Return a checksum of a chunk and of those before it."""
    for part in (X, y):
        rows: Any = part.tocsr() if sp.issparse(part) else None
        arrays = [part] if rows is None else [rows.data, rows.indices, rows.indptr, rows.shape]
        for array in map(np.asarray, arrays):
            # An array of objects holds where they lie in memory.
            content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
            check = zlib.crc32(content, check)
    return check
