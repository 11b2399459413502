"""Many independent problems of one kind at once, each with its own step lengths, steps and end.

Decisions that solvers make by numbers are made here by arrays with one number for each problem, and `where` replaces
`if`: a round of all problems takes a few calls, independent of their number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number, one_of, optional, shown
from rmopt.core.cost import Cost
from rmopt.core.points import in_precision, is_finite, normal_like, of_reals
from rmopt.core.problem import Problem, unchanged
from rmopt.core.product import Parts
from rmopt.core.runs import running
from rmopt.costs.automatic import AutomaticCost
from rmopt.costs.backends import AUTOGRAD, JAX, TORCH, Backend
from rmopt.errors import InvalidInputError, MissingCapabilityError, RmoptError, broke_down
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.solvers.batch.oracle import ROUNDED_AWAY, is_extrinsic
from rmopt.solvers.batch.step_lengths import PAST, RISE, ROUNDING, SHARE, TRIALS
from rmopt.solvers.batch.trust_regions import ACCEPTED
from rmopt.solvers.batch.trust_regions import ROUNDING as ROUNDED

# Rounds between two tests of which problems continue: each test transfers a number from its device.
LOOK = 5


@dataclass(frozen=True, eq=False, repr=False)
class ManyResult:
    """The ends of many problems, as arrays in the points' library whose first axis numbers the problems.

    Attributes
    ----------
    points : array, shape (k, …)
    costs, gradient_norms : array, shape (k,)
    converged : bool array, shape (k,)
        Whether the gradient is short enough and the cost is finite.
    iterations : int array, shape (k,)
        Steps that were tried.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Euclidean
    >>> from rmopt.solvers import solve_many
    >>> result = solve_many(Euclidean(2), lambda x: (x**2).sum(1), np.ones((3, 2)))
    >>> result, bool((result.costs < 1e-12).all())
    (ManyResult(3 of 3 converged, 2 to 2 iterations), True)
    """

    points: Array
    costs: Array
    gradient_norms: Array
    converged: Array
    iterations: Array

    def __repr__(self) -> str:
        done, steps = map(ns.to_numpy, (self.converged, self.iterations))
        return f"ManyResult({done.sum():,} of {len(done):,} converged, {steps.min()} to {steps.max()} iterations)"


class Stand(NamedTuple):
    """The states of problems, as arrays with an entry for each.

    Attributes
    ----------
    point, cost, ambient, gradient, square : array
        The Euclidean and the Riemannian gradient, and the square of its length.
    size, level, weight : array
        The next step length or radius, and the level and weight for the comparison of costs.
    refused, rounds : array
        Refused trials since the last step, and all trials.
    first, goal, index : array
        The first square, the target square, and the numbers of the problems.
    """

    point: Any
    cost: Any
    ambient: Any
    gradient: Any
    square: Any
    size: Any = None
    level: Any = None
    weight: Any = None
    refused: Any = None
    rounds: Any = None
    first: Any = None
    goal: Any = None
    index: Any = None

    def going(self) -> Any:
        """Return which problems continue."""
        return (self.square > self.goal) & (self.refused < TRIALS)

    def of(self, rows: Array) -> "Stand":
        """Return some of the problems."""
        take = ns.namespace(rows).take
        return Stand(*(take(one, rows, axis=0) for one in self))


class Work:
    """The oracle of the problems for a method.

    Parameters
    ----------
    manifold : ArrayManifold
    cost : Cost
        The cost of many points: as many numbers, and their gradients.
    like : array
        The points.
    """

    def __init__(self, manifold: ArrayManifold, cost: Any, like: Array) -> None:
        self.manifold, self.cost = manifold, cost
        self._stays = is_extrinsic(manifold, manifold.default_transport)
        self.noise, self.inner_steps = ROUNDING * ns.coarseness(like), min(manifold.dim, 500)

    def look(self, point: Array) -> Stand:
        """Return costs and gradients, and refuse results of wrong shapes."""
        if isinstance(self.cost, AutomaticCost):
            # The derivatives of a weighted sum by its weights are the costs.
            _, (ambient, cost) = self.cost.weighted.unread(weighted(point))
        else:
            cost, ambient = self.cost.value_and_gradient(point)
        for what, found, shape in (("value", cost, point.shape[:1]), ("gradient", ambient, point.shape)):
            if tuple(getattr(found, "shape", ())) != tuple(shape):
                raise InvalidInputError(
                    f"the {what} of {self.cost._name} is {shown(found)}, and of {point.shape[0]} points it must be "
                    f"an array of shape {tuple(shape)}; return one for each point."
                )
        cost = ns.converted(cost, point, ns.real_type(point))
        ambient = ns.copied(ns.matched(ambient, point, stays=True))
        gradient = self.manifold.euclidean_to_riemannian_gradient(point, ambient)
        return Stand(point, cost, ambient, gradient, self.dots(point, gradient, gradient))

    def dots(self, point: Array, a: Array, b: Array) -> Any:
        """Return the inner products of all problems."""
        return self.manifold.inner_products(point, a, b)

    def hessian(self, at: Stand) -> Callable[[Array], Array]:
        """Return the Riemannian Hessians of all problems as a function of tangent vectors."""
        manifold: Any = self.manifold
        if isinstance(self.cost, AutomaticCost):
            point = weighted(at.point)
            both = self.cost.weighted.hessian_along(point)

            def along(direction: Array) -> Any:
                return both(Parts([direction, 0.0 * point[1]]))[0]
        else:
            along = self.cost.hessian_along(at.point)

        def product(tangent: Array) -> Array:
            bent = ns.matched(along(manifold.embedding(at.point, tangent)), at.point)
            return manifold.euclidean_to_riemannian_hessian(at.point, at.ambient, bent, tangent)

        return product

    def moved(self, point: Array, tangent: Array) -> Array:
        """Return the points at the ends of steps, or unchanged points if a step is so long that it fails."""
        try:
            return self.manifold.default_retraction(self.manifold, point, tangent)
        except (ValueError, RuntimeError) as error:
            if not (isinstance(error, RmoptError) or broke_down(error)):
                raise
            return point

    def carried(self, start: Array, end: Array, vector: Array) -> Array:
        """Return tangent vectors at the ends of steps, or as ambient vectors."""
        return vector if self._stays else self.manifold.default_transport(self.manifold, start, end, vector)


Step = Callable[[Work, Stand], tuple[Stand, Any, Any]]


def weighted(point: Array) -> Parts:
    """Return points with a weight of 1 for each."""
    return Parts([point, ns.real(ns.zeros(point.shape[:1], point)) + 1.0])


def each(numbers: Any, like: Any) -> Any:
    """Return numbers of problems as an array that broadcasts with their points."""
    return ns.namespace(numbers).reshape(numbers, (-1, *[1] * (like.ndim - 1)))


def chosen(which: Any, new: Any, old: Any) -> Any:
    """Return the new arrays of some problems, and the old ones of the others."""
    return old if new is old else ns.namespace(which).where(each(which, old), new, old)


def barzilai_borwein(work: Work, at: Stand) -> tuple[Stand, Any, Any]:
    """Return the ends of steps along the gradients, which of them are taken, and the next sizes of the others.

    The rules are those of `BarzilaiBorwein`.
    """
    t, cost, xp = at.size, at.cost, ns.namespace(at.cost)
    new = work.look(work.moved(at.point, at.gradient * each(-t, at.point)))
    change = new.gradient - work.carried(at.point, new.point, at.gradient)
    bend = -work.dots(new.point, at.gradient, change)
    promised, noise = t * at.square, work.noise * abs(cost)
    reference = xp.maximum(at.level, cost)
    flat = (SHARE * promised <= 10.0 * noise) & (abs(at.square - bend) <= at.square)
    falls = (new.cost <= reference - SHARE * promised) | (flat & (new.cost <= reference + noise))
    sy = abs(t * bend)
    short = sy / work.dots(new.point, change, change)
    better = xp.where(at.rounds % 2 == 1, short, t * promised / sy)
    weight = PAST * at.weight + 1.0
    level = ((weight - 1.0) * at.level + new.cost) / weight
    level = xp.minimum(level, new.cost + RISE * abs(new.cost - cost))
    rise = new.cost - cost + promised
    part = xp.where(xp.isfinite(rise) & (rise > 0.0), xp.clip(0.5 * promised / rise, 0.1, 0.5), 0.1)
    size = xp.where(sy > 0.0, better, 10.0 * t)
    return new._replace(size=size, level=level, weight=weight), falls, t * part


def trust_regions(work: Work, at: Stand) -> tuple[Stand, Any, Any]:
    """Return the ends of Newton steps in trust regions, which of them are taken, and the radii of the others.

    The rules are those of `TrustRegions`.
    """
    point, cost, xp = at.point, at.cost, ns.namespace(at.cost)
    product = work.hessian(at)
    step, residual, p = None, at.gradient, -at.gradient
    rr, pp, sp, ss, radius = at.square, at.square, 0.0 * cost, 0.0 * cost, at.size
    exact = xp.maximum((at.square / at.first) ** 0.25, 0.3 * (at.goal / at.square) ** 0.5)
    enough = at.square * xp.minimum(0.1 + 0.0 * exact, exact) ** 2
    runs = at.going()
    for turn in range(work.inner_steps):
        if turn % LOOK == LOOK - 1 and not bool(xp.any(runs)):
            break
        Hp = product(p)
        curvature = work.dots(point, p, Hp)
        bends = curvature > 0.0
        alpha = rr / xp.where(bends, curvature, 1.0)
        if step is None:
            first = xp.where(bends, 10.0 * alpha * rr**0.5, work.manifold.typical_dist)
            radius = xp.where(radius < 0.0, xp.clip(first, None, work.manifold.diameter), radius)
        reached = ss + 2.0 * alpha * sp + alpha * alpha * pp
        outside = ~(bends & (reached < radius * radius))
        edge = (-sp + (sp * sp + pp * (radius * radius - ss)) ** 0.5) / pp
        alpha = xp.where(runs, xp.where(outside, edge, alpha), 0.0)
        ss = xp.where(runs, xp.where(outside, radius * radius, reached), ss)
        moved = p * each(alpha, p)
        step = moved if step is None else step + moved
        residual = residual + Hp * each(alpha, p)
        new = work.dots(point, residual, residual)
        runs = runs & ~outside & (new > enough)
        # Problems that have ended do not move, whatever the direction.
        beta, rr = xp.where(runs, new / rr, 0.0), xp.where(runs, new, rr)
        p, sp = p * each(beta, p) - residual, beta * (sp + alpha * pp)
        pp = rr + beta * beta * pp
    step, size = work.manifold.to_tangent_space(point, step), ss**0.5
    promised = -0.5 * (work.dots(point, at.gradient, step) + work.dots(point, residual, step))
    there = work.look(work.moved(point, step))
    noise = max(float(ROUNDED), work.noise) * abs(cost)
    ratio = (cost - there.cost + noise) / (abs(promised) + noise)
    falls = xp.where(abs(promised) <= noise, there.square < at.square, ratio >= ACCEPTED)
    wider = xp.where(ratio > 0.75, xp.maximum(radius, 2.0 * size), radius)
    return there._replace(size=xp.where(ratio < 0.25, 0.25 * size, wider)), falls, 0.25 * size


METHODS: dict[str, Step] = {"barzilai-borwein": barzilai_borwein, "trust-regions": trust_regions}


def solve_many(
    manifold: Any,
    cost: Any,
    points: Any,
    *,
    method: str = "barzilai-borwein",
    max_iter: int = 1000,
    tol: float | None = None,
) -> ManyResult:
    """Minimise k independent problems of one kind at once, each from its own point.

    Many small problems need only a few calls of the points' library per round, instead of one run each. Each problem
    has its own step lengths and ends when its own gradient is short enough. Then its point no longer moves.

    Parameters
    ----------
    manifold : ArrayManifold
        The manifold of one point. Its default retraction and transport are used.
    cost : Cost or callable
        The cost of all points at once: its `value` is k numbers and its `gradient` the stacked gradients, which for
        each problem depend on its own point alone (this is checked numerically). Also an automatic cost whose
        function returns k numbers, or such a function. If it has ``cost[rows]``, the cost of some of the problems,
        only the remaining ones are evaluated when most have ended.
    points : array, shape (k, …)
        Points in any library, real or complex.
    method : {"barzilai-borwein", "trust-regions"}
        Steps along the gradient, as by `BarzilaiBorwein`, or Newton steps, as by `TrustRegions`, for costs with a
        ``hessian(points, directions)``.
    max_iter : int
        The largest number of steps that each problem tries.
    tol : float, optional
        A problem ends at this length of its gradient, relative to the first one. Defaults to 1e-6, or 1e-4 in single
        precision.

    Returns
    -------
    ManyResult

    Raises
    ------
    InvalidInputError
        If points or values of the cost have wrong shapes, points are off the manifold, or problems depend on each
        other.
    MissingCapabilityError
        If points of the manifold are not arrays, or trust regions have no Hessian.

    See Also
    --------
    rmopt.manifolds.Power : points coupled by one cost.

    Examples
    --------
    >>> import autograd.numpy as anp, numpy as np
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import solve_many
    >>> A = np.array([np.diag(np.roll(np.arange(4.0), i)) for i in range(4)])
    >>> def quotients(x):
    ...     return anp.einsum("ki,kij,kj->k", x, A, x)
    >>> result = solve_many(Sphere(4), quotients, np.full((4, 4), 0.5))
    >>> bool(result.converged.all()), abs(result.points).round(3).argmax(1).tolist()
    (True, [0, 1, 2, 3])
    """
    advance = METHODS[one_of("method", method, METHODS)]
    max_iter, given = integer("max_iter", max_iter), optional(number, least=0)("tol", tol)
    points = _started(manifold, points)
    if callable(cost) and not isinstance(cost, Cost | type):
        cost = AutomaticCost(cost, _differentiating(points))
    problem = Problem(manifold, cost)
    if advance is trust_regions and (reason := problem.lacks_hessian()) is not None:
        raise MissingCapabilityError(reason)
    work = Work(manifold, cost, points)
    with running(), np.errstate(all="ignore"):
        at = _first(work, points, ns.slack(1e-6, points) if given is None else given, advance)
        step: Callable[..., Stand] = partial(_tried, work, advance)
        if isinstance(cost, AutomaticCost) and advance is barzilai_borwein:
            parts = manifold, manifold.default_retraction, manifold.default_transport
            step = cost.weighted.as_one("step", step, (points, at), parts)
        ended, xp = [], ns.namespace(points)
        for turn in range(max_iter):
            if turn % LOOK == 0:
                going = at.going()
                count = int(xp.sum(xp.astype(going, xp.int32)))
                if count == 0:
                    break
                if 2 * count <= going.shape[0] and hasattr(cost, "__getitem__"):
                    ended.append(at.of(xp.nonzero(~going)[0]))
                    rows = xp.nonzero(going)[0]
                    at = at.of(rows)
                    work = Work(manifold, work.cost[rows], at.point)
                    step = partial(_tried, work, advance)
            at = step(at.point, at)
    return _gathered([*ended, at])


def _tried(work: Work, advance: Step, point: Array, at: Stand) -> Stand:
    """Return the states after one more step of each problem that continues."""
    xp, going = ns.namespace(point), at.going()
    new, falls, size = advance(work, at)
    taken = going & falls & xp.isfinite(new.cost) & xp.isfinite(new.square)
    merged = [old if end is None else chosen(taken, end, old) for end, old in zip(new, at, strict=True)]
    return Stand(*merged)._replace(
        size=chosen(taken, new.size, size), rounds=at.rounds + xp.astype(going, xp.int32),
        refused=chosen(taken, 0 * at.refused, at.refused + 1),
    )  # fmt: skip


def _started(manifold: Any, points: Any) -> Array:
    """Return the points in real or complex numbers, and refuse points of other manifolds than those of arrays."""
    if not isinstance(manifold, ArrayManifold):
        raise MissingCapabilityError(
            f"solve_many needs a manifold whose points are arrays, got {shown(manifold)}; run a solver for each "
            "problem."
        )
    shape = tuple(getattr(points, "shape", ()))
    if not ns.is_array(points) or shape[1:] != manifold.shape or 0 in shape[:1]:
        raise InvalidInputError(
            f"points must be an array of shape (k, {', '.join(map(str, manifold.shape))}), with a point of "
            f"{manifold} for each of k problems, not {f'of shape {shape}' if shape else shown(points)}."
        )
    points = in_precision(of_reals(points))
    reason = (
        manifold.check_point(points[0, ...]) if is_finite(points) else "one of them holds NaN or infinity"
    )
    if (reason := reason or manifold.refusal(points)) is not None:
        raise InvalidInputError(f"the points are not all on {manifold}: {reason}.")
    return points


def _differentiating(points: Array) -> Backend:
    """Return the backend that differentiates functions of such arrays."""
    library = ns.namespace(points).__name__.removeprefix("array_api_compat.").partition(".")[0]
    known = {"numpy": AUTOGRAD, "jax": JAX, "torch": TORCH}
    if library not in known:
        raise MissingCapabilityError(
            f"no library differentiates functions of arrays of {library}; write a Cost with a gradient."
        )
    return known[library]


def _first(work: Work, points: Array, tol: float, advance: Step) -> Stand:
    """Return the initial states, and refuse problems that depend on each other."""
    xp, k = ns.namespace(points), points.shape[0]
    at = unchanged(work.cost, points, lambda: work.look(points), "value and gradient")
    ambient, tiny, ones = at.ambient, float(ns.limits(points).tiny), weighted(points)[1]
    lengths = ns.real_dots(ambient, ambient, ambient.ndim - 1)
    rounding = float(ROUNDED_AWAY) * ns.coarseness(points) * xp.reshape(lengths, (-1,)) ** 0.5
    norm = at.square**0.5
    # A start near the minimum is no measure for the final gradient.
    least = xp.maximum(xp.where(norm <= 1e4 * rounding, rounding, 0.0), tiny**0.5 * xp.clip(norm, 1.0, None))
    size = 1.0 / xp.clip(norm, tiny, None)
    _check_independence(work, at)
    broken = ~(xp.isfinite(at.cost) & xp.isfinite(at.square))
    zero = xp.astype(0.0 * ones, xp.int32)
    return at._replace(
        size=-ones if advance is trust_regions else size, level=at.cost, weight=ones, rounds=zero,
        refused=xp.astype(broken, xp.int32) * TRIALS, first=at.square, goal=xp.maximum(tol * norm, least) ** 2,
        index=ns.asarray(np.arange(k, dtype=np.int32), points),
    )  # fmt: skip


def _check_independence(work: Work, at: Stand) -> None:
    """Check that moving half of the points changes nothing at the others."""
    rng = np.random.default_rng(0)
    moves = rng.permutation(at.point.shape[0]) % 2 == 1
    along = work.manifold.projection(at.point, normal_like(at.point, rng))
    ends = work.moved(at.point, along * each(0.3 / work.dots(at.point, along, along) ** 0.5, along))
    there = work.look(chosen(ns.asarray(moves, at.point, bool), ends, at.point))
    for what, *pair in (("value", at.cost, there.cost), ("gradient", at.ambient, there.ambient)):
        old, new = (ns.to_numpy(one).reshape(len(moves), -1)[~moves] for one in pair)
        finite, axis = np.isfinite(old), None if what == "value" else 1
        size = np.max(abs(old), axis=axis, keepdims=True, where=finite, initial=0.0)
        if not np.all((abs(new - old) <= ns.slack(1e-9, at.point) * size) | ~finite):
            raise InvalidInputError(
                f"the {what} of {work.cost._name} at a point changed with other points; let each of the numbers "
                "depend on its own point alone."
            )


def _gathered(stands: list[Stand]) -> ManyResult:
    """Return the ends of all problems, in order."""
    xp = ns.namespace(stands[0].point)
    whole = Stand(*map(xp.concat, zip(*stands, strict=True)))
    at = whole.of(xp.argsort(whole.index)) if len(stands) > 1 else whole
    converged = (at.square <= at.goal) & xp.isfinite(at.square) & xp.isfinite(at.cost)
    return ManyResult(at.point, at.cost, at.square**0.5, converged, at.rounds)
