"""Constraints on manifolds: the augmented Lagrangian method over any solver of whole gradients."""

from collections import deque
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Annotated, Any, NamedTuple

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, instance, integer, number, optional
from rmopt.core.cost import Cost
from rmopt.core.problem import Problem
from rmopt.costs.constraints import AugmentedCost, ConstrainedProblem
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.solvers.batch.descent import GradientSolver
from rmopt.solvers.batch.line_search import LBFGS
from rmopt.solvers.batch.oracle import Oracle
from rmopt.solvers.batch.premise import held
from rmopt.solvers.run import Result, Solver
from rmopt.solvers.stop import Converged

# The penalty grows where violations did not fall to this share.
FALL = 0.5
# Multipliers beyond are kept from growing: the method stays that of penalties.
LARGEST = 1e8


@dataclass(frozen=True, eq=False)
class ConstrainedResult(Result):
    """The end of a run with constraints.

    Attributes
    ----------
    violation : float
        The largest size of an h, and the largest g that is positive or has a multiplier.
    equality_multipliers, inequality_multipliers : array
        λ and μ, with which the gradient of f + λᵀh + μᵀg is zero at a stationary point.
    """

    violation: float = field(kw_only=True)
    equality_multipliers: Array = field(kw_only=True, repr=False)
    inequality_multipliers: Array = field(kw_only=True, repr=False)


class Round(NamedTuple):
    """Where a run stands after some inner runs.

    Attributes
    ----------
    point : point
    equal, unequal : array
        The multipliers λ and μ.
    penalty, violation : float
    cost, norm : float
        Of f, and the length of the gradient of the Lagrangian.
    slope, first_norm : float
        The lengths of the gradient of f here, and at the start.
    rounding : float
        The length at which a gradient is rounding.
    steps, updates : int
    """

    point: Any
    equal: Array
    unequal: Array
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
        """Return the length of a gradient that is short enough; a start may be a minimum of f, and so may the end."""
        return max(tol * max(self.first_norm, self.slope, np.finfo(float).tiny), self.rounding)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AugmentedLagrangian(CheckedValue, Solver):
    """Minimise with a penalty of violations by another solver, correct multipliers, and again (Liu and Boumal 2020).

    It ends where the constraints hold and the Lagrangian is stationary, both up to tolerances: at a local minimum in
    general. A criterion of one's own asks for both, too: ``GradientNorm(1e-5) & Below(1e-6, "violation")``. Where the
    constraints contradict each other the violation stays, and the run ends by its budget; so it does where gradients
    of the cost are 1e8 times those of the constraints, or far below `tol` times them: give both a like scale.

    Parameters
    ----------
    inner : GradientSolver
        What minimises; `LBFGS` unless given. `LevenbergMarquardt` cannot, for penalties are no residuals.
    max_iter : int
        Runs of the inner solver.
    tol : float
        Stop when the gradient of the Lagrangian is at most this long, relative to that of the cost at the start or
        here, whichever is longer; or when it is rounding.
    max_violation : float
        Stop when all constraints hold up to this, too.
    penalty : float
        The first weight of violations.
    growth : float
        The factor by which it grows.
    threads : int, optional
        As in `GradientSolver`; that of `inner` unless given, which has none of its own.

    See Also
    --------
    rmopt.manifolds.Product : constraints that make a manifold need no penalty.

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

    def prepare(self, problem: Problem, seed: int) -> ConstrainedProblem:
        if not isinstance(problem, ConstrainedProblem):
            raise InvalidInputError(
                "AugmentedLagrangian is for an rmopt.costs.ConstrainedProblem(manifold, cost, equalities, "
                f"inequalities); without constraints take {type(self.inner).__name__}."
            )
        return problem

    def begin(self, work: ConstrainedProblem, point: Any) -> Round:
        h, g = work.violations(point)
        state = Round(point, np.zeros(len(h)), np.zeros(len(g)), self.penalty, inf, 0.0, inf, 0.0, 0.0)
        state = self._seen(work, state, point)
        plain, norm = Oracle(Problem(work.manifold, work.cost), None, None), state.slope
        rounding = plain.rounding_at(point, state.cost, work.gradient(point), norm)
        if norm <= rounding:
            # A cost that is flat there says nothing of lengths; the violations do.
            norm = self.tol * _length(work, point, AugmentedCost(work, state[1:3], self.penalty))
        return state._replace(first_norm=norm, rounding=rounding, violation=_violation(h, g, state))

    def advance(self, work: ConstrainedProblem, state: Round, steps: int) -> Round:
        """Do one run of the inner solver."""
        if steps == 0:
            return state
        augmented = AugmentedCost(work, (state.equal, state.unequal), state.penalty)
        # Exact only when it comes near: early multipliers are rough.
        enough = state.enough(max(self.tol, 0.1 ** (state.steps + 1)))
        inner = self.inner.with_gradient_norm(enough)
        try:
            end = deque(inner._states(Problem(work.manifold, augmented), state.point, None), 1).pop()
        except DivergedError:
            # Where the cost falls faster than the constraints push back a larger penalty may hold the run.
            if self.growth * state.penalty > LARGEST:
                raise
            return state._replace(steps=state.steps + 1, penalty=self.growth * state.penalty)
        equal, unequal = (np.clip(force, -LARGEST, LARGEST) for force in augmented.forces(end.point))
        violation = _violation(*work.violations(end.point), state)
        falls = violation <= max(FALL * state.violation, self.max_violation)
        done = state._replace(
            equal=equal, unequal=unequal, violation=violation, steps=state.steps + 1,
            penalty=state.penalty if falls else self.growth * state.penalty, updates=state.updates + end.updates,
        )  # fmt: skip
        return self._seen(work, done, end.point)

    def _seen(self, work: ConstrainedProblem, state: Round, point: Any) -> Round:
        """Return the state at a point, with the cost and the length of the Lagrangian's gradient there."""
        # Where the forces are the multipliers themselves: of a penalty so small that it adds nothing.
        plain = AugmentedCost(work, (state.equal, state.unequal), 1e-300)
        return state._replace(
            point=point, cost=work.value(point), norm=_length(work, point, plain),
            slope=_length(work, point, work.cost),
        )  # fmt: skip

    def observe(self, work: ConstrainedProblem, state: Round) -> dict[str, float]:
        """Return cost, violation, length of the Lagrangian's gradient, and penalty."""
        return {
            "cost": state.cost, "violation": state.violation, "gradient_norm": state.norm, "penalty": state.penalty
        }  # fmt: skip

    def finished(self, work: ConstrainedProblem, state: Round) -> str | None:
        if not all(map(isfinite, (state.cost, state.norm, state.violation, *state.equal, *state.unequal))):
            raise self.diverged(state.steps)
        # The inner runs end at tol; corrected multipliers leave rounding.
        if state.violation > self.max_violation or state.norm > 2.0 * state.enough(self.tol):
            return None
        return Converged(f"a violation of {state.violation:.1e} and a gradient of length {state.norm:.1e}")

    def witness(self, problem: Problem, work: Any, state: Round, seed: int) -> dict[str, float]:
        length = float(np.linalg.norm(np.concatenate(work.violations(state.point))))
        return super().witness(problem, work, state, seed) | {"length of the constraints": length}

    def conclude(self, result: Result, work: ConstrainedProblem, state: Round) -> ConstrainedResult:
        # A criterion may have been content with a gradient alone.
        result = replace(result, converged=result.converged and state.violation <= self.max_violation)
        augmented = AugmentedCost(work, (state.equal, state.unequal), state.penalty)
        oracle = Oracle(Problem(work.manifold, augmented), None, None, result.seed)
        cost, ambient = oracle.look(result.point)
        gradient = oracle.gradient(result.point, ambient)
        norm = work.manifold.norm(result.point, gradient)
        return ConstrainedResult(
            **vars(held(result, oracle, cost, gradient, norm, norm, state.first_norm)),
            violation=state.violation,
            equality_multipliers=state.equal,
            inequality_multipliers=state.unequal,
        )


def _length(work: ConstrainedProblem, point: Any, cost: Cost) -> float:
    """Return the length of the gradient of a cost at a point."""
    gradient = work.manifold.euclidean_to_riemannian_gradient(point, cost.gradient(point))
    return work.manifold.norm(point, gradient)


def _violation(h: Array, g: Array, state: Round) -> float:
    """Return the largest |h|, and the largest |max(g, −μ/ρ)|: zero where g ≤ 0, and g = 0 where μ > 0."""
    slack = np.maximum(g, -state.unequal / state.penalty)
    return float(max(np.abs(h).max(initial=0.0), np.abs(slack).max(initial=0.0)))
