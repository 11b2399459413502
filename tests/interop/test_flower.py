"""Flower's strategy averages on the manifold; the simulation itself is tried by hand (docs/howto/flower.py)."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from rmopt import InvalidInputError
from rmopt.core import MissingCapabilityError, in_precision
from rmopt.manifolds import FixedRankEmbedded, Product, PSDFixedRank, Sphere, projected_mean

with warnings.catch_warnings():
    # Of what Flower itself imports.
    warnings.simplefilter("ignore")
    from rmopt.interop.flower import MISSING, ManifoldAveraging, from_arrays, to_arrays

needs_flower = pytest.mark.skipif(MISSING is not None, reason="Flower is not installed: pip install flwr.")
MANIFOLD = FixedRankEmbedded(8, 6, 2)


def reply(client: int, arrays: Any, count: float = 1) -> Any:
    """Return what Flower makes of a client's answer; a Message can be made within a run alone."""
    from flwr.app import MetricRecord, RecordDict

    content = RecordDict(
        {"arrays": arrays, "metrics": MetricRecord({"num-examples": count, "loss": float(client)})}
    )
    return SimpleNamespace(
        content=content,
        metadata=SimpleNamespace(src_node_id=client),
        has_error=lambda: False,
        has_content=lambda: True,
    )


@needs_flower
@pytest.mark.parametrize("outer_step", [1.0, 2.0])
def test_the_mean_is_that_of_the_manifold(outer_step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.app import ConfigRecord
    from flwr.serverapp.strategy import FedAvg

    rng = np.random.default_rng(0)
    before, *points = (MANIFOLD.random_point(rng) for _ in range(4))
    strategy = ManifoldAveraging(MANIFOLD, outer_step=outer_step)
    # What is sent, and to whom, is FedAvg's: a Message can be made within a run alone.
    monkeypatch.setattr(
        FedAvg, "_construct_messages", lambda self, record, nodes, kind: [(record, nodes, kind)]
    )
    monkeypatch.setattr(
        "flwr.serverapp.strategy.fedavg.sample_nodes", lambda grid, least, size: ([1, 2, 3], [1, 2, 3])
    )
    grid = SimpleNamespace(get_node_ids=lambda: [1, 2, 3])
    [(record, nodes, _)] = strategy.configure_train(1, to_arrays(before), ConfigRecord(), grid)
    assert nodes == [1, 2, 3]
    np.testing.assert_array_equal(from_arrays(MANIFOLD, record["arrays"]).U, before.U)
    replies = [reply(client, to_arrays(point), client) for client, point in enumerate(points, 1)]
    arrays, metrics = strategy.aggregate_train(1, replies)
    mean = projected_mean(MANIFOLD, points, np.array([1, 2, 3]) / 6)
    wanted = (
        mean
        if outer_step == 1.0
        else projected_mean(MANIFOLD, [before, mean], [1.0 - outer_step, outer_step])
    )
    found = from_arrays(MANIFOLD, arrays)
    np.testing.assert_allclose(MANIFOLD.to_dense(found), MANIFOLD.to_dense(wanted), atol=1e-14)
    assert metrics["loss"] == pytest.approx((1 + 4 + 9) / 6)
    again, _ = strategy.aggregate_train(1, replies[::-1])
    np.testing.assert_array_equal(from_arrays(MANIFOLD, again).U, found.U)
    assert strategy.aggregate_train(1, []) == (None, None)


@needs_flower
def test_points_of_all_kinds_travel() -> None:
    rng = np.random.default_rng(0)
    for manifold in (MANIFOLD, PSDFixedRank(5, 2), Sphere(4), Product([Sphere(3), MANIFOLD])):
        for point in (manifold.random_point(rng), in_precision(manifold.random_point(rng), np.float32)):
            arrays, _ = ManifoldAveraging(manifold).aggregate_train(1, [reply(1, to_arrays(point))])
            assert manifold.check_point(from_arrays(manifold, arrays)) is None


@needs_flower
def test_replies_of_no_use_are_left_out_or_told(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    good, strategy = MANIFOLD.random_point(rng), ManifoldAveraging(MANIFOLD)
    bad = to_arrays(type(good)(good.U, good.S * np.nan, good.V))
    arrays, _ = strategy.aggregate_train(1, [reply(1, bad), reply(2, to_arrays(good))])
    np.testing.assert_allclose(MANIFOLD.to_dense(from_arrays(MANIFOLD, arrays)), MANIFOLD.to_dense(good))
    for count in (np.inf, np.nan, -1.0):
        arrays, _ = strategy.aggregate_train(
            1, [reply(1, to_arrays(good), 3), reply(5, to_arrays(good), count)]
        )
        np.testing.assert_allclose(MANIFOLD.to_dense(from_arrays(MANIFOLD, arrays)), MANIFOLD.to_dense(good))
        assert f"client 5 is of no use: num-examples = {count}" in caplog.text
    other = to_arrays(FixedRankEmbedded(9, 6, 2).random_point(rng))
    for arrays, flaw in (
        (bad, "not on FixedRankEmbedded"),
        (other, "U holds float64 of shape"),
        (to_arrays(good.U), "missing|not part"),
    ):
        with pytest.raises(InvalidInputError, match=f"client 7 .*({flaw})"):
            strategy.aggregate_train(1, [reply(7, arrays)])
    with pytest.raises(InvalidInputError, match="num-examples"):
        strategy.aggregate_train(1, [reply(client, to_arrays(good), 0) for client in (1, 2)])


@needs_flower
def test_what_is_no_point_is_not_sent() -> None:
    with pytest.raises(InvalidInputError, match="point"):
        to_arrays(None)
    for arrays in (None, {"point": np.eye(2)}):
        with pytest.raises(InvalidInputError, match="ArrayRecord"):
            from_arrays(Sphere(2), arrays)
    with pytest.raises(InvalidInputError, match="int64"):
        from_arrays(Sphere(2), to_arrays(np.array([0, 1])))


def test_without_flower_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmopt.interop.flower.MISSING", ImportError("No module named 'flwr'"))
    for made in (lambda: ManifoldAveraging(MANIFOLD), lambda: to_arrays(np.eye(2))):
        with pytest.raises(MissingCapabilityError, match="federated"):
            made()
    assert "flwr" not in sys.modules or MISSING is None


def test_estimators_go_on_from_a_point() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 6)), np.arange(30) % 3
    whole = LoretaSimilarity(2, random_state=0, step_size=0.1).partial_fit(X, y, max_iter=40)
    begun = LoretaSimilarity(2, random_state=0, step_size=0.1).start_at(whole.model_.point, n_iter=40)
    assert begun.n_iter_ == 40
    np.testing.assert_array_equal(begun.transform(X), whole.transform(X))
    moved = begun.partial_fit(X, y, max_iter=60)
    assert moved.n_iter_ == 100
    wanted = whole.partial_fit(X, y, max_iter=60).similarity(X, X)
    np.testing.assert_allclose(moved.similarity(X, X), wanted, rtol=1e-8)
    with pytest.raises(InvalidInputError, match="rank"):
        LoretaSimilarity(3).start_at(whole.model_.point)
    with pytest.raises(InvalidInputError, match="LowRankPoint"):
        LoretaSimilarity(3).start_at(np.eye(3))
    with pytest.raises(InvalidInputError, match="symmetric"):
        LoretaLabelRanker(2).start_at(PSDFixedRank(4, 2).random_point(rng))
    ranker = LoretaLabelRanker(2, random_state=0).start_at(FixedRankEmbedded(4, 6, 2).random_point(rng))
    assert ranker.decision_function(X).shape == (30, 4)
    ranker.partial_fit(X, np.eye(4)[rng.integers(4, size=30)])
    assert ranker.n_labels_ == 4
