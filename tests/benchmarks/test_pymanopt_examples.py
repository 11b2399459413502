"""The examples of pymanopt under rmopt and under pymanopt: the same data and start, and as short a gradient.

pymanopt runs its own scripts: its solver, and derivatives by autograd. CPU times are medians of three on one thread.
"""

from functools import partial
from time import process_time
from typing import Any

import numpy as np
import pymanopt
import pytest
from pymanopt_examples import EXAMPLES, Example, Synchronisation, along_tree, certificate, relative_rotations
from timing import median

from rmopt import Problem
from rmopt.manifolds import SpecialOrthogonal
from rmopt.solvers import TrustRegions
from rmopt.solvers.threads import one_blas_thread

Row = dict[str, Any]
cpu = partial(median, clock=process_time)


def test_examples(measured: Any) -> None:
    """Examples of pymanopt: CPU seconds, and the costs where both end."""
    rows = measured(lambda: [compared(example) for example in EXAMPLES])
    for row in rows:
        assert row["higher by"] <= 1e-6, row
    assert np.median([row["pymanopt / rmopt"] for row in rows]) >= 3.0


@one_blas_thread()
def compared(example: Example) -> Row:
    arguments = example.data(np.random.default_rng(0), True)
    ours, point = cpu(lambda: example.ours(*arguments))
    theirs, other = cpu(lambda: example.theirs(*arguments))
    cost, peer = example.value(arguments, point), example.value(arguments, other)
    return {
        "example": example.name, "manifold": example.manifold, "derivatives": example.derivatives, "cost": cost,
        "pymanopt's cost": peer, "higher by": (cost - peer) / abs(peer), "rmopt, s": ours, "pymanopt, s": theirs,
        "pymanopt / rmopt": theirs / ours,
    }  # fmt: skip


@pytest.mark.parametrize("noise", [0.2, 0.5, 0.8])
def test_ten_thousand_rotations(measured: Any, noise: float) -> None:
    """10,000 rotations from 50,000 quotients: from a spanning tree to a gradient of 1e-8, and a certificate."""
    row, peer = measured(synchronised, noise)
    assert row["seconds"] < 10.0
    assert row["gradient"] <= 1e-8
    # With much noise the bound is below every cost, and proves nothing.
    assert noise > 0.5 or row["least eigenvalue"] > -1e-10
    assert row["cost"] <= peer["cost"] + 1e-6 * abs(peer["cost"])


@one_blas_thread()
def synchronised(noise: float) -> list[Row]:
    quotients = relative_rotations(10_000, 50_000, noise, np.random.default_rng(0))
    start = along_tree(*quotients)
    cost = Synchronisation(*quotients)
    problem = Problem(SpecialOrthogonal(3, 10_000), cost)
    seconds, result = cpu(lambda: TrustRegions(tol=1e-8).run(problem, start))
    proof_seconds, least = cpu(lambda: certificate(cost, result.point), 1)
    history = result.history
    row = {
        "noise": noise, "library": "rmopt", "steps": result.steps, "products": result.counts["hessians"],
        "cost": history[-1]["cost"], "gradient": history[-1]["gradient_norm"] / history[0]["gradient_norm"],
        "seconds": seconds, "least eigenvalue": least, "seconds of the certificate": proof_seconds,
    }  # fmt: skip
    return [row, {"noise": noise} | by_peer(cost, start)]


def by_peer(cost: Synchronisation, start: np.ndarray) -> Row:
    """Return how far pymanopt's trust regions come in a minute, with derivatives by hand too."""
    manifold = pymanopt.manifolds.SpecialOrthogonalGroup(3, k=len(start))
    wrap = pymanopt.function.numpy(manifold)
    problem = pymanopt.Problem(
        manifold,
        wrap(cost.value),
        euclidean_gradient=wrap(cost.gradient),
        euclidean_hessian=wrap(cost.hessian),
    )
    first = manifold.norm(start, problem.riemannian_gradient(start))
    optimizer = pymanopt.optimizers.TrustRegions(max_time=60.0, min_gradient_norm=1e-8 * first, verbosity=0)
    seconds, found = cpu(lambda: optimizer.run(problem, initial_point=start), 1)
    end = manifold.norm(found.point, problem.riemannian_gradient(found.point))
    return {
        "library": "pymanopt",
        "steps": found.iterations,
        "cost": cost.value(found.point),
        "gradient": float(end / first),
        "seconds": seconds,
    }
