"""pymanopt's optimizers on rmopt's manifolds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymanopt
from pymanopt import optimizers
from pymanopt.manifolds.manifold import Manifold as PymanoptManifold

from rmopt.core.ambient import Ambient
from rmopt.core.cost import HasHessianAction, HasPreconditioner
from rmopt.core.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.core.manifold import HasHessian, Manifold
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.interop.foreign import FromPymanopt
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
    target = manifold.foreign if isinstance(manifold, FromPymanopt) else manifold
    wrap = pymanopt.function.numpy(target)
    parts: dict[str, Any] = {"euclidean_gradient": wrap(lambda point: cost.gradient(point))}
    if _has_hessian(problem):
        parts["euclidean_hessian"] = wrap(lambda point, direction: _hessian(cost, point, direction))
    if isinstance(cost, HasPreconditioner):
        parts["preconditioner"] = cost.precondition
    return pymanopt.Problem(target, wrap(lambda point: cost.value(point)), **parts)


def _has_hessian(problem: Problem) -> bool:
    return isinstance(problem.cost, HasHessianAction) and isinstance(problem.manifold, HasHessian)


def _hessian(cost: Any, point: Any, direction: Ambient) -> Ambient:
    return cost.hessian(point, direction)


class PymanoptSolver:
    """One of pymanopt's batch optimizers as an rmopt solver.

    Parameters
    ----------
    optimizer : str or pymanopt optimizer
        "SteepestDescent", "ConjugateGradient", "TrustRegions", or an optimizer made by pymanopt.
    **options : object
        Passed to the optimizer when it is given by name, e.g. ``max_iterations``.

    Raises
    ------
    InvalidInputError
        For an unknown optimizer or an option that it does not have.
    """

    def __init__(self, optimizer: Any = "ConjugateGradient", **options: Any) -> None:
        if isinstance(optimizer, str):
            names = ("SteepestDescent", "ConjugateGradient", "TrustRegions")
            if optimizer not in names:
                raise InvalidInputError(
                    f"optimizer = {optimizer!r} is unknown; choose one of {', '.join(names)}."
                )
            try:
                self.optimizer = getattr(optimizers, optimizer)(**{"verbosity": 0, **options})
            except TypeError as error:
                raise InvalidInputError(
                    f"{optimizer} refuses the options {', '.join(options)} ({error}); "
                    f"help(pymanopt.optimizers.{optimizer}) lists what it takes."
                ) from None
        elif not isinstance(optimizer, optimizers.optimizer.Optimizer):
            raise InvalidInputError(
                f"optimizer = {optimizer!r} must be a name or an optimizer made by pymanopt, "
                "e.g. 'ConjugateGradient'."
            )
        elif options:
            raise InvalidInputError(f"set {', '.join(options)} on the optimizer itself, which you passed.")
        else:
            self.optimizer = optimizer

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
            When trust regions meet a problem without second derivatives.
        DivergedError
            When the cost at the last point is not finite.
        """
        seed = seed_of(random_state)
        if isinstance(self.optimizer, optimizers.TrustRegions) and not _has_hessian(problem):
            raise MissingCapabilityError(
                f"TrustRegions needs second derivatives, which {type(problem.cost).__name__} on "
                f"{problem.manifold} lacks; add `hessian(point, direction)` to the cost, or use "
                "'ConjugateGradient'."
            )
        if initial_point is None:
            initial_point = problem.manifold.random_point(generator(seed, Stream.START))
        reason = problem.manifold.check_point(initial_point)
        if reason is not None:
            raise InvalidInputError(f"the initial point is not on {problem.manifold}: {reason}.")
        options = {"initial_point": initial_point}
        if isinstance(self.optimizer, optimizers.ConjugateGradient | optimizers.SteepestDescent):
            # pymanopt's line search remembers step lengths of the last run; a fresh one makes runs repeatable.
            options["reuse_line_searcher"] = False
        foreign = to_pymanopt(problem)
        try:
            found = self.optimizer.run(foreign, **options)
        finally:
            # Its gradient is a closure over itself: the data would wait for the garbage collector.
            vars(foreign).clear()
        if not np.isfinite(found.cost):
            raise DivergedError(
                f"{type(self.optimizer).__name__} ended at a cost of {found.cost} after {found.iterations} "
                "iterations; check that the cost is finite on the manifold.",
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
