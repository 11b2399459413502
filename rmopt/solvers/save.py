"""Checkpoints, from the last of which a killed run resumes."""

import json
import math
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, instance, integer, number, shown
from rmopt.core.cost import FiniteSum
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator
from rmopt.core.world import ONE_PROCESS, World
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import load_arrays, read_arrays, reading, save_arrays

# The format of the files; the number changes with their layout.
FORMAT = 4
# A save evaluates this many terms of a sum, and all of them up to this number.
TERMS, FEW = 32, 10_000
# The same numbers at the start, which a run and each continuation evaluate once.
START_TERMS, MANY = 2048, 1_000_000
# Numbers that are closer, relative to their size here or at the start, belong to the same problem.
NEAR, ROUNDINGS = 1e-10, 1e4
# A run spends less than one part in this many on its saves.
SPARING = 20
ANEW = "delete it or choose another path"
_text = bounded(instance, (str, dict), "a text, or a dict of texts by names")


def file_name(name: str, value: Any) -> Any:
    """Return the name of an existing or possible file, and refuse folders, devices and impossible names."""
    instance(name, value, (str, os.PathLike), "a path, or None")
    try:
        why = "" if stat.S_ISREG(Path(value).stat().st_mode) else "it is a folder or a device"
    except (FileNotFoundError, NotADirectoryError):
        return value
    except (OSError, ValueError) as error:
        why = str(error)
    if why:
        raise InvalidInputError(f"{name} = {shown(value)} cannot be a file: {why}; choose another path.")
    return value


@dataclass(frozen=True)
class Checkpoint(CheckedValue):
    """The file and the times of a run's saves. Solvers also take a path.

    A run that finds its own checkpoint resumes from there, and is bit-identical to an uninterrupted run, even with a
    larger budget than before. If its criterion uses measurements, these must be the same. The problem must be the
    same: cost and gradient at the start and at the saved point are compared, for a sum of over a million terms those
    of some terms. Files are replaced atomically. Ctrl-C and SIGTERM end a run as soon as its state is saved. A second
    one ends it at once.

    Several processes save by steps: the first one writes the states of all, and the same number must resume.

    Attributes
    ----------
    path : Path
        The file, usually ``.npz``.
    every_seconds : float
        Least time between two saves.
    tag : str or dict of str
        Further values that must be the same on resumption, such as a version of the data.
    every_steps : int
        Steps between two saves of several processes.

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

    path: Annotated[Path | str, file_name]
    every_seconds: Annotated[float, bounded(number, least=0)] = 30.0
    tag: Annotated[str | dict[str, str], _text] = ""
    every_steps: Annotated[int, bounded(integer, 1)] = 1000


class Saver:
    """The file of a checkpoint, for all processes of a world, and the time of its last save.

    Parameters
    ----------
    name : str
        Of the argument.
    value : path or Checkpoint
    world : World
    """

    def __init__(self, name: str, value: Any, world: World = ONE_PROCESS) -> None:
        plan = Checkpoint(value) if isinstance(value, (str, Path)) else value
        self.plan: Checkpoint = instance(name, plan, Checkpoint, "a path, a Checkpoint, or None")
        self.path, self.world = Path(self.plan.path), world
        self.saved, self.took = time.monotonic(), 0.0

    def pause_after(self, step: int) -> float:
        """Return the next step at which the run must pause to save, or infinity if it may save after any step."""
        every = self.plan.every_steps
        return math.inf if self.world.size == 1 else (step // every + 1) * every

    def due(self, step: int) -> bool:
        """Return whether to save after a step."""
        if self.world.size > 1:
            return step % self.plan.every_steps == 0
        wait = self.plan.every_seconds and max(self.plan.every_seconds, SPARING * self.took)
        return time.monotonic() - self.saved >= wait

    def seed(self) -> int | None:
        """Return the seed of the saved run, or None if there is none."""
        first = self.world.rank == 0 and self.path.exists()
        seed = self.world.first(_run_in(self.path).get("seed") if first else None)
        return seed if type(seed) is int else None

    def save(self, arrays: Mapping[str, Array], run: dict[str, Any], step: int, **about: Any) -> None:
        """Write the states of all processes and their description. All call it together."""
        began, run = time.monotonic(), run | {"number of processes": self.world.size}
        # The rounding of products depends on the memory order: axes by descending strides.
        strided = {name: array.strides for name, array in arrays.items() if not array.flags.c_contiguous}
        odd = {name: np.argsort(-np.abs(jumps), kind="stable").tolist() for name, jumps in strided.items()}
        arrays = {**arrays, **{name: arrays[name].transpose(axes) for name, axes in odd.items()}}
        parts = self.world.everywhere((arrays, about | {"axes": odd}))
        if self.world.rank == 0:
            # Another run may have begun to save here in the meantime.
            with suppress(StorageError):
                _refuse_another(self.path, _run_in(self.path) if self.path.exists() else run, run)
            stored = {f"{i}.{name}": array for i, (own, _) in enumerate(parts) for name, array in own.items()}
            told = {"run": run, "step": step, "parts": [part for _, part in parts]}
            save_arrays(self.path, stored, told | {"checkpoint_format": FORMAT})
        self.saved = time.monotonic()
        self.took = self.saved - began

    def load(self, run: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Return the saved state and its description, or None if there is none.

        Raises
        ------
        InvalidInputError
            If the file is not a checkpoint, or belongs to another run.
        StorageError
            If the file is damaged, or of another version of rmopt.
        """
        path, world = self.path, self.world
        saved = world.first(load_arrays(path) if world.rank == 0 and path.exists() else None)
        if saved is None:
            return None
        stored, about = saved
        if "checkpoint_format" not in about:
            raise InvalidInputError(f"{path} is not a checkpoint; {ANEW}.")
        if about["checkpoint_format"] != FORMAT:
            raise StorageError(
                f"the checkpoint {path} is of format {about['checkpoint_format']}, and this version of rmopt reads "
                f"{FORMAT}; delete it, or resume with the version that wrote it."
            )
        with reading(path, InvalidInputError):
            if world.rank == 0:
                # Others may have their own parameters, such as the step sizes of agents.
                _refuse_another(path, about["run"], run | {"number of processes": world.size})
            own, arrays = about["parts"][world.rank], {}
            for key, array in stored.items():
                process, _, name = key.partition(".")
                if int(process) == world.rank:
                    axes = own["axes"].get(name, range(array.ndim))
                    arrays[name] = np.asarray(array, order="C").transpose(np.argsort(axes))
        return arrays, {"step": about["step"], **own}


def witness(
    problem: Problem, point: Any, seed: int, most: float = FEW, some: int = TERMS
) -> dict[str, float]:
    """Return numbers that identify a problem at a point, as far as it can be evaluated there.

    The cost and the length of its gradient. For a sum also the length of the gradient of `some` random terms, and
    that alone if it has more than `most` terms, or an unknown number.
    """
    cost, manifold = problem.cost, problem.manifold

    def length(ambient: Any) -> float:
        return manifold.norm(point, manifold.euclidean_to_riemannian_gradient(point, ambient))

    numbers: dict[str, Callable[[], float]] = {}
    if not isinstance(cost, FiniteSum) or (cost.n_terms is not None and cost.n_terms <= most):
        numbers["cost"] = lambda: problem.value(point)
        numbers["gradient norm"] = lambda: length(problem.gradient(point))
    if isinstance(cost, FiniteSum):
        rng = generator(seed, Stream.WITNESS)
        ranges = [(max(0, least), 2**31 if most is None else most) for least, most in cost.term_ranges]
        terms = np.column_stack([rng.integers(*ends, size=some) for ends in ranges]).ravel()
        numbers["gradient norm of some terms"] = lambda: length(cost.term_gradient(point, terms))
    known = {}
    for name, evaluate in numbers.items():
        # Not every cost has values, nor every manifold lengths, and a run that needs none continues without them.
        with np.errstate(all="ignore"), suppress(Exception):
            if math.isfinite(value := float(evaluate())):
                known[name] = value
    return known


def difference(saved: list[dict[str, float]], now: list[dict[str, float]], coarseness: float) -> str | None:
    """Return in which number the witnesses at the start and at the current point differ from saved ones, or None."""
    near, scale = max(NEAR, ROUNDINGS * coarseness * float(np.finfo(float).eps)), now[0]
    for place, before, after in zip(("at the start", "where it stands"), saved, now, strict=True):
        for name in {**after, **before}:
            old, new = before.get(name, math.inf), after.get(name, math.inf)
            # At the start numbers are larger than rounding.
            if not math.isclose(old, new, rel_tol=near, abs_tol=near * abs(scale.get(name, 0.0))):
                return f"{place} the {name} is {new:.12g}, and was {old:.12g}"
    return None


def _run_in(path: Path) -> dict[str, Any]:
    """Return the description of the run in a file, or an empty one, without reading its arrays."""
    with reading(path):
        about = json.loads(read_arrays(path, {"about": (str, None)})["about"][0])
        return about.get("run", {})


def _refuse_another(path: Path, saved: dict[str, Any], run: dict[str, Any]) -> None:
    for name in {**run, **saved}:
        if (before := saved.get(name)) != (now := run.get(name)):
            raise InvalidInputError(
                f"the checkpoint {path} belongs to another run: its {name} is {before}, not {now}; {ANEW}."
            )
