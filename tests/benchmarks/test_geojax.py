"""Manifolds beside GeoJAX's, in double precision on the same points, and a run with the same JAX function.

GeoJAX's methods are compiled before the clock runs; its solvers call JAX from Python, step by step. On a product of k
manifolds arrays of all k go through at once in both. Times are medians of CPU time, of rounds that alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from rmopt import Problem, jax_cost
from rmopt.core.ambient import dense
from rmopt.core.points import arrays_of
from rmopt.manifolds import FixedRankEmbedded, SpecialOrthogonal, Sphere, Stiefel, SymmetricPositiveDefinite
from rmopt.retractions import MetricProjection
from rmopt.solvers import TrustRegions
from rmopt.solvers.threads import one_blas_thread

jax = pytest.importorskip("jax")
geometry = pytest.importorskip("geojax.geometry")
optimization = pytest.importorskip("geojax.optimization")
jax.config.update("jax_enable_x64", True)

pytestmark = pytest.mark.slow

# Length of the gradient at which runs end.
LIMIT = 1e-6

METHODS = {
    "exp": ("exp", "exp"), "log": ("log", "log"), "dist": ("dist", "dist"), "transport": ("transport", "transport"),
    "gradient": ("euclidean_to_riemannian_gradient", "egrad_to_rgrad"),
}  # fmt: skip
PAIRS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "sphere": (Sphere(1000), lambda: geometry.Sphere(1000)),
    "rotation": (SpecialOrthogonal(3), lambda: geometry.SpecialOrthogonal(3)),
    "rotations": (SpecialOrthogonal(3, 1000), lambda: geometry.SpecialOrthogonal(3)),
    "rotation-10": (SpecialOrthogonal(10), lambda: geometry.SpecialOrthogonal(10)),
    "canonical": (Stiefel(20, 3, metric="canonical"), lambda: geometry.Stiefel((20, 3))),
    "affine": (SymmetricPositiveDefinite(10), lambda: geometry.SPDAffineInvariant((10, 10))),
    "affine-1000": (SymmetricPositiveDefinite(3, 1000), lambda: geometry.SPDAffineInvariant((3, 3))),
    "log-euclidean": (
        SymmetricPositiveDefinite(10, metric="log-euclidean"), lambda: geometry.SPDLogEuclidean((10, 10)),
    ),
    "bures-wasserstein": (
        SymmetricPositiveDefinite(10, metric="bures-wasserstein"), lambda: geometry.SPDBuresWasserstein((10, 10)),
    ),
}  # fmt: skip
# Both take their own: no closed form is known, or not one alone is right.
OWN_TRANSPORT = ("canonical", "bures-wasserstein")


def microseconds(*works: Callable[[], Any], rounds: int = 9, budget: float = 0.02) -> list[tuple[float, Any]]:
    """Return the median CPU time of a call of each, whose rounds alternate, and what the last one returned."""
    calls, times, found = [], [[] for _ in works], [work() for work in works]
    for work in works:
        begun = time.process_time()
        work()
        calls.append(max(1, int(budget / max(time.process_time() - begun, 1e-6))))
    for _ in range(rounds):
        for i, work in enumerate(works):
            begun = time.process_time()
            for _ in range(calls[i]):
                found[i] = work()
            times[i].append((time.process_time() - begun) / calls[i])
    return [(1e6 * float(np.median(each)), last) for each, last in zip(times, found, strict=True)]


def finished(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of JAX computes, once it is there."""
    return function(*arguments).block_until_ready()


def compared(name: str) -> list[dict[str, Any]]:
    """Return a row for each method: times of both, and how far the results are apart."""
    ours, theirs, rng = PAIRS[name][0], PAIRS[name][1](), np.random.default_rng(0)
    x, G = ours.random_point(rng), rng.standard_normal(ours.shape)
    u = 0.3 * ours.random_tangent_vector(x, rng)
    y = ours.exp(x, u)
    G = 0.5 * (G + G.mT) if isinstance(ours, SymmetricPositiveDefinite) else G
    given = {"exp": (x, u), "log": (x, y), "dist": (x, y), "transport": (x, y, u), "gradient": (x, G)}
    rows = []
    for method, (here, there) in METHODS.items():
        if method == "transport" and name in OWN_TRANSPORT:
            continue
        compiled, inputs = jax.jit(getattr(theirs, there)), [jax.numpy.asarray(one) for one in given[method]]
        (own, found), (other, wanted) = microseconds(
            partial(getattr(ours, here), *given[method]), partial(finished, compiled, *inputs)
        )
        # Distances of many are one number here.
        wanted = np.linalg.norm(wanted) if method == "dist" else np.asarray(wanted)
        rows.append({
            "manifold": repr(ours), "method": method, "rmopt, µs": own, "GeoJAX, µs": other,
            "GeoJAX / rmopt": other / own, "apart": float(np.max(np.abs(found - wanted))),
        })  # fmt: skip
    return rows


@pytest.mark.parametrize("name", PAIRS)
@one_blas_thread()
def test_methods(measured: Any, name: str) -> None:
    """Microseconds of CPU time a call, and the largest difference of the results."""
    for row in measured(compared, name):
        # Logarithms by matrix functions, and by shooting, have fewer digits.
        assert row["apart"] < 1e-7


def runs() -> list[dict[str, Any]]:
    """Return the times of trust regions of both with one JAX function, to the same length of the gradient."""
    rng, rows = np.random.default_rng(1), []
    A = rng.standard_normal((200, 200))
    A = A + A.T
    targets = np.stack([SymmetricPositiveDefinite(5).random_point(rng) for _ in range(20)])
    affine = geometry.SPDAffineInvariant((5, 5))
    cases: list[tuple[str, Any, Any, Callable[[Any], Any]]] = [
        ("leading eigenvector", Sphere(200), geometry.Sphere(200), lambda x: -x @ (A @ x)),
        (
            "nearest rotation", SpecialOrthogonal(10), geometry.SpecialOrthogonal(10),
            lambda X: -jax.numpy.sum(X * A[:10, 20:30]),
        ),
        (
            "mean of 20 matrices", SymmetricPositiveDefinite(5), affine,
            lambda W: 0.5 * jax.numpy.mean(jax.vmap(lambda B: affine.dist(W, B) ** 2)(targets)),
        ),
    ]  # fmt: skip
    for name, ours, theirs, function in cases:
        x = ours.random_point(rng)
        problem = Problem(ours, jax_cost(function))

        def own(problem: Any = problem, x: Any = x) -> Any:
            return TrustRegions(gradient_norm=LIMIT).run(problem, x, random_state=0)

        def other(theirs: Any = theirs, function: Any = function, x: Any = x) -> Any:
            solver = optimization.TrustRegions(maxiter=500, tolgradnorm=LIMIT, verbosity=0)
            made = optimization.Minimize(
                M=theirs, cost=function, x0=jax.numpy.asarray(x), solver=solver, key=0
            )
            return made.solve()

        own(), other()
        mine, (seconds, (_, cost, info)) = microseconds(own, other, rounds=3, budget=0.0)
        rows.append({
            "problem": name, "rmopt, ms": 1e-3 * mine[0], "GeoJAX, ms": 1e-3 * seconds,
            "GeoJAX / rmopt": seconds / mine[0], "rmopt, steps": mine[1].steps, "GeoJAX, steps": int(info[-1].iter),
            "costs apart": abs(mine[1].history[-1]["cost"] - float(cost)),
            "rmopt, gradient": mine[1].history[-1]["gradient_norm"], "GeoJAX, gradient": float(info[-1].gradnorm),
        })  # fmt: skip
    return rows


@one_blas_thread()
def test_runs(measured: Any) -> None:
    """Trust regions of both until the gradient is 1e-6 long, from the same start, after a run that compiles."""
    for row in measured(runs):
        assert row["costs apart"] < 1e-8


def large() -> list[dict[str, Any]]:
    """Return what a projection and a retraction take, once compiled, at 5,000 × 4,000."""
    ours, theirs = FixedRankEmbedded(5000, 4000, 5), geometry.FixedRank((5000, 4000), rank=5)
    rng = np.random.default_rng(2)
    x, G = ours.random_point(rng), rng.standard_normal((5000, 4000))
    X, Z = jax.numpy.asarray(ours.to_dense(x)), jax.numpy.asarray(G)
    xi = ours.euclidean_to_riemannian_gradient(x, G)
    Xi = theirs.egrad_to_rgrad(X, Z)
    apart = float(np.abs(dense(ours.embedding(x, xi)) - np.asarray(Xi)).max())
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "gradient of a dense matrix": (
            lambda: ours.euclidean_to_riemannian_gradient(x, G),
            lambda: theirs.egrad_to_rgrad(X, Z).block_until_ready(),
        ),
        "metric projection": (
            lambda: MetricProjection()(ours, x, xi, -0.01),
            lambda: theirs.retr(X, -0.01 * Xi).block_until_ready(),
        ),
    }
    rows = []
    for name, (own, other) in calls.items():
        ((mine, _),) = microseconds(own)
        other()
        begun = time.process_time()
        other()
        seconds = 1e6 * (time.process_time() - begun)
        rows.append({
            "method": name, "rmopt, ms": 1e-3 * mine, "GeoJAX, ms": 1e-3 * seconds, "GeoJAX / rmopt": seconds / mine,
            "point, rmopt, MB": sum(part.nbytes for part in arrays_of(x)) / 1e6, "point, GeoJAX, MB": X.nbytes / 1e6,
            "gradients apart": apart,
        })  # fmt: skip
    return rows


@one_blas_thread()
def test_fixed_rank_at_size(measured: Any) -> None:
    """Matrices of rank 5 and size 5,000 × 4,000; GeoJAX holds dense arrays and factors them anew in each call."""
    for row in measured(large):
        assert row["gradients apart"] < 1e-10
