"""Arrays whose columns lie in hyperbolic space or are probabilities, with metrics of their own."""

from abc import abstractmethod
from typing import Any

import numpy as np

from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.retraction import Retraction
from rmopt.errors import InvalidInputError
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.precision import real_type, slack
from rmopt.retractions.arrays import HYPERBOLIC_RETRACTIONS, SIMPLEX_RETRACTIONS, MultiplicativeWeights
from rmopt.retractions.grassmann import Exponential


class _Columns(ArrayManifold):
    """A manifold of arrays with one point in each column, or of one point that is a vector."""

    n: int

    def __init__(self, rows: int, m: int) -> None:
        self.m = integer("m", m, 1)
        self.shape = (rows,) if self.m == 1 else (rows, self.m)

    @abstractmethod
    def products(self, point: Array, a: Array, b: Array) -> Any:
        """Return the inner products of the columns of two tangent vectors."""

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(np.sum(self.products(point, tangent_vector_a, tangent_vector_b)))

    @abstractmethod
    def normal(self, point: Array) -> Array:
        """Return what is orthogonal to the tangent space in the space around it, column by column."""

    def projection(self, point: Array, ambient: Ambient) -> Array:
        Z, normal = dense(ambient, point), self.normal(point)
        return Z - normal * ((normal * Z).sum(0) / (normal * normal).sum(0))

    @abstractmethod
    def _distances(self, point_a: Array, point_b: Array) -> Any:
        """Return the geodesic distances of the columns."""

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the length of the vector of all columns' distances."""
        return float(np.linalg.norm(self._distances(point_a, point_b)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}{f', {self.m}' if self.m > 1 else ''})"


class Hyperbolic(_Columns):
    """Hyperbolic space of dimension n, as the upper sheet of a hyperboloid; or m points of it.

    Points are vectors x of n + 1 numbers with −x₀² + x₁² + … + xₙ² = −1 and x₀ > 0, and the metric is this form
    (Nickel and Kiela 2018). All is computed in radial and transverse parts, whose squares are added and not
    subtracted: distances are exact between close points and between far ones. Tangent vectors are as exact as x₀
    times rounding. So points are refused from 30 away from the origin on, where that is 10⁻³.

    Parameters
    ----------
    n : int
        The dimension.
    m : int
        With more than 1, a point is an (n + 1) × m array of as many columns.

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
        (along_a, across_a), (along_b, across_b) = _parts(point, a), _parts(point, b)
        return along_a * along_b + (across_a * across_b).sum(0)

    def normal(self, point: Array) -> Array:
        return _mirrored(point)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return J G + x (xᵀG), where J turns the first sign: what is tangent of J G."""
        return self.to_tangent_space(point, _mirrored(dense(euclidean_gradient, point)))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return what is tangent of J H + ξ (xᵀG)."""
        G, H = dense(euclidean_gradient, point), dense(euclidean_hessian, point)
        return self.to_tangent_space(point, _mirrored(H) + tangent_vector * (point * G).sum(0))

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        radius, unit = _polar(point)
        radial = (unit * vector[1:]).sum(0)
        return _together(point, point[0] * radial - radius * vector[0], vector[1:] - unit * radial)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        (radius, unit), (along, across) = _polar(point), _parts(point, tangent_vector)
        aside = (across * across).sum(0)
        length = np.sqrt(along * along + aside)
        ratio = np.divide(np.sinh(length), length, out=np.ones_like(length), where=length > 0.0)
        # Inwards, sinh(r − length) in place of a difference of large numbers.
        inwards = length + np.abs(along)
        rest = np.divide(aside, inwards, out=np.zeros_like(length), where=inwards > 0.0)
        end = np.where(
            along < 0.0,
            np.sinh(np.arcsinh(radius) - length) + point[0] * ratio * rest,
            radius * np.cosh(length) + point[0] * along * ratio,
        )
        there = np.empty_like(point)
        there[1:] = unit * end + across * ratio
        return self.lifted(there)

    def log(self, point_a: Array, point_b: Array) -> Array:
        along, across = _towards(point_a, point_b)
        length = np.sqrt(along * along + (across * across).sum(0))
        scale = self._distances(point_a, point_b) / np.maximum(length, np.finfo(point_a.dtype).tiny)
        return _together(point_a, along * scale, across * scale)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the geodesic, in parallel."""
        (along, across), (near, aside) = _parts(point_a, tangent_vector_a), _towards(point_a, point_b)
        share = (along * near + (across * aside).sum(0)) / (2.0 + 2.0 * _half_chords(point_a, point_b))
        return tangent_vector_a + (point_a + point_b) * share

    def _distances(self, point_a: Array, point_b: Array) -> Any:
        return 2.0 * np.arcsinh(np.sqrt(_half_chords(point_a, point_b)))

    def lifted(self, array: Array) -> Array:
        """Return the points above the last n numbers of each column; the array itself, with another first row.

        Raises
        ------
        InvalidInputError
            Where they are so far out that tangent vectors have no digits.
        """
        array[0] = np.hypot(1.0, _polar(array)[0])
        if (word := self._too_far(array)) is not None:
            raise InvalidInputError(f"a step on {self} leads to where {word}; take shorter ones.")
        return array

    def _too_far(self, point: Array) -> str | None:
        farthest, limit = float(point[0].max()), 1e-3 / float(np.finfo(point.dtype).eps)
        if farthest <= limit:
            return None
        return f"x₀ = {farthest:.1e}, and above {limit:.1e} tangent vectors have no digits"

    def refusal(self, point: Array) -> str | None:
        sheet = np.hypot(1.0, _polar(point)[0])
        error = float((np.abs(point[0] - sheet) / sheet).max())
        if not error <= slack(1e-10, point):
            return f"it is not on the upper sheet: x₀ differs from √(1 + x₁² + …) by {error:.1e} of it"
        return self._too_far(point)

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a point above normally distributed numbers."""
        return self.lifted(np.random.default_rng(rng).standard_normal(self.shape))


class Simplex(_Columns):
    """Probabilities: vectors of n positive numbers with the sum 1, with the metric of Fisher and Rao; or m of them.

    Tangent vectors have the sum 0, and ⟨ξ, η⟩ = Σ ξᵢηᵢ/xᵢ. By x = s² this is a part of a sphere of radius 2, where
    its geodesics leave it after a while; `MultiplicativeWeights` never do.

    Parameters
    ----------
    n : int
        Numbers in a vector.
    m : int
        With more than 1, a point is an n × m array of as many columns.

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
            raise InvalidInputError("Simplex(1) has no directions to go; let n be 2 or more.")
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
        return (a * b / point).sum(0)

    def normal(self, point: Array) -> Array:
        return np.ones(self.shape, real_type(point))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return x ∘ (G − xᵀG)."""
        G = dense(euclidean_gradient, point)
        return point * (G - (point * G).sum(0))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return the derivative of the gradient along ξ, less ½ grad ∘ ξ / x, without what is not tangent."""
        G = dense(euclidean_gradient, point)
        mean = (point * G).sum(0)
        change = point * dense(euclidean_hessian, point) + 0.5 * tangent_vector * (G - mean)
        return change - point * change.sum(0)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic, by a great circle.

        Raises
        ------
        InvalidInputError
            Where it leaves the simplex.
        """
        root = np.sqrt(point)
        velocity = 0.5 * tangent_vector / root
        angle = np.sqrt((velocity * velocity).sum(0))
        end = root * np.cos(angle) + velocity * np.sinc(angle / np.pi)
        if not (end > 0.0).all() and np.isfinite(end).all():
            raise InvalidInputError(
                f"the geodesic leaves {self} after less than {float(angle.max()) * 2.0:.2g}; take a shorter step, "
                "or the retraction 'multiplicative'."
            )
        return end**2 / (end**2).sum(0)

    def log(self, point_a: Array, point_b: Array) -> Array:
        root, other = np.sqrt(point_a), np.sqrt(point_b)
        aside = other - root * (root * other).sum(0)
        length = np.sqrt(np.maximum((aside * aside).sum(0), np.finfo(aside.dtype).tiny))
        return 2.0 * root * aside * (0.5 * self._distances(point_a, point_b) / length)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the geodesic, in parallel."""
        root, other = np.sqrt(point_a), np.sqrt(point_b)
        middle, vector = root + other, tangent_vector_a / root
        carried = vector - middle * ((other * vector).sum(0) / (0.5 * (middle * middle).sum(0)))
        return other * carried

    def _distances(self, point_a: Array, point_b: Array) -> Any:
        root, other = np.sqrt(point_a), np.sqrt(point_b)
        apart, middle = (np.sqrt((one * one).sum(0)) for one in (root - other, root + other))
        return 4.0 * np.arctan2(apart, middle)

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        return vector - point * vector.sum(0)

    def refusal(self, point: Array) -> str | None:
        if not (point > 0.0).all():
            return f"its least number is {point.min():.1e}; all of them must be positive"
        error = float(np.abs(point.sum(0) - 1.0).max())
        return f"its sum differs from 1 by {error:.1e}; divide by it" if error > slack(1e-10, point) else None

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a point away from the boundary, of Dirichlet's distribution with the parameters 5."""
        point = np.random.default_rng(rng).standard_gamma(5.0, self.shape)
        return point / point.sum(0)


def _mirrored(array: Array) -> Array:
    """Return the array with the other sign in its first row."""
    mirrored = array.copy()
    mirrored[0] *= -1.0
    return mirrored


def _polar(point: Array) -> tuple[Any, Array]:
    """Return how far points lie from the axis of their hyperboloid, and the directions; 0 at the origin."""
    radius = np.sqrt((point[1:] ** 2).sum(0))
    return radius, point[1:] / np.maximum(radius, np.finfo(point.dtype).tiny)


def _parts(point: Array, tangent_vector: Array) -> tuple[Any, Array]:
    """Return a tangent vector's length along the geodesic from the origin, and what is across."""
    unit = _polar(point)[1]
    radial = (unit * tangent_vector[1:]).sum(0)
    return radial / point[0], tangent_vector[1:] - unit * radial


def _together(point: Array, along: Any, across: Array) -> Array:
    """Return the tangent vector with these parts."""
    radius, unit = _polar(point)
    vector = np.empty_like(point)
    vector[0], vector[1:] = radius * along, unit * (point[0] * along) + across
    return vector


def _apart(point_a: Array, point_b: Array) -> tuple[Any, Any]:
    """Return sinh(rᵦ − rₐ) of the distances to the origin, and |a| |b| (1 − cos) of the angle between a and b."""
    (one, unit_a), (two, unit_b) = _polar(point_a), _polar(point_b)
    difference, tiny = point_b[1:] - point_a[1:], np.finfo(point_a.dtype).tiny
    squares = (difference * (point_a[1:] + point_b[1:])).sum(0)
    # |a| (b/|b| − a/|a|), if b is the nearer one; it may be the origin, which has no direction.
    turned = difference - np.where(one < two, unit_a, unit_b) * (squares / np.maximum(one + two, tiny))
    share = np.minimum(one, two) / np.maximum(np.maximum(one, two), tiny)
    rise = squares / np.maximum(two * point_a[0] + one * point_b[0], tiny)
    return rise, 0.5 * share * (turned * turned).sum(0)


def _half_chords(point_a: Array, point_b: Array) -> Any:
    """Return sinh²(d/2), in which nothing is subtracted: (cosh(rₐ − rᵦ) − 1 + |a| |b| (1 − cos)) / 2."""
    rise, bent = _apart(point_a, point_b)
    return np.sinh(0.5 * np.arcsinh(rise)) ** 2 + 0.5 * bent


def _towards(point_a: Array, point_b: Array) -> tuple[Any, Array]:
    """Return the parts of the tangent vector at a towards b that is as long as sinh of the distance."""
    (radius, unit), (rise, bent) = _polar(point_a), _apart(point_a, point_b)
    difference = point_b[1:] - point_a[1:]
    along = np.where(
        radius > 0.0, rise - point_a[0] * bent / np.maximum(radius, np.finfo(point_a.dtype).tiny), 0.0
    )
    return along, difference - unit * (unit * difference).sum(0)
