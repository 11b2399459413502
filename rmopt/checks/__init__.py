"""Laws as measurements: slopes and errors of manifolds, retractions, costs, engines, samplers and step sizes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rmopt.checks.derivatives import check_cost, check_gradient, check_hessian
from rmopt.checks.engine import check_engine, check_sampler, check_step_size
from rmopt.checks.geometry import check_manifold, check_retraction
from rmopt.checks.report import Check, report
from rmopt.checks.solver import check_solver
from rmopt.costs import Loss

if TYPE_CHECKING:
    from rmopt.checks.catalogue import Instance

__all__ = [
    "Check", "check_cost", "check_engine", "check_gradient", "check_hessian",
    "check_instance", "check_manifold", "check_retraction", "check_sampler", "check_solver",
    "check_step_size", "report", "run_catalogue",
]  # fmt: skip

# A kink near the point bends a Taylor expansion: losses with one in the value, and in the slope.
KINKED = ("hinge", "absolute")
KINKED_SLOPE = ("squared_hinge",)


def run_catalogue(names: Sequence[str] = (), seed: int = 0, dtype: Any = None) -> Iterator[Check]:
    """Run all checks over everything registered in `rmopt.checks.catalogue`.

    Parameters
    ----------
    names : sequence of str
        Only instances whose name contains one of these; all when empty.
    seed : int
    dtype : dtype, optional
        np.float32 for the laws in single precision; compiled engines, which have none, are left out then.
    """
    from rmopt.checks.catalogue import instances

    for instance in instances():
        if not names or any(name in instance.name for name in names):
            yield from check_instance(instance, seed, dtype)


def check_instance(instance: "Instance", seed: int = 0, dtype: Any = None) -> Iterator[Check]:
    """Check a manifold with the retractions, problems and engines that belong to it.

    Parameters
    ----------
    instance : Instance
        See `rmopt.checks.catalogue`.
    seed : int
    dtype : dtype, optional
        As in `run_catalogue`.
    """
    manifold = instance.manifold
    # A stream of its own: a point and a direction from the same numbers are not in general position.
    point = None if instance.point is None else instance.point(np.random.default_rng([seed, 1]))
    yield from check_manifold(manifold, seed, point, dtype)
    for retraction in instance.retractions:
        yield from check_retraction(retraction, manifold, seed, point, dtype)
    for problem in instance.problems.values():
        loss = getattr(problem.cost, "loss", None)
        checks = check_cost(problem, seed, point, dtype)
        yield from (check for check in checks if check.name != "gradient" or str(loss) not in KINKED)
        bent = str(loss) in KINKED + KINKED_SLOPE or not getattr(problem.cost, "smooth_slope", True)
        flat = isinstance(loss, Loss) and loss.curvature is None
        if not bent and not flat and problem.lacks_hessian() is None:
            yield from check_hessian(problem, seed, point, dtype)
        for retraction in instance.compiled if dtype in (None, float) else ():
            yield from check_engine(problem, retraction, seed, batch_size=instance.batch_size)
