"""pymanopt, both ways: its optimizers on rmopt's manifolds, and its manifolds of single arrays as rmopt manifolds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pymanopt
from pymanopt import optimizers
from pymanopt.manifolds.manifold import Manifold as PymanoptManifold
from pymanopt.manifolds.manifold import RetrAsExpMixin

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, number, one_of, shown
from rmopt.core.cost import HasPreconditioner
from rmopt.core.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.core.manifold import Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.engines.threads import one_blas_thread
from rmopt.solvers.base import Result

# From here on isinstance(rmopt manifold, pymanopt manifold) holds, which is all that pymanopt asks for.
PymanoptManifold.register(Manifold)


def to_pymanopt(problem: Problem) -> pymanopt.Problem:
    """Return a problem for pymanopt's optimizers: cost, gradient and, where known, Hessian and preconditioner.

    Parameters
    ----------
    problem : Problem
    """
    manifold, cost = problem.manifold, problem.cost
    wrap = pymanopt.function.numpy(manifold)
    parts: dict[str, Any] = {"euclidean_gradient": wrap(problem.gradient)}
    if problem.lacks_hessian() is None:
        parts["euclidean_hessian"] = wrap(cost.hessian)  # type: ignore[attr-defined]
    if isinstance(cost, HasPreconditioner):
        parts["preconditioner"] = cost.precondition

    def value(point: Any) -> float:
        found = problem.value(point)
        # Line searches shorten a step to infinity, and accept one to NaN.
        return np.inf if np.isnan(found) else found

    return pymanopt.Problem(manifold, wrap(value), **parts)


# Options of pymanopt's optimizers that bound a run; it compares them without looking.
LIMITS = {"max_iterations", "max_time", "max_cost_evaluations", "min_gradient_norm", "min_step_size"}


class PymanoptSolver:
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
    """

    def __init__(self, optimizer: Any = "ConjugateGradient", **options: Any) -> None:
        if isinstance(optimizer, str):
            names = ("SteepestDescent", "ConjugateGradient", "TrustRegions", "NelderMead", "ParticleSwarm")
            try:
                made = getattr(optimizers, one_of("optimizer", optimizer, names))
                for name in options.keys() & LIMITS:
                    number(name, options[name], least=0)
                self.optimizer = made(**{"verbosity": 0, **options})
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

    @one_blas_thread()
    def run(
        self,
        problem: Problem,
        initial_point: Any = None,
        *,
        random_state: int | np.random.Generator | None = None,
    ) -> Result:
        """Minimise the cost; the result's history is empty and `updates` counts iterations.

        A random start is that of `rmopt.solvers.Solver.run` for the same `random_state`.

        Raises
        ------
        InvalidInputError
            When the initial point is not on the manifold, or for a wrong `random_state`.
        MissingCapabilityError
            When trust regions meet a problem without second derivatives, or a swarm a manifold without logarithm.
        DivergedError
            When the cost or its gradient is not finite at the initial or the last point, or numbers overflow between.
        """
        instance("problem", problem, Problem, "an rmopt.Problem(manifold, cost)")
        seed, name = seed_of(random_state), type(self.optimizer).__name__
        lacking = problem.lacks_hessian()
        if isinstance(self.optimizer, optimizers.TrustRegions) and lacking is not None:
            raise MissingCapabilityError(
                f"TrustRegions needs second derivatives, which {type(problem.cost).__name__} on "
                f"{problem.manifold} lacks: {lacking}"
            )
        rng = generator(seed, Stream.START)
        if initial_point is None:
            initial_point = problem.manifold.random_point(rng)
        reason = problem.manifold.check_point(initial_point)
        if reason is not None:
            raise InvalidInputError(f"the initial point is not on {problem.manifold}: {reason}.")
        problem.probe(initial_point)
        options = {"initial_point": initial_point}
        if isinstance(self.optimizer, optimizers.ConjugateGradient | optimizers.SteepestDescent):
            # pymanopt's line search remembers step lengths of the last run; a fresh one makes runs repeatable.
            options["reuse_line_searcher"] = False
        if isinstance(self.optimizer, optimizers.NelderMead | optimizers.ParticleSwarm):
            swarm = isinstance(self.optimizer, optimizers.ParticleSwarm)
            wanted = ("log",) if swarm else ("log", "dist", "pair_mean")
            missing = [method for method in wanted if not problem.manifold.knows(method)]
            if missing:
                raise MissingCapabilityError(
                    f"{name} needs a manifold with `{missing[0]}`, which {problem.manifold} "
                    "lacks; use 'ConjugateGradient'."
                )
            problem, options = _drawing(problem, initial_point, rng), {}
        foreign = to_pymanopt(problem)
        try:
            with global_seed(rng):
                found = self.optimizer.run(foreign, **options)
        except np.linalg.LinAlgError as error:
            raise DivergedError(
                f"{name} met numbers that numpy cannot factorise ({error}); check that "
                "cost and gradient are finite on the manifold, and its scale.",
                0,
            ) from error
        finally:
            # Its gradient is a closure over itself: the data would wait for the garbage collector.
            vars(foreign).clear()
        if not np.isfinite(found.cost):
            raise DivergedError(
                f"{name} ended at a cost of {found.cost} after {found.iterations} "
                "iterations; check that the cost is finite on the manifold.",
                found.iterations,
            )
        reason = problem.manifold.check_point(found.point)
        if reason is not None:
            raise DivergedError(
                f"{name} ended off {problem.manifold}: {reason}. Likely causes: a "
                "retraction that leaves the manifold, or a cost that is constant up to rounding.",
                found.iterations,
            )
        return Result(
            point=found.point,
            steps=found.iterations,
            updates=found.iterations,
            seconds=found.time,
            stopped_by=found.stopping_criterion,
            seed=seed,
            history=[],
        )


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


def _as_there(method: str) -> Any:
    """Return a method that does what pymanopt's does, where it has it."""

    def asked(self: FromPymanopt, *arguments: Any) -> Any:
        if not self.knows(method):
            raise MissingCapabilityError(
                f"{self} has no `{method}`; choose a manifold or a solver that needs none."
            )
        return getattr(self.foreign, method)(*arguments)

    asked.__doc__ = getattr(Manifold, method, asked).__doc__
    return asked


FOREIGN_RETRACTIONS: dict[str, Retraction] = {"foreign": ForeignRetraction()}


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
    retractions = FOREIGN_RETRACTIONS

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

    def knows(self, method: str) -> bool:
        """Return whether pymanopt has a closed form; a retraction in the place of a geodesic is none."""
        without = [getattr(kind, method, None) for kind in (PymanoptManifold, RetrAsExpMixin)]
        return getattr(type(self.foreign), method, None) not in without

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
        off = np.linalg.norm(stays - point) / max(1.0, float(np.linalg.norm(point)))
        return None if off < 1e-8 else f"a step of length zero moves the point by {off:.1e}"

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point."""
        return self.random_point(np.random.default_rng(0)).shape


@contextmanager
def global_seed(rng: np.random.Generator | None) -> Iterator[None]:
    """Seed numpy's global state inside a with block and restore it afterwards."""
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
    """
    return FromPymanopt(manifold)
