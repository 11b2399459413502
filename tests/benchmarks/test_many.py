"""Many small problems at once: one by one, by `solve_many`, by a `while_loop` under JAX's vmap; and powers, by CG.

Times are CPU times, medians of three; JAX is in the table where it is installed, compiled before.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pymanopt
import pymanopt.optimizers
import pytest
from timing import median

from rmopt import Problem
from rmopt.core import Cost
from rmopt.manifolds import Grassmann, Oblique, Power, Sphere
from rmopt.solvers import ConjugateGradient, GradientDescent, TrustRegions, solve_many
from rmopt.solvers.threads import one_blas_thread

pytestmark = pytest.mark.slow

N, SAMPLE, TOL = 8, 100, 1e-6


class Quotients(Cost):
    """½ xᵀA x, of one point or of each of many."""

    def __init__(self, A: Any) -> None:
        self.A = A

    def __getitem__(self, rows: Any) -> "Quotients":
        return Quotients(self.A[rows])

    def value_and_gradient(self, point: Any) -> Any:
        products = self.hessian(point, point)
        return 0.5 * np.vecdot(point, products), products

    def value(self, point: Any) -> Any:
        return self.value_and_gradient(point)[0]

    def hessian(self, point: Any, direction: Any) -> Any:
        return (self.A @ direction[..., None])[..., 0]


class Whole(Quotients):
    """The same, where a part of the problems cannot be told."""

    __getitem__ = property()  # type: ignore[assignment]


def by_vmap(A: Any, starts: Any) -> Callable[[], Any]:
    """Return the run of Barzilai and Borwein's steps of a problem in a `while_loop`, for all by vmap; compiled."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp, loop = jax.numpy, jax.lax.while_loop

    def looked(A: Any, x: Any) -> Any:
        products = A @ x
        return 0.5 * x @ products, products - x * (x @ products)

    def solved(A: Any, x: Any) -> Any:
        f, g = looked(A, x)
        goal = TOL**2 * (g @ g)

        def step(state: Any) -> Any:
            x, f, g, t, turn = state

            def shorter(trial: Any) -> Any:
                length, _, tried = trial
                length = jnp.where(tried == 0, length, 0.3 * length)
                moved = x - length * g
                return length, moved / jnp.linalg.norm(moved), tried + 1

            def high(trial: Any) -> Any:
                length, there, tried = trial
                wanted = f + 1e-14 * abs(f) - 1e-4 * length * (g @ g)
                return (tried == 0) | ((looked(A, there)[0] > wanted) & (tried < 20))

            length, there, _ = loop(high, shorter, (t, x, 0))
            cost, new = looked(A, there)
            y = new - g
            sy = abs(length * (g @ y))
            t = jnp.where(turn % 2 == 0, length**2 * (g @ g) / sy, sy / (y @ y))
            return there, cost, new, jnp.where(jnp.isfinite(t) & (t > 0.0), t, length), turn + 1

        going = lambda state: (state[2] @ state[2] > goal) & (state[4] < 1000)  # noqa: E731
        return loop(going, step, (x, f, g, 1.0 / jnp.linalg.norm(g), 0))[1]

    run, given = jax.jit(jax.vmap(solved)), (jnp.asarray(A), jnp.asarray(starts))
    work = lambda: np.asarray(run(*given))  # noqa: E731
    work()
    return work


@one_blas_thread()
def eigenvectors(k: int) -> list[dict[str, Any]]:
    rng, sphere = np.random.default_rng(0), Sphere(N)
    A = rng.standard_normal((k, N, N))
    A, least = A + A.mT, 0.5 * np.linalg.eigvalsh(A + A.mT)[:, 0]
    starts = np.array([sphere.random_point(rng) for _ in range(k)])
    first = range(min(k, SAMPLE))

    def one_by_one(solver: Any) -> Any:
        return np.array([solver.run(Problem(sphere, Quotients(A[i])), starts[i]).cost for i in first])

    many = partial(solve_many, sphere, points=starts, tol=TOL)
    works: dict[str, Callable[[], Any]] = {
        "solve_many": lambda: many(Quotients(A)).costs,
        "solve_many, of a cost without cost[rows]": lambda: many(Whole(A)).costs,
        "solve_many, trust regions": lambda: many(Quotients(A), method="trust-regions").costs,
        f"GradientDescent, {len(first)} one by one": lambda: one_by_one(GradientDescent()),
        f"TrustRegions, {len(first)} one by one": lambda: one_by_one(TrustRegions()),
    }
    with suppress(pytest.skip.Exception):
        works["jax.vmap of a while_loop"] = by_vmap(A, starts)
    rows = []
    for name, work in works.items():
        seconds, costs = median(work, clock=time.process_time)
        share = float(np.mean(costs - least[: len(costs)] < 1e-6))
        rows.append({"by": name, "µs a problem": 1e6 * seconds / len(costs), "at their least": share})
    return rows


@pytest.mark.parametrize("k", [20_000])
def test_eigenvectors(measured: Any, k: int) -> None:
    """Least eigenvalues of 20,000 symmetric 8 × 8 matrices, from random starts, until gradients are 1e-6 as long."""
    rows = measured(eigenvectors, k)
    assert rows[0]["µs a problem"] < 80.0
    assert all(row["at their least"] == 1.0 for row in rows[:3])


class Turned(Quotients):
    """Minus the sum over all points, the columns of one array where it is transposed."""

    def __init__(self, A: Any, axes: tuple[int, ...]) -> None:
        self.A, self.axes = A, axes

    def value_and_gradient(self, point: Any) -> Any:
        gradient = self.hessian(point, point)
        return 0.5 * float(np.vdot(point, gradient)), gradient

    def hessian(self, point: Any, direction: Any) -> Any:
        stacked = np.expand_dims(direction.transpose(self.axes), -1) if direction.ndim == 2 else direction
        products = -(self.A @ stacked)
        return products[..., 0].transpose(self.axes) if direction.ndim == 2 else products


def stacks(rng: np.random.Generator) -> dict[str, tuple[Any, ...]]:
    """Return powers with their costs, and what stands beside them."""
    A, B = rng.standard_normal((500, 8, 8)), rng.standard_normal((1000, 3, 3))
    A, B = A + A.mT, B + B.mT
    subspaces, directions = Power(Grassmann(8, 2), 500), Power(Sphere(3), 1000)
    peer = pymanopt.manifolds.Grassmann(8, 2, k=500)
    return {
        "Grassmann": (subspaces, Turned(A, (0, 1, 2)), peer, Turned(A, (0, 1, 2)), subspaces.random_point(rng)),
        "Sphere": (directions, Turned(B, (0, 1)), Oblique(3, 1000), Turned(B, (1, 0)), directions.random_point(rng)),
    }  # fmt: skip


@one_blas_thread()
def beside(kind: str, solver: Any) -> list[dict[str, Any]]:
    ours, cost, peer, other, start = stacks(np.random.default_rng(0))[kind]

    def of_peer() -> float:
        if isinstance(peer, Oblique):
            return solver.run(Problem(peer, other), start.T).cost
        wrap = pymanopt.function.numpy(peer)
        parts = wrap(other.value), wrap(other.gradient), wrap(other.hessian)
        problem = pymanopt.Problem(peer, parts[0], euclidean_gradient=parts[1], euclidean_hessian=parts[2])
        least = TOL * peer.norm(start, problem.riemannian_gradient(start))
        optimizer = getattr(pymanopt.optimizers, type(solver).__name__)
        made = optimizer(min_gradient_norm=least, max_iterations=10**5, max_time=60, verbosity=0)
        return made.run(problem, initial_point=start).cost

    rows = {}
    for name, work in (
        (repr(ours), lambda: solver.run(Problem(ours, cost), start).cost),
        (str(peer), of_peer),
    ):
        seconds, end = median(work, clock=time.process_time)
        rows[name] = {"of": name, "by": type(solver).__name__, "ms": 1e3 * seconds, "cost": float(end)}
    first, second = rows.values()
    np.testing.assert_allclose(first["cost"], second["cost"], rtol=1e-6)
    return [first | {"beside": second["of"], "its ms": second["ms"], "ratio": first["ms"] / second["ms"]}]


@pytest.mark.parametrize("solver", [TrustRegions(), ConjugateGradient()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(("kind", "most"), [("Grassmann", 1.0), ("Sphere", 1.2)])
def test_powers(measured: Any, kind: str, most: float, solver: Any) -> None:
    """Stacked points as one point of a power, beside manifolds that have them built in."""
    (row,) = measured(beside, kind, solver)
    assert row["ratio"] <= most
