"""pymanopt, both ways: its optimizers on rmopt's manifolds, and its manifolds of single arrays as rmopt manifolds."""

import copy
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pymanopt
from pymanopt import optimizers
from pymanopt.manifolds import (
    Positive,
    SkewSymmetric,
    SphereSubspaceComplementIntersection,
    SphereSubspaceIntersection,
    Symmetric,
)
from pymanopt.manifolds.manifold import Manifold as PymanoptManifold
from pymanopt.manifolds.manifold import RetrAsExpMixin

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, number, one_of, shown
from rmopt.core.manifold import Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.core.runs import running
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.core.transport import ByProjection
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.solvers.batch.oracle import Oracle
from rmopt.solvers.batch.premise import held
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.run import Result, Solver, StopRule, finite_numbers
from rmopt.solvers.save import Checkpoint
from rmopt.solvers.stop import Converged, asked
from rmopt.solvers.threads import one_blas_thread

# From here on isinstance(rmopt manifold, pymanopt manifold) holds, which is all that pymanopt asks for.
PymanoptManifold.register(Manifold)


def to_pymanopt(problem: Problem) -> pymanopt.Problem:
    """Return a problem for pymanopt's optimizers: cost, gradient and, where known, Hessian and preconditioner.

    Parameters
    ----------
    problem : Problem

    Examples
    --------
    >>> import pymanopt, rmopt
    >>> from rmopt.interop import to_pymanopt
    >>> from rmopt.manifolds import Sphere
    >>> problem = to_pymanopt(rmopt.Problem(Sphere(3), rmopt.autograd_cost(lambda x: x[0])))
    >>> result = pymanopt.optimizers.SteepestDescent(verbosity=0).run(problem)
    >>> result.cost < -0.999
    True
    """
    instance("problem", problem, Problem, "a Problem; rmopt's manifolds are pymanopt's as they are")
    return _watched(problem, Watch(problem, Recorder(), None))


def _watched(problem: Problem, watch: "Watch") -> pymanopt.Problem:
    manifold, cost = problem.manifold, problem.cost
    wrap = pymanopt.function.numpy(manifold)
    parts: dict[str, Any] = {"euclidean_gradient": wrap(watch.gradient)}
    if problem.lacks_hessian() is None:
        parts["euclidean_hessian"] = wrap(watch.hessian)
    if hasattr(cost, "precondition"):
        parts["preconditioner"] = cost.precondition
    return pymanopt.Problem(manifold, wrap(watch.value), **parts)


class Watch:
    """What is seen of an optimizer at work: its calls are counted, its iterations measured, and it may be stopped.

    It stands where it asks for the gradient, right after the cost; one that asks for none keeps the best point.
    """

    def __init__(self, problem: Problem, recorder: Recorder, stop: StopRule | None) -> None:
        self.problem, self.recorder, self.stop = problem, recorder, stop
        self.counts = dict.fromkeys(("costs", "gradients", "hessians", "retractions"), 0)
        self.tried: tuple[Any, float] = None, np.inf
        (self.point, self.cost), self.searched = self.tried, False
        self.reason: str | None = None
        self.seconds, self.begun = 0.0, time.perf_counter()

    def value(self, point: Any) -> float:
        """Return the cost, and keep the point where it is the lowest and no gradient tells where the run stands."""
        self.counts["costs"] += 1
        found = self.problem.value(point)
        self.tried = point, found
        if not self.counts["gradients"] and found < self.cost:
            self.point, self.cost = self.tried
        # Line searches shorten a step to infinity, and accept one to NaN.
        return np.inf if np.isnan(found) else found

    def gradient(self, point: Any) -> Any:
        """Return the gradient, and keep the point."""
        self.counts["gradients"] += 1
        self.point, self.cost = self.tried
        return self.problem.gradient(point)

    def hessian(self, point: Any, direction: Any) -> Any:
        """Return the Euclidean Hessian along a direction."""
        self.counts["hessians"] += 1
        return self.problem.cost.hessian(point, direction)  # type: ignore[attr-defined]

    def iteration(self, number: int, gradient_norm: float) -> str | None:
        """Add a row, and return why to stop, or None; the clock stands still meanwhile."""
        if self.recorder.rows and self.recorder.rows[-1]["step"] == number:
            # A swarm asks once for each of its points.
            return None
        if self.searched and self.tried[1] <= self.cost:
            # The end of a search, which goes back where all trials are higher.
            self.point, self.cost = self.tried
        self.seconds += time.perf_counter() - self.begun
        row = {"step": number, "updates": number, "seconds": self.seconds, "cost": float(self.cost)}
        if np.isfinite(gradient_norm):
            row["gradient_norm"] = float(gradient_norm)
        self.recorder.measure(self.point, row | self.counts)
        self.recorder.advance(number)
        self.reason = None if self.stop is None else asked(self.stop, self.recorder.rows)
        self.begun = time.perf_counter()
        return self.reason

    def watching(self, optimizer: Any) -> Any:
        """Return a copy of an optimizer that tells of its iterations."""
        twin = copy.copy(optimizer)
        self.searched = isinstance(twin, optimizers.SteepestDescent)
        check = twin._check_stopping_criterion

        def checked(**seen: Any) -> str | None:
            return self.iteration(seen.get("iteration", -1), seen.get("gradient_norm", np.inf)) or check(
                **seen
            )

        twin._check_stopping_criterion = checked
        return twin


NAMES = ("SteepestDescent", "ConjugateGradient", "TrustRegions", "NelderMead", "ParticleSwarm")


class PymanoptSolver(Solver):
    """One of pymanopt's batch optimizers as an rmopt solver.

    Parameters
    ----------
    optimizer : str or pymanopt optimizer
        "SteepestDescent", "ConjugateGradient", "TrustRegions", "NelderMead", "ParticleSwarm", or an optimizer made
        by pymanopt. The last two need no gradient but a logarithm, and begin at many points, of which the initial
        point is one.
    **options : object
        Passed to the optimizer when it is given by name, e.g. ``max_iterations``.

    Raises
    ------
    InvalidInputError
        For an unknown optimizer or an option that it does not have.

    See Also
    --------
    rmopt.solvers.ConjugateGradient : rmopt's own, which take less time.

    References
    ----------
    Townsend, Koep and Weichwald, Pymanopt: a Python toolbox for optimization on manifolds using automatic
    differentiation, JMLR 17 (2016), https://jmlr.org/papers/v17/16-177.html.

    Examples
    --------
    >>> import numpy as np
    >>> import rmopt
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.interop import PymanoptSolver
    >>> energy = rmopt.autograd_cost(lambda x: 0.5 * (np.arange(1.0, 6.0) * x**2).sum())
    >>> problem = rmopt.Problem(Sphere(5), energy)
    >>> result = PymanoptSolver("TrustRegions").run(problem, random_state=0)
    >>> bool(np.isclose(problem.value(result.point), 0.5))
    True
    """

    def __init__(self, optimizer: Any = "ConjugateGradient", **options: Any) -> None:
        if isinstance(optimizer, str):
            kind = getattr(optimizers, one_of("optimizer", optimizer, NAMES))
            for name in options:
                if name.startswith(("max_", "min_")):
                    number(name, options[name], least=0)
            try:
                self.optimizer = kind(**{"verbosity": 0, **options})
            except TypeError as error:
                raise InvalidInputError(
                    f"{optimizer} refuses the options {', '.join(options)} ({error}); "
                    f"help(pymanopt.optimizers.{optimizer}) lists what it takes."
                ) from None
        elif options:
            raise InvalidInputError(f"set {', '.join(options)} on the optimizer itself, which you passed.")
        else:
            wanted = "a name or an optimizer made by pymanopt, e.g. 'ConjugateGradient'"
            self.optimizer = instance("optimizer", optimizer, optimizers.optimizer.Optimizer, wanted)

    def begin(self, *arguments: Any, **options: Any) -> Any:
        raise self._whole()

    advance = iterate = begin

    def _whole(self) -> MissingCapabilityError:
        name = type(self.optimizer).__name__
        return MissingCapabilityError(
            f"pymanopt's {name} runs as a whole: it has no states to iterate over or to save; pass `stop` and "
            f"`recorder` to run, or take the solver of rmopt.solvers."
        )

    @running()
    @one_blas_thread()
    def run(
        self,
        problem: Problem,
        initial_point: Any = None,
        *,
        random_state: int | np.random.Generator | None = None,
        recorder: Recorder | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
        stop: StopRule | None = None,
    ) -> Result:
        """Minimise the cost; `updates` counts iterations, of which each has a row in the history.

        A random start is that of `rmopt.solvers.Solver.run` for the same `random_state`.

        Raises
        ------
        InvalidInputError
            When the initial point is not on the manifold, or for a wrong `random_state`.
        MissingCapabilityError
            When trust regions meet a problem without second derivatives, or a swarm a manifold without logarithm; and
            for a checkpoint, which pymanopt's optimizers have no states for.
        DivergedError
            When the cost or its gradient is not finite at the initial or the last point, or numbers overflow between.
        """
        if checkpoint is not None:
            raise self._whole()
        self.check_problem(problem)
        seed = seed_of(random_state)
        lacking = problem.lacks_hessian()
        if isinstance(self.optimizer, optimizers.TrustRegions) and lacking is not None:
            raise MissingCapabilityError(
                f"TrustRegions needs second derivatives, which {type(problem.cost).__name__} on "
                f"{problem.manifold} lacks: {lacking}"
            )
        rng = generator(seed, Stream.POINT)
        given = initial_point.point if isinstance(initial_point, Result) else initial_point
        initial_point = self._started(problem, given, rng)
        problem.probe(initial_point)
        options = {"initial_point": initial_point}
        if isinstance(self.optimizer, optimizers.ConjugateGradient | optimizers.SteepestDescent):
            # pymanopt's line search remembers step lengths of the last run; a fresh one makes runs repeatable.
            options["reuse_line_searcher"] = False
        if isinstance(self.optimizer, optimizers.NelderMead | optimizers.ParticleSwarm):
            problem, options = _drawing(problem, initial_point, rng), {}
        watch = Watch(problem, Recorder() if recorder is None else recorder, stop)
        foreign, optimizer = _watched(problem, watch), watch.watching(self.optimizer)
        watch.recorder.begin(0, self.optimizer._max_iterations, [])
        try:
            with global_seed(rng), finite_numbers(0):
                found = optimizer.run(foreign, **options)
        finally:
            watch.recorder.end()
            # It tells of itself: a circle.
            vars(optimizer).clear()
            # Its gradient is a closure over itself: the data would wait for the garbage collector.
            vars(foreign).clear()
        reason, steps, why = (
            problem.manifold.check_point(found.point),
            found.iterations,
            found.stopping_criterion,
        )
        if reason is not None or not np.isfinite(found.cost):
            off = f"off the manifold ({reason})" if reason else f"at a cost of {found.cost}"
            raise DivergedError(
                f"{type(self.optimizer).__name__} ended {off}; check that the cost is finite on {problem.manifold} "
                "and not constant up to rounding, and the retraction.",
                steps,
            )
        converged = isinstance(watch.reason, Converged) if watch.reason else "grad norm" in why
        result = Result(
            found.point,
            steps,
            steps,
            watch.seconds,
            str(why),
            seed,
            watch.recorder.rows,
            converged,
            watch.counts,
        )
        if not watch.counts["gradients"]:
            return result
        gradient = problem.riemannian_gradient(found.point)
        norm = problem.manifold.norm(found.point, gradient)
        return held(result, Oracle(problem, None, None, seed), found.cost, gradient, norm, norm, np.inf)


def _drawing(problem: Problem, first: Any, rng: np.random.Generator) -> Problem:
    """Return a problem whose random points are a given one and, after that, those of a generator.

    Swarms and simplices ask the manifold for their points, without a generator.
    """
    manifold, given = problem.manifold, [first]
    twin: Any = copy.copy(manifold)
    twin.random_point = lambda: given.pop() if given else manifold.random_point(rng)
    twin.random_tangent_vector = lambda point: manifold.random_tangent_vector(point, rng)
    return replace(problem, manifold=twin)


class ForeignRetraction(Retraction):
    """The retraction that a pymanopt manifold brings along."""

    order = 1
    name = "foreign"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return manifold.foreign.retraction(point, t * tangent)


def _has(foreign: Any, method: str) -> bool:
    """Return whether pymanopt has a closed form; a retraction in the place of a geodesic is none."""
    without = [getattr(base, method, None) for base in (PymanoptManifold, RetrAsExpMixin)]
    return getattr(type(foreign), method, None) not in without


def _as_there(method: str) -> Any:
    """Return a method that does what pymanopt's does, where it has it."""

    def asked(self: "FromPymanopt", *arguments: Any) -> Any:
        if not _has(self.foreign, method):
            raise MissingCapabilityError(
                f"{self} has no `{method}`; choose a manifold or a solver that needs none."
            )
        return getattr(self.foreign, method)(*arguments)

    asked.__doc__ = getattr(Manifold, method, asked).__doc__
    return asked


class FromPymanopt(Manifold):
    """A pymanopt manifold whose points are arrays, as an rmopt manifold.

    What the foreign manifold has in closed form (`exp`, `log`, `dist`, `pair_mean`), it has here.

    Parameters
    ----------
    foreign : pymanopt manifold
        With `point_layout` 1, e.g. ``Sphere(5)``.

    Raises
    ------
    InvalidInputError
        For anything else.
    """

    inner_product = _as_there("inner_product")
    norm = _as_there("norm")
    zero_vector = _as_there("zero_vector")
    transport = _as_there("transport")
    exp = _as_there("exp")
    log = _as_there("log")
    dist = _as_there("dist")
    pair_mean = _as_there("pair_mean")
    _convert_gradient = _as_there("euclidean_to_riemannian_gradient")
    _convert_hessian = _as_there("euclidean_to_riemannian_hessian")
    point_type = np.ndarray
    default_retraction: Retraction = ForeignRetraction()
    retractions: Mapping[str, Retraction] = {"foreign": ForeignRetraction()}

    def __init__(self, foreign: Any) -> None:
        if isinstance(foreign, Manifold) or not isinstance(foreign, PymanoptManifold):
            raise InvalidInputError(
                f"from_pymanopt needs a manifold made by pymanopt, e.g. pymanopt.manifolds.Sphere(5), got "
                f"{shown(foreign)}."
            )
        if foreign.point_layout != 1:
            raise InvalidInputError(
                f"{foreign} has points of {foreign.point_layout} arrays; only manifolds of single arrays fit."
            )
        self.foreign = foreign
        if not _has(foreign, "transport"):
            self.default_transport = ByProjection()

    def __repr__(self) -> str:
        return f"FromPymanopt({self.foreign})"

    @property
    def dim(self) -> int:
        return int(self.foreign.dim)

    @property
    def typical_dist(self) -> float:
        try:
            return float(self.foreign.typical_dist)
        except NotImplementedError:
            return super().typical_dist

    def projection(self, point: Array, ambient: Any) -> Array:
        return self.foreign.projection(point, dense(ambient))

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        try:
            return self.foreign.to_tangent_space(point, vector)
        except NotImplementedError:
            return super().to_tangent_space(point, vector)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Any) -> Array:
        return self._convert_gradient(point, dense(euclidean_gradient))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Any, euclidean_hessian: Any, tangent_vector: Array
    ) -> Array:
        """Return the Riemannian Hessian along a tangent vector."""
        return self._convert_hessian(
            point, dense(euclidean_gradient), dense(euclidean_hessian), tangent_vector
        )

    def embedding(self, point: Array, tangent_vector: Array) -> Array:
        return self.foreign.embedding(point, tangent_vector)

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a random point; pymanopt draws it from numpy's global state, here seeded and restored."""
        with global_seed(rng):
            return self.foreign.random_point()

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        with global_seed(rng):
            return self.foreign.random_tangent_vector(point)

    @property
    def knows_hessians(self) -> bool:
        return _has(self.foreign, "euclidean_to_riemannian_hessian")

    def knows(self, method: str) -> bool:
        return _has(self.foreign, method)

    # Points

    def check_point(self, point: Any) -> str | None:
        """Return why `point` is not on the manifold, or None; pymanopt has no such check.

        Besides its form it is told by the zero step, which leaves a point of the manifold in its place.
        """
        expected = self.shape
        if not isinstance(point, np.ndarray) or point.shape != expected:
            return f"a point of {self} is an array of shape {expected}"
        if not np.isfinite(point).all():
            return "the point holds NaN or infinity"
        try:
            stays = self.foreign.retraction(point, np.zeros_like(point))
        except NotImplementedError:
            return None
        except np.linalg.LinAlgError as error:
            return f"a step of length zero fails ({error})"
        size = max(1.0, float(np.linalg.norm(point)))
        off = np.linalg.norm(stays - point) / size
        if not off < 1e-8:
            return f"a step of length zero moves the point by {off:.1e}"
        if isinstance(self.foreign, Positive) and not (point > 0.0).all():
            return f"its least number is {point.min():.1e}; all of them must be positive"
        off = np.linalg.norm(self._inside(point) - point) / size
        return None if off < 1e-8 else f"its projection to the linear space of {self} moves it by {off:.1e}"

    def _inside(self, point: Array) -> Array:
        """Return the nearest point of the linear space that a point lies in, as far as pymanopt tells of one."""
        if isinstance(self.foreign, Symmetric | SkewSymmetric):
            return self.foreign.projection(point, point)
        if isinstance(self.foreign, SphereSubspaceIntersection | SphereSubspaceComplementIntersection):
            return self.foreign._subspace_projector @ point
        return point

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point."""
        return self.random_point(np.random.default_rng(0)).shape


_GLOBAL = RLock()


@contextmanager
def global_seed(rng: np.random.Generator | None) -> Iterator[None]:
    """Seed numpy's global state inside a with block and restore it afterwards."""
    # All threads have this one state; what is drawn here may ask for more.
    with _GLOBAL:
        before = np.random.get_state()
        np.random.seed(int(np.random.default_rng(rng).integers(2**32)))
        try:
            yield
        finally:
            np.random.set_state(before)


def from_pymanopt(manifold: Any) -> FromPymanopt:
    """Return a manifold of pymanopt as one of rmopt (see `FromPymanopt`).

    Parameters
    ----------
    manifold : pymanopt manifold
        For example ``pymanopt.manifolds.Sphere(5)``.

    Examples
    --------
    >>> import numpy as np, pymanopt
    >>> from rmopt.interop import from_pymanopt
    >>> manifold = from_pymanopt(pymanopt.manifolds.Sphere(4))
    >>> manifold.dim, manifold.random_point(np.random.default_rng(0)).shape
    (3, (4,))
    """
    return FromPymanopt(manifold)
