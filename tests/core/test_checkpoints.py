"""Checkpoints: whose they are, what they may hold, larger budgets, and runs that are told to end."""

from __future__ import annotations

import importlib
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numba
import numpy as np
import pytest
import scipy.sparse as sp
from descent_parts import Quadratic
from resumable_runs import CASES, FIXED, Rayleigh, bilinear, bits, run
from tabled import each_row

import rmopt
from problems.similarity import LoretaSimilarity
from problems.subspace import MatrixCompletion, MultitaskFeatures
from problems.subspace.instances import agent_sums
from rmopt import DivergedError, InvalidInputError, Problem
from rmopt.arrays import load_arrays, save_arrays
from rmopt.core import StorageError, WholeCost
from rmopt.core.identity import fingerprint, fingerprints, is_installed
from rmopt.manifolds import (
    BoundedRank,
    Grassmann,
    Hyperbolic,
    PSDFactors,
    PSDFixedRank,
    Simplex,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
)
from rmopt.retractions import QR
from rmopt.solvers import (
    LBFGS,
    SGD,
    Checkpoint,
    GradientSolver,
    Hybrid,
    MaxSeconds,
    MaxSteps,
    RankIncremental,
    Recorder,
    Stagnation,
    TrustRegions,
    checkpoint,
)

G = Grassmann(12, 3)
SCALE = 1.0


def quick(cost: Any, path: Path, n_steps: int = 20, **options: Any) -> Any:
    problem = Problem(G, WholeCost(cost))
    return SGD(0.05, max_iter=n_steps).run(
        problem, random_state=0, checkpoint=Checkpoint(path, 0.0), **options
    )


def helped(point: Any) -> Any:
    return SCALE * point


def of_function(function: Any) -> Any:
    return rmopt.autograd_cost(function)


class Scaled(Rayleigh):
    def gradient(self, point: Any) -> Any:
        return helped(super().gradient(point))


def with_closure(sign: float) -> Any:
    return of_function(lambda U: sign * anp.sum(U[0]))


def of_data(data: Any) -> Any:
    cost = Rayleigh()
    cost.data = data
    return cost


def sparse(rows: list[int], columns: list[int]) -> Any:
    return sp.csr_array((np.arange(1.0, 4.0), (rows, columns)), shape=(3, 3))


# Two costs that differ, each made anew, and nothing else of which differs.
PAIRS: dict[str, tuple[Any, Any]] = {
    "code": (lambda: of_function(lambda U: anp.sum(U[0])), lambda: of_function(lambda U: -anp.sum(U[0]))),
    "constant": (lambda: of_function(lambda U: 2.0 * U[0, 0]), lambda: of_function(lambda U: 3.0 * U[0, 0])),
    "enclosed": (lambda: with_closure(1.0), lambda: with_closure(-1.0)),
    "default": (
        lambda: of_function(lambda U, s=1.0: s * anp.sum(U[0])),
        lambda: of_function(lambda U, s=-1.0: s * anp.sum(U[0])),
    ),
    "keyword": (
        lambda: of_function(lambda U, *, s=1.0: s * anp.sum(U[0])),
        lambda: of_function(lambda U, *, s=-1.0: s * anp.sum(U[0])),
    ),
    "columns": (lambda: of_data(sparse([0, 0, 1], [0, 2, 1])), lambda: of_data(sparse([0, 0, 1], [0, 1, 2]))),
    "rows": (lambda: of_data(sparse([0, 0, 1], [0, 2, 1])), lambda: of_data(sparse([0, 0, 2], [0, 2, 1]))),
    "shape": (lambda: of_data(np.zeros((2, 3))), lambda: of_data(np.zeros((3, 2)))),
    "kind of number": (lambda: of_data(np.zeros(3)), lambda: of_data(np.zeros(3, int))),
    "attribute": (lambda: Rayleigh(-1.0), lambda: Rayleigh(1.0)),
    "method": (Rayleigh, Scaled),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_checkpoint_of_another_cost_is_refused(name: str, tmp_path: Path) -> None:
    one, other = PAIRS[name]
    first = quick(one(), tmp_path / "c.npz")
    np.testing.assert_array_equal(quick(one(), tmp_path / "c.npz").point, first.point)
    with pytest.raises(InvalidInputError, match=r"belongs to another run: its cost"):
        quick(other(), tmp_path / "c.npz")


def test_what_a_function_names_is_part_of_a_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(Scaled(), tmp_path / "c.npz")
    monkeypatch.setattr("test_checkpoints.SCALE", 2.0)
    with pytest.raises(InvalidInputError, match=r"its cost\.cost is"):
        quick(Scaled(), tmp_path / "c.npz")


@rmopt.autograd_cost
def first_row(U: Any) -> Any:
    return anp.sum(U[0])


class ByName:
    def __reduce__(self) -> str:
        return "BY_NAME"


BY_NAME = ByName()


def test_what_goes_by_a_name_counts_by_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prints() -> list[str]:
        return [fingerprint(thing) for thing in (2.0 * first_row, ((first_row,), ()), [BY_NAME])]

    def other(U: Any) -> Any:
        return -anp.sum(U[0])

    quick(2.0 * first_row, tmp_path / "c.npz")
    before = prints()
    assert before == prints()
    other.__qualname__ = "first_row"
    monkeypatch.setattr(first_row, "function", other)
    monkeypatch.setattr(BY_NAME, "size", 1, raising=False)
    assert pickle.loads(pickle.dumps(first_row)) is first_row
    assert not set(before) & set(prints())
    with pytest.raises(InvalidInputError, match="belongs to another run: its cost"):
        quick(2.0 * first_row, tmp_path / "c.npz")


def twice(z: float) -> float:
    return 2 * z


def test_fingerprints_know_equals_and_end() -> None:
    cost = Rayleigh()
    cost.me = [cost]  # type: ignore[attr-defined]
    twin = Rayleigh()
    twin.me = [twin]  # type: ignore[attr-defined]
    assert fingerprint(cost) == fingerprint(twin) != fingerprint(Rayleigh())
    # The sizes of manifolds may be numpy's.
    for kind in (
        Stiefel,
        Hyperbolic,
        Simplex,
        SymmetricPositiveDefinite,
        PSDFactors,
        partial(BoundedRank, 6),
    ):
        assert fingerprint(kind(*np.array([5, 2]))) == fingerprint(kind(5, 2))
    things = [
        1, 1.0, True, "1", b"1", None, (1,), [1], {1}, {1: 1}, np.ones(1), np.ones(1, int), np.ones((1, 1)), np.sin,
        np.cos, len, Rayleigh, cost.value, slice(1), range(1), np.float64(1), lambda x: x, lambda x: x + 1,
    ]  # fmt: skip
    assert len({fingerprint(thing) for thing in things}) == len(things)
    # Given signatures say what arguments are turned into.
    signatures = (), ("float64(float64)",), ("int64(int64)",)
    assert len({fingerprint(numba.njit(*given)(twice)) for given in signatures}) == 3
    # What numba compiled for the types that it met is no part of a function.
    everywhere = numba.vectorize(twice)
    first = fingerprint(everywhere)
    everywhere(np.ones(2))
    assert fingerprint(everywhere) == first != fingerprint(numba.vectorize(lambda x: x))


def test_arrays_in_files_are_known_by_their_content(tmp_path: Path) -> None:
    for name, numbers in (("a", np.arange(5.0)), ("b", np.arange(5.0)), ("c", np.ones(5))):
        np.save(tmp_path / name, numbers)
    a, b, c = (fingerprint(np.load(tmp_path / f"{name}.npy", mmap_mode="r")) for name in "abc")
    assert a == b == fingerprint(np.arange(5.0)) != c


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Path(__file__).open(),  # noqa: SIM115
         "cost.cost.extra, of type TextIOWrapper, has a state that cannot be looked"),
        (lambda: [i for i in ()] or (i for i in ()), "of type generator, has a state"),
        (threading.Lock, "of type lock, has a state"),
        (lambda: np.frompyfunc(len, 1, 1), "of type ufunc, has a state"),
        (lambda: np.random.default_rng(0), "of type Generator, is a source of random numbers"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_apart_is_refused_before_work(make: Any, words: str, tmp_path: Path) -> None:
    cost = Rayleigh()
    cost.extra = make()  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match=f"{words}.*method fingerprint"):
        quick(cost, tmp_path / "c.npz")
    assert not list(tmp_path.iterdir())
    quick_without = SGD(0.05, max_iter=2).run(Problem(G, WholeCost(cost)), random_state=0)
    assert quick_without.steps == 2

    class Named(Rayleigh):
        def fingerprint(self) -> str:
            return f"Rayleigh {self.factor}"

    named = Named()
    named.extra = cost.extra  # type: ignore[attr-defined]
    quick(named, tmp_path / "c.npz")
    assert quick(named, tmp_path / "c.npz", 30).steps == 30
    named.factor = 2.0
    with pytest.raises(InvalidInputError, match="another run"):
        quick(named, tmp_path / "c.npz")
    getattr(cost.extra, "close", lambda: None)()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CASES)
def test_a_larger_budget_gives_the_bits_of_one_long_run(name: str, tmp_path: Path) -> None:
    few = CASES[name].few
    whole = run(name, few)
    path = tmp_path / "c.npz"
    for part in (few // 3, few // 2, few):
        resumed = run(name, part, path)
    found, expected = bits(resumed), bits(whole)
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)
    # A finished run is its result, and a run that was longer is none.
    np.testing.assert_array_equal(bits(run(name, few, path))["rows"], expected["rows"])
    with pytest.raises(
        InvalidInputError, match=r"c\.npz has done \d+ steps, more than the budget of 1; choose"
    ):
        run(name, 1, path)


def forged(path: Path, change: Any) -> None:
    """Write a checkpoint again with a change, and with the digest of a file that rmopt saved."""
    arrays, about = load_arrays(path)
    change(arrays, about)
    checkpoint._save(path, arrays, about)


FORGERIES: dict[str, Any] = {
    "shape": lambda arrays, about: arrays.update({"factors.A": arrays["factors.A"][:-1]}),
    "dimensions": lambda arrays, about: arrays.update({"factors.A": arrays["factors.A"][0]}),
    "type": lambda arrays, about: arrays.update({"factors.A": arrays["factors.A"].astype(np.float32)}),
    "words": lambda arrays, about: arrays.update({"factors.A": arrays["factors.A"].astype(str)}),
    "missing": lambda arrays, about: arrays.pop("factors.A"),
    "more": lambda arrays, about: arrays.update(extra=np.ones(1)),
    "no step": lambda arrays, about: about.pop("step"),
    "no rows": lambda arrays, about: about.pop("rows"),
    "no seconds": lambda arrays, about: about.pop("seconds"),
    **{
        f"step {step!r}": lambda arrays, about, step=step: about.update(step=step)
        for step in (10**9, -5, True, float("inf"), float("nan"), "7", None, 7.0, 19)
    },
    **{
        f"seconds {seconds!r}": lambda arrays, about, seconds=seconds: about.update(seconds=seconds)
        for seconds in (-1.0, float("nan"), "1", None)
    },
    **{
        f"rows {rows!r}": lambda arrays, about, rows=rows: about.update(rows=rows)
        for rows in (None, {}, [1], [{}], [{"step": -1}], [{"step": 10**6}])
    },
}


@each_row("name", FORGERIES)
def test_a_forged_checkpoint_is_told_by_its_name(name: str, tmp_path: Path) -> None:
    path, problem, solver = tmp_path / "c.npz", bilinear(FIXED), SGD(0.02, max_iter=20)
    path.unlink(missing_ok=True)
    solver.run(problem, random_state=0, checkpoint=Checkpoint(path))
    forged(path, FORGERIES[name])
    with pytest.raises(StorageError, match=r"c\.npz .*[Dd]elete it or choose another path"):
        solver.run(problem, random_state=0, checkpoint=Checkpoint(path))


def test_files_of_other_formats_and_changed_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    quick(Rayleigh(), path)
    arrays, about = load_arrays(path)
    for key, value, words in (
        ("checkpoint_format", 1, "is of format 1, and this version of rmopt reads 2"),
        ("seconds", about["seconds"] + 1.0, "is not as it was saved"),
        ("identity", None, "is not a checkpoint"),
        ("identity", "x", "is not a checkpoint"),
        ("identity", about["identity"] | {"more": 1}, "its more is 1, not None"),
    ):
        save_arrays(path, arrays, about | {key: value})
        with pytest.raises((InvalidInputError, StorageError), match=words):
            quick(Rayleigh(), path)
    save_arrays(path, arrays | {"point": arrays["point"] + 1e-12}, about)
    with pytest.raises(StorageError, match="is not as it was saved"):
        quick(Rayleigh(), path)


def test_a_state_that_no_file_keeps_is_refused_before_work(tmp_path: Path) -> None:
    problem, solver = Problem(G, WholeCost(Rayleigh())), CASES["own-solver"].solver(5)
    engine: Any = solver.engine(problem)
    engine.load = lambda point: {"point": point, "odd": {1}}
    solver.engine = lambda problem: engine  # type: ignore[method-assign]
    with pytest.raises(InvalidInputError, match="cannot keep odd of a state, of type set"):
        engine.pack(engine.load(np.eye(3)))


# Ctrl-C


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """A shell may start the tests with Ctrl-C ignored, and ignored signals stay ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_run_that_is_told_to_end_saves_first(number: Any, error: Any, tmp_path: Path) -> None:
    path, problem = tmp_path / "c.npz", bilinear(FIXED)
    before = signal.getsignal(number)

    def tell(point: Any) -> float:
        signal.raise_signal(number)
        return 0.0

    def go_on(metric: Any, kept: Path | None) -> Any:
        return SGD(0.02, max_iter=5000).run(
            problem,
            random_state=0,
            recorder=Recorder({"told": metric}, at=[2000]) if metric else None,
            checkpoint=None if kept is None else Checkpoint(kept, 1e6),
        )

    whole = go_on(None, None)
    with pytest.raises(error) as caught:
        SGD(0.02, max_iter=5000).run(
            problem,
            random_state=0,
            recorder=Recorder({"told": Late(tell)}, at=[2000]),
            checkpoint=Checkpoint(path, 1e6),
        )
    assert error is KeyboardInterrupt or caught.value.code == 143
    assert signal.getsignal(number) == before
    assert load_arrays(path)[1]["step"] == 2000
    np.testing.assert_array_equal(go_on(None, path).point.S, whole.point.S)


class Late:
    """A metric that acts from its second call on, times `often`."""

    def __init__(self, act: Any, often: int = 1) -> None:
        self.act, self.calls, self.often = act, 0, often

    def __call__(self, point: Any) -> float:
        self.calls += 1
        if self.calls > 1:
            for _ in range(self.often):
                self.act(point)
        return 0.0


def test_a_second_ctrl_c_ends_at_once_and_other_threads_set_no_handlers(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    twice = Late(lambda point: signal.raise_signal(signal.SIGINT), 2)
    with pytest.raises(KeyboardInterrupt):
        quick(Rayleigh(), path, 50, recorder=Recorder({"told": twice}, at=[20]))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # The first save is still to come: none was due.
    path.unlink(missing_ok=True)
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(quick(Rayleigh(), path).steps))
    thread.start()
    thread.join()
    assert ended == [20]


def test_a_handler_of_the_users_that_goes_on_is_obeyed(tmp_path: Path) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        told = Late(lambda point: signal.raise_signal(signal.SIGINT))
        result = quick(Rayleigh(), tmp_path / "c.npz", 50, recorder=Recorder({"told": told}, at=[20]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.steps == 50
    assert came == [signal.SIGINT, signal.SIGINT]


# Stop


def test_stop_needs_no_metrics() -> None:
    seen: list[Any] = []

    def stop(rows: list[dict[str, Any]]) -> str | None:
        seen.append(rows)
        return "enough" if rows[-1]["step"] >= 1000 else None

    result = SGD(0.02, max_iter=100_000).run(bilinear(FIXED), random_state=0, stop=stop)
    assert result.stopped_by == "enough"
    assert 1000 <= result.steps < 100_000
    assert result.history == []
    # The start and the present moment.
    assert all(len(rows) == 2 and set(rows[1]) == {"step", "updates", "seconds"} for rows in seen)
    at_once = SGD(0.02).run(bilinear(FIXED), random_state=0, stop=lambda rows: "no")
    assert (at_once.steps, at_once.stopped_by) == (0, "no")


@each_row("answer", [True, False, 1, 0.0, np.bool_(True), ["x"]])
def test_a_stop_that_gives_no_reason_is_refused(answer: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"stop returned .*; it must return a reason as a string, or None"
    ):
        SGD(0.02, max_iter=10).run(bilinear(FIXED), random_state=0, stop=lambda rows: answer)


@each_row(
    "options",
    [{"stop": "late"}, {"recorder": {}}, {"checkpoint": 3}, {"first_step": -1}, {"first_step": 1.0}],
)
def test_arguments_of_run_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        SGD(0.02, max_iter=10).run(bilinear(FIXED), **options)


# Seeds of rounds


def test_the_seed_reaches_the_local_optimiser(tmp_path: Path) -> None:
    class Spy(SGD):
        seeds: list[int]

        def run(self, problem: Problem, *arguments: Any, **options: Any) -> Any:
            seen.append(options["random_state"])
            return super().run(problem, *arguments, **options)

    def seeds(random_state: int, first_step: int = 0) -> list[int]:
        seen.clear()
        problem, solver = (
            CASES["rank-incremental"].problem(),
            RankIncremental(inner=Spy(1e-3, max_iter=5), max_iter=3),
        )
        solver.run(problem, random_state=random_state, first_step=first_step)
        return list(seen)

    seen: list[int] = []
    first = seeds(0)
    assert len(set(first)) == 3
    assert seeds(0) == first
    assert seeds(0, first_step=1)[:2] == first[1:]
    assert not set(seeds(1)) & set(first)


# Points that are changed in place


@pytest.mark.parametrize("name", ["completion-ridge", "multitask"])
def test_a_change_in_place_is_seen(name: str) -> None:
    cost: Any = agent_sums(1)[name]
    assert isinstance(cost, MatrixCompletion | MultitaskFeatures)
    fresh: Any = agent_sums(1)[name]
    manifold = Grassmann(cost.n_rows, 2)
    U = manifold.random_point(np.random.default_rng(0))
    V = manifold.random_point(np.random.default_rng(1))
    cost.value(U)
    gradient = cost.gradient(U)
    gradient = gradient if isinstance(gradient, np.ndarray) else gradient @ np.eye(2)
    before = gradient.copy()
    gradient *= 0.0
    again = cost.gradient(U)
    np.testing.assert_array_equal(again if isinstance(again, np.ndarray) else again @ np.eye(2), before)
    U[:] = V
    assert cost.value(U) == fresh.value(V)
    assert fingerprint(cost) == fingerprint(agent_sums(1)[name])


# Numbers that are not finite, points that are not on the manifold


class Broken(Rayleigh):
    def gradient(self, point: Any) -> Any:
        return np.full_like(point, np.nan)


class Singular(Rayleigh):
    def gradient(self, point: Any) -> Any:
        return np.linalg.solve(np.zeros((12, 12)), point)


@pytest.mark.parametrize("cost", [Broken(), Singular()])
@pytest.mark.parametrize("solver", [SGD(0.1, max_iter=3), CASES["own-solver"].solver(3)])
def test_a_gradient_that_is_not_finite_diverges(solver: Any, cost: Any) -> None:
    with pytest.raises(DivergedError):
        solver.run(Problem(G, WholeCost(cost)), random_state=0)


class Refusing(Rayleigh):
    def gradient(self, point: Any) -> Any:
        raise ValueError("not today")


def test_an_error_of_the_users_is_not_its_own_cause() -> None:
    with pytest.raises(ValueError, match="not today") as caught:
        SGD(0.1, max_iter=3).run(Problem(G, WholeCost(Refusing())), random_state=0)
    assert caught.value.__cause__ is not caught.value


@each_row("part", ["value", "factor_gradient"])
@each_row("solver", [LBFGS(), TrustRegions(), Hybrid(), RankIncremental(), RankIncremental(inner=None)])
def test_a_convex_cost_of_nan_diverges(solver: Any, part: str) -> None:
    problem = CASES["rank-incremental"].problem()
    cost: Any = problem.cost

    class Spoiled(type(cost)):  # type: ignore[misc]
        def at(self, Y: Any) -> Any:
            local = super().at(Y)
            if part == "value":
                local.value = np.nan
            else:
                local.factor_gradient = lambda: np.full_like(Y, np.nan)
            return local

    n = cost.shape[0]
    manifold: Any = PSDFactors(n, 2) if isinstance(solver, GradientSolver) else PSDFixedRank(n, 2)
    with pytest.raises(DivergedError):
        solver.run(Problem(manifold, Spoiled(*cost.parts)), random_state=0)


def test_the_end_of_a_run_is_on_the_manifold() -> None:
    class Straight(QR):
        """Right for short steps only, which is all that is tried before work starts."""

        def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
            short = abs(t) * np.linalg.norm(tangent) < 0.01
            return super().__call__(manifold, point, tangent, t) if short else point + t * tangent

    problem = Problem(G, WholeCost(Rayleigh()))
    with pytest.raises(
        DivergedError, match=r"the run ended off Grassmann\(12, 3\): .*Likely causes: the retraction Straight"
    ):
        SGD(0.1, max_iter=50, retraction=Straight()).run(problem, random_state=0)


@pytest.mark.parametrize("given", [None, {"rank": "3"}])
def test_a_criterion_goes_on_with_the_measurements_that_it_began_with(given: Any, tmp_path: Path) -> None:
    def fitted(budget: int, stop: Any, name: str | None = None) -> Any:
        recorder = Recorder({"map": lambda U: float(U[0, 0])}, at=np.linspace(0, budget, 5)[1:].astype(int))
        saving = name and Checkpoint(tmp_path / name, given=given)
        solver = SGD(0.05, max_iter=budget)
        problem = Problem(G, WholeCost(Rayleigh()))
        return solver.run(problem, random_state=0, recorder=recorder, checkpoint=saving, stop=stop)

    fitted(20, Stagnation(8, "map"), "run.npz")
    with pytest.raises(InvalidInputError, match="measured at other steps than this run plans"):
        fitted(40, Stagnation(8, "map"), "run.npz")
    # Where nothing looks at them they are no part of the run.
    for stop in (None, MaxSeconds(600) | MaxSteps(40)):
        assert np.array_equal(fitted(40, stop, "run.npz").point, fitted(40, stop).point)
    with pytest.raises(InvalidInputError, match="measured at other steps"):
        fitted(40, MaxSeconds(600) | Stagnation(8, "map"), "run.npz")
    fitted(20, None, "alone.npz")
    assert np.array_equal(fitted(40, None, "alone.npz").point, fitted(40, None).point)


def test_a_path_is_a_checkpoint_and_keeps_its_seed(tmp_path: Path) -> None:
    problem, file = Problem(G, WholeCost(Rayleigh())), tmp_path / "run.npz"
    start = G.random_point(np.random.default_rng(5))
    for initial in (start, None):
        first = SGD(0.05, max_iter=20).run(problem, initial, checkpoint=str(file))
        again = SGD(0.05, max_iter=30).run(problem, initial, checkpoint=file)
        whole = SGD(0.05, max_iter=30).run(problem, initial, random_state=first.seed)
        assert again.seed == first.seed
        assert np.array_equal(again.point, whole.point)
        with pytest.raises(InvalidInputError, match="its seed is"):
            SGD(0.05, max_iter=40).run(problem, initial, random_state=first.seed + 1, checkpoint=file)
        file.unlink()
    # A file of something else has no seed to give.
    for content in (b"", b"not an archive"):
        file.write_bytes(content)
        with pytest.raises(StorageError):
            SGD(0.05, max_iter=20).run(problem, start, checkpoint=file)
    save_arrays(file, {"X": np.ones(3)}, {"identity": "mine"})
    with pytest.raises(InvalidInputError, match="not a checkpoint"):
        SGD(0.05, max_iter=20).run(problem, start, checkpoint=file)
    with pytest.raises(InvalidInputError, match="a path, a Checkpoint, or None"):
        SGD(0.05).run(problem, start, checkpoint=3)  # type: ignore[arg-type]


Array = np.ndarray


def test_an_own_attribute_of_a_solver_belongs_to_the_run(tmp_path: Path) -> None:
    class Inner(LBFGS):
        n_steps = 1

        def __init__(self, n_steps: int, max_iter: int) -> None:
            super().__init__(max_iter=max_iter)
            object.__setattr__(self, "n_steps", n_steps)

    problem, checkpoint = Problem(Sphere(5), Quadratic()), Checkpoint(tmp_path / "run.npz")
    Inner(1, 3).run(problem, random_state=0, checkpoint=checkpoint)
    assert Inner(1, 5).run(problem, random_state=0, checkpoint=checkpoint).steps > 3
    with pytest.raises(InvalidInputError, match="n_steps is 1, not 50"):
        Inner(50, 9).run(problem, random_state=0, checkpoint=checkpoint)


def test_fingerprints_see_masks_fields_class_words_weights_and_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = np.arange(4.0)
    assert fingerprint(np.ma.array(a, mask=a > 1)) != fingerprint(np.ma.array(a, mask=a > 2))
    fields = ([("a", "f8"), ("b", "f8")], [("b", "f8"), ("a", "f8")])
    assert len({fingerprint(np.zeros(3, kind)) for kind in fields}) == 2

    def scaled(word: float) -> type:
        return type("Scaled", (Rayleigh,), {"__scale__": word, "__module__": "__main__"})

    assert fingerprint(scaled(1.0)()) != fingerprint(scaled(2.0)())
    two, three = (fingerprints(weight * Rayleigh(), "cost") for weight in (2.0, 3.0))
    assert [(key, two[key], three[key]) for key in two if two[key] != three[key]] == [
        ("cost.weights", "'2.0'", "'3.0'")
    ]
    # A module of the user's, called like one of Python's, held by a cost and imported within a method.
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = set()
    for number in (1.0, 2.0):
        (tmp_path / "own_settings.py").write_text(f"S = {number}\n")
        sys.modules.pop("own_settings", None)
        import own_settings  # type: ignore[import-not-found]

        def inside() -> Any:
            from own_settings import S

            return S

        seen |= {fingerprint(own_settings), fingerprint(inside)}
    assert len(seen) == 4


def test_installed_packages_count_by_their_names_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where ``pip install --target`` put them beside modules of the user's."""
    files = ["site-packages/loaded_module.py", "chosen_target.py", "beside_target.py"]
    record = tmp_path / "chosen-1.0.dist-info" / "RECORD"
    for file in (record, *(tmp_path / one for one in files)):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    record.write_text("chosen_target.py,sha256=,0\nwithin/beside_target.py,sha256=,0\n")
    for folder in (tmp_path, tmp_path / "site-packages"):
        monkeypatch.syspath_prepend(str(folder))
    names = [Path(file).stem for file in files]
    for name in names:
        importlib.import_module(name)
    assert [is_installed(name) for name in names] == [True, True, False]


ROWS = np.random.default_rng(0).standard_normal((40, 6))
CLASSES = np.arange(40) % 3


def test_two_runs_do_not_save_to_one_file(tmp_path: Path) -> None:
    """The one that finds the other's file says so, and leaves it."""
    path, begun = tmp_path / "run.npz", []
    problem = Problem(Sphere(5), of_function(lambda x: anp.sum(x**4)))

    def run(seed: int, meanwhile: Any = lambda: None) -> int:
        recorder = Recorder({"nothing": lambda x: meanwhile() or 0.0})
        return LBFGS(max_iter=3).run(problem, random_state=seed, recorder=recorder, checkpoint=path).steps

    with pytest.raises(InvalidInputError, match=r"belongs to another run: its seed is 1, not 0"):
        run(0, lambda: None if begun else begun.append(run(1)))
    assert begun == [run(1)]


def test_a_run_without_a_seed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    one, other = (
        LoretaSimilarity(2, max_iter=500, checkpoint=tmp_path / "k.npz").fit(ROWS, CLASSES).model_.point
        for _ in range(2)
    )
    assert np.array_equal(one.U, other.U)
