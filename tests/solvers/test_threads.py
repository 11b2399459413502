"""How many threads BLAS has in a run, by the kind of solver; limits from outside; results and checkpoints."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from descent_parts import Quadratic
from tabled import each_row
from threadpoolctl import ThreadpoolController, threadpool_limits

from rmopt import InvalidInputError, Problem
from rmopt.core.cost import WholeCost
from rmopt.costs import ConstrainedProblem
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Grassmann, Sphere
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaptiveCubics,
    AugmentedLagrangian,
    ConjugateGradient,
    GradientDescent,
    Solver,
    TrustRegions,
    threads,
)

POOLS = ThreadpoolController().select(user_api="blas").lib_controllers
COUNT_CORES, FIND_POOLS = threads._cores.__wrapped__, threads._pools.__wrapped__
pytestmark = pytest.mark.skipif(not POOLS, reason="this BLAS does not tell its number of threads")


def counts() -> tuple[int, ...]:
    """Return the threads of numpy's pool, and of scipy's where it has one."""
    return tuple(pool.num_threads for pool in threads._pools()[0])


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let both pools have two threads on a machine of many cores."""
    monkeypatch.setattr(threads, "_cores", lambda: 16)
    with threadpool_limits(2, user_api="blas"):
        yield
        assert set(counts()) == {2}, "a limit was left in force"


class Watched(Quadratic):
    """Notes how many threads BLAS has where it is looked at."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()
        vars(self).update(more)

    def gradient(self, x: Any) -> Any:
        self.seen.add(counts())
        return super().gradient(x)


class Own(Solver):
    """A solver as a user writes it."""

    max_iter = 3

    def begin(self, work: Any, point: Any) -> Any:
        return SimpleNamespace(point=point, steps=0, updates=0, slope=work.gradient(point))

    def advance(self, work: Any, state: Any, steps: int) -> Any:
        return SimpleNamespace(**vars(state) | {"steps": state.steps + steps})


class OwnFree(Own):
    threads = None


# A solver, and the threads of numpy's pool where two are found.
KINDS: list[tuple[Any, int]] = [
    *((kind(max_iter=2), 2) for kind in (GradientDescent, ConjugateGradient, LBFGS, TrustRegions)),
    *((kind(max_iter=2), 2) for kind in (AdaptiveCubics, AugmentedLagrangian)),
    *((kind(max_iter=2, threads=1), 1) for kind in (LBFGS, TrustRegions, AugmentedLagrangian)),
    (AugmentedLagrangian(inner=LBFGS(threads=1), max_iter=2), 1),
    # No more than were found.
    (ConjugateGradient(max_iter=2, threads=4), 2),
    (SGD(0.1, max_iter=2), 1),
    (PymanoptSolver(max_iterations=2), 1),
    (Own(), 1),
    (OwnFree(), 2),
]


def problem_for(solver: Solver, cost: Any) -> Problem:
    if isinstance(solver, AugmentedLagrangian):
        return ConstrainedProblem(Sphere(5), cost, [Quadratic(np.diag([1.0, -1.0, 0.0, 0.0, 0.0]))])
    return Problem(Sphere(5), WholeCost(cost) if isinstance(solver, SGD) else cost)


@each_row(("solver", "most"), KINDS)
def test_a_kind_of_solver_has_its_threads(solver: Solver, most: int) -> None:
    for outer in (2, 1):
        cost, least = Watched(), min(most, outer)
        expected = (least, 1)[: len(counts())]
        with threadpool_limits(outer, user_api="blas"):
            result = solver.run(problem_for(solver, cost), random_state=0)
            assert (result.threads, cost.seen) == (least, {expected})
            if not isinstance(solver, PymanoptSolver):
                cost.seen.clear()
                for _ in solver.iterate(problem_for(solver, cost), random_state=0):
                    assert set(counts()) == {outer}, "the caller's own work is held"
                assert cost.seen == {expected}


def test_processes_that_share_a_run_have_one_thread_each() -> None:
    shared: Any = SimpleNamespace(cost=SimpleNamespace(world=SimpleNamespace(size=2)))
    with LBFGS(threads=2)._held_threads(shared) as held:
        assert held == 1


def test_cores_that_the_process_may_not_use_have_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_cores", lambda: 1)
    with threads.blas_threads(None) as held:
        assert (held, set(counts())) == (1, {1})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    for quota, cores in (("150000 100000", 2), ("max 100000", 8), ("1600000 100000", 8), ("", 8)):
        monkeypatch.setattr(Path, "read_text", lambda path, quota=quota, **more: quota)
        assert COUNT_CORES() == cores


def test_a_context_in_the_shadow_of_another_keeps_its_threads() -> None:
    """Where contexts of several threads end in another order than they began."""
    with ExitStack() as second:
        with threads.blas_threads(1):
            assert second.enter_context(threads.blas_threads(None)) == 1
        assert set(counts()) == {1}
    assert set(counts()) == {2}


SITE = "/venv-scipy/lib/site-packages"
# The files of libraries, and which of them are numpy's.
LIBRARIES = [
    ([f"{SITE}/scipy.libs/libscipy_openblas-1.so", f"{SITE}/numpy.libs/libscipy_openblas64_-2.so"], [1]),
    ([f"{SITE}/numpy/.dylibs/a.dylib", f"{SITE}/scipy/.dylibs/b.dylib", f"{SITE}/faiss_cpu.libs/c.so"], [0]),
    # One for both; and numpy on a library of the system that tells nothing.
    (["/conda/lib/libmkl_rt.so.2"], [0]),
    ([f"{SITE}/scipy.libs/libscipy_openblas-1.so"], []),
]


@each_row(("files", "numpys"), LIBRARIES)
def test_pools_are_told_apart_by_where_they_lie(
    files: list[str], numpys: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = [SimpleNamespace(filepath=file) for file in files]
    found = SimpleNamespace(select=lambda **which: SimpleNamespace(lib_controllers=pools))
    monkeypatch.setattr(threads, "ThreadpoolController", lambda: found)
    ordered, count = FIND_POOLS()
    assert ordered[:count] == [pools[one] for one in numpys]
    assert len(ordered) == len(pools)


def test_a_number_of_threads_is_checked() -> None:
    for wrong in (0, -1, 1.5, "all"):
        with pytest.raises(InvalidInputError, match="threads"):
            LBFGS(threads=wrong)  # type: ignore[arg-type]
    assert LBFGS(threads=2) != LBFGS()
    assert "threads=2" in repr(AugmentedLagrangian(inner=LBFGS(threads=2)))


# Checkpoints


def dominant() -> tuple[Problem, Any]:
    """Return a problem large enough for OpenBLAS to round its products by the number of threads."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 300))
    problem = Problem(Grassmann(300, 50), Quadratic(A + A.T))
    return problem, problem.manifold.random_point(rng)


MADE: dict[str, Callable[..., Solver]] = {
    "ConjugateGradient": lambda budget, threads: ConjugateGradient(max_iter=budget, threads=threads),
    "AugmentedLagrangian": lambda budget, threads: AugmentedLagrangian(
        inner=LBFGS(max_iter=2, threads=threads), max_iter=budget
    ),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_run_goes_on_with_another_number_of_threads_and_says_so(kind: str, tmp_path: Path) -> None:
    problem, start = dominant()
    if kind == "AugmentedLagrangian":
        problem = ConstrainedProblem(problem.manifold, problem.cost, [Quadratic(np.eye(300))])
    ends = {}
    for first in (1, 2):
        whole = MADE[kind](2, first).run(problem, start, random_state=0)
        for second in (1, 2):
            path = tmp_path / f"{first}{second}.npz"
            MADE[kind](1, first).run(problem, start, random_state=0, checkpoint=path)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                end = MADE[kind](2, second).run(problem, start, random_state=0, checkpoint=path)
            assert (end.steps, end.threads) == (2, second)
            ends[first, second] = [str(one.message) for one in said if one.category is RuntimeWarning]
            if first == second:
                np.testing.assert_array_equal(end.point, whole.point)
            np.testing.assert_allclose(end.point, whole.point, atol=1e-9)
    assert ends[1, 1] == ends[2, 2] == []
    for one, other in ((1, 2), (2, 1)):
        (told,) = ends[one, other]
        assert f"saved with {one} threads of BLAS, and the run continues with {other}" in told
