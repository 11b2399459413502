"""Line search methods (gradient descent, conjugate gradients, L-BFGS) of a direction and a step length."""

from dataclasses import field
from math import sqrt
from typing import Annotated, Any

from rmopt.core.arguments import bounded, by_keyword, instance
from rmopt.solvers.batch.descent import GradientSolver
from rmopt.solvers.batch.directions import Conjugate, Direction, Move, QuasiNewton, SteepestDescent
from rmopt.solvers.batch.oracle import Iterate, Oracle
from rmopt.solvers.batch.step_lengths import Backtracking, BarzilaiBorwein, Curve, StepLength


@by_keyword
class LineSearchSolver(GradientSolver):
    """Repeated steps along a direction by a step length.

    Parameters
    ----------
    direction : Direction
    step_length : StepLength
    max_iter, tol, gradient_norm, retraction, transport, threads : optional
        As in `GradientSolver`.

    See Also
    --------
    GradientDescent : one direction and step length, as are `ConjugateGradient` and `LBFGS`.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.solvers import Conjugate, LineSearchSolver, StrongWolfe
    >>> A = np.diag(np.arange(10.0))
    >>> minus_captured = autograd_cost(lambda U: -0.5 * ((A @ U) * U).sum())
    >>> solver = LineSearchSolver(Conjugate("dai-yuan"), StrongWolfe(flatness=0.1))
    >>> result = solver.run(Problem(Grassmann(10, 2), minus_captured), random_state=0)
    >>> result.converged, round(result.cost, 6)
    (True, -8.5)
    """

    direction: Annotated[Direction, bounded(instance, Direction, "a Direction")] = field(kw_only=False)
    step_length: Annotated[StepLength, bounded(instance, StepLength, "a StepLength")] = field(kw_only=False)

    def begin(self, work: Oracle, point: Any) -> Iterate:
        state = work.first(point)
        memory, search = self.direction.begin(work, state), self.step_length.begin(work, state)
        return state._replace(memory=memory, search=search)

    def _step(self, work: Oracle, state: Iterate) -> Iterate:
        rule, point = self.direction, state.point
        precondition = work.preconditioner(point) if work.preconditions else None
        downhill = -state.gradient if precondition is None else -precondition(state.gradient)
        direction = rule(work, state, downhill)
        # By rounding, short gradients are off the tangent space, which a long step would multiply.
        short = work.flat and state.norm < 1e6 * work.rounding
        if short or (work.is_extrinsic and direction is not downhill):
            direction = work.manifold.to_tangent_space(point, direction)
        steepest = direction is downhill and precondition is None
        guess = 1.0 if rule.is_scaled and not rule.fresh(state.memory) else state.search.t
        if steepest:
            slope = -(state.norm**2)
        else:
            # It may be computed with the first step along it.
            ahead = (
                work.trial(state, direction, guess) if work.at_once and self.step_length.tries_guess else None
            )
            slope = float(work.inner(point, state.gradient, direction)) if ahead is None else ahead.slope
        again = not slope < 0.0 and direction is not downhill
        if again:
            state = state._replace(memory=rule.begin(work, state))
            direction, steepest = downhill, precondition is None
            slope = float(work.inner(point, state.gradient, direction))
            guess = state.search.t
        trial = self.step_length(Curve(work, state, direction, slope), guess, state.search)
        steps, counts = state.steps + 1, tuple(work.counts)
        if trial is None:
            # If even the gradient does not help, the run has reached rounding. Otherwise it restarts with the
            # gradient.
            search = self.step_length.begin(work, state)
            memory = rule.begin(work, state)
            known = (again or rule.fresh(state.memory)) and search == state.search
            return state._replace(steps=steps, counts=counts, stuck=known, memory=memory, search=search)
        move = Move(trial, steepest)
        memory, search = rule.after(move, state.memory), self.step_length.after(move, state.search)
        if steepest:
            length = state.norm
        else:
            length = work.manifold.norm(point, direction) if trial.seen is None else trial.seen.length
        square = move.squared
        norm = sqrt(square) if square > 1e-30 else work.manifold.norm(trial.point, move.gradient)
        return Iterate(
            trial.point, trial.cost, move.gradient, norm, state.first_norm, memory, search, trial.t,
            trial.t * length, tuple(work.counts), False, steps, state.updates + 1,
        )  # fmt: skip


class GradientDescent(LineSearchSolver):
    """Steepest descent, by default with Barzilai-Borwein step lengths: the first method to try on smooth costs.

    Parameters
    ----------
    step_length : StepLength, optional
        Defaults to `BarzilaiBorwein`.
    **options : object
        `max_iter`, `tol`, `gradient_norm`, `retraction`, `transport`, `threads`, as in `GradientSolver`.

    See Also
    --------
    LBFGS : fewer steps for ill-conditioned costs.
    SGD : sums of very many terms.

    References
    ----------
    Absil, Mahony and Sepulchre, Optimization Algorithms on Matrix Manifolds, Princeton University Press (2008),
    https://doi.org/10.1515/9781400830244. Iannazzo and Porcelli, The Riemannian Barzilai–Borwein method with
    nonmonotone line search and the matrix geometric mean computation, IMA J. Numer. Anal. 38 (2018),
    https://doi.org/10.1093/imanum/drx015.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import GradientDescent
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> result = GradientDescent().run(problem, random_state=0)
    >>> result.converged, round(result.cost, 6)
    (True, 0.2)
    """

    def __init__(self, step_length: StepLength | None = None, **options: Any) -> None:
        super().__init__(SteepestDescent(), step_length or BarzilaiBorwein(), **options)


class ConjugateGradient(LineSearchSolver):
    """Nonlinear conjugate gradients.

    Parameters
    ----------
    rule : str
        See `Conjugate`.
    step_length : StepLength, optional
        Defaults to `Backtracking`.
    **options : object
        `max_iter`, `tol`, `gradient_norm`, `retraction`, `transport`, `threads`, as in `GradientSolver`.

    See Also
    --------
    LBFGS : mostly fewer steps, with some more tangent vectors in memory.

    References
    ----------
    Sato, Riemannian conjugate gradient methods: general framework and specific algorithms with convergence
    analyses, SIAM J. Optim. 32 (2022), https://doi.org/10.1137/21M1464178.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import ConjugateGradient
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> result = ConjugateGradient().run(problem, random_state=0)
    >>> result.converged, round(result.cost, 6)
    (True, 0.2)
    """

    def __init__(
        self, rule: str = "hestenes-stiefel", step_length: StepLength | None = None, **options: Any
    ) -> None:
        super().__init__(Conjugate(rule), step_length or Backtracking(), **options)


class LBFGS(LineSearchSolver):
    """Limited-memory BFGS: close to Newton's method without second derivatives.

    Parameters
    ----------
    memory : int
        Number of stored pairs of steps and changes of the gradient.
    step_length : StepLength, optional
        Defaults to `Backtracking`.
    **options : object
        `max_iter`, `tol`, `gradient_norm`, `retraction`, `transport`, `threads`, as in `GradientSolver`.

    See Also
    --------
    TrustRegions : second derivatives, for ill-conditioned costs and a short gradient.
    GradientDescent : cheaper steps, and more of them.

    References
    ----------
    Huang, Gallivan and Absil, A Broyden class of quasi-Newton methods for Riemannian optimization, SIAM J.
    Optim. 25 (2015), https://doi.org/10.1137/140955483.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import LBFGS
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> result = LBFGS().run(problem, random_state=0)
    >>> result.converged, round(result.cost, 6)
    (True, 0.2)
    """

    def __init__(self, memory: int = 10, step_length: StepLength | None = None, **options: Any) -> None:
        super().__init__(QuasiNewton(memory), step_length or Backtracking(), **options)
