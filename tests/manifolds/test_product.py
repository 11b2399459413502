"""Products and powers: parts, block-diagonal gradients, nesting, pymanopt, Fréchet means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rmopt import Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.core import Actions, BlockDiagonal, Cost, Factored, InvalidInputError, Parts
from rmopt.core.ambient import Sum, dense
from rmopt.core.points import arrays_of, rebuilt
from rmopt.core.product import diagonal_blocks
from rmopt.engines.reference import ReferenceEngine
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann, Power, Product, Sphere
from rmopt.retractions import QR, Componentwise, Polar

SHAPES = [(2, 3), (4, 1), (3, 3)]


def blocks() -> dict[int, np.ndarray]:
    rng = np.random.default_rng(0)
    return {0: rng.standard_normal((2, 3)), 2: rng.standard_normal((3, 3))}


def test_the_blocks_of_any_ambient_matrix() -> None:
    made, rng = BlockDiagonal(SHAPES, blocks()), np.random.default_rng(2)
    dense = rng.standard_normal((9, 7))
    factored = Factored(rng.standard_normal((9, 2)), rng.standard_normal((7, 2)))
    acting = Actions((9, 7), lambda X: dense @ X, lambda X: dense.T @ X)
    whole = Sum(made, dense, factored, acting)
    found = diagonal_blocks(whole, SHAPES)
    wanted = made.toarray() + 2.0 * dense + factored.left @ factored.right.T
    for i, (rows, columns) in enumerate([((0, 2), (0, 3)), ((2, 6), (3, 4)), ((6, 9), (4, 7))]):
        block = wanted[slice(*rows), slice(*columns)]
        np.testing.assert_allclose(found[i] @ np.eye(SHAPES[i][1]), block, atol=1e-14)
        np.testing.assert_allclose(found[i].T @ np.eye(SHAPES[i][0]), block.T, atol=1e-14)


def test_a_block_that_is_not_given_does_not_move() -> None:
    manifold, rng = Product([Grassmann(6, 2)] * 3), np.random.default_rng(4)
    point = manifold.random_point(rng)
    gradient = BlockDiagonal([(6, 2)] * 3, {1: rng.standard_normal((6, 2))})
    moved = manifold.retraction(point, -manifold.euclidean_to_riemannian_gradient(point, gradient))
    assert np.array_equal(moved[0], point[0])
    assert np.array_equal(moved[2], point[2])
    assert not np.array_equal(moved[1], point[1])


def test_a_subclass_may_weigh_its_factors() -> None:
    class Weighted(Product):
        def inner_product(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> float:
            pairs = zip(tangent_vector_a, tangent_vector_b, strict=True)
            return float(sum(w * np.vdot(*pair) for w, pair in zip((4.0, 1.0), pairs, strict=True)))

    manifold = Weighted([Sphere(3), Euclidean(2)])
    point = manifold.random_point(0)
    assert manifold.norm(point, manifold.random_tangent_vector(point, 1)) == pytest.approx(1.0)  # type: ignore[arg-type]
    assert repr(manifold) == "Weighted(Sphere(3), Euclidean(2))"


class Coupled(Cost):
    """⟨x, y⟩ + Σ c⁴ + x₀ ‖E‖², with derivatives as lists of the parts' own, also within a product of products."""

    def value(self, point: Any) -> float:
        x, y, (c, E) = point
        return float(x @ y + np.sum(c**4) + x[0] * np.sum(E**2))

    def gradient(self, point: Any) -> Any:
        x, y, (c, E) = point
        return [y + np.eye(3)[0] * np.sum(E**2), x, [4.0 * c**3, 2.0 * x[0] * E]]

    def hessian(self, point: Any, direction: Any) -> Any:
        x, _, (c, E) = point
        dx, dy, (dc, dE) = direction
        first = dy + np.eye(3)[0] * 2.0 * np.sum(E * dE)
        return [first, dx, (12.0 * c**2 * dc, 2.0 * x[0] * dE + 2.0 * dx[0] * E)]


def test_a_direction_has_the_parts_of_a_point_and_lists_nest() -> None:
    manifold = Product([Sphere(3), Sphere(3), Product([Euclidean(2), Euclidean(2, 2)])])
    for cost in (Coupled(), 2.0 * Coupled() - 0.5 * Coupled()):
        problem = Problem(manifold, cost)
        assert check_gradient(problem)
        assert all(check_hessian(problem))
    blocks = BlockDiagonal([(3, 1), (2, 2)], {0: np.arange(3.0)})
    assert [blocks[i].tolist() for i in (0, 1)] == [[0.0, 1.0, 2.0], [[0.0, 0.0], [0.0, 0.0]]]


def test_one_retraction_for_all_factors_or_one_for_each() -> None:
    alike = Product([Grassmann(6, 2)] * 3).using(QR())
    assert alike.default_retraction == Componentwise([QR()] * 3)
    mixed = Product([Grassmann(6, 2), Grassmann(5, 1)]).using(Componentwise([QR(), Polar()]))
    assert str(mixed.default_retraction) == "Componentwise(QR(), Polar())"
    with pytest.raises(InvalidInputError, match="is not a retraction of FixedRank"):
        Product([Grassmann(6, 2), FixedRankEmbedded(5, 4, 2)]).using(QR())


def test_points_of_any_class_are_taken_apart_and_put_together() -> None:
    manifold = Product([FixedRankEmbedded(5, 4, 2), Power(Grassmann(6, 2), 2)])
    point = manifold.random_point(np.random.default_rng(7))
    arrays = arrays_of(point)
    assert len(arrays) == 4
    again = rebuilt(point, arrays)
    assert manifold.check_point(again) is None
    assert all(np.array_equal(a, b) for a, b in zip(arrays, arrays_of(again), strict=True))
    engine = ReferenceEngine(manifold, None, manifold.default_retraction)  # type: ignore[arg-type]
    state = engine.load(point)
    assert manifold.check_point(engine.unpack(engine.pack(state), state).point) is None


def test_blocks_of_other_shapes_and_numbers_are_refused() -> None:
    for blocks in ({0: np.ones((1, 2))}, {1: np.eye(2)}, {-1: np.eye(2)}):
        with pytest.raises(InvalidInputError, match=r"does not fit blocks of shapes \[\(2, 2\)\]"):
            BlockDiagonal([(2, 2)], blocks)


def test_blocks_of_blocks_are_real_and_copied() -> None:
    kept = np.ones((2, 1))

    class Of(Cost):
        def value(self, point: Any) -> float:
            return 0.0

        def gradient(self, point: Any) -> Any:
            return Parts([np.zeros((3, 1)), Parts([kept, kept])])

    inner = Product([Euclidean(2, 1), Euclidean(2, 1)])
    problem = Problem(Product([Euclidean(3, 1), inner]), Of())
    point = problem.manifold.random_point(np.random.default_rng(0))
    found = problem.gradient(point)
    kept *= 2.0
    assert dense(found).sum() == 4.0
    kept = 1j * kept
    with pytest.raises(InvalidInputError, match="of type complex"):
        problem.gradient(point)
