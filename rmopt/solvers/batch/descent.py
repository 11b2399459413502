"""Descent by full gradients on any manifold: repeated steps along a direction by a step length."""

import copy
from abc import abstractmethod
from dataclasses import replace
from math import inf, isfinite
from typing import Annotated, Any, Self

import numpy as np

from rmopt.core.arguments import CheckedValue, bounded, by_keyword, integer, number, optional
from rmopt.core.points import arrays_of, size_of
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.core.transport import as_transport
from rmopt.errors import DivergedError
from rmopt.namespaces import real_type, slack
from rmopt.solvers.batch.oracle import COUNTED, Iterate, Oracle, held
from rmopt.solvers.result import Result
from rmopt.solvers.run import Solver
from rmopt.solvers.stop import Converged, Stop

# Steps without a new least cost or gradient, after which a run has reached rounding.
PATIENCE = 200
# If no step helps and the gradient is longer than this share of the first one, it may be wrong.
EARLY = 1e-3
# A gradient that promises less than this share of the cost promises nothing.
VANISHED = 1e-13
# The least step that surely shows, as a share of the size of a point.
RESOLVED = 1e-12
# If a step of the manifold's size changes less than this share of the cost, the change is invisible.
ROUNDED = 1e-8


@by_keyword
class GradientSolver(CheckedValue, Solver):
    """A solver that uses the full cost and gradient in each step.

    Parameters
    ----------
    max_iter : int
    tol : float, optional
        Stop when the gradient is at most this long, relative to the first one. Defaults to 1e-6, or 1e-4 in single
        precision, or the rounding error of the Euclidean gradient, so that a run may start at the minimum, or 0 if a
        stopping criterion sets the length of the gradient.
    gradient_norm : float, optional
        Stop when the gradient is at most this long, instead of `tol`.
    retraction : Retraction or str, optional
        The manifold's default retraction unless given.
    transport : Transport or str, optional
        The manifold's default transport unless given.
    threads : int, optional
        The largest number of threads of numpy's BLAS in a run, by default unchanged. Equal numbers give bit-identical
        results. `Result.threads` holds it.

    See Also
    --------
    LineSearchSolver : less to write for your own direction.
    ScheduledSolver : uses some terms in each step.

    Examples
    --------
    >>> from rmopt.solvers import LBFGS, GradientSolver, TrustRegions
    >>> [isinstance(solver, GradientSolver) for solver in (LBFGS(), TrustRegions())]
    [True, True]
    """

    not_identity = (*Solver.not_identity, "tol", "gradient_norm")
    keeps_single, takes_all_arrays = True, True

    max_iter: Annotated[int, integer] = 1000
    tol: Annotated[float | None, optional(number, least=0)] = None
    gradient_norm: Annotated[float | None, optional(number, least=0)] = None
    retraction: Retraction | str | None = None
    transport: Annotated[Any, as_transport] = None
    threads: Annotated[int | None, optional(bounded(integer, 1))] = None

    def with_gradient_norm(self, norm: float) -> Self:
        """Return the same solver with a stop at a gradient of this length."""
        return self._but(gradient_norm=norm)

    def _but(self, **new: Any) -> Self:
        twin = copy.copy(self)
        vars(twin).update(new)
        return twin

    def beside(self, stop: Any) -> Self:
        """Return the solver for a run with a criterion, which may set the length of the gradient."""
        waits = self.tol is None and isinstance(stop, Stop) and stop.waits_for("gradient_norm")
        return self._but(tol=0.0) if waits else self

    def prepare(self, problem: Problem, seed: int) -> Oracle:
        return Oracle(problem, self.retraction, self.transport, seed)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def advance(self, work: Oracle, state: Iterate, steps: int) -> Iterate:
        """Do one iteration."""
        if steps == 0:
            work.recall(state.point)
            work.enough = self._enough(work, state)
            return state
        if state.stuck or state.norm == 0.0:
            return state._replace(steps=state.steps + 1)
        work.counts[:] = state.counts
        done = self._step(work, state)
        cost, norm, idle = state.best
        if done.cost < cost or done.norm < norm:
            return done._replace(best=(min(cost, done.cost), min(norm, done.norm), 0))
        stuck = done.stuck or idle >= PATIENCE
        if stuck and not isfinite(work.last_cost):
            # The run was not stopped by rounding.
            raise self.diverged(state.steps, "the cost", state.point)
        return done._replace(best=(cost, norm, idle + 1), stuck=stuck)

    @abstractmethod
    def _step(self, work: Oracle, state: Iterate) -> Iterate:
        """Do one iteration from a point that is not stationary."""

    def observe(self, work: Oracle, state: Iterate) -> dict[str, float]:
        """Return cost, gradient norm, step size and length, and the counts of evaluations."""
        return {
            "cost": state.cost, "gradient_norm": state.norm, "step_size": state.step_size,
            "step_length": state.step_length, **dict(zip(COUNTED, state.counts, strict=True)),
        }  # fmt: skip

    def finished(self, work: Oracle, state: Iterate) -> str | None:
        if not isfinite(state.cost):
            raise self.diverged(state.steps, "the cost", state.point)
        if not isfinite(state.norm):
            what = f"the gradient (at a cost of {state.cost:.6g}) or its length"
            raise self.diverged(state.steps, what, state.point)
        if not (state.stuck or state.norm <= work.enough):
            return None
        length, part = f"a gradient of length {state.norm:.1e}", state.norm / max(state.first_norm, 1e-300)
        if state.norm <= work.enough:
            if self.gradient_norm is None and state.norm > 0.0:
                length += ", which is rounding" if part > self._tol(state) else f", {part:.0e} of the first"
            return Converged(length)
        way = max(work.manifold.typical_dist, size_of(state.point))
        share = state.norm * way / abs(state.cost) if state.cost else inf
        # A length given as a number is used as it is.
        if self.tol is None and self.gradient_norm is None and share <= VANISHED * work.coarseness:
            # Compared with a large constant all gradients are small, but at a minimum the gradient differs at the
            # next point.
            there = work.retract(state.point, state.gradient, -RESOLVED * work.coarseness * way / state.norm)
            back = work.carry(there, state.point, work.gradient(there))
            change = work.manifold.to_tangent_space(state.point, back) - state.gradient
            if work.manifold.norm(state.point, change) > 0.5 * state.norm:
                return Converged(f"{length}, which is rounding")
        idle = state.best[2]
        what = f"nothing got better in {idle} steps" if idle > PATIENCE else "no step lowers the cost"
        wrong = share > ROUNDED * work.coarseness**0.5 and part > EARLY
        cure = "; so long a one may be wrong: test it by rmopt.checks.check_gradient" if wrong else ""
        return f"rounding: {what}, at {length}{cure}"

    def _enough(self, work: Oracle, state: Iterate) -> float:
        """Return the length of a sufficiently short gradient, which is constant during a run."""
        wanted = self._tol(state) * state.first_norm if self.gradient_norm is None else self.gradient_norm
        if self.gradient_norm is None and self.tol is None and state.first_norm <= 1e4 * work.rounding:
            # The start may be near the minimum: then the first gradient is no measure, and rounding sets the end.
            wanted = max(wanted, work.rounding)
        # The squares of shorter ones are zero, or negligible against that of the first.
        least = float(np.finfo(real_type(*arrays_of(state.point))).tiny) ** 0.5 * max(1.0, state.first_norm)
        return max(wanted, least)

    def _tol(self, state: Iterate) -> float:
        return slack(1e-6, *arrays_of(state.point)) if self.tol is None else self.tol

    def diverged(self, step: int, what: str = "the cost or a derivative", point: Any = None) -> DivergedError:
        return DivergedError(
            f"{what} is not finite after {step} iterations; check the data and their scale, look for roots and norms "
            "of 0, which have no derivative, or start elsewhere.",
            step,
            point,
        )

    def conclude(self, result: Result, work: Oracle, state: Iterate) -> Result:
        work.counts[:] = state.counts
        edge = getattr(work.manifold, "edge", None)
        word = None if edge is None else edge(state.point, state.gradient, state.first_norm, work.gradient)
        if word is not None:
            # There all gradients are short.
            result = replace(result, converged=False, stopped_by=f"{result.stopped_by}; {word}")
        result = held(result, work, state.cost, state.gradient, state.norm, work.enough, state.first_norm)
        return replace(result, counts=dict(zip(COUNTED, work.counts, strict=True)))
