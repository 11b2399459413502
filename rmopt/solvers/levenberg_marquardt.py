"""Levenberg–Marquardt: trust regions with the curvature of the linearised residuals."""

from __future__ import annotations

from typing import Any

from rmopt.core.errors import MissingCapabilityError
from rmopt.core.problem import Problem
from rmopt.costs.residuals import ResidualSum
from rmopt.solvers.descent import Iterate, Oracle
from rmopt.solvers.trust_regions import TrustRegions


class LevenbergMarquardt(TrustRegions):
    """Gauss–Newton steps within a trust region, for a sum of squared residuals (Moré 1978; Absil et al. 2008, §8.4).

    The model is ½ ‖r + Jξ‖² with the derivative J of the residuals: it needs no second derivatives, is convex, and
    converges nearly as fast as Newton's method where residuals are small at the minimum.

    Parameters
    ----------
    max_iter, tol, gradient_norm, retraction, transport, max_inner, first_radius : optional
        As in `TrustRegions`.

    Examples
    --------
    >>> import numpy as np
    >>> import autograd.numpy as anp
    >>> from rmopt import Problem
    >>> from rmopt.costs import AutomaticResiduals
    >>> from rmopt.manifolds import SpecialOrthogonal
    >>> rng = np.random.default_rng(0)
    >>> turn, points = SpecialOrthogonal(3).random_point(rng), rng.standard_normal((3, 20))
    >>> registration = AutomaticResiduals(lambda R: anp.sqrt(1.0 + (R @ points - turn @ points) ** 2) - 1.0)
    >>> result = LevenbergMarquardt().run(Problem(SpecialOrthogonal(3), registration), np.eye(3))
    >>> result.converged
    True
    """

    def prepare(self, problem: Problem, seed: int, first_step: int) -> Oracle:
        if not isinstance(problem.cost, ResidualSum):
            raise MissingCapabilityError(
                f"LevenbergMarquardt needs residuals, and {problem.cost._name} has none; make it a "
                "rmopt.costs.ResidualSum or AutomaticResiduals, or take TrustRegions."
            )
        return super().prepare(problem, seed, first_step)

    def products(self, work: Oracle, state: Iterate) -> Any:
        """Return the map ξ ↦ JᵀJ ξ of tangent vectors."""
        point, manifold, counts = state.point, work.manifold, work.counts
        forward, backward = work.cost.linearised(point)  # type: ignore[attr-defined]

        def product(tangent: Any) -> Any:
            counts[2] += 1
            bent = backward(forward(manifold.embedding(point, tangent)))
            return manifold.euclidean_to_riemannian_gradient(point, bent)

        return product
