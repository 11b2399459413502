"""Solvers of whole gradients on ten standard problems, beside pymanopt's, in one process and on one core.

Each run ends when the gradient is 1e-6 times as long as at the start. Printed are CPU times (medians of three) and
evaluations; the claim is the ratio of the best solver to pymanopt's best, in the median over the problems.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pymanopt
import pytest
from batch_problems import PROBLEMS, Standard
from pymanopt import optimizers

from rmopt.engines.threads import one_blas_thread
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, TrustRegions

pytestmark = pytest.mark.slow

TOL, LIMIT, REPEATS = 1e-6, 6.0, 3
OURS = {
    "GradientDescent": lambda: GradientDescent(max_iterations=100_000),
    "ConjugateGradient": lambda: ConjugateGradient(max_iterations=100_000),
    "LBFGS": lambda: LBFGS(max_iterations=100_000),
    "TrustRegions": lambda: TrustRegions(max_iterations=10_000),
}
THEIRS = ("ConjugateGradient", "SteepestDescent", "TrustRegions")


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the median CPU time of some calls, after one that is not counted, and what the last one returned."""
    begun = time.process_time()
    found = work()
    times = [time.process_time() - begun]
    if times[0] < 0.8 * LIMIT:
        times = []
        for _ in range(REPEATS):
            begun = time.process_time()
            found = work()
            times.append(time.process_time() - begun)
    return float(np.median(times)), found


def of_pymanopt(standard: Standard, name: str) -> tuple[float, int, float] | None:
    """Return CPU time, iterations and how much shorter the gradient became, or None where it cannot run."""
    peer = standard.peer
    if name == "TrustRegions" and peer.hessian is None:
        return None
    wrap = pymanopt.function.numpy(peer.manifold)
    parts = {f"{peer.kind}_gradient": wrap(peer.gradient)}
    if peer.hessian is not None:
        parts[f"{peer.kind}_hessian"] = wrap(peer.hessian)
    problem = pymanopt.Problem(peer.manifold, wrap(peer.cost), **parts)
    first = peer.manifold.norm(peer.start, problem.riemannian_gradient(peer.start))
    options = {
        "max_time": LIMIT, "max_iterations": 10**6, "min_gradient_norm": TOL * first, "verbosity": 0,
        "max_cost_evaluations": 10**7,
    }  # fmt: skip
    seconds, found = cpu(lambda: getattr(optimizers, name)(**options).run(problem, initial_point=peer.start))
    end = peer.manifold.norm(found.point, problem.riemannian_gradient(found.point))
    return seconds, found.iterations, end / first


@one_blas_thread()
def compared(standard: Standard) -> float:
    """Print a table of all solvers on a problem; return how often our best time goes into pymanopt's best."""
    ours, theirs = [np.inf], [np.inf]
    print(f"\n{standard.name}")
    for name, make in OURS.items():
        seconds, result = cpu(partial(make().run, standard.problem, standard.start))
        counts, each = result.counts, 1e6 * seconds / max(result.steps, 1)
        print(
            f"  rmopt    {name:18s} {1e3 * seconds:9.2f} ms  {result.steps:5d} steps of {each:7.0f} us  "
            f"cost {counts['costs']:5d}  gradient {counts['gradients']:5d}  Hessian {counts['hessians']:5d}  "
            f"{'' if result.converged else result.stopped_by}"
        )
        ours += [seconds] if result.converged else []
    for name in THEIRS:
        found = of_pymanopt(standard, name)
        if found is not None:
            seconds, steps, end = found
            reached = end <= 1.001 * TOL
            print(
                f"  pymanopt {name:18s} {1e3 * seconds:9.2f} ms  {steps:5d} steps  "
                f"{'' if reached else f'only {end:.0e}'}"
            )
            theirs += [seconds] if reached else []
    ratio = min(theirs) / min(ours)
    print(f"  {ratio:.1f} times as fast as pymanopt's best")
    return ratio


def test_batch_solvers() -> None:
    median = float(np.median([compared(make()) for make in PROBLEMS.values()]))
    print(f"\nmedian over the problems: {median:.1f} times as fast as pymanopt's best")
    # Wanted; 2.2 is what a busy machine with two cores has shown so far.
    assert median >= 3.0


if __name__ == "__main__":
    import sys

    for key in sys.argv[1:] or PROBLEMS:
        compared(PROBLEMS[key]())
