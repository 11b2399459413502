"""Checkpoints: a run that is killed at any moment goes on from its last one."""

import json
import math
import re
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from rmopt.arrays import load_arrays, read_arrays, save_arrays
from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, instance, integer, number, optional
from rmopt.core.identity import fingerprint
from rmopt.core.world import ONE_PROCESS, World
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading

_named = bounded(instance, (str, Path), "the name of a file")
_texts = optional(bounded(instance, dict, "a dict of texts by names"))
# Of the files; another number for another layout.
FORMAT = 2
# What a run was given, beside its identity.
GIVEN = "given"


class Saving(ABC):
    """Where and when a run saves its state."""

    @abstractmethod
    def pause_after(self, step: int) -> float:
        """Return the next step at which the run must pause to save; infinity: it may save after any step."""

    @abstractmethod
    def due(self, step: int, seconds: float) -> bool:
        """Return whether to save after a step, this long after the last time."""

    def seed(self) -> int | None:
        """Return the seed of the run that is saved, for one that names none; None: it draws its own."""
        return None

    @abstractmethod
    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        """Write a state and its description."""

    @abstractmethod
    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return the saved state and its description, or None when there is none.

        Raises
        ------
        InvalidInputError
            When the file is not a checkpoint, or belongs to a run with another identity; the message
            names what differs.
        StorageError
            When the file is damaged, or of another version of rmopt.
        """


@dataclass(frozen=True)
class Checkpoint(CheckedValue, Saving):
    """A checkpoint of a run in one process, saved by the clock.

    Solvers take a path in its place. A run that finds a checkpoint of itself goes on from there and ends with the
    same bits as a run that was never interrupted, also with a larger budget than before; one whose criterion looks at
    measurements must plan the same ones. Files are replaced atomically. Ctrl-C and SIGTERM end a run as soon as its
    state is saved; a second one ends it at once.

    Attributes
    ----------
    path : Path
        The file; ``.npz`` by custom.
    every_seconds : float
        Least time between two saves.
    given : dict of str, optional
        What made the run, such as the parameters of an estimator: a refusal names what differs among these.

    See Also
    --------
    SharedCheckpoint : of a run on several processes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import LBFGS, Checkpoint
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saving = Checkpoint(Path(folder) / "run.npz")
    ...     one = LBFGS().run(problem, random_state=0, checkpoint=saving)
    ...     other = LBFGS().run(problem, random_state=0, checkpoint=saving)
    >>> bool((one.point == other.point).all())
    True
    """

    path: Annotated[Path | str, _named]
    every_seconds: Annotated[float, bounded(number, least=0)] = 30.0
    given: Annotated[dict[str, str] | None, _texts] = None

    def pause_after(self, step: int) -> float:
        return math.inf

    def due(self, step: int, seconds: float) -> bool:
        return seconds >= self.every_seconds

    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        path = Path(self.path)
        # Another run may have begun to save here since this one looked.
        with suppress(StorageError):
            _refuse_another(path, _identity_in(path), about["identity"])
        _save(path, arrays, about)

    def seed(self) -> int | None:
        return _seed_in(Path(self.path)) if Path(self.path).exists() else None

    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        path = Path(self.path)
        if path.exists():
            return _loaded(path, identity)
        _refuse_others(path, {count for _, count, _ in _parts(path)}, 1, SharedCheckpoint)
        return None


def saving(name: str, value: Any, world: World = ONE_PROCESS) -> Saving:
    """Return where a run of some processes saves its state; a path names the file, or what files begin with."""
    if isinstance(value, (str, Path)):
        return Checkpoint(value) if world.size == 1 else SharedCheckpoint(value, world=world)
    found = cast(Saving, instance(name, value, Saving, "a path, a Checkpoint, or None"))
    kept = isinstance(found, (Checkpoint, SharedCheckpoint))
    if kept and world.size > 1 and getattr(found, "world", ONE_PROCESS).size != world.size:
        raise InvalidInputError(
            f"the run has {world.size} processes, each of which must save its own part; give {name} as a path, or as "
            "SharedCheckpoint(path, world=world) with the same world."
        )
    return found


@dataclass(frozen=True)
class SharedCheckpoint(CheckedValue, Saving):
    """A checkpoint of a run on several processes: each saves its own part, all at the same steps.

    The two latest generations are kept, so that a process that dies while it saves leaves one that is whole
    everywhere. Files are called after `path`, the process, their number and the step. A run goes on with as many
    processes as it began with.

    Attributes
    ----------
    path : Path
    every_steps : int
        Steps between two saves.
    world : World
        The processes.
    given : dict of str, optional
        As of `Checkpoint`.

    See Also
    --------
    Checkpoint : of a run in one process.

    References
    ----------
    Elnozahy, Alvisi, Wang and Johnson, A survey of rollback-recovery protocols in message-passing systems, ACM
    Computing Surveys 34 (2002), https://doi.org/10.1145/568522.568525.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import SGD, SharedCheckpoint
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saving = SharedCheckpoint(Path(folder) / "run", every_steps=50)
    ...     result = SGD(0.01, max_iter=100).run(problem, random_state=0, checkpoint=saving)
    ...     print(len(list(Path(folder).iterdir())))
    2
    """

    path: Annotated[Path | str, _named]
    every_steps: Annotated[int, bounded(integer, 1)] = 1000
    world: Annotated[World, bounded(instance, World, "a World")] = ONE_PROCESS
    given: Annotated[dict[str, str] | None, _texts] = None

    def pause_after(self, step: int) -> float:
        return (step // self.every_steps + 1) * self.every_steps

    def due(self, step: int, seconds: float) -> bool:
        return step % self.every_steps == 0

    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        """Write this process's part; return when all have written theirs."""
        step = about["step"]
        _save(self._file(step), arrays, about)
        self.world.least(step)
        for older in sorted(self._steps())[:-2]:
            self._file(older).unlink(missing_ok=True)

    def seed(self) -> int | None:
        latest = max(self._steps(), default=None)
        return None if latest is None else _seed_in(self._file(latest))

    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return this process's part of the latest state that all processes have saved, or None.

        Raises
        ------
        InvalidInputError
            When there is no such state, but one of another number of processes; else as of `Checkpoint`.
        """
        common = self.world.least(max(self._steps(), default=-1))
        if common >= 0:
            return _loaded(self._file(common), identity)
        path = Path(self.path)
        counts = {count for _, count, _ in _parts(path)} - {self.world.size} | (
            {1} if path.exists() else set()
        )
        _refuse_others(path, set().union(*self.world.everywhere(counts)), self.world.size, Checkpoint)
        return None

    def _file(self, step: int) -> Path:
        path, world = Path(self.path), self.world
        return path.with_name(f"{path.stem}.rank{world.rank}of{world.size}.step{step}{path.suffix}")

    def _steps(self) -> list[int]:
        own = self.world.rank, self.world.size
        return [step for rank, count, step in _parts(Path(self.path)) if (rank, count) == own]


def _parts(path: Path) -> list[tuple[int, int, int]]:
    """Return the process, the number of processes and the step of each file that a `SharedCheckpoint` wrote."""
    # Those of version 0.2 do not say the number: 0.
    form = rf"{re.escape(path.stem)}\.rank(\d+)(?:of(\d+))?\.step(\d+){re.escape(path.suffix)}"
    names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    found = filter(None, (re.fullmatch(form, name) for name in names))
    return [(int(one[1]), int(one[2] or 0), int(one[3])) for one in found]


def _refuse_others(path: Path, counts: set[int], size: int, other: type[Saving]) -> None:
    """Refuse to begin anew where another number of processes, or one in another way, saved a run."""
    for count in counts:
        if count == size:
            raise InvalidInputError(
                f"the checkpoint {path} was saved by a {other.__name__}; take one again, delete its files, or choose "
                "another path."
            )
        raise InvalidInputError(
            f"the checkpoint {path} was saved by {count or 'another number of'} process{'es' * (count != 1)}, and "
            f"now there {'is 1' if size == 1 else f'are {size}'}; start as many as then, or delete its "
            "files, or choose another path."
        )


def _identity_in(path: Path) -> dict[str, Any]:
    """Return the identity of the run that a file is of, empty where it tells none; its arrays are not read."""
    with reading(path):
        about = json.loads(read_arrays(path, {"about": (str, None)})["about"][0])
    identity = about.get("identity") if isinstance(about, dict) else None
    return identity if isinstance(identity, dict) else {}


def _seed_in(path: Path) -> int | None:
    seed = _identity_in(path).get("seed")
    return seed if _is_count(seed) else None


def _refuse_another(path: Path, saved: dict[str, Any], identity: dict[str, Any]) -> None:
    """Refuse a file of a run with another identity; what was given says best in what it differs."""
    if all(saved.get(key) == identity.get(key) for key in {*identity, *saved} - {GIVEN}):
        return
    before, now = saved.get(GIVEN), identity.get(GIVEN)
    if not (isinstance(before, dict) and isinstance(now, dict)):
        before, now = (saved, identity) if before is now else ({}, {})
    name = next((name for name in (*now, *before) if before.get(name) != now.get(name)), None)
    why = "it has other data, or began otherwise (fit, fit_stream, a warm start)"
    if name is not None:
        why = f"its {name} is {before.get(name)}, not {now.get(name)}"
    raise InvalidInputError(
        f"the checkpoint {path} belongs to another run: {why}. Delete it or choose another path."
    )


def _save(path: Path, arrays: dict[str, Array], about: dict[str, Any]) -> None:
    save_arrays(path, arrays, about | {"checkpoint_format": FORMAT, "content": _content(arrays, about)})


def _loaded(path: Path, identity: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return what a checkpoint file holds, or refuse one of another run."""
    arrays, about = load_arrays(path)
    saved = about.get("identity") if isinstance(about, dict) else None
    if not isinstance(saved, dict):
        raise InvalidInputError(f"{path} is not a checkpoint; delete it or choose another path.")
    if about.get("checkpoint_format") != FORMAT:
        raise StorageError(
            f"the checkpoint {path} is of format {about.get('checkpoint_format', 1)}, and this version of rmopt "
            f"reads {FORMAT}; delete it, or go on with the version that wrote it."
        )
    _refuse_another(path, saved, identity)
    if about.pop("content", None) != _content(arrays, about) or not _is_sound(about):
        raise StorageError(f"the checkpoint {path} is not as it was saved; delete it or choose another path.")
    return arrays, about


def _content(arrays: dict[str, Array], about: dict[str, Any]) -> str:
    told = json.dumps([about.get(key) for key in ("identity", "step", "seconds", "rows")])
    return fingerprint([told, sorted(arrays.items())])


def _is_sound(about: dict[str, Any]) -> bool:
    """Return whether the numbers of a description are such as a run can have."""
    step, seconds, rows = (about.get(key) for key in ("step", "seconds", "rows"))
    return (
        _is_count(step)
        and isinstance(seconds, float)
        and 0.0 <= seconds < math.inf
        and isinstance(rows, list)
        and all(isinstance(row, dict) and _is_count(row.get("step")) and row["step"] <= step for row in rows)
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
