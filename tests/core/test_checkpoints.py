"""Checkpoints: whose they are, what they may hold, larger budgets, and runs that are told to end."""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.sparse as sp
from descent_parts import Quadratic
from resumable_runs import CASES, FIXED, Rayleigh, bilinear, bits, run
from tabled import each_row

import rmopt
from problems.metric import CometMetric
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from rmopt import DivergedError, InvalidInputError, Problem
from rmopt.core import StorageError
from rmopt.core.cost import WholeCost
from rmopt.core.values import Value, written
from rmopt.costs import BilinearSum, squared
from rmopt.files import load_arrays, save_arrays
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann, Sphere, Stiefel
from rmopt.retractions import QR
from rmopt.solvers import LBFGS, SGD, Checkpoint, GradientDescent, RankIncremental, Recorder
from rmopt.solvers.save import Saver

G = Grassmann(12, 3)
SCALE = 2.0
ROWS = np.random.default_rng(0).standard_normal((40, 6))
CLASSES = np.arange(40) % 3


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
    "attribute": (lambda: Rayleigh(-1.0), lambda: Rayleigh(1.0)),
    "method": (Rayleigh, Scaled),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_checkpoint_of_another_cost_is_refused(name: str, tmp_path: Path) -> None:
    one, other = PAIRS[name]
    first = quick(one(), tmp_path / "c.npz")
    np.testing.assert_array_equal(quick(one(), tmp_path / "c.npz").point, first.point)
    with pytest.raises(InvalidInputError, match=r"belongs to another run: at the start the (cost|gradient)"):
        quick(other(), tmp_path / "c.npz")


class Counting(Rayleigh):
    """Counts its evaluations, and keeps the last point."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.last = 0, None

    def value(self, point: Any) -> float:
        self.n, self.last = self.n + 1, point
        return super().value(point)


def test_a_cost_that_counts_and_keeps_its_last_point_goes_on(tmp_path: Path) -> None:
    path, cost = tmp_path / "c.npz", Counting()
    solver, whole = (
        partial(LBFGS, tol=0.0),
        LBFGS(max_iter=6, tol=0.0).run(Problem(G, Rayleigh()), random_state=0),
    )
    for again, budget in ((cost, 3), (cost, 5), (Counting(), 6)):
        result = solver(max_iter=budget).run(Problem(G, again), random_state=0, checkpoint=path)
    assert cost.n > 0
    np.testing.assert_array_equal(result.point, whole.point)


def test_another_number_among_the_data_or_another_start_is_another_run(tmp_path: Path) -> None:
    def run(change: float = 0.0, seed: int = 0, tag: str = "") -> Any:
        cost = Rayleigh()
        cost.A[7, 7] += change
        start = G.random_point(np.random.default_rng(seed))
        saving = Checkpoint(tmp_path / "c.npz", tag=tag)
        return LBFGS(max_iter=5).run(Problem(G, cost), start, random_state=0, checkpoint=saving)

    run()
    run(1e-14)
    others: dict[str, Any] = {
        "the cost is": {"change": 1e-6},
        "at the start": {"seed": 1},
        "tag is": {"tag": "b"},
    }
    for words, options in others.items():
        with pytest.raises(InvalidInputError, match=f"another run: .*{words}"):
            run(**options)


@pytest.mark.parametrize(
    ("solver", "changed", "words"),
    [
        (partial(SGD, 1e-3), 1, "cost"),
        (GradientDescent, 1, "cost"),
        (partial(SGD, 1e-3), 200, "gradient norm of some terms"),
    ],
)
def test_many_terms_are_looked_at_once(
    solver: Any, changed: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 20_000, 6))
    manifold = FixedRankEmbedded(6, 6, 2)
    if changed > 1:
        monkeypatch.setattr("rmopt.solvers.stochastic.scheduled.MANY", 10_000)

    def run(n_changed: int, budget: int) -> Any:
        targets = np.zeros(20_000)
        targets[:n_changed] = 1.0
        problem = Problem(manifold, BilinearSum(left, right, squared, targets))
        return solver(max_iter=budget).run(problem, random_state=0, checkpoint=tmp_path / "c.npz")

    run(0, 5)
    run(0, 10)
    with pytest.raises(InvalidInputError, match=f"at the start the {words} is"):
        run(changed, 20)


def test_step_sizes_are_looked_at_far_behind_the_start(tmp_path: Path) -> None:
    problem = Problem(G, WholeCost(Rayleigh()))

    def run(budget: int, rule: Any, name: str) -> Any:
        rule.__name__ = "rule"
        return SGD(rule, max_iter=budget).run(problem, random_state=0, checkpoint=tmp_path / name)

    run(20_000, lambda t: np.full(len(t), 1e-3), "a.npz")
    for later in (17_000, 19_990):
        with pytest.raises(InvalidInputError, match="where it stands the sum of step sizes is"):
            run(20_001, lambda t, later=later: np.where(t < later, 1e-3, 1e-4), "a.npz")
    # A table that ends with the budget may have grown, and what it had may not have changed.
    table = np.full(40_000, 1e-3)
    run(20_000, lambda t: table[:20_000][t], "b.npz")
    run(20_010, lambda t: table[:20_010][t], "b.npz")
    changed = table.copy()
    changed[20_009] = 1e-4
    with pytest.raises(InvalidInputError, match="where it stands the sum of step sizes is"):
        run(40_000, lambda t: changed[t], "b.npz")


class Held(Value):
    def __init__(self, array: Any) -> None:
        self.array = array


@pytest.mark.parametrize(
    "hold", [Held, lambda a: {"a": a}, lambda a: {"a": [Held(a)]}, lambda a: a, lambda a: [a]]
)
@pytest.mark.parametrize(("at", "value"), [(2500, 7.0), (3, 1e-12)])
def test_arrays_are_told_apart_wherever_they_are_held(hold: Any, at: int, value: float) -> None:
    one, other = np.ones((2, 5000))
    other[at] += value
    assert written(hold(one)) == written(hold(one.copy())) != written(hold(other))
    assert len(written(hold(one))) < 1000


def replaced(X: Any) -> Any:
    changed = X.copy()
    changed[7] = changed[8]
    return changed


def lifted(X: Any) -> Any:
    """Return rows of which one alone differs, by less than a cost can tell."""
    changed = X.copy()
    changed[3, 2] += 1e-13
    return changed


ESTIMATORS = {
    "LoretaSimilarity": lambda n, **how: LoretaSimilarity(2, max_iter=n, **how),
    "LoretaLabelRanker": lambda n, **how: LoretaLabelRanker(2, n_epochs=n, **how),
    "CometMetric": lambda n, **how: CometMetric(float(n), compare="similarity", tol=0.0, **how),
    "ContrastiveSimilarity": lambda n, **how: ContrastiveSimilarity(2, n_epochs=2, **how),
    "LowRankLogisticRegression": lambda n, **how: LowRankLogisticRegression(2, n_epochs=2, **how),
}


@pytest.mark.parametrize(
    ("name", "form"), [*zip(ESTIMATORS, itertools.cycle([np.asarray, sp.csr_array]), strict=False)]
)
def test_an_estimator_goes_on_with_the_same_data_alone(name: str, form: Any, tmp_path: Path) -> None:
    def bits(n: int, X: Any = ROWS, path: Any = tmp_path / "c.npz") -> bytes:
        y = (
            np.eye(3, dtype=int)[CLASSES]
            if name in ("LoretaLabelRanker", "LowRankLogisticRegression")
            else CLASSES
        )
        model = ESTIMATORS[name](n, random_state=0, checkpoint=path).fit(form(X), y)
        return (model.model_.point.U if hasattr(model, "model_") else model.components_).tobytes()

    bits(1)
    for changed in (replaced(ROWS), lifted(ROWS)):
        with pytest.raises(InvalidInputError, match="belongs to another run: its X is"):
            bits(3, changed)
    assert bits(3) == bits(3, path=None)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_single_precision_and_a_cost_of_zero_at_the_end_go_on(scale: float, tmp_path: Path) -> None:
    cost = rmopt.autograd_cost(lambda x: scale * anp.sum((x - 1.0) ** 2))
    problem, start = Problem(Euclidean(5), cost), np.full(5, 3.0, np.float32)
    for budget in (20, 40):
        solver = GradientDescent(max_iter=budget, tol=0.0)
        assert solver.run(problem, start, checkpoint=tmp_path / "c.npz").point.dtype == np.float32


TENSORS = """
import sys, torch, rmopt
from rmopt.manifolds import Sphere
from rmopt.solvers import LBFGS
A = torch.diag(torch.arange(1.0, 21.0, dtype=torch.float64))
problem = rmopt.Problem(Sphere(20), rmopt.torch_cost(lambda x: x @ (A @ x)))
print(LBFGS(max_iter=int(sys.argv[1]), tol=0.0).run(problem, random_state=0, checkpoint=sys.argv[2]).steps)
"""


def test_a_cost_with_tensors_goes_on_in_another_process(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for steps in "3", "6":
        command = [sys.executable, "-c", TENSORS, steps, str(tmp_path / "c.npz")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert done.stdout.strip() == steps


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
    """Write a checkpoint again with a change."""
    arrays, about = load_arrays(path)
    change(arrays, about)
    save_arrays(path, arrays, about)


FORGERIES: dict[str, Any] = {
    "shape": lambda arrays, about: arrays.update({"0.factors.A": arrays["0.factors.A"][:-1]}),
    "type": lambda arrays, about: arrays.update({"0.factors.A": arrays["0.factors.A"].astype(np.float32)}),
    "missing": lambda arrays, about: arrays.pop("0.factors.A"),
    "more": lambda arrays, about: arrays.update({"0.extra": np.ones(1)}),
    "no witness": lambda arrays, about: about["parts"][0].pop("witness"),
    "no seconds": lambda arrays, about: about["parts"][0].pop("seconds"),
    "another step": lambda arrays, about: about.update(step=19),
}


@each_row("name", FORGERIES)
def test_a_forged_checkpoint_is_told_by_its_name(name: str, tmp_path: Path) -> None:
    path, problem, solver = tmp_path / "c.npz", bilinear(FIXED), SGD(0.02, max_iter=20)
    path.unlink(missing_ok=True)
    solver.run(problem, random_state=0, checkpoint=Checkpoint(path))
    forged(path, FORGERIES[name])
    with pytest.raises(StorageError, match=r"c\.npz "):
        solver.run(problem, random_state=0, checkpoint=Checkpoint(path))


def test_the_order_of_memory_is_no_part_of_the_file(tmp_path: Path) -> None:
    """Products are rounded otherwise in another one: that of the run is told in words."""
    A, path = np.random.default_rng(1).standard_normal((30, 30)), tmp_path / "c.npz"
    problem = Problem(Stiefel(30, 4), rmopt.autograd_cost(lambda U: anp.sum(anp.cos(A @ U))))
    start = np.asfortranarray(problem.manifold.random_point(np.random.default_rng(0)))

    def run(budget: int, checkpoint: Any = None) -> Any:
        return (
            LBFGS(max_iter=budget, tol=0.0).run(problem, start, checkpoint=checkpoint, random_state=0).point
        )

    run(5, path)
    arrays, about = load_arrays(path)
    save_arrays(path, {name: np.array(array, order="F") for name, array in arrays.items()}, about)
    np.testing.assert_array_equal(run(10, path), run(10))
    wide = np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0)
    saver = Saver("checkpoint", tmp_path / "d.npz")
    saver.save({"x": wide}, {}, 0, seconds=0.0, rows=[], witness=[])
    found = saver.load({})
    assert found is not None
    assert found[0]["x"].strides == wide.strides
    np.testing.assert_array_equal(found[0]["x"], wide)


@each_row("path", ["x" * 300, "a\0b", "/dev/zero", "/"])
def test_a_path_that_cannot_be_a_file_is_told_in_one_sentence(path: str) -> None:
    for checkpoint in (path, Path(path)):
        with pytest.raises(InvalidInputError, match=r"cannot be a file: .*; choose another path"):
            LBFGS().run(Problem(Sphere(5), Quadratic()), random_state=0, checkpoint=checkpoint)
    with pytest.raises(InvalidInputError, match=r"checkpoint .*cannot be a file"):
        LoretaSimilarity(2, checkpoint=path).fit(ROWS, CLASSES)


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


# Seeds of rounds


def test_the_seed_reaches_the_local_optimiser(tmp_path: Path) -> None:
    class Spy(SGD):
        seeds: list[int]

        def run(self, problem: Problem, *arguments: Any, **options: Any) -> Any:
            seen.append(options["random_state"])
            return super().run(problem, *arguments, **options)

    def seeds(random_state: int) -> list[int]:
        seen.clear()
        problem, solver = (
            CASES["rank-incremental"].problem(),
            RankIncremental(inner=Spy(1e-3, max_iter=5), max_iter=3),
        )
        solver.run(problem, random_state=random_state)
        return list(seen)

    seen: list[int] = []
    first = seeds(0)
    assert len(set(first)) == 3
    assert seeds(0) == first
    assert not set(seeds(1)) & set(first)


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


def test_the_end_of_a_run_is_on_the_manifold() -> None:
    class Straight(QR):
        """Right for short steps only, which is all that is tried before work starts."""

        def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
            short = abs(t) * np.linalg.norm(tangent) < 0.01
            return super().__call__(manifold, point, tangent, t) if short else point + t * tangent

    problem = Problem(G, WholeCost(Rayleigh()))
    with pytest.raises(
        DivergedError, match=r"the run ended off Grassmann\(12, 3\): .*rmopt.checks.check_retraction"
    ):
        SGD(0.1, max_iter=50, retraction=Straight()).run(problem, random_state=0)


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
