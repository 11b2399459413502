"""Conjugate gradients on a GPU and on one thread and sixteen, beside pymanopt, GeoJAX and the cost alone.

For a machine with a GPU: ten minutes, each way of computing in a process of its own that is ended after a minute. It
needs no pytest: ``python tests/benchmarks/test_devices.py all FILE`` writes the rows to a file; ``small`` in place of
``all`` takes little data, and RMOPT_SECONDS ends it earlier. What is missing is said in its row.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

if __name__ != "__main__":
    import pytest

    pytestmark = pytest.mark.slow

Row = dict[str, Any]
# Of a measurement, of a process and of all of them, in seconds.
SECONDS, PATIENCE, WHOLE = 2.0, 60.0, float(os.environ.get("RMOPT_SECONDS", "580"))
WAYS = ("GPU", "GeoJAX, GPU", "16 threads", "pymanopt, 16 threads", "1 thread", "PyTorch, 16 threads")


@dataclass
class Case:
    """A problem: its manifold, data in double precision, and cost and gradient of a point by the data.

    The last is written in what numpy, PyTorch and JAX have in common; `xp` is the library's module.
    """

    manifold: Any
    data: dict[str, np.ndarray]
    both: Callable[[Any, Any, Any], tuple[Any, Any]]
    start: Any
    # The manifold of pymanopt's module, and that of GeoJAX's, where it has one.
    of_pymanopt: Callable[[Any], Any]
    of_geojax: Callable[[Any], Any] | None


def subspace(small: bool) -> Case:
    """Return the dominant subspace of a dense symmetric matrix."""
    from rmopt.manifolds import Grassmann

    n, r = (200, 5) if small else (8000, 50)
    A = np.random.default_rng(0).standard_normal((n, n))
    A += A.T.copy()

    def both(xp: Any, data: Any, X: Any) -> tuple[Any, Any]:
        G = data.A @ X
        return 0.5 * (X * G).sum(), G

    manifold = Grassmann(n, r)
    start = manifold.random_point(np.random.default_rng(1))
    return Case(
        manifold, {"A": A / n**0.5}, both, start, lambda m: m.Grassmann(n, r), lambda m: m.Grassmann((n, r))
    )  # fmt: skip


def mean(small: bool) -> Case:
    """Return the Riemannian mean of positive definite matrices."""
    from rmopt.manifolds import SymmetricPositiveDefinite

    count, d = (50, 5) if small else (10_000, 20)
    rng = np.random.default_rng(0)
    B = rng.standard_normal((count, d, 2 * d))
    given = B @ B.mT / (2 * d)

    def both(xp: Any, data: Any, W: Any) -> tuple[Any, Any]:
        inner = data.inverses @ W @ data.inverses.mT
        values, V = xp.linalg.eigh(0.5 * (inner + inner.mT))
        logs = xp.log(values)
        sides = data.inverses.mT @ V
        gradient = ((sides * (logs / values)[:, None, :]) @ sides.mT).sum(0)
        return 0.5 * (logs * logs).sum() / count, gradient / count

    data = {"inverses": np.linalg.inv(np.linalg.cholesky(given))}
    return Case(
        SymmetricPositiveDefinite(d), data, both, given[0], lambda m: m.SymmetricPositiveDefinite(d),
        lambda m: m.SPDAffineInvariant((d, d)),
    )  # fmt: skip


def rotations(small: bool) -> Case:
    """Return the synchronisation of rotations from noisy quotients, a chain among them."""
    from rmopt.manifolds import SpecialOrthogonal

    n, count = (100, 500) if small else (200_000, 1_000_000)
    rng, manifold = np.random.default_rng(0), SpecialOrthogonal(3, n)
    truth = manifold.random_point(rng)
    i, j = rng.integers(n, size=(2, count))
    i[: n - 1], j[: n - 1] = np.arange(n - 1), np.arange(1, n)
    quotients = truth[i].mT @ truth[j] + 0.05 * rng.standard_normal((count, 3, 3))

    def both(xp: Any, data: Any, X: Any) -> tuple[Any, Any]:
        apart = X[data.i] @ data.quotients - X[data.j]
        parts = xp.concatenate([apart @ data.quotients.mT, -apart])
        return 0.5 * (apart * apart).sum(), added(xp, X, xp.concatenate([data.i, data.j]), parts)

    start = manifold.retraction(truth, 0.3 * n**0.5 * manifold.random_tangent_vector(truth, rng))
    data = {"i": i, "j": j, "quotients": quotients}
    return Case(manifold, data, both, start, lambda m: m.SpecialOrthogonalGroup(3, k=n), None)


def added(xp: Any, like: Any, places: Any, parts: Any) -> Any:
    """Return sums of parts by their places."""
    if xp is np:
        import scipy.sparse as sp

        rows = sp.csr_array((np.ones(len(places), parts.dtype), (places, np.arange(len(places)))))
        return (rows @ parts.reshape(-1, 9)).reshape(like.shape)
    zeros = xp.zeros_like(like)
    return zeros.at[places].add(parts) if xp.__name__.startswith("jax") else zeros.index_add(0, places, parts)


def fixed_rank(small: bool) -> Case:
    """Return the nearest matrix of a rank, from a dense gradient."""
    from rmopt.manifolds import FixedRankEmbedded

    n, k = (60, 3) if small else (4096, 16)
    manifold, rng = FixedRankEmbedded(n, n, k), np.random.default_rng(0)
    target = manifold.to_dense(manifold.random_point(rng)) + 0.1 / n**0.5 * rng.standard_normal((n, n))

    def both(xp: Any, data: Any, p: Any) -> tuple[Any, Any]:
        G = (p.U @ p.S) @ p.V.T - data.target
        return 0.5 * (G * G).sum(), G

    return Case(
        manifold, {"target": target}, both, manifold.random_point(rng), lambda m: m.FixedRankEmbedded(n, n, k),
        lambda m: m.FixedRank((n, n), rank=k),
    )  # fmt: skip


CASES = {"subspace": subspace, "mean": mean, "rotations": rotations, "fixed rank": fixed_rank}


def ours(case: Case, xp: Any, **how: Any) -> Iterator[Row]:
    """Yield the times of our solver with arrays of numpy or PyTorch, and of the cost alone."""
    from batch_problems import Counted

    from rmopt import Problem
    from rmopt.core.points import as_like
    from rmopt.solvers import ConjugateGradient

    for single in (False, True):
        real = xp.float32 if single else xp.float64
        like = xp.zeros(1, dtype=real, **how)

        data = SimpleNamespace(**{
            name: xp.asarray(array, dtype=None if array.dtype == int else real, **how)
            for name, array in case.data.items()
        })  # fmt: skip
        start, both = as_like(case.start, like), partial(case.both, xp, data)
        problem = Problem(case.manifold, Counted(both, None))

        def after(steps: int, problem: Any = problem, start: Any = start) -> tuple[float, int, Row]:
            result = ConjugateGradient(max_iter=steps, tol=0.0).run(problem, start, random_state=0)
            looks = {"looks an iteration": result.counts["costs"] / max(result.steps, 1)}
            return result.seconds, result.steps, looks | {"cost": result.cost, "threads": result.threads}

        row = {"precision": "single" if single else "double"} | timed(after)

        def looked(count: int, both: Any = both, start: Any = start) -> tuple[float, int, Row]:
            begun = time.perf_counter()
            for _ in range(count):
                # A number comes to the host when all that it needs is there.
                value, gradient = both(start)
                float(value + gradient[:1].sum())
            return time.perf_counter() - begun, count, {}

        yield row | {"the cost alone, ms": timed(looked)["ms"]}


def timed(after: Callable[[int], tuple[float, int, Row]]) -> Row:
    """Return milliseconds of a step, of as many as the time allows, and what else is told after three steps."""
    after(1)
    seconds, _, told = after(3)
    taken, steps, _ = after(int(np.clip(3 * SECONDS / max(seconds, 1e-9), 3, 100)))
    return {"ms": 1e3 * taken / steps, "steps": steps} | told


def pymanopts(case: Case) -> Iterator[Row]:
    """Yield the times of pymanopt's conjugate gradients, with numpy."""
    import pymanopt
    from pymanopt.manifolds.fixed_rank import _FixedRankPoint

    manifold, data, start = case.of_pymanopt(pymanopt.manifolds), SimpleNamespace(**case.data), case.start
    low = hasattr(start, "U")
    if low:
        U, s, Vt = np.linalg.svd(start.S)
        start = _FixedRankPoint(start.U @ U, s, Vt @ start.V.T)

    def seen(*point: Any) -> tuple[Any, Any]:
        if not low:
            return case.both(np, data, *point)
        U, s, Vt = point
        value, G = case.both(np, data, SimpleNamespace(U=U, S=np.diag(s), V=Vt.T))
        GV = G @ Vt.T
        return value, (GV * s, (U * GV).sum(0), s[:, None] * (U.T @ G))

    wrap = pymanopt.function.numpy(manifold)
    problem = pymanopt.Problem(
        manifold, wrap(lambda *point: float(seen(*point)[0])),
        euclidean_gradient=wrap(lambda *point: seen(*point)[1]),
    )  # fmt: skip

    def after(steps: int) -> tuple[float, int, Row]:
        solver = pymanopt.optimizers.ConjugateGradient(
            max_iterations=steps, min_gradient_norm=0.0, min_step_size=0.0, verbosity=0
        )
        result = solver.run(problem, initial_point=start)
        return result.time, result.iterations, {"cost": float(result.cost)}

    yield {"precision": "double"} | timed(after)


def geojaxes(case: Case) -> Iterator[Row]:
    """Yield the times of GeoJAX's conjugate gradients."""
    import jax
    from geojax import geometry, optimization

    jax.config.update("jax_enable_x64", True)
    data = SimpleNamespace(**{name: jax.numpy.asarray(array) for name, array in case.data.items()})
    if case.of_geojax is None:
        raise LookupError("GeoJAX's solvers take no powers of a manifold")
    manifold, low = case.of_geojax(geometry), hasattr(case.start, "U")
    start = case.manifold.to_dense(case.start) if low else case.start

    def cost(X: Any) -> Any:
        # Points of low rank are dense arrays there.
        return 0.5 * ((X - data.target) ** 2).sum() if low else case.both(jax.numpy, data, X)[0]

    def after(steps: int) -> tuple[float, int, Row]:
        solver = optimization.ConjugateGradient(maxiter=steps, tolgradnorm=0.0, verbosity=0)
        x = jax.numpy.asarray(start)
        made = optimization.Minimize(M=manifold, cost=cost, x0=x, solver=solver, key=0)
        begun = time.perf_counter()
        _, value, info = made.solve()
        return time.perf_counter() - begun, max(int(info[-1].iter), 1), {"cost": float(value)}

    yield {"precision": "double"} | timed(after)


def rows_of(name: str, way: str, small: bool) -> Iterator[Row]:
    """Yield the rows of one way in this process, or a sentence of why there are none."""
    about: Row = {"problem": name, "way": way}
    try:
        if "GPU" in way or "PyTorch" in way:
            import torch

            if "GPU" in way and not torch.cuda.is_available():
                raise LookupError("this machine has no GPU that PyTorch can use")
        if "GeoJAX" in way:
            import geojax  # noqa: F401
        case = CASES[name](small)
        found = {
            "GPU": lambda: ours(case, torch, device="cuda"),
            "PyTorch, 16 threads": lambda: ours(case, torch, device="cpu"),
            "pymanopt, 16 threads": lambda: pymanopts(case),
            "GeoJAX, GPU": lambda: geojaxes(case),
        }.get(way, lambda: ours(case, np))()
        for row in found:
            yield about | row
    except Exception as error:
        yield about | {"why not": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}


def all_rows(names: list[str], small: bool) -> Iterator[Row]:
    """Yield the rows of all ways, each of a process that is ended when it takes too long."""
    begun = time.perf_counter()
    for way in WAYS:
        for name in names:
            threads = "1" if way == "1 thread" else str(min(16, os.cpu_count() or 1))
            numbers = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
            left = min(PATIENCE, WHOLE - (time.perf_counter() - begun))
            words = [sys.executable, __file__, "one", name, way, "small" * small]
            try:
                out = subprocess.run(
                    words, env=os.environ | numbers, capture_output=True, text=True, timeout=max(left, 1.0)
                )
                said, why = out.stdout, out.stderr[-200:]
            except subprocess.TimeoutExpired as ended:
                found = ended.stdout or ""
                said, why = (
                    found.decode() if isinstance(found, bytes) else found,
                    f"took more than {left:.0f} s",
                )
            found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
            yield from found or [{"problem": name, "way": way, "why not": why}]


def test_devices(measured: Any, request: Any) -> None:
    """Milliseconds an iteration on a GPU and on threads; on small data where PyTorch finds no GPU."""
    try:
        import torch

        small = not torch.cuda.is_available()
    except ImportError:
        small = True
    measured(lambda: list(all_rows(list(CASES), small)))


def main(what: str, *more: str) -> None:
    """Print the rows of one way, or those of all, and write them to a file."""
    if what == "one":
        for row in rows_of(more[0], more[1], more[2] == "small"):
            print(json.dumps(row), flush=True)
        return
    rows = []
    for row in all_rows(list(CASES), what == "small"):
        print(json.dumps(row), flush=True)
        rows.append(row)
        for file in more:
            Path(file).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
