"""COMET's coordinate step beside its floor: two passes over X, one product and one rank-two update of a d × d matrix.

Peer times are the authors' MATLAB code under Octave on another machine of this kind: 279 ms for the dense case and
26.7 ms for the sparse one.

Run with ``pytest -o addopts= -s tests/benchmarks/test_comet_step.py``.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import blas
from threadpoolctl import threadpool_limits
from timing import median

from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.costs import LogDetTriplet, hinge, logistic
from rmopt.engines.choose import choose_coordinate_engine
from rmopt.kernels import log_det
from rmopt.kernels.row_column import EXACT
from rmopt.manifolds import PositiveDefinite
from rmopt.retractions import Additive

ROUNDS, STEPS = 7, 60


def made(share: float) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 1000)) * (rng.random((3000, 1000)) < share)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(50, size=3000)
    return (X if share == 1.0 else sp.csr_array(X)), ClassTriplets(y).draw(rng, 0, 10_000)


def caltech() -> tuple[Any, np.ndarray]:
    if not os.environ.get("RMOPT_DATA_HOME"):
        pytest.skip("RMOPT_DATA_HOME is not set: no Caltech-101 features.")
    from problems.data import load
    from problems.data.text import informative_unit_rows

    bundle = informative_unit_rows(load("caltech101").resplit(0, 0.2))
    rng = np.random.default_rng(0)
    triplets = ClassTriplets(bundle.y[bundle.train]).draw(rng, 0, 60_000)
    return bundle.X[bundle.train], triplets


CASES = {
    "dense, 10,000 triplets": (lambda: made(1.0), 279.0),
    "4 % non-zeros, 10,000 triplets": (lambda: made(0.04), 26.7),
    "caltech101, 60,000 triplets": (caltech, None),
}


def median_ms(work: Callable[[], None], per: int) -> float:
    work()
    return 1e3 * median(work, ROUNDS, time.process_time)[0] / per


@pytest.mark.parametrize("loss", [hinge, logistic], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_step_against_floor(measured: Any, name: str, loss: Any) -> None:
    """A coordinate step, beside the floor and the authors' code under Octave."""
    measured(step, name, loss)


def step(name: str, loss: Any) -> list[dict[str, Any]]:
    make, octave = CASES[name]
    X, triplets = make()
    cost = LogDetTriplet(X, triplets, loss, alpha=1e-4 * len(triplets), beta=1e-5 * len(triplets))
    d, count = cost.n_blocks, cost.rows.shape[0]
    engine = choose_coordinate_engine(Problem(PositiveDefinite(d), cost), Additive(), "compiled", EXACT)
    rng = np.random.default_rng(1)
    schedule, etas = rng.integers(d, size=(STEPS, 1)), np.full(STEPS, 0.99)
    x, out, u, moved, V = (rng.standard_normal(n) for n in (count, count, d, d, (d, d)))
    V = np.asfortranarray(V + V.T)

    def floor() -> None:
        for _ in range(STEPS):
            if isinstance(X, np.ndarray):
                np.dot(x, X, out=moved)
                np.dot(X, u, out=out)
            else:
                log_det.transposed_product(engine.samples, x, moved)  # type: ignore[attr-defined]
                log_det.product(engine.samples, u, out)  # type: ignore[attr-defined]
            blas.dsymv(1.0, V, u, overwrite_y=1, y=moved)
            blas.dsyr2(1e-9, u, moved, a=V, overwrite_a=1)

    with threadpool_limits(1):
        state = [engine.advance(engine.load(cost.best_multiple_of_identity()), schedule, etas)]

        def steps() -> None:
            state[0] = engine.advance(state[0], schedule, etas)

        ours, least = median_ms(steps, STEPS), median_ms(floor, STEPS)
    return [{
        "data": name, "loss": str(loss), "a step, ms": ours, "floor, ms": least, "step / floor": ours / least,
        "Octave / step": None if octave is None else octave / ours,
    }]  # fmt: skip
