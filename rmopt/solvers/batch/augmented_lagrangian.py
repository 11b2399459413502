"""Constraints and kinks on manifolds: the augmented Lagrangian with any full-gradient solver."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Annotated, Any, NamedTuple

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, by_keyword, instance, integer, number, optional
from rmopt.core.points import is_finite, size_of
from rmopt.core.problem import Problem
from rmopt.core.product import Parts
from rmopt.costs.constraints import AugmentedCost, CompositeProblem
from rmopt.costs.proximable import hold_to_shape, inner_at
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.solvers.batch.descent import GradientSolver
from rmopt.solvers.batch.line_search import LBFGS
from rmopt.solvers.batch.oracle import Oracle, held
from rmopt.solvers.result import Result
from rmopt.solvers.run import Solver
from rmopt.solvers.stop import Converged

# The penalty grows unless violations fall to this share.
FALL = 0.5
# Multipliers stop growing here: beyond, the method is a pure penalty method.
LARGEST = 1e8


@dataclass(frozen=True, eq=False)
class ConstrainedResult(Result):
    """The end of a run with constraints.

    Attributes
    ----------
    violation : float
        The largest size of an h, and the largest g that is positive or has a multiplier. For a `NonsmoothProblem`
        also the largest difference between c and its image under h's proximal map.
    equality_multipliers, inequality_multipliers : array
        λ and μ, with which the gradient of f + λᵀh + μᵀg is zero at a stationary point.
    multipliers : array or None
        The multiplier of c in a `NonsmoothProblem`: a subgradient of its h there.
    """

    violation: float = field(kw_only=True)
    equality_multipliers: Array = field(kw_only=True, repr=False)
    inequality_multipliers: Array = field(kw_only=True, repr=False)
    multipliers: Array | None = field(kw_only=True, repr=False, default=None)


class Round(NamedTuple):
    """The state of a run after some inner runs.

    Attributes
    ----------
    point : point
    multipliers : list of array
        Those of all terms.
    penalty, violation : float
    cost, norm : float
        The cost of the problem, and the length of the gradient of the Lagrangian.
    slope, first_norm : float
        The lengths of the gradient of f here, and at the start. For nonsmooth terms ambient forces count as well,
        because tangent ones vanish at a stationary start.
    rounding : float
        The length below which a gradient is rounding.
    steps, updates : int
    """

    point: Any
    multipliers: list[Array]
    penalty: float
    violation: float
    cost: float
    norm: float
    slope: float
    first_norm: float
    rounding: float = 0.0
    steps: int = 0
    updates: int = 0

    def enough(self, tol: float) -> float:
        """Return the length of a sufficiently short gradient. Start or end may be a minimum of f."""
        return max(tol * max(self.first_norm, self.slope, np.finfo(float).tiny), self.rounding)


@by_keyword
class AugmentedLagrangian(CheckedValue, Solver):
    """Minimise repeatedly by another solver with a penalty on violations, and update multipliers (Liu, Boumal 2020).

    It ends when the constraints hold and the Lagrangian is stationary, both up to tolerances: in general at a local
    minimum. Your own criterion should test both: ``GradientNorm(1e-5) & Below(1e-6, "violation")``. If the
    constraints contradict each other, the violation stays, and the run ends by its budget. The same happens if
    gradients of the cost are 1e8 times those of the constraints, or far below `tol` times them: give both a similar
    scale.

    Parameters
    ----------
    inner : GradientSolver
        The inner solver, by default `LBFGS`. `LevenbergMarquardt` does not work, since penalties are not residuals.
    max_iter : int
        Runs of the inner solver.
    tol : float
        Stop when the gradient of the Lagrangian is at most this long, relative to the longer of the cost's gradients
        at the start and here, or when it is rounding.
    max_violation : float
        Stop only when all constraints also hold up to this.
    penalty : float
        The initial weight of violations.
    growth : float
        The factor by which the weight grows.
    threads : int, optional
        As in `GradientSolver`. Defaults to that of `inner`, which then has none of its own.

    See Also
    --------
    rmopt.manifolds.Product : for constraints that define a manifold, without penalties.

    References
    ----------
    Liu and Boumal, Simple algorithms for optimization on Riemannian manifolds with constraints, Applied
    Mathematics & Optimization 82 (2020), https://doi.org/10.1007/s00245-019-09564-3.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import autograd_cost
    >>> from rmopt.costs import ConstrainedProblem
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import AugmentedLagrangian
    >>> A = np.diag([1.0, 2.0, 3.0])
    >>> most = autograd_cost(lambda x: -x @ A @ x)
    >>> below_half = autograd_cost(lambda x: x[2] ** 2 - 0.5)
    >>> problem = ConstrainedProblem(Sphere(3), most, inequalities=[below_half])
    >>> result = AugmentedLagrangian().run(problem, random_state=0)
    >>> result.converged, round(float(result.point[1] ** 2), 5)
    (True, 0.5)
    """

    keeps_constraints, takes_all_arrays = True, True

    inner: Annotated[GradientSolver, bounded(instance, GradientSolver, "such as LBFGS()")] = field(
        default=LBFGS()
    )
    max_iter: Annotated[int, integer] = 60
    tol: Annotated[float, bounded(number, above=0)] = 1e-6
    max_violation: Annotated[float, bounded(number, above=0)] = 1e-6
    penalty: Annotated[float, bounded(number, above=0)] = 1.0
    growth: Annotated[float, bounded(number, above=1)] = 5.0
    threads: Annotated[int | None, optional(bounded(integer, 1))] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self).update(threads=self.threads or self.inner.threads, inner=self.inner._but(threads=None))

    def prepare(self, problem: Problem, seed: int) -> CompositeProblem:
        if not isinstance(problem, CompositeProblem):
            raise InvalidInputError(
                "AugmentedLagrangian is for an rmopt.costs.ConstrainedProblem(manifold, cost, equalities, "
                f"inequalities) or a NonsmoothProblem; without constraints take {type(self.inner).__name__}."
            )
        return problem

    def begin(self, work: CompositeProblem, point: Any) -> Round:
        for h, of in work.terms:
            hold_to_shape(h, inner_at(of, point))
        zeros = [0.0 * inner_at(of, point) for _, of in work.terms]
        parts = AugmentedCost(work, zeros, self.penalty).parts(point)
        state = Round(point, zeros, self.penalty, inf, 0.0, inf, 0.0, 0.0)
        state = self._seen(work, state, point, [force for *_, force in parts])
        plain, norm = Oracle(Problem(work.manifold, work.cost), None, None), state.slope
        rounding = plain.rounding_at(point, state.cost, work.gradient(point), norm)
        if norm <= rounding:
            # A flat cost gives no scale for lengths, but the violations do.
            norm = self.tol * _length(work, point, AugmentedCost(work, zeros, self.penalty).gradient(point))
        return state._replace(first_norm=norm, rounding=rounding, violation=_violation(parts))

    def advance(self, work: CompositeProblem, state: Round, steps: int) -> Round:
        """Do one run of the inner solver."""
        if steps == 0:
            return state
        augmented = AugmentedCost(work, state.multipliers, state.penalty)
        # Exact only near the end: early multipliers are rough.
        enough = state.enough(max(self.tol, 0.1 ** (state.steps + 1)))
        inner = self.inner.with_gradient_norm(enough)
        try:
            end = deque(inner._states(Problem(work.manifold, augmented), state.point, None), 1).pop()
        except DivergedError:
            # If the cost falls faster than the constraints push back, a larger penalty may hold the run.
            if self.growth * state.penalty > LARGEST:
                raise
            return state._replace(steps=state.steps + 1, penalty=self.growth * state.penalty)
        parts = augmented.parts(end.point)
        violation = _violation(parts)
        falls = violation <= max(FALL * state.violation, self.max_violation)
        done = state._replace(
            multipliers=[_kept(force) for *_, force in parts], violation=violation, steps=state.steps + 1,
            penalty=state.penalty if falls else self.growth * state.penalty, updates=state.updates + end.updates,
        )  # fmt: skip
        return self._seen(work, done, end.point, done.multipliers)

    def _seen(self, work: CompositeProblem, state: Round, point: Any, forces: Sequence[Array]) -> Round:
        """Return the state at a point, with the cost and the lengths of gradients there."""
        gradient, augmented = work.cost.gradient(point), AugmentedCost(work, forces, 1.0)
        pulls = [
            _around(one.pull(point, force)[1])
            for one, force in zip(augmented.envelopes, forces, strict=True)
            if one.h.is_finite
        ]
        norm = _length(work, point, augmented.pulled(point, state.multipliers, gradient))
        slope = max(_length(work, point, gradient), *pulls, 0.0)
        return state._replace(point=point, cost=work.value(point), norm=norm, slope=slope)

    def observe(self, work: CompositeProblem, state: Round) -> dict[str, float]:
        """Return cost, violation, length of the Lagrangian's gradient, and penalty."""
        return {
            "cost": state.cost, "violation": state.violation, "gradient_norm": state.norm, "penalty": state.penalty
        }  # fmt: skip

    def finished(self, work: CompositeProblem, state: Round) -> str | None:
        if not all(map(isfinite, state[3:6])) or not is_finite(state.multipliers):
            raise self.diverged(state.steps)
        # The inner runs end at tol, and updated multipliers reduce the rest to rounding.
        if state.violation > self.max_violation or state.norm > 2.0 * state.enough(self.tol):
            return None
        return Converged(f"a violation of {state.violation:.1e} and a gradient of length {state.norm:.1e}")

    def witness(self, problem: Problem, work: Any, state: Round, seed: int) -> dict[str, float]:
        length = size_of([inner_at(of, state.point) for _, of in work.terms])
        return super().witness(problem, work, state, seed) | {"length of the constraints": length}

    def conclude(self, result: Result, work: CompositeProblem, state: Round) -> ConstrainedResult:
        # A criterion may have tested the gradient alone.
        result = replace(result, converged=result.converged and state.violation <= self.max_violation)
        augmented = AugmentedCost(work, state.multipliers, state.penalty)
        oracle = Oracle(Problem(work.manifold, augmented), None, None, result.seed)
        cost, ambient = oracle.look(result.point)
        gradient = oracle.gradient(result.point, ambient)
        norm = work.manifold.norm(result.point, gradient)
        equal, unequal = len(work.equalities), len(work.equalities) + len(work.inequalities)
        of_h = state.multipliers[unequal:]
        return ConstrainedResult(
            **vars(held(result, oracle, cost, gradient, norm, norm, state.first_norm)),
            violation=state.violation,
            equality_multipliers=np.concatenate([np.zeros(0), *state.multipliers[:equal]]),
            inequality_multipliers=np.concatenate([np.zeros(0), *state.multipliers[equal:unequal]]),
            multipliers=of_h[0] if of_h else None,
        )


def _length(work: CompositeProblem, point: Any, ambient: Any) -> float:
    """Return the length of a gradient at a point."""
    return work.manifold.norm(point, work.manifold.euclidean_to_riemannian_gradient(point, ambient))


def _around(ambient: Any) -> float:
    """Return the length of a gradient in the ambient space, estimated for an operator."""
    if isinstance(ambient, Parts | list | tuple):
        return float(np.linalg.norm([_around(part) for part in ambient]))
    if ns.is_array(ambient):
        return size_of(ambient)
    probe = np.random.default_rng(0).standard_normal((ambient.shape[-1], 8))
    return size_of(ambient @ probe) / 8**0.5


def _violation(parts: list[tuple[Array, Array, Array]]) -> float:
    """Return the largest |c − p|: |h|, and |max(g, −μ/ρ)|, which is zero if g ≤ 0, and g = 0 whenever μ > 0."""
    sizes = (ns.namespace(inner).abs(inner - nearest) for inner, nearest, _ in parts if inner.shape[0])
    return float(np.max([float(ns.namespace(size).max(size)) for size in sizes], initial=0.0))


def _kept(force: Array) -> Array:
    """Return a force, clipped to the largest multiplier."""
    return force * (LARGEST / ns.at_least(ns.namespace(force).abs(force), LARGEST))
