"""The strategy of docs/howto/flower.py averages on the manifold; the simulation itself is tried by hand."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from rmopt import InvalidInputError
from rmopt.manifolds import FixedRankEmbedded, projected_mean


@pytest.mark.parametrize("outer_step", [1.0, 2.0])
def test_the_mean_is_that_of_the_manifold(outer_step: float) -> None:
    app = pytest.importorskip("flwr.app", reason="Flower is not installed: pip install flwr.")
    page = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "howto" / "flower.py"))
    manifold, to_arrays, from_arrays = (page[name] for name in ("MANIFOLD", "to_arrays", "from_arrays"))

    def reply(client: int, point: Any) -> Any:
        metrics = app.MetricRecord({"num-examples": client, "loss": float(client)})
        return SimpleNamespace(
            content=app.RecordDict({"arrays": to_arrays(point), "metrics": metrics}),
            metadata=SimpleNamespace(src_node_id=client), has_error=lambda: False, has_content=lambda: True,
        )  # fmt: skip

    rng = np.random.default_rng(0)
    before, *points = (manifold.random_point(rng) for _ in range(4))
    strategy = page["ManifoldAveraging"](outer_step=outer_step)
    strategy.sent = before
    replies = [reply(client, point) for client, point in enumerate(points, 1)]
    broken = reply(9, type(before)(before.U, before.S * np.nan, before.V))
    arrays, metrics = strategy.aggregate_train(1, [broken, *replies[::-1]])
    wanted = projected_mean(manifold, points, np.array([1, 2, 3]) / 6)
    if outer_step != 1.0:
        wanted = projected_mean(manifold, [before, wanted], [1.0 - outer_step, outer_step])
    np.testing.assert_allclose(manifold.to_dense(from_arrays(arrays)), manifold.to_dense(wanted), atol=1e-12)
    assert metrics["loss"] == pytest.approx((1 + 4 + 9) / 6)
    assert strategy.aggregate_train(1, []) == (None, None)


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
    with pytest.raises(InvalidInputError, match="LowRankPoint"):
        LoretaSimilarity(3).start_at(np.eye(3))
    with pytest.raises(InvalidInputError, match="has rank 2, and the estimator rank = 3"):
        LoretaSimilarity(3).start_at(whole.model_.point)
    with pytest.raises(InvalidInputError, match="PSDPoint"):
        LoretaSimilarity(2, psd=True).start_at(whole.model_.point)
    ranker = LoretaLabelRanker(2, random_state=0).start_at(FixedRankEmbedded(4, 6, 2).random_point(rng))
    assert ranker.decision_function(X).shape == (30, 4)
    ranker.partial_fit(X, np.eye(4)[rng.integers(4, size=30)])
    assert ranker.n_labels_ == 4
