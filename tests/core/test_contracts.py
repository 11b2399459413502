"""Parts as strangers write them, right and wrong: retractions, costs, gradients, operators, pymanopt's manifolds."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import pytest
import scipy.sparse as sp
from pymanopt.manifolds import Elliptope, SpecialOrthogonalGroup, Sphere, Stiefel
from pymanopt.manifolds import Euclidean as ForeignEuclidean
from tabled import each_row

import rmopt
from rmopt import InvalidInputError, MissingCapabilityError, Problem
from rmopt.checks import check_gradient, check_hessian, check_manifold
from rmopt.core import Actions, BlockDiagonal, Cost, Factored, Manifold, Parts, Retraction
from rmopt.core.ambient import Operator, RowColumn, Sum, dense
from rmopt.core.cost import WholeCost
from rmopt.costs import BilinearSum
from rmopt.interop import PymanoptSolver, from_pymanopt
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    PolarPSD,
    PositiveDefinite,
    Power,
    Product,
    PSDFixedRank,
    frechet_mean,
)
from rmopt.retractions import (
    QR,
    Additive,
    AffineExponential,
    Componentwise,
    Exponential,
    MetricProjection,
    Polar,
    SecondOrderPD,
)
from rmopt.solvers import LBFGS, SGD, GradientDescent, Hybrid, TrustRegions

GRASSMANN, CONE, FLAT, LOW = Grassmann(6, 2), PositiveDefinite(4), Euclidean(6, 2), FixedRankEmbedded(6, 4, 2)
SPHERE, ROTATIONS = from_pymanopt(Sphere(5)), from_pymanopt(SpecialOrthogonalGroup(4))


class Plain(Retraction):
    """Somebody's retraction, which says nothing of its points: QR without signs."""

    order, name = 2, "plain"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return np.linalg.qr(point + t * tangent)[0]


class Lazy(Plain):
    """A wrong one: leaves the manifold."""

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return point + t * tangent


class Broken(QR):
    """A subclass of a right one with one method that is wrong."""

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return 2.0 * super().__call__(manifold, point, tangent, t)


class Whole(Retraction):
    """Somebody's retraction of whole products."""

    order, name, point_type = 2, "whole", Parts

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return manifold.exp(point, tangent * t)


class Named(Grassmann):
    """Somebody's subclass."""

    def __repr__(self) -> str:
        return "Named()"


class Straight(Retraction):
    """Somebody's retraction of matrices of one rank."""

    order, name = 2, "straight"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return MetricProjection()(manifold, point, tangent, t)


class Straightened(Retraction):
    """Somebody's retraction of spheres."""

    order, name = 2, "straightened"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        moved = point + t * tangent
        return moved / np.linalg.norm(moved)


FITTING: list[tuple[Any, Any]] = [
    (GRASSMANN, QR()), (GRASSMANN, "polar"), (GRASSMANN, Plain()), (GRASSMANN, AffineExponential()),
    (Named(6, 2), QR()), (CONE, Exponential()), (CONE, "additive"), (PositiveDefinite(1), None),
    (FLAT, Exponential()), (FLAT, None), (LOW, Straight()), (PSDFixedRank(5, 2), "polar"),
    (PolarPSD(5, 2), "metric-projection"), (SPHERE, Exponential()), (from_pymanopt(Stiefel(5, 2)), Polar()),
    (from_pymanopt(ForeignEuclidean(4, 2)), Additive()), (Power(GRASSMANN, 3), "qr"), (Power(GRASSMANN, 3), Plain()),
    (Product([GRASSMANN, Power(Named(6, 2), 2)]), QR()), (Product([GRASSMANN, CONE]), Whole()),
    (Product([GRASSMANN, CONE]), Componentwise([QR(), SecondOrderPD()])),
]  # fmt: skip
MISFITS: list[tuple[Any, Any, str]] = [
    (GRASSMANN, Additive(), r"Additive\(\) is not a retraction of Grassmann\(6, 2\): .*not orthonormal.*Exponential"),
    (GRASSMANN, SecondOrderPD(), r"a short step of it fails"),
    (GRASSMANN, Lazy(), r"is not a retraction of Grassmann\(6, 2\)"),
    (GRASSMANN, Broken(), r"is not a retraction"),
    (CONE, QR(), r"QR\(\) is not a retraction of PositiveDefinite\(4\): .*not symmetric"),
    (PositiveDefinite(1), QR(), r"goes elsewhere"),
    (CONE, Polar(), r"is not a retraction"),
    (FLAT, QR(), r"goes elsewhere"),
    (LOW, QR(), r"a short step of it fails"),
    (SPHERE, Additive(), r"length zero moves the point"),
    (Product([GRASSMANN, CONE]), QR(), r"QR\(\) is not a retraction of PositiveDefinite"),
    (Product([GRASSMANN, CONE]), Componentwise([QR()]), r"is not a retraction of Grassmann"),
    (Product([GRASSMANN, CONE]), Componentwise([SecondOrderPD(), QR()]), r"is not a retraction of Grassmann"),
    (Power(GRASSMANN, 3), Additive(), r"is not a retraction of Grassmann"),
    (GRASSMANN, "qrr", r"= 'qrr' is unknown; choose one of exponential, qr, polar \(did you mean 'qr'\?\)"),
    (Product([GRASSMANN, CONE]), "qr", r"retraction of PositiveDefinite\(4\) = 'qr' is unknown"),
    (GRASSMANN, QR, r"QR'> is a class; give an object of it"),
]  # fmt: skip


@each_row(("manifold", "retraction"), FITTING)
def test_a_retraction_that_fits_is_taken_and_stays_on_the_manifold(manifold: Any, retraction: Any) -> None:
    twin = manifold.using(retraction)
    rng = np.random.default_rng(1)
    point = twin.random_point(rng)
    assert twin.check_point(twin.retraction(point, twin.random_tangent_vector(point, rng) * 0.1)) is None


@each_row(("manifold", "retraction", "sentence"), MISFITS)
def test_a_retraction_of_another_manifold_is_refused_before_work(
    manifold: Any, retraction: Any, sentence: str
) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        manifold.using(retraction)


# Problems


class Linear(Cost):
    """Σ entries of the point, with any gradient."""

    def __init__(self, gradient: Callable[[Any], Any]) -> None:
        self.of = gradient

    def value(self, point: Any) -> float:
        return float(sum(np.sum(part) for part in point))

    def gradient(self, point: Any) -> Any:
        return self.of(point)


PAIRS = BilinearSum(np.eye(6), np.eye(6)[:, :2])
ALONE = rmopt.autograd_cost(lambda U: anp.sum(U))
FACTORS = rmopt.autograd_cost(lambda A, B: anp.sum(anp.dot(A, B.T)))


@each_row(
    ("manifold", "gradient", "sentence"),
    [
        (GRASSMANN, lambda U: np.ones((3, 2)), r"of shape \(3, 2\), and points of .* have shape \(6, 2\)"),
        (LOW, lambda W: np.ones((4, 6)), r"of shape \(4, 6\)"),
        (SPHERE, lambda x: np.ones((5, 1)), r"of shape \(5, 1\), and points of .* have shape \(5,\)"),
        (GRASSMANN, lambda U: 1.0, r"is 1.0, no array or operator"),
        (GRASSMANN, lambda U: [1.0, 2.0], r"no array or operator"),
        (Product([GRASSMANN, FLAT]), lambda p: [p[0]], r"a gradient of 1 parts does not fit points of 2 parts"),
        (Product([GRASSMANN, FLAT]), lambda p: (p[0], p[1].T), r"part 1 has shape \(2, 6\)"),
        (Product([GRASSMANN, FLAT]), lambda p: np.ones((6, 2)), r"have shape \(12, 4\)"),
    ],
)  # fmt: skip
def test_gradients_of_a_wrong_shape_are_named(manifold: Any, gradient: Any, sentence: str) -> None:
    class Sums(Linear):
        def value(self, point: Any) -> float:
            return 0.0

    problem = Problem(manifold, Sums(gradient))
    point = manifold.random_point(np.random.default_rng(0))
    for take in (problem.riemannian_gradient, problem.probe):
        with pytest.raises(InvalidInputError, match=sentence):
            take(point)
    with pytest.raises(InvalidInputError, match=sentence):
        PymanoptSolver().run(problem)


class Squares(Cost):
    """½ Σ‖part − 1‖² on a product, its gradient in one of the forms that people write."""

    def __init__(self, form: Callable[[list[Any]], Any]) -> None:
        self.form = form

    def value(self, point: Parts) -> float:
        return 0.5 * float(sum(np.sum((part - 1.0) ** 2) for part in point))

    def gradient(self, point: Parts) -> Any:
        return self.form([part - 1.0 for part in point])

    def hessian(self, point: Parts, direction: BlockDiagonal) -> Any:
        return direction


# Operators


class Doubled(Operator):
    """Somebody's operator, with what an operator must have."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    @property
    def shape(self) -> tuple[int, ...]:
        return self.matrix.shape

    @property
    def T(self) -> "Doubled":
        return Doubled(self.matrix.T)

    def __matmul__(self, other: Any) -> Any:
        return 2.0 * (self.matrix @ other)


def operators() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 4))
    factored = Factored(rng.standard_normal((4, 2)), rng.standard_normal((4, 2)))
    return {
        "factored": factored,
        "sparse factors": Factored(sp.csr_array(A), sp.csr_array(A + 1.0)),
        "sum": Sum(A, factored),
        "actions": Actions((4, 4), lambda X: A @ X, lambda X: A.T @ X),
        "blocks": BlockDiagonal([(2, 1), (2, 3)], {0: A[:2, :1], 1: A[2:, 1:]}),
        "somebody's": Doubled(A),
        "row and column": RowColumn(1, A[0]),
    }


@each_row("name", operators())
def test_the_ambient_algebra_is_closed(name: str) -> None:
    G = operators()[name]
    array, rng = dense(G), np.random.default_rng(1)
    X, sparse = rng.standard_normal((4, 3)), sp.csr_array(np.diag([1.0, 0.0, 2.0, 0.0]))
    for wrong in (lambda: G * np.ones(4), lambda: np.ones(4) * G, lambda: 1.0 + G):
        with pytest.raises((TypeError, InvalidInputError), match=r"operand|one shape"):
            wrong()
    pairs = [
        (-(G + X @ X.T), -(array + X @ X.T)), (G - G * 3.0, -2.0 * array), (G / 4, array / 4.0),
        (2 * (G + G), 4.0 * array), (X @ X.T + G, X @ X.T + array), (X @ X.T - G, X @ X.T - array),
        (sparse + G, sparse.toarray() + array), (sparse - G, sparse.toarray() - array),
        (G - sparse, array - sparse.toarray()), (np.float64(2.0) * G, 2.0 * array), (G * np.int64(2), 2.0 * array),
        (sum([G, G, G]), 3.0 * array), ((G - G.T) / 2.0, 0.5 * (array - array.T)),
    ]  # fmt: skip
    for found, wanted in pairs:
        np.testing.assert_allclose(found @ X, wanted @ X, atol=1e-13)
        np.testing.assert_allclose(found.T @ X, wanted.T @ X, atol=1e-13)
        np.testing.assert_allclose(dense(found), wanted, atol=1e-13)
    with pytest.raises(TypeError):
        G + "x"
    with pytest.raises(InvalidInputError, match="one shape"):
        G + np.ones((2, 2))
    with pytest.raises(InvalidInputError, match="not an ambient matrix"):
        dense(1.0)


# pymanopt


def test_a_pymanopt_manifold_keeps_its_own_geometry() -> None:
    for manifold in (ROTATIONS, SPHERE, from_pymanopt(SpecialOrthogonalGroup(6))):
        assert all(check_manifold(manifold))
        x, y = (manifold.random_point(np.random.default_rng(seed)) for seed in (0, 1))
        v = manifold.random_tangent_vector(x, np.random.default_rng(2))
        np.testing.assert_allclose(manifold.to_tangent_space(x, v), v, atol=1e-12)
        assert manifold.knows("exp")
        np.testing.assert_allclose(manifold.exp(x, manifold.log(x, y)), y, atol=1e-8)
        np.testing.assert_allclose(manifold.dist(x, y), manifold.norm(x, manifold.log(x, y)))
        np.testing.assert_allclose(frechet_mean(manifold, [x, y]), manifold.pair_mean(x, y), atol=1e-6)
    elliptope = from_pymanopt(Elliptope(4, 2))
    assert not elliptope.knows("exp")
    with pytest.raises(MissingCapabilityError, match="has no `exp`"):
        elliptope.exp(elliptope.random_point(), elliptope.random_point())
    with pytest.raises(MissingCapabilityError, match=r"has no `exp`|no closed form"):
        elliptope.using(Exponential())
    assert not Product([SPHERE, elliptope]).knows("log")


def test_products_of_pymanopt_manifolds_obey_the_laws() -> None:
    for manifold in (Product([SPHERE] * 2), Product([ROTATIONS, SPHERE, GRASSMANN])):
        assert all(check_manifold(manifold))
    wanted = Product([SPHERE] * 2)
    assert all(check_hessian(Problem(wanted.using(Exponential()), Squares(tuple))))


def test_what_lacks_second_derivatives_is_named() -> None:
    problem = Problem(PolarPSD(4, 2), FACTORS)
    with pytest.raises(MissingCapabilityError, match=r"PolarPSD.* has no `euclidean_to_riemannian_hessian`"):
        PymanoptSolver("TrustRegions").run(problem)


class OneBlock(Retraction):
    """Somebody's retraction for coordinate descent alone."""

    order, name = 1, "one-block"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return point + t * RowColumn(tangent.k, tangent.u).toarray()


class Circle(Manifold):
    """Somebody's manifold, which declares nothing that it need not, and has no distance."""

    default_retraction = Straightened()
    dim = 1

    def inner_product(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> float:
        return float(tangent_vector_a @ tangent_vector_b)

    def projection(self, point: Any, ambient: Any) -> Any:
        return ambient - (point @ ambient) * point

    def embedding(self, point: Any, tangent_vector: Any) -> Any:
        return tangent_vector

    def embed_point(self, point: Any) -> Any:
        return point

    def random_point(self, rng: Any = None) -> Any:
        angle = np.random.default_rng(rng).uniform(0.0, 6.0)
        return np.array([np.cos(angle), np.sin(angle)])

    def random_tangent_vector(self, point: Any, rng: Any = None) -> Any:
        return np.array([-point[1], point[0]])

    def zero_vector(self, point: Any) -> Any:
        return np.zeros(2)

    def transport(self, point_a: Any, point_b: Any, tangent_vector_a: Any) -> Any:
        return self.projection(point_b, tangent_vector_a)

    def check_point(self, point: Any) -> str | None:
        return None if abs(np.linalg.norm(point) - 1.0) < 1e-8 else "its length is not 1"

    def __repr__(self) -> str:
        return "Circle()"


def test_somebodys_manifold_with_somebodys_retraction() -> None:
    for manifold in (Circle(), Circle().using(Straightened()), Power(Circle(), 2).using(Straightened())):
        assert all(check_manifold(manifold))
    for wrong, sentence in (
        (
            Additive(),
            r"Additive\(\) is not a retraction of Circle\(\): after a short step of it, its length is not 1",
        ),
        (QR(), r"a short step of it fails"),
        (Exponential(), r"no closed form"),
        ("qr", r"retraction of Circle\(\) = 'qr' is unknown"),
    ):
        with pytest.raises(rmopt.RmoptError, match=sentence):
            Circle().using(wrong)
    assert isinstance(CONE.using(OneBlock()).default_retraction, OneBlock)
    with pytest.raises(InvalidInputError, match="its length is not 1"):
        SGD(0.1).run(Problem(Circle(), WholeCost(ALONE)), np.ones(2))
    found = SGD(0.1, max_iter=300).run(Problem(Circle(), WholeCost(ALONE)), random_state=0).point
    np.testing.assert_allclose(found, -(0.5**0.5), atol=1e-6)


class Angle:
    """Somebody's point and tangent vector, of a class that shows nothing of what is in it."""

    __array_ufunc__ = None

    def __init__(self, angle: float) -> None:
        self._angle = angle

    def __add__(self, other: "Angle") -> "Angle":
        return Angle(self._angle + other._angle)

    def __sub__(self, other: "Angle") -> "Angle":
        return Angle(self._angle - other._angle)

    def __mul__(self, factor: float) -> "Angle":
        return Angle(self._angle * factor)

    def __neg__(self) -> "Angle":
        return Angle(-self._angle)

    __rmul__ = __mul__


class Turn(Retraction):
    order, name = 1, "turn"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return point + t * tangent


class Hidden(Circle):
    """The circle, with points and tangent vectors that are no arrays."""

    default_retraction = Turn()
    embed_point = Manifold.embed_point

    def inner_product(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> float:
        return float(tangent_vector_a._angle * tangent_vector_b._angle)

    def projection(self, point: Any, ambient: Any) -> Any:
        return Angle(float(ambient[0]))

    def embedding(self, point: Any, tangent_vector: Any) -> Any:
        return np.array([tangent_vector._angle])

    def random_point(self, rng: Any = None) -> Any:
        return Angle(np.random.default_rng(rng).uniform(0.0, 6.0))

    def random_tangent_vector(self, point: Any, rng: Any = None) -> Any:
        return Angle(1.0)

    def zero_vector(self, point: Any) -> Any:
        return Angle(0.0)

    def transport(self, point_a: Any, point_b: Any, tangent_vector_a: Any) -> Any:
        return tangent_vector_a

    def check_point(self, point: Any) -> str | None:
        return None if isinstance(point, Angle) else "it is no Angle"


class Shown(Hidden):
    def embed_point(self, point: Any) -> Any:
        return np.array([point._angle])


class Height(Cost):
    def value(self, point: Any) -> float:
        return float(np.sin(point._angle))

    def gradient(self, point: Any) -> Any:
        return np.array([np.cos(point._angle)])


def test_points_may_be_of_any_class() -> None:
    problem = Problem(Shown(), Height())
    assert check_gradient(problem)
    for solver in (GradientDescent(), LBFGS(), TrustRegions(), Hybrid(), SGD(0.5, max_iter=50)):
        assert problem.value(solver.run(problem, random_state=0).point) < -0.999
    with pytest.raises(
        MissingCapabilityError, match=r"points of type Angle; write methods `embed_point` and"
    ):
        LBFGS().run(Problem(Hidden(), Height()), random_state=0)


# Arguments


def test_pairs_are_scored_at_arrays_too() -> None:
    """A bilinear cost on a flat space or a cone of matrices is what it is on low-rank ones."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 9, 4))
    cost = BilinearSum(left, right, "squared", np.ones(9))
    for manifold in (Euclidean(4, 4), PositiveDefinite(4)):
        problem = Problem(manifold, cost)
        W = manifold.random_point(rng)
        expected = ((np.einsum("ij,jk,ik->i", left, W, right) - 1.0) ** 2).sum()
        np.testing.assert_allclose(cost.value(W), cost.loss.values(np.ones(1) + 1, np.ones(1))[0] * expected)
        assert check_gradient(problem)


def test_second_derivatives_of_bilinear_costs_at_arrays() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((2, 9, 4))
    problem = Problem(PositiveDefinite(4), BilinearSum(left, right, "squared", np.ones(9)))
    assert all(check_hessian(problem))


def test_a_retraction_of_the_manifold_itself_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="which solvers do not call"):
        type("Own", (Grassmann,), {"retraction": lambda self, x, v: x})


def test_second_derivatives_that_a_part_lacks_are_differences() -> None:
    target = np.array([0.1, 0.2, 0.3])
    foreign = from_pymanopt(pymanopt.manifolds.PoincareBall(3))
    near = Problem(foreign, rmopt.autograd_cost(lambda x: anp.sum((x - target) ** 2)))
    for solver in (GradientDescent(), LBFGS(), TrustRegions()):
        np.testing.assert_allclose(solver.run(near, random_state=0).point, target, atol=1e-5)
    assert not Product([PolarPSD(4, 2), Euclidean(2, 2)]).knows_hessians
