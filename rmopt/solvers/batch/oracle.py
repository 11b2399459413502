"""The oracle and the state of full-gradient solvers, and a test of the last gradient against the values."""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf, isfinite, sqrt
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.cost import Cost
from rmopt.core.manifold import Manifold
from rmopt.core.memo import latest
from rmopt.core.points import arrays_of, coarseness_of, in_precision, size_of
from rmopt.core.problem import Problem, ambient_at
from rmopt.core.product import BlockDiagonal
from rmopt.core.streams import Stream, generator
from rmopt.core.transport import ByManifold, ByProjection, Transport
from rmopt.errors import InvalidInputError, MissingCapabilityError, RmoptError, broke_down, warn
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.manifolds.product import ByFactors, Power, Product
from rmopt.solvers.result import Result

# The rounding error of a gradient, as a share of the length of its terms.
ROUNDED_AWAY = 256.0 * np.finfo(float).eps
# A gradient that promises less than this share of the cost, or its reverse, may belong to a minimum.
MINIMAL = 1e-9
# Length of a step between two gradients whose difference replaces the Hessian.
DIFFERENCE = 1e-6
COUNTED = ("costs", "gradients", "hessians", "retractions")


class Seen(NamedTuple):
    """A complete step: its end, the gradient there and its change, slopes at both ends and the direction's length.

    `products` holds the inner products that a search needs, by the `id` of the vectors.
    """

    point: Any
    cost: float
    gradient: Any
    change: Any
    slope: float
    slope_after: float
    length: float
    products: dict[tuple[int, int], float]


class Iterate(NamedTuple):
    """The state of a full-gradient solver.

    Attributes
    ----------
    point : point
    cost : float
    gradient : tangent vector
        The Riemannian gradient.
    norm, first_norm : float
        Lengths of the gradients here and at the start.
    memory : object
        The memory of the direction or the model.
    search : object
        The memory of the step length.
    step_size, step_length : float
        The last step: the factor of the direction, and the length of both.
    counts : tuple of int
        Costs, gradients, Hessian products and retractions so far.
    stuck : bool
        Whether no step along the gradient lowers the cost, because of rounding.
    steps, updates : int
    best : tuple
        The least cost and the shortest gradient so far, and the number of steps since one of them was found.
    least_curvature : float
        The least eigenvalue of the Hessian at the point, or infinity if not computed.
    """

    point: Any
    cost: float
    gradient: Any
    norm: float
    first_norm: float
    memory: Any
    search: Any
    step_size: float = 0.0
    step_length: float = 0.0
    counts: tuple[int, ...] = (0, 0, 0, 0)
    stuck: bool = False
    steps: int = 0
    updates: int = 0
    best: tuple[float, float, int] = (inf, inf, 0)
    least_curvature: float = inf


def is_extrinsic(manifold: Manifold, transport: Transport) -> bool:
    """Return whether vectors are transported by projection in an ambient space of arrays with the same metric."""
    way = type(transport)
    if isinstance(manifold, Product):
        whole = type(manifold).inner_product is Product.inner_product
        return whole and all(
            is_extrinsic(factor, factor.default_transport if way is ByFactors else transport)
            for factor in manifold.factors
        )
    if isinstance(manifold, Power) and type(manifold).inner_product is Power.inner_product:
        return is_extrinsic(manifold.base, transport)
    if not isinstance(manifold, ArrayManifold) or not manifold.has_ambient_metric:
        return False
    plain = type(manifold).transport is Manifold.transport
    return way is ByProjection or (way is ByManifold and plain)


def _single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with points or vectors in single precision, since parts of others may compute in double."""
    return lambda *arguments: in_precision(function(*arguments), np.float32)


def _stay(start: Any, end: Any, vector: Any) -> Any:
    return vector


class Oracle:
    """A problem for full-gradient solvers: evaluations by point, without checks, and counted.

    Parameters
    ----------
    problem : Problem
    retraction : Retraction, str or None
        None means the manifold's default retraction.
    transport : Transport or str, optional
        The manifold's default transport unless given.
    seed : int
        The seed of the run, for random directions.

    Attributes
    ----------
    manifold, cost, inner : object
        Those of the problem, and the manifold's inner product.
    dot : callable
        The inner product on the vectors' device, for numbers that only scale vectors. `brought` transfers others.
    at_once : bool
        Whether numbers are on another device and transferred together, also those of a step (see `trial`).
    carry : callable
        Maps a start, an end and a tangent vector at the start to one at the end.
    is_extrinsic : bool
        Whether `carry` leaves vectors unchanged in an ambient space of arrays: their inner products with tangent
        vectors are those of their projections, and combinations of them are projected when used.
    counts : list of int
        Costs, gradients, Hessian products and retractions so far.
    coarseness : float
        How many times coarser than in double precision points are rounded.
    rounding : float
        The rounding error of the gradient at the start.
    enough : float
        The length of a sufficiently short gradient, which the solver sets when the run begins.
    begins_flat : bool
        Whether the start may be stationary: its gradient is rounding, or promises almost no decrease.
    """

    coarseness, rounding, enough, begins_flat = 1.0, 0.0, 0.0, False

    def __init__(self, problem: Problem, retraction: Any, transport: Transport | None, seed: int = 0) -> None:
        manifold, cost = problem.manifold._in_a_run(), problem.cost
        self.problem, self.manifold, self.cost, self.seed = problem, manifold, cost, seed
        self.retraction = manifold.fitting(retraction)
        self._retraction: Callable[..., Any] = partial(self.retraction, manifold)
        overrides = type(cost).preconditioner_at is not Cost.preconditioner_at
        self.preconditions = overrides or hasattr(cost, "precondition")
        chosen = manifold.default_transport if transport is None else transport
        # Preconditioners need tangent vectors.
        self._around = is_extrinsic(manifold, manifold.default_transport)
        stays = self._around if transport is None else is_extrinsic(manifold, chosen)
        self.is_extrinsic = stays and not self.preconditions
        self.bends = problem.lacks_hessian() is None
        carry = manifold.transport if type(chosen) is ByManifold else partial(chosen, manifold)
        self.carry = _stay if self.is_extrinsic else carry
        self.fused = type(cost).value_and_gradient is not Cost.value_and_gradient
        self.inner = self.dot = manifold.inner_product
        self.at_once = self.compiles = False
        self._tried: tuple[Any, float, Seen | None] = (None, 0.0, None)
        # Whether the metric is that of an ambient space of arrays.
        self.flat = bool(getattr(manifold, "has_ambient_metric", False))
        self._dots = self.flat and type(manifold).inner_product is ArrayManifold.inner_product
        self.counts = [0, 0, 0, 0]
        # The last ambient gradient, for products with the Hessian at the same point.
        self._ambient: tuple[Any, Any] = (None, None)
        self._preconditioners: dict[int, Any] = {}
        self.last_cost = 0.0
        # The shape of ambient arrays, that of the first gradient, which was checked against the points.
        self._shape: Any = None

    def look(self, point: Any) -> tuple[float, Any]:
        """Return the cost at a point, and the ambient gradient if it comes with the cost."""
        self.counts[0] += 1
        if self.fused:
            self.counts[1] += 1
            value, ambient = self.cost.value_and_gradient(point)
            ambient = self._own(ambient, "gradient", point)
        else:
            value, ambient = self.cost.value(point), None
        self.last_cost = found = float(value) if isinstance(value, float) else self.problem.real(value)
        return found, ambient

    def gradient(self, point: Any, ambient: Any = None) -> Any:
        """Return the Riemannian gradient."""
        if ambient is None:
            self.counts[1] += 1
            ambient = self._own(self.cost.gradient(point), "gradient", point)
        self._ambient = point, ambient
        return self.manifold.euclidean_to_riemannian_gradient(point, ambient)

    def metric(self, point: Any) -> Callable[[Any, Any], Any]:
        """Return the inner product of tangent vectors at a point, on their device."""
        # `vdot` copies arrays stored by columns, and would return single precision for single arrays.
        dots = self._dots and type(point) is np.ndarray and point.dtype == float and not point.flags.fnc
        return np.vdot if dots else partial(self.dot, point)

    def recall(self, point: Any) -> None:
        """Compute the ambient gradient at an earlier point of the run, without counting it again."""
        if self.bends:
            counts = self.counts[:]
            self._ambient_at(point)
            self.counts[:] = counts

    def _ambient_at(self, point: Any) -> Any:
        """Return the ambient gradient, evaluated unless it is that of the last point."""
        if self._ambient[0] is not point:
            self.gradient(point, self.look(point)[1] if self.fused else None)
        return self._ambient[1]

    def _own(self, ambient: Any, what: str, point: Any) -> Any:
        """Return a result of the cost in arrays that it does not overwrite, and refuse invalid ones."""
        if type(ambient) is np.ndarray and ambient.shape == self._shape and ambient.dtype.kind == "f":
            return ambient.copy()
        return ambient_at(self.manifold, point, ambient, self.cost, what, self._shape)

    def retract(self, point: Any, tangent: Any, t: float = 1.0) -> Any:
        """Return the point at t along a tangent vector."""
        self.counts[3] += 1
        return self._retraction(point, tangent, t)

    def reached(self, point: Any, tangent: Any, t: float = 1.0) -> tuple[Any, float, Any]:
        """Return the point at the end of a step, the cost there, and the ambient gradient if it comes with the cost.

        A step that is so long that the retraction or the cost fails ends at a cost of infinity.
        """
        there = None
        try:
            self.counts[3] += 1
            there = self._retraction(point, tangent, t)
            return there, *self.look(there)
        except (ValueError, RuntimeError) as error:
            # A retraction may refuse a step, but rmopt's errors from a cost are for the user.
            if not (there is None if isinstance(error, RmoptError) else broke_down(error)):
                raise
            self.last_cost = inf
            return point if there is None else there, inf, None

    def trial(self, start: Iterate, direction: Any, t: float) -> Seen | None:
        """Return a complete step by one transfer, or None if numbers are local, or if `reached` must judge.

        The last one is cached, so that a slope may be computed with the first step along it.
        """
        if not (self.at_once and self.is_extrinsic):
            return None
        if self._tried[0] is not direction or self._tried[1] != t:
            self._tried = direction, t, None
            with suppress(ValueError, RuntimeError):
                old = start.gradient
                there, ambient, new, change, numbers = self.whole(start.point, direction, t, old)
                self.last_cost, *products = ns.to_numpy(numbers).tolist()
                ids = ((id(a), id(b)) for a, b in _pairs(old, direction, new, change))
                known, (_, after, _, _, square, slope) = dict(zip(ids, products, strict=True)), products
                seen = Seen(there, self.last_cost, new, change, slope, after, sqrt(square), known)
                self._tried = direction, t, seen
                if ambient is not None:
                    self._ambient = there, ambient
                self.counts[:] = map(add, self.counts, (1, 1, 0, 1))
        return self._tried[2]

    def whole(self, point: Any, direction: Any, t: float, old: Any) -> tuple[Any, ...]:
        """Return the result of `trial`, with the ambient gradient, by array operations alone."""
        there = self._retraction(point, direction, t)
        look = getattr(self.cost, "unread", self.cost.value_and_gradient)
        value, ambient = look(there)
        ambient = self._own(ambient, "gradient", there)
        new = self.manifold.euclidean_to_riemannian_gradient(there, ambient)
        change = new - old
        dots = [self.dot(there, *pair) for pair in _pairs(old, direction, new, change)]
        if getattr(value, "shape", None) != () or ns.namespace(value) is not ns.namespace(dots[0]):
            value = ns.asarray(self.problem.real(value), dots[0])
        return there, ambient if ns.is_array(ambient) else None, new, change, _stacked([value, *dots])

    def together(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Evaluate a function of `dot` and arrays, compiled like the cost."""
        made = partial(function, self.dot)
        return self.cost.as_one(function.__name__, made, arguments, (self.manifold,))(*arguments)  # type: ignore[attr-defined]

    def preconditioner(self, point: Any) -> Callable[[Any], Any] | None:
        """Return the cost's preconditioner at a point as a function of tangent vectors, or None."""
        # Cached for the last two points, the ends of a step.
        return latest(self._preconditioners, point, self._preconditioner_at) if self.preconditions else None

    def _preconditioner_at(self, point: Any) -> Callable[[Any], Any] | None:
        made = self.cost.preconditioner_at(point)
        return made if made is None or self.coarseness == 1.0 else _single(made)

    def positive(self, square: float, norm: float) -> float:
        """Return ⟨g, P g⟩ of a gradient, and refuse a preconditioner for which it is not positive."""
        if norm > 0.0 and not square > 0.0:
            raise InvalidInputError(
                f"the preconditioner of {self.cost._name} is not positive: ⟨g, P g⟩ = {square:.1e} for a gradient g; "
                "test it by rmopt.checks.check_cost."
            )
        return square

    def hessian(self, point: Any, gradient: Any) -> Callable[[Any], Any]:
        """Return the Riemannian Hessian at a point as a function of tangent vectors.

        If cost or manifold have no second derivatives, differences of gradients replace them.
        """
        manifold, counts = self.manifold, self.counts
        if self.bends:
            ambient, along = self._ambient_at(point), self.cost.hessian_along(point)

        def product(tangent: Any) -> Any:
            if self.bends:
                try:
                    bent = self._own(along(manifold.embedding(point, tangent)), "hessian", point)
                except MissingCapabilityError:
                    # A part of the cost has none, although its class has the method.
                    self.bends = False
                else:
                    counts[2] += 1
                    return manifold.euclidean_to_riemannian_hessian(point, ambient, bent, tangent)  # type: ignore[attr-defined]
            length = manifold.norm(point, tangent)
            if not length > 0.0:
                return tangent
            h = DIFFERENCE * self.coarseness ** (1.0 / 3.0) / length
            there = self.retract(point, tangent, h)
            counts[2] += 1
            # The rounding error off the tangent space would also be divided by h.
            change = (self.carry(there, point, self.gradient(there)) - gradient) * (1.0 / h)
            return manifold.to_tangent_space(point, change)

        return product

    def first(self, point: Any) -> Iterate:
        """Return the state at the initial point, without memories, after a test of cost and gradient there."""
        self.coarseness = coarseness_of(point)
        if type(arrays_of(point)[0]) is not np.ndarray:
            self.at_once, self.dot = True, self.manifold.inner
        if self.coarseness > 1.0:
            self._retraction = _single(self._retraction)
        cost, ambient, gradient = self.problem.probe(point)
        self.counts[0] += 1
        self.counts[1] += 1
        self._shape = getattr(ambient, "shape", None)
        if self.at_once and self.is_extrinsic and hasattr(self.cost, "as_one"):
            first = point, gradient, 0.0, gradient
            whole, key = copy.copy(self).whole, (self.manifold, self.retraction)
            self.whole = self.cost.as_one("whole", whole, first, key)  # type: ignore[method-assign]
            self.compiles = self.whole != whole
        self._ambient = point, ambient
        norm = self.manifold.norm(point, gradient)
        self.rounding = self.rounding_at(point, cost, ambient, norm)
        promised = MINIMAL * self.coarseness**0.5 * abs(cost)
        self.begins_flat = norm <= self.rounding or norm * size_of(point) <= promised
        precondition = self.preconditioner(point)
        if precondition is not None and isfinite(norm):
            self.positive(self.inner(point, gradient, precondition(gradient * 1.0)), norm)
        return Iterate(point, cost, gradient, norm, norm, None, None, counts=tuple(self.counts))

    @np.errstate(all="ignore")
    def rounding_at(self, point: Any, cost: float, ambient: Any, norm: float) -> float:
        """Return the rounding error of the gradient at a point.

        It is that of the ambient entries if the metric is ambient and, if the gradient is so short that the point may
        be a minimum, its change under a relative change of the point.
        """
        manifold, length, size = self.manifold, 0.0, size_of(point)
        if self._around:
            entries = ambient.blocks if isinstance(ambient, BlockDiagonal) else {0: ambient}
            length = size_of({i: block for i, block in entries.items() if ns.is_array(block)})
        # Costs of exact fits vanish faster than their gradients.
        share, least = norm * size, MINIMAL * self.coarseness**0.5
        if share <= least * abs(cost) or abs(cost) <= least * share:
            # Close enough for narrow valleys, and far enough for a difference beyond rounding.
            h = (np.finfo(float).eps * self.coarseness) ** (2.0 / 3.0)
            along = manifold.random_tangent_vector(point, generator(self.seed, Stream.DIRECTIONS))
            with suppress(ValueError):
                there = self.retract(point, along, h * size / (size_of(along) or np.inf))
                change = manifold.norm(there, self.gradient(there)) - norm
                length += max(change, 0.0) / h if isfinite(change) else 0.0
            self._ambient = point, ambient
        # In single precision so many roundings would be visible.
        return max(ROUNDED_AWAY, 4e-15 * self.coarseness) * length


def brought(*numbers: Any) -> list[float]:
    """Return numbers on the host, by one transfer from their device."""
    return ns.to_numpy(_stacked(numbers)).tolist()


def _stacked(numbers: Sequence[Any]) -> Any:
    xp = ns.namespace(numbers[0])
    kind = xp.result_type(*numbers)
    return xp.stack([xp.astype(one, kind, copy=False) for one in numbers])


def _pairs(old: Any, direction: Any, new: Any, change: Any) -> list[tuple[Any, Any]]:
    """Return the pairs whose products a search needs: of the gradients, their difference, and the direction."""
    return [
        (new, new), (new, direction), (new, change), (change, change), (direction, direction), (old, direction),
    ]  # fmt: skip


Ended = TypeVar("Ended", bound=Result)

# Steps of the test, each longer than the last by this factor. Three in a row must agree.
LOOKS, LONGER, AGREED = 6, 8.0, 3
# The error allowed in a value, in roundings.
ROUNDINGS = 16.0


def held(
    result: Ended, work: Oracle, cost: float, gradient: Any, norm: float, limit: float, first: float,
    *, ended: bool = True,
) -> Ended:  # fmt: skip
    """Return a result that is converged only if the gradient at its end fits the cost, and otherwise warn.

    Parameters
    ----------
    result : Result
    work : Oracle
        The oracle of the problem. It counts the evaluated costs: one, and up to fourteen more if this one does not
        seem to fit or is inconclusive, or the run did no step.
    cost, gradient, norm : object
        Those at the end. `norm` is the length of the gradient by which the run ends.
    limit : float
        A slope up to this counts as zero.
    first : float
        The length of the first gradient: a thousandth of it must be detected.
    ended : bool
        Whether the gradient vanishes at the end of the run, which then must not be a maximum or a saddle.
    """
    if not result.converged:
        return result
    rng, flat = generator(work.seed, Stream.DIRECTIONS), max(norm, limit)
    seen = 0.0 if result.updates == 0 else 1e-3 * first
    doubt = misfit(work, result.point, cost, gradient, flat, rng, seen=seen, ended=ended)
    if doubt is None:
        return result
    warn(f"the run ended by {result.stopped_by}, and has not converged: {doubt}", RuntimeWarning)
    return replace(result, converged=False, stopped_by=f"{result.stopped_by}; {doubt}")


@np.errstate(all="ignore")
def misfit(
    work: Oracle, point: Any, cost: float, gradient: Any, flat: float, rng: np.random.Generator,
    *, seen: float = 0.0, ended: bool = False,
) -> str | None:  # fmt: skip
    """Return a sentence on how costs contradict a gradient, or that a run `ended` at a minimum, or return None.

    Central differences along a random direction have no error of first order for any retraction. The cost contradicts
    the gradient if it rises and falls by more than its curvature, and a minimum if it falls on both sides, at three
    step lengths that span a factor of 64: noise of any size and kinks do not. Differences of slopes up to `flat`
    count as zero. If one of `seen` would show at a step too short for curvature, a single fitting value there
    suffices.
    """
    manifold = work.manifold
    along = manifold.random_tangent_vector(point, rng)
    square, length = work.inner(point, along, along), manifold.norm(point, along)
    if not abs(length * length - square) <= 0.01 * square < np.inf:
        return (
            f"a random tangent vector of {manifold} has norm {length:.1e}, and its inner product with itself is "
            f"{square:.1e}; test the manifold by rmopt.checks.check_manifold."
        )
    if not square > 0.0:
        return None
    along = along * (1.0 / square**0.5)
    said, steep = float(work.inner(point, gradient, along)), manifold.norm(point, gradient)
    eps = float(np.finfo(ns.real_type(*arrays_of(point))).eps)
    # The step that changes the point by a share of its size.
    way = size_of(point) / (size_of(along) or np.inf) or manifold.typical_dist
    h, noise = eps**0.5 * way, 8.0 * ROUNDINGS * eps * abs(cost)
    if noise <= h * seen and abs(_value(work, point, along, h) - cost - h * said) <= max(noise, h * flat):
        return None

    def look(h: float) -> tuple[float, float, float]:
        """Return the error of the slope, the bend of the middle, and the part hidden by rounding."""
        up, down = _value(work, point, along, h), _value(work, point, along, -h)
        noise = ROUNDINGS * eps * max(abs(cost), abs(up), abs(down))
        return 0.5 * (up - down) - h * said, 0.5 * (up + down) - cost, noise

    slopes, bends, clear, h = list[float](), list[float](), list[bool](), eps**0.45 * way
    for _ in range(LOOKS):
        off, both, noise = look(h)
        # At kinks the slope is as large as the bend, even for the shortest step.
        clear.append(abs(off) > 2.0 * abs(both))
        slopes.append(off / h if abs(off) > max(noise, h * flat) else 0.0)
        bends.append(both / h**2 if ended and -both > max(2.0 * abs(off), noise, 2.0 * h * steep) else 0.0)
        if agree(slopes) and clear[-AGREED]:
            # A slope is the same at a far shorter step, unless rounding hides it there.
            short = h / LONGER ** (AGREED + 3)
            off, _, noise = look(short)
            if abs(slopes[-1]) * short > 2.0 * noise and not agree([*slopes[1 - AGREED :], off / short]):
                return None
            return (
                f"along a random direction the cost changes by {said + slopes[-1]:.1e} per unit of length, and the "
                f"gradient gives {said:.1e}; test the cost by rmopt.checks.check_gradient."
            )
        if agree(bends):
            return (
                f"the gradient vanishes, but {h:.1e} away on both sides the cost is lower by {-both:.1e}: this is "
                "a maximum or a saddle; start elsewhere, or take TrustRegions(second_order=True)."
            )
        if (noise <= h * seen if seen else abs(both) > noise) and not any(slopes + bends):
            return None
        h *= LONGER
    return None


def agree(numbers: list[float]) -> bool:
    """Return whether the last three agree up to a fifth and are not 0."""
    last = numbers[-AGREED:]
    same = len(last) == AGREED and min(map(abs, last)) > 0.8 * max(map(abs, last))
    return same and abs(sum(map(np.sign, last))) == AGREED


def _value(work: Oracle, point: Any, along: Any, t: float) -> float:
    """Return the cost at the end of a step, or NaN if there is none."""
    try:
        there = work.retract(point, along, t)
        work.counts[0] += 1
        return work.problem.real(work.cost.value(there))
    except Exception:  # A cost may raise its own error beyond a boundary.
        return np.nan
