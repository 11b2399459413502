"""Workers that meet at their mean, and the means of manifolds."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_multilabel_classification
from tabled import each_row

from problems.comparison import Comparison, crossed
from problems.data import stream
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.subspace import MatrixCompletion
from rmopt import DivergedError, InvalidInputError, Problem
from rmopt.core import FiniteSum, LowRankPoint, MissingCapabilityError, PSDPoint
from rmopt.costs import BilinearSum, Graph
from rmopt.engines.factor_means import averaged, merged
from rmopt.engines.gauged import GENERAL, SYMMETRIC
from rmopt.experiments import Run
from rmopt.manifolds import (
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Oblique,
    PositiveDefinite,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    projected_mean,
)
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaGrad,
    Adam,
    Checkpoint,
    MaxSeconds,
    MaxSteps,
    Momentum,
    OneProcess,
    Parallel,
    Recorder,
    Shards,
    ShuffledEpochs,
    TreeSum,
    Uniform,
    World,
)
from rmopt.solvers.threads import Crew
from rmopt.solvers.world import tree_of

Array = np.ndarray


def dense_of(point: Any) -> Array:
    """Return a matrix of low rank as an array."""
    return point.as_ambient() @ np.eye(point.shape[1])


def ambient(manifold: Any, point: Any) -> Array:
    """Return a point in the space in which means are taken."""
    if isinstance(manifold, Grassmann):
        return point @ point.T
    return point if isinstance(point, np.ndarray) else dense_of(point)


MEANT = [
    FixedRankEmbedded(9, 7, 3), PSDFixedRank(8, 3), Grassmann(7, 2), Stiefel(6, 3), SpecialOrthogonal(3, 4),
    Sphere(5), Oblique(4, 3), PositiveDefinite(4), Euclidean(3, 2),
]  # fmt: skip


@pytest.mark.parametrize("manifold", MEANT, ids=str)
def test_the_mean_is_the_nearest_point_to_the_sum(manifold: Any) -> None:
    rng = np.random.default_rng(0)
    points, weights = [manifold.random_point(rng) for _ in range(3)], np.array([0.5, 0.3, 0.2])
    mean = projected_mean(manifold, points, weights)
    total = sum(weight * ambient(manifold, point) for weight, point in zip(weights, points, strict=True))
    near = np.linalg.norm(ambient(manifold, mean) - total)
    # No step from there is nearer, and neither are the points.
    for _ in range(20):
        step = manifold.random_tangent_vector(mean, rng)
        for length in (1e-3, 0.1):
            other = ambient(manifold, manifold.retraction(mean, step * length))
            assert np.linalg.norm(other - total) >= near - 1e-12
    assert all(np.linalg.norm(ambient(manifold, point) - total) >= near - 1e-12 for point in points)
    same = projected_mean(manifold, [points[0]] * 3)
    np.testing.assert_allclose(ambient(manifold, same), ambient(manifold, points[0]), atol=1e-12)
    back = projected_mean(manifold, points[:2], [1.0, 0.0])
    np.testing.assert_allclose(ambient(manifold, back), ambient(manifold, points[0]), atol=1e-12)


@pytest.mark.parametrize("manifold", [FixedRankEmbedded(6, 5, 2), PSDFixedRank(6, 2)], ids=str)
def test_means_of_matrices_whose_squares_overflow(manifold: Any) -> None:
    ends = [dense_of(manifold.random_point(seed)) for seed in (0, 1)]
    mean = projected_mean(manifold, [manifold.from_matrix(end) for end in ends])
    huge = projected_mean(manifold, [manifold.from_matrix(end * 1e200) for end in ends])
    np.testing.assert_allclose(dense_of(huge) / 1e200, dense_of(mean), atol=1e-13)


def test_means_of_products_and_what_has_none() -> None:
    manifold = Product([Sphere(3), Power(Stiefel(4, 2), 2)])
    rng = np.random.default_rng(1)
    one, other = (manifold.random_point(rng) for _ in range(2))
    mean = projected_mean(manifold, [one, other], [0.25, 0.75])
    assert np.array_equal(mean[0], projected_mean(Sphere(3), [one[0], other[0]], [0.25, 0.75]))
    assert np.array_equal(mean[1][1], projected_mean(Stiefel(4, 2), [one[1][1], other[1][1]], [0.25, 0.75]))

    class Upper(Sphere):
        pass

    for other in (PSDFactors(4, 2), Elliptope(4, 2), Upper(3)):
        with pytest.raises(
            MissingCapabilityError,
            match=r"have no mean here; .* Sphere, Oblique.* their subclasses are not taken",
        ):
            projected_mean(other, [other.random_point(rng)])
    Upper.projected_mean = lambda self, points, weights: points[int(np.argmax(weights))]  # type: ignore[attr-defined]
    first, last = (Upper(3).random_point(rng) for _ in range(2))
    assert np.array_equal(projected_mean(Upper(3), [first, last], [0.3, 0.7]), last)


@each_row(
    ("points", "weights", "sentence"),
    [
        ([], None, "at least one point"),
        ([np.array([1.0, 0.0]), np.array([2.0, 0.0])], None, "a point is not on Sphere"),
        ([np.array([1.0, 0.0])] * 2, [1.0, 1.0], "have the sum 2"),
        ([np.array([1.0, 0.0])] * 2, [1.0, -1.0], "have the sum 0; it must be 1"),
        ([np.array([1.0, 0.0])] * 2, [1.0], "weights"),
        ([np.array([1.0, 0.0]), np.array([-1.0, 0.0])], None, "has no nearest point on Sphere"),
    ],
)
def test_wrong_points_get_a_sentence(points: Any, weights: Any, sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        projected_mean(Sphere(2), points, weights)


@each_row(
    ("manifold", "points"),
    [
        (Stiefel(3, 2), [np.eye(3)[:, :2], -np.eye(3)[:, :2]]),
        (Stiefel(3, 2), [np.eye(3)[:, :2], np.eye(3)[:, :2] * [1.0, -1.0]]),
        (SpecialOrthogonal(2), [np.eye(2), -np.eye(2)]),
        (SpecialOrthogonal(3), [np.eye(3), np.diag([1.0, -1.0, -1.0])]),
        (Grassmann(4, 2), [np.eye(4)[:, :2], np.eye(4)[:, 2:]]),
        (Sphere(2), [np.array([1.0, 0.0]), np.array([-1.0, 1e-16])]),
        (Oblique(2, 2), [np.eye(2), np.diag([1.0, -1.0])]),
        (
            FixedRankEmbedded(3, 4, 1),
            [LowRankPoint(np.eye(3)[:, [i]], np.eye(1), np.eye(4)[:, [i]]) for i in (0, 1)],
        ),
        (PSDFixedRank(3, 1), [PSDPoint(np.eye(3)[:, [i]], np.eye(1)) for i in (0, 1)]),
    ],
)
def test_where_many_points_are_as_near_none_is_taken(manifold: Any, points: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"has no nearest point on .*, but many"):
        projected_mean(manifold, points)
    assert manifold.check_point(projected_mean(manifold, points, [0.6, 0.4])) is None


def test_a_sum_of_lower_rank_has_no_mean() -> None:
    rng = np.random.default_rng(0)
    for manifold, weights in ((FixedRankEmbedded(9, 7, 3), (0.5, 0.5)), (PSDFixedRank(8, 3), (-1.0, 2.0))):
        point = manifold.random_point(rng)
        # One of the points is as large as the other, and it cancels all, or two of three directions.
        S = -point.S if weights[0] > 0 else point.S * [[2.0], [2.0], [1.0]]
        other = replace(point, S=S)
        with pytest.raises(InvalidInputError, match="its rank is below 3, since the points cancel"):
            projected_mean(manifold, [other, point], weights)


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
    one = Parallel(solver(), 1, every=10_000).run(problem, random_state=3)
    assert np.array_equal(dense(alone), dense(one))
    assert (one.steps, one.updates) == (6000, alone.updates)
    met = Parallel(solver(), 1, every=500).run(problem, random_state=3)
    np.testing.assert_allclose(dense(met), dense(alone), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_workers_learn_what_one_learns(problem: Problem, engine: str) -> None:
    start = problem.manifold.random_point(np.random.default_rng(5))
    found = Parallel(solver(engine=engine), 4, every=200).run(problem, start, random_state=0)
    assert found.steps == 1500
    cost = problem.cost
    assert cost.value(found.point) < 0.6 * cost.value(start)


def test_a_budget_of_its_own_is_divided(problem: Problem) -> None:
    class Longer(SGD):
        def budget(self, problem: Problem) -> int:
            return 61

    assert Parallel(Longer(0.01, max_iter=20), workers=2).run(problem, random_state=0).steps == 31


def test_two_workers_by_hand(problem: Problem) -> None:
    """The engines of two workers, one after the other, and the mean of their ends, again and again."""
    parallel = Parallel(solver(), 2, every=150, outer_step=1.5, mean="projected")
    start = problem.manifold.random_point(np.random.default_rng(5))
    work = parallel.prepare(problem, 7, 0)
    # An epoch of 600 terms is a block: steps 0 to 599.
    schedule, etas = work.draw(0)
    point, states = start, [solver().engine(problem).load(start) for _ in range(2)]
    for begin in range(0, 600, 150):
        part = slice(begin, begin + 150)
        engines = [solver().engine(problem) for _ in range(2)]
        states = [
            engine.advance(state, np.ascontiguousarray(schedule[part, [worker]]).reshape(-1, 1), etas[part])
            for worker, (engine, state) in enumerate(zip(engines, states, strict=True))
        ]
        ends = [engine.dump(state) for engine, state in zip(engines, states, strict=True)]
        mean = projected_mean(problem.manifold, ends)
        point = projected_mean(problem.manifold, [point, mean], [-0.5, 1.5])
        states = [engine.moved(state, point) for engine, state in zip(engines, states, strict=True)]
    found = parallel.run(problem, start, random_state=7, stop=MaxSteps(600))
    # Numbers near zero are as exact as those of their rows.
    np.testing.assert_allclose(dense(found), dense_of(point), rtol=1e-12, atol=1e-13)


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
    engine = SGD(0.05, average=True).engine(problem)
    with pytest.raises(MissingCapabilityError, match="cannot go on from another point"):
        engine.moved(engine.load(start), start)


@each_row(
    ("options", "sentence"),
    [
        ({"solver": "sgd"}, "a solver with a schedule"),
        ({"solver": SGD(0.1, average=0)}, "the solver has average = 0, a mean of points"),
        ({"solver": Parallel(SGD(0.1))}, "solver has workers of its own"),
        ({"workers": 0}, "workers"),
        ({"every": 0}, "every"),
        ({"first": 0}, "first"),
        ({"step_factor": 0.0}, "step_factor"),
        ({"outer_step": 0.0}, "outer_step"),
        ({"mean": "median"}, "mean"),
    ],
)
def test_wrong_options_get_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        Parallel(**({"solver": solver()} | options))


@pytest.mark.parametrize("gauge", [GENERAL, SYMMETRIC], ids=["general", "symmetric"])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-9, 0.0])
def test_factors_meet_where_points_do(gauge: Any, apart: float) -> None:
    rng = np.random.default_rng(2)
    manifold = FixedRankEmbedded(40, 30, 3) if gauge is GENERAL else PSDFixedRank(40, 3)
    one = manifold.random_point(rng)
    other = manifold.retraction(one, manifold.random_tangent_vector(one, rng) * apart)
    pair = tuple(gauge.factors_of(point) for point in (one, other))
    [found] = merged(gauge, [pair], [np.array([0.3, 0.7])], 3)
    np.testing.assert_allclose(
        dense_of(gauge.point_of(found, 3)),
        dense_of(projected_mean(manifold, [one, other], [0.3, 0.7])),
        atol=1e-13 * np.linalg.norm(dense_of(one)),
    )
    assert gauge.drift(found, 3) < 1e-12


@pytest.mark.parametrize("gauge", [GENERAL, SYMMETRIC], ids=["general", "symmetric"])
@pytest.mark.parametrize("outer_step", [None, 1.5])
def test_factors_from_the_same_factors_meet_at_their_mean(gauge: Any, outer_step: float | None) -> None:
    """The mean of factors, gone on from the last one, is off from that of matrices by the square of moves alone."""
    rng, count = np.random.default_rng(2), 5
    manifold = FixedRankEmbedded(2100, 1030, 3) if gauge is GENERAL else PSDFixedRank(2100, 3)
    start = gauge.factors_of(manifold.random_point(rng))
    talls = len(gauge.sides(start))
    moves = [
        [rng.standard_normal((len(part), 3)) / len(part) ** 0.5 for part in start[: talls + 1]]
        for _ in range(count)
    ]
    tree = [(low, high, np.array(two) / sum(two)) for low, high, two in tree_of([1, 2, 1, 1, 3])]
    weights, off = np.array([1, 2, 1, 1, 3]) / 8, []
    for size in (1e-2, 1e-3):
        many, before = (
            [deepcopy(start) for _ in range(count)],
            [] if outer_step is None else [deepcopy(start)],
        )
        for one, move in zip(many, moves, strict=True):
            for part, change in zip(one[: talls + 1], move, strict=True):
                part[: len(change), :3] += size * change
                if len(change) == 3 and gauge is SYMMETRIC:
                    part[:] = (part + part.T) / 2
        ends = [gauge.point_of(one, 3) for one in many]
        mean = projected_mean(manifold, ends, weights)
        if outer_step is not None:
            mean = projected_mean(manifold, [gauge.point_of(start, 3), mean], [1 - outer_step, outer_step])
        found = {
            threads: averaged(
                gauge, deepcopy(many), tree, 3, Crew(threads), outer_step or 1.0, deepcopy(before)
            )
            for threads in (1, 2, 7)
        }
        means, sizes = found[1]
        assert len(means) == count + len(before)
        np.testing.assert_allclose(sizes, gauge.fresh_counters(means[0]).size, rtol=1e-13)
        for threads, (others, others_sizes) in found.items():
            assert np.array_equal(others_sizes, sizes)
            for one in others:
                assert all(map(np.array_equal, one, means[0])), threads
                assert gauge.drift(one, 3) < 1e-12
        # In memory of their own, and none beyond the columns.
        assert len({id(one[0]) for one in means}) == len(means)
        assert not any(part[..., 3:].any() for part in means[0])
        off.append(np.linalg.norm(dense_of(gauge.point_of(means[0], 3)) - dense_of(mean)))
    assert 50 < off[0] / off[1] < 200
    assert off[0] < 1e-3 * np.linalg.norm(dense_of(mean))


def test_workers_meet_more_and_more_seldom(problem: Problem) -> None:
    for workers, begin in ((2, [0, 1000, 2000, 4000, 8000]), (4, [0, 1000, 2000, 3000, 4000, 5333, 7110])):
        engine = Parallel(solver(), workers, first=1000, every=5000).engine(problem)
        met = [0]
        while met[-1] < 30_000:
            met.append(engine._next_mean(met[-1]))  # type: ignore[attr-defined]
        assert met[: len(begin)] == begin
        assert set(np.diff(met)[-3:]) == {5000}
        for step in range(0, 30_000, 97):
            assert engine._next_mean(step) == min(one for one in met if one > step)  # type: ignore[attr-defined]


class Room(World):
    """The processes of a world, in threads of one process that share a table."""

    swaps = True

    def __init__(self, rank: int, size: int, table: dict[Any, Any], barrier: threading.Barrier) -> None:
        super().__init__()
        self.rank, self.size, self.table, self.barrier = rank, size, table, barrier

    @classmethod
    def together(cls, size: int, work: Callable[[World], Any]) -> list[Any]:
        barrier = threading.Barrier(size, timeout=30)
        table = {"post": defaultdict(queue.SimpleQueue)}
        with ThreadPoolExecutor(size) as threads:
            return list(threads.map(lambda rank: work(cls(rank, size, table, barrier)), range(size)))

    def told(self, things: dict[Any, Any]) -> dict[Any, Any]:
        self.table.update(things)
        self.barrier.wait()
        found = {key: thing for key, thing in self.table.items() if key != "post"}
        self.barrier.wait()
        if self.rank == 0:
            for key in found:
                del self.table[key]
        self.barrier.wait()
        return found

    def exchange(self, *_: Any) -> Any:
        raise NotImplementedError

    def deliver(self, messages: Any, ways: Any, size: int, n_agents: int) -> Any:
        owners, found = self.owners(n_agents), self.told(dict(messages))
        assert all(message.nbytes == size for message in messages.values())
        return dict(messages) | {one: found[one].copy() for one, other in ways if owners[other] == self.rank}

    def swap(self, partner: int, parts: Any, into: Any) -> None:
        post = self.table["post"]
        post[self.rank, partner].put([part.copy() for part in parts])
        for one, part in zip(into, post[partner, self.rank].get(timeout=30), strict=True):
            np.copyto(one, part)

    def everywhere(self, value: Any) -> list[Any]:
        found = self.told({self.rank: value})
        return [found[rank] for rank in range(self.size)]


def test_all_processes_join_the_same_pairs() -> None:
    dealt: list[int] = []

    def join(pairs: Any, counts: Any) -> Any:
        return [
            np.sin(3 * one * m + 7 * other * n) for (one, other), (m, n) in zip(pairs, counts, strict=True)
        ]

    def deal(thing: Any, place: int, counts: Any, swap: Any) -> Any:
        dealt.append(place)
        other = np.empty_like(thing)
        swap([thing], [other])
        [found] = join([(other, thing) if place else (thing, other)], [counts])
        return found

    for agents in (1, 2, 3, 5, 8):
        things = [np.array([i + 0.5, i * i]) for i in range(agents)]
        alone = OneProcess().joined(dict(enumerate(things)), agents, join)
        for size in range(1, agents + 1):
            for how in (None, deal):
                found = Room.together(
                    size,
                    lambda world, things=things, how=how: world.joined(
                        {i: things[i] for i in world.mine(len(things))}, len(things), join, deal=how
                    ),
                )
                assert all(np.array_equal(one, alone) for one in found)
    assert dealt.count(0) == dealt.count(1) > 20


@each_row("kind", ["general", "wide", "symmetric", "reference"])
@each_row("outer_step", [1.0, 1.5])
def test_any_number_of_processes_gives_the_same_bits(kind: str, outer_step: float) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 60, 140 if kind == "wide" else 12))
    manifold = (
        PSDFixedRank(12, 2) if kind == "symmetric" else FixedRankEmbedded(left.shape[1], left.shape[1], 2)
    )
    problem = Problem(
        manifold, BilinearSum(left, left if kind == "symmetric" else right, targets=np.ones(60))
    )
    start = manifold.random_point(np.random.default_rng(5))
    engine = "reference" if kind == "reference" else "auto"

    def learned(world: World, mean: str = "factors") -> Any:
        own = SGD(0.01, max_iter=2500, engine=engine, sampler=Uniform(60))
        return Parallel(own, 5, first=30, outer_step=outer_step, mean=mean, world=world).run(
            problem, start, random_state=1
        )

    alone = learned(OneProcess())
    for size in (2, 3, 4, 5):
        for found in Room.together(size, learned):
            assert np.array_equal(dense(found), dense(alone)), size
            assert found.updates == alone.updates
    projected = learned(OneProcess(), "projected")
    cost = problem.cost
    assert np.array_equal(dense(projected), dense(alone)) == (kind == "reference")
    assert abs(cost.value(projected.point) - cost.value(alone.point)) < 0.05 * cost.value(start)


def test_a_run_that_ends_early_asks_for_no_later_step(problem: Problem) -> None:
    table = np.full(4000, 0.01)

    class Follows(ShuffledEpochs):
        """Draws from as many terms as the run has seen."""

        known = 10

        def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
            assert start < 1200
            return rng.integers(self.known, size=(size, 1))

    def widened(point: Any) -> float:
        sampler.known = 600
        return 0.0

    start = problem.manifold.random_point(np.random.default_rng(5))
    for sampler in (Follows(600), ShuffledEpochs(60)):
        own = SGD(lambda t: table[t], max_iter=200_000, sampler=sampler)
        recorder = Recorder({"at": widened}, at=[600])
        found = Parallel(own, 2).run(problem, start, random_state=0, stop=MaxSteps(700), recorder=recorder)
        assert found.steps == 700
    sampler = Follows(600)
    assert not Parallel(SGD(0.1, sampler=sampler), 2).prepare(problem, 0, 0).ahead
    assert Parallel(SGD(0.1, sampler=Uniform(60)), 2).prepare(problem, 0, 0).ahead


def test_workers_that_cancel_each_other_have_diverged(problem: Problem) -> None:
    start = problem.manifold.random_point(np.random.default_rng(5))
    for engine in ("auto", "reference"):
        parallel = Parallel(solver(engine=engine), 2, first=100, outer_step=1e30)
        with pytest.raises(DivergedError, match="diverged at step"):
            parallel.run(problem, start, random_state=0)


def test_looking_at_a_run_changes_nothing(problem: Problem) -> None:
    wide = np.random.default_rng(0).standard_normal((2, 60, 130))
    dense_rows = Problem(FixedRankEmbedded(130, 130, 2), BilinearSum(*wide, targets=np.ones(60)))
    for one, engine in ((problem, "auto"), (problem, "reference"), (dense_rows, "auto")):
        start = one.manifold.random_point(np.random.default_rng(5))
        for outer in (1.0, 1.5):
            own = SGD(0.01, max_iter=1300, engine=engine)
            parallel = Parallel(own, 3, first=100, outer_step=outer)
            whole = parallel.run(one, start, random_state=1)
            seen: list[Any] = []
            recorder = Recorder(
                {"at": lambda point, seen=seen: seen.append((point, deepcopy(point))) or 0.0},
                at=[50, 100, 350, 351],
            )
            found = parallel.run(one, start, random_state=1, recorder=recorder)
            assert np.array_equal(dense(found), dense(whole))
            # Nor does the run change what was seen.
            assert all(np.array_equal(point.U, then.U) for point, then in seen)
            assert len({point.U.tobytes() for point, _ in seen}) > 3


def test_shards_are_those_of_the_workers(problem: Problem) -> None:
    cost, manifold = problem.cost, problem.manifold
    fits = Problem(manifold, Shards({0: cost, 1: cost}))
    start = manifold.random_point(np.random.default_rng(5))
    alike = Parallel(solver(), 2, every=150).run(fits, start, random_state=0)
    assert np.array_equal(
        dense(alike), dense(Parallel(solver(), 2, every=150).run(problem, start, random_state=0))
    )
    with pytest.raises(
        InvalidInputError, match=r"workers \[0, 1\], and those of this process are \[0, 1, 2\]"
    ):
        Parallel(solver(), 3).run(fits, start)
    with pytest.raises(InvalidInputError, match="costs are empty"):
        Shards({})
    with pytest.raises(InvalidInputError, match=r"samplers\[0\] = 3 must be a Sampler"):
        Shards({0: cost}, {0: 3})  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError, match=r"samplers are of the workers \[1\]"):
        Shards({0: cost}, {1: Uniform(600)})
    uneven = Shards({0: cost, 1: cost}, {0: ShuffledEpochs(600), 1: ShuffledEpochs(500)})
    with pytest.raises(InvalidInputError, match="blocks of 500 and 600 steps"):
        Parallel(solver(), 2).run(Problem(manifold, uneven), start)
    wide = Shards({0: cost, 1: cost}, {0: Uniform(600, 4), 1: Uniform(600, 2)})
    with pytest.raises(InvalidInputError, match="draw 2 and 4 terms a step, and batch_size = 3"):
        Parallel(SGD(0.1, batch_size=3), 2).run(Problem(manifold, wide), start)


def test_processes_that_would_mix_two_runs_are_refused(problem: Problem, tmp_path: Path) -> None:
    start, other = (problem.manifold.random_point(np.random.default_rng(seed)) for seed in (5, 6))
    data = BilinearSum(problem.cost.left, problem.cost.right, targets=-problem.cost.targets)

    def run(world: World, budget: int = 40, every: int = 10, **how: Any) -> Any:
        cost, saved = how.pop("cost", problem.cost), how.pop("saved", None)
        workers = Parallel(SGD(how.pop("step_size", 0.3), max_iter=budget), 2, every=every, world=world)
        how = {"initial_point": start, "random_state": 0} | how
        return workers.run(Problem(problem.manifold, cost), checkpoint=saved, **how).point

    for name, value, said in (
        ("initial_point", other, "initial point"), ("initial_point", None, "initial point"),
        ("random_state", 1, "random_state"),
        ("random_state", None, "random_state"), ("budget", 80, "budget"), ("every", 5, "solver.every"),
        ("step_size", 0.1, "solver.step_size"), ("cost", data, r"the cost \(Shards"),
        ("saved", tmp_path, "checkpoint"),
    ):  # fmt: skip
        with pytest.raises(
            InvalidInputError, match=f"{said}.* of process 1 is .*; give all processes the same"
        ):
            Room.together(
                2, lambda world, name=name, value=value: run(world, **({name: value} if world.rank else {}))
            )
    with pytest.raises(InvalidInputError, match="each of which must save its own part"):
        Room.together(2, lambda world: run(world, saved=Checkpoint(tmp_path / "run.npz")))
    first, second = Room.together(2, lambda world: run(world, initial_point=None, random_state=None))
    assert np.array_equal(dense_of(first), dense_of(second))
    for budget in (20, 40):
        found, _ = Room.together(2, lambda world, n=budget: run(world, n, saved=tmp_path / "run.npz"))
    assert np.array_equal(dense_of(found), dense_of(run(OneProcess())))
    assert len(list(tmp_path.iterdir())) == 4
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

    def gradient(self, x: Array) -> Array:
        return self.n_terms * (x - self.at)

    def term_gradient(self, x: Array, terms: Array) -> Array:
        return len(terms) * (x - self.at)


def test_shards_count_by_their_terms() -> None:
    costs = {worker: Apart(float(worker), size) for worker, size in enumerate((10, 30, 60))}

    def run(world: World, stop: Any = None) -> Any:
        own = Shards({worker: costs[worker] for worker in world.mine(3)})
        workers = Parallel(SGD(0.1, max_iter=600), 3, every=2, first=2, world=world)
        return workers.run(Problem(Euclidean(1), own), np.zeros(1), random_state=0, stop=stop).point

    found = run(OneProcess())
    np.testing.assert_allclose(found, 1.5, rtol=1e-9)
    assert Room.together(2, run) == [found, found]
    with pytest.raises(InvalidInputError, match="each process has a clock of its own"):
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
    for wrong in (0, 2.5, -2000):
        with pytest.raises(
            InvalidInputError, match=f"n_jobs = {wrong} must be None, a positive number of threads"
        ):
            similarity(n_jobs=wrong).fit(X, y)


def test_processes_share_a_stream() -> None:
    X, y = DIGITS[0] / 64, DIGITS[1]

    def learned(world: World) -> Any:
        # The first process has one chunk, and begins it again while the other one goes on.
        own = [[slice(0, 400)], [slice(400, 800), slice(800, 1200)]][world.rank]
        model = similarity().fit_stream([(X[rows], y[rows]) for rows in own], world=world)
        return model.n_iter_, dense_of(model.model_.point), model.score(X[1200:], y[1200:])

    (steps, first, score), (others, second, _) = Room.together(2, learned)
    # Ten steps for each of 400 + 400 rows, twice, dealt to two workers.
    assert steps == others == 8000
    assert np.array_equal(first, second)
    assert score > 0.5


class _EndedError(Exception):
    pass


class Until(list[Any]):
    """Chunks in a process that ends after so many."""

    def __init__(self, chunks: Any, left: int) -> None:
        super().__init__(chunks)
        self.left = left

    def __iter__(self) -> Any:
        for chunk in super().__iter__():
            if not self.left:
                raise _EndedError
            self.left -= 1
            yield chunk


def test_processes_go_on_with_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("problems.following.CHUNKS", 1)
    X, y = DIGITS[0] / 64, DIGITS[1]
    for number in range(4):
        (tmp_path / "rows").mkdir(exist_ok=True)
        rows = slice(20 * number, 20 * number + 20)
        np.savez(tmp_path / "rows" / f"{number}.npz", X=X[rows], y=y[rows])

    def files(rank: int, passes: int) -> Any:
        how: dict[str, Any] = {"batch_size": 20, "shuffle_buffer": 40, "random_state": 0}
        return stream(tmp_path / "rows", n_epochs=passes, **how).dealt(rank, 2)

    def lists(rank: int, passes: int) -> Any:
        # The first process begins its own again, and again, while the other one goes on.
        return [(X[at : at + 20], y[at : at + 20]) for at in range(0, (60, 140)[rank], 20)] * passes

    def learned(chunks: Any, path: Path | None = None, left: int = -1) -> Any:
        def one(world: World) -> Any:
            own = chunks(world.rank)
            model = LoretaSimilarity(3, random_state=0, checkpoint=path)
            model.fit_stream(Until(own, left) if left > 0 else own, world=world)
            return model.n_iter_, dense_of(model.model_.point).tobytes()

        first, second = Room.together(2, one)
        assert first == second
        return first

    # Where a run ended, more passes are learned, and as many again are none.
    whole = learned(lambda rank: files(rank, 3))
    for passes in (1, 3, 3):
        found = learned(lambda rank, passes=passes: files(rank, passes), tmp_path / "passes.npz")
    assert found == whole
    # Where one process had begun its chunks again, it goes on in them.
    with pytest.raises(_EndedError):
        learned(lambda rank: lists(rank, 1), tmp_path / "lists.npz", left=5)
    once = learned(lambda rank: lists(rank, 1))
    assert learned(lambda rank: lists(rank, 1), tmp_path / "lists.npz") == once
    steps, _ = learned(lambda rank: lists(rank, 2), tmp_path / "lists.npz")
    assert steps == 2 * once[0]


def test_processes_share_a_comparison(tmp_path: Path) -> None:
    trained: list[tuple[int, int]] = []

    def compared(world: World, resume: bool, of: int) -> Any:
        def train(one: Any) -> Any:
            trained.append((world.rank, one["a"]))
            return {"square": one["a"] ** 2}

        comparison = Comparison(Run("test", 4, tmp_path, quiet=True), resume, world=world, data="d")
        found = comparison.results(crossed(a=range(of)), train, by=("a",))
        return [cell["square"] for (cell,) in found.values()]

    squares = [0, 1, 4, 9, 16]
    assert Room.together(2, lambda world: compared(world, False, 3)) == [squares[:3]] * 2
    assert sorted(trained) == [(0, 0), (0, 2), (1, 1)]
    # What one process wrote before it was killed is not lost, and one process knows in the end what all found.
    (tmp_path / "cells.jsonl").unlink()
    assert Room.together(2, lambda world: compared(world, True, 5)) == [squares] * 2
    assert sorted(trained[3:]) == [(0, 0), (0, 3), (1, 2), (1, 4)]
    assert compared(OneProcess(), True, 5) == squares
    assert len(trained) == 7


def test_processes_share_a_stream_of_rows_with_labels() -> None:
    X, Y = make_multilabel_classification(n_samples=700, n_classes=6, random_state=0)
    # One half of the rows has a label that the other has not; the last one comes late, in one process.
    order = np.argsort(Y[:600, 5], kind="stable")
    X[:600], Y[:600] = X[order], Y[order]
    wide = np.column_stack([Y, np.arange(700) >= 500])

    def learned(world: World) -> Any:
        own = [[(X[:300], Y[:300])], [(X[300:450], Y[300:450]), (X[450:600], wide[450:600])]][world.rank]
        model = LoretaLabelRanker(4, random_state=world.rank).fit_stream(own, world=world)
        return model.n_iter_, model.top_k_, dense_of(model.model_.point), model.score(X[600:], wide[600:])

    (steps, most, first, score), (others, at_most, second, _) = Room.together(2, learned)
    # 300 + 150 rows, twice, dealt to two workers.
    assert steps == others == 450
    assert most == at_most
    assert first.shape == (7, X.shape[1])
    assert np.array_equal(first, second)
    alone = LoretaLabelRanker(4, random_state=0).fit_stream([(X[:600], wide[:600])])
    assert score > alone.score(X[600:], wide[600:]) - 0.05


def test_a_crew_ends_what_it_began_and_outlives_forks() -> None:
    crew, done = Crew(2), []

    def work(number: int, seconds: float) -> int:
        if number == 0:
            raise ValueError
        time.sleep(seconds)
        done.append(number)
        return number

    # Of arguments that are too many none begins.
    for numbers in ([0, 1], [2, 3, 4]):
        with pytest.raises(ValueError):
            crew.each(work, numbers, [0.05, 0.05])
        assert done == [1]
        time.sleep(0.1)
        assert done == [1]
    assert crew.each(work, [], []) == []
    for other in (crew, deepcopy(crew)):
        assert other.each(work, [5, 6], [0.0, 0.0]) == [5, 6]
    if hasattr(os, "fork"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking beside threads
            child = os.fork()
        if not child:
            os._exit(0 if crew.each(work, [7, 8], [0.0, 0.0]) == [7, 8] else 1)
        for _ in range(200):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            time.sleep(0.05)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert (ended, status) == (child, 0)
