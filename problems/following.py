"""An estimator that follows a stream: chunk by chunk, with checkpoints from which it ends with the same bits."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

import rmopt
from problems.threads import threads_of
from problems.validation import check_columns
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import shown
from rmopt.core.runs import running
from rmopt.core.values import written
from rmopt.core.world import ONE_PROCESS, World
from rmopt.files import reading
from rmopt.solvers import Checkpoint, Recorder
from rmopt.solvers.interrupts import Interrupts
from rmopt.solvers.save import Saver
from rmopt.solvers.stochastic.continued import Continued

Learn = Callable[[Any, Any, int], object]

# Chunks between two saves of several processes.
CHUNKS = 10

# Parameters on which no bit of a checkpoint depends, or which the seed stands for.
NO_IDENTITY = (
    "checkpoint", "verbose", "random_state", "max_iter", "n_epochs", "threshold", "top_k",
)  # fmt: skip
AGAIN = "bring files, batch_size, shuffle_buffer and random_state back as they were, or remove the checkpoint"


@running()
def follow(
    model: Any, chunks: Iterable[Any], learn: Learn, seed: int, world: World = ONE_PROCESS, **about: Any
) -> None:
    """Let a model learn all chunks of a stream, from the checkpoint on where there is one.

    Parameters
    ----------
    model : Loreta
        What it has learned is in its attribute ``_continued`` and those that it saves.
    chunks : iterable of (X, y)
        A run is taken up behind as many chunks as were learned, which must be the same again.
    learn : callable
        Learns (X, y, seed) of one chunk.
    seed : int
        Of the run, unless its checkpoint has another one and the model has none.
    world : World
        The processes that learn one model together, each from chunks of its own.
    **about : object
        What the checkpoint belongs to, besides the parameters of the model.
    """
    if not (hasattr(chunks, "__iter__") or hasattr(chunks, "__getitem__")):
        raise InvalidInputError(
            f"chunks = {shown(chunks)} must be an iterable of pairs (X, y), such as problems.data.stream(path)."
        )
    saver = None
    if model.checkpoint is not None:
        saver = Saver("checkpoint", Checkpoint(model.checkpoint, every_steps=CHUNKS), world)
    world.check_alike({"checkpoint": saver is not None})
    saved_seed = saver.seed() if saver is not None else None
    seed = world.first(seed if model.random_state is not None or saved_seed is None else saved_seed)
    run = {
        **settings_of(model),
        **{name: written(value) for name, value in about.items()},
        "seed": seed,
        "rmopt": rmopt.__version__,
    }
    world.check_alike(run)
    stream, seconds = _Stream(model, chunks, learn, seed, world), 0.0
    if saver is not None and (saved := saver.load(run)) is not None:
        with reading(saver.path, InvalidInputError):
            stream.unpack(saved[0])
            seconds = float(saved[1]["seconds"])
    first = stream.steps
    recorder = Recorder(progress=model.verbose, description="rows of the stream")
    recorder.begin(stream.rows, None, [])
    try:
        with Interrupts(saver is not None and world.size == 1) as interrupts:
            for chunk in stream.rest():
                began = time.perf_counter()
                stream.learn(*chunk)
                seconds += time.perf_counter() - began
                recorder.advance(stream.rows)
                if saver is not None and (saver.due(stream.steps) or interrupts.pending is not None):
                    saver.save(stream.pack(), run, stream.steps, seconds=seconds)
                    interrupts.deliver()
            if stream.steps == 0:
                raise InvalidInputError(
                    "there are no chunks to learn from; an iterator may have been used up before."
                )
            if saver is not None and stream.steps > first:
                saver.save(stream.pack(), run, stream.steps, seconds=seconds)
    finally:
        recorder.end()
    model._seconds = seconds
    if (names := getattr(chunks, "feature_names", None)) is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


class _Stream:
    """The chunks of a run, and its place among them.

    Attributes
    ----------
    steps, rows : int
        Chunks and rows that this process learned so far.
    place, check : int
        Chunks of this pass over the stream that were learned, and a checksum of them.
    whole : int
        Chunks of a pass, where they have ended in a process that goes on beside others; 0 before.
    """

    def __init__(self, model: Any, chunks: Any, learn: Learn, seed: int, world: World) -> None:
        self.model, self.chunks, self.learner, self.seed, self.world = model, chunks, learn, seed, world
        self.steps = self.rows = self.place = self.check = self.whole = 0
        self.alike = world.size == 1

    def rest(self) -> Iterator[tuple[Any, Any]]:
        """Yield the chunks that are left; where they end before those of other processes they begin again."""
        coming = self._once(self.place, self.check)
        while True:
            chunk = next(coming, None)
            self.whole = self.whole if chunk is not None else self.whole or self.place
            if self.world.least(chunk is None or self.whole > 0):
                return
            if chunk is None:
                coming = self._once(0, 0)
                chunk = next(coming, None)
            if chunk is None:
                raise InvalidInputError(
                    "the chunks cannot be given again, as a process needs whose chunks end before those of others; "
                    "give a list, or problems.data.stream."
                )
            yield chunk

    def _once(self, skip: int, known: int) -> Iterator[tuple[Any, Any]]:
        """Yield the chunks of one pass without the first ones, which must have the checksum that is known."""
        number, self.place, self.check = 0, skip, 0
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

    def learn(self, X: Any, y: Any) -> None:
        """Learn a chunk."""
        try:
            self._check_alike(X)
            if (names := getattr(self.chunks, "feature_names", None)) is not None:
                # The rows are arrays without the names that their file has.
                check_columns(self.model, SimpleNamespace(columns=names))
                vars(self.model).pop("feature_names_in_", None)
            self.learner(X, y, self.seed)
        except ValueError as error:
            raise InvalidInputError(
                f"chunk {self.steps + 1} of the stream, which begins with row {self.rows + 1}: {error}"
            ) from error
        self.steps, self.place = self.steps + 1, self.place + 1
        self.rows += int(X.shape[0]) if hasattr(X, "shape") else len(X)
        if self.model.checkpoint is not None:
            self.check = _digest(X, y, self.check)

    def _check_alike(self, X: Any) -> None:
        """Refuse first chunks that are of another kind than those of other processes."""
        if self.alike:
            return
        self.alike = True
        columns = getattr(self.chunks, "feature_names", None) or tuple(getattr(X, "columns", ()))
        self.world.check_alike({"the number of features": np.shape(X)[-1], "the order of features": columns})

    def pack(self) -> dict[str, Array]:
        """Return the arrays that hold the place and what was learned."""
        model = self.model
        kept = [name for name in (*model._numbers, *model._optional) if hasattr(model, name)]
        return {
            "place": np.array([self.steps, self.rows, self.place, self.check, self.whole]),
            **{f"run.{name}": array for name, array in model._continued.pack().items()},
            **{f"kept.{name}": np.asarray(_plain(getattr(model, name))) for name in kept},
        }

    def unpack(self, arrays: dict[str, Array]) -> None:
        """Go to the place that `pack` kept, and let the model have learned what it had."""
        self.steps, self.rows, self.place, self.check, self.whole = arrays["place"].tolist()
        if self.whole == self.place:
            # More chunks may have come since, as with more passes.
            self.whole = 0
        parts: dict[str, dict[str, Array]] = {"run": {}, "kept": {}}
        for name, array in arrays.items():
            if name != "place":
                part, _, name = name.partition(".")
                parts[part][name] = array
        self.model._stand_at(Continued.unpack(parts["run"]))
        for name, array in parts["kept"].items():
            # scikit-learn keeps names as objects.
            array = array.astype(object) if name.endswith("names_in_") else array
            setattr(self.model, name, array if array.ndim else array.item())


def settings_of(model: Any) -> dict[str, str]:
    """Return the parameters of an estimator on which its run depends, as they are written."""
    parts = {name: value for name, value in model.get_params(deep=False).items() if name not in NO_IDENTITY}
    if "n_jobs" in parts:
        # All cores are as many as a machine has.
        parts["n_jobs"] = threads_of(parts["n_jobs"])
    return {"model": type(model).__name__, **{name: written(value) for name, value in parts.items()}}


def checkpoint_of(model: Any, **data: Any) -> Checkpoint | None:
    """Return where an estimator saves its run, which it names by its parameters and its data, to the last bit."""
    if model.checkpoint is None:
        return None
    held = {name: written(_parts_of(table) if sp.issparse(table) else table) for name, table in data.items()}
    return Checkpoint(model.checkpoint, tag=settings_of(model) | held)


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
