"""Laws of manifolds and retractions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.checks.report import Check, bounded, slope_check
from rmopt.core.ambient import Actions, Sum, dense
from rmopt.core.manifold import Manifold
from rmopt.core.retraction import Retraction

LIMIT = 1e-12


def check_manifold(manifold: Manifold, rng: Any = 0, point: Any = None) -> list[Check]:
    """Check the laws of a manifold at a point.

    Parameters
    ----------
    manifold : Manifold
        Small: its dimension is counted by projecting random matrices.
    rng : seed or Generator
    point : object, optional
        A random point unless given.

    Returns
    -------
    list of Check
    """
    rng = np.random.default_rng(rng)
    x = manifold.random_point(rng) if point is None else point
    there = manifold.random_point(rng)
    a, b = (manifold.random_tangent_vector(x, rng) for _ in range(2))
    shape = tuple(manifold.embed_point(x).shape)
    Z = rng.standard_normal(shape)
    PZ = manifold.projection(x, Z)
    gradient = manifold.euclidean_to_riemannian_gradient(x, Z)

    def gap(left: Any, right: Any) -> float:
        return manifold.norm(x, left - right)

    def say(law: str, error: float, detail: str) -> Check:
        return bounded(law, manifold, error, LIMIT, detail)

    reason = manifold.check_point(x)
    carried = manifold.transport(x, there, a)
    inner = manifold.inner_product
    ambient_inner = float(np.vdot(dense(manifold.embedding(x, a)), Z))
    again = gap(manifold.projection(x, manifold.embedding(x, PZ)), PZ)
    images = [
        manifold.projection(x, rng.standard_normal(shape))
        for _ in range(min(int(np.prod(shape)), manifold.dim + 3))
    ]
    rank = np.linalg.matrix_rank(np.array([dense(manifold.embedding(x, image)).ravel() for image in images]))
    zero = manifold.zero_vector(x)
    stays = _distance(manifold, manifold.retraction(x, zero), x)
    return [
        say("point", 0.0 if reason is None else 1.0, reason or "a random point lies on the manifold"),
        say("projection", again / max(1.0, manifold.norm(x, PZ)), "idempotent"),
        say("duality", abs(inner(x, a, gradient) - ambient_inner), "⟨a, gradient for Z⟩ = ⟨a, Z⟩"),
        say("symmetry", abs(inner(x, a, b) - inner(x, b, a)), "⟨a, b⟩ = ⟨b, a⟩"),
        say("norm", abs(manifold.norm(x, a) - 1.0), "random tangent vectors have norm 1"),
        say("linearity", gap((a + b * 2.0) - b * 2.0, a), "tangent vectors add and scale"),
        say("transport", gap(manifold.transport(x, x, a), a), "the identity from a point to itself"),
        say(
            "transported",
            manifold.norm(there, manifold.to_tangent_space(there, carried) - carried),
            "transported vectors are tangent",
        ),
        say("zero step", stays, "the retraction of the zero vector stays"),
        Check(
            "dimension", str(manifold), bool(rank == min(manifold.dim, len(images))), float(rank),
            float(manifold.dim), "rank of the projection",
        ),
    ]  # fmt: skip


def check_retraction(
    retraction: Retraction, manifold: Manifold, rng: Any = 0, point: Any = None
) -> list[Check]:
    """Measure the order of a retraction as slopes.

    R(x, tξ) − x − tξ falls like t². The distance to the geodesic falls like t² for a retraction of order 1, and
    like t³ for one of order 2. Where no geodesics are known, the metric is that of the ambient space, and the
    tangential part of R(x, tξ) − x − tξ takes the place of that distance.

    Parameters
    ----------
    retraction : Retraction
    manifold : Manifold
    rng : seed or Generator
        For the point and the direction.
    point : object, optional
        A random point unless given.

    Returns
    -------
    list of Check
        The rigidity, and the order.
    """
    rng = np.random.default_rng(rng)
    x = manifold.random_point(rng) if point is None else point
    xi = manifold.random_tangent_vector(x, rng)
    direction, start = manifold.embedding(x, xi), manifold.embed_point(x)

    def difference(t: float) -> Any:
        end = manifold.embed_point(retraction(manifold, x, xi, t))
        return Sum(end, _scaled(start, -1.0), _scaled(direction, -t))

    def whole(t: float) -> float:
        return float(np.linalg.norm(dense(difference(t))))

    def tangential(t: float) -> float:
        return manifold.norm(x, manifold.projection(x, difference(t)))

    def off_geodesic(t: float) -> float:
        return manifold.dist(retraction(manifold, x, xi, t), manifold.exp(x, t * xi))

    scale = float(np.linalg.norm(dense(start)))
    bend = (off_geodesic, "off the geodesic") if manifold.knows_geodesics else (tangential, "tangential part")
    subject = f"{retraction} on {manifold}"
    return [
        slope_check("rigidity", subject, whole, 2.0, scale, "R(x, tξ) − x − tξ"),
        slope_check(f"order {retraction.order}", subject, bend[0], 1.0 + retraction.order, scale, bend[1]),
    ]


def _scaled(ambient: Any, factor: float) -> Any:
    if isinstance(ambient, np.ndarray):
        return factor * ambient
    return Actions(ambient.shape, lambda X: factor * (ambient @ X), lambda X: factor * (ambient.T @ X))


def _distance(manifold: Manifold, a: Any, b: Any) -> float:
    A, B = manifold.embed_point(a), manifold.embed_point(b)
    return float(np.linalg.norm(dense(A) - dense(B)))
