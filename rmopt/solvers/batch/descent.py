"""Descent by whole gradients: a direction, a step length along it, and again; on every manifold."""

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

# Steps without a lower cost or a shorter gradient than ever before, after which a run is at rounding.
PATIENCE = 200
# Where no step helps, and the gradient is longer than this share of the first one, something else may be wrong.
EARLY = 1e-3
# Below this share of the cost what a gradient promises is nothing.
VANISHED = 1e-13
# The least step that is surely seen, as a share of the size of a point.
RESOLVED = 1e-12
# Below this share of the cost a step of the size of the manifold would change nothing that can be seen.
ROUNDED = 1e-8


@by_keyword
class GradientSolver(CheckedValue, Solver):
    """A solver that looks at the whole cost and gradient in each step.

    Parameters
    ----------
    max_iter : int
    tol : float, optional
        Stop when the gradient is at most this long, relative to the first one. Unless given it is 1e-6, and 1e-4 in
        single precision, or what rounding leaves of the Euclidean gradient, so that a run may start at the minimum;
        beside a stopping criterion that sets the length of the gradient it is 0.
    gradient_norm : float, optional
        Stop when it is at most this long; in place of `tol`.
    retraction : Retraction or str, optional
        The manifold's default retraction unless given.
    transport : Transport or str, optional
        The manifold's default transport unless given.
    threads : int, optional
        How many threads numpy's BLAS has in a run, at most: as many as before unless given. Equal numbers give equal
        bits; `Result.threads` tells it.

    See Also
    --------
    LineSearchSolver : less to write for a direction of one's own.
    ScheduledSolver : looks at some terms in each step.

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
        """Return the same solver, which stops at a gradient of this length."""
        return self._but(gradient_norm=norm)

    def _but(self, **new: Any) -> Self:
        twin = copy.copy(self)
        vars(twin).update(new)
        return twin

    def beside(self, stop: Any) -> Self:
        """Return the solver as it runs beside a criterion, which may say how short the gradient is to be."""
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
            # It is no rounding that held the run up.
            raise self.diverged(state.steps, "the cost", state.point)
        return done._replace(best=(cost, norm, idle + 1), stuck=stuck)

    @abstractmethod
    def _step(self, work: Oracle, state: Iterate) -> Iterate:
        """Do one iteration, from a point that is not stationary."""

    def observe(self, work: Oracle, state: Iterate) -> dict[str, float]:
        """Return cost, gradient norm, step size and length, and what was evaluated so far."""
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
        # What was asked for by a number is what is done.
        if self.tol is None and self.gradient_norm is None and share <= VANISHED * work.coarseness:
            # Beside a large constant all gradients are small; that of a minimum is another one at the next point.
            there = work.retract(state.point, state.gradient, -RESOLVED * work.coarseness * way / state.norm)
            back = work.carry(there, state.point, work.gradient(there))
            change = work.manifold.to_tangent_space(state.point, back) - state.gradient
            if work.manifold.norm(state.point, change) > 0.5 * state.norm:
                return Converged(f"{length}, which is rounding")
        idle = state.best[2]
        what = f"nothing got better in {idle} steps" if idle > PATIENCE else "no step lowers the cost"
        wrong = share > ROUNDED * work.coarseness**0.5 and part > EARLY
        cure = "; so long a one may be wrong: rmopt.checks.check_gradient tells" if wrong else ""
        return f"rounding: {what}, at {length}{cure}"

    def _enough(self, work: Oracle, state: Iterate) -> float:
        """Return the length at which a gradient is short enough: the same all the way of a run."""
        wanted = self._tol(state) * state.first_norm if self.gradient_norm is None else self.gradient_norm
        if self.gradient_norm is None and self.tol is None and state.first_norm <= 1e4 * work.rounding:
            # The start may be near the minimum: the first gradient is no measure, and rounding that of the end.
            wanted = max(wanted, work.rounding)
        # The squares of shorter ones are zero, or beside that of the first.
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
