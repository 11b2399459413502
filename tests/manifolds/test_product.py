"""Products and powers: parts, block-diagonal gradients, nesting, pymanopt, Fréchet means."""

import copy
import pickle
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from strangers import GeneralizedStiefel
from tabled import each_row

import rmopt
from rmopt import Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.core import Actions, BlockDiagonal, Cost, Factored, InvalidInputError, Parts
from rmopt.core.ambient import Sum, dense
from rmopt.core.points import arrays_of, packed, rebuilt, unpacked
from rmopt.core.product import diagonal_blocks
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann, Oblique, Power, Product, Sphere
from rmopt.retractions import QR, Componentwise, Polar
from rmopt.solvers import LBFGS, SGD, Adam
from rmopt.solvers.batch.oracle import is_extrinsic

SHAPES = [(2, 3), (4, 1), (3, 3)]


def blocks() -> dict[int, np.ndarray]:
    rng = np.random.default_rng(0)
    return {0: rng.standard_normal((2, 3)), 2: rng.standard_normal((3, 3))}


def test_runs_begin_at_nested_lists_of_parts() -> None:
    parts = np.array([0.6, 0.8]), [np.ones(3), (np.zeros(2), np.eye(2)[1])]
    M = Product([Sphere(2), Product([Euclidean(3), Product([Euclidean(2), Sphere(2)])])])
    start = M.as_point(parts)
    assert M.check_point(start) is None
    assert start[1][1][1] is parts[1][1][1]
    assert M.check_point(M.as_point(parts[:1])) is not None


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


POWERS = [
    (Power(base, 3), Product([base] * 3))
    for base in (Sphere(4), Grassmann(5, 2), Oblique(3, 2), Sphere(3, field="complex"))
]


@each_row(
    "power, product", [*POWERS, (Power(Power(Sphere(3), 2), 3), Product([Product([Sphere(3)] * 2)] * 3))]
)
def test_a_power_is_the_product_as_one_array(power: Any, product: Any) -> None:
    rng = np.random.default_rng(0)
    parts = [product.random_point(seed) for seed in (1, 2)]
    (x, y), joined = (power.as_point(part) for part in parts), power.as_point
    assert np.array_equal(x, power.random_point(1))
    assert power.dim == product.dim
    assert (power.typical_dist, power.diameter) == pytest.approx((product.typical_dist, product.diameter))
    assert power.check_point(x) is None
    assert "of shape" in str(power.check_point(x[1:]))
    G, H = (power.drawn(rng) for _ in range(2))
    of = [
        [*one] if product.factors[0].point_type is np.ndarray else [[*two] for two in one] for one in (G, H)
    ]
    xi = product.projection(parts[0], Parts(of[0]))
    found = {
        "hessian": (power.euclidean_to_riemannian_hessian(x, G, H, power.projection(x, G)),
                    joined(product.euclidean_to_riemannian_hessian(parts[0], *map(Parts, of), xi))),
        "transport": (power.transport(x, y, joined(xi)), joined(product.transport(*parts, xi))),
        "log": (power.log(x, y), joined(product.log(*parts))),
        "dist": (power.dist(x, y), product.dist(*parts)),
        "norm": (power.norm(x, joined(xi)), product.norm(parts[0], xi)),
        "retraction": (power.retraction(x, joined(xi)), joined(product.retraction(parts[0], xi))),
        "exponential": (power.using("exponential").retraction(x, joined(xi)), joined(product.exp(parts[0], xi))),
    }  # fmt: skip
    for name, pair in found.items():
        np.testing.assert_allclose(*pair, atol=1e-13, err_msg=name)
    for twin in (copy.copy(power), pickle.loads(pickle.dumps(power))):
        assert repr(twin) == repr(power)


def test_a_run_on_a_power_is_that_on_the_product() -> None:
    """It begins at a list or `Parts`, too, and carries vectors in the space around as its base does."""
    A = np.random.default_rng(1).standard_normal((3, 5, 5))
    A, parts = A + A.mT, [Grassmann(5, 2).random_point(seed) for seed in range(3)]
    power, product = POWERS[1]
    stacked = rmopt.autograd_cost(lambda X: anp.sum(X * anp.matmul(A, X)) + anp.sum(X[0] * X[1]) ** 2)
    apart = rmopt.autograd_cost(lambda *X: stacked.function(anp.stack(X)))
    wanted = LBFGS().run(Problem(product, apart), Parts(parts))
    for start in (parts, Parts(parts), np.stack(parts)):
        found = LBFGS().run(Problem(power, stacked), start)
        assert found.point.shape == (3, 5, 2)
        assert found.cost == pytest.approx(wanted.cost, abs=1e-10)
        assert found.steps == wanted.steps
    with pytest.raises(InvalidInputError, match="array of shape"):
        LBFGS().run(Problem(power, stacked), [*parts[:2], parts[0][:4]])
    for one, other in POWERS:
        assert is_extrinsic(one, one.default_transport) == is_extrinsic(other, other.default_transport)
    # Squares of gradients are those of each point, or of each number in flat space.
    for base in (Sphere(4), Euclidean(2, 2)):
        ends = [
            SGD(0.05, rule=Adam(), max_iter=20).run(Problem(M, Far()), M.random_point(2)).point
            for M in (Power(base, 3), Product([base] * 3))
        ]
        np.testing.assert_allclose(ends[0], np.stack([*ends[1]]), atol=1e-13)


class Far(Cost):
    """Σᵢ i ‖xᵢ − 1‖²."""

    def value(self, point: Any) -> float:
        return float(sum(i * np.sum((x - 1.0) ** 2) for i, x in enumerate(point)))

    def gradient(self, point: Any) -> Any:
        found = [2.0 * i * (x - 1.0) for i, x in enumerate(point)]
        return np.stack(found) if isinstance(point, np.ndarray) else found


def test_what_is_no_power() -> None:
    assert isinstance(Power(FixedRankEmbedded(5, 4, 2), 3), Product)
    assert repr(Power(Product([Sphere(3), Sphere(4)]), 2)) == "Product([Product(Sphere(3), Sphere(4))] * 2)"
    with pytest.raises(InvalidInputError, match=r"formulas of GeneralizedStiefel.* take single points"):
        Power(GeneralizedStiefel(4, 2), 3)


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
    assert manifold.check_point(unpacked(packed(point), point)) is None


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
