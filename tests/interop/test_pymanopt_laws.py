"""What pymanopt's own tests of its manifolds assert, held by ours as well, and by both through the adapters.

The statements are those of pymanopt 2.2.1's tests/manifolds, for every manifold that both have: dimensions, closed
forms of projections, inner products and distances, what is tangent, where retractions and geodesics end, and what
undoes what.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import pymanopt.manifolds as foreign
import scipy.linalg
from pymanopt.manifolds.manifold import Manifold as PymanoptManifold
from pymanopt.tools.testing import euclidean_to_riemannian_hessian
from tabled import each_row

from rmopt import Problem, autograd_cost, solvers
from rmopt.checks import check_manifold, check_retraction
from rmopt.core.ambient import dense
from rmopt.interop import from_pymanopt, to_pymanopt
from rmopt.interop.pymanopt import global_seed
from rmopt.manifolds import (
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Hyperbolic,
    Oblique,
    Positive,
    Product,
    PSDFactors,
    PSDFixedRank,
    SkewSymmetric,
    SpecialOrthogonal,
    SpecialPositiveDefinite,
    Sphere,
    Stiefel,
    Symmetric,
    SymmetricPositiveDefinite,
    Unitary,
)

Array = np.ndarray
Vectors = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Shared:
    """A manifold of both, with what their tests say of it.

    `off` is zero for points alone, `normal` for tangent vectors alone; `projection` is the closed form of the
    projection onto the tangent space where the metric is that of the space around, and `dist` that of the distance.
    """

    ours: Any
    theirs: Any
    dim: float
    off: Callable[[Array], Any]
    normal: Vectors
    projection: Vectors | None = None
    dist: Callable[[Array, Array], float] | None = None
    typical_dist: float | None = None
    # Points that are one may be different arrays.
    is_quotient: bool = False

    def __repr__(self) -> str:
        return repr(self.ours)


def sym(matrix: Array) -> Array:
    return 0.5 * (matrix + np.swapaxes(matrix, -1, -2))


def gram(x: Array) -> Array:
    return np.swapaxes(x, -1, -2) @ x - np.eye(x.shape[-1])


def across(x: Array, u: Array) -> Array:
    return np.swapaxes(x, -1, -2) @ u


def frame(n: int, p: int, k: int = 1) -> Shared:
    return Shared(
        Stiefel(n, p, k), foreign.Stiefel(n, p, k=k), k * (n * p - p * (p + 1) / 2), gram,
        lambda x, u: sym(across(x, u)), lambda x, h: h - x @ sym(across(x, h)), typical_dist=(p * k) ** 0.5,
    )  # fmt: skip


def rotations(n: int, k: int = 1) -> Shared:
    return Shared(
        SpecialOrthogonal(n, k), foreign.SpecialOrthogonalGroup(n, k=k), k * n * (n - 1) / 2,
        lambda x: np.append(gram(x), np.linalg.det(x) - 1.0), lambda x, u: sym(across(x, u)),
    )  # fmt: skip


def definite(d: int, k: int = 1) -> Shared:
    return Shared(
        SymmetricPositiveDefinite(d, k), foreign.SymmetricPositiveDefinite(d, k=k), k * d * (d + 1) / 2,
        lambda x: np.append(x - sym(x), np.minimum(np.linalg.eigvalsh(x), 0.0)), lambda x, u: u - sym(u),
        dist=lambda x, y: float(np.linalg.norm([
            np.log(scipy.linalg.eigvalsh(a, b)) for a, b in zip(x.reshape(-1, d, d), y.reshape(-1, d, d), strict=True)
        ])),
        typical_dist=(k * d * (d + 1) / 2) ** 0.5,
    )  # fmt: skip


SHARED = [
    Shared(
        Sphere(7, 4), foreign.Sphere(7, 4), 27, lambda x: np.linalg.norm(x) - 1.0, lambda x, u: np.vdot(x, u),
        lambda x, h: h - x * anp.sum(x * h), lambda x, y: float(np.arccos(np.vdot(x, y))), np.pi,
    ),
    Shared(
        Oblique(6, 5), foreign.Oblique(6, 5), 25, lambda x: np.linalg.norm(x, axis=0) - 1.0,
        lambda x, u: (x * u).sum(0),
        lambda x, h: h - x * anp.sum(x * h, axis=0), lambda x, y: float(np.linalg.norm(np.arccos((x * y).sum(0)))),
        np.pi * 5**0.5,
    ),
    frame(9, 2), frame(6, 3, 4), rotations(3), rotations(6), rotations(4, 3), definite(6), definite(4, 3),
    Shared(
        Grassmann(7, 3), foreign.Grassmann(7, 3), 12, gram, across, lambda x, h: h - x @ (x.T @ h),
        lambda x, y: float(np.linalg.norm(scipy.linalg.subspace_angles(x, y))), 3**0.5, is_quotient=True,
    ),
    Shared(
        Euclidean(5, 4), foreign.Euclidean(5, 4), 20, lambda x: np.zeros(1), lambda x, u: np.zeros(1),
        lambda x, h: h + 0.0 * x,
        lambda x, y: float(np.linalg.norm(x - y)), 20**0.5,
    ),
    Shared(
        Elliptope(7, 3), foreign.Elliptope(7, 3), 11, lambda x: np.linalg.norm(x, axis=1) - 1.0,
        lambda x, u: np.append((x * u).sum(1), x.T @ u - u.T @ x), is_quotient=True,
    ),
]  # fmt: skip

SEED = 3


def sides(shared: Shared) -> Iterator[tuple[str, Any, bool]]:
    """Return pymanopt's manifold, ours as pymanopt gets it, and its own as we get it; and if vectors are Ω."""
    cost = autograd_cost(lambda point: anp.sum(point))
    lie = isinstance(shared.theirs, foreign.SpecialOrthogonalGroup)
    yield "pymanopt", shared.theirs, lie
    yield "to_pymanopt", to_pymanopt(Problem(shared.ours, cost)).manifold, False
    yield "from_pymanopt", from_pymanopt(shared.theirs), lie


class Drawn:
    """Points and tangent vectors of one side, drawn as pymanopt draws them: without a generator."""

    def __init__(self, manifold: Any, lie: bool) -> None:
        self.manifold, self.lie = manifold, lie
        rng = np.random.default_rng(SEED)
        with global_seed(rng):
            # Ours take a generator, pymanopt's none.
            given = () if not hasattr(manifold, "check_point") else (rng,)
            self.x, self.y, self.z = (manifold.random_point(*given) for _ in range(3))
            self.u, self.v = (manifold.random_tangent_vector(self.x, *given) for _ in range(2))
        self.h, self.e = rng.standard_normal((2, *np.shape(self.x)))

    def around(self, vector: Array) -> Array:
        """Return a tangent vector at x as an array of the space around."""
        return self.x @ vector if self.lie else vector


def everywhere(test: Callable[[Shared, Any, Drawn], None]) -> Callable[[], None]:
    """Run a test over all shared manifolds and their sides, and list what fails."""
    rows = [(shared, name, manifold, lie) for shared in SHARED for name, manifold, lie in sides(shared)]

    @each_row("shared, side, manifold, lie", rows)
    def over(shared: Shared, side: str, manifold: Any, lie: bool) -> None:
        test(shared, manifold, Drawn(manifold, lie))

    over.__name__ = test.__name__
    return over


def known(manifold: Any, method: str) -> bool:
    """Return whether a manifold has a closed form; pymanopt raises where it has none, or retracts in its place."""
    if hasattr(manifold, "knows"):
        return manifold.knows(method)
    return from_pymanopt(manifold).knows(method)


@everywhere
def test_dimensions_and_scales(shared: Shared, manifold: Any, at: Drawn) -> None:
    assert isinstance(manifold, PymanoptManifold) or hasattr(manifold, "foreign")
    assert manifold.dim == shared.dim
    if shared.typical_dist is not None and not hasattr(manifold, "foreign"):
        np.testing.assert_allclose(manifold.typical_dist, shared.typical_dist)
    assert manifold.point_layout == 1


@everywhere
def test_projections_and_gradients_have_their_closed_form(shared: Shared, manifold: Any, at: Drawn) -> None:
    if shared.projection is None:
        return
    wanted = shared.projection(at.x, at.h)
    np.testing.assert_allclose(manifold.projection(at.x, at.h), wanted, atol=1e-13)
    np.testing.assert_allclose(manifold.euclidean_to_riemannian_gradient(at.x, at.h), wanted, atol=1e-13)
    np.testing.assert_allclose(manifold.projection(at.x, at.u), at.u, atol=1e-13)


@everywhere
def test_hessians_are_derivatives_of_projections(shared: Shared, manifold: Any, at: Drawn) -> None:
    if shared.projection is None or at.x.ndim != 2:
        return
    converted = euclidean_to_riemannian_hessian(shared.projection)(at.x, at.h, at.e, at.u)
    found = manifold.euclidean_to_riemannian_hessian(at.x, at.h, at.e, at.u)
    np.testing.assert_allclose(found, converted, atol=1e-12)


@everywhere
def test_distances_have_their_closed_form_and_are_lengths_of_logarithms(
    shared: Shared, manifold: Any, at: Drawn
) -> None:
    if not known(manifold, "dist"):
        return
    there = manifold.dist(at.x, at.y)
    np.testing.assert_allclose(there, manifold.dist(at.y, at.x), rtol=1e-9)
    np.testing.assert_allclose(there, manifold.norm(at.x, manifold.log(at.x, at.y)), rtol=1e-9)
    np.testing.assert_allclose(manifold.dist(at.x, at.x), 0.0, atol=1e-6)
    assert there <= manifold.dist(at.x, at.z) + manifold.dist(at.z, at.y)
    if shared.dist is not None:
        np.testing.assert_allclose(there, shared.dist(at.x, at.y), rtol=1e-9)


@each_row("d", [4, 15])
def test_distances_of_positive_definite_matrices_do_not_depend_on_the_basis(d: int) -> None:
    for _, manifold, lie in sides(definite(d)):
        at = Drawn(manifold, lie)
        there = manifold.dist(at.x, at.y)
        assert there >= np.linalg.norm(scipy.linalg.logm(at.x) - scipy.linalg.logm(at.y))
        a = np.random.default_rng(0).standard_normal((d, d))
        np.testing.assert_allclose(manifold.dist(np.linalg.inv(at.y), np.linalg.inv(at.x)), there, rtol=1e-9)
        np.testing.assert_allclose(manifold.dist(sym(a @ at.x @ a.T), sym(a @ at.y @ a.T)), there, rtol=1e-6)
        share = manifold.exp(at.x, 0.3 * manifold.log(at.x, at.y))
        np.testing.assert_allclose(manifold.dist(at.x, share), 0.3 * there, rtol=1e-9)


# Problems: pymanopt differentiates the function on its manifold, and gets ours with ours on our manifold


@each_row("shared", SHARED)
def test_gradients_and_hessians_of_a_problem_are_the_same_in_pymanopt(shared: Shared) -> None:
    target = np.random.default_rng(0).standard_normal(np.shape(Drawn(shared.ours, False).x))

    def function(point: Any) -> Any:
        # A function of the subspace, of the correlation matrix, of the point.
        if isinstance(shared.ours, Grassmann | Elliptope):
            point = point @ anp.swapaxes(point, -1, -2)
            return anp.sum(anp.sin(point + 0.1 * anp.outer(target[:, 0], target[:, 1])) ** 2)
        return anp.sum(anp.sin(point) * target) + anp.sum(point * target) ** 2

    lie = isinstance(shared.theirs, foreign.SpecialOrthogonalGroup)
    at = Drawn(shared.ours, False)
    theirs = pymanopt.Problem(shared.theirs, pymanopt.function.autograd(shared.theirs)(function))
    ours = to_pymanopt(Problem(shared.ours, autograd_cost(lambda point: function(point))))
    back = Problem(from_pymanopt(shared.theirs), autograd_cost(lambda point: function(point)))
    u = across(at.x, at.u) if lie else at.u
    np.testing.assert_allclose(ours.cost(at.x), theirs.cost(at.x), rtol=1e-13)
    wanted = theirs.riemannian_gradient(at.x)
    np.testing.assert_allclose(back.riemannian_gradient(at.x), wanted, atol=1e-12)
    np.testing.assert_allclose(ours.riemannian_gradient(at.x), at.x @ wanted if lie else wanted, atol=1e-12)
    if isinstance(shared.theirs, foreign.Elliptope):
        return
    wanted = theirs.riemannian_hessian(at.x, u)
    np.testing.assert_allclose(back.riemannian_hessian(at.x, u), wanted, atol=1e-12)
    np.testing.assert_allclose(
        ours.riemannian_hessian(at.x, at.u), at.x @ wanted if lie else wanted, atol=1e-11
    )


# Manifolds whose points are made of other parts there


def test_matrices_of_one_rank_are_those_of_pymanopt() -> None:
    ours, theirs = FixedRankEmbedded(10, 5, 3), foreign.FixedRankEmbedded(10, 5, 3)
    assert ours.dim == theirs.dim == (10 + 5 - 3) * 3
    rng = np.random.default_rng(SEED)
    x, W = ours.random_point(rng), rng.standard_normal((10, 5))
    u, s, vt = np.linalg.svd(ours.to_dense(x), full_matrices=False)
    there = u[:, :3], s[:3], vt[:3]

    def embedded(vector: Any) -> Array:
        left, core, right = theirs.embedding(there, vector)
        return left @ core @ right.T

    projected = ours.projection(x, W)
    np.testing.assert_allclose(
        dense(ours.embedding(x, projected)), embedded(theirs.projection(there, W)), atol=1e-12
    )
    a, b = ours.random_tangent_vector(x, rng), ours.random_tangent_vector(x, rng)
    A, B = (theirs.projection(there, dense(ours.embedding(x, vector))) for vector in (a, b))
    np.testing.assert_allclose(ours.inner_product(x, a, b), theirs.inner_product(there, A, B), atol=1e-14)
    np.testing.assert_allclose(ours.norm(x, a), 1.0)
    left, sigma, right = theirs.retraction(there, 0.1 * A)
    moved = ours.using("metric-projection").retraction(x, 0.1 * a)
    np.testing.assert_allclose(ours.to_dense(moved), (left * sigma) @ right, atol=1e-12)


def test_factors_of_semidefinite_matrices_are_those_of_pymanopt() -> None:
    ours, theirs = PSDFactors(8, 3), foreign.PSDFixedRank(8, 3)
    rng = np.random.default_rng(SEED)
    Y, Z = rng.standard_normal((2, 8, 3))
    np.testing.assert_allclose(ours.horizontal(Y, Z), theirs.projection(Y, Z), atol=1e-13)
    np.testing.assert_allclose(ours.retraction(Y, Z), theirs.retraction(Y, Z))
    np.testing.assert_allclose(ours.inner_product(Y, Z, Y), theirs.inner_product(Y, Z, Y))
    # What is dropped there moves nothing.
    turned = Z - ours.horizontal(Y, Z)
    np.testing.assert_allclose(turned @ Y.T + Y @ turned.T, 0.0, atol=1e-12)


def test_products_are_those_of_pymanopt() -> None:
    ours = Product([Euclidean(4, 3), Sphere(5), Grassmann(6, 2)])
    parts = foreign.Euclidean(4, 3), foreign.Sphere(5), foreign.Grassmann(6, 2)
    theirs = foreign.Product(parts)
    assert ours.dim == theirs.dim == 12 + 4 + 8
    rng = np.random.default_rng(SEED)
    x, y = ours.random_point(rng), ours.random_point(rng)
    there = [list(one) for one in (x, y)]
    np.testing.assert_allclose(ours.dist(x, y), theirs.dist(*there), rtol=1e-9)
    np.testing.assert_allclose(ours.typical_dist, theirs.typical_dist)


def test_hyperbolic_space_is_the_ball_of_pymanopt() -> None:
    ours, theirs = Hyperbolic(5), foreign.PoincareBall(5)
    assert ours.dim == theirs.dim == 5
    rng = np.random.default_rng(SEED)
    x, y = (ours.random_point(rng) for _ in range(2))
    inside = [point[1:] / (1.0 + point[0]) for point in (x, y)]
    np.testing.assert_allclose(ours.dist(x, y), theirs.dist(*inside), rtol=1e-10)
    middle = ours.pair_mean(x, y)
    np.testing.assert_allclose(middle[1:] / (1.0 + middle[0]), theirs.pair_mean(*inside), atol=1e-10)


# Every manifold and optimizer of pymanopt, beside what stands for it here

BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((7, 3)))[0]
COUNTERPARTS = {
    "ComplexCircle": ((4,), Oblique(1, 4, field="complex")),
    "ComplexEuclidean": ((4, 2), Euclidean(4, 2, field="complex")),
    "ComplexGrassmann": ((6, 2), Grassmann(6, 2, field="complex")),
    "Elliptope": ((7, 3), Elliptope(7, 3)),
    "Euclidean": ((4, 2), Euclidean(4, 2)),
    "FixedRankEmbedded": ((7, 5, 2), FixedRankEmbedded(7, 5, 2)),
    "Grassmann": ((6, 2), Grassmann(6, 2)),
    "HermitianPositiveDefinite": ((4,), SymmetricPositiveDefinite(4, field="complex")),
    "Oblique": ((4, 3), Oblique(4, 3)),
    "PSDFixedRank": ((6, 2), PSDFixedRank(6, 2)),
    "PSDFixedRankComplex": ((6, 2), PSDFixedRank(6, 2, field="complex")),
    "PoincareBall": ((4,), Hyperbolic(4)),
    "Positive": ((4, 2), Positive(4, 2)),
    "Product": (([foreign.Sphere(4), foreign.Euclidean(3)],), Product([Sphere(4), Euclidean(3)])),
    "SkewSymmetric": ((4,), SkewSymmetric(4)),
    "SpecialHermitianPositiveDefinite": ((4,), SpecialPositiveDefinite(4, field="complex")),
    "SpecialOrthogonalGroup": ((4,), SpecialOrthogonal(4)),
    "Sphere": ((5,), Sphere(5)),
    "SphereSubspaceComplementIntersection": ((BASIS,), Sphere(4)),
    "SphereSubspaceIntersection": ((BASIS,), Sphere(3)),
    "Stiefel": ((5, 2), Stiefel(5, 2)),
    "Symmetric": ((4,), Symmetric(4)),
    "SymmetricPositiveDefinite": ((4,), SymmetricPositiveDefinite(4)),
    "UnitaryGroup": ((3,), Unitary(3)),
}  # fmt: skip
SOLVERS = {
    "ConjugateGradient": "ConjugateGradient", "NelderMead": "NelderMead", "ParticleSwarm": "ParticleSwarm",
    "SteepestDescent": "GradientDescent", "TrustRegions": "TrustRegions",
}  # fmt: skip


@each_row("name", foreign.__all__)
def test_every_manifold_has_a_counterpart_of_the_same_dimension(name: str) -> None:
    sizes, ours = COUNTERPARTS[name]
    theirs = getattr(foreign, name)(*sizes)
    # With complex numbers pymanopt counts some dimensions wrongly.
    assert ours.dim == (from_pymanopt(theirs).dim if theirs.point_layout == 1 else theirs.dim)


@each_row("name", pymanopt.optimizers.__all__)
def test_every_optimizer_has_a_counterpart(name: str) -> None:
    assert issubclass(getattr(solvers, SOLVERS[name]), solvers.Solver)


# Our laws over their manifolds. On pymanopt's Elliptope the sign of a Lyapunov equation is wrong

UNSOUND = {"curvature", "dimension", "projection", "tangency", "transport", "transport nearby"}


@each_row("shared", SHARED)
def test_our_laws_hold_on_their_manifolds(shared: Shared) -> None:
    theirs = from_pymanopt(shared.theirs)
    checks = [*check_manifold(theirs, SEED), *check_retraction(theirs.default_retraction, theirs, SEED)]
    expected = UNSOUND if isinstance(shared.theirs, foreign.Elliptope) else set()
    assert {check.name for check in checks if not check} == expected
