"""Large margin nearest neighbours: the cost as the paper prints it, and interior points' minimum."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from problems.coembedding import LargeMarginNeighbors
from problems.coembedding.estimators import minimise
from problems.triplets import NeighborTriplets
from rmopt import InvalidInputError
from rmopt.solvers import RankIncremental

Array = np.ndarray


def sample() -> tuple[Array, Array]:
    """Return rows of iris, and all triplets of two neighbours of their class and all rows of others."""
    X, y = (part[::6] for part in load_iris(return_X_y=True))
    return X - X.mean(axis=0), NeighborTriplets(X, y, 2, len(X)).every()


def printed(X: Array, triplets: Array, Q: Array) -> float:
    """The loss of section 2 as it stands."""

    def d(i: int, j: int) -> float:
        return float(np.sum(((X[i] - X[j]) @ Q) ** 2))

    pairs = {(i, j) for i, j, _ in triplets.tolist()}
    return sum(d(i, j) for i, j in pairs) + sum(max(1 + d(i, j) - d(i, k), 0.0) for i, j, k in triplets)


def test_all_triplets_of_neighbours_are_listed() -> None:
    X, y = (part[::6] for part in load_iris(return_X_y=True))
    triplets = NeighborTriplets(X, y, 2, len(X)).every()
    assert len(np.unique(triplets, axis=0)) == len(triplets) == sum(2 * np.sum(y != label) for label in y)
    query, positive, negative = triplets.T
    assert (y[query] == y[positive]).all()
    assert (y[query] != y[negative]).all()
    assert (query != positive).all()
    drawn = NeighborTriplets(X, y, 2, len(X)).draw(np.random.default_rng(0), 0, 200)
    assert {*map(tuple, drawn.tolist())} <= {*map(tuple, triplets.tolist())}


@pytest.mark.parametrize("smoothing", [1.0, 0.1])
def test_the_rounded_hinge_is_above_the_printed_one_by_a_quarter_of_its_width_at_most(
    smoothing: float,
) -> None:
    (X, triplets), rng = sample(), np.random.default_rng(0)
    for size in (0.1, 0.5, 2.0):
        Q = size * rng.standard_normal((4, 2))
        above = LargeMarginNeighbors(X, triplets, smoothing).value(Q) - printed(X, triplets, Q)
        assert -1e-9 <= above <= 0.25 * smoothing * len(triplets) + 1e-9


def test_the_curvature_is_at_most_that_of_a_parabola() -> None:
    """Of every triplet 1/(2s), between −s and s."""
    (X, triplets), rng = sample(), np.random.default_rng(0)
    loss = LargeMarginNeighbors(X, triplets, 0.2)
    highest = 0.0
    for _ in range(20):
        distances = loss.at(0.5 * rng.standard_normal((4, 3))).measurements
        change = rng.standard_normal(distances.shape)
        bends = change @ loss.curvature(distances, change)
        moved = change[loss.near] - change[loss.far]
        within = abs(1.0 + distances[loss.near] - distances[loss.far]) < 0.2
        highest = max(highest, bends)
        np.testing.assert_allclose(bends, np.sum(moved[within] ** 2) / 0.4, rtol=1e-9)
    assert highest > 0.0


@pytest.mark.parametrize("beta", [0.5, 20.0])
def test_the_minimum_is_that_of_an_interior_point(beta: float) -> None:
    oracles = pytest.importorskip("convex_oracles", reason="needs cvxpy, which the extra [test] brings.")
    X, triplets = sample()
    loss = LargeMarginNeighbors(X, triplets, 0.05)
    ours = minimise(loss, beta, RankIncremental(tol=1e-8))
    assert ours.is_global
    near = {"tol_gap_rel": 1e-7, "tol_gap_abs": 1e-7, "tol_feas": 1e-7}
    theirs = oracles.large_margin(X, triplets, beta, 0.05)
    np.testing.assert_allclose(ours.certificate.objective, theirs, rtol=1e-7)
    # The minimum with the hinge itself lies in the interval that the certificate and `hinge_gap` leave.
    hinge = oracles.large_margin(X, triplets, beta, 0.0, **near)
    Q = ours.point.factor()
    here, gap = printed(X, triplets, Q) + beta * np.sum(Q**2), ours.gap + loss.hinge_gap(ours.point)
    assert here - gap <= hinge * (1 + 1e-7)
    assert hinge <= here * (1 + 1e-7)
    assert 0.0 < gap < 0.02 * hinge


def test_what_is_no_triplet_is_refused() -> None:
    for triplets, smoothing in (
        ([[0, 1]], 0.1),
        ([[0, 1, 3]], 0.1),
        ([[0.0, 1.0, 2.0]], 0.1),
        ([[0, 1, 2]], 0),
    ):
        with pytest.raises(InvalidInputError, match=r"triplets|smoothing"):
            LargeMarginNeighbors(np.eye(3), triplets, smoothing)
