"""pymanopt's optimizers on rmopt's manifolds."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pymanopt
from pymanopt import optimizers
from pymanopt.manifolds.manifold import Manifold as PymanoptManifold

from rmopt.core.arguments import instance, number, one_of
from rmopt.core.cost import HasPreconditioner
from rmopt.core.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.core.manifold import Manifold
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.engines.threads import one_blas_thread
from rmopt.interop.foreign import global_seed
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
