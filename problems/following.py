"""An estimator that follows a stream: chunk after chunk, with progress, and checkpoints from which a run goes on."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.threads import threads_of
from problems.validation import check_columns
from rmopt.core import InvalidInputError, StorageError
from rmopt.core.arguments import shown
from rmopt.core.points import arrays_of
from rmopt.core.values import written
from rmopt.core.world import ONE_PROCESS
from rmopt.solvers import Checkpoint, World
from rmopt.solvers.checkpoint import Saver
from rmopt.solvers.continued import Continued
from rmopt.solvers.interrupts import Interrupts
from rmopt.solvers.recorder import ProgressBar

Learn = Callable[[Any, Any, int], object]

# Chunks between two saves of several processes.
CHUNKS = 10

# Parameters on which no bit of a checkpoint depends, or which the seed stands for; and those of `fit` alone.
NO_IDENTITY = ("checkpoint", "verbose", "random_state", "warm_start", "max_iter", "threshold", "top_k")
OF_FIT = ("n_epochs", "tol", "n_iter_no_change", "validation_fraction")
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
    saving: Saver | None = None
    if model.checkpoint is not None:
        saving = Saver("checkpoint", Checkpoint(model.checkpoint, every_steps=CHUNKS), world)
    run = _Run(model, chunks, saving, seed, about, world)
    with (
        Interrupts(saving is not None and world.size == 1) as interrupts,
        _progress(model.verbose, chunks) as told,
    ):
        for X, y in run.rest():
            try:
                run.check_alike(X, y)
                run.learn(learn, X, y)
            except ValueError as error:
                raise InvalidInputError(
                    f"chunk {run.count + 1} of the stream, which begins with row {run.rows + 1}: {error}"
                ) from error
            told(run.rows)
            if interrupts.pending is not None:
                run.save()
                interrupts.deliver()
            elif saving is not None and saving.due(run.count):
                run.save()
        if not run.count:
            raise InvalidInputError(
                "there are no chunks to learn from; an iterator may have been used up before."
            )
        # Before it is saved: a run that goes on has seen no less.
        model._seconds = run.elapsed()
        run.save()


class _Run:
    """A model that follows a stream, how far it is, and where that is kept."""

    def __init__(
        self, model: Any, chunks: Any, saving: Saver | None, seed: int, about: dict[str, Any], world: World
    ) -> None:
        self.model, self.chunks, self.saving, self.seed, self.world = model, chunks, saving, seed, world
        self.count = self.rows = self.given = self.last = 0
        # Where to go on, and where the chunks first ended, in a process that goes on beside others.
        self.place: Any = None
        self.ended: Any = None
        self.begun, self.seconds = time.monotonic(), 0.0
        self.checked = world.size == 1
        if saving is not None or world.size > 1:
            self.told = _told(model, seed, about)
            world.check_alike({**self.told, "checkpoint": saving is not None})
        if saving is not None:
            folder, depth = getattr(chunks, "path", None), getattr(chunks, "depth", 1)
            above = Path(model.checkpoint).resolve().parents[:depth]
            if folder is not None and Path(folder).resolve() in above:
                raise InvalidInputError(
                    f"the checkpoint {model.checkpoint} lies among the files of the stream; choose another folder "
                    "for it."
                )
            self._resume(saving)

    def rest(self) -> Iterator[tuple[Any, Any]]:
        """Yield the chunks that are still to be learned, here or in another process."""
        own = self._once(self.place)
        if self.world.size == 1:
            yield from own
            return
        if self.ended is not None:
            # Where there are more chunks than before, as with more passes, those behind the former end come next.
            further = self._once(self.ended)
            if (found := next(further, None)) is not None:
                self.ended, own = None, chain([found], further)
            elif self.place == self.ended:
                own = further
        while True:
            found = next(own, None)
            if found is None and self.ended is None:
                self.ended = self._where()
            if self.world.least(self.ended is not None):
                return
            if found is None:
                own = self._once(None)
                found = next(own, None)
            if found is None:
                raise InvalidInputError(
                    "the chunks cannot be given again, as a process needs whose chunks end before those of others; "
                    "give a list, or problems.data.stream."
                )
            yield found

    def _where(self) -> Any:
        """Return the place behind the last chunk."""
        return {"chunks": self.given, "last": self.last}

    def _once(self, place: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the chunks that are left of one pass over them, from a place on."""
        number = 0
        skip, known = (place["chunks"], place["last"]) if place else (0, 0)
        self.given, self.last = skip, 0
        for number, chunk in enumerate(self.chunks, 1):
            if not isinstance(chunk, tuple | list) or len(chunk) != 2:
                raise InvalidInputError(
                    f"chunk {number} of the stream must be a pair (X, y), got {shown(chunk)[:80]}."
                )
            if number > skip:
                yield chunk[0], chunk[1]
                continue
            self.last = _digest(chunk[0], chunk[1], self.last)
            if number == skip and self.last != known:
                raise InvalidInputError(
                    f"the first {number} chunks are not those that were learned before the checkpoint "
                    f"{self.model.checkpoint}; {AGAIN}."
                )
        if number < skip:
            raise InvalidInputError(
                f"the stream has {number} chunks, and {skip} were learned before the checkpoint "
                f"{self.model.checkpoint}; {AGAIN}."
            )

    def check_alike(self, X: Any, y: Any) -> None:
        """Refuse chunks that are of another kind than those of other processes."""
        if self.checked:
            return
        self.checked = True
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

    def elapsed(self) -> float:
        """Return for how long the run has learned, with what it was resumed from."""
        return self.seconds + time.monotonic() - self.begun

    def learn(self, learn: Learn, X: Any, y: Any) -> None:
        """Learn a chunk, whose rows go by the names of the columns where their file has some, and note that."""
        names = getattr(self.chunks, "feature_names", None)
        if names is not None:
            check_columns(self.model, SimpleNamespace(columns=names))
            # The rows themselves are arrays without names.
            vars(self.model).pop("feature_names_in_", None)
        try:
            learn(X, y, self.seed)
        finally:
            if names is not None:
                self.model.feature_names_in_ = np.array(names, dtype=object)
        self.count += 1
        self.given += 1
        self.rows += int(X.shape[0]) if hasattr(X, "shape") else len(X)
        if self.saving is not None:
            self.last = _digest(X, y, self.last)

    def save(self) -> None:
        """Write what the model is and how far it is, where there is a checkpoint."""
        if self.saving is None:
            return
        model = self.model
        arrays = {f"run.{name}": one for name, one in model._continued.pack().items()}
        for name in (*model._kept, *model._seen):
            if hasattr(model, name):
                arrays[f"kept.{name}"] = np.asarray(_plain(getattr(model, name)))
        row = {
            "step": model.n_iter_, "chunks": self.count, "rows": self.rows, "seed": self.seed,
            "place": self._where(), "ended": self.ended,
        }  # fmt: skip
        run = self.told | {"seed": self.seed}
        self.saving.save(arrays, run, model.n_iter_, seconds=self.elapsed(), rows=[row])

    def _resume(self, saving: Saver) -> None:
        found = saving.load(self.told | {"seed": saving.seed()})
        if found is None:
            return
        arrays, about = found
        try:
            [row] = about["rows"]
            run = {name[4:]: one for name, one in arrays.items() if name.startswith("run.")}
            kept = {name: arrays[f"kept.{name}"] for name in self.model._kept}
            kept |= {name: arrays[f"kept.{name}"] for name in self.model._seen if f"kept.{name}" in arrays}
            continued = Continued.unpack(run)
            self.count, self.rows, self.seed = (row[name] for name in ("chunks", "rows", "seed"))
            self.place, self.ended, self.seconds = row["place"], row["ended"], about["seconds"]
        except (LookupError, TypeError, ValueError) as error:
            raise StorageError(
                f"the checkpoint {self.model.checkpoint} does not hold a run over a stream ({error}); delete it or "
                "choose another path."
            ) from error
        self.model._stand_at(continued)
        for name, one in kept.items():
            # scikit-learn keeps names as objects.
            one = one.astype(object) if name.endswith("names_in_") else one
            setattr(self.model, name, one if one.ndim else one.item())


def _told(model: Any, seed: int, about: dict[str, Any]) -> dict[str, Any]:
    """Return what a run over a stream depends on, as text by names."""
    begun, given = model._has_learned(), _given(model)
    return {
        "random_state": "drawn" if model.random_state is None else seed,
        **{name: one for name, one in given.items() if name not in OF_FIT},
        **{name: written(one) for name, one in about.items()},
        "initial point": written(arrays_of(model.model_.point)) if begun else "afresh",
        "first step": model.n_iter_ if begun else 0,
    }


def _given(model: Any) -> dict[str, str]:
    """Return the parameters of an estimator on which its run depends, as they are written."""
    parts = {name: one for name, one in model.get_params(deep=False).items() if name not in NO_IDENTITY}
    if "n_jobs" in parts:
        # All cores are as many as a machine has.
        parts["n_jobs"] = threads_of(parts["n_jobs"])
    return {"model": type(model).__name__, **{name: written(one) for name, one in parts.items()}}


def checkpoint_of(model: Any) -> Checkpoint | None:
    """Return where an estimator saves its run, which it names by its parameters."""
    return None if model.checkpoint is None else Checkpoint(model.checkpoint, tag=_given(model))


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


@contextmanager
def _progress(wanted: bool, chunks: Any) -> Iterator[Callable[[int], None]]:
    """Draw a progress bar over a stream: of thousandths where it knows how far it is, otherwise of rows."""
    if not wanted:
        yield lambda rows: None
        return
    knows = hasattr(chunks, "share")
    bar = ProgressBar("stream")
    bar.begin(0, 1000 if knows else None)

    def told(rows: int) -> None:
        bar.note(f"{rows:,} rows")
        bar.advance(round(1000 * chunks.share) if knows else rows)

    try:
        yield told
    finally:
        bar.end()
