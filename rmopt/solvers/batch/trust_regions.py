"""Second-order methods: trust regions, also for linearised residuals or after L-BFGS, and cubic regularisation."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import islice
from math import frexp
from operator import add
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.optimize

from rmopt import namespaces as ns
from rmopt.core.arguments import bounded, by_keyword, flag, integer, number, optional
from rmopt.core.points import size_of
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator
from rmopt.costs.residuals import ResidualSum
from rmopt.errors import MissingCapabilityError
from rmopt.solvers.batch.descent import GradientSolver
from rmopt.solvers.batch.line_search import LBFGS
from rmopt.solvers.batch.oracle import Iterate, Oracle, brought
from rmopt.solvers.result import Result
from rmopt.solvers.stop import Converged

Map = Callable[[Any], Any]
Solved = tuple[Any, float, float, float, bool]

# A step is accepted if it achieves this share of the model's promise.
ACCEPTED = 0.05
# Changes below this share of the cost are rounding, and the gradient alone decides. In single precision that many
# roundings would be visible, so fewer are allowed.
ROUNDING = 1e3 * np.finfo(float).eps
# The share of the first gradient's length at which `Hybrid` takes trust regions.
SWITCH = 1e-3
# Products with the Hessian to find the direction of least curvature at a start without gradient.
KRYLOV = 200


@by_keyword
class ModelSolver(GradientSolver):
    """Steps to the minimum of a quadratic model within bounds, which adapt to the accuracy of the model.

    Close to the minimum, differences of the cost drown in rounding, so steps are judged by the gradient, which can
    then become as short as a certificate needs. If the cost or the manifold has no second derivatives, differences of
    gradients replace them, and `Result.counts` counts gradients for all products.

    With `second_order` a short gradient is not the end: a step along the direction of least curvature leaves a
    saddle, and a run converges if no curvature is below 0 by more than `tol`, or rounding, of the largest one.
    `Result.least_curvature` is found by Lanczos steps from a random direction, which may miss it if others are hardly
    larger.
    """

    max_iter: Annotated[int, integer] = 200
    second_order: Annotated[bool, flag] = False
    max_inner: Annotated[int, bounded(integer, 1)] = 500

    # The first bound, or None if the first product with the Hessian sets it.
    first_radius = None

    def begin(self, work: Oracle, point: Any) -> Iterate:
        state = work.first(point)
        if work.begins_flat and self.max_iter and (below := self._least(work, state)[1]) is not None:
            state = work.first(below[0])
        return self._fresh(work, state)

    def _fresh(self, work: Oracle, state: Iterate) -> Iterate:
        """Return a state without memory."""
        # The bound, negative if it is still to be chosen, and whether a step was refused.
        return state._replace(memory=(self.first_radius or -1.0, 0), search=0)

    def _looks(self, work: Oracle, state: Iterate) -> bool:
        """Return whether the curvature alone prevents convergence."""
        return self.second_order and state.norm <= work.enough and state.least_curvature == np.inf

    def advance(self, work: Oracle, state: Iterate, steps: int) -> Iterate:
        if not self.second_order or steps == 0:
            return super().advance(work, state, steps)
        if not self._looks(work, state):
            return super().advance(work, state._replace(least_curvature=np.inf), steps)
        return self._beside(work, state)

    @np.errstate(all="ignore")
    def _beside(self, work: Oracle, state: Iterate) -> Iterate:
        """Return the state at a lower point along the least curvature, or the final state at the same point."""
        work.counts[:] = state.counts
        least, below, is_saddle = self._least(work, state)
        done = state._replace(steps=state.steps + 1, step_size=0.0, step_length=0.0)
        if below is None:
            return done._replace(least_curvature=least, stuck=is_saddle, counts=tuple(work.counts))
        point, cost, ambient, t = below
        gradient = work.gradient(point, ambient)
        norm = work.manifold.norm(point, gradient)
        done = done._replace(
            point=point, cost=cost, gradient=gradient, norm=norm, counts=tuple(work.counts), stuck=False,
            step_size=t, step_length=t, updates=state.updates + 1, best=(min(cost, state.best[0]), norm, 0),
        )  # fmt: skip
        return self._fresh(work, done)

    def finished(self, work: Oracle, state: Iterate) -> str | None:
        if self._looks(work, state) and np.isfinite(state.cost):
            return None
        reason = super().finished(work, state)
        if not (isinstance(reason, Converged) and state.least_curvature < np.inf):
            return reason
        least = f"{state.least_curvature:.1e}"
        if state.stuck:
            return f"rounding: {reason}; the least curvature is {least}, and no step along it lowers the cost"
        return Converged(f"{reason}, with the least curvature {least}")

    def conclude(self, result: Result, work: Oracle, state: Iterate) -> Result:
        least = state.least_curvature if state.least_curvature < np.inf else None
        return replace(super().conclude(result, work, state), least_curvature=least)

    @np.errstate(all="ignore")
    def _least(self, work: Oracle, state: Iterate) -> tuple[float, Any, bool]:
        """Return the least curvature, a lower step along it or None, and whether the curvature is negative.

        The lower step is a point, the cost and the ambient gradient there, and the length of the step.
        """
        point, manifold = state.point, work.manifold
        start = manifold.random_tangent_vector(point, generator(work.seed, Stream.DIRECTIONS))
        square = work.inner(point, start, start)
        if not 0.0 < square < np.inf:
            return np.inf, None, False
        start = start * (1.0 / square**0.5)
        values, basis, shares, flat = least_curvatures(
            work, point, start, work.hessian(point, state.gradient)
        )
        flat = max(flat, self._tol(state) * np.abs(values).max() if self.second_order else 0.0)
        along, t = combined(basis, shares[:, 0]), max(manifold.typical_dist, size_of(point))
        if work.inner(point, state.gradient, along) > 0.0:
            along = along * -1.0
        noise = ROUNDING * work.coarseness * abs(state.cost)
        while values[0] < -flat and (promised := -0.5 * values[0] * t * t) > noise:
            there, cost, ambient = work.reached(point, along, t)
            if cost < state.cost - 0.1 * promised - noise:
                return float(values[0]), (there, cost, ambient, t), True
            t *= 0.5
        return float(values[0]), None, bool(values[0] < -flat)

    def _step(self, work: Oracle, state: Iterate) -> Iterate:
        point, gradient = state.point, state.gradient
        # A power of two, an exact scaling, so that squares and cubes of lengths are finite.
        scale, product = 2.0 ** -frexp(state.first_norm)[1], self.products(work, state)
        solved = self._minimised(work, state, lambda xi: product(xi) * scale, scale)
        step, promised, size, bound, held = solved[0], solved[1] / scale, *solved[2:]
        if not np.isfinite(promised):
            raise self.diverged(state.steps, "a product with the Hessian", state.point)
        # The rounding errors in short directions are not tangent and would lead off the manifold.
        step = work.manifold.to_tangent_space(point, step)
        there, cost, ambient = work.reached(point, step)
        noise = max(ROUNDING, 1e-14 * work.coarseness) * abs(state.cost)
        ratio = (state.cost - cost + noise) / (abs(promised) + noise)
        # Asymmetric products, such as differences of gradients, can promise a rise.
        rounding, fits = abs(promised) <= noise, promised > noise and ratio >= ACCEPTED
        done = state._replace(steps=state.steps + 1, memory=(bound, 0), step_size=0.0, step_length=0.0)
        if rounding or fits:
            new = work.gradient(there, ambient)
            norm = work.manifold.norm(there, new)
        counts = tuple(work.counts)
        if rounding:
            if not self._length(work, there, new, norm) < self._length(work, point, gradient, state.norm):
                # Longer steps may already have raised the cost, and shorter ones cannot be judged.
                if not held or state.memory[1]:
                    return done._replace(stuck=True, counts=counts)
                # The bound was too tight for a step that the gradient can judge.
                return done._replace(memory=(self._adapted(bound, size, np.inf), 0), counts=counts)
        elif not fits:
            # The minimum of a parabola through the values along the step.
            slope, rise = work.inner(point, gradient, step), cost - state.cost
            nearer = 0.5 * slope / (slope - rise) if np.isfinite(rise) and rise > slope else 0.0
            return done._replace(memory=(self._tightened(size, bound, nearer), 1), counts=counts)
        # Up to rounding this is its size, unless a preconditioner measures it.
        known = work.at_once and not work.preconditions
        return done._replace(
            point=there, cost=cost, gradient=new, norm=norm, memory=(self._adapted(bound, size, ratio), 0),
            counts=counts, step_size=1.0, step_length=size if known else work.manifold.norm(point, step),
            updates=state.updates + 1,
        )  # fmt: skip

    def products(self, work: Oracle, state: Iterate) -> Map:
        """Return the quadratic part of the model: the Hessian as a map of tangent vectors."""
        return work.hessian(state.point, state.gradient)

    def _length(self, work: Oracle, point: Any, gradient: Any, norm: float) -> float:
        """Return the length of a gradient in the preconditioner's norm, in which weak directions count fully."""
        precondition = work.preconditioner(point)
        if precondition is None:
            return norm
        return work.positive(work.inner(point, gradient, precondition(gradient)), norm) ** 0.5

    @abstractmethod
    def _minimised(self, work: Oracle, state: Iterate, product: Map, scale: float) -> Solved:
        """Return a step that lowers the model, its promise and size, the bound, and whether that limited it.

        Products, the gradient and the promise are scaled such that the first gradient had length about 1.
        """

    @abstractmethod
    def _tightened(self, size: float, bound: float, nearer: float) -> float:
        """Return a bound for shorter steps, after one of which this share might have been right."""

    @abstractmethod
    def _adapted(self, bound: float, size: float, ratio: float) -> float:
        """Return the bound after a step with this ratio to its promise (infinity if unknown)."""


@by_keyword
class TrustRegions(ModelSolver):
    """Newton steps, solved inexactly by conjugate gradients within a trust region (Absil, Baker and Gallivan 2007).

    Directions of negative curvature lead out of saddle points and maxima. If the start is one exactly, the run begins
    near it. A preconditioner of the cost defines the norm of the trust region and the inner iteration (Steihaug
    1983).

    Parameters
    ----------
    max_iter, tol, gradient_norm, retraction, transport, threads : optional
        As in `GradientSolver`. Transport is only used for differences of gradients.
    second_order : bool
        Whether to leave saddles, and to report `Result.least_curvature` at the end.
    max_inner : int
        Products with the Hessian in one step.
    first_radius : float, optional
        The first radius, in the preconditioner's norm. Defaults to ten steps of steepest descent, at most the
        manifold's `diameter`. pymanopt begins with an eighth of the manifold's `typical_dist`, which suits costs of
        large curvature.

    See Also
    --------
    LBFGS : no second derivatives.
    AdaptiveCubics : a penalty instead of the region.
    LevenbergMarquardt : sums of squared residuals.

    References
    ----------
    Absil, Baker and Gallivan, Trust-region methods on Riemannian manifolds, Foundations of Computational
    Mathematics 7 (2007), https://doi.org/10.1007/s10208-005-0179-9. Steihaug, The conjugate gradient method and
    trust regions in large scale optimization, SIAM J. Numer. Anal. 20 (1983), https://doi.org/10.1137/0720042.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.solvers import TrustRegions
    >>> A = np.diag(np.arange(10.0))
    >>> minus_captured = autograd_cost(lambda U: -0.5 * ((A @ U) * U).sum())
    >>> problem = Problem(Grassmann(10, 2), minus_captured)
    >>> result = TrustRegions(tol=1e-9).run(problem, random_state=0)
    >>> result.converged, result.steps < 20
    (True, True)
    """

    first_radius: Annotated[float | None, optional(number, above=0)] = None  # type: ignore[assignment]

    def _tightened(self, size: float, bound: float, nearer: float) -> float:
        return size * min(0.25, max(nearer, 0.05))

    def _adapted(self, bound: float, size: float, ratio: float) -> float:
        if ratio < 0.25:
            return 0.25 * min(bound, size)
        longer = 2.0 * size if ratio < np.inf else 10.0 * bound
        return max(bound, longer) if ratio > 0.75 else bound

    def _minimised(self, work: Oracle, state: Iterate, product: Map, scale: float) -> Solved:
        """Return the values of `ModelSolver`, with the radius as bound and sizes in the preconditioner's norm."""
        point, radius, gradient = state.point, state.memory[0], state.gradient * scale
        inner, precondition = work.metric(point), work.preconditioner(point)
        step, residual, at_once = None, gradient, work.at_once
        z = residual if precondition is None else precondition(residual)
        rz = (state.norm * scale) ** 2 if at_once and precondition is None else float(inner(residual, z))
        if precondition is not None:
            work.positive(rz, state.norm)
        p, pp, sp, ss = -z, rz, 0.0, 0.0
        # Superlinear near the end: the shorter the gradient, the more exact the step, but not beyond the goal.
        exact = max((state.norm / state.first_norm) ** 0.5, 0.3 * work.enough / state.norm)
        enough = rz * min(0.1, exact) ** 2
        for _ in range(self.max_inner):
            Hp, ahead = product(p), None
            curvature = inner(p, Hp)
            if at_once and ns.is_array(curvature):
                # The value inside the region, so that one transfer suffices.
                ahead = residual + Hp * (rz / curvature)
                z = ahead if precondition is None else precondition(ahead)
                curvature, rz_new = brought(curvature, inner(ahead, z))
            if radius < 0.0:
                # Ten steps of steepest descent, or the manifold's scale without curvature. Far beyond its diameter
                # there may be a boundary with short gradients everywhere.
                radius = 10.0 * (rz / curvature) * rz**0.5 if curvature > 0.0 else work.manifold.typical_dist
                radius = min(radius, work.manifold.diameter) if precondition is None else radius
            alpha = rz / curvature if curvature > 0.0 else np.inf
            reached = ss + 2.0 * alpha * sp + alpha * alpha * pp if curvature > 0.0 else np.inf
            outside = not reached < radius * radius
            if outside:
                alpha, ss = (-sp + (sp * sp + pp * (radius * radius - ss)) ** 0.5) / pp, radius * radius
            else:
                ss = reached
            step = p * alpha if step is None else step + p * alpha
            residual = residual + Hp * alpha if outside or ahead is None else ahead
            if outside:
                break
            if ahead is None:
                z = residual if precondition is None else precondition(residual)
                rz_new = inner(residual, z)
            if not rz_new > enough:
                break
            beta, rz = rz_new / rz, rz_new
            p, sp, pp = p * beta - z, beta * (sp + alpha * pp), rz + beta * beta * pp
        # The residual is the gradient plus the Hessian times the step.
        promised = -0.5 * float(inner(gradient, step) + inner(residual, step))
        return step, promised, ss**0.5, radius, ss**0.5 >= 0.99 * radius


class LevenbergMarquardt(TrustRegions):
    """Gauss–Newton steps within a trust region, for a sum of squared residuals (Moré 1978; Absil et al. 2008, §8.4).

    The model is ½ ‖r + Jξ‖² with the derivative J of the residuals: it needs no second derivatives, is convex, and
    converges nearly as fast as Newton's method for small residuals at the minimum.

    Parameters
    ----------
    max_iter, tol, gradient_norm, retraction, transport, threads, second_order, max_inner, first_radius : optional
        As in `TrustRegions`.

    See Also
    --------
    TrustRegions : second derivatives, for large residuals at the minimum.

    References
    ----------
    Moré, The Levenberg–Marquardt algorithm: implementation and theory, in: Numerical Analysis, Lecture Notes in
    Mathematics 630, Springer (1978), https://doi.org/10.1007/BFb0067700. Absil, Mahony and Sepulchre,
    Optimization Algorithms on Matrix Manifolds, Princeton University Press (2008),
    https://doi.org/10.1515/9781400830244.

    Examples
    --------
    >>> import autograd.numpy as anp, numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs.residuals import AutomaticResiduals
    >>> from rmopt.manifolds import SpecialOrthogonal
    >>> from rmopt.solvers import LevenbergMarquardt
    >>> rng, manifold = np.random.default_rng(0), SpecialOrthogonal(3)
    >>> turn, points = manifold.random_point(rng), rng.standard_normal((3, 20))
    >>> def gaps(R):
    ...     return anp.sqrt(1.0 + (R @ points - turn @ points) ** 2) - 1.0
    >>> problem = Problem(manifold, AutomaticResiduals(gaps))
    >>> LevenbergMarquardt().run(problem, np.eye(3)).converged
    True
    """

    def prepare(self, problem: Problem, seed: int) -> Oracle:
        if not isinstance(problem.cost, ResidualSum):
            raise MissingCapabilityError(
                f"LevenbergMarquardt needs residuals, and {problem.cost._name} has none; make it a "
                "rmopt.costs.ResidualSum or AutomaticResiduals, or take TrustRegions."
            )
        return super().prepare(problem, seed)

    def products(self, work: Oracle, state: Iterate) -> Any:
        """Return the map ξ ↦ JᵀJ ξ of tangent vectors."""
        point, manifold, counts = state.point, work.manifold, work.counts
        forward, backward = work.cost.linearised(point)  # type: ignore[attr-defined]

        def product(tangent: Any) -> Any:
            counts[2] += 1
            bent = backward(forward(manifold.embedding(point, tangent)))
            return manifold.euclidean_to_riemannian_gradient(point, bent)

        return product


@by_keyword
class AdaptiveCubics(ModelSolver):
    """Adaptive regularisation with cubics: Newton steps with a penalty on their cubed length (Agarwal et al. 2021).

    The model is minimised over the Krylov space of the gradient, which Lanczos steps build.

    Parameters
    ----------
    max_iter, tol, gradient_norm, retraction, transport, threads : optional
        As in `TrustRegions`.
    second_order : bool
        Whether to leave saddles, and to report `Result.least_curvature` at the end.
    max_inner : int
        Products with the Hessian in one step.

    See Also
    --------
    TrustRegions : a bound on the step length instead of a cubic penalty.

    References
    ----------
    Agarwal, Boumal, Bullins and Cartis, Adaptive regularization with cubics on manifolds, Mathematical
    Programming 188 (2021), https://doi.org/10.1007/s10107-020-01505-1.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import AdaptiveCubics
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> result = AdaptiveCubics().run(problem, random_state=0)
    >>> result.converged, round(result.cost, 6)
    (True, 0.2)
    """

    max_inner: int = 100

    # The bound is the weight σ of the cube: larger weights make shorter steps.

    def _tightened(self, size: float, bound: float, nearer: float) -> float:
        return 3.0 * bound

    def _adapted(self, bound: float, size: float, ratio: float) -> float:
        if ratio > 0.75:
            return max((0.1 if ratio < np.inf else 0.01) * bound, 1e-150)
        return bound if ratio >= 0.25 else 2.0 * bound

    def _minimised(self, work: Oracle, state: Iterate, product: Map, scale: float) -> Solved:
        """Return the values of `ModelSolver`, with σ as bound."""
        sigma, length, first = state.memory[0], state.norm * scale, state.gradient / -state.norm
        for basis, diagonal, beside, rest in islice(  # noqa: B007
            lanczos(work, state.point, first, product), self.max_inner
        ):
            if sigma < 0.0:
                # Ten steps of steepest descent, at most the manifold's diameter, or length 1 if both are unknown.
                sigma = max(diagonal[0] ** 2 / (10.0 * length), length / work.manifold.diameter**2) or length
            y = _cubic_minimum(diagonal, beside, length, sigma)
            # The model's gradient at the step is the contribution of the next Lanczos vector.
            size = float(np.linalg.norm(y))
            if rest * abs(y[-1]) <= 0.1 * length * min(1.0, size, state.norm / state.first_norm + 1e-3):
                break
        tri = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        promised = float(length * y[0] - 0.5 * y @ tri @ y)
        return combined(basis, y), promised, size, sigma, sigma * size * size * size > 1e-8 * promised


@by_keyword
class Hybrid(TrustRegions):
    """`LBFGS` far from the minimum and `TrustRegions` near it, or trust regions alone with a preconditioner.

    L-BFGS follows curved valleys by cheaper steps, and trust regions reduce the gradient to the length that a
    certificate needs.

    Parameters
    ----------
    max_iter, tol, gradient_norm, retraction, transport, threads, second_order, max_inner, first_radius : optional
        As in `TrustRegions`.

    See Also
    --------
    TrustRegions : for cheap Hessians.
    LBFGS : without a Hessian.

    References
    ----------
    Huang, Gallivan and Absil, A Broyden class of quasi-Newton methods for Riemannian optimization, SIAM J.
    Optim. 25 (2015), https://doi.org/10.1137/140955483. Absil, Baker and Gallivan, Trust-region methods on
    Riemannian manifolds, Foundations of Computational Mathematics 7 (2007),
    https://doi.org/10.1007/s10208-005-0179-9.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import Hybrid
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> result = Hybrid().run(problem, random_state=0)
    >>> result.converged, round(result.history[-1]["cost"], 6)
    (True, 0.2)
    """

    max_iter: Annotated[int, integer] = 1000
    far: ClassVar[LBFGS] = LBFGS(20)

    def _fresh(self, work: Oracle, state: Iterate) -> Iterate:
        state = super()._fresh(work, state)
        far = self.far.direction.begin(work, state)
        return state._replace(memory=(far, state.memory), search=self.far.step_length.begin(work, state))

    def _step(self, work: Oracle, state: Iterate) -> Iterate:
        far, near = state.memory
        if state.norm > SWITCH * state.first_norm and work.preconditioner(state.point) is None:
            done = self.far._step(work, state._replace(memory=far))
            if not done.stuck:
                return done._replace(memory=(done.memory, near))
        done = super()._step(work, state._replace(memory=near))
        if not self.far.direction.fresh(far):
            # Its pairs belong to the previous point.
            far = self.far.direction.begin(work, done)
        return done._replace(memory=(far, done.memory))


def least_curvatures(work: Oracle, point: Any, start: Any, product: Map) -> tuple[Any, list[Any], Any, float]:
    """Return ascending Ritz values of the Hessian, a basis with their coordinates, and the rounding error.

    It ends when the least value is known.
    """
    clean = partial(work.manifold.to_tangent_space, point)
    for basis, diagonal, beside, rest in islice(lanczos(work, point, start, product, clean), KRYLOV):  # noqa: B007
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, beside)
        # Differences of gradients give curvatures to about a millionth of the largest one.
        known = 1e-12 * work.coarseness if work.bends else 1e-6 * work.coarseness ** (1.0 / 3.0)
        known *= np.abs(values).max()
        if (
            rest * abs(vectors[-1, 0])
            <= (0.1 if values[0] < -known else 1e-6) * abs(values[0]) + 1e-3 * known
        ):
            break
    return values, basis, vectors, known


def lanczos(
    work: Oracle, point: Any, start: Any, product: Map, clean: Map | None = None
) -> Iterator[tuple[Any, Any, Any, float]]:
    """Yield an orthonormal basis of a growing Krylov space, the tridiagonal matrix there, and the remainder.

    The matrix is given by its diagonal and off-diagonal. It ends when the space is invariant up to rounding. Without
    `clean`, the parts of vectors off the tangent space grow with each one.
    """
    inner, basis, diagonal, beside = work.dot, [start], list[float](), list[float]()
    while True:
        Hq = product(basis[-1])
        curvature = inner(point, basis[-1], Hq)
        # Twice, because Lanczos vectors lose their orthogonality.
        for q in basis * 2:
            Hq = Hq - q * inner(point, q, Hq)
        Hq = Hq if clean is None else clean(Hq)
        square = inner(point, Hq, Hq)
        if ns.is_array(square):
            curvature, square = brought(curvature, square)
        diagonal.append(curvature)
        rest = max(square, 0.0) ** 0.5
        yield basis, diagonal, beside, rest
        if rest <= max(1e-14 * work.coarseness * max(map(abs, diagonal)), work.rounding):
            return
        beside.append(rest)
        basis.append(Hq * (1.0 / rest))


def combined(basis: list[Any], shares: Any) -> Any:
    """Return a sum of tangent vectors with these weights."""
    return reduce(add, (q * float(share) for q, share in zip(basis, shares, strict=True)))


def _cubic_minimum(diagonal: list[float], beside: list[float], length: float, sigma: float) -> Any:
    """Return the minimum of −length · y₁ + ½ yᵀTy + σ/3 ‖y‖³ for a tridiagonal T, by its eigenvalues."""
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, beside)
    c = length * vectors[0]
    low = max(0.0, -values[0])
    # ‖y‖ = λ/σ at the minimum, and ‖(T + λ)⁻¹ c‖ falls with λ.
    high = max(2.0 * low + length**0.5 * sigma**0.5, 1e-200)

    def excess(weight: float) -> float:
        return float(np.linalg.norm(c / np.maximum(values + weight, 1e-300)) - weight / sigma)

    while excess(high) > 0.0:
        high *= 2.0
    low += 1e-15 * max(low, high)
    if excess(low) <= 0.0:
        return vectors @ (c / (values + low))
    weight = scipy.optimize.brentq(excess, low, high, xtol=1e-15 * high, rtol=1e-14)
    return vectors @ (c / (values + weight))
