"""Newton's method in a trust region, by conjugate gradients, on the factor of a positive semidefinite matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, integer, number
from rmopt.costs.convex import ConvexCost, HasFactorPreconditioner, LocalModel
from rmopt.solvers.factor import LBFGS, FactorSolver, check_finite

Map = Callable[[Array], Array]

# A step counts when it brings this share of what the model promised.
ACCEPTED = 0.05
# Changes of the cost below this share of it are rounding; there the gradient alone decides.
ROUNDING = 1e3 * np.finfo(float).eps


@dataclass(frozen=True)
class NewtonCG(FactorSolver):
    """Newton steps on the factor, solved inexactly by conjugate gradients in a trust region (Steihaug 1983).

    The Hessian of Y ↦ f(YYᵀ) vanishes along the rotations of Y, where the gradient has no part; conjugate gradients
    never go there. Directions of negative curvature lead out of saddle points. Where the cost has a `preconditioner`,
    the trust region and the iteration are measured by it. Close to the minimum, where differences of the cost drown
    in rounding, steps are judged by the gradient, so that it can become as short as a certificate needs.

    Parameters
    ----------
    max_iterations : int
        As in `FactorSolver`.
    tol, gradient_norm : float
        As in `FactorSolver`.
    max_inner : int
        Products with the Hessian in one step.
    """

    checks = FactorSolver.checks | {"max_inner": bounded(integer, 1)}

    max_iterations: int = 200
    max_inner: int = 500

    def minimise(self, cost: ConvexCost, Y: Array) -> tuple[Array, int, str]:
        local = cost.at(Y)
        gradient = local.factor_gradient()
        target, radius, refused = self._target(gradient), None, False
        for iteration in range(self.max_iterations):
            check_finite(iteration, local.value, gradient)
            length = float(np.linalg.norm(gradient))
            if length <= target:
                return Y, iteration, f"a gradient of length {length:.1e}"
            precondition = _preconditioner(cost, Y)
            step, promised, size, radius = self._model_step(local, gradient, precondition, radius)
            check_finite(iteration, promised)
            there = cost.at(Y + step)
            new_gradient = there.factor_gradient()
            noise = ROUNDING * abs(local.value)
            ratio = (local.value - there.value + noise) / (promised + noise)
            if promised <= noise:
                if not np.linalg.norm(new_gradient) < length:
                    # Longer steps have raised the cost already, and shorter ones cannot be judged.
                    if size < 0.99 * radius or refused:
                        return Y, iteration, "rounding"
                    # The radius was too short for a step that the gradient can be judged by.
                    radius *= 10.0
                    continue
            elif not ratio >= ACCEPTED:
                radius, refused = 0.25 * min(radius, size), True
                continue
            refused = False
            radius = _new_radius(radius, size, ratio)
            Y, local, gradient = Y + step, there, new_gradient
        return Y, self.max_iterations, f"max_iterations = {self.max_iterations}"

    def _model_step(
        self, local: LocalModel, gradient: Array, precondition: Map, radius: float | None
    ) -> tuple[Array, float, float, float]:
        """Return a step that lowers the quadratic model, what it promises, its size, and the radius.

        Sizes are in the norm whose inverse the preconditioner is.
        """
        step, bent = np.zeros_like(gradient), np.zeros_like(gradient)
        residual = gradient.copy()
        z = precondition(residual)
        rz = float(np.vdot(residual, z))
        p, pp, sp, ss = -z, rz, 0.0, 0.0
        enough = rz**0.5 * 0.1
        for _ in range(self.max_inner):
            Hp = local.factor_hessian(p)
            curvature = float(np.vdot(p, Hp))
            if radius is None:
                radius = _first_radius(local, z, rz, curvature)
            alpha = rz / curvature if curvature > 0.0 else np.inf
            reached = ss + 2.0 * alpha * sp + alpha * alpha * pp if curvature > 0.0 else np.inf
            if not reached < radius**2:
                tau = (-sp + (sp * sp + pp * (radius**2 - ss)) ** 0.5) / pp
                step, bent, ss = step + tau * p, bent + tau * Hp, radius**2
                break
            step, bent, ss = step + alpha * p, bent + alpha * Hp, reached
            residual = residual + alpha * Hp
            z = precondition(residual)
            rz_new = float(np.vdot(residual, z))
            if not rz_new > enough**2:
                break
            beta, rz = rz_new / rz, rz_new
            p, sp, pp = -z + beta * p, beta * (sp + alpha * pp), rz + beta * beta * pp
        assert radius is not None
        promised = -float(np.vdot(gradient, step) + 0.5 * np.vdot(step, bent))
        return step, promised, ss**0.5, radius


def _preconditioner(cost: ConvexCost, Y: Array) -> Map:
    found = cost.preconditioner(Y) if isinstance(cost, HasFactorPreconditioner) else None
    return np.copy if found is None else found


def _first_radius(local: LocalModel, z: Array, rz: float, curvature: float) -> float:
    """Return ten steepest-descent steps, or the length of the factor where there is no curvature to tell."""
    if curvature > 0.0:
        return 10.0 * (rz / curvature) * rz**0.5
    return rz**0.5 * float(np.linalg.norm(local.factor)) / max(float(np.linalg.norm(z)), 1e-300)


def _new_radius(radius: float, size: float, ratio: float) -> float:
    if ratio < 0.25:
        return 0.25 * min(radius, size)
    return max(radius, 2.0 * size) if ratio > 0.75 else radius


@dataclass(frozen=True)
class Hybrid(FactorSolver):
    """`LBFGS` from afar, `NewtonCG` when it is near; Newton alone where the cost has a preconditioner.

    L-BFGS goes along curved valleys with the cheaper steps; Newton brings the gradient down to what a certificate
    needs.

    Parameters
    ----------
    max_iterations : int
        As in `FactorSolver`; the iterations of each of the two.
    tol, gradient_norm : float
        As in `FactorSolver`.
    switch : float
        Share of the first gradient's length at which Newton takes over.
    """

    checks = FactorSolver.checks | {"switch": bounded(number, least=0)}

    switch: float = 1e-3

    def minimise(self, cost: ConvexCost, Y: Array) -> tuple[Array, int, str]:
        first = cost.at(Y).factor_gradient()
        target, done = self._target(first), 0
        if _preconditioner(cost, Y) is np.copy:
            near = max(target, self.switch * float(np.linalg.norm(first)))
            Y, done, _ = LBFGS(self.max_iterations, gradient_norm=near).minimise(cost, Y)
        Y, more, reason = NewtonCG(min(self.max_iterations, 200), gradient_norm=target).minimise(cost, Y)
        return Y, done + more, reason
