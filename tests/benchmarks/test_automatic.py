"""Trust regions by automatic second derivatives beside those by hand: a product with the Hessian, and a whole run."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from timing import median

from rmopt import Problem, autograd_cost, jax_cost, torch_cost
from rmopt.core import Cost
from rmopt.errors import MissingCapabilityError
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import TrustRegions

Array = np.ndarray


class Entries(Cost):
    """½ Σ (Wᵢⱼ − Tᵢⱼ)² over the known entries of T."""

    def __init__(self, known: Array, T: Array) -> None:
        self.known, self.T = known, known * T

    def difference(self, point: Any) -> Array:
        return self.known * (point.U @ point.S @ point.V.T) - self.T

    def value(self, point: Any) -> float:
        return 0.5 * float(np.sum(self.difference(point) ** 2))

    def gradient(self, point: Any) -> Array:
        return self.difference(point)

    def hessian(self, point: Any, direction: Any) -> Array:
        return self.known * (direction.left @ direction.right.T)


def costs(n: int, m: int, k: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    T, known = rng.standard_normal((n, k)) @ rng.standard_normal((k, m)), 1.0 * (rng.random((n, m)) < 0.5)
    found = {
        "by hand": Entries(known, T),
        "autograd": autograd_cost(lambda A, B: 0.5 * anp.sum((known * (A @ B.T) - known * T) ** 2)),
    }
    try:
        import jax.numpy as jnp

        found["JAX"] = jax_cost(lambda A, B: 0.5 * jnp.sum((known * (A @ B.T) - known * T) ** 2))
    except (ImportError, MissingCapabilityError):
        pass
    try:
        import torch

        mask, shown = torch.tensor(known), torch.tensor(known * T)
        found["PyTorch"] = torch_cost(lambda A, B: 0.5 * ((mask * (A @ B.T) - shown) ** 2).sum())
    except (ImportError, MissingCapabilityError):
        pass
    return found


@pytest.mark.parametrize(("n", "m", "k"), [(40, 30, 5), (100, 80, 5), (400, 300, 5), (1500, 1000, 5)])
def test_automatic_hessian(measured: Any, n: int, m: int, k: int) -> None:
    """The same second derivative along a tangent vector, and the same optimum."""
    rows = measured(compared, n, m, k)
    assert len({row["products"] > 0 for row in rows}) == 1


def compared(n: int, m: int, k: int) -> list[dict[str, Any]]:
    manifold, rows, first = FixedRankEmbedded(n, m, k), [], None
    start = manifold.random_point(np.random.default_rng(1))
    along = manifold.random_tangent_vector(start, np.random.default_rng(2))
    for name, cost in costs(n, m, k).items():
        problem = Problem(manifold, cost)
        found, seconds = product(problem, start, along)
        first = found if first is None else first
        np.testing.assert_allclose(found.Up, first.Up, atol=1e-10 * np.abs(first.Up).max())
        whole, result = median(partial(TrustRegions(tol=1e-8).run, problem, start))
        assert result.converged
        rows.append(
            {"n": n, "m": m, "rank": k, "derivatives": name, "a product [us]": 1e6 * seconds}
            | {"products": result.counts["hessians"], "a run [ms]": 1e3 * whole}
        )
    for row in rows:
        row["product / by hand"] = row["a product [us]"] / rows[0]["a product [us]"]
        row["run / by hand"] = row["a run [ms]"] / rows[0]["a run [ms]"]
    return rows


def product(problem: Problem, point: Any, along: Any) -> tuple[Any, float]:
    """Return the Riemannian Hessian along a tangent vector, and the median of its seconds of CPU."""
    manifold: Any = problem.manifold
    gradient, bent = problem.gradient(point), problem.cost.hessian_along(point)
    times = []
    for _ in range(30):
        begun = time.process_time()
        ambient = bent(manifold.embedding(point, along))
        found = manifold.euclidean_to_riemannian_hessian(point, gradient, ambient, along)
        times.append(time.process_time() - begun)
    return found, float(np.median(times))
