"""The positive definite cone: geodesics against pymanopt, step bounds against eigenvalues, retractions by hand."""

import numpy as np
import pytest

from rmopt import InvalidInputError
from rmopt.core.ambient import RowColumn
from rmopt.manifolds import PositiveDefinite
from rmopt.retractions import Additive, AffineExponential, SchurExponential, SecondOrderPD


def random_case(rng: np.random.Generator, d: int) -> tuple[np.ndarray, RowColumn]:
    """Return a positive definite matrix and a direction; some features have no ties, some directions no column."""
    W = PositiveDefinite(d).random_point(rng)
    k, u = int(rng.integers(d)), rng.standard_normal(d)
    kind = rng.integers(4)
    others = np.arange(d) != k
    if kind == 0:
        W[k, others] = W[others, k] = 0.0
    if kind in (0, 1):
        u[others] *= float(kind == 1 and rng.random() < 0.5)
    return W, RowColumn(k, u)


@pytest.mark.parametrize("cases", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_step_bound_is_sharp_in_ten_thousand_cases(cases: int) -> None:
    rng = np.random.default_rng(0)
    finite = 0
    sizes = [
        *rng.integers(2, 12, size=cases).tolist(),
        *rng.integers(12, 201, size=cases // 50).tolist(),
        2,
        200,
    ]
    for d in sizes:
        W, H = random_case(rng, d)
        manifold = PositiveDefinite(d)
        bound = manifold.max_step(W, H)
        if np.isinf(bound):
            far = W + 1e6 * H.toarray()
            assert np.linalg.eigvalsh(far)[0] > 0
            continue
        finite += 1
        inside, outside = (W + factor * bound * H.toarray() for factor in (0.999, 1.001))
        np.linalg.cholesky(inside)
        assert np.linalg.eigvalsh(outside)[0] < 0
    assert finite > 0.75 * cases
    assert finite < len(sizes)


def test_the_two_ways_to_the_bound_agree() -> None:
    rng = np.random.default_rng(1)
    for d in (2, 5, 30):
        W, H = random_case(rng, d)
        manifold = PositiveDefinite(d)
        assert manifold.max_step(W, H) == pytest.approx(manifold.max_step(W, H.toarray()), rel=1e-8)
    # By hand: 1 + 2·(−½)t = 0 at t = 1 where nothing else moves; and [[1, t], [t, 1]] is singular at t = 1.
    assert PositiveDefinite(2).max_step(np.eye(2), RowColumn(0, np.array([-0.5, 0.0]))) == pytest.approx(1.0)
    assert PositiveDefinite(2).max_step(np.eye(2), RowColumn(0, np.array([0.0, 1.0]))) == pytest.approx(1.0)
    assert PositiveDefinite(2).max_step(np.eye(2), RowColumn(0, np.array([0.5, 0.0]))) == np.inf


@pytest.mark.parametrize("retraction", [SchurExponential(), AffineExponential(), SecondOrderPD()])
def test_unbounded_retractions_never_leave_the_cone(retraction: SchurExponential) -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        W, H = random_case(rng, 6)
        manifold = PositiveDefinite(6)
        for direction in (H, H.toarray()):
            assert np.linalg.eigvalsh(retraction(manifold, W, direction, 3.0))[0] > 0


def test_the_straight_line_refuses_to_leave_the_cone() -> None:
    manifold, H = PositiveDefinite(2), RowColumn(0, np.array([0.0, 1.0]))
    assert np.array_equal(Additive()(manifold, np.eye(2), H, 0.5), [[1, 0.5], [0.5, 1]])
    for t in (1.5, -1.5):
        with pytest.raises(InvalidInputError, match=r"leaves PositiveDefinite\(2\).*SchurExponential"):
            Additive()(manifold, np.eye(2), H, t)


def test_the_schur_exponential_moves_column_and_schur_complement_as_it_says() -> None:
    rng = np.random.default_rng(5)
    W, H = PositiveDefinite(5).random_point(rng), RowColumn(2, rng.standard_normal(5))
    others = [0, 1, 3, 4]

    def schur(M: np.ndarray) -> float:
        return M[2, 2] - M[2, others] @ np.linalg.solve(M[np.ix_(others, others)], M[others, 2])

    t = 0.7
    end = SchurExponential()(PositiveDefinite(5), W, H, t)
    assert np.allclose(end[2, others], W[2, others] + t * H.u[others], rtol=1e-13)
    assert np.array_equal(end[np.ix_(others, others)], W[np.ix_(others, others)])
    rate = (schur(W + 1e-6 * H.toarray()) - schur(W - 1e-6 * H.toarray())) / 2e-6
    assert schur(end) == pytest.approx(schur(W) * np.exp(t * rate / schur(W)), rel=1e-7)
    # With k last, the row and column form is the log-Cholesky form.
    last = RowColumn(4, H.u)
    dense = SchurExponential()(PositiveDefinite(5), W, last.toarray(), t)
    assert np.allclose(SchurExponential()(PositiveDefinite(5), W, last, t), dense, rtol=1e-12)
