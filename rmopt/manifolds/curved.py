"""Arrays whose columns lie in hyperbolic space or are probabilities, with metrics of their own."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.points import in_precision
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByManifold, Transport
from rmopt.errors import InvalidInputError
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.precision import real_type, slack
from rmopt.retractions.arrays import HYPERBOLIC_RETRACTIONS, SIMPLEX_RETRACTIONS, MultiplicativeWeights
from rmopt.retractions.grassmann import Exponential


class _Columns(ArrayManifold):
    """A manifold of arrays with one point in each column, or of one point that is a vector."""

    default_transport: Transport = ByManifold()

    def __init__(self, rows: int, m: int, retraction: Retraction | str | None) -> None:
        self.shape = (rows,) if integer("m", m, 1) == 1 else (rows, m)
        self.m = m
        self.default_retraction = self.fitting(retraction)

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

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        vector = super().random_tangent_vector(point, rng)
        return vector / self.norm(point, vector)

    def pair_mean(self, point_a: Array, point_b: Array) -> Array:
        return self.exp(point_a, 0.5 * self.log(point_a, point_b))


class Hyperbolic(_Columns):
    """Hyperbolic space of dimension n, as the upper sheet of a hyperboloid; or m points of it.

    Points are vectors x of n + 1 numbers with −x₀² + x₁² + … + xₙ² = −1 and x₀ > 0, and the metric is this form
    (Nickel and Kiela 2018). Distances are exact also between close points; far from the origin digits are lost like
    x₀² times rounding.

    Parameters
    ----------
    n : int
        The dimension.
    m : int
        With more than 1, a point is an (n + 1) × m array of as many columns.
    retraction : Retraction or str, optional
        The default retraction; `Exponential` unless given.

    See Also
    --------
    Sphere : constant curvature of the other sign.

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

    def __init__(self, n: int, m: int = 1, retraction: Retraction | str | None = None) -> None:
        self.n = integer("n", n, 1)
        super().__init__(n + 1, m, retraction)

    def __repr__(self) -> str:
        return f"Hyperbolic({self.n}{f', {self.m}' if self.m > 1 else ''})"

    @property
    def dim(self) -> int:
        return self.n * self.m

    def products(self, point: Array, a: Array, b: Array) -> Any:
        return (a[1:] * b[1:]).sum(0) - a[0] * b[0]

    def normal(self, point: Array) -> Array:
        return _mirrored(point)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return J G + x (xᵀG), where J turns the first sign."""
        G = dense(euclidean_gradient, point)
        return _mirrored(G) + point * (point * G).sum(0)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return what is tangent of J H + ξ (xᵀG)."""
        G, H = dense(euclidean_gradient, point), dense(euclidean_hessian, point)
        return self._tangent(point, _mirrored(H) + tangent_vector * (point * G).sum(0))

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        return self._tangent(point, vector)

    def _tangent(self, point: Array, vector: Array) -> Array:
        return vector + point * self.products(point, point, vector)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic."""
        length = np.sqrt(np.maximum(self.products(point, tangent_vector, tangent_vector), 0.0))
        ratio = np.divide(np.sinh(length), length, out=np.ones_like(length), where=length > 0.0)
        return self.lifted(point * np.cosh(length) + tangent_vector * ratio)

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of the geodesic."""
        aside = self._tangent(point_a, point_b - point_a)
        length = np.sqrt(np.maximum(self.products(point_a, aside, aside), np.finfo(aside.dtype).tiny))
        return aside * (self._distances(point_a, point_b) / length)

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the geodesic distance."""
        return float(np.linalg.norm(self._distances(point_a, point_b)))

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the geodesic, in parallel."""
        share = self.products(point_b, point_b, tangent_vector_a) / (
            1.0 - self.products(point_a, point_a, point_b)
        )
        return tangent_vector_a + (point_a + point_b) * share

    def _distances(self, point_a: Array, point_b: Array) -> Any:
        chord = point_b - point_a
        return 2.0 * np.arcsinh(0.5 * np.sqrt(np.maximum(self.products(point_a, chord, chord), 0.0)))

    def lifted(self, array: Array) -> Array:
        """Return the points above the last n numbers of each column; the array itself, with another first row."""
        array[0] = np.sqrt(1.0 + (array[1:] ** 2).sum(0))
        return array

    def refusal(self, point: Array) -> str | None:
        size = np.abs(point).max() ** 2
        error = float(np.abs(self.products(point, point, point) + 1.0).max())
        if not (point[0] > 0.0).all() or error > slack(1e-10, point) * size:
            return f"it is not on the upper sheet: −x₀² + x₁² + … differs from −1 by {error:.1e}"
        return None

    def random_point(self, rng: np.random.Generator | None = None, dtype: Any = float) -> Array:
        """Return a point above normally distributed numbers."""
        return self.lifted(in_precision(np.random.default_rng(rng).standard_normal(self.shape), dtype))


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
    retraction : Retraction or str, optional
        The default retraction; `MultiplicativeWeights` unless given.

    Raises
    ------
    InvalidInputError
        For fewer than two numbers.

    See Also
    --------
    Sphere : squares in place of probabilities.

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

    def __init__(self, n: int, m: int = 1, retraction: Retraction | str | None = None) -> None:
        self.n = integer("n", n, 1)
        if n < 2:
            raise InvalidInputError("Simplex(1) has no directions to go; let n be 2 or more.")
        super().__init__(n, m, retraction)

    def __repr__(self) -> str:
        return f"Simplex({self.n}{f', {self.m}' if self.m > 1 else ''})"

    @property
    def dim(self) -> int:
        return (self.n - 1) * self.m

    @property
    def typical_dist(self) -> float:
        """Scale of the manifold: its diameter."""
        return float(np.pi * self.m**0.5)

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
        """Return the initial velocity of the geodesic."""
        root, other = np.sqrt(point_a), np.sqrt(point_b)
        aside = other - root * (root * other).sum(0)
        length = np.sqrt(np.maximum((aside * aside).sum(0), np.finfo(aside.dtype).tiny))
        return 2.0 * root * aside * (0.5 * self._distances(point_a, point_b) / length)

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the geodesic distance: twice the angle between the roots."""
        return float(np.linalg.norm(self._distances(point_a, point_b)))

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

    def random_point(self, rng: np.random.Generator | None = None, dtype: Any = float) -> Array:
        """Return a point away from the boundary, of Dirichlet's distribution with the parameters 5."""
        point = np.random.default_rng(rng).standard_gamma(5.0, self.shape)
        return in_precision(point / point.sum(0), dtype)


def _mirrored(array: Array) -> Array:
    """Return the array with the other sign in its first row."""
    mirrored = array.copy()
    mirrored[0] *= -1.0
    return mirrored
