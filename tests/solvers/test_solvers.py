"""The solver's loop: reproducible, resumable, measured, and clear about what it refuses."""

import errno
import itertools
import math
import os
import time
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.sparse as sp
from descent_parts import Quadratic
from tabled import each_row

import rmopt
from rmopt import DivergedError, InvalidInputError, Problem
from rmopt.core import MissingCapabilityError, Retraction, StorageError
from rmopt.core.cost import as_sum
from rmopt.core.streams import Stream, generator
from rmopt.costs import BilinearSum, Loss, squared
from rmopt.files import save_arrays
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Sphere
from rmopt.retractions import MetricProjection, SecondOrder
from rmopt.solvers import LBFGS, SGD, Checkpoint, InverseSqrt, InverseTime, Recorder, ShuffledEpochs, Uniform

N, M, K = 30, 25, 4


def make_problem() -> Problem:
    rng = np.random.default_rng(7)
    left, right = (
        sp.random_array((60, width), density=0.3, random_state=rng, data_sampler=rng.standard_normal).tocsr()
        for width in (N, M)
    )
    return Problem(FixedRankEmbedded(N, M, K), BilinearSum(left, right, squared, rng.standard_normal(60)))


PROBLEM = make_problem()


def dense(result: object) -> np.ndarray:
    return PROBLEM.manifold.to_dense(result.point)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("engine", "n_steps"), [("reference", 400), ("compiled", 3000)])
def test_the_result_depends_on_the_seed_alone(engine: str, n_steps: int, tmp_path: Path) -> None:
    solver = SGD(0.02, max_iter=n_steps, engine=engine)
    plain = dense(solver.run(PROBLEM, random_state=1))
    recorder = Recorder({"cost": PROBLEM.cost.value}, first=7, ratio=1.5)
    watched = solver.run(
        PROBLEM, random_state=1, recorder=recorder, checkpoint=Checkpoint(tmp_path / "c.npz", every_seconds=0)
    )
    np.testing.assert_array_equal(plain, dense(watched))
    assert np.abs(plain - dense(solver.run(PROBLEM, random_state=2))).max() > 1e-3


def test_a_run_lowers_the_cost_and_tells_how() -> None:
    recorder = Recorder({"cost": PROBLEM.cost.value}, first=100, ratio=3)
    result = SGD(0.02, max_iter=2000).run(PROBLEM, random_state=0, recorder=recorder)
    assert [row["step"] for row in result.history] == [0, 100, 300, 900, 2000]
    assert result.history[-1]["cost"] < 0.2 * result.history[0]["cost"]
    assert result.stopped_by == "the budget of 2000 steps"
    assert 0 < result.updates <= result.steps == 2000


def test_a_run_without_steps_returns_a_point_of_its_own() -> None:
    start = np.eye(3)[0]
    problem = Problem(Sphere(3), rmopt.autograd_cost(lambda x: -(x**4).sum()))
    LBFGS().run(problem, start).point[:] = 7.0
    np.testing.assert_array_equal(start, np.eye(3)[0])


def test_the_clock_stops_while_measuring() -> None:
    def slow(point: object) -> float:
        time.sleep(0.05)
        return 0.0

    result = SGD(0.02, max_iter=500).run(
        PROBLEM, random_state=0, recorder=Recorder({"slow": slow}, at=range(10, 110, 10))
    )
    assert len(result.history) == 12
    assert result.seconds < 0.3


def test_a_stop_rule_ends_the_run() -> None:
    def stop(rows: list[dict[str, float]]) -> str | None:
        return "three measurements" if len(rows) == 3 else None

    recorder = Recorder({"cost": PROBLEM.cost.value}, at=[10, 20, 30])
    result = SGD(0.02, max_iter=500).run(PROBLEM, random_state=0, recorder=recorder, stop=stop)
    assert (result.steps, result.stopped_by) == (20, "three measurements")


def test_step_size_rules() -> None:
    t = np.arange(5)
    np.testing.assert_allclose(InverseTime(2.0, 0.5)(t), 2 / (1 + 0.5 * t))
    np.testing.assert_allclose(InverseSqrt(2.0)(t), 2 / np.sqrt(t + 1))
    by_rule = SGD(InverseTime(0.05, 0.01), max_iter=300).run(PROBLEM, random_state=0)
    by_hand = SGD(lambda t: 0.05 / (1 + 0.01 * t), max_iter=300).run(PROBLEM, random_state=0)
    np.testing.assert_array_equal(dense(by_rule), dense(by_hand))
    for rule in (lambda t: -1.0 * (t + 1), lambda t: np.full(len(t), np.nan)):
        with pytest.raises(InvalidInputError, match=r"one finite number of at least 0 for each"):
            SGD(rule, max_iter=10).run(PROBLEM)
    with pytest.raises(InvalidInputError, match=r"one finite number"):
        SGD(lambda t: 0.1, max_iter=10).run(PROBLEM)
    for scalar in (lambda t: 0.1 if t < 5 else 0.01, lambda t: 0.1 / math.sqrt(t + 1.0)):
        with pytest.raises(InvalidInputError, match=r"for an array of step numbers .*np\.where"):
            SGD(scalar, max_iter=10).run(PROBLEM)
    with pytest.raises(InvalidInputError, match="real numbers"):
        SGD(lambda t: 0.1j * t, max_iter=10).run(PROBLEM)
    with pytest.raises(InvalidInputError, match=r"b = 0 must be a positive number"):
        InverseTime(1.0, 0)


def test_samplers() -> None:
    rng = np.random.default_rng(0)
    epochs = ShuffledEpochs(10, batch_size=3)
    first, second = epochs.draw(rng, 0, epochs.block_size), epochs.draw(rng, 3, epochs.block_size)
    assert first.shape == (3, 3)
    assert len(set(first.ravel())) == 9
    assert (first != second).any()
    table = np.arange(12).reshape(4, 3)
    drawn = Uniform(table).draw(rng, 0, 1000)
    np.testing.assert_array_equal(np.unique(drawn, axis=0), table)
    mine = SGD(0.02, max_iter=400, sampler=lambda rng, start, size: np.full((size, 1), 4))
    found = mine.run(PROBLEM, random_state=0).point
    losses = PROBLEM.cost.term_values(found, np.arange(60))  # type: ignore[attr-defined]
    assert losses[4] < 1e-3 * losses.mean()
    with pytest.raises(
        InvalidInputError, match=r"float64 of shape \(9,\); 9 steps need integers of shape \(9, 1\)"
    ):
        SGD(0.1, max_iter=9, sampler=lambda rng, start, size: np.zeros(size)).run(PROBLEM)
    with pytest.raises(
        InvalidInputError, match=r"batch_size = 61 must be an integer of at least 1 and at most 60"
    ):
        SGD(0.1, max_iter=9, batch_size=61).run(PROBLEM)


def test_streams_of_random_numbers_are_apart() -> None:
    """By the seed, by what the numbers are for, and by the place in the run."""
    places = list(itertools.product((0, 1), Stream, ((), (1,), (2,))))
    assert len({generator(seed, kind, *more).random() for seed, kind, more in places}) == len(places)


def test_batches_up_to_the_rank_are_compiled() -> None:
    ends = [
        SGD(0.001, max_iter=300, batch_size=K, engine=engine).run(PROBLEM, random_state=0).point
        for engine in ("auto", "compiled", "reference")
    ]
    auto, compiled, reference = map(PROBLEM.manifold.to_dense, ends)
    np.testing.assert_array_equal(auto, compiled)
    np.testing.assert_allclose(auto, reference, rtol=1e-10, atol=1e-12)


class Plain(SecondOrder):
    """A retraction without a compiled twin: a subclass may override what the twin does."""


def test_compiled_names_what_is_missing() -> None:
    with pytest.raises(
        MissingCapabilityError,
        match=r"Plain is a subclass of SecondOrder; compiled steps are for SecondOrder",
    ):
        SGD(0.1, retraction=Plain(), engine="compiled").run(PROBLEM)


def test_a_new_retraction_and_a_new_loss_run_at_once() -> None:
    pinball = Loss(
        "pinball", lambda z, y: max(0.9 * (y - z), 0.1 * (z - y)), lambda z, y: -0.9 if z < y else 0.1
    )
    cost = BilinearSum(PROBLEM.cost.left, PROBLEM.cost.right, pinball, PROBLEM.cost.targets)
    problem = Problem(PROBLEM.manifold, cost)
    found = {
        (engine, type(retraction).__name__): dense(
            SGD(0.02, max_iter=400, engine=engine, retraction=retraction).run(problem, random_state=0)
        )
        for engine, retraction in (
            ("compiled", SecondOrder()),
            ("reference", SecondOrder()),
            ("auto", Plain()),
        )
    }
    compiled, reference, plain = found.values()
    np.testing.assert_allclose(compiled, reference, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(plain, reference)


def test_swapping_the_retraction_changes_the_path() -> None:
    paths = [
        dense(SGD(0.03, max_iter=400, retraction=retraction).run(PROBLEM, random_state=0))
        for retraction in (None, SecondOrder(), MetricProjection())
    ]
    np.testing.assert_array_equal(paths[0], paths[1])
    assert np.abs(paths[1] - paths[2]).max() > 1e-6
    assert isinstance(PROBLEM.manifold.using(MetricProjection()).default_retraction, Retraction)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("eta", [1e2, 1e6, 1e30, 1e150, 1e308])
def test_divergence_is_an_error_with_the_step_and_without_warnings(
    engine: str, eta: float, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "c.npz", every_seconds=0)
    with pytest.raises(DivergedError, match=r"diverged.*step") as caught:
        SGD(eta, max_iter=5000, engine=engine).run(PROBLEM, random_state=0, checkpoint=checkpoint)
    assert 0 <= caught.value.step < 10

    def ends_at_a_point(n_steps: int) -> bool:
        try:
            end = SGD(eta, max_iter=n_steps, engine=engine).run(PROBLEM, random_state=0).point
        except DivergedError:
            return False
        assert all(np.isfinite(part).all() for part in (end.U, end.S, end.V))
        return True

    # A run whose last step is the bad one is an error too, never a point of NaN.
    reached = [ends_at_a_point(n_steps) for n_steps in range(1, caught.value.step + 2)]
    assert not reached[-1]
    assert reached == sorted(reached, reverse=True)


def test_damaged_checkpoints_are_never_believed(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"

    def run() -> np.ndarray:
        return dense(SGD(0.02, max_iter=100).run(PROBLEM, random_state=0, checkpoint=Checkpoint(path)))

    expected, content = run(), path.read_bytes()
    for damaged in (b"", b"hello", content[: len(content) // 2], content[:-30]):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=r"is damaged, or not a file that rmopt can read"):
            run()
    rng, refused = np.random.default_rng(0), 0
    for _ in range(60):
        flipped = bytearray(content)
        flipped[rng.integers(len(flipped))] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            np.testing.assert_array_equal(run(), expected)
        except StorageError:
            refused += 1
    assert refused > 30
    save_arrays(path, {"x": np.ones(3)}, {"kind": "model"})
    with pytest.raises(InvalidInputError, match=r"c.npz is not a checkpoint; delete it"):
        run()


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(tmp_path / "c.npz")
    SGD(0.02, max_iter=100).run(PROBLEM, random_state=0, checkpoint=checkpoint)
    before = (tmp_path / "c.npz").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device; earlier saves are untouched"):
        SGD(0.02, max_iter=200).run(PROBLEM, random_state=0, checkpoint=checkpoint)
    assert (tmp_path / "c.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]


Array = np.ndarray


@each_row(
    ("metric", "told"),
    [
        (lambda x: {"step": 0}, "gave 'step', which the row has,"),
        (lambda x: {5: 0.3}, "gave 5, which"),
        (lambda x: None, "gave None; return a number"),
        (lambda x: x, "return a number"),
    ],
)
def test_metrics_are_checked(metric: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        LBFGS().run(Problem(Sphere(5), Quadratic()), random_state=0, recorder=Recorder({"m": metric}))


@each_row("rule", [lambda t: 0.01 * (1.0 - t / 1000.0), lambda t: np.linspace(0.1, 0.01, 1000)[t]])
def test_rules_are_not_asked_beyond_the_budget(rule: Any) -> None:
    problem = Problem(Sphere(5), as_sum(Quadratic()))
    assert SGD(rule, max_iter=1000).run(problem, random_state=0).steps == 1000
    with pytest.raises((InvalidInputError, IndexError)):
        SGD(rule, max_iter=1100).run(problem, random_state=0)


@each_row("seed", [0, 5, 12345])
def test_a_random_start_is_not_what_the_user_draws_first(seed: int) -> None:
    manifold = FixedRankEmbedded(6, 5, 2)
    truth = manifold.to_dense(manifold.random_point(np.random.default_rng(seed)))
    cost = rmopt.autograd_cost(lambda A, B: anp.sum((A @ B.T - truth) ** 2))
    state = next(LBFGS().iterate(Problem(manifold, cost), random_state=seed))
    assert state.cost > 0.1


def test_starts_of_whole_and_short_numbers() -> None:
    for given, kept in ((int, np.float64), (np.float32, np.float32)):
        start = np.zeros((3, 1), dtype=given)
        cost = rmopt.autograd_cost(lambda x: anp.sum((x - 0.5) ** 2))
        result = LBFGS().run(Problem(Euclidean(3, 1), cost), start)
        assert result.converged
        assert result.point.dtype == kept
