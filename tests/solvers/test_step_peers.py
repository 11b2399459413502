"""The peers that step times are measured beside do what they say."""

import numpy as np
import oracles
from step_peers import algorithm_4, touch_plain, touch_unrolled


def test_the_peer_makes_the_step_of_theorem_3() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 4, 30))
    A_pinv, B_pinv = (np.linalg.pinv(factor.T) for factor in (A, B))
    p, q = rng.standard_normal(30), -0.1 * rng.standard_normal(30)
    expected = oracles.theorem_3(A.T @ B, np.outer(p, q), 4)
    algorithm_4(A, B, A_pinv, B_pinv, p, q, np.empty((4, 30)))
    np.testing.assert_allclose(A.T @ B, expected, atol=1e-11)
    np.testing.assert_allclose(A_pinv, np.linalg.pinv(A.T), atol=1e-11)


def test_the_floor_touches_what_a_step_touches() -> None:
    indptr, indices, values = np.array([0, 2, 4], np.int32), np.array([0, 3, 1, 4], np.int32), np.ones(4)
    for touch in (touch_plain, touch_unrolled):
        A, B = np.ones((6, 2)), np.ones((6, 2))
        touch(A, B, indptr, indices, values, np.array([0]), np.array([1]))
        assert set(np.flatnonzero((A != 1).any(axis=1))) == {0, 3}
        assert set(np.flatnonzero((B != 1).any(axis=1))) == {1, 4}
