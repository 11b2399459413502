"""Step lengths along a direction."""

from abc import ABC, abstractmethod
from math import isfinite
from typing import Any, ClassVar, NamedTuple

from rmopt.core.arguments import number
from rmopt.core.points import size_of
from rmopt.core.values import Value
from rmopt.errors import MissingCapabilityError
from rmopt.solvers.batch.descent import RESOLVED
from rmopt.solvers.batch.directions import Move
from rmopt.solvers.batch.oracle import Iterate, Oracle

# The largest number of trials along one direction.
TRIALS = 40
# Changes below this share of the cost are rounding, and slopes decide (Hager and Zhang 2005).
ROUNDING = 1e-14
# The share of the slope's promised decrease that a step must achieve.
SHARE = 1e-4
# The weight of the past in the mean with which Barzilai-Borwein steps compare the cost (Zhang and Hager 2004).
PAST = 0.85
# The cost may rise by at most this many times the change of the previous step.
RISE = 10.0


class Trial:
    """A point along a direction, evaluated.

    Parameters
    ----------
    curve : Curve
    t : float
        The factor of the direction.

    Attributes
    ----------
    point, cost : object
    seen : Seen or None
        Further results of the evaluation.
    """

    __slots__ = ("_ambient", "_gradient", "cost", "curve", "point", "seen", "t")

    def __init__(self, curve: "Curve", t: float) -> None:
        self.curve, self.t, work = curve, t, curve.work
        self._gradient: Any = None
        self.seen = work.trial(curve.start, curve.direction, t) if work.at_once else None
        if self.seen is not None:
            self.point, self.cost, self._gradient = self.seen[:3]
        else:
            self.point, self.cost, self._ambient = work.reached(curve.start.point, curve.direction, t)

    @property
    def gradient(self) -> Any:
        """The Riemannian gradient at the point."""
        if self._gradient is None:
            self._gradient = self.curve.work.gradient(self.point, self._ambient)
        return self._gradient

    @property
    def slope(self) -> float:
        """The derivative of the cost along the carried direction."""
        work, start = self.curve.work, self.curve.start
        if self.seen is not None:
            return self.seen.slope_after
        return work.inner(
            self.point, self.gradient, work.carry(start.point, self.point, self.curve.direction)
        )


class Curve:
    """The cost along a direction: t ↦ f(R(x, t d)).

    Parameters
    ----------
    work : Oracle
    start : Iterate
    direction : tangent vector
        At the start.
    slope : float
        Of the cost along the direction at the start.
    """

    __slots__ = ("direction", "slope", "start", "work")

    def __init__(self, work: Oracle, start: Iterate, direction: Any, slope: float) -> None:
        self.work, self.start, self.direction, self.slope = work, start, direction, slope

    def at(self, t: float) -> Trial:
        """Return the trial at t, after one retraction and one evaluation."""
        return Trial(self, t)

    def backtracked(self, t: float, reference: float) -> Trial | None:
        """Return the first trial with a sufficient decrease, each at the minimum of a parabola within bounds."""
        cost, slope = self.start.cost, self.slope
        for _ in range(TRIALS):
            trial = Trial(self, t)
            if self.falls_enough(trial, reference):
                return trial
            rise = trial.cost - cost - slope * t
            inside = isfinite(trial.cost) and rise > 0.0
            t *= min(0.5, max(0.1, -0.5 * slope * t / rise)) if inside else 0.1
        return None

    def falls_enough(self, trial: Trial, reference: float) -> bool:
        """Return whether a trial achieves a share of the slope's promise, as far as rounding allows."""
        promised, noise = SHARE * trial.t * self.slope, ROUNDING * self.work.coarseness * abs(self.start.cost)
        if trial.cost <= reference + promised and trial.cost < reference:
            return True
        if not trial.cost <= reference + noise or -promised > 10.0 * noise:
            return False
        return abs(trial.slope) <= (1.0 - 2.0 * SHARE) * -self.slope


class Guess(NamedTuple):
    """The memory of a step length.

    Attributes
    ----------
    t : float
        The next first trial.
    level, weight : float
        The level for the comparison of the cost, and the weight of the past in it.
    """

    t: float
    level: float
    weight: float = 1.0


class StepLength(Value, ABC):
    """The rule for the step length along a direction.

    The memory between steps is a `Guess`, or your own named tuple of numbers.

    See Also
    --------
    Backtracking : with sufficient decrease of the cost.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import GradientDescent, StepLength
    >>> class Fixed(StepLength):
    ...     def __call__(self, curve, guess, memory):
    ...         return curve.at(0.05)
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> GradientDescent(Fixed()).run(problem, random_state=0).converged
    True
    """

    # Whether the guess is the first trial step: then a slope may come with it.
    tries_guess: ClassVar[bool] = False

    def begin(self, work: Oracle, state: Iterate) -> Any:
        """Return the memory at the initial point: a step of length 1, or the least that rounding resolves."""
        length = max(1.0, RESOLVED * work.coarseness * size_of(state.point))
        return Guess(length / max(state.norm, 1e-300), state.cost)

    @abstractmethod
    def __call__(self, curve: Curve, guess: float, memory: Any) -> Trial | None:
        """Return an accepted trial, or None if there is none.

        Parameters
        ----------
        curve : Curve
        guess : float
            The first t to try.
        memory : object
        """

    def after(self, move: Move, memory: Any) -> Any:
        """Return the memory after a step: the minimum of the parabola through the evaluated points of the curve."""
        t, rise = move.t, move.slope_after - move.slope
        best = -t * move.slope / rise if rise > 0.0 else 2.0 * t
        # Little curvature far from the minimum promises too much: tenfold steps cost CG a third more evaluations.
        return Guess(min(max(best, 0.1 * t), 4.0 * t), move.cost)


class Backtracking(StepLength):
    """Armijo's rule: shorter and shorter steps, until one achieves a share of the slope's promise.

    The first trial is the minimum of a parabola through the slopes of the previous step.

    See Also
    --------
    StrongWolfe : flat slopes at the end, good for conjugate gradients.
    BarzilaiBorwein : mostly without a search, for the negative gradient.
    """

    tries_guess = True

    def __call__(self, curve: Curve, guess: float, memory: Any) -> Trial | None:
        return curve.backtracked(guess, curve.start.cost)


class BarzilaiBorwein(StepLength):
    """Step sizes from the change of the gradient, without a search in most steps (Iannazzo and Porcelli 2018).

    The cost may rise temporarily: it is compared with a weighted mean of the past (Zhang and Hager 2004), and may
    rise by ten times the change of the previous step. Short and long steps of Barzilai and Borwein (1988) alternate.
    They are for the negative gradient, and may stall along conjugate directions.

    See Also
    --------
    Backtracking : the cost never rises.

    References
    ----------
    Iannazzo and Porcelli, The Riemannian Barzilai–Borwein method with nonmonotone line search and the matrix
    geometric mean computation, IMA J. Numer. Anal. 38 (2018), https://doi.org/10.1093/imanum/drx015. Barzilai
    and Borwein, Two-point step size gradient methods, IMA J. Numer. Anal. 8 (1988),
    https://doi.org/10.1093/imanum/8.1.141. Zhang and Hager, A nonmonotone line search technique and its
    application to unconstrained optimization, SIAM J. Optim. 14 (2004),
    https://doi.org/10.1137/S1052623403428208.
    """

    tries_guess = True

    def __call__(self, curve: Curve, guess: float, memory: Guess) -> Trial | None:
        return curve.backtracked(guess, max(memory.level, curve.start.cost))

    def after(self, move: Move, memory: Guess) -> Guess:
        sy = abs(move.t * (move.slope_after - move.slope_carried))
        precondition = move.work.preconditioner(move.point) if move.work.preconditions else None
        # Lengths are those of the preconditioner: the direction is −P times the gradient.
        ss = move.t * move.t * (move.old_squared if precondition is None else -move.slope)
        weight = PAST * memory.weight + 1.0
        level = ((weight - 1.0) * memory.level + move.cost) / weight
        # After a start with a huge cost any rise would look small.
        level = min(level, move.cost + RISE * abs(move.start.cost - move.cost))
        if not sy > 0.0:
            return Guess(10.0 * move.t, level, weight)
        if move.start.steps % 2:
            y = move.change
            z = y if precondition is None else precondition(y)
            return Guess(float(sy / move.inner(y, z)), level, weight)
        return Guess(float(ss / sy), level, weight)


class StrongWolfe(StepLength):
    """A step with a sufficient decrease and a sufficiently flat slope, by bracketing with cubic polynomials.

    Parameters
    ----------
    flatness : float
        The largest slope at the end relative to that at the start: 0.9 for L-BFGS, 0.1 for conjugate gradients.

    See Also
    --------
    Backtracking : fewer evaluations in each step.

    References
    ----------
    Hager and Zhang, A new conjugate gradient method with guaranteed descent and an efficient line search, SIAM
    J. Optim. 16 (2005), https://doi.org/10.1137/030601880.
    """

    tries_guess = True

    def __init__(self, flatness: float = 0.5) -> None:
        self.flatness = number("flatness", flatness, above=SHARE, below=1)

    def __call__(self, curve: Curve, guess: float, memory: Any) -> Trial | None:
        flat = -self.flatness * curve.slope
        low = (0.0, curve.start.cost, curve.slope)
        high: tuple[float, float, float] | None = None
        t, best = guess, None
        for _ in range(TRIALS):
            trial = curve.at(t)
            falls = isfinite(trial.cost) and curve.falls_enough(trial, curve.start.cost)
            if not falls or (best is not None and trial.cost > low[1]):
                high = (t, trial.cost, trial.slope if isfinite(trial.cost) else float("nan"))
            else:
                slope, best = trial.slope, trial
                if abs(slope) <= flat:
                    return trial
                if slope * ((high[0] - low[0]) if high is not None else 1.0) >= 0.0:
                    high = low
                low = (t, trial.cost, slope)
            if high is None:
                ahead = _cubic((0.0, curve.start.cost, curve.slope), low)
                # If the polynomial has no minimum, the step is still too short.
                t = min(max(ahead, 1.5 * t), 10.0 * t) if isfinite(ahead) else 10.0 * t
            else:
                width = high[0] - low[0]
                if abs(width) <= 1e-12 * curve.work.coarseness * max(abs(t), 1e-300):
                    break
                t = _cubic(low, high)
                near, far = sorted((low[0] + 0.1 * width, high[0] - 0.1 * width))
                t = min(max(t, near), far) if isfinite(t) else low[0] + 0.5 * width
        return best


def _cubic(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    """Return the minimum of the cubic polynomial with two values and slopes, or NaN."""
    (s, fs, ds), (t, ft, dt) = a, b
    if s == t:
        return float("nan")
    d1 = ds + dt - 3.0 * (fs - ft) / (s - t)
    inside = d1 * d1 - ds * dt
    if not inside >= 0.0:
        return float("nan")
    d2 = inside**0.5 if t > s else -(inside**0.5)
    bottom = dt - ds + 2.0 * d2
    return t - (t - s) * (dt + d2 - d1) / bottom if bottom != 0.0 else float("nan")


class Exact(StepLength):
    """The minimum along the curve, or a good estimate of it, for costs with a formula.

    The cost has a method ``exact_step(manifold, point, tangent)``. Its t is the first trial of Armijo's rule.

    See Also
    --------
    Backtracking : needs no formula.

    References
    ----------
    Vandereycken, Low-rank matrix completion by Riemannian optimization, SIAM J. Optim. 23 (2013),
    https://doi.org/10.1137/110845768.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.core import Cost
    >>> from rmopt.manifolds import Euclidean
    >>> class Quadratic(Cost):
    ...     A = np.diag([1.0, 10.0])
    ...
    ...     def value(self, x):
    ...         return 0.5 * float((x * (self.A @ x)).sum())
    ...
    ...     def gradient(self, x):
    ...         return self.A @ x
    ...
    ...     def exact_step(self, manifold, x, d):
    ...         return -float((d * (self.A @ x)).sum() / (d * (self.A @ d)).sum())
    >>> from rmopt.solvers import Conjugate, Exact, LineSearchSolver
    >>> solver = LineSearchSolver(Conjugate(), Exact(), tol=1e-10)
    >>> solver.run(Problem(Euclidean(2, 1), Quadratic()), random_state=0).steps
    2
    """

    def __call__(self, curve: Curve, guess: float, memory: Any) -> Trial | None:
        work, known = curve.work, getattr(curve.work.cost, "exact_step", None)
        if known is None:
            raise MissingCapabilityError(
                f"{type(work.cost).__name__} has no `exact_step(manifold, point, tangent)`; take Backtracking()."
            )
        t = float(known(work.manifold, curve.start.point, curve.direction))
        return curve.backtracked(t if t > 0.0 and isfinite(t) else guess, curve.start.cost)
