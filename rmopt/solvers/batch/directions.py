"""Descent directions: steepest descent, conjugate gradients, L-BFGS."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar

from rmopt.core.arguments import integer, one_of
from rmopt.core.values import Value
from rmopt.solvers.batch.oracle import Iterate, Oracle

# Pairs of L-BFGS with less curvature than this, relative to a short gradient's length, are left out.
CAUTION = 1e-6


class Move:
    """A step that was taken, with the quantities that directions need.

    Parameters
    ----------
    end : Trial
    steepest : bool
        Whether the direction is the negative gradient.

    Attributes
    ----------
    work : Oracle
    start : Iterate
        The start of the step.
    direction : tangent vector
        At the start.
    slope : float
        Of the cost along the direction at the start.
    t : float
        The factor of the direction.
    point, cost, gradient : object
        At the end.
    squared : float
        The squared length of the gradient.
    inner : callable
        The inner product of two tangent vectors at the end.
    old_gradient, old_direction : tangent vector
        Those of the start, carried to the end. A direction made of them is projected in the end.
    change : tangent vector
        The gradient minus the old one.
    slope_after : float
        The slope of the cost along the direction at the end.
    """

    def __init__(self, end: Any, steepest: bool) -> None:
        curve = end.curve
        self.work, self.start, self.direction = curve.work, curve.start, curve.direction
        self.slope, self.t, self.point = curve.slope, end.t, end.point
        self.cost, self.gradient = end.cost, end.gradient
        self._seen, at_once = end.seen, self.work.at_once
        self.inner: Callable[[Any, Any], float] = self._known if at_once else self.work.metric(self.point)
        self.squared = float(self.inner(self.gradient, self.gradient))
        self.old_gradient, self.old_direction = self.start.gradient, self.direction
        if not self.work.is_extrinsic:
            carry, start = self.work.carry, self.start.point
            self.old_gradient = carry(start, self.point, self.old_gradient)
            self.old_direction = -self.old_gradient if steepest else carry(start, self.point, self.direction)
        self.slope_after = float(self.inner(self.gradient, self.old_direction))

    def _known(self, a: Any, b: Any) -> float:
        found = None if self._seen is None else self._seen.products.get((id(a), id(b)))
        return self.work.inner(self.point, a, b) if found is None else found

    @property
    def change(self) -> Any:
        """Return the change of the gradient."""
        return self.gradient - self.old_gradient if self._seen is None else self._seen.change

    @cached_property
    def old_squared(self) -> float:
        """Return the squared length of the carried direction."""
        return self.inner(self.old_direction, self.old_direction)

    @cached_property
    def slope_carried(self) -> float:
        """Return the inner product of the old gradient with the direction, both carried."""
        return self.inner(self.old_gradient, self.old_direction)


class Direction(Value, ABC):
    """Chooses the tangent vector of a step from the gradient and a memory.

    A direction that does not lead downhill is replaced by the negative gradient, and the memory starts again. The
    memory consists of tangent vectors and numbers, in the same form from the first step on.

    Attributes
    ----------
    is_scaled : bool
        Whether the length of its vectors is meaningful. Then 1 is the first trial step size.

    See Also
    --------
    SteepestDescent : the negative gradient.
    Conjugate : with the previous direction.
    QuasiNewton : with the curvature of the last steps.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import Backtracking, Direction, LineSearchSolver
    >>> class WithMomentum(Direction):
    ...     def begin(self, work, state):
    ...         return work.manifold.zero_vector(state.point)
    ...
    ...     def __call__(self, work, state, downhill):
    ...         return downhill + 0.3 * state.memory
    ...
    ...     def after(self, move, memory):
    ...         return move.old_direction
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> solver = LineSearchSolver(WithMomentum(), Backtracking())
    >>> solver.run(problem, random_state=0).converged
    True
    """

    is_scaled: ClassVar[bool] = False

    def begin(self, work: Oracle, state: Iterate) -> Any:
        """Return the memory at the initial point."""
        return ()

    @abstractmethod
    def __call__(self, work: Oracle, state: Iterate, downhill: Any) -> Any:
        """Return the direction, or in a space of arrays a vector whose projection it is (see `Oracle`).

        Parameters
        ----------
        work : Oracle
        state : Iterate
        downhill : tangent vector
            The negative gradient, preconditioned if the cost has a preconditioner.
        """

    def after(self, move: Move, memory: Any) -> Any:
        """Return the memory after a step."""
        return memory

    def fresh(self, memory: Any) -> bool:
        """Return whether the memory is still empty, so that the direction is the gradient's."""
        return not self.is_scaled


class SteepestDescent(Direction):
    """The negative gradient.

    See Also
    --------
    Conjugate : mostly far fewer steps, at the price of one transported vector.
    """

    def __call__(self, work: Oracle, state: Iterate, downhill: Any) -> Any:
        return downhill


def _hager_zhang(move: Move, z: Any, y: Any, dy: float, before: float) -> float:
    yy, zd = move.inner(y, y), move.inner(z, move.old_direction)
    length = move.old_squared**0.5
    floor = -1.0 / (length * min(0.01, move.start.norm))
    return max((move.inner(z, y) - 2.0 * yy * zd / dy) / dy, floor)


# β from the move, the preconditioned new gradient, the change of the gradient, that of the slope, and the product of
# the old gradient with its preconditioned form.
RULES: dict[str, Callable[[Move, Any, Any, float, float], float]] = {
    "hestenes-stiefel": lambda move, z, y, dy, _: max(0.0, move.inner(z, y) / dy),
    "polak-ribiere": lambda move, z, y, dy, before: max(0.0, move.inner(z, y) / before),
    "fletcher-reeves": lambda move, z, y, dy, before: move.inner(z, move.gradient) / before,
    "dai-yuan": lambda move, z, y, dy, _: move.inner(z, move.gradient) / dy,
    "hager-zhang": _hager_zhang,
    "hybrid": lambda move, z, y, dy, _: max(0.0, min(move.inner(z, y), move.inner(z, move.gradient)) / dy),
}


class Conjugate(Direction):
    """Nonlinear conjugate gradients: the negative gradient plus β times the previous direction (Sato 2022).

    Parameters
    ----------
    rule : {"hestenes-stiefel", "polak-ribiere", "fletcher-reeves", "dai-yuan", "hager-zhang", "hybrid"}
        The formula of β. The first two are not negative (HS+, PR+), and "hybrid" combines Hestenes–Stiefel and
        Dai–Yuan.

    See Also
    --------
    QuasiNewton : more memory, and fewer steps for ill-conditioned costs.
    SteepestDescent : no memory.

    References
    ----------
    Sato, Riemannian conjugate gradient methods: general framework and specific algorithms with convergence
    analyses, SIAM J. Optim. 32 (2022), https://doi.org/10.1137/21M1464178. Hager and Zhang, A new conjugate
    gradient method with guaranteed descent and an efficient line search, SIAM J. Optim. 16 (2005),
    https://doi.org/10.1137/030601880.
    """

    def __init__(self, rule: str = "hestenes-stiefel") -> None:
        self.rule = one_of("rule", rule, RULES)

    def begin(self, work: Oracle, state: Iterate) -> Any:
        return work.manifold.zero_vector(state.point), 0.0

    def __call__(self, work: Oracle, state: Iterate, downhill: Any) -> Any:
        turned, before = state.memory
        return downhill + turned if before else downhill

    def after(self, move: Move, memory: Any) -> Any:
        dy = move.slope_after - move.slope
        if not dy > 0.0:
            # No positive curvature was found: begin again.
            return memory[0], 0.0
        # After a step along the negative gradient the slope contains all information.
        before = memory[1] or -move.slope
        precondition = move.work.preconditioner(move.point) if move.work.preconditions else None
        z = move.gradient if precondition is None else precondition(move.gradient)
        beta = RULES[self.rule](move, z, move.change, dy, before)
        return (move.old_direction * beta, move.inner(z, move.gradient)) if beta else (memory[0], 0.0)

    def fresh(self, memory: Any) -> bool:
        return not memory[1]


def _two_loops(inner: Any, q: Any, pairs: Any, scale: float, precondition: Any = None) -> Any:
    """Return the product of a vector with the inverse Hessian of some pairs."""
    shares = []
    for s, y, sy in reversed(pairs):
        share = inner(s, q) / sy
        shares.append(share)
        q = q - y * share
    q = (q if precondition is None else precondition(q)) * scale
    for (s, y, sy), share in zip(pairs, reversed(shares), strict=True):
        q = q + s * (share - inner(y, q) / sy)
    return q


def _along_pairs(dot: Any, point: Any, *rest: Any) -> Any:
    return _two_loops(partial(dot, point), *rest)


class QuasiNewton(Direction):
    """L-BFGS: the inverse Hessian from the last steps and changes of the gradient (Huang, Gallivan and Absil 2015).

    Pairs are transported to each new point. Pairs of too little curvature are left out (Li and Fukushima 2001), so
    that directions lead downhill.

    Parameters
    ----------
    memory : int
        The number of stored pairs.

    See Also
    --------
    Conjugate : memory of a single direction.

    References
    ----------
    Huang, Gallivan and Absil, A Broyden class of quasi-Newton methods for Riemannian optimization, SIAM J.
    Optim. 25 (2015), https://doi.org/10.1137/140955483.
    """

    is_scaled = True

    def __init__(self, memory: int = 10) -> None:
        self.memory = integer("memory", memory, 1)

    def begin(self, work: Oracle, state: Iterate) -> Any:
        zero = work.manifold.zero_vector(state.point)
        return ((zero, zero, 0.0),) * self.memory, 0, 1.0

    def __call__(self, work: Oracle, state: Iterate, downhill: Any) -> Any:
        pairs, count, scale = state.memory
        if not count:
            return downhill
        if work.compiles:
            # Compiled programs have a fixed length: missing pairs are zeros.
            padded = [(s, y, sy or 1.0) for s, y, sy in pairs]
            return work.together(_along_pairs, state.point, downhill, padded, scale)
        precondition = work.preconditioner(state.point) if work.preconditions else None
        q = downhill if precondition is None else -state.gradient
        return _two_loops(work.metric(state.point), q, pairs[-count:], scale, precondition)

    def after(self, move: Move, memory: Any) -> Any:
        (pairs, count, scale), kept = memory, []
        work, start, end = move.work, move.start.point, move.point
        for s, y, sy in pairs[self.memory - min(count, self.memory - 1) :]:
            if not work.is_extrinsic:
                s, y = work.carry(start, end, s), work.carry(start, end, y)
                sy = move.inner(s, y)
            if sy > 0.0:
                kept.append((s, y, sy))
        d, y = move.old_direction, move.change
        s = d * move.t
        sy = move.t * (move.slope_after - move.slope_carried)
        if sy > CAUTION * min(1.0, move.start.norm) * move.t**2 * move.inner(d, d) > 0.0:
            precondition = work.preconditioner(move.point) if work.preconditions else None
            yz = move.inner(y, y if precondition is None else precondition(y))
            if yz > 0.0:
                kept.append((s, y, sy))
                scale = sy / yz
        return (*pairs[: self.memory - len(kept)], *kept), len(kept), scale

    def fresh(self, memory: Any) -> bool:
        return not memory[1]
