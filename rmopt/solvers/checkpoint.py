"""Checkpoints: a run that is killed at any moment goes on from its last one."""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np

from rmopt.arrays import load_arrays, read_arrays, save_arrays
from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, instance, integer, number
from rmopt.core.cost import FiniteSum
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator
from rmopt.core.world import ONE_PROCESS, World
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import reading

_named = bounded(instance, (str, Path), "the name of a file")
_text = bounded(instance, (str, dict), "a text, or a dict of texts by names")
# Of the files; another number for another layout.
FORMAT = 3
# So many terms of a sum are looked at, and all of them where there are no more than these.
TERMS, FEW = 32, 10_000
# Numbers that are nearer, relative to their size here or at the start, are those of the same problem.
NEAR, ROUNDINGS = 1e-10, 1e4


def witness(problem: Problem, point: Any, seed: int) -> dict[str, float]:
    """Return numbers that tell a problem from others at a point, as far as it can be evaluated there.

    The cost and the length of its gradient; of a sum also the length of the gradient of 32 terms that the seed draws,
    and that alone where it has more than 10,000 terms, or nobody knows how many.
    """
    cost, manifold = problem.cost, problem.manifold

    def length(ambient: Any) -> float:
        return manifold.norm(point, manifold.euclidean_to_riemannian_gradient(point, ambient))

    asked: dict[str, Callable[[], float]] = {}
    if not isinstance(cost, FiniteSum) or (cost.n_terms is not None and cost.n_terms <= FEW):
        asked["cost"] = lambda: problem.value(point)
        asked["gradient norm"] = lambda: length(problem.gradient(point))
    if isinstance(cost, FiniteSum):
        rng = generator(seed, Stream.WITNESS)
        ranges = [(max(0, least), 2**31 if most is None else most) for least, most in cost.term_ranges]
        terms = np.column_stack([rng.integers(*ends, size=TERMS) for ends in ranges]).ravel()
        asked["gradient norm of some terms"] = lambda: length(cost.term_gradient(point, terms))
    found = {}
    for name, evaluate in asked.items():
        # Not every cost has values, nor every manifold lengths; a run that needs none goes on without them.
        with np.errstate(all="ignore"), suppress(Exception):
            found[name] = float(evaluate())
    return {name: value for name, value in found.items() if math.isfinite(value)}


def difference(
    saved: Mapping[str, float], now: Mapping[str, float], scale: Mapping[str, float], coarseness: float
) -> str | None:
    """Return in what two witnesses differ, or None; `scale` has the sizes at which nothing is rounding alone."""
    near = max(NEAR, ROUNDINGS * coarseness * float(np.finfo(float).eps))
    for name in {**now, **saved}:
        one, other = saved.get(name, math.inf), now.get(name, math.inf)
        if not math.isclose(one, other, rel_tol=near, abs_tol=near * abs(scale.get(name, 0.0))):
            return f"the {name} is {other:.12g}, and was {one:.12g}"
    return None


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
    def load(self, run: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return the saved state and its description, or None when there is none.

        Raises
        ------
        InvalidInputError
            When the file is not a checkpoint, or belongs to another run; the message names what differs.
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
    tag : str or dict of str
        What else must be the same where the run goes on, such as a version of the data. That it is the same problem
        is asked of the problem itself: its cost and gradient at the saved point must be what they were.

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
    tag: Annotated[str | dict[str, str], _text] = ""

    def pause_after(self, step: int) -> float:
        return math.inf

    def due(self, step: int, seconds: float) -> bool:
        return seconds >= self.every_seconds

    def save(self, arrays: dict[str, Array], about: dict[str, Any]) -> None:
        path = Path(self.path)
        # Another run may have begun to save here since this one looked.
        with suppress(StorageError):
            _refuse_another(path, _run_in(path), about["run"])
        _save(path, arrays, about)

    def seed(self) -> int | None:
        return _seed_in(Path(self.path)) if Path(self.path).exists() else None

    def load(self, run: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        path = Path(self.path)
        if path.exists():
            return _loaded(path, run)
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
    tag : str or dict of str
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
    tag: Annotated[str | dict[str, str], _text] = ""

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

    def load(self, run: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return this process's part of the latest state that all processes have saved, or None.

        Raises
        ------
        InvalidInputError
            When there is no such state, but one of another number of processes; else as of `Checkpoint`.
        """
        common = self.world.least(max(self._steps(), default=-1))
        if common >= 0:
            return _loaded(self._file(common), run)
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


def _run_in(path: Path) -> dict[str, Any]:
    """Return what is told of the run that a file is of, nothing where it tells nothing; its arrays are not read."""
    with reading(path):
        about = json.loads(read_arrays(path, {"about": (str, None)})["about"][0])
    run = about.get("run") if isinstance(about, dict) else None
    return run if isinstance(run, dict) else {}


def _seed_in(path: Path) -> int | None:
    seed = _run_in(path).get("seed")
    return seed if _is_count(seed) else None


def _refuse_another(path: Path, saved: dict[str, Any], run: dict[str, Any]) -> None:
    """Refuse a file of another run."""
    for name in {**run, **saved}:
        if (before := saved.get(name)) != (now := run.get(name)):
            raise InvalidInputError(
                f"the checkpoint {path} belongs to another run: its {name} is {before}, not {now}. Delete it or "
                "choose another path."
            )


def _save(path: Path, arrays: dict[str, Array], about: dict[str, Any]) -> None:
    save_arrays(path, arrays, about | {"checkpoint_format": FORMAT})


def _loaded(path: Path, run: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return what a checkpoint file holds, or refuse one of another run."""
    arrays, about = load_arrays(path)
    if "checkpoint_format" not in about:
        raise InvalidInputError(f"{path} is not a checkpoint; delete it or choose another path.")
    if about["checkpoint_format"] != FORMAT:
        raise StorageError(
            f"the checkpoint {path} is of format {about['checkpoint_format']}, and this version of rmopt "
            f"reads {FORMAT}; delete it, or go on with the version that wrote it."
        )
    if not _is_sound(about):
        raise StorageError(f"the checkpoint {path} is not as it was saved; delete it or choose another path.")
    _refuse_another(path, about["run"], run)
    return arrays, about


def _is_sound(about: dict[str, Any]) -> bool:
    """Return whether the numbers of a description are such as a run can have."""
    step, seconds, rows = (about.get(key) for key in ("step", "seconds", "rows"))
    return (
        isinstance(about.get("run"), dict)
        and all(isinstance(found, dict) for found in about.get("witness", ()))
        and _is_count(step)
        and isinstance(seconds, float)
        and 0.0 <= seconds < math.inf
        and isinstance(rows, list)
        and all(isinstance(row, dict) and _is_count(row.get("step")) and row["step"] <= step for row in rows)
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
