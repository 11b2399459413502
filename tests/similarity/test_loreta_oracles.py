"""The oracles themselves: Algorithms 2, 3 and 4 along a whole path."""

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from rmopt.costs import BilinearSum, hinge, squared
from rmopt.costs.losses import Loss
from rmopt.engines import BilinearEngine, ReferenceEngine
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import SecondOrder

N, M, K = 23, 17, 4


@pytest.mark.parametrize("loss", [hinge, squared], ids=repr)
def test_every_way_to_step_walks_the_same_path(loss: Loss) -> None:
    rng = np.random.default_rng(1)
    left, right = (
        sp.random_array((50, width), density=0.3, random_state=rng, data_sampler=rng.standard_normal).tocsr()
        for width in (N, M)
    )
    cost = BilinearSum(left, right, loss, np.where(rng.random(50) < 0.5, -1.0, 1.0))
    manifold = FixedRankEmbedded(N, M, K)
    A, B = rng.standard_normal((N, K)), rng.standard_normal((M, K))
    start, W = manifold.from_factors(A, B), A @ B.T
    schedule, eta = rng.integers(50, size=(200, 1)), 0.02
    paths = {"2": (A, B), "3": (A, B)}
    A4, B4, A4_pinv, B4_pinv = A, B, np.linalg.pinv(A), np.linalg.pinv(B)
    for (term,) in schedule:
        p, q, y = left[[term]].toarray()[0], right[[term]].toarray()[0], cost.targets[term]
        z = p @ W @ q
        slope = z - y if loss is squared else -y * (y * z < 1)
        if slope == 0:
            continue
        p = -eta * slope * p
        W = oracles.theorem_3(W, np.outer(p, q), K)
        paths["2"] = oracles.algorithm_2(*paths["2"], np.outer(p, q))
        paths["3"] = oracles.algorithm_3(*paths["3"], p[:, None], q[:, None])
        A4, B4, A4_pinv, B4_pinv = oracles.algorithm_4(A4, B4, A4_pinv, B4_pinv, p, q)
    ends = {name: Z1 @ Z2.T for name, (Z1, Z2) in paths.items()} | {"4": A4 @ B4.T}
    for engine_class in (BilinearEngine, ReferenceEngine):
        engine = engine_class(manifold, cost, SecondOrder())
        state = engine.advance(engine.load(start), schedule, np.full(200, eta))
        ends[engine_class.__name__] = manifold.to_dense(engine.dump(state))
    for name, end in ends.items():
        assert np.linalg.norm(end - W) < 1e-10 * np.linalg.norm(W), name
    assert np.linalg.norm(W - manifold.to_dense(start)) > 0.01 * np.linalg.norm(W)
