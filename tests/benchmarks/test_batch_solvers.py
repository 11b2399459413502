"""Full-gradient solvers on ten standard problems, beside pymanopt's, in one process and on one core.

Times are medians of three; a solver without one did not get there in six seconds.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pymanopt
import pytest
from batch_problems import PROBLEMS, Standard
from pymanopt import optimizers

from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, TrustRegions
from rmopt.solvers.threads import one_blas_thread

pytestmark = pytest.mark.slow

TOL, LIMIT, REPEATS = 1e-6, 6.0, 3
OURS = {
    "GradientDescent": lambda: GradientDescent(max_iter=100_000),
    "ConjugateGradient": lambda: ConjugateGradient(max_iter=100_000),
    "LBFGS": lambda: LBFGS(max_iter=100_000),
    "TrustRegions": lambda: TrustRegions(max_iter=10_000),
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


@pytest.mark.parametrize("key", PROBLEMS)
def test_batch_solvers(measured: Any, key: str) -> None:
    """CPU time until the gradient is 1e-6 times as long as at the start, and evaluations of the fastest solver."""
    (row,) = measured(compared, PROBLEMS[key]())
    assert row["pymanopt / rmopt"] is None or row["pymanopt / rmopt"] > 0.8


@one_blas_thread()
def compared(standard: Standard) -> list[dict[str, Any]]:
    """Return the times of all our solvers, and that of the fastest of pymanopt's."""
    ours: dict[str, float | None] = {}
    theirs: dict[str, float] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, make in OURS.items():
        seconds, result = cpu(partial(make().run, standard.problem, standard.start))
        ours[name] = 1e3 * seconds if result.converged else None
        counts[name] = result.counts
    for name in THEIRS:
        found = of_pymanopt(standard, name)
        if found is not None and found[2] <= 1.001 * TOL:
            theirs[name] = 1e3 * found[0]
    best = min((name for name in ours if ours[name] is not None), key=lambda name: ours[name] or 0.0)
    peer = min(theirs, key=lambda name: theirs[name], default=None)
    return [
        {"problem": standard.name}
        | {f"{name}, ms": time for name, time in ours.items()}
        | {"gradients": counts[best]["gradients"], "Hessian products": counts[best]["hessians"]}
        | {"pymanopt's best, ms": theirs[peer] if peer else None, "which is": peer}
        | {"pymanopt / rmopt": theirs[peer] / ours[best] if peer else None}
    ]
