"""Descent for nonsmooth costs: proximal gradient steps in tangent spaces (ManPG), with exact zeros."""

from dataclasses import replace
from math import inf, isfinite
from typing import Annotated, Any, NamedTuple

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, by_keyword, integer, number, optional
from rmopt.core.points import size_of
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.core.streams import Stream, generator
from rmopt.costs.constraints import NonsmoothProblem
from rmopt.costs.proximable import LEAST, TINY, excess, hold_to_shape
from rmopt.errors import InvalidInputError, MissingCapabilityError, warn
from rmopt.manifolds import Elliptope, Grassmann, Power
from rmopt.solvers.batch.oracle import COUNTED, Oracle, held
from rmopt.solvers.result import Result
from rmopt.solvers.run import Solver
from rmopt.solvers.stop import Converged

# A step lowers the cost below the largest of this many by this share of its promise.
WINDOW, ARMIJO = 10, 1e-4
# Step sizes grow by at most this factor per step, and up to this multiple of the first one.
GROWTH, LONGEST = 10.0, 1e3
# The least fixed size relative to 1/curvature: shorter steps are rounding.
SHORTEST = 1e-8
# Roundings of the cost and of a step, below which no comparison is possible.
ROUNDINGS = 64.0 * np.finfo(float).eps
# The share of a step's promise that may be lost by its part outside the tangent space.
INEXACT = 0.5
# The largest numbers of Newton steps of a subproblem, and of products in each.
NEWTON, PRODUCTS = 50, 60


class Stand(NamedTuple):
    """The state of a run.

    Attributes
    ----------
    point : array
    cost : float
        f + h.
    gradient : array
        The Riemannian gradient of f.
    t, size : float
        The size of the next proximal step, and the unit of lengths: 1/curvature at the start.
    normal, step : array
        The normal part in the step's subproblem, and the step, a tangent vector.
    stationarity, first : float
        Here and at the start.
    rounding : float
        The rounding error of the stationarity.
    window : tuple of float
        The last costs.
    step_size : float
        The share of the last step that was taken.
    counts : tuple of int
    stuck : bool
    steps, updates : int
    """

    point: Array
    cost: float
    gradient: Array
    t: float
    size: float
    normal: Array
    step: Array
    stationarity: float
    first: float
    rounding: float
    window: tuple[float, ...]
    step_size: float = 0.0
    counts: tuple[int, ...] = (0, 0, 0, 0)
    stuck: bool = False
    steps: int = 0
    updates: int = 0


@by_keyword
class ProximalGradient(CheckedValue, Solver):
    """Minimise f + h, for h with kinks, by steps to the minimum of a model in the tangent space (ManPG).

    A step V minimises ⟨grad f, V⟩ + ‖V‖²/2t + h(x + V) over tangent vectors. It takes few proximal maps and
    projections, with a Barzilai-Borwein t. The point of a converged run has exact zeros. The metric must be that of
    the ambient space.

    It may end in a worse minimum than a smoothed cost. From a random point, first minimise ``Problem(manifold, f +
    h.smoothed(eps))`` with decreasing ε, and start from the result.

    Parameters
    ----------
    step_size : float, optional
        A t for all steps.
    max_iter : int
    tol : float
        Stop when the stationarity is at most this share of the first one, or rounding. It is the length of V and of
        its equation's residual, divided by t, or by 1/curvature of f at the start if that is shorter, so that a long
        t does not make it small.
    retraction : Retraction or str, optional
        The manifold's default retraction unless given.
    threads : int, optional
        As in `GradientSolver`.

    See Also
    --------
    AugmentedLagrangian : for an h that is a constraint, for h(c(x)), and for other metrics.

    References
    ----------
    Chen, Ma, So and Zhang, Proximal gradient method for nonsmooth optimization over the Stiefel manifold, SIAM
    Journal on Optimization 30 (2020), https://doi.org/10.1137/18M122457X.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import autograd_cost
    >>> from rmopt.costs import L1, NonsmoothProblem
    >>> from rmopt.manifolds import Stiefel
    >>> from rmopt.solvers import ProximalGradient
    >>> A = np.diag([5.0, 4.0, 1.0, 0.5]) + 0.1
    >>> variance = autograd_cost(lambda X: -(X * (A @ X)).sum())
    >>> result = ProximalGradient().run(
    ...     NonsmoothProblem(Stiefel(4, 2), variance, L1(0.5)), random_state=0
    ... )
    >>> result.converged, int((result.point == 0.0).sum())
    (True, 6)
    """

    keeps_constraints, takes_all_arrays = True, True

    step_size: Annotated[float | None, optional(number, above=0)] = None
    max_iter: Annotated[int, integer] = 5000
    tol: Annotated[float, bounded(number, least=0)] = 1e-6
    retraction: Retraction | str | None = None
    threads: Annotated[int | None, optional(bounded(integer, 1))] = None

    def prepare(self, problem: Problem, seed: int) -> "Smooth":
        if not isinstance(problem, NonsmoothProblem):
            raise InvalidInputError(
                "ProximalGradient needs an rmopt.costs.NonsmoothProblem(manifold, cost, h); without kinks take LBFGS."
            )
        manifold, name = problem.manifold, type(problem.h).__name__
        if not problem.h.is_finite:
            why = f"{name} is a constraint, which points would violate after their return to the manifold"
        elif any(problem.constraints):
            why = "ProximalGradient takes h(x) alone, without `of` and without constraints"
        elif not getattr(manifold, "has_ambient_metric", False):
            why = f"the metric of {manifold} is not that of the ambient arrays"
        else:
            return Smooth(problem, self.retraction, seed)
        raise MissingCapabilityError(f"{why}; take AugmentedLagrangian.")

    def begin(self, work: "Smooth", point: Array) -> Stand:
        manifold = work.manifold
        hold_to_shape(work.h, point)
        work.check_turned(point)
        cost, gradient = work.probe(point)
        norm, way = size_of(gradient), manifold.typical_dist
        drawn = manifold.random_tangent_vector(point, generator(work.seed, Stream.DIRECTIONS))
        along = gradient / norm if norm > 0.0 else drawn
        short = 1e-4 * way
        ahead = work.probe(work.retract(point, along, -short))[1]
        bend = size_of(manifold.projection(point, ahead) - gradient) / short
        # 1/curvature along the gradient, at most the size of the manifold, since a linear cost may have none.
        steep = norm + abs(work.h.value(point)) / max(size_of(point), TINY)
        if not isfinite(bend + steep):
            raise self.diverged(0)
        size = 1.0 / max(bend, steep / way, TINY)
        t = self.step_size or size
        if t < SHORTEST * size:
            raise InvalidInputError(f"step_size = {t} is lost in rounding; take one nearer to {size:.0e}.")
        normal, step, left = work.tangent_step(point, gradient, t, 0.0 * gradient)
        first = (size_of(step) + left) / min(t, size)
        rounding = ROUNDINGS * (size_of(point) / size + norm)
        # The start may be off the manifold by more than rounding.
        window = (-inf,) * (WINDOW - 2) + (work.probe(work.retract(point, gradient, 0.0))[0], cost)
        begun = Stand(point, cost, gradient, t, size, normal, step, first, first, rounding, window)
        return begun._replace(counts=tuple(work.counts))

    def advance(self, work: "Smooth", state: Stand, steps: int) -> Stand:
        """Do one step."""
        if steps == 0:
            return state
        if state.stuck:
            return state._replace(steps=state.steps + 1)
        work.counts[:] = state.counts
        manifold, old, t, a = work.manifold, state.point, state.t, 1.0
        promise = float(ns.real_dot(state.step, state.step)) / t
        limit = max(state.window) + ROUNDINGS * abs(state.cost)
        while True:
            there, cost, ambient = work.tried(old, state.step, a)
            if cost <= limit - ARMIJO * a * promise:
                break
            a *= 0.5
            if a < 1e-10:
                return state._replace(steps=state.steps + 1, counts=tuple(work.counts), stuck=True)
        gradient = work.gradient(there, ambient)
        if self.step_size is None:
            moved = there - old
            change = gradient - manifold.projection(there, state.gradient)
            both = float(ns.real_dot(moved, change))
            if both > 0.0:
                wanted = float(ns.real_dot(moved, moved)) / both
                t = min(max(wanted, t / GROWTH), t * GROWTH, LONGEST * state.size)
        normal, step, left = work.tangent_step(there, gradient, t, state.normal * (t / state.t))
        return state._replace(
            point=there, cost=cost, gradient=gradient, t=t, normal=normal, step=step,
            stationarity=(size_of(step) + left) / min(t, state.size), window=(*state.window[1:], cost), step_size=a,
            counts=tuple(work.counts), steps=state.steps + 1, updates=state.updates + 1,
        )  # fmt: skip

    def observe(self, work: "Smooth", state: Stand) -> dict[str, float]:
        """Return cost, stationarity, the size t of the next step, and the counts of evaluations."""
        return {
            "cost": state.cost, "stationarity": state.stationarity, "step_size": state.t,
            **dict(zip(COUNTED, state.counts, strict=True)),
        }  # fmt: skip

    def finished(self, work: "Smooth", state: Stand) -> str | None:
        if not (isfinite(state.cost) and isfinite(state.stationarity)):
            raise self.diverged(state.steps)
        found = f"a stationarity of {state.stationarity:.1e}"
        if state.stationarity <= self.enough(state):
            return Converged(found)
        return f"rounding: no step lowers the cost, at {found}" if state.stuck else None

    def enough(self, state: Stand) -> float:
        """Return the sufficient stationarity. A start may be a minimum."""
        return max(self.tol * state.first, state.rounding)

    def conclude(self, result: Result, work: "Smooth", state: Stand) -> Result:
        work.counts[:] = state.counts
        cost, limit = state.cost - work.h.value(state.point), self.enough(state)
        result = held(result, work, cost, state.gradient, limit, limit, state.first, ended=False)
        z = state.point - state.t * state.gradient + state.normal
        if result.converged and excess(work.h, z, state.t, generator(work.seed, Stream.DIRECTIONS)) > LEAST:
            doubt = (
                f"`prox` of {type(work.h).__name__} does not minimise `value` plus the square; test it by "
                "rmopt.checks.check_proximable."
            )
            warn(f"the run ended by {result.stopped_by}, and has not converged: {doubt}", RuntimeWarning)
            result = replace(result, converged=False, stopped_by=f"{result.stopped_by}; {doubt}")
        if result.converged:
            # The end of the next step has the zeros, which the retraction would fill with rounding errors.
            there = work.h.prox(z, state.t)
            result = result if work.manifold.check_point(there) else replace(result, point=there)
        return replace(result, counts=dict(zip(COUNTED, work.counts, strict=True)))


class Smooth(Oracle):
    """The smooth part of a problem, with its nonsmooth part and the subproblem of a step."""

    def __init__(self, problem: NonsmoothProblem, retraction: Any, seed: int) -> None:
        super().__init__(Problem(problem.manifold, problem.cost), retraction, None, seed)
        self.h = problem.h

    def check_turned(self, point: Array) -> None:
        """Refuse a nonsmooth part that depends on the basis if all bases are the same point."""
        base = self.manifold
        while isinstance(base, Power):
            base = base.base
        if not isinstance(base, Grassmann | Elliptope):
            return
        k = point.shape[-1]
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((k, k)))[0]
        turned = self.h.value(point @ ns.asarray(turn, point, ns.numbers_of(point)))
        value = self.h.value(point)
        if not abs(value - turned) <= ns.slack(1e-8, point) * abs(value):
            raise InvalidInputError(
                f"{type(self.h).__name__} depends on the basis of a point of {self.manifold}; take GroupL2, whose "
                "groups are rows, or the manifold of bases, such as Stiefel."
            )

    def probe(self, point: Array) -> tuple[float, Array]:
        """Return f + h and the Riemannian gradient of f."""
        value, ambient = self.look(point)
        return value + self.h.value(point), self.gradient(point, ambient)

    def tried(self, point: Array, step: Array, a: float) -> tuple[Array, float, Any]:
        """Return the end of a step, f + h there, and the ambient gradient of f if it comes with the cost."""
        there, value, ambient = self.reached(point, step, a)
        return there, value + self.h.value(there), ambient

    def tangent_step(
        self, point: Array, gradient: Array, t: float, normal: Array
    ) -> tuple[Array, Array, float]:
        """Return N, the step V, and the length of the residual of P_N(prox(x − t grad f + N) − x) = 0.

        In the normal space the map has a symmetric slope between 0 and 1. Newton steps use conjugate gradients. If
        they do not help, N minus the residual is safe, because the map is firmly nonexpansive.
        """
        project, base, size = self.manifold.projection, point - t * gradient, size_of(point)
        dot = ns.dot_for(point)

        def out(vector: Array) -> Array:
            return vector - project(point, vector)

        def look(normal: Array) -> tuple[Array, Array, Array, float]:
            moved = self.h.prox(base + normal, t) - point
            step = project(point, moved)
            left = moved - step
            return normal, step, left, float(dot(left, left)) ** 0.5

        normal, step, left, off = look(out(normal))
        for _ in range(NEWTON):
            # The step promises |V|², and the residual of the equation costs its length times that of N.
            square = float(dot(step, step))
            along = max(square, float(dot(normal, normal)), TINY) ** 0.5
            enough = max(INEXACT * square / along, ROUNDINGS * size)
            if off <= enough:
                break
            slope, shift = self.h.prox_slope(base + normal, t), 1e-3 * min(1e-2, off / size)
            way, rest = 0.0 * left, -left
            direction, square = rest, off * off
            little = max(0.9 * enough, 1e-2 * off) ** 2
            for _ in range(PRODUCTS):
                bent = out(slope(direction)) + shift * direction
                a = square / float(dot(direction, bent))
                way, rest = way + a * direction, rest - a * bent
                before, square = square, float(dot(rest, rest))
                if square <= little:
                    break
                direction = rest + (square / before) * direction
            tried, a = look(normal + way), 1.0
            while tried[3] > (1.0 - 1e-3 * a) * off and a > 0.01:
                a *= 0.5
                tried = look(normal + a * way)
            normal, step, left, off = tried if tried[3] <= (1.0 - 1e-3 * a) * off else look(normal - left)
        return normal, step, off
