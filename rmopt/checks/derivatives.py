"""Laws of gradients and Hessians."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.checks.report import Check, bounded, slope_check
from rmopt.core.problem import Problem
from rmopt.costs import Loss


def check_gradient(problem: Problem, rng: Any = 0, point: Any = None) -> Check:
    """Check the Riemannian gradient: f(R(tξ)) − f(x) − t⟨grad, ξ⟩ falls like t².

    Parameters
    ----------
    problem : Problem
    rng : seed or Generator
        For the point and the direction.
    point : object, optional
        A random point unless given.

    Returns
    -------
    Check
        True when the slope is at least 2; printed, it says so.
    """
    manifold, cost = problem.manifold, problem.cost
    rng = np.random.default_rng(rng)
    x = manifold.random_point(rng) if point is None else point
    xi = manifold.random_tangent_vector(x, rng)
    value = cost.value(x)
    slope = manifold.inner_product(x, problem.riemannian_gradient(x), xi)

    def error(t: float) -> float:
        return abs(cost.value(manifold.retraction(x, t * xi)) - value - t * slope)

    return slope_check("gradient", _subject(problem), error, 2.0, abs(value) + abs(slope), "Taylor error")


def check_hessian(problem: Problem, rng: Any = 0, point: Any = None) -> list[Check]:
    """Check the Riemannian Hessian: symmetric, and the Taylor error falls like t³.

    The manifold's default retraction must be of order 2.

    Parameters
    ----------
    problem : Problem
    rng : seed or Generator
        For the point and the directions.
    point : object, optional
        A random point unless given.

    Returns
    -------
    list of Check
        The slope, and the symmetry.

    Raises
    ------
    MissingCapabilityError
        When the manifold or the cost has no second derivatives.
    """
    manifold, cost = problem.manifold, problem.cost
    rng = np.random.default_rng(rng)
    x = manifold.random_point(rng) if point is None else point
    xi, eta = (manifold.random_tangent_vector(x, rng) for _ in range(2))
    value = cost.value(x)
    inner = manifold.inner_product
    slope = inner(x, problem.riemannian_gradient(x), xi)
    along = problem.riemannian_hessian(x, xi)
    curvature = inner(x, along, xi)

    def error(t: float) -> float:
        moved = cost.value(manifold.retraction(x, t * xi))
        return abs(moved - value - t * slope - 0.5 * t * t * curvature)

    asymmetry = abs(inner(x, along, eta) - inner(x, xi, problem.riemannian_hessian(x, eta)))
    size = max(1.0, manifold.norm(x, along))
    return [
        slope_check("Hessian", _subject(problem), error, 3.0, abs(value) + abs(slope), "Taylor error"),
        bounded("Hessian symmetry", _subject(problem), asymmetry / size, 1e-12, "⟨Hξ, η⟩ = ⟨ξ, Hη⟩"),
    ]


def _subject(problem: Problem) -> str:
    cost = problem.cost
    loss = getattr(cost, "loss", None)
    named = type(cost).__repr__ is not object.__repr__
    name = repr(cost) if named else type(cost).__name__ + (f"({loss})" if isinstance(loss, Loss) else "")
    return f"{name} on {problem.manifold}"
