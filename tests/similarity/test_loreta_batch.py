"""LORETA-r: steps on several terms at once follow Algorithm 3."""

from __future__ import annotations

import numpy as np
import oracles
import scipy.sparse as sp

from rmopt import Problem
from rmopt.costs import BilinearSum, hinge
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD


def test_compiled_steps_follow_algorithm_3() -> None:
    rng = np.random.default_rng(1)
    n, m, k, r, eta = 40, 31, 5, 4, 0.2
    left, right = (rng.standard_normal((50, width)) * (rng.random((50, width)) < 0.2) for width in (n, m))
    y = np.where(rng.random(50) < 0.5, -1, 1)
    manifold, cost = (
        FixedRankEmbedded(n, m, k),
        BilinearSum(sp.csr_array(left), sp.csr_array(right), hinge, y),
    )
    A, B = rng.standard_normal((n, k)), rng.standard_normal((m, k))
    engine = SGD(eta, batch_size=r, engine="compiled").engine(Problem(manifold, cost))
    schedule = rng.integers(50, size=(200, r))
    state = engine.advance(engine.load(manifold.from_factors(A, B)), schedule, np.full(200, eta))
    for terms in schedule:
        P, Q = left[terms].T, right[terms].T
        z = np.einsum("ni,nk,mk,mi->i", P, A, B, Q)
        A, B = oracles.algorithm_3(A, B, P, Q * np.where(y[terms] * z < 1, eta * y[terms], 0.0))
    found = manifold.to_dense(engine.dump(state))
    assert np.linalg.norm(found - A @ B.T) < 1e-10 * np.linalg.norm(A @ B.T)
