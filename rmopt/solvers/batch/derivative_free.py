"""Minimisation by values alone, without derivatives: a simplex in a tangent space, and a swarm."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isfinite
from operator import itemgetter, mul
from typing import Annotated, Any, NamedTuple

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, by_keyword, integer, number, optional, shown
from rmopt.core.points import arrays_of, as_like, in_precision, is_finite, rebuilt, size_of
from rmopt.core.problem import Problem, unchanged
from rmopt.core.product import Parts
from rmopt.core.retraction import Retraction
from rmopt.core.streams import Stream, generator
from rmopt.errors import DivergedError, InvalidInputError, RmoptError, broke_down
from rmopt.manifolds import GeneralizedStiefel, Power, Product, Stiefel
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.solvers.batch.curvature import mixed, tangent_basis
from rmopt.solvers.batch.many import chosen, each
from rmopt.solvers.result import Result
from rmopt.solvers.run import Solver
from rmopt.solvers.stop import Converged

# Edges of the first simplex and of a restarted one, as shares of the manifold's size and of the first edges, and the
# range of a simplex in a tangent space.
EDGE, AGAIN, FAR = 0.25, 0.1, 0.5
# Manifolds with an iterative logarithm; their subclasses have closed forms.
SEARCHED = (Stiefel, GeneralizedStiefel)


class Crowd:
    """The oracle of solvers without derivatives: evaluations at many points at once, with counts.

    Many points are one array if points are arrays and the manifold's formulas accept it, and else `Parts`.

    Parameters
    ----------
    problem : Problem
    retraction : Retraction, str or None
    seed : int
    """

    def __init__(self, problem: Problem, retraction: Any, seed: int) -> None:
        manifold = problem.manifold.using(retraction)
        self.problem, self.seed, self.stacks = problem, seed, False
        if isinstance(manifold, ArrayManifold):
            with suppress(InvalidInputError):
                self.stacks = Power(manifold, 2) is not None
        self.manifold: Any = manifold._in_a_run()
        # The current state: evaluations, and the least cost with its point.
        self.counts: dict[str, int] = {}
        self.best: tuple[float, Any] = np.inf, None
        # The precision of the run, and the base point of the simplex's tangent space, with `_basis`.
        self.kind: Any = None
        self._base: Any = None

    def gathered(self, points: list[Any]) -> Any:
        """Return many points as one array, or as `Parts`."""
        return ns.namespace(points[0]).stack(points) if self.stacks else Parts(points)

    def listed(self, points: Any) -> list[Any]:
        """Return many points one by one."""
        return [points[i, ...] for i in range(points.shape[0])] if self.stacks else [*points]

    def each(self, function: Callable[..., Any], *crowds: Any) -> Any:
        """Apply a function to each of many points and vectors."""
        return function(*crowds) if self.stacks else Parts([*map(function, *crowds)])

    def times(self, vectors: Any, numbers: Array) -> Any:
        """Return each vector times a number."""
        if not self.stacks:
            return Parts([*map(mul, vectors, numbers.tolist())])
        return vectors * each(ns.asarray(numbers, vectors, self.kind), vectors)

    def chosen(self, which: Array, new: Any, old: Any) -> Any:
        """Return the new points at the chosen places, and the old ones elsewhere."""
        if self.stacks:
            return chosen(ns.asarray(which, new, bool), new, old)
        return Parts([a if yes else b for yes, a, b in zip(which, new, old, strict=True)])

    def ends(self, points: Any, vectors: Any) -> Any:
        """Return the ends of steps."""
        if self.stacks:
            with suppress(ValueError, RuntimeError):
                there = in_precision(self.manifold.retraction(points, vectors), self.kind)
                if is_finite(there) and self.manifold.refusal(there) is None:
                    self.counts["retractions"] += there.shape[0]
                    return there
        return self.gathered([*map(self.end, self.listed(points), self.listed(vectors))])

    def end(self, point: Any, vector: Any) -> Any:
        """Return the end of a step, or its start if it fails or leaves the manifold."""
        self.counts["retractions"] += 1
        try:
            there = in_precision(self.manifold.retraction(point, vector), self.kind)
        except (ValueError, RuntimeError) as error:
            if not (isinstance(error, RmoptError) or broke_down(error)):
                raise
            return point
        return point if self.manifold.check_point(there) else there

    def values(self, points: Any) -> Array:
        """Return the costs at many points, by one call if the cost has `values`, with infinity for NaN."""
        cost: Any = self.problem.cost
        if self.stacks and hasattr(cost, "values"):
            given, count = cost.values(points), points.shape[0]
            found = ns.to_numpy(given) if ns.is_array(given) else np.asarray(given)
            if found.shape != (count,) or found.dtype.kind not in "fiu":
                raise InvalidInputError(
                    f"values of {cost._name} gave {shown(given)} at {count} points; return an array of shape "
                    f"({count},), of real numbers."
                )
        else:
            found = np.array([*map(self.problem.value, self.listed(points))])
        found = np.where(np.isnan(found), np.inf, found.astype(float))
        self.counts["costs"] += len(found)
        if found[least := int(found.argmin())] < self.best[0]:
            self.best = float(found[least]), self.listed(points)[least]
        return found

    def norms(self, points: Any, vectors: Any) -> Array:
        """Return the lengths of tangent vectors."""
        if self.stacks:
            return ns.to_numpy(self.manifold.inner_products(points, vectors, vectors)) ** 0.5
        return np.array([*map(self.manifold.norm, points, vectors)])

    def vector(self, base: Any, coordinates: Array) -> Any:
        """Return a tangent vector at a point by its coordinates."""
        if self._base is not base:
            self._base, self._basis = base, tangent_basis(self.manifold, base)
        stacks = zip(*map(arrays_of, self._basis), strict=True)
        return rebuilt(self._basis[0], [mixed(coordinates, [*stack]) for stack in stacks])


def toward(manifold: Any, point: Any, other: Any) -> Any:
    """Return a tangent vector at a point towards another one, to first order the logarithm.

    It is the logarithm if that has a closed form, and else the projection of the ambient difference.
    """
    if isinstance(manifold, Product):
        return Parts([*map(toward, manifold.factors, point, other)])
    base = manifold
    while isinstance(base, Power):
        base = base.base
    if manifold.knows("log") and type(base) not in SEARCHED:
        return manifold.log(point, other)
    return manifold.projection(point, manifold.embed_point(other) - manifold.embed_point(point))


class Stand(NamedTuple):
    """The state of a run.

    Attributes
    ----------
    point : point
        The best one so far.
    cost, size, spread : float
        The cost there, the largest distance from there to another point, and the largest excess of a cost.
    first_size, first_spread : float
        Those after the first step.
    crowd : Simplex or Swarm
    counts : dict of int
    steps, updates : int
    """

    point: Any
    cost: float
    crowd: Any
    counts: dict[str, int]
    size: float = 0.0
    spread: float = 0.0
    first_size: float = 0.0
    first_spread: float = 0.0
    steps: int = 0
    updates: int = 0


@by_keyword
class _DerivativeFree(CheckedValue, Solver):
    """The base of solvers that use values alone, with the parameters of `NelderMead` and `ParticleSwarm`."""

    keeps_single, takes_all_arrays, needs_gradients = True, True, False
    not_identity = (*Solver.not_identity, "tol")

    max_iter: Annotated[int, integer] = 5000
    tol: Annotated[float | None, optional(number, least=0)] = None
    retraction: Retraction | str | None = None

    def prepare(self, problem: Problem, seed: int) -> Crowd:
        return Crowd(problem, self.retraction, seed)

    def begin(self, work: Crowd, point: Any) -> Stand:
        problem, cost = work.problem, work.problem.cost
        with np.errstate(all="ignore"):
            found = problem.real(unchanged(cost, point, lambda: cost.value(point), "value"))
        if not isfinite(found):
            raise DivergedError(f"{cost._name} is {found} at the initial point; start elsewhere.", 0)
        work.kind = ns.real_type(*arrays_of(point))
        return Stand(point, found, self._crowd(work, point, found), {"costs": 1, "retractions": 0})

    @abstractmethod
    def _crowd(self, work: Crowd, point: Any, cost: float) -> Any:
        """Return the simplex or the swarm before the first step, which evaluates their costs."""

    @abstractmethod
    def _step(self, work: Crowd, state: Stand) -> tuple[Any, float, Array]:
        """Return the next simplex or swarm, the largest distance from its best point to another, and the costs."""

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def advance(self, work: Crowd, state: Stand, steps: int) -> Stand:
        """Do one step."""
        if steps == 0:
            return state
        work.best, work.counts = (state.cost, state.point), dict(state.counts)
        crowd, size, costs = self._step(work, state)
        (cost, point), finite = work.best, costs[np.isfinite(costs)]
        done = state._replace(
            point=point, cost=cost, crowd=crowd, counts=work.counts, size=size,
            spread=float(costs.max() - cost), steps=state.steps + 1, updates=state.updates + (cost < state.cost),
        )  # fmt: skip
        return done if state.steps else done._replace(first_size=size, first_spread=float(np.ptp(finite)))

    def observe(self, work: Crowd, state: Stand) -> dict[str, float]:
        """Return the least cost, the spreads of points and costs, and the counts of evaluations."""
        return {"cost": state.cost, "size": state.size, "spread": state.spread, **state.counts}

    def conclude(self, result: Result, work: Crowd, state: Stand) -> Result:
        return replace(result, counts=dict(state.counts))

    def _seen(self, state: Stand) -> tuple[float, float]:
        """Return the smallest significant size and difference of costs."""
        tol = ns.slack(1e-6, *arrays_of(state.point)) if self.tol is None else self.tol
        return tol * state.first_size, tol * max(abs(state.cost), state.first_spread)

    def _settled(self, state: Stand) -> bool:
        """Return whether points and costs agree."""
        size, spread = self._seen(state)
        return state.steps > 0 and state.size <= size and state.spread <= spread

    def finished(self, work: Crowd, state: Stand) -> str | None:
        found = f"points within {state.size:.1e} of the best one, and costs within {state.spread:.1e}"
        if self._settled(state):
            return Converged(found)
        resolved = state.size > 8.0 * float(np.finfo(work.kind).eps) * size_of(state.point)
        return None if resolved or state.steps == 0 else f"rounding: {found}; the cost jumps, or is noise"


class Simplex(NamedTuple):
    """A simplex in a tangent space.

    Attributes
    ----------
    base : point
        The base point of the tangent space.
    corners : array, shape (dim + 1, dim)
        Coordinates there, the best corner first.
    costs : array, shape (dim + 1,)
    level : float
        The least cost when it began.
    """

    base: Any
    corners: Array
    costs: Array
    level: float


@by_keyword
class NelderMead(_DerivativeFree):
    """Minimise by values alone: reflect, expand and shrink a simplex of dim + 1 points (Nelder and Mead).

    It is for costs that have no gradient, jump or are noisy, in fewer than about twenty dimensions. The simplex is in
    the tangent space at a point, from which the retraction maps to points, so that every manifold works. When it has
    moved far from there, a new simplex of its size begins at its best corner.

    `converged` means that a simplex became small, and that a new one around its best corner found no lower cost. No
    gradient is tested: the end need not be a stationary point.

    Parameters
    ----------
    max_iter : int
        Number of steps. A new simplex is one step, with one call for all its costs if the cost has `values`.
    tol : float, optional
        A simplex is small when its edges are at most this share of the first ones, and its costs differ by at most
        this share of their size or of the first difference. 1e-6 unless given, and 1e-4 in single precision.
    retraction : Retraction or str, optional
        The manifold's default retraction unless given.
    edge : float, optional
        Length of the first simplex's edges. Defaults to a quarter of the manifold's `typical_dist`.
    reflection, expansion : float
        How far beyond the centre of the others the worst corner goes, relative to its distance from there.
    contraction : float
        The same for steps that are shorter, to one side or the other.
    shrink : float
        The factor for the edges of a simplex if no step helps.

    See Also
    --------
    ParticleSwarm : looks for global minima.
    rmopt.costs.ValueCost : a cost of a plain function.

    References
    ----------
    Nelder and Mead, A simplex method for function minimization, The Computer Journal 7 (1965),
    https://doi.org/10.1093/comjnl/7.4.308.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import ValueCost
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.solvers import NelderMead
    >>> A = np.diag([5.0, 4.0, 1.0, 0.5])
    >>> problem = Problem(Grassmann(4, 2), ValueCost(lambda U: -np.sum(U * (A @ U))))
    >>> result = NelderMead().run(problem, random_state=0)
    >>> result.converged, round(result.cost, 8)
    (True, -9.0)
    """

    edge: Annotated[float | None, optional(number, above=0)] = None
    reflection: Annotated[float, bounded(number, above=0)] = 1.0
    expansion: Annotated[float, bounded(number, above=1)] = 2.0
    contraction: Annotated[float, bounded(number, above=0, below=1)] = 0.5
    shrink: Annotated[float, bounded(number, above=0, below=1)] = 0.5

    def _crowd(self, work: Crowd, point: Any, cost: float) -> Simplex:
        dim = work.manifold.dim
        return Simplex(point, np.zeros((dim + 1, dim)), np.full(dim + 1, cost), np.inf)

    def _step(self, work: Crowd, state: Stand) -> tuple[Simplex, float, Array]:
        base, corners, costs, level = state.crowd
        scale, again = work.manifold.typical_dist, self._settled(state)

        def ask(rows: Array) -> Array:
            return work.values(work.gathered([work.end(base, work.vector(base, row)) for row in rows]))

        def along(share: float) -> tuple[float, Array]:
            corner = centre + share * (centre - corners[-1])
            return float(ask(corner[None])[0]), corner

        dim = work.manifold.dim
        asked = np.arange(dim + 1) > 0
        if state.steps == 0 or again or np.linalg.norm(corners[0]) > max(FAR * scale, state.size):
            # A new simplex around the best point.
            edge = AGAIN * state.first_size if again else state.size or self.edge or EDGE * scale
            base, level = state.point, state.cost if again else level
            corners, costs = edge * np.eye(dim + 1, dim, -1), np.full(dim + 1, state.cost)
        else:
            corners, costs, centre = corners.copy(), costs.copy(), corners[:-1].mean(axis=0)
            taken = tried = along(self.reflection)
            asked &= False
            if tried[0] < costs[0]:
                taken = min(along(self.expansion), tried, key=itemgetter(0))
            elif tried[0] >= costs[-2]:
                taken = along(self.contraction if tried[0] < costs[-1] else -self.contraction)
                asked[1:] = taken[0] > min(tried[0], costs[-1])
            if asked.any():
                corners[1:] = corners[0] + self.shrink * (corners[1:] - corners[0])
            else:
                costs[-1], corners[-1] = taken
        if asked.any():
            costs[asked] = ask(corners[asked])
        order = np.argsort(costs, kind="stable")
        corners, costs = corners[order], costs[order]
        size = float(np.linalg.norm(corners - corners[0], axis=1).max())
        return Simplex(base, corners, costs, level), size, costs

    def finished(self, work: Crowd, state: Stand) -> str | None:
        # A small simplex is not the last one if it found a lower cost than the one before.
        if self._settled(state) and state.crowd.level - state.cost > self._seen(state)[1]:
            return None
        return super().finished(work, state)


class Swarm(NamedTuple):
    """Particles.

    Attributes
    ----------
    points, speeds, bests, ways : array or list
        For each particle its position, velocity, best point, and tangent vector to the swarm's best point.
    costs : array
        At the best points of particles.
    """

    points: Any
    speeds: Any
    bests: Any
    ways: Any
    costs: Array


@by_keyword
class ParticleSwarm(_DerivativeFree):
    """Minimise by values alone: particles fly towards the best points that they and the swarm have found.

    It is for costs with many local minima, and for those without a gradient. One call gives the costs of all
    particles if the cost has `values`. A particle flies along the logarithm of a point, or along the projected
    difference if that has no closed form, so every manifold works.

    `converged` means that all particles have met, with similar costs. The end need not be a minimum, because a swarm
    may contract too early. Run it from several seeds, and `NelderMead` from its end.

    Parameters
    ----------
    max_iter : int
    tol : float, optional
        Stop when the particles agree up to this share of their spread at the start, and their costs up to this share
        of their size or of the first difference. 1e-6 unless given, and 1e-4 in single precision.
    retraction : Retraction or str, optional
        The manifold's default retraction unless given.
    population_size : int, optional
        Number of particles: by default ten per dimension, up to 40. The first one begins at the initial point, the
        others at random points.
    inertia : float
        The share of its velocity that a particle keeps.
    nostalgia, social : float
        The largest weights of the directions to a particle's own best point and to the swarm's. Weights are drawn for
        each particle in each step.

    See Also
    --------
    NelderMead : needs fewer values for the nearest minimum.
    rmopt.costs.ValueCost : a cost of a plain function.

    References
    ----------
    Borckmans, Ishteva and Absil, A modified particle swarm optimization algorithm for the best low multilinear rank
    approximation of higher-order tensors, ANTS (2010), https://doi.org/10.1007/978-3-642-15461-4_2.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import ValueCost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import ParticleSwarm
    >>> bumps = ValueCost(lambda x: x[..., 0] + np.cos(20.0 * x[..., 0]), many=True)
    >>> result = ParticleSwarm().run(Problem(Sphere(3), bumps), random_state=0)
    >>> result.converged, round(result.cost, 4)
    (True, -1.7866)
    """

    population_size: Annotated[int | None, optional(integer, 2)] = None
    inertia: Annotated[float, bounded(number, least=0, below=1)] = 0.75
    nostalgia: Annotated[float, bounded(number, least=0)] = 1.4
    social: Annotated[float, bounded(number, least=0)] = 1.4

    def _crowd(self, work: Crowd, point: Any, cost: float) -> Swarm:
        manifold, rng = work.manifold, generator(work.seed, Stream.SWARM)
        k = self.population_size or min(40, 10 * manifold.dim)
        several = [point, *(as_like(manifold.random_point(rng), point) for _ in range(k - 1))]
        points, others = work.gathered(several), work.gathered(several[1:] + several[:1])
        # Half the distance to the next one.
        speeds = work.each(partial(toward, manifold), points, others) * 0.5
        return Swarm(points, speeds, points, speeds, np.full(k, np.inf))

    def _step(self, work: Crowd, state: Stand) -> tuple[Swarm, float, Array]:
        manifold, (points, speeds, bests, ways, least), k = work.manifold, state.crowd, len(state.crowd.costs)
        way = partial(work.each, partial(toward, manifold))
        if state.steps > 0:
            own, all = generator(work.seed, Stream.SWARM, state.steps).random((2, k))
            moves = speeds * self.inertia + work.times(way(points, bests), self.nostalgia * own)
            moves = moves + work.times(ways, self.social * all)
            # No step is longer than the width of the first swarm. If nothing moves this is 0/0.
            moves = work.times(moves, np.fmin(1.0, state.first_size / work.norms(points, moves)))
            old, points = points, work.ends(points, moves)
            carried = work.each(partial(manifold.default_transport, manifold), old, points, moves)
            speeds = in_precision(carried, work.kind)
        costs = work.values(points)
        bests = work.chosen(costs < least, points, bests)
        ways = way(points, work.gathered([work.best[1]] * k))
        swarm = Swarm(points, speeds, bests, ways, np.minimum(costs, least))
        return swarm, float(work.norms(points, ways).max()), costs
