"""Workers that meet at their mean, in threads and in processes."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_multilabel_classification
from tabled import each_row
from worlds import Room

from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.subspace import MatrixCompletion
from rmopt import InvalidInputError, Problem
from rmopt.core import FiniteSum
from rmopt.costs import BilinearSum, Graph
from rmopt.engines.gauged import GENERAL, SYMMETRIC
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann, PSDFixedRank, projected_mean
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaGrad,
    Adam,
    Checkpoint,
    MaxSeconds,
    MaxSteps,
    Momentum,
    Parallel,
    Recorder,
    Shards,
    ShuffledEpochs,
    TreeSum,
    Uniform,
    World,
)

Array = np.ndarray


def dense_of(point: Any) -> Array:
    """Return a matrix of low rank as an array."""
    return point.as_ambient() @ np.eye(point.shape[1])


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 600, 12)) / np.sqrt(12)
    truth = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 12))
    targets = np.sign(np.einsum("ij,jk,ik->i", left, truth, right))
    return Problem(FixedRankEmbedded(12, 12, 2), BilinearSum(left, right, targets=targets))


def solver(**options: Any) -> SGD:
    return SGD(0.3, max_iter=6000, sampler=ShuffledEpochs(600), **options)


def dense(result: Any) -> Array:
    return dense_of(result.point)


def test_one_worker_is_the_solver_itself(problem: Problem) -> None:
    alone = solver().run(problem, random_state=3)
    one = Parallel(solver(), 1, every=500).run(problem, random_state=3)
    assert (one.steps, one.updates) == (6000, alone.updates)
    np.testing.assert_allclose(dense(one), dense(alone), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_workers_learn_what_one_learns(problem: Problem, engine: str) -> None:
    start = problem.manifold.random_point(np.random.default_rng(5))
    found = Parallel(solver(engine=engine), 4, every=200).run(problem, start, random_state=0)
    assert found.steps == 1500
    cost = problem.cost
    assert cost.value(found.point) < 0.6 * cost.value(start)


def test_two_workers_by_hand(problem: Problem) -> None:
    """The engines of two workers, one after the other, and the mean of their ends, again and again."""
    own = solver(engine="reference")
    parallel = Parallel(own, 2, first=150, every=150)
    start = problem.manifold.random_point(np.random.default_rng(5))
    # An epoch of 600 terms is a block: steps 0 to 599.
    schedule, etas = parallel.prepare(problem, 7).draw(0)
    point, engine = start, own.engine(problem)
    for begin in range(0, 600, 150):
        part = slice(begin, begin + 150)
        ends = [
            engine.dump(engine.advance(engine.load(point), schedule[part, worker], etas[part]))
            for worker in range(2)
        ]
        point = projected_mean(problem.manifold, ends)
    end = parallel.run(problem, start, random_state=7, stop=MaxSteps(600))
    # Numbers near zero are as exact as those of their rows.
    np.testing.assert_allclose(dense(end), dense_of(point), rtol=1e-12, atol=1e-13)


def test_resumed_to_the_same_bits(problem: Problem, tmp_path: Path) -> None:
    parallel, saved = Parallel(solver(), 3, every=170), Checkpoint(tmp_path / "run.npz", 0.0)
    start = problem.manifold.random_point(np.random.default_rng(5))
    whole = parallel.run(problem, start, random_state=1)

    def killed(point: Any) -> float:
        raise KeyboardInterrupt

    for step in (100, 340):
        recorder = Recorder({"end": killed}, at=[step])
        with pytest.raises(KeyboardInterrupt):
            parallel.run(problem, start, random_state=1, checkpoint=saved, recorder=recorder)
    again = parallel.run(problem, start, random_state=1, checkpoint=saved)
    assert np.array_equal(dense(again), dense(whole))
    assert again.updates == whole.updates


def test_what_remembers_goes_on_from_the_mean(problem: Problem) -> None:
    cost, start = problem.cost, problem.manifold.random_point(np.random.default_rng(5))
    options: dict[str, Any] = {"max_iter": 1200, "sampler": ShuffledEpochs(600)}
    for step_size, rule in ((0.1, Adam()), (1.0, AdaGrad()), (0.05, Momentum(0.8))):
        found = Parallel(SGD(step_size, rule=rule, **options), 2, every=50).run(
            problem, start, random_state=0
        )
        assert cost.value(found.point) < 0.9 * cost.value(start)


@pytest.mark.parametrize("gauge", [GENERAL, SYMMETRIC], ids=["general", "symmetric"])
def test_a_gauge_near_another_is_of_the_same_point(gauge: Any) -> None:
    rng = np.random.default_rng(2)
    manifold = FixedRankEmbedded(40, 30, 3) if gauge is GENERAL else PSDFixedRank(40, 3)
    one = manifold.random_point(rng)
    before, *others = (gauge.factors_of(one) for _ in range(3))
    mixed = np.zeros((4, 4))
    mixed[:3, :3] = rng.standard_normal((3, 3))
    talls = [tall @ mixed for tall, _ in gauge.sides(before)]
    for near, factors, least in zip(
        (talls, [0.0 * tall + 1.0 for tall in talls]), others, (1e-9, 0.0), strict=True
    ):
        gauge.turn(factors, near, 3)
        np.testing.assert_allclose(dense_of(gauge.point_of(factors, 3)), dense_of(one), atol=1e-13)
        assert gauge.drift(factors, 3) < 1e-11
        apart = max(
            np.abs(own - tall).max() for (own, _), tall in zip(gauge.sides(factors), near, strict=True)
        )
        assert (apart < 1e-9) == (least > 0.0)


def test_what_does_not_fit_is_refused(problem: Problem) -> None:
    cost, manifold = problem.cost, problem.manifold
    for options, word in (
        ({"solver": "sgd"}, "schedule"), ({"workers": 0}, "workers"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=word):
            Parallel(**({"solver": solver()} | options))
    fits, start = (
        Problem(manifold, Shards({0: cost, 1: cost})),
        manifold.random_point(np.random.default_rng(5)),
    )
    ends = [Parallel(solver(), 2, every=150).run(place, start, random_state=0) for place in (fits, problem)]
    assert np.array_equal(*map(dense, ends))
    with pytest.raises(InvalidInputError, match="Shards"):
        Parallel(solver(), 3).run(fits, start)
    with pytest.raises(InvalidInputError, match="empty"):
        Shards({})

    class Uneven(SGD):
        def sampler_for(self, problem: Problem) -> Any:
            return Uniform(600, 2 if problem.cost is cost else 4)

    with pytest.raises(InvalidInputError, match="sizes"):
        Parallel(Uneven(0.1, batch_size=2), 2).run(
            Problem(manifold, Shards({0: cost, 1: deepcopy(cost)})), start
        )


def test_workers_meet_more_and_more_seldom(problem: Problem) -> None:
    begun = ((2, [1000, 2000, 4000, 8000, 13_000]), (16, [1000, 2000, 3000, 4000, 5000, 6250, 7812]))
    for workers, steps in begun:
        rare = Parallel(solver(), workers, first=1000, every=5000).engine(problem)
        met: list[int] = rare._means(0, 60_000)  # type: ignore[attr-defined]
        assert met[: len(steps)] == steps
    assert set(np.diff(met)[-3:]) == {5000}
    for begin in range(0, 60_000, 970):
        assert rare._means(begin, 60_000) == [one for one in met if one >= begin]  # type: ignore[attr-defined]
    # Ten times as many steps have a few means more.
    for workers in (2, 16, 1000):
        engine: Any = Parallel(solver(), workers).engine(problem)
        assert len(engine._means(0, 10**7)) - len(engine._means(0, 10**6)) < 12


def test_a_row_counts_for_those_who_moved_it() -> None:
    """Two of four workers move the first row, all move the second, and none the others."""
    cost, manifold = BilinearSum(np.eye(9)[:2], np.eye(9)[:2], targets=np.ones(2)), FixedRankEmbedded(9, 9, 1)
    engine: Any = Parallel(SGD(1.0), 4).engine(Problem(manifold, cost))
    state = engine.load(manifold.random_point(np.random.default_rng(0)))
    for own, move in zip(state.own, (3.0, 1.0, 0.0, 0.0), strict=True):
        own.factors.A[:2, 0] += move, 1.0
        own.factors.C[0, 0] += move
    before = [matrix.copy() for matrix in state.last]
    engine.handed_over(state)
    for own in state.own:
        found = own.factors.A[:, 0] - before[0][:, 0]
        np.testing.assert_allclose(found, [np.sqrt(2.0), 1.0, *[0.0] * 7], atol=1e-14)
        # A small matrix has the plain mean.
        np.testing.assert_allclose(own.factors.C[0, 0] - before[2][0, 0], 1.0)
        assert GENERAL.drift(own.factors, 1) < 1e-12


@each_row("kind", ["general", "symmetric", "reference"])
def test_any_number_of_processes_gives_the_same_bits(kind: str) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 60, 12))
    manifold = PSDFixedRank(12, 2) if kind == "symmetric" else FixedRankEmbedded(12, 12, 2)
    problem = Problem(
        manifold, BilinearSum(left, left if kind == "symmetric" else right, targets=np.ones(60))
    )
    start = manifold.random_point(np.random.default_rng(5))
    engine = "reference" if kind == "reference" else "auto"

    def learned(world: World) -> Any:
        own = SGD(0.01, max_iter=2500, engine=engine, sampler=Uniform(60))
        workers = Parallel(own, 5, first=30, world=world)
        return workers.run(problem, start, random_state=1)

    alone = learned(World())
    for size in (2, 5):
        for found in Room.together(size, learned):
            assert np.array_equal(dense(found), dense(alone)), size
            assert found.updates == alone.updates


def test_looking_at_a_run_changes_nothing(problem: Problem) -> None:
    for engine in ("auto", "reference"):
        start = problem.manifold.random_point(np.random.default_rng(5))
        own = SGD(0.01, max_iter=1300, engine=engine)
        parallel = Parallel(own, 3, first=100)
        whole = parallel.run(problem, start, random_state=1)
        seen: list[Any] = []
        recorder = Recorder(
            {"at": lambda point, seen=seen: seen.append((point, deepcopy(point))) or 0.0},
            at=[50, 100, 350, 351],
        )
        found = parallel.run(problem, start, random_state=1, recorder=recorder)
        assert np.array_equal(dense(found), dense(whole))
        # Nor does the run change what was seen.
        assert all(np.array_equal(point.U, then.U) for point, then in seen)
        assert len({point.U.tobytes() for point, _ in seen}) > 3


def test_processes_that_would_mix_two_runs_are_refused(problem: Problem, tmp_path: Path) -> None:
    start, other = (problem.manifold.random_point(np.random.default_rng(seed)) for seed in (5, 6))
    data = BilinearSum(problem.cost.left, problem.cost.right, targets=-problem.cost.targets)

    def run(world: World, budget: int = 40, every: int = 10, **how: Any) -> Any:
        cost, saved = how.pop("cost", problem.cost), how.pop("saved", None)
        workers = Parallel(SGD(how.pop("step_size", 0.3), max_iter=budget), 2, every=every, world=world)
        how = {"initial_point": start, "random_state": 0} | how
        return workers.run(Problem(problem.manifold, cost), checkpoint=saved, **how).point

    for name, value in (
        ("initial_point", other), ("initial_point", None), ("random_state", 1), ("random_state", None),
        ("budget", 80), ("every", 5), ("step_size", 0.1), ("cost", data), ("saved", tmp_path / "other.npz"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="of process 1"):
            Room.together(
                2, lambda world, name=name, value=value: run(world, **({name: value} if world.rank else {}))
            )
    first, second = Room.together(2, lambda world: run(world, initial_point=None, random_state=None))
    assert np.array_equal(dense_of(first), dense_of(second))
    for budget in (20, 40):
        found, _ = Room.together(2, lambda world, n=budget: run(world, n, saved=tmp_path / "run.npz"))
    assert np.array_equal(dense_of(found), dense_of(run(World())))
    assert len(list(tmp_path.iterdir())) == 1
    # Without a seed it is that of the run that is saved.
    begun = Room.together(2, lambda world: run(world, 20, random_state=None, saved=tmp_path / "free.npz"))
    ended = Room.together(2, lambda world: run(world, 20, random_state=None, saved=tmp_path / "free.npz"))
    assert np.array_equal(dense_of(begun[0]), dense_of(ended[1]))


def test_agents_along_a_tree_begin_together() -> None:
    tasks = MatrixCompletion(sp.csc_array(np.outer(np.arange(1.0, 7.0), np.arange(1.0, 9.0))), n_agents=2)

    def run(world: World) -> Any:
        problem = Problem(Grassmann(6, 1), TreeSum(tasks, Graph.path(2), world))
        return LBFGS(max_iter=3).run(problem).point.tobytes()

    first, second = Room.together(2, run)
    assert first == second


class Apart(FiniteSum):
    """Half the sum of squared distances to some numbers."""

    def __init__(self, at: float, n_terms: int) -> None:
        self.at, self._n_terms = at, n_terms

    @property
    def n_terms(self) -> int:
        return self._n_terms

    def value(self, x: Array) -> float:
        return 0.5 * self.n_terms * float((x - self.at) @ (x - self.at))

    def term_gradient(self, x: Array, terms: Array) -> Array:
        return len(terms) * (x - self.at)


def test_shards_count_by_their_terms() -> None:
    costs = {worker: Apart(float(worker), size) for worker, size in enumerate((10, 30, 60))}

    def run(world: World, stop: Any = None) -> Any:
        own = Shards({worker: costs[worker] for worker in world.mine(3)})
        workers = Parallel(SGD(0.1, max_iter=600), 3, every=2, first=2, world=world)
        return workers.run(Problem(Euclidean(1), own), np.zeros(1), random_state=0, stop=stop).point

    found = run(World())
    np.testing.assert_allclose(found, 1.5, rtol=1e-9)
    assert Room.together(2, run) == [found, found]
    with pytest.raises(InvalidInputError, match="each process has its own clock"):
        Room.together(2, lambda world: run(world, MaxSteps(600) | MaxSeconds(60)))


DIGITS = load_digits(return_X_y=True)


def similarity(**options: Any) -> LoretaSimilarity:
    return LoretaSimilarity(6, max_iter=20_000, random_state=0, **options)


def test_estimators_with_jobs(tmp_path: Path) -> None:
    X, y = DIGITS[0][:600] / 64, DIGITS[1][:600]
    one, two, again = (similarity(n_jobs=jobs).fit(X, y) for jobs in (None, 2, 2))
    assert np.array_equal(dense_of(two.model_.point), dense_of(again.model_.point))
    assert two.n_iter_ == 10_000
    assert two.score(X, y) > one.score(X, y) - 0.03
    parts = similarity(n_jobs=2)
    for part in range(3):
        parts.partial_fit(X[part::3], y[part::3], 7000)
    assert parts.n_iter_ == 10_500
    parts.save(tmp_path / "parts.npz")
    both = [one.partial_fit(X, y, 7000) for one in (parts, LoretaSimilarity.load(tmp_path / "parts.npz"))]
    np.testing.assert_allclose(*(dense_of(one.model_.point) for one in both), rtol=0.0, atol=1e-9)
    assert parts.score(X, y) > one.score(X, y) - 0.03
    U, V = make_multilabel_classification(n_samples=300, n_classes=6, random_state=0)
    ranker = LoretaLabelRanker(4, random_state=0, n_jobs=2).fit(U[:200], V[:200])
    assert ranker.score(U[200:], V[200:]) > 0.7
    unseen = DIGITS[0][600:] / 64, DIGITS[1][600:]
    for kind, data, other in (
        (ContrastiveSimilarity, (X, y), unseen),
        (LowRankLogisticRegression, (U[:200], V[:200]), (U[200:], V[200:])),
    ):
        alone, pair, same = (
            kind(4, batch_size=32, n_epochs=30, random_state=0, n_jobs=jobs).fit(*data)
            for jobs in (None, 2, 2)
        )
        assert np.array_equal(pair.components_, same.components_)
        assert pair.n_iter_ == -(-alone.n_iter_ // 2)
        assert pair.score(*other) > alone.score(*other) - 0.03
