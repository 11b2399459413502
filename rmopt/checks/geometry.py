"""Laws of manifolds and retractions."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from copy import deepcopy
from functools import cached_property, partial
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.checks.laws import ROUNDING, Check, Law, along_several, hold, law, slope_check
from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, shown
from rmopt.core.cost import total
from rmopt.core.low_rank import LowRankPoint, PSDPoint
from rmopt.core.manifold import FixedRankManifold, Manifold
from rmopt.core.points import arrays_of, coarseness_of, in_precision, normal_like, rebuilt
from rmopt.core.product import Parts
from rmopt.core.retraction import Retraction
from rmopt.core.tensors import TuckerPoint, multiplied
from rmopt.errors import InvalidInputError
from rmopt.linalg import symmetric

# Logarithms and roots of matrices lose digits with the condition of the point.
GEODESIC = 1e-9
# Limit for equal points: a distance by an arccosine has half of its digits near zero.
SAME = 1e-7
# Central differences: their own error is of the size of the square of the step.
DIFFERENCES = 1e-5
# The largest dimension times size for which the dimension is counted, to bound the memory.
LARGE = 4_000_000

MANIFOLD, RETRACTION, RESULT = (list[Law]() for _ in range(3))


def check_manifold(manifold: Manifold, rng: Any = 0, point: Any = None, dtype: Any = None) -> list[Check]:
    """Check the laws of a manifold at a point, including geodesics if it has them.

    Parameters
    ----------
    manifold : Manifold
        A small one: its dimension is counted by projecting random matrices.
    rng, point, dtype : optional
        As in `check_gradient`.

    Returns
    -------
    list of Check
        One for each law that applies.

    References
    ----------
    Boumal, An Introduction to Optimization on Smooth Manifolds, Cambridge University Press (2023),
    https://doi.org/10.1017/9781009166164.

    Examples
    --------
    >>> from rmopt.checks import check_manifold
    >>> from rmopt.manifolds import Sphere
    >>> all(check_manifold(Sphere(5)))
    True
    """
    at = _Tangents(manifold, rng, point, dtype)
    return hold(MANIFOLD, str(manifold), at, at.coarseness)


def check_retraction(
    retraction: Any, manifold: Manifold, rng: Any = 0, point: Any = None, dtype: Any = None
) -> list[Check]:
    """Check the laws of a retraction, and measure its order as slopes.

    R(x, tξ) − x − tξ falls like t². The distance from a geodesic falls like t² for a retraction of order 1, and like
    t³ for one of order 2, measured by the tangential part of the ambient difference. If the manifold has no
    geodesics, the metric is that of the ambient space, and x + tξ replaces the geodesic.

    Single precision shows an error of ct² only above rounding, and near singular values of size σ a curve bends at
    steps of σ: there its slopes are meaningless.

    Parameters
    ----------
    retraction : Retraction, str or callable
        Also a name from the manifold's `retractions`. A class, or a function that makes one, is called twice. The
        check of a Retraction does not see numbers drawn when it was made, and none sees those that differ
        between processes alone, such as hashes of texts.
    manifold : Manifold
    rng, point, dtype : optional
        As in `check_gradient`.

    Returns
    -------
    list of Check
        The rigidity, the order, and one for each law that applies.

    References
    ----------
    Absil and Malick, Projection-like retractions on matrix manifolds, SIAM J. Optim. 22 (2012),
    https://doi.org/10.1137/100802529.
    """
    rng = np.random.default_rng(rng)
    x = in_precision(start_at(manifold, point, rng), dtype)
    is_made = callable(retraction) and not isinstance(retraction, Retraction)
    # A name or None. A retraction of another manifold breaks its laws.
    moves = [retraction() if is_made else retraction for _ in range(2)]
    moves = [one if isinstance(one, Retraction) else manifold.fitting(one) for one in moves]
    vectors, subject = partial(manifold.random_tangent_vector, x, rng), f"{shown(moves[0])} on {manifold}"
    xi = vectors()
    slopes = along_several(partial(_slopes, moves[0], manifold, x), vectors, xi)
    curves = _Curves(moves, manifold, x, xi, rng)
    # Without a point all other laws would fail, with wrong causes.
    broken = [check for check in hold(RESULT, subject, curves) if not check]
    return broken or slopes + hold(RETRACTION, subject, curves, coarseness_of(x))


def _slopes(retraction: Retraction, manifold: Manifold, x: Any, xi: Any) -> list[Check]:
    """Return the rigidity and the order along a tangent vector."""
    end, start = partial(_end, retraction, manifold, x, xi), manifold.embed_point(x)
    order, direction = retraction.order, manifold.embedding(x, xi)

    def beside(t: float, *line: tuple[float, Any]) -> Any:
        return total([(1.0, manifold.embed_point(end(t))), *line])

    def rigidity(t: float) -> float:
        return float(np.linalg.norm(dense(beside(t, (-1.0, start), (-t, direction)))))

    def bend(t: float) -> float:
        exp = manifold.embed_point(manifold.exp(x, t * xi)) if manifold.knows("exp") else None
        off = beside(t, (-1.0, start), (-t, direction)) if exp is None else beside(t, (-1.0, exp))
        return manifold.norm(x, manifold.projection(x, off))

    astray = "the curve does not start at x with velocity ξ: a factor, a sign, or another basis"
    low = "the retraction is of order 1 here; set `order = 1`" if order > 1 else astray
    laws = [
        Law("rigidity", "R(x, tξ) − x − tξ", astray, 2.0, rigidity),
        Law(f"order {order}", "its tangential difference from the geodesic", low, 1.0 + order, bend),
    ]
    scale, subject = float(np.linalg.norm(dense(start))), f"{shown(retraction)} on {manifold}"
    return [slope_check(one, subject, scale, coarseness_of(x)) for one in laws]


def _end(retraction: Retraction, manifold: Manifold, x: Any, xi: Any, *t: float) -> Any:
    """Return the end of a step from copies, so that a retraction that writes into them affects no other law."""
    return retraction(manifold, *deepcopy((x, xi)), *t)


def start_at(manifold: Manifold, point: Any, rng: np.random.Generator) -> Any:
    """Return a given point, checked, or by default a random one."""
    instance("manifold", manifold, Manifold, "a Manifold of rmopt")
    # Drawn in any case: directions by the numbers of a given point, of the same seed, would depend on it.
    drawn = manifold.random_point(rng)
    if point is None:
        return drawn
    if (reason := manifold.check_point(point)) is not None:
        raise InvalidInputError(f"point is not on {manifold}: {reason}.")
    return point


# Manifolds


class _Tangents:
    """A manifold at a point, with tangent vectors, ambient matrices and other points."""

    def __init__(self, manifold: Any, rng: Any, point: Any, dtype: Any) -> None:
        self.rng = rng = np.random.default_rng(rng)
        self.manifold, self.inner, self.norm = manifold, manifold.inner_product, manifold.norm
        self.x = in_precision(start_at(manifold, point, rng), dtype)
        self.coarseness = coarseness_of(self.x)
        self.y = self.another()
        self.a, self.b = (manifold.random_tangent_vector(self.x, rng) for _ in range(2))
        self.shape = tuple(manifold.embed_point(self.x).shape)
        self.is_complex = any(map(ns.is_complex, arrays_of(self.x)))
        self.Z, self.Y = self.drawn(self.shape), self.drawn(self.shape)
        self.z = self.another()
        # Well inside the injectivity radius; of many probabilities one is so small that it vanishes before.
        self.short = 0.3 * min(1.0, manifold.typical_dist)
        for _ in range(6 * manifold.knows("exp")):
            with suppress(Exception):
                self.near()
                break
            self.short *= 0.25

    def another(self) -> Any:
        """Return a random point in the precision of the first one."""
        return in_precision(self.manifold.random_point(self.rng), ns.real_type(*arrays_of(self.x)))

    def drawn(self, shape: Any) -> Array:
        """Return standard normal numbers of the field of the point."""
        found = self.rng.standard_normal(shape)
        return found + 1j * self.rng.standard_normal(shape) if self.is_complex else found

    def project(self, ambient: Any) -> Any:
        return self.manifold.projection(self.x, ambient)

    def embed(self, tangent: Any) -> Array:
        return dense(self.manifold.embedding(self.x, tangent))

    def gap(self, left: Any, right: Any) -> float:
        return self.norm(self.x, left - right)

    def carriers(self) -> list[Callable[..., Any]]:
        """Return the transport of the manifold and that of solvers, possibly the same."""
        return [self.manifold.transport, partial(self.manifold.default_transport, self.manifold)]

    def near(self) -> Any:
        """Return a point at the distance `short`. The law does not apply without known geodesics."""
        return self.manifold.exp(self.x, self.a * self.short)


@law(MANIFOLD, "random_point, or a check_point that is too strict, tests the form alone, or accepts NaN")
def _points(at: _Tangents) -> Any:
    """`check_point` accepts random points, and refuses those off the manifold, and NaN."""
    if reason := at.manifold.check_point(at.x) or at.manifold.check_point(at.y):
        return reason
    arrays = arrays_of(at.x)
    if at.manifold.check_point(rebuilt(at.x, [np.full_like(array, np.nan) for array in arrays])) is None:
        return "it accepts a point of NaN"
    if at.manifold.dim >= sum(_reals(array).size for array in arrays):
        # Open in the ambient space: all arrays near a point are points.
        return 0.0

    def taken() -> bool:
        moved = [array + 0.05 * np.abs(array).max() * at.drawn(array.shape) for array in arrays]
        point = in_precision(rebuilt(at.x, moved), ns.real_type(*arrays))
        if at.manifold.check_point(point) is not None:
            return False
        # In the total space of a quotient every array has its own horizontal space.
        once, there = at.embed(at.project(at.Z)), dense(at.manifold.projection(point, at.Z))
        again = np.abs(dense(at.manifold.projection(point, there)) - there).max()
        return not float(again) <= 1e-8 * at.coarseness < float(np.abs(there - once).max())

    # Once in some hundred times noise leaves a length within the tolerance of single precision.
    return "it accepts a point with noise of 5 %" if all(taken() for _ in range(3)) else 0.0


@law(MANIFOLD, "numpy's own arrays, such as `np.eye(n)`, and scalars are of double precision", 0.0)
def _precision(at: _Tangents) -> Any:
    """Results at a point have its precision, whatever that of the ambient matrix."""
    manifold, x, y, a = at.manifold, at.x, at.y, at.a
    made = {
        "random_tangent_vector": a, "zero_vector": manifold.zero_vector(x), "projection": at.project(at.Z),
        "euclidean_to_riemannian_gradient": manifold.euclidean_to_riemannian_gradient(x, at.Z),
        "to_tangent_space": manifold.to_tangent_space(x, a), "transport": manifold.transport(x, y, a),
    }  # fmt: skip
    if manifold.knows_hessians:
        made["euclidean_to_riemannian_hessian"] = manifold.euclidean_to_riemannian_hessian(x, at.Z, at.Y, a)
    if manifold.knows("exp"):
        made["exp"] = at.near()
    if manifold.knows("log"):
        made["log"] = manifold.log(x, y)
    return _other_types(at.x, made) or 0.0


@law(MANIFOLD, "numbers from a global state instead of `rng`")
def _randomness(at: _Tangents) -> Any:
    """Equal seeds give equal points and tangent vectors, and different seeds different ones."""
    first, second, other = (at.manifold.random_point(np.random.default_rng(seed)) for seed in (7, 7, 8))
    if at.manifold.dim > 0 and _apart(at.manifold, first, other) == 0.0:
        return "other seeds give the same point"
    a, b, c = (at.manifold.random_tangent_vector(at.x, np.random.default_rng(seed)) for seed in (7, 7, 8))
    if at.manifold.dim > 1 and at.gap(a, c) == 0.0:
        return "other seeds give the same tangent vector"
    return max(_apart(at.manifold, first, second), at.gap(a, b))


@law(MANIFOLD, "an operation in place, such as `vector -= …`", 0.0)
def _manifold_purity(at: _Tangents) -> float:
    """Its methods leave their arguments unchanged."""
    manifold, Z, y = at.manifold, at.drawn(at.shape), at.y
    vector = manifold.random_tangent_vector(at.x, at.rng)
    calls = [
        (manifold.projection, at.x, Z), (manifold.euclidean_to_riemannian_gradient, at.x, Z),
        (manifold.to_tangent_space, at.x, vector), (manifold.transport, at.x, y, vector),
    ]  # fmt: skip
    return written(calls)


def written(calls: Sequence[tuple[Any, ...]]) -> float:
    """Return 1 if one of some functions writes into its arguments, and else 0."""
    arguments = [given for _, *given in calls]
    before = [ns.copied(array) for array in arrays_of(arguments)]
    for call, *given in calls:
        call(*given)
    return float(not all(map(ns.same, before, arrays_of(arguments))))


@law(MANIFOLD, "`dim`, or a projection that keeps too much or too little", 0.0)
def _dimension(at: _Tangents) -> float | None:
    """`dim` is the rank of the projection."""
    size, dim = _reals(at.Z).size, at.manifold.dim
    if size * dim > LARGE:
        return None
    images = [_reals(at.embed(at.project(at.drawn(at.shape)))).ravel() for _ in range(min(size, dim + 3))]
    # Of two collinear images one is rounding compared with the other, more than numpy allows for.
    rank = float(np.linalg.matrix_rank(np.array(images), rtol=max(1e-12, 2.2e-14 * at.coarseness)))
    return abs(rank - min(dim, len(images)))


@law(MANIFOLD, "a factor, or a missing part")
def _projection(at: _Tangents) -> float:
    """Projecting twice is projecting once."""
    once = at.project(at.Z)
    return at.gap(at.project(at.embed(once)), once) / max(1.0, at.norm(at.x, once))


@law(MANIFOLD, "an oblique projection, or an inner_product that does not take ambient arrays")
def _orthogonality(at: _Tangents) -> float | None:
    """⟨PZ, Y⟩ = ⟨Z, PY⟩ in the ambient space, or by an inner_product that takes ambient arrays."""
    Z, Y, PZ, PY = at.Z, at.Y, at.embed(at.project(at.Z)), at.embed(at.project(at.Y))
    error = abs(ns.real_dot(PZ, Y) - ns.real_dot(Z, PY)) / (np.linalg.norm(Z) * np.linalg.norm(Y))
    if isinstance(at.a, Parts) and error > ROUNDING * at.coarseness:
        # Each part may do this differently.
        return None
    if error > ROUNDING * at.coarseness and isinstance(at.a, np.ndarray):
        inner = partial(at.inner, at.x)
        # An inner product that projects its arguments is meaningless for other arrays.
        if abs(inner(Z - PZ, Z - PZ)) > 1e-6 * abs(inner(Z, Z)):
            error = abs(inner(PZ, Y) - inner(Z, PY)) / abs(inner(Z, Z) * inner(Y, Y)) ** 0.5
    return error


@law(MANIFOLD, "euclidean_to_riemannian_gradient is not that of this inner product")
def _duality(at: _Tangents) -> float:
    """⟨a, gradient for Z⟩ = ⟨a, Z⟩ in the ambient space."""
    gradient = at.manifold.euclidean_to_riemannian_gradient(at.x, at.Z)
    error = abs(at.inner(at.x, at.a, gradient) - float(ns.real_dot(at.embed(at.a), at.Z)))
    # At large points ambient vectors of length 1 are long.
    return error / max(1.0, float(np.linalg.norm(at.embed(at.a))))


@law(MANIFOLD, "inner_product is not bilinear, or not symmetric, or `norm` is not its root")
def _bilinearity(at: _Tangents) -> float:
    """⟨a, b⟩ = ⟨b, a⟩, ⟨a + 2b, b⟩ = ⟨a, b⟩ + 2⟨b, b⟩, and ⟨a, a⟩ = ‖a‖² > 0."""
    product, square = at.inner(at.x, at.a, at.b), at.inner(at.x, at.b, at.b)
    mixed = at.inner(at.x, at.a + at.b * 2.0, at.b) - product - 2.0 * square
    errors = mixed, product - at.inner(at.x, at.b, at.a), square - at.norm(at.x, at.b) ** 2
    return max(map(abs, errors)) if square > 0.0 else np.inf


@law(MANIFOLD, "random_tangent_vector is not tangent, or has another norm; or embedding does not fit")
def _tangency(at: _Tangents) -> float:
    """Random tangent vectors have norm 1, are tangent, and stay in to_tangent_space."""
    again = at.project(at.embed(at.a)), at.manifold.to_tangent_space(at.x, at.a)
    return max(abs(at.norm(at.x, at.a) - 1.0), *(at.gap(found, at.a) for found in again))


@law(MANIFOLD, "the arithmetic of tangent vectors, numpy's without `__array_ufunc__ = None`; or zero_vector")
def _linearity(at: _Tangents) -> float:
    """Tangent vectors and their embedding add and scale, and zero_vector adds nothing."""
    two = ns.real_type(*arrays_of(at.x)).type(2.0)
    back = at.gap((at.a + two * at.b) - at.b * 2.0, at.a)
    back += at.gap(-at.a, at.a * -2.0 + at.a)
    back += at.gap(at.a / two, at.a * 0.5)
    back += at.gap(at.a + at.manifold.zero_vector(at.x), at.a)
    embedded = at.embed(at.a + at.b * 2.0) - at.embed(at.a) - 2.0 * at.embed(at.b)
    return max(back, float(np.abs(embedded).max()) / max(1.0, float(np.abs(at.embed(at.b)).max())))


@law(MANIFOLD, "transport does not end in the second tangent space; or a factor, or a constant", GEODESIC)
def _transport(at: _Tangents) -> float:
    """Transported vectors are tangent, transport is linear, and from a point to itself the identity."""
    errors = []
    for carry in at.carriers():
        of_a, of_b, of_sum = (carry(at.x, at.y, v) for v in (at.a, at.b, at.a + at.b * 2.0))
        again = at.manifold.projection(at.y, at.manifold.embedding(at.y, of_a))
        off = (other - of_a for other in (at.manifold.to_tangent_space(at.y, of_a), again))
        size = max(1.0, at.norm(at.y, of_a), at.norm(at.y, of_sum))
        errors += [at.norm(at.y, vector) / size for vector in (*off, of_sum - of_a - of_b * 2.0)]
        errors.append(at.gap(carry(at.x, at.x, at.a), at.a))
    return max(errors)


# The tangent space turns by the step divided by the point's least singular value.
@law(MANIFOLD, "a factor in transport", 0.01)
def _transport_nearby(at: _Tangents) -> float:
    """A step of 1e-7, or ten roundings in single precision, hardly changes a vector."""
    end, before = at.manifold.retraction(at.x, at.b * max(1e-7, 2e-15 * at.coarseness)), at.embed(at.a)
    after = (dense(at.manifold.embedding(end, carry(at.x, end, at.a))) for carry in at.carriers())
    return float(max(np.linalg.norm(array - before) for array in after) / np.linalg.norm(before))


@law(MANIFOLD, "a term of `euclidean_to_riemannian_hessian` is missing, or has a wrong sign", 1e-3)
def _curvature(at: _Tangents) -> float | None:
    """½ tr(XᴴAX), A = VVᴴ − WWᴴ, has a symmetric Hessian, its curvature along second-order retractions."""
    manifold: Any = at.manifold
    x, a, b = at.x, at.a, at.b
    if not manifold.knows_hessians:
        return None
    rows = at.shape[-2:][0]
    # A whole A of a long column would not fit into memory.
    V, W = at.drawn((2, rows, min(rows, 20))) / rows**0.5

    def gradient(X: Any) -> Array:
        return V @ (ns.adjoint(V) @ (X := dense(X))) - W @ (ns.adjoint(W) @ X)

    def value(t: float) -> float:
        X = dense(manifold.embed_point(manifold.retraction(x, a * t)))
        return 0.5 * float(ns.real_dot(X, gradient(X)))

    G = gradient(manifold.embed_point(x))
    of_a, of_b = (manifold.euclidean_to_riemannian_hessian(x, G, gradient(at.embed(v)), v) for v in (a, b))
    # For orthogonal matrices the function is constant, and its Hessian is only rounding.
    size = max(at.norm(x, v) for v in (of_a, of_b, manifold.projection(x, gradient(at.embed(a)))))
    error = abs(at.inner(x, of_a, b) - at.inner(x, a, of_b))
    if manifold.default_retraction.order >= 2 and at.coarseness == 1.0:
        # By five points, because near a lower rank the fourth derivative is large.
        h = 2e-4 * min(1.0, manifold.typical_dist)
        near, far = (value(t) + value(-t) for t in (h, 2 * h))
        bend = (16.0 * near - far - 30.0 * value(0.0)) / (12.0 * h**2)
        error = max(error, abs(bend - at.inner(x, of_a, a)))
    return error / size


@law(MANIFOLD, "exp is a retraction, or follows another multiple of v", DIFFERENCES)
def _speed(at: _Tangents) -> float:
    """The curve of exp has the speed ‖v‖."""
    end, step = at.near(), difference_step(at.coarseness)
    ahead, behind = (
        at.manifold.embed_point(at.manifold.exp(at.x, at.a * (at.short + h))) for h in (step, -step)
    )
    velocity = total([(0.5 / step, ahead), (-0.5 / step, behind)])
    return abs(at.norm(end, at.manifold.projection(end, velocity)) - 1.0)


@law(MANIFOLD, "a factor in log, or exp and log of different metrics", SAME)
def _exp_and_log(at: _Tangents) -> float:
    """exp(x, log(x, y)) = y, near and far."""
    ends = at.near(), at.y, at.z
    return max(_same(at.manifold, at.manifold.exp(at.x, at.manifold.log(at.x, end)), end) for end in ends)


@law(MANIFOLD, "a factor in dist, or the distance in the ambient space", GEODESIC)
def _distance(at: _Tangents) -> float:
    """dist(x, y) = ‖log(x, y)‖, near and far."""
    dist, end = at.manifold.dist, at.near()
    far = (abs(dist(at.x, y) - at.norm(at.x, at.manifold.log(at.x, y))) for y in (at.y, at.z))
    return max(abs(dist(at.x, end) / at.short - 1.0), *far)


@law(MANIFOLD, "dist is not a distance, but a square or a constant; or the diameter is too small", SAME)
def _triangle(at: _Tangents) -> float:
    """dist(x, y) = dist(y, x) ≤ dist(x, z) + dist(z, y), at most the diameter, and dist(x, x) = 0."""
    x, y, z, dist = at.x, at.y, at.z, at.manifold.dist
    whole = dist(x, y)
    detour = whole - dist(x, z) - dist(z, y)
    # Collinear points leave no slack.
    if at.manifold.knows("exp"):
        end = at.near()
        middle = at.manifold.exp(x, at.a * (0.5 * at.short))
        detour = max(detour, dist(x, end) - dist(x, middle) - dist(middle, end))
    return max(abs(whole - dist(y, x)), dist(x, x), detour, whole - at.manifold.diameter)


@law(MANIFOLD, "pair_mean is an end, or a mean in the ambient space", SAME)
def _midpoint(at: _Tangents) -> float:
    """`pair_mean` is halfway between both ends."""
    end = at.near()
    middle = at.manifold.pair_mean(at.x, end)
    halves = at.manifold.dist(at.x, middle), at.manifold.dist(middle, end)
    return max(abs(half / at.short - 0.5) for half in halves)


@law(MANIFOLD, "with_rank forgets an argument")
def _other_rank(at: _Tangents) -> Any:
    """`with_rank` returns the manifold of that rank, with its points and the same retraction."""
    manifold = at.manifold
    if not isinstance(manifold, FixedRankManifold):
        return None
    for k in {1, manifold.rank}:
        other = manifold.with_rank(k)
        wanted = k, tuple(manifold.shape), manifold.default_retraction
        if (other.rank, tuple(other.shape), other.default_retraction) != wanted:
            return f"with_rank({k}) is {other}, which moves by {other.default_retraction}"
        if reason := other.check_point(other.random_point(at.rng)):
            return f"a point of with_rank({k}) is invalid: {reason}"
    return float(abs(manifold.with_rank(manifold.rank).dim - manifold.dim))


@law(MANIFOLD, "n_blocks is too small, or block_of counts an entry twice")
def _blocks(at: _Tangents) -> float | None:
    """`block_of` projects orthogonally, and the blocks together are complete."""
    manifold: Any = at.manifold
    if not hasattr(manifold, "block_of"):
        return None
    A, B = (at.embed(at.project(part)) for part in (at.Z, at.Y))
    error, rest = 0.0, A
    for block in range(manifold.n_blocks):
        of_A, of_B = (at.embed(manifold.block_of(part, block)) for part in (A, B))
        again, tangent = at.embed(manifold.block_of(of_A, block)), at.embed(at.project(of_A))
        error = max(error, float(np.abs(again - of_A).max()), float(np.abs(tangent - of_A).max()))
        error = max(error, abs(float(ns.real_dot(of_A, B) - ns.real_dot(A, of_B))))
    # Blocks may overlap, so the part outside all of them is found by removing them one by one, repeatedly.
    for _ in range(20):
        for block in range(manifold.n_blocks):
            rest = rest - at.embed(manifold.block_of(rest, block))
    return max(error, float(np.linalg.norm(rest) / np.linalg.norm(A)))


@law(MANIFOLD, "max_step is of another line, or safe_step goes beyond it")
def _step_bound(at: _Tangents) -> Any:
    """A straight line stays on the manifold up to max_step and leaves there, and safe_step is shorter."""
    manifold, direction = at.manifold, at.a
    if not hasattr(manifold, "max_step"):
        return None
    if not np.isfinite(manifold.max_step(at.x, direction)):
        direction = -direction
    bound, safe = manifold.max_step(at.x, direction), manifold.safe_step(at.x, direction)
    start, ray = dense(manifold.embed_point(at.x)), bound * at.embed(direction)
    if reason := manifold.check_point(start + 0.999 * ray):
        return f"the line has already left at 0.999 · max_step: {reason}"
    if manifold.check_point(start + 1.001 * ray) is None:
        return "the line has not left at 1.001 · max_step"
    return 0.0 if 0.0 < safe <= bound else f"safe_step = {safe:.3g} and max_step = {bound:.3g}"


# Retractions


class _Curves:
    """Curves of a retraction from a point: along a random vector, and along one block if there are blocks."""

    def __init__(self, moves: list[Any], manifold: Any, x: Any, xi: Any, rng: np.random.Generator) -> None:
        (self.retraction, self.again), self.manifold, self.x, self.rng = moves, manifold, x, rng
        self.directions = [xi]
        if hasattr(manifold, "block_of"):
            ambient = dense(manifold.embedding(x, manifold.random_tangent_vector(x, rng)))
            block = manifold.block_of(ambient, int(rng.integers(manifold.n_blocks)))
            self.directions.append((1.0 / manifold.norm(x, block)) * block)

    def __call__(self, xi: Any, t: float) -> Any:
        return _end(self.retraction, self.manifold, self.x, xi, t)

    @cached_property
    def ends(self) -> list[tuple[Any, float, Any]]:
        """Vectors, steps up to the reach, and the ends. Without a reach steps may be refused as too long."""
        ends = []
        for xi in self.directions:
            reach = 0.999 * self.retraction.reach(self.manifold, self.x, xi)
            if not reach > 0.0:
                raise ValueError(f"reach = {reach}")
            # In single precision exponentials of long steps have no digits left.
            bound = reach if coarseness_of(self.x) == 1.0 else min(reach, 1.0)
            for t in (-0.01, 0.01, 0.3, 1.0, 10.0, reach):
                with suppress(InvalidInputError) if reach == np.inf else nullcontext():
                    ends += [(xi, t, self(xi, t))] if t <= bound and t < np.inf else []
        return ends


@law(RESULT, "a mistake in its code; a matrix becomes a point by manifold.from_matrix", 0.0)
def _result(at: _Curves) -> Any:
    """R(x, ξ) is a point."""
    end, kind = at(at.directions[0], 1e-6), type(at.x)
    return 0.0 if isinstance(end, kind) else f"it returned {type(end).__name__}, not {kind.__name__}"


@law(RETRACTION, "no return to the manifold; `reach` of another curve; or numpy's arrays of double precision")
def _staying(at: _Curves) -> Any:
    """R(x, ξ) lies on the manifold, up to `reach`, in the precision of x."""
    found = ((t, at.manifold.check_point(end) or _other_types(at.x, {"it": end})) for _, t, end in at.ends)
    return next((f"after a step of length {t} {reason}" for t, reason in found if reason), 0.0)


@law(RETRACTION, "random numbers in a call, in `__init__` or in its file; draw them from a fixed seed", 1e-10)
def _repetition(at: _Curves) -> Any:
    """R(x, ξ, t) is the same in each call, and for two objects of a class."""
    again = partial(_end, at.again, at.manifold, at.x)
    return np.max([_apart(at.manifold, end, again(xi, t)) for xi, t, end in at.ends])


@law(RETRACTION, "signs, order or basis of factors, or a diagonal S; use U S, S Vᵀ, or polar factors", 1e-10)
def _invariance(at: _Curves) -> Any:
    """R(x, ξ) is the same for other factors of x and ξ."""
    manifold, form = at.manifold, in_other_factors(at.x, at.rng)

    def there(xi: Any, t: float) -> Any:
        return _end(at.retraction, manifold, form, manifold.projection(form, manifold.embedding(at.x, xi)), t)

    return form and np.max([_same(manifold, end, there(xi, t)) for xi, t, end in at.ends])


@law(RETRACTION, "a factor, a sign, or another basis", 1e-10)
def _zero_step(at: _Curves) -> float:
    """R(x, 0) = x, and R(−x, 0) = −x if −x is a point."""
    M, x, pairs = at.manifold, at.x, [(at(at.directions[0], 0.0), at.x)]
    # Points may come from the same factorisation whose signs the retraction loses.
    points = [x, -x] if isinstance(x, np.ndarray) and M.check_point(-x) is None else [x]
    pairs += [(_end(at.retraction, M, point, M.zero_vector(point)), point) for point in points]
    return float(np.max([_apart(M, *pair) for pair in pairs]))


@law(RETRACTION, "`t` is used twice, or not at all, or without its sign, or within bounds", 1e-10)
def _scaling(at: _Curves) -> Any:
    """R(x, ξ, t) = R(x, tξ, 1), also for negative and large t."""
    return np.max([_same(at.manifold, end, at(t * xi, 1.0)) for xi, t, end in at.ends])


@law(RETRACTION, "an operation in place, such as `point += …`", 0.0)
def _purity(at: _Curves) -> float:
    """The given point and vector stay unchanged."""
    return written([(partial(at.retraction, at.manifold), *deepcopy((at.x, at.directions[0])), 0.01)])


@law(RETRACTION, "the derivative at 0 is given for every t, or a factor", DIFFERENCES)
def _velocity(at: _Curves) -> float | None:
    """velocity(t) is the derivative of the curve at t."""
    if not hasattr(at.retraction, "velocity"):
        return None
    errors = []
    for xi in at.directions:
        t = 0.3 * min(1.0, at.retraction.reach(at.manifold, at.x, xi))
        h = difference_step(coarseness_of(at.x)) * t
        ahead, behind = (dense(at.manifold.embed_point(at(xi, t + step))) for step in (h, -h))
        found = dense(at.retraction.velocity(at.manifold, at.x, xi, t))
        errors.append(np.linalg.norm(found - (ahead - behind) / (2.0 * h)) / np.linalg.norm(found))
    return float(max(errors))


def difference_step(coarseness: float) -> float:
    """Return the step of central differences that balances their error and rounding, at least 1e-4."""
    return max(1e-4, float(coarseness * np.finfo(float).eps) ** (1.0 / 3.0))


def in_other_factors(x: Any, rng: np.random.Generator) -> Any:
    """Return the same point with other factors, or None if it has none."""
    if isinstance(x, LowRankPoint):
        P, Q = (turn(x.rank, rng, x.U) for _ in range(2))
        return LowRankPoint(x.U @ P, ns.adjoint(P) @ x.S @ Q, x.V @ Q)
    if isinstance(x, PSDPoint):
        P = turn(x.rank, rng, x.Q)
        return PSDPoint(x.Q @ P, symmetric(ns.adjoint(P) @ x.S @ P))
    if isinstance(x, TuckerPoint):
        turns = [turn(k, rng, x.core) for k in x.ranks]
        core = multiplied(x.core, [turn.T for turn in turns])
        return TuckerPoint(core, tuple(U @ turn for U, turn in zip(x.factors, turns, strict=True)))
    return None


def turn(k: int, rng: np.random.Generator, like: Array) -> Any:
    """Return a random orthogonal or unitary matrix of the field of an array, or −1 for one real dimension."""
    # The Q of one real number is 1.
    return (1.0 - 2.0 * (k == 1)) * ns.namespace(like).linalg.qr(normal_like(ns.eye(k, like), rng))[0]


def _reals(array: Array) -> Array:
    """Return real and imaginary parts side by side, or a real array unchanged."""
    return np.stack([array.real, array.imag]) if ns.is_complex(array) else array


def _other_types(x: Any, made: dict[str, Any]) -> str | None:
    """Return one sentence on results in another precision than that of a point, or None."""
    wanted = np.result_type(*arrays_of(x))
    for name, thing in made.items():
        kinds = {array.dtype for array in arrays_of(thing) if array.dtype.kind in "fc"}
        if not kinds <= {wanted}:
            return f"{name} is of {', '.join(sorted(map(str, kinds)))} at a point of {wanted}"
    return None


def _apart(manifold: Manifold, a: Any, b: Any) -> float:
    """Return the ambient distance of two points relative to their size."""
    A, B = (dense(manifold.embed_point(point)) for point in (a, b))
    return float(np.linalg.norm(A - B) / max(np.linalg.norm(A), np.finfo(float).tiny))


def _same(manifold: Manifold, a: Any, b: Any) -> float:
    """Return 0 if two points are the same, also in different bases if the manifold can tell."""
    apart = _apart(manifold, a, b)
    return min(apart, manifold.dist(a, b)) if apart > SAME and manifold.knows("dist") else apart
