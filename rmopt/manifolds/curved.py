"""Arrays whose columns lie in hyperbolic space or are probabilities, with their own metrics."""

from abc import abstractmethod
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.errors import InvalidInputError
from rmopt.linalg import quotient, sinc
from rmopt.manifolds.arrays import ArrayManifold, Keeping, root_of_sums
from rmopt.retractions.arrays import HYPERBOLIC_RETRACTIONS, SIMPLEX_RETRACTIONS, MultiplicativeWeights
from rmopt.retractions.grassmann import Exponential


class _Columns(ArrayManifold):
    """A manifold of arrays with one point in each column, or of vectors as single points."""

    n: int

    def __init__(self, rows: int, m: int) -> None:
        self.m = integer("m", m, 1)
        self.shape = (rows,) if self.m == 1 else (rows, self.m)

    @abstractmethod
    def products(self, point: Array, a: Array, b: Array) -> Any:
        """Return the inner products of the columns of two tangent vectors."""

    def sums(self, array: Array) -> Any:
        """Return the sums of the columns in a shape that broadcasts with them."""
        # One axis less has less overhead.
        if type(array) is np.ndarray and array.ndim == len(self.shape):
            return np.add.reduce(array, 0)
        return ns.namespace(array).sum(array, axis=-len(self.shape), keepdims=True)

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        products = self.products(point, tangent_vector_a, tangent_vector_b)
        if isinstance(products, np.ndarray | np.generic):
            # `np.sum` has three times the overhead.
            return float(np.add.reduce(products, None))
        return float(ns.namespace(products).sum(products))

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        products = self.products(point, tangent_vectors_a, tangent_vectors_b)
        axes = tuple(range(-min(products.ndim, len(self.shape)), 0))
        return ns.namespace(products).sum(products, axis=axes)

    @abstractmethod
    def normal(self, point: Array) -> Array:
        """Return a normal of the tangent space in the ambient space, column by column."""

    def projection(self, point: Array, ambient: Ambient) -> Array:
        Z, normal = dense(ambient, point), self.normal(point)
        return Z - normal * (self.sums(normal * Z) / self.sums(normal * normal))

    @abstractmethod
    def _distances(self, point_a: Array, point_b: Array) -> Any:
        """Return the geodesic distances of the columns."""

    def dist(self, point_a: Array, point_b: Array) -> Any:
        """Return the length of the vector of all columns' distances."""
        return root_of_sums(self._distances(point_a, point_b) ** 2, len(self.shape))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}{f', {self.m}' if self.m > 1 else ''})"


# Of points of a hyperboloid: the first row, the others, their length and their direction.
Polar = tuple[Any, Array, Any, Array]


class Hyperbolic(Keeping, _Columns):
    """Hyperbolic space of dimension n, as the upper sheet of a hyperboloid, or m points of it.

    Points are vectors x of n + 1 numbers with −x₀² + x₁² + … + xₙ² = −1 and x₀ > 0, and the metric is this form
    (Nickel and Kiela 2018). Computations use radial and transverse parts, whose squares are added and never
    subtracted, so distances of close and of far points are exact. Tangent vectors are exact to x₀ times rounding. At
    30 from the origin that is 10⁻³, and points from there on are refused.

    Parameters
    ----------
    n : int
        The dimension.
    m : int
        The number of points: if more than 1, a point is an (n + 1) × m array.

    References
    ----------
    Nickel and Kiela, Learning continuous hierarchies in the Lorentz model of hyperbolic geometry, ICML (2018),
    arXiv:1806.03417.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Hyperbolic
    >>> manifold = Hyperbolic(2)
    >>> x, y = (manifold.random_point(np.random.default_rng(seed)) for seed in (0, 1))
    >>> bool(np.allclose(manifold.exp(x, manifold.log(x, y)), y))
    True
    """

    default_retraction: Retraction = Exponential()
    retractions = HYPERBOLIC_RETRACTIONS

    def __init__(self, n: int, m: int = 1) -> None:
        self.n = integer("n", n, 1)
        super().__init__(self.n + 1, m)

    @property
    def dim(self) -> int:
        return self.n * self.m

    def products(self, point: Array, a: Array, b: Array) -> Any:
        polar = self._polar(point)
        (along_a, across_a), (along_b, across_b) = self._parts(polar, a), self._parts(polar, b)
        return along_a * along_b + self.sums(across_a * across_b)

    def normal(self, point: Array) -> Array:
        first, rest = self._rows(point)
        return self._joined(-first, rest)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return J G + x (xᵀG), the tangent part of J G, where J flips the first sign."""
        return self.to_tangent_space(point, self.normal(dense(euclidean_gradient, point)))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return the tangent part of J H + ξ (xᵀG)."""
        G, H = dense(euclidean_gradient, point), dense(euclidean_hessian, point)
        return self.to_tangent_space(point, self.normal(H) + tangent_vector * self.sums(point * G))

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        polar, (first, rest) = self._polar(point), self._rows(vector)
        height, _, radius, unit = polar
        radial = self.sums(unit * rest)
        return self._together(polar, height * radial - radius * first, rest - unit * radial)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        xp, polar = ns.namespace(point), self._polar(point)
        height, _, radius, unit = polar
        along, across = self._parts(polar, tangent_vector)
        aside = self.sums(across * across)
        length = xp.sqrt(along * along + aside)
        ratio = quotient(xp.sinh(length), length, 1.0)
        # Inwards, sinh(r − length) instead of a difference of large numbers.
        rest = aside / _positive(length + abs(along))
        end = xp.where(
            along < 0.0,
            xp.sinh(xp.asinh(radius) - length) + height * ratio * rest,
            radius * xp.cosh(length) + height * along * ratio,
        )
        return self._above(unit * end + across * ratio)

    def log(self, point_a: Array, point_b: Array) -> Array:
        polar = self._polar(point_a)
        half, along, across = self._towards(polar, self._polar(point_b))
        length = ns.namespace(point_a).sqrt(along * along + self.sums(across * across))
        scale = _arc(half) / _positive(length)
        return self._together(polar, along * scale, across * scale)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the geodesic, in parallel."""
        polar = self._polar(point_a)
        half, near, aside = self._towards(polar, self._polar(point_b))
        along, across = self._parts(polar, tangent_vector_a)
        share = (along * near + self.sums(across * aside)) / (2.0 + 2.0 * half)
        return tangent_vector_a + (point_a + point_b) * share

    def _distances(self, point_a: Array, point_b: Array) -> Any:
        return _arc(_half_chords(*self._apart(self._polar(point_a), self._polar(point_b))[:2]))

    def lifted(self, array: Array) -> Array:
        """Return the points above the last n numbers of each column.

        Raises
        ------
        InvalidInputError
            If they are so far out that tangent vectors have no digits.
        """
        return self._above(self._rows(array)[1])

    def to_poincare(self, point: Array) -> Array:
        """Return the points of the ball of Poincaré, (x₁, …, xₙ) / (1 + x₀), which are shorter than 1."""
        first, rest = self._rows(point)
        return rest / (1.0 + first)

    def from_poincare(self, ball: Array) -> Array:
        """Return the points of the sheet for points y of the ball: above 2 y / (1 − ‖y‖²)."""
        room = 1.0 - self.sums(ball * ball)
        if not bool(ns.namespace(ball).min(room) > 0.0):
            raise InvalidInputError(f"a point is not in the ball of {self}; scale it to a length below 1.")
        return self._above(2.0 * ball / room)

    def _above(self, rest: Array) -> Array:
        """Return the points above columns of n numbers, as `lifted` does."""
        first = self._sheet(rest)
        if (word := self._too_far(first)) is not None:
            raise InvalidInputError(f"after a step on {self}, {word}; take shorter ones.")
        return self._joined(first, rest)

    def _sheet(self, rest: Array) -> Array:
        """Return the first row of the points above some others."""
        xp = ns.namespace(rest)
        return xp.hypot(xp.sqrt(self.sums(rest * rest)), 1.0)

    def _too_far(self, first: Array) -> str | None:
        farthest, limit = float(ns.namespace(first).max(first)), 1e-3 / float(ns.limits(first).eps)
        if farthest <= limit:
            return None
        return f"x₀ = {farthest:.1e}, and above {limit:.1e} tangent vectors have no digits"

    def refusal(self, point: Array) -> str | None:
        first, rest = self._rows(point)
        sheet = self._sheet(rest)
        error = float(ns.namespace(point).max(abs(first - sheet) / sheet))
        if not error <= ns.slack(1e-10, point):
            return f"it is not on the upper sheet: x₀ differs from √(1 + x₁² + …) by {error:.1e} of it"
        return self._too_far(first)

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a point above normally distributed numbers."""
        return as_like(self.lifted(self.drawn(rng)), like)

    # Radial and transverse parts

    def _rows(self, array: Array) -> tuple[Any, Array]:
        """Return the first row of an array of columns, and the others."""
        if type(array) is np.ndarray and array.ndim == len(self.shape):
            return array[0], array[1:]
        if len(self.shape) == 1:
            return array[..., :1], array[..., 1:]
        return array[..., :1, :], array[..., 1:, :]

    def _joined(self, first: Any, rest: Array) -> Array:
        """Return the array of a first row and others."""
        if type(rest) is not np.ndarray or rest.ndim > len(self.shape):
            return ns.namespace(rest).concat([first, rest], axis=-len(self.shape))
        array = np.empty((self.n + 1, *rest.shape[1:]), rest.dtype)
        array[0], array[1:] = first, rest
        return array

    def _polar(self, point: Array) -> Polar:
        """Return the first row, the others, their length, which is 0 at the origin, and their direction.

        A run caches those of the last two points.
        """
        return self._kept_at(point, self._found_polar)

    def _found_polar(self, point: Array) -> Polar:
        height, rest = self._rows(point)
        radius = ns.namespace(point).sqrt(self.sums(rest * rest))
        return height, rest, radius, rest / _positive(radius)

    def _parts(self, polar: Polar, tangent_vector: Array) -> tuple[Any, Array]:
        """Return a tangent vector's length along the geodesic from the origin, and its transverse part."""
        height, _, _, unit = polar
        rest = self._rows(tangent_vector)[1]
        radial = self.sums(unit * rest)
        return radial / height, rest - unit * radial

    def _together(self, polar: Polar, along: Any, across: Array) -> Array:
        """Return the tangent vector with these parts."""
        height, _, radius, unit = polar
        return self._joined(radius * along, unit * (height * along) + across)

    def _apart(self, a: Polar, b: Polar) -> tuple[Any, Any, Array]:
        """Return sinh(rᵦ − rₐ) of the distances to the origin, |a| |b| (1 − cos) of the angle, and the difference."""
        xp, (height_a, rest_a, one, unit_a), (height_b, rest_b, two, unit_b) = ns.namespace(a[1]), a, b
        difference = rest_b - rest_a
        squares = self.sums(difference * (rest_a + rest_b))
        # |a| (b/|b| − a/|a|), if b is nearer: it may be the origin, which has no direction.
        turned = difference - xp.where(one < two, unit_a, unit_b) * (squares / _positive(one + two))
        share = xp.minimum(one, two) / _positive(xp.maximum(one, two))
        rise = squares / _positive(two * height_a + one * height_b)
        return rise, 0.5 * share * self.sums(turned * turned), difference

    def _towards(self, a: Polar, b: Polar) -> tuple[Any, Any, Array]:
        """Return sinh²(d/2), and the parts of the tangent vector at a towards b that is as long as sinh d."""
        (height, _, radius, unit), (rise, bent, difference) = a, self._apart(a, b)
        along = ns.namespace(unit).where(radius > 0.0, rise - height * bent / _positive(radius), 0.0)
        return _half_chords(rise, bent), along, difference - unit * self.sums(unit * difference)


class Simplex(_Columns):
    """Probabilities: vectors of n positive numbers with the sum 1, or m of them, with the Fisher-Rao metric.

    Tangent vectors have the sum 0, and ⟨ξ, η⟩ = Σ ξᵢηᵢ/xᵢ. By x = s² this is a part of a sphere of radius 2, which
    geodesics leave eventually. `MultiplicativeWeights` never leave it.

    Parameters
    ----------
    n : int
        Numbers in a vector.
    m : int
        The number of points: if more than 1, a point is an n × m array.

    References
    ----------
    Åström, Petra, Schmitzer and Schnörr, Image labeling by assignment, Journal of Mathematical Imaging and
    Vision 58 (2017), https://doi.org/10.1007/s10851-016-0702-4.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Simplex
    >>> from rmopt.solvers import GradientDescent
    >>> goal = np.array([0.7, 0.2, 0.1])
    >>> problem = Problem(Simplex(3), autograd_cost(lambda p: ((p - goal) ** 2).sum()))
    >>> GradientDescent(tol=1e-8).run(problem, random_state=0).point.round(6)
    array([0.7, 0.2, 0.1])
    """

    default_retraction: Retraction = MultiplicativeWeights()
    retractions = SIMPLEX_RETRACTIONS

    def __init__(self, n: int, m: int = 1) -> None:
        self.n = integer("n", n, 1)
        if n < 2:
            raise InvalidInputError("Simplex(1) has no tangent directions; let n be 2 or more.")
        super().__init__(self.n, m)

    @property
    def dim(self) -> int:
        return (self.n - 1) * self.m

    @property
    def typical_dist(self) -> float:
        return float(np.pi * self.m**0.5)

    @property
    def diameter(self) -> float:
        return self.typical_dist

    def products(self, point: Array, a: Array, b: Array) -> Any:
        return self.sums(a * b / point)

    def normal(self, point: Array) -> Array:
        return ns.namespace(point).ones_like(point)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return x ∘ (G − xᵀG)."""
        G = dense(euclidean_gradient, point)
        return point * (G - self.sums(point * G))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return the derivative of the gradient along ξ, less ½ grad ∘ ξ / x, projected."""
        G = dense(euclidean_gradient, point)
        mean = self.sums(point * G)
        change = point * dense(euclidean_hessian, point) + 0.5 * tangent_vector * (G - mean)
        return change - point * self.sums(change)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic, by a great circle.

        Raises
        ------
        InvalidInputError
            If it leaves the simplex.
        """
        xp = ns.namespace(point)
        root = xp.sqrt(point)
        velocity = 0.5 * tangent_vector / root
        angle = xp.sqrt(self.sums(velocity * velocity))
        end = root * xp.cos(angle) + velocity * sinc(angle)
        if bool(xp.any(end <= 0.0)):
            raise InvalidInputError(
                f"the geodesic leaves {self} after less than {float(xp.max(angle)) * 2.0:.2g}; take a shorter step, "
                "or the retraction 'multiplicative'."
            )
        return end**2 / self.sums(end**2)

    def log(self, point_a: Array, point_b: Array) -> Array:
        root, other = point_a**0.5, point_b**0.5
        aside = other - root * self.sums(root * other)
        length = _positive(self.sums(aside * aside)) ** 0.5
        return 2.0 * root * aside * (0.5 * self._distances(point_a, point_b) / length)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the geodesic, in parallel."""
        root, other = point_a**0.5, point_b**0.5
        middle, vector = root + other, tangent_vector_a / root
        carried = vector - middle * (self.sums(other * vector) / (0.5 * self.sums(middle * middle)))
        return other * carried

    def _distances(self, point_a: Array, point_b: Array) -> Any:
        root, other = point_a**0.5, point_b**0.5
        apart, middle = (self.sums(one * one) ** 0.5 for one in (root - other, root + other))
        return 4.0 * ns.namespace(apart).atan2(apart, middle)

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        return vector - point * self.sums(vector)

    def refusal(self, point: Array) -> str | None:
        xp = ns.namespace(point)
        least, error = float(xp.min(point)), float(xp.max(abs(self.sums(point) - 1.0)))
        if not least > 0.0:
            return f"its least number is {least:.1e}; all of them must be positive"
        return (
            f"its sum differs from 1 by {error:.1e}; divide by it" if error > ns.slack(1e-10, point) else None
        )

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a point away from the boundary, from the Dirichlet distribution with parameters 5."""
        point = np.random.default_rng(rng).standard_gamma(5.0, self.shape)
        return as_like(point / self.sums(point), like)


def _half_chords(rise: Any, bent: Any) -> Any:
    """Return sinh²(d/2) without cancellation: (cosh(rₐ − rᵦ) − 1 + |a| |b| (1 − cos)) / 2."""
    xp = ns.namespace(rise)
    return xp.sinh(0.5 * xp.asinh(rise)) ** 2 + 0.5 * bent


def _arc(half: Any) -> Any:
    """Return d for sinh²(d/2)."""
    xp = ns.namespace(half)
    return 2.0 * xp.asinh(xp.sqrt(half))


def _positive(lengths: Any) -> Any:
    """Return lengths that are safe to divide by."""
    return ns.at_least(lengths, 1e-37 if ns.is_single(lengths) else 1e-300)
