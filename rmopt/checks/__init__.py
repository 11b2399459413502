"""Numerical checks of laws: slopes and errors for manifolds, retractions, costs, engines, samplers and step sizes."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rmopt.checks.catalogue import Instance, instances
from rmopt.checks.derivatives import check_cost, check_gradient, check_hessian
from rmopt.checks.geometry import check_manifold, check_retraction
from rmopt.checks.laws import Check
from rmopt.checks.proximable import check_proximable
from rmopt.checks.runs import check_engine, check_sampler, check_solver, check_step_size
from rmopt.core.arguments import shown
from rmopt.core.manifold import Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.costs import Loss, Proximable
from rmopt.engines.base import Engine
from rmopt.errors import InvalidInputError
from rmopt.solvers.run import Solver
from rmopt.solvers.stochastic.samplers import Sampler
from rmopt.solvers.stochastic.step_sizes import StepSize

__all__ = [
    "Check", "check_cost", "check_engine", "check_gradient", "check_hessian", "check_manifold",
    "check_proximable", "check_retraction", "check_sampler", "check_solver", "check_step_size", "checks_of",
    "run_catalogue",
]  # fmt: skip

# A kink near the point spoils a Taylor expansion: losses with a kink in the value, and in the slope.
KINKED = ("hinge", "absolute")
KINKED_SLOPE = ("squared_hinge",)


def run_catalogue(names: Sequence[str] = (), seed: int = 0) -> Iterator[Check]:
    """Run all checks over everything registered in `rmopt.checks.catalogue`.

    Parameters
    ----------
    names : sequence of str
        Only instances whose name contains one of these. Empty means all.
    seed : int
    """
    for instance in instances():
        if not names or any(name in instance.name for name in names):
            yield from checks_of(instance, seed)


def checks_of(part: Any, seed: int = 0, dtype: Any = None) -> list[Check]:
    """Check all laws that a part must obey.

    Parameters
    ----------
    part : object
        A manifold (with all its retractions), a problem (for the laws of its cost), a sampler, a rule of step
        sizes, a `Proximable`, an `Instance` with all its parts, or a pair: a retraction or its class and a manifold,
        a solver and a problem, an engine and a problem.
    seed : int
        The seed for points and directions.
    dtype : dtype, optional
        np.float32 for the laws in single precision of manifolds, retractions, problems and instances. Compiled
        engines have none.

    Raises
    ------
    InvalidInputError
        For other objects, and for solvers, engines, samplers and step sizes in single precision.
    """
    match part:
        case Manifold():
            moves = {repr(move): move for move in (part.default_retraction, *part.retractions.values())}
            return _of_instance(Instance(str(part), part, list(moves.values())), seed, dtype)
        case Problem():
            second = check_hessian(part, seed, dtype=dtype) if part.lacks_hessian() is None else []
            return check_cost(part, seed, dtype=dtype) + second
        case Instance():
            return _of_instance(part, seed, dtype)
        case (Retraction() | type() as retraction, Manifold() as manifold):
            return check_retraction(retraction, manifold, seed, dtype=dtype)
        case Proximable() if dtype is None:
            return check_proximable(part, rng=seed)
        case Sampler() if dtype is None:
            return check_sampler(part, rng=seed)
        case StepSize() if dtype is None:
            return check_step_size(part)
        case (Solver() as solver, Problem() as problem) if dtype is None:
            return check_solver(solver, problem, seed)
        case (Engine() as engine, Problem() as problem) if dtype is None:
            return check_engine(problem, rng=seed, engine=engine)
    precision = "" if dtype is None else " in another precision than double"
    raise InvalidInputError(
        f"there are no laws for {shown(part)}{precision}; give a manifold, a problem, an Instance or (retraction, "
        "manifold); in double precision also a sampler, a rule of step sizes, a Proximable, (solver, problem) or "
        "(engine, problem)."
    )


def _of_instance(part: Instance, seed: int, dtype: Any) -> list[Check]:
    """Check a manifold with its retractions, problems and engines."""
    manifold = part.manifold
    # A separate stream: a point and a direction from the same numbers are not in general position.
    point = None if part.point is None else part.point(np.random.default_rng([seed, 1]))
    checks = check_manifold(manifold, seed, point, dtype)
    for retraction in part.retractions:
        checks += check_retraction(retraction, manifold, seed, point, dtype)
    for problem in part.problems.values():
        loss = getattr(problem.cost, "loss", None)
        kinked = str(loss) in KINKED
        checks += [
            one for one in check_cost(problem, seed, point, dtype) if not kinked or one.name != "gradient"
        ]
        bent = kinked or str(loss) in KINKED_SLOPE or not getattr(problem.cost, "smooth_slope", True)
        flat = isinstance(loss, Loss) and loss.curvature is None
        if not bent and not flat and problem.lacks_hessian() is None:
            checks += check_hessian(problem, seed, point, dtype)
        for retraction in part.compiled if dtype in (None, float) else ():
            checks += check_engine(problem, retraction, seed, batch_size=part.batch_size)
    return checks
