"""Optimisers of low-rank pairs: beside rmopt's own manifold, in every gauge, and as optimisers of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import MetricProjection

torch = pytest.importorskip("torch")

from rmopt.torch import LowRankMuon, LowRankSGD  # noqa: E402

N, M, K = 30, 40, 4
RNG = np.random.default_rng(0)
MANIFOLD = FixedRankEmbedded(N, M, K)
START = MANIFOLD.random_point(RNG)
TARGET = torch.tensor(MANIFOLD.to_dense(START) + 0.3 * RNG.standard_normal((N, M)))
GAUGE = RNG.standard_normal((K, K)) + 2.0 * np.eye(K)


def pair(gauge: Any = 1.0, scale: float = 1.0) -> Any:
    """Return factors of the start."""
    c = gauge * np.eye(K) if isinstance(gauge, float) else gauge
    B, A = START.U @ START.S @ c * scale, np.linalg.solve(c, START.V.T)
    return tuple(torch.nn.Parameter(torch.tensor(X)) for X in (B, A))


def walked(optimizer: Any, pairs: Any, steps: int = 20) -> list[Any]:
    """Return the products of the first pair on its way towards the target."""
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        sum(0.5 * (B @ A - TARGET.to(B.dtype)).square().sum() for B, A in pairs).backward()
        optimizer.step()
        path.append((pairs[0][0] @ pairs[0][1]).detach().clone())
    return path


def apart(one: list[Any], other: list[Any]) -> float:
    return max(float((x - y).norm() / y.norm()) for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_that_of_the_manifold(momentum: float) -> None:
    manifold, point, mean, lr = MANIFOLD.using(MetricProjection()), START, None, 0.02
    B, A = pair(GAUGE)
    path = walked(LowRankSGD([(B, A)], lr, momentum, retraction="metric-projection"), [(B, A)])
    for W in path:
        gradient = manifold.projection(point, manifold.to_dense(point) - TARGET.numpy())
        mean = gradient if mean is None else momentum * mean + gradient
        before, point = point, manifold.retraction(point, -lr * mean)
        mean = manifold.transport(before, point, mean)
        assert np.abs(W.numpy() - manifold.to_dense(point)).max() <= 1e-13


@pytest.mark.parametrize("gauge", [GAUGE, 1e3, 1e-3])
@pytest.mark.parametrize("kind", [LowRankSGD, LowRankMuon])
def test_paths_do_not_depend_on_the_gauge(kind: Any, gauge: Any) -> None:
    one, other = [pair()], [pair(gauge)]
    path = walked(kind(one, lr=0.02, momentum=0.9), one, 30)
    assert apart(walked(kind(other, lr=0.02, momentum=0.9), other, 30), path) <= 1e-12
    plain = [pair(gauge)]
    adam = torch.optim.Adam([p for both in plain for p in both], lr=0.02)
    assert apart(walked(adam, plain, 30), path) > 1e-2
