"""Laws as measurements: slopes and errors of manifolds, retractions, gradients, Hessians and engines."""

from collections.abc import Iterator, Sequence

import numpy as np

from rmopt.checks.derivatives import check_gradient, check_hessian
from rmopt.checks.engine import check_engine
from rmopt.checks.geometry import check_manifold, check_retraction
from rmopt.checks.report import Check, report

__all__ = [
    "Check",
    "check_engine",
    "check_gradient",
    "check_hessian",
    "check_manifold",
    "check_retraction",
    "report",
    "run_catalogue",
]

# Losses with a kink or a jump in the slope have no Taylor expansion to check; these are smooth.
SMOOTH = ("logistic", "squared")


def run_catalogue(names: Sequence[str] = (), seed: int = 0) -> Iterator[Check]:
    """Run all checks over everything registered in `rmopt.catalogue`.

    Parameters
    ----------
    names : sequence of str
        Only instances whose name contains one of these; all when empty.
    seed : int
    """
    from rmopt.catalogue import instances

    for instance in instances():
        if names and not any(name in instance.name for name in names):
            continue
        manifold = instance.manifold
        point = None if instance.point is None else instance.point(np.random.default_rng(seed))
        yield from check_manifold(manifold, seed, point)
        for retraction in instance.retractions:
            yield from check_retraction(retraction, manifold, seed, point)
        for name, problem in instance.problems.items():
            if name.removeprefix("triplets-") in SMOOTH:
                yield check_gradient(problem, seed, point)
                yield from check_hessian(problem, seed, point)
            if instance.compiled:
                for retraction in instance.retractions:
                    yield from check_engine(problem, retraction, seed)
