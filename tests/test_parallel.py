"""Workers that meet at their mean, and the means of manifolds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabled import each_row

from rmopt import InvalidInputError, Problem
from rmopt.core import MissingCapabilityError
from rmopt.costs import BilinearSum
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
from rmopt.solvers import SGD, AdaGrad, Adam, Checkpoint, MaxSteps, Parallel, Recorder, ShuffledEpochs

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


def test_means_of_products_and_what_has_none() -> None:
    manifold = Product([Sphere(3), Power(Stiefel(4, 2), 2)])
    rng = np.random.default_rng(1)
    one, other = (manifold.random_point(rng) for _ in range(2))
    mean = projected_mean(manifold, [one, other], [0.25, 0.75])
    assert np.array_equal(mean[0], projected_mean(Sphere(3), [one[0], other[0]], [0.25, 0.75]))
    assert np.array_equal(mean[1][1], projected_mean(Stiefel(4, 2), [one[1][1], other[1][1]], [0.25, 0.75]))
    for quotient in (PSDFactors(4, 2), Elliptope(4, 2)):
        with pytest.raises(MissingCapabilityError, match="have no mean here"):
            projected_mean(quotient, [quotient.random_point(rng)])


@each_row(
    ("points", "weights", "sentence"),
    [
        ([], None, "at least one point"),
        ([np.array([1.0, 0.0]), np.array([2.0, 0.0])], None, "a point is not on Sphere"),
        ([np.array([1.0, 0.0])] * 2, [1.0, 1.0], "have the sum 2"),
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
    ],
)
def test_where_many_points_are_as_near_none_is_taken(manifold: Any, points: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"has no nearest point on .*, but many"):
        projected_mean(manifold, points)
    assert manifold.check_point(projected_mean(manifold, points, [0.6, 0.4])) is None


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


def test_two_workers_by_hand(problem: Problem) -> None:
    """The engines of two workers, one after the other, and the mean of their ends, again and again."""
    parallel = Parallel(solver(), 2, every=150, outer_step=1.5)
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
    np.testing.assert_allclose(dense(found), dense_of(point), rtol=1e-12)


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
    for kind in (Adam(0.1, **options), AdaGrad(1.0, **options), SGD(0.05, momentum=0.8, **options)):
        found = Parallel(kind, 2, every=50).run(problem, start, random_state=0)
        assert cost.value(found.point) < 0.9 * cost.value(start)
    with pytest.raises(MissingCapabilityError, match="cannot go on from another point"):
        Parallel(SGD(0.05, max_iter=200, average=True), 2, every=20).run(problem, start, random_state=0)


@each_row(
    ("options", "sentence"),
    [
        ({"solver": "sgd"}, "a solver with a schedule"),
        ({"workers": 0}, "workers"),
        ({"every": 0}, "every"),
        ({"outer_step": 0.0}, "outer_step"),
    ],
)
def test_wrong_options_get_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        Parallel(**({"solver": solver()} | options))
