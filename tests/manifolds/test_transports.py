"""Transports of tangent vectors: in solvers, as values, and vectors that need none."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
from descent_parts import KINDS, PLACES, gap, same_bits
from tabled import each_row

from rmopt import Problem
from rmopt.core.transport import TRANSPORTS, ByProjection, Isometric, OfRetraction
from rmopt.manifolds import (
    Elliptope,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    Hyperbolic,
    Oblique,
    PositiveDefinite,
    Product,
    Simplex,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
)
from rmopt.solvers import Backtracking, Conjugate, LineSearchSolver, QuasiNewton, SteepestDescent
from rmopt.solvers.batch.oracle import is_extrinsic


def test_the_derivative_of_a_retraction_is_that_of_the_retraction() -> None:
    manifold, rng = Grassmann(6, 2).using("qr"), np.random.default_rng(0)
    x = manifold.random_point(rng)
    a, b = (manifold.random_tangent_vector(x, rng) for _ in range(2))
    y, h = manifold.retraction(x, 0.7 * a), 1e-6
    ahead, behind = (manifold.retraction(x, 0.7 * a + t * b) for t in (h, -h))
    slope = manifold.projection(y, (ahead - behind) / (2.0 * h))
    np.testing.assert_allclose(OfRetraction()(manifold, x, y, b), slope, atol=1e-6)


@each_row("transport, solver", itertools.product(TRANSPORTS, ("cg", "lbfgs", "cubics")))
def test_every_transport(transport: Any, solver: str) -> None:
    for place in ("euclidean", "grassmann exponential", "positive definite"):
        problem = PLACES[place][0]
        by_solver = KINDS[solver](transport=TRANSPORTS[transport]).run(problem, random_state=0)
        there = Problem(problem.manifold.using(transport=transport), problem.cost)
        assert by_solver.converged
        assert abs(gap(by_solver, place)) < 1e-9
        same_bits(by_solver, KINDS[solver]().run(there, random_state=0))


FLAT = (
    Sphere(6),
    Oblique(4, 5),
    Stiefel(6, 2),
    SpecialOrthogonal(3, 4),
    Grassmann(6, 2),
    Elliptope(5, 2),
    Product([Sphere(4), Stiefel(5, 2)]),
)


class Projecting(ByProjection):
    """A projection of one's own, of which the library knows nothing."""


@each_row("manifold", FLAT)
def test_vectors_may_stay_in_a_space_of_arrays(manifold: Any) -> None:
    rng = np.random.default_rng(1)
    start, end = manifold.random_point(rng), manifold.random_point(rng)
    moved, beside = manifold.random_tangent_vector(start, rng), manifold.random_tangent_vector(end, rng)
    carry = partial(manifold.default_transport, manifold)
    assert is_extrinsic(manifold, manifold.default_transport)
    carried = carry(start, end, moved)
    assert manifold.inner_product(end, moved, beside) == pytest.approx(
        manifold.inner_product(end, carried, beside), abs=1e-14
    )
    assert not is_extrinsic(manifold, Projecting())
    assert not is_extrinsic(manifold, Isometric())


@each_row(
    "manifold",
    (
        Hyperbolic(4),
        Simplex(4),
        Stiefel(4, 2, metric="canonical"),
        PositiveDefinite(3),
        FixedRankEmbedded(5, 4, 2),
        FixedRankFactors(5, 4, 2),
    ),
)
def test_vectors_stay_nowhere_else(manifold: Any) -> None:
    assert not any(is_extrinsic(one, ByProjection()) for one in (manifold, Product([Sphere(3), manifold])))


class Watched(Backtracking):
    """Armijo's rule, which notes how far directions lie outside of the tangent space."""

    def __call__(self, curve: Any, guess: float, memory: Any) -> Any:
        manifold, point, direction = curve.work.manifold, curve.start.point, curve.direction
        inside = manifold.to_tangent_space(point, direction)
        outside = manifold.norm(point, inside - direction) / manifold.norm(point, direction)
        # Gradients become a millionth as long as they were, and keep their rounding errors.
        assert outside < 1e-7
        return super().__call__(curve, guess, memory)


@each_row(
    "place, direction",
    itertools.product(
        ("sphere", "stiefel", "grassmann qr", "oblique", "rotations"),
        (Conjugate(), QuasiNewton(), SteepestDescent()),
    ),
)
def test_vectors_that_stay_lead_as_far(place: str, direction: Any) -> None:
    problem = PLACES[place][0]
    stayed = LineSearchSolver(direction, Watched()).run(problem, random_state=0)
    moved = LineSearchSolver(direction, Watched(), transport=Projecting()).run(problem, random_state=0)
    assert stayed.converged
    assert abs(gap(stayed, place)) < 1e-9
    assert stayed.steps <= 1.3 * moved.steps + 5
