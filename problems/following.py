"""An estimator that follows a stream: chunk by chunk, with checkpoints from which it resumes bit-identically."""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

import rmopt
from problems.saving import names_to_store
from problems.threads import threads_of
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import shown
from rmopt.core.matrices import as_rows
from rmopt.core.runs import running
from rmopt.core.values import written
from rmopt.files import reading
from rmopt.solvers import Checkpoint, Recorder
from rmopt.solvers.save import Saver
from rmopt.solvers.stochastic.continued import Continued
from rmopt.solvers.threads import Interrupts

# Parameters that do not affect a checkpoint, or that the seed represents.
NO_IDENTITY = (
    "checkpoint", "verbose", "random_state", "max_iter", "n_epochs", "threshold", "top_k",
)  # fmt: skip
AGAIN = "restore files, batch_size and random_state, or remove the checkpoint"


@running()
def follow(
    model: Any, chunks: Iterable[Any], learn: Callable[[Any, Any, int], object], seed: int, **about: Any
) -> None:
    """Let a model learn all chunks of a stream, from the checkpoint on if there is one.

    Parameters
    ----------
    model : Loreta
        Its learned state is in its attribute ``_continued`` and the saved ones.
    chunks : iterable of (X, y)
        A run resumes after the learned chunks, which must be the same again.
    learn : callable
        Learns (X, y, seed) of one chunk.
    seed : int
        The seed of the run, unless its checkpoint has another one and the model has none.
    **about : object
        Further identity of the checkpoint, in addition to the parameters of the model.
    """
    if not (hasattr(chunks, "__iter__") or hasattr(chunks, "__getitem__")):
        raise InvalidInputError(
            f"chunks = {shown(chunks)} must be an iterable of pairs (X, y), such as problems.data.stream(path)."
        )
    saver = None if model.checkpoint is None else Saver("checkpoint", Checkpoint(model.checkpoint))
    if saver is not None and model.random_state is None and (saved_seed := saver.seed()) is not None:
        seed = saved_seed
    run = {
        **settings_of(model),
        **{name: written(value) for name, value in about.items()},
        "seed": seed,
        "rmopt": rmopt.__version__,
    }
    # Numbers of learned chunks and rows, and their checksum.
    steps, rows, check, seconds = 0, 0, 0, 0.0
    if saver is not None and (saved := saver.load(run)) is not None:
        with reading(saver.path, InvalidInputError):
            steps, rows, check = _unpack(model, saved[0])
            seconds = float(saved[1]["seconds"])
    first = steps
    recorder = Recorder(progress=model.verbose, description="rows of the stream")
    recorder.begin(rows, None, [])
    try:
        with Interrupts(saver is not None) as interrupts:
            for X, y in _left(chunks, steps, check, model.checkpoint):
                began = time.perf_counter()
                try:
                    _check_names(model, chunks)
                    learn(X, y, seed)
                except ValueError as error:
                    place = f"chunk {steps + 1} of the stream, which begins with row {rows + 1}"
                    raise InvalidInputError(f"{place}: {error}") from error
                steps, rows = steps + 1, rows + (X.shape[0] if hasattr(X, "shape") else len(X))
                seconds += time.perf_counter() - began
                recorder.advance(rows)
                if saver is not None:
                    check = _digest(X, y, check)
                    if saver.due(steps) or interrupts.pending is not None:
                        saver.save(_pack(model, steps, rows, check), run, steps, seconds=seconds)
                        interrupts.deliver()
            if steps == 0:
                raise InvalidInputError(
                    "there are no chunks to learn from; an iterator may have been used up before."
                )
            if saver is not None and steps > first:
                saver.save(_pack(model, steps, rows, check), run, steps, seconds=seconds)
    finally:
        recorder.end()
    model._seconds = seconds
    if (names := getattr(chunks, "feature_names", None)) is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


def _left(chunks: Iterable[Any], learned: int, known: int, checkpoint: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the chunks after the learned ones, which must have the known checksum."""
    number = check = 0
    for number, chunk in enumerate(chunks, 1):
        if not isinstance(chunk, tuple | list) or len(chunk) != 2:
            raise InvalidInputError(
                f"chunk {number} of the stream must be a pair (X, y), got {shown(chunk)[:80]}."
            )
        if number > learned:
            yield chunk[0], chunk[1]
            continue
        check = _digest(chunk[0], chunk[1], check)
        if number == learned and check != known:
            raise InvalidInputError(
                f"the first {number} chunks are not those learned before the checkpoint {checkpoint}; {AGAIN}."
            )
    if number < learned:
        raise InvalidInputError(
            f"the stream has {number} chunks, and {learned} were learned before the checkpoint {checkpoint}; {AGAIN}."
        )


def _check_names(model: Any, chunks: Any) -> None:
    """Refuse other feature names in the files of a stream, whose rows are arrays, than those of the model."""
    names, known = getattr(chunks, "feature_names", None), getattr(model, "feature_names_in_", None)
    if names is not None and known is not None and list(names) != list(known):
        raise InvalidInputError(
            f"X has the columns {shown(list(names))}, and those before {shown(list(known))}; bring them into that "
            "order."
        )
    if names is not None:
        vars(model).pop("feature_names_in_", None)


def _pack(model: Any, *place: int) -> dict[str, Array]:
    """Return the arrays for a place in a stream and the state learned up to there."""
    kept = [name for name in (*model._numbers, *model._optional) if hasattr(model, name)]
    return {
        "place": np.array(place),
        **{f"run.{name}": array for name, array in model._continued.pack().items()},
        **{f"kept.{name}": names_to_store(name, np.asarray(getattr(model, name))) for name in kept},
    }


def _unpack(model: Any, arrays: dict[str, Array]) -> list[int]:
    """Restore the state from `_pack` in the model, and return the place."""
    place, parts = arrays.pop("place").tolist(), dict[str, dict[str, Array]](run={}, kept={})
    for name, array in arrays.items():
        part, _, name = name.partition(".")
        parts[part][name] = array
    model._stand_at(Continued.unpack(parts["run"]))
    for name, array in parts["kept"].items():
        # scikit-learn stores names as objects.
        array = array.astype(object) if name.endswith("names_in_") else array
        setattr(model, name, array if array.ndim else array.item())
    return place


def settings_of(model: Any) -> dict[str, str]:
    """Return the parameters of an estimator that affect its run, as text."""
    parts = {name: value for name, value in model.get_params(deep=False).items() if name not in NO_IDENTITY}
    if "n_jobs" in parts:
        # The number of all cores depends on the machine.
        parts["n_jobs"] = threads_of(parts["n_jobs"])
    return {"model": type(model).__name__, **{name: written(value) for name, value in parts.items()}}


def checkpoint_of(model: Any, **data: Any) -> Checkpoint | None:
    """Return the checkpoint of an estimator's run, identified by its parameters and exact data."""
    if model.checkpoint is None:
        return None
    held = {name: written(_parts_of(table) if sp.issparse(table) else table) for name, table in data.items()}
    return Checkpoint(model.checkpoint, tag=settings_of(model) | held)


def _parts_of(matrix: Any) -> list[Array]:
    """Return the arrays of a sparse matrix, independent of the order of its entries."""
    rows = as_rows(matrix, "the data")
    return [rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)]


def _digest(X: Any, y: Any, check: int) -> int:
    """Return a checksum of a chunk and all earlier ones."""
    for part in (X, y):
        rows: Any = part.tocsr() if sp.issparse(part) else None
        arrays = [part] if rows is None else [rows.data, rows.indices, rows.indptr, rows.shape]
        for array in map(np.asarray, arrays):
            # An array of objects contains memory addresses.
            content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
            check = zlib.crc32(content, check)
    return check
